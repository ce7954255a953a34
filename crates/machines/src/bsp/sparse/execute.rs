//! Plans of sparse products run on numbers: tiles hold, receive and send pieces, multiply stored blocks, and sum.
//!
//! A tile computes with what it holds and nothing else. Messages have one sender and any number of receivers; they are put into
//! slots one after the other, each into the first in which its sender and its receivers are free, and the slots are then checked.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::super::execute::{Executed, share, small_number};
use super::bucket_plan::{DynamicLayout, dynamic_layout};
use super::static_plan::{Block, StaticLayout, static_layout};
use super::{Blocks, SparseProduct};
use rdusim_base::units::Dtype;
use rdusim_graph::arch::{Bsp, SparseKernel};

/// A message, and what it brings.
#[derive(Debug, Clone)]
struct Message<T> {
    from: usize,
    to: Vec<usize>,
    bytes: u64,
    brings: T,
}

/// Runs the plan of a sparse product on small whole numbers drawn from `seed`; `None` if there is no plan.
pub fn execute_sparse(chip: &Bsp, product: &SparseProduct<'_>, kernel: SparseKernel, seed: u64) -> Option<Executed> {
    let run = Run { blocks: product.blocks, columns: product.columns, bytes: product.dtype.bytes(), seed };
    match kernel {
        SparseKernel::Static => Some(run.on_bands(&static_layout(chip, product)?)),
        SparseKernel::Dynamic => {
            let wide = product.dtype == Dtype::Fp32 || chip.planner.dynamic_wide_partials;
            let sum_bytes = if wide { 4 } else { product.dtype.bytes() };
            Some(run.on_parts(&dynamic_layout(chip, product)?, sum_bytes))
        }
        SparseKernel::Dense => None,
    }
}

struct Run<'a> {
    blocks: &'a Blocks,
    columns: u64,
    bytes: u64,
    seed: u64,
}

/// Sums of a tile: of each row of blocks, row by row over the columns of its split.
type Sums = BTreeMap<u32, Vec<i64>>;

/// An empty record of so many tiles.
fn empty(tiles: usize) -> Executed {
    let zeros = || vec![0; tiles];
    Executed {
        received: zeros(),
        planned: zeros(),
        received_sums: zeros(),
        planned_sums: zeros(),
        conflicts: 0,
        wrong: 0,
    }
}

/// Puts messages into slots, checks the slots, and hands each message over to `deliver`.
fn exchange<T>(messages: &[Message<T>], conflicts: &mut u64, mut deliver: impl FnMut(&Message<T>)) {
    let (mut sends, mut receives) =
        (BTreeMap::<usize, BTreeSet<usize>>::new(), BTreeMap::<usize, BTreeSet<usize>>::new());
    let mut slots: Vec<Vec<&Message<T>>> = Vec::new();
    for message in messages.iter().filter(|message| !message.to.is_empty()) {
        let is_taken = |of: &BTreeMap<usize, BTreeSet<usize>>, tile: usize, slot: usize| {
            of.get(&tile).is_some_and(|slots| slots.contains(&slot))
        };
        let is_free = |slot: usize| {
            !is_taken(&sends, message.from, slot) && message.to.iter().all(|&to| !is_taken(&receives, to, slot))
        };
        let slot = (0..slots.len()).find(|&slot| is_free(slot)).unwrap_or(slots.len());
        sends.entry(message.from).or_default().insert(slot);
        message.to.iter().for_each(|&to| {
            receives.entry(to).or_default().insert(slot);
        });
        if slots.len() <= slot {
            slots.resize_with(slot + 1, Vec::new);
        }
        slots[slot].push(message);
    }
    for slot in &slots {
        let mut senders = BTreeMap::<usize, u64>::new();
        for message in slot {
            message.to.iter().for_each(|&to| *senders.entry(to).or_default() += 1);
            deliver(message);
        }
        *conflicts += senders.values().filter(|&&senders| senders > 1).count() as u64;
    }
}

