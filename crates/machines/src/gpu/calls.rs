//! Single kernels by their shapes, for stacks that are lists of kernels: no graph around them, operands in memory.

use std::sync::Arc;

use super::attention;
use super::cases::product;
use super::gemm;
use super::serving::AttentionCall;
use super::stream;
use super::time::{KernelTime, Limit};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::Gpu;
use rdusim_graph::workload::ProductShape;

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
        shape: ProductShape,
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
        /// Tokens before these whose keys and values are read too.
        before: u64,
        /// The gradient of all inputs.
        gradient: bool,
    },
}

/// What a kernel takes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct KernelCost {
    /// Seconds from its start to its end, without the gap before it.
    pub seconds: f64,
    /// Joules of its multiply-accumulates, and of bytes of the L2 and of memory; static power is not in them.
    pub joules: f64,
}

/// Work and time of a kernel.
struct Done {
    time: KernelTime,
    macs: f64,
    /// Bytes from and to memory.
    moved: f64,
}

/// What a kernel takes.
///
/// # Errors
/// A data type that the tensor cores lack.
pub fn kernel_cost(gpu: &Gpu, call: &KernelCall) -> Result<KernelCost, Diagnostic> {
    let (done, dtype) = match *call {
        KernelCall::Grouped { dtype, ref rows, shape } => (grouped(gpu, dtype, rows, shape.0, shape.1)?, dtype),
        KernelCall::Product { dtype, count, shape } => (batch(gpu, dtype, count, shape)?, dtype),
        KernelCall::Stream { bytes, operations } => {
            let time = stream::time(gpu, bytes, bytes, operations);
            (Done { time, macs: 0.0, moved: bytes }, Dtype::Bf16)
        }
        KernelCall::Attention { call, before, gradient } => (attended(gpu, &call, before, gradient), call.dtype),
    };
    let Done { time, macs, moved } = done;
    let seconds = (time.cycles + gpu.cycles_of_us(gpu.launch.ramp_us)) / gpu.clock_hz as f64;
    let per_mac = gpu.energy.mac_pj.get(&dtype).copied().unwrap_or(0.0);
    let on_chip = (macs * per_mac + time.l2_bytes * gpu.energy.l2_pj_per_byte) * 1e-12;
    let off_chip = gpu.memory.iter().next().map_or(0.0, |tier| tier.energy.joules(moved + 2.0 * time.spill_bytes));
    Ok(KernelCost { seconds, joules: on_chip + off_chip })
}

/// Products of equal shapes.
fn batch(gpu: &Gpu, dtype: Dtype, count: u64, shape: ProductShape) -> Result<Done, Diagnostic> {
    let one = product(gpu, dtype, shape)?;
    let all = |bytes: f64| bytes * count as f64;
    let product = gemm::Product {
        count,
        a_bytes: all(one.a_bytes),
        b_bytes: all(one.b_bytes),
        write_bytes: all(one.write_bytes),
        ..one
    };
    let ProductShape { m, n, k } = shape;
    Ok(multiplied(gpu, &product, count as f64 * m as f64 * n as f64 * k as f64))
}

fn multiplied(gpu: &Gpu, product: &gemm::Product, macs: f64) -> Done {
    let time = gemm::fastest(gpu, product);
    let moved = time.a_read_bytes + time.b_read_bytes + product.write_bytes;
    Done { time, macs, moved }
}

/// Causal attention, or its gradient.
fn attended(gpu: &Gpu, call: &AttentionCall, before: u64, gradient: bool) -> Done {
    let mut scores = call.prompt_scores();
    scores.keys += before;
    let rate = gpu.sm.tensor_macs.get(&call.dtype).copied().unwrap_or(1) as f64;
    let heads = (call.heads + call.kv_heads) * if gradient { 4 } else { 2 };
    let of_before = call.kv_heads * before * if gradient { 4 } else { 2 };
    let moved = (call.batch * (call.tokens * heads + of_before) * call.head_dim * call.dtype.bytes()) as f64;
    let pairs = call.tokens as f64 * (before as f64 + (call.tokens + 1) as f64 / 2.0);
    let products = if gradient { 5.0 } else { 2.0 };
    let macs = products * pairs * (call.batch * call.heads * call.head_dim) as f64;
    Done { time: attention::time(gpu, &gpu.attention, &scores, rate, false, moved, gradient), macs, moved }
}

/// Products of so many rows, at the share of the rate that kernels of groups reach.
fn grouped(gpu: &Gpu, dtype: Dtype, rows: &[u64], n: u64, k: u64) -> Result<Done, Diagnostic> {
    let groups: Vec<u64> = rows.iter().copied().filter(|&rows| rows > 0).collect();
    let Some(&most) = groups.iter().max() else {
        return Ok(Done { time: KernelTime::of(0.0, Limit::Latency), macs: 0.0, moved: 0.0 });
    };
    let (count, all) = (groups.len() as u64, groups.iter().sum::<u64>());
    let one = product(gpu, dtype, ProductShape { m: most, n, k })?;
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
    Ok(multiplied(gpu, &product, all as f64 * n as f64 * k as f64))
}
