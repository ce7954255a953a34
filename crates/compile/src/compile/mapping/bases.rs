//! Work of every useful column split of the GEMM stages of a section, worked out once for all row tile sizes.

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;

use crate::compile::params::PARAMS;
use rdusim_base::index::IndexVec;
use rdusim_cost::bound::stage::MaskFloors;
use rdusim_cost::cost::{StageFootprint, SystolicShape, TileTables, WeightRange};
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::{OperatorId, TensorId};
use rdusim_program::{
    GemmMapping, LoopLevel, LoopOrder, MOST_GATHERED_COLUMNS, Nest, PassWork, Reduction, SectionGraph, StageId, Style,
    TiledAxis,
};

use super::allocate::useful_splits;
use super::balance::CostSample;
use super::base::{Base, SumsBase};
use super::front::StageCandidates;
use super::roles::{StageRoles, duty_factor};
use super::row_reduction::sums_bases;

/// How the columns of a sparse product lie on units: so many at a time that skip together, in a style of execution.
#[derive(Debug, Clone, Copy)]
struct SparseColumns {
    multicast_width: u64,
    style: Style,
}

/// Which mappings of a stage are asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CandidateRequest {
    /// Sparse weights with several streams of activations too, not only with every column of PCUs on one: that takes fewer
    /// copies.
    pub private: bool,
    /// K split over PCUs, too.
    pub split: bool,
    /// Only with rows along the lanes, or across.
    pub turned: Option<bool>,
}

impl CandidateRequest {
    /// All.
    pub(crate) const ALL: Self = Self { private: true, split: true, turned: None };
}

/// What fixes the bases of a stage: weight, the least cycles of a tile either way round and with sums of one and two other slices
/// of K, the cut of its weight, the gradient it samples, and whether K may be split. Of the functions in its tail those cycles
/// are all that counts.
type BaseKey = (TensorId, [u64; 4], Option<(CutOf, u64, Option<u64>)>, Option<TensorId>, bool);

/// Which side of a weight a cut runs along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum CutOf {
    Rows,
    Columns,
}

/// Ways to split GEMMs over PCUs that are worked out already, shared by all sections of a graph: a stage meets the same
/// cuts in each. They follow from a workload and a chip's PCUs, network and PMU banks; from its memory and the capacity of
/// its PMUs they do not.
#[derive(Debug, Default)]
pub struct BaseCache {
    weights: Mutex<FxHashMap<BaseKey, Arc<Vec<Base>>>>,
    sums: Mutex<FxHashMap<SumsKey, Arc<Vec<SumsBase>>>>,
    mappings: Mutex<FxHashMap<MappingsKey, StageCandidates>>,
    masks: Mutex<MaskFloors>,
}

impl BaseCache {
    /// Does something with what is known of the floors of masks.
    pub(crate) fn with_masks<T>(&self, work: impl FnOnce(&mut MaskFloors) -> T) -> T {
        // A thread that panicked holding the lock left what it had finished.
        work(&mut self.masks.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What fixes the mappings of a stage.
#[derive(Debug, PartialEq, Eq, Hash)]
struct MappingsKey {
    main: OperatorId,
    /// Functions in its tail, but for a GEMM with one weight.
    tail: usize,
    /// Whether it adds up over rows.
    adds_up: bool,
    /// Whether its second operand is made in the section.
    is_second_made: bool,
    /// Rows of the section, and of a row tile.
    rows: (u64, u64),
    /// Column tiles that it waits through.
    duty_factor: u64,
    /// The cut that it walks: whether it runs along the rows of its result, its tile, and the width of a panel.
    walked: Option<(bool, u64, Option<u64>)>,
    /// The way it must lie.
    turned: Option<bool>,
    /// Of a GEMM with one weight.
    splits: Option<SplitsKey>,
}

/// What else fixes the mappings of a GEMM with one weight.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SplitsKey {
    bases: BaseKey,
    in_step: bool,
    private: bool,
    split: bool,
}

/// What fixes the bases of a stage that adds up over rows: its result, the cut of it, the rows of a row tile where they count,
/// and the step in its tail.
type SumsKey = (TensorId, Option<(CutOf, u64)>, u64, Option<OperatorId>);

/// GEMM work of every stage under one cut, computed once for all row tile sizes.
#[derive(Debug)]
pub(crate) struct StageBases<'a> {
    chip: &'a Chip,
    graph: &'a SectionGraph<'a>,
    /// Column tiles, of fine masks a sample.
    pub tables: TileTables<'a>,
    stages: IndexVec<StageId, Arc<Vec<Base>>>,
    cache: &'a BaseCache,
}

impl<'a> StageBases<'a> {
    /// Works out every column split of every GEMM stage.
    pub(crate) fn new(
        chip: &'a Chip,
        graph: &'a SectionGraph<'a>,
        tiled_axis: Option<TiledAxis>,
        cache: &'a BaseCache,
    ) -> Self {
        let tables = TileTables::sampled(chip, graph, tiled_axis);
        let mut bases = Self { chip, graph, tables, stages: IndexVec::new(), cache };
        bases.stages = graph.stages.ids().map(|s| bases.cached(s, cache)).collect();
        bases
    }

