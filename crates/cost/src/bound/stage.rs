//! Work that a stage cannot do without: PCU-cycles, whatever its mapping.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cost::{GatherPorts, SystolicShape, chain};
use rdusim_base::units::Dtype;
use rdusim_graph::arch::Chip;
use rdusim_graph::sparsity::BlockMask;
use rdusim_graph::workload::{GemmForm, TensorId};
use rdusim_program::{MOST_GATHERED_COLUMNS, SectionGraph, StageId, Style};

use super::mask::MaskFloor;
use super::nests::Range;

/// How a tiled axis runs through a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Along {
    /// Not at all.
    Off,
    /// Along the columns of its result.
    Columns,
    /// Along K: it accumulates over column tiles.
    Depth,
}

/// Least work of a stage.
#[derive(Debug, Clone)]
pub(crate) struct StageFloor {
    /// Ways for a plain GEMM to lie on the array: the least over them counts. Empty for what has but a sum.
    ways: Vec<Way>,
    /// PCU-cycles of the section, of what is no plain GEMM.
    sum: u64,
    rows: u64,
    columns: u64,
    depth: u64,
    lanes: u64,
    /// Multiply-accumulate cells of a PCU.
    cells: u64,
    /// All rows take as much: not those of causal products, nor of what a mask samples.
    is_even: bool,
    /// What a sparse weight stores, and where.
    stored: Option<Arc<Stored>>,
    /// PCUs of one pipeline.
    pub(crate) unit: u64,
    /// A function on row tiles: it begins before its operands are complete.
    pub(crate) is_simd: bool,
}

/// A way for a plain GEMM to lie on the array.
#[derive(Debug, Clone)]
struct Way {
    shape: SystolicShape,
    /// Least cycles of an output tile that starts from partial sums, and leaves them.
    partial_cycles: u64,
    /// PCU-cycles of one row pass over all columns.
    pass: u64,
    is_sparse: bool,
    mask: Option<Arc<MaskFloor>>,
}

/// What is known of masks: a weight is counted once, whatever the sections that read it.
#[derive(Debug, Default)]
pub struct MaskFloors {
    floors: BTreeMap<(TensorId, Dtype, usize), Option<Arc<MaskFloor>>>,
    stored: BTreeMap<TensorId, Arc<Stored>>,
}

impl StageFloor {
    /// Of a stage of a section; `None` if the chip cannot compute in its type.
    pub(crate) fn new(chip: &Chip, graph: &SectionGraph<'_>, stage: StageId, masks: &mut MaskFloors) -> Option<Self> {
        let (spec, dtype) = (&graph.stages[stage], graph.stage_dtype(stage));
        let lanes = *chip.pcu.lanes.get(&dtype)?;
        let result_columns = graph.workload.tensors[spec.output].columns;
        let columns = graph.simd_columns(stage).min(result_columns);
        let mut floor = Self {
            ways: Vec::new(),
            sum: 0,
            rows: graph.rows,
            columns,
            depth: 0,
            lanes,
            cells: lanes * chip.pcu.stages,
            is_even: graph.form(stage).is_none_or(|form| form.causal.is_none()) && graph.sampled(stage).is_none(),
            stored: None,
            unit: 1,
            is_simd: !graph.is_gemm(stage),
        };
        if floor.is_simd {
            let kind = graph.kind(stage);
            floor.unit = chain(chip, kind);
            floor.sum = graph.rows * columns.div_ceil(lanes) * kind.passes() * floor.unit;
            return Some(floor);
        }
        let is_plain = spec.weight.is_some() && graph.form(stage).is_none() && graph.sampled(stage).is_none();
        let stored = graph.workload.stored_macs(spec.main);
        floor.sum = stored.div_ceil(floor.cells);
        if let Some(form) = graph.form(stage).filter(|form| form.causal.is_none() && spec.sums.is_none()) {
            floor.sum = floor.sum.max(Self::of_heads(chip, dtype, &form, spec.tail.len() as u64));
        }
        let (Some(weight), true) = (spec.weight, is_plain) else { return Some(floor) };
        let (_, n, k) = graph.workload.gemm_shape(spec.main)?;
        (floor.columns, floor.depth) = (n, k);
        if let Some(mask) = graph.mask(stage) {
            floor.stored = Some(Arc::clone(masks.stored.entry(weight).or_insert_with(|| Arc::new(Stored::new(mask)))));
        }
        floor.ways = (0..3).filter_map(|way| Way::new(chip, graph, (stage, weight), (n, k), way, masks)).collect();
        Some(floor)
    }

    /// One small product for every head and sequence.
    fn of_heads(chip: &Chip, dtype: Dtype, form: &GemmForm, tail: u64) -> u64 {
        let way = |rows_on_lanes| {
            let shape = SystolicShape::new(chip, dtype, rows_on_lanes, tail, 0)?;
            // Heads that share one of B are lines of the array.
            let lines = form.m * (form.heads / form.b_heads);
            let tiles = lines.div_ceil(shape.row_grain) * form.n.div_ceil(shape.column_grain);
            Some(form.instances * form.b_heads * tiles * shape.tile_cycles(form.k))
        };
        [false, true].into_iter().filter_map(way).min().unwrap_or(0)
    }

