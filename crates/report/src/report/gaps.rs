//! Ratios of times, with what the gaps of both runs leave open.
//!
//! A run takes `cycles`, and no mapping of its mode takes less than `cycles / (1 + gap)`. So the time of the best mapping of a
//! run lies between `time / (1 + gap)` and `time`, and the ratio of the best mappings of two runs between the least of the one
//! over what the other took, and what the one took over the least of the other.

use super::figures::{Figures, quotient};

/// An end of a range that is further from the printed ratio than this share of it is told in words. The event engine is within 2.5 %
/// of the reference model in 95 of 100 sections (docs/accuracy.md), so a ratio of two of its runs within about 5 %: what gaps
/// leave open below that is no more than the engine itself does.
const TOLD_SHARE: f64 = 0.05;

/// Half of the last digit of a ratio with two decimals: ratios that are nearer to 1 are printed as 1.00.
const PRINTED_AS_ONE: f64 = 0.005;

/// The time of a run, and how far its mapping may be from the best.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timed<'a> {
    /// What the run is called.
    pub(crate) name: &'a str,
    pub(crate) time_s: f64,
    /// Cycles over the least cycles of any mapping, less 1; `None` where no such bound is known.
    pub(crate) gap: Option<f64>,
}

impl<'a> Timed<'a> {
    /// Of the figures of a run.
    pub(crate) fn new(name: &'a str, run: &Figures) -> Self {
        Self { name, time_s: run.time_s, gap: run.gap }
    }
}

/// The ratio of the times of two runs: above 1 the run after is the faster one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Speedup<'a> {
    pub(crate) before: Timed<'a>,
    pub(crate) after: Timed<'a>,
}

impl Speedup<'_> {
    /// Time before over time after.
    pub(crate) fn ratio(&self) -> f64 {
        quotient(self.before.time_s, self.after.time_s)
    }

    /// What the ratio of the best mappings of both runs can be, from least to most; `None` where a gap is not known.
    pub(crate) fn range(&self) -> Option<[f64; 2]> {
        let (before, after) = (self.before.gap?, self.after.gap?);
        // The best of the run before may be faster than its mapping, which lowers the ratio; that of the run after raises it.
        Some([quotient(self.ratio(), 1.0 + before), self.ratio() * (1.0 + after)])
    }

    /// The range in a few words; nothing where there is none.
    pub(crate) fn words(&self) -> Option<String> {
        self.range().map(|[least, most]| format!("{least:.2}x to {most:.2}x"))
    }

    /// Where the gaps allow another verdict than the ratio gives: which run is faster is open, or the ratio may be another by more
    /// than [`TOLD_SHARE`].
    pub(crate) fn sentence(&self) -> Option<String> {
        let ([least, most], ratio) = (self.range()?, self.ratio());
        let is_open = least < 1.0 - PRINTED_AS_ONE && most > 1.0 + PRINTED_AS_ONE;
        let is_wide = least < ratio * (1.0 - TOLD_SHARE) || most > ratio * (1.0 + TOLD_SHARE);
        if !is_open && !is_wide {
            return None;
        }
        let (before, after) = (self.before.name, self.after.name);
        let between = format!("the speed-up of {after} over {before} is between {least:.2}x and {most:.2}x");
        let proven = self.proven()?;
        Some(if is_open {
            format!("which of {after} and {before} is faster is open: {between}, as {proven}")
        } else {
            format!("{between}: {proven}")
        })
    }

    /// Which mapping leaves the range open: that of the larger gap; both where the smaller is more than half of it.
    fn proven(&self) -> Option<String> {
        let (before, after) = (self.before.gap?, self.after.gap?);
        let within = |gap: f64| {
            let percent = gap * 100.0;
            let decimals = usize::from(percent < 10.0) + usize::from(percent < 1.0);
            format!("{percent:.decimals$} %")
        };
        let larger = if before >= after { self.before.name } else { self.after.name };
        if before.min(after) > before.max(after) / 2.0 {
            let names = (self.before.name, self.after.name);
            return Some(format!(
                "the mappings of {} and {} are proven within {} and {} only",
                names.0,
                names.1,
                within(before),
                within(after)
            ));
        }
        Some(format!("the mapping of {larger} is proven within {} only", within(before.max(after))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speedup(before: (f64, Option<f64>), after: (f64, Option<f64>)) -> Speedup<'static> {
        Speedup {
            before: Timed { name: "epilogue", time_s: before.0, gap: before.1 },
            after: Timed { name: "fused", time_s: after.0, gap: after.1 },
        }
    }

    #[test]
    fn the_ends_are_of_the_best_mappings() {
        let [least, most] = speedup((3.0, Some(0.5)), (2.0, Some(0.25))).range().unwrap();
        // The best of the run before takes 2 to 3, that of the run after 1.6 to 2.
        assert!((least - 2.0 / 2.0).abs() < 1e-12 && (most - 3.0 / 1.6).abs() < 1e-12, "{least} to {most}");
        assert_eq!(speedup((3.0, None), (2.0, Some(0.25))).range(), None);
        assert_eq!(speedup((3.0, Some(0.1)), (2.0, None)).sentence(), None);
    }

    #[test]
    fn a_wide_range_is_told_with_the_mapping_that_leaves_it_open() {
        let told = speedup((2.1, Some(0.5)), (1.0, Some(0.0))).sentence().unwrap();
        assert_eq!(
            told,
            "the speed-up of fused over epilogue is between 1.40x and 2.10x: the mapping of epilogue is proven within 50 % only"
        );
        let both = speedup((2.0, Some(0.095)), (1.0, Some(0.12))).sentence().unwrap();
        assert!(both.ends_with("the mappings of epilogue and fused are proven within 9.5 % and 12 % only"), "{both}");
    }

    #[test]
    fn what_is_narrow_and_on_one_side_of_one_is_not_told() {
        assert_eq!(speedup((2.0, Some(0.04)), (1.0, Some(0.04))).sentence(), None);
        // Printed as 1.00x, whatever the digits behind.
        assert_eq!(speedup((1.0, Some(0.001)), (1.0, Some(0.001))).sentence(), None);
    }

    #[test]
    fn a_range_on_both_sides_of_one_is_open() {
        let told = speedup((1.02, Some(0.04)), (1.0, Some(0.01))).sentence().unwrap();
        assert!(told.starts_with("which of fused and epilogue is faster is open: the speed-up of fused"), "{told}");
        assert!(told.contains("between 0.98x and 1.03x"), "{told}");
    }
}
