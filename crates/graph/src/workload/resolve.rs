//! Operators as the compiler takes them: transposed, gathered and flattened operands become views of tensors.

use std::sync::Arc;

use super::form::{GemmForm, GemmOptions};
use super::graph::{Operator, OperatorId, Tensor, TensorId, TensorRole, View};
use super::head_swap::HeadSwap;
use super::image::{ImageOptions, Window};
use super::kind::OperatorKind;
use super::link::Linked;
use crate::sparsity::smallest;
use rdusim_base::diagnostics::Origin;
use rdusim_base::index::{Id, IndexVec};

/// A graph while operators are added to it.
#[derive(Debug)]
pub(super) struct Builder {
    /// Tensors, views included.
    pub(super) tensors: IndexVec<TensorId, Tensor>,
    /// Operators, in order.
    pub(super) operators: IndexVec<OperatorId, Operator>,
    /// How each was written.
    pub(super) written: IndexVec<OperatorId, Written>,
}

/// Operands of an operator as they are declared, before views of them are made.
#[derive(Debug, Clone)]
pub(super) struct Written {
    pub(super) inputs: Vec<TensorId>,
    pub(super) options: GemmOptions,
}

/// How the rows of a view lie in the tensor that has the bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Reading {
    /// As its columns.
    transposed: bool,
    /// As its rows, in any order.
    gathered: bool,
    /// As windows of an image.
    window: Option<Window>,
}

impl Builder {
    /// A graph of tensors without operators.
    pub(super) fn new(tensors: IndexVec<TensorId, Tensor>) -> Self {
        Self { tensors, operators: IndexVec::new(), written: IndexVec::new() }
    }

    /// Adds an operator of a file, whose shapes are known to match. A weight that is stored by rows is brought into order
    /// of columns before its first product.
    pub(super) fn add(&mut self, linked: &Linked<'_>, repeat: u64, declared: Origin) {
        if linked.kind.is_view() {
            let (of, id) = (TensorId::from_index(linked.inputs[0]), TensorId::from_index(linked.output));
            let base = self.tensors[of].view.map_or(of, |view| view.base);
            let role = self.tensors[base].role;
            let is_part = linked.kind == OperatorKind::Slice;
            let (shape, options) = ((self.tensors[of].rows, self.tensors[of].columns), &linked.options);
            let swap = (linked.kind == OperatorKind::HeadTranspose)
                .then(|| HeadSwap::new(shape.0, shape.1, options.batch, options.heads))
                .flatten();
            let view = View { base, of, is_part, transposed: false, gathered: false, window: None, swap };
            self.tensors[id].view = Some(view);
            if role == TensorRole::Weight {
                self.tensors[id].role = role;
            }
            return;
        }
        let mut inputs: Vec<TensorId> = linked.inputs.iter().map(|&input| TensorId::from_index(input)).collect();
        if let [_, second] = inputs.as_mut_slice() {
            *second = self.by_columns(*second, linked.block, repeat);
        }
        let written = Written { inputs, options: linked.options };
        let output = TensorId::from_index(linked.output);
        let mut operator = match &linked.image {
            Some(options) => self.of_images(linked, options, &written, output),
            None => self.operator(&linked.name, linked.kind, &written, output),
        };
        operator.declared = Some(declared);
        operator.vectors = linked.vectors.iter().map(|&vector| TensorId::from_index(vector)).collect();
        operator.block = linked.block;
        operator.repeat = repeat;
        self.push(operator, written);
    }

    /// A weight in order of columns: itself, or what a conversion makes of it.
    fn by_columns(&mut self, weight: TensorId, block: Option<usize>, repeat: u64) -> TensorId {
        let of = &self.tensors[weight];
        let Some(mask) = of.mask.clone().filter(|mask| !mask.storage().format.lies_by_columns()) else { return weight };
        let is_conversion = |op: &&Operator| op.kind == OperatorKind::Reformat && op.inputs == [weight];
        if let Some(known) = self.operators.iter().find(is_conversion) {
            return known.output;
        }
        let storage = smallest(&mask, of.dtype.bytes());
        let mask = Some(Arc::new((*mask).clone().stored_as(storage)));
        let name = of.name.clone();
        let output = Tensor { name: format!("{name}.columns"), role: TensorRole::Intermediate, mask, ..of.clone() };
        let output = self.tensors.push(output);
        let written = Written { inputs: vec![weight], options: GemmOptions::default() };
        let mut operator = self.operator(&format!("convert_{name}"), OperatorKind::Reformat, &written, output);
        (operator.block, operator.repeat) = (block, repeat);
        self.push(operator, written);
        output
    }