    /// PCU-cycles of the section with so many row tiles, and column tiles along or off the stage.
    pub(crate) fn work(&self, row_tiles: Range, column_tiles: Option<(Along, Range)>) -> u64 {
        if self.ways.is_empty() {
            return self.sum;
        }
        let of_way = |way: &Way| {
            let grain = way.shape.row_grain;
            // A row tile takes one pass at least; all but the last are no smaller than the smallest of the class.
            let full = row_tiles.least.saturating_sub(1) * row_tiles.smallest_tile(self.rows).div_ceil(grain);
            let passes = self.rows.div_ceil(grain).max(row_tiles.least).max(full);
            let pass = match column_tiles {
                Some((Along::Columns, tiles)) if !way.is_sparse => {
                    let full = tiles.smallest_tile(self.columns).div_ceil(way.shape.column_grain);
                    let count = (tiles.least.saturating_sub(1) * full).max(tiles.least);
                    way.pass.max(count * way.shape.tile_cycles(self.depth))
                }
                Some((Along::Depth, tiles)) => {
                    let count = self.columns.div_ceil(way.shape.column_grain) * tiles.least;
                    way.pass.max(count * way.partial_cycles)
                }
                _ => way.pass,
            };
            passes * pass
        };
        self.ways.iter().map(of_way).min().unwrap_or(0)
    }

    /// Bytes of the fp32 sums of a row.
    pub(crate) fn sums_bytes(&self) -> u64 {
        self.columns * 4
    }

    /// PCU-cycles of any `rows` rows of the section, at the best rate of any way.
    pub(crate) fn work_of_rows(&self, rows: u64) -> u64 {
        if self.ways.is_empty() {
            let is_known = self.is_even || rows == self.rows;
            return if is_known { share(self.sum, (rows, self.rows)) } else { 0 };
        }
        self.ways.iter().map(|way| share(way.pass, (rows, way.shape.row_grain))).min().unwrap_or(0)
    }

    /// PCU-cycles beyond the first `tile` elements of an axis along the stage, in one pass over it by all rows.
    pub(crate) fn work_beyond(&self, along: Along, tile: u64) -> u64 {
        let of_all = |way: &Way, pass: u64| share(pass, (self.rows, way.shape.row_grain));
        let of_way = |way: &Way| match (along, &way.mask) {
            (Along::Columns, Some(mask)) => of_all(way, mask.beyond(tile)),
            (Along::Off, _) => 0,
            _ if way.is_sparse => 0,
            (Along::Columns, None) => {
                let tiles = self.columns.saturating_sub(tile).div_ceil(way.shape.column_grain);
                of_all(way, tiles * way.shape.tile_cycles(self.depth))
            }
            (Along::Depth, _) => {
                of_all(way, self.columns.div_ceil(way.shape.column_grain) * self.depth.saturating_sub(tile))
            }
        };
        let of_ways = self.ways.iter().map(of_way).min().unwrap_or(0);
        of_ways.max(self.work_between(along, tile, 0))
    }

    /// PCU-cycles of all rows but for the first `before` and the last `behind` elements of an axis along the stage: by what is
    /// stored there, at peak.
    pub(crate) fn work_between(&self, along: Along, before: u64, behind: u64) -> u64 {
        if self.is_simd {
            let vectors = |columns: u64| columns.div_ceil(self.lanes);
            let left = self.columns.saturating_sub(before).saturating_sub(behind);
            return if along == Along::Columns { self.sum / vectors(self.columns).max(1) * vectors(left) } else { 0 };
        }
        if self.ways.is_empty() {
            return 0;
        }
        let dense = |extent: u64, other: u64| extent.saturating_sub(before).saturating_sub(behind) * other;
        let stored = match (along, &self.stored) {
            (Along::Off, _) => 0,
            (Along::Columns, None) => dense(self.columns, self.depth),
            (Along::Depth, None) => dense(self.depth, self.columns),
            (Along::Columns, Some(of)) => between(&of.columns, of.block.1, before, self.columns.saturating_sub(behind)),
            (Along::Depth, Some(of)) => between(&of.rows, of.block.0, before, self.depth.saturating_sub(behind)),
        };
        share(stored, (self.rows, self.cells))
    }
}

/// `amount * of.0 / of.1`, rounded down.
fn share(amount: u64, of: (u64, u64)) -> u64 {
    (u128::from(amount) * u128::from(of.0) / u128::from(of.1.max(1))) as u64
}

