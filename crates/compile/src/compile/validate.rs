//! From choices somebody wrote down to a section: everything that follows from them is worked out again, and what
//! contradicts them, or the chip, is refused.
//!
//! What can be seen in the program alone, the verifier checks ([`rdusim_program::verifier`]). Checked here is what only
//! the compiler knows: how far a stage can be split, which buffers of which size the nest and the mappings ask for, and
//! which streams the buffers ask for.

use crate::compile::mapping::buffers::buffers;
use crate::compile::mapping::residency::{LatencySlots, Residency};
use crate::compile::mapping::resolve::{Resolved, resolve};
use crate::compile::mapping::streams::streams;
use crate::compile::physical::flows::FlowBuilder;
use crate::compile::physical::placed::{Placed, stages};
use crate::compile::physical::route::{Negotiation, Router};
use crate::compile::physical::unrouted::Unrouted;
use rdusim_base::index::{Id, IndexVec};
use rdusim_cost::cost::{StageWork, TileTables};
use rdusim_graph::arch::{Chip, TierId};
use rdusim_graph::workload::TensorId;
use rdusim_program::verifier::{Banks, Fault, Generators, Pcus, Place, Verifier, from_one};
use rdusim_program::{
    Buffer, BufferId, BufferRole, BufferSpec, Fabric, Flow, FlowId, GemmMapping, LoopLevel, Mapping, Nest, OffChip,
    PcuId, Piece, Resource, RowTile, Section, SectionGraph, Stage, StageId, StreamId, Tree, TreeWalk, tree_over,
};

/// The choices that make a section.
#[derive(Debug, Clone)]
pub struct Draft {
    /// Loop nest.
    pub nest: Nest,
    /// Mapping of each stage.
    pub mappings: IndexVec<StageId, Mapping>,
    /// PCUs of each stage, in the order of [`Stage::pcu`].
    pub pcus: IndexVec<StageId, Vec<PcuId>>,
    /// Buffers, in the compiler's order.
    pub buffers: IndexVec<BufferId, BufferDraft>,
    /// Streams, in the compiler's order.
    pub streams: IndexVec<StreamId, StreamDraft>,
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

/// A section whose choices hold, before it has routes.
pub struct Validated<'a> {
    verifier: Verifier<'a>,
    placed: Placed,
    unrouted: Unrouted,
}

impl<'a> Validated<'a> {
    /// Checks a draft of the section `graph` and works out what follows from it. `tiers` is the tier of each tensor.
    ///
    /// # Errors
    /// The first choice that cannot be.
    pub fn new(
        chip: &'a Chip,
        fabric: &'a Fabric,
        graph: &'a SectionGraph<'a>,
        tiers: &'a [TierId],
        draft: Draft,
    ) -> Result<Self, Fault> {
        let verifier = Verifier { chip, fabric, graph, tiers };
        verifier.nest(&draft.nest)?;
        for (stage, mapping) in draft.mappings.iter_enumerated() {
            verifier.mapping(&draft.nest, stage, mapping)?;
            if let Mapping::Gemm(mapping) = mapping {
                check_splits(&verifier, &draft.nest, stage, mapping)?;
            }
            verifier.has_pcus(stage, mapping)?;
        }
        let mut taken = Pcus::new(&verifier);
        for ((stage, pcus), mapping) in draft.pcus.iter_enumerated().zip(&draft.mappings) {
            taken.take(stage, pcus, mapping.pcus())?;
        }
        let (exact, specs) = check_buffers(&verifier, &draft)?;
        let streams = check_streams(&verifier, &draft, &specs)?;
        let nest = draft.nest;
        let work: IndexVec<StageId, StageWork> = draft
            .mappings
            .iter_enumerated()
            .map(|(s, &mapping)| {
                StageWork::new(chip, graph, nest.tiling(), s, mapping, &exact.work[s], &exact.tiles[s])
            })
            .collect();
        let stages = stages(graph, &nest, &exact.roles, &draft.mappings, &exact.work, &exact.tiles, draft.pcus);
        let buffers = specs.into_iter().zip(draft.buffers);
        let buffers = buffers.map(|(spec, draft)| Buffer { spec, pieces: draft.pieces }).collect();
        let placed = Placed { nest, stages, work, buffers, streams, estimated_cycles: draft.estimated_cycles };
        let busy_cycles = busy_cycles(&placed);
        let unrouted = FlowBuilder::new(chip, fabric, graph, &placed, busy_cycles).build();
        Ok(Self { verifier, placed, unrouted })
    }

