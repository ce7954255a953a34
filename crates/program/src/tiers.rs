//! Which memory tier holds each tensor.

use rdusim_base::diagnostics::{Diagnostic, Origin};
use rdusim_base::index::Id;
use rdusim_base::units::ByteSize;
use rdusim_graph::arch::{Chip, Tier, TierId};
use rdusim_graph::workload::{Tensor, TensorId, TensorRole, Workload};

/// Share of the bytes from slower tiers that a division must save: two blocks are launched, and fill and drain, twice.
const WORTH_DIVIDING: f64 = 0.02;
/// Blocks of which a division is tried.
const MOST_CANDIDATES: usize = 4;

/// The first tier of the chip's list that still has room for each tensor; those of which most bytes move for every byte
/// held choose first, of equals the earlier in the file.
pub fn tensor_tiers(chip: &Chip, workload: &Workload) -> Result<Vec<TierId>, Diagnostic> {
    let held = workload.held_at_once();
    let mut free: Vec<u64> = chip.memory.iter().map(|t| t.capacity_bytes).collect();
    let mut tiers = vec![TierId::from_index(0); workload.tensors.len()];
    for id in hottest_first(workload, &held) {
        let tensor = &workload.tensors[id];
        let bytes = tensor.held_bytes().saturating_mul(held[id.index()]);
        let Some(tier) = free.iter().position(|&left| left >= bytes) else {
            return Err(without_tier(chip, tensor, bytes, &free));
        };
        free[tier] -= bytes;
        tiers[id.index()] = TierId::from_index(tier);
    }
    for (id, tensor) in workload.tensors.iter_enumerated() {
        if let Some(view) = tensor.view {
            tiers[id.index()] = tiers[view.base.index()];
        }
    }
    Ok(tiers)
}

/// The workload with a repeated block divided where a tier is full: a tensor that has a copy for every repetition lies in
/// the faster tier for as many repetitions as find room there, and in a slower one for the rest. `None` where that moves no fewer
/// bytes from slower tiers: if every tensor fits the fastest, and where no block can be divided ([`Workload::with_divided_block`]).
///
/// Capacities alone decide, so that a mapping of the divided graph is one at any rate of the memory.
pub fn divided_over_tiers(chip: &Chip, workload: &Workload) -> Option<Workload> {
    if workload.operators.iter().all(|operator| operator.block.is_none() || operator.repeat < 2) {
        return None;
    }
    let mut divided: Option<Workload> = None;
    for tier in 0..chip.memory.len().saturating_sub(1) {
        let graph = divided.as_ref().unwrap_or(workload);
        if let Some(next) = divided_at(chip, graph, tier) {
            divided = Some(next);
        }
    }
    divided
}

/// The graph with the first block divided that pays, of those with a tensor that finds room in a tier for some of its copies alone.
fn divided_at(chip: &Chip, workload: &Workload, tier: usize) -> Option<Workload> {
    let undivided = bytes_from_slow_tiers(chip, workload);
    if undivided == Some(0.0) {
        return None;
    }
    let pays = |next: &(f64, Workload)| undivided.is_none_or(|undivided| next.0 < (1.0 - WORTH_DIVIDING) * undivided);
    candidates(chip, workload, tier).into_iter().find_map(|(block, first)| {
        // Two blocks hold twice what one repetition passes from operator to operator, which may take room from the tensor.
        let fewer = [first, first.saturating_sub(1), first - first / 8, first - first / 4, first / 2];
        let divided = fewer.iter().filter_map(|&first| {
            let next = workload.with_divided_block(block, first)?;
            Some((bytes_from_slow_tiers(chip, &next)?, next))
        });
        divided.min_by(|a, b| a.0.total_cmp(&b.0)).filter(pays).map(|(_, next)| next)
    })
}

