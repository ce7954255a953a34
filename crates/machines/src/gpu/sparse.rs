//! GEMMs with a sparse weight: stored blocks alone, the tensor cores' 2:4 mode, or as if it were dense.

use rdusim_graph::arch::Gpu;
use rdusim_graph::sparsity::BlockMask;

use super::gemm::{Product, fastest, shared_bytes};
use super::time::{KernelTime, Limit};

/// How a kernel's work falls on the SMs of a GPU.
#[derive(Debug, Clone, Copy)]
struct SmLoad {
    /// Cycles that the SM with most work takes, the latency of its ends included.
    busiest: f64,
    /// Cycles that every SM would take if all shared the work evenly.
    mean: f64,
    /// SMs that have work at all.
    sms: u64,
}

/// Rows of activations a thread block of the block-sparse kernel has.
const ROWS: [u64; 3] = [64, 128, 256];
/// Columns of a stored block that a thread block works on at most.
const MOST_COLUMNS: u64 = 128;
/// Least extents of a tensor-core instruction: columns, depth [M PTX mma.m16n8k16].
const LEAST: (u64, u64) = (8, 16);

/// A kernel and what is said about its weight.
pub(super) struct Chosen {
    pub(super) time: KernelTime,
    /// Multiply-accumulates that are executed.
    pub(super) macs: u64,
    /// Those among them on elements that are not stored.
    pub(super) zero_macs: u64,
    /// How the weight is used.
    pub(super) style: Style,
}

/// How a sparse weight is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Zeros and all.
    Dense,
    /// Stored blocks.
    Blocks,
    /// Two of four.
    TwoOfFour,
    /// Whole rows of the weight, gathered with the columns of the activations that meet them.
    Rows,
    /// Whole columns of the weight, whose results are written where they belong.
    Columns,
    /// Single elements, gathered on the vector lanes.
    Elements,
}

impl Style {
    /// Words for the report.
    pub(super) fn told(self) -> &'static str {
        match self {
            Self::Dense => "as dense",
            Self::Blocks => "stored blocks",
            Self::TwoOfFour => "2:4",
            Self::Rows => "stored rows",
            Self::Columns => "stored columns",
            Self::Elements => "single elements",
        }
    }
}

/// The fastest kernel for `p` with the weight of a mask as its second operand; `stored_bytes` of the weight.
pub(super) fn weight(gpu: &Gpu, p: &Product, mask: &BlockMask, stored_bytes: f64) -> Chosen {
    let dense_macs = p.count * p.m * p.n * p.k;
    let stored_macs = p.m * mask.stored_elements();
    let chosen = |time, macs: u64, style| Chosen { time, macs, zero_macs: macs.saturating_sub(stored_macs), style };
    let mut best = chosen(fastest(gpu, p), dense_macs, Style::Dense);
    let mut consider = |time: KernelTime, macs: u64, style: Style| {
        if time.cycles < best.time.cycles {
            best = chosen(time, macs, style);
        }
    };
    let resident = p.b_bytes <= 0.0;
    let b_bytes = if resident { 0.0 } else { stored_bytes };
    if is_two_of_four(mask) {
        let faster = Product { macs_per_cycle: p.macs_per_cycle * gpu.sm.sparse_2_4_speedup, b_bytes, ..p.clone() };
        consider(fastest(gpu, &faster), dense_macs / 2, Style::TwoOfFour);
    }
    if mask.block_rows() >= LEAST.0 && mask.block_columns() >= LEAST.0 {
        for rows in ROWS {
            consider(blocks(gpu, p, mask, rows, b_bytes), stored_macs, Style::Blocks);
        }
    }
    // A dense product of what is stored: all of A is read, and gathering its columns takes no time of its own (assumed).
    let of_lines = [(mask.stored_rows(), Style::Rows), (mask.stored_columns(), Style::Columns)];
    for (lines, style) in of_lines.into_iter().filter(|_| p.count == 1) {
        let Some(lines) = lines.filter(|&lines| lines > 0) else { continue };
        let (n, k) = if style == Style::Rows { (p.n, lines) } else { (lines, p.k) };
        consider(fastest(gpu, &Product { n, k, b_bytes, ..p.clone() }), p.m * n * k, style);
    }
    consider(elements(gpu, p, stored_macs, b_bytes), stored_macs, Style::Elements);
    best
}

