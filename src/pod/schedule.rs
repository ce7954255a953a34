//! The order of work on each stage.

use super::parallel::Schedule;

/// A unit of work of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Backward; else forward.
    pub backward: bool,
    /// Micro-batch.
    pub micro: u64,
    /// Part of the stage.
    pub part: u64,
}

/// The order on stage `stage` of `stages` for `micro` micro-batches.
pub fn order(schedule: Schedule, (stage, stages): (u64, u64), micro: u64) -> Vec<Work> {
    let forward = |micro| Work { backward: false, micro, part: 0 };
    let backward = |micro| Work { backward: true, micro, part: 0 };
    match schedule {
        Schedule::Naive => (0..micro).flat_map(|m| [forward(m), backward(m)]).collect(),
        Schedule::GPipe => (0..micro).map(forward).chain((0..micro).map(backward)).collect(),
        Schedule::OneForwardOneBackward => {
            let warm = (stages - 1 - stage).min(micro);
            alternate(micro, warm, forward, backward)
        }
        Schedule::Interleaved(parts) => {
            let all = micro * parts;
            let warm = ((stages - stage - 1) * 2 + (parts - 1) * stages).min(all);
            let warm = if micro == stages { all } else { warm };
            let at = |k: u64| (k / (stages * parts) * stages + k % stages, k % (stages * parts) / stages);
            alternate(
                all,
                warm,
                |k| Work { backward: false, micro: at(k).0, part: at(k).1 },
                |k| Work { backward: true, micro: at(k).0, part: parts - 1 - at(k).1 },
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

/// The most micro-batches, counted in parts of a stage, whose activations are held at one time.
pub fn most_held(order: &[Work]) -> u64 {
    let (mut held, mut most) = (0u64, 0);
    for work in order {
        held = if work.backward { held.saturating_sub(1) } else { held + 1 };
        most = most.max(held);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Schedule; 4] =
        [Schedule::Naive, Schedule::GPipe, Schedule::OneForwardOneBackward, Schedule::Interleaved(2)];

    #[test]
    fn everything_runs_once_and_backward_after_forward() {
        for schedule in ALL {
            for (stages, micro) in [(1, 1), (2, 4), (4, 8), (4, 4)] {
                for stage in 0..stages {
                    let order = order(schedule, (stage, stages), micro);
                    assert_eq!(order.len() as u64, 2 * micro * schedule.parts());
                    for (at, work) in order.iter().enumerate().filter(|(_, work)| work.backward) {
                        let forward = Work { backward: false, ..*work };
                        assert!(order[..at].contains(&forward), "{schedule:?}: {work:?}");
                        assert!(!order[..at].contains(work));
                    }
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
