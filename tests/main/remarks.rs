//! What an input wants every result to say: on every kind of chip, in the table, in JSON and on the page, of one chip and of many.

use std::path::Path;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};

use crate::first_steps::rdusim;

const REMARK: &str = "REMARK-OF-THE-FILE";

fn write(directory: &Path, name: &str, text: &str) {
    std::fs::write(directory.join(name), text).expect("a file");
}

fn ran(directory: &Path, words: &[&str]) -> String {
    let (code, stdout, stderr) = rdusim(directory, words);
    assert_eq!(code, Some(0), "{words:?}: {stderr}");
    stdout
}

fn product(dtype: &str) -> String {
    format!(
        "schema = 1\nname = \"product\"\nnotes = [\"{REMARK}\"]\ndtype = {dtype:?}\n[[tensors]]\nname = \"x\"\n\
         shape = [64, 64]\nrole = \"input\"\n[[tensors]]\nname = \"w\"\nshape = [64, 64]\nrole = \"weight\"\n\
         [[operators]]\nname = \"y\"\nkind = \"gemm\"\ninputs = [\"x\", \"w\"]\noutput = \"y\"\n"
    )
}

#[test]
fn a_remark_reaches_every_result_of_every_kind_of_chip() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path();
    write(directory, "product.toml", &product("bf16"));
    for arch in ["sn10", "h100", "a100", "bow", "tpu-v4", "cs2"] {
        let words = ["run", "--mode", "kbk", "--arch", arch, "--workload", "product.toml"];
        assert!(ran(directory, &words).contains(REMARK), "{arch}");
        let json: Value =
            serde_json::from_str(&ran(directory, &[&words[..], &["--format", "json", "--out", "out"]].concat()))
                .expect(arch);
        let notes = json["runs"][0]["notes"].as_array().expect("notes");
        assert_eq!(notes.iter().filter(|note| note.as_str() == Some(REMARK)).count(), 1, "{arch}: {notes:?}");
        let page = std::fs::read_to_string(directory.join("out/report.html")).expect("a page");
        assert!(page.contains(REMARK), "{arch}");
    }
    assert!(ran(directory, &["check", "product.toml"]).contains(REMARK));
}

#[test]
fn products_of_fp32_on_tensor_cores_are_said_to_be_rounded() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path();
    let said = |arch: &str, dtype: &str| {
        write(directory, "product.toml", &product(dtype));
        ran(directory, &["run", "--mode", "kbk", "--arch", arch, "--workload", "product.toml", "--full"])
            .contains("TF32")
    };
    assert_eq!([said("a100", "fp32"), said("h100", "fp32"), said("a100", "bf16")], [true, true, false]);
}

