//! From a plan to a placed and routed section.

use std::fmt;

use rand_pcg::Pcg64Mcg;

use crate::compile::mapping::plan::SectionPlan;
use crate::compile::mapping::streams::streams;
use crate::compile::verified::after_pass;
use rdusim_base::index::IndexVec;
use rdusim_cost::cost::StageWork;
use rdusim_graph::arch::{Chip, TierId};
use rdusim_program::verifier::Verifier;
use rdusim_program::{Buffer, Fabric, Section, SectionGraph, StageId};

use super::anneal::anneal;
use super::exchange::exchange;
use super::flows::FlowBuilder;
use super::generators;
use super::place::{place_buffers, place_pcus};
use super::placed::{Placed, stages};
use super::route::Negotiation;
use super::unrouted::Unrouted;

/// Why a plan cannot be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unplaced {
    /// Its buffers find no banks.
    Banks {
        /// Banks they take together.
        needed: u64,
    },
    /// It has more off-chip streams than the chip has address generators.
    Generators {
        /// Streams.
        streams: u64,
    },
}

impl fmt::Display for Unplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Banks { needed } => write!(f, "its buffers find no places for {needed} banks"),
            Self::Generators { streams } => {
                write!(f, "{streams} streams are more than the chip has address generators")
            }
        }
    }
}

/// Places and routes a plan: the section, and its fullest link's or port's share of the time in which its busiest stage
/// works; or why it cannot be placed. Weights keep clear of `taken` banks of each PMU, if any are given: those that
/// another section holds while they are loaded.
pub(crate) fn assemble(
    chip: &Chip,
    fabric: &Fabric,
    graph: &SectionGraph<'_>,
    plan: &SectionPlan,
    tiers: &[TierId],
    negotiation: Negotiation,
    taken: &[u64],
) -> Result<(Section, f64), Unplaced> {
    let (placed, unrouted) = place(chip, fabric, graph, plan, tiers, taken)?;
    Ok(placed.routed(chip, fabric, graph, unrouted, negotiation))
}

/// Places a plan whose routes are known from a section with the same ports; `None` where its ports are others.
pub(crate) fn assemble_along(
    chip: &Chip,
    fabric: &Fabric,
    graph: &SectionGraph<'_>,
    plan: &SectionPlan,
    tiers: &[TierId],
    routed: &Section,
) -> Option<Section> {
    let (placed, unrouted) = place(chip, fabric, graph, plan, tiers, &[]).ok()?;
    let flows = unrouted.along(&routed.flows)?;
    Some(placed.section(chip, graph, flows))
}

/// A plan without places and routes: to run it is to learn what it takes where transfers take no time. `None` if it has more
/// streams than the chip has address generators.
pub(crate) fn unplaced(chip: &Chip, graph: &SectionGraph<'_>, plan: &SectionPlan, tiers: &[TierId]) -> Option<Section> {
    let nowhere = graph.stages.ids().map(|_| Vec::new()).collect();
    let stages = stages(graph, &plan.nest, &plan.roles, &plan.mappings, &plan.work, &plan.tiles, nowhere);
    let buffers = plan.buffers.iter().map(|spec| Buffer { spec: *spec, pieces: Vec::new() }).collect();
    let streams = generators::give(chip, plan, &streams(graph, &plan.nest, &plan.buffers), tiers)?;
    let work = IndexVec::default();
    let placed = Placed { nest: plan.nest, stages, work, buffers, streams, estimated_cycles: plan.estimate.cycles };
    Some(placed.section(chip, graph, IndexVec::default()))
}

/// Places a plan once more, anneals its places and routes it; `None` where annealing moves nothing.
pub(crate) fn assemble_annealed(
    chip: &Chip,
    fabric: &Fabric,
    graph: &SectionGraph<'_>,
    plan: &SectionPlan,
    tiers: &[TierId],
    negotiation: Negotiation,
) -> Option<(Section, f64)> {
    let (mut placed, unrouted) = place(chip, fabric, graph, plan, tiers, &[]).ok()?;
    anneal(chip, fabric, &mut placed, &unrouted).then(|| {
        let unrouted = FlowBuilder::new(chip, fabric, graph, &placed, plan.estimate.link_cycles(chip)).build();
        let (section, fullest) = placed.routed(chip, fabric, graph, unrouted, negotiation);
        after_pass("anneal", &Verifier { chip, fabric, graph, tiers }, &section);
        (section, fullest)
    })
}

/// Places a plan, exchanges units of a kind at random and routes it; or why it cannot be placed.
pub(crate) fn assemble_exchanged(
    chip: &Chip,
    fabric: &Fabric,
    graph: &SectionGraph<'_>,
    plan: &SectionPlan,
    tiers: &[TierId],
    negotiation: Negotiation,
    random: &mut Pcg64Mcg,
) -> Result<(Section, f64), Unplaced> {
    let (mut placed, _) = place(chip, fabric, graph, plan, tiers, &[])?;
    exchange(&mut placed, chip, random);
    let unrouted = FlowBuilder::new(chip, fabric, graph, &placed, plan.estimate.link_cycles(chip)).build();
    Ok(placed.routed(chip, fabric, graph, unrouted, negotiation))
}

/// Gives a plan's stages, buffers and streams their units: the section before it has routes, and what wants them.
fn place(
    chip: &Chip,
    fabric: &Fabric,
    graph: &SectionGraph<'_>,
    plan: &SectionPlan,
    tiers: &[TierId],
    taken: &[u64],
) -> Result<(Placed, Unrouted), Unplaced> {
    let work: IndexVec<StageId, StageWork> = graph
        .stages
        .ids()
        .map(|s| StageWork::new(chip, graph, plan.nest.tiling(), s, plan.mappings[s], &plan.work[s], &plan.tiles[s]))
        .collect();
    let stages =
        stages(graph, &plan.nest, &plan.roles, &plan.mappings, &plan.work, &plan.tiles, place_pcus(chip, &work));
    let buffers = place_buffers(chip, plan, &stages, &work, taken)
        .ok_or_else(|| Unplaced::Banks { needed: plan.buffers.iter().map(|b| b.total_banks(chip)).sum() })?;
    let streams = streams(graph, &plan.nest, &plan.buffers);
    let wanted = streams.len() as u64;
    let streams = generators::give(chip, plan, &streams, tiers).ok_or(Unplaced::Generators { streams: wanted })?;
    let placed = Placed { nest: plan.nest, stages, work, buffers, streams, estimated_cycles: plan.estimate.cycles };
    let unrouted = FlowBuilder::new(chip, fabric, graph, &placed, plan.estimate.link_cycles(chip)).build();
    Ok((placed, unrouted))
}
