//! Checks of off-chip streams: every byte is accounted for.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::super::domain::{Domain, Point};
use super::super::graph::{Dataflow, ProcessKind};
use super::super::loops::Axis;
use super::super::process_graph::ProcessGraph;
use super::super::streams::{Coverage, Stream};
use super::violation::{Check, LISTED_FIRINGS, Violations};

/// A box of elements for each firing of a pass: a start and an end in each dimension.
type Boxes<'a> = Vec<&'a [(u64, u64)]>;

/// Adds what is wrong with the streams.
pub(super) fn check(dataflow: &Dataflow, graph: &ProcessGraph, violations: &mut Violations) {
    for (id, process) in dataflow.processes.iter_enumerated() {
        let (stream, stores) = match &process.kind {
            ProcessKind::Load(stream) => (stream, false),
            ProcessKind::Store(stream) => (stream, true),
            ProcessKind::Stage | ProcessKind::Copy => continue,
        };
        let place = format!("process {}", process.name);
        let domain = graph.domain(id);
        for dim in &stream.shape {
            let Some(axis) = dim.axis else { continue };
            match domain.innermost(axis) {
                None => violations.add(Check::Streams, &place, format!("no loop over {axis:?}"), "one"),
                Some(level) => {
                    let extent = dataflow.loops[domain.loop_at(level)].extent;
                    if extent != dim.extent {
                        violations.add(Check::Streams, &place, format!("{axis:?} of {}", dim.extent), extent);
                    }
                }
            }
        }
        let (step, bytes) = (stream.base.step_per_repeat, stream.tensor_bytes());
        let repeats = domain.innermost(Axis::Repeat).is_some();
        if repeats && step < bytes && (stores || step > 0) {
            violations.add(Check::Streams, &place, format!("{step} bytes between repetitions"), bytes);
        }
        if domain.count() <= LISTED_FIRINGS {
            passes(stream, domain, &place, violations);
        }
    }
}

fn passes(stream: &Stream, domain: &Domain, place: &str, violations: &mut Violations) {
    let of_tensor = |level: usize| stream.shape.iter().any(|dim| dim.axis == Some(domain.axis(level)));
    let mut passes: BTreeMap<Point, Vec<Vec<(u64, u64)>>> = BTreeMap::new();
    for at in domain.points() {
        let mut pass = at;
        for level in (0..domain.depth()).filter(|&level| of_tensor(level)) {
            pass.set(level, 0);
        }
        let elements = stream.elements(domain, &at);
        passes.entry(pass).or_default().push(elements.iter().map(|range| (range.start, range.end)).collect());
    }
    let volume = |boxes: &[Vec<(u64, u64)>]| -> u64 {
        boxes.iter().map(|sides| sides.iter().map(|(start, end)| end - start).product::<u64>()).sum()
    };
    let all = stream.tensor_bytes();
    for boxes in passes.values() {
        let sides: Boxes<'_> = boxes.iter().map(Vec::as_slice).collect();
        if !are_disjoint(&sides) {
            violations.add(Check::Streams, place, "elements moved twice in a pass", "each once");
            return;
        }
        let bytes = volume(boxes) * stream.element_bytes;
        if stream.coverage == Coverage::Whole && bytes != all {
            violations.add(Check::Streams, place, format!("{bytes} bytes in a pass"), all);
            return;
        }
    }
    let sides: Vec<BTreeSet<(u64, u64)>> =
        (0..stream.shape.len()).map(|dim| passes.values().flatten().map(|sides| sides[dim]).collect()).collect();
    for (dim, sides) in stream.shape.iter().zip(sides) {
        if !spans(sides, &(0..dim.extent)) {
            violations.add(Check::Streams, place, "elements that no pass moves", "every element moved");
        }
    }
}

/// Whether no two boxes share an element. Boxes on a grid fall into groups of equal sides, dimension by dimension; where
/// sides overlap without being equal, boxes are compared in pairs.
fn are_disjoint(boxes: &[&[(u64, u64)]]) -> bool {
    let Some(first) = boxes.first() else { return true };
    if first.is_empty() {
        return boxes.len() == 1;
    }
    let mut groups: BTreeMap<(u64, u64), Boxes<'_>> = BTreeMap::new();
    for sides in boxes {
        groups.entry(sides[0]).or_default().push(&sides[1..]);
    }
    let starts: Vec<_> = groups.keys().collect();
    if starts.windows(2).all(|pair| pair[0].1 <= pair[1].0) {
        return groups.values().all(|group| are_disjoint(group));
    }
    let apart = |one: &[(u64, u64)], other: &[(u64, u64)]| {
        one.iter().zip(other).any(|(one, other)| one.1 <= other.0 || other.1 <= one.0)
    };
    boxes.iter().enumerate().all(|(n, one)| boxes[..n].iter().all(|other| apart(one, other)))
}

/// Whether intervals, in rising order, cover a range.
fn spans(sides: BTreeSet<(u64, u64)>, range: &Range<u64>) -> bool {
    let reached = sides.into_iter().fold(
        range.start,
        |reached, (start, end)| {
            if start <= reached { reached.max(end) } else { reached }
        },
    );
    reached >= range.end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_that_share_an_element_are_found() {
        let disjoint = |boxes: &[[(u64, u64); 2]]| {
            let boxes: Boxes<'_> = boxes.iter().map(<[_; 2]>::as_slice).collect();
            are_disjoint(&boxes)
        };
        assert!(disjoint(&[[(0, 2), (0, 3)], [(0, 2), (3, 4)], [(2, 3), (0, 4)]]));
        assert!(!disjoint(&[[(0, 2), (0, 3)], [(0, 2), (2, 4)]]));
        assert!(!disjoint(&[[(0, 2), (0, 3)], [(0, 2), (0, 3)]]));
        // Sides that overlap, of boxes that do not, and of boxes that do.
        assert!(disjoint(&[[(0, 3), (0, 1)], [(2, 5), (1, 2)], [(3, 4), (0, 1)]]));
        assert!(!disjoint(&[[(0, 3), (0, 2)], [(2, 5), (1, 2)]]));
    }
}
