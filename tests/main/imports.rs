//! Models of other formats through the program: imported, checked, run and verified.

use std::path::Path;

use crate::first_steps::rdusim;
use crate::fuzz_kinds::wire;

/// What a command prints; it must succeed.
#[track_caller]
fn told(directory: &Path, words: &[&str]) -> String {
    let (code, stdout, stderr) = rdusim(directory, words);
    assert_eq!(code, Some(0), "{words:?}: {stderr}");
    stdout
}

/// Dense FLOP and parameters of a workload, and cycles and off-chip bytes by mode, as `compare` tells them.
fn figures(directory: &Path, file: &str) -> Vec<u64> {
    let text = told(directory, &["compare", "--arch", "sn40l", "--workload", file, "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let number = |value: &serde_json::Value| value.as_u64().expect("a count");
    let workload = &json["workload"];
    let mut list: Vec<u64> =
        ["operators", "dense_flops", "parameters"].iter().map(|key| number(&workload[key])).collect();
    for run in json["runs"].as_array().expect("runs") {
        list.push(number(&run["cycles"]));
        list.extend(["off_chip_read_bytes", "off_chip_write_bytes"].iter().map(|key| number(&run["traffic"][key])));
    }
    list
}

#[test]
fn operators_of_later_versions_are_imported_checked_run_and_verified() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let windows = 36 * 8;
    // FLOP and parameters, by hand.
    let known = [
        ("turned_by_classes", 2 * windows * 4 * 9, 8 * 4 * 9 + 4),
        ("turned_at_once", 2 * windows * 4 * 16, 8 * 4 * 16 + 4),
        ("nearest", 2 * 100 * 4 * 72, 4 * 72),
        ("linear", 2 * 100 * 4 * 72, 4 * 72),
        ("gathered", 2 * 49 * 4 * 72, 4 * 72),
        ("shrunk", 2 * 4 * 72, 4 * 72),
        ("attention", 2 * 16 * 16 * 48 + 2 * 2 * 2 * 4 * 8 * 8 * 4, 16 * 48),
        ("cached", 2 * 16 * 16 * 48 + 2 * 2 * 2 * 4 * 8 * 32 * 4, 16 * 48),
        ("largest", 2 * 12 * 40 * 20, 40 * 20),
        ("even", 2 * 16 * 4 * 72, 4 * 72),
    ];
    for (name, bytes) in wire::newer() {
        let (onnx, toml) = (format!("{name}.onnx"), format!("{name}.toml"));
        std::fs::write(directory.join(&onnx), bytes).expect("a file");
        told(directory, &["import", &onnx, "-o", &toml]);
        told(directory, &["check", &toml]);
        let found = figures(directory, &toml);
        let (_, flop, parameters) = known.iter().find(|(known, ..)| *known == name).expect("a known network");
        assert_eq!((found[1], found[2]), (*flop, *parameters), "{name}");
        // The import in place of the file is the same.
        assert_eq!(figures(directory, &onnx), found, "{name}");
        for arch in ["sn40l", "plasticine"] {
            told(directory, &["verify", "--arch", arch, "--workload", &toml]);
        }
    }
}

#[test]
fn bytes_of_resized_images_and_of_the_largest() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let of = |name: &str| {
        let bytes = wire::newer().into_iter().find(|(known, _)| *known == name).expect("a network").1;
        let file = format!("{name}.onnx");
        std::fs::write(directory.join(&file), bytes).expect("a file");
        let words = ["run", "--mode", "kbk", "--arch", "sn40l", "--workload", &file, "--format", "json"];
        let json: serde_json::Value = serde_json::from_str(&told(directory, &words)).expect("JSON");
        let traffic = &json["runs"][0]["traffic"];
        ["off_chip_read_bytes", "off_chip_write_bytes"].map(|key| traffic[key].as_u64().expect("a count"))
    };
    // The product reads x and w; TopK reads 12 x 20 and writes 12 x 4, which softmax reads and writes.
    assert_eq!(of("largest"), [2 * (12 * 40 + 40 * 20 + 12 * 20 + 12 * 4), 2 * (12 * 20 + 12 * 4 + 12 * 4)]);
    // The norm reads and writes 36 pixels of 8 channels, the convolution reads them and its filters.
    assert_eq!(of("even"), [2 * (2 * 36 * 8 + 4 * 72), 2 * (36 * 8 + 16 * 4)]);
}
