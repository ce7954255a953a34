//! A link or port among the streams that cross it: packets take turns, so that each gets an equal part unless it wants
//! less, and no more is moved than fits.

use crate::cost::Ticks;

use super::clock::Clock;
use super::transfer_group::Work;

/// All of a resource's rate.
pub const WHOLE: u64 = 1 << 16;
/// Bits of [`WHOLE`].
const BITS: u32 = WHOLE.trailing_zeros();

/// Volleys that a resource remembers apart, ...
const MOST_STREAMS: usize = 6;
/// ... groups of further ones, ...
const MOST_GROUPS: usize = 2;
/// ... and all together.
const MOST: usize = MOST_STREAMS + MOST_GROUPS;
/// The volley of a group: none.
const GROUP: u32 = u32::MAX;

/// A volley under way over one resource.
#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    /// When it begins, if that is still to come.
    from: Ticks,
    /// When it is through where nobody is in its way ...
    due: Ticks,
    /// ... and as far as is known.
    until: Ticks,
    /// What it has to move: ticks, times [`WHOLE`].
    left: u64,
    volley: u32,
    /// How many of its flows cross.
    flows: u32,
    /// The part of the resource, of [`WHOLE`], that it takes where nobody is in its way.
    pace: u32,
    /// What FIFOs hold of it: so much it catches up with.
    holds: u64,
}

impl Stream {
    fn rest(&self) -> Rest {
        Rest { left: self.left, due: self.due }
    }
}

/// A stream that another volley meets.
#[derive(Debug, Clone, Copy, Default)]
struct Other {
    begins: Ticks,
    until: Ticks,
    /// The part of the resource that it takes, ...
    pace: u64,
    /// ... until it has moved that.
    left: u64,
    /// More ticks it does not take from the volley.
    most: Ticks,
}

impl Other {
    /// A stream as a volley with `own` work meets it, from when it `begins` for that; known is what it had left `at`.
    fn of(stream: &Stream, at: Ticks, begins: Ticks, own: Work) -> Self {
        let &Stream { until, left, .. } = stream;
        let from = stream.from.max(at);
        // At the pace it keeps among the others.
        let pace = if begins > from { left / (until - from).max(1) } else { u64::from(stream.pace) };
        Self { begins, until, pace, left, most: own.of_flows(u64::from(stream.flows)) }
    }

    /// What it takes in a time.
    fn takes(&self, time: Ticks) -> Ticks {
        ((self.pace * time).min(self.left) >> BITS).min(self.most)
    }
}

/// What a stream still has to move, and when it is through where nobody is in its way any more.
#[derive(Debug, Clone, Copy)]
struct Rest {
    left: u64,
    due: Ticks,
}

impl Rest {
    /// What it is behind with: so much it takes as soon as it can.
    fn behind(self, pace: u32, at: Ticks) -> u64 {
        self.left.saturating_sub(u64::from(pace) * self.due.saturating_sub(at))
    }

    /// Takes a part of the resource from `at` on for a time. What it is behind with beyond what FIFOs hold it does not
    /// catch up with: the unit that it goes to, or comes from, has stood still.
    fn take(&mut self, part: u64, (at, time): (Ticks, Ticks), stream: &Stream) {
        self.left = self.left.saturating_sub(part * time);
        if part < u64::from(stream.pace) {
            let lost = self.behind(stream.pace, at + time).saturating_sub(stream.holds);
            self.due += lost / u64::from(stream.pace);
        }
    }
}

/// What a volley brings to a resource.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// The volley.
    pub volley: usize,
    /// When it begins, and when it is through where nobody is in its way.
    pub span: (Ticks, Ticks),
    /// What it has to move.
    pub work: Ticks,
    /// Its flows.
    pub flows: u32,
    /// What FIFOs hold of it.
    pub holds: Ticks,
}

/// Volleys that others have slowed after they were sent.
#[derive(Debug, Default)]
pub struct Slowed {
    /// When the latest of each volley is through that was slowed.
    pub until: Vec<Ticks>,
    /// Those that nobody has heeded yet.
    pub fresh: Vec<usize>,
}

impl Slowed {
    /// None of so many.
    pub fn new(volleys: usize) -> Self {
        Self { until: vec![0; volleys], fresh: Vec::new() }
    }

