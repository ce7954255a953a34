//! What a section keeps in PMUs: operands, weights, partial sums and results, with depths and sizes.

use crate::compile::params::PARAMS;
use rdusim_base::index::IndexVec;
use rdusim_cost::cost::{GatherPorts, StageFootprint};
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::TensorId;
use rdusim_program::{
    BufferId, BufferRole, BufferSpec, HeadsTile, LoopLevel, LoopOrder, Mapping, Nest, Reduction, SectionGraph, StageId,
    Style, k_slice,
};

use super::residency::{LatencySlots, Residency};
use super::roles::StageRoles;

/// The buffers of a section whose stages are mapped as `mappings`, with the sizes `footprint` of its GEMM stages.
pub(crate) fn buffers(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    nest: &Nest,
    roles: &StageRoles,
    residency: Residency,
    mappings: &IndexVec<StageId, Mapping>,
    footprint: &IndexVec<StageId, StageFootprint>,
) -> IndexVec<BufferId, BufferSpec> {
    let complete_before = graph.complete_before();
    let mut sizer =
        Sizer { mappings, footprint, chip, graph, nest, roles, residency, complete_before, list: IndexVec::new() };
    for ((stage, mapping), footprint) in mappings.iter_enumerated().zip(footprint) {
        sizer.operands(stage, mapping, footprint);
        sizer.weights(stage, mapping, footprint);
        sizer.stores(stage, mapping, footprint);
    }
    sizer.list
}

struct Sizer<'a> {
    mappings: &'a IndexVec<StageId, Mapping>,
    footprint: &'a IndexVec<StageId, StageFootprint>,
    chip: &'a Chip,
    graph: &'a SectionGraph<'a>,
    nest: &'a Nest,
    roles: &'a StageRoles,
    residency: Residency,
    /// Sequences that must be complete before each stage.
    complete_before: IndexVec<StageId, u64>,
    list: IndexVec<BufferId, BufferSpec>,
}

