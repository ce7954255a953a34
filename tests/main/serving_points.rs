//! Closed loops of users, engines as stacks, and measured serving points as `validate --data` takes them.

use std::path::Path;
use std::process::{Command, Output};

use rdusim::pod::{Cost, Divided, Grid, Limits, Request, RequestSize, Spread, Transfer, WorkerPool, divided, replay};
use serde_json::Value;

/// A prompt takes a second, a step of any number of users a tenth.
pub(crate) fn grid() -> Grid {
    let cost = |seconds: f64| Cost { seconds, joules: 1.0 };
    Grid {
        inputs: String::new(),
        users: vec![1],
        contexts: vec![64],
        decode: vec![vec![cost(0.1)]],
        parts: Vec::new(),
        prompts: vec![8],
        prefill: vec![cost(1.0)],
        mixed: None,
    }
}

/// A closed loop of one user, whose replica runs eight.
pub(crate) const CLOSED: Limits = Limits {
    users: 8,
    kv_tokens: 1000,
    size: RequestSize::TOKENS,
    prefill_tokens: 1000,
    prefix_share: 0.0,
    chunk: None,
    drafted: None,
    concurrency: Some(1),
    prompts_first: false,
    grows_caches: false,
    request_s: 0.0,
    first_s: 0.0,
};

fn requests(count: usize, output: u64) -> Vec<Request> {
    vec![Request { arrival_s: 5.0, prompt: 8, output }; count]
}

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "found {found}, expected {expected}");
}

#[test]
fn the_next_request_of_a_closed_loop_enters_as_one_leaves() {
    // One user: a prompt, two steps, and again; times of arrival have no meaning.
    let run = replay(&requests(3, 3), &grid(), &CLOSED, 0).expect("a run");
    near(run.end_s, 3.0 * 1.2);
    for answer in &run.answers {
        near(answer.ttft_s, 1.0);
        near(answer.token_s.expect("more than a token"), 0.1);
    }
    // Two users: both prompts first; the second pair enters when the first has left.
    let two = Limits { concurrency: Some(2), ..CLOSED };
    let run = replay(&requests(4, 3), &grid(), &two, 0).expect("a run");
    near(run.end_s, 2.0 * 2.2);
    assert!(run.answers.iter().all(|answer| (answer.ttft_s - 2.0).abs() < 1e-9));
    // The steps of both, four times two tokens apart by a tenth.
    let gaps = Spread::of_counted(run.gaps.iter().copied()).expect("gaps");
    near(gaps.mean, 0.1);
    assert_eq!(run.gaps.iter().map(|(_, users)| users).sum::<u64>(), 8);
}

#[test]
fn a_front_end_takes_requests_one_after_the_other() {
    let two = Limits { concurrency: Some(2), request_s: 0.25, first_s: 0.5, ..CLOSED };
    let run = replay(&requests(2, 1), &grid(), &two, 0).expect("a run");
    // The first can start after 0.25 and 0.5 s; the second is ready while it runs.
    near(run.answers[0].ttft_s, 1.75);
    near(run.answers[1].ttft_s, 2.75);
}

#[test]
fn those_that_run_wait_where_prompts_go_first() {
    // The second user's request is sent when the first has left, while the third runs.
    let list: Vec<Request> = [2, 4, 2].map(|output| Request { arrival_s: 0.0, prompt: 8, output }).to_vec();
    let limits = Limits { concurrency: Some(2), ..CLOSED };
    let beside = replay(&list, &grid(), &limits, 0).expect("a run");
    let first = replay(&list, &grid(), &Limits { prompts_first: true, ..limits }, 0).expect("a run");
    // 2 s of prompts, a step, and a prompt with a step of the second user; or without it.
    near(beside.answers[2].ttft_s, 1.1);
    near(first.answers[2].ttft_s, 1.0);
    // The second has three gaps: 0.1, a prompt and its step, 0.1.
    let longest = first.gaps.iter().map(|(seconds, _)| *seconds).fold(0.0, f64::max);
    near(longest, 1.1);
}

