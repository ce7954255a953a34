//! Second operands stored in narrower formats on systolic arrays, wafers, chips of tiles and GPUs: bytes, times by hand, energy, and what
//! fits.

use std::path::Path;

use serde_json::Value;

use crate::first_steps::rdusim;
use crate::fuzz_kinds::wire;

const INT4: &str = "storage = { format = \"int4\", group = 128 }";

/// Bytes of 4-bit elements with a bf16 scale for 128 along the depth.
fn int4_bytes(depth: u64, columns: u64) -> u64 {
    depth * columns / 2 + depth / 128 * columns * 2
}

/// y = x w of so many rows, `storage` of the weight.
fn product(dtype: &str, rows: u64, columns: u64, depth: u64, storage: &str) -> String {
    format!(
        "schema = 1\nname = \"gemm\"\ndtype = \"{dtype}\"\n[[tensors]]\nname = \"x\"\nshape = [{rows}, {depth}]\nrole = \"input\"\n\
         [[tensors]]\nname = \"w\"\nshape = [{depth}, {columns}]\nrole = \"weight\"\n{storage}\n[[operators]]\nname = \"y\"\nkind = \
         \"gemm\"\ninputs = [\"x\", \"w\"]\noutput = \"y\"\n"
    )
}

/// One run's figures.
struct Run {
    cycles: u64,
    /// Bytes of the weight from off the chip.
    weight_bytes: u64,
    /// Joules of multiplications.
    compute_j: f64,
    /// How the product is cut up.
    mapping: String,
}

fn run(directory: &Path, arch: &str, text: &str, sets: &[&str]) -> Run {
    std::fs::write(directory.join("gemm.toml"), text).expect("a file");
    let mut words = vec!["run", "--mode", "fused", "--arch", arch, "--workload", "gemm.toml", "--format", "json"];
    for &set in sets {
        words.extend(["--set", set]);
    }
    let (code, stdout, stderr) = rdusim(directory, &words);
    assert_eq!(code, Some(0), "{words:?}: {stderr}");
    let document: Value = serde_json::from_str(&stdout).expect("JSON");
    let of = &document["runs"][0];
    let (cycles, bound) = (of["cycles"].as_u64().expect("cycles"), of["bound_cycles"].as_u64().expect("bound"));
    assert!(bound <= cycles, "{arch}: {cycles} cycles, bound {bound}");
    Run {
        cycles,
        weight_bytes: of["traffic"]["by_tensor"]["w"]["off_chip_read_bytes"].as_u64().unwrap_or(0),
        compute_j: of["energy_j"]["compute"].as_f64().expect("joules"),
        mapping: of["sections"][0]["stages"][0]["mapping"].as_str().unwrap_or_default().to_owned(),
    }
}

/// The same product dense and packed.
fn both(arch: &str, dtype: &str, shape: (u64, u64, u64), sets: &[&str]) -> [Run; 2] {
    let directory = tempfile::tempdir().expect("a temporary directory");
    ["", INT4].map(|storage| run(directory.path(), arch, &product(dtype, shape.0, shape.1, shape.2, storage), sets))
}

const SIDE: u64 = 8192;
const ELEMENTS: u64 = SIDE * SIDE;
/// Picojoule of a multiplication of 16 bits in all of these chip files.
const MAC_PJ: f64 = 0.59;

/// Times that elements are expanded, from the energy of their multiplications by scales.
fn expansions([dense, packed]: &[Run; 2]) -> f64 {
    (packed.compute_j - dense.compute_j) / (ELEMENTS as f64 * MAC_PJ * 1e-12)
}

fn is_near(found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() < 1e-6
}

#[test]
fn systolic_arrays_read_what_is_stored_and_their_vector_units_expand_it() {
    let few = both("tpu-v4", "bf16", (8, SIDE, SIDE), &[]);
    assert_eq!(few.each_ref().map(|run| run.weight_bytes), [2 * ELEMENTS, int4_bytes(SIDE, SIDE)]);
    // What is left is the time in which arrays load the weights.
    assert!(few[1].cycles * 9 < few[0].cycles * 5, "{} {}", few[1].cycles, few[0].cycles);
    assert!(is_near(expansions(&few), 1.0), "{}", expansions(&few));
    // With 256 lanes the vector units decide: 2 operations on each element, with 512 lanes half as long. The first fold of each of the
    // eight arrays, 8 x 128 x 128 elements, is expanded before they start.
    let [slow, fast] = [256, 512].map(|lanes| {
        let set = format!("arch.vector.lanes={lanes}");
        both("tpu-v4", "bf16", (8, SIDE, SIDE), &[&set])
    });
    let first = if slow[1].mapping.contains("right operand stays") { 8 * 128 * 128 } else { 0 };
    let expected = 2 * (ELEMENTS + first) / 256 - 2 * (ELEMENTS + first) / 512;
    assert_eq!(slow[1].cycles - fast[1].cycles, expected, "{}", slow[1].mapping);
    assert_eq!(slow[0].cycles, fast[0].cycles);
    // Behind many rows expansion is hidden.
    let many = both("tpu-v4", "bf16", (4096, SIDE, SIDE), &[]);
    assert!(many[1].cycles as f64 <= 1.02 * many[0].cycles as f64, "{} {}", many[1].cycles, many[0].cycles);
}

