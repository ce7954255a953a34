//! Cycles of the sparse vertices on one tile.
//!
//! Constants of the static kernel: poplibs `lib/popsparse/StaticMatMulPartitioner.cpp`; of the dynamic one: poplibs
//! `lib/popsparse/PerformanceEstimation.hpp`. For the dynamic kernel with blocks of 16 of 32-bit operands the library's figure is above the
//! peak of the units: two halves of a block, as in the static kernel, are assumed.

use super::Kernel;

/// Bytes of coefficients over the bytes that are loaded a cycle.
fn load_cycles(kernel: &Kernel<'_>) -> f64 {
    let bytes = kernel.block * kernel.block * if kernel.single { 4 } else { 2 };
    bytes as f64 / kernel.chip.tile.weight_load_bytes as f64
}

/// Cycles of the static kernel's tile with blocks larger than an element: `rows` rows of blocks, `blocks` blocks, `columns`
/// dense columns of a worker.
pub(super) fn static_blocks(kernel: &Kernel<'_>, rows: f64, blocks: f64, columns: f64) -> f64 {
    let n = columns.max(1.0);
    let (header, row, block) = match (kernel.block, kernel.single) {
        (4, false) => (17.0, 1.0, if n <= 2.0 { 7.0 + n } else { 13.0 + n }),
        (4, true) => (13.0, 1.0, 12.0 + (n - 1.0) * 4.0),
        (8, false) => (13.0, 1.0, 14.0 + (n - 1.0) * 2.0),
        (8, true) => (13.0, 4.0, 19.0 + (n - 1.0) * 8.0),
        (_, false) => (13.0, 1.0, 19.0 + (n - 1.0) * 4.0),
        // Two halves of a block, one after the other.
        (_, true) => (16.0, 4.0, if n <= 1.0 { 58.0 } else { (37.0 + (n - 1.0) * 8.0) * 2.0 }),
    };
    let threads = kernel.threads();
    30.0 + header * threads + rows * (row * threads + 17.0) + blocks * (16.0 + load_cycles(kernel) + block * threads)
}

/// Cycles of one row of single elements in the static kernel, of a worker: `elements` of them, `columns` dense columns.
pub(super) fn static_elements_row(kernel: &Kernel<'_>, elements: f64, columns: f64) -> f64 {
    let more = (elements - 1.0).max(0.0);
    let of = |first: f64, each: f64| first + more * each;
    if kernel.single {
        match columns as u64 {
            2 => of(5.0, 2.0),
            4 => of(6.0, 3.0),
            n => 12.0 + (n / 4) as f64 * (10.0 + more * 3.0) + if n % 4 == 0 { 0.0 } else { 10.0 + more * 2.0 },
        }
    } else {
        match columns as u64 {
            4 => of(7.0, 2.0),
            8 => of(8.0, 3.0),
            n => 11.0 + (n / 8) as f64 * (14.0 + more * 3.0) + if n % 8 == 0 { 0.0 } else { 9.0 + more * 2.0 },
        }
    }
}

/// Cycles of a worker of the static kernel beside its rows.
pub(super) const STATIC_ELEMENTS: f64 = 33.0;

/// Cycles in which sums of so many bytes are set to zero.
pub(super) fn zeroing(kernel: &Kernel<'_>, bytes: f64) -> f64 {
    let threads = kernel.threads();
    (12.0 + (bytes / kernel.chip.tile.vector_bytes as f64 / threads).ceil()) * threads
}

/// What a tile of the dynamic kernel works on.
#[derive(Debug, Clone, Copy)]
pub(super) struct BucketWork {
    /// Buckets it looks through, and those with blocks for it.
    pub(super) buckets: f64,
    pub(super) own_buckets: f64,
    /// Groups of blocks of one tile in a bucket.
    pub(super) groups: f64,
    /// Rows with blocks, and blocks.
    pub(super) rows: f64,
    pub(super) blocks: f64,
    /// Dense columns: of a worker with blocks, of a tile with elements.
    pub(super) columns: f64,
}

/// Cycles of the dynamic kernel's tile with blocks larger than an element.
pub(super) fn dynamic_blocks(kernel: &Kernel<'_>, work: &BucketWork, wide: bool) -> f64 {
    let threads = kernel.threads();
    let walk = 40.0
        + 33.0 * (work.buckets - work.own_buckets) * work.groups
        + (((work.groups - 1.0) / 2.0 + 1.0) * 46.0 + 56.0) * work.own_buckets;
    // With operands or sums of 32 bits there are units for 8 outputs only: a block of 16 takes two loads.
    let loads = if kernel.block == 16 && (wide || kernel.single) { 2.0 } else { 1.0 };
    let (worker, around, each) = match (kernel.block, kernel.single) {
        (4, single) => (26.0, if single { 14.0 } else { 19.0 }, if single { 4.0 } else { 2.0 }),
        (8, single) => (23.0, 23.0, if single { 8.0 } else { 4.0 }),
        (_, single) => (23.0, if wide { 24.0 } else { 22.0 }, if single { 8.0 } else { 4.0 }),
    };
    // The first rows of a block stay in the pipeline.
    let inner = loads * (around + work.columns * each - 3.0);
    walk + worker * threads
        + work.blocks * (load_cycles(kernel) + 3.0 + 12.0 * loads + inner * threads)
        + work.rows
        + 2.0
}

/// Cycles of the dynamic kernel's tile with single elements, its rows shared out to the workers.
pub(super) fn dynamic_elements(kernel: &Kernel<'_>, work: &BucketWork) -> f64 {
    let walk = 30.0
        + 32.0 * (work.buckets - work.own_buckets) * work.groups
        + (((work.groups - 1.0) / 2.0 + 1.0) * 44.0 + 46.0) * work.own_buckets;
    let rows = (work.rows / kernel.threads()).ceil();
    let elements = work.blocks / kernel.threads();
    let n = work.columns;
    let (worker, row, loops, each) = if kernel.single {
        (27.0, 12.0, 12.0 * (n / 4.0).floor().min(1.0), (n / 4.0).ceil() * 3.0)
    } else {
        (30.0, 11.0, 16.0 * (n / 8.0).floor().min(1.0), (n / 8.0).ceil() * 3.0)
    };
    walk + (worker + rows * (row + loops) + elements * each) * kernel.threads()
}
