//! A wafer of cores as the timing model reads it: cores with memory of their own on a mesh, and weights that stream in from outside.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Emulated, Tier, TierId};
use rdusim_base::index::IndexVec;
use rdusim_base::units::Dtype;

/// One core. Nothing else on the wafer holds data.
#[derive(Debug, Clone)]
pub struct WaferCore {
    /// Cores of the wafer.
    pub count: u64,
    /// Memory of a core, bytes.
    pub sram_bytes: u64,
    /// Of it, the part that activations can have; the rest is for code, buffers and sums.
    pub activation_share: f64,
    /// Multiply-accumulates of a core and cycle, by data type: a vector of activations times a weight.
    pub macs: BTreeMap<Dtype, u64>,
    /// Cycles that an arriving weight takes beside its multiplications.
    pub weight_cycles: f64,
}

/// Links between neighbouring cores.
#[derive(Debug, Clone, Copy)]
pub struct WaferFabric {
    /// Bytes a link and cycle, each direction.
    pub link_bytes_per_cycle: f64,
    /// Cycles from a core to the next.
    pub hop_cycles: f64,
}

/// Where weights are while a program runs in mode `fused`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaferExecution {
    /// Outside: they stream in for every operator that reads them, which has all cores.
    Streaming,
    /// On the cores of the operator that reads them: all operators work at the same time.
    Pipeline,
}

/// Energy constants.
#[derive(Debug, Clone)]
pub struct WaferEnergy {
    /// Picojoule of one multiply-accumulate, per data type.
    pub mac_pj: BTreeMap<Dtype, f64>,
    /// Picojoule of one byte between a core's memory and its units.
    pub sram_pj_per_byte: f64,
    /// Picojoule of one byte over a link.
    pub link_pj_per_byte: f64,
    /// Watts that flow whatever the wafer does.
    pub static_w: f64,
}

/// A wafer, checked.
#[derive(Debug, Clone)]
pub struct Wafer {
    /// Name for people.
    pub name: String,
    /// Clock in hertz.
    pub clock_hz: u64,
    /// Its cores.
    pub core: WaferCore,
    /// Between its cores.
    pub fabric: WaferFabric,
    /// Memory off the wafer, where weights and the optimiser's state are: one tier.
    pub memory: IndexVec<TierId, Tier>,
    /// Bytes that say where a weight belongs which is not the next of a dense matrix.
    pub index_bytes: f64,
    /// Where weights are.
    pub execution: WaferExecution,
    /// Microseconds from one program to the next, started by the host.
    pub start_us: f64,
    /// Microseconds from one operator of a program to the next.
    pub step_us: f64,
    /// Energy constants.
    pub energy: WaferEnergy,
    /// Area of the whole wafer, if the file tells.
    pub die_mm2: Option<f64>,
    /// Data types that are multiplied as another.
    pub emulated: Emulated,
    /// Paths of the fields that the file calls assumed.
    pub assumed: Arc<[String]>,
    /// The text of the file, overrides applied; empty if it was not read from one.
    pub text: Arc<str>,
}

impl Wafer {
    /// Dense MACs of all cores a cycle; `None` if the cores lack the data type.
    pub fn macs_per_cycle(&self, dtype: Dtype) -> Option<u64> {
        self.core.macs.get(&dtype).map(|macs| macs * self.core.count)
    }

    /// Bytes of all cores that activations can have.
    pub fn activation_bytes(&self) -> f64 {
        self.core.count as f64 * self.core.sram_bytes as f64 * self.core.activation_share
    }

    /// Bytes a cycle of the memory off the wafer.
    pub fn memory_bytes_per_cycle(&self) -> f64 {
        self.memory.iter().map(|tier| tier.bandwidth_bytes_per_s as f64).sum::<f64>() / self.clock_hz as f64
    }

    /// Cycles of a time in microseconds.
    pub fn cycles_of_us(&self, us: f64) -> f64 {
        us * self.clock_hz as f64 / 1e6
    }
}