    fn add(&mut self, volley: usize, end: Ticks) {
        if let Some(until) = self.until.get_mut(volley).filter(|until| end > **until) {
            *until = end;
            self.fresh.push(volley);
        }
    }
}

/// The volleys under way over one resource; kept in place, because every send looks at every resource on its way.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sharing {
    /// The time of what is known.
    at: Ticks,
    /// When all are through, as of when the latest came.
    last_end: Ticks,
    survey: Survey,
    count: u32,
    /// How many of them are groups.
    groups: u32,
    streams: [Stream; MOST],
}

impl Sharing {
    fn streams(&self) -> &[Stream] {
        &self.streams[..self.count as usize]
    }

    fn streams_mut(&mut self) -> &mut [Stream] {
        &mut self.streams[..self.count as usize]
    }

    /// Looks at all of them again, for what is told of them together.
    fn summarize(&self) -> Survey {
        let mut survey = Survey::default();
        self.streams().iter().for_each(|stream| survey.add(stream, self.at));
        survey
    }

    /// Lets all share the resource until `to`, or until they are through; `ends` hears who is, and when.
    fn share(&self, rests: &mut [Rest; MOST], to: Ticks, mut ends: impl FnMut(usize, Ticks)) {
        let mut at = self.at;
        let mut turn = Turn::default();
        while at < to {
            let begins = turn.begin(self.streams(), at, rests);
            if begins >= to && turn.is_settled() {
                // Nobody is in anybody's way any more.
                for (i, part) in turn.parts() {
                    let left = rests[i].left;
                    if left <= part.saturating_mul(to - at) {
                        ends(i, at + left.div_ceil(part));
                    }
                    rests[i].left = left.saturating_sub(part.saturating_mul(to - at));
                }
                return;
            }
            turn.deal();
            let step = turn.step(begins.min(to) - at, self.streams(), at, rests);
            if step == Ticks::MAX - at {
                return;
            }
            for (i, part) in turn.parts() {
                rests[i].take(part, (at, step), &self.streams[i]);
                if rests[i].left == 0 {
                    ends(i, at + step);
                }
            }
            at += step;
        }
    }

    fn rests(&self) -> [Rest; MOST] {
        std::array::from_fn(|i| self.streams[i].rest())
    }

    /// Lets time pass.
    pub fn pass(&mut self, now: Ticks) {
        if now <= self.at {
            return;
        }
        if self.last_end <= now {
            (self.count, self.groups) = (0, 0);
        }
        if self.count == 0 {
            self.at = now;
            return;
        }
        if self.survey.is_crowded() {
            let mut rests = self.rests();
            self.share(&mut rests, now, |_, _| {});
            self.keep(now, |i, _| rests[i]);
        } else {
            let at = self.at;
            self.keep(now, |_, stream| {
                let time = now.saturating_sub(stream.from.max(at));
                let left = stream.left.saturating_sub(u64::from(stream.pace) * time);
                Rest { left: if stream.until <= now { 0 } else { left }, due: stream.due }
            });
        }
    }

    /// Goes on at a later time with those of which something is left then.
    fn keep(&mut self, now: Ticks, rest: impl Fn(usize, &Stream) -> Rest) {
        self.at = now;
        for (i, stream) in self.streams_mut().iter_mut().enumerate() {
            let Rest { left, due } = rest(i, stream);
            // To a whole tick: a run that repeats itself comes back to the same states.
            stream.left = (left + WHOLE / 2) >> BITS << BITS;
            (stream.from, stream.due) = (stream.from.max(now), due);
        }
        self.close_up();
        self.survey = self.summarize();
    }

    /// Forgets those of which nothing is left; the others stay in order.
    fn close_up(&mut self) {
        let Some(first) = self.streams().iter().position(|stream| stream.left == 0) else { return };
        let mut kept = first;
        for i in first..self.count as usize {
            if self.streams[i].left == 0 {
                self.groups -= u32::from(self.streams[i].volley == GROUP);
            } else {
                self.streams[kept] = self.streams[i];
                kept += 1;
            }
        }
        self.count = kept as u32;
    }

