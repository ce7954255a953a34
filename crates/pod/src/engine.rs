//! The schedule in time: stages work in order, transfers and reductions share the links.
//!
//! An *actor* is what goes in lockstep: all chips of a stage, with the demand of all of them on the links, or one chip in a
//! flat simulation. Times are whole nanoseconds, and equal times are taken in the order of actors.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::network::{Flow, Network, Traffic};
use super::schedule::{PassKind, Work};
use rdusim_base::interrupt;
use rdusim_engines::fluid::{ActivityId, Completion};

mod plan;
mod streams;

pub use plan::{Actor, Passes, Plan, Reduction, Simulated, Span, SpanKind, Spent, Unit};
pub use streams::{Collective, ReductionPhase, Stream};
use streams::{Next, Streams};

/// A micro-batch, a part and a direction at an actor: what a pass waits for.
type Input = (usize, PassKind, u64, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A unit of an actor's pass ends: the actor, and the number of the forecast. One that a later forecast of the actor has replaced, as
    /// the rate changed, means nothing.
    Done(usize, u64),
    /// The bytes of a transfer start: an index of `transfers`.
    Send(usize),
    /// The bytes of a phase of a reduction start.
    Reduce(usize),
    /// The bytes of a phase of a stream start.
    Stream(usize),
    /// An optimiser's step ends.
    Updated(usize),
}

/// A way between two actors, used by one transfer at a time.
#[derive(Debug)]
struct Way {
    flow: Flow,
    /// Transfers that wait for it: sender, and what they bring.
    waiting: VecDeque<(usize, Input)>,
    active: Option<(usize, Input)>,
    by_level: Vec<u64>,
}

/// A reduction in time.
#[derive(Debug)]
struct Reducing {
    /// Flows of its phases.
    flows: Vec<Flow>,
    /// The phase under way.
    phase: usize,
    /// Actors that have not come to it.
    missing: usize,
    /// When the last came.
    since: u64,
}

/// How far the next pass of an actor is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum PassState {
    /// What it receives is not there.
    #[default]
    Waiting,
    /// It has begun, and no unit computes.
    Between,
    /// A unit computes.
    Computing,
}

#[derive(Debug, Default, Clone)]
struct State {
    at: usize,
    pass: PassState,
    /// The unit of the pass.
    unit: usize,
    /// The pass and the unit whose weights are asked for next.
    ahead: (usize, usize),
    /// The unit that computes: when it began, and how far it is.
    began: u64,
    progress: Progress,
    /// Gathers that were asked for, that computing has begun on, and that it has ended on.
    asked: u64,
    used: u64,
    freed: u64,
    /// Scatters that were asked for.
    scattered: u64,
    /// All passes are done and nothing is being sent.
    is_past: bool,
    /// The last of its spans.
    last_span: Option<usize>,
    /// A blocking transfer is under way.
    is_sending: bool,
    free_since: u64,
    reductions_left: usize,
}

/// How far a unit is that computes.
#[derive(Debug, Default, Clone, Copy)]
struct Progress {
    /// Nanoseconds of computing that were left at a time.
    left: u64,
    at: u64,
    /// Whether a collective beside it has made it slower since.
    is_slow: bool,
    /// How many ends were foretold of the units of the actor.
    foretold: u64,
}

struct Engine<'p, 's> {
    plan: &'p Plan,
    traffic: Traffic<'s>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    states: Vec<State>,
    ways: Vec<Way>,
    /// Forward and backward way of each actor.
    way_of: Vec<[usize; 2]>,
    way_of_activity: BTreeMap<ActivityId, usize>,
    reduction_of_activity: BTreeMap<ActivityId, usize>,
    /// What has arrived: when it was sent.
    arrived: BTreeMap<Input, u64>,
    reductions: Vec<Reducing>,
    streams: Streams,
    result: Simulated,
}

