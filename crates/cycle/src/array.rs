//! A PCU as an output-stationary systolic array, k-step by k-step (`docs/timing-model.md`, GEMM stages).
//!
//! The array moves in step: a cycle in which a result cannot leave moves nothing. A cycle without operands is a bubble
//! behind which earlier tiles go on draining. Times are those of the first cell; what leaves does so `lanes + stages - 2`
//! cycles later, when the wave has passed.

use std::collections::VecDeque;
use std::rc::Rc;

use rdusim_program::{Amount, FlowId, Iteration, StageId, continues, emits, forwards, merges};

use super::amounts::{Amounts, StageAmounts};
use super::gemm_amounts::GemmAmounts;
use super::results::{Operand, Results};
use super::wires::Wires;

/// A tile on its way out of the accumulators.
#[derive(Debug)]
struct Drain {
    /// When its first vector has left the array.
    from: u64,
    /// Vectors (results) or flits (partial sums), and cycles of one.
    vectors: u64,
    cycles: u64,
    /// Which tile of its firing.
    cursor: Cursor,
    /// What they are.
    leaves: Leaves,
    /// With the sums of other slices of K.
    merges: bool,
    /// Whether the firing has been told to its output.
    opened: bool,
}

/// What leaves the array after a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaves {
    /// Results.
    Results,
    /// Sums that are complete for a slice of K, for another slice.
    SumsOfASlice,
    /// Sums that a later firing continues.
    ToContinue,
}

/// Where a tile stands in the stage's work.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    firing: u64,
    tile: u64,
    tiles: u64,
    at: Iteration,
}

/// One PCU of a GEMM stage.
#[derive(Debug)]
pub(super) struct Array {
    pub(super) stage: StageId,
    group: u64,
    firings: u64,
    work: Rc<GemmAmounts>,
    sets: usize,
    depth: u64,
    activations: Vec<Operand>,
    weights: Vec<Operand>,
    sums: Vec<Operand>,
    /// What the step in the tail reads beside complete sums.
    state: Vec<Operand>,
    /// Sums of other slices of K that are added to what leaves.
    merged: Vec<Operand>,
    results: Results,
    partials: Results,
    /// Cycles that the array has moved.
    clock: u64,
    issue: Cursor,
    /// k-steps of the tile that have been issued, and flits of the tiles before it in the firing.
    k: u64,
    /// k-steps of the tile, and those for which its operands have been taken.
    depth_of_tile: u64,
    fed: u64,
    row_flits: u64,
    column_flits: u64,
    row_flits_of_firing: u64,
    column_flits_of_firing: u64,
    /// Tiles issued; for the last ones when they began and ended to drain from the first cell.
    issued: u64,
    drained: VecDeque<(u64, u64)>,
    load: Cursor,
    /// Tiles of that firing that begin from sums: those that the firing before has left.
    sums_of_load: u64,
    /// Flits loaded of the tile that is being loaded, and tiles loaded.
    loaded_flits: u64,
    loaded: u64,
    out: VecDeque<Drain>,
    vectors_out: u64,
}

/// What a cycle of a unit did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Did {
    /// It moved.
    Moved,
    /// Nothing: it waits for a flit to come or to go.
    Waits,
    /// Nothing is left to do.
    Done,
}

impl Array {
    /// The PCU of a stage's lockstep group that takes and produces over these flows.
    pub(super) fn new(
        amounts: &Amounts<'_>,
        stage: StageId,
        group: u64,
        [activations, weights, sums, state, merged]: [Vec<Operand>; 5],
        [results, partials]: [Vec<FlowId>; 2],
    ) -> Option<Self> {
        let chip = amounts.chip;
        let placed = &amounts.section.stages[stage];
        let StageAmounts::Gemm(work) = &amounts.stages[stage] else { return None };
        let start = Cursor { firing: 0, tile: 0, tiles: 0, at: amounts.stage_step(stage, 0) };
        let mut array = Self {
            stage,
            group,
            firings: amounts.schedule.count(placed.level),
            work: Rc::clone(work),
            sets: chip.pcu.accumulator_sets as usize,
            depth: chip.network.fifo_depth_flits,
            activations,
            weights,
            sums,
            state,
            merged,
            results: Results::new(results),
            partials: Results::new(partials),
            clock: 0,
            issue: start,
            k: 0,
            depth_of_tile: 0,
            fed: 0,
            row_flits: 0,
            column_flits: 0,
            row_flits_of_firing: 0,
            column_flits_of_firing: 0,
            issued: 0,
            drained: VecDeque::new(),
            load: start,
            sums_of_load: 0,
            loaded_flits: 0,
            loaded: 0,
            out: VecDeque::new(),
            vectors_out: 0,
        };
        array.open_issue(amounts);
        array.open_load(amounts);
        Some(array)
    }

    fn tiles(&self, amounts: &Amounts<'_>, at: Iteration) -> u64 {
        self.work.tiles(at, self.group, amounts.tiling.rows_of(at.row_tile))
    }

