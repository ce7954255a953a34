//! The plan of a dense product run on numbers: every tile holds its home parts, receives pieces, multiplies and sums.
//!
//! A tile computes with what it holds and nothing else; pieces travel in time slots, one sender and any number of receivers
//! each, and no tile has two senders in a slot. What tiles receive is counted as it arrives, and compared with the plan.

use std::collections::BTreeMap;
use std::ops::Range;

use super::amp::{Amp, CHANNELS};
use super::gemm::{Grid, Product};
use rdusim_base::units::Dtype;
use rdusim_graph::arch::Bsp;

/// What the run of a plan has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executed {
    /// Bytes of operands that each tile received, as they arrived.
    pub received: Vec<u64>,
    /// The same as the plan has them.
    pub planned: Vec<u64>,
    /// Bytes of partial sums that each tile received, as they arrived, and as the plan has them.
    pub received_sums: Vec<u64>,
    /// As the plan has them.
    pub planned_sums: Vec<u64>,
    /// Slots in which a tile had two senders.
    pub conflicts: u64,
    /// Elements of the result that differ from the product computed at once.
    pub wrong: u64,
}

impl Executed {
    /// Whether everything is as planned.
    pub fn holds(&self) -> bool {
        self.received == self.planned
            && self.received_sums == self.planned_sums
            && self.conflicts == 0
            && self.wrong == 0
    }
}

/// One tile of the grid: its split of the rows, of the outputs and of the depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Tile {
    rows: u64,
    outputs: u64,
    depth: u64,
}

/// Elements of an operand that a tile holds, by row and column.
type Held = BTreeMap<(u64, u64), i64>;

/// What a tile sends: its number, and elements by row and column.
type Sent = (usize, Vec<((u64, u64), i64)>);

/// Runs the plan of one product, its operands small whole numbers drawn from `seed`; `None` if the tiles lack the data type.
pub fn execute(chip: &Bsp, product: &Product, grid: &Grid, seed: u64) -> Option<Executed> {
    let wide = chip.planner.wide_partials || product.dtype == Dtype::Fp32;
    let amp = Amp::new(chip, product.dtype, wide)?;
    // The stationary operand is the second one of the swapped product.
    let product = if grid.swapped { Product { m: product.n, n: product.m, ..*product } } else { *product };
    Some(
        Run { product, grid: *grid, units: amp.units, sum_bytes: if wide { 4 } else { product.dtype.bytes() }, seed }
            .run(),
    )
}

struct Run {
    product: Product,
    grid: Grid,
    units: u64,
    sum_bytes: u64,
    seed: u64,
}

/// Part `part` of `parts` of so many groups of `group` elements, cut off at `extent`.
fn part(extent: u64, group: u64, parts: u64, part: u64) -> Range<u64> {
    let each = extent.div_ceil(group).div_ceil(parts) * group;
    (part * each).min(extent)..((part + 1) * each).min(extent)
}

/// Share `share` of `shares` of a range, the first ones longer by one.
pub(super) fn share(range: &Range<u64>, shares: u64, share: u64) -> Range<u64> {
    let length = range.end - range.start;
    let begin = |at: u64| range.start + at * (length / shares) + at.min(length % shares);
    begin(share)..begin(share + 1)
}

/// A small number at a place of an operand (splitmix64).
pub(super) fn small_number(seed: u64, operand: u64, row: u64, column: u64) -> i64 {
    let mut mixed = seed ^ (operand << 62) ^ (row << 31) ^ column;
    mixed = mixed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed >> 61).cast_signed() - 3
}

impl Run {
    fn number(&self, operand: u64, row: u64, column: u64) -> i64 {
        small_number(self.seed, operand, row, column)
    }

    fn tiles(&self) -> Vec<Tile> {
        let Grid { rows, outputs, depth, .. } = self.grid;
        let all = (0..rows).flat_map(|rows| (0..outputs).map(move |outputs| (rows, outputs)));
        all.flat_map(|(rows, outputs)| (0..depth).map(move |depth| Tile { rows, outputs, depth })).collect()
    }

    fn rows(&self, tile: Tile) -> Range<u64> {
        part(self.product.m, 1, self.grid.rows, tile.rows)
    }
    fn outputs(&self, tile: Tile) -> Range<u64> {
        part(self.product.n, self.units, self.grid.outputs, tile.outputs)
    }
    fn depth(&self, tile: Tile) -> Range<u64> {
        part(self.product.k, CHANNELS, self.grid.depth, tile.depth)
    }

    fn run(&self) -> Executed {
        let tiles = self.tiles();
        let bytes = self.product.dtype.bytes();
        let (mut a, mut b) = (self.home(&tiles, true), self.home(&tiles, false));
        let mut executed = Executed {
            received: vec![0; tiles.len()],
            planned: tiles.iter().map(|&tile| self.planned(tile) * bytes).collect(),
            received_sums: vec![0; tiles.len()],
            planned_sums: tiles.iter().map(|&tile| self.planned_sums(tile) * self.sum_bytes).collect(),
            conflicts: 0,
            wrong: 0,
        };
        for of_a in [true, false] {
            let held = if of_a { &mut a } else { &mut b };
            self.exchange(&tiles, of_a, held, &mut executed, bytes);
        }
        let sums: Vec<Held> =
            tiles.iter().zip(a.iter().zip(&b)).map(|(&tile, (a, b))| self.multiply(tile, a, b)).collect();
        let result = self.reduce(&tiles, &sums, &mut executed);
        for row in 0..self.product.m {
            for column in 0..self.product.n {
                let sum: i64 = (0..self.product.k).map(|k| self.number(0, row, k) * self.number(1, k, column)).sum();
                executed.wrong += u64::from(result.get(&(row, column)) != Some(&sum));
            }
        }
        executed
    }

