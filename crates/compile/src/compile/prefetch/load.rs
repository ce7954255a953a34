//! What one section can load of another's weights while it runs.
//!
//! As much is loaded as memory has idle time for and banks are free: the section that loads takes no longer by that.

use std::collections::BTreeSet;

use crate::compile::mapping::plan::SectionPlan;
use crate::compile::params::PARAMS;
use crate::compile::physical::assemble::assemble;
use crate::compile::physical::route::Negotiation;
use crate::compile::search::context::SearchContext;
use rdusim_base::index::Id;
use rdusim_cost::cost::{SectionRun, SlotBytes, first_slot_bytes};
use rdusim_engines::sim::{Measurement, measure};
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::Workload;
use rdusim_program::{BufferId, BufferRole, Flow, FlowKind, Prefetch, Section, SectionGraph, StreamId, shared};

/// Cycles that a section takes less if memory had all the time, and the PMUs all the room, for the first slots of its weights
/// before it begins; launch aside.
pub(in crate::compile) fn most_saved_cycles(
    context: &SearchContext<'_>,
    graph: &SectionGraph<'_>,
    section: &Section,
    run: &SectionRun,
) -> u64 {
    let SearchContext { chip: unmoved, workload, fabric, .. } = *context;
    let chip = &*section.chip(unmoved, workload);
    let mut prefetched = section.clone();
    let can_be_loaded = |&stream: &StreamId| load_of(chip, graph, section, stream).is_some();
    prefetched.prefetched = section.streams.ids().filter(can_be_loaded).collect();
    if prefetched.prefetched.is_empty() {
        return 0;
    }
    match measure(unmoved, workload, fabric, &prefetched, u64::MAX, PARAMS.evaluation.normal.work, context.stop) {
        Measurement::Takes(_, with) => run.cycles.saturating_sub(with.cycles),
        _ => 0,
    }
}

/// Which mapping of which section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::compile) struct MappedId {
    /// Index of its run.
    pub run: usize,
    /// In half of the banks.
    pub is_compact: bool,
}

/// A section's mapping, before anything is loaded for it.
#[derive(Debug, Clone)]
pub(in crate::compile) struct Mapped {
    pub id: MappedId,
    pub plan: SectionPlan,
    pub section: Section,
    pub run: Option<SectionRun>,
}

/// Cycles that memory takes for all that could be loaded before a section: it saves no more.
pub(super) fn load_cycles(context: &SearchContext<'_>, graph: &SectionGraph<'_>, next: &Mapped) -> u64 {
    let chip = context.chip;
    let loads: Vec<Prefetch> =
        next.section.streams.ids().filter_map(|stream| load_of(chip, graph, &next.section, stream)).collect();
    let of_tier = |tier| {
        let bytes = loads.iter().filter(|load| load.tier == tier).map(|load| load.moved_bytes).sum();
        chip.tier_rate(tier).cycles_for(bytes)
    };
    chip.memory.ids().map(of_tier).max().unwrap_or(0)
}

/// A section whose first weights are loaded before it, its run, and what the section before loads.
#[derive(Debug, Clone)]
pub(super) struct PrefetchedSection {
    pub section: Section,
    pub run: SectionRun,
    pub loads: Vec<Prefetch>,
}

/// The best that prefetching makes of a section: as it lies, or with its weights clear of the banks of the section before.
pub(super) fn best_load(
    context: &SearchContext<'_>,
    before: &Mapped,
    graph: &SectionGraph<'_>,
    next: &Mapped,
) -> Option<PrefetchedSection> {
    let SearchContext { chip, fabric, tiers, .. } = *context;
    next.run.as_ref().zip(before.run.as_ref())?;
    let is_weight = |role: &BufferRole| matches!(role, BufferRole::Weight { .. });
    if !next.plan.buffers.iter().any(|buffer| is_weight(&buffer.role)) {
        return None;
    }
    let on = &*chip.in_section(graph.largest_off_chip_bytes());
    let taken = before.section.taken_banks(on);
    let clear = assemble(on, fabric, graph, &next.plan, tiers, Negotiation::TRIAL, &taken).ok();
    let cycles = next.run.as_ref()?.cycles;
    let ways = [Some(&next.section), clear.as_ref().map(|(section, _)| section)];
    let found = ways.into_iter().flatten().filter_map(|section| find(context, before, graph, section, cycles));
    found.min_by_key(|found| found.run.cycles)
}