    /// How long the work of a volley lasts from `at` on, among the others: another takes as much for each of its flows,
    /// unless it has less to move or is slower by itself. Less than `least` need not be exact.
    pub fn lasts(&self, volley: usize, at: Ticks, own: Work, least: Ticks) -> Ticks {
        if own.ticks + self.in_the_way(volley, at, own) < least {
            return own.ticks;
        }
        let mut others = [Other::default(); MOST];
        let mut count = 0;
        let (mut taken, mut longest) = (0, 0);
        for stream in self.streams() {
            let begins = at.max(stream.from);
            if stream.until > begins && stream.volley as usize != volley {
                let other = Other::of(stream, self.at, begins, own);
                taken += other.takes(stream.until - begins);
                longest = longest.max(stream.until - at);
                others[count] = other;
                count += 1;
            }
        }
        // With less time others take no more.
        let most = own.ticks + taken;
        if most <= least || longest <= most {
            return most;
        }
        let takes =
            |other: &Other| other.takes((other.until - other.begins).min((at + most).saturating_sub(other.begins)));
        own.ticks + others[..count].iter().map(takes).sum::<Ticks>()
    }

    /// No less than what others can take while a volley sends, soon told.
    fn in_the_way(&self, volley: usize, at: Ticks, own: Work) -> Ticks {
        let (mut flows, mut left) = (0, 0);
        for stream in self.streams() {
            if stream.until > at && stream.volley as usize != volley {
                flows += u64::from(stream.flows);
                left += stream.left;
            }
        }
        own.of_flows(flows).min(left >> BITS)
    }

    /// A volley begins to send, and those under way make way. Tells `slowed` each that is slowed, and when it is through.
    pub fn enter(&mut self, load: Load, slowed: &mut Slowed) {
        let Load { volley, span: (mut from, until), work, flows, holds } = load;
        let mut left = work << BITS;
        let pace = left.div_ceil(until - from).min(WHOLE);
        if from < self.at {
            // What it has moved already, of what the others have left.
            let taken: u64 = self.streams().iter().filter(|s| s.from <= self.at).map(|s| u64::from(s.pace)).sum();
            left = left.saturating_sub(pace.min(WHOLE.saturating_sub(taken)) * (self.at - from));
            from = self.at;
            if left == 0 {
                return;
            }
        }
        let until = until.max(from + 1);
        // As far back as there is room.
        while (self.count - self.groups) as usize >= MOST_STREAMS
            && self.survey.first_end <= from
            && self.survey.first_end > self.at
        {
            self.pass(self.survey.first_end);
        }
        let (pace, holds) = (pace as u32, holds.saturating_mul(WHOLE));
        self.join(Stream { from, due: until, until, left, volley: volley as u32, flows, pace, holds });
        if self.survey.is_crowded() {
            let mut rests = self.rests();
            let mut ends = [0; MOST];
            self.share(&mut rests, Ticks::MAX, |i, at| ends[i] = at);
            for (stream, end) in self.streams_mut().iter_mut().zip(ends) {
                if end > stream.until {
                    slowed.add(stream.volley as usize, end);
                }
                stream.until = end;
            }
            self.survey = self.summarize();
        }
        self.last_end = self.survey.last_end;
    }

    /// Adds a stream: to what the same volley still has to move, or to the group that ends at about the same time, if
    /// there is no room for it.
    fn join(&mut self, new: Stream) {
        let own = self.streams().iter().rposition(|stream| stream.volley == new.volley);
        if let Some(own) = own {
            let own = &mut self.streams[own];
            if new.from <= own.until || own.from > self.at {
                own.left += new.left;
                own.until = own.until.max(new.until);
                own.due = own.due.max(new.due);
                own.pace = own.pace.max(new.pace);
                own.flows = new.flows;
                self.survey = self.summarize();
                return;
            }
        }
        let is_group = (self.count - self.groups) as usize >= MOST_STREAMS;
        if !is_group || (self.groups as usize) < MOST_GROUPS {
            let volley = if is_group { GROUP } else { new.volley };
            self.streams[self.count as usize] = Stream { volley, ..new };
            if self.count == 0 {
                self.survey = Survey::default();
            }
            self.survey.add(&new, self.at);
            self.count += 1;
            self.groups += u32::from(is_group);
            return;
        }
        let groups = self.streams.iter_mut().filter(|stream| stream.volley == GROUP);
        if let Some(group) = groups.min_by_key(|group| group.until.abs_diff(new.until)) {
            group.from = group.from.min(new.from);
            group.until = group.until.max(new.until);
            group.due = group.due.max(new.due);
            group.left += new.left;
            group.flows += new.flows;
            group.pace = (group.pace + new.pace).min(WHOLE as u32);
        }
        self.survey = self.summarize();
    }

