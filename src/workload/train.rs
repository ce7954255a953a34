//! Training: the backward graph, derived from the forward one, and the optimiser's step.
//!
//! Operators are walked against the data. Every gradient of an activation has the shape of the activation; a tensor
//! that several operators read adds their contributions up. Gradients of row vectors (bias, gain) are sums that ride
//! along with the operators that pass them.

use std::collections::BTreeMap;

use super::dynamic::{self, PatternOptions};
use super::form::GemmOptions;
use super::graph::{Operator, OperatorId, Tensor, TensorId, TensorRole};
use super::kind::{Gradient, OperatorKind, Phase};
use super::resolve::{Builder, Written};
use super::spec::TrainingSpec;
use crate::diagnostics::{Diagnostic, Origin};
use crate::input::{Source, Table};
use crate::units::Dtype;
use toml::Spanned;

/// What `[training]` asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TrainingOptions {
    optimizer: OperatorKind,
    recomputed: bool,
    pattern: Option<PatternOptions>,
}

/// Reads `[training]`.
pub(super) fn options(source: &Source, spec: &Spanned<Table<TrainingSpec>>) -> Result<TrainingOptions, Diagnostic> {
    let spec = spec.get_ref();
    let optimizers = [("adam", OperatorKind::AdamUpdate), ("sgd", OperatorKind::SgdUpdate)];
    let chosen = source.keyword("training.optimizer", &spec.optimizer, &optimizers.map(|(name, _)| name))?;
    let recomputed = match &spec.activations {
        Some(word) => source.keyword("training.activations", word, &["saved", "recomputed"])? == 1,
        None => false,
    };
    let pattern = spec.pattern.as_ref().map(|pattern| dynamic::options(source, pattern)).transpose()?;
    Ok(TrainingOptions { optimizer: optimizers[chosen].1, recomputed, pattern })
}

/// Adds the backward graph and the update of every weight to a forward graph.
pub(super) fn derive(graph: &mut Builder, options: TrainingOptions) -> Result<(), Diagnostic> {
    let forward: Vec<OperatorId> = graph.operators.ids().collect();
    let mut backward = Backward {
        graph,
        gradients: BTreeMap::new(),
        tables: Vec::new(),
        again: BTreeMap::new(),
        list: Vec::new(),
        place: (None, 1),
    };
    backward.seeds(&forward);
    let mut at = forward.len();
    while at > 0 {
        let block = backward.graph.operators[forward[at - 1]].block;
        let start = (0..at).rev().find(|&i| backward.graph.operators[forward[i]].block != block).map_or(0, |i| i + 1);
        let run = &forward[start..at];
        if options.recomputed && block.is_some() {
            backward.recompute(run);
        }
        for &op in run.iter().rev() {
            backward.of_operator(op)?;
        }
        backward.flush();
        at = start;
    }
    let weights: Vec<(TensorId, TensorId)> = backward.weights();
    let Backward { graph, .. } = backward;
    for &(weight, gradient) in &weights {
        update(graph, options.optimizer, weight, gradient);
    }
    if let Some(pattern) = options.pattern {
        dynamic::derive(graph, pattern, &weights);
    }
    Ok(())
}

/// An operator that waits to be put in order.
struct Pending {
    kind: OperatorKind,
    name: String,
    written: Written,
    output: TensorId,
    /// It carries a gradient (else it computes something of the forward graph again).
    is_gradient: bool,
    /// Indices of an embedding whose gradient it is.
    indices: Option<TensorId>,
}

struct Backward<'g> {
    graph: &'g mut Builder,
    /// Gradient of each tensor, as far as contributions are in.
    gradients: BTreeMap<TensorId, TensorId>,
    /// Gradients of rows of tables.
    tables: Vec<(TensorId, TensorId)>,
    /// Activations that are computed again, and what they are then.
    again: BTreeMap<TensorId, TensorId>,
    list: Vec<Pending>,
    /// Block and repetitions of the operators under way.
    place: (Option<usize>, u64),
}

