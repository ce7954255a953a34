//! The mappings of a section that wait to be placed, in the order of what they are expected to take.
//!
//! What a mapping takes is known in steps, each dearer than the one before: its estimate in closed form, its run on an ideal
//! network ([`super::ideal_network`]), and its measurement, placed and routed. A mapping is expected to take what the last known
//! step says, times the ratios to later steps that similar mappings have shown ([`super::trend`]).
//!
//! Invariant: what is discarded here has a lower bound that is no less than the best; ratios only order the mappings. How far down
//! the order mappings are worth placing is for the search to say ([`super::evaluate`]).

use crate::compile::mapping::estimate::Estimate;

use super::ideal_network::{IdealRun, Identity};
use super::space::Choice;
use super::trend::{Features, Trend};

/// A mapping that waits to be placed.
#[derive(Debug, Clone)]
pub(super) struct Open {
    pub(super) choice: Choice,
    features: Features,
    /// What its run on an ideal network has shown; `None` before it.
    pub(super) ideal: Option<IdealRun>,
    /// Cycles that placing it, or a part of a run, has shown that it takes.
    pub(super) at_least: Option<u64>,
    /// Its run was cut short when it had taken its part of the work.
    pub(super) is_cut_short: bool,
    /// Worked out, it is the same as another that was run.
    is_repeated: bool,
}

impl Open {
    /// Cycles on an ideal network, or else as estimated; `u64::MAX` where it comes to no end.
    pub(super) fn cycles(&self) -> u64 {
        self.ideal.map_or(self.choice.estimate.cycles, |ideal| ideal.cycles.unwrap_or(u64::MAX))
    }
}

/// The mappings that wait, and what others have shown of them.
#[derive(Debug, Default)]
pub(super) struct Frontier {
    /// Those that wait.
    open: Vec<Open>,
    /// Those that were placed, or could not be.
    seen: Vec<Choice>,
    /// What those are, worked out, that were run on an ideal network: choices may differ in what changes nothing.
    run: Vec<Identity>,
    /// Measured cycles over those on an ideal network.
    measured: Trend,
    /// Cycles on an ideal network over those estimated.
    ideal: Trend,
}

impl Frontier {
    /// A frontier of some choices.
    pub(super) fn new(choices: &[Choice]) -> Self {
        let mut frontier = Self::default();
        frontier.add(choices.iter().cloned());
        frontier
    }

    /// Adds choices that are not known. Whether there are any.
    pub(super) fn add(&mut self, choices: impl IntoIterator<Item = Choice>) -> bool {
        let before = self.open.len();
        for choice in choices {
            if !self.seen.contains(&choice) && !self.open.iter().any(|open| open.choice == choice) {
                let features = Features::of(&choice);
                let (at_least, is_cut_short, is_repeated) = (None, false, false);
                self.open.push(Open { features, choice, ideal: None, at_least, is_cut_short, is_repeated });
            }
        }
        self.open.len() > before
    }

    /// Drops those that cannot win or are repeated, and puts the others in the order of `key`; of equals the first stays first.
    pub(super) fn order<K: Ord>(&mut self, may_win: impl Fn(&Choice) -> bool, key: impl Fn(u64, &Open) -> K) {
        let mut ordered: Vec<(K, Open)> = Vec::with_capacity(self.open.len());
        for open in std::mem::take(&mut self.open) {
            if open.is_repeated {
                self.seen.push(open.choice);
                continue;
            }
            if !may_win(&open.choice) {
                continue;
            }
            ordered.push((key(self.expected(&open), &open), open));
        }
        ordered.sort_by(|a, b| a.0.cmp(&b.0));
        self.open = ordered.into_iter().map(|(_, open)| open).collect();
    }

    /// What one of those that wait is expected to score.
    pub(super) fn expected(&self, open: &Open) -> u64 {
        let ideal = if open.ideal.is_some() { 1.0 } else { self.ideal.ratio(&open.features) };
        let measured = self.measured.ratio(&open.features);
        let Estimate { score, cycles, .. } = open.choice.estimate;
        let likely = (open.cycles() as f64 * ideal * measured) as u64;
        likely.max(open.at_least.unwrap_or(0)).saturating_add(score - cycles)
    }

