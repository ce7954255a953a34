//! `bound_cycles`: what no mapping of a graph on a chip can beat.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rdusim_base::index::Id;
use rdusim_base::mode::Mode;
use rdusim_base::units::{Dtype, Rate, floor_u64};
use rdusim_graph::arch::{Chip, TierId};
use rdusim_graph::workload::{
    OperatorId, OperatorKind, Tensor, TensorId, TensorRole, Workload, kernels_with_epilogues,
};
use rdusim_program::tensor_tiers;

use super::io_bound::{elements_of_fused_gemm, elements_of_gemm};

/// The least cycles a mode can take on a chip, whatever the mapping: over the mode's minimal sections,
/// launch + max(stored MACs / peak, compulsory bytes / each tier's bandwidth, compulsory bytes / address generators).
///
/// Kernel by kernel every operator is a section that moves its inputs, its stored weights and its output once; so is every
/// GEMM with its epilogue (a section that runs less of it moves more, and is launched more often); fused, the graph is one section that moves graph inputs, stored weights and graph outputs once. Operators of a repeated
/// block count every time, and so do its weights and the inputs that no repetition makes for the next (caches). A GEMM whose operands
/// come from off chip and do not fit there moves what is known to be needed at the chip's capacity ([`super::io_bound`]): kernel by kernel
/// each operator's own, fused the largest of any operator and what tensors of others move beside it.
pub fn bound_cycles(chip: &Chip, workload: &Workload, mode: Mode) -> u64 {
    // A tier that does not hold a tensor is not charged; what fits nowhere is charged nowhere (compile refuses it).
    let tiers = tensor_tiers(chip, workload).unwrap_or_default();
    let all: Vec<OperatorId> = workload.operators.ids().collect();
    let of_kernel = |kernel: &[OperatorId]| {
        let once = section_bound(&chip_of_kernel(chip, workload, kernel), workload, &tiers, kernel, 1);
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
            section_bound(&chip.in_section(largest), workload, &tiers, &all, u64::MAX)
        }
    }
}

/// The chip as a section of one kernel finds it.
fn chip_of_kernel<'c>(chip: &'c Chip, workload: &Workload, kernel: &[OperatorId]) -> Cow<'c, Chip> {
    let tensors = |&op: &OperatorId| {
        let operator = &workload.operators[op];
        operator.inputs.iter().chain([&operator.output])
    };
    if kernel.iter().any(|&op| workload.operators[op].kind == OperatorKind::Gemm) {
        return chip.in_section(0);
    }
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
    tiers: &[TierId],
    operators: &[OperatorId],
    most_repeat: u64,
) -> u64 {
    let mut macs: BTreeMap<Dtype, u64> = BTreeMap::new();
    for &op in operators.iter().filter(|&&op| is_of_every_step(workload, op, most_repeat)) {
        let operator = &workload.operators[op];
        if operator.kind == OperatorKind::Gemm {
            let dtype = workload.tensors[operator.inputs[0]].dtype;
            let all = workload.stored_macs(op).saturating_mul(operator.repeat.min(most_repeat));
            let sum = macs.entry(dtype).or_default();
            *sum = sum.saturating_add(all);
        }
    }
    let bytes = compulsory_bytes(chip, workload, tiers, operators, most_repeat);
    chip.launch_cycles() + compute_cycles(chip, &macs).max(moving_cycles(chip, &bytes))
}

/// Whether an operator counts: what runs once in many steps is left to the sections of a real run, where all operators make
/// one section.
fn is_of_every_step(workload: &Workload, op: OperatorId, most_repeat: u64) -> bool {
    workload.operators[op].every == 1 || most_repeat == 1
}

/// Cycles to move bytes of each tier: at the tiers' rates, and at that of all address generators.
pub fn moving_cycles(chip: &Chip, bytes: &[u64]) -> u64 {
    let of_tier = |(t, &bytes): (usize, &u64)| chip.tier_rate(TierId::from_index(t)).cycles_for(bytes);
    let memory = bytes.iter().enumerate().map(of_tier).max().unwrap_or(0);
    let ag_bytes_per_cycle = chip.grid.ags() * chip.ag_bytes_per_cycle.min(chip.network.flit_bytes);
    let into_grid = Rate { bytes: ag_bytes_per_cycle.max(1), cycles: 1 };
    memory.max(into_grid.cycles_for(bytes.iter().fold(0, |sum: u64, &bytes| sum.saturating_add(bytes))))
}