impl Backward<'_> {
    /// Gradients of outputs that no loss stands behind come from outside.
    fn seeds(&mut self, forward: &[OperatorId]) {
        for &op in forward {
            let operator = &self.graph.operators[op];
            let output = operator.output;
            if operator.kind != OperatorKind::CrossEntropy && self.graph.tensors[output].role == TensorRole::Output {
                let gradient = self.like(output, format!("d_{}", self.graph.tensors[output].name), TensorRole::Input);
                self.gradients.insert(output, gradient);
            }
        }
    }

    /// A new tensor of the shape of another.
    fn like(&mut self, tensor: TensorId, name: String, role: TensorRole) -> TensorId {
        let of = &self.graph.tensors[tensor];
        let mask = of.mask.clone();
        let new = Tensor { name, role, mask, view: None, repeat: 1, ..of.clone() };
        self.graph.tensors.push(new)
    }

    /// The activation `tensor` as the backward graph finds it.
    fn saved(&self, tensor: TensorId) -> TensorId {
        self.again.get(&tensor).copied().unwrap_or(tensor)
    }

    fn emit(
        &mut self,
        kind: OperatorKind,
        name: String,
        inputs: Vec<TensorId>,
        output: TensorId,
        options: GemmOptions,
    ) {
        let written = Written { inputs, options };
        self.list.push(Pending { kind, name, written, output, is_gradient: true, indices: None });
    }

    /// Whether anything wants the gradient of a tensor.
    fn wants(&self, tensor: TensorId) -> bool {
        self.graph.tensors[tensor].role != TensorRole::Input
    }

    /// Takes in a contribution to the gradient of `tensor`: that of operator `from`, made by `kind` from `inputs`.
    fn contribute(
        &mut self,
        tensor: TensorId,
        from: &str,
        kind: OperatorKind,
        inputs: Vec<TensorId>,
        options: GemmOptions,
    ) {
        if !self.wants(tensor) {
            return;
        }
        let name = self.gradient_name(tensor);
        let part = self.like(tensor, name.clone(), TensorRole::Intermediate);
        let suffix = if kind == OperatorKind::Gemm { if options.transpose_a { ".dw" } else { ".dx" } } else { ".d" };
        let operator = self.fresh(format!("{from}{suffix}"));
        self.emit(kind, operator, inputs, part, options);
        self.pass(tensor, part);
    }

    /// Takes in a gradient that is there already.
    fn pass(&mut self, tensor: TensorId, part: TensorId) {
        if !self.wants(tensor) {
            return;
        }
        let Some(known) = self.gradients.get(&tensor).copied() else {
            self.gradients.insert(tensor, part);
            return;
        };
        let name = self.gradient_name(tensor);
        let sum = self.like(tensor, name.clone(), TensorRole::Intermediate);
        self.emit(OperatorKind::Add, name, vec![known, part], sum, GemmOptions::default());
        self.gradients.insert(tensor, sum);
    }

    /// `d_x`, or `d_x.2` and so on for further contributions and their sums.
    fn gradient_name(&self, tensor: TensorId) -> String {
        let name = format!("d_{}", self.graph.tensors[tensor].name);
        let taken = |name: &str| self.graph.tensors.iter().any(|t| t.name == name);
        (1..=u32::MAX)
            .map(|n| if n == 1 { name.clone() } else { format!("{name}.{n}") })
            .find(|name| !taken(name))
            .unwrap_or(name)
    }

    /// A name no operator has.
    fn fresh(&self, name: String) -> String {
        let taken = |name: &str| {
            self.list.iter().any(|p| p.name == name) || self.graph.operators.iter().any(|op| op.name == name)
        };
        (1..=u32::MAX)
            .map(|n| if n == 1 { name.clone() } else { format!("{name}{n}") })
            .find(|name| !taken(name))
            .unwrap_or(name)
    }

    fn of_operator(&mut self, op: OperatorId) -> Result<(), Diagnostic> {
        let operator = self.graph.operators[op].clone();
        let Written { inputs, options } = self.graph.written[op].clone();
        let Operator { kind, name, output, .. } = &operator;
        self.place = (operator.block, operator.repeat);
        if *kind == OperatorKind::CrossEntropy {
            let operands = vec![self.saved(inputs[0]), inputs[1]];
            self.contribute(inputs[0], name, OperatorKind::CrossEntropyGrad, operands, GemmOptions::default());
            return Ok(());
        }
        let Some(&dy) = self.gradients.get(output) else { return Ok(()) };
        let plain = GemmOptions::default();
        let x = self.saved(inputs[0]);
        let y = self.saved(*output);
        let of_heads = GemmOptions { heads: options.heads, kv_heads: options.kv_heads, ..plain };
        let gradient = match kind {
            OperatorKind::Gemm if options.transpose_a => None,
            OperatorKind::Gemm => {
                let of_a = GemmOptions { transpose_b: !options.transpose_b, ..options };
                self.contribute(inputs[0], name, *kind, vec![dy, self.saved(inputs[1])], of_a);
                let of_b = GemmOptions { transpose_a: true, transpose_b: false, ..options };
                let operands = if options.transpose_b { vec![dy, x] } else { vec![x, dy] };
                self.contribute(inputs[1], name, *kind, operands, of_b);
                return Ok(());
            }
            OperatorKind::Add => {
                self.pass(inputs[0], dy);
                self.pass(inputs[1], dy);
                return Ok(());
            }
            OperatorKind::Mul => {
                let other = self.saved(inputs[1]);
                self.contribute(inputs[0], name, *kind, vec![dy, other], plain);
                self.contribute(inputs[1], name, *kind, vec![dy, x], plain);
                return Ok(());
            }
            OperatorKind::Bias | OperatorKind::Reformat => {
                self.pass(inputs[0], dy);
                return Ok(());
            }
            OperatorKind::Embedding => {
                let of = &self.graph.tensors[dy];
                let rows = Tensor {
                    name: format!("{}.rows", self.gradient_name(inputs[1])),
                    role: TensorRole::Output,
                    ..of.clone()
                };
                let rows = self.graph.tensors.push(rows);
                let operator = self.fresh(format!("{name}.d"));
                self.emit(OperatorKind::EmbeddingGrad, operator, vec![dy], rows, plain);
                if let Some(pending) = self.list.last_mut() {
                    pending.indices = Some(inputs[0]);
                }
                self.tables.push((inputs[1], rows));
                return Ok(());
            }
            kind => match kind.gradient() {
                Gradient::OfInput(gradient) => Some((gradient, vec![x, dy])),
                Gradient::OfOutput(gradient) => Some((gradient, vec![y, dy])),
                Gradient::Itself => Some((*kind, vec![dy])),
                Gradient::Special => None,
            },
        };
        let Some((kind, operands)) = gradient else { return Err(no_gradient(&operator)) };
        self.contribute(inputs[0], name, kind, operands, of_heads);
        Ok(())
    }

    /// Runs the operators of a block again before their gradients, so that only its inputs need be saved.
    fn recompute(&mut self, run: &[OperatorId]) {
        for &op in &run[..run.len() - 1] {
            let operator = self.graph.operators[op].clone();
            self.place = (operator.block, operator.repeat);
            let mut written = self.graph.written[op].clone();
            for input in &mut written.inputs {
                *input = self.saved(*input);
            }
            let name = format!("{}.again", self.graph.tensors[operator.output].name);
            let output = self.like(operator.output, name, TensorRole::Intermediate);
            self.again.insert(operator.output, output);
            let name = format!("{}.again", operator.name);
            self.list.push(Pending { kind: operator.kind, name, written, output, is_gradient: false, indices: None });
        }
    }

    /// Puts what waits in order: gradients of activations first, as they form pipelines; sums over rows (weights, keys,
    /// values) when nothing else can go on.
    fn flush(&mut self) {
        let mut waiting: Vec<Pending> = self.list.drain(..).collect();
        while !waiting.is_empty() {
            let made: Vec<TensorId> = waiting.iter().map(|p| p.output).collect();
            let ready = |p: &Pending| !p.written.inputs.iter().any(|input| made.contains(input));
            let row_wise = |p: &Pending| ready(p) && !p.written.options.transpose_a;
            let Some(next) = waiting.iter().position(row_wise).or_else(|| waiting.iter().position(ready)) else {
                return;
            };
            let Pending { kind, name, written, output, is_gradient, indices } = waiting.remove(next);
            let mut operator = self.graph.operator(&name, kind, &written, output);
            operator.is_gradient = is_gradient;
            operator.indices = operator.indices.or(indices);
            (operator.block, operator.repeat) = self.place;
            operator.phase = Phase::Backward;
            self.graph.push(operator, written);
        }
    }

    /// Weights that have a gradient, with it.
    fn weights(&mut self) -> Vec<(TensorId, TensorId)> {
        let is_weight = |t: &TensorId| self.graph.tensors[*t].role == TensorRole::Weight;
        let mut list: Vec<(TensorId, TensorId)> =
            self.gradients.iter().filter(|(t, _)| is_weight(t)).map(|(&t, &g)| (t, g)).collect();
        for (table, rows) in std::mem::take(&mut self.tables) {
            if !self.gradients.contains_key(&table) {
                let (all, columns) = (self.graph.tensors[table].rows, self.graph.tensors[table].columns);
                list.push((table, self.graph.view(rows, all, columns, false)));
            }
        }
        list.sort_unstable();
        list
    }
}

