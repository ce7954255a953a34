//! Steady state: when the state relative to now equals an earlier one, what happened in between happens again, as
//! often as the nest goes on in the same way, and need not be simulated.
//!
//! A run is deterministic: its future is a function of its state and of what the coming firings are. Where the loops of
//! the nest have moved on by whole iterations, where every actor and buffer has moved on with them, and where the
//! coming iterations are like those that have passed, the future is the past, later. Nothing is approximated: counters
//! and cycles are those of a run without skipping.

use rdusim_base::units::index;
use std::collections::VecDeque;
use std::hash::Hasher;

use rustc_hash::FxHasher;

use rdusim_base::index::IndexVec;
use rdusim_cost::cost::{SkippedPeriod, SkippedPeriods, StageWork, Ticks, different_slots, to_cycles, transfer_bytes};
use rdusim_program::{BufferId, Iteration, LoopLevel, OffChip, ProcessKind, Schedule, StreamId};

use super::clock::Clock;
use super::engine::Engine;
use super::state::Progress;

/// A state that was met.
#[derive(Debug)]
struct Snapshot {
    hash: u64,
    words: Vec<u64>,
    progress: Progress,
}

/// States of earlier iterations of one loop, latest last.
#[derive(Debug, Default)]
struct Snapshots {
    /// Hashes of what actors were doing.
    fingerprints: VecDeque<u64>,
    snapshots: VecDeque<Snapshot>,
}

/// Iterations that are remembered: slots of 64-byte bursts that are no whole stripes lie in the same place on six channels
/// of 1 KiB stripes again after up to 96.
const REMEMBERED: usize = 200;

/// Looks for periods, and skips them. Loops are named by their position in the walk of all firings.
#[derive(Debug)]
pub(super) struct Steady {
    /// The actor whose firings are the points of comparison.
    reference: usize,
    /// How far back times matter.
    reach: Ticks,
    /// The first of the column tiles in a row that are like each column tile.
    equal: Vec<u64>,
    /// The same of panels: the first of those before it in a row whose column tiles are like its own. The first and the last are
    /// like no other.
    equal_panels: Vec<u64>,
    /// Loops over which some stage adds up: their first iteration is like no other.
    summed: Vec<bool>,
    /// Loops whose iterations do different work or move other bytes: those over row tiles of causal attention, and of windows
    /// with unequal shares of their image.
    varied: Vec<bool>,
    /// The innermost loop that is compared: column tiles are if there are row tiles within.
    innermost: usize,
    /// States by loop.
    snapshots_of: Vec<Snapshots>,
    /// Iterations at the latest comparison.
    place: Vec<u64>,
    words: Vec<u64>,
    /// Words of states that were written so far.
    written: u64,
    /// Periods that were skipped so far.
    skipped: SkippedPeriods,
}

impl Steady {
    /// Looks from the last stage that walks all loops.
    pub(super) fn new(engine: &Engine<'_>) -> Option<Self> {
        let is_first = |index: &usize| matches!(engine.actors[*index].kind, ProcessKind::Group { group: 0, .. });
        let groups: Vec<usize> = (0..engine.actors.len()).filter(is_first).collect();
        let walks_all = |index: &&usize| engine.actors[**index].level == LoopLevel::FIRING;
        let reference = *groups.iter().rev().find(walks_all).or(groups.last())?;
        let schedule = engine.processes.schedule();
        let depth = schedule.depth();
        let is_summed = |level: usize| {
            let walks = |of| schedule.is_walked(of, level);
            engine.section.stages.iter().any(|stage| walks(stage.level) && !walks(stage.result_level()))
        };
        let tile_rows = engine.tiling.tile_rows;
        let slots = |stream: &OffChip| different_slots(&engine.graph.workload.tensors[stream.stream.tensor], tile_rows);
        let of_streams = engine.section.streams.iter().map(slots);
        let different: Vec<u64> = engine.work.iter().map(StageWork::different_row_tiles).chain(of_streams).collect();
        let is_varied = |level: usize| {
            let tiles = schedule.row_tiles_of(level);
            tiles.is_some_and(|tiles| different.iter().any(|&different| !tiles.is_multiple_of(different)))
        };
        Some(Self {
            reference,
            reach: reach(engine),
            equal: equal_column_tiles(engine),
            equal_panels: equal_panels(engine),
            summed: (0..depth).map(is_summed).collect(),
            varied: (0..depth).map(is_varied).collect(),
            innermost: depth - 1 - usize::from(schedule.is_over_columns(depth - 1)),
            snapshots_of: (0..depth).map(|_| Snapshots::default()).collect(),
            place: vec![0; depth],
            words: Vec::new(),
            written: 0,
            skipped: SkippedPeriods::default(),
        })
    }

    /// Words of states that were written so far.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Periods that were skipped.
    pub(super) fn into_skipped(self) -> SkippedPeriods {
        self.skipped
    }

    /// Whether the coming firing of `actor` is a point of comparison.
    pub(super) fn is_reference(&self, actor: usize) -> bool {
        actor == self.reference
    }

