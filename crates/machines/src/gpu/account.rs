//! From timed kernels to an outcome: traffic, energy, what bounds each, and what cannot be beaten.

use std::sync::Arc;

use rdusim_base::mode::Mode;
use rdusim_base::units::{ByteSize, Dtype};
use rdusim_graph::arch::{Gpu, Sharding};
use rdusim_graph::workload::{
    OperatorKind, Phase, TensorId, TensorRole, Workload, least_launches, least_moved_bytes, stored_macs_by_type,
};
use rdusim_outcome::{
    BoundBy, Busy, EnergyJ, Fidelity, Outcome, SectionOutcome, StageOutcome, StopReason, TensorTraffic, Traffic,
};

use super::kernel::{Kernel, Work};
use super::sparse::Style;
use super::time::{KernelTime, Limit};

/// A kernel with its time and traffic, once.
#[derive(Debug, Clone)]
pub(super) struct Timed {
    pub(super) time: KernelTime,
    /// Bytes read from memory, by tensor.
    pub(super) reads: Vec<(TensorId, f64)>,
    /// Bytes written, by tensor.
    pub(super) writes: Vec<(TensorId, f64)>,
    /// Multiply-accumulates executed.
    pub(super) macs: u64,
    /// Those among them on elements that are not stored.
    pub(super) zero_macs: u64,
    /// Elements of second operands expanded from the format that they are stored in, each as often as it is.
    pub(super) expanded: f64,
    /// How a sparse weight is used.
    pub(super) style: Option<Style>,
    /// Part of the tensors that this device works on.
    pub(super) share: f64,
}

impl Default for Timed {
    fn default() -> Self {
        let time = KernelTime::of(0.0, Limit::Latency);
        Self {
            time,
            reads: Vec::new(),
            writes: Vec::new(),
            macs: 0,
            zero_macs: 0,
            expanded: 0.0,
            style: None,
            share: 1.0,
        }
    }
}

/// All kernels as sections of an outcome.
pub(super) fn outcome(
    gpu: &Gpu,
    workload: &Workload,
    mode: Mode,
    kernels: &[Kernel],
    timed: &[Timed],
    gaps: &[f64],
) -> Outcome {
    let mut sections: Vec<SectionOutcome> = kernels
        .iter()
        .zip(timed)
        .zip(gaps)
        .map(|((kernel, timed), &gap)| section(gpu, workload, kernel, timed, gap))
        .collect();
    sections.extend(communication(gpu, workload));
    Outcome {
        mode,
        fidelity: Fidelity::Kernel,
        stop: StopReason::Drained,
        cycles: sections.iter().map(|section| section.cycles).sum(),
        bound_cycles: bound_cycles(gpu, workload, mode),
        least_cycles: None,
        sections,
        notes: Vec::new(),
    }
}

/// Energy of a kernel that runs so many `times` and takes `static_s` seconds in all.
fn energy(gpu: &Gpu, dtype: Dtype, timed: &Timed, times: f64, traffic: &Traffic, static_s: f64) -> EnergyJ {
    let pj = gpu.energy.mac_pj.get(&dtype).copied().unwrap_or(0.0);
    let joules = |macs: u64| macs as f64 * times * pj * 1e-12;
    let zeros = joules(timed.zero_macs) * gpu.energy.zero_mac_share;
    // An element that is expanded is multiplied by its scale.
    let expansion = timed.expanded * times * pj * 1e-12;
    let tier_energy = gpu.memory.iter().next().map(|tier| tier.energy);
    let moved = traffic.off_chip_bytes() as f64;
    EnergyJ {
        compute: joules(timed.macs - timed.zero_macs) + zeros + expansion,
        zeros,
        sram: (traffic.sram_read_bytes + traffic.sram_write_bytes) as f64 * gpu.energy.l2_pj_per_byte * 1e-12,
        network: 0.0,
        off_chip: tier_energy.map_or(0.0, |tier| tier.joules(moved)),
        off_chip_items: tier_energy.map_or([0.0; 3], |tier| tier.joules_of_items(moved)),
        static_: static_s * gpu.energy.static_w,
    }
}

