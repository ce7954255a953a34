//! Pipelines without anything to arbitrate: nodes joined by bounded channels, each with one producer and one consumer.
//!
//! No global order of events is needed: a token's time at a node follows from the times its slots were filled and
//! freed (a max-plus recurrence), so nodes take turns, each going as far as its channels let it. The channels are the
//! rings of the event engine; times are whole cycles.

use rdusim_engines::sim::Ring;

/// A node: every firing takes one token from each input and puts one into each output.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    name: String,
    service_cycles: u64,
    latency_cycles: u64,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

/// A graph of nodes and channels through which tokens flow.
#[derive(Debug, Clone, Default)]
pub struct Pipeline {
    nodes: Vec<Node>,
    capacities: Vec<u64>,
}

/// What one node did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeRun {
    /// Tokens it passed on.
    pub tokens: u64,
    /// Cycles it worked.
    pub busy_cycles: u64,
    /// Cycles it waited for a token.
    pub starved_cycles: u64,
    /// Cycles it had a token and waited for room.
    pub stalled_cycles: u64,
}

/// What a run of a pipeline gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineRun {
    /// Cycles until the last token has left the last node.
    pub cycles: u64,
    /// Tokens that went through channels, all channels together.
    pub transfers: u64,
    /// By node, in the order they were added.
    pub nodes: Vec<NodeRun>,
    /// Nodes that could not finish, by name: the pipeline cannot go on. Empty when it drained.
    pub blocked: Vec<String>,
    /// Tokens that were skipped because the pipeline only repeated itself.
    pub skipped_tokens: u64,
}

/// When a slot was filled, and when it was last freed.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    filled: u64,
    freed: u64,
}

/// A node in time.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    free_at: u64,
    run: NodeRun,
}

/// Firings of one node in one go, at most.
const MOST_FIRINGS: u64 = 1024;

/// Rounds of which one state is compared with all that follow, until twice as many have passed.
const FIRST_COMPARED: u64 = 8;

impl Pipeline {
    /// Adds a node that starts at most once in `service_cycles` and passes a token on `latency_cycles` after that.
    /// Returns its number.
    pub fn node(&mut self, name: &str, service_cycles: u64, latency_cycles: u64) -> usize {
        self.nodes.push(Node {
            name: name.to_owned(),
            service_cycles,
            latency_cycles,
            inputs: Vec::new(),
            outputs: Vec::new(),
        });
        self.nodes.len() - 1
    }

    /// Joins two nodes by a channel of `capacity` tokens (at least one).
    ///
    /// # Panics
    /// If there is no such node.
    pub fn channel(&mut self, from: usize, to: usize, capacity: u64) {
        let channel = self.capacities.len();
        self.capacities.push(capacity.max(1));
        self.nodes[from].outputs.push(channel);
        self.nodes[to].inputs.push(channel);
    }

    /// Lets every node fire `tokens` times, in order. With `skip`, periods are not simulated, and all results but
    /// [`PipelineRun::skipped_tokens`] are the same.
    pub fn run(&self, tokens: u64, skip: bool) -> PipelineRun {
        let mut flow = Flow {
            pipeline: self,
            rings: self.capacities.iter().map(|&capacity| Ring::new(capacity)).collect(),
            states: vec![State::default(); self.nodes.len()],
            times: vec![Times::default(); MOST_FIRINGS as usize],
            tokens,
            end: 0,
        };
        let (mut rounds, mut compared, mut until) = (0u64, None, FIRST_COMPARED);
        let mut skipped_tokens = 0;
        while flow.round() {
            rounds += 1;
            if !skip {
                continue;
            }
            let is_same = compared.as_ref().is_some_and(|earlier: &Flow<'_>| earlier.is_like(&flow));
            if let (true, Some(earlier)) = (is_same, &compared) {
                skipped_tokens = flow.repeat(earlier);
                break;
            }
            // One state is compared with twice as many as the one before: a period of any length is found.
            if rounds == until {
                compared = Some(flow.clone());
                until *= 2;
            }
        }
        while flow.round() {}
        let names = self.nodes.iter().zip(&flow.states).filter(|(_, state)| state.run.tokens < tokens);
        PipelineRun {
            cycles: flow.end,
            transfers: flow.rings.iter().map(Ring::filled).sum(),
            nodes: flow.states.iter().map(|state| state.run).collect(),
            blocked: names.map(|(node, _)| node.name.clone()).collect(),
            skipped_tokens,
        }
    }
}

/// A run under way.
#[derive(Debug, Clone)]
struct Flow<'a> {
    pipeline: &'a Pipeline,
    rings: Vec<Ring<Times>>,
    states: Vec<State>,
    /// Room for the firings of one node: when what they take was filled and what they need was freed, and after that
    /// when what they put down is filled and what they took is freed.
    times: Vec<Times>,
    tokens: u64,
    end: u64,
}