/// Sums of the same row on several tiles: each tile adds up a share of it.
fn reduce(tiles: &[usize], sums: &[Sums], sum_bytes: u64, executed: &mut Executed) -> Sums {
    let mut result = Sums::new();
    let mut rows: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for &tile in tiles {
        sums[tile].keys().for_each(|&row| rows.entry(row).or_default().push(tile));
    }
    let mut messages = Vec::new();
    for (&row, sources) in &rows {
        let length = sums[sources[0]][&row].len();
        let all = result.entry(row).or_insert_with(|| vec![0; length]);
        for (place, &to) in sources.iter().enumerate() {
            let own = share(&(0..length as u64), sources.len() as u64, place as u64);
            let elements = own.end - own.start;
            executed.planned_sums[to] += elements * (sources.len() as u64 - 1) * sum_bytes;
            for at in own.start as usize..own.end as usize {
                all[at] += sums[to][&row][at];
            }
            let others = sources.iter().filter(|&&from| from != to && elements > 0);
            let message =
                |&from: &usize| Message { from, to: vec![to], bytes: elements * sum_bytes, brings: (row, own.clone()) };
            messages.extend(others.map(message));
        }
    }
    let received = &mut executed.received_sums;
    exchange(&messages, &mut executed.conflicts, |message| {
        received[message.to[0]] += message.bytes;
        let (row, own) = &message.brings;
        if let Some(all) = result.get_mut(row) {
            for at in own.start as usize..own.end as usize {
                all[at] += sums[message.from][row][at];
            }
        }
    });
    result
}