fn section(gpu: &Gpu, workload: &Workload, kernel: &Kernel, timed: &Timed, gap: f64) -> SectionOutcome {
    let first = &workload.operators[kernel.operators[0]];
    let (repeat, every) = (first.repeat, first.every);
    // What runs once in many steps is shared by them.
    let shared = |count: u64| count.saturating_mul(repeat).div_ceil(every);
    let times = repeat as f64 / every as f64;
    let names: Vec<String> = kernel.operators.iter().map(|&op| workload.operators[op].name.clone()).collect();
    let launch = gap.ceil() as u64;
    let cycles = timed.time.cycles.ceil() as u64 + launch;
    let mut by_tensor = indexmap::IndexMap::<String, TensorTraffic>::new();
    let name = |tensor: TensorId| workload.tensors[workload.base(tensor)].name.clone();
    for &(tensor, bytes) in timed.reads.iter().filter(|(_, bytes)| *bytes > 0.0) {
        by_tensor.entry(name(tensor)).or_default().off_chip_read_bytes += bytes.ceil() as u64;
    }
    for &(tensor, bytes) in &timed.writes {
        by_tensor.entry(name(tensor)).or_default().off_chip_write_bytes += (bytes * timed.share).ceil() as u64;
    }
    if timed.time.spill_bytes > 0.0 {
        let spilled = by_tensor.entry("(partial sums)".to_owned()).or_default();
        spilled.off_chip_read_bytes += timed.time.spill_bytes.ceil() as u64;
        spilled.off_chip_write_bytes += timed.time.spill_bytes.ceil() as u64;
    }
    let write_bytes: f64 = timed.writes.iter().map(|(_, bytes)| bytes * timed.share).sum();
    let traffic = Traffic {
        off_chip_read_bytes: by_tensor.values().map(|bytes| bytes.off_chip_read_bytes).sum(),
        off_chip_write_bytes: by_tensor.values().map(|bytes| bytes.off_chip_write_bytes).sum(),
        sram_read_bytes: (timed.time.l2_bytes - write_bytes).max(0.0) as u64,
        sram_write_bytes: write_bytes as u64,
        by_tensor,
        ..Traffic::default()
    }
    .times(repeat)
    .shared_by(every);
    let cycles_of_all = shared(cycles);
    let static_s = cycles_of_all as f64 / gpu.clock_hz as f64;
    let energy = energy(gpu, workload.tensors[first.inputs[0]].dtype, timed, times, &traffic, static_s);
    let memory_cycles = traffic.off_chip_bytes() as f64 / gpu.memory_bytes_per_cycle();
    let tier = gpu.memory.iter().next().map_or_else(String::new, |tier| tier.name.clone());
    let bound_by = if 2 * launch > cycles { BoundBy::Launch } else { told(timed.time.limit, &tier) };
    let label = match kernel.work {
        Work::Attention(_) => "flash attention".to_owned(),
        Work::AttentionGradient(_) => "flash attention, gradient".to_owned(),
        Work::Experts { .. } => "experts".to_owned(),
        Work::Gemm(_) | Work::Stream => names.join("+"),
    };
    SectionOutcome {
        name: label,
        operators: names.clone(),
        repeat,
        launches: repeat,
        every,
        phase: first.phase,
        cycles: cycles_of_all,
        launch_cycles: shared(launch),
        bound_by,
        pcus: timed.time.sms,
        pmus: 0,
        sram_peak_bytes: 0,
        sram_bank_loss_bytes: 0,
        held: Vec::new(),
        moved: vec![(tier.clone(), traffic.off_chip_bytes())],
        traffic,
        energy,
        links: Arc::default(),
        busy: Busy { tiers: vec![(tier, memory_cycles.ceil() as u64)], ..Busy::default() },
        stages: vec![StageOutcome {
            operators: names,
            pcus: timed.time.sms,
            busiest_cycles: shared(timed.time.busiest.ceil() as u64),
            mean_cycles: timed.time.mean * times,
            groups: Vec::new(),
            mapping: timed.time.shape.clone(),
        }],
    }
}

