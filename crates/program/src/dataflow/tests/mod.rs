//! Five sections written as dataflows, executed on numbers and compared with a plain computation; laws; refusals.

mod attention;
mod convolution;
mod ffn;
mod groups;
mod laws;
mod looped;
mod periods;
mod random;
mod split_k;
mod violations;

use std::collections::BTreeMap;

use super::{
    Access, Buffer, BufferId, Dataflow, Firing, Kernel, LoopId, Memories, Outputs, Process, ProcessGraph, ProcessId,
    ProcessKind, Run, Schedule, Stream, check, interpret,
};

/// Bytes of an element off chip.
const ELEMENT: u64 = 4;

/// A dataflow with kernels for its stages and data in memory.
#[derive(Default)]
struct Case {
    flow: Dataflow,
    kernels: BTreeMap<ProcessId, Box<dyn Kernel>>,
    memories: Memories,
}

impl Case {
    fn buffer(&mut self, name: &str, slot_loops: &[LoopId], depth: u64) -> BufferId {
        self.flow.buffers.push(Buffer::new(name, slot_loops, depth))
    }

    /// A buffer that a load fills, slot by slot.
    fn load(&mut self, name: &str, nest: &[LoopId], stream: Stream, depth: u64) -> BufferId {
        let buffer = self.buffer(name, nest, depth);
        let load = Process::new(&format!("load {name}"), ProcessKind::Load(stream), nest);
        self.flow.processes.push(load.writing(buffer, Access::same()));
        buffer
    }

    fn store(&mut self, nest: &[LoopId], stream: Stream, buffer: BufferId, access: Access) -> ProcessId {
        self.flow.processes.push(Process::new("store", ProcessKind::Store(stream), nest).reading(buffer, access))
    }

    fn stage(&mut self, process: Process, kernel: impl FnMut(&Firing<'_>, &mut Outputs) + 'static) -> ProcessId {
        let id = self.flow.processes.push(process);
        self.kernels.insert(id, Box::new(kernel));
        id
    }

    fn run(&mut self, schedule: Schedule) -> Run {
        let graph = ProcessGraph::new(&self.flow).expect("a legal dataflow");
        interpret(&self.flow, &graph, &mut self.kernels, &mut self.memories, schedule)
            .unwrap_or_else(|fault| panic!("{}", fault.describe(&self.flow)))
    }
}

fn stage(name: &str, nest: &[LoopId]) -> Process {
    Process::new(name, ProcessKind::Stage, nest)
}

/// Checks a dataflow, runs it in both schedules and returns what both leave.
fn execute(make: impl Fn() -> Case) -> (Memories, Run) {
    let (mut eager, mut late) = (make(), make());
    let violations: Vec<String> = check(&eager.flow).iter().map(ToString::to_string).collect();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    let (first, second) = (eager.run(Schedule::Eager), late.run(Schedule::Late));
    assert!(eager.memories == late.memories, "two schedules leave different numbers");
    assert_eq!(first.bytes, second.bytes);
    (eager.memories, first)
}

/// Bytes that loads have moved, and bytes that stores have.
fn moved(flow: &Dataflow, run: &Run) -> (u64, u64) {
    let (mut read, mut written) = (0, 0);
    for (id, process) in flow.processes.iter_enumerated() {
        match process.kind {
            ProcessKind::Load(_) => read += run.bytes[id],
            ProcessKind::Store(_) => written += run.bytes[id],
            ProcessKind::Stage | ProcessKind::Copy => {}
        }
    }
    (read, written)
}

/// Numbers between -1 and 1 that look random.
fn values(count: u64, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 23) - 1.0
    };
    (0..count).map(next).collect()
}

/// `a` (`[_, k]`) times `b` (`[k, n]`), row-major.
fn multiply(a: &[f64], b: &[f64], k: u64) -> Vec<f64> {
    let k = k as usize;
    let n = b.len() / k;
    let rows = a.chunks(k);
    rows.flat_map(|row| (0..n).map(|j| (0..k).map(|l| row[l] * b[l * n + j]).sum()).collect::<Vec<f64>>()).collect()
}

/// Adds `more` to `sum`, which is empty before the first time.
fn accumulate(sum: &mut Vec<f64>, more: &[f64]) {
    sum.resize(more.len(), 0.0);
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum += more;
    }
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)).tanh())
}

#[track_caller]
fn assert_close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (n, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= 1e-9, "element {n}: {found} instead of {expected}");
    }
}
