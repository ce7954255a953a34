//! The ways to map each stage of a section for one cut of its axes.

use std::cell::RefCell;
use std::sync::Arc;

use crate::compile::params::PARAMS;
use rdusim_program::LoopOrder;

use super::allocate::useful_splits;
use super::base::{Base, SumsBase};
use super::bases::CandidateRequest;
use super::front::{CandidateIndex, Cycles, Front, Offers, Source, StageCandidates};
use super::heads::heads_mappings;
use super::link_load::LinkLoad;
use super::simd::simd_mappings;
use super::stage_context::StageContext;

thread_local! {
    /// Lists that grow once: a search works out tens of thousands of fronts.
    static SCRATCH: RefCell<Front> = RefCell::default();
}

/// Passes on the mappings with K split.
struct SplitOnly<'a>(&'a mut Front);

impl Offers for SplitOnly<'_> {
    fn offer(&mut self, pcus: u64, cycles: Cycles, pk: u64, place: CandidateIndex) {
        if pk > 1 {
            self.0.offer(pcus, cycles, pk, place);
        }
    }
}

/// The useful mappings of one stage in a nest.
pub(crate) fn stage_candidates(at: &StageContext<'_>, wanted: CandidateRequest) -> StageCandidates {
    // Of a gradient that is sampled, splits of K are no faster but take smaller copies: they are a choice of their own.
    let only_split = wanted.split && at.bases.of(at.stage).iter().any(|b| b.pk > 1 && b.dense_cycles.is_some());
    let work_out = || {
        SCRATCH.with_borrow_mut(|front| {
            let source = if only_split {
                stage_mappings(at, wanted, &mut SplitOnly(front))
            } else {
                stage_mappings(at, wanted, front)
            };
            front.finish(source, at.duty_factor())
        })
    };
    at.bases.known(at.stage, at.nest, at.roles, wanted, work_out)
}

/// Offers the mappings of one stage in a nest, those that others beat too, by their places in the list returned.
pub(crate) fn stage_mappings(at: &StageContext<'_>, wanted: CandidateRequest, offer: &mut impl Offers) -> Source {
    let spec = &at.graph.stages[at.stage];
    match (at.graph.form(at.stage), spec.weight) {
        _ if spec.sums.is_some() => reducer_mappings(at, wanted.turned, offer),
        (Some(_), Some(_)) => heads_mappings(at, &at.graph.heads_tiles(at.nest.tiled_axis, at.stage), offer),
        (None, Some(_)) => gemm_mappings(at, wanted, offer),
        (_, None) => simd_mappings(at, offer),
    }
}

/// Offers the mappings of a GEMM stage with one weight.
fn gemm_mappings(at: &StageContext<'_>, wanted: CandidateRequest, offer: &mut impl Offers) -> Source {
    let &StageContext { chip, bases, nest, stage, .. } = at;
    let duty_factor = at.duty_factor();
    let (full_row_tiles, last_rows) = at.row_tiles();
    let in_step = nest.order == LoopOrder::ColumnTileOuter;
    let most = chip.pcus_per_operator();
    let load = LinkLoad::new(at);
    for rows_on_lanes in [false, true].into_iter().filter(|&way| wanted.turned.is_none_or(|turned| turned == way)) {
        let Some(shape) = bases.tables.shape(stage, rows_on_lanes) else { continue };
        // With the PCUs of a row slice, and its cycles.
        let of_shape: Vec<(u64, u64, u64, u32, Option<&Base>)> = (0..)
            .zip(bases.of(stage))
            .filter(|(_, b)| b.rows_on_lanes == rows_on_lanes)
            .filter(|(_, b)| (wanted.private || b.multicast_width == b.pn) && (wanted.split || b.pk == 1))
            .map(|(of, b)| (b.pn * b.pk, b.pass_cycles(in_step, 1), b.pk, of, b.dense_cycles.map(|_| b)))
            .collect();
        for pm in useful_splits(nest.tile_rows.div_ceil(shape.row_grain), most) {
            let last_passes = if last_rows == 0 { 0 } else { shape.passes(last_rows, pm) };
            let passes = full_row_tiles * shape.passes(nest.tile_rows, pm) + last_passes;
            let passes = passes.saturating_mul(duty_factor);
            for &(columns, each, pk, at_base, sampled) in &of_shape {
                let pcus = pm * columns;
                if pcus > most {
                    continue;
                }
                let each = match sampled.and_then(|base| Some((base, base.dense_cycles?))) {
                    Some((base, dense)) => {
                        let each = base.pass_cycles(in_step, pm);
                        uneven_row_tiles(each, dense, shape.passes(nest.tile_rows, pm), base)
                    }
                    None => each,
                };
                let cycles = each.saturating_mul(passes);
                let of = &bases.of(stage)[at_base as usize];
                let paced = load.paced_cycles(&of.mapping(pm), &of.footprint, cycles);
                let (cycles, of) = (Cycles { worked: cycles, paced }, at_base);
                offer.offer(pcus, cycles, pk, CandidateIndex { row_slices: pm as u32, of });
            }
        }
    }
    Source::Splits(Arc::clone(bases.shared(stage)))
}

/// Cycles of a mean row pass of a gradient that is sampled, as its busiest lockstep group sees it. What a group executes of
/// a row tile varies about as a binomial count does, and groups run apart by the slots of their operands: the largest of g
/// counts of mean m is about m + sqrt(2 ln(g) m) (extremes of normal variables).
fn uneven_row_tiles(each: u64, dense: u64, passes: u64, base: &Base) -> u64 {
    let share = (each as f64 / dense.max(1) as f64).clamp(f64::MIN_POSITIVE, 1.0);
    let groups = (base.pn / base.multicast_width) as f64;
    let executed = share * (base.tiles_of_pass * passes * PARAMS.mapping.slots_apart) as f64;
    let excess = (2.0 * groups.ln() * (1.0 - share) / executed.max(f64::MIN_POSITIVE)).sqrt();
    ((each as f64 * (1.0 + excess)) as u64).min(dense)
}

/// Offers the mappings of a stage that adds up; with `turned`, only with rows of its result along the lanes, or across.
fn reducer_mappings(at: &StageContext<'_>, turned: Option<bool>, offer: &mut impl Offers) -> Source {
    let &StageContext { graph, bases, nest, stage, .. } = at;
    let duty_factor = at.duty_factor();
    let (full, last) = at.row_tiles();
    let rows = (graph.rows / graph.form(stage).map_or(1, |form| form.instances)).max(1);
    let group = graph.form(stage).map_or(1, |form| (form.k / rows).max(1));
    // Cycles of one tile over all row tiles.
    let tile = [false, true].map(|way| {
        let shape = bases.tables.shape(stage, way)?;
        let of = |rows: u64| if rows == 0 { 0 } else { shape.tile_cycles(rows * group) };
        Some(full.saturating_mul(of(nest.tile_rows)).saturating_add(of(last)))
    });
    let wanted = |base: &SumsBase| turned.is_none_or(|turned| turned == base.mapping.rows_on_lanes);
    let list = bases.sums(stage, nest.tile_rows);
    for (of, base) in (0..).zip(&*list).filter(|(_, base)| wanted(base)) {
        let Some(tile) = tile[usize::from(base.mapping.rows_on_lanes)] else { continue };
        let cycles = tile.saturating_mul(base.tiles).saturating_mul(duty_factor);
        let row_slices = base.mapping.pm as u32;
        offer.offer(base.mapping.pm * base.mapping.pn, Cycles::worked(cycles), 1, CandidateIndex { row_slices, of });
    }
    Source::Sums(list)
}
