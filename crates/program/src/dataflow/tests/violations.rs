//! Each check refuses a dataflow in which what it checks is broken.

use rdusim_base::index::Id;

use super::super::{
    Access, Affine, Along, Axis, Bound, BufferId, Carried, Check, Dataflow, Fault, Loop, LoopId, Order, ProcessGraph,
    ProcessId, ProcessKind, Schedule, Stream, Wait, interpret,
};
use super::{Case, check, convolution::chain, ffn::ffn, looped::looped, split_k::tree};

fn base() -> Dataflow {
    ffn(Order::ColumnOuter).flow
}

fn process(flow: &Dataflow, name: &str) -> ProcessId {
    flow.processes.iter_enumerated().find(|(_, process)| process.name == name).expect("a process of this name").0
}

fn buffer(flow: &Dataflow, name: &str) -> BufferId {
    flow.buffers.iter_enumerated().find(|(_, buffer)| buffer.name == name).expect("a buffer of this name").0
}

fn stream<'a>(flow: &'a mut Dataflow, name: &str) -> &'a mut Stream {
    let id = process(flow, name);
    match &mut flow.processes[id].kind {
        ProcessKind::Load(stream) | ProcessKind::Store(stream) => stream,
        ProcessKind::Stage | ProcessKind::Copy => panic!("{name} has no stream"),
    }
}

fn first_loop(flow: &Dataflow, axis: Axis) -> LoopId {
    flow.loops.iter_enumerated().find(|(_, l)| l.axis == axis).expect("a loop").0
}

/// The dataflow has a violation of `expected` whose text has `words`, and none of an earlier check.
#[track_caller]
fn refuses(flow: &Dataflow, expected: Check, words: &str) {
    let violations = check(flow);
    let texts: Vec<String> = violations.iter().map(ToString::to_string).collect();
    let found = violations.iter().zip(&texts).any(|(v, text)| v.check == expected && text.contains(words));
    assert!(found, "{expected:?} `{words}` is not among {texts:#?}");
    assert!(violations.iter().all(|violation| violation.check >= expected), "{texts:#?}");
}

#[test]
fn loops() {
    let mut flow = base();
    let column = first_loop(&flow, Axis::Column);
    flow.loops[column].tile = 0;
    refuses(&flow, Check::Loops, "a tile of 0 elements");

    let mut flow = base();
    let gemm = process(&flow, "gemm1");
    flow.processes[gemm].loops.reverse();
    refuses(&flow, Check::Loops, "does not stand before it");

    let mut flow = base();
    let (block, row) = (first_loop(&flow, Axis::Row), LoopId::from_index(1));
    flow.loops[row].bound = Bound::Table { outer: block, ranges: vec![0..9, 9..18] };
    refuses(&flow, Check::Loops, "fewer ranges");
}

#[test]
fn nests() {
    let mut flow = base();
    let gemm = process(&flow, "gemm1");
    let first = flow.processes[gemm].loops[0];
    flow.processes[gemm].loops.push(first);
    refuses(&flow, Check::Nests, "twice");

    // Blocks of 9 rows, whose row tiles begin 8 rows apart.
    let mut flow = base();
    let (block, row) = (first_loop(&flow, Axis::Row), LoopId::from_index(1));
    let (start, end) = (Affine { offset: 0, step: 8 }, Affine { offset: 9, step: 9 });
    flow.loops[row].bound = Bound::Affine { outer: block, start, end };
    refuses(&flow, Check::Nests, "Row walked by loops 0 and 1");

    let mut flow = looped(1).flow;
    let gemm = process(&flow, "gemm");
    flow.processes[gemm].loops.reverse();
    refuses(&flow, Check::Nests, "Repeat");

    let mut flow = base();
    let gelu = process(&flow, "gelu");
    let loops = &mut flow.processes[gelu].loops;
    // block, column, row becomes block, row, column.
    loops.swap(1, 2);
    refuses(&flow, Check::Nests, "two orders");
}

#[test]
fn ports() {
    let mut flow = base();
    let load = process(&flow, "load w1");
    flow.processes[load].writes.clear();
    refuses(&flow, Check::Ports, "0 producers");

    let mut flow = tree().flow;
    let (root, p3) = (process(&flow, "right"), buffer(&flow, "p3"));
    flow.processes[root].reads.retain(|port| port.buffer != p3);
    refuses(&flow, Check::Ports, "no consumer");

    // Two writers of whole slots of one buffer.
    let mut flow = tree().flow;
    let (left, right) = (process(&flow, "left"), process(&flow, "right"));
    let overlapping = flow.processes[left].writes[0].clone();
    flow.processes[right].writes.push(overlapping);
    refuses(&flow, Check::Ports, "2 producers");

    let mut flow = base();
    let (store, x) = (process(&flow, "store"), buffer(&flow, "x"));
    flow.processes[store] = flow.processes[store].clone().reading(x, Access::same());
    refuses(&flow, Check::Ports, "2 reads");
}

