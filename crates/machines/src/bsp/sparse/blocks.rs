//! The stored blocks of a mask in the block sizes that the kernels have.

use rdusim_graph::sparsity::BlockMask;

/// Side of the blocks that kernels multiply, largest first.
const SIDES: [u64; 4] = [16, 8, 4, 1];

/// A sparse matrix as rows of square blocks. Its rows are the columns of the weight: a result's features.
#[derive(Debug, Clone)]
pub struct Blocks {
    /// Side of a block.
    pub side: u64,
    /// Block columns of each block row, in order.
    pub rows: Vec<Vec<u32>>,
    /// Block columns of the matrix.
    pub columns: u64,
    /// Stored blocks of each block column.
    pub of_column: Vec<u32>,
    /// Stored blocks.
    pub count: u64,
}

impl Blocks {
    /// Of a weight's mask. Larger blocks are cut into those of the kernels, others into elements.
    pub fn of(mask: &BlockMask) -> Self {
        let whole = |side: u64| {
            [mask.block_rows(), mask.block_columns(), mask.rows(), mask.columns()]
                .iter()
                .all(|of| of.is_multiple_of(side))
        };
        let side = SIDES.into_iter().find(|&side| whole(side)).unwrap_or(1);
        let (height, width) = (mask.block_rows() / side, mask.block_columns() / side);
        let (columns, row_count) = (mask.rows() / side, mask.columns() / side);
        let mut blocks = Self {
            side,
            rows: Vec::with_capacity(row_count as usize),
            columns,
            of_column: vec![0; columns as usize],
            count: 0,
        };
        for row in 0..row_count {
            let stored = (0..mask.k_blocks()).filter(|&k| mask.is_kept(k, row / width));
            let row: Vec<u32> =
                stored.flat_map(|k| k * height..((k + 1) * height).min(columns)).map(|column| column as u32).collect();
            blocks.count += row.len() as u64;
            for &column in &row {
                if let Some(stored) = blocks.of_column.get_mut(column as usize) {
                    *stored += 1;
                }
            }
            blocks.rows.push(row);
        }
        blocks
    }

    /// Block rows and block columns.
    pub fn shape(&self) -> (u64, u64) {
        (self.rows.len() as u64, self.columns)
    }

    /// Part of the blocks that are stored.
    pub fn density(&self) -> f64 {
        self.count as f64 / (self.rows.len() as f64 * self.columns as f64).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_blocks_are_cut_into_blocks_of_a_kernel() {
        let mut mask = BlockMask::empty(64, 96, (32, 32));
        mask.keep(1, 2);
        let blocks = Blocks::of(&mask);
        assert_eq!((blocks.side, blocks.shape(), blocks.count), (16, (6, 4), 4));
        assert_eq!(blocks.rows[4], [2, 3]);
        assert_eq!(blocks.of_column, [0, 0, 2, 2]);
    }

    #[test]
    fn blocks_of_other_shapes_are_elements() {
        let mask = BlockMask::random(20, 12, (2, 3), 0.5, 1);
        let blocks = Blocks::of(&mask);
        assert_eq!((blocks.side, blocks.count), (1, mask.stored_elements()));
    }
}
