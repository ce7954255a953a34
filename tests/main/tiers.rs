//! A model that is larger than the fastest memory: tensors with a copy for each layer lie in two tiers.

use std::path::Path;

use serde_json::Value;

use crate::first_steps::rdusim;

/// A token of the model on an SN40L whose HBM holds `hbm_mb` (10^6 bytes).
fn decode(directory: &Path, hbm_mb: u64) -> Value {
    let set = format!("arch.memory.hbm.capacity_bytes={}", hbm_mb * 1_000_000);
    let words = ["run", "--mode", "fused", "--effort", "quick", "--arch", "sn40l", "--workload", "decode.toml"];
    let (code, stdout, stderr) = rdusim(directory, &[&words[..], &["--set", &set, "--format", "json"]].concat());
    assert_eq!(code, Some(0), "{set}: {stderr}");
    let json: Value = serde_json::from_str(&stdout).expect("JSON");
    json["runs"][0].clone()
}

/// Writes a model of eight layers whose weights and caches take 2 GB.
fn model(directory: &Path) {
    let words = ["model", "llama", "--layers", "8", "--hidden", "2048", "--heads", "16", "--ffn", "5632"];
    let more = ["--vocabulary", "8000", "--phase", "decode", "--batch", "8", "--sequence", "2048", "-o", "decode.toml"];
    let (code, _, stderr) = rdusim(directory, &[&words[..], &more].concat());
    assert_eq!(code, Some(0), "{stderr}");
}

#[test]
fn time_grows_steadily_as_the_fastest_memory_shrinks() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    model(directory.path());
    let mut last = 0;
    let mut read = Vec::new();
    // With 2 GB of HBM nothing lies in DDR.
    let mut held_mb = 2000;
    for hbm_mb in [2000, 1500, 1300] {
        let run = decode(directory.path(), hbm_mb);
        let number = |key: &str| run[key].as_u64().expect(key);
        let (cycles, bound) = (number("cycles"), number("bound_cycles"));
        // The bound knows which bytes are in which tier, and takes all tiers to be busy all the time.
        assert!(bound <= cycles && cycles as f64 <= 1.2 * bound as f64, "{hbm_mb} MB: {cycles} cycles, bound {bound}");
        // What HBM no longer holds comes from DDR, at 200 GB/s and 1.6 GHz.
        let most = (held_mb - hbm_mb) as f64 * 1e6 / 200e9 * 1.6e9;
        held_mb = hbm_mb;
        assert!(cycles > last, "{hbm_mb} MB: {cycles} cycles, no more than {last} with more HBM");
        assert!(last == 0 || ((cycles - last) as f64) < 1.3 * most, "{hbm_mb} MB: {last} to {cycles} cycles");
        last = cycles;
        read.push(run["traffic"]["off_chip_read_bytes"].as_u64().expect("bytes"));
        let parts: Vec<&str> =
            run["traffic"]["by_tensor"].as_object().expect("tensors").keys().map(String::as_str).collect();
        let is_divided = parts.iter().any(|name| name.starts_with("v_cache["));
        assert_eq!(is_divided, hbm_mb < 2000, "{hbm_mb} MB: {parts:?}");
    }
    // The same weights and caches are read, wherever they lie.
    let (least, most) = (read.iter().min().expect("runs"), read.iter().max().expect("runs"));
    assert!((*most as f64) < 1.01 * *least as f64, "{read:?}");
}

#[test]
fn other_commands_take_divided_graphs() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    model(directory.path());
    let small = ["--arch", "sn40l", "--workload", "decode.toml", "--set", "arch.memory.hbm.capacity_bytes=1500000000"];
    let mode = ["--mode", "fused"];
    let (code, map, stderr) = rdusim(directory.path(), &[&["map"], &mode[..], &small, &["--effort", "quick"]].concat());
    assert!(code == Some(0) && map.contains("scores[1-"), "{stderr}\n{map}");
    let (code, _, stderr) =
        rdusim(directory.path(), &[&["prove"], &mode[..], &small, &["--out", "proof.json"]].concat());
    assert_eq!(code, Some(0), "{stderr}");
    let (code, _, stderr) = rdusim(directory.path(), &["check-proof", "proof.json"]);
    assert_eq!(code, Some(0), "{stderr}");
}

#[test]
fn a_study_divides_the_graph_of_each_point() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    model(directory.path());
    // The grid of a study that varies the capacity divides each point's graph in its own place.
    let study = "schema = 1\nname = \"capacity\"\narch = \"sn40l\"\nworkload = \"decode.toml\"\ncompile = \
                 \"coarse\"\nmetrics = [\"fused.cycles\"]\n[[axes]]\npath = \
                 \"arch.memory.hbm.capacity_bytes\"\nvalues = [1500000000, 2000000000]\n";
    std::fs::write(directory.path().join("study.toml"), study).expect("a file");
    let (code, _, stderr) = rdusim(directory.path(), &["sweep", "study.toml", "--out", "out"]);
    assert_eq!(code, Some(0), "{stderr}");
    let table = std::fs::read_to_string(directory.path().join("out/results.csv")).expect("the table");
    let cycles: Vec<u64> = table.lines().skip(1).filter_map(|line| line.rsplit(',').next()?.parse().ok()).collect();
    let alone = decode(directory.path(), 1500)["cycles"].as_u64().expect("cycles");
    assert!(cycles.len() == 2 && cycles[0] == alone && cycles[1] < alone, "{alone}\n{table}");
}
