//! The ways to map a stage of elementwise or row functions.

use rdusim_cost::cost::{StageFootprint, chain};
use rdusim_program::{LoopLevel, Mapping, SimdMapping};

use super::allocate::useful_splits;
use super::front::{CandidateIndex, Cycles, Offers, Source};
use super::stage_context::StageContext;

/// Offers the mappings of a SIMD stage: rows and columns (or heads) over pipelines of as many PCUs as its function needs.
pub(super) fn simd_mappings(at: &StageContext<'_>, offer: &mut impl Offers) -> Source {
    let &StageContext { chip, graph, nest, roles, stage, .. } = at;
    let kind = graph.kind(stage);
    let (chain, passes) = (chain(chip, kind), kind.passes());
    let Some(&lanes) = chip.pcu.lanes.get(&graph.stage_dtype(stage)) else { return Source::default() };
    let columns = graph.simd_columns(stage);
    let (width, column_tiles) = match (nest.tiled_axis, roles.level[stage]) {
        (Some(_), level @ (LoopLevel::FIRING | LoopLevel::PANEL_ROW)) => {
            let first = graph.columns_in(nest.tiled_axis, graph.stages[stage].activations[0], 0);
            let times = if level == LoopLevel::FIRING { nest.column_tiles() } else { nest.panels() };
            (first.end - first.start, times)
        }
        _ => (columns, 1),
    };
    // A function that needs more PCUs than an operator is given still gets one pipeline, if the chip has room.
    let most = chip.pcus_per_operator().max(chain.min(chip.pcus())) / chain;
    let column_splits = if kind.is_row_wise() {
        useful_splits(graph.workload.operators[graph.stages[stage].main].heads, most.min(64))
    } else {
        useful_splits(width.div_ceil(lanes), most.min(64))
    };
    let duty_factor = at.duty_factor();
    // Rows that carry a state are worked on in order.
    let row_splits = if kind.is_carried() { vec![1] } else { useful_splits(nest.tile_rows, most) };
    let carried_rows = u64::from(kind.is_carried());
    for pm in row_splits {
        for (of, &pn) in (0..).zip(&column_splits) {
            let kept = graph.running_statistics(nest.tiled_axis, stage, nest.tile_rows.div_ceil(pm), pn);
            if pm * pn > most || kept > lanes * chip.pcu.stages {
                continue;
            }
            let per_column_tile = width.div_ceil(pn).div_ceil(lanes) * passes;
            let rows = nest.row_tiles().saturating_mul(nest.tile_rows.div_ceil(pm) + carried_rows);
            let (pcus, cycles) = (pm * pn * chain, rows.saturating_mul(per_column_tile * column_tiles * duty_factor));
            offer.offer(pcus, Cycles::worked(cycles), 1, CandidateIndex { row_slices: pm as u32, of });
        }
    }
    let mapping = |&pn: &u64| Mapping::Simd(SimdMapping { pm: 1, pn, chain, passes });
    Source::Own(column_splits.iter().map(|pn| (mapping(pn), StageFootprint::default())).collect())
}
