//! Constant folding: the arithmetic on shapes and masks that exporters leave in a network.

use std::rc::Rc;

use super::constant::{MOST_FOLDED, Numbers};
use super::net::NetNode;

/// A constant with its shape.
#[derive(Debug, Clone)]
pub(super) struct Array {
    pub(super) shape: Vec<u64>,
    pub(super) numbers: Numbers,
}

impl Array {
    fn ints(shape: Vec<u64>, list: Vec<i64>) -> Self {
        Self { shape, numbers: Numbers::Ints(list.into()) }
    }

    fn len(&self) -> usize {
        match &self.numbers {
            Numbers::Ints(list) => list.len(),
            Numbers::Reals(list) => list.len(),
        }
    }

    fn real(&self, index: usize) -> f64 {
        match &self.numbers {
            Numbers::Ints(list) => list[index] as f64,
            Numbers::Reals(list) => list[index],
        }
    }

    fn is_real(&self) -> bool {
        matches!(self.numbers, Numbers::Reals(_))
    }

    /// The elements at `at`, in a shape.
    fn picked(&self, shape: Vec<u64>, at: &[usize]) -> Self {
        let numbers = match &self.numbers {
            Numbers::Ints(list) => Numbers::Ints(at.iter().map(|&index| list[index]).collect()),
            Numbers::Reals(list) => Numbers::Reals(at.iter().map(|&index| list[index]).collect()),
        };
        Self { shape, numbers }
    }

    fn list(&self) -> Vec<i64> {
        (0..self.len()).map(|index| self.real(index) as i64).collect()
    }
}

/// Elements of a shape, if that is few.
pub(super) fn few(shape: &[u64]) -> Option<usize> {
    let all = shape.iter().try_fold(1u64, |all, &dim| all.checked_mul(dim))?;
    (all <= MOST_FOLDED).then_some(all as usize)
}

/// The shape that two broadcast to.
pub(super) fn broadcast(a: &[u64], b: &[u64]) -> Option<Vec<u64>> {
    let rank = a.len().max(b.len());
    let at = |shape: &[u64], index: usize| (index + shape.len()).checked_sub(rank).map_or(1, |index| shape[index]);
    (0..rank)
        .map(|index| match (at(a, index), at(b, index)) {
            (x, y) if x == y => Some(x),
            (1, other) | (other, 1) => Some(other),
            _ => None,
        })
        .collect()
}

