//! Time between kernels: the host launches ahead of the device, as far as it can.

use rdusim_base::mode::Mode;
use rdusim_graph::arch::Gpu;
use rdusim_graph::workload::{Phase, Workload};

use super::account::Timed;
use super::kernel::Kernel;

/// Cycles before each kernel in which nothing runs; of a repeated block, those of a repetition in its steady state.
pub(super) fn gaps(gpu: &Gpu, workload: &Workload, kernels: &[Kernel], timed: &[Timed], mode: Mode) -> Vec<f64> {
    let captured = mode == Mode::Fused && gpu.fusion.graphs;
    let gap = gpu.cycles_of_us(if captured { gpu.launch.graph_gap_us } else { gpu.launch.gap_us });
    let trains = workload.operators.iter().any(|operator| operator.phase == Phase::Update);
    let host_us = if trains { gpu.launch.training_host_us } else { gpu.launch.host_us };
    let host = if captured { 0.0 } else { gpu.cycles_of_us(host_us) };
    let mut gaps = vec![gap; kernels.len()];
    let place = |at: usize| {
        let operator = &workload.operators[kernels[at].operators[0]];
        (operator.block, operator.phase, operator.repeat)
    };
    // When the device is free, and when the host has handed over the next kernel.
    let (mut free, mut handed) = (0.0_f64, 0.0_f64);
    let mut start = 0;
    while start < kernels.len() {
        let end = (start..kernels.len()).find(|&at| place(at) != place(start)).unwrap_or(kernels.len());
        // The first repetition may find the host ahead; the others go on as it ends.
        let passes = place(start).2.min(3);
        for _ in 0..passes {
            for at in start..end {
                handed += host;
                let begins = (free + gap).max(handed);
                gaps[at] = begins - free;
                free = begins + timed[at].time.cycles;
            }
        }
        start = end;
    }
    gaps
}
