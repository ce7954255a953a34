//! The program contract: the process graph of compiled sections against their dataflow in general form, and against the
//! firing rules that `verify` reads from their flows.

use proptest::prelude::*;

use rdusim::compile::{BaseCache, Effort, compile_with};
use rdusim::index::Id;
use rdusim::mode::Mode;
use rdusim::program::dataflow::{
    Access, BlockNest, Buffer, Dataflow, LoopId, Order, Point, PortRef, Process, ProcessGraph, ProcessKind,
};
use rdusim::program::dataflow::{ProcessId, check};
use rdusim::program::{self, BufferId, BufferRole, LoopLevel, LoopOrder, Nest, Schedule, Section, TiledAxis, lowered};
use rdusim::verify::firing_rules;

use crate::random::pair;

const LEVELS: [LoopLevel; 5] =
    [LoopLevel::FIRING, LoopLevel::ROW_TILE, LoopLevel::BLOCK_COLUMN, LoopLevel::COLUMN, LoopLevel::ONCE];

proptest! {
    #[test]
    fn a_block_nest_is_todays_nest(
        rows in 1u64..120, tile_rows in 1u64..40, block_tiles in 1u64..8, columns in prop::option::of((1u64..40, 1u64..40)),
        outer: bool,
    ) {
        let (loop_order, order) = if outer {
            (LoopOrder::ColumnTileOuter, Order::ColumnOuter)
        } else {
            (LoopOrder::RowTileOuter, Order::RowOuter)
        };
        let tiled_axis = columns.map(|(extent, width)| TiledAxis::new(0, extent, width));
        let nest = Nest { rows, tile_rows, block_tiles, tiled_axis, order: loop_order };
        let schedule = Schedule::of(&nest).expect("tiles have elements");
        let mut flow = Dataflow::default();
        let loops = BlockNest { rows, tile_rows, block_tiles, columns, panels: None, order }.add_to(&mut flow.loops);
        let once = Vec::new();
        let nests = [&loops.firing, &loops.row_tile, &loops.block_column, &loops.columns, &once];
        // A stage that reads a buffer at each level.
        let mut stage = Process::new("stage", ProcessKind::Stage, &loops.firing);
        for slots in nests {
            stage = stage.reading(flow.buffers.push(Buffer::new("", slots, 1)), Access::same());
        }
        let process = flow.processes.push(stage);
        let graph = ProcessGraph::new(&flow).expect("a legal dataflow");

        let position = |nest: &[LoopId], of: Option<LoopId>| nest.iter().position(|id| Some(*id) == of);
        for (port, (level, slot_loops)) in LEVELS.into_iter().zip(nests).enumerate() {
            let slots = graph.slots(graph.reads(process).nth(port).expect("a port"));
            prop_assert_eq!(slots.count(), nest.count(level));
            let (block, column, row) = (
                position(slot_loops, Some(loops.block)),
                position(slot_loops, loops.column),
                position(slot_loops, Some(loops.row)),
            );
            for n in 0..slots.count() {
                let (at, step) = (slots.point(n), schedule.step(level, n));
                let index = |level: Option<usize>, at: &Point| level.map_or(0, |level| at.get(level));
                prop_assert_eq!(index(block, &at), step.block);
                prop_assert_eq!(index(column, &at), step.column_tile);
                if let Some(row) = row {
                    prop_assert_eq!(step.block * block_tiles + at.get(row), step.row_tile);
                    let range = slots.range(row, &at);
                    prop_assert_eq!(range.start, step.row_tile * tile_rows);
                    prop_assert_eq!(range.end - range.start, nest.tiling().rows_of(step.row_tile));
                }
                if let Some(column) = column {
                    prop_assert_eq!(Some(slots.range(column, &at)), nest.column_range(step.column_tile));
                }
                prop_assert_eq!(slots.ordinal(&at), schedule.ordinal(level, step));
            }
            // The slot of a firing, and the firing that uses it last.
            let reader = PortRef { process, port };
            for n in 0..graph.firings(process) {
                let step = schedule.step(LoopLevel::FIRING, n);
                let slot = schedule.ordinal(level, step);
                prop_assert_eq!(graph.read_slots(reader, &graph.point(process, n)), vec![slot]);
                prop_assert!(graph.needed(reader, n, &graph.point(process, n)) > slot);
                prop_assert!(graph.released(reader, n) <= slot);
                prop_assert_eq!(graph.released(reader, n + 1) > slot, schedule.is_last_use(level, step));
            }
        }
    }
}

