//! Both phases of a batch and the memory of its chips: what `rdusim pod --phase prefill|decode` shows.

use super::super::system::{Stack, System};
use super::memory::{ServingMemory, TierUse, memory, tiers};
use super::phases::{ServedPhase, Server};
use super::service::{Load, Service};
use crate::diagnostics::Diagnostic;
use crate::model::Phase;

/// A batch that is served.
#[derive(Debug, Clone)]
pub struct Served {
    /// The prompts.
    pub prefill: ServedPhase,
    /// A step behind them.
    pub decode: ServedPhase,
    /// Memory of the fullest chip in the asked phase.
    pub memory: ServingMemory,
    /// What its tiers hold.
    pub tiers: Vec<TierUse>,
    /// Seconds that bring the weights of the fullest stage from a chip's slowest memory into its fastest, all chips at the
    /// same time: switching to a model that lies there (composition of experts). Nothing with one memory.
    pub switch_s: Option<f64>,
    /// One sentence each.
    pub notes: Vec<String>,
}

fn switch_s(system: &System, service: &Service) -> Option<f64> {
    let rates: Vec<u64> = system.chip.device().tiers().iter().map(|tier| tier.bandwidth_bytes_per_s).collect();
    let bytes = (0..service.parallel.pp).map(|stage| service.weight_bytes(stage)).max()?;
    let slowest = rates.iter().min().filter(|_| rates.len() > 1)?;
    Some(bytes as f64 / *slowest as f64)
}

/// Prefill of a batch, and a decode step at that context.
///
/// # Errors
/// What cannot be divided, or what the chip's simulation refuses.
pub fn serve(
    system: &System,
    stack: &Stack,
    service: &Service,
    load: &Load,
    phase: Phase,
) -> Result<Served, Diagnostic> {
    let server = Server::new(system, stack, service)?;
    let (prefill, decode) = (server.prefill(load)?, server.decode(load)?);
    let memory = memory(service, load, phase);
    let tiers = tiers(system, service, load, &memory)?;
    let mut notes = vec![format!(
        "stack {}: tensor collectives are exposed, two a layer; {}; the host takes {} µs a step and {} µs a token",
        stack.kind.name(),
        if stack.blocking { "a sender waits for its transfer" } else { "transfers run beside computing" },
        stack.step_us,
        stack.token_us
    )];
    if service.kv_copies() > 1 {
        notes.push(format!(
            "tp {} over {} heads of keys and values: {} ranks each hold the same head, so that the caches of a user take {} \
             times their bytes",
            service.parallel.tp,
            service.architecture.kv_heads,
            service.kv_copies(),
            service.kv_copies()
        ));
    }
    let spilled = tiers.iter().skip(1).filter(|tier| tier.weights + tier.kv_cache > 0);
    notes.extend(
        spilled.map(|tier| format!("what does not fit the fastest memory lies in {} and moves at its rate", tier.name)),
    );
    Ok(Served { prefill, decode, memory, tiers, switch_s: switch_s(system, service), notes })
}
