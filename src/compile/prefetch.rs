//! The next section's weights, loaded while a section runs: where memory has time to spare and banks are free.
//!
//! A section then begins with the first slot of such a stream in its place. The section before moves these bytes and they
//! count there; as it takes no longer by that, only as much is loaded as its memory has idle time for. The last section of
//! a block loads for the first of the next repetition.
//!
//! A section that takes all banks leaves none for what follows it. Where that costs enough, it is mapped once more in half
//! of the banks, and the mapping is taken that makes both sections together faster.

use rayon::prelude::*;

use crate::arch::Chip;
use crate::compile::params::PARAMS;
use crate::cost::{SectionRun, SlotBytes, first_load_cycles, first_slot_bytes};
use crate::index::Id;
use crate::program::{
    BufferId, BufferRole, Configuration, Flow, FlowKind, Prefetch, Section, SectionGraph, StreamId, shared,
};
use crate::sim::{Measurement, measure};
use crate::units::ByteSize;
use crate::workload::Workload;

use super::compiled::Compiled;
use super::mapping::plan::SectionPlan;
use super::physical::assemble::assemble;
use super::physical::route::Negotiation;
use super::search::compact::compact;
use super::search::context::{Effort, SearchContext};
use super::search::partition::Chosen;

/// Prefetches weights of a model's sections where that gains time.
pub(super) fn prefetch_weights(context: &SearchContext<'_>, chosen: Vec<Chosen<'_>>, measured: &mut Compiled) {
    let (graphs, mapped): (Vec<SectionGraph<'_>>, Vec<Mapped>) = chosen.into_iter().map(split).unzip();
    let links = links(context.workload, &measured.configuration);
    let mut best = Prefetched::new(context, &graphs, mapped, &links, &measured.configuration);
    if context.effort > Effort::Low {
        let smaller = make_room(context, &graphs, &best, &links);
        if smaller.iter().any(Option::is_some) {
            let mapped = best.alone.iter().zip(smaller).map(|(of, smaller)| smaller.unwrap_or_else(|| of.clone()));
            let other = Prefetched::new(context, &graphs, mapped.collect(), &links, &measured.configuration);
            if other.cycles < best.cycles {
                best = other;
            }
        }
    }
    let Prefetched { sections, runs, loaded, .. } = best;
    measured.configuration.sections = sections;
    measured.runs = runs;
    if loaded.sections > 0 {
        measured.configuration.notes.push(format!(
            "{} of weights, for {} of {} sections, are loaded while the section before them runs: {} cycles less",
            ByteSize(loaded.bytes),
            loaded.sections,
            measured.configuration.sections.len(),
            loaded.saved_cycles,
        ));
    }
}

/// A section's mapping, before anything is loaded for it.
#[derive(Debug, Clone)]
pub(super) struct Mapped {
    pub(super) plan: SectionPlan,
    pub(super) section: Section,
    pub(super) run: Option<SectionRun>,
}

fn split(chosen: Chosen<'_>) -> (SectionGraph<'_>, Mapped) {
    let Chosen { graph, plan, section, run } = chosen;
    (graph, Mapped { plan, section, run })
}

/// A section and the one that runs before it.
#[derive(Debug, Clone, Copy)]
struct Link {
    before: usize,
    next: usize,
}

fn links(workload: &Workload, configuration: &Configuration) -> Vec<Link> {
    let link = |next| Some(Link { before: configuration.section_before(next, workload)?, next });
    (0..configuration.sections.len()).filter_map(link).collect()
}

/// Sections with what each loads for the next.
struct Prefetched {
    /// Mappings without that.
    alone: Vec<Mapped>,
    sections: Vec<Section>,
    runs: Vec<Option<SectionRun>>,
    /// Of all sections and repetitions, launches aside.
    cycles: u64,
    loaded: Loaded,
}

/// What is prefetched in all.
#[derive(Default)]
struct Loaded {
    sections: usize,
    bytes: u64,
    saved_cycles: u64,
}

impl Prefetched {
    fn new(
        context: &SearchContext<'_>,
        graphs: &[SectionGraph<'_>],
        alone: Vec<Mapped>,
        links: &[Link],
        as_chosen: &Configuration,
    ) -> Self {
        let SearchContext { chip, workload, .. } = *context;
        let find = |link: &Link| {
            let (before, next) = (&alone[link.before], &alone[link.next]);
            Some((*link, best_load(context, before, (&graphs[link.next], next))?))
        };
        let found: Vec<(Link, PrefetchedSection)> = links.par_iter().filter_map(find).collect();
        let mut configuration = Configuration {
            sections: alone.iter().map(|of| of.section.clone()).collect(),
            tiers: as_chosen.tiers.clone(),
            notes: Vec::new(),
            mode: as_chosen.mode,
        };
        let mut runs: Vec<Option<SectionRun>> = alone.iter().map(|of| of.run.clone()).collect();
        let mut loaded = Loaded::default();
        let cycles = |run: &Option<SectionRun>| run.as_ref().map_or(0, |run| run.cycles);
        for (Link { before, next }, PrefetchedSection { section, run, loads }) in found {
            let sections = &configuration.sections;
            let section = Section { prefetches: sections[next].prefetches.clone(), ..section };
            let is_before = |link: &&Link| link.before == next && !sections[link.next].prefetched.is_empty();
            let behind = links.iter().find(is_before).map(|link| &sections[link.next]);
            let chip_before = &*sections[before].chip(chip, workload);
            let chip = &*section.chip(chip, workload);
            // Faster itself by what was loaded for it, the section before has less time to spare.
            let has_time = runs[before].as_ref().is_some_and(|run| fit(chip_before, run, &loads));
            if !has_time
                || !has_room(chip, &sections[before], &section)
                || behind.is_some_and(|b| !has_room(chip, &section, b))
            {
                continue;
            }
            let repeat = repeat(workload, &section);
            let saved_cycles = cycles(&runs[next]).saturating_sub(run.cycles) * repeat;
            let bytes = loads.iter().map(|load| load.payload_bytes).sum::<u64>() * repeat;
            let mut run = run;
            add_loads(chip, &mut run, &section.prefetches);
            let run_before = runs[before].as_ref().map(|run| {
                let mut run = run.clone();
                add_loads(chip_before, &mut run, &loads);
                run
            });
            let old = std::mem::replace(&mut configuration.sections[next], section);
            let old_loads = std::mem::replace(&mut configuration.sections[before].prefetches, loads);
            // Before the first repetition nothing hides the loads.
            let first = first_load_cycles(context.chip, workload, &configuration, next);
            if saved_cycles <= first {
                configuration.sections[next] = old;
                configuration.sections[before].prefetches = old_loads;
                continue;
            }
            runs[before] = run_before;
            runs[next] = Some(run);
            loaded.saved_cycles += saved_cycles - first;
            loaded.bytes += bytes;
            loaded.sections += 1;
        }
        let mut all = 0;
        for (index, section) in configuration.sections.iter().enumerate() {
            let first = first_load_cycles(chip, workload, &configuration, index);
            all += cycles(&runs[index]) * repeat(workload, section) + first;
        }
        Self { alone, sections: configuration.sections, runs, cycles: all, loaded }
    }
}

fn repeat(workload: &Workload, section: &Section) -> u64 {
    section.operators.first().map_or(1, |&op| workload.operators[op].repeat)
}

/// Adds to a run the time that memory takes for what the section loads for another.
fn add_loads(chip: &Chip, run: &mut SectionRun, loads: &[Prefetch]) {
    for load in loads {
        run.tier_busy_cycles[load.tier.index()] += chip.tier_rate(load.tier).cycles_for(load.moved_bytes);
    }
}

/// Of sections that leave too little room for what would be loaded under them, mappings in half of the banks: where such a
/// mapping loses less than the section behind it gains.
fn make_room(
    context: &SearchContext<'_>,
    graphs: &[SectionGraph<'_>],
    prefetched: &Prefetched,
    links: &[Link],
) -> Vec<Option<Mapped>> {
    let workload = context.workload;
    let all: u64 = prefetched.cycles;
    let with_room = |link: &Link| {
        let (before, next) = (&prefetched.alone[link.before], &prefetched.alone[link.next]);
        let (run_before, run_next) = (before.run.as_ref()?, next.run.as_ref()?);
        let gained = run_next.cycles - prefetched.runs[link.next].as_ref()?.cycles.min(run_next.cycles);
        let most = load_cycles(context, &graphs[link.next], next);
        let repeat = repeat(workload, &next.section);
        let may_gain = most.saturating_sub(gained) * repeat;
        if (may_gain as f64) < all as f64 * PARAMS.prefetch.worth_room {
            return None;
        }
        let (plan, section, run) = compact(context, &graphs[link.before])?;
        let smaller = Mapped { plan, section, run: Some(run) };
        let found = best_load(context, &smaller, (&graphs[link.next], next))?;
        let with = smaller.run.as_ref()?.cycles + found.run.cycles;
        (with < run_before.cycles + run_next.cycles - gained).then_some((link.before, smaller))
    };
    let found: Vec<(usize, Mapped)> = links.par_iter().filter_map(with_room).collect();
    let mut list: Vec<Option<Mapped>> = prefetched.alone.iter().map(|_| None).collect();
    for (index, mapped) in found {
        list[index] = Some(mapped);
    }
    list
}

/// Cycles that memory takes for all that could be loaded before a section: it saves no more.
fn load_cycles(context: &SearchContext<'_>, graph: &SectionGraph<'_>, next: &Mapped) -> u64 {
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
struct PrefetchedSection {
    section: Section,
    run: SectionRun,
    loads: Vec<Prefetch>,
}

/// The best that prefetching makes of a section: as it lies, or with its weights clear of the banks of the section before.
fn best_load(
    context: &SearchContext<'_>,
    before: &Mapped,
    (graph, next): (&SectionGraph<'_>, &Mapped),
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
    let found = ways.into_iter().flatten().filter_map(|section| find(context, before, graph, (section, cycles)));
    found.min_by_key(|found| found.run.cycles)
}

fn find(
    context: &SearchContext<'_>,
    before: &Mapped,
    graph: &SectionGraph<'_>,
    (next, cycles): (&Section, u64),
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
    match measure(unmoved, workload, fabric, &section, (most, PARAMS.evaluation.work_of_a_section)) {
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
    let is_filled = |flow: &Flow, index: BufferId| matches!(flow.kind, FlowKind::Fill { stream: of, buffer } if of == stream && buffer == index);
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

/// Whether every PMU has banks for a section and for what it loads for the next.
fn has_room(chip: &Chip, before: &Section, next: &Section) -> bool {
    let mut banks = before.taken_banks(chip);
    next.prefetched.iter().for_each(|&stream| _ = add_banks(&mut banks, next, stream));
    banks.iter().all(|&banks| banks <= chip.pmu.banks)
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
