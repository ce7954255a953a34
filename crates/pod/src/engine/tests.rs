use super::super::parallel::Schedule;
use super::super::schedule::{StageOf, in_chunks, order, with_updates};
use super::*;
use crate::Demand;
use crate::dgx_a100;

/// Equal stages without transfers or reductions.
fn plan(schedule: Schedule, stages: u64, micro: u64) -> Plan {
    let parts = schedule.parts();
    let actor = |stage: u64| Actor {
        order: order(schedule, StageOf { stage, stages }, micro),
        passes: Passes {
            forward: vec![vec![Unit { ns: 1000, ..Unit::default() }]; parts as usize],
            backward: vec![vec![Unit { ns: 2000, ..Unit::default() }]; parts as usize],
            weights: vec![vec![Unit { ns: 700, ..Unit::default() }]; parts as usize],
            update: vec![vec![Unit { ns: 100, ..Unit::default() }]; parts as usize],
            chunks: 1,
        },
        gathers: None,
        scatters: None,
        next: (((stage + 1) % stages) as usize, Demand::default()),
        previous: (((stage + stages - 1) % stages) as usize, Demand::default()),
        is_first: stage == 0,
        is_last: stage + 1 == stages,
        optimizer_ns: 0,
    };
    Plan {
        actors: (0..stages).map(actor).collect(),
        reductions: Vec::new(),
        streams: Vec::new(),
        prefetch: 1,
        waits: false,
        slowdown_thousandths: 0,
        parts,
        message_ns: 0,
        blocking: false,
        is_v: schedule.is_v(),
    }
}

fn end(schedule: Schedule, stages: u64, micro: u64) -> u64 {
    let system = dgx_a100(&[]).expect("the shipped system");
    simulate(&plan(schedule, stages, micro), &Network::new(&system)).end
}

#[test]
fn bubbles_of_equal_stages_are_the_textbook_ones() {
    for (stages, micro) in [(1, 3), (2, 4), (4, 4), (4, 8), (8, 16), (4, 15)] {
        let work = 3000 * micro;
        // (p - 1) more of a forward and a backward pass; a pass of interleaved parts is shorter by their number.
        assert_eq!(end(Schedule::GPipe, stages, micro), work + (stages - 1) * 3000, "{stages} {micro}");
        assert_eq!(end(Schedule::OneForwardOneBackward, stages, micro), work + (stages - 1) * 3000);
        assert_eq!(end(Schedule::Naive, stages, micro), work * stages);
        if stages > 1 {
            assert_eq!(end(Schedule::Interleaved(2), stages, micro), 2 * work + (stages - 1) * 3000);
        }
        // (p - 1)(F + B - W) with the backward pass in two.
        assert_eq!(end(Schedule::ZeroBubble, stages, micro), 3700 * micro + (stages - 1) * (3000 - 700));
        // In a V, with passes of a half that all take as long, nothing but the way of the first micro-batch down it.
        if micro + 1 >= 2 * stages {
            let mut plan = plan(Schedule::ZeroBubbleV, stages, micro);
            for actor in &mut plan.actors {
                let unit = || vec![vec![Unit { ns: 1000, ..Unit::default() }]; 2];
                actor.passes = Passes { forward: unit(), backward: unit(), weights: unit(), ..Passes::default() };
            }
            let end = simulate(&plan, &Network::new(&dgx_a100(&[]).expect("the shipped system"))).end;
            assert_eq!(end, 6000 * micro + (stages - 1) * 1000, "{stages} {micro}");
        }
        // Without a flush a micro-batch more costs its passes and its update, and nothing waits.
        let more =
            end(Schedule::PipeDream, stages, micro + stages + 1) - end(Schedule::PipeDream, stages, micro + stages);
        assert_eq!(more, 3100, "{stages} {micro}");
        // With an update for a batch of so many a batch more costs its passes and one update.
        let batches = |count: u64| {
            let all = (count + stages) * micro;
            let mut plan = plan(Schedule::PipeDream2Bw, stages, all);
            plan.actors
                .iter_mut()
                .for_each(|actor| actor.order = with_updates(std::mem::take(&mut actor.order), micro));
            simulate(&plan, &Network::new(&dgx_a100(&[]).expect("the shipped system"))).end
        };
        assert_eq!(batches(2) - batches(1), 3000 * micro + 100, "{stages} {micro}");
        // Parts of a sequence fill and drain a pipeline in parts of a pass.
        for chunks in [2, 5] {
            let mut plan = plan(Schedule::OneForwardOneBackward, stages, micro);
            for (stage, actor) in plan.actors.iter_mut().enumerate() {
                actor.order =
                    in_chunks(Schedule::OneForwardOneBackward, StageOf { stage: stage as u64, stages }, micro, chunks);
                let unit = |ns| vec![vec![Unit { ns, ..Unit::default() }]; chunks as usize];
                actor.passes = Passes { forward: unit(1000), backward: unit(2000), chunks, ..Passes::default() };
            }
            let end = simulate(&plan, &Network::new(&dgx_a100(&[]).expect("the shipped system"))).end;
            assert_eq!(end, 3000 * micro * chunks + (stages - 1) * 3000, "{stages} {micro} {chunks}");
        }
    }
}

