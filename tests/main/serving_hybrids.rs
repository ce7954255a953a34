//! Models with Mamba-2 layers, alone and among others, that serve users on many chips.

use std::path::Path;

use rdusim::model::{LayerOrder, MAMBA_PRESETS, Mamba, Phase};
use rdusim::pod::{Load, ServedBlocks, Service, serving_memory};
use serde_json::{Value, json};

use crate::serving::{rdusim, service};

fn served(arguments: &str) -> Value {
    let output = rdusim(&arguments.split_whitespace().chain(["--format", "json"]).collect::<Vec<_>>());
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn refused(arguments: &str) -> String {
    let output = rdusim(&arguments.split_whitespace().collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(2), "{arguments}");
    String::from_utf8(output.stderr).expect("text")
}

fn number(document: &Value, path: &str) -> f64 {
    document.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {document}"))
}

/// As Nemotron-H: recurrences, feed-forward blocks alone and attention, in several groups; small.
fn hybrid(directory: &Path, pattern: &str) -> String {
    let config = json!({
        "model_type": "nemotron_h", "hidden_size": 256, "num_hidden_layers": pattern.len(), "num_attention_heads": 4,
        "num_key_value_heads": 2, "attention_head_dim": 64, "intermediate_size": 512, "vocab_size": 512,
        "mamba_num_heads": 8, "mamba_head_dim": 64, "n_groups": 4, "ssm_state_size": 32, "conv_kernel": 4,
        "chunk_size": 64, "hybrid_override_pattern": pattern
    });
    let path = directory.join("config.json");
    std::fs::write(&path, config.to_string()).expect("a file");
    path.to_str().expect("a path").to_owned()
}

#[test]
fn ranks_and_stages_of_mamba_have_the_parameters_of_the_model() {
    for preset in MAMBA_PRESETS {
        for parallel in ["tp=1", "pp=4", "tp=2,pp=2"] {
            let service = service(preset.name, parallel);
            let (tp, pp) = (service.parallel.tp, service.parallel.pp);
            let parts = (0..pp).map(|stage| service.parameters(stage));
            let all: u64 = parts.map(|part| tp * part.own + part.copied).sum();
            // B and C of the one group are on every rank: their projections, convolutions and biases.
            let copied = (tp - 1) * service.architecture.layers * 2 * 128 * (service.architecture.hidden + 5);
            // Published is D of heads, here it is of their columns.
            let skip = preset.architecture.extras.mamba.expect("a recurrence");
            let skip = service.architecture.layers * (skip.width() - u64::from(skip.heads));
            // The table is the output matrix too: with several stages the first and the last have it.
            let table = u64::from(pp > 1) * service.architecture.hidden * service.architecture.vocabulary;
            assert_eq!(all, preset.parameters + copied + table + skip, "{} {parallel}", preset.name);
        }
    }
}

/// 80 heads of 64 with a state of 128 columns, and three rows of 5,120 + 2 x 128 inputs of convolutions, in 64 layers, 2 bytes.
#[test]
fn users_hold_states_whatever_their_context() {
    let of = |heads: u64| 2 * 64 * (heads * 64 * 128 + 3 * (heads * 64 + 2 * 128));
    let held = |parallel: &str, tokens: u64| {
        let service = service("mamba2-2.7b", parallel);
        let load = Load { batch: 16, micro_batch: 16, tokens };
        serving_memory(&service, &load, Phase::Decode).kv_cache
    };
    assert_eq!(held("tp=1", 1024), 16 * of(80));
    assert_eq!(held("tp=1", 65_536), 16 * of(80));
    assert_eq!(held("tp=2", 1024), 16 * of(40));
    assert_eq!(held("pp=4", 1024), 16 * of(80) / 4);
    assert_eq!(held("dp=2", 1024), 8 * of(80));
}

/// A step of a recurrence takes as long after any context; that of a hybrid grows with the keys of its attention.
#[test]
fn a_token_takes_as_long_after_any_context() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = hybrid(directory.path(), "M-M*");
    let token = |model: &str, tokens: u64| {
        let arguments = format!("pod dgx-a100 --model {model} --phase decode --batch 8 --parallel tp=2 --seq {tokens}");
        number(&served(&arguments), "/token_s")
    };
    let (near, far) = (token("mamba2-130m", 512), token("mamba2-130m", 65_536));
    assert!((near - far).abs() < 1e-12, "{near} {far}");
    assert!(token(&config, 65_536) > 1.05 * token(&config, 512));
}

/// Prompts are filled up to whole chunks, and the time of prompts grows with their tokens, not with pairs of tokens.
#[test]
fn prompts_take_time_in_proportion() {
    let time = |tokens: u64| {
        let arguments =
            format!("pod dgx-a100 --model mamba2-2.7b --phase prefill --batch 4 --parallel tp=1 --seq {tokens}");
        let found = served(&arguments);
        (number(&found, "/step_s"), number(&found, "/time_s/compute"))
    };
    assert!((time(2000).1 - time(2048).1).abs() < 1e-12);
    let ratio = time(16_384).0 / time(4096).0;
    assert!((ratio / 4.0 - 1.0).abs() < 0.03, "{ratio}");
}

