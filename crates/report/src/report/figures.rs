//! The definition of every figure a report shows, each in one place.

use std::collections::BTreeMap;

use rdusim_base::units::Dtype;
use rdusim_graph::arch::Device;
use rdusim_graph::workload::{Tensor, TensorRole, Workload};
use rdusim_outcome::{BoundBy, EnergyJ, Outcome, Traffic};

/// `over / under`, and 0 where that is no number.
pub(crate) fn quotient(over: f64, under: f64) -> f64 {
    let value = over / under;
    if value.is_finite() { value } else { 0.0 }
}

/// Work and size of a workload, whatever chip it runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Work {
    /// 2·M·N·K of every GEMM.
    pub(crate) dense_flops: u64,
    /// The same, counting stored weight elements only.
    pub(crate) executed_flops: u64,
    /// Weight elements stored.
    pub(crate) parameters: u64,
    /// Weight elements if every one were stored.
    pub(crate) dense_parameters: u64,
    /// Data type of the GEMMs' activations (of most MACs, where they differ), whose peak counts; bf16 without a GEMM.
    pub(crate) dtype: Dtype,
}

impl Work {
    pub(crate) fn of(workload: &Workload) -> Self {
        let mut macs_by_dtype: BTreeMap<Dtype, u64> = BTreeMap::new();
        let (mut dense_macs, mut stored_macs) = (0_u64, 0_u64);
        for (id, operator) in workload.operators.iter_enumerated() {
            if workload.gemm_shape(id).is_none() {
                continue;
            }
            let runs = |macs: u64| macs.saturating_mul(operator.repeat) / operator.every;
            let dense = runs(workload.dense_macs(id));
            dense_macs = dense_macs.saturating_add(dense);
            stored_macs = stored_macs.saturating_add(runs(workload.stored_macs(id)));
            let slot = macs_by_dtype.entry(workload.tensors[operator.inputs[0]].dtype).or_default();
            *slot = slot.saturating_add(dense);
        }
        // `rev` so that of equals the first data type wins.
        let most = macs_by_dtype.into_iter().rev().max_by_key(|(_, macs)| *macs);
        let own = |tensor: &&Tensor| tensor.role == TensorRole::Weight && tensor.view.is_none();
        let weights = workload.tensors.iter().filter(own);
        Self {
            dense_flops: dense_macs.saturating_mul(2),
            executed_flops: stored_macs.saturating_mul(2),
            parameters: workload.parameters(),
            dense_parameters: weights.map(|tensor| tensor.rows * tensor.columns * tensor.repeat).sum(),
            dtype: most.map_or(Dtype::Bf16, |(dtype, _)| dtype),
        }
    }

    /// FLOP/s of a chip at the workload's data type; 0 if it lacks it.
    pub(crate) fn peak_flops(&self, chip: &dyn Device) -> f64 {
        chip.peak_flops(self.dtype).unwrap_or(0.0)
    }
}

/// The data type a chip's headline peak is quoted at: bf16, else the widest it has.
pub(crate) fn peak_dtype(chip: &dyn Device) -> Dtype {
    if chip.peak_flops(Dtype::Bf16).is_some() {
        return Dtype::Bf16;
    }
    chip.dtypes().into_iter().max_by_key(|dtype| dtype.bytes()).unwrap_or(Dtype::Bf16)
}

/// Sustained off-chip bandwidth of all tiers, bytes a second.
pub(crate) fn off_chip_bytes_per_s(chip: &dyn Device) -> f64 {
    chip.tiers().iter().map(|tier| tier.bandwidth_bytes_per_s as f64).sum()
}

/// What one run comes to.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    /// First launch to last byte drained.
    pub(crate) cycles: u64,
    /// Lower bound of the cycles whatever the mapping.
    pub(crate) bound_cycles: u64,
    /// How far the mapping may be from the best, where that is known.
    pub(crate) gap: Option<f64>,
    /// `cycles / clock`.
    pub(crate) time_s: f64,
    /// Under vendor limits: seconds if no section computes while it loads or writes.
    pub(crate) serial_s: Option<f64>,
    /// Sections, each started once.
    pub(crate) launches: u64,
    /// Dense FLOP a second, in TFLOP/s.
    pub(crate) tflops_dense_equivalent: f64,
    /// Executed FLOP a second, in TFLOP/s.
    pub(crate) tflops_executed: f64,
    /// Executed FLOP over what the chip could do in the time.
    pub(crate) utilization: f64,
    /// Share of the cycles that the mapping-free lower bound explains.
    pub(crate) bound_share: f64,
    /// Executed FLOP over off-chip bytes.
    pub(crate) op_intensity: f64,
    /// Traffic of all sections.
    pub(crate) traffic: Traffic,
    /// Energy of all sections.
    pub(crate) energy: EnergyJ,
    /// Cycles by what bounds them, most first.
    pub(crate) bound_by: Vec<(BoundBy, u64)>,
}

