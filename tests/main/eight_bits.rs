//! Products in data types of 8 bits: bytes, time, energy and numbers, of units that have them and of units that emulate them.

use std::path::Path;

use serde_json::Value;

use crate::first_steps::rdusim;

const TYPES: [&str; 3] = ["fp8_e4m3", "fp8_e5m2", "int8"];

fn json(directory: &Path, words: &[&str]) -> Value {
    let (code, stdout, stderr) = rdusim(directory, &[words, &["--format", "json"]].concat());
    assert_eq!(code, Some(0), "{words:?}: {stderr}");
    serde_json::from_str(&stdout).expect("JSON")
}

fn traffic(result: &Value, key: &str) -> u64 {
    result["runs"][0]["traffic"][key].as_u64().expect(key)
}

fn cycles(result: &Value) -> f64 {
    result["runs"][0]["cycles"].as_f64().expect("cycles")
}

fn tensor(name: &str, more: &str) -> String {
    format!("[[tensors]]\nname = {name:?}\n{more}\n")
}

fn operator(name: &str, kind: &str, inputs: &str, output: &str) -> String {
    format!("[[operators]]\nname = {name:?}\nkind = {kind:?}\ninputs = [{inputs}]\noutput = {output:?}\n")
}

/// y = gelu(x w1) w2 with `rows` rows: products of `dtype`, sums and result of bf16.
fn block(dtype: &str, rows: u64, width: u64, inner: u64, of_weights: &str) -> String {
    let of = |rows: u64, columns: u64, role: &str| {
        format!("shape = [{rows}, {columns}]\nrole = {role:?}\ndtype = {dtype:?}")
    };
    "schema = 1\nname = \"block\"\n".to_owned()
        + &tensor("x", &of(rows, width, "input"))
        + &tensor("w1", &(of(width, inner, "weight") + of_weights))
        + &tensor("w2", &(of(inner, width, "weight") + of_weights))
        + &tensor("g", &format!("dtype = {dtype:?}"))
        + &operator("up", "gemm", "\"x\", \"w1\"", "h")
        + &operator("gelu", "gelu", "\"h\"", "g")
        + &operator("down", "gemm", "\"g\", \"w2\"", "y")
}

fn write(directory: &Path, name: &str, text: &str) {
    std::fs::write(directory.join(name), text).expect("a file");
}

#[test]
fn products_of_eight_bits_move_a_byte_an_element_and_compute_their_numbers() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (rows, width, inner) = (64, 96, 128);
    for dtype in TYPES {
        write(directory.path(), "block.toml", &block(dtype, rows, width, inner, ""));
        for mode in ["kbk", "fused"] {
            let words = ["--mode", mode, "--effort", "quick", "--arch", "plasticine", "--workload", "block.toml"];
            let run = json(directory.path(), &[&["run"], &words[..]].concat());
            let weights = 2 * width * inner;
            // Between kernels, h has two bytes an element and the quantised g one.
            let (h, g) = if mode == "kbk" { (2 * rows * inner, rows * inner) } else { (0, 0) };
            assert_eq!(traffic(&run, "off_chip_read_bytes"), rows * width + weights + h + g, "{dtype} {mode}");
            assert_eq!(traffic(&run, "off_chip_write_bytes"), 2 * rows * width + h + g, "{dtype} {mode}");
            let cycle = json(directory.path(), &[&["run", "--fidelity", "cycle"], &words[..]].concat());
            for key in ["off_chip_read_bytes", "sram_read_bytes", "sram_write_bytes", "network_bytes"] {
                assert_eq!(traffic(&run, key), traffic(&cycle, key), "{dtype} {mode} {key}");
            }
            let off = cycles(&run) / cycles(&cycle) - 1.0;
            assert!(off.abs() < 0.02, "{dtype} {mode}: event {} cycle {}", cycles(&run), cycles(&cycle));
            let (code, stdout, stderr) = rdusim(directory.path(), &[&["verify"], &words[..]].concat());
            assert_eq!(code, Some(0), "{dtype} {mode}: {stdout}{stderr}");
        }
    }
}

