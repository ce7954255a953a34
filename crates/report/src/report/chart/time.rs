//! Time of each run, section by section, coloured by what bounds it; launches hatched.

use crate::report::human::{shorten, si, whole};
use crate::report::side::{Side, named};
use rdusim_graph::arch::Device;
use rdusim_graph::workload::Workload;
use rdusim_outcome::{BoundBy, Outcome};

use super::axis::{Linear, SECONDS};
use super::bars::{Bar, Fill, Key, Segment, draw};
use super::frame::heading;
use super::palette::{MUTED, of_bound};
use super::scene::Scene;

/// A section with less than this part of a run's cycles, one in so many, has no room for its name.
const SHORT: u64 = 60;

/// The row of the tier that bounds a section in its chip's list; a cache stands behind the tiers.
pub(super) fn row_of_tier(bound: &BoundBy, sides: &[Side<'_>]) -> usize {
    match bound {
        BoundBy::Memory(name) => {
            let row = |side: &Side<'_>| side.chip.tiers().iter().position(|tier| tier.name == *name);
            sides.iter().find_map(row).unwrap_or(1)
        }
        _ => 0,
    }
}

pub(super) fn scene(workload: &Workload, sides: &[Side<'_>]) -> Scene {
    let mut scene = Scene::new(super::frame::WIDTH, 0.0);
    let top = heading(&mut scene, "Time by section, and what bounds it", workload, sides);

    let tier = |bound: &BoundBy| row_of_tier(bound, sides);
    let runs = named(sides);
    let bars: Vec<Bar> = runs
        .iter()
        .map(|&(ref name, chip, outcome)| Bar {
            name: name.clone(),
            total: si(chip.seconds(outcome.cycles), "s"),
            segments: segments(chip, outcome, &tier),
            mark: (outcome.bound_cycles <= outcome.cycles).then(|| chip.seconds(outcome.bound_cycles)),
        })
        .collect();
    let most = runs.iter().map(|(_, chip, outcome)| chip.seconds(outcome.cycles)).fold(0.0, f64::max);
    let axis = Linear::new(most, &SECONDS);

    let mut bounds: Vec<&BoundBy> = Vec::new();
    for section in runs.iter().flat_map(|(_, _, outcome)| &outcome.sections) {
        if !bounds.contains(&&section.bound_by) {
            bounds.push(&section.bound_by);
        }
    }
    let mut keys: Vec<Key> = bounds
        .into_iter()
        .map(|bound| Key::Fill(Fill::Solid(of_bound(bound, tier(bound))), shorten(&bound.to_string(), 32)))
        .collect();
    if !keys.is_empty() {
        keys.push(Key::Fill(Fill::Hatched(MUTED), "launching a section".to_owned()));
    }
    if bars.iter().any(|bar| bar.mark.is_some()) {
        keys.push(Key::Mark("lower bound, whatever the mapping".to_owned()));
    }
    draw(&mut scene, top, &bars, &axis, &keys);
    scene
}

/// Sections of a run whose launches are shown one by one; of more they stand together before the first.
const MOST_APART: usize = 8;

/// A part of a run's time: one section, or neighbours that are each too short for a name.
struct Part<'a> {
    cycles: u64,
    launch: u64,
    bound: &'a BoundBy,
    sections: usize,
    name: String,
}

/// Sections in order; neighbours that are short and bound by the same resource are one part.
fn parts(outcome: &Outcome) -> Vec<Part<'_>> {
    let apart = outcome.sections.len() <= MOST_APART;
    let is_short = |cycles: u64, launch: u64| cycles - if apart { 0 } else { launch } < outcome.cycles / SHORT;
    let mut parts: Vec<Part<'_>> = Vec::new();
    let mut last_short = false;
    for section in &outcome.sections {
        let (cycles, launch) = (section.cycles, section.launch_cycles.min(section.cycles));
        let short = is_short(cycles, launch);
        match parts.last_mut() {
            Some(part) if short && last_short && *part.bound == section.bound_by => {
                (part.cycles, part.launch) = (part.cycles + cycles, part.launch + launch);
                part.sections += 1;
                part.name = format!("{} sections", part.sections);
            }
            _ => {
                let times = if section.repeat > 1 { format!(" x{}", section.repeat) } else { String::new() };
                let name = format!("{}{times}", section.name);
                parts.push(Part { cycles, launch, bound: &section.bound_by, sections: 1, name });
            }
        }
        last_short = short;
    }
    parts
}

fn segments(chip: &dyn Device, outcome: &Outcome, tier: &dyn Fn(&BoundBy) -> usize) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut parts = parts(outcome);
    if outcome.sections.len() > MOST_APART {
        let launch: u64 = parts.iter().map(|part| part.launch).sum();
        let launches: u64 = outcome.sections.iter().map(|section| section.launches).sum();
        segments.push(Segment {
            size: chip.seconds(launch),
            fill: Fill::Hatched(MUTED),
            name: format!("{} launches", whole(launches)),
            lines: vec![si(chip.seconds(launch), "s")],
        });
        for part in &mut parts {
            (part.cycles, part.launch) = (part.cycles - part.launch, 0);
        }
    }
    for part in parts {
        let fill = Fill::Solid(of_bound(part.bound, tier(part.bound)));
        let lines = vec![si(chip.seconds(part.cycles), "s"), part.bound.to_string()];
        if part.launch > 0 {
            segments.push(Segment {
                size: chip.seconds(part.launch),
                fill: Fill::Hatched(MUTED),
                name: "launch".to_owned(),
                lines: vec![si(chip.seconds(part.launch), "s")],
            });
        }
        segments.push(Segment { size: chip.seconds(part.cycles - part.launch), fill, name: part.name, lines });
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;
    use rdusim_base::mode::Mode;

    #[test]
    fn short_neighbours_are_one_part_and_no_cycle_is_lost() {
        let section = |name: &str, cycles| fixture::section(name, &[name], cycles, BoundBy::Fill, &[]);
        let mut sections = vec![section("long", 9_000_000)];
        sections.extend((0..5).map(|_| section("s", 1_000)));
        sections.push(fixture::section("other", &["other"], 1_000, BoundBy::Compute, &[]));
        sections[0].repeat = 32;
        let outcome = fixture::outcome(Mode::Kbk, 0, sections);
        let found = parts(&outcome);
        let names: Vec<&str> = found.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["long x32", "5 sections", "other"]);
        assert_eq!(found.iter().map(|part| part.cycles).sum::<u64>(), outcome.cycles);
    }
}
