//! Functions that exporters take apart, put together again: GELU, `SiLU`, norms, rotary positions, masks of attention.
//!
//! A pattern rewrites its last node into the function; what then makes nothing that is read goes away.

use super::constant::Numbers;
use super::net::{Net, NetNode, ValueId};

/// Nodes walked back at most in search of a value.
const FAR: usize = 12;

/// Rewrites every pattern; what it found that a reader should know.
pub(super) fn recognise(net: &mut Net<'_>) -> Vec<String> {
    drop_copies(net);
    for index in 0..net.nodes.len() {
        match net.nodes[index].op.as_str() {
            _ if net.nodes[index].is_gone => {}
            "Erf" | "Tanh" => gelu(net, index),
            "Sigmoid" => silu(net, index),
            "ReduceMean" | "GlobalAveragePool" => norm(net, index),
            "Add" => rotary(net, index),
            _ => {}
        }
    }
    prune(net);
    let mut notes = Vec::new();
    for index in 0..net.nodes.len() {
        if net.nodes[index].op == "Softmax" && !net.nodes[index].is_gone {
            notes.extend(attention(net, index).unwrap_or_default());
        }
    }
    prune(net);
    notes.sort_unstable();
    notes.dedup();
    notes
}

/// Takes away nodes that hand on what they get.
fn drop_copies(net: &mut Net<'_>) {
    for index in 0..net.nodes.len() {
        let node = &net.nodes[index];
        let forwards_sums = match node.op.as_str() {
            "Identity" | "Dropout" | "CastLike" | "QuantizeLinear" | "DequantizeLinear" => true,
            "Cast" => {
                let is_float = |kind: i64| matches!(kind, 1 | 10 | 11 | 16);
                let from = node.input(0).map_or(0, |id| net.values[id].data_type);
                is_float(node.int("to").unwrap_or(0)) && is_float(from)
            }
            "Expand" | "Reshape" | "Slice" | "Concat" => {
                let (Some(from), Some(to)) = (node.input(0), node.output()) else { continue };
                node.inputs.len() <= if node.op == "Concat" { 1 } else { 5 }
                    && net.values[from].shape.is_some()
                    && net.values[from].shape == net.values[to].shape
            }
            "Sum" | "Max" | "Min" | "Mean" => node.inputs.len() == 1,
            _ => false,
        };
        if node.is_gone || !forwards_sums {
            continue;
        }
        let (Some(from), Some(to)) = (node.input(0), node.output()) else { continue };
        if let Some(quantized) = net.values[to].constant.as_ref().and_then(|constant| constant.quantized)
            && let Some(constant) = &mut net.values[from].constant
        {
            constant.quantized = Some(quantized);
        }
        if net.nodes[index].op == "QuantizeLinear" && net.values[from].constant.is_none() {
            mark_quantised(net, index, to);
        }
        net.nodes[index].is_gone = true;
        replace(net, to, from);
    }
}

/// Marks what is computed of the integers of eight bits that a `QuantizeLinear` makes, as first operand, behind `DequantizeLinear`.
fn mark_quantised(net: &mut Net<'_>, index: usize, integers: ValueId) {
    // `TensorProto` counts unsigned integers of eight bits as 2, signed ones as 3; without a zero point they are unsigned.
    let node = &net.nodes[index];
    let zero = node.input(2).map(|zero| net.values[zero].data_type);
    let kind = zero.or_else(|| node.int("output_dtype").filter(|&kind| kind != 0)).unwrap_or(2);
    if !matches!(kind, 2 | 3) {
        return;
    }
    let mut made = Vec::new();
    for &back in net.values[integers].consumers.iter().filter(|&&reader| net.nodes[reader].op == "DequantizeLinear") {
        let Some(float) = net.nodes[back].output() else { continue };
        let readers = net.values[float].consumers.iter().map(|&reader| &net.nodes[reader]);
        made.extend(readers.filter(|reader| reader.input(0) == Some(float)).filter_map(NetNode::output));
    }
    net.quantised.extend(made);
}

