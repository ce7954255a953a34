//! A product on all arrays: which operand stays, how arrays share rows and columns, and what comes from memory how often.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rdusim_graph::arch::{Dataflow, Systolic};
use rdusim_graph::sparsity::BlockMask;
use rdusim_graph::workload::EXPANSION_STEPS;

use super::fold::Folds;

/// Bytes of an element of the first and of the last fold, where it is not stored in another format.
const FOLD_ELEMENT_BYTES: f64 = 2.0;

/// One product, or many alike.
#[derive(Debug, Clone)]
pub(super) struct Product<'a> {
    /// How many there are.
    pub(super) count: u64,
    /// Rows, columns and depth of each.
    pub(super) shape: (u64, u64, u64),
    /// Bytes of an element.
    pub(super) element_bytes: u64,
    /// Multiply-accumulates of a cell and cycle.
    pub(super) cell_macs: u64,
    /// Bytes of all left operands that are off the chip.
    pub(super) a_bytes: f64,
    /// The same of all right operands.
    pub(super) b_bytes: f64,
    /// The blocks that a right operand stores.
    pub(super) mask: Option<&'a BlockMask>,
    /// Bytes of an element of a right operand that lies in the buffer as it is stored, and is expanded on its way to the arrays.
    pub(super) packed_bytes: Option<f64>,
}

/// How a product runs.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Cycles of the busiest array.
    pub(super) cycles: f64,
    /// Arrays with work.
    pub(super) arrays: u64,
    /// Bytes that arrays read from the buffer and write to it.
    pub(super) buffer_bytes: f64,
    /// Bytes of the left and the right operands read from memory.
    pub(super) read_bytes: (f64, f64),
    /// Part of the right operand's folds that hold anything.
    pub(super) stored_folds: f64,
    /// Elements that the vector units expand, and cycles of the first fold of every array among them.
    pub(super) expanded: f64,
    pub(super) first_expansion: f64,
    /// Bytes of an element of a fold as it comes from memory.
    pub(super) fold_element_bytes: f64,
    /// One line on how it is cut up.
    pub(super) told: String,
}

/// One way to run it.
#[derive(Clone, Copy)]
struct Way {
    cycles: f64,
    folds: Folds,
    /// Arrays along the streamed operand and along columns.
    split: (u64, u64),
    is_swapped: bool,
}

/// The fastest way to run a product with `room` bytes of the buffer. Where vector units expand an operand, the fastest is that with the
/// fewest `kernel_cycles`; else arrays decide.
pub(super) fn plan(chip: &Systolic, product: &Product<'_>, room: f64, kernel_cycles: impl Fn(&Plan) -> f64) -> Plan {
    // Where sums stay, every step passes whatever is stored.
    let skips = chip.array.dataflow == Dataflow::WeightStationary;
    let (stored, stored_share) = product.mask.filter(|_| skips).map(|mask| depth_folds(chip, mask)).unzip();
    let plain = ways(chip, product, false, stored.as_deref());
    let swapped = stored.is_none().then(|| ways(chip, product, true, None)).into_iter().flatten();
    let stored_folds = stored_share.unwrap_or(1.0);
    let planned = |way: &Way| planned(chip, product, way, room, stored_folds);
    let rank = |way: &Way| if product.packed_bytes.is_some() { kernel_cycles(&planned(way)) } else { way.cycles };
    let ways = plain.into_iter().chain(swapped).map(|way| (rank(&way), way));
    let best = ways.min_by(|(a, of_a), (b, of_b)| a.total_cmp(b).then(of_a.cycles.total_cmp(&of_b.cycles)));
    let none = Way { cycles: 0.0, folds: Folds { count: 0.0, steps: 0.0 }, split: (1, 1), is_swapped: false };
    planned(&best.map_or(none, |(_, way)| way))
}