    /// The cut.
    pub(crate) fn tiled_axis(&self) -> Option<TiledAxis> {
        self.tables.tiled_axis()
    }

    /// Column splits of a stage.
    pub(crate) fn of(&self, stage: StageId) -> &[Base] {
        &self.stages[stage]
    }

    /// The same, shared.
    pub(crate) fn shared(&self, stage: StageId) -> &Arc<Vec<Base>> {
        &self.stages[stage]
    }

    /// What fixes the column splits of a GEMM with one weight; `None` of other stages.
    fn key(&self, stage: StageId) -> Option<BaseKey> {
        let spec = &self.graph.stages[stage];
        let weight = spec.weight.filter(|_| self.graph.form(stage).is_none())?;
        let cut = self.tiled_axis().and_then(|cut| {
            if self.graph.row_axis(weight) == Some(cut.axis) {
                Some((CutOf::Rows, cut.tile, cut.panels.map(|panels| panels.width)))
            } else if self.graph.column_axis(weight) == Some(cut.axis) {
                Some((CutOf::Columns, cut.tile, None))
            } else {
                None
            }
        });
        let may_split_k = self.graph.may_split_k(self.tiled_axis(), stage, Reduction::Tree);
        let least =
            |rows_on_lanes, sums| self.tables.shape_of(stage, rows_on_lanes, sums).map_or(0, |s| s.tile_cycles(0));
        let least = [least(false, 0), least(true, 0), least(false, 1), least(false, 2)];
        Some((weight, least, cut, self.graph.sampled(stage).map(|_| spec.output), may_split_k))
    }

