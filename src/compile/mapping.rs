//! How a stage lies on its units, and the work that follows from it.
//!
//! A GEMM stage has `pm x pn x pk` PCUs: `pm` row slices of a token by `pn` columns of PCUs by `pk` slices of K. `share`
//! neighbouring columns take one multicast of the activations and run in lockstep (a *bundle*); with a sparse weight they
//! skip only what all of them skip. With `share = 1` every column of PCUs reads its own copy and skips alone.
//!
//! The slices of K are a chain: each starts its tiles from the fp32 partial sums of the slice before, which come through
//! PMUs, and the last one has the results.

use std::collections::BinaryHeap;
use std::ops::Range;

use super::gather::{self, GatherPorts};
use crate::arch::Chip;
use crate::sparsity::BlockMask;
use crate::units::Dtype;

/// How a GEMM stage works through a sparse weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Style {
    /// A systolic array: it skips the K rows that nothing under a tile stores. Dense weights too.
    #[default]
    Skip,
    /// A SIMD pipeline: each stored row meets a gathered vector of activations ([`gather`]).
    Gather,
}

/// Mapping of a GEMM stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GemmMapping {
    /// Token rows lie along the lanes (else weight columns do).
    pub rows_on_lanes: bool,
    /// Row slices of a token.
    pub pm: u64,
    /// Columns of PCUs.
    pub pn: u64,
    /// Slices of K, each on `pm x pn` PCUs.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub pk: u64,
    /// Columns of PCUs on one stream of activations; divides `pn`.
    pub share: u64,
    /// Streams of activations to a bundle, each to as many of its columns: heads side by side. One but for a GEMM with
    /// heads; divides `pn`.
    pub streams: u64,
    /// Column tiles of a bundle begin and end at block borders of the mask, or lie within a block (else they are packed).
    pub aligned: bool,
    /// How it works through a sparse weight.
    #[serde(default)]
    pub style: Style,
}

fn one() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "asked for so by serde")]
fn is_one(pk: &u64) -> bool {
    *pk == 1
}

impl GemmMapping {
    /// Bundles of one slice of K.
    pub fn groups(&self) -> u64 {
        self.pn / self.share
    }

    /// The slice of K that a bundle works on: bundles lie slice by slice.
    pub fn k_slice(&self, bundle: u64) -> u64 {
        if self.pk == 1 { 0 } else { bundle / self.groups() }
    }

    /// Whether a bundle hands its partial sums on to the next slice of K.
    pub fn hands_on(&self, bundle: u64) -> bool {
        self.k_slice(bundle) + 1 < self.pk
    }

    /// Parts of the columns of a row slice of its operand, side by side: streams of heads, or slices of K.
    pub fn parts(&self) -> u64 {
        self.streams * self.pk
    }
}

/// Mapping of a SIMD stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimdMapping {
    /// Row slices of a token.
    pub pm: u64,
    /// Column slices of a token.
    pub pn: u64,
    /// PCUs chained because the function is longer than one pipeline.
    pub chain: u64,
    /// Times each input element is read (row-wise functions read a row more than once).
    pub passes: u64,
}

/// Mapping of any stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mapping {
    /// Systolic GEMM.
    Gemm(GemmMapping),
    /// SIMD function.
    Simd(SimdMapping),
}

impl Mapping {
    /// PCUs the stage takes.
    pub fn pcus(&self) -> u64 {
        match self {
            Self::Gemm(m) => m.pm.saturating_mul(m.pn).saturating_mul(m.pk),
            Self::Simd(m) => m.pm * m.pn * m.chain,
        }
    }

    /// Lockstep groups of PCUs.
    pub fn bundles(&self) -> u64 {
        match self {
            Self::Gemm(m) => m.groups() * m.pk,
            Self::Simd(_) => 1,
        }
    }

    /// Slices of K.
    pub fn pk(&self) -> u64 {
        match self {
            Self::Gemm(m) => m.pk,
            Self::Simd(_) => 1,
        }
    }

    /// The slice of K that a bundle works on.
    pub fn k_slice(&self, bundle: u64) -> u64 {
        if let Self::Gemm(m) = self { m.k_slice(bundle) } else { 0 }
    }

    /// Whether a bundle hands its partial sums on to the next slice of K.
    pub fn hands_on(&self, bundle: u64) -> bool {
        matches!(self, Self::Gemm(m) if m.hands_on(bundle))
    }

