//! The loops of [`rdusim::program::dataflow`] number what a section's nest does as [`rdusim::compile::Nest`] does.

use proptest::prelude::*;

use rdusim::compile::{Cadence, Chunking, LoopOrder, Nest};
use rdusim::program::dataflow::{
    Access, BlockNest, Buffer, Dataflow, LoopId, Order, Point, PortRef, Process, ProcessGraph, ProcessKind,
};

const LEVELS: [Cadence; 5] = [Cadence::Firing, Cadence::Token, Cadence::BlockChunk, Cadence::Chunk, Cadence::Once];

proptest! {
    #[test]
    fn a_block_nest_is_todays_nest(
        rows in 1u64..120, tile_rows in 1u64..40, block_tiles in 1u64..8, columns in prop::option::of((1u64..40, 1u64..40)),
        outer: bool,
    ) {
        let (loop_order, order) = if outer {
            (LoopOrder::ChunkOuter, Order::ColumnOuter)
        } else {
            (LoopOrder::TokenOuter, Order::RowOuter)
        };
        let chunking = columns.map(|(extent, width)| Chunking { axis: 0, extent, width });
        let nest = Nest { rows, token_rows: tile_rows, block_tokens: block_tiles, chunking, order: loop_order };
        let mut flow = Dataflow::default();
        let loops = BlockNest { rows, tile_rows, block_tiles, columns, order }.add_to(&mut flow.loops);
        let once = Vec::new();
        let nests = [&loops.firing, &loops.row_tile, &loops.block_column, &loops.columns, &once];
        // A stage that reads a buffer at each level.
        let mut stage = Process::new("stage", ProcessKind::Stage, &loops.firing);
        for slots in nests {
            stage = stage.reading(flow.buffers.push(Buffer::new("", slots, 1)), Access::same());
        }
        let process = flow.processes.push(stage);
        let graph = ProcessGraph::new(&flow).expect("a legal dataflow");

        let level = |nest: &[LoopId], of: Option<LoopId>| nest.iter().position(|id| Some(*id) == of);
        for (port, (cadence, slot_loops)) in LEVELS.into_iter().zip(nests).enumerate() {
            let slots = graph.slots(graph.reads(process).nth(port).expect("a port"));
            prop_assert_eq!(slots.count(), nest.count(cadence));
            let (block, column, row) = (
                level(slot_loops, Some(loops.block)),
                level(slot_loops, loops.column),
                level(slot_loops, Some(loops.row)),
            );
            for n in 0..slots.count() {
                let (at, step) = (slots.point(n), nest.step(cadence, n));
                let index = |level: Option<usize>, at: &Point| level.map_or(0, |level| at.get(level));
                prop_assert_eq!(index(block, &at), step.block);
                prop_assert_eq!(index(column, &at), step.chunk);
                if let Some(row) = row {
                    prop_assert_eq!(step.block * block_tiles + at.get(row), step.token);
                    let range = slots.range(row, &at);
                    prop_assert_eq!(range.start, step.token * tile_rows);
                    prop_assert_eq!(range.end - range.start, nest.rows_of(step.token));
                }
                if let Some(column) = column {
                    prop_assert_eq!(Some(slots.range(column, &at)), nest.chunk_range(step.chunk));
                }
                prop_assert_eq!(slots.ordinal(&at), nest.ordinal(cadence, step));
            }
            // The slot of a firing, and the firing that uses it last.
            let reader = PortRef { process, port };
            for n in 0..graph.firings(process) {
                let step = nest.step(Cadence::Firing, n);
                let slot = nest.ordinal(cadence, step);
                prop_assert_eq!(graph.read_slots(reader, &graph.point(process, n)), vec![slot]);
                prop_assert!(graph.needed(reader, n, &graph.point(process, n)) > slot);
                prop_assert!(graph.released(reader, n) <= slot);
                prop_assert_eq!(graph.released(reader, n + 1) > slot, nest.is_last_use(cadence, step));
            }
        }
    }
}
