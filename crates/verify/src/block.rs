//! Blocks of numbers: cut out of a matrix, and written into another.

use std::ops::Range;

use super::matrix::{Matrix, is_unwritten};

/// A block of numbers at a place of an operand or slot.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) row: usize,
    pub(super) column: usize,
    pub(super) values: Matrix,
}

/// Rows and columns of a matrix as a block.
pub(super) fn cut(matrix: &Matrix, rows: Range<usize>, columns: &Range<u64>) -> Block {
    let (first, last) = (columns.start as usize, columns.end.max(columns.start) as usize);
    let mut values = Vec::with_capacity(rows.len() * (last - first));
    for row in rows.clone() {
        values.extend_from_slice(&matrix.row(row)[first..last]);
    }
    Block { row: rows.start, column: first, values: Matrix { rows: rows.len(), columns: last - first, values } }
}

/// Writes the part of a block that lies in columns `span`.
///
/// # Errors
/// The first element that was written before, or that the target has no place for.
pub(super) fn write(target: &mut Matrix, block: &Block, span: &Range<u64>) -> Result<(), (usize, usize)> {
    let first = (span.start as usize).max(block.column);
    let last = (span.end as usize).min(block.column + block.values.columns);
    if first >= last {
        return Ok(());
    }
    for row in 0..block.values.rows {
        if block.row + row >= target.rows || last > target.columns {
            return Err((block.row + row, last - 1));
        }
        let source = &block.values.row(row)[first - block.column..last - block.column];
        let line = &mut target.row_mut(block.row + row)[first..last];
        for (column, (to, from)) in line.iter_mut().zip(source).enumerate() {
            if !is_unwritten(*to) && !is_unwritten(*from) {
                return Err((block.row + row, first + column));
            }
            if !is_unwritten(*from) {
                *to = *from;
            }
        }
    }
    Ok(())
}
