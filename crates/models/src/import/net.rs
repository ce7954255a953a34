//! A network as an import works on it: nodes in topological order, values by number.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use rustc_hash::FxHashMap;

use super::constant::Constant;
use super::proto::{Attribute, Dim, Graph, Node};
use rdusim_base::diagnostics::Diagnostic;

/// A value's number.
pub(super) type ValueId = usize;

/// What flows from node to node.
#[derive(Debug, Default, Clone)]
pub(super) struct Value<'a> {
    pub(super) name: String,
    /// As far as it is known.
    pub(super) shape: Option<Vec<u64>>,
    /// What the file says of its axes, where it says a size.
    pub(super) stated: Option<Vec<Option<u64>>>,
    /// As `TensorProto.DataType` counts; 0 if unknown.
    pub(super) data_type: i64,
    /// What does not depend on the network's inputs.
    pub(super) constant: Option<Constant<'a>>,
    pub(super) producer: Option<usize>,
    /// Nodes that read it, each once.
    pub(super) consumers: Vec<usize>,
    pub(super) is_output: bool,
    pub(super) is_input: bool,
    /// Its second axis is heads, which lie side by side in rows.
    pub(super) has_heads: bool,
}

/// A node.
#[derive(Debug, Clone)]
pub(super) struct NetNode<'a> {
    pub(super) name: String,
    /// Operator, with its domain in front if that is not the standard one.
    pub(super) op: String,
    /// Empty optional inputs are none.
    pub(super) inputs: Vec<Option<ValueId>>,
    pub(super) outputs: Vec<Option<ValueId>>,
    pub(super) attributes: Vec<(&'a str, Attribute<'a>)>,
    /// Not part of the result: folded, or part of a pattern.
    pub(super) is_gone: bool,
    /// Of attention: keys after the query are left out.
    pub(super) is_causal: bool,
}

/// A network.
#[derive(Debug, Default)]
pub(super) struct Net<'a> {
    pub(super) values: Vec<Value<'a>>,
    /// In topological order.
    pub(super) nodes: Vec<NetNode<'a>>,
    pub(super) inputs: Vec<ValueId>,
    pub(super) outputs: Vec<ValueId>,
    pub(super) opset: i64,
    /// Values that are computed of a first operand in integers of eight bits (`QuantizeLinear`).
    pub(super) quantised: BTreeSet<ValueId>,
}

impl NetNode<'_> {
    /// An integer attribute.
    pub(super) fn int(&self, name: &str) -> Option<i64> {
        self.attributes.iter().find_map(|(known, value)| match value {
            Attribute::Int(number) if *known == name => Some(*number),
            _ => None,
        })
    }

    /// A list of integers.
    pub(super) fn ints(&self, name: &str) -> Option<&[i64]> {
        self.attributes.iter().find_map(|(known, value)| match value {
            Attribute::Ints(list) if *known == name => Some(list.as_slice()),
            _ => None,
        })
    }

    /// A list of reals.
    pub(super) fn floats(&self, name: &str) -> Option<&[f32]> {
        self.attributes.iter().find_map(|(known, value)| match value {
            Attribute::Floats(list) if *known == name => Some(list.as_slice()),
            _ => None,
        })
    }

    /// A real attribute.
    pub(super) fn float(&self, name: &str) -> Option<f32> {
        self.attributes.iter().find_map(|(known, value)| match value {
            Attribute::Float(number) if *known == name => Some(*number),
            _ => None,
        })
    }

    /// A text attribute.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find_map(|(known, value)| match value {
            Attribute::Text(text) if *known == name => std::str::from_utf8(text).ok(),
            _ => None,
        })
    }

    /// An input that is there.
    pub(super) fn input(&self, index: usize) -> Option<ValueId> {
        self.inputs.get(index).copied().flatten()
    }

    /// The first output.
    pub(super) fn output(&self) -> Option<ValueId> {
        self.outputs.first().copied().flatten()
    }

    /// Name for people: its own, or what it makes.
    pub(super) fn title(&self, net: &Net<'_>) -> String {
        match self.output() {
            _ if !self.name.is_empty() => self.name.clone(),
            Some(output) => format!("(makes {})", net.values[output].name),
            None => "(unnamed)".to_owned(),
        }
    }
}

