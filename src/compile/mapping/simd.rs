//! The ways to map a stage of elementwise or row functions.

use crate::arch::Chip;
use crate::cost::{StageExtents, chain};
use crate::program::{Cadence, Mapping, Nest, SectionGraph, SimdMapping};

use super::allocate::{Candidate, useful_splits};
use super::roles::{StageRoles, stretch};

/// Useful mappings of a SIMD stage: rows and columns (or heads) over pipelines of as many PCUs as its function needs.
pub(super) fn simd_mappings(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    nest: &Nest,
    roles: &StageRoles,
    stage: usize,
) -> Vec<Candidate> {
    let kind = graph.kind(stage);
    let (chain, passes) = (chain(chip, kind), kind.passes());
    let Some(&lanes) = chip.pcu.lanes.get(&graph.stage_dtype(stage)) else { return Vec::new() };
    let columns = graph.simd_columns(stage);
    let (width, chunks) = match (nest.chunking, roles.cadence[stage]) {
        (Some(cut), Cadence::Firing) => (cut.width, nest.chunks()),
        _ => (columns, 1),
    };
    // A function that needs more PCUs than an operator is given still gets one pipeline, if the chip has room.
    let most = chip.pcus_per_operator().max(chain.min(chip.pcus())) / chain;
    let column_splits = if kind.is_row_wise() {
        useful_splits(graph.workload.operators[graph.stages[stage].main].heads, most.min(64))
    } else {
        useful_splits(width.div_ceil(lanes), most.min(64))
    };
    let stretch = stretch(nest, roles, stage, true);
    let mut list = Vec::new();
    for pm in useful_splits(nest.token_rows, most) {
        for &pn in &column_splits {
            if pm * pn > most {
                continue;
            }
            let per_chunk = width.div_ceil(pn).div_ceil(lanes) * passes;
            let mapping = SimdMapping { pm, pn, chain, passes };
            let rows = nest.tokens().saturating_mul(nest.token_rows.div_ceil(pm));
            list.push(Candidate {
                pcus: pm * pn * chain,
                cycles: rows.saturating_mul(per_chunk * chunks * stretch),
                stretch,
                mapping: Mapping::Simd(mapping),
                extents: StageExtents::default(),
            });
        }
    }
    list
}
