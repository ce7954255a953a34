//! What becomes of the entries of a file: the mask of what is not zero, or of what is largest.

use super::error::ReadError;
use crate::sparsity::BlockMask;

/// Bits that a mask from a file may take (256 MiB).
pub const MOST_MASK_BITS: u128 = 1 << 31;

/// Blocks whose magnitudes are kept at most while pruning (4 bytes each, and as much again to find the threshold).
const MOST_MAGNITUDES: u128 = 1 << 28;

/// What is wanted of a file.
#[derive(Debug, Clone, Copy)]
pub struct MatrixRequest<'a> {
    /// The array or tensor of a file with several.
    pub key: Option<&'a str>,
    /// Rows and columns the matrix must have, after transposing; any if `None`.
    pub shape: Option<(u64, u64)>,
    /// Rows and columns of a block.
    pub block: (u64, u64),
    /// Share of the blocks to keep, those of the largest mean magnitude; all that are not zero if `None`.
    pub density: Option<f64>,
    /// The file has columns where the matrix has rows.
    pub transpose: bool,
}

impl MatrixRequest<'_> {
    /// The shape of the matrix if the file's is `rows` x `columns`, checked.
    fn oriented(&self, rows: u64, columns: u64) -> Result<(u64, u64), ReadError> {
        let found = if self.transpose { (columns, rows) } else { (rows, columns) };
        if let Some(wanted) = self.shape.filter(|&wanted| wanted != found) {
            let hint = match (wanted == (found.1, found.0), self.transpose) {
                (true, true) => ": do not transpose it",
                (true, false) => ": transpose it",
                _ => "",
            };
            let told = if self.transpose { " (transposed)" } else { "" };
            return Err(ReadError::new(format!(
                "the matrix is {} x {}{told}, expected {} x {}{hint}",
                found.0, found.1, wanted.0, wanted.1
            )));
        }
        if found.0 == 0 || found.1 == 0 {
            return Err(ReadError::new(format!("the matrix is {rows} x {columns}: it has no elements")));
        }
        let bits = u128::from(found.0.div_ceil(self.block.0)).next_multiple_of(64)
            * u128::from(found.1.div_ceil(self.block.1));
        if bits > MOST_MASK_BITS {
            return Err(ReadError::new(format!(
                "the matrix is {rows} x {columns}: its mask would take {bits} bits, at most 2^31 are possible"
            )));
        }
        Ok(found)
    }
}

/// Takes a matrix as it is read.
pub(super) trait Sink {
    /// Rows and columns of the file's matrix; called once, before any entry.
    fn shape(&mut self, rows: u64, columns: u64) -> Result<(), ReadError>;
    /// An entry inside the shape, by its magnitude (NaN if that is none).
    fn entry(&mut self, row: u64, column: u64, magnitude: f64) -> Result<(), ReadError>;
}

/// Keeps every block with something other than zero in it. The mask is made when there is something to keep: a file that claims a
/// large matrix and holds nothing takes no memory.
pub(super) struct NonZeros<'a> {
    wanted: &'a MatrixRequest<'a>,
    shape: (u64, u64),
    mask: Option<BlockMask>,
}

impl<'a> NonZeros<'a> {
    pub(super) fn new(wanted: &'a MatrixRequest<'a>) -> Self {
        Self { wanted, shape: (0, 0), mask: None }
    }

    pub(super) fn finish(self) -> Result<BlockMask, ReadError> {
        self.mask.ok_or_else(|| ReadError::new("every element is zero: nothing would be kept"))
    }
}

impl Sink for NonZeros<'_> {
    fn shape(&mut self, rows: u64, columns: u64) -> Result<(), ReadError> {
        self.shape = self.wanted.oriented(rows, columns)?;
        Ok(())
    }

    fn entry(&mut self, row: u64, column: u64, magnitude: f64) -> Result<(), ReadError> {
        // What is not a number is not zero either.
        if magnitude > 0.0 || magnitude.is_nan() {
            let ((rows, columns), block) = (self.shape, self.wanted.block);
            let mask = self.mask.get_or_insert_with(|| BlockMask::empty(rows, columns, block));
            let (k, n) = if self.wanted.transpose { (column, row) } else { (row, column) };
            mask.keep(k / block.0, n / block.1);
        }
        Ok(())
    }
}

