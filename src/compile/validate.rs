//! From choices somebody wrote down to a section: everything that follows from them is worked out again, and what
//! contradicts them, or the chip, is refused.
//!
//! Checked: the nest (its rows, row tiles and cut, and that it can run as one pass); mappings against their stages; PCUs
//! (as many as the mapping takes, none twice); buffers (those the nest and mappings ask for, of that size, in pieces
//! that hold them, banks and ports that the PMUs have); streams and generators (none twice); routes (links that
//! exist, joined up from the source to every sink).

use std::collections::BTreeMap;

use crate::arch::{Chip, TierId};
use crate::compile::mapping::buffers::buffers;
use crate::compile::mapping::residency::{LatencySlots, Residency};
use crate::compile::mapping::resolve::{Resolved, resolve};
use crate::compile::mapping::roles::StageRoles;
use crate::compile::mapping::streams::streams;
use crate::compile::physical::flows::Unrouted;
use crate::compile::physical::placed::{Placed, stages};
use crate::compile::physical::route::{Negotiation, Router};
use crate::cost::{StageWork, TileTables, chain};
use crate::index::Id;
use crate::program::{
    Buffer, BufferRole, BufferSpec, Fabric, Flow, LoopLevel, LoopOrder, Mapping, Nest, OffChip, PcuId, Piece, Resource,
    Section, SectionGraph, Stage, tree_over,
};
use crate::workload::TensorId;

/// The choices that make a section.
#[derive(Debug, Clone)]
pub struct Draft {
    /// Loop nest.
    pub nest: Nest,
    /// Mapping of each stage.
    pub mappings: Vec<Mapping>,
    /// PCUs of each stage, in the order of [`Stage::pcu`].
    pub pcus: Vec<Vec<PcuId>>,
    /// Buffers, in the compiler's order.
    pub buffers: Vec<BufferDraft>,
    /// Streams, in the compiler's order.
    pub streams: Vec<StreamDraft>,
    /// Cycles expected, launch included.
    pub estimated_cycles: u64,
}

/// A buffer in its PMUs.
#[derive(Debug, Clone)]
pub struct BufferDraft {
    /// Purpose.
    pub role: BufferRole,
    /// How often a slot is filled.
    pub level: LoopLevel,
    /// Slots.
    pub depth: u64,
    /// Bytes of one part of one slot.
    pub slot_bytes: u64,
    /// Its pieces.
    pub pieces: Vec<Piece>,
}

/// A stream and its generators.
#[derive(Debug, Clone)]
pub struct StreamDraft {
    /// Tensor.
    pub tensor: TensorId,
    /// Written off chip (else read).
    pub writes: bool,
    /// How often a part of it moves.
    pub level: LoopLevel,
    /// Address generators: (AGCU, generator in it).
    pub ags: Vec<(u32, u32)>,
}

/// What a fault is about; indices are into the lists of the draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Rows of a row tile.
    TileRows,
    /// Row tiles of a row block.
    BlockTiles,
    /// Width of a column tile.
    Width,
    /// The nest as a whole.
    Nest,
    /// Mapping of a stage.
    Mapping(usize),
    /// The list of a stage's PCUs.
    Pcus(usize),
    /// A PCU of a stage.
    Pcu(usize, usize),
    /// The list of buffers.
    Buffers,
    /// A buffer.
    Buffer(usize),
    /// Slots of a buffer.
    Depth(usize),
    /// Bytes of a buffer's slot.
    SlotBytes(usize),
    /// Pieces of a buffer.
    Pieces(usize),
    /// A part of a piece of a buffer.
    Part(usize, usize, usize),
    /// The list of streams.
    Streams,
    /// A stream.
    Stream(usize),
    /// A generator of a stream.
    Generator(usize, usize),
    /// A route.
    Route(usize),
    /// A link of a route.
    Link(usize, usize),
}

/// A choice that cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// What is wrong.
    pub title: String,
    /// What was expected there.
    pub expected: String,
}

fn fault(place: Place, title: impl Into<String>, expected: impl Into<String>) -> Fault {
    Fault { place, title: title.into(), expected: expected.into() }
}

/// A section whose choices hold, before it has routes.
pub struct Validated<'a> {
    chip: &'a Chip,
    fabric: &'a Fabric,
    graph: &'a SectionGraph<'a>,
    placed: Placed,
    unrouted: Unrouted,
}

