//! Activities in time: amounts, rates, completions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rdusim_base::index::{Id, IndexVec};

use super::filling::{Counters, Filling};
use super::rate::{RATE_BITS, Rate};
use super::tables::{ActivityId, FluidError, ResourceId, Tables, Usage};

/// The end of an activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Completion {
    /// When its amount has been moved, rounded up to a tick.
    pub at: u64,
    /// The activity.
    pub activity: ActivityId,
}

/// How far an active activity has come.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// What was left at `since`, in units of 2^-32 of its amount.
    left: u128,
    /// When its rate was last changed.
    since: u64,
    rate: Rate,
    /// When it completes at this rate; `None` if never.
    due: Option<u64>,
}

impl Progress {
    fn left_at(&self, now: u64) -> u128 {
        self.left.saturating_sub(self.rate.moved(now - self.since))
    }
}

/// Outdated entries of the queue of completions are removed when they are more than this many times the activities.
const MOST_OUTDATED: usize = 4;

/// Resources and the activities that share them, at one time. Ticks are whole numbers of any unit of time.
///
/// Rates are found when they are asked for: all starts and stops at one tick are solved together.
///
/// ```
/// use rdusim_engines::fluid::{Completion, Fluid, Usage};
///
/// let mut fluid = Fluid::default();
/// // A link that moves 4 bytes a tick, and two flows over it.
/// let link = fluid.add_resource(4);
/// let flows = [0, 1].map(|_| fluid.add_activity(&[Usage { resource: link, weight: 1 }]));
/// let [Ok(first), Ok(second)] = flows else { panic!("the link exists") };
/// fluid.start(first, 100, None)?;
/// fluid.start(second, 300, None)?;
/// // Each gets 2 bytes a tick until the first is through at 50; the other 200 bytes take 50 ticks.
/// let mut completed = Vec::new();
/// fluid.advance(1_000, &mut completed);
/// assert_eq!(completed, [Completion { at: 50, activity: first }, Completion { at: 100, activity: second }]);
/// # Ok::<(), rdusim_engines::fluid::FluidError>(())
/// ```
#[derive(Debug, Default)]
pub struct Fluid {
    tables: Tables,
    filling: Filling,
    now: u64,
    progress: IndexVec<ActivityId, Progress>,
    active: usize,
    /// Completions, with outdated entries: valid is what agrees with `progress`.
    queue: BinaryHeap<Reverse<Completion>>,
    /// Started since the last solve.
    entered: Vec<ActivityId>,
    /// Contended resources that activities have left since the last solve.
    left: Vec<ResourceId>,
}

impl Fluid {
    /// Adds a resource with a capacity for each tick, in units of weight times amount.
    pub fn add_resource(&mut self, capacity: u32) -> ResourceId {
        self.tables.add_resource(capacity)
    }

    /// Adds an activity, not yet active, that uses these resources; the weights of several uses of one resource add up.
    /// An activity is kept for good, so one that recurs should be started again rather than added again.
    ///
    /// # Errors
    ///
    /// A resource does not exist.
    pub fn add_activity(&mut self, usages: &[Usage]) -> Result<ActivityId, FluidError> {
        let activity = self.tables.add_activity(usages)?;
        self.progress.push(Progress::default());
        Ok(activity)
    }

    /// Starts an activity now, with an amount to move and, if it has one, a rate it never exceeds. An amount of 0 completes
    /// at once.
    ///
    /// # Errors
    ///
    /// The activity does not exist, or is active.
    pub fn start(&mut self, activity: ActivityId, amount: u64, cap: Option<Rate>) -> Result<(), FluidError> {
        let Some(row) = self.tables.activities.get(activity) else {
            return Err(FluidError::UnknownActivity(activity));
        };
        if row.is_active {
            return Err(FluidError::AlreadyActive(activity));
        }
        self.tables.enter(activity, cap.unwrap_or(Rate::MAX));
        let left = u128::from(amount) << RATE_BITS;
        self.progress[activity] = Progress { left, since: self.now, ..Progress::default() };
        self.active += 1;
        self.entered.push(activity);
        Ok(())
    }

    /// Changes the rate that an active activity never exceeds, from now on; whether it is active.
    pub fn set_cap(&mut self, activity: ActivityId, cap: Option<Rate>) -> bool {
        let is_active = self.is_active(activity);
        if is_active {
            self.tables.leave(activity, &mut self.left);
            self.tables.enter(activity, cap.unwrap_or(Rate::MAX));
            self.entered.push(activity);
        }
        is_active
    }

