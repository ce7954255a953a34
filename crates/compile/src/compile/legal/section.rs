//! A section at random: its nest, what stays on chip, its mappings and its places.

use rand::RngExt;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use crate::compile::mapping::residency::{LatencySlots, Residency};
use crate::compile::mapping::roles::StageRoles;
use crate::compile::physical::assemble::{assemble, assemble_exchanged};
use crate::compile::physical::route::Negotiation;
use crate::compile::retarget::planned;
use rdusim_base::index::IndexVec;
use rdusim_cost::cost::{TileTables, chain};
use rdusim_graph::arch::{Chip, TierId};
use rdusim_program::{Fabric, LoopOrder, Mapping, Nest, Panels, Section, SectionGraph, StageId, TiledAxis};

use super::random::{log_uniform, one_of};
use super::stage::StageDraw;

/// Row tiles times column tiles at most: the engines walk them all, and a stage's tables have a row for each column tile.
const MOST_FIRINGS: u64 = 1 << 13;

/// What a section is drawn for.
#[derive(Debug, Clone, Copy)]
pub(super) struct SectionDraw<'a> {
    /// The chip as the section finds it.
    pub(super) chip: &'a Chip,
    pub(super) fabric: &'a Fabric,
    pub(super) graph: &'a SectionGraph<'a>,
    pub(super) tiers: &'a [TierId],
    /// Units change places at random.
    pub(super) exchanges: bool,
    /// As few PCUs as can be, and small tiles: what fits where banks are few.
    pub(super) is_frugal: bool,
}