/// Runs a plan.
pub fn simulate(plan: &Plan, network: &Network<'_>) -> Simulated {
    let mut traffic = Traffic::new(network.clone());
    let (mut ways, mut way_of, mut way_of_activity) = (Vec::new(), Vec::new(), BTreeMap::new());
    for actor in &plan.actors {
        way_of.push([&actor.next.1, &actor.previous.1].map(|demand| {
            let flow = traffic.add(demand, 1.0);
            way_of_activity.extend(flow.activity().map(|activity| (activity, ways.len())));
            let by_level = demand.by_level.clone();
            ways.push(Way { flow, waiting: VecDeque::new(), active: None, by_level });
            ways.len() - 1
        }));
    }
    let mut states = vec![State::default(); plan.actors.len()];
    let (mut reductions, mut reduction_of_activity) = (Vec::new(), BTreeMap::new());
    for (index, reduction) in plan.reductions.iter().enumerate() {
        let flows: Vec<Flow> =
            reduction.phases.iter().map(|phase| traffic.add(&phase.demand, phase.rate_share)).collect();
        reduction_of_activity.extend(flows.iter().filter_map(Flow::activity).map(|activity| (activity, index)));
        reduction.actors.iter().for_each(|&actor| states[actor].reductions_left += 1);
        reductions.push(Reducing { flows, phase: 0, missing: reduction.actors.len(), since: 0 });
    }
    let streams = Streams::new(&plan.streams, &mut traffic);
    let result = Simulated { spent: vec![Spent::default(); plan.actors.len()], ..Simulated::default() };
    let events = BinaryHeap::new();
    let arrived = BTreeMap::new();
    let mut engine = Engine {
        plan,
        traffic,
        events,
        states,
        ways,
        way_of,
        way_of_activity,
        reduction_of_activity,
        arrived,
        reductions,
        streams,
        result,
    };
    engine.run();
    engine.result.stream_bytes = engine.streams.bytes;
    engine.result
}

impl Engine<'_, '_> {
    fn run(&mut self) {
        for actor in 0..self.states.len() {
            self.ask_ahead(actor, 0);
            self.try_start(actor, 0);
        }
        let mut completed: Vec<Completion> = Vec::new();
        loop {
            interrupt::check();
            let event = self.events.peek().map(|Reverse((at, _))| *at);
            let moved = self.traffic.fluid.next_completion().map(|completion| completion.at);
            let Some(now) = [event, moved].into_iter().flatten().min() else { break };
            self.traffic.fluid.advance(now, &mut completed);
            for completion in std::mem::take(&mut completed) {
                self.completed(completion.activity, now);
            }
            while let Some(&Reverse((at, event))) = self.events.peek().filter(|next| next.0.0 <= now) {
                self.events.pop();
                match event {
                    Event::Done(actor, foretold) if foretold == self.states[actor].progress.foretold => {
                        self.done(actor, at);
                    }
                    Event::Done(..) => {}
                    Event::Send(way) => self.send(way),
                    Event::Reduce(reduction) => self.reduce(reduction, at),
                    Event::Stream(stream) => {
                        if !self.streams.start(stream, &mut self.traffic) {
                            self.phase_ended(stream, at);
                        }
                    }
                    Event::Updated(actor) => {
                        let step = self.plan.actors[actor].optimizer_ns;
                        self.spend(actor, SpanKind::Optimizer, (at - step, at));
                    }
                }
            }
        }
        let end = self.result.spans.iter().map(|span| span.time.1).max().unwrap_or(0);
        self.result.end = end;
        // What is left at the end is waiting for others.
        for spent in &mut self.result.spent {
            spent.bubble = end - spent.work - spent.transfer - spent.reduce - spent.optimizer;
        }
    }

    fn spend(&mut self, actor: usize, kind: SpanKind, time: (u64, u64)) {
        self.span(actor, kind, time, Work { pass: PassKind::Forward, micro: 0, part: 0 });
    }

    fn span(&mut self, actor: usize, kind: SpanKind, time: (u64, u64), work: Work) {
        let spent = &mut self.result.spent[actor];
        *match kind {
            SpanKind::Forward | SpanKind::Backward | SpanKind::Weights => &mut spent.work,
            SpanKind::Transfer => &mut spent.transfer,
            SpanKind::Reduce | SpanKind::Sharded => &mut spent.reduce,
            SpanKind::Optimizer => &mut spent.optimizer,
        } += time.1 - time.0;
        let span = Span { actor, kind, time, micro: work.micro, part: work.part };
        // Units of a pass without a pause between them are one span.
        let last = self.states[actor].last_span.and_then(|at| self.result.spans.get_mut(at));
        if let Some(last) = last.filter(|last| Span { time, ..**last } == span && last.time.1 == time.0) {
            last.time.1 = time.1;
        } else if time.1 > time.0 || kind == SpanKind::Optimizer {
            self.states[actor].last_span = Some(self.result.spans.len());
            self.result.spans.push(span);
        }
    }

