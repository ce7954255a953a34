//! Operators that are no products: elements and rows shared out to tiles and their workers.
//!
//! Cycles of an element are assumed: the steps of the usual formula at the width of the data path, as on other kinds of chips.

use super::step::Superstep;
use rdusim_graph::arch::Bsp;
use rdusim_graph::workload::{Chains, OperatorId, OperatorKind, Workload};

/// Elements of an operator's largest operand.
#[derive(Debug, Clone, Copy)]
struct Extent {
    elements: f64,
    element_bytes: u64,
}

fn extent(workload: &Workload, op: OperatorId) -> Extent {
    let operator = &workload.operators[op];
    let tensors = operator.inputs.iter().chain([&operator.output]);
    let largest = tensors.max_by_key(|&&t| workload.tensors[t].stored_elements()).map(|&t| &workload.tensors[t]);
    largest.map_or(Extent { elements: 0.0, element_bytes: 2 }, |tensor| Extent {
        elements: tensor.stored_elements() as f64,
        element_bytes: tensor.dtype.bytes(),
    })
}

/// Cycles of a tile's workers for so many elements, `steps` vector operations on each.
pub(super) fn vertex_cycles(chip: &Bsp, elements: f64, element_bytes: u64, steps: f64) -> f64 {
    let threads = chip.tile.threads as f64;
    let lanes = (chip.tile.vector_bytes / element_bytes.max(1)).max(1) as f64;
    let vectors = ((elements / threads).ceil() / lanes).ceil();
    (chip.planner.vertex_cycles as f64 + vectors * steps) * threads
}

/// Most parts that follow one another.
const MOST_PASSES: f64 = 256.0;

/// Parts in which so many bytes come to a tile with room for `available`, one after the other; at most `most`.
fn passes(received: f64, available: f64, most: f64) -> u64 {
    let wanted = if available > 0.0 { (received / available).ceil() } else { MOST_PASSES };
    wanted.clamp(1.0, MOST_PASSES.min(most.max(1.0))) as u64
}

/// The supersteps of an operator whose first input lies on its tiles, and the tiles at work. `foreign_bytes`: of other inputs,
/// which come over the exchange, in parts where a tile has room for `available` bytes only.
pub(super) fn in_place(
    chip: &Bsp,
    workload: &Workload,
    op: OperatorId,
    foreign_bytes: f64,
    available: f64,
) -> (Vec<Superstep>, u64) {
    let operator = &workload.operators[op];
    let all = extent(workload, op);
    let tiles = chip.tile.count.min((all.elements as u64).max(1));
    let each = (all.elements / tiles as f64).ceil();
    let steps = operator.kind.vector_steps().max(operator.inputs.len() as u64) as f64;
    let received = (foreign_bytes / tiles as f64).ceil();
    let times = passes(received, available, each);
    let (each, part) = ((each / times as f64).ceil(), (received / times as f64).ceil());
    let cycles = vertex_cycles(chip, each, all.element_bytes, steps);
    let step = Superstep::compute(chip, operator.kind.name(), cycles, tiles);
    let mut step = step.receives(chip, part, foreign_bytes / times as f64).holds(part);
    step.times = times;
    (vec![step], tiles)
}

/// The supersteps of an operator that needs whole rows, or elements that lie elsewhere. Where a tile has room for `available`
/// bytes only, its rows come one after the other, in parts.
pub(super) fn rearranged(chip: &Bsp, workload: &Workload, op: OperatorId, available: f64) -> (Vec<Superstep>, u64) {
    if let Some(chains) = workload.chains(op) {
        return carried(chip, workload, op, &chains, available);
    }
    let operator = &workload.operators[op];
    let all = extent(workload, op);
    let output = &workload.tensors[operator.output];
    let bytes: f64 = operator.inputs.iter().map(|&t| workload.tensors[t].stored_bytes() as f64).sum();
    if !operator.kind.is_row_wise() || matches!(operator.kind, OperatorKind::Concat | OperatorKind::Reformat) {
        return moved(chip, operator.kind.name(), output.stored_bytes() as f64, available);
    }
    let rows = (workload.tensors[operator.inputs[0]].rows * operator.heads.max(1)).max(1);
    // Rows are whole on a tile; fewer rows than tiles are cut into parts that exchange what each has found.
    let parts = (chip.tile.count / rows).max(1);
    let tiles = (rows * parts).min(chip.tile.count);
    let rows_of_tile = rows.div_ceil(tiles / parts).max(1);
    let received = (bytes / tiles as f64).ceil();
    let times = passes(received, available, rows_of_tile as f64);
    let (received, bytes) = ((received / times as f64).ceil(), bytes / times as f64);
    let each = (all.elements / rows as f64 / parts as f64).ceil() * rows_of_tile.div_ceil(times) as f64;
    let cycles = vertex_cycles(chip, each, all.element_bytes, operator.kind.vector_steps() as f64);
    let passes = if parts > 1 { operator.kind.passes() } else { 1 };
    let mut first = Superstep::compute(chip, operator.kind.name(), cycles / passes as f64, tiles);
    first.times = times;
    let mut steps = vec![first.receives(chip, received, bytes).holds(received)];
    // Rows in parts are fewer than the tiles: they come at once.
    if passes > 1 {
        let found = 4.0 * (parts - 1) as f64;
        let step = Superstep::compute(chip, operator.kind.name(), cycles / passes as f64, tiles);
        let mut step = step.receives(chip, found, found * tiles as f64).holds(received + found);
        step.times = passes - 1;
        steps.push(step);
    }
    (steps, tiles)
}