    /// Streams of activations to a bundle.
    pub fn streams(&self) -> u64 {
        if let Self::Gemm(m) = self { m.streams } else { 1 }
    }

    /// Parts of the columns of a row slice of its operand, side by side.
    pub fn parts(&self) -> u64 {
        match self {
            Self::Gemm(m) => m.parts(),
            Self::Simd(_) => 1,
        }
    }

    /// Row slices of a token.
    pub fn pm(&self) -> u64 {
        match self {
            Self::Gemm(m) => m.pm,
            Self::Simd(m) => m.pm,
        }
    }
}

/// The part of the chip that GEMM work depends on, for one data type and orientation.
#[derive(Debug, Clone, Copy)]
pub struct SystolicShape {
    /// Token rows of an output tile.
    pub row_grain: u64,
    /// Weight columns of an output tile.
    pub column_grain: u64,
    stages: u64,
    accumulator_sets: u64,
    /// Least cycles of a tile: its drain through the tail, and its partial sums through a port.
    least_cycles: u64,
    /// k-steps of the activations one flit carries, or flits a k-step takes.
    a_packing: Packing,
    w_packing: Packing,
    gather: Option<Gather>,
    /// Flits of one tile of fp32 partial sums.
    pub partial_flits: u64,
    /// Cycles from a tile's last operand to the last cell.
    pub skew_cycles: u64,
    /// Cycles that the results of a tile take through the tail.
    tail_cycles: u64,
}

/// What gathered operands take.
#[derive(Debug, Clone, Copy)]
struct Gather {
    vectors: u64,
    /// Flits of a vector of activations: it comes alone, from wherever it lies.
    flits_per_vector: u64,
    /// Bytes of a stored weight and of the stage it is for.
    bytes_per_weight: u64,
    flit_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Packing {
    steps_per_flit: u64,
    flits_per_step: u64,
}

impl Packing {
    /// A k-step of an operand is `width_bytes`; packets hold whole k-steps (DESIGN: floor(64 / 12) = 5 of them).
    fn new(width_bytes: u64, flit_bytes: u64) -> Self {
        Self { steps_per_flit: (flit_bytes / width_bytes).max(1), flits_per_step: width_bytes.div_ceil(flit_bytes) }
    }

    fn flits(self, k_steps: u64) -> u64 {
        k_steps.div_ceil(self.steps_per_flit) * self.flits_per_step
    }
}

impl SystolicShape {
    /// Shape for operands of `dtype`; `tail_functions` elementwise functions run in the tail, and with `partials`
    /// each tile starts from and leaves fp32 partial sums. `None` if the chip lacks the data type.
    pub fn new(chip: &Chip, dtype: Dtype, rows_on_lanes: bool, tail_functions: u64, partials: bool) -> Option<Self> {
        let lanes = *chip.pcu.lanes.get(&dtype)?;
        let stages = chip.pcu.stages;
        let (row_grain, column_grain) = if rows_on_lanes { (lanes, stages) } else { (stages, lanes) };
        let flit = chip.network.flit_bytes;
        // The drain passes the tail once, `lanes` results a stage; further functions take further passes.
        let tail_cycles = stages * lanes.div_ceil(chip.pcu.tail_elements) * tail_functions;
        let partial_flits = (row_grain * column_grain * 4).div_ceil(flit);
        let least_cycles = stages.max(tail_cycles).max(if partials { partial_flits } else { 0 });
        Some(Self {
            row_grain,
            column_grain,
            stages,
            accumulator_sets: chip.pcu.accumulator_sets,
            least_cycles,
            a_packing: Packing::new(row_grain * dtype.bytes(), flit),
            w_packing: Packing::new(column_grain * dtype.bytes(), flit),
            gather: None,
            partial_flits,
            skew_cycles: lanes + stages - 2,
            tail_cycles,
        })
    }

    /// The same for a style of working through a sparse weight.
    #[must_use]
    pub fn in_style(mut self, chip: &Chip, dtype: Dtype, style: Style) -> Self {
        let flit_bytes = chip.network.flit_bytes;
        self.gather = (style == Style::Gather).then(|| Gather {
            vectors: GatherPorts::new(chip).vectors,
            flits_per_vector: (self.row_grain * dtype.bytes()).div_ceil(flit_bytes),
            bytes_per_weight: dtype.bytes() + if chip.pcu.stages <= 256 { 1 } else { 2 },
            flit_bytes,
        });
        self
    }

