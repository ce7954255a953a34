//! Single calls of a library's kernels, as benchmarks measure them: no graph around them, operands in memory.

use super::experts::Experts;
use super::gemm::{self, Product};
use super::serving::{self, AttentionCall, Part};
use crate::arch::Gpu;
use crate::diagnostics::Diagnostic;
use crate::units::Dtype;

/// A call that was measured.
#[derive(Debug, Clone, PartialEq)]
pub enum Case {
    /// One product of m x k by k x n, replayed in a captured graph.
    Gemm {
        /// Data type of the operands and the result.
        dtype: Dtype,
        /// Rows of the result.
        m: u64,
        /// Columns of the result.
        n: u64,
        /// Depth.
        k: u64,
    },
    /// Attention over prompts.
    Prefill(AttentionCall),
    /// Attention of a new token a sequence over a cache.
    Decode(AttentionCall),
    /// Attention of several new tokens a sequence, the last of its cache.
    Extend {
        /// Sequences, and tokens of their caches.
        call: AttentionCall,
        /// New tokens of each.
        new: u64,
    },
    /// A layer of experts.
    Experts(Experts),
}

/// Seconds of a call, from the end of the call before it.
///
/// # Errors
/// A data type that the tensor cores lack.
pub fn seconds(gpu: &Gpu, case: &Case) -> Result<f64, Diagnostic> {
    let sum = |parts: Vec<Part>| parts.iter().map(|(_, cycles)| cycles).sum::<f64>();
    let cycles = match *case {
        Case::Prefill(of) => sum(serving::prefill(gpu, &of, rate(gpu, of.dtype)?)),
        Case::Decode(of) => sum(serving::decode(gpu, &of, 1, rate(gpu, of.dtype)?)),
        Case::Extend { call: of, new } => sum(serving::decode(gpu, &of, new, rate(gpu, of.dtype)?)),
        Case::Experts(of) => sum(serving::experts(gpu, &of, rate(gpu, of.dtype)?)),
        Case::Gemm { dtype, m, n, k } => {
            let product = product(gpu, dtype, (m, n, k))?;
            one(gpu, gemm::fastest(gpu, &product).cycles)
        }
    };
    Ok(cycles / gpu.clock_hz as f64)
}

/// A kernel of so many cycles with its ramp, and the gap before it in a captured graph.
fn one(gpu: &Gpu, cycles: f64) -> f64 {
    cycles + gpu.cycles_of_us(gpu.launch.ramp_us + gpu.launch.graph_gap_us)
}

/// Multiply-accumulates of an SM a cycle.
fn rate(gpu: &Gpu, dtype: Dtype) -> Result<f64, Diagnostic> {
    gpu.sm.tensor_macs.get(&dtype).map(|&macs| macs as f64).ok_or_else(|| {
        let known: Vec<&str> = gpu.sm.tensor_macs.keys().map(|dtype| dtype.name()).collect();
        Diagnostic::new(format!("the tensor cores of {} do not multiply {dtype}", gpu.name))
            .with_help(format!("its `sm.tensor_macs` has {}", known.join(", ")))
    })
}

/// A product whose operands and result lie in memory.
pub(super) fn product(gpu: &Gpu, dtype: Dtype, (m, n, k): (u64, u64, u64)) -> Result<Product, Diagnostic> {
    let bytes = |rows: u64, columns: u64| (rows * columns * dtype.bytes()) as f64;
    Ok(Product {
        count: 1,
        m,
        n,
        k,
        element_bytes: dtype.bytes(),
        b_element_bytes: dtype.bytes() as f64,
        macs_per_cycle: rate(gpu, dtype)?,
        a_bytes: bytes(m, k),
        b_bytes: bytes(k, n),
        epilogue_read_bytes: 0.0,
        write_bytes: bytes(m, n),
        groups: Vec::new(),
    })
}
