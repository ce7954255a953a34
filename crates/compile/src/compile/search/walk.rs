//! The walk over the loop nests of a section: the nests that are worth an allocation, found by dividing rectangles.
//!
//! The nests of a section are points of a few grids: of each tiled axis and loop order, breakpoints of row tile sizes by
//! breakpoints of column tile widths, and by those of panels where there are any. A rectangle of a grid is priced at its centre by
//! the best estimate of any allocation. The
//! cheapest rectangles of every size are cut in three along their longest side, and what is cut off is priced in turn
//! (DIRECT, Jones, Perttunen and Stuckman 1993: the rectangles on the lower hull of price over size mix the search about the best
//! with the search where little is known). A rectangle that by its floor ([`SectionBound`]) cannot come near the best is dropped.
//!
//! Invariant: rectangles of a grid are disjoint, and what they leave of it is single nests that were priced, or was dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use rayon::prelude::*;

use crate::compile::params::{PARAMS, WalkLimits};
use rdusim_cost::bound::nests::{ANY, Columns, NestBox, Range as Counts};
use rdusim_cost::bound::section::SectionBound;
use rdusim_program::{LoopOrder, PanelAxes, Panels, TiledAxis};

use super::breakpoints::{column_tile_widths, row_tile_sizes};
use super::space::{Allotment, BestChoices, Choice, Incumbent, KAxis, SectionSearch, TilingChoice};

/// Nests that differ in their sizes alone.
#[derive(Debug)]
struct Grid {
    /// The tiled axis; `None` where none is.
    axis: Option<usize>,
    order: LoopOrder,
    /// Widths of column tiles, falling.
    widths: Vec<u64>,
    /// The axis that is cut into panels, and widths of panels, falling.
    panels: Option<(usize, Vec<u64>)>,
}

impl Grid {
    /// Widths of panels to choose from; one without.
    fn panel_widths(&self) -> usize {
        self.panels.as_ref().map_or(1, |(_, widths)| widths.len())
    }
}

/// A rectangle of a grid, by places in the lists of row tile sizes and widths.
#[derive(Debug, Clone)]
struct Rectangle {
    grid: usize,
    rows: Range<usize>,
    widths: Range<usize>,
    panels: Range<usize>,
    price: Price,
    /// Cycles that no nest of it beats, launch included.
    floor: u64,
}

/// What a nest is expected to cost. Nests that fit are before others; of those, nests that need fewer banks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Price {
    /// The least score of its allocations.
    Score(u64),
    /// No allocation of its PCUs is fast enough to be costed beside the best.
    Slow,
    /// No allocation fits: the fewest banks that one needs.
    Banks(u64),
}

/// A nest of the walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NestPoint {
    grid: usize,
    width: usize,
    panel: usize,
    rows: usize,
}

impl Rectangle {
    fn centre(&self) -> NestPoint {
        let middle = |range: &Range<usize>| range.start + range.len() / 2;
        NestPoint {
            grid: self.grid,
            width: middle(&self.widths),
            panel: middle(&self.panels),
            rows: middle(&self.rows),
        }
    }

    fn is_single(&self) -> bool {
        self.rows.len() <= 1 && self.widths.len() <= 1 && self.panels.len() <= 1
    }

    /// Twice the logarithm of the number of its nests: rectangles of about a size are compared by price alone.
    fn size(&self) -> u32 {
        let nests = (self.rows.len() * self.widths.len() * self.panels.len()) as u64;
        (nests * nests).ilog2()
    }

    /// What is left and right of the middle third along the longest side, and the middle, which keeps the centre.
    fn cut_in_three(&self) -> (Self, Vec<Self>) {
        let is_along_panels = self.panels.len() > self.rows.len().max(self.widths.len());
        let is_along_rows = self.rows.len() >= self.widths.len();
        let side = match (is_along_panels, is_along_rows) {
            (true, _) => &self.panels,
            (false, true) => &self.rows,
            (false, false) => &self.widths,
        };
        let centre = side.start + side.len() / 2;
        // The part about the centre has the centre in its own middle.
        let half = (side.len() / 3) / 2;
        let middle = centre - half..(centre + half + 1).min(side.end);
        let part = |range: Range<usize>| {
            let mut part = self.clone();
            *(match (is_along_panels, is_along_rows) {
                (true, _) => &mut part.panels,
                (false, true) => &mut part.rows,
                (false, false) => &mut part.widths,
            }) = range;
            part
        };
        let others = [side.start..middle.start, middle.end..side.end];
        (part(middle), others.into_iter().filter(|range| !range.is_empty()).map(part).collect())
    }
}

/// What the nests of a section have shown.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// The best choices of each nest.
    pub(super) kept: BTreeMap<NestPoint, BestChoices>,
    /// The fewest banks that any needs, and what others have to beat.
    found: Incumbent,
}

