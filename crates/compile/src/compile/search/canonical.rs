//! Runs of operators that are the same but for their names: they are compiled once.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::compile::mapping::plan::SectionPlan;
use rdusim_base::index::Id;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::TierId;
use rdusim_graph::sparsity::BlockMask;
use rdusim_graph::workload::{
    GemmForm, GemmOptions, OperatorId, OperatorKind, Packed, TensorId, TensorRole, Window, Workload,
};
use rdusim_program::{BufferRole, BufferSpec, Nest, Section, SectionGraph, StageSpec, tied_columns};

/// Everything about a run of operators that its compilation depends on; tensors are numbered as they first appear.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CanonicalForm {
    operators: Vec<OperatorForm>,
    tensors: Vec<TensorForm>,
    /// Tensors whose columns are cut together, where stages add up over rows.
    ties: Vec<(usize, usize)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct OperatorForm {
    kind: OperatorKind,
    form: Option<GemmForm>,
    options: GemmOptions,
    heads: u64,
    /// With which block and phase, counted as they first appear, and how often it is repeated.
    place: (usize, u64),
    inputs: Vec<usize>,
    output: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct TensorForm {
    /// Another shape of a tensor: whether transposed, of which one here, and what its windows take.
    view: Option<(bool, Option<usize>, Option<Window>)>,
    /// Elements that lie side by side, where rows and heads are exchanged.
    piece: Option<u64>,
    shape: (u64, u64),
    dtype: Dtype,
    tier: TierId,
    mask: Option<usize>,
    packed: Option<Packed>,
    /// Made here, and wanted elsewhere too.
    leaves: bool,
    /// Made here for one operator here.
    is_private: bool,
}

/// Finds canonical forms in one workload.
pub(crate) struct CanonicalForms<'a> {
    workload: &'a Workload,
    tiers: &'a [TierId],
    /// Which mask a tensor has, of those that differ.
    masks: Vec<Option<usize>>,
}

impl<'a> CanonicalForms<'a> {
    /// Reads the tensors of a workload.
    pub(crate) fn new(workload: &'a Workload, tiers: &'a [TierId]) -> Self {
        let mut different: Vec<&Arc<BlockMask>> = Vec::new();
        let mut masks = Vec::with_capacity(workload.tensors.len());
        for tensor in &workload.tensors {
            masks.push(tensor.mask.as_ref().map(|mask| {
                let same = |other: &&Arc<BlockMask>| Arc::ptr_eq(other, mask) || ***other == **mask;
                different.iter().position(same).unwrap_or_else(|| {
                    different.push(mask);
                    different.len() - 1
                })
            }));
        }
        Self { workload, tiers, masks }
    }

    /// The canonical form of a run of operators in topological order.
    pub(crate) fn canonical_form(&self, operators: &[OperatorId]) -> CanonicalForm {
        let tensors = tensors(self.workload, operators);
        let number: FxHashMap<TensorId, usize> = tensors.iter().enumerate().map(|(i, &t)| (t, i)).collect();
        let of_operator = |&op: &OperatorId| {
            let operator = &self.workload.operators[op];
            let inputs = operator.inputs.iter().map(|input| number[input]).collect();
            let place = |op: OperatorId| (self.workload.operators[op].block, self.workload.operators[op].phase);
            let with = operators.iter().position(|&other| place(other) == place(op)).unwrap_or_default();
            OperatorForm {
                kind: operator.kind,
                form: operator.form,
                options: operator.options,
                heads: operator.heads,
                place: (with, operator.repeat),
                inputs,
                output: number[&operator.output],
            }
        };
        let made_here = |tensor| operators.iter().any(|&op| self.workload.operators[op].output == tensor);
        let of_tensor = |&id: &TensorId| {
            let tensor = &self.workload.tensors[id];
            let consumers: Vec<OperatorId> = self.workload.consumers(id).collect();
            let is_output = tensor.role == TensorRole::Output;
            let outside = consumers.iter().any(|op| !operators.contains(op));
            let is_made_here = made_here(id);
            TensorForm {
                view: tensor.view.map(|view| (view.transposed, number.get(&view.base).copied(), view.window)),
                piece: self.workload.piece_elements(id),
                shape: (tensor.rows, tensor.columns),
                dtype: tensor.dtype,
                tier: self.tiers[id.index()],
                mask: self.masks[id.index()],
                packed: tensor.packed,
                leaves: is_made_here && (is_output || outside),
                is_private: is_made_here && !is_output && !outside && consumers.len() == 1,
            }
        };
        CanonicalForm {
            operators: operators.iter().map(of_operator).collect(),
            tensors: tensors.iter().map(of_tensor).collect(),
            ties: self.ties(operators, &tensors, &number),
        }
    }

