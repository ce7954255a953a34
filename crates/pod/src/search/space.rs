//! The decompositions that a search considers, and what it looks for.

use std::collections::BTreeSet;

use super::super::choices::Mixture;
use super::super::on_chips::member;
use super::super::parallel::{Job, Parallel, Recompute, Schedule};
use super::super::system::{Stack, StackKind, System};
use rdusim_base::diagnostics::Diagnostic;

/// What makes a decomposition better than another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Objective {
    /// The shortest step on all chips.
    Time,
    /// The most tokens a second and chip, on as many chips or fewer.
    TokensPerChip,
    /// The fewest chips that make a step in so many seconds.
    Chips(f64),
    /// The least energy of a step, on as many chips or fewer.
    Energy,
}

impl Objective {
    /// What is compared, the less the better: of a step, or of a lower bound of it, with its joules.
    pub(super) fn key(self, chips: u64, seconds: f64, joules: f64) -> Key {
        let chips = chips as f64;
        match self {
            Self::Time => Key(seconds, 0.0),
            Self::TokensPerChip => Key(seconds * chips, 0.0),
            Self::Chips(_) => Key(chips, seconds),
            Self::Energy => Key(joules, seconds),
        }
    }

    /// Whether a step of so many seconds, or at least so many, can count.
    pub(super) fn allows(self, seconds: f64) -> bool {
        !matches!(self, Self::Chips(target) if seconds > target)
    }
}

/// A value to compare, and another for where it is equal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Key(pub f64, pub f64);

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0).then(self.1.total_cmp(&other.1))
    }
}

/// A search.
#[derive(Debug, Clone)]
pub struct Search<'s> {
    /// The system.
    pub system: &'s System,
    /// Its software.
    pub stack: &'s Stack,
    /// Model, batch and sequence, and the values of what is fixed.
    pub base: Job,
    /// Keys of `--parallel` whose value in `base` is fixed, and `micro_batch` if that is.
    pub fixed: BTreeSet<String>,
    /// Chips, or the most of them.
    pub chips: u64,
    /// What is looked for.
    pub objective: Objective,
}

/// Most candidates of a search.
const MOST_CANDIDATES: usize = 1 << 20;
/// Best candidates that are kept.
pub(super) const BEST: usize = 10;

fn divisors(number: u64) -> Vec<u64> {
    let root = number.isqrt();
    let small: Vec<u64> = (1..=root).filter(|divisor| number.is_multiple_of(*divisor)).collect();
    let large = small.iter().rev().map(|divisor| number / divisor).filter(|divisor| *divisor > root);
    small.iter().copied().chain(large).collect()
}

impl Search<'_> {
    fn is_fixed(&self, key: &str) -> bool {
        self.fixed.contains(key)
    }

    fn numbers(&self, key: &str, fixed: u64, all: Vec<u64>) -> Vec<u64> {
        if self.is_fixed(key) { vec![fixed] } else { all }
    }

    /// Tensor ranks, stages and replicas.
    fn shapes(&self) -> Vec<(u64, u64, u64)> {
        let (a, p) = (&self.base.architecture, &self.base.parallel);
        let mut list = Vec::new();
        for tp in self.numbers("tp", p.tp, divisors(a.heads)) {
            for pp in self.numbers("pp", p.pp, divisors(a.layers)) {
                let of_replica = tp.saturating_mul(pp).saturating_mul(p.cp);
                if of_replica > self.chips {
                    continue;
                }
                let dps = match self.objective {
                    Objective::Time if self.chips.is_multiple_of(of_replica) => vec![self.chips / of_replica],
                    Objective::Time => Vec::new(),
                    _ => divisors(self.base.batch),
                };
                let fits = |dp: &u64| of_replica.saturating_mul(*dp) <= self.chips;
                let dps = if self.is_fixed("dp") { dps.into_iter().filter(|dp| *dp == p.dp).collect() } else { dps };
                list.extend(dps.into_iter().filter(fits).map(|dp| (tp, pp, dp)));
            }
        }
        list
    }

    /// Schedules of `pp` stages.
    fn schedules(&self, pp: u64) -> Vec<Schedule> {
        if self.is_fixed("schedule") {
            return vec![self.base.parallel.schedule];
        }
        let mut list = vec![Schedule::OneForwardOneBackward];
        if pp > 1 {
            let parts = divisors(self.base.architecture.layers / pp);
            list.extend(parts.into_iter().filter(|parts| *parts > 1).map(Schedule::Interleaved));
            list.push(Schedule::GPipe);
        }
        list
    }

    /// What may be computed again: scores alone only where the stack keeps them.
    fn recomputes(&self) -> Vec<Recompute> {
        if self.is_fixed("recompute") {
            return vec![self.base.parallel.recompute];
        }
        let all = Recompute::NAMES.into_iter().map(|(_, kind)| kind);
        all.filter(|kind| *kind != Recompute::Selective || self.stack.kind == StackKind::Megatron).collect()
    }

    /// Chips that may share experts out, of so many replicas.
    fn experts_over(&self, replicas: u64) -> Vec<u64> {
        let fixed = self.base.parallel.experts.ep;
        let Some(experts) = self.base.experts() else { return vec![fixed] };
        let all = divisors(replicas).into_iter().filter(|ep| experts.count.is_multiple_of(*ep)).collect();
        self.numbers("ep", fixed, all)
    }

    /// Every candidate: all that can be divided, whether it fits or not.
    ///
    /// # Errors
    /// More candidates than a search takes.
    pub fn candidates(&self) -> Result<Vec<Job>, Diagnostic> {
        let base = &self.base.parallel;
        let mut list = Vec::new();
        for (tp, pp, dp) in self.shapes() {
            if !self.base.batch.is_multiple_of(dp) {
                continue;
            }
            let micros = self.numbers("micro_batch", self.base.micro_batch, divisors(self.base.batch / dp));
            let zeros = self.numbers("zero", base.zero, if dp * base.cp > 1 { vec![0, 1, 2, 3] } else { vec![0] });
            let eps = self.experts_over(dp * base.cp);
            let sps = self.numbers("sp", u64::from(base.sp), if tp > 1 { vec![0, 1] } else { vec![0] });
            for schedule in self.schedules(pp) {
                for recompute in self.recomputes() {
                    let choices = zeros.iter().flat_map(|zero| sps.iter().map(move |sp| (zero, sp)));
                    let choices = choices.flat_map(|of| eps.iter().map(move |ep| (of, ep)));
                    for ((&zero, &sp), &ep) in choices {
                        let experts = Mixture { ep, ..base.experts };
                        let parallel =
                            Parallel { tp, pp, dp, sp: sp == 1, schedule, recompute, zero, experts, ..*base };
                        let jobs = micros.iter().map(|&micro_batch| Job { parallel, micro_batch, ..self.base.clone() });
                        list.extend(
                            jobs.filter(|job| job.check().is_ok() && member(&self.system.chip).check_keys(job).is_ok()),
                        );
                    }
                }
            }
            if list.len() > MOST_CANDIDATES {
                let title = format!("there are more than {MOST_CANDIDATES} decompositions to search");
                return Err(
                    Diagnostic::new(title).with_help("fix some keys with `--parallel`, or give `--micro-batch`")
                );
            }
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::divisors;

    #[test]
    fn divisors_are_all_and_in_order() {
        assert_eq!(divisors(36), [1, 2, 3, 4, 6, 9, 12, 18, 36]);
        assert_eq!(divisors(7), [1, 7]);
        assert_eq!(divisors(1), [1]);
    }
}
