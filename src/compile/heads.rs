//! GEMMs with heads: one small product for every head, side by side in a row of the activations.
//!
//! PCU columns are dealt to heads. `streams` heads are worked on at a time, each on `pn / streams` columns that take
//! that head's part of the activations; the heads left come after one another. All columns run in lockstep.

use crate::arch::Chip;
use crate::workload::{CausalAxis, GemmForm};

use super::allocate::{Candidate, useful_splits};
use super::buffers::{StageExtents, StageRoles, weight_slot_bytes};
use super::candidates::{StageBases, stretch};
use super::mapping::{GemmMapping, Mapping, PassWork, Style, SystolicShape};
use super::nest::Nest;
use super::section_graph::SectionGraph;

/// Work of one row pass: column tiles and depth of a mean token, all heads.
pub fn heads_work(form: &GemmForm, shape: &SystolicShape, mapping: &GemmMapping, token_rows: u64) -> PassWork {
    let width = shape.column_grain * (mapping.pn / mapping.streams);
    let (columns, k) = match form.causal {
        None => (form.n, form.k),
        Some(CausalAxis::Columns) => (form.mean_causal_extent(token_rows, width), form.k),
        Some(CausalAxis::Depth) => (form.n, form.mean_causal_extent(token_rows, 1)),
    };
    let heads = form.heads_of_stream(mapping.streams, 0);
    let tiles = (heads.end - heads.start) * columns.div_ceil(width);
    PassWork {
        cycles: tiles * shape.tile_cycles(k),
        tiles,
        a_flits: tiles * shape.a_flits(k),
        w_flits: tiles * shape.w_flits(k),
        columns: form.heads * form.n,
        stored: form.b_heads * form.n * form.k,
    }
}

/// Sizes of a stage with heads: a column of PCUs holds the columns of its stream's heads that are dealt to it, and of
/// B those of the heads it shares.
pub fn heads_extents(
    graph: &SectionGraph<'_>,
    stage: usize,
    form: &GemmForm,
    shape: &SystolicShape,
    mapping: &GemmMapping,
) -> StageExtents {
    let each = mapping.pn / mapping.streams;
    let width = shape.column_grain * each;
    // Every tile of a head is dealt evenly to the stream's columns of PCUs.
    let of_a_head = form.n / width * shape.column_grain + (form.n % width).div_ceil(each);
    let heads = form.heads_of_stream(mapping.streams, 0);
    let heads = heads.end - heads.start;
    let b_heads = heads.div_ceil(form.heads / form.b_heads);
    let (activation_rate, weight_rate) = shape.stream_rates();
    StageExtents {
        row_grain: shape.row_grain,
        weight_slot_bytes: weight_slot_bytes(graph, stage, b_heads * of_a_head * form.k),
        columns_per_pcu: heads * of_a_head,
        activation_rate,
        weight_rate,
        ..StageExtents::default()
    }
}

/// Offers the useful mappings of a stage with heads.
#[expect(clippy::too_many_arguments, reason = "what a stage is, and who is told")]
pub fn heads_mappings(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    bases: &StageBases<'_>,
    nest: &Nest,
    roles: &StageRoles,
    stage: usize,
    form: &GemmForm,
    mut offer: impl FnMut(Candidate),
) {
    let stretch = stretch(nest, roles, stage, false);
    let full_tokens = graph.rows / nest.token_rows;
    let last_rows = graph.rows % nest.token_rows;
    for rows_on_lanes in [false, true] {
        let Some(shape) = bases.shape(stage, rows_on_lanes) else { continue };
        // Heads that share keys and values go to one stream: what they share is on chip once.
        for streams in useful_splits(form.b_heads, chip.pcus()) {
            for each in useful_splits(form.n.div_ceil(shape.column_grain), chip.pcus() / streams) {
                let pn = streams * each;
                let style = Style::Skip;
                let mapping =
                    GemmMapping { rows_on_lanes, pm: 1, pn, pk: 1, share: pn, streams, aligned: false, style };
                let work = heads_work(form, &shape, &mapping, nest.token_rows);
                let extents = heads_extents(graph, stage, form, &shape, &mapping);
                for pm in useful_splits(nest.token_rows.div_ceil(shape.row_grain), chip.pcus() / pn) {
                    let last_passes = if last_rows == 0 { 0 } else { shape.passes(last_rows, pm) };
                    let passes = full_tokens * shape.passes(nest.token_rows, pm) + last_passes;
                    offer(Candidate {
                        pcus: pm * pn,
                        cycles: work.cycles.saturating_mul(passes).saturating_mul(stretch),
                        stretch,
                        mapping: Mapping::Gemm(GemmMapping { pm, ..mapping }),
                        extents,
                    });
                }
            }
        }
    }
}
