//! Linear recurrences in f64 with error bounds, by definition and on whole matrices.

use rdusim_graph::workload::{Operator, OperatorKind, Workload};

use super::bounded::Real;
use super::bounded_matrix::Bounded;
use super::matrix::Matrix;

/// One operator of a recurrence on whole matrices, not yet rounded to the output's type; `None` of other kinds.
pub(super) fn apply(
    workload: &Workload,
    operator: &Operator,
    given: &[&Bounded],
    vectors: &[&[f64]],
) -> Option<Bounded> {
    let output = &workload.tensors[operator.output];
    let sequence = (output.rows / operator.options.batch.max(1)).max(1) as usize;
    let (heads, groups) = (operator.heads.max(1) as usize, operator.options.kv_heads.max(1) as usize);
    let at = |operand: usize, row: usize, column: usize| {
        let of = given[operand.min(given.len() - 1)];
        Real::new(of.value.row(row)[column], of.error.row(row)[column])
    };
    let columns = output.columns as usize;
    let width = (columns / heads).max(1);
    let inner = given.last().map_or(1, |of| of.value.columns / groups).max(1);
    let vector = |n: usize, column: usize| vectors.get(n).map(|v| Real::exact(v[column]));
    let zero = Real::exact(0.0);
    let result: Vec<Vec<Real>> = match operator.kind {
        OperatorKind::ExpDecay => by_element(output.rows as usize, columns, |row, column| {
            let rate = vector(0, column).unwrap_or(zero).exp();
            (zero - rate * at(0, row, column)).exp()
        }),
        OperatorKind::HeadScale => {
            by_element(output.rows as usize, columns, |row, column| at(0, row, column) * at(1, row, column / width))
        }
        OperatorKind::Outer => by_element(output.rows as usize, columns, |row, column| {
            let group = column / width * groups / heads;
            at(0, row, column / inner) * at(1, row, group * inner + column % inner)
        }),
        OperatorKind::Contract => by_element(output.rows as usize, columns, |row, column| {
            let group = column / width * groups / heads;
            let terms: Vec<Real> =
                (0..inner).map(|n| at(0, row, column * inner + n) * at(1, row, group * inner + n)).collect();
            Real::sum(terms.into_iter())
        }),
        OperatorKind::ConvStep => {
            let count = vectors.first().map_or(1, |taps| taps.len() / columns.max(1));
            by_element(output.rows as usize, columns, |row, column| {
                let x = |k: usize| {
                    if k + 1 == count { at(0, row, column) } else { at(1, row, column * (count - 1) + k) }
                };
                let terms: Vec<Real> = (0..count).map(|k| x(k) * Real::exact(vectors[0][column * count + k])).collect();
                with_bias(Real::sum(terms.into_iter()), vector(1, column))
            })
        }
        OperatorKind::CausalConv => {
            let count = vectors.first().map_or(1, |taps| taps.len() / columns.max(1));
            by_element(output.rows as usize, columns, |row, column| {
                let terms: Vec<Real> = (0..count)
                    .filter(|k| row % sequence + k + 1 >= count)
                    .map(|k| at(0, row + k + 1 - count, column) * Real::exact(vectors[0][column * count + k]))
                    .collect();
                with_bias(Real::sum(terms.into_iter()), vector(1, column))
            })
        }
        OperatorKind::Scan | OperatorKind::ScanBefore => {
            let is_after = operator.kind == OperatorKind::Scan;
            scanned(output.rows as usize, columns, sequence, is_after, &|row, column| {
                (at(1, row, column / width), at(0, row, column))
            })
        }
        OperatorKind::RunningProduct => by_element(output.rows as usize, columns, |row, column| {
            Real::product((row - row % sequence..=row).map(|row| at(0, row, column)))
        }),
        OperatorKind::DecayMask | OperatorKind::DecayBefore => {
            by_element(output.rows as usize, columns, |row, column| {
                let (head, key, query) = (column / width, column % width, row % sequence);
                let is_before = operator.kind == OperatorKind::DecayBefore;
                if key > query || is_before && key == query {
                    return zero;
                }
                let score = at(0, row, head * groups / heads * width + key);
                let kept = Real::product((key + 1..=query).map(|step| at(1, row - query + step, head)));
                score * kept
            })
        }
        _ => return None,
    };
    let values = |of: fn(&Real) -> f64| Matrix {
        rows: output.rows as usize,
        columns,
        values: result.iter().flatten().map(of).collect(),
    };
    Some(Bounded { value: values(|x| x.value), error: values(|x| x.error) })
}

/// Rows of `h = a h + b`, from zero in every sequence: after each row, or before it.
fn scanned(
    rows: usize,
    columns: usize,
    sequence: usize,
    is_after: bool,
    of: &dyn Fn(usize, usize) -> (Real, Real),
) -> Vec<Vec<Real>> {
    let mut h = vec![Real::exact(0.0); columns];
    let mut made = Vec::new();
    for row in 0..rows {
        if row % sequence == 0 {
            h.fill(Real::exact(0.0));
        }
        let step = |(column, &h): (usize, &Real)| {
            let (a, b) = of(row, column);
            a * h + b
        };
        let after: Vec<Real> = h.iter().enumerate().map(step).collect();
        let before = std::mem::replace(&mut h, after);
        made.push(if is_after { h.clone() } else { before });
    }
    made
}

fn with_bias(sum: Real, bias: Option<Real>) -> Real {
    bias.map_or(sum, |bias| sum + bias)
}

fn by_element(rows: usize, columns: usize, of: impl Fn(usize, usize) -> Real) -> Vec<Vec<Real>> {
    (0..rows).map(|row| (0..columns).map(|column| of(row, column)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_is_its_recurrence_and_a_running_product_is_one() {
        let numbers = [0.5, 0.25, -2.0];
        let made = Real::product(numbers.iter().map(|&x| Real::exact(x)));
        assert!((made.value + 0.25).abs() < 1e-15 && made.error < 1e-7);
        assert_eq!(Real::product(std::iter::empty()), Real::exact(1.0));
        // h = 3, then 0.25 x 3 + 1 = 1.75, then -2 x 1.75 + 5 = 1.5; after a sequence of two rows the next begins with 5.
        let of = |row: usize, _: usize| (Real::exact(numbers[row]), Real::exact([3.0, 1.0, 5.0][row]));
        let values = |sequence: usize, is_after: bool| -> Vec<f64> {
            scanned(3, 1, sequence, is_after, &of).iter().map(|row| row[0].value).collect()
        };
        assert_eq!(values(3, true), [3.0, 1.75, 1.5]);
        assert_eq!(values(3, false), [0.0, 3.0, 1.75]);
        assert_eq!(values(2, true), [3.0, 1.75, 5.0]);
    }
}
