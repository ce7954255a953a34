//! Laws of domains and of cumulative counts, on random nests.

use proptest::prelude::*;

use rdusim_base::index::IndexVec;

use super::super::access::{Access, Along, Footprint};
use super::super::counts::Counts;
use super::super::{Affine, Axis, Bound, Domain, Loop, LoopId, Point};

const AXES: [Axis; 4] = [Axis::Repeat, Axis::Row, Axis::Column, Axis::Key];

/// A loop: extent, tile, kind of bound, and the offsets and steps of its start and end.
type Spec = (u64, u64, u64, (i64, i64, i64, i64));

fn any_loop() -> impl Strategy<Value = Spec> {
    (1u64..20, 1u64..8, 0u64..3, (-3i64..6, -2i64..5, 0i64..12, -1i64..6))
}

/// A loop table whose loops form a nest in table order. `gapless` leaves out bounds that may be empty.
fn table(specs: &[Spec], gapless: bool) -> (IndexVec<LoopId, Loop>, Vec<LoopId>) {
    let mut loops: IndexVec<LoopId, Loop> = IndexVec::new();
    let mut nest: Vec<LoopId> = Vec::new();
    for (n, &(extent, tile, kind, (start, start_step, end, end_step))) in specs.iter().enumerate() {
        let outer = nest.last().copied().filter(|_| kind > 0);
        let bound = match outer {
            None => Bound::Full,
            Some(outer) if kind == 1 => {
                let start = Affine { offset: start, step: start_step };
                let end = if gapless { Affine { offset: 1, step: 1 } } else { Affine { offset: end, step: end_step } };
                Bound::Affine { outer, start: if gapless { Affine::constant(0) } else { start }, end }
            }
            Some(outer) => {
                let range = |i: u64| i % 3..(i % 3) + (i * 7 + extent) % 11 + u64::from(gapless);
                Bound::Table { outer, ranges: (0..32).map(range).collect() }
            }
        };
        let extent = if gapless { extent + 3 } else { extent };
        nest.push(loops.push(Loop { axis: AXES[n % AXES.len()], extent, tile, bound }));
    }
    (loops, nest)
}

/// Whether both counts of an access are the running extremes of the slots that firings touch.
fn check_counts(process: &Domain, slots: &Domain, access: &Access) -> Result<(), TestCaseError> {
    let footprint = Footprint::new(access, process, slots).expect("a legal access");
    let counts = Counts::new(&footprint, process, slots);
    let listed = |at: Point| {
        let mut found = Vec::new();
        footprint.slots(process, slots, &at, &mut found);
        found
    };
    let touched: Vec<Vec<u64>> = process.points().map(listed).collect();
    let mut most = 0;
    for (n, now) in touched.iter().enumerate() {
        prop_assert!(now.windows(2).all(|pair| pair[0] < pair[1]));
        most = most.max(now.last().map_or(0, |last| last + 1));
        let at = process.point(n as u64);
        let count = counts.touched(process, slots, n as u64, &at);
        prop_assert_eq!(count, most, "touched by firing {} of {:?}", n, counts);
        let after = counts.finished(process, slots, n as u64 + 1);
        prop_assert_eq!(counts.finished_after(process, slots, n as u64, &at), after);
        let least = touched[n..].iter().flatten().min().copied().unwrap_or(slots.count());
        let count = counts.finished(process, slots, n as u64);
        // Where an earlier repetition is read, the last slots stay until the end.
        let early =
            least == slots.count() && access.along.iter().any(|(_, along)| matches!(along, Along::Previous { .. }));
        prop_assert!(count == least || (early && count < least), "finished after {}: {} for {}", n, count, least);
    }
    prop_assert_eq!(counts.finished(process, slots, process.count()), slots.count());
    Ok(())
}

#[test]
fn loops_that_come_back_to_slots_may_enclose_one_another() {
    let mut loops: IndexVec<LoopId, Loop> = IndexVec::new();
    let nest: Vec<LoopId> = (0..5).map(|n| loops.push(Loop::full(AXES[n % 4], 5 - n as u64 % 3, 2))).collect();
    let process = Domain::new(&loops, &nest).expect("a nest");
    for kept in 0u32..32 {
        let slots: Vec<LoopId> = (0..5).filter(|n| kept >> n & 1 == 1).map(|n| nest[n]).collect();
        let slots = Domain::new(&loops, &slots).expect("a nest");
        check_counts(&process, &slots, &Access::same()).expect("equal counts");
    }
}

