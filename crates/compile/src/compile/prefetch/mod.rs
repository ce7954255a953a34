//! The next section's weights, loaded while a section runs: where memory has time to spare and banks are free.
//!
//! A section then begins with the first slot of such a stream in its place. The section before moves these bytes and they
//! count there; as it takes no longer by that, only as much is loaded as its memory has idle time for. The last section of
//! a block loads for the first of the next repetition.
//!
//! A section that takes all banks leaves none for what follows it. Where that costs enough, it is mapped once more in half
//! of the banks, and the mapping is taken that makes both sections together faster.
//!
//! The search for the partition asks what prefetching makes of sections in a row as well ([`Prefetcher`]).

mod load;

use std::collections::BTreeMap;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::compile::params::PARAMS;
use rdusim_base::index::Id;
use rdusim_base::mode::Mode;
use rdusim_base::units::ByteSize;
use rdusim_cost::cost::{SectionRun, first_load_cycles};
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::Workload;
use rdusim_program::{Configuration, Prefetch, Section, SectionGraph};

use super::compiled::Compiled;
use super::search::chosen::Chosen;
use super::search::compact::compact;
use super::search::context::{Effort, SearchContext};

pub(super) use load::most_saved_cycles;
use load::{Mapped, MappedId, PrefetchedSection, best_load, fit, has_room, load_cycles};

/// Prefetches weights of a model's sections where that gains time.
pub(super) fn prefetch_weights(
    context: &SearchContext<'_>,
    prefetcher: &mut Prefetcher,
    chosen: Vec<Chosen<'_>>,
    measured: &mut Compiled,
) {
    let Prefetched { sections, runs, loaded, .. } = prefetcher.prefetch(context, chosen);
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

/// What prefetching has been found to make of two sections, the second behind the first.
#[derive(Debug, Default)]
pub(super) struct Prefetcher {
    loads: FxHashMap<(MappedId, MappedId), Option<PrefetchedSection>>,
    /// Mappings in half of the banks, by the index of the section's run.
    smaller: BTreeMap<usize, Option<Mapped>>,
}

/// What is known of two sections in a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct LinkCycles {
    /// Index of the run of the section before.
    pub before: usize,
    /// Index of the run of the next.
    pub next: usize,
    /// Cycles of the next in all repetitions, launches aside, with what the first repetition waits for, and with what the section
    /// before loses to a smaller mapping.
    pub cycles: i128,
}

impl Prefetcher {
    /// What prefetching makes of the sections of a partition.
    pub(super) fn prefetch(&mut self, context: &SearchContext<'_>, chosen: Vec<Chosen<'_>>) -> Prefetched {
        self.prefetch_step_by_step(context, chosen).1
    }

    /// Cycles of every section of a partition that has another before it, by prefetching.
    pub(super) fn link_cycles(&mut self, context: &SearchContext<'_>, chosen: Vec<Chosen<'_>>) -> Vec<LinkCycles> {
        let (first, best) = self.prefetch_step_by_step(context, chosen);
        let workload = context.workload;
        let cycles = |of: &Prefetched, at: usize| {
            let once = of.runs[at].as_ref().map_or(0, |run| i128::from(run.cycles));
            once * i128::from(repeat(workload, &of.sections[at]))
        };
        let lost = |at: usize| if best.alone[at].id.is_compact { cycles(&best, at) - cycles(&first, at) } else { 0 };
        let of_link = |&Link { before, next }: &Link| LinkCycles {
            before: best.alone[before].id.run,
            next: best.alone[next].id.run,
            cycles: cycles(&best, next) - lost(next) + lost(before) + i128::from(best.first_loads[next]),
        };
        best.links.iter().map(of_link).collect()
    }

