//! What a section keeps in PMUs: operands, weights, partial sums and results, with depths and sizes.

use crate::arch::Chip;
use crate::compile::params::PARAMS;
use crate::cost::{GatherPorts, StageExtents};
use crate::program::{BufferRole, BufferSpec, Cadence, LoopOrder, Mapping, Nest, SectionGraph, Style, k_slice};
use crate::workload::TensorId;

use super::residency::{Ahead, Residency};
use super::roles::StageRoles;

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
    let in_flight = |tier| chip.tier_latency_cycles(tier) as f64 * chip.tier_rate(tier).bytes_per_cycle();
    let bytes = chip.memory.ids().map(in_flight).fold(0.0, f64::max);
    ((bytes / slot_bytes.max(1) as f64).ceil() as u64).min(PARAMS.mapping.most_latency_slots)
}
