//! Families of models by the fields of their `config.json`: each field as Hugging Face's classes read it.

use serde_json::{Map, Value};

use crate::diagnostics::Diagnostic;
use crate::model::{Activation, Architecture, ExpertLoad, Experts, Extras, Latent, Norm, Phase, Position};

/// Families that are known, as `model_type` names them.
const FAMILIES: [&str; 21] = [
    "gpt2",
    "llama",
    "mistral",
    "mixtral",
    "bert",
    "bloom",
    "falcon",
    "gpt_neox",
    "opt",
    "qwen2",
    "qwen3",
    "qwen2_moe",
    "qwen3_moe",
    "phi3",
    "gemma2",
    "deepseek_v2",
    "deepseek_v3",
    "mamba2",
    "bamba",
    "granitemoehybrid",
    "nemotron_h",
];

/// Families that are known by name, and what of them is not modelled.
const MISSING: [(&str, &str); 13] = [
    ("gemma3", "an image encoder and windows of attention in five of six layers"),
    ("gemma3_text", "windows of attention in five of six layers"),
    ("llama4", "an image encoder, and attention in chunks in three of four layers"),
    ("t5", "an encoder and a decoder with attention between them"),
    ("bart", "an encoder and a decoder with attention between them"),
    ("whisper", "convolutions over sound, and an encoder and a decoder with attention between them"),
    ("vit", "patches of images as tokens"),
    ("clip", "two encoders side by side"),
    ("mamba", "selective scans with a rate for each column of the state, as Mamba-1 has"),
    ("zamba2", "blocks of attention that share weights and read the embedding beside the layer before"),
    ("jamba", "selective scans with a rate for each column of the state, as Mamba-1 has"),
    ("rwkv", "recurrences over tokens"),
    ("gpt_oss", "sinks and windows of attention"),
];

/// Families with Mamba-2 layers.
const HYBRIDS: [&str; 4] = ["mamba2", "bamba", "granitemoehybrid", "nemotron_h"];

/// Experts of a layer.
const MOST_EXPERTS: u64 = 1 << 20;

/// What a config says of a model.
pub(super) struct Model {
    pub(super) architecture: Architecture,
    /// The most tokens of a sequence.
    pub(super) sequence: u64,
    pub(super) notes: Vec<String>,
}

/// A `config.json`.
pub(super) struct Fields {
    pub(super) path: String,
    pub(super) map: Map<String, Value>,
    /// How tokens fall on experts, if the model has some.
    pub(super) expert_load: ExpertLoad,
    /// Experts stay experts in training too, also where layers with and without them take turns.
    pub(super) keeps_experts: bool,
}

impl Fields {
    pub(super) fn refused(&self, why: &str) -> Diagnostic {
        Diagnostic::new(format!("`{}`: {why}", self.path))
    }