    /// The first `most` in their order of those that are asked for, each of another array of PCUs: their places.
    pub(super) fn first_of_arrays(&self, most: usize, is_asked_for: impl Fn(&Open) -> bool) -> Vec<usize> {
        let mut picked: Vec<usize> = Vec::new();
        for (at, open) in self.open.iter().enumerate().filter(|(_, open)| is_asked_for(open)) {
            if picked.len() == most {
                break;
            }
            if !picked.iter().any(|&other| self.open[other].choice.has_array_of(&open.choice)) {
                picked.push(at);
            }
        }
        picked
    }

    /// What is expected to score least of those that wait, were run on an ideal network, and were not cut short.
    pub(super) fn least_expected_of_run(&self) -> Option<u64> {
        self.open.iter().filter(|open| open.ideal.is_some() && !open.is_cut_short).map(|open| self.expected(open)).min()
    }

    /// The first `most` in their order of those that are asked for and were not run on an ideal network: their places.
    pub(super) fn first_unrun(&self, most: usize, is_asked_for: impl Fn(&Open) -> bool) -> Vec<usize> {
        let is_next = |&at: &usize| self.open[at].ideal.is_none() && is_asked_for(&self.open[at]);
        (0..self.open.len()).filter(is_next).take(most).collect()
    }

    /// One of those that wait.
    pub(super) fn get(&self, at: usize) -> &Open {
        &self.open[at]
    }

    /// Whether one of those that wait is the same, worked out, as another that was run; else it is remembered as run. What is repeated
    /// is dropped.
    pub(super) fn is_repeated(&mut self, at: usize, identity: Identity) -> bool {
        let is_repeated = self.run.contains(&identity);
        self.open[at].is_repeated = is_repeated;
        if !is_repeated {
            self.run.push(identity);
        }
        is_repeated
    }

    /// Remembers what one of those that wait has shown on an ideal network.
    pub(super) fn add_ideal_run(&mut self, at: usize, run: IdealRun) {
        let open = &mut self.open[at];
        open.ideal = Some(run);
        if let Some(cycles) = run.cycles {
            self.ideal.add(open.features.clone(), cycles as f64 / open.choice.estimate.cycles.max(1) as f64);
        }
    }

    /// Takes some of those that wait, by their places, rising: they are seen.
    pub(super) fn take(&mut self, places: &[usize]) -> Vec<Open> {
        let mut taken: Vec<Open> = places.iter().rev().map(|&at| self.open.remove(at)).collect();
        taken.reverse();
        self.seen.extend(taken.iter().map(|open| open.choice.clone()));
        taken
    }

    /// Takes the one that is expected to score least of those whose runs were cut short.
    pub(super) fn take_least_of_cut_short(&mut self) -> Option<Open> {
        let cut_short = (0..self.open.len()).filter(|&at| self.open[at].is_cut_short);
        let least = cut_short.min_by_key(|&at| self.expected(&self.open[at]))?;
        self.take(&[least]).pop()
    }

    /// What is expected to score least of those that wait.
    pub(super) fn least_expected(&self) -> Option<u64> {
        self.open.iter().map(|open| self.expected(open)).min()
    }

    /// Forgets what runs that were cut short have shown: there is work for them again.
    pub(super) fn go_on(&mut self) {
        for open in &mut self.open {
            if std::mem::take(&mut open.is_cut_short) {
                open.at_least = None;
            }
        }
    }

    /// Lets one that was taken wait again.
    pub(super) fn put_back(&mut self, open: Open) {
        self.seen.retain(|seen| *seen != open.choice);
        self.open.push(open);
    }

    /// Remembers how much longer than on an ideal network a mapping was measured to take, at least.
    pub(super) fn learn(&mut self, open: &Open, cycles: u64) {
        self.measured.add(open.features.clone(), cycles as f64 / open.cycles().max(1) as f64);
    }
}
