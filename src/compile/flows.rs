//! Every stream of a placed section as a flow with a route.

use crate::arch::{Chip, Coordinate};
use crate::index::Id;

use super::buffers::BufferRole;
use super::configuration::{Amount, Buffer, Flow, FlowKind, OffChip, Part, PcuId, Piece, Stage};
use super::fabric::{Fabric, Resource};
use super::mapping::Mapping;
use super::nest::{Cadence, Nest};
use super::route::{Request, Router};
use super::section_graph::SectionGraph;
use super::work::{StageWork, shared, slot_bytes};

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
    requests: Vec<Request>,
    mean_rates: Vec<f64>,
}

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
        let (flows, requests, mean_rates) = (Vec::new(), Vec::new(), Vec::new());
        Self { chip, graph, nest, fabric, stages, work, buffers, streams, busy_cycles, flows, requests, mean_rates }
    }

    /// All flows, and the fullest link's or port's share of the time in which the busiest stage works.
    pub fn build(mut self) -> (Vec<Flow>, f64) {
        for stage in 0..self.stages.len() {
            self.feeds(stage);
        }
        for stage in 0..self.stages.len() {
            self.results(stage);
        }
        self.copies();
        self.off_chip();
        let trees = Router::new(self.chip, self.fabric).route_all(&self.requests);
        for (flow, tree) in self.flows.iter_mut().zip(trees) {
            flow.links = tree.links.len() as u64;
            // The unit's own switch is a hop too.
            flow.hop_cycles = tree.hop_cycles + self.chip.network.hop_cycles;
            flow.route.extend(tree.links);
        }
        let mut load = vec![0.0; self.fabric.count()];
        for (flow, rate) in self.flows.iter().zip(&self.mean_rates) {
            for &resource in &flow.route {
                load[resource as usize] += rate * self.fabric.cycles_per_flit(resource) as f64;
            }
        }
        let fullest = load.into_iter().fold(0.0, f64::max);
        (self.flows, fullest)
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

    fn add(&mut self, kind: FlowKind, amount: Amount, share: (u64, u64), source: End, sinks: &[End]) {
        let mean_rate = self.section_flits(kind, amount, share) / self.busy_cycles;
        let rate = mean_rate.max(self.burst_rate(kind, share));
        let sites: Vec<Coordinate> = sinks.iter().map(|s| s.1).collect();
        self.mean_rates.push(mean_rate);
        self.requests.push(Request { source: source.1, sinks: sites, rate });
        let is_pmu = |end: &End| self.fabric.kind(end.0) == super::fabric::ResourceKind::PmuPort;
        let mut route = vec![source.0];
        route.extend(sinks.iter().map(|s| s.0));
        self.flows.push(Flow {
            kind,
            amount,
            share,
            route,
            links: 0,
            hop_cycles: 0,
            pmu_sinks: sinks.iter().filter(|s| is_pmu(s)).count() as u64,
            from_pmu: is_pmu(&source),
        });
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
        let rows = nest.token_rows;
        let flit = self.chip.network.flit_bytes;
        let (each, events) = match kind {
            FlowKind::Feed { stage, bundle }
            | FlowKind::Emit { stage, bundle }
            | FlowKind::PartialRead { stage, bundle }
            | FlowKind::PartialWrite { stage, bundle } => {
                let emits_late = self.stages[stage].k_cut && matches!(kind, FlowKind::Emit { .. });
                let cadence = if emits_late { Cadence::Token } else { self.stages[stage].cadence };
                (self.work[stage].flits(amount, 0, bundle, rows), nest.count(cadence))
            }
            FlowKind::Fill { stream, .. } | FlowKind::Drain { stream } => {
                let stream = &self.streams[stream].stream;
                let bytes = stream.tensor_bytes.saturating_mul(stream.passes);
                (bytes.div_ceil(flit), 1)
            }
            FlowKind::Copy { home } => {
                let BufferRole::Home { tensor, .. } = self.buffers[home].spec.role else { return 0.0 };
                let bytes = slot_bytes(self.graph, nest, tensor, nest.step(Cadence::Firing, 0));
                (bytes.div_ceil(flit), nest.count(Cadence::Firing))
            }
        };
        shared(each, share) as f64 * events as f64
    }

    /// Operand streams of a stage: activations, weights, partial sums.
    fn feeds(&mut self, stage: usize) {
        let s = &self.stages[stage];
        let (pm, wide, bundles) = (s.mapping.pm(), s.bundle_width(), s.mapping.bundles());
        for buffer in self.buffers {
            match buffer.spec.role {
                BufferRole::Operand { stage: of, tensor } if of == stage => {
                    let operand = s.spec.activations.iter().position(|&t| t == tensor).unwrap_or(0) as u32;
                    match s.mapping {
                        Mapping::Gemm(m) => {
                            let each = wide / m.streams;
                            for (b, rest) in pairs(bundles, pm * m.streams) {
                                let (i, head) = (rest / m.streams, rest % m.streams);
                                let pcus: Vec<PcuId> =
                                    (head * each..(head + 1) * each).map(|q| s.pcu(b, i, q)).collect();
                                self.feed(stage, b, Amount::Activations, buffer.piece(b, rest), &pcus, 0);
                            }
                        }
                        Mapping::Simd(m) => {
                            for (i, j) in pairs(pm, m.pn) {
                                self.feed_simd(stage, buffer.piece(0, i), (i, j), m.pn, m.chain, operand);
                            }
                        }
                    }
                }
                BufferRole::Weight { stage: of, .. } if of == stage => {
                    for (b, q) in pairs(bundles, wide) {
                        let pcus: Vec<PcuId> = (0..pm).map(|i| s.pcu(b, i, q)).collect();
                        self.feed(stage, b, Amount::Weights, buffer.piece(0, b * wide + q), &pcus, 1);
                    }
                }
                BufferRole::Partial { stage: of } if of == stage => {
                    for (b, rest) in pairs(bundles, pm * wide) {
                        let pcu = s.pcu(b, rest / wide, rest % wide);
                        let piece = buffer.piece(0, b * pm * wide + rest);
                        self.partial(stage, b, pcu, piece);
                    }
                }
                _ => {}
            }
        }
    }

    fn feed(&mut self, stage: usize, bundle: u64, amount: Amount, piece: &Piece, pcus: &[PcuId], port: u32) {
        let sinks: Vec<End> = pcus.iter().map(|&p| (self.fabric.pcu_in(p, port), self.pcu_site(p))).collect();
        let banks: u64 = piece.parts.iter().map(|p| p.banks).sum();
        for part in &piece.parts {
            let source = self.read_end(part);
            self.add(FlowKind::Feed { stage, bundle }, amount, (part.banks, banks), source, &sinks);
        }
    }

    /// The streams of one SIMD PCU: from the parts of its row slice that hold its columns, then along its chain.
    fn feed_simd(&mut self, stage: usize, piece: &Piece, (i, j): (u64, u64), pn: u64, chain: u64, operand: u32) {
        let s = &self.stages[stage];
        let kind = FlowKind::Feed { stage, bundle: 0 };
        let parts = piece.parts.len() as u64;
        let (first, last) = (j * parts / pn, ((j + 1) * parts).div_ceil(pn).max(j * parts / pn + 1));
        let head = s.pcu(0, i, j * chain);
        let sink = [(self.fabric.pcu_in(head, operand), self.pcu_site(head))];
        for p in first..last {
            // Neighbours take turns on the part's read ports.
            let part = &piece.parts[p as usize];
            let read_port = (part.read_port + j) % self.chip.pmu.read_ports;
            let source = self.read_end(&Part { read_port, ..*part });
            self.add(kind, Amount::Activations, (1, last - first), source, &sink);
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

    fn partial(&mut self, stage: usize, bundle: u64, pcu: PcuId, piece: &Piece) {
        let banks: u64 = piece.parts.iter().map(|p| p.banks).sum();
        let site = self.pcu_site(pcu);
        let (into, out) = ((self.fabric.pcu_in(pcu, 2), site), (self.fabric.pcu_out(pcu, 1), site));
        for part in &piece.parts {
            let share = (part.banks, banks);
            let (read, write) = (self.read_end(part), self.write_end(part));
            self.add(FlowKind::PartialRead { stage, bundle }, Amount::Partials, share, read, &[into]);
            self.add(FlowKind::PartialWrite { stage, bundle }, Amount::Partials, share, out, &[write]);
        }
    }

    /// Results of a stage into every buffer that takes its output.
    fn results(&mut self, stage: usize) {
        let s = &self.stages[stage];
        let output = s.spec.output;
        let (pm, wide, bundles) = (s.mapping.pm(), s.bundle_width(), s.mapping.bundles());
        let chain = if let Mapping::Simd(m) = s.mapping { m.chain } else { 1 };
        for (index, buffer) in self.buffers.iter().enumerate() {
            let takes = match buffer.spec.role {
                BufferRole::Operand { tensor, .. } => tensor == output && !self.has_home(index),
                BufferRole::Home { tensor, .. } | BufferRole::Store { tensor, .. } => tensor == output,
                BufferRole::Weight { .. } | BufferRole::Partial { .. } => false,
            };
            if !takes {
                continue;
            }
            let slices = buffer.spec.slices;
            for (b, (i, q)) in pairs(bundles, pm * wide).map(|(b, r)| (b, (r / wide, r % wide))) {
                let pcu = s.pcu(b, i, q * chain + chain - 1);
                let source = (self.fabric.pcu_out(pcu, 0), self.pcu_site(pcu));
                let (first, last) = (i * slices / pm, ((i + 1) * slices).div_ceil(pm));
                for slice in first..last {
                    self.fill_piece(
                        FlowKind::Emit { stage, bundle: b },
                        Amount::ResultBytes,
                        (1, last - first),
                        source,
                        buffer,
                        slice,
                    );
                }
            }
        }
    }

    fn has_home(&self, operand: usize) -> bool {
        let BufferRole::Operand { stage, tensor } = self.buffers[operand].spec.role else { return false };
        self.buffers.iter().any(|b| b.spec.role == BufferRole::Home { stage, tensor })
    }

    /// One flow for each part of a slice, to that part of every copy.
    fn fill_piece(
        &mut self,
        kind: FlowKind,
        amount: Amount,
        share: (u64, u64),
        source: End,
        buffer: &Buffer,
        slice: u64,
    ) {
        let parts = (0..buffer.spec.copies).map(|c| buffer.piece(c, slice).parts.len()).max().unwrap_or(0);
        for part in 0..parts {
            let mut sinks = Vec::new();
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
            self.add(kind, amount, (share.0 * portion.0, share.1 * portion.1), source, &sinks);
        }
    }

    /// Home buffers into the copies beside the PCUs.
    fn copies(&mut self) {
        for (home, buffer) in self.buffers.iter().enumerate() {
            let BufferRole::Home { stage, tensor } = buffer.spec.role else { continue };
            let Some(operand) = self.buffers.iter().find(|b| b.spec.role == BufferRole::Operand { stage, tensor })
            else {
                continue;
            };
            for slice in 0..buffer.spec.slices {
                let piece = buffer.piece(0, slice);
                let banks: u64 = piece.parts.iter().map(|p| p.banks).sum();
                for part in &piece.parts {
                    let share = (part.banks, banks * buffer.spec.slices);
                    self.fill_piece(
                        FlowKind::Copy { home },
                        Amount::SlotBytes,
                        share,
                        self.read_end(part),
                        operand,
                        slice,
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
                if !self.is_end_of(stream, index) {
                    continue;
                }
                let slices = buffer.spec.slices;
                let each = (ags.len() as u64 / slices).max(1);
                for slice in 0..slices {
                    for a in 0..each {
                        let ag = ags[((slice * each + a) % ags.len() as u64) as usize];
                        let share = (1, slices * each);
                        if off_chip.stream.writes {
                            self.drain(stream, share, buffer.piece(0, slice), ag);
                        } else {
                            let kind = FlowKind::Fill { stream, buffer: index };
                            self.fill_piece(kind, Amount::SlotBytes, share, ag, buffer, slice);
                        }
                    }
                }
            }
        }
    }

    fn drain(&mut self, stream: usize, share: (u64, u64), piece: &Piece, ag: End) {
        let banks: u64 = piece.parts.iter().map(|p| p.banks).sum();
        for part in &piece.parts {
            let share = (share.0 * part.banks, share.1 * banks);
            self.add(FlowKind::Drain { stream }, Amount::SlotBytes, share, self.read_end(part), &[ag]);
        }
    }

    /// Whether an off-chip stream fills or drains a buffer.
    fn is_end_of(&self, stream: usize, buffer: usize) -> bool {
        let wanted = &self.streams[stream].stream;
        let spec = &self.buffers[buffer].spec;
        match spec.role {
            BufferRole::Operand { tensor, .. } => {
                !wanted.writes
                    && tensor == wanted.tensor
                    && !wanted.weight
                    && spec.cadence == wanted.cadence
                    && !self.has_home(buffer)
            }
            BufferRole::Home { tensor, .. } => {
                !wanted.writes && tensor == wanted.tensor && !wanted.weight && spec.cadence == wanted.cadence
            }
            BufferRole::Weight { tensor, .. } => {
                wanted.weight && tensor == wanted.tensor && spec.cadence == wanted.cadence
            }
            BufferRole::Store { tensor, .. } => wanted.writes && tensor == wanted.tensor,
            BufferRole::Partial { .. } => false,
        }
    }
}

fn pairs(a: u64, b: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..a).flat_map(move |x| (0..b).map(move |y| (x, y)))
}