fn find(
    context: &SearchContext<'_>,
    before: &Mapped,
    graph: &SectionGraph<'_>,
    next: &Section,
    cycles: u64,
) -> Option<PrefetchedSection> {
    let SearchContext { chip: unmoved, workload, fabric, .. } = *context;
    let chip_before = &*before.section.chip(unmoved, workload);
    let chip = &*next.chip(unmoved, workload);
    let mut section = next.clone();
    let mut loads = Vec::new();
    let mut banks = before.section.taken_banks(chip);
    for stream in next.streams.ids() {
        if is_made_by(workload, &before.section, next, stream) {
            continue;
        }
        let Some(load) = load_of(chip, graph, next, stream) else { continue };
        let mut with = banks.clone();
        let filled = add_banks(&mut with, next, stream);
        let has_room = with.iter().all(|&banks| banks <= chip.pmu.banks);
        loads.push(Prefetch { bank_bytes: filled * chip.pmu.bank_bytes(), ..load });
        if has_room && fit(chip_before, before.run.as_ref()?, &loads) {
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
    match measure(unmoved, workload, fabric, &section, most, PARAMS.evaluation.normal.work, context.stop) {
        Measurement::Takes(cycles, run) if cycles <= most => Some(PrefetchedSection { section, run, loads }),
        _ => None,
    }
}

/// Whether a section makes the tensor of a stream of the one behind it.
fn is_made_by(workload: &Workload, before: &Section, next: &Section, stream: StreamId) -> bool {
    let tensor = workload.base(next.streams[stream].stream.tensor);
    before.operators.iter().any(|&op| workload.base(workload.operators[op].output) == tensor)
}

/// What loading the first slot of a stream of weights takes; `None` if it cannot be loaded before its section.
fn load_of(chip: &Chip, graph: &SectionGraph<'_>, next: &Section, stream: StreamId) -> Option<Prefetch> {
    let off_chip = &next.streams[stream];
    let tensor = off_chip.stream.tensor;
    if !off_chip.stream.weight || off_chip.stream.writes {
        return None;
    }
    let SlotBytes { payload, moved } = first_slot_bytes(chip, graph, next, stream);
    let (mut flits, mut flit_hops, mut written_flits) = (0, 0, 0);
    for flow in &next.flows {
        let FlowKind::Fill { stream: of, buffer } = flow.kind else { continue };
        if of != stream {
            continue;
        }
        if !matches!(next.buffers[buffer].spec.role, BufferRole::Weight { .. }) {
            return None;
        }
        let each = shared(payload.flits(chip.network.flit_bytes).0, flow.share);
        flits += each;
        flit_hops += each * flow.links;
        written_flits += each * flow.pmu_sinks;
    }
    let tier = off_chip.tier;
    (flits > 0).then_some(Prefetch {
        tensor,
        tier,
        payload_bytes: payload.0,
        moved_bytes: moved.0,
        bank_bytes: 0,
        flits,
        flit_hops,
        written_flits,
    })
}

/// Adds the banks of the first slot of a stream of a section; how many.
fn add_banks(banks: &mut [u64], section: &Section, stream: StreamId) -> u64 {
    let filled = |flow: &Flow| match flow.kind {
        FlowKind::Fill { stream: of, buffer } if of == stream => Some(buffer),
        _ => None,
    };
    let buffers: BTreeSet<BufferId> = section.flows.iter().filter_map(filled).collect();
    let mut added = 0;
    for buffer in buffers.into_iter().map(|buffer| &section.buffers[buffer]) {
        for part in buffer.pieces.iter().flat_map(|piece| &piece.parts) {
            let of_slot = part.banks.div_ceil(buffer.spec.depth.max(1));
            banks[part.pmu.index()] += of_slot;
            added += of_slot;
        }
    }
    added
}

/// Whether every PMU has banks for a section and for what it loads for the next.
pub(super) fn has_room(chip: &Chip, before: &Section, next: &Section) -> bool {
    let mut banks = before.taken_banks(chip);
    next.prefetched.iter().for_each(|&stream| _ = add_banks(&mut banks, next, stream));
    banks.iter().all(|&banks| banks <= chip.pmu.banks)
}

/// Whether memory has the time for loads while a section runs.
pub(super) fn fit(chip: &Chip, run: &SectionRun, loads: &[Prefetch]) -> bool {
    chip.memory.ids().all(|tier| {
        let of_tier = loads.iter().filter(|load| load.tier == tier);
        let wanted = chip.tier_rate(tier).cycles_for(of_tier.map(|load| load.moved_bytes).sum());
        let idle = run.cycles.saturating_sub(run.tier_busy_cycles[tier.index()]);
        wanted as f64 <= idle as f64 * PARAMS.prefetch.idle_share || wanted == 0
    })
}
