//! The schedule in time: stages work in order, transfers and reductions share the links.
//!
//! An *actor* is what goes in lockstep: all chips of a stage, with the demand of all of them on the links, or one chip in a
//! flat simulation. Times are whole nanoseconds, and equal times are taken in the order of actors.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::network::{Demand, Flow, Network, Traffic};
use super::schedule::Work;
use crate::fluid::{ActivityId, Completion};

/// What happens in a span of time on an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpanKind {
    /// A forward pass.
    Forward,
    /// A backward pass, with what it computes again.
    Backward,
    /// Waits for a transfer that is under way.
    Transfer,
    /// Gradients are reduced over the replicas.
    Reduce,
    /// The optimiser's step.
    Optimizer,
}

/// A span of time on an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Actor.
    pub actor: usize,
    /// What it does.
    pub kind: SpanKind,
    /// Start and end, nanoseconds.
    pub time: (u64, u64),
    /// Micro-batch.
    pub micro: u64,
    /// Part of the stage.
    pub part: u64,
}

/// One actor.
#[derive(Debug, Clone)]
pub struct Actor {
    /// What it does, in order.
    pub order: Vec<Work>,
    /// Nanoseconds of a forward pass of each part, and of a backward pass.
    pub forward_ns: Vec<u64>,
    /// See there.
    pub backward_ns: Vec<u64>,
    /// The actors before and after it in the pipeline (both are itself without one), and the demand of a transfer there.
    pub next: (usize, Demand),
    /// See there.
    pub previous: (usize, Demand),
    /// The first stage; its next but one part lies on the last of them.
    pub is_first: bool,
    /// The last stage.
    pub is_last: bool,
    /// Nanoseconds of the optimiser's step.
    pub optimizer_ns: u64,
}

/// A reduction of gradients: it starts when all its actors have done their last backward pass.
#[derive(Debug, Clone)]
pub struct Reduction {
    /// Actors, each once.
    pub actors: Vec<usize>,
    /// Its phases: nanoseconds before the bytes, and the bytes.
    pub phases: Vec<(u64, Demand)>,
    /// Share of the links' rate that it reaches.
    pub rate_share: f64,
}

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Actors, the stages in order.
    pub actors: Vec<Actor>,
    /// Reductions.
    pub reductions: Vec<Reduction>,
    /// Parts of each stage.
    pub parts: u64,
    /// Nanoseconds of a transfer beside its bytes.
    pub message_ns: u64,
    /// A sender waits for the receiver.
    pub blocking: bool,
}

/// What an actor did, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Forward and backward passes.
    pub work: u64,
    /// Waiting for transfers under way.
    pub transfer: u64,
    /// Waiting for other stages.
    pub bubble: u64,
    /// Reducing gradients.
    pub reduce: u64,
    /// The optimiser's step.
    pub optimizer: u64,
}

/// The result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Simulated {
    /// When the last actor has ended.
    pub end: u64,
    /// By actor.
    pub spent: Vec<Spent>,
    /// In the order of their ends.
    pub spans: Vec<Span>,
    /// Bytes of transfers between stages by level.
    pub transfer_bytes: Vec<u64>,
}

/// A micro-batch, a part and a direction at an actor: what a pass waits for.
type Input = (usize, bool, u64, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A pass ends.
    Done(usize),
    /// The bytes of a transfer start: an index of `transfers`.
    Send(usize),
    /// The bytes of a phase of a reduction start.
    Reduce(usize),
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

#[derive(Debug, Default, Clone)]
struct State {
    at: usize,
    is_working: bool,
    /// A blocking transfer is under way.
    is_sending: bool,
    free_since: u64,
    reductions_left: usize,
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
            reduction.phases.iter().map(|(_, demand)| traffic.add(demand, reduction.rate_share)).collect();
        reduction_of_activity.extend(flows.iter().filter_map(Flow::activity).map(|activity| (activity, index)));
        reduction.actors.iter().for_each(|&actor| states[actor].reductions_left += 1);
        reductions.push(Reducing { flows, phase: 0, missing: reduction.actors.len(), since: 0 });
    }
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
        result,
    };
    engine.run();
    engine.result
}

