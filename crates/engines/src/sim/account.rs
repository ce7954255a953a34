//! From raw counts to what is reported: traffic, energy, and what bounds a section.

use std::sync::Arc;

use indexmap::IndexMap;

use rdusim_base::index::Id;
use rdusim_base::mode::Mode;
use rdusim_cost::cost::{SectionRun, Waits, simd_stages, to_cycles};
use rdusim_graph::arch::{Chip, TierId};
use rdusim_graph::workload::{OperatorId, Phase, Workload};
use rdusim_outcome::{
    BoundBy, Busy, EnergyJ, GroupOutcome, HeldBy, LinkLoad, SectionOutcome, StageOutcome, TensorTraffic, Traffic,
};
use rdusim_program::{BufferRole, Mapping, ResourceKind, Section, Stage, StageId, StreamId};

/// How often a section runs: `repeat` times in one of `every` steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Repetition {
    repeat: u64,
    every: u64,
}

/// A stage whose mean unit works less than this share of its busiest is bound by imbalance.
const BALANCED: f64 = 0.9;
/// A section in which nothing is busy for this share of the time is bound by filling and draining.
const BUSY: f64 = 0.5;

/// Reports one section of a configuration in a mode, with the [`loads`] of its run. `first_load_cycles` come before its first
/// repetition.
pub(super) fn section_outcome(
    chip: &Chip,
    workload: &Workload,
    section: &Section,
    run: &SectionRun,
    mode: Mode,
    first_load_cycles: u64,
    links: Arc<[LinkLoad]>,
) -> SectionOutcome {
    let first = section.operators.first().map(|&op| &workload.operators[op]);
    let (repeat, every, phase) = first.map_or((1, 1, Phase::Forward), |op| (op.repeat, op.every, op.phase));
    // What runs once in many steps is shared by them.
    let shared = |count: u64| count.saturating_mul(repeat).div_ceil(every);
    let launches = if section.is_looped(workload, mode) { 1 } else { repeat };
    let launch_cycles = chip.launch_cycles().saturating_mul(launches).div_ceil(every);
    let cycles = run.cycles.saturating_mul(repeat).saturating_add(chip.launch_cycles().saturating_mul(launches));
    let cycles = cycles.saturating_add(first_load_cycles).div_ceil(every);
    let traffic = traffic(chip, workload, section, run).looped(repeat, launches).shared_by(every);
    let energy = energy(chip, workload, section, run, Repetition { repeat, every }, &traffic, cycles);
    let names = |ops: &[rdusim_graph::workload::OperatorId]| -> Vec<String> {
        ops.iter().map(|&op| workload.operators[op].name.clone()).collect()
    };
    let stages = section
        .stages
        .iter_enumerated()
        .zip(&run.busy_cycles)
        .map(|((index, stage), busy)| {
            let mut operators = vec![stage.spec.main];
            operators.extend_from_slice(&stage.spec.tail);
            StageOutcome {
                operators: names(&operators),
                pcus: stage.pcus.len() as u64,
                busiest_cycles: shared(busy.iter().copied().max().unwrap_or(0)),
                mean_cycles: busy.iter().sum::<u64>() as f64 / busy.len().max(1) as f64 * repeat as f64 / every as f64,
                groups: groups(run, index, Repetition { repeat, every }),
                mapping: describe(section, stage),
            }
        })
        .collect();
    SectionOutcome {
        name: section.name.clone(),
        operators: names(&section.operators),
        repeat,
        launches,
        every,
        phase,
        cycles,
        launch_cycles,
        bound_by: bound_by(chip, run, chip.launch_cycles().saturating_mul(launches) / repeat.max(1)),
        pcus: section.stages.iter().map(|s| s.pcus.len() as u64).sum(),
        pmus: section.pmus,
        sram_peak_bytes: section.sram_bytes + section.prefetches.iter().map(|load| load.bank_bytes).sum::<u64>(),
        sram_bank_loss_bytes: section.sram_bank_loss_bytes,
        held: held(chip, section),
        moved: moved(chip, section, run, Repetition { repeat, every }),
        traffic,
        energy,
        links,
        busy: busy(chip, run, Repetition { repeat, every }),
        stages,
    }
}

