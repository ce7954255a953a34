//! Section 1 of `docs/program.md`: GEMM, GELU, GEMM, the FFN's width in column tiles around the row tiles of a block.

use std::collections::BTreeMap;

use super::super::{Access, Axis, BlockNest, Dim, Order, Point, Stream};
use super::{Case, ELEMENT, accumulate, assert_close, execute, gelu, moved, multiply, stage, values};

const ROWS: u64 = 23;
const MODEL: u64 = 5;
const WIDTH: u64 = 14;
/// Column tiles of 4 of the width 14, row tiles of 3 rows, blocks of 3 row tiles: the last of each is short.
const NEST: (u64, u64, u64) = (4, 3, 3);
const BASES: [u64; 4] = [0, 0x1000, 0x2000, 0x3000];

pub(super) fn ffn(order: Order) -> Case {
    let mut case = Case::default();
    for (seed, (base, count)) in BASES.into_iter().zip([ROWS * MODEL, MODEL * WIDTH, WIDTH * MODEL]).enumerate() {
        case.memories.own().write(base, ELEMENT, &values(count, seed as u64 + 1));
    }
    let (width, tile_rows, block_tiles) = NEST;
    let nest = BlockNest { rows: ROWS, tile_rows, block_tiles, columns: Some((WIDTH, width)), panels: None, order };
    let nest = nest.add_to(&mut case.flow.loops);
    let stream = |shape: [Dim; 2], base| Stream::memory(shape.to_vec(), ELEMENT, base);
    let rows = [Dim::along(Axis::Row, ROWS), Dim::whole(MODEL)];
    let up = [Dim::whole(MODEL), Dim::along(Axis::Column, WIDTH)];
    let down = [Dim::along(Axis::Column, WIDTH), Dim::whole(MODEL)];

    // With column tiles outermost a row tile is used again in each: the buffer holds a block of them. With row tiles
    // outermost it is the weights that are used again.
    let (row_depth, weight_depth) = match order {
        Order::ColumnOuter => (block_tiles, 2),
        Order::RowOuter => (2, WIDTH.div_ceil(width)),
    };
    let x = case.load("x", &nest.row_tile, stream(rows, BASES[0]), row_depth);
    let w1 = case.load("w1", &nest.block_column, stream(up, BASES[1]), weight_depth);
    let w2 = case.load("w2", &nest.block_column, stream(down, BASES[2]), weight_depth);
    let h = case.buffer("h", &nest.firing, 2);
    let g = case.buffer("g", &nest.firing, 2);
    let y = case.buffer("y", &nest.row_tile, row_depth);
    let same = Access::same;

    let gemm1 = stage("gemm1", &nest.firing).reading(x, same()).reading(w1, same()).writing(h, same());
    case.stage(gemm1, |firing, out| {
        out.push(0, multiply(firing.inputs[0][0].data(), firing.inputs[1][0].data(), MODEL));
    });
    let activation = stage("gelu", &nest.firing).reading(h, same()).writing(g, same());
    case.stage(activation, |firing, out| {
        out.push(0, firing.inputs[0][0].data().iter().map(|&x| gelu(x)).collect());
    });
    let gemm2 = stage("gemm2", &nest.firing).reading(g, same()).reading(w2, same()).writing(y, same());
    let column = nest.firing.iter().position(|&id| Some(id) == nest.column).expect("a column loop");
    let mut sums: BTreeMap<Point, Vec<f64>> = BTreeMap::new();
    case.stage(gemm2, move |firing, out| {
        let mut row_tile = firing.at;
        row_tile.set(column, 0);
        let weights = firing.inputs[1][0].data();
        let product = multiply(firing.inputs[0][0].data(), weights, weights.len() as u64 / MODEL);
        accumulate(sums.entry(row_tile).or_default(), &product);
        if firing.last[column] {
            out.push(0, sums.remove(&row_tile).unwrap_or_default());
        }
    });
    case.store(&nest.row_tile, stream(rows, BASES[3]), y, same());
    case
}

fn reference(case: &mut Case) -> Vec<f64> {
    let memory = case.memories.own();
    let x = memory.read(BASES[0], ELEMENT, ROWS * MODEL);
    let w1 = memory.read(BASES[1], ELEMENT, MODEL * WIDTH);
    let w2 = memory.read(BASES[2], ELEMENT, WIDTH * MODEL);
    let h: Vec<f64> = multiply(&x, &w1, MODEL).into_iter().map(gelu).collect();
    multiply(&h, &w2, WIDTH)
}

#[test]
fn ffn_gives_the_numbers_and_bytes_of_both_orders() {
    for order in [Order::ColumnOuter, Order::RowOuter] {
        let (mut memories, run) = execute(|| ffn(order));
        let mut case = ffn(order);
        let found = memories.own().read(BASES[3], ELEMENT, ROWS * MODEL);
        assert_close(&found, &reference(&mut case));
        let blocks = ROWS.div_ceil(NEST.1 * NEST.2);
        let read = ROWS * MODEL + blocks * 2 * MODEL * WIDTH;
        assert_eq!(moved(&case.flow, &run), (read * ELEMENT, ROWS * MODEL * ELEMENT));
    }
}

#[test]
fn a_buffer_never_holds_more_slots_than_its_depth() {
    let (_, run) = execute(|| ffn(Order::ColumnOuter));
    let case = ffn(Order::ColumnOuter);
    for (id, buffer) in case.flow.buffers.iter_enumerated() {
        assert!(run.peak_slots[id] <= buffer.depth, "{}", buffer.name);
    }
}
