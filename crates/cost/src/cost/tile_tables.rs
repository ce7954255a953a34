//! Column tiles of a stage's weight, lockstep group by lockstep group, and what they cost.

use rdusim_base::units::index;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use rdusim_graph::arch::Chip;
use rdusim_program::{
    GemmMapping, HeadsTile, Nest, OutputTile, PassWork, SectionGraph, StageId, Style, TileLists, TiledAxis, k_slice,
};

use super::array::SystolicShape;
use super::assignment::{Assignment, TileTable, assign, pass_work};
use super::footprint::{StageFootprint, weight_slot_bytes};
use super::gather::GatherPorts;
use super::heads::{heads_footprint, heads_work};
use super::reducer::{Reducer, reducer_footprint, reducer_work};
use super::tiles::{Cut, Tile, sample, tiles};

/// While searching, one in so many tiles of a fine mask is counted.
const ONE_IN: usize = 16;

/// Blocks from which on a mask is fine.
const FINE_BLOCKS: u64 = 1 << 22;

/// Columns and K rows of a weight that a column tile uses.
pub type WeightRange = (Range<u64>, Range<u64>);

/// Stage, width of a tile, whether tiles are aligned, how they are worked through, slices of K, and rows of a pass where
/// that counts.
type TableKey = (StageId, u64, bool, Style, u64, u64);

/// Column tiles of every GEMM stage of a section under one cut of its axes, worked out when they are asked for.
#[derive(Debug)]
pub struct TileTables<'a> {
    chip: &'a Chip,
    graph: &'a SectionGraph<'a>,
    tiled_axis: Option<TiledAxis>,
    tables: RefCell<FxHashMap<TableKey, Rc<TileTable>>>,
    /// Work is exact; else, while searching, that of fine masks is estimated from a sample of tiles.
    exact: bool,
}

impl<'a> TileTables<'a> {
    /// Exact tiles.
    pub fn new(chip: &'a Chip, graph: &'a SectionGraph<'a>, tiled_axis: Option<TiledAxis>) -> Self {
        Self { chip, graph, tiled_axis, tables: RefCell::default(), exact: true }
    }

    /// Tiles for a search: those of fine masks are estimated from a sample.
    pub fn sampled(chip: &'a Chip, graph: &'a SectionGraph<'a>, tiled_axis: Option<TiledAxis>) -> Self {
        Self { exact: false, ..Self::new(chip, graph, tiled_axis) }
    }

    /// The cut.
    pub fn tiled_axis(&self) -> Option<TiledAxis> {
        self.tiled_axis
    }

    /// The array shape of a GEMM stage; `None` if the chip lacks the data type.
    pub fn shape(&self, stage: StageId, rows_on_lanes: bool) -> Option<SystolicShape> {
        self.shape_of(stage, rows_on_lanes, 0)
    }

    /// The same for a stage with `pk` slices of K.
    pub fn shape_of(&self, stage: StageId, rows_on_lanes: bool, most_sums: u64) -> Option<SystolicShape> {
        let tail = self.graph.tail_functions(stage);
        let kept = self.graph.is_k_cut(self.tiled_axis, stage) || self.graph.stages[stage].sums.is_some();
        let sums = most_sums.max(u64::from(kept));
        SystolicShape::new(self.chip, self.graph.stage_dtype(stage), rows_on_lanes, tail, sums)
            .map(|shape| shape.with_lines(self.graph.lines_of_row(stage)))
    }

    /// The same under a mapping.
    pub fn styled(&self, stage: StageId, mapping: &GemmMapping) -> Option<SystolicShape> {
        let dtype = self.graph.stage_dtype(stage);
        let shape = self.shape_of(stage, mapping.rows_on_lanes, mapping.reduction.most_before(mapping.pk));
        shape.map(|shape| shape.in_style(self.chip, dtype, mapping.style))
    }

    /// Columns and K rows of a stage's weight in each column tile.
    pub fn column_tile_ranges(&self, stage: StageId) -> Vec<WeightRange> {
        weight_ranges(self.graph, self.tiled_axis, stage)
    }

    /// Column tiles in a row that have the same columns of a stage's weight: all, those of a panel, or one.
    fn tiles_of_columns(&self, stage: StageId) -> usize {
        let weight = self.graph.stages[stage].weight;
        let is_along = |cut: &TiledAxis| cut.is_along(weight.and_then(|weight| self.graph.column_axis(weight)));
        match self.tiled_axis {
            Some(cut) if is_along(&cut) => 1,
            Some(cut) => index(cut.tiles_of_panel()),
            None => 1,
        }
    }

    /// Tiles of a stage under a mapping: a list for each slice of K in each column tile.
    fn table_of(&self, stage: StageId, shape: &SystolicShape, mapping: &GemmMapping) -> Rc<TileTable> {
        let GemmMapping { pm, pk, multicast_width, aligned, style, .. } = *mapping;
        self.table(stage, shape.column_grain * multicast_width, aligned, style, pk, shape.row_grain * pm)
    }