    /// Whether a pass is the first or the last of its micro-batch: nothing is to be received or sent.
    fn is_end(&self, actor: usize, work: Work, receives: bool) -> bool {
        let of = &self.plan.actors[actor];
        let ends = if self.plan.is_v { of.is_first } else { of.is_last };
        let (first, last) = (of.is_first && work.part == 0, ends && work.part + 1 == self.plan.parts);
        match work.pass {
            PassKind::Forward if receives => first,
            PassKind::Forward => last,
            PassKind::Backward if receives => last,
            PassKind::Backward => first,
            // All operands lie on the chip.
            PassKind::Weights | PassKind::Update => true,
        }
    }

    /// Where what a pass gives goes: the actor, whether by the way to the next, and the part.
    fn target(&self, actor: usize, work: Work) -> (usize, bool, u64) {
        let of = &self.plan.actors[actor];
        let is_backward = work.pass == PassKind::Backward;
        if self.plan.is_v {
            // Down the stages with the first part, up with the second; back the other way round.
            let is_down = is_backward != (work.part == 0);
            let is_turn = of.is_last && is_backward == (work.part == 1);
            return match (is_turn, is_down) {
                (true, _) => (actor, true, 1 - work.part),
                (_, true) => (of.next.0, true, work.part),
                _ => (of.previous.0, false, work.part),
            };
        }
        // Around the ends of the pipeline a micro-batch goes on to another part.
        let part = match is_backward {
            false if of.is_last => work.part + 1,
            true if of.is_first => work.part - 1,
            _ => work.part,
        };
        (if is_backward { of.previous.0 } else { of.next.0 }, !is_backward, part)
    }

    fn try_start(&mut self, actor: usize, now: u64) {
        let state = &self.states[actor];
        let Some(&work) = self.plan.actors[actor].order.get(state.at) else {
            return;
        };
        if state.pass != PassState::Waiting || state.is_sending {
            return;
        }
        if !self.is_end(actor, work, true) {
            let Some(sent) = self.arrived.remove(&(actor, work.pass, work.micro, work.part)) else { return };
            // Of the time that it has waited, that in which the transfer was under way.
            let since = self.states[actor].free_since.max(sent);
            if since < now {
                self.span(actor, SpanKind::Transfer, (since, now), work);
            }
        }
        let state = &mut self.states[actor];
        (state.pass, state.unit, state.free_since) = (PassState::Between, 0, now);
        self.ask_ahead(actor, now);
        self.try_unit(actor, now);
    }

    /// Starts the next unit of the pass under way if what it needs of the replicas is there.
    fn try_unit(&mut self, actor: usize, now: u64) {
        let plan = self.plan;
        let (of, state) = (&plan.actors[actor], &self.states[actor]);
        let Some(&work) = of.order.get(state.at).filter(|_| state.pass == PassState::Between) else { return };
        let Some(&unit) = of.passes.units(work).get(state.unit) else {
            return self.pass_ended(actor, now);
        };
        let is_gathered =
            of.gathers.is_none_or(|stream| unit.gather.is_none() || self.streams.done(stream) > state.used);
        // One set of gradients may wait for its scatter while the next is computed, unless the passes wait for all.
        let has_room = of.scatters.is_none_or(|stream| {
            let done = self.streams.done(stream);
            if plan.waits { done >= state.scattered } else { unit.scatter.is_none() || done + 1 >= state.scattered }
        });
        if !is_gathered || !has_room {
            return;
        }
        let since = state.free_since;
        if since < now {
            self.span(actor, SpanKind::Sharded, (since, now), work);
        }
        let state = &mut self.states[actor];
        state.pass = PassState::Computing;
        state.used += u64::from(unit.gather.is_some());
        state.began = now;
        state.progress = Progress { left: unit.ns, at: now, is_slow: false, ..state.progress };
        self.foretell(actor, now);
        self.ask_ahead(actor, now);
    }

    /// Says when the unit that an actor computes ends, if nothing changes any more: slower beside a collective of its streams.
    fn foretell(&mut self, actor: usize, now: u64) {
        let (of, slowdown) = (&self.plan.actors[actor], self.plan.slowdown_thousandths);
        let streams = [of.gathers, of.scatters].into_iter().flatten();
        let is_slow = slowdown > 0 && streams.into_iter().any(|stream| self.streams.is_busy(stream));
        let of = &mut self.states[actor].progress;
        let rate = |is_slow: bool| if is_slow { 1000 - slowdown } else { 1000 };
        of.left = of.left.saturating_sub((now - of.at) * rate(of.is_slow) / 1000);
        (of.at, of.is_slow, of.foretold) = (now, is_slow, of.foretold + 1);
        let end = now + (of.left * 1000).div_ceil(rate(is_slow));
        self.events.push(Reverse((end, Event::Done(actor, of.foretold))));
    }