/// What the banks of a section hold, and those it loads for the next.
fn held(chip: &Chip, section: &Section) -> Vec<(HeldBy, u64)> {
    let mut held: Vec<(HeldBy, u64)> = HeldBy::ALL.into_iter().map(|by| (by, 0)).collect();
    let mut add =
        |by: HeldBy, bytes: u64| held.iter_mut().filter(|(of, _)| *of == by).for_each(|(_, sum)| *sum += bytes);
    for buffer in &section.buffers {
        let by = match buffer.spec.role {
            BufferRole::Weight { .. } => HeldBy::Weights,
            BufferRole::Operand { .. } | BufferRole::Resident { .. } => HeldBy::Activations,
            BufferRole::PartialSums { .. } | BufferRole::PartialFifo { .. } | BufferRole::State { .. } => HeldBy::Sums,
            BufferRole::Output { .. } => HeldBy::Results,
        };
        add(by, buffer.spec.total_banks(chip) * chip.pmu.bank_bytes());
    }
    add(HeldBy::Prefetched, section.prefetches.iter().map(|load| load.bank_bytes).sum());
    held.retain(|(_, bytes)| *bytes > 0);
    held
}

/// Off-chip bytes of each tier.
fn moved(
    chip: &Chip,
    section: &Section,
    run: &SectionRun,
    Repetition { repeat, every }: Repetition,
) -> Vec<(String, u64)> {
    let mut bytes = vec![0_u64; chip.memory.len()];
    for (stream, moved) in section.streams.iter().zip(&run.streams) {
        bytes[stream.tier.index()] += moved.payload + moved.waste;
    }
    for load in &section.prefetches {
        bytes[load.tier.index()] += load.moved_bytes;
    }
    let all = chip.memory.iter().zip(bytes);
    all.map(|(tier, bytes)| (tier.name.clone(), bytes.saturating_mul(repeat).div_ceil(every))).collect()
}

/// Flits over every link and port that moved anything.
pub(super) fn loads(run: &SectionRun) -> Arc<[LinkLoad]> {
    let loads = (0..).zip(run.usage.resource_flits.iter()).filter(|(_, flits)| **flits > 0);
    loads.map(|(resource, &flits)| LinkLoad { resource, flits }).collect()
}

/// How the lockstep groups of a stage spent the drain. Waits are rounded up to a cycle, and what is left is idle.
fn groups(run: &SectionRun, stage: StageId, Repetition { repeat, every }: Repetition) -> Vec<GroupOutcome> {
    let Some(waits) = run.waits.get(stage) else { return Vec::new() };
    let of_group = |(&busy_cycles, waits): (&u64, &Waits)| {
        // A run that was stopped may have firings under way.
        let mut left = run.cycles.saturating_sub(busy_cycles);
        let mut take = |cycles: u64| {
            let taken = cycles.min(left);
            left -= taken;
            taken
        };
        let starved_cycles = take(waits.starved_cycles);
        let stalled_cycles = take(waits.stalled_cycles);
        let idle_cycles = take(u64::MAX);
        GroupOutcome {
            busy_cycles: busy_cycles.saturating_mul(repeat) / every,
            starved_cycles: starved_cycles.saturating_mul(repeat) / every,
            stalled_cycles: stalled_cycles.saturating_mul(repeat) / every,
            idle_cycles: idle_cycles.saturating_mul(repeat) / every,
        }
    };
    run.busy_cycles[stage].iter().zip(waits).map(of_group).collect()
}

/// How long the busiest resource of each kind was busy, stages aside.
fn busy(chip: &Chip, run: &SectionRun, Repetition { repeat, every }: Repetition) -> Busy {
    let wire = |kind| to_cycles(run.usage.busiest(kind)).saturating_mul(repeat).div_ceil(every);
    let name = |tier| chip.memory[TierId::from_index(tier)].name.clone();
    Busy {
        tiers: run
            .tier_busy_cycles
            .iter()
            .enumerate()
            .map(|(tier, &cycles)| (name(tier), cycles.saturating_mul(repeat).div_ceil(every)))
            .collect(),
        ag: wire(ResourceKind::AgPort),
        link: wire(ResourceKind::Link),
        pcu_port: wire(ResourceKind::PcuPort),
        pmu_port: wire(ResourceKind::PmuPort),
    }
}

