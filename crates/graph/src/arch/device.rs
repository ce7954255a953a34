//! What every chip can be asked, whatever its kind: reports need no more.

use super::kind::ChipKind;
use super::{Bsp, Chip, Emulated, Gpu, Systolic, Tier, TierId, Vendor, Wafer};
use rdusim_base::index::IndexVec;
use rdusim_base::units::Dtype;

/// A chip of any kind.
#[derive(Debug, Clone)]
pub enum AnyChip {
    /// A grid of PCUs and PMUs.
    Rdu(Box<Chip>),
    /// Streaming multiprocessors.
    Gpu(Box<Gpu>),
    /// Tiles in supersteps.
    Bsp(Box<Bsp>),
    /// Systolic arrays.
    Systolic(Box<Systolic>),
    /// Cores of a wafer.
    Wafer(Box<Wafer>),
}

impl AnyChip {
    /// The chip as reports see it.
    pub fn device(&self) -> &dyn Device {
        match self {
            Self::Rdu(chip) => &**chip,
            Self::Gpu(gpu) => &**gpu,
            Self::Bsp(bsp) => &**bsp,
            Self::Systolic(systolic) => &**systolic,
            Self::Wafer(wafer) => &**wafer,
        }
    }

    /// What files and refusals say of its kind.
    pub fn kind(&self) -> &'static ChipKind {
        ChipKind::of(self.device().kind())
    }

    /// Its off-chip tiers, to be changed.
    pub fn tiers_mut(&mut self) -> &mut IndexVec<TierId, Tier> {
        match self {
            Self::Rdu(chip) => &mut chip.memory,
            Self::Gpu(gpu) => &mut gpu.memory,
            Self::Bsp(bsp) => &mut bsp.memory,
            Self::Systolic(systolic) => &mut systolic.memory,
            Self::Wafer(wafer) => &mut wafer.memory,
        }
    }

    /// The grid that operators are mapped onto; an RDU alone has one.
    pub fn rdu(&self) -> Option<&Chip> {
        if let Self::Rdu(chip) = self { Some(chip) } else { None }
    }

    /// The same, to be changed.
    pub fn rdu_mut(&mut self) -> Option<&mut Chip> {
        if let Self::Rdu(chip) = self { Some(chip) } else { None }
    }

    /// The RDU, or the chip of another kind.
    ///
    /// # Errors
    /// The chip itself, if it is no RDU.
    pub fn into_rdu(self) -> Result<Chip, Self> {
        if let Self::Rdu(chip) = self { Ok(*chip) } else { Err(self) }
    }

    /// The GPU, if it is one.
    pub fn gpu(&self) -> Option<&Gpu> {
        if let Self::Gpu(gpu) = self { Some(gpu) } else { None }
    }

    /// The same, to be changed.
    pub fn gpu_mut(&mut self) -> Option<&mut Gpu> {
        if let Self::Gpu(gpu) = self { Some(gpu) } else { None }
    }

    /// The chip of tiles in supersteps, if it is one.
    pub fn bsp(&self) -> Option<&Bsp> {
        if let Self::Bsp(bsp) = self { Some(bsp) } else { None }
    }

    /// The systolic arrays, if it has any.
    pub fn systolic(&self) -> Option<&Systolic> {
        if let Self::Systolic(systolic) = self { Some(systolic) } else { None }
    }

    /// The wafer, if it is one.
    pub fn wafer(&self) -> Option<&Wafer> {
        if let Self::Wafer(wafer) = self { Some(wafer) } else { None }
    }
}

/// A chip of each kind is a chip of any kind.
macro_rules! is_any_chip {
    ($($variant:ident($chip:ty)),*) => {
        $(impl From<$chip> for AnyChip {
            fn from(chip: $chip) -> Self {
                Self::$variant(Box::new(chip))
            }
        })*
    };
}
is_any_chip!(Rdu(Chip), Gpu(Gpu), Bsp(Bsp), Systolic(Systolic), Wafer(Wafer));

/// What the units of a chip are called: those that compute, those that hold data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitNames {
    /// Units that compute.
    pub compute: &'static str,
    /// Units that hold data; none on a GPU, whose cache is one.
    pub memory: Option<&'static str>,
    /// On-chip memory.
    pub sram: &'static str,
}