/// The result of a node on constants, of shape `shape`; `None` if it is not worked out here.
pub(super) fn evaluate(node: &NetNode<'_>, inputs: &[Option<&Array>], shape: &[u64]) -> Option<Array> {
    let count = few(shape)?;
    let first = inputs.first().copied().flatten();
    let second = inputs.get(1).copied().flatten();
    let same = |array: &Array| (array.len() == count).then(|| Array { shape: shape.to_vec(), ..array.clone() });
    match node.op.as_str() {
        "Identity" | "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten" | "Dropout" => same(first?),
        "Cast" => cast(node, first?, shape, count),
        "Neg" | "Floor" | "Ceil" | "Sqrt" | "Reciprocal" | "Abs" | "Exp" | "Log" | "Sin" | "Cos" | "Round" => {
            Some(unary(&node.op, first?, shape, count))
        }
        "Not" => {
            let x = first?;
            Some(Array::ints(shape.to_vec(), (0..count).map(|i| i64::from(x.real(i) == 0.0)).collect()))
        }
        "Add" | "Sub" | "Mul" | "Div" | "Pow" | "Mod" | "Equal" | "Greater" | "Less" | "GreaterOrEqual"
        | "LessOrEqual" | "And" | "Or" | "Min" | "Max" => binary(&node.op, first?, second?, shape, count),
        "Where" => {
            let (condition, x, y) = (first?, second?, inputs.get(2).copied().flatten()?);
            let at = |array: &Array| indices(&array.shape, shape, count);
            let (of_condition, of_x, of_y) = (at(condition), at(x), at(y));
            let pick = |i: usize| {
                if condition.real(of_condition[i]) == 0.0 { y.real(of_y[i]) } else { x.real(of_x[i]) }
            };
            Some(of_kind(shape, (0..count).map(pick).collect(), x.is_real()))
        }
        "Expand" | "Tile" if first?.len() == 1 || node.op == "Expand" => {
            let x = first?;
            Some(x.picked(shape.to_vec(), &indices(&x.shape, shape, count)))
        }
        "Concat" => concat(node, inputs, shape),
        "Gather" => gather(node, first?, second?, shape, count),
        "Slice" => {
            let x = first?;
            let ranges = slice_ranges(node, inputs, &x.shape)?;
            let mut at = vec![0usize];
            for (axis, range) in ranges.iter().enumerate() {
                let dim = x.shape[axis] as usize;
                at = at.iter().flat_map(|&base| range.iter().map(move |&index| base * dim + index)).collect();
            }
            (at.len() == count).then(|| x.picked(shape.to_vec(), &at))
        }
        "Transpose" => transpose(node, first?, shape, count),
        "Range" => {
            let (start, step_by) = (first?.scalar()?, inputs.get(2).copied().flatten()?.scalar()?);
            let list = (0..count).map(|index| start + index as f64 * step_by).collect();
            Some(of_kind(shape, list, first?.is_real()))
        }
        "ReduceProd" | "ReduceMax" | "ReduceMin" | "ReduceSum" if count == 1 => {
            let x = first?;
            let all = (0..x.len()).map(|index| x.real(index));
            let found = match node.op.as_str() {
                "ReduceProd" => all.product(),
                "ReduceMax" => all.fold(f64::NEG_INFINITY, f64::max),
                "ReduceMin" => all.fold(f64::INFINITY, f64::min),
                _ => all.sum(),
            };
            Some(of_kind(shape, vec![found], x.is_real()))
        }
        "Trilu" => trilu(node, first?, second, shape, count),
        _ => None,
    }
}

fn cast(node: &NetNode<'_>, x: &Array, shape: &[u64], count: usize) -> Option<Array> {
    let to = node.int("to")?;
    let numbers = match (to, &x.numbers) {
        (1 | 10 | 11 | 16, _) => Numbers::Reals((0..count).map(|index| x.real(index)).collect()),
        (9, _) => Numbers::Ints((0..count).map(|index| i64::from(x.real(index) != 0.0)).collect()),
        (_, Numbers::Ints(list)) => Numbers::Ints(Rc::clone(list)),
        (_, Numbers::Reals(list)) => Numbers::Ints(list.iter().map(|&x| x as i64).collect()),
    };
    Some(Array { shape: shape.to_vec(), numbers })
}

fn unary(op: &str, x: &Array, shape: &[u64], count: usize) -> Array {
    let f = |x: f64| match op {
        "Neg" => -x,
        "Floor" => x.floor(),
        "Ceil" => x.ceil(),
        "Sqrt" => x.sqrt(),
        "Reciprocal" => 1.0 / x,
        "Abs" => x.abs(),
        "Exp" => libm::exp(x),
        "Log" => libm::log(x),
        "Sin" => libm::sin(x),
        "Cos" => libm::cos(x),
        _ => x.round(),
    };
    let list: Vec<f64> = (0..count).map(|index| f(x.real(index))).collect();
    of_kind(shape, list, x.is_real())
}

fn gather(node: &NetNode<'_>, x: &Array, indices: &Array, shape: &[u64], count: usize) -> Option<Array> {
    let axis = axis_of(node.int("axis").unwrap_or(0), x.shape.len())?;
    let (before, along, behind) = around(&x.shape, axis);
    let list = indices.list();
    let mut at = Vec::with_capacity(count);
    for outer in 0..before {
        for &index in &list {
            let index = if index < 0 { index + along.cast_signed() as i64 } else { index };
            let index = usize::try_from(index).ok().filter(|&index| index < along)?;
            at.extend((0..behind).map(|inner| (outer * along + index) * behind + inner));
        }
    }
    (at.len() == count).then(|| x.picked(shape.to_vec(), &at))
}

