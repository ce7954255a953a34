//! Names that the modules of a layer's matrices have in checkpoints of one family or another.

use serde_json::Value;

use crate::model::{Activation, Feed, LayerKind, Mixer};

/// Matrices that no checkpoint quantises: those of routers, of gates and rates with a column or a few, and of residual streams.
pub(super) const NEVER: [&str; 6] =
    ["w_router", "w_shared_open", "w_step", "w_learn", "w_index_weight", "w_compress_weight"];

/// What may stand before the number of a layer.
const PREFIXES: [&str; 6] = [
    "model.layers.",
    "model.language_model.layers.",
    "language_model.model.layers.",
    "backbone.layers.",
    "language_model.layers.",
    "layers.",
];

/// Those of them that a config names; the first where it names none.
pub(super) fn prefixes(config: &Value) -> Vec<&'static str> {
    let text = config.to_string();
    let found: Vec<&str> = PREFIXES.into_iter().filter(|prefix| text.contains(&format!("\"{prefix}"))).collect();
    if found.is_empty() { vec![PREFIXES[0]] } else { found }
}

/// Names of the module of a matrix inside its layer.
fn inside(matrix: &str, layer: &LayerKind) -> &'static [&'static str] {
    let is_latent = matches!(layer.mixer, Mixer::Latent(_));
    let is_linear = matches!(layer.mixer, Mixer::Delta(_) | Mixer::Lightning(_));
    match matrix {
        "w_query" | "w_query_rotated" if is_latent => &["self_attn.q_b_proj", "self_attn.q_proj"],
        "w_query" | "w_key" | "w_value" if is_linear => {
            &["linear_attn.in_proj_qkvz", "linear_attn.in_proj_qkv", "self_attn.qkv_proj"]
        }
        "w_gate_out" if is_linear => &["linear_attn.in_proj_z", "linear_attn.in_proj_qkvz", "self_attn.output_gate"],
        "w_decay" => &["linear_attn.in_proj_ba", "linear_attn.in_proj_a"],
        "w_project" if is_linear => &["linear_attn.out_proj", "self_attn.out_proj"],
        "w_query" | "w_gate_out" => {
            &["self_attn.q_proj", "self_attn.qkv_proj", "attn.wq_b", "attn.q_proj", "mixer.q_proj"]
        }
        "w_key" => &["self_attn.k_proj", "self_attn.qkv_proj", "attn.wkv", "attn.k_proj", "mixer.k_proj"],
        "w_value" => &["self_attn.v_proj", "self_attn.qkv_proj", "attn.v_proj", "mixer.v_proj"],
        "w_project" => &["self_attn.o_proj", "attn.wo_b", "attn.o_proj", "mixer.o_proj"],
        "w_group_out" => &["attn.wo_a"],
        "w_query_latent" => &["self_attn.q_a_proj", "attn.wq_a"],
        "w_key_latent" | "w_key_rotated" => &["self_attn.kv_a_proj_with_mqa"],
        "w_key_up" | "w_value_up" => &["self_attn.kv_b_proj"],
        "w_index_query" => &["self_attn.indexer.wq_b", "attn.indexer.wq_b"],
        "w_index_key" => &["self_attn.indexer.wk"],
        "w_compress" => &["attn.compressor.wkv"],
        "w_index_compress" | "w_index_compress_weight" => &["attn.indexer.compressor.wkv"],
        "w_z" | "w_x_in" | "w_b_in" | "w_c_in" => &["mixer.in_proj", "mamba.in_proj"],
        "w_out" => &["mixer.out_proj", "mamba.out_proj"],
        "w_gate" => &["mlp.gate_proj", "mlp.gate_up_proj", "feed_forward.gate_proj", "ffn.w1"],
        "w_up" => &["mlp.up_proj", "mlp.gate_up_proj", "feed_forward.up_proj", "ffn.w3", "mixer.up_proj"],
        "w_down" => &["mlp.down_proj", "feed_forward.down_proj", "ffn.w2", "mixer.down_proj"],
        "w_latent_down" => &["mixer.fc1_latent_proj"],
        "w_latent_up" => &["mixer.fc2_latent_proj"],
        "w_expert_gate" => &[
            "mlp.experts.0.gate_proj",
            "block_sparse_moe.experts.0.w1",
            "ffn.experts.0.w1",
            "feed_forward.experts.gate_up_proj",
            "experts.0.gate_proj",
            "mixer.experts.0.gate_proj",
        ],
        "w_expert_up" => &[
            "mlp.experts.0.up_proj",
            "block_sparse_moe.experts.0.w3",
            "ffn.experts.0.w3",
            "feed_forward.experts.gate_up_proj",
            "experts.0.up_proj",
            "mixer.experts.0.up_proj",
        ],
        "w_expert_down" => &[
            "mlp.experts.0.down_proj",
            "block_sparse_moe.experts.0.w2",
            "ffn.experts.0.w2",
            "feed_forward.experts.down_proj",
            "experts.0.down_proj",
            "mixer.experts.0.down_proj",
        ],
        // A dense block beside the experts of Gemma 4 is called as one without experts.
        "w_shared_gate" => &[
            "mlp.shared_experts.gate_proj",
            "mlp.shared_expert.gate_proj",
            "ffn.shared_experts.w1",
            "feed_forward.shared_expert.gate_proj",
            "mlp.gate_proj",
        ],
        "w_shared_up" => &[
            "mlp.shared_experts.up_proj",
            "mlp.shared_expert.up_proj",
            "ffn.shared_experts.w3",
            "feed_forward.shared_expert.up_proj",
            "mixer.shared_experts.up_proj",
            "mlp.up_proj",
        ],
        "w_shared_down" => &[
            "mlp.shared_experts.down_proj",
            "mlp.shared_expert.down_proj",
            "ffn.shared_experts.w2",
            "feed_forward.shared_expert.down_proj",
            "mixer.shared_experts.down_proj",
            "mlp.down_proj",
        ],
        _ => &[],
    }
}

/// Names of the module of a matrix of a layer.
pub(super) fn modules_of(matrix: &str, layer: &LayerKind, at: usize, prefixes: &[&str]) -> Vec<String> {
    let beside = matches!(&layer.feed, Feed::Experts(of) if of.activation == Activation::GatedGelu);
    // Experts beside a dense block, not inside of it, leave that block its usual names.
    let is_of_layer = |name: &&&str| match matrix {
        "w_expert_gate" | "w_expert_up" | "w_expert_down" => name.starts_with("experts.") == beside,
        "w_shared_gate" | "w_shared_up" | "w_shared_down" => (name.matches('.').count() == 1) == beside,
        _ => true,
    };
    let names: Vec<&&str> = inside(matrix, layer).iter().filter(is_of_layer).collect();
    let names = &names;
    prefixes.iter().flat_map(|prefix| names.iter().map(move |name| format!("{prefix}{at}.{name}"))).collect()
}