/// Units with twice the lanes for a type take half the time where products bound it, and the energy that the file says; those that
/// emulate it take the time and energy of the wider type.
#[test]
fn units_have_a_type_or_multiply_it_as_another() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    write(directory.path(), "wide.toml", &block("bf16", 2048, 1024, 2048, ""));
    write(directory.path(), "narrow.toml", &block("fp8_e4m3", 2048, 1024, 2048, ""));
    let run = |name: &str, sets: &[&str]| {
        let words = ["run", "--mode", "fused", "--effort", "quick", "--arch", "sn10", "--workload", name];
        let result = json(directory.path(), &[&words[..], sets].concat());
        (cycles(&result), result["runs"][0]["energy_j"]["compute"].as_f64().expect("energy"))
    };
    // Memory and launches out of the way.
    let fast = ["--set", "arch.memory.ddr.bandwidth_gb_per_s=5000", "--set", "arch.launch.orchestration=hardware"];
    let native = [
        "--set",
        "arch.pcu.lanes={ bf16 = 32, fp32 = 16, fp8_e4m3 = 64 }",
        "--set",
        "arch.energy.mac_pj.fp8_e4m3=0.295",
    ];
    let (wide, emulated) = (run("wide.toml", &fast), run("narrow.toml", &fast));
    let native = run("narrow.toml", &[&fast[..], &native].concat());
    assert!((emulated.1 / wide.1 - 1.0).abs() < 0.01, "{wide:?} {emulated:?}");
    assert!(emulated.0 > 0.8 * wide.0 && emulated.0 < 1.03 * wide.0, "{wide:?} {emulated:?}");
    assert!(native.0 < 0.8 * emulated.0, "{native:?} {emulated:?}");
    assert!((native.1 / wide.1 - 0.5).abs() < 0.02, "{native:?} {wide:?}");
}

#[test]
fn tensor_cores_multiply_fp8_at_twice_the_rate_where_they_have_it() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (name, dtype) in [("wide.toml", "bf16"), ("narrow.toml", "fp8_e4m3")] {
        write(directory.path(), name, &block(dtype, 4096, 5120, 20480, ""));
    }
    let time = |arch: &str, name: &str| {
        cycles(&json(directory.path(), &["run", "--mode", "epilogue", "--arch", arch, "--workload", name]))
    };
    let [on_h100, on_a100] = ["h100", "a100"].map(|arch| time(arch, "wide.toml") / time(arch, "narrow.toml"));
    assert!(on_h100 > 1.6 && on_h100 <= 2.2, "{on_h100}");
    assert!(on_a100 < 1.15, "{on_a100}");
}

/// Scales of a column or a tensor are counted, and nothing is expanded.
#[test]
fn scales_of_weights_are_counted_and_applied_to_sums() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let shape = (64, 96, 128);
    let cases = [
        ("fp8_e4m3", "fp8_e4m3", 2 * 96 * 128 + 2 * 4),
        ("int8", "int8", 2 * 96 * 128 + 2 * (96 + 128)),
        // Four bits are expanded to eight.
        ("int8", "int4", 96 * 128 + 2 * (96 + 128)),
    ];
    for (dtype, format, bytes) in cases {
        let run = |more: &str| {
            write(directory.path(), "block.toml", &block(dtype, shape.0, shape.1, shape.2, more));
            let words = ["--mode", "fused", "--effort", "quick", "--arch", "plasticine", "--workload", "block.toml"];
            let (code, stdout, stderr) = rdusim(directory.path(), &[&["verify"], &words[..]].concat());
            assert_eq!(code, Some(0), "{dtype} {format}: {stdout}{stderr}");
            let run = json(directory.path(), &[&["run"], &words[..]].concat());
            (traffic(&run, "off_chip_read_bytes"), run["runs"][0]["energy_j"]["compute"].as_f64().expect("energy"))
        };
        let (plain, stored) = (run(""), run(&format!("\nstorage = {{ format = {format:?} }}")));
        assert_eq!(stored.0, 64 * 96 + bytes, "{dtype} {format}");
        assert_eq!(stored.1 > plain.1, format == "int4", "{dtype} {format}: {plain:?} {stored:?}");
    }
    for (dtype, more, why) in [
        ("fp8_e4m3", "format = \"fp8_e4m3\", group = 32", "inside their sums"),
        ("int8", "format = \"fp8_e4m3\"", "fewer bits"),
    ] {
        write(
            directory.path(),
            "block.toml",
            &block(dtype, shape.0, shape.1, shape.2, &format!("\nstorage = {{ {more} }}")),
        );
        let (code, _, stderr) = rdusim(directory.path(), &["check", "block.toml"]);
        assert_eq!((code, stderr.contains(why)), (Some(2), true), "{stderr}");
    }
}

