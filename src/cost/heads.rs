//! Work of a GEMM with heads: one small product for every head, side by side in a row of the activations.

use crate::program::{GemmMapping, PassWork, SectionGraph, StageId};
use crate::workload::{CausalAxis, GemmForm};

use super::array::SystolicShape;
use super::footprint::{StageFootprint, weight_slot_bytes};

/// Work of one row pass over a mean row tile, all heads.
pub fn heads_work(form: &GemmForm, shape: &SystolicShape, mapping: &GemmMapping, tile_rows: u64) -> PassWork {
    let grain = match form.causal {
        Some(CausalAxis::Columns) => width(shape, mapping),
        _ => 1,
    };
    work_of_extent(form, shape, mapping, form.mean_causal_extent(tile_rows, grain))
}

/// Work of one row pass over row tile `tile` of a sequence of causal attention: on the keys up to its last row.
pub(super) fn causal_work(form: &GemmForm, shape: &SystolicShape, mapping: &GemmMapping, tile: RowTileOf) -> PassWork {
    work_of_extent(form, shape, mapping, form.causal_extent(tile.number, tile.rows))
}

/// A row tile of a sequence, by its number and the rows of a full one.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowTileOf {
    /// Its number in the sequence.
    pub(super) number: u64,
    /// Rows of a full row tile.
    pub(super) rows: u64,
}

/// Columns of an output tile on all PCUs of a stream.
fn width(shape: &SystolicShape, mapping: &GemmMapping) -> u64 {
    shape.column_grain * (mapping.pn / mapping.streams)
}

fn work_of_extent(form: &GemmForm, shape: &SystolicShape, mapping: &GemmMapping, extent: u64) -> PassWork {
    let (columns, k) = match form.causal {
        None => (form.n, form.k),
        Some(CausalAxis::Columns) => (extent, form.k),
        Some(CausalAxis::Depth) => (form.n, extent),
    };
    let heads = form.heads_of_stream(mapping.streams, 0);
    let tiles = (heads.end - heads.start) * columns.div_ceil(width(shape, mapping));
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
pub fn heads_footprint(
    graph: &SectionGraph<'_>,
    stage: StageId,
    form: &GemmForm,
    shape: &SystolicShape,
    mapping: &GemmMapping,
) -> StageFootprint {
    let each = mapping.pn / mapping.streams;
    let width = width(shape, mapping);
    // Every tile of a head is dealt evenly to the stream's columns of PCUs.
    let of_a_head = form.n / width * shape.column_grain + (form.n % width).div_ceil(each);
    let heads = form.heads_of_stream(mapping.streams, 0);
    let heads = heads.end - heads.start;
    let b_heads = heads.div_ceil(form.heads / form.b_heads);
    let (activation_rate, weight_rate) = shape.stream_rates();
    StageFootprint {
        row_grain: shape.row_grain,
        weight_slot_bytes: weight_slot_bytes(graph, stage, b_heads * of_a_head * form.k),
        columns_per_pcu: heads * of_a_head,
        activation_rate,
        weight_rate,
        ..StageFootprint::default()
    }
}