impl<'a> Net<'a> {
    /// Builds a network of a graph; `bound` are the sizes of named dimensions.
    ///
    /// # Errors
    /// Dimensions without a size, names that nothing makes or that two nodes make, cycles.
    pub(super) fn new(graph: Graph<'a>, opset: i64, bound: &[(String, u64)]) -> Result<Self, Diagnostic> {
        let mut net = Self { opset, ..Self::default() };
        let mut ids: FxHashMap<&'a str, ValueId> = FxHashMap::default();
        for tensor in graph.initializers {
            let (name, shape, data_type) = (tensor.name, tensor.dims.clone(), tensor.data_type);
            let constant = Some(Constant::of_tensor(tensor)?);
            ids.insert(name, net.values.len());
            net.values.push(Value {
                name: name.to_owned(),
                shape: Some(shape),
                data_type,
                constant,
                ..Value::default()
            });
        }
        let mut dims = Dims { bound, used: vec![false; bound.len()], missing: Vec::new() };
        for input in &graph.inputs {
            // Until version 4 of the format initialisers are inputs too.
            if ids.contains_key(input.name) {
                continue;
            }
            let shape = dims.shape(input.name, input.shape.as_deref());
            ids.insert(input.name, net.values.len());
            net.inputs.push(net.values.len());
            let (name, data_type) = (input.name.to_owned(), input.data_type);
            net.values.push(Value { name, shape, data_type, is_input: true, ..Value::default() });
        }
        dims.finish()?;
        net.add_nodes(graph.nodes, &mut ids)?;
        let of_outputs = graph.outputs.iter().map(|info| (info, false));
        for (info, is_taken) in graph.values.iter().map(|info| (info, true)).chain(of_outputs) {
            let Some(&id) = ids.get(info.name) else { continue };
            let known = |dim: &Dim<'_>| match dim {
                Dim::Known(size) => Some(*size),
                Dim::Named(name) => bound.iter().find(|(bound, _)| bound == name).map(|(_, size)| *size),
                Dim::Unknown => None,
            };
            let value = &mut net.values[id];
            let stated: Option<Vec<Option<u64>>> = info.shape.as_ref().map(|dims| dims.iter().map(known).collect());
            let shape = stated.as_ref().and_then(|dims| dims.iter().copied().collect());
            // What is said of a result is compared with what follows; it stands for no shape that does not.
            value.shape = value.shape.take().or(shape.filter(|_| is_taken));
            value.stated = value.stated.take().or(stated);
            if value.data_type == 0 {
                value.data_type = info.data_type;
            }
        }
        for output in &graph.outputs {
            let Some(&id) = ids.get(output.name) else {
                return Err(Diagnostic::new(format!("nothing makes the network's output {:?}", output.name)));
            };
            net.values[id].is_output = true;
            net.outputs.push(id);
        }
        net.sort()?;
        Ok(net)
    }

    fn add_nodes(&mut self, nodes: Vec<Node<'a>>, ids: &mut FxHashMap<&'a str, ValueId>) -> Result<(), Diagnostic> {
        for (index, node) in nodes.iter().enumerate() {
            for &output in node.outputs.iter().filter(|name| !name.is_empty()) {
                let value = Value { name: output.to_owned(), producer: Some(index), ..Value::default() };
                if ids.insert(output, self.values.len()).is_some() {
                    return Err(Diagnostic::new(format!(
                        "value {output:?} is made twice, the second time by {} {:?}",
                        node.op, node.name
                    )));
                }
                self.values.push(value);
            }
        }
        for (index, node) in nodes.into_iter().enumerate() {
            let mut inputs = Vec::with_capacity(node.inputs.len());
            for name in node.inputs {
                if name.is_empty() {
                    inputs.push(None);
                    continue;
                }
                let Some(&id) = ids.get(name) else {
                    let title = format!("{} {:?} reads {name:?}, which nothing makes", node.op, node.name);
                    return Err(Diagnostic::new(title).with_help("the file is not a whole network: export it again"));
                };
                inputs.push(Some(id));
                let consumers = &mut self.values[id].consumers;
                if consumers.last() != Some(&index) {
                    consumers.push(index);
                }
            }
            let outputs = node.outputs.iter().map(|name| ids.get(name).copied().filter(|_| !name.is_empty())).collect();
            let op = match node.domain {
                "" | "ai.onnx" => node.op.to_owned(),
                domain => format!("{domain}.{}", node.op),
            };
            let (name, attributes) = (node.name.to_owned(), node.attributes);
            self.nodes.push(NetNode { name, op, inputs, outputs, attributes, is_gone: false, is_causal: false });
        }
        Ok(())
    }

    /// Puts the nodes in topological order, the earlier in the file first.
    fn sort(&mut self) -> Result<(), Diagnostic> {
        let waits = |node: &NetNode<'_>| {
            let mut inputs: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
            inputs.sort_unstable();
            inputs.dedup();
            inputs.iter().filter(|&&input| self.values[input].producer.is_some()).count()
        };
        let mut waiting: Vec<usize> = self.nodes.iter().map(waits).collect();
        let mut ready: BinaryHeap<Reverse<usize>> =
            waiting.iter().enumerate().filter(|(_, count)| **count == 0).map(|(index, _)| Reverse(index)).collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(Reverse(index)) = ready.pop() {
            order.push(index);
            for &output in self.nodes[index].outputs.iter().flatten() {
                for &consumer in &self.values[output].consumers {
                    waiting[consumer] -= 1;
                    if waiting[consumer] == 0 {
                        ready.push(Reverse(consumer));
                    }
                }
            }
        }
        if order.len() < self.nodes.len() {
            return Err(self.cycle(&waiting));
        }
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(to, &from)| place[from] = to);
        for value in &mut self.values {
            value.producer = value.producer.map(|index| place[index]);
            value.consumers.iter_mut().for_each(|index| *index = place[*index]);
            value.consumers.sort_unstable();
            value.consumers.dedup();
        }
        let mut nodes: Vec<Option<NetNode<'a>>> = self.nodes.drain(..).map(Some).collect();
        self.nodes = order.iter().filter_map(|&index| nodes[index].take()).collect();
        Ok(())
    }

    /// Of nodes that wait for each other, a cycle: whatever waits has a producer that waits.
    fn cycle(&self, waiting: &[usize]) -> Diagnostic {
        let mut trail: Vec<usize> = (0..self.nodes.len()).find(|&index| waiting[index] > 0).into_iter().collect();
        let mut place = vec![None; self.nodes.len()];
        while let Some(&last) = trail.last() {
            place[last] = Some(trail.len() - 1);
            let inputs = self.nodes[last].inputs.iter().flatten();
            let Some(before) =
                inputs.filter_map(|&input| self.values[input].producer).find(|&index| waiting[index] > 0)
            else {
                break;
            };
            if let Some(start) = place[before] {
                trail.drain(..start);
                break;
            }
            trail.push(before);
        }
        trail.reverse();
        let most = 8;
        let mut names: Vec<String> = trail.iter().take(most).map(|&index| self.nodes[index].title(self)).collect();
        if trail.len() > most {
            names.push(format!("({} more)", trail.len() - most));
        }
        names.extend(names.first().cloned());
        Diagnostic::new(format!("the network's nodes form a cycle: {}", names.join(" -> ")))
            .with_help("a network's graph is acyclic: export the model again")
    }

    /// Puts other nodes in place, in topological order.
    pub(super) fn set_nodes(&mut self, nodes: Vec<NetNode<'a>>) {
        for value in &mut self.values {
            value.producer = None;
            value.consumers.clear();
        }
        for (index, node) in nodes.iter().enumerate() {
            for &output in node.outputs.iter().flatten() {
                self.values[output].producer = Some(index);
            }
            for &input in node.inputs.iter().flatten() {
                let consumers = &mut self.values[input].consumers;
                if consumers.last() != Some(&index) {
                    consumers.push(index);
                }
            }
        }
        self.nodes = nodes;
    }

    /// The node that makes a value.
    pub(super) fn producer(&self, value: ValueId) -> Option<&NetNode<'a>> {
        self.values[value].producer.map(|index| &self.nodes[index])
    }

    /// Nodes that read a value and are still there.
    pub(super) fn readers(&self, value: ValueId) -> impl Iterator<Item = usize> + '_ {
        self.values[value].consumers.iter().copied().filter(|&index| !self.nodes[index].is_gone)
    }

    /// The shape of a value as text.
    pub(super) fn shape_text(&self, value: ValueId) -> String {
        match &self.values[value].shape {
            Some(shape) => {
                let dims: Vec<String> = shape.iter().map(u64::to_string).collect();
                format!("[{}]", dims.join(", "))
            }
            None => "[?]".to_owned(),
        }
    }
}

