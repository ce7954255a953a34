//! Progressive filling of the part of the system that a change can reach.
//!
//! A resource limits nobody as long as its users fit on it at their own limits. So only *contended* resources connect
//! activities, and a change is solved again within the connected component of contended resources around it. The rates
//! elsewhere are those that filling the whole system would give.
//!
//! The rate at which a resource is full only rises while others are filled, so a rate that was computed earlier is a lower
//! bound: resources wait in a heap by such bounds, and only one that comes to the top is computed again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rdusim_base::index::IndexVec;

use super::rate::Rate;
use super::tables::{ActivityId, ResourceId, Tables};

/// How much work the solver has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Solves: sets of changes at one time after which rates were asked for.
    pub solves: u64,
    /// Solves that met a contended resource.
    pub contended_solves: u64,
    /// Activities in contended solves: those of the components, and those that started without contention at that time.
    pub activities: u64,
    /// Contended resources in them, in all.
    pub resources: u64,
    /// Rounds of filling in them, in all.
    pub rounds: u64,
    /// Rates that were changed, first rates included.
    pub changes: u64,
}

/// A resource while it is filled.
#[derive(Debug, Clone, Copy, Default)]
struct Level {
    /// The solve that this belongs to.
    epoch: u64,
    /// Capacity not yet given to fixed activities, in units of 2^-32 a tick.
    slack: u64,
    /// Weights of the activities that are not yet fixed.
    weight: u64,
    /// Whether either has changed since its rate was computed.
    is_stale: bool,
}

impl Level {
    /// The rate at which the activities that are not yet fixed fill the resource; `None` if there are none.
    fn rate(&self) -> Option<Rate> {
        self.slack.checked_div(self.weight).map(Rate::from_units)
    }
}

/// An activity while its rate is found.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    /// The solve in which it was met.
    met: u64,
    /// The solve in which its rate was fixed.
    fixed: u64,
}

/// The solver's working memory.
#[derive(Debug, Default)]
pub(super) struct Filling {
    epoch: u64,
    levels: IndexVec<ResourceId, Level>,
    marks: IndexVec<ActivityId, Mark>,
    /// Activities of the component.
    met: Vec<ActivityId>,
    /// Their limits, highest first; those behind have been passed.
    limits: Vec<(Rate, ActivityId)>,
    /// Contended resources of the component, with lower bounds of their rates.
    unfilled: BinaryHeap<Reverse<(Rate, ResourceId)>>,
    /// Rates that were found.
    pub(super) rates: Vec<(ActivityId, Rate)>,
    pub(super) counters: Counters,
}

impl Filling {
    /// Finds the rates of `entered` and of all activities that these, or the activities that have left the resources
    /// `left`, can affect: in `rates`, each once.
    pub(super) fn solve(&mut self, tables: &Tables, entered: &[ActivityId], left: &[ResourceId]) {
        self.epoch += 1;
        self.rates.clear();
        self.collect(tables, entered, left);
        self.counters.solves += 1;
        if self.unfilled.is_empty() {
            // Nothing is in their way.
            self.rates.extend(self.met.iter().map(|&activity| (activity, tables.activities[activity].limit)));
            return;
        }
        self.counters.contended_solves += 1;
        self.counters.activities += self.met.len() as u64;
        self.counters.resources += self.unfilled.len() as u64;
        self.limits.clear();
        self.limits.extend(self.met.iter().map(|&activity| (tables.activities[activity].limit, activity)));
        self.limits.sort_unstable_by(|a, b| b.cmp(a));
        while let Some((rate, bottleneck)) = self.lowest() {
            self.counters.rounds += 1;
            if self.fix_limited(tables, rate) {
                // The bottleneck may have become another.
                self.unfilled.push(Reverse((rate, bottleneck)));
            } else {
                self.fix_users(tables, bottleneck, rate);
            }
        }
        self.fix_limited(tables, Rate::MAX);
    }

