//! The resolved chip: what the compiler and the simulator see.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Banks, Penalties, Quality, Shapes, Vendor};
use rdusim_base::id_type;
use rdusim_base::index::IndexVec;
use rdusim_base::units::{Dtype, Rate};

id_type! {
    /// A memory tier of the chip.
    TierId
}

/// A site of the grid: column `x` from the left, row `y` from the top.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Coordinate {
    /// Column.
    pub x: u32,
    /// Row.
    pub y: u32,
}

/// What stands at a site beside its switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum UnitKind {
    /// Pattern compute unit.
    Pcu,
    /// Pattern memory unit.
    Pmu,
    /// A switch alone.
    None,
}

/// One address-generator-and-coalescing unit at an edge site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agcu {
    /// The edge site whose switch it is attached to.
    pub site: Coordinate,
    /// Address generators in it; each makes one off-chip stream.
    pub ags: u64,
}

/// The grid: units at explicit coordinates, a switch at every site.
#[derive(Debug, Clone)]
pub struct Grid {
    /// Columns of sites.
    pub columns: u32,
    /// Rows of sites.
    pub rows: u32,
    /// Sites of one tile: columns, rows.
    pub tile: (u32, u32),
    /// Sites of one die: columns, rows.
    pub die: (u32, u32),
    /// Unit at each site, row-major, `columns * rows` entries.
    pub units: Vec<UnitKind>,
    /// PCU sites, row-major.
    pub pcus: Vec<Coordinate>,
    /// PMU sites, row-major.
    pub pmus: Vec<Coordinate>,
    /// AGCUs at the edges.
    pub agcus: Vec<Agcu>,
    /// The shapes that were to choose from, of a grid by its number of PCUs.
    pub shapes: Option<Arc<Shapes>>,
}

impl Grid {
    /// Row-major index of a site.
    pub fn site_index(&self, at: Coordinate) -> usize {
        at.y as usize * self.columns as usize + at.x as usize
    }

    /// Whether two sites are on different dies.
    pub fn crosses_die(&self, a: Coordinate, b: Coordinate) -> bool {
        a.x / self.die.0 != b.x / self.die.0 || a.y / self.die.1 != b.y / self.die.1
    }

    /// Address generators on the whole chip.
    pub fn ags(&self) -> u64 {
        self.agcus.iter().map(|agcu| agcu.ags).sum()
    }
}

/// Each data type that is multiplied as another, which the units have.
pub type Emulated = BTreeMap<Dtype, Dtype>;

/// Pattern compute unit.
#[derive(Debug, Clone)]
pub struct Pcu {
    /// Multiply-accumulate cells across, per data type.
    pub lanes: BTreeMap<Dtype, u64>,
    /// Cells along the pipeline.
    pub stages: u64,
    /// Accumulator sets: with two, the drain of a tile overlaps the next tile.
    pub accumulator_sets: u64,
    /// Elements the tail (transcendentals, format conversion) handles a cycle.
    pub tail_elements: u64,
    /// Vector input ports from the switch.
    pub vector_inputs: u64,
    /// Vector output ports to the switch.
    pub vector_outputs: u64,
    /// SIMD pipeline stages each function takes, by operator kind name (`gelu`, `softmax`, ...).
    pub simd_stages: BTreeMap<String, u64>,
}

/// Pattern memory unit.
#[derive(Debug, Clone)]
pub struct Pmu {
    /// Scratchpad size in bytes.
    pub capacity_bytes: u64,
    /// Banks; tensors occupy whole banks.
    pub banks: u64,
    /// Vector read ports, each with a network port.
    pub read_ports: u64,
    /// Vector write ports, each with a network port.
    pub write_ports: u64,
    /// Bytes a port moves a cycle.
    pub port_bytes: u64,
    /// Gathered vectors may overtake each other to avoid banks and columns that are busy (else they come in order).
    pub gathers_out_of_order: bool,
}

impl Pmu {
    /// Bytes of one bank.
    pub fn bank_bytes(&self) -> u64 {
        self.capacity_bytes / self.banks
    }
}

/// The vector network.
#[derive(Debug, Clone)]
pub struct Network {
    /// Bytes a link moves a cycle.
    pub flit_bytes: u64,
    /// Vector links a direction between neighbouring switches.
    pub links_per_direction: u64,
    /// Cycles a hop adds.
    pub hop_cycles: u64,
    /// Cycles a hop that crosses dies adds.
    pub die_hop_cycles: u64,
    /// Flits a FIFO holds at each switch input.
    pub fifo_depth_flits: u64,
    /// Longest packet in flits.
    pub max_packet_flits: u64,
}

