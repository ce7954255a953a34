//! Cycles that no nest of a box, with any allocation of PCUs and any residency, beats in a section.
//!
//! For each stage: it works no sooner than its operands are there, and what it makes leaves after it. A stage on p PCUs needs
//! `work / p` cycles, and the PCUs of all stages are no more than the chip has: the least time T is where the PCUs that the
//! stages need, `sum of ceil(work / (T - what comes before and behind))`, fit (a fractional allocation, rounded up stage by stage,
//! is the relaxation of every integral one). Beside it stand what memory must move, and a chain of GEMMs, each of which waits for
//! a whole row tile of the one before (`(sum of sqrt(work))^2 / PCUs`, Cauchy-Schwarz).
//!
//! `docs/proof.md` derives each term, and says which rule of `docs/timing-model.md` it follows from.

use crate::cost::{compulsory_bytes, moving_cycles};
use rdusim_base::index::{Id, IndexVec};
use rdusim_base::interrupt;
use rdusim_graph::arch::{Chip, TierId};
use rdusim_graph::workload::{OperatorId, TensorId, Workload};
use rdusim_program::{SectionGraph, StageId, StageSpec};

use super::nests::{Columns, NestBox, Range};
use super::stage::{Along, MaskFloors, StageFloor};

/// Parts of the rows that a row block may have, in eighths, from and to: all, or less.
const BLOCKS: [(u64, u64); 6] = [(8, 8), (6, 8), (4, 6), (2, 4), (1, 2), (0, 1)];

/// Least cycles of a section in a box, launch excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Floor {
    /// Where the section loads all that it needs.
    pub alone: u64,
    /// Where the section before may have loaded the first slot of its weights.
    pub prefetched: u64,
}

/// Least cycles of a section, launch excluded, in each of its boxes; `None` where no nest of a box can be.
#[derive(Debug, Clone)]
pub struct SectionFloor {
    pub(crate) boxes: Vec<(NestBox, Option<Floor>)>,
    /// Of each tier, cycles in which it moves what must be moved; and without the weights that may be there before.
    pub(crate) memory: Vec<(u64, u64)>,
    /// Tiers that weights lie in.
    pub(crate) weight_tiers: Vec<TierId>,
}

impl SectionFloor {
    /// Of some operators; `None` if they cannot share a section.
    pub fn new(
        chip: &Chip,
        workload: &Workload,
        tiers: &[TierId],
        masks: &mut MaskFloors,
        operators: &[OperatorId],
    ) -> Option<Self> {
        let graph = SectionGraph::new(workload, operators, operators.len() > 1)?;
        let chip = &*chip.in_section(graph.largest_off_chip_bytes());
        let section = SectionBound::new(chip, &graph, tiers, masks)?;
        let floor = |of: NestBox| {
            interrupt::check();
            (of, section.floor(&of))
        };
        let boxes = NestBox::all(&graph).into_iter().map(floor).collect();
        let without = section.without_weights(&section.bytes);
        let memory = section.bytes.iter().zip(without).enumerate().map(|(t, (&all, without))| {
            let rate = chip.tier_rate(TierId::from_index(t));
            (share(all, (rate.cycles, rate.bytes)), share(without, (rate.cycles, rate.bytes)))
        });
        let mut weight_tiers: Vec<TierId> = section.weights().map(|(_, w)| tiers[w.index()]).collect();
        weight_tiers.sort_unstable();
        weight_tiers.dedup();
        Some(Self { boxes, memory: memory.collect(), weight_tiers })
    }

    /// The least over all boxes.
    pub fn least(&self) -> Option<Floor> {
        let floors = || self.boxes.iter().filter_map(|(_, floor)| *floor);
        Some(Floor {
            alone: floors().map(|floor| floor.alone).min()?,
            prefetched: floors().map(|floor| floor.prefetched).min()?,
        })
    }
}

/// A share of something, as a fraction.
pub(crate) type Share = (u64, u64);

pub(super) const WHOLE: Share = (1, 1);

/// What the floors of a section count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    /// Cycles, launch excluded.
    Cycles,
    /// Bytes that memory moves, of all tiers together.
    BytesOffChip,
}

