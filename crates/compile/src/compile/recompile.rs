//! The mappings of a configuration, placed, routed and measured on another chip: the same sections, nests and arrays.
//!
//! A search may take another turn on a chip that has more of something. Beside what it finds there, this is a candidate: about as
//! fast as on the chip that it was found for, as places and routes are new.

use rayon::prelude::*;

use rdusim_base::index::IndexVec;
use rdusim_base::mode::Mode;
use rdusim_cost::cost::Stop;
use rdusim_engines::sim::Measurement;
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::Workload;
use rdusim_program::verifier::violations;
use rdusim_program::{Configuration, Fabric, Mapping, SectionGraph, tensor_tiers};

use super::compiled::Compiled;
use super::mapping::bases::BaseCache;
use super::mapping::residency::{LatencySlots, Residency};
use super::params::PARAMS;
use super::prefetch::{Prefetcher, prefetch_weights};
use super::retarget::{residency, section};
use super::search::chosen::Chosen;
use super::search::context::{Effort, SearchContext};

/// The mappings of `of` on `chip`, with weights prefetched as there is room and time; `None` if one of them has no place
/// there, breaks a rule of the chip, or cannot be measured.
pub fn recompiled(chip: &Chip, workload: &Workload, of: &Configuration, stop: Stop<'_>) -> Option<Compiled> {
    let (fabric, bases, tiers) = (Fabric::new(chip), BaseCache::default(), tensor_tiers(chip, workload).ok()?);
    let prefetches = of.mode == Mode::Fused && workload.first_of_a_model().is_some();
    let (fabric, tiers, effort) = (&fabric, &tiers[..], Effort::Full);
    let context = &SearchContext {
        chip,
        workload,
        fabric,
        tiers,
        effort,
        measures: true,
        prefetches,
        bases: &bases,
        traces: false,
        stop,
    };
    let again = |index: usize| {
        let was = &of.sections[index];
        let graph = SectionGraph::new(workload, &was.operators, was.operators.len() > 1)?;
        if was.stages.iter().map(|stage| stage.mapping.pcus()).sum::<u64>() > chip.pcus() {
            return None;
        }
        let of_section = &*chip.in_section(graph.largest_off_chip_bytes());
        let with = |latency_slots| {
            let residency = Residency { latency_slots, ..residency(was) };
            let mappings: IndexVec<_, Mapping> = was.stages.iter().map(|stage| stage.mapping).collect();
            section(of_section, fabric, &graph, was.schedule.nest(), mappings, residency, tiers)
        };
        let (plan, section) =
            [LatencySlots::Full, LatencySlots::Quarter, LatencySlots::None].into_iter().find_map(with)?;
        match context.measure(&section, u64::MAX, PARAMS.evaluation.normal.work) {
            Measurement::Takes(_, run) => Some(Chosen { index, graph, plan, section, run: Some(run) }),
            _ => None,
        }
    };
    let chosen: Vec<Chosen<'_>> = (0..of.sections.len()).into_par_iter().map(again).collect::<Option<_>>()?;
    let sections = chosen.iter().map(|chosen| chosen.section.clone()).collect();
    let runs = chosen.iter().map(|chosen| chosen.run.clone()).collect();
    let configuration = Configuration { mode: of.mode, sections, tiers: tiers.to_vec(), notes: Vec::new() };
    let mut compiled = Compiled { configuration, runs };
    if prefetches {
        prefetch_weights(context, &mut Prefetcher::default(), chosen, &mut compiled);
    }
    // A function may need more stages there than its PCUs have, lanes may be other.
    violations(chip, workload, fabric, &compiled.configuration).is_empty().then_some(compiled)
}
