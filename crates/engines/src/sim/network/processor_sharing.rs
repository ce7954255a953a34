//! One link or port as a processor-sharing server: its packets are served round-robin, so that every flow receives an
//! equal share of the rate unless it demands less (max-min fairness on one resource; Hahne 1991, Kleinrock 1976 vol. 2).
//!
//! Invariant: the rates of the active transfers never add up to more than [`CAPACITY`], so that no interval moves more
//! than the rate times its length. Work is counted in ticks of the resource times [`CAPACITY`].

use crate::sim::clock::Clock;
use rdusim_base::units::{index_u8, index_u32, saturating_u32};
use rdusim_cost::cost::Ticks;

use super::transfer_group::Work;

/// The whole rate of a resource, in fixed point.
pub(super) const CAPACITY: u64 = 1 << 16;
/// Bits of [`CAPACITY`].
const BITS: u32 = CAPACITY.trailing_zeros();

/// Transfers that a resource keeps individually; bounds the cost of an arrival.
const MOST_TRANSFERS: usize = 6;
/// Aggregates that further transfers are added to.
const MOST_AGGREGATES: usize = 2;
/// Rows of both kinds.
const MOST: usize = MOST_TRANSFERS + MOST_AGGREGATES;
/// Stands for the transfer group of an aggregate.
const AGGREGATE: u32 = u32::MAX;

/// A transfer under way over one resource, or an aggregate of several.
#[derive(Debug, Clone, Copy, Default)]
struct Active {
    /// When it begins, if that is still to come.
    from: Ticks,
    /// When it would end at its own rate.
    due: Ticks,
    /// When it ends, as far as the transfers known so far tell.
    until: Ticks,
    /// Work left: ticks times [`CAPACITY`].
    left: u64,
    /// The transfer group, or [`AGGREGATE`].
    group: u32,
    /// How many of its flows use the resource.
    flows: u32,
    /// The rate it demands, of [`CAPACITY`].
    rate: u32,
}

impl Active {
    /// Ticks of service that it receives from when it `begins` to compete until `end`, beside one with `own` work: round-robin
    /// service gives it no more than so many flows of that work.
    fn receives(&self, own: Work, begins: Ticks, end: Ticks) -> Ticks {
        // Among others that delay it, its mean rate.
        let is_undelayed = self.until == self.due || begins <= self.from;
        let rate = if is_undelayed { u64::from(self.rate) } else { self.left / (self.until - self.from).max(1) };
        let time = self.until.min(end).saturating_sub(begins);
        ((rate * time).min(self.left) >> BITS).min(own.of_flows(u64::from(self.flows)))
    }

    /// Work left at a time before it ends, where all have had the rate that they demand. Several transfers in a row, which demand
    /// the rate of the fastest of them, end when the last does: they take what they need on average, so that the state of a stream
    /// that never ends comes back to where it was.
    fn left_undelayed(&self, now: Ticks) -> u64 {
        let (time, whole) = (now.saturating_sub(self.from), self.until - self.from);
        let rate = u64::from(self.rate);
        if rate * whole <= self.left + CAPACITY {
            return self.left.saturating_sub(rate * time);
        }
        let done = u128::from(self.left) * u128::from(time) / u128::from(whole.max(1));
        self.left.saturating_sub(u64::try_from(done).unwrap_or(u64::MAX))
    }

    /// Work that it is late with when `left` is what remains: it takes that as soon as it can.
    fn backlog(&self, left: u64, at: Ticks) -> u64 {
        left.saturating_sub(u64::from(self.rate) * self.due.saturating_sub(at))
    }
}

/// What a transfer brings to a resource.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    /// Its transfer group.
    pub group: usize,
    /// When it begins, and when it would end alone.
    pub span: (Ticks, Ticks),
    /// Ticks of work.
    pub work: Ticks,
    /// Its flows here.
    pub flows: u32,
}

/// When the latest transfer of each transfer group ends that competitors have delayed since it was sent.
#[derive(Debug)]
pub(super) struct DelayedUntil(pub Vec<Ticks>);

impl DelayedUntil {
    /// No transfer group is delayed yet.
    pub(super) fn none(groups: usize) -> Self {
        Self(vec![0; groups])
    }

    fn add(&mut self, group: u32, end: Ticks) {
        // An aggregate stands for no group.
        if let Some(until) = self.0.get_mut(group as usize) {
            *until = end.max(*until);
        }
    }
}

