//! What a section keeps in PMUs: operands, weights, partial sums and results, with depths and sizes.

use crate::arch::Chip;
use crate::workload::TensorId;

use super::mapping::{Mapping, PassWork, SystolicShape};
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
#[derive(Debug, Clone)]
pub struct Residency {
    /// Activations used in every chunk stay on chip for a row block (else they are read again).
    pub inputs: bool,
    /// Chunked weights stay on chip for the whole section (else each row block reads them again).
    pub weights: bool,
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
}

impl StageRoles {
    /// Roles of every stage of `graph` in `nest`.
    pub fn new(graph: &SectionGraph<'_>, nest: &Nest) -> Self {
        let axis = nest.chunking.map(|c| c.axis);
        let along = |tensor| axis.is_some() && graph.column_axis(tensor) == axis;
        let mut roles = Self { cadence: vec![], k_cut: vec![], n_cut: vec![], late: vec![] };
        for (s, stage) in graph.stages.iter().enumerate() {
            let is_gemm = stage.weight.is_some();
            let input_cut = along(stage.activations[0]);
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

    /// Whether a stage comes after an accumulating one.
    pub fn is_late(&self, stage: usize) -> bool {
        self.late[stage]
    }

    /// Slot cadence of a tensor that stages produce or consume.
    pub fn tensor_cadence(graph: &SectionGraph<'_>, nest: &Nest, tensor: TensorId) -> Cadence {
        match nest.chunking {
            Some(c) if graph.column_axis(tensor) == Some(c.axis) => Cadence::Firing,
            _ => Cadence::Token,
        }
    }

    /// Whether `stage` must find every token of a row block of `tensor` still on chip when it comes to them.
    fn holds_block(&self, graph: &SectionGraph<'_>, nest: &Nest, stage: usize, tensor: TensorId) -> bool {
        if nest.order == LoopOrder::TokenOuter || nest.chunks() == 1 {
            return false;
        }
        if Self::tensor_cadence(graph, nest, tensor) == Cadence::Firing {
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

/// The buffers of a section whose stages are mapped as `mappings`, with the work tables `work` of its GEMM stages.
pub fn buffers(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    nest: &Nest,
    roles: &StageRoles,
    residency: &Residency,
    mappings: &[Mapping],
    extents: &[StageExtents],
) -> Vec<BufferSpec> {
    let mut list = Vec::new();
    let width = |tensor: TensorId| -> u64 {
        match nest.chunking {
            Some(c) if graph.column_axis(tensor) == Some(c.axis) => c.width,
            _ => graph.workload.tensors[tensor].columns,
        }
    };
    let slack = u64::from(nest.blocks() > 1);
    for (s, stage) in graph.stages.iter().enumerate() {
        let mapping = &mappings[s];
        for &tensor in &stage.activations {
            let element = graph.dtype(tensor).bytes();
            let (slices, copies, slot_bytes, spread) = match mapping {
                Mapping::Gemm(m) => {
                    let rows = extents[s].row_grain * nest.token_rows.div_ceil(extents[s].row_grain).div_ceil(m.pm);
                    (m.pm, mapping.bundles(), rows.min(nest.token_rows) * width(tensor) * element, 1)
                }
                Mapping::Simd(m) => {
                    let bytes = nest.token_rows.div_ceil(m.pm) * width(tensor) * element;
                    (m.pm, 1, bytes, m.pn.div_ceil(chip.pmu.read_ports))
                }
            };
            let mut near = (graph.distance(graph.producer(tensor), s) + 1).max(2);
            if graph.producer(tensor).is_none() {
                near += slots_in_flight(chip, slot_bytes * slices);
            }
            let mut cadence = StageRoles::tensor_cadence(graph, nest, tensor);
            let mut depth = near;
            if roles.holds_block(graph, nest, s, tensor) {
                let external = graph.producer(tensor).is_none();
                if external && !residency.inputs && roles.cadence[s] == Cadence::Firing {
                    cadence = Cadence::Firing;
                } else if copies > 1 {
                    list.push(BufferSpec {
                        role: BufferRole::Home { stage: s, tensor },
                        cadence,
                        depth: nest.block_tokens + slack,
                        slices,
                        copies: 1,
                        slot_bytes,
                        spread: 1,
                    });
                    cadence = Cadence::Firing;
                } else {
                    depth = nest.block_tokens + slack;
                }
            }
            list.push(BufferSpec {
                role: BufferRole::Operand { stage: s, tensor },
                cadence,
                depth,
                slices,
                copies,
                slot_bytes,
                spread,
            });
        }
        if let (Some(weight), Mapping::Gemm(m)) = (stage.weight, mapping) {
            let cut = roles.k_cut[s] || roles.n_cut[s];
            let resident = residency.weights || nest.order == LoopOrder::TokenOuter;
            let (cadence, depth) = match (cut, resident) {
                (true, false) => (Cadence::BlockChunk, 2.min(nest.count(Cadence::BlockChunk))),
                (true, true) => (Cadence::Chunk, nest.chunks()),
                (false, _) => (Cadence::Once, 1),
            };
            list.push(BufferSpec {
                role: BufferRole::Weight { stage: s, tensor: weight },
                cadence,
                depth,
                slices: m.pn,
                copies: 1,
                slot_bytes: extents[s].weight_slot_bytes,
                spread: 1,
            });
            if roles.k_cut[s] && nest.chunks() > 1 {
                let rows = extents[s].row_grain * nest.token_rows.div_ceil(extents[s].row_grain).div_ceil(m.pm);
                list.push(BufferSpec {
                    role: BufferRole::Partial { stage: s },
                    cadence: Cadence::Token,
                    depth: if nest.order == LoopOrder::ChunkOuter { nest.block_tokens + slack } else { 2 },
                    slices: m.pm * m.pn,
                    copies: 1,
                    slot_bytes: rows.min(nest.token_rows) * extents[s].columns_per_pcu * 4,
                    spread: 1,
                });
            }
        }
        if graph.leaves_section(stage.output) {
            let slices = mapping.pm();
            let slot_bytes = nest.token_rows.div_ceil(slices) * width(stage.output) * graph.dtype(stage.output).bytes();
            list.push(BufferSpec {
                role: BufferRole::Store { tensor: stage.output, stage: s },
                cadence: StageRoles::tensor_cadence(graph, nest, stage.output),
                depth: 2 + slots_in_flight(chip, slot_bytes * slices),
                slices,
                copies: 1,
                slot_bytes,
                spread: match mapping {
                    Mapping::Gemm(_) => 1,
                    Mapping::Simd(m) => m.pn.div_ceil(chip.pmu.write_ports),
                },
            });
        }
    }
    list
}

/// Slots more that hide the latency of off-chip memory: what its fastest tier moves in that time.
fn slots_in_flight(chip: &Chip, slot_bytes: u64) -> u64 {
    const MOST: u64 = 64;
    let in_flight = |tier| chip.tier_latency_cycles(tier) as f64 * chip.tier_rate(tier).bytes_per_cycle();
    let bytes = chip.memory.ids().map(in_flight).fold(0.0, f64::max);
    ((bytes / slot_bytes.max(1) as f64).ceil() as u64).min(MOST)
}

/// Sizes of a GEMM stage's parts that its buffers follow (all zero but `row_grain` for SIMD stages).
#[derive(Debug, Clone, Copy, Default)]
pub struct StageExtents {
    /// Token rows of one output tile.
    pub row_grain: u64,
    /// Most weight bytes (values and metadata) that one column of PCUs holds of one chunk.
    pub weight_slot_bytes: u64,
    /// Most output columns of one PCU.
    pub columns_per_pcu: u64,
    /// Flits a cycle of one stream of activations.
    pub activation_rate: f64,
    /// Flits a cycle of one stream of weights.
    pub weight_rate: f64,
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
        let most = |f: fn(&PassWork) -> u64| work.iter().flatten().map(f).max().unwrap_or(0).div_ceil(share);
        let weight_slot_bytes = graph.stages[stage].weight.map_or(0, |w| {
            let tensor = &graph.workload.tensors[w];
            let values = most(|w| w.stored) * tensor.dtype.bytes();
            let all = (tensor.stored_elements() * tensor.dtype.bytes()).max(1);
            let metadata = tensor.stored_bytes() - tensor.stored_elements() * tensor.dtype.bytes();
            values + (u128::from(metadata) * u128::from(values)).div_ceil(u128::from(all)) as u64
        });
        let (activation_rate, weight_rate) = shape.stream_rates();
        Self {
            row_grain: shape.row_grain,
            weight_slot_bytes,
            columns_per_pcu: most(|w| w.columns),
            activation_rate,
            weight_rate,
        }
    }
}