/// Sizes of dimensions that are given, and those that are not.
struct Dims<'d> {
    bound: &'d [(String, u64)],
    used: Vec<bool>,
    missing: Vec<(String, String)>,
}

impl Dims<'_> {
    fn size(&mut self, name: &str, of: &str) -> u64 {
        if let Some(index) = self.bound.iter().position(|(bound, _)| bound == name) {
            self.used[index] = true;
            return self.bound[index].1;
        }
        if !self.missing.iter().any(|(missing, _)| missing == name) {
            self.missing.push((name.to_owned(), of.to_owned()));
        }
        1
    }

    /// The shape of an input; a dimension without a name has that of the input and its index.
    fn shape(&mut self, input: &str, dims: Option<&[Dim<'_>]>) -> Option<Vec<u64>> {
        let list = dims?.iter().enumerate().map(|(index, dim)| match dim {
            Dim::Known(size) => *size,
            Dim::Named(name) => self.size(name, input),
            Dim::Unknown => self.size(&format!("{input}.{index}"), input),
        });
        Some(list.collect())
    }

    fn finish(self) -> Result<(), Diagnostic> {
        if !self.missing.is_empty() {
            let what: Vec<String> =
                self.missing.iter().map(|(name, of)| format!("`{name}` (of input {of:?})")).collect();
            let flags: Vec<String> = self.missing.iter().map(|(name, _)| format!("--dim {name}=N")).collect();
            let plural = if what.len() == 1 { "the dimension" } else { "the dimensions" };
            let title = format!("the network leaves {plural} {} open", what.join(", "));
            return Err(Diagnostic::new(title).with_help(format!("give {}", flags.join(" "))));
        }
        match self.used.iter().position(|used| !used) {
            None => Ok(()),
            Some(index) => {
                let title = format!("`--dim {}=...`: no input has a dimension of this name", self.bound[index].0);
                Err(Diagnostic::new(title).with_help("leave it out; dimensions with a fixed size cannot be changed"))
            }
        }
    }
}
