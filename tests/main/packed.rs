//! Second operands stored in narrower formats: bytes, numbers, time, and what is refused.

use std::path::Path;

use serde_json::Value;

use crate::first_steps::rdusim;

fn json(directory: &Path, words: &[&str]) -> Value {
    let (code, stdout, stderr) = rdusim(directory, &[words, &["--format", "json"]].concat());
    assert_eq!(code, Some(0), "{words:?}: {stderr}");
    serde_json::from_str(&stdout).expect("JSON")
}

/// y = x w, 256 rows of 512 by 512 x 384, `more` of the weight.
fn gemm(more: &str) -> String {
    format!(
        "schema = 1\nname = \"gemm\"\n[[tensors]]\nname = \"x\"\nshape = [256, 512]\nrole = \"input\"\n[[tensors]]\nname = \
         \"w\"\nshape = [512, 384]\nrole = \"weight\"\n{more}\n[[operators]]\nname = \"y\"\nkind = \"gemm\"\ninputs = [\"x\", \
         \"w\"]\noutput = \"y\"\n"
    )
}

/// Bytes that the formats store 512 x 384 elements in.
const FORMATS: [(&str, u64); 11] = [
    ("format = \"int4\", group = 128", 512 * 384 / 2 + 4 * 384 * 2),
    ("format = \"int4\", group = 100", 512 * 384 / 2 + 6 * 384 * 2),
    ("format = \"int8\"", 512 * 384 + 384 * 2),
    // Scales and zero points of 384 columns; of the tensor.
    ("format = \"int8\", scales = \"fp32\", zero_points = true", 512 * 384 + 384 * 4 + 384),
    ("format = \"int8\", scales = \"fp32\", one_scale = true, zero_points = true", 512 * 384 + 4 + 1),
    ("format = \"int4\", group = 128, zero_points = true", 512 * 384 / 2 + 4 * 384 * 2 + 4 * 384 / 2),
    ("format = \"fp8_e4m3\"", 512 * 384 + 4),
    ("format = \"fp8_e5m2\"", 512 * 384 + 4),
    ("format = \"fp8_e4m3\", group = 512", 512 * 384 + 384 * 2),
    ("format = \"mxfp8\"", 512 * 384 + 16 * 384),
    ("format = \"mxfp4\"", 512 * 384 / 2 + 16 * 384),
];

#[test]
fn formats_move_their_bytes_and_compute_their_numbers() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let plain = {
        std::fs::write(directory.path().join("plain.toml"), gemm("")).expect("a file");
        json(
            directory.path(),
            &["run", "--mode", "kbk", "--effort", "quick", "--arch", "plasticine", "--workload", "plain.toml"],
        )
    };
    let traffic = |result: &Value, key: &str| result["runs"][0]["traffic"][key].as_u64().expect(key);
    let energy = |result: &Value| result["runs"][0]["energy_j"]["compute"].as_f64().expect("energy");
    for (number, (storage, bytes)) in FORMATS.into_iter().enumerate() {
        let name = format!("{number}.toml");
        std::fs::write(directory.path().join(&name), gemm(&format!("storage = {{ {storage} }}"))).expect("a file");
        let arguments = ["--mode", "kbk", "--effort", "quick", "--arch", "plasticine", "--workload", &name];
        let run = json(directory.path(), &[&["run"], &arguments[..]].concat());
        assert_eq!(traffic(&run, "off_chip_read_bytes"), 256 * 512 * 2 + bytes, "{storage}");
        assert_eq!(traffic(&run, "off_chip_write_bytes"), 256 * 384 * 2, "{storage}");
        assert!(energy(&run) > energy(&plain), "{storage}: elements are multiplied by their scales");
        let cycle = json(directory.path(), &[&["run", "--fidelity", "cycle"], &arguments[..]].concat());
        for key in ["off_chip_read_bytes", "sram_read_bytes", "sram_write_bytes", "network_bytes"] {
            assert_eq!(traffic(&run, key), traffic(&cycle, key), "{storage} {key}");
        }
        let cycles = |result: &Value| result["runs"][0]["cycles"].as_f64().expect("cycles");
        let off = cycles(&run) / cycles(&cycle) - 1.0;
        assert!(off.abs() < 0.02, "{storage}: event {} cycle {}", cycles(&run), cycles(&cycle));
        let (code, stdout, stderr) = rdusim(directory.path(), &[&["verify"], &arguments[..]].concat());
        assert_eq!(code, Some(0), "{storage}: {stdout}{stderr}");
    }
}

