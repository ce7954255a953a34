//! A section whose units have places, before it has routes.

use crate::arch::Chip;
use crate::compile::mapping::roles::StageRoles;
use crate::cost::StageWork;
use crate::index::Id;
use crate::program::{
    Buffer, Fabric, Flow, Mapping, Nest, OffChip, PassWork, PcuId, Schedule, Section, SectionGraph, Stage, StageSpec,
    TileLists,
};

use super::route::{Negotiation, Router};
use super::unrouted::Unrouted;

/// Stages with what follows from the nest, on their PCUs.
pub fn stages(
    graph: &SectionGraph<'_>,
    nest: &Nest,
    roles: &StageRoles,
    mappings: &[Mapping],
    (work, tiles): (&[Vec<Vec<PassWork>>], &[TileLists]),
    pcus: Vec<Vec<PcuId>>,
) -> Vec<Stage> {
    let on_units = |(s, (spec, pcus)): (usize, (&StageSpec, Vec<PcuId>))| Stage {
        spec: spec.clone(),
        mapping: mappings[s],
        level: roles.level[s],
        k_cut: roles.k_cut[s] && nest.column_tiles() > 1,
        n_cut: roles.n_cut[s],
        recomputed: roles.recomputed[s],
        work: work[s].clone(),
        tiles: tiles[s].clone(),
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
    /// The section with a route for each flow; and its fullest link's or port's share of the time in which its busiest
    /// stage works.
    pub fn routed(
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
            schedule: Schedule::of(&self.nest).expect("a nest that was planned or verified has no empty tiles").into(),
            stages: self.stages,
            buffers: self.buffers,
            streams: self.streams,
            flows,
            pmus: used.iter().filter(|&&u| u).count() as u64,
            sram_bytes,
            sram_bank_loss_bytes: sram_bytes - payload_bytes.min(sram_bytes),
            estimated_cycles: self.estimated_cycles,
            prefetched: Vec::new(),
            prefetches: Vec::new(),
        }
    }
}