/// Blocks with a tensor that a tier has room for some of the copies of, and how many, in the order in which tensors choose their tier.
fn candidates(chip: &Chip, workload: &Workload, tier: usize) -> Vec<(usize, u64)> {
    let held = workload.held_at_once();
    let mut free: Vec<u64> = chip.memory.iter().map(|t| t.capacity_bytes).collect();
    let mut list: Vec<(usize, u64)> = Vec::new();
    for id in hottest_first(workload, &held) {
        let (each, copies) = (workload.tensors[id].held_bytes(), held[id.index()]);
        let bytes = each.saturating_mul(copies);
        let with_room = free.iter().position(|&left| left >= bytes);
        if copies > 1
            && with_room.is_none_or(|with_room| with_room > tier)
            && free[tier] >= each
            && list.len() < MOST_CANDIDATES
            && let Some((block, repeat)) = workload.block_of(id).filter(|&(_, repeat)| repeat == copies)
            && list.iter().all(|&(known, _)| known != block)
        {
            list.push((block, (free[tier] / each.max(1)).min(repeat - 1)));
        }
        if let Some(with_room) = with_room {
            free[with_room] -= bytes;
        }
    }
    list
}

/// Bytes that move from tiers behind the first, each as often as there are tiers before its own. `None` where a tensor fits no tier.
fn bytes_from_slow_tiers(chip: &Chip, workload: &Workload) -> Option<f64> {
    let tiers = tensor_tiers(chip, workload).ok()?;
    let touches = touches(workload);
    let bytes = |id: TensorId| touches[id.index()] * workload.tensors[id].stored_bytes() as f64;
    let own = workload.tensors.ids().filter(|&id| workload.tensors[id].view.is_none());
    Some(own.map(|id| bytes(id) * tiers[id.index()].index() as f64).sum())
}

/// How often operators read or write each tensor.
fn touches(workload: &Workload) -> Vec<f64> {
    let mut touches = vec![0.0; workload.tensors.len()];
    for operator in &workload.operators {
        for &tensor in operator.inputs.iter().chain([&operator.output]) {
            touches[workload.base(tensor).index()] += operator.repeat as f64 / operator.every as f64;
        }
    }
    touches
}

/// Tensors that are no views, those of which most bytes move for every byte held first; of equals the earlier in the file.
fn hottest_first(workload: &Workload, held: &[u64]) -> Vec<TensorId> {
    let touches = touches(workload);
    let mut order: Vec<TensorId> = workload.tensors.ids().filter(|&t| workload.tensors[t].view.is_none()).collect();
    let reuse = |t: &TensorId| touches[t.index()] / held[t.index()] as f64;
    order.sort_by(|a, b| reuse(b).total_cmp(&reuse(a)));
    order
}

/// What each tier holds, in a sentence a tier.
pub fn tier_remarks(chip: &Chip, workload: &Workload, tiers: &[TierId]) -> Vec<String> {
    let at_once = workload.held_at_once();
    let mut held: Vec<[u64; 3]> = vec![[0; 3]; chip.memory.len()];
    for (id, tensor) in workload.tensors.iter_enumerated().filter(|(_, tensor)| tensor.view.is_none()) {
        let kind = match tensor.role {
            TensorRole::Weight => 0,
            TensorRole::Input => 1,
            TensorRole::Intermediate | TensorRole::Output => 2,
        };
        held[tiers[id.index()].index()][kind] += tensor.held_bytes().saturating_mul(at_once[id.index()]);
    }
    let sentence = |(tier, bytes): (&Tier, [u64; 3])| {
        let [weights, inputs, made] = bytes.map(ByteSize);
        format!(
            "{} holds {} of {}: weights {weights}, inputs and optimiser state {inputs}, activations, gradients and \
             results {made}",
            tier.name,
            ByteSize(bytes.iter().sum()),
            ByteSize(tier.capacity_bytes),
        )
    };
    chip.memory.iter().zip(held).map(sentence).collect()
}

fn without_tier(chip: &Chip, tensor: &Tensor, bytes: u64, free: &[u64]) -> Diagnostic {
    let most = free.iter().copied().max().unwrap_or(0);
    let diagnostic = Diagnostic::new(format!(
        "tensor `{}` needs {} off chip, the roomiest tier of {} has {} left: short by {}",
        tensor.name,
        ByteSize(bytes),
        chip.name,
        ByteSize(most),
        ByteSize(bytes - most),
    ))
    .with_help("make the dimensions smaller, or raise `capacity_bytes` of a memory tier");
    match &tensor.declared {
        Some(origin) => diagnostic.with_origin(Origin { label: "fits no memory tier".to_owned(), ..origin.clone() }),
        None => diagnostic,
    }
}
