//! Making a workload small enough to run on numbers, and still as ragged as it was.

use std::collections::BTreeMap;

use serde::Serialize;

use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::Override;
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::{Operator, OperatorKind, Workload};

/// Largest period of remainders that is kept.
const MOST_PERIOD: u64 = 256;
/// Most bytes of numbers that are held at once.
const MOST_BYTES: u64 = 16 << 30;
/// Copies of a tensor that are held at once: of the reference, in the section's buffers, and off chip.
const COPIES: u128 = 3;
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
    let of = |(id, op): (_, &Operator)| {
        let output = &workload.tensors[op.output];
        // A pooling reads every element of its windows.
        let window = workload.tensors[op.inputs[0]].window().filter(|_| op.kind.is_pool());
        let taps = window.map_or(1, |window| window.image.taps());
        let elements = u128::from(output.rows) * u128::from(output.columns) * u128::from(taps);
        if op.kind == OperatorKind::Gemm { 2 * u128::from(workload.dense_macs(id)) } else { elements }
    };
    u64::try_from(workload.operators.iter_enumerated().map(of).sum::<u128>()).unwrap_or(u64::MAX)
}

/// Refuses a graph whose numbers would take more memory than a machine is likely to have.
///
/// # Errors
/// The bytes and the limit.
fn check_memory(workload: &Workload) -> Result<(), Diagnostic> {
    let elements: u128 =
        workload.tensors.iter().map(|tensor| u128::from(tensor.rows) * u128::from(tensor.columns)).sum();
    let bytes = elements * COPIES * size_of::<f64>() as u128;
    if bytes <= u128::from(MOST_BYTES) {
        return Ok(());
    }
    let gib = |bytes: u128| bytes.div_ceil(1 << 30);
    let title = format!(
        "the numbers of `{}` take about {} GiB, and at most {} are held",
        workload.name,
        gib(bytes),
        gib(MOST_BYTES.into())
    );
    Err(Diagnostic::new(title).with_help("give a smaller --max-flops, or smaller dimensions with --set"))
}

