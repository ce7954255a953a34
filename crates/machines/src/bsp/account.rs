//! From planned operators to an outcome: programs as sections, traffic, energy, what bounds each, and what cannot be beaten.

use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;

use super::operators::Planned;
use super::step::{Parts, parts_of};
use super::stream::{self, Streaming};
use rdusim_base::index::Id;
use rdusim_base::mode::Mode;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::Bsp;
use rdusim_graph::workload::{TensorId, Workload, least_launches, stored_macs_by_type};
use rdusim_outcome::{
    BoundBy, Busy, EnergyJ, Fidelity, HeldBy, Outcome, SectionOutcome, StageOutcome, StopReason, TensorTraffic, Traffic,
};

/// The busiest tile works so much longer than the mean before imbalance is what bounds.
const IMBALANCE: f64 = 1.5;

/// One operator's figures, every repetition counted, the part of one training step.
struct Counted {
    parts: Parts,
    streaming: Streaming,
    mean_cycles: f64,
    times: f64,
    traffic: Traffic,
    energy: EnergyJ,
}

/// All programs as sections of an outcome. `program_of`: the program of each operator; programs run in order.
pub(super) fn outcome(
    chip: &Bsp,
    workload: &Workload,
    mode: Mode,
    program_of: &[usize],
    planned: &[Planned],
) -> Outcome {
    let mut programs: BTreeMap<usize, Vec<&Planned>> = BTreeMap::new();
    for one in planned {
        programs.entry(program_of.get(one.op.index()).copied().unwrap_or(0)).or_default().push(one);
    }
    let sections: Vec<SectionOutcome> = programs
        .values()
        .flat_map(|program| runs(workload, program))
        .map(|(first, run)| section(chip, workload, mode, first, &run))
        .collect();
    Outcome {
        mode,
        fidelity: Fidelity::Kernel,
        stop: StopReason::Drained,
        cycles: sections.iter().map(|section| section.cycles).sum(),
        bound_cycles: bound_cycles(chip, workload, mode),
        least_cycles: None,
        sections,
        notes: Vec::new(),
    }
}

/// A program's operators in runs that are repeated together; whether the program begins with the run.
fn runs<'a>(workload: &Workload, program: &[&'a Planned]) -> Vec<(bool, Vec<&'a Planned>)> {
    let key = |one: &Planned| {
        let operator = &workload.operators[one.op];
        (operator.block, operator.phase, operator.repeat, operator.every)
    };
    let mut list: Vec<(bool, Vec<&Planned>)> = Vec::new();
    for one in program.iter().copied() {
        match list.last_mut() {
            Some((_, run)) if run.last().is_some_and(|last| key(last) == key(one)) => run.push(one),
            _ => list.push((list.is_empty(), vec![one])),
        }
    }
    list
}

fn count(chip: &Bsp, workload: &Workload, planned: &Planned) -> Counted {
    let operator = &workload.operators[planned.op];
    let times = operator.repeat as f64 / operator.every as f64;
    let mut by_tensor = IndexMap::<String, TensorTraffic>::new();
    let name = |tensor: TensorId| workload.tensors[workload.base(tensor)].name.clone();
    for (tensor, bytes) in &planned.stream_reads {
        by_tensor.entry(name(*tensor)).or_default().off_chip_read_bytes += bytes.ceil() as u64;
    }
    for (tensor, bytes) in &planned.stream_writes {
        by_tensor.entry(name(*tensor)).or_default().off_chip_write_bytes += bytes.ceil() as u64;
    }
    let moved: f64 = planned.steps.iter().map(|step| step.moved_bytes * step.times as f64).sum();
    let traffic = Traffic {
        off_chip_read_bytes: by_tensor.values().map(|bytes| bytes.off_chip_read_bytes).sum(),
        off_chip_write_bytes: by_tensor.values().map(|bytes| bytes.off_chip_write_bytes).sum(),
        network_bytes: moved.ceil() as u64,
        network_byte_hops: moved.ceil() as u64,
        sram_read_bytes: (planned.memory_read + moved).ceil() as u64,
        sram_write_bytes: (planned.memory_write + moved).ceil() as u64,
        by_tensor,
        ..Traffic::default()
    };
    let mean: f64 = planned.steps.iter().map(|step| step.mean_cycles * step.times as f64).sum();
    let dtype = workload.tensors[operator.inputs[0]].dtype;
    let parts = parts_of(chip, &planned.steps);
    let streaming = Streaming {
        read: traffic.off_chip_read_bytes as f64,
        read_cycles: traffic.off_chip_read_bytes as f64 / chip.memory_bytes_per_cycle(),
        written: traffic.off_chip_write_bytes as f64,
        cycles: parts.total(),
    };
    let traffic = traffic.times(operator.repeat).shared_by(operator.every);
    Counted {
        parts,
        streaming,
        mean_cycles: mean,
        times,
        energy: energy(chip, dtype, planned, times, &traffic),
        traffic,
    }
}