/// The transfers under way over one resource; kept in place, because every transfer visits every resource of its routes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ProcessorSharing {
    /// The time of the state.
    at: Ticks,
    /// When all have ended, as of the latest arrival.
    last_end: Ticks,
    totals: Totals,
    count: u32,
    /// How many of the rows are aggregates.
    aggregates: u32,
    rows: [Active; MOST],
}

impl ProcessorSharing {
    fn active(&self) -> &[Active] {
        &self.rows[..self.count as usize]
    }

    fn active_mut(&mut self) -> &mut [Active] {
        &mut self.rows[..self.count as usize]
    }

    fn sum_up(&self) -> Totals {
        let mut totals = Totals::default();
        self.active().iter().for_each(|active| totals.add(active, self.at));
        totals
    }

    /// Serves all until `to`, or until all have ended: reduces the work `left` and tells `ends` which ends when. Returns the
    /// rows served, summed over the intervals.
    fn serve(&self, left: &mut [u64; MOST], to: Ticks, mut ends: impl FnMut(usize, Ticks)) -> u64 {
        let (mut at, mut served) = (self.at, 0);
        let mut interval = Interval::default();
        while at < to {
            let begins = interval.begin(self.active(), at, left);
            served += u64::from(self.count);
            if begins >= to && interval.is_uncontended() {
                for (i, rate) in interval.rates() {
                    if left[i] <= rate.saturating_mul(to - at) {
                        ends(i, at + left[i].div_ceil(rate));
                    }
                    left[i] = left[i].saturating_sub(rate.saturating_mul(to - at));
                }
                return served;
            }
            interval.share();
            let time = interval.length(begins.min(to) - at, self.active(), at, left);
            if time == Ticks::MAX - at {
                return served;
            }
            for (i, rate) in interval.rates() {
                left[i] = left[i].saturating_sub(rate * time);
                if left[i] == 0 {
                    ends(i, at + time);
                }
            }
            at += time;
        }
        served
    }

    /// Advances the state to `now`, and removes the transfers that have ended; the others stay in order. Returns the rows
    /// served, summed over the intervals.
    pub(super) fn advance(&mut self, now: Ticks) -> u64 {
        if now <= self.at {
            return 0;
        }
        if self.last_end <= now {
            (self.count, self.aggregates) = (0, 0);
        }
        if self.count == 0 {
            self.at = now;
            return 0;
        }
        let (mut served, mut rows) = (None, u64::from(self.count));
        if self.totals.is_contended() {
            let mut left = self.rows.map(|active| active.left);
            rows += self.serve(&mut left, now, |_, _| {});
            served = Some(left);
        }
        self.at = now;
        let (mut kept, mut totals) = (0, Totals::default());
        for i in 0..self.count as usize {
            let mut active = self.rows[i];
            let left = match served {
                Some(left) => left[i],
                None if active.until <= now => 0,
                None => active.left_undelayed(now),
            };
            // To a whole tick: a run that repeats itself comes back to the same states.
            active.left = (left + CAPACITY / 2) >> BITS << BITS;
            active.from = active.from.max(now);
            if active.left == 0 {
                self.aggregates -= u32::from(active.group == AGGREGATE);
                continue;
            }
            totals.add(&active, now);
            self.rows[kept] = active;
            kept += 1;
        }
        (self.count, self.totals) = (index_u32(kept), totals);
        rows
    }

    /// How long the work of a transfer of `group` lasts from `at` on beside the others: each receives as much for each of
    /// its flows, unless it has less work or demands less. A result below `least` need not be exact.
    pub(super) fn lasts(&self, group: usize, at: Ticks, own: Work, least: Ticks) -> Ticks {
        if self.has_room_for(own, least) {
            return own.ticks;
        }
        let competing = || {
            let begun = self.active().iter().map(|active| (active, at.max(active.from)));
            begun.filter(|&(active, begins)| active.until > begins && active.group as usize != group)
        };
        let received = |end| competing().map(|(active, begins)| active.receives(own, begins, end)).sum::<Ticks>();
        let most = own.ticks + received(Ticks::MAX);
        if most <= least || competing().all(|(active, _)| active.until - at <= most) {
            return most;
        }
        // In a shorter time they receive no more.
        own.ticks + received(at + most)
    }

