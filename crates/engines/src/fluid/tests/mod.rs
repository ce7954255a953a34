//! Cases worked by hand, refusals and extremes.

mod laws;

use super::{ActivityId, Counters};
use super::{Completion, Fluid, FluidError, RATE_BITS, Rate, ResourceId, Usage};
use rdusim_base::index::Id;

/// A system of these capacities, with activities that use these resources with these weights.
fn fluid(capacities: &[u32], activities: &[&[(usize, u32)]]) -> (Fluid, Vec<ActivityId>) {
    let mut fluid = Fluid::default();
    let resources: Vec<ResourceId> = capacities.iter().map(|&capacity| fluid.add_resource(capacity)).collect();
    let usages = |uses: &[(usize, u32)]| -> Vec<Usage> {
        uses.iter().map(|&(resource, weight)| Usage { resource: resources[resource], weight }).collect()
    };
    let ids = activities.iter().map(|uses| fluid.add_activity(&usages(uses)).expect("known resources")).collect();
    (fluid, ids)
}

/// Rates of all activities when all are started, as fractions in lowest terms would be: (amount, ticks).
#[track_caller]
fn check_rates(capacities: &[u32], activities: &[&[(usize, u32)]], rates: &[(u64, u64)]) {
    let (mut fluid, ids) = fluid(capacities, activities);
    for &id in &ids {
        fluid.start(id, 1_000, None).expect("not active");
    }
    let found: Vec<u64> = ids.iter().map(|&id| fluid.rate(id).units()).collect();
    let expected: Vec<u64> = rates.iter().map(|(amount, ticks)| (amount << RATE_BITS) / ticks).collect();
    assert_eq!(found, expected);
}

/// All completions of activities that are started at once, as (tick, number of the activity).
fn completions(fluid: &mut Fluid) -> Vec<(u64, usize)> {
    let mut completed = Vec::new();
    fluid.advance(u64::MAX, &mut completed);
    completed.iter().map(|&Completion { at, activity }| (at, activity.index())).collect()
}

#[test]
fn a_parking_lot_gives_the_long_flow_an_equal_part_of_its_tightest_link() {
    // One flow over three links, one more on each. With equal links all get half.
    let short_and_long: [&[(usize, u32)]; 4] = [&[(0, 1), (1, 1), (2, 1)], &[(0, 1)], &[(1, 1)], &[(2, 1)]];
    check_rates(&[1, 1, 1], &short_and_long, &[(1, 2); 4]);
    // With links of 4, 10 and 6 the first is the bottleneck of the long flow: 2; the others take what it leaves.
    check_rates(&[4, 10, 6], &short_and_long, &[(2, 1), (2, 1), (8, 1), (4, 1)]);
}

#[test]
fn filling_goes_from_bottleneck_to_bottleneck() {
    // Three on the first link: 1/3 each. The fourth shares the second with one of them, and gets 2/3; the fifth is alone
    // on the third.
    let activities: [&[(usize, u32)]; 5] = [&[(0, 1)], &[(0, 1)], &[(0, 1), (1, 1)], &[(1, 1)], &[(2, 1)]];
    let rates = [(1, 3), (1, 3), (1, 3)];
    let third = (1u64 << RATE_BITS) / 3;
    let (mut fluid, ids) = fluid(&[1, 1, 1], &activities);
    for &id in &ids {
        fluid.start(id, 1, None).expect("not active");
    }
    for (&id, (amount, ticks)) in ids.iter().zip(rates) {
        assert_eq!(fluid.rate(id).units(), (amount << RATE_BITS) / ticks);
    }
    // The residue of rounding goes to the fourth.
    assert_eq!(fluid.rate(ids[3]).units(), (1 << RATE_BITS) - third);
    assert_eq!(fluid.rate(ids[4]).units(), 1 << RATE_BITS);
}

#[test]
fn a_group_counts_by_its_weight_and_the_rates_are_equal() {
    // A group of three flows over a link of 8 and one flow: rates 2 and 2, so 6 and 2 of the link.
    check_rates(&[8], &[&[(0, 3)], &[(0, 1)]], &[(2, 1), (2, 1)]);
    // Two uses of a link count together; a weight of 0 is no use.
    check_rates(&[8, 1], &[&[(0, 1), (0, 2), (1, 0)], &[(0, 1)]], &[(2, 1), (2, 1)]);
}

#[test]
fn what_a_cap_leaves_goes_to_the_others() {
    let (mut fluid, ids) = fluid(&[9], &[&[(0, 1)], &[(0, 1)], &[(0, 1)]]);
    fluid.start(ids[0], 100, Some(Rate::to_finish(1, 1))).expect("not active");
    fluid.start(ids[1], 100, None).expect("not active");
    fluid.start(ids[2], 100, None).expect("not active");
    assert_eq!([0, 1, 2].map(|i| fluid.rate(ids[i]).units() >> RATE_BITS), [1, 4, 4]);
    // 25 ticks for the two, then 75 left at the cap.
    assert_eq!(completions(&mut fluid), [(25, 1), (25, 2), (100, 0)]);
}

