//! From nodes to operators of a workload.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::draft::{Draft, Origin, Role};
use super::layout::Layout;
use super::net::{Net, NetNode, ValueId};
use rdusim_graph::workload::OperatorOptions;

/// A node that a workload has no operator for.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    pub(super) node: usize,
    pub(super) why: String,
}

/// Why a node is not lowered.
#[derive(Debug)]
pub(super) enum Stop {
    /// What cannot be expressed.
    Unsupported(String),
    /// An input is missing because its node is not lowered.
    Behind,
}

pub(super) type Done = Result<(), Stop>;

/// What is built, and where every value lies.
#[derive(Debug)]
pub(super) struct Lower<'n, 'a> {
    pub(super) net: &'n Net<'a>,
    pub(super) draft: Draft<'a>,
    pub(super) places: Vec<Option<Layout>>,
    /// Values on each tensor.
    values_on: Vec<Vec<ValueId>>,
    /// Weights by what they are made of.
    weights: FxHashMap<String, usize>,
    /// Joined tensors by what they are joined of.
    pub(super) joined: FxHashMap<Vec<usize>, usize>,
    pub(super) notes: BTreeSet<String>,
    problems: Vec<Problem>,
    /// Takes what it cannot express as elementwise or as a boundary.
    skips: bool,
}

/// Lowers a network: the workload, and the nodes that could not be lowered.
pub(super) fn lower<'a>(net: &Net<'a>, skips: bool) -> (Draft<'a>, Vec<Problem>) {
    let mut lower = Lower {
        net,
        draft: Draft::default(),
        places: vec![None; net.values.len()],
        values_on: Vec::new(),
        weights: FxHashMap::default(),
        joined: FxHashMap::default(),
        notes: BTreeSet::new(),
        problems: Vec::new(),
        skips,
    };
    let mut skipped: Vec<usize> = Vec::new();
    for index in 0..net.nodes.len() {
        if net.nodes[index].is_gone {
            continue;
        }
        match lower.node(index) {
            Ok(()) | Err(Stop::Behind) => {}
            Err(Stop::Unsupported(_)) if lower.skips && lower.skip(index) => skipped.push(index),
            Err(Stop::Unsupported(why)) => lower.problems.push(Problem { node: index, why }),
        }
    }
    lower.outputs();
    let Lower { mut draft, notes, problems, .. } = lower;
    draft.prune();
    draft.notes = notes.into_iter().collect();
    draft.notes.extend(skipped_note(net, &skipped));
    (draft, problems)
}

/// What was skipped, in one sentence.
fn skipped_note(net: &Net<'_>, skipped: &[usize]) -> Option<String> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for &index in skipped {
        let op = net.nodes[index].op.as_str();
        match counts.iter_mut().find(|(known, _)| *known == op) {
            Some((_, count)) => *count += 1,
            None => counts.push((op, 1)),
        }
    }
    let list: Vec<String> = counts.iter().map(|(op, count)| format!("{count} x {op}")).collect();
    (!list.is_empty()).then(|| {
        format!(
            "{} nodes were skipped and are taken as elementwise functions, or as boundaries that cost nothing beyond \
             their tensors: {}",
            skipped.len(),
            list.join(", ")
        )
    })
}

pub(super) fn unsupported<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Unsupported(why.into()))
}

impl Lower<'_, '_> {
    /// The shape of a value.
    pub(super) fn shape(&self, value: ValueId) -> Result<&[u64], Stop> {
        self.net.values[value].shape.as_deref().ok_or(Stop::Behind)
    }

    pub(super) fn is_constant(&self, value: ValueId) -> bool {
        self.net.values[value].constant.is_some()
    }

    /// An input of a node.
    pub(super) fn input(node: &NetNode<'_>, index: usize) -> Result<ValueId, Stop> {
        node.input(index).ok_or_else(|| Stop::Unsupported(format!("input {index} is missing")))
    }