/// A section as its floors see it: what its stages must work and what memory must move.
pub struct SectionBound<'a> {
    counted: Counted,
    pub(super) chip: &'a Chip,
    pub(super) graph: &'a SectionGraph<'a>,
    pub(super) stages: IndexVec<StageId, StageFloor>,
    pub(super) tiers: &'a [TierId],
    /// Compulsory bytes of each tier.
    pub(super) bytes: Vec<u64>,
}

/// A stage needs `work` PCU-cycles in what is left of the section's time beside `beside` cycles.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need {
    pub(super) stage: StageId,
    pub(super) beside: u64,
    pub(super) work: u64,
}

/// What all column tiles of an axis read whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct WholeOperand {
    /// Where it comes from off chip, and the bytes of a row.
    pub(super) tensor: TensorId,
    pub(super) row_bytes: u64,
    /// Bytes of a row of it, or of what it is made of, if that is less.
    pub(super) kept_row_bytes: u64,
}

/// Row blocks of a part of the rows, with column tiles outside them.
struct RowBlocks {
    row_tiles: Range,
    axis: usize,
    tiles: Range,
    /// The least and the largest share of the rows that a block has.
    from: Share,
    to: Share,
    /// Whether all weights stay on chip.
    resident: bool,
    /// Whether they are there when the section starts.
    prefetched: bool,
}

impl<'a> SectionBound<'a> {
    /// Of a section on `chip` as that section finds it ([`Chip::in_section`]); `None` if the chip cannot compute one of its types.
    pub fn new(
        chip: &'a Chip,
        graph: &'a SectionGraph<'a>,
        tiers: &'a [TierId],
        masks: &mut MaskFloors,
    ) -> Option<Self> {
        let stages: Option<IndexVec<StageId, StageFloor>> =
            graph.stages.ids().map(|stage| StageFloor::new(chip, graph, stage, masks)).collect();
        let bytes = compulsory_bytes(chip, graph.workload, tiers, &graph.operators, 1);
        Some(Self { counted: Counted::Cycles, chip, graph, stages: stages?, tiers, bytes })
    }

    /// The same section, whose floors count something else.
    pub(super) fn counting(self, counted: Counted) -> Self {
        Self { counted, ..self }
    }

    /// The least cycles of a box, launch excluded; `None` if no nest of it can be.
    pub fn floor(&self, of: &NestBox) -> Option<Floor> {
        let [alone, prefetched] = [false, true].map(|prefetched| match of.columns {
            Columns::Whole => self.weights_on_chip(of.row_tiles, None, prefetched),
            Columns::RowTileOuter(axis, tiles) => self.weights_on_chip(of.row_tiles, Some((axis, tiles)), prefetched),
            Columns::ColumnTileOuter(..) => self.column_tiles_outer(of, prefetched),
            Columns::Panels { axes, panels, tiles } => self.in_panels(axes, [panels, tiles], of.row_tiles, prefetched),
        });
        Some(Floor { alone: alone?, prefetched: prefetched?.min(alone?) })
    }

    /// All weights lie on chip (of several sequences, those of one), and row tiles pass.
    fn weights_on_chip(&self, row_tiles: Range, axis: Option<(usize, Range)>, prefetched: bool) -> Option<u64> {
        let graph = self.graph;
        if self.weight_bytes(&|_| WHOLE) + self.sequence_bytes() > self.chip.sram_bytes() {
            return None;
        }
        let (rows, most_rows) = (graph.rows, graph.rows / graph.sequences().max(1));
        let largest = if graph.sequences() > 1 { most_rows } else { row_tiles.largest_tile(rows) };
        let smallest = row_tiles.smallest_tile(rows).min(most_rows);
        let tile: Share = (smallest, rows);
        let is_off = |t: TensorId| axis.is_none_or(|(axis, _)| graph.column_axis(t) != Some(axis));
        let mut needs = Vec::new();
        for (stage, floor) in self.stages.iter_enumerated() {
            let mut need = |beside: u64, work: u64| needs.push(Need { stage, beside: self.latency() + beside, work });
            let work = floor.work(row_tiles, axis.map(|(axis, tiles)| (self.along(stage, axis), tiles)));
            need(0, work);
            if floor.is_simd || graph.stages[stage].sums.is_some() {
                continue;
            }
            // A GEMM begins a row tile when it is there.
            let first = self.loading(stage, &|t| if is_off(t) { tile } else { (0, 1) }, &|_| (0, 1));
            need(self.moving(&first), work);
            // When all weights are there, no more than the first row tile is done.
            let weight = |_: StageId| if prefetched { (0, 1) } else { WHOLE };
            let all = self.loading(stage, &|t| if is_off(t) { tile } else { (0, 1) }, &weight);
            need(self.moving(&all), floor.work_of_rows(rows.saturating_sub(largest)));
            if axis.is_some() {
                continue;
            }
            // A row tile leaves when it is complete: a single one, or those of the last full one and behind it.
            if row_tiles.most == 1 {
                need(self.moving(&first) + self.moving(&self.leaving(stage, WHOLE)), work);
            } else {
                let behind = self.moving(&self.leaving(stage, tile));
                let left = |tiles: u64| floor.work_of_rows(rows.saturating_sub(largest.saturating_mul(tiles)));
                need(self.moving(&first) + behind, left(2));
                need(self.moving(&all) + behind, left(3));
            }
        }
        let least = self.memory(&vec![0; self.bytes.len()], prefetched).max(match axis {
            None if self.counted == Counted::Cycles => self.chain(smallest),
            _ => 0,
        });
        self.least_time(&needs, least)
    }