impl<'a> Validated<'a> {
    /// Checks a draft of the section `graph` and works out what follows from it. `tiers` is the home of each tensor.
    ///
    /// # Errors
    /// The first choice that cannot be.
    pub fn new(
        chip: &'a Chip,
        fabric: &'a Fabric,
        graph: &'a SectionGraph<'a>,
        tiers: &[TierId],
        draft: Draft,
    ) -> Result<Self, Fault> {
        check_nest(graph, &draft.nest)?;
        for (stage, mapping) in draft.mappings.iter().enumerate() {
            check_mapping(chip, graph, &draft.nest, stage, mapping)
                .map_err(|(title, expected)| fault(Place::Mapping(stage), title, expected))?;
        }
        check_pcus(chip, &draft)?;
        let (exact, specs) = check_buffers(chip, graph, &draft)?;
        let streams = check_streams(chip, graph, &draft, &specs, tiers)?;
        let nest = draft.nest;
        let work: Vec<StageWork> = draft
            .mappings
            .iter()
            .enumerate()
            .map(|(s, &mapping)| StageWork::new(chip, graph, &nest, s, mapping, &exact.work[s]))
            .collect();
        let stages = stages(graph, &nest, &exact.roles, &draft.mappings, (&exact.work, &exact.tiles), draft.pcus);
        let buffers = specs.into_iter().zip(draft.buffers);
        let buffers = buffers.map(|(spec, draft)| Buffer { spec, pieces: draft.pieces }).collect();
        let placed = Placed { nest, stages, work, buffers, streams, estimated_cycles: draft.estimated_cycles };
        let busy_cycles = busy_cycles(&placed);
        let unrouted = placed.flows(chip, fabric, graph, busy_cycles);
        Ok(Self { chip, fabric, graph, placed, unrouted })
    }

    /// The flows that want routes: of each, the source port and then the sinks'.
    pub fn flows(&self) -> &[Flow] {
        &self.unrouted.flows
    }

    /// The section, routed by the compiler.
    pub fn route(self) -> Section {
        let trees = Router::new(self.chip, self.fabric).route_all(&self.unrouted.requests, Negotiation::WHOLE);
        let (flows, _) = self.unrouted.with_trees(self.chip, self.fabric, trees);
        self.placed.section(self.chip, self.graph, flows)
    }

    /// The section over these links, a list for every flow.
    ///
    /// # Errors
    /// The first link that leads nowhere, or sink that is not reached.
    pub fn over(self, links: &[Vec<Resource>]) -> Result<Section, Fault> {
        let mut trees = Vec::with_capacity(links.len());
        for (r, links) in links.iter().take(self.unrouted.requests.len()).enumerate() {
            let request = self.unrouted.requests.get(r);
            let tree =
                tree_over(self.chip, self.fabric, request.source, request.sinks, links).map_err(
                    |broken| match broken.link {
                        Some(link) => fault(Place::Link(r, link), broken.title, broken.expected),
                        None => fault(Place::Route(r), broken.title, broken.expected),
                    },
                )?;
            trees.push(tree);
        }
        let (flows, _) = self.unrouted.with_trees(self.chip, self.fabric, trees);
        Ok(self.placed.section(self.chip, self.graph, flows))
    }
}

/// Cycles the busiest lockstep group works.
fn busy_cycles(placed: &Placed) -> u64 {
    let nest = &placed.nest;
    let of_stage = |(stage, work): (&Stage, &StageWork)| {
        let column_tiles = if stage.level == LoopLevel::Firing { nest.column_tiles() } else { 1 };
        let each =
            |group| (0..column_tiles).map(|column_tile| work.cycles(column_tile, group, nest.tile_rows)).sum::<u64>();
        (0..stage.mapping.groups()).map(each).max().unwrap_or(0).saturating_mul(nest.row_tiles())
    };
    placed.stages.iter().zip(&placed.work).map(of_stage).max().unwrap_or(1).max(1)
}

fn check_nest(graph: &SectionGraph<'_>, nest: &Nest) -> Result<(), Fault> {
    if !(1..=graph.rows).contains(&nest.tile_rows) {
        let title = format!("a row tile cannot have {} of the section's {} rows", nest.tile_rows, graph.rows);
        return Err(fault(Place::TileRows, title, format!("expected from 1 to {}", graph.rows)));
    }
    if !(1..=nest.row_tiles()).contains(&nest.block_tiles) {
        let title =
            format!("a row block cannot have {} of the section's {} row tiles", nest.block_tiles, nest.row_tiles());
        return Err(fault(Place::BlockTiles, title, format!("expected from 1 to {}", nest.row_tiles())));
    }
    if let Some(cut) = nest.tiled_axis {
        let axis = &graph.axes[cut.axis];
        let whole = cut.tile == cut.extent || cut.tile.is_multiple_of(axis.grain);
        if !(1..=cut.extent).contains(&cut.tile) || !whole {
            let title = format!("a column tile cannot be {} of {} elements wide", cut.tile, cut.extent);
            let expected =
                format!("expected at most {}, in multiples of {} (blocks of a mask)", cut.extent, axis.grain);
            return Err(fault(Place::Width, title, expected));
        }
    } else if nest.order == LoopOrder::RowTileOuter {
        return Err(fault(
            Place::Nest,
            "the order `row_tile_outer` needs a cut",
            "expected `cut`, or `column_tile_outer`",
        ));
    }
    if StageRoles::new(graph, nest).is_one_pass() {
        return Ok(());
    }
    let title =
        "the pipeline would stop: behind a stage that accumulates over column tiles, another works along the cut";
    Err(fault(Place::Nest, title, "expected another axis, or no cut"))
}

