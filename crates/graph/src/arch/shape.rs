//! Grids by their counts: the shape of a grid with so many PCUs, and the pattern of a ratio of PCUs to PMUs. Patterns say of every site whether it is a PCU.
//!
//! A shape keeps the file's tiles and dies (as many across and down) and its pattern, and lies as near as possible to the file's ratio of
//! columns to rows: the file's own count gives the file's own shape.

use super::limits::MAX_SITES;

/// How much wider or taller than the file's a shape may be.
const MOST_STRETCH: f64 = 2.0;
/// Units of a pattern of a ratio, at most: its side.
const MOST_PARTS: u64 = 16;
/// How far a ratio may be from that of whole units, one part in so many.
const RATIO_PRECISION: f64 = 200.0;

/// The shapes that a grid may take.
#[derive(Debug, Clone)]
pub struct Shapes {
    /// PCUs in the first rows and columns of the pattern: at `y * (width + 1) + x` those above and left.
    sums: Vec<u64>,
    width: u64,
    height: u64,
    /// The file's columns and rows.
    columns: u64,
    rows: u64,
    /// Columns and rows come in multiples of these, so that tiles and dies divide them.
    step: (u64, u64),
}

/// Columns and rows.
pub(super) type Shape = (u64, u64);

impl Shapes {
    /// Shapes near `columns` x `rows`, of tiles and dies as many `across` and `down` as divide both sides.
    pub(super) fn new(pattern: &[Vec<bool>], shape: Shape, step: (u64, u64)) -> Self {
        let (columns, rows) = shape;
        let (height, width) = (pattern.len(), pattern.first().map_or(0, Vec::len));
        let mut sums = vec![0; (height + 1) * (width + 1)];
        for (y, line) in pattern.iter().enumerate() {
            let mut in_line = 0;
            for (x, is_pcu) in line.iter().enumerate() {
                in_line += u64::from(*is_pcu);
                sums[(y + 1) * (width + 1) + x + 1] = sums[y * (width + 1) + x + 1] + in_line;
            }
        }
        Self { sums, width: width as u64, height: height as u64, columns, rows, step }
    }

    /// PCUs of a shape.
    fn pcus(&self, shape: Shape) -> u64 {
        let (columns, rows) = shape;
        let sum = |x: u64, y: u64| self.sums[(y * (self.width + 1) + x) as usize];
        let (across, x) = (columns / self.width, columns % self.width);
        let (down, y) = (rows / self.height, rows % self.height);
        let (width, height) = (self.width, self.height);
        across * down * sum(width, height) + down * sum(x, height) + across * sum(width, y) + sum(x, y)
    }

    /// How far a shape is from the file's, as the logarithm of the stretch.
    fn stretch(&self, shape: Shape) -> f64 {
        let (columns, rows) = shape;
        ((columns * self.rows) as f64 / (self.columns * rows) as f64).ln().abs()
    }

    /// For every number of rows that may be, the shapes near `pcus`: the narrowest with at least as many, the next narrower one, and those
    /// as wide as can be without another PCU.
    fn near(&self, pcus: u64) -> Vec<Shape> {
        let file = self.columns as f64 / self.rows as f64;
        let (across, down) = self.step;
        let mut shapes = Vec::new();
        for rows in (1..=MAX_SITES / down).map(|times| times * down) {
            let least = (rows as f64 * file / MOST_STRETCH / across as f64).ceil().max(1.0) as u64;
            let widest = (rows as f64 * file * MOST_STRETCH / across as f64).floor() as u64;
            let most = widest.min(MAX_SITES / rows / across);
            let count = |columns: u64| self.pcus((columns * across, rows));
            let (mut low, mut high) = (least, (most + 1).max(least));
            while low < high {
                let middle = low + (high - low) / 2;
                if count(middle) < pcus { low = middle + 1 } else { high = middle }
            }
            let narrower = low.checked_sub(1).filter(|&columns| columns >= least);
            let equal = (low..=most).take_while(|&columns| count(columns) == pcus);
            let wider = (low..=most).take(1);
            let columns = narrower.into_iter().chain(wider).chain(equal.skip(1));
            shapes.extend(columns.map(|columns| (columns * across, rows)));
            // Taller grids have more PCUs still: what is wider has no fewer, and least widths grow with the rows.
            if least <= most && count(least) > pcus {
                break;
            }
        }
        shapes
    }

