//! The same in sentences.

use std::cmp::Ordering;
use std::fmt::Write;

use super::entries::{AreaEntry, Band, Derivative, Explanation, ModeEntry, ResourceEntry, SectionEntry, Uncertainty};
use crate::report::human::{percent, si, whole};
use crate::report::screen::Screen;

/// Steps of a mode that a screen shows.
const MOST_STEPS: usize = 3;

/// Changes of less than this share of the time are not told one by one.
const TOLD: f64 = 0.001;

impl Explanation {
    /// The explanation for people.
    pub fn to_text(&self) -> String {
        let mut text = format!("{}\n", self.title());
        for mode in &self.modes {
            tell_mode(&mut text, mode);
        }
        if let Some(area) = &self.area_mm2 {
            tell_area(&mut text, area);
        }
        if let Some(uncertainty) = &self.uncertainty {
            tell_uncertainty(&mut text, uncertainty);
        }
        if !self.notes.is_empty() {
            line(&mut text, format_args!(""));
        }
        for note in &self.notes {
            line(&mut text, format_args!("note  {note}"));
        }
        text
    }

    /// What decides of it on one screen: of every mode its slowest section, and what would save most.
    pub fn to_screen(&self) -> String {
        let mut screen = Screen::default();
        screen.line(&self.title());
        for mode in &self.modes {
            screen.sentence(&opening(mode));
            let slowest = mode.sections.iter().max_by(|a, b| a.time_s.total_cmp(&b.time_s).then(Ordering::Greater));
            if let Some(section) = slowest {
                screen.indented("  ", &bounding(section, mode.time_s));
            }
            let is_told = |derivative: &&Derivative| derivative.saved_share.is_some_and(|share| share.abs() >= TOLD);
            let told: Vec<&Derivative> = mode.derivatives.iter().filter(is_told).collect();
            match told.split_first() {
                Some((first, others)) => {
                    screen.indented("    ", &derived(first));
                    for derivative in others.iter().take(MOST_STEPS - 1) {
                        screen.spare("    ", &derived(derivative));
                    }
                }
                None => screen.line(&format!("    one more of any resource changes less than {}", percent(TOLD))),
            }
        }
        if let Some(uncertainty) = &self.uncertainty {
            screen.line(&format!("{} uncertain fields of the chip, each at both ends:", uncertainty.assumptions.len()));
            for band in &uncertainty.bands {
                screen.indented("  ", &banded(band));
            }
        }
        screen.remarks(self.notes.iter().map(String::as_str));
        screen.finish("all sections, how busy each resource is, and every step")
    }

    /// What is explained.
    fn title(&self) -> String {
        let quality = if self.mapping == "ideal" { "" } else { ", within the vendor's limits" };
        format!("{} on {}, fidelity {}{quality}.", self.workload, self.arch, self.fidelity)
    }

    /// The explanation as indented JSON, with a line break at the end.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("strings and numbers always serialise");
        text.push('\n');
        text
    }
}

/// Appends a line; writing to a string does not fail.
fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(content);
    text.push('\n');
}

/// The time of a mode, and what no mapping beats.
fn opening(mode: &ModeEntry) -> String {
    let sections = mode.sections.len();
    let plural = if sections == 1 { "section" } else { "sections" };
    format!(
        "{}: {} ({} cycles) in {sections} {plural}; no mapping takes less than {} of that.",
        name(mode.mode),
        si(mode.time_s, "s"),
        whole(mode.cycles),
        percent(mode.bound_cycles as f64 / mode.cycles.max(1) as f64),
    )
}

fn tell_mode(text: &mut String, mode: &ModeEntry) {
    line(text, format_args!(""));
    line(text, format_args!("{}", opening(mode)));
    for section in &mode.sections {
        tell_section(text, section, mode.time_s);
    }
    let package = mode.power_w.package.map_or(String::new(), |watt| format!(" of the package's {}", si(watt, "W")));
    line(text, format_args!("  Average power is {}{package} (estimate).", si(mode.power_w.average, "W")));
    line(text, format_args!("  One more of each resource, found by running again:"));
    let mut little = Vec::new();
    for derivative in &mode.derivatives {
        match derivative.saved_share {
            Some(share) if share.abs() < TOLD => little.push(derivative.resource.as_str()),
            _ => line(text, format_args!("    {}", derived(derivative))),
        }
    }
    if !little.is_empty() {
        line(text, format_args!("    Less than {} either way: {}.", percent(TOLD), unique(&little).join(", ")));
    }
}

fn name(mode: &str) -> &str {
    match mode {
        "kbk" => "Kernel by kernel",
        "epilogue" => "Kernels with epilogues",
        _ => "Fused",
    }
}

fn unique<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let mut list: Vec<&str> = Vec::new();
    for word in words {
        if !list.contains(word) {
            list.push(word);
        }
    }
    list
}

fn derived(derivative: &Derivative) -> String {
    match (derivative.saved_s, derivative.saved_share, &derivative.refused) {
        (Some(saved), Some(share), _) if saved >= 0.0 => {
            format!("saves {} ({}): {}", si(saved, "s"), percent(share), derivative.step)
        }
        (Some(saved), Some(share), _) => format!(
            "costs {} ({}): {}; the mapping found for it is worse",
            si(-saved, "s"),
            percent(-share),
            derivative.step
        ),
        (_, _, Some(why)) => format!("cannot be had: {}: {why}", derivative.step),
        _ => derivative.step.clone(),
    }
}

