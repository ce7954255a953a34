//! The firing rule: when the inputs of an actor are filled and its outputs have credits.

use rdusim_cost::cost::Ticks;
use rdusim_program::{BufferId, Input, Iteration, Streamed};

use super::actors::Actor;
use super::engine::Engine;

impl Engine<'_> {
    /// When an actor's inputs are there, as far as it waits for them; `None` while that is not known.
    pub(super) fn filled(&self, actor: &Actor, at: Iteration) -> Option<Ticks> {
        let inputs = actor.inputs.iter().filter(|input| self.processes.takes(actor.kind, input, at));
        inputs.into_iter().try_fold(0, |latest: Ticks, input| {
            let filled = self.buffers[input.buffer].filled(self.processes.needed(input, at))?;
            Some(latest.max(match input.streamed {
                Streamed::Not => filled.last,
                Streamed::Weights | Streamed::Vectors => filled.begins(u64::MAX),
                // Operands wait in their FIFOs for the sums that the work begins from; others are added when it is done.
                Streamed::Sums | Streamed::Merged => 0,
                Streamed::Rows => filled.begins(self.row_groups(input, at)),
            }))
        })
    }

    /// When the sums that a lockstep group's firing begins from are there, if it takes them from a slice of K before.
    pub(super) fn sums_from(&self, actor: &Actor, at: Iteration) -> Ticks {
        let sums = actor.inputs.iter().filter(|input| input.streamed == Streamed::Sums);
        let first = |input: &Input| self.buffers[input.buffer].filled(self.ordinal(input.buffer, at));
        sums.filter_map(first).map(|filled| filled.first).max().unwrap_or(0)
    }

    /// When the slots that an actor fills have their credits; `None` while that is not known.
    pub(super) fn credit(&self, actor: &Actor, at: Iteration) -> Option<Ticks> {
        let outputs = if self.produces(actor, at) { &actor.outputs[..] } else { &[] };
        let credit = |&output: &BufferId| self.buffers[output].credit(self.ordinal(output, at));
        outputs.iter().try_fold(0, |latest: Ticks, output| Some(latest.max(credit(output)?)))
    }

    /// Groups of rows that whoever fills an input makes one after the other.
    pub(super) fn row_groups(&self, input: &Input, at: Iteration) -> u64 {
        input.made_by.map_or(u64::MAX, |stage| self.work[stage].passes(self.tiling.rows_of(at.row_tile)))
    }
}
