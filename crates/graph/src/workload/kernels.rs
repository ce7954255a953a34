//! What kernels move between memory and a chip, and what no run of a graph does without.

use std::collections::BTreeMap;

use rdusim_base::index::Id;
use rdusim_base::mode::Mode;
use rdusim_base::units::Dtype;

use super::{OperatorId, OperatorKind, Phase, TensorId, TensorRole, Uses, Workload, kernels_with_epilogues};

/// Tensors that a kernel reads and writes, each once.
#[derive(Debug, Clone, Default)]
pub struct Moved {
    /// Made elsewhere, or from outside.
    pub reads: Vec<TensorId>,
    /// Read elsewhere, leaving the graph, or updated in place.
    pub writes: Vec<TensorId>,
}

/// The kernel that each operator is in, by the operator's index; kernels are lists of operators.
pub fn kernel_of(workload: &Workload, kernels: &[impl AsRef<[OperatorId]>]) -> Vec<usize> {
    let mut kernel_of = vec![0; workload.operators.len()];
    for (index, kernel) in kernels.iter().enumerate() {
        for op in kernel.as_ref() {
            kernel_of[op.index()] = index;
        }
    }
    kernel_of
}

/// What each kernel, a list of operators, moves. Tensors that stay inside their kernel (`stays`) are not moved.
pub fn moved(
    workload: &Workload,
    uses: &Uses,
    kernels: &[&[OperatorId]],
    stays: &dyn Fn(TensorId) -> bool,
) -> Vec<Moved> {
    let kernel_of = kernel_of(workload, kernels);
    let of = |(index, kernel): (usize, &&[OperatorId])| {
        let mut moved = Moved::default();
        for &op in *kernel {
            let operator = &workload.operators[op];
            for &input in &operator.inputs {
                let own = uses.producer(workload, input).is_some_and(|p| kernel_of[p.index()] == index);
                if !own && !stays(input) {
                    add(workload, &mut moved.reads, input);
                }
            }
            let outside = uses.consumers(workload, operator.output).iter().any(|c| kernel_of[c.index()] != index);
            let wanted = workload.tensors[operator.output].role == TensorRole::Output;
            let updates = uses.producer(workload, operator.output).is_none();
            if (outside || wanted || updates) && !stays(operator.output) {
                add(workload, &mut moved.writes, operator.output);
            }
        }
        moved
    };
    kernels.iter().enumerate().map(of).collect()
}

/// Adds a tensor that is not there yet, nor another view of it.
fn add(workload: &Workload, list: &mut Vec<TensorId>, tensor: TensorId) {
    if !list.iter().any(|&known| workload.base(known) == workload.base(tensor)) {
        list.push(tensor);
    }
}

/// Bytes that surely move in a step: every input, stored weight and result once, the smallest view of it that is read. Of an
/// update only one part in `update_parts`, where devices share it.
pub fn least_moved_bytes(workload: &Workload, update_parts: f64) -> f64 {
    let mut moved = 0.0;
    let mut touched = vec![None; workload.tensors.len()];
    let mut made = vec![false; workload.tensors.len()];
    // What runs once in many steps may move nothing in one.
    for operator in workload.operators.iter().filter(|operator| operator.every == 1) {
        for &tensor in operator.inputs.iter().chain([&operator.output]) {
            let base = workload.base(tensor).index();
            let part = if operator.phase == Phase::Update { update_parts } else { 1.0 };
            let bytes = workload.tensors[tensor].stored_bytes() as f64 / part;
            touched[base] = Some(touched[base].map_or(bytes, |least: f64| least.min(bytes)));
        }
        made[workload.base(operator.output).index()] = true;
    }
    for (id, tensor) in workload.tensors.iter_enumerated() {
        let Some(bytes) = touched[id.index()].filter(|_| tensor.view.is_none()) else { continue };
        let repeat = if tensor.role == TensorRole::Weight { tensor.repeat } else { 1 };
        if !made[id.index()] || matches!(tensor.role, TensorRole::Output) {
            moved += bytes * repeat as f64;
        }
    }
    moved
}

/// Stored multiply-accumulates of a step by the type of their operands.
pub fn stored_macs_by_type(workload: &Workload) -> BTreeMap<Dtype, f64> {
    let mut macs: BTreeMap<Dtype, f64> = BTreeMap::new();
    for (id, operator) in workload.operators.iter_enumerated().filter(|(_, op)| op.kind == OperatorKind::Gemm) {
        let sum = macs.entry(workload.tensors[operator.inputs[0]].dtype).or_default();
        *sum += workload.stored_macs(id) as f64 * operator.repeat as f64 / operator.every as f64;
    }
    macs
}

/// Fewest launches of a step: kernel by kernel one an operator, with epilogues one a kernel, fused one in all.
pub fn least_launches(workload: &Workload, mode: Mode) -> f64 {
    let launch = |&op: &OperatorId| {
        let operator = &workload.operators[op];
        operator.repeat as f64 / operator.every as f64
    };
    match mode {
        Mode::Kbk => workload.operators.ids().map(|op| launch(&op)).sum(),
        Mode::Epilogue => kernels_with_epilogues(workload).iter().filter_map(|kernel| kernel.first()).map(launch).sum(),
        Mode::Fused => 1.0,
    }
}

/// Elements of the largest tensor that an operator reads or makes: what units that compute functions go through.
pub fn most_elements(workload: &Workload, op: OperatorId) -> u64 {
    let operator = &workload.operators[op];
    let touched = operator.inputs.iter().chain([&operator.output]);
    touched.map(|&tensor| workload.tensors[tensor].stored_elements()).max().unwrap_or(0)
}
