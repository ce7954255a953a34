//! Timelines in the Trace Event Format that Perfetto and Chrome open.

use serde::Serialize;

use crate::arch::Chip;
use crate::mode::Mode;
use crate::sim::{MOST_SPANS, SectionTrace};

/// The JSON object format of the Trace Event Format: times in microseconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Timeline<'a> {
    trace_events: Vec<Event<'a>>,
    display_time_unit: &'static str,
    other_data: Other,
}

#[derive(Debug, Serialize)]
struct Other {
    clock_ghz: f64,
    note: String,
}

/// A complete event (`X`), or a name of a process or thread (`M`).
#[derive(Debug, Serialize)]
struct Event<'a> {
    name: &'a str,
    ph: &'static str,
    pid: usize,
    tid: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    args: Args<'a>,
}

#[derive(Debug, Default, Serialize)]
struct Args<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    firing: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_cycle: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cycles: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<u64>,
}

/// The thread of a section's launch and of what was skipped.
const SECTION: usize = 0;

/// The timelines of runs as a trace: a process a section, a thread an actor.
pub fn trace_json(chip: &Chip, runs: &[(Mode, Vec<SectionTrace>)]) -> String {
    let us = |cycles: u64| chip.seconds(cycles) * 1e6;
    let sections: Vec<(String, &SectionTrace)> = runs
        .iter()
        .flat_map(|(mode, sections)| sections.iter().map(|s| (format!("{} {}", mode.name(), s.name), s)))
        .collect();
    let mut events = Vec::new();
    for (pid, (name, section)) in (1..).zip(&sections) {
        let named = |what, tid, name| Event {
            name: what,
            ph: "M",
            pid,
            tid,
            ts: None,
            dur: None,
            args: Args { name: Some(name), ..Args::default() },
        };
        events.push(named("process_name", SECTION, name));
        events.push(named("thread_name", SECTION, "section"));
        for (track, name) in (SECTION + 1..).zip(&section.tracks) {
            events.push(named("thread_name", track, name));
        }
        let span = |name, tid, start: u64, end: u64| Event {
            name,
            ph: "X",
            pid,
            tid,
            ts: Some(us(start)),
            dur: Some(us(end - start)),
            args: Args { start_cycle: Some(start), cycles: Some(end - start), ..Args::default() },
        };
        let begin = section.start_cycle + section.launch_cycles;
        events.push(span("launch", SECTION, section.start_cycle, begin));
        for repeat in &section.repeats {
            let mut event =
                span("repeats the period before", SECTION, begin + repeat.start_cycle, begin + repeat.end_cycle);
            event.args.times = Some(repeat.times);
            events.push(event);
        }
        for done in &section.spans {
            let name = section.tracks.get(done.track).map_or("", String::as_str);
            let mut event = span(name, SECTION + 1 + done.track, begin + done.start_cycle, begin + done.end_cycle);
            event.args.firing = Some(done.number);
            events.push(event);
        }
    }
    let cut: Vec<&str> = sections.iter().filter(|(_, section)| section.is_cut).map(|(name, _)| name.as_str()).collect();
    let mut note = "periods that repeat exactly are shown once".to_owned();
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::report::fixture;
    use crate::sim::{Repeat, Span};

    /// What the Trace Event Format asks of an event.
    fn check(event: &Value) {
        let object = event.as_object().unwrap();
        assert!(object["name"].is_string() && object["pid"].is_u64() && object["tid"].is_u64(), "{event}");
        match object["ph"].as_str().unwrap() {
            "M" => {
                assert!(matches!(object["name"].as_str(), Some("process_name" | "thread_name")), "{event}");
                assert!(object["args"]["name"].is_string(), "{event}");
            }
            "X" => {
                let (ts, dur) = (object["ts"].as_f64().unwrap(), object["dur"].as_f64().unwrap());
                assert!(ts >= 0.0 && dur >= 0.0 && object["args"].is_object(), "{event}");
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
            tracks: vec!["stage `up` (lockstep group 0)".into()],
            spans: vec![Span { track: 0, number: 7, start_cycle: 10, end_cycle: 135 }],
            repeats: vec![Repeat { start_cycle: 135, end_cycle: 3000, times: 9 }],
            is_cut: true,
        };
        let text = trace_json(&fixture::sn10(), &[(Mode::Kbk, vec![section])]);
        let json: Value = serde_json::from_str(&text).unwrap();
        let events = json["traceEvents"].as_array().unwrap();
        events.iter().for_each(check);
        assert_eq!((events.len(), json["displayTimeUnit"].as_str()), (6, Some("ns")));
        let firing = &events[5];
        // 1260 cycles at 1.25 GHz, for 125 cycles.
        assert_eq!((firing["ts"].as_f64(), firing["dur"].as_f64()), (Some(1.008), Some(0.1)));
        assert_eq!((firing["tid"].as_u64(), firing["args"]["firing"].as_u64()), (Some(1), Some(7)));
        assert_eq!(events[4]["args"]["times"].as_u64(), Some(9));
        assert!(json["otherData"]["note"].as_str().unwrap().contains("only the first"));
    }
}
