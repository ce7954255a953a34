//! Operator graphs: read from `workloads/*.toml`, shapes inferred and checked.
//!
//! `docs/workload-format.md` describes the file.

mod builder;
mod carried;
mod causal;
mod declare;
mod described;
mod divide;
mod dynamic;
mod epilogue;
mod form;
mod graph;
mod head_swap;
mod held;
mod image;
mod infer;
mod kernels;
mod kind;
mod limits;
mod link;
mod masks;
mod packed;
mod page;
mod pruned;
mod pruning;
mod quantised;
mod recurrent;
mod resolve;
mod sections;
mod sparsity;
mod spec;
mod storage;
#[cfg(test)]
mod tests;
mod train;
mod uses;

use std::ops::Range;
use std::path::Path;

pub use builder::{Builder, Graph};
pub use carried::Chains;
pub use described::{Kept, OperatorFields, OperatorOptions, Sparse, StoredIn, TensorFields, Training};
pub use epilogue::{epilogue_of, kernels_with_epilogues, runs_with};
pub use form::{CausalAxis, GemmForm, GemmOptions, ProductShape};
pub use graph::{Operator, OperatorId, PinnedSection, Tensor, TensorId, TensorRole, View, Window, Workload};
pub use head_swap::HeadSwap;
pub use image::ImageOptions;
pub use kernels::{Moved, kernel_of, least_launches, least_moved_bytes, most_elements, moved, stored_macs_by_type};
pub use kind::{OperatorKind, Phase};
pub use packed::{EXPANSION_STEPS, Packed, StoredAs};
pub use pruned::PrunedActivation;
pub use sections::pin;
pub use spec::Extent;
pub use uses::Uses;

use masks::MaskMaker;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::index::IndexVec;
use rdusim_base::input::{self, Override, Root, Source};
use spec::WorkloadSpec;

/// What a training step that does not fit may do, in every place where it is asked for.
pub const COMPUTE_AGAIN: &str = "compute activations again where they are kept (`--recompute` of `rdusim model`, `recompute=full` of \
                                 `--parallel`)";

/// Reads a workload file, with the `workload.` overrides among `sets` applied. `seed` goes into every random mask.
pub fn load(path: &Path, sets: &[Override], seed: u64) -> Result<Workload, Diagnostic> {
    resolve(&Source::open(path, Root::Workload, sets)?, seed)
}

/// Reads a workload from a text; `name` stands for the file in errors.
pub fn parse(name: &str, text: &str, sets: &[Override], seed: u64) -> Result<Workload, Diagnostic> {
    resolve(&Source::new(name, text, Root::Workload, sets)?, seed)
}

/// A workload file that is read many times with different overrides.
#[derive(Debug)]
pub struct Template(input::Template);

impl Template {
    /// Reads a workload file; the `workload.` overrides among `base` stand in every workload.
    pub fn open(path: &Path, base: &[Override]) -> Result<Self, Diagnostic> {
        input::Template::open(path, Root::Workload, base).map(Self)
    }

    /// Takes a text; `name` stands for the file in errors.
    pub fn of_text(name: &str, text: &str, base: &[Override]) -> Result<Self, Diagnostic> {
        input::Template::of_source(Source::new(name, text, Root::Workload, base)?, Root::Workload, base).map(Self)
    }

    /// The workload with the `workload.` overrides among `sets` applied too: what [`load`] gives for the base's and
    /// these.
    pub fn workload(&self, sets: &[&Override], seed: u64) -> Result<Workload, Diagnostic> {
        let quick = self.0.variant(sets).and_then(|variant| checked(self.0.source(), &variant.read()?, seed).ok());
        quick.map_or_else(|| resolve(&self.0.patched_source(sets)?, seed), Ok)
    }

    /// A hash of what the file with these overrides says. `None` if the overrides do not apply to the file.
    pub fn fingerprint(&self, sets: &[&Override]) -> Option<u128> {
        self.0.fingerprint(sets, &|_| false)
    }
}

fn resolve(source: &Source, seed: u64) -> Result<Workload, Diagnostic> {
    built(source, &source.read()?, seed)
}

/// The workload that a file with this text says, which was read or built.
fn built(source: &Source, spec: &WorkloadSpec, seed: u64) -> Result<Workload, Diagnostic> {
    let mut workload = checked(source, spec, seed)?;
    workload.text = source.text().into();
    Ok(workload)
}