impl SectionDraw<'_> {
    /// A section; `None` if what was drawn cannot be, or does not fit.
    pub(super) fn section(&self, random: &mut Pcg64Mcg) -> Option<Section> {
        let &Self { chip, fabric, graph, tiers, exchanges, .. } = self;
        let nest = self.nest(random)?;
        let residency = self.residency(&nest, random);
        let mappings = self.mappings(&nest, residency, random)?;
        for latency_slots in [LatencySlots::Full, LatencySlots::Quarter, LatencySlots::None] {
            let residency = Residency { latency_slots, ..residency };
            let plan = planned(chip, graph, nest, mappings.clone(), residency)?;
            if plan.buffers.iter().map(|buffer| buffer.total_banks(chip)).sum::<u64>() > chip.pmus() * chip.pmu.banks {
                continue;
            }
            let placed = if exchanges {
                assemble_exchanged(chip, fabric, graph, &plan, tiers, Negotiation::WHOLE, random)
            } else {
                assemble(chip, fabric, graph, &plan, tiers, Negotiation::WHOLE, &[])
            };
            if let Ok((section, _)) = placed {
                return Some(section);
            }
        }
        None
    }

    /// A loop nest; `None` if a stage along the cut would come after one that accumulates over column tiles.
    fn nest(&self, random: &mut Pcg64Mcg) -> Option<Nest> {
        let graph = self.graph;
        let (rows, sequences) = (graph.rows, graph.sequences().max(1));
        let tiled_axis = self.tiled_axis(random);
        // Of sequences with weights of their own, a row block is a sequence, and column tiles pass inside it.
        let may_be_outer = tiled_axis.is_some_and(|cut| cut.panels.is_none()) && sequences == 1;
        let row_tile_outer = may_be_outer && random.random();
        let order = if row_tile_outer { LoopOrder::RowTileOuter } else { LoopOrder::ColumnTileOuter };
        let column_tiles = tiled_axis.map_or(1, |cut| cut.column_tiles());
        let of_sequence = rows / sequences;
        let most = (MOST_FIRINGS / column_tiles / sequences).clamp(1, of_sequence);
        let tile_rows = if sequences > 1 {
            let sizes: Vec<u64> =
                (of_sequence.div_ceil(most)..=of_sequence).filter(|&size| of_sequence.is_multiple_of(size)).collect();
            one_of(random, &sizes)?
        } else {
            rows.div_ceil(log_uniform(random, self.fewest(most), most))
        };
        let mut nest = Nest { rows, tile_rows, block_tiles: 1, tiled_axis, order };
        nest.block_tiles = of_sequence.div_ceil(tile_rows);
        // Elsewhere a block is no other than the next.
        let has_blocks = order == LoopOrder::ColumnTileOuter && column_tiles > 1 && sequences == 1;
        if has_blocks && nest.block_tiles > 1 && random.random() {
            let blocks = log_uniform(random, 2, nest.block_tiles);
            nest.block_tiles = nest.block_tiles.div_ceil(blocks);
        }
        if sequences == 1 && !graph.keeps_statistics(&nest) {
            nest.block_tiles = 1;
        }
        (graph.keeps_statistics(&nest) && StageRoles::new(graph, &nest).is_one_pass()).then_some(nest)
    }

    /// No axis, or one of the section's, in at least two column tiles.
    fn tiled_axis(&self, random: &mut Pcg64Mcg) -> Option<TiledAxis> {
        let graph = self.graph;
        let longer = graph.axes.iter().enumerate().filter(|(_, axis)| axis.extent > axis.grain);
        let axes: Vec<usize> = longer.map(|(axis, _)| axis).filter(|&axis| graph.may_cut(axis)).collect();
        // None is as likely as each of the others.
        let axis = one_of(random, &axes).filter(|_| random.random_range(0..=axes.len()) > 0)?;
        let along = &graph.axes[axis];
        let most = along.extent.div_ceil(along.grain).min(MOST_FIRINGS);
        let tiles = log_uniform(random, self.fewest(most).max(2), most);
        let tile = along.extent.div_ceil(tiles).next_multiple_of(along.grain);
        // Two tiles of a few blocks may round up to all of them.
        let tile = if tile < along.extent { tile } else { along.grain };
        let cut = TiledAxis::new(axis, along.extent, tile);
        let panels = self.panels(cut, random).filter(|_| random.random());
        Some(TiledAxis { panels, ..cut })
    }

    /// Panels around the column tiles of a depth, where the section may have them.
    fn panels(&self, cut: TiledAxis, random: &mut Pcg64Mcg) -> Option<Panels> {
        let axis = self.graph.panel_axes().filter(|axes| axes.depth == cut.axis)?.columns;
        let along = &self.graph.axes[axis];
        let most = along.extent.div_ceil(along.grain).min(MOST_FIRINGS / cut.tiles_of_panel());
        let count = log_uniform(random, 2, most.max(2));
        let width = along.extent.div_ceil(count).next_multiple_of(along.grain);
        let panels = Panels { axis, extent: along.extent, width };
        self.graph.may_have_panels_of(&TiledAxis { panels: Some(panels), ..cut }).then_some(panels)
    }

    /// Tiles of a frugal draw, of `most`, at least.
    fn fewest(&self, most: u64) -> u64 {
        if self.is_frugal { most.isqrt() } else { 1 }
    }

    /// What stays on chip.
    fn residency(&self, nest: &Nest, random: &mut Pcg64Mcg) -> Residency {
        let latency_slots = LatencySlots::Full;
        if nest.order == LoopOrder::RowTileOuter || nest.column_tiles() == 1 {
            return Residency { inputs: true, weights: true, recompute: false, latency_slots };
        }
        let may_recompute = StageRoles::new(self.graph, nest).recomputing(self.graph, nest).is_some();
        let recompute = may_recompute && random.random();
        Residency { inputs: random.random(), weights: random.random(), recompute, latency_slots }
    }

    /// A mapping of each stage, on PCUs that the stages before it leave; `None` if the stages do not fit the chip.
    fn mappings(&self, nest: &Nest, residency: Residency, random: &mut Pcg64Mcg) -> Option<IndexVec<StageId, Mapping>> {
        let &Self { chip, graph, .. } = self;
        let roles = StageRoles::with(graph, nest, residency);
        let tables = TileTables::new(chip, graph, nest.tiled_axis);
        let least = |stage: StageId| if graph.is_gemm(stage) { 1 } else { chain(chip, graph.kind(stage)) };
        let needed: u64 = graph.stages.ids().map(least).sum();
        let mut spare = chip.pcus().checked_sub(needed)?;
        // Half of the draws may use the whole chip; of the others, arrays of fewer PCUs leave more banks to each.
        if self.is_frugal {
            spare = 0;
        } else if random.random() {
            spare = log_uniform(random, 1, spare + 1) - 1;
        }
        let mut order: Vec<StageId> = graph.stages.ids().collect();
        order.shuffle(random);
        let mut drawn: IndexVec<StageId, Option<Mapping>> = IndexVec::filled(graph.stages.len(), None);
        for (at, &stage) in order.iter().enumerate() {
            let left = (order.len() - at) as u64;
            let most = if left == 1 { spare } else { random.random_range(0..=spare.min(2 * spare / left)) };
            let draw =
                StageDraw { chip, graph, nest, roles: &roles, tables: &tables, stage, most: least(stage) + most };
            let mapping = draw.mapping(random)?;
            spare -= mapping.pcus().saturating_sub(least(stage));
            drawn[stage] = Some(mapping);
        }
        drawn.into_iter().collect()
    }
}
