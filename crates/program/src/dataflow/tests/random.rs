//! Random pipelines: two schedules agree, and the verifier's verdict is the interpreter's.

use proptest::prelude::*;

use super::super::{Access, Axis, BlockNest, Check, Dim, Fault, Order, ProcessGraph, Run, Schedule, Stream, interpret};
use super::{Case, ELEMENT, check, stage, values};

const BASES: [u64; 2] = [0, 0x10000];

/// A stage: which earlier buffers it reads, whether it fires once for a row tile, whether it accumulates over column
/// tiles, and the depth of its result.
type Spec = (usize, usize, bool, bool, u64);

#[derive(Debug, Clone)]
pub(super) struct Pipeline {
    nest: BlockNest,
    stages: Vec<Spec>,
}

pub(super) fn pipelines() -> impl Strategy<Value = Pipeline> {
    let sizes = (1u64..20, 1u64..4, 1u64..4, 1u64..8, 1u64..4, any::<bool>());
    let stages = prop::collection::vec((0usize..4, 0usize..4, any::<bool>(), any::<bool>(), 1u64..7), 1..5);
    (sizes, stages).prop_map(|((rows, tile_rows, block_tiles, extent, width, outer), stages)| {
        let order = if outer { Order::ColumnOuter } else { Order::RowOuter };
        Pipeline {
            nest: BlockNest { rows, tile_rows, block_tiles, columns: Some((extent, width)), panels: None, order },
            stages,
        }
    })
}

/// The pipeline with one number a row in each tile; a tile of column slots has as many.
pub(super) fn build(pipeline: &Pipeline) -> Case {
    let mut case = Case::default();
    let rows = pipeline.nest.rows;
    case.memories.own().write(BASES[0], ELEMENT, &values(rows, 61));
    let nest = pipeline.nest.add_to(&mut case.flow.loops);
    let column = nest.column.expect("a tiled axis");
    let stream = |base| Stream::memory(vec![Dim::along(Axis::Row, rows)], ELEMENT, base);
    let x = case.load("x", &nest.row_tile, stream(BASES[0]), pipeline.nest.block_tiles);
    // Buffers with whether their slots are row tiles, and whether something reads them.
    let mut buffers = vec![(x, true, false)];
    for (n, &(one, other, by_row, accumulates, depth)) in pipeline.stages.iter().enumerate() {
        let loops = if by_row { &nest.row_tile } else { &nest.firing };
        let sums = by_row || accumulates;
        let slots = if sums { &nest.row_tile } else { &nest.firing };
        let result = case.buffer(&format!("b{n}"), slots, depth);
        let mut process = stage(&format!("s{n}"), loops).writing(result, Access::same());
        let last = buffers.len() - 1;
        // The latest result, and perhaps an earlier one: reconvergent paths.
        for input in [last, last.saturating_sub(one), last.saturating_sub(other)] {
            let (buffer, row_slots, read) = &mut buffers[input];
            if process.reads.iter().any(|port| port.buffer == *buffer) {
                continue;
            }
            *read = true;
            let access = if by_row && !*row_slots { Access::all(column) } else { Access::same() };
            process = process.reading(*buffer, access);
        }
        let mut total: std::collections::BTreeMap<u64, Vec<f64>> = std::collections::BTreeMap::new();
        let row_level = loops.iter().position(|id| *id == nest.row).expect("a row loop");
        case.stage(process, move |firing, out| {
            let range = firing.ranges[row_level].clone();
            let sum = total.entry(range.start).or_insert_with(|| vec![0.0; (range.end - range.start) as usize]);
            for tile in firing.inputs.iter().flatten() {
                for (sum, value) in sum.iter_mut().zip(tile.data()) {
                    *sum += 0.5 * value + 0.01 * firing.number as f64;
                }
            }
            for _ in &firing.completes[0] {
                out.push(0, total.remove(&range.start).unwrap_or_default());
            }
        });
        buffers.push((result, sums, false));
    }
    let (buffer, row_slots, _) = buffers[buffers.len() - 1];
    let (loops, access) =
        if row_slots { (&nest.row_tile, Access::same()) } else { (&nest.row_tile, Access::all(column)) };
    // The store takes a row tile: of column slots, their sum.
    let y = case.buffer("y", &nest.row_tile, 2);
    let sum = stage("sum", loops).reading(buffer, access).writing(y, Access::same());
    case.stage(sum, |firing, out| {
        let mut sum = Vec::new();
        for tile in firing.inputs.iter().flatten() {
            super::accumulate(&mut sum, tile.data());
        }
        out.push(0, sum);
    });
    case.store(&nest.row_tile, stream(BASES[1]), y, Access::same());
    case
}

fn run(case: &mut Case, schedule: Schedule) -> Result<Run, Fault> {
    let graph = ProcessGraph::new(&case.flow).expect("a legal dataflow");
    interpret(&case.flow, &graph, &mut case.kernels, &mut case.memories, schedule)
}

proptest! {
    #[test]
    fn schedules_agree_and_the_verifier_foresees_deadlock(pipeline in pipelines()) {
        let (mut eager, mut late) = (build(&pipeline), build(&pipeline));
        let violations = check(&eager.flow);
        let foreseen = violations.iter().all(|v| matches!(v.check, Check::Depth | Check::Deadlock));
        prop_assert!(foreseen, "{:?}", violations);
        let (first, second) = (run(&mut eager, Schedule::Eager), run(&mut late, Schedule::Late));
        match (first, second) {
            (Ok(first), Ok(second)) => {
                prop_assert!(violations.is_empty(), "{:?}", violations);
                prop_assert_eq!(first.bytes, second.bytes);
                prop_assert!(eager.memories == late.memories);
                for (id, buffer) in eager.flow.buffers.iter_enumerated() {
                    prop_assert!(first.peak_slots[id].max(second.peak_slots[id]) <= buffer.depth);
                }
            }
            (Err(Fault::Deadlock(first)), Err(Fault::Deadlock(second))) => {
                prop_assert_eq!(first, second);
                prop_assert!(violations.iter().any(|violation| violation.check == Check::Deadlock));
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }
}