/// Lets everything that reads one value read another.
fn replace(net: &mut Net<'_>, old: ValueId, new: ValueId) {
    for index in std::mem::take(&mut net.values[old].consumers) {
        for input in net.nodes[index].inputs.iter_mut().filter(|input| **input == Some(old)) {
            *input = Some(new);
        }
        net.values[new].consumers.push(index);
    }
    net.values[new].consumers.sort_unstable();
    net.values[new].consumers.dedup();
    if net.values[old].is_output {
        net.values[old].is_output = false;
        net.values[new].is_output = true;
        net.outputs.iter_mut().filter(|output| **output == old).for_each(|output| *output = new);
    }
}

/// Marks nodes whose results nobody reads.
fn prune(net: &mut Net<'_>) {
    for index in (0..net.nodes.len()).rev() {
        let is_read = |id: &ValueId| net.values[*id].is_output || net.readers(*id).next().is_some();
        if !net.nodes[index].outputs.iter().flatten().any(is_read) {
            net.nodes[index].is_gone = true;
        }
    }
}

/// Makes a node another function.
fn rewrite(net: &mut Net<'_>, index: usize, op: &str, inputs: &[ValueId]) {
    for &input in inputs {
        let consumers = &mut net.values[input].consumers;
        if !consumers.contains(&index) {
            consumers.push(index);
            consumers.sort_unstable();
        }
    }
    let old: Vec<ValueId> = net.nodes[index].inputs.iter().flatten().copied().collect();
    for id in old.into_iter().filter(|id| !inputs.contains(id)) {
        net.values[id].consumers.retain(|&consumer| consumer != index);
    }
    let node = &mut net.nodes[index];
    op.clone_into(&mut node.op);
    node.inputs = inputs.iter().copied().map(Some).collect();
    node.attributes.clear();
}

/// The one node that reads a value.
fn sole_reader(net: &Net<'_>, value: ValueId) -> Option<usize> {
    let mut readers = net.readers(value);
    readers.next().filter(|_| readers.next().is_none() && !net.values[value].is_output)
}

/// The node that makes a value, if it is one of these.
fn made_by<'n, 'a>(net: &'n Net<'a>, value: ValueId, ops: &[&str]) -> Option<&'n NetNode<'a>> {
    net.producer(value).filter(|node| ops.contains(&node.op.as_str()))
}

fn scalar(net: &Net<'_>, value: ValueId) -> Option<f64> {
    net.values[value].constant.as_ref()?.scalar()
}

fn is_near(found: Option<f64>, wanted: f64) -> bool {
    found.is_some_and(|found| (found - wanted).abs() <= 1e-3 * wanted.abs())
}

/// Of a binary node that reads `value`, the other input.
fn other(node: &NetNode<'_>, value: ValueId) -> Option<ValueId> {
    match (node.input(0)?, node.input(1)?) {
        (a, b) if a == value => Some(b),
        (a, b) if b == value => Some(a),
        _ => None,
    }
}

/// Whether a value is computed from another within a few nodes.
fn comes_from(net: &Net<'_>, value: ValueId, wanted: ValueId) -> bool {
    let mut open = vec![(value, 0)];
    while let Some((id, depth)) = open.pop() {
        if id == wanted {
            return true;
        }
        if let Some(node) = net.producer(id).filter(|_| depth < FAR) {
            open.extend(node.inputs.iter().flatten().map(|&input| (input, depth + 1)));
        }
    }
    false
}

