//! The amounts of the reference model, to be compared with those of `cost`.

use rdusim_base::index::IndexVec;
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::Workload;
use rdusim_program::{FlowId, Section, SectionGraph, StageId, StreamId};

use super::amounts::{Amounts, StageAmounts};

/// What a section moves, as the reference model counts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionAmounts {
    /// Flits that each flow moves in all its events.
    pub flow_flits: IndexVec<FlowId, u64>,
    /// Payload of each slot of each off-chip stream, and the bytes of the bursts that hold it: `[stream][slot]`.
    pub slot_bytes: IndexVec<StreamId, Vec<(u64, u64)>>,
    /// k-steps of the output tiles of a row pass of each GEMM stage: `[stage][column_tile][group][tile]`; empty for SIMD stages.
    pub depths: IndexVec<StageId, Vec<Vec<Vec<u64>>>>,
}

/// Amounts of a section on the chip as the section finds it ([`Section::chip`]); `None` where
/// [`run_section`](super::run_section) produces none.
pub fn amounts_of(chip: &Chip, workload: &Workload, section: &Section) -> Option<SectionAmounts> {
    let graph = SectionGraph::new(workload, &section.operators, section.operators.len() > 1)?;
    let amounts = Amounts::new(chip, graph, section)?;
    let flow_flits = section.flows.iter().map(|flow| amounts.ends(flow).last().copied().unwrap_or(0)).collect();
    let slots = |stream: StreamId| {
        let level = section.streams[stream].stream.level;
        let slots = 0..section.schedule.count(level);
        slots.map(|n| amounts.stream_bytes(stream, section.schedule.step(level, n))).collect()
    };
    let depths = |stage: &StageAmounts| match stage {
        StageAmounts::Gemm(gemm) => gemm.depths(),
        StageAmounts::Simd(_) => Vec::new(),
    };
    Some(SectionAmounts {
        flow_flits,
        slot_bytes: section.streams.ids().map(slots).collect(),
        depths: amounts.stages.iter().map(depths).collect(),
    })
}
