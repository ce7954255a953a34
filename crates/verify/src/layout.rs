//! Where the elements of a section's tensors lie: in row tiles, column tiles, slices and parts, as the configuration says.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use rdusim_base::index::{Id, IndexVec};
use rdusim_base::units::saturating_u64;
use rdusim_cost::cost::{Reducer, StageWork, SystolicShape, Tile, TileTables};
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::{TensorId, Workload};
use rdusim_program::{
    Buffer, BufferRole, HeadsTile, Iteration, LoopLevel, Mapping, Schedule, Section, SectionGraph, StageId, Tiling,
    k_slice,
};

use super::matrix::{Kept, Matrix};
use super::weights::{self, Element, SlotIndex, TileIndex};
use super::windows::Held;

/// A unit of an array of units: its slice of the rows, and its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArrayPlace {
    pub row_slice: u64,
    pub column: u64,
}

/// Runs of windows whose pixels are kept in mind.
const MOST_HELD: usize = 64;

/// Row tiles of columns of PCUs whose elements are kept in mind.
const MOST_MADE: usize = 4096;

/// The elements of a slot, shared by all that ask for them.
type Elements = Rc<Vec<Element>>;

/// A section with what follows from it.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    pub(super) workload: &'a Workload,
    pub(super) section: &'a Section,
    pub(super) graph: SectionGraph<'a>,
    pub(super) schedule: &'a Schedule,
    pub(super) tiling: Tiling,
    pub(super) work: IndexVec<StageId, StageWork>,
    /// Products of each stage with heads, in every column tile if the cut touches them.
    heads: IndexVec<StageId, Vec<HeadsTile>>,
    /// Index of each GEMM stage's weight: `[stage][column_tile][group * share + q]`.
    index: IndexVec<StageId, Vec<Vec<SlotIndex>>>,
    /// Pixels under runs of windows, by tensor and rows.
    held: RefCell<BTreeMap<(usize, u64, u64), Rc<Held>>>,
    /// Elements of second operands that stages make, by stage, row tile and column of PCUs.
    made: RefCell<BTreeMap<(usize, u64, u64), Elements>>,
}

/// Rows of the result, and columns of each of its heads side by side, that a PCU makes in a column tile.
pub(super) fn part_of_sums(
    reducer: &Reducer,
    column_tile: u64,
    ArrayPlace { row_slice: i, column: q }: ArrayPlace,
) -> (u64, u64) {
    let (rows, columns, heads) =
        (reducer.rows_of(column_tile, i), reducer.columns_of(column_tile, q), reducer.heads_of(q));
    (rows.end - rows.start, (columns.end - columns.start) * (heads.end - heads.start))
}

impl<'a> Layout<'a> {
    /// # Errors
    /// The stage whose tiles are not what it was timed with, and a sentence.
    pub(super) fn new(chip: &Chip, workload: &'a Workload, section: &'a Section) -> Result<Self, (StageId, String)> {
        let Some(graph) = SectionGraph::new(workload, &section.operators, section.operators.len() > 1) else {
            return Err((StageId::from_index(0), "its operators are no pipeline over common rows".to_owned()));
        };
        let (schedule, tiling) = (&*section.schedule, section.schedule.tiling());
        let work = |(s, stage): (StageId, &rdusim_program::Stage)| {
            StageWork::new(chip, &graph, tiling, s, stage.mapping, &stage.work, &stage.tiles)
        };
        let work: IndexVec<StageId, StageWork> = section.stages.iter_enumerated().map(work).collect();
        let heads = section.stages.ids().map(|stage| graph.heads_tiles(tiling.tiled_axis, stage)).collect();
        let (index, held, made) = (IndexVec::new(), RefCell::default(), RefCell::default());
        let mut layout = Self { workload, section, graph, schedule, tiling, work, heads, index, held, made };
        for stage in section.stages.ids() {
            let index = layout.stage_index(chip, stage).map_err(|why| (stage, why))?;
            layout.index.push(index);
        }
        Ok(layout)
    }