/// The supersteps of an operator that carries a state: tiles have whole sequences of some columns, whose rows follow one another. What
/// they need comes over the exchange; where a tile has room for `available` bytes only, so many rows at a time, and the state stays.
fn carried(chip: &Bsp, workload: &Workload, op: OperatorId, chains: &Chains, available: f64) -> (Vec<Superstep>, u64) {
    let operator = &workload.operators[op];
    let all = chains.count().max(1);
    let tiles = chip.tile.count.min(all);
    let each = all.div_ceil(tiles);
    let tiles = all.div_ceil(each);
    let received = workload.chain_bytes(op, each) as f64;
    let state = (each * workload.chain_state_bytes(op)) as f64;
    let times = passes(received, available - state, chains.rows as f64);
    let touched = operator.inputs.iter().chain([&operator.output]);
    let element_bytes = touched.map(|&t| workload.tensors[t].dtype.bytes()).max().unwrap_or(2);
    let (threads, lanes) = (chip.tile.threads, (chip.tile.vector_bytes / element_bytes).max(1));
    let part = Chains { rows: chains.rows.div_ceil(times), ..*chains };
    let vectors = part.vectors(each.div_ceil(threads), lanes) as f64;
    let steps = operator.kind.vector_steps() as f64;
    let cycles = (chip.planner.vertex_cycles as f64 + vectors * steps) * threads as f64;
    let received = (received / times as f64).ceil();
    let step = Superstep::compute(chip, operator.kind.name(), cycles, tiles);
    let mut step = step.receives(chip, received, received * tiles as f64).holds(received + state);
    step.times = times;
    (vec![step], tiles)
}

/// Bytes that change their place and their order, in parts where a tile has room for `available` bytes only.
pub(super) fn moved(chip: &Bsp, name: &str, bytes: f64, available: f64) -> (Vec<Superstep>, u64) {
    let tiles = chip.tile.count;
    let received = (bytes / tiles as f64).ceil();
    let times = passes(received, available, received);
    let received = (received / times as f64).ceil();
    let copy = received / chip.tile.copy_bytes_per_cycle;
    let step = Superstep::compute(chip, name, copy, tiles).receives(chip, received, bytes / times as f64);
    let mut step = step.holds(received);
    step.times = times;
    (vec![step], tiles)
}

/// Elements, rows or columns of sequences that an operator's tiles share out; `None` where a row lies on several tiles.
pub(super) fn items(workload: &Workload, op: OperatorId) -> Option<u64> {
    let operator = &workload.operators[op];
    let kind = operator.kind;
    if kind.is_view() {
        return None;
    }
    if is_in_place(kind) {
        return Some(extent(workload, op).elements as u64);
    }
    if let Some(chains) = workload.chains(op) {
        return Some(chains.count());
    }
    if !kind.is_row_wise() || matches!(kind, OperatorKind::Concat | OperatorKind::Reformat) {
        return Some(workload.tensors[operator.output].stored_bytes());
    }
    Some(workload.tensors[operator.inputs[0]].rows * operator.heads.max(1))
}

/// Whether an operator works on elements where they are.
pub(super) fn is_in_place(kind: OperatorKind) -> bool {
    (kind.is_elementwise() || kind.folds_into_a_gemm())
        && !matches!(kind, OperatorKind::Embedding | OperatorKind::Transpose | OperatorKind::EmbeddingGrad)
}

/// Bytes between tile memory and units of an operator that is no product.
pub(super) fn memory_bytes(workload: &Workload, op: OperatorId) -> (f64, f64) {
    let operator = &workload.operators[op];
    let read: f64 = operator.inputs.iter().map(|&t| workload.tensors[t].stored_bytes() as f64).sum();
    (read * operator.kind.passes() as f64, workload.tensors[operator.output].stored_bytes() as f64)
}
