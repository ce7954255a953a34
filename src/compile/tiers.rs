//! Which memory tier holds each tensor.

use crate::arch::{Chip, TierId};
use crate::diagnostics::Diagnostic;
use crate::index::Id;
use crate::units::MIB;
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
                Diagnostic::new(format!(
                    "tensor `{}` needs {:.1} MiB off chip, the roomiest tier of {} has {:.1} MiB left: short by {:.1} MiB",
                    tensor.name,
                    bytes as f64 / MIB as f64,
                    chip.name,
                    most as f64 / MIB as f64,
                    (bytes - most) as f64 / MIB as f64,
                ))
                .with_help("make the dimensions smaller, or raise `capacity_bytes` of a memory tier")
            })
        })
        .collect()
}
