//! What a simulation reports: plain data, no formatting.

use std::sync::Arc;

use indexmap::IndexMap;

use rdusim_base::mode::Mode;
use rdusim_cost::proof::gap;
use rdusim_graph::workload::Phase;

/// How closely time is modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fidelity {
    /// Closed form of the configuration: a lower bound.
    Bound,
    /// Discrete events on row tiles and units.
    Event,
    /// Every unit, link and FIFO, cycle by cycle.
    Cycle,
    /// Of a GPU kernel by kernel, of a chip of tiles superstep by superstep, in closed form.
    Kernel,
}

impl Fidelity {
    /// The name used in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::Event => "event",
            Self::Cycle => "cycle",
            Self::Kernel => "kernel",
        }
    }
}

/// The resource that a section's time follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoundBy {
    /// The busiest stage, its units evenly loaded.
    Compute,
    /// The busiest unit of a stage whose other units wait for it.
    Imbalance,
    /// A memory tier's bandwidth, by name.
    Memory(String),
    /// Address generators.
    Ag,
    /// A network link.
    Link,
    /// A PMU port.
    PmuPort,
    /// Starting the section.
    Launch,
    /// Filling and draining the pipeline.
    Fill,
}

impl std::fmt::Display for BoundBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Compute => f.write_str("compute"),
            Self::Imbalance => f.write_str("imbalance"),
            Self::Memory(tier) => write!(f, "memory:{tier}"),
            Self::Ag => f.write_str("ag"),
            Self::Link => f.write_str("link"),
            Self::PmuPort => f.write_str("pmu_port"),
            Self::Launch => f.write_str("launch"),
            Self::Fill => f.write_str("fill"),
        }
    }
}

/// Off-chip bytes of one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TensorTraffic {
    /// Read from off chip.
    pub off_chip_read_bytes: u64,
    /// Written off chip.
    pub off_chip_write_bytes: u64,
}

/// Bytes moved, by place. Off-chip counts are payload and sparse metadata only.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Read from off-chip memory.
    pub off_chip_read_bytes: u64,
    /// Written to off-chip memory.
    pub off_chip_write_bytes: u64,
    /// Injected into the vector network.
    pub network_bytes: u64,
    /// Bytes times hops over the vector network.
    pub network_byte_hops: u64,
    /// Read from PMUs.
    pub sram_read_bytes: u64,
    /// Written to PMUs.
    pub sram_write_bytes: u64,
    /// Off-chip bytes moved beyond the payload (burst padding).
    pub waste_bytes: u64,
    /// Program bytes loaded at launches.
    pub program_bytes: u64,
    /// Off-chip bytes by tensor name, in graph order.
    pub by_tensor: IndexMap<String, TensorTraffic>,
}

impl Traffic {
    /// Off-chip reads and writes together.
    pub fn off_chip_bytes(&self) -> u64 {
        self.off_chip_read_bytes + self.off_chip_write_bytes
    }

    /// The same so many times over.
    #[must_use]
    pub fn times(mut self, repeat: u64) -> Self {
        for count in [
            &mut self.off_chip_read_bytes,
            &mut self.off_chip_write_bytes,
            &mut self.network_bytes,
            &mut self.network_byte_hops,
            &mut self.sram_read_bytes,
            &mut self.sram_write_bytes,
            &mut self.waste_bytes,
            &mut self.program_bytes,
        ] {
            *count = count.saturating_mul(repeat);
        }
        for bytes in self.by_tensor.values_mut() {
            bytes.off_chip_read_bytes = bytes.off_chip_read_bytes.saturating_mul(repeat);
            bytes.off_chip_write_bytes = bytes.off_chip_write_bytes.saturating_mul(repeat);
        }
        self
    }

    /// The same so many times over, but for the program, which is loaded `launches` times.
    #[must_use]
    pub fn looped(self, repeat: u64, launches: u64) -> Self {
        let program_bytes = self.program_bytes.saturating_mul(launches);
        Self { program_bytes, ..self.times(repeat) }
    }

    /// The part of one of `every` steps, rounded up.
    #[must_use]
    pub fn shared_by(mut self, every: u64) -> Self {
        for count in [
            &mut self.network_bytes,
            &mut self.network_byte_hops,
            &mut self.sram_read_bytes,
            &mut self.sram_write_bytes,
            &mut self.waste_bytes,
            &mut self.program_bytes,
        ] {
            *count = count.div_ceil(every);
        }
        (self.off_chip_read_bytes, self.off_chip_write_bytes) = (0, 0);
        // Tensors add up to the whole.
        for bytes in self.by_tensor.values_mut() {
            bytes.off_chip_read_bytes = bytes.off_chip_read_bytes.div_ceil(every);
            bytes.off_chip_write_bytes = bytes.off_chip_write_bytes.div_ceil(every);
            self.off_chip_read_bytes += bytes.off_chip_read_bytes;
            self.off_chip_write_bytes += bytes.off_chip_write_bytes;
        }
        self
    }

