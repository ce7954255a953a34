//! Shapes of every value, and constants folded on the way.

use std::collections::BTreeMap;

use super::constant::{Constant, Numbers, Quantized};
use super::fold::{Array, evaluate, few};
use super::given::{Shape, Unknown};
use super::net::{Net, NetNode, ValueId};
use super::proto::Attribute;
use super::shapes::{constant_of, of_step};
use rdusim_base::diagnostics::Diagnostic;

/// Elements of a value at most.
const MOST_ELEMENTS: u64 = 1 << 50;

/// Elements that are worked out of all values together.
const MOST_FOLDED_TOGETHER: u64 = 32 << 20;

/// Fills in the shapes of all values that follow from the inputs, and folds what is constant. `assume` takes an unknown
/// operator's result to have the shape of its first input.
///
/// # Errors
/// Shapes that contradict each other.
pub(super) fn infer(net: &mut Net<'_>, assume: bool) -> Result<(), Diagnostic> {
    let mut arrays: BTreeMap<ValueId, Array> = BTreeMap::new();
    let mut left = MOST_FOLDED_TOGETHER;
    for id in 0..net.values.len() {
        let value = &net.values[id];
        check_size(&value.name, value.shape.as_deref().unwrap_or_default())?;
        if let (Some(shape), Some(numbers)) =
            (&value.shape, value.constant.as_ref().and_then(|constant| constant.numbers.clone()))
        {
            arrays.insert(id, Array { shape: shape.clone(), numbers });
        }
    }
    for index in 0..net.nodes.len() {
        let found = of_step(net, &net.nodes[index], &arrays);
        let is_known = found.is_ok();
        let shapes = match found {
            Ok(shapes) => shapes,
            Err(Unknown::Wrong(why)) => {
                let node = &net.nodes[index];
                let inputs: Vec<String> = node
                    .inputs
                    .iter()
                    .flatten()
                    .map(|&id| format!("{:?} {}", net.values[id].name, net.shape_text(id)))
                    .collect();
                let title = format!("{} {:?} on {}: {why}", node.op, node.title(net), inputs.join(", "));
                return Err(Diagnostic::new(title).with_help("the network's shapes contradict each other"));
            }
            Err(Unknown::Input | Unknown::Operator) => {
                let node = &net.nodes[index];
                let like = node.input(0).and_then(|first| net.values[first].shape.clone()).filter(|_| assume);
                let stated = |id: &Option<ValueId>| id.and_then(|id| net.values[id].shape.clone());
                node.outputs.iter().map(|output| stated(output).or_else(|| like.clone())).collect()
            }
        };
        if is_known {
            compare(net, index, &shapes)?;
        }
        settle(net, index, shapes, &mut arrays, &mut left)?;
    }
    Ok(())
}

/// Refuses a value of too many elements; an axis of none hides no other that is too long.
fn check_size(name: &str, shape: &[u64]) -> Result<(), Diagnostic> {
    let elements = shape.iter().try_fold(1u64, |all, &dim| all.checked_mul(dim.max(1)));
    if elements.is_none_or(|elements| elements > MOST_ELEMENTS) {
        return Err(Diagnostic::new(format!("value {name:?} has the shape {shape:?}: more than 2^50 elements")));
    }
    Ok(())
}

/// Refuses results whose shapes are stated otherwise than they follow.
fn compare(net: &Net<'_>, index: usize, shapes: &[Option<Shape>]) -> Result<(), Diagnostic> {
    for (output, shape) in net.nodes[index].outputs.iter().zip(shapes) {
        let (Some(id), Some(shape)) = (output, shape) else { continue };
        let value = &net.values[*id];
        let fits = |stated: &[Option<u64>]| {
            stated.len() == shape.len()
                && stated.iter().zip(shape.iter()).all(|(stated, &size)| stated.is_none_or(|s| s == size))
        };
        let known = value.shape.as_ref().map(|stated| stated.iter().copied().map(Some).collect::<Vec<_>>());
        if let Some(stated) = [&known, &value.stated].into_iter().flatten().find(|stated| !fits(stated)) {
            let axis = |size: &Option<u64>| size.map_or_else(|| "?".to_owned(), |size| size.to_string());
            let stated = format!("[{}]", stated.iter().map(axis).collect::<Vec<_>>().join(", "));
            let title = format!(
                "value {:?} is stated to be {stated}, and {} {:?} makes it {shape:?}",
                value.name, net.nodes[index].op, net.nodes[index].name
            );
            return Err(Diagnostic::new(title).with_help("the file contradicts itself: export it again"));
        }
    }
    Ok(())
}

/// Writes down the shapes of a node's outputs, and its results if they are constant.
fn settle(
    net: &mut Net<'_>,
    index: usize,
    shapes: Vec<Option<Shape>>,
    arrays: &mut BTreeMap<ValueId, Array>,
    left: &mut u64,
) -> Result<(), Diagnostic> {
    let outputs = net.nodes[index].outputs.clone();
    for (output, shape) in outputs.into_iter().zip(shapes) {
        let (Some(id), Some(shape)) = (output, shape) else { continue };
        check_size(&net.values[id].name, &shape)?;
        let value = &mut net.values[id];
        value.shape = Some(shape);
    }
    fold(net, index, arrays, left);
    let node = &net.nodes[index];
    let first = node.input(0).map_or(0, |first| net.values[first].data_type);
    let data_type = match node.op.as_str() {
        "Cast" => node.int("to").unwrap_or(first),
        "Shape" | "Size" | "ArgMax" | "ArgMin" | "NonZero" => 7,
        "Equal" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual" | "And" | "Or" | "Not" | "IsNaN" => 9,
        "Where" => node.input(1).map_or(first, |id| net.values[id].data_type),
        _ => first,
    };
    for id in node.outputs.clone().into_iter().flatten() {
        if net.values[id].data_type == 0 {
            net.values[id].data_type = data_type;
        }
    }
    Ok(())
}

