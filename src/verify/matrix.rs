//! Matrices of numbers, with a mark for elements that nobody has written.

/// What an element holds that nobody has written: a NaN that no arithmetic here gives.
pub(super) const UNWRITTEN: f64 = f64::from_bits(0x7ff8_dead_dead_dead);

/// Whether an element was never written.
pub(super) fn is_unwritten(value: f64) -> bool {
    value.to_bits() == UNWRITTEN.to_bits()
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
