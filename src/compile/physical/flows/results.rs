//! Results: from the PCUs of a stage into every buffer that takes its output.

use crate::program::{Amount, BufferRole, FlowKind, Mapping, StageId, resident_of};

use super::{FlowBuilder, pairs};

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
                BufferRole::Resident { tensor, .. } | BufferRole::Output { tensor, .. } => tensor == output,
                BufferRole::Weight { .. } | BufferRole::PartialSums { .. } | BufferRole::PartialFifo { .. } => false,
            };
            if !takes {
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
                    self.fill_piece(kind, Amount::ResultBytes, (1, 1), source, None, (index, i * wide + q));
                    continue;
                }
                for slice in 0..slices {
                    let rows = self.rows_in_common(stage, i, buffer.spec.role, slice / parts);
                    // Columns of every PCU are spread over all heads, or slices of K.
                    let Some(share) = rows.map(|(of, all)| (of, all * parts)) else { continue };
                    let kind = FlowKind::Emit { stage, group: b };
                    self.fill_piece(kind, Amount::ResultBytes, share, source, None, (index, slice));
                }
            }
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