/// Keeps the blocks of the largest mean magnitude.
pub(super) struct Magnitudes<'a> {
    wanted: &'a MatrixRequest<'a>,
    density: f64,
    shape: (u64, u64),
    /// Sum of magnitudes of each block, by block columns.
    sums: Vec<f32>,
}

impl<'a> Magnitudes<'a> {
    pub(super) fn new(wanted: &'a MatrixRequest<'a>, density: f64) -> Self {
        Self { wanted, density, shape: (0, 0), sums: Vec::new() }
    }

    pub(super) fn finish(mut self) -> Result<BlockMask, ReadError> {
        let block = self.wanted.block;
        let mut mask = BlockMask::empty(self.shape.0, self.shape.1, block);
        let (k_blocks, n_blocks) = (mask.k_blocks(), mask.n_blocks());
        let wanted = (self.density * (k_blocks * n_blocks) as f64).round() as usize;
        if wanted == 0 {
            let title = format!("a density of {} keeps none of {} blocks", self.density, k_blocks * n_blocks);
            return Err(ReadError::new(title));
        }
        // Blocks at the edges have fewer elements: the mean decides.
        for (at, sum) in self.sums.iter_mut().enumerate() {
            let (k, n) = (at as u64 % k_blocks, at as u64 / k_blocks);
            let height = block.0.min(self.shape.0 - k * block.0);
            *sum /= (height * mask.width_of(n)) as f32;
        }
        // Not negative and no NaN: the bits are in the order of the numbers.
        let mut order: Vec<u32> = self.sums.iter().map(|sum| sum.to_bits()).collect();
        let at = order.len() - wanted;
        let (_, &mut threshold, _) = order.select_nth_unstable(at);
        let above = self.sums.iter().filter(|sum| sum.to_bits() > threshold).count();
        let mut ties = wanted - above;
        for (at, sum) in self.sums.iter().enumerate() {
            let tied = sum.to_bits() == threshold && ties > 0;
            ties -= usize::from(tied);
            if sum.to_bits() > threshold || tied {
                mask.keep(at as u64 % k_blocks, at as u64 / k_blocks);
            }
        }
        Ok(mask)
    }
}

impl Sink for Magnitudes<'_> {
    fn shape(&mut self, rows: u64, columns: u64) -> Result<(), ReadError> {
        self.shape = self.wanted.oriented(rows, columns)?;
        let blocks = |length: u64, block: u64| u128::from(length.div_ceil(block));
        let all = blocks(self.shape.0, self.wanted.block.0) * blocks(self.shape.1, self.wanted.block.1);
        if all > MOST_MAGNITUDES {
            let title = format!("the matrix has {all} blocks: magnitudes of at most 2^28 can be compared");
            return Err(ReadError::new(title));
        }
        self.sums = vec![0.0; all as usize];
        Ok(())
    }

    fn entry(&mut self, row: u64, column: u64, magnitude: f64) -> Result<(), ReadError> {
        let (r, c) = if self.wanted.transpose { (column, row) } else { (row, column) };
        if !magnitude.is_finite() {
            return Err(ReadError::new(format!(
                "the element in row {row}, column {column} (from 0) is not a finite number: it has no magnitude to \
                 prune by"
            )));
        }
        let k_blocks = self.shape.0.div_ceil(self.wanted.block.0);
        let at = (c / self.wanted.block.1) * k_blocks + r / self.wanted.block.0;
        let sum = &mut self.sums[at as usize];
        *sum = (*sum + magnitude as f32).min(f32::MAX);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_takes_no_memory_until_there_is_something_to_keep() {
        let wanted = MatrixRequest { key: None, shape: None, block: (1, 1), density: None, transpose: false };
        let mut sink = NonZeros::new(&wanted);
        sink.shape(1 << 31, 1).unwrap();
        sink.entry(7, 0, 0.0).unwrap();
        assert!(sink.mask.is_none());
        sink.entry(9, 0, 1.0).unwrap();
        assert!(sink.finish().unwrap().is_kept(9, 0));
    }
}