/// What is wrong, and what was expected.
type Refusal = (String, String);

fn check_mapping(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    nest: &Nest,
    stage: usize,
    mapping: &Mapping,
) -> Result<(), Refusal> {
    let is_gemm = graph.is_gemm(stage);
    let from_one = |what: &str, found: u64, most: u64| {
        let refusal = || (format!("`{what}` is {found}"), format!("expected from 1 to {most} for this stage and nest"));
        if (1..=most).contains(&found) { Ok(()) } else { Err(refusal()) }
    };
    let exactly = |what: &str, found: u64, must: u64| {
        let refusal = || (format!("`{what}` is {found}"), format!("expected {must} for this function"));
        if found == must { Ok(()) } else { Err(refusal()) }
    };
    let most = chip.pcus();
    let pcus = match mapping {
        Mapping::Gemm(m) if is_gemm => {
            let bases = TileTables::new(chip, graph, nest.tiled_axis);
            from_one("share", m.multicast_width, most)?;
            from_one("pn", m.pn, most)?;
            let divides_pn = |what: &str, found: u64| {
                let refusal = || (format!("`{what}` is {found}"), format!("expected a divisor of `pn`, {}", m.pn));
                if m.pn.is_multiple_of(found) { Ok(()) } else { Err(refusal()) }
            };
            divides_pn("share", m.multicast_width)?;
            if m.pk > 1 && !graph.may_split_k(nest.tiled_axis, stage) {
                let why = "expected 1: K is split over PCUs in plain GEMMs, where it is not cut over time";
                return Err((format!("`pk` is {}", m.pk), why.into()));
            }
            from_one("pk", m.pk, graph.most_k_slices(stage).min(most))?;
            if graph.stages[stage].sums.is_none() && graph.form(stage).is_none() {
                exactly("streams", m.streams, 1)?;
            }
            if let Some(form) = graph.form(stage).filter(|_| graph.stages[stage].sums.is_none()) {
                exactly("share", m.multicast_width, m.pn)?;
                from_one("streams", m.streams, form.b_heads)?;
                divides_pn("streams", m.streams)?;
            }
            from_one("pm", m.pm, most)?;
            if graph.stages[stage].sums.is_some() {
                exactly("share", m.multicast_width, m.pn)?;
                from_one("streams", m.streams, graph.form(stage).map_or(1, |form| form.heads))?;
                divides_pn("streams", m.streams)?;
            }
            let Some((row_splits, groups)) = bases.most_splits(stage, m, nest) else {
                return Err(("a PCU lacks the data type".into(), "cannot be computed on this chip".into()));
            };
            from_one("pm", m.pm, row_splits)?;
            from_one("pn", m.pn, groups.saturating_mul(m.multicast_width))?;
            mapping.pcus()
        }
        Mapping::Simd(m) if !is_gemm => {
            let kind = graph.kind(stage);
            exactly("chain", m.chain, chain(chip, kind))?;
            exactly("passes", m.passes, kind.passes())?;
            from_one("pm", m.pm, nest.tile_rows)?;
            let output = graph.stages[stage].output;
            let lanes = chip.pcu.lanes.get(&graph.stage_dtype(stage)).copied().unwrap_or(1);
            let width = match nest.tiled_axis {
                Some(cut) if graph.column_axis(output) == Some(cut.axis) => cut.tile,
                _ => graph.workload.tensors[output].columns,
            };
            from_one("pn", m.pn, if kind.is_row_wise() { 1 } else { width.div_ceil(lanes) })?;
            m.pm.saturating_mul(m.pn).saturating_mul(m.chain)
        }
        _ => {
            let kind = if is_gemm { "gemm" } else { "simd" };
            return Err(("the mapping is of another kind than the stage".into(), format!("expected `{kind}`")));
        }
    };
    if pcus > most {
        return Err((format!("the mapping takes {pcus} PCUs"), format!("{} has {most}", chip.name)));
    }
    Ok(())
}

