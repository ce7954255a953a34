//! A firing of a lockstep group: when it begins and ends, when its first results leave, and what it leaves to be released.
//!
//! A firing takes the cycles of its work, or longer where its operands arrive more slowly than they are worked on. Its times are fixed
//! when it begins and are never revised. `docs/timing-model.md` fixes every convention.

use std::cmp::Reverse;

use rdusim_cost::cost::{Cycles, Ticks};
use rdusim_program::{Amount, Iteration, Mapping, ProcessKind, StageId, Streamed};

use super::actors::Firing;
use super::engine::{Engine, Event};
use super::feeding::Fed;
use super::merging::Work;
use super::taken::Taking;

impl Engine<'_> {
    pub(super) fn start_group(&mut self, index: usize, stage: StageId, group: u64, now: Ticks) {
        let actor = &self.actors[index];
        let at = self.actors[index].at;
        let row_tile = self.tiling.row_tile(at.row_tile);
        let rows = row_tile.rows;
        let work = &self.work[stage];
        let occupied = work.cycles(at.column_tile, group, row_tile);
        let tiles = work.tiles(at.column_tile, group, row_tile).max(1);
        let idle = work.idle_cycles(row_tile).min(occupied).ticks();
        let continues = self.processes.continues(actor.kind, at);
        let operands = [actor.feed, actor.weights, actor.partial_reads, actor.state];
        let sums_from = self.sums_from(actor, at);
        let begin = now.max(actor.free_at).max(sums_from);
        let mut end = begin + occupied.ticks();
        let amounts =
            [Amount::Activations, Amount::Weights].map(|amount| work.flits(amount, at.column_tile, group, row_tile));
        let feeds = [actor.feed, actor.weights];
        let lengths = [0, 1].map(|kind| self.feed_length(feeds[kind], amounts[kind], tiles, idle));
        // What is left after late operands takes as long as it is fed.
        let paced = lengths.iter().map(|&(_, least)| least).fold(occupied.ticks(), Ticks::max);
        let tile = paced.div_ceil(tiles);
        // The first row pass takes all weights, and the others follow it.
        let passes = work.passes(rows).max(1);
        end = end.max(self.inputs_last(index, at, paced, tile, passes));
        let nominal = occupied.ticks() - idle;
        let fed_at = actor.fed_at.map(|fed_at| now.max(fed_at).max(sums_from));
        for kind in [0, 1] {
            let arrives = fed_at[kind].max(self.network.ends_at(feeds[kind]));
            end = end.max(self.fed_in_turns(
                index,
                at,
                &Fed { kind, amount: amounts[kind], flits: lengths[kind].0, arrives },
                occupied.ticks(),
            ));
        }
        // With one set of accumulators the last tile drains when its operands have come.
        let fed_by = [0, 1].map(|kind| {
            self.network
                .send(feeds[kind], amounts[kind], now, fed_at[kind], nominal)
                .max(fed_at[kind] + lengths[kind].1)
        });
        end = end.max(fed_by[0].max(fed_by[1]) + idle);
        if continues {
            let sums = work.flits(Amount::Partials, at.column_tile, group, work.sums_before(row_tile));
            end = end.max(self.network.send(actor.partial_reads, sums, now, begin, nominal));
        }
        if self.processes.emits(actor.kind, at) {
            let state = work.flits(Amount::State, at.column_tile, group, row_tile);
            end = end.max(self.network.send(actor.state, state, now, begin, nominal));
        }
        if group == 0 {
            self.count_work(stage, at);
        }
        let merged = self.merge(index, at, Work { begin, occupied: occupied.ticks(), tiles, idle }, now);
        end = end.max(merged.map_or(0, |merged| merged.end));
        let work = &self.work[stage];
        // One operand delays the other.
        end = operands.map(|group| self.network.delayed_until(group)).into_iter().fold(end, Ticks::max);
        let taking = Taking {
            end: end - idle,
            lasts: lengths.map(|(_, least)| nominal.max(least)),
            flits: lengths.map(|(flits, _)| flits),
        };
        let sent_by = [0, 1].map(|kind| fed_at[kind] + self.network.leaves(feeds[kind], amounts[kind]));
        let left = self.operands_left(index, taking, sent_by, end);
        // Whatever makes a firing last longer than its work does so from the first tile on.
        let first_tile = (end - begin).div_ceil(tiles);
        let first_out = match work.mapping() {
            // Rows that are read more than once leave while they are read the last time.
            Mapping::Simd(m) if m.passes > 1 => begin + first_tile - first_tile / m.passes,
            _ => begin + first_tile.saturating_sub(idle),
        };
        let first_out = first_out.max(merged.map_or(0, |merged| merged.first_out));
        self.count_time(index, begin, end, occupied);
        let actor = &mut self.actors[index];
        actor.free_at = end;
        actor.fed_at = left;
        actor.taken.add(taking, actor.holds, now.saturating_sub(self.longest));
        actor.under_way.push_back(Firing { at, emits_at: first_out, ends_at: end, tile: first_tile, tiles });
        self.queue.push(Reverse((first_out, Event::Emit(index))));
        // The sums of the last tile are in its accumulators when it begins.
        let sums_left = merged.map_or(end.saturating_sub(first_tile), |merged| merged.left);
        self.go_on(index, 1);
        self.release_inputs(index, at, [left[0], left[1], sums_left], now);
        self.wake(index, now);
    }

    /// Counts what a firing of all groups of a stage computes.
    fn count_work(&mut self, stage: StageId, at: Iteration) {
        let row_tile = self.tiling.row_tile(at.row_tile);
        let (work, rows) = (&self.work[stage], row_tile.rows);
        let last = work.mapping().groups() - 1;
        self.macs += work.stored_macs(at.column_tile, rows);
        self.executed_macs += work.executed_macs(at.column_tile, row_tile);
        self.expanded_elements += work.expanded_elements(at.column_tile, rows);
        self.simd_elements[stage] += work.simd_elements(at.column_tile, rows);
        if self.processes.emits(ProcessKind::Group { stage, group: last }, at) {
            let tail = self.section.stages[stage].spec.tail.len() as u64;
            self.simd_elements[stage] += tail * work.output_elements(at.column_tile, rows);
        }
    }

    /// Counts how an actor spends the time up to the end of a firing that works for `occupied` cycles, from when it was free.
    fn count_time(&mut self, index: usize, begin: Ticks, end: Ticks, occupied: Cycles) {
        let actor = &self.actors[index];
        let waited = begin - actor.free_at;
        let stalled = actor.waits_for_credit.min(waited);
        if let Some(recorder) = &mut self.recorder {
            recorder.wait(index, actor.next, [actor.free_at, begin - stalled, begin]);
        }
        self.record(index, begin, end);
        let actor = &mut self.actors[index];
        actor.stalled += stalled;
        // Operands that come later than they are worked on.
        actor.starved += waited - stalled + end - begin - occupied.ticks();
        actor.busy_cycles += occupied.0;
    }

    /// When a firing that is fed for `paced` ticks, a tile in `tile` of them, can end by when its inputs came.
    fn inputs_last(&self, index: usize, at: Iteration, paced: Ticks, tile: Ticks, passes: u64) -> Ticks {
        let actor = &self.actors[index];
        let mut last = 0;
        for input in actor.inputs.iter().filter(|input| input.streamed != Streamed::Merged) {
            if let Some(filled) = self.buffers[input.buffer].filled(self.processes.needed(input, at)) {
                let after = match input.streamed {
                    Streamed::Not | Streamed::Merged => 0,
                    Streamed::Weights => {
                        let pass = paced / passes;
                        pass.div_ceil(filled.parts) + pass * (passes - 1)
                    }
                    Streamed::Vectors | Streamed::Sums => tile.max(paced / filled.parts),
                    Streamed::Rows => tile.max(paced / filled.parts.min(self.row_groups(input, at))),
                };
                last = last.max(filled.last + after);
            }
        }
        last
    }
}