    /// Begins the firing that `issue` names, if there is one.
    fn open_issue(&mut self, amounts: &Amounts<'_>) {
        if self.issue.firing >= self.firings {
            return;
        }
        let at = amounts.stage_step(self.stage, self.issue.firing);
        self.issue = Cursor { tile: 0, tiles: self.tiles(amounts, at), at, ..self.issue };
        (self.row_flits, self.column_flits) = (0, 0);
        let rows = amounts.tiling.rows_of(at.row_tile);
        if self.issue.tiles > 0 {
            self.open_tile(rows);
        }
        self.row_flits_of_firing = self.work.flits(Amount::Activations, at, self.group, rows);
        self.column_flits_of_firing = self.work.flits(Amount::Weights, at, self.group, rows);
        self.activations.iter_mut().chain(&mut self.weights).for_each(|operand| operand.open(amounts, at));
    }

    /// Begins the tile that `issue` names, of a row tile of `rows`.
    fn open_tile(&mut self, rows: u64) {
        (self.k, self.fed) = (0, 0);
        self.depth_of_tile = self.work.depth(self.issue.at, self.group, rows, self.issue.tile);
    }

    fn open_load(&mut self, amounts: &Amounts<'_>) {
        while self.load.firing < self.firings {
            let at = amounts.stage_step(self.stage, self.load.firing);
            self.load = Cursor { tile: 0, tiles: self.tiles(amounts, at), at, ..self.load };
            self.loaded_flits = 0;
            let before = amounts.processes.sums_before(self.stage, at);
            self.sums_of_load = before.map_or(self.load.tiles, |before| self.tiles(amounts, before));
            self.sums.iter_mut().for_each(|operand| operand.open(amounts, at));
            if self.load.tiles > 0 {
                return;
            }
            self.load.firing += 1;
        }
    }

    /// One cycle of a PCU that may begin so many firings. A firing whose tiles store nothing takes no operands that it would wait for.
    pub(super) fn tick(&mut self, amounts: &Amounts<'_>, wires: &mut Wires, enabled: u64, now: u64) -> Did {
        let draining = !self.out.is_empty();
        if !self.drain(amounts, wires, now) {
            return Did::Waits;
        }
        let loads = self.load_sums(amounts, wires, now);
        let steps = self.issue.firing < enabled.min(self.firings) && self.step(amounts, wires, now);
        if draining || loads || steps {
            self.clock += 1;
            return Did::Moved;
        }
        if self.issue.firing >= self.firings { Did::Done } else { Did::Waits }
    }

    /// Puts out what has drained; `false` if it cannot leave.
    fn drain(&mut self, amounts: &Amounts<'_>, wires: &mut Wires, now: u64) -> bool {
        let Some(drain) = self.out.front_mut() else { return true };
        if self.clock < drain.from + self.vectors_out * drain.cycles {
            return true;
        }
        let results = if drain.leaves == Leaves::ToContinue { &mut self.partials } else { &mut self.results };
        if !drain.opened {
            drain.opened = true;
            results.open(amounts, drain.cursor.at);
            if drain.leaves == Leaves::Results {
                self.state.iter_mut().for_each(|operand| operand.open(amounts, drain.cursor.at));
            }
            self.merged.iter_mut().for_each(|operand| operand.open(amounts, drain.cursor.at));
        }
        let part = drain.cursor.tile * drain.vectors + self.vectors_out + 1;
        let part = (part, drain.cursor.tiles * drain.vectors);
        let state: &[Operand] = if drain.leaves == Leaves::Results { &self.state } else { &[] };
        let merged: &[Operand] = if drain.merges { &self.merged } else { &[] };
        if !state.iter().chain(merged).all(|operand| operand.is_here(wires, part)) {
            return false;
        }
        if !results.put(wires, part.0, part.1, self.depth, now) {
            return false;
        }
        state.iter().chain(merged).for_each(|operand| operand.take(wires, part, now));
        self.vectors_out += 1;
        if self.vectors_out == drain.vectors {
            self.vectors_out = 0;
            self.out.pop_front();
        }
        true
    }

