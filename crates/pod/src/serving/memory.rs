//! Memory of a chip that serves: by kind, by tier, and what would make it fit.

use super::super::choices::Mixture;
use super::super::parallel::Parallel;
use super::super::system::System;
use super::chip::{Pass, Work, graph};
use super::service::{ELEMENT, Load, Service};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::index::Id as _;
use rdusim_graph::arch::AnyChip;
use rdusim_graph::workload::TensorRole;
use rdusim_models::model::Phase;
use rdusim_program::{divided_over_tiers, tensor_tiers};

/// Bytes of the fullest chip.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServingMemory {
    /// Weights.
    pub weights: u64,
    /// Keys and values of all users of a replica, and states of recurrences.
    pub kv_cache: u64,
    /// Of a pass: residual stream, widest intermediate, logits.
    pub activations: u64,
    /// Operands of collectives, and activations between stages.
    pub buffers: u64,
    /// The stage.
    pub stage: u64,
}

impl ServingMemory {
    /// All of it.
    pub fn peak(&self) -> u64 {
        let kept = self.weights.saturating_add(self.kv_cache);
        kept.saturating_add(self.activations).saturating_add(self.buffers)
    }
}

/// What a memory tier of the fullest chip holds when tokens are generated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TierUse {
    /// Name of the tier.
    pub name: String,
    /// Bytes of weights.
    pub weights: u64,
    /// Bytes of keys and values, and of states of recurrences.
    pub kv_cache: u64,
    /// Bytes of activations.
    pub activations: u64,
}

/// Memory of the fullest stage, in `phase`.
pub fn memory(service: &Service, load: &Load, phase: Phase) -> ServingMemory {
    of_work(service, load, if phase == Phase::Decode { Work::TOKEN } else { Work::Prompts })
}

/// Memory of the fullest stage in passes of this work.
pub(super) fn of_work(service: &Service, load: &Load, work: Work) -> ServingMemory {
    let p = &service.parallel;
    let share = service.share();
    let rows = work.rows(load.micro_batch, load.tokens);
    let up = share.feed_forward * (share.feed_matrices() - 1);
    let packed = (share.heads + 2 * share.kv_heads) * share.head();
    // Of a recurrence the masked scores of a row's chunk, or all that is projected.
    let recurrent = share.extras.mamba.map_or(0, |mamba| {
        let projected = 2 * mamba.width() + 2 * mamba.of_groups() + u64::from(mamba.heads);
        let masked = u64::from(mamba.heads) * mamba.chunk_of(load.tokens);
        if work == Work::Prompts { projected.max(masked) } else { projected }
    });
    let widest = match &service.stack {
        Some(stack) => service.widest(stack),
        None => packed.max(up).max(recurrent),
    };
    let activation = ELEMENT * share.hidden;
    let (of_experts, exchanged) = service.expert_bytes(rows);
    let of_stage = |stage: u64| ServingMemory {
        weights: service.weight_bytes(stage),
        kv_cache: (load.batch / p.dp).saturating_mul(service.cache_bytes(stage, load.tokens)),
        activations: rows.saturating_mul(2 * activation + ELEMENT * widest).saturating_add(of_experts).saturating_add(
            if stage + 1 == p.pp { work.sampled(load.micro_batch) * share.vocabulary * ELEMENT } else { 0 },
        ),
        buffers: rows
            .saturating_mul(activation * (u64::from(p.tp > 1) + if p.pp > 1 { 2 } else { 0 }))
            .saturating_add(exchanged),
        stage,
    };
    (0..p.pp).map(of_stage).max_by_key(ServingMemory::peak).unwrap_or_default()
}