/// A way with what it moves and expands.
fn planned(chip: &Systolic, product: &Product<'_>, way: &Way, room: f64, stored_folds: f64) -> Plan {
    let (m, n, k) = product.shape;
    let Way { cycles, folds, split, is_swapped } = *way;
    let of_product = (chip.array.count / product.count).max(1);
    let arrays = (split.0 * split.1).min(of_product) * product.count.min(chip.array.count);
    let (stays, right_stays) = match (chip.array.dataflow, is_swapped) {
        (Dataflow::OutputStationary, _) => ("sums stay", false),
        (Dataflow::WeightStationary, false) => ("the right operand stays", true),
        (Dataflow::WeightStationary, true) => ("the left operand stays", false),
    };
    // Cells wait for a fold that is expanded, and for nothing of an operand that passes.
    let packed_fold = product.packed_bytes.filter(|_| right_stays);
    let first = (arrays * chip.array.rows * chip.array.columns).min(product.count * n * k) as f64;
    let expanded = expanded(chip, product, is_swapped, split.0);
    let times = expanded / (product.count as f64 * n as f64 * k as f64).max(1.0);
    let expands =
        product.packed_bytes.map(|_| format!(", every element of the right operand is expanded {times} times"));
    Plan {
        cycles,
        arrays,
        buffer_bytes: buffer_bytes(chip, product, is_swapped, split.0, stored_folds),
        read_bytes: reads(chip, product, room, stored_folds),
        stored_folds,
        expanded,
        first_expansion: packed_fold.map_or(0.0, |_| expansion_cycles(chip, first)),
        fold_element_bytes: packed_fold.unwrap_or(FOLD_ELEMENT_BYTES),
        told: format!(
            "{} x ({m} x {n} x {k}), {stays}: {:.0} folds of {:.0} steps on each of {arrays} arrays{}",
            product.count,
            folds.count,
            folds.steps,
            expands.unwrap_or_default()
        ),
    }
}

/// All ways to share a product among arrays.
fn ways(chip: &Systolic, product: &Product<'_>, is_swapped: bool, stored: Option<&[u64]>) -> Vec<Way> {
    let array = &chip.array;
    let (m, n, k) = product.shape;
    let (rows, columns) = if is_swapped { (n, m) } else { (m, n) };
    let each = array.count / product.count;
    // More products than arrays: some array computes so many in turn, each alone.
    let turns = product.count.div_ceil(array.count);
    let most = each.max(1).min(columns.div_ceil(array.columns));
    let of = |across: u64| {
        let along = (each.max(1) / across).clamp(1, rows.max(1));
        let slice = (rows.div_ceil(along), columns.div_ceil(array.columns).div_ceil(across) * array.columns);
        let depth_folds = stored.map(|folds| busiest(folds, across));
        let folds = Folds::of(array, slice.0 as f64, slice.1 as f64, k as f64, depth_folds);
        let folds = Folds { count: folds.count * turns as f64, ..folds };
        Way { cycles: folds.cycles(array, product.cell_macs), folds, split: (along, across), is_swapped }
    };
    // For as many parts of the rows, most arrays along the columns.
    let mut list = Vec::new();
    let mut across = 0;
    while across < most {
        let along = (each.max(1) / (across + 1)).max(1);
        across = (each.max(1) / along).min(most);
        list.push(of(across));
    }
    list
}

/// Folds of the depth, for each fold of the columns, in which a mask stores anything; and the share of the matrix that they cover.
fn depth_folds(chip: &Systolic, mask: &BlockMask) -> (Vec<u64>, f64) {
    let (rows, columns) = (chip.array.rows, chip.array.columns);
    let part = |fold: u64, side: u64, all: u64| fold * side..((fold + 1) * side).min(all);
    let mut covered = 0.0;
    let mut folds = Vec::new();
    for n in 0..mask.columns().div_ceil(columns) {
        let across = part(n, columns, mask.columns());
        let mut stored = 0;
        for k in 0..mask.rows().div_ceil(rows) {
            let along = part(k, rows, mask.rows());
            if mask.stored_in(across.clone(), along.clone()) > 0 {
                stored += 1;
                covered += (along.end - along.start) as f64 * (across.end - across.start) as f64;
            }
        }
        folds.push(stored);
    }
    (folds, covered / (mask.rows() as f64 * mask.columns() as f64))
}

/// Folds of the busiest of `arrays` among which columns are dealt, longest first (Graham, 1969).
fn busiest(folds: &[u64], arrays: u64) -> f64 {
    let mut sorted = folds.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let mut loads: BinaryHeap<Reverse<u64>> = (0..arrays.max(1)).map(|_| Reverse(0)).collect();
    let mut most = 0;
    for folds in sorted {
        if let Some(mut least) = loads.peek_mut() {
            least.0 += folds;
            most = most.max(least.0);
        }
    }
    most as f64
}

