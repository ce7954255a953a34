//! The largest part of a link that each flow of a section ever asks for.

use std::collections::VecDeque;

use crate::arch::Chip;
use crate::cost::{StageWork, TICKS_PER_CYCLE, Ticks};
use crate::index::IndexVec;
use crate::program::{Amount, Flow, FlowId, FlowKind, Section, StageId, shared};

use super::apart::{ByTicks, weight};
use super::sharing::WHOLE;
use super::transfer_group::Volley;

/// Kinds of flows whose peaks are remembered.
const LOOKED_BACK: usize = 12;

/// Fewer flits of a slot than this are taken to come in one burst.
const BURST_FLITS: u64 = 16;

/// What a flow asks of a link at most.
#[derive(Debug, Clone, Copy)]
pub enum Peak {
    /// A rate, of [`WHOLE`] a flit a cycle.
    Rate(u64),
    /// So many flits of a slot, at this rate if they are not few.
    Slot(u64, u64),
    /// So many flits of a slot, as fast as its way lets it.
    Rush(u64),
}

/// What fills, drains or copies of one volley ask of a resource.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Asked {
    /// At their peaks, of [`WHOLE`].
    rate: u64,
    /// Of a slot.
    flits: u64,
    flows: u64,
}

/// What one volley asks of each resource that it crosses.
struct Asking {
    of: Vec<Asked>,
    crossed: Vec<usize>,
}

impl Asking {
    /// Adds a flow that moves so many flits of a slot, at a rate.
    fn add(&mut self, flow: &Flow, flits: u64, mut rate: ByTicks<impl Fn(Ticks) -> u64>, flit_ticks: &[Ticks]) {
        for r in flow.route.iter().map(|&r| r as usize) {
            let asked = &mut self.of[r];
            if asked.flows == 0 {
                self.crossed.push(r);
            }
            asked.flows += 1;
            asked.rate += rate.at(flit_ticks[r]);
            asked.flits += flits;
        }
    }

    /// Adds what the volley asks to `demand`, and is ready for the next.
    fn settle(&mut self, apart: bool, demand: &mut [u64]) {
        for r in self.crossed.drain(..) {
            let Asked { rate, flits, flows } = std::mem::take(&mut self.of[r]);
            // Those that have nothing but each other in their way wait for each other.
            let is_full = flows > 1 && apart && rate + flows >= WHOLE;
            demand[r] += if flits < BURST_FLITS || is_full { flows * WHOLE } else { rate };
        }
    }
}

/// What volleys ask together at most of every resource, of [`WHOLE`]: `flit_ticks` are what a flit takes it, `own` what
/// each flow takes of itself where those of its volley go apart.
pub fn demand(
    flows: &IndexVec<FlowId, Flow>,
    volleys: &[Volley],
    peaks: &IndexVec<FlowId, Peak>,
    flit_ticks: &[Ticks],
    own: &[Vec<Ticks>],
) -> Vec<u64> {
    let mut demand = vec![0; flit_ticks.len()];
    let mut asking = Asking { of: vec![Asked::default(); flit_ticks.len()], crossed: Vec::new() };
    let at_peak = |rate: u64| {
        ByTicks::new(move |ticks| {
            let rate = if ticks == TICKS_PER_CYCLE { rate } else { (rate * ticks).div_ceil(TICKS_PER_CYCLE) };
            rate.min(WHOLE)
        })
    };
    for (volley, own) in volleys.iter().zip(own) {
        for (i, &f) in volley.flows.iter().enumerate() {
            let flow = &flows[f];
            match peaks[f] {
                Peak::Rate(rate) => {
                    let mut rate = at_peak(rate);
                    // Links are alike.
                    let (ports, links) = flow.route.split_at(flow.route.len() - flow.links as usize);
                    for r in ports.iter().map(|&r| r as usize) {
                        demand[r] += rate.at(flit_ticks[r]);
                    }
                    let of_links = links.first().map_or(0, |&r| rate.at(flit_ticks[r as usize]));
                    for &r in links {
                        demand[r as usize] += of_links;
                    }
                }
                Peak::Slot(flits, rate) => asking.add(flow, flits, at_peak(rate), flit_ticks),
                Peak::Rush(flits) => {
                    let own = own.get(i).copied().unwrap_or(1).max(1);
                    let rate = ByTicks::new(|ticks| weight(flow.share, ticks) * WHOLE / own);
                    asking.add(flow, flits, rate, flit_ticks);
                }
            }
        }
        asking.settle(volley.apart, &mut demand);
    }
    demand
}

/// Peak of every flow; `slot_flits` tells the most that a fill, a drain or a copy moves at once.
pub fn peaks(
    chip: &Chip,
    section: &Section,
    work: &IndexVec<StageId, StageWork>,
    slot_flits: &dyn Fn(FlowKind) -> u64,
) -> IndexVec<FlowId, Peak> {
    // Flows come in turns, each turn alike.
    let mut peaks: IndexVec<FlowId, Peak> = IndexVec::new();
    let mut kinds: VecDeque<FlowId> = VecDeque::with_capacity(LOOKED_BACK);
    for (f, flow) in section.flows.iter_enumerated() {
        let is_like = |other: &Flow| (other.kind, other.amount, other.share) == (flow.kind, flow.amount, flow.share);
        let known = kinds.iter().find(|&&kind| is_like(&section.flows[kind])).map(|&kind| peaks[kind]);
        peaks.push(known.unwrap_or_else(|| {
            if kinds.len() == LOOKED_BACK {
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
    slot_flits: &dyn Fn(FlowKind) -> u64,
    flow: &Flow,
) -> Peak {
    let of_firings = |stage: StageId, group, amount, results| {
        Peak::Rate(of_firings(section, &work[stage], flow, group, amount, results).min(WHOLE))
    };
    match flow.kind {
        FlowKind::Feed { stage, group } => of_firings(stage, group, flow.amount, false),
        FlowKind::PartialRead { stage, group } => of_firings(stage, group, Amount::Partials, false),
        FlowKind::PartialWrite { stage, group } => of_firings(stage, group, Amount::Partials, true),
        FlowKind::Emit { stage, group } => of_firings(stage, group, Amount::ResultBytes, true),
        FlowKind::Copy { .. } | FlowKind::Drain { .. } => Peak::Rush(shared(slot_flits(flow.kind), flow.share)),
        FlowKind::Fill { stream, .. } => {
            // Paced by the tier; rounding to flits is small beside a long slot.
            let all = slot_flits(flow.kind);
            let flits = shared(all, flow.share);
            let bytes = all * chip.network.flit_bytes;
            let cycles = chip.tier_rate(section.streams[stream].tier).cycles_for(bytes).max(1);
            Peak::Slot(flits, (flits * WHOLE * 9 / 8 / cycles + 1).min(WHOLE))
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
            let cycles = work.cycles(column_tile, group, row_tile);
            let tile = cycles.div_ceil(work.tiles(column_tile, group, row_tile).max(1)) + 1;
            let pace = if results { cycles.saturating_sub(tile) } else { cycles };
            let flits = shared(work.flits(amount, column_tile, group, row_tile), flow.share);
            most = most.max(if pace == 0 { flits.min(1) * WHOLE } else { (flits * WHOLE).div_ceil(pace) });
        }
    }
    most
}