    fn cached(&self, stage: StageId, cache: &BaseCache) -> Arc<Vec<Base>> {
        let Some(key) = self.key(stage) else { return Arc::default() };
        // A thread that panicked holding the lock left a whole map behind.
        let known = cache.weights.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        known.unwrap_or_else(|| {
            let bases = Arc::new(self.of_stage(stage));
            cache.weights.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&bases));
            bases
        })
    }

    /// Useful mappings of a stage, worked out once for all sections it is in.
    pub(crate) fn known(
        &self,
        stage: StageId,
        nest: &Nest,
        roles: &StageRoles,
        CandidateRequest { private, split, turned }: CandidateRequest,
        work_out: impl FnOnce() -> StageCandidates,
    ) -> StageCandidates {
        let cache = self.cache;
        let spec = &self.graph.stages[stage];
        let duty_factor = duty_factor(self.graph, nest, roles, stage);
        let walked = self.tiled_axis().filter(|_| roles.level[stage] != LoopLevel::ROW_TILE);
        let in_step = nest.order == LoopOrder::ColumnTileOuter;
        let splits = self.key(stage).map(|bases| SplitsKey { bases, in_step, private, split });
        let key = MappingsKey {
            main: spec.main,
            tail: if splits.is_some() { 0 } else { spec.tail.len() },
            adds_up: spec.sums.is_some(),
            is_second_made: spec.sequence.is_some(),
            rows: (self.graph.rows, nest.tile_rows),
            duty_factor,
            walked: walked.map(|cut| {
                let panel = cut.panels.map(|panels| panels.width);
                (self.graph.row_axis(spec.output) == Some(cut.axis), cut.tile, panel)
            }),
            turned,
            splits,
        };
        let known = cache.mappings.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        known.unwrap_or_else(|| {
            let found = work_out();
            cache.mappings.lock().unwrap_or_else(PoisonError::into_inner).insert(key, found.clone());
            found
        })
    }

    /// Useful mappings of a stage that adds up over rows.
    pub(crate) fn sums(&self, stage: StageId, tile_rows: u64) -> Arc<Vec<SumsBase>> {
        let output = self.graph.main_output(stage);
        let cut = self.tiled_axis().and_then(|cut| {
            if self.graph.row_axis(output) == Some(cut.axis) {
                Some((CutOf::Rows, cut.tile))
            } else if self.graph.column_axis(output) == Some(cut.axis) {
                Some((CutOf::Columns, cut.tile))
            } else {
                None
            }
        });
        let is_causal = self.graph.form(stage).is_some_and(|form| form.causal.is_some());
        let tile_rows = if is_causal { tile_rows } else { 1 };
        let work = || {
            let shape = |rows_on_lanes| self.tables.shape(stage, rows_on_lanes);
            Arc::new(sums_bases(self.chip, self.graph, self.tiled_axis(), stage, tile_rows, shape))
        };
        let cache = self.cache;
        let key = (output, cut, tile_rows, self.graph.stages[stage].update.map(|update| update.operator));
        let known = cache.sums.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        known.unwrap_or_else(|| {
            let bases = work();
            cache.sums.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&bases));
            bases
        })
    }

    /// Whether any weight is sparse.
    pub(crate) fn has_masks(&self) -> bool {
        self.graph.stages.ids().any(|s| self.graph.mask(s).or(self.graph.sampled(s)).is_some())
    }

    /// Whether K of any weight is worth splitting over PCUs.
    pub(crate) fn may_split_k(&self) -> bool {
        self.stages.iter().any(|bases| bases.iter().any(|base| base.pk > 1))
    }

    /// Row grains that row tiles should be multiples of.
    pub(crate) fn row_grains(&self) -> Vec<u64> {
        let mut grains: Vec<u64> = Vec::new();
        for stage in self.graph.stages.ids() {
            let gemm = self.graph.stages[stage].weight.is_some();
            for rows_on_lanes in [false, true] {
                let shape = gemm.then(|| self.tables.shape(stage, rows_on_lanes)).flatten();
                grains.push(shape.map_or(1, |s| s.row_grain));
            }
        }
        grains.sort_unstable();
        grains.dedup();
        // Of few rows, every number is worth a try.
        if grains.len() > 1 && self.graph.rows > PARAMS.mapping.few_rows {
            grains.retain(|&g| g > 1);
        }
        grains
    }

    fn of_stage(&self, stage: StageId) -> Vec<Base> {
        if self.graph.stages[stage].weight.is_none() {
            return Vec::new();
        }
        let mut list = Vec::new();
        let ranges = self.tables.column_tile_ranges(stage);
        let widest = ranges.iter().map(|(n, _)| n.end - n.start).max().unwrap_or(1);
        for rows_on_lanes in [false, true] {
            let Some(shape) = self.tables.shape(stage, rows_on_lanes) else { continue };
            let mut bases = Vec::new();
            for pn in useful_splits(widest.div_ceil(shape.column_grain), self.chip.pcus_per_operator()) {
                bases.push(self.dense_like(stage, &shape, rows_on_lanes, (pn, 1, Reduction::Chain), &ranges));
            }
            if let Some(mask) = self.graph.mask(stage).or(self.graph.sampled(stage)) {
                // As many columns of PCUs as one block of the mask is wide skip the same.
                let of_a_block = mask.block_columns().div_ceil(shape.column_grain);
                let mut shares = PARAMS.mapping.multicast_widths.to_vec();
                shares.extend([of_a_block, 2 * of_a_block]);
                shares.retain(|&multicast_width| {
                    multicast_width <= self.chip.pcus_per_operator() && multicast_width <= 16
                });
                shares.sort_unstable();
                shares.dedup();
                for multicast_width in shares {
                    self.sparse_bases(
                        stage,
                        &shape,
                        rows_on_lanes,
                        SparseColumns { multicast_width, style: Style::Skip },
                        mask.block_columns(),
                        &mut bases,
                    );
                }
                // Rows lie along the lanes, and where one block is as wide as a tile there is nothing to gain.
                let is_weight = self.graph.mask(stage).is_some();
                if is_weight && rows_on_lanes && mask.block_columns() < shape.column_grain {
                    let gathering = shape.in_style(self.chip, self.graph.stage_dtype(stage), Style::Gather);
                    for multicast_width in PARAMS
                        .mapping
                        .gather_multicast_widths
                        .into_iter()
                        .filter(|multicast_width| multicast_width * shape.column_grain <= MOST_GATHERED_COLUMNS)
                    {
                        let columns = SparseColumns { multicast_width, style: Style::Gather };
                        self.sparse_bases(stage, &gathering, rows_on_lanes, columns, mask.block_columns(), &mut bases);
                    }
                }
            }
            self.k_splits(stage, rows_on_lanes, &ranges, &mut bases);
            if self.graph.sampled(stage).is_some() {
                // More slices of K make the copies of the activations smaller, whatever they do for the work.
                for pk in [1].into_iter().chain(PARAMS.mapping.k_splits) {
                    list.extend(undominated(bases.iter().filter(|base| base.pk == pk).copied().collect()));
                }
            } else {
                list.extend(undominated(bases));
            }
        }
        list
    }

    /// Columns of PCUs over several slices of K.
    fn k_splits(&self, stage: StageId, rows_on_lanes: bool, ranges: &[WeightRange], bases: &mut Vec<Base>) {
        if !self.graph.may_split_k(self.tiled_axis(), stage, Reduction::Tree) {
            return;
        }
        let may_chain = self.graph.may_split_k(self.tiled_axis(), stage, Reduction::Chain);
        let of_pk = |pk: u64| {
            let shape = move |reduction: Reduction| {
                self.tables.shape_of(stage, rows_on_lanes, reduction.most_before(pk)).map(|shape| (reduction, shape))
            };
            [Some(Reduction::Tree), may_chain.then_some(Reduction::Chain)].into_iter().flatten().filter_map(shape)
        };
        let least_k = ranges.iter().map(|(_, k)| k.end - k.start).min().unwrap_or(0);
        let widest = ranges.iter().map(|(n, _)| n.end - n.start).max().unwrap_or(1);
        let is_sparse = self.graph.mask(stage).is_some();
        // Every slice has a block of the mask, and is no shorter than its partial sums take.
        let most = self.graph.most_k_slices(self.tiled_axis(), stage);
        for pk in PARAMS.mapping.k_splits.into_iter().filter(|&pk| pk <= most) {
            let is_long = |(_, shape): &(Reduction, SystolicShape)| least_k / pk >= shape.tile_cycles(0).max(1);
            // What a tile takes on the way of all rows, and what the sums of the last take to come together: two sums at a PCU may
            // keep it from its work, where one does not.
            let cost = |(reduction, shape): &(Reduction, SystolicShape)| {
                let tile = shape.tile_cycles(least_k / pk);
                let step = shape.skew_cycles + shape.drain_cycles(false, 0);
                let step = if *reduction == Reduction::Chain { tile + step } else { step };
                self.graph.rows.div_ceil(shape.row_grain) * tile + reduction.steps(pk) * step
            };
            let Some((reduction, shape)) = of_pk(pk).filter(is_long).min_by_key(cost) else { continue };
            if self.graph.sampled(stage).is_some() {
                let most = self.chip.pcus_per_operator() / pk;
                let whole = bases.iter().filter(|base| base.pk == 1 && base.pn <= most);
                let slices: Vec<Base> =
                    whole.map(|base| sampled_slice(base, &shape, pk, reduction, least_k / pk)).collect();
                bases.extend(slices);
                continue;
            }
            // Where column tiles cut K too, only of what has a PCU for each output tile: others may have more columns of PCUs.
            let tiles = widest.div_ceil(shape.column_grain);
            let pns = useful_splits(tiles, self.chip.pcus_per_operator() / pk).into_iter();
            for pn in pns.filter(|&pn| may_chain || pn == tiles) {
                if !is_sparse {
                    bases.push(self.dense_like(stage, &shape, rows_on_lanes, (pn, pk, reduction), ranges));
                } else if let Some(whole) = bases.iter().find(|b| (b.pn, b.pk, b.multicast_width) == (pn, 1, pn)) {
                    // Worked out in full when it is chosen.
                    let slice = |cycles: u64| (cycles.div_ceil(pk) as f64 * PARAMS.mapping.uneven_k_slices) as u64;
                    let (in_step_cycles, free_cycles) = (slice(whole.in_step_cycles), slice(whole.free_cycles));
                    let pass_cycles = slice(whole.footprint.pass_cycles);
                    let footprint = StageFootprint { pass_cycles, ..whole.footprint };
                    bases.push(Base { pk, reduction, in_step_cycles, free_cycles, footprint, ..*whole });
                }
            }
        }
    }

    /// Sparse columns in lockstep groups of `multicast_width`, each skipping on its own.
    fn sparse_bases(
        &self,
        stage: StageId,
        shape: &SystolicShape,
        rows_on_lanes: bool,
        SparseColumns { multicast_width, style }: SparseColumns,
        block: u64,
        bases: &mut Vec<Base>,
    ) {
        let width = shape.column_grain * multicast_width;
        let aligned_too =
            self.graph.mask(stage).is_some() && !block.is_multiple_of(width) && !width.is_multiple_of(block);
        let mut loads = Vec::new();
        for aligned in [false, true] {
            if aligned && !aligned_too {
                continue;
            }
            let table = self.tables.table(stage, width, aligned, style, 1, shape.row_grain);
            let sample = CostSample::new(&table, |t| shape.cycles(t));
            let most_tiles = table.column_tiles.iter().map(Vec::len).max().unwrap_or(1) as u64;
            let column_tiles = table.column_tiles.len().max(1) as u64;
            let stored = table.column_tiles.iter().map(|c| c.iter().map(|t| t.stored).sum::<u64>()).max().unwrap_or(0);
            let columns =
                table.column_tiles.iter().map(|c| c.iter().map(|t| t.columns).sum::<u64>()).max().unwrap_or(0);
            for groups in useful_splits(most_tiles, self.chip.pcus_per_operator() / multicast_width) {
                // Beaten by one that is there already, as [`undominated`] will find.
                let least = sample.least_in_step(groups);
                if groups > 1 && bases.iter().any(|b| b.pn <= groups * multicast_width && b.in_step_cycles <= least) {
                    continue;
                }
                let (in_step_cycles, free_cycles) = sample.balance(groups, &mut loads);
                // Room for an uneven split; the chosen mapping is measured exactly.
                let uneven = |total: u64| (total.div_ceil(groups) * 5 / 4).min(total);
                let (stored, columns) = (uneven(stored), uneven(columns));
                let work = PassWork { stored, columns, cycles: in_step_cycles / column_tiles, ..PassWork::default() };
                bases.push(Base {
                    rows_on_lanes,
                    pn: groups * multicast_width,
                    pk: 1,
                    reduction: Reduction::Chain,
                    multicast_width,
                    aligned,
                    style,
                    in_step_cycles,
                    free_cycles,
                    dense_cycles: self.dense_cycles(stage, shape, most_tiles.div_ceil(groups)),
                    tiles_of_pass: most_tiles.div_ceil(groups),
                    footprint: StageFootprint::of_gemm(self.graph, stage, shape, multicast_width, &[vec![work]]),
                });
            }
        }
    }

    /// All columns of PCUs on one stream: one lockstep group, no assignment to search.
    fn dense_like(
        &self,
        stage: StageId,
        shape: &SystolicShape,
        rows_on_lanes: bool,
        (pn, pk, reduction): (u64, u64, Reduction),
        ranges: &[WeightRange],
    ) -> Base {
        let mapping = GemmMapping {
            rows_on_lanes,
            pm: 1,
            pn,
            pk,
            reduction,
            multicast_width: pn,
            streams: 1,
            aligned: false,
            style: Style::Skip,
        };
        if let Some(mask) = self.graph.mask(stage)
            && (pn * shape.column_grain <= PARAMS.mapping.most_union_blocks * mask.block_columns()
                || mask.stored_rows().is_some())
        {
            return self.base(stage, shape, mapping, &self.tables.work(stage, &mapping, 1));
        }
        if self.graph.sampled(stage).is_some() {
            return self.base(stage, shape, mapping, &self.tables.work(stage, &mapping, 1));
        }
        let work: Vec<Vec<PassWork>> = ranges
            .iter()
            .map(|(n, k)| {
                let (columns, k) = (n.end - n.start, (k.end - k.start).div_ceil(pk));
                let tiles = columns.div_ceil(shape.column_grain * pn);
                let work = PassWork {
                    cycles: tiles * shape.tile_cycles(k),
                    tiles,
                    columns,
                    stored: columns * k,
                    ..PassWork::default()
                };
                vec![work; pk as usize]
            })
            .collect();
        self.base(stage, shape, mapping, &work)
    }

    /// Cycles of a row pass of `tiles` output tiles that skips nothing, over all column tiles; `None` of what no mask samples.
    fn dense_cycles(&self, stage: StageId, shape: &SystolicShape, tiles: u64) -> Option<u64> {
        self.graph.sampled(stage)?;
        let ranges = self.tables.column_tile_ranges(stage);
        Some(ranges.iter().map(|(_, k)| tiles * shape.tile_cycles(k.end - k.start)).sum())
    }

    fn base(&self, stage: StageId, shape: &SystolicShape, m: GemmMapping, work: &[Vec<PassWork>]) -> Base {
        let in_step_cycles =
            work.iter().map(|column_tile| column_tile.iter().map(|w| w.cycles).max().unwrap_or(0)).sum();
        let groups = (m.k_slice_groups() * m.pk) as usize;
        let tiles_of_pass = work.iter().flatten().map(|work| work.tiles).max().unwrap_or(0);
        let free_cycles =
            (0..groups).map(|b| work.iter().map(|column_tile| column_tile[b].cycles).sum()).max().unwrap_or(0);
        Base {
            rows_on_lanes: m.rows_on_lanes,
            pn: m.pn,
            pk: m.pk,
            reduction: m.reduction,
            multicast_width: m.multicast_width,
            aligned: m.aligned,
            style: m.style,
            in_step_cycles,
            free_cycles,
            dense_cycles: self.dense_cycles(stage, shape, tiles_of_pass),
            tiles_of_pass,
            footprint: StageFootprint::of_gemm(self.graph, stage, shape, m.multicast_width, work),
        }
    }
}

