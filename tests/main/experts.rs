//! How tokens fall on experts (`--expert-load`), through the program.

use std::path::Path;

use serde_json::Value;

use crate::first_steps::rdusim;

const MIXTURE: &str = r#"{"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "moe_intermediate_size": 48, "num_experts": 32,
    "num_experts_per_tok": 4, "vocab_size": 128, "max_position_embeddings": 512, "tie_word_embeddings": false}"#;

/// Bytes of the experts' first matrices that a token of 16 sequences reads, and rows of the busiest.
fn decoded(directory: &Path, load: &[&str]) -> (u64, u64) {
    let model = ["--workload", "config.json", "--phase", "decode", "--batch", "16", "--seq", "64"];
    let words = [&["run", "--mode", "kbk", "--arch", "plasticine", "--effort", "quick"], &model[..], load].concat();
    let (code, stdout, stderr) = rdusim(directory, &[&words[..], &["--format", "json"]].concat());
    assert_eq!(code, Some(0), "{load:?}: {stderr}");
    let json: Value = serde_json::from_str(&stdout).expect("JSON");
    let by_tensor = &json["runs"][0]["traffic"]["by_tensor"];
    let read =
        ["w_expert_gate", "w_expert_gate_met"].iter().find_map(|name| by_tensor[name]["off_chip_read_bytes"].as_u64());
    // Of a layer with experts FLOP hold the rows of tokens alone, however these fall: 16 of 4 experts each.
    let layer = 64 * (2 * 64 + 2 * 32) + 64 * 32 + 4 * 3 * 64 * 48 + 2 * 64 * 64;
    assert_eq!(json["workload"]["executed_flops"].as_u64(), Some(2 * 16 * (layer + 64 * 128)), "{load:?}");
    let read = read.expect("bytes of the experts");
    let import = ["import", "config.json", "--phase", "decode", "--batch", "16", "--seq", "64", "-o", "layer.toml"];
    let (code, _, stderr) = rdusim(directory, &[&import[..], load].concat());
    assert_eq!(code, Some(0), "{load:?}: {stderr}");
    let text = std::fs::read_to_string(directory.join("layer.toml")).expect("a workload");
    let rows = text.lines().find_map(|line| line.strip_prefix("expert_rows = ")).expect("rows of all experts");
    (read, rows.parse::<u64>().expect("a count") / (read / (64 * 48 * 2)))
}

#[test]
fn a_load_says_which_experts_are_read_and_how_long_the_busiest_takes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path();
    std::fs::write(path.join("config.json"), MIXTURE).expect("a file");
    let even = decoded(path, &["--expert-load", "even"]);
    let usual = decoded(path, &[]);
    let skewed = decoded(path, &["--expert-load", "zipf:1.2"]);
    let expert = 64 * 48 * 2;
    // 16 tokens choose 4 of 32: 64 visits reach all evenly; at random 32 (1 - (7/8)^16) = 28.2.
    assert_eq!(even.0, 32 * expert);
    assert_eq!(usual.0, 28 * expert);
    assert!(skewed.0 < usual.0, "{skewed:?} {usual:?}");
    // Rows of the busiest: 2 evenly; at random about 5; of 16 tokens most go to the first of the skewed ones.
    assert!(even.1 < usual.1 && usual.1 < skewed.1, "{even:?} {usual:?} {skewed:?}");
    assert_eq!(decoded(path, &["--expert-load", "uniform"]), usual);
    // A file that counts each expert alike is the uniform load.
    std::fs::write(path.join("load.txt"), format!("# times chosen\n{}", "12\n".repeat(32))).expect("a file");
    assert_eq!(decoded(path, &["--expert-load", "load.txt"]), usual);
}

#[test]
fn loads_that_are_none_are_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path();
    std::fs::write(path.join("config.json"), MIXTURE).expect("a file");
    std::fs::write(path.join("few.txt"), "1\n2\n").expect("a file");
    std::fs::write(path.join("word.txt"), "1\nmany\n").expect("a file");
    std::fs::write(path.join("zero.txt"), "0\n0\n").expect("a file");
    let dense = MIXTURE
        .replace("qwen3_moe", "qwen3")
        .replace(r#""num_experts": 32,"#, "")
        .replace(r#""num_experts_per_tok": 4, "#, "")
        .replace(r#""moe_intermediate_size": 48, "#, "");
    std::fs::create_dir(path.join("dense")).expect("a folder");
    std::fs::write(path.join("dense/config.json"), dense).expect("a file");
    for (config, load, told) in [
        ("config.json", "evenly", "none of `even`, `uniform` and `zipf:EXPONENT`"),
        ("config.json", "zipf:-1", "expected an exponent from 0 to 10"),
        ("config.json", "few.txt", "of 2 experts, the model has 32"),
        ("config.json", "word.txt", "word.txt:2"),
        ("config.json", "zero.txt", "no expert is ever chosen"),
        ("dense/config.json", "zipf:1", "this one has none"),
    ] {
        let words = ["check", "--workload", config, "--phase", "decode", "--expert-load", load];
        let (code, stdout, stderr) = rdusim(path, &words);
        assert!(code == Some(2) && stdout.is_empty() && stderr.contains(told), "{load}: {code:?} {stderr}");
    }
    let (code, _, stderr) =
        rdusim(path, &["run", "--mode", "kbk", "--arch", "sn10", "--workload", "tiny-mlp", "--expert-load", "even"]);
    assert!(code == Some(2) && stderr.contains("`--expert-load` is for models"), "{stderr}");
}