impl Walked {
    /// The fewest banks that any nest needs; `u64::MAX` where none has PCUs enough.
    pub(super) fn least_banks(&self) -> u64 {
        self.found.least_banks
    }
}

/// The walk over the nests of one section.
struct Walk<'a> {
    search: &'a SectionSearch<'a>,
    bound: Option<SectionBound<'a>>,
    grids: Vec<Grid>,
    /// Row tile sizes, rising.
    row_tiles: Vec<u64>,
    /// Nests that were priced.
    priced: BTreeMap<NestPoint, Known>,
    /// Cuts whose splits of GEMMs over PCUs were worked out.
    cuts: BTreeSet<Option<TiledAxis>>,
    /// What that took, in nests of dense weights.
    spent: usize,
    walked: Walked,
    /// The least score so far.
    best: u64,
}

/// What a thread finds of nests of one cut.
type OfCut = Vec<(NestPoint, Price, Vec<Choice>, Incumbent)>;

/// What is known of a nest.
#[derive(Debug, Clone, Copy)]
struct Known {
    price: Price,
    /// Cycles of its slowest stage with K whole, at least.
    slowest_cycles: u64,
}

/// Walks over the nests of a section; over those with panels where the others read something again.
pub(super) fn walk(search: &SectionSearch<'_>, limits: WalkLimits) -> Walked {
    let mut walk = Walk::new(search);
    let plain = walk.whole_grids(0);
    walk.go(plain, limits);
    if walk.reads_again() {
        let first = walk.grids.len();
        walk.add_panels();
        walk.spent = 0;
        let in_panels = walk.whole_grids(first);
        walk.go(in_panels, limits);
    }
    walk.finish(limits.finished);
    walk.walked
}

/// Of every size of rectangles the one of least price, as far as it lies on the lower convex hull of price over size; places in
/// the list, rising.
fn cheapest_of_sizes(rectangles: &[Rectangle]) -> Vec<usize> {
    let mut least: BTreeMap<u32, usize> = BTreeMap::new();
    for (at, rectangle) in rectangles.iter().enumerate().filter(|(_, rectangle)| !rectangle.is_single()) {
        let of_size = least.entry(rectangle.size()).or_insert(at);
        let key = |at: usize| {
            let of: &Rectangle = &rectangles[at];
            (of.price, of.grid, of.rows.start, of.widths.start, of.panels.start)
        };
        if key(at) < key(*of_size) {
            *of_size = at;
        }
    }
    // From small to large: a size counts if it is cheaper than all larger ones, by the hull.
    let points: Vec<(f64, Price, usize)> =
        least.into_iter().map(|(size, at)| (f64::from(size), rectangles[at].price, at)).collect();
    let slope = |(from, to): (&(f64, Price, usize), &(f64, Price, usize))| match (from.1, to.1) {
        (Price::Score(a), Price::Score(b)) | (Price::Banks(a), Price::Banks(b)) => {
            (b as f64 - a as f64) / (to.0 - from.0)
        }
        (a, b) if a < b => f64::INFINITY,
        _ => 0.0,
    };
    let mut hull: Vec<(f64, Price, usize)> = Vec::new();
    for point in points {
        while hull.last().is_some_and(|last| last.1 >= point.1) {
            hull.pop();
        }
        while hull.len() >= 2 {
            let (before, last) = (&hull[hull.len() - 2], &hull[hull.len() - 1]);
            if slope((before, last)) < slope((last, &point)) {
                break;
            }
            hull.pop();
        }
        hull.push(point);
    }
    let mut chosen: Vec<usize> = hull.into_iter().map(|(_, _, at)| at).collect();
    chosen.sort_unstable();
    chosen
}

impl<'a> Walk<'a> {
    fn new(search: &'a SectionSearch<'a>) -> Self {
        let SectionSearch { chip, graph, tiers, cache } = *search;
        let grains = search.bases(None).row_grains();
        let mut grids = vec![Grid { axis: None, order: LoopOrder::ColumnTileOuter, widths: vec![0], panels: None }];
        for axis in (0..graph.axes.len()).filter(|&axis| graph.may_cut(axis)) {
            let widths = column_tile_widths(chip, graph, axis);
            if !widths.is_empty() {
                for order in [LoopOrder::ColumnTileOuter, LoopOrder::RowTileOuter] {
                    let cut = TiledAxis::new(axis, graph.axes[axis].extent, widths[0]);
                    if search.is_possible(Some(cut), order) {
                        grids.push(Grid { axis: Some(axis), order, widths: widths.clone(), panels: None });
                    }
                }
            }
        }
        Self {
            search,
            bound: cache.with_masks(|masks| SectionBound::new(chip, graph, tiers, masks)),
            grids,
            row_tiles: row_tile_sizes(graph.rows, graph.sequences(), &grains),
            priced: BTreeMap::new(),
            cuts: BTreeSet::new(),
            spent: 0,
            walked: Walked::default(),
            best: u64::MAX,
        }
    }

