//! Shortest paths over the lattice of a group's down-sets: the least sum of its sections' times over all partitions.

use super::lattice::Partitions;

/// What a section adds to a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Length {
    /// As the first of all repetitions, or behind a section whose idle memory counts for its own time.
    pub(crate) alone: u64,
    /// Behind a section that may have loaded its weights.
    pub(crate) prefetched: u64,
    /// Where its time beyond what memory moves is given to the section behind it; `None` to keep it.
    pub(crate) given: Option<(u64, u64)>,
}

impl Length {
    /// Of what is the same wherever the section stands.
    pub(crate) fn of(length: u64) -> Self {
        Self { alone: length, prefetched: length, given: None }
    }
}

impl Partitions {
    /// The length of the shortest path over sections with these lengths (`None`: it cannot be), each of all repetitions;
    /// `u64::MAX` without a path.
    ///
    /// A section may have loaded weights for the one behind it in time that its memory was idle. The time is counted once: a
    /// section that gives it away has the length of what its memory moves, and the one behind it is as long as alone; a section
    /// that keeps it leaves to the one behind it all that loading sooner may save (`docs/proof.md`). The last section of a
    /// repetition leaves it to the first of the next, unless both are one.
    pub(crate) fn shortest(&self, lengths: &[Option<Length>], repeat: u64) -> u64 {
        let once = [KEEPS, GIVES].map(|before| self.shortest_behind(lengths, before));
        // Before the first repetition nothing is loaded.
        let all = min_plus_power(once, repeat)[GIVES].into_iter().min().unwrap_or(u128::MAX);
        if all == u128::MAX { u64::MAX } else { u64::try_from(all / u128::from(repeat.max(1))).unwrap_or(u64::MAX) }
    }

    /// Shortest paths through one repetition, behind a section that keeps its idle time or gives it away: to a last section
    /// that does the one, and the other.
    fn shortest_behind(&self, lengths: &[Option<Length>], before: usize) -> [u128; 2] {
        let mut least = vec![[u128::MAX; 2]; self.ideals];
        least[0][before] = 0;
        for &(from, to, section) in &self.steps {
            let Some(length) = lengths[section] else { continue };
            let is_whole = from == 0 && to == self.ideals - 1;
            for (before, sum) in least[from].into_iter().enumerate().filter(|(_, sum)| *sum < u128::MAX) {
                let is_alone = before == GIVES || is_whole;
                let (own, state) = match length.given {
                    Some((alone, prefetched)) => (if is_alone { alone } else { prefetched }, GIVES),
                    None => (if is_alone { length.alone } else { length.prefetched }, KEEPS),
                };
                least[to][state] = least[to][state].min(sum.saturating_add(u128::from(own)));
            }
        }
        least[self.ideals - 1]
    }
}

/// What the section before does with the time in which its memory is idle.
const KEEPS: usize = 0;
const GIVES: usize = 1;

/// A matrix of path lengths to a power over (min, +): the shortest paths of so many steps.
fn min_plus_power(mut of: [[u128; 2]; 2], mut power: u64) -> [[u128; 2]; 2] {
    let product = |a: [[u128; 2]; 2], b: [[u128; 2]; 2]| -> [[u128; 2]; 2] {
        let over = |i: usize, j: usize| (0..2).map(|k| a[i][k].saturating_add(b[k][j])).min().unwrap_or(u128::MAX);
        std::array::from_fn(|i| std::array::from_fn(|j| over(i, j)))
    };
    let mut result = [[0, u128::MAX], [u128::MAX, 0]];
    while power > 0 {
        if power % 2 == 1 {
            result = product(result, of);
        }
        of = product(of, of);
        power /= 2;
    }
    result
}
