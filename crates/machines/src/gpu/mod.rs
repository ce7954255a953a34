//! GPUs: the operator graph as a sequence of kernels, each timed by what its tiles leave idle and what it moves.
//!
//! `kbk` is a kernel an operator ("eager"), `epilogue` folds elementwise operators into the GEMM before them, `fused` is
//! what libraries and compilers of kernels fuse. `docs/gpu.md` is the timing model; an [`Outcome`] comes out, as of every chip.

mod account;
mod attention;
mod attention_groups;
mod cache;
#[cfg(test)]
mod call_tests;
mod calls;
mod capacity;
mod cases;
mod expert_groups;
mod expert_layer;
mod experts;
mod format;
mod gemm;
mod kernel;
mod kernels;
mod latent;
mod launches;
mod serving;
mod side_by_side;
mod sparse;
mod stream;
#[cfg(test)]
mod tests;
mod time;

use std::collections::BTreeSet;

use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::mode::Mode;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::{AttentionKernel, AttentionKind, Fusion, Gpu, Sharding};
use rdusim_graph::workload::{
    EXPANSION_STEPS, GemmForm, Operator, OperatorId, OperatorKind, Phase, PrunedActivation, TensorId, Workload,
    most_elements,
};
use rdusim_outcome::Outcome;

pub use self::account::bound_cycles;
pub use self::calls::{KernelCall, KernelCost, kernel_cost};
pub use self::cases::{Case, product_seconds, seconds};
pub use self::experts::{Experts, Skew};
pub use self::format::ProductFormat;
pub use self::latent::{LatentCall, LatentWidths};
pub use self::serving::AttentionCall;

use self::account::Timed;
use self::cache::Cache;
use self::gemm::Product;
use self::kernel::{Kernel, Work};
use self::kernels::kernels;
use self::serving::OverCache;
use self::sparse::{Chosen, Style};
use self::time::{KernelTime, Limit};

/// Rows or columns of a result that one expansion serves: a thread block's, at most (assumed).
const EXPANDED_ROWS: u64 = 128;

/// Vector operations an element of finding the largest two of every four and packing them (assumed: five comparisons and exchanges sort
/// four magnitudes; then the kept ones and their places are shifted into words).
const PRUNING_STEPS: f64 = 4.0;

/// What mode `epilogue` fuses, whatever the chip file says of `fused`.
const EPILOGUES: Fusion =
    Fusion { epilogue: true, elementwise: false, attention: AttentionKind::Unfused, graphs: false };

/// Runs a workload on a GPU in each of `modes`.
///
/// # Errors
/// A data type that the tensor cores lack, or tensors that do not fit device memory.
pub fn run(gpu: &Gpu, workload: &Workload, modes: &[Mode]) -> Result<Vec<Outcome>, Diagnostic> {
    workload.refuse_types(&gpu.name, "sm.tensor_macs", &gpu.sm.tensor_macs)?;
    modes.iter().map(|&mode| run_mode(gpu, workload, mode)).collect()
}

fn run_mode(gpu: &Gpu, workload: &Workload, mode: Mode) -> Result<Outcome, Diagnostic> {
    let fusion = match mode {
        Mode::Kbk => None,
        Mode::Epilogue => Some(&EPILOGUES),
        Mode::Fused => Some(&gpu.fusion),
    };
    let list = kernels(gpu, workload, fusion);
    let held = capacity::check(gpu, workload, &list, mode)?;
    let mut cache = Cache::new(gpu.l2.reuse_bytes());
    let timed: Vec<Timed> =
        list.iter().map(|kernel| Timer { gpu, workload, kernel, cache: &mut cache }.time()).collect();
    let gaps = launches::gaps(gpu, workload, &list, &timed, mode);
    let mut outcome = account::outcome(gpu, workload, mode, &list, &timed, &gaps);
    outcome.notes.push(held);
    outcome.notes.extend(workload.pruned_as_dense(gpu.sm.sparse_2_4_speedup > 1.0));
    outcome.notes.extend(account::notes(gpu, workload, mode, &list, &timed));
    Ok(outcome)
}

/// Times one kernel.
struct Timer<'a> {
    gpu: &'a Gpu,
    workload: &'a Workload,
    kernel: &'a Kernel,
    cache: &'a mut Cache,
}

