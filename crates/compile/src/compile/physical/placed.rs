//! A section whose units have places, before it has routes.

use crate::compile::mapping::roles::StageRoles;
use rdusim_base::index::{Id, IndexVec};
use rdusim_cost::cost::StageWork;
use rdusim_graph::arch::Chip;
use rdusim_program::{
    Buffer, BufferId, Fabric, Flow, FlowId, Mapping, Nest, OffChip, PassWork, PcuId, Schedule, Section, SectionGraph,
    Stage, StageId, StageSpec, StreamId, TileLists,
};

use super::route::{Negotiation, Router};
use super::unrouted::Unrouted;

/// Stages with what follows from the nest, on their PCUs.
pub(crate) fn stages(
    graph: &SectionGraph<'_>,
    nest: &Nest,
    roles: &StageRoles,
    mappings: &IndexVec<StageId, Mapping>,
    work: &IndexVec<StageId, Vec<Vec<PassWork>>>,
    tiles: &IndexVec<StageId, TileLists>,
    pcus: IndexVec<StageId, Vec<PcuId>>,
) -> IndexVec<StageId, Stage> {
    let on_units = |((s, spec), pcus): ((StageId, &StageSpec), Vec<PcuId>)| Stage {
        spec: spec.clone(),
        mapping: mappings[s],
        level: roles.level[s],
        k_cut: roles.k_cut[s] && nest.column_tiles() > 1,
        n_cut: roles.n_cut[s],
        recomputed: roles.recomputed[s],
        work: work[s].clone(),
        stored_before: Stage::stored_before(&work[s]),
        tiles: tiles[s].clone(),
        pcus,
    };
    graph.stages.iter_enumerated().zip(pcus).map(on_units).collect()
}

/// A section whose units have places, before it has routes.
pub(crate) struct Placed {
    /// Loop nest.
    pub nest: Nest,
    /// Stages on their PCUs.
    pub stages: IndexVec<StageId, Stage>,
    /// What a firing of each stage costs.
    pub work: IndexVec<StageId, StageWork>,
    /// Buffers in their PMUs.
    pub buffers: IndexVec<BufferId, Buffer>,
    /// Streams with their generators.
    pub streams: IndexVec<StreamId, OffChip>,
    /// Cycles expected, launch included.
    pub estimated_cycles: u64,
}

impl Placed {
    /// The section with a route for each flow; and its fullest link's or port's share of the time in which its busiest
    /// stage works.
    pub(crate) fn routed(
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
    pub(crate) fn section(self, chip: &Chip, graph: &SectionGraph<'_>, flows: IndexVec<FlowId, Flow>) -> Section {
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
