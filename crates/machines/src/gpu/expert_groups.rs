//! Experts in a graph: the choice, the gathering, the products of all experts, and the sum of what they made of each token.

use rdusim_graph::arch::Gpu;
use rdusim_graph::workload::{OperatorId, OperatorKind, TensorId, TensorRole, Uses, Workload};

use super::attention_groups::Group;
use super::experts::{Experts, Skew};
use super::format::ProductFormat;
use super::kernel::Work;

/// Every layer of experts that an inference library runs as one call, whose rows in between nothing else reads.
pub(super) fn find(gpu: &Gpu, workload: &Workload, uses: &Uses) -> Vec<Group> {
    let gathers = workload.operators.ids().filter(|&op| workload.operators[op].kind == OperatorKind::Embedding);
    gathers.filter_map(|op| around(gpu, workload, uses, op)).collect()
}

/// The layer behind the operator that gathers each expert's rows.
fn around(gpu: &Gpu, workload: &Workload, uses: &Uses, gather: OperatorId) -> Option<Group> {
    let of = |op: OperatorId| &workload.operators[op];
    let first = uses.consumers(workload, of(gather).output).iter().copied().find(|&op| is_grouped(workload, op))?;
    experts(gpu, workload, gather, first)?;
    let mut operators = vec![gather];
    let last = behind(workload, uses, &mut operators)?;
    for op in operators.clone() {
        choices(workload, uses, op, &mut operators);
    }
    let outside = |t: TensorId| t == of(last).output || workload.tensors[t].role == TensorRole::Output;
    let inside: Vec<TensorId> = operators.iter().map(|&op| of(op).output).filter(|&t| !outside(t)).collect();
    let is_private = |&t: &TensorId| uses.consumers(workload, t).iter().all(|reader| operators.contains(reader));
    if inside.len() + 1 < operators.len() || !inside.iter().all(is_private) {
        return None;
    }
    added(workload, uses, last, &mut operators);
    operators.sort_unstable();
    let inside = operators.iter().filter(|&&op| Some(&op) != operators.last()).map(|&op| of(op).output).collect();
    Some(Group { operators, work: Work::Experts { gather, first }, inside })
}

/// Whether an operator multiplies the rows of several experts, each with a matrix of its own from outside.
fn is_grouped(workload: &Workload, op: OperatorId) -> bool {
    let operator = &workload.operators[op];
    operator.kind == OperatorKind::Gemm && operator.options.filled_rows.is_some()
}

/// Follows the rows of experts to where those of a token are added up; returns the operator that makes the result.
fn behind(workload: &Workload, uses: &Uses, operators: &mut Vec<OperatorId>) -> Option<OperatorId> {
    let mut at = 0;
    let mut last = None;
    while let Some(&op) = operators.get(at) {
        at += 1;
        let readers = uses.consumers(workload, workload.operators[op].output);
        let is_weighed = workload.operators[op].kind == OperatorKind::HeadScale;
        let is_pooled = |reader: &OperatorId| workload.operators[*reader].kind == OperatorKind::SumPool;
        if workload.operators[op].kind == OperatorKind::SumPool || (is_weighed && !readers.iter().any(is_pooled)) {
            last = Some(op);
            continue;
        }
        for &reader in readers {
            let kind = workload.operators[reader].kind;
            let goes_on = is_grouped(workload, reader)
                || kind.folds_into_a_gemm()
                || matches!(kind, OperatorKind::Embedding | OperatorKind::HeadScale | OperatorKind::SumPool);
            if !goes_on {
                return None;
            }
            if !operators.contains(&reader) {
                operators.push(reader);
            }
        }
    }
    last
}

/// Adds what makes the shares that an operator weighs by: the choice of the largest, and the softmax before it if that has no other reader.
fn choices(workload: &Workload, uses: &Uses, op: OperatorId, operators: &mut Vec<OperatorId>) {
    let operator = &workload.operators[op];
    if operator.kind != OperatorKind::HeadScale {
        return;
    }
    let select = operator.inputs.get(1).and_then(|&shares| uses.producer(workload, shares));
    let Some(select) = select.filter(|&op| workload.operators[op].kind == OperatorKind::Select) else { return };
    operators.push(select);
    let softmax = uses.producer(workload, workload.operators[select].inputs[0]);
    let softmax = softmax.filter(|&op| {
        let alone = uses.consumers(workload, workload.operators[op].output) == [select];
        alone && workload.operators[op].kind == OperatorKind::Softmax
    });
    operators.extend(softmax);
}

/// Adds the sums that follow, whose other inputs were there before the layer began: the kernel that adds up a token's rows takes them too.
fn added(workload: &Workload, uses: &Uses, mut last: OperatorId, operators: &mut Vec<OperatorId>) {
    let first = operators.iter().copied().min().unwrap_or(last);
    loop {
        let made = workload.operators[last].output;
        let next = match uses.consumers(workload, made) {
            [only] => *only,
            _ => return,
        };
        let operator = &workload.operators[next];
        let is_there = |&t: &TensorId| t == made || uses.producer(workload, t).is_none_or(|by| by < first);
        if operator.kind != OperatorKind::Add || !operator.inputs.iter().all(is_there) {
            return;
        }
        operators.push(next);
        last = next;
    }
}

/// What the library's call is asked for, by what gathers its rows and its first product. None: the tensor cores lack its format.
pub(super) fn experts(gpu: &Gpu, workload: &Workload, gather: OperatorId, first: OperatorId) -> Option<Experts> {
    let operator = &workload.operators[first];
    // The gathered rows are a view of the tokens'.
    let tokens = workload.tensors[workload.base(*workload.operators[gather].inputs.first()?)].rows;
    let (rows, matrix) = (&workload.tensors[operator.inputs[0]], &workload.tensors[operator.inputs[1]]);
    let form = workload.form(first)?;
    let filled = operator.options.filled_rows?;
    let format = ProductFormat::of(rows.dtype, matrix.packed);
    format.rate(gpu).ok()?;
    // The matrices of all experts stand one below the other.
    let all = workload.tensors[workload.base(operator.inputs[1])].rows / form.k;
    let reads_rows = |&other: &OperatorId| workload.operators[other].inputs.first() == Some(&operator.inputs[0]);
    let gated = workload.operators.ids().filter(reads_rows).count() > 1;
    Some(Experts {
        format,
        tokens,
        hidden: form.k,
        inner: form.n,
        gated,
        chosen: filled.div_ceil(tokens.max(1)),
        experts: all,
        tensor_parallel: 1,
        expert_parallel: 1,
        skew: Skew::Uniform,
    })
}

/// Rows of each expert that a graph gives rows to: the most that one has, and the others in equal shares.
pub(super) fn loads(workload: &Workload, first: OperatorId) -> Option<Vec<u64>> {
    let form = workload.form(first)?;
    let filled = workload.operators[first].options.filled_rows?;
    let others = form.instances.saturating_sub(1);
    let rest = filled.saturating_sub(form.m);
    let shares = (0..others).map(|at| rest / others + u64::from(at < rest % others));
    Some(std::iter::once(form.m.min(filled)).chain(shares).collect())
}
