//! What a section keeps in PMUs: operands, weights, partial sums and results, with depths and sizes.

use crate::arch::Chip;
use crate::workload::TensorId;

use super::gather::GatherPorts;
use super::mapping::{Mapping, PassWork, Style, SystolicShape, k_slice};
use super::nest::{Cadence, LoopOrder, Nest};
use super::section_graph::SectionGraph;

/// What a buffer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BufferRole {
    /// Activations beside the PCUs of a stage that read them.
    Operand {
        /// Reading stage.
        stage: usize,
        /// Tensor.
        tensor: TensorId,
    },
    /// One copy of activations that are used again in every chunk; copied to a stage's operand buffer when used.
    Home {
        /// Stage it is copied to.
        stage: usize,
        /// Tensor.
        tensor: TensorId,
    },
    /// Weights of a stage.
    Weight {
        /// Reading stage.
        stage: usize,
        /// Tensor.
        tensor: TensorId,
    },
    /// fp32 partial sums of a stage between chunks.
    Partial {
        /// Accumulating stage.
        stage: usize,
    },
    /// fp32 partial sums on their way from a slice of a stage's K to the next.
    Relay {
        /// Stage.
        stage: usize,
        /// The slice that leaves them.
        slice: u64,
    },
    /// Results on their way off chip.
    Store {
        /// Tensor.
        tensor: TensorId,
        /// Emitting stage.
        stage: usize,
    },
}

/// A buffer before it has a place: `copies x slices` pieces of `depth x slot_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct BufferSpec {
    /// Purpose.
    pub role: BufferRole,
    /// How often a slot is filled.
    pub cadence: Cadence,
    /// Slots.
    pub depth: u64,
    /// Distinct parts of a slot.
    pub slices: u64,
    /// Copies of every part.
    pub copies: u64,
    /// Bytes of one part of one slot (the largest).
    pub slot_bytes: u64,
    /// PMUs a piece is spread over at least, for their ports.
    pub spread: u64,
}

impl BufferSpec {
    /// PMU banks of one piece.
    pub fn banks(&self, chip: &Chip) -> u64 {
        self.slot_bytes.saturating_mul(self.depth).div_ceil(chip.pmu.bank_bytes()).max(self.spread)
    }

    /// PMU banks of the buffer.
    pub fn total_banks(&self, chip: &Chip) -> u64 {
        self.banks(chip).saturating_mul(self.slices * self.copies)
    }
}

/// The choices that fix a section's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Residency {
    /// Activations used in every chunk stay on chip for a row block (else they are read again).
    pub inputs: bool,
    /// Chunked weights stay on chip for the whole section (else each row block reads them again).
    pub weights: bool,
    /// What is made on chip and used in every chunk is computed anew in each (else it stays for a row block).
    pub recompute: bool,
    /// Room for what memory moves in its latency.
    pub ahead: Ahead,
}

/// How many of the slots that hide the latency of off-chip memory there is room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ahead {
    /// All.
    Full,
    /// A quarter.
    Quarter,
    /// None: a faster memory must not make a mapping impossible.
    None,
}

impl Ahead {
    /// About how many slots take turns; `None` if as many as hide the latency.
    pub fn slots(self) -> Option<u64> {
        match self {
            Self::Full => None,
            Self::Quarter => Some(3),
            Self::None => Some(2),
        }
    }

    fn of(self, slots: u64) -> u64 {
        match self {
            Self::Full => slots,
            Self::Quarter => slots / 4,
            Self::None => 0,
        }
    }
}

/// How stages take part in a nest.
#[derive(Debug, Clone)]
pub struct StageRoles {
    /// `Firing` for stages along the cut axis, else `Token`.
    pub cadence: Vec<Cadence>,
    /// The stage's K is cut: it accumulates over chunks.
    pub k_cut: Vec<bool>,
    /// The stage's output columns are cut.
    pub n_cut: Vec<bool>,
    /// The stage comes after an accumulating one: it runs in the last chunk.
    late: Vec<bool>,
    /// The stage is off the cut and computes the same anew in every chunk.
    pub again: Vec<bool>,
}

