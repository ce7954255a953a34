//! Models of other formats through the program: imported, checked, run and verified.

use std::path::Path;

use crate::first_steps::rdusim;
use crate::fuzz_kinds::exported::{archive, archive_with_zip64_end, cnn, cnn_with_mean, gated, gpt, legacy, zip_of};
use crate::fuzz_kinds::wire;

/// What a command prints; it must succeed.
#[track_caller]
fn told(directory: &Path, words: &[&str]) -> String {
    let (code, stdout, stderr) = rdusim(directory, words);
    assert_eq!(code, Some(0), "{words:?}: {stderr}");
    stdout
}

/// What a command says where it must refuse its input.
#[track_caller]
fn refused(directory: &Path, words: &[&str], what: &[&str]) {
    let (code, stdout, stderr) = rdusim(directory, words);
    assert_eq!((code, stdout.as_str()), (Some(2), ""), "{words:?}: {stderr}");
    for what in what {
        assert!(stderr.contains(what), "{words:?}: {what:?} is not in: {stderr}");
    }
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

#[test]
fn programs_of_torch_export_are_what_they_are_as_onnx() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let file = |name: &str, bytes: Vec<u8>| std::fs::write(directory.join(name), bytes).expect("a file");
    file("gpt.onnx", wire::gpt());
    file("gpt.pt2", archive(&gpt("2")));
    file("old.pt2", legacy(&gpt("2")));
    file("open.pt2", archive(&gpt("s0")));
    file("cnn.onnx", wire::cnn());
    file("cnn.pt2", archive(&cnn()));
    let same = figures(directory, "gpt.onnx");
    // Products of 2 x 8 tokens: 16 x (48 + 16 + 64 + 64 + 50), and scores and sums of 4 heads of 4.
    let products = 2 * 16 * 16 * (48 + 16 + 64 + 64 + 50) + 2 * 2 * 2 * 4 * 8 * 8 * 4;
    let parameters = 50 * 16 + 16 * (48 + 16 + 64 + 64) + 48 + 16 + 64 + 16 + 4 * 16;
    assert_eq!((same[1], same[2]), (products, parameters));
    assert_eq!(figures(directory, "gpt.pt2"), same);
    assert_eq!(figures(directory, "old.pt2"), same);
    let images = figures(directory, "cnn.onnx");
    let convolutions = 2 * 128 * (27 * 8 + 9 * 8) + 2 * 2 * 8 * 10;
    assert_eq!((images[1], images[2]), (convolutions, 8 * 27 + 8 + 8 * 9 + 8 + 80 + 10));
    assert_eq!(figures(directory, "cnn.pt2"), images);
    file("mean.pt2", archive(&cnn_with_mean()));
    assert_eq!(figures(directory, "mean.pt2"), images);
    file("zip64.pt2", archive_with_zip64_end(&gpt("2")));
    assert_eq!(figures(directory, "zip64.pt2"), same);
    // A size that the export left open.
    refused(directory, &["import", "open.pt2"], &["leaves the dimension `s0` (of input \"ids\") open", "--dim s0=N"]);
    told(directory, &["import", "open.pt2", "--dim", "s0=2", "-o", "open.toml"]);
    assert_eq!(figures(directory, "open.toml"), same);
    let (gpt, open) =
        (told(directory, &["import", "gpt.pt2"]), told(directory, &["import", "open.pt2", "--dim", "s0=2"]));
    let body = |text: &str| text.split_once("dtype").map(|(_, body)| body.to_owned());
    assert_eq!(body(&gpt), body(&open));
    for name in ["gpt.pt2", "cnn.pt2"] {
        told(directory, &["verify", "--arch", "plasticine", "--workload", name]);
        refused(
            directory,
            &["compare", "--arch", "sn40l", "--workload", name, "--phase", "decode"],
            &["is for a config.json"],
        );
    }
}

