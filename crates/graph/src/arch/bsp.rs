//! A bulk-synchronous chip as the timing model reads it: tiles with memory of their own, and an exchange between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Emulated, Tier, TierId};
use rdusim_base::index::IndexVec;
use rdusim_base::units::Dtype;

/// One tile: a processor with worker threads and its memory. Nothing else on the chip holds data.
#[derive(Debug, Clone)]
pub struct BspTile {
    /// Tiles of the chip.
    pub count: u64,
    /// Worker threads, which issue in turn.
    pub threads: u64,
    /// Memory of a tile, bytes.
    pub sram_bytes: u64,
    /// Of it, bytes for code, stacks and vertex state that no tensor can have.
    pub reserved_bytes: u64,
    /// Tiles that compute nothing: their memory is the buffer of what comes from off the chip and goes there, behind computation.
    pub io_tiles: u64,
    /// Multiply-accumulates of a tile and cycle, by data type of the operands.
    pub macs: BTreeMap<Dtype, u64>,
    /// Bytes of coefficients that the multiply units load a cycle.
    pub weight_load_bytes: u64,
    /// Bytes of a vector operation, of a load and of a store.
    pub vector_bytes: u64,
    /// Bytes a tile copies in its own memory a cycle when a layout changes.
    pub copy_bytes_per_cycle: f64,
}

/// What moves data between tiles, and the barrier before it.
#[derive(Debug, Clone, Copy)]
pub struct Exchange {
    /// Bytes a tile receives (or sends) a cycle.
    pub bytes_per_cycle: f64,
    /// Neighbouring tiles that receive at the double rate if they receive the same.
    pub shared_bus_tiles: u64,
    /// Cycles of the barrier before an exchange.
    pub sync_cycles: u64,
    /// Cycles of an exchange beside its bytes.
    pub setup_cycles: u64,
    /// Cycles from a tile to its nearest neighbours.
    pub near_cycles: u64,
    /// Cycles between the tiles that lie farthest apart.
    pub far_cycles: u64,
    /// Cycles of a barrier and a broadcast in a loop of the tile's own, as micro-benchmarks time them.
    pub broadcast_cycles: u64,
}

/// A kind of path to another chip.
#[derive(Debug, Clone, Copy)]
pub struct BspLink {
    /// Bytes a second, one way.
    pub bytes_per_s: f64,
    /// Of one tile pair alone, bytes a second.
    pub pair_bytes_per_s: f64,
    /// Nanoseconds of one word with no other traffic.
    pub latency_ns: f64,
    /// Nanoseconds that a further message at the same time adds.
    pub message_ns: f64,
    /// Directions whose messages do not wait for each other: 2, or 1 where all wait in one line. Bytes have both.
    pub message_directions: u64,
}

/// How a sparse weight is multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SparseKernel {
    /// The pattern is known when the program is compiled.
    Static,
    /// The pattern is data: buckets of a fixed capacity, and propagation of what does not fit.
    Dynamic,
    /// As a dense matrix.
    Dense,
}