/// One off-chip memory tier.
#[derive(Debug, Clone)]
pub struct Tier {
    /// Name, e.g. `ddr`, `hbm`.
    pub name: String,
    /// Independent channels.
    pub channels: u64,
    /// Best sustained streaming rate of all channels together, bytes a second.
    pub bandwidth_bytes_per_s: u64,
    /// Latency of an access in nanoseconds.
    pub latency_ns: f64,
    /// Bytes of one burst; requests are rounded up to it.
    pub burst_bytes: u64,
    /// Consecutive bytes on one channel before the next.
    pub interleave_bytes: u64,
    /// What a channel loses, in nanoseconds, when it turns from reading to writing or back.
    pub turnaround_ns: f64,
    /// Bytes of writes that a channel gathers before it turns.
    pub write_batch_bytes: u64,
    /// What a channel loses, in nanoseconds, before an access that does not follow its last one; with `banks`, nothing
    /// but what they take.
    pub non_sequential_ns: f64,
    /// Banks of a channel, if its part is known.
    pub banks: Option<Banks>,
    /// Capacity in bytes.
    pub capacity_bytes: u64,
    /// Energy of one bit moved.
    pub energy: TierEnergy,
}

/// Energy of one bit moved off chip, picojoule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TierEnergy {
    /// All of it.
    pub pj_per_bit: f64,
    /// Its parts, if the file tells them apart.
    pub items: Option<TierEnergyItems>,
}

/// Parts of the energy of one bit moved off chip, picojoule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TierEnergyItems {
    /// In the memory device, its own interface included.
    pub device: f64,
    /// In the chip's physical interface.
    pub phy: f64,
    /// In the chip's memory controller and on the way from it to the units.
    pub controller: f64,
}

impl TierEnergy {
    /// Joules of a number of bytes.
    pub fn joules(&self, bytes: f64) -> f64 {
        bytes * 8.0 * self.pj_per_bit * 1e-12
    }

    /// The same of each part; zeros where they are not told apart.
    pub fn joules_of_items(&self, bytes: f64) -> [f64; 3] {
        let of = |pj: f64| bytes * 8.0 * pj * 1e-12;
        self.items.map_or([0.0; 3], |items| [items.device, items.phy, items.controller].map(of))
    }
}

/// Who starts sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Orchestration {
    /// The host.
    Software,
    /// The AGCUs.
    Hardware,
}

/// Times of one launch, microseconds.
#[derive(Debug, Clone, Copy)]
pub struct LaunchTimes {
    /// Loading the section's program.
    pub program_load_us: f64,
    /// Loading its arguments.
    pub argument_load_us: f64,
    /// Starting it.
    pub execute_us: f64,
}

/// Launch model.
#[derive(Debug, Clone, Copy)]
pub struct Launch {
    /// Which of the two is used.
    pub orchestration: Orchestration,
    /// Host-started.
    pub software: LaunchTimes,
    /// AGCU-started.
    pub hardware: LaunchTimes,
    /// Program bytes a configured unit needs (reported, not charged as tensor traffic).
    pub program_bytes_per_unit: u64,
}

impl Launch {
    /// The times in force.
    pub fn times(&self) -> LaunchTimes {
        match self.orchestration {
            Orchestration::Software => self.software,
            Orchestration::Hardware => self.hardware,
        }
    }

    /// Makes the times in force add up to `total_us`, in the same proportions (all of it execution, if they were zero).
    pub(super) fn scale_to(&mut self, total_us: f64) {
        let times = match self.orchestration {
            Orchestration::Software => &mut self.software,
            Orchestration::Hardware => &mut self.hardware,
        };
        let sum = times.sum_us();
        *times = if sum > 0.0 {
            let factor = total_us / sum;
            LaunchTimes {
                program_load_us: times.program_load_us * factor,
                argument_load_us: times.argument_load_us * factor,
                execute_us: times.execute_us * factor,
            }
        } else {
            LaunchTimes { program_load_us: 0.0, argument_load_us: 0.0, execute_us: total_us }
        };
    }
}

impl LaunchTimes {
    /// All of a launch.
    pub fn sum_us(&self) -> f64 {
        self.program_load_us + self.argument_load_us + self.execute_us
    }
}