/// A GPU reads what is stored, and its vector lanes expand it for every 128 rows: with one row the bytes are what counts, with many
/// rows a product takes nearly as long as before.
#[test]
fn gpus_read_formats_and_expand_them() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let int4 = "storage = { format = \"int4\", group = 128 }";
    let sized = |more: &str, rows: u64| {
        let wide = gemm(more).replace("[512, 384]", "[8192, 8192]");
        wide.replace("[256, 512]", &format!("[{rows}, 8192]"))
    };
    let run = |name: &str, text: String| {
        std::fs::write(directory.path().join(name), text).expect("a file");
        let result = json(directory.path(), &["run", "--mode", "kbk", "--arch", "a100", "--workload", name]);
        let run = &result["runs"][0];
        let read = run["traffic"]["by_tensor"]["w"]["off_chip_read_bytes"].as_u64().expect("bytes");
        (read, run["cycles"].as_u64().expect("cycles"))
    };
    let [plain, packed] = [("plain.toml", ""), ("int4.toml", int4)].map(|(name, more)| run(name, sized(more, 1)));
    assert_eq!((plain.0, packed.0), (2 * 8192 * 8192, 8192 * 8192 / 2 + 64 * 8192 * 2));
    assert!(packed.1 < plain.1, "{plain:?} {packed:?}");
    let [plain, packed] = [("plain.toml", ""), ("int4.toml", int4)].map(|(name, more)| run(name, sized(more, 4096)));
    // What is left of the gain is the bytes that the L2 does not hold.
    assert!(packed.1 as f64 > 0.9 * plain.1 as f64, "{plain:?} {packed:?}");
}

#[test]
fn a_model_with_packed_matrices_and_cache_computes_its_numbers() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (weights, cache) in [("int4:16", "fp8_e4m3"), ("mxfp4", "int8:8"), ("fp8_e5m2", "mxfp8")] {
        let sizes =
            ["--hidden", "64", "--layers", "2", "--heads", "4", "--kv-heads", "2", "--ffn", "96", "--vocabulary", "50"];
        let storage = ["--weight-storage", weights, "--cache-storage", cache, "--phase", "decode", "--batch", "2"];
        let words = [&["model", "llama"], &sizes[..], &storage[..], &["--context", "32", "-o", "model.toml"]].concat();
        let (code, _, stderr) = rdusim(directory.path(), &words);
        assert_eq!(code, Some(0), "{stderr}");
        let verified = rdusim(directory.path(), &["verify", "--arch", "plasticine", "--workload", "model.toml"]);
        assert_eq!(verified.0, Some(0), "{weights} {cache}: {}{}", verified.1, verified.2);
    }
}

/// Two products of equal shape, one of a packed weight and one of a dense one, are not the same section.
#[test]
fn packed_and_dense_weights_of_one_shape_are_told_apart() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let tensor = |name: &str, rows: u64, role: &str, more: &str| {
        format!("[[tensors]]\nname = {name:?}\nshape = [{rows}, 512]\nrole = {role:?}\n{more}\n")
    };
    let operator = |name: &str, kind: &str, inputs: &str, output: &str| {
        format!("[[operators]]\nname = {name:?}\nkind = {kind:?}\ninputs = [{inputs}]\noutput = {output:?}\n")
    };
    let int4 = "storage = { format = \"int4\", group = 64 }";
    for (first, second) in [(int4, ""), ("", int4)] {
        let text = "schema = 1\nname = \"two\"\n".to_owned()
            + &tensor("x", 16, "input", "")
            + &tensor("w1", 512, "weight", first)
            + &tensor("w2", 512, "weight", second)
            + &operator("one", "gemm", "\"x\", \"w1\"", "h")
            + &operator("between", "softmax", "\"h\"", "p")
            + &operator("two", "gemm", "\"p\", \"w2\"", "y");
        std::fs::write(directory.path().join("two.toml"), text).expect("a file");
        let words = ["--mode", "kbk", "--arch", "plasticine", "--workload", "two.toml"];
        let run = json(directory.path(), &[&["run"], &words[..]].concat());
        let read = |name: &str| run["runs"][0]["traffic"]["by_tensor"][name]["off_chip_read_bytes"].as_u64();
        let bytes = |storage: &str| Some(if storage.is_empty() { 512 * 512 * 2 } else { 512 * 512 / 2 + 8 * 512 * 2 });
        assert_eq!((read("w1"), read("w2")), (bytes(first), bytes(second)));
        let verified = rdusim(directory.path(), &[&["verify"], &words[..]].concat());
        assert_eq!(verified.0, Some(0), "{}{}", verified.1, verified.2);
    }
}

/// Products of equal sizes of which one has its second operand transposed are not the same section: scores and the product with
/// the values where there are as many keys as columns of a head.
#[test]
fn products_of_one_shape_and_two_orientations_are_told_apart() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for kv_heads in ["2", "6"] {
        let sizes = ["--hidden", "384", "--layers", "1", "--heads", "6", "--ffn", "512", "--vocabulary", "100"];
        let decode =
            ["--kv-heads", kv_heads, "--phase", "decode", "--batch", "2", "--context", "64", "-o", "model.toml"];
        let (code, _, stderr) = rdusim(directory.path(), &[&["model", "llama"], &sizes[..], &decode[..]].concat());
        assert_eq!(code, Some(0), "{stderr}");
        let verified = rdusim(directory.path(), &["verify", "--arch", "plasticine", "--workload", "model.toml"]);
        assert_eq!(verified.0, Some(0), "{}{}", verified.1, verified.2);
    }
}