    /// Writes down all that the rest of a run depends on.
    pub fn write_state(&self, clock: Clock, words: &mut Vec<u64>) {
        if self.count == 0 || clock.is_past(self.last_end) {
            words.push(0);
            return;
        }
        words.extend([u64::from(self.count), clock.relative(self.at), clock.relative(self.last_end)]);
        for &Stream { from, due, until, left, volley, flows, pace, .. } in self.streams() {
            words.extend([from, due, until].map(|at| clock.relative(at)));
            words.extend([left, u64::from(volley)]);
            words.push(u64::from(flows) << 32 | u64::from(pace));
        }
    }

    /// Lets time pass: the state, seen from then, is the same.
    pub fn shift(&mut self, time: Ticks) {
        self.at += time;
        self.last_end += time;
        self.survey.first_end = self.survey.first_end.saturating_add(time);
        self.survey.last_end += time;
        for stream in self.streams_mut() {
            stream.from += time;
            stream.due += time;
            stream.until += time;
        }
    }
}

/// What is told of all that are under way together.
#[derive(Debug, Clone, Copy)]
struct Survey {
    /// The parts that they take where nobody is in their way.
    paces: u64,
    /// Whether any is behind by a tick.
    is_behind: bool,
    first_end: Ticks,
    last_end: Ticks,
}

impl Default for Survey {
    fn default() -> Self {
        Self { paces: 0, is_behind: false, first_end: Ticks::MAX, last_end: 0 }
    }
}

impl Survey {
    /// Whether somebody is in the way of somebody, or behind.
    fn is_crowded(&self) -> bool {
        self.paces > WHOLE || self.is_behind
    }

    fn add(&mut self, stream: &Stream, at: Ticks) {
        self.paces += u64::from(stream.pace);
        self.is_behind |= stream.rest().behind(stream.pace, at) >= WHOLE;
        self.first_end = self.first_end.min(stream.until);
        self.last_end = self.last_end.max(stream.until);
    }
}

/// A stretch of time in which each of those under way gets the same part all along.
#[derive(Debug, Default)]
struct Turn {
    /// How many are under way, ...
    count: usize,
    /// ... which of the streams they are, ...
    who: [u8; MOST],
    flows: [u32; MOST],
    /// ... what they are behind with, ...
    behind: [u64; MOST],
    /// ... the part they want of [`WHOLE`], and get.
    parts: [u32; MOST],
}

impl Turn {
    /// Begins at a time with those that have begun and have something left. Tells when the next begins.
    fn begin(&mut self, streams: &[Stream], at: Ticks, rests: &[Rest; MOST]) -> Ticks {
        let mut begins = Ticks::MAX;
        self.count = 0;
        for (i, (stream, rest)) in streams.iter().zip(rests).enumerate().filter(|(_, (_, rest))| rest.left > 0) {
            if stream.from > at {
                begins = begins.min(stream.from);
                continue;
            }
            let behind = rest.behind(stream.pace, at);
            self.who[self.count] = i as u8;
            self.flows[self.count] = stream.flows;
            self.behind[self.count] = behind;
            self.parts[self.count] = if behind > 0 { WHOLE as u32 } else { stream.pace };
            self.count += 1;
        }
        begins
    }

    /// Whether each can have what it wants until it is through.
    fn is_settled(&self) -> bool {
        let wanted = self.parts[..self.count].iter().map(|&part| u64::from(part)).sum::<u64>();
        wanted <= WHOLE && self.behind[..self.count].iter().all(|&behind| behind == 0)
    }

    /// Deals equal parts for each flow, of what those leave that want less.
    fn deal(&mut self) {
        let mut flows: u32 = self.flows[..self.count].iter().sum();
        let mut free = WHOLE as u32;
        let mut open = (1u32 << self.count) - 1;
        while open != 0 {
            let (before, equal) = (open, free / flows);
            for i in 0..self.count {
                if open & 1 << i != 0 && u64::from(self.parts[i]) <= u64::from(equal) * u64::from(self.flows[i]) {
                    free -= self.parts[i];
                    flows -= self.flows[i];
                    open &= !(1 << i);
                }
            }
            if open == before {
                for i in (0..self.count).filter(|i| open & 1 << i != 0) {
                    self.parts[i] = (equal * self.flows[i]).max(1);
                }
                return;
            }
        }
    }

