//! The largest part of a link that each flow of a section ever asks for.

use std::collections::VecDeque;

use crate::arch::Chip;
use crate::compile::{Amount, Flow, FlowKind, Section, StageWork, shared};

use super::contention::Volley;
use super::sharing::WHOLE;
use super::time::{TICKS_PER_CYCLE, Ticks};

/// Kinds of flows whose peaks are remembered.
const LOOKED_BACK: usize = 12;

/// Fewer flits of a slot than this are taken to come in one burst.
const BURST_FLITS: u64 = 16;

/// What a flow asks of a link at most.
#[derive(Debug, Clone, Copy)]
pub struct Peak {
    /// Of [`WHOLE`] a flit a cycle.
    rate: u64,
    /// Flits it has together, if those come in a burst should they be few.
    slot_flits: Option<u64>,
}

impl Peak {
    fn of(rate: u64) -> Self {
        Self { rate: rate.min(WHOLE), slot_flits: None }
    }
}

/// What volleys ask together at most of every resource, of [`WHOLE`]: `flit_ticks` are what a flit takes it.
pub fn demand(flows: &[Flow], volleys: &[Volley], peaks: &[Peak], flit_ticks: &[Ticks]) -> Vec<u64> {
    let mut demand = vec![0; flit_ticks.len()];
    // Of one volley: its rate, and its flits and flows that may come in a burst.
    let mut own = vec![(0, 0, 0); flit_ticks.len()];
    let mut crossed = Vec::new();
    for volley in volleys {
        for &f in &volley.flows {
            let Peak { rate, slot_flits } = peaks[f];
            for &r in &flows[f].route {
                let own = &mut own[r as usize];
                if *own == (0, 0, 0) {
                    crossed.push(r as usize);
                }
                own.0 += (rate * flit_ticks[r as usize]).div_ceil(TICKS_PER_CYCLE).min(WHOLE);
                own.1 += slot_flits.unwrap_or(BURST_FLITS);
                own.2 += 1;
            }
        }
        for r in crossed.drain(..) {
            let (rate, flits, flows) = std::mem::take(&mut own[r]);
            demand[r] += if flits < BURST_FLITS { flows * WHOLE } else { rate };
        }
    }
    demand
}

/// Peak rate of every flow.
pub fn peaks(chip: &Chip, section: &Section, work: &[StageWork], slot_flits: &dyn Fn(usize) -> u64) -> Vec<Peak> {
    // Flows come in turns, each turn alike.
    let mut peaks: Vec<Peak> = Vec::with_capacity(section.flows.len());
    let mut kinds: VecDeque<usize> = VecDeque::with_capacity(LOOKED_BACK);
    for flow in &section.flows {
        let is_like = |other: &Flow| (other.kind, other.amount, other.share) == (flow.kind, flow.amount, flow.share);
        let known = kinds.iter().find(|&&kind| is_like(&section.flows[kind])).map(|&kind| peaks[kind]);
        peaks.push(known.unwrap_or_else(|| {
            if kinds.len() == LOOKED_BACK {
                kinds.pop_back();
            }
            kinds.push_front(peaks.len());
            peak(chip, section, work, slot_flits, flow)
        }));
    }
    peaks
}

fn peak(chip: &Chip, section: &Section, work: &[StageWork], slot_flits: &dyn Fn(usize) -> u64, flow: &Flow) -> Peak {
    Peak::of(match flow.kind {
        FlowKind::Feed { stage, bundle } => of_firings(section, &work[stage], flow, bundle, flow.amount, false),
        FlowKind::PartialRead { stage, bundle } => {
            of_firings(section, &work[stage], flow, bundle, Amount::Partials, false)
        }
        FlowKind::PartialWrite { stage, bundle } => {
            of_firings(section, &work[stage], flow, bundle, Amount::Partials, true)
        }
        FlowKind::Emit { stage, bundle } => of_firings(section, &work[stage], flow, bundle, Amount::ResultBytes, true),
        FlowKind::Copy { .. } => WHOLE,
        FlowKind::Fill { stream, .. } | FlowKind::Drain { stream } => {
            // Paced by the tier; rounding to flits is small beside a long slot.
            let flits = shared(slot_flits(stream), flow.share);
            let bytes = slot_flits(stream) * chip.network.flit_bytes;
            let cycles = chip.tier_rate(section.streams[stream].tier).cycles_for(bytes).max(1);
            return Peak { rate: (flits * WHOLE * 9 / 8 / cycles + 1).min(WHOLE), slot_flits: Some(flits) };
        }
    })
}

/// Peak over the firings of a bundle. Results leave after the first tile, in the rest of the firing.
fn of_firings(section: &Section, work: &StageWork, flow: &Flow, bundle: u64, amount: Amount, results: bool) -> u64 {
    let nest = &section.nest;
    let last = nest.rows_of(nest.tokens() - 1);
    let mut most = 0;
    for chunk in (0..nest.chunks()).filter(|&chunk| !work.is_as_before(chunk, bundle)) {
        for rows in [nest.token_rows.min(nest.rows), last] {
            let cycles = work.cycles(chunk, bundle, rows);
            let tile = cycles.div_ceil(work.tiles(chunk, bundle, rows).max(1)) + 1;
            let pace = if results { cycles.saturating_sub(tile) } else { cycles };
            let flits = shared(work.flits(amount, chunk, bundle, rows), flow.share);
            most = most.max(if pace == 0 { flits.min(1) * WHOLE } else { (flits * WHOLE).div_ceil(pace) });
        }
    }
    most
}
