//! `bound_cycles`: what no mapping of a graph on a chip can beat.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::arch::{Chip, TierId};
use crate::index::Id;
use crate::mode::Mode;
use crate::program::home_tiers;
use crate::units::{Dtype, Rate};
use crate::workload::{OperatorId, OperatorKind, Tensor, TensorId, TensorRole, Workload, kernels_with_epilogues};

/// The least cycles a mode can take on a chip, whatever the mapping (DESIGN §4): over the mode's minimal sections,
/// launch + max(stored MACs / peak, compulsory bytes / each tier's bandwidth, compulsory bytes / address generators).
///
/// Kernel by kernel every operator is a section that moves its inputs, its stored weights and its output once; so is every
/// GEMM with its epilogue (a section that runs less of it moves more, and is launched more often); fused, the graph is one section that moves graph inputs, stored weights and graph outputs once. Operators of a repeated
/// block count every time, and so do its weights and the inputs that no repetition makes for the next (caches).
pub fn bound_cycles(chip: &Chip, workload: &Workload, mode: Mode) -> u64 {
    // A tier that does not hold a tensor is not charged; what fits nowhere is charged nowhere (compile refuses it).
    let homes = home_tiers(chip, workload).unwrap_or_default();
    let all: Vec<OperatorId> = workload.operators.ids().collect();
    let of_kernel = |kernel: &[OperatorId]| {
        let once = section_bound(&chip_of_kernel(chip, workload, kernel), workload, &homes, kernel, 1);
        let first = &workload.operators[kernel[0]];
        once.saturating_mul(first.repeat) / first.every
    };
    match mode {
        Mode::Kbk => all.chunks(1).map(of_kernel).fold(0, u64::saturating_add),
        Mode::Epilogue => {
            kernels_with_epilogues(workload).iter().map(|kernel| of_kernel(kernel)).fold(0, u64::saturating_add)
        }
        Mode::Fused => {
            // A section of a part of the graph may move a tensor that the whole graph keeps on chip.
            let largest = workload.tensors.iter().map(Tensor::stored_bytes).max().unwrap_or(0);
            section_bound(&chip.in_section(largest), workload, &homes, &all, u64::MAX)
        }
    }
}

/// The chip as a section of one kernel finds it.
fn chip_of_kernel<'c>(chip: &'c Chip, workload: &Workload, kernel: &[OperatorId]) -> Cow<'c, Chip> {
    let tensors = |&op: &OperatorId| {
        let operator = &workload.operators[op];
        operator.inputs.iter().chain([&operator.output])
    };
    let moved = kernel.iter().flat_map(tensors).map(|&t| workload.tensors[t].stored_bytes());
    chip.in_section(moved.max().unwrap_or(0))
}

/// A tensor that an operator reads or writes in each of its repetitions.
#[derive(Debug, Clone, Copy)]
struct Use {
    tensor: TensorId,
    repeat: u64,
    is_written: bool,
}

