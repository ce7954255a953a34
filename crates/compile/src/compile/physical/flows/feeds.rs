//! Operand streams: activations, weights and partial sums, from the PMUs beside a stage into its PCUs.

use std::ops::Range;

use rdusim_program::{
    Amount, BufferId, BufferRole, FlowEnd, FlowKind, GemmMapping, Mapping, Part, PcuId, Piece, Reduction, StageId,
    Style,
};

use super::{BufferSlice, End, FlowBuilder, pairs};

/// PCU ports of gathered activations: beside the weights', which have the second.
const GATHER_PORTS: [u32; 2] = [0, 2];

impl FlowBuilder<'_> {
    /// Operand streams of a stage: activations, weights, partial sums.
    pub(super) fn feeds(&mut self, stage: StageId) {
        let s = &self.placed.stages[stage];
        let (pm, wide, groups) = (s.mapping.pm(), s.group_width(), s.mapping.groups());
        for (index, buffer) in self.placed.buffers.iter_enumerated() {
            match buffer.spec.role {
                BufferRole::Operand { stage: of, tensor } if of == stage => {
                    let operand = s.spec.activations.iter().position(|&t| t == tensor).unwrap_or(0) as u32;
                    match s.mapping {
                        Mapping::Gemm(m) if s.spec.sums.is_some() => self.feed_sums(stage, index, operand, &m),
                        Mapping::Gemm(m) => {
                            // Gathered vectors of a cycle come from different PMUs, into different ports.
                            let ports: &[u32] = if m.style == Style::Gather { &GATHER_PORTS } else { &[0] };
                            let each = wide / m.streams;
                            for (b, rest) in pairs(groups, pm * m.streams) {
                                let (i, head) = (rest / m.streams, rest % m.streams);
                                let pcus: Vec<PcuId> =
                                    (head * each..(head + 1) * each).map(|q| s.pcu(b, i, q)).collect();
                                let slice = i * m.parts() + m.k_slice(b) * m.streams + head;
                                let piece = (index, b % m.k_slice_groups(), slice);
                                let kind = FlowKind::Feed { stage, group: b };
                                self.feed(kind, Amount::Activations, piece, &pcus, ports);
                            }
                        }
                        Mapping::Simd(m) => {
                            for (i, j) in pairs(pm, m.pn) {
                                self.feed_simd(stage, index, i, j, m.chain, operand);
                            }
                        }
                    }
                }
                BufferRole::Weight { stage: of, .. } if of == stage => {
                    for (b, q) in pairs(groups, wide) {
                        let pcus: Vec<PcuId> = (0..pm).map(|i| s.pcu(b, i, q)).collect();
                        let kind = FlowKind::Feed { stage, group: b };
                        self.feed(kind, Amount::Weights, (index, 0, b * wide + q), &pcus, &[1]);
                    }
                }
                BufferRole::PartialSums { stage: of } if of == stage => {
                    for (b, rest) in pairs(groups, pm * wide) {
                        let pcu = s.pcu(b, rest / wide, rest % wide);
                        let place = BufferSlice { buffer: index, slice: b * pm * wide + rest };
                        self.partial_read(FlowKind::PartialRead { stage, group: b }, pcu, place);
                        self.partial_write(FlowKind::PartialWrite { stage, group: b }, pcu, place);
                    }
                }
                BufferRole::State { stage: of, .. } if of == stage => {
                    for (i, q) in pairs(pm, wide) {
                        self.state(stage, s.pcu(0, i, q), BufferSlice { buffer: index, slice: i * wide + q });
                    }
                }
                BufferRole::PartialFifo { stage: of, slice } if of == stage => {
                    let column_groups = groups / s.mapping.pk();
                    for (column_group, rest) in pairs(column_groups, pm * wide) {
                        let end = |slice: u64| {
                            let group = slice * column_groups + column_group;
                            (group, s.pcu(group, rest / wide, rest % wide))
                        };
                        let place = BufferSlice { buffer: index, slice: column_group * pm * wide + rest };
                        let (group, pcu) = end(slice);
                        self.partial_write(FlowKind::Forward { stage, group }, pcu, place);
                        let Some((group, pcu)) = s.mapping.next_slice(slice).map(end) else { continue };
                        let merges = s.mapping.reduction() == Reduction::Tree;
                        let kind = if merges {
                            FlowKind::Merge { stage, group }
                        } else {
                            FlowKind::PartialRead { stage, group }
                        };
                        self.partial_read(kind, pcu, place);
                    }
                }
                _ => {}
            }
        }
    }

    /// One flow for each part of a piece; parts take turns on the PCUs' `ports`.
    fn feed(
        &mut self,
        kind: FlowKind,
        amount: Amount,
        (buffer, copy, slice): (BufferId, u64, u64),
        pcus: &[PcuId],
        ports: &[u32],
    ) {
        let piece = self.placed.buffers[buffer].piece(copy, slice);
        let banks: u64 = piece.parts.iter().map(|p| p.banks).sum();
        let mut sinks = std::mem::take(&mut self.sinks);
        for (index, (part, &port)) in piece.parts.iter().zip(ports.iter().cycle()).enumerate() {
            sinks.clear();
            sinks.extend(pcus.iter().map(|&p| (self.fabric.pcu_in(p, port), self.pcu_site(p))));
            let source = self.read_end(part);
            let flow = self.add(kind, amount, (part.banks, banks), source, &sinks);
            flow.reads = Some(FlowEnd { buffer, slice, part: index });
        }
        self.sinks = sinks;
    }

    /// The streams of an operand of a stage that adds up over rows, from the parts of its one piece: X to the rows of PCUs,
    /// by heads, dY to the columns.
    fn feed_sums(&mut self, stage: StageId, buffer: BufferId, operand: u32, m: &GemmMapping) {
        let s = &self.placed.stages[stage];
        let (each, wide) = (m.pn / m.streams, m.pn);
        let groups: Vec<Vec<(u64, u64)>> = if operand == 0 {
            let of = |(i, head)| (head * each..(head + 1) * each).map(|q| (i, q)).collect();
            pairs(m.pm, m.streams).map(of).collect()
        } else {
            (0..wide).map(|q| (0..m.pm).map(|i| (i, q)).collect()).collect()
        };
        let (amount, port) = if operand == 0 { (Amount::Activations, 0) } else { (Amount::Weights, 1) };
        let piece = self.placed.buffers[buffer].piece(0, 0);
        for (turn, group) in groups.iter().enumerate() {
            let sinks: Vec<End> = group
                .iter()
                .map(|&(i, q)| s.pcu(0, i, q))
                .map(|pcu| (self.fabric.pcu_in(pcu, port), self.pcu_site(pcu)))
                .collect();
            for (p, part) in piece.parts.iter().enumerate() {
                let Some(share) = self.sums_in_common(stage, operand, piece, p, group[0]) else { continue };
                // Neighbours take turns on the part's read ports.
                let read_port = (part.read_port + turn as u64) % self.chip.pmu.read_ports;
                let source = self.read_end(&Part { read_port, ..*part });
                let flow = self.add(FlowKind::Feed { stage, group: 0 }, amount, share, source, &sinks);
                flow.reads = Some(FlowEnd { buffer, slice: 0, part: p });
            }
        }
    }

    /// The share of what a PCU that adds up takes of an operand that a part holds; `None` without any, in full column tiles and
    /// in the short last one.
    fn sums_in_common(
        &self,
        stage: StageId,
        operand: u32,
        piece: &Piece,
        part: usize,
        pcu: (u64, u64),
    ) -> Option<(u64, u64)> {
        let reducer = self.placed.work[stage].reducer()?;
        [0, self.placed.nest.column_tiles() - 1].into_iter().find_map(|column_tile| {
            let wanted = reducer.wanted(column_tile, operand as usize, pcu.0, pcu.1);
            let held = piece.span(part, reducer.width(column_tile, operand as usize));
            let length = |run: &Range<u64>| run.end.saturating_sub(run.start);
            let common: u64 =
                wanted.iter().map(|run| length(&(run.start.max(held.start)..run.end.min(held.end)))).sum();
            (common > 0).then(|| (common, wanted.iter().map(length).sum()))
        })
    }

    /// The streams of one SIMD PCU: from the parts of its row slice that hold its columns, then along its chain.
    fn feed_simd(&mut self, stage: StageId, buffer: BufferId, i: u64, j: u64, chain: u64, operand: u32) {
        let s = &self.placed.stages[stage];
        let piece = self.placed.buffers[buffer].piece(0, i);
        let kind = FlowKind::Feed { stage, group: 0 };
        let role = self.placed.buffers[buffer].spec.role;
        // What all heads share goes to the pipelines of a row slice together, if these take the same of it in the same order.
        let is_common = matches!(role, BufferRole::Operand { tensor, .. } if self.graph.is_common(stage, tensor));
        let heads = if is_common { 0..s.group_width() } else { j..j + 1 };
        let sinks: Vec<End> = heads
            .map(|j| s.pcu(0, i, j * chain))
            .map(|head| (self.fabric.pcu_in(head, operand), self.pcu_site(head)))
            .collect();
        let parts = if is_common && j > 0 { 0 } else { piece.parts.len() };
        for (p, part) in piece.parts.iter().enumerate().take(parts) {
            let Some(share) = self.columns_in_common(stage, role, piece, p, j) else {
                continue;
            };
            // Neighbours take turns on the part's read ports.
            let read_port = (part.read_port + j) % self.chip.pmu.read_ports;
            let source = self.read_end(&Part { read_port, ..*part });
            let flow = self.add(kind, Amount::Activations, share, source, &sinks);
            flow.reads = Some(FlowEnd { buffer, slice: i, part: p });
        }
        if operand > 0 {
            return;
        }
        for link in 1..chain {
            let (from, to) = (s.pcu(0, i, j * chain + link - 1), s.pcu(0, i, j * chain + link));
            let source = (self.fabric.pcu_out(from, 0), self.pcu_site(from));
            let sink = [(self.fabric.pcu_in(to, 0), self.pcu_site(to))];
            self.add(kind, Amount::Activations, (1, 1), source, &sink);
        }
    }

    /// The share of the columns of a SIMD column slice that a part holds; `None` without any, in full column tiles and in the
    /// short last one.
    fn columns_in_common(
        &self,
        stage: StageId,
        role: BufferRole,
        piece: &Piece,
        part: usize,
        slice: u64,
    ) -> Option<(u64, u64)> {
        let BufferRole::Operand { tensor, .. } = role else { return None };
        let is_cut = self.placed.nest.tiling().cuts(self.graph.column_axis(tensor));
        [0, self.placed.nest.column_tiles() - 1].into_iter().find_map(|column_tile| {
            let work = &self.placed.work[stage];
            let columns = self.graph.workload.tensors[tensor].columns;
            let columns = if is_cut { work.width(column_tile) } else { columns };
            let wanted = work.given_to(columns, self.graph.is_shared(stage, tensor), column_tile, slice);
            let held = piece.span(part, columns);
            let common = wanted.end.min(held.end).saturating_sub(wanted.start.max(held.start));
            (common > 0).then(|| (common, wanted.end - wanted.start))
        })
    }

    /// What the step in the tail of a PCU reads, from the piece beside it.
    fn state(&mut self, stage: StageId, pcu: PcuId, BufferSlice { buffer, slice }: BufferSlice) {
        let piece = self.placed.buffers[buffer].piece(0, slice);
        let banks: u64 = piece.parts.iter().map(|p| p.banks).sum();
        let into = (self.fabric.pcu_in(pcu, 2), self.pcu_site(pcu));
        for (index, part) in piece.parts.iter().enumerate() {
            let from = self.read_end(part);
            let kind = FlowKind::State { stage, group: 0 };
            let flow = self.add(kind, Amount::State, (part.banks, banks), from, &[into]);
            flow.reads = Some(FlowEnd { buffer, slice, part: index });
        }
    }

    /// Partial sums from a piece of a buffer to a PCU of a lockstep group.
    fn partial_read(&mut self, kind: FlowKind, pcu: PcuId, BufferSlice { buffer, slice }: BufferSlice) {
        let piece = self.placed.buffers[buffer].piece(0, slice);
        let banks: u64 = piece.parts.iter().map(|p| p.banks).sum();
        let into = (self.fabric.pcu_in(pcu, 2), self.pcu_site(pcu));
        for (index, part) in piece.parts.iter().enumerate() {
            let from = self.read_end(part);
            let flow = self.add(kind, Amount::Partials, (part.banks, banks), from, &[into]);
            flow.reads = Some(FlowEnd { buffer, slice, part: index });
        }
    }

    /// Partial sums from a PCU of a lockstep group to a piece of a buffer.
    fn partial_write(&mut self, kind: FlowKind, pcu: PcuId, BufferSlice { buffer, slice }: BufferSlice) {
        let piece = self.placed.buffers[buffer].piece(0, slice);
        let banks: u64 = piece.parts.iter().map(|p| p.banks).sum();
        let out = (self.fabric.pcu_out(pcu, 1), self.pcu_site(pcu));
        for (index, part) in piece.parts.iter().enumerate() {
            let to = self.write_end(part);
            let flow = self.add(kind, Amount::Partials, (part.banks, banks), out, &[to]);
            flow.writes = Some(FlowEnd { buffer, slice, part: index });
        }
    }
}