/// What a `DequantizeLinear` of integers of eight bits says of them.
fn quantized(net: &Net<'_>, node: &NetNode<'_>) -> Option<Quantized> {
    if node.op != "DequantizeLinear" || node.int("block_size").unwrap_or(0) > 0 {
        return None;
    }
    let is_integer = |id: ValueId| matches!(net.values[id].data_type, 2 | 3);
    let (from, scale, zero) = (node.input(0)?, node.input(1)?, node.input(2));
    if !is_integer(from) && !zero.is_some_and(is_integer) {
        return None;
    }
    let rank = net.values[from].shape.as_ref()?.len().cast_signed() as i64;
    let axis = node.int("axis").unwrap_or(1);
    let axis = usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()?;
    let count = net.values[scale].shape.as_ref()?.iter().product::<u64>();
    let is_fp32 = net.values[scale].data_type == 1;
    Some(Quantized { axis: (count > 1).then_some(axis), is_fp32, has_zero_points: zero.is_some() })
}

/// Works out what is constant.
fn fold(net: &mut Net<'_>, index: usize, arrays: &mut BTreeMap<ValueId, Array>, left: &mut u64) {
    let node = &net.nodes[index];
    let Some(output) = node.output() else { return };
    let Some(shape) = net.values[output].shape.clone() else { return };
    let given: Vec<Option<&Array>> = node.inputs.iter().map(|id| id.and_then(|id| arrays.get(&id))).collect();
    let is_constant = |id: &ValueId| net.values[*id].constant.is_some();
    let from_shape = matches!(node.op.as_str(), "Shape" | "Size");
    if !from_shape && !node.inputs.iter().flatten().all(is_constant) {
        return;
    }
    let found = match node.op.as_str() {
        "Shape" => {
            let of = node.input(0).and_then(|id| net.values[id].shape.clone()).unwrap_or_default();
            let rank = of.len().cast_signed() as i64;
            let bring = |at: i64| (if at < 0 { at + rank } else { at }).clamp(0, rank) as usize;
            let (start, end) = (bring(node.int("start").unwrap_or(0)), bring(node.int("end").unwrap_or(rank)));
            let list = of.get(start..end).unwrap_or_default().iter().map(|&dim| dim.cast_signed()).collect();
            Some(Array { shape: shape.clone(), numbers: Numbers::Ints(list) })
        }
        "Size" => {
            let of = node.input(0).and_then(|id| net.values[id].shape.as_ref());
            let all = of.map_or(0, |shape| shape.iter().product::<u64>());
            Some(Array { shape: shape.clone(), numbers: Numbers::Ints([all.cast_signed()].into()) })
        }
        "Constant" => constant_of(node),
        "ConstantOfShape" => few(&shape).filter(|&count| count <= 1 << 16).map(|count| {
            let value = node.attributes.iter().find_map(|(name, value)| match value {
                Attribute::Tensor(tensor) if *name == "value" => Constant::of_tensor((**tensor).clone()).ok(),
                _ => None,
            });
            let ints = value
                .as_ref()
                .and_then(Constant::ints)
                .filter(|_| value.as_ref().is_some_and(|v| matches!(v.numbers, Some(Numbers::Ints(_)))));
            let numbers = if let Some(list) = ints {
                Numbers::Ints(vec![list.first().copied().unwrap_or(0); count].into())
            } else {
                let fill = value.as_ref().and_then(Constant::scalar).unwrap_or(0.0);
                Numbers::Reals(vec![fill; count].into())
            };
            Array { shape: shape.clone(), numbers }
        }),
        _ => few(&shape).filter(|&count| count as u64 <= *left).and_then(|_| evaluate(node, &given, &shape)),
    };
    if found.is_some() {
        *left = left.saturating_sub(few(&shape).unwrap_or(0) as u64);
    }
    let mut constant = match (&found, node.op.as_str()) {
        (Some(array), _) => Constant::of_numbers(array.numbers.clone()),
        (None, _) => Constant::opaque(),
    };
    // What only changes the shape of a stored tensor is still that tensor.
    let of = node.input(0).and_then(|id| net.values[id].constant.as_ref());
    match node.op.as_str() {
        "Identity" | "Cast" | "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten" | "QuantizeLinear"
        | "DequantizeLinear" => {
            if let Some(of) = of {
                constant.take(of, false, quantized(net, node));
            }
        }
        "Transpose" if shape.len() == 2 => {
            if let Some(of) = of {
                constant.take(of, true, None);
            }
        }
        "Constant" => {
            constant.stored = node.attributes.iter().find_map(|(name, value)| match value {
                Attribute::Tensor(tensor) if *name == "value" => Some((**tensor).clone().into()),
                _ => None,
            });
        }
        _ => {}
    }
    if let Some(array) = found {
        arrays.insert(output, array);
    }
    let others: Vec<ValueId> = node.outputs.iter().skip(1).copied().flatten().collect();
    net.values[output].constant = Some(constant);
    for other in others {
        net.values[other].constant = Some(Constant::opaque());
    }
    net.nodes[index].is_gone = !from_shape || net.values[output].constant.is_some();
}