    /// The tiles that share a slice of an operand, in the order of their shares, and this tile's place among them.
    fn sharers(&self, tile: Tile, of_a: bool) -> (u64, u64) {
        if of_a { (self.grid.outputs, tile.outputs) } else { (self.grid.rows, tile.rows) }
    }

    /// The rows and columns of an operand's share that lies on a tile: rows of the first one, columns of the second.
    fn home_range(&self, tile: Tile, of_a: bool) -> (Range<u64>, Range<u64>) {
        let (sharers, place) = self.sharers(tile, of_a);
        if of_a {
            (share(&self.rows(tile), sharers, place), self.depth(tile))
        } else {
            (self.depth(tile), share(&self.outputs(tile), sharers, place))
        }
    }

    fn home(&self, tiles: &[Tile], of_a: bool) -> Vec<Held> {
        let operand = u64::from(!of_a);
        let of = |&tile: &Tile| {
            let (rows, columns) = self.home_range(tile, of_a);
            rows.flat_map(|row| columns.clone().map(move |column| (row, column)))
                .map(|(row, column)| ((row, column), self.number(operand, row, column)))
                .collect()
        };
        tiles.iter().map(of).collect()
    }

    /// In slot `s` the sharer at place `s` of every slice sends its share to all others.
    fn exchange(&self, tiles: &[Tile], of_a: bool, held: &mut [Held], executed: &mut Executed, bytes: u64) {
        let (sharers, _) = self.sharers(Tile { rows: 0, outputs: 0, depth: 0 }, of_a);
        let slice = |tile: Tile| (if of_a { tile.rows } else { tile.outputs }, tile.depth);
        for slot in 0..sharers {
            let mut senders: BTreeMap<(u64, u64), Vec<Sent>> = BTreeMap::new();
            for (at, &tile) in tiles.iter().enumerate().filter(|(_, tile)| self.sharers(**tile, of_a).1 == slot) {
                let (rows, columns) = self.home_range(tile, of_a);
                let own = held.get(at).into_iter().flatten();
                let piece = own.filter(|((row, column), _)| rows.contains(row) && columns.contains(column));
                senders.entry(slice(tile)).or_default().push((at, piece.map(|(at, value)| (*at, *value)).collect()));
            }
            for (at, &tile) in tiles.iter().enumerate() {
                let pieces: Vec<_> =
                    senders.get(&slice(tile)).into_iter().flatten().filter(|(from, _)| *from != at).collect();
                executed.conflicts += u64::from(pieces.len() > 1);
                for (_, piece) in pieces {
                    if let (Some(received), Some(held)) = (executed.received.get_mut(at), held.get_mut(at)) {
                        *received += piece.len() as u64 * bytes;
                        held.extend(piece.iter().copied());
                    }
                }
            }
        }
    }

    /// Elements that a tile receives of both operands: its slices less its shares.
    fn planned(&self, tile: Tile) -> u64 {
        let length = |range: &Range<u64>| range.end - range.start;
        let (rows, outputs, depth) = (self.rows(tile), self.outputs(tile), self.depth(tile));
        let home = |of_a: bool| {
            let (rows, columns) = self.home_range(tile, of_a);
            length(&rows) * length(&columns)
        };
        length(&rows) * length(&depth) - home(true) + length(&depth) * length(&outputs) - home(false)
    }

    /// Elements of partial sums that a tile receives: its rows of the result, from all others of its depth.
    fn planned_sums(&self, tile: Tile) -> u64 {
        let own = share(&self.rows(tile), self.grid.depth, tile.depth);
        let outputs = self.outputs(tile);
        let senders =
            (0..self.grid.depth).filter(|&depth| depth != tile.depth && !self.depth(Tile { depth, ..tile }).is_empty());
        (own.end - own.start) * (outputs.end - outputs.start) * senders.count() as u64
    }

    /// Sums of what a tile holds; an element that it lacks counts for nothing, and shows in the result.
    fn multiply(&self, tile: Tile, a: &Held, b: &Held) -> Held {
        let mut sums = Held::new();
        for row in self.rows(tile) {
            for column in self.outputs(tile) {
                let products = self.depth(tile).filter_map(|k| Some(a.get(&(row, k))? * b.get(&(k, column))?));
                sums.insert((row, column), products.sum());
            }
        }
        sums
    }

    /// In slot `s` every tile takes its rows from the tile `s` places on in the depth.
    fn reduce(&self, tiles: &[Tile], sums: &[Held], executed: &mut Executed) -> Held {
        let index: BTreeMap<Tile, usize> = tiles.iter().enumerate().map(|(at, &tile)| (tile, at)).collect();
        let mut result = Held::new();
        for (at, &tile) in tiles.iter().enumerate() {
            let own = share(&self.rows(tile), self.grid.depth, tile.depth);
            for slot in 0..self.grid.depth {
                let from = Tile { depth: (tile.depth + slot) % self.grid.depth, ..tile };
                // A tile beyond the end of the depth has nothing to send.
                if self.depth(from).is_empty() && slot > 0 {
                    continue;
                }
                let Some(theirs) = index.get(&from).and_then(|&from| sums.get(from)) else { continue };
                for (&place, &sum) in theirs.iter().filter(|((row, _), _)| own.contains(row)) {
                    *result.entry(place).or_insert(0) += sum;
                    if slot > 0
                        && let Some(received) = executed.received_sums.get_mut(at)
                    {
                        *received += self.sum_bytes;
                    }
                }
            }
        }
        result
    }
}
