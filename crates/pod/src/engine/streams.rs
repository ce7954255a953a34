//! Collectives that run beside computing: each stream takes the requests of its actors in their order, one at a time.
//!
//! A request starts when every actor of the stream has made it, which in a grouped simulation is one actor. The links are
//! shared with all other traffic.

use std::collections::{BTreeMap, VecDeque};

use super::super::network::{Demand, Flow, Traffic};
use rdusim_engines::fluid::ActivityId;

/// A phase of a collective.
#[derive(Debug, Clone)]
pub struct ReductionPhase {
    /// Nanoseconds before the bytes.
    pub delay_ns: u64,
    /// The bytes.
    pub demand: Demand,
    /// Share of the links' rate that the collective reaches.
    pub rate_share: f64,
}

/// A collective as phases.
#[derive(Debug, Clone)]
pub struct Collective {
    /// Its phases.
    pub phases: Vec<ReductionPhase>,
}

/// A stream and what can be asked of it.
#[derive(Debug, Clone)]
pub struct Stream {
    /// Actors, each once.
    pub actors: Vec<usize>,
    /// Collectives, by the index that a unit names.
    pub collectives: Vec<Collective>,
}

/// What the engine does next for a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing: a request is under way, or none has been made by all.
    Nothing,
    /// The bytes of a phase start after so many nanoseconds.
    After(u64),
}

/// A stream in time.
#[derive(Debug)]
struct Running {
    /// Flows of the phases of each collective.
    flows: Vec<Vec<Flow>>,
    /// Requests that are not done: indices of collectives.
    queue: VecDeque<usize>,
    /// How many each actor has made, in the order of `actors`.
    made: Vec<u64>,
    /// How many are done.
    done: u64,
    /// Phase of the first of the queue, if it is under way.
    phase: Option<usize>,
}

/// All streams of a plan.
#[derive(Debug, Default)]
pub(super) struct Streams {
    running: Vec<Running>,
    of_activity: BTreeMap<ActivityId, usize>,
    /// Bytes by level of all that has started.
    pub bytes: Vec<u64>,
}

impl Streams {
    pub(super) fn new(streams: &[Stream], traffic: &mut Traffic<'_>) -> Self {
        let mut all = Self::default();
        for (index, stream) in streams.iter().enumerate() {
            let flows: Vec<Vec<Flow>> = stream
                .collectives
                .iter()
                .map(|of| of.phases.iter().map(|phase| traffic.add(&phase.demand, phase.rate_share)).collect())
                .collect();
            let activities = flows.iter().flatten().filter_map(Flow::activity);
            all.of_activity.extend(activities.map(|activity| (activity, index)));
            let made = vec![0; stream.actors.len()];
            all.running.push(Running { flows, queue: VecDeque::new(), made, done: 0, phase: None });
        }
        all
    }

    /// How many requests of a stream are done.
    pub(super) fn done(&self, stream: usize) -> u64 {
        self.running[stream].done
    }

    /// Whether a collective of a stream is under way.
    pub(super) fn is_busy(&self, stream: usize) -> bool {
        self.running[stream].phase.is_some()
    }

    /// The stream of an activity.
    pub(super) fn of(&self, activity: ActivityId) -> Option<usize> {
        self.of_activity.get(&activity).copied()
    }

    /// An actor asks for a collective.
    pub(super) fn ask(&mut self, plan: &[Stream], stream: usize, actor: usize, collective: usize) {
        let of = &mut self.running[stream];
        let Some(at) = plan[stream].actors.iter().position(|known| *known == actor) else { return };
        of.made[at] += 1;
        if of.made[at] > of.done + of.queue.len() as u64 {
            of.queue.push_back(collective);
        }
    }

    /// Begins the next request if it can begin.
    pub(super) fn begin(&mut self, plan: &[Stream], stream: usize) -> Next {
        let of = &mut self.running[stream];
        let all_made = of.made.iter().min().is_some_and(|least| *least > of.done);
        let Some(&collective) = of.queue.front().filter(|_| of.phase.is_none() && all_made) else {
            return Next::Nothing;
        };
        of.phase = Some(0);
        for ReductionPhase { demand, .. } in &plan[stream].collectives[collective].phases {
            let levels = demand.by_level.len().max(self.bytes.len());
            self.bytes.resize(levels, 0);
            self.bytes.iter_mut().zip(&demand.by_level).for_each(|(sum, bytes)| *sum += bytes);
        }
        Next::After(plan[stream].collectives[collective].phases.first().map_or(0, |phase| phase.delay_ns))
    }

    /// The bytes of the phase of a stream start; whether any move.
    pub(super) fn start(&self, stream: usize, traffic: &mut Traffic<'_>) -> bool {
        let of = &self.running[stream];
        let flow = of.queue.front().zip(of.phase).and_then(|(&collective, phase)| of.flows[collective].get(phase));
        flow.is_some_and(|flow| traffic.start(flow))
    }

    /// The phase of a stream has ended: the delay of the next of the same request, or `None` if the request is done.
    pub(super) fn phase_ended(&mut self, plan: &[Stream], stream: usize) -> Option<u64> {
        let of = &mut self.running[stream];
        let (&collective, phase) = of.queue.front().zip(of.phase.as_mut())?;
        *phase += 1;
        if let Some(next) = plan[stream].collectives[collective].phases.get(*phase) {
            return Some(next.delay_ns);
        }
        of.queue.pop_front();
        (of.phase, of.done) = (None, of.done + 1);
        None
    }
}
