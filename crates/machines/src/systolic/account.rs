//! What energy and starts follow on a chip of systolic arrays, and what cannot be beaten.

use crate::kernels::Machine;
use rdusim_base::mode::Mode;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::Systolic;
use rdusim_graph::workload::{Workload, least_launches, least_moved_bytes, stored_macs_by_type};

pub(super) fn machine<'a>(chip: &'a Systolic, workload: &Workload, mode: Mode) -> Machine<'a> {
    Machine {
        clock_hz: chip.clock_hz,
        start_cycles: chip.cycles_of_us(chip.start_us),
        step_cycles: chip.cycles_of_us(chip.step_us),
        memory: chip.memory.iter().next(),
        memory_bytes_per_cycle: chip.memory_bytes_per_cycle(),
        mac_pj: &chip.energy.mac_pj,
        zero_mac_share: chip.energy.zero_mac_share,
        sram_pj_per_byte: chip.energy.buffer_pj_per_byte,
        link_pj_per_byte: 0.0,
        static_w: chip.energy.static_w,
        bound_cycles: bound_cycles(chip, workload, mode),
    }
}

/// What no program can beat: its starts, and all stored MACs at the peak of all arrays, or every input, stored weight and result
/// moved once.
pub fn bound_cycles(chip: &Systolic, workload: &Workload, mode: Mode) -> u64 {
    let peak = |dtype: Dtype| chip.macs_per_cycle(dtype).map_or(f64::INFINITY, |macs| macs as f64);
    let compute: f64 = stored_macs_by_type(workload).iter().map(|(&dtype, macs)| macs / peak(dtype)).sum();
    let moved = least_moved_bytes(workload, 1.0);
    let is_rare = mode == Mode::Fused && workload.operators.iter().all(|operator| operator.every > 1);
    let starts = if is_rare { 0.0 } else { least_launches(workload, mode) };
    (chip.cycles_of_us(chip.start_us) * starts + compute.max(moved / chip.memory_bytes_per_cycle())).floor() as u64
}
