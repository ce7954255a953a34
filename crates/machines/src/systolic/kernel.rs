//! What one kernel takes: arrays, vector units, buffer and memory work at the same time, the slowest decides.

use crate::kernels::{Limit, Timed};
use rdusim_graph::arch::Systolic;
use rdusim_graph::sparsity::BlockMask;
use rdusim_graph::workload::{Moved, OperatorId, OperatorKind, TensorId, Workload, most_elements};

use super::gemm::{self, Plan, Product};
use super::resident::Resident;

/// Operators that run together, and what they move.
pub(super) struct Kernel<'a> {
    pub(super) chip: &'a Systolic,
    pub(super) workload: &'a Workload,
    pub(super) operators: &'a [OperatorId],
    pub(super) moved: &'a Moved,
    pub(super) resident: &'a Resident,
    /// Bytes of the buffer that tensors keep meanwhile.
    pub(super) held: f64,
}

/// Cycles of what works at the same time, and of what comes before and after it.
struct Together {
    /// Arrays or vector units, whichever take longer.
    compute: f64,
    memory: f64,
    buffer: f64,
    fill: f64,
    /// Bytes between the buffer and the units.
    buffer_bytes: f64,
}

impl Together {
    fn most(&self) -> f64 {
        self.compute.max(self.memory).max(self.buffer)
    }

    fn cycles(&self) -> f64 {
        self.most() + self.fill
    }

    fn limit(&self) -> Limit {
        match self.most() {
            most if self.fill > most => Limit::Fill,
            most if self.compute >= most => Limit::Compute,
            most if self.memory >= most => Limit::Memory,
            _ => Limit::Buffer,
        }
    }
}