    /// A collective of a stream has begun or ended: units beside it go on at another rate.
    fn changed(&mut self, stream: usize, now: u64) {
        let plan = self.plan;
        for &actor in plan.streams[stream].actors.iter().filter(|_| plan.slowdown_thousandths > 0) {
            if self.states[actor].pass == PassState::Computing {
                self.foretell(actor, now);
            }
        }
    }

    /// Asks for the weights of as many units as may be gathered by now.
    fn ask_ahead(&mut self, actor: usize, now: u64) {
        let plan = self.plan;
        let of = &plan.actors[actor];
        let Some(stream) = of.gathers else { return };
        let state = &mut self.states[actor];
        if plan.waits {
            // Those of the next unit, when the one before is computed and scattered.
            let is_scattered = of.scatters.is_none_or(|scatters| self.streams.done(scatters) >= state.scattered);
            let is_next = state.pass == PassState::Between && state.asked == state.used && is_scattered;
            let next = of.order.get(state.at).and_then(|work| of.passes.units(*work).get(state.unit));
            if let Some(collective) = next.and_then(|unit| unit.gather).filter(|_| is_next) {
                state.asked += 1;
                self.streams.ask(&plan.streams, stream, actor, collective);
                self.begin(stream, now);
            }
            return;
        }
        let allowed = (state.used + plan.prefetch).max(state.freed + 1);
        while state.asked < allowed {
            let Some(&work) = of.order.get(state.ahead.0) else { break };
            let Some(unit) = of.passes.units(work).get(state.ahead.1) else {
                state.ahead = (state.ahead.0 + 1, 0);
                continue;
            };
            state.ahead.1 += 1;
            if let Some(collective) = unit.gather {
                state.asked += 1;
                self.streams.ask(&plan.streams, stream, actor, collective);
            }
        }
        self.begin(stream, now);
    }

    fn begin(&mut self, stream: usize, now: u64) {
        if let Next::After(delay) = self.streams.begin(&self.plan.streams, stream) {
            self.events.push(Reverse((now + delay, Event::Stream(stream))));
            self.changed(stream, now);
        }
    }

    fn phase_ended(&mut self, stream: usize, now: u64) {
        let plan = self.plan;
        if let Some(delay) = self.streams.phase_ended(&plan.streams, stream) {
            self.events.push(Reverse((now + delay, Event::Stream(stream))));
            return;
        }
        self.begin(stream, now);
        self.changed(stream, now);
        for &actor in &plan.streams[stream].actors {
            self.ask_ahead(actor, now);
            self.try_unit(actor, now);
            self.try_finish(actor, now);
        }
    }

    /// A unit has been computed.
    fn done(&mut self, actor: usize, now: u64) {
        let plan = self.plan;
        let of = &plan.actors[actor];
        let state = &mut self.states[actor];
        let work = of.order[state.at];
        let unit = of.passes.units(work)[state.unit];
        (state.pass, state.free_since) = (PassState::Between, now);
        state.unit += 1;
        state.freed += u64::from(unit.gather.is_some());
        let kind = match work.pass {
            PassKind::Forward => SpanKind::Forward,
            PassKind::Backward => SpanKind::Backward,
            PassKind::Weights => SpanKind::Weights,
            PassKind::Update => SpanKind::Optimizer,
        };
        // What collectives beside it have made it longer is waiting for them.
        let began = self.states[actor].began;
        if now - unit.ns > began {
            self.span(actor, SpanKind::Sharded, (began, now - unit.ns), work);
        }
        self.span(actor, kind, (now - unit.ns, now), work);
        if let (Some(stream), Some(collective)) = (of.scatters, unit.scatter) {
            self.states[actor].scattered += 1;
            self.streams.ask(&plan.streams, stream, actor, collective);
            self.begin(stream, now);
        }
        self.ask_ahead(actor, now);
        self.try_unit(actor, now);
    }

    /// The last unit of a pass has been computed.
    fn pass_ended(&mut self, actor: usize, now: u64) {
        let plan = self.plan;
        let of = &plan.actors[actor];
        let work = of.order[self.states[actor].at];
        let state = &mut self.states[actor];
        state.pass = PassState::Waiting;
        state.at += 1;
        let is_last = state.at == of.order.len();
        if !self.is_end(actor, work, false) {
            let (peer, is_next, part) = self.target(actor, work);
            let way = self.way_of[actor][usize::from(!is_next)];
            let input = (peer, work.pass, work.micro, part);
            if peer == actor || self.ways[way].flow.activity().is_none() {
                // The next part lies on this stage.
                self.arrived.insert(input, now);
                if peer != actor {
                    self.try_start(peer, now);
                }
            } else {
                self.states[actor].is_sending = plan.blocking;
                self.ways[way].waiting.push_back((actor, input));
                self.next_transfer(way, now);
            }
        }
        if is_last {
            // A blocking transfer comes before what follows the last pass.
            self.states[actor].is_past = true;
            self.try_finish(actor, now);
        } else {
            self.try_start(actor, now);
        }
    }

