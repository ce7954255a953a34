//! Peak demand: the largest rate that each flow of a section ever asks of a resource. A resource whose peaks add up to no
//! more than its capacity never delays a transfer.

use rdusim_base::units::{Flits, index};
use std::collections::VecDeque;

use rdusim_base::index::IndexVec;
use rdusim_cost::cost::{StageWork, TICKS_PER_CYCLE, Ticks};
use rdusim_graph::arch::Chip;
use rdusim_program::{Amount, Flow, FlowId, FlowKind, Section, StageId, shared};

use super::independent_flows::{OfFlitTicks, work_of};
use super::processor_sharing::CAPACITY;
use super::transfer_group::TransferGroup;

/// Latest flows that a flow is compared with, as most have the same peak as one of these.
const COMPARED: usize = 12;

/// Flits of a slot below which they arrive in one burst at the full rate.
const BURST_FLITS: u64 = 16;

/// Peak demand of a flow.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Peak {
    /// A rate; [`CAPACITY`] is a flit a cycle.
    Rate(u64),
    /// Flits of a slot, and their rate if they are not few.
    Slot(u64, u64),
    /// Flits of a slot, at the flow's own rate.
    Burst(u64),
}

/// Demand of the fills, drains or copies of one transfer group at a resource.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Demand {
    /// Sum of their peak rates, of [`CAPACITY`].
    rate: u64,
    /// Flits of a slot.
    flits: u64,
    flows: u64,
}

/// Demand of one transfer group at each resource that it uses.
struct GroupDemand {
    of: Vec<Demand>,
    used: Vec<usize>,
}

impl GroupDemand {
    /// Adds a flow that moves so many flits of a slot, at a rate.
    fn add(&mut self, flow: &Flow, flits: u64, mut rate: OfFlitTicks<impl Fn(Ticks) -> u64>, flit_ticks: &[Ticks]) {
        for r in flow.route.iter().map(|&r| r as usize) {
            let demand = &mut self.of[r];
            if demand.flows == 0 {
                self.used.push(r);
            }
            demand.flows += 1;
            demand.rate += rate.at(flit_ticks[r]);
            demand.flits += flits;
        }
    }

    /// Adds the group's demand to `demand`, and is empty for the next group.
    fn settle(&mut self, independent: bool, demand: &mut [u64]) {
        for r in self.used.drain(..) {
            let Demand { rate, flits, flows } = std::mem::take(&mut self.of[r]);
            // Independent flows that fill a resource compete with each other there.
            let is_full = flows > 1 && independent && rate + flows >= CAPACITY;
            demand[r] += if flits < BURST_FLITS || is_full { flows * CAPACITY } else { rate };
        }
    }
}

/// Sum of the peak demands at every resource, of [`CAPACITY`]. `flit_ticks` are the ticks of a flit at each resource, `own`
/// those of [`super::independent_flows::own_ticks`].
pub(crate) fn demand(
    flows: &IndexVec<FlowId, Flow>,
    groups: &[TransferGroup],
    peaks: &IndexVec<FlowId, Peak>,
    flit_ticks: &[Ticks],
    own: &[Vec<Ticks>],
) -> Vec<u64> {
    let mut demand = vec![0; flit_ticks.len()];
    let mut of_group = GroupDemand { of: vec![Demand::default(); flit_ticks.len()], used: Vec::new() };
    let at_peak = |rate: u64| {
        OfFlitTicks::new(move |ticks| {
            let rate = if ticks == TICKS_PER_CYCLE { rate } else { (rate * ticks).div_ceil(TICKS_PER_CYCLE) };
            rate.min(CAPACITY)
        })
    };
    for (group, own) in groups.iter().zip(own) {
        for (i, &f) in group.flows.iter().enumerate() {
            let flow = &flows[f];
            match peaks[f] {
                Peak::Rate(rate) => {
                    let mut rate = at_peak(rate);
                    // All links take a flit the same time.
                    let (ports, links) = flow.route.split_at(flow.route.len() - index(flow.links));
                    for r in ports.iter().map(|&r| r as usize) {
                        demand[r] += rate.at(flit_ticks[r]);
                    }
                    let of_links = links.first().map_or(0, |&r| rate.at(flit_ticks[r as usize]));
                    for &r in links {
                        demand[r as usize] += of_links;
                    }
                }
                Peak::Slot(flits, rate) => of_group.add(flow, flits, at_peak(rate), flit_ticks),
                Peak::Burst(flits) => {
                    let own = own.get(i).copied().unwrap_or(1).max(1);
                    let rate = OfFlitTicks::new(|ticks| work_of(flow.share, ticks) * CAPACITY / own);
                    of_group.add(flow, flits, rate, flit_ticks);
                }
            }
        }
        of_group.settle(group.independent, &mut demand);
    }
    demand
}