    fn stage_index(&self, chip: &Chip, stage: StageId) -> Result<Vec<Vec<SlotIndex>>, String> {
        let s = &self.section.stages[stage];
        let (Mapping::Gemm(m), Some(weight)) = (&s.mapping, s.spec.weight) else { return Ok(Vec::new()) };
        if self.graph.form(stage).is_some() {
            let lanes = chip.pcu.lanes.get(&self.graph.stage_dtype(stage)).copied().unwrap_or(1);
            let grain = if m.rows_on_lanes { chip.pcu.stages } else { lanes };
            let mut index = Vec::with_capacity(self.heads[stage].len());
            for (column_tile, tile) in self.heads[stage].iter().enumerate() {
                let timed = s.work.get(column_tile).and_then(|c| c.first()).copied().unwrap_or_default();
                let slots: Vec<SlotIndex> = (0..m.pn).map(|q| weights::index_of_heads(tile, m, grain, q)).collect();
                let columns: u64 = slots.iter().map(SlotIndex::columns).sum();
                let stored: usize = slots.iter().map(|slot| slot.values).sum();
                if (columns, stored as u64) != (timed.columns, timed.stored) {
                    return Err(format!(
                        "it was timed with {} columns and {} stored weights, its PCUs have {columns} and {stored}",
                        timed.columns, timed.stored
                    ));
                }
                index.push(slots);
            }
            return Ok(index);
        }
        let tensor = &self.workload.tensors[weight];
        let kept = Kept::new(tensor.mask.as_deref());
        let axes = [self.graph.row_axis(weight), self.graph.column_axis(weight)];
        let is_cut = axes.into_iter().any(|axis| self.tiling.cuts(axis));
        let (count, found) = (if is_cut { self.tiling.column_tiles() } else { 1 }, s.tiles.len() as u64);
        if found != count {
            return Err(format!("its output tiles are for {found} column tiles, its weight has {count}"));
        }
        let shape = TileTables::new(chip, &self.graph, self.tiling.tiled_axis).styled(stage, m);
        let shape = shape.filter(|_| self.graph.sampled(stage).is_none());
        let mut index = Vec::with_capacity(s.tiles.len());
        for (column_tile, groups) in s.tiles.iter().enumerate() {
            let mut slots = Vec::new();
            for (group, list) in groups.iter().enumerate() {
                let timed = s.work.get(column_tile).and_then(|c| c.get(group)).copied().unwrap_or_default();
                let (count, columns) = (list.len() as u64, list.iter().map(|t| t.columns).sum::<u64>());
                if (timed.tiles, timed.columns) != (count, columns) {
                    return Err(format!(
                        "lockstep group {group} was timed with {} column tiles of {} columns in column tile {column_tile}, it has {count} of {columns}",
                        timed.tiles, timed.columns
                    ));
                }
                let k = self.k_rows(stage, column_tile as u64, group as u64);
                for q in 0..m.multicast_width {
                    slots.push(weights::index(tensor, &kept, list, k.clone(), q, m.multicast_width));
                }
                // All PCUs of the lockstep group step through the same K rows.
                let steps = |tile: &TileIndex| tile.steps.len() as u64;
                let tile =
                    |tile: &TileIndex| Tile { start: 0, columns: 0, k: steps(tile), steps: steps(tile), stored: 0 };
                let flits = |shape: &SystolicShape, slot: &SlotIndex| {
                    slot.tiles.iter().map(|t| shape.activations(&tile(t))).sum::<u64>()
                };
                if let Some((shape, slot)) = shape.as_ref().zip(slots.last())
                    && flits(shape, slot) != timed.a_flits
                {
                    return Err(format!(
                        "lockstep group {group} was timed with {} flits of activations a row pass in column tile {column_tile}, its blocks take {}",
                        timed.a_flits,
                        flits(shape, slot)
                    ));
                }
                let stored: usize =
                    slots[slots.len() - m.multicast_width as usize..].iter().map(|slot| slot.values).sum();
                if stored as u64 != timed.stored {
                    return Err(format!(
                        "lockstep group {group} was timed with {} stored weights in column tile {column_tile}, its PCUs hold {stored}",
                        timed.stored
                    ));
                }
            }
            index.push(slots);
        }
        Ok(index)
    }

    /// Columns of a tensor that a column tile uses, as column tiles count them ([`SectionGraph::columns_in`]).
    pub(super) fn columns(&self, tensor: TensorId, column_tile: u64) -> Range<u64> {
        self.graph.columns_in(self.tiling.tiled_axis, tensor, column_tile)
    }

    /// The product of a stage with heads in a column tile.
    pub(super) fn heads_tile(&self, stage: StageId, column_tile: u64) -> Option<&HeadsTile> {
        self.heads[stage].get(column_tile as usize).or(self.heads[stage].last())
    }

