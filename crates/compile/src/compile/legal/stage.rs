//! A mapping of a stage at random, on at most so many PCUs.

use rand::RngExt;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use crate::compile::mapping::allocate::useful_splits;
use crate::compile::mapping::roles::StageRoles;
use rdusim_cost::cost::{SystolicShape, TileTables, chain};
use rdusim_graph::arch::Chip;
use rdusim_program::{
    GemmMapping, LoopLevel, MOST_GATHERED_COLUMNS, Mapping, Nest, Reduction, SectionGraph, SimdMapping, StageId, Style,
};

use super::random::{log_uniform, one_of};

/// What a mapping is drawn for.
#[derive(Debug, Clone, Copy)]
pub(super) struct StageDraw<'a> {
    pub(super) chip: &'a Chip,
    pub(super) graph: &'a SectionGraph<'a>,
    pub(super) nest: &'a Nest,
    pub(super) roles: &'a StageRoles,
    /// Of the nest's cut.
    pub(super) tables: &'a TileTables<'a>,
    pub(super) stage: StageId,
    /// PCUs at most.
    pub(super) most: u64,
}

/// A side of an array of PCUs.
#[derive(Debug, Clone, Copy)]
enum Side {
    Rows,
    Columns,
    Depth,
}

impl StageDraw<'_> {
    /// A mapping; `None` if there is none on so few PCUs, or the chip lacks the stage's data type.
    pub(super) fn mapping(&self, random: &mut Pcg64Mcg) -> Option<Mapping> {
        let graph = self.graph;
        let spec = &graph.stages[self.stage];
        if !graph.is_gemm(self.stage) {
            return self.simd(random).map(Mapping::Simd);
        }
        let rows_on_lanes = random.random();
        let shape = self.tables.shape(self.stage, rows_on_lanes)?;
        let from = GemmMapping { rows_on_lanes, ..GemmMapping::ONE_PCU };
        let drawn = if spec.sums.is_some() {
            self.sums(from, random)
        } else if graph.form(self.stage).is_some() {
            self.heads(from, &shape, random)
        } else {
            Some(self.gemm(from, &shape, random))
        };
        drawn.map(Mapping::Gemm)
    }

    /// PCUs of one operator that is not split by heads.
    fn most_of_operator(&self) -> u64 {
        self.most.min(self.chip.pcus_per_operator()).max(1)
    }

    /// A GEMM with one weight: sides of its array in any order, each as long as those before leave.
    fn gemm(&self, from: GemmMapping, shape: &SystolicShape, random: &mut Pcg64Mcg) -> GemmMapping {
        let &Self { chip, graph, nest, tables, stage, .. } = self;
        let mut m = from;
        let mut left = self.most_of_operator();
        let mut sides = [Side::Rows, Side::Columns, Side::Depth];
        sides.shuffle(random);
        let ranges = tables.column_tile_ranges(stage);
        let widest = ranges.iter().map(|(n, _)| n.end - n.start).max().unwrap_or(1);
        for side in sides {
            match side {
                Side::Rows => m.pm = split(random, nest.tile_rows.div_ceil(shape.row_grain), left),
                Side::Columns => m.pn = split(random, widest.div_ceil(shape.column_grain), left),
                Side::Depth => {
                    let may_split = graph.may_split_k(nest.tiled_axis, stage, Reduction::Tree);
                    let most = graph.most_k_slices(nest.tiled_axis, stage).min(left);
                    if may_split && most > 1 && random.random() {
                        m.pk = log_uniform(random, 2, most);
                    }
                }
            }
            left = self.most_of_operator() / (m.pm * m.pn * m.pk);
        }
        if m.pk > 1 {
            let may_chain = graph.may_split_k(nest.tiled_axis, stage, Reduction::Chain);
            m.reduction = if may_chain && random.random() { Reduction::Chain } else { Reduction::Tree };
        }
        // All columns on one stream of activations, or any number that divides them.
        let widths: Vec<u64> = (1..=m.pn).filter(|&width| m.pn.is_multiple_of(width)).collect();
        m.multicast_width = if random.random() { m.pn } else { one_of(random, &widths).unwrap_or(m.pn) };
        let narrow: Vec<u64> =
            widths.into_iter().filter(|width| width * chip.pcu.stages <= MOST_GATHERED_COLUMNS).collect();
        if let Some(multicast_width) = one_of(random, &narrow)
            && graph.may_gather(chip, stage, &GemmMapping { multicast_width, ..m })
            && random.random()
        {
            (m.multicast_width, m.style) = (multicast_width, Style::Gather);
        }
        if let Some(mask) = graph.mask(stage) {
            let (block, width) = (mask.block_columns(), shape.column_grain * m.multicast_width);
            m.aligned = !block.is_multiple_of(width) && !width.is_multiple_of(block) && random.random();
        }
        m
    }

    /// A GEMM with heads: some of them side by side, each on as many columns of PCUs.
    fn heads(&self, from: GemmMapping, shape: &SystolicShape, random: &mut Pcg64Mcg) -> Option<GemmMapping> {
        let form = self.graph.heads_tile(self.nest.tiled_axis, self.stage)?.form;
        let streams = split(random, form.b_heads, self.most);
        let pn = streams * split(random, form.n.div_ceil(shape.column_grain), self.most / streams);
        let pm = split(random, self.nest.tile_rows.div_ceil(shape.row_grain), self.most / pn);
        Some(GemmMapping { pm, pn, multicast_width: pn, streams, ..from })
    }

    /// A GEMM that adds up over rows.
    fn sums(&self, from: GemmMapping, random: &mut Pcg64Mcg) -> Option<GemmMapping> {
        let heads = self.graph.form(self.stage).map_or(1, |form| form.heads);
        let most = if heads > 1 { self.most } else { self.most_of_operator() };
        let (rows, columns) = self.tables.most_splits(self.stage, &from, self.nest)?;
        let streams = split(random, heads, most);
        let pn = streams * split(random, columns / heads, most / streams);
        let pm = split(random, rows, most / pn);
        Some(GemmMapping { pm, pn, multicast_width: pn, streams, ..from })
    }

    /// Elementwise or row functions.
    fn simd(&self, random: &mut Pcg64Mcg) -> Option<SimdMapping> {
        let &Self { chip, graph, nest, roles, stage, .. } = self;
        let kind = graph.kind(stage);
        let (chain, passes) = (chain(chip, kind), kind.passes());
        let lanes = *chip.pcu.lanes.get(&graph.stage_dtype(stage))?;
        let most = self.most / chain;
        let columns = match nest.tiled_axis {
            Some(_) if roles.level[stage] != LoopLevel::ROW_TILE => {
                let first = graph.columns_in(nest.tiled_axis, graph.stages[stage].activations[0], 0);
                first.end - first.start
            }
            _ => graph.simd_columns(stage),
        };
        let slices = graph.units(stage).filter(|_| kind.is_row_wise()).unwrap_or_else(|| columns.div_ceil(lanes));
        // Rows that carry a state are worked on in order.
        let rows = if kind.is_carried() { 1 } else { nest.tile_rows };
        let (pm, pn) = if random.random() {
            let pm = split(random, rows, most);
            (pm, split(random, slices, most / pm))
        } else {
            let pn = split(random, slices, most);
            (split(random, rows, most / pn), pn)
        };
        let kept = graph.running_statistics(nest.tiled_axis, stage, nest.tile_rows.div_ceil(pm), pn);
        (most > 0 && kept <= lanes * chip.pcu.stages).then_some(SimdMapping { pm, pn, chain, passes })
    }
}

/// Parts of `total`, at most `most`, such that none is left without: any of those numbers, the largest as likely as all others.
fn split(random: &mut Pcg64Mcg, total: u64, most: u64) -> u64 {
    let splits = useful_splits(total, most.max(1));
    if random.random() { splits.first().copied() } else { one_of(random, &splits) }.unwrap_or(1)
}