    /// Column tiles pass over row blocks: what they share is read once, what they work on is read for every block.
    fn column_tiles_outer(&self, of: &NestBox, prefetched: bool) -> Option<u64> {
        let &NestBox { columns: Columns::ColumnTileOuter(axis, tiles), row_tiles, row_blocks } = of else {
            return None;
        };
        let graph = self.graph;
        let extent = graph.axes[axis].extent;
        let sram = self.chip.sram_bytes().saturating_sub(self.sequence_bytes());
        let off = self.weight_bytes(&|stage| if self.along(stage, axis) == Along::Off { WHOLE } else { (0, 1) });
        // fp32 sums that lie on chip while column tiles pass, a row.
        let k_cut = |stage: &StageId| self.along(*stage, axis) == Along::Depth;
        let sums: u64 = self.stages.ids().filter(k_cut).map(|stage| self.stages[stage].sums_bytes()).sum();
        let kept = sums + self.waiting_bytes(axis);
        // Of the weights along the axis a column tile lies on chip at least.
        let one_tile = self.weight_bytes(&|stage| match self.along(stage, axis) {
            Along::Off => WHOLE,
            Along::Columns | Along::Depth => (1, tiles.most.min(extent)),
        });
        let operand = self.operand_of_columns(axis);
        let choices = [(true, true), (true, false), (false, true), (false, false)];
        let residency = choices.map(|(resident, keeps_operand)| {
            let held = if resident { self.weight_bytes(&|_| WHOLE) } else { one_tile.max(off) };
            if held > sram {
                return None;
            }
            // What all column tiles of a block read stays for the block, or is read again in each of them.
            let (kept, times) = match &operand {
                Some(of) if keeps_operand => (kept + of.kept_row_bytes, 1),
                // So few column tiles that the weights of one lie on chip.
                Some(_) if !resident => (kept, tiles.least.max(self.fewest_tiles(axis, sram))),
                Some(_) => (kept, tiles.least),
                None => (kept, 1),
            };
            if times > tiles.most {
                return None;
            }
            let most_rows = (sram - held).checked_div(kept).unwrap_or(u64::MAX).min(graph.rows);
            let fewest_blocks = if most_rows == 0 { return None } else { graph.rows.div_ceil(most_rows) };
            let of_block = |&(from, to): &(u64, u64)| {
                let is_one = from == to;
                // The first of b blocks has a b-th of the rows at least, and less than a part in b - 1 where there are several.
                let holds = if is_one {
                    row_blocks.least <= 1
                } else {
                    row_blocks.most > 1
                        && to.saturating_mul(row_blocks.most) >= 8
                        && from.saturating_mul(row_blocks.least.saturating_sub(1)) <= 8
                };
                if !holds {
                    return None;
                }
                let (from, to): (Share, Share) = ((from, 8), (to, 8));
                let rows = (graph.rows * from.0).div_ceil(8).max(1);
                if held + rows.saturating_mul(kept) > sram || is_one && fewest_blocks > 1 {
                    return None;
                }
                let mut again = vec![0u64; self.bytes.len()];
                if let Some(WholeOperand { tensor, row_bytes, .. }) = operand {
                    again[self.tiers[tensor.index()].index()] +=
                        (times - 1).saturating_mul(row_bytes).saturating_mul(graph.rows);
                }
                if !resident {
                    let blocks = if is_one { 1 } else { 8u64.div_ceil(to.0).max(2).max(row_blocks.least) };
                    let blocks = blocks.max(fewest_blocks);
                    // Sequences read their own once.
                    let is_shared = |stage: StageId| graph.form(stage).is_none_or(|form| form.instances == 1);
                    let is_read_again = |stage: StageId| self.along(stage, axis) != Along::Off && is_shared(stage);
                    for (_, weight) in self.weights().filter(|(stage, _)| is_read_again(*stage)) {
                        again[self.tiers[weight.index()].index()] +=
                            (blocks - 1) * graph.workload.tensors[weight].stored_bytes();
                    }
                }
                let needs =
                    self.needs_of_column_tiles(&RowBlocks { row_tiles, axis, tiles, from, to, resident, prefetched });
                self.least_time(&needs, self.memory(&again, prefetched))
            };
            BLOCKS.iter().filter_map(of_block).min()
        });
        residency.into_iter().flatten().min()
    }

