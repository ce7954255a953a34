//! Which memory tier holds each tensor.

use crate::arch::{Chip, TierId};
use crate::diagnostics::{Diagnostic, Origin};
use crate::index::Id;
use crate::units::ByteSize;
use crate::workload::{Tensor, Workload};

/// The first tier of the chip's list that still has room for each tensor, in the order of the tensors.
pub fn home_tiers(chip: &Chip, workload: &Workload) -> Result<Vec<TierId>, Diagnostic> {
    let mut free: Vec<u64> = chip.memory.iter().map(|t| t.capacity_bytes).collect();
    let mut homes: Vec<TierId> = Vec::with_capacity(workload.tensors.len());
    for tensor in &workload.tensors {
        if let Some(view) = tensor.view {
            // Its base stands before it.
            homes.push(homes[view.base.index()]);
            continue;
        }
        let bytes = tensor.stored_bytes().saturating_mul(tensor.repeat);
        let Some(tier) = free.iter().position(|&left| left >= bytes) else {
            return Err(homeless(chip, tensor, bytes, &free));
        };
        free[tier] -= bytes;
        homes.push(TierId::from_index(tier));
    }
    Ok(homes)
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