/// Bytes of each tier that a section of some operators cannot do without, whatever its mapping: what enters and what leaves,
/// once, or (`most_repeat` above 1) in as many repetitions of its block.
pub fn compulsory_bytes(
    chip: &Chip,
    workload: &Workload,
    tiers: &[TierId],
    operators: &[OperatorId],
    most_repeat: u64,
) -> Vec<u64> {
    let mut uses: Vec<Use> = Vec::new();
    let mut inside = vec![false; workload.operators.len()];
    let mut made = vec![false; workload.tensors.len()];
    for &op in operators {
        let operator = &workload.operators[op];
        inside[op.index()] = true;
        made[operator.output.index()] = true;
        if !is_of_every_step(workload, op, most_repeat) {
            continue;
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
    let mut of_bases: BTreeMap<TensorId, u64> = BTreeMap::new();
    for of_base in uses.chunk_by(|a, b| workload.base(a.tensor) == workload.base(b.tensor)) {
        let (first, base) = (of_base[0].tensor, workload.base(of_base[0].tensor));
        let Some(tier) = tiers.get(first.index()).filter(|_| !made[base.index()] || leaves(first)) else { continue };
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
        of_bases.insert(base, moved);
    }
    // A GEMM whose operands do not fit moves more of them. One operator's bound replaces what its own tensors move at least; bounds
    // of several are never added, as one may leave on chip what another needs.
    let mut most = bytes.clone();
    for &op in operators.iter().filter(|&&op| is_of_every_step(workload, op, most_repeat)) {
        let Some(of_gemm) = GemmTensors::new(workload, op, &made, most_repeat) else { continue };
        let tensors = of_gemm.bases;
        let Some(tier) =
            tiers.get(tensors[0].index()).filter(|&tier| tensors.iter().all(|t| tiers[t.index()] == *tier))
        else {
            continue;
        };
        let leaves = operators.len() == 1 && leaves(workload.operators[op].output);
        let others = bytes[tier.index()] - tensors.iter().filter_map(|t| of_bases.get(t)).sum::<u64>();
        let moved = others.saturating_add(of_gemm.bytes(room_bytes(chip), leaves));
        let most = &mut most[tier.index()];
        *most = moved.max(*most);
    }
    most
}

/// A GEMM both of whose operands come from off chip alone, so that bounds on its traffic hold ([`super::io_bound`]).
struct GemmTensors {
    /// Operands and result, or what they are views of.
    bases: [TensorId; 3],
    products: f64,
    depth: f64,
    /// Of the smallest element of the three.
    element_bytes: u64,
}

impl GemmTensors {
    /// `made`: what the section makes.
    fn new(workload: &Workload, op: OperatorId, made: &[bool], most_repeat: u64) -> Option<Self> {
        let operator = &workload.operators[op];
        let form = workload.form(op).filter(|form| form.causal.is_none())?;
        let tensors = [*operator.inputs.first()?, *operator.inputs.get(1)?, operator.output];
        let bases = tensors.map(|t| workload.base(t));
        let repeat = operator.repeat.min(most_repeat);
        let is_whole = |t: &TensorId| {
            let tensor = &workload.tensors[*t];
            tensor.mask.is_none() && tensor.packed.is_none() && tensor.window().is_none()
        };
        let comes_in = |t: &TensorId| !made[t.index()] && (repeat == 1 || !may_be_carried(workload, *t));
        let is_bounded = tensors.iter().all(is_whole) && bases[..2].iter().all(comes_in) && bases[0] != bases[1];
        is_bounded.then(|| Self {
            bases,
            products: form.dense_macs() as f64 * repeat as f64,
            depth: form.k as f64,
            element_bytes: tensors.iter().map(|&t| workload.tensors[t].dtype.bytes()).min().unwrap_or(1),
        })
    }

    /// Bytes that it moves with so much room on chip; `leaves`: it is alone, and its result goes off chip.
    fn bytes(&self, room_bytes: u64, leaves: bool) -> u64 {
        let room = (room_bytes / self.element_bytes).max(1) as f64;
        let fused = elements_of_fused_gemm(self.products, room, self.depth);
        let elements = if leaves { elements_of_gemm(self.products, room).max(fused) } else { fused };
        floor_u64(elements * self.element_bytes as f64 * (1.0 - 1e-9))
    }
}

/// Bytes that can be held on the chip anywhere: scratchpads, accumulators, and the FIFOs of links and ports.
fn room_bytes(chip: &Chip) -> u64 {
    let widest = chip.pcu.lanes.values().copied().max().unwrap_or(1);
    let accumulators = chip.pcus() * widest * chip.pcu.stages * chip.pcu.accumulator_sets * 4;
    let of_links = 4 * chip.network.links_per_direction;
    let of_ports = chip.pcu.vector_inputs + chip.pcu.vector_outputs + chip.pmu.read_ports + chip.pmu.write_ports;
    let fifos = chip.grid.units.len() as u64 * (of_links + of_ports) + chip.grid.ags();
    let fifo_bytes = chip.network.fifo_depth_flits.saturating_mul(chip.network.flit_bytes);
    chip.sram_bytes().saturating_add(accumulators).saturating_add(fifos.saturating_mul(fifo_bytes))
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

#[cfg(test)]
mod tests {
    use super::*;
    use rdusim_base::input::Override;
    use rdusim_graph::arch;
    use rdusim_graph::workload;

    /// A product of 65,536 x 65,536 x 65,536 on an SN10 with PMUs of some size.
    fn square(capacity_bytes: u64) -> (Chip, Workload) {
        let set = |text: &str| Override::parse(text).unwrap();
        let capacity = set(&format!("arch.pmu.capacity_bytes={capacity_bytes}"));
        let chip = arch::load("sn10".as_ref(), &[capacity]).unwrap();
        let text = "schema = 1\nname = \"square\"\n\
            [[tensors]]\nname = \"x\"\nshape = [65536, 65536]\nrole = \"input\"\n\
            [[tensors]]\nname = \"w\"\nshape = [65536, 65536]\nrole = \"weight\"\n\
            [[operators]]\nname = \"y\"\nkind = \"gemm\"\ninputs = [\"x\", \"w\"]\noutput = \"y\"\n";
        (chip, workload::parse("square", text, &[], 0).unwrap())
    }

    #[test]
    fn a_product_that_does_not_fit_moves_more() {
        let (chip, workload) = square(16_384);
        let tiers = tensor_tiers(&chip, &workload).unwrap();
        let all: Vec<OperatorId> = workload.operators.ids().collect();
        let moved: u64 = compulsory_bytes(&chip, &workload, &tiers, &all, 1).iter().sum();
        // 10 MiB of PMUs, 640 x 192 accumulators twice, and FIFOs; 2^49 / sqrt(room) elements of two bytes, less twice the room.
        let room = (room_bytes(&chip) / 2) as f64;
        let elements = (2.0f64).powi(49) / room.sqrt() - 2.0 * room;
        assert!((moved as f64 / (2.0 * elements) - 1.0).abs() < 1e-6, "{moved} {elements}");
        assert!(moved > 3 * 2 * 65_536 * 65_536);
        // With room for all that two passes share, nothing but the compulsory is known.
        let (chip, workload) = square(1 << 30);
        let moved: u64 = compulsory_bytes(&chip, &workload, &tiers, &all, 1).iter().sum();
        assert_eq!(moved, 3 * 2 * 65_536 * 65_536);
    }

    #[test]
    fn room_counts_scratchpads_accumulators_and_fifos() {
        let (chip, _) = square(16_384);
        let accumulators = 640 * 32 * 6 * 2 * 4;
        assert!(room_bytes(&chip) > 640 * 16_384 + accumulators);
    }
}
