//! The ways to map each stage of a section for one cut of its axes.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;

use crate::arch::Chip;
use crate::workload::{OperatorId, TensorId};

use super::allocate::{Candidate, Front, StageCandidates, useful_splits};
use super::buffers::{StageExtents, StageRoles, weight_slot_bytes};
use super::gather::{GatherPorts, MOST_COLUMNS};
use super::heads::{heads_extents, heads_mappings, heads_work};
use super::mapping::{
    CostSample, Cut, GemmMapping, Mapping, PassWork, Style, SystolicShape, Tile, TileTable, assign, pass_work, sample,
    tiles,
};
use super::nest::{Cadence, Chunking, LoopOrder, Nest};
use super::reduce::{Reducer, SumsBase, reducer_extents, reducer_mappings, reducer_work, sums_bases};
use super::section_graph::SectionGraph;
use super::simd::simd_mappings;

/// PCU columns on one stream of activations that are tried for sparse weights, beside all of them.
const SHARES: [u64; 3] = [1, 2, 4];

/// The same for gathering.
const GATHER_SHARES: [u64; 3] = [1, 2, 4];

/// Beyond this many block columns on one stream their union is taken as dense while searching.
const MOST_UNION_BLOCKS: u64 = 16;

/// While searching, one in so many tiles of a fine mask is looked at.
const LOOKED_AT_OF: usize = 16;

/// Blocks from which on a mask is fine.
const FINE_BLOCKS: u64 = 1 << 22;

/// Rows of a section up to which tokens need not be multiples of what PCUs take at once.
const FEW_ROWS: u64 = 64;

/// Work of a GEMM stage for one choice of columns, for one row pass over all chunks.
#[derive(Debug, Clone, Copy)]
struct Base {
    rows_on_lanes: bool,
    pn: u64,
    share: u64,
    aligned: bool,
    style: Style,
    /// Busiest bundle of each chunk, summed.
    in_step_cycles: u64,
    /// Busiest bundle over all chunks.
    free_cycles: u64,
    extents: StageExtents,
}

/// Columns and K rows of a weight that a chunk uses.
type WeightRange = (Range<u64>, Range<u64>);

/// Stage, width of a tile, whether tiles are aligned, how they are worked through, and rows of a pass where that counts.
type TableKey = (usize, u64, bool, Style, u64);

/// What fixes the bases of a stage: weight, functions in its tail, the cut of its weight, and the gradient it samples.
type BaseKey = (TensorId, usize, Option<(CutOf, u64)>, Option<TensorId>);

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
}

/// What fixes the mappings of a stage without a weight of its own, or with heads: its operator and functions in its tail,
/// whether it adds up, rows of the section and of a token, chunks it waits through, the cut that it walks, and the way it
/// must lie.
type MappingsKey = (OperatorId, usize, bool, (u64, u64), u64, Option<(bool, u64)>, Option<bool>);

/// What fixes the bases of a stage that adds up over rows: its result, the cut of it, and the rows of a token where they
/// count.
type SumsKey = (TensorId, Option<(CutOf, u64)>, u64);

/// Depth in K rows of every column tile of a GEMM stage's row pass, in the order its bundle does them:
/// `[chunk][bundle][tile]`, one chunk if the cut does not touch the stage. What [`super::Stage::work`] sums up.
pub fn tile_depths(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    chunking: Option<Chunking>,
    stage: usize,
    mapping: &GemmMapping,
) -> Vec<Vec<Vec<u64>>> {
    StageBases::without_splits(chip, graph, chunking).depths(stage, mapping)
}

/// Column tiles of a GEMM stage's row pass in the order its bundles do them: `[chunk][bundle][tile]`, one chunk if the
/// cut does not touch the stage. What [`super::Stage::work`] sums up.
pub fn tile_lists(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    chunking: Option<Chunking>,
    stage: usize,
    mapping: &GemmMapping,
) -> Vec<Vec<Vec<Tile>>> {
    StageBases::without_splits(chip, graph, chunking).tile_lists(stage, mapping)
}

/// GEMM work of every stage under one cut, computed once for all token sizes.
#[derive(Debug)]
pub struct StageBases<'a> {
    chip: &'a Chip,
    graph: &'a SectionGraph<'a>,
    chunking: Option<Chunking>,
    stages: Vec<Arc<Vec<Base>>>,
    cache: Option<&'a BaseCache>,
    tables: RefCell<FxHashMap<TableKey, Rc<TileTable>>>,
    /// Work is exact; else, while searching, that of fine masks is estimated from a sample of tiles.
    exact: bool,
}

