//! Rules of ONNX operators for the shapes of their results.

use std::collections::BTreeMap;

use super::constant::{Constant, Numbers};
use super::fold::{Array, axis_of, broadcast, slice_ranges};
use super::net::{Net, NetNode, ValueId};
use super::proto::Attribute;

/// Why a node's shapes are not known.
#[derive(Debug)]
pub(super) enum Unknown {
    /// Of an input, which has its own reason.
    Input,
    /// The operator is not known.
    Operator,
    /// The shapes contradict each other.
    Wrong(String),
}

/// Lengths of the axes.
pub(super) type Shape = Vec<u64>;

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

fn wrong<T>(why: impl Into<String>) -> Result<T, Unknown> {
    Err(Unknown::Wrong(why.into()))
}

/// What a node's shapes follow from.
struct Given<'n> {
    net: &'n Net<'n>,
    node: &'n NetNode<'n>,
    arrays: &'n BTreeMap<ValueId, Array>,
}

impl Given<'_> {
    fn shape(&self, index: usize) -> Result<&[u64], Unknown> {
        let id = self.node.input(index).ok_or(Unknown::Input)?;
        self.net.values[id].shape.as_deref().ok_or(Unknown::Input)
    }

    fn list(&self, index: usize) -> Option<Vec<i64>> {
        let array = self.arrays.get(&self.node.input(index)?)?;
        match &array.numbers {
            Numbers::Ints(list) => Some(list.to_vec()),
            Numbers::Reals(list) => Some(list.iter().map(|&x| x as i64).collect()),
        }
    }

    /// Numbers that are an attribute in early versions and an input in later ones.
    fn either(&self, name: &str, index: usize) -> Option<Vec<i64>> {
        self.node.ints(name).map(<[i64]>::to_vec).or_else(|| self.list(index))
    }

    fn axes(list: &[i64], rank: usize) -> Result<Vec<usize>, Unknown> {
        list.iter()
            .map(|&axis| axis_of(axis, rank))
            .collect::<Option<_>>()
            .ok_or_else(|| Unknown::Wrong(format!("the axes {list:?} are not among {rank}")))
    }

    fn axis(&self, default: i64, rank: usize) -> Result<usize, Unknown> {
        Ok(Self::axes(&[self.node.int("axis").unwrap_or(default)], rank)?[0])
    }
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
const KEEPS_SHAPE: [&str; 55] = [
    "Relu",
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

/// Kernel, strides, dilations and paddings (before, then behind) of a convolution or pooling; a padding to equal sizes
/// or of partial windows counts as padding.
pub(super) fn windows(node: &NetNode<'_>, image: &[u64], kernel: &[u64]) -> Result<Windows, String> {
    let rank = image.len();
    let list = |name: &str, default: u64, n: usize| match node.ints(name) {
        None => Ok(vec![default; n]),
        Some(list) if list.len() == n => list
            .iter()
            .map(|&x| u64::try_from(x).ok().filter(|&x| x <= 1 << 20))
            .collect::<Option<Vec<u64>>>()
            .ok_or_else(|| format!("{name} {list:?} is out of range")),
        Some(list) => Err(format!("{name} has {} entries, expected {n}", list.len())),
    };
    let (strides, dilations) = (list("strides", 1, rank)?, list("dilations", 1, rank)?);
    let mut pads = list("pads", 0, 2 * rank)?;
    let mut output = Vec::with_capacity(rank);
    for axis in 0..rank {
        let (stride, dilation) = (strides[axis], dilations[axis]);
        if stride == 0 || dilation == 0 || kernel[axis] == 0 || kernel[axis] > 1 << 20 {
            return Err("kernel, stride and dilation are expected from 1 to 2^20".to_owned());
        }
        let reach = (kernel[axis] - 1) * dilation + 1;
        let size = image[axis];
        if let Some(way) = node.text("auto_pad").filter(|way| way.starts_with("SAME")) {
            let all = ((size.div_ceil(stride).max(1) - 1) * stride + reach).saturating_sub(size);
            let (small, large) = (all / 2, all - all / 2);
            (pads[axis], pads[axis + rank]) = if way == "SAME_UPPER" { (small, large) } else { (large, small) };
        }
        let padded = size + pads[axis] + pads[axis + rank];
        let Some(rest) = padded.checked_sub(reach) else {
            return Err(format!("a kernel that reaches over {reach} is larger than the padded image of {padded}"));
        };
        let mut count = rest / stride + 1;
        if node.int("ceil_mode").unwrap_or(0) != 0 && !rest.is_multiple_of(stride) {
            // A window must begin on the image or its padding in front.
            if count * stride < size + pads[axis] {
                pads[axis + rank] += stride - rest % stride;
                count += 1;
            }
        }
        output.push(count);
    }
    Ok(Windows { strides, dilations, pads, output })
}

/// How windows lie on an image.
#[derive(Debug)]
pub(super) struct Windows {
    pub(super) strides: Vec<u64>,
    pub(super) dilations: Vec<u64>,
    /// In front of every axis, then behind every axis.
    pub(super) pads: Vec<u64>,
    /// Places along every axis.
    pub(super) output: Vec<u64>,
}

fn conv(given: &Given<'_>) -> Result<Shape, Unknown> {
    let (x, w) = (given.shape(0)?, given.shape(1)?);
    if x.len() < 3 || x.len() != w.len() {
        return wrong("an image and filters of as many axes are expected");
    }
    let group = u64::try_from(given.node.int("group").unwrap_or(1)).unwrap_or(0);
    if group == 0 || w[1].checked_mul(group) != Some(x[1]) || !w[0].is_multiple_of(group) {
        return wrong(format!("{group} groups of {} channels do not make {}", w[1], x[1]));
    }
    let windows = windows(given.node, &x[2..], &w[2..]).map_err(Unknown::Wrong)?;
    Ok([&[x[0], w[0]], windows.output.as_slice()].concat())
}

fn pool(given: &Given<'_>) -> Result<Shape, Unknown> {
    let x = given.shape(0)?;
    let kernel = given.node.ints("kernel_shape").unwrap_or_default();
    if x.len() < 3 || kernel.len() + 2 != x.len() || kernel.iter().any(|&k| k < 1) {
        return wrong("an image and a kernel are expected");
    }
    let kernel: Shape = kernel.iter().map(|k| k.unsigned_abs()).collect();
    let windows = windows(given.node, &x[2..], &kernel).map_err(Unknown::Wrong)?;
    Ok([&x[..2], windows.output.as_slice()].concat())
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