    /// What the stages need in row blocks of a part of the rows.
    fn needs_of_column_tiles(&self, blocks: &RowBlocks) -> Vec<Need> {
        let RowBlocks { row_tiles, axis, tiles, from, to, resident, prefetched } = *blocks;
        let graph = self.graph;
        let extent = graph.axes[axis].extent;
        let (smallest, largest) = (tiles.smallest_tile(extent), tiles.largest_tile(extent));
        let mut needs = Vec::new();
        for (stage, floor) in self.stages.iter_enumerated() {
            let along = self.along(stage, axis);
            let mut need = |beside: u64, work: u64| needs.push(Need { stage, beside: self.latency() + beside, work });
            let work = floor.work(row_tiles, Some((along, tiles)));
            need(0, work);
            if along == Along::Off || floor.is_simd || graph.stages[stage].sums.is_some() {
                continue;
            }
            // The first column tile needs all rows of the block, and what lies off the axis whole.
            let rows = |t: TensorId| {
                let is_along = graph.column_axis(t) == Some(axis);
                if is_along { (from.0 * smallest, from.1 * extent) } else { from }
            };
            let weight = |s: StageId| if prefetched || self.along(s, axis) != Along::Off { (0, 1) } else { WHOLE };
            let first = self.moving(&self.loading(stage, &rows, &weight));
            // Behind it come the other column tiles, and the other blocks.
            let in_block = |beyond: u64| share(beyond, to) + share(floor.work_of_rows(graph.rows), (to.1 - to.0, to.1));
            need(first, in_block(floor.work_beyond(along, largest)));
            if resident {
                // All weights are there when the first block is done.
                let all = |_: StageId| if prefetched { (0, 1) } else { WHOLE };
                let loaded = self.moving(&self.loading(stage, &rows, &all));
                need(loaded, share(floor.work_of_rows(graph.rows), (to.1 - to.0, to.1)));
            }
            // Complete sums leave in the last column tile.
            if from == to {
                let behind = self.moving(&self.leaving_late(stage, axis));
                need(behind, floor.work_between(along, 0, largest));
                need(first + behind, floor.work_between(along, largest, largest));
            }
        }
        needs
    }

