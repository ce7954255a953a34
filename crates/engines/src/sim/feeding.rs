//! How far the operands of a lockstep group run ahead of its work.
//!
//! Flits wait in the FIFOs between PMU and PCU until the array takes them: those of several firings, where these are short. A slot is free
//! when the last of its flits is in a FIFO, which is when the array has taken all flits before the last that the FIFOs hold.

use rdusim_base::units::Flits;
use rdusim_cost::cost::Ticks;
use rdusim_program::{Input, Iteration, Streamed};

use super::engine::Engine;
use super::network::Sink;
use super::taken::{Taking, share};

/// Operands of a kind that a firing takes.
pub(super) struct Fed {
    /// Activations or weights.
    pub kind: usize,
    pub amount: Flits,
    /// Flits of its largest flow.
    pub flits: u64,
    /// From when on they come.
    pub arrives: Ticks,
}

impl Engine<'_> {
    /// When a firing ends at the earliest that works for `occupied` ticks and takes these operands. Flows into one port of a PCU take
    /// turns, a packet each, and every step of the work needs its part of each of them: it begins when the last flow has its turn, and
    /// what the last packets bring is worked on behind them. A packet is what is there of a slot that still fills, and what a FIFO
    /// before the array has room for: one that is full lets a flit in as one is taken.
    pub(super) fn fed_in_turns(&self, index: usize, at: Iteration, fed: &Fed, occupied: Ticks) -> Ticks {
        let Fed { kind, amount, flits, arrives } = *fed;
        let actor = &self.actors[index];
        let group = [actor.feed, actor.weights][kind];
        let Sink { flows, ticks, flit_ticks } = self.network.sink(group, amount);
        if flows < 2 || flits == 0 {
            return 0;
        }
        let is_weight = |input: &Input| input.streamed == Streamed::Weights || input.sequence.is_some();
        let of_kind = actor.inputs.iter().filter(|&input| is_weight(input) == (kind == 1));
        let fills = of_kind.filter_map(|input| self.buffers[input.buffer].filled(self.processes.needed(input, at)));
        let Some(slowest) = fills.max_by_key(|filled| filled.last) else { return 0 };
        let (there, fill) = (arrives.saturating_sub(slowest.first), slowest.last - slowest.first);
        let here = if there < fill { share(flits, there, fill).max(1) } else { flits };
        let room = self.chip.network.fifo_depth_flits.saturating_sub(actor.taken.untaken(kind, arrives));
        let packet = self.chip.network.max_packet_flits.min(room).max(1);
        let first = (flows - 1) * packet.min(here) * flit_ticks + occupied;
        let last = (flits - 1) % packet + 1;
        let before_last = ticks.saturating_sub(last * flit_ticks);
        if slowest.last > arrives + before_last {
            return arrives + first;
        }
        arrives + first.max(before_last + share(occupied, last, flits))
    }

    /// When the operands of a firing that ends at `end` have left the PMUs, before they are worked on; the ports there have sent each
    /// kind by `sent_by` at the earliest.
    pub(super) fn operands_left(&self, index: usize, taking: Taking, sent_by: [Ticks; 2], end: Ticks) -> [Ticks; 2] {
        let actor = &self.actors[index];
        let mut left = [0, 1].map(|kind| {
            let holds = actor.holds[kind];
            let taken = match holds.checked_sub(taking.flits[kind]) {
                None => taking.all_but(kind, holds),
                // Without a route nothing tells how much waits on it.
                Some(_) if holds == u64::MAX => actor.taken.begins(),
                Some(more) => actor.taken.all_but(kind, more),
            };
            taken.max(sent_by[kind]).min(end)
        });
        if taking.flits[1] == 0 {
            left[1] = left[0];
        }
        left
    }

    /// Flits of the largest flow that feeds a firing of `tiles` output tiles, and the ticks they take at least. While a tile drains
    /// from the only set of accumulators, the array takes none, and only the FIFO before it fills.
    pub(super) fn feed_length(&self, group: usize, amount: Flits, tiles: u64, idle: Ticks) -> (u64, Ticks) {
        let (flits, least) = self.network.longest(group, amount);
        let filling = least.saturating_mul(self.chip.network.fifo_depth_flits) / flits.max(1);
        (flits, least + idle.saturating_sub(filling) * (tiles - 1))
    }
}