fn transpose(node: &NetNode<'_>, x: &Array, shape: &[u64], count: usize) -> Option<Array> {
    let rank = x.shape.len();
    let perm: Vec<usize> = match node.ints("perm") {
        Some(perm) => perm.iter().map(|&axis| axis_of(axis, rank)).collect::<Option<_>>()?,
        None => (0..rank).rev().collect(),
    };
    if perm.len() != rank {
        return None;
    }
    let strides = strides(&x.shape);
    let mut at = vec![0usize];
    for &axis in &perm {
        let (dim, stride) = (x.shape[axis] as usize, strides[axis]);
        at = at.iter().flat_map(|&base| (0..dim).map(move |index| base + index * stride)).collect();
    }
    (at.len() == count).then(|| x.picked(shape.to_vec(), &at))
}

fn trilu(node: &NetNode<'_>, x: &Array, k: Option<&Array>, shape: &[u64], count: usize) -> Option<Array> {
    let rank = shape.len();
    let (rows, columns) = (*shape.get(rank.checked_sub(2)?)?, *shape.last()?);
    let k = k.map_or(Some(0.0), Array::scalar)? as i64;
    let upper = node.int("upper").unwrap_or(1) != 0;
    let keeps = |index: usize| {
        let (row, column) = (index as u64 / columns % rows, index as u64 % columns);
        let beyond = column.cast_signed() - row.cast_signed() - k;
        if upper { beyond >= 0 } else { beyond <= 0 }
    };
    let list = (0..count).map(|index| if keeps(index) { x.real(index) } else { 0.0 }).collect();
    Some(of_kind(shape, list, x.is_real()))
}

impl Array {
    fn scalar(&self) -> Option<f64> {
        (self.len() == 1).then(|| self.real(0))
    }
}

fn of_kind(shape: &[u64], list: Vec<f64>, real: bool) -> Array {
    let numbers =
        if real { Numbers::Reals(list.into()) } else { Numbers::Ints(list.into_iter().map(|x| x as i64).collect()) };
    Array { shape: shape.to_vec(), numbers }
}

fn binary(op: &str, a: &Array, b: &Array, shape: &[u64], count: usize) -> Option<Array> {
    let (at_a, at_b) = (indices(&a.shape, shape, count), indices(&b.shape, shape, count));
    if let (Numbers::Ints(x), Numbers::Ints(y)) = (&a.numbers, &b.numbers) {
        let f = |i: usize| {
            let (x, y) = (x[at_a[i]], y[at_b[i]]);
            Some(match op {
                "Add" => x.wrapping_add(y),
                "Sub" => x.wrapping_sub(y),
                "Mul" | "And" => x.wrapping_mul(y),
                "Div" => x.checked_div(y)?,
                "Mod" => x.checked_rem_euclid(y)?,
                "Pow" => x.checked_pow(u32::try_from(y).ok()?)?,
                "Equal" => i64::from(x == y),
                "Greater" => i64::from(x > y),
                "Less" => i64::from(x < y),
                "GreaterOrEqual" => i64::from(x >= y),
                "LessOrEqual" => i64::from(x <= y),
                "Or" => i64::from(x != 0 || y != 0),
                "Min" => x.min(y),
                _ => x.max(y),
            })
        };
        return Some(Array::ints(shape.to_vec(), (0..count).map(f).collect::<Option<_>>()?));
    }
    let compares = matches!(op, "Equal" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual");
    #[expect(clippy::float_cmp, reason = "the operator asks whether numbers are equal")]
    let f = |i: usize| {
        let (x, y) = (a.real(at_a[i]), b.real(at_b[i]));
        match op {
            "Add" => x + y,
            "Sub" => x - y,
            "Mul" => x * y,
            "Div" => x / y,
            "Mod" => x % y,
            "Pow" => libm::pow(x, y),
            "Equal" => f64::from(x == y),
            "Greater" => f64::from(x > y),
            "Less" => f64::from(x < y),
            "GreaterOrEqual" => f64::from(x >= y),
            "LessOrEqual" => f64::from(x <= y),
            "Min" => x.min(y),
            _ => x.max(y),
        }
    };
    Some(of_kind(shape, (0..count).map(f).collect(), !compares))
}

fn concat(node: &NetNode<'_>, inputs: &[Option<&Array>], shape: &[u64]) -> Option<Array> {
    let arrays: Vec<&Array> = inputs.iter().copied().collect::<Option<_>>()?;
    let axis = axis_of(node.int("axis")?, shape.len())?;
    let (before, ..) = around(shape, axis);
    let mut list = Vec::new();
    for outer in 0..before {
        for array in &arrays {
            let each = array.len() / before.max(1);
            list.extend((outer * each..(outer + 1) * each).map(|index| array.real(index)));
        }
    }
    (list.len() == few(shape)?).then(|| of_kind(shape, list, arrays.iter().any(|array| array.is_real())))
}

/// For each element of `to`, the index of the element of `from` that broadcasts there.
fn indices(from: &[u64], to: &[u64], count: usize) -> Vec<usize> {
    let own = strides(from);
    let missing = to.len() - from.len().min(to.len());
    let mut at = vec![0usize];
    for (axis, &dim) in to.iter().enumerate() {
        let stride =
            axis.checked_sub(missing).map_or(0, |own_axis| if from[own_axis] == 1 { 0 } else { own[own_axis] });
        at = at.iter().flat_map(|&base| (0..dim as usize).map(move |index| base + index * stride)).collect();
    }
    debug_assert_eq!(at.len(), count);
    at
}

fn strides(shape: &[u64]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis] as usize;
    }
    strides
}