fn told(limit: Limit, tier: &str) -> BoundBy {
    match limit {
        Limit::Compute => BoundBy::Compute,
        Limit::Imbalance => BoundBy::Imbalance,
        Limit::L2 => BoundBy::Memory("l2".to_owned()),
        Limit::Memory => BoundBy::Memory(tier.to_owned()),
        Limit::Latency => BoundBy::Fill,
    }
}

/// Bytes of all weights, those of repeated blocks counted every time.
fn weight_bytes(workload: &Workload) -> u64 {
    let own = |t: &&rdusim_graph::workload::Tensor| t.role == TensorRole::Weight && t.view.is_none();
    workload.tensors.iter().filter(own).map(|t| t.stored_bytes().saturating_mul(t.repeat)).sum()
}

/// What the devices of a cluster exchange in a training step, if that is not hidden.
fn communication(gpu: &Gpu, workload: &Workload) -> Option<SectionOutcome> {
    let cluster = &gpu.cluster;
    let trains = workload.operators.iter().any(|operator| operator.phase == Phase::Update);
    if !trains || !cluster.exposed || cluster.devices < 2 {
        return None;
    }
    // Gradients are summed and shared out, weights gathered; with shared weights once more for the backward phase.
    let times = if cluster.sharding == Sharding::Full { 3.0 } else { 2.0 };
    let others = (cluster.devices - 1) as f64 / cluster.devices as f64;
    let bytes = times * weight_bytes(workload) as f64 * others;
    let seconds = bytes / cluster.link_bytes_per_s as f64;
    let cycles = (seconds * gpu.clock_hz as f64).ceil() as u64;
    Some(SectionOutcome {
        name: "communication".to_owned(),
        operators: Vec::new(),
        repeat: 1,
        launches: 1,
        every: 1,
        phase: Phase::Update,
        cycles,
        launch_cycles: 0,
        bound_by: BoundBy::Link,
        pcus: 0,
        pmus: 0,
        sram_peak_bytes: 0,
        sram_bank_loss_bytes: 0,
        held: Vec::new(),
        moved: Vec::new(),
        traffic: Traffic { network_bytes: bytes as u64, ..Traffic::default() },
        energy: EnergyJ { static_: seconds * gpu.energy.static_w, ..EnergyJ::default() },
        links: Arc::default(),
        busy: Busy::default(),
        stages: Vec::new(),
    })
}

/// What no kernels can beat: a launch (kernel by kernel one an operator, with epilogues one a kernel), and all stored MACs at the tensor
/// cores' peak or every input, stored weight and result moved once.
pub fn bound_cycles(gpu: &Gpu, workload: &Workload, mode: Mode) -> u64 {
    let sparse = workload.tensors.iter().any(|tensor| tensor.mask.is_some() || tensor.pruned.is_some());
    let peak = |dtype: Dtype| {
        let dense = gpu.macs_per_cycle(dtype).map_or(f64::INFINITY, |macs| macs as f64);
        if sparse { dense * gpu.sm.sparse_2_4_speedup } else { dense }
    };
    let compute: f64 = stored_macs_by_type(workload).iter().map(|(&dtype, macs)| macs / peak(dtype)).sum();
    let share = if gpu.cluster.sharding == Sharding::None { 1.0 } else { gpu.cluster.devices as f64 };
    let moved = least_moved_bytes(workload, share);
    let gap = gpu.cycles_of_us(gpu.launch.gap_us.min(gpu.launch.graph_gap_us));
    (gap * least_launches(workload, mode) + compute.max(moved / gpu.memory_bytes_per_cycle())).floor() as u64
}

