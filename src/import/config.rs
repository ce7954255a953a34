//! `config.json` as Hugging Face writes it: the dimensions of a published model, and the weights beside it.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::options::{Imported, Options};
use crate::diagnostics::Diagnostic;
use crate::input;
use crate::model::{Activation, Architecture, Norm, Phase, Position, Recompute, WeightFile, write};

/// The largest file that is read, in bytes.
const MOST_BYTES: u64 = 16 << 20;

/// The largest header of a safetensors file that is searched.
const MOST_HEADER_BYTES: u64 = 64 << 20;

/// Families, as `model_type` names them.
const FAMILIES: [&str; 8] = ["gpt2", "llama", "mistral", "mixtral", "bert", "bloom", "falcon", "gpt_neox"];

/// Imports a config.
pub(super) fn import(path: &Path, options: &Options) -> Result<Imported, Diagnostic> {
    let fields = Fields { path: path.display().to_string(), map: object(path)? };
    let family = fields.family()?;
    let Model { architecture, sequence: trained, mut notes } = fields.model(family)?;
    let (mut batch, mut sequence, mut context) = (1, None, None);
    for (name, size) in &options.dims {
        match name.as_str() {
            "batch" => batch = *size,
            "sequence" => sequence = Some(*size),
            "context" => context = Some(*size),
            _ => {
                return Err(Diagnostic::new(format!(
                    "`--dim {name}=...`: a config.json leaves no such dimension open"
                ))
                .with_help("batch, sequence and context can be given"));
            }
        }
    }
    let sequence = sequence.unwrap_or(trained);
    let mut architecture = architecture;
    if let Position::Learned(rows) = architecture.position
        && rows < sequence
    {
        let title = format!("`--dim sequence={sequence}`: the model has {rows} positions");
        return Err(Diagnostic::new(title));
    }
    if options.phase == Phase::Training && !architecture.output {
        // A head to train on: the table of tokens again.
        (architecture.output, architecture.tied) = (true, true);
        notes.push("an output matrix over the vocabulary is added, to have a loss to train on".to_owned());
    }
    let weights = if options.masks || options.density.is_some() {
        notes.push(format!(
            "masks: {} of layer 0 of the weights beside {}, for all {} layers",
            match options.density {
                Some(density) => format!("pruned by magnitude to a density of {density}, those"),
                None => "the zeros".to_owned(),
            },
            path.file_name().unwrap_or_default().to_string_lossy(),
            architecture.layers
        ));
        weights(path, family, options, &mut notes)?
    } else {
        Vec::new()
    };
    let name = fields.map.get("_name_or_path").and_then(Value::as_str).filter(|name| !name.trim().is_empty());
    let name = name.map_or_else(|| family.to_owned(), |name| name.replace(|c: char| c.is_control(), " "));
    let text = write(&crate::model::Options {
        name,
        architecture,
        phase: options.phase,
        batch,
        sequence,
        context: context.unwrap_or(sequence),
        dtype: options.dtype().to_owned(),
        sparsity: None,
        optimizer: "adam".to_owned(),
        recompute: Recompute::None,
        dropout: false,
        weights,
        notes,
    })?;
    Ok(Imported { text, masks: None })
}

/// The dimensions of a model and the tokens of the sequences that it was trained with.
pub(super) fn architecture(path: &Path) -> Result<(Architecture, u64), Diagnostic> {
    let fields = Fields { path: path.display().to_string(), map: object(path)? };
    let Model { architecture, sequence, .. } = fields.model(fields.family()?)?;
    Ok((architecture, sequence))
}

fn bytes_of(path: &Path, most: u64) -> Result<Vec<u8>, Diagnostic> {
    let refused = |why: String| Diagnostic::new(format!("cannot read `{}`: {why}", path.display()));
    let file = input::open(path).map_err(|why| refused(format!("it {why}")))?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| refused(error.to_string()))?;
    if bytes.len() as u64 > most {
        return Err(refused(format!("it is larger than {most} bytes")));
    }
    Ok(bytes)
}

/// The object that a JSON file holds.
fn object(path: &Path) -> Result<Map<String, Value>, Diagnostic> {
    let found = serde_json::from_slice(&bytes_of(path, MOST_BYTES)?);
    let refused = |why: String| Diagnostic::new(format!("`{}` is no config.json: {why}", path.display()));
    match found {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(refused("it holds no object".to_owned())),
        Err(error) => Err(refused(error.to_string())),
    }
}

/// What a config says of a model.
struct Model {
    architecture: Architecture,
    /// Tokens it was trained with.
    sequence: u64,
    notes: Vec<String>,
}

struct Fields {
    path: String,
    map: Map<String, Value>,
}

impl Fields {
    fn refused(&self, why: &str) -> Diagnostic {
        Diagnostic::new(format!("`{}`: {why}", self.path))
    }

