//! The resolved operator graph: what the compiler and the simulator see.

use std::sync::Arc;

use indexmap::IndexMap;
use petgraph::graph::DiGraph;
use serde::{Deserialize, Serialize};

use super::sections::PinnedSection;
use crate::diagnostics::Origin;
use crate::id_type;
use crate::index::IndexVec;
use crate::sparsity::BlockMask;
use crate::units::Dtype;

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
    /// Where it is declared, for errors about it.
    pub declared: Option<Origin>,
}

impl Tensor {
    /// Bytes if every element is stored.
    pub fn dense_bytes(&self) -> u64 {
        self.rows * self.columns * self.dtype.bytes()
    }

    /// Elements actually stored.
    pub fn stored_elements(&self) -> u64 {
        self.mask.as_ref().map_or(self.rows * self.columns, |mask| mask.stored_elements())
    }

    /// Bytes of the stored values and of the metadata that finds them, in the format of the mask.
    pub fn stored_bytes(&self) -> u64 {
        let element_bytes = self.dtype.bytes();
        self.mask.as_ref().map_or(self.rows * self.columns * element_bytes, |mask| mask.stored_bytes(element_bytes))
    }
}

/// What an operator computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorKind {
    /// `C[M,N] = A[M,K] x B[K,N]`; inputs A (activations) then B (weights).
    Gemm,
    /// Gaussian error linear unit, element by element.
    Gelu,
    /// `max(x, 0)`.
    Relu,
    /// `x * sigmoid(x)`.
    Silu,
    /// Logistic function.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `a + b`, equal shapes.
    Add,
    /// `a * b`, equal shapes.
    Mul,
    /// Softmax along each row.
    Softmax,
    /// Layer norm along each row, without affine parameters.
    LayerNorm,
    /// Root-mean-square norm along each row, without gain.
    RmsNorm,
}

impl OperatorKind {
    /// Every kind, in a fixed order.
    pub const ALL: [Self; 11] = [
        Self::Gemm,
        Self::Gelu,
        Self::Relu,
        Self::Silu,
        Self::Sigmoid,
        Self::Tanh,
        Self::Add,
        Self::Mul,
        Self::Softmax,
        Self::LayerNorm,
        Self::RmsNorm,
    ];

    /// The name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gemm => "gemm",
            Self::Gelu => "gelu",
            Self::Relu => "relu",
            Self::Silu => "silu",
            Self::Sigmoid => "sigmoid",
            Self::Tanh => "tanh",
            Self::Add => "add",
            Self::Mul => "mul",
            Self::Softmax => "softmax",
            Self::LayerNorm => "layer_norm",
            Self::RmsNorm => "rms_norm",
        }
    }

    /// Number of inputs.
    pub fn arity(self) -> usize {
        match self {
            Self::Gemm | Self::Add | Self::Mul => 2,
            _ => 1,
        }
    }

    /// Whether an output element needs its whole input row.
    pub fn is_row_wise(self) -> bool {
        matches!(self, Self::Softmax | Self::LayerNorm | Self::RmsNorm)
    }

    /// Whether output element `i` needs only element `i` of each input.
    pub fn is_elementwise(self) -> bool {
        self != Self::Gemm && !self.is_row_wise()
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
    /// The partition of a fused run, in the order its sections run; empty if the compiler may choose.
    pub sections: Vec<PinnedSection>,
}

impl Workload {
    /// The operator that produces a tensor, if it is not an input or weight.
    pub fn producer(&self, tensor: TensorId) -> Option<OperatorId> {
        self.operators.iter_enumerated().find(|(_, op)| op.output == tensor).map(|(id, _)| id)
    }

    /// The operators that consume a tensor, in order.
    pub fn consumers(&self, tensor: TensorId) -> impl Iterator<Item = OperatorId> + '_ {
        self.operators.iter_enumerated().filter(move |(_, op)| op.inputs.contains(&tensor)).map(|(id, _)| id)
    }

    /// M, N, K of a GEMM operator.
    pub fn gemm_shape(&self, operator: OperatorId) -> Option<(u64, u64, u64)> {
        let op = &self.operators[operator];
        if op.kind != OperatorKind::Gemm {
            return None;
        }
        let a = &self.tensors[op.inputs[0]];
        let b = &self.tensors[op.inputs[1]];
        Some((a.rows, b.columns, a.columns))
    }

    /// MACs of an operator with every element counted (zero for other than GEMM).
    pub fn dense_macs(&self, operator: OperatorId) -> u64 {
        self.gemm_shape(operator).map_or(0, |(m, n, k)| m * n * k)
    }

    /// MACs of an operator counting stored weight elements only.
    pub fn stored_macs(&self, operator: OperatorId) -> u64 {
        self.gemm_shape(operator)
            .map_or(0, |(m, _, _)| m * self.tensors[self.operators[operator].inputs[1]].stored_elements())
    }

    /// Stored parameters of all weights.
    pub fn parameters(&self) -> u64 {
        self.tensors.iter().filter(|t| t.role == TensorRole::Weight).map(Tensor::stored_elements).sum()
    }
}