fn check_pcus(chip: &Chip, draft: &Draft) -> Result<(), Fault> {
    let mut taken: Vec<bool> = vec![false; chip.grid.pcus.len()];
    for (s, (pcus, mapping)) in draft.pcus.iter().zip(&draft.mappings).enumerate() {
        if pcus.len() as u64 != mapping.pcus() {
            let title = format!("the stage has {} PCUs, its mapping takes {}", pcus.len(), mapping.pcus());
            return Err(fault(Place::Pcus(s), title, format!("expected {}", mapping.pcus())));
        }
        for (i, pcu) in pcus.iter().enumerate() {
            if std::mem::replace(&mut taken[pcu.index()], true) {
                let at = chip.grid.pcus[pcu.index()];
                let title = format!("the PCU at [{}, {}] is given twice", at.x, at.y);
                return Err(fault(Place::Pcu(s, i), title, "expected a PCU that no stage has yet"));
            }
        }
    }
    Ok(())
}

/// The buffers that the nest and mappings ask for, with the depths of the draft, and what follows from nest and mappings
/// with what stays on chip.
fn check_buffers(chip: &Chip, graph: &SectionGraph<'_>, draft: &Draft) -> Result<(Resolved, Vec<BufferSpec>), Fault> {
    // Which tensors stay on chip shows in the loop levels.
    let alike = |specs: &[BufferSpec]| {
        let same = |(a, b): &(&BufferSpec, &BufferDraft)| a.role == b.role && a.level == b.level;
        specs.iter().zip(&draft.buffers).take_while(same).count()
    };
    let choices = [(true, false), (true, true), (false, false), (false, true)];
    let kept = Residency { inputs: true, weights: true, latency_slots: LatencySlots::Full, recompute: false };
    let mut exact = resolve(chip, graph, &draft.nest, kept, &draft.mappings);
    let again = exact.roles.recomputing(graph, &draft.nest);
    let mut best = Vec::new();
    let mut best_roles = None;
    for (recompute, roles) in [(false, Some(&exact.roles)), (true, again.as_ref())] {
        let Some(roles) = roles else { continue };
        for (inputs, weights) in choices {
            // Depths are the draft's.
            let residency = Residency { inputs, weights, recompute, ..kept };
            let specs = buffers(chip, graph, &draft.nest, roles, residency, &draft.mappings, &exact.footprint);
            if best.is_empty() || alike(&specs) > alike(&best) {
                (best, best_roles) = (specs, Some(roles.clone()));
            }
        }
    }
    exact.roles = best_roles.unwrap_or(exact.roles);
    let (same, found) = (alike(&best), draft.buffers.len());
    if same < best.len() || same < found {
        if same < found.min(best.len()) {
            let title = "another buffer stands here than the nest and the mappings ask for";
            let name = |role: &BufferRole| match *role {
                BufferRole::Operand { .. } => "an operand",
                BufferRole::Resident { .. } => "a home",
                BufferRole::Weight { .. } => "a weight",
                BufferRole::PartialSums { .. } | BufferRole::PartialFifo { .. } => "partial sums",
                BufferRole::Output { .. } => "a store",
            };
            let BufferSpec { role, level, .. } = &best[same];
            if let BufferRole::PartialFifo { slice, stage } = role {
                let stage = &graph.workload.operators[graph.stages[*stage].main].name;
                let expected =
                    format!("expected a partial-sum FIFO of `{stage}` with `k_slice = {slice}`, loop level {level:?}");
                return Err(fault(Place::Buffer(same), title, expected));
            }
            let (BufferRole::Operand { stage, tensor }
            | BufferRole::Resident { stage, tensor }
            | BufferRole::Weight { stage, tensor }
            | BufferRole::Output { stage, tensor }) = *role
            else {
                return Err(fault(Place::Buffer(same), title, "expected the partial sums of its stage"));
            };
            let stage = &graph.workload.operators[graph.stages[stage].main].name;
            let tensor = &graph.workload.tensors[tensor].name;
            let expected = format!("expected {} of `{stage}` for `{tensor}`, loop level {level:?}", name(role));
            return Err(fault(Place::Buffer(same), title, expected));
        }
        let title = format!("the section has {found} buffers, its nest and mappings ask for {}", best.len());
        return Err(fault(Place::Buffers, title, format!("expected {}", best.len())));
    }
    let mut free = vec![chip.pmu.banks; chip.grid.pmus.len()];
    for (b, (spec, draft)) in best.iter_mut().zip(&draft.buffers).enumerate() {
        if draft.slot_bytes != spec.slot_bytes {
            let title =
                format!("a slot of {} B, the nest and the mapping make it {} B", draft.slot_bytes, spec.slot_bytes);
            return Err(fault(Place::SlotBytes(b), title, format!("expected {}", spec.slot_bytes)));
        }
        if draft.depth == 0 {
            return Err(fault(Place::Depth(b), "a buffer without slots", "expected at least 1"));
        }
        spec.depth = draft.depth;
        check_pieces(chip, b, spec, &draft.pieces, &mut free)?;
    }
    Ok((exact, best))
}