/// x is quantised row by row, multiplied, and scaled back.
fn by_row(dtype: &str, of_narrow: &str, scales: &str) -> String {
    let of = |rows: u64, columns: u64, role: &str, dtype: &str| {
        format!("shape = [{rows}, {columns}]\nrole = {role:?}\ndtype = {dtype:?}")
    };
    "schema = 1\nname = \"by row\"\n".to_owned()
        + &tensor("x", &of(48, 64, "input", "bf16"))
        + &tensor("w", &of(64, 80, "weight", dtype))
        + &tensor("s", "dtype = \"fp32\"")
        + &tensor("n", &format!("dtype = {of_narrow:?}"))
        + &operator("scale_of_x", "row_scale", "\"x\"", "s")
        + &operator("quantize_x", "quantize", &format!("\"x\", {scales}"), "n")
        + &operator("product", "gemm", "\"n\", \"w\"", "y_sums")
        + &operator("rescale", "head_scale", "\"y_sums\", \"s\"", "y")
}

#[test]
fn rows_are_quantised_with_scales_of_their_own() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for dtype in TYPES {
        write(directory.path(), "rows.toml", &by_row(dtype, dtype, "\"s\""));
        for mode in ["kbk", "fused"] {
            let words = ["--mode", mode, "--effort", "quick", "--arch", "plasticine", "--workload", "rows.toml"];
            let (code, stdout, stderr) = rdusim(directory.path(), &[&["verify"], &words[..]].concat());
            assert_eq!(code, Some(0), "{dtype} {mode}: {stdout}{stderr}");
        }
        let run = json(directory.path(), &["run", "--mode", "kbk", "--arch", "plasticine", "--workload", "rows.toml"]);
        let written = |name: &str| run["runs"][0]["traffic"]["by_tensor"][name]["off_chip_write_bytes"].as_u64();
        assert_eq!((written("s"), written("n")), (Some(48 * 4), Some(48 * 64)), "{dtype}");
    }
    let refused = |text: &str, why: &str| {
        write(directory.path(), "rows.toml", text);
        let (code, _, stderr) = rdusim(directory.path(), &["check", "rows.toml"]);
        assert_eq!((code, stderr.contains(why)), (Some(2), true), "{stderr}");
    };
    refused(&by_row("bf16", "bf16", "\"s\""), "expected a data type of 8 bits");
    let other = tensor("t", "shape = [48, 1]\nrole = \"input\"\ndtype = \"fp32\"");
    refused(&(by_row("int8", "int8", "\"t\"") + &other), "makes scales for no data type");
    let narrow = by_row("int8", "int8", "\"s\"").replace("dtype = \"fp32\"", "dtype = \"int8\"");
    refused(&narrow, "expected a float of 16 or 32 bits");
}

/// An SN50 has twice as many lanes for fp8 as for bf16; an SN40L takes fp8 at the rate of bf16, and says so.
#[test]
fn an_rdu_multiplies_fp8_if_its_generation_does_and_says_if_not() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let shape = (4096, 2048, 8192);
    let run = |chip: &str, dtype: &str| {
        write(directory.path(), "block.toml", &block(dtype, shape.0, shape.1, shape.2, ""));
        let words = ["run", "--mode", "fused", "--effort", "quick", "--arch", chip, "--workload", "block.toml"];
        json(directory.path(), &words)
    };
    let notes = |run: &Value| run["runs"][0]["notes"].to_string();
    let (sn50, sn40l, wide) = (run("sn50", "fp8_e4m3"), run("sn40l", "fp8_e4m3"), run("sn50", "bf16"));
    assert!(!notes(&sn50).contains("rate of a wider type") && !notes(&wide).contains("rate of a wider type"));
    assert!(notes(&sn40l).contains("fp8_e4m3 as bf16"), "{}", notes(&sn40l));
    // What a launch of 24 us leaves is bound by the products, which take half as long.
    let launch = 24e-6 * 2e9;
    let ratio = (cycles(&wide) - launch) / (cycles(&sn50) - launch);
    assert!((1.4..=2.1).contains(&ratio), "{ratio}");
    // int8 has no rate of its own on either.
    assert!(notes(&run("sn50", "int8")).contains("int8 as bf16"));
}

