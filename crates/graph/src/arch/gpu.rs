//! A GPU: streaming multiprocessors, an L2 and device memory, and what its libraries do. `docs/gpu.md` says what every
//! field means in time.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Emulated, Tier, TierId};
use rdusim_base::index::IndexVec;
use rdusim_base::units::Dtype;

/// A streaming multiprocessor (SM); rates are per SM.
#[derive(Debug, Clone)]
pub struct Sm {
    /// How many there are.
    pub count: u64,
    /// Dense multiply-accumulates of the tensor cores a cycle, per data type of the operands.
    pub tensor_macs: BTreeMap<Dtype, u64>,
    /// The same of operands of four bits with a scale of eight bits for each 16 (NVFP4), where the tensor cores have them.
    pub fp4_macs: Option<u64>,
    /// How many times faster they are on weights of which two of four neighbours along K are stored.
    pub sparse_2_4_speedup: f64,
    /// Vector operations a cycle (fp32 multiply-adds).
    pub vector_lanes: u64,
    /// Exponentials and other special functions a cycle.
    pub special_lanes: u64,
    /// Shared memory in bytes.
    pub shared_bytes: u64,
    /// Bytes the shared memory reads or writes a cycle.
    pub shared_bytes_per_cycle: u64,
    /// Register file in bytes.
    pub register_bytes: u64,
    /// Bytes a cycle from the L2 to one SM.
    pub l2_bytes_per_cycle: u64,
}

/// The cache between SMs and memory.
#[derive(Debug, Clone, Copy)]
pub struct L2 {
    /// Capacity in bytes.
    pub capacity_bytes: u64,
    /// Bytes a cycle to and from all SMs, sustained.
    pub bytes_per_cycle: u64,
    /// Share of the capacity that holds what is read again.
    pub reuse_share: f64,
}

impl L2 {
    /// Bytes that stay to be read again.
    pub fn reuse_bytes(&self) -> f64 {
        self.capacity_bytes as f64 * self.reuse_share
    }
}

/// Times between kernels, microseconds.
#[derive(Debug, Clone, Copy)]
pub struct KernelLaunch {
    /// From a kernel's end to the start of the next.
    pub gap_us: f64,
    /// Host time a kernel, while the host launches one by one.
    pub host_us: f64,
    /// Host time an operator of a training step, autograd and the small kernels around it included.
    pub training_host_us: f64,
    /// The gap inside a captured graph.
    pub graph_gap_us: f64,
    /// From a kernel's start to its first instruction on all SMs, and from its last result to its end.
    pub ramp_us: f64,
}

/// What the GEMM library offers.
#[derive(Debug, Clone)]
pub struct GemmLibrary {
    /// Output tiles of a thread block: rows, columns.
    pub tiles: Vec<(u64, u64)>,
    /// Bytes of a row of an operand in one step along K.
    pub step_bytes: u64,
    /// Steps whose operands are under way or in shared memory.
    pub pipeline: u64,
    /// Warps that one read of shared memory serves: those that issue an instruction of the tensor cores together.
    pub read_warps: u64,
    /// Thread blocks in a line of tiles that bring the operand they share from the L2 once, by multicast.
    pub cluster_blocks: u64,
    /// Clock held under tensor load, over boost.
    pub sustained_share: f64,
    /// Cycles a step costs beyond its data.
    pub step_overhead_cycles: f64,
    /// Share of the shorter of arithmetic and memory traffic that runs under the longer.
    pub overlap_share: f64,
    /// Parts that K is cut into at most.
    pub split_k_most: u64,
    /// Steps may be dealt evenly over the SMs.
    pub stream_k: bool,
    /// Share of the gap and the ramp of a product's kernel behind another of the library that programmatic launches hide.
    pub hidden_launches: f64,
}

/// What a library does to activations before a product of fewer bits: finds their largest magnitude, and writes them again in the
/// narrow format with their scales.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Quantise {
    /// Microseconds of its kernels beside their bytes.
    pub call_us: f64,
    /// Times that all activations are read.
    pub passes: f64,
    /// Bytes of activations a second that an SM reads from the L2, in 10^9.
    pub l2_sm_gb_per_s: f64,
    /// The same where they do not stay in the L2.
    pub memory_sm_gb_per_s: f64,
    /// Bytes of a row a second, in 10^9, that the one thread block gets through that takes it; without a value, rows are dealt
    /// over thread blocks as the SMs have room.
    pub row_gb_per_s: Option<f64>,
}

/// What a layer of experts takes in a format beside what all formats take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpertFormat {
    /// Microseconds of a call beside its products: scales, layouts, the host's part of a graph.
    pub call_us: f64,
    /// Rate of a grouped product over that of a plain one.
    pub grouped_share: f64,
    /// Nanoseconds for each expert of a device, whether it has rows or not: tables of scales and of where rows lie.
    pub local_expert_ns: f64,
    /// Time of the kernels that gather, gate and sum rows over that of streams; that of [`ServingStack`] if the file gives none.
    pub row_factor: Option<f64>,
}

