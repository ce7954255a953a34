//! The order of work on each stage.

use super::parallel::Schedule;

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
pub fn order(schedule: Schedule, (stage, stages): (u64, u64), micro: u64) -> Vec<Work> {
    let forward = |micro| Work { pass: PassKind::Forward, micro, part: 0 };
    let backward = |micro| Work { pass: PassKind::Backward, micro, part: 0 };
    match schedule {
        Schedule::Naive => (0..micro).flat_map(|m| [forward(m), backward(m)]).collect(),
        Schedule::GPipe => (0..micro).map(forward).chain((0..micro).map(backward)).collect(),
        Schedule::OneForwardOneBackward => {
            let warm = (stages - 1 - stage).min(micro);
            alternate(micro, warm, forward, backward)
        }
        Schedule::ZeroBubble => zero_bubble((stage, stages), micro),
        Schedule::PipeDream => {
            let warm = (stages - 1 - stage).min(micro);
            let passes = alternate(micro, warm, forward, backward).into_iter();
            let with_update = |work: Work| {
                let update = Work { pass: PassKind::Update, ..work };
                std::iter::once(work).chain((work.pass == PassKind::Backward).then_some(update))
            };
            passes.flat_map(with_update).collect()
        }
        Schedule::Interleaved(parts) => {
            let all = micro * parts;
            let warm = warm_parts((stage, stages), micro, parts);
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
fn zero_bubble((stage, stages): (u64, u64), micro: u64) -> Vec<Work> {
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
pub(super) fn held(schedule: Schedule, (stage, stages): (u64, u64), micro: u64) -> u64 {
    match schedule {
        Schedule::Naive => micro.min(1),
        Schedule::GPipe => micro,
        Schedule::OneForwardOneBackward | Schedule::PipeDream => (stages - stage).min(micro),
        Schedule::ZeroBubble => stages.min(micro),
        Schedule::Interleaved(parts) => (warm_parts((stage, stages), micro, parts) + 1).min(micro * parts),
    }
}

/// Forward passes before the first backward pass of an interleaved schedule.
fn warm_parts((stage, stages): (u64, u64), micro: u64, parts: u64) -> u64 {
    let all = micro * parts;
    if micro == stages { all } else { ((stages - stage - 1) * 2 + (parts - 1) * stages).min(all) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Schedule; 6] = [
        Schedule::Naive,
        Schedule::GPipe,
        Schedule::OneForwardOneBackward,
        Schedule::Interleaved(2),
        Schedule::ZeroBubble,
        Schedule::PipeDream,
    ];

    #[test]
    fn everything_runs_once_and_backward_after_forward() {
        for schedule in ALL {
            for (stages, micro) in [(1, 1), (2, 4), (4, 8), (4, 4)] {
                for stage in 0..stages {
                    let order = order(schedule, (stage, stages), micro);
                    let passes = if matches!(schedule, Schedule::ZeroBubble | Schedule::PipeDream) { 3 } else { 2 };
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
                    let counted = most_held(&order(schedule, (stage, stages), micro));
                    assert_eq!(
                        held(schedule, (stage, stages), micro),
                        counted,
                        "{schedule:?} {stage} of {stages}, {micro}"
                    );
                }
            }
        }
    }

    #[test]
    fn held_activations_are_the_textbook_ones() {
        let held = |schedule, stage| most_held(&order(schedule, (stage, 4), 8));
        assert_eq!(held(Schedule::GPipe, 0), 8);
        assert_eq!([0, 1, 2, 3].map(|stage| held(Schedule::OneForwardOneBackward, stage)), [4, 3, 2, 1]);
        assert_eq!(held(Schedule::Naive, 0), 1);
        // In layers of the stage: 1 + (p - 1) / (p v) times p micro-batches, of v parts each (Megatron-LM).
        assert_eq!(held(Schedule::Interleaved(2), 0), 2 * 4 + 3);
    }
}
