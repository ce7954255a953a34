//! A time taken apart: from one total to another in steps, each with its cause.

use serde::{Deserialize, Serialize};

use rdusim_base::units::MIB;

use super::entries::RunEntry;
use super::figures::quotient;

/// From the time `from` takes to the time `to` takes. Steps follow one another: each starts where the one before ended,
/// so that savings in seconds add up to the whole and factors (start over end) multiply to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waterfall {
    /// What is taken apart, for a heading.
    pub title: String,
    /// What takes the first step's `start_s`.
    pub from: String,
    /// What takes the last step's `end_s`.
    pub to: String,
    /// At least one.
    pub steps: Vec<WaterfallStep>,
}

/// One cause, and what it does to the time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaterfallStep {
    /// The cause, in a few words.
    pub label: String,
    /// Seconds before it.
    pub start_s: f64,
    /// Seconds with it; more than before where it costs.
    pub end_s: f64,
    /// A sentence for those who ask; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// Share of a time that rounding may put between the end of a step and the start of the next.
const ROUNDING: f64 = 1e-6;

impl WaterfallStep {
    /// Seconds before it over seconds with it: above 1 it makes things faster.
    pub fn factor(&self) -> f64 {
        quotient(self.start_s, self.end_s)
    }
}

impl Waterfall {
    /// The way from `from` (a name and its seconds) over steps (label, the seconds it leads to, a note) to `to`.
    pub fn between(title: &str, from: (&str, f64), steps: &[(&str, f64, &str)], to: &str) -> Self {
        let mut at = from.1;
        let step = |&(label, end_s, note): &(&str, f64, &str)| {
            let start_s = std::mem::replace(&mut at, end_s);
            WaterfallStep { label: label.to_owned(), start_s, end_s, note: note.to_owned() }
        };
        let steps = steps.iter().map(step).collect();
        Self { title: title.to_owned(), from: from.0.to_owned(), to: to.to_owned(), steps }
    }

    /// Seconds at the start and at the end; zeros without steps.
    pub fn ends_s(&self) -> (f64, f64) {
        match (self.steps.first(), self.steps.last()) {
            (Some(first), Some(last)) => (first.start_s, last.end_s),
            _ => (0.0, 0.0),
        }
    }

    /// Seconds at the start over seconds at the end: the product of all factors.
    pub fn speedup(&self) -> f64 {
        let (start_s, end_s) = self.ends_s();
        quotient(start_s, end_s)
    }

    /// Checks that steps follow one another.
    ///
    /// # Errors
    /// No steps, a time that is negative or no number, a step that does not start where the one before ended.
    pub fn check(&self) -> Result<(), String> {
        let mut before: Option<f64> = None;
        for step in &self.steps {
            let sound = |time: f64| time.is_finite() && time >= 0.0;
            if !sound(step.start_s) || !sound(step.end_s) {
                return Err(format!("step `{}` goes from {} s to {} s", step.label, step.start_s, step.end_s));
            }
            if let Some(before) = before
                && (before - step.start_s).abs() > ROUNDING * before.max(step.start_s)
            {
                let found = step.start_s;
                return Err(format!(
                    "step `{}` starts at {found} s, expected {before} s, where the one before it ended",
                    step.label
                ));
            }
            before = Some(step.end_s);
        }
        before.map(|_| ()).ok_or_else(|| format!("`{}` has no steps", self.title))
    }

    /// From kernel by kernel to fused, by what the time of their sections goes into: launches, then what bounds the rest
    /// of a section. `None` if either takes no time.
    pub(super) fn of_fusion(kbk: &RunEntry, fused: &RunEntry) -> Option<Self> {
        if kbk.time_s <= 0.0 || fused.time_s <= 0.0 {
            return None;
        }
        // Launches first, then causes in order of first use.
        let mut causes: Vec<&str> = vec![LAUNCH];
        for section in kbk.sections.iter().chain(&fused.sections) {
            if !causes.contains(&section.bound_by.as_str()) {
                causes.push(&section.bound_by);
            }
        }
        let seconds_a_cycle = kbk.time_s / kbk.cycles as f64;
        let mut at_cycles = kbk.cycles;
        let mut steps = Vec::new();
        for cause in causes {
            let [before, after] = [kbk, fused].map(|run| Share::of(run, cause));
            if before.cycles == after.cycles {
                continue;
            }
            let start_cycles = at_cycles;
            at_cycles = at_cycles - before.cycles + after.cycles;
            steps.push(WaterfallStep {
                label: if cause == LAUNCH { "launches".to_owned() } else { format!("bound by {cause}") },
                start_s: start_cycles as f64 * seconds_a_cycle,
                end_s: at_cycles as f64 * seconds_a_cycle,
                note: note(cause, &before, &after),
            });
        }
        // Ends at the very numbers that the runs have.
        steps.first_mut()?.start_s = kbk.time_s;
        steps.last_mut()?.end_s = fused.time_s;
        let title = "From kernel by kernel to fused".to_owned();
        Some(Self { title, from: kbk.mode.to_owned(), to: fused.mode.to_owned(), steps })
    }
}