impl Timer<'_> {
    fn time(mut self) -> Timed {
        let share = self.share();
        let kernel = self.kernel;
        let mut timed = match kernel.work {
            Work::Gemm(op) => self.gemm(op),
            Work::Attention(scores) => self.attention(scores, false),
            Work::AttentionGradient(scores) => self.attention(scores, true),
            Work::Experts { gather, first } => self.experts(gather, first),
            Work::Stream => self.stream(share),
        };
        for tensor in kernel.reads.iter().chain(&kernel.writes) {
            let bytes = self.bytes(*tensor) * share;
            self.cache.touch(self.workload.base(*tensor), bytes);
        }
        timed.share = share;
        timed
    }

    /// The part of an update that a device does, where state is shared out.
    fn share(&self) -> f64 {
        let update = self.workload.operators[self.kernel.operators[0]].phase == Phase::Update;
        let shared = self.gpu.cluster.sharding != Sharding::None;
        if update && shared { 1.0 / self.gpu.cluster.devices as f64 } else { 1.0 }
    }

    /// Bytes of a tensor in memory: of one that is pruned for the tensor cores, its values and their places.
    fn bytes(&self, tensor: TensorId) -> f64 {
        let of = &self.workload.tensors[tensor];
        let pruned = of.pruned.filter(|_| self.is_pruned(tensor));
        pruned.map_or(of.stored_bytes(), |pruned| pruned.bytes(of.rows, of.columns, of.dtype.bytes())) as f64
    }

    /// Whether the kernel that makes a tensor prunes it to 2:4, because the tensor cores multiply it faster so.
    fn is_pruned(&self, tensor: TensorId) -> bool {
        let pruned = self.workload.tensors[tensor].pruned;
        self.gpu.sm.sparse_2_4_speedup > 1.0 && pruned.is_some_and(PrunedActivation::is_two_of_four)
    }

    /// Vector operations that prune what the kernel makes.
    fn pruning_operations(&self) -> f64 {
        let made = self.kernel.operators.iter().map(|&op| self.workload.operators[op].output);
        let pruned = made.filter(|&t| self.is_pruned(t)).map(|t| &self.workload.tensors[t]);
        pruned.map(|t| t.rows as f64 * t.columns as f64 * PRUNING_STEPS).sum()
    }

    /// Bytes of a tensor that a read brings from memory: none of what the L2 still holds.
    fn missing(&self, tensor: TensorId) -> f64 {
        if self.cache.holds(self.workload.base(tensor)) { 0.0 } else { self.bytes(tensor) }
    }

    fn writes(&self) -> f64 {
        self.kernel.writes.iter().map(|&t| self.bytes(t)).sum()
    }

    fn gemm(&mut self, op: OperatorId) -> Timed {
        let (gpu, workload) = (self.gpu, self.workload);
        let operator = &workload.operators[op];
        let (a, b) = (operator.inputs[0], operator.inputs[1]);
        let dtype = workload.tensors[a].dtype;
        let Some(form) = workload.form(op) else { return Timed::default() };
        // Products side by side: the columns of all their matrices.
        let kernel = self.kernel;
        let products =
            || kernel.operators.iter().copied().filter(|&op| workload.operators[op].kind == OperatorKind::Gemm);
        let columns: u64 = products().filter_map(|op| workload.form(op)).map(|form| form.n).sum();
        let matrices: Vec<TensorId> = products().map(|op| workload.operators[op].inputs[1]).collect();
        let others = || kernel.reads.iter().copied().filter(|t| *t != a && !matrices.contains(t));
        let weight = &workload.tensors[b];
        let dense = |tensor: TensorId, missing: f64| {
            let of = &workload.tensors[tensor];
            let bytes = if of.pruned.is_some() { self.bytes(tensor) } else { of.unmasked_bytes() as f64 };
            if missing > 0.0 { bytes } else { 0.0 }
        };
        let product = Product {
            count: form.instances * form.heads,
            m: form.m,
            n: columns,
            k: form.k,
            element_bytes: dtype.bytes(),
            b_element_bytes: weight.packed_element_bytes().unwrap_or(dtype.bytes() as f64),
            macs_per_cycle: gpu.sm.tensor_macs.get(&dtype).copied().unwrap_or(1) as f64
                * if self.is_pruned(a) { gpu.sm.sparse_2_4_speedup } else { 1.0 },
            a_bytes: dense(a, self.missing(a)),
            b_bytes: matrices.iter().map(|&matrix| dense(matrix, self.missing(matrix))).sum(),
            epilogue_read_bytes: others().map(|t| self.missing(t)).sum(),
            write_bytes: self.writes(),
            groups: Vec::new(),
        };
        let product = self.in_four_bits(product, (a, b));
        let all = form.instances * form.heads * form.m * columns * form.k;
        let chosen = match (&weight.mask, &workload.tensors[operator.output].mask) {
            (Some(mask), _) => {
                let chosen = sparse::weight(gpu, &product, mask, self.missing(b));
                Some((chosen, "weight"))
            }
            (None, Some(mask)) => Some((sparse::sampled(gpu, &product, mask), "result")),
            (None, None) if self.is_pruned(a) => {
                let kept = workload.tensors[a].pruned.map_or(4, |pruned| pruned.n);
                let time = gemm::fastest(gpu, &product);
                let chosen =
                    Chosen { time, macs: all / 2, zero_macs: all / 2 - all / 4 * kept, style: Style::TwoOfFour };
                Some((chosen, "activation"))
            }
            (None, None) => None,
        };
        let (time, macs, zero_macs, sparse) = match chosen {
            Some((Chosen { time, macs, zero_macs, style }, what)) => (time, macs, zero_macs, Some((style, what))),
            None => (gemm::fastest(gpu, &product), all, 0, None),
        };
        let mut reads: Vec<(TensorId, f64)> = vec![(a, time.a_read_bytes)];
        if workload.base(a) != workload.base(b) {
            let stored: f64 = matrices.iter().map(|&matrix| self.bytes(matrix)).sum();
            reads.extend(matrices.iter().map(|&matrix| (matrix, time.b_read_bytes * self.bytes(matrix) / stored)));
        }
        reads.extend(others().map(|t| (t, self.missing(t))));
        let style = sparse.map(|(style, what): (Style, &str)| format!("; sparse {what}: {}", style.told()));
        let expanded = self.expanded(a, columns.div_ceil(EXPANDED_ROWS), form.m);
        let mut time = self.with_expansion(time, expanded);
        time.cycles += self.narrowing_cycles((a, b), op, form.instances * form.heads * form.m * form.k);
        // The epilogue prunes when the products of its tile are done.
        time.cycles += self.pruning_operations() / (time.sms.max(1) * gpu.sm.vector_lanes) as f64;
        let mut timed = self.timed(time, reads, macs);
        timed.expanded = expanded;
        timed.style = sparse.map(|(style, _)| style);
        timed.zero_macs = zero_macs;
        timed.time.shape.push_str(&style.unwrap_or_default());
        timed
    }

    /// Whether the tensor cores multiply a second operand in its NVFP4 form: activations of eight bits are then narrowed to four by the
    /// kernel that quantises them.
    fn is_of_four_bits(&self, a: TensorId, b: TensorId) -> bool {
        let tensors = &self.workload.tensors;
        let is_stored = tensors[b].packed.is_some_and(|packed| packed.format == ProductFormat::Nvfp4.name());
        is_stored && tensors[a].dtype == Dtype::Fp8E4m3 && self.gpu.sm.fp4_macs.is_some()
    }

    /// Cycles of the kernel that narrows activations to four bits, with a scale for each 16, before the first product that reads them.
    fn narrowing_cycles(&self, operands: (TensorId, TensorId), op: OperatorId, elements: u64) -> f64 {
        let first =
            self.workload.operators.iter_enumerated().find(|(_, other)| other.inputs.first() == Some(&operands.0));
        if !self.is_of_four_bits(operands.0, operands.1) || first.is_none_or(|(first, _)| first != op) {
            return 0.0;
        }
        let bytes = elements as f64 * (ProductFormat::Nvfp4.result_bytes() + ProductFormat::Nvfp4.activation_bytes());
        let gpu = self.gpu;
        let gap_us = if gpu.fusion.graphs { gpu.launch.graph_gap_us } else { gpu.launch.gap_us };
        let kernel = stream::time(gpu, bytes, bytes, elements as f64 * EXPANSION_STEPS);
        kernel.cycles + gpu.cycles_of_us(gpu.launch.ramp_us + gap_us)
    }

    /// The product as it runs where its second operand is multiplied in NVFP4.
    fn in_four_bits(&self, product: Product, operands: (TensorId, TensorId)) -> Product {
        let Some(macs) = self.gpu.sm.fp4_macs.filter(|_| self.is_of_four_bits(operands.0, operands.1)) else {
            return product;
        };
        let format = ProductFormat::Nvfp4;
        let packed = format.packed();
        Product {
            k: product.k.div_ceil(packed),
            element_bytes: format.packed_bytes(),
            b_element_bytes: format.weight_bytes() * packed as f64,
            macs_per_cycle: macs as f64 / packed as f64,
            a_bytes: product.a_bytes * format.activation_bytes(),
            ..product
        }
    }

    fn attention(&mut self, scores: OperatorId, gradient: bool) -> Timed {
        let (gpu, workload) = (self.gpu, self.workload);
        let Some(form) = workload.form(scores) else { return Timed::default() };
        let queries = workload.operators[scores].inputs[0];
        let dtype = workload.tensors[queries].dtype;
        let macs_per_cycle = gpu.sm.tensor_macs.get(&dtype).copied().unwrap_or(1) as f64;
        let reads: Vec<(TensorId, f64)> = self.kernel.reads.iter().map(|&t| (t, self.missing(t))).collect();
        let moved = reads.iter().map(|(_, bytes)| bytes).sum::<f64>() + self.writes();
        let time = if !gradient && self.is_over_cache(scores, &form) {
            let keys = workload.operators[scores].inputs[1];
            let elements = (workload.tensors[keys].rows * workload.tensors[keys].columns) as f64;
            let of = OverCache {
                macs_per_cycle,
                sequences: form.instances,
                new: form.m,
                keys: form.n,
                heads: form.heads,
                kv_heads: form.b_heads,
                head_dim: form.k,
                pair_bytes: 2.0 * form.k as f64 * self.bytes(keys) / elements,
                moved_bytes: moved,
                window: None,
            };
            of.time(gpu)
        } else {
            let scores = attention::Scores::of(&form);
            let by_head = gpu.fusion.attention == AttentionKind::Flash1;
            attention::time(gpu, self.prompt_kernel(), &scores, macs_per_cycle, by_head, moved, gradient)
        };
        // Queries stay with their thread block.
        let expanded = self.expanded(queries, 1, form.m);
        let products = if gradient { 5 } else { 2 };
        let timed = self.timed(self.with_expansion(time, expanded), reads, products * form.causal_macs());
        Timed { expanded, ..timed }
    }

    /// A layer of experts as an inference library calls it, behind the kernel before it: with as many rows for each expert as the graph
    /// gives it, and at least as long as its bytes take.
    fn experts(&mut self, gather: OperatorId, first: OperatorId) -> Timed {
        let (gpu, workload) = (self.gpu, self.workload);
        let layer = expert_groups::experts(gpu, workload, gather, first).zip(expert_groups::loads(workload, first));
        let Some((of, loads)) = layer else { return Timed::default() };
        let parts = expert_layer::parts_with(gpu, &of, &[loads]).unwrap_or_default();
        // The call outside its kernels, and the gap before them, are counted elsewhere.
        let beside = gpu.cycles_of_us(gpu.serving.call_us + gpu.launch.graph_gap_us + gpu.launch.ramp_us);
        let cycles = parts.iter().map(|(_, cycles)| cycles).sum::<f64>() - beside;
        let reads: Vec<(TensorId, f64)> = self.kernel.reads.iter().map(|&t| (t, self.missing(t))).collect();
        let moved = reads.iter().map(|(_, bytes)| bytes).sum::<f64>() + self.writes();
        let memory = moved / gpu.memory_bytes_per_cycle();
        let macs: u64 = self.kernel.operators.iter().map(|&op| workload.dense_macs(op)).sum();
        let compute = of.format.rate(gpu).map_or(0.0, |rate| macs as f64 / (rate * gpu.sm.count as f64));
        // Of its bytes, its products and all the rest, starts and ends of kernels and idle SMs, what takes longest.
        let mut limit = (cycles - memory.max(compute), Limit::Latency);
        for other in [(compute, Limit::Compute), (memory, Limit::Memory)] {
            if other.0 >= limit.0 {
                limit = other;
            }
        }
        let mut time = KernelTime::of(cycles.max(memory), limit.1);
        time.sms = gpu.sm.count;
        time.l2_bytes = moved;
        time.shape = format!("{} experts, {} rows", of.experts, of.tokens * of.chosen);
        // The format's constants have the time of expanding matrices; its energy is counted.
        let rows = workload.operators[first].inputs[0];
        let expanded = self.expanded(rows, 1, workload.form(first).map_or(0, |form| form.m));
        Timed { expanded, ..self.timed(time, reads, macs) }
    }

    /// The attention kernel of prompts: that of an inference library, where the graph has no gradients.
    fn prompt_kernel(&self) -> &AttentionKernel {
        let trains = self.workload.operators.iter().any(|operator| operator.phase != Phase::Forward);
        if trains { &self.gpu.attention } else { &self.gpu.serving.prefill }
    }

    /// Whether the scores are of new tokens over a cache: keys that no operator of the graph makes, more of them than queries.
    fn is_over_cache(&self, scores: OperatorId, form: &GemmForm) -> bool {
        let keys = self.workload.base(self.workload.operators[scores].inputs[1]);
        let is_made = self.workload.operators.iter().any(|operator| self.workload.base(operator.output) == keys);
        form.m < form.n && !is_made
    }

    /// Elements that thread blocks convert as they read them, where operands of products are stored in another format or of a type that
    /// the tensor cores lack: those of the first so often, others once for a block of rows.
    fn expanded(&self, first: TensorId, times: u64, rows: u64) -> f64 {
        let workload = self.workload;
        let is_converted = |t: &TensorId| {
            let of = &workload.tensors[*t];
            of.is_expanded() || self.gpu.emulated.contains_key(&of.dtype)
        };
        let is_multiplied = |operator: &Operator| self.is_of_four_bits(operator.inputs[0], operator.inputs[1]);
        let is_read = |t: &TensorId| self.kernel.reads.iter().any(|&read| workload.base(read) == workload.base(*t));
        let products = self.kernel.operators.iter().map(|&op| &workload.operators[op]);
        let products = products.filter(|operator| operator.kind == OperatorKind::Gemm && !is_multiplied(operator));
        let operands: BTreeSet<TensorId> = products.flat_map(|operator| operator.inputs.iter().copied()).collect();
        let conversions = operands.iter().filter(|t| is_converted(t) && is_read(t)).map(|&t| {
            let blocks = if t == first { times } else { rows.div_ceil(EXPANDED_ROWS) };
            workload.tensors[t].stored_elements() as f64 * blocks as f64
        });
        conversions.sum()
    }

    /// The time of products that expand so many elements: vector lanes convert and scale them while the tensor cores work on others.
    fn with_expansion(&self, mut time: KernelTime, expanded: f64) -> KernelTime {
        let lanes = (self.gpu.sm.count * self.gpu.sm.vector_lanes) as f64;
        let cycles = expanded * EXPANSION_STEPS / lanes;
        if cycles > time.cycles {
            (time.cycles, time.limit) = (cycles, Limit::Compute);
        }
        time.busiest = time.busiest.max(cycles);
        time
    }

    fn stream(&mut self, share: f64) -> Timed {
        let workload = self.workload;
        let reads: Vec<(TensorId, f64)> = self
            .kernel
            .reads
            .iter()
            .map(|&t| {
                // A row that does not fit an SM is read again in every pass.
                let row = workload.tensors[t].columns * workload.tensors[t].dtype.bytes();
                let passes = |&op: &OperatorId| workload.operators[op].kind.passes();
                let most = self.kernel.operators.iter().map(passes).max().unwrap_or(1);
                let heads = self.kernel.operators.iter().map(|&op| workload.operators[op].heads).max().unwrap_or(1);
                let again = if row / heads > self.gpu.sm.shared_bytes { most } else { 1 };
                (t, self.missing(t) * again as f64 * share)
            })
            .collect();
        let writes = self.writes() * share;
        let memory: f64 = reads.iter().map(|(_, bytes)| bytes).sum::<f64>() + writes;
        let through = self.kernel.reads.iter().map(|&t| self.bytes(t)).sum::<f64>() * share + writes;
        let work: f64 = self
            .kernel
            .operators
            .iter()
            .map(|&op| most_elements(workload, op) as f64 * workload.operators[op].kind.vector_steps() as f64)
            .sum();
        let time = stream::time(self.gpu, memory, through, work * share + self.pruning_operations());
        self.timed(time, reads, 0)
    }

    fn timed(&self, mut time: KernelTime, reads: Vec<(TensorId, f64)>, macs: u64) -> Timed {
        time.cycles += self.gpu.cycles_of_us(self.gpu.launch.ramp_us);
        let writes = self.kernel.writes.iter().map(|&t| (t, self.bytes(t))).collect();
        Timed { time, reads, writes, macs, ..Timed::default() }
    }
}