/// An axis counted from the front.
pub(super) fn axis_of(axis: i64, rank: usize) -> Option<usize> {
    let axis = if axis < 0 { axis + rank.cast_signed() as i64 } else { axis };
    usize::try_from(axis).ok().filter(|&axis| axis < rank)
}

/// Elements before, along and behind an axis.
fn around(shape: &[u64], axis: usize) -> (usize, usize, usize) {
    let product = |dims: &[u64]| dims.iter().product::<u64>() as usize;
    (product(&shape[..axis]), shape[axis] as usize, product(&shape[axis + 1..]))
}

/// Indices along each axis that a `Slice` takes; its parameters are inputs or, up to version 9, attributes.
pub(super) fn slice_ranges(node: &NetNode<'_>, inputs: &[Option<&Array>], shape: &[u64]) -> Option<Vec<Vec<usize>>> {
    let given = |index: usize, name: &str| match node.ints(name) {
        Some(list) => Some(list.to_vec()),
        None => inputs.get(index).copied().flatten().map(Array::list),
    };
    let (starts, ends) = (given(1, "starts")?, given(2, "ends")?);
    let axes = given(3, "axes").unwrap_or_else(|| (0..starts.len().cast_signed() as i64).collect());
    let steps = given(4, "steps").unwrap_or_else(|| vec![1; starts.len()]);
    let few_enough = |&dim: &u64| dim <= MOST_FOLDED;
    if starts.len() != ends.len() || axes.len() != starts.len() || steps.len() != starts.len() {
        return None;
    }
    let mut ranges: Vec<Option<Vec<usize>>> = vec![None; shape.len()];
    for (((&start, &end), &axis), &by) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
        let axis = axis_of(axis, shape.len())?;
        let dim = shape[axis].cast_signed();
        let bring = |at: i64, low: i64, high: i64| (if at < 0 { at.saturating_add(dim) } else { at }).clamp(low, high);
        if !few_enough(&shape[axis]) {
            return None;
        }
        let range: Vec<usize> = match by {
            1.. => (bring(start, 0, dim)..bring(end, 0, dim)).step_by(by as usize).map(|at| at as usize).collect(),
            0 => return None,
            _ => {
                let (from, to) = (bring(start, -1, dim - 1), if end < -dim { -1 } else { bring(end, -1, dim - 1) });
                let mut at = from;
                let mut list = Vec::new();
                while at > to {
                    list.push(at as usize);
                    at = at.saturating_add(by);
                }
                list
            }
        };
        ranges[axis] = Some(range);
    }
    ranges
        .into_iter()
        .zip(shape)
        .map(|(range, &dim)| match range {
            Some(range) => Some(range),
            None => few_enough(&dim).then(|| (0..dim as usize).collect()),
        })
        .collect()
}
