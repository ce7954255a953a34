//! Volleys whose flows each go as fast as their own way lets them, as the parts of a copy do: where the way is free they
//! come in a rush, and are through before the rest.

use crate::cost::Ticks;
use crate::index::IndexVec;
use crate::program::{Flow, FlowId, shared};

use super::transfer_group::Volley;

/// Flits of a volley that weights are told for.
pub const GRAIN: u64 = 1 << 20;

/// Ticks that the share of [`GRAIN`] flits takes a resource.
pub fn weight(share: (u64, u64), flit_ticks: Ticks) -> u64 {
    shared(GRAIN * flit_ticks, share)
}

/// What the ticks of a flit tell of a flow, remembered: neighbours on a route mostly take a flit the same time.
pub struct ByTicks<F> {
    tells: F,
    known: (Ticks, u64),
}

impl<F: Fn(Ticks) -> u64> ByTicks<F> {
    /// Told by a function, of a resource that takes no time nothing.
    pub fn new(tells: F) -> Self {
        Self { tells, known: (0, 0) }
    }

    /// Of a resource that a flit takes so long.
    pub fn at(&mut self, flit_ticks: Ticks) -> u64 {
        if self.known.0 != flit_ticks {
            self.known = (flit_ticks, (self.tells)(flit_ticks));
        }
        self.known.1
    }
}

/// How long each of a volley's flows takes of itself if the volley moves [`GRAIN`] flits: as long as where it meets most
/// of the others, which end together there. Of volleys whose flows do not go apart, nothing. `slowest` is what a flit of
/// each flow takes at least.
pub fn own_ticks(
    flows: &IndexVec<FlowId, Flow>,
    volleys: &[Volley],
    flit_ticks: &[Ticks],
    slowest: &IndexVec<FlowId, Ticks>,
) -> Vec<Vec<Ticks>> {
    // What a volley loads each resource with; nothing again when the next is looked at.
    let mut met: Vec<Ticks> = vec![0; flit_ticks.len()];
    let mut of_volley = |volley: &Volley| {
        let apart: &[FlowId] = if volley.apart { &volley.flows } else { &[] };
        for flow in apart.iter().map(|&f| &flows[f]) {
            let mut weights = ByTicks::new(|ticks| weight(flow.share, ticks));
            for &r in &flow.route {
                met[r as usize] += weights.at(flit_ticks[r as usize]);
            }
        }
        let of_flow = |&f: &FlowId| {
            let longest = flows[f].route.iter().map(|&r| met[r as usize]).max().unwrap_or(0);
            longest.max(weight(flows[f].share, slowest[f]))
        };
        let own = apart.iter().map(of_flow).collect();
        for &r in apart.iter().flat_map(|&f| &flows[f].route) {
            met[r as usize] = 0;
        }
        own
    };
    volleys.iter().map(&mut of_volley).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Id;
    use crate::program::{Amount, BufferId, FlowKind, Resource};

    #[test]
    fn a_flow_takes_as_long_as_where_it_meets_most() {
        let flow = |share, route: &[Resource]| Flow {
            kind: FlowKind::Copy { home: BufferId::from_index(0) },
            amount: Amount::SlotBytes,
            share,
            reads: None,
            writes: None,
            route: route.to_vec(),
            links: 0,
            hop_cycles: 0,
            pmu_sinks: 0,
            from_pmu: false,
        };
        let flows = IndexVec::from(vec![flow((1, 2), &[0, 1]), flow((1, 4), &[1]), flow((1, 4), &[2])]);
        let volley = |apart| Volley { flows: flows.ids().collect(), serial: true, apart, holds_flits: None };
        let own = own_ticks(&flows, &[volley(true), volley(false), volley(true)], &[1, 1, 1], &vec![1, 1, 2].into());
        let each = vec![GRAIN * 3 / 4, GRAIN * 3 / 4, GRAIN / 2];
        assert_eq!(own, [each.clone(), Vec::new(), each]);
    }
}