    /// K rows of its weight that a lockstep group of a stage uses in a column tile.
    pub(super) fn k_rows(&self, stage: StageId, column_tile: u64, group: u64) -> Range<u64> {
        let s = &self.section.stages[stage];
        let Some(weight) = s.spec.weight else { return 0..0 };
        let cut = self.tiling.range_of(self.graph.row_axis(weight), column_tile);
        let all = cut.unwrap_or(0..self.workload.tensors[weight].rows);
        k_slice(&all, s.mapping.k_slice(group), s.mapping.pk(), self.graph.k_grain(stage))
    }

    /// Index of a stage's weight for PCU column `slice` in a column tile (a stage off the cut has one).
    pub(super) fn weight_index(&self, stage: StageId, column_tile: u64, slice: u64) -> Option<&SlotIndex> {
        let column_tiles = &self.index[stage];
        column_tiles.get(column_tile as usize).or(column_tiles.last())?.get(slice as usize)
    }

    /// The elements of a row tile that a slot of a second operand made here has for one column of PCUs of a stage.
    pub(super) fn made_elements(&self, stage: StageId, row_tile: u64, slice: u64) -> Elements {
        let mut known = self.made.borrow_mut();
        if known.len() >= MOST_MADE {
            known.clear();
        }
        let elements = || {
            let spec = &self.section.stages[stage].spec;
            let (form, index) = (self.graph.form(stage)?, self.weight_index(stage, 0, slice)?);
            let first = self.first_row(row_tile);
            let rows = first..first + self.tiling.rows_of(row_tile);
            let operator = &self.workload.operators[spec.main];
            Some(weights::elements(operator, &form, index, &rows, self.workload.tensors[spec.weight?].rows))
        };
        let key = (stage.index(), row_tile, slice);
        Rc::clone(known.entry(key).or_insert_with(|| Rc::new(elements().unwrap_or_default())))
    }

    /// First row of a row tile.
    pub(super) fn first_row(&self, row_tile: u64) -> u64 {
        row_tile * self.tiling.tile_rows
    }

    /// Columns of A that PCUs of a stage are given in a column tile, counted from the column tile's first: those of a stream of heads,
    /// or of a slice of K.
    pub(super) fn columns_given(&self, stage: StageId, column_tile: u64, part: u64) -> Range<u64> {
        let s = &self.section.stages[stage];
        let columns = self.columns(s.spec.activations[0], column_tile);
        match self.heads_tile(stage, column_tile) {
            Some(tile) => {
                let heads = tile.form.heads_of_stream(s.mapping.streams(), part);
                heads.start * tile.depth()..heads.end * tile.depth()
            }
            None => k_slice(&(0..columns.end - columns.start), part, s.mapping.pk(), self.graph.k_grain(stage)),
        }
    }

    /// Columns of a tensor for so many of the sums beside which it is read, or of which it is made.
    pub(super) fn columns_of_sums(&self, tensor: TensorId) -> (u64, u64) {
        self.graph.summed(tensor).map_or((1, 1), |(_, columns)| columns)
    }

    /// Where an element of what a PCU reads or makes for its part of the sums lies in its tensor.
    pub(super) fn place_in(
        &self,
        tensor: TensorId,
        stage: StageId,
        at: Iteration,
        pcu: ArrayPlace,
        row: u64,
        column: u64,
    ) -> (u64, u64) {
        let (columns, word) = self.columns_of_sums(tensor);
        let (row, of_sums) = self.place_of_sum(stage, at, pcu, row, column / columns * word);
        (row, of_sums / word * columns + column % columns)
    }

    /// Where an element of a PCU's part of the sums lies in the whole: row slice and column of the PCU, row and column of
    /// the element.
    pub(super) fn place_of_sum(
        &self,
        stage: StageId,
        at: Iteration,
        ArrayPlace { row_slice: i, column: q }: ArrayPlace,
        row: u64,
        column: u64,
    ) -> (u64, u64) {
        let Some(reducer) = self.work[stage].reducer() else { return (row, column) };
        let (rows, columns, heads) =
            (reducer.rows_of(at.column_tile, i), reducer.columns_of(at.column_tile, q), reducer.heads_of(q));
        let each = (columns.end - columns.start).max(1);
        let sequences = self.graph.form(stage).map_or(1, |form| form.instances);
        let before = if sequences > 1 { at.block * reducer.widths().0 } else { 0 };
        let column = (heads.start + column / each) * reducer.widths().1 + columns.start + column % each;
        (before + rows.start + row, column)
    }