/// Elements of one product that come from the buffer, of the operand that passes and of the one that stays: one that passes comes once for
/// every fold of the other's columns, one that stays once for every part of the rows.
fn buffer_reads(chip: &Systolic, product: &Product<'_>, is_swapped: bool, along: u64) -> (f64, f64) {
    let array = &chip.array;
    let (m, n, k) = (product.shape.0 as f64, product.shape.1 as f64, product.shape.2 as f64);
    let (rows, columns) = if is_swapped { (n, m) } else { (m, n) };
    let across = (columns / array.columns as f64).ceil();
    let parts = match array.dataflow {
        Dataflow::WeightStationary => {
            let each = (rows / along as f64).ceil();
            along as f64 * (each / array.accumulator_rows as f64).ceil()
        }
        Dataflow::OutputStationary => (rows / array.rows as f64).ceil(),
    };
    (rows * k * across, k * columns * parts)
}

/// Elements of all right operands that are expanded: each whenever it comes from the buffer.
fn expanded(chip: &Systolic, product: &Product<'_>, is_swapped: bool, along: u64) -> f64 {
    let (passing, staying) = buffer_reads(chip, product, is_swapped, along);
    let elements = if is_swapped { passing } else { staying };
    product.packed_bytes.map_or(0.0, |_| elements * product.count as f64)
}

/// Cycles in which the vector units expand so many elements.
pub(super) fn expansion_cycles(chip: &Systolic, elements: f64) -> f64 {
    elements * EXPANSION_STEPS / chip.vector_lanes as f64
}

/// Bytes between buffer, arrays and vector units.
fn buffer_bytes(chip: &Systolic, product: &Product<'_>, is_swapped: bool, along: u64, stored_folds: f64) -> f64 {
    let (passing, staying) = buffer_reads(chip, product, is_swapped, along);
    let elements = (passing + staying) * stored_folds + (product.shape.0 * product.shape.1) as f64;
    let bytes = product.element_bytes as f64;
    let saved =
        product.packed_bytes.map_or(0.0, |packed| expanded(chip, product, is_swapped, along) * (bytes - packed));
    elements * bytes * product.count as f64 - saved
}

/// Bytes of both operands that come from memory. With half of `room` for one of them whole, each comes once; else sums of a block
/// of rows and columns stay while slices of the depth pass, two at a time: the left operand comes once for every block of columns, the
/// right one once for every block of rows.
fn reads(chip: &Systolic, product: &Product<'_>, room: f64, stored_folds: f64) -> (f64, f64) {
    let (a, b) = (product.a_bytes, product.b_bytes * stored_folds);
    let each = |bytes: f64| bytes / product.count as f64;
    if a.min(b) <= 0.0 || each(a) <= room / 2.0 || each(b) <= room / 2.0 {
        return (a, b);
    }
    let (m, n) = (product.shape.0 as f64, product.shape.1 as f64);
    let slice = 2.0 * chip.array.rows as f64 * product.element_bytes as f64;
    let right_slice = 2.0 * chip.array.rows as f64 * product.packed_bytes.unwrap_or(product.element_bytes as f64);
    let mut best = (f64::INFINITY, (a, b));
    let mut rows = chip.array.rows as f64;
    loop {
        let columns = (room - slice * rows) / (4.0 * rows + right_slice);
        let columns = (columns / chip.array.columns as f64).floor() * chip.array.columns as f64;
        if columns < 1.0 {
            break;
        }
        let moved = (a * (n / columns).ceil(), b * (m / rows).ceil());
        if moved.0 + moved.1 < best.0 {
            best = (moved.0 + moved.1, moved);
        }
        if rows >= m {
            break;
        }
        rows *= 2.0;
    }
    best.1
}

/// Cycles before the first result and after the last: a fold of each array comes from memory and is expanded where it is stored in
/// another format, one goes back.
pub(super) fn fill(chip: &Systolic, plan: &Plan, read: f64, written: f64) -> f64 {
    let cells = plan.arrays as f64 * (chip.array.rows * chip.array.columns) as f64;
    let moved = read.min(cells * plan.fold_element_bytes) + written.min(cells * FOLD_ELEMENT_BYTES);
    latency(chip, read) + plan.first_expansion + moved / chip.memory_bytes_per_cycle()
}

/// Cycles until the first of what is read is there.
pub(super) fn latency(chip: &Systolic, read: f64) -> f64 {
    let ns = chip.memory.iter().next().map_or(0.0, |tier| tier.latency_ns);
    if read > 0.0 { ns * chip.clock_hz as f64 / 1e9 } else { 0.0 }
}
