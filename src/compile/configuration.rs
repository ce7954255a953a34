//! The compiled result: everything the simulator needs to know, and nothing it has to decide.

use std::borrow::Cow;
use std::ops::Range;

use crate::arch::{Chip, TierId};
use crate::id_type;
use crate::index::Id;
use crate::mode::Mode;
use crate::workload::{OperatorId, TensorId, Workload};

use super::buffers::{BufferRole, BufferSpec};
use super::estimate::Stream;
use super::fabric::Resource;
use super::mapping::{Mapping, PassWork};
use super::nest::{Cadence, Nest};
use super::section_graph::StageSpec;

id_type! {
    /// A PCU: its position in the grid's row-major list.
    PcuId
}
id_type! {
    /// A PMU: its position in the grid's row-major list.
    PmuId
}

/// A compiled graph.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// How the graph was cut.
    pub mode: Mode,
    /// Sections in the order they run.
    pub sections: Vec<Section>,
    /// Memory tier of each tensor.
    pub tiers: Vec<TierId>,
    /// What a user should know about the mapping.
    pub notes: Vec<String>,
}

/// One section, placed and routed.
#[derive(Debug, Clone)]
pub struct Section {
    /// Name.
    pub name: String,
    /// Operators, in topological order.
    pub operators: Vec<OperatorId>,
    /// Loop nest.
    pub nest: Nest,
    /// Stages, in topological order.
    pub stages: Vec<Stage>,
    /// Buffers in PMUs.
    pub buffers: Vec<Buffer>,
    /// Off-chip streams.
    pub streams: Vec<OffChip>,
    /// Network flows.
    pub flows: Vec<Flow>,
    /// PMUs with something in them.
    pub pmus: u64,
    /// Bytes of the occupied banks.
    pub sram_bytes: u64,
    /// Of those, bytes no slot uses.
    pub sram_bank_loss_bytes: u64,
    /// Cycles the compiler expected, launch included.
    pub estimated_cycles: u64,
    /// Streams of weights whose first slot is in its banks when the section begins: the one before has loaded it.
    pub loaded_before: Vec<usize>,
    /// What it loads for the section behind it while it runs.
    pub loads_ahead: Vec<LoadAhead>,
}

impl Section {
    /// Banks of each PMU that it takes.
    pub fn taken_banks(&self, chip: &Chip) -> Vec<u64> {
        let mut banks = vec![0; chip.grid.pmus.len()];
        for part in self.buffers.iter().flat_map(|buffer| &buffer.pieces).flat_map(|piece| &piece.parts) {
            banks[part.pmu.index()] += part.banks;
        }
        banks
    }

    /// Whether it runs behind another every time.
    pub fn follows(&self, before: &Self, workload: &Workload) -> bool {
        let place = |section: &Self| {
            let op = &workload.operators[section.operators[0]];
            (op.block, op.repeat, op.phase, op.every)
        };
        place(before) == place(self)
    }
}

/// Weights that a section loads for the one behind it, in time that memory has to spare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadAhead {
    /// The weight.
    pub tensor: TensorId,
    /// The tier it comes from.
    pub tier: TierId,
    /// Bytes of the first slot of its stream.
    pub payload_bytes: u64,
    /// Bytes moved, whole bursts.
    pub moved_bytes: u64,
    /// Bytes of the banks that take them.
    pub bank_bytes: u64,
    /// Flits injected into the network.
    pub flits: u64,
    /// The same times links.
    pub flit_hops: u64,
    /// Flits written to PMUs.
    pub written_flits: u64,
}

impl Section {
    /// Whether a buffer takes partial sums from one slice of K to the next.
    pub fn is_relay(&self, buffer: usize) -> bool {
        matches!(self.buffers[buffer].spec.role, BufferRole::Relay { .. })
    }

    /// The chip as this section finds it ([`Chip::in_section`]).
    pub fn chip<'c>(&self, chip: &'c Chip, workload: &Workload) -> Cow<'c, Chip> {
        let moved = self.streams.iter().map(|off_chip| workload.tensors[off_chip.stream.tensor].stored_bytes());
        chip.in_section(moved.max().unwrap_or(0))
    }
}

/// A stage on its units.
#[derive(Debug, Clone)]
pub struct Stage {
    /// What it computes.
    pub spec: StageSpec,
    /// How it lies on its units.
    pub mapping: Mapping,
    /// `Firing` if it runs once a chunk and token, `Token` if once a token.
    pub cadence: Cadence,
    /// Its K axis is cut: it accumulates over chunks, and emits in the last.
    pub k_cut: bool,
    /// Its output columns are cut.
    pub n_cut: bool,
    /// It is off the cut, and computes the same anew in every chunk: nothing keeps what it makes.
    pub again: bool,
    /// Work of one row pass, `[chunk][bundle]`; empty for SIMD stages. One chunk if the cut does not touch it.
    pub work: Vec<Vec<PassWork>>,
    /// PCUs, in the order of [`Stage::pcu`].
    pub pcus: Vec<PcuId>,
}