    /// Cycles a PCU is occupied by a tile.
    pub fn cycles(&self, tile: &Tile) -> u64 {
        self.tile_cycles(tile.steps)
    }

    /// Flits of the activations of a tile.
    pub fn activations(&self, tile: &Tile) -> u64 {
        self.gather.map_or_else(|| self.a_flits(tile.steps), |gather| tile.k * gather.flits_per_vector)
    }

    /// Flits of the weights of one PCU's part of a tile that `share` PCUs have together.
    pub fn weights(&self, tile: &Tile, share: u64) -> u64 {
        self.gather.map_or_else(
            || self.w_flits(tile.steps),
            |gather| (tile.stored.div_ceil(share) * gather.bytes_per_weight).div_ceil(gather.flit_bytes),
        )
    }

    /// Cycles a PCU is occupied by one output tile over `k` steps, back to back with others (DESIGN §3).
    pub fn tile_cycles(&self, k: u64) -> u64 {
        if self.accumulator_sets >= 2 { k.max(self.least_cycles) } else { k + self.least_cycles }
    }

    /// Cycles of a tile in which its results drain and it takes no operand: with one set of accumulators.
    pub fn idle_cycles(&self) -> u64 {
        if self.accumulator_sets >= 2 { 0 } else { self.least_cycles }
    }

    /// Cycles that a tile's vectors leave the array in: results, or else partial sums.
    pub fn drain_cycles(&self, results: bool) -> u64 {
        self.stages.max(if results { self.tail_cycles } else { self.partial_flits })
    }

    /// Row tiles one PCU does of a token of `rows` cut in `pm` slices.
    pub fn passes(&self, rows: u64, pm: u64) -> u64 {
        rows.div_ceil(self.row_grain).div_ceil(pm)
    }

    /// Flits of the activations of a tile over `k` steps.
    pub fn a_flits(&self, k: u64) -> u64 {
        self.a_packing.flits(k)
    }

    /// Flits a cycle of one stream of activations and one of weights while tiles run back to back.
    pub fn stream_rates(&self) -> (f64, f64) {
        let rate = |p: Packing| p.flits_per_step as f64 / p.steps_per_flit as f64;
        if let Some(gather) = self.gather {
            let weights = (self.stages * gather.bytes_per_weight).div_ceil(gather.flit_bytes);
            return ((gather.vectors * gather.flits_per_vector) as f64, weights as f64);
        }
        (rate(self.a_packing), rate(self.w_packing))
    }

    /// Flits of the weights of a tile over `k` steps.
    pub fn w_flits(&self, k: u64) -> u64 {
        self.w_packing.flits(k)
    }
}

/// One column tile of a weight, as wide as a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// First weight column.
    pub start: u64,
    /// Columns in it.
    pub columns: u64,
    /// k-steps executed: rows of the union of the blocks under it.
    pub k: u64,
    /// Cycles of its operands: one a k-step, or what gathering them takes; of a gradient that is sampled ([`sample`]) the
    /// mean over row passes.
    pub steps: u64,
    /// Weight elements stored under it.
    pub stored: u64,
}

impl Tile {
    /// The tile's columns that PCU column `q` of `share` computes: they are dealt evenly.
    pub fn columns_of(&self, q: u64, share: u64) -> Range<u64> {
        self.start + self.columns * q / share..self.start + self.columns * (q + 1) / share
    }
}

/// How the columns of a weight are cut into tiles.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// Columns of a tile at most.
    pub width: u64,
    /// Tiles begin and end at block borders, or lie within a block.
    pub aligned: bool,
    /// The ports that K rows are gathered through; `None` to skip.
    pub gather: Option<GatherPorts>,
    /// Tiles of which only one is looked at, for an estimate; the others are taken to be like it.
    pub looked_at_of: usize,
}