    /// Divides rectangles until the limits are reached, or nothing is left to divide.
    fn go(&mut self, mut rectangles: Vec<Rectangle>, limits: WalkLimits) {
        while self.spent < if self.best < u64::MAX { limits.priced } else { limits.priced_until_one_fits } {
            let chosen = cheapest_of_sizes(&rectangles);
            if chosen.is_empty() {
                break;
            }
            let mut cut = Vec::new();
            // From behind, so that places before stay what they are.
            for &at in chosen.iter().rev() {
                let (middle, others) = rectangles.swap_remove(at).cut_in_three();
                rectangles.push(middle);
                cut.extend(others);
            }
            for rectangle in &mut cut {
                rectangle.floor = self.floor(rectangle);
            }
            cut.retain(|rectangle| self.may_win(rectangle));
            self.price_centres(&mut cut);
            rectangles.extend(cut);
            rectangles.retain(|rectangle| !rectangle.is_single() && self.may_win(rectangle));
        }
    }

    /// Whether no nest was found that fits, or the best reads something more than once.
    fn reads_again(&self) -> bool {
        let choices = self.walked.kept.values().flat_map(|kept| kept.best.values().flatten());
        let best = choices.min_by_key(|choice| choice.estimate.score);
        best.is_none_or(|best| best.estimate.reads_again)
    }

    /// Adds the nests whose product is cut into panels of columns, if the section may have them.
    fn add_panels(&mut self) {
        let SectionSearch { chip, graph, .. } = *self.search;
        let Some(PanelAxes { depth, columns }) = graph.panel_axes() else { return };
        let (widths, panels) = (column_tile_widths(chip, graph, depth), column_tile_widths(chip, graph, columns));
        if !widths.is_empty() && !panels.is_empty() {
            let panels = Some((columns, panels));
            self.grids.push(Grid { axis: Some(depth), order: LoopOrder::ColumnTileOuter, widths, panels });
        }
    }

    /// A rectangle for each grid from the `first` on, priced.
    fn whole_grids(&mut self, first: usize) -> Vec<Rectangle> {
        let whole = |(grid, of): (usize, &Grid)| Rectangle {
            grid,
            rows: 0..self.row_tiles.len(),
            widths: 0..of.widths.len(),
            panels: 0..of.panel_widths(),
            price: Price::Slow,
            floor: 0,
        };
        let mut list: Vec<Rectangle> = self.grids.iter().enumerate().skip(first).map(whole).collect();
        self.price_centres(&mut list);
        list
    }

    fn tiled_axis(&self, point: NestPoint) -> Option<TiledAxis> {
        let Grid { axis, widths, panels, .. } = &self.grids[point.grid];
        let extent = |axis: usize| self.search.graph.axes[axis].extent;
        let panels = panels.as_ref().map(|(axis, widths)| Panels {
            axis: *axis,
            extent: extent(*axis),
            width: widths[point.panel],
        });
        axis.map(|axis| TiledAxis { panels, ..TiledAxis::new(axis, extent(axis), widths[point.width]) })
    }

    /// Whether a rectangle may hold a nest that comes near the best.
    fn may_win(&self, rectangle: &Rectangle) -> bool {
        rectangle.floor < (self.best as f64 * PARAMS.nests.near_best) as u64
    }

    /// Cycles that no nest of a rectangle beats, launch included; `u64::MAX` where none can be.
    fn floor(&self, rectangle: &Rectangle) -> u64 {
        let Some(bound) = &self.bound else { return 0 };
        let Grid { axis, order, widths, panels } = &self.grids[rectangle.grid];
        let counts = |extent: u64, smallest: u64, largest: u64| Counts {
            least: extent.div_ceil(largest),
            most: extent.div_ceil(smallest),
        };
        let (first, last) = (self.row_tiles[rectangle.rows.start], self.row_tiles[rectangle.rows.end - 1]);
        let sequences = self.search.graph.sequences().max(1);
        let of_sequence = counts(self.search.graph.rows / sequences, first, last);
        let row_tiles = Counts { least: of_sequence.least * sequences, most: of_sequence.most * sequences };
        let columns = axis.map_or(Columns::Whole, |axis| {
            let extent = self.search.graph.axes[axis].extent;
            let tiles = counts(extent, widths[rectangle.widths.end - 1], widths[rectangle.widths.start]);
            if let Some((columns, widths)) = panels {
                let extent = self.search.graph.axes[*columns].extent;
                let (least, most) = (widths[rectangle.panels.end - 1], widths[rectangle.panels.start]);
                let axes = PanelAxes { depth: axis, columns: *columns };
                return Columns::Panels { axes, panels: counts(extent, least, most), tiles };
            }
            match order {
                LoopOrder::ColumnTileOuter => Columns::ColumnTileOuter(axis, tiles),
                LoopOrder::RowTileOuter => Columns::RowTileOuter(axis, tiles),
            }
        });
        let floor = bound.floor(&NestBox { columns, row_tiles, row_blocks: ANY });
        floor.map_or(u64::MAX, |floor| floor.alone.saturating_add(self.search.chip.launch_cycles()))
    }