/// Energy constants.
#[derive(Debug, Clone)]
pub struct Energy {
    /// Picojoule of one multiply-accumulate, per data type.
    pub mac_pj: BTreeMap<Dtype, f64>,
    /// Picojoule of one byte read from or written to a PMU.
    pub sram_pj_per_byte: f64,
    /// Picojoule of one bit over one hop.
    pub network_pj_per_bit_hop: f64,
    /// Watts that flow whatever the chip does.
    pub static_w: f64,
    /// Part of the energy of a multiply-accumulate that one on an element that is not stored takes.
    pub zero_mac_share: f64,
}

/// What the parts of a chip take on the die: an estimate from the synthesis of another chip, scaled to this one's node.
#[derive(Debug, Clone, PartialEq)]
pub struct Area {
    /// One lane x stage of a PCU at the widest data type, with its share of registers and control, mm2.
    pub cell_mm2: f64,
    /// A PMU without its scratchpad, mm2.
    pub pmu_mm2: f64,
    /// A MiB of scratchpad, mm2.
    pub sram_mm2_per_mib: f64,
    /// Switches, a site: mm2 for each byte of a flit and link a direction.
    pub switch_mm2_per_link_byte: f64,
    /// An address generator with its share of the coalescing units and memory controllers, mm2.
    pub ag_mm2: f64,
    /// How many times denser logic is on this chip's node than where the figures come from.
    pub logic_shrink: f64,
    /// The same for scratchpads.
    pub sram_shrink: f64,
    /// Power of the package, watt.
    pub package_w: Option<f64>,
}

/// Estimated area of a chip's units, mm2. What is not a unit (pads, host interface, controllers' analogue parts) is
/// not in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AreaMm2 {
    /// PCUs.
    pub pcus: f64,
    /// PMUs, scratchpads included.
    pub pmus: f64,
    /// Switches and links.
    pub network: f64,
    /// Address generators.
    pub ags: f64,
}

impl AreaMm2 {
    /// All units.
    pub fn total(&self) -> f64 {
        self.pcus + self.pmus + self.network + self.ags
    }
}

/// A chip, checked and resolved.
#[derive(Debug, Clone)]
pub struct Chip {
    /// Name for people.
    pub name: String,
    /// Clock in hertz.
    pub clock_hz: u64,
    /// Units and coordinates.
    pub grid: Grid,
    /// Compute unit.
    pub pcu: Pcu,
    /// Memory unit.
    pub pmu: Pmu,
    /// Vector network.
    pub network: Network,
    /// Bytes one address generator moves a cycle.
    pub ag_bytes_per_cycle: u64,
    /// Bursts that one address generator may have under way; without it, any number.
    pub ag_outstanding: Option<u64>,
    /// Off-chip tiers, fastest first as the file lists them.
    pub memory: IndexVec<TierId, Tier>,
    /// Launch model.
    pub launch: Launch,
    /// Energy constants.
    pub energy: Energy,
    /// Area and package, if the file tells.
    pub area: Option<Area>,
    /// What the vendor's stack was measured to reach, if the file says.
    pub vendor: Option<Vendor>,
    /// Whether those limits act.
    pub quality: Quality,
    /// Data types that are multiplied as another.
    pub emulated: Emulated,
    /// Paths of the fields that the file calls assumed.
    pub assumed: Arc<[String]>,
    /// The text of the file, overrides applied; empty if it was not read from one.
    pub text: Arc<str>,
}

impl Chip {
    /// Cycles of a hop between neighbouring switches.
    #[inline]
    pub fn hop_cycles(&self, from: Coordinate, to: Coordinate) -> u64 {
        if self.grid.crosses_die(from, to) { self.network.die_hop_cycles } else { self.network.hop_cycles }
    }

    /// Estimated area of the units; `None` if the file has no `[area]`.
    pub fn area_mm2(&self) -> Option<AreaMm2> {
        let area = self.area.as_ref()?;
        // Packed narrow lanes share the cells of the widest type.
        let widest = self.pcu.lanes.iter().max_by_key(|(dtype, _)| dtype.bytes()).map_or(0, |(_, &lanes)| lanes);
        let cells = (self.pcus() * widest * self.pcu.stages) as f64;
        let mib = self.sram_bytes() as f64 / f64::from(1 << 20);
        let sites = f64::from(self.grid.columns) * f64::from(self.grid.rows);
        let link_bytes = (self.network.links_per_direction * self.network.flit_bytes) as f64;
        Some(AreaMm2 {
            pcus: cells * area.cell_mm2 / area.logic_shrink,
            pmus: self.pmus() as f64 * area.pmu_mm2 / area.logic_shrink
                + mib * area.sram_mm2_per_mib / area.sram_shrink,
            network: sites * link_bytes * area.switch_mm2_per_link_byte / area.logic_shrink,
            ags: self.grid.ags() as f64 * area.ag_mm2 / area.logic_shrink,
        })
    }

