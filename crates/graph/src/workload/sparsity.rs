//! Sparsity of weights: what a file may ask for, checked.

use std::ops::Range;

use toml::Spanned;

use super::limits::MAX_DIM;
use super::spec::{DistributionSpec, SparsitySpec};
use crate::sparsity::{ActiveNeurons, Format, MOST_GROUP, NeuronAxis, Pattern};
use rdusim_base::diagnostics::{Diagnostic, number};
use rdusim_base::input::{Count, Real, Source, Table};

/// The steepest power law.
const MOST_EXPONENT: f64 = 8.0;

/// Checked `sparsity` of a weight.
#[derive(Debug, Clone)]
pub(super) struct Sparsity {
    pub(super) origin: MaskOrigin,
    /// Rows and columns of a block.
    pub(super) block: (u64, u64),
    pub(super) block_span: Range<usize>,
    /// Share of blocks wanted, and where that is said; none where the origin knows.
    pub(super) density: Option<(f64, Range<usize>)>,
    /// The format that is pinned.
    pub(super) format: Option<(Format, Range<usize>)>,
}

/// Where a mask comes from.
#[derive(Debug, Clone)]
pub(super) enum MaskOrigin {
    /// Drawn from a seed.
    Drawn {
        /// How.
        pattern: Pattern,
        /// The file's part of the seed.
        seed: u64,
    },
    /// Read from a file.
    File {
        /// Its path, as written.
        path: String,
        path_span: Range<usize>,
        key: Option<String>,
        transpose: bool,
    },
    /// What the active neurons of some tokens need.
    Active {
        axis: NeuronAxis,
        active: ActiveNeurons,
        /// The file's part of the seed.
        seed: u64,
        /// The name of the neurons, which other weights may have too; those of the weight alone if `None`.
        neurons: Option<String>,
        /// Where the sparsity is declared.
        span: Range<usize>,
    },
}

/// Fields of `sparsity`, and whether each is given.
type Given<'a> = (&'a str, Option<Range<usize>>);

/// What each pattern takes beside `pattern`.
const PATTERNS: [(&str, &[&str]); 9] = [
    ("block", &["density", "block", "seed", "format"]),
    ("unstructured", &["density", "seed", "format"]),
    ("nm", &["n", "m", "seed", "format"]),
    ("banded", &["density", "block", "format"]),
    ("row_skewed", &["density", "exponent", "block", "seed", "format"]),
    ("column_skewed", &["density", "exponent", "block", "seed", "format"]),
    ("file", &["file", "key", "transpose", "density", "block", "format"]),
    ("active_rows", &["density", "tokens", "shared", "neurons", "seed"]),
    ("active_columns", &["density", "tokens", "shared", "neurons", "seed"]),
];

/// Refuses keys that a pattern does not take.
fn refuse_other_keys(
    source: &Source,
    table: &str,
    spec: &SparsitySpec,
    pattern: &str,
    takes: &[&str],
) -> Result<(), Diagnostic> {
    let given: [Given<'_>; 13] = [
        ("density", spec.density.as_ref().map(Spanned::span)),
        ("block", spec.block.as_ref().map(Spanned::span)),
        ("seed", spec.seed.as_ref().map(Spanned::span)),
        ("n", spec.n.as_ref().map(Spanned::span)),
        ("m", spec.m.as_ref().map(Spanned::span)),
        ("exponent", spec.exponent.as_ref().map(Spanned::span)),
        ("file", spec.file.as_ref().map(Spanned::span)),
        ("key", spec.key.as_ref().map(Spanned::span)),
        ("transpose", spec.transpose.as_ref().map(Spanned::span)),
        ("tokens", spec.tokens.as_ref().map(Spanned::span)),
        ("shared", spec.shared.as_ref().map(Spanned::span)),
        ("neurons", spec.neurons.as_ref().map(Spanned::span)),
        ("format", spec.format.as_ref().map(Spanned::span)),
    ];
    for (key, span) in given {
        if let Some(span) = span.filter(|_| !takes.contains(&key)) {
            let title = format!("`{table}.{key}` has no meaning for the pattern {pattern:?}");
            return Err(source.error(span, title, "remove it").with_help(format!(
                "{pattern:?} takes {}",
                takes.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ")
            )));
        }
    }
    Ok(())
}

