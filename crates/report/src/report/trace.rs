//! Timelines in the Trace Event Format that Perfetto and Chrome open.

use serde::Serialize;
use serde_json::{Map, Value, json};

use rdusim_base::mode::Mode;
use rdusim_engines::sim::{MOST_SPANS, SectionTrace, SpanKind};
use rdusim_graph::arch::Chip;

use super::counters::{Counter, at_most, busy_pcus, rates_by_tier};

/// The JSON object format of the Trace Event Format: times in microseconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Timeline {
    trace_events: Vec<Event>,
    display_time_unit: &'static str,
    other_data: Other,
}

#[derive(Debug, Serialize)]
struct Other {
    clock_ghz: f64,
    note: String,
}

/// A complete event (`X`), a counter (`C`), or a name of a process or thread (`M`).
#[derive(Debug, Serialize)]
struct Event {
    name: String,
    ph: &'static str,
    pid: usize,
    tid: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    args: Map<String, Value>,
}

/// The thread of a section's launch and of what was skipped.
const SECTION: usize = 0;
/// What is not in the events.
const NOTE: &str = "periods that repeat exactly are shown once";

/// The timelines of runs as a trace: a process a section, a thread an actor, and counters of each section: PCUs that work, bytes from
/// and to each memory tier, scratchpad in use.
pub fn trace_json(chip: &Chip, runs: &[(Mode, Vec<SectionTrace>)]) -> String {
    let sections: Vec<(String, &SectionTrace)> = runs
        .iter()
        .flat_map(|(mode, sections)| sections.iter().map(|s| (format!("{} {}", mode.name(), s.name), s)))
        .collect();
    let mut events = Vec::new();
    for (pid, (name, section)) in (1..).zip(&sections) {
        Process { chip, pid, section }.add(name, &mut events);
    }
    let cut: Vec<&str> = sections.iter().filter(|(_, section)| section.is_cut).map(|(name, _)| name.as_str()).collect();
    let mut note = NOTE.to_owned();
    if !cut.is_empty() {
        note = format!("{note}; only the first {MOST_SPANS} spans of {}", cut.join(", "));
    }
    let other_data = Other { clock_ghz: chip.clock_hz as f64 / 1e9, note };
    let timeline = Timeline { trace_events: events, display_time_unit: "ns", other_data };
    // A tree of strings and finite numbers.
    let mut text = serde_json::to_string(&timeline).unwrap_or_default();
    text.push('\n');
    text
}

/// One section.
struct Process<'a> {
    chip: &'a Chip,
    pid: usize,
    section: &'a SectionTrace,
}

