//! Rules of ONNX operators for the shapes of their results.

use std::collections::BTreeMap;

use super::attention;
use super::constant::{Constant, Numbers};
use super::fold::{Array, broadcast, slice_ranges};
use super::given::{Given, Shape, Unknown, wrong};
use super::image_shapes::{conv, conv_transpose, pool, resize};
use super::net::{Net, NetNode, ValueId};
use super::proto::Attribute;

pub(super) fn constant_of(node: &NetNode<'_>) -> Option<Array> {
    node.attributes.iter().find_map(|(name, value)| match (*name, value) {
        ("value", Attribute::Tensor(tensor)) => {
            let constant = Constant::of_tensor((**tensor).clone()).ok()?;
            Some(Array { shape: tensor.dims.clone(), numbers: constant.numbers? })
        }
        ("value_int", Attribute::Int(number)) => {
            Some(Array { shape: Vec::new(), numbers: Numbers::Ints([*number].into()) })
        }
        ("value_float", Attribute::Float(number)) => {
            Some(Array { shape: Vec::new(), numbers: Numbers::Reals([f64::from(*number)].into()) })
        }
        ("value_ints", Attribute::Ints(list)) => {
            Some(Array { shape: vec![list.len() as u64], numbers: Numbers::Ints(list.clone().into()) })
        }
        ("value_floats", Attribute::Floats(list)) => {
            let numbers = Numbers::Reals(list.iter().copied().map(f64::from).collect());
            Some(Array { shape: vec![list.len() as u64], numbers })
        }
        _ => None,
    })
}

/// The shapes of the outputs of a node.
pub(super) fn of_step(
    net: &Net<'_>,
    node: &NetNode<'_>,
    arrays: &BTreeMap<ValueId, Array>,
) -> Result<Vec<Option<Shape>>, Unknown> {
    let given = Given { net, node, arrays };
    let one = |shape: Shape| Ok(vec![Some(shape)]);
    match node.op.as_str() {
        "MatMul" => one(matmul(given.shape(0)?, given.shape(1)?)?),
        "Gemm" => one(gemm(&given)?),
        "Conv" => one(conv(&given)?),
        "ConvTranspose" => one(conv_transpose(&given)?),
        "Resize" | "Upsample" => one(resize(&given)?),
        "TopK" => top_k(&given),
        "Attention" => {
            let shape = |index: usize| given.shape(index).ok();
            if [4, 5].into_iter().any(|index| node.input(index).is_some() && shape(index).is_none()) {
                return Err(Unknown::Input);
            }
            let found = attention::shapes(node, [0, 1, 2, 4, 5].map(shape)).map_err(Unknown::Wrong)?;
            found.map(|list| list.into_iter().map(Some).collect()).ok_or(Unknown::Input)
        }
        "MaxPool" | "AveragePool" | "LpPool" => one(pool(&given)?),
        "GlobalAveragePool" | "GlobalMaxPool" => {
            let mut shape = given.shape(0)?.to_vec();
            shape.iter_mut().skip(2).for_each(|dim| *dim = 1);
            one(shape)
        }
        "Add" | "Sub" | "Mul" | "Div" | "Pow" | "Mod" | "Equal" | "Greater" | "Less" | "GreaterOrEqual"
        | "LessOrEqual" | "And" | "Or" | "Xor" | "Min" | "Max" | "Where" | "Sum" | "Mean" | "PRelu" => {
            let mut shape = given.shape(0)?.to_vec();
            for index in 1..node.inputs.len() {
                let Some(sum) = broadcast(&shape, given.shape(index)?) else {
                    return wrong("the shapes do not broadcast");
                };
                shape = sum;
            }
            one(shape)
        }
        "Expand" => one(expand(&given)?),
        "Concat" => one(concat(&given)?),
        "Split" => split(&given),
        "Slice" => one(slice(&given)?),
        "Gather" => one(gather(&given)?),
        "Reshape" => one(reshape(&given)?),
        "Flatten" => one(flatten(&given)?),
        "Squeeze" => one(squeeze(&given)?),
        "Unsqueeze" => one(unsqueeze(&given)?),
        "Transpose" => one(transpose(&given)?),
        "Shape" => {
            let rank = given.shape(0)?.len().cast_signed() as i64;
            let bring = |at: i64| (if at < 0 { at + rank } else { at }).clamp(0, rank);
            let (start, end) = (bring(node.int("start").unwrap_or(0)), bring(node.int("end").unwrap_or(rank)));
            one(vec![(end - start).max(0) as u64])
        }
        "Size" => one(Vec::new()),
        "Constant" => {
            let stored = node.attributes.iter().find_map(|(name, value)| match value {
                Attribute::Tensor(tensor) if *name == "value" => Some(tensor.dims.clone()),
                _ => None,
            });
            one(stored.or_else(|| constant_of(node).map(|array| array.shape)).ok_or(Unknown::Operator)?)
        }
        "ConstantOfShape" => {
            let list = given.list(0).ok_or(Unknown::Operator)?;
            one(positive(&list).ok_or(Unknown::Wrong(format!("{list:?} is no shape")))?)
        }
        "Range" => one(range(&given)?),
        "Tile" => one(tile(&given)?),
        "Pad" => one(pad(&given)?),
        op if op.starts_with("Reduce") || matches!(op, "ArgMax" | "ArgMin") => one(reduce(&given)?),
        op if KEEPS_SHAPE.contains(&op) => {
            let shape = given.shape(0)?.to_vec();
            Ok(node
                .outputs
                .iter()
                .enumerate()
                .map(|(index, _)| (index == 0 || op == "Dropout").then(|| shape.clone()))
                .collect())
        }
        _ => Err(Unknown::Operator),
    }
}