impl<'a> StageBases<'a> {
    /// Works out every column split of every GEMM stage.
    pub fn new(chip: &'a Chip, graph: &'a SectionGraph<'a>, chunking: Option<Chunking>, cache: &'a BaseCache) -> Self {
        let mut bases = Self::without_splits(chip, graph, chunking);
        bases.exact = false;
        bases.cache = Some(cache);
        bases.stages = (0..graph.stages.len()).map(|s| bases.cached(s, cache)).collect();
        bases
    }

    /// The cut.
    pub fn chunking(&self) -> Option<Chunking> {
        self.chunking
    }

    /// Without column splits: for exact work of mappings that are already chosen.
    pub fn without_splits(chip: &'a Chip, graph: &'a SectionGraph<'a>, chunking: Option<Chunking>) -> Self {
        Self { chip, graph, chunking, stages: Vec::new(), cache: None, tables: RefCell::default(), exact: true }
    }

    fn cached(&self, stage: usize, cache: &BaseCache) -> Arc<Vec<Base>> {
        let spec = &self.graph.stages[stage];
        let Some(weight) = spec.weight.filter(|_| self.graph.form(stage).is_none()) else { return Arc::default() };
        let cut = self.chunking.and_then(|cut| {
            if self.graph.row_axis(weight) == Some(cut.axis) {
                Some((CutOf::Rows, cut.width))
            } else if self.graph.column_axis(weight) == Some(cut.axis) {
                Some((CutOf::Columns, cut.width))
            } else {
                None
            }
        });
        let key = (weight, spec.tail.len(), cut, self.graph.sampled(stage).map(|_| spec.output));
        // A thread that panicked holding the lock left a whole map behind.
        let known = cache.weights.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        known.unwrap_or_else(|| {
            let bases = Arc::new(self.of_stage(stage));
            cache.weights.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&bases));
            bases
        })
    }

    /// Useful mappings of a stage, worked out once for all sections it is in.
    fn known(
        &self,
        stage: usize,
        (nest, roles): (&Nest, &StageRoles),
        turned: Option<bool>,
        work_out: impl FnOnce() -> StageCandidates,
    ) -> StageCandidates {
        let Some(cache) = self.cache else { return work_out() };
        let spec = &self.graph.stages[stage];
        let stretch = stretch(nest, roles, stage, spec.weight.is_none() && spec.sums.is_none());
        let walked = self.chunking.filter(|_| roles.cadence[stage] == Cadence::Firing);
        let cut = walked.map(|cut| (self.graph.row_axis(spec.output) == Some(cut.axis), cut.width));
        let rows = (self.graph.rows, nest.token_rows);
        let key = (spec.main, spec.tail.len(), spec.sums.is_some(), rows, stretch, cut, turned);
        let known = cache.mappings.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        known.unwrap_or_else(|| {
            let found = work_out();
            cache.mappings.lock().unwrap_or_else(PoisonError::into_inner).insert(key, found.clone());
            found
        })
    }

    /// Useful mappings of a stage that adds up over rows.
    pub fn sums(&self, stage: usize, token_rows: u64) -> Arc<Vec<SumsBase>> {
        let output = self.graph.stages[stage].output;
        let cut = self.chunking.and_then(|cut| {
            if self.graph.row_axis(output) == Some(cut.axis) {
                Some((CutOf::Rows, cut.width))
            } else if self.graph.column_axis(output) == Some(cut.axis) {
                Some((CutOf::Columns, cut.width))
            } else {
                None
            }
        });
        let is_causal = self.graph.form(stage).is_some_and(|form| form.causal.is_some());
        let token_rows = if is_causal { token_rows } else { 1 };
        let work = || {
            let shape = |rows_on_lanes| self.shape(stage, rows_on_lanes);
            Arc::new(sums_bases(self.chip, self.graph, self.chunking, stage, token_rows, shape))
        };
        let Some(cache) = self.cache else { return work() };
        let key = (output, cut, token_rows);
        let known = cache.sums.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        known.unwrap_or_else(|| {
            let bases = work();
            cache.sums.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&bases));
            bases
        })
    }

    /// Whether any weight is sparse.
    pub fn has_masks(&self) -> bool {
        (0..self.graph.stages.len()).any(|s| self.graph.mask(s).or(self.graph.sampled(s)).is_some())
    }

    /// Row grains that tokens should be multiples of.
    pub fn row_grains(&self) -> Vec<u64> {
        let mut grains: Vec<u64> = Vec::new();
        for stage in 0..self.graph.stages.len() {
            let gemm = self.graph.stages[stage].weight.is_some();
            for rows_on_lanes in [false, true] {
                let shape = gemm.then(|| self.shape(stage, rows_on_lanes)).flatten();
                grains.push(shape.map_or(1, |s| s.row_grain));
            }
        }
        grains.sort_unstable();
        grains.dedup();
        // Of few rows, every number is worth a try.
        if grains.len() > 1 && self.graph.rows > FEW_ROWS {
            grains.retain(|&g| g > 1);
        }
        grains
    }

    /// The array shape of a GEMM stage; `None` if the chip lacks the data type.
    pub fn shape(&self, stage: usize, rows_on_lanes: bool) -> Option<SystolicShape> {
        let tail = self.graph.stages[stage].tail.len() as u64;
        let partials = self.graph.is_k_cut(self.chunking, stage) || self.graph.stages[stage].sums.is_some();
        SystolicShape::new(self.chip, self.graph.stage_dtype(stage), rows_on_lanes, tail, partials)
    }

    fn styled(&self, stage: usize, rows_on_lanes: bool, style: Style) -> Option<SystolicShape> {
        let dtype = self.graph.stage_dtype(stage);
        self.shape(stage, rows_on_lanes).map(|shape| shape.in_style(self.chip, dtype, style))
    }

    /// Columns and K rows of a stage's weight in each chunk, and whether columns repeat.
    fn chunk_ranges(&self, stage: usize) -> (Vec<WeightRange>, bool) {
        let Some(weight) = self.graph.stages[stage].weight else { return (Vec::new(), true) };
        let tensor = &self.graph.workload.tensors[weight];
        let (n, k) = (0..tensor.columns, 0..tensor.rows);
        let Some(cut) = self.chunking else { return (vec![(n, k)], true) };
        let chunks = cut.extent.div_ceil(cut.width);
        let range = |c: u64| c * cut.width..cut.extent.min((c + 1) * cut.width);
        if self.graph.row_axis(weight) == Some(cut.axis) {
            ((0..chunks).map(|c| (n.clone(), range(c))).collect(), true)
        } else if self.graph.column_axis(weight) == Some(cut.axis) {
            ((0..chunks).map(|c| (range(c), k.clone())).collect(), false)
        } else {
            (vec![(n, k)], true)
        }
    }

    /// Tiles of a stage; a pass of all row slices has `rows` rows.
    fn table(&self, stage: usize, width: u64, aligned: bool, style: Style, rows: u64) -> Rc<TileTable> {
        let sampled = self.graph.sampled(stage);
        let key = (stage, width, aligned, style, if sampled.is_some() { rows } else { 0 });
        if let Some(table) = self.tables.borrow().get(&key) {
            return Rc::clone(table);
        }
        let gather = (style == Style::Gather).then(|| GatherPorts::new(self.chip));
        let fine = self.graph.mask(stage).is_some_and(|mask| mask.k_blocks() * mask.n_blocks() > FINE_BLOCKS);
        let cut = Cut { width, aligned, gather, looked_at_of: if fine && !self.exact { LOOKED_AT_OF } else { 1 } };
        let (ranges, same_columns) = self.chunk_ranges(stage);
        let mask = self.graph.mask(stage);
        let mut chunks: Vec<Vec<Tile>> = ranges.into_iter().map(|(n, k)| tiles(mask, n, k, &cut)).collect();
        if let Some(mask) = sampled {
            for list in &mut chunks {
                sample(list, mask, rows);
            }
        }
        let table = Rc::new(TileTable { chunks, same_columns });
        self.tables.borrow_mut().insert(key, Rc::clone(&table));
        table
    }

    /// Sizes that follow from the exact work of a mapping.
    pub fn extents(&self, stage: usize, mapping: &GemmMapping, work: &[Vec<PassWork>]) -> StageExtents {
        let Some(shape) = self.styled(stage, mapping.rows_on_lanes, mapping.style) else {
            return StageExtents::default();
        };
        if let Some(reducer) = Reducer::new(self.graph, self.chunking, 1, stage, mapping, &shape) {
            return reducer_extents(&reducer, &shape);
        }
        if let Some(form) = self.graph.form(stage) {
            return heads_extents(self.graph, stage, &form, &shape, mapping);
        }
        let mut extents = StageExtents::of_gemm(self.graph, stage, &shape, mapping.share, work);
        if mapping.share > 1 {
            // Columns of PCUs on one stream neither store alike nor divide every tile evenly: the fullest counts.
            let mask = self.graph.mask(stage);
            let (ranges, _) = self.chunk_ranges(stage);
            let lists = self.tile_lists(stage, mapping);
            let (mut stored, mut columns) = (0, 0);
            for (bundles, (_, k)) in lists.iter().zip(&ranges) {
                for (list, q) in bundles.iter().flat_map(|list| (0..mapping.share).map(move |q| (list, q))) {
                    let mine = || list.iter().map(|tile| tile.columns_of(q, mapping.share));
                    let depth = |n: Range<u64>| match mask {
                        Some(mask) => mask.stored_in(n, k.clone()),
                        None => (n.end - n.start) * (k.end - k.start),
                    };
                    stored = stored.max(mine().map(depth).sum());
                    columns = columns.max(mine().map(|n| n.end - n.start).sum());
                }
            }
            extents.weight_slot_bytes = weight_slot_bytes(self.graph, stage, stored);
            extents.columns_per_pcu = columns;
        }
        extents
    }

    /// Exact work of a GEMM stage, `[chunk][bundle]` (a stage that the cut does not touch has one chunk). Tokens of
    /// `token_rows` matter to causal attention only.
    pub fn work(&self, stage: usize, mapping: &GemmMapping, token_rows: u64) -> Vec<Vec<PassWork>> {
        let Some(shape) = self.styled(stage, mapping.rows_on_lanes, mapping.style) else { return Vec::new() };
        if let Some(reducer) = Reducer::new(self.graph, self.chunking, token_rows, stage, mapping, &shape) {
            return reducer_work(&reducer, &shape, self.chunking, token_rows);
        }
        if let Some(form) = self.graph.form(stage) {
            return vec![vec![heads_work(&form, &shape, mapping, token_rows)]];
        }
        let rows = shape.row_grain * mapping.pm;
        let table = self.table(stage, shape.column_grain * mapping.share, mapping.aligned, mapping.style, rows);
        let assignment = assign(&table, mapping.pn / mapping.share, |t| shape.cycles(t));
        pass_work(&shape, &table, &assignment, mapping.share)
    }

    /// Most useful `pm` and bundles of a GEMM stage under a mapping's orientation and grouping; `None` if the chip lacks
    /// the data type.
    pub fn most_splits(&self, stage: usize, mapping: &GemmMapping, nest: &Nest) -> Option<(u64, u64)> {
        let shape = self.shape(stage, mapping.rows_on_lanes)?;
        if self.graph.stages[stage].sums.is_some() {
            let one = GemmMapping { pm: 1, pn: 1, share: 1, streams: 1, ..*mapping };
            let reducer = Reducer::new(self.graph, self.chunking, nest.token_rows, stage, &one, &shape)?;
            return Some(reducer.most_splits());
        }
        let rows = shape.row_grain * mapping.pm;
        let table = self.table(stage, shape.column_grain * mapping.share, mapping.aligned, mapping.style, rows);
        let bundles = table.chunks.iter().map(Vec::len).max().unwrap_or(1) as u64;
        Some((nest.token_rows.div_ceil(shape.row_grain), bundles))
    }

    /// Depth in K rows of every column tile of a bundle's row pass, in order: `[chunk][bundle]`.
    fn depths(&self, stage: usize, mapping: &GemmMapping) -> Vec<Vec<Vec<u64>>> {
        if self.graph.stages[stage].sums.is_some() {
            // As deep as a token has rows.
            return Vec::new();
        }
        let Some(shape) = self.styled(stage, mapping.rows_on_lanes, mapping.style) else { return Vec::new() };
        let rows = shape.row_grain * mapping.pm;
        let table = self.table(stage, shape.column_grain * mapping.share, mapping.aligned, mapping.style, rows);
        let assignment = assign(&table, mapping.pn / mapping.share, |t| shape.cycles(t));
        let depths = |tiles: &[Tile], list: &[u32]| list.iter().map(|&t| tiles[t as usize].k).collect();
        let chunks = table.chunks.iter().zip(&assignment);
        chunks.map(|(tiles, lists)| lists.iter().map(|list| depths(tiles, list)).collect()).collect()
    }

    /// Column tiles of a bundle's row pass, in order: `[chunk][bundle]`.
    fn tile_lists(&self, stage: usize, mapping: &GemmMapping) -> Vec<Vec<Vec<Tile>>> {
        if self.graph.stages[stage].sums.is_some() {
            return Vec::new();
        }
        let Some(shape) = self.styled(stage, mapping.rows_on_lanes, mapping.style) else { return Vec::new() };
        let rows = shape.row_grain * mapping.pm;
        let table = self.table(stage, shape.column_grain * mapping.share, mapping.aligned, mapping.style, rows);
        let assignment = assign(&table, mapping.pn / mapping.share, |t| shape.cycles(t));
        let pick = |tiles: &[Tile], list: &[u32]| list.iter().map(|&t| tiles[t as usize]).collect();
        let chunks = table.chunks.iter().zip(&assignment);
        chunks.map(|(tiles, lists)| lists.iter().map(|list| pick(tiles, list)).collect()).collect()
    }

    fn of_stage(&self, stage: usize) -> Vec<Base> {
        if self.graph.stages[stage].weight.is_none() {
            return Vec::new();
        }
        let mut list = Vec::new();
        let (ranges, _) = self.chunk_ranges(stage);
        let widest = ranges.iter().map(|(n, _)| n.end - n.start).max().unwrap_or(1);
        for rows_on_lanes in [false, true] {
            let Some(shape) = self.shape(stage, rows_on_lanes) else { continue };
            let mut bases = Vec::new();
            for pn in useful_splits(widest.div_ceil(shape.column_grain), self.chip.pcus_per_operator()) {
                bases.push(self.dense_like(stage, &shape, rows_on_lanes, pn, &ranges));
            }
            if let Some(mask) = self.graph.mask(stage).or(self.graph.sampled(stage)) {
                // As many columns of PCUs as one block of the mask is wide skip alike.
                let of_a_block = mask.block_columns().div_ceil(shape.column_grain);
                let mut shares = SHARES.to_vec();
                shares.extend([of_a_block, 2 * of_a_block]);
                shares.retain(|&share| share <= self.chip.pcus_per_operator() && share <= 16);
                shares.sort_unstable();
                shares.dedup();
                for share in shares {
                    self.sparse_bases(
                        stage,
                        &shape,
                        rows_on_lanes,
                        (share, Style::Skip),
                        mask.block_columns(),
                        &mut bases,
                    );
                }
                // Tokens lie along the lanes, and where one block is as wide as a tile there is nothing to gain.
                let is_weight = self.graph.mask(stage).is_some();
                if is_weight && rows_on_lanes && mask.block_columns() < shape.column_grain {
                    let gathering = shape.in_style(self.chip, self.graph.stage_dtype(stage), Style::Gather);
                    for share in GATHER_SHARES.into_iter().filter(|share| share * shape.column_grain <= MOST_COLUMNS) {
                        let kind = (share, Style::Gather);
                        self.sparse_bases(stage, &gathering, rows_on_lanes, kind, mask.block_columns(), &mut bases);
                    }
                }
            }
            list.extend(undominated(bases));
        }
        list
    }

    /// Sparse columns in bundles of `share`, each skipping on its own.
    fn sparse_bases(
        &self,
        stage: usize,
        shape: &SystolicShape,
        rows_on_lanes: bool,
        (share, style): (u64, Style),
        block: u64,
        bases: &mut Vec<Base>,
    ) {
        let width = shape.column_grain * share;
        let aligned_too =
            self.graph.mask(stage).is_some() && !block.is_multiple_of(width) && !width.is_multiple_of(block);
        let mut loads = Vec::new();
        for aligned in [false, true] {
            if aligned && !aligned_too {
                continue;
            }
            let table = self.table(stage, width, aligned, style, shape.row_grain);
            let sample = CostSample::new(&table, |t| shape.cycles(t));
            let most_tiles = table.chunks.iter().map(Vec::len).max().unwrap_or(1) as u64;
            let stored = table.chunks.iter().map(|c| c.iter().map(|t| t.stored).sum::<u64>()).max().unwrap_or(0);
            let columns = table.chunks.iter().map(|c| c.iter().map(|t| t.columns).sum::<u64>()).max().unwrap_or(0);
            for bundles in useful_splits(most_tiles, self.chip.pcus_per_operator() / share) {
                // Beaten by one that is there already, as [`undominated`] will find.
                let least = sample.least_in_step(bundles);
                if bundles > 1 && bases.iter().any(|b| b.pn <= bundles * share && b.in_step_cycles <= least) {
                    continue;
                }
                let (in_step_cycles, free_cycles) = sample.balance(bundles, &mut loads);
                // Room for an uneven split; the chosen mapping is measured exactly.
                let uneven = |total: u64| (total.div_ceil(bundles) * 5 / 4).min(total);
                let work = PassWork { stored: uneven(stored), columns: uneven(columns), ..PassWork::default() };
                bases.push(Base {
                    rows_on_lanes,
                    pn: bundles * share,
                    share,
                    aligned,
                    style,
                    in_step_cycles,
                    free_cycles,
                    extents: StageExtents::of_gemm(self.graph, stage, shape, share, &[vec![work]]),
                });
            }
        }
    }

    /// All columns of PCUs on one stream: one bundle, no assignment to search.
    fn dense_like(
        &self,
        stage: usize,
        shape: &SystolicShape,
        rows_on_lanes: bool,
        pn: u64,
        ranges: &[WeightRange],
    ) -> Base {
        let mapping =
            GemmMapping { rows_on_lanes, pm: 1, pn, share: pn, streams: 1, aligned: false, style: Style::Skip };
        if let Some(mask) = self.graph.mask(stage)
            && pn * shape.column_grain <= MOST_UNION_BLOCKS * mask.block_columns()
        {
            return self.base(stage, shape, mapping, &self.work(stage, &mapping, 1));
        }
        if self.graph.sampled(stage).is_some() {
            return self.base(stage, shape, mapping, &self.work(stage, &mapping, 1));
        }
        let work: Vec<Vec<PassWork>> = ranges
            .iter()
            .map(|(n, k)| {
                let (columns, k) = (n.end - n.start, k.end - k.start);
                let tiles = columns.div_ceil(shape.column_grain * pn);
                vec![PassWork {
                    cycles: tiles * shape.tile_cycles(k),
                    tiles,
                    columns,
                    stored: columns * k,
                    ..PassWork::default()
                }]
            })
            .collect();
        self.base(stage, shape, mapping, &work)
    }

    fn base(&self, stage: usize, shape: &SystolicShape, m: GemmMapping, work: &[Vec<PassWork>]) -> Base {
        let in_step_cycles = work.iter().map(|chunk| chunk.iter().map(|w| w.cycles).max().unwrap_or(0)).sum();
        let bundles = (m.pn / m.share) as usize;
        let free_cycles = (0..bundles).map(|b| work.iter().map(|chunk| chunk[b].cycles).sum()).max().unwrap_or(0);
        Base {
            rows_on_lanes: m.rows_on_lanes,
            pn: m.pn,
            share: m.share,
            aligned: m.aligned,
            style: m.style,
            in_step_cycles,
            free_cycles,
            extents: StageExtents::of_gemm(self.graph, stage, shape, m.share, work),
        }
    }
}

