//! Links as streets that are the wider and darker the fuller they are.

use std::collections::BTreeMap;

use super::grid::Plan;
use super::palette::Color;
use super::scene::{Area, Scene};
use crate::map::{LinkEntry, Site};

/// Steps of the scale, least first.
pub(super) const STEPS: usize = 5;

/// Where each step ends, in per cent of the section's least cycles: the same in every picture, so that pictures can be
/// compared. No link is busy for longer than the section's bound.
pub(super) const ENDS: [u64; STEPS] = [5, 20, 40, 70, 100];

const COLORS: [Color; STEPS] = [
    Color(0xfd, 0xd9, 0xc9),
    Color(0xfb, 0xa2, 0x86),
    Color(0xf0, 0x5a, 0x43),
    Color(0xc0, 0x12, 0x1f),
    Color(0x4d, 0x00, 0x0b),
];

/// Thickness of a link of each step as a share of half a street.
const THICKNESS: [f64; STEPS] = [0.35, 0.55, 0.7, 0.85, 1.0];

/// The links of one direction along one street, drawn as one where they are equally full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    East(u32),
    West(u32),
    South(u32),
    North(u32),
}

/// Draws the load of all links over `cycles`: of parallel ones the fullest.
pub(super) fn draw(scene: &mut Scene, plan: &Plan<'_>, links: &[LinkEntry], cycles: u64) {
    // For each lane: the step of the link that begins at a column or row, the lower end of its way.
    let mut lanes: BTreeMap<Lane, BTreeMap<u32, usize>> = BTreeMap::new();
    for link in links {
        let [x, y] = link.from;
        let (lane, at) = match link.direction {
            "east" => (Lane::East(y), x),
            "west" => (Lane::West(y), x.saturating_sub(1)),
            "south" => (Lane::South(x), y),
            _ => (Lane::North(x), y.saturating_sub(1)),
        };
        let step = lanes.entry(lane).or_default().entry(at).or_default();
        *step = (*step).max(step_of(link.flits, cycles));
    }
    // The fullest last, over the others where they cross.
    for (step, color) in COLORS.into_iter().enumerate() {
        for (&lane, links) in &lanes {
            for (first, end) in runs(links, step) {
                scene.fill(ribbon(plan, lane, first, end, step), color);
            }
        }
    }
}

/// The step of a load.
fn step_of(flits: u64, cycles: u64) -> usize {
    let within = |end: &u64| u128::from(flits) * 100 <= u128::from(cycles) * u128::from(*end);
    ENDS.iter().position(within).unwrap_or(STEPS - 1)
}

/// Neighbouring links of one step: the first, and one behind the last.
fn runs(links: &BTreeMap<u32, usize>, step: usize) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for (&at, _) in links.iter().filter(|(_, of)| **of == step) {
        match runs.last_mut() {
            Some((_, end)) if *end == at => *end += 1,
            _ => runs.push((at, at + 1)),
        }
    }
    runs
}

/// The box of links from switch `first` to switch `end`. Traffic keeps to the right of the street's middle.
fn ribbon(plan: &Plan<'_>, lane: Lane, first: u32, end: u32, step: usize) -> Area {
    let between = |from: Site, to: Site| (plan.switch(from), plan.switch(to));
    let thickness = thickness(plan.street(), step);
    let ((x0, y0), (x1, y1)) = match lane {
        Lane::East(y) | Lane::West(y) => between([first, y], [end, y]),
        Lane::South(x) | Lane::North(x) => between([x, first], [x, end]),
    };
    match lane {
        Lane::East(_) => Area { left: x0, top: y0 + 1.0, width: x1 - x0, height: thickness },
        Lane::West(_) => Area { left: x0, top: y0 - thickness, width: x1 - x0, height: thickness },
        Lane::South(_) => Area { left: x0 - thickness, top: y0, width: thickness, height: y1 - y0 },
        Lane::North(_) => Area { left: x0 + 1.0, top: y0, width: thickness, height: y1 - y0 },
    }
}

fn thickness(street: f64, step: usize) -> f64 {
    ((street / 2.0 - 1.0) * THICKNESS[step]).round().max(1.0)
}

/// A sample of a step for the legend, in the middle of `area`.
pub(super) fn sample(scene: &mut Scene, area: Area, step: usize) {
    let height = [3.0, 4.0, 6.0, 8.0, 10.0][step];
    let top = area.top + ((area.height - height) / 2.0).round();
    scene.fill(Area { left: area.left, top, width: area.width, height }, COLORS[step]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_where_they_say() {
        assert_eq!([1, 5, 6, 20, 40, 41, 70, 71, 100].map(|flits| step_of(flits, 100)), [0, 0, 1, 1, 2, 3, 3, 4, 4]);
        assert_eq!(step_of(u64::MAX, u64::MAX), 4);
        assert_eq!((step_of(0, 0), step_of(1, 0)), (0, 4));
    }

    #[test]
    fn neighbours_of_one_step_are_one_run() {
        let links: BTreeMap<u32, usize> = [(0, 1), (1, 1), (2, 0), (3, 1), (5, 1)].into_iter().collect();
        assert_eq!(runs(&links, 1), [(0, 2), (3, 4), (5, 6)]);
    }
}
