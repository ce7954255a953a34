//! Executed throughput against operational intensity, both logarithmic, under the chip's roofs.

use crate::report::figures::{Figures, Work};
use crate::report::human::{intensity, percent, shorten, si, si_short};
use crate::report::side::{Side, named};
use rdusim_base::units::Dtype;
use rdusim_graph::arch::Device;
use rdusim_graph::workload::Workload;
use rdusim_outcome::BoundBy;

use super::axis::power_of_ten;
use super::frame::{LABEL, MARGIN, SUBTITLE, TICK, WIDTH, heading};
use super::palette::{AXIS, Color, GRID, INK, MUTED, RUNS, WHITE};
use super::scene::{Anchor, Area, Face, Scene};

const HEIGHT: f64 = 640.0;
const RADIUS: f64 = 8.0;

/// A run in the picture: FLOP per byte, FLOP/s.
struct Point {
    label: [String; 3],
    x: f64,
    y: f64,
    ceiling: f64,
    color: Color,
}

/// A memory tier's roof: its label and its bytes a second.
struct Slope {
    name: String,
    bytes_per_s: f64,
}

/// What a chip can reach: its peak, FLOP/s, and its tiers.
struct Roof {
    /// Before labels, of several chips.
    prefix: String,
    peak: f64,
    slopes: Vec<Slope>,
}

impl Roof {
    fn new(chip: &dyn Device, work: &Work, several: bool) -> Self {
        let slopes = chip
            .tiers()
            .iter()
            .map(|tier| Slope { name: tier.name.clone(), bytes_per_s: tier.bandwidth_bytes_per_s as f64 })
            .filter(|slope| slope.bytes_per_s > 0.0)
            .collect();
        let prefix = if several { format!("{} ", shorten(chip.name(), 20)) } else { String::new() };
        Self { prefix, peak: work.peak_flops(chip), slopes }
    }
}