/// What an operator streams, and its cycles, once.
pub(super) fn counted(chip: &Bsp, workload: &Workload, planned: &Planned) -> Streaming {
    count(chip, workload, planned).streaming
}

/// Joules of all repetitions of an operator, beside static power.
pub(super) fn joules(chip: &Bsp, workload: &Workload, planned: &Planned) -> f64 {
    count(chip, workload, planned).energy.total()
}

/// Energy of an operator that runs so many times, without what flows statically.
fn energy(chip: &Bsp, dtype: Dtype, planned: &Planned, times: f64, traffic: &Traffic) -> EnergyJ {
    let pj = chip.energy.mac_pj.get(&dtype).copied().unwrap_or(0.0);
    let joules = |macs: u64| macs as f64 * times * pj * 1e-12;
    let zeros = joules(planned.zero_macs) * chip.energy.zero_mac_share;
    let tier = chip.memory.iter().next().map(|tier| tier.energy);
    let moved = traffic.off_chip_bytes() as f64;
    EnergyJ {
        // An element that is expanded is multiplied by its scale.
        compute: joules(planned.macs - planned.zero_macs) + zeros + planned.expanded * times * pj * 1e-12,
        zeros,
        sram: (traffic.sram_read_bytes + traffic.sram_write_bytes) as f64 * chip.energy.sram_pj_per_byte * 1e-12,
        network: traffic.network_bytes as f64 * chip.energy.exchange_pj_per_byte * 1e-12,
        off_chip: tier.map_or(0.0, |tier| tier.joules(moved)),
        off_chip_items: tier.map_or([0.0; 3], |tier| tier.joules_of_items(moved)),
        static_: 0.0,
    }
}

