//! One GEMM kernel: tiles of the output on SMs, steps along K through shared memory, and the traffic that takes.
//!
//! Nothing here is a table of rates: small, skinny and ragged products are slow by what their tiles leave idle.

use rdusim_graph::arch::Gpu;

use super::time::{KernelTime, Limit};

/// Bytes of a partial sum.
const PARTIAL_BYTES: f64 = 4.0;
/// Registers a thread block takes for each of its accumulators: operands and addresses beside them (assumed).
const REGISTERS_PER_ACCUMULATOR: f64 = 1.5;
/// Most thread blocks of an SM [M CUDA programming guide].
const MOST_RESIDENT: u64 = 32;
/// Bytes of a row of an operand that an instruction of the tensor cores multiplies: 16 elements of bf16 [M PTX mma.m16n8k16, wgmma].
const INSTRUCTION_BYTES: u64 = 32;
/// Output elements of a warp, as far as a thread block has at least four and at most eight warps.
const WARP_ELEMENTS: u64 = 4096;

/// What is to be multiplied: `count` products of m x k by k x n.
#[derive(Debug, Clone)]
pub(super) struct Product {
    pub(super) count: u64,
    pub(super) m: u64,
    pub(super) n: u64,
    pub(super) k: u64,
    /// Bytes of an element of the operands.
    pub(super) element_bytes: u64,
    /// Bytes of an element of B as it is read, of those that thread blocks expand with their share of scales.
    pub(super) b_element_bytes: f64,
    /// Multiply-accumulates an SM does a cycle.
    pub(super) macs_per_cycle: f64,
    /// Bytes of all of A in memory; 0 of what lies in the L2.
    pub(super) a_bytes: f64,
    /// Bytes of all of B in memory.
    pub(super) b_bytes: f64,
    /// Bytes that all epilogues read.
    pub(super) epilogue_read_bytes: f64,
    /// Bytes that all epilogues write.
    pub(super) write_bytes: f64,
    /// Rows of each product of a group, whose second operands are different matrices; empty if all have `m`.
    pub(super) groups: Vec<u64>,
}

impl Product {
    /// Rows of all products.
    fn all_rows(&self) -> u64 {
        if self.groups.is_empty() { self.count * self.m } else { self.groups.iter().sum() }
    }
}

/// A tile and what a step of it takes.
struct Tile<'a> {
    gpu: &'a Gpu,
    p: &'a Product,
    rows: u64,
    columns: u64,
    /// Elements of K in a step.
    depth: u64,
    /// Thread blocks an SM has room for.
    resident: u64,
}

impl<'a> Tile<'a> {
    fn new(gpu: &'a Gpu, p: &'a Product, rows: u64, columns: u64) -> Option<Self> {
        // A product no deeper than an instruction is one step of one instruction.
        let instruction = (INSTRUCTION_BYTES / p.element_bytes).max(1);
        let whole = (gpu.gemm.step_bytes / p.element_bytes).max(1);
        let depth = if p.k <= instruction { instruction.min(whole) } else { whole };
        let shared = gpu.gemm.pipeline * (rows + columns) * depth * p.element_bytes;
        let registers = (rows * columns) as f64 * PARTIAL_BYTES * REGISTERS_PER_ACCUMULATOR;
        let by_registers = (gpu.sm.register_bytes as f64 / registers) as u64;
        let resident = (gpu.sm.shared_bytes / shared).min(by_registers).min(MOST_RESIDENT);
        (resident > 0).then_some(Self { gpu, p, rows, columns, depth, resident })
    }

    /// Bytes that a step brings from the L2.
    fn step_bytes(&self) -> f64 {
        let (of_a, of_b) = (self.p.element_bytes as f64, self.p.b_element_bytes);
        (self.rows as f64 * of_a + self.columns as f64 * of_b) * self.depth as f64
    }

    /// Bytes that the L2 gives for a step of a thread block: those of a cluster share one operand, the one that saves more.
    fn l2_step_bytes(&self) -> f64 {
        let (p, most) = (self.p, self.gpu.gemm.cluster_blocks);
        // Reads of an operand by a line of tiles that share it, over its tiles.
        let share = |tiles: u64| tiles.div_ceil(most) as f64 / tiles.max(1) as f64;
        let of_b = if p.groups.is_empty() { share(p.m.div_ceil(self.rows)) } else { 1.0 };
        let of_a = share(p.n.div_ceil(self.columns));
        let (rows, columns) = (self.rows as f64 * p.element_bytes as f64, self.columns as f64 * p.b_element_bytes);
        (rows + columns * of_b).min(rows * of_a + columns) * self.depth as f64
    }

