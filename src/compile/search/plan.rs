//! The search for a section's loop nest, tiles and unit allocation.
//!
//! Every combination of row tile size, cut axis, column tile width, loop order and residency is given its best allocation of
//! PCUs to stages and costed in closed form; the cheapest that fits is kept.

use rayon::prelude::*;

use crate::compile::params::PARAMS;
use crate::cost::chain;
use crate::program::{LoopOrder, TiledAxis};
use crate::units::Dtype;

use super::context::Effort;
use super::low_effort;
use super::nests::tiled_axes;
use super::space::{Allotment, BestChoices, Choice, Incumbent, KAxis, SectionSearch, TilingChoice};

/// Why no plan was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPlan {
    /// The chip cannot compute in a stage's data type.
    Dtype(Dtype),
    /// The smallest plan needs this many PMU bytes.
    Sram(u64),
    /// The smallest plan needs this many PCUs.
    Pcus(u64),
}

/// Finds the choices of a section that are worth evaluating, by score, best first: of every cut, loop order and residency the
/// best, and the best if computing, moving or starting were dearer than thought. Where low effort finds nothing that fits, all is
/// tried before that is said.
pub(crate) fn plan(context: &SectionSearch<'_>, effort: Effort) -> Result<Vec<Choice>, NoPlan> {
    match plan_once(context, effort) {
        Err(NoPlan::Pcus(_) | NoPlan::Sram(_)) if effort == Effort::Low => plan_once(context, Effort::Full),
        found => found,
    }
}

/// The same, as far as this effort goes.
pub(super) fn plan_once(context: &SectionSearch<'_>, effort: Effort) -> Result<Vec<Choice>, NoPlan> {
    let SectionSearch { chip, graph, .. } = *context;
    for stage in graph.stages.ids() {
        let dtype = graph.stage_dtype(stage);
        if chip.macs_per_cycle(dtype).is_none() {
            return Err(NoPlan::Dtype(dtype));
        }
    }
    // Very small column tiles only where nothing larger fits.
    let mut least_banks = u64::MAX;
    for counts in [&PARAMS.nests.few_column_tiles[..], &PARAMS.nests.many_column_tiles[..]] {
        let cuts = tiled_axes(chip, graph, counts);
        let found: Vec<BestChoices> = match effort {
            Effort::Full | Effort::Thorough => context.best_of_each(&cuts),
            Effort::Low => vec![low_effort::best_of(context, &cuts)],
        };
        least_banks = found.iter().map(|kept| kept.least_banks).fold(least_banks, u64::min);
        let mut choices: Vec<Choice> = Vec::new();
        for choice in found.into_iter().flat_map(|kept| kept.best.into_values().flatten().flatten()) {
            if !choices.contains(&choice) {
                choices.push(choice);
            }
        }
        // Stable: of equals the first cut stays first, whatever the threads did.
        choices.sort_by_key(|choice| choice.estimate.score);
        if let Some(first) = choices.first() {
            let most = (first.estimate.score as f64 * PARAMS.nests.near_best) as u64;
            choices.retain(|choice| choice.estimate.score <= most);
            choices.truncate(PARAMS.nests.most_choices);
            return Ok(choices);
        }
    }
    if least_banks == u64::MAX {
        let least = graph.stages.ids().map(|s| if graph.is_gemm(s) { 1 } else { chain(chip, graph.kind(s)) }).sum();
        return Err(NoPlan::Pcus(least));
    }
    Err(NoPlan::Sram(least_banks.saturating_mul(chip.pmu.bank_bytes())))
}

impl SectionSearch<'_> {
    /// The best choices of each cut: of all with K whole first, as a split has to pay against the best of any cut.
    fn best_of_each(&self, cuts: &[Option<TiledAxis>]) -> Vec<BestChoices> {
        let mut found = Incumbent::default();
        let mut all = Vec::with_capacity(2 * cuts.len());
        for k in [KAxis::Whole, KAxis::Split] {
            let each: Vec<(BestChoices, Incumbent)> = cuts.par_iter().map(|&cut| self.best_of(cut, k, found)).collect();
            found = each.iter().fold(found, |found, (_, new)| found.least(new));
            all.extend(each.into_iter().map(|(kept, _)| kept));
        }
        all
    }

    /// The best choices of one cut, and what they and those before have shown.
    fn best_of(&self, tiled_axis: Option<TiledAxis>, k: KAxis, mut found: Incumbent) -> (BestChoices, Incumbent) {
        let mut kept = BestChoices::default();
        let bases = self.bases(tiled_axis);
        if k == KAxis::Split && !bases.may_split_k() {
            return (kept, found);
        }
        let mut may_fit = [LoopOrder::ColumnTileOuter, LoopOrder::RowTileOuter].map(|order| (order, true));
        for tile_rows in self.row_tile_sizes(&bases) {
            for (order, may_fit) in may_fit.iter_mut().filter(|(_, may_fit)| *may_fit) {
                let allotments = [Allotment::ALL, Allotment::EAGER];
                let (tiling, offer) = (TilingChoice { tile_rows, order: *order, k }, |choice| kept.offer(&choice));
                *may_fit = self.choices(&bases, tiling, &allotments, &mut found, offer);
            }
        }
        kept.least_banks = found.least_banks;
        (kept, found)
    }
}