#[test]
fn archives_that_cannot_be_used_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let import = |bytes: Vec<u8>, what: &[&str]| {
        std::fs::write(directory.join("x.pt2"), bytes).expect("a file");
        refused(directory, &["import", "x.pt2"], what);
    };
    let text = gpt("2");
    import(archive(&text.replace("\"major\":8", "\"major\":7")), &["version 7.8 of the schema", "expected 8"]);
    import(archive(&text.replace("\"schema_version\"", "\"other\"")), &["has no `schema_version`"]);
    import(archive(&text[..text.len() / 2]), &["net/models/model.json", "line 1, column"]);
    import(zip_of(&[("net/archive_format", b"pt2")], false), &["it is no exported program", "torch.export.save"]);
    let compiled: [(&str, &[u8]); 1] = [("net/data/aotinductor/model/x.so", b"")];
    import(zip_of(&compiled, false), &["compiled libraries have no graph"]);
    let two: [(&str, &[u8]); 2] = [("a/models/a.json", b"{}"), ("a/models/b.json", b"{}")];
    import(zip_of(&two, false), &["2 programs: a/models/a.json, a/models/b.json"]);
    let whole = archive(&text);
    import(whole[..whole.len() / 2].to_vec(), &["no .pt2 archive"]);
    // 300 MB of spaces, packed into 300 kB.
    let bomb = vec![b' '; 300 << 20];
    import(zip_of(&[("net/models/model.json", &bomb)], true), &["is larger than 268435456 bytes"]);
    drop(bomb);
    let unknown = text.replace("aten.gelu.default", "aten.conjure.default").replace("aten.layer_norm", "aten.summon");
    import(
        archive(&unknown),
        &[
            "3 nodes have no operator in a workload",
            "aten.summon.default, 2 x",
            "aten.conjure.default, 1 x",
            "`g` of h [2, 8, 64]",
        ],
    );
    std::fs::write(directory.join("x.pt2"), archive(&unknown)).expect("a file");
    let skipped = told(directory, &["import", "x.pt2", "--skip-unsupported"]);
    assert!(skipped.contains("3 nodes were skipped"), "{skipped}");
    refused(directory, &["import", "x.pt2", "--masks", "-o", "y.toml"], &["its weights are pickled"]);
}

/// Kinds of the operators of a workload file, in order.
fn kinds(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("kind = \"")?.strip_suffix('"')).collect()
}

/// An archive with the elements of stored tensors: of weights by their names, and of a constant.
fn with_numbers(program: &str, weights: &[(&str, Vec<f32>)]) -> Vec<u8> {
    let of = |values: &[f32]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let paths: Vec<String> = (0..weights.len()).map(|n| format!("net/data/weights/weight_{n}")).collect();
    let config: serde_json::Map<String, serde_json::Value> = weights
        .iter()
        .zip(0..)
        .map(|((name, _), n)| {
            let meta = serde_json::json!({ "path_name": format!("weight_{n}"), "is_param": true, "use_pickle": false });
            ((*name).to_owned(), meta)
        })
        .collect();
    let config = serde_json::json!({ "config": config }).to_string();
    let bytes: Vec<Vec<u8>> = weights.iter().map(|(_, values)| of(values)).collect();
    let mut records: Vec<(&str, &[u8])> = vec![
        ("net/models/model.json", program.as_bytes()),
        ("net/data/weights/model_weights_config.json", config.as_bytes()),
    ];
    records.extend(paths.iter().map(String::as_str).zip(bytes.iter().map(Vec::as_slice)));
    zip_of(&records, false)
}

#[test]
fn pieces_of_programs_are_put_together_and_weights_give_masks() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let file = |name: &str, bytes: Vec<u8>| std::fs::write(directory.join(name), bytes).expect("a file");
    file("gated.pt2", archive(&gated()));
    let text = told(directory, &["import", "gated.pt2"]);
    assert_eq!(kinds(&text), ["rms_norm", "gemm", "silu", "gemm", "mul", "gemm"], "{text}");
    let found = figures(directory, "gated.pt2");
    assert_eq!((found[1], found[2]), (2 * 8 * 16 * 24 * 3, 3 * 16 * 24 + 16));
    // Every fourth weight of one matrix is zero.
    let ones = |count: usize| vec![1.0f32; count];
    let sparse: Vec<f32> = (0..24 * 16).map(|n| if n % 4 == 0 { 0.0 } else { 1.0 }).collect();
    let weights =
        [("gate.weight", sparse), ("up.weight", ones(384)), ("down.weight", ones(384)), ("norm.weight", ones(16))];
    file("sparse.pt2", with_numbers(&gated(), &weights));
    told(directory, &["import", "sparse.pt2", "--masks", "-o", "sparse.toml"]);
    assert!(directory.join("sparse.masks.safetensors").is_file());
    let words = ["run", "--mode", "fused", "--arch", "sn40l", "--workload", "sparse.toml", "--format", "json"];
    let json: serde_json::Value = serde_json::from_str(&told(directory, &words)).expect("JSON");
    let executed = json["workload"]["executed_flops"].as_u64();
    assert_eq!(executed, Some(2 * 8 * (384 + 384 + 288)));
    // A record that is shorter than its shape is one that other tensors share: it has no numbers.
    let short = [("gate.weight", ones(10))];
    file("short.pt2", with_numbers(&gated(), &short));
    refused(
        directory,
        &["import", "short.pt2", "--masks", "-o", "x.toml"],
        &["gate.weight", "stored with those of other tensors"],
    );
}
