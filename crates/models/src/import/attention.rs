//! `Attention` of version 23 as the products, functions and moves that it stands for.

use super::given::Shape;
use super::net::{Net, NetNode, Value, ValueId};
use super::pattern::{Kept, causality};
use super::proto::Attribute;

/// Sizes of an attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes {
    batch: u64,
    heads: u64,
    /// Heads of keys and values.
    shared: u64,
    queries: u64,
    /// Keys of earlier tokens.
    past: u64,
    /// Keys of these tokens.
    keys: u64,
    /// Width of a query and key.
    width: u64,
    /// Width of a value.
    depth: u64,
    /// Heads lie in the last axis, as in a matrix of tokens.
    is_flat: bool,
}

/// Sizes from the shapes of queries, keys, values and of earlier keys and values; `None` where a shape is missing.
fn sizes(node: &NetNode<'_>, given: [Option<&[u64]>; 5]) -> Result<Option<Sizes>, String> {
    let [Some(q), Some(k), Some(v), past_k, past_v] = given else { return Ok(None) };
    let heads = |name: &str| {
        let count = node.int(name).and_then(|count| u64::try_from(count).ok()).filter(|&count| count > 0);
        count.ok_or_else(|| format!("`{name}` is needed where operands have three axes"))
    };
    let split = |shape: &[u64], name: &str| match *shape {
        [batch, heads, tokens, width] => Ok((batch, heads, tokens, width)),
        [batch, tokens, all] => {
            let heads = heads(name)?;
            let width = all.checked_div(heads).filter(|_| all.is_multiple_of(heads));
            Ok((batch, heads, tokens, width.ok_or_else(|| format!("{all} columns do not make {heads} heads"))?))
        }
        _ => Err("operands of three or four axes are expected".to_owned()),
    };
    let (batch, heads, queries, width) = split(q, "q_num_heads")?;
    let (of_k, of_v) = (split(k, "kv_num_heads")?, split(v, "kv_num_heads")?);
    let past = match (past_k, past_v) {
        (None, None) => 0,
        (Some(&[b, h, past, w]), Some(&[c, g, other, d]))
            if (b, h, w, c, g, d, past) == (batch, of_k.1, width, batch, of_v.1, of_v.3, other) =>
        {
            past
        }
        _ => return Err("earlier keys and values do not fit the new ones".to_owned()),
    };
    let fits = (of_k.0, of_v.0, of_k.3) == (batch, batch, width) && (of_k.1, of_k.2) == (of_v.1, of_v.2);
    if !fits || of_k.1 == 0 || !heads.is_multiple_of(of_k.1) {
        return Err("queries, keys and values do not fit each other".to_owned());
    }
    let scores = [batch, heads, queries, past.saturating_add(of_k.2)];
    if scores.iter().try_fold(1u64, |all, &n| all.checked_mul(n)).is_none_or(|all| all > 1 << 50) {
        return Err("its scores have more than 2^50 elements".to_owned());
    }
    Ok(Some(Sizes {
        batch,
        heads,
        shared: of_k.1,
        queries,
        past,
        keys: of_k.2,
        width,
        depth: of_v.3,
        is_flat: q.len() == 3,
    }))
}

/// Shapes of the results: Y, keys and values of all tokens, scores.
pub(super) fn shapes(node: &NetNode<'_>, given: [Option<&[u64]>; 5]) -> Result<Option<Vec<Shape>>, String> {
    let Some(s) = sizes(node, given)? else { return Ok(None) };
    let all = s.past + s.keys;
    let y = if s.is_flat {
        vec![s.batch, s.queries, s.heads.saturating_mul(s.depth)]
    } else {
        vec![s.batch, s.heads, s.queries, s.depth]
    };
    let of = |width: u64| vec![s.batch, s.shared, all, width];
    Ok(Some(vec![y, of(s.width), of(s.depth), vec![s.batch, s.heads, s.queries, all]]))
}

