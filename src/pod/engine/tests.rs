use super::super::parallel::Schedule;
use super::super::schedule::order;
use super::*;
use crate::pod::dgx_a100;

/// Equal stages without transfers or reductions.
fn plan(schedule: Schedule, stages: u64, micro: u64) -> Plan {
    let parts = schedule.parts();
    let actor = |stage: u64| Actor {
        order: order(schedule, (stage, stages), micro),
        forward_ns: vec![1000; parts as usize],
        backward_ns: vec![2000; parts as usize],
        next: (((stage + 1) % stages) as usize, Demand::default()),
        previous: (((stage + stages - 1) % stages) as usize, Demand::default()),
        is_first: stage == 0,
        is_last: stage + 1 == stages,
        optimizer_ns: 0,
    };
    Plan { actors: (0..stages).map(actor).collect(), reductions: Vec::new(), parts, message_ns: 0, blocking: false }
}

fn end(schedule: Schedule, stages: u64, micro: u64) -> u64 {
    let system = dgx_a100(&[]).expect("the shipped system");
    simulate(&plan(schedule, stages, micro), &Network::new(&system)).end
}

#[test]
fn bubbles_of_equal_stages_are_the_textbook_ones() {
    for (stages, micro) in [(1, 3), (2, 4), (4, 4), (4, 8), (8, 16)] {
        let work = 3000 * micro;
        // (p - 1) more of a forward and a backward pass; a pass of interleaved parts is shorter by their number.
        assert_eq!(end(Schedule::GPipe, stages, micro), work + (stages - 1) * 3000, "{stages} {micro}");
        assert_eq!(end(Schedule::OneForwardOneBackward, stages, micro), work + (stages - 1) * 3000);
        assert_eq!(end(Schedule::Naive, stages, micro), work * stages);
        if stages > 1 {
            assert_eq!(end(Schedule::Interleaved(2), stages, micro), 2 * work + (stages - 1) * 3000);
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
            network.flow(&mut actor.next.1, (stage, stage + 1), 300_000);
        }
        if stage > 0 {
            network.flow(&mut actor.previous.1, (stage, stage - 1), 300_000);
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