fn traffic(chip: &Chip, workload: &Workload, section: &Section, run: &SectionRun) -> Traffic {
    let flit = chip.network.flit_bytes;
    let mut by_tensor: IndexMap<String, TensorTraffic> = IndexMap::new();
    let mut total = Traffic {
        network_bytes: run.usage.counts.injected * flit,
        network_byte_hops: run.usage.counts.hops * flit,
        sram_read_bytes: run.usage.counts.sram_reads * flit,
        sram_write_bytes: run.usage.counts.sram_writes * flit,
        program_bytes: (section.stages.iter().map(|s| s.pcus.len() as u64).sum::<u64>() + section.pmus)
            * chip.launch.program_bytes_per_unit,
        ..Traffic::default()
    };
    let mut order: Vec<StreamId> = section.streams.ids().collect();
    order.sort_by_key(|&s| section.streams[s].stream.tensor);
    for s in order {
        let stream = &section.streams[s].stream;
        let bytes = run.streams[s];
        let entry = by_tensor.entry(workload.tensors[stream.tensor].name.clone()).or_default();
        if stream.writes {
            entry.off_chip_write_bytes += bytes.payload;
            total.off_chip_write_bytes += bytes.payload;
        } else {
            entry.off_chip_read_bytes += bytes.payload;
            total.off_chip_read_bytes += bytes.payload;
        }
        total.waste_bytes += bytes.waste;
    }
    for load in &section.prefetches {
        let entry = by_tensor.entry(workload.tensors[load.tensor].name.clone()).or_default();
        entry.off_chip_read_bytes += load.payload_bytes;
        total.off_chip_read_bytes += load.payload_bytes;
        total.waste_bytes += load.moved_bytes - load.payload_bytes;
        total.network_bytes += load.flits * flit;
        total.network_byte_hops += load.flit_hops * flit;
        total.sram_write_bytes += load.written_flits * flit;
    }
    total.by_tensor = by_tensor;
    total
}

fn energy(
    chip: &Chip,
    workload: &Workload,
    section: &Section,
    run: &SectionRun,
    Repetition { repeat, every }: Repetition,
    traffic: &Traffic,
    cycles: u64,
) -> EnergyJ {
    const PJ: f64 = 1e-12;
    let mac_pj = |stage: &Stage| {
        let dtype = workload.tensors[stage.spec.activations[0]].dtype;
        chip.energy.mac_pj.get(&dtype).copied().unwrap_or(0.0)
    };
    // An element of a packed operand is multiplied by its scale as it is expanded.
    let gemm = section.stages.iter().find(|s| matches!(s.mapping, Mapping::Gemm(_))).map_or(0.0, mac_pj);
    // A SIMD element costs one multiply-accumulate for every pipeline stage its function takes.
    let simd: f64 = section
        .stages
        .iter()
        .zip(&run.simd_elements)
        .map(|(stage, &elements)| {
            let functions = if stage.spec.tail.is_empty() { &[stage.spec.main][..] } else { &stage.spec.tail };
            let depth_of = |&op: &OperatorId| simd_stages(chip, workload.operators[op].kind);
            // Every function of a tail counts the same elements.
            let depth = functions.iter().map(depth_of).sum::<u64>() as f64 / functions.len() as f64;
            elements as f64 * depth * mac_pj(stage)
        })
        .sum();
    let streamed = section.streams.iter().zip(&run.streams).map(|(s, bytes)| (s.tier, bytes.payload + bytes.waste));
    let prefetched = section.prefetches.iter().map(|load| (load.tier, load.moved_bytes));
    let times = repeat as f64 / every as f64;
    let (mut off_chip, mut off_chip_items) = (0.0, [0.0; 3]);
    for (tier, bytes) in streamed.chain(prefetched) {
        let (bytes, tier) = (bytes as f64 * times, &chip.memory[tier].energy);
        off_chip += tier.joules(bytes);
        for (sum, part) in off_chip_items.iter_mut().zip(tier.joules_of_items(bytes)) {
            *sum += part;
        }
    }
    let zeros = run.executed_macs.saturating_sub(run.macs) as f64 * gemm * chip.energy.zero_mac_share * times * PJ;
    EnergyJ {
        compute: ((run.macs + run.expanded_elements) as f64 * gemm + simd) * times * PJ + zeros,
        zeros,
        sram: (traffic.sram_read_bytes + traffic.sram_write_bytes) as f64 * chip.energy.sram_pj_per_byte * PJ,
        network: traffic.network_byte_hops as f64 * 8.0 * chip.energy.network_pj_per_bit_hop * PJ,
        off_chip,
        off_chip_items,
        static_: chip.energy.static_w * chip.seconds(cycles),
    }
}

