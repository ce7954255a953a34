//! Which share of the data of a stream or slot each flow carries.

use std::ops::Range;

use rdusim_base::index::IndexVec;
use rdusim_program::{Buffer, FlowEnd, FlowId, FlowKind, Section};

/// Which of how many equal runs of its data an off-chip flow carries.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stripe {
    at: u64,
    of: u64,
}

impl Stripe {
    /// Its run of `count` elements.
    pub(super) fn range(self, count: u64) -> Range<u64> {
        let of = self.of.max(1);
        count * self.at / of..count * (self.at + 1) / of
    }
}

/// Stripes of every flow: flows of one stream and one part share its elements in the order of the list.
pub(super) fn stripes(section: &Section) -> IndexVec<FlowId, Stripe> {
    let mut stripes = IndexVec::filled(section.flows.len(), Stripe { at: 0, of: 1 });
    let mut seen: Vec<(FlowKind, FlowEnd, Vec<FlowId>)> = Vec::new();
    for (f, flow) in section.flows.iter_enumerated() {
        let (FlowKind::Fill { .. } | FlowKind::Drain { .. }, Some(end)) = (flow.kind, flow.reads.or(flow.writes))
        else {
            continue;
        };
        match seen.iter_mut().find(|(kind, place, _)| (*kind, *place) == (flow.kind, end)) {
            Some((.., list)) => list.push(f),
            None => seen.push((flow.kind, end, vec![f])),
        }
    }
    for (.., list) in seen {
        for (at, &f) in list.iter().enumerate() {
            stripes[f] = Stripe { at: at as u64, of: list.len() as u64 };
        }
    }
    stripes
}

/// Columns of a slice that its part holds in any of the copies: what a flow into them carries.
pub(super) fn part_columns(buffer: &Buffer, end: FlowEnd, width: u64) -> Range<u64> {
    let copies = (0..buffer.spec.copies).map(|copy| buffer.piece(copy, end.slice));
    let spans = copies.filter(|piece| end.part < piece.parts.len()).map(|piece| piece.span(end.part, width));
    spans.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
}