    fn family(&self) -> Result<&'static str, Diagnostic> {
        let Some(found) = self.map.get("model_type") else {
            let error = self.refused("`model_type` is missing");
            return Err(error.with_help(format!("a config.json names one of {}", FAMILIES.join(", "))));
        };
        let known = found.as_str().and_then(|found| FAMILIES.into_iter().find(|family| *family == found));
        known.ok_or_else(|| {
            self.refused(&format!("`model_type` is {found}, which is not known"))
                .with_help(format!("known are {}; export others to ONNX", FAMILIES.join(", ")))
        })
    }

    /// A count under one of several names.
    fn any(&self, names: &[&str]) -> Result<Option<u64>, Diagnostic> {
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

    fn count(&self, names: &[&str]) -> Result<u64, Diagnostic> {
        self.any(names)?.ok_or_else(|| self.refused(&format!("`{}` is missing", names[0])))
    }

    fn flag(&self, name: &str, default: bool) -> Result<bool, Diagnostic> {
        match self.map.get(name) {
            None | Some(Value::Null) => Ok(default),
            Some(Value::Bool(value)) => Ok(*value),
            Some(value) => Err(self.refused(&format!("`{name}` is {value}, expected true or false"))),
        }
    }

    /// The architecture of a family.
    fn model(&self, family: &str) -> Result<Model, Diagnostic> {
        let hidden = self.count(&["hidden_size", "n_embd", "n_embed"])?;
        let layers = self.count(&["num_hidden_layers", "n_layer"])?;
        let heads = self.count(&["num_attention_heads", "n_head"])?;
        let positions = self.any(&["max_position_embeddings", "n_positions", "n_ctx", "seq_length"])?;
        let wide = hidden.saturating_mul(4);
        let feed_forward = self.any(&["intermediate_size", "n_inner", "ffn_hidden_size"])?.unwrap_or(wide);
        let sequence = positions.unwrap_or(2048);
        let mut notes = Vec::new();
        let base = Architecture {
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
            tied: self.flag("tie_word_embeddings", !matches!(family, "llama" | "mistral" | "mixtral" | "gpt_neox"))?,
            causal: true,
            post_norm: false,
            parallel: false,
            embedding_norm: false,
            token_types: 0,
            output: true,
        };
        if let Some(head) = self.any(&["head_dim"])?.filter(|head| head.saturating_mul(heads) != hidden) {
            let why = format!("{heads} heads of `head_dim` {head} are not as wide as `hidden_size` {hidden}");
            return Err(self.refused(&why).with_help("such models are not known; export it to ONNX"));
        }
        let architecture = match family {
            "gpt2" => Architecture { position: Position::Learned(sequence), ..base },
            "llama" | "mistral" | "mixtral" => {
                let mut wide = feed_forward;
                if family == "mixtral" {
                    let experts = self.any(&["num_local_experts"])?.unwrap_or(8);
                    let each = self.any(&["num_experts_per_tok"])?.unwrap_or(2);
                    wide = feed_forward.saturating_mul(each);
                    notes.push(format!(
                        "{each} of {experts} experts of every layer are modelled, those that a token meets, as one \
                         feed-forward block {wide} wide; the others' weights, and the routing, are not"
                    ));
                }
                Architecture {
                    kv_heads: self.any(&["num_key_value_heads"])?.unwrap_or(heads),
                    feed_forward: wide,
                    norm: Norm::Rms,
                    activation: Activation::GatedSilu,
                    bias: self.flag("attention_bias", false)? && self.flag("mlp_bias", false)?,
                    ..base
                }
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
        if self.any(&["sliding_window"])?.is_some_and(|window| window < sequence) {
            notes.push("the sliding window of attention is not modelled: every token meets all before it".to_owned());
        }
        Ok(Model { architecture, sequence, notes })
    }
}

/// Name in the workload, end of the key, and whether N is stored as rows.
type Key = (&'static str, &'static str, bool);

/// Where the weights of layer 0 are stored: what keys may begin with, and how each goes on.
fn keys(family: &str) -> (&'static [&'static str], &'static [Key]) {
    match family {
        "llama" | "mistral" => (
            &["model.layers.0."],
            &[
                ("w_query", "self_attn.q_proj.weight", true),
                ("w_key", "self_attn.k_proj.weight", true),
                ("w_value", "self_attn.v_proj.weight", true),
                ("w_project", "self_attn.o_proj.weight", true),
                ("w_gate", "mlp.gate_proj.weight", true),
                ("w_up", "mlp.up_proj.weight", true),
                ("w_down", "mlp.down_proj.weight", true),
            ],
        ),
        "mixtral" => (
            &["model.layers.0."],
            &[
                ("w_query", "self_attn.q_proj.weight", true),
                ("w_key", "self_attn.k_proj.weight", true),
                ("w_value", "self_attn.v_proj.weight", true),
                ("w_project", "self_attn.o_proj.weight", true),
            ],
        ),
        "bert" => (
            &["bert.encoder.layer.0.", "encoder.layer.0."],
            &[
                ("w_query", "attention.self.query.weight", true),
                ("w_key", "attention.self.key.weight", true),
                ("w_value", "attention.self.value.weight", true),
                ("w_project", "attention.output.dense.weight", true),
                ("w_up", "intermediate.dense.weight", true),
                ("w_down", "output.dense.weight", true),
            ],
        ),
        "gpt2" => (
            &["transformer.h.0.", "h.0."],
            &[
                ("w_project", "attn.c_proj.weight", false),
                ("w_up", "mlp.c_fc.weight", false),
                ("w_down", "mlp.c_proj.weight", false),
            ],
        ),
        "gpt_neox" => (
            &["gpt_neox.layers.0.", "layers.0."],
            &[
                ("w_project", "attention.dense.weight", true),
                ("w_up", "mlp.dense_h_to_4h.weight", true),
                ("w_down", "mlp.dense_4h_to_h.weight", true),
            ],
        ),
        _ => (
            &["transformer.h.0.", "h.0."],
            &[
                ("w_project", "self_attention.dense.weight", true),
                ("w_up", "mlp.dense_h_to_4h.weight", true),
                ("w_down", "mlp.dense_4h_to_h.weight", true),
            ],
        ),
    }
}

/// The weights of layer 0 in the safetensors files beside a config.
fn weights(
    config: &Path,
    family: &str,
    options: &Options,
    notes: &mut Vec<String>,
) -> Result<Vec<(String, WeightFile)>, Diagnostic> {
    let (prefixes, keys) = keys(family);
    let single = config.with_file_name("model.safetensors");
    let index = config.with_file_name("model.safetensors.index.json");
    let shards = if input::open(&single).is_err() { Some(object(&index)) } else { None };
    let shards = match shards {
        None => None,
        Some(Ok(map)) => match map.get("weight_map") {
            Some(Value::Object(map)) => Some(map.clone()),
            _ => return Err(Diagnostic::new(format!("`{}` has no `weight_map`", index.display()))),
        },
        Some(Err(_)) => {
            let title = format!("masks are asked for, and `{}` is not there", single.display());
            return Err(Diagnostic::new(title).with_help("put the safetensors files beside the config.json"));
        }
    };
    let known: Vec<String> = match &shards {
        Some(map) => map.keys().cloned().collect(),
        None => header(&single)?.keys().cloned().collect(),
    };
    let mut found = Vec::new();
    for &(name, key, transpose) in keys {
        let Some(key) = prefixes.iter().map(|prefix| format!("{prefix}{key}")).find(|key| known.contains(key)) else {
            let title = format!("`{}` has no {}{key}", single.display(), prefixes[0]);
            return Err(Diagnostic::new(title).with_help("the weights belong to another model"));
        };
        let file = match &shards {
            None => single.clone(),
            Some(map) => {
                let name = map.get(&key).and_then(Value::as_str).unwrap_or_default();
                if name.is_empty() || Path::new(name).file_name().is_none_or(|plain| plain != name) {
                    return Err(Diagnostic::new(format!("`{}`: {key:?} is in no file", index.display())));
                }
                config.with_file_name(name)
            }
        };
        let file = match &options.beside {
            Some(directory) => relative(&file, directory),
            None => file.file_name().map_or(file.clone(), PathBuf::from),
        };
        let (density, block) = (options.density, options.block);
        found.push((name.to_owned(), WeightFile { file: file.display().to_string(), key, transpose, density, block }));
    }
    if matches!(family, "gpt2" | "bloom" | "falcon" | "gpt_neox") {
        notes.push("queries, keys and values are stored in one weight and stay dense".to_owned());
    }
    if family == "mixtral" {
        notes.push("the experts' weights stay dense".to_owned());
    }
    Ok(found)
}

/// A path as seen from a directory: the name alone where they are the same, else an absolute path.
fn relative(file: &Path, directory: &Path) -> PathBuf {
    let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (file, directory) = (whole(file), whole(directory));
    if file.parent() == Some(directory.as_path()) {
        return file.file_name().map_or(file.clone(), PathBuf::from);
    }
    file
}

/// The header of a safetensors file: tensors by name.
fn header(path: &Path) -> Result<Map<String, Value>, Diagnostic> {
    let refused = |why: String| Diagnostic::new(format!("`{}` is no safetensors file: {why}", path.display()));
    let mut file = input::open(path).map_err(|why| refused(format!("it {why}")))?;
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(|error| refused(error.to_string()))?;
    let length = u64::from_le_bytes(length);
    if length > MOST_HEADER_BYTES {
        return Err(refused(format!("its header is {length} bytes, at most {MOST_HEADER_BYTES} are read")));
    }
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes).map_err(|error| refused(error.to_string()))?;
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(refused("its header is no object".to_owned())),
        Err(error) => Err(refused(error.to_string())),
    }
}