fn check_pieces(
    chip: &Chip,
    buffer: usize,
    spec: &BufferSpec,
    pieces: &[Piece],
    free: &mut [u64],
) -> Result<(), Fault> {
    if pieces.len() as u64 != spec.slices * spec.copies {
        let title = format!("the buffer has {} pieces", pieces.len());
        let expected = format!("expected {} slices in {} copies", spec.slices, spec.copies);
        return Err(fault(Place::Pieces(buffer), title, expected));
    }
    let needed = spec.banks(chip);
    for (p, piece) in pieces.iter().enumerate() {
        let banks = piece.parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.banks));
        if banks < needed {
            let title = format!("piece {p} has {banks} banks for {} slots of {} B", spec.depth, spec.slot_bytes);
            let expected = format!("expected {needed} banks of {} B", chip.pmu.bank_bytes());
            return Err(fault(Place::Part(buffer, p, 0), title, expected));
        }
        for (k, part) in piece.parts.iter().enumerate() {
            let place = Place::Part(buffer, p, k);
            let at = chip.grid.pmus[part.pmu.index()];
            let left = &mut free[part.pmu.index()];
            if part.banks == 0 || part.banks > *left {
                let title = format!("the PMU at [{}, {}] has no {} banks left", at.x, at.y, part.banks);
                let expected = format!("{left} of its {} banks are free", chip.pmu.banks);
                return Err(fault(place, title, expected));
            }
            *left -= part.banks;
            if part.read_port >= chip.pmu.read_ports || part.write_port >= chip.pmu.write_ports {
                let title = format!("no such port: read {}, write {}", part.read_port, part.write_port);
                let (reads, writes) = (chip.pmu.read_ports, chip.pmu.write_ports);
                let expected = format!("a PMU has read ports 0 to {}, write ports 0 to {}", reads - 1, writes - 1);
                return Err(fault(place, title, expected));
            }
        }
    }
    Ok(())
}

fn check_streams(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    draft: &Draft,
    specs: &[BufferSpec],
    tiers: &[TierId],
) -> Result<Vec<OffChip>, Fault> {
    let wanted = streams(graph, &draft.nest, specs);
    if wanted.len() != draft.streams.len() {
        let title = format!("the section has {} streams, its buffers ask for {}", draft.streams.len(), wanted.len());
        return Err(fault(Place::Streams, title, format!("expected {}", wanted.len())));
    }
    let mut taken: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    let mut list = Vec::with_capacity(wanted.len());
    for (s, (stream, draft)) in wanted.into_iter().zip(&draft.streams).enumerate() {
        let name = |t: TensorId| &graph.workload.tensors[t].name;
        if (stream.tensor, stream.writes, stream.level) != (draft.tensor, draft.writes, draft.level) {
            let title = "another stream stands here than the buffers ask for";
            let verb = if stream.writes { "write" } else { "read" };
            let expected = format!("expected a {verb} of `{}`, loop level {:?}", name(stream.tensor), stream.level);
            return Err(fault(Place::Stream(s), title, expected));
        }
        if draft.ags.is_empty() {
            return Err(fault(Place::Stream(s), "a stream without a generator", "expected at least one"));
        }
        for (g, &ag) in draft.ags.iter().enumerate() {
            if let Some(other) = taken.insert(ag, s) {
                let at = chip.grid.agcus[ag.0 as usize].site;
                let title = format!("generator {} of the AGCU at [{}, {}] is given twice", ag.1, at.x, at.y);
                let expected = format!("the stream of `{}` has it", name(draft_tensor(draft, &list, other)));
                return Err(fault(Place::Generator(s, g), title, expected));
            }
        }
        list.push(OffChip { stream, tier: tiers[stream.tensor.index()], ags: draft.ags.clone() });
    }
    Ok(list)
}

/// Tensor of stream `index`, which is in `done` or is `current`.
fn draft_tensor(current: &StreamDraft, done: &[OffChip], index: usize) -> TensorId {
    done.get(index).map_or(current.tensor, |off_chip| off_chip.stream.tensor)
}
