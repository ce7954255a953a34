//! A PCU as a SIMD pipeline, vector by vector; several in a row where a function is longer than one.

use std::collections::VecDeque;
use std::rc::Rc;

use rdusim_program::{FlowId, Iteration, StageId};

use super::amounts::{Amounts, StageAmounts};
use super::array::Did;
use super::results::{Operand, Results};
use super::simd_amounts::SimdAmounts;
use super::wires::Wires;

/// The vectors of a firing: rows, and how often each is read.
#[derive(Debug, Clone, Copy)]
struct Vectors {
    of_row: u64,
    passes: u64,
    all: u64,
}

impl Vectors {
    /// Results that are done when `read` vectors have been: those of a row come with its last reading.
    fn results(self, read: u64) -> u64 {
        let per_row = self.of_row * self.passes;
        let (rows, within) = (read / per_row, read % per_row);
        rows * self.of_row + within.saturating_sub(self.of_row * (self.passes - 1))
    }
}

/// One PCU of a SIMD stage.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) stage: StageId,
    firings: u64,
    stages: u64,
    depth: u64,
    work: Rc<SimdAmounts>,
    /// Whether its output goes to the next PCU of its chain.
    passes_on: bool,
    operands: Vec<Operand>,
    results: Results,
    clock: u64,
    firing: u64,
    vectors: Vectors,
    read: u64,
    /// In the pipeline: when it comes out, the vectors read of its firing with it, where the firing stands.
    inside: VecDeque<(u64, u64, Iteration)>,
    /// Whether the output knows the firing whose results come.
    opened: bool,
}

impl Pipeline {
    /// The PCU of a stage that takes and produces over these flows; with `passes_on` to the next of its chain.
    pub(super) fn new(
        amounts: &Amounts<'_>,
        stage: StageId,
        operands: Vec<Operand>,
        results: Vec<FlowId>,
        passes_on: bool,
    ) -> Option<Self> {
        let placed = &amounts.section.stages[stage];
        let StageAmounts::Simd(work) = &amounts.stages[stage] else { return None };
        let mut pipeline = Self {
            stage,
            firings: amounts.schedule.count(placed.level),
            stages: amounts.chip.pcu.stages,
            depth: amounts.chip.network.fifo_depth_flits,
            work: Rc::clone(work),
            passes_on,
            operands,
            results: Results::new(results),
            clock: 0,
            firing: 0,
            vectors: Vectors { of_row: 1, passes: 1, all: 0 },
            read: 0,
            inside: VecDeque::new(),
            opened: false,
        };
        pipeline.open(amounts);
        Some(pipeline)
    }

    fn vectors_at(&self, amounts: &Amounts<'_>, at: Iteration) -> Vectors {
        let (of_row, all) = (
            self.work.vectors_of_row(at.column_tile),
            self.work.vectors_read(at.column_tile, amounts.tiling.rows_of(at.row_tile)),
        );
        Vectors { of_row: of_row.max(1), passes: self.work.passes, all }
    }

    fn open(&mut self, amounts: &Amounts<'_>) {
        if self.firing < self.firings {
            let at = amounts.stage_step(self.stage, self.firing);
            self.vectors = self.vectors_at(amounts, at);
            self.read = 0;
            self.operands.iter_mut().for_each(|operand| operand.open(amounts, at));
        }
    }

    /// One cycle.
    pub(super) fn tick(&mut self, amounts: &Amounts<'_>, wires: &mut Wires, now: u64) -> Did {
        let draining = !self.inside.is_empty();
        if let Some(&(at, read, step)) = self.inside.front()
            && at <= self.clock
        {
            let vectors = self.vectors_at(amounts, step);
            if !self.opened {
                self.opened = true;
                self.results.open(amounts, step);
            }
            let done = if self.passes_on { read } else { vectors.results(read) };
            let all = if self.passes_on { vectors.all } else { vectors.all / vectors.passes };
            if !self.results.put(wires, done, all, self.depth, now) {
                return Did::Waits;
            }
            self.inside.pop_front();
            self.opened = read < vectors.all;
        }
        let reads = self.read(amounts, wires, now);
        if draining || reads {
            self.clock += 1;
            return Did::Moved;
        }
        if self.firing >= self.firings { Did::Done } else { Did::Waits }
    }

    /// Reads a vector of every operand, if they are here.
    fn read(&mut self, amounts: &Amounts<'_>, wires: &mut Wires, now: u64) -> bool {
        if self.firing >= self.firings {
            return false;
        }
        let part = (self.read + 1, self.vectors.all);
        if !self.operands.iter().all(|operand| operand.is_here(wires, part)) {
            return false;
        }
        self.operands.iter().for_each(|operand| operand.take(wires, part, now));
        self.read += 1;
        let at = amounts.stage_step(self.stage, self.firing);
        self.inside.push_back((self.clock + self.stages, self.read, at));
        if self.read >= self.vectors.all {
            self.firing += 1;
            self.open(amounts);
        }
        true
    }

    /// The firing it has come to.
    pub(super) fn firing(&self) -> u64 {
        self.firing
    }
}