/// Operators whose first output has the shape of their first input.
const KEEPS_SHAPE: [&str; 56] = [
    "Relu",
    "Silu",
    "Sigmoid",
    "Tanh",
    "Erf",
    "Exp",
    "Log",
    "Sqrt",
    "Neg",
    "Abs",
    "Reciprocal",
    "Cast",
    "CastLike",
    "Identity",
    "Dropout",
    "Softmax",
    "LogSoftmax",
    "Clip",
    "LeakyRelu",
    "Elu",
    "Selu",
    "Celu",
    "HardSigmoid",
    "HardSwish",
    "Softplus",
    "Softsign",
    "Gelu",
    "Mish",
    "Swish",
    "Not",
    "Floor",
    "Ceil",
    "Round",
    "Sign",
    "Sin",
    "Cos",
    "BatchNormalization",
    "InstanceNormalization",
    "GroupNormalization",
    "LRN",
    "LayerNormalization",
    "RMSNormalization",
    "SimplifiedLayerNormalization",
    "com.microsoft.FastGelu",
    "com.microsoft.Gelu",
    "com.microsoft.BiasGelu",
    "com.microsoft.QuickGelu",
    "com.microsoft.SkipLayerNormalization",
    "Trilu",
    "CumSum",
    "QuantizeLinear",
    "DequantizeLinear",
    "ThresholdedRelu",
    "LpNormalization",
    "IsNaN",
    "RotaryEmbedding",
];

fn positive(list: &[i64]) -> Option<Shape> {
    list.iter().map(|&n| u64::try_from(n).ok()).collect()
}

fn expand(given: &Given<'_>) -> Result<Shape, Unknown> {
    let target = given.list(1).and_then(|list| positive(&list)).ok_or(Unknown::Operator)?;
    match broadcast(given.shape(0)?, &target) {
        Some(shape) => Ok(shape),
        None => wrong(format!("{target:?} is no shape to expand to")),
    }
}

fn concat(given: &Given<'_>) -> Result<Shape, Unknown> {
    let Given { node, .. } = *given;
    let mut shape = given.shape(0)?.to_vec();
    let axis = given.axis(1, shape.len())?;
    for index in 1..node.inputs.len() {
        let other = given.shape(index)?;
        let fits =
            other.len() == shape.len() && other.iter().zip(&shape).enumerate().all(|(at, (a, b))| at == axis || a == b);
        if !fits {
            return wrong("all but the joined axis must be equal");
        }
        shape[axis] += other[axis];
    }
    Ok(shape)
}

fn slice(given: &Given<'_>) -> Result<Shape, Unknown> {
    let Given { node, arrays, .. } = *given;
    let shape = given.shape(0)?.to_vec();
    let inputs: Vec<Option<&Array>> = node.inputs.iter().map(|id| id.and_then(|id| arrays.get(&id))).collect();
    let ranges = slice_ranges(node, &inputs, &shape).ok_or(Unknown::Operator)?;
    Ok(ranges.iter().map(|range| range.len() as u64).collect())
}

fn flatten(given: &Given<'_>) -> Result<Shape, Unknown> {
    let Given { node, .. } = *given;
    let shape = given.shape(0)?;
    let axis = node.int("axis").unwrap_or(1);
    let axis = if axis < 0 { axis + shape.len().cast_signed() as i64 } else { axis };
    let axis = usize::try_from(axis).ok().filter(|&axis| axis <= shape.len());
    let Some(axis) = axis else { return wrong("the axis is beyond the shape") };
    Ok(vec![shape[..axis].iter().product(), shape[axis..].iter().product()])
}

