//! What a tile's memory holds when: tensors that live throughout, and those that live from their producer to their last reader.
//!
//! Tensors lie spread over all tiles; one that is read in the backward phase of a repeated block lives once for every
//! repetition. What cannot be resident is in the memory off the chip, and is streamed in for every operator that reads it.

use super::vertex;
use crate::arch::Bsp;
use crate::index::Id;
use crate::workload::{OperatorId, OperatorKind, Phase, TensorId, TensorRole, Workload};

/// Parts that a streamed tensor comes in at most.
pub(super) const MOST_PARTS: f64 = 64.0;

/// The tensors of a workload in tile memory.
#[derive(Debug, Clone)]
pub(super) struct Live {
    /// Bytes of all tiles that hold weights, inputs and state throughout.
    pub(super) always_bytes: f64,
    /// Bytes of all tiles that hold intermediates, operator by operator.
    pub(super) at: Vec<f64>,
    /// Whether a tensor is streamed, by its index.
    pub(super) streamed: Vec<bool>,
    /// First and last operator of an intermediate, and its bytes, by its index.
    spans: Vec<Option<(usize, usize, f64)>>,
    /// Whether a tensor may be streamed, by its index.
    may_stream: Vec<bool>,
    /// Bytes of a step that it then has streamed.
    traffic: Vec<f64>,
    /// Bytes of weights, inputs and state, every repetition's, by their index.
    held: Vec<f64>,
}

impl Live {
    /// Everything resident; the state of optimisers lies on `shards` chips in equal parts.
    pub(super) fn new(workload: &Workload, shards: u64) -> Self {
        let mut live = Self {
            always_bytes: 0.0,
            at: vec![0.0; workload.operators.len()],
            streamed: vec![false; workload.tensors.len()],
            spans: spans(workload),
            may_stream: vec![false; workload.tensors.len()],
            traffic: traffic(workload),
            held: vec![0.0; workload.tensors.len()],
        };
        let mut state = vec![false; workload.tensors.len()];
        for operator in workload.operators.iter().filter(|operator| operator.kind == OperatorKind::AdamUpdate) {
            operator.inputs.iter().for_each(|&input| state[workload.base(input).index()] = true);
        }
        for (id, tensor) in workload.tensors.iter_enumerated().filter(|(_, tensor)| tensor.view.is_none()) {
            let is_held = matches!(tensor.role, TensorRole::Weight | TensorRole::Input);
            if is_held {
                let is_state = tensor.role == TensorRole::Input && state[id.index()];
                let bytes = all_bytes(workload, id) / if is_state { shards.max(1) as f64 } else { 1.0 };
                live.held[id.index()] = bytes;
                live.always_bytes += bytes;
            }
            live.may_stream[id.index()] = tensor.role == TensorRole::Weight || !is_held || state[id.index()];
        }
        for (from, to, bytes) in live.spans.iter().flatten() {
            live.at.iter_mut().take(to + 1).skip(*from).for_each(|at| *at += bytes);
        }
        live
    }

    /// Bytes of a tile that holds them all while operator `op` runs, what is streamed for it included: in `parts`, of which one is
    /// there at a time, where the operator takes it so.
    pub(super) fn tile_bytes(&self, chip: &Bsp, workload: &Workload, op: OperatorId, parts: u64) -> f64 {
        let operator = &workload.operators[op];
        let used = operator.inputs.iter().chain([&operator.output]).map(|&t| (t, workload.base(t)));
        let used = used.filter(|(_, base)| self.streamed[base.index()]);
        let part = |t: TensorId| if comes_in_parts(workload, op, t) { 1.0 / parts as f64 } else { 1.0 };
        let streamed: f64 = used.map(|(t, _)| read_bytes(workload, op, t) * part(t)).sum();
        let at = self.at.get(op.index()).copied().unwrap_or(0.0);
        ((self.always_bytes + at + streamed) / chip.tile.count as f64).ceil()
    }

    /// Whether an operator has a streamed tensor that it takes in parts.
    pub(super) fn streams_in_parts(&self, workload: &Workload, op: OperatorId) -> bool {
        let operator = &workload.operators[op];
        let mut used = operator.inputs.iter().chain([&operator.output]);
        used.any(|&t| self.streamed[workload.base(t).index()] && comes_in_parts(workload, op, t))
    }

