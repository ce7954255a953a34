//! Section 4 of `docs/program.md`: two convolutions in a chain over the rows of an image, with line buffers.

use super::super::{Access, Axis, Dim, Loop, Stream, Tile};
use super::{Case, ELEMENT, assert_close, execute, moved, stage, values};

const HEIGHT: u64 = 13;
const WIDTH: u64 = 6;
/// Rows of the second result: kernel 3, stride 2, one row of zeros at either side.
const HALF: u64 = HEIGHT.div_ceil(2);
const BASES: [u64; 3] = [0, 0x1000, 0x2000];

/// A 3x3 convolution of one channel: `row(y)` is an input row, or nothing outside the image.
fn convolve<'a>(row: impl Fn(i64) -> Option<&'a [f64]>, kernel: &[f64], y: u64, stride: u64) -> Vec<f64> {
    let mut result = vec![0.0; WIDTH as usize];
    for (dy, taps) in (-1..=1).zip(kernel.chunks(3)) {
        let Some(input) = row((y * stride).cast_signed() + dy) else { continue };
        for (x, sum) in (0i64..).zip(&mut result) {
            for (dx, tap) in (-1..=1).zip(taps) {
                let value = usize::try_from(x + dx).ok().and_then(|x| input.get(x));
                *sum += tap * value.copied().unwrap_or(0.0);
            }
        }
    }
    result
}

/// Image row `y` among the row tiles that a firing reads, tiles of `tile` rows.
fn row_of(tiles: &[Tile], tile: u64, y: i64) -> Option<&[f64]> {
    let y = u64::try_from(y).ok()?;
    let slot = tiles.iter().find(|slot| slot.slot == y / tile)?;
    slot.data().chunks(WIDTH as usize).nth((y % tile) as usize)
}

pub(super) fn chain(line_buffer: u64) -> Case {
    let mut case = Case::default();
    case.memories.own().write(BASES[0], ELEMENT, &values(HEIGHT * WIDTH, 31));
    case.memories.own().write(BASES[1], ELEMENT, &values(2 * 9, 32));
    let loops = &mut case.flow.loops;
    let lines = loops.push(Loop::full(Axis::Row, HEIGHT, 2));
    let rows = loops.push(Loop::full(Axis::Row, HEIGHT, 3));
    let halved = loops.push(Loop::full(Axis::Row, HALF, 2));
    let image = |rows, base| Stream::memory(vec![Dim::along(Axis::Row, rows), Dim::whole(WIDTH)], ELEMENT, base);

    let weights = case.load("weights", &[], Stream::memory(vec![Dim::whole(18)], ELEMENT, BASES[1]), 1);
    let x = case.load("x", &[lines], image(HEIGHT, BASES[0]), line_buffer);
    let a = case.buffer("a", &[rows], line_buffer);
    let y = case.buffer("y", &[halved], 2);
    let conv1 = stage("conv1", &[rows])
        .reading(x, Access::window(lines, rows, 1, 1, 1))
        .reading(weights, Access::same())
        .writing(a, Access::same());
    case.stage(conv1, |firing, out| {
        let kernel = &firing.inputs[1][0].data()[..9];
        let row = |y| row_of(&firing.inputs[0], 2, y);
        out.push(0, firing.ranges[0].clone().flat_map(|y| convolve(row, kernel, y, 1)).collect());
    });
    let conv2 = stage("conv2", &[halved])
        .reading(a, Access::window(rows, halved, 2, 1, 1))
        .reading(weights, Access::same())
        .writing(y, Access::same());
    case.stage(conv2, |firing, out| {
        let kernel = &firing.inputs[1][0].data()[9..];
        let row = |y| row_of(&firing.inputs[0], 3, y);
        out.push(0, firing.ranges[0].clone().flat_map(|y| convolve(row, kernel, y, 2)).collect());
    });
    case.store(&[halved], image(HALF, BASES[2]), y, Access::same());
    case
}

#[test]
fn a_chain_of_convolutions_gives_the_numbers_and_bytes() {
    let (mut memories, run) = execute(|| chain(4));
    let image = memories.own().read(BASES[0], ELEMENT, HEIGHT * WIDTH);
    let kernels = memories.own().read(BASES[1], ELEMENT, 18);
    let width = WIDTH as usize;
    let row = |of: &'_ [f64], y: i64| -> Option<Vec<f64>> {
        of.chunks(width).nth(usize::try_from(y).ok()?).map(<[f64]>::to_vec)
    };
    let whole = |of: &[f64], kernel: &[f64], rows: u64, stride| -> Vec<f64> {
        let lines: Vec<Vec<f64>> = (0..HEIGHT.cast_signed()).filter_map(|y| row(of, y)).collect();
        let at = |y: i64| usize::try_from(y).ok().and_then(|y| lines.get(y)).map(Vec::as_slice);
        (0..rows).flat_map(|y| convolve(at, kernel, y, stride)).collect()
    };
    let a = whole(&image, &kernels[..9], HEIGHT, 1);
    let expected = whole(&a, &kernels[9..], HALF, 2);
    assert_close(&memories.own().read(BASES[2], ELEMENT, HALF * WIDTH), &expected);
    let case = chain(4);
    assert_eq!(moved(&case.flow, &run), ((HEIGHT * WIDTH + 18) * ELEMENT, HALF * WIDTH * ELEMENT));
}

#[test]
fn a_line_buffer_frees_what_is_above_the_window() {
    let case = chain(4);
    let graph = super::ProcessGraph::new(&case.flow).expect("a legal dataflow");
    let x = case.flow.buffers.ids().nth(1).expect("x");
    let reader = graph.consumers(x)[0];
    let counts: Vec<(u64, u64)> = (0..5)
        .map(|n| (graph.needed(reader, n, &graph.point(reader.process, n)), graph.released(reader, n + 1)))
        .collect();
    // Rows 0..3 with one below need lines up to row 3; rows 3..6 need rows 2..=6, and so on, in tiles of 2 rows.
    assert_eq!(counts, [(2, 1), (4, 2), (5, 4), (7, 5), (7, 7)]);
    assert_eq!(graph.least_depth(x, u64::MAX), 3);
    // Rows 0..2 of the halved image need rows up to 3, then up to 7, 11 and the last, in tiles of 3 rows.
    let a = case.flow.buffers.ids().nth(2).expect("a");
    let reader = graph.consumers(a)[0];
    let needed: Vec<u64> = (0..4).map(|n| graph.needed(reader, n, &graph.point(reader.process, n))).collect();
    assert_eq!(needed, [2, 3, 4, 5]);
}
