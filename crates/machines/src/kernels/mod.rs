//! Chips that run kernels one after the other: from timed kernels to an outcome, with programs as sections, traffic, energy and what
//! bounds each.
//!
//! A chip kind says what a kernel takes ([`Timed`]); a program is one kernel, or in mode `fused` all of a run of operators that are
//! repeated together.

use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;

use rdusim_base::mode::Mode;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::Tier;
use rdusim_graph::workload::{OperatorId, Phase, TensorId, Workload};
use rdusim_outcome::{
    BoundBy, Busy, EnergyJ, Fidelity, HeldBy, Outcome, SectionOutcome, StageOutcome, StopReason, TensorTraffic, Traffic,
};

/// The busiest unit works so much longer than the mean before imbalance is what bounds.
const IMBALANCE: f64 = 1.5;

/// What programs start from, and what energy follows.
#[derive(Debug)]
pub struct Machine<'a> {
    /// Clock in hertz.
    pub clock_hz: u64,
    /// Cycles from one program to the next, started by the host.
    pub start_cycles: f64,
    /// Cycles from one kernel of a program to the next.
    pub step_cycles: f64,
    /// The memory off the chip.
    pub memory: Option<&'a Tier>,
    /// Its bytes a cycle.
    pub memory_bytes_per_cycle: f64,
    /// Picojoule of one multiply-accumulate, per data type.
    pub mac_pj: &'a BTreeMap<Dtype, f64>,
    /// Part of it that one on an element that is not stored takes.
    pub zero_mac_share: f64,
    /// Picojoule of a byte between on-chip memory and units.
    pub sram_pj_per_byte: f64,
    /// Picojoule of a byte over links between units.
    pub link_pj_per_byte: f64,
    /// Watts that flow whatever the chip does.
    pub static_w: f64,
    /// Cycles that nothing beats.
    pub bound_cycles: u64,
}

/// What a kernel's time follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The units that multiply, or those that compute functions.
    Compute,
    /// The ports of the buffer between memory and units.
    Buffer,
    /// Links between units.
    Link,
    /// The memory.
    Memory,
    /// Its first loads and last results.
    Fill,
}

/// A kernel with its time and traffic, once and without its start.
#[derive(Debug, Clone)]
pub struct Timed {
    /// Cycles of all of it.
    pub cycles: f64,
    /// What they follow.
    pub limit: Limit,
    /// Cycles of the busiest unit.
    pub busiest_cycles: f64,
    /// Mean cycles of all units with work.
    pub mean_cycles: f64,
    /// Units with work.
    pub units: u64,
    /// Bytes read from memory, by tensor.
    pub reads: Vec<(TensorId, f64)>,
    /// Bytes written, by tensor.
    pub writes: Vec<(TensorId, f64)>,
    /// Bytes between on-chip memory and the units.
    pub buffer_bytes: f64,
    /// Bytes over links between units.
    pub link_bytes: f64,
    /// Multiply-accumulates executed.
    pub macs: f64,
    /// Those among them on elements that are not stored.
    pub zero_macs: f64,
    /// Elements of second operands expanded from the format that they are stored in, each as often as it is.
    pub expanded: f64,
    /// Bytes of on-chip memory that tensors keep meanwhile.
    pub held: f64,
    /// One line on how it runs.
    pub told: String,
}

impl Limit {
    const ALL: [Self; 5] = [Self::Compute, Self::Buffer, Self::Link, Self::Memory, Self::Fill];
}

/// Kernels of a section: its operators, and what each takes.
type Run<'a> = Vec<(&'a Vec<OperatorId>, &'a Timed)>;

/// All programs as sections of an outcome.
pub fn outcome(
    machine: &Machine<'_>,
    workload: &Workload,
    mode: Mode,
    lists: &[Vec<OperatorId>],
    timed: &[Timed],
) -> Outcome {
    let key = |list: &Vec<OperatorId>| {
        let operator = &workload.operators[list[0]];
        (operator.block, operator.phase, operator.repeat, operator.every)
    };
    let mut runs: Vec<Run<'_>> = Vec::new();
    for (list, timed) in lists.iter().zip(timed) {
        match runs.last_mut() {
            Some(run) if mode == Mode::Fused && run.last().is_some_and(|(last, _)| key(last) == key(list)) => {
                run.push((list, timed));
            }
            _ => runs.push(vec![(list, timed)]),
        }
    }
    let sections: Vec<SectionOutcome> =
        runs.iter().enumerate().map(|(at, run)| section(machine, workload, mode, at == 0, run)).collect();
    Outcome {
        mode,
        fidelity: Fidelity::Kernel,
        stop: StopReason::Drained,
        cycles: sections.iter().map(|section| section.cycles).sum(),
        bound_cycles: machine.bound_cycles,
        least_cycles: None,
        sections,
        notes: Vec::new(),
    }
}

