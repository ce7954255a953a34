//! From a plan to a placed and routed section.

use crate::arch::{Chip, TierId};
use crate::index::Id;

use super::buffers::StageRoles;
use super::configuration::{Buffer, Flow, OffChip, PcuId, Section, Stage};
use super::estimate::{Stream, streams};
use super::fabric::Fabric;
use super::flows::{FlowBuilder, Unrouted};
use super::mapping::{Mapping, PassWork};
use super::nest::Nest;
use super::place::{place_buffers, place_pcus};
use super::plan::SectionPlan;
use super::route::Router;
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
/// works; or why it cannot be placed. Crowded links are negotiated for at most `rounds`.
pub fn assemble(
    chip: &Chip,
    fabric: &Fabric,
    graph: &SectionGraph<'_>,
    plan: &SectionPlan,
    tiers: &[TierId],
    rounds: u32,
) -> Result<(Section, f64), Unplaced> {
    let work: Vec<StageWork> = (0..graph.stages.len())
        .map(|s| StageWork::new(chip, graph, &plan.nest, s, plan.mappings[s], &plan.work[s]))
        .collect();
    let stages = stages(graph, &plan.nest, &plan.roles, &plan.mappings, &plan.work, place_pcus(chip, &work));
    let buffers = place_buffers(chip, plan, &stages, &work)
        .ok_or_else(|| Unplaced::Banks { needed: plan.buffers.iter().map(|b| b.total_banks(chip)).sum() })?;
    let streams = streams(graph, &plan.nest, &plan.buffers);
    let wanted = streams.len() as u64;
    let streams = give_ags(chip, &plan.nest, streams, tiers).ok_or(Unplaced::Generators { streams: wanted })?;
    let placed = Placed { nest: plan.nest, stages, work, buffers, streams, estimated_cycles: plan.estimate.cycles };
    let unrouted = placed.flows(chip, fabric, graph, plan.estimate.link_cycles(chip));
    let trees = Router::new(chip, fabric).route_all(&unrouted.requests, rounds);
    let (flows, fullest) = unrouted.with_trees(chip, fabric, trees);
    Ok((placed.section(chip, graph, flows), fullest))
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
        }
    }
}

/// Gives every stream its address generators: one each, then by bytes until a tier's rate is covered twice over. None gets
/// more than a slot has flits: each would send one that is hardly filled.
fn give_ags(chip: &Chip, nest: &Nest, streams: Vec<Stream>, tiers: &[TierId]) -> Option<Vec<OffChip>> {
    let generators: Vec<(u32, u32)> = spread_ags(chip);
    if streams.len() > generators.len() {
        return None;
    }
    let ag_rate = chip.ag_bytes_per_cycle.min(chip.network.flit_bytes) as f64;
    let bytes = |s: &Stream| s.tensor_bytes.saturating_mul(s.passes) as f64;
    let total: f64 = streams.iter().map(bytes).sum::<f64>().max(1.0);
    let spare = (generators.len() - streams.len()) as f64;
    let mut next = 0;
    let mut list = Vec::with_capacity(streams.len());
    for stream in streams {
        let tier = tiers[stream.tensor.index()];
        let covers = 2.0 * chip.tier_rate(tier).bytes_per_cycle() / ag_rate;
        let slot_flits = bytes(&stream) / nest.count(stream.cadence) as f64 / chip.network.flit_bytes as f64;
        let most = slot_flits.ceil().max(1.0) as usize;
        let count = (1 + (spare * bytes(&stream) / total).min(covers).floor() as usize).min(most);
        let ags = generators[next..next + count].to_vec();
        next += count;
        list.push(OffChip { stream, tier, ags });
    }
    Some(list)
}

/// Address generators in an order that visits the AGCUs evenly.
fn spread_ags(chip: &Chip) -> Vec<(u32, u32)> {
    let most = chip.grid.agcus.iter().map(|a| a.ags).max().unwrap_or(0);
    let count = chip.grid.agcus.len();
    // A stride near the golden section of the list, and coprime to it, spreads neighbours in the order.
    let gcd = |mut a: usize, mut b: usize| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let stride = (1..=count).rev().find(|&s| s * 1000 <= count * 618 && gcd(s, count) == 1).unwrap_or(1);
    let mut list = Vec::new();
    for ag in 0..most {
        for step in 0..count {
            let agcu = step * stride % count;
            if ag < chip.grid.agcus[agcu].ags {
                list.push((agcu as u32, ag as u32));
            }
        }
    }
    list
}