    /// Adds another count, tensor by tensor.
    pub fn add(&mut self, other: &Self) {
        self.off_chip_read_bytes += other.off_chip_read_bytes;
        self.off_chip_write_bytes += other.off_chip_write_bytes;
        self.network_bytes += other.network_bytes;
        self.network_byte_hops += other.network_byte_hops;
        self.sram_read_bytes += other.sram_read_bytes;
        self.sram_write_bytes += other.sram_write_bytes;
        self.waste_bytes += other.waste_bytes;
        self.program_bytes += other.program_bytes;
        for (name, bytes) in &other.by_tensor {
            let mine = self.by_tensor.entry(name.clone()).or_default();
            mine.off_chip_read_bytes += bytes.off_chip_read_bytes;
            mine.off_chip_write_bytes += bytes.off_chip_write_bytes;
        }
    }
}

/// Energy in joules, by place.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EnergyJ {
    /// Multiply-accumulates and SIMD work.
    pub compute: f64,
    /// Part of it: multiply-accumulates on elements that are not stored.
    pub zeros: f64,
    /// PMU reads and writes.
    pub sram: f64,
    /// Vector network.
    pub network: f64,
    /// Off-chip memory.
    pub off_chip: f64,
    /// Parts of it: memory devices, PHYs, controllers; zeros where the chip file does not tell them apart.
    pub off_chip_items: [f64; 3],
    /// Static power over the run's time.
    pub static_: f64,
}

impl EnergyJ {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.compute + self.sram + self.network + self.off_chip + self.static_
    }
}

/// How the PCUs of one lockstep group, which go in lockstep, spent a section's drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupOutcome {
    /// Cycles they worked.
    pub busy_cycles: u64,
    /// Cycles they waited for inputs, the first ones included.
    pub starved_cycles: u64,
    /// Cycles they waited for room in buffers, or for their results to leave.
    pub stalled_cycles: u64,
    /// Cycles after their last firing.
    pub idle_cycles: u64,
}

/// Load of one link or port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkLoad {
    /// Its number in the chip's fabric.
    pub resource: u32,
    /// Flits over it.
    pub flits: u64,
}

/// What one stage did.
#[derive(Debug, Clone, PartialEq)]
pub struct StageOutcome {
    /// Operators it ran (one, or a GEMM with the functions in its tail).
    pub operators: Vec<String>,
    /// PCUs it was given.
    pub pcus: u64,
    /// Cycles its busiest unit worked.
    pub busiest_cycles: u64,
    /// Mean cycles its units worked.
    pub mean_cycles: f64,
    /// Its lockstep groups, in order; empty at the `bound` fidelity, where nothing waits.
    pub groups: Vec<GroupOutcome>,
    /// One line on how it was mapped.
    pub mapping: String,
}

/// Cycles for which the busiest resource of each kind was busy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Busy {
    /// Memory tiers by name, in the chip's order.
    pub tiers: Vec<(String, u64)>,
    /// Address generators.
    pub ag: u64,
    /// Links between switches.
    pub link: u64,
    /// Ports of PCUs.
    pub pcu_port: u64,
    /// Ports of PMUs.
    pub pmu_port: u64,
}

/// What on-chip memory is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HeldBy {
    /// Weights, resident or streamed.
    Weights,
    /// Activations: stage buffers, and tensors that stay.
    Activations,
    /// Partial sums, and what steps over rows keep.
    Sums,
    /// Results on their way off chip.
    Results,
    /// Weights of the next section.
    Prefetched,
    /// Memory of tiles, whatever it holds.
    Tiles,
}

impl HeldBy {
    /// Every use.
    pub const ALL: [Self; 6] =
        [Self::Weights, Self::Activations, Self::Sums, Self::Results, Self::Prefetched, Self::Tiles];

    /// The name used in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Activations => "activations",
            Self::Sums => "sums",
            Self::Results => "results",
            Self::Prefetched => "prefetched",
            Self::Tiles => "tiles",
        }
    }
}

