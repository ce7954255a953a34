//! Attention in a graph: scores, what is done to them, and their product with the values; and the same of the gradient.

use rdusim_base::index::Id;
use rdusim_graph::workload::{OperatorId, OperatorKind, TensorId, TensorRole, Uses, Workload};

use super::kernel::Work;

/// Operators that one attention kernel runs.
pub(super) struct Group {
    /// In order.
    pub(super) operators: Vec<OperatorId>,
    pub(super) work: Work,
    /// Tensors that never leave an SM.
    pub(super) inside: Vec<TensorId>,
}

/// Functions that stand between scores and softmax, or behind it.
fn is_of_scores(kind: OperatorKind) -> bool {
    matches!(kind, OperatorKind::Scale | OperatorKind::CausalMask | OperatorKind::Dropout)
}

/// Every attention, forward and backward, whose scores nothing else reads.
pub(super) fn find(workload: &Workload, uses: &Uses) -> Vec<Group> {
    let mut forward: Vec<Group> = Vec::new();
    for (id, operator) in workload.operators.iter_enumerated() {
        if operator.kind == OperatorKind::Softmax {
            forward.extend(around(workload, uses, id));
        }
    }
    let mut groups = Vec::new();
    for group in forward {
        let gradient = gradient_of(workload, uses, &group);
        let mut members = group.operators.clone();
        members.extend(gradient.iter().flat_map(|gradient| &gradient.operators));
        // Somebody else wants to see the scores: then they are made one by one.
        let of_all = group.inside.iter().chain(gradient.iter().flat_map(|gradient| &gradient.inside));
        let private = of_all.into_iter().all(|&t| {
            let wanted = workload.tensors[t].role == TensorRole::Output;
            !wanted && uses.consumers(workload, t).iter().all(|consumer| members.contains(consumer))
        });
        if private {
            groups.push(group);
            groups.extend(gradient);
        }
    }
    groups
}

/// The heads of a GEMM that it belongs to attention by.
fn has_heads(workload: &Workload, op: OperatorId) -> bool {
    workload.operators[op].kind == OperatorKind::Gemm && workload.operators[op].form.is_some()
}

/// Walks from a tensor to the GEMM that made it, over functions of scores.
fn up(workload: &Workload, uses: &Uses, mut tensor: TensorId, operators: &mut Vec<OperatorId>) -> Option<OperatorId> {
    loop {
        let producer = uses.producer(workload, tensor)?;
        operators.push(producer);
        if has_heads(workload, producer) {
            return Some(producer);
        }
        if !is_of_scores(workload.operators[producer].kind) {
            return None;
        }
        tensor = workload.operators[producer].inputs[0];
    }
}

/// Walks down over functions of scores that alone go on with a tensor as it is.
fn down(workload: &Workload, uses: &Uses, mut tensor: TensorId, operators: &mut Vec<OperatorId>) -> TensorId {
    let phase = |t: TensorId| uses.producer(workload, t).map(|op| workload.operators[op].phase);
    loop {
        let next = uses.consumers(workload, tensor).iter().copied().find(|&op| {
            let operator = &workload.operators[op];
            is_of_scores(operator.kind) && operator.inputs[0] == tensor && Some(operator.phase) == phase(tensor)
        });
        let Some(next) = next else { return tensor };
        operators.push(next);
        tensor = workload.operators[next].output;
    }
}

/// Attention around a softmax.
fn around(workload: &Workload, uses: &Uses, softmax: OperatorId) -> Option<Group> {
    let mut operators = vec![softmax];
    let scores = up(workload, uses, workload.operators[softmax].inputs[0], &mut operators)?;
    let chances = down(workload, uses, workload.operators[softmax].output, &mut operators);
    let phase = workload.operators[softmax].phase;
    let mix = uses.consumers(workload, chances).iter().copied().find(|&op| {
        has_heads(workload, op) && workload.operators[op].inputs[0] == chances && workload.operators[op].phase == phase
    })?;
    let inside = operators.iter().map(|&op| workload.operators[op].output).collect();
    operators.push(mix);
    operators.sort_unstable();
    Some(Group { operators, work: Work::Attention(scores), inside })
}

/// The gradient's operators of an attention, if there are any: from its probabilities, or from those that the backward phase
/// computes again. The kernel of the gradient makes them anew in either case.
fn gradient_of(workload: &Workload, uses: &Uses, group: &Group) -> Option<Group> {
    let Work::Attention(scores) = group.work else { return None };
    let of_scores = |op: OperatorId| &workload.operators[op].inputs;
    let anew =
        workload.operators.ids().filter(|&op| workload.operators[op].kind == OperatorKind::Softmax).find_map(|op| {
            let mut operators = vec![op];
            let made_from = up(workload, uses, workload.operators[op].inputs[0], &mut operators)?;
            let is_alone = made_from != scores && around(workload, uses, op).is_none();
            (is_alone && of_scores(made_from) == of_scores(scores)).then_some(operators)
        });
    let chain = anew.as_deref().unwrap_or(&group.operators);
    let softmax = chain.iter().copied().find(|&op| workload.operators[op].kind == OperatorKind::Softmax)?;
    let made = workload.operators[softmax].output;
    let of_softmax = uses
        .consumers(workload, made)
        .iter()
        .copied()
        .find(|&op| workload.operators[op].kind == OperatorKind::SoftmaxGrad)?;
    let mut anew = anew.unwrap_or_default();
    if !anew.is_empty() {
        down(workload, uses, made, &mut anew);
    }
    let mut operators = vec![of_softmax];
    up(workload, uses, workload.operators[of_softmax].inputs[1], &mut operators)?;
    let of_scores = down(workload, uses, workload.operators[of_softmax].output, &mut operators);
    operators.append(&mut anew);
    let inside: Vec<TensorId> = operators.iter().map(|&op| workload.operators[op].output).collect();
    // Gradients of queries and keys, and of the values.
    let gemms = |tensor: TensorId| {
        let list = uses.consumers(workload, tensor).iter().copied();
        list.filter(|&op| workload.operators[op].kind == OperatorKind::Gemm && !group.operators.contains(&op))
    };
    operators.extend(gemms(of_scores));
    for &tensor in inside.iter().chain(&group.inside) {
        operators.extend(gemms(tensor));
    }
    operators.sort_unstable_by_key(|op| op.index());
    operators.dedup();
    Some(Group { operators, work: Work::AttentionGradient(scores), inside })
}
