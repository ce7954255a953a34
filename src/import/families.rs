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

/// The family whose class in Hugging Face Transformers has this name, such as `LlamaForCausalLM`.
fn family_of_class(class: &str) -> Option<&'static str> {
    let ends = ["For", "LMHead", "Model"];
    let end = ends.iter().filter_map(|end| class.find(end)).min().unwrap_or(class.len());
    let name = class[..end].to_ascii_lowercase();
    FAMILIES.into_iter().find(|family| family.replace('_', "") == name)
}

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
        let found_name = match (self.map.get("model_type"), self.map.get("architectures")) {
            (Some(found), _) => found.as_str().unwrap_or_default().to_owned(),
            (None, Some(classes)) => {
                let class = classes.get(0).and_then(Value::as_str).unwrap_or_default();
                return family_of_class(class).ok_or_else(|| {
                    self.refused(&format!(
                        "`model_type` is missing, and `architectures` is {classes}, which is not known"
                    ))
                    .with_help(format!("known families are {}; export others to ONNX", FAMILIES.join(", ")))
                });
            }
            (None, None) => {
                let error = self.refused("`model_type` is missing");
                return Err(error.with_help(format!("a config.json names one of {}", FAMILIES.join(", "))));
            }
        };
        if let Some(family) = FAMILIES.into_iter().find(|family| *family == found_name) {
            return Ok(family);
        }
        if let Some((_, missing)) = MISSING.into_iter().find(|(family, _)| *family == found_name) {
            let why = format!("`model_type` is {found_name:?}, whose models have {missing}, which are not modelled");
            return Err(self.refused(&why).with_help("export the model to ONNX"));
        }
        Err(self
            .refused(&format!("`model_type` is {found_name:?}, which is not known"))
            .with_help(format!("known are {}; export others to ONNX", FAMILIES.join(", "))))
    }

    /// The fields of the text model, where its dimensions lie under `text_config`; without them, as they are.
    ///
    /// # Errors
    /// A family that is known to have parts that are not modelled, and a `text_config` that is no object.
    pub(super) fn of_text(mut self, notes: &mut Vec<String>) -> Result<Self, Diagnostic> {
        let Some(inner) = self.map.get("text_config").filter(|_| !self.map.contains_key("hidden_size")) else {
            return Ok(self);
        };
        let Value::Object(inner) = inner else {
            return Err(self.refused("`text_config` is no object, and `hidden_size` is missing"));
        };
        let outer_name = self.map.get("model_type").and_then(Value::as_str).unwrap_or_default();
        if MISSING.iter().any(|(family, _)| *family == outer_name) {
            return Ok(self);
        }
        let mut inner = inner.clone();
        let is_unnamed = !inner.contains_key("model_type") && !inner.contains_key("architectures");
        for (key, is_kept) in [
            ("model_type", is_unnamed),
            ("architectures", is_unnamed),
            ("quantization_config", true),
            ("_name_or_path", true),
            ("tie_word_embeddings", true),
        ] {
            if let Some(value) = self.map.get(key).filter(|_| is_kept && !inner.contains_key(key)) {
                inner.insert(key.to_owned(), value.clone());
            }
        }
        let others: Vec<String> = self
            .map
            .iter()
            .filter(|(key, value)| key.ends_with("_config") && value.is_object())
            .filter(|(key, _)| !["text_config", "quantization_config"].contains(&key.as_str()))
            .map(|(key, _)| format!("`{key}`"))
            .collect();
        let left_out = if others.is_empty() {
            String::new()
        } else {
            format!("; what {} describes is not modelled", others.join(" and "))
        };
        notes.push(format!("the model is that of `text_config`{left_out}"));
        self.map = inner;
        Ok(self)
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
        let mut notes = Vec::new();
        let base = self.base(family, &mut notes)?;
        let heads = base.heads;
        let sequence = self.sequence(family, &mut notes)?;
        let kv_heads = self.kv_heads(family, heads, &mut notes)?;
        let llama = Architecture {
            kv_heads,
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
                let extras = Extras { latent: Some(self.latent(family, &mut notes)?), head_width: None, ..base.extras };
                Architecture { kv_heads: heads, extras, ..llama }
            }
            "bert" => Architecture {
                position: Position::Learned(sequence),
                causal: false,
                post_norm: true,
                embedding_norm: true,
                token_types: self.from(0, family, &["type_vocab_size"], &mut notes)?,
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
        if let Some(experts) = self.experts(family, &architecture, &mut notes)? {
            self.with_experts(family, &mut architecture, experts, phase, &mut notes)?;
        } else if self.expert_load != ExpertLoad::default() {
            return Err(self.refused("`--expert-load` is for models with experts, and this one has none"));
        }
        notes.extend(self.window_note(family, sequence)?);
        Ok(Model { architecture, sequence, notes })
    }

    /// Heads of keys and values, of families that say how many.
    fn kv_heads(&self, family: &str, heads: u64, notes: &mut Vec<String>) -> Result<u64, Diagnostic> {
        match family {
            "llama" | "mistral" | "mixtral" | "phi3" | "qwen2" | "qwen3" | "qwen2_moe" | "qwen3_moe" | "gemma2" => {
                self.count_or_usual(family, &["num_key_value_heads"], notes)
            }
            _ => Ok(heads),
        }
    }

    /// What is to be said of windows of attention that are shorter than the longest sequence.
    fn window_note(&self, family: &str, sequence: u64) -> Result<Option<String>, Diagnostic> {
        let is_usual = !matches!(family, "qwen2" | "qwen3" | "qwen2_moe" | "qwen3_moe");
        let is_windowed = family != "gemma2" && self.flag("use_sliding_window", is_usual)?;
        let window = if self.map.contains_key("sliding_window") {
            self.any(&["sliding_window"])?
        } else {
            Self::usual_count(family, "sliding_window")
        };
        let is_short = is_windowed && window.is_some_and(|window| window < sequence);
        Ok(is_short
            .then(|| "the sliding window of attention is not modelled: every token meets all before it".to_owned()))
    }

    /// The most tokens of a sequence; it is the length of a table in families that learn their positions.
    fn sequence(&self, family: &str, notes: &mut Vec<String>) -> Result<u64, Diagnostic> {
        let names = ["max_position_embeddings", "n_positions", "n_ctx", "seq_length"];
        if matches!(family, "bert" | "gpt2" | "opt") {
            return self.count_or_usual(family, &names, notes);
        }
        Ok(self.any(&names)?.or(Self::usual_count(family, "trained_positions")).unwrap_or(2048))
    }

    /// The width of the feed-forward block: four times the model's where the family's class says so.
    fn feed_forward(&self, family: &str, hidden: u64, notes: &mut Vec<String>) -> Result<u64, Diagnostic> {
        let names = ["intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim"];
        match family {
            "gpt2" | "bloom" | "falcon" | "mamba2" => Ok(self.any(&names)?.unwrap_or(hidden.saturating_mul(4))),
            _ => self.count_or_usual(family, &names, notes),
        }
    }

    /// What all families have.
    fn base(&self, family: &str, notes: &mut Vec<String>) -> Result<Architecture, Diagnostic> {
        let hidden = self.count(&["hidden_size", "n_embd", "n_embed"])?;
        let layers = self.count(&["num_hidden_layers", "n_layer"])?;
        // Without attention it has no heads.
        let heads = if family == "mamba2" { 1 } else { self.count(&["num_attention_heads", "n_head"])? };
        let feed_forward = self.feed_forward(family, hidden, notes)?;
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
                | "granitemoehybrid"
                | "nemotron_h"
        );
        let head_width = match family {
            "mamba2" => None,
            "gemma2" | "qwen3" => Some(self.count_or_usual(family, &["head_dim"], notes)?),
            _ => self.any(&["head_dim"])?,
        };
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

    fn latent(&self, family: &str, notes: &mut Vec<String>) -> Result<Latent, Diagnostic> {
        Ok(Latent {
            query: self.count_or_none(family, &["q_lora_rank"], notes)?,
            key: self.count_or_usual(family, &["kv_lora_rank"], notes)?,
            plain: self.count_or_usual(family, &["qk_nope_head_dim"], notes)?,
            rotated: self.count_or_usual(family, &["qk_rope_head_dim"], notes)?,
            value: self.count_or_usual(family, &["v_head_dim"], notes)?,
        })
    }

    /// The experts of a layer that has some.
    fn experts(
        &self,
        family: &str,
        base: &Architecture,
        notes: &mut Vec<String>,
    ) -> Result<Option<Experts>, Diagnostic> {
        let count = match family {
            "mixtral" | "granitemoehybrid" => "num_local_experts",
            "qwen2_moe" | "qwen3_moe" => "num_experts",
            "deepseek_v2" | "deepseek_v3" => "n_routed_experts",
            _ => return Ok(None),
        };
        let count = self.from(u64::from(family != "granitemoehybrid"), family, &[count], notes)?;
        if count == 0 {
            return Ok(None);
        }
        let each = self.count_or_usual(family, &["num_experts_per_tok"], notes)?;
        let every = self.any(&["decoder_sparse_step", "moe_layer_freq"])?.unwrap_or(1);
        let width = match family {
            "mixtral" | "granitemoehybrid" => base.feed_forward,
            _ => self.count_or_usual(family, &["moe_intermediate_size"], notes)?,
        };
        let plain = Experts { count, each, width, shared: 0, shared_gate: false, every };
        let experts = match family {
            "qwen2_moe" => {
                let shared = self.count_or_usual(family, &["shared_expert_intermediate_size"], notes)?;
                Experts { shared, shared_gate: true, ..plain }
            }
            "granitemoehybrid" => {
                Experts { shared: self.from(0, family, &["shared_intermediate_size"], notes)?, ..plain }
            }
            "deepseek_v2" | "deepseek_v3" => {
                let is_none = self.map.get("n_shared_experts").is_some_and(Value::is_null);
                let shared = if is_none { 0 } else { self.from(0, family, &["n_shared_experts"], notes)? };
                Experts { shared: shared.saturating_mul(width), ..plain }
            }
            _ => plain,
        };
        if experts.each > experts.count {
            return Err(self.refused(&format!("a token meets {} of {} experts", experts.each, experts.count)));
        }
        Ok(Some(experts))
    }

    /// Gives an architecture its experts, or in training one block as wide as those that a token meets.
    fn with_experts(
        &self,
        family: &str,
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
        let has_dense = matches!(family, "deepseek_v2" | "deepseek_v3");
        let dense = if has_dense { self.from(0, family, &["first_k_dense_replace"], notes)? } else { 0 };
        architecture.extras.dense_layers = dense;
        // Who runs experts that are kept says how many rows each has.
        if !self.keeps_experts {
            notes.push(format!(
                "tokens are taken to fall {} on the {count} experts of a layer, {each} for each; those that the tokens are \
                 expected to meet are read, and each has as many rows as the busiest is expected to get",
                self.expert_load.describe()
            ));
        }
        architecture.extras.experts = Some(experts);
        Ok(())
    }
}
