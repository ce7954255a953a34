//! Single products as benchmarks measure them: operands and result in memory, one program after the other.

use super::gemm::{self, Product};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::Systolic;
use rdusim_graph::workload::ProductShape;

/// Seconds of a product of m x n x k, its start left out.
///
/// # Errors
/// A data type that the cells do not multiply, or a product of nothing.
pub fn gemm_seconds(chip: &Systolic, dtype: Dtype, ProductShape { m, n, k }: ProductShape) -> Result<f64, Diagnostic> {
    let Some(&cell_macs) = chip.array.cell_macs.get(&dtype) else {
        return Err(Diagnostic::new(format!("{} does not multiply {dtype}", chip.name)));
    };
    if m.min(n).min(k) == 0 {
        return Err(Diagnostic::new(format!("a product of {m} x {n} x {k} has no elements")));
    }
    let bytes = |rows: u64, columns: u64| rows as f64 * columns as f64 * dtype.bytes() as f64;
    let product = Product {
        count: 1,
        shape: (m, n, k),
        element_bytes: dtype.bytes(),
        cell_macs,
        a_bytes: bytes(m, k),
        b_bytes: bytes(k, n),
        mask: None,
        packed_bytes: None,
    };
    let plan = gemm::plan(chip, &product, chip.buffer.capacity_bytes as f64, |plan| plan.cycles);
    let moved = plan.read_bytes.0 + plan.read_bytes.1 + bytes(m, n);
    let limits = [plan.cycles, moved / chip.memory_bytes_per_cycle(), plan.buffer_bytes / chip.buffer.bytes_per_cycle];
    let most = limits.into_iter().fold(0.0, f64::max);
    Ok((most + gemm::fill(chip, &plan, moved - bytes(m, n), bytes(m, n))) / chip.clock_hz as f64)
}
