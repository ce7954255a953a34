//! Copies of resident buffers, and off-chip streams over their address generators.

use rdusim_program::{Amount, Buffer, BufferRole, FlowEnd, FlowKind, StreamId};

use super::{BufferSlice, End, FlowBuilder};

impl FlowBuilder<'_> {
    /// Resident buffers into the copies beside the PCUs.
    pub(super) fn copies(&mut self) {
        for (resident, buffer) in self.placed.buffers.iter_enumerated() {
            let BufferRole::Resident { stage, tensor } = buffer.spec.role else { continue };
            let beside = |b: &Buffer| b.spec.role == BufferRole::Operand { stage, tensor };
            let Some(operand) = self.placed.buffers.position(beside) else { continue };
            for slice in 0..buffer.spec.slices {
                let piece = buffer.piece(0, slice);
                let banks: u64 = piece.parts.iter().map(|p| p.banks).sum();
                for (index, part) in piece.parts.iter().enumerate() {
                    let share = (part.banks, banks * buffer.spec.slices);
                    self.fill_piece(
                        FlowKind::Copy { resident },
                        Amount::SlotBytes,
                        share,
                        self.read_end(part),
                        Some(FlowEnd { buffer: resident, slice, part: index }),
                        BufferSlice { buffer: operand, slice },
                    );
                }
            }
        }
    }

    /// Off-chip streams into and out of buffers, over the stream's address generators.
    pub(super) fn off_chip(&mut self) {
        for (stream, off_chip) in self.placed.streams.iter_enumerated() {
            let ags: Vec<End> = off_chip
                .ags
                .iter()
                .map(|&(agcu, ag)| (self.fabric.ag(agcu, ag), self.chip.grid.agcus[agcu as usize].site))
                .collect();
            for (index, buffer) in self.placed.buffers.iter_enumerated() {
                if !off_chip.stream.is_end(&self.placed.buffers, index) {
                    continue;
                }
                let slices = buffer.spec.slices;
                let each = (ags.len() as u64 / slices).max(1);
                for slice in 0..slices {
                    for a in 0..each {
                        let ag = ags[((slice * each + a) % ags.len() as u64) as usize];
                        let share = (1, slices * each);
                        if off_chip.stream.writes {
                            self.drain(stream, share, BufferSlice { buffer: index, slice }, ag);
                        } else {
                            let kind = FlowKind::Fill { stream, buffer: index };
                            self.fill_piece(
                                kind,
                                Amount::SlotBytes,
                                share,
                                ag,
                                None,
                                BufferSlice { buffer: index, slice },
                            );
                        }
                    }
                }
            }
        }
    }

    fn drain(&mut self, stream: StreamId, share: (u64, u64), BufferSlice { buffer, slice }: BufferSlice, ag: End) {
        let piece = self.placed.buffers[buffer].piece(0, slice);
        let banks: u64 = piece.parts.iter().map(|p| p.banks).sum();
        for (index, part) in piece.parts.iter().enumerate() {
            let share = (share.0 * part.banks, share.1 * banks);
            let source = self.read_end(part);
            let flow = self.add(FlowKind::Drain { stream }, Amount::SlotBytes, share, source, &[ag]);
            flow.reads = Some(FlowEnd { buffer, slice, part: index });
        }
    }
}
