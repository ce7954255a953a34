//! The ways to map each stage of a section for one cut of its axes.

use crate::arch::Chip;
use crate::program::{GemmMapping, LoopOrder, Mapping, Nest, SectionGraph};

use super::allocate::{Candidate, Front, StageCandidates, useful_splits};
use super::bases::{Base, StageBases, Wanted};
use super::heads::heads_mappings;
use super::roles::{StageRoles, duty_factor};
use super::row_reduction::SumsBase;
use super::simd::simd_mappings;

/// The useful mappings of one stage in a nest.
pub fn stage_candidates(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    bases: &StageBases<'_>,
    nest: &Nest,
    roles: &StageRoles,
    stage: usize,
    wanted: Wanted,
) -> StageCandidates {
    if graph.stages[stage].weight.is_some() && graph.form(stage).is_none() {
        let mut front = Front::default();
        let offer = |candidate: Candidate| front.offer(&candidate);
        gemm_mappings(chip, graph, bases, nest, roles, stage, wanted, offer);
        return front.finish();
    }
    bases.known(stage, (nest, roles), wanted.turned, || {
        if let Some(form) = graph.form(stage).filter(|_| graph.stages[stage].weight.is_some()) {
            let mut front = Front::default();
            let offer = |candidate: Candidate| front.offer(&candidate);
            heads_mappings(chip, graph, bases, nest, roles, stage, &form, offer);
            return front.finish();
        }
        StageCandidates::pareto(stage_mappings(chip, graph, bases, nest, roles, stage, wanted))
    })
}

/// As [`stage_candidates`], with those that others beat.
pub fn stage_mappings(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    bases: &StageBases<'_>,
    nest: &Nest,
    roles: &StageRoles,
    stage: usize,
    wanted: Wanted,
) -> Vec<Candidate> {
    if graph.stages[stage].sums.is_some() {
        return reducer_mappings(graph, bases, nest, roles, stage, wanted.turned);
    }
    if graph.stages[stage].weight.is_none() {
        return simd_mappings(chip, graph, nest, roles, stage);
    }
    if let Some(form) = graph.form(stage) {
        let mut list = Vec::new();
        heads_mappings(chip, graph, bases, nest, roles, stage, &form, |candidate| list.push(candidate));
        return list;
    }
    let mut list = Vec::new();
    gemm_mappings(chip, graph, bases, nest, roles, stage, wanted, |candidate| list.push(candidate));
    list
}

/// Offers the mappings of a GEMM stage with one weight.
#[expect(clippy::too_many_arguments, reason = "what a stage is, what is wanted, and who is told")]
fn gemm_mappings(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    bases: &StageBases<'_>,
    nest: &Nest,
    roles: &StageRoles,
    stage: usize,
    wanted: Wanted,
    mut offer: impl FnMut(Candidate),
) {
    let duty_factor = duty_factor(nest, roles, stage, false);
    let full_row_tiles = graph.rows / nest.tile_rows;
    let last_rows = graph.rows % nest.tile_rows;
    for rows_on_lanes in [false, true].into_iter().filter(|&way| wanted.turned.is_none_or(|turned| turned == way)) {
        let Some(shape) = bases.tables.shape(stage, rows_on_lanes) else { continue };
        let of_shape: Vec<&Base> = bases
            .of(stage)
            .iter()
            .filter(|b| b.rows_on_lanes == rows_on_lanes)
            .filter(|b| (wanted.private || b.multicast_width == b.pn) && (wanted.split || b.pk == 1))
            .collect();
        for pm in useful_splits(nest.tile_rows.div_ceil(shape.row_grain), chip.pcus_per_operator()) {
            let last_passes = if last_rows == 0 { 0 } else { shape.passes(last_rows, pm) };
            let passes = full_row_tiles * shape.passes(nest.tile_rows, pm) + last_passes;
            for base in &of_shape {
                let pcus = pm * base.pn * base.pk;
                if pcus > chip.pcus_per_operator() {
                    continue;
                }
                let each =
                    if nest.order == LoopOrder::ColumnTileOuter { base.in_step_cycles } else { base.free_cycles };
                let Base { rows_on_lanes, pn, pk, multicast_width, aligned, style, .. } = **base;
                let mapping = GemmMapping { rows_on_lanes, pm, pn, pk, multicast_width, streams: 1, aligned, style };
                offer(Candidate {
                    pcus,
                    cycles: each.saturating_mul(passes).saturating_mul(duty_factor),
                    duty_factor,
                    mapping: Mapping::Gemm(mapping),
                    footprint: base.footprint,
                });
            }
        }
    }
}

/// The useful mappings of a stage that adds up; with `turned`, only with rows of its result along the lanes, or across.
pub fn reducer_mappings(
    graph: &SectionGraph<'_>,
    bases: &StageBases<'_>,
    nest: &Nest,
    roles: &StageRoles,
    stage: usize,
    turned: Option<bool>,
) -> Vec<Candidate> {
    let duty_factor = duty_factor(nest, roles, stage, false);
    let (full, last) = (graph.rows / nest.tile_rows, graph.rows % nest.tile_rows);
    let rows = (graph.rows / graph.form(stage).map_or(1, |form| form.instances)).max(1);
    let group = graph.form(stage).map_or(1, |form| (form.k / rows).max(1));
    // Cycles of one tile over all row tiles.
    let tile = [false, true].map(|way| {
        let shape = bases.tables.shape(stage, way)?;
        let of = |rows: u64| if rows == 0 { 0 } else { shape.tile_cycles(rows * group) };
        Some(full.saturating_mul(of(nest.tile_rows)).saturating_add(of(last)))
    });
    let wanted = |base: &&SumsBase| turned.is_none_or(|turned| turned == base.mapping.rows_on_lanes);
    let candidate = |base: &SumsBase| {
        let tile = tile[usize::from(base.mapping.rows_on_lanes)]?;
        Some(Candidate {
            pcus: base.mapping.pm * base.mapping.pn,
            cycles: tile.saturating_mul(base.tiles).saturating_mul(duty_factor),
            duty_factor,
            mapping: Mapping::Gemm(base.mapping),
            footprint: base.footprint,
        })
    };
    bases.sums(stage, nest.tile_rows).iter().filter(wanted).filter_map(candidate).collect()
}