/// What the tiers of the fullest chip hold: those that move most often for each byte held come first into the fastest.
///
/// # Errors
/// A tensor that fits no tier.
pub(super) fn tiers(
    chip: &AnyChip,
    service: &Service,
    load: &Load,
    memory: &ServingMemory,
) -> Result<Vec<TierUse>, Diagnostic> {
    let Some(grid) = chip.rdu() else {
        let name = chip.device().tiers().iter().next().map_or(String::new(), |tier| tier.name.clone());
        let ServingMemory { weights, kv_cache, activations, buffers, .. } = *memory;
        return Ok(vec![TierUse { name, weights, kv_cache, activations: activations + buffers }]);
    };
    let pass = Pass {
        work: Work::TOKEN,
        users: load.batch / service.parallel.dp,
        tokens: load.tokens,
        is_first: memory.stage == 0,
        is_last: memory.stage + 1 == service.parallel.pp,
        hybrid: service.hybrid(memory.stage),
        stage: service.alike(memory.stage),
        kind: None,
        layers: service.layers_of_stage(memory.stage),
    };
    let workload = graph(service, &pass, false)?;
    let workload = divided_over_tiers(grid, &workload).unwrap_or(workload);
    let held = workload.held_at_once();
    let mut list: Vec<TierUse> =
        grid.memory.iter().map(|tier| TierUse { name: tier.name.clone(), ..TierUse::default() }).collect();
    let of = tensor_tiers(grid, &workload)?;
    for ((tensor, tier), times) in workload.tensors.iter().zip(of).zip(held) {
        let Some(tier) = list.get_mut(tier.index()).filter(|_| tensor.view.is_none()) else { continue };
        let bytes = tensor.stored_bytes().saturating_mul(times);
        match tensor.role {
            TensorRole::Weight => tier.weights += bytes,
            TensorRole::Input if tensor.name.contains("_cache") => tier.kv_cache += bytes,
            _ => tier.activations += bytes,
        }
    }
    Ok(list)
}

/// Changes that would make it fit, each on its own, those that cost least first.
pub fn serving_remedies(system: &System, service: &Service, load: &Load, phase: Phase) -> Vec<String> {
    let capacity = system.chip_memory_bytes();
    let p = service.parallel;
    let mut list = Vec::new();
    let mut consider = |what: String, service: &Service, load: &Load| {
        let is_sound = service.check().is_ok()
            && service.check_load(load).is_ok()
            && service.parallel.chips() <= system.most_chips();
        let peak = memory(service, load, phase).peak();
        if is_sound && peak <= capacity {
            list.push(format!("{what}: {:.1} GiB", peak as f64 / f64::from(1 << 30)));
            return true;
        }
        false
    };
    let halved = |count: u64| std::iter::successors(Some(count / 2), |count| Some(count / 2)).take_while(|&n| n > 0);
    // The largest of each kind that fits.
    let fits_micro = phase == Phase::Prefill
        && halved(load.micro_batch)
            .any(|micro| consider(format!("--micro-batch {micro}"), service, &Load { micro_batch: micro, ..*load }));
    if !fits_micro {
        let _ = halved(load.batch)
            .any(|batch| consider(format!("--batch {batch}"), service, &Load::filling(&p, batch, load.tokens)));
        let _ =
            halved(load.tokens).any(|tokens| consider(format!("--seq {tokens}"), service, &Load { tokens, ..*load }));
    }
    for factor in [2, 4, 8, 16] {
        let changed = |what: &str, parallel| (what.to_owned(), Service { parallel, ..service.clone() });
        let ways = [
            changed(&format!("tp={}", p.tp * factor), Parallel { tp: p.tp * factor, ..p }),
            changed(&format!("pp={}", p.pp * factor), Parallel { pp: p.pp * factor, ..p }),
            changed(&format!("dp={}", p.dp * factor), Parallel { dp: p.dp * factor, ..p }),
        ];
        let experts = Mixture { ep: p.experts.ep * factor, ..p.experts };
        let shared = Parallel { dp: p.dp * factor, experts, ..p };
        let of_experts = service.experts().map(|_| {
            let what = format!("dp={},ep={}", shared.dp, experts.ep);
            changed(&what, shared)
        });
        for (what, service) in ways.into_iter().chain(of_experts) {
            let load = Load::filling(&service.parallel, load.batch, load.tokens);
            consider(format!("{what} ({factor} times the chips)"), &service, &load);
        }
    }
    list.truncate(6);
    list
}
