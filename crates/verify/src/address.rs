//! The address generators: where the elements lie off chip that a stage reads in another shape than they are stored in.

use std::borrow::Cow;

use rdusim_base::index::Id;
use rdusim_graph::workload::{GemmForm, HeadSwap, Operator, OperatorKind, TensorId, View, Workload};

use super::matrix::{Matrix, is_unwritten};

/// A tensor as the main operator of a stage reads it; `None` where it is not off chip.
pub(super) fn read(
    workload: &Workload,
    operator: &Operator,
    tensor: TensorId,
    memory: &[Option<Matrix>],
) -> Option<Matrix> {
    let view = workload.tensors[tensor].view?;
    let base = &*seen(workload, view.of, memory)?;
    // Windows are made of pixels where they are read.
    if view.window.is_some() {
        return Some(base.clone());
    }
    let indices_of = |op: &Operator| op.indices.and_then(|id| memory[id.index()].as_ref());
    let (rows, columns) = (workload.tensors[tensor].rows, workload.tensors[tensor].columns);
    let mut matrix = Matrix::unwritten(rows as usize, columns as usize);
    let maker = workload.operators.iter().find(|op| op.output == view.base);
    if let Some(indices) = maker.filter(|op| op.kind == OperatorKind::EmbeddingGrad).and_then(indices_of) {
        // Rows of a table's gradient are added up as they are written: each is read as its sum.
        matrix.values.fill(0.0);
        for (row, index) in indices.values.iter().enumerate() {
            let target = matrix.row_mut(*index as usize);
            target.iter_mut().zip(base.row(row)).for_each(|(sum, &x)| *sum = f64::from(*sum as f32 + x as f32));
        }
        return Some(matrix);
    }
    let indices = indices_of(operator);
    let place = Place::new(workload, operator, tensor, view);
    for row in 0..rows {
        for column in 0..columns {
            let found = match (&place, indices) {
                (Place::Gathered, Some(indices)) => Some((indices.values[row as usize] as u64, column)),
                (Place::Gathered, None) => None,
                (place, _) => place.of(row, column),
            };
            // Behind the last stored element of a flat tensor there are zeros.
            let value = found.map_or(0.0, |(row, column)| base.row(row as usize)[column as usize]);
            if !is_unwritten(value) {
                matrix.row_mut(row as usize)[column as usize] = value;
            }
        }
    }
    Some(matrix)
}

/// A tensor in the shape that the file gives it.
fn seen<'m>(workload: &Workload, id: TensorId, memory: &'m [Option<Matrix>]) -> Option<Cow<'m, Matrix>> {
    let Some(view) = workload.tensors[id].view else { return memory[id.index()].as_ref().map(Cow::Borrowed) };
    let before = seen(workload, view.of, memory)?;
    let (rows, columns) = (workload.tensors[id].rows, workload.tensors[id].columns);
    let mut matrix = Matrix::unwritten(rows as usize, columns as usize);
    for row in 0..rows {
        for column in 0..columns {
            let (from_row, from) = match view.swap {
                _ if view.is_part => (row, column),
                Some(swap) => swap.stored(row, column),
                None => {
                    let at = row * columns + column;
                    (at / before.columns as u64, at % before.columns as u64)
                }
            };
            matrix.row_mut(row as usize)[column as usize] = before.row(from_row as usize)[from as usize];
        }
    }
    Some(Cow::Owned(matrix))
}

/// Which element of the base an element of a view is.
#[derive(Debug)]
enum Place {
    /// Rows by index.
    Gathered,
    Transposed,
    /// The first rows and columns.
    Part,
    /// Rows and heads exchanged.
    Swapped(HeadSwap),
    /// Heads and sequences each transposed for themselves.
    Heads {
        rows: u64,
        columns: u64,
        length: u64,
        group: u64,
    },
    /// The n-th stored element, n by `columns` a row.
    Flat {
        columns: u64,
        base_columns: u64,
        stored: Option<Vec<(u64, u64)>>,
    },
}

impl Place {
    fn new(workload: &Workload, operator: &Operator, tensor: TensorId, view: View) -> Self {
        let (seen, base) = (&workload.tensors[tensor], &workload.tensors[view.of]);
        let options = &operator.options;
        if let Some(swap) = view.swap {
            return Self::Swapped(swap);
        }
        match operator.form.filter(|_| options.transpose_a && operator.inputs[0] == tensor) {
            _ if operator.kind == OperatorKind::Embedding => Self::Gathered,
            Some(form) => Self::Heads {
                rows: form.m,
                columns: form.k,
                length: base.rows / form.instances,
                group: options.heads / options.kv_heads,
            },
            _ if view.is_part => Self::Part,
            None if view.transposed => Self::Transposed,
            None => {
                let kept = |m: &rdusim_graph::sparsity::BlockMask| {
                    let all = (0..base.rows).flat_map(|row| (0..base.columns).map(move |column| (row, column)));
                    all.filter(|(row, column)| m.is_kept(row / m.block_rows(), column / m.block_columns())).collect()
                };
                Self::Flat { columns: seen.columns, base_columns: base.columns, stored: base.mask.as_deref().map(kept) }
            }
        }
    }

    fn of(&self, row: u64, column: u64) -> Option<(u64, u64)> {
        match self {
            Self::Gathered => None,
            Self::Transposed => Some((column, row)),
            Self::Part => Some((row, column)),
            Self::Swapped(swap) => Some(swap.stored(row, column)),
            Self::Heads { rows, columns, length, group } => {
                let (sequence, within) = (row / rows, row % rows);
                let (product, depth) = (column / columns, column % columns);
                let head = product * group + depth / length;
                Some((sequence * length + depth % length, head * rows + within))
            }
            Self::Flat { columns, base_columns, stored } => {
                let at = row * columns + column;
                match stored {
                    Some(list) => list.get(at as usize).copied(),
                    None => Some((at / base_columns, at % base_columns)),
                }
            }
        }
    }
}

/// Where an element of the second operand of one product lies: sequence and head of the product, depth and column in it.
pub(super) fn of_second(operator: &Operator, form: &GemmForm, base_rows: u64, at: [u64; 4]) -> (u64, u64) {
    let [sequence, head, depth, column] = at;
    let options = &operator.options;
    let group = if options.transpose_a { options.heads / options.kv_heads } else { 1 };
    let rows = base_rows / form.instances;
    let each = form.k / group;
    // Heads of A share those of B; of a sum over a group of heads each has its own.
    let of_b = head / (form.heads / form.b_heads) * group + depth / each;
    if options.transpose_b {
        (sequence * rows + column, of_b * each + depth % each)
    } else {
        (sequence * rows + depth % each, of_b * form.n + column)
    }
}
