//! A section on the grid: who works where, what the PMUs hold, and how full the links are.

use std::collections::{BTreeMap, BTreeSet};

use crate::map::{Map, Section, Site};
use crate::report::figures::quotient;
use crate::report::human::{percent, shorten, whole};
use rdusim_graph::arch::{Chip, UnitKind};

use super::frame::{LABEL, MARGIN, SUBTITLE, TITLE, WIDTH, fitted};
use super::grid::{DIE_BORDER, MOST_SITES, Plan, TILE_BORDER};
use super::heat;
use super::paint::{self, ChartError};
use super::palette::{AXIS, BLUE, Color, GREEN, GRID, INK, MUTED, ORANGE, PURPLE, SKY, WHITE, YELLOW};
use super::scene::{Anchor, Area, Face, Scene};

/// Colours of the stages in order; red is left to the links.
const STAGES: [Color; 6] = [BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW];
/// Most characters of the title.
const MOST_TITLE: usize = 160;
/// Most stages that are named under the picture.
const MOST_NAMED: usize = 24;

/// A picture of one section of a map.
#[derive(Debug, Clone, Copy)]
pub struct MapChart<'a> {
    chip: &'a Chip,
    map: &'a Map,
    section: usize,
    /// Coloured by how the run went, not by stage.
    ran: bool,
}

/// What a PMU holds: banks for each stage.
type Held = BTreeMap<usize, u64>;

impl<'a> MapChart<'a> {
    /// The picture of section `section`, counted from 0.
    pub fn new(chip: &'a Chip, map: &'a Map, section: usize) -> Self {
        Self { chip, map, section, ran: false }
    }

    /// The same, coloured by how units, ports and links spent the run; `None` before there was one.
    pub fn of_run(chip: &'a Chip, map: &'a Map, section: usize) -> Option<Self> {
        map.sections[section].run.is_some().then_some(Self { chip, map, section, ran: true })
    }

    /// The picture as an SVG file.
    pub fn svg(self) -> Result<String, ChartError> {
        self.drawable()?;
        paint::svg(&self.scene())
    }

    /// The picture as a PNG file.
    pub fn png(self) -> Result<Vec<u8>, ChartError> {
        self.drawable()?;
        paint::png(&self.scene())
    }

    fn drawable(self) -> Result<(), ChartError> {
        let (columns, rows) = (self.chip.grid.columns, self.chip.grid.rows);
        if columns.max(rows) > MOST_SITES { Err(ChartError::TooLarge(columns, rows)) } else { Ok(()) }
    }

