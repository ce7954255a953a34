//! Every stream of a placed section as a flow with a route.

use std::ops::Range;

use crate::arch::{Chip, Coordinate};
use crate::compile::params::PARAMS;
use crate::cost::{StageWork, slot_bytes};
use crate::index::Id;
use crate::program::{
    Amount, Buffer, BufferRole, Fabric, Flow, FlowEnd, FlowKind, GemmMapping, LoopLevel, Mapping, Nest, OffChip, Part,
    PcuId, Piece, Resource, ResourceKind, SectionGraph, Stage, Stream, Style, Tree, shared,
};

use super::route::Requests;

/// Makes the flows of a section.
pub struct FlowBuilder<'a> {
    chip: &'a Chip,
    graph: &'a SectionGraph<'a>,
    nest: &'a Nest,
    fabric: &'a Fabric,
    stages: &'a [Stage],
    work: &'a [StageWork],
    buffers: &'a [Buffer],
    streams: &'a [OffChip],
    busy_cycles: f64,
    flows: Vec<Flow>,
    requests: Requests,
    mean_rates: Vec<f64>,
    /// Scratch: sinks of the flow at hand.
    sinks: Vec<End>,
}

/// PCU ports of gathered activations: beside the weights', which have the second.
const GATHER_PORTS: [u32; 2] = [0, 2];

/// An end of a flow: a port, and the site its unit stands at.
type End = (Resource, Coordinate);

impl<'a> FlowBuilder<'a> {
    /// A builder over placed stages and buffers.
    #[expect(clippy::too_many_arguments, reason = "each is one room's result; a struct of them would only be unpacked")]
    pub fn new(
        chip: &'a Chip,
        graph: &'a SectionGraph<'a>,
        nest: &'a Nest,
        fabric: &'a Fabric,
        stages: &'a [Stage],
        work: &'a [StageWork],
        buffers: &'a [Buffer],
        streams: &'a [OffChip],
        busy_cycles: u64,
    ) -> Self {
        let busy_cycles = busy_cycles.max(1) as f64;
        let (flows, requests, mean_rates, sinks) = (Vec::new(), Requests::default(), Vec::new(), Vec::new());
        Self {
            chip,
            graph,
            nest,
            fabric,
            stages,
            work,
            buffers,
            streams,
            busy_cycles,
            flows,
            requests,
            mean_rates,
            sinks,
        }
    }

    /// All flows, in a fixed order, still without links.
    pub fn build(mut self) -> Unrouted {
        for stage in 0..self.stages.len() {
            self.feeds(stage);
        }
        for stage in 0..self.stages.len() {
            self.results(stage);
        }
        self.copies();
        self.off_chip();
        Unrouted { flows: self.flows, requests: self.requests, mean_rates: self.mean_rates }
    }

    fn pcu_site(&self, pcu: PcuId) -> Coordinate {
        self.chip.grid.pcus[pcu.index()]
    }

    fn read_end(&self, part: &Part) -> End {
        (self.fabric.pmu_read(part.pmu, part.read_port), self.chip.grid.pmus[part.pmu.index()])
    }

    fn write_end(&self, part: &Part) -> End {
        (self.fabric.pmu_write(part.pmu, part.write_port), self.chip.grid.pmus[part.pmu.index()])
    }

