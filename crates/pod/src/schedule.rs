//! The order of work on each stage.

use super::parallel::Schedule;

/// A stage, and how many the pipeline has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageOf {
    /// The stage, from 0.
    pub stage: u64,
    /// Stages of the pipeline.
    pub stages: u64,
}

/// What a pass computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PassKind {
    /// Outputs from inputs.
    Forward,
    /// Gradients of inputs, and of weights unless the schedule has a pass of its own for those.
    Backward,
    /// Gradients of weights.
    Weights,
    /// The optimiser's step, where every micro-batch has one.
    Update,
}

/// A pass of a micro-batch through a part of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// What it computes.
    pub pass: PassKind,
    /// Micro-batch.
    pub micro: u64,
    /// Part of the stage.
    pub part: u64,
}

/// The order on stage `stage` of `stages` for `micro` micro-batches.
pub fn order(schedule: Schedule, StageOf { stage, stages }: StageOf, micro: u64) -> Vec<Work> {
    let forward = |micro| Work { pass: PassKind::Forward, micro, part: 0 };
    let backward = |micro| Work { pass: PassKind::Backward, micro, part: 0 };
    match schedule {
        Schedule::Naive => (0..micro).flat_map(|m| [forward(m), backward(m)]).collect(),
        Schedule::GPipe => (0..micro).map(forward).chain((0..micro).map(backward)).collect(),
        // Updates stand where batches end, which the caller knows.
        Schedule::OneForwardOneBackward | Schedule::PipeDream2Bw => {
            let warm = (stages - 1 - stage).min(micro);
            alternate(micro, warm, forward, backward)
        }
        Schedule::ZeroBubble => zero_bubble(StageOf { stage, stages }, micro),
        Schedule::ZeroBubbleV => zero_bubble_v(StageOf { stage, stages }, micro),
        Schedule::PipeDream => {
            let warm = (stages - 1 - stage).min(micro);
            with_updates(alternate(micro, warm, forward, backward), 1)
        }
        Schedule::Interleaved(parts) => {
            let all = micro * parts;
            let warm = warm_parts(StageOf { stage, stages }, micro, parts);
            let at = |k: u64| (k / (stages * parts) * stages + k % stages, k % (stages * parts) / stages);
            alternate(
                all,
                warm,
                |k| Work { pass: PassKind::Forward, micro: at(k).0, part: at(k).1 },
                |k| Work { pass: PassKind::Backward, micro: at(k).0, part: parts - 1 - at(k).1 },
            )
        }
    }
}

/// The order of parts of sequences, `chunks` for each micro-batch: a pass's `micro` counts parts. Backward passes take the last part of a
/// sequence first.
pub fn in_chunks(schedule: Schedule, StageOf { stage, stages }: StageOf, micro: u64, chunks: u64) -> Vec<Work> {
    if chunks < 2 {
        return order(schedule, StageOf { stage, stages }, micro);
    }
    let forward = |k| Work { pass: PassKind::Forward, micro: k, part: 0 };
    let backward =
        |k: u64| Work { pass: PassKind::Backward, micro: k / chunks * chunks + (chunks - 1 - k % chunks), part: 0 };
    let all = micro * chunks;
    match schedule {
        Schedule::Naive => {
            let of = |m: u64| m * chunks..(m + 1) * chunks;
            (0..micro).flat_map(|m| of(m).map(forward).chain(of(m).map(backward))).collect()
        }
        Schedule::GPipe => (0..all).map(forward).chain((0..all).map(backward)).collect(),
        _ => alternate(all, (stages - 1 - stage + chunks - 1).min(all), forward, backward),
    }
}

/// An order with an update behind the last backward pass of every so many micro-batches.
pub(super) fn with_updates(order: Vec<Work>, every: u64) -> Vec<Work> {
    let passes = order.into_iter();
    let behind = |work: Work| {
        let is_last = work.pass == PassKind::Backward && (work.micro + 1).is_multiple_of(every.max(1));
        std::iter::once(work).chain(is_last.then_some(Work { pass: PassKind::Update, ..work }))
    };
    passes.flat_map(behind).collect()
}

/// `warm` forward, then one forward and one backward, then the rest backward.
fn alternate(all: u64, warm: u64, forward: impl Fn(u64) -> Work, backward: impl Fn(u64) -> Work) -> Vec<Work> {
    let mut list: Vec<Work> = (0..warm).map(&forward).collect();
    for k in warm..all {
        list.extend([forward(k), backward(k - warm)]);
    }
    list.extend((all - warm..all).map(backward));
    list
}

