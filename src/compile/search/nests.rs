//! The loop nests that are tried: cuts of the axes, row tile sizes, and what may stay on chip.

use crate::arch::Chip;
use crate::compile::params::PARAMS;
use crate::program::{LoopOrder, Nest, SectionGraph, TiledAxis};

/// All cuts that are tried, narrow ones too, axis by axis, widths falling.
pub(crate) fn cuts(chip: &Chip, graph: &SectionGraph<'_>) -> Vec<TiledAxis> {
    let counts: Vec<u64> = PARAMS.nests.few_column_tiles.into_iter().chain(PARAMS.nests.many_column_tiles).collect();
    tiled_axes(chip, graph, &counts).into_iter().flatten().collect()
}

/// Cuts to try: every chunkable axis in about these many column tiles.
pub(crate) fn tiled_axes(chip: &Chip, graph: &SectionGraph<'_>, counts: &[u64]) -> Vec<Option<TiledAxis>> {
    let lanes = graph.widest_lanes(chip);
    let mut list = Vec::new();
    if counts.contains(&1) {
        list.push(None);
    }
    for (index, axis) in graph.axes.iter().enumerate().filter(|(index, _)| graph.may_cut(*index)) {
        let grain = if axis.grain >= lanes { axis.grain } else { axis.grain * lanes.div_ceil(axis.grain) };
        let mut last = axis.extent;
        for &count in counts {
            let width = axis.extent.div_ceil(count).next_multiple_of(grain);
            if width < last {
                list.push(Some(TiledAxis { axis: index, extent: axis.extent, tile: width }));
                last = width;
            }
        }
    }
    list
}

/// Row tile sizes to try: numbers of row grains that divide the rows with little padding; of sequences, divisors.
pub(crate) fn row_tile_sizes(rows: u64, sequences: u64, grains: &[u64]) -> Vec<u64> {
    let rows = rows / sequences;
    let mut sizes: Vec<u64> = Vec::new();
    for &grain in grains {
        let all = rows.div_ceil(grain);
        for m in PARAMS.nests.row_grains_of_a_tile.into_iter().filter(|&m| m < all) {
            // As many row tiles, with the least padding.
            sizes.push(all.div_ceil(all.div_ceil(m)) * grain);
        }
        sizes.push(rows);
    }
    if sequences > 1 {
        sizes.extend((1..=rows.min(1024)).filter(|&size| rows.is_multiple_of(size)));
        sizes.retain(|&size| rows.is_multiple_of(size));
    }
    sizes.retain(|&size| size <= PARAMS.nests.most_tile_rows);
    if sizes.is_empty() {
        sizes.push(rows.min(PARAMS.nests.most_tile_rows));
    }
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Of a nest, what of its inputs and weights may stay on chip.
pub(crate) fn residencies_of(nest: &Nest) -> &'static [(bool, bool)] {
    if nest.order == LoopOrder::ColumnTileOuter && nest.column_tiles() > 1 {
        &[(true, false), (true, true), (false, false)]
    } else {
        &[(true, true)]
    }
}
