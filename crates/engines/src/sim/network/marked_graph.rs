//! Marked graphs: how long a period takes in which every node acts once, when nodes wait for each other over FIFOs.
//!
//! The least period is the greatest ratio of cycles to periods over all loops (Reiter 1968). It is found as Lawler does (1976),
//! by assuming a period: either the longest paths of that period exist (Bellman-Ford), or they show a loop that takes longer,
//! whose ratio is the next assumption.

use rdusim_base::units::index_u32;

/// A loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Loop {
    /// Cycles around it.
    pub cycles: f64,
    /// Periods that may be under way around it.
    pub periods: f64,
}

impl Loop {
    /// Cycles that a period takes at least.
    pub(crate) fn cycles_of_period(self) -> f64 {
        self.cycles / self.periods
    }
}

/// `to` acts no earlier than `cycles` behind `from`, so many `periods` before.
#[derive(Debug, Clone, Copy)]
struct Edge {
    from: u32,
    to: u32,
    cycles: f64,
    periods: f64,
}

/// Nodes, and who waits for whom.
#[derive(Debug, Default)]
pub(super) struct MarkedGraph {
    nodes: usize,
    edges: Vec<Edge>,
    /// The longest path to each node so far, and the edge it comes over.
    latest: Vec<f64>,
    over: Vec<Option<u32>>,
}

/// Rounds of Bellman-Ford, and loops, that are tried at most: what takes more is taken to be no slower than found so far.
const MOST_ROUNDS: usize = 256;
/// Cycles that are no loop's, but rounding.
const ROUNDING: f64 = 1e-6;

impl MarkedGraph {
    /// Forgets all nodes.
    pub(super) fn clear(&mut self) {
        self.nodes = 0;
        self.edges.clear();
    }

    /// Adds a node.
    pub(super) fn add(&mut self) -> u32 {
        self.nodes += 1;
        index_u32(self.nodes) - 1
    }

    /// Adds a FIFO between two nodes: what it holds comes `there` cycles behind the first, its room goes back in `back` cycles,
    /// and it has room for as much as moves in `periods`.
    pub(super) fn add_fifo(&mut self, from: u32, to: u32, there: f64, back: f64, periods: f64) {
        self.edges.push(Edge { from, to, cycles: there, periods: 0.0 });
        self.edges.push(Edge { from: to, to: from, cycles: back, periods });
    }

    /// The loop that takes longest for a period, if that is longer than `least` cycles.
    pub(super) fn slowest(&mut self, least: f64) -> Option<Loop> {
        let mut slowest: Option<Loop> = None;
        for _ in 0..MOST_ROUNDS {
            let period = slowest.map_or(least, Loop::cycles_of_period);
            match self.longer_than(period) {
                Some(found) if found.cycles_of_period() > period + ROUNDING => slowest = Some(found),
                _ => break,
            }
        }
        slowest
    }

    /// A loop that takes longer than a period of so many cycles.
    fn longer_than(&mut self, period: f64) -> Option<Loop> {
        self.latest.clear();
        self.latest.resize(self.nodes, 0.0);
        self.over.clear();
        self.over.resize(self.nodes, None);
        for _ in 0..MOST_ROUNDS {
            let mut changed = false;
            for (e, edge) in self.edges.iter().enumerate() {
                let at = self.latest[edge.from as usize] + edge.cycles - edge.periods * period;
                if at > self.latest[edge.to as usize] + ROUNDING {
                    self.latest[edge.to as usize] = at;
                    self.over[edge.to as usize] = Some(index_u32(e));
                    changed = true;
                }
            }
            if !changed {
                return None;
            }
            let found = self.loop_of_paths();
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// A loop among the edges over which the longest paths come.
    fn loop_of_paths(&self) -> Option<Loop> {
        let before = |at: usize| self.over[at].map(|edge| self.edges[edge as usize]);
        // The node from which each was first come to.
        let mut seen = vec![usize::MAX; self.nodes];
        for start in 0..self.nodes {
            let mut at = start;
            while let (usize::MAX, Some(edge)) = (seen[at], before(at)) {
                seen[at] = start;
                at = edge.from as usize;
            }
            if seen[at] != start {
                continue;
            }
            let (first, mut found) = (at, Loop { cycles: 0.0, periods: 0.0 });
            while let Some(edge) = before(at) {
                found.cycles += edge.cycles;
                found.periods += edge.periods;
                at = edge.from as usize;
                if at == first {
                    return Some(found);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A FIFO of four flits over a hop of 16 cycles, where a period moves 40 flits: 32 cycles for every four.
    #[test]
    fn one_fifo_is_a_credit_round_trip() {
        let mut graph = MarkedGraph::default();
        let (switch, next) = (graph.add(), graph.add());
        graph.add_fifo(switch, next, 16.0, 16.0, 4.0 / 40.0);
        let slowest = graph.slowest(100.0).unwrap();
        assert_eq!(slowest, Loop { cycles: 32.0, periods: 4.0 / 40.0 });
        assert_eq!(graph.slowest(slowest.cycles_of_period()), None);
    }

    /// Rows x and weights w meet at a near and at a far PCU, which x reaches over 90 cycles. What w gives the near PCU waits for
    /// x at the far one: x to far, the room of w back, w to near, the room of x back: 90 + 10 + 10 + 10 cycles for the four flits
    /// of each short FIFO.
    #[test]
    fn flows_that_meet_twice_wait_for_the_farther_way() {
        let mut graph = MarkedGraph::default();
        let of_firing = |flits: f64| flits / 20.0;
        let [x, w, near, far] = [0; 4].map(|_| graph.add());
        graph.add_fifo(x, near, 10.0, 10.0, of_firing(4.0));
        graph.add_fifo(x, far, 90.0, 90.0, of_firing(100.0));
        graph.add_fifo(w, near, 10.0, 10.0, of_firing(4.0));
        graph.add_fifo(w, far, 10.0, 10.0, of_firing(4.0));
        assert_eq!(graph.slowest(20.0), Some(Loop { cycles: 120.0, periods: of_firing(8.0) }));
    }

    proptest! {
        /// The slowest of all simple loops, tried one by one.
        #[test]
        fn no_loop_is_slower_than_the_one_found(
            fifos in prop::collection::vec((0u32..5, 0u32..5, 1u32..20, 1u32..20, 1u32..8), 1..8),
        ) {
            let mut graph = MarkedGraph::default();
            (0..5).for_each(|_| { graph.add(); });
            for (from, to, there, back, periods) in fifos {
                if from != to {
                    // Ways lead on only, so that no loop is without room.
                    let ends = (from.min(to), from.max(to));
                    graph.add_fifo(ends.0, ends.1, f64::from(there), f64::from(back), f64::from(periods));
                }
            }
            let mut greatest: f64 = 0.0;
            let mut paths: Vec<(usize, usize, u32, f64, f64)> = (0..5).map(|n| (n, n, 1 << n, 0.0, 0.0)).collect();
            while let Some((start, at, seen, cycles, periods)) = paths.pop() {
                for edge in graph.edges.iter().filter(|edge| edge.from as usize == at) {
                    let (cycles, periods, to) = (cycles + edge.cycles, periods + edge.periods, edge.to as usize);
                    if to == start {
                        greatest = greatest.max(cycles / periods);
                    } else if seen >> to & 1 == 0 {
                        paths.push((start, to, seen | 1 << to, cycles, periods));
                    }
                }
            }
            let found = graph.slowest(0.5).map_or(0.0, Loop::cycles_of_period);
            prop_assert!((found - greatest).abs() < 1e-3 || greatest <= 0.5, "{found} {greatest}");
        }
    }
}
