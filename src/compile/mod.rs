//! Compile: an operator graph becomes a [`Configuration`] of a chip.
//!
//! fuse (which operators share a section) > plan (loop nest, tiles, allocation, residency) > place > route. Every
//! step reads only the chip, the workload and the step before; a configuration that breaks a capacity cannot come
//! out, because banks, ports and generators are taken from what is left.

mod alike;
mod allocate;
mod anneal;
mod assemble;
mod balance;
mod buffers;
mod candidates;
mod choose;
mod coarse;
mod configuration;
mod estimate;
mod exact;
mod exhaustive;
mod fabric;
mod flows;
mod fuse;
mod gather;
mod generators;
mod heads;
mod lazy;
mod mapping;
mod nest;
mod notes;
mod place;
mod plan;
mod reduce;
mod refine;
mod restore;
mod route;
mod runs;
mod section_graph;
mod simd;
mod tiers;
mod tiling;
mod tree;
mod twins;
mod work;

pub use alike::{alike, remapped};
pub use allocate::simd_stages;
pub use buffers::{BufferRole, BufferSpec};
pub use candidates::{BaseCache, tile_depths, tile_lists};
pub use configuration::{
    Amount, Buffer, Configuration, Flow, FlowEnd, FlowKind, LoadAhead, OffChip, Part, PcuId, Piece, PmuId, Section,
    Stage,
};
pub use estimate::Stream;
pub use exhaustive::{Exhausted, exhaust};
pub use fabric::{Direction, Fabric, Port, Resource, ResourceKind};
pub use fuse::{Judge, Verdict, Way};
pub use mapping::{GemmMapping, Mapping, PassWork, SimdMapping, Style, SystolicShape, Tile, k_slice};
pub use nest::{Cadence, Chunking, LoopOrder, Nest, Step};
pub use plan::Care;
pub use reduce::{Reducer, Sums};
pub use restore::{BufferDraft, Draft, Fault, Place, Restored, StreamDraft};
pub use section_graph::{SectionGraph, StageSpec};
pub use tiers::home_tiers;
pub use work::{StageWork, continues, emits, reduced_extent, shared, slot_bytes};

use rayon::prelude::*;

use crate::arch::Chip;
use crate::diagnostics::Diagnostic;
use crate::mode::Mode;
use crate::workload::Workload;

use assemble::assemble;
use fuse::{Chosen, Ground, Spans, Wanted};
use route::Negotiation;

/// Compiles `workload` for `chip`: one operator a section ([`Mode::Kbk`]), or as many as pay ([`Mode::Fused`]). The
/// search believes its estimates.
///
/// # Errors
/// A diagnostic that names the operator and what is short when one cannot run even alone, or when a tensor fits no
/// memory tier.
pub fn compile(chip: &Chip, workload: &Workload, mode: Mode) -> Result<Configuration, Diagnostic> {
    let mut compiled = compile_modes::<()>(
        chip,
        workload,
        &[mode],
        Way { care: Care::Full, judge: None, bases: &BaseCache::default() },
    )?;
    compiled.pop().map(|c| c.configuration).ok_or_else(|| Diagnostic::new("no mode was asked for"))
}

/// A configuration, and what the judge's runs of its sections left.
#[derive(Debug, Clone)]
pub struct Compiled<R> {
    /// The configuration.
    pub configuration: Configuration,
    /// For each of its sections the run that measured it, if one did.
    pub runs: Vec<Option<R>>,
    /// Sections once more, with their weights clear of the banks that the section before takes; where that is of use.
    pub clear: Vec<Option<Section>>,
}

