//! Attention by its keys.

use super::{Reader, families};
use crate::model::{Compressed, HeadAttention, Indexer, Latent, LatentAttention};
use rdusim_base::diagnostics::Diagnostic;

/// Names of the number of heads of keys and values.
const KV_HEADS: [&str; 7] = [
    "num_key_value_heads",
    "n_head_kv",
    "num_kv_heads",
    "n_kv_heads",
    "num_query_groups",
    "multi_query_group_num",
    "num_attention_groups",
];

/// Names of the width of a head.
const HEAD: [&str; 4] = ["head_dim", "attention_head_dim", "kv_channels", "d_head"];

impl Reader<'_> {
    /// Whether keys and values are made of a latent vector.
    pub(super) fn is_latent(&self) -> bool {
        self.map().get("kv_lora_rank").is_some_and(|rank| !rank.is_null())
            || matches!(self.family, "deepseek_v2" | "deepseek_v3") && !self.map().contains_key("num_kv_heads")
    }

    /// Attention with heads; `local` of layers that see a part of the tokens, which some models give widths of their own.
    pub(super) fn heads_of(&mut self, local: bool) -> Result<HeadAttention, Diagnostic> {
        let own = |reader: &Self, names: &[&str]| if local { reader.any(names) } else { Ok(None) };
        let global = |reader: &Self, names: &[&str]| if local { Ok(None) } else { reader.any(names) };
        let heads = own(self, &["swa_num_attention_heads"])?.unwrap_or(self.heads);
        let of_kind = own(self, &["swa_num_key_value_heads"])?;
        let kv_heads = match of_kind.or(global(self, &["num_global_key_value_heads"])?) {
            Some(kv_heads) => kv_heads,
            None => match self.any(&KV_HEADS)? {
                Some(kv_heads) => kv_heads,
                None if self.family.is_empty() && !self.map().contains_key(KV_HEADS[0]) => {
                    return Err(
                        self.refused("`num_key_value_heads` is missing, and the default of the class is not known")
                    );
                }
                None => self.count(&KV_HEADS)?,
            },
        };
        let of_kind = own(self, &["swa_head_dim"])?.or(global(self, &["global_head_dim"])?);
        let key = match of_kind.or(self.any(&HEAD)?).or(super::Fields::usual_count(self.family, "head_dim")) {
            Some(head) => head,
            None if self.hidden.is_multiple_of(heads) => self.hidden / heads,
            None => {
                let title = format!("{heads} heads do not divide the width {}, and `head_dim` is missing", self.hidden);
                return Err(self.refused(&title));
            }
        };
        if !heads.is_multiple_of(kv_heads) {
            let title = format!("`{}` is {kv_heads}, which does not divide the {heads} heads", KV_HEADS[0]);
            return Err(self.refused(&title));
        }
        let value = own(self, &["swa_v_head_dim"])?.or(self.any(&["v_head_dim"])?).unwrap_or(key);
        let biases =
            ["attention_bias", "qkv_bias", "use_qkv_bias", "add_qkv_bias", "attention_qkv_bias", "use_bias", "bias"];
        let bias = self.flag(&biases, families::has_head_biases(self.family))?;
        let bias = bias && (self.family != "nemotron_h" || self.flag(&["attention_bias"], false)?);
        let of_sinks = if local { "add_swa_attention_sink_bias" } else { "add_full_attention_sink_bias" };
        let gate = self.flag(&["attn_output_gate", "use_output_gate"], families::has_output_gates(self.family))?;
        let norms = ["use_qk_norm", "qk_norm", "qk_layernorm", "use_qk_layernorm", "query_key_norm"];
        // The norms of Llama 4 have no gains.
        let head_norm = self.flag(&norms, families::has_head_norms(self.family))? && self.family != "llama4";
        Ok(HeadAttention {
            value,
            rotary: self.family != "nemotron_h",
            bias,
            output_bias: bias
                && (self.family == "gpt_oss" || self.family == "starcoder2" || self.flag(&["mlp_bias"], false)?),
            head_norm,
            gate: if gate { heads * value } else { 0 },
            sinks: self.family == "gpt_oss" || self.flag(&[of_sinks], false)?,
            key_is_value: !local && self.flag(&["attention_k_eq_v"], false)?,
            capped: self.map().get("attn_logit_softcapping").is_some_and(serde_json::Value::is_number)
                || self.family == "gemma2" && !self.map().contains_key("attn_logit_softcapping"),
            ..HeadAttention::new(heads, kv_heads, key)
        })
    }

    /// Multi-head latent attention, with what chooses tokens if something does.
    pub(super) fn latent(&mut self) -> Result<LatentAttention, Diagnostic> {
        let query = self.fields.count_or_none(self.family, &["q_lora_rank"], &mut self.notes)?;
        let latent = Latent {
            query,
            key: self.count(&["kv_lora_rank"])?,
            plain: self.count(&["qk_nope_head_dim"])?,
            rotated: self.count(&["qk_rope_head_dim"])?,
            value: self.count(&["v_head_dim"])?,
        };
        Ok(LatentAttention { heads: self.heads, latent, indexer: self.indexer()? })
    }

    fn indexer(&mut self) -> Result<Option<Indexer>, Diagnostic> {
        let names = ["index_n_heads", "index_head_dim", "index_topk"];
        if !names.iter().any(|name| self.map().get(*name).is_some_and(|value| !value.is_null())) {
            return Ok(None);
        }
        if let Some(list) = self.list("indexer_types")
            && let Some(other) = list.iter().find(|kind| kind.as_str() != Some("full"))
        {
            return Err(self.refused(&format!(
                "`indexer_types` holds {other}: expected \"full\", an indexer of each layer's own"
            )));
        }
        let [heads, head, top] = names;
        Ok(Some(Indexer { heads: self.count(&[heads])?, head: self.count(&[head])?, top: self.count(&[top])? }))
    }

    /// Attention over a window and compressed keys.
    pub(super) fn compressed(&mut self, ratio: u64) -> Result<Compressed, Diagnostic> {
        let groups = self.count(&["o_groups"])?;
        if !self.heads.is_multiple_of(groups) {
            return Err(
                self.refused(&format!("`o_groups` is {groups}, which does not divide the {} heads", self.heads))
            );
        }
        // Short runs are chosen from, long ones are all read.
        let indexer = if ratio > 0 && ratio <= MOST_CHOSEN { self.indexer()? } else { None };
        Ok(Compressed {
            heads: self.heads,
            head: self.count(&["head_dim"])?,
            query: self.count(&["q_lora_rank"])?,
            groups,
            output: self.count(&["o_lora_rank"])?,
            window: self.count(&["sliding_window"])?,
            ratio,
            indexer,
        })
    }
}

/// Tokens of the longest run whose compressed keys an indexer chooses from.
const MOST_CHOSEN: u64 = 4;
