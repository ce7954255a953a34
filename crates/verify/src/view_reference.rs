//! What the reference reads where an operator takes a tensor in another shape: whole matrices, made by definition.

use rdusim_graph::workload::{HeadSwap, Operator, OperatorKind, TensorId, Workload};

use super::bounded_matrix::Bounded;
use super::matrix::Matrix;
use super::meaning;

/// The size of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    rows: usize,
    columns: usize,
}

impl Size {
    /// The size of a tensor.
    fn of(workload: &Workload, tensor: TensorId) -> Self {
        let of = &workload.tensors[tensor];
        Self { rows: of.rows as usize, columns: of.columns as usize }
    }
}

/// The operands of an operator in the shapes it reads them in, from tensors as they are declared.
pub(super) fn operands<'t>(
    workload: &Workload,
    operator: &Operator,
    tensor: impl Fn(TensorId) -> Option<&'t Bounded>,
) -> Vec<Bounded> {
    let indices = |of: &Operator| {
        let id = of.indices?;
        Some(whole_numbers(&tensor(id)?.value))
    };
    let read = |(position, &input): (usize, &TensorId)| {
        let base = workload.base(input);
        let Some(view) = workload.tensors[input].view else { return tensor(base).cloned() };
        let stored = seen(workload, view.of, &tensor)?;
        // Who walks over an image takes it as it is.
        if view.window.is_some() {
            return Some(stored);
        }
        let shape = Size::of(workload, input);
        let made_by = workload.producer(base).map(|op| &workload.operators[op]);
        let table = made_by.filter(|op| op.kind == OperatorKind::EmbeddingGrad && !view.transposed);
        let mask = workload.tensors[base].mask.as_deref();
        let part = |matrix: &Matrix| -> Matrix {
            if operator.kind == OperatorKind::Embedding {
                gathered(matrix, &indices(operator).unwrap_or_default())
            } else if let Some(of) = table.and_then(&indices) {
                added_up(matrix, &of, shape.rows, shape.columns)
            } else if view.is_part {
                part_of(matrix, shape)
            } else if let Some(swap) = view.swap {
                exchanged(matrix, shape, &swap)
            } else if !view.transposed {
                let stored = |row: usize, column: usize| {
                    mask.is_none_or(|m| m.is_kept(row as u64 / m.block_rows(), column as u64 / m.block_columns()))
                };
                flat(matrix, shape, stored)
            } else if position == 0 && operator.form.is_some() {
                by_heads(matrix, operator, shape)
            } else {
                transposed(matrix)
            }
        };
        let mut value = part(&stored.value);
        let mut error = part(&stored.error);
        if table.is_some() {
            // Rows are added in fp32, in any order.
            for (value, error) in value.values.iter_mut().zip(&mut error.values) {
                *error += 2.0 * super::bounded::FP32 * stored.value.rows as f64 * (value.abs() + *error);
            }
        }
        value.rows = shape.rows;
        error.rows = shape.rows;
        Some(Bounded { value, error })
    };
    operator.inputs.iter().enumerate().filter_map(read).collect()
}

/// A tensor in the shape that the file gives it, however many shapes that was made through.
fn seen<'t>(workload: &Workload, id: TensorId, tensor: &impl Fn(TensorId) -> Option<&'t Bounded>) -> Option<Bounded> {
    let Some(view) = workload.tensors[id].view else { return tensor(id).cloned() };
    let before = seen(workload, view.of, tensor)?;
    let shape = Size::of(workload, id);
    let shaped = |matrix: &Matrix| match view.swap {
        _ if view.is_part => part_of(matrix, shape),
        Some(swap) => exchanged(matrix, shape, &swap),
        None => flat(matrix, shape, |_, _| true),
    };
    Some(Bounded { value: shaped(&before.value), error: shaped(&before.error) })
}

/// The first rows and columns.
fn part_of(matrix: &Matrix, Size { rows, columns }: Size) -> Matrix {
    let values = (0..rows).flat_map(|row| matrix.row(row)[..columns].iter().copied()).collect();
    Matrix { rows, columns, values }
}

/// Rows and heads of each sequence exchanged.
fn exchanged(matrix: &Matrix, Size { rows, columns }: Size, swap: &HeadSwap) -> Matrix {
    let (each, heads, width) = (swap.rows as usize, swap.heads as usize, swap.width as usize);
    let mut values = Vec::with_capacity(rows * columns);
    for sequence in 0..matrix.rows / each.max(1) {
        for head in 0..heads {
            let of_row =
                |row: usize| matrix.row(sequence * each + row)[head * width..(head + 1) * width].iter().copied();
            values.extend((0..each).flat_map(of_row));
        }
    }
    Matrix { rows, columns, values }
}

/// Indices and labels.
pub(super) fn whole_numbers(matrix: &Matrix) -> Vec<u64> {
    matrix.values.iter().map(|&x| x as u64).collect()
}

fn transposed(matrix: &Matrix) -> Matrix {
    let mut turned = Matrix::filled(matrix.columns, matrix.rows, 0.0);
    for row in 0..matrix.rows {
        for column in 0..matrix.columns {
            turned.row_mut(column)[row] = matrix.row(row)[column];
        }
    }
    turned
}

/// A transposed sequence by sequence and head by head; the heads that are summed stand one after the other in the depth.
fn by_heads(matrix: &Matrix, operator: &Operator, Size { rows, columns }: Size) -> Matrix {
    let options = &operator.options;
    let (batch, heads) = (options.batch as usize, options.heads as usize);
    let (length, width) = (matrix.rows / batch, matrix.columns / heads);
    let group = meaning::group(operator) as usize;
    let mut turned = Matrix::filled(rows, columns, 0.0);
    for sequence in 0..batch {
        for head in 0..heads {
            for row_tile in 0..length {
                for column in 0..width {
                    let depth = head / group * length * group + head % group * length + row_tile;
                    turned.row_mut(sequence * width + column)[depth] =
                        matrix.row(sequence * length + row_tile)[head * width + column];
                }
            }
        }
    }
    turned
}

fn gathered(table: &Matrix, indices: &[u64]) -> Matrix {
    let values = indices.iter().flat_map(|&index| table.row(index as usize).iter().copied()).collect();
    Matrix { rows: indices.len(), columns: table.columns, values }
}

/// The gradient of a table: each row the sum of the rows with its index.
fn added_up(rows: &Matrix, indices: &[u64], count: usize, columns: usize) -> Matrix {
    let mut table = Matrix::filled(count, columns, 0.0);
    for (row, &index) in indices.iter().enumerate() {
        for (sum, x) in table.row_mut(index as usize).iter_mut().zip(rows.row(row)) {
            *sum += x;
        }
    }
    table
}

/// What is stored of a matrix, row by row, in rows of another length; zeros behind the last.
fn flat(matrix: &Matrix, Size { rows, columns }: Size, stored: impl Fn(usize, usize) -> bool) -> Matrix {
    let mut values = Vec::with_capacity(rows * columns);
    for row in 0..matrix.rows {
        values.extend((0..matrix.columns).filter(|&column| stored(row, column)).map(|c| matrix.row(row)[c]));
    }
    values.resize(rows * columns, 0.0);
    Matrix { rows, columns, values }
}