#[test]
fn what_units_lack_and_nothing_emulates_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    write(directory.path(), "block.toml", &block("int8", 64, 96, 128, ""));
    let (code, _, stderr) =
        rdusim(directory.path(), &["run", "--arch", "gc2", "--workload", "block.toml", "--mode", "kbk"]);
    assert_eq!((code, stderr.contains("emulated")), (Some(2), true), "{stderr}");
    // Units that lose the wider type emulate on the narrowest that is left.
    let sets = ["--set", "arch.pcu.lanes={ fp32 = 16 }"];
    let (code, stdout, stderr) = rdusim(directory.path(), &[&["check", "--arch", "sn10"], &sets[..]].concat());
    assert_eq!((code, stdout.contains("int8 as fp32")), (Some(0), true), "{stdout}{stderr}");
    for (set, why) in
        [("arch.emulated.int8=\"int8\"", "expected one of"), ("arch.emulated.int4=\"bf16\"", "emulated.int4")]
    {
        let (code, _, stderr) = rdusim(directory.path(), &["check", "--arch", "sn10", "--set", set]);
        assert_eq!((code, stderr.contains(why)), (Some(2), true), "{stderr}");
    }
}

#[test]
fn a_model_quantises_its_activations() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let sizes =
        ["--hidden", "64", "--layers", "1", "--heads", "4", "--kv-heads", "2", "--ffn", "96", "--vocabulary", "50"];
    for (model, activations, more) in [
        ("llama", "fp8_e4m3", &["--weight-storage", "int4:32", "--seq", "96"][..]),
        (
            "llama",
            "int8:token",
            &["--phase", "decode", "--batch", "2", "--context", "32", "--cache-storage", "fp8_e4m3"],
        ),
        ("gpt", "fp8_e5m2:token", &["--seq", "96"]),
        // All of it in fp8, masked scores too.
        ("gpt", "fp8_e4m3", &["--dtype", "fp8_e4m3", "--seq", "96"]),
    ] {
        let words = [&["model", model, "-o", "model.toml", "--activations", activations], &sizes[..], more].concat();
        let words: Vec<&str> =
            words.into_iter().filter(|word| model != "gpt" || !["--kv-heads", "2"].contains(word)).collect();
        let (code, _, stderr) = rdusim(directory.path(), &words);
        assert_eq!(code, Some(0), "{stderr}");
        let words = ["verify", "--effort", "quick", "--arch", "plasticine", "--workload", "model.toml"];
        let verified = rdusim(directory.path(), &words);
        assert_eq!(verified.0, Some(0), "{model} {activations}: {}{}", verified.1, verified.2);
    }
    let words = ["model", "gpt", "--phase", "training", "--activations", "int8"];
    let (code, _, stderr) = rdusim(directory.path(), &[&words[..], &sizes].concat());
    assert_eq!((code, stderr.contains("--activations")), (Some(2), true), "{stderr}");
}