const LAUNCH: &str = "launch";

/// What of a run goes into one cause.
struct Share {
    launches: u64,
    sections: u64,
    cycles: u64,
    off_chip_bytes: u64,
}

impl Share {
    fn of(run: &RunEntry, cause: &str) -> Self {
        let mut share = Self { launches: run.launches, sections: 0, cycles: 0, off_chip_bytes: 0 };
        for section in &run.sections {
            if cause == LAUNCH {
                share.cycles += section.launch_cycles;
            }
            if section.bound_by == cause {
                share.sections += section.launches.or(section.repeat).unwrap_or(1);
                share.cycles += section.cycles - section.launch_cycles;
                share.off_chip_bytes += section.traffic.off_chip_read_bytes + section.traffic.off_chip_write_bytes;
            }
        }
        share
    }
}

fn note(cause: &str, before: &Share, after: &Share) -> String {
    if cause == LAUNCH {
        return format!("{} sections are started kernel by kernel, {} fused.", before.launches, after.launches);
    }
    let mib = |bytes: u64| format!("{:.1} MiB off chip", bytes as f64 / MIB as f64);
    let of = |share: &Share| {
        let plural = if share.sections == 1 { "" } else { "s" };
        format!("{} section{plural} with {}", share.sections, mib(share.off_chip_bytes))
    };
    format!("Without launches: {} kernel by kernel, {} fused.", of(before), of(after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Document, fixture};

    fn step(label: &str, start_s: f64, end_s: f64) -> WaterfallStep {
        WaterfallStep { label: label.to_owned(), start_s, end_s, note: String::new() }
    }

    fn waterfall(steps: Vec<WaterfallStep>) -> Waterfall {
        Waterfall { title: "t".to_owned(), from: "a".to_owned(), to: "b".to_owned(), steps }
    }

    #[test]
    fn fusion_is_taken_apart_to_the_cycle() {
        let document = Document::new(&fixture::sn10(), &fixture::ffn(None), &fixture::outcomes());
        let found = document.waterfall.unwrap();
        assert_eq!(found.check(), Ok(()));
        assert_eq!((found.from.as_str(), found.to.as_str()), ("kbk", "fused"));
        let (first, last) = (&found.steps[0], &found.steps[found.steps.len() - 1]);
        assert_eq!((first.label.as_str(), first.start_s), ("launches", document.runs[0].time_s));
        assert_eq!(last.end_s.to_bits(), document.runs[2].time_s.to_bits());
        // Two launches of three are saved: 30,000 cycles each at 1.25 GHz.
        assert!((first.start_s - first.end_s - 2.0 * 30_000.0 / 1.25e9).abs() < 1e-12);
        assert!(first.note.contains("3 sections are started kernel by kernel, 1 fused"), "{}", first.note);
    }

    #[test]
    fn one_run_is_not_taken_apart() {
        let document = Document::new(&fixture::sn10(), &fixture::ffn(None), &fixture::outcomes()[2..]);
        assert_eq!(document.waterfall, None);
    }

    #[test]
    fn steps_follow_one_another() {
        assert_eq!(waterfall(vec![step("a", 3.0, 2.0), step("b", 2.0, 2.5)]).check(), Ok(()));
        let refused = |steps| waterfall(steps).check().unwrap_err();
        assert!(refused(vec![step("a", 3.0, 2.0), step("b", 1.0, 0.5)]).contains("`b` starts at 1 s, expected 2 s"));
        assert!(refused(vec![step("a", 3.0, f64::NAN)]).contains("`a`"));
        assert!(refused(vec![step("a", -1.0, 1.0)]).contains("-1 s"));
        assert!(refused(Vec::new()).contains("no steps"));
    }

    #[test]
    fn factors_multiply_to_the_ends() {
        let steps = [("chip", 5.0, ""), ("fusion", 2.5, "why"), ("sparsity", 0.7, "")];
        let found = Waterfall::between("t", ("first", 3.0), &steps, "last");
        assert_eq!(found.check(), Ok(()));
        let product: f64 = found.steps.iter().map(WaterfallStep::factor).product();
        assert!((product - 3.0 / 0.7).abs() < 1e-12 && (found.speedup() - product).abs() < 1e-12);
        assert!(found.steps[0].factor() < 1.0 && found.steps[1].note == "why");
    }

    #[test]
    fn json_is_as_agreed() {
        let json = serde_json::to_string(&waterfall(vec![step("a", 3.0, 2.0)])).unwrap();
        assert_eq!(json, r#"{"title":"t","from":"a","to":"b","steps":[{"label":"a","start_s":3.0,"end_s":2.0}]}"#);
        assert_eq!(serde_json::from_str::<Waterfall>(&json).unwrap(), waterfall(vec![step("a", 3.0, 2.0)]));
    }
}
