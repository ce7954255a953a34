//! Which intermediates stay in the buffer while a program runs.
//!
//! A tensor can stay from the kernel that makes it to the last that reads it. Tensors are taken in the order of how often they would
//! otherwise move for every kernel that they stay through, as far as there is room all the while (a greedy order of intervals, as the
//! assignment of memory spaces in compilers for such chips).

use rdusim_base::index::Id;
use rdusim_graph::workload::{Moved, OperatorId, TensorId, TensorRole, Uses, Workload, kernel_of};

/// What stays.
#[derive(Debug, Default)]
pub(super) struct Resident {
    stays: Vec<bool>,
    /// Bytes that stay through each kernel.
    held: Vec<f64>,
}

impl Resident {
    /// Nothing, through so many kernels.
    pub(super) fn none(workload: &Workload, kernels: usize) -> Self {
        Self { stays: vec![false; workload.tensors.len()], held: vec![0.0; kernels] }
    }

    /// As much as `room` bytes hold.
    pub(super) fn of(
        workload: &Workload,
        uses: &Uses,
        kernels: &[Vec<OperatorId>],
        moved: &[Moved],
        room: f64,
    ) -> Self {
        let mut resident = Self::none(workload, kernels.len());
        let kernel_of = kernel_of(workload, kernels);
        let key = |op: OperatorId| {
            let operator = &workload.operators[op];
            (operator.block, operator.phase, operator.repeat, operator.every)
        };
        let mut candidates: Vec<(f64, TensorId, usize, usize)> = Vec::new();
        for (at, of) in moved.iter().enumerate() {
            for &tensor in &of.writes {
                let base = workload.base(tensor);
                let Some(producer) = uses.producer(workload, base) else { continue };
                let readers = uses.consumers(workload, base);
                let is_inside = readers.iter().all(|&reader| key(reader) == key(producer) && reader > producer);
                if workload.tensors[base].role != TensorRole::Intermediate || readers.is_empty() || !is_inside {
                    continue;
                }
                let last = readers.iter().map(|op| kernel_of[op.index()]).max().unwrap_or(at);
                let moves = 1 + moved[at..=last].iter().filter(|of| reads(workload, of, base)).count();
                candidates.push((moves as f64 / (last - at + 1) as f64, base, at, last));
            }
        }
        candidates.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        for (_, tensor, from, to) in candidates {
            let bytes = workload.tensors[tensor].stored_bytes() as f64;
            let held = &mut resident.held[from..=to];
            if !resident.stays[tensor.index()] && held.iter().all(|held| held + bytes <= room) {
                for held in held {
                    *held += bytes;
                }
                resident.stays[tensor.index()] = true;
            }
        }
        resident
    }

    /// Whether a tensor stays.
    pub(super) fn has(&self, workload: &Workload, tensor: TensorId) -> bool {
        self.stays[workload.base(tensor).index()]
    }

    /// Bytes that stay through a kernel.
    pub(super) fn held(&self, kernel: usize) -> f64 {
        self.held[kernel]
    }
}

fn reads(workload: &Workload, of: &Moved, base: TensorId) -> bool {
    of.reads.iter().any(|&read| workload.base(read) == base)
}
