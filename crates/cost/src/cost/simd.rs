//! Pipeline stages of SIMD functions, and the PCUs they chain over.

use rdusim_graph::arch::Chip;
use rdusim_graph::workload::OperatorKind;

/// PCUs chained for one pipeline of a SIMD function.
pub fn chain(chip: &Chip, kind: OperatorKind) -> u64 {
    simd_stages(chip, kind).div_ceil(chip.pcu.stages).max(1)
}

/// Pipeline stages of a SIMD function.
pub fn simd_stages(chip: &Chip, kind: OperatorKind) -> u64 {
    chip.pcu.simd_stages.get(kind.name()).copied().unwrap_or_else(|| kind.assumed_simd_stages())
}