    /// The pixels that a slice of a buffer of windows holds.
    pub(super) fn held(&self, buffer: &Buffer, at: Iteration, slice: u64) -> Option<Rc<Held>> {
        let (BufferRole::Operand { tensor, .. } | BufferRole::Resident { tensor, .. }) = buffer.spec.role else {
            return None;
        };
        let window = self.workload.tensors[tensor].window()?;
        let (rows, _) = self.rows_and_columns(buffer, at, slice);
        let first = self.first_row(at.row_tile);
        let rows = first + rows.start..first + rows.end;
        let key = (tensor.index(), rows.start, rows.end);
        let mut known = self.held.borrow_mut();
        if known.len() >= MOST_HELD {
            known.clear();
        }
        Some(Rc::clone(known.entry(key).or_insert_with(|| Rc::new(Held::new(&window.image, rows)))))
    }

    /// Rows of a row tile and columns of a column tile, each counted from its first, that a slice of a buffer holds: of windows,
    /// pixels and channels. Weights and partial sums are one row.
    pub(super) fn extent(&self, buffer: &Buffer, at: Iteration, slice: u64) -> (Range<u64>, Range<u64>) {
        let (rows, columns) = self.rows_and_columns(buffer, at, slice);
        match (self.held(buffer, at, slice), buffer.spec.role) {
            (Some(held), BufferRole::Operand { tensor, .. } | BufferRole::Resident { tensor, .. }) => {
                let taps = self.workload.tensors[tensor].window().map_or(1, |window| window.image.taps());
                (0..held.pixels.len() as u64, columns.start / taps..columns.end / taps)
            }
            _ => (rows, columns),
        }
    }

    fn rows_and_columns(&self, buffer: &Buffer, at: Iteration, slice: u64) -> (Range<u64>, Range<u64>) {
        let rows = self.tiling.rows_of(at.row_tile);
        let whole = |tensor| {
            let columns = self.columns(tensor, at.column_tile);
            0..columns.end - columns.start
        };
        if let BufferRole::Output { stage, .. } | BufferRole::State { stage, .. } | BufferRole::PartialSums { stage } =
            buffer.spec.role
            && let Some(reducer) = self.work[stage].reducer()
        {
            let wide = self.section.stages[stage].group_width();
            let (m, n) =
                part_of_sums(reducer, at.column_tile, ArrayPlace { row_slice: slice / wide, column: slice % wide });
            return match buffer.spec.role {
                BufferRole::Output { tensor, .. } | BufferRole::State { tensor, .. } => {
                    let (columns, word) = self.columns_of_sums(tensor);
                    (0..m, 0..n / word * columns)
                }
                _ => (0..1, 0..m * n),
            };
        }
        match buffer.spec.role {
            BufferRole::Operand { stage, .. }
                if self.graph.form(stage).is_some() && self.work[stage].reducer().is_none() =>
            {
                let streams = self.section.stages[stage].mapping.streams();
                let columns = self.columns_given(stage, at.column_tile, slice % streams);
                (self.work[stage].slice_rows(rows, slice / streams), columns)
            }
            BufferRole::Operand { stage, .. } | BufferRole::Resident { stage, .. }
                if self.section.stages[stage].mapping.pk() > 1 =>
            {
                let pk = self.section.stages[stage].mapping.pk();
                (self.work[stage].slice_rows(rows, slice / pk), self.columns_given(stage, at.column_tile, slice % pk))
            }
            BufferRole::Operand { stage, tensor }
            | BufferRole::Resident { stage, tensor }
            | BufferRole::State { stage, tensor }
            | BufferRole::Output { stage, tensor } => (self.work[stage].slice_rows(rows, slice), whole(tensor)),
            BufferRole::Weight { stage, .. } if self.graph.stages[stage].sequence.is_some() => {
                (0..1, 0..self.made_elements(stage, at.row_tile, slice).len() as u64)
            }
            BufferRole::Weight { stage, .. } => {
                (0..1, 0..self.weight_index(stage, at.column_tile, slice).map_or(0, |index| index.values as u64))
            }
            BufferRole::PartialSums { stage } | BufferRole::PartialFifo { stage, .. } => {
                let s = &self.section.stages[stage];
                let (pm, wide) = (s.mapping.pm(), s.group_width());
                // All slices of K have the same columns.
                let (group, i, q) = (slice / (pm * wide), slice / wide % pm, slice % wide);
                let rows = self.work[stage].slice_rows(rows, i);
                let columns = self.weight_index(stage, at.column_tile, group * wide + q).map_or(0, SlotIndex::columns);
                (0..1, 0..(rows.end - rows.start) * columns)
            }
        }
    }

