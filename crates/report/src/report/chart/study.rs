//! Pictures of many runs: lines, a front, a heat map over two fields; side by side for the values of further fields.
//!
//! Points that differ in a field which the picture does not show are never joined and never drawn over each other: the study
//! divides them into facets (Tufte's small multiples), which share their scales.

use crate::report::human::shorten;

use super::frame::{LABEL, MARGIN, SUBTITLE, TICK, TITLE, WIDTH, fitted};
use super::paint::{self, ChartError};
use super::palette::{AXIS, Color, GREY, GRID, INK, SERIES, WHITE};
use super::scale::{Scale, label, words};
use super::scene::{Anchor, Area, Face, Scene};

const HEIGHT: f64 = 620.0;
const TOP: f64 = 108.0;
/// Height of a row of facets, with their names and ticks.
const FACET: f64 = 270.0;
/// Series with a colour and a name of their own.
const MOST_SERIES: usize = SERIES.len();
/// Dashed rests of colour names stay readable up to this many cells a side.
const MOST_CELLS: usize = 40;

/// A line or a kind of points.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name; empty if it is the only one.
    pub name: String,
    /// x and y of each point.
    pub points: Vec<(f64, f64)>,
}

/// What a picture, or a facet of it, shows. All facets of a picture show the same kind.
#[derive(Debug, Clone, PartialEq)]
pub enum PlotData {
    /// y over x; the points of each series are joined in the order of x.
    Lines(Vec<Series>),
    /// y over x, not joined.
    Points(Vec<Series>),
    /// Points, and through those that are least in both the front.
    Front(Vec<Series>),
    /// A colour for each pair of values; cells are x, y and the number, if there is one.
    Heat {
        /// What the colour means.
        value: String,
        /// x, y and the number of each cell.
        cells: Vec<(String, String, Option<f64>)>,
    },
}

/// A picture of a study.
#[derive(Debug, Clone, PartialEq)]
pub struct StudyPlot {
    /// Heading.
    pub title: String,
    /// What it is of.
    pub about: String,
    /// Name of the x axis.
    pub x: String,
    /// Name of the y axis.
    pub y: String,
    /// What is shown: one part, or one for each of the values that `name` says.
    pub facets: Vec<Facet>,
}

/// A part of a picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Facet {
    /// Values that all of its points have; empty if it is the only one.
    pub name: String,
    /// What is shown.
    pub data: PlotData,
}

impl StudyPlot {
    /// The picture as an SVG file.
    ///
    /// # Errors
    /// As [`super::Chart::svg`].
    pub fn svg(&self) -> Result<String, ChartError> {
        paint::svg(&self.scene())
    }

    /// The picture as a PNG file.
    ///
    /// # Errors
    /// As [`super::Chart::png`].
    pub fn png(&self) -> Result<Vec<u8>, ChartError> {
        paint::png(&self.scene())
    }

