//! What a run that cannot go on says of itself.

use rdusim_cost::cost::{Limits, Stop};
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::Workload;
use rdusim_program::{BufferId, BufferRole, BufferSpec, Fabric, ProcessKind, Section};

use super::actors::Actor;
use super::engine::Engine;
use super::trace::Track;

impl Engine<'_> {
    fn tensor(&self, buffer: BufferId) -> &str {
        tensor(self.graph.workload, self.section, buffer)
    }

    /// What an actor is called.
    pub(super) fn name(&self, actor: &Actor) -> String {
        let workload = self.graph.workload;
        match actor.kind {
            ProcessKind::Group { stage, group } => {
                let main = self.section.stages[stage].spec.main;
                format!("stage `{}` (lockstep group {group})", workload.operators[main].name)
            }
            ProcessKind::Copy { operand, .. } => format!("copy of `{}`", self.tensor(operand)),
            ProcessKind::Load { stream } | ProcessKind::Store { stream } => {
                format!("stream of `{}`", workload.tensors[self.section.streams[stream].stream.tensor].name)
            }
        }
    }

    /// An actor as a timeline shows it.
    pub(super) fn track(&self, actor: &Actor) -> Track {
        let workload = self.graph.workload;
        let plain = |name: String, label: String| Track { name, label, pcus: 0, tier: None };
        match actor.kind {
            ProcessKind::Group { stage, group } => {
                let label = workload.operators[self.section.stages[stage].spec.main].name.clone();
                let all = self.section.stages[stage].mapping.groups().max(1);
                let pcus = self.section.stages[stage].pcus.len() as u64 / all;
                Track { pcus, ..plain(format!("{label} #{group}"), label) }
            }
            ProcessKind::Copy { operand, .. } => {
                plain(format!("copy {}", self.tensor(operand)), self.tensor(operand).to_owned())
            }
            ProcessKind::Load { stream } | ProcessKind::Store { stream } => {
                let off_chip = &self.section.streams[stream];
                let label = workload.tensors[off_chip.stream.tensor].name.clone();
                let does = if off_chip.stream.writes { "write" } else { "read" };
                let tier = Some(self.chip.memory[off_chip.tier].name.clone());
                Track { tier, ..plain(format!("{does} {label}"), label) }
            }
        }
    }

    /// One line for every actor that could not finish: stalled, if all its inputs are there and a buffer it fills has
    /// no room, else starved. Those that have sent all are counted.
    pub(super) fn blocked(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for actor in self.actors.iter().filter(|actor| actor.next < actor.count) {
            let step = actor.at;
            let mut waits = Vec::new();
            for input in actor.inputs.iter().filter(|input| self.processes.takes(actor.kind, input, step)) {
                let slot = self.processes.needed(input, step);
                if self.buffers[input.buffer].filled(slot).is_none() {
                    waits.push(format!("row tile {slot} of `{}`", self.tensor(input.buffer)));
                }
            }
            let class = if waits.is_empty() { "stalled" } else { "starved" };
            for &output in actor.outputs.iter().filter(|_| self.produces(actor, step)) {
                if self.buffers[output].credit(self.ordinal(output, step)).is_none() {
                    let state = &self.buffers[output];
                    let depth = self.section.buffers[output].spec.depth;
                    waits.push(format!("room in `{}` ({} of {depth} slots held)", self.tensor(output), state.held()));
                }
            }
            let (name, next, count) = (self.name(actor), actor.next, actor.count);
            lines.push(format!("{name} is {class} at firing {next} of {count}: waits for {}", waits.join(", ")));
        }
        let done = self.actors.len() - lines.len();
        lines.push(format!("{done} of {} stages, copies and streams have sent all", self.actors.len()));
        lines
    }
}

fn tensor<'w>(workload: &'w Workload, section: &Section, buffer: BufferId) -> &'w str {
    match section.buffers[buffer].spec.role {
        BufferRole::Operand { tensor, .. }
        | BufferRole::Resident { tensor, .. }
        | BufferRole::Weight { tensor, .. }
        | BufferRole::State { tensor, .. }
        | BufferRole::Output { tensor, .. } => workload.tensors[tensor].name.as_str(),
        BufferRole::PartialSums { .. } | BufferRole::PartialFifo { .. } => "partial sums",
    }
}

/// Slots of a buffer that are tried at most, and events of each try.
const DEEPEST: u64 = 4096;
const LIMITS: Limits<'_> =
    Limits { events: 1_000_000, cycles: u64::MAX, work: u64::MAX, skip: true, stop: Stop::NEVER };

/// The buffer that frees a blocked section with the fewest more slots, in words; `None` if none does alone.
pub(super) fn cure(chip: &Chip, workload: &Workload, fabric: &Fabric, section: &Section) -> Option<String> {
    let mut trial = section.clone();
    let mut best: Option<(u64, BufferId)> = None;
    for buffer in section.buffers.ids() {
        let BufferSpec { depth, level, .. } = section.buffers[buffer].spec;
        let mut drains = |depth: u64| {
            trial.buffers[buffer].spec.depth = depth;
            super::event::run(chip, workload, fabric, &trial, LIMITS).is_some_and(|run| run.stopped.is_none())
        };
        let (mut fails, mut frees) = (depth, section.schedule.count(level).min(DEEPEST));
        if frees > depth && drains(frees) {
            while frees - fails > 1 {
                let middle = fails + (frees - fails) / 2;
                if drains(middle) {
                    frees = middle;
                } else {
                    fails = middle;
                }
            }
            if best.is_none_or(|(more, _)| frees - depth < more) {
                best = Some((frees - depth, buffer));
            }
        }
        trial.buffers[buffer].spec.depth = depth;
    }
    let (more, buffer) = best?;
    let depth = section.buffers[buffer].spec.depth;
    let name = tensor(workload, section, buffer);
    Some(format!("with {} slots in place of {depth} in a buffer of `{name}` it would go on", depth + more))
}