impl Way {
    /// Columns along the lanes, rows along the lanes, and rows along the lanes with the rows of K gathered; `None` if the stage
    /// cannot lie so.
    fn new(
        chip: &Chip,
        graph: &SectionGraph<'_>,
        (stage, weight): (StageId, TensorId),
        (n, k): (u64, u64),
        way: usize,
        masks: &mut MaskFloors,
    ) -> Option<Self> {
        let dtype = graph.stage_dtype(stage);
        let (rows_on_lanes, gathers) = (way > 0, way == 2);
        let mask = graph.mask(stage);
        if gathers && (mask.is_none() || chip.pcu.stages > MOST_GATHERED_COLUMNS) {
            return None;
        }
        let style = if gathers { Style::Gather } else { Style::Skip };
        // A mask's floors serve sections with and without functions in the tail: it is counted without.
        let tail = if mask.is_some() { 0 } else { graph.stages[stage].tail.len() as u64 };
        let shape = |partials| {
            let shape = SystolicShape::new(chip, dtype, rows_on_lanes, tail, partials)?;
            Some(shape.in_style(chip, dtype, style))
        };
        let (plain, partials) = (shape(0)?, shape(1)?);
        let mut this = Self {
            shape: plain,
            partial_cycles: partials.tile_cycles(0),
            pass: n.div_ceil(plain.column_grain) * plain.tile_cycles(k),
            is_sparse: mask.is_some(),
            mask: None,
        };
        let Some(mask) = mask else { return Some(this) };
        let ports = GatherPorts::new(chip);
        let of_mask = || MaskFloor::new(mask, &plain, gathers.then_some(&ports)).map(Arc::new);
        this.mask.clone_from(masks.floors.entry((weight, dtype, way)).or_insert_with(of_mask));
        let stored = mask.stored_elements().div_ceil(plain.column_grain);
        this.pass = this.mask.as_ref().map_or(stored, |mask| mask.whole());
        Some(this)
    }
}

/// Stored elements of a mask, by columns and by rows.
#[derive(Debug)]
struct Stored {
    block: (u64, u64),
    /// In the first so many blocks of rows, and of columns.
    rows: Vec<u64>,
    columns: Vec<u64>,
}

impl Stored {
    fn new(mask: &BlockMask) -> Self {
        let mut stored = Self {
            block: (mask.block_rows(), mask.block_columns()),
            rows: vec![0; mask.k_blocks() as usize + 1],
            columns: vec![0; mask.n_blocks() as usize + 1],
        };
        for n in 0..mask.n_blocks() {
            for (w, &word) in mask.column_words(n).iter().enumerate() {
                let mut left = word;
                while left != 0 {
                    let block = w as u64 * 64 + u64::from(left.trailing_zeros());
                    let height = mask.block_rows().min(mask.rows() - block * mask.block_rows());
                    let elements = height * mask.width_of(n);
                    stored.rows[block as usize + 1] += elements;
                    stored.columns[n as usize + 1] += elements;
                    left &= left - 1;
                }
            }
        }
        for list in [&mut stored.rows, &mut stored.columns] {
            for at in 1..list.len() {
                list[at] += list[at - 1];
            }
        }
        stored
    }
}

/// What whole blocks of `block` elements between two places store; `upto` has the sums of the first so many blocks.
fn between(upto: &[u64], block: u64, from: u64, to: u64) -> u64 {
    let at = |blocks: u64| upto.get(blocks as usize).or(upto.last()).copied().unwrap_or(0);
    at(to / block).saturating_sub(at(from.div_ceil(block)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::nests::ANY;
    use rdusim_graph::arch;
    use rdusim_graph::workload;
    use std::path::Path;

    /// The first operator of the FFN on SN40L: 2,048 x 5,120 by 5,120 x 20,480.
    fn up() -> StageFloor {
        let chip = arch::load(Path::new("sn40l"), &[]).unwrap();
        let workload = workload::load(Path::new("gpt13b-mlp"), &[], 0).unwrap();
        let first = workload.operators.ids().next().unwrap();
        let graph = SectionGraph::new(&workload, &[first], false).unwrap();
        let stage = graph.stages.ids().next().unwrap();
        StageFloor::new(&chip, &graph, stage, &mut MaskFloors::default()).unwrap()
    }

    #[test]
    fn a_gemm_takes_whole_output_tiles() {
        let up = up();
        // Rows on 16 lanes, columns on 12 stages: 128 row passes over 1,707 output tiles of 5,120 cycles.
        assert_eq!(up.work(ANY, None), 128 * 1_707 * 5_120);
        // Of one row tile to a row, each takes a pass.
        assert_eq!(up.work(Range { least: 2_048, most: 2_048 }, None), 2_048 * 1_280 * 5_120);
        // Four column tiles of the result: 5,120 columns are 427 output tiles (12) or 320 (16), and 171 row passes.
        let tiles = Range { least: 4, most: 4 };
        assert_eq!(up.work(ANY, Some((Along::Columns, tiles))), 128 * 1_707 * 5_120);
        assert_eq!(up.work_beyond(Along::Columns, 5_120), 128 * 1_280 * 5_120);
        assert_eq!(up.work_between(Along::Columns, 5_120, 10_240), 2_048 * 5_120 * 5_120 / 192);
    }
}
