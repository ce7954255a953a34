//! A chip of systolic arrays as the timing model reads it: arrays, vector units, a buffer that software manages, memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Emulated, Tier, TierId};
use rdusim_base::index::IndexVec;
use rdusim_base::units::Dtype;

/// What stays in the cells while the rest streams through (Kung, 1982; Sze et al., 2017, for the names).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dataflow {
    /// Cells hold an operand; rows of the other pass, and sums leave at the last row of cells.
    WeightStationary,
    /// Cells hold sums; both operands pass, and the sums are shifted out.
    OutputStationary,
}

impl Dataflow {
    /// Names in chip files.
    pub const NAMES: [(&'static str, Self); 2] =
        [("weight-stationary", Self::WeightStationary), ("output-stationary", Self::OutputStationary)];

    /// The name in chip files.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, dataflow)| *dataflow == self).map_or("", |(name, _)| name)
    }
}

/// The arrays.
#[derive(Debug, Clone)]
pub struct Arrays {
    /// Arrays of the chip.
    pub count: u64,
    /// Rows of cells: along the depth of a product, or along its rows if cells hold sums.
    pub rows: u64,
    /// Columns of cells: along the columns of a product.
    pub columns: u64,
    /// Multiply-accumulates of a cell and cycle, by data type of the operands.
    pub cell_macs: BTreeMap<Dtype, u64>,
    /// What stays in the cells.
    pub dataflow: Dataflow,
    /// What a fold holds is loaded, or its sums leave, while the fold before it, or behind it, is computed.
    pub is_double_buffered: bool,
    /// Rows of sums that an array adds up over the depth before they leave; weight-stationary only.
    pub accumulator_rows: u64,
}

/// The buffer between memory and arrays.
#[derive(Debug, Clone, Copy)]
pub struct UnifiedBuffer {
    /// Bytes of all its banks.
    pub capacity_bytes: u64,
    /// Bytes a cycle that arrays and vector units read and write together.
    pub bytes_per_cycle: f64,
    /// Part of it that no tensor may keep: tiles under way between memory and arrays.
    pub stream_share: f64,
}

/// Energy constants.
#[derive(Debug, Clone)]
pub struct SystolicEnergy {
    /// Picojoule of one multiply-accumulate, per data type.
    pub mac_pj: BTreeMap<Dtype, f64>,
    /// Picojoule of one byte between the buffer and the units.
    pub buffer_pj_per_byte: f64,
    /// Watts that flow whatever the chip does.
    pub static_w: f64,
    /// Part of the energy of a multiply-accumulate that one on an element that is not stored takes.
    pub zero_mac_share: f64,
}

/// A chip of systolic arrays, checked.
#[derive(Debug, Clone)]
pub struct Systolic {
    /// Name for people.
    pub name: String,
    /// Clock in hertz.
    pub clock_hz: u64,
    /// Its arrays.
    pub array: Arrays,
    /// Elements that all vector units compute a cycle, one operation each.
    pub vector_lanes: u64,
    /// Its buffer.
    pub buffer: UnifiedBuffer,
    /// Memory off the chip: one tier.
    pub memory: IndexVec<TierId, Tier>,
    /// Microseconds from one program to the next, started by the host.
    pub start_us: f64,
    /// Microseconds from one operator of a program to the next.
    pub step_us: f64,
    /// Energy constants.
    pub energy: SystolicEnergy,
    /// Area of the whole die, if the file tells.
    pub die_mm2: Option<f64>,
    /// Data types that are multiplied as another.
    pub emulated: Emulated,
    /// Paths of the fields that the file calls assumed.
    pub assumed: Arc<[String]>,
    /// The text of the file, overrides applied; empty if it was not read from one.
    pub text: Arc<str>,
}

impl Systolic {
    /// Dense MACs of all arrays a cycle; `None` if the cells lack the data type.
    pub fn macs_per_cycle(&self, dtype: Dtype) -> Option<u64> {
        let cells = self.array.count * self.array.rows * self.array.columns;
        self.array.cell_macs.get(&dtype).map(|macs| macs * cells)
    }

    /// Bytes a cycle of the memory off the chip.
    pub fn memory_bytes_per_cycle(&self) -> f64 {
        self.memory.iter().map(|tier| tier.bandwidth_bytes_per_s as f64).sum::<f64>() / self.clock_hz as f64
    }

    /// Bytes of the buffer that tensors may keep.
    pub fn resident_bytes(&self) -> f64 {
        self.buffer.capacity_bytes as f64 * (1.0 - self.buffer.stream_share)
    }

    /// Cycles of a time in microseconds.
    pub fn cycles_of_us(&self, us: f64) -> f64 {
        us * self.clock_hz as f64 / 1e6
    }
}
