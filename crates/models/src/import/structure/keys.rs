//! Keys of a config that may change shapes: those that are read, those that never matter, and the rule for all others.

use std::fmt::Write as _;

use serde_json::Value;

use super::Reader;
use crate::model::{Feed, LayerKind, Mixer};
use rdusim_base::diagnostics::Diagnostic;

/// Keys that the reader knows, whether or not a model has what they are about.
#[rustfmt::skip]
const READ: &[&str] = &[
    // Widths, layers and heads.
    "hidden_size", "n_embd", "n_embed", "d_model", "dim", "num_hidden_layers", "n_layer", "n_layers", "num_layers",
    "num_decoder_layers", "num_attention_heads", "n_head", "n_heads", "num_heads", "num_query_heads", "vocab_size",
    "padded_vocab_size", "embedding_size", "hc_mult", "tie_word_embeddings", "share_embeddings",
    // Attention.
    "num_key_value_heads", "n_head_kv", "num_kv_heads", "n_kv_heads", "num_query_groups", "multi_query_group_num", "num_attention_groups",
    "head_dim", "attention_head_dim", "kv_channels", "d_head", "v_head_dim", "qk_head_dim", "swa_num_attention_heads",
    "swa_num_key_value_heads", "swa_head_dim", "swa_v_head_dim", "num_global_key_value_heads", "global_head_dim",
    "attention_bias", "qkv_bias", "use_qkv_bias", "add_qkv_bias", "attention_qkv_bias", "use_bias", "bias", "mlp_bias",
    "attn_output_gate", "use_output_gate", "use_qk_norm", "qk_norm", "qk_layernorm", "use_qk_layernorm", "query_key_norm",
    "attention_k_eq_v", "add_swa_attention_sink_bias", "add_full_attention_sink_bias", "attn_logit_softcapping",
    "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "index_n_heads", "index_head_dim",
    "index_topk", "indexer_types", "o_groups", "o_lora_rank", "compress_ratios", "num_kv_shared_layers",
    "sliding_window", "sliding_window_size", "use_sliding_window", "max_window_layers", "sliding_window_pattern",
    "_sliding_window_pattern", "attention_chunk_size", "no_rope_layers", "no_rope_layer_interval", "layer_types",
    "layers_block_type", "layer_block_types", "attn_type_list", "hybrid_layer_pattern", "hybrid_override_pattern",
    "full_attention_interval", "attn_layer_indices", "linear_attn_config", "block_configs",
    // Recurrences.
    "mamba_n_heads", "mamba_num_heads", "mamba_d_head", "mamba_head_dim", "mamba_d_state", "ssm_state_size", "state_size",
    "mamba_n_groups", "n_groups", "mamba_d_conv", "conv_kernel", "mamba_chunk_size", "chunk_size", "mamba_expand", "expand",
    "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
    "linear_conv_kernel_dim",
    // Feed-forward blocks.
    "intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim", "ffn_size", "d_ff", "intermediate_size_mlp",
    "dense_intermediate_size", "use_double_wide_mlp", "hidden_act", "hidden_activation", "mlp_hidden_act",
    "activation_function", "activation", "ffn_act_fn", "n_routed_experts", "num_local_experts", "num_experts",
    "num_routed_experts", "moe_num_experts", "n_experts", "num_moe_experts", "num_experts_per_tok",
    "num_experts_per_token", "experts_per_token", "top_k_experts", "moe_topk", "moe_top_k", "moe_k",
    "num_selected_experts", "num_active_experts", "moe_intermediate_size", "expert_intermediate_size",
    "moe_ffn_hidden_size", "expert_ffn_hidden_size", "expert_hidden_size", "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size", "shared_intermediate_size", "share_expert_dim", "n_shared_experts",
    "num_shared_experts", "moe_num_shared_experts", "num_shared_expert", "moe_latent_size", "enable_moe_block",
    "mlp_layer_types", "ffn_layer_types", "moe_layer_freq", "moe_layers", "moe_layers_enum", "first_k_dense_replace",
    "moe_layer_start_index", "moe_layer_end_index", "num_dense_layers", "decoder_sparse_step",
    "interleave_moe_layer_step", "moe_layer_interval", "expert_layer_period", "expert_layer_offset", "mlp_only_layers",
    // Parts that are left out with a remark.
    "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "num_mtp_modules", "mtp_transformer_layers",
    "mtp_hybrid_override_pattern", "mtp_use_dedicated_embeddings", "use_mtp",
];

