//! A kernel: the operators that one launch runs, and what it moves.

use rdusim_graph::workload::{OperatorId, TensorId};

/// What a kernel does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// A GEMM, and what stands behind it.
    Gemm(OperatorId),
    /// Fused attention over the scores of an operator.
    Attention(OperatorId),
    /// Its gradients.
    AttentionGradient(OperatorId),
    /// A layer of experts, by what gathers their rows and the first product with their matrices.
    Experts {
        /// Gathers the rows of each expert.
        gather: OperatorId,
        /// The first product with the experts' matrices.
        first: OperatorId,
    },
    /// Only moves data.
    Stream,
}

/// One kernel.
#[derive(Debug, Clone)]
pub(super) struct Kernel {
    /// Its operators in order.
    pub(super) operators: Vec<OperatorId>,
    pub(super) work: Work,
    /// Tensors it reads, each once.
    pub(super) reads: Vec<TensorId>,
    /// Tensors it writes.
    pub(super) writes: Vec<TensorId>,
}