    /// Loads partial sums into the accumulators that drain or are free; whether anything came.
    fn load_sums(&mut self, amounts: &Amounts<'_>, wires: &mut Wires, now: u64) -> bool {
        let sets = self.sets as u64;
        while !self.sums.is_empty() && self.load.firing < self.firings && self.loaded < self.issued + sets {
            let stage = &amounts.section.stages[self.stage];
            let from_sums =
                self.load.tile < self.sums_of_load && continues(stage, self.group, amounts.schedule, self.load.at);
            if from_sums {
                if self.loaded >= sets {
                    // The set drains to the memories while the next sums come.
                    let before = self.loaded - sets + self.drained.len() as u64 - self.issued;
                    if self.drained[before as usize].0 > self.clock {
                        return false;
                    }
                }
                let part = self.load.tile * self.work.shape.partial_flits + self.loaded_flits + 1;
                let part = (part, self.sums_of_load * self.work.shape.partial_flits);
                if !self.sums.iter().all(|operand| operand.is_here(wires, part)) {
                    return false;
                }
                self.sums.iter().for_each(|operand| operand.take(wires, part, now));
                self.loaded_flits += 1;
                if self.loaded_flits < self.work.shape.partial_flits {
                    return true;
                }
            }
            self.loaded += 1;
            self.loaded_flits = 0;
            self.load.tile += 1;
            if self.load.tile == self.load.tiles {
                self.load.firing += 1;
                self.open_load(amounts);
            }
            if from_sums {
                return true;
            }
        }
        false
    }

    /// Issues a k-step, if its tile has accumulators and its operands are here.
    fn step(&mut self, amounts: &Amounts<'_>, wires: &mut Wires, now: u64) -> bool {
        if self.issue.tiles == 0 {
            self.issue.firing += 1;
            self.open_issue(amounts);
            return true;
        }
        let free = self.drained.len() < self.sets || self.drained[0].1 <= self.clock;
        let loaded = self.sums.is_empty() || self.loaded > self.issued;
        if self.k == 0 && !(free && loaded) {
            return false;
        }
        if self.depth_of_tile == 0 {
            self.complete(amounts, self.clock);
            return true;
        }
        if self.k == self.fed && !self.feed(amounts, wires, now) {
            return false;
        }
        self.k += 1;
        if self.k == self.depth_of_tile {
            self.complete(amounts, self.clock + 1);
        }
        true
    }

    /// Takes the operands of the next k-step, and with them those of the k-steps that share their flits; `false` and nothing if
    /// they are not here.
    fn feed(&mut self, amounts: &Amounts<'_>, wires: &mut Wires, now: u64) -> bool {
        let rows = amounts.tiling.rows_of(self.issue.at.row_tile);
        let taken = self.work.flits_upto(self.issue.at, self.group, rows, self.issue.tile, self.k + 1);
        let rows = (self.row_flits + taken.0, self.row_flits_of_firing);
        let columns = (self.column_flits + taken.1, self.column_flits_of_firing);
        let here = |operands: &[Operand], part| operands.iter().all(|operand| operand.is_here(wires, part));
        if !here(&self.activations, rows) || !here(&self.weights, columns) {
            return false;
        }
        self.fed = self.k + self.work.steps_of_flits(self.k);
        self.activations.iter().for_each(|operand| operand.take(wires, rows, now));
        self.weights.iter().for_each(|operand| operand.take(wires, columns, now));
        true
    }

    /// The last k-step of a tile has been issued by `end`.
    fn complete(&mut self, amounts: &Amounts<'_>, end: u64) {
        let stage = &amounts.section.stages[self.stage];
        let emits = emits(stage, self.group, amounts.schedule, self.issue.at);
        let leaves = if emits {
            Leaves::Results
        } else if forwards(stage, self.group, amounts.schedule, self.issue.at) {
            Leaves::SumsOfASlice
        } else {
            Leaves::ToContinue
        };
        let merges = merges(stage, self.group, amounts.schedule, self.issue.at);
        let shape = &self.work.shape;
        let results = shape.stages * shape.tail_cycles.max(1);
        // The sums of other slices of K come through one port, one behind the other.
        let slices = stage.mapping.reduction().before(stage.mapping.k_slice(self.group), stage.mapping.pk());
        let merged = if merges { slices.count() as u64 * shape.partial_flits } else { 0 };
        let (vectors, cycles) = if emits && merged <= results {
            (shape.stages, shape.tail_cycles.max(1))
        } else if emits {
            (merged, 1)
        } else {
            (shape.stages.max(shape.partial_flits).max(merged), 1)
        };
        let begin = self.drained.back().map_or(end, |last| last.1.max(end));
        self.drained.push_back((begin, begin + vectors * cycles));
        if self.drained.len() > self.sets {
            self.drained.pop_front();
        }
        let from = begin + self.work.shape.lanes + self.work.shape.stages - 2 + cycles;
        let opened = self.issue.tile > 0;
        self.out.push_back(Drain { from, vectors, cycles, cursor: self.issue, leaves, merges, opened });
        self.issued += 1;
        let rows = amounts.tiling.rows_of(self.issue.at.row_tile);
        let taken = self.work.flits_upto(self.issue.at, self.group, rows, self.issue.tile, self.depth_of_tile);
        self.row_flits += taken.0;
        self.column_flits += taken.1;
        self.issue.tile += 1;
        if self.issue.tile == self.issue.tiles {
            self.issue.firing += 1;
            self.open_issue(amounts);
        } else {
            self.open_tile(rows);
        }
    }

    /// The firing it has come to.
    pub(super) fn firing(&self) -> u64 {
        self.issue.firing
    }
}