    pub(super) fn scene(&self) -> Scene {
        let (height, areas) = self.layout();
        let mut scene = Scene::new(WIDTH, height);
        let room = WIDTH - 2.0 * MARGIN;
        scene.text((MARGIN, 36.0), Anchor::Start, TITLE, &fitted(&self.title, TITLE, room).unwrap_or_default());
        scene.text((MARGIN, 62.0), Anchor::Start, SUBTITLE, &fitted(&self.about, SUBTITLE, room).unwrap_or_default());
        let shared = Shared::of(&self.facets);
        for (facet, &plot) in self.facets.iter().zip(&areas) {
            if !facet.name.is_empty() {
                let name = fitted(&facet.name, LABEL, plot.width + 40.0).unwrap_or_default();
                scene.text((plot.left, plot.top - 14.0), Anchor::Start, LABEL, &name);
            }
            match &facet.data {
                PlotData::Lines(series) => self.points(&mut scene, plot, series, &shared, Join::Lines),
                PlotData::Points(series) => self.points(&mut scene, plot, series, &shared, Join::Nothing),
                PlotData::Front(series) => self.points(&mut scene, plot, series, &shared, Join::Front),
                PlotData::Heat { value, cells } => self.heat(&mut scene, plot, value, cells, &shared),
            }
        }
        let Some(&first) = areas.first() else { return scene };
        let bottom = areas.iter().map(|plot| plot.bottom()).fold(0.0, f64::max);
        let right = areas.iter().map(|plot| plot.right()).fold(0.0, f64::max);
        let under = (first.left + (right - first.left) / 2.0, bottom + 46.0);
        let x = fitted(&words(&self.x), SUBTITLE, right - first.left).unwrap_or_default();
        scene.text(under, Anchor::Middle, SUBTITLE, &x);
        let above = first.top - if areas.len() > 1 { 38.0 } else { 20.0 };
        scene.text((MARGIN, above), Anchor::Start, SUBTITLE, &shorten(&words(&self.y), 80));
        let beside = Area { left: first.left, top: first.top, width: right - first.left, height: first.height };
        match self.facets.first().map(|facet| &facet.data) {
            Some(PlotData::Heat { value, .. }) => {
                let beside = Area { height: first.height.max(300.0), ..beside };
                legend(&mut scene, beside, value, shared.range.0, shared.range.1);
            }
            Some(_) => names(&mut scene, beside, &shared.names),
            None => {}
        }
        scene
    }

    /// The height of the picture, and where each facet's plot lies.
    fn layout(&self) -> (f64, Vec<Area>) {
        let is_heat = matches!(self.facets.first().map(|facet| &facet.data), Some(PlotData::Heat { .. }));
        if self.facets.len() < 2 {
            let left = MARGIN + if is_heat { 150.0 } else { 78.0 };
            let plot = Area { left, top: TOP, width: WIDTH - 2.0 * MARGIN - 300.0, height: HEIGHT - TOP - 92.0 };
            return (HEIGHT, vec![plot]);
        }
        let columns = if self.facets.len() <= 4 { 2 } else { 3 };
        let (before, room) = (if is_heat { 100.0 } else { 74.0 }, WIDTH - 2.0 * MARGIN - 190.0);
        let each = room / f64::from(columns);
        let area = |at: usize| {
            let (column, row) = ((at % columns as usize) as f64, (at / columns as usize) as f64);
            let (left, top) = (MARGIN + column * each + before, TOP + 24.0 + row * FACET);
            Area { left, top, width: each - before - 16.0, height: FACET - 66.0 }
        };
        let rows = self.facets.len().div_ceil(columns as usize) as f64;
        (TOP + 24.0 + rows * FACET + 10.0, (0..self.facets.len()).map(area).collect())
    }

    fn points(&self, scene: &mut Scene, plot: Area, series: &[Series], shared: &Shared, join: Join) {
        let all = || shared.points.iter().copied();
        let at_numbers = join != Join::Front;
        let xs = Scale::new(all().map(|point| point.0), &self.x, (plot.left, plot.right()), at_numbers);
        let ys = Scale::new(all().map(|point| point.1), &self.y, (plot.bottom(), plot.top), false);
        let mut free = f64::NEG_INFINITY;
        for (value, text) in &xs.ticks {
            let (x, half) = (xs.at(*value), TICK.width(text) / 2.0);
            scene.line((x, plot.top), (x, plot.bottom()), 1, GRID);
            // A label that would touch the one before it is left out.
            if x - half >= free {
                scene.text((x, plot.bottom() + 18.0), Anchor::Middle, TICK, text);
                free = x + half + 8.0;
            }
        }
        let mut free = f64::INFINITY;
        for (value, text) in &ys.ticks {
            let y = ys.at(*value);
            scene.line((plot.left, y), (plot.right(), y), 1, GRID);
            if y <= free {
                scene.text((plot.left - 10.0, y), Anchor::End, TICK, text);
                free = y - 16.0;
            }
        }
        scene.line((plot.left, plot.bottom()), (plot.right(), plot.bottom()), 1, AXIS);
        scene.line((plot.left, plot.top), (plot.left, plot.bottom()), 1, AXIS);
        if join == Join::Front {
            let own: Vec<(f64, f64)> = series.iter().flat_map(|one| one.points.iter().copied()).collect();
            front(scene, &xs, &ys, &own);
        }
        for one in series {
            let color = shared.color(&one.name);
            let mut points = one.points.clone();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let places: Vec<(f64, f64)> = points.iter().map(|&(x, y)| (xs.at(x), ys.at(y))).collect();
            if join == Join::Lines {
                for pair in places.windows(2) {
                    scene.line(pair[0], pair[1], 2, color);
                }
            }
            for &place in &places {
                scene.circle(place, 5.0, WHITE);
                scene.circle(place, 4.0, color);
            }
        }
        if series.iter().all(|one| one.points.is_empty()) {
            nothing(scene, plot);
        }
    }

