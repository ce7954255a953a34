//! What runs do over their time, a panel a run, section by section: power, off-chip bandwidth, utilisation, on-chip memory.
//!
//! A section's figures are means over its time behind the launch; where it is launched several times, over all of its time. A column of a
//! pixel shows the mean of what falls into it.

use crate::report::human::{bytes_short, percent, si, si_short};
use crate::report::side::{Side, named};
use rdusim_graph::arch::Device;
use rdusim_graph::workload::Workload;
use rdusim_outcome::{HeldBy, Outcome, SectionOutcome};

use super::axis::{BYTES, Linear, SECONDS, Units};
use super::frame::{LABEL, MARGIN, STRONG, TICK, WIDTH, heading};
use super::palette::{AXIS, BLUE, Color, GRID, INK, PLACES, of_tier, of_use};
use super::scene::{Anchor, Area, Scene};

/// Height of a panel, and distance from one to the next.
const PANEL: f64 = 130.0;
const GAP: f64 = 44.0;
/// Columns of a panel: logical pixels.
const COLUMNS: usize = 860;

const WATTS: [(f64, &str); 4] = [(1e-6, "µW"), (1e-3, "mW"), (1.0, "W"), (1e3, "kW")];
const BYTES_PER_SECOND: [(f64, &str); 5] = [(1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s"), (1e12, "TB/s")];
const SHARES: [(f64, &str); 1] = [(0.01, "%")];

/// What is shown over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    Power,
    Bandwidth,
    Utilization,
    Memory,
}

/// A part of a run's time in which nothing changes: its end, and a value for each layer.
struct Span {
    start_s: f64,
    end_s: f64,
    values: Vec<f64>,
}

struct Panel {
    name: String,
    total: String,
    spans: Vec<Span>,
    /// What the values cannot pass, and what that is.
    limit: Option<f64>,
}

/// Layers of all panels, each with its name and colour.
type Layers = Vec<(String, Color)>;

pub(super) fn scene(quantity: Quantity, workload: &Workload, sides: &[Side<'_>]) -> Scene {
    let mut scene = Scene::new(WIDTH, 0.0);
    let (title, units, limit_name): (&str, &Units, Option<&str>) = match quantity {
        Quantity::Power => ("Average power over time", &WATTS, None),
        Quantity::Bandwidth => {
            ("Off-chip bandwidth over time", &BYTES_PER_SECOND, Some("sustained rate of the tiers in use"))
        }
        Quantity::Utilization => ("Units and memory working over time", &SHARES, None),
        Quantity::Memory => ("On-chip memory in use over time", &BYTES, Some("capacity")),
    };
    let top = heading(&mut scene, title, workload, sides) + 28.0;
    let runs = named(sides);
    let layers = layers(quantity, &runs);
    let panels: Vec<Panel> =
        runs.iter().map(|(name, chip, outcome)| panel(quantity, name, *chip, outcome, &layers)).collect();
    let end_s = runs.iter().map(|(_, chip, outcome)| chip.seconds(outcome.cycles)).fold(0.0, f64::max);
    let is_stacked = quantity != Quantity::Utilization;
    let columns: Vec<Vec<Vec<f64>>> = panels.iter().map(|panel| in_columns(panel, layers.len(), end_s)).collect();
    let height = |values: &Vec<f64>| {
        if is_stacked { values.iter().sum() } else { values.iter().copied().fold(0.0, f64::max) }
    };
    let most = columns.iter().flatten().map(height).fold(0.0, f64::max);
    // A limit that is far away would leave no room for the values.
    let is_near = |limit: &f64| *limit <= 2.0 * most;
    let most = panels.iter().filter_map(|panel| panel.limit.filter(is_near)).fold(most, f64::max);
    let most = if quantity == Quantity::Utilization { 1.0 } else { most };
    let axis = Linear::new(most, units);
    let time = Linear::new(end_s, &SECONDS);
    let mut y = top;
    for (panel, columns) in panels.iter().zip(&columns) {
        let plot = Area { left: MARGIN + 62.0, top: y, width: COLUMNS as f64, height: PANEL };
        let at = |value: f64| plot.bottom() - if most > 0.0 { value / most * PANEL } else { 0.0 };
        scene.text((plot.left, y - 14.0), Anchor::Start, STRONG, &panel.name);
        scene.text((plot.right(), y - 14.0), Anchor::End, LABEL, &panel.total);
        let seconds = |s: f64| plot.left + if end_s > 0.0 { s / end_s * plot.width } else { 0.0 };
        for (value, _) in &time.ticks {
            scene.line((seconds(*value), y), (seconds(*value), plot.bottom()), 1, GRID);
        }
        for (value, label) in axis.ticks.iter().step_by(if axis.ticks.len() > 7 { 2 } else { 1 }) {
            scene.line((plot.left, at(*value)), (plot.right(), at(*value)), 1, GRID);
            scene.text((plot.left - 8.0, at(*value)), Anchor::End, TICK, label);
        }
        if is_stacked {
            stack(&mut scene, plot, columns, &layers, most);
        } else {
            lines(&mut scene, plot, columns, &layers, most);
        }
        if let Some(limit) = panel.limit.filter(is_near) {
            scene.dashes((plot.left, at(limit)), (plot.right(), at(limit)), 4.0, INK);
        }
        scene.line((plot.left, plot.bottom()), (plot.right(), plot.bottom()), 1, AXIS);
        scene.line((plot.left, y), (plot.left, plot.bottom()), 1, AXIS);
        y += PANEL + GAP;
    }
    let bottom = y - GAP;
    scene.text((MARGIN, top - 14.0), Anchor::Start, TICK, axis.unit);
    for (value, label) in &time.ticks {
        let x = MARGIN + 62.0 + if end_s > 0.0 { value / end_s * COLUMNS as f64 } else { 0.0 };
        scene.text((x, bottom + 18.0), Anchor::Middle, TICK, label);
    }
    scene.text((WIDTH - MARGIN, bottom + 40.0), Anchor::End, TICK, time.unit);
    let limit = limit_name.filter(|_| panels.iter().any(|panel| panel.limit.is_some_and(|limit| is_near(&limit))));
    let keys =
        layers.iter().map(|(name, color)| super::bars::Key::Fill(super::bars::Fill::Solid(*color), name.clone()));
    let keys: Vec<super::bars::Key> =
        keys.chain(limit.map(|name| super::bars::Key::Mark(format!("dashed: {name}")))).collect();
    scene.height = super::bars::legend(&mut scene, bottom + 66.0, &keys) + MARGIN;
    scene
}

/// What can be told apart: of all runs what any of them has.
fn layers(quantity: Quantity, runs: &[(String, &dyn Device, &Outcome)]) -> Layers {
    let sections = || runs.iter().flat_map(|(_, _, outcome)| &outcome.sections);
    let mut tiers: Vec<&str> = Vec::new();
    for (_, chip, _) in runs {
        for tier in chip.tiers() {
            let is_used =
                sections().any(|section| section.moved.iter().any(|(name, bytes)| *name == tier.name && *bytes > 0));
            if is_used && !tiers.contains(&tier.name.as_str()) {
                tiers.push(&tier.name);
            }
        }
    }
    let of_tiers = tiers.iter().enumerate().map(|(row, name)| ((*name).to_owned(), of_tier(row)));
    match quantity {
        Quantity::Power => PLACES.iter().map(|(name, color)| ((*name).to_owned(), *color)).collect(),
        Quantity::Bandwidth => of_tiers.collect(),
        Quantity::Utilization => {
            let units = runs.first().map_or("PCUs", |(_, chip, _)| chip.unit_names().compute);
            std::iter::once((format!("{units} working, mean of the chip"), BLUE))
                .chain(of_tiers.map(|(name, color)| (format!("{name} busy"), color)))
                .collect()
        }
        Quantity::Memory => {
            let is_used = |held: &HeldBy| {
                sections().any(|section| section.held.iter().any(|(by, bytes)| by == held && *bytes > 0))
            };
            HeldBy::ALL.into_iter().filter(is_used).map(|held| (held.name().to_owned(), of_use(held))).collect()
        }
    }
}

fn panel(quantity: Quantity, name: &str, chip: &dyn Device, outcome: &Outcome, layers: &Layers) -> Panel {
    let mut spans = Vec::new();
    let mut start = 0;
    for section in &outcome.sections {
        let end = start + section.cycles;
        // One launch stands before the section; several lie between its repetitions.
        let launch = if section.launches == 1 { section.launch_cycles.min(section.cycles) } else { 0 };
        let mut add = |from: u64, to: u64, values: Vec<f64>| {
            spans.push(Span { start_s: chip.seconds(from), end_s: chip.seconds(to), values });
        };
        if launch > 0 {
            add(start, start + launch, values(quantity, chip, section, layers, launch, true));
        }
        if launch < section.cycles {
            add(start + launch, end, values(quantity, chip, section, layers, section.cycles - launch, false));
        }
        start = end;
    }
    let time_s = chip.seconds(outcome.cycles);
    let over_time = |amount: f64| if time_s > 0.0 { amount / time_s } else { 0.0 };
    let (total, limit) = match quantity {
        Quantity::Power => (format!("mean {}", si(over_time(outcome.energy().total()), "W")), None),
        Quantity::Bandwidth => {
            let rate = |(name, _): &(String, Color)| chip.tiers().iter().find(|tier| tier.name == *name);
            let rates = layers.iter().filter_map(rate).map(|tier| tier.bandwidth_bytes_per_s as f64);
            let moved = outcome.sections.iter().flat_map(|section| &section.moved).map(|(_, bytes)| *bytes as f64);
            (format!("mean {}", si_short(over_time(moved.sum()), "B/s")), Some(rates.sum()))
        }
        Quantity::Utilization => {
            let worked: f64 = outcome.sections.iter().map(worked).sum();
            let share = worked / (chip.compute_units().max(1) as f64 * outcome.cycles.max(1) as f64);
            (format!("{} mean {}", chip.unit_names().compute, percent(share)), None)
        }
        Quantity::Memory => {
            let peak = outcome.sections.iter().map(|section| section.sram_peak_bytes).max().unwrap_or(0);
            (format!("peak {}", bytes_short(peak)), Some(chip.sram_bytes() as f64))
        }
    };
    Panel { name: name.to_owned(), total, spans, limit }
}

/// Cycles that all units of a section worked together.
fn worked(section: &SectionOutcome) -> f64 {
    section.stages.iter().map(|stage| stage.mean_cycles * stage.pcus as f64).sum()
}

/// The layers of a section in its launch, or in the `cycles` behind it.
fn values(
    quantity: Quantity,
    chip: &dyn Device,
    section: &SectionOutcome,
    layers: &Layers,
    cycles: u64,
    is_launch: bool,
) -> Vec<f64> {
    let seconds = chip.seconds(cycles);
    // What happens in a section happens behind its launch.
    let rate = |amount: f64| if is_launch || seconds <= 0.0 { 0.0 } else { amount / seconds };
    let of_tier = |list: &[(String, u64)], name: &str| {
        list.iter().filter(|(tier, _)| tier == name).map(|(_, amount)| *amount as f64).sum::<f64>()
    };
    match quantity {
        Quantity::Power => {
            let energy = &section.energy;
            let whole_s = chip.seconds(section.cycles);
            let still = if whole_s > 0.0 { energy.static_ / whole_s } else { 0.0 };
            let moving = [energy.compute, energy.sram, energy.network, energy.off_chip].map(rate);
            moving.into_iter().chain([still]).collect()
        }
        Quantity::Bandwidth => layers.iter().map(|(name, _)| rate(of_tier(&section.moved, name))).collect(),
        Quantity::Utilization => {
            let of_cycles = |amount: f64| if is_launch { 0.0 } else { (amount / cycles.max(1) as f64).min(1.0) };
            let units = of_cycles(worked(section) / chip.compute_units().max(1) as f64);
            let tier = |name: &str| name.strip_suffix(" busy").unwrap_or_default().to_owned();
            let tiers = layers.iter().skip(1).map(|(name, _)| of_cycles(of_tier(&section.busy.tiers, &tier(name))));
            std::iter::once(units).chain(tiers).collect()
        }
        Quantity::Memory => {
            let uses = HeldBy::ALL.into_iter().filter(|held| layers.iter().any(|(name, _)| name == held.name()));
            let held =
                |by: HeldBy| section.held.iter().filter(|(of, _)| *of == by).map(|(_, bytes)| *bytes as f64).sum();
            uses.map(|by| if is_launch { 0.0 } else { held(by) }).collect()
        }
    }
}

/// For every column of a panel the mean value of each layer, over the time that the run covers of it.
fn in_columns(panel: &Panel, layers: usize, end_s: f64) -> Vec<Vec<f64>> {
    if end_s <= 0.0 {
        return Vec::new();
    }
    let per_column = end_s / COLUMNS as f64;
    // A run that is over has no values.
    let run_s = panel.spans.last().map_or(0.0, |span| span.end_s);
    let mut columns = vec![vec![0.0; layers]; ((run_s / per_column).ceil() as usize).min(COLUMNS)];
    for span in &panel.spans {
        let (first, last) = (span.start_s / per_column, span.end_s / per_column);
        for (at, column) in
            columns.iter_mut().enumerate().take((last.ceil() as usize).min(COLUMNS)).skip(first as usize)
        {
            let share = (last.min(at as f64 + 1.0) - first.max(at as f64)).max(0.0);
            for (sum, value) in column.iter_mut().zip(&span.values) {
                *sum += value * share;
            }
        }
    }
    columns
}

/// Whether two columns look the same.
fn is_same(a: &[f64], b: &[f64], most: f64) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() <= most * 1e-3)
}