    /// The flows that want routes: of each, the source port and then the sinks'.
    pub fn flows(&self) -> &IndexVec<FlowId, Flow> {
        &self.unrouted.flows
    }

    /// The section, routed by the compiler.
    ///
    /// # Errors
    /// The first check of the verifier that the section fails.
    pub fn route(self) -> Result<Section, Fault> {
        let Verifier { chip, fabric, .. } = self.verifier;
        let trees = Router::new(chip, fabric).route_all(&self.unrouted.requests, Negotiation::WHOLE);
        self.verified(trees)
    }

    /// The section over these links, a list for every flow.
    ///
    /// # Errors
    /// The first link that leads nowhere, sink that is not reached, or check of the verifier that the section fails.
    pub fn over(self, links: &IndexVec<FlowId, Vec<Resource>>) -> Result<Section, Fault> {
        let Verifier { chip, fabric, .. } = self.verifier;
        let (mut walk, mut trees) = (TreeWalk::new(chip, fabric), Vec::with_capacity(links.len()));
        for (r, links) in links.iter_enumerated().take(self.unrouted.requests.len()) {
            let request = self.unrouted.requests.get(r.index());
            let tree = tree_over(&mut walk, request.source, request.sinks, links).map_err(|broken| {
                let place = broken.link.map_or(Place::Route(r), |link| Place::Link(r, link));
                Fault::new(place, broken.title, broken.expected)
            })?;
            trees.push(tree);
        }
        self.verified(trees)
    }

    fn verified(self, trees: Vec<Tree>) -> Result<Section, Fault> {
        let Verifier { chip, fabric, graph, .. } = self.verifier;
        let (flows, _) = self.unrouted.with_trees(chip, fabric, trees);
        let section = self.placed.section(chip, graph, flows);
        self.verifier.section(&section)?;
        Ok(section)
    }
}

/// Cycles the busiest lockstep group works.
fn busy_cycles(placed: &Placed) -> u64 {
    let nest = &placed.nest;
    let of_stage = |(stage, work): (&Stage, &StageWork)| {
        let column_tiles = if stage.level == LoopLevel::FIRING { nest.column_tiles() } else { 1 };
        let each = |group| {
            (0..column_tiles)
                .map(|column_tile| work.cycles(column_tile, group, RowTile::mean(nest.tile_rows)).0)
                .sum::<u64>()
        };
        (0..stage.mapping.groups()).map(each).max().unwrap_or(0).saturating_mul(nest.row_tiles())
    };
    placed.stages.iter().zip(&placed.work).map(of_stage).max().unwrap_or(1).max(1)
}

/// Whether a GEMM has as many row tiles and column tiles as it is split into.
fn check_splits(verifier: &Verifier<'_>, nest: &Nest, stage: StageId, m: &GemmMapping) -> Result<(), Fault> {
    let refused = |(title, expected): (String, String)| Fault::new(Place::Mapping(stage), title, expected);
    let tables = TileTables::new(verifier.chip, verifier.graph, nest.tiled_axis);
    let Some((row_splits, groups)) = tables.most_splits(stage, m, nest) else {
        return Err(refused(("a PCU lacks the data type".into(), "cannot be computed on this chip".into())));
    };
    from_one("pm", m.pm, row_splits).map_err(refused)?;
    from_one("pn", m.pn, groups.saturating_mul(m.multicast_width)).map_err(refused)
}