/// A thread block has `rows` rows of the result and the columns of a block column, and walks its stored blocks.
fn blocks(gpu: &Gpu, p: &Product, mask: &BlockMask, rows: u64, b_bytes: f64) -> KernelTime {
    let columns = mask.block_columns().min(MOST_COLUMNS);
    let parts = mask.block_columns().div_ceil(columns);
    let (wide, deep) = (columns.next_multiple_of(LEAST.0), mask.block_rows().next_multiple_of(LEAST.1));
    let row_tiles = p.count * p.m.div_ceil(rows);
    let longest = (0..mask.n_blocks()).map(|n| stored_blocks(mask, n)).max().unwrap_or(0);
    let steps = (row_tiles * parts * mask.kept_blocks()) as f64;
    let thread_blocks = row_tiles * parts * mask.n_blocks();
    let step_bytes = ((rows + wide) * deep * p.element_bytes) as f64;
    let resident = (gpu.sm.shared_bytes as f64 / (gpu.gemm.pipeline as f64 * step_bytes)).clamp(1.0, 8.0).floor();
    let tensor = (rows * wide * deep) as f64 / p.macs_per_cycle;
    let shared = shared_bytes(gpu, rows, wide, deep * p.element_bytes) as f64 / gpu.sm.shared_bytes_per_cycle as f64;
    let busy = tensor.max(shared) / gpu.gemm.sustained_share;
    let port = step_bytes / gpu.sm.l2_bytes_per_cycle as f64;
    let step = busy.max(port) + (gpu.gemm.step_overhead_cycles + gpu.block_sparse.block_overhead_cycles) / resident;
    let sms = thread_blocks.min(gpu.sm.count);
    let mean = steps / gpu.sm.count as f64 * step;
    // The fullest block column ends last.
    let busiest = mean.max(longest as f64 * step * resident.min((thread_blocks as f64 / sms as f64).ceil()))
        + 2.0 * gpu.latency_cycles();
    let l2_bytes = steps * step_bytes + p.epilogue_read_bytes + p.write_bytes;
    // Rows of A that stay in the L2 while the weight passes.
    let row_bytes = (p.k * p.element_bytes) as f64;
    let stay = (gpu.l2.reuse_bytes() / row_bytes).max(rows as f64);
    let passes = if b_bytes <= gpu.l2.reuse_bytes() { 1.0 } else { (p.m as f64 / stay).ceil().max(1.0) };
    let b_read_bytes = b_bytes * passes;
    let shape = format!("{rows} rows by blocks of {} x {}", mask.block_rows(), mask.block_columns());
    finished(gpu, p, SmLoad { busiest, mean, sms }, p.a_bytes, b_read_bytes, l2_bytes, shape)
}

/// Every stored element meets a row vector of activations on the vector lanes.
fn elements(gpu: &Gpu, p: &Product, stored_macs: u64, b_bytes: f64) -> KernelTime {
    let rate = (gpu.sm.count * gpu.sm.vector_lanes) as f64 * gpu.block_sparse.gather_share;
    let busiest = stored_macs as f64 / rate + 2.0 * gpu.latency_cycles();
    let l2_bytes = stored_macs as f64 * p.element_bytes as f64 + p.write_bytes;
    let load = SmLoad { busiest, mean: busiest, sms: gpu.sm.count };
    finished(gpu, p, load, p.a_bytes, b_bytes, l2_bytes, "gathered elements".to_owned())
}

