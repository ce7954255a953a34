//! What the stages of attention work on in a column tile of its keys.

use std::ops::Range;

use rdusim_graph::workload::{GemmForm, TensorId};

use super::graph::SectionGraph;
use super::ids::StageId;
use super::key_axis::{KeyAxis, STATISTICS};
use super::nest::{LoopOrder, Nest, TiledAxis};

/// A product with heads in a column tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadsTile {
    /// The shape of the product in it.
    pub form: GemmForm,
    /// Elements of statistics that a head's part of the operand has behind its depth.
    pub statistics: u64,
}

impl HeadsTile {
    /// A product that no column tile cuts.
    pub fn whole(form: GemmForm) -> Self {
        Self { form, statistics: 0 }
    }

    /// Steps of an output tile: its depth, and the statistics.
    pub fn depth(&self) -> u64 {
        self.form.k + self.statistics
    }
}

impl SectionGraph<'_> {
    /// The attention whose keys are cut.
    pub fn cut_keys(&self, cut: Option<TiledAxis>) -> Option<&KeyAxis> {
        self.axes.get(cut?.axis)?.keys.as_ref()
    }

    /// Whether column tiles may cut an axis. Where sequences have second operands of their own, a row block is a sequence, and the
    /// only axis is that of the keys of all of them.
    pub fn may_cut(&self, axis: usize) -> bool {
        let Some(of) = self.axes.get(axis) else { return false };
        let is_along = |stage: StageId| {
            let main = self.stages[stage].main;
            of.keys.as_ref().is_some_and(|keys| keys.is_product(main))
        };
        let is_own = |&stage: &StageId| self.form(stage).is_some_and(|form| form.instances > 1);
        self.stages.ids().filter(is_own).all(is_along)
    }

    /// Columns of a tensor that a column tile works on; counted so that column tiles follow each other. Of scores, those of all
    /// heads; of what the softmax makes, with the statistics behind each head.
    #[inline]
    pub fn columns_in(&self, cut: Option<TiledAxis>, tensor: TensorId, column_tile: u64) -> Range<u64> {
        let axis = self.column_axis(tensor);
        let Some((cut, range)) = cut.and_then(|cut| Some((cut, cut.range_of(axis, column_tile)?))) else {
            return 0..self.workload.tensors[tensor].columns;
        };
        let Some(keys) = self.cut_keys(Some(cut)).filter(|_| cut.is_along(axis)) else { return range };
        keys.heads * range.start..keys.heads * range.end + keys.statistics_of(tensor)
    }

    /// The product of a stage with heads in each column tile: one if the cut does not touch it.
    pub fn heads_tiles(&self, cut: Option<TiledAxis>, stage: StageId) -> Vec<HeadsTile> {
        let Some(form) = self.form(stage) else { return Vec::new() };
        let main = self.stages[stage].main;
        let Some((cut, keys)) = cut.zip(self.cut_keys(cut)).filter(|(_, keys)| keys.is_product(main)) else {
            return vec![HeadsTile::whole(form)];
        };
        let of = |column_tile: u64| {
            let tile = cut.tile.min(cut.extent - column_tile * cut.tile);
            if keys.scores == Some(main) {
                HeadsTile::whole(GemmForm { n: tile, ..form })
            } else {
                HeadsTile { form: GemmForm { k: tile, ..form }, statistics: keys.statistics }
            }
        };
        (0..cut.tiles_of_panel()).map(of).collect()
    }

    /// The product of a stage with heads in its widest column tile, the first; `None` of other stages.
    pub fn heads_tile(&self, cut: Option<TiledAxis>, stage: StageId) -> Option<HeadsTile> {
        let form = self.form(stage)?;
        let first = cut.map(|cut| TiledAxis { extent: cut.extent.min(cut.tile), ..cut });
        self.heads_tiles(first, stage).into_iter().next().or(Some(HeadsTile::whole(form)))
    }

    /// Whether row tiles pass a nest as running maxima and sums need it: all column tiles of one before the next.
    pub fn keeps_statistics(&self, nest: &Nest) -> bool {
        let has_softmax = self.cut_keys(nest.tiled_axis).is_some_and(|keys| keys.softmax.is_some());
        !has_softmax || nest.order == LoopOrder::RowTileOuter || nest.block_tiles == 1
    }

    /// fp32 numbers that a pipeline of a stage keeps from one column tile to the next, if it has so many rows and slices of
    /// heads: maxima and sums of a softmax over tiles of keys.
    pub fn running_statistics(&self, cut: Option<TiledAxis>, stage: StageId, rows: u64, slices: u64) -> u64 {
        let keys = self.cut_keys(cut).filter(|keys| keys.softmax == Some(self.stages[stage].main));
        keys.map_or(0, |keys| rows * keys.heads.div_ceil(slices.max(1)) * STATISTICS)
    }
}
