//! Which memory tier holds each tensor.

use crate::arch::{Chip, Tier, TierId};
use crate::diagnostics::{Diagnostic, Origin};
use crate::index::Id;
use crate::units::ByteSize;
use crate::workload::{Tensor, TensorId, TensorRole, Workload};

/// The first tier of the chip's list that still has room for each tensor; those that most operators touch choose first.
pub fn home_tiers(chip: &Chip, workload: &Workload) -> Result<Vec<TierId>, Diagnostic> {
    let mut free: Vec<u64> = chip.memory.iter().map(|t| t.capacity_bytes).collect();
    // What is touched most often goes first: of equals the earlier in the file.
    let mut uses = vec![0u64; workload.tensors.len()];
    for operator in &workload.operators {
        for &tensor in operator.inputs.iter().chain([&operator.output]) {
            uses[workload.base(tensor).index()] += 1;
        }
    }
    let mut order: Vec<TensorId> = workload.tensors.ids().filter(|&t| workload.tensors[t].view.is_none()).collect();
    order.sort_by_key(|t| std::cmp::Reverse(uses[t.index()]));
    let mut homes = vec![TierId::from_index(0); workload.tensors.len()];
    for id in order {
        let tensor = &workload.tensors[id];
        let bytes = tensor.stored_bytes().saturating_mul(tensor.repeat);
        let Some(tier) = free.iter().position(|&left| left >= bytes) else {
            return Err(homeless(chip, tensor, bytes, &free));
        };
        free[tier] -= bytes;
        homes[id.index()] = TierId::from_index(tier);
    }
    for (id, tensor) in workload.tensors.iter_enumerated() {
        if let Some(view) = tensor.view {
            homes[id.index()] = homes[view.base.index()];
        }
    }
    Ok(homes)
}

/// What each tier holds, in a sentence a tier.
pub fn told(chip: &Chip, workload: &Workload, homes: &[TierId]) -> Vec<String> {
    let mut held: Vec<[u64; 3]> = vec![[0; 3]; chip.memory.len()];
    for (id, tensor) in workload.tensors.iter_enumerated().filter(|(_, tensor)| tensor.view.is_none()) {
        let kind = match tensor.role {
            TensorRole::Weight => 0,
            TensorRole::Input => 1,
            TensorRole::Intermediate | TensorRole::Output => 2,
        };
        held[homes[id.index()].index()][kind] += tensor.stored_bytes().saturating_mul(tensor.repeat);
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

fn homeless(chip: &Chip, tensor: &Tensor, bytes: u64, free: &[u64]) -> Diagnostic {
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