#[test]
fn wafers_stream_what_is_stored_and_their_cores_expand_it() {
    let few = both("cs2", "fp16", (8, SIDE, SIDE), &[]);
    assert_eq!(few.each_ref().map(|run| run.weight_bytes), [2 * ELEMENTS, int4_bytes(SIDE, SIDE)]);
    assert!(few[1].cycles * 2 < few[0].cycles, "{} {}", few[1].cycles, few[0].cycles);
    // A single core expands all elements, four in two cycles.
    let one =
        ["arch.core.count=1", "arch.core.sram_bytes=1000000000", "arch.memory.memoryx.bandwidth_gb_per_s=1000000"];
    let alone = both("cs2", "fp16", (8, SIDE, SIDE), &[&one[..], &["arch.fabric.link_bytes_per_cycle=64"]].concat());
    let more = alone[1].cycles - alone[0].cycles;
    // The first vector is expanded before its elements are multiplied.
    assert!(more.abs_diff(ELEMENTS / 4 * 2 + 2) <= 1, "{more}");
    assert!(is_near(expansions(&alone), 1.0), "{}", expansions(&alone));
    let many = both("cs2", "fp16", (1 << 17, SIDE, SIDE), &["arch.core.sram_bytes=100000"]);
    assert!(many[1].cycles as f64 <= 1.02 * many[0].cycles as f64, "{} {}", many[1].cycles, many[0].cycles);
}

#[test]
fn a_pipeline_on_a_wafer_keeps_what_is_stored() {
    // 128 MiB of fp16 or 34.6 MB packed on cores with 36,864 bytes each for it.
    let pipeline = ["arch.program.execution=pipeline", "arch.core.count=2000"];
    let directory = tempfile::tempdir().expect("a temporary directory");
    let packed = run(directory.path(), "cs2", &product("fp16", 64, SIDE, SIDE, INT4), &pipeline);
    assert_eq!(packed.weight_bytes, 0);
    std::fs::write(directory.path().join("dense.toml"), product("fp16", 64, SIDE, SIDE, "")).expect("a file");
    let words = ["run", "--mode", "fused", "--arch", "cs2", "--workload", "dense.toml"];
    let sets = pipeline.map(|set| ["--set", set]).concat();
    let (code, _, stderr) = rdusim(directory.path(), &[&words[..], &sets].concat());
    assert_eq!(code, Some(2), "{stderr}");
}

#[test]
fn tiles_hold_what_is_stored_and_expand_it_step_by_step() {
    // 128 tiles have 73 MB: the dense weight comes from off the chip, the packed one lies on the tiles.
    let few = both("bow", "fp16", (8, SIDE, SIDE), &["arch.tile.count=128"]);
    assert_eq!(few.each_ref().map(|run| run.weight_bytes), [2 * ELEMENTS, 0]);
    assert!(few[1].cycles * 4 < few[0].cycles, "{} {}", few[1].cycles, few[0].cycles);
    // 56 tiles have room for neither: both come, each as it is stored.
    let few = both("bow", "fp16", (8, SIDE, SIDE), &["arch.tile.count=56"]);
    assert_eq!(few.each_ref().map(|run| run.weight_bytes), [2 * ELEMENTS, int4_bytes(SIDE, SIDE)]);
    assert!(few[1].cycles * 2 < few[0].cycles, "{} {}", few[1].cycles, few[0].cycles);
    assert!(expansions(&few) >= 1.0 - 1e-6, "{}", expansions(&few));
    // Behind many rows a tile's elements are expanded while it could multiply them with a few rows.
    let many = both("bow", "fp16", (4096, SIDE, SIDE), &[]);
    assert!(many[1].cycles as f64 <= 1.06 * many[0].cycles as f64, "{} {}", many[1].cycles, many[0].cycles);
    assert!(many[1].mapping.contains("expanded"), "{}", many[1].mapping);
}