/// 1F1B, with the gradients of weights of as many micro-batches left for later as there are stages before: all stages hold
/// as many micro-batches as the first does in 1F1B, and (p - 1)(F + B - W) is left of its bubble (p - 1)(F + B + W).
fn zero_bubble(StageOf { stage, stages }: StageOf, micro: u64) -> Vec<Work> {
    let of = |pass| move |micro| Work { pass, micro, part: 0 };
    let (backward, weights) = (of(PassKind::Backward), of(PassKind::Weights));
    let warm = (stages - 1 - stage).min(micro);
    let mut list: Vec<Work> = Vec::new();
    for work in alternate(micro, warm, of(PassKind::Forward), backward) {
        list.push(work);
        if work.pass == PassKind::Backward && work.micro >= stage {
            list.push(weights(work.micro - stage));
        }
    }
    list.extend((micro.saturating_sub(stage)..micro).map(weights));
    list
}

/// Two parts on each stage, the second in reverse, for passes that all take as long: every stage holds 2 p parts, as much as the first of
/// 1F1B, and is idle until its first pass alone (Qi et al., 2023, section 6).
fn zero_bubble_v(StageOf { stage, stages }: StageOf, micro: u64) -> Vec<Work> {
    let mut list: Vec<Work> = Vec::new();
    let mut next = [[0; 2]; 3];
    let mut add = |list: &mut Vec<Work>, pass: PassKind, part: u64| {
        let kind = [PassKind::Forward, PassKind::Backward, PassKind::Weights].iter().position(|of| *of == pass);
        let at = &mut next[kind.unwrap_or(0)][part as usize];
        if *at < micro {
            list.push(Work { pass, micro: *at, part });
        }
        *at += 1;
    };
    let (forward, backward, weights) = (PassKind::Forward, PassKind::Backward, PassKind::Weights);
    // Down the V, until the first micro-batch comes up again.
    let mut round = |list: &mut Vec<Work>, count: u64, passes: &[(PassKind, u64)]| {
        for _ in 0..count {
            for &(pass, part) in passes {
                add(list, pass, part);
            }
        }
    };
    round(&mut list, 2 * (stages - stage) - 1, &[(forward, 0)]);
    round(&mut list, stage, &[(forward, 1), (forward, 0)]);
    round(&mut list, stages - stage, &[(forward, 1), (backward, 1), (weights, 1)]);
    // All kinds in turn; then what is left, gradients of inputs first where others wait for them.
    let all = [(forward, 0), (backward, 0), (weights, 0), (forward, 1), (backward, 1), (weights, 1)];
    // The order is that of as many micro-batches as fill the V at least; of fewer, some passes are none.
    round(&mut list, micro.max(2 * stages - 1) - stages, &all);
    round(&mut list, stage, &[(backward, 0), (backward, 1)]);
    round(&mut list, stages - stage, &[(backward, 0), (weights, 0)]);
    round(&mut list, micro, &[(weights, 1)]);
    round(&mut list, micro, &[(weights, 0)]);
    list
}

/// The most micro-batches, counted in parts of a stage, whose activations are held at one time.
pub fn most_held(order: &[Work]) -> u64 {
    // What the last pass of a micro-batch reads is held until then.
    let is_split = order.iter().any(|work| work.pass == PassKind::Weights);
    let last = if is_split { PassKind::Weights } else { PassKind::Backward };
    let (mut held, mut most) = (0u64, 0);
    for work in order {
        if work.pass == PassKind::Forward {
            held += 1;
        } else if work.pass == last {
            held = held.saturating_sub(1);
        }
        most = most.max(held);
    }
    most
}

/// The same without the order.
pub(super) fn held(schedule: Schedule, StageOf { stage, stages }: StageOf, micro: u64, chunks: u64) -> u64 {
    if chunks > 1 {
        return match schedule {
            Schedule::Naive => chunks,
            Schedule::GPipe => micro * chunks,
            _ => (stages - stage + chunks - 1).min(micro * chunks),
        };
    }
    match schedule {
        Schedule::Naive => micro.min(1),
        Schedule::GPipe => micro,
        Schedule::OneForwardOneBackward | Schedule::PipeDream | Schedule::PipeDream2Bw => (stages - stage).min(micro),
        Schedule::ZeroBubble => stages.min(micro),
        Schedule::ZeroBubbleV => most_held(&zero_bubble_v(StageOf { stage, stages }, micro)),
        Schedule::Interleaved(parts) => (warm_parts(StageOf { stage, stages }, micro, parts) + 1).min(micro * parts),
    }
}