impl StageRoles {
    /// Roles of every stage of `graph` in `nest`.
    pub fn new(graph: &SectionGraph<'_>, nest: &Nest) -> Self {
        let axis = nest.chunking.map(|c| c.axis);
        let along = |tensor| axis.is_some() && graph.column_axis(tensor) == axis;
        let mut roles = Self {
            cadence: vec![],
            k_cut: vec![],
            n_cut: vec![],
            late: vec![],
            again: vec![false; graph.stages.len()],
        };
        for (s, stage) in graph.stages.iter().enumerate() {
            let is_gemm = stage.weight.is_some();
            let both = stage.sums.is_some() && along(stage.activations[1]);
            let input_cut = along(stage.activations[0]) || both;
            roles.k_cut.push(is_gemm && input_cut);
            roles.n_cut.push(along(stage.output));
            let touches = input_cut || along(stage.output);
            roles.cadence.push(if touches { Cadence::Firing } else { Cadence::Token });
            let late = stage.activations.iter().any(|&tensor| {
                graph.producer(tensor).is_some_and(|p| roles.late.get(p).copied().unwrap_or(false) || roles.k_cut[p])
            });
            roles.late.push(late);
            debug_assert_eq!(roles.late.len(), s + 1);
        }
        roles
    }

    /// The same where what stages off the cut make for those along it is computed anew in every chunk; `None` if no stage
    /// makes such a thing, or chunks are not outermost.
    pub fn recomputing(&self, graph: &SectionGraph<'_>, nest: &Nest) -> Option<Self> {
        if nest.order == LoopOrder::TokenOuter || nest.chunks() == 1 {
            return None;
        }
        let mut roles = self.clone();
        // Stages come behind those they read from.
        for (s, spec) in graph.stages.iter().enumerate().rev() {
            let is_wanted_in_chunks = || {
                let mut readers =
                    graph.stages.iter().zip(&roles.cadence).filter(|(r, _)| r.activations.contains(&spec.output));
                readers.clone().next().is_some() && readers.all(|(_, &cadence)| cadence == Cadence::Firing)
            };
            let makes_once = self.cadence[s] == Cadence::Token && !self.late[s] && spec.sums.is_none();
            if makes_once && !graph.leaves_section(spec.output) && is_wanted_in_chunks() {
                roles.again[s] = true;
                roles.cadence[s] = Cadence::Firing;
            }
        }
        roles.again.contains(&true).then_some(roles)
    }

    /// Roles of every stage of `graph` in `nest`, as what stays on chip asks for.
    pub fn with(graph: &SectionGraph<'_>, nest: &Nest, residency: Residency) -> Self {
        let roles = Self::new(graph, nest);
        if residency.recompute { roles.recomputing(graph, nest).unwrap_or(roles) } else { roles }
    }

    /// Whether a stage comes after an accumulating one.
    pub fn is_late(&self, stage: usize) -> bool {
        self.late[stage]
    }

    /// Whether no stage along the cut axis comes after an accumulating one. Such a stage would want the first chunk of
    /// its other operands again when their last has passed (`y = f(x) + x` with `x` cut), and the pipeline would stop.
    pub fn is_one_pass(&self) -> bool {
        self.late.iter().zip(&self.cadence).all(|(late, cadence)| !late || *cadence != Cadence::Firing)
    }

    /// Slot cadence of a tensor that stages produce or consume.
    fn tensor_cadence(&self, graph: &SectionGraph<'_>, nest: &Nest, tensor: TensorId) -> Cadence {
        match nest.chunking {
            Some(c) if graph.column_axis(tensor) == Some(c.axis) => Cadence::Firing,
            _ if graph.producer(tensor).is_some_and(|producer| self.again[producer]) => Cadence::Firing,
            _ => Cadence::Token,
        }
    }

    /// Whether `stage` must find every token of a row block of `tensor` still on chip when it comes to them.
    fn holds_block(&self, graph: &SectionGraph<'_>, nest: &Nest, stage: usize, tensor: TensorId) -> bool {
        if nest.order == LoopOrder::TokenOuter || nest.chunks() == 1 {
            return false;
        }
        if self.tensor_cadence(graph, nest, tensor) == Cadence::Firing {
            return false;
        }
        if self.cadence[stage] == Cadence::Firing {
            return true;
        }
        match graph.producer(tensor) {
            Some(p) => self.late[stage] && !self.late[p] && !self.k_cut[p],
            None => {
                self.late[stage]
                    && graph.stages.iter().zip(&self.late).any(|(s, late)| !late && s.activations.contains(&tensor))
            }
        }
    }
}

/// The buffers of a section whose stages are mapped as `mappings`, with the sizes `extents` of its GEMM stages.
pub fn buffers(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    nest: &Nest,
    roles: &StageRoles,
    residency: Residency,
    mappings: &[Mapping],
    extents: &[StageExtents],
) -> Vec<BufferSpec> {
    let mut sizer = Sizer { mappings, chip, graph, nest, roles, residency, list: Vec::new() };
    for (stage, (mapping, extents)) in mappings.iter().zip(extents).enumerate() {
        sizer.operands(stage, mapping, extents);
        sizer.weights(stage, mapping, extents);
        sizer.stores(stage, mapping, extents);
    }
    sizer.list
}