fn section(chip: &Bsp, workload: &Workload, mode: Mode, starts: bool, run: &[&Planned]) -> SectionOutcome {
    let first = &workload.operators[run[0].op];
    let counted: Vec<Counted> = run.iter().map(|planned| count(chip, workload, planned)).collect();
    // A graph program loops over the repetitions itself.
    let launches = match mode {
        Mode::Fused => u64::from(starts),
        Mode::Kbk | Mode::Epilogue => first.repeat,
    };
    let launch = (chip.cycles_of_us(chip.program_us) * launches as f64 / first.every as f64).ceil() as u64;
    let (mut parts, mut mean) = (Parts::default(), 0.0);
    let line: Vec<Streaming> = run.iter().zip(&counted).flat_map(|(one, of)| of.streaming.parts(one.parts)).collect();
    let link = stream::Link::of(chip);
    // Only a graph program loops itself, and reads ahead for its next repetition.
    let streamed = match mode {
        Mode::Fused => stream::exposed(&link, &line, first.repeat),
        Mode::Kbk | Mode::Epilogue => stream::exposed(&link, &line, 1) * first.repeat as f64,
    } / first.every as f64;
    let mut traffic = Traffic::default();
    let mut energy = EnergyJ::default();
    let mut stages = Vec::with_capacity(run.len());
    for (planned, of) in run.iter().zip(&counted) {
        let scaled = Parts {
            compute: of.parts.compute * of.times,
            sync: of.parts.sync * of.times,
            exchange: of.parts.exchange * of.times,
        };
        parts.add(&scaled);
        mean += of.mean_cycles * of.times;
        traffic.add(&of.traffic);
        energy.compute += of.energy.compute;
        energy.zeros += of.energy.zeros;
        energy.sram += of.energy.sram;
        energy.network += of.energy.network;
        energy.off_chip += of.energy.off_chip;
        energy.off_chip_items.iter_mut().zip(of.energy.off_chip_items).for_each(|(sum, part)| *sum += part);
        stages.push(stage(workload, planned, of));
    }
    let cycles = (parts.total() + streamed).ceil() as u64 + launch;
    let moving = (traffic.off_chip_bytes() as f64 / link.rate).max(streamed).min(cycles as f64);
    energy.static_ = cycles as f64 / chip.clock_hz as f64 * chip.energy.static_w;
    let names: Vec<String> = run.iter().map(|planned| workload.operators[planned.op].name.clone()).collect();
    let tier = chip.memory.iter().next().map_or_else(String::new, |tier| tier.name.clone());
    let peak = run.iter().map(|planned| planned.peak_bytes).fold(0.0, f64::max);
    SectionOutcome {
        name: if mode == Mode::Fused { format!("graph program from {}", names[0]) } else { names.join("+") },
        operators: names,
        repeat: first.repeat,
        launches,
        every: first.every,
        phase: first.phase,
        cycles,
        launch_cycles: launch,
        bound_by: bound_by(&parts, mean, streamed, &tier, launch as f64),
        pcus: run.iter().map(|planned| planned.tiles).max().unwrap_or(0),
        pmus: chip.tile.count,
        sram_peak_bytes: (peak * chip.tile.count as f64) as u64,
        sram_bank_loss_bytes: 0,
        held: vec![(HeldBy::Tiles, (peak * chip.tile.count as f64) as u64)],
        moved: vec![(tier.clone(), traffic.off_chip_bytes())],
        traffic,
        energy,
        links: Arc::default(),
        busy: Busy { tiers: vec![(tier, moving.ceil() as u64)], link: parts.exchange.ceil() as u64, ..Busy::default() },
        stages,
    }
}

fn stage(workload: &Workload, planned: &Planned, of: &Counted) -> StageOutcome {
    let Parts { compute, sync, exchange } = of.parts;
    StageOutcome {
        operators: vec![workload.operators[planned.op].name.clone()],
        pcus: planned.tiles,
        busiest_cycles: (compute * of.times).ceil() as u64,
        mean_cycles: of.mean_cycles * of.times,
        groups: Vec::new(),
        mapping: format!(
            "{}; once: compute {:.0}, exchange {:.0}, sync {:.0} cycles",
            planned.shape, compute, exchange, sync
        ),
    }
}

/// What takes most of a section's time.
fn bound_by(parts: &Parts, mean: f64, streamed: f64, tier: &str, launch: f64) -> BoundBy {
    let most = [parts.compute, parts.exchange, parts.sync, streamed, launch].into_iter().fold(0.0, f64::max);
    if launch >= most {
        BoundBy::Launch
    } else if streamed >= most {
        BoundBy::Memory(tier.to_owned())
    } else if parts.exchange >= most {
        BoundBy::Link
    } else if parts.sync >= most {
        BoundBy::Fill
    } else if parts.compute > IMBALANCE * mean {
        BoundBy::Imbalance
    } else {
        BoundBy::Compute
    }
}

/// What no plan can beat: the starts of the programs, and all stored MACs at the peak of all tiles.
pub fn bound_cycles(chip: &Bsp, workload: &Workload, mode: Mode) -> u64 {
    let peak = |dtype: Dtype| chip.macs_per_cycle(dtype).map_or(f64::INFINITY, |macs| macs as f64);
    let compute: f64 = stored_macs_by_type(workload).iter().map(|(&dtype, macs)| macs / peak(dtype)).sum();
    // What runs once in many steps may start no program in one.
    let is_rare = mode == Mode::Fused && workload.operators.iter().all(|operator| operator.every > 1);
    let starts = if is_rare { 0.0 } else { least_launches(workload, mode) };
    (chip.cycles_of_us(chip.program_us) * starts + compute).floor() as u64
}