#[test]
fn what_actors_spend_adds_up_to_the_end() {
    let system = dgx_a100(&[]).expect("the shipped system");
    let network = Network::new(&system);
    let mut plan = plan(Schedule::OneForwardOneBackward, 4, 8);
    for stage in 0..4u64 {
        let actor = &mut plan.actors[stage as usize];
        if stage < 3 {
            network.flow(&mut actor.next.1, stage, stage + 1, 300_000);
        }
        if stage > 0 {
            network.flow(&mut actor.previous.1, stage, stage - 1, 300_000);
        }
        actor.optimizer_ns = 77;
    }
    for blocking in [false, true] {
        plan.blocking = blocking;
        let simulated = simulate(&plan, &network);
        for spent in &simulated.spent {
            let all = spent.work + spent.transfer + spent.bubble + spent.reduce + spent.optimizer;
            assert_eq!(all, simulated.end);
            assert_eq!((spent.work, spent.optimizer), (24_000, 77));
            assert!(spent.transfer > 0);
        }
        // 3 boundaries, 8 micro-batches, both ways.
        assert_eq!(simulated.transfer_bytes, [3 * 8 * 2 * 300_000]);
    }
}

/// One stage of `layers` units of 1000 ns forward and 2000 ns backward, whose gathers and scatters take these times.
fn divided(layers: usize, times: (u64, u64), prefetch: u64, micro: u64) -> Simulated {
    let system = dgx_a100(&[]).expect("the shipped system");
    simulate(&divided_plan(layers, times.0, times.1, prefetch, micro), &Network::new(&system))
}

fn divided_plan(layers: usize, gather: u64, scatter: u64, prefetch: u64, micro: u64) -> Plan {
    let mut plan = plan(Schedule::OneForwardOneBackward, 1, micro);
    let phase = |ns| ReductionPhase { delay_ns: ns, demand: Demand::default(), rate_share: 1.0 };
    let collective = |ns| Collective { phases: vec![phase(ns)] };
    let stream = |ns| Stream { actors: vec![0], collectives: vec![collective(ns)] };
    let unit = |ns, scatter| Unit { ns, gather: Some(0), scatter };
    plan.actors[0].passes.forward = vec![vec![unit(1000, None); layers]];
    plan.actors[0].passes.backward = vec![vec![unit(2000, Some(0)); layers]];
    (plan.actors[0].gathers, plan.actors[0].scatters) = (Some(0), Some(1));
    (plan.streams, plan.prefetch) = (vec![stream(gather), stream(scatter)], prefetch);
    plan
}

#[test]
fn gathers_and_scatters_hide_behind_computing_as_far_as_prefetch_allows() {
    let end = |times, prefetch| divided(4, times, prefetch, 2).end;
    let work = 2 * 4 * 3000;
    // Hidden but for the first gather and the last scatter.
    assert_eq!(end((700, 900), 1), 700 + work + 900);
    // Each of 16 gathers is exposed.
    assert_eq!(end((700, 900), 0), 16 * 700 + work + 900);
    // Gathers bound the forward passes, computing the backward ones. The first gather of a backward pass is under way while
    // the forward pass computes its last unit, that of the next forward pass hides behind the backward pass.
    assert_eq!(end((1500, 0), 1), 5 * 1500 + 4 * 2000 + 4 * 1500 + 4 * 2000);
    // Scatters bound the backward passes: 4 of 5000 one after the other, behind the first unit; the forward pass of the
    // second micro-batch runs beside them.
    assert_eq!(end((0, 5000), 1), 4000 + 2000 + 8 * 5000);
    // More ahead never takes longer.
    assert!(end((1500, 1500), 4) <= end((1500, 1500), 1));
    // What waits is named, and all adds up.
    let spent = divided(4, (700, 900), 0, 2).spent[0];
    assert_eq!((spent.work, spent.reduce, spent.bubble), (work, 16 * 700 + 900, 0));
}

/// Passes that wait have each gather and each scatter of 4 layers and 2 micro-batches on their way, one after the other.
#[test]
fn passes_that_wait_take_the_sum_of_all() {
    let system = dgx_a100(&[]).expect("the shipped system");
    let mut plan = divided_plan(4, 700, 900, 0, 2);
    plan.waits = true;
    let simulated = simulate(&plan, &Network::new(&system));
    let work = 2 * 4 * 3000;
    assert_eq!(simulated.end, work + 16 * 700 + 8 * 900);
    let spent = simulated.spent[0];
    assert_eq!((spent.work, spent.reduce, spent.bubble), (work, 16 * 700 + 8 * 900, 0));
}

/// A unit of 1000 ns that computes at three quarters of its rate beside a gather of 600 ns has 450 ns done then, and ends at 1150; the
/// first of two has the second's gather beside it, the second nothing.
#[test]
fn computing_is_slower_beside_collectives() {
    let system = dgx_a100(&[]).expect("the shipped system");
    let mut plan = divided_plan(2, 600, 0, 1, 1);
    plan.actors[0].passes.backward = vec![Vec::new()];
    plan.slowdown_thousandths = 250;
    let simulated = simulate(&plan, &Network::new(&system));
    assert_eq!(simulated.end, 600 + 1150 + 1000);
    let spent = simulated.spent[0];
    assert_eq!((spent.work, spent.reduce), (2000, 600 + 150));
}