/// Stages have the layers that stand there, and each is simulated as it is.
#[test]
fn stages_of_a_hybrid_differ() {
    let base = service("mamba2-130m", "pp=3");
    let mut architecture = base.architecture;
    (architecture.layers, architecture.heads, architecture.kv_heads, architecture.feed_forward) = (6, 4, 2, 512);
    // M - M * M -
    let order = LayerOrder { attention: 1 << 3, feeds: 1 << 1 | 1 << 5 };
    let of = architecture.extras.mamba.expect("a recurrence");
    architecture.extras.mamba = Some(Mamba { layers: 3, attention: 1, feeds: 2, order, ..of });
    let service = Service { architecture, ..base };
    service.check().expect("it divides");
    let blocks = |attention, recurrent, feeds| ServedBlocks { attention, recurrent, feeds };
    assert_eq!([0, 1, 2].map(|stage| service.blocks(stage)), [blocks(0, 1, 1), blocks(1, 1, 0), blocks(0, 1, 1)]);
    assert_eq!(service.all_blocks(), blocks(1, 3, 2));
    assert_eq!([0, 1, 2].map(|stage| service.kv_bytes_of_stage(stage)), [0, 2 * 2 * 2 * 192, 0]);
    // Without an order the layers are those of one stage.
    let unknown = Mamba { order: LayerOrder::default(), ..architecture.extras.mamba.expect("a recurrence") };
    architecture.extras.mamba = Some(unknown);
    let error = Service { architecture, ..service }.check().expect_err("is refused");
    assert!(error.title().contains("order of its layers"), "{error}");
    // Through the binary: a stage of attention and one without.
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = hybrid(directory.path(), "M-M-M**-");
    let found =
        served(&format!("pod dgx-a100 --model {config} --phase decode --batch 4 --seq 8192 --parallel tp=2,pp=4"));
    // The third stage has a recurrence and attention, of a head of keys and values for each rank.
    let state = 2 * (4 * 64 * 32 + 3 * (4 * 64 + 2 * 2 * 32));
    assert_eq!(number(&found, "/memory_bytes/kv_cache") as u64, 4 * (8192 * 2 * 2 * 64 + state));
}

#[test]
fn requests_reserve_a_state_each() {
    let run = |model: &str, more: &str| {
        served(&format!(
            "pod dgx-a100 --model {model} --phase requests --parallel tp=1 --batch 4 --arrivals 50 --requests 24 --prompt-tokens 512 \
             --output-tokens 64 {more}"
        ))
    };
    let found = run("mamba2-130m", "");
    assert!((1.0..=4.0).contains(&number(&found, "/most_kv_tokens")), "{}", found["most_kv_tokens"]);
    // Room for two states: two run at a time, however long they are.
    let two = run("mamba2-130m", "--kv-tokens 2");
    assert_eq!(number(&two, "/most_kv_tokens") as u64, 2);
    assert!(number(&two, "/end_s") > number(&found, "/end_s"));
}

#[test]
fn what_is_not_modelled_of_recurrences_is_refused_by_name() {
    let training = refused("pod dgx-a100 --model mamba2-130m --phase training --batch 8 --parallel dp=2");
    assert!(training.contains("cannot be trained: scans have no gradient"), "{training}");
    let odd = refused("pod dgx-a100 --model mamba2-130m --phase decode --batch 8 --parallel tp=5");
    assert!(odd.contains("tp = 5 does not divide the 24 heads of the recurrence"), "{odd}");
    let draft = refused(
        "pod dgx-a100 --model mamba2-2.7b --phase decode --batch 8 --parallel tp=1 --draft mamba2-130m --speculate 4 --accept 0.7",
    );
    assert!(draft.contains("states as they were before"), "{draft}");
    let chunk = refused(
        "pod dgx-a100 --model mamba2-130m --phase requests --parallel tp=1 --batch 4 --arrivals 5 --requests 4 --prompt-tokens 64 \
         --output-tokens 8 --prefill-chunk 128",
    );
    assert!(chunk.contains("go on from a state"), "{chunk}");
    let ipu = refused("pod ipu-pod16 --model mamba2-130m --phase decode --batch 8 --parallel tp=1 --stack serving");
    assert!(ipu.contains("stack"), "{ipu}");
}

/// Sections of an RDU: compiled, the states among what the tiers hold.
#[test]
fn rdus_serve_hybrids() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = hybrid(directory.path(), "M*-");
    let found = served(&format!(
        "pod sn40l-16 --model {config} --phase decode --batch 2 --seq 128 --parallel tp=2 --stack rdu-kbk"
    ));
    let held = 2 * (128 * 2 * 2 * 64 + 2 * (4 * 64 * 32 + 3 * (4 * 64 + 2 * 2 * 32)));
    assert_eq!(number(&found, "/memory_bytes/kv_cache") as u64, held);
    assert_eq!(number(&found, "/memory_tiers_bytes/hbm/kv_cache") as u64, held);
    assert!(number(&found, "/bound_s") <= number(&found, "/step_s"));
}
