//! Rates of independent flows: each flow of a copy or a store moves as fast as its own route lets it, whatever the others of
//! its transfer group do, so that where a route is free its flits arrive in a burst.

use rdusim_base::index::IndexVec;
use rdusim_cost::cost::Ticks;
use rdusim_program::{Flow, FlowId, shared};

use super::transfer_group::TransferGroup;

/// Flits of a transfer that work is stated for, so that shares of it are whole numbers of ticks.
const REFERENCE_FLITS: u64 = 1 << 20;

/// Ticks that the share of [`REFERENCE_FLITS`] takes at a resource.
pub(super) fn work_of(share: (u64, u64), flit_ticks: Ticks) -> u64 {
    shared(REFERENCE_FLITS * flit_ticks, share)
}

/// Ticks of `flits` where [`REFERENCE_FLITS`] are `work`.
pub(super) fn scaled(work: u64, flits: u64) -> u128 {
    u128::from(work) * u128::from(flits) / u128::from(REFERENCE_FLITS)
}

/// A function of the ticks of a flit, with its latest value kept: neighbours on a route mostly take a flit the same time.
pub(super) struct OfFlitTicks<F> {
    function: F,
    latest: (Ticks, u64),
}

impl<F: Fn(Ticks) -> u64> OfFlitTicks<F> {
    /// A function, which is 0 at 0.
    pub(super) fn new(function: F) -> Self {
        Self { function, latest: (0, 0) }
    }

    /// Its value for a resource at which a flit takes so long.
    pub(super) fn at(&mut self, flit_ticks: Ticks) -> u64 {
        if self.latest.0 != flit_ticks {
            self.latest = (flit_ticks, (self.function)(flit_ticks));
        }
        self.latest.1
    }
}

/// Ticks that each flow of each independent group takes for [`REFERENCE_FLITS`] of the group: the largest work of the whole
/// group at any one resource on the flow's route, as the flows that share it end together there. `slowest` are the least
/// ticks of a flit of each flow. Of other groups, nothing.
pub(super) fn own_ticks(
    flows: &IndexVec<FlowId, Flow>,
    groups: &[TransferGroup],
    flit_ticks: &[Ticks],
    slowest: &IndexVec<FlowId, Ticks>,
) -> Vec<Vec<Ticks>> {
    // Work of one group at each resource; cleared before the next.
    let mut work: Vec<Ticks> = vec![0; flit_ticks.len()];
    let mut of_group = |group: &TransferGroup| {
        let independent: &[FlowId] = if group.independent { &group.flows } else { &[] };
        for flow in independent.iter().map(|&f| &flows[f]) {
            let mut of_flow = OfFlitTicks::new(|ticks| work_of(flow.share, ticks));
            for &r in &flow.route {
                work[r as usize] += of_flow.at(flit_ticks[r as usize]);
            }
        }
        let of_flow = |&f: &FlowId| {
            let longest = flows[f].route.iter().map(|&r| work[r as usize]).max().unwrap_or(0);
            longest.max(work_of(flows[f].share, slowest[f]))
        };
        let own = independent.iter().map(of_flow).collect();
        for &r in independent.iter().flat_map(|&f| &flows[f].route) {
            work[r as usize] = 0;
        }
        own
    };
    groups.iter().map(&mut of_group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::network::flow;

    #[test]
    fn a_flow_takes_as_long_as_its_fullest_resource() {
        let flows = IndexVec::from(vec![flow((1, 2), &[0, 1]), flow((1, 4), &[1]), flow((1, 4), &[2])]);
        let group = |independent| TransferGroup { flows: flows.ids().collect(), serial: true, independent };
        let own = own_ticks(&flows, &[group(true), group(false), group(true)], &[1, 1, 1], &vec![1, 1, 2].into());
        let each = vec![REFERENCE_FLITS * 3 / 4, REFERENCE_FLITS * 3 / 4, REFERENCE_FLITS / 2];
        assert_eq!(own, [each.clone(), Vec::new(), each]);
    }
}