impl Engine<'_, '_> {
    fn run(&mut self) {
        for actor in 0..self.states.len() {
            self.try_start(actor, 0);
        }
        let mut completed: Vec<Completion> = Vec::new();
        loop {
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
                    Event::Done(actor) => self.done(actor, at),
                    Event::Send(way) => self.send(way),
                    Event::Reduce(reduction) => self.reduce(reduction, at),
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
        self.span(actor, kind, time, Work { backward: false, micro: 0, part: 0 });
    }

    fn span(&mut self, actor: usize, kind: SpanKind, time: (u64, u64), work: Work) {
        let spent = &mut self.result.spent[actor];
        *match kind {
            SpanKind::Forward | SpanKind::Backward => &mut spent.work,
            SpanKind::Transfer => &mut spent.transfer,
            SpanKind::Reduce => &mut spent.reduce,
            SpanKind::Optimizer => &mut spent.optimizer,
        } += time.1 - time.0;
        if time.1 > time.0 || kind == SpanKind::Optimizer {
            self.result.spans.push(Span { actor, kind, time, micro: work.micro, part: work.part });
        }
    }

    /// Whether a pass is the first or the last of its micro-batch: nothing is to be received or sent.
    fn is_end(&self, actor: usize, work: Work, receives: bool) -> bool {
        let of = &self.plan.actors[actor];
        let (first, last) = (of.is_first && work.part == 0, of.is_last && work.part + 1 == self.plan.parts);
        if work.backward == receives { last } else { first }
    }

    fn try_start(&mut self, actor: usize, now: u64) {
        let state = &self.states[actor];
        let Some(&work) = self.plan.actors[actor].order.get(state.at) else {
            return;
        };
        if state.is_working || state.is_sending {
            return;
        }
        if !self.is_end(actor, work, true) {
            let Some(sent) = self.arrived.remove(&(actor, work.backward, work.micro, work.part)) else { return };
            // Of the time that it has waited, that in which the transfer was under way.
            let since = self.states[actor].free_since.max(sent);
            if since < now {
                self.span(actor, SpanKind::Transfer, (since, now), work);
            }
        }
        let of = &self.plan.actors[actor];
        let times = if work.backward { &of.backward_ns } else { &of.forward_ns };
        let time = times[work.part as usize];
        self.states[actor].is_working = true;
        self.events.push(Reverse((now + time, Event::Done(actor))));
    }

    fn done(&mut self, actor: usize, now: u64) {
        let plan = self.plan;
        let of = &plan.actors[actor];
        let work = of.order[self.states[actor].at];
        let times = if work.backward { &of.backward_ns } else { &of.forward_ns };
        let kind = if work.backward { SpanKind::Backward } else { SpanKind::Forward };
        self.span(actor, kind, (now - times[work.part as usize], now), work);
        let state = &mut self.states[actor];
        (state.is_working, state.free_since) = (false, now);
        state.at += 1;
        let is_last = state.at == of.order.len();
        if !self.is_end(actor, work, false) {
            let (peer, way) =
                if work.backward { (of.previous.0, self.way_of[actor][1]) } else { (of.next.0, self.way_of[actor][0]) };
            // Around the ends of the pipeline a micro-batch goes on to another part.
            let part = match work.backward {
                false if of.is_last => work.part + 1,
                true if of.is_first => work.part - 1,
                _ => work.part,
            };
            let input = (peer, work.backward, work.micro, part);
            if self.ways[way].flow.activity().is_none() {
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
            if !self.states[actor].is_sending {
                self.finished(actor, now);
            }
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
                if self.states[sender].at == self.plan.actors[sender].order.len() {
                    self.finished(sender, now);
                } else {
                    self.try_start(sender, now);
                }
            }
            self.next_transfer(way, now);
            self.try_start(input.0, now);
        } else if let Some(&reduction) = self.reduction_of_activity.get(&activity) {
            self.reductions[reduction].phase += 1;
            self.next_phase(reduction, now);
        }
    }

    /// The last pass of an actor has ended.
    fn finished(&mut self, actor: usize, now: u64) {
        let plan = self.plan;
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
        if let Some((delay, _)) = reduction.phases.get(self.reductions[index].phase) {
            self.events.push(Reverse((now + delay, Event::Reduce(index))));
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