/// One program in which every kernel works on units of its own at the same time, as often as it is repeated; `cycles` of all together
/// and what they follow.
pub fn pipeline(
    machine: &Machine<'_>,
    workload: &Workload,
    lists: &[Vec<OperatorId>],
    timed: &[Timed],
    cycles: f64,
    limit: Limit,
) -> Outcome {
    let run: Run<'_> = lists.iter().zip(timed).collect();
    let mut all = gathered(machine, workload, &run, true);
    all.by_limit = Limit::ALL.map(|of| (of, if of == limit { cycles } else { 0.0 }));
    let launch = machine.start_cycles.ceil() as u64;
    let units = timed.iter().map(|timed| timed.units).sum();
    let section = finished(machine, all, &run, cycles.ceil() as u64 + launch, launch, units, "pipeline from");
    Outcome {
        mode: Mode::Fused,
        fidelity: Fidelity::Kernel,
        stop: StopReason::Drained,
        cycles: section.cycles,
        bound_cycles: machine.bound_cycles,
        least_cycles: None,
        sections: vec![section],
        notes: Vec::new(),
    }
}

/// Off-chip and buffer traffic of a kernel, once.
fn traffic_of(workload: &Workload, timed: &Timed) -> Traffic {
    let mut by_tensor = IndexMap::<String, TensorTraffic>::new();
    let name = |tensor: TensorId| workload.tensors[workload.base(tensor)].name.clone();
    for (tensor, bytes) in &timed.reads {
        by_tensor.entry(name(*tensor)).or_default().off_chip_read_bytes += bytes.ceil() as u64;
    }
    for (tensor, bytes) in &timed.writes {
        by_tensor.entry(name(*tensor)).or_default().off_chip_write_bytes += bytes.ceil() as u64;
    }
    let written: u64 = by_tensor.values().map(|bytes| bytes.off_chip_write_bytes).sum();
    let read: u64 = by_tensor.values().map(|bytes| bytes.off_chip_read_bytes).sum();
    Traffic {
        off_chip_read_bytes: read,
        off_chip_write_bytes: written,
        // What comes from memory is written into the on-chip memory, what goes there is read from it.
        network_bytes: timed.link_bytes.ceil() as u64,
        network_byte_hops: timed.link_bytes.ceil() as u64,
        sram_read_bytes: timed.buffer_bytes.ceil() as u64 + written,
        sram_write_bytes: read,
        by_tensor,
        ..Traffic::default()
    }
}

/// What the kernels of a section add up to.
struct Gathered {
    operators: Vec<String>,
    stages: Vec<StageOutcome>,
    traffic: Traffic,
    energy: EnergyJ,
    by_limit: [(Limit, f64); 5],
    busiest: f64,
    mean: f64,
}

/// Adds up the kernels of a run. Those that are repeated side by side (`beside`) work no longer for it.
fn gathered(machine: &Machine<'_>, workload: &Workload, run: &Run<'_>, beside: bool) -> Gathered {
    let mut all = Gathered {
        operators: Vec::new(),
        stages: Vec::with_capacity(run.len()),
        traffic: Traffic::default(),
        energy: EnergyJ::default(),
        by_limit: Limit::ALL.map(|limit| (limit, 0.0)),
        busiest: 0.0,
        mean: 0.0,
    };
    for (list, timed) in run {
        let first = &workload.operators[list[0]];
        let times = first.repeat as f64 / first.every as f64;
        let turns = if beside { 1.0 } else { times };
        let of = traffic_of(workload, timed).times(first.repeat).shared_by(first.every);
        let dtype = workload.tensors[first.inputs[0]].dtype;
        add_energy(machine, dtype, timed, times, &of, &mut all.energy);
        all.traffic.add(&of);
        let limits = all.by_limit.iter_mut().filter(|(limit, _)| *limit == timed.limit);
        limits.for_each(|(_, sum)| *sum += timed.cycles * turns);
        all.busiest += timed.busiest_cycles * turns;
        all.mean += timed.mean_cycles * turns;
        let names: Vec<String> = list.iter().map(|&op| workload.operators[op].name.clone()).collect();
        all.operators.extend(names.clone());
        all.stages.push(StageOutcome {
            operators: names,
            pcus: timed.units,
            busiest_cycles: (timed.busiest_cycles * turns).ceil() as u64,
            mean_cycles: timed.mean_cycles * turns,
            groups: Vec::new(),
            mapping: timed.told.clone(),
        });
    }
    all
}

