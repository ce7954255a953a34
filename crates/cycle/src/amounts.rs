//! What one event of a flow moves, and what a slot of an off-chip stream holds.
//!
//! All of it follows from the program, the shapes and the masks by the definitions of `docs/timing-model.md`. Nothing is
//! shared with `cost`, so that a mistake there shows as a difference of the two engines.

use std::rc::Rc;

use rdusim_base::index::IndexVec;
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::TensorId;
use rdusim_program::{
    Amount, BufferRole, Flow, FlowKind, Iteration, LoopLevel, Mapping, OffChip, ProcessGraph, Schedule, Section,
    SectionGraph, StageId, StreamId, Tiling, continues, emits, forwards, merges, shared,
};

use super::gemm_amounts::GemmAmounts;
use super::simd_amounts::SimdAmounts;
use super::stored;

/// What the firings of a stage work through and move.
#[derive(Debug, Clone)]
pub(super) enum StageAmounts {
    /// Of a GEMM on systolic arrays.
    Gemm(Rc<GemmAmounts>),
    /// Of a SIMD function.
    Simd(Rc<SimdAmounts>),
}

impl StageAmounts {
    /// Flits that a firing on a row tile of `rows` moves.
    fn flits(&self, amount: Amount, at: Iteration, group: u64, rows: u64) -> u64 {
        match self {
            Self::Gemm(gemm) => gemm.flits(amount, at, group, rows),
            Self::Simd(simd) => simd.flits(amount, at.column_tile, rows),
        }
    }
}

/// Flits and bytes of a section's events.
pub(super) struct Amounts<'a> {
    /// The chip.
    pub(super) chip: &'a Chip,
    /// The operators of the section.
    pub(super) graph: SectionGraph<'a>,
    /// The section.
    pub(super) section: &'a Section,
    /// Who fires, and what each firing needs.
    pub(super) processes: ProcessGraph,
    /// The loops, and the nests over them.
    pub(super) schedule: &'a Schedule,
    /// How firings cut rows and columns.
    pub(super) tiling: Tiling,
    /// What the firings of every stage move.
    pub(super) stages: IndexVec<StageId, StageAmounts>,
    /// Bytes of the slots of every stream of a weight, column tile by column tile; empty for other streams.
    weight_slots: IndexVec<StreamId, Vec<u64>>,
}

impl<'a> Amounts<'a> {
    /// Those of a section; `None` if the chip lacks a data type, or the output tiles of a stage do not fit the nest.
    pub(super) fn new(chip: &'a Chip, graph: SectionGraph<'a>, section: &'a Section) -> Option<Self> {
        let tiling = section.schedule.tiling();
        let mut stages = IndexVec::new();
        for (s, stage) in section.stages.iter_enumerated() {
            stages.push(match &stage.mapping {
                Mapping::Gemm(m) => StageAmounts::Gemm(Rc::new(GemmAmounts::new(chip, &graph, tiling, s, stage, m)?)),
                Mapping::Simd(m) => StageAmounts::Simd(Rc::new(SimdAmounts::new(chip, &graph, tiling, s, stage, m)?)),
            });
        }
        let slots = |off_chip: &OffChip| {
            if off_chip.stream.weight { weight_slots(&graph, tiling, off_chip) } else { Vec::new() }
        };
        let weight_slots = section.streams.iter().map(slots).collect();
        let (processes, schedule) = (ProcessGraph::new(section), &*section.schedule);
        Some(Self { chip, graph, section, processes, schedule, tiling, stages, weight_slots })
    }

    /// Where the `n`-th point of a nest begins; if `late`, where it is complete.
    pub(super) fn step(&self, level: LoopLevel, n: u64, late: bool) -> Iteration {
        let step = self.schedule.step(level, n);
        if late { self.schedule.complete(level, step) } else { step }
    }

    /// Where the `n`-th firing of a stage stands.
    pub(super) fn stage_step(&self, stage: StageId, n: u64) -> Iteration {
        self.step(self.section.stages[stage].level, n, true)
    }

    /// Flits that a flow has moved at the end of every event in which it moves some.
    pub(super) fn ends(&self, flow: &Flow) -> Box<[u64]> {
        let (level, late) = match flow.kind {
            FlowKind::Feed { stage, .. }
            | FlowKind::Emit { stage, .. }
            | FlowKind::State { stage, .. }
            | FlowKind::PartialRead { stage, .. }
            | FlowKind::PartialWrite { stage, .. }
            | FlowKind::Forward { stage, .. }
            | FlowKind::Merge { stage, .. } => (self.section.stages[stage].level, true),
            FlowKind::Fill { stream, .. } => (self.section.streams[stream].stream.level, false),
            FlowKind::Drain { stream } => (self.section.streams[stream].stream.level, true),
            FlowKind::Copy { .. } => (LoopLevel::FIRING, false),
        };
        let mut moved = 0;
        let first = match flow.kind {
            FlowKind::Fill { stream, .. } => self.first_slot(stream),
            _ => 0,
        };
        let events = (first..self.schedule.count(level)).map(|n| self.flits(flow, self.step(level, n, late)));
        let ends = events.filter(|&flits| flits > 0).map(|flits| {
            moved += flits;
            moved
        });
        ends.collect()
    }