    /// Stops an activity before it completes: what is left of its amount, rounded up. `None` if it is not active.
    pub fn stop(&mut self, activity: ActivityId) -> Option<u64> {
        let left = self.left(activity)?;
        self.end(activity);
        Some(left)
    }

    /// What is left of the amount of an active activity now, rounded up.
    pub fn left(&self, activity: ActivityId) -> Option<u64> {
        if !self.is_active(activity) {
            return None;
        }
        let left = self.progress[activity].left_at(self.now).div_ceil(1 << RATE_BITS);
        u64::try_from(left).ok()
    }

    /// The time, in ticks.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// How many activities are active.
    pub fn active(&self) -> usize {
        self.active
    }

    /// The rate of an active activity; [`Rate::ZERO`] of any other.
    pub fn rate(&mut self, activity: ActivityId) -> Rate {
        self.solve();
        if self.is_active(activity) { self.progress[activity].rate } else { Rate::ZERO }
    }

    /// What active activities take of a resource, in units of 2^-32 of its capacity a tick.
    pub fn load(&mut self, resource: ResourceId) -> u64 {
        self.solve();
        let Some(row) = self.tables.resources.get(resource) else { return 0 };
        let active = row.users.iter().filter(|user| self.tables.activities[user.activity].is_active);
        active.map(|user| user.weight * self.progress[user.activity].rate.units()).sum()
    }

    /// The next completion, if nothing else starts or stops before: the earliest, of those the first activity. `None` if
    /// no active activity ever completes.
    pub fn next_completion(&mut self) -> Option<Completion> {
        self.solve();
        while let Some(&Reverse(next)) = self.queue.peek() {
            if self.is_valid(next) {
                return Some(next);
            }
            self.queue.pop();
        }
        None
    }

    /// Lets time pass up to `to`; of what is due by then, `to` included, appends the completions in order of time, then of
    /// activities. A time that has passed changes nothing.
    pub fn advance(&mut self, to: u64, completed: &mut Vec<Completion>) {
        while let Some(next) = self.next_completion().filter(|next| next.at <= to) {
            // All that are due at one time, before anything is solved again.
            self.now = self.now.max(next.at);
            while let Some(&Reverse(next)) = self.queue.peek().filter(|next| next.0.at <= self.now) {
                self.queue.pop();
                if self.is_valid(next) {
                    completed.push(next);
                    self.end(next.activity);
                }
            }
        }
        self.now = self.now.max(to);
    }

    /// Appends all that the future depends on, relative to now: of each active activity its number, what is left, and its
    /// limit. Equal words, and equal starts and stops from then on, give equal completions.
    pub fn write_state(&self, words: &mut Vec<u64>) {
        for (id, activity) in self.tables.activities.iter_enumerated().filter(|(_, row)| row.is_active) {
            let left = self.progress[id].left_at(self.now);
            words.extend([id.index() as u64, (left >> 64) as u64, left as u64, activity.limit.units()]);
        }
    }

    /// How much work the solver has done so far.
    pub fn counters(&self) -> Counters {
        self.filling.counters
    }

    fn is_active(&self, activity: ActivityId) -> bool {
        self.tables.activities.get(activity).is_some_and(|row| row.is_active)
    }

    fn is_valid(&self, completion: Completion) -> bool {
        self.progress[completion.activity].due == Some(completion.at)
    }

    fn end(&mut self, activity: ActivityId) {
        self.tables.leave(activity, &mut self.left);
        self.progress[activity] = Progress::default();
        self.active -= 1;
    }

    /// Brings rates and completions up to date.
    fn solve(&mut self) {
        if self.entered.is_empty() && self.left.is_empty() {
            return;
        }
        self.filling.solve(&self.tables, &self.entered, &self.left);
        self.entered.clear();
        self.left.clear();
        let now = self.now;
        for &(activity, rate) in &self.filling.rates {
            let progress = &mut self.progress[activity];
            // What was just started has no completion even if its rate is 0.
            if progress.rate == rate && progress.due.is_some() {
                continue;
            }
            self.filling.counters.changes += 1;
            let left = progress.left_at(now);
            let due = rate.ticks_for(left).and_then(|ticks| now.checked_add(ticks));
            *progress = Progress { left, since: now, rate, due };
            self.queue.extend(due.map(|at| Reverse(Completion { at, activity })));
        }
        if self.queue.len() > MOST_OUTDATED * (self.active + 1) {
            let progress = &self.progress;
            self.queue.retain(|&Reverse(next)| progress[next.activity].due == Some(next.at));
        }
    }
}