/// Sections of random pairs of chips and graphs, compiled both ways.
fn sections(pairs: usize) -> Vec<Section> {
    let of_pair = |number: usize| {
        let (_, chip, graph) = pair(31, number);
        let (chip, workload) = (chip.chip(), graph.workload());
        let compiled = compile_with(&chip, &workload, &Mode::ALL, Effort::Low, &BaseCache::default());
        let compiled = compiled.unwrap_or_default();
        compiled.into_iter().flat_map(|compiled| compiled.configuration.sections).collect::<Vec<Section>>()
    };
    let sections: Vec<Section> = (0..pairs).flat_map(of_pair).chain(crate::steps::sections()).collect();
    assert!(sections.len() > pairs, "{} sections", sections.len());
    sections
}

#[test]
fn the_process_graph_says_what_the_dataflow_of_a_section_says() {
    for section in sections(8) {
        let processes = program::ProcessGraph::new(&section);
        let flow = lowered(&section, &processes);
        let violations = check(&flow);
        assert!(violations.is_empty(), "{}: {violations:?}", section.name);
        let graph = ProcessGraph::new(&flow).expect("a legal dataflow");
        for (p, process) in processes.list.iter().enumerate() {
            let id = ProcessId::from_index(p);
            assert_eq!(graph.firings(id), process.firings);
            for n in 0..process.firings.min(600) {
                let (at, step) = (graph.point(id, n), processes.point(p, n));
                let keeps = graph.writes(id).next().is_some_and(|written| {
                    matches!(section.buffers[written].spec.role, BufferRole::PartialSums { .. })
                });
                // Sums that are added to complete ones are read where these leave.
                let read = process.inputs.iter().filter(|input| !keeps || input.streamed != program::Streamed::Merged);
                for (port, input) in read.enumerate() {
                    let (reader, last) = (PortRef { process: id, port }, processes.needed(input, step));
                    let level = section.buffers[input.buffer].spec.level;
                    let slots: Vec<u64> = section.schedule.read_slots(level, input.sequence, step).collect();
                    assert_eq!(slots.last(), Some(&last));
                    assert_eq!(graph.read_slots(reader, &at), slots, "{}: {:?} at {n}", section.name, process.kind);
                    let is_store = matches!(process.kind, program::ProcessKind::Store { .. });
                    let freed = if is_store { last..last + 1 } else { processes.freed(input, step) };
                    let released = graph.released(reader, n)..graph.released_after(reader, n, &at);
                    // A slot is free when it and all before it are done with.
                    assert!(freed.is_empty() == released.is_empty(), "{}: {freed:?}, {released:?}", section.name);
                    assert!(freed.is_empty() || freed == released, "{}: {freed:?}, {released:?}", section.name);
                }
                // Sums that a stage keeps are complete when it emits; others are written in every firing that gives.
                let (Some(written), writer) = (graph.writes(id).next(), PortRef { process: id, port: 0 }) else {
                    continue;
                };
                let keeps_sums = matches!(section.buffers[written].spec.role, BufferRole::PartialSums { .. });
                let completes = !graph.completes(writer, n).is_empty();
                let produces = processes.produces(process.kind, step);
                assert_eq!(completes, produces, "{}: {:?} at {n}", section.name, process.kind);
                let begins = graph.begins(writer, n).is_empty();
                assert!(!keeps_sums || begins == processes.continues(process.kind, step), "{}", section.name);
            }
        }
    }
}

#[test]
fn verify_reads_the_same_firing_rules_from_the_flows() {
    for section in sections(12) {
        let processes = program::ProcessGraph::new(&section);
        let rules = firing_rules(&section);
        assert_eq!(rules.len(), processes.list.len(), "{}", section.name);
        for process in &processes.list {
            let rule = rules.iter().find(|rule| rule.process == process.kind);
            let rule = rule.unwrap_or_else(|| panic!("{}: no rule for {:?}", section.name, process.kind));
            let mut reads: Vec<BufferId> = process.inputs.iter().map(|input| input.buffer).collect();
            let mut writes = process.outputs.clone();
            reads.sort_unstable();
            writes.sort_unstable();
            assert_eq!((&rule.reads, &rule.writes), (&reads, &writes), "{}: {:?}", section.name, process.kind);
            assert_eq!(rule.firings, process.firings);
        }
    }
}