    /// Meets an activity.
    fn meet(&mut self, tables: &Tables, activity: ActivityId) {
        let mark = &mut self.marks[activity];
        if mark.met != self.epoch && tables.activities[activity].is_active {
            mark.met = self.epoch;
            self.met.push(activity);
        }
    }

    /// Collects the component.
    fn collect(&mut self, tables: &Tables, entered: &[ActivityId], left: &[ResourceId]) {
        while self.levels.len() < tables.resources.len() {
            self.levels.push(Level::default());
        }
        while self.marks.len() < tables.activities.len() {
            self.marks.push(Mark::default());
        }
        self.met.clear();
        self.unfilled.clear();
        for &activity in entered {
            self.meet(tables, activity);
        }
        for &resource in left {
            for user in &tables.resources[resource].users {
                self.meet(tables, user.activity);
            }
        }
        let mut visited = 0;
        while let Some(&activity) = self.met.get(visited) {
            visited += 1;
            for usage in tables.uses(activity) {
                let resource = &tables.resources[usage.resource];
                if !resource.is_contended() || self.levels[usage.resource].epoch == self.epoch {
                    continue;
                }
                let mut weight = 0;
                for user in &resource.users {
                    if tables.activities[user.activity].is_active {
                        weight += user.weight;
                        self.meet(tables, user.activity);
                    }
                }
                let level = Level { epoch: self.epoch, slack: resource.capacity, weight, is_stale: false };
                self.levels[usage.resource] = level;
                self.unfilled.extend(level.rate().map(|rate| Reverse((rate, usage.resource))));
            }
        }
    }

    /// Takes the resource that is full at the lowest rate, of several the first, and the rate.
    fn lowest(&mut self) -> Option<(Rate, ResourceId)> {
        while let Some(Reverse((rate, resource))) = self.unfilled.pop() {
            let level = &mut self.levels[resource];
            if !std::mem::take(&mut level.is_stale) {
                return Some((rate, resource));
            }
            self.unfilled.extend(level.rate().map(|rate| Reverse((rate, resource))));
        }
        None
    }

    /// Fixes the activities that are not yet fixed and have limits no higher than `rate`; whether there are any. The rates
    /// of the resources only rise, so these activities reach their limits before any resource is full.
    fn fix_limited(&mut self, tables: &Tables, rate: Rate) -> bool {
        let mut are_limited = false;
        while let Some((limit, activity)) = self.limits.pop_if(|(limit, _)| *limit <= rate) {
            if self.marks[activity].fixed != self.epoch {
                self.fix(tables, activity, limit);
                are_limited = true;
            }
        }
        are_limited
    }

    /// Fixes all users of a resource that are not yet fixed.
    fn fix_users(&mut self, tables: &Tables, bottleneck: ResourceId, level: Rate) {
        for user in &tables.resources[bottleneck].users {
            if tables.activities[user.activity].is_active && self.marks[user.activity].fixed != self.epoch {
                self.fix(tables, user.activity, level);
            }
        }
    }

    fn fix(&mut self, tables: &Tables, activity: ActivityId, rate: Rate) {
        self.marks[activity].fixed = self.epoch;
        self.rates.push((activity, rate));
        for usage in tables.uses(activity) {
            let level = &mut self.levels[usage.resource];
            if level.epoch == self.epoch {
                // The rate is no higher than that at which any resource is full: this takes no more than the slack.
                level.slack -= usage.weight * rate.units();
                level.weight -= usage.weight;
                level.is_stale = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn working_memory_follows_the_tables() {
        let mut tables = Tables::default();
        let mut filling = Filling::default();
        let first = tables.add_activity(&[]).expect("no resources");
        tables.enter(first, Rate::from_units(5));
        filling.solve(&tables, &[first], &[]);
        assert_eq!(filling.rates, [(first, Rate::from_units(5))]);
        let second = tables.add_activity(&[]).expect("no resources");
        tables.enter(second, Rate::MAX);
        filling.solve(&tables, &[second], &[]);
        assert_eq!(filling.rates, [(second, Rate::MAX)]);
        assert_eq!((filling.marks.len(), filling.levels.len()), (2, 0));
    }
}