fn squeeze(given: &Given<'_>) -> Result<Shape, Unknown> {
    let shape = given.shape(0)?;
    let gone = match given.either("axes", 1) {
        Some(list) => Given::axes(&list, shape.len())?,
        None => (0..shape.len()).filter(|&axis| shape[axis] == 1).collect(),
    };
    if gone.iter().any(|&axis| shape[axis] != 1) {
        return wrong("an axis to be dropped is longer than 1");
    }
    Ok(shape.iter().enumerate().filter(|(axis, _)| !gone.contains(axis)).map(|(_, &dim)| dim).collect())
}

fn unsqueeze(given: &Given<'_>) -> Result<Shape, Unknown> {
    let list = given.either("axes", 1).ok_or(Unknown::Operator)?;
    let shape = given.shape(0)?;
    let rank = shape.len() + list.len();
    let new = Given::axes(&list, rank)?;
    let mut old = shape.iter();
    let dim = |axis: usize| if new.contains(&axis) { Some(1) } else { old.next().copied() };
    match (0..rank).map(dim).collect::<Option<Shape>>() {
        Some(shape) => Ok(shape),
        None => wrong("an axis is named twice"),
    }
}

fn transpose(given: &Given<'_>) -> Result<Shape, Unknown> {
    let Given { node, .. } = *given;
    let shape = given.shape(0)?;
    let perm = match node.ints("perm") {
        Some(perm) => Given::axes(perm, shape.len())?,
        None => (0..shape.len()).rev().collect(),
    };
    let mut sorted = perm.clone();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..shape.len()) {
        return wrong(format!("{perm:?} is no order of the axes"));
    }
    Ok(perm.iter().map(|&axis| shape[axis]).collect())
}

fn range(given: &Given<'_>) -> Result<Shape, Unknown> {
    let Given { node, arrays, .. } = *given;
    let number = |index: usize| {
        let array = arrays.get(&node.input(index)?)?;
        match &array.numbers {
            Numbers::Ints(list) => list.first().map(|&x| x as f64),
            Numbers::Reals(list) => list.first().copied(),
        }
    };
    let (Some(start), Some(limit), Some(by)) = (number(0), number(1), number(2)) else {
        return Err(Unknown::Operator);
    };
    let count = ((limit - start) / by).ceil();
    if !count.is_finite() || count > 1e12 {
        return wrong("the range does not end");
    }
    Ok(vec![count.max(0.0) as u64])
}

fn tile(given: &Given<'_>) -> Result<Shape, Unknown> {
    let shape = given.shape(0)?;
    let times = given.list(1).and_then(|list| positive(&list)).ok_or(Unknown::Operator)?;
    if times.len() != shape.len() {
        return wrong("as many repeats as axes are expected");
    }
    Ok(shape.iter().zip(times).map(|(dim, times)| dim.saturating_mul(times)).collect())
}

fn pad(given: &Given<'_>) -> Result<Shape, Unknown> {
    let shape = given.shape(0)?;
    let pads = given.either("pads", 1).ok_or(Unknown::Operator)?;
    if pads.len() != 2 * shape.len() {
        return wrong("two paddings an axis are expected");
    }
    let dim = |axis: usize| {
        let all = i128::from(shape[axis]) + i128::from(pads[axis]) + i128::from(pads[axis + shape.len()]);
        u64::try_from(all).ok()
    };
    match (0..shape.len()).map(dim).collect::<Option<Shape>>() {
        Some(shape) => Ok(shape),
        None => wrong("the padding takes more than there is"),
    }
}

fn gather(given: &Given<'_>) -> Result<Shape, Unknown> {
    let (data, indices) = (given.shape(0)?, given.shape(1)?);
    let axis = given.axis(0, data.len())?;
    Ok([&data[..axis], indices, &data[axis + 1..]].concat())
}

fn matmul(a: &[u64], b: &[u64]) -> Result<Shape, Unknown> {
    if a.is_empty() || b.is_empty() {
        return wrong("a number is no matrix");
    }
    let wide = |shape: &[u64], front: bool| match shape {
        [one] if front => vec![1, *one],
        [one] => vec![*one, 1],
        more => more.to_vec(),
    };
    let (x, y) = (wide(a, true), wide(b, false));
    let (n, m) = (x.len(), y.len());
    if x[n - 1] != y[m - 2] {
        return wrong(format!("{} columns meet {} rows", x[n - 1], y[m - 2]));
    }
    let Some(mut shape) = broadcast(&x[..n - 2], &y[..m - 2]) else {
        return wrong("the leading axes do not broadcast");
    };
    if a.len() > 1 {
        shape.push(x[n - 2]);
    }
    if b.len() > 1 {
        shape.push(y[m - 1]);
    }
    Ok(shape)
}

