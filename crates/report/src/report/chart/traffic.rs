//! Off-chip bytes of each run, stacked by tensor, writes hatched.

use indexmap::IndexMap;

use crate::report::human::{bytes, shorten};
use crate::report::side::{Side, named};
use rdusim_graph::workload::Workload;
use rdusim_outcome::TensorTraffic;

use super::axis::{BYTES, Linear};
use super::bars::{Bar, Fill, Key, Segment, draw};
use super::frame::heading;
use super::palette::{Color, GREY, SERIES};
use super::scene::Scene;

pub(super) fn scene(workload: &Workload, sides: &[Side<'_>]) -> Scene {
    let mut scene = Scene::new(super::frame::WIDTH, 0.0);
    let top = heading(&mut scene, "Off-chip traffic by tensor", workload, sides);
    let outcomes = named(sides);

    let runs: Vec<_> = outcomes.iter().map(|(_, _, outcome)| outcome.traffic()).collect();
    let mut totals: IndexMap<&str, u64> = IndexMap::new();
    for (name, traffic) in runs.iter().flat_map(|run| &run.by_tensor) {
        *totals.entry(name).or_default() += moved(traffic);
    }
    totals.retain(|_, total| *total > 0);
    let colors = colors(&totals);

    let bars: Vec<Bar> = outcomes
        .iter()
        .zip(&runs)
        .map(|((name, _, _), run)| Bar {
            name: name.clone(),
            total: bytes(run.off_chip_bytes()),
            segments: segments(&run.by_tensor, &colors),
            mark: None,
        })
        .collect();
    let most = runs.iter().map(rdusim_outcome::Traffic::off_chip_bytes).max().unwrap_or(0);
    let axis = Linear::new(most as f64, &BYTES);

    let mut keys: Vec<Key> =
        colors.iter().map(|(name, color)| Key::Fill(Fill::Solid(*color), shorten(name, 40))).collect();
    match totals.len() - colors.len() {
        0 => {}
        others => keys.push(Key::Fill(Fill::Solid(GREY), format!("{others} other tensors"))),
    }
    if !keys.is_empty() {
        keys.push(Key::Fill(Fill::Hatched(GREY), "hatched: written; solid: read".to_owned()));
    }
    draw(&mut scene, top, &bars, &axis, &keys);
    scene
}

fn moved(traffic: &TensorTraffic) -> u64 {
    traffic.off_chip_read_bytes + traffic.off_chip_write_bytes
}

/// A colour for each tensor, or for the largest if there are more tensors than colours; in graph order.
pub(super) fn colors<'a>(totals: &IndexMap<&'a str, u64>) -> IndexMap<&'a str, Color> {
    let mut largest: Vec<(usize, u64)> = totals.values().copied().enumerate().collect();
    largest.sort_by_key(|&(at, total)| (std::cmp::Reverse(total), at));
    // One tensor beyond the colours would be an "other" of its own: it may as well be grey under its name.
    let named = if totals.len() == SERIES.len() + 1 { totals.len() } else { SERIES.len() };
    largest.truncate(named);
    let names = totals.keys().enumerate().filter(|(at, _)| largest.iter().any(|(large, _)| large == at));
    names.zip(SERIES.into_iter().chain([GREY])).map(|((_, name), color)| (*name, color)).collect()
}

/// Named tensors in order, each its reads and then its writes; then the others together.
fn segments(by_tensor: &IndexMap<String, TensorTraffic>, colors: &IndexMap<&str, Color>) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut add = |name: &str, color: Color, traffic: TensorTraffic| {
        let parts =
            [(Fill::Solid(color), traffic.off_chip_read_bytes), (Fill::Hatched(color), traffic.off_chip_write_bytes)];
        for (fill, size) in parts.into_iter().filter(|(_, size)| *size > 0) {
            segments.push(Segment { size: size as f64, fill, name: name.to_owned(), lines: vec![bytes(size)] });
        }
    };
    let mut others = TensorTraffic::default();
    for (name, traffic) in by_tensor {
        if let Some(color) = colors.get(name.as_str()) {
            add(name, *color, *traffic);
        } else {
            others.off_chip_read_bytes += traffic.off_chip_read_bytes;
            others.off_chip_write_bytes += traffic.off_chip_write_bytes;
        }
    }
    add("others", GREY, others);
    segments
}
