//! Sums of other slices of K that a lockstep group adds to its own as these leave its arrays.

use rdusim_cost::cost::Ticks;
use rdusim_program::{Amount, Input, Iteration, ProcessKind, Streamed};

use super::actors::Actor;
use super::engine::Engine;

/// The work of a firing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    /// When it begins.
    pub(super) begin: Ticks,
    /// How long it takes by itself.
    pub(super) occupied: Ticks,
    /// Output tiles.
    pub(super) tiles: u64,
    /// How long a tile only drains.
    pub(super) idle: Ticks,
}

/// What the sums of other slices of K do to a firing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Merged {
    /// Its first output tile is done no earlier.
    pub(super) first_out: Ticks,
    /// Its last is done no earlier.
    pub(super) end: Ticks,
    /// When the sums have left their slot.
    pub(super) left: Ticks,
}

impl Engine<'_> {
    /// When the first and the last of the sums of other slices of K are there that a lockstep group's firing adds to its own.
    fn merged_from(&self, actor: &Actor, at: Iteration) -> Option<(Ticks, Ticks)> {
        if !self.processes.merges_sums(actor.kind, at) {
            return None;
        }
        let sums = actor.inputs.iter().filter(|input| input.streamed == Streamed::Merged);
        let filled = |input: &Input| self.buffers[input.buffer].filled(self.ordinal(input.buffer, at));
        sums.filter_map(filled).map(|filled| (filled.first, filled.last)).reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))
    }

    /// Sends the sums of other slices of K that the firing at `at` of a lockstep group adds to its own, if it does. They meet the
    /// vectors that leave: what is there at a time is added to what was worked on before.
    pub(super) fn merge(&mut self, index: usize, at: Iteration, of: Work, now: Ticks) -> Option<Merged> {
        let actor = &self.actors[index];
        let ProcessKind::Group { stage, group } = actor.kind else { return None };
        let (first, last) = self.merged_from(actor, at)?;
        let (work, hops, sends) = (&self.work[stage], actor.merge_hops, actor.merges);
        let way = actor.feed_hops + work.skew_cycles().ticks();
        let met = |there: Ticks| (there + hops).saturating_sub(way);
        let drains = work.drain_cycles(group, !self.processes.forwards_sums(actor.kind, at), true).ticks();
        let of_tile = (of.occupied / of.tiles).saturating_sub(of.idle);
        let flits = work.flits(Amount::Partials, at.column_tile, group, self.tiling.row_tile(at.row_tile));
        let from = first.max((of.begin + of_tile + way).saturating_sub(hops));
        let nominal = (last.max(from) - from).max(of.occupied - of_tile - of.idle + drains);
        let left = self.network.send(sends, flits, now, from, nominal);
        let end = (met(first) + of.occupied - of_tile).max(met(left.max(last)).saturating_sub(drains) + of.idle);
        Some(Merged { first_out: met(first), end, left })
    }
}
