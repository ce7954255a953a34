//! What a configured section asks of the network, in closed form: no time passes.

use rdusim_base::index::IndexVec;
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::Workload;
use rdusim_program::{Fabric, FlowId, Section};

use super::section_bound::{bound_section, flow_flits};

/// Flits over one section, and the least cycles it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionLoad {
    /// Flits of every flow, in the order of the section's flows.
    pub flow_flits: IndexVec<FlowId, u64>,
    /// Flits over every link and port, in the fabric's numbering.
    pub resource_flits: Vec<u64>,
    /// Cycles at the `bound` fidelity, launch excluded.
    pub bound_cycles: u64,
}

/// The load of a section; `None` if its operators are no pipeline of `workload`.
pub fn section_load(chip: &Chip, workload: &Workload, fabric: &Fabric, section: &Section) -> Option<SectionLoad> {
    let chip = &*section.chip(chip, workload);
    let flow_flits = flow_flits(chip, workload, section)?;
    let mut resource_flits = vec![0; fabric.count()];
    for (flow, flits) in section.flows.iter().zip(&flow_flits) {
        for &resource in &flow.route {
            resource_flits[resource as usize] += flits;
        }
    }
    let bound_cycles = bound_section(chip, workload, fabric, section)?.cycles;
    Some(SectionLoad { flow_flits, resource_flits, bound_cycles })
}
