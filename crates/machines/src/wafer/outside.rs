//! What is done and kept off the wafer, where weights and the optimiser's state are.

use rdusim_graph::workload::{OperatorId, Phase, TensorId, Uses, Workload};

/// Whether an operator runs off the wafer: a step of an optimiser, or one that adds a gradient to the sum of a step's.
pub(super) fn runs_outside(workload: &Workload, op: OperatorId) -> bool {
    workload.operators[op].phase == Phase::Update || workload.operators[op].updates.is_some()
}

/// Whether a tensor is read by such operators: a gradient of a weight, or an optimiser's state.
pub(super) fn is_kept_outside(workload: &Workload, uses: &Uses, tensor: TensorId) -> bool {
    uses.consumers(workload, tensor).iter().any(|&op| runs_outside(workload, op))
}