/// The fused attention kernel.
#[derive(Debug, Clone, Copy)]
pub struct AttentionKernel {
    /// Queries of a tile.
    pub tile_queries: u64,
    /// Keys of a tile.
    pub tile_keys: u64,
    /// Vector operations a score, forward.
    pub forward_operations: f64,
    /// The same for the gradient.
    pub backward_operations: f64,
    /// Share of the vector time that runs under the tensor cores' time.
    pub overlap_share: f64,
    /// Microseconds of an SM for the start and the end of a thread block.
    pub block_us: f64,
    /// Share of the tensor cores' rate that the products reach, over that of a plain product.
    pub tensor_share: f64,
    /// Steps that a tile of queries takes beyond its keys where a window cuts off both ends of them.
    pub window_steps: f64,
}

/// The kernels of an inference stack, called one by one.
#[derive(Debug, Clone)]
pub struct ServingStack {
    /// Microseconds of a call outside its kernels.
    pub call_us: f64,
    /// Attention over a prompt.
    pub prefill: AttentionKernel,
    /// Queries that share a head of keys up to which the grouped kernel is used.
    pub most_grouped: u64,
    /// Queries of such a thread block; more are further blocks.
    pub group_tile: u64,
    /// Microseconds of a thread block with the queries of a head of keys, beside its bytes.
    pub group_block_us: f64,
    /// Such thread blocks of an SM.
    pub groups_per_sm: u64,
    /// Microseconds of a thread block with one query, beside its bytes.
    pub head_block_us: f64,
    /// Such thread blocks of an SM.
    pub heads_per_sm: u64,
    /// Keys of the least part of a cache.
    pub part_keys: u64,
    /// Bytes a second that an SM streams from the cache of keys and values, in 10^9.
    pub sm_gb_per_s: f64,
    /// Kernels that choose experts and sort tokens by them.
    pub routing_kernels: u64,
    /// Rate of a grouped product over that of a plain one.
    pub grouped_share: f64,
    /// Small kernels before the attention of a prompt: offsets of sequences, and the table of the cache's pages.
    pub prompt_kernels: u64,
    /// Nanoseconds that a thread block with the queries of a head of keys takes for a key, however few bytes that has.
    pub group_key_ns: f64,
    /// Bytes a second, in 10^9, that one thread block streams from a cache: what it has under way over the latency. No limit of its own if
    /// the file gives none.
    pub block_gb_per_s: f64,
    /// Thread blocks of an SM up to which a cache is cut into parts; as many as it has room for if the file gives none.
    pub parts_per_sm: Option<u64>,
    /// The grouped kernel is taken where its thread blocks, each with so many keys, are a quarter of the SMs or more; `None`: always.
    pub group_least_keys: Option<u64>,
    /// Nanoseconds that a thread block takes to pass over a key outside the window.
    pub skipped_key_ns: f64,
    /// Time of the kernels that gather, gate and sum rows over that of streams.
    pub row_factor: f64,
    /// Nanoseconds of sorting for each row that goes to an expert.
    pub routed_ns: f64,
    /// Nanoseconds of sorting for each expert of the layer.
    pub expert_ns: f64,
    /// Formats of experts that are not those of the activations, by their names in measurement files.
    pub formats: BTreeMap<String, ExpertFormat>,
    /// Latent attention (DeepSeek-V2, arXiv:2405.04434).
    pub latent: LatentKernels,
}

/// The kernels of latent attention.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LatentKernels {
    /// Microseconds of a call over prompts beside its attention.
    pub prompt_call_us: f64,
    /// Microseconds of a call over a cache beside its attention.
    pub cache_call_us: f64,
    /// Share of the tensor cores' rate that the products of prompts reach, over that of a plain product.
    pub prompt_share: f64,
    /// The same over a cache.
    pub cache_share: f64,
    /// Queries of a thread block over a cache.
    pub cache_tile: u64,
    /// Microseconds of such a thread block beside its products and bytes.
    pub cache_block_us: f64,
}

/// Kernels for weights with stored blocks.
#[derive(Debug, Clone, Copy)]
pub struct BlockSparseKernel {
    /// Cycles to the next stored block.
    pub block_overhead_cycles: f64,
    /// Share of the vector lanes busy with gathered single elements.
    pub gather_share: f64,
}

/// What a stack runs attention with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionKind {
    /// An operator a kernel: scores go through memory.
    Unfused,
    /// `FlashAttention` 1: a thread block has a head of a sequence.
    Flash1,
    /// `FlashAttention` 2: a thread block has a tile of queries.
    Flash2,
}