    fn add(&mut self, kind: FlowKind, amount: Amount, share: (u64, u64), source: End, sinks: &[End]) -> &mut Flow {
        let mean_rate = self.section_flits(kind, amount, share) / self.busy_cycles;
        let rate = mean_rate + PARAMS.routing.burst_weight * (self.burst_rate(kind, share) - mean_rate).max(0.0);
        self.mean_rates.push(mean_rate);
        self.requests.push(source.1, sinks.iter().map(|s| s.1), rate);
        let is_pmu = |end: &End| self.fabric.kind(end.0) == ResourceKind::PmuPort;
        // With room for its links, which are as many as that where it leads to one place only.
        let hops = sinks.last().map_or(0, |s| source.1.x.abs_diff(s.1.x) + source.1.y.abs_diff(s.1.y));
        let mut route = Vec::with_capacity(1 + sinks.len() + hops as usize);
        route.push(source.0);
        route.extend(sinks.iter().map(|s| s.0));
        let pmu_sinks = sinks.iter().filter(|s| is_pmu(s)).count() as u64;
        let from_pmu = is_pmu(&source);
        let (reads, writes, links, hop_cycles) = (None, None, 0, 0);
        let at = self.flows.len();
        self.flows.push(Flow { kind, amount, share, reads, writes, route, links, hop_cycles, pmu_sinks, from_pmu });
        &mut self.flows[at]
    }

    /// Flits a cycle an off-chip flow moves while its tier serves only it: what its links must bear in bursts.
    fn burst_rate(&self, kind: FlowKind, share: (u64, u64)) -> f64 {
        let (FlowKind::Fill { stream, .. } | FlowKind::Drain { stream }) = kind else { return 0.0 };
        let tier = self.chip.tier_rate(self.streams[stream].tier).bytes_per_cycle();
        let flits = tier / self.chip.network.flit_bytes as f64 * share.0 as f64 / share.1 as f64;
        flits.min(1.0)
    }

    /// Flits a flow moves in the whole section, to weigh its links by.
    fn section_flits(&self, kind: FlowKind, amount: Amount, share: (u64, u64)) -> f64 {
        let nest = self.nest;
        let rows = nest.tile_rows;
        let flit = self.chip.network.flit_bytes;
        let (each, events) = match kind {
            FlowKind::Feed { stage, group }
            | FlowKind::Emit { stage, group }
            | FlowKind::PartialRead { stage, group }
            | FlowKind::PartialWrite { stage, group } => {
                let emits = matches!(kind, FlowKind::Emit { .. });
                let level = match self.stages[stage].spec.sums.filter(|_| emits) {
                    Some(sums) => sums.level(self.stages[stage].level == LoopLevel::Firing),
                    None if emits && self.stages[stage].k_cut => LoopLevel::RowTile,
                    None => self.stages[stage].level,
                };
                (self.work[stage].flits(amount, 0, group, rows), nest.count(level))
            }
            FlowKind::Fill { stream, .. } | FlowKind::Drain { stream } => {
                let stream = &self.streams[stream].stream;
                let bytes = stream.tensor_bytes.saturating_mul(stream.passes);
                (bytes.div_ceil(flit), 1)
            }
            FlowKind::Copy { home } => {
                let BufferRole::Resident { tensor, .. } = self.buffers[home].spec.role else { return 0.0 };
                let bytes = slot_bytes(self.graph, nest, tensor, nest.step(LoopLevel::Firing, 0));
                (bytes.div_ceil(flit), nest.count(LoopLevel::Firing))
            }
        };
        shared(each, share) as f64 * events as f64
    }