/// What one section did.
#[derive(Debug, Clone, PartialEq)]
pub struct SectionOutcome {
    /// Name.
    pub name: String,
    /// Operators, in order.
    pub operators: Vec<String>,
    /// Times it runs: everything below counts all of them.
    pub repeat: u64,
    /// Times it is launched: once for each run, or once for all if it loops over the repetitions of its block.
    pub launches: u64,
    /// Training steps that share one run: everything below is the part of one step.
    pub every: u64,
    /// Part of a training step.
    pub phase: Phase,
    /// Cycles, launch included.
    pub cycles: u64,
    /// Cycles of its launch.
    pub launch_cycles: u64,
    /// What bounds it.
    pub bound_by: BoundBy,
    /// PCUs configured.
    pub pcus: u64,
    /// PMUs configured.
    pub pmus: u64,
    /// PMU bytes held at most, whole banks.
    pub sram_peak_bytes: u64,
    /// Of those, bytes lost because tensors occupy whole banks.
    pub sram_bank_loss_bytes: u64,
    /// What they hold; adds up to `sram_peak_bytes`.
    pub held: Vec<(HeldBy, u64)>,
    /// Off-chip bytes of each tier, by name, what is moved beyond the payload included.
    pub moved: Vec<(String, u64)>,
    /// Traffic.
    pub traffic: Traffic,
    /// Energy.
    pub energy: EnergyJ,
    /// Every link and port that moved anything, by number; isomorphic sections share them.
    pub links: Arc<[LinkLoad]>,
    /// How busy memory, network and ports were.
    pub busy: Busy,
    /// Stages, in order.
    pub stages: Vec<StageOutcome>,
}

/// Why a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// Every row tile was consumed.
    Drained,
    /// No stage could go on; one line per blocked stage: what it waits for, and the buffer's fill.
    Deadlock(Vec<String>),
    /// The run was longer than the engine goes; what was reached and what to do.
    Limit(String),
}

/// One run: a mode at a fidelity.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Mode.
    pub mode: Mode,
    /// Fidelity.
    pub fidelity: Fidelity,
    /// Why it ended.
    pub stop: StopReason,
    /// Cycles from the first launch to the last byte drained; the sum of the sections' cycles.
    pub cycles: u64,
    /// Lower bound for this graph, mode and chip, whatever the mapping.
    pub bound_cycles: u64,
    /// Cycles that no mapping of the mode takes less than, as a certificate has them; `None` where no such bound is known: on chips
    /// that are no RDUs, and at fidelities other than `event`.
    pub least_cycles: Option<u64>,
    /// Sections in order.
    pub sections: Vec<SectionOutcome>,
    /// What a user should know about the mapping, one sentence each (for example why a tensor is read twice).
    pub notes: Vec<String>,
}

impl SectionOutcome {
    /// Cycles if the section's launch, its off-chip traffic and its computing came one after the other; its stages still
    /// run as a pipeline. What a mapping overlaps makes no run longer than this, so it is never below `cycles`.
    pub fn serial_cycles(&self) -> u64 {
        let moving: u64 = self.busy.tiers.iter().map(|(_, cycles)| cycles).sum();
        let computing = self.stages.iter().map(|stage| stage.busiest_cycles).max().unwrap_or(0);
        (self.launch_cycles + moving + computing).max(self.cycles)
    }
}

impl Outcome {
    /// How far the mapping may be from the best: `cycles / least_cycles - 1`; `None` where there is no bound, or no whole run.
    pub fn gap(&self) -> Option<f64> {
        self.least_cycles.filter(|_| self.stop == StopReason::Drained).map(|least| gap(self.cycles, least))
    }

    /// Cycles if in every section loads, computing and writes came one after the other.
    pub fn serial_cycles(&self) -> u64 {
        self.sections.iter().map(SectionOutcome::serial_cycles).sum()
    }

    /// Traffic of all sections.
    pub fn traffic(&self) -> Traffic {
        let mut total = Traffic::default();
        for section in &self.sections {
            total.add(&section.traffic);
        }
        total
    }

    /// Energy of all sections.
    pub fn energy(&self) -> EnergyJ {
        let mut total = EnergyJ::default();
        for section in &self.sections {
            total.compute += section.energy.compute;
            total.zeros += section.energy.zeros;
            total.sram += section.energy.sram;
            total.network += section.energy.network;
            total.off_chip += section.energy.off_chip;
            for (sum, part) in total.off_chip_items.iter_mut().zip(section.energy.off_chip_items) {
                *sum += part;
            }
            total.static_ += section.energy.static_;
        }
        total
    }
}
