//! The next section's weights, loaded while a section runs: where memory has time to spare and banks are free.
//!
//! A section then begins with the first slot of such a stream in its place. The section before moves these bytes and
//! they count there; as it takes no longer by that, only as much is loaded as its memory has idle time for.

use rayon::prelude::*;

use crate::arch::Chip;
use crate::compile::params::PARAMS;
use crate::cost::{SectionRun, first_slot_bytes};
use crate::index::Id;
use crate::mode::Mode;
use crate::program::{BufferId, BufferRole, Fabric, FlowKind, Prefetch, Section, SectionGraph, StreamId, shared};
use crate::sim::{Measurement, measure};
use crate::units::ByteSize;
use crate::workload::Workload;

use super::compiled::Compiled;

/// Loads weights ahead where that gains time. Graphs that configuration files and the `cycle` fidelity can hold are left
/// as they are, and so are kernels, which come one by one.
pub(super) fn prefetch_weights(chip: &Chip, workload: &Workload, fabric: &Fabric, measured: &mut Compiled) {
    if measured.configuration.mode != Mode::Fused || workload.first_of_a_model().is_none() {
        return;
    }
    let (sections, runs) = (&measured.configuration.sections, &measured.runs);
    let clear = |next: usize| measured.clear.get(next).and_then(Option::as_ref);
    let found: Vec<Option<Found>> = (1..sections.len())
        .into_par_iter()
        .map(|next| {
            let (before, run) = (&sections[next - 1], runs[next - 1].as_ref()?);
            sections[next].follows(before, workload).then_some(())?;
            let cycles = runs[next].as_ref()?.cycles;
            // As it lies, or with its weights clear of the banks of the section before: whichever is faster.
            let ways = [Some(&sections[next]), clear(next)];
            let find = |section| find(chip, workload, fabric, (before, run), (section, cycles));
            ways.into_iter().flatten().filter_map(find).min_by_key(|found| found.run.cycles)
        })
        .collect();
    let (mut times, mut bytes, mut saved_cycles) = (0u64, 0u64, 0u64);
    for (index, found) in found.into_iter().enumerate() {
        let Some(Found { section, run, loads }) = found else { continue };
        let before = index;
        // Faster itself by what was loaded for it, the section before has less time to spare.
        let chip = &*measured.configuration.sections[before].chip(chip, workload);
        let mut banks = measured.configuration.sections[before].taken_banks(chip);
        section.prefetched.iter().for_each(|&stream| _ = add_banks(&mut banks, &section, stream));
        let has_room = banks.iter().all(|&banks| banks <= chip.pmu.banks);
        if !has_room || !measured.runs[before].as_ref().is_some_and(|run| fit(chip, run, &loads)) {
            continue;
        }
        let repeat = workload.operators[section.operators[0]].repeat;
        let cycles = |run: &Option<SectionRun>| run.as_ref().map_or(0, |run| run.cycles);
        saved_cycles += (cycles(&measured.runs[before + 1]) - run.cycles) * repeat;
        bytes += loads.iter().map(|load| load.payload_bytes).sum::<u64>() * repeat;
        times += 1;
        if let Some(run) = &mut measured.runs[before] {
            for load in &loads {
                run.tier_busy_cycles[load.tier.index()] += chip.tier_rate(load.tier).cycles_for(load.moved_bytes);
            }
        }
        measured.configuration.sections[before].prefetches = loads;
        measured.configuration.sections[before + 1] = section;
        measured.runs[before + 1] = Some(run);
    }
    if times > 0 {
        measured.configuration.notes.push(format!(
            "{} of weights, for {times} of {} sections, are loaded while the section before them runs: {saved_cycles} \
             cycles less",
            ByteSize(bytes),
            measured.configuration.sections.len(),
        ));
    }
}

/// A section whose first weights are loaded before it, its run, and what the section before loads.
struct Found {
    section: Section,
    run: SectionRun,
    loads: Vec<Prefetch>,
}