/// Of experts of which a token meets two of eight, those two arrive, and the bound counts no more.
#[test]
fn parts_of_packed_matrices_stay_above_their_bound() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = r#"{"model_type": "mixtral", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 1,
        "num_attention_heads": 8, "num_key_value_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 2,
        "vocab_size": 50, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
        "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}"#;
    std::fs::write(directory.path().join("config.json"), config).expect("a file");
    for arch in ["cs2", "tpu-v4", "bow"] {
        let words = ["run", "--mode", "fused", "--arch", arch, "--workload", "config.json", "--phase", "decode"];
        let (code, stdout, stderr) =
            rdusim(directory.path(), &[&words[..], &["--context", "64", "--format", "json"]].concat());
        assert_eq!(code, Some(0), "{arch}: {stderr}");
        let run = &serde_json::from_str::<Value>(&stdout).expect("JSON")["runs"][0];
        assert!(run["bound_cycles"].as_u64() <= run["cycles"].as_u64(), "{arch}: {}", run["bound_cycles"]);
        let traffic = run["traffic"]["by_tensor"].to_string();
        // With a zero point of 4 bits for each group of 128.
        let two = 2 * (int4_bytes(1024, 4096) + 1024 * 4096 / 128 / 2);
        assert!(arch == "bow" || traffic.contains(&format!("\"off_chip_read_bytes\":{two}")), "{arch}: {traffic}");
    }
}

/// A GPU expands each element once for 128 rows, and each time it is multiplied by its scale.
#[test]
fn expansion_takes_energy_on_gpus() {
    let few = both("a100", "bf16", (8, SIDE, SIDE), &[]);
    let once = few[1].compute_j - few[0].compute_j;
    let many = both("a100", "bf16", (512, SIDE, SIDE), &[]);
    let four_times = many[1].compute_j - many[0].compute_j;
    // As many multiplications as the product of eight rows has an eighth of.
    assert!(is_near(once, few[0].compute_j / 8.0), "{once} {}", few[0].compute_j);
    assert!(is_near(four_times, 4.0 * once), "{four_times} {once}");
}

/// Weights as a graph with `QuantizeLinear` and `DequantizeLinear` stores them run on every kind of chip.
#[test]
fn quantised_weights_run_on_every_kind() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let stored = [
        ("storage = { format = \"int8\", scales = \"fp32\", zero_points = true }", ELEMENTS + 5 * SIDE),
        ("storage = { format = \"int8\", scales = \"fp32\", one_scale = true, zero_points = true }", ELEMENTS + 5),
        ("storage = { format = \"mxfp4\" }", ELEMENTS / 2 + ELEMENTS / 32),
    ];
    for (storage, bytes) in stored {
        for (arch, sets) in [("tpu-v4", &[][..]), ("cs2", &[]), ("bow", &["arch.tile.count=48"])] {
            let dtype = if arch == "tpu-v4" { "bf16" } else { "fp16" };
            let found = run(directory.path(), arch, &product(dtype, 8, SIDE, SIDE, storage), sets);
            assert_eq!(found.weight_bytes, bytes, "{arch} {storage}");
        }
    }
}

/// A graph with `DequantizeLinear` is run as it was imported; on tiles its weight stays where it is.
#[test]
fn quantised_graphs_run_as_they_are_imported() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(directory.path().join("net.onnx"), wire::quantised()).expect("a file");
    let stored = 256 * 512 + 5 * 512;
    for (arch, bytes) in [("tpu-v4", stored), ("cs2", stored), ("a100", stored), ("bow", 0)] {
        let words = ["run", "--mode", "kbk", "--arch", arch, "--workload", "net.onnx", "--format", "json"];
        let (code, stdout, stderr) = rdusim(directory.path(), &words);
        assert_eq!(code, Some(0), "{arch}: {stderr}");
        let traffic = &serde_json::from_str::<Value>(&stdout).expect("JSON")["runs"][0]["traffic"]["by_tensor"];
        let all = traffic.as_object().expect("tensors").values();
        let read: u64 = all.filter_map(|of| of["off_chip_read_bytes"].as_u64()).sum();
        // The input comes too, except on tiles.
        assert_eq!(read, bytes + if arch == "bow" { 0 } else { 16 * 256 * 2 }, "{arch}: {traffic}");
    }
}