/// Two layers that a GPU serves.
fn config(more: &Value) -> String {
    let mut map = json!({"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 96, "max_position_embeddings": 64});
    for (key, value) in more.as_object().expect("an object") {
        map[key] = value.clone();
    }
    map.to_string()
}

const DECODE: [&str; 13] = [
    "pod",
    "dgx-h100",
    "--model",
    "config.json",
    "--phase",
    "decode",
    "--stack",
    "serving",
    "--batch",
    "4",
    "--seq",
    "32",
    "--parallel",
];

fn decoded(directory: &Path, more: &Value) -> Value {
    write(directory, "config.json", &config(more));
    let text = ran(directory, &[&DECODE[..], &["tp=1", "--format", "json"]].concat());
    serde_json::from_str(&text).expect("JSON")
}

fn notes(result: &Value) -> String {
    result["notes"].to_string()
}

#[test]
fn pods_hold_and_read_what_a_checkpoint_stores() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path();
    let weights = |more: &Value| decoded(directory, more)["memory_bytes"]["weights"].as_u64().expect("bytes");
    // Matrices of a layer: 256 x 256 twice, 256 x 128 twice, 256 x 512 three times. Tables, and norms.
    let matrices = 2 * (2 * 65_536 + 2 * 32_768 + 3 * 131_072_u64);
    let others = 2 * (2 * 96 * 256 + 5 * 256);
    assert_eq!(weights(&json!({})), 2 * matrices + others);
    let scheme = |zero: bool| json!({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": zero}});
    let scales = matrices / 64;
    assert_eq!(weights(&scheme(false)), matrices / 2 + 2 * scales + others);
    assert_eq!(weights(&scheme(true)), matrices / 2 + 2 * scales + scales / 2 + others);
    // Each matrix of fp8 has one scale of four bytes.
    let fp8 = json!({"quantization_config": {"quant_method": "fp8"}});
    assert_eq!(weights(&fp8), matrices + 2 * 7 * 4 + others);
    // A remark where a format is not applied.
    let unknown = json!({"quantization_config": {"quant_method": "of-tomorrow", "bits": 3}});
    assert!(notes(&decoded(directory, &unknown)).contains("is not applied"));
    // What leaves out a field says its default.
    let mut left_out: Value = serde_json::from_str(&config(&json!({}))).expect("an object");
    left_out.as_object_mut().expect("an object").remove("num_key_value_heads");
    write(directory, "config.json", &left_out.to_string());
    let table = ran(directory, &[&DECODE[..], &["tp=1"]].concat());
    assert!(table.contains("`num_key_value_heads` is not in the config: 4"), "{table}");
}

#[test]
fn pods_serve_heads_biases_and_norms_of_their_own() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path();
    let result = |more: &Value| decoded(directory, more)["memory_bytes"].clone();
    let plain = result(&json!({}));
    let more = |of: &Value, key: &str| of[key].as_u64().expect("bytes") - plain[key].as_u64().expect("bytes");
    // Biases of 256 + 2 x 128 elements a layer.
    let biases = result(&json!({"model_type": "qwen2"}));
    assert_eq!(more(&biases, "weights"), 2 * 2 * 512);
    // Heads of 128 in place of 64: queries and outputs 256 wider, keys and values 128 wider; four sequences of 32 tokens.
    let wide = result(&json!({"model_type": "mistral", "head_dim": 128}));
    assert_eq!(more(&wide, "weights"), 2 * 2 * 256 * (2 * 256 + 2 * 128));
    assert_eq!(more(&wide, "kv_cache"), 2 * 2 * 2 * 128 * 4 * 32);
    // Four norms a layer in place of two; outputs share the table.
    let gemma = decoded(directory, &json!({"model_type": "gemma2", "head_dim": 64}));
    let weights = gemma["memory_bytes"]["weights"].as_u64().expect("bytes");
    assert_eq!(weights, plain["weights"].as_u64().expect("bytes") + 2 * 2 * 2 * 256 - 2 * 96 * 256);
    // A window shorter than the 32 tokens of the context holds fewer keys and values, in every second layer.
    let windows = decoded(directory, &json!({"model_type": "gemma2", "head_dim": 64, "sliding_window": 16}));
    let held = |of: &Value| of["memory_bytes"]["kv_cache"].as_u64().expect("bytes");
    assert_eq!(4 * held(&windows), 3 * held(&gemma), "{windows}");
    // Contexts beyond the positions.
    write(directory, "config.json", &config(&json!({})));
    let long = ran(directory, &[&DECODE[..11], &["65", "--parallel", "tp=1"]].concat());
    assert!(long.contains("longer than the 64 positions"), "{long}");
}

#[test]
fn stages_that_differ_train_and_serve() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path();
    write(directory, "config.json", &config(&json!({"num_hidden_layers": 5})));
    let layers = |stages: &str| {
        let text = ran(directory, &[&DECODE[..], &["pp=2", "--stage-layers", stages, "--format", "json"]].concat());
        let result: Value = serde_json::from_str(&text).expect("JSON");
        result["memory_bytes"]["weights"].as_u64().expect("bytes")
    };
    // The fuller stage: layers of two norms, and a table of 96 x 256; behind the last one a norm more.
    let layer = 2 * 65_536 + 2 * 32_768 + 3 * 131_072 + 2 * 256_u64;
    assert_eq!([layers("2,3"), layers("1,4")], [3, 4].map(|count| 2 * (count * layer + 96 * 256 + 256)));
    assert_eq!(layers("3,2"), 2 * (3 * layer + 96 * 256));
    for wrong in ["2,2", "5", "5,0", "2,2.5", "x"] {
        let words = [&DECODE[..], &["pp=2", "--stage-layers", wrong]].concat();
        assert_eq!(rdusim(directory, &words).0, Some(2), "{wrong}");
    }
    let train = |stages: &str| {
        let words = [
            "pod",
            "dgx-a100",
            "--model",
            "config.json",
            "--phase",
            "training",
            "--stack",
            "flash",
            "--batch",
            "8",
            "--seq",
            "64",
            "--parallel",
            "pp=2,recompute=full",
            "--stage-layers",
            stages,
            "--format",
            "json",
        ];
        let result: Value = serde_json::from_str(&ran(directory, &words)).expect("JSON");
        result["step_s"].as_f64().expect("seconds")
    };
    assert!(train("1,4") > 1.1 * train("3,2"), "{} and {}", train("1,4"), train("3,2"));
}

#[test]
fn nothing_is_said_of_what_was_not_measured() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path();
    write(directory, "one.csv", "arrival_s,prompt_tokens,output_tokens\n0,20,1\n0.5,30,1\n");
    write(directory, "two.csv", "arrival_s,prompt_tokens,output_tokens\n0,20,1\n0.5,60,9\n");
    write(directory, "config.json", &config(&json!({})));
    let served = |trace: &str, format: &str| {
        ran(
            directory,
            &[
                "pod",
                "dgx-h100",
                "--model",
                "config.json",
                "--phase",
                "requests",
                "--stack",
                "serving",
                "--parallel",
                "tp=1",
                "--batch",
                "4",
                "--trace",
                trace,
                "--format",
                format,
            ],
        )
    };
    let of = |trace: &str| serde_json::from_str::<Value>(&served(trace, "json")).expect("JSON");
    let one = of("one.csv");
    assert_eq!([&one["token_s"], &one["tokens_per_s_per_user"]], [&Value::Null, &Value::Null]);
    assert!(!served("one.csv", "table").contains("tokens/s a user"));
    let two = of("two.csv");
    assert!(two["token_s"]["mean"].as_f64().expect("seconds") > 0.0);
    assert!(notes(&two).contains("69 tokens are longer than the 64 positions"), "{two}");
    assert!(!notes(&one).contains("positions"));
    let draft = ran(
        directory,
        &[
            &DECODE[..11],
            &[
                "4",
                "--parallel",
                "tp=1",
                "--draft",
                "config.json",
                "--speculate",
                "8",
                "--accept",
                "0.7",
                "--format",
                "json",
            ],
        ]
        .concat(),
    );
    assert!(draft.contains("a draft of 8 tokens is as long as the longest context, 4 tokens"), "{draft}");
}