    /// An operator on tensors as they are declared: what it reads in another shape becomes a view.
    pub(super) fn operator(&mut self, name: &str, kind: OperatorKind, written: &Written, output: TensorId) -> Operator {
        let options = &written.options;
        let mut inputs = written.inputs.clone();
        let (mut form, mut indices) = (None, None);
        let mut heads = options.heads;
        match kind {
            OperatorKind::Gemm => {
                let shape = |t: TensorId| (self.tensors[t].rows, self.tensors[t].columns);
                let found = GemmForm::new(shape(inputs[0]), shape(inputs[1]), options).ok();
                heads = 1;
                if let Some(found) = found {
                    if options.transpose_a {
                        let rows = found.instances * found.m;
                        inputs[0] = self.view(inputs[0], rows, found.heads * found.k, true);
                    }
                    if options.transpose_b && found.is_plain() {
                        let (rows, columns) = (self.tensors[inputs[1]].columns, self.tensors[inputs[1]].rows);
                        inputs[1] = self.view(inputs[1], rows, columns, true);
                    }
                    // Heads that add up in one are no product of the whole operands.
                    let in_groups = options.transpose_a && options.heads != options.kv_heads;
                    form = Some(found).filter(|form| in_groups || !form.is_plain());
                }
            }
            OperatorKind::Embedding => {
                let (rows, columns) = (self.tensors[inputs[0]].rows, self.tensors[inputs[1]].columns);
                indices = Some(inputs[0]);
                inputs = vec![self.view_as(inputs[1], rows, columns, Reading { gathered: true, ..Reading::default() })];
            }
            OperatorKind::Transpose => {
                let (rows, columns) = (self.tensors[inputs[0]].columns, self.tensors[inputs[0]].rows);
                inputs = vec![self.view(inputs[0], rows, columns, true)];
            }
            // Every column stands for itself.
            kind if kind.has_taps() || kind == OperatorKind::RunningProduct => heads = self.tensors[inputs[0]].columns,
            OperatorKind::CrossEntropy | OperatorKind::CrossEntropyGrad => {
                indices = inputs.get(1).copied();
                inputs.truncate(1);
            }
            _ => {}
        }
        let operator = Operator::new(name.to_owned(), kind, inputs, output);
        Operator { form, heads, options: *options, indices, ..operator }
    }

    /// A pooling, or a convolution as a GEMM over the windows of its images; groups are heads of it.
    fn of_images(
        &mut self,
        linked: &Linked<'_>,
        options: &ImageOptions,
        written: &Written,
        output: TensorId,
    ) -> Operator {
        let mut inputs = written.inputs.clone();
        let Tensor { rows: pixels, columns: channels, .. } = self.tensors[inputs[0]];
        let rows = self.tensors[output].rows;
        if !options.is_pointwise() {
            let window = options.window(pixels, channels);
            let reading = Reading { window: Some(window), ..Reading::default() };
            inputs[0] = self.view_as(inputs[0], rows, channels * options.taps(), reading);
        }
        if linked.kind.is_pool() {
            return Operator::new(linked.name.clone(), linked.kind, inputs, output);
        }
        let Tensor { rows: k, columns: n, .. } = self.tensors[inputs[1]];
        let groups = options.groups;
        let grouped =
            GemmForm { instances: 1, heads: groups, b_heads: groups, m: rows, n: n / groups, k, causal: None };
        let form = Some(grouped).filter(|_| groups > 1);
        Operator { form, ..Operator::new(linked.name.clone(), OperatorKind::Gemm, inputs, output) }
    }

    /// Adds an operator; what it touches exists as often as it runs.
    pub(super) fn push(&mut self, operator: Operator, written: Written) {
        for &tensor in operator.inputs.iter().chain([&operator.output]).chain(&operator.vectors) {
            let base = self.tensors[tensor].view.map_or(tensor, |view| view.base);
            for touched in [tensor, base] {
                self.tensors[touched].repeat = self.tensors[touched].repeat.max(operator.repeat);
            }
        }
        self.operators.push(operator);
        self.written.push(written);
    }

    /// Bytes of a tensor in another shape; the same view is made once.
    pub(super) fn view(&mut self, of: TensorId, rows: u64, columns: u64, transposed: bool) -> TensorId {
        self.view_as(of, rows, columns, Reading { transposed, ..Reading::default() })
    }

    fn view_as(&mut self, of: TensorId, rows: u64, columns: u64, reading: Reading) -> TensorId {
        let Reading { transposed, gathered, window } = reading;
        let base = self.tensors[of].view.map_or(of, |view| view.base);
        // Only a shape that a file gives a tensor stays between.
        let of = if self.tensors[of].name == self.tensors[base].name { base } else { of };
        let view = View { base, of, is_part: false, transposed, gathered, window, swap: None };
        let same = |t: &Tensor| t.view == Some(view) && (t.rows, t.columns) == (rows, columns);
        if let Some((known, _)) = self.tensors.iter_enumerated().find(|(_, t)| same(t)) {
            return known;
        }
        let source = &self.tensors[base];
        let mask = source.mask.as_ref().filter(|_| view.transposed).map(|mask| Arc::new(mask.transposed()));
        let role = match source.role {
            TensorRole::Output => TensorRole::Intermediate,
            role => role,
        };
        let view = Tensor { rows, columns, mask, role, view: Some(view), ..source.clone() };
        self.tensors.push(view)
    }

    /// The tensors and the operators.
    pub(super) fn finish(self) -> (IndexVec<TensorId, Tensor>, IndexVec<OperatorId, Operator>) {
        (self.tensors, self.operators)
    }
}