/// Checks the `sparsity` of the tensor `name`; `tokens` is the size of what its `tokens` name.
pub(super) fn sparsity(
    source: &Source,
    name: &str,
    spanned: &Spanned<Table<SparsitySpec>>,
    tokens: Option<u64>,
) -> Result<Sparsity, Diagnostic> {
    let table = format!("tensors.{name}.sparsity");
    let field = |key: &str| format!("{table}.{key}");
    let spec = spanned.get_ref();
    let pattern = source.keyword(&field("pattern"), &spec.pattern, &PATTERNS.map(|(name, _)| name))?;
    let (pattern, takes) = PATTERNS[pattern];
    refuse_other_keys(source, &table, spec, pattern, takes)?;
    let missing = |key: &str| {
        source.error(spanned.span(), format!("`{}` is missing", field(key)), format!("expected in `{table}`"))
    };
    let density = spec.density.as_ref().map(|value| density(source, &field("density"), value)).transpose()?;
    let needed = || density.clone().map(|(value, _)| value).ok_or_else(|| missing("density"));
    let seed = match &spec.seed {
        Some(seed) => source.count(&field("seed"), seed, 0..=u64::MAX)?,
        None => 0,
    };
    let exponent = match &spec.exponent {
        Some(exponent) => source.real(&field("exponent"), exponent, 0.0..=MOST_EXPONENT)?,
        None => 1.0,
    };
    let drawn = |pattern| MaskOrigin::Drawn { pattern, seed };
    let origin = match pattern {
        "nm" => {
            let m = spec.m.as_ref().ok_or_else(|| missing("m"))?;
            let m = source.count(&field("m"), m, 1..=MOST_GROUP)?;
            let n = spec.n.as_ref().ok_or_else(|| missing("n"))?;
            drawn(Pattern::Nm { n: source.count(&field("n"), n, 1..=m)?, m })
        }
        "banded" => drawn(Pattern::Banded { density: needed()? }),
        "row_skewed" => drawn(Pattern::RowSkewed { density: needed()?, exponent }),
        "column_skewed" => drawn(Pattern::ColumnSkewed { density: needed()?, exponent }),
        "file" => {
            let file = spec.file.as_ref().ok_or_else(|| missing("file"))?;
            let path = source.name(&field("file"), file)?;
            let key = spec.key.as_ref().map(|key| key.get_ref().clone());
            let transpose = spec.transpose.as_ref().is_some_and(|word| *word.get_ref());
            MaskOrigin::File { path, path_span: file.span(), key, transpose }
        }
        "active_rows" | "active_columns" => {
            let axis = if pattern == "active_rows" { NeuronAxis::Rows } else { NeuronAxis::Columns };
            let tokens = tokens.ok_or_else(|| missing("tokens"))?;
            let shared =
                spec.shared.as_ref().map(|share| source.real(&field("shared"), share, 0.0..=1.0)).transpose()?;
            let neurons = spec.neurons.as_ref().map(|name| source.name(&field("neurons"), name)).transpose()?;
            let active = ActiveNeurons { density: needed()?, tokens, shared: shared.unwrap_or(0.0) };
            MaskOrigin::Active { axis, active, seed, neurons, span: spanned.span() }
        }
        _ => drawn(Pattern::Random { density: needed()? }),
    };
    let (block, block_span) = match &spec.block {
        Some(value) => (block(source, &field("block"), value)?, value.span()),
        None if pattern == "block" => return Err(missing("block")),
        None => ((1, 1), spanned.span()),
    };
    let format = spec.format.as_ref().map(|word| format_of(source, &field("format"), word)).transpose()?;
    Ok(Sparsity { origin, block, block_span, density, format })
}

fn density(source: &Source, field: &str, value: &Spanned<Real>) -> Result<(f64, Range<usize>), Diagnostic> {
    let density = value.get_ref().0;
    if density > 0.0 && density <= 1.0 {
        return Ok((density, value.span()));
    }
    let title = format!("`{field}` must be above 0 and at most 1, found {}", number(density));
    Err(source.error(value.span(), title, "expected the share of blocks that is kept"))
}

fn block(source: &Source, field: &str, value: &Spanned<Vec<Spanned<Count>>>) -> Result<(u64, u64), Diagnostic> {
    let [rows, columns] = value.get_ref().as_slice() else {
        let title = format!("`{field}` has length {}, expected 2", value.get_ref().len());
        return Err(source.error(value.span(), title, "expected [rows, columns]"));
    };
    Ok((source.count(field, rows, 1..=MAX_DIM)?, source.count(field, columns, 1..=MAX_DIM)?))
}

fn format_of(source: &Source, field: &str, word: &Spanned<String>) -> Result<(Format, Range<usize>), Diagnostic> {
    let index = source.keyword(field, word, &Format::ALL.map(Format::name))?;
    Ok((Format::ALL[index], word.span()))
}

/// How one density is spread over many weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spread {
    /// Every weight has it.
    Uniform,
    /// By the Erdős–Rényi rule.
    Erk,
}

/// Checked `[sparsity]`.
#[derive(Debug)]
pub(super) struct Distribution {
    pub(super) spread: Spread,
    /// Density over all, and what each weight gets of the rest.
    pub(super) density: f64,
    pub(super) template: Sparsity,
    /// The weights by name and place; all that can be sparse if `None`.
    pub(super) tensors: Option<Vec<(String, Range<usize>)>>,
    pub(super) span: Range<usize>,
}

/// Checks `[sparsity]`.
pub(super) fn distribution(
    source: &Source,
    spanned: &Spanned<Table<DistributionSpec>>,
) -> Result<Distribution, Diagnostic> {
    let spec = spanned.get_ref();
    let spreads = [("uniform", Spread::Uniform), ("erk", Spread::Erk)];
    let index = source.keyword("sparsity.distribution", &spec.distribution, &spreads.map(|(name, _)| name))?;
    let (density, density_span) = density(source, "sparsity.density", &spec.density)?;
    let seed = match &spec.seed {
        Some(seed) => source.count("sparsity.seed", seed, 0..=u64::MAX)?,
        None => 0,
    };
    let (block, block_span) = match &spec.block {
        Some(value) => (block(source, "sparsity.block", value)?, value.span()),
        None => ((1, 1), spanned.span()),
    };
    let format = spec.format.as_ref().map(|word| format_of(source, "sparsity.format", word)).transpose()?;
    let origin = MaskOrigin::Drawn { pattern: Pattern::Random { density }, seed };
    let tensors = match &spec.tensors {
        Some(list) if list.get_ref().is_empty() => {
            return Err(source.error(list.span(), "`sparsity.tensors` is empty", "expected at least one name"));
        }
        Some(list) => Some(list.get_ref().iter().map(|name| (name.get_ref().clone(), name.span())).collect()),
        None => None,
    };
    let template = Sparsity { origin, block, block_span, density: Some((density, density_span)), format };
    Ok(Distribution { spread: spreads[index].1, density, template, tensors, span: spanned.span() })
}
