//! Breakpoints of tile sizes: the sizes at which a number of tiles changes. A nest between two of them is no other nest.

use crate::compile::mapping::allocate::useful_splits;
use rdusim_graph::arch::Chip;
use rdusim_program::{LoopOrder, Nest, SectionGraph};

/// Widths of column tiles of an axis that are cut, falling: of every number of column tiles the least even width, in whole grains of
/// masks and lanes.
pub(super) fn column_tile_widths(chip: &Chip, graph: &SectionGraph<'_>, axis: usize) -> Vec<u64> {
    let lanes = graph.widest_lanes(chip);
    let of = &graph.axes[axis];
    let grain = if of.grain >= lanes { of.grain } else { of.grain * lanes.div_ceil(of.grain) };
    let grains = of.extent.div_ceil(grain);
    useful_splits(grains, grains).into_iter().map(|width| width * grain).filter(|&width| width < of.extent).collect()
}

/// Sizes of row tiles, rising: of every number of row tiles the least even size, in whole row grains of the arrays; of sequences,
/// their divisors.
pub(super) fn row_tile_sizes(rows: u64, sequences: u64, grains: &[u64]) -> Vec<u64> {
    let rows = rows / sequences.max(1);
    let mut sizes: Vec<u64> = if sequences > 1 {
        let small = (1..).take_while(|size| size * size <= rows).filter(|&size| rows.is_multiple_of(size));
        small.flat_map(|size| [size, rows / size]).collect()
    } else {
        let of_grain = |&grain: &u64| {
            let grains = rows.div_ceil(grain);
            useful_splits(grains, grains).into_iter().map(move |size| (size * grain).min(rows))
        };
        grains.iter().flat_map(of_grain).chain([rows]).collect()
    };
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Of a nest, what of its inputs and weights may stay on chip.
pub(super) fn residencies_of(nest: &Nest) -> &'static [(bool, bool)] {
    if nest.has_panels() {
        // Inputs pass in every panel; with all weights on chip, no panel would be needed.
        &[(true, false)]
    } else if nest.order == LoopOrder::ColumnTileOuter && nest.column_tiles() > 1 {
        &[(true, false), (true, true), (false, false)]
    } else {
        &[(true, true)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Of every number of row tiles that whole grains can make, the sizes hold the least: no list leaves one out.
        #[test]
        fn every_number_of_row_tiles_is_there(rows in 1u64..3_000, grain in 1u64..40) {
            let sizes = row_tile_sizes(rows, 1, &[grain]);
            prop_assert!(sizes.is_sorted());
            for size in (1..=rows.div_ceil(grain)).map(|grains| (grains * grain).min(rows)) {
                let count = rows.div_ceil(size);
                let same = sizes.iter().find(|&&other| rows.div_ceil(other) == count);
                prop_assert!(same.is_some_and(|&same| same <= size), "{rows} rows, {count} tiles");
            }
        }

        #[test]
        fn sequences_are_cut_evenly(rows in 1u64..2_000, sequences in 2u64..5) {
            let sizes = row_tile_sizes(rows * sequences, sequences, &[1, 6, 32]);
            let divisors: Vec<u64> = (1..=rows).filter(|&size| rows.is_multiple_of(size)).collect();
            prop_assert_eq!(sizes, divisors);
        }
    }
}