    /// The shape with exactly so many PCUs that is nearest to the file's; of two as near the wider.
    ///
    /// # Errors
    /// The nearest numbers of PCUs that a shape has: fewer, and more.
    pub(super) fn with(&self, pcus: u64) -> Result<Shape, [Option<(u64, Shape)>; 2]> {
        let nearer = |a: Option<(u64, Shape)>, b: (u64, Shape)| match a {
            Some(a) if self.stretch(a.1).total_cmp(&self.stretch(b.1)).then(b.1.0.cmp(&a.1.0)).is_le() => Some(a),
            _ => Some(b),
        };
        let (mut exact, mut fewer, mut more) = (None, None, None);
        for shape in self.near(pcus) {
            let found = (self.pcus(shape), shape);
            match found.0.cmp(&pcus) {
                std::cmp::Ordering::Equal => exact = nearer(exact, found),
                std::cmp::Ordering::Less if found.0 > 0 && fewer.is_none_or(|(of, _)| found.0 > of) => {
                    fewer = Some(found);
                }
                std::cmp::Ordering::Greater if more.is_none_or(|(of, _)| found.0 < of) => more = Some(found),
                std::cmp::Ordering::Less if fewer.is_some_and(|(of, _)| found.0 == of) => fewer = nearer(fewer, found),
                std::cmp::Ordering::Greater if more.is_some_and(|(of, _)| found.0 == of) => more = nearer(more, found),
                _ => {}
            }
        }
        exact.map(|(_, shape)| shape).ok_or([fewer, more])
    }

    /// The least number of PCUs that some shape has, from `least` on.
    pub fn at_least(&self, least: u64) -> Option<u64> {
        self.with(least).map_or_else(|[_, more]| more.map(|(pcus, _)| pcus), |_| Some(least))
    }
}

/// A ratio as whole numbers of PCUs and PMUs; `None` if none that fit a pattern come near.
pub(super) fn parts(ratio: f64) -> Option<(u64, u64)> {
    let all = (2..=MOST_PARTS).flat_map(|all| (1..all).map(move |pcus| (pcus, all - pcus)));
    let off = |(pcus, pmus): (u64, u64)| (pcus as f64 / pmus as f64 / ratio).ln().abs();
    // Of equals the first, which is in lowest terms.
    let nearest = all.min_by(|&a, &b| off(a).total_cmp(&off(b)))?;
    (off(nearest) <= 1.0 / RATIO_PRECISION).then_some(nearest)
}