pub(super) fn scene(workload: &Workload, sides: &[Side<'_>]) -> Scene {
    let mut scene = Scene::new(WIDTH, HEIGHT);
    let top = heading(&mut scene, "Roofline", workload, sides);
    let work = Work::of(workload);
    let roofs: Vec<Roof> = sides.iter().map(|side| Roof::new(side.chip, &work, sides.len() > 1)).collect();
    let runs = named(sides);
    let colors = RUNS.into_iter().chain(std::iter::repeat(RUNS[1]));
    let place_of = sides.iter().zip(&roofs).zip(colors).flat_map(|((side, roof), colors)| {
        side.outcomes.iter().map(move |outcome| (roof, colors[outcome.mode as usize]))
    });
    let points: Vec<Point> = runs
        .iter()
        .zip(place_of)
        .filter_map(|(&(ref name, chip, outcome), (roof, color))| {
            point(roof, name, &Figures::new(chip, &work, outcome), color)
        })
        .collect();

    let plot =
        Area { left: MARGIN + 52.0, top: top + 26.0, width: WIDTH - 2.0 * MARGIN - 60.0, height: HEIGHT - top - 112.0 };
    let axes = Axes::new(plot, &roofs, &points);
    axes.draw(&mut scene);
    let mut taken: Vec<Area> = Vec::new();
    for roof in &roofs {
        draw_roof(&mut scene, &axes, work.dtype, roof, &roofs, &mut taken);
    }
    for point in &points {
        draw_point(&mut scene, &axes, point);
        let (x, y) = axes.at(point.x, point.y);
        let reach = RADIUS + 3.0;
        taken.push(Area { left: x - reach, top: y - reach, width: 2.0 * reach, height: 2.0 * reach });
    }
    for point in &points {
        taken.push(label_point(&mut scene, &axes, &roofs, point, &taken));
    }
    if points.len() < runs.len() {
        let text = "A run without GEMMs or without off-chip traffic has no place here.";
        scene.text((plot.right() - 12.0, plot.bottom() - 18.0), Anchor::End, SUBTITLE, text);
    }
    scene
}

/// The place of a run, if it has one: work and traffic above zero.
fn point(roof: &Roof, name: &str, figures: &Figures, color: Color) -> Option<Point> {
    let (peak, slopes) = (roof.peak, &roof.slopes);
    let (x, y) = (figures.op_intensity, figures.tflops_executed * 1e12);
    if x <= 0.0 || y <= 0.0 {
        return None;
    }
    // The roof that counts is of the tier that bounds most cycles, else of the fastest tier.
    let bounding = figures.bound_by.iter().find_map(|(bound, _)| match bound {
        BoundBy::Memory(name) => slopes.iter().find(|slope| slope.name == *name),
        _ => None,
    });
    let fastest = slopes.iter().max_by(|a, b| a.bytes_per_s.total_cmp(&b.bytes_per_s));
    let (mut ceiling, mut roof) = (peak, "compute peak".to_owned());
    if let Some(slope) = bounding.or(fastest)
        && (slope.bytes_per_s * x < ceiling || ceiling <= 0.0)
    {
        (ceiling, roof) = (slope.bytes_per_s * x, format!("{} roof", shorten(&slope.name, 20)));
    }
    let label = [
        name.to_owned(),
        format!("{} at {}", si(y, "FLOP/s"), intensity(x)),
        format!("{} of the {roof}", percent(y / ceiling)),
    ];
    Some(Point { label, x, y, ceiling, color })
}

/// Two logarithmic axes over whole decades.
struct Axes {
    plot: Area,
    x: (i32, i32),
    y: (i32, i32),
}

impl Axes {
    fn new(plot: Area, roofs: &[Roof], points: &[Point]) -> Self {
        let mut xs: Vec<f64> = points.iter().map(|point| point.x).collect();
        let mut ys: Vec<f64> = points.iter().flat_map(|point| [point.y, point.ceiling]).collect();
        for Roof { peak, slopes, .. } in roofs.iter().filter(|roof| roof.peak > 0.0) {
            ys.push(*peak);
            xs.extend(slopes.iter().map(|slope| peak / slope.bytes_per_s));
        }
        let decades = |values: &[f64], below: f64, above: f64| {
            let least = values.iter().copied().fold(f64::INFINITY, f64::min).max(1e-300);
            let most = values.iter().copied().fold(0.0, f64::max).max(1e-300);
            let (low, high) = ((least / below).log10().floor() as i32, (most * above).log10().ceil() as i32);
            if values.is_empty() { (0, 3) } else { (low, high.max(low + 2)) }
        };
        Self { plot, x: decades(&xs, 4.0, 4.0), y: decades(&ys, 4.0, 2.0) }
    }

    /// The pixel of an intensity (FLOP/B) and a throughput (FLOP/s).
    fn at(&self, intensity: f64, flops: f64) -> (f64, f64) {
        let part = |value: f64, (low, high): (i32, i32)| (value.log10() - f64::from(low)) / f64::from(high - low);
        let x = self.plot.left + part(intensity, self.x) * self.plot.width;
        (x, self.plot.bottom() - part(flops, self.y) * self.plot.height)
    }

    fn lowest(&self) -> (f64, f64) {
        (10_f64.powi(self.x.0), 10_f64.powi(self.y.0))
    }

    fn highest(&self) -> (f64, f64) {
        (10_f64.powi(self.x.1), 10_f64.powi(self.y.1))
    }

    fn draw(&self, scene: &mut Scene) {
        let plot = self.plot;
        // At most nine labels an axis, however many decades.
        let every = |(low, high): (i32, i32)| (high - low).unsigned_abs().div_ceil(8).max(1) as usize;
        for decade in (self.x.0..=self.x.1).step_by(every(self.x)) {
            let (x, _) = self.at(10_f64.powi(decade), 1.0);
            scene.line((x, plot.top), (x, plot.bottom()), 1, GRID);
            scene.text((x, plot.bottom() + 18.0), Anchor::Middle, TICK, &power_of_ten(decade));
        }
        self.minor_ticks(scene);
        for decade in (self.y.0..=self.y.1).step_by(every(self.y)) {
            let (_, y) = self.at(1.0, 10_f64.powi(decade));
            scene.line((plot.left, y), (plot.right(), y), 1, GRID);
            scene.text((plot.left - 10.0, y), Anchor::End, TICK, &power_of_ten(decade - 12));
        }
        scene.line((plot.left, plot.bottom()), (plot.right(), plot.bottom()), 1, AXIS);
        scene.line((plot.left, plot.top), (plot.left, plot.bottom()), 1, AXIS);
        scene.text((MARGIN, plot.top - 18.0), Anchor::Start, SUBTITLE, "throughput, executed TFLOP/s");
        let below = (plot.left + plot.width / 2.0, plot.bottom() + 44.0);
        scene.text(below, Anchor::Middle, SUBTITLE, "operational intensity, executed FLOP per off-chip byte");
    }

    /// Marks at 2, 3, ... 9 of each decade, where decades are wide enough for them.
    fn minor_ticks(&self, scene: &mut Scene) {
        let between = |(low, high): (i32, i32)| {
            let decades = if high - low <= 8 { low..high } else { low..low };
            decades.flat_map(|decade| (2..10).map(move |digit| f64::from(digit) * 10_f64.powi(decade)))
        };
        for (x, _) in between(self.x).map(|x| self.at(x, 1.0)) {
            scene.line((x, self.plot.bottom()), (x, self.plot.bottom() - 5.0), 1, AXIS);
        }
        for (_, y) in between(self.y).map(|y| self.at(1.0, y)) {
            scene.line((self.plot.left, y), (self.plot.left + 5.0, y), 1, AXIS);
        }
    }

    /// How much of the roofs an area hides.
    fn hidden_roof(&self, roofs: &[Roof], area: Area) -> usize {
        let steps = 200;
        let xs = (0..=steps).map(|step| {
            10_f64.powf(f64::from(self.x.0) + f64::from(self.x.1 - self.x.0) * f64::from(step) / f64::from(steps))
        });
        let of_roof = |x: f64| {
            roofs.iter().flat_map(move |roof| {
                let limit = if roof.peak > 0.0 { roof.peak } else { f64::INFINITY };
                roof.slopes.iter().map(move |slope| (x, (slope.bytes_per_s * x).min(limit)))
            })
        };
        xs.flat_map(of_roof).map(|(x, y)| self.at(x, y)).filter(|&(x, y)| area.contains(x, y)).count()
    }
}

/// Draws the peak and each tier's slope; `taken` is where labels are.
fn draw_roof(scene: &mut Scene, axes: &Axes, dtype: Dtype, roof: &Roof, roofs: &[Roof], taken: &mut Vec<Area>) {
    let Roof { prefix, peak, slopes } = roof;
    let peak = *peak;
    let face = Face { color: MUTED, ..LABEL };
    let (low_x, low_y) = axes.lowest();
    let (high_x, high_y) = axes.highest();
    let top = if peak > 0.0 { peak } else { high_y };
    for slope in slopes {
        let start = low_x.max(low_y / slope.bytes_per_s);
        let end = high_x.min(top / slope.bytes_per_s);
        if start >= end {
            continue;
        }
        let (from, to) = (axes.at(start, start * slope.bytes_per_s), axes.at(end, end * slope.bytes_per_s));
        scene.line(from, to, 2, INK);
        let text = format!("{prefix}{} {}", shorten(&slope.name, 20), si_short(slope.bytes_per_s, "B/s"));
        // To the right of the line, where it is low; higher up if another tier's label is there.
        let spots = (1..8).map(|step| {
            let part = 0.1 * f64::from(step);
            (from.0 + (to.0 - from.0) * part + 10.0, from.1 + (to.1 - from.1) * part + 8.0)
        });
        let boxed = |at| Scene::text_area(at, Anchor::Start, face, &text);
        let hides = |at| {
            let area = boxed(at);
            !axes.plot.encloses(area)
                || taken.iter().any(|other: &Area| other.overlaps(area))
                || axes.hidden_roof(roofs, area) > 0
        };
        if let Some(spot) = free_spot(spots, hides) {
            scene.text(spot, Anchor::Start, face, &text);
            taken.push(boxed(spot));
        }
    }
    if peak > 0.0 {
        let fastest = slopes.iter().map(|slope| slope.bytes_per_s).fold(0.0, f64::max);
        let start = if fastest > 0.0 { (peak / fastest).clamp(low_x, high_x) } else { low_x };
        let (from, to) = (axes.at(start, peak), axes.at(high_x, peak));
        scene.line(from, to, 2, INK);
        let text = format!("{prefix}compute peak {}, {}", si_short(peak, "FLOP/s"), dtype);
        // Above the line; below it where another chip's peak is just above.
        let above = (to.0 - 6.0, to.1 - 14.0);
        let hides = taken.iter().any(|other| other.overlaps(Scene::text_area(above, Anchor::End, face, &text)));
        let spot = if hides { (above.0, to.1 + 14.0) } else { above };
        scene.text(spot, Anchor::End, face, &text);
        taken.push(Scene::text_area(spot, Anchor::End, face, &text));
    }
}

/// The first of the spots where a label hides nothing, else the last.
fn free_spot(spots: impl Iterator<Item = (f64, f64)>, hides: impl Fn((f64, f64)) -> bool) -> Option<(f64, f64)> {
    let mut last = None;
    for spot in spots {
        last = Some(spot);
        if !hides(spot) {
            break;
        }
    }
    last
}

fn draw_point(scene: &mut Scene, axes: &Axes, point: &Point) {
    let (center, roof) = (axes.at(point.x, point.y), axes.at(point.x, point.ceiling));
    if center.1 - roof.1 > RADIUS {
        scene.dashes((center.0, center.1 - RADIUS), roof, 3.0, point.color);
    }
    scene.circle(center, RADIUS + 2.0, WHITE);
    scene.circle(center, RADIUS, point.color);
}

/// Writes a point's three lines beside it where they hide least; returns their box.
fn label_point(scene: &mut Scene, axes: &Axes, roofs: &[Roof], point: &Point, taken: &[Area]) -> Area {
    let name = Face { bold: true, color: point.color, ..LABEL };
    let faces = [name, LABEL, LABEL];
    let line = 19.0;
    let width = point.label.iter().zip(faces).map(|(text, face)| face.width(text)).fold(0.0, f64::max) + 8.0;
    let height = line * faces.len() as f64 + 2.0;
    let (x, y) = axes.at(point.x, point.y);

    let mut spots = Vec::new();
    for distance in [16.0, 40.0, 80.0, 130.0, 190.0, 260.0, 340.0] {
        let (right, left) = (x + distance, x - distance - width);
        let (below, above, level) = (y + distance * 0.5, y - distance * 0.5 - height, y - height / 2.0);
        spots.extend([(right, level), (right, below), (left, level), (left, above), (left, below), (right, above)]);
        spots.extend([(x - width / 2.0, y + distance), (x - width / 2.0, y - distance - height)]);
    }
    let cost = |&(left, top): &(f64, f64)| {
        let area = Area { left, top, width, height };
        let outside = if axes.plot.encloses(area) { 0 } else { 1000 };
        // A leader to a far label must not run through the others; the point itself is excused.
        let to = (x.clamp(left, left + width), y.clamp(top, top + height));
        let leader = (4..20).map(|step| f64::from(step) / 20.0).map(|t| (x + (to.0 - x) * t, y + (to.1 - y) * t));
        let apart = |at: &(f64, f64)| (at.0 - x).hypot(at.1 - y) > 2.0 * RADIUS;
        let crossed = leader.filter(apart).filter(|&(x, y)| taken.iter().any(|other| other.contains(x, y))).count();
        let hidden = 100 * taken.iter().filter(|other| other.overlaps(area)).count();
        outside + hidden + 50 * crossed + axes.hidden_roof(roofs, area)
    };
    // `min_by_key` keeps the first of equals: the nearest.
    let (left, top) = spots.into_iter().min_by_key(cost).unwrap_or((x, y));
    let area = Area { left, top, width, height };
    let nearest = (x.clamp(area.left, area.right()), y.clamp(area.top, area.bottom()));
    if (nearest.0 - x).hypot(nearest.1 - y) > 34.0 {
        scene.line((x, y), nearest, 1, point.color);
        scene.circle((x, y), RADIUS, point.color);
    }
    if cost(&(left, top)) > 0 {
        scene.fill(area, WHITE);
    }
    for (row, (text, face)) in point.label.iter().zip(faces).enumerate() {
        scene.text((left + 4.0, top + 11.0 + row as f64 * line), Anchor::Start, face, text);
    }
    area
}
