//! Checks of the schedule: coverage of slots, carried tensors, depths, deadlock.

use rdusim_base::index::Id;
use rdusim_base::units::index;

use super::super::access::Along;
use super::super::credits::{Credits, Wait};
use super::super::domain::{Domain, Point};
use super::super::graph::{Carried, Dataflow};
use super::super::ids::BufferId;
use super::super::loops::Axis;
use super::super::process_graph::ProcessGraph;
use super::violation::{Check, EXECUTED_FIRINGS, LISTED_FIRINGS, Violations};

/// Every producer contributes to every slot, and some consumer reads it.
pub(super) fn coverage(dataflow: &Dataflow, graph: &ProcessGraph, violations: &mut Violations) {
    for buffer in graph.buffers() {
        let place = format!("buffer {}", dataflow.buffer_name(buffer));
        let slots = graph.slots(buffer).count();
        if slots > LISTED_FIRINGS {
            continue;
        }
        for &producer in graph.producers(buffer) {
            let domain = graph.domain(producer.process);
            let written = covered(domain, slots, |at| graph.written_slots(producer, at));
            if let Some(slot) = written.and_then(first_missing) {
                let found = format!("slot {slot} not written by {}", dataflow.process_name(producer.process));
                violations.add(Check::Coverage, &place, found, "every slot written by every producer");
            }
        }
        let mut read = Some(vec![false; index(slots)]);
        for &consumer in graph.consumers(buffer) {
            let more = covered(graph.domain(consumer.process), slots, |at| graph.read_slots(consumer, at));
            read = read.zip(more).map(|(read, more)| read.iter().zip(more).map(|(a, b)| *a || b).collect());
        }
        if let Some(slot) = read.and_then(first_missing) {
            violations.add(Check::Coverage, &place, format!("slot {slot} not read"), "every slot read");
        }
    }
}

fn first_missing(covered: Vec<bool>) -> Option<usize> {
    covered.into_iter().position(|covered| !covered)
}

/// Which of `slots` slots the firings of a domain touch; `None` if there are too many firings to list.
fn covered(domain: &Domain, slots: u64, touched: impl Fn(&Point) -> Vec<u64>) -> Option<Vec<bool>> {
    if domain.count() > LISTED_FIRINGS {
        return None;
    }
    let mut covered = vec![false; index(slots)];
    for at in domain.points() {
        for slot in touched(&at) {
            covered[index(slot)] = true;
        }
    }
    Some(covered)
}

/// Tensors between repetitions.
pub(super) fn carried(dataflow: &Dataflow, violations: &mut Violations) {
    for carried in &dataflow.carried {
        one_carried(dataflow, carried, violations);
    }
    for (reader, process) in dataflow.processes.iter_enumerated() {
        for port in &process.reads {
            for (repeat, along) in &port.access.along {
                let declared = |c: &Carried| c.reader == reader && c.from == port.buffer && c.repeat == *repeat;
                if matches!(along, Along::Previous { .. }) && !dataflow.carried.iter().any(declared) {
                    let found = format!("buffer {} read at an earlier iteration", dataflow.buffer_name(port.buffer));
                    violations.add(Check::Carried, &format!("process {}", process.name), found, "a carried tensor");
                }
            }
        }
    }
}

fn one_carried(dataflow: &Dataflow, carried: &Carried, violations: &mut Violations) {
    let name = dataflow.buffer_name(carried.from);
    let place = format!("carried {name}");
    let mut wrong = |found: String, expected: &str| violations.add(Check::Carried, &place, found, expected);
    let tables = (
        dataflow.loops.get(carried.repeat),
        dataflow.processes.get(carried.reader),
        dataflow.buffers.get(carried.from),
        dataflow.buffers.get(carried.initial),
    );
    let (Some(repeat), Some(reader), Some(from), Some(initial)) = tables else {
        wrong("a loop, process or buffer that does not exist".to_owned(), "rows of the tables");
        return;
    };
    let repetitions = repeat.extent.div_ceil(repeat.tile);
    if carried.distance == 0 || carried.distance >= repetitions {
        let expected = format!("1 to {}", repetitions.saturating_sub(1));
        wrong(format!("a distance of {}", carried.distance), &expected);
    }
    if repeat.axis != Axis::Repeat {
        wrong(format!("a loop over {:?}", repeat.axis), "a Repeat loop");
    }
    let rules = |buffer: BufferId| reader.reads.iter().filter(move |port| port.buffer == buffer);
    let previous = (carried.repeat, Along::Previous { distance: carried.distance });
    if !rules(carried.from).any(|port| port.access.along.contains(&previous)) {
        wrong(format!("no read of {} by {} at this distance", from.name, reader.name), "a port with this distance");
    }
    let (Some((first, rest)), Some((start, initial_rest))) =
        (from.slot_loops.split_first(), initial.slot_loops.split_first())
    else {
        wrong("slots without loops".to_owned(), "a loop over repetitions around the slots");
        return;
    };
    let covers = Along::Window { of: carried.repeat, stride: 1, before: 0, after: 0 };
    if !rules(carried.initial).any(|port| port.access.along.contains(&(*start, covers))) {
        wrong(format!("no read of {} by {}", initial.name, reader.name), "a port over the first repetitions");
    }
    if *first != carried.repeat || rest != initial_rest {
        wrong(format!("other slot loops in {} and {}", from.name, initial.name), "the same in each repetition");
    }
    let start = &dataflow.loops[*start];
    let first_repetitions = carried.distance.saturating_mul(repeat.tile);
    if start.axis != Axis::Repeat || start.extent != first_repetitions || start.tile != repeat.tile {
        let found = format!("loop {} with {} initial repetitions", carried.repeat.index(), start.extent);
        wrong(found, "as many as the distance");
    }
}

/// A buffer holds the slots that one firing keeps: those it needs and those not yet free.
pub(super) fn depth(dataflow: &Dataflow, graph: &ProcessGraph, violations: &mut Violations) {
    for buffer in graph.buffers() {
        let needed = graph.least_depth(buffer, LISTED_FIRINGS);
        let found = graph.depth(buffer);
        if found < needed {
            let place = format!("buffer {}", dataflow.buffer_name(buffer));
            violations.add(Check::Depth, &place, format!("{found} slots"), format!("at least {needed}"));
        }
    }
}

/// Execution on counts reaches the end.
pub(super) fn deadlock(dataflow: &Dataflow, graph: &ProcessGraph, violations: &mut Violations) {
    let mut credits = Credits::new(graph);
    if credits.run(EXECUTED_FIRINGS) == EXECUTED_FIRINGS {
        return;
    }
    for blocked in credits.blocked() {
        let (buffer, slot, what) = match blocked.wait {
            Wait::Filled { buffer, slot } => (buffer, slot, "filled"),
            Wait::Credit { buffer, slot } => (buffer, slot, "free"),
        };
        violations.add(
            Check::Deadlock,
            &format!("process {}", dataflow.process_name(blocked.process)),
            format!("firing {} that waits for ever", blocked.firing),
            format!("slot {slot} of {} to be {what}", dataflow.buffer_name(buffer)),
        );
    }
}