    fn heat(
        &self,
        scene: &mut Scene,
        plot: Area,
        value: &str,
        cells: &[(String, String, Option<f64>)],
        shared: &Shared,
    ) {
        let (xs, ys) = (&shared.columns, &shared.rows);
        if xs.is_empty() || xs.len() > MOST_CELLS || ys.len() > MOST_CELLS {
            return nothing(scene, plot);
        }
        let (width, height) = (plot.width / xs.len() as f64, plot.height / ys.len() as f64);
        let (low, high) = shared.range;
        // Numbers stand in all cells or in none: in a smaller face where they are wide.
        let widest = |face: Face| {
            let all = cells.iter().filter_map(|cell| cell.2);
            all.map(|number| face.width(&label(number, value))).fold(0.0, f64::max)
        };
        let faces = [LABEL, Face { em: 11.0, ..LABEL }];
        let face = faces.into_iter().find(|&face| widest(face) + 6.0 <= width).filter(|_| height >= 18.0);
        for (x, y, number) in cells {
            let place = |list: &[String], word: &str| list.iter().position(|known| known == word).unwrap_or(0) as f64;
            // The first value of y stands at the bottom, as on an axis.
            let top = plot.bottom() - (place(ys, y) + 1.0) * height;
            let area = Area { left: plot.left + place(xs, x) * width, top, width, height };
            let Some(number) = number else {
                scene.hatch(area, GREY);
                continue;
            };
            let share = if high > low { (number - low) / (high - low) } else { 0.0 };
            let color = shade(share);
            scene.fill(area, color);
            if let Some(face) = face.map(|face| Face { color: color.ink(), ..face }) {
                let text = label(*number, value);
                scene.text((area.left + width / 2.0, top + height / 2.0), Anchor::Middle, face, &text);
            }
        }
        for (at, x) in xs.iter().enumerate() {
            let text = x.parse().map_or_else(|_| x.clone(), |number| label(number, &self.x));
            if let Some(text) = fitted(&text, TICK, width) {
                scene.text((plot.left + (at as f64 + 0.5) * width, plot.bottom() + 18.0), Anchor::Middle, TICK, &text);
            }
        }
        let room = if self.facets.len() > 1 { 90.0 } else { 140.0 };
        for (at, y) in ys.iter().enumerate() {
            let text = y.parse().map_or_else(|_| y.clone(), |number| label(number, &self.y));
            let text = fitted(&text, TICK, room).unwrap_or_default();
            scene.text((plot.left - 10.0, plot.bottom() - (at as f64 + 0.5) * height), Anchor::End, TICK, &text);
        }
    }
}

/// What is drawn through points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Join {
    Nothing,
    Lines,
    Front,
}

