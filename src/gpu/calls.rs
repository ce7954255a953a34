//! Single kernels by their shapes, for stacks that are lists of kernels: no graph around them, operands in memory.

use std::sync::Arc;

use super::attention;
use super::cases::product;
use super::gemm;
use super::serving::AttentionCall;
use super::stream;
use crate::arch::Gpu;
use crate::diagnostics::Diagnostic;
use crate::units::Dtype;

/// A kernel.
#[derive(Debug, Clone, PartialEq)]
pub enum KernelCall {
    /// `count` products of m x k by k x n.
    Product {
        /// Data type of the operands and the result.
        dtype: Dtype,
        /// Products of one launch.
        count: u64,
        /// Rows, columns and depth of each.
        shape: (u64, u64, u64),
    },
    /// Products of so many rows each, with matrices of their own, in one launch: the grouped products of a layer of experts.
    Grouped {
        /// Data type of the operands and the result.
        dtype: Dtype,
        /// Rows of each product.
        rows: Arc<[u64]>,
        /// Columns and depth of all.
        shape: (u64, u64),
    },
    /// Moves data past the vector lanes.
    Stream {
        /// Bytes from and to memory.
        bytes: f64,
        /// Vector operations.
        operations: f64,
    },
    /// Fused causal attention, or its gradient.
    Attention {
        /// Sequences, heads and their width.
        call: AttentionCall,
        /// The gradient of all inputs.
        gradient: bool,
    },
}

/// Seconds of a kernel from its start to its end, without the gap before it.
///
/// # Errors
/// A data type that the tensor cores lack.
pub fn kernel_seconds(gpu: &Gpu, call: &KernelCall) -> Result<f64, Diagnostic> {
    let cycles = match *call {
        KernelCall::Grouped { dtype, ref rows, shape } => grouped(gpu, dtype, rows, shape)?,
        KernelCall::Product { dtype, count, shape } => {
            let one = product(gpu, dtype, shape)?;
            let all = |bytes: f64| bytes * count as f64;
            let product = gemm::Product {
                count,
                a_bytes: all(one.a_bytes),
                b_bytes: all(one.b_bytes),
                write_bytes: all(one.write_bytes),
                ..one
            };
            gemm::fastest(gpu, &product).cycles
        }
        KernelCall::Stream { bytes, operations } => stream::time(gpu, bytes, bytes, operations).cycles,
        KernelCall::Attention { call, gradient } => {
            let scores = call.prompt_scores();
            let rate = gpu.sm.tensor_macs.get(&call.dtype).copied().unwrap_or(1) as f64;
            let heads = (call.heads + call.kv_heads) * if gradient { 4 } else { 2 };
            let moved = (call.batch * call.tokens * heads * call.head_dim * call.dtype.bytes()) as f64;
            attention::time(gpu, &gpu.attention, &scores, (rate, false), moved, gradient).cycles
        }
    };
    Ok((cycles + gpu.cycles_of_us(gpu.launch.ramp_us)) / gpu.clock_hz as f64)
}

/// Cycles of products of so many rows, at the share of the rate that kernels of groups reach.
fn grouped(gpu: &Gpu, dtype: Dtype, rows: &[u64], (n, k): (u64, u64)) -> Result<f64, Diagnostic> {
    let groups: Vec<u64> = rows.iter().copied().filter(|&rows| rows > 0).collect();
    let Some(&most) = groups.iter().max() else { return Ok(0.0) };
    let (count, all) = (groups.len() as u64, groups.iter().sum::<u64>());
    let one = product(gpu, dtype, (most, n, k))?;
    let bytes = |rows: u64, columns: u64| (rows * columns * dtype.bytes()) as f64;
    let product = gemm::Product {
        count,
        macs_per_cycle: one.macs_per_cycle * gpu.serving.grouped_share,
        a_bytes: bytes(all, k),
        b_bytes: bytes(count * n, k),
        write_bytes: bytes(all, n),
        groups,
        ..one
    };
    Ok(gemm::fastest(gpu, &product).cycles)
}
