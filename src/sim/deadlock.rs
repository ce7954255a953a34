//! What a run that cannot go on says of itself.

use crate::compile::BufferRole;

use super::actors::ActorKind;
use super::event::Engine;

impl Engine<'_> {
    /// One line for every actor that could not finish.
    pub(super) fn blocked(&self) -> Vec<String> {
        let workload = self.graph.workload;
        let tensor = |b: usize| match self.section.buffers[b].spec.role {
            BufferRole::Operand { tensor, .. }
            | BufferRole::Home { tensor, .. }
            | BufferRole::Weight { tensor, .. }
            | BufferRole::Store { tensor, .. } => workload.tensors[tensor].name.as_str(),
            BufferRole::Partial { .. } => "partial sums",
        };
        let mut lines = Vec::new();
        for actor in self.actors.iter().filter(|a| a.next < a.count) {
            let name = match actor.kind {
                ActorKind::Bundle { stage, bundle } => {
                    let main = self.section.stages[stage].spec.main;
                    format!("stage `{}` (bundle {bundle})", workload.operators[main].name)
                }
                ActorKind::Copy { operand, .. } => format!("copy of `{}`", tensor(operand)),
                ActorKind::Load { stream } | ActorKind::Store { stream } => {
                    format!("stream of `{}`", workload.tensors[self.section.streams[stream].stream.tensor].name)
                }
            };
            let step = self.step(actor);
            let mut waits = Vec::new();
            for input in &actor.inputs {
                let slot = self.ordinal(input.buffer, step);
                if self.buffers[input.buffer].filled(slot).is_none() {
                    waits.push(format!("token {slot} of `{}`", tensor(input.buffer)));
                }
            }
            for &output in actor.outputs.iter().filter(|_| self.emits(actor, step)) {
                if self.buffers[output].room(self.ordinal(output, step)).is_none() {
                    let state = &self.buffers[output];
                    let depth = self.section.buffers[output].spec.depth;
                    waits.push(format!("room in `{}` ({} of {depth} slots held)", tensor(output), state.held()));
                }
            }
            lines.push(format!("{name} at firing {} of {}: waits for {}", actor.next, actor.count, waits.join(", ")));
        }
        lines
    }
}