/// Tiles of columns `columns` over K rows `k`.
pub fn tiles(mask: Option<&BlockMask>, columns: Range<u64>, k: Range<u64>, cut: &Cut) -> Vec<Tile> {
    let Cut { width, aligned, .. } = *cut;
    let most = (columns.end - columns.start) / width.max(1);
    let mut tiles: Vec<Tile> = Vec::with_capacity(most as usize + 1);
    let mut at = columns.start;
    let Some(mask) = mask else {
        let k = k.end - k.start;
        while at < columns.end {
            let end = columns.end.min(at + width);
            tiles.push(Tile { start: at, columns: end - at, k, steps: k, stored: (end - at) * k });
            at = end;
        }
        return tiles;
    };
    let block = mask.block_columns();
    let whole = (width / block).max(1) * block;
    let k_blocks = k.start / mask.block_rows()..k.end.div_ceil(mask.block_rows());
    // Only the words of this K range are looked at.
    let counter = mask.counter(k_blocks.clone());
    let words = |n: u64| &mask.column_words(n)[counter.words.clone()];
    let rows_of = |n: u64| {
        let words = words(n);
        counter.rows(|w| words[w])
    };
    let mut union = Vec::new();
    // The block column at hand and rows stored in it: the next tile often begins in the same.
    let mut n = at / block;
    let mut rows = rows_of(n.min(mask.n_blocks() - 1));
    while at < columns.end {
        if at == (n + 1) * block {
            n += 1;
            rows = rows_of(n);
        }
        let mut end = columns.end.min(at + width);
        if aligned {
            end = end.min(n * block + whole);
        }
        if cut.looked_at_of > 1
            && !tiles.len().is_multiple_of(cut.looked_at_of)
            && let Some(&like) = tiles.last().filter(|tile| tile.columns == end - at)
        {
            tiles.push(Tile { start: at, ..like });
            if end < columns.end && end >= (n + 1) * block {
                n = end / block;
                rows = rows_of(n);
            }
            at = end;
            continue;
        }
        let mut stored = rows * (end.min((n + 1) * block) - at);
        let mut k = rows;
        if end > (n + 1) * block {
            union.clear();
            union.extend_from_slice(words(n));
            while end > (n + 1) * block {
                n += 1;
                rows = rows_of(n);
                stored += rows * (end.min((n + 1) * block) - n * block);
                union.iter_mut().zip(words(n)).for_each(|(sum, word)| *sum |= word);
            }
            k = counter.rows(|w| union[w]);
        }
        let steps = cut.gather.as_ref().map_or(k, |ports| gather::cycles(ports, mask, &(at..end), &k_blocks));
        tiles.push(Tile { start: at, columns: end - at, k, steps, stored });
        at = end;
    }
    tiles
}

/// Of the tiles of the gradient of a sparse weight, only those row passes are executed under which `mask` stores anything:
/// `rows` rows a pass, of all row slices in lockstep, taken as neighbours.
pub fn sample(tiles: &mut [Tile], mask: &BlockMask, rows: u64) {
    let groups = mask.rows().div_ceil(rows);
    // First and last pass of each block row.
    let passes_of: Vec<(u64, u64)> = (0..mask.rows().div_ceil(mask.block_rows()))
        .map(|block| {
            let start = block * mask.block_rows();
            (start / rows, ((start + mask.block_rows()).min(mask.rows()) - 1) / rows)
        })
        .collect();
    let mut stored = Vec::new();
    for tile in tiles.iter_mut().filter(|tile| tile.columns > 0) {
        let last = (tile.start + tile.columns - 1).min(mask.columns() - 1);
        stored.clear();
        for n in tile.start / mask.block_columns()..=last / mask.block_columns() {
            let words = mask.column_words(n);
            stored.resize(words.len(), 0);
            stored.iter_mut().zip(words).for_each(|(union, &word)| *union |= word);
        }
        let (mut passes, mut next) = (0, 0);
        for (word, &bits) in stored.iter().enumerate() {
            let mut left: u64 = bits;
            while left != 0 {
                let (first, last) = passes_of[word * 64 + left.trailing_zeros() as usize];
                // Blocks come in order, and so do their passes.
                passes += (last + 1).saturating_sub(first.max(next));
                next = next.max(last + 1);
                left &= left - 1;
            }
        }
        tile.steps = (u128::from(tile.k) * u128::from(passes)).div_ceil(u128::from(groups)) as u64;
    }
}

/// Slice `slice` of `pk` of a range of K rows, cut between blocks of `grain` of them.
pub fn k_slice(k: &Range<u64>, slice: u64, pk: u64, grain: u64) -> Range<u64> {
    let length = k.end - k.start;
    let at = |slice: u64| k.start + (length.div_ceil(grain) * slice / pk * grain).min(length);
    at(slice)..at(slice + 1)
}