#[test]
fn caches_that_grow_let_requests_start_and_take_their_places_again() {
    // Two users of 8 and 8 tokens, and room for 20: one at a time, where a whole answer is reserved.
    let limits = Limits { concurrency: Some(2), kv_tokens: 20, ..CLOSED };
    let whole = replay(&requests(2, 8), &grid(), &limits, 0).expect("a run");
    near(whole.end_s, 2.0 * 1.7);
    // Both start at once and have four tokens after 2.3 s, when 22 are held: the second loses its place until the first is done at 2.7 s,
    // and is made again from 12 tokens, which take 1.5 s and give its fifth; three steps are left.
    let grown = replay(&requests(2, 8), &grid(), &Limits { grows_caches: true, ..limits }, 0).expect("a run");
    near(grown.answers[0].latency_s, 2.7);
    near(grown.answers[1].latency_s, 4.5);
    assert!(grown.answers.iter().all(|answer| (answer.ttft_s - 2.0).abs() < 1e-9));
    assert_eq!((grown.tokens, whole.tokens), (16, 16));
    // With room for all nobody loses a place.
    let room = Limits { kv_tokens: 1000, ..limits };
    let both = replay(&requests(2, 8), &grid(), &Limits { grows_caches: true, ..room }, 0).expect("a run");
    assert_eq!(both.answers, replay(&requests(2, 8), &grid(), &room, 0).expect("a run").answers);
}

#[test]
fn workers_of_prompts_hand_keys_and_values_to_workers_of_tokens() {
    let grid = grid();
    let worker = |batch: u64| WorkerPool { count: 1, replicas: 1, batch, grid: &grid };
    let of = |users: u64| Divided {
        prefill: worker(1),
        decode: worker(4),
        users,
        // A quarter of a second, and 1/32 for each of the 8 tokens.
        transfer: Transfer { message_s: 0.25, token_s: 0.03125 },
        first_s: 0.0,
    };
    let one = divided(&requests(2, 3), &of(1));
    for answer in &one {
        near(answer.ttft_s, 1.5);
        near(answer.token_s.expect("more than a token"), 0.1);
        near(answer.latency_s, 1.7);
    }
    // The second prompt waits for the first; tokens of the one are made beside the prompt of the other.
    let two = divided(&requests(2, 3), &of(2));
    near(two[0].ttft_s, 1.5);
    near(two[0].latency_s, 1.7);
    near(two[1].ttft_s, 2.5);
}

#[test]
fn counted_values_have_the_percentiles_of_all() {
    let found = Spread::of_counted([(2.0, 1), (1.0, 98), (3.0, 1)].into_iter()).expect("values");
    assert_eq!((found.p50, found.p95, found.p99), (1.0, 1.0, 2.0));
    near(found.mean, 1.03);
    assert_eq!(Spread::of_counted(std::iter::empty()), None);
}

fn rdusim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rdusim"))
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output()
        .expect("the program runs")
}

const HEADER: &str = "model_path,system,backend,backend_version,precision,gemm_quant_mode,moe_quant_mode,isl,osl,batch_size,\
                      tp_size,pp_size,attention_dp_size,moe_tp_size,moe_ep_size,silicon_ttft_ms,silicon_tpot_ms";

/// Seven rows of a model of two layers: five that run, and two that have reasons.
const ROWS: [&str; 7] = [
    "tiny/dense,h100_sxm,vllm,,,,,64,8,4,1,1,1,1,1,10,1",
    "tiny/dense,h100_sxm,vllm,,,,,32,8,2,1,1,0,,,10,1",
    "tiny/dense,b200_sxm,trtllm,1,fp4,nvfp4,nvfp4,64,8,2,2,1,1,1,2,10,1",
    "tiny/dense,h200_sxm,sglang,1,fp8,fp8_block,fp8_block,64,8,2,2,1,1,1,2,10,1",
    "tiny/dense,gb200,trtllm,1,,,,64,8,2,1,1,1,1,1,10,1",
    "tiny/dense,tpu,vllm,,,,,64,8,4,1,1,1,1,1,10,1",
    "tiny/unknown,h100_sxm,vllm,,,,,64,8,4,1,1,1,1,1,10,1",
];

const CONFIG: &str = r#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 1024, "max_position_embeddings": 4096,
  "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "torch_dtype": "bfloat16"}"#;