/// Whether a kernel is of attention whose thread blocks have parts of a cache.
fn is_over_cache(kernel: &Kernel, timed: &Timed) -> bool {
    matches!(kernel.work, Work::Attention(_)) && timed.time.over_cache
}

/// What a user should know of the run.
pub(super) fn notes(gpu: &Gpu, workload: &Workload, mode: Mode, kernels: &[Kernel], timed: &[Timed]) -> Vec<String> {
    let mut notes = Vec::new();
    let fusion = &gpu.fusion;
    notes.push(match mode {
        Mode::Kbk => {
            "a kernel an operator, attention unfused; kernels are launched by the host one by one (eager)".to_owned()
        }
        Mode::Epilogue => {
            "elementwise operators are folded into the GEMM before them, attention is unfused; kernels are launched by the host \
             one by one"
                .to_owned()
        }
        Mode::Fused => {
            let products = |kernel: &Kernel| {
                let kinds = kernel.operators.iter().map(|&op| workload.operators[op].kind);
                kinds.filter(|kind| *kind == OperatorKind::Gemm).count()
            };
            let is_packed = |kernel: &Kernel| matches!(kernel.work, Work::Gemm(_)) && products(kernel) > 1;
            let parts = [
                (kernels.iter().any(is_packed), "products of the same rows"),
                (kernels.iter().any(|kernel| matches!(kernel.work, Work::Experts { .. })), "experts"),
                (fusion.epilogue, "GEMM epilogues"),
                (fusion.elementwise, "runs of functions on the same rows"),
                (fusion.attention.is_flash(), fusion.attention.told()),
            ];
            let on: Vec<&str> = parts.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
            let fused = if on.is_empty() { "nothing".to_owned() } else { on.join(", ") };
            let launched = if fusion.graphs { "captured as a graph" } else { "launched by the host one by one" };
            format!("fused into single kernels: {fused}; kernels are {launched}")
        }
    });
    if kernels.iter().zip(timed).any(|(kernel, timed)| is_over_cache(kernel, timed)) {
        notes.push(
            "attention over a cache takes the kernel of decoding of an inference library; `pod` with one chip and its stack \
             `serving` takes the same kernels, and the host's time of a step beside them"
                .to_owned(),
        );
    }
    let dense = timed.iter().filter(|timed| timed.style == Some(Style::Dense)).count();
    let sparse = timed.iter().filter(|timed| timed.style.is_some()).count();
    if sparse > 0 {
        notes.push(format!("{dense} of {sparse} kernels with a sparse matrix are faster as if it were dense"));
    }
    let trains = kernels.iter().any(|kernel| workload.operators[kernel.operators[0]].phase == Phase::Update);
    if trains && gpu.cluster.devices > 1 {
        let how = match gpu.cluster.sharding {
            Sharding::None => "each device updates all weights",
            Sharding::Optimizer => "each device keeps and updates its share of the optimiser's state",
            Sharding::Full => "each device keeps its share of weights, gradients and state",
        };
        let link = if gpu.cluster.exposed {
            "communication is charged in full"
        } else {
            "communication is taken as hidden (ideal)"
        };
        let bytes = ByteSize(weight_bytes(workload));
        notes.push(format!("{} devices, {how}; weights are {bytes}; {link}", gpu.cluster.devices));
        if gpu.cluster.sharding != Sharding::None {
            let is_update = |kernel: &Kernel| workload.operators[kernel.operators[0]].phase == Phase::Update;
            let of_update = kernels.iter().zip(timed).filter(|(kernel, _)| is_update(kernel));
            let cycles: f64 = of_update
                .map(|(kernel, timed)| timed.time.cycles * workload.operators[kernel.operators[0]].repeat as f64)
                .sum();
            let (share_ms, devices) = (cycles / gpu.clock_hz as f64 * 1e3, gpu.cluster.devices);
            notes.push(format!(
                "kernels of the update take {share_ms:.1} ms for a device's 1/{devices} of the weights; all of them would take it \
                 about {:.1} ms",
                share_ms * devices as f64
            ));
        }
    }
    notes
}