    /// Whether the rates of all others leave so much of the capacity that the work is done within `least`.
    fn has_room_for(&self, own: Work, least: Ticks) -> bool {
        let Totals { rates, has_backlog, .. } = if self.count == 0 { Totals::default() } else { self.totals };
        !has_backlog && own.ticks * CAPACITY <= CAPACITY.saturating_sub(rates) * least
    }

    /// Adds a transfer, which slows those under way. Writes to `delayed` which of them end later, and when. Returns the rows
    /// served, summed over the intervals.
    pub(super) fn enter(&mut self, demand: Demand, delayed: &mut DelayedUntil) -> u64 {
        let Demand { group, span: (mut from, until), work, flows } = demand;
        let mut left = work << BITS;
        let rate = left.div_ceil(until - from).min(CAPACITY);
        if from < self.at {
            // What it has moved before the time of the state, of what the others left.
            let taken: u64 = self.active().iter().filter(|s| s.from <= self.at).map(|s| u64::from(s.rate)).sum();
            left = left.saturating_sub(rate.min(CAPACITY.saturating_sub(taken)) * (self.at - from));
            from = self.at;
            if left == 0 {
                return 0;
            }
        }
        let mut rows = u64::from(self.count);
        let until = until.max(from + 1);
        // The state stays as far back as there are rows for it.
        while (self.count - self.aggregates) as usize >= MOST_TRANSFERS
            && self.totals.first_end <= from
            && self.totals.first_end > self.at
        {
            rows += self.advance(self.totals.first_end);
        }
        self.add(Active { from, due: until, until, left, group: index_u32(group), flows, rate: rate as u32 });
        if self.totals.is_contended() {
            let mut left = self.rows.map(|active| active.left);
            let mut ends = [0; MOST];
            rows += self.serve(&mut left, Ticks::MAX, |i, at| ends[i] = at);
            for (active, end) in self.active_mut().iter_mut().zip(ends) {
                if end > active.until {
                    delayed.add(active.group, end);
                }
                active.until = end;
            }
            self.totals = self.sum_up();
        }
        self.last_end = self.totals.last_end;
        rows
    }

    /// Adds a transfer: to what its group still has to move, or to the aggregate that ends at about the same time, if
    /// there is no row for it.
    fn add(&mut self, new: Active) {
        let own = self.active().iter().rposition(|active| active.group == new.group);
        if let Some(own) = own {
            let own = &mut self.rows[own];
            if new.from <= own.until || own.from > self.at {
                own.left += new.left;
                own.until = own.until.max(new.until);
                own.due = own.due.max(new.due);
                own.rate = own.rate.max(new.rate);
                own.flows = new.flows;
                self.totals = self.sum_up();
                return;
            }
        }
        let is_aggregate = (self.count - self.aggregates) as usize >= MOST_TRANSFERS;
        if !is_aggregate || (self.aggregates as usize) < MOST_AGGREGATES {
            let group = if is_aggregate { AGGREGATE } else { new.group };
            self.rows[self.count as usize] = Active { group, ..new };
            if self.count == 0 {
                self.totals = Totals::default();
            }
            self.totals.add(&new, self.at);
            self.count += 1;
            self.aggregates += u32::from(is_aggregate);
            return;
        }
        let aggregates = self.rows.iter_mut().filter(|active| active.group == AGGREGATE);
        if let Some(aggregate) = aggregates.min_by_key(|aggregate| aggregate.until.abs_diff(new.until)) {
            aggregate.from = aggregate.from.min(new.from);
            aggregate.until = aggregate.until.max(new.until);
            aggregate.due = aggregate.due.max(new.due);
            aggregate.left += new.left;
            aggregate.flows += new.flows;
            aggregate.rate = (aggregate.rate + new.rate).min(saturating_u32(CAPACITY));
        }
        self.totals = self.sum_up();
    }

    /// Appends all that the rest of a run depends on, relative to the clock's now.
    pub(super) fn write_state(&self, clock: Clock, words: &mut Vec<u64>) {
        if self.count == 0 || clock.is_past(self.last_end) {
            words.push(0);
            return;
        }
        words.extend([u64::from(self.count), clock.exact(self.at), clock.exact(self.last_end)]);
        for &Active { from, due, until, left, group, flows, rate } in self.active() {
            // What is late has all its work as backlog, however late it is.
            let is_late = due <= self.at && due < until;
            words.extend([clock.exact(from), if is_late { u64::MAX } else { clock.exact(due) }, clock.exact(until)]);
            words.extend([left, u64::from(group)]);
            words.push(u64::from(flows) << 32 | u64::from(rate));
        }
    }