    fn section(self) -> &'a Section {
        &self.map.sections[self.section]
    }

    pub(super) fn scene(self) -> Scene {
        let plan = Plan::new(&self.chip.grid, 0.0, 62.0);
        let narrow = (WIDTH - plan.area().width).max(0.0);
        let plan = Plan::new(&self.chip.grid, (narrow / 2.0).round(), 62.0);
        let area = plan.area();
        let mut scene = Scene::new(area.width.max(WIDTH), area.bottom());
        self.heading(&mut scene);
        plan.draw_frame(&mut scene);
        let run = self.section().run.as_ref().filter(|_| self.ran);
        heat::draw(&mut scene, &plan, &self.section().links, run.map_or(self.section().bound, |run| run.cycles));
        match run {
            Some(run) => self.units_in(run, &mut scene, &plan),
            None => self.units(&mut scene, &plan),
        }
        self.agcus(&mut scene, &plan);
        self.mark_fullest(&mut scene, &plan);
        let top = area.bottom() + 10.0;
        let bottom = match run {
            Some(run) => self.legend_of(run, &mut scene, top),
            None => self.legend(&mut scene, &plan, top),
        };
        scene.height = bottom + MARGIN;
        scene
    }

    fn heading(self, scene: &mut Scene) {
        let section = self.section();
        let title = shorten(&format!("{}: {}", self.map.mode, section.operators.join(", ")), MOST_TITLE);
        let room = scene.width - 2.0 * MARGIN;
        let title = fitted(&title, TITLE, room).unwrap_or_default();
        scene.text((MARGIN, 36.0), Anchor::Start, TITLE, &title);
        if let Some(run) = section.run.as_ref().filter(|_| self.ran) {
            let about = fitted(&Self::told(run), SUBTITLE, room).unwrap_or_default();
            scene.text((MARGIN, 62.0), Anchor::Start, SUBTITLE, &about);
            return;
        }
        let about = format!(
            "{} on {}, section {} of {}: {} of {} PCUs work",
            shorten(&self.map.workload.name, 48),
            shorten(&self.map.arch.name, 32),
            self.section + 1,
            self.map.sections.len(),
            whole(section.stages.iter().map(|stage| stage.pcus.len() as u64).sum()),
            whole(self.map.arch.pcus),
        );
        let about = fitted(&about, SUBTITLE, room).unwrap_or_default();
        scene.text((MARGIN, 62.0), Anchor::Start, SUBTITLE, &about);
    }

    /// The stage of each PCU that has one.
    fn workers(self) -> BTreeMap<Site, usize> {
        let stages = self.section().stages.iter().enumerate();
        stages.flat_map(|(index, stage)| stage.pcus.iter().map(move |&site| (site, index))).collect()
    }

    fn held(self) -> BTreeMap<Site, Held> {
        let mut held: BTreeMap<Site, Held> = BTreeMap::new();
        for buffer in &self.section().buffers {
            for part in buffer.pieces.iter().flatten() {
                *held.entry(part.pmu).or_default().entry(buffer.stage).or_default() += part.banks;
            }
        }
        held
    }

    fn units(self, scene: &mut Scene, plan: &Plan<'_>) {
        let (workers, held) = (self.workers(), self.held());
        let grid = &self.chip.grid;
        for y in 0..grid.rows {
            for x in 0..grid.columns {
                let area = plan.unit([x, y]);
                match grid.units[y as usize * grid.columns as usize + x as usize] {
                    UnitKind::Pcu => scene.fill(area, workers.get(&[x, y]).map_or(GRID, |&stage| color(stage))),
                    UnitKind::Pmu => {
                        let (stage, banks) = held.get(&[x, y]).map_or((None, 0), served);
                        let full = quotient(banks as f64, self.chip.pmu.banks as f64);
                        gauge(scene, area, stage.map_or(GRID, color), full);
                    }
                    UnitKind::None => {}
                }
            }
        }
    }

    fn agcus(self, scene: &mut Scene, plan: &Plan<'_>) {
        let mut used: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for generator in self.section().streams.iter().flat_map(|stream| &stream.generators) {
            used.entry(generator.agcu).or_default().insert(generator.generator);
        }
        for ((area, agcu), index) in plan.agcus().into_iter().zip(&self.chip.grid.agcus).zip(0..) {
            let busy = used.get(&index).map_or(0, BTreeSet::len);
            let color = if busy > 0 { INK } else { AXIS };
            gauge_of(scene, area, color, MUTED, quotient(busy as f64, agcu.ags as f64));
        }
    }

    /// A box around the fullest link.
    fn mark_fullest(self, scene: &mut Scene, plan: &Plan<'_>) {
        let links = &self.section().links;
        let Some(fullest) = links.iter().max_by_key(|link| (link.flits, std::cmp::Reverse(link.from))) else { return };
        let [x, y] = fullest.from;
        let to = match fullest.direction {
            "east" => [x + 1, y],
            "west" => [x.saturating_sub(1), y],
            "south" => [x, y + 1],
            _ => [x, y.saturating_sub(1)],
        };
        let (a, b) = (plan.switch(fullest.from), plan.switch(to));
        let half = plan.street() / 2.0 + 2.0;
        let (left, top) = (a.0.min(b.0) - half, a.1.min(b.1) - half);
        ring(scene, Area { left, top, width: (a.0 - b.0).abs() + 2.0 * half, height: (a.1 - b.1).abs() + 2.0 * half });
    }

    /// What everything means; returns where it ends.
    fn legend(self, scene: &mut Scene, plan: &Plan<'_>, top: f64) -> f64 {
        let section = self.section();
        let mut keys = Keys { x: MARGIN, y: top, right: scene.width - MARGIN };
        for (index, stage) in section.stages.iter().enumerate().take(MOST_NAMED) {
            let name = shorten(&stage.operators.join("+"), 40);
            let text = format!("{name}: {} PCUs", whole(stage.pcus.len() as u64));
            let area = keys.add(scene, 16.0, &text);
            scene.fill(area, color(index));
        }
        if section.stages.len() > MOST_NAMED {
            let area = keys.add(scene, 16.0, &format!("and {} more stages", section.stages.len() - MOST_NAMED));
            scene.frame(area, MUTED);
        }
        let area = keys.add(scene, 16.0, "idle PCU");
        scene.fill(area, GRID);

        keys.new_line();
        let text = "PMU: filled as far as its banks are used, in the colour of the stage it serves most";
        let area = keys.add(scene, 16.0, text);
        gauge(scene, area, color(0), 0.6);
        let area = keys.add(scene, 16.0, "AGCU: filled as far as its generators are used");
        gauge_of(scene, area, INK, MUTED, 0.5);
        let (dies, tiles) = plan.parts();
        for (there, width, what) in [(dies, DIE_BORDER, "between dies"), (tiles, TILE_BORDER, "between tiles")] {
            if there {
                let area = keys.add(scene, 12.0, what);
                let x = area.left + area.width / 2.0;
                scene.line((x, area.top), (x, area.bottom()), width, AXIS);
            }
        }

        keys.new_line();
        keys.say(scene, "Links, flits over the section's least cycles:");
        for (step, end) in heat::ENDS.into_iter().enumerate() {
            let area = keys.add(scene, 30.0, &format!("to {end} %"));
            heat::sample(scene, area, step);
        }
        let fullest = section.network.fullest_flits;
        if fullest > 0 {
            let share = percent(quotient(fullest as f64, section.bound as f64));
            let area = keys.add(scene, 16.0, &format!("the fullest: {share}"));
            ring(scene, area);
        }
        keys.y + 10.0
    }
}