/// A split of the gradient of a sparse weight with `pk` slices of K, of `depth` K rows each: all have the same output tiles,
/// and with private activations a `pk`-th of each copy.
fn sampled_slice(whole: &Base, shape: &SystolicShape, pk: u64, reduction: Reduction, depth: u64) -> Base {
    let slice = |cycles: u64| (cycles.div_ceil(pk) as f64 * PARAMS.mapping.uneven_k_slices) as u64;
    Base {
        pk,
        reduction,
        in_step_cycles: slice(whole.in_step_cycles),
        free_cycles: slice(whole.free_cycles),
        dense_cycles: whole.dense_cycles.map(slice),
        footprint: StageFootprint {
            weight_slot_bytes: whole.footprint.weight_slot_bytes.div_ceil(pk),
            pass_cycles: slice(whole.footprint.pass_cycles),
            ..whole.footprint.with_depth(shape, depth)
        },
        ..*whole
    }
}

/// Drops what another base beats with no more columns of PCUs. Bases with every column on one stream are compared
/// among themselves only: they need fewer copies of the activations. So are those that do not split K: they need no
/// partial sums.
fn undominated(mut bases: Vec<Base>) -> Vec<Base> {
    bases.sort_by_key(|b| (b.pn * b.pk, b.in_step_cycles));
    // Of all, and of those that do not split K: the least, and the least with every column on one stream.
    let mut least = [[u64::MAX; 2]; 2];
    bases.retain(|b| {
        let (shared, whole) = (b.multicast_width == b.pn, b.pk == 1);
        let worth = if whole { 1.0 } else { 1.0 + PARAMS.mapping.worth_splitting_k };
        let beats = |least: u64| (b.in_step_cycles as f64 * worth) < least as f64;
        let [any, among_shared] = least[usize::from(whole)];
        if !(beats(any) || shared && beats(among_shared)) {
            return false;
        }
        for of in &mut least[..=usize::from(whole)] {
            of[0] = of[0].min(b.in_step_cycles);
            if shared {
                of[1] = of[1].min(b.in_step_cycles);
            }
        }
        true
    });
    bases
}
