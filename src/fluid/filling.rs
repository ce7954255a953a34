//! Progressive filling of the part of the system that a change can reach.
//!
//! A resource limits nobody as long as its users fit on it at their own limits. So only *contended* resources connect
//! activities, and a change is solved again within the connected component of contended resources around it. The rates
//! elsewhere are those that filling the whole system would give.

use crate::index::IndexVec;

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
    /// The rate at which these would fill the resource, in units of 2^-32 a tick.
    rate: u64,
    /// Whether `rate` is that of another `slack` and `weight`.
    is_stale: bool,
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
    /// Activities of the component: those met, later those not yet fixed.
    open: Vec<ActivityId>,
    /// Contended resources of the component: those met, later those with users that are not yet fixed.
    unfilled: Vec<ResourceId>,
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
        if !self.unfilled.is_empty() {
            self.counters.contended_solves += 1;
            self.counters.activities += self.open.len() as u64;
            self.counters.resources += self.unfilled.len() as u64;
        }
        while !self.open.is_empty() {
            let Some((level, bottleneck)) = self.lowest() else {
                // Nothing is in the way of those that are not yet fixed.
                self.fix_limited(tables, Rate::MAX);
                break;
            };
            self.counters.rounds += 1;
            if !self.fix_limited(tables, level) {
                self.fix_users(tables, bottleneck, level);
            }
        }
    }

    /// Meets an activity.
    fn meet(&mut self, tables: &Tables, activity: ActivityId) {
        let mark = &mut self.marks[activity];
        if mark.met != self.epoch && tables.activities[activity].is_active {
            mark.met = self.epoch;
            self.open.push(activity);
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
        self.open.clear();
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
        while let Some(&activity) = self.open.get(visited) {
            visited += 1;
            for usage in tables.uses(activity) {
                let resource = &tables.resources[usage.resource];
                if !resource.is_contended() || self.levels[usage.resource].epoch == self.epoch {
                    continue;
                }
                self.unfilled.push(usage.resource);
                let mut weight = 0;
                for user in &resource.users {
                    if tables.activities[user.activity].is_active {
                        weight += user.weight;
                        self.meet(tables, user.activity);
                    }
                }
                let slack = resource.capacity;
                self.levels[usage.resource] = Level { epoch: self.epoch, slack, weight, rate: 0, is_stale: true };
            }
        }
    }

    /// The lowest level among resources with users that are not yet fixed, and the first resource that has it.
    fn lowest(&mut self) -> Option<(Rate, ResourceId)> {
        let levels = &mut self.levels;
        self.unfilled.retain(|&resource| levels[resource].weight > 0);
        let level = |&resource: &ResourceId| {
            let row = &mut levels[resource];
            if row.is_stale {
                row.rate = row.slack / row.weight;
                row.is_stale = false;
            }
            (Rate::from_units(row.rate), resource)
        };
        self.unfilled.iter().map(level).min()
    }

    /// Fixes the activities whose own limit is no higher than `level`; whether there are any. Levels only rise, so these
    /// reach their limits before any resource is full.
    fn fix_limited(&mut self, tables: &Tables, level: Rate) -> bool {
        let mut open = std::mem::take(&mut self.open);
        let mut are_limited = false;
        open.retain(|&activity| {
            let limit = tables.activities[activity].limit;
            let is_open = self.marks[activity].fixed != self.epoch;
            if is_open && limit <= level {
                self.fix(tables, activity, limit);
                are_limited = true;
                return false;
            }
            is_open
        });
        self.open = open;
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
                // The rate is no higher than the level of any resource that is not full: no more than the slack.
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