/// The gradient of a sparse weight: stored blocks of the result, each over the whole depth; or all of it.
pub(super) fn sampled(gpu: &Gpu, p: &Product, mask: &BlockMask) -> Chosen {
    let dense = fastest(gpu, p);
    let macs = p.k * mask.stored_elements();
    let (rows, columns) = (mask.block_rows(), mask.block_columns());
    let dense_macs = p.count * p.m * p.n * p.k;
    let zero_macs = dense_macs.saturating_sub(macs);
    let mut best = Chosen { time: dense, macs: dense_macs, zero_macs, style: Style::Dense };
    if rows < LEAST.0 || columns < LEAST.0 {
        return best;
    }
    let (high, wide) = (rows.min(MOST_COLUMNS).next_multiple_of(16), columns.min(MOST_COLUMNS).next_multiple_of(8));
    let parts = rows.div_ceil(high) * columns.div_ceil(wide);
    let deep = (gpu.gemm.step_bytes / p.element_bytes).max(1);
    let blocks = mask.kept_blocks() * parts;
    let step_bytes = ((high + wide) * deep * p.element_bytes) as f64;
    let resident = (gpu.sm.shared_bytes as f64 / (gpu.gemm.pipeline as f64 * step_bytes)).clamp(1.0, 16.0).floor();
    let tensor = (high * wide * deep) as f64 / p.macs_per_cycle;
    let shared = shared_bytes(gpu, high, wide, deep * p.element_bytes) as f64 / gpu.sm.shared_bytes_per_cycle as f64;
    let busy = tensor.max(shared) / gpu.gemm.sustained_share;
    let step = busy.max(step_bytes / gpu.sm.l2_bytes_per_cycle as f64) + gpu.gemm.step_overhead_cycles / resident;
    let steps = blocks as f64 * p.k.div_ceil(deep) as f64;
    let mean = steps / gpu.sm.count as f64 * step;
    let busiest = blocks.div_ceil(gpu.sm.count) as f64 * p.k.div_ceil(deep) as f64 * step + 2.0 * gpu.latency_cycles();
    let l2_bytes = steps * step_bytes + p.write_bytes;
    // Columns of blocks whose operand stays in the L2 while the rows pass.
    let stripe = (p.k * wide * p.element_bytes) as f64;
    let stay = (gpu.l2.reuse_bytes() / stripe).floor().max(1.0);
    let passes = if p.a_bytes <= gpu.l2.reuse_bytes() { 1.0 } else { (mask.n_blocks() as f64 / stay).ceil().max(1.0) };
    let shape = format!("stored blocks of {rows} x {columns} of the result");
    let sms = blocks.min(gpu.sm.count);
    let time = finished(gpu, p, SmLoad { busiest, mean, sms }, p.a_bytes * passes, p.b_bytes, l2_bytes, shape);
    if time.cycles < best.time.cycles {
        best = Chosen { time, macs, zero_macs: 0, style: Style::Blocks };
    }
    best
}

fn finished(
    gpu: &Gpu,
    p: &Product,
    SmLoad { busiest, mean, sms }: SmLoad,
    a_read_bytes: f64,
    b_read_bytes: f64,
    l2_bytes: f64,
    shape: String,
) -> KernelTime {
    let moved = a_read_bytes + b_read_bytes + p.epilogue_read_bytes + p.write_bytes;
    let memory = moved / gpu.memory_bytes_per_cycle() + gpu.latency_cycles();
    let l2 = l2_bytes / gpu.l2.bytes_per_cycle as f64 + gpu.latency_cycles();
    let compute = if mean < 0.9 * busiest { Limit::Imbalance } else { Limit::Compute };
    let mut longest = (busiest, compute);
    for limit in [(l2, Limit::L2), (memory, Limit::Memory)] {
        if limit.0 > longest.0 {
            longest = limit;
        }
    }
    let (cycles, limit) = longest;
    KernelTime {
        cycles,
        limit,
        busiest,
        mean,
        sms,
        a_read_bytes,
        b_read_bytes,
        spill_bytes: 0.0,
        l2_bytes,
        over_cache: false,
        shape,
    }
}

fn stored_blocks(mask: &BlockMask, column: u64) -> u64 {
    mask.column_words(column).iter().map(|word| u64::from(word.count_ones())).sum()
}

/// Whether of every four neighbours along K at most two are stored.
fn is_two_of_four(mask: &BlockMask) -> bool {
    let over_two = |word: &u64| {
        let pairs = (word & 0x5555_5555_5555_5555) + ((word >> 1) & 0x5555_5555_5555_5555);
        let fours = (pairs & 0x3333_3333_3333_3333) + ((pairs >> 2) & 0x3333_3333_3333_3333);
        // Counts 3 and 4 of a group.
        (fours & 0x4444_4444_4444_4444) != 0 || (fours & (fours >> 1) & 0x1111_1111_1111_1111) != 0
    };
    mask.block_rows() == 1 && (0..mask.n_blocks()).all(|n| !mask.column_words(n).iter().any(over_two))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdusim_graph::sparsity::Pattern;

    #[test]
    fn two_of_four_is_recognised() {
        let mask = |n, m| Pattern::Nm { n, m }.draw(256, 64, (1, 1), 1);
        assert!(is_two_of_four(&mask(2, 4)) && is_two_of_four(&mask(1, 4)));
        assert!(!is_two_of_four(&mask(3, 4)) && !is_two_of_four(&mask(4, 8)));
        assert!(!is_two_of_four(&BlockMask::random(256, 64, (16, 16), 0.5, 1)));
    }
}