    /// Pairs that the rest of the graph ties, if any stage could add up over rows.
    fn ties(
        &self,
        operators: &[OperatorId],
        tensors: &[TensorId],
        number: &FxHashMap<TensorId, usize>,
    ) -> Vec<(usize, usize)> {
        let turned = |op: &OperatorId| self.workload.operators[*op].options.transpose_a;
        if operators.len() < 2 || !operators.iter().any(turned) {
            return Vec::new();
        }
        let mut used = vec![false; self.workload.tensors.len()];
        for tensor in tensors {
            used[tensor.index()] = true;
        }
        let ties = tied_columns(self.workload, &used).into_iter();
        ties.filter_map(|(a, b)| Some((*number.get(&a)?, *number.get(&b)?))).collect()
    }
}

/// Tensors of a run, as they first appear; of transposed operands also what they are another shape of.
fn tensors(workload: &Workload, operators: &[OperatorId]) -> Vec<TensorId> {
    let mut list: Vec<TensorId> = Vec::new();
    for &op in operators {
        let operator = &workload.operators[op];
        for &tensor in operator.inputs.iter().chain([&operator.output]) {
            let turned = workload.tensors[tensor].view.filter(|view| view.transposed).map(|view| view.base);
            for tensor in turned.into_iter().chain([tensor]) {
                if !list.contains(&tensor) {
                    list.push(tensor);
                }
            }
        }
    }
    list
}

/// From the names of one run to those of its isomorphic run.
pub(crate) struct Renaming<'a> {
    from: &'a SectionGraph<'a>,
    to: &'a SectionGraph<'a>,
    operators: FxHashMap<OperatorId, OperatorId>,
    tensors: FxHashMap<TensorId, TensorId>,
}

impl<'a> Renaming<'a> {
    /// Pairs the operators and tensors of two runs of one canonical form.
    pub(crate) fn new(from: &'a SectionGraph<'a>, to: &'a SectionGraph<'a>) -> Self {
        let operators = from.operators.iter().copied().zip(to.operators.iter().copied()).collect();
        let of = |graph: &SectionGraph<'_>| tensors(graph.workload, &graph.operators);
        let tensors = of(from).into_iter().zip(of(to)).collect();
        Self { from, to, operators, tensors }
    }

    /// Axes are numbered in the order of tensors' ids, which may differ.
    fn nest(&self, nest: &mut Nest) {
        let Some(cut) = &mut nest.tiled_axis else { return };
        cut.axis = self.axis(cut.axis);
        if let Some(panels) = &mut cut.panels {
            panels.axis = self.axis(panels.axis);
        }
    }

    fn axis(&self, axis: usize) -> usize {
        let same = |(&from, &to): (&TensorId, &TensorId)| {
            let columns = (self.from.column_axis(from) == Some(axis)).then(|| self.to.column_axis(to));
            columns.or_else(|| (self.from.row_axis(from) == Some(axis)).then(|| self.to.row_axis(to))).flatten()
        };
        self.tensors.iter().filter_map(same).min().unwrap_or(axis)
    }

    fn tensor(&self, tensor: TensorId) -> TensorId {
        self.tensors.get(&tensor).copied().unwrap_or(tensor)
    }

    fn operator(&self, operator: OperatorId) -> OperatorId {
        self.operators.get(&operator).copied().unwrap_or(operator)
    }

    fn buffer(&self, spec: &mut BufferSpec) {
        match &mut spec.role {
            BufferRole::Operand { tensor, .. }
            | BufferRole::Resident { tensor, .. }
            | BufferRole::Weight { tensor, .. }
            | BufferRole::State { tensor, .. }
            | BufferRole::Output { tensor, .. } => *tensor = self.tensor(*tensor),
            BufferRole::PartialSums { .. } | BufferRole::PartialFifo { .. } => {}
        }
    }

    /// The plan, with the names of the isomorphic run.
    pub(crate) fn plan(&self, plan: &SectionPlan) -> SectionPlan {
        let mut plan = plan.clone();
        self.nest(&mut plan.nest);
        plan.buffers.iter_mut().for_each(|spec| self.buffer(spec));
        plan
    }

    /// The section, with the names of the isomorphic run.
    pub(crate) fn section(&self, section: &Section) -> Section {
        let mut section = section.clone();
        section.change_nest(|nest| self.nest(nest)).expect("the isomorphic section has the same tiles");
        section.operators.iter_mut().for_each(|op| *op = self.operator(*op));
        let names: Vec<&str> =
            section.operators.iter().map(|&op| self.to.workload.operators[op].name.as_str()).collect();
        section.name = names.join("+");
        for stage in &mut section.stages {
            let StageSpec { main, tail, activations, weight, output, update, .. } = &mut stage.spec;
            if let Some(update) = update {
                (update.operator, update.state) = (self.operator(update.operator), self.tensor(update.state));
            }
            *main = self.operator(*main);
            for op in tail {
                *op = self.operator(*op);
            }
            activations.iter_mut().chain(weight).chain([output]).for_each(|tensor| *tensor = self.tensor(*tensor));
        }
        section.buffers.iter_mut().for_each(|buffer| self.buffer(&mut buffer.spec));
        section.streams.iter_mut().for_each(|off_chip| off_chip.stream.tensor = self.tensor(off_chip.stream.tensor));
        section
    }
}