/// Forward passes before the first backward pass of an interleaved schedule.
fn warm_parts(StageOf { stage, stages }: StageOf, micro: u64, parts: u64) -> u64 {
    let all = micro * parts;
    if micro == stages { all } else { ((stages - stage - 1) * 2 + (parts - 1) * stages).min(all) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Schedule; 8] = [
        Schedule::Naive,
        Schedule::GPipe,
        Schedule::OneForwardOneBackward,
        Schedule::Interleaved(2),
        Schedule::ZeroBubble,
        Schedule::ZeroBubbleV,
        Schedule::PipeDream,
        Schedule::PipeDream2Bw,
    ];

    #[test]
    fn everything_runs_once_and_backward_after_forward() {
        for schedule in ALL {
            for (stages, micro) in [(1, 1), (2, 4), (4, 8), (4, 4)] {
                for stage in 0..stages {
                    let order = order(schedule, StageOf { stage, stages }, micro);
                    let passes = if schedule.splits_weights() || schedule == Schedule::PipeDream { 3 } else { 2 };
                    assert_eq!(order.len() as u64, passes * micro * schedule.parts());
                    for (at, work) in order.iter().enumerate().filter(|(_, work)| work.pass == PassKind::Backward) {
                        let forward = Work { pass: PassKind::Forward, ..*work };
                        assert!(order[..at].contains(&forward), "{schedule:?}: {work:?}");
                        assert!(!order[..at].contains(work));
                        for pass in [PassKind::Weights, PassKind::Update] {
                            assert!(!order[..at].contains(&Work { pass, ..*work }));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn held_activations_are_counted_without_the_order() {
        for schedule in ALL {
            for (stages, micro) in [(1, 1), (2, 4), (4, 8), (4, 4), (3, 9), (4, 12)] {
                for stage in 0..stages {
                    let counted = most_held(&order(schedule, StageOf { stage, stages }, micro));
                    assert_eq!(
                        held(schedule, StageOf { stage, stages }, micro, 1),
                        counted,
                        "{schedule:?} {stage} of {stages}, {micro}"
                    );
                }
            }
        }
    }

    #[test]
    fn parts_of_sequences_run_once_and_the_last_goes_back_first() {
        for schedule in [Schedule::Naive, Schedule::GPipe, Schedule::OneForwardOneBackward] {
            for (stages, micro, chunks) in [(1, 1, 2), (2, 4, 3), (4, 8, 2), (4, 1, 4), (3, 2, 8)] {
                for stage in 0..stages {
                    let order = in_chunks(schedule, StageOf { stage, stages }, micro, chunks);
                    assert_eq!(order.len() as u64, 2 * micro * chunks);
                    assert_eq!(
                        held(schedule, StageOf { stage, stages }, micro, chunks),
                        most_held(&order),
                        "{schedule:?} {stage}"
                    );
                    for (at, work) in order.iter().enumerate().filter(|(_, work)| work.pass == PassKind::Backward) {
                        // All of its sequence has gone forward, and the parts behind it back.
                        let last = work.micro / chunks * chunks + chunks - 1;
                        for micro in work.micro..=last {
                            assert!(order[..at].contains(&Work { pass: PassKind::Forward, micro, part: 0 }));
                            assert_eq!(order[..at].contains(&Work { micro, ..*work }), micro > work.micro);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_batch_ends_with_an_update() {
        let order = with_updates(order(Schedule::PipeDream2Bw, StageOf { stage: 0, stages: 2 }, 6), 3);
        let updates: Vec<usize> = (0..order.len()).filter(|at| order[*at].pass == PassKind::Update).collect();
        assert_eq!(updates.len(), 2);
        assert!(updates.iter().all(|at| order[at - 1].pass == PassKind::Backward && order[at - 1].micro % 3 == 2));
    }

    #[test]
    fn held_activations_are_the_textbook_ones() {
        let held = |schedule, stage| most_held(&order(schedule, StageOf { stage, stages: 4 }, 8));
        assert_eq!(held(Schedule::GPipe, 0), 8);
        assert_eq!([0, 1, 2, 3].map(|stage| held(Schedule::OneForwardOneBackward, stage)), [4, 3, 2, 1]);
        assert_eq!([0, 1, 2, 3].map(|stage| held(Schedule::ZeroBubbleV, stage)), [8; 4]);
        assert_eq!(held(Schedule::Naive, 0), 1);
        // In layers of the stage: 1 + (p - 1) / (p v) times p micro-batches, of v parts each (Megatron-LM).
        assert_eq!(held(Schedule::Interleaved(2), 0), 2 * 4 + 3);
    }
}
