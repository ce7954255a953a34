//! Single products as benchmarks measure them, with their operands where the plan wants them, and changes of layout.

use super::gemm::{self, Product};
use super::sparse::{Blocks, SparseProduct, dynamic_plan, static_plan};
use super::step::{most_temporary, parts_of};
use super::vertex;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::units::{ByteSize, Dtype};
use rdusim_graph::arch::{Bsp, SparseKernel};
use rdusim_graph::workload::ProductShape;

/// Bytes of a tile that one product may take.
fn available(chip: &Bsp) -> f64 {
    chip.planner.memory_share * chip.tile.sram_bytes as f64
}

fn unknown(chip: &Bsp, dtype: Dtype) -> Diagnostic {
    let known: Vec<&str> = chip.tile.macs.keys().map(|dtype| dtype.name()).collect();
    Diagnostic::new(format!("the tiles of {} do not multiply {dtype}", chip.name))
        .with_help(format!("its `tile.macs` has {}", known.join(", ")))
}

/// What keeps a product off the chip: `resident` bytes of operands and result, and what the fullest step needs.
fn check_room(chip: &Bsp, resident: f64, temporary: f64, what: &str) -> Result<(), Diagnostic> {
    let needed = resident / chip.tile.count as f64 + temporary;
    let (room, share) = (chip.tensor_bytes() as f64, available(chip));
    if needed <= room && temporary <= share {
        return Ok(());
    }
    let size = |bytes: f64| ByteSize(bytes.ceil() as u64);
    let title = format!(
        "{what} does not fit {}: tile 0 needs {} of {}, {} of it at a step (at most {} is allowed)",
        chip.name,
        size(needed),
        size(room),
        size(temporary),
        size(share)
    );
    Err(Diagnostic::new(title).with_help("make it smaller, or run it in parts"))
}

/// Seconds of a product of m x k by k x n whose operands lie as its plan wants them.
///
/// # Errors
/// A data type that the tiles do not multiply, or no room.
pub fn gemm_seconds(chip: &Bsp, dtype: Dtype, ProductShape { m, n, k }: ProductShape) -> Result<f64, Diagnostic> {
    let product = Product {
        count: 1,
        m,
        n,
        k,
        dtype,
        a_home: true,
        b_home: true,
        available: available(chip),
        windows: [None; 2],
        packed: [None; 2],
    };
    let plan = gemm::plan(chip, &product).ok_or_else(|| unknown(chip, dtype))?;
    let resident = (m * k + k * n + m * n) as f64 * dtype.bytes() as f64;
    check_room(chip, resident, most_temporary(&plan.steps), &format!("a product of {m} x {n} x {k}"))?;
    Ok(plan.cycles / chip.clock_hz as f64)
}

/// Seconds of a sparse matrix times a dense one of so many columns.
///
/// # Errors
/// A data type that the tiles do not multiply, an empty matrix, or no room.
pub fn sparse_seconds(
    chip: &Bsp,
    blocks: &Blocks,
    columns: u64,
    dtype: Dtype,
    kernel: SparseKernel,
) -> Result<f64, Diagnostic> {
    let (rows, depth) = blocks.shape();
    let (rows, depth) = (rows * blocks.side, depth * blocks.side);
    let product = SparseProduct { blocks, columns, dtype, available: available(chip) };
    let plan = match kernel {
        SparseKernel::Static => static_plan(chip, &product),
        SparseKernel::Dynamic => dynamic_plan(chip, &product),
        SparseKernel::Dense => return gemm_seconds(chip, dtype, ProductShape { m: columns, n: rows, k: depth }),
    };
    let plan = plan.ok_or_else(|| Diagnostic::new("a sparse matrix stores no element"))?;
    let stored = (blocks.count * blocks.side * blocks.side) as f64;
    let resident = (stored + (columns * (rows + depth)) as f64) * dtype.bytes() as f64;
    let what = format!("a sparse product of {rows} x {columns} x {depth}");
    check_room(chip, resident, most_temporary(&plan.steps), &what)?;
    Ok(plan.cycles / chip.clock_hz as f64)
}

/// Seconds in which so many bytes change their place and their order.
pub fn moved_seconds(chip: &Bsp, bytes: f64) -> f64 {
    let (steps, _) = vertex::moved(chip, "change layout", bytes, available(chip));
    parts_of(chip, &steps).total() / chip.clock_hz as f64
}