/// The tiles of a weight chunk by chunk: `chunks[c]` lists the tiles that exist in chunk `c`.
#[derive(Debug, Clone)]
pub struct TileTable {
    /// Tiles of each chunk.
    pub chunks: Vec<Vec<Tile>>,
    /// Whether tile `i` is the same columns in every chunk (the K axis is cut, not the columns).
    pub same_columns: bool,
}

/// Which bundle does which tiles: `bundles[chunk][bundle]` lists tile indices.
pub type Assignment = Vec<Vec<Vec<u32>>>;

/// Spreads tiles over `bundles` so that the busiest bundle has as little as possible: longest first, each to the
/// bundle where it adds least to the sum of squared loads (over chunks, when the same bundle keeps a column in all).
pub fn assign(table: &TileTable, bundles: u64, cycles: impl Fn(&Tile) -> u64) -> Assignment {
    let bundles = bundles as usize;
    if bundles == 1 {
        return table.chunks.iter().map(|tiles| vec![(0..tiles.len() as u32).collect()]).collect();
    }
    if table.same_columns && table.chunks.len() > 1 {
        return assign_over_chunks(table, bundles, cycles);
    }
    table
        .chunks
        .iter()
        .map(|tiles| {
            let costs: Vec<u64> = tiles.iter().map(&cycles).collect();
            let mut heap: BinaryHeap<std::cmp::Reverse<(u64, usize)>> =
                (0..bundles).map(|b| std::cmp::Reverse((0, b))).collect();
            let mut lists = vec![Vec::new(); bundles];
            for tile in longest_first(&costs) {
                if let Some(std::cmp::Reverse((load, b))) = heap.pop() {
                    lists[b].push(tile);
                    heap.push(std::cmp::Reverse((load + costs[tile as usize], b)));
                }
            }
            lists
        })
        .collect()
}

fn longest_first(costs: &[u64]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..costs.len() as u32).collect();
    order.sort_by_key(|&t| (std::cmp::Reverse(costs[t as usize]), t));
    order
}

fn assign_over_chunks(table: &TileTable, bundles: usize, cycles: impl Fn(&Tile) -> u64) -> Assignment {
    let chunks = table.chunks.len();
    let count = table.chunks[0].len();
    let cost = |t: usize, c: usize| cycles(&table.chunks[c][t]);
    let totals: Vec<u64> = (0..count).map(|t| (0..chunks).map(|c| cost(t, c)).sum()).collect();
    let mut loads = vec![0u64; bundles * chunks];
    let mut sums = vec![0u64; bundles];
    let mut lists = vec![Vec::new(); bundles];
    let most = count.div_ceil(bundles);
    for tile in longest_first(&totals) {
        let t = tile as usize;
        let costs: Vec<u64> = (0..chunks).map(|c| cost(t, c)).collect();
        let best = (0..bundles)
            .filter(|&b| lists[b].len() < most + 1)
            .min_by_key(|&b| {
                let dot: u128 = (0..chunks).map(|c| u128::from(loads[b * chunks + c]) * u128::from(costs[c])).sum();
                (dot, sums[b], b)
            })
            .unwrap_or(0);
        for c in 0..chunks {
            loads[best * chunks + c] += costs[c];
        }
        sums[best] += totals[t];
        lists[best].push(tile);
    }
    vec![lists; chunks]
}

/// Work of one bundle in one chunk for one row pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PassWork {
    /// Cycles.
    pub cycles: u64,
    /// Column tiles.
    pub tiles: u64,
    /// Flits of one row slice's activation stream.
    pub a_flits: u64,
    /// Flits of one PCU column's weight stream.
    pub w_flits: u64,
    /// Weight columns covered.
    pub columns: u64,
    /// Stored weight elements covered.
    pub stored: u64,
}

