//! What a tile's memory holds when: tensors that live throughout, and those that live from their producer to their last reader.
//!
//! Tensors lie spread over all tiles; one that is read in the backward phase of a repeated block lives once for every
//! repetition. What cannot be resident is in the memory off the chip, and is streamed in for every operator that reads it.

use crate::arch::Bsp;
use crate::index::Id;
use crate::workload::{OperatorId, OperatorKind, Phase, TensorId, TensorRole, Workload};

/// The tensors of a workload in tile memory.
#[derive(Debug, Clone)]
pub(super) struct Live {
    /// Bytes of all tiles that hold weights, inputs and state throughout.
    pub(super) always_bytes: f64,
    /// Bytes of all tiles that hold intermediates, operator by operator.
    pub(super) at: Vec<f64>,
    /// Whether a tensor is streamed, by its index.
    pub(super) streamed: Vec<bool>,
}

impl Live {
    /// Everything resident.
    pub(super) fn new(workload: &Workload) -> Self {
        let mut live = Self {
            always_bytes: 0.0,
            at: vec![0.0; workload.operators.len()],
            streamed: vec![false; workload.tensors.len()],
        };
        for (id, tensor) in workload.tensors.iter_enumerated().filter(|(_, tensor)| tensor.view.is_none()) {
            if matches!(tensor.role, TensorRole::Weight | TensorRole::Input) {
                live.always_bytes += all_bytes(workload, id);
            }
        }
        live.add_intermediates(workload);
        live
    }

    fn add_intermediates(&mut self, workload: &Workload) {
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
        for (id, tensor) in workload.tensors.iter_enumerated().filter(|(_, tensor)| tensor.view.is_none()) {
            let Some((from, _)) = made[id.index()] else { continue };
            if matches!(tensor.role, TensorRole::Weight | TensorRole::Input) {
                continue;
            }
            let to = if tensor.role == TensorRole::Output { self.at.len().saturating_sub(1) } else { last[id.index()] };
            let once = tensor.stored_bytes() as f64;
            let bytes = if crosses[id.index()] { once * tensor.repeat as f64 } else { once };
            for at in self.at.iter_mut().take(to + 1).skip(from) {
                *at += bytes;
            }
        }
    }

    /// Bytes of a tile that holds them all while operator `op` runs, what is streamed for it included.
    pub(super) fn tile_bytes(&self, chip: &Bsp, workload: &Workload, op: OperatorId) -> f64 {
        let operator = &workload.operators[op];
        let used = operator.inputs.iter().chain([&operator.output]).map(|&t| workload.base(t));
        let streamed: f64 =
            used.filter(|t| self.streamed[t.index()]).map(|t| workload.tensors[t].stored_bytes() as f64).sum();
        let at = self.at.get(op.index()).copied().unwrap_or(0.0);
        ((self.always_bytes + at + streamed) / chip.tile.count as f64).ceil()
    }

    /// Moves the largest resident weight, or state of an optimiser, off the chip; `None` if there is none.
    pub(super) fn stream_one(&mut self, workload: &Workload) -> Option<TensorId> {
        let mut state = vec![false; workload.tensors.len()];
        for operator in workload.operators.iter().filter(|operator| operator.kind == OperatorKind::AdamUpdate) {
            operator.inputs.iter().for_each(|&input| state[workload.base(input).index()] = true);
        }
        let may = |id: TensorId| {
            let tensor = &workload.tensors[id];
            let is_held = tensor.role == TensorRole::Weight || (tensor.role == TensorRole::Input && state[id.index()]);
            tensor.view.is_none() && is_held && !self.streamed[id.index()]
        };
        let candidates = workload.tensors.ids().filter(|&id| may(id));
        let largest = candidates.max_by(|&a, &b| all_bytes(workload, a).total_cmp(&all_bytes(workload, b)))?;
        self.streamed[largest.index()] = true;
        self.always_bytes -= all_bytes(workload, largest);
        Some(largest)
    }
}

/// Bytes of a tensor, every repetition's.
pub(super) fn all_bytes(workload: &Workload, tensor: TensorId) -> f64 {
    workload.tensors[tensor].stored_bytes() as f64 * workload.tensors[tensor].repeat as f64
}