impl SparseKernel {
    /// Names in chip files.
    pub const NAMES: [(&'static str, Self); 3] =
        [("static", Self::Static), ("dynamic", Self::Dynamic), ("dense", Self::Dense)];
}

/// Options of the libraries that plan operators.
#[derive(Debug, Clone, Copy)]
pub struct Planner {
    /// Part of a tile's memory that an operator may take for the time it runs.
    pub memory_share: f64,
    /// Partial sums of products of 16-bit operands are of 32 bits.
    pub wide_partials: bool,
    /// The same in the dynamic sparse kernel.
    pub dynamic_wide_partials: bool,
    /// How sparse weights are multiplied.
    pub sparse: SparseKernel,
    /// Capacity of a bucket of the dynamic kernel beyond that of an even pattern.
    pub bucket_oversize: f64,
    /// Worker cycles of a vertex beside its elements.
    pub vertex_cycles: u64,
    /// Consecutive operators whose streamed weights come together, once for all of them.
    pub subgraph_operators: u64,
}

/// Energy constants.
#[derive(Debug, Clone)]
pub struct BspEnergy {
    /// Picojoule of one multiply-accumulate, per data type.
    pub mac_pj: BTreeMap<Dtype, f64>,
    /// Picojoule of one byte between a tile's memory and its units.
    pub sram_pj_per_byte: f64,
    /// Picojoule of one byte over the exchange.
    pub exchange_pj_per_byte: f64,
    /// Watts that flow whatever the chip does.
    pub static_w: f64,
    /// Part of the energy of a multiply-accumulate that one on an element that is not stored takes.
    pub zero_mac_share: f64,
}

/// What of a program's tensors a chip of a system has: all of them on a chip alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BspPart {
    /// Chips that hold a part each of an optimiser's state.
    pub state_shards: u64,
    /// Chips that hold a part each of the sums of gradients, and of what is added to them.
    pub gradient_shards: u64,
    /// Chips that hold a part each of the weights, and gather them for every operator.
    pub weight_shards: u64,
    /// Chips that keep a part each of what enters a layer, off the chip, and gather it.
    pub activation_shards: u64,
    /// The program is a phase that all micro-batches go through: its weights come before the first and its sums of gradients leave
    /// behind the last, and no state of an optimiser is there meanwhile.
    pub is_phase: bool,
}

impl BspPart {
    /// Of a chip alone.
    pub const ALL: Self =
        Self { state_shards: 1, gradient_shards: 1, weight_shards: 1, activation_shards: 1, is_phase: false };
}

/// A bulk-synchronous chip, checked.
#[derive(Debug, Clone)]
pub struct Bsp {
    /// Name for people.
    pub name: String,
    /// Clock in hertz.
    pub clock_hz: u64,
    /// Its tiles.
    pub tile: BspTile,
    /// Between its tiles.
    pub exchange: Exchange,
    /// To other chips, by name: `board`, `direct`, `indirect`.
    pub links: BTreeMap<String, BspLink>,
    /// Memory off the chip: one tier, reached through the host link.
    pub memory: IndexVec<TierId, Tier>,
    /// Microseconds from one program to the next, started by the host.
    pub program_us: f64,
    /// How operators are planned.
    pub planner: Planner,
    /// Energy constants.
    pub energy: BspEnergy,
    /// What a system leaves to other chips, and how it runs a program.
    pub part: BspPart,
    /// Area of the whole die, if the file tells.
    pub die_mm2: Option<f64>,
    /// Data types that are multiplied as another.
    pub emulated: Emulated,
    /// Paths of the fields that the file calls assumed.
    pub assumed: Arc<[String]>,
    /// The text of the file, overrides applied; empty if it was not read from one.
    pub text: Arc<str>,
}

impl Bsp {
    /// Dense MACs of all tiles a cycle; `None` if the tiles lack the data type.
    pub fn macs_per_cycle(&self, dtype: Dtype) -> Option<u64> {
        self.tile.macs.get(&dtype).map(|macs| macs * self.tile.count)
    }

    /// Bytes of a tile that tensors can have.
    pub fn tensor_bytes(&self) -> u64 {
        self.tile.sram_bytes.saturating_sub(self.tile.reserved_bytes)
    }

    /// The same chip as operators see it: without the tiles that only stream.
    #[must_use]
    pub fn computing(&self) -> Self {
        let mut chip = self.clone();
        chip.tile.count = self.tile.count.saturating_sub(self.tile.io_tiles).max(1);
        chip
    }

    /// Bytes a cycle of the memory off the chip.
    pub fn memory_bytes_per_cycle(&self) -> f64 {
        self.memory.iter().map(|tier| tier.bandwidth_bytes_per_s as f64).sum::<f64>() / self.clock_hz as f64
    }

    /// Cycles of a time in microseconds.
    pub fn cycles_of_us(&self, us: f64) -> f64 {
        us * self.clock_hz as f64 / 1e6
    }
}