#[test]
fn accesses() {
    // The store has no column loop, `h` has.
    let mut flow = base();
    let (store, h) = (process(&flow, "store"), buffer(&flow, "h"));
    flow.processes[store].reads[0].buffer = h;
    let y = buffer(&flow, "y");
    let gelu = process(&flow, "gelu");
    flow.processes[gelu] = flow.processes[gelu].clone().reading(y, Access::same());
    refuses(&flow, Check::Access, "no rule");

    let mut flow = chain(4).flow;
    let (conv1, halved) = (process(&flow, "conv1"), LoopId::from_index(2));
    flow.processes[conv1].reads[0].access = Access::window(LoopId::from_index(0), halved, 1, 1, 1);
    refuses(&flow, Check::Access, "which a rule names");

    // Windows of two firings overlap, so that both would write the slot between them.
    let mut flow = chain(4).flow;
    let (conv1, rows) = (process(&flow, "conv1"), LoopId::from_index(1));
    flow.processes[conv1].writes[0].access = Access::window(rows, rows, 1, 1, 1);
    refuses(&flow, Check::Access, "writes without a window");

    let mut flow = base();
    let (gemm, block) = (process(&flow, "gemm1"), first_loop(&flow, Axis::Row));
    let column = first_loop(&flow, Axis::Column);
    flow.processes[gemm].reads[0].access = Access::cover(block, column);
    refuses(&flow, Check::Access, "different axes");
}

#[test]
fn coverage() {
    // A stage without the last rows.
    let mut case = chain(4);
    let short = case.flow.loops.push(Loop::full(Axis::Row, 6, 3));
    let conv1 = process(&case.flow, "conv1");
    case.flow.processes[conv1].loops = vec![short];
    case.flow.processes[conv1].reads[0].access = Access::window(LoopId::from_index(0), short, 1, 1, 1);
    case.flow.processes[conv1].writes[0].access = Access::all(LoopId::from_index(1));
    let a = buffer(&case.flow, "a");
    case.flow.buffers[a].depth = 8;
    refuses(&case.flow, Check::Coverage, "slot 4 not read");

    let mut flow = looped(1).flow;
    let store = process(&flow, "store");
    flow.processes[store].reads[0].access = Access::later(LoopId::from_index(0), LoopId::from_index(1), 2);
    refuses(&flow, Check::Coverage, "not read");
}

fn mutate(change: impl Fn(&mut Carried)) -> Dataflow {
    let mut flow = looped(1).flow;
    change(&mut flow.carried[0]);
    flow
}

#[test]
fn carried_tensors() {
    refuses(&mutate(|carried| carried.distance = 2), Check::Carried, "at this distance");
    refuses(&mutate(|carried| carried.distance = 0), Check::Carried, "a distance of 0");
    refuses(&mutate(|carried| carried.initial = carried.from), Check::Carried, "initial repetitions");
    let mut flow = looped(1).flow;
    flow.carried.clear();
    refuses(&flow, Check::Carried, "read at an earlier iteration");
    // A read two layers back has two layers of initial slots.
    let mut flow = looped(1).flow;
    let input = process(&flow, "input");
    for (_, along) in &mut flow.processes[input].reads[1].access.along {
        *along = Along::Previous { distance: 2 };
    }
    assert!(check(&flow).iter().any(|violation| violation.check == Check::Carried));
}

#[test]
fn streams() {
    let mut flow = base();
    stream(&mut flow, "load w1").shape[1].extent = 15;
    refuses(&flow, Check::Streams, "Column of 15");

    let mut flow = base();
    stream(&mut flow, "load x").shape[0].axis = Some(Axis::Head);
    refuses(&flow, Check::Streams, "no loop over Head");

    let mut flow = looped(1).flow;
    stream(&mut flow, "load w").base.step_per_repeat = 8;
    refuses(&flow, Check::Streams, "8 bytes between repetitions");

    // Keys that a pass reads in part only.
    let mut case = Case::default();
    let row = case.flow.loops.push(Loop::full(Axis::Row, 8, 4));
    let (start, end) = (Affine::constant(0), Affine { offset: 4, step: 4 });
    let bound = Bound::Affine { outer: row, start, end };
    let key = case.flow.loops.push(Loop { axis: Axis::Key, extent: 8, tile: 2, bound });
    let shape = || vec![super::super::Dim::along(Axis::Key, 8)];
    let k = case.load("k", &[row, key], Stream::memory(shape(), 4, 0), 2);
    case.store(&[row, key], Stream::memory(shape(), 4, 64).in_parts(), k, Access::same());
    refuses(&case.flow, Check::Streams, "16 bytes in a pass");
}

#[test]
fn depths() {
    let flow = &mut chain(2).flow;
    refuses(flow, Check::Depth, "at least 3");

    // The rows of a block come back for every column tile, and only one of three finds a slot.
    let mut flow = base();
    let x = buffer(&flow, "x");
    flow.buffers[x].depth = 2;
    refuses(&flow, Check::Depth, "at least 3");
}

#[test]
fn deadlock_is_found_and_names_who_waits() {
    let mut flow = looped(1).flow;
    let out = buffer(&flow, "out");
    // Four row tiles a layer: `x`, `h` and `out` together hold less than a layer, so no layer can end.
    flow.buffers[out].depth = 1;
    for name in ["x", "h"] {
        let id = buffer(&flow, name);
        flow.buffers[id].depth = 1;
    }
    refuses(&flow, Check::Deadlock, "to be free");

    let mut case = looped(1);
    case.flow = flow;
    let graph = ProcessGraph::new(&case.flow).expect("a legal dataflow");
    let fault = interpret(&case.flow, &graph, &mut case.kernels, &mut case.memories, Schedule::Late);
    let Err(Fault::Deadlock(blocked)) = fault else { panic!("{fault:?}") };
    let add = process(&case.flow, "add");
    let of_add = blocked.iter().find(|blocked| blocked.process == add).expect("the stage that writes `out`");
    assert_eq!(of_add.wait, Wait::Credit { buffer: out, slot: 1 });
    let text = Fault::Deadlock(blocked).describe(&case.flow);
    assert!(text.contains("add (firing 1) waits for slot 1 of out to be free"), "{text}");
}