/// Points of a nest, walked loop by loop.
fn walk(loops: &IndexVec<LoopId, Loop>, nest: &[LoopId]) -> Vec<Vec<u64>> {
    let mut points: Vec<Vec<u64>> = vec![Vec::new()];
    for id in nest {
        let of = &loops[*id];
        let outer = of.outer().and_then(|outer| nest.iter().position(|id| *id == outer));
        let extend = |point: Vec<u64>| {
            let range = of.elements(outer.map_or(0, |level| point[level]));
            let trips = (range.end - range.start).div_ceil(of.tile);
            (0..trips).map(move |i| [point.clone(), vec![i]].concat())
        };
        points = points.into_iter().flat_map(extend).collect();
    }
    points
}

proptest! {
    #[test]
    fn points_and_ordinals_are_inverse_and_in_order(specs in prop::collection::vec(any_loop(), 0..5)) {
        let (loops, nest) = table(&specs, false);
        let domain = Domain::new(&loops, &nest).expect("a nest");
        let points = walk(&loops, &nest);
        prop_assert_eq!(domain.count(), points.len() as u64);
        for (n, point) in points.iter().enumerate() {
            let at = domain.point(n as u64);
            prop_assert_eq!(at, Point::new(point));
            prop_assert_eq!(domain.ordinal(&at), n as u64);
            prop_assert_eq!(domain.next(&at), points.get(n + 1).map(|next| Point::new(next)));
            for levels in 0..=nest.len() {
                let equal = points.iter().filter(|other| other[..levels] == point[..levels]).count();
                let first = points.iter().position(|other| other[..levels] == point[..levels]);
                prop_assert_eq!(domain.count_below(levels, &at), equal as u64);
                prop_assert_eq!(domain.ordinal_of_first(levels, &at), first.unwrap_or_default() as u64);
            }
        }
    }

    #[test]
    fn ranges_partition_the_elements_of_a_loop(specs in prop::collection::vec(any_loop(), 1..4)) {
        let (loops, nest) = table(&specs, false);
        let domain = Domain::new(&loops, &nest).expect("a nest");
        let inner = nest.len() - 1;
        let of = &loops[nest[inner]];
        let mut reached = 0;
        for at in domain.points() {
            let outer = of.outer().map_or(0, |_| at.get(inner - 1));
            let elements = of.elements(outer);
            let range = domain.range(inner, &at);
            prop_assert_eq!(range.start, if at.get(inner) == 0 { elements.start } else { reached });
            prop_assert!(range.start < range.end && range.end - range.start <= of.tile);
            prop_assert!(domain.tile_lengths(inner).contains(&(range.end - range.start)));
            reached = range.end;
            if domain.is_last(inner, &at) {
                prop_assert_eq!(reached, elements.end);
            }
        }
    }

    /// The closed form and the listing of an access are the running extremes of the slots that firings touch.
    #[test]
    fn counts_are_the_running_extremes_of_the_slots(
        specs in prop::collection::vec(any_loop(), 1..5),
        keep in prop::collection::vec(any::<bool>(), 5),
        barrier in any::<bool>(),
        behind in 0u64..3,
        gapless in any::<bool>(),
    ) {
        let (mut loops, nest) = table(&specs, gapless);
        // Slot loops: some of the process's, with the loops that bound them, and perhaps one more that it does not have.
        let mut slot_loops: Vec<LoopId> = Vec::new();
        for (level, id) in nest.iter().enumerate() {
            let bounded = loops[*id].outer().is_none_or(|outer| slot_loops.contains(&outer));
            if keep[level] && bounded {
                slot_loops.push(*id);
            }
        }
        let mut access = Access::same();
        if behind > 0 && slot_loops.first() == nest.first() && !slot_loops.is_empty() {
            access = access.with(nest[0], Along::Previous { distance: behind });
        }
        if barrier {
            let more = loops.push(Loop::full(Axis::Head, 5, 2));
            slot_loops.push(more);
            access = access.with(more, Along::All);
        }
        let process = Domain::new(&loops, &nest).expect("a nest");
        let slots = Domain::new(&loops, &slot_loops).expect("a nest");
        check_counts(&process, &slots, &access)?;
    }
}