/// The resource with the most busy cycles.
fn bound_by(chip: &Chip, run: &SectionRun, launch_cycles: u64) -> BoundBy {
    let busiest_stage = run.busy_cycles.iter().max_by_key(|busy| busy.iter().copied().max());
    let (most, mean) = busiest_stage.map_or((0, 0.0), |busy| {
        let most = busy.iter().copied().max().unwrap_or(0);
        (most, busy.iter().sum::<u64>() as f64 / busy.len().max(1) as f64)
    });
    let compute = if mean < BALANCED * most as f64 { BoundBy::Imbalance } else { BoundBy::Compute };
    let wire = |kind| to_cycles(run.usage.busiest(kind));
    let mut causes = vec![(most, compute)];
    for (tier, &busy) in run.tier_busy_cycles.iter().enumerate() {
        causes.push((busy, BoundBy::Memory(chip.memory[TierId::from_index(tier)].name.clone())));
    }
    causes.push((wire(ResourceKind::AgPort).max(run.window_cycles), BoundBy::Ag));
    causes.push((wire(ResourceKind::Link).max(wire(ResourceKind::PcuPort)), BoundBy::Link));
    causes.push((wire(ResourceKind::PmuPort), BoundBy::PmuPort));
    let mut best = (0, BoundBy::Fill);
    for (busy, cause) in causes {
        // Of equals the first: compute feeds its own ports, so that a full port says no more than a full PCU.
        if busy > best.0 {
            best = (busy, cause);
        }
    }
    if launch_cycles > run.cycles {
        return BoundBy::Launch;
    }
    if (best.0 as f64) < BUSY * run.cycles as f64 { BoundBy::Fill } else { best.1 }
}

/// One line on a stage's mapping.
fn describe(section: &Section, stage: &Stage) -> String {
    let tiling = section.schedule.tiling();
    let shape = match &stage.mapping {
        Mapping::Gemm(m) => {
            let along = if m.rows_on_lanes { "rows on lanes" } else { "columns on lanes" };
            let sharing = match m.multicast_width {
                share if share == m.pn => "shared activations".to_owned(),
                1 => "each column reads its own activations".to_owned(),
                share => format!("activations shared by {share} columns"),
            };
            let slices = if m.pk > 1 { format!(" x {}", m.pk) } else { String::new() };
            format!("{} x {}{slices} PCUs, {along}, {sharing}", m.pm, m.pn)
        }
        Mapping::Simd(m) if m.chain > 1 => format!("{} x {} PCUs, chains of {}", m.pm, m.pn, m.chain),
        Mapping::Simd(m) => format!("{} x {} PCUs, SIMD", m.pm, m.pn),
    };
    let row_tiles = format!("{} row tiles of {} rows", tiling.row_tiles(), tiling.tile_rows);
    let column_tiles = if tiling.column_tiles() > 1 && stage.level == rdusim_program::LoopLevel::FIRING {
        format!(
            ", {} column tiles{}",
            tiling.column_tiles(),
            if stage.recomputed { ", computed again in each" } else { "" }
        )
    } else {
        String::new()
    };
    format!("{shape}; {row_tiles}{column_tiles}")
}
