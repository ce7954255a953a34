//! Whether a graph fits the device's memory, and what takes the room.

use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::index::Id;
use rdusim_base::mode::Mode;
use rdusim_base::units::ByteSize;
use rdusim_graph::arch::{Gpu, Sharding};
use rdusim_graph::workload::{COMPUTE_AGAIN, OperatorKind, Phase, TensorId, TensorRole, Workload};

use super::kernel::Kernel;

/// Bytes a device holds, by what they are.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Held {
    weights: f64,
    state: f64,
    gradients: f64,
    saved: f64,
    passing: f64,
}

impl Held {
    fn total(self) -> f64 {
        self.weights + self.state + self.gradients + self.saved + self.passing
    }

    fn told(self) -> String {
        let size = |bytes: f64| ByteSize(bytes as u64).to_string();
        let mut parts = vec![format!("weights {}", size(self.weights))];
        if self.state > 0.0 {
            parts.push(format!("optimiser state {}", size(self.state)));
            parts.push(format!("gradients {}", size(self.gradients)));
        }
        if self.saved > 0.0 {
            parts.push(format!("saved activations {}", size(self.saved)));
        }
        parts.push(format!("activations in passing and results {}", size(self.passing)));
        parts.join(", ")
    }
}

/// What each device keeps, in a sentence; or that it does not fit.
pub(super) fn check(gpu: &Gpu, workload: &Workload, kernels: &[Kernel], mode: Mode) -> Result<String, Diagnostic> {
    let held = held(gpu, workload, kernels);
    let capacity: u64 = gpu.memory.iter().map(|tier| tier.capacity_bytes).sum();
    if held.total() > capacity as f64 {
        let short = ByteSize((held.total() - capacity as f64) as u64);
        let title = format!(
            "the {} run of `{}` does not fit {}: it needs {} of {}, short by {short}: {}",
            mode.name(),
            workload.name,
            gpu.name,
            ByteSize(held.total() as u64),
            ByteSize(capacity),
            held.told(),
        );
        let help = if held.state > 0.0 {
            &format!(
                "share the optimiser's state (`--set arch.cluster.devices=8 --set arch.cluster.sharding=optimizer`, or \
             `full`), {COMPUTE_AGAIN}, make the batch smaller, or `--mode fused` alone"
            )
        } else {
            "make the dimensions smaller, or run the part of the model that a device has"
        };
        return Err(Diagnostic::new(title).with_help(help));
    }
    let room = format!("{} of {}", ByteSize(held.total() as u64), ByteSize(capacity));
    Ok(format!("device memory holds {room}: {}", held.told()))
}

fn held(gpu: &Gpu, workload: &Workload, kernels: &[Kernel]) -> Held {
    let devices = gpu.cluster.devices as f64;
    let (of_weights, of_state) = match gpu.cluster.sharding {
        Sharding::None => (1.0, 1.0),
        Sharding::Optimizer => (1.0, devices),
        Sharding::Full => (devices, devices),
    };
    let bytes = |t: TensorId| (workload.tensors[t].held_bytes() as f64) * workload.tensors[t].repeat as f64;
    // What each tensor is for.
    let count = workload.tensors.len();
    let (mut is_state, mut is_gradient, mut is_saved) = (vec![false; count], vec![false; count], vec![false; count]);
    for operator in &workload.operators {
        for &input in &operator.inputs {
            let base = workload.base(input);
            match operator.phase {
                Phase::Update if workload.tensors[base].role == TensorRole::Input => is_state[base.index()] = true,
                Phase::Update if workload.tensors[base].role != TensorRole::Weight => is_gradient[base.index()] = true,
                _ => {}
            }
        }
    }
    let trains = workload.operators.iter().any(|operator| operator.kind == OperatorKind::AdamUpdate);
    let mut held = Held::default();
    let mut made_forward = vec![false; count];
    let mut last_read = vec![0; count];
    for (at, kernel) in kernels.iter().enumerate() {
        let phase = workload.operators[kernel.operators[0]].phase;
        for &write in &kernel.writes {
            made_forward[workload.base(write).index()] = phase == Phase::Forward;
        }
        for &read in &kernel.reads {
            let base = workload.base(read).index();
            last_read[base] = at;
            is_saved[base] |= phase == Phase::Backward && made_forward[base];
        }
    }
    for (id, tensor) in workload.tensors.iter_enumerated().filter(|(_, tensor)| tensor.view.is_none()) {
        let index = id.index();
        match tensor.role {
            TensorRole::Weight => held.weights += bytes(id) / of_weights,
            TensorRole::Input if is_state[index] => held.state += bytes(id) / of_state,
            TensorRole::Input => held.passing += bytes(id),
            _ if is_gradient[index] => held.gradients += bytes(id) / of_weights,
            _ if is_saved[index] => held.saved += bytes(id),
            TensorRole::Output if !trains => held.passing += bytes(id),
            _ => {}
        }
    }
    // What only passes through, once: the most that is alive at a time.
    let passes = |t: TensorId| {
        let (base, role) = (workload.base(t).index(), workload.tensors[workload.base(t)].role);
        role == TensorRole::Intermediate && !is_gradient[base] && !is_saved[base]
    };
    let (mut alive, mut most) = (0.0, 0.0_f64);
    let mut ends: Vec<Vec<f64>> = vec![Vec::new(); kernels.len() + 1];
    for (at, kernel) in kernels.iter().enumerate() {
        for &write in kernel.writes.iter().filter(|&&write| passes(write)) {
            let size = workload.tensors[workload.base(write)].stored_bytes() as f64;
            alive += size;
            ends[last_read[workload.base(write).index()].max(at)].push(size);
        }
        most = most.max(alive);
        alive -= ends[at].iter().sum::<f64>();
    }
    held.passing += most;
    held
}