/// `0.5 x (1 + f(x))` in any association, f an error function or hyperbolic tangent.
fn gelu(net: &mut Net<'_>, index: usize) {
    let found = || {
        let output = net.nodes[index].output()?;
        let plus_one = sole_reader(net, output).filter(|&at| net.nodes[at].op == "Add")?;
        let one = other(&net.nodes[plus_one], output)?;
        if !is_near(scalar(net, one), 1.0) {
            return None;
        }
        let mut value = net.nodes[plus_one].output()?;
        let (mut x, mut is_halved, mut last) = (None, false, None);
        // Up to two factors: x and one half, in any order, or both in one.
        for _ in 0..2 {
            let Some(at) = sole_reader(net, value).filter(|&at| net.nodes[at].op == "Mul") else { break };
            let factor = other(&net.nodes[at], value)?;
            let halved = made_by(net, factor, &["Mul", "Div"]).and_then(|node| {
                let (a, b) = (node.input(0)?, node.input(1)?);
                let (number, rest) = if net.values[a].constant.is_some() { (a, b) } else { (b, a) };
                let wanted = if node.op == "Div" { 2.0 } else { 0.5 };
                is_near(scalar(net, number), wanted).then_some(rest)
            });
            if is_near(scalar(net, factor), 0.5) && !is_halved {
                is_halved = true;
            } else if let Some(of) = halved.filter(|_| x.is_none() && !is_halved) {
                (x, is_halved) = (Some(of), true);
            } else if x.is_none() {
                x = Some(factor);
            } else {
                break;
            }
            last = Some(at);
            value = net.nodes[at].output()?;
        }
        let (x, inside) = (x.filter(|_| is_halved)?, net.nodes[index].input(0)?);
        Some((last.filter(|_| comes_from(net, inside, x))?, x))
    };
    let found: Option<(usize, ValueId)> = found();
    if let Some((last, x)) = found {
        rewrite(net, last, "Gelu", &[x]);
    }
}

/// `x sigmoid(c x)`.
fn silu(net: &mut Net<'_>, index: usize) {
    let found = || {
        let (input, output) = (net.nodes[index].input(0)?, net.nodes[index].output()?);
        let last = sole_reader(net, output).filter(|&at| net.nodes[at].op == "Mul")?;
        let x = other(&net.nodes[last], output)?;
        let scaled = || {
            let node = made_by(net, input, &["Mul"])?;
            scalar(net, other(node, x)?).map(|_| ())
        };
        (input == x || scaled().is_some()).then_some((last, x))
    };
    if let Some((last, x)) = found() {
        rewrite(net, last, "Silu", &[x]);
    }
}

/// Whether a node reduces the last axis only.
fn reduces_last(net: &Net<'_>, node: &NetNode<'_>) -> bool {
    let rank = node.input(0).and_then(|id| net.values[id].shape.as_ref()).map_or(0, Vec::len).cast_signed() as i64;
    if node.op == "GlobalAveragePool" {
        return rank == 3;
    }
    let given = node.input(1).and_then(|id| net.values[id].constant.as_ref()?.ints());
    let axes = node.ints("axes").or(given.as_deref());
    matches!(axes, Some([axis]) if *axis == -1 || *axis == rank - 1)
}

/// Whether two values are the same, or made by equal nodes of the same.
fn is_same(net: &Net<'_>, a: ValueId, b: ValueId) -> bool {
    let equal = |x: &NetNode<'_>, y: &NetNode<'_>| {
        x.op == y.op
            && x.inputs.len() == y.inputs.len()
            && x.inputs.iter().zip(&y.inputs).all(|(x, y)| match (x, y) {
                (Some(x), Some(y)) => {
                    x == y
                        || matches!((net.producer(*x), net.producer(*y)), (Some(x), Some(y)) if x.op == y.op && x.inputs == y.inputs)
                }
                _ => x == y,
            })
    };
    a == b || matches!((net.producer(a), net.producer(b)), (Some(x), Some(y)) if x.op == "Sub" && equal(x, y))
}