/// Work of each bundle in each chunk: `[chunk][bundle]`.
pub fn pass_work(shape: &SystolicShape, table: &TileTable, assignment: &Assignment, share: u64) -> Vec<Vec<PassWork>> {
    table
        .chunks
        .iter()
        .zip(assignment)
        .map(|(tiles, lists)| {
            lists
                .iter()
                .map(|list| {
                    let mut work = PassWork::default();
                    for tile in list.iter().map(|&t| &tiles[t as usize]) {
                        work.cycles += shape.cycles(tile);
                        work.tiles += 1;
                        work.a_flits += shape.activations(tile);
                        work.w_flits += shape.weights(tile, share);
                        work.columns += tile.columns;
                        work.stored += tile.stored;
                    }
                    work
                })
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(width: u64, aligned: bool) -> Cut {
        Cut { width, aligned, gather: None, looked_at_of: 1 }
    }

    #[test]
    fn straddling_tiles_cost_what_the_design_says() {
        // Block 16 on 12 columns: packed tiles run 1.44x the stored work at density 1/8 (DESIGN §3).
        let mask = BlockMask::random(5120, 4800, (16, 16), 0.125, 3);
        let work: u64 = tiles(Some(&mask), 0..4800, 0..5120, &cut(12, false)).iter().map(|t| t.k * 12).sum();
        let ratio = work as f64 / mask.stored_elements() as f64;
        assert!((ratio - 1.4375).abs() < 0.02, "{ratio}");
        let aligned: u64 = tiles(Some(&mask), 0..4800, 0..5120, &cut(12, true)).iter().map(|t| t.k * 12).sum();
        assert!((aligned as f64 / mask.stored_elements() as f64 - 1.5).abs() < 1e-9);
    }

    #[test]
    fn union_over_shared_columns() {
        // 1 - (1 - 1/8)^4 = 0.414, and 0.882 for 16 columns (DESIGN §3).
        let mask = BlockMask::random(5120, 5120, (16, 16), 0.125, 3);
        for (columns, expected) in [(4, 0.414), (16, 0.882)] {
            let list = tiles(Some(&mask), 0..5120, 0..5120, &cut(16 * columns, false));
            let k: u64 = list.iter().map(|t| t.k).sum();
            let density = k as f64 / (list.len() as f64 * 5120.0);
            assert!((density - expected).abs() < 0.01, "{density}");
        }
    }

    #[test]
    fn a_sampled_gradient_executes_what_it_stores() {
        // One block of 16 x 16 in four by four: a column tile within it, one pass of four.
        let mut mask = BlockMask::empty(64, 64, (16, 16));
        mask.keep(2, 1);
        let steps = |width, rows| {
            let mut list = tiles(None, 0..64, 0..100, &cut(width, false));
            sample(&mut list, &mask, rows);
            list.iter().map(|t| (t.k, t.steps)).collect::<Vec<_>>()
        };
        assert_eq!(steps(16, 16), [(100, 0), (100, 25), (100, 0), (100, 0)]);
        // Wider or higher tiles do more than is stored.
        assert_eq!(steps(32, 16), [(100, 25), (100, 0)]);
        assert_eq!(steps(32, 64), [(100, 100), (100, 0)]);
        assert_eq!(steps(12, 24)[1], (100, 34));
    }

    #[test]
    fn tiles_keep_every_stored_element() {
        let mask = BlockMask::random(300, 200, (16, 8), 0.3, 9);
        for (width, aligned) in [(6, true), (6, false), (32, false)] {
            let stored: u64 = tiles(Some(&mask), 0..200, 0..300, &cut(width, aligned)).iter().map(|t| t.stored).sum();
            assert_eq!(stored, mask.stored_elements());
        }
    }

    #[test]
    fn assignment_is_balanced_and_complete() {
        let mask = BlockMask::random(20480, 5120, (16, 16), 0.125, 3);
        let chunks: Vec<_> =
            (0..8).map(|c| tiles(Some(&mask), 0..5120, c * 2560..(c + 1) * 2560, &cut(16, false))).collect();
        let table = TileTable { chunks, same_columns: true };
        let assignment = assign(&table, 27, |t| t.k);
        let mut seen: Vec<u32> = assignment[0].iter().flatten().copied().collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..320).collect::<Vec<_>>());
        let loads = |c: usize| -> Vec<u64> {
            assignment[c].iter().map(|l| l.iter().map(|&t| table.chunks[c][t as usize].k).sum()).collect()
        };
        let worst: u64 = (0..8).map(|c| loads(c).into_iter().max().unwrap()).sum();
        let mean: f64 = (0..8).map(|c| loads(c).into_iter().sum::<u64>() as f64 / 27.0).sum();
        assert!((worst as f64) < 1.12 * mean, "imbalance {}", worst as f64 / mean);
    }
}