#[test]
fn serving_points_are_two_sets_with_a_row_a_point() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).to_str().expect("a path").to_owned();
    std::fs::write(at("tiny--dense.json"), CONFIG).expect("a file");
    std::fs::write(at("points.csv"), format!("# source: none\n{HEADER}\n{}\n", ROWS.join("\n"))).expect("a file");
    let (data, models, out) = (at("points.csv"), at(""), at("out"));
    let ask = ["validate", "--data", &data, "--models", &models, "--format", "json", "--out", &out];
    let first = rdusim(&ask);
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let document: Value = serde_json::from_slice(&first.stdout).expect("an object");
    let sets = document["sets"].as_array().expect("sets");
    let names: Vec<&str> = sets.iter().filter_map(|set| set["name"].as_str()).collect();
    assert_eq!(names, ["serving-tpot", "serving-ttft"]);
    for set in sets {
        let rows = set["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 7);
        let simulated: Vec<f64> = rows.iter().filter_map(|row| row["simulated"].as_f64()).collect();
        assert!(simulated.len() == 5 && simulated.iter().all(|ms| *ms > 0.0), "{set}");
        let reasons: Vec<&str> = rows.iter().filter_map(|row| row["reason"].as_str()).collect();
        assert!(reasons[0].contains("tpu") && reasons[1].contains("tiny/unknown"), "{reasons:?}");
        assert!(rows.iter().all(|row| row["error"].is_null() == row["reason"].is_string()));
        let parts = set["parts"].as_array().expect("parts");
        for name in ["system b200_sxm", "engine vllm", "precision fp8", "model tiny/dense", "system gb200"] {
            assert!(parts.iter().any(|part| part["name"] == name), "{name}: {set}");
        }
    }
    // A journal without its last line: what is gone is simulated again, and the result is the same.
    let journal = Path::new(&out).join("journal.jsonl");
    let text = std::fs::read_to_string(&journal).expect("a journal");
    assert_eq!(text.lines().count(), 5);
    let kept: Vec<&str> = text.lines().take(4).collect();
    std::fs::write(&journal, kept.join("\n")).expect("a file");
    let again = rdusim(&ask);
    assert_eq!(again.stdout, first.stdout);
    assert_eq!(std::fs::read_to_string(&journal).expect("a journal").lines().count(), 5);
}

/// Windows and sinks beside experts of four bits, latent attention with an indexer, and gated delta rules, all with experts.
const LAYERED: [(&str, &str); 3] = [
    (
        "tiny--windows.json",
        r#"{"model_type": "gpt_oss", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
        "head_dim": 64, "intermediate_size": 256, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 1024,
        "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        "attention_bias": true, "tie_word_embeddings": false, "max_position_embeddings": 4096,
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}}"#,
    ),
    (
        "tiny--indexed.json",
        r#"{"model_type": "glm_moe_dsa", "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 4, "first_k_dense_replace": 1, "intermediate_size": 512, "moe_intermediate_size": 256,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "kv_lora_rank": 512, "q_lora_rank": 128,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "index_n_heads": 4, "index_head_dim": 64,
        "index_topk": 32, "vocab_size": 1024, "tie_word_embeddings": false, "max_position_embeddings": 4096}"#,
    ),
    (
        "tiny--recurrent.json",
        r#"{"model_type": "qwen3_5_moe_text", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 64, "attn_output_gate": true, "num_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 128, "shared_expert_intermediate_size": 128, "linear_num_value_heads": 8,
        "linear_num_key_heads": 4, "linear_key_head_dim": 64, "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4,
        "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"], "vocab_size": 1024,
        "tie_word_embeddings": false, "max_position_embeddings": 4096}"#,
    ),
];