/// `(x - mean x) / sqrt(mean (x - mean x)^2 + e)`, or the same without the means, with gain and bias.
fn norm(net: &mut Net<'_>, index: usize) {
    let found = || {
        let node = &net.nodes[index];
        if !reduces_last(net, node) {
            return None;
        }
        let square = made_by(net, node.input(0)?, &["Pow", "Mul"])?;
        let (s, with) = (square.input(0)?, square.input(1)?);
        let is_square = if square.op == "Pow" { is_near(scalar(net, with), 2.0) } else { is_same(net, s, with) };
        if !is_square {
            return None;
        }
        let centred = made_by(net, s, &["Sub"]).and_then(|sub| {
            let (x, mean) = (sub.input(0)?, sub.input(1)?);
            let node = made_by(net, mean, &["ReduceMean", "GlobalAveragePool"])?;
            (node.input(0) == Some(x) && reduces_last(net, node)).then_some((x, mean))
        });
        // From the variance to what divides, or to what multiplies.
        let mut value = node.output()?;
        let (mut is_root, mut is_inverse) = (false, false);
        let normed = loop {
            let at = sole_reader(net, value)?;
            let reader = &net.nodes[at];
            match reader.op.as_str() {
                "Add" if !is_root && scalar(net, other(reader, value)?).is_some() => {}
                "Sqrt" if !is_root => is_root = true,
                "Pow" if !is_root && reader.input(0) == Some(value) => {
                    let power = scalar(net, reader.input(1)?)?;
                    (is_root, is_inverse) = (true, power < 0.0);
                }
                "Reciprocal" if is_root && !is_inverse => is_inverse = true,
                "Div" if is_root && !is_inverse && scalar(net, reader.input(0)?).is_some() => is_inverse = true,
                "Div" if is_root && !is_inverse && is_same(net, reader.input(0)?, s) => break at,
                "Mul" if is_root && is_inverse && is_same(net, other(reader, value)?, s) => break at,
                "Mul" if is_root && is_inverse => {
                    let (x, mean) = centred?;
                    return folded_norm(net, x, mean, at, other(reader, value)?);
                }
                _ => return None,
            }
            value = reader.output()?;
        };
        let (op, x) = centred.map_or(("RMSNormalization", s), |(x, _)| ("LayerNormalization", x));
        let columns = *net.values[x].shape.as_ref()?.last()?;
        let mut inputs = vec![x];
        let mut last = normed;
        for (wanted, count) in [("Mul", 2), ("Add", 3)] {
            let vector = || {
                let value = net.nodes[last].output()?;
                let at = sole_reader(net, value).filter(|&at| net.nodes[at].op == wanted)?;
                let vector = other(&net.nodes[at], value)?;
                let shape = net.values[vector].shape.as_ref()?;
                let is_vector = shape.iter().product::<u64>() == columns && shape.last() == Some(&columns);
                (is_vector && net.values[vector].constant.is_some()).then_some((at, vector))
            };
            // A norm without a mean has a gain alone.
            let is_its_own = count == 2 || op == "LayerNormalization";
            if is_its_own
                && inputs.len() + 1 == count
                && let Some((at, vector)) = vector()
            {
                inputs.push(vector);
                last = at;
            }
        }
        Some((last, op, inputs))
    };
    if let Some((last, op, inputs)) = found() {
        rewrite(net, last, op, &inputs);
    }
}

/// The end of a norm as TensorFlow writes it: `x m + (bias - mean m)`, m the gain over the root, made by node `at`.
fn folded_norm(
    net: &Net<'_>,
    x: ValueId,
    mean: ValueId,
    at: usize,
    gain: ValueId,
) -> Option<(usize, &'static str, Vec<ValueId>)> {
    net.values[gain].constant.as_ref()?;
    let m = net.nodes[at].output()?;
    let times = |wanted: ValueId| {
        let is_it = |&index: &usize| net.nodes[index].op == "Mul" && other(&net.nodes[index], m) == Some(wanted);
        net.nodes[net.readers(m).find(is_it)?].output()
    };
    let (scaled, shift) = (times(x)?, times(mean)?);
    // A bias of zeros is left out.
    let less = &net.nodes[sole_reader(net, shift)?];
    let bias = match less.op.as_str() {
        "Neg" => None,
        "Sub" if less.input(1) == Some(shift) => less.input(0),
        _ => return None,
    };
    if bias.is_some_and(|bias| net.values[bias].constant.is_none()) {
        return None;
    }
    let last = sole_reader(net, scaled).filter(|&index| net.nodes[index].op == "Add")?;
    let inputs = [Some(x), Some(gain), bias].into_iter().flatten().collect();
    (other(&net.nodes[last], scaled) == less.output()).then_some((last, "LayerNormalization", inputs))
}