#[test]
fn flop_hold_no_rows_that_fill_up_groups() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path();
    let experts = json!({"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2});
    write(directory, "config.json", &config(&experts));
    let words = [
        "run",
        "--mode",
        "kbk",
        "--arch",
        "h100",
        "--workload",
        "config.json",
        "--phase",
        "decode",
        "--batch",
        "3",
        "--context",
        "16",
        "--format",
        "json",
    ];
    let result: Value = serde_json::from_str(&ran(directory, &words)).expect("JSON");
    // Of a token and layer: 6 products with matrices of attention, a router, two experts of three matrices; 16 keys; logits.
    let layer = 2 * 65_536 + 2 * 32_768 + 256 * 8 + 2 * 3 * 131_072 + 2 * 16 * 256_u64;
    assert_eq!(result["workload"]["dense_flops"].as_u64(), Some(2 * 3 * (2 * layer + 96 * 256)));
    assert_eq!(result["workload"]["dense_flops"], result["workload"]["executed_flops"]);
}

/// A feature of an input, and words of the remark that it makes.
struct Feature {
    name: &'static str,
    remark: &'static str,
    /// The text of the file that has it.
    text: String,
    is_config: bool,
}

fn features() -> Vec<Feature> {
    let of_config = |name, remark, more: &Value| Feature { name, remark, text: config(more), is_config: true };
    let of_file = |name, remark, text| Feature { name, remark, text, is_config: false };
    let mut left_out: Value = serde_json::from_str(&config(&json!({}))).expect("an object");
    left_out.as_object_mut().expect("an object").remove("num_key_value_heads");
    let said = "`num_key_value_heads` is not in the config";
    let quantised = json!({"quantization_config": {"quant_method": "of-tomorrow", "bits": 3}});
    vec![
        of_file("a note", REMARK, product("bf16")),
        of_file("another note", "second", product("bf16").replace(&format!("{REMARK:?}"), "\"a first\", \"a second\"")),
        Feature { name: "a default", remark: said, text: left_out.to_string(), is_config: true },
        of_config("a format", "is not applied", &quantised),
    ]
}

/// A command by its words before the workload or model, and whether it takes a model as `--model` does.
struct Asking {
    words: &'static str,
    is_pod: bool,
    /// Whether it has `--format json` too.
    has_json: bool,
    /// Whether `--out` has a page.
    has_page: bool,
}

fn commands() -> Vec<Asking> {
    let on_chip = |words| Asking { words, is_pod: false, has_json: true, has_page: true };
    let without_page = |words| Asking { words, is_pod: false, has_json: true, has_page: false };
    let pod = |words| Asking { words, is_pod: true, has_json: true, has_page: false };
    vec![
        on_chip("run --mode kbk --arch h100"),
        on_chip("run --mode kbk --arch bow"),
        on_chip("run --mode fused --arch tpu-v4"),
        on_chip("run --mode fused --arch cs2"),
        on_chip("compare --arch a100"),
        without_page("explain --arch h100"),
        without_page("explain --mode kbk --arch tpu-v4"),
        without_page("map --mode kbk --arch bow"),
        pod("pod dgx-h100 --phase decode --stack serving --parallel tp=1 --batch 4 --seq 32"),
        pod("pod dgx-h100 --phase prefill --stack serving --parallel tp=1 --batch 4 --seq 32"),
        pod("pod dgx-a100 --phase training --stack flash --parallel dp=2 --batch 4 --seq 32"),
        pod("pod tpu-v4-64 --phase training --parallel dp=2 --batch 4 --seq 32"),
        pod("pod dgx-a100 --phase training --stack flash --search --chips 2 --batch 4 --seq 32"),
        Asking { words: "check", is_pod: false, has_json: false, has_page: false },
        Asking { words: "sweep", is_pod: false, has_json: true, has_page: true },
    ]
}

/// Pairs of a feature and a command that are drawn, of this seed.
const DRAWN: usize = 24;
const SEED: u64 = 70;

#[test]
fn a_remark_of_a_drawn_feature_reaches_the_result_of_a_drawn_command() {
    let (features, commands, mut rng) = (features(), commands(), Pcg64Mcg::seed_from_u64(SEED));
    let mut asked = std::collections::BTreeSet::new();
    for _ in 0..DRAWN {
        let (feature, command) =
            (&features[rng.random_range(0..features.len())], &commands[rng.random_range(0..commands.len())]);
        // A file of operators is no model of a pod; and no pair twice.
        if command.is_pod && !feature.is_config || !asked.insert((feature.name, command.words)) {
            continue;
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let directory = directory.path();
        let file = if feature.is_config { "config.json" } else { "product.toml" };
        write(directory, file, &feature.text);
        let study = format!(
            "schema = 1\nname = \"s\"\narch = \"h100\"\nworkload = \"{file}\"\nmetrics = [\"kbk.cycles\"]\n\
             [[axes]]\npath = \"arch.clock_ghz\"\nvalues = [1.0, 1.1]\n"
        );
        write(directory, "s.toml", &study);
        let mut words: Vec<&str> = command.words.split(' ').collect();
        match (command.words, command.is_pod) {
            ("check", _) => words.push(file),
            ("sweep", _) => words.push("s.toml"),
            (_, true) => words.extend(["--model", file]),
            (_, false) => words.extend(["--workload", file]),
        }
        if feature.is_config && !command.is_pod && !matches!(command.words, "check" | "sweep") {
            words.extend(["--phase", "decode", "--batch", "2", "--context", "16"]);
        }
        let arrives = |text: &str, where_: &str| {
            // Lines are broken at blanks.
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains(feature.remark), "{} is lost in {where_} of {words:?}:\n{text}", feature.name);
        };
        arrives(&ran(directory, &words), "the table");
        if command.has_json {
            arrives(&ran(directory, &[&words[..], &["--format", "json", "--out", "out"]].concat()), "JSON");
        }
        if command.has_page {
            let page = std::fs::read_to_string(directory.join("out/report.html")).expect("a page");
            arrives(&page, "the page");
        }
    }
    assert!(asked.len() > DRAWN / 3, "{}", asked.len());
}

#[test]
fn what_verifies_and_proves_says_the_remarks_too() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path();
    write(directory, "product.toml", &product("bf16"));
    for words in [
        "verify --mode kbk --arch plasticine --workload product.toml",
        "verify --mode kbk --arch plasticine --workload product.toml --format json",
        "verify --arch bow --workload product.toml",
        "verify --arch bow --workload product.toml --format json",
        "explain --mode kbk --arch plasticine --workload product.toml",
        "map --mode kbk --arch plasticine --workload product.toml",
        "prove --mode kbk --arch plasticine --workload product.toml",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        assert!(ran(directory, &words).contains(REMARK), "{words:?}");
    }
}