    /// The pieces of a slot, not yet written.
    pub(super) fn blank(&self, buffer: &Buffer, at: Iteration) -> Vec<Matrix> {
        let slices = (0..buffer.spec.copies).flat_map(|_| 0..buffer.spec.slices);
        slices
            .map(|slice| {
                let (rows, columns) = self.extent(buffer, at, slice);
                Matrix::unwritten((rows.end - rows.start) as usize, (columns.end - columns.start) as usize)
            })
            .collect()
    }

    /// Bytes of so many elements of a buffer: a packed operand is stored in fewer.
    pub(super) fn bytes_of(&self, buffer: &Buffer, elements: u64) -> u64 {
        match buffer.spec.role {
            BufferRole::Weight { tensor, .. } if self.workload.tensors[tensor].packed.is_some() => {
                let of = &self.workload.tensors[tensor];
                let all = u128::from(of.stored_elements().max(1));
                saturating_u64((u128::from(elements) * u128::from(of.stored_bytes())).div_ceil(all))
            }
            BufferRole::Operand { tensor, .. }
            | BufferRole::Resident { tensor, .. }
            | BufferRole::Output { tensor, .. }
            | BufferRole::State { tensor, .. }
            | BufferRole::Weight { tensor, .. } => elements * self.graph.dtype(tensor).bytes(),
            BufferRole::PartialSums { .. } | BufferRole::PartialFifo { .. } => elements * 4,
        }
    }

    /// Where slot `ordinal` of a buffer stands in the nest.
    pub(super) fn slot_step(&self, buffer: &Buffer, ordinal: u64) -> Iteration {
        self.schedule.step(buffer.spec.level, ordinal)
    }

    /// A slot for a message.
    pub(super) fn slot_name(&self, buffer: &Buffer, ordinal: u64) -> String {
        let at = self.slot_step(buffer, ordinal);
        match buffer.spec.level {
            LoopLevel::FIRING => format!("row tile {}, column tile {}", at.row_tile, at.column_tile),
            LoopLevel::ROW_TILE => format!("row tile {}", at.row_tile),
            LoopLevel::PANEL_ROW => {
                format!("row tile {}, panel {}", at.row_tile, at.column_tile / self.schedule.tiles_of_panel())
            }
            LoopLevel::BLOCK_COLUMN => format!("row block {}, column tile {}", at.block, at.column_tile),
            LoopLevel::COLUMN => format!("column tile {}", at.column_tile),
            _ => "the whole weight".to_owned(),
        }
    }

    /// A buffer for a message.
    pub(super) fn buffer_name(&self, buffer: &Buffer) -> String {
        let name = |tensor: TensorId| &self.workload.tensors[tensor].name;
        let of = |stage: StageId| self.stage_name(stage);
        match buffer.spec.role {
            BufferRole::Operand { stage, tensor } => format!("buffer of `{}` for `{}`", name(tensor), of(stage)),
            BufferRole::Resident { stage, tensor } => {
                format!("resident copy of `{}` for `{}`", name(tensor), of(stage))
            }
            BufferRole::Output { tensor, .. } => format!("store buffer of `{}`", name(tensor)),
            BufferRole::Weight { stage, tensor } => format!("weight buffer of `{}` for `{}`", name(tensor), of(stage)),
            BufferRole::State { tensor, .. } => format!("buffer of `{}` beside its gradient", name(tensor)),
            BufferRole::PartialSums { stage } => format!("partial sums of `{}`", of(stage)),
            BufferRole::PartialFifo { stage, slice } => format!("partial sums of K slice {slice} of `{}`", of(stage)),
        }
    }

    /// Name of a stage: its main operator's.
    pub(super) fn stage_name(&self, stage: StageId) -> &str {
        &self.workload.operators[self.section.stages[stage].spec.main].name
    }
}
