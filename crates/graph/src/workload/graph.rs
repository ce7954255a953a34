//! The resolved operator graph: what the compiler and the simulator see.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use indexmap::IndexMap;
use petgraph::graph::DiGraph;
use serde::{Deserialize, Serialize};

pub(super) use super::form::{GemmForm, GemmOptions};
use super::head_swap::HeadSwap;
pub use super::image::Window;
pub(super) use super::kind::{OperatorKind, Phase};
use super::packed::Packed;
use super::pruned::PrunedActivation;

use crate::sparsity::BlockMask;
use rdusim_base::diagnostics::{Diagnostic, Origin};
use rdusim_base::id_type;
use rdusim_base::index::IndexVec;
use rdusim_base::units::Dtype;

id_type! {
    /// A tensor of the workload.
    TensorId
}
id_type! {
    /// An operator of the workload.
    OperatorId
}

/// Where a tensor comes from or goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TensorRole {
    /// Activations that come from off chip.
    Input,
    /// Parameters.
    Weight,
    /// Produced and consumed inside the graph.
    Intermediate,
    /// Produced by the graph and wanted off chip.
    Output,
}

/// A tensor: rows x columns, row-major.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// Name in the file.
    pub name: String,
    /// Rows (tokens for activations, K for weights).
    pub rows: u64,
    /// Columns.
    pub columns: u64,
    /// Element type.
    pub dtype: Dtype,
    /// Role in the graph.
    pub role: TensorRole,
    /// Which blocks of a sparse weight are stored; `None` for dense.
    pub mask: Option<Arc<BlockMask>>,
    /// How a dense second operand is stored, if not in its data type.
    pub packed: Option<Packed>,
    /// How an activation that is the first operand of products is pruned; `None` for dense.
    pub pruned: Option<PrunedActivation>,
    /// Where it is declared, for errors about it.
    pub declared: Option<Origin>,
    /// The tensor whose bytes these are, seen in another shape.
    pub view: Option<View>,
    /// Times it exists: once for every repetition of the block of operators it belongs to.
    pub repeat: u64,
}

/// Another way to see the bytes of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// The tensor that has the bytes.
    pub base: TensorId,
    /// What it is another shape of: the base, or a view of it.
    pub of: TensorId,
    /// Its first rows and columns alone.
    pub is_part: bool,
    /// Rows of the view are columns of the base: they lie apart in memory.
    pub transposed: bool,
    /// Rows of the view are rows of the base in any order: each lies apart from the one before.
    pub gathered: bool,
    /// Rows of the view are windows of an image.
    pub window: Option<Window>,
    /// Rows and heads of the view are exchanged.
    pub swap: Option<HeadSwap>,
}

impl Tensor {
    /// Bytes if every element is stored. Of windows, those of the image: what two windows share comes once.
    pub fn dense_bytes(&self) -> u64 {
        self.window().map_or(self.rows * self.columns, |window| window.elements) * self.dtype.bytes()
    }

    /// Bytes if every element is stored, in the format that the tensor is stored in.
    pub fn unmasked_bytes(&self) -> u64 {
        if self.packed.is_some() { self.stored_bytes() } else { self.dense_bytes() }
    }

    /// Elements, stored or not; at least one.
    pub fn dense_elements(&self) -> f64 {
        (self.rows as f64 * self.columns as f64).max(1.0)
    }

    /// Bytes of an element with its share of the scales, of a tensor that is expanded before it is multiplied.
    pub fn packed_element_bytes(&self) -> Option<f64> {
        self.packed.filter(|_| self.is_expanded()).map(|_| self.stored_bytes() as f64 / self.dense_elements())
    }

    /// Of windows of an image, what of it they take.
    pub fn window(&self) -> Option<Window> {
        self.view.and_then(|view| view.window)
    }

    /// Elements of rows `rows` and `columns` columns from the first. Of windows, their part of the image: parts add up
    /// to the whole.
    pub fn elements_of(&self, rows: Range<u64>, columns: u64) -> u64 {
        let Some(window) = self.window() else { return (rows.end - rows.start) * columns };
        let upto = |row: u64| u128::from(window.elements) * u128::from(row) / u128::from(self.rows.max(1));
        (upto(rows.end) - upto(rows.start)) as u64
    }

    /// Elements that must lie side by side for any `rows` rows of `columns` columns. Of windows, their part of the
    /// image and the lines around it.
    pub fn elements_to_hold(&self, rows: u64, columns: u64) -> u64 {
        let Some(window) = self.window() else { return rows * columns };
        let part = (u128::from(window.elements) * u128::from(rows)).div_ceil(u128::from(self.rows.max(1)));
        (part as u64).saturating_add(window.halo_elements).min(window.elements)
    }