    /// Where a value lies; inputs of the network join when they are read first.
    pub(super) fn place(&mut self, value: ValueId) -> Result<Layout, Stop> {
        if let Some(layout) = &self.places[value] {
            return Ok(layout.clone());
        }
        let known = &self.net.values[value];
        if known.constant.is_some() {
            return unsupported(format!("{:?} is constant", known.name));
        }
        if !known.is_input {
            return Err(Stop::Behind);
        }
        let shape = self.shape(value)?.to_vec();
        if shape.contains(&0) {
            return unsupported(format!("{:?} has no elements", known.name));
        }
        let takes_images = [
            "Conv",
            "ConvTranspose",
            "MaxPool",
            "AveragePool",
            "GlobalAveragePool",
            "BatchNormalization",
            "LRN",
            "Resize",
            "Upsample",
        ];
        let is_image = shape.len() > 2
            && self.net.readers(value).any(|index| takes_images.contains(&self.net.nodes[index].op.as_str()));
        let by_heads = |shape: &[u64]| match *shape {
            [batch, heads, tokens, width] if known.has_heads || self.meets_one_head(value, heads) => {
                let side_by_side = Layout::of_rows(0, &[batch, tokens, heads * width]);
                Some(side_by_side.reshaped(&[batch, tokens, heads, width])?.transposed(&[0, 2, 1, 3]))
            }
            _ => None,
        };
        let plain = || if is_image { Layout::of_image(0, &shape) } else { Layout::of_rows(0, &shape) };
        let layout = by_heads(&shape).unwrap_or_else(plain);
        let tensor = self.draft.tensor(&known.name.clone(), (layout.rows, layout.columns), Role::Input);
        let layout = layout.on(tensor);
        self.set(value, layout.clone());
        Ok(layout)
    }

    /// Whether a value of many heads is the first operand of a product whose second has one head for all of them.
    fn meets_one_head(&self, value: ValueId, heads: u64) -> bool {
        self.net.readers(value).any(|index| {
            let node = &self.net.nodes[index];
            let second = node.input(1).filter(|&second| second != value && !self.is_constant(second));
            let shape = second.and_then(|second| self.net.values[second].shape.as_deref());
            node.op == "MatMul" && heads > 1 && matches!(shape, Some([_, 1, _, _]))
        })
    }

    /// Puts a value where a layout says.
    pub(super) fn set(&mut self, value: ValueId, layout: Layout) {
        if self.values_on.len() <= layout.tensor {
            self.values_on.resize(layout.tensor + 1, Vec::new());
        }
        self.values_on[layout.tensor].push(value);
        self.places[value] = Some(layout);
    }

    /// Whether a node is all that reads a tensor.
    pub(super) fn is_read_once(&self, tensor: usize) -> bool {
        let values = self.values_on.get(tensor).map_or(&[][..], Vec::as_slice);
        let once = |&value: &ValueId| !self.net.values[value].is_output && self.net.readers(value).take(2).count() == 1;
        values.iter().all(once) && !self.draft.operators.iter().rev().take(64).any(|op| op.inputs.contains(&tensor))
    }

    /// A weight of a shape. What is stored once is one weight, however often it is read.
    pub(super) fn weight(&mut self, value: ValueId, shape: (u64, u64), is_transposed: bool, part: (u64, u64)) -> usize {
        let known = &self.net.values[value];
        let stored = known.constant.as_ref().and_then(|constant| constant.stored.clone());
        let name = stored.as_ref().map(|stored| stored.name).filter(|name| !name.is_empty()).unwrap_or(&known.name);
        let key = format!("{name}:{shape:?}:{part:?}");
        if let Some(&tensor) = self.weights.get(&key) {
            return tensor;
        }
        let wanted = if part.1 == shape.1 { name.to_owned() } else { format!("{name}_{}", part.0 / shape.1) };
        let tensor = self.draft.tensor(&wanted, shape, Role::Weight);
        let flips = known.constant.as_ref().is_some_and(|constant| constant.is_transposed);
        let of = |stored| Origin { stored, is_transposed: is_transposed != flips, columns: part };
        self.draft.tensors[tensor].origin = stored.map(of);
        let quantized = known.constant.as_ref().and_then(|constant| constant.quantized);
        self.draft.tensors[tensor].storage = quantized.and_then(|quantized| quantized.storage(is_transposed != flips));
        self.weights.insert(key, tensor);
        tensor
    }

    /// A weight that is known in a shape.
    pub(super) fn known_weight(&self, value: ValueId, shape: (u64, u64)) -> Option<usize> {
        let constant = self.net.values[value].constant.as_ref()?;
        let name = constant.stored.as_ref().map(|stored| stored.name).filter(|name| !name.is_empty())?;
        self.weights.get(&format!("{name}:{shape:?}:{:?}", (0, shape.1))).copied()
    }

    /// A row vector of parameters.
    pub(super) fn vector(&mut self, value: ValueId, columns: u64) -> usize {
        self.weight(value, (1, columns), false, (0, columns))
    }

    /// A new tensor for a node's result, with the operator that makes it.
    pub(super) fn emit(
        &mut self,
        node: &NetNode<'_>,
        kind: &'static str,
        inputs: Vec<usize>,
        shape: (u64, u64),
        options: OperatorOptions,
    ) -> usize {
        let value = node.output().map_or("", |output| self.net.values[output].name.as_str());
        let output = self.draft.made(value, shape);
        let name = if node.name.is_empty() { value } else { &node.name };
        self.draft.push(name, kind, inputs, output).options = options;
        output
    }

