//! Buckets of the dynamic kernel: blocks of a part of the matrix in the memory of the tiles that have that part.
//!
//! A bucket has room for an even pattern and a margin. What a part has beyond the room of its buckets lies in buckets of other
//! parts, and is passed on from tile to tile until it comes to its own: each step moves all buckets by one part.

use super::Blocks;

/// The parts of a matrix over a grid of tiles.
#[derive(Debug, Clone)]
pub(super) struct Parts {
    /// Blocks of each part; rows of parts one after the other.
    pub(super) blocks: Vec<u64>,
    /// Rows with blocks of the part that has most.
    pub(super) most_rows: u64,
}

/// How blocks lie in buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spread {
    /// Steps until the last block has come to its part.
    pub(super) steps: u64,
    /// Groups of blocks of different parts in the bucket that has most.
    pub(super) groups: u64,
    /// Blocks that no bucket has room for.
    pub(super) lost: u64,
}

/// Counts the blocks of `rows` x `columns` parts.
pub(super) fn parts(blocks: &Blocks, rows: u64, columns: u64) -> Parts {
    let (block_rows, block_columns) = blocks.shape();
    let (height, width) = (block_rows.div_ceil(rows).max(1), block_columns.div_ceil(columns).max(1));
    let mut counts = vec![0_u64; (rows * columns) as usize];
    let mut rows_of = vec![0_u64; (rows * columns) as usize];
    for (row, stored) in (0_u64..).zip(&blocks.rows) {
        let first = (row / height * columns) as usize;
        let mut last = usize::MAX;
        for &column in stored {
            let part = first + (u64::from(column) / width) as usize;
            if let (Some(count), Some(rows)) = (counts.get_mut(part), rows_of.get_mut(part)) {
                *count += 1;
                *rows += u64::from(std::mem::replace(&mut last, part) != part);
            }
        }
    }
    let most_rows = rows_of.into_iter().max().unwrap_or(0);
    Parts { blocks: counts, most_rows }
}

/// Puts what does not fit the buckets of a part (`room` blocks) into those of the next parts that have room, in a ring.
pub(super) fn spread(blocks: &[u64], room: u64) -> Spread {
    let count = blocks.len();
    let mut free: Vec<u64> = blocks.iter().map(|stored| room.saturating_sub(*stored)).collect();
    let mut groups = vec![1_u64; count];
    let mut spread = Spread { steps: 0, groups: 1, lost: 0 };
    for (part, &stored) in blocks.iter().enumerate() {
        let mut over = stored.saturating_sub(room);
        for distance in 1..count {
            if over == 0 {
                break;
            }
            // A bucket moves on to the next part: what waits behind comes last.
            let at = (part + count - distance) % count;
            let (Some(room), Some(groups)) = (free.get_mut(at), groups.get_mut(at)) else { break };
            let taken = over.min(*room);
            if taken > 0 {
                *room -= taken;
                *groups += 1;
                over -= taken;
                spread.steps = spread.steps.max(distance as u64);
                spread.groups = spread.groups.max(*groups);
            }
        }
        spread.lost += over;
    }
    spread
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdusim_graph::sparsity::BlockMask;

    #[test]
    fn parts_add_up_to_the_matrix() {
        let blocks = Blocks::of(&BlockMask::random(512, 768, (16, 16), 0.2, 3));
        let parts = parts(&blocks, 5, 3);
        assert_eq!(parts.blocks.iter().sum::<u64>(), blocks.count);
        assert!(parts.most_rows <= 48_u64.div_ceil(5));
    }

    #[test]
    fn what_is_over_waits_in_the_buckets_behind() {
        assert_eq!(spread(&[3, 3, 3], 4), Spread { steps: 0, groups: 1, lost: 0 });
        // Two of the last part wait one step behind, one waits two steps behind.
        assert_eq!(spread(&[3, 2, 7], 4), Spread { steps: 2, groups: 2, lost: 0 });
        assert_eq!(spread(&[4, 4, 6], 4).lost, 2);
    }
}
