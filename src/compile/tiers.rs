//! Which memory tier holds each tensor.

use crate::arch::{Chip, TierId};
use crate::diagnostics::{Diagnostic, Origin};
use crate::index::Id;
use crate::units::ByteSize;
use crate::workload::Workload;

/// The first tier of the chip's list that still has room for each tensor, in the order of the tensors.
pub fn home_tiers(chip: &Chip, workload: &Workload) -> Result<Vec<TierId>, Diagnostic> {
    let mut free: Vec<u64> = chip.memory.iter().map(|t| t.capacity_bytes).collect();
    workload
        .tensors
        .iter()
        .map(|tensor| {
            let bytes = tensor.stored_bytes();
            let tier = free.iter().position(|&left| left >= bytes);
            tier.map(|t| {
                free[t] -= bytes;
                TierId::from_index(t)
            })
            .ok_or_else(|| {
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
                    Some(origin) => {
                        diagnostic.with_origin(Origin { label: "fits no memory tier".to_owned(), ..origin.clone() })
                    }
                    None => diagnostic,
                }
            })
        })
        .collect()
}
