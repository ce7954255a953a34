//! What the workload file of a model is to be of: the model, its phase, sizes, data types, and what cannot be written.

use std::sync::Arc;

use super::experts::ExpertLoad;
use super::mamba::Mamba;
use super::preset::Architecture;
use super::stack::Stack;
use super::storage::{ActivationFormat, Storage};
use rdusim_base::diagnostics::Diagnostic;

/// What is done with a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// All tokens of a batch, from embedding to output.
    #[default]
    Forward,
    /// Forward, backward and the optimiser's step.
    Training,
    /// As forward, keys and values kept.
    Prefill,
    /// One token a sequence, with the keys and values of a context.
    Decode,
}

/// What the backward phase of a training step computes again instead of reading it from memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recompute {
    /// Nothing: every activation that a gradient needs is saved.
    #[default]
    None,
    /// Scores and probabilities of attention, up to their product with the values (Korthikanti et al., 2022).
    Selective,
    /// All operators of a layer.
    Full,
}

impl Recompute {
    /// Names on the command line.
    pub const NAMES: [(&'static str, Self); 3] =
        [("none", Self::None), ("selective", Self::Selective), ("full", Self::Full)];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// The value of `training.activations`.
    pub fn activations(self) -> &'static str {
        match self {
            Self::None => "saved",
            Self::Selective => "selective",
            Self::Full => "recomputed",
        }
    }
}

/// Sparsity of every matrix of the layers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sparsity {
    /// Share of the blocks that is kept.
    pub density: f64,
    /// Rows and columns of a block.
    pub block: u64,
}

/// A model and what is done with it.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the workload.
    pub name: String,
    /// The model.
    pub architecture: Architecture,
    /// The model layer by layer, where the architecture does not say all of it.
    pub stack: Option<Arc<Stack>>,
    /// What is done.
    pub phase: Phase,
    /// Sequences.
    pub batch: u64,
    /// Tokens of a sequence (decoding: one).
    pub sequence: u64,
    /// Decoding: tokens whose keys and values a token meets, itself included.
    pub context: u64,
    /// Data type of everything but the optimiser's state.
    pub dtype: String,
    /// Sparsity of the layers' matrices.
    pub sparsity: Option<Sparsity>,
    /// `adam` or `sgd`.
    pub optimizer: String,
    /// What the backward phase computes again.
    pub recompute: Recompute,
    /// Elements are dropped behind attention and feed-forward block.
    pub dropout: bool,
    /// How matrices and caches are stored.
    pub storage: Storage,
    /// The data type of the layers' products, where not that of everything.
    pub activations: Option<ActivationFormat>,
    /// How tokens fall on experts.
    pub expert_load: ExpertLoad,
    /// Files that matrices of the layers take their masks from, by the matrix's name.
    pub weights: Vec<(String, WeightFile)>,
    /// What every result is to say.
    pub notes: Vec<String>,
}