struct Sizer<'a> {
    mappings: &'a [Mapping],
    chip: &'a Chip,
    graph: &'a SectionGraph<'a>,
    nest: &'a Nest,
    roles: &'a StageRoles,
    residency: Residency,
    list: Vec<BufferSpec>,
}

impl Sizer<'_> {
    /// Columns of a tensor in a (whole) chunk.
    fn width(&self, tensor: TensorId) -> u64 {
        match self.nest.chunking {
            Some(c) if self.graph.column_axis(tensor) == Some(c.axis) => c.width,
            _ => self.graph.workload.tensors[tensor].columns,
        }
    }

    /// Slots that hold a row block, with one more to begin the next block in.
    fn block_depth(&self) -> u64 {
        self.nest.block_tokens + u64::from(self.nest.blocks() > 1)
    }

    /// Rows of a token in one row slice of a GEMM stage.
    fn slice_rows(&self, pm: u64, extents: &StageExtents) -> u64 {
        let passes = self.nest.token_rows.div_ceil(extents.row_grain).div_ceil(pm);
        (passes * extents.row_grain).min(self.nest.token_rows)
    }

    /// Slices of K, beyond the first, that a token passes from where a tensor is made to where `stage` takes it, in it too:
    /// so much longer it is wanted.
    fn slices_behind(&self, tensor: TensorId, stage: usize) -> u64 {
        let from = self.graph.producer(tensor).map_or(0, |producer| producer + 1);
        self.mappings[from.min(stage)..=stage].iter().map(|mapping| mapping.pk() - 1).sum()
    }

    fn operands(&mut self, stage: usize, mapping: &Mapping, extents: &StageExtents) {
        let (graph, nest) = (self.graph, self.nest);
        let sums = graph.stages[stage].sums;
        for (operand, &tensor) in graph.stages[stage].activations.iter().enumerate() {
            let rows_bytes = |rows: u64| {
                graph.workload.tensors[tensor].elements_to_hold(rows, self.width(tensor)) * graph.dtype(tensor).bytes()
            };
            let (slices, copies, slot_bytes, spread) = match mapping {
                // Whole rows, in as many PMUs as it takes to read all parts of them at once.
                Mapping::Gemm(m) if sums.is_some() => {
                    let (streams, rate) = match operand {
                        0 => (m.pm * m.streams, extents.activation_rate),
                        _ => (m.pn, extents.weight_rate),
                    };
                    // Twice over: parts end where they do, not where those of PCUs do.
                    let ports = (2.0 * streams as f64 * rate).ceil() as u64;
                    (1, 1, rows_bytes(nest.token_rows), ports.div_ceil(self.chip.pmu.read_ports).max(1))
                }
                // A stream of activations brings the columns of its heads only.
                Mapping::Gemm(m) => {
                    // A PMU for each vector that is gathered in a cycle.
                    let spread = if m.style == Style::Gather { GatherPorts::new(self.chip).vectors } else { 1 };
                    let part = match graph.form(stage) {
                        Some(form) if graph.workload.tensors[tensor].window().is_none() => {
                            let heads = form.heads_of_stream(m.streams, 0);
                            self.slice_rows(m.pm, extents)
                                * (heads.end - heads.start)
                                * form.k
                                * graph.dtype(tensor).bytes()
                        }
                        // Of pixels, the channels of its groups.
                        Some(form) => {
                            let groups = form.heads_of_stream(m.streams, 0);
                            let whole = rows_bytes(self.slice_rows(m.pm, extents));
                            (u128::from(whole) * u128::from(groups.end - groups.start)).div_ceil(u128::from(form.heads))
                                as u64
                        }
                        None if m.pk > 1 => {
                            let (k, grain) = (0..self.width(tensor), graph.k_grain(stage));
                            let columns = (0..m.pk).map(|slice| k_slice(&k, slice, m.pk, grain));
                            let most = columns.map(|k| k.end - k.start).max().unwrap_or(0);
                            self.slice_rows(m.pm, extents) * most * graph.dtype(tensor).bytes()
                        }
                        None => rows_bytes(self.slice_rows(m.pm, extents)).div_ceil(m.streams),
                    };
                    (m.pm * m.parts(), m.groups(), part, spread)
                }
                Mapping::Simd(m) => {
                    (m.pm, 1, rows_bytes(nest.token_rows.div_ceil(m.pm)), m.pn.div_ceil(self.chip.pmu.read_ports))
                }
            };
            let external = graph.producer(tensor).is_none();
            let mut depth =
                (graph.distance(graph.producer(tensor), stage) + 1).max(2) + self.slices_behind(tensor, stage);
            if external {
                depth += self.residency.ahead.of(slots_in_flight(self.chip, slot_bytes * slices));
            }
            let mut cadence = self.roles.tensor_cadence(graph, nest, tensor);
            if self.roles.holds_block(graph, nest, stage, tensor) {
                if external && !self.residency.inputs && self.roles.cadence[stage] == Cadence::Firing {
                    cadence = Cadence::Firing;
                } else if copies > 1 {
                    let role = BufferRole::Home { stage, tensor };
                    let depth = self.block_depth();
                    self.list.push(BufferSpec { role, cadence, depth, slices, copies: 1, slot_bytes, spread: 1 });
                    cadence = Cadence::Firing;
                } else {
                    depth = self.block_depth();
                }
            }
            let role = BufferRole::Operand { stage, tensor };
            self.list.push(BufferSpec { role, cadence, depth, slices, copies, slot_bytes, spread });
        }
    }

    fn weights(&mut self, stage: usize, mapping: &Mapping, extents: &StageExtents) {
        if let (Some(sums), Mapping::Gemm(m)) = (self.graph.stages[stage].sums, mapping) {
            let along_cut = self.roles.cadence[stage] == Cadence::Firing;
            self.list.push(BufferSpec {
                role: BufferRole::Partial { stage },
                cadence: sums.cadence(along_cut),
                depth: sums.depth(self.nest, along_cut),
                slices: m.pm * m.pn,
                copies: 1,
                slot_bytes: extents.columns_per_pcu * 4,
                spread: 1,
            });
            return;
        }
        let (Some(tensor), Mapping::Gemm(m)) = (self.graph.stages[stage].weight, mapping) else { return };
        let nest = self.nest;
        let cut = self.roles.k_cut[stage] || self.roles.n_cut[stage];
        let resident = self.residency.weights || nest.order == LoopOrder::TokenOuter;
        let own = self.graph.form(stage).is_some_and(|form| form.instances > 1);
        let (cadence, depth) = match (cut, resident) {
            _ if own => {
                let slot = extents.weight_slot_bytes.saturating_mul(m.pn * m.pk);
                (
                    Cadence::BlockChunk,
                    (2 + self.residency.ahead.of(slots_in_flight(self.chip, slot))).min(nest.blocks()),
                )
            }
            (true, false) => (Cadence::BlockChunk, 2.min(nest.count(Cadence::BlockChunk))),
            (true, true) => (Cadence::Chunk, nest.chunks()),
            (false, _) => (Cadence::Once, 1),
        };
        let part = BufferSpec {
            role: BufferRole::Weight { stage, tensor },
            cadence,
            depth,
            slices: m.pn * m.pk,
            copies: 1,
            slot_bytes: extents.weight_slot_bytes,
            spread: 1,
        };
        self.list.push(part);
        for slice in 0..m.pk - 1 {
            self.list.push(BufferSpec {
                role: BufferRole::Relay { stage, slice },
                cadence: self.roles.cadence[stage],
                depth: 2,
                slices: m.pm * m.pn,
                slot_bytes: self.slice_rows(m.pm, extents) * extents.columns_per_pcu * 4,
                ..part
            });
        }
        if self.roles.k_cut[stage] && nest.chunks() > 1 {
            let depth = if nest.order == LoopOrder::ChunkOuter { self.block_depth() } else { 2 };
            self.list.push(BufferSpec {
                role: BufferRole::Partial { stage },
                cadence: Cadence::Token,
                depth,
                slices: m.pm * m.pn,
                slot_bytes: self.slice_rows(m.pm, extents) * extents.columns_per_pcu * 4,
                ..part
            });
        }
    }

    fn stores(&mut self, stage: usize, mapping: &Mapping, extents: &StageExtents) {
        let tensor = self.graph.stages[stage].output;
        if !self.graph.leaves_section(tensor) {
            return;
        }
        if let (Some(sums), Mapping::Gemm(m)) = (self.graph.stages[stage].sums, mapping) {
            // Every PCU's part beside its sums.
            let cadence = sums.cadence(self.roles.cadence[stage] == Cadence::Firing);
            let most = if self.residency.ahead == Ahead::Full { 2 } else { 1 };
            self.list.push(BufferSpec {
                role: BufferRole::Store { tensor, stage },
                cadence,
                depth: self.nest.count(cadence).min(most),
                slices: m.pm * m.pn,
                copies: 1,
                slot_bytes: extents.columns_per_pcu * self.graph.dtype(tensor).bytes(),
                spread: 1,
            });
            return;
        }
        let slices = mapping.pm();
        let row_bytes = self.width(tensor) * self.graph.dtype(tensor).bytes();
        let rows = match mapping {
            Mapping::Gemm(_) => self.slice_rows(slices, extents),
            Mapping::Simd(_) => self.nest.token_rows.div_ceil(slices),
        };
        let slot_bytes = rows * row_bytes;
        self.list.push(BufferSpec {
            role: BufferRole::Store { tensor, stage },
            cadence: self.roles.tensor_cadence(self.graph, self.nest, tensor),
            depth: 2 + self.residency.ahead.of(slots_in_flight(self.chip, slot_bytes * slices)),
            slices,
            copies: 1,
            slot_bytes,
            spread: match mapping {
                Mapping::Gemm(_) => 1,
                Mapping::Simd(m) => m.pn.div_ceil(self.chip.pmu.write_ports),
            },
        });
    }
}

