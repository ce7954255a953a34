//! Work of a GEMM with heads: one small product for every head, side by side in a row of the activations.

use rdusim_base::units::index;
use std::ops::Range;

use rdusim_graph::workload::{CausalAxis, GemmForm};
use rdusim_program::{GemmMapping, HeadsTile, OutputTile, PassWork, SectionGraph, StageId};

use super::array::SystolicShape;
use super::footprint::{StageFootprint, weight_slot_bytes};

/// Work of one row pass over a mean row tile, all heads, in a column tile.
pub fn heads_work(tile: &HeadsTile, shape: &SystolicShape, mapping: &GemmMapping, tile_rows: u64) -> PassWork {
    let form = &tile.form;
    let grain = match form.causal {
        Some(CausalAxis::Columns) => width(shape, mapping),
        _ => 1,
    };
    work_of_extent(tile, shape, mapping, form.mean_causal_extent(tile_rows, grain))
}

/// Work of one row pass over row tile `tile` of a sequence of causal attention: on the keys up to its last row.
pub(super) fn causal_work(form: &GemmForm, shape: &SystolicShape, mapping: &GemmMapping, tile: RowTileOf) -> PassWork {
    work_of_extent(&HeadsTile::whole(*form), shape, mapping, form.causal_extent(tile.number, tile.rows))
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

fn work_of_extent(tile: &HeadsTile, shape: &SystolicShape, mapping: &GemmMapping, extent: u64) -> PassWork {
    let form = &tile.form;
    let (columns, k) = match form.causal {
        // Statistics are steps as those of the depth.
        None => (form.n, tile.depth()),
        Some(CausalAxis::Columns) => (extent, form.k),
        Some(CausalAxis::Depth) => (form.n, extent),
    };
    // Heads that share one of B are lines of its output tiles.
    let tiles = form.b_heads.div_ceil(mapping.streams) * columns.div_ceil(width(shape, mapping));
    PassWork {
        cycles: tiles * shape.tile_cycles(k),
        tiles,
        a_flits: tiles * shape.a_flits(k),
        w_flits: tiles * shape.w_flits(k),
        columns: form.heads * form.n,
        stored: form.b_heads * form.n * form.k,
        zeros: 0,
    }
}

/// Sizes of a stage with heads: a column of PCUs holds the columns of its stream's heads that are dealt to it, and of
/// B those of the heads it shares; of a B that another stage makes, in a slot, those of a row tile of `tile_rows`.
pub fn heads_footprint(
    graph: &SectionGraph<'_>,
    stage: StageId,
    form: &GemmForm,
    shape: &SystolicShape,
    mapping: &GemmMapping,
    tile_rows: u64,
) -> StageFootprint {
    let each = mapping.pn / mapping.streams;
    let width = width(shape, mapping);
    // Every tile of a head is dealt evenly to the stream's columns of PCUs.
    let of_a_head = form.n / width * shape.column_grain + (form.n % width).div_ceil(each);
    let heads = form.heads_of_stream(mapping.streams, 0);
    let heads = heads.end - heads.start;
    let b_heads = heads.div_ceil(form.heads / form.b_heads);
    let (activation_rate, weight_rate) = shape.stream_rates();
    let of_slot = if graph.stages[stage].sequence.is_none() {
        of_a_head * form.k
    } else if graph.workload.operators[graph.stages[stage].main].options.transpose_b {
        // Rows of B are columns of the product: of whole tiles each PCU has as many, and of the short last one.
        let dealt = tile_rows / width * shape.column_grain + (tile_rows % width).min(shape.column_grain);
        (dealt + (form.n % width).div_ceil(each)).min(tile_rows).min(of_a_head) * form.k
    } else {
        of_a_head * tile_rows.min(form.k)
    };
    StageFootprint {
        row_grain: shape.row_grain,
        weight_slot_bytes: weight_slot_bytes(graph, stage, b_heads * of_slot),
        columns_per_pcu: heads * of_a_head,
        activation_rate,
        weight_rate,
        ..StageFootprint::default()
    }
}

/// What of a second operand that another stage makes a column of PCUs holds: runs of its columns, and with how many
/// columns of PCUs it shares their rows.
pub fn made_columns(
    graph: &SectionGraph<'_>,
    stage: StageId,
    shape: &SystolicShape,
    mapping: &GemmMapping,
    slice: u64,
) -> Option<(Vec<Range<u64>>, u64)> {
    let form = graph.form(stage)?;
    let each = mapping.pn / mapping.streams;
    let heads = form.heads_of_stream(mapping.streams, slice / each);
    let shared = form.heads / form.b_heads;
    let b_heads = heads.start / shared..heads.end.div_ceil(shared);
    if graph.workload.operators[graph.stages[stage].main].options.transpose_b {
        let columns = b_heads.start * form.k..b_heads.end * form.k;
        return Some((vec![columns], each));
    }
    let width = width(shape, mapping);
    let tiles =
        (0..form.n).step_by(index(width.max(1))).map(|start| OutputTile { start, columns: width.min(form.n - start) });
    let of_a_head: Vec<Range<u64>> = tiles.map(|tile| tile.columns_of(slice % each, each)).collect();
    let of_head = |head: u64| of_a_head.iter().map(move |run| head * form.n + run.start..head * form.n + run.end);
    Some((b_heads.flat_map(of_head).filter(|run| !run.is_empty()).collect(), 1))
}
