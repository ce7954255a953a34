//! The workload file of a model by its name and dimensions.

use std::path::Path;

use crate::diagnostics::Diagnostic;
use crate::import;
use crate::model::{
    Activation, ActivationFormat, ExpertLoad, Options, Phase, Position, Recompute, Sparsity, Storage, describe, preset,
};

/// A model, what is changed of it, and what is done with it.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// A preset, or the family `gpt` or `llama`.
    pub name: String,
    /// What is done.
    pub phase: Phase,
    /// Width of the residual stream.
    pub hidden: Option<u64>,
    /// Layers.
    pub layers: Option<u64>,
    /// Query heads.
    pub heads: Option<u64>,
    /// Key and value heads.
    pub kv_heads: Option<u64>,
    /// Width of the feed-forward block.
    pub ffn: Option<u64>,
    /// Rows of the token table.
    pub vocabulary: Option<u64>,
    /// Sequences.
    pub batch: u64,
    /// Tokens of a sequence; the model's if not given.
    pub sequence: Option<u64>,
    /// Tokens in the cache when decoding; the sequence if not given.
    pub context: Option<u64>,
    /// Data type.
    pub dtype: String,
    /// Share of the layers' weights that is pruned.
    pub sparsity: Option<f64>,
    /// Side of the blocks that are pruned.
    pub block: u64,
    /// `adam` or `sgd`.
    pub optimizer: String,
    /// What the backward phase computes again.
    pub recompute: Recompute,
    /// Elements are dropped behind attention and feed-forward block.
    pub dropout: bool,
    /// How matrices and caches are stored.
    pub storage: Storage,
    /// The data type of the layers' products, where not `dtype`.
    pub activations: Option<ActivationFormat>,
    /// Rows of a chunk of Mamba-2; the model's if not given.
    pub chunk: Option<u64>,
}

/// The workload file of a model; it is checked as `rdusim check` would.
///
/// # Errors
/// An unknown name, a family without dimensions, and dimensions that make no model.
pub fn model_text(request: &ModelRequest) -> Result<String, Diagnostic> {
    let path = Path::new(&request.name);
    let is_file = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json"));
    if is_file || import::published(path).is_some() {
        return of_config(path, request);
    }
    let (mut architecture, trained_with) = preset(&request.name)?;
    if request.name == "gpt" || request.name == "llama" {
        let given = [("--hidden", request.hidden), ("--layers", request.layers), ("--heads", request.heads)];
        if let Some((flag, _)) = given.into_iter().find(|(_, value)| value.is_none()) {
            let title = format!("`{}` is a family of models: `{flag}` is missing", request.name);
            return Err(Diagnostic::new(title).with_help("give `--hidden`, `--layers` and `--heads`"));
        }
    }
    let sequence = request.sequence.unwrap_or(trained_with);
    let a = &mut architecture;
    if let Some(hidden) = request.hidden {
        let gated = a.activation == Activation::GatedSilu;
        // A gated block of the same size has two thirds of the width, in whole 256s.
        a.feed_forward = if gated { (8 * hidden).div_ceil(3).next_multiple_of(256) } else { hidden.saturating_mul(4) };
        a.hidden = hidden;
    }
    if let Some(heads) = request.heads {
        (a.heads, a.kv_heads) = (heads, heads);
    }
    a.layers = request.layers.unwrap_or(a.layers);
    if let Some(mamba) = &mut a.extras.mamba {
        // Twice the width of the model, in as many heads as that makes.
        let count = |flag: &str, value: u64| {
            u32::try_from(value).map_err(|_| Diagnostic::new(format!("`{flag}` is {value}, too many for Mamba-2")))
        };
        if let Some(hidden) = request.hidden {
            mamba.heads = count("--hidden", (hidden.saturating_mul(2) / u64::from(mamba.head)).max(1))?;
        }
        mamba.layers = count("--layers", a.layers)?;
        if let Some(chunk) = request.chunk {
            mamba.span = count("--chunk", chunk)?;
        }
    } else if request.chunk.is_some() {
        let title = format!("`--chunk`: `{}` has no Mamba-2 layers", request.name);
        return Err(Diagnostic::new(title).with_help("leave it out"));
    }
    a.kv_heads = request.kv_heads.unwrap_or(a.kv_heads);
    a.feed_forward = request.ffn.unwrap_or(a.feed_forward);
    a.vocabulary = request.vocabulary.unwrap_or(a.vocabulary);
    if let Position::Learned(rows) = a.position {
        a.position = Position::Learned(rows.max(sequence));
    }
    let mut notes = Vec::new();
    if request.phase == Phase::Training && !a.output {
        // A head to train on: the table of tokens again.
        (a.output, a.tied) = (true, true);
        notes.push(
            "masked-language-model head: an output matrix over the vocabulary, which is the table of tokens, with a loss for every \
             token; the matrix and the norm before it are left out"
                .to_owned(),
        );
    }
    let graph = describe(&Options {
        name: request.name.clone(),
        architecture,
        stack: None,
        phase: request.phase,
        batch: request.batch,
        sequence,
        context: request.context.unwrap_or(sequence),
        dtype: request.dtype.clone(),
        sparsity: request.sparsity.map(|share| Sparsity { density: 1.0 - share, block: request.block }),
        optimizer: request.optimizer.clone(),
        recompute: request.recompute,
        dropout: request.dropout,
        storage: request.storage.clone(),
        activations: request.activations.clone(),
        expert_load: ExpertLoad::default(),
        weights: Vec::new(),
        notes,
    })?;
    // Whatever the dimensions, `rdusim check` takes the file.
    graph.workload(&format!("the workload of {}", request.name), 0)?;
    Ok(graph.into_text())
}

/// The workload file of a config.json, or of a published model that is read as one.
fn of_config(path: &Path, request: &ModelRequest) -> Result<String, Diagnostic> {
    let changed = [
        ("--hidden", request.hidden.is_some()),
        ("--layers", request.layers.is_some()),
        ("--heads", request.heads.is_some()),
        ("--kv-heads", request.kv_heads.is_some()),
        ("--ffn", request.ffn.is_some()),
        ("--vocabulary", request.vocabulary.is_some()),
        ("--chunk", request.chunk.is_some()),
        ("--sparsity", request.sparsity.is_some()),
        ("--dropout", request.dropout),
        ("--weight-storage", request.storage.weights.is_some()),
        ("--cache-storage", request.storage.cache.is_some()),
        ("--activations", request.activations.is_some()),
    ];
    if let Some((flag, _)) = changed.into_iter().find(|(_, is_given)| *is_given) {
        let title = format!("`{flag}`: a config.json says the dimensions and formats of its model");
        return Err(Diagnostic::new(title).with_help("leave it out, or change the file"));
    }
    let mut dims = vec![("batch".to_owned(), request.batch)];
    dims.extend(request.sequence.map(|sequence| ("sequence".to_owned(), sequence)));
    dims.extend(request.context.map(|context| ("context".to_owned(), context)));
    let options =
        import::Options { dims, dtype: request.dtype.clone(), phase: request.phase, ..import::Options::default() };
    let graph = import::import(path, &options)?.graph;
    graph.workload(&format!("the workload of {}", request.name), 0)?;
    Ok(graph.into_text())
}