/// Slots more that hide the latency of off-chip memory: what its fastest tier moves in that time.
fn slots_in_flight(chip: &Chip, slot_bytes: u64) -> u64 {
    const MOST: u64 = 64;
    let in_flight = |tier| chip.tier_latency_cycles(tier) as f64 * chip.tier_rate(tier).bytes_per_cycle();
    let bytes = chip.memory.ids().map(in_flight).fold(0.0, f64::max);
    ((bytes / slot_bytes.max(1) as f64).ceil() as u64).min(MOST)
}

/// Sizes of a GEMM stage's parts that its buffers follow (all zero but `row_grain` for SIMD stages).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StageExtents {
    /// Token rows of one output tile.
    pub row_grain: u64,
    /// Most weight bytes (values and metadata) that one column of PCUs holds of one chunk.
    pub weight_slot_bytes: u64,
    /// Most output columns of one PCU; of a stage that adds up over rows, most elements of its result.
    pub columns_per_pcu: u64,
    /// Flits a cycle of one stream of activations.
    pub activation_rate: f64,
    /// Flits a cycle of one stream of weights.
    pub weight_rate: f64,
    /// Flits a cycle of the partial sums that one PCU of a slice of K leaves to the next.
    pub relay_rate: f64,
    /// Cycles by which a slice of K runs behind the slice before: a tile, and what its sums take to come out.
    pub relay_cycles: u64,
}