/// Matrices of experts of which a token meets a few, from a quantised config.json, and transposed weights, are read as they are stored.
#[test]
fn parts_and_transposed_operands_are_packed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = r#"{"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 2,
        "vocab_size": 50, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
        "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32}}"#;
    std::fs::write(directory.path().join("config.json"), config).expect("a file");
    let transposed = gemm("storage = { format = \"int4\", group = 64 }").replace("[512, 384]", "[384, 512]");
    std::fs::write(directory.path().join("transposed.toml"), transposed + "transpose_b = true\n").expect("a file");
    let cases: [&[&str]; 2] = [&["config.json", "--phase", "decode", "--context", "32"], &["transposed.toml"]];
    for case in cases {
        let words = [&["--mode", "kbk", "--arch", "plasticine", "--workload"], case].concat();
        let run = json(directory.path(), &[&["run"], &words[..]].concat());
        if case.len() == 1 {
            let bytes = run["runs"][0]["traffic"]["off_chip_read_bytes"].as_u64();
            assert_eq!(bytes, Some(256 * 512 * 2 + 384 * 512 / 2 + 384 * 8 * 2));
        } else {
            // Two of eight experts, 64 x 96 elements of 4 bits with a bf16 scale and a zero point of 4 bits for 32.
            let by_tensor = run["runs"][0]["traffic"]["by_tensor"].to_string();
            assert!(
                by_tensor.contains(&format!("\"off_chip_read_bytes\":{}", 2 * (64 * 96 / 2 + 2 * 96 * 2 + 2 * 96 / 2))),
                "{by_tensor}"
            );
        }
        let verified = rdusim(directory.path(), &[&["verify"], &words[..]].concat());
        assert_eq!(verified.0, Some(0), "{case:?}: {}{}", verified.1, verified.2);
    }
}

/// A token of Llama-3-8B with 4-bit matrices and an 8-bit cache takes what its bytes and its launches take.
#[test]
fn a_packed_token_is_bound_by_its_bytes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let storage = ["--weight-storage", "int4:128", "--cache-storage", "fp8_e4m3"];
    let words =
        [&["model", "llama3-8b", "--phase", "decode", "--context", "4096", "-o", "model.toml"], &storage[..]].concat();
    assert_eq!(rdusim(directory.path(), &words).0, Some(0));
    let run = json(directory.path(), &["run", "--mode", "fused", "--arch", "sn40l", "--workload", "model.toml"]);
    let fused = &run["runs"][0];
    // Matrices of 32 layers, 218.1 M elements each, at 4.125 bits; a column of 131,072 K for the logits in bf16; the cache in fp8.
    let layers = 32 * (4096 * (4096 + 1024 + 1024 + 4096 + 3 * 14336)) * 33 / 64;
    let logits = 4096 * 128_256 * 2;
    let cache = 32 * 2 * (4096 * 1024 + 4);
    let read = fused["traffic"]["off_chip_read_bytes"].as_u64().expect("bytes");
    assert!(read.abs_diff(layers + logits + cache) < read / 1000, "{read} against {}", layers + logits + cache);
    let (cycles, bound) = (fused["cycles"].as_f64().expect("cycles"), fused["bound_cycles"].as_f64().expect("bound"));
    let launches = fused["launches"].as_f64().expect("launches") * 38_400.0;
    assert!(cycles < 1.03 * (bound + launches), "{cycles} cycles, bound {bound}, launches {launches}");
}

#[test]
fn what_cannot_be_packed_is_named() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let int4 = "storage = { format = \"int4\" }";
    let cases = [
        (gemm("storage = { format = \"int5\" }"), "plasticine", "expected one of"),
        (gemm("storage = { format = \"mxfp4\", group = 16 }"), "plasticine", "32 elements of `mxfp4` share a scale"),
        (gemm(&format!("{int4}\ndtype = \"int8\"")), "plasticine", "int8"),
        (
            gemm(&format!("{int4}\nsparsity = {{ pattern = \"block\", density = 0.5, block = [16, 16] }}")),
            "plasticine",
            "sparse",
        ),
        (gemm(int4).replace("[\"x\", \"w\"]", "[\"w\", \"x\"]"), "plasticine", ""),
        (gemm(int4) + "[training]\noptimizer = \"sgd\"\n", "plasticine", "training"),
        (gemm("storage = { format = \"mxfp8\", zero_points = true }"), "plasticine", "`mxfp8` says it"),
        (gemm("storage = { format = \"int8\", group = 8, one_scale = true }"), "plasticine", "exclude each other"),
        (gemm("storage = { format = \"int8\", scales = \"fp8\" }"), "plasticine", "expected"),
    ];
    for (number, (text, arch, wanted)) in cases.into_iter().enumerate() {
        let name = format!("{number}.toml");
        std::fs::write(directory.path().join(&name), text).expect("a file");
        let (code, stdout, stderr) =
            rdusim(directory.path(), &["run", "--mode", "kbk", "--arch", arch, "--workload", &name]);
        assert_eq!(code, Some(2), "case {number}: {stdout}{stderr}");
        assert!(stderr.contains(wanted), "case {number}: {stderr}");
    }
}