    /// The result of a node that keeps the layout of its first input.
    pub(super) fn elementwise(&mut self, node: &NetNode<'_>, kind: &'static str, layout: &Layout) -> Done {
        let tensor =
            self.emit(node, kind, vec![layout.tensor], (layout.rows, layout.columns), OperatorOptions::default());
        self.settle(node, layout.on(tensor))
    }

    pub(super) fn settle(&mut self, node: &NetNode<'_>, layout: Layout) -> Done {
        let output = node.output().ok_or_else(|| Stop::Unsupported("it has no output".to_owned()))?;
        self.set(output, layout);
        Ok(())
    }

    /// A value as a plain matrix, whose rows may have to be read in another order for it.
    pub(super) fn as_rows(&mut self, value: ValueId) -> Result<Layout, Stop> {
        let layout = self.place(value)?;
        if layout.is_of_rows() {
            return Ok(layout);
        }
        let shape = self.shape(value)?.to_vec();
        let plain = Layout::of_rows(0, &shape);
        self.reread(value, &layout, &plain)
    }

    /// The same elements as another matrix.
    pub(super) fn reread(&mut self, value: ValueId, from: &Layout, to: &Layout) -> Result<Layout, Stop> {
        if from.rows.checked_mul(from.columns) != to.rows.checked_mul(to.columns) {
            return unsupported("a copied axis would have to be written out");
        }
        let name = format!("{}_as_rows", self.net.values[value].name);
        let tensor = self.draft.made(&name, (to.rows, to.columns));
        self.draft.tensors[tensor].is_view = true;
        self.draft.push(&name, "reshape", vec![from.tensor], tensor);
        if from.columns != to.columns || from.rows != to.rows {
            self.notes.insert(
                "some tensors are read in another shape than they are written in: `reshape` costs no time of its own, \
                 but what it reads must be whole first"
                    .to_owned(),
            );
        }
        Ok(to.on(tensor))
    }

    /// What the network gives is wanted off chip.
    fn outputs(&mut self) {
        for &output in &self.net.outputs {
            let Some(layout) = self.places[output].clone() else { continue };
            let mut tensor = layout.tensor;
            // A view is nothing that could be written.
            while self.draft.tensors[tensor].is_view {
                match self.draft.maker(tensor).and_then(|operator| operator.inputs.first().copied()) {
                    Some(base) => tensor = base,
                    None => break,
                }
            }
            if self.draft.tensors[tensor].role == Role::Made {
                self.draft.tensors[tensor].is_output = true;
            }
        }
    }

    /// Takes a node as elementwise, if its result has the shape of its only activation, else as a boundary: what it
    /// reads goes off chip, what it makes comes from there.
    fn skip(&mut self, index: usize) -> bool {
        let node = &self.net.nodes[index];
        let activations: Vec<ValueId> =
            node.inputs.iter().flatten().copied().filter(|&id| !self.is_constant(id)).collect();
        let mut layouts = Vec::with_capacity(activations.len());
        for &value in &activations {
            match self.place(value) {
                Ok(layout) => layouts.push(layout),
                Err(_) => return false,
            }
        }
        let shape = |value: ValueId| self.net.values[value].shape.clone();
        let outputs: Vec<ValueId> = node.outputs.iter().flatten().copied().collect();
        if let (&[from], &[to], [layout]) = (activations.as_slice(), outputs.as_slice(), layouts.as_slice())
            && shape(from).is_some()
            && shape(from) == shape(to)
        {
            let layout = layout.clone();
            return self.elementwise(node, "scale", &layout).is_ok();
        }
        for layout in &layouts {
            if self.draft.tensors[layout.tensor].role == Role::Made && !self.draft.tensors[layout.tensor].is_view {
                self.draft.tensors[layout.tensor].is_output = true;
            }
        }
        outputs.iter().all(|&output| self.boundary(output))
    }

    /// A value that comes from off chip.
    pub(super) fn boundary(&mut self, value: ValueId) -> bool {
        let Some(shape) = self.net.values[value].shape.clone() else { return false };
        if shape.contains(&0) {
            return false;
        }
        let layout = Layout::of_rows(0, &shape);
        let layout = if shape.len() == 4 { Layout::of_image(0, &shape) } else { layout };
        let tensor =
            self.draft.tensor(&self.net.values[value].name.clone(), (layout.rows, layout.columns), Role::Input);
        self.set(value, layout.on(tensor));
        true
    }
}
