//! Published `config.json` files: their parameters, refusals, and masks from weights beside them.

use super::options;
use crate::import::{Options, import};
use crate::model::Phase;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_graph::workload;

/// A `config.json` in a directory of its own, imported.
fn config(text: &str, options: &Options) -> Result<String, Diagnostic> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    std::fs::write(&path, text).unwrap();
    import(&path, options).map(|imported| imported.graph.into_text())
}

#[test]
fn published_configs_have_their_parameters() {
    let published: [(&str, f64); 7] = [
        // huggingface.co: the sums of the released weights.
        (
            r#"{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}"#,
            124_439_808.0,
        ),
        (
            r#"{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                "intermediate_size": 11008, "max_position_embeddings": 4096, "vocab_size": 32000}"#,
            6_738_415_616.0,
        ),
        (
            r#"{"model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                "num_key_value_heads": 8, "intermediate_size": 14336, "max_position_embeddings": 32768,
                "sliding_window": 4096, "vocab_size": 32000}"#,
            7_241_732_096.0,
        ),
        (
            r#"{"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
                "intermediate_size": 3072, "max_position_embeddings": 512, "type_vocab_size": 2, "vocab_size": 30522}"#,
            109_482_240.0,
        ),
        (
            r#"{"model_type": "bloom", "n_embed": 4096, "n_layer": 30, "num_attention_heads": 32, "seq_length": 2048,
                "vocab_size": 250880}"#,
            7_069_016_064.0,
        ),
        (
            r#"{"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
                "multi_query": true, "parallel_attn": true, "bias": false, "vocab_size": 65024}"#,
            6_921_720_704.0,
        ),
        (
            r#"{"model_type": "gpt_neox", "hidden_size": 6144, "num_hidden_layers": 44, "num_attention_heads": 64,
                "intermediate_size": 24576, "max_position_embeddings": 2048, "vocab_size": 50432,
                "tie_word_embeddings": false}"#,
            20_554_567_680.0,
        ),
    ];
    for (text, parameters) in published {
        for phase in [Phase::Forward, Phase::Training, Phase::Decode] {
            let dims = vec![("batch".to_owned(), 2), ("sequence".to_owned(), 512)];
            let text = config(text, &Options { dims, phase, ..options() }).unwrap();
            let workload = workload::parse("config.toml", &text, &[], 0).unwrap();
            let found = workload.parameters() as f64;
            assert!((found / parameters - 1.0).abs() < 0.01, "{}: {found}, published {parameters}", workload.name);
        }
    }
}

/// Models with parts beyond the usual: their published parameters, and what is done with them. Dimensions and exact sums of
/// released weights are recalled, not looked up again; the rounded figures are those that the sources give.
#[test]
fn configs_of_2024_and_2025_have_their_published_parameters() {
    let published: [(&str, f64); 9] = [
        // arXiv:2205.01068, 6.7 B; the sum of the released weights.
        (
            r#"{"model_type": "opt", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                "ffn_dim": 16384, "max_position_embeddings": 2048, "vocab_size": 50272, "word_embed_proj_dim": 4096}"#,
            6_658_473_984.0,
        ),
        // arXiv:2407.10671, 7.62 B; the sum of the released weights of Qwen2-7B.
        (
            r#"{"model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
                "num_key_value_heads": 4, "intermediate_size": 18944, "max_position_embeddings": 131072,
                "vocab_size": 152064, "tie_word_embeddings": false, "use_sliding_window": false, "sliding_window": 131072}"#,
            7_615_616_512.0,
        ),
        // arXiv:2505.09388, 0.6 B; the sum of the released weights of Qwen3-0.6B.
        (
            r#"{"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
                "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072,
                "max_position_embeddings": 40960, "vocab_size": 151936, "tie_word_embeddings": true}"#,
            596_049_920.0,
        ),
        // arXiv:2404.14219, 3.8 B; the sum of the released weights of Phi-3-mini-4k.
        (
            r#"{"model_type": "phi3", "hidden_size": 3072, "num_hidden_layers": 32, "num_attention_heads": 32,
                "num_key_value_heads": 32, "intermediate_size": 8192, "max_position_embeddings": 4096,
                "vocab_size": 32064, "tie_word_embeddings": false}"#,
            3_821_079_552.0,
        ),
        // arXiv:2408.00118, table 2: 590 M of embedding and 2,024 M of Gemma 2 2B.
        (
            r#"{"model_type": "gemma2", "hidden_size": 2304, "num_hidden_layers": 26, "num_attention_heads": 8,
                "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 9216, "max_position_embeddings": 8192,
                "vocab_size": 256000}"#,
            2_614_000_000.0,
        ),
        // qwenlm.github.io/blog/qwen-moe: 14.3 B of Qwen1.5-MoE-A2.7B.
        (
            r#"{"model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16,
                "num_key_value_heads": 16, "intermediate_size": 5632, "moe_intermediate_size": 1408,
                "shared_expert_intermediate_size": 5632, "num_experts": 60, "num_experts_per_tok": 4,
                "decoder_sparse_step": 1, "max_position_embeddings": 8192, "vocab_size": 151936,
                "tie_word_embeddings": false}"#,
            14_300_000_000.0,
        ),
        // arXiv:2505.09388: 30.5 B of Qwen3-30B-A3B.
        (
            r#"{"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
                "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768,
                "num_experts": 128, "num_experts_per_tok": 8, "max_position_embeddings": 40960, "vocab_size": 151936,
                "tie_word_embeddings": false}"#,
            30_500_000_000.0,
        ),
        // arXiv:2401.04088: 47 B (46.7 B) of Mixtral 8x7B.
        (
            r#"{"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                "num_key_value_heads": 8, "intermediate_size": 14336, "num_local_experts": 8, "num_experts_per_tok": 2,
                "max_position_embeddings": 32768, "vocab_size": 32000}"#,
            46_700_000_000.0,
        ),
        // arXiv:2412.19437: 671 B, without the module that predicts further tokens.
        (
            r#"{"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
                "num_key_value_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048,
                "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
                "moe_layer_freq": 1, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 64, "v_head_dim": 128, "max_position_embeddings": 163840, "vocab_size": 129280}"#,
            671_000_000_000.0,
        ),
    ];
    for (text, parameters) in published {
        for phase in [Phase::Prefill, Phase::Decode] {
            // So few tokens that decoding does not meet every expert.
            let dims = vec![("batch".to_owned(), 4), ("sequence".to_owned(), 512)];
            let text = config(text, &Options { dims, phase, ..options() }).unwrap();
            let workload =
                workload::parse("config.toml", &text, &[], 0).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let found = workload.parameters() as f64;
            assert!((found / parameters - 1.0).abs() < 0.005, "{text:.60}: {found}, published {parameters}");
        }
    }
    // Of 32,768 tokens that the model takes, the usual 2,048; and none of its experts is left out but in training.
    let (mixtral, _) = published[7];
    let text = config(mixtral, &options()).unwrap();
    assert!(text.contains("2048 tokens a sequence") && text.contains("tokens = 2048"), "{text:.300}");
    let trained = config(mixtral, &Options { phase: Phase::Training, ..options() }).unwrap();
    assert!(trained.contains("2 of 8 experts") && trained.contains("ffn = 28672"), "{trained:.600}");
}