/// `x cos + [-x2, x1] sin`.
fn rotary(net: &mut Net<'_>, index: usize) {
    let node = &net.nodes[index];
    let found = |turned: ValueId, plain: ValueId| {
        let (turned, plain) = (made_by(net, turned, &["Mul"])?, made_by(net, plain, &["Mul"])?);
        let joined = turned.inputs.iter().flatten().find_map(|&id| made_by(net, id, &["Concat"]))?;
        let (first, second) = (joined.input(0)?, joined.input(1)?);
        let negative = made_by(net, first, &["Neg"])?;
        let of = |value: ValueId| made_by(net, value, &["Slice", "Split"])?.input(0);
        let x = of(second).filter(|&x| negative.input(0).and_then(of) == Some(x))?;
        plain.inputs.contains(&Some(x)).then_some(x)
    };
    let (Some(a), Some(b)) = (node.input(0), node.input(1)) else { return };
    if let Some(x) = found(a, b).or_else(|| found(b, a)) {
        rewrite(net, index, "Rotary", &[x]);
    }
}

/// Masks between the scores and the softmax of attention.
fn attention(net: &mut Net<'_>, softmax: usize) -> Option<Vec<String>> {
    // The way from the softmax back to the product: which nodes, and on which input it goes.
    let mut way: Vec<(usize, ValueId)> = Vec::new();
    let mut value = net.nodes[softmax].input(0)?;
    let product = loop {
        let at = net.values[value].producer?;
        let node = &net.nodes[at];
        let candidates: Vec<ValueId> = match node.op.as_str() {
            "MatMul" => break at,
            "Add" | "Sub" | "Mul" | "Div" | "Max" => node.inputs.iter().flatten().copied().collect(),
            "Where" => node.inputs.iter().skip(1).flatten().copied().collect(),
            "Clip" | "Reshape" => node.input(0).into_iter().collect(),
            _ => return None,
        };
        let scores = candidates.into_iter().find(|&id| leads_to_product(net, id, FAR))?;
        way.push((at, scores));
        value = scores;
        if way.len() > FAR {
            return None;
        }
    };
    let shape = net.values[net.nodes[product].output()?].shape.clone()?;
    let (queries, keys) = (*shape.get(shape.len().checked_sub(2)?)?, *shape.last()?);
    let (mut is_causal, mut notes) = (false, Vec::new());
    let mut masks = Vec::new();
    for &(at, scores) in &way {
        let node = &net.nodes[at];
        let masks_here = match node.op.as_str() {
            "Where" => true,
            "Add" | "Sub" => other(node, scores).is_some_and(|mask| scalar(net, mask).is_none()),
            _ => false,
        };
        if !masks_here {
            continue;
        }
        masks.push((at, scores));
        for mask in node.inputs.iter().flatten().copied().filter(|&id| id != scores) {
            let kept = causality(net, mask, queries, keys);
            is_causal |= kept.is_causal();
            notes.extend(kept.note().filter(|_| queries > 1));
        }
    }
    let is_causal = is_causal && queries > 1;
    let last = masks.first().copied();
    for &(at, scores) in masks.iter().rev() {
        let causal_here = is_causal && last.map(|(last, _)| last) == Some(at);
        // A constant factor goes with the mask.
        let scaled = made_by(net, scores, &["Mul", "Div"]).and_then(|node| {
            let (a, b) = (node.input(0)?, node.input(1)?);
            let (number, rest) = if net.values[a].constant.is_some() { (a, b) } else { (b, a) };
            net.values[number].constant.is_some().then_some(rest)
        });
        let from = scaled.filter(|_| sole_reader(net, scores) == Some(at)).unwrap_or(scores);
        rewrite(net, at, if causal_here { "CausalMask" } else { "Mask" }, &[from]);
    }
    if is_causal {
        net.nodes[product].is_causal = true;
        let mut value = net.nodes[softmax].output()?;
        while let Some(reader) = sole_reader(net, value) {
            if net.nodes[reader].op == "MatMul" {
                net.nodes[reader].is_causal = true;
                break;
            }
            // What stands for padded rows, or a reshape of the heads.
            if !matches!(net.nodes[reader].op.as_str(), "Where" | "Reshape" | "Mul") {
                break;
            }
            value = net.nodes[reader].output()?;
        }
    }
    Some(notes)
}