    /// Cycles of a step with `resident` thread blocks on the SM: tensor cores, shared memory and the way from the L2
    /// work at once; the latency of memory is hidden as far as steps are under way.
    fn step_cycles(&self, resident: u64) -> f64 {
        let gpu = self.gpu;
        let tensor = (self.rows * self.columns * self.depth) as f64 / self.p.macs_per_cycle;
        let shared = shared_bytes(gpu, self.rows, self.columns, self.depth * self.p.element_bytes) as f64
            / gpu.sm.shared_bytes_per_cycle as f64;
        let port = self.step_bytes() / gpu.sm.l2_bytes_per_cycle as f64;
        let under_way = (gpu.gemm.pipeline.saturating_sub(1).max(1) * resident) as f64;
        let latency = gpu.latency_cycles() / under_way;
        let overhead = gpu.gemm.step_overhead_cycles / resident as f64;
        tensor.max(shared) / gpu.gemm.sustained_share.max(f64::MIN_POSITIVE)
            + overhead
            + (port.max(latency) - tensor.max(shared)).max(0.0)
    }

    fn tiles(&self) -> u64 {
        let columns = self.p.n.div_ceil(self.columns);
        if self.p.groups.is_empty() {
            return self.p.count * self.p.m.div_ceil(self.rows) * columns;
        }
        self.p.groups.iter().map(|rows| rows.div_ceil(self.rows) * columns).sum()
    }

    fn steps(&self) -> u64 {
        self.p.k.div_ceil(self.depth).max(1)
    }

    /// Cycles that the steps of all tiles take at least, however K is cut: dealt evenly over SMs that are as full as can be.
    fn least_cycles(&self) -> f64 {
        let steps = self.tiles() as f64 * self.steps() as f64;
        steps * self.step_cycles(self.resident) / self.gpu.sm.count as f64
    }

    /// Cycles of filling the pipeline, and of writing a tile out.
    fn ends(&self, sms: u64) -> (f64, f64) {
        let gpu = self.gpu;
        let rate = (gpu.sm.l2_bytes_per_cycle as f64).min(gpu.l2.bytes_per_cycle as f64 / sms as f64);
        let elements = (self.p.all_rows() * self.p.n) as f64;
        let per_element = (self.p.epilogue_read_bytes + self.p.write_bytes) / elements.max(1.0);
        let prologue = gpu.latency_cycles() + self.step_bytes() / rate;
        (prologue, (self.rows * self.columns) as f64 * per_element / rate)
    }

    /// K cut into `split` parts, every part of a tile a thread block.
    fn split(&self, split: u64) -> KernelTime {
        let gpu = self.gpu;
        let steps = self.steps().div_ceil(split);
        let blocks = self.tiles().saturating_mul(split);
        let sms = blocks.min(gpu.sm.count);
        let most = blocks.div_ceil(gpu.sm.count);
        let resident = self.resident.min(most);
        let each = steps as f64 * self.step_cycles(resident);
        let (prologue, epilogue) = self.ends(sms);
        // Thread blocks that share an SM hide each other's ends, but for the first and the last.
        let rounds = most.div_ceil(resident) as f64;
        let exposed = (prologue + epilogue) * (1.0 + (rounds - 1.0) / resident as f64);
        let busiest = most as f64 * each + exposed;
        let mean = blocks as f64 / gpu.sm.count as f64 * each + exposed;
        let phases = self.phases(blocks, steps as f64, resident);
        let mut time = self.finish((busiest, mean, phases + exposed), sms, resident, blocks as f64 * steps as f64);
        if split > 1 {
            self.add_partials(&mut time, (split * self.p.all_rows() * self.p.n) as f64 * PARTIAL_BYTES);
        }
        let waves = blocks as f64 / (gpu.sm.count * self.resident) as f64;
        let cut = if split > 1 { format!(", K in {split} parts") } else { String::new() };
        time.shape = format!("{} tiles of {} x {}{cut}, {waves:.2} waves", self.tiles(), self.rows, self.columns);
        time
    }