    /// The first slot of a stream that this section moves: the section before has loaded what comes before it.
    pub(super) fn first_slot(&self, stream: StreamId) -> u64 {
        u64::from(self.section.prefetched.contains(&stream))
    }

    /// Flits that a flow moves in the event at a step.
    pub(super) fn flits(&self, flow: &Flow, at: Iteration) -> u64 {
        let flit = self.chip.network.flit_bytes;
        let of_firing = |stage: StageId, group: u64, at: Iteration| {
            self.stages[stage].flits(flow.amount, at, group, self.tiling.rows_of(at.row_tile))
        };
        let of_stage = |stage: StageId, group: u64| of_firing(stage, group, at);
        let emits_here = |stage: StageId, group| emits(&self.section.stages[stage], group, self.schedule, at);
        let all = match flow.kind {
            FlowKind::Feed { stage, group } => of_stage(stage, group),
            FlowKind::Emit { stage, group } | FlowKind::State { stage, group } if emits_here(stage, group) => {
                of_stage(stage, group)
            }
            FlowKind::PartialRead { stage, group }
                if continues(&self.section.stages[stage], group, self.schedule, at) =>
            {
                // What its own stage has left before, or what the slice of K before leaves now.
                let before = self.processes.sums_before(stage, at).unwrap_or(at);
                of_firing(stage, group, before)
            }
            FlowKind::PartialWrite { stage, group }
                if !emits_here(stage, group) && !forwards(&self.section.stages[stage], group, self.schedule, at) =>
            {
                of_stage(stage, group)
            }
            FlowKind::Forward { stage, group } if forwards(&self.section.stages[stage], group, self.schedule, at) => {
                of_stage(stage, group)
            }
            FlowKind::Merge { stage, group } if merges(&self.section.stages[stage], group, self.schedule, at) => {
                of_stage(stage, group)
            }
            FlowKind::Emit { .. }
            | FlowKind::State { .. }
            | FlowKind::PartialRead { .. }
            | FlowKind::PartialWrite { .. }
            | FlowKind::Forward { .. }
            | FlowKind::Merge { .. } => 0,
            FlowKind::Fill { stream, .. } | FlowKind::Drain { stream } => {
                self.stream_bytes(stream, at).0.div_ceil(flit)
            }
            FlowKind::Copy { resident } => match self.section.buffers[resident].spec.role {
                BufferRole::Resident { tensor, .. } => self.slot_bytes(tensor, at).div_ceil(flit),
                _ => 0,
            },
        };
        shared(all, flow.share)
    }

    /// Columns of an activation tensor that a column tile has.
    fn columns(&self, tensor: TensorId, column_tile: u64) -> u64 {
        match self.tiling.range_of(self.graph.column_axis(tensor), column_tile) {
            Some(range) => (range.end - range.start) * self.runs_of_row(tensor),
            None => self.graph.workload.tensors[tensor].columns,
        }
    }

    /// Runs of columns of a row that a column tile has: of scores whose keys are cut, one for every head.
    fn runs_of_row(&self, tensor: TensorId) -> u64 {
        let cut = self.tiling.tiled_axis.filter(|cut| self.graph.column_axis(tensor) == Some(cut.axis));
        self.graph.cut_keys(cut).map_or(1, |keys| keys.heads)
    }

    /// Rows and columns of the part of a result that is added up over rows and complete at a step; `None` of other tensors.
    fn sum_extent(&self, tensor: TensorId, at: Iteration) -> Option<(u64, u64)> {
        let (stage, (each, word)) = self.graph.summed(tensor)?;
        let of = &self.graph.workload.tensors[self.graph.main_output(stage)];
        let part = |axis: Option<usize>, whole: u64| {
            self.tiling.range_of(axis, at.column_tile).map_or(whole, |range| range.end - range.start)
        };
        let rows = match self.graph.form(stage) {
            Some(form) if form.instances > 1 => form.m,
            _ => part(self.graph.row_axis(tensor), of.rows),
        };
        Some((rows, part(self.graph.column_axis(tensor), of.columns) / word * each))
    }