    /// Moves the state to a later time; relative to that time it is the same.
    pub(super) fn shift(&mut self, time: Ticks) {
        self.at += time;
        self.last_end += time;
        self.totals.first_end = self.totals.first_end.saturating_add(time);
        self.totals.last_end += time;
        for active in self.active_mut() {
            active.from += time;
            active.due += time;
            active.until += time;
        }
    }
}

/// Totals over the active transfers.
#[derive(Debug, Clone, Copy)]
struct Totals {
    /// Sum of the demanded rates.
    rates: u64,
    /// Whether any has a backlog of a tick.
    has_backlog: bool,
    first_end: Ticks,
    last_end: Ticks,
}

impl Default for Totals {
    fn default() -> Self {
        Self { rates: 0, has_backlog: false, first_end: Ticks::MAX, last_end: 0 }
    }
}

impl Totals {
    /// Whether the demands exceed the capacity, or some work is late.
    fn is_contended(&self) -> bool {
        self.rates > CAPACITY || self.has_backlog
    }

    fn add(&mut self, active: &Active, at: Ticks) {
        self.rates += u64::from(active.rate);
        self.has_backlog |= active.backlog(active.left, at) >= CAPACITY;
        self.first_end = self.first_end.min(active.until);
        self.last_end = self.last_end.max(active.until);
    }
}

/// An interval in which the rate of each transfer is constant.
#[derive(Debug, Default)]
struct Interval {
    /// Transfers that have begun and have work left.
    count: usize,
    /// Their rows.
    rows: [u8; MOST],
    flows: [u32; MOST],
    /// Work that each is late with.
    backlogs: [u64; MOST],
    /// The rate that each demands, then the one it receives.
    rates: [u32; MOST],
}

impl Interval {
    /// Collects the transfers that have begun at a time and have work left. Returns when the next one begins.
    fn begin(&mut self, active: &[Active], at: Ticks, left: &[u64; MOST]) -> Ticks {
        let mut begins = Ticks::MAX;
        self.count = 0;
        for (i, (active, &left)) in active.iter().zip(left).enumerate().filter(|(_, (_, left))| **left > 0) {
            if active.from > at {
                begins = begins.min(active.from);
                continue;
            }
            let backlog = active.backlog(left, at);
            self.rows[self.count] = index_u8(i);
            self.flows[self.count] = active.flows;
            self.backlogs[self.count] = backlog;
            self.rates[self.count] = if backlog > 0 { saturating_u32(CAPACITY) } else { active.rate };
            self.count += 1;
        }
        begins
    }

    /// Whether each can have the rate that it demands until it ends.
    fn is_uncontended(&self) -> bool {
        let demanded = self.rates[..self.count].iter().map(|&rate| u64::from(rate)).sum::<u64>();
        demanded <= CAPACITY && self.backlogs[..self.count].iter().all(|&backlog| backlog == 0)
    }

    /// Max-min fair rates by progressive filling: an equal rate for each flow, of what those leave that demand less.
    fn share(&mut self) {
        let mut flows: u32 = self.flows[..self.count].iter().sum();
        let mut free = saturating_u32(CAPACITY);
        let mut open = (1u32 << self.count) - 1;
        while open != 0 {
            let (before, equal) = (open, free / flows);
            for i in 0..self.count {
                if open & 1 << i != 0 && u64::from(self.rates[i]) <= u64::from(equal) * u64::from(self.flows[i]) {
                    free -= self.rates[i];
                    flows -= self.flows[i];
                    open &= !(1 << i);
                }
            }
            if open == before {
                for i in (0..self.count).filter(|i| open & 1 << i != 0) {
                    self.rates[i] = (equal * self.flows[i]).max(1);
                }
                return;
            }
        }
    }

    /// How long the rates stay, at most `most`: until one transfer ends or has no backlog any more.
    fn length(&self, most: Ticks, active: &[Active], at: Ticks, left: &[u64; MOST]) -> Ticks {
        // Compared by products: quotients take longer.
        let mut soonest = (u64::MAX, 1);
        let mut offer = |work: u64, rate: u64| {
            if u128::from(work) * u128::from(soonest.1) < u128::from(soonest.0) * u128::from(rate) {
                soonest = (work, rate);
            }
        };
        for ((i, rate), &backlog) in self.rates().zip(&self.backlogs) {
            offer(left[i], rate);
            let demanded = u64::from(active[i].rate);
            if backlog > 0 && rate > demanded && at < active[i].due {
                offer(backlog, rate - demanded);
            }
        }
        soonest.0.div_ceil(soonest.1).min(most)
    }

