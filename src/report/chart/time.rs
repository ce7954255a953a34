//! Time of each run, section by section, coloured by what bounds it; launches hatched.

use super::axis::{Linear, SECONDS};
use super::bars::{Bar, Fill, Key, Segment, draw};
use super::heading;
use super::palette::{MUTED, of_bound};
use super::scene::Scene;
use crate::arch::Chip;
use crate::report::human::{shorten, si};
use crate::sim::{BoundBy, Outcome};
use crate::workload::Workload;

pub(super) fn scene(chip: &Chip, workload: &Workload, outcomes: &[Outcome]) -> Scene {
    let mut scene = Scene::new(super::WIDTH, 0.0);
    let top = heading(&mut scene, "Time by section, and what bounds it", chip, workload, outcomes);

    let tier = |bound: &BoundBy| match bound {
        BoundBy::Memory(name) => chip.memory.iter().position(|tier| tier.name == *name).unwrap_or(0),
        _ => 0,
    };
    let bars: Vec<Bar> = outcomes
        .iter()
        .map(|outcome| Bar {
            name: outcome.mode.name().to_owned(),
            total: si(chip.seconds(outcome.cycles), "s"),
            segments: segments(chip, outcome, &tier),
            mark: (outcome.bound_cycles <= outcome.cycles).then(|| chip.seconds(outcome.bound_cycles)),
        })
        .collect();
    let most = outcomes.iter().map(|outcome| chip.seconds(outcome.cycles)).fold(0.0, f64::max);
    let axis = Linear::new(most, &SECONDS);

    let mut bounds: Vec<&BoundBy> = Vec::new();
    for section in outcomes.iter().flat_map(|outcome| &outcome.sections) {
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

fn segments(chip: &Chip, outcome: &Outcome, tier: &dyn Fn(&BoundBy) -> usize) -> Vec<Segment> {
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
