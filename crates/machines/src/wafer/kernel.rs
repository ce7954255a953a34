//! What one operator takes on a wafer: cores and links work while elements stream in or out, the slowest decides.

use crate::kernels::{Limit, Timed};
use rdusim_base::mode::Mode;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::Wafer;
use rdusim_graph::workload::{
    Moved, OperatorId, OperatorKind, Phase, TensorId, TensorRole, Uses, Workload, most_elements,
};

use super::outside::{is_kept_outside, runs_outside};
use super::product::{self, Plan, Product};

/// Operators that run together, and what they move.
pub(super) struct Kernel<'a> {
    pub(super) chip: &'a Wafer,
    pub(super) workload: &'a Workload,
    pub(super) uses: &'a Uses,
    pub(super) operators: &'a [OperatorId],
    pub(super) moved: &'a Moved,
    pub(super) mode: Mode,
    /// Bytes of activations on the wafer meanwhile.
    pub(super) held: f64,
}

impl Kernel<'_> {
    pub(super) fn time(&self) -> Timed {
        let (chip, workload) = (self.chip, self.workload);
        let is_update = self.is_outside();
        let gemm = self.operators.iter().copied().find(|&op| workload.operators[op].kind == OperatorKind::Gemm);
        let reads = self.moves(&self.moved.reads);
        let writes = self.moves(&self.moved.writes);
        let streamed: f64 = reads.iter().chain(&writes).map(|(_, bytes)| bytes).sum();
        // The optimiser's step is done where weights and state are, off the wafer.
        let functions = if is_update { 0.0 } else { self.function_cycles() };
        let (on_links, link_bytes) = self.redistribution();
        let streaming = streamed / chip.memory_bytes_per_cycle();
        let plan = gemm.map(|op| self.plan(op, streaming - functions));
        let computing = plan.as_ref().map_or(0.0, |plan| plan.cycles) + functions;
        let cores = computing + on_links;
        let fill = plan.as_ref().map_or(0.0, |plan| plan.fill) + self.latency(streamed);
        let limit = match () {
            () if fill > cores.max(streaming) => Limit::Fill,
            () if streaming > cores => Limit::Memory,
            () if plan.as_ref().is_some_and(|plan| plan.is_bound_by_links) || on_links > computing => Limit::Link,
            () => Limit::Compute,
        };
        let function_bytes = if is_update { 0.0 } else { self.function_bytes() };
        Timed {
            cycles: cores.max(streaming) + fill,
            limit,
            busiest_cycles: plan.as_ref().map_or(0.0, |plan| plan.busiest) + functions,
            mean_cycles: plan.as_ref().map_or(0.0, |plan| plan.mean) + functions,
            units: plan.as_ref().map_or(if is_update { 0 } else { self.function_cores() }, |plan| plan.cores),
            reads,
            writes,
            buffer_bytes: plan.as_ref().map_or(0.0, |plan| plan.sram_bytes) + function_bytes,
            link_bytes: plan.as_ref().map_or(0.0, |plan| plan.link_bytes) + link_bytes,
            macs: plan.as_ref().map_or(0.0, |plan| plan.macs),
            zero_macs: 0.0,
            expanded: plan.as_ref().map_or(0.0, |plan| plan.expanded),
            held: self.held,
            told: match (plan, is_update) {
                (Some(plan), _) => plan.told,
                (None, true) => "where the weights are, off the wafer".to_owned(),
                (None, false) => self.told(),
            },
        }
    }

    fn bytes(&self, tensor: TensorId) -> f64 {
        let tensor = &self.workload.tensors[tensor];
        match &tensor.mask {
            Some(_) => tensor.stored_elements() as f64 * (tensor.dtype.bytes() as f64 + self.chip.index_bytes),
            None => tensor.stored_bytes() as f64,
        }
    }

    /// Whether a tensor is a weight, a gradient of one or an optimiser's state, which live off the wafer.
    fn lives_outside(&self, tensor: TensorId) -> bool {
        let base = self.workload.base(tensor);
        self.workload.tensors[base].role != TensorRole::Intermediate || is_kept_outside(self.workload, self.uses, base)
    }

    /// Whether the operators run off the wafer, where weights, sums of gradients and the optimiser's state are.
    fn is_outside(&self) -> bool {
        runs_outside(self.workload, self.operators[0])
    }

    /// Bytes of each tensor that cross the wafer's edge: what is kept outside is updated there, and intermediates stay in mode `fused`.
    fn moves(&self, tensors: &[TensorId]) -> Vec<(TensorId, f64)> {
        let crosses =
            |tensor: &TensorId| !self.is_outside() && (self.mode != Mode::Fused || self.lives_outside(*tensor));
        tensors.iter().copied().filter(crosses).map(|tensor| (tensor, self.bytes(tensor))).collect()
    }

    /// Whether a product is the gradient of a weight: rows of two activations are multiplied, and the result goes to where the weight is.
    fn is_weight_gradient(&self, op: OperatorId) -> bool {
        let operator = &self.workload.operators[op];
        let base = self.workload.base(operator.output);
        let is_wanted = self.workload.tensors[base].role == TensorRole::Output;
        operator.phase == Phase::Backward
            && operator.options.transpose_a
            && (is_wanted || is_kept_outside(self.workload, self.uses, base))
    }

    fn plan(&self, op: OperatorId, least: f64) -> Plan {
        let workload = self.workload;
        let operator = &workload.operators[op];
        let (a, b) = (operator.inputs[0], operator.inputs[1]);
        let leaves = self.is_weight_gradient(op);
        let mask = workload.tensors[if leaves { operator.output } else { b }].mask.as_deref();
        let dtype = workload.tensors[a].dtype;
        let (count, shape) = workload
            .form(op)
            .map_or((1, (1, 1, 1)), |form| ((form.instances * form.heads).max(1), (form.m, form.n, form.k)));
        let macs = self.macs_of(dtype);
        let packed_bytes = workload.tensors[b].packed_element_bytes();
        let product = Product { count, shape, element_bytes: dtype.bytes(), packed_bytes, macs, mask, leaves };
        product::plan(self.chip, &product, least)
    }

    fn macs_of(&self, dtype: Dtype) -> u64 {
        self.chip.core.macs.get(&dtype).copied().unwrap_or(1)
    }

    /// Cycles of functions: every core its part of the elements, a vector at a time; rows lie on one core each, and of what carries a
    /// state whole sequences of its columns.
    fn function_cycles(&self) -> f64 {
        let of = |op: &OperatorId| {
            let operator = &self.workload.operators[*op];
            if operator.kind == OperatorKind::Gemm {
                return 0.0;
            }
            let lanes = self.macs_of(self.workload.tensors[operator.output].dtype);
            if let Some(chains) = self.workload.chains(*op) {
                let own = chains.count().div_ceil(self.chip.core.count);
                return chains.vectors(own, lanes) as f64 * operator.kind.vector_steps() as f64;
            }
            let each = (most_elements(self.workload, *op) as f64 / self.chip.core.count as f64 / lanes as f64).ceil();
            each * operator.kind.vector_steps() as f64
        };
        self.operators.iter().map(of).sum()
    }

    /// Cores with work on functions: of what carries a state as many as there are columns of sequences.
    fn function_cores(&self) -> u64 {
        let count = self.chip.core.count;
        let of = |&op: &OperatorId| self.workload.chains(op).map_or(count, |chains| chains.count().min(count));
        self.operators.iter().map(of).max().unwrap_or(count)
    }

    fn told(&self) -> String {
        match self.operators.iter().find_map(|&op| self.workload.chains(op)) {
            Some(chains) => format!(
                "{} sequences x {} columns, {} rows one after the other",
                chains.sequences, chains.columns, chains.rows
            ),
            None => "every core on its part".to_owned(),
        }
    }

    /// Cycles and bytes of links that bring operands from slices x groups of cores to cores which have all rows of their columns, and
    /// results back: along one axis of the mesh, where a quarter of the bytes crosses the middle in each direction, and a byte goes
    /// over a third of the links of a line on average.
    fn redistribution(&self) -> (f64, f64) {
        let carried = self.operators.iter().filter(|&&op| self.workload.chains(op).is_some());
        let side = (self.chip.core.count as f64).sqrt();
        let of = |op: &OperatorId| {
            let operator = &self.workload.operators[*op];
            let touched = operator.inputs.iter().chain([&operator.output]);
            let bytes: f64 = touched.map(|&t| self.workload.tensors[t].stored_bytes() as f64).sum();
            let cycles = bytes / (4.0 * side * self.chip.fabric.link_bytes_per_cycle);
            (cycles + 2.0 * side * self.chip.fabric.hop_cycles, bytes * side / 3.0)
        };
        carried.map(of).fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    fn function_bytes(&self) -> f64 {
        let of = |op: &OperatorId| {
            let operator = &self.workload.operators[*op];
            if operator.kind == OperatorKind::Gemm {
                return 0.0;
            }
            let touched = operator.inputs.iter().chain([&operator.output]);
            touched.map(|&t| self.workload.tensors[t].stored_bytes() as f64).sum::<f64>()
        };
        self.operators.iter().map(of).sum()
    }

    /// Cycles until the first of what streams is there.
    fn latency(&self, streamed: f64) -> f64 {
        let ns = self.chip.memory.iter().next().map_or(0.0, |tier| tier.latency_ns);
        if streamed > 0.0 { ns * self.chip.clock_hz as f64 / 1e9 } else { 0.0 }
    }
}
