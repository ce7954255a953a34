//! Checks of the tables: loops, nests, ports, accesses.

use rdusim_base::index::{Id, IndexVec};

use super::super::access::{Along, Footprint};
use super::super::domain::{Domain, DomainError};
use super::super::graph::{Dataflow, Port, Process, ProcessKind};
use super::super::ids::{BufferId, LoopId};
use super::super::loops::{Axis, Bound, Loop};
use super::violation::{Check, Violations};

/// Adds what is wrong with the tables.
pub(super) fn check(dataflow: &Dataflow, violations: &mut Violations) {
    for (id, nested) in dataflow.loops.iter_enumerated() {
        if nested.tile == 0 {
            violations.add(Check::Loops, &format!("loop {}", id.index()), "a tile of 0 elements", "at least 1");
        }
    }
    for process in &dataflow.processes {
        nest(dataflow, &format!("process {}", process.name), &process.loops, violations);
    }
    for buffer in &dataflow.buffers {
        nest(dataflow, &format!("buffer {}", buffer.name), &buffer.slot_loops, violations);
    }
    if !violations.list.is_empty() {
        return;
    }
    for process in &dataflow.processes {
        kind(process, violations);
        access(dataflow, process, violations);
    }
    ends(dataflow, violations);
}

fn nest(dataflow: &Dataflow, place: &str, loops: &[LoopId], violations: &mut Violations) {
    if let Err(error) = Domain::new(&dataflow.loops, loops) {
        let check = match error {
            DomainError::EmptyTile(_) | DomainError::BoundNotOuter(_) | DomainError::ShortTable(_) => Check::Loops,
            _ => Check::Nests,
        };
        violations.add(check, place, error, "loops that form a nest");
        return;
    }
    for (level, &id) in loops.iter().enumerate() {
        let inner = &dataflow.loops[id];
        let before = &loops[..level];
        if inner.axis == Axis::Repeat && (level > 0 || inner.bound != Bound::Full) {
            violations.add(Check::Nests, place, "an inner or bounded Repeat loop", "one that is full and outermost");
        }
        for &outer in before.iter().filter(|&&outer| dataflow.loops[outer].axis == inner.axis) {
            if inner.outer() != Some(outer) || !walks_tiles(&dataflow.loops[outer], inner) {
                let found = format!("{:?} walked by loops {} and {}", inner.axis, outer.index(), id.index());
                violations.add(Check::Nests, place, found, "the inner loop to walk the tile of the outer one");
            }
        }
    }
}

/// Whether each iteration of `outer` has `inner` walk exactly its elements.
fn walks_tiles(outer: &Loop, inner: &Loop) -> bool {
    let tiles = outer.extent.div_ceil(outer.tile);
    let tile = |i: u64| i * outer.tile..outer.extent.min((i + 1) * outer.tile);
    outer.bound == Bound::Full && (0..tiles).all(|i| inner.elements(i) == tile(i))
}

fn kind(process: &Process, violations: &mut Violations) {
    let (reads, writes) = (process.reads.len(), process.writes.len());
    let (legal, expected) = match process.kind {
        ProcessKind::Stage => (writes > 0, "a stage that writes"),
        ProcessKind::Copy => (reads == 1 && writes > 0, "a copy that reads one buffer and writes"),
        ProcessKind::Load(_) => (reads == 0 && writes > 0, "a load that only writes"),
        ProcessKind::Store(_) => (reads == 1 && writes == 0, "a store that only reads, and one buffer"),
    };
    if !legal {
        violations.add(
            Check::Ports,
            &format!("process {}", process.name),
            format!("{reads} reads and {writes} writes"),
            expected,
        );
    }
}

fn access(dataflow: &Dataflow, process: &Process, violations: &mut Violations) {
    let ports = process.reads.iter().map(|port| (port, false)).chain(process.writes.iter().map(|port| (port, true)));
    for (port, writes) in ports {
        let place = format!("process {} at buffer {}", process.name, dataflow.buffer_name(port.buffer));
        let Some(buffer) = dataflow.buffers.get(port.buffer) else {
            violations.add(Check::Ports, &place, "no such buffer", "a buffer of the table");
            continue;
        };
        let domains = (Domain::new(&dataflow.loops, &process.loops), Domain::new(&dataflow.loops, &buffer.slot_loops));
        let (Ok(firings), Ok(slots)) = domains else { continue };
        if let Err(error) = Footprint::new(&port.access, &firings, &slots) {
            violations.add(Check::Access, &place, error, "a rule for each slot loop");
        }
        if writes && port.access.along.iter().any(|(_, along)| *along != Along::All) {
            violations.add(Check::Access, &place, format!("{:?}", port.access.along), "writes without a window");
        }
    }
}

fn ends(dataflow: &Dataflow, violations: &mut Violations) {
    let users = |ports: fn(&Process) -> &Vec<Port>| {
        let mut users: IndexVec<BufferId, Vec<&Process>> = dataflow.buffers.ids().map(|_| Vec::new()).collect();
        for process in &dataflow.processes {
            for port in ports(process).iter().filter(|port| dataflow.buffers.get(port.buffer).is_some()) {
                users[port.buffer].push(process);
            }
        }
        users
    };
    let producers = users(|process| &process.writes);
    let consumers = users(|process| &process.reads);
    for (id, buffer) in dataflow.buffers.iter_enumerated() {
        let place = format!("buffer {}", buffer.name);
        let found = producers[id].len() as u64;
        if found != buffer.parts || found == 0 {
            violations.add(Check::Ports, &place, format!("{found} producers"), buffer.parts.max(1));
        }
        if consumers[id].is_empty() {
            violations.add(Check::Ports, &place, "no consumer", "at least 1");
        }
        for producer in &producers[id] {
            for consumer in &consumers[id] {
                if !in_one_order(&producer.loops, &consumer.loops) {
                    let place = format!("processes {} and {}", producer.name, consumer.name);
                    violations.add(Check::Nests, &place, "common loops in two orders", "the same order in both nests");
                }
            }
        }
    }
}

/// Whether the loops that two nests have in common come in the same order in both.
fn in_one_order(one: &[LoopId], other: &[LoopId]) -> bool {
    let common = one.iter().filter(|id| other.contains(id));
    common.eq(other.iter().filter(|id| one.contains(id)))
}