/// Reads a workload with `load`, which is given overrides, so that its graph has at most `max_flops`. Dimensions are made
/// smaller by one factor, and each keeps its remainder by the sizes of tiles and mask blocks; heads and sequences are fewer
/// and smaller, and still divide what they divide.
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
        check_memory(&full)?;
        return Ok((full, None));
    }
    let dims: Vec<(String, u64)> = full.dims.iter().map(|(name, &size)| (name.clone(), size)).collect();
    let attempt = |sizes: &[u64]| {
        let changed = dims.iter().zip(sizes).filter(|((_, from), to)| from != *to);
        let texts = changed.map(|((name, _), to)| Override::parse(&format!("workload.dims.{name}={to}")));
        load(&texts.collect::<Result<Vec<_>, _>>()?)
    };
    // As ragged as fits: by all tile sizes and blocks together, else by those of one kind, else by few.
    let parts = Parts::new(&full);
    let periods = periods(chip, &full);
    let sizes_by = |period: u64, factor: f64| -> Vec<u64> {
        dims.iter().map(|(_, size)| parts.shrunk(*size, factor, period)).collect()
    };
    let mut period = periods[0];
    let (mut best, mut best_sizes) = (full, dims.iter().map(|dim| dim.1).collect::<Vec<u64>>());
    for smaller in periods {
        let sizes = sizes_by(smaller, 0.0);
        // Sizes that hang together in a way that is not seen here have no smaller graph.
        let Ok(workload) = attempt(&sizes) else { continue };
        (period, best, best_sizes) = (smaller, workload, sizes);
        if graph_flops(&best) <= max_flops {
            break;
        }
    }
    let sizes = |factor: f64| sizes_by(period, factor);
    if graph_flops(&best) > max_flops {
        let title = format!(
            "`{}` needs {full_flops} FLOP, more than --max-flops {max_flops}, and its named dimensions cannot be made small enough",
            best.name
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
        match attempt(&tried) {
            Ok(workload) if graph_flops(&workload) <= max_flops => {
                (fits, best, best_sizes) = (middle, workload, tried);
            }
            _ => exceeds = middle,
        }
    }
    check_memory(&best)?;
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

/// Sizes that are so many heads, or sequences, of a size: both parts shrink, and stay parts.
struct Parts {
    /// Counts of heads and sequences, with the size each has at least.
    counts: BTreeMap<u64, u64>,
    /// Heads of queries, and of keys and values: a group of one serves a head of the other.
    groups: Vec<(u64, u64)>,
    /// Sizes that are a multiple of a count.
    of_counts: BTreeMap<u64, u64>,
    /// Sizes that are so many images.
    of_images: BTreeMap<u64, u64>,
}

impl Parts {
    fn new(workload: &Workload) -> Self {
        let mut parts = Self {
            counts: BTreeMap::new(),
            groups: Vec::new(),
            of_counts: BTreeMap::new(),
            of_images: BTreeMap::new(),
        };
        for op in &workload.operators {
            parts.add_images(workload, op);
            let (Some(form), options) = (op.form, &op.options) else { continue };
            let least = |count: u64| if count % 2 == 1 { count.min(3) } else { count.min(4) };
            parts.counts.insert(options.kv_heads, least(options.kv_heads));
            parts.counts.insert(options.batch, options.batch.min(2));
            if options.heads != options.kv_heads && !parts.groups.contains(&(options.heads, options.kv_heads)) {
                parts.groups.push((options.heads, options.kv_heads));
            }
            let of_b = if options.transpose_a { options.heads } else { options.kv_heads };
            let tensors = [
                (workload.base(op.inputs[0]), options.heads),
                (workload.base(op.inputs[1]), of_b),
                (op.output, form.heads),
            ];
            for (tensor, heads) in tensors {
                let tensor = &workload.tensors[tensor];
                for (size, count) in [(tensor.columns, heads), (tensor.rows, options.batch)] {
                    let known = parts.of_counts.entry(size).or_insert(1);
                    *known = *known / gcd(*known, count) * count;
                }
            }
        }
        parts
    }

    /// Rows that are so many images: there are fewer of them, of the same size.
    fn add_images(&mut self, workload: &Workload, op: &Operator) {
        let Some(view) = workload.tensors[op.inputs[0]].view else { return };
        let Some(window) = view.window else { return };
        let pixels = workload.tensors[view.of].rows;
        let images = (pixels / window.image.pixels().max(1)).max(1);
        self.counts.insert(images, images.min(2));
        for rows in [pixels, workload.tensors[op.output].rows] {
            self.of_images.insert(rows, images);
        }
    }

    fn count(&self, count: u64, factor: f64) -> u64 {
        if let Some((_, of)) = self.groups.iter().find(|group| group.0 == count) {
            return self.count(*of, factor) * (count / of).min(2);
        }
        let Some(&least) = self.counts.get(&count) else { return count };
        let near = (count as f64 * factor) as u64;
        // Odd counts stay odd.
        (near - near % 2 + count % 2).clamp(least, count)
    }

    fn shrunk(&self, size: u64, factor: f64, period: u64) -> u64 {
        if let Some(images) = self.of_images.get(&size) {
            return self.count(*images, factor) * (size / images);
        }
        if self.counts.contains_key(&size) || self.groups.iter().any(|group| group.0 == size) {
            return self.count(size, factor);
        }
        match self.of_counts.get(&size) {
            Some(&count) if count > 1 => self.count(count, factor) * shrunk(size / count, factor, period),
            _ => shrunk(size, factor, period),
        }
    }
}

/// Remainders that are kept, the best first: by the least common multiple of tile sizes and mask blocks (sizes that leave
/// the same remainder by it are as ragged), by the lanes and blocks alone, by the blocks, by 8.
fn periods(chip: &Chip, workload: &Workload) -> Vec<u64> {
    let lanes = || workload.tensors.iter().filter_map(|t| chip.pcu.lanes.get(&t.dtype).copied());
    let masks = || workload.tensors.iter().filter_map(|t| t.mask.as_deref());
    let blocks = || masks().flat_map(|m| [m.block_rows(), m.block_columns()]);
    let multiple = |parts: &mut dyn Iterator<Item = u64>| {
        parts.fold(1, |period, part| {
            let next = period / gcd(period, part) * part;
            if next <= MOST_PERIOD { next } else { period }
        })
    };
    let mut list = vec![
        multiple(&mut lanes().chain([chip.pcu.stages]).chain(blocks())),
        multiple(&mut lanes().chain(blocks())),
        multiple(&mut blocks().chain([8])),
    ];
    list.dedup();
    list
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
