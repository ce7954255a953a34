//! Which memory tier holds each tensor.

use crate::arch::{Chip, Tier, TierId};
use crate::diagnostics::{Diagnostic, Origin};
use crate::index::Id;
use crate::units::ByteSize;
use crate::workload::{Tensor, TensorId, TensorRole, Workload};

/// The first tier of the chip's list that still has room for each tensor; those of which most bytes move for every byte
/// held choose first, of equals the earlier in the file.
pub fn tensor_tiers(chip: &Chip, workload: &Workload) -> Result<Vec<TierId>, Diagnostic> {
    let mut free: Vec<u64> = chip.memory.iter().map(|t| t.capacity_bytes).collect();
    let held = workload.held_at_once();
    let mut touches = vec![0.0; workload.tensors.len()];
    for operator in &workload.operators {
        for &tensor in operator.inputs.iter().chain([&operator.output]) {
            touches[workload.base(tensor).index()] += operator.repeat as f64 / operator.every as f64;
        }
    }
    let mut order: Vec<TensorId> = workload.tensors.ids().filter(|&t| workload.tensors[t].view.is_none()).collect();
    let reuse = |t: &TensorId| touches[t.index()] / held[t.index()] as f64;
    order.sort_by(|a, b| reuse(b).total_cmp(&reuse(a)));
    let mut tiers = vec![TierId::from_index(0); workload.tensors.len()];
    for id in order {
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
