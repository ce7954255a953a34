//! Energy of each run: by section, coloured by what bounds it; and by the tensor whose bytes moved off chip.

use indexmap::IndexMap;

use crate::report::human::{shorten, si};
use crate::report::side::{Side, named};
use rdusim_graph::workload::Workload;
use rdusim_outcome::{BoundBy, Outcome};

use super::axis::Linear;
use super::bars::{Bar, Fill, Key, Segment, draw};
use super::frame::heading;
use super::palette::{GREY, of_bound};
use super::scene::Scene;
use super::time::row_of_tier;
use super::traffic::colors;

const JOULES: [(f64, &str); 6] = [(1e-12, "pJ"), (1e-9, "nJ"), (1e-6, "µJ"), (1e-3, "mJ"), (1.0, "J"), (1e3, "kJ")];
/// A section with less than this part of a run's energy, one in so many, has no room for its name.
const SHORT: f64 = 60.0;

pub(super) fn by_section(workload: &Workload, sides: &[Side<'_>]) -> Scene {
    let mut scene = Scene::new(super::frame::WIDTH, 0.0);
    let top = heading(&mut scene, "Energy by section, and what bounds it", workload, sides);
    let runs = named(sides);
    let mut bounds: Vec<&BoundBy> = Vec::new();
    for section in runs.iter().flat_map(|(_, _, outcome)| &outcome.sections) {
        if !bounds.contains(&&section.bound_by) {
            bounds.push(&section.bound_by);
        }
    }
    let bars: Vec<Bar> = runs.iter().map(|(name, _, outcome)| bar(name, outcome, sections(outcome, sides))).collect();
    let fill = |bound: &BoundBy| Fill::Solid(of_bound(bound, row_of_tier(bound, sides)));
    let keys: Vec<Key> = bounds.iter().map(|bound| Key::Fill(fill(bound), shorten(&bound.to_string(), 32))).collect();
    draw(&mut scene, top, &bars, &axis(&runs), &keys);
    scene
}

pub(super) fn by_tensor(workload: &Workload, sides: &[Side<'_>]) -> Scene {
    let mut scene = Scene::new(super::frame::WIDTH, 0.0);
    let top = heading(&mut scene, "Energy by tensor moved off chip, and the rest", workload, sides);
    let runs = named(sides);
    // Colours are those of the picture of traffic, which sorts by bytes.
    let mut totals: IndexMap<&str, u64> = IndexMap::new();
    let sections = runs.iter().flat_map(|(_, _, outcome)| &outcome.sections);
    for (name, bytes) in sections.flat_map(|section| &section.traffic.by_tensor) {
        *totals.entry(name).or_default() += bytes.off_chip_read_bytes + bytes.off_chip_write_bytes;
    }
    totals.retain(|_, total| *total > 0);
    let colors = colors(&totals);
    let segments = |outcome: &Outcome| {
        let joules = tensors(outcome);
        let segment = |name: &str, size: f64, fill: Fill| Segment {
            size,
            fill,
            name: name.to_owned(),
            lines: vec![si(size, "J")],
        };
        let named =
            colors.iter().filter_map(|(name, color)| Some(segment(name, *joules.get(*name)?, Fill::Solid(*color))));
        let mut list: Vec<Segment> = named.filter(|segment| segment.size > 0.0).collect();
        let others: f64 = joules.iter().filter(|(name, _)| !colors.contains_key(name.as_str())).map(|(_, j)| j).sum();
        if others > 0.0 {
            list.push(segment("others", others, Fill::Solid(GREY)));
        }
        let energy = outcome.energy();
        list.push(segment("on chip and static", energy.total() - energy.off_chip, Fill::Hatched(GREY)));
        list
    };
    let bars: Vec<Bar> = runs.iter().map(|(name, _, outcome)| bar(name, outcome, segments(outcome))).collect();
    let mut keys: Vec<Key> =
        colors.iter().map(|(name, color)| Key::Fill(Fill::Solid(*color), shorten(name, 40))).collect();
    match totals.len() - colors.len() {
        0 => {}
        others => keys.push(Key::Fill(Fill::Solid(GREY), format!("{others} other tensors"))),
    }
    keys.push(Key::Fill(Fill::Hatched(GREY), "compute, SRAM, network and static".to_owned()));
    draw(&mut scene, top, &bars, &axis(&runs), &keys);
    scene
}

fn axis(runs: &[(String, &dyn rdusim_graph::arch::Device, &Outcome)]) -> Linear {
    Linear::new(runs.iter().map(|(_, _, outcome)| outcome.energy().total()).fold(0.0, f64::max), &JOULES)
}

fn bar(name: &str, outcome: &Outcome, segments: Vec<Segment>) -> Bar {
    Bar { name: name.to_owned(), total: si(outcome.energy().total(), "J"), segments, mark: None }
}

/// Sections in order; neighbours that are small and bound by the same resource are one.
fn sections(outcome: &Outcome, sides: &[Side<'_>]) -> Vec<Segment> {
    let least = outcome.energy().total() / SHORT;
    let mut list: Vec<(Segment, &BoundBy, usize)> = Vec::new();
    for section in &outcome.sections {
        let size = section.energy.total();
        match list.last_mut() {
            Some((last, bound, count)) if size < least && *count > 0 && **bound == section.bound_by => {
                last.size += size;
                *count += 1;
                last.name = format!("{count} sections");
            }
            _ => {
                let times = if section.repeat > 1 { format!(" x{}", section.repeat) } else { String::new() };
                let fill = Fill::Solid(of_bound(&section.bound_by, row_of_tier(&section.bound_by, sides)));
                let segment = Segment { size, fill, name: format!("{}{times}", section.name), lines: Vec::new() };
                // What has a name of its own takes no others in.
                list.push((segment, &section.bound_by, usize::from(size < least)));
            }
        }
    }
    list.into_iter().map(|(segment, ..)| Segment { lines: vec![si(segment.size, "J")], ..segment }).collect()
}

/// Energy off chip of every tensor: that of each section, by bytes.
fn tensors(outcome: &Outcome) -> IndexMap<String, f64> {
    let mut joules: IndexMap<String, f64> = IndexMap::new();
    for section in &outcome.sections {
        let all = section.traffic.off_chip_bytes() as f64;
        for (name, bytes) in section.traffic.by_tensor.iter().filter(|_| all > 0.0) {
            let moved = (bytes.off_chip_read_bytes + bytes.off_chip_write_bytes) as f64;
            *joules.entry(name.clone()).or_default() += section.energy.off_chip * moved / all;
        }
    }
    joules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn no_joule_is_lost() {
        let (chip, outcomes) = (fixture::sn10(), fixture::outcomes());
        let sides = [Side { chip: &chip, outcomes: &outcomes }];
        for outcome in &outcomes {
            let energy = outcome.energy();
            let of_sections: f64 = sections(outcome, &sides).iter().map(|segment| segment.size).sum();
            let of_tensors: f64 = tensors(outcome).values().sum();
            assert!((of_sections - energy.total()).abs() < 1e-9 * energy.total());
            assert!((of_tensors - energy.off_chip).abs() < 1e-9 * energy.off_chip);
        }
    }
}
