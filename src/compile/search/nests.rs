//! The loop nests that are tried: cuts of the axes and row tile sizes.

use crate::arch::Chip;
use crate::program::{Chunking, SectionGraph};

/// Numbers of chunks to try (1: no cut).
pub const FEW_CHUNKS: [u64; 14] = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48];
/// Numbers of chunks to try when larger ones do not fit.
pub const MANY_CHUNKS: [u64; 10] = [64, 96, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];

/// All cuts that are tried, narrow ones too, axis by axis, widths falling.
pub fn cuts(chip: &Chip, graph: &SectionGraph<'_>) -> Vec<Chunking> {
    let counts: Vec<u64> = FEW_CHUNKS.into_iter().chain(MANY_CHUNKS).collect();
    chunkings(chip, graph, &counts).into_iter().flatten().collect()
}

/// Cuts to try: every chunkable axis in about these many chunks.
pub fn chunkings(chip: &Chip, graph: &SectionGraph<'_>, counts: &[u64]) -> Vec<Option<Chunking>> {
    let lanes = graph.widest_lanes(chip);
    let mut list = Vec::new();
    if counts.contains(&1) {
        list.push(None);
    }
    if graph.sequences() > 1 {
        // Weights of a sequence come once a block, whole.
        return list;
    }
    for (index, axis) in graph.axes.iter().enumerate() {
        let grain = if axis.grain >= lanes { axis.grain } else { axis.grain * lanes.div_ceil(axis.grain) };
        let mut last = axis.extent;
        for &count in counts {
            let width = axis.extent.div_ceil(count).next_multiple_of(grain);
            if width < last {
                list.push(Some(Chunking { axis: index, extent: axis.extent, width }));
                last = width;
            }
        }
    }
    list
}

/// Most rows of a token: beyond, a token is no longer a small part of anything.
const MOST_TOKEN_ROWS: u64 = 16 * 1024;

/// Token sizes to try: numbers of row grains that divide the rows with little padding; of sequences, divisors.
pub fn token_sizes(rows: u64, sequences: u64, grains: &[u64]) -> Vec<u64> {
    const LADDER: [u64; 20] = [1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 13, 16, 19, 22, 27, 32, 43, 64, 128, 256];
    let rows = rows / sequences;
    let mut sizes: Vec<u64> = Vec::new();
    for &grain in grains {
        let all = rows.div_ceil(grain);
        for m in LADDER.into_iter().filter(|&m| m < all) {
            // As many tokens, with the least padding.
            sizes.push(all.div_ceil(all.div_ceil(m)) * grain);
        }
        sizes.push(rows);
    }
    if sequences > 1 {
        sizes.extend((1..=rows.min(1024)).filter(|&size| rows.is_multiple_of(size)));
        sizes.retain(|&size| rows.is_multiple_of(size));
    }
    sizes.retain(|&size| size <= MOST_TOKEN_ROWS);
    if sizes.is_empty() {
        sizes.push(rows.min(MOST_TOKEN_ROWS));
    }
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}