/// A chip of any kind, as reports see it.
pub trait Device {
    /// Name for people.
    fn name(&self) -> &str;
    /// `rdu`, `gpu`, `bsp`, `systolic` or `wafer`.
    fn kind(&self) -> &'static str;
    /// Clock in hertz.
    fn clock_hz(&self) -> u64;
    /// What its units are called.
    fn unit_names(&self) -> UnitNames;
    /// Units that compute.
    fn compute_units(&self) -> u64;
    /// Units that hold data.
    fn memory_units(&self) -> u64;
    /// On-chip memory that tensors pass through, bytes.
    fn sram_bytes(&self) -> u64;
    /// Data types it multiplies.
    fn dtypes(&self) -> Vec<Dtype>;
    /// Data types among them that it multiplies as another.
    fn emulated(&self) -> &Emulated;
    /// Peak FLOP/s of dense products in a data type (2 FLOP a MAC).
    fn peak_flops(&self, dtype: Dtype) -> Option<f64>;
    /// Off-chip tiers.
    fn tiers(&self) -> &IndexVec<TierId, Tier>;
    /// Vendor limits in force.
    fn limits(&self) -> Option<&Vendor>;
    /// Paths of the fields that its file calls assumed.
    fn assumed(&self) -> &[String];
    /// The text of its file, overrides applied; empty if it was not read from one.
    fn text(&self) -> &str;
    /// Area, and what it is the area of.
    fn area(&self) -> Option<(f64, &'static str)>;
    /// Watts that it takes whatever it does.
    fn static_w(&self) -> f64;
    /// Watts that its package may take.
    fn package_w(&self) -> Option<f64> {
        None
    }
    /// Places whose energy its model counts.
    fn energy_scope(&self) -> &'static str;

    /// Seconds of a number of cycles.
    fn seconds(&self, cycles: u64) -> f64 {
        cycles as f64 / self.clock_hz() as f64
    }
}

impl Device for Chip {
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        "rdu"
    }
    fn clock_hz(&self) -> u64 {
        self.clock_hz
    }
    fn unit_names(&self) -> UnitNames {
        UnitNames { compute: "PCUs", memory: Some("PMUs"), sram: "SRAM" }
    }
    fn compute_units(&self) -> u64 {
        self.pcus()
    }
    fn memory_units(&self) -> u64 {
        self.pmus()
    }
    fn sram_bytes(&self) -> u64 {
        Chip::sram_bytes(self)
    }
    fn dtypes(&self) -> Vec<Dtype> {
        self.pcu.lanes.keys().copied().collect()
    }
    fn emulated(&self) -> &Emulated {
        &self.emulated
    }
    fn peak_flops(&self, dtype: Dtype) -> Option<f64> {
        Chip::peak_flops(self, dtype)
    }
    fn tiers(&self) -> &IndexVec<TierId, Tier> {
        &self.memory
    }
    fn limits(&self) -> Option<&Vendor> {
        Chip::limits(self)
    }
    fn assumed(&self) -> &[String] {
        &self.assumed
    }

    fn text(&self) -> &str {
        &self.text
    }
    fn area(&self) -> Option<(f64, &'static str)> {
        self.area_mm2().map(|area| (area.total(), "units, scaled from a synthesis at another node"))
    }
    fn static_w(&self) -> f64 {
        self.energy.static_w
    }
    fn package_w(&self) -> Option<f64> {
        self.area.as_ref()?.package_w
    }
    fn energy_scope(&self) -> &'static str {
        "MACs, PMUs, the vector network and off-chip memory"
    }
}

/// What chips without a grid name alike.
macro_rules! fields_of_plain_chips {
    () => {
        fn name(&self) -> &str {
            &self.name
        }
        fn clock_hz(&self) -> u64 {
            self.clock_hz
        }
        fn peak_flops(&self, dtype: Dtype) -> Option<f64> {
            self.macs_per_cycle(dtype).map(|macs| 2.0 * macs as f64 * self.clock_hz as f64)
        }
        fn tiers(&self) -> &IndexVec<TierId, Tier> {
            &self.memory
        }
        fn limits(&self) -> Option<&Vendor> {
            None
        }
        fn assumed(&self) -> &[String] {
            &self.assumed
        }
        fn text(&self) -> &str {
            &self.text
        }
        fn static_w(&self) -> f64 {
            self.energy.static_w
        }
    };
}