#[test]
fn configs_that_cannot_be_used_are_refused() {
    let refused = |text: &str, what: &str| {
        let error = config(text, &options()).unwrap_err();
        assert!(error.title().contains(what), "{error}");
    };
    refused("{", "is no config.json");
    refused("[]", "holds no object");
    refused("{}", "`hidden_size` is missing");
    refused(r#"{"model_type": "t4"}"#, "`hidden_size` is missing");
    refused(r#"{"model_type": "mamba"}"#, "`hidden_size` is missing");
    refused(r#"{"model_type": "gpt2", "n_embd": -1}"#, "`n_embd` is -1, expected a count");
    refused(r#"{"model_type": "gpt2"}"#, "`hidden_size` is missing");
    let mixtral = r#"{"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100, "num_local_experts": 8,
        "num_experts_per_tok": 2}"#;
    assert!(config(mixtral, &options()).unwrap().contains("equally likely on the 8 experts"));
    let masked = Options { masks: true, masks_file: Some("x".to_owned()), ..options() };
    assert!(config(mixtral, &masked).unwrap_err().title().contains("model.safetensors` is not there"));
    let unknown = Options { dims: vec![("other".to_owned(), 2)], ..options() };
    assert!(config(mixtral, &unknown).unwrap_err().title().contains("leaves no such dimension open"));
}

#[test]
fn weights_beside_a_config_give_masks() {
    let directory = tempfile::tempdir().unwrap();
    let config = r#"{"model_type": "mistral", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 100, "max_position_embeddings": 16}"#;
    std::fs::write(directory.path().join("config.json"), config).unwrap();
    let (mut header, mut data) = (Vec::new(), Vec::new());
    for (name, rows, columns) in [
        ("self_attn.q_proj", 32, 32),
        ("self_attn.k_proj", 16, 32),
        ("self_attn.v_proj", 16, 32),
        ("self_attn.o_proj", 32, 32),
        ("mlp.gate_proj", 64, 32),
        ("mlp.up_proj", 64, 32),
        ("mlp.down_proj", 32, 64),
    ] {
        let start = data.len();
        // Every third is zero.
        data.extend((0..rows * columns).flat_map(|i| if i % 3 == 0 { 0f32 } else { 1.0 + i as f32 }.to_le_bytes()));
        header.push(format!(
            "\"model.layers.0.{name}.weight\":{{\"dtype\":\"F32\",\"shape\":[{rows},{columns}],\"data_offsets\":[{start},{}]}}",
            data.len()
        ));
    }
    let header = format!("{{{}}}", header.join(","));
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    std::fs::write(directory.path().join("model.safetensors"), bytes).unwrap();
    let stored = |options: &Options| {
        let text = import(&directory.path().join("config.json"), options).unwrap().graph.into_text();
        let name = directory.path().join("w.toml").display().to_string();
        let workload = workload::parse(&name, &text, &[], 0).unwrap();
        let w = workload.tensors.iter().find(|t| t.name == "w_up").unwrap();
        ((w.rows, w.columns), w.stored_elements(), workload.notes.len())
    };
    let masked = Options { masks: true, masks_file: Some("x".to_owned()), ..options() };
    assert_eq!(stored(&masked), ((32, 64), 2048 - 683, 1));
    let pruned = Options { density: Some(0.25), block: Some((8, 8)), ..masked };
    assert_eq!(stored(&pruned), ((32, 64), 512, 1));
}
