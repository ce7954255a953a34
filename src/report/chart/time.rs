//! Time of each run, section by section, coloured by what bounds it; launches hatched.

use crate::arch::Device;
use crate::outcome::{BoundBy, Outcome};
use crate::report::human::{shorten, si};
use crate::report::side::{Side, named};
use crate::workload::Workload;

use super::axis::{Linear, SECONDS};
use super::bars::{Bar, Fill, Key, Segment, draw};
use super::frame::heading;
use super::palette::{MUTED, of_bound};
use super::scene::Scene;

pub(super) fn scene(workload: &Workload, sides: &[Side<'_>]) -> Scene {
    let mut scene = Scene::new(super::frame::WIDTH, 0.0);
    let top = heading(&mut scene, "Time by section, and what bounds it", workload, sides);

    // The row of a tier in its chip's list; a cache stands behind the tiers.
    let tier = |bound: &BoundBy| match bound {
        BoundBy::Memory(name) => {
            let row = |side: &Side<'_>| side.chip.tiers().iter().position(|tier| tier.name == *name);
            sides.iter().find_map(row).unwrap_or(1)
        }
        _ => 0,
    };
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

fn segments(chip: &dyn Device, outcome: &Outcome, tier: &dyn Fn(&BoundBy) -> usize) -> Vec<Segment> {
    let mut segments = Vec::new();
    for section in &outcome.sections {
        let launch = section.launch_cycles.min(section.cycles);
        let fill = Fill::Solid(of_bound(&section.bound_by, tier(&section.bound_by)));
        let lines = vec![si(chip.seconds(section.cycles), "s"), section.bound_by.to_string()];
        segments.push(Segment {
            size: chip.seconds(launch),
            fill: Fill::Hatched(MUTED),
            name: "launch".to_owned(),
            lines: vec![si(chip.seconds(launch), "s")],
        });
        segments.push(Segment { size: chip.seconds(section.cycles - launch), fill, name: section.name.clone(), lines });
    }
    segments
}
