//! `config.json` of models with Mamba-2 layers: their published parameters, the layers they have, refusals. Dimensions are recalled,
//! not looked up again; figures are rounded as their authors give them.

use super::options;
use crate::import::{Options, import};
use crate::model::Phase;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_graph::workload::{self, OperatorKind, Workload};

fn config(text: &str, phase: Phase) -> Result<Workload, Diagnostic> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    std::fs::write(&path, text).unwrap();
    let dims = vec![("batch".to_owned(), 2), ("sequence".to_owned(), 512)];
    let text = import(&path, &Options { dims, phase, ..options() })?.graph.into_text();
    Ok(workload::parse("config.toml", &text, &[], 0).unwrap_or_else(|error| panic!("{error}\n{text}")))
}

/// Of Nemotron-H-8B, 24 layers with a recurrence, 24 feed-forward blocks, 4 with attention.
fn nemotron() -> String {
    let pattern = ["M-M-M-M*-", "M-M-M-M-M*-", "M-M-M-M-M*-", "M-M-M-M-M*-", "M-M-M-M-M-"].concat();
    format!(
        r#"{{"model_type": "nemotron_h", "hidden_size": 4096, "num_hidden_layers": 52, "num_attention_heads": 32,
            "num_key_value_heads": 8, "attention_head_dim": 128, "intermediate_size": 21504, "vocab_size": 131072,
            "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4,
            "chunk_size": 128, "hybrid_override_pattern": "{pattern}"}}"#
    )
}

/// Of Granite-4.0-H-Micro.
fn granite(layers: &[&str]) -> String {
    format!(
        r#"{{"model_type": "granitemoehybrid", "hidden_size": 2048, "num_hidden_layers": {}, "num_attention_heads": 32,
            "num_key_value_heads": 8, "intermediate_size": 8192, "shared_intermediate_size": 8192, "vocab_size": 100352,
            "num_local_experts": 0, "mamba_n_heads": 64, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128,
            "mamba_chunk_size": 256, "position_embedding_type": "nope", "tie_word_embeddings": true,
            "layer_types": {layers:?}}}"#,
        layers.len()
    )
}

const BAMBA: &str = r#"{"model_type": "bamba", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "attn_layer_indices": [9, 18, 27],
    "mamba_n_heads": 128, "mamba_d_head": "auto", "mamba_n_groups": 1, "mamba_d_state": 128, "mamba_chunk_size": 256,
    "tie_word_embeddings": false}"#;

const MAMBA: &str = r#"{"model_type": "mamba2", "hidden_size": 2560, "num_hidden_layers": 64, "num_heads": 80, "head_dim": 64,
    "state_size": 128, "n_groups": 1, "vocab_size": 50288, "tie_word_embeddings": true}"#;

#[test]
fn hybrids_have_their_published_parameters() {
    let mut granite_layers = ["mamba"; 40];
    for at in [5, 15, 25, 35] {
        granite_layers[at] = "attention";
    }
    let published = [
        (MAMBA.to_owned(), 2_702_599_680.0, [64, 0, 0]),
        (BAMBA.to_owned(), 9.78e9, [29, 0, 3]),
        (nemotron(), 8.1e9, [24, 24, 4]),
        (granite(&granite_layers), 3.19e9, [36, 0, 4]),
    ];
    for (text, parameters, layers) in published {
        for phase in [Phase::Forward, Phase::Prefill, Phase::Decode] {
            let workload = config(&text, phase).unwrap();
            let found = workload.parameters() as f64;
            assert!((found / parameters - 1.0).abs() < 0.005, "{text}: {found}, published {parameters}");
            // Layers read kind by kind have a prefix for each kind.
            let repeated = |name: &str| -> u64 {
                let is_of =
                    |of: &str| of == name || of.starts_with('l') && of.split_once('_').is_some_and(|of| of.1 == name);
                workload.operators.iter().filter(|op| is_of(&op.name)).map(|op| op.repeat).sum()
            };
            // In chunks, whatever the groups.
            let masks = workload.operators.iter().filter(|op| op.kind == OperatorKind::DecayMask).count();
            assert_eq!(masks, usize::from(phase != Phase::Decode), "{text}");
            let of_kinds = [repeated("mamba_out"), repeated("feed_up"), repeated("scores")];
            // Layers that are read kind by kind name other operators so.
            let same = if of_kinds[0] == 0 { of_kinds[2] == layers[2] } else { of_kinds == layers };
            assert!(same, "{text}: {of_kinds:?}");
        }
    }
}

#[test]
fn layers_that_do_not_add_up_are_refused() {
    let refused = |text: &str, what: &str| {
        let error = config(text, Phase::Forward).unwrap_err();
        assert!(error.title().contains(what), "{error}");
    };
    refused(&BAMBA.replace("[9, 18, 27]", "[9, 18, 32]"), "expected different numbers below 32");
    refused(&nemotron().replace("M*", "MX"), "expected 52 times `M`, `*`, `-` or `E`");
    refused(&granite(&["mamba", "linear"]), "2 times \"mamba\" or \"attention\"");
    refused(r#"{"model_type": "zamba2"}"#, "`hidden_size` is missing");
    let error = config(MAMBA, Phase::Training).unwrap_err();
    assert!(error.title().contains("scans have no gradient"), "{error}");
}
