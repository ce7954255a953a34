//! Operator graphs: read from `workloads/*.toml`, shapes inferred and checked.

mod graph;

pub use graph::{Operator, OperatorId, OperatorKind, Tensor, TensorId, TensorRole, Workload};
