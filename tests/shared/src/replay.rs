//! A recorded period of the transfer groups of a section, replayed through max-min fair sharing.
//!
//! A transfer group is one activity. Its amount is the flits of its longest flow, its weight on a link or port what one of
//! these flits costs all its flows there, its cap the rate of its unit. The recorded starts are kept: a transfer begins
//! when it did, or later if the preceding transfer of its group is not through. A transfer that has been slowed when its
//! unit is done sends the rest as fast as its links allow.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rdusim_base::index::Id;
use rdusim_engines::fluid::{ActivityId, Completion, Fluid, Rate, ResourceId, Usage};

/// Capacity of a link or port a tick at so many percent, in the unit of the recorded weights.
pub const fn capacity(percent: u64) -> u32 {
    ((percent << 16) / 100) as u32
}

/// What a transfer group moves at once.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    /// The transfer group, as an index into those of the recording.
    pub group: usize,
    /// When it begins, from the beginning of the period.
    pub at: u64,
    /// Flits of its longest flow.
    pub flits: u64,
    /// Ticks that its slowest link or port takes at least.
    pub least: u64,
    /// Ticks that its unit takes.
    pub paced: u64,
    /// Ticks from its beginning to its end as the event engine booked it.
    pub booked: u64,
}

impl Transfer {
    /// Ticks that it takes without others.
    pub fn alone(&self) -> u64 {
        self.least.max(self.paced)
    }
}

/// One period of a section in steady state.
#[derive(Debug, Default)]
pub struct Recording {
    /// Ticks from the beginning of a period to that of the next.
    pub period_ticks: u64,
    /// Firings of lockstep groups.
    pub firings: u64,
    /// Links and ports that transfers share.
    pub resources: usize,
    /// Contended links and ports of each group, with their weights.
    pub groups: Vec<Vec<(usize, u32)>>,
    /// In the order in which they begin.
    pub transfers: Vec<Transfer>,
}

impl Recording {
    /// Reads the lines of a file; `None` if it is no recording.
    pub fn read(text: &str) -> Option<Self> {
        let mut recording = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            let kind = words.next()?;
            if kind == "group" {
                let uses = words.map(|word| {
                    let (resource, weight) = word.split_once(':')?;
                    Some((resource.parse().ok()?, weight.parse().ok()?))
                });
                recording.groups.push(uses.collect::<Option<_>>()?);
                continue;
            }
            let numbers: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
            match (kind, &numbers[..]) {
                ("period_ticks", &[ticks]) => recording.period_ticks = ticks,
                ("firings", &[firings]) => recording.firings = firings,
                ("resources", &[resources]) => recording.resources = resources as usize,
                ("transfer", &[group, at, flits, least, paced, booked]) => {
                    recording.transfers.push(Transfer { group: group as usize, at, flits, least, paced, booked });
                }
                _ => return None,
            }
        }
        let is_known = |transfer: &Transfer| transfer.group < recording.groups.len();
        recording.transfers.iter().all(is_known).then_some(recording)
    }
}

/// A transfer of a period: number of the period, and of the transfer in it.
type Sent = (u64, usize);

/// A recording under way.
pub struct Replay<'a> {
    recording: &'a Recording,
    /// The solver, with the transfers under way as its activities.
    pub fluid: Fluid,
    activities: Vec<ActivityId>,
    /// The links and ports, in the order of their indices in the recording.
    pub links: Vec<ResourceId>,
    /// The transfer under way of each group, and those that wait for it.
    current: Vec<Option<Sent>>,
    waiting: Vec<VecDeque<Sent>>,
    /// When the units of transfers under way are done.
    units: BinaryHeap<Reverse<(u64, usize, Sent)>>,
    next: Sent,
    completed: Vec<Completion>,
    /// Transfers that found the one before them under way.
    pub waits: u64,
    /// Activities, summed over ticks.
    pub active_ticks: u64,
}