impl Options {
    /// A dense model in bf16, without dropout and with Adam: `batch` sequences of `tokens` tokens; decoding, one token of each,
    /// which meets so many.
    pub fn new(name: &str, architecture: Architecture, phase: Phase, batch: u64, tokens: u64) -> Self {
        Self {
            name: name.to_owned(),
            architecture,
            stack: None,
            phase,
            batch,
            sequence: if phase == Phase::Decode { 1 } else { tokens },
            context: tokens,
            dtype: "bf16".to_owned(),
            sparsity: None,
            optimizer: "adam".to_owned(),
            recompute: Recompute::None,
            dropout: false,
            storage: Storage::default(),
            activations: None,
            expert_load: ExpertLoad::default(),
            weights: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// A stored weight whose values give a mask.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightFile {
    /// Path from the workload's directory.
    pub file: String,
    /// The tensor in it.
    pub key: String,
    /// It is stored with N as rows.
    pub transpose: bool,
    /// Share of the blocks that is kept, the largest; without it what is not zero.
    pub density: Option<f64>,
    /// Rows and columns of a block.
    pub block: Option<(u64, u64)>,
}

/// Refuses what no file can be written for.
pub(super) fn checked(options: &Options) -> Result<(), Diagnostic> {
    let a = &options.architecture;
    let counts = [
        ("--hidden", a.hidden),
        ("--layers", a.layers),
        ("--heads", a.heads),
        ("--kv-heads", a.kv_heads),
        ("--ffn", a.feed_forward),
        ("--vocabulary", a.vocabulary),
        ("--batch", options.batch),
        ("--sequence", options.sequence),
        ("--context", options.context),
    ];
    if let Some((flag, value)) = counts.into_iter().find(|&(_, value)| value == 0 || value > 1 << 40) {
        return Err(Diagnostic::new(format!("`{flag}` is {value}, expected a count from 1 to 2^40")));
    }
    if let Some(block) = options.sparsity.map(|sparsity| sparsity.block)
        && !(1..=1 << 40).contains(&block)
    {
        return Err(Diagnostic::new(format!("`--block` is {block}, expected a count from 1 to 2^40")));
    }
    check_formats(options)?;
    if a.extras.head_width.is_none() && !a.hidden.is_multiple_of(a.heads) {
        return Err(Diagnostic::new(format!("{} heads do not divide the width {}", a.heads, a.hidden))
            .with_help("give `--heads` that divides `--hidden`"));
    }
    if !a.heads.is_multiple_of(a.kv_heads) {
        return Err(Diagnostic::new(format!("{} key and value heads do not divide the {} heads", a.kv_heads, a.heads))
            .with_help("give `--kv-heads` that divides `--heads`"));
    }
    let (is_training, is_decoding) = (options.phase == Phase::Training, options.phase == Phase::Decode);
    let refused = |mamba: Mamba| mamba.refusal(is_training, is_decoding, options.sequence);
    if let Some((title, help)) = a.extras.mamba.and_then(refused) {
        return Err(Diagnostic::new(title).with_help(help));
    }
    if options.phase == Phase::Training && a.extras.experts.is_some() {
        return Err(Diagnostic::new("a model with experts cannot be trained: gathering tokens has no gradient here"));
    }
    if let Some(experts) = a.extras.experts.filter(|experts| experts.every > 1) {
        let title =
            format!("one of {} layers has experts: layers that take turns are not modelled on one chip", experts.every);
        return Err(Diagnostic::new(title).with_help("`rdusim pod` trains them (docs/pods.md)"));
    }
    if a.extras.dense_layers >= a.layers {
        let title = format!("{} of {} layers have no experts: expected fewer", a.extras.dense_layers, a.layers);
        return Err(Diagnostic::new(title));
    }
    if options.phase == Phase::Training && !a.output {
        return Err(Diagnostic::new("a model without an output matrix has no loss to train on"));
    }
    if let Some(sparsity) = options.sparsity
        && !(sparsity.density > 0.0 && sparsity.density <= 1.0)
    {
        return Err(Diagnostic::new(format!(
            "`--sparsity` leaves a density of {}, expected the share of blocks that is kept: above 0, at most 1",
            sparsity.density
        )));
    }
    Ok(())
}

/// Refuses formats and data types of 8 bits that nothing is stored or multiplied in.
fn check_formats(options: &Options) -> Result<(), Diagnostic> {
    let is_sparse = options.sparsity.is_some() || !options.weights.is_empty();
    if options.storage != Storage::default() && (options.phase == Phase::Training || is_sparse) {
        let title = "`--weight-storage` and `--cache-storage`: only dense matrices that are not trained are stored in other formats";
        return Err(Diagnostic::new(title).with_help("leave them out, or `--phase training` and `--sparsity`"));
    }
    if options.storage.cache.is_some() && options.phase != Phase::Decode {
        let title = "`--cache-storage`: only `--phase decode` reads a cache";
        return Err(Diagnostic::new(title).with_help("leave it out, or say `--phase decode`"));
    }
    let product = options.activations.as_ref().map_or(&options.dtype, |narrow| &narrow.dtype);
    let of_weights = options.storage.of_matrices().map(|format| ("--weight-storage", format, product));
    let of_cache = options.storage.cache.iter().map(|format| ("--cache-storage", format, &options.dtype));
    for (flag, format, dtype) in of_weights.chain(of_cache) {
        if !format.fits(dtype) {
            let title =
                format!("`{flag}`: {} is not how second operands of products of {dtype} are stored", format.format);
            return Err(Diagnostic::new(title).with_help("expected int4, mxfp4, nvfp4 or that type, without groups"));
        }
    }
    if options.activations.is_some() && options.phase == Phase::Training {
        let title = "`--activations`: products that are trained are of the data type of the model";
        return Err(Diagnostic::new(title).with_help("leave it out, or `--phase training`"));
    }
    Ok(())
}
