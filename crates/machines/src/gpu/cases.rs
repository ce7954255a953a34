//! Single calls of a library's kernels, as benchmarks measure them: no graph around them, operands in memory.

use super::expert_layer;
use super::experts::Experts;
use super::format::ProductFormat;
use super::gemm::{self, Product};
use super::latent::{self, LatentCall};
use super::serving::{self, AttentionCall, Part};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::Gpu;
use rdusim_graph::workload::ProductShape;

/// Matrices that a benchmark of products takes in turn, so that none is found in the L2 (as its code is remembered: assumed).
const MATRICES: f64 = 5.0;

/// A call that was measured.
#[derive(Debug, Clone, PartialEq)]
pub enum Case {
    /// One product of m x k by k x n, replayed in a captured graph.
    Gemm {
        /// Format of the operands. Activations of fewer bits than the result are quantised first, as a part of the call.
        format: ProductFormat,
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
    /// Latent attention over prompts.
    LatentPrefill(LatentCall),
    /// Latent attention of a new token a sequence over a cache.
    LatentDecode(LatentCall),
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
        Case::LatentPrefill(of) => sum(latent::prefill(gpu, &of, rate(gpu, Dtype::Bf16)?)?),
        Case::LatentDecode(of) => sum(latent::decode(gpu, &of, rate(gpu, Dtype::Bf16)?)?),
        Case::Experts(of) => sum(expert_layer::parts(gpu, &of)?),
        Case::Gemm { format, m, n, k } => {
            let product = of_format(gpu, format, ProductShape { m, n, k })?;
            gemm::fastest(gpu, &product).cycles + gpu.product_launch_cycles() + format.quantise_cycles(gpu, m, k)
        }
    };
    Ok(cycles / gpu.clock_hz as f64)
}

/// Seconds of a product's kernel in a captured graph, behind the kernel that made its activations in their format.
///
/// # Errors
/// A format that the tensor cores lack.
pub fn product_seconds(gpu: &Gpu, format: ProductFormat, shape: ProductShape) -> Result<f64, Diagnostic> {
    let product = of_format(gpu, format, shape)?;
    Ok((gemm::fastest(gpu, &product).cycles + gpu.launch_cycles()) / gpu.clock_hz as f64)
}

/// Multiply-accumulates of an SM a cycle.
fn rate(gpu: &Gpu, dtype: Dtype) -> Result<f64, Diagnostic> {
    ProductFormat::Plain(dtype).rate(gpu)
}

/// A product of a format, one of a chain of like products: the activations lie in the L2 from the product or the kernel before if
/// everything between two uses of them fits it, and so does the matrix if [`MATRICES`] of them fit it together.
fn of_format(gpu: &Gpu, format: ProductFormat, ProductShape { m, n, k }: ProductShape) -> Result<Product, Diagnostic> {
    let a_bytes = (m * k) as f64 * format.activation_bytes();
    let b_bytes = (k * n) as f64 * format.weight_bytes();
    let write_bytes = (m * n) as f64 * format.result_bytes();
    let is_kept = |bytes: f64| bytes <= gpu.l2.reuse_bytes();
    let is_quantised = gpu.quantise.contains_key(format.name());
    let a_stays = is_kept(a_bytes + b_bytes + write_bytes) || is_quantised && is_kept(a_bytes);
    let b_stays = is_kept(a_bytes + MATRICES * b_bytes + write_bytes);
    Ok(Product {
        count: 1,
        m,
        n,
        k: k.div_ceil(format.packed()),
        element_bytes: format.packed_bytes(),
        b_element_bytes: format.weight_bytes() * format.packed() as f64,
        macs_per_cycle: format.rate(gpu)? / format.packed() as f64,
        a_bytes: if a_stays { 0.0 } else { a_bytes },
        b_bytes: if b_stays { 0.0 } else { b_bytes },
        epilogue_read_bytes: 0.0,
        write_bytes,
        groups: Vec::new(),
    })
}

/// A product whose operands and result lie in memory.
pub(super) fn product(gpu: &Gpu, dtype: Dtype, ProductShape { m, n, k }: ProductShape) -> Result<Product, Diagnostic> {
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