/// The pattern of a ratio: a square in whose every row and column PCUs and PMUs are spread evenly (Bresenham's line), each row shifted
/// against the one above. One to one is a checkerboard.
pub(super) fn pattern(pcus: u64, pmus: u64) -> Vec<Vec<bool>> {
    let all = pcus + pmus;
    let is_coprime =
        |shift: &u64| (2..=*shift).all(|factor| !shift.is_multiple_of(factor) || !all.is_multiple_of(factor));
    let shift = (1..=all / 2).rev().find(is_coprime).unwrap_or(1);
    let unit = |at: u64| {
        let before = |at: u64| (at * pcus).div_ceil(all);
        before(at + 1) > before(at)
    };
    // Rows go back by the shift, so that the second row of a checkerboard begins with a PMU.
    (0..all).map(|y| (0..all).map(|x| unit((x + y * (all - shift)) % all)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn letters(pattern: &[Vec<bool>]) -> Vec<String> {
        let letter = |is_pcu: &bool| if *is_pcu { 'C' } else { 'M' };
        pattern.iter().map(|line| line.iter().map(letter).collect()).collect()
    }

    fn counted(pattern: &[Vec<bool>], shape: Shape) -> u64 {
        let (columns, rows) = shape;
        let at = |x: u64, y: u64| pattern[y as usize % pattern.len()][x as usize % pattern[0].len()];
        let sites = (0..rows).flat_map(|y| (0..columns).map(move |x| (x, y)));
        sites.filter(|&(x, y)| at(x, y)).count() as u64
    }

    #[test]
    fn ratios_become_patterns() {
        assert_eq!(letters(&pattern(1, 1)), ["CM", "MC"]);
        assert_eq!(letters(&pattern(2, 1)), ["CCM", "MCC", "CMC"]);
        assert_eq!(letters(&pattern(1, 3)), ["CMMM", "MCMM", "MMCM", "MMMC"]);
        assert_eq!(
            [parts(1.0), parts(0.25), parts(1.5), parts(0.333)],
            [Some((1, 1)), Some((1, 4)), Some((3, 2)), Some((1, 3))]
        );
        assert_eq!([parts(100.0), parts(1.93)], [None, None]);
    }

    #[test]
    fn a_checkerboard_of_any_even_number_stands_near_its_file() {
        // An SN40L: two tiles across and down.
        let shapes = Shapes::new(&pattern(1, 1), (52, 40), (2, 2));
        assert_eq!(shapes.with(1040), Ok((52, 40)));
        // 40 x 40 is stretched by 1.30, 50 x 32 by 1.20.
        assert_eq!(shapes.with(800), Ok((50, 32)));
        // 801 is odd, and 802 = 2 x 401 x 1 would be 802 x 2.
        assert_eq!(
            shapes.with(801).map_err(|near| near.map(|near| near.map(|(pcus, _)| pcus))),
            Err([Some(800), Some(806)])
        );
        assert_eq!(shapes.at_least(801), Some(806));
    }

    proptest! {
        /// All that is promised of a shape, beside a search of all shapes.
        #[test]
        fn a_shape_has_the_count_and_is_the_nearest(
            (pcus, pmus) in (1u64..4, 1u64..4), (columns, rows) in (1u64..12, 1u64..12), step in (1u64..3, 1u64..3), wanted in 1u64..40
        ) {
            let pattern = pattern(pcus, pmus);
            let file = (columns * step.0, rows * step.1);
            let shapes = Shapes::new(&pattern, file, step);
            // With a quarter of PCUs at least, larger ones have more than is wanted.
            let may_be = |shape: &Shape| shape.0 * shape.1 <= 400 && shapes.stretch(*shape) <= MOST_STRETCH.ln() + 1e-9;
            let sides = |step: u64| (1..64u64).map(move |times| times * step);
            let all: Vec<Shape> = sides(step.1).flat_map(|y| sides(step.0).map(move |x| (x, y))).filter(may_be).collect();
            let of_count: Vec<Shape> = all.iter().copied().filter(|&shape| counted(&pattern, shape) == wanted).collect();
            match shapes.with(wanted) {
                Ok(shape) => {
                    prop_assert_eq!(counted(&pattern, shape), wanted);
                    prop_assert!(of_count.iter().all(|&other| shapes.stretch(shape) <= shapes.stretch(other) + 1e-9));
                }
                Err([fewer, more]) => {
                    prop_assert!(of_count.is_empty(), "{of_count:?}");
                    for (count, shape) in [fewer, more].into_iter().flatten() {
                        prop_assert_eq!(counted(&pattern, shape), count);
                    }
                }
            }
            let own = counted(&pattern, file);
            if own > 0 {
                prop_assert!(shapes.stretch(shapes.with(own).expect("its own count")) < 1e-9);
            }
        }
    }
}