/// Peak demand of every flow; `slot_flits` are the flits of the largest slot of a fill, a drain or a copy.
pub(crate) fn peaks(
    chip: &Chip,
    section: &Section,
    work: &IndexVec<StageId, StageWork>,
    slot_flits: &dyn Fn(FlowKind) -> Flits,
) -> IndexVec<FlowId, Peak> {
    // Most flows equal one of the latest in kind, amount and share.
    let mut peaks: IndexVec<FlowId, Peak> = IndexVec::new();
    let mut kinds: VecDeque<FlowId> = VecDeque::with_capacity(COMPARED);
    for (f, flow) in section.flows.iter_enumerated() {
        let is_equal = |other: &Flow| (other.kind, other.amount, other.share) == (flow.kind, flow.amount, flow.share);
        let known = kinds.iter().find(|&&kind| is_equal(&section.flows[kind])).map(|&kind| peaks[kind]);
        peaks.push(known.unwrap_or_else(|| {
            if kinds.len() == COMPARED {
                kinds.pop_back();
            }
            kinds.push_front(f);
            peak(chip, section, work, slot_flits, flow)
        }));
    }
    peaks
}

fn peak(
    chip: &Chip,
    section: &Section,
    work: &IndexVec<StageId, StageWork>,
    slot_flits: &dyn Fn(FlowKind) -> Flits,
    flow: &Flow,
) -> Peak {
    let of_firings = |stage: StageId, group, amount, results| {
        Peak::Rate(of_firings(section, &work[stage], flow, group, amount, results).min(CAPACITY))
    };
    match flow.kind {
        FlowKind::Feed { stage, group } => of_firings(stage, group, flow.amount, false),
        FlowKind::State { stage, group } => of_firings(stage, group, Amount::State, false),
        FlowKind::PartialRead { stage, group } | FlowKind::Merge { stage, group } => {
            of_firings(stage, group, Amount::Partials, false)
        }
        FlowKind::PartialWrite { stage, group } | FlowKind::Forward { stage, group } => {
            of_firings(stage, group, Amount::Partials, true)
        }
        FlowKind::Emit { stage, group } => of_firings(stage, group, Amount::ResultBytes, true),
        FlowKind::Copy { .. } | FlowKind::Drain { .. } => Peak::Burst(shared(slot_flits(flow.kind).0, flow.share)),
        FlowKind::Fill { stream, .. } => {
            // At the rate of the tier; rounding to flits is small beside a long slot.
            let all = slot_flits(flow.kind).0;
            let flits = shared(all, flow.share);
            let bytes = all * chip.network.flit_bytes;
            let cycles = chip.tier_rate(section.streams[stream].tier).cycles_for(bytes).max(1);
            Peak::Slot(flits, (flits * CAPACITY * 9 / 8 / cycles + 1).min(CAPACITY))
        }
    }
}

/// Peak over the firings of a lockstep group. Results leave after the first tile, in the rest of the firing.
fn of_firings(section: &Section, work: &StageWork, flow: &Flow, group: u64, amount: Amount, results: bool) -> u64 {
    let tiling = section.schedule.tiling();
    let last = tiling.row_tiles() - 1;
    let different = 0..work.different_row_tiles().min(last + 1);
    let tiles = || different.clone().chain(tiling.is_ragged(last).then_some(last)).map(|tile| tiling.row_tile(tile));
    let mut most = 0;
    for column_tile in (0..tiling.column_tiles()).filter(|&column_tile| !work.is_as_before(column_tile, group)) {
        for row_tile in tiles() {
            let cycles = work.cycles(column_tile, group, row_tile).0;
            let tile = cycles.div_ceil(work.tiles(column_tile, group, row_tile).max(1)) + 1;
            let time = if results { cycles.saturating_sub(tile) } else { cycles };
            let flits = shared(work.flits(amount, column_tile, group, row_tile).0, flow.share);
            most = most.max(if time == 0 { flits.min(1) * CAPACITY } else { (flits * CAPACITY).div_ceil(time) });
        }
    }
    most
}