    /// Compares the state before the reference's firing at `now` with earlier ones, and skips what will repeat. Returns
    /// the time from which the run goes on.
    pub(super) fn skip_periods(&mut self, engine: &mut Engine<'_>, now: Ticks) -> Ticks {
        let schedule = engine.processes.schedule();
        let actor = &engine.actors[self.reference];
        let at = schedule.step(actor.level, actor.next);
        let mut is_elsewhere = false;
        for level in 0..=self.innermost {
            if is_elsewhere {
                self.snapshots_of[level] = Snapshots::default();
            }
            let iteration = schedule.iteration(level, at);
            is_elsewhere |= iteration != self.place[level];
            self.place[level] = iteration;
        }
        let level = schedule.begins(at);
        // Too near the end of the loop to skip anything.
        if level > self.innermost || self.varied[level] || self.place[level] + 2 >= schedule.trips(level, at) {
            return now;
        }
        let clock = Clock { now, reach: self.reach };
        // Most row tiles end here: what actors do, which is soon written, never was before.
        if level == self.innermost && !self.is_known_fingerprint(engine, clock) {
            return now;
        }
        self.words.clear();
        engine.write_state(clock, self.reference, &mut self.words);
        self.written += self.words.len() as u64;
        let hash = hash_of(&self.words);
        let known = &self.snapshots_of[level];
        let same = |snapshot: &&Snapshot| snapshot.hash == hash && snapshot.words == self.words;
        for snapshot in known.snapshots.iter().rev().filter(same) {
            let times = self.periods(engine, &snapshot.progress, clock, level);
            if times > 0 {
                let later = engine.shift(&snapshot.progress, now, self.reference, times);
                let before = schedule.step(engine.actors[self.reference].level, snapshot.progress.next[self.reference]);
                let iterations = schedule.iteration(level, at).saturating_sub(schedule.iteration(level, before));
                let from = self.place[level];
                let (to, cycles) = (from + times * iterations, to_cycles(later - now));
                self.skipped.push(SkippedPeriod { level, from, to, iterations, cycles });
                if let Some(recorder) = &mut engine.recorder {
                    recorder.repeat(times, now, later);
                }
                self.snapshots_of[level] = Snapshots::default();
                return later;
            }
        }
        let progress = engine.progress(now, self.reference);
        let known = &mut self.snapshots_of[level];
        if known.snapshots.len() == REMEMBERED {
            known.snapshots.pop_front();
        }
        known.snapshots.push_back(Snapshot { hash, words: self.words.clone(), progress });
        now
    }

    /// Whether actors did the same at an earlier row tile; remembers what they do.
    fn is_known_fingerprint(&mut self, engine: &Engine<'_>, clock: Clock) -> bool {
        self.words.clear();
        engine.write_actors(clock, &mut self.words);
        self.written += self.words.len() as u64;
        let hash = hash_of(&self.words);
        let fingerprints = &mut self.snapshots_of[self.innermost].fingerprints;
        let known = fingerprints.contains(&hash);
        if fingerprints.len() == REMEMBERED {
            fingerprints.pop_front();
        }
        fingerprints.push_back(hash);
        known
    }

    /// How often what happened since `before`, when the state was the same, will happen again before the nest changes.
    fn periods(&self, engine: &Engine<'_>, before: &Progress, clock: Clock, level: usize) -> u64 {
        let schedule = engine.processes.schedule();
        let reference = &engine.actors[self.reference];
        let from = schedule.step(reference.level, before.next[self.reference]);
        let to = schedule.step(reference.level, reference.next);
        let is_near = schedule.is_same_around(LoopLevel::FIRING, level, from, to);
        let by = schedule.iteration(level, to).saturating_sub(schedule.iteration(level, from));
        if by == 0 || !is_near {
            return 0;
        }
        let moved = |of| by * schedule.points_in(of, level, to);
        let mut still: IndexVec<BufferId, bool> = IndexVec::new();
        for ((b, buffer), before) in engine.buffers.iter_enumerated().zip(&before.passed) {
            let passed = buffer.passed();
            let moved = moved(engine.section.buffers[b].spec.level);
            let is_still = passed == *before;
            // What is read in a loop without being filled or given back must have been there for long.
            let goes_on = passed.0 - before.0 == moved && passed.1 - before.1 == moved;
            if !(goes_on || is_still && buffer.is_settled(clock)) {
                return 0;
            }
            still.push(is_still);
        }
        let mut times = u64::MAX;
        let time = clock.now - before.now;
        let free_at = before.free_at.iter();
        for ((actor, &before), &free_at) in engine.actors.iter().zip(&before.next).zip(free_at) {
            let mut buffers = actor.inputs.iter().map(|input| input.buffer).chain(actor.outputs.iter().copied());
            let steps = actor.next - before;
            if steps != moved(actor.level) {
                // It waits for another loop, and so do its buffers.
                if steps > 0 || !buffers.all(|b| still[b]) {
                    return 0;
                }
            } else if steps > 0 {
                // What it waits is counted from when it was free, however long ago that is.
                if actor.next >= actor.count || actor.free_at != free_at + time {
                    return 0;
                }
                // The oldest firings of either state that have not emitted yet, and the next ones.
                let under_way = actor.under_way.len() as u64;
                let [oldest, from] = [before - under_way, before].map(|next| schedule.step(actor.level, next));
                let [oldest_now, to] = [under_way, 0].map(|back| schedule.step(actor.level, actor.next - back));
                let is_same_around = |one, other| schedule.is_same_around(actor.level, level, one, other);
                if !is_same_around(from, to) || !is_same_around(oldest, oldest_now) {
                    return 0;
                }
                times = times.min(self.equal(schedule, level, oldest, to) / by);
                for input in actor.inputs.iter().filter(|input| still[input.buffer]) {
                    // Its slots must be there already.
                    let of = engine.section.buffers[input.buffer].spec.level;
                    let (ordinal, filled) =
                        (schedule.needed(of, input.sequence, to), engine.buffers[input.buffer].passed().0);
                    let step = moved(of);
                    if ordinal >= filled {
                        return 0;
                    }
                    if let Some(more) = (filled - 1 - ordinal).checked_div(step) {
                        times = times.min(more);
                    }
                }
            }
        }
        if times == u64::MAX { 0 } else { times }
    }