fn section(machine: &Machine<'_>, workload: &Workload, mode: Mode, starts: bool, run: &Run<'_>) -> SectionOutcome {
    let first = &workload.operators[run[0].0[0]];
    let (repeat, every) = (first.repeat, first.every);
    let times = repeat as f64 / every as f64;
    let launches = match mode {
        Mode::Fused => u64::from(starts),
        Mode::Kbk | Mode::Epilogue => repeat,
    };
    let launch = (machine.start_cycles * launches as f64 / every as f64).ceil() as u64;
    // From each kernel of a program to the next, also to that of the next repetition.
    let steps = match mode {
        Mode::Fused => (run.len() as f64 * times - f64::from(u8::from(starts))).max(0.0) * machine.step_cycles,
        Mode::Kbk | Mode::Epilogue => 0.0,
    };
    let mut all = gathered(machine, workload, run, false);
    all.by_limit.iter_mut().filter(|(limit, _)| *limit == Limit::Fill).for_each(|(_, sum)| *sum += steps);
    let cycles = (all.by_limit.iter().map(|(_, sum)| sum).sum::<f64>()).ceil() as u64 + launch;
    let units = run.iter().map(|(_, timed)| timed.units).max().unwrap_or(0);
    let name = if mode == Mode::Fused { "program from" } else { "" };
    let section = finished(machine, all, run, cycles, launch, units, name);
    SectionOutcome { repeat, launches, every, phase: first.phase, ..section }
}

/// The section of kernels that take so many cycles together, with so many cycles of start among them, on so many units. It is named
/// for its first operator, or without a prefix for all.
fn finished(
    machine: &Machine<'_>,
    all: Gathered,
    run: &Run<'_>,
    cycles: u64,
    launch: u64,
    units: u64,
    prefix: &str,
) -> SectionOutcome {
    let Gathered { operators, stages, traffic, mut energy, by_limit, busiest, mean } = all;
    energy.static_ = cycles as f64 / machine.clock_hz as f64 * machine.static_w;
    let tier = machine.memory.map_or_else(String::new, |tier| tier.name.clone());
    let moving = (traffic.off_chip_bytes() as f64 / machine.memory_bytes_per_cycle).min(cycles as f64);
    let held = run.iter().map(|(_, timed)| timed.held).fold(0.0, f64::max) as u64;
    SectionOutcome {
        name: if prefix.is_empty() { operators.join("+") } else { format!("{prefix} {}", operators[0]) },
        operators,
        repeat: 1,
        launches: 1,
        every: 1,
        phase: Phase::Forward,
        cycles,
        launch_cycles: launch,
        bound_by: bound_by(&by_limit, launch, busiest > IMBALANCE * mean, &tier),
        pcus: units,
        pmus: 0,
        sram_peak_bytes: held,
        sram_bank_loss_bytes: 0,
        held: vec![(HeldBy::Activations, held)],
        moved: vec![(tier.clone(), traffic.off_chip_bytes())],
        traffic,
        energy,
        links: Arc::default(),
        busy: Busy { tiers: vec![(tier, moving.ceil() as u64)], ..Busy::default() },
        stages,
    }
}

/// Adds the energy of a kernel that runs so many times, without what flows statically.
fn add_energy(machine: &Machine<'_>, dtype: Dtype, timed: &Timed, times: f64, traffic: &Traffic, sum: &mut EnergyJ) {
    let pj = machine.mac_pj.get(&dtype).copied().unwrap_or(0.0);
    let joules = |macs: f64| macs * times * pj * 1e-12;
    let zeros = joules(timed.zero_macs) * machine.zero_mac_share;
    let tier = machine.memory.map(|tier| tier.energy);
    let moved = traffic.off_chip_bytes() as f64;
    // An element that is expanded is multiplied by its scale.
    sum.compute += joules(timed.macs - timed.zero_macs + timed.expanded) + zeros;
    sum.zeros += zeros;
    sum.sram += (traffic.sram_read_bytes + traffic.sram_write_bytes) as f64 * machine.sram_pj_per_byte * 1e-12;
    sum.network += traffic.network_bytes as f64 * machine.link_pj_per_byte * 1e-12;
    sum.off_chip += tier.map_or(0.0, |tier| tier.joules(moved));
    let items = tier.map_or([0.0; 3], |tier| tier.joules_of_items(moved));
    sum.off_chip_items.iter_mut().zip(items).for_each(|(sum, part)| *sum += part);
}

/// What takes most of a section's time.
fn bound_by(by_limit: &[(Limit, f64)], launch: u64, is_uneven: bool, tier: &str) -> BoundBy {
    let most = by_limit.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    match most {
        Some((_, cycles)) if launch as f64 > *cycles => BoundBy::Launch,
        Some((Limit::Buffer, _)) => BoundBy::Memory("buffer".to_owned()),
        Some((Limit::Memory, _)) => BoundBy::Memory(tier.to_owned()),
        Some((Limit::Fill, _)) => BoundBy::Fill,
        Some((Limit::Link, _)) => BoundBy::Link,
        Some((Limit::Compute, _)) if is_uneven => BoundBy::Imbalance,
        Some((Limit::Compute, _)) | None => BoundBy::Compute,
    }
}
