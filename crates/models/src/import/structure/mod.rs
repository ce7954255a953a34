//! The structure of a model by the keys of its `config.json`: what each layer is made of, whatever the family is called.
//!
//! Keys decide. `model_type` only selects what a class takes for keys that a file leaves out (`super::defaults`). A key that may change
//! shapes and is not known is refused by its name ([`keys`]); keys that change no shape are never looked at.

mod attention;
mod families;
mod feed;
mod keys;
mod layers;
mod nested;
mod pattern;
mod recurrence;

use serde_json::{Map, Value};

use super::families::Fields;
use crate::model::{LayerKind, Mixer, Norm, Stack};
use rdusim_base::diagnostics::Diagnostic;

pub(super) use families::{class_of as class_name, known_names};
use nested::HIDDEN;
pub(super) use nested::text_of;

/// Most layers of a model.
const MOST_LAYERS: u64 = 1 << 12;

/// What a config says of a model.
#[derive(Debug, Clone)]
pub(super) struct Read {
    /// Its layers.
    pub(super) stack: Stack,
    /// The most tokens of a sequence.
    pub(super) sequence: u64,
    /// What is left out or taken by default.
    pub(super) notes: Vec<String>,
}

/// A config as it is read.
pub(super) struct Reader<'a> {
    fields: &'a Fields,
    /// The class whose defaults are taken.
    family: &'static str,
    notes: Vec<String>,
    hidden: u64,
    layers: u64,
    heads: u64,
}

/// Names of the number of layers.
const LAYERS: [&str; 5] = ["num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers"];

/// Names of the number of query heads.
const HEADS: [&str; 5] = ["num_attention_heads", "n_head", "n_heads", "num_heads", "num_query_heads"];

/// Names of the most tokens of a sequence.
const POSITIONS: [&str; 7] = [
    "max_position_embeddings",
    "n_positions",
    "seq_length",
    "max_sequence_length",
    "max_seq_len",
    "model_max_length",
    "n_ctx",
];

impl Fields {
    /// The layers of the model that the keys describe.
    ///
    /// # Errors
    /// Keys that are missing, impossible or not known.
    pub(super) fn structure(&self, name: &str) -> Result<Read, Diagnostic> {
        let family = families::class_of(name, &self.map);
        if self.map.get("is_encoder_decoder").and_then(Value::as_bool) == Some(true) {
            let why = "`is_encoder_decoder` is true: a decoder that attends to an encoder is not modelled";
            return Err(self.refused(why).with_help("export the model to ONNX"));
        }
        let mut reader = Reader { fields: self, family, notes: Vec::new(), hidden: 0, layers: 0, heads: 0 };
        reader.hidden = reader.count(&HIDDEN)?;
        reader.layers = reader.count(&LAYERS)?;
        if reader.layers > MOST_LAYERS {
            return Err(self.refused(&format!("`{}` is {}, at most {MOST_LAYERS} are read", LAYERS[0], reader.layers)));
        }
        // A model without attention has no heads.
        reader.heads = match reader.any(&HEADS)? {
            Some(heads) => heads,
            None if reader.is_recurrent_alone() => 1,
            None => reader.count(&HEADS)?,
        };
        let layers = reader.kinds()?;
        reader.check_keys(&layers)?;
        reader.stack(layers)
    }
}