    /// How long that lasts, of `most`: until one is through or has caught up.
    fn step(&self, most: Ticks, streams: &[Stream], at: Ticks, rests: &[Rest; MOST]) -> Ticks {
        // The soonest is found by products that need not be exact: quotients take longer.
        let mut soonest = (u64::MAX, 1);
        let mut take = |moves: u64, rate: u64| {
            if (moves as f64) * (soonest.1 as f64) < soonest.0 as f64 * rate as f64 {
                soonest = (moves, rate);
            }
        };
        for ((i, part), &behind) in self.parts().zip(&self.behind) {
            take(rests[i].left, part);
            let pace = streams[i].pace;
            if behind > 0 && part > u64::from(pace) && at < rests[i].due {
                take(behind, part - u64::from(pace));
            }
        }
        let (moves, rate) = soonest;
        if self.count == 0 { most } else { most.min(moves.div_ceil(rate)) }
    }

    /// Which of the streams get what part.
    fn parts(&self) -> impl Iterator<Item = (usize, u64)> {
        let who = self.who[..self.count].iter();
        who.zip(&self.parts).map(|(&i, &part)| (usize::from(i), u64::from(part)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(volley: usize, span: (Ticks, Ticks), work: Ticks) -> Load {
        Load { volley, span, work, flows: 1, holds: Ticks::MAX }
    }

    #[test]
    fn no_more_is_moved_than_fits() {
        // 60 in 100 ticks, and 60 in 100 ticks from 50 on: both want 0.6, and get half until the first has moved its 30.
        let (mut shared, mut slowed) = (Sharing::default(), Slowed::new(2));
        shared.enter(load(0, (0, 100), 60), &mut slowed);
        shared.enter(load(1, (50, 150), 60), &mut slowed);
        assert_eq!(slowed.until, [110, 0]);
        // The second is behind by 6 then, and catches up at the full rate.
        shared.pass(110);
        assert_eq!((shared.count, shared.streams()[0].left >> BITS), (1, 30));
        shared.pass(125);
        assert_eq!((shared.count, shared.streams()[0].left >> BITS), (1, 15));
    }

    #[test]
    fn who_is_slower_than_its_part_is_not_slowed() {
        let (mut shared, mut slowed) = (Sharing::default(), Slowed::new(2));
        shared.enter(load(0, (0, 1000), 250), &mut slowed);
        // 300 in at least 300 ticks, of which a quarter is taken.
        shared.enter(load(1, (0, 300), 300), &mut slowed);
        assert_eq!(slowed.until, [0, 400]);
    }

    #[test]
    fn a_unit_catches_up_with_no_more_than_its_fifos_hold() {
        // 50 in 100 ticks beside three flows that take three quarters: 25 behind at 100.
        let ends = |holds| {
            let (mut shared, mut slowed) = (Sharing::default(), Slowed::new(2));
            shared.enter(Load { holds, ..load(0, (0, 100), 50) }, &mut slowed);
            shared.enter(Load { flows: 3, ..load(1, (0, 100), 75) }, &mut slowed);
            slowed.until[0]
        };
        assert_eq!([Ticks::MAX, 10, 0].map(ends), [125, 130, 150]);
    }

    #[test]
    fn what_begins_before_it_is_known_slows_who_was_there() {
        let (mut shared, mut slowed) = (Sharing::default(), Slowed::new(3));
        shared.enter(load(0, (1000, 1100), 100), &mut slowed);
        shared.enter(load(1, (960, 1060), 100), &mut slowed);
        // 40 alone, 60 at half the rate; the first has 40 left then.
        assert_eq!(slowed.until, [1160, 1120, 0]);
        // What lies before all that is known is taken to have moved.
        shared.pass(1160);
        shared.enter(load(2, (1100, 1200), 100), &mut slowed);
        assert_eq!(shared.streams()[0].left, 40 << BITS);
    }

    #[test]
    fn what_does_not_fit_apart_is_a_group() {
        let (mut shared, mut slowed) = (Sharing::default(), Slowed::new(20));
        for volley in 0..20 {
            shared.enter(load(volley, (0, 100), 10), &mut slowed);
        }
        assert_eq!((shared.count, shared.groups), (8, 2));
        // A little is lost by rounding parts down.
        assert!((200..=202).contains(&shared.last_end), "{}", shared.last_end);
        shared.pass(202);
        assert_eq!(shared.count, 0);
    }
}