/// Drops what another base beats with no more columns of PCUs. Bases with every column on one stream are compared
/// among themselves only: they need fewer copies of the activations.
fn undominated(mut bases: Vec<Base>) -> Vec<Base> {
    bases.sort_by_key(|b| (b.pn, b.in_step_cycles));
    let (mut least_any, mut least_shared) = (u64::MAX, u64::MAX);
    bases.retain(|b| {
        let shared = b.share == b.pn;
        let keeps = b.in_step_cycles < least_any || (shared && b.in_step_cycles < least_shared);
        least_any = least_any.min(b.in_step_cycles);
        if shared {
            least_shared = least_shared.min(b.in_step_cycles);
        }
        keeps
    });
    bases
}

/// The useful mappings of one stage in a nest. With `private` false, sparse weights are only tried with every column
/// of PCUs on one stream (fewer copies of the activations); with `turned`, only with tokens along the lanes, or across.
#[expect(clippy::too_many_arguments, reason = "what a stage is, and two filters")]
pub fn stage_candidates(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    bases: &StageBases<'_>,
    nest: &Nest,
    roles: &StageRoles,
    stage: usize,
    private: bool,
    turned: Option<bool>,
) -> StageCandidates {
    if graph.stages[stage].weight.is_some() && graph.form(stage).is_none() {
        let mut front = Front::default();
        let offer = |candidate: Candidate| front.offer(&candidate);
        gemm_mappings(chip, graph, bases, nest, roles, stage, private, turned, offer);
        return front.finish();
    }
    bases.known(stage, (nest, roles), turned, || {
        if let Some(form) = graph.form(stage).filter(|_| graph.stages[stage].weight.is_some()) {
            let mut front = Front::default();
            let offer = |candidate: Candidate| front.offer(&candidate);
            heads_mappings(chip, graph, bases, nest, roles, stage, &form, offer);
            return front.finish();
        }
        StageCandidates::pareto(stage_mappings(chip, graph, bases, nest, roles, stage, private, turned))
    })
}