    /// All steps dealt evenly over thread blocks that fill the SMs once; tiles on a border are added up.
    fn stream(&self) -> KernelTime {
        let gpu = self.gpu;
        let all = self.tiles() as f64 * self.steps() as f64;
        let per_sm = (all / gpu.sm.count as f64).ceil();
        let resident = self.resident;
        let (prologue, epilogue) = self.ends(gpu.sm.count);
        let rounds = (self.tiles() as f64 / (gpu.sm.count * resident) as f64).ceil().max(1.0);
        let border = (self.rows * self.columns) as f64 * PARTIAL_BYTES;
        let rate = gpu.l2.bytes_per_cycle as f64 / gpu.sm.count as f64;
        let exposed = prologue + epilogue * (1.0 + (rounds - 1.0) / resident as f64) + 2.0 * border / rate;
        let busiest = per_sm * self.step_cycles(resident) + exposed;
        let mut time = self.finish((busiest, busiest, busiest), gpu.sm.count, resident, all);
        time.l2_bytes += 2.0 * border * (gpu.sm.count * resident) as f64;
        time.shape = format!("{} tiles of {} x {}, steps dealt evenly", self.tiles(), self.rows, self.columns);
        time
    }

    /// Partial sums are written, and added up by a kernel of their own, which has its gap and its ramp.
    fn add_partials(&self, time: &mut KernelTime, bytes: f64) {
        let gpu = self.gpu;
        time.l2_bytes += 2.0 * bytes;
        time.cycles += 2.0 * bytes / gpu.l2.bytes_per_cycle as f64 + 2.0 * gpu.latency_cycles();
        time.cycles += gpu.product_launch_cycles();
        if bytes > self.gpu.l2.reuse_bytes() {
            time.spill_bytes += bytes;
            time.cycles += 2.0 * bytes / self.gpu.memory_bytes_per_cycle();
        }
    }

    /// Cycles of the rounds in which every SM has a thread block, and of the last, in which some have: each takes the longer
    /// of its arithmetic and its share of the memory traffic, at the rate that its thread blocks can ask for.
    fn phases(&self, blocks: u64, steps: f64, resident: u64) -> f64 {
        let gpu = self.gpu;
        let (a_read, b_read) = self.read_bytes(blocks.min(gpu.sm.count * resident));
        let moved = a_read + b_read + self.p.epilogue_read_bytes + self.p.write_bytes;
        let of_block = moved / blocks as f64;
        let phase = |rounds: u64, sms: u64| {
            let together = resident.min(rounds.max(1));
            let memory = (rounds * sms) as f64 * of_block / self.memory_rate(sms * together);
            let compute = rounds as f64 * steps * self.step_cycles(together);
            compute.max(memory) + (1.0 - gpu.gemm.overlap_share) * compute.min(memory)
        };
        let (full, rest) = (blocks / gpu.sm.count, blocks % gpu.sm.count);
        let last = if rest > 0 { phase(1, rest) } else { 0.0 };
        let first = if full > 0 { phase(full, gpu.sm.count) } else { 0.0 };
        first + last
    }

    /// Bytes a cycle that memory gives to so many thread blocks: few have few requests under way (Little's law).
    fn memory_rate(&self, blocks: u64) -> f64 {
        let gpu = self.gpu;
        let under_way = (blocks * gpu.gemm.pipeline.saturating_sub(1).max(1)) as f64 * self.step_bytes();
        gpu.memory_bytes_per_cycle().min(under_way / gpu.latency_cycles().max(1.0))
    }

    fn finish(&self, (busiest, mean, phases): (f64, f64, f64), sms: u64, resident: u64, steps: f64) -> KernelTime {
        let gpu = self.gpu;
        let (a_read, b_read) = self.read_bytes(sms * resident);
        let l2_bytes = steps * self.l2_step_bytes() + self.p.epilogue_read_bytes + self.p.write_bytes;
        let l2 = l2_bytes / gpu.l2.bytes_per_cycle as f64;
        let moved = a_read + b_read + self.p.epilogue_read_bytes + self.p.write_bytes;
        let memory = moved / self.memory_rate(sms * resident);
        let start = gpu.latency_cycles();
        let limits = [
            (busiest, if mean < 0.9 * busiest { Limit::Imbalance } else { Limit::Compute }),
            (l2 + start, Limit::L2),
            (memory + start, Limit::Memory),
        ];
        let mut longest = limits[0];
        for limit in limits {
            if limit.0 > longest.0 {
                longest = limit;
            }
        }
        KernelTime {
            cycles: longest.0.max(phases),
            limit: longest.1,
            busiest,
            mean,
            sms,
            a_read_bytes: a_read,
            b_read_bytes: b_read,
            spill_bytes: 0.0,
            l2_bytes,
            over_cache: false,
            shape: String::new(),
        }
    }