impl Sizer<'_> {
    /// Columns of a tensor in a (whole) column tile.
    fn width(&self, tensor: TensorId) -> u64 {
        let first = self.graph.columns_in(self.nest.tiled_axis, tensor, 0);
        first.end - first.start
    }

    /// Slots that hold a row block, with one more to begin the next block, or panel, in.
    fn block_depth(&self) -> u64 {
        self.nest.block_tiles + u64::from(self.nest.blocks() * self.nest.panels() > 1)
    }

    /// The nest of complete sums of a stage.
    fn level_of_sums(&self, stage: StageId) -> LoopLevel {
        let StageRoles { level, k_cut, n_cut, .. } = self.roles;
        LoopLevel::of_results(level[stage], k_cut[stage], n_cut[stage])
    }

    /// Rows of a row tile in one row slice of a GEMM stage.
    fn slice_rows(&self, pm: u64, footprint: &StageFootprint) -> u64 {
        let passes = self.nest.tile_rows.div_ceil(footprint.row_grain).div_ceil(pm);
        (passes * footprint.row_grain).min(self.nest.tile_rows)
    }

    /// Firings by which the last slices of K run behind the first, from where a tensor is made to where `stage` takes it, in it
    /// too: so much longer a row tile is wanted. In a chain a slice begins an output tile after the one before it: one firing a
    /// slice is enough, and a gradient that is sampled, whose private copies are many, is given what it takes, as is a tree.
    fn slices_behind(&self, tensor: TensorId, stage: StageId) -> u64 {
        let producer = self.graph.producer(tensor);
        let is_behind = |s: &StageId| *s == stage || *s < stage && producer.is_none_or(|producer| *s > producer);
        let behind = |s: StageId| {
            let (pk, reduction) = (self.mappings[s].pk(), self.mappings[s].reduction());
            if self.graph.sampled(s).is_none() && reduction == Reduction::Chain {
                return pk - 1;
            }
            self.firings_in(s, self.footprint[s].lag_cycles(reduction, pk, self.walk_cycles())).min(pk - 1)
        };
        self.mappings.ids().filter(is_behind).map(behind).sum()
    }

    /// Cycles of a way between units of a stage.
    fn walk_cycles(&self) -> u64 {
        u64::from(self.chip.grid.columns + self.chip.grid.rows) / 4 * self.chip.network.hop_cycles
    }

    /// Firings of a stage that so many cycles take.
    fn firings_in(&self, stage: StageId, cycles: u64) -> u64 {
        let footprint = &self.footprint[stage];
        let passes = self.nest.tile_rows.div_ceil(footprint.row_grain.max(1)).div_ceil(self.mappings[stage].pm());
        cycles.div_ceil(footprint.pass_cycles.saturating_mul(passes).max(1))
    }

    /// Slots of sums between two slices of K: one that is filled and one that is read, and in a tree, where both slices work on
    /// the same output tiles, one for what is on its way.
    fn fifo_depth(&self, stage: StageId) -> u64 {
        let way = self.footprint[stage].lag_cycles(Reduction::Tree, 2, self.walk_cycles());
        match self.mappings[stage].reduction() {
            Reduction::Chain => 2,
            Reduction::Tree => 2 + self.firings_in(stage, way).min(2),
        }
    }

    /// Row tiles of an operand that come before the stage can begin: those of sequences that must be complete first.
    fn held_before(&self, tensor: TensorId, stage: StageId) -> u64 {
        let complete = |stage: StageId| self.complete_before[stage];
        let takes = |s: &StageId| self.graph.stages[*s].activations.contains(&tensor);
        let from = match self.graph.producer(tensor) {
            Some(producer) => complete(producer),
            // Of a tensor from off chip, all that read it take a row tile at a time.
            None => self.graph.stages.ids().filter(takes).map(complete).min().unwrap_or(0),
        };
        complete(stage).saturating_sub(from).saturating_mul(self.sequence_tiles())
    }

    /// Row tiles of a sequence.
    fn sequence_tiles(&self) -> u64 {
        let sequences = self.graph.sequences();
        if sequences > 1 { self.nest.block_tiles } else { self.nest.row_tiles() }
    }

    fn operands(&mut self, stage: StageId, mapping: &Mapping, footprint: &StageFootprint) {
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
                        0 => (m.pm * m.streams, footprint.activation_rate),
                        _ => (m.pn, footprint.weight_rate),
                    };
                    // Twice over: parts end where they do, not where those of PCUs do.
                    let ports = (2.0 * streams as f64 * rate).ceil() as u64;
                    (1, 1, rows_bytes(nest.tile_rows), ports.div_ceil(self.chip.pmu.read_ports).max(1))
                }
                // A stream of activations brings the columns of its heads only.
                Mapping::Gemm(m) => {
                    // A PMU for each vector that is gathered in a cycle.
                    let spread = if m.style == Style::Gather { GatherPorts::new(self.chip).vectors } else { 1 };
                    let part = match graph.heads_tile(nest.tiled_axis, stage) {
                        Some(tile) if graph.workload.tensors[tensor].window().is_none() => {
                            let heads = tile.form.heads_of_stream(m.streams, 0);
                            self.slice_rows(m.pm, footprint)
                                * (heads.end - heads.start)
                                * tile.depth()
                                * graph.dtype(tensor).bytes()
                        }
                        // Of pixels, the channels of its groups.
                        Some(HeadsTile { form, .. }) => {
                            let groups = form.heads_of_stream(m.streams, 0);
                            let whole = rows_bytes(self.slice_rows(m.pm, footprint));
                            (u128::from(whole) * u128::from(groups.end - groups.start)).div_ceil(u128::from(form.heads))
                                as u64
                        }
                        None if m.pk > 1 => {
                            let (k, grain) = (0..self.width(tensor), graph.k_grain(stage));
                            let columns = (0..m.pk).map(|slice| k_slice(&k, slice, m.pk, grain));
                            let most = columns.map(|k| k.end - k.start).max().unwrap_or(0);
                            self.slice_rows(m.pm, footprint) * most * graph.dtype(tensor).bytes()
                        }
                        None => rows_bytes(self.slice_rows(m.pm, footprint)).div_ceil(m.streams),
                    };
                    (m.pm * m.parts(), m.k_slice_groups(), part, spread)
                }
                Mapping::Simd(m) => {
                    // A state that is carried lies in as much as a row more.
                    let rows = nest.tile_rows.div_ceil(m.pm) + u64::from(graph.kind(stage).is_carried());
                    (m.pm, 1, rows_bytes(rows), m.pn.div_ceil(self.chip.pmu.read_ports))
                }
            };
            let external = graph.producer(tensor).is_none();
            let mut depth =
                (graph.distance(graph.producer(tensor), stage) + 1).max(2) + self.slices_behind(tensor, stage);
            depth += self.held_before(tensor, stage);
            if external {
                depth += self.residency.latency_slots.of(slots_in_flight(self.chip, slot_bytes * slices));
            }
            let mut level = self.roles.tensor_level(graph, nest, tensor);
            if self.roles.holds_block(graph, nest, stage, tensor) {
                if external && !self.residency.inputs && self.roles.level[stage] == LoopLevel::FIRING {
                    level = LoopLevel::FIRING;
                } else if copies > 1 {
                    let role = BufferRole::Resident { stage, tensor };
                    let depth = self.block_depth();
                    self.list.push(BufferSpec { role, level, depth, slices, copies: 1, slot_bytes, spread: 1 });
                    level = LoopLevel::FIRING;
                } else {
                    depth = self.block_depth();
                }
            }
            let role = BufferRole::Operand { stage, tensor };
            self.list.push(BufferSpec { role, level, depth, slices, copies, slot_bytes, spread });
        }
    }

    /// Slots for the row tiles of a sequence of a second operand that is made here, and for what comes of the next sequence
    /// before they are free: with causal attention a few row tiles, else all of it.
    fn sequence_depth(&self, stage: StageId, tensor: TensorId) -> u64 {
        let all = self.sequence_tiles();
        let is_prefix = self.graph.stages[stage].sequence.is_some_and(|read| read.is_prefix);
        let of_next = if is_prefix { self.graph.distance(self.graph.producer(tensor), stage) + 1 } else { all };
        all.saturating_add(of_next.min(all)).min(self.nest.row_tiles())
    }

    fn weights(&mut self, stage: StageId, mapping: &Mapping, footprint: &StageFootprint) {
        if let (Some(sums), Mapping::Gemm(m)) = (self.graph.stages[stage].sums, mapping) {
            let along_cut = self.roles.level[stage] == LoopLevel::FIRING;
            self.list.push(BufferSpec {
                role: BufferRole::PartialSums { stage },
                level: sums.level(along_cut),
                depth: sums.depth(self.nest, along_cut),
                slices: m.pm * m.pn,
                copies: 1,
                slot_bytes: footprint.columns_per_pcu * 4,
                spread: 1,
            });
            return;
        }
        let (Some(tensor), Mapping::Gemm(m)) = (self.graph.stages[stage].weight, mapping) else { return };
        let nest = self.nest;
        let cut = self.roles.k_cut[stage] || self.roles.n_cut[stage];
        let resident = self.residency.weights || nest.order == LoopOrder::RowTileOuter;
        let own = self.graph.form(stage).is_some_and(|form| form.instances > 1);
        let (level, depth) = match (cut, resident) {
            _ if self.graph.stages[stage].sequence.is_some() => {
                (LoopLevel::ROW_TILE, self.sequence_depth(stage, tensor))
            }
            _ if own => {
                let slot = footprint.weight_slot_bytes.saturating_mul(m.pn * m.pk);
                (
                    LoopLevel::BLOCK_COLUMN,
                    (2 + self.residency.latency_slots.of(slots_in_flight(self.chip, slot))).min(if cut {
                        nest.count(LoopLevel::BLOCK_COLUMN)
                    } else {
                        nest.blocks()
                    }),
                )
            }
            (true, false) => (LoopLevel::BLOCK_COLUMN, 2.min(nest.count(LoopLevel::BLOCK_COLUMN))),
            (true, true) => (LoopLevel::COLUMN, nest.column_tiles()),
            (false, _) => (LoopLevel::ONCE, 1),
        };
        let part = BufferSpec {
            role: BufferRole::Weight { stage, tensor },
            level,
            depth,
            slices: m.pn * m.pk,
            copies: 1,
            slot_bytes: footprint.weight_slot_bytes,
            spread: 1,
        };
        self.list.push(part);
        for slice in 0..m.pk - 1 {
            self.list.push(BufferSpec {
                role: BufferRole::PartialFifo { stage, slice },
                level: self.level_of_sums(stage),
                depth: self.fifo_depth(stage),
                slices: m.pm * m.pn,
                slot_bytes: self.slice_rows(m.pm, footprint) * footprint.columns_per_pcu * 4,
                ..part
            });
        }
        if self.roles.k_cut[stage] && nest.column_tiles() > 1 {
            let depth = if nest.order == LoopOrder::ColumnTileOuter { self.block_depth() } else { 2 };
            self.list.push(BufferSpec {
                role: BufferRole::PartialSums { stage },
                level: self.level_of_sums(stage),
                depth,
                slices: m.pm * m.pn * m.pk,
                slot_bytes: self.slice_rows(m.pm, footprint) * footprint.columns_per_pcu * 4,
                ..part
            });
        }
    }

    /// Slots of what is complete once a column tile, beside its sums.
    fn slots_beside_sums(&self) -> u64 {
        if self.residency.latency_slots == LatencySlots::Full { 2 } else { 1 }
    }

    /// What the step in the tail of a stage reads: beside every PCU the part for its sums.
    fn state(&mut self, stage: StageId, mapping: &Mapping, footprint: &StageFootprint) {
        let spec = &self.graph.stages[stage];
        let (Some(update), Some(sums), Mapping::Gemm(m)) = (spec.update, spec.sums, mapping) else { return };
        let along_cut = self.roles.level[stage] == LoopLevel::FIRING;
        let level = sums.level(along_cut);
        // As long as its sums are under way, and the next.
        let depth = self.nest.count(level).min(self.slots_beside_sums()).max(sums.depth(self.nest, along_cut));
        let bytes = update.state_columns * self.graph.dtype(update.state).bytes();
        self.list.push(BufferSpec {
            role: BufferRole::State { stage, tensor: update.state },
            level,
            depth,
            slices: m.pm * m.pn,
            copies: 1,
            slot_bytes: footprint.columns_per_pcu / update.word * bytes,
            spread: 1,
        });
    }

    fn stores(&mut self, stage: StageId, mapping: &Mapping, footprint: &StageFootprint) {
        self.state(stage, mapping, footprint);
        let tensor = self.graph.stages[stage].output;
        if !self.graph.leaves_section(tensor) {
            return;
        }
        if let (Some(sums), Mapping::Gemm(m)) = (self.graph.stages[stage].sums, mapping) {
            // Every PCU's part beside its sums.
            let level = sums.level(self.roles.level[stage] == LoopLevel::FIRING);
            let most = self.slots_beside_sums();
            let update = self.graph.stages[stage].update;
            let (columns, word) = update.map_or((1, 1), |update| (update.result_columns, update.word));
            self.list.push(BufferSpec {
                role: BufferRole::Output { tensor, stage },
                level,
                depth: self.nest.count(level).min(most),
                slices: m.pm * m.pn,
                copies: 1,
                slot_bytes: footprint.columns_per_pcu / word * columns * self.graph.dtype(tensor).bytes(),
                spread: 1,
            });
            return;
        }
        let slices = mapping.pm();
        let row_bytes = self.width(tensor) * self.graph.dtype(tensor).bytes();
        let rows = match mapping {
            Mapping::Gemm(_) => self.slice_rows(slices, footprint),
            Mapping::Simd(_) => self.nest.tile_rows.div_ceil(slices),
        };
        let slot_bytes = rows * row_bytes;
        self.list.push(BufferSpec {
            role: BufferRole::Output { tensor, stage },
            level: self.roles.tensor_level(self.graph, self.nest, tensor),
            depth: 2 + self.residency.latency_slots.of(slots_in_flight(self.chip, slot_bytes * slices)),
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
