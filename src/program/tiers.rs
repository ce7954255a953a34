//! Which memory tier holds each tensor.

use crate::arch::{Chip, Tier, TierId};
use crate::diagnostics::{Diagnostic, Origin};
use crate::index::Id;
use crate::units::ByteSize;
use crate::workload::{Tensor, TensorId, TensorRole, Workload};

/// Numbers of repetitions that a division tries: the most that find room, and one or two fewer.
const FEWER: u64 = 3;

/// The first tier of the chip's list that still has room for each tensor; those of which most bytes move for every byte
/// held choose first, of equals the earlier in the file.
pub fn tensor_tiers(chip: &Chip, workload: &Workload) -> Result<Vec<TierId>, Diagnostic> {
    let held = workload.held_at_once();
    let mut free: Vec<u64> = chip.memory.iter().map(|t| t.capacity_bytes).collect();
    let mut tiers = vec![TierId::from_index(0); workload.tensors.len()];
    for id in hottest_first(workload, &held) {
        let tensor = &workload.tensors[id];
        let bytes = tensor.stored_bytes().saturating_mul(held[id.index()]);
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

/// The workload with each repeated block divided where a tier is full: a tensor that has a copy for every repetition lies in
/// the faster tier for as many repetitions as find room there, and in the next for the rest. `None` if every tensor fits a tier as
/// a whole that is as fast as any has room for, and where a block cannot be divided ([`Workload::with_divided_block`]).
///
/// Capacities alone decide, so that a mapping of the divided graph is one at any rate of the memory.
pub fn divided_over_tiers(chip: &Chip, workload: &Workload) -> Option<Workload> {
    let mut divided: Option<Workload> = None;
    // Each full tier divides one tensor.
    for _ in 1..chip.memory.len() {
        let graph = divided.as_ref().unwrap_or(workload);
        let Some(division) = first_division(chip, graph) else { break };
        let Some(next) = division.of(chip, graph) else { break };
        divided = Some(next);
    }
    divided
}

/// A tensor that lies in two tiers.
struct TierDivision {
    tensor: TensorId,
    block: usize,
    /// Repetitions of the block of which it lies in `tier`.
    first: u64,
    tier: TierId,
}

impl TierDivision {
    /// The divided graph. Two blocks hold twice what one repetition passes from operator to operator: where that takes the last
    /// room, fewer repetitions lie in the tier.
    fn of(&self, chip: &Chip, workload: &Workload) -> Option<Workload> {
        let in_tier = |first: u64| {
            let next = workload.with_divided_block(self.block, first)?;
            let name = format!("{}[1-{first}]", workload.tensors[self.tensor].name);
            let copy = next.tensors.position(|tensor| tensor.name == name)?;
            let tiers = tensor_tiers(chip, &next).ok()?;
            (tiers[copy.index()] == self.tier).then_some(next)
        };
        (0..self.first.min(FEWER)).find_map(|fewer| in_tier(self.first - fewer))
    }
}

/// The first tensor, in the order in which they choose their tier, that finds no room as a whole in a tier that has room for
/// some of its copies.
fn first_division(chip: &Chip, workload: &Workload) -> Option<TierDivision> {
    let held = workload.held_at_once();
    let mut free: Vec<u64> = chip.memory.iter().map(|t| t.capacity_bytes).collect();
    for id in hottest_first(workload, &held) {
        let (each, copies) = (workload.tensors[id].stored_bytes(), held[id.index()]);
        let bytes = each.saturating_mul(copies);
        let roomiest = free.iter().position(|&left| left >= bytes)?;
        if let Some((block, repeat)) = workload.block_of(id).filter(|&(_, repeat)| repeat == copies)
            && let Some(tier) = free[..roomiest].iter().position(|&left| left >= each)
        {
            let first = (free[tier] / each.max(1)).min(repeat - 1);
            return Some(TierDivision { tensor: id, block, first, tier: TierId::from_index(tier) });
        }
        free[roomiest] -= bytes;
    }
    None
}

/// Tensors that are no views, those of which most bytes move for every byte held first; of equals the earlier in the file.
fn hottest_first(workload: &Workload, held: &[u64]) -> Vec<TensorId> {
    let mut touches = vec![0.0; workload.tensors.len()];
    for operator in &workload.operators {
        for &tensor in operator.inputs.iter().chain([&operator.output]) {
            touches[workload.base(tensor).index()] += operator.repeat as f64 / operator.every as f64;
        }
    }
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
        held[tiers[id.index()].index()][kind] += tensor.stored_bytes().saturating_mul(at_once[id.index()]);
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
