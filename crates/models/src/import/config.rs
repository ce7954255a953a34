//! `config.json` as Hugging Face writes it: the dimensions of a published model, and the weights beside it.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::checkpoint::Checkpoint;
use super::families::Fields;
use super::json::Unique;
use super::logged;
use super::options::{Imported, Options};
use super::published::published;
use super::quantization::Quantisation;
use super::subject::{Purpose, Subject};
use crate::model::{ExpertLoad, Phase, Position, Recompute, Storage, WeightFile, describe};
use rdusim_base::diagnostics::{Diagnostic, steers};
use rdusim_base::input;

/// The largest file that is read, in bytes.
const MOST_BYTES: u64 = 16 << 20;

/// The largest header of a safetensors file that is searched.
const MOST_HEADER_BYTES: u64 = 64 << 20;

/// Tokens of a sequence unless others are asked for, or fewer if the model takes no more.
const USUAL_SEQUENCE: u64 = 2048;

/// Imports a config.
pub(super) fn import(path: &Path, options: &Options) -> Result<Imported, Diagnostic> {
    let expert_load = options.expert_load.clone();
    let fields = Fields { path: path.display().to_string(), map: config(path)?, expert_load, keeps_experts: false };
    let mut notes = Vec::new();
    let fields = fields.of_text(&mut notes);
    let has_masks = options.masks || options.density.is_some();
    let why_plain = match options.phase {
        Phase::Training => Some("the matrices are trained"),
        _ if has_masks => Some("the matrices are pruned"),
        _ => None,
    };
    let purpose = Purpose { phase: options.phase, dtype: options.dtype(), why_plain };
    let subject = fields.subject(&purpose, &mut notes)?;
    logged::subject(&subject);
    let Subject { family, architecture, stack, sequence: trained, quantisation, .. } = subject;
    if has_masks && stack.is_some() {
        let title = "masks: the layers of this model are of several kinds, whose weights are not looked for";
        return Err(Diagnostic::new(title).with_help("leave `--masks` and `--density` out"));
    }
    let Sizes { batch, sequence, context } = sizes(options)?;
    let usual = trained.min(USUAL_SEQUENCE);
    // Of one token at a time, only the cache has a length.
    let is_given = if options.phase == Phase::Decode { context.or(sequence).is_some() } else { sequence.is_some() };
    if !is_given && usual < trained {
        notes.push(format!(
            "{usual} tokens a sequence, as none were asked for: the model takes up to {trained} (`--seq`)"
        ));
    }
    let sequence = sequence.unwrap_or(usual);
    let mut architecture = architecture;
    if let Position::Learned(rows) = architecture.position
        && rows < sequence
    {
        let title = format!("a sequence of {sequence} tokens: the model has {rows} positions");
        return Err(Diagnostic::new(title).with_help(format!("give `--seq` of at most {rows}")));
    }
    if options.phase == Phase::Training && !architecture.output {
        // A head to train on: the table of tokens again.
        (architecture.output, architecture.tied) = (true, true);
        notes.push("an output matrix over the vocabulary is added, to have a loss to train on".to_owned());
    }
    let weights = if has_masks {
        notes.push(format!(
            "masks: {} of layer 0 of the weights beside {}, for all {} layers",
            match options.density {
                Some(density) => format!("pruned by magnitude to a density of {density}, those"),
                None => "the zeros".to_owned(),
            },
            path.file_name().unwrap_or_default().to_string_lossy(),
            architecture.layers
        ));
        weights(path, &family, options, &mut notes)?
    } else {
        Vec::new()
    };
    let Quantisation { weights: stored, others, cache, activations } = quantisation;
    let storage = Storage { weights: stored, others, cache: cache.filter(|_| options.phase == Phase::Decode) };
    let name = name_of(path, &fields);
    let graph = describe(&crate::model::Options {
        name,
        architecture,
        stack: stack.map(Arc::new),
        phase: options.phase,
        batch,
        sequence,
        context: context.unwrap_or(sequence),
        dtype: options.dtype().to_owned(),
        sparsity: None,
        optimizer: "adam".to_owned(),
        recompute: Recompute::None,
        dropout: false,
        storage,
        activations,
        expert_load: fields.expert_load.clone(),
        weights,
        notes,
    })?;
    Ok(Imported { graph, masks: None })
}

/// Sizes that a config leaves open.
struct Sizes {
    batch: u64,
    sequence: Option<u64>,
    context: Option<u64>,
}