    /// Elements actually stored.
    pub fn stored_elements(&self) -> u64 {
        self.mask.as_ref().map_or(self.rows * self.columns, |mask| mask.stored_elements())
    }

    /// Whether it is stored in other elements than it is multiplied in, to which they are expanded as they are read.
    pub fn is_expanded(&self) -> bool {
        self.packed.is_some_and(|packed| Some(packed.elements) != self.dtype.element())
    }

    /// Bytes that it takes in memory: those stored, or all of which the mask selects what a run reads.
    pub fn held_bytes(&self) -> u64 {
        let is_selected = self.mask.as_ref().is_some_and(|mask| mask.is_selection());
        if is_selected { self.dense_bytes() } else { self.stored_bytes() }
    }

    /// Bytes of the stored values and of the metadata that finds them, in the format of the mask, or of the elements and scales
    /// of another format.
    pub fn stored_bytes(&self) -> u64 {
        if let Some(packed) = &self.packed {
            return packed.bytes(self.rows, self.columns);
        }
        let element_bytes = self.dtype.bytes();
        self.mask.as_ref().map_or_else(|| self.dense_bytes(), |mask| mask.stored_bytes(element_bytes))
    }
}

/// One operator.
#[derive(Debug, Clone)]
pub struct Operator {
    /// Name in the file.
    pub name: String,
    /// What it computes.
    pub kind: OperatorKind,
    /// Inputs, in the order of [`OperatorKind`]'s formula.
    pub inputs: Vec<TensorId>,
    /// Its one output.
    pub output: TensorId,
    /// Where it is declared, for errors about it.
    pub declared: Option<Origin>,
    /// Of a GEMM, its shape.
    pub form: Option<GemmForm>,
    /// Heads side by side in a row, each with a softmax or rotation of its own.
    pub heads: u64,
    /// Row vectors of parameters (gain, bias): they ride with the arguments of a launch.
    pub vectors: Vec<TensorId>,
    /// The block of operators it is repeated with.
    pub block: Option<usize>,
    /// Times it runs.
    pub repeat: u64,
    /// It runs once in so many training steps, and what it costs is shared by them.
    pub every: u64,
    /// Part of a training step.
    pub phase: Phase,
    /// How its operands are written: heads, sequences, transposition.
    pub options: GemmOptions,
    /// The indices of an embedding, or the labels of a loss, that ride with the arguments of a launch.
    pub indices: Option<TensorId>,
    /// Of a step of an optimiser the weight that it replaces, of what adds to a running sum the sum.
    pub updates: Option<TensorId>,
    /// It carries a gradient back through an operator of its own kind: turns the other way, masks with zero.
    pub is_gradient: bool,
}

impl Operator {
    /// Whether it takes a gradient into what lies off chip: a step of an optimiser, or a running sum.
    pub fn is_step(&self) -> bool {
        self.updates.is_some()
    }

    /// An operator that runs once, outside any block.
    pub fn new(name: String, kind: OperatorKind, inputs: Vec<TensorId>, output: TensorId) -> Self {
        Self {
            name,
            kind,
            inputs,
            output,
            declared: None,
            form: None,
            heads: 1,
            vectors: Vec::new(),
            block: None,
            repeat: 1,
            every: 1,
            phase: Phase::Forward,
            options: GemmOptions::default(),
            indices: None,
            updates: None,
            is_gradient: false,
        }
    }
}

/// One section of a pinned partition.
#[derive(Debug, Clone)]
pub struct PinnedSection {
    /// Its operators, in topological order.
    pub operators: Vec<OperatorId>,
    /// Where it is declared, for errors about it.
    pub declared: Option<Origin>,
}

/// An operator graph, shapes inferred and checked.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Name for people.
    pub name: String,
    /// Named dimensions.
    pub dims: IndexMap<String, u64>,
    /// Tensors.
    pub tensors: IndexVec<TensorId, Tensor>,
    /// Operators in topological order.
    pub operators: IndexVec<OperatorId, Operator>,
    /// Operators as nodes, tensors that pass from one to another as edges.
    pub graph: DiGraph<OperatorId, TensorId>,
    /// What its author, or the program that wrote it, wants every result to say.
    pub notes: Vec<String>,
    /// The partition of a fused run, in the order its sections run; empty if the compiler may choose.
    pub sections: Vec<PinnedSection>,
    /// The text of the file, overrides applied; empty if it was not read from one.
    pub text: Arc<str>,
    /// Who makes and reads each tensor.
    links: Links,
}