    /// The least time in which the PCUs that the stages need are no more than the chip has; no less than `least`. What memory moves
    /// does not depend on time.
    pub(super) fn least_time(&self, needs: &[Need], least: u64) -> Option<u64> {
        let pcus = self.chip.pcus();
        let units: u64 = self.stages.iter().map(|stage| stage.unit).sum();
        if units > pcus {
            return None;
        }
        if self.counted == Counted::BytesOffChip {
            return Some(least);
        }
        let taken = |time: u64| {
            let mut sum = 0u64;
            for of_stage in needs.chunk_by(|a, b| a.stage == b.stage) {
                let unit = self.stages[of_stage[0].stage].unit;
                let mut most = 1;
                for need in of_stage {
                    let left = time.checked_sub(need.beside)?;
                    if need.work > 0 {
                        most = most.max(need.work.div_ceil(unit).div_ceil(left.max(1)));
                        if left == 0 {
                            return None;
                        }
                    }
                }
                sum = sum.saturating_add(most.saturating_mul(unit));
            }
            Some(sum)
        };
        let fits = |time: u64| taken(time).is_some_and(|taken| taken <= pcus);
        if fits(least) {
            return Some(least);
        }
        let (mut below, mut enough) = (least, least.max(1));
        while !fits(enough) {
            below = enough;
            enough = enough.checked_mul(2)?;
        }
        while enough - below > 1 {
            let middle = below + (enough - below) / 2;
            *(if fits(middle) { &mut enough } else { &mut below }) = middle;
        }
        Some(enough)
    }

    /// Cycles of a chain of GEMMs: each begins behind the first row tile, of `tile` rows or more, of the one before.
    fn chain(&self, tile: u64) -> u64 {
        let pcus = self.chip.pcus() as f64;
        let is_link = |stage: StageId| !self.stages[stage].is_simd && self.graph.stages[stage].sums.is_none();
        // Of every stage, the square roots of the first row tiles of the GEMMs before it, along the worst path; and behind it.
        let count = self.stages.len();
        let first: Vec<f64> = self
            .stages
            .iter_enumerated()
            .map(|(s, floor)| if is_link(s) { (floor.work_of_rows(tile) as f64).sqrt() } else { 0.0 })
            .collect();
        let mut before = vec![0.0f64; count];
        for (s, spec) in self.graph.stages.iter_enumerated() {
            for producer in spec.activations.iter().filter_map(|&t| self.graph.producer(t)) {
                before[s.index()] = before[s.index()].max(before[producer.index()] + first[producer.index()]);
            }
        }
        let whole = |s: StageId| (self.stages[s].work_of_rows(self.graph.rows) as f64).sqrt();
        let links = self.stages.ids().filter(|&s| is_link(s));
        let longest = links.map(|s| (before[s.index()] + whole(s)).powi(2) / pcus).fold(0.0, f64::max);
        (longest * (1.0 - 1e-9)) as u64
    }

    /// How a tiled axis runs through a stage.
    pub(super) fn along(&self, stage: StageId, axis: usize) -> Along {
        let spec = &self.graph.stages[stage];
        let is_along = |t: TensorId| self.graph.column_axis(t) == Some(axis);
        if spec.weight.is_some() && is_along(spec.activations[0]) {
            Along::Depth
        } else if is_along(spec.output) && spec.sums.is_none() {
            Along::Columns
        } else {
            Along::Off
        }
    }