    /// Number of PCUs.
    pub fn pcus(&self) -> u64 {
        self.grid.pcus.len() as u64
    }

    /// Number of PMUs.
    pub fn pmus(&self) -> u64 {
        self.grid.pmus.len() as u64
    }

    /// On-chip scratchpad in bytes.
    pub fn sram_bytes(&self) -> u64 {
        self.pmus() * self.pmu.capacity_bytes
    }

    /// MACs one PCU does a cycle at its best; `None` if it lacks the data type.
    pub fn pcu_macs_per_cycle(&self, dtype: Dtype) -> Option<u64> {
        self.pcu.lanes.get(&dtype).map(|lanes| lanes * self.pcu.stages)
    }

    /// MACs the chip does a cycle at its best; `None` if it lacks the data type.
    pub fn macs_per_cycle(&self, dtype: Dtype) -> Option<u64> {
        self.pcu_macs_per_cycle(dtype).map(|macs| macs * self.pcus())
    }

    /// Peak FLOP/s for a data type (2 FLOP a MAC).
    pub fn peak_flops(&self, dtype: Dtype) -> Option<f64> {
        self.macs_per_cycle(dtype).map(|macs| 2.0 * macs as f64 * self.clock_hz as f64)
    }

    /// Cycles of one launch, rounded up.
    pub fn launch_cycles(&self) -> u64 {
        self.us_to_cycles(self.launch.times().sum_us())
    }

    /// Rate of a tier seen from the chip's clock.
    pub fn tier_rate(&self, tier: TierId) -> Rate {
        Rate::from_bandwidth(self.memory[tier].bandwidth_bytes_per_s, self.clock_hz)
    }

    /// Latency of a tier in cycles, rounded up.
    #[inline]
    pub fn tier_latency_cycles(&self, tier: TierId) -> u64 {
        self.us_to_cycles(self.memory[tier].latency_ns / 1e3)
    }

    /// Bytes that some address generators may have under way at a tier: asked for, and not yet come or written.
    pub fn window_bytes(&self, tier: TierId, ags: u64) -> Option<u64> {
        let accesses = self.ag_outstanding?.saturating_mul(ags);
        Some(accesses.saturating_mul(self.memory[tier].burst_bytes))
    }

    /// The most that address generators move at a tier: their window in the latency of a burst and the time that its
    /// channel takes for it (Little's law).
    pub fn window_rate(&self, tier: TierId, ags: u64) -> Option<Rate> {
        let bytes = self.window_bytes(tier, ags)?;
        let Tier { burst_bytes, channels, .. } = self.memory[tier];
        let Rate { bytes: per_cycles, cycles } = self.tier_rate(tier);
        // In thousandths of a cycle.
        let service = u128::from(burst_bytes * channels) * u128::from(cycles) * 1000 / u128::from(per_cycles);
        let milli_cycles = self.tier_latency_cycles(tier) * 1000 + service as u64;
        Some(Rate { bytes: bytes.saturating_mul(1000), cycles: milli_cycles })
    }

    /// What a channel of a tier loses beside its rate.
    pub fn tier_penalties(&self, tier: TierId) -> Penalties {
        let tier = &self.memory[tier];
        let cycles_per_ns = self.clock_hz as f64 / 1e9;
        let milli_cycles = |ns: f64| (ns * cycles_per_ns * 1e3).round() as u64;
        Penalties {
            turn_milli_cycles: milli_cycles(2.0 * tier.turnaround_ns),
            write_batch_bytes: tier.write_batch_bytes,
            jump_milli_cycles: milli_cycles(tier.non_sequential_ns),
            banks: tier.banks,
            cycles_per_ns,
            channel_bytes_per_ns: tier.bandwidth_bytes_per_s as f64 / 1e9 / tier.channels as f64,
        }
    }

    /// Microseconds to cycles, rounded up (to a thousandth of a cycle first, against binary fractions).
    fn us_to_cycles(&self, us: f64) -> u64 {
        let milli_cycles = (us * self.clock_hz as f64 / 1e3).round() as u64;
        milli_cycles.div_ceil(1000)
    }

    /// Seconds of a number of cycles.
    pub fn seconds(&self, cycles: u64) -> f64 {
        cycles as f64 / self.clock_hz as f64
    }
}