fn find(
    chip: &Chip,
    workload: &Workload,
    fabric: &Fabric,
    (before, run_before): (&Section, &SectionRun),
    (next, cycles): (&Section, u64),
) -> Option<Found> {
    let graph = SectionGraph::new(workload, &next.operators, next.operators.len() > 1)?;
    let (chip_before, unmoved) = (&*before.chip(chip, workload), chip);
    let chip = &*next.chip(chip, workload);
    let mut section = next.clone();
    let mut loads = Vec::new();
    let mut banks = before.taken_banks(chip);
    for stream in next.streams.ids() {
        let Some(load) = load_of(chip, workload, &graph, (before, next), stream) else { continue };
        let mut with = banks.clone();
        let filled = add_banks(&mut with, next, stream);
        let has_room = with.iter().all(|&banks| banks <= chip.pmu.banks);
        loads.push(Prefetch { bank_bytes: filled * chip.pmu.bank_bytes(), ..load });
        if has_room && fit(chip_before, run_before, &loads) {
            banks = with;
            section.prefetched.push(stream);
        } else {
            loads.pop();
        }
    }
    if loads.is_empty() {
        return None;
    }
    let launch = chip.launch_cycles();
    let most = ((cycles + launch) as f64 * (1.0 - PARAMS.prefetch.worth)) as u64;
    match measure(unmoved, workload, fabric, &section, (most, PARAMS.evaluation.work_of_a_section)) {
        Measurement::Takes(cycles, run) if cycles <= most => Some(Found { section, run, loads }),
        _ => None,
    }
}

/// What loading the first slot of a stream of weights takes; `None` if it cannot be loaded while `before` runs.
fn load_of(
    chip: &Chip,
    workload: &Workload,
    graph: &SectionGraph<'_>,
    (before, next): (&Section, &Section),
    stream: StreamId,
) -> Option<Prefetch> {
    let off_chip = &next.streams[stream];
    let tensor = off_chip.stream.tensor;
    let is_made_before =
        before.operators.iter().any(|&op| workload.base(workload.operators[op].output) == workload.base(tensor));
    if !off_chip.stream.weight || off_chip.stream.writes || is_made_before {
        return None;
    }
    let (payload_bytes, moved_bytes) = first_slot_bytes(chip, graph, next, stream);
    let (mut flits, mut flit_hops, mut written_flits) = (0, 0, 0);
    for flow in &next.flows {
        let FlowKind::Fill { stream: of, buffer } = flow.kind else { continue };
        if of != stream {
            continue;
        }
        if !matches!(next.buffers[buffer].spec.role, BufferRole::Weight { .. }) {
            return None;
        }
        let each = shared(payload_bytes.div_ceil(chip.network.flit_bytes), flow.share);
        flits += each;
        flit_hops += each * flow.links;
        written_flits += each * flow.pmu_sinks;
    }
    let tier = off_chip.tier;
    (flits > 0).then_some(Prefetch {
        tensor,
        tier,
        payload_bytes,
        moved_bytes,
        bank_bytes: 0,
        flits,
        flit_hops,
        written_flits,
    })
}

/// Adds the banks of the first slot of a stream of a section; how many.
fn add_banks(banks: &mut [u64], section: &Section, stream: StreamId) -> u64 {
    let is_filled = |flow: &crate::program::Flow, index: BufferId| matches!(flow.kind, FlowKind::Fill { stream: of, buffer } if of == stream && buffer == index);
    let mut added = 0;
    for (index, buffer) in section.buffers.iter_enumerated() {
        if !section.flows.iter().any(|flow| is_filled(flow, index)) {
            continue;
        }
        for part in buffer.pieces.iter().flat_map(|piece| &piece.parts) {
            let of_slot = part.banks.div_ceil(buffer.spec.depth.max(1));
            banks[part.pmu.index()] += of_slot;
            added += of_slot;
        }
    }
    added
}

/// Whether memory has the time for loads while a section runs.
fn fit(chip: &Chip, run: &SectionRun, loads: &[Prefetch]) -> bool {
    chip.memory.ids().all(|tier| {
        let of_tier = loads.iter().filter(|load| load.tier == tier);
        let wanted = chip.tier_rate(tier).cycles_for(of_tier.map(|load| load.moved_bytes).sum());
        let idle = run.cycles.saturating_sub(run.tier_busy_cycles[tier.index()]);
        wanted as f64 <= idle as f64 * PARAMS.prefetch.idle_share || wanted == 0
    })
}
