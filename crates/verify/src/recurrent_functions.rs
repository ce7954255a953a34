//! Linear recurrences as PCUs compute them, in fp32: scans with a state that is carried from row to row, their factors, and
//! convolutions along the rows. The reference has its own.

use rdusim_graph::workload::{Operator, OperatorKind, Workload};

use super::matrix::Matrix;
use super::number::round;

/// Whether a stage of this kind is computed here.
pub(super) fn is_recurrent(kind: OperatorKind) -> bool {
    use OperatorKind::{Contract, ConvStep, ExpDecay, HeadScale, Outer};
    kind.is_carried() || matches!(kind, Contract | ConvStep | ExpDecay | HeadScale | Outer)
}

/// What a step of length `x` leaves of a state whose logarithm of a rate is `log`.
pub(super) fn exp_decay(x: f32, log: f32) -> f32 {
    libm::expf(-(libm::expf(log) * x))
}

/// A pipeline's operands: its part of each, row by row, and of the row vectors the parts of its columns.
pub(super) struct Given<'a> {
    /// Of the first and the second operand; the same twice if there is one.
    pub(super) operands: [&'a Matrix; 2],
    /// Row vectors, whole.
    pub(super) vectors: Vec<&'a Matrix>,
    /// Row and column of the result where the pipeline's part begins.
    pub(super) first: (u64, u64),
}

/// The results of a pipeline; `state` is what the rows before left, and becomes what these leave.
pub(super) fn pipeline(workload: &Workload, operator: &Operator, given: &Given<'_>, state: &mut Vec<f32>) -> Matrix {
    let [x, y] = given.operands;
    let output = &workload.tensors[operator.output];
    let narrow = |matrix: &Matrix, row: usize| matrix.row(row).iter().map(|&x| x as f32).collect::<Vec<f32>>();
    let sequence = (output.rows / operator.options.batch.max(1)).max(1);
    let mut values = Vec::new();
    for row in 0..x.rows {
        let (x, y) = (narrow(x, row), narrow(y, row));
        let at = (given.first.0 + row as u64) % sequence;
        let line = if operator.kind.is_carried() {
            if at == 0 {
                state.clear();
            }
            carried(workload, operator, given, &x, &y, at as usize, state)
        } else {
            independent(workload, operator, given, &x, &y)
        };
        values.extend(line.iter().map(|&x| round(output.dtype, x)));
    }
    Matrix { rows: x.rows, columns: values.len().checked_div(x.rows).unwrap_or(0), values }
}

/// A row that needs no other.
fn independent(workload: &Workload, operator: &Operator, given: &Given<'_>, x: &[f32], y: &[f32]) -> Vec<f32> {
    let (heads, groups) = (operator.heads.max(1), operator.options.kv_heads.max(1));
    let columns = workload.tensors[operator.output].columns;
    let first_head = given.first.1 * heads / columns.max(1);
    // Of a row of the second operand, the part of the group that the n-th head of this pipeline belongs to.
    let of_group = |n: usize| {
        let length = y.len() / groups as usize;
        let group = ((first_head + n as u64) * groups / heads) as usize;
        &y[group * length..(group + 1) * length]
    };
    match operator.kind {
        OperatorKind::ExpDecay => {
            let log = |at: usize| given.vectors.first().map_or(0.0, |v| v.row(0)[given.first.1 as usize + at] as f32);
            x.iter().enumerate().map(|(at, &x)| exp_decay(x, log(at))).collect()
        }
        OperatorKind::HeadScale => {
            let width = x.len() / y.len().max(1);
            x.chunks(width.max(1)).zip(y).flat_map(|(x, y)| x.iter().map(move |x| x * y)).collect()
        }
        OperatorKind::Outer => {
            let width = (workload.tensors[operator.inputs[0]].columns / heads).max(1) as usize;
            let of_element = |(at, x): (usize, &f32)| of_group(at / width).iter().map(|y| x * y).collect::<Vec<f32>>();
            x.iter().enumerate().flat_map(of_element).collect()
        }
        OperatorKind::Contract => {
            let (length, width) = (y.len() / groups as usize, (columns / heads).max(1) as usize);
            let of_run =
                |(at, run): (usize, &[f32])| run.iter().zip(of_group(at / width)).fold(0.0, |sum, (x, y)| sum + x * y);
            x.chunks(length.max(1)).enumerate().map(of_run).collect()
        }
        OperatorKind::ConvStep => {
            let before = y.len() / x.len().max(1);
            let of_column = |(at, &x): (usize, &f32)| {
                let rows: Vec<f32> = y[at * before..(at + 1) * before].iter().copied().chain([x]).collect();
                convolved(given, at, &rows)
            };
            x.iter().enumerate().map(of_column).collect()
        }
        _ => x.to_vec(),
    }
}