#[test]
fn a_cap_changes_from_now_on() {
    // 40 ticks at 1, the other 60 at 2; what is not active has no cap.
    let (mut fluid, ids) = fluid(&[2], &[&[(0, 1)]]);
    assert!(!fluid.set_cap(ids[0], None));
    fluid.start(ids[0], 100, Some(Rate::to_finish(1, 1))).expect("not active");
    fluid.advance(40, &mut Vec::new());
    assert!(fluid.set_cap(ids[0], None));
    assert_eq!(completions(&mut fluid), [(70, 0)]);
}

#[test]
fn who_comes_and_goes_changes_the_rates_of_the_others() {
    // Alone until 10 at 2 a tick: 80 left. With another at 1 a tick: until 40, when that has moved 30.
    let (mut fluid, ids) = fluid(&[2], &[&[(0, 1)], &[(0, 1)]]);
    let mut completed = Vec::new();
    fluid.start(ids[0], 100, None).expect("not active");
    fluid.advance(10, &mut completed);
    fluid.start(ids[1], 30, None).expect("not active");
    fluid.advance(20, &mut completed);
    assert_eq!((fluid.left(ids[0]), fluid.left(ids[1]), completed.len()), (Some(70), Some(20), 0));
    assert_eq!(fluid.next_completion(), Some(Completion { at: 40, activity: ids[1] }));
    // Stopped at 30, with 10 left: the first has 60 left, at 2 a tick.
    fluid.advance(30, &mut completed);
    assert_eq!((fluid.stop(ids[1]), fluid.stop(ids[1]), fluid.active()), (Some(10), None, 1));
    assert_eq!(completions(&mut fluid), [(60, 0)]);
}

#[test]
fn completions_are_rounded_up_and_rates_down() {
    // A third of 10 a tick: 100 take 30 ticks and a little, as the rate is rounded down.
    let (mut fluid, ids) = fluid(&[10], &[&[(0, 3)]]);
    fluid.start(ids[0], 100, None).expect("not active");
    assert_eq!(fluid.rate(ids[0]).units(), (10 << RATE_BITS) / 3);
    assert_eq!(completions(&mut fluid), [(31, 0)]);
    // As a cap, a time is kept exactly.
    let (mut fluid, ids) = self::fluid(&[1], &[&[(0, 64)]]);
    fluid.start(ids[0], 2_000, Some(Rate::to_finish(2_000, 283_648))).expect("not active");
    assert_eq!(completions(&mut fluid), [(283_648, 0)]);
}

#[test]
fn a_change_is_solved_within_its_component() {
    // Two pairs on links of their own, and one that is contended with nobody.
    let activities: [&[(usize, u32)]; 5] = [&[(0, 1)], &[(0, 1)], &[(1, 1)], &[(1, 1)], &[(2, 1)]];
    let (mut fluid, ids) = fluid(&[1, 1, 1], &activities);
    for &id in &ids[1..] {
        fluid.start(id, 1_000, None).expect("not active");
    }
    fluid.rate(ids[1]);
    let before = fluid.counters();
    fluid.start(ids[0], 1_000, None).expect("not active");
    fluid.rate(ids[0]);
    let after = fluid.counters();
    let more = |count: fn(&Counters) -> u64| count(&after) - count(&before);
    assert_eq!((more(|c| c.solves), more(|c| c.contended_solves)), (1, 1));
    assert_eq!((more(|c| c.activities), more(|c| c.resources), more(|c| c.changes)), (2, 1, 2));
    // What nobody contends is no component.
    fluid.stop(ids[4]);
    fluid.rate(ids[0]);
    assert_eq!(fluid.counters(), after);
}

#[test]
fn what_does_not_exist_or_is_active_is_refused() {
    let (mut fluid, ids) = fluid(&[1], &[&[(0, 1)]]);
    let (resource, activity) = (ResourceId::from_index(7), ActivityId::from_index(7));
    assert_eq!(fluid.add_activity(&[Usage { resource, weight: 1 }]), Err(FluidError::UnknownResource(resource)));
    assert_eq!(fluid.start(activity, 1, None), Err(FluidError::UnknownActivity(activity)));
    fluid.start(ids[0], 1, None).expect("not active");
    assert_eq!(fluid.start(ids[0], 1, None), Err(FluidError::AlreadyActive(ids[0])));
    assert_eq!((fluid.stop(activity), fluid.left(activity), fluid.rate(activity)), (None, None, Rate::ZERO));
    assert_eq!((fluid.load(resource), fluid.load(ResourceId::from_index(0))), (0, 1 << RATE_BITS));
}

#[test]
fn extremes_neither_panic_nor_hang() {
    let most: (usize, u32) = (0, u32::MAX);
    let (mut fluid, ids) = fluid(&[u32::MAX, 0, 1], &[&[most, most], &[most], &[(1, 1)], &[], &[(2, u32::MAX)]]);
    for &id in &ids {
        fluid.start(id, u64::MAX, Some(Rate::MAX)).expect("not active");
    }
    // No capacity, and a rate of 1/2^32 rounded down to nothing, never complete; nothing in the way takes 2^32 ticks.
    assert_eq!(completions(&mut fluid), [(1 << RATE_BITS, 3)]);
    assert_eq!((fluid.now(), fluid.active()), (u64::MAX, 4));
    assert_eq!(fluid.left(ids[2]), Some(u64::MAX));
    fluid.start(ids[3], 0, None).expect("completed");
    assert_eq!(completions(&mut fluid), [(u64::MAX, 3)]);
}
