//! Fields that a `config.json` leaves out: what the class of its family takes for them by default. A field without a default here is
//! refused, never guessed; a default that is taken is said in a note.
//!
//! Source: the configuration classes of Hugging Face Transformers (`configuration_*.py`), by `model_type`.

use serde_json::Value;

use super::families::Fields;
use rdusim_base::diagnostics::Diagnostic;

/// What a class takes for a field that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Usual {
    /// This number.
    Count(u64),
    /// As many as there are query heads.
    QueryHeads,
}

/// The default of a field in some families.
struct FieldDefault {
    field: &'static str,
    families: &'static [&'static str],
    usual: Usual,
}

const fn of(field: &'static str, families: &'static [&'static str], count: u64) -> FieldDefault {
    FieldDefault { field, families, usual: Usual::Count(count) }
}

/// Defaults that are known; each field under the first of its names.
const DEFAULTS: [FieldDefault; 66] = [
    FieldDefault {
        field: "num_key_value_heads",
        families: &["llama", "phi3", "granitemoehybrid"],
        usual: Usual::QueryHeads,
    },
    of("num_key_value_heads", &["mistral", "mixtral", "bamba", "nemotron_h"], 8),
    of("num_key_value_heads", &["gemma2", "qwen3_moe"], 4),
    of("num_key_value_heads", &["qwen2", "qwen3"], 32),
    of("num_key_value_heads", &["qwen2_moe"], 16),
    of("intermediate_size", &["llama", "deepseek_v2", "granitemoehybrid"], 11_008),
    of("intermediate_size", &["mistral", "mixtral", "bamba"], 14_336),
    of("intermediate_size", &["qwen2", "qwen3"], 22_016),
    of("intermediate_size", &["qwen2_moe"], 5632),
    of("intermediate_size", &["qwen3_moe"], 6144),
    of("intermediate_size", &["gemma2"], 9216),
    of("intermediate_size", &["phi3"], 8192),
    of("intermediate_size", &["bert", "opt"], 3072),
    of("intermediate_size", &["gpt_neox"], 24_576),
    of("intermediate_size", &["deepseek_v3"], 18_432),
    of("intermediate_size", &["nemotron_h"], 21_504),
    of("head_dim", &["gemma2"], 256),
    of("head_dim", &["qwen3"], 128),
    of("head_dim", &["mamba2"], 64),
    of("attention_head_dim", &["nemotron_h"], 128),
    of("max_position_embeddings", &["bert"], 512),
    of("max_position_embeddings", &["gpt2"], 1024),
    of("max_position_embeddings", &["opt"], 2048),
    of("type_vocab_size", &["bert"], 2),
    of("num_local_experts", &["mixtral", "granitemoehybrid"], 8),
    of("num_experts", &["qwen2_moe"], 60),
    of("num_experts", &["qwen3_moe"], 128),
    of("n_routed_experts", &["deepseek_v3"], 256),
    of("num_experts_per_tok", &["mixtral", "granitemoehybrid"], 2),
    of("num_experts_per_tok", &["qwen2_moe"], 4),
    of("num_experts_per_tok", &["qwen3_moe", "deepseek_v3"], 8),
    of("moe_intermediate_size", &["qwen2_moe"], 1408),
    of("moe_intermediate_size", &["qwen3_moe"], 768),
    of("moe_intermediate_size", &["deepseek_v2"], 1407),
    of("moe_intermediate_size", &["deepseek_v3"], 2048),
    of("shared_expert_intermediate_size", &["qwen2_moe"], 5632),
    of("shared_intermediate_size", &["granitemoehybrid"], 1024),
    of("n_shared_experts", &["deepseek_v3"], 1),
    of("first_k_dense_replace", &["deepseek_v2"], 0),
    of("first_k_dense_replace", &["deepseek_v3"], 3),
    of("q_lora_rank", &["deepseek_v2", "deepseek_v3"], 1536),
    of("kv_lora_rank", &["deepseek_v2", "deepseek_v3"], 512),
    of("qk_nope_head_dim", &["deepseek_v2", "deepseek_v3"], 128),
    of("qk_rope_head_dim", &["deepseek_v2", "deepseek_v3"], 64),
    of("v_head_dim", &["deepseek_v2", "deepseek_v3"], 128),
    of("mamba_n_heads", &["bamba", "granitemoehybrid", "nemotron_h"], 128),
    of("mamba_d_head", &["nemotron_h"], 64),
    of("mamba_n_groups", &["bamba", "granitemoehybrid"], 1),
    of("mamba_n_groups", &["mamba2", "nemotron_h"], 8),
    of("mamba_d_state", &["bamba", "granitemoehybrid"], 256),
    of("mamba_d_state", &["mamba2", "nemotron_h"], 128),
    of("mamba_d_conv", &["bamba", "granitemoehybrid", "mamba2", "nemotron_h"], 4),
    of("mamba_expand", &["bamba", "granitemoehybrid", "mamba2", "nemotron_h"], 2),
    of("mamba_chunk_size", &["bamba", "granitemoehybrid", "mamba2"], 256),
    // Windows change remarks alone, and are compared with the positions of the model.
    of("sliding_window", &["mistral"], 4096),
    of("vocab_size", &["gemma3"], 262_208),
    of("vocab_size", &["gemma4"], 262_144),
    of("num_attention_heads", &["gemma3"], 8),
    of("num_key_value_heads", &["gemma3"], 4),
    of("head_dim", &["gemma3"], 256),
    of("head_dim", &["qwen3_next", "qwen3_5"], 256),
    of("sliding_window", &["gemma2", "gemma3", "cohere2"], 4096),
    of("sliding_window", &["gpt_oss"], 128),
    of("trained_positions", &["mistral", "mixtral"], 131_072),
    of("trained_positions", &["qwen2", "qwen3", "qwen2_moe", "qwen3_moe"], 32_768),
    of("trained_positions", &["gemma2"], 8192),
];

/// The default of a field in a family.
fn usual(family: &str, field: &str) -> Option<Usual> {
    DEFAULTS.iter().find(|known| known.field == field && known.families.contains(&family)).map(|known| known.usual)
}

/// What a config says of a field.
enum Said {
    /// Nothing: the name is not there.
    Nothing,
    /// `null`.
    Null,
    /// A number.
    Count(u64),
}

impl Fields {
    /// The number that a family takes for a field that nothing says.
    pub(super) fn usual_count(family: &str, field: &str) -> Option<u64> {
        match usual(family, field) {
            Some(Usual::Count(count)) => Some(count),
            _ => None,
        }
    }

    fn said(&self, names: &[&str], least: u64) -> Result<Said, Diagnostic> {
        let mut found = Said::Nothing;
        for &name in names {
            match self.map.get(name) {
                None => {}
                Some(Value::Null) => found = Said::Null,
                Some(value) => {
                    if let Some(count) = value.as_u64().filter(|&n| (least..=1 << 40).contains(&n)) {
                        return Ok(Said::Count(count));
                    }
                    let expected = format!("expected a count from {least} to 2^40");
                    return Err(self.refused(&format!("`{name}` is {value}, {expected}")));
                }
            }
        }
        Ok(found)
    }

    /// A count of at least `least` under one of several names; where a config has none of them, the default of the family's class,
    /// with a note. `null` stands for the number of query heads where heads of keys and values are meant.
    ///
    /// # Errors
    /// A field that is missing and has no default, and numbers that are none.
    pub(super) fn from(
        &self,
        least: u64,
        family: &str,
        names: &[&str],
        notes: &mut Vec<String>,
    ) -> Result<u64, Diagnostic> {
        let name = names[0];
        let usual = match self.said(names, least)? {
            Said::Count(count) => return Ok(count),
            Said::Nothing => usual(family, name),
            Said::Null if name == "num_key_value_heads" => Some(Usual::QueryHeads),
            Said::Null => return Err(self.refused(&format!("`{name}` is null, expected a count"))),
        };
        let count = match usual {
            None => return Err(self.refused(&format!("`{name}` is missing"))),
            Some(Usual::Count(count)) => count,
            Some(Usual::QueryHeads) => self.count(&["num_attention_heads", "n_head"])?,
        };
        notes.push(format!(
            "`{name}` is not in the config: {count}, the default of the class of `{family}` in Hugging Face Transformers"
        ));
        Ok(count)
    }

    /// A count of at least one, as [`Self::from`] reads it.
    ///
    /// # Errors
    /// Those of [`Self::from`].
    pub(super) fn count_or_usual(
        &self,
        family: &str,
        names: &[&str],
        notes: &mut Vec<String>,
    ) -> Result<u64, Diagnostic> {
        self.from(1, family, names, notes)
    }

    /// The same for a field whose `null` says that the model has none of it.
    ///
    /// # Errors
    /// Those of [`Self::from`].
    pub(super) fn count_or_none(
        &self,
        family: &str,
        names: &[&str],
        notes: &mut Vec<String>,
    ) -> Result<Option<u64>, Diagnostic> {
        match self.said(names, 1)? {
            Said::Null => Ok(None),
            _ => self.count_or_usual(family, names, notes).map(Some),
        }
    }
}