/// As [`stage_candidates`], with those that others beat.
#[expect(clippy::too_many_arguments, reason = "what a stage is, and two filters")]
pub fn stage_mappings(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    bases: &StageBases<'_>,
    nest: &Nest,
    roles: &StageRoles,
    stage: usize,
    private: bool,
    turned: Option<bool>,
) -> Vec<Candidate> {
    if graph.stages[stage].sums.is_some() {
        return reducer_mappings(graph, bases, nest, roles, stage, turned);
    }
    if graph.stages[stage].weight.is_none() {
        return simd_mappings(chip, graph, nest, roles, stage);
    }
    if let Some(form) = graph.form(stage) {
        let mut list = Vec::new();
        heads_mappings(chip, graph, bases, nest, roles, stage, &form, |candidate| list.push(candidate));
        return list;
    }
    let mut list = Vec::new();
    gemm_mappings(chip, graph, bases, nest, roles, stage, private, turned, |candidate| list.push(candidate));
    list
}

/// Offers the mappings of a GEMM stage with one weight.
#[expect(clippy::too_many_arguments, reason = "what a stage is, two filters, and who is told")]
fn gemm_mappings(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    bases: &StageBases<'_>,
    nest: &Nest,
    roles: &StageRoles,
    stage: usize,
    private: bool,
    turned: Option<bool>,
    mut offer: impl FnMut(Candidate),
) {
    let stretch = stretch(nest, roles, stage, false);
    let full_tokens = graph.rows / nest.token_rows;
    let last_rows = graph.rows % nest.token_rows;
    for rows_on_lanes in [false, true].into_iter().filter(|&way| turned.is_none_or(|turned| turned == way)) {
        let Some(shape) = bases.shape(stage, rows_on_lanes) else { continue };
        let of_shape: Vec<&Base> = bases.stages[stage]
            .iter()
            .filter(|b| b.rows_on_lanes == rows_on_lanes && (private || b.share == b.pn))
            .collect();
        for pm in useful_splits(nest.token_rows.div_ceil(shape.row_grain), chip.pcus_per_operator()) {
            let last_passes = if last_rows == 0 { 0 } else { shape.passes(last_rows, pm) };
            let passes = full_tokens * shape.passes(nest.token_rows, pm) + last_passes;
            for base in &of_shape {
                let pcus = pm * base.pn;
                if pcus > chip.pcus_per_operator() {
                    continue;
                }
                let each = if nest.order == LoopOrder::ChunkOuter { base.in_step_cycles } else { base.free_cycles };
                let Base { rows_on_lanes, pn, share, aligned, style, .. } = **base;
                offer(Candidate {
                    pcus,
                    cycles: each.saturating_mul(passes).saturating_mul(stretch),
                    stretch,
                    mapping: Mapping::Gemm(GemmMapping { rows_on_lanes, pm, pn, share, streams: 1, aligned, style }),
                    extents: base.extents,
                });
            }
        }
    }
}

/// With chunks outermost, a stage off the cut works during the first chunk or the last only, while the others work
/// in all. A GEMM behind an accumulating stage is left out: it overlaps with the next row block instead.
pub(super) fn stretch(nest: &Nest, roles: &StageRoles, stage: usize, simd: bool) -> u64 {
    let off_cut = roles.cadence[stage] == Cadence::Token && nest.order == LoopOrder::ChunkOuter;
    if off_cut && (simd || !roles.is_late(stage)) { nest.chunks() } else { 1 }
}