    /// The same without smaller mappings, and with those that pay.
    fn prefetch_step_by_step(
        &mut self,
        context: &SearchContext<'_>,
        chosen: Vec<Chosen<'_>>,
    ) -> (Prefetched, Prefetched) {
        let (graphs, mapped): (Vec<SectionGraph<'_>>, Vec<Mapped>) = chosen.into_iter().map(split).unzip();
        let first = Prefetched::new(context, self, &graphs, mapped);
        if context.effort == Effort::Low {
            return (first.clone(), first);
        }
        let smaller = self.make_room(context, &graphs, &first);
        if smaller.iter().all(Option::is_none) {
            return (first.clone(), first);
        }
        let mapped = first.alone.iter().zip(smaller).map(|(of, smaller)| smaller.unwrap_or_else(|| of.clone()));
        let other = Prefetched::new(context, self, &graphs, mapped.collect());
        if other.cycles < first.cycles { (first, other) } else { (first.clone(), first) }
    }

    /// Finds the best loads of some pairs of sections that are not known yet, side by side.
    fn find_loads<'g, 'm>(
        &mut self,
        context: &SearchContext<'_>,
        pairs: impl Iterator<Item = (&'m Mapped, &'g SectionGraph<'g>, &'m Mapped)>,
    ) {
        let is_new =
            |(before, _, next): &(&Mapped, &SectionGraph<'_>, &Mapped)| !self.loads.contains_key(&(before.id, next.id));
        let new: Vec<_> = pairs.filter(is_new).collect();
        let find = |&(before, graph, next): &(&Mapped, &SectionGraph<'_>, &Mapped)| {
            ((before.id, next.id), best_load(context, before, graph, next))
        };
        let found: Vec<_> = new.par_iter().map(find).collect();
        self.loads.extend(found);
    }

    fn load(&self, before: &Mapped, next: &Mapped) -> Option<&PrefetchedSection> {
        self.loads.get(&(before.id, next.id))?.as_ref()
    }
}

fn split(chosen: Chosen<'_>) -> (SectionGraph<'_>, Mapped) {
    let Chosen { index, graph, plan, section, run } = chosen;
    (graph, Mapped { id: MappedId { run: index, is_compact: false }, plan, section, run })
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
#[derive(Clone)]
pub(super) struct Prefetched {
    /// Mappings without that.
    alone: Vec<Mapped>,
    links: Vec<Link>,
    sections: Vec<Section>,
    runs: Vec<Option<SectionRun>>,
    /// Cycles of every section in which nothing hides what is loaded before its first repetition.
    first_loads: Vec<u64>,
    /// Of all sections and repetitions, launches aside.
    cycles: u64,
    loaded: Loaded,
}

/// What is prefetched in all.
#[derive(Debug, Default, Clone, Copy)]
struct Loaded {
    sections: usize,
    bytes: u64,
    saved_cycles: u64,
}

impl Prefetched {
    fn new(
        context: &SearchContext<'_>,
        prefetcher: &mut Prefetcher,
        graphs: &[SectionGraph<'_>],
        alone: Vec<Mapped>,
    ) -> Self {
        let SearchContext { chip, workload, .. } = *context;
        let mut configuration = Configuration {
            sections: alone.iter().map(|of| of.section.clone()).collect(),
            tiers: context.tiers.to_vec(),
            notes: Vec::new(),
            mode: Mode::Fused,
        };
        let links = links(workload, &configuration);
        prefetcher.find_loads(context, links.iter().map(|l| (&alone[l.before], &graphs[l.next], &alone[l.next])));
        let load = |link: &Link| Some((*link, prefetcher.load(&alone[link.before], &alone[link.next])?.clone()));
        let found: Vec<(Link, PrefetchedSection)> = links.iter().filter_map(load).collect();
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
        let first_load = |index| first_load_cycles(chip, workload, &configuration, index);
        let first_loads: Vec<u64> = (0..runs.len()).map(first_load).collect();
        let of_sections = configuration.sections.iter().zip(&runs);
        let running: u64 = of_sections.map(|(section, run)| cycles(run) * repeat(workload, section)).sum();
        let cycles = running + first_loads.iter().sum::<u64>();
        Self { alone, links, sections: configuration.sections, runs, first_loads, cycles, loaded }
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

impl Prefetcher {
    /// Of sections that leave too little room for what would be loaded under them, mappings in half of the banks: where such
    /// a mapping loses less than the section behind it gains.
    fn make_room(
        &mut self,
        context: &SearchContext<'_>,
        graphs: &[SectionGraph<'_>],
        prefetched: &Prefetched,
    ) -> Vec<Option<Mapped>> {
        let Prefetched { alone, runs, links, .. } = prefetched;
        let gained = |link: &Link| {
            let (alone, run) = (alone[link.next].run.as_ref()?, runs[link.next].as_ref()?);
            Some(alone.cycles.saturating_sub(run.cycles))
        };
        let is_worth = |link: &Link| {
            let Some(gained) = gained(link) else { return false };
            let next = &alone[link.next];
            let most = load_cycles(context, &graphs[link.next], next);
            let may_gain = most.saturating_sub(gained) * repeat(context.workload, &next.section);
            may_gain as f64 >= prefetched.cycles as f64 * PARAMS.prefetch.worth_room
        };
        let worth: Vec<Link> = links.iter().copied().filter(is_worth).collect();
        let unknown = |link: &&Link| !self.smaller.contains_key(&alone[link.before].id.run);
        let unknown: Vec<&Link> = worth.iter().filter(unknown).collect();
        let map = |link: &&Link| {
            let run = alone[link.before].id.run;
            let mapped = compact(context, &graphs[link.before]).map(|(plan, section, of_section)| Mapped {
                id: MappedId { run, is_compact: true },
                plan,
                section,
                run: Some(of_section),
            });
            (run, mapped)
        };
        let mapped: Vec<_> = unknown.par_iter().map(map).collect();
        self.smaller.extend(mapped);
        let smaller: Vec<(Link, Mapped)> = worth
            .into_iter()
            .filter_map(|link| Some((link, self.smaller.get(&alone[link.before].id.run)?.clone()?)))
            .collect();
        self.find_loads(context, smaller.iter().map(|(l, mapped)| (mapped, &graphs[l.next], &alone[l.next])));
        let mut list: Vec<Option<Mapped>> = alone.iter().map(|_| None).collect();
        for (link, mapped) in smaller {
            let cycles = |mapped: &Mapped| mapped.run.as_ref().map(|run| run.cycles);
            let (before, next) = (&alone[link.before], &alone[link.next]);
            let with = self.load(&mapped, next).zip(cycles(&mapped)).map(|(load, cycles)| load.run.cycles + cycles);
            let without = cycles(before).zip(cycles(next)).zip(gained(&link)).map(|((a, b), gained)| a + b - gained);
            if with.is_some() && with < without {
                list[link.before] = Some(mapped);
            }
        }
        list
    }
}