/// What a section takes of the time, and what bounds it.
fn bounding(section: &SectionEntry, time_s: f64) -> String {
    format!(
        "Section {} takes {} ({} of the time) and is bound by {}.",
        section.name,
        si(section.time_s, "s"),
        percent(section.time_s / time_s),
        reason(&section.bound_by, section.resources.first().is_some_and(|resource| resource.units == "tiles")),
    )
}

fn tell_section(text: &mut String, section: &SectionEntry, time_s: f64) {
    line(text, format_args!("  {}", bounding(section, time_s)));
    let told: Vec<String> = section.resources.iter().filter(|r| r.share >= 0.005).map(busy).collect();
    line(text, format_args!("    Busy for: {}.", told.join(", ")));
}

/// What a cause means.
fn reason(bound_by: &str, on_tiles: bool) -> String {
    let why = match bound_by {
        "compute" if on_tiles => "the tiles have work for most of the time",
        "imbalance" if on_tiles => "one tile has more to do than the others, which wait",
        "link" if on_tiles => "the tile that receives most over the exchange",
        "fill" if on_tiles => "barriers before exchanges",
        "compute" => "its busiest stage has work all the time",
        "imbalance" => "one unit of its busiest stage has more to do than the others, which wait",
        "ag" => "an address generator moves no more bytes",
        "link" => "a link between switches, or the port of a PCU, is full",
        "pmu_port" => "a port of a PMU is full",
        "launch" => "starting it takes longer than running it",
        "fill" => "nothing is busy for half the time: the pipeline fills and drains",
        memory if memory.starts_with("memory:") => "that memory moves no more bytes",
        _ => return bound_by.to_owned(),
    };
    format!("{bound_by}: {why}")
}

fn busy(resource: &ResourceEntry) -> String {
    let share = percent(resource.share);
    match (&resource.stage, resource.mean_share) {
        (Some(stage), Some(mean)) => format!("{} of {stage} {share} (mean unit {})", resource.units, percent(mean)),
        _ => format!("{} {share}", resource.resource),
    }
}

fn tell_area(text: &mut String, area: &AreaEntry) {
    let parts = [("PCUs", area.pcus), ("PMUs", area.pmus), ("network", area.network), ("AGs", area.ags)];
    let parts: Vec<String> = parts.iter().map(|(name, mm2)| format!("{name} {mm2:.1}")).collect();
    line(text, format_args!(""));
    line(text, format_args!("Units take about {:.0} mm2 (estimate): {}.", area.total, parts.join(", ")));
}

fn tell_uncertainty(text: &mut String, uncertainty: &Uncertainty) {
    line(text, format_args!(""));
    let count = uncertainty.assumptions.len();
    line(
        text,
        format_args!(
            "The chip file leaves {count} things uncertain; each was put at both ends of its range alone (twice and half, \
             where the file gives none), then all at once:"
        ),
    );
    for band in &uncertainty.bands {
        line(text, format_args!("  {}", banded(band)));
    }
    let (told, others): (Vec<_>, Vec<_>) = uncertainty.assumptions.iter().partition(|e| e.largest_change >= TOLD);
    if told.is_empty() {
        line(text, format_args!("  None of them changes a time by {}.", percent(TOLD)));
    } else {
        line(text, format_args!("  The ones that matter, by the largest change of a time:"));
    }
    for effect in &told {
        let times = |times: &Option<Vec<f64>>| {
            times
                .as_ref()
                .map_or("cannot run".to_owned(), |t| t.iter().map(|&t| si(t, "s")).collect::<Vec<_>>().join(" and "))
        };
        let (doubled, halved) = (times(&effect.doubled_time_s), times(&effect.halved_time_s));
        let fields = effect.fields.join(", ");
        let change = percent(effect.largest_change);
        line(text, format_args!("    {change}: {fields}: doubled {doubled}, halved {halved}"));
    }
    if !told.is_empty() && !others.is_empty() {
        line(text, format_args!("  The other {} change less than {}.", others.len(), percent(TOLD)));
    }
    if !uncertainty.not_varied.is_empty() {
        line(text, format_args!("  Assumed but not varied: {}.", uncertainty.not_varied.join(", ")));
    }
}

fn banded(band: &Band) -> String {
    let speedup = match band.of {
        "speedup" => Some("speedup of fused over kbk"),
        "speedup_over_epilogue" => Some("speedup of fused over epilogue"),
        _ => None,
    };
    let number = |value: f64| if speedup.is_some() { format!("{value:.2}x") } else { si(value, "s") };
    let all = match (band.all_least, band.all_most) {
        (Some(least), Some(most)) => format!("; all at once {} to {}", number(least), number(most)),
        _ => String::new(),
    };
    let what = speedup.map_or_else(|| format!("{} time", band.of), str::to_owned);
    format!("{what} {}: {} to {}{all}", number(band.value), number(band.least), number(band.most))
}