/// Taps of the pipeline's column `at` times its rows, the last of them this one, and the bias.
fn convolved(given: &Given<'_>, at: usize, rows: &[f32]) -> f32 {
    let column = given.first.1 as usize + at;
    let [taps, bias @ ..] = given.vectors.as_slice() else { return 0.0 };
    let taps = &taps.row(0)[column * rows.len()..(column + 1) * rows.len()];
    let sum = rows.iter().zip(taps).fold(0.0, |sum, (&x, &tap)| sum + x * tap as f32);
    bias.first().map_or(sum, |bias| sum + bias.row(0)[column] as f32)
}

/// Row `at` of a sequence, after the rows that left `state`, which is empty before the first.
fn carried(
    workload: &Workload,
    operator: &Operator,
    given: &Given<'_>,
    x: &[f32],
    y: &[f32],
    at: usize,
    state: &mut Vec<f32>,
) -> Vec<f32> {
    let is_first = state.is_empty();
    match operator.kind {
        OperatorKind::Scan | OperatorKind::ScanBefore => {
            state.resize(x.len(), 0.0);
            let before = state.clone();
            let width = (x.len() / y.len().max(1)).max(1);
            for (column, h) in state.iter_mut().enumerate() {
                *h = y[column / width] * *h + x[column];
            }
            if operator.kind == OperatorKind::Scan { state.clone() } else { before }
        }
        OperatorKind::RunningProduct => {
            if is_first {
                *state = x.to_vec();
            } else {
                state.iter_mut().zip(x).for_each(|(product, x)| *product *= x);
            }
            state.clone()
        }
        OperatorKind::DecayMask | OperatorKind::DecayBefore => {
            // One factor a head of this pipeline, and the products of all keys so far.
            let columns = workload.tensors[operator.output].columns;
            let (heads, groups) = (operator.heads.max(1), operator.options.kv_heads.max(1));
            let length = (columns / heads).max(1) as usize;
            state.resize(y.len() * length, 0.0);
            let first_head = given.first.1 / length as u64;
            let mut line = Vec::with_capacity(state.len());
            for (n, products) in state.chunks_mut(length).enumerate() {
                products[..at].iter_mut().for_each(|product| *product *= y[n]);
                products[at] = 1.0;
                let group = ((first_head + n as u64) * groups / heads) as usize;
                line.extend(products.iter().zip(&x[group * length..]).map(|(product, score)| product * score));
                if operator.kind == OperatorKind::DecayBefore {
                    line[n * length + at] = 0.0;
                }
            }
            line
        }
        OperatorKind::CausalConv => {
            let taps = given.vectors.first().map_or(1, |taps| taps.columns) as u64;
            let count = (taps / workload.tensors[operator.output].columns.max(1)).max(1) as usize;
            // The rows before, column by column, the oldest first.
            state.resize(x.len() * (count - 1), 0.0);
            let of_column = |(column, &x): (usize, &f32)| {
                let before = &mut state[column * (count - 1)..(column + 1) * (count - 1)];
                let rows: Vec<f32> = before.iter().copied().chain([x]).collect();
                before.copy_from_slice(&rows[1..]);
                convolved(given, column, &rows)
            };
            x.iter().enumerate().map(of_column).collect()
        }
        _ => x.to_vec(),
    }
}