    /// Moves a tensor off the chip that leaves memory free while `op` runs: the one that has the fewest bytes streamed in a step for
    /// what it leaves free, the largest of equals. `None` if nothing would help.
    pub(super) fn stream_one(&mut self, workload: &Workload, op: OperatorId) -> Option<TensorId> {
        let operator = &workload.operators[op];
        let used: Vec<(TensorId, TensorId)> =
            operator.inputs.iter().chain([&operator.output]).map(|&t| (workload.base(t), t)).collect();
        let freed = |id: TensorId| -> Option<f64> {
            let tensor = &workload.tensors[id];
            if tensor.view.is_some() || self.streamed[id.index()] || !self.may_stream[id.index()] {
                return None;
            }
            let held = match self.spans[id.index()] {
                Some((from, to, bytes)) => (from..=to).contains(&op.index()).then_some(bytes)?,
                None if matches!(tensor.role, TensorRole::Weight | TensorRole::Input) => self.held[id.index()],
                None => return None,
            };
            let part = |t: TensorId| if comes_in_parts(workload, op, t) { MOST_PARTS } else { 1.0 };
            let needed = used.iter().find(|(base, _)| *base == id);
            let needed = needed.map_or(0.0, |&(_, t)| read_bytes(workload, op, t) / part(t));
            Some(held - needed).filter(|freed| *freed > 0.0)
        };
        let candidates = workload.tensors.ids().filter_map(|id| Some((id, freed(id)?)));
        let dear = |(id, freed): &(TensorId, f64)| self.traffic[id.index()] / freed;
        let (chosen, _) = candidates.min_by(|a, b| dear(a).total_cmp(&dear(b)).then(b.1.total_cmp(&a.1)))?;
        self.streamed[chosen.index()] = true;
        match self.spans[chosen.index()] {
            Some((from, to, bytes)) => {
                self.at.iter_mut().take(to + 1).skip(from).for_each(|at| *at -= bytes);
            }
            None => self.always_bytes -= self.held[chosen.index()],
        }
        Some(chosen)
    }
}

/// Bytes of a step that every tensor would have streamed, by its index.
fn traffic(workload: &Workload) -> Vec<f64> {
    let mut bytes = vec![0.0; workload.tensors.len()];
    for (op, operator) in workload.operators.iter_enumerated() {
        let times = operator.repeat as f64 / operator.every as f64;
        for &tensor in operator.inputs.iter().chain(operator.updates.iter()).chain([&operator.output]) {
            bytes[workload.base(tensor).index()] += times * read_bytes(workload, op, tensor);
        }
    }
    bytes
}

/// From its producer to its last reader: where every intermediate lives, and its bytes.
fn spans(workload: &Workload) -> Vec<Option<(usize, usize, f64)>> {
    let count = workload.tensors.len();
    let (mut made, mut last) = (vec![None; count], vec![0; count]);
    let mut crosses = vec![false; count];
    for (op, operator) in workload.operators.iter_enumerated() {
        for &input in &operator.inputs {
            let base = workload.base(input).index();
            last[base] = op.index();
            crosses[base] |=
                operator.phase == Phase::Backward && made[base].is_some_and(|(_, phase)| phase == Phase::Forward);
        }
        let base = workload.base(operator.output).index();
        made[base].get_or_insert((op.index(), operator.phase));
        last[base] = last[base].max(op.index());
    }
    let is_held = |id: TensorId| matches!(workload.tensors[id].role, TensorRole::Weight | TensorRole::Input);
    let bytes = |id: TensorId| workload.tensors[id].stored_bytes() as f64;
    let ends = workload.operators.len().saturating_sub(1);
    let mut list = vec![None; count];
    for (id, tensor) in workload.tensors.iter_enumerated().filter(|(_, tensor)| tensor.view.is_none()) {
        let Some((from, _)) = made[id.index()].filter(|_| !is_held(id)) else { continue };
        let to = if tensor.role == TensorRole::Output { ends } else { last[id.index()] };
        let times = if crosses[id.index()] { tensor.repeat as f64 } else { 1.0 };
        list[id.index()] = Some((from, to, bytes(id) * times));
    }
    // An elementwise operator writes its result over an operand that nobody reads later.
    for (op, operator) in workload.operators.iter_enumerated().filter(|(_, op)| vertex::is_in_place(op.kind)) {
        let at = op.index();
        let output = workload.base(operator.output);
        let dies = |t: TensorId| {
            let base = workload.base(t);
            let ends_here = list[base.index()].is_some_and(|(_, to, _)| to == at) && !crosses[base.index()];
            ends_here && base != output && bytes(base) >= bytes(output)
        };
        if operator.inputs.iter().any(|&t| dies(t))
            && let Some((from, to, _)) = &mut list[output.index()]
            && *from == at
            && *to > at
        {
            *from = at + 1;
        }
    }
    list
}

/// Whether an operator can work on a part of a tensor at a time: a product on columns of its weight, elementwise operators on
/// any part.
fn comes_in_parts(workload: &Workload, op: OperatorId, tensor: TensorId) -> bool {
    let operator = &workload.operators[op];
    match operator.kind {
        OperatorKind::Gemm => operator.inputs.get(1) == Some(&tensor) && workload.tensors[tensor].mask.is_none(),
        kind => vertex::is_in_place(kind),
    }
}

/// Bytes of a streamed tensor that an operator needs: of a table, the rows that are looked up.
pub(super) fn read_bytes(workload: &Workload, op: OperatorId, tensor: TensorId) -> f64 {
    let operator = &workload.operators[op];
    let is_table = operator.kind == OperatorKind::Embedding
        && workload.tensors[workload.base(tensor)].role == TensorRole::Weight
        && workload.base(tensor) != workload.base(operator.output);
    let read = if is_table { operator.output } else { tensor };
    workload.tensors[read].stored_bytes() as f64
}

/// Bytes of a tensor, every repetition's.
pub(super) fn all_bytes(workload: &Workload, tensor: TensorId) -> f64 {
    workload.tensors[tensor].stored_bytes() as f64 * workload.tensors[tensor].repeat as f64
}