    /// Second operands that come from off chip.
    pub(super) fn weights(&self) -> impl Iterator<Item = (StageId, TensorId)> + '_ {
        let from_off_chip =
            |(s, spec): (StageId, &StageSpec)| Some((s, spec.weight.filter(|_| spec.sequence.is_none())?));
        self.graph.stages.iter_enumerated().filter_map(from_off_chip)
    }

    /// Bytes of each tier that must come before a stage has finished its first row tile: shares of the activations and weights
    /// that it, and the stages before it, take from off chip.
    fn loading(&self, stage: StageId, rows: &dyn Fn(TensorId) -> Share, weight: &dyn Fn(StageId) -> Share) -> Vec<u64> {
        let (graph, tensors) = (self.graph, &self.graph.workload.tensors);
        let mut bytes = vec![0u64; self.bytes.len()];
        let (mut open, mut seen) = (vec![stage], vec![false; self.stages.len()]);
        let mut loaded: Vec<TensorId> = Vec::new();
        while let Some(at) = open.pop() {
            if std::mem::replace(&mut seen[at.index()], true) {
                continue;
            }
            let spec = &graph.stages[at];
            // Keys and values that another stage makes: one row tile of them at least.
            let made_here = spec.weight.filter(|_| spec.sequence.is_some());
            open.extend(made_here.and_then(|second| graph.producer(second)));
            let from_off_chip = spec.weight.filter(|_| spec.sequence.is_none());
            if let Some(of) = from_off_chip.filter(|w| !loaded.contains(&graph.workload.base(*w))) {
                loaded.push(graph.workload.base(of));
                bytes[self.tiers[of.index()].index()] +=
                    share(tensors[of].stored_bytes(), weight(at)) / graph.sequences().max(1);
            }
            for &tensor in &spec.activations {
                if let Some(producer) = graph.producer(tensor) {
                    open.push(producer);
                    continue;
                }
                let of = &tensors[tensor];
                if of.view.is_none() && of.mask.is_none() && of.rows == graph.rows && !loaded.contains(&tensor) {
                    loaded.push(tensor);
                    bytes[self.tiers[tensor.index()].index()] += share(of.dense_bytes(), rows(tensor));
                }
            }
        }
        bytes
    }

    /// Bytes of each tier that leave behind a stage: a share of the rows that it, and the stages behind it, make.
    fn leaving(&self, stage: StageId, rows: Share) -> Vec<u64> {
        let graph = self.graph;
        let mut bytes = vec![0u64; self.bytes.len()];
        let mut behind = vec![false; self.stages.len()];
        behind[stage.index()] = true;
        for (s, spec) in graph.stages.iter_enumerated() {
            let follows = |&t: &TensorId| graph.producer(t).is_some_and(|p| behind[p.index()]);
            behind[s.index()] |= spec.activations.iter().any(follows);
            let of = &graph.workload.tensors[spec.output];
            if behind[s.index()] && graph.leaves_section(spec.output) && of.mask.is_none() && of.rows == graph.rows {
                bytes[self.tiers[spec.output.index()].index()] += share(of.dense_bytes(), rows);
            }
        }
        bytes
    }

    /// Bytes of each tier that leave in the last column tile: what stages make that accumulate over column tiles, or that come
    /// behind one that does.
    fn leaving_late(&self, stage: StageId, axis: usize) -> Vec<u64> {
        let accumulates = |s: &StageId| self.along(*s, axis) == Along::Depth;
        let comes_behind = |s: &StageId| *s == stage || self.graph.distance(Some(stage), *s) > 0;
        let first = self.stages.ids().filter(accumulates).find(comes_behind);
        first.map_or_else(|| vec![0; self.bytes.len()], |s| self.leaving(s, WHOLE))
    }

    /// Cycles to move bytes of each tier, rounded down.
    fn moving(&self, bytes: &[u64]) -> u64 {
        let of_tier = |(t, &bytes): (usize, &u64)| {
            let rate = self.chip.tier_rate(TierId::from_index(t));
            share(bytes, (rate.cycles, rate.bytes))
        };
        bytes.iter().enumerate().map(of_tier).max().unwrap_or(0)
    }

    /// Cycles in which memory moves what must be moved, and more; or its bytes.
    pub(super) fn memory(&self, more: &[u64], prefetched: bool) -> u64 {
        let bytes: Vec<u64> = self.bytes.iter().zip(more).map(|(&a, &b)| a.saturating_add(b)).collect();
        if self.counted == Counted::BytesOffChip {
            return bytes.into_iter().fold(0, u64::saturating_add);
        }
        let bytes = if prefetched { self.without_weights(&bytes) } else { bytes };
        moving_cycles(self.chip, &bytes).saturating_add(self.latency())
    }

    /// Bytes of each tier without the weights that a section before may have loaded: as many as PMUs hold.
    fn without_weights(&self, bytes: &[u64]) -> Vec<u64> {
        let mut bytes = bytes.to_vec();
        let mut room = self.chip.sram_bytes();
        for (_, weight) in self.weights() {
            let loaded = self.graph.workload.tensors[weight].stored_bytes().min(room);
            room -= loaded;
            let of_tier = &mut bytes[self.tiers[weight.index()].index()];
            *of_tier = of_tier.saturating_sub(loaded);
        }
        bytes
    }

    /// Cycles that pass before the first bytes are there.
    pub(super) fn latency(&self) -> u64 {
        self.chip.memory.ids().map(|tier| self.chip.tier_latency_cycles(tier)).min().unwrap_or(0)
    }
}

/// A share of an amount, rounded down.
pub(crate) fn share(amount: u64, of: Share) -> u64 {
    (u128::from(amount) * u128::from(of.0) / u128::from(of.1.max(1))) as u64
}