impl Figures {
    pub(crate) fn new(chip: &dyn Device, work: &Work, outcome: &Outcome) -> Self {
        let time_s = quotient(outcome.cycles as f64, chip.clock_hz() as f64);
        let executed = work.executed_flops as f64;
        let traffic = outcome.traffic();
        Self {
            cycles: outcome.cycles,
            bound_cycles: outcome.bound_cycles,
            gap: outcome.gap(),
            time_s,
            serial_s: chip.limits().map(|_| quotient(outcome.serial_cycles() as f64, chip.clock_hz() as f64)),
            launches: outcome.sections.iter().filter(|s| s.every == 1).map(|section| section.launches).sum(),
            tflops_dense_equivalent: quotient(work.dense_flops as f64 / 1e12, time_s),
            tflops_executed: quotient(executed / 1e12, time_s),
            utilization: quotient(executed, time_s * work.peak_flops(chip)),
            bound_share: quotient(outcome.bound_cycles as f64, outcome.cycles as f64),
            op_intensity: quotient(executed, traffic.off_chip_bytes() as f64),
            traffic,
            energy: outcome.energy(),
            bound_by: cycles_by_bound(outcome),
        }
    }
}

fn cycles_by_bound(outcome: &Outcome) -> Vec<(BoundBy, u64)> {
    let mut cycles: Vec<(BoundBy, u64)> = Vec::new();
    for section in &outcome.sections {
        match cycles.iter_mut().find(|(bound, _)| *bound == section.bound_by) {
            Some((_, sum)) => *sum += section.cycles,
            None => cycles.push((section.bound_by.clone(), section.cycles)),
        }
    }
    cycles.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
    cycles
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    fn near(got: f64, want: f64) {
        assert!((got - want).abs() <= 1e-9 * want.abs(), "{got} is not {want}");
    }

    #[test]
    fn work_of_the_dense_ffn() {
        let work = Work::of(&fixture::ffn(None));
        assert_eq!(work.dense_flops, 858_993_459_200);
        assert_eq!(work.executed_flops, work.dense_flops);
        assert_eq!(work.parameters, 209_715_200);
        assert_eq!(work.dense_parameters, 209_715_200);
        assert_eq!(work.dtype, Dtype::Bf16);
        near(work.peak_flops(&fixture::sn10()), 307.2e12);
    }

    #[test]
    fn work_of_the_sparse_ffn_counts_stored_elements() {
        let work = Work::of(&fixture::ffn(Some(0.125)));
        assert_eq!(work.dense_flops, 858_993_459_200);
        assert_eq!(work.executed_flops, 107_374_182_400);
        assert_eq!(work.parameters, 26_214_400);
        assert_eq!(work.dense_parameters, 209_715_200);
    }

    #[test]
    fn figures_of_a_run_follow_their_definitions() {
        let (chip, workload) = (fixture::sn10(), fixture::ffn(None));
        let fused = &fixture::outcomes()[2];
        let figures = Figures::new(&chip, &Work::of(&workload), fused);
        near(figures.time_s, fused.cycles as f64 / 1.25e9);
        near(figures.tflops_executed, 858_993_459_200.0 / figures.time_s / 1e12);
        near(figures.tflops_dense_equivalent, figures.tflops_executed);
        near(figures.utilization, figures.tflops_executed / 307.2);
        near(figures.op_intensity, 858_993_459_200.0 / 461_373_440.0);
        near(figures.bound_share, fused.bound_cycles as f64 / fused.cycles as f64);
        assert_eq!(figures.launches, 1);
        assert_eq!(figures.bound_by, [(BoundBy::Memory("ddr".into()), fused.cycles)]);
    }

    #[test]
    fn an_empty_run_has_zeros_not_nans() {
        let (chip, workload) = (fixture::sn10(), fixture::empty_workload());
        let figures = Figures::new(&chip, &Work::of(&workload), &fixture::empty_outcome());
        for value in [
            figures.time_s,
            figures.tflops_executed,
            figures.tflops_dense_equivalent,
            figures.utilization,
            figures.op_intensity,
            figures.bound_share,
        ] {
            assert!(value.to_bits() == 0, "{value}");
        }
    }

    #[test]
    fn peak_falls_back_to_the_widest_data_type() {
        let mut chip = fixture::sn10();
        assert_eq!(peak_dtype(&chip), Dtype::Bf16);
        chip.pcu.lanes = [(Dtype::Int8, 64), (Dtype::Fp32, 16)].into();
        assert_eq!(peak_dtype(&chip), Dtype::Fp32);
        chip.pcu.lanes.clear();
        assert_eq!(peak_dtype(&chip), Dtype::Bf16);
    }
}