impl Kernel<'_> {
    /// The kernel's time and traffic, and the part of a sparse operand's folds that is computed.
    pub(super) fn time(&self) -> (Timed, Option<f64>) {
        let workload = self.workload;
        let gemm = self.operators.iter().copied().find(|&op| workload.operators[op].kind == OperatorKind::Gemm);
        let functions = self.vector_cycles();
        let writes: Vec<(TensorId, f64)> =
            self.moved.writes.iter().filter(|&&t| !self.stays(t)).map(|&t| (t, self.bytes(t))).collect();
        let (written, through) = (writes.iter().map(|(_, bytes)| bytes).sum(), self.vector_bytes());
        let of_plan = |op: OperatorId, plan: &Plan| {
            let reads = self.reads(Some((op, plan)));
            self.together(Some(plan), &reads, [functions, through, written])
        };
        let plan = gemm.and_then(|op| self.plan(op, |plan| of_plan(op, plan).cycles()));
        let reads = self.reads(gemm.zip(plan.as_ref()));
        let together = self.together(plan.as_ref(), &reads, [functions, through, written]);
        let (compute, buffer_bytes) = (together.compute, together.buffer_bytes);
        let (macs, stored) = gemm.map_or((0.0, 0.0), |op| self.macs(op, plan.as_ref()));
        let has_mask =
            |op: OperatorId| workload.operators[op].inputs.get(1).is_some_and(|&t| workload.tensors[t].mask.is_some());
        let is_sparse = gemm.is_some_and(has_mask);
        let stored_folds = plan.as_ref().filter(|_| is_sparse).map(|plan| plan.stored_folds);
        let timed = Timed {
            cycles: together.cycles(),
            limit: together.limit(),
            busiest_cycles: compute,
            mean_cycles: compute,
            units: plan.as_ref().map_or(0, |plan| plan.arrays),
            reads,
            writes,
            buffer_bytes,
            link_bytes: 0.0,
            macs,
            zero_macs: (macs - stored).max(0.0),
            expanded: plan.as_ref().map_or(0.0, |plan| plan.expanded),
            held: self.held,
            told: plan.map_or_else(|| "vector units".to_owned(), |plan| plan.told),
        };
        (timed, stored_folds)
    }

    /// What works at the same time, for these cycles of functions, bytes through the vector units and bytes written.
    fn together(
        &self,
        plan: Option<&Plan>,
        reads: &[(TensorId, f64)],
        [functions, through, written]: [f64; 3],
    ) -> Together {
        let chip = self.chip;
        let read = reads.iter().map(|(_, bytes)| bytes).sum::<f64>();
        let vector = functions + plan.map_or(0.0, |plan| gemm::expansion_cycles(chip, plan.expanded));
        let buffer_bytes = plan.map_or(0.0, |plan| plan.buffer_bytes) + through;
        Together {
            compute: plan.map_or(0.0, |plan| plan.cycles).max(vector),
            memory: (read + written) / chip.memory_bytes_per_cycle(),
            buffer: buffer_bytes / chip.buffer.bytes_per_cycle,
            fill: plan.map_or_else(|| gemm::latency(chip, read), |plan| gemm::fill(chip, plan, read, written)),
            buffer_bytes,
        }
    }

    fn bytes(&self, tensor: TensorId) -> f64 {
        self.workload.tensors[tensor].unmasked_bytes() as f64
    }

    fn stays(&self, tensor: TensorId) -> bool {
        self.resident.has(self.workload, tensor)
    }

    /// The mask of a product's right operand, whose rows lie along the depth.
    fn mask_of(&self, op: OperatorId) -> Option<&BlockMask> {
        let operator = &self.workload.operators[op];
        let mask = self.workload.tensors[*operator.inputs.get(1)?].mask.as_deref()?;
        self.workload.form(op).filter(|form| (form.k, form.n) == (mask.rows(), mask.columns())).map(|_| mask)
    }

    fn plan(&self, op: OperatorId, kernel_cycles: impl Fn(&Plan) -> f64) -> Option<Plan> {
        let (chip, workload) = (self.chip, self.workload);
        let form = workload.form(op)?;
        let operator = &workload.operators[op];
        let (a, b) = (operator.inputs[0], operator.inputs[1]);
        let dtype = workload.tensors[a].dtype;
        let off_chip = |tensor| if self.stays(tensor) { 0.0 } else { self.bytes(tensor) };
        let product = Product {
            count: form.instances * form.heads,
            shape: (form.m, form.n, form.k),
            element_bytes: dtype.bytes(),
            cell_macs: chip.array.cell_macs.get(&dtype).copied().unwrap_or(1),
            a_bytes: off_chip(a),
            b_bytes: off_chip(b),
            mask: self.mask_of(op),
            packed_bytes: workload.tensors[b].packed_element_bytes(),
        };
        let room = chip.buffer.capacity_bytes as f64 - self.held;
        let side = gemm::plan(chip, &product, room, &kernel_cycles);
        if form.heads == form.b_heads {
            return Some(side);
        }
        // Heads that share keys and values are rows of one product, where that is faster.
        let rows = Product {
            count: form.instances * form.b_heads,
            shape: (form.m * (form.heads / form.b_heads), form.n, form.k),
            ..product
        };
        let rows = gemm::plan(chip, &rows, room, &kernel_cycles);
        Some(if kernel_cycles(&rows) < kernel_cycles(&side) { rows } else { side })
    }

    /// Bytes of every tensor read from memory.
    fn reads(&self, gemm: Option<(OperatorId, &Plan)>) -> Vec<(TensorId, f64)> {
        let workload = self.workload;
        let operands = gemm.map(|(op, plan)| (&workload.operators[op].inputs, plan.read_bytes));
        let bytes = |tensor: TensorId| {
            let base = workload.base(tensor);
            let is = |at: usize| operands.is_some_and(|(inputs, _)| workload.base(inputs[at]) == base);
            match operands {
                _ if self.stays(tensor) => 0.0,
                Some((_, (a, b))) if is(0) && is(1) => a.max(b),
                Some((_, (a, _))) if is(0) => a,
                Some((_, (_, b))) if is(1) => b,
                _ => self.bytes(tensor),
            }
        };
        self.moved.reads.iter().map(|&tensor| (tensor, bytes(tensor))).filter(|(_, bytes)| *bytes > 0.0).collect()
    }

    /// Cycles of the vector units: of each function its steps for every element. Where a state is carried lanes have columns of
    /// sequences, whose rows follow one another.
    fn vector_cycles(&self) -> f64 {
        let lanes = self.chip.vector_lanes;
        let of = |op: &OperatorId| {
            let operator = &self.workload.operators[*op];
            if operator.kind == OperatorKind::Gemm {
                return 0.0;
            }
            let vectors = match self.workload.chains(*op) {
                Some(chains) => chains.vectors(chains.count(), lanes) as f64,
                None => most_elements(self.workload, *op) as f64 / lanes as f64,
            };
            vectors * operator.kind.vector_steps() as f64
        };
        self.operators.iter().map(of).sum()
    }

    /// Bytes that vector units read from the buffer and write to it. Behind a product, what one hands on to the next stays in registers.
    fn vector_bytes(&self) -> f64 {
        let workload = self.workload;
        let first = &workload.operators[self.operators[0]];
        if first.kind == OperatorKind::Gemm {
            let is_operand =
                |tensor: &&TensorId| first.inputs.iter().any(|&i| workload.base(i) == workload.base(**tensor));
            return self.moved.reads.iter().filter(|tensor| !is_operand(tensor)).map(|&t| self.bytes(t)).sum();
        }
        let of = |op: &OperatorId| {
            let operator = &workload.operators[*op];
            let read: f64 = operator.inputs.iter().map(|&t| self.bytes(t)).sum();
            read * operator.kind.passes().max(1) as f64 + self.bytes(operator.output)
        };
        self.operators.iter().map(of).sum()
    }

    /// Multiply-accumulates that are executed, and those on stored elements.
    fn macs(&self, op: OperatorId, plan: Option<&Plan>) -> (f64, f64) {
        let all = self.workload.form(op).map_or(0.0, |form| form.dense_macs() as f64);
        let executed = all * plan.map_or(1.0, |plan| plan.stored_folds);
        (executed, self.workload.stored_macs(op) as f64)
    }
}