fn checked(source: &Source, spec: &WorkloadSpec, seed: u64) -> Result<Workload, Diagnostic> {
    source.count("schema", &spec.schema, 1..=1)?;
    let name = source.name("name", &spec.name)?;
    let dims = declare::dims(source, spec)?;
    let notes = spec.notes.iter().map(|note| source.name("notes", note)).collect::<Result<_, _>>()?;
    let mut drafts = declare::tensors(source, spec, &dims)?;
    let blocks = link::blocks(source, spec, &dims)?;
    let linked = link::link(source, spec, &dims, &blocks, &mut drafts)?;
    let order = link::order(source, &linked, &drafts)?;
    let roles = infer::roles(source, &linked, &drafts)?;
    let shapes = infer::shapes(source, &linked, &order, &drafts)?;
    quantised::check(source, &linked, &drafts)?;
    infer::totals(source, &linked, &drafts, &shapes)?;

    if let Some(spec) = &spec.sparsity {
        let distribution = sparsity::distribution(source, spec)?;
        let takes_masks = |operator: &link::Linked<'_>| match &operator.image {
            Some(image) => operator.kind == OperatorKind::Conv && image.groups == 1,
            None => operator.kind == OperatorKind::Gemm,
        };
        let takes_masks: Vec<bool> = linked.iter().map(takes_masks).collect();
        let mut second_inputs = vec![true; drafts.len()];
        linked.iter().filter_map(|operator| operator.inputs.first()).for_each(|&first| second_inputs[first] = false);
        masks::distribute(source, &distribution, &mut drafts, &shapes, &takes_masks, &second_inputs)?;
    }
    let mut masks = MaskMaker::new(source, seed);
    let mut tensors = IndexVec::new();
    for ((draft, &role), &(rows, columns)) in drafts.values().zip(&roles).zip(&shapes) {
        let mask = match &draft.sparsity {
            Some(sparsity) => Some(masks.mask(&draft.name, (rows, columns), draft.dtype.bytes(), sparsity)?),
            None => None,
        };
        tensors.push(Tensor {
            name: draft.name.clone(),
            rows,
            columns,
            dtype: draft.dtype,
            role,
            mask,
            packed: None,
            pruned: None,
            declared: Some(source.place(draft.span.clone())),
            view: None,
            repeat: 1,
        });
    }
    let mut graph = resolve::Builder::new(tensors);
    for &index in &order {
        let repeat = linked[index].block.map_or(1, |block| blocks[block].repeat);
        graph.add(&linked[index], repeat, source.place(linked[index].spec.name.span()));
    }
    if let Some(spec) = &spec.training {
        refuse_untrained(source, spec.span(), &linked, &graph.tensors)?;
        train::derive(&mut graph, train::options(source, spec)?)?;
    }
    let (mut tensors, mut operators) = graph.finish();
    causal::settle(&tensors, &mut operators, spec.training.is_some())?;
    let storages: Vec<_> = drafts.values().map(|draft| draft.storage.clone()).collect();
    let prunings: Vec<_> = drafts.values().map(|draft| draft.pruning.clone()).collect();
    pruning::prune(source, &prunings, &mut tensors, &operators, spec.training.is_some())?;
    storage::pack(source, &storages, &mut tensors, &operators, spec.training.is_some())?;
    let mut workload = Workload::new(name, dims, tensors, operators);
    workload.notes = notes;
    workload.sections = sections::sections(source, &workload, &spec.sections)?;
    Ok(workload)
}

/// Refuses to train what has no gradient here.
fn refuse_untrained(
    source: &Source,
    training: Range<usize>,
    linked: &[link::Linked<'_>],
    tensors: &IndexVec<TensorId, Tensor>,
) -> Result<(), Diagnostic> {
    let untrained = |operator: &&link::Linked<'_>| operator.kind.has_windows() || operator.kind.is_view();
    if let Some(operator) = linked.iter().find(untrained) {
        let (name, kind) = (&operator.name, operator.kind.name());
        let title = format!("operator `{name}` cannot be trained: `{kind}` has no gradient here");
        return Err(source.error(operator.spec.kind.span(), title, "has no gradient"));
    }
    let is_selected = |tensor: &&Tensor| tensor.mask.as_ref().is_some_and(|mask| mask.is_selection());
    let Some(tensor) = tensors.iter().find(is_selected) else { return Ok(()) };
    let title = format!("`tensors.{}.sparsity`: active neurons are selected for inference alone", tensor.name);
    let error = source.error(training, title, "derives gradients");
    Err(error.with_help("leave `[training]` out, or the sparsity of this weight"))
}