    /// How many more iterations of a loop are like those that an actor went through `from` one place `to` another.
    fn equal(&self, schedule: &Schedule, level: usize, from: Iteration, to: Iteration) -> u64 {
        if schedule.is_over_panels(level) {
            let tiles = schedule.tiles_of_panel();
            let panel = |at: Iteration| index(at.column_tile / tiles);
            let (first, of) = (self.equal_panels[panel(from)], panel(to));
            let last = self.equal_panels.iter().rposition(|&other| other == first).unwrap_or(0);
            return last.saturating_sub(of) as u64;
        }
        if schedule.is_over_columns(level) {
            let first = self.equal[index(from.column_tile)];
            let last = self.equal.iter().rposition(|&other| other == first).unwrap_or(0) as u64;
            return last.saturating_sub(to.column_tile);
        }
        if self.summed[level] && schedule.iteration(level, from) == 0 {
            return 0;
        }
        // The last may be short, and gives back what the loop has used.
        (schedule.trips(level, to) - 1).saturating_sub(schedule.iteration(level, to) + 1)
    }
}

/// How far back an event may look: a firing begins at most its own length before it is known.
fn reach(engine: &Engine<'_>) -> Ticks {
    2 * engine.longest + 1
}

/// For each column tile the first of those before it in a row that are like it, in every stage and stream. The first and the
/// last of a panel are like no other: partial sums begin and end there.
fn equal_column_tiles(engine: &Engine<'_>) -> Vec<u64> {
    let tiling = engine.tiling;
    let (column_tiles, of_panel) = (tiling.column_tiles(), engine.processes.schedule().tiles_of_panel());
    let mut equal = vec![0; index(column_tiles)];
    for column_tile in 1..column_tiles {
        let in_panel = column_tile % of_panel;
        let is_inside = in_panel > 1 && in_panel + 1 < of_panel;
        let is_like = is_inside && are_alike(engine, column_tile - 1, column_tile);
        equal[index(column_tile)] = if is_like { equal[index(column_tile) - 1] } else { column_tile };
    }
    equal
}

/// For each panel the first of those before it in a row whose column tiles are like its own.
fn equal_panels(engine: &Engine<'_>) -> Vec<u64> {
    let of_panel = engine.processes.schedule().tiles_of_panel();
    let panels = engine.tiling.panels();
    let mut equal = vec![0; index(panels)];
    for panel in 1..panels {
        let is_inside = panel > 1 && panel + 1 < panels;
        let mut tiles = panel * of_panel..(panel + 1) * of_panel;
        let is_like = is_inside && tiles.all(|tile| are_alike(engine, tile - of_panel, tile));
        equal[index(panel)] = if is_like { equal[index(panel) - 1] } else { panel };
    }
    equal
}

/// Whether two column tiles are alike in every stage and stream.
fn are_alike(engine: &Engine<'_>, a: u64, b: u64) -> bool {
    let tiling = engine.tiling;
    let width = |column_tile| {
        let range_of = |axis| tiling.range_of(Some(axis), column_tile).map(|range| range.end - range.start);
        tiling.tiled_axis.map(|cut| (range_of(cut.axis), cut.panels.map(|panels| range_of(panels.axis))))
    };
    let bytes = |stream: StreamId, column_tile: u64| {
        let at = Iteration { block: 0, column_tile, row_tile: 0 };
        transfer_bytes(engine.chip, &engine.graph, engine.section, stream, at)
    };
    let work =
        |stage: &rdusim_program::Stage| stage.work.len() < 2 || stage.work.get(index(a)) == stage.work.get(index(b));
    width(a) == width(b)
        && !engine.work.iter().any(StageWork::is_sampled)
        && engine.section.stages.iter().all(work)
        && engine.section.streams.ids().all(|stream| bytes(stream, a) == bytes(stream, b))
}

fn hash_of(words: &[u64]) -> u64 {
    let mut hasher = FxHasher::default();
    for &word in words {
        hasher.write_u64(word);
    }
    hasher.finish()
}