#[test]
fn models_of_several_kinds_of_layers_are_points_like_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).to_str().expect("a path").to_owned();
    let mut rows = Vec::new();
    for (name, config) in LAYERED {
        std::fs::write(at(name), config).expect("a file");
        let model = name.trim_end_matches(".json").replace("--", "/");
        let precision = if name.contains("windows") { "fp4,nvfp4,nvfp4" } else { "fp8,fp8,fp8_block" };
        for (system, division) in [("h100_sxm", "2,1,1,1,2"), ("b200_sxm", "2,1,1,2,1"), ("h200_sxm", "1,1,,1,2")] {
            rows.push(format!("{model},{system},vllm,1,{precision},64,8,2,{division},10,1"));
        }
    }
    std::fs::write(at("points.csv"), format!("# source: none\n{HEADER}\n{}\n", rows.join("\n"))).expect("a file");
    let output = rdusim(&["validate", "--data", &at("points.csv"), "--models", &at(""), "--format", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("an object");
    for set in document["sets"].as_array().expect("sets") {
        let rows = set["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 9);
        for row in rows {
            assert!(row["reason"].is_null() && row["simulated"].as_f64().is_some_and(|ms| ms > 0.0), "{row}");
        }
    }
}

/// Latent attention with an indexer takes longer as keys are added, though the tokens that it sees are bounded; windows do not.
#[test]
fn steps_grow_with_what_layers_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let step = |name: &str, seq: &str| -> f64 {
        let (_, config) = LAYERED.iter().find(|(known, _)| known.contains(name)).expect("a config");
        let path = directory.path().join(format!("{name}.json"));
        std::fs::write(&path, config).expect("a file");
        let path = path.to_str().expect("a path");
        let base = ["pod", "dgx-h100", "--model", path, "--phase", "decode", "--parallel", "tp=1", "--format", "json"];
        let output = rdusim(&[&base[..], &["--batch", "256", "--seq", seq]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).expect("an object")["step_s"].as_f64().expect("seconds")
    };
    for name in ["windows", "indexed", "recurrent"] {
        let (short, long) = (step(name, "1024"), step(name, "4096"));
        assert!(long > short, "{name}: {short} {long}");
        // No kind reads four times as much in all of its layers.
        assert!(long < 4.0 * short, "{name}: {short} {long}");
    }
}

#[test]
fn formats_of_products_and_of_keys_change_weights_memory_and_time() {
    let pod = |more: &[&str]| -> Value {
        let base = ["pod", "dgx-b200", "--model", "llama3-8b", "--phase", "decode", "--parallel", "tp=1"];
        let sized = ["--batch", "4", "--seq", "1024", "--format", "json"];
        let output = rdusim(&[&base[..], &sized, more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("an object")
    };
    let of = |document: &Value, what: &str| document["memory_bytes"][what].as_f64().expect("bytes");
    let (bf16, fp8, fp4) = (pod(&[]), pod(&["--dtype", "fp8"]), pod(&["--dtype", "nvfp4"]));
    // Matrices of a layer: 4096 x (2 x 4096 + 2 x 1024 + 3 x 14336) elements, of 2 bytes, 1 byte, and half a byte with a scale for 16.
    let elements = 32.0 * 4096.0 * (2.0 * 4096.0 + 2.0 * 1024.0 + 3.0 * 14336.0);
    let saved = |narrow: &Value| of(&bf16, "weights") - of(narrow, "weights");
    assert!((saved(&fp8) / elements - 1.0).abs() < 1e-4, "{}", saved(&fp8) / elements);
    assert!((saved(&fp4) / elements - 1.4375).abs() < 1e-3, "{}", saved(&fp4) / elements);
    let step = |document: &Value| document["step_s"].as_f64().expect("seconds");
    assert!(step(&fp4) < step(&fp8) && step(&fp8) < step(&bf16), "{} {} {}", step(&fp4), step(&fp8), step(&bf16));
    let halved = pod(&["--kv-dtype", "fp8"]);
    assert!((of(&halved, "kv_cache") / of(&bf16, "kv_cache") - 0.5).abs() < 1e-9);
    let refused = rdusim(&[
        "pod",
        "dgx-h100",
        "--model",
        "llama3-8b",
        "--phase",
        "decode",
        "--parallel",
        "tp=1",
        "--dtype",
        "fp7",
    ]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.stdout.is_empty() && String::from_utf8_lossy(&refused.stderr).contains("`--dtype` is \"fp7\""));
}

#[test]
fn a_closed_loop_runs_from_the_command_line_under_an_engine() {
    let ask = |more: &[&str]| {
        let base = [
            "pod",
            "dgx-h100",
            "--model",
            "llama3-8b",
            "--phase",
            "requests",
            "--parallel",
            "tp=2",
            "--requests",
            "12",
        ];
        rdusim(&[&base[..], &["--prompt-tokens", "128", "--output-tokens", "8", "--format", "json"], more].concat())
    };
    let output = ask(&["--concurrency", "4", "--stack", "vllm"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("an object");
    assert_eq!(document["limits"]["batch"], 4);
    assert_eq!(document["limits"]["prefill_chunk"], 8192);
    for spread in ["ttft_s", "token_s", "inter_token_s", "latency_s"] {
        assert!(document[spread]["p99"].as_f64() >= document[spread]["p50"].as_f64(), "{spread}");
    }
    let refused = ask(&["--concurrency", "4", "--arrivals", "2"]);
    assert_eq!(refused.status.code(), Some(2));
}