impl Process<'_> {
    fn add(&self, name: &str, events: &mut Vec<Event>) {
        let section = self.section;
        events.push(self.named("process_name", SECTION, "name", name));
        let mut labels = Vec::new();
        if !section.repeats.is_empty() {
            labels.push(NOTE.to_owned());
        }
        if section.is_cut {
            labels.push(format!("only the first {MOST_SPANS} spans"));
        }
        if !labels.is_empty() {
            events.push(self.named("process_labels", SECTION, "labels", &labels.join("; ")));
        }
        events.push(self.named("thread_name", SECTION, "name", "section"));
        for (tid, track) in (SECTION + 1..).zip(&section.tracks) {
            events.push(self.named("thread_name", tid, "name", &track.name));
        }
        let begin = section.start_cycle + section.launch_cycles;
        events.push(self.span("launch", SECTION, section.start_cycle, begin));
        for repeat in &section.repeats {
            let name = format!("the period before, {} more times", repeat.times);
            let mut event = self.span(&name, SECTION, begin + repeat.start_cycle, begin + repeat.end_cycle);
            event.args.insert("times".to_owned(), repeat.times.into());
            events.push(event);
        }
        if section.is_cut {
            // Where spans end before the section does, the timeline says so.
            let last = section.spans.iter().map(|span| span.end_cycle).max().unwrap_or(0);
            let end = section.cycles.saturating_sub(section.launch_cycles).max(last);
            let name = format!("not recorded: only the first {MOST_SPANS} spans are");
            events.push(self.span(&name, SECTION, begin + last, begin + end));
        }
        for done in &section.spans {
            let label = section.tracks.get(done.track).map_or("", |track| track.label.as_str());
            let name = match done.kind {
                SpanKind::Works => label.to_owned(),
                SpanKind::Starved => format!("{label} starved"),
                SpanKind::Stalled => format!("{label} stalled"),
            };
            let mut event =
                self.span(&name, SECTION + 1 + done.track, begin + done.start_cycle, begin + done.end_cycle);
            event.args.insert("firing".to_owned(), done.number.into());
            if done.bytes > 0 {
                event.args.insert("bytes".to_owned(), done.bytes.into());
            }
            events.push(event);
        }
        self.counters(events);
    }

    fn counters(&self, events: &mut Vec<Event>) {
        let section = self.section;
        let begin = section.start_cycle + section.launch_cycles;
        let mut add = |name: &str, key: &str, counter: Counter| {
            for (cycle, value) in counter {
                events.push(self.counter(name, begin + cycle, key, value));
            }
        };
        add("PCUs working", "PCUs", busy_pcus(section));
        let bytes_per_cycle = self.chip.clock_hz as f64 / 1e9;
        for (tier, counter) in rates_by_tier(section) {
            // Slots are known by when they arrive, not by when memory served them: it never does more than it can.
            let of_tier = self.chip.memory.iter().find(|of| of.name == tier);
            let most = of_tier.map_or(f64::INFINITY, |of| of.bandwidth_bytes_per_s as f64 / self.chip.clock_hz as f64);
            let counter = if most.is_finite() { at_most(&counter, most) } else { counter };
            let rates = counter.into_iter().map(|(cycle, rate)| (cycle, rate * bytes_per_cycle)).collect();
            add(&format!("{tier} GB/s"), "GB/s", rates);
        }
        let behind = section.cycles - section.launch_cycles;
        add("SRAM in use, MiB", "MiB", vec![(0, section.sram_bytes as f64 / 1_048_576.0), (behind, 0.0)]);
    }

    fn us(&self, cycles: u64) -> f64 {
        self.chip.seconds(cycles) * 1e6
    }

    fn named(&self, what: &str, tid: usize, key: &str, name: &str) -> Event {
        let args = Map::from_iter([(key.to_owned(), name.into())]);
        Event { name: what.to_owned(), ph: "M", pid: self.pid, tid, ts: None, dur: None, args }
    }

    fn span(&self, name: &str, tid: usize, start: u64, end: u64) -> Event {
        let args =
            Map::from_iter([("start_cycle".to_owned(), start.into()), ("cycles".to_owned(), (end - start).into())]);
        let (ts, dur) = (Some(self.us(start)), Some(self.us(end - start)));
        Event { name: name.to_owned(), ph: "X", pid: self.pid, tid, ts, dur, args }
    }

    fn counter(&self, name: &str, cycle: u64, key: &str, value: f64) -> Event {
        let args = Map::from_iter([(key.to_owned(), json!(value))]);
        Event { name: name.to_owned(), ph: "C", pid: self.pid, tid: SECTION, ts: Some(self.us(cycle)), dur: None, args }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::report::fixture;
    use rdusim_engines::sim::{Repeat, Span, Track};

    /// What the Trace Event Format asks of an event.
    fn check(event: &Value) {
        let object = event.as_object().unwrap();
        assert!(object["name"].is_string() && object["pid"].is_u64() && object["tid"].is_u64(), "{event}");
        match object["ph"].as_str().unwrap() {
            "M" => {
                assert!(
                    matches!(object["name"].as_str(), Some("process_name" | "thread_name" | "process_labels")),
                    "{event}"
                );
                assert!(object["args"]["name"].is_string() || object["args"]["labels"].is_string(), "{event}");
            }
            "X" => {
                let (ts, dur) = (object["ts"].as_f64().unwrap(), object["dur"].as_f64().unwrap());
                assert!(ts >= 0.0 && dur >= 0.0 && object["args"].is_object(), "{event}");
            }
            "C" => {
                assert!(object["ts"].as_f64().unwrap() >= 0.0, "{event}");
                let args = object["args"].as_object().unwrap();
                assert!(
                    !args.is_empty() && args.values().all(|value| value.as_f64().is_some_and(|v| v >= 0.0)),
                    "{event}"
                );
            }
            other => panic!("no kind of event is called {other}"),
        }
    }

    #[test]
    fn a_trace_has_its_schema_and_tells_what_was_skipped() {
        let section = SectionTrace {
            name: "up".into(),
            start_cycle: 0,
            launch_cycles: 1250,
            cycles: 5000,
            sram_bytes: 3 << 20,
            tracks: vec![
                Track { name: "up #0".into(), label: "up".into(), pcus: 16, tier: None },
                Track { name: "read x".into(), label: "x".into(), pcus: 0, tier: Some("ddr".into()) },
            ],
            spans: vec![
                Span { track: 0, kind: SpanKind::Starved, number: 7, bytes: 0, start_cycle: 0, end_cycle: 10 },
                Span { track: 0, kind: SpanKind::Works, number: 7, bytes: 0, start_cycle: 10, end_cycle: 135 },
                Span { track: 1, kind: SpanKind::Works, number: 0, bytes: 1000, start_cycle: 0, end_cycle: 10 },
            ],
            repeats: vec![Repeat { start_cycle: 135, end_cycle: 3000, times: 9 }],
            is_cut: true,
        };
        let text = trace_json(&fixture::sn10(), &[(Mode::Kbk, vec![section])]);
        let json: Value = serde_json::from_str(&text).unwrap();
        let events = json["traceEvents"].as_array().unwrap();
        events.iter().for_each(check);
        assert_eq!(json["displayTimeUnit"].as_str(), Some("ns"));
        let find = |name: &str| events.iter().filter(|event| event["name"] == name).collect::<Vec<_>>();
        let firing = find("up")[0];
        // 1260 cycles at 1.25 GHz, for 125 cycles.
        assert_eq!((firing["ts"].as_f64(), firing["dur"].as_f64()), (Some(1.008), Some(0.1)));
        assert_eq!((firing["tid"].as_u64(), firing["args"]["firing"].as_u64()), (Some(1), Some(7)));
        assert_eq!(find("up starved").len(), 1);
        assert_eq!(find("not recorded: only the first 20000 spans are").len(), 1);
        assert_eq!(find("the period before, 9 more times")[0]["args"]["times"].as_u64(), Some(9));
        // 1000 bytes in 10 cycles, of which memory can move 800.
        assert_eq!(find("ddr GB/s")[0]["args"]["GB/s"].as_f64(), Some(100.0));
        assert_eq!(find("PCUs working")[0]["args"]["PCUs"].as_f64(), Some(16.0));
        assert_eq!(find("SRAM in use, MiB")[0]["args"]["MiB"].as_f64(), Some(3.0));
        let label = find("process_labels")[0]["args"]["labels"].as_str().unwrap();
        assert!(label.contains("shown once") && label.contains("only the first"), "{label}");
        assert!(json["otherData"]["note"].as_str().unwrap().contains("only the first"));
    }
}
