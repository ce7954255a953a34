//! The plan search where nobody measures what it finds: a grid of few cuts and row tile sizes, then a finer one about
//! the best. Finds what the full search finds in most cases, for a tenth of its work.

use std::collections::{BTreeMap, BTreeSet};

use crate::compile::mapping::bases::StageBases;
use crate::program::{LoopOrder, TiledAxis};

use crate::compile::params::PARAMS;

use super::space::{Allotment, BestChoices, Incumbent, KAxis, SectionSearch, TilingChoice};

/// How fine the grid is.
#[derive(Debug, Clone, Copy)]
struct Grain {
    /// Of the cuts, one in so many is evaluated first.
    cuts: usize,
    /// The same for row tile sizes.
    row_tiles: usize,
    /// So many of the best are refined about.
    best: usize,
}

impl Grain {
    /// Of cuts, row tile sizes and best nests: one in so many, and so many.
    fn of([cuts, row_tiles, best]: [usize; 3]) -> Self {
        Self { cuts, row_tiles, best }
    }
}

/// A cut and a row tile size, by their places in the lists.
type GridPoint = (usize, usize);

/// The search of one section.
struct LowEffort<'a> {
    search: &'a SectionSearch<'a>,
    cuts: &'a [Option<TiledAxis>],
    grain: Grain,
    /// Bases and row tile sizes of the cuts evaluated.
    bases: BTreeMap<usize, (StageBases<'a>, Vec<u64>)>,
    /// Places evaluated.
    seen: BTreeSet<GridPoint>,
    /// The best of each of them.
    scores: BTreeSet<(u64, GridPoint)>,
    /// Of a cut and a loop order, the shortest row tile size of which no mapping fits.
    too_long: BTreeMap<(usize, LoopOrder), usize>,
    kept: BestChoices,
    found: Incumbent,
}

/// The best choices of some cuts, as far as low effort shows them.
pub(super) fn best_of(search: &SectionSearch<'_>, cuts: &[Option<TiledAxis>]) -> BestChoices {
    let mut search = LowEffort {
        search,
        cuts,
        grain: Grain::of(PARAMS.nests.low_effort_dense),
        bases: BTreeMap::new(),
        seen: BTreeSet::new(),
        scores: BTreeSet::new(),
        too_long: BTreeMap::new(),
        kept: BestChoices::default(),
        found: Incumbent::default(),
    };
    if !cuts.is_empty() && search.of_cut(0).0.has_masks() {
        search.grain = Grain::of(PARAMS.nests.low_effort_sparse);
    }
    for cut in (0..cuts.len()).step_by(search.grain.cuts) {
        let row_tiles = search.of_cut(cut).1.len();
        // From the largest down: the largest fills all lanes.
        for row_tile in (0..row_tiles).rev().step_by(search.grain.row_tiles) {
            search.at((cut, row_tile), &[Allotment::ALL], KAxis::Whole);
        }
    }
    for _ in 0..PARAMS.nests.low_effort_rounds {
        let seen = search.seen.len();
        for place in search.best() {
            search.about(place);
        }
        if search.seen.len() == seen {
            break;
        }
    }
    for k in [KAxis::Whole, KAxis::Split] {
        for place in search.best() {
            search.seen.remove(&place);
            search.at(place, &[Allotment::ALL, Allotment::EAGER], k);
        }
    }
    search.kept.least_banks = search.found.least_banks;
    search.kept
}

impl<'a> LowEffort<'a> {
    fn of_cut(&mut self, cut: usize) -> &(StageBases<'a>, Vec<u64>) {
        let (search, tiled_axis) = (self.search, self.cuts[cut]);
        self.bases.entry(cut).or_insert_with(|| {
            let bases = search.bases(tiled_axis);
            let row_tiles = search.row_tile_sizes(&bases);
            (bases, row_tiles)
        })
    }

    /// The best places, best first.
    fn best(&self) -> Vec<GridPoint> {
        self.scores.iter().take(self.grain.best).map(|&(_, place)| place).collect()
    }

    /// Evaluates a place, if it has not been.
    fn at(&mut self, place: GridPoint, allotments: &[Allotment], k: KAxis) {
        if !self.seen.insert(place) {
            return;
        }
        self.of_cut(place.0);
        let Some((bases, row_tiles)) = self.bases.get(&place.0) else { return };
        let Some(&tile_rows) = row_tiles.get(place.1) else { return };
        let (kept, mut best) = (&mut self.kept, u64::MAX);
        for order in [LoopOrder::ColumnTileOuter, LoopOrder::RowTileOuter] {
            let never_fits = self.too_long.entry((place.0, order)).or_insert(usize::MAX);
            if place.1 >= *never_fits {
                continue;
            }
            let tiling = TilingChoice { tile_rows, order, k };
            let may_fit = self.search.choices(bases, tiling, allotments, &mut self.found, |choice| {
                best = best.min(choice.estimate.score);
                kept.offer(&choice);
            });
            if !may_fit {
                *never_fits = place.1;
            }
        }
        if best < u64::MAX {
            self.scores.insert((best, place));
        }
    }

    /// Evaluates what lies between a place and the next that were evaluated first.
    fn about(&mut self, (cut, row_tile): GridPoint) {
        let Grain { cuts: cuts_apart, row_tiles: row_tiles_apart, .. } = self.grain;
        let cuts = cut.saturating_sub(cuts_apart - 1)..(cut + cuts_apart).min(self.cuts.len());
        let row_tiles = row_tile.saturating_sub(row_tiles_apart - 1)..row_tile + row_tiles_apart;
        for row_tile in row_tiles {
            self.at((cut, row_tile), &[Allotment::ALL], KAxis::Whole);
        }
        for cut in cuts {
            self.at((cut, row_tile), &[Allotment::ALL], KAxis::Whole);
        }
    }
}
