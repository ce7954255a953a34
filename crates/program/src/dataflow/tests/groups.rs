//! Ragged groups: experts with different numbers of rows, one of them with none.

use super::super::{Access, Axis, Bound, Dim, Loop, Stream};
use super::{Case, ELEMENT, assert_close, execute, moved, multiply, stage, values};

const ENDS: [u64; 4] = [5, 5, 12, 15];
const ROWS: u64 = 15;
const MODEL: u64 = 3;
const BASES: [u64; 3] = [0, 0x1000, 0x2000];

fn experts() -> Case {
    let mut case = Case::default();
    case.memories.own().write(BASES[0], ELEMENT, &values(ROWS * MODEL, 51));
    case.memories.own().write(BASES[1], ELEMENT, &values(4 * MODEL * MODEL, 52));
    let expert = case.flow.loops.push(Loop::full(Axis::Group, 4, 1));
    let starts = [0, ENDS[0], ENDS[1], ENDS[2]];
    let ranges = starts.into_iter().zip(ENDS).map(|(start, end)| start..end).collect();
    let bound = Bound::Table { outer: expert, ranges };
    let row = case.flow.loops.push(Loop { axis: Axis::Row, extent: ROWS, tile: 2, bound });
    let rows = |base| Stream::memory(vec![Dim::along(Axis::Row, ROWS), Dim::whole(MODEL)], ELEMENT, base).in_parts();
    let weights = vec![Dim::along(Axis::Group, 4), Dim::whole(MODEL), Dim::whole(MODEL)];
    let x = case.load("x", &[expert, row], rows(BASES[0]), 2);
    let w = case.load("w", &[expert], Stream::memory(weights, ELEMENT, BASES[1]), 2);
    let y = case.buffer("y", &[expert, row], 2);
    let same = Access::same;
    let gemm = stage("gemm", &[expert, row]).reading(x, same()).reading(w, same()).writing(y, same());
    case.stage(gemm, |firing, out| {
        out.push(0, multiply(firing.inputs[0][0].data(), firing.inputs[1][0].data(), MODEL));
    });
    case.store(&[expert, row], rows(BASES[2]), y, same());
    case
}

#[test]
fn rows_meet_the_weights_of_their_expert() {
    // The expert without rows still has weights, which nothing reads: a violation, unless its loop is left out.
    let case = experts();
    let found = super::check(&case.flow);
    assert_eq!(found.len(), 1, "{found:?}");
    let mut case = without_idle_expert();
    let run = case.run(super::Schedule::Eager);
    let memory = case.memories.own();
    let (x, w) = (memory.read(BASES[0], ELEMENT, 45), memory.read(BASES[1], ELEMENT, 27));
    let mut expected = multiply(&x[..15], &w[..9], MODEL);
    expected.extend(multiply(&x[15..36], &w[9..18], MODEL));
    expected.extend(multiply(&x[36..], &w[18..], MODEL));
    assert_close(&memory.read(BASES[2], ELEMENT, 45), &expected);
    assert_eq!(moved(&case.flow, &run), ((45 + 27) * ELEMENT, 45 * ELEMENT));
    execute(without_idle_expert);
}

fn without_idle_expert() -> Case {
    let mut case = experts();
    let (expert, row) = {
        let mut ids = case.flow.loops.ids();
        (ids.next().expect("a loop"), ids.next().expect("a loop"))
    };
    case.flow.loops[expert].extent = 3;
    case.flow.loops[row].bound = Bound::Table { outer: expert, ranges: vec![0..5, 5..12, 12..15] };
    for id in case.flow.processes.ids() {
        if let super::ProcessKind::Load(stream) = &mut case.flow.processes[id].kind {
            for dim in stream.shape.iter_mut().filter(|dim| dim.axis == Some(Axis::Group)) {
                dim.extent = 3;
            }
        }
    }
    case
}
