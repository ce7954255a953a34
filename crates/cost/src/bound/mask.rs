//! Cycles that no division of a sparse weight's columns into output tiles beats.
//!
//! A PCU has an output tile of at most `grain` neighbouring columns. The least sum of cycles over all divisions of the columns
//! into such tiles is found exactly, by dynamic programming over the places to cut (Bellman 1957). It holds for every tiling of
//! the axis, packed or aligned, and for lockstep groups of any width: a group works on the union of what its PCUs need, and a
//! PCU's part of a group's tile is a tile of this division.

use crate::cost::{GatherPorts, SystolicShape, gather_cycles};
use rdusim_graph::sparsity::BlockMask;
use rdusim_program::MOST_GATHERED_COLUMNS;

/// Pairs of blocks and their words that are counted, at most: about 50 ms.
const MOST_WORDS: u64 = 60_000_000;
/// K blocks under all pairs of block columns for which gathering is counted in order, at most.
const MOST_GATHERED: u64 = 8_000_000;

/// Least cycles of one row pass over a sparse weight.
#[derive(Debug, Clone)]
pub(crate) struct MaskFloor {
    /// Of the first so many columns; the last entry is the whole.
    upto: Vec<u64>,
}

impl MaskFloor {
    /// Of a mask in a shape of array; `gather`: the rows of K are gathered. `None` if it is too large to be counted.
    pub(crate) fn new(mask: &BlockMask, shape: &SystolicShape, gather: Option<&GatherPorts>) -> Option<Self> {
        let (grain, block, columns) = (shape.column_grain, mask.block_columns(), mask.columns());
        if gather.is_some() && grain > MOST_GATHERED_COLUMNS {
            return None;
        }
        let span = (grain / block + 1).min(mask.n_blocks());
        let pairs = mask.n_blocks() * (span + 1);
        if pairs * mask.words_per_column() as u64 + columns * (span + 1) > MOST_WORDS {
            return None;
        }
        let costs = pair_costs(mask, shape, gather, span);
        let mut upto = vec![0u64; columns as usize + 1];
        for end in 1..=columns {
            let (last, from) = ((end - 1) / block, end.saturating_sub(grain));
            // The longest tile that begins in a block is the best that does: fewer columns before it take no longer.
            let least = (from / block..=last).map(|first| {
                let start = from.max(first * block);
                upto[start as usize].saturating_add(costs[(first * (span + 1) + (last - first)) as usize])
            });
            upto[end as usize] = least.min().unwrap_or(0);
        }
        Some(Self { upto })
    }

    /// All columns.
    pub(crate) fn whole(&self) -> u64 {
        self.upto.last().copied().unwrap_or(0)
    }

    /// All but the first `columns` columns: what the whole takes beyond them.
    pub(crate) fn beyond(&self, columns: u64) -> u64 {
        let first = self.upto.get(columns as usize).copied().unwrap_or_else(|| self.whole());
        self.whole() - first
    }
}

/// Cycles of an output tile over block columns `first` to `first + more`, at `first * (span + 1) + more`.
fn pair_costs(mask: &BlockMask, shape: &SystolicShape, gather: Option<&GatherPorts>, span: u64) -> Vec<u64> {
    let blocks = mask.n_blocks();
    let counter = mask.counter(0..mask.k_blocks());
    let exact = blocks * (span + 1) * mask.k_blocks() <= MOST_GATHERED;
    let mut costs = vec![u64::MAX; (blocks * (span + 1)) as usize];
    let mut union: Vec<u64> = Vec::new();
    for first in 0..blocks {
        union.clear();
        union.resize(mask.words_per_column(), 0);
        let mut fullest = 0;
        for more in 0..=span.min(blocks - 1 - first) {
            let words = mask.column_words(first + more);
            union.iter_mut().zip(words).for_each(|(sum, word)| *sum |= word);
            fullest = fullest.max(counter.rows(|w| words[w]));
            let rows = counter.rows(|w| union[w]);
            let columns = first * mask.block_columns()..mask.columns().min((first + more + 1) * mask.block_columns());
            let steps = match gather {
                None => rows,
                Some(ports) if exact && columns.end - columns.start <= MOST_GATHERED_COLUMNS => {
                    gather_cycles(ports, mask, &columns, &(0..mask.k_blocks()))
                }
                // No port moves more, and no column takes two rows in a cycle.
                Some(ports) => rows.div_ceil(ports.vectors).max(fullest),
            };
            costs[(first * (span + 1) + more) as usize] = shape.tile_cycles(steps);
        }
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::{Cut, tiles};
    use proptest::prelude::*;
    use rdusim_base::units::Dtype;
    use rdusim_graph::arch;
    use std::path::Path;

    fn shape(rows_on_lanes: bool) -> SystolicShape {
        let chip = arch::load(Path::new("sn40l"), &[]).unwrap();
        SystolicShape::new(&chip, Dtype::Bf16, rows_on_lanes, 0, 0).unwrap()
    }

    #[test]
    fn blocks_that_fit_the_array_cost_what_they_store() {
        // SN40L: 16 lanes, 12 stages. One block in each of two block columns of 16: 16 rows each.
        let mut mask = BlockMask::empty(64, 32, (16, 16));
        mask.keep(0, 0);
        mask.keep(1, 1);
        assert_eq!(MaskFloor::new(&mask, &shape(false), None).unwrap().whole(), 32);
        // On 12 stages 32 columns need three tiles; of these, one that straddles takes both blocks.
        let straddling = MaskFloor::new(&mask, &shape(true), None).unwrap();
        assert_eq!(straddling.whole(), 64);
        // Twelve columns of the first block leave the rest: 4 and 16 columns, in two tiles or three.
        assert_eq!(straddling.beyond(12), 48);
        assert_eq!(straddling.beyond(32), 0);
    }

    proptest! {
        #[test]
        fn no_division_of_the_columns_is_below(
            (n, k) in (1u64..9, 1u64..9), block in (1u64..9, 1u64..20), density in 0.05f64..1.0, seed in 0u64..1000,
            tile in 1u64..40, rows_on_lanes: bool, aligned: bool, gathers: bool,
        ) {
            let (columns, rows) = (n * 17, k * 24);
            let mask = BlockMask::random(rows, columns, block, density, seed);
            let chip = arch::load(Path::new("sn40l"), &[]).unwrap();
            let ports = GatherPorts::new(&chip);
            let shape = shape(rows_on_lanes || gathers);
            let gather = gathers.then_some(&ports);
            let floor = MaskFloor::new(&mask, &shape, gather).unwrap();
            let cut = Cut { width: shape.column_grain, aligned, gather: gathers.then_some(ports), one_in: 1 };
            let mut sum = 0;
            for start in (0..columns).step_by(tile as usize) {
                let range = start..columns.min(start + tile);
                sum += tiles(Some(&mask), range.clone(), 0..rows, &cut).iter().map(|t| shape.cycles(t)).sum::<u64>();
                // What lies behind a column tile takes no less than the floor says is left.
                let behind: u64 = (range.end..columns).step_by(tile as usize)
                    .flat_map(|at| tiles(Some(&mask), at..columns.min(at + tile), 0..rows, &cut))
                    .map(|t| shape.cycles(&t)).sum();
                prop_assert!(floor.beyond(range.end) <= behind);
            }
            prop_assert!(floor.whole() <= sum, "{} {}", floor.whole(), sum);
        }
    }
}
