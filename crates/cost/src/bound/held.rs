//! Bytes that a section holds on chip whatever its mapping: weights, sequences, and what column tiles read again or leave waiting.

use rdusim_base::index::IndexVec;
use rdusim_graph::workload::TensorId;
use rdusim_program::{StageId, StageSpec};

use super::section::{SectionBound, Share, WHOLE, WholeOperand, share};
use super::stage::Along;

impl<'a> SectionBound<'a> {
    /// Of what stages along the columns of an axis read whole in every column tile, what takes most to keep. What a stage makes of one
    /// operand may be made again instead of kept, and so on back to where it comes from off chip.
    pub(super) fn operand_of_columns(&self, axis: usize) -> Option<WholeOperand> {
        let (graph, tensors) = (self.graph, &self.graph.workload.tensors);
        let is_plain = |tensor: TensorId| {
            let of = &tensors[tensor];
            let is_of_rows = of.rows == graph.rows && graph.column_axis(tensor) != Some(axis);
            is_of_rows && of.view.is_none() && of.mask.is_none() && of.window().is_none()
        };
        let row_bytes = |tensor: TensorId| tensors[tensor].columns * tensors[tensor].dtype.bytes();
        let from_off_chip = |mut tensor: TensorId| {
            let mut kept_row_bytes = u64::MAX;
            loop {
                if !is_plain(tensor) {
                    return None;
                }
                kept_row_bytes = kept_row_bytes.min(row_bytes(tensor));
                let Some(producer) = graph.producer(tensor) else {
                    return Some(WholeOperand { tensor, row_bytes: row_bytes(tensor), kept_row_bytes });
                };
                let spec = &graph.stages[producer];
                let &[operand] = spec.activations.as_slice() else { return None };
                (spec.sums.is_none() && spec.sequence.is_none()).then_some(())?;
                tensor = operand;
            }
        };
        let of_stage = |(stage, spec): (StageId, &'a StageSpec)| {
            let walks = self.along(stage, axis) == Along::Columns;
            spec.activations.iter().copied().filter(move |_| walks)
        };
        let read = graph.stages.iter_enumerated().flat_map(of_stage);
        read.filter_map(from_off_chip).max_by_key(|operand| operand.kept_row_bytes)
    }

    /// Column tiles of an axis, at least, where the weights of one lie in so many bytes.
    pub(super) fn fewest_tiles(&self, axis: usize, sram: u64) -> u64 {
        let along = self.weight_bytes(&|stage| if self.along(stage, axis) == Along::Off { (0, 1) } else { WHOLE });
        along.div_ceil(sram.max(1)).max(1)
    }

    /// Bytes that weights take in PMUs: of each stage a share of the values that it stores, of several sequences those of one.
    pub(super) fn weight_bytes(&self, part: &dyn Fn(StageId) -> Share) -> u64 {
        let tensors = &self.graph.workload.tensors;
        let bytes = |(stage, weight): (StageId, TensorId)| {
            let of = &tensors[weight];
            let bytes = (of.stored_elements() * of.dtype.bytes()).min(of.stored_bytes());
            share(bytes, part(stage)) / self.graph.sequences().max(1)
        };
        self.weights().map(bytes).sum()
    }

    /// Bytes of keys and values that stages of the section make: a sequence of them lies in PMUs.
    pub(super) fn sequence_bytes(&self) -> u64 {
        let (graph, mut seen) = (self.graph, Vec::new());
        let mut bytes = |spec: &StageSpec| {
            let second = spec.weight.filter(|second| spec.sequence.is_some() && !seen.contains(second))?;
            seen.push(second);
            Some(graph.workload.tensors[second].dense_bytes() / graph.sequences().max(1))
        };
        graph.stages.iter().filter_map(&mut bytes).sum()
    }

    /// Bytes of a row that wait, while all column tiles of a block pass, for stages behind one that accumulates over them: of
    /// tensors that a stage before it makes.
    pub(super) fn waiting_bytes(&self, axis: usize) -> u64 {
        let graph = self.graph;
        let accumulates = |s: StageId| self.along(s, axis) == Along::Depth;
        // Stages that begin when sums are complete.
        let mut is_late: IndexVec<StageId, bool> = IndexVec::new();
        for spec in &graph.stages {
            let makes_late = |p: StageId| accumulates(p) || is_late.get(p).copied().unwrap_or(false);
            let late = spec.activations.iter().any(|&t| graph.producer(t).is_some_and(makes_late));
            is_late.push(late);
        }
        let waits = |p: StageId, of: &StageSpec| {
            let takes_late = |(s, spec): (StageId, &StageSpec)| is_late[s] && spec.activations.contains(&of.output);
            !is_late[p] && !accumulates(p) && of.sums.is_none() && graph.stages.iter_enumerated().any(takes_late)
        };
        let tensors = &graph.workload.tensors;
        let row_bytes = |(p, of): (StageId, &StageSpec)| {
            let tensor = &tensors[of.output];
            let is_off = graph.column_axis(of.output) != Some(axis) && tensor.mask.is_none();
            (is_off && waits(p, of)).then(|| tensor.columns * tensor.dtype.bytes())
        };
        graph.stages.iter_enumerated().filter_map(row_bytes).sum()
    }
}
