//! From operators to kernels: one each, or fused as libraries and compilers of kernels do.

use rdusim_base::index::Id;
use rdusim_graph::arch::{Fusion, Gpu};
use rdusim_graph::workload::{Moved, OperatorId, OperatorKind, Phase, Uses, Workload, epilogue_of, moved, runs_with};

use super::attention_groups::{self, Group};
use super::expert_groups;
use super::kernel::{Kernel, Work};
use super::side_by_side;

/// Operators of a fused kernel that only moves data.
const MOST_STREAMED: usize = 8;

/// The kernels of a graph, in the order they run. Without `fusion`, one an operator.
pub(super) fn kernels(gpu: &Gpu, workload: &Workload, fusion: Option<&Fusion>) -> Vec<Kernel> {
    let uses = Uses::new(workload);
    // Who trains wants the gradient of each matrix: none is packed, and experts are products of their own.
    let serves = fusion.is_some_and(|fusion| fusion.elementwise && fusion.epilogue)
        && workload.operators.iter().all(|operator| operator.phase == Phase::Forward);
    let mut groups = match fusion {
        Some(fusion) if fusion.attention.is_flash() => attention_groups::find(workload, &uses),
        _ => Vec::new(),
    };
    if serves {
        groups.extend(expert_groups::find(gpu, workload, &uses));
    }
    let mut group_of: Vec<Option<usize>> = vec![None; workload.operators.len()];
    for (index, group) in groups.iter().enumerate() {
        group.operators.iter().for_each(|op| group_of[op.index()] = Some(index));
    }
    let mut builder =
        Builder { workload, uses: &uses, kernel_of: vec![None; workload.operators.len()], lists: Vec::new() };
    let mut started = vec![false; groups.len()];
    for op in workload.operators.ids() {
        if builder.kernel_of[op.index()].is_some() {
            continue;
        }
        if let Some(index) = group_of[op.index()] {
            if !std::mem::replace(&mut started[index], true) {
                builder.start(&groups[index].operators, groups[index].work);
            }
            continue;
        }
        let is_gemm = workload.operators[op].kind == OperatorKind::Gemm;
        if !is_gemm
            && fusion.is_some_and(|fusion| fusion.elementwise)
            && (builder.joins(op) || builder.joins_beside(op))
        {
            continue;
        }
        let mut operators = vec![op];
        if is_gemm && serves {
            let products = side_by_side::products(workload, &uses, op);
            if products.len() > 1 {
                builder.start_side_by_side(&products);
                continue;
            }
        }
        if is_gemm && fusion.is_some_and(|fusion| fusion.epilogue) {
            let is_free = |op: OperatorId| builder.kernel_of[op.index()].is_none() && group_of[op.index()].is_none();
            operators.extend(epilogue_of(workload, &uses, op, is_free));
        }
        builder.start(&operators, if is_gemm { Work::Gemm(op) } else { Work::Stream });
    }
    let Builder { lists, .. } = builder;
    let mut kernels: Vec<Kernel> = lists
        .into_iter()
        .map(|(operators, work)| Kernel { operators, work, reads: Vec::new(), writes: Vec::new() })
        .collect();
    touch(workload, &uses, &groups, &mut kernels);
    kernels
}

struct Builder<'w> {
    workload: &'w Workload,
    uses: &'w Uses,
    kernel_of: Vec<Option<usize>>,
    lists: Vec<(Vec<OperatorId>, Work)>,
}

