//! What energy and starts follow on a wafer, and what cannot be beaten.

use crate::kernels::Machine;
use rdusim_base::index::Id;
use rdusim_base::mode::Mode;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::{Wafer, WaferExecution};
use rdusim_graph::workload::{OperatorKind, Phase, Tensor, TensorRole, Workload, least_launches, stored_macs_by_type};

pub(super) fn machine<'a>(chip: &'a Wafer, workload: &Workload, mode: Mode) -> Machine<'a> {
    Machine {
        clock_hz: chip.clock_hz,
        start_cycles: chip.cycles_of_us(chip.start_us),
        step_cycles: chip.cycles_of_us(chip.step_us),
        memory: chip.memory.iter().next(),
        memory_bytes_per_cycle: chip.memory_bytes_per_cycle(),
        mac_pj: &chip.energy.mac_pj,
        zero_mac_share: 0.0,
        sram_pj_per_byte: chip.energy.sram_pj_per_byte,
        link_pj_per_byte: chip.energy.link_pj_per_byte,
        static_w: chip.energy.static_w,
        bound_cycles: bound_cycles(chip, workload, mode),
    }
}

/// What no program can beat: its starts, and all stored MACs at the cores' peak, or every stored weight's values streamed in once for
/// a forward phase.
pub fn bound_cycles(chip: &Wafer, workload: &Workload, mode: Mode) -> u64 {
    let peak = |dtype: Dtype| chip.macs_per_cycle(dtype).map_or(f64::INFINITY, |macs| macs as f64);
    let compute: f64 = stored_macs_by_type(workload).iter().map(|(&dtype, macs)| macs / peak(dtype)).sum();
    // The least that any product reads of a tensor: all of it, or a part.
    let mut read: Vec<Option<u64>> = vec![None; workload.tensors.len()];
    let forward = workload.operators.iter().filter(|op| op.phase == Phase::Forward && op.every == 1);
    for operator in forward.filter(|op| op.kind == OperatorKind::Gemm) {
        for &t in &operator.inputs {
            let tensor = &workload.tensors[t];
            let values = match &tensor.mask {
                Some(_) => tensor.stored_elements() * tensor.dtype.bytes(),
                None => tensor.stored_bytes(),
            };
            let least = &mut read[workload.base(t).index()];
            *least = Some(least.map_or(values, |least| least.min(values)));
        }
    }
    // A pipeline keeps its weights.
    let streams = mode != Mode::Fused || chip.execution == WaferExecution::Streaming;
    let is_weight = |tensor: &Tensor| tensor.role == TensorRole::Weight && tensor.view.is_none() && streams;
    let weights = workload.tensors.iter_enumerated().filter(|(_, tensor)| is_weight(tensor));
    let streamed: f64 = weights.filter_map(|(id, tensor)| Some(read[id.index()]? as f64 * tensor.repeat as f64)).sum();
    let is_rare = mode == Mode::Fused && workload.operators.iter().all(|operator| operator.every > 1);
    let starts = if is_rare { 0.0 } else { least_launches(workload, mode) };
    (chip.cycles_of_us(chip.start_us) * starts + compute.max(streamed / chip.memory_bytes_per_cycle())).floor() as u64
}