fn gemm(given: &Given<'_>) -> Result<Shape, Unknown> {
    let (&[a, b], &[c, d]) = (given.shape(0)?, given.shape(1)?) else { return wrong("two matrices are expected") };
    let flag = |name: &str| given.node.int(name).unwrap_or(0) != 0;
    let (m, k) = if flag("transA") { (b, a) } else { (a, b) };
    let (rows, n) = if flag("transB") { (d, c) } else { (c, d) };
    if k != rows {
        return wrong(format!("{k} columns meet {rows} rows"));
    }
    Ok(vec![m, n])
}

fn split(given: &Given<'_>) -> Result<Vec<Option<Shape>>, Unknown> {
    let shape = given.shape(0)?;
    let axis = given.axis(0, shape.len())?;
    let n = given.node.outputs.len() as u64;
    let parts: Shape = if let Some(list) = given.either("split", 1) {
        let list: Option<Shape> = list.iter().map(|&part| u64::try_from(part).ok()).collect();
        list.ok_or_else(|| Unknown::Wrong("a part is negative".to_owned()))?
    } else {
        let each = shape[axis].div_ceil(n.max(1));
        (0..n).map(|part| each.min(shape[axis].saturating_sub(part.saturating_mul(each)))).collect()
    };
    let sum = parts.iter().try_fold(0u64, |sum, &part| sum.checked_add(part));
    if parts.len() as u64 != n || sum != Some(shape[axis]) {
        return wrong(format!("the parts {parts:?} do not make {}", shape[axis]));
    }
    let part = |&part: &u64| {
        let mut shape = shape.to_vec();
        shape[axis] = part;
        Some(shape)
    };
    Ok(parts.iter().map(part).collect())
}

/// Values and indices.
fn top_k(given: &Given<'_>) -> Result<Vec<Option<Shape>>, Unknown> {
    let mut shape = given.shape(0)?.to_vec();
    let axis = given.axis(-1, shape.len())?;
    let k = given.node.int("k").or_else(|| given.list(1)?.first().copied()).ok_or(Unknown::Operator)?;
    let Some(k) = u64::try_from(k).ok().filter(|&k| k > 0 && k <= shape[axis]) else {
        return wrong(format!("the {k} largest of {} are asked for", shape[axis]));
    };
    shape[axis] = k;
    Ok(vec![Some(shape); given.node.outputs.len()])
}

fn reshape(given: &Given<'_>) -> Result<Shape, Unknown> {
    let shape = given.shape(0)?;
    let target = given.either("shape", 1).ok_or(Unknown::Operator)?;
    let all: u64 = shape.iter().product();
    let keeps_zero = given.node.int("allowzero").unwrap_or(0) != 0;
    let mut dims: Vec<Option<u64>> = Vec::with_capacity(target.len());
    for (axis, &dim) in target.iter().enumerate() {
        dims.push(match dim {
            -1 => None,
            0 if !keeps_zero => Some(*shape.get(axis).ok_or_else(|| Unknown::Wrong("a 0 stands for no axis".into()))?),
            _ => Some(u64::try_from(dim).map_err(|_| Unknown::Wrong(format!("{target:?} is no shape")))?),
        });
    }
    let known = dims.iter().flatten().try_fold(1u64, |all, &dim| all.checked_mul(dim)).unwrap_or(u64::MAX);
    let open = dims.iter().filter(|dim| dim.is_none()).count();
    let fits = match open {
        0 => known == all,
        1 => known > 0 && all.is_multiple_of(known),
        _ => false,
    };
    if !fits {
        return wrong(format!("{all} elements do not make {target:?}"));
    }
    Ok(dims.into_iter().map(|dim| dim.unwrap_or_else(|| all / known)).collect())
}

fn reduce(given: &Given<'_>) -> Result<Shape, Unknown> {
    let shape = given.shape(0)?;
    let is_arg = given.node.op.starts_with("Arg");
    let list = if is_arg { Some(vec![given.node.int("axis").unwrap_or(0)]) } else { given.either("axes", 1) };
    let gone = match list {
        Some(list) => Given::axes(&list, shape.len())?,
        None if given.node.input(1).is_some() => return Err(Unknown::Operator),
        None => (0..shape.len()).collect(),
    };
    let keeps = given.node.int("keepdims").unwrap_or(1) != 0;
    let dims = shape.iter().enumerate().filter(|(axis, _)| keeps || !gone.contains(axis));
    Ok(dims.map(|(axis, &dim)| if gone.contains(&axis) { 1 } else { dim }).collect())
}