/// Goes through firings and the slots of a ring that they use, in the order of both.
fn pair_up(times: &mut [Times], (first, then): (&mut [Times], &mut [Times]), act: impl Fn(&mut Times, &mut Times)) {
    let (before, after) = times.split_at_mut(first.len());
    for (at, slot) in before.iter_mut().zip(first) {
        act(at, slot);
    }
    for (at, slot) in after.iter_mut().zip(then) {
        act(at, slot);
    }
}

impl Flow<'_> {
    /// Lets every node in turn fire as often as it can; whether any did.
    fn round(&mut self) -> bool {
        let mut fired = false;
        for (node, state) in self.pipeline.nodes.iter().zip(&mut self.states) {
            let mut firings = self.tokens - state.run.tokens;
            for &input in &node.inputs {
                firings = firings.min(self.rings[input].filled() - self.rings[input].released());
            }
            for &output in &node.outputs {
                firings = firings.min(self.rings[output].credit());
            }
            firings = firings.min(MOST_FIRINGS);
            if firings == 0 {
                continue;
            }
            let times = &mut self.times[..firings as usize];
            times.fill(Times::default());
            for &input in &node.inputs {
                let ring = &mut self.rings[input];
                pair_up(times, ring.range_mut(ring.released(), firings), |at, slot| {
                    at.filled = at.filled.max(slot.filled);
                });
            }
            for &output in &node.outputs {
                let ring = &mut self.rings[output];
                pair_up(times, ring.range_mut(ring.filled(), firings), |at, slot| {
                    at.freed = at.freed.max(slot.freed);
                });
            }
            for at in times.iter_mut() {
                let ready = at.filled.max(state.free_at);
                let start = at.freed.max(ready);
                state.run.starved_cycles += ready - state.free_at;
                state.run.stalled_cycles += start - ready;
                state.free_at = start + node.service_cycles;
                *at = Times { filled: state.free_at + node.latency_cycles, freed: state.free_at };
            }
            for &input in &node.inputs {
                let ring = &mut self.rings[input];
                pair_up(times, ring.range_mut(ring.released(), firings), |at, slot| slot.freed = at.freed);
                ring.release(firings);
            }
            for &output in &node.outputs {
                let ring = &mut self.rings[output];
                pair_up(times, ring.range_mut(ring.filled(), firings), |at, slot| slot.filled = at.filled);
                ring.fill(firings);
            }
            fired = true;
            state.run.tokens += firings;
            state.run.busy_cycles += firings * node.service_cycles;
            self.end = self.end.max(state.free_at + node.latency_cycles);
        }
        fired
    }

    /// Whether all goes on from `later` as it did from here: the same, later, while tokens last. Every node must have
    /// passed on as many.
    fn is_like(&self, later: &Self) -> bool {
        let time = later.end - self.end;
        let tokens = later.states[0].run.tokens - self.states[0].run.tokens;
        let states = self.states.iter().zip(&later.states);
        // Times that differ in either direction differ for good.
        tokens > 0
            && states.clone().all(|(a, b)| {
                b.run.tokens - a.run.tokens == tokens && b.run.tokens < self.tokens && b.free_at == a.free_at + time
            })
            && self.rings.iter().zip(&later.rings).all(|(a, b)| {
                let held = a.filled() - a.released();
                let same = |(place, (a, b)): (u64, (&Times, &Times))| {
                    // Of a filled slot the fill counts, of an empty one when it was freed.
                    if place < held { a.filled + time == b.filled } else { a.freed + time == b.freed }
                };
                b.filled() - b.released() == held && (0..).zip(a.slots().zip(b.slots())).all(same)
            })
    }

    /// Repeats what happened since `earlier` as often as tokens last. Returns the tokens that this skips.
    fn repeat(&mut self, earlier: &Self) -> u64 {
        let time = self.end - earlier.end;
        let tokens = self.states[0].run.tokens - earlier.states[0].run.tokens;
        let furthest = self.states.iter().map(|state| state.run.tokens).max().unwrap_or(0);
        let times = (self.tokens - furthest) / tokens;
        for (state, before) in self.states.iter_mut().zip(&earlier.states) {
            let (run, before) = (&mut state.run, &before.run);
            run.tokens += times * tokens;
            run.busy_cycles += times * (run.busy_cycles - before.busy_cycles);
            run.starved_cycles += times * (run.starved_cycles - before.starved_cycles);
            run.stalled_cycles += times * (run.stalled_cycles - before.stalled_cycles);
            state.free_at += times * time;
        }
        for ring in &mut self.rings {
            ring.pass(times * tokens);
            for slot in ring.slots_mut() {
                slot.filled += times * time;
                slot.freed += times * time;
            }
        }
        self.end += times * time;
        times * tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Nodes in a row.
    fn chain(services: &[u64], capacity: u64) -> Pipeline {
        let mut pipeline = Pipeline::default();
        for (i, &service) in services.iter().enumerate() {
            pipeline.node(&format!("n{i}"), service, 1);
            if i > 0 {
                pipeline.channel(i - 1, i, capacity);
            }
        }
        pipeline
    }

    #[test]
    fn the_slowest_node_sets_the_pace() {
        let run = chain(&[2, 5, 3], 4).run(100, false);
        // The first token reaches the second node at 3, the last leaves it at 503; then 1 + 3 + 1.
        assert_eq!((run.cycles, run.transfers), (508, 200));
        assert_eq!((run.nodes[1].busy_cycles, run.nodes[1].starved_cycles), (500, 3));
        assert!(run.nodes[0].stalled_cycles > 0 && run.nodes[2].starved_cycles > 0 && run.blocked.is_empty());
    }

    #[test]
    fn one_slot_is_handed_to_and_fro() {
        // With one slot a token is taken, worked on and freed before the next is put down.
        let run = chain(&[2, 5], 1).run(10, false);
        let (mut first, mut second) = (0, 0);
        for _ in 0..10 {
            first = std::cmp::max(first, second) + 2;
            second = std::cmp::max(first + 1, second) + 5;
        }
        assert_eq!(run.cycles, second + 1);
    }

    #[test]
    fn a_loop_without_tokens_is_told() {
        let mut pipeline = chain(&[1, 1, 1], 2);
        pipeline.channel(2, 1, 2);
        let run = pipeline.run(10, true);
        assert_eq!(run.blocked, ["n0", "n1", "n2"]);
    }

    proptest! {
        #[test]
        fn skipping_changes_nothing(
            services in prop::collection::vec(0u64..9, 2..8), capacity in 1u64..6, tokens in 1u64..2000, fork: bool,
        ) {
            let mut pipeline = chain(&services, capacity);
            if fork {
                pipeline.channel(0, services.len() - 1, capacity + services.len() as u64);
            }
            let all = pipeline.run(tokens, false);
            let mut some = pipeline.run(tokens, true);
            prop_assert!(all.blocked.is_empty() && all.skipped_tokens == 0);
            prop_assert!(tokens < 500 || some.skipped_tokens > tokens / 2);
            some.skipped_tokens = 0;
            prop_assert_eq!(some, all);
        }
    }
}
