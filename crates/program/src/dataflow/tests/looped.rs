//! Section 3 of `docs/program.md`: a looped decoder layer. Weights are streamed for each layer, the residual goes from
//! layer to layer on the chip.

use super::super::{Access, Axis, Carried, Dim, Loop, Process, ProcessKind, Stream};
use super::{Case, ELEMENT, accumulate, assert_close, execute, gelu, moved, multiply, stage, values};

pub(super) const LAYERS: u64 = 4;
const ROWS: u64 = 10;
const MODEL: u64 = 4;
const TILE_ROWS: u64 = 3;
const WEIGHT_BYTES: u64 = MODEL * MODEL * ELEMENT;
const BASES: [u64; 3] = [0, 0x1000, 0x2000];

/// The looped layer; `distance` is how many layers back the residual comes from.
pub(super) fn looped(distance: u64) -> Case {
    let mut case = Case::default();
    let row_tiles = ROWS.div_ceil(TILE_ROWS);
    case.memories.own().write(BASES[0], ELEMENT, &values(distance * ROWS * MODEL, 21));
    case.memories.own().write(BASES[1], ELEMENT, &values(LAYERS * MODEL * MODEL, 22));
    let loops = &mut case.flow.loops;
    let layer = loops.push(Loop::full(Axis::Repeat, LAYERS, 1));
    let start = loops.push(Loop::full(Axis::Repeat, distance, 1));
    let row = loops.push(Loop::full(Axis::Row, ROWS, TILE_ROWS));
    let nest = [layer, row];
    let rows = || Stream::memory(vec![Dim::along(Axis::Row, ROWS), Dim::whole(MODEL)], ELEMENT, 0);
    let at = |mut stream: Stream, base| {
        stream.base.base = base;
        stream
    };

    let first = case.load("first", &[start, row], at(rows(), BASES[0]).stepping(ROWS * MODEL * ELEMENT), 2);
    let weights = Stream::memory(vec![Dim::whole(MODEL), Dim::whole(MODEL)], ELEMENT, BASES[1]).stepping(WEIGHT_BYTES);
    let w = case.load("w", &[layer], weights, 2);
    // The layer's rows wait here until the next layer, or the one after, takes them.
    let x = case.buffer("x", &nest, 2);
    let h = case.buffer("h", &nest, 2);
    let out = case.buffer("out", &nest, distance * row_tiles);

    let input = Process::new("input", ProcessKind::Stage, &nest)
        .reading(first, Access::cover(start, layer))
        .reading(out, Access::previous(layer, distance))
        .writing(x, Access::same());
    let input = case.stage(input, |firing, out| {
        let tile = firing.inputs[0].first().or(firing.inputs[1].first()).expect("one of the two");
        out.push(0, tile.data().to_vec());
    });
    case.flow.carried.push(Carried { repeat: layer, reader: input, from: out, initial: first, distance });
    let gemm = stage("gemm", &nest).reading(x, Access::same()).reading(w, Access::same()).writing(h, Access::same());
    case.stage(gemm, |firing, out| {
        out.push(0, multiply(firing.inputs[0][0].data(), firing.inputs[1][0].data(), MODEL));
    });
    let add = stage("add", &nest).reading(h, Access::same()).reading(x, Access::same()).writing(out, Access::same());
    case.stage(add, |firing, out| {
        let mut sum: Vec<f64> = firing.inputs[0][0].data().iter().map(|&h| gelu(h)).collect();
        accumulate(&mut sum, firing.inputs[1][0].data());
        out.push(0, sum);
    });
    let left = at(rows(), BASES[2]).stepping(ROWS * MODEL * ELEMENT);
    case.store(&[start, row], left, out, Access::later(layer, start, LAYERS - distance));
    case
}

fn reference(case: &mut Case, distance: u64) -> Vec<f64> {
    let memory = case.memories.own();
    let tensor = ROWS * MODEL;
    let mut outs: Vec<Vec<f64>> =
        (0..distance).map(|n| memory.read(BASES[0] + n * tensor * ELEMENT, ELEMENT, tensor)).collect();
    for layer in 0..LAYERS {
        let w = memory.read(BASES[1] + layer * WEIGHT_BYTES, ELEMENT, MODEL * MODEL);
        let x = &outs[layer as usize];
        let h = multiply(x, &w, MODEL);
        outs.push(x.iter().zip(h).map(|(x, h)| x + gelu(h)).collect());
    }
    outs.split_off(LAYERS as usize).concat()
}

#[test]
fn a_looped_layer_gives_the_numbers_and_bytes_of_its_layers() {
    for distance in [1, 2] {
        let (mut memories, run) = execute(|| looped(distance));
        let mut case = looped(distance);
        let found = memories.own().read(BASES[2], ELEMENT, distance * ROWS * MODEL);
        assert_close(&found, &reference(&mut case, distance));
        let rows = ROWS * MODEL * ELEMENT;
        assert_eq!(moved(&case.flow, &run), (distance * rows + LAYERS * WEIGHT_BYTES, distance * rows));
    }
}

#[test]
fn a_layer_is_a_period() {
    let case = looped(1);
    let graph = super::ProcessGraph::new(&case.flow).expect("a legal dataflow");
    let tiles = ROWS.div_ceil(TILE_ROWS);
    for process in graph.processes().filter(|process| graph.firings(*process) == LAYERS * tiles) {
        assert_eq!(graph.period(process), Some(tiles));
    }
}