impl AttentionKind {
    /// Names in chip files; `none` and `flash` are short for the first and the last.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("unfused", Self::Unfused),
        ("flash-1", Self::Flash1),
        ("flash-2", Self::Flash2),
        ("none", Self::Unfused),
        ("flash", Self::Flash2),
    ];

    /// Whether scores stay in the SM.
    pub fn is_flash(self) -> bool {
        self != Self::Unfused
    }

    /// Words for notes.
    pub fn told(self) -> &'static str {
        match self {
            Self::Unfused => "unfused",
            Self::Flash1 => "FlashAttention 1",
            Self::Flash2 => "FlashAttention 2",
        }
    }
}

/// What is fused in mode `fused`.
#[derive(Debug, Clone, Copy)]
pub struct Fusion {
    /// Functions and sums behind a GEMM.
    pub epilogue: bool,
    /// Runs of operators that only move data.
    pub elementwise: bool,
    /// What runs attention.
    pub attention: AttentionKind,
    /// Kernels are captured as a graph.
    pub graphs: bool,
}

/// What every device of a cluster keeps to itself of weights, gradients and optimiser state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharding {
    /// All of it, each.
    None,
    /// Its share of the optimiser's state.
    Optimizer,
    /// Its share of everything.
    Full,
}

/// Devices that train together, each on a batch of its own.
#[derive(Debug, Clone, Copy)]
pub struct Cluster {
    /// Devices.
    pub devices: u64,
    /// What each keeps.
    pub sharding: Sharding,
    /// Communication takes time of its own (else it is hidden).
    pub exposed: bool,
    /// Bytes a second that a device sends while it receives as many.
    pub link_bytes_per_s: u64,
}

/// Energy constants of a GPU.
#[derive(Debug, Clone)]
pub struct GpuEnergy {
    /// Picojoule of one multiply-accumulate, per data type.
    pub mac_pj: BTreeMap<Dtype, f64>,
    /// Picojoule of one byte between L2 and an SM.
    pub l2_pj_per_byte: f64,
    /// Watts that flow whatever the chip does.
    pub static_w: f64,
    /// Part of the energy of a multiply-accumulate that one on an element that is not stored takes.
    pub zero_mac_share: f64,
}

/// A GPU, checked.
#[derive(Debug, Clone)]
pub struct Gpu {
    /// Name for people.
    pub name: String,
    /// Boost clock in hertz.
    pub clock_hz: u64,
    /// Its multiprocessors.
    pub sm: Sm,
    /// Its cache.
    pub l2: L2,
    /// Its memory: one tier.
    pub memory: IndexVec<TierId, Tier>,
    /// Times between kernels.
    pub launch: KernelLaunch,
    /// GEMMs.
    pub gemm: GemmLibrary,
    /// Fused attention.
    pub attention: AttentionKernel,
    /// Calls of an inference stack.
    pub serving: ServingStack,
    /// What quantising the activations of a product takes, by the name of its format; nothing where it is not named.
    pub quantise: BTreeMap<String, Quantise>,
    /// Sparse weights.
    pub block_sparse: BlockSparseKernel,
    /// What is fused in mode `fused`.
    pub fusion: Fusion,
    /// Devices that train together.
    pub cluster: Cluster,
    /// Energy constants.
    pub energy: GpuEnergy,
    /// Area of the whole die, if the file tells.
    pub die_mm2: Option<f64>,
    /// Data types that are multiplied as another.
    pub emulated: Emulated,
    /// Paths of the fields that the file calls assumed.
    pub assumed: Arc<[String]>,
    /// The text of the file, overrides applied; empty if it was not read from one.
    pub text: Arc<str>,
}

impl Gpu {
    /// Dense MACs of all SMs a cycle; `None` if the tensor cores lack the data type.
    pub fn macs_per_cycle(&self, dtype: Dtype) -> Option<u64> {
        self.sm.tensor_macs.get(&dtype).map(|macs| macs * self.sm.count)
    }

    /// Bytes a cycle of device memory.
    pub fn memory_bytes_per_cycle(&self) -> f64 {
        self.memory.iter().map(|tier| tier.bandwidth_bytes_per_s as f64).sum::<f64>() / self.clock_hz as f64
    }

    /// Cycles of an access to device memory.
    pub fn latency_cycles(&self) -> f64 {
        self.memory.iter().map(|tier| tier.latency_ns).fold(0.0, f64::max) * self.clock_hz as f64 / 1e9
    }

    /// Cycles of the gap before a kernel in a captured graph, and of its ramp.
    pub fn launch_cycles(&self) -> f64 {
        self.cycles_of_us(self.launch.graph_gap_us + self.launch.ramp_us)
    }

    /// The same of a product's kernel behind another of the library.
    pub fn product_launch_cycles(&self) -> f64 {
        self.launch_cycles() * (1.0 - self.gemm.hidden_launches)
    }

    /// Cycles of a time in microseconds.
    pub fn cycles_of_us(&self, us: f64) -> f64 {
        us * self.clock_hz as f64 / 1e6
    }
}
