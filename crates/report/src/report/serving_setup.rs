//! What a model is served on, as the results of a batch and of a trace of requests name it.

use serde::Serialize;

use super::describe::chips;
use super::pod::SystemEntry;
use rdusim_pod::{Service, Stack, System};

/// System, software, model and decomposition.
#[derive(Debug, Clone, Copy)]
pub struct ServingSetup<'a> {
    /// The system.
    pub system: &'a System,
    /// Its software.
    pub stack: &'a Stack,
    /// The model and its decomposition.
    pub service: &'a Service,
}

/// The decomposition in JSON.
#[derive(Serialize)]
pub(super) struct ServedParallelEntry {
    tp: u64,
    pp: u64,
    dp: u64,
    cp: u64,
    ep: u64,
    stack: &'static str,
}

impl<'a> ServingSetup<'a> {
    pub(super) fn system_entry(&self) -> SystemEntry<'a> {
        SystemEntry { name: &self.system.name, chips: self.service.parallel.chips() }
    }

    pub(super) fn parallel_entry(&self) -> ServedParallelEntry {
        let p = &self.service.parallel;
        ServedParallelEntry { tp: p.tp, pp: p.pp, dp: p.dp, cp: 1, ep: p.experts.ep, stack: self.stack.kind.name() }
    }

    /// It in one line, for tables and pictures.
    pub(super) fn title(&self) -> String {
        let (p, model, system) = (&self.service.parallel, &self.service.model, &self.system.name);
        let (chips, stack) = (chips(p.chips()), self.stack.kind.name());
        let experts = if p.experts.ep > 1 { format!(" (ep {})", p.experts.ep) } else { String::new() };
        format!("{model} on {chips} of {system}: tp {} x pp {} x dp {}{experts}, stack {stack}", p.tp, p.pp, p.dp)
    }
}