impl Reader<'_> {
    fn map(&self) -> &Map<String, Value> {
        &self.fields.map
    }

    fn refused(&self, why: &str) -> Diagnostic {
        self.fields.refused(why)
    }

    fn any(&self, names: &[&str]) -> Result<Option<u64>, Diagnostic> {
        self.fields.any(names)
    }

    /// A count under one of several names, or what the class takes for it.
    fn count(&mut self, names: &[&str]) -> Result<u64, Diagnostic> {
        self.fields.from(1, self.family, names, &mut self.notes)
    }

    /// The same where zero is a count.
    fn count_or_zero(&self, names: &[&str]) -> Result<Option<u64>, Diagnostic> {
        for &name in names {
            match self.map().get(name) {
                None | Some(Value::Null) => {}
                Some(value) => {
                    let count = value.as_u64().filter(|&n| n <= 1 << 40);
                    let refused = || self.refused(&format!("`{name}` is {value}, expected a count from 0 to 2^40"));
                    return count.map(Some).ok_or_else(refused);
                }
            }
        }
        Ok(None)
    }

    /// Whether one of several flags is set; `None` where none is there.
    fn said(&self, names: &[&str]) -> Result<Option<bool>, Diagnostic> {
        for &name in names {
            match self.map().get(name) {
                None | Some(Value::Null) => {}
                Some(Value::Bool(value)) => return Ok(Some(*value)),
                Some(value) => {
                    return Err(self.refused(&format!("`{name}` is {value}, expected true or false")));
                }
            }
        }
        Ok(None)
    }

    fn flag(&self, names: &[&str], usual: bool) -> Result<bool, Diagnostic> {
        Ok(self.said(names)?.unwrap_or(usual))
    }

    fn word(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.map().get(*name).and_then(Value::as_str))
    }

    fn list(&self, name: &str) -> Option<&Vec<Value>> {
        self.map().get(name).and_then(Value::as_array)
    }

    /// The model of these layers.
    fn stack(mut self, layers: Vec<LayerKind>) -> Result<Read, Diagnostic> {
        let said = self.said(&["tie_word_embeddings", "share_embeddings"])?;
        let Some(tied) = said.or(families::tied(self.family)) else {
            let error = self.refused("`tie_word_embeddings` is missing, and the default of the class is not known");
            return Err(error.with_help("add `\"tie_word_embeddings\": true` or `false`"));
        };
        let norm = if families::has_layer_norms(self.family) { Norm::Layer } else { Norm::Rms };
        let vocabulary = match self.any(&["padded_vocab_size"])? {
            Some(rows) => rows,
            None => self.count(&["vocab_size", "embedding_size"])?,
        };
        let streams = self.any(&["hc_mult"])?.unwrap_or(1);
        if !streams.is_power_of_two() || streams > 64 {
            return Err(self.refused(&format!("`hc_mult` is {streams}, expected a power of two up to 64")));
        }
        if streams > 1 {
            self.notes.push(format!(
                "{streams} residual streams: their mixing among each other is counted as one pass over them"
            ));
        }
        let mut stack = Stack {
            hidden: self.hidden,
            vocabulary,
            tied,
            norm,
            positions: None,
            streams,
            output_format: None,
            kinds: Vec::new(),
            order: Vec::new(),
        };
        if let Err(kinds) = stack.set_layers(layers) {
            return Err(self
                .refused(&format!("its layers are of {kinds} kinds, at most {} are read", crate::model::MOST_KINDS)));
        }
        let sequence = self.any(&POSITIONS)?.or(Fields::usual_count(self.family, "trained_positions")).unwrap_or(2048);
        self.remarks(&stack, sequence)?;
        Ok(Read { stack, sequence, notes: self.notes })
    }

    /// What is said of parts that are left out, or modelled in a plainer form.
    fn remarks(&mut self, stack: &Stack, sequence: u64) -> Result<(), Diagnostic> {
        let heads = ["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "num_mtp_modules"];
        let drafting = self.count_or_zero(&heads)?.unwrap_or(0);
        if drafting > 0
            && let Some(last) = stack.order.last()
        {
            let elements = stack.layer_elements(&stack.kinds[usize::from(*last)]);
            let each = elements.divided + elements.copied + 2 * stack.hidden * stack.hidden;
            self.notes.push(format!(
                "{drafting} layers of multi-token prediction are left out, about {:.1} G parameters: they draft tokens alone",
                (drafting * each) as f64 / 1e9
            ));
        }
        let mut said = |is_there: bool, note: &str| {
            if is_there {
                self.notes.push(note.to_owned());
            }
        };
        let any = |of: &dyn Fn(&Mixer) -> bool| stack.kinds.iter().any(|kind| of(&kind.mixer));
        said(
            any(&|mixer| matches!(mixer, Mixer::Heads(a) if a.head_norm)),
            "queries and keys are normed as whole rows, not head by head: the work is the same",
        );
        said(
            any(&|mixer| matches!(mixer, Mixer::Compressed(_))),
            "sinks of attention over compressed keys are left out: a number for each head, and the column that it adds to the scores",
        );
        said(
            any(&|mixer| matches!(mixer, Mixer::Heads(a) if a.window.is_some_and(|w| w.tokens < sequence))),
            "windows of attention are blocks of as many queries and keys where all tokens are there at once; decoding reads the window",
        );
        said(
            any(&|mixer| matches!(mixer, Mixer::Compressed(_))),
            "compressed keys: tables of positions within a run count as one row, and the sums of a run that is not full are not held",
        );
        said(
            any(&|mixer| matches!(mixer, Mixer::Latent(a) if a.indexer.is_some())),
            "which tokens an indexer chooses is not modelled: as many rows of the cache are gathered",
        );
        said(
            any(&|mixer| matches!(mixer, Mixer::Delta(_) | Mixer::Lightning(_))),
            "a decoded token and a sequence of one chunk are the rule itself; of several chunks, what one takes from the state before it is work alone",
        );
        said(
            stack.experts().is_some_and(|of| of.bias),
            "biases of experts are left out: the matrices of each are far larger",
        );
        said(stack.kinds.len() > 1, "layers of one kind follow one another: the work is that of any order");
        Ok(())
    }
}