/// The colour of a stage; later ones are paler.
fn color(stage: usize) -> Color {
    let round = (stage / STAGES.len()).min(3);
    STAGES[stage % STAGES.len()].tint(round as f64 * 0.25)
}

/// The stage with most banks of a PMU (of equals the first), and the banks of all.
fn served(held: &Held) -> (Option<usize>, u64) {
    let most = held.iter().max_by_key(|&(&stage, &banks)| (banks, std::cmp::Reverse(stage)));
    (most.map(|(&stage, _)| stage), held.values().sum())
}

/// A box filled from below.
fn gauge(scene: &mut Scene, area: Area, color: Color, full: f64) {
    gauge_of(scene, area, color, color.tint(0.45), full);
}

fn gauge_of(scene: &mut Scene, area: Area, frame: Color, inside: Color, full: f64) {
    scene.fill(area, WHITE);
    let height = (area.height * full.clamp(0.0, 1.0)).round();
    if height > 0.0 {
        scene.fill(Area { top: area.bottom() - height, height, ..area }, inside);
    }
    scene.frame(area, frame);
}

/// A thick box.
fn ring(scene: &mut Scene, area: Area) {
    let corners = [
        (area.left, area.top),
        (area.right(), area.top),
        (area.right(), area.bottom()),
        (area.left, area.bottom()),
        (area.left, area.top),
    ];
    for ends in corners.windows(2) {
        scene.line(ends[0], ends[1], 2, INK);
    }
}

/// Entries of the legend, in rows.
struct Keys {
    x: f64,
    y: f64,
    right: f64,
}

impl Keys {
    const FACE: Face = LABEL;

    /// Writes an entry; returns the box before it.
    fn add(&mut self, scene: &mut Scene, width: f64, text: &str) -> Area {
        let needed = width + 8.0 + Self::FACE.width(text);
        self.make_room(needed);
        let area = Area { left: self.x, top: self.y - 8.0, width, height: 16.0 };
        scene.text((self.x + width + 8.0, self.y), Anchor::Start, Self::FACE, text);
        self.x += needed + 24.0;
        area
    }

    fn say(&mut self, scene: &mut Scene, text: &str) {
        let needed = Self::FACE.width(text);
        self.make_room(needed);
        scene.text((self.x, self.y), Anchor::Start, Self::FACE, text);
        self.x += needed + 20.0;
    }

    fn make_room(&mut self, needed: f64) {
        if self.x > MARGIN && self.x + needed > self.right {
            self.new_line();
        }
    }

    fn new_line(&mut self) {
        (self.x, self.y) = (MARGIN, self.y + 28.0);
    }
}

mod run;

#[cfg(test)]
mod tests;
