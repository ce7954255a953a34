//! What goes on in a section at once, over its time: counters of a timeline.

use indexmap::IndexMap;

use rdusim_engines::sim::{SectionTrace, Span, SpanKind};

/// Values from some cycles on, in order.
pub(super) type Counter = Vec<(u64, f64)>;

/// PCUs that work.
pub(super) fn busy_pcus(section: &SectionTrace) -> Counter {
    let pcus = |span: &Span| section.tracks.get(span.track).map_or(0, |track| track.pcus) as f64;
    counter(section, works(section).map(|span| (span, pcus(span))).filter(|(_, pcus)| *pcus > 0.0))
}

/// Bytes a cycle of every tier that moves any: those of a slot are spread over the time that it takes.
pub(super) fn rates_by_tier(section: &SectionTrace) -> IndexMap<&str, Counter> {
    let mut spans: IndexMap<&str, Vec<(&Span, f64)>> = IndexMap::new();
    for span in works(section) {
        if let Some(tier) = section.tracks.get(span.track).and_then(|track| track.tier.as_deref()) {
            let rate = span.bytes as f64 / (span.end_cycle - span.start_cycle).max(1) as f64;
            spans.entry(tier).or_default().push((span, rate));
        }
    }
    spans.into_iter().map(|(tier, spans)| (tier, counter(section, spans.into_iter()))).collect()
}

/// A counter of work that no more than `most` is done of in a cycle, and that is done when the counter's spans end: what exceeds that
/// was done before, as early as need be (a work-conserving queue, backwards in time).
pub(super) fn at_most(counter: &[(u64, f64)], most: f64) -> Counter {
    let mut parts: Vec<(u64, f64)> = Vec::new();
    let mut waiting = 0.0;
    let mut end = counter.last().map_or(0, |&(cycle, _)| cycle);
    for &(start, value) in counter.iter().rev().skip(1) {
        let cycles = (end - start) as f64;
        let free = (most - value) * cycles;
        if waiting >= free {
            waiting -= free;
            parts.push((start, most));
        } else {
            let full = (waiting / (most - value)).ceil() as u64;
            if full > 0 {
                // Of the cycles at the full rate the first may be done in part.
                parts.push((end - full, value + waiting / full as f64));
            }
            if full < end - start {
                parts.push((start, value));
            }
            waiting = 0.0;
        }
        end = start;
    }
    if waiting > 0.0 {
        let before = ((waiting / most).ceil() as u64).min(end);
        if before > 0 {
            parts.push((end - before, waiting / before as f64));
        }
    }
    parts.reverse();
    parts.extend(counter.last().map(|&(cycle, _)| (cycle, 0.0)));
    parts.dedup_by(|next, before| next.1.to_bits() == before.1.to_bits());
    parts
}

fn works(section: &SectionTrace) -> impl Iterator<Item = &Span> {
    section.spans.iter().filter(|span| span.kind == SpanKind::Works)
}

/// The sum of what spans add while they last. Periods that were skipped have the mean of the one before.
fn counter<'a>(section: &SectionTrace, spans: impl Iterator<Item = (&'a Span, f64)>) -> Counter {
    let mut steps: Vec<(u64, f64)> = Vec::new();
    for (span, value) in spans {
        steps.extend([(span.start_cycle, value), (span.end_cycle.max(span.start_cycle + 1), -value)]);
    }
    let own = added(steps.clone());
    for repeat in &section.repeats {
        let period = (repeat.end_cycle - repeat.start_cycle) / repeat.times.max(1);
        let from = repeat.start_cycle.saturating_sub(period);
        // What lasts into the skipped time is counted there already.
        let mean = mean(&own, from, repeat.start_cycle) - mean(&own, repeat.start_cycle, repeat.end_cycle);
        steps.extend([(repeat.start_cycle, mean), (repeat.end_cycle, -mean)]);
    }
    added(steps)
}

/// Steps added up: the value from each cycle on at which there is another.
fn added(mut steps: Vec<(u64, f64)>) -> Counter {
    steps.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut counter: Counter = Vec::new();
    let mut sum = 0.0;
    for (cycle, step) in steps {
        sum += step;
        // Sums of what comes and goes leave a little behind.
        let value = if sum < 1e-6 { 0.0 } else { sum };
        match counter.last_mut() {
            Some((at, last)) if *at == cycle => *last = value,
            _ => counter.push((cycle, value)),
        }
    }
    counter.dedup_by(|next, before| next.1.to_bits() == before.1.to_bits());
    counter
}

/// The mean from one cycle to another.
fn mean(counter: &[(u64, f64)], from: u64, to: u64) -> f64 {
    let ends = counter.iter().skip(1).map(|&(cycle, _)| cycle).chain([u64::MAX]);
    let part = |(&(start, value), end): (&(u64, f64), u64)| value * end.min(to).saturating_sub(start.max(from)) as f64;
    counter.iter().zip(ends).map(part).sum::<f64>() / to.saturating_sub(from).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdusim_engines::sim::{Repeat, Track};

    #[test]
    fn no_more_is_done_than_can_be() {
        // 40 in cycles 10 to 20, of which 20 can be done: the rest before, beside what is done there.
        let found = at_most(&[(0, 1.0), (10, 4.0), (20, 0.0)], 2.0);
        assert_eq!(found, [(0, 2.0), (20, 0.0)]);
        let found = at_most(&[(10, 1.0), (20, 3.0), (24, 0.0)], 2.0);
        assert_eq!(found, [(10, 1.0), (16, 2.0), (24, 0.0)]);
        // What is left at the first work was done before it.
        assert_eq!(at_most(&[(10, 3.0), (20, 0.0)], 2.0), [(5, 2.0), (20, 0.0)]);
        assert_eq!(at_most(&[(0, 1.0), (5, 0.0)], 2.0), [(0, 1.0), (5, 0.0)]);
        assert_eq!(at_most(&[], 2.0), []);
    }

    #[test]
    fn what_overlaps_adds_up_and_skipped_periods_have_their_mean() {
        let span = |start_cycle, end_cycle| Span {
            track: 0,
            kind: SpanKind::Works,
            number: 0,
            bytes: 0,
            start_cycle,
            end_cycle,
        };
        let section = SectionTrace {
            name: "s".into(),
            start_cycle: 0,
            launch_cycles: 0,
            cycles: 60,
            sram_bytes: 0,
            tracks: vec![Track { name: "a".into(), label: "a".into(), pcus: 4, tier: None }],
            // A period of ten cycles, of which five are worked.
            spans: vec![span(0, 4), span(2, 6), span(10, 15)],
            repeats: vec![Repeat { start_cycle: 20, end_cycle: 50, times: 3 }],
            is_cut: false,
        };
        let found = busy_pcus(&section);
        assert_eq!(found, [(0, 4.0), (2, 8.0), (4, 4.0), (6, 0.0), (10, 4.0), (15, 0.0), (20, 2.0), (50, 0.0)]);
    }
}