impl<'a> Replay<'a> {
    /// At the beginning of the first period. `percent` is the rate of links and ports, of what they have.
    pub fn new(recording: &'a Recording, percent: u64) -> Self {
        let mut fluid = Fluid::default();
        let links: Vec<ResourceId> = (0..recording.resources).map(|_| fluid.add_resource(capacity(percent))).collect();
        let usage = |&(resource, weight): &(usize, u32)| Usage { resource: links[resource], weight };
        let usages = |uses: &Vec<(usize, u32)>| uses.iter().map(usage).collect::<Vec<Usage>>();
        let activity = |uses| fluid.add_activity(&usages(uses)).expect("the resources were added");
        Self {
            activities: recording.groups.iter().map(activity).collect(),
            recording,
            fluid,
            links,
            current: vec![None; recording.groups.len()],
            waiting: vec![VecDeque::new(); recording.groups.len()],
            units: BinaryHeap::new(),
            next: (0, 0),
            completed: Vec::new(),
            waits: 0,
            active_ticks: 0,
        }
    }

    fn begins(&self, (period, transfer): Sent) -> u64 {
        period * self.recording.period_ticks + self.recording.transfers[transfer].at
    }

    /// Goes on to the end of a period, number `period` from 0, but does not begin the next; `end` hears of every transfer
    /// that is through, and when. `each` sees the replay after every event.
    pub fn run(&mut self, period: u64, mut end: impl FnMut(Sent, u64), mut each: impl FnMut(&mut Self)) {
        let until = (period + 1) * self.recording.period_ticks;
        loop {
            let next = self.begins(self.next);
            let unit = self.units.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
            let through = self.fluid.next_completion().map_or(u64::MAX, |next| next.at);
            let at = next.min(unit).min(through).min(until);
            self.active_ticks += self.fluid.active() as u64 * (at - self.fluid.now());
            let mut completed = std::mem::take(&mut self.completed);
            self.fluid.advance(at, &mut completed);
            for Completion { activity, at } in completed.drain(..) {
                let group = activity.index();
                if let Some(sent) = self.current[group].take() {
                    end(sent, at);
                }
                if let Some(sent) = self.waiting[group].pop_front() {
                    self.begin(sent);
                }
            }
            self.completed = completed;
            if at == until {
                return;
            }
            while let Some(&Reverse((_, group, sent))) = self.units.peek().filter(|unit| unit.0.0 <= at) {
                self.units.pop();
                if self.current[group] == Some(sent) {
                    let Transfer { flits, least, .. } = self.recording.transfers[sent.1];
                    self.fluid.set_cap(self.activities[group], Some(Rate::to_finish(flits, least)));
                }
            }
            while self.begins(self.next) == at {
                let (period, transfer) = self.next;
                let group = self.recording.transfers[transfer].group;
                if self.current[group].is_some() {
                    self.waiting[group].push_back(self.next);
                    self.waits += 1;
                } else {
                    self.begin(self.next);
                }
                let is_last = transfer + 1 == self.recording.transfers.len();
                self.next = if is_last { (period + 1, 0) } else { (period, transfer + 1) };
            }
            each(self);
        }
    }

    fn begin(&mut self, sent: Sent) {
        let Transfer { group, flits, least, paced, .. } = self.recording.transfers[sent.1];
        let done = self.begins(sent) + paced;
        // A unit whose transfer begins late has worked meanwhile.
        let ticks = done.saturating_sub(self.fluid.now()).max(least);
        self.fluid.start(self.activities[group], flits, Some(Rate::to_finish(flits, ticks))).expect("it is not active");
        self.current[group] = Some(sent);
        if ticks > least {
            self.units.push(Reverse((done, group, sent)));
        }
    }

    /// All that the rest of a replay depends on, seen from now.
    pub fn state(&self) -> Vec<u64> {
        let mut words = Vec::new();
        self.fluid.write_state(&mut words);
        let ago = |sent: &Sent| [self.fluid.now() - self.begins(*sent), sent.1 as u64];
        words.extend(self.current.iter().flatten().chain(self.waiting.iter().flatten()).flat_map(ago));
        let mut units: Vec<(u64, usize)> = self.units.iter().map(|Reverse((at, group, _))| (*at, *group)).collect();
        units.sort_unstable();
        words.extend(units.iter().flat_map(|&(at, group)| [at.wrapping_sub(self.fluid.now()), group as u64]));
        words
    }
}
