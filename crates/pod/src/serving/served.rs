//! Both phases of a batch and the memory of its chips: what `rdusim pod --phase prefill|decode` shows.

use super::super::system::{Stack, System};
use super::chip::Work;
use super::memory::{ServingMemory, TierUse, memory, of_work, tiers};
use super::phases::Server;
use super::rounds::Round;
use super::service::{Load, Service};
use super::speculation::Speculation;
use super::time::ServedPhase;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::units::ByteSize;
use rdusim_models::model::Phase;

/// A batch that is served.
#[derive(Debug, Clone)]
pub struct Served {
    /// The prompts.
    pub prefill: ServedPhase,
    /// A step behind them.
    pub decode: ServedPhase,
    /// A round in which another model drafts, if one does; it takes the place of the step.
    pub round: Option<Round>,
    /// The same as one phase.
    pub round_phase: Option<ServedPhase>,
    /// Seconds of the prompts of the model that drafts.
    pub draft_prefill_s: f64,
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

/// Memory of both models: the pass that verifies has more rows than a step that drafts.
pub(super) fn with_draft(service: &Service, load: &Load, round: &Round) -> ServingMemory {
    let own = of_work(service, load, Work::tokens(round.tokens + 1));
    let more = round.draft_memory;
    ServingMemory { weights: own.weights + more.weights, kv_cache: own.kv_cache.saturating_add(more.kv_cache), ..own }
}

fn switch_s(system: &System, service: &Service) -> Option<f64> {
    let rates: Vec<u64> = system.chip.device().tiers().iter().map(|tier| tier.bandwidth_bytes_per_s).collect();
    let bytes = (0..service.parallel.pp).map(|stage| service.weight_bytes(stage)).max()?;
    let slowest = rates.iter().min().filter(|_| rates.len() > 1)?;
    Some(bytes as f64 / *slowest as f64)
}

impl Served {
    /// Seconds until every user has the first token: prompts go through both models, where one drafts.
    pub fn ttft_s(&self) -> f64 {
        self.prefill.seconds + self.draft_prefill_s
    }

    /// Seconds a token of a user, in the mean.
    pub fn token_s(&self) -> f64 {
        self.round.as_ref().map_or(self.decode.seconds, Round::token_s)
    }
}

/// What is to be said of what users hold.
fn of_caches(service: &Service) -> Vec<String> {
    let mut notes = Vec::new();
    let all = service.all_blocks();
    if service.kv_copies() > 1 && all.attention > 0 {
        notes.push(format!(
            "tp {} over {} heads of keys and values: {} ranks each hold the same head, so that the caches of a user take {} \
             times their bytes",
            service.parallel.tp,
            service.architecture.kv_heads,
            service.kv_copies(),
            service.kv_copies()
        ));
    }
    if let Some(stack) = &service.stack {
        notes.extend(service.layered_notes(stack));
    }
    if let Some(mamba) = service.architecture.extras.mamba {
        notes.push(format!(
            "a chip holds {} of states for each user, whatever the context, and {} of keys and values for each token",
            ByteSize(service.state_bytes()),
            ByteSize(service.kv_bytes_per_token())
        ));
        let groups = u64::from(mamba.groups);
        if service.parallel.tp > groups {
            notes.push(format!(
                "tp {} over {groups} groups of heads of the recurrence: {} ranks each compute the same B and C",
                service.parallel.tp,
                service.parallel.tp / groups
            ));
        }
    }
    notes
}

/// Prefill of a batch, and a decode step at that context; with `speculation` also a round of it.
///
/// # Errors
/// What cannot be divided, or what the chip's simulation refuses.
pub fn serve(
    system: &System,
    stack: &Stack,
    service: &Service,
    load: &Load,
    phase: Phase,
    speculation: Option<&Speculation>,
) -> Result<Served, Diagnostic> {
    let server = Server::new(system, stack, service)?;
    let decode = server.decode(load)?;
    let server = match speculation {
        Some(speculation) => server.with_draft(speculation, load)?,
        None => server,
    };
    let (prefill, round) = (server.prefill(load)?, server.round(load)?);
    let draft_prefill_s = server.draft_prefill(load)?.map_or(0.0, |phase| phase.seconds);
    let memory = match &round {
        Some(round) => with_draft(service, load, round),
        None => memory(service, load, phase),
    };
    // Of both models each for itself, then together.
    let own = match &round {
        Some(round) => of_work(service, load, Work::tokens(round.tokens + 1)),
        None => memory,
    };
    let mut tiers = tiers(server.chip(), service, load, &own)?;
    if let Some(drafted) = server.drafter_tiers(load)? {
        for (tier, more) in tiers.iter_mut().zip(drafted) {
            tier.weights += more.weights;
            tier.kv_cache += more.kv_cache;
        }
    }
    let mut notes = vec![format!(
        "stack {}: tensor collectives are exposed, {}; {}; the host takes {} µs a step and {} µs a token",
        stack.kind.name(),
        if service.architecture.extras.mamba.is_some() {
            "one behind each recurrence, attention and feed-forward block"
        } else {
            "two a layer"
        },
        if stack.blocking { "a sender waits for its transfer" } else { "transfers run beside computing" },
        stack.step_us,
        stack.token_us
    )];
    notes.extend(of_caches(service));
    notes.extend(of_model(service, load.tokens));
    notes.extend(speculation.and_then(|of| of.too_long(load.tokens)));
    let spilled = tiers.iter().skip(1).filter(|tier| tier.weights + tier.kv_cache > 0);
    notes.extend(
        spilled.map(|tier| format!("what does not fit the fastest memory lies in {} and moves at its rate", tier.name)),
    );
    if let Some(round) = &round {
        notes.push(format!(
            "a round drafts {} tokens and verifies {} in one pass: each is accepted with the probability that was given, on its own; \
             what compares probabilities and draws tokens is not counted",
            round.tokens,
            round.tokens + 1
        ));
    }
    // What a step without drafting computes is what is kept, once for each token of a round.
    let useful = decode.mfu * decode.seconds;
    let round_phase = round.as_ref().map(|round| round.phase(useful * round.expected));
    Ok(Served {
        prefill,
        decode,
        round,
        round_phase,
        draft_prefill_s,
        memory,
        tiers,
        switch_s: switch_s(system, service),
        notes,
    })
}

/// What its checkpoint says of a model, and what of it is not modelled, for contexts of so many tokens.
pub(super) fn of_model(service: &Service, tokens: u64) -> Vec<String> {
    let mut notes = service.notes.clone();
    if service.storage.cache.is_some() {
        notes.push(
            "keys and values take the room of their format; kernels of attention are those of bf16, and read them at its rate"
                .to_owned(),
        );
    }
    if service.architecture.extras.capped_scores {
        notes.push("scores are bounded inside the kernels of attention, at no cost of its own".to_owned());
    }
    if let Some(most) = service.positions.filter(|&most| tokens > most) {
        notes.push(format!("contexts of {tokens} tokens are longer than the {most} positions that the model takes"));
    }
    notes
}