impl Builder<'_> {
    fn start(&mut self, operators: &[OperatorId], work: Work) {
        for op in operators {
            self.kernel_of[op.index()] = Some(self.lists.len());
        }
        self.lists.push((operators.to_vec(), work));
    }

    /// Starts products that run as one, with the biases of each.
    fn start_side_by_side(&mut self, products: &[OperatorId]) {
        let mut operators = products.to_vec();
        operators.extend(side_by_side::biases(self.workload, self.uses, products));
        self.start(&operators, Work::Gemm(products[0]));
    }

    /// The kernels that make the inputs of an operator.
    fn sources(&self, op: OperatorId) -> impl Iterator<Item = Option<usize>> + '_ {
        let inputs = &self.workload.operators[op].inputs;
        // What comes from outside is there before any kernel.
        let made = inputs.iter().filter_map(|&input| self.uses.producer(self.workload, input));
        made.map(|producer| self.kernel_of[producer.index()])
    }

    /// The kernel that makes the last of an operator's inputs; none if one of them has no kernel yet.
    fn latest_source(&self, op: OperatorId) -> Option<usize> {
        self.sources(op).try_fold(None, |most, kernel| Some(most.max(Some(kernel?)))).flatten()
    }

    /// Puts a function of one of several products that run as one into the kernel that streams results of the others.
    fn joins_beside(&mut self, op: OperatorId) -> bool {
        let Some(latest) = self.latest_source(op) else { return false };
        let (made, work) = &self.lists[latest];
        let products = made.iter().filter(|&&op| self.workload.operators[op].kind == OperatorKind::Gemm).count();
        if !matches!(work, Work::Gemm(_)) || products < 2 || !moves_rows(self.workload.operators[op].kind) {
            return false;
        }
        let rows = |op: OperatorId| self.workload.tensors[self.workload.operators[op].output].rows;
        let beside = (latest + 1..self.lists.len()).find(|&index| {
            let (operators, work) = &self.lists[index];
            let first = operators[0];
            *work == Work::Stream
                && operators.len() < MOST_STREAMED
                && self.latest_source(first) == Some(latest)
                && moves_rows(self.workload.operators[first].kind)
                && rows(first) == rows(op)
        });
        let Some(beside) = beside else { return false };
        self.kernel_of[op.index()] = Some(beside);
        self.lists[beside].0.push(op);
        true
    }

    /// Puts an operator into the kernel that makes the last of its inputs, if that streams the same rows.
    fn joins(&mut self, op: OperatorId) -> bool {
        let Some(latest) = self.latest_source(op) else { return false };
        let (operators, work) = &self.lists[latest];
        if *work != Work::Stream
            || operators.len() >= MOST_STREAMED
            || !operators.iter().any(|&other| runs_with(self.workload, other, op))
            || !moves_rows(self.workload.operators[op].kind)
            || !moves_rows(self.workload.operators[operators[0]].kind)
        {
            return false;
        }
        self.kernel_of[op.index()] = Some(latest);
        self.lists[latest].0.push(op);
        true
    }
}

/// Whether a function reads and writes rows in place: no transposition, no table, no step of an optimiser.
fn moves_rows(kind: OperatorKind) -> bool {
    !matches!(
        kind,
        OperatorKind::Gemm
            | OperatorKind::Transpose
            | OperatorKind::Concat
            | OperatorKind::Embedding
            | OperatorKind::EmbeddingGrad
            | OperatorKind::RowSum
            | OperatorKind::RowMax
            | OperatorKind::RowScale
            | OperatorKind::SgdUpdate
            | OperatorKind::AdamUpdate
            | OperatorKind::Select
            | OperatorKind::Reformat
    )
}

/// Finds what every kernel reads and writes.
fn touch(workload: &Workload, uses: &Uses, groups: &[Group], kernels: &mut [Kernel]) {
    let mut inside = vec![false; workload.tensors.len()];
    groups.iter().flat_map(|group| &group.inside).for_each(|&t| inside[workload.base(t).index()] = true);
    let lists: Vec<&[OperatorId]> = kernels.iter().map(|kernel| &kernel.operators[..]).collect();
    let all = moved(workload, uses, &lists, &|tensor| inside[workload.base(tensor).index()]);
    for (kernel, Moved { reads, writes }) in kernels.iter_mut().zip(all) {
        (kernel.reads, kernel.writes) = (reads, writes);
        // The gradient makes the scores again from queries and keys.
        if let Work::AttentionGradient(scores) = kernel.work {
            for &input in &workload.operators[scores].inputs {
                if !kernel.reads.iter().any(|&known| workload.base(known) == workload.base(input)) {
                    kernel.reads.push(input);
                }
            }
        }
    }
}