/// Puts what it stands for in place of every attention whose shapes are known; what a reader should know of it.
pub(super) fn expand(net: &mut Net<'_>) -> Vec<String> {
    if !net.nodes.iter().any(|node| node.op == "Attention") {
        return Vec::new();
    }
    let mut notes = Vec::new();
    let mut nodes = Vec::with_capacity(net.nodes.len());
    for index in 0..net.nodes.len() {
        let node = net.nodes[index].clone();
        let found = if node.op == "Attention" && !node.is_gone { of_node(net, &node) } else { None };
        match found {
            Some((steps, said)) => {
                nodes.extend(steps);
                notes.extend(said);
            }
            None => nodes.push(node),
        }
    }
    net.set_nodes(nodes);
    notes.sort_unstable();
    notes.dedup();
    notes
}

/// Nodes under construction.
struct Steps<'s, 'a> {
    net: &'s mut Net<'a>,
    name: String,
    nodes: Vec<NetNode<'a>>,
}

type Attributes<'a> = Vec<(&'a str, Attribute<'a>)>;

impl<'a> Steps<'_, 'a> {
    /// A new value.
    fn value(&mut self, what: &str, shape: Shape) -> ValueId {
        let name = format!("{}_{what}", self.name);
        self.net.values.push(Value { name, shape: Some(shape), data_type: 1, ..Value::default() });
        self.net.values.len() - 1
    }

    fn write(&mut self, op: &str, inputs: &[ValueId], output: ValueId, attributes: Attributes<'a>) {
        let net = &self.net.values[output];
        self.nodes.push(NetNode {
            name: net.name.clone(),
            op: op.to_owned(),
            inputs: inputs.iter().copied().map(Some).collect(),
            outputs: vec![Some(output)],
            attributes,
            is_gone: false,
            is_causal: false,
        });
    }

    fn step(&mut self, what: &str, op: &str, inputs: &[ValueId], shape: Shape, attributes: Attributes<'a>) -> ValueId {
        let output = self.value(what, shape);
        self.write(op, inputs, output, attributes);
        output
    }

    /// An operand with heads as its second axis.
    fn heads(&mut self, what: &str, value: ValueId, [batch, heads, tokens, width]: [u64; 4], is_flat: bool) -> ValueId {
        if !is_flat {
            self.net.values[value].has_heads = true;
            return value;
        }
        let split = self.step(&format!("{what}_split"), "Reshape", &[value], vec![batch, tokens, heads, width], vec![]);
        self.step(what, "Transpose", &[split], vec![batch, heads, tokens, width], order(&[0, 2, 1, 3]))
    }

    /// Keys or values once for every query head that shares them.
    fn shared(&mut self, what: &str, value: ValueId, [batch, heads, tokens, width]: [u64; 4], copies: u64) -> ValueId {
        if copies == 1 {
            return value;
        }
        let apart = vec![batch, heads, 1, tokens, width];
        let apart = self.step(&format!("{what}_apart"), "Unsqueeze", &[value], apart, vec![]);
        let copied = vec![batch, heads, copies, tokens, width];
        let copied = self.step(&format!("{what}_copied"), "Expand", &[apart], copied, vec![]);
        self.step(&format!("{what}_shared"), "Reshape", &[copied], vec![batch, heads * copies, tokens, width], vec![])
    }

    /// A function of scores that multiplies by a number or masks.
    fn on_scores(&mut self, what: &str, op: &str, value: ValueId) -> ValueId {
        let shape = self.net.values[value].shape.clone().unwrap_or_default();
        self.step(what, op, &[value], shape, vec![])
    }
}

fn order<'a>(axes: &[i64]) -> Attributes<'a> {
    vec![("perm", Attribute::Ints(axes.to_vec()))]
}