/// The sizes that were asked for.
fn sizes(options: &Options) -> Result<Sizes, Diagnostic> {
    let mut sizes = Sizes { batch: 1, sequence: None, context: None };
    for (name, size) in &options.dims {
        match name.as_str() {
            "batch" => sizes.batch = *size,
            "sequence" => sizes.sequence = Some(*size),
            "context" => sizes.context = Some(*size),
            _ => {
                let title = format!("`--dim {name}=...`: a config.json leaves no such dimension open");
                return Err(Diagnostic::new(title).with_help("batch, sequence and context can be given"));
            }
        }
    }
    Ok(sizes)
}

/// What people call the model: the name that the config gives, else the file's, or of a `config.json` the folder's.
fn name_of(path: &Path, fields: &Fields) -> String {
    if let Some(model) = published(path) {
        return model.name.clone();
    }
    let given = fields.map.get("_name_or_path").and_then(Value::as_str).filter(|name| !name.trim().is_empty());
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).filter(|stem| stem != "config");
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = whole.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let name = given.map(str::to_owned).or(stem).or(folder).unwrap_or_else(|| "model".to_owned());
    name.replace(steers, " ")
}

/// What a config says of a model, for many chips.
pub(super) fn checkpoint(path: &Path, keeps_experts: bool, is_trained: bool) -> Result<Checkpoint, Diagnostic> {
    let expert_load = ExpertLoad::default();
    let fields = Fields { path: path.display().to_string(), map: config(path)?, expert_load, keeps_experts };
    let mut notes = Vec::new();
    let fields = fields.of_text(&mut notes);
    let why_plain = is_trained.then_some("the matrices are trained");
    // Experts are kept in training too, for those who run them.
    let phase = if keeps_experts || !is_trained { Phase::Forward } else { Phase::Training };
    let purpose = Purpose { phase, dtype: "bf16", why_plain };
    let subject = fields.subject(&purpose, &mut notes)?;
    logged::subject(&subject);
    let Subject { architecture, layers, stack, sequence, quantisation, .. } = subject;
    let Quantisation { weights, others, cache, activations } = quantisation;
    Ok(Checkpoint {
        name: name_of(path, &fields),
        architecture,
        is_whole: stack.is_none(),
        stack: layers.map(Arc::new),
        sequence: sequence.min(USUAL_SEQUENCE),
        positions: sequence,
        storage: Storage { weights, others, cache },
        activations,
        notes,
    })
}

fn bytes_of(path: &Path, most: u64) -> Result<Vec<u8>, Diagnostic> {
    input::read_bytes(path, most, |_| Ok(()))
        .map_err(|why| Diagnostic::new(format!("cannot read `{}`: it {why}", path.display())))
}

/// A config, with what a `hf_quant_config.json` beside it says of formats, where it says nothing itself.
fn config(path: &Path) -> Result<Map<String, Value>, Diagnostic> {
    if let Some(model) = published(path) {
        return Ok(model.config.clone());
    }
    let mut map = object(path)?;
    let beside = path.with_file_name("hf_quant_config.json");
    if map.get("quantization_config").is_some_and(|config| !config.is_null()) || !beside.is_file() {
        return Ok(map);
    }
    let mut of = object(&beside)?;
    if let Some(Value::Object(mut inner)) = of.remove("quantization") {
        inner.insert("quant_method".to_owned(), Value::from("modelopt"));
        map.insert("quantization_config".to_owned(), Value::Object(inner));
    }
    Ok(map)
}

/// JSON as Python writes it: `NaN`, `Infinity` and `-Infinity` outside of texts become `null`.
fn without_infinities(bytes: &[u8]) -> Vec<u8> {
    let words: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
    let (mut found, mut at, mut is_text) = (Vec::with_capacity(bytes.len()), 0, false);
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        if let Some(word) = words.iter().find(|word| !is_text && rest.starts_with(word)) {
            found.extend_from_slice(b"null");
            at += word.len();
            continue;
        }
        if is_text && rest[0] == b'\\' {
            found.extend(rest.iter().take(2));
            at += 2;
            continue;
        }
        is_text ^= rest[0] == b'"';
        found.push(rest[0]);
        at += 1;
    }
    found
}

/// The object that a JSON file holds.
fn object(path: &Path) -> Result<Map<String, Value>, Diagnostic> {
    let found = serde_json::from_slice::<Unique>(&without_infinities(&bytes_of(path, MOST_BYTES)?));
    let refused = |why: String| Diagnostic::new(format!("`{}` is no config.json: {why}", path.display()));
    match found.map(|found| found.0) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(refused("it holds no object".to_owned())),
        Err(error) => Err(refused(error.to_string())),
    }
}

/// Name in the workload, end of the key, and whether N is stored as rows.
type Key = (&'static str, &'static str, bool);

/// Where the weights of layer 0 are stored: what keys may begin with, and how each goes on.
fn keys(family: &str) -> (&'static [&'static str], &'static [Key]) {
    match family {
        "llama" | "mistral" | "qwen2" | "qwen3" | "gemma2" => (
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
