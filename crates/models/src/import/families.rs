//! Families of models by the fields of their `config.json`: each field as Hugging Face's classes read it.

use serde_json::{Map, Value};

use super::structure::{known_names, text_of};
use crate::model::{Activation, Architecture, ExpertLoad, Experts, Extras, Norm, Phase, Position};
use rdusim_base::diagnostics::Diagnostic;

/// Families that are read by rules of their own, as `model_type` names them: with learned positions, norms behind the sums, or layers of
/// Mamba-2. All others are read by their structure.
const FAMILIES: [&str; 9] =
    ["gpt2", "bert", "bloom", "falcon", "gpt_neox", "opt", "mamba2", "bamba", "granitemoehybrid"];

/// Families with Mamba-2 layers.
const HYBRIDS: [&str; 3] = ["mamba2", "bamba", "granitemoehybrid"];

/// Experts of a layer.
const MOST_EXPERTS: u64 = 1 << 20;

/// The family whose class in Hugging Face Transformers has this name, such as `LlamaForCausalLM`.
fn family_of_class(class: &str) -> Option<&'static str> {
    let ends = ["For", "LMHead", "Model"];
    let end = ends.iter().filter_map(|end| class.find(end)).min().unwrap_or(class.len());
    let name = class[..end].to_ascii_lowercase();
    let known = FAMILIES.into_iter().chain(known_names());
    known.into_iter().find(|family| family.replace('_', "") == name)
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

    /// The name of the family: `model_type`, or what the class in `architectures` is called; empty if neither is there.
    ///
    /// # Errors
    /// A `model_type` that is no word.
    pub(super) fn family_name(&self) -> Result<String, Diagnostic> {
        match self.map.get("model_type").filter(|name| !name.is_null()) {
            Some(Value::String(name)) => return Ok(name.clone()),
            Some(other) => return Err(self.refused(&format!("`model_type` is {other}, expected a name"))),
            None => {}
        }
        let class = self.map.get("architectures").and_then(|list| list.get(0)).and_then(Value::as_str);
        Ok(class
            .map(|class| family_of_class(class).map_or_else(|| class.to_ascii_lowercase(), str::to_owned))
            .unwrap_or_default())
    }

    /// The family of a name that is read by rules of its own.
    pub(super) fn family(name: &str) -> Option<&'static str> {
        FAMILIES.into_iter().find(|family| *family == name)
    }

    /// The fields of the text model, where its dimensions lie under a key of their own; without them, as they are.
    pub(super) fn of_text(mut self, notes: &mut Vec<String>) -> Self {
        self.map = text_of(self.map, notes);
        self
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
        let mut architecture = match family {
            "gpt2" => Architecture { position: Position::Learned(sequence), ..base },
            "opt" => self.opt(&base, sequence)?,
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
            self.with_experts(&mut architecture, experts, phase, &mut notes)?;
        } else if self.expert_load != ExpertLoad::default() {
            return Err(self.refused("`--expert-load` is for models with experts, and this one has none"));
        }
        Ok(Model { architecture, sequence, notes })
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
        let is_untied = matches!(family, "gpt_neox" | "mamba2" | "bamba" | "granitemoehybrid");
        let head_width = match family {
            "mamba2" => None,
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

    /// The experts of a layer that has some.
    fn experts(
        &self,
        family: &str,
        base: &Architecture,
        notes: &mut Vec<String>,
    ) -> Result<Option<Experts>, Diagnostic> {
        if family != "granitemoehybrid" {
            return Ok(None);
        }
        let count = self.from(0, family, &["num_local_experts"], notes)?;
        if count == 0 {
            return Ok(None);
        }
        let each = self.count_or_usual(family, &["num_experts_per_tok"], notes)?;
        let shared = self.from(0, family, &["shared_intermediate_size"], notes)?;
        let experts = Experts { count, each, width: base.feed_forward, shared, shared_gate: false, every: 1 };
        if experts.each > experts.count {
            return Err(self.refused(&format!("a token meets {} of {} experts", experts.each, experts.count)));
        }
        Ok(Some(experts))
    }

    /// Gives an architecture its experts, or in training one block as wide as those that a token meets.
    pub(super) fn with_experts(
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
        if count > MOST_EXPERTS {
            return Err(self.refused(&format!("{count} experts, at most {MOST_EXPERTS} are possible")));
        }
        if phase == Phase::Training && self.expert_load != ExpertLoad::default() {
            let error = self
                .refused("`--expert-load` has no effect in training, which takes the experts of a token as one block");
            return Err(error.with_help("leave it out, or choose `--phase forward`, `prefill` or `decode`"));
        }
        if phase == Phase::Training && !self.keeps_experts {
            architecture.extras.dense_layers = 0;
            architecture.feed_forward = each.saturating_mul(width).saturating_add(shared);
            notes.push(format!(
                "{each} of {count} experts of every layer are modelled, those that a token meets, as one feed-forward \
                 block {} wide; the others' weights, and the routing, are not",
                architecture.feed_forward
            ));
            return Ok(());
        }
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