/// The step of the optimiser on one weight: stored elements only, in rows of the weight's width.
fn update(graph: &mut Builder, kind: OperatorKind, weight: TensorId, gradient: TensorId) {
    let of = &graph.tensors[weight];
    let (name, columns, repeat) = (of.name.clone(), of.columns, of.repeat);
    let rows = of.stored_elements().div_ceil(columns);
    let block = graph
        .operators
        .iter()
        .find(|op| op.inputs.iter().any(|&t| t == weight || graph.tensors[t].view.is_some_and(|v| v.base == weight)))
        .and_then(|op| op.block);
    let flat = graph.view(gradient, rows, columns, false);
    let (inputs, output) = if kind == OperatorKind::SgdUpdate {
        let old = graph.view(weight, rows, columns, false);
        let new = Tensor { role: TensorRole::Output, ..graph.tensors[old].clone() };
        (vec![old, flat], graph.tensors.push(new))
    } else {
        // Master weight and two moments, 12 bytes an element.
        let state = Tensor {
            name: format!("adam_{name}"),
            columns: 3 * columns,
            rows,
            dtype: Dtype::Fp32,
            role: TensorRole::Input,
            mask: None,
            view: None,
            ..graph.tensors[weight].clone()
        };
        let state = graph.tensors.push(state);
        // And the weight that is computed with, in its own type.
        let narrow = (columns * graph.tensors[weight].dtype.bytes()).div_ceil(Dtype::Fp32.bytes());
        let new = graph.view(state, rows, 3 * columns + narrow, false);
        graph.tensors[new].role = TensorRole::Output;
        (vec![flat, state], new)
    };
    let written = Written { inputs, options: GemmOptions::default() };
    let mut operator = graph.operator(&format!("update_{name}"), kind, &written, output);
    operator.block = block;
    operator.repeat = repeat;
    operator.phase = Phase::Update;
    graph.push(operator, written);
}

fn no_gradient(operator: &Operator) -> Diagnostic {
    let title =
        format!("operator `{}` cannot be trained: `{}` has no gradient here", operator.name, operator.kind.name());
    let diagnostic =
        Diagnostic::new(title).with_help("remove `[training]`, or write the operator with others that have a gradient");
    match &operator.declared {
        Some(origin) => diagnostic.with_origin(Origin { label: "no gradient".to_owned(), ..origin.clone() }),
        None => diagnostic,
    }
}