impl Device for Gpu {
    fields_of_plain_chips!();

    fn kind(&self) -> &'static str {
        "gpu"
    }
    fn unit_names(&self) -> UnitNames {
        UnitNames { compute: "SMs", memory: None, sram: "L2" }
    }
    fn compute_units(&self) -> u64 {
        self.sm.count
    }
    fn memory_units(&self) -> u64 {
        0
    }
    fn sram_bytes(&self) -> u64 {
        self.l2.capacity_bytes
    }
    fn dtypes(&self) -> Vec<Dtype> {
        self.sm.tensor_macs.keys().copied().collect()
    }
    fn emulated(&self) -> &Emulated {
        &self.emulated
    }
    fn area(&self) -> Option<(f64, &'static str)> {
        self.die_mm2.map(|mm2| (mm2, "the whole die"))
    }
    fn energy_scope(&self) -> &'static str {
        "MACs, the L2 and off-chip memory, not registers and shared memory"
    }
}

impl Device for Bsp {
    fields_of_plain_chips!();

    fn kind(&self) -> &'static str {
        "bsp"
    }
    fn unit_names(&self) -> UnitNames {
        UnitNames { compute: "tiles", memory: Some("tile memories"), sram: "SRAM" }
    }
    fn compute_units(&self) -> u64 {
        self.tile.count
    }
    fn memory_units(&self) -> u64 {
        self.tile.count
    }
    fn sram_bytes(&self) -> u64 {
        self.tile.count * self.tile.sram_bytes
    }
    fn dtypes(&self) -> Vec<Dtype> {
        self.tile.macs.keys().copied().collect()
    }
    fn emulated(&self) -> &Emulated {
        &self.emulated
    }
    fn area(&self) -> Option<(f64, &'static str)> {
        self.die_mm2.map(|mm2| (mm2, "the whole die"))
    }
    fn energy_scope(&self) -> &'static str {
        "MACs, tile memory, the exchange and off-chip memory"
    }
}

impl Device for Systolic {
    fields_of_plain_chips!();

    fn kind(&self) -> &'static str {
        "systolic"
    }
    fn unit_names(&self) -> UnitNames {
        UnitNames { compute: "arrays", memory: None, sram: "buffer" }
    }
    fn compute_units(&self) -> u64 {
        self.array.count
    }
    fn memory_units(&self) -> u64 {
        0
    }
    fn sram_bytes(&self) -> u64 {
        self.buffer.capacity_bytes
    }
    fn dtypes(&self) -> Vec<Dtype> {
        self.array.cell_macs.keys().copied().collect()
    }
    fn emulated(&self) -> &Emulated {
        &self.emulated
    }
    fn area(&self) -> Option<(f64, &'static str)> {
        self.die_mm2.map(|mm2| (mm2, "the whole die"))
    }
    fn energy_scope(&self) -> &'static str {
        "MACs, the buffer and off-chip memory, not vector units"
    }
}

impl Device for Wafer {
    fields_of_plain_chips!();

    fn kind(&self) -> &'static str {
        "wafer"
    }
    fn unit_names(&self) -> UnitNames {
        UnitNames { compute: "cores", memory: Some("core memories"), sram: "SRAM" }
    }
    fn compute_units(&self) -> u64 {
        self.core.count
    }
    fn memory_units(&self) -> u64 {
        self.core.count
    }
    fn sram_bytes(&self) -> u64 {
        self.core.count * self.core.sram_bytes
    }
    fn dtypes(&self) -> Vec<Dtype> {
        self.core.macs.keys().copied().collect()
    }
    fn emulated(&self) -> &Emulated {
        &self.emulated
    }
    fn area(&self) -> Option<(f64, &'static str)> {
        self.die_mm2.map(|mm2| (mm2, "the whole wafer"))
    }
    fn energy_scope(&self) -> &'static str {
        "MACs, core memories, links and what streams in and out"
    }
}