    /// Tiles of a stage, a list for each of `pk` slices of K in each column tile; a pass of all row slices has `rows` rows.
    pub fn table(&self, stage: StageId, width: u64, aligned: bool, style: Style, pk: u64, rows: u64) -> Rc<TileTable> {
        let sampled = self.graph.sampled(stage);
        let key = (stage, width, aligned, style, pk, if sampled.is_some() { rows } else { 0 });
        if let Some(table) = self.tables.borrow().get(&key) {
            return Rc::clone(table);
        }
        let gather = (style == Style::Gather).then(|| GatherPorts::new(self.chip));
        let fine = self.graph.mask(stage).is_some_and(|mask| mask.k_blocks() * mask.n_blocks() > FINE_BLOCKS);
        let cut = Cut { width, aligned, gather, one_in: if fine && !self.exact { ONE_IN } else { 1 } };
        let ranges = self.column_tile_ranges(stage);
        let same_columns = self.tiles_of_columns(stage) * index(pk);
        let (mask, grain) = (self.graph.mask(stage), self.graph.k_grain(stage));
        let slices = |(n, k): WeightRange| (0..pk).map(move |slice| (n.clone(), k_slice(&k, slice, pk, grain)));
        let mut column_tiles: Vec<Vec<Tile>> =
            ranges.into_iter().flat_map(slices).map(|(n, k)| tiles(mask, n, k, &cut)).collect();
        if let Some(mask) = sampled {
            for list in &mut column_tiles {
                sample(list, mask, rows);
            }
        }
        let table = Rc::new(TileTable { column_tiles, same_columns });
        self.tables.borrow_mut().insert(key, Rc::clone(&table));
        table
    }

    /// Tiles of a stage under a mapping, and which lockstep group does which.
    fn assigned(&self, stage: StageId, mapping: &GemmMapping) -> Option<(SystolicShape, Rc<TileTable>, Assignment)> {
        let shape = self.styled(stage, mapping)?;
        let table = self.table_of(stage, &shape, mapping);
        let assignment = dealt(&table, &shape, mapping);
        Some((shape, table, assignment))
    }

    /// Sizes that follow from the exact work of a mapping.
    pub fn footprint(
        &self,
        stage: StageId,
        mapping: &GemmMapping,
        work: &[Vec<PassWork>],
        tiles: &TileLists,
        tile_rows: u64,
    ) -> StageFootprint {
        let Some(shape) = self.styled(stage, mapping) else {
            return StageFootprint::default();
        };
        if let Some(reducer) = Reducer::new(self.graph, self.tiled_axis, 1, stage, mapping, &shape) {
            return reducer_footprint(&reducer, &shape);
        }
        if let Some(HeadsTile { form, .. }) = self.graph.heads_tile(self.tiled_axis, stage) {
            return heads_footprint(self.graph, stage, &form, &shape, mapping, tile_rows);
        }
        let mut footprint = StageFootprint::of_gemm(self.graph, stage, &shape, mapping.multicast_width, work);
        if self.graph.sampled(stage).is_some() {
            let ranges = self.column_tile_ranges(stage);
            let deepest = ranges.iter().map(|(_, k)| (k.end - k.start).div_ceil(mapping.pk)).max().unwrap_or(0);
            footprint = footprint.with_depth(&shape, deepest);
        }
        if mapping.multicast_width > 1 {
            // Columns of PCUs on one stream neither store as much nor divide every tile evenly: the fullest counts.
            let (mask, grain) = (self.graph.mask(stage), self.graph.k_grain(stage));
            let ranges = self.column_tile_ranges(stage);
            let (mut stored, mut columns) = (0, 0);
            for (groups, (_, k)) in tiles.iter().zip(&ranges) {
                for (group, list) in (0..).zip(groups) {
                    let k = k_slice(k, mapping.k_slice(group), mapping.pk, grain);
                    let depth = |n: Range<u64>| match mask {
                        Some(mask) => mask.stored_in(n, k.clone()),
                        None => (n.end - n.start) * (k.end - k.start),
                    };
                    for q in 0..mapping.multicast_width {
                        let mine = || list.iter().map(|tile| tile.columns_of(q, mapping.multicast_width));
                        stored = stored.max(mine().map(depth).sum());
                        columns = columns.max(mine().map(|n| n.end - n.start).sum());
                    }
                }
            }
            footprint.weight_slot_bytes = weight_slot_bytes(self.graph, stage, stored);
            footprint.columns_per_pcu = columns;
        }
        footprint
    }

    /// Exact work of a GEMM stage, `[column_tile][group]` (a stage that the cut does not touch has one column tile). Row tiles of
    /// `tile_rows` matter to causal attention only.
    pub fn work(&self, stage: StageId, mapping: &GemmMapping, tile_rows: u64) -> Vec<Vec<PassWork>> {
        if let Some(work) = self.undealt_work(stage, mapping, tile_rows) {
            return work;
        }
        let Some((shape, table, assignment)) = self.assigned(stage, mapping) else { return Vec::new() };
        by_column_tile(pass_work(&shape, &table, &assignment, mapping.multicast_width), mapping.pk)
    }