    /// Bytes of a slot of activations: a row tile of the columns of a column tile, or a part of a sum. Windows of images take
    /// their share of the pixels under any window, sparse tensors that of the stored values and metadata.
    fn slot_bytes(&self, tensor: TensorId, at: Iteration) -> u64 {
        if let Some((rows, columns)) = self.sum_extent(tensor, at) {
            return rows * columns * self.graph.dtype(tensor).bytes();
        }
        let of = &self.graph.workload.tensors[tensor];
        let first = at.row_tile * self.tiling.tile_rows;
        let rows = self.tiling.rows_of(at.row_tile);
        let elements = match of.window() {
            Some(window) => {
                let upto = |row: u64| u128::from(window.elements) * u128::from(row) / u128::from(of.rows.max(1));
                (upto(first + rows) - upto(first)) as u64
            }
            None => rows * self.columns(tensor, at.column_tile),
        };
        if of.mask.is_none() {
            return elements * of.dtype.bytes();
        }
        let all = u128::from(of.rows) * u128::from(of.columns);
        (u128::from(elements) * u128::from(of.stored_bytes())).div_ceil(all.max(1)) as u64
    }

    /// Payload of a stream's slot, and the bytes of the bursts that hold it.
    pub(super) fn stream_bytes(&self, stream: StreamId, at: Iteration) -> (u64, u64) {
        let (payload, moved, _) = self.stored_slot(stream, at);
        (payload, moved)
    }

    /// Payload of a stream's slot, the bytes of the bursts that hold it, and the runs that it is stored in.
    pub(super) fn stored_slot(&self, stream: StreamId, at: Iteration) -> (u64, u64, u64) {
        let off_chip = &self.section.streams[stream];
        let burst = self.chip.memory[off_chip.tier].burst_bytes;
        if let Some(&last) = self.weight_slots[stream].last() {
            let payload = self.weight_slots[stream].get(at.column_tile as usize).copied().unwrap_or(last);
            return (payload, payload.next_multiple_of(burst), 1);
        }
        let tensor = off_chip.stream.tensor;
        let payload = self.slot_bytes(tensor, at);
        // Whole rows lie one behind the other; of a part of the columns every row is a run of its own.
        let of = &self.graph.workload.tensors[tensor];
        let (rows, columns) = self
            .sum_extent(tensor, at)
            .unwrap_or_else(|| (self.tiling.rows_of(at.row_tile), self.columns(tensor, at.column_tile)));
        let runs = match of.view {
            // Columns are the rows of the tensor as it lies.
            Some(view) if view.transposed => columns,
            // Rows of a table lie wherever the indices say.
            Some(view) if view.gathered => rows,
            // Of exchanged rows and heads, a head of a row lies in one.
            Some(_) if self.graph.workload.piece_elements(tensor).is_some() => {
                let each = self.graph.workload.piece_elements(tensor).unwrap_or(columns).max(1);
                rows * columns.div_ceil(each)
            }
            // Rows of the first columns of a wider tensor lie apart.
            Some(view) if view.is_part && columns < self.graph.workload.tensors[view.of].columns => rows,
            // Sparse tensors and pixels lie as they are moved.
            _ if columns == of.columns || of.mask.is_some() || of.window().is_some() => 1,
            _ => rows * self.runs_of_row(tensor),
        };
        (payload, runs * (payload / runs).next_multiple_of(burst), runs)
    }
}

/// Stored bytes (values and metadata) of a weight that each slot of its stream brings: all at once, or column tile by column tile, each
/// column tile its share by stored elements, rounded so that all column tiles together are the whole.
fn weight_slots(graph: &SectionGraph<'_>, tiling: Tiling, off_chip: &OffChip) -> Vec<u64> {
    let weight = off_chip.stream.tensor;
    let tensor = &graph.workload.tensors[weight];
    let mut bytes = tensor.stored_bytes();
    if off_chip.stream.level == LoopLevel::ONCE {
        return vec![bytes];
    }
    let mut readers = graph.stages.ids().filter(|&s| graph.stages[s].weight == Some(weight));
    if let Some(form) = readers.find_map(|s| graph.form(s)).filter(|form| form.instances > 1) {
        // Every sequence has its own: all of it, or column tile by column tile.
        bytes /= form.instances;
        if stored::column_tiles_of_weight(graph, tiling, weight) == 1 {
            return vec![bytes];
        }
    }
    let elements = |column_tile| {
        let (columns, k) = stored::part_of_weight(graph, tiling, weight, column_tile);
        stored::stored_elements(tensor.mask.as_deref(), &columns, &k)
    };
    let elements: Vec<u64> = (0..stored::column_tiles_of_weight(graph, tiling, weight)).map(elements).collect();
    let all = u128::from(elements.iter().sum::<u64>().max(1));
    let (mut upto, mut before) = (0, 0);
    let slots = elements.into_iter().map(|elements| {
        upto += elements;
        let end = (u128::from(bytes) * u128::from(upto) / all) as u64;
        end - std::mem::replace(&mut before, end)
    });
    slots.collect()
}