/// Neighbouring columns that look the same: first, behind the last, and their values.
fn levels(columns: &[Vec<f64>], most: f64) -> Vec<(usize, usize, &[f64])> {
    let mut levels: Vec<(usize, usize, &[f64])> = Vec::new();
    for (at, values) in columns.iter().enumerate() {
        match levels.last_mut() {
            Some((_, end, level)) if is_same(level, values, most) => *end = at + 1,
            _ => levels.push((at, at + 1, values)),
        }
    }
    levels
}

fn stack(scene: &mut Scene, plot: Area, columns: &[Vec<f64>], layers: &Layers, most: f64) {
    for (from, to, values) in levels(columns, most) {
        let mut bottom = plot.bottom();
        for (value, (_, color)) in values.iter().zip(layers) {
            let height = if most > 0.0 { value / most * plot.height } else { 0.0 };
            if height >= 0.2 {
                let (left, width) = (plot.left + from as f64, (to - from) as f64);
                scene.fill(Area { left, top: bottom - height, width, height }, *color);
            }
            bottom -= height;
        }
    }
}

fn lines(scene: &mut Scene, plot: Area, columns: &[Vec<f64>], layers: &Layers, most: f64) {
    for (layer, (_, color)) in layers.iter().enumerate() {
        let own: Vec<Vec<f64>> = columns.iter().map(|values| vec![values[layer]]).collect();
        let y = |value: f64| plot.bottom() - value / most * plot.height;
        let mut before: Option<f64> = None;
        for (from, to, values) in levels(&own, most) {
            let (left, right, now) = (plot.left + from as f64, plot.left + to as f64, y(values[0]));
            if let Some(before) = before {
                scene.line((left, before), (left, now), 2, *color);
            }
            scene.line((left, now), (right, now), 2, *color);
            before = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn the_columns_of_a_panel_hold_what_the_run_spent() {
        let (chip, outcomes) = (fixture::sn10(), fixture::outcomes());
        let sides = [Side { chip: &chip, outcomes: &outcomes }];
        let runs = named(&sides);
        let layers = layers(Quantity::Power, &runs);
        for (name, chip, outcome) in &runs {
            let panel = panel(Quantity::Power, name, *chip, outcome, &layers);
            let end_s = chip.seconds(outcome.cycles);
            let columns = in_columns(&panel, layers.len(), end_s);
            let joules: f64 = columns.iter().flatten().sum::<f64>() * end_s / COLUMNS as f64;
            let wanted = outcome.energy().total();
            assert!((joules - wanted).abs() < 1e-9 * wanted, "{name}: {joules} J of {wanted}");
        }
    }
}