    /// Exact work of a GEMM stage, and the output tiles that make it.
    pub fn work_and_tiles(
        &self,
        stage: StageId,
        mapping: &GemmMapping,
        tile_rows: u64,
    ) -> (Vec<Vec<PassWork>>, TileLists) {
        if let Some(work) = self.undealt_work(stage, mapping, tile_rows) {
            return (work, TileLists::default());
        }
        let Some((shape, table, assignment)) = self.assigned(stage, mapping) else {
            return (Vec::new(), TileLists::default());
        };
        let work = pass_work(&shape, &table, &assignment, mapping.multicast_width);
        let pick = |tiles: &[Tile], list: &[u32]| list.iter().map(|&t| tiles[t as usize].output()).collect();
        let column_tiles = table.column_tiles.iter().zip(&assignment);
        let lists: Vec<Vec<Vec<OutputTile>>> =
            column_tiles.map(|(tiles, lists)| lists.iter().map(|list| pick(tiles, list)).collect()).collect();
        (by_column_tile(work, mapping.pk), by_column_tile(lists, mapping.pk).into())
    }

    /// Work of a stage whose columns are not dealt to lockstep groups: row reductions, heads; `None` of any other.
    fn undealt_work(&self, stage: StageId, mapping: &GemmMapping, tile_rows: u64) -> Option<Vec<Vec<PassWork>>> {
        if self.graph.stages[stage].sums.is_none() && self.graph.form(stage).is_none() {
            return None;
        }
        let shape = self.styled(stage, mapping)?;
        if let Some(reducer) = Reducer::new(self.graph, self.tiled_axis, tile_rows, stage, mapping, &shape) {
            return Some(reducer_work(&reducer, &shape, self.tiled_axis, tile_rows));
        }
        let tiles = self.graph.heads_tiles(self.tiled_axis, stage);
        Some(tiles.iter().map(|tile| vec![heads_work(tile, &shape, mapping, tile_rows)]).collect())
    }

    /// Most useful `pm` and lockstep groups of a GEMM stage under a mapping's orientation and grouping; `None` if the chip lacks
    /// the data type.
    pub fn most_splits(&self, stage: StageId, mapping: &GemmMapping, nest: &Nest) -> Option<(u64, u64)> {
        let shape = self.shape(stage, mapping.rows_on_lanes)?;
        if self.graph.stages[stage].sums.is_some() {
            let one = GemmMapping { pm: 1, pn: 1, pk: 1, multicast_width: 1, streams: 1, ..*mapping };
            let reducer = Reducer::new(self.graph, self.tiled_axis, nest.tile_rows, stage, &one, &shape)?;
            return Some(reducer.most_splits());
        }
        let table = self.table_of(stage, &shape, mapping);
        let groups = table.column_tiles.iter().map(Vec::len).max().unwrap_or(1) as u64;
        Some((nest.tile_rows.div_ceil(shape.row_grain), groups))
    }
}

/// Columns and K rows of a stage's weight in each column tile: one where no axis of it is cut.
pub(super) fn weight_ranges(
    graph: &SectionGraph<'_>,
    tiled_axis: Option<TiledAxis>,
    stage: StageId,
) -> Vec<WeightRange> {
    let Some(weight) = graph.stages[stage].weight else { return Vec::new() };
    let tensor = &graph.workload.tensors[weight];
    let (columns, rows) = (graph.column_axis(weight), graph.row_axis(weight));
    let Some(cut) = tiled_axis.filter(|cut| cut.cuts(columns) || cut.cuts(rows)) else {
        return vec![(0..tensor.columns, 0..tensor.rows)];
    };
    // An axis that is both the columns and the rows of a weight is cut along its rows.
    let columns = columns.filter(|_| columns != rows);
    let range = |axis: Option<usize>, extent: u64, tile: u64| cut.range_of(axis, tile).unwrap_or(0..extent);
    let of = |tile: u64| (range(columns, tensor.columns, tile), range(rows, tensor.rows, tile));
    (0..cut.column_tiles()).map(of).collect()
}

/// Lists for each slice of K in each column tile, joined column tile by column tile: lockstep groups lie slice by slice.
fn by_column_tile<T>(lists: Vec<Vec<T>>, pk: u64) -> Vec<Vec<T>> {
    if pk == 1 {
        return lists;
    }
    let mut slices = lists.into_iter().peekable();
    let mut column_tiles = Vec::new();
    while slices.peek().is_some() {
        column_tiles.push(slices.by_ref().take(index(pk)).flatten().collect());
    }
    column_tiles
}

/// The tiles of every group of PCU columns, for each slice of K in each column tile.
fn dealt(table: &TileTable, shape: &SystolicShape, mapping: &GemmMapping) -> Assignment {
    assign(table, mapping.k_slice_groups(), |tile| shape.cycles(tile))
}