    /// Operand streams of a stage: activations, weights, partial sums.
    fn feeds(&mut self, stage: usize) {
        let s = &self.stages[stage];
        let (pm, wide, groups) = (s.mapping.pm(), s.group_width(), s.mapping.groups());
        for (index, buffer) in self.buffers.iter().enumerate() {
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
                                let piece = buffer.piece(b % m.k_slice_groups(), slice);
                                self.feed(stage, b, Amount::Activations, (index, slice), piece, &pcus, ports);
                            }
                        }
                        Mapping::Simd(m) => {
                            for (i, j) in pairs(pm, m.pn) {
                                self.feed_simd(stage, index, (i, j), m.chain, operand);
                            }
                        }
                    }
                }
                BufferRole::Weight { stage: of, .. } if of == stage => {
                    for (b, q) in pairs(groups, wide) {
                        let pcus: Vec<PcuId> = (0..pm).map(|i| s.pcu(b, i, q)).collect();
                        let slice = b * wide + q;
                        self.feed(stage, b, Amount::Weights, (index, slice), buffer.piece(0, slice), &pcus, &[1]);
                    }
                }
                BufferRole::PartialSums { stage: of } if of == stage => {
                    for (b, rest) in pairs(groups, pm * wide) {
                        let pcu = s.pcu(b, rest / wide, rest % wide);
                        let place = (index, b * pm * wide + rest);
                        self.partial_read(stage, (b, pcu), place);
                        self.partial_write(stage, (b, pcu), place);
                    }
                }
                BufferRole::PartialFifo { stage: of, slice } if of == stage => {
                    let column_groups = groups / s.mapping.pk();
                    for (column_group, rest) in pairs(column_groups, pm * wide) {
                        let end = |slice: u64| {
                            let group = slice * column_groups + column_group;
                            (group, s.pcu(group, rest / wide, rest % wide))
                        };
                        let place = (index, column_group * pm * wide + rest);
                        self.partial_write(stage, end(slice), place);
                        self.partial_read(stage, end(slice + 1), place);
                    }
                }
                _ => {}
            }
        }
    }

    /// One flow for each part of a piece; parts take turns on the PCUs' `ports`.
    #[expect(clippy::too_many_arguments, reason = "all of them tell feeds apart")]
    fn feed(
        &mut self,
        stage: usize,
        group: u64,
        amount: Amount,
        (buffer, slice): (usize, u64),
        piece: &Piece,
        pcus: &[PcuId],
        ports: &[u32],
    ) {
        let banks: u64 = piece.parts.iter().map(|p| p.banks).sum();
        let mut sinks = std::mem::take(&mut self.sinks);
        for (index, (part, &port)) in piece.parts.iter().zip(ports.iter().cycle()).enumerate() {
            sinks.clear();
            sinks.extend(pcus.iter().map(|&p| (self.fabric.pcu_in(p, port), self.pcu_site(p))));
            let source = self.read_end(part);
            let flow = self.add(FlowKind::Feed { stage, group }, amount, (part.banks, banks), source, &sinks);
            flow.reads = Some(FlowEnd { buffer, slice, part: index });
        }
        self.sinks = sinks;
    }

    /// The streams of an operand of a stage that adds up over rows, from the parts of its one piece: X to the rows of PCUs,
    /// by heads, dY to the columns.
    fn feed_sums(&mut self, stage: usize, buffer: usize, operand: u32, m: &GemmMapping) {
        let s = &self.stages[stage];
        let (each, wide) = (m.pn / m.streams, m.pn);
        let groups: Vec<Vec<(u64, u64)>> = if operand == 0 {
            let of = |(i, head)| (head * each..(head + 1) * each).map(|q| (i, q)).collect();
            pairs(m.pm, m.streams).map(of).collect()
        } else {
            (0..wide).map(|q| (0..m.pm).map(|i| (i, q)).collect()).collect()
        };
        let (amount, port) = if operand == 0 { (Amount::Activations, 0) } else { (Amount::Weights, 1) };
        let piece = self.buffers[buffer].piece(0, 0);
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
        stage: usize,
        operand: u32,
        piece: &Piece,
        part: usize,
        pcu: (u64, u64),
    ) -> Option<(u64, u64)> {
        let reducer = self.work[stage].reducer()?;
        [0, self.nest.column_tiles() - 1].into_iter().find_map(|column_tile| {
            let wanted = reducer.wanted(column_tile, operand as usize, pcu);
            let held = piece.span(part, reducer.width(column_tile, operand as usize));
            let length = |run: &Range<u64>| run.end.saturating_sub(run.start);
            let common: u64 =
                wanted.iter().map(|run| length(&(run.start.max(held.start)..run.end.min(held.end)))).sum();
            (common > 0).then(|| (common, wanted.iter().map(length).sum()))
        })
    }

    /// The streams of one SIMD PCU: from the parts of its row slice that hold its columns, then along its chain.
    fn feed_simd(&mut self, stage: usize, buffer: usize, (i, j): (u64, u64), chain: u64, operand: u32) {
        let s = &self.stages[stage];
        let piece = self.buffers[buffer].piece(0, i);
        let kind = FlowKind::Feed { stage, group: 0 };
        let head = s.pcu(0, i, j * chain);
        let sink = [(self.fabric.pcu_in(head, operand), self.pcu_site(head))];
        for (p, part) in piece.parts.iter().enumerate() {
            let Some(share) = self.columns_in_common(stage, self.buffers[buffer].spec.role, piece, p, j) else {
                continue;
            };
            // Neighbours take turns on the part's read ports.
            let read_port = (part.read_port + j) % self.chip.pmu.read_ports;
            let source = self.read_end(&Part { read_port, ..*part });
            let flow = self.add(kind, Amount::Activations, share, source, &sink);
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
        stage: usize,
        role: BufferRole,
        piece: &Piece,
        part: usize,
        slice: u64,
    ) -> Option<(u64, u64)> {
        let BufferRole::Operand { tensor, .. } = role else { return None };
        let is_cut = self.nest.tiled_axis.is_some_and(|c| self.graph.column_axis(tensor) == Some(c.axis));
        [0, self.nest.column_tiles() - 1].into_iter().find_map(|column_tile| {
            let work = &self.work[stage];
            let columns = self.graph.workload.tensors[tensor].columns;
            let columns = if is_cut { work.width(column_tile) } else { columns };
            let wanted = work.part_of(columns, column_tile, slice);
            let held = piece.span(part, columns);
            let common = wanted.end.min(held.end).saturating_sub(wanted.start.max(held.start));
            (common > 0).then(|| (common, wanted.end - wanted.start))
        })
    }

    /// Partial sums from a piece of a buffer to a PCU of a lockstep group.
    fn partial_read(&mut self, stage: usize, (group, pcu): (u64, PcuId), (buffer, slice): (usize, u64)) {
        let piece = self.buffers[buffer].piece(0, slice);
        let banks: u64 = piece.parts.iter().map(|p| p.banks).sum();
        let into = (self.fabric.pcu_in(pcu, 2), self.pcu_site(pcu));
        let kind = FlowKind::PartialRead { stage, group };
        for (index, part) in piece.parts.iter().enumerate() {
            let from = self.read_end(part);
            let flow = self.add(kind, Amount::Partials, (part.banks, banks), from, &[into]);
            flow.reads = Some(FlowEnd { buffer, slice, part: index });
        }
    }

    /// Partial sums from a PCU of a lockstep group to a piece of a buffer.
    fn partial_write(&mut self, stage: usize, (group, pcu): (u64, PcuId), (buffer, slice): (usize, u64)) {
        let piece = self.buffers[buffer].piece(0, slice);
        let banks: u64 = piece.parts.iter().map(|p| p.banks).sum();
        let out = (self.fabric.pcu_out(pcu, 1), self.pcu_site(pcu));
        let kind = FlowKind::PartialWrite { stage, group };
        for (index, part) in piece.parts.iter().enumerate() {
            let to = self.write_end(part);
            let flow = self.add(kind, Amount::Partials, (part.banks, banks), out, &[to]);
            flow.writes = Some(FlowEnd { buffer, slice, part: index });
        }
    }

    /// Results of a stage into every buffer that takes its output.
    fn results(&mut self, stage: usize) {
        let s = &self.stages[stage];
        let output = s.spec.output;
        let (pm, wide, groups) = (s.mapping.pm(), s.group_width(), s.mapping.groups());
        let chain = if let Mapping::Simd(m) = s.mapping { m.chain } else { 1 };
        for (index, buffer) in self.buffers.iter().enumerate() {
            let takes = match buffer.spec.role {
                BufferRole::Operand { tensor, .. } => tensor == output && !has_home(self.buffers, index),
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
    /// and in the short last one, whose rows are dealt anew.
    fn rows_in_common(&self, stage: usize, i: u64, role: BufferRole, slice: u64) -> Option<(u64, u64)> {
        let taker = match role {
            BufferRole::Operand { stage, .. } | BufferRole::Resident { stage, .. } => stage,
            _ => stage,
        };
        let last = self.nest.rows_of(self.nest.row_tiles() - 1);
        [self.nest.tile_rows, last].into_iter().find_map(|rows| {
            let made = self.work[stage].slice_rows(rows, i);
            let taken = self.work[taker].slice_rows(rows, slice);
            let common = made.end.min(taken.end).saturating_sub(made.start.max(taken.start));
            (common > 0).then(|| (common, made.end - made.start))
        })
    }

    /// Streams of heads, or slices of K, side by side in a row slice of a buffer.
    fn parts_of(&self, role: BufferRole) -> u64 {
        match role {
            BufferRole::Operand { stage, .. } | BufferRole::Resident { stage, .. } => {
                match self.stages[stage].mapping {
                    Mapping::Gemm(m) if self.stages[stage].spec.sums.is_none() => m.parts(),
                    _ => 1,
                }
            }
            _ => 1,
        }
    }

    /// One flow for each part of a slice, to that part of every copy.
    fn fill_piece(
        &mut self,
        kind: FlowKind,
        amount: Amount,
        share: (u64, u64),
        source: End,
        reads: Option<FlowEnd>,
        (index, slice): (usize, u64),
    ) {
        let buffer = &self.buffers[index];
        let parts = (0..buffer.spec.copies).map(|c| buffer.piece(c, slice).parts.len()).max().unwrap_or(0);
        let mut sinks = std::mem::take(&mut self.sinks);
        for part in 0..parts {
            sinks.clear();
            let mut portion = (1, 1);
            for copy in 0..buffer.spec.copies {
                let piece = buffer.piece(copy, slice);
                if let Some(p) = piece.parts.get(part) {
                    let banks: u64 = piece.parts.iter().map(|p| p.banks).sum();
                    // The largest part at this position: copies may be cut differently.
                    if sinks.is_empty() || p.banks * portion.1 > portion.0 * banks {
                        portion = (p.banks, banks);
                    }
                    sinks.push(self.write_end(p));
                }
            }
            let flow = self.add(kind, amount, (share.0 * portion.0, share.1 * portion.1), source, &sinks);
            flow.reads = reads;
            flow.writes = Some(FlowEnd { buffer: index, slice, part });
        }
        self.sinks = sinks;
    }

    /// Resident buffers into the copies beside the PCUs.
    fn copies(&mut self) {
        for (home, buffer) in self.buffers.iter().enumerate() {
            let BufferRole::Resident { stage, tensor } = buffer.spec.role else { continue };
            let beside = |b: &Buffer| b.spec.role == BufferRole::Operand { stage, tensor };
            let Some(operand) = self.buffers.iter().position(beside) else { continue };
            for slice in 0..buffer.spec.slices {
                let piece = buffer.piece(0, slice);
                let banks: u64 = piece.parts.iter().map(|p| p.banks).sum();
                for (index, part) in piece.parts.iter().enumerate() {
                    let share = (part.banks, banks * buffer.spec.slices);
                    self.fill_piece(
                        FlowKind::Copy { home },
                        Amount::SlotBytes,
                        share,
                        self.read_end(part),
                        Some(FlowEnd { buffer: home, slice, part: index }),
                        (operand, slice),
                    );
                }
            }
        }
    }

    /// Off-chip streams into and out of buffers, over the stream's address generators.
    fn off_chip(&mut self) {
        for (stream, off_chip) in self.streams.iter().enumerate() {
            let ags: Vec<End> = off_chip
                .ags
                .iter()
                .map(|&(agcu, ag)| (self.fabric.ag(agcu, ag), self.chip.grid.agcus[agcu as usize].site))
                .collect();
            for (index, buffer) in self.buffers.iter().enumerate() {
                if !is_end(&off_chip.stream, self.buffers, index) {
                    continue;
                }
                let slices = buffer.spec.slices;
                let each = (ags.len() as u64 / slices).max(1);
                for slice in 0..slices {
                    for a in 0..each {
                        let ag = ags[((slice * each + a) % ags.len() as u64) as usize];
                        let share = (1, slices * each);
                        if off_chip.stream.writes {
                            self.drain(stream, share, (index, slice), ag);
                        } else {
                            let kind = FlowKind::Fill { stream, buffer: index };
                            self.fill_piece(kind, Amount::SlotBytes, share, ag, None, (index, slice));
                        }
                    }
                }
            }
        }
    }

    fn drain(&mut self, stream: usize, share: (u64, u64), (buffer, slice): (usize, u64), ag: End) {
        let piece = self.buffers[buffer].piece(0, slice);
        let banks: u64 = piece.parts.iter().map(|p| p.banks).sum();
        for (index, part) in piece.parts.iter().enumerate() {
            let share = (share.0 * part.banks, share.1 * banks);
            let source = self.read_end(part);
            let flow = self.add(FlowKind::Drain { stream }, Amount::SlotBytes, share, source, &[ag]);
            flow.reads = Some(FlowEnd { buffer, slice, part: index });
        }
    }
}

/// Whether an operand buffer is filled from a home on chip.
fn has_home(buffers: &[Buffer], operand: usize) -> bool {
    let BufferRole::Operand { stage, tensor } = buffers[operand].spec.role else { return false };
    buffers.iter().any(|b| b.spec.role == BufferRole::Resident { stage, tensor })
}

/// Whether an off-chip stream fills or drains a buffer.
fn is_end(stream: &Stream, buffers: &[Buffer], index: usize) -> bool {
    let spec = &buffers[index].spec;
    match spec.role {
        BufferRole::Operand { tensor, .. } => {
            !stream.writes
                && tensor == stream.tensor
                && !stream.weight
                && spec.level == stream.level
                && !has_home(buffers, index)
        }
        BufferRole::Resident { tensor, .. } => {
            !stream.writes && tensor == stream.tensor && !stream.weight && spec.level == stream.level
        }
        BufferRole::Weight { tensor, .. } => stream.weight && tensor == stream.tensor && spec.level == stream.level,
        BufferRole::Output { tensor, .. } => stream.writes && tensor == stream.tensor,
        BufferRole::PartialSums { .. } | BufferRole::PartialFifo { .. } => false,
    }
}

/// Flows with their ports, but without links.
pub struct Unrouted {
    /// The flows; each route holds the source port and then the sinks'.
    pub flows: Vec<Flow>,
    /// Where each begins and ends, and what it moves a cycle at its busiest.
    pub requests: Requests,
    /// Flits a cycle of each, over the whole section.
    mean_rates: Vec<f64>,
}

impl Unrouted {
    /// Flits a cycle of each flow, over the whole section.
    pub fn mean_rates(&self) -> &[f64] {
        &self.mean_rates
    }

    /// The flows over the links of `trees`, and the fullest link's or port's share of the time in which the busiest
    /// stage works.
    pub fn with_trees(mut self, chip: &Chip, fabric: &Fabric, trees: Vec<Tree>) -> (Vec<Flow>, f64) {
        for (flow, tree) in self.flows.iter_mut().zip(trees) {
            flow.links = tree.links.len() as u64;
            // The unit's own switch is a hop too.
            flow.hop_cycles = tree.hop_cycles + chip.network.hop_cycles;
            flow.route.extend(tree.links);
        }
        let mut load = vec![0.0; fabric.count()];
        for (flow, rate) in self.flows.iter().zip(&self.mean_rates) {
            for &resource in &flow.route {
                load[resource as usize] += rate * fabric.cycles_per_flit(resource) as f64;
            }
        }
        let fullest = load.into_iter().fold(0.0, f64::max);
        (self.flows, fullest)
    }
}

fn pairs(a: u64, b: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..a).flat_map(move |x| (0..b).map(move |y| (x, y)))
}
