//! Which axis of a causal product runs along the keys.
//!
//! Of scores it is the columns, whether the keys come transposed or not; of the product with the values it is the depth. A product says by
//! what stands around it which of both it is: scores are masked or go into a softmax, probabilities come from one. The depth of scores
//! is the width of a head, which causality never cuts.

use super::form::CausalAxis;
use super::graph::{Operator, Tensor, TensorId};
use super::kind::OperatorKind;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::index::IndexVec;

use super::graph::OperatorId;

/// Lets scores of keys that are not transposed leave out columns.
///
/// # Errors
/// Such a product in a training step: its gradients are not modelled.
pub(super) fn settle(
    tensors: &IndexVec<TensorId, Tensor>,
    operators: &mut IndexVec<OperatorId, Operator>,
    is_trained: bool,
) -> Result<(), Diagnostic> {
    let found: Vec<OperatorId> = operators
        .iter_enumerated()
        .filter(|(_, operator)| {
            operator.form.is_some_and(|form| form.causal == Some(CausalAxis::Depth))
                && !operator.options.transpose_a
                && !operator.options.transpose_b
                && is_of_scores(tensors, operators, operator)
        })
        .map(|(id, _)| id)
        .collect();
    for id in found {
        let operator = &mut operators[id];
        if is_trained {
            let title = format!("operator `{}`: causal scores are trained with keys as rows alone", operator.name);
            return Err(Diagnostic::new(title).with_help("store the keys as rows, and give `transpose_b = true`"));
        }
        if let Some(form) = &mut operator.form {
            form.causal = Some(CausalAxis::Columns);
        }
    }
    Ok(())
}

/// Whether what a product makes is masked or goes into a softmax, and its first operand does not come from one.
fn is_of_scores(
    tensors: &IndexVec<TensorId, Tensor>,
    operators: &IndexVec<OperatorId, Operator>,
    product: &Operator,
) -> bool {
    let base = |t: TensorId| tensors[t].view.map_or(t, |view| view.base);
    let is_mask = |kind: OperatorKind| matches!(kind, OperatorKind::CausalMask | OperatorKind::Softmax);
    let mut seen = Vec::new();
    let mut open = vec![base(product.inputs[0])];
    while let Some(tensor) = open.pop() {
        if seen.contains(&tensor) {
            continue;
        }
        seen.push(tensor);
        let maker = operators.iter().find(|operator| base(operator.output) == tensor);
        match maker {
            Some(maker) if maker.kind == OperatorKind::Softmax => return false,
            Some(maker) if maker.kind.is_elementwise() => open.extend(maker.inputs.iter().map(|&input| base(input))),
            _ => {}
        }
    }
    seen.clear();
    open.push(base(product.output));
    while let Some(tensor) = open.pop() {
        if seen.contains(&tensor) {
            continue;
        }
        seen.push(tensor);
        for reader in operators.iter().filter(|operator| operator.inputs.iter().any(|&input| base(input) == tensor)) {
            if is_mask(reader.kind) {
                return true;
            }
            if reader.kind.is_elementwise() {
                open.push(base(reader.output));
            }
        }
    }
    false
}
