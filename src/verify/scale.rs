//! Making a workload small enough to run on numbers, and still as ragged as it was.

use serde::Serialize;

use crate::arch::Chip;
use crate::diagnostics::Diagnostic;
use crate::input::Override;
use crate::workload::{OperatorKind, Workload};

/// Largest period of remainders that is kept.
const MOST_PERIOD: u64 = 256;
/// Halvings of the interval in which the right factor lies.
const HALVINGS: u32 = 12;

/// What was made smaller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Scaling {
    /// The limit on the graph's floating-point operations.
    pub max_flops: u64,
    /// The graph's floating-point operations at full size.
    pub full_flops: u64,
    /// Dimensions with their sizes before and after, in the order of the file.
    pub dims: Vec<ScaledDim>,
}

/// One dimension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScaledDim {
    /// Name in `[dims]`.
    pub name: String,
    /// Size in the file, or as set.
    pub from: u64,
    /// Size that is verified.
    pub to: u64,
}

/// Floating-point operations of a graph once: two for each product of a GEMM, masks ignored, and one for each element of
/// other results.
pub fn graph_flops(workload: &Workload) -> u64 {
    let of = |(id, op): (_, &crate::workload::Operator)| {
        let output = &workload.tensors[op.output];
        let elements = u128::from(output.rows) * u128::from(output.columns);
        if op.kind == OperatorKind::Gemm { 2 * u128::from(workload.dense_macs(id)) } else { elements }
    };
    u64::try_from(workload.operators.iter_enumerated().map(of).sum::<u128>()).unwrap_or(u64::MAX)
}

/// Reads a workload with `load`, which is given overrides, so that its graph has at most `max_flops`. Dimensions are made
/// smaller by one factor, and each keeps its remainder by the sizes of tiles and mask blocks.
///
/// # Errors
/// Those of `load`; and when even the smallest such dimensions are too large.
pub fn scaled(
    chip: &Chip,
    max_flops: u64,
    load: impl Fn(&[Override]) -> Result<Workload, Diagnostic>,
) -> Result<(Workload, Option<Scaling>), Diagnostic> {
    let full = load(&[])?;
    let full_flops = graph_flops(&full);
    if full_flops <= max_flops {
        return Ok((full, None));
    }
    let period = period(chip, &full);
    let dims: Vec<(String, u64)> = full.dims.iter().map(|(name, &size)| (name.clone(), size)).collect();
    let sizes = |factor: f64| -> Vec<u64> { dims.iter().map(|(_, size)| shrunk(*size, factor, period)).collect() };
    let attempt = |sizes: &[u64]| {
        let changed = dims.iter().zip(sizes).filter(|((_, from), to)| from != *to);
        let texts = changed.map(|((name, _), to)| Override::parse(&format!("workload.dims.{name}={to}")));
        load(&texts.collect::<Result<Vec<_>, _>>()?)
    };
    let mut best = attempt(&sizes(0.0))?;
    let mut best_sizes = sizes(0.0);
    if graph_flops(&best) > max_flops {
        let title = format!(
            "`{}` needs {full_flops} FLOP, more than --max-flops {max_flops}, and its named dimensions cannot be made small enough",
            full.name
        );
        let help = format!("raise --max-flops to {}, or name large sizes in [dims]", graph_flops(&best));
        return Err(Diagnostic::new(title).with_help(help));
    }
    let (mut fits, mut exceeds) = (0.0, 1.0);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(fits, exceeds);
        let tried = sizes(middle);
        if tried == best_sizes {
            fits = middle;
            continue;
        }
        let workload = attempt(&tried)?;
        if graph_flops(&workload) <= max_flops {
            (fits, best, best_sizes) = (middle, workload, tried);
        } else {
            exceeds = middle;
        }
    }
    let named = dims.into_iter().zip(best_sizes).map(|((name, from), to)| ScaledDim { name, from, to });
    Ok((best, Some(Scaling { max_flops, full_flops, dims: named.collect() })))
}

/// A size times a factor, with the same remainder by `period`, and with at least one whole period if it had one.
fn shrunk(size: u64, factor: f64, period: u64) -> u64 {
    let rest = size % period;
    let whole = size / period;
    if whole == 0 {
        return size;
    }
    ((whole as f64 * factor) as u64).clamp(1, whole) * period + rest
}

/// The least common multiple of tile sizes and mask blocks: sizes that leave the same remainder by it are as ragged.
fn period(chip: &Chip, workload: &Workload) -> u64 {
    let lanes = workload.tensors.iter().filter_map(|t| chip.pcu.lanes.get(&t.dtype).copied());
    let masks = workload.tensors.iter().filter_map(|t| t.mask.as_deref());
    let blocks = masks.flat_map(|m| [m.block_rows(), m.block_columns()]);
    let mut period = 1;
    for part in lanes.chain([chip.pcu.stages]).chain(blocks) {
        let next = period / gcd(period, part) * part;
        if next <= MOST_PERIOD {
            period = next;
        }
    }
    period
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_shrink_and_stay_as_ragged() {
        assert_eq!(shrunk(2048, 0.1, 96), 2 * 96 + 32);
        assert_eq!(shrunk(2048, 0.0, 96), 96 + 32);
        assert_eq!(shrunk(50, 0.0, 96), 50);
        assert_eq!(shrunk(2048, 1.0, 96), 2048);
    }
}
