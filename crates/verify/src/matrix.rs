//! Matrices of numbers, with a mark for elements that nobody has written.

use rdusim_graph::sparsity::BlockMask;

/// What an element holds that nobody has written: a NaN that no arithmetic here gives.
pub(super) const UNWRITTEN: f64 = f64::from_bits(0x7ff8_dead_dead_dead);

/// Whether an element was never written.
pub(super) fn is_unwritten(value: f64) -> bool {
    value.to_bits() == UNWRITTEN.to_bits()
}

/// What a mask keeps, block by block: asked for every element.
#[derive(Debug)]
pub(super) struct Kept {
    block: (u64, u64),
    columns: usize,
    /// Row-major; nothing where everything is kept.
    blocks: Vec<bool>,
}

impl Kept {
    pub(super) fn new(mask: Option<&BlockMask>) -> Self {
        let Some(mask) = mask else { return Self { block: (1, 1), columns: 0, blocks: Vec::new() } };
        let columns = mask.n_blocks() as usize;
        let mut blocks = vec![false; mask.k_blocks() as usize * columns];
        for n in 0..columns {
            let words = mask.column_words(n as u64);
            for k in 0..mask.k_blocks() as usize {
                blocks[k * columns + n] = words[k / 64] >> (k % 64) & 1 == 1;
            }
        }
        Self { block: (mask.block_rows(), mask.block_columns()), columns, blocks }
    }

    /// Whether an element is stored.
    pub(super) fn at(&self, row: u64, column: u64) -> bool {
        let at = || (row / self.block.0) as usize * self.columns + (column / self.block.1) as usize;
        self.columns == 0 || self.blocks[at()]
    }
}

/// Rows x columns of numbers, row-major. Every number of a tensor's data type is exact in it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Matrix {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) values: Vec<f64>,
}

impl Matrix {
    /// A matrix of one number.
    pub(super) fn filled(rows: usize, columns: usize, value: f64) -> Self {
        Self { rows, columns, values: vec![value; rows * columns] }
    }

    /// A matrix that nobody has written.
    pub(super) fn unwritten(rows: usize, columns: usize) -> Self {
        Self::filled(rows, columns, UNWRITTEN)
    }

    /// A row.
    pub(super) fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }

    /// A row, to write.
    pub(super) fn row_mut(&mut self, row: usize) -> &mut [f64] {
        &mut self.values[row * self.columns..(row + 1) * self.columns]
    }

    /// Row and column of the first element that nobody has written.
    pub(super) fn first_unwritten(&self) -> Option<(usize, usize)> {
        let at = self.values.iter().position(|&value| is_unwritten(value))?;
        Some((at / self.columns, at % self.columns))
    }
}