impl Run<'_> {
    fn stored(&self, row: u64, column: u64) -> i64 {
        small_number(self.seed, 0, row, column)
    }
    fn dense(&self, row: u64, column: u64) -> i64 {
        small_number(self.seed, 1, row, column)
    }

    /// Dense columns of a split.
    fn range(&self, split: u64, each: u64) -> Range<u64> {
        (split * each).min(self.columns)..((split + 1) * each).min(self.columns)
    }

    /// Adds the product of a block with the rows of the dense matrix that it meets.
    fn multiply(&self, sums: &mut Sums, (row, column): Block, columns: &Range<u64>) {
        let side = self.blocks.side;
        let width = (columns.end - columns.start) as usize;
        let of_row = sums.entry(row).or_insert_with(|| vec![0; side as usize * width]);
        for i in 0..side {
            for k in 0..side {
                let value = self.stored(u64::from(row) * side + i, u64::from(column) * side + k);
                for (at, n) in columns.clone().enumerate() {
                    of_row[i as usize * width + at] += value * self.dense(u64::from(column) * side + k, n);
                }
            }
        }
    }

    /// Elements of a split's result that differ from the product computed at once.
    fn wrong(&self, result: &Sums, columns: &Range<u64>) -> u64 {
        let mut right = Sums::new();
        for (row, stored) in (0_u32..).zip(&self.blocks.rows) {
            for &column in stored {
                self.multiply(&mut right, (row, column), columns);
            }
        }
        let differs = |(row, sums): (&u32, &Vec<i64>)| {
            let found = result.get(row);
            sums.iter().enumerate().filter(|(at, sum)| found.and_then(|found| found.get(*at)) != Some(sum)).count()
        };
        right.iter().map(differs).sum::<usize>() as u64
    }

    /// The static kernel: bands of columns, a run of a band's blocks on each of its tiles.
    fn on_bands(&self, layout: &StaticLayout) -> Executed {
        let per_split: usize = layout.bands.iter().map(|(_, tiles)| tiles.len()).sum();
        let mut executed = empty(per_split * layout.splits as usize);
        let mut sums = vec![Sums::new(); executed.received.len()];
        for split in 0..layout.splits {
            let columns = self.range(split, layout.columns);
            let piece = self.blocks.side * (columns.end - columns.start) * self.bytes;
            let mut base = split as usize * per_split;
            let first = base;
            for (range, tiles) in &layout.bands {
                let needed: Vec<BTreeSet<u32>> =
                    tiles.iter().map(|blocks| blocks.iter().map(|(_, column)| *column).collect()).collect();
                let home = |column: usize| (column - range.start) * tiles.len() / range.len().max(1);
                let mut held: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); tiles.len()];
                let mut messages = Vec::new();
                for column in range.clone() {
                    let from = home(column);
                    held[from].insert(column as u32);
                    let wants = |at: &usize| *at != from && needed[*at].contains(&(column as u32));
                    let to: Vec<usize> = (0..tiles.len()).filter(wants).collect();
                    messages.push(Message { from, to, bytes: piece, brings: column as u32 });
                }
                for (at, needed) in needed.iter().enumerate() {
                    let absent = needed.iter().filter(|&&column| home(column as usize) != at).count() as u64;
                    executed.planned[base + at] += absent * piece;
                }
                let received = &mut executed.received;
                exchange(&messages, &mut executed.conflicts, |message| {
                    for &to in &message.to {
                        received[base + to] += message.bytes;
                        held[to].insert(message.brings);
                    }
                });
                for (at, blocks) in tiles.iter().enumerate() {
                    for &block in blocks.iter().filter(|(_, column)| held[at].contains(column)) {
                        self.multiply(&mut sums[base + at], block, &columns);
                    }
                }
                base += tiles.len();
            }
            let tiles: Vec<usize> = (first..base).collect();
            let result = reduce(&tiles, &sums, self.bytes, &mut executed);
            executed.wrong += self.wrong(&result, &columns);
        }
        executed
    }

    /// What the buckets of each part hold: its own blocks as far as there is room, what others have left over behind.
    fn buckets(&self, layout: &DynamicLayout) -> (Vec<Vec<Block>>, impl Fn(Block) -> usize + use<>) {
        let (rows, depth, _) = layout.grid;
        let (block_rows, block_columns) = self.blocks.shape();
        let (height, width) = (block_rows.div_ceil(rows).max(1), block_columns.div_ceil(depth).max(1));
        let part_of =
            move |(row, column): (u32, u32)| (u64::from(row) / height * depth + u64::from(column) / width) as usize;
        let count = (rows * depth) as usize;
        let mut own: Vec<Vec<Block>> = vec![Vec::new(); count];
        for (row, columns) in (0_u32..).zip(&self.blocks.rows) {
            for &column in columns {
                own[part_of((row, column))].push((row, column));
            }
        }
        let room = layout.room as usize;
        let mut over: Vec<Vec<Block>> = own.iter_mut().map(|blocks| blocks.split_off(blocks.len().min(room))).collect();
        for (part, over) in over.iter_mut().enumerate() {
            for distance in 1..count {
                let at = (part + count - distance) % count;
                let taken = over.len().min(room - own[at].len().min(room));
                let moved: Vec<_> = over.drain(..taken).collect();
                own[at].extend(moved);
            }
        }
        (own, part_of)
    }

    /// The dynamic kernel: parts of a grid, buckets that are passed on from part to part.
    fn on_parts(&self, layout: &DynamicLayout, sum_bytes: u64) -> Executed {
        let (rows, depth, splits) = layout.grid;
        let (parts, splits) = ((rows * depth) as usize, splits as usize);
        let mut executed = empty(parts * splits);
        let mut sums = vec![Sums::new(); parts * splits];
        let (buckets, part_of) = self.buckets(layout);
        let width = self.blocks.columns.div_ceil(depth).max(1);
        let tile = |part: usize, split: usize| part * splits + split;
        let (mut messages, mut held) = (Vec::new(), vec![BTreeSet::<u32>::new(); parts * splits]);
        for split in 0..splits {
            let columns = self.range(split as u64, layout.columns);
            let piece = self.blocks.side * (columns.end - columns.start) * self.bytes;
            for part in 0..parts {
                let (row, slice) = (part as u64 / depth, part as u64 % depth);
                // The parts of a slice of the dense matrix lie on the tiles that use it.
                let range = (slice * width).min(self.blocks.columns)..((slice + 1) * width).min(self.blocks.columns);
                let own = share(&range, rows, row);
                held[tile(part, split)].extend(own.clone().map(|column| column as u32));
                let others = (0..rows).filter(|&other| other != row);
                let to: Vec<usize> = others.map(|other| tile((other * depth + slice) as usize, split)).collect();
                executed.planned[tile(part, split)] += (range.end - range.start - (own.end - own.start)) * piece;
                messages.extend(own.map(|column| Message {
                    from: tile(part, split),
                    to: to.clone(),
                    bytes: piece,
                    brings: Some(column as u32),
                }));
                let to: Vec<usize> =
                    (0..splits).filter(|&other| other != split).map(|other| tile(part, other)).collect();
                executed.planned[tile(part, split)] += (splits as u64 - 1) * layout.bucket_bytes;
                messages.push(Message { from: tile(part, split), to, bytes: layout.bucket_bytes, brings: None });
            }
        }
        let received = &mut executed.received;
        exchange(&messages, &mut executed.conflicts, |message| {
            for &to in &message.to {
                received[to] += message.bytes;
                held[to].extend(message.brings);
            }
        });
        for step in 0..=layout.steps as usize {
            if step > 0 {
                let all = layout.bucket_bytes * splits as u64;
                let next = |at: usize| (at / splits + 1) % parts * splits + at % splits;
                let passed: Vec<Message<()>> = (0..parts * splits)
                    .map(|from| Message { from, to: vec![next(from)], bytes: all, brings: () })
                    .collect();
                executed.planned.iter_mut().for_each(|bytes| *bytes += all);
                let received = &mut executed.received;
                exchange(&passed, &mut executed.conflicts, |message| received[message.to[0]] += message.bytes);
            }
            for part in 0..parts {
                let content = &buckets[(part + parts - step % parts) % parts];
                for &block in content.iter().filter(|&&block| part_of(block) == part) {
                    for split in 0..splits {
                        let at = tile(part, split);
                        if held[at].contains(&block.1) {
                            self.multiply(&mut sums[at], block, &self.range(split as u64, layout.columns));
                        }
                    }
                }
            }
        }
        for split in 0..splits {
            let tiles: Vec<usize> = (0..parts).map(|part| tile(part, split)).collect();
            let result = reduce(&tiles, &sums, sum_bytes, &mut executed);
            executed.wrong += self.wrong(&result, &self.range(split as u64, layout.columns));
        }
        executed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bsp::tests::chip;
    use rdusim_graph::sparsity::BlockMask;

    fn run(mask: &BlockMask, columns: u64, kernel: SparseKernel, sets: &[&str]) -> Executed {
        let small = chip("bow", &[&["arch.tile.count=24"], sets].concat());
        let blocks = Blocks::of(mask);
        let product = SparseProduct { blocks: &blocks, columns, dtype: Dtype::Fp16, available: 350e3 };
        execute_sparse(&small, &product, kernel, 3).expect("a plan")
    }

    #[test]
    fn both_kernels_give_the_product_and_receive_what_they_plan() {
        for (rows, columns, side, density, n) in
            [(96, 128, 16, 0.3, 40), (64, 96, 8, 0.2, 24), (48, 40, 4, 0.5, 20), (40, 24, 1, 0.2, 12)]
        {
            let mask = BlockMask::random(rows, columns, (side, side), density, 5);
            for kernel in [SparseKernel::Static, SparseKernel::Dynamic] {
                let found = run(&mask, n, kernel, &[]);
                assert!(found.holds(), "{kernel:?}, blocks of {side}: {found:?}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_its_bucket_comes_to_its_part_later() {
        // All blocks in the first columns: most of them wait in the buckets of other parts.
        let mut mask = BlockMask::empty(128, 128, (16, 16));
        for k in 0..2 {
            (0..8).for_each(|n| mask.keep(k, n));
        }
        let found = run(&mask, 16, SparseKernel::Dynamic, &[]);
        assert!(found.holds(), "{found:?}");
    }

    #[test]
    fn two_senders_to_a_tile_take_two_slots() {
        let message = |from| Message { from, to: vec![0], bytes: 1, brings: () };
        let (mut conflicts, mut delivered) = (0, 0);
        exchange(&[message(1), message(2)], &mut conflicts, |_| delivered += 1);
        assert_eq!((conflicts, delivered), (0, 2));
    }
}