impl StageExtents {
    /// Extents of a GEMM stage from its work table (`[chunk][bundle]`).
    pub fn of_gemm(
        graph: &SectionGraph<'_>,
        stage: usize,
        shape: &SystolicShape,
        share: u64,
        work: &[Vec<PassWork>],
    ) -> Self {
        let most = |f: &dyn Fn(&PassWork) -> u64| work.iter().flatten().map(f).max().unwrap_or(0);
        let columns = |w: &PassWork| w.columns.div_ceil(share);
        // Columns of a bundle are dealt evenly: some of its PCUs have one more than others.
        let stored = most(&|w| {
            let all = u128::from(w.stored) * u128::from(columns(w));
            all.div_ceil(u128::from(w.columns.max(1))) as u64
        });
        let weight_slot_bytes = weight_slot_bytes(graph, stage, stored);
        let (activation_rate, weight_rate) = shape.stream_rates();
        let tile_cycles = most(&|w| w.cycles.checked_div(w.tiles).unwrap_or(0));
        Self {
            row_grain: shape.row_grain,
            weight_slot_bytes,
            columns_per_pcu: most(&columns),
            activation_rate,
            weight_rate,
            relay_rate: shape.partial_flits as f64 / tile_cycles.max(1) as f64,
            relay_cycles: tile_cycles + shape.skew_cycles + shape.partial_flits,
        }
    }
}

/// Bytes of `stored` values of a stage's weight and of their share of the metadata.
pub fn weight_slot_bytes(graph: &SectionGraph<'_>, stage: usize, stored: u64) -> u64 {
    graph.stages[stage].weight.map_or(0, |w| {
        let tensor = &graph.workload.tensors[w];
        let values = stored * tensor.dtype.bytes();
        let all = (tensor.stored_elements() * tensor.dtype.bytes()).max(1);
        let metadata = tensor.stored_bytes() - tensor.stored_elements() * tensor.dtype.bytes();
        values + (u128::from(metadata) * u128::from(values)).div_ceil(u128::from(all)) as u64
    })
}