/// Keys whose names look like those of shapes, and that change none: how tokens are routed, chosen or cut, and how a model was trained.
#[rustfmt::skip]
const HARMLESS: &[&str] = &[
    "max_position_embeddings", "n_positions", "n_ctx", "seq_length", "max_sequence_length", "max_seq_len",
    "model_max_length", "original_max_position_embeddings", "initial_context_length", "rotary_dim", "rotary_pct",
    "partial_rotary_factor", "rotary_emb_base", "n_group", "topk_group", "topk_method", "num_expert_group", "num_limited_groups",
    "ep_size", "pretraining_tp", "num_hash_layers", "num_logits_to_keep", "num_labels", "num_beams", "num_beam_groups",
    "num_return_sequences", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "chunk_size_feed_forward",
    "hc_sinkhorn_iters", "vocab_size_per_layer_input", "vision_soft_tokens_per_image", "top_k", "moe_router_topk_group",
    "qk_norm_type", "expert_dtype", "cross_attention_hidden_size", "pruned_heads", "max_length", "min_length",
    "query_pre_attn_scalar", "attn_scale", "floor_scale", "moe_layer_recompute", "tensor_parallel_degree",
    "image_token_index", "moe_capacity", "org_vocab_size", "order_of_interleaved_layers", "use_gated_activation",
    "cla_share_factor", "dense_list", "moe_layer_num_skipped_tokens", "mlp_hidden_act", "mamba_hidden_act", "moe_shared_expert_overlap", "rope_local_base_freq",
    "skip_first_layers", "num_image_tokens", "attn_layer_type", "head_wise_attn_gate", "swa_rope_theta",
];

/// Words of a key that never changes a shape, whatever else its name holds.
#[rustfmt::skip]
const QUIET: &[&str] = &[
    "token", "tokens", "id", "ids", "dropout", "drop", "pdrop", "rope", "mrope", "theta", "eps", "epsilon", "std",
    "range", "initializer", "init", "dtype", "cache", "loss", "coef", "coefficient", "alpha", "beta", "aux", "version",
    "implementation", "penalty", "temperature", "template", "scale", "scaling", "factor", "limit", "clip", "seed",
    "lr", "tokenizer", "name", "path", "url", "label", "labels", "image", "video", "audio", "vision", "jitter", "noise",
    "precision", "routing", "router", "softcapping", "multiplier", "floor", "min", "max", "sampling", "steps", "prune", "auto", "quant",
];

/// Words of the names of shapes.
#[rustfmt::skip]
const SHAPES: &[&str] = &[
    "size", "sizes", "dim", "dims", "heads", "head", "rank", "ranks", "layer", "layers", "block", "blocks", "num", "n",
    "experts", "expert", "group", "groups", "width", "depth", "channels", "kernel", "window", "windows", "latent", "state",
    "hidden", "intermediate", "inner", "ffn", "mlp", "moe", "lora", "ratio", "ratios", "mult", "vocab", "memory",
    "streams", "stream", "pattern", "types", "interval", "period", "offset", "embedding", "embeddings", "embd", "proj",
    "projection", "adapter", "per", "share", "shared", "kv", "qk", "d", "topk", "conv", "stride", "branches", "copies",
    "every", "freq", "step",
];

/// Words of flags that add or join matrices.
const SWITCHES: &[&str] = &["gate", "gated", "share", "shared", "tie", "tied", "adapter", "lora"];

/// The words of a key.
fn words(name: &str) -> Vec<String> {
    name.split(['_', '-', '.']).filter(|word| !word.is_empty()).map(str::to_ascii_lowercase).collect()
}

