//! Results: from the PCUs of a stage into every buffer that takes its output.

use std::ops::Range;

use rdusim_cost::cost::made_columns;
use rdusim_program::{Amount, BufferId, BufferRole, FlowKind, Mapping, StageId, resident_of};

use super::{BufferSlice, FlowBuilder, pairs};

impl FlowBuilder<'_> {
    /// Results of a stage into every buffer that takes its output.
    pub(super) fn results(&mut self, stage: StageId) {
        let s = &self.placed.stages[stage];
        let output = s.spec.output;
        let (pm, wide, groups) = (s.mapping.pm(), s.group_width(), s.mapping.groups());
        let chain = if let Mapping::Simd(m) = s.mapping { m.chain } else { 1 };
        for (index, buffer) in self.placed.buffers.iter_enumerated() {
            let takes = match buffer.spec.role {
                BufferRole::Operand { tensor, .. } => {
                    tensor == output && resident_of(&self.placed.buffers, index).is_none()
                }
                BufferRole::Resident { tensor, .. }
                | BufferRole::Output { tensor, .. }
                | BufferRole::Weight { tensor, .. } => tensor == output,
                BufferRole::PartialSums { .. } | BufferRole::PartialFifo { .. } | BufferRole::State { .. } => false,
            };
            if !takes {
                continue;
            }
            if let BufferRole::Weight { stage: reader, .. } = buffer.spec.role {
                self.second_operand(stage, reader, index);
                continue;
            }
            let slices = buffer.spec.slices;
            let parts = self.parts_of(buffer.spec.role);
            let emitting = pairs(groups, pm * wide).filter(|&(b, _)| !s.mapping.forwards_sums(b));
            for (b, (i, q)) in emitting.map(|(b, r)| (b, (r / wide, r % wide))) {
                let pcu = s.pcu(b, i, q * chain + chain - 1);
                let source = (self.fabric.pcu_out(pcu, 0), self.pcu_site(pcu));
                if s.spec.sums.is_some() {
                    let kind = FlowKind::Emit { stage, group: b };
                    self.fill_piece(
                        kind,
                        Amount::ResultBytes,
                        (1, 1),
                        source,
                        None,
                        BufferSlice { buffer: index, slice: i * wide + q },
                    );
                    continue;
                }
                for slice in 0..slices {
                    let rows = self.rows_in_common(stage, i, buffer.spec.role, slice / parts);
                    // Columns of every PCU are spread over all heads, or slices of K.
                    let Some(share) = rows.map(|(of, all)| (of, all * parts)) else { continue };
                    let kind = FlowKind::Emit { stage, group: b };
                    self.fill_piece(
                        kind,
                        Amount::ResultBytes,
                        share,
                        source,
                        None,
                        BufferSlice { buffer: index, slice },
                    );
                }
            }
        }
    }

    /// Results into the second operand of another stage: to the columns of PCUs that work on their columns, which share their
    /// rows where rows are columns of the product.
    fn second_operand(&mut self, stage: StageId, reader: StageId, index: BufferId) {
        let s = &self.placed.stages[stage];
        let Mapping::Gemm(m) = &self.placed.stages[reader].mapping else { return };
        let Some(shape) = self.placed.work[reader].shape() else { return };
        let (pm, wide) = (s.mapping.pm(), s.group_width());
        let chain = if let Mapping::Simd(m) = s.mapping { m.chain } else { 1 };
        let held: Vec<(Vec<Range<u64>>, u64)> = (0..self.placed.buffers[index].spec.slices)
            .filter_map(|slice| made_columns(self.graph, reader, &shape, m, slice))
            .collect();
        let last = self.placed.nest.tiling().rows_of(self.placed.nest.row_tiles() - 1);
        let has_rows = |i: u64| {
            [self.placed.nest.tile_rows, last]
                .into_iter()
                .any(|rows| !self.placed.work[stage].slice_rows(rows, i).is_empty())
        };
        let emitting = pairs(s.mapping.groups(), pm * wide).filter(|&(b, _)| !s.mapping.forwards_sums(b));
        for (b, (i, q)) in emitting.map(|(b, r)| (b, (r / wide, r % wide))).filter(|&(_, (i, _))| has_rows(i)) {
            let made = self.columns_of_pcu(stage, b, q);
            let length = |run: &Range<u64>| run.end - run.start;
            let all: u64 = made.iter().map(length).sum();
            let pcu = s.pcu(b, i, q * chain + chain - 1);
            let source = (self.fabric.pcu_out(pcu, 0), self.pcu_site(pcu));
            for (slice, (runs, sharers)) in (0..).zip(&held) {
                let common = |run: &Range<u64>| {
                    made.iter().map(|of| of.end.min(run.end).saturating_sub(of.start.max(run.start))).sum::<u64>()
                };
                let common: u64 = runs.iter().map(common).sum();
                if common > 0 {
                    let kind = FlowKind::Emit { stage, group: b };
                    self.fill_piece(
                        kind,
                        Amount::ResultBytes,
                        (common, all * sharers),
                        source,
                        None,
                        BufferSlice { buffer: index, slice },
                    );
                }
            }
        }
    }

    /// Columns of its result that a PCU makes; a stage whose columns are not cut makes the same in all column tiles.
    fn columns_of_pcu(&self, stage: StageId, group: u64, q: u64) -> Vec<Range<u64>> {
        let s = &self.placed.stages[stage];
        let columns = self.graph.workload.tensors[s.spec.output].columns;
        match s.mapping {
            Mapping::Simd(_) => vec![self.placed.work[stage].part_of(columns, 0, q)],
            Mapping::Gemm(m) => match s.tiles.first().and_then(|groups| groups.get(group as usize)) {
                Some(tiles) => tiles.iter().map(|tile| tile.columns_of(q, m.multicast_width)).collect(),
                // Heads of a product with heads: whichever it works on.
                None => std::iter::once(0..columns).collect(),
            },
        }
    }

    /// The share of the rows of a stage's row slice that go to a slice of a buffer; `None` without any, in full row tiles
    /// and in the short last one, whose rows are divided differently.
    fn rows_in_common(&self, stage: StageId, i: u64, role: BufferRole, slice: u64) -> Option<(u64, u64)> {
        let taker = match role {
            BufferRole::Operand { stage, .. } | BufferRole::Resident { stage, .. } => stage,
            _ => stage,
        };
        let last = self.placed.nest.tiling().rows_of(self.placed.nest.row_tiles() - 1);
        [self.placed.nest.tile_rows, last].into_iter().find_map(|rows| {
            let made = self.placed.work[stage].slice_rows(rows, i);
            let taken = self.placed.work[taker].slice_rows(rows, slice);
            let common = made.end.min(taken.end).saturating_sub(made.start.max(taken.start));
            (common > 0).then(|| (common, made.end - made.start))
        })
    }

    /// Streams of heads, or slices of K, side by side in a row slice of a buffer.
    fn parts_of(&self, role: BufferRole) -> u64 {
        match role {
            BufferRole::Operand { stage, .. } | BufferRole::Resident { stage, .. } => {
                match self.placed.stages[stage].mapping {
                    Mapping::Gemm(m) if self.placed.stages[stage].spec.sums.is_none() => m.parts(),
                    _ => 1,
                }
            }
            _ => 1,
        }
    }
}
