//! Cycles that no nest of a box beats whose product is cut into panels of columns ([`rdusim_program::PanelAxes`]).
//!
//! The operand is read once for each of p panels, the weight once for each of b row blocks, and the fp32 sums of the largest
//! block and panel lie on chip beside a row of the weight's panel: `(4 ceil(M / b) + v) ceil(N / p) <= SRAM`, v bytes a stored
//! weight. What memory must move is the integer minimum of `p A + b W` under that room; where sums of a row fit beside the whole
//! weight, it may be read once.

use rdusim_base::index::Id;
use rdusim_program::{PanelAxes, StageId};

use super::nests::Range;
use super::section::{Need, SectionBound, WHOLE};
use super::stage::{Along, StageFloor};

impl SectionBound<'_> {
    /// The least cycles of nests with so many panels and column tiles of a panel, launch excluded; `None` if none can be.
    pub(super) fn in_panels(
        &self,
        axes: PanelAxes,
        [panels, tiles]: [Range; 2],
        row_tiles: Range,
        prefetched: bool,
    ) -> Option<u64> {
        let graph = self.graph;
        if graph.panel_axes() != Some(axes) {
            return None;
        }
        let (product, spec) = graph.stages.iter_enumerated().find(|(_, spec)| spec.weight.is_some())?;
        let (weight, operand) = (spec.weight?, *spec.activations.first()?);
        let tensors = &graph.workload.tensors;
        let is_plain = tensors[operand].mask.is_none() && tensors[operand].view.is_none();
        let operand_bytes = if is_plain { tensors[operand].dense_bytes() } else { 0 };
        let columns = graph.axes[axes.columns].extent;
        let sram = self.chip.sram_bytes();
        // A column tile of the weight has a row at least; of a masked one that row may be empty.
        let of = &tensors[weight];
        let weight_value_bytes = if of.mask.is_none() { of.stored_bytes() / of.stored_elements().max(1) } else { 0 };
        let sums_beside_weight = sram.checked_sub(self.weight_bytes(&|_| WHOLE)).map(|room| room / 4);
        let mut least: Option<u64> = None;
        let mut again = vec![0u64; self.bytes.len()];
        for count in panels.least..=panels.most.min(columns) {
            let width = columns.div_ceil(count);
            let sums = sram.saturating_sub(width.saturating_mul(weight_value_bytes)) / 4;
            let rows_of_block = (sums / width).min(graph.rows);
            if rows_of_block == 0 {
                continue;
            }
            let stays = sums_beside_weight.is_some_and(|sums| sums >= width);
            let blocks = if stays { 1 } else { graph.rows.div_ceil(rows_of_block) };
            again.fill(0);
            again[self.tiers[operand.index()].index()] += (count - 1).saturating_mul(operand_bytes);
            let only_operand = self.memory(&again, prefetched);
            // More panels read the operand more often, whatever they save of the weight.
            if least.is_some_and(|least| only_operand >= least) {
                break;
            }
            again[self.tiers[weight.index()].index()] += (blocks - 1).saturating_mul(tensors[weight].stored_bytes());
            let memory = self.memory(&again, prefetched);
            least = Some(least.map_or(memory, |least| least.min(memory)));
        }
        let memory = least?;
        let need = |(stage, floor): (StageId, &StageFloor)| {
            let along = if stage == product { Along::Depth } else { Along::Off };
            Need { stage, beside: self.latency(), work: floor.work(row_tiles, Some((along, tiles))) }
        };
        let needs: Vec<Need> = self.stages.iter_enumerated().map(need).collect();
        self.least_time(&needs, memory)
    }
}