/// The operators at either end of each tensor.
#[derive(Debug, Clone, Default)]
struct Links {
    producer: IndexVec<TensorId, Option<OperatorId>>,
    /// In order; those of a view read what it is a view of, too.
    consumers: IndexVec<TensorId, Vec<OperatorId>>,
}

impl Links {
    /// Of a whole graph.
    fn new(tensors: &IndexVec<TensorId, Tensor>, operators: &IndexVec<OperatorId, Operator>) -> Self {
        let mut links = Self {
            producer: IndexVec::filled(tensors.len(), None),
            consumers: IndexVec::filled(tensors.len(), Vec::new()),
        };
        for (id, operator) in operators.iter_enumerated() {
            links.producer[operator.output].get_or_insert(id);
            let bases = operator.inputs.iter().filter_map(|&input| Some(tensors[input].view?.base));
            for read in operator.inputs.iter().copied().chain(bases) {
                let list = &mut links.consumers[read];
                if list.last() != Some(&id) {
                    list.push(id);
                }
            }
        }
        links
    }
}

/// Operators as nodes, in order, and an edge for every tensor from its producer to each of its consumers.
fn graph_of(operators: &IndexVec<OperatorId, Operator>, tensors: usize) -> DiGraph<OperatorId, TensorId> {
    let mut graph = DiGraph::new();
    let mut producer = IndexVec::<TensorId, _>::filled(tensors, None);
    for (id, operator) in operators.iter_enumerated() {
        let node = graph.add_node(id);
        for (position, &input) in operator.inputs.iter().enumerate() {
            if let Some(from) = producer[input].filter(|_| !operator.inputs[..position].contains(&input)) {
                graph.add_edge(from, node, input);
            }
        }
        producer[operator.output] = Some(node);
    }
    graph
}

impl Workload {
    /// A graph of operators in topological order.
    pub fn new(
        name: String,
        dims: IndexMap<String, u64>,
        tensors: IndexVec<TensorId, Tensor>,
        operators: IndexVec<OperatorId, Operator>,
    ) -> Self {
        let graph = graph_of(&operators, tensors.len());
        let links = Links::new(&tensors, &operators);
        Self {
            name,
            dims,
            tensors,
            operators,
            graph,
            notes: Vec::new(),
            sections: Vec::new(),
            text: Arc::default(),
            links,
        }
    }

    /// A sentence for the results of a chip that multiplies pruned activations as if they were dense, if there are any: all, or those
    /// that are not 2:4 where it has that mode.
    pub fn pruned_as_dense(&self, has_two_of_four: bool) -> Option<String> {
        let is_dense = |t: &&Tensor| t.pruned.is_some_and(|pruned| !(has_two_of_four && pruned.is_two_of_four()));
        let names: Vec<String> = self.tensors.iter().filter(is_dense).map(|t| format!("`{}`", t.name)).collect();
        let which = names.join(", ");
        (!names.is_empty()).then(|| {
            format!(
                "the activation sparsity of {which} is not used: this chip moves and multiplies all elements, none is pruned"
            )
        })
    }

    /// Refuses products of a data type that a chip does not multiply; `field` of its file has those that it does.
    ///
    /// # Errors
    /// The first such product.
    pub fn refuse_types<V>(&self, chip: &str, field: &str, known: &BTreeMap<Dtype, V>) -> Result<(), Diagnostic> {
        let of = |operator: &&Operator| self.tensors[operator.inputs[0]].dtype;
        let mut products = self.operators.iter().filter(|operator| operator.kind == OperatorKind::Gemm);
        let Some(operator) = products.find(|operator| !known.contains_key(&of(operator))) else { return Ok(()) };
        let dtype = of(&operator);
        let names: Vec<&str> = known.keys().map(|dtype| dtype.name()).collect();
        let title = format!("operator `{}` multiplies {dtype}, which {chip} cannot", operator.name);
        let error = Diagnostic::new(title).with_help(format!(
            "its `{field}` has {}; `emulated` may say as what else it multiplies",
            names.join(", ")
        ));
        Err(match &operator.declared {
            Some(origin) => error.with_origin(Origin { label: format!("of {dtype}"), ..origin.clone() }),
            None => error,
        })
    }

    /// The operator that produces a tensor, if it is not an input or weight.
    pub fn producer(&self, tensor: TensorId) -> Option<OperatorId> {
        self.links.producer[tensor]
    }