/// What the facets of a picture have in common, so that they can be compared.
struct Shared {
    /// All points.
    points: Vec<(f64, f64)>,
    /// Names of series, in order of first use.
    names: Vec<String>,
    /// Values across and up of heat maps, in order of first use.
    columns: Vec<String>,
    rows: Vec<String>,
    /// The least and the greatest number of heat maps.
    range: (f64, f64),
}

impl Shared {
    fn of(facets: &[Facet]) -> Self {
        let (points, names, columns, rows) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut shared = Self { points, names, columns, rows, range: (f64::INFINITY, f64::NEG_INFINITY) };
        let add = |list: &mut Vec<String>, word: &String| {
            if !list.contains(word) {
                list.push(word.clone());
            }
        };
        for facet in facets {
            match &facet.data {
                PlotData::Lines(series) | PlotData::Points(series) | PlotData::Front(series) => {
                    for one in series {
                        add(&mut shared.names, &one.name);
                        shared.points.extend(&one.points);
                    }
                }
                PlotData::Heat { cells, .. } => {
                    for (x, y, number) in cells {
                        add(&mut shared.columns, x);
                        add(&mut shared.rows, y);
                        let number = number.iter().copied();
                        shared.range.0 = number.clone().fold(shared.range.0, f64::min);
                        shared.range.1 = number.fold(shared.range.1, f64::max);
                    }
                }
            }
        }
        shared
    }

    fn color(&self, name: &str) -> Color {
        let at = self.names.iter().position(|known| known == name);
        at.and_then(|at| SERIES.get(at)).copied().unwrap_or(GREY)
    }
}

/// Names of the series beside a plot.
fn names(scene: &mut Scene, plot: Area, names: &[String]) {
    for (at, name) in names.iter().enumerate().take(MOST_SERIES + 1).filter(|(_, name)| !name.is_empty()) {
        // One more than there are colours has a name of its own.
        let is_rest = at == MOST_SERIES && names.len() > MOST_SERIES + 1;
        let text = if is_rest { format!("{} others", names.len() - MOST_SERIES) } else { name.clone() };
        let y = plot.top + 12.0 + at as f64 * 24.0;
        scene.circle((plot.right() + 26.0, y), 5.0, SERIES.get(at).copied().unwrap_or(GREY));
        let room = WIDTH - MARGIN - plot.right() - 40.0;
        let text = fitted(&text, LABEL, room).unwrap_or_default();
        scene.text((plot.right() + 40.0, y), Anchor::Start, LABEL, &text);
    }
}

fn nothing(scene: &mut Scene, plot: Area) {
    let middle = (plot.left + plot.width / 2.0, plot.top + plot.height / 2.0);
    scene.text(middle, Anchor::Middle, LABEL, "no point has both numbers, or there are too many to show");
}

/// The steps through the points that no other is below and left of.
fn front(scene: &mut Scene, xs: &Scale, ys: &Scale, points: &[(f64, f64)]) {
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut best: Option<(f64, f64)> = None;
    for point in sorted {
        if best.is_none_or(|best| point.1 < best.1) {
            if let Some(last) = best {
                let corner = (xs.at(point.0), ys.at(last.1));
                scene.line((xs.at(last.0), ys.at(last.1)), corner, 2, INK);
                scene.line(corner, (xs.at(point.0), ys.at(point.1)), 2, INK);
            }
            best = Some(point);
        }
    }
}