/// Bound of one section in which an operator, and a tensor that enters or leaves, counts `most_repeat` times at most.
fn section_bound(
    chip: &Chip,
    workload: &Workload,
    homes: &[TierId],
    operators: &[OperatorId],
    most_repeat: u64,
) -> u64 {
    let mut macs: BTreeMap<Dtype, u64> = BTreeMap::new();
    let mut uses: Vec<Use> = Vec::new();
    let mut inside = vec![false; workload.operators.len()];
    let mut made = vec![false; workload.tensors.len()];
    for &op in operators {
        let operator = &workload.operators[op];
        inside[op.index()] = true;
        made[operator.output.index()] = true;
        // What runs once in many steps is left to the sections of a real run.
        if operator.every > 1 && operators.len() > 1 {
            continue;
        }
        if operator.kind == OperatorKind::Gemm {
            let dtype = workload.tensors[operator.inputs[0]].dtype;
            let all = workload.stored_macs(op).saturating_mul(operator.repeat.min(most_repeat));
            let sum = macs.entry(dtype).or_default();
            *sum = sum.saturating_add(all);
        }
        let repeat = operator.repeat.min(most_repeat);
        uses.extend(operator.inputs.iter().map(|&tensor| Use { tensor, repeat, is_written: false }));
        uses.push(Use { tensor: operator.output, repeat, is_written: true });
    }
    uses.sort_unstable_by_key(|of| (workload.base(of.tensor), of.tensor, of.repeat));
    let leaves = |t: TensorId| {
        workload.tensors[t].role == TensorRole::Output || workload.consumers(t).any(|op| !inside[op.index()])
    };
    let mut bytes = vec![0u64; chip.memory.len()];
    for of_base in uses.chunk_by(|a, b| workload.base(a.tensor) == workload.base(b.tensor)) {
        let (first, base) = (of_base[0].tensor, workload.base(of_base[0].tensor));
        let Some(tier) = homes.get(first.index()).filter(|_| !made[base.index()] || leaves(first)) else { continue };
        // What passes from one repetition to the next may stay on chip; caches and weights are others in each.
        let is_of_each = match workload.tensors[base].role {
            TensorRole::Weight => true,
            TensorRole::Input => !may_be_carried(workload, base),
            _ => false,
        };
        // Operators may read parts of a tensor, the same part again, or rows of a table that are fewer than it has: what one
        // of them reads in all its repetitions is needed in any case.
        let whole = workload.tensors[base].stored_bytes();
        let of_use = |&Use { tensor, repeat, .. }: &Use| {
            let least = workload.tensors[tensor].stored_bytes().min(whole);
            least.saturating_mul(if is_of_each { repeat } else { 1 })
        };
        let most = |written: bool| {
            let uses = of_base.iter().filter(|of| of.is_written == written && (!written || leaves(of.tensor)));
            uses.map(of_use).max().unwrap_or(0)
        };
        // What is updated in place (an optimiser's state, a weight) is read and written; what is made here is written only.
        let moved =
            if made[base.index()] { most(true).max(most(false)) } else { most(true).saturating_add(most(false)) };
        let sum = &mut bytes[tier.index()];
        *sum = sum.saturating_add(moved);
    }
    let memory = bytes
        .iter()
        .enumerate()
        .map(|(t, &bytes)| chip.tier_rate(TierId::from_index(t)).cycles_for(bytes))
        .max()
        .unwrap_or(0);
    let ag_bytes_per_cycle = chip.grid.ags() * chip.ag_bytes_per_cycle.min(chip.network.flit_bytes);
    let into_grid = Rate { bytes: ag_bytes_per_cycle.max(1), cycles: 1 }.cycles_for(bytes.iter().sum());
    chip.launch_cycles() + compute_cycles(chip, &macs).max(memory).max(into_grid)
}

/// Whether a repetition of a block may make for the next what this tensor holds: a repeated operator has a result of its
/// shape and type.
fn may_be_carried(workload: &Workload, tensor: TensorId) -> bool {
    let of = &workload.tensors[tensor];
    workload.operators.iter().filter(|operator| operator.repeat > 1).any(|operator| {
        let made = &workload.tensors[operator.output];
        (made.rows, made.columns, made.dtype) == (of.rows, of.columns, of.dtype)
    })
}

/// MACs over the chip's peak of their type, added over types; rounded up, where one type makes that exact.
fn compute_cycles(chip: &Chip, macs: &BTreeMap<Dtype, u64>) -> u64 {
    let peak = |dtype: Dtype| chip.macs_per_cycle(dtype).unwrap_or(u64::MAX);
    let sum: u64 = macs.iter().map(|(&dtype, &macs)| macs / peak(dtype)).sum();
    match macs.iter().next() {
        Some((&dtype, &macs_of_one)) if macs.len() == 1 => macs_of_one.div_ceil(peak(dtype)),
        _ => sum,
    }
}
