//! Section 5 of `docs/program.md`: K in four slices, whose partial sums meet in a tree of two levels.

use super::super::{Access, Axis, BufferId, Dim, Loop, LoopId, Source, Stream};
use super::{Case, ELEMENT, accumulate, assert_close, execute, moved, multiply, stage, values};

const ROWS: u64 = 7;
const DEPTH: u64 = 20;
const COLUMNS: u64 = 3;
const SLICES: u64 = 4;
const SLICE: u64 = DEPTH / SLICES;
/// A slice of 5 in tiles of 2: the last is short.
const K_TILE: u64 = 2;
/// The slice whose weights come from another chip.
const PEER_SLICE: u64 = 3;
const BASES: [u64; 3] = [0, 0x1000, 0x2000];

/// Adds two partial sums.
fn node(case: &mut Case, name: &str, row: LoopId, [left, right]: [BufferId; 2]) -> BufferId {
    let sum = case.buffer(name, &[row], 2);
    let add = stage(name, &[row]).reading(left, Access::same()).reading(right, Access::same());
    case.stage(add.writing(sum, Access::same()), |firing, out| {
        let mut sum = firing.inputs[0][0].data().to_vec();
        accumulate(&mut sum, firing.inputs[1][0].data());
        out.push(0, sum);
    });
    sum
}

pub(super) fn tree() -> Case {
    let mut case = Case::default();
    case.memories.own().write(BASES[0], ELEMENT, &values(ROWS * DEPTH, 41));
    case.memories.own().write(BASES[1], ELEMENT, &values((DEPTH - SLICE) * COLUMNS, 42));
    let at = BASES[1] + PEER_SLICE * SLICE * COLUMNS * ELEMENT;
    case.memories.of(Source::Peer(1)).write(at, ELEMENT, &values(SLICE * COLUMNS, 43));
    let row = case.flow.loops.push(Loop::full(Axis::Row, ROWS, 2));
    let k = case.flow.loops.push(Loop::full(Axis::K, SLICE, K_TILE));
    let rows = |width, base| Stream::memory(vec![Dim::along(Axis::Row, ROWS), Dim::whole(width)], ELEMENT, base);
    let x = case.load("x", &[row], rows(DEPTH, BASES[0]), 2);
    let mut partial = Vec::new();
    for slice in 0..SLICES {
        let shape = vec![Dim::along(Axis::K, SLICE), Dim::whole(COLUMNS)];
        let base = BASES[1] + slice * SLICE * COLUMNS * ELEMENT;
        let mut stream = Stream::memory(shape, ELEMENT, base);
        if slice == PEER_SLICE {
            stream.source = Source::Peer(1);
        }
        let w = case.load(&format!("w{slice}"), &[k], stream, SLICE.div_ceil(K_TILE));
        let p = case.buffer(&format!("p{slice}"), &[row], 2);
        let gemm = stage(&format!("gemm{slice}"), &[row, k]).reading(x, Access::same()).reading(w, Access::same());
        let mut sum = Vec::new();
        case.stage(gemm.writing(p, Access::same()), move |firing, out| {
            let tile = &firing.ranges[1];
            let from = slice * SLICE;
            let columns = (from + tile.start) as usize..(from + tile.end) as usize;
            let x = firing.inputs[0][0].data().chunks(DEPTH as usize);
            let x: Vec<f64> = x.flat_map(|row| row[columns.clone()].to_vec()).collect();
            accumulate(&mut sum, &multiply(&x, firing.inputs[1][0].data(), tile.end - tile.start));
            if firing.last[1] {
                out.push(0, std::mem::take(&mut sum));
            }
        });
        partial.push(p);
    }
    let left = node(&mut case, "left", row, [partial[0], partial[1]]);
    let right = node(&mut case, "right", row, [partial[2], partial[3]]);
    let y = node(&mut case, "root", row, [left, right]);
    case.store(&[row], rows(COLUMNS, BASES[2]), y, Access::same());
    case
}

#[test]
fn a_tree_of_partial_sums_gives_the_numbers_and_bytes() {
    let (mut memories, run) = execute(tree);
    let memory = memories.own();
    let x = memory.read(BASES[0], ELEMENT, ROWS * DEPTH);
    let w = [values((DEPTH - SLICE) * COLUMNS, 42), values(SLICE * COLUMNS, 43)].concat();
    assert_close(&memory.read(BASES[2], ELEMENT, ROWS * COLUMNS), &multiply(&x, &w, DEPTH));
    let read = (ROWS * DEPTH + DEPTH * COLUMNS) * ELEMENT;
    assert_eq!(moved(&tree().flow, &run), (read, ROWS * COLUMNS * ELEMENT));
}

#[test]
fn a_stage_that_accumulates_completes_its_slot_in_the_last_iteration() {
    let case = tree();
    let graph = super::ProcessGraph::new(&case.flow).expect("a legal dataflow");
    let p0 = case.flow.buffers.iter_enumerated().find(|(_, buffer)| buffer.name == "p0").expect("p0").0;
    let writer = graph.producers(p0)[0];
    let begun: Vec<u64> = (0..6).map(|n| graph.begun(writer, n, &graph.point(writer.process, n))).collect();
    let completed: Vec<u64> = (0..=6).map(|done| graph.completed(writer, done)).collect();
    assert_eq!(begun, [1, 1, 1, 2, 2, 2]);
    assert_eq!(completed, [0, 0, 0, 1, 1, 1, 2]);
    assert_eq!((graph.begins(writer, 3), graph.begins(writer, 4)), (1..2, 2..2));
    assert_eq!((graph.completes(writer, 4), graph.completes(writer, 5)), (1..1, 1..2));
}