/// From light to dark.
fn shade(share: f64) -> Color {
    const STOPS: [Color; 5] = [
        Color(0xf7, 0xfb, 0xff),
        Color(0xc6, 0xdb, 0xef),
        Color(0x6b, 0xae, 0xd6),
        Color(0x21, 0x71, 0xb5),
        Color(0x08, 0x30, 0x6b),
    ];
    let at = share.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let (low, part) = (at.floor() as usize, at.fract());
    let (a, b) = (STOPS[low], STOPS[(low + 1).min(STOPS.len() - 1)]);
    let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * part).round() as u8;
    Color(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

fn legend(scene: &mut Scene, plot: Area, value: &str, low: f64, high: f64) {
    if !low.is_finite() {
        return;
    }
    let left = plot.right() + 30.0;
    let (steps, height) = (40, plot.height * 0.6);
    for step in 0..steps {
        let share = f64::from(step) / f64::from(steps - 1);
        let top = plot.top + 40.0 + height * (1.0 - (f64::from(step) + 1.0) / f64::from(steps));
        scene.fill(Area { left, top, width: 20.0, height: height / f64::from(steps) + 0.5 }, shade(share));
    }
    let room = WIDTH - MARGIN - left;
    scene.text(
        (left, plot.top + 14.0),
        Anchor::Start,
        SUBTITLE,
        &fitted(&words(value), SUBTITLE, room).unwrap_or_default(),
    );
    scene.text((left + 28.0, plot.top + 46.0), Anchor::Start, TICK, &label(high, value));
    scene.text((left + 28.0, plot.top + 34.0 + height), Anchor::Start, TICK, &label(low, value));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(plot: &StudyPlot) -> Vec<String> {
        plot.scene()
            .shapes
            .iter()
            .filter_map(|shape| match shape {
                crate::report::chart::scene::Shape::Text { text, .. } => Some(text.clone()),
                _ => None,
            })
            .collect()
    }

    fn plot(data: PlotData) -> StudyPlot {
        let word = str::to_owned;
        StudyPlot {
            title: word("t"),
            about: word("a"),
            x: word("arch.pmu.capacity_bytes"),
            y: word("fused.time_s"),
            facets: vec![Facet { name: String::new(), data }],
        }
    }

    #[test]
    fn axes_speak_in_units() {
        let series = Series { name: "s = 1".into(), points: vec![(262_144.0, 4e-3), (1_048_576.0, 2e-3)] };
        let texts = texts(&plot(PlotData::Lines(vec![series])));
        for wanted in ["256 KiB", "1 MiB", "s = 1", "2 ms"] {
            assert!(texts.iter().any(|text| text == wanted), "{wanted}: {texts:?}");
        }
    }

    #[test]
    fn any_numbers_draw() {
        for points in [vec![], vec![(0.0, 0.0)], vec![(1.0, -3.0), (1.0, 5e300)], vec![(1e-300, 1.0), (1e300, 2.0)]] {
            let series = vec![Series { name: String::new(), points }];
            for data in [PlotData::Lines(series.clone()), PlotData::Front(series)] {
                assert!(plot(data).svg().unwrap().starts_with("<svg "));
            }
        }
        for cells in [vec![], vec![("1".into(), "a".into(), None)], vec![("1".into(), "2".into(), Some(0.0))]] {
            let heat = PlotData::Heat { value: "v".into(), cells };
            assert!(plot(heat).png().unwrap().starts_with(b"\x89PNG"));
        }
    }
    #[test]
    fn facets_share_scales_colours_and_one_legend() {
        let facet = |name: &str, top: f64| {
            let series = |name: &str| Series { name: name.into(), points: vec![(1.0, 1e-3), (2.0, top)] };
            Facet { name: name.into(), data: PlotData::Lines(vec![series("one"), series("two")]) }
        };
        let facets = vec![facet("banks = 4", 8e-3), facet("banks = 8", 2e-3), facet("banks = 16", 4e-3)];
        let picture = StudyPlot { facets, ..plot(PlotData::Lines(Vec::new())) };
        let texts = texts(&picture);
        let count = |wanted: &str| texts.iter().filter(|text| *text == wanted).count();
        assert_eq!((count("one"), count("banks = 8"), count("PMU capacity")), (1, 1, 1), "{texts:?}");
        // The greatest number of all is within every axis.
        assert_eq!(count("5 ms"), 3, "{texts:?}");
        assert!(picture.png().unwrap().starts_with(b"\x89PNG"));
    }
}