    /// Prices the centres of some rectangles, nests of one cut after each other, cuts side by side.
    fn price_centres(&mut self, rectangles: &mut [Rectangle]) {
        let centres: Vec<NestPoint> = rectangles.iter().map(Rectangle::centre).collect();
        self.price(&centres, &[Allotment::ALL], KAxis::Whole);
        for (rectangle, centre) in rectangles.iter_mut().zip(centres) {
            rectangle.price = self.priced.get(&centre).map_or(Price::Slow, |known| known.price);
        }
    }

    /// Estimates the best allocations of some nests, and keeps them.
    fn price(&mut self, points: &[NestPoint], allotments: &[Allotment], k: KAxis) {
        let mut of_cuts: BTreeMap<Option<TiledAxis>, Vec<NestPoint>> = BTreeMap::new();
        for &point in points {
            of_cuts.entry(self.tiled_axis(point)).or_default().push(point);
        }
        let has_masks = self.search.graph.stages.ids().any(|s| self.search.graph.mask(s).is_some());
        let each = if has_masks { PARAMS.nests.nests_per_masked_cut } else { 0 };
        self.spent += points.len();
        for &cut in of_cuts.keys() {
            self.spent += if self.cuts.insert(cut) { each } else { 0 };
        }
        let of_cuts: Vec<Vec<NestPoint>> = of_cuts.into_values().collect();
        let found = self.walked.found;
        let this = &*self;
        let of_cut = |points: &Vec<NestPoint>| this.of_cut(points, allotments, k, found);
        let priced: Vec<OfCut> = of_cuts.par_iter().map(of_cut).collect();
        for (point, price, choices, found) in priced.into_iter().flatten() {
            let kept = self.walked.kept.entry(point).or_default();
            for choice in &choices {
                kept.offer(choice);
            }
            self.walked.found = self.walked.found.least(&found);
            if let Price::Score(score) = price {
                self.best = self.best.min(score);
            }
            let new = Known { price, slowest_cycles: found.slowest_cycles };
            let known = self.priced.entry(point).or_insert(new);
            known.price = known.price.min(price);
            known.slowest_cycles = known.slowest_cycles.min(found.slowest_cycles);
        }
    }

    fn of_cut(&self, points: &[NestPoint], allotments: &[Allotment], k: KAxis, mut found: Incumbent) -> OfCut {
        let Some(&first) = points.first() else { return Vec::new() };
        let bases = self.search.bases(self.tiled_axis(first));
        let of_point = |&point: &NestPoint| {
            let tiling = TilingChoice { tile_rows: self.row_tiles[point.rows], order: self.grids[point.grid].order, k };
            let slowest_cycles = self.priced.get(&point).map_or(u64::MAX, |known| known.slowest_cycles);
            let mut seen = Incumbent { least_banks: u64::MAX, slowest_cycles, ..found };
            let mut choices: Vec<Choice> = Vec::new();
            self.search.choices(&bases, tiling, allotments, &mut seen, |choice| choices.push(choice));
            found = found.least(&seen);
            let least = choices.iter().map(|choice| choice.estimate.score).min();
            let price = match least {
                Some(score) => Price::Score(score),
                None if seen.least_banks < u64::MAX => Price::Banks(seen.least_banks),
                None => Price::Slow,
            };
            (point, price, choices, seen)
        };
        points.iter().map(of_point).collect()
    }

    /// Gives the `most` best nests, as far as they came near the best, their other allocations: stages as fast as PCUs allow, and K
    /// split over PCUs, which has to pay against the same nest without.
    fn finish(&mut self, most: usize) {
        let mut order: Vec<(Price, NestPoint)> =
            self.priced.iter().map(|(&point, known)| (known.price, point)).collect();
        order.sort_unstable();
        order.truncate(most);
        let longest = (self.best as f64 * PARAMS.nests.near_best) as u64;
        let is_near = |price: Price| matches!(price, Price::Score(score) if score <= longest);
        let near: Vec<NestPoint> = order.iter().filter(|(price, _)| is_near(*price)).map(|&(_, point)| point).collect();
        self.price(&near, &[Allotment::EAGER], KAxis::Whole);
        let all: Vec<NestPoint> = order.into_iter().map(|(_, point)| point).collect();
        self.price(&all, &[Allotment::ALL, Allotment::EAGER], KAxis::Split);
    }
}