impl Stage {
    /// The PCU of a bundle at row slice `i` and column `q` within the bundle (SIMD: column slice times chain).
    pub fn pcu(&self, bundle: u64, i: u64, q: u64) -> PcuId {
        let (pm, wide) = match &self.mapping {
            Mapping::Gemm(m) => (m.pm, m.share),
            Mapping::Simd(m) => (m.pm, m.pn * m.chain),
        };
        self.pcus[((bundle * pm + i) * wide + q) as usize]
    }

    /// Columns of PCUs in a bundle.
    pub fn bundle_width(&self) -> u64 {
        match &self.mapping {
            Mapping::Gemm(m) => m.share,
            Mapping::Simd(m) => m.pn,
        }
    }
}

/// A buffer in its PMUs.
#[derive(Debug, Clone)]
pub struct Buffer {
    /// Purpose and sizes.
    pub spec: BufferSpec,
    /// One piece a copy and slice: piece `copy * slices + slice`.
    pub pieces: Vec<Piece>,
}

impl Buffer {
    /// The piece of a copy and slice.
    pub fn piece(&self, copy: u64, slice: u64) -> &Piece {
        &self.pieces[(copy * self.spec.slices + slice) as usize]
    }
}

/// A piece of a buffer: banks of one PMU or of several.
#[derive(Debug, Clone, Default)]
pub struct Piece {
    /// Its parts.
    pub parts: Vec<Part>,
}

impl Piece {
    /// Which of `extent` columns (of weights and partial sums: of elements in order) part `part` holds: as many as its
    /// share of the banks, the first part the first.
    pub fn span(&self, part: usize, extent: u64) -> Range<u64> {
        let banks = |parts: &[Part]| parts.iter().map(|p| u128::from(p.banks)).sum::<u128>();
        let all = banks(&self.parts).max(1);
        let upto = |n: usize| (u128::from(extent) * banks(&self.parts[..n]) / all) as u64;
        upto(part)..upto(part + 1)
    }
}

/// Banks of one PMU that hold part of a piece, and the ports they are reached through.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// The PMU.
    pub pmu: PmuId,
    /// Banks.
    pub banks: u64,
    /// Read port.
    pub read_port: u64,
    /// Write port.
    pub write_port: u64,
}

/// An off-chip stream with its address generators.
#[derive(Debug, Clone)]
pub struct OffChip {
    /// What moves.
    pub stream: Stream,
    /// The tier it moves to or from.
    pub tier: TierId,
    /// Address generators: (AGCU, generator in it).
    pub ags: Vec<(u32, u32)>,
}

/// Who starts a flow, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowKind {
    /// Off-chip stream into a buffer.
    Fill {
        /// Stream index.
        stream: usize,
        /// Buffer index.
        buffer: usize,
    },
    /// Home buffer into a stage's operand buffer.
    Copy {
        /// Home buffer index.
        home: usize,
    },
    /// PMU to PCUs of a bundle, for the whole of a firing.
    Feed {
        /// Stage index.
        stage: usize,
        /// Bundle.
        bundle: u64,
    },
    /// Results of a bundle, into a buffer.
    Emit {
        /// Stage index.
        stage: usize,
        /// Bundle.
        bundle: u64,
    },
    /// Partial sums of a bundle, read before (every chunk but the first).
    PartialRead {
        /// Stage index.
        stage: usize,
        /// Bundle.
        bundle: u64,
    },
    /// Partial sums of a bundle, written back (every chunk but the last).
    PartialWrite {
        /// Stage index.
        stage: usize,
        /// Bundle.
        bundle: u64,
    },
    /// Store buffer to an off-chip stream.
    Drain {
        /// Stream index.
        stream: usize,
    },
}

/// How many flits one event of a flow moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// Activations of a bundle: its passes times the work table's activation flits.
    Activations,
    /// Weights of a bundle's PCU column.
    Weights,
    /// One tile of partial sums a pass and tile.
    Partials,
    /// Part of the slot that moves, in bytes.
    SlotBytes,
    /// Part of the bundle's result, in bytes.
    ResultBytes,
}

/// A part of a buffer that a flow reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowEnd {
    /// Buffer index.
    pub buffer: usize,
    /// Slice; a flow that writes a slice writes all its copies.
    pub slice: u64,
    /// Part of the slice's pieces.
    pub part: usize,
}

/// A static route from one port to others.
#[derive(Debug, Clone)]
pub struct Flow {
    /// Who starts it.
    pub kind: FlowKind,
    /// What one event moves ...
    pub amount: Amount,
    /// ... of which this flow carries `share.0 / share.1`.
    pub share: (u64, u64),
    /// What of a buffer it reads; `None` from a PCU or an address generator.
    pub reads: Option<FlowEnd>,
    /// What of a buffer it fills; `None` into a PCU or an address generator.
    pub writes: Option<FlowEnd>,
    /// Ports and links of the tree: the source's port, a port for each sink, the links.
    pub route: Vec<Resource>,
    /// Links in the tree.
    pub links: u64,
    /// Cycles from the source to the farthest sink.
    pub hop_cycles: u64,
    /// PMU write ports at the sinks.
    pub pmu_sinks: u64,
    /// Whether the source is a PMU.
    pub from_pmu: bool,
}