/// The buffers that the nest and mappings ask for, with the depths of the draft, and what follows from nest and mappings
/// with what stays on chip.
fn check_buffers(verifier: &Verifier<'_>, draft: &Draft) -> Result<(Resolved, IndexVec<BufferId, BufferSpec>), Fault> {
    let Verifier { chip, graph, .. } = *verifier;
    // Which tensors stay on chip shows in the loop levels.
    let equal = |specs: &IndexVec<BufferId, BufferSpec>| {
        let same = |(a, b): &(&BufferSpec, &BufferDraft)| a.role == b.role && a.level == b.level;
        specs.iter().zip(&draft.buffers).take_while(same).count()
    };
    let choices = [(true, false), (true, true), (false, false), (false, true)];
    let kept = Residency { inputs: true, weights: true, latency_slots: LatencySlots::Full, recompute: false };
    let mut exact = resolve(chip, graph, &draft.nest, kept, &draft.mappings);
    let again = exact.roles.recomputing(graph, &draft.nest);
    let mut best = IndexVec::new();
    let mut best_roles = None;
    for (recompute, roles) in [(false, Some(&exact.roles)), (true, again.as_ref())] {
        let Some(roles) = roles else { continue };
        for (inputs, weights) in choices {
            // Depths are the draft's.
            let residency = Residency { inputs, weights, recompute, ..kept };
            let specs = buffers(chip, graph, &draft.nest, roles, residency, &draft.mappings, &exact.footprint);
            if best.is_empty() || equal(&specs) > equal(&best) {
                (best, best_roles) = (specs, Some(roles.clone()));
            }
        }
    }
    exact.roles = best_roles.unwrap_or(exact.roles);
    let (same, found) = (equal(&best), draft.buffers.len());
    if same < best.len() || same < found {
        if same < found.min(best.len()) {
            let title = "another buffer stands here than the nest and the mappings ask for";
            let name = |role: &BufferRole| match *role {
                BufferRole::Operand { .. } => "an operand",
                BufferRole::Resident { .. } => "a resident buffer",
                BufferRole::Weight { .. } => "a weight",
                BufferRole::PartialSums { .. } | BufferRole::PartialFifo { .. } => "partial sums",
                BufferRole::State { .. } => "the state",
                BufferRole::Output { .. } => "a store",
            };
            let same = BufferId::from_index(same);
            let BufferSpec { role, level, .. } = &best[same];
            if let BufferRole::PartialFifo { slice, stage } = role {
                let stage = &graph.workload.operators[graph.stages[*stage].main].name;
                let expected =
                    format!("expected a partial-sum FIFO of `{stage}` with `k_slice = {slice}`, loop level {level:?}");
                return Err(Fault::new(Place::Buffer(same), title, expected));
            }
            let (BufferRole::Operand { stage, tensor }
            | BufferRole::Resident { stage, tensor }
            | BufferRole::Weight { stage, tensor }
            | BufferRole::State { stage, tensor }
            | BufferRole::Output { stage, tensor }) = *role
            else {
                return Err(Fault::new(Place::Buffer(same), title, "expected the partial sums of its stage"));
            };
            let stage = &graph.workload.operators[graph.stages[stage].main].name;
            let tensor = &graph.workload.tensors[tensor].name;
            let expected = format!("expected {} of `{stage}` for `{tensor}`, loop level {level:?}", name(role));
            return Err(Fault::new(Place::Buffer(same), title, expected));
        }
        let title = format!("the section has {found} buffers, its nest and mappings ask for {}", best.len());
        return Err(Fault::new(Place::Buffers, title, format!("expected {}", best.len())));
    }
    let mut banks = Banks::new(verifier);
    for (spec, (b, draft)) in best.iter_mut().zip(draft.buffers.iter_enumerated()) {
        if draft.slot_bytes != spec.slot_bytes {
            let title =
                format!("a slot of {} B, the nest and the mapping make it {} B", draft.slot_bytes, spec.slot_bytes);
            return Err(Fault::new(Place::SlotBytes(b), title, format!("expected {}", spec.slot_bytes)));
        }
        spec.depth = draft.depth;
        banks.take(b, spec, &draft.pieces)?;
    }
    Ok((exact, best))
}

/// The streams that the buffers ask for, with the generators of the draft.
fn check_streams(
    verifier: &Verifier<'_>,
    draft: &Draft,
    specs: &IndexVec<BufferId, BufferSpec>,
) -> Result<IndexVec<StreamId, OffChip>, Fault> {
    let wanted = streams(verifier.graph, &draft.nest, specs);
    if wanted.len() != draft.streams.len() {
        let title = format!("the section has {} streams, its buffers ask for {}", draft.streams.len(), wanted.len());
        return Err(Fault::new(Place::Streams, title, format!("expected {}", wanted.len())));
    }
    let mut taken = Generators::new(verifier);
    let mut list = IndexVec::new();
    for (stream, (s, draft)) in wanted.into_iter().zip(draft.streams.iter_enumerated()) {
        if (stream.tensor, stream.writes, stream.level) != (draft.tensor, draft.writes, draft.level) {
            let title = "another stream stands here than the buffers ask for";
            let verb = if stream.writes { "write" } else { "read" };
            let name = verifier.tensor(stream.tensor);
            let expected = format!("expected a {verb} of `{name}`, loop level {:?}", stream.level);
            return Err(Fault::new(Place::Stream(s), title, expected));
        }
        taken.take(s, stream.tensor, &draft.ags)?;
        let Some(tier) = verifier.tier_of(stream.tensor) else {
            let title = format!("the tensor `{}` has no tier", verifier.tensor(stream.tensor));
            return Err(Fault::new(Place::Stream(s), title, "expected one"));
        };
        list.push(OffChip { stream, tier, ags: draft.ags.clone() });
    }
    Ok(list)
}