    pub(super) fn family(&self) -> Result<&'static str, Diagnostic> {
        let Some(found) = self.map.get("model_type") else {
            let error = self.refused("`model_type` is missing");
            return Err(error.with_help(format!("a config.json names one of {}", FAMILIES.join(", "))));
        };
        let found_name = found.as_str().unwrap_or_default();
        if let Some(family) = FAMILIES.into_iter().find(|family| *family == found_name) {
            return Ok(family);
        }
        if let Some((_, missing)) = MISSING.into_iter().find(|(family, _)| *family == found_name) {
            let why = format!("`model_type` is {found}, whose models have {missing}, which are not modelled");
            return Err(self.refused(&why).with_help("export the model to ONNX"));
        }
        Err(self
            .refused(&format!("`model_type` is {found}, which is not known"))
            .with_help(format!("known are {}; export others to ONNX", FAMILIES.join(", "))))
    }

    /// A count under one of several names.
    pub(super) fn any(&self, names: &[&str]) -> Result<Option<u64>, Diagnostic> {
        for &name in names {
            match self.map.get(name) {
                None | Some(Value::Null) => {}
                Some(value) => {
                    return value
                        .as_u64()
                        .filter(|&n| (1..=1 << 40).contains(&n))
                        .map(Some)
                        .ok_or_else(|| self.refused(&format!("`{name}` is {value}, expected a count from 1 to 2^40")));
                }
            }
        }
        Ok(None)
    }

    pub(super) fn count(&self, names: &[&str]) -> Result<u64, Diagnostic> {
        self.any(names)?.ok_or_else(|| self.refused(&format!("`{}` is missing", names[0])))
    }

    fn flag(&self, name: &str, default: bool) -> Result<bool, Diagnostic> {
        match self.map.get(name) {
            None | Some(Value::Null) => Ok(default),
            Some(Value::Bool(value)) => Ok(*value),
            Some(value) => Err(self.refused(&format!("`{name}` is {value}, expected true or false"))),
        }
    }

    /// The architecture of a family. In training, which has no gradient of gathered tokens, the experts that a token meets
    /// are one feed-forward block.
    pub(super) fn model(&self, family: &str, phase: Phase) -> Result<Model, Diagnostic> {
        let base = self.base(family)?;
        let (heads, sequence) = (base.heads, self.sequence(family)?);
        let mut notes = Vec::new();
        let llama = Architecture {
            kv_heads: self.any(&["num_key_value_heads"])?.unwrap_or(heads),
            norm: Norm::Rms,
            activation: Activation::GatedSilu,
            bias: self.flag("attention_bias", false)? && self.flag("mlp_bias", false)?,
            ..base
        };
        let attention_bias = self.flag("attention_bias", false)? && !llama.bias;
        let mut architecture = match family {
            "gpt2" => Architecture { position: Position::Learned(sequence), ..base },
            "opt" => self.opt(&base, sequence)?,
            "llama" | "mistral" | "mixtral" | "phi3" => {
                Architecture { extras: Extras { attention_bias, ..base.extras }, ..llama }
            }
            "qwen2" | "qwen2_moe" => {
                let attention_bias = self.flag("qkv_bias", true)?;
                Architecture { bias: false, extras: Extras { attention_bias, ..base.extras }, ..llama }
            }
            "qwen3" | "qwen3_moe" => {
                notes.push(
                    "queries and keys are normed as whole rows, not head by head: the work is the same".to_owned(),
                );
                Architecture { extras: Extras { attention_bias, head_norm: true, ..base.extras }, ..llama }
            }
            "gemma2" => {
                notes.push("the windows of attention in every second layer are not modelled".to_owned());
                let extras = Extras { branch_norm: true, capped_scores: true, attention_bias, ..base.extras };
                Architecture { activation: Activation::GatedGelu, extras, ..llama }
            }
            "deepseek_v2" | "deepseek_v3" => {
                let extras = Extras { latent: Some(self.latent()?), head_width: None, ..base.extras };
                Architecture { kv_heads: heads, extras, ..llama }
            }
            "bert" => Architecture {
                position: Position::Learned(sequence),
                causal: false,
                post_norm: true,
                embedding_norm: true,
                token_types: self.any(&["type_vocab_size"])?.unwrap_or(2),
                output: false,
                ..base
            },
            family if HYBRIDS.contains(&family) => self.hybrid(family, &base, &mut notes)?,
            "bloom" => Architecture { position: Position::Alibi, embedding_norm: true, ..base },
            "falcon" => {
                let several = self.flag("new_decoder_architecture", false)?;
                let one = self.flag("multi_query", true)? && !several;
                let given = self.any(&["num_kv_heads", "n_head_kv"])?;
                Architecture {
                    kv_heads: if one { 1 } else { given.filter(|_| several).unwrap_or(heads) },
                    position: if self.flag("alibi", false)? { Position::Alibi } else { Position::Rotary },
                    bias: self.flag("bias", false)?,
                    parallel: several || self.flag("parallel_attn", true)?,
                    ..base
                }
            }
            _ => Architecture { parallel: self.flag("use_parallel_residual", true)?, ..base },
        };
        if let Some(experts) = self.experts(family, &architecture)? {
            self.with_experts(&mut architecture, experts, phase, &mut notes)?;
        } else if self.expert_load != ExpertLoad::default() {
            return Err(self.refused("`--expert-load` is for models with experts, and this one has none"));
        }
        let is_windowed = family != "gemma2" && self.flag("use_sliding_window", true)?;
        if is_windowed && self.any(&["sliding_window"])?.is_some_and(|window| window < sequence) {
            notes.push("the sliding window of attention is not modelled: every token meets all before it".to_owned());
        }
        Ok(Model { architecture, sequence, notes })
    }

    /// The most tokens of a sequence.
    fn sequence(&self, family: &str) -> Result<u64, Diagnostic> {
        let names = ["max_position_embeddings", "n_positions", "n_ctx", "seq_length"];
        Ok(self.any(&names)?.unwrap_or(if family == "gpt2" { 1024 } else { 2048 }))
    }

    /// What all families have.
    fn base(&self, family: &str) -> Result<Architecture, Diagnostic> {
        let hidden = self.count(&["hidden_size", "n_embd", "n_embed"])?;
        let layers = self.count(&["num_hidden_layers", "n_layer"])?;
        // Without attention it has no heads.
        let heads = if family == "mamba2" { 1 } else { self.count(&["num_attention_heads", "n_head"])? };
        let wide = hidden.saturating_mul(4);
        let feed_forward = self.any(&["intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim"])?.unwrap_or(wide);
        let is_untied = matches!(
            family,
            "llama"
                | "mistral"
                | "mixtral"
                | "gpt_neox"
                | "qwen2"
                | "qwen3"
                | "qwen2_moe"
                | "qwen3_moe"
                | "phi3"
                | "deepseek_v2"
                | "deepseek_v3"
                | "mamba2"
                | "bamba"
                | "nemotron_h"
        );
        let usual = if family == "gemma2" { Some(256) } else { None };
        let head_width = if family == "mamba2" { None } else { self.any(&["head_dim"])?.or(usual) };
        Ok(Architecture {
            hidden,
            layers,
            heads,
            kv_heads: heads,
            feed_forward,
            vocabulary: self.count(&["vocab_size"])?,
            position: Position::Rotary,
            norm: Norm::Layer,
            activation: Activation::Gelu,
            bias: true,
            tied: self.flag("tie_word_embeddings", !is_untied)?,
            causal: true,
            post_norm: false,
            parallel: false,
            embedding_norm: false,
            token_types: 0,
            output: true,
            extras: Extras {
                head_width: head_width.filter(|head| head.saturating_mul(heads) != hidden),
                ..Extras::default()
            },
        })
    }

    fn opt(&self, base: &Architecture, sequence: u64) -> Result<Architecture, Diagnostic> {
        if self.any(&["word_embed_proj_dim"])?.is_some_and(|width| width != base.hidden) {
            let why = "`word_embed_proj_dim` is not `hidden_size`: projections of embeddings are not modelled";
            return Err(self.refused(why));
        }
        let is_relu = self.map.get("activation_function").and_then(Value::as_str).is_none_or(|name| name == "relu");
        Ok(Architecture {
            // Two rows of the table are never used.
            position: Position::Learned(sequence + 2),
            activation: if is_relu { Activation::Relu } else { Activation::Gelu },
            post_norm: !self.flag("do_layer_norm_before", true)?,
            ..*base
        })
    }

    fn latent(&self) -> Result<Latent, Diagnostic> {
        Ok(Latent {
            query: self.any(&["q_lora_rank"])?,
            key: self.count(&["kv_lora_rank"])?,
            plain: self.count(&["qk_nope_head_dim"])?,
            rotated: self.count(&["qk_rope_head_dim"])?,
            value: self.count(&["v_head_dim"])?,
        })
    }

    /// The experts of a layer that has some.
    fn experts(&self, family: &str, base: &Architecture) -> Result<Option<Experts>, Diagnostic> {
        let every = self.any(&["decoder_sparse_step", "moe_layer_freq"])?.unwrap_or(1);
        let plain = |count, each, width| Experts { count, each, width, shared: 0, shared_gate: false, every };
        let each = |usual: u64| Ok::<_, Diagnostic>(self.any(&["num_experts_per_tok"])?.unwrap_or(usual));
        let experts = match family {
            "mixtral" => plain(self.any(&["num_local_experts"])?.unwrap_or(8), each(2)?, base.feed_forward),
            "qwen2_moe" => Experts {
                shared: self.count(&["shared_expert_intermediate_size"])?,
                shared_gate: true,
                ..plain(self.count(&["num_experts"])?, each(4)?, self.count(&["moe_intermediate_size"])?)
            },
            "qwen3_moe" => plain(self.count(&["num_experts"])?, each(8)?, self.count(&["moe_intermediate_size"])?),
            "granitemoehybrid" => {
                let count = self.map.get("num_local_experts").and_then(Value::as_u64).unwrap_or(0);
                if count == 0 {
                    return Ok(None);
                }
                let shared = self.any(&["shared_intermediate_size"])?.unwrap_or(0);
                Experts { shared, ..plain(count, each(2)?, base.feed_forward) }
            }
            "deepseek_v2" | "deepseek_v3" => {
                let width = self.count(&["moe_intermediate_size"])?;
                let shared = self.map.get("n_shared_experts").and_then(Value::as_u64).unwrap_or(0);
                let shared = shared.saturating_mul(width);
                Experts { shared, ..plain(self.count(&["n_routed_experts"])?, each(8)?, width) }
            }
            _ => return Ok(None),
        };
        if experts.each > experts.count {
            return Err(self.refused(&format!("a token meets {} of {} experts", experts.each, experts.count)));
        }
        Ok(Some(experts))
    }

    /// Gives an architecture its experts, or in training one block as wide as those that a token meets.
    fn with_experts(
        &self,
        architecture: &mut Architecture,
        experts: Experts,
        phase: Phase,
        notes: &mut Vec<String>,
    ) -> Result<(), Diagnostic> {
        let Experts { count, each, width, shared, .. } = experts;
        if let ExpertLoad::Measured(counts) = &self.expert_load
            && counts.len() as u64 != count
        {
            let title = format!("`--expert-load` names a file of {} experts, the model has {count}", counts.len());
            return Err(Diagnostic::new(title).with_help("one number a line for each expert"));
        }
        let is_mixed = experts.every != 1 && !self.keeps_experts;
        if is_mixed || self.map.get("mlp_only_layers").and_then(Value::as_array).is_some_and(|list| !list.is_empty()) {
            return Err(self.refused("layers with and without experts take turns, which is not modelled"));
        }
        if count > MOST_EXPERTS {
            return Err(self.refused(&format!("{count} experts, at most {MOST_EXPERTS} are possible")));
        }
        if phase == Phase::Training && self.expert_load != ExpertLoad::default() {
            let error = self
                .refused("`--expert-load` has no effect in training, which takes the experts of a token as one block");
            return Err(error.with_help("leave it out, or choose `--phase forward`, `prefill` or `decode`"));
        }
        if phase == Phase::Training && !self.keeps_experts {
            architecture.feed_forward = each.saturating_mul(width).saturating_add(shared);
            notes.push(format!(
                "{each} of {count} experts of every layer are modelled, those that a token meets, as one feed-forward \
                 block {} wide; the others' weights, and the routing, are not",
                architecture.feed_forward
            ));
            return Ok(());
        }
        let dense = self.map.get("first_k_dense_replace").and_then(Value::as_u64).unwrap_or(0);
        architecture.extras.dense_layers = dense;
        notes.push(format!(
            "tokens are taken to fall {} on the {count} experts of a layer, {each} for each; those that the tokens are \
             expected to meet are read, and each has as many rows as the busiest is expected to get",
            self.expert_load.describe()
        ));
        architecture.extras.experts = Some(experts);
        Ok(())
    }
}
