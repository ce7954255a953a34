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
use rdusim_base::diagnostics::{Diagnostic, Origin};
use rdusim_base::input::{Source, Table};
use rdusim_base::units::Dtype;
use toml::Spanned;

/// What `[training]` asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TrainingOptions {
    optimizer: OperatorKind,
    recompute: Recompute,
    /// Micro-batches of a step, of which the graph is one.
    micro_batches: u64,
    pattern: Option<PatternOptions>,
}

/// What the backward phase computes again instead of reading it from memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recompute {
    /// Nothing.
    None,
    /// Scores and probabilities of attention, which take sequence x sequence elements a head and few operations: selective
    /// recomputation (Korthikanti et al., *Reducing Activation Recomputation in Large Transformer Models*, 2022).
    Attention,
    /// Every operator of a block, of which only the inputs are saved.
    Blocks,
}

/// Values of `training.activations`.
const ACTIVATIONS: [(&str, Recompute); 3] =
    [("saved", Recompute::None), ("selective", Recompute::Attention), ("recomputed", Recompute::Blocks)];

/// The largest number of micro-batches.
const MOST_MICRO_BATCHES: u64 = 1 << 40;

/// Reads `[training]`.
pub(super) fn options(source: &Source, spec: &Spanned<Table<TrainingSpec>>) -> Result<TrainingOptions, Diagnostic> {
    let spec = spec.get_ref();
    let optimizers = [("adam", OperatorKind::AdamUpdate), ("sgd", OperatorKind::SgdUpdate)];
    let chosen = source.keyword("training.optimizer", &spec.optimizer, &optimizers.map(|(name, _)| name))?;
    let recompute = match &spec.activations {
        Some(word) => ACTIVATIONS[source.keyword("training.activations", word, &ACTIVATIONS.map(|(name, _)| name))?].1,
        None => Recompute::None,
    };
    let count = |micro| source.count("training.micro_batches", micro, 1..=MOST_MICRO_BATCHES);
    let micro_batches = spec.micro_batches.as_ref().map_or(Ok(1), count)?;
    let pattern = spec.pattern.as_ref().map(|pattern| dynamic::options(source, pattern)).transpose()?;
    Ok(TrainingOptions { optimizer: optimizers[chosen].1, recompute, micro_batches, pattern })
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
        entering: Vec::new(),
    };
    backward.entering(&forward);
    backward.seeds(&forward);
    let mut at = forward.len();
    while at > 0 {
        let block = backward.graph.operators[forward[at - 1]].block;
        let start = (0..at).rev().find(|&i| backward.graph.operators[forward[i]].block != block).map_or(0, |i| i + 1);
        let run = &forward[start..at];
        match options.recompute {
            Recompute::Blocks if block.is_some() => backward.recompute(&run[..run.len() - 1], false),
            Recompute::Attention => backward.recompute(&probabilities(backward.graph, run), true),
            _ => {}
        }
        for &op in run.iter().rev() {
            backward.of_operator(op)?;
        }
        backward.flush();
        at = start;
    }
    backward.leave();
    let weights: Vec<(TensorId, TensorId)> = backward.weights();
    let Backward { graph, .. } = backward;
    for &(weight, gradient) in &weights {
        let summed = accumulated(graph, options.micro_batches, weight, gradient);
        update(graph, options.optimizer, options.micro_batches, weight, summed);
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
    /// It waits until no gradient can go on without it, to run beside its reader.
    is_late: bool,
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
    /// What enters a block: the repetition before, or the chip before, wants its gradient.
    entering: Vec<TensorId>,
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

    /// Finds what enters blocks: inputs of the shape of what their last operator makes.
    fn entering(&mut self, forward: &[OperatorId]) {
        let operators = forward.iter().map(|&op| &self.graph.operators[op]).filter(|operator| operator.block.is_some());
        let mut last = BTreeMap::new();
        for operator in operators.clone() {
            last.insert(operator.block, operator.output);
        }
        let shape = |t: TensorId| {
            let tensor = &self.graph.tensors[t];
            (tensor.rows, tensor.columns, tensor.dtype)
        };
        for operator in operators {
            for &input in &operator.inputs {
                let of = &self.graph.tensors[input];
                let enters = of.role == TensorRole::Input
                    && of.view.is_none()
                    && operator.indices != Some(input)
                    && last.get(&operator.block).is_some_and(|&made| shape(made) == shape(input));
                if enters && !self.entering.contains(&input) {
                    self.entering.push(input);
                }
            }
        }
    }

    /// Gradients of what enters blocks leave the graph, unless they came into it.
    fn leave(&mut self) {
        for &input in &self.entering {
            if let Some(&gradient) = self.gradients.get(&input) {
                let tensor = &mut self.graph.tensors[gradient];
                if tensor.role == TensorRole::Intermediate {
                    tensor.role = TensorRole::Output;
                }
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
        self.list.push(Pending { kind, name, written, output, is_gradient: true, is_late: false, indices: None });
    }

    /// Whether anything wants the gradient of a tensor.
    fn wants(&self, tensor: TensorId) -> bool {
        self.graph.tensors[tensor].role != TensorRole::Input || self.entering.contains(&tensor)
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

    /// Runs operators again before their gradients, so that what they make need not be saved.
    fn recompute(&mut self, operators: &[OperatorId], is_late: bool) {
        for &op in operators {
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
            let (kind, is_gradient, indices) = (operator.kind, false, None);
            self.list.push(Pending { kind, name, written, output, is_gradient, is_late, indices });
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
            let first = |rule: &dyn Fn(&Pending) -> bool| waiting.iter().position(rule);
            let next = first(&|p| row_wise(p) && !p.is_late).or_else(|| first(&row_wise)).or_else(|| first(&ready));
            let Some(next) = next else { return };
            let Pending { kind, name, written, output, is_gradient, indices, .. } = waiting.remove(next);
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

/// The operators that make probabilities of attention: from the product of queries and keys (a GEMM of two activations) over
/// functions of an element or a row to a softmax, where each result has one reader before the softmax; and what is dropped of
/// them.
fn probabilities(graph: &Builder, run: &[OperatorId]) -> Vec<OperatorId> {
    let is_made = |tensor: TensorId| graph.tensors[tensor].role == TensorRole::Intermediate;
    let producer = |tensor: TensorId| run.iter().copied().find(|&op| graph.operators[op].output == tensor);
    let readers = |tensor: TensorId| graph.operators.iter().filter(|op| op.inputs.contains(&tensor)).count();
    let chain_to = |softmax: OperatorId| {
        let mut chain = vec![softmax];
        let mut at = softmax;
        loop {
            let before = graph.written[at].inputs[0];
            at = producer(before).filter(|_| is_made(before) && readers(before) == 1)?;
            chain.push(at);
            let Written { inputs, options } = &graph.written[at];
            match graph.operators[at].kind {
                OperatorKind::Gemm if options.transpose_b && inputs.iter().all(|&input| is_made(input)) => {
                    return Some(chain);
                }
                kind if (kind.is_elementwise() || kind.is_row_wise()) && inputs.len() == 1 => {}
                _ => return None,
            }
        }
    };
    let is_softmax = |op: &OperatorId| graph.operators[*op].kind == OperatorKind::Softmax;
    let mut list: Vec<OperatorId> = run.iter().copied().filter(is_softmax).filter_map(chain_to).flatten().collect();
    let drops = |op: &OperatorId| {
        let Operator { kind, inputs, .. } = &graph.operators[*op];
        *kind == OperatorKind::Dropout && producer(inputs[0]).is_some_and(|from| list.contains(&from))
    };
    let dropped: Vec<OperatorId> = run.iter().copied().filter(drops).collect();
    list.extend(dropped);
    list.sort_unstable();
    list
}

/// The block whose operators read a weight.
fn block_of(graph: &Builder, weight: TensorId) -> Option<usize> {
    let reads = |t: TensorId| t == weight || graph.tensors[t].view.is_some_and(|v| v.base == weight);
    graph.operators.iter().find(|op| op.inputs.iter().any(|&t| reads(t))).and_then(|op| op.block)
}

/// The gradient that the step of the optimiser reads: with several micro-batches their sum, to which each adds its own in place.
fn accumulated(graph: &mut Builder, micro_batches: u64, weight: TensorId, gradient: TensorId) -> TensorId {
    if micro_batches == 1 {
        return gradient;
    }
    let of = &graph.tensors[weight];
    let (name, columns, repeat) = (of.name.clone(), of.columns, of.repeat);
    let rows = of.stored_elements().div_ceil(columns);
    let sum = Tensor {
        name: format!("sum_{name}"),
        rows,
        columns,
        role: TensorRole::Input,
        mask: None,
        view: None,
        ..graph.tensors[weight].clone()
    };
    let sum = graph.tensors.push(sum);
    let flat = graph.view(gradient, rows, columns, false);
    let old = graph.view(sum, rows, columns, false);
    let new = Tensor { role: TensorRole::Output, ..graph.tensors[old].clone() };
    let new = graph.tensors.push(new);
    let written = Written { inputs: vec![old, flat], options: GemmOptions::default() };
    let mut operator = graph.operator(&format!("accumulate_{name}"), OperatorKind::Add, &written, new);
    (operator.block, operator.repeat, operator.phase) = (block_of(graph, weight), repeat, Phase::Backward);
    operator.updates = Some(sum);
    graph.push(operator, written);
    sum
}

/// The step of the optimiser on one weight: stored elements only, in rows of the weight's width. It runs once in all
/// micro-batches.
fn update(graph: &mut Builder, kind: OperatorKind, micro_batches: u64, weight: TensorId, gradient: TensorId) {
    let of = &graph.tensors[weight];
    let (name, columns, repeat) = (of.name.clone(), of.columns, of.repeat);
    let rows = of.stored_elements().div_ceil(columns);
    let block = block_of(graph, weight);
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
    operator.every = micro_batches;
    operator.updates = Some(weight);
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