/// Whether a key with this value may change shapes, by its name and value.
pub(super) fn may_change_shapes(name: &str, value: &Value) -> bool {
    if READ.contains(&name) || HARMLESS.contains(&name) {
        return false;
    }
    let words = words(name);
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    if has(QUIET) {
        return false;
    }
    match value {
        Value::Number(number) => has(SHAPES) && number.as_f64().is_some_and(|n| n > 0.0),
        Value::Bool(is_on) => *is_on && has(SWITCHES),
        Value::Array(list) => has(SHAPES) && list.iter().any(|value| !value.is_null()),
        // A pattern of letters, or numbers in words.
        Value::String(text) => has(&["pattern", "layers", "blocks", "types"]) && text.len() > 1,
        Value::Object(map) => !name.ends_with("_config") && has(SHAPES) && map.values().any(Value::is_number),
        Value::Null => false,
    }
}

impl Reader<'_> {
    /// Refuses a key that may change shapes and is not known.
    pub(super) fn check_keys(&self, layers: &[LayerKind]) -> Result<(), Diagnostic> {
        let unknown: Vec<&String> =
            self.map().iter().filter(|(name, value)| may_change_shapes(name, value)).map(|(name, _)| name).collect();
        let Some(first) = unknown.first() else { return Ok(()) };
        let value = self.map().get(first.as_str()).map(|value| shortened(&value.to_string())).unwrap_or_default();
        let others: Vec<String> = unknown.iter().skip(1).take(8).map(|name| format!("`{name}`")).collect();
        let others = if others.is_empty() { String::new() } else { format!(", nor are {}", others.join(", ")) };
        let title = format!("`{first}` is {value}: the key is not known and may change shapes{others}");
        let help = format!(
            "understood was {}; remove keys that change no shape, or export the model to ONNX",
            self.understood(layers)
        );
        Err(self.refused(&title).with_help(help))
    }

    /// What was understood of the layers, in words.
    fn understood(&self, layers: &[LayerKind]) -> String {
        let mut text = format!("a model {} wide with {} layers", self.hidden, layers.len());
        let mut kinds: Vec<(String, u64)> = Vec::new();
        for layer in layers {
            let words = described(layer);
            match kinds.iter_mut().find(|(known, _)| *known == words) {
                Some((_, count)) => *count += 1,
                None => kinds.push((words, 1)),
            }
        }
        for (at, (words, count)) in kinds.iter().take(6).enumerate() {
            let _ = write!(text, "{}{count} of {words}", if at == 0 { ": " } else { ", " });
        }
        text
    }
}

/// A value that is not too long for a message.
fn shortened(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    if short.len() < text.len() { format!("{short}...") } else { short }
}

fn described(layer: &LayerKind) -> String {
    let mixer = match &layer.mixer {
        Mixer::None => String::new(),
        Mixer::Matrix => "a matrix".to_owned(),
        Mixer::Heads(a) => {
            let window = a.window.map_or(String::new(), |window| format!(" over {} tokens", window.tokens));
            format!("attention with {} heads of {}, {} of keys{window}", a.heads, a.key, a.kv_heads)
        }
        Mixer::Latent(a) => format!("latent attention with {} heads", a.heads),
        Mixer::Compressed(a) => format!("attention with {} heads over compressed keys", a.heads),
        Mixer::Delta(net) => format!("a delta rule with {} heads", net.value_heads),
        Mixer::Lightning(of) => format!("lightning attention with {} heads", of.heads),
        Mixer::Recurrence(m) => format!("a recurrence with {} heads", m.heads),
    };
    let feed = match &layer.feed {
        Feed::None => String::new(),
        Feed::Matrix => "a matrix".to_owned(),
        Feed::Dense(block) => format!("a feed-forward block {} wide", block.width),
        Feed::Experts(of) => format!("{} of {} experts {} wide", of.experts.each, of.experts.count, of.experts.width),
    };
    match (mixer.is_empty(), feed.is_empty()) {
        (true, _) => feed,
        (_, true) => mixer,
        _ => format!("{mixer} and {feed}"),
    }
}
