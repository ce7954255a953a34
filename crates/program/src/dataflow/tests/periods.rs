//! Periods and classes of work.

use proptest::prelude::*;

use rdusim_base::index::Id;

use super::super::{Axis, Dataflow, IterationClasses, Loop, Order, Point, PortRef, ProcessGraph, ProcessId};
use super::random::{build, pipelines};
use super::{ffn::ffn, stage};

/// The counts of every port of a process about firing `n`.
fn counts(graph: &ProcessGraph, process: ProcessId, n: u64) -> Vec<u64> {
    let at = graph.point(process, n);
    let reads = (0..graph.reads(process).len()).map(|port| PortRef { process, port });
    let writes = (0..graph.writes(process).len()).map(|port| PortRef { process, port });
    let reads = reads.flat_map(|port| [graph.needed(port, n, &at), graph.released(port, n + 1)]);
    let writes = writes.flat_map(|port| [graph.begun(port, n, &at), graph.completed(port, n + 1)]);
    reads.chain(writes).collect()
}

proptest! {
    #[test]
    fn counts_shift_by_a_constant_from_period_to_period(pipeline in pipelines()) {
        let case = build(&pipeline);
        let graph = ProcessGraph::new(&case.flow).expect("a legal dataflow");
        for process in graph.processes() {
            let domain = graph.domain(process);
            for period in graph.periods(process) {
                // Shifts by the position within the period, and by the indices of the loops around.
                let mut shifts: std::collections::BTreeMap<Point, Vec<u64>> = std::collections::BTreeMap::new();
                for (n, at) in domain.points().enumerate() {
                    let i = at.get(period.level);
                    if i < 1 || i + 2 >= domain.trips(period.level, &at) {
                        continue;
                    }
                    let n = n as u64;
                    let (one, other) = (counts(&graph, process, n), counts(&graph, process, n + period.firings));
                    let shift: Vec<u64> = one.iter().zip(&other).map(|(one, other)| other - one).collect();
                    let mut around = Point::default();
                    for level in (0..domain.depth()).filter(|&level| level < period.level) {
                        around.set(level, at.get(level));
                    }
                    prop_assert_eq!(shifts.entry(around).or_insert_with(|| shift.clone()), &shift);
                }
            }
        }
    }
}

#[test]
fn firings_of_equal_tiles_have_equal_classes() {
    let case = ffn(Order::ColumnOuter);
    let graph = ProcessGraph::new(&case.flow).expect("a legal dataflow");
    for process in graph.processes() {
        let domain = graph.domain(process);
        let mut lengths: std::collections::BTreeMap<u32, Vec<u64>> = std::collections::BTreeMap::new();
        for at in domain.points() {
            let class = graph.work_class(process, &at);
            assert!(class < graph.work_classes(process));
            let ranges = (0..domain.depth()).map(|level| domain.range(level, &at));
            let sizes: Vec<u64> = ranges.map(|range| range.end - range.start).collect();
            assert_eq!(lengths.entry(class).or_insert_with(|| sizes.clone()), &sizes);
        }
        let mut sizes: Vec<_> = lengths.values().collect();
        sizes.sort();
        sizes.dedup();
        assert_eq!(sizes.len(), lengths.len(), "two classes of equal sizes");
    }
}

#[test]
fn given_classes_tell_iterations_apart_and_end_a_period() {
    let mut flow = Dataflow::default();
    let column = flow.loops.push(Loop::full(Axis::Column, 8, 2));
    let row = flow.loops.push(Loop::full(Axis::Row, 9, 2));
    let mut process = stage("sparse", &[column, row]);
    process.classes.push(IterationClasses { of: column, classes: vec![0, 1, 2, 1] });
    let id = flow.processes.push(process);
    let graph = ProcessGraph::new(&flow).expect("a legal dataflow");
    // Three given classes, each with full rows and with the last row.
    assert_eq!(graph.work_classes(id), 6);
    let class = |column, row| graph.work_class(id, &Point::new(&[column, row]));
    assert_eq!(class(1, 0), class(3, 3));
    assert_ne!(class(1, 0), class(2, 0));
    assert_ne!(class(1, 0), class(1, 4));
    // Column tiles differ in work, row tiles do not.
    assert_eq!(graph.period(id), Some(1));
    flow.processes[id].classes.clear();
    assert_eq!(ProcessGraph::new(&flow).expect("a legal dataflow").period(id), Some(5));
    flow.processes[ProcessId::from_index(0)].classes.push(IterationClasses { of: column, classes: vec![0] });
    assert!(ProcessGraph::new(&flow).is_err());
}