    fn next_transfer(&mut self, way: usize, now: u64) {
        let of = &mut self.ways[way];
        if of.active.is_none()
            && let Some(next) = of.waiting.pop_front()
        {
            of.active = Some(next);
            self.arrived.insert((next.1.0, next.1.1, next.1.2, next.1.3 | SENT), now);
            self.events.push(Reverse((now + self.plan.message_ns, Event::Send(way))));
        }
    }

    fn send(&mut self, way: usize) {
        let of = &self.ways[way];
        for (level, bytes) in of.by_level.iter().enumerate() {
            if self.result.transfer_bytes.len() <= level {
                self.result.transfer_bytes.resize(level + 1, 0);
            }
            self.result.transfer_bytes[level] += bytes;
        }
        let flow = of.flow;
        self.traffic.start(&flow);
    }

    fn completed(&mut self, activity: ActivityId, now: u64) {
        if let Some(&way) = self.way_of_activity.get(&activity) {
            let Some((sender, input)) = self.ways[way].active.take() else { return };
            let sent = self.arrived.remove(&(input.0, input.1, input.2, input.3 | SENT)).unwrap_or(now);
            self.arrived.insert(input, sent);
            if self.plan.blocking {
                let state = &mut self.states[sender];
                state.is_sending = false;
                let since = state.free_since;
                state.free_since = now;
                self.spend(sender, SpanKind::Transfer, (since, now));
                self.try_finish(sender, now);
                self.try_start(sender, now);
            }
            self.next_transfer(way, now);
            self.try_start(input.0, now);
        } else if let Some(&reduction) = self.reduction_of_activity.get(&activity) {
            self.reductions[reduction].phase += 1;
            self.next_phase(reduction, now);
        } else if let Some(stream) = self.streams.of(activity) {
            self.phase_ended(stream, now);
        }
    }

    /// What follows the last pass of an actor, once all that it sends and scatters is done.
    fn try_finish(&mut self, actor: usize, now: u64) {
        let plan = self.plan;
        let state = &mut self.states[actor];
        let scatters = plan.actors[actor].scatters;
        let is_scattered = scatters.is_none_or(|stream| self.streams.done(stream) >= state.scattered);
        if !state.is_past || state.is_sending || !is_scattered {
            return;
        }
        state.is_past = false;
        let since = state.free_since;
        if since < now {
            self.spend(actor, SpanKind::Sharded, (since, now));
        }
        self.states[actor].free_since = now;
        for (index, _) in plan.reductions.iter().enumerate().filter(|(_, of)| of.actors.contains(&actor)) {
            self.reductions[index].missing -= 1;
            if self.reductions[index].missing == 0 {
                self.reductions[index].since = now;
                self.next_phase(index, now);
            }
        }
        if self.states[actor].reductions_left == 0 {
            self.events.push(Reverse((now + plan.actors[actor].optimizer_ns, Event::Updated(actor))));
        }
    }

    fn next_phase(&mut self, index: usize, now: u64) {
        let plan = self.plan;
        let reduction = &plan.reductions[index];
        if let Some(phase) = reduction.phases.get(self.reductions[index].phase) {
            self.events.push(Reverse((now + phase.delay_ns, Event::Reduce(index))));
            return;
        }
        for &actor in &reduction.actors {
            self.states[actor].reductions_left -= 1;
            if self.states[actor].reductions_left == 0 {
                // Before all had come to the last of its reductions, it waited for other stages.
                let since = self.states[actor].free_since.max(self.reductions[index].since);
                self.spend(actor, SpanKind::Reduce, (since, now));
                self.events.push(Reverse((now + plan.actors[actor].optimizer_ns, Event::Updated(actor))));
            }
        }
    }

    fn reduce(&mut self, index: usize, now: u64) {
        let flow = self.reductions[index].flows[self.reductions[index].phase];
        if !self.traffic.start(&flow) {
            self.reductions[index].phase += 1;
            self.next_phase(index, now);
        }
    }
}

/// Marks an input that is under way, beside its part.
const SENT: u64 = 1 << 63;

#[cfg(test)]
mod tests;