    /// Bytes of A and B that come from memory: the thread blocks of one wave stand in a rectangle of tiles and share its
    /// rows and columns through the L2; a stripe that fits stays there for the next wave.
    fn read_bytes(&self, wave: u64) -> (f64, f64) {
        let p = self.p;
        if !p.groups.is_empty() {
            return (p.a_bytes, p.b_bytes);
        }
        let (rows, columns) = (p.m.div_ceil(self.rows), p.n.div_ceil(self.columns));
        let stays = self.gpu.l2.reuse_bytes();
        let (of_a, of_b) = (p.k as f64 * p.element_bytes as f64, p.k as f64 * p.b_element_bytes);
        let fits = |tiles: u64, extent: u64, all: u64, line: f64| (tiles * extent).min(all) as f64 * line <= stays;
        let (fits_a, fits_b) = (p.m as f64 * of_a <= stays, p.n as f64 * of_b <= stays);
        let mut best = (f64::INFINITY, f64::INFINITY);
        let mut high = 1;
        loop {
            let wide = (wave / high).clamp(1, columns);
            let (row_groups, column_groups) = (rows.div_ceil(high) as f64, columns.div_ceil(wide) as f64);
            // Along the columns first, or along the rows first.
            let a_stays = fits_a || fits(high, self.rows, p.m, of_a);
            let b_stays = fits_b || fits(wide, self.columns, p.n, of_b);
            let by_rows = (
                p.a_bytes * if a_stays { 1.0 } else { column_groups },
                p.b_bytes * if fits_b { 1.0 } else { row_groups },
            );
            let by_columns = (
                p.a_bytes * if fits_a { 1.0 } else { column_groups },
                p.b_bytes * if b_stays { 1.0 } else { row_groups },
            );
            for found in [by_rows, by_columns] {
                if found.0 + found.1 < best.0 + best.1 {
                    best = found;
                }
            }
            if high >= rows.min(wave) {
                return best;
            }
            high = (high * 2).min(rows.min(wave));
        }
    }
}

/// Bytes that shared memory writes and reads in a step of a tile, whose rows take `step_bytes` each: every operand is
/// written once, and read by every warp that needs it, or once for the warps that issue an instruction together.
pub(super) fn shared_bytes(gpu: &Gpu, rows: u64, columns: u64, step_bytes: u64) -> u64 {
    let warps = (rows * columns / WARP_ELEMENTS).clamp(4, 8).div_ceil(gpu.gemm.read_warps);
    let read = (0..=3)
        .map(|power| 1 << power)
        .filter(|across| warps.is_multiple_of(*across))
        .map(|across| rows * across + columns * (warps / across))
        .min()
        .unwrap_or(rows + columns);
    (read + rows + columns) * step_bytes
}

/// The fastest way the library has.
pub(super) fn fastest(gpu: &Gpu, p: &Product) -> KernelTime {
    let mut best: Option<KernelTime> = None;
    for &tile in &gpu.gemm.tiles {
        let Some(tile) = Tile::new(gpu, p, tile.0, tile.1) else { continue };
        if best.as_ref().is_some_and(|known| tile.least_cycles() >= known.cycles) {
            continue;
        }
        let mut consider = |time: KernelTime| {
            if best.as_ref().is_none_or(|known| time.cycles < known.cycles) {
                best = Some(time);
            }
        };
        let mut split = 1;
        while split <= gpu.gemm.split_k_most.min(tile.steps()) {
            consider(tile.split(split));
            split *= 2;
        }
        if gpu.gemm.stream_k && tile.tiles() > gpu.sm.count {
            consider(tile.stream());
        }
    }
    // A file whose tiles fit no SM: one row of the output at a time.
    best.unwrap_or_else(|| {
        let cycles = (p.count * p.m * p.n * p.k) as f64 / p.macs_per_cycle;
        KernelTime { a_read_bytes: p.a_bytes, b_read_bytes: p.b_bytes, ..KernelTime::of(cycles, Limit::Compute) }
    })
}