/// Compiles several modes; what they have in common is searched once. With a judge, sections that may be chosen are
/// measured, and the search goes by that instead of its own estimate.
///
/// # Errors
/// As [`compile`].
pub fn compile_modes<R: Clone + Send + Sync>(
    chip: &Chip,
    workload: &Workload,
    modes: &[Mode],
    way: Way<'_, R>,
) -> Result<Vec<Compiled<R>>, Diagnostic> {
    let tiers = home_tiers(chip, workload)?;
    let fabric = Fabric::new(chip);
    let ground = &Ground { chip, fabric: &fabric, tiers: &tiers, way };
    let is_pinned = !workload.sections.is_empty();
    let pinned = (is_pinned && modes.contains(&Mode::Fused))
        .then(|| Spans::pinned(workload, ground))
        .transpose()
        .map_err(|(section, reason)| notes::unpinnable(chip, workload, &workload.sections[section], reason))?;
    let searches = |mode: Mode| mode == Mode::Fused && !is_pinned;
    let free = modes.iter().any(|&mode| mode == Mode::Kbk || searches(mode));
    let mut spans = free
        .then(|| {
            let wanted =
                Wanted { singles: modes.contains(&Mode::Kbk), fused: modes.iter().any(|&mode| searches(mode)) };
            Spans::new(ground, workload, wanted)
        })
        .transpose()
        .map_err(|failed| notes::unplannable(chip, workload, failed))?;
    let unplaceable = |spans: &Spans<'_, R>, run| notes::unplaceable(chip, workload, spans.unplaced(run));
    if let Some(spans) = spans.as_mut().filter(|_| modes.iter().any(|&mode| searches(mode))) {
        // Routes single operators on the way, at the same time.
        spans.fused(ground).map_err(|run| unplaceable(spans, run))?;
    }
    let mut compiled = Vec::with_capacity(modes.len());
    for &mode in modes {
        let (spans, runs) = match (&mut spans, &pinned) {
            (_, Some(pinned)) if mode == Mode::Fused => (pinned, pinned.all()),
            (Some(spans), _) => {
                let runs = if mode == Mode::Kbk { spans.kernel_by_kernel(ground) } else { spans.fused(ground) };
                let runs = runs.map_err(|run| unplaceable(spans, run))?;
                (&*spans, runs)
            }
            (None, _) => continue,
        };
        let chosen: Vec<Chosen<'_, R>> = runs.iter().filter_map(|&run| spans.chosen(run)).collect();
        let mut notes: Vec<String> = chosen.iter().flat_map(|c| notes::of_section(chip, &c.graph, &c.plan)).collect();
        let of_a_model = workload.first_of_a_model().is_some();
        let clear = if mode == Mode::Fused && of_a_model { clear_of_each_other(ground, &chosen) } else { Vec::new() };
        let (sections, measured): (Vec<Section>, _) = chosen.into_iter().map(|c| (c.section, c.run)).unzip();
        if searches(mode) && sections.len() > 1 {
            notes.push(notes::several_sections(chip, workload, &sections, spans.whole()));
        }
        if searches(mode) {
            notes.extend(notes::left_out(spans.left_out()));
        }
        notes.extend(workload.notes.iter().cloned());
        if of_a_model {
            notes.extend(notes::scores_off_chip(workload, &sections));
            notes.extend(tiers::told(chip, workload, &tiers));
        }
        let configuration = Configuration { mode, sections, tiers: tiers.clone(), notes };
        compiled.push(Compiled { configuration, runs: measured, clear });
    }
    Ok(compiled)
}

/// Sections that follow another every time, placed so that their weights can be loaded while that one runs.
fn clear_of_each_other<R: Send + Sync>(ground: &Ground<'_, R>, chosen: &[Chosen<'_, R>]) -> Vec<Option<Section>> {
    let place = |index: usize| {
        let (before, next) = (&chosen[index.checked_sub(1)?].section, &chosen[index]);
        let has_weights = next.plan.buffers.iter().any(|buffer| matches!(buffer.role, BufferRole::Weight { .. }));
        if !has_weights || !next.section.follows(before, next.graph.workload) {
            return None;
        }
        let chip = &*ground.chip.in_section(next.graph.largest_off_chip_bytes());
        let taken = before.taken_banks(chip);
        let (fabric, tiers) = (ground.fabric, ground.tiers);
        assemble(chip, fabric, &next.graph, &next.plan, tiers, Negotiation::TRIAL, &taken)
            .ok()
            .map(|(section, _)| section)
    };
    (0..chosen.len()).into_par_iter().map(place).collect()
}