/// Whether a value is a product of two activations, scaled or masked.
fn leads_to_product(net: &Net<'_>, value: ValueId, depth: usize) -> bool {
    let Some(node) = net.producer(value).filter(|_| depth > 0) else { return false };
    match node.op.as_str() {
        "MatMul" => node.inputs.iter().flatten().all(|&id| net.values[id].constant.is_none()),
        "Add" | "Sub" | "Mul" | "Div" | "Max" | "Where" | "Clip" | "Reshape" => {
            node.inputs.iter().flatten().any(|&id| leads_to_product(net, id, depth - 1))
        }
        _ => false,
    }
}

/// Which pairs of a query and a key a mask keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// All, as far as the network says.
    All,
    /// The keys up to the query.
    Triangle,
    /// Some, in another pattern.
    Others,
    /// The mask is square, constant and too large to be read.
    Unknown,
}

impl Kept {
    /// Whether the keys after the query are taken to be left out.
    pub(super) fn is_causal(self) -> bool {
        matches!(self, Self::Triangle | Self::Unknown)
    }

    /// What a reader should know of it.
    pub(super) fn note(self) -> Option<String> {
        match self {
            Self::All | Self::Triangle => None,
            Self::Others => Some(
                "a constant mask of attention leaves out pairs that are no triangle: the products compute all pairs, as a \
                 kernel that skips nothing does"
                    .to_owned(),
            ),
            Self::Unknown => {
                Some("masks of attention that are too large to be read are taken to be causal".to_owned())
            }
        }
    }
}

/// Which pairs a mask keeps.
pub(super) fn causality(net: &Net<'_>, mask: ValueId, queries: u64, keys: u64) -> Kept {
    let mut open = vec![(mask, 0)];
    let mut found = Kept::All;
    while let Some((id, depth)) = open.pop() {
        let value = &net.values[id];
        let shape = value.shape.as_deref().unwrap_or_default();
        if let (Some(constant), [.., rows, columns]) = (&value.constant, shape)
            && (*rows, *columns) == (queries, keys)
            && queries > 1
        {
            match &constant.numbers {
                Some(numbers) if is_lower_triangle(numbers, queries, keys) => return Kept::Triangle,
                Some(numbers) if leaves_out(numbers) && found == Kept::All => found = Kept::Others,
                Some(_) => {}
                None => found = Kept::Unknown,
            }
        }
        if let Some(node) = net.producer(id).filter(|_| depth < FAR && value.constant.is_none()) {
            open.extend(node.inputs.iter().flatten().map(|&input| (input, depth + 1)));
        }
    }
    found
}

/// Whether numbers are a mask that leaves something out: some are far below zero, or they are truth values of both kinds.
fn leaves_out(numbers: &Numbers) -> bool {
    /// What is added to a score that no probability is left of: as much below zero as bf16 and fp16 models use, and more.
    const FAR_BELOW: f64 = -1e3;
    match numbers {
        Numbers::Ints(list) => list.iter().all(|x| matches!(x, 0 | 1)) && list.contains(&0) && list.contains(&1),
        Numbers::Reals(list) => list.iter().any(|&x| x <= FAR_BELOW),
    }
}

/// Whether the last two axes of a mask keep what is on and below the diagonal that ends in the last corner: either
/// all else is far below zero, or what is kept and what is not are two different numbers.
fn is_lower_triangle(numbers: &Numbers, queries: u64, keys: u64) -> bool {
    let count = (queries * keys) as usize;
    let at = |index: usize| match numbers {
        Numbers::Ints(list) => list.get(index).map(|&x| x as f64),
        Numbers::Reals(list) => list.get(index).copied(),
    };
    let (Some(kept), Some(left_out)) = (at(count - 1), at(keys.min(count as u64) as usize - 1)) else { return false };
    #[expect(clippy::float_cmp, reason = "a mask has two values")]
    let differs = kept != left_out;
    let before = keys.saturating_sub(queries);
    let fits = (0..count).all(|index| {
        let (query, key) = (index as u64 / keys, index as u64 % keys);
        at(index) == Some(if key <= query + before { kept } else { left_out })
    });
    differs && fits
}