/// The nodes that an attention stands for, and notes; `None` where its shapes are not known.
fn of_node<'a>(net: &mut Net<'a>, node: &NetNode<'a>) -> Option<(Vec<NetNode<'a>>, Vec<String>)> {
    let shape = |index: usize| node.input(index).and_then(|id| net.values[id].shape.as_deref());
    let s = sizes(node, [0, 1, 2, 4, 5].map(shape)).ok()??;
    let all = s.past + s.keys;
    let mut notes = Vec::new();
    let mask = node.input(3);
    let is_masked = mask.map(|mask| causality(net, mask, s.queries, all));
    notes.extend(is_masked.and_then(Kept::note));
    let is_said = node.int("is_causal").unwrap_or(0) != 0;
    let is_causal = s.queries > 1 && (is_said || is_masked.is_some_and(Kept::is_causal));
    // A query sees the keys up to its own place behind the earlier ones: those after the last query are never seen.
    let seen = if is_said { s.keys.min(s.queries) } else { s.keys };
    let cut = all - s.past - seen;
    let is_capped = node.float("softcap").is_some_and(|cap| cap > 0.0);
    let name = if node.name.is_empty() { "attention".to_owned() } else { node.name.clone() };
    let (q, k, v) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let flat = [q, k, v].map(|id| net.values[id].shape.as_ref().is_some_and(|shape| shape.len() == 3));
    let mut steps = Steps { net, name, nodes: Vec::new() };
    let q = steps.heads("queries", q, [s.batch, s.heads, s.queries, s.width], flat[0]);
    let mut sides = Vec::with_capacity(2);
    for (n, (what, value, width)) in [("keys", k, s.width), ("values", v, s.depth)].into_iter().enumerate() {
        let mut value = steps.heads(what, value, [s.batch, s.shared, s.keys, width], flat[n + 1]);
        let present = node.outputs.get(n + 1).copied().flatten();
        if let Some(past) = node.input(n + 4).filter(|_| s.past > 0) {
            let attributes = vec![("axis", Attribute::Int(2))];
            let output =
                present.unwrap_or_else(|| steps.value(&format!("all_{what}"), vec![s.batch, s.shared, all, width]));
            steps.write("Concat", &[past, value], output, attributes);
            value = output;
        } else if let Some(present) = present {
            steps.write("Identity", &[value], present, vec![]);
        }
        if cut > 0 {
            let first = vec![("starts", Attribute::Ints(vec![0]))];
            let shape = vec![s.batch, s.shared, all - cut, width];
            value = steps.step(&format!("{what}_seen"), "Slice", &[value], shape, first);
        }
        sides.push(steps.shared(what, value, [s.batch, s.shared, all - cut, width], s.heads / s.shared));
    }
    let all = all - cut;
    let turned = vec![s.batch, s.heads, s.width, all];
    let turned = steps.step("keys_turned", "Transpose", &[sides[0]], turned, order(&[0, 1, 3, 2]));
    let of_scores = vec![s.batch, s.heads, s.queries, all];
    let mut scores = steps.step("scores", "MatMul", &[q, turned], of_scores, vec![]);
    let product = steps.nodes.len() - 1;
    steps.nodes[product].is_causal = is_causal;
    if let Some(given) = node.outputs.get(3).copied().flatten() {
        steps.write("Identity", &[scores], given, vec![]);
    }
    if is_capped {
        scores = steps.on_scores("scaled", "Mask", scores);
        scores = steps.on_scores("bounded", "Tanh", scores);
    }
    let is_scaled = is_masked.is_some() || node.float("scale").is_none_or(|scale| (scale - 1.0).abs() > f32::EPSILON);
    if is_causal || is_scaled {
        scores = steps.on_scores("masked", if is_causal { "CausalMask" } else { "Mask" }, scores);
    }
    scores = steps.on_scores("probabilities", "Softmax", scores);
    mix(&mut steps, node.output()?, scores, sides[1], s, is_causal);
    Some((steps.nodes, notes))
}

/// The sum over values, in the shape of the result.
fn mix(steps: &mut Steps<'_, '_>, output: ValueId, scores: ValueId, values: ValueId, s: Sizes, is_causal: bool) {
    if s.is_flat {
        let mixed = vec![s.batch, s.heads, s.queries, s.depth];
        let mixed = steps.step("mixed", "MatMul", &[scores, values], mixed, vec![]);
        let product = steps.nodes.len() - 1;
        steps.nodes[product].is_causal = is_causal;
        let turned = vec![s.batch, s.queries, s.heads, s.depth];
        let turned = steps.step("side_by_side", "Transpose", &[mixed], turned, order(&[0, 2, 1, 3]));
        steps.write("Reshape", &[turned], output, vec![]);
    } else {
        steps.write("MatMul", &[scores, values], output, vec![]);
        let product = steps.nodes.len() - 1;
        steps.nodes[product].is_causal = is_causal;
    }
}