    /// The operators that consume a tensor, as it is or as a view, in order.
    pub fn consumers(&self, tensor: TensorId) -> impl Iterator<Item = OperatorId> + '_ {
        self.links.consumers[tensor].iter().copied()
    }

    /// The tensor that has the bytes of `tensor`: itself, or what it is a view of.
    pub fn base(&self, tensor: TensorId) -> TensorId {
        self.tensors[tensor].view.map_or(tensor, |view| view.base)
    }

    /// Elements of a view that lie side by side in memory, where rows and heads are exchanged on the way to it; `None` of others.
    pub fn piece_elements(&self, tensor: TensorId) -> Option<u64> {
        let mut view = self.tensors[tensor].view;
        let mut least: Option<u64> = None;
        while let Some(seen) = view {
            least = seen.swap.map(|swap| swap.width).into_iter().chain(least).min();
            view = self.tensors[seen.of].view;
        }
        least
    }

    /// The shape of a GEMM operator.
    pub fn form(&self, operator: OperatorId) -> Option<GemmForm> {
        let op = &self.operators[operator];
        if op.kind != OperatorKind::Gemm {
            return None;
        }
        let (a, b) = (&self.tensors[op.inputs[0]], &self.tensors[op.inputs[1]]);
        Some(op.form.unwrap_or(GemmForm::plain(a.rows, b.columns, a.columns)))
    }

    /// M, N, K of one product of a GEMM operator.
    pub fn gemm_shape(&self, operator: OperatorId) -> Option<(u64, u64, u64)> {
        self.form(operator).map(|form| (form.m, form.n, form.k))
    }

    /// MACs of one run of an operator with every element counted (zero for other than GEMM), but for rows that hold nothing.
    pub fn dense_macs(&self, operator: OperatorId) -> u64 {
        self.form(operator).map_or(0, |form| self.of_filled_rows(operator, &form, form.dense_macs()))
    }

    /// Of so many MACs, those of rows that hold something.
    fn of_filled_rows(&self, operator: OperatorId, form: &GemmForm, macs: u64) -> u64 {
        let rows = u128::from(form.instances) * u128::from(form.m);
        match self.operators[operator].options.filled_rows {
            Some(filled) if u128::from(filled) < rows => {
                u64::try_from(u128::from(macs) * u128::from(filled) / rows).unwrap_or(u64::MAX)
            }
            _ => macs,
        }
    }

    /// MACs of one run of an operator counting stored weight elements, and query-key pairs that causality keeps, only.
    pub fn stored_macs(&self, operator: OperatorId) -> u64 {
        self.form(operator).map_or(0, |form| {
            let op = &self.operators[operator];
            let macs = match (&self.tensors[op.inputs[1]].mask, &self.tensors[op.output].mask) {
                (Some(mask), _) => form.m * mask.stored_elements(),
                // Only stored elements of a sparse weight's gradient are computed.
                (None, Some(mask)) => form.k * mask.stored_elements(),
                (None, None) => form.causal_macs(),
            };
            self.of_filled_rows(operator, &form, macs)
        })
    }

    /// Rows that the activations of an operator have.
    pub fn rows(&self, operator: OperatorId) -> u64 {
        self.tensors[self.operators[operator].output].rows
    }

    /// The first operator of a model: with heads, sequences, row vectors or views, repeated, or in a training step.
    pub fn first_of_a_model(&self) -> Option<OperatorId> {
        let is_of_a_model = |op: &Operator| !self.is_plain(op) || !op.vectors.is_empty() || op.block.is_some();
        self.operators.iter_enumerated().find(|(_, op)| is_of_a_model(op)).map(|(id, _)| id)
    }

    fn is_plain(&self, op: &Operator) -> bool {
        use OperatorKind::{Add, Gemm, LayerNorm, Mul, RmsNorm, Softmax};
        let is_of_kind = op.kind.is_function() || matches!(op.kind, Gemm | Add | Mul | Softmax | LayerNorm | RmsNorm);
        let is_view = |&t: &TensorId| self.tensors[t].view.is_some();
        let is_shaped = op.inputs.iter().chain([&op.output]).any(is_view);
        is_of_kind && !is_shaped && op.form.is_none() && op.heads <= 1 && op.phase == Phase::Forward
    }

    /// Stored parameters of all weights, those of repeated blocks counted every time; all of a weight of which a run selects some.
    pub fn parameters(&self) -> u64 {
        let own = |t: &&Tensor| t.role == TensorRole::Weight && t.view.is_none();
        let is_selected = |t: &Tensor| t.mask.as_ref().is_some_and(|mask| mask.is_selection());
        let stored = |t: &Tensor| if is_selected(t) { t.rows * t.columns } else { t.stored_elements() };
        self.tensors.iter().filter(own).map(|t| stored(t) * t.repeat).sum()
    }
}
