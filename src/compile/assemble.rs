//! From a plan to a placed and routed section.

use crate::arch::{Chip, TierId};
use crate::index::Id;

use super::anneal::anneal;
use super::buffers::StageRoles;
use super::configuration::{Buffer, Flow, OffChip, PcuId, Section, Stage};
use super::estimate::streams;
use super::fabric::Fabric;
use super::flows::{FlowBuilder, Unrouted};
use super::generators;
use super::mapping::{Mapping, PassWork};
use super::nest::Nest;
use super::place::{place_buffers, place_pcus};
use super::plan::SectionPlan;
use super::route::{Negotiation, Router};
use super::section_graph::{SectionGraph, StageSpec};
use super::work::StageWork;

/// Why a plan cannot be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unplaced {
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

/// Places and routes a plan: the section, and its fullest link's or port's share of the time in which its busiest stage
/// works; or why it cannot be placed. Weights keep clear of `taken` banks of each PMU, if any are given: those that
/// another section holds while they are loaded.
pub fn assemble(
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

/// Places a plan once more, anneals its places and routes it; `None` where annealing moves nothing.
pub fn assemble_annealed(
    chip: &Chip,
    fabric: &Fabric,
    graph: &SectionGraph<'_>,
    plan: &SectionPlan,
    tiers: &[TierId],
    negotiation: Negotiation,
) -> Option<(Section, f64)> {
    let (mut placed, unrouted) = place(chip, fabric, graph, plan, tiers, &[]).ok()?;
    anneal(chip, fabric, &mut placed, &unrouted).then(|| {
        let unrouted = placed.flows(chip, fabric, graph, plan.estimate.link_cycles(chip));
        placed.routed(chip, fabric, graph, unrouted, negotiation)
    })
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
    let work: Vec<StageWork> = (0..graph.stages.len())
        .map(|s| StageWork::new(chip, graph, &plan.nest, s, plan.mappings[s], &plan.work[s]))
        .collect();
    let stages = stages(graph, &plan.nest, &plan.roles, &plan.mappings, &plan.work, place_pcus(chip, &work));
    let buffers = place_buffers(chip, plan, &stages, &work, taken)
        .ok_or_else(|| Unplaced::Banks { needed: plan.buffers.iter().map(|b| b.total_banks(chip)).sum() })?;
    let streams = streams(graph, &plan.nest, &plan.buffers);
    let wanted = streams.len() as u64;
    let streams = generators::give(chip, plan, &streams, tiers).ok_or(Unplaced::Generators { streams: wanted })?;
    let placed = Placed { nest: plan.nest, stages, work, buffers, streams, estimated_cycles: plan.estimate.cycles };
    let unrouted = placed.flows(chip, fabric, graph, plan.estimate.link_cycles(chip));
    Ok((placed, unrouted))
}

/// Stages with what follows from the nest, on their PCUs.
pub fn stages(
    graph: &SectionGraph<'_>,
    nest: &Nest,
    roles: &StageRoles,
    mappings: &[Mapping],
    work: &[Vec<Vec<PassWork>>],
    pcus: Vec<Vec<PcuId>>,
) -> Vec<Stage> {
    let on_units = |(s, (spec, pcus)): (usize, (&StageSpec, Vec<PcuId>))| Stage {
        spec: spec.clone(),
        mapping: mappings[s],
        cadence: roles.cadence[s],
        k_cut: roles.k_cut[s] && nest.chunks() > 1,
        n_cut: roles.n_cut[s],
        again: roles.again[s],
        work: work[s].clone(),
        pcus,
    };
    graph.stages.iter().zip(pcus).enumerate().map(on_units).collect()
}

/// A section whose units have places, before it has routes.
pub struct Placed {
    /// Loop nest.
    pub nest: Nest,
    /// Stages on their PCUs.
    pub stages: Vec<Stage>,
    /// What a firing of each stage costs.
    pub work: Vec<StageWork>,
    /// Buffers in their PMUs.
    pub buffers: Vec<Buffer>,
    /// Streams with their generators.
    pub streams: Vec<OffChip>,
    /// Cycles expected, launch included.
    pub estimated_cycles: u64,
}

impl Placed {
    /// Every stream as a flow between ports; `busy_cycles` is the time in which links move what they move.
    pub fn flows(&self, chip: &Chip, fabric: &Fabric, graph: &SectionGraph<'_>, busy_cycles: u64) -> Unrouted {
        let (stages, work, buffers, streams) = (&self.stages, &self.work, &self.buffers, &self.streams);
        FlowBuilder::new(chip, graph, &self.nest, fabric, stages, work, buffers, streams, busy_cycles).build()
    }

    /// The section with a route for each flow; and its fullest link's or port's share of the time in which its busiest
    /// stage works.
    fn routed(
        self,
        chip: &Chip,
        fabric: &Fabric,
        graph: &SectionGraph<'_>,
        unrouted: Unrouted,
        negotiation: Negotiation,
    ) -> (Section, f64) {
        let trees = Router::new(chip, fabric).route_all(&unrouted.requests, negotiation);
        let (flows, fullest) = unrouted.with_trees(chip, fabric, trees);
        (self.section(chip, graph, flows), fullest)
    }

    /// The section with its flows.
    pub fn section(self, chip: &Chip, graph: &SectionGraph<'_>, flows: Vec<Flow>) -> Section {
        let mut used = vec![false; chip.grid.pmus.len()];
        let (mut banks, mut payload_bytes) = (0, 0);
        for buffer in &self.buffers {
            for piece in &buffer.pieces {
                payload_bytes += buffer.spec.slot_bytes * buffer.spec.depth;
                for part in &piece.parts {
                    used[part.pmu.index()] = true;
                    banks += part.banks;
                }
            }
        }
        let sram_bytes = banks * chip.pmu.bank_bytes();
        let workload = graph.workload;
        let name = graph.operators.iter().map(|&op| workload.operators[op].name.as_str()).collect::<Vec<_>>().join("+");
        Section {
            name,
            operators: graph.operators.clone(),
            nest: self.nest,
            stages: self.stages,
            buffers: self.buffers,
            streams: self.streams,
            flows,
            pmus: used.iter().filter(|&&u| u).count() as u64,
            sram_bytes,
            sram_bank_loss_bytes: sram_bytes - payload_bytes.min(sram_bytes),
            estimated_cycles: self.estimated_cycles,
            loaded_before: Vec::new(),
            loads_ahead: Vec::new(),
        }
    }
}
