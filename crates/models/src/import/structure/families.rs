//! What the class of a model says that no key does: which defaults are taken, and norms and gates that every model of a class has.
//!
//! Source: the configuration and model classes of Hugging Face Transformers, by `model_type`, and of the repositories of the models.

use serde_json::{Map, Value};

use crate::model::BlockNorms;

/// Names of `model_type`, and the class whose defaults they take.
const CLASSES: [(&str, &str); 60] = [
    ("llama", "llama"),
    ("mistral", "mistral"),
    ("ministral", "mistral"),
    ("mistral3", "mistral"),
    ("mixtral", "mixtral"),
    ("phi3", "phi3"),
    ("phi4", "phi3"),
    ("phimoe", "phimoe"),
    ("qwen2", "qwen2"),
    ("qwen2_5_vl_text", "qwen2"),
    ("qwen2_vl_text", "qwen2"),
    ("qwen2_moe", "qwen2_moe"),
    ("mimo", "mimo"),
    ("mimo_v2_flash", "mimo_v2"),
    ("qwen3", "qwen3"),
    ("qwen3_vl_text", "qwen3"),
    ("qwen3_moe", "qwen3_moe"),
    ("qwen3_vl_moe_text", "qwen3_moe"),
    ("qwen3_omni_moe_text", "qwen3_moe"),
    ("qwen3_next", "qwen3_next"),
    ("qwen3_5_text", "qwen3_5"),
    ("qwen3_5", "qwen3_5"),
    ("qwen3_5_moe_text", "qwen3_5"),
    ("qwen3_5_moe", "qwen3_5"),
    ("gemma", "gemma"),
    ("gemma2", "gemma2"),
    ("gemma3_text", "gemma3"),
    ("gemma3", "gemma3"),
    ("gemma4_text", "gemma4"),
    ("gemma4", "gemma4"),
    ("deepseek_v2", "deepseek_v2"),
    ("deepseek_v3", "deepseek_v3"),
    ("kimi_k2", "deepseek_v3"),
    ("deepseek_v32", "deepseek_v3"),
    ("deepseek_v4", "deepseek_v4"),
    ("deepseek_ref", "deepseek_v4"),
    ("kimi_linear", "kimi_linear"),
    ("glm", "glm"),
    ("glm4", "glm4"),
    ("glm4_moe", "glm4_moe"),
    ("glm4v_text", "glm4"),
    ("glm4v_moe_text", "glm4_moe"),
    ("glm_moe_dsa", "glm_moe_dsa"),
    ("llama4_text", "llama4"),
    ("llama4", "llama4"),
    ("gpt_oss", "gpt_oss"),
    ("minimax_m2", "minimax_m2"),
    ("minimax_m1", "minimax"),
    ("minimax_text_01", "minimax"),
    ("minimax", "minimax"),
    ("nemotron_h", "nemotron_h"),
    ("nemotron-nas", "nemotron_nas"),
    ("deci", "nemotron_nas"),
    ("cohere", "cohere"),
    ("cohere2", "cohere2"),
    ("olmo2", "olmo2"),
    ("olmo3", "olmo2"),
    ("exaone4", "exaone4"),
    ("starcoder2", "starcoder2"),
    ("smollm3", "smollm3"),
];

/// Names of classes in `architectures` that say more than `model_type`.
const ARCHITECTURES: [(&str, &str); 4] = [
    ("DeepseekV4ForCausalLM", "deepseek_v4"),
    ("DeepseekV3ForCausalLM", "deepseek_v3"),
    ("DeepseekV32ForCausalLM", "deepseek_v3"),
    ("DeciLMForCausalLM", "nemotron_nas"),
];

/// Names of `model_type` that are known.
pub(in crate::import) fn known_names() -> impl Iterator<Item = &'static str> {
    CLASSES.iter().map(|(name, _)| *name)
}

/// The class of a name, if it is known.
fn known_class(name: &str) -> Option<&'static str> {
    CLASSES.iter().find(|(known, _)| *known == name).map(|(_, class)| *class)
}

/// The class whose defaults a config takes; an empty name where none is known.
pub(in crate::import) fn class_of(name: &str, map: &Map<String, Value>) -> &'static str {
    let class = map.get("architectures").and_then(|list| list.get(0)).and_then(Value::as_str);
    let by_class = || {
        let class = class?;
        ARCHITECTURES.iter().find(|(known, _)| *known == class).map(|(_, family)| *family)
    };
    known_class(name).or_else(by_class).unwrap_or_default()
}

/// Whether the output matrix is the table of tokens where a config says nothing.
pub(super) fn tied(family: &str) -> Option<bool> {
    match family {
        "gemma" | "gemma2" | "gemma3" | "gemma4" | "cohere" | "cohere2" | "starcoder2" | "smollm3" => Some(true),
        "exaone4" | "" => None,
        _ => Some(false),
    }
}

/// Whether norms are layer norms.
pub(super) fn has_layer_norms(family: &str) -> bool {
    matches!(family, "starcoder2" | "cohere" | "cohere2" | "phimoe")
}

/// Norms around the blocks of every model of a class.
pub(super) fn norms(family: &str) -> BlockNorms {
    match family {
        "gemma2" | "gemma3" | "gemma4" | "glm4" => BlockNorms { before: true, behind: true, parallel: false },
        "olmo2" | "exaone4" => BlockNorms { before: false, behind: true, parallel: false },
        "cohere" | "cohere2" => BlockNorms { before: true, behind: false, parallel: true },
        _ => BlockNorms::USUAL,
    }
}

/// Whether queries and keys are normed where a config says nothing.
pub(super) fn has_head_norms(family: &str) -> bool {
    matches!(family, "qwen3" | "qwen3_moe" | "qwen3_next" | "qwen3_5" | "gemma3" | "gemma4" | "olmo2" | "exaone4")
}

/// Whether queries, keys and values have biases where a config says nothing.
pub(super) fn has_head_biases(family: &str) -> bool {
    matches!(family, "qwen2" | "qwen2_moe" | "starcoder2" | "glm4" | "glm")
}

/// Whether what heads make goes through a gate where a config says nothing.
pub(super) fn has_output_gates(family: &str) -> bool {
    matches!(family, "qwen3_next" | "qwen3_5")
}

/// The activation where a config says nothing.
pub(super) fn activation(family: &str) -> &'static str {
    if family == "nemotron_h" { "relu2" } else { "silu" }
}

/// Whether feed-forward blocks have a gate whatever their activation.
pub(super) fn gated(family: &str) -> Option<bool> {
    match family {
        "starcoder2" => Some(false),
        "gemma" | "gemma2" | "gemma3" | "gemma4" => Some(true),
        _ => None,
    }
}

/// Of how many layers the last one sees all tokens, and the others a window, where a config says nothing.
pub(super) fn window_pattern(family: &str) -> Option<u64> {
    match family {
        "gemma2" | "gpt_oss" => Some(2),
        "gemma3" | "gemma4" => Some(6),
        "cohere2" => Some(4),
        _ => None,
    }
}
