//! Cycles that no section of some operators beats, whatever its mapping.

use rdusim_base::index::Id;
use rdusim_graph::arch::{Chip, TierId};
use rdusim_graph::workload::{OperatorId, Workload};
use rdusim_program::{SectionGraph, StageId};

/// Cycles that no section of some operators beats: its launch, and its arithmetic at peak or its tensors moved once.
pub fn least_cycles(chip: &Chip, workload: &Workload, tiers: &[TierId], operators: &[OperatorId]) -> f64 {
    let compute: f64 = operators
        .iter()
        .map(|&op| {
            let dtype = workload.tensors[workload.operators[op].inputs[0]].dtype;
            workload.stored_macs(op) as f64 / chip.macs_per_cycle(dtype).unwrap_or(1) as f64
        })
        .sum();
    let graph = SectionGraph::new(workload, operators, operators.len() > 1);
    let memory = graph.map_or(0, |graph| least_memory_cycles(chip, &graph, tiers));
    chip.launch_cycles() as f64 + compute.max(memory as f64)
}

/// Cycles to move every tensor that enters or leaves the section once.
pub fn least_memory_cycles(chip: &Chip, graph: &SectionGraph<'_>, tiers: &[TierId]) -> u64 {
    least_memory_cycles_of(chip, graph, tiers, |_| true)
}

/// Cycles to move once every tensor that some stages take from memory or leave there.
pub fn least_memory_cycles_of(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    tiers: &[TierId],
    is_counted: impl Fn(StageId) -> bool,
) -> u64 {
    let mut bytes = vec![0u64; chip.memory.len()];
    let mut seen = Vec::new();
    for (_, stage) in graph.stages.iter_enumerated().filter(|(s, _)| is_counted(*s)) {
        let inputs = stage.activations.iter().chain(&stage.weight).filter(|&&t| graph.producer(t).is_none());
        let state = stage.update.as_ref().map(|update| &update.state);
        for &tensor in inputs.chain(state).chain(graph.leaves_section(stage.output).then_some(&stage.output)) {
            if !seen.contains(&tensor) {
                seen.push(tensor);
                bytes[tiers[tensor.index()].index()] += graph.workload.tensors[tensor].stored_bytes();
            }
        }
    }
    let cycles = |(tier, &bytes): (usize, &u64)| chip.tier_rate(TierId::from_index(tier)).cycles_for(bytes);
    bytes.iter().enumerate().map(cycles).max().unwrap_or(0)
}
