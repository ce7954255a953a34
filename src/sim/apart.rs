//! Volleys whose flows each go as fast as their own way lets them, as the parts of a copy do: where the way is free they
//! come in a rush, and are through before the rest.

use crate::compile::{Flow, shared};

use super::time::Ticks;

/// Flits of a volley that weights are told for.
pub const GRAIN: u64 = 1 << 20;

/// Ticks that the share of [`GRAIN`] flits takes a resource.
pub fn weight(share: (u64, u64), flit_ticks: Ticks) -> u64 {
    shared(GRAIN * flit_ticks, share)
}

/// How long each of a volley's flows takes of itself if the volley moves [`GRAIN`] flits: as long as where it meets most
/// of the others, which end together there. `slowest` is what a flit of each flow takes at least.
pub fn own_ticks(flows: &[Flow], volley: &[usize], flit_ticks: &[Ticks], slowest: &[Ticks]) -> Vec<Ticks> {
    let mut met: Vec<(u32, Ticks)> = Vec::new();
    for &f in volley {
        let flow = &flows[f];
        met.extend(flow.route.iter().map(|&r| (r, weight(flow.share, flit_ticks[r as usize]))));
    }
    met.sort_unstable_by_key(|&(resource, _)| resource);
    met.dedup_by(|next, sum| {
        let same = next.0 == sum.0;
        sum.1 += if same { next.1 } else { 0 };
        same
    });
    let all_at = |r: u32| met.binary_search_by_key(&r, |&(resource, _)| resource).map_or(0, |i| met[i].1);
    let of_flow = |&f: &usize| {
        let longest = flows[f].route.iter().map(|&r| all_at(r)).max().unwrap_or(0);
        longest.max(weight(flows[f].share, slowest[f]))
    };
    volley.iter().map(of_flow).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Amount, FlowKind, Resource};

    #[test]
    fn a_flow_takes_as_long_as_where_it_meets_most() {
        let flow = |share, route: &[Resource]| Flow {
            kind: FlowKind::Copy { home: 0 },
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
        let flows = [flow((1, 2), &[0, 1]), flow((1, 4), &[1]), flow((1, 4), &[2])];
        let own = own_ticks(&flows, &[0, 1, 2], &[1, 1, 1], &[1, 1, 2]);
        assert_eq!(own, [GRAIN * 3 / 4, GRAIN * 3 / 4, GRAIN / 2]);
    }
}
