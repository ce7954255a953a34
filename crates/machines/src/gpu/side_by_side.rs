//! Products of one operand with several matrices, as one product: inference libraries lay the matrices of queries, keys and values, or
//! of a gate and what it gates, side by side when they load them, so that a layer starts one kernel in place of several.

use rdusim_graph::workload::{OperatorId, OperatorKind, TensorId, Uses, Workload};

/// The products, `first` among them, that run as one with it, in the order of the graph; `first` alone where there are no others.
///
/// They share their first operand, are of one form, type and stored format, and have matrices that nothing of the graph makes. Products
/// that choose (whose results a softmax or a comparison reads) stay alone: their matrices stay in the type of the model.
pub(super) fn products(workload: &Workload, uses: &Uses, first: OperatorId) -> Vec<OperatorId> {
    if !is_plain(workload, uses, first) {
        return vec![first];
    }
    let input = workload.operators[first].inputs[0];
    let readers = uses.consumers(workload, input).iter().copied();
    let mut all: Vec<OperatorId> =
        readers.filter(|&op| op == first || (is_plain(workload, uses, op) && are_alike(workload, first, op))).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Biases of the products, each of its own columns.
pub(super) fn biases<'w>(
    workload: &'w Workload,
    uses: &'w Uses,
    products: &'w [OperatorId],
) -> impl Iterator<Item = OperatorId> + 'w {
    let readers =
        products.iter().flat_map(|&op| uses.consumers(workload, workload.operators[op].output).iter().copied());
    readers.filter(|&op| workload.operators[op].kind == OperatorKind::Bias)
}

/// A product of rows with a matrix from outside, none of whose elements are left out.
fn is_plain(workload: &Workload, uses: &Uses, op: OperatorId) -> bool {
    let operator = &workload.operators[op];
    let is_dense = |t: TensorId| workload.tensors[t].mask.is_none() && workload.tensors[t].pruned.is_none();
    let chooses =
        |reader: &OperatorId| matches!(workload.operators[*reader].kind, OperatorKind::Softmax | OperatorKind::Sigmoid);
    operator.kind == OperatorKind::Gemm
        && workload.form(op).is_some_and(|form| form.instances * form.heads == 1)
        && uses.producer(workload, operator.inputs[1]).is_none()
        && operator.inputs.iter().chain([&operator.output]).all(|&t| is_dense(t))
        && !uses.consumers(workload, operator.output).iter().any(chooses)
}

/// Whether two products of one operand are of one form.
fn are_alike(workload: &Workload, a: OperatorId, b: OperatorId) -> bool {
    let form = |op: OperatorId| workload.form(op).map(|form| (form.m, form.k));
    let (of_a, of_b) = (&workload.operators[a], &workload.operators[b]);
    let matrix = |op: OperatorId| &workload.tensors[workload.operators[op].inputs[1]];
    let format = |op: OperatorId| (matrix(op).dtype, matrix(op).packed.map(|packed| packed.format));
    form(a) == form(b)
        && of_a.inputs[0] == of_b.inputs[0]
        && (of_a.block, of_a.phase, of_a.repeat, of_a.every) == (of_b.block, of_b.phase, of_b.repeat, of_b.every)
        && format(a) == format(b)
        && of_a.options == of_b.options
}