    /// Rows and their rates.
    fn rates(&self) -> impl Iterator<Item = (usize, u64)> {
        let rows = self.rows[..self.count].iter();
        rows.zip(&self.rates).map(|(&i, &rate)| (usize::from(i), u64::from(rate)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(group: usize, span: (Ticks, Ticks), work: Ticks) -> Demand {
        Demand { group, span, work, flows: 1 }
    }

    #[test]
    fn no_more_is_moved_than_the_capacity() {
        // 60 in 100 ticks, and 60 in 100 ticks from 50 on: both demand 0.6, and receive half until the first has moved 30.
        let (mut server, mut delayed) = (ProcessorSharing::default(), DelayedUntil::none(2));
        server.enter(demand(0, (0, 100), 60), &mut delayed);
        server.enter(demand(1, (50, 150), 60), &mut delayed);
        assert_eq!(delayed.0, [110, 0]);
        // The second has a backlog of 6 then, and receives the full rate.
        server.advance(110);
        assert_eq!((server.count, server.active()[0].left >> BITS), (1, 30));
        server.advance(125);
        assert_eq!((server.count, server.active()[0].left >> BITS), (1, 15));
    }

    #[test]
    fn a_transfer_below_its_fair_share_is_not_delayed() {
        let (mut server, mut delayed) = (ProcessorSharing::default(), DelayedUntil::none(2));
        server.enter(demand(0, (0, 1000), 250), &mut delayed);
        // 300 in at least 300 ticks, of which a quarter is taken.
        server.enter(demand(1, (0, 300), 300), &mut delayed);
        assert_eq!(delayed.0, [0, 400]);
    }

    #[test]
    fn a_transfer_with_more_flows_receives_more() {
        // 50 in 100 ticks beside three flows that demand three quarters: 25 are left at 100, and end at the full rate.
        let (mut server, mut delayed) = (ProcessorSharing::default(), DelayedUntil::none(2));
        server.enter(demand(0, (0, 100), 50), &mut delayed);
        server.enter(Demand { flows: 3, ..demand(1, (0, 100), 75) }, &mut delayed);
        assert_eq!(delayed.0[0], 125);
    }

    #[test]
    fn a_transfer_that_begins_in_the_past_delays_those_under_way() {
        let (mut server, mut delayed) = (ProcessorSharing::default(), DelayedUntil::none(3));
        server.enter(demand(0, (1000, 1100), 100), &mut delayed);
        server.enter(demand(1, (960, 1060), 100), &mut delayed);
        // 40 alone, 60 at half the rate; the first has 40 left then.
        assert_eq!(delayed.0, [1160, 1120, 0]);
        // What lies before the time of the state is taken to have moved.
        server.advance(1160);
        server.enter(demand(2, (1100, 1200), 100), &mut delayed);
        assert_eq!(server.active()[0].left, 40 << BITS);
    }

    #[test]
    fn a_stream_that_never_ends_comes_back_to_its_state() {
        // Transfers follow each other without a gap, every second with a little more work.
        let (mut server, mut delayed) = (ProcessorSharing::default(), DelayedUntil::none(1));
        let mut left = Vec::new();
        for pair in 0..400 {
            for (more, from) in [200 * pair, 200 * pair + 100].into_iter().enumerate() {
                server.enter(demand(0, (from, from + 100), 40 + more as u64), &mut delayed);
                server.advance(from + 30);
            }
            left.push(server.active()[0].left >> BITS);
        }
        // About 70 of 100 ticks of 41.
        assert!(left.iter().all(|&of| of == left[0]) && (28..=29).contains(&left[0]), "{left:?}");
        assert_eq!(delayed.0, [0]);
    }

    #[test]
    fn transfers_without_a_row_are_aggregated() {
        let (mut server, mut delayed) = (ProcessorSharing::default(), DelayedUntil::none(20));
        for group in 0..20 {
            server.enter(demand(group, (0, 100), 10), &mut delayed);
        }
        assert_eq!((server.count, server.aggregates), (8, 2));
        // A little is lost by rounding rates down.
        assert!((200..=202).contains(&server.last_end), "{}", server.last_end);
        server.advance(202);
        assert_eq!(server.count, 0);
    }
}