/// What schemes of quantised checkpoints say of weights, activations and cache; others are said in a note.
#[test]
fn configs_of_quantised_models_say_what_products_are_of() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let tokens = r#"{"num_bits":8,"type":"int","strategy":"token","dynamic":true}"#;
    let group = |weights: &str, activations: &str, more: &str| {
        format!(
            r#"{{"quant_method":"compressed-tensors","config_groups":{{"group_0":{{"weights":{weights},
               "input_activations":{activations}}}}}{more}}}"#
        )
    };
    let fp8_cache = r#","kv_cache_scheme":{"num_bits":8,"type":"float"}"#;
    let [static_fp8, dynamic_fp8] =
        ["static", "dynamic"].map(|scheme| format!(r#"{{"quant_method":"fp8","activation_scheme":"{scheme}"}}"#));
    let cases: [(String, &[&str]); 11] = [
        (static_fp8, &["dtype = \"fp8_e4m3\"\nstorage = { format = \"fp8_e4m3\" }", "x_attention_narrow"]),
        (dynamic_fp8, &["kind = \"row_scale\"", "format = \"fp8_e4m3\""]),
        (r#"{"quant_method":"fp8"}"#.to_owned(), &["storage = { format = \"fp8_e4m3\" }"]),
        (
            group(r#"{"num_bits":8,"type":"int","strategy":"channel"}"#, tokens, ""),
            &["dtype = \"int8\"\nstorage = { format = \"int8\" }", "kind = \"row_scale\""],
        ),
        (
            group(r#"{"num_bits":4,"type":"int","strategy":"group","group_size":32}"#, "null", fp8_cache),
            &["storage = { format = \"int4\", group = 32 }", "storage = { format = \"fp8_e4m3\" }"],
        ),
        (
            group(r#"{"num_bits":8,"type":"int","strategy":"group","group_size":32}"#, tokens, ""),
            &["format = \"int8\", group = 32 }", "activations of quantised products stay in bf16"],
        ),
        (group(r#"{"num_bits":2,"type":"int"}"#, "null", ""), &["is not applied"]),
        // A scale for the tensor, for each column of fp8, for blocks; types of products and weights that differ.
        (
            group(r#"{"num_bits":8,"type":"int","strategy":"tensor"}"#, tokens, ""),
            &["format = \"int8\", one_scale = true }"],
        ),
        (
            group(r#"{"num_bits":8,"type":"float","strategy":"channel"}"#, "null", ""),
            &["fp8_e4m3\", group = 1099511627776 }"],
        ),
        (group(r#"{"num_bits":8,"type":"float","strategy":"block"}"#, "null", ""), &["is not applied"]),
        (
            group(r#"{"num_bits":8,"type":"float","strategy":"tensor"}"#, tokens, ""),
            &["activations of quantised products stay in bf16"],
        ),
    ];
    for (number, (scheme, expected)) in cases.into_iter().enumerate() {
        let config = format!(
            r#"{{"model_type":"llama","hidden_size":64,"num_hidden_layers":1,"num_attention_heads":4,"num_key_value_heads":2,
               "intermediate_size":96,"max_position_embeddings":128,"vocab_size":50,"quantization_config":{scheme}}}"#
        );
        write(directory.path(), "config.json", &config);
        let words = ["import", "config.json", "--phase", "decode", "--context", "32", "-o", "model.toml"];
        let (code, _, stderr) = rdusim(directory.path(), &words);
        assert_eq!(code, Some(0), "{number}: {stderr}");
        let text = std::fs::read_to_string(directory.path().join("model.toml")).expect("a file");
        for part in expected {
            assert!(text.contains(part), "{number}: {part:?} is not in\n{text}");
        }
        let (code, _, stderr) = rdusim(directory.path(), &["check", "model.toml"]);
        assert_eq!(code, Some(0), "{number}: {stderr}");
    }
}

/// Experts that no token meets stay where they are: the part that is read has the type of the whole.
#[test]
fn experts_multiply_quantised_activations() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = r#"{"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 2,
        "vocab_size": 50, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
        "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}}"#;
    write(directory.path(), "config.json", config);
    let words = ["--arch", "plasticine", "--workload", "config.json", "--phase", "decode", "--context", "32"];
    let (code, stdout, stderr) = rdusim(directory.path(), &[&["verify", "--mode", "kbk"], &words[..]].concat());
    assert_eq!(code, Some(0), "{stdout}{stderr}");
}

/// Tensor cores that lack fp8 take what is converted: stored elements of a sparse weight, and no operand of an epilogue.
#[test]
fn what_products_read_is_converted_on_gpus_and_nothing_else() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let text = |dtype: &str, sparsity: &str| {
        let of = |rows: u64, columns: u64, role: &str, more: &str| {
            format!("shape = [{rows}, {columns}]\nrole = {role:?}\ndtype = {dtype:?}{more}")
        };
        "schema = 1\nname = \"residual\"\n".to_owned()
            + &tensor("x", &of(8192, 128, "input", ""))
            + &tensor("w", &of(128, 8192, "weight", sparsity))
            + &tensor("r", &of(8192, 8192, "input", ""))
            + &tensor("h", &format!("dtype = {dtype:?}"))
            + &operator("product", "gemm", "\"x\", \"w\"", "h")
            + &operator("residual", "add", "\"h\", \"r\"", "y")
    };
    let sparse = "\nsparsity = { pattern = \"block\", block = [32, 32], density = 0.1, seed = 1 }";
    for sparsity in ["", sparse] {
        let time = |dtype: &str| {
            write(directory.path(), "residual.toml", &text(dtype, sparsity));
            let words = ["run", "--mode", "epilogue", "--arch", "a100", "--workload", "residual.toml"];
            cycles(&json(directory.path(), &words))
        };
        let (narrow, wide) = (time("fp8_e4m3"), time("fp16"));
        assert!(narrow < 1.1 * wide, "{sparsity}: {narrow} {wide}");
    }
}
