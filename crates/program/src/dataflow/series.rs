//! Numbers by iteration index, and their running sums, with a short form for the common cases.

use rdusim_base::units::index;

/// A number for each iteration of a loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Series {
    /// The same in every iteration but the last.
    Uniform {
        /// Value of every iteration before `last`.
        value: u64,
        /// Index of the last iteration.
        last: u64,
        /// Value of the last iteration.
        at_last: u64,
    },
    /// Any values.
    Table(Vec<u64>),
}

impl Series {
    pub(super) fn new(values: Vec<u64>) -> Self {
        let Some((&at_last, before)) = values.split_last() else { return Self::constant(0) };
        let value = before.first().copied().unwrap_or(at_last);
        if before.iter().all(|&v| v == value) {
            Self::Uniform { value, last: before.len() as u64, at_last }
        } else {
            Self::Table(values)
        }
    }

    pub(super) fn constant(value: u64) -> Self {
        Self::Uniform { value, last: u64::MAX, at_last: value }
    }

    #[inline]
    pub(super) fn at(&self, i: u64) -> u64 {
        match self {
            Self::Uniform { value, last, at_last } => {
                if i == *last {
                    *at_last
                } else {
                    *value
                }
            }
            Self::Table(values) => values[index(i)],
        }
    }

    /// The numbers of `count` iterations.
    pub(super) fn by(count: u64, value: impl Fn(u64) -> u64) -> Self {
        Self::new((0..count).map(value).collect())
    }

    /// The same function of each of the numbers of `count` iterations.
    pub(super) fn map(&self, count: u64, of: impl Fn(u64) -> u64) -> Self {
        match self {
            Self::Uniform { value, last, at_last } => {
                Self::Uniform { value: of(*value), last: *last, at_last: of(*at_last) }
            }
            Self::Table(values) => Self::new(values[..index(count)].iter().map(|&value| of(value)).collect()),
        }
    }

    /// The products of the numbers of `count` iterations.
    pub(super) fn times(&self, other: &Self, count: u64) -> Self {
        match (self, other) {
            (Self::Uniform { value: a, last, at_last: c }, Self::Uniform { value: b, last: of, at_last: d })
                if last == of =>
            {
                Self::Uniform { value: a.saturating_mul(*b), last: *last, at_last: c.saturating_mul(*d) }
            }
            _ => Self::by(count, |i| self.at(i).saturating_mul(other.at(i))),
        }
    }

    /// Least and largest number of `count` iterations, of which there is one.
    pub(super) fn range(&self, count: u64) -> (u64, u64) {
        match self {
            Self::Uniform { value, last, at_last } => {
                let of = |i: u64| if i < count { Some(if i == *last { *at_last } else { *value }) } else { None };
                let (first, last) = (of(0).unwrap_or(*value), of(*last).unwrap_or(*value));
                (first.min(last), first.max(last))
            }
            Self::Table(values) => {
                let values = &values[..index(count)];
                (values.iter().copied().min().unwrap_or(0), values.iter().copied().max().unwrap_or(0))
            }
        }
    }

    /// The value, if it is the same in every iteration.
    pub(super) fn as_constant(&self) -> Option<u64> {
        match self {
            Self::Uniform { value, last, at_last } => {
                (value == at_last || *last == 0).then_some(if *last == 0 { *at_last } else { *value })
            }
            Self::Table(_) => None,
        }
    }
}

/// Running sums of a number over the iterations of a loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sums {
    /// Every iteration but the last adds `each`, which is not 0; the last adds what remains to `total`.
    Uniform {
        /// Sum added by an iteration.
        each: u64,
        /// Number of iterations.
        iterations: u64,
        /// Sum over all.
        total: u64,
    },
    /// `sums[i]` is the sum over the iterations before `i`.
    Table(Vec<u64>),
}

impl Sums {
    pub(super) fn new(values: impl Iterator<Item = u64>) -> Self {
        let mut sums = vec![0u64];
        let mut sum = 0u64;
        for value in values {
            sum = sum.saturating_add(value);
            sums.push(sum);
        }
        let iterations = sums.len() as u64 - 1;
        let each = if sums.len() > 1 { sums[1] } else { 1 };
        let equal = sums.windows(2).rev().skip(1).all(|pair| pair[1] - pair[0] == each);
        // The short form divides by `each` and takes a larger remainder for the next iteration.
        if each > 0 && equal && sum <= each.saturating_mul(iterations) {
            Self::Uniform { each, iterations, total: sum }
        } else {
            Self::Table(sums)
        }
    }

    /// Running sums of `scale` times the numbers of `count` iterations.
    pub(super) fn of(series: &Series, scale: u64, count: u64) -> Self {
        if let Series::Uniform { value, last, at_last } = series {
            let (each, at_last) = (value.saturating_mul(scale), at_last.saturating_mul(scale));
            if *last >= count && each > 0 {
                return Self::Uniform { each, iterations: count, total: each.saturating_mul(count) };
            }
            if last.checked_add(1) == Some(count) && *last > 0 && each > 0 && at_last <= each {
                let total = each.saturating_mul(*last).saturating_add(at_last);
                return Self::Uniform { each, iterations: count, total };
            }
        }
        Self::new((0..count).map(|i| series.at(i).saturating_mul(scale)))
    }

    /// Sum over the iterations before `i`.
    #[inline]
    pub(super) fn before(&self, i: u64) -> u64 {
        match self {
            Self::Uniform { each, iterations, total } => {
                if i == *iterations {
                    *total
                } else {
                    each * i
                }
            }
            Self::Table(sums) => sums[index(i)],
        }
    }

    /// The iteration within which the running sum, multiplied by `factor`, passes `n`.
    #[inline]
    pub(super) fn find(&self, n: u64, factor: u64) -> u64 {
        match self {
            Self::Uniform { each, .. } => {
                let each = each * factor;
                if each == 1 { n } else { n / each }
            }
            Self::Table(sums) => {
                let n = if factor == 1 { n } else { n / factor };
                sums.partition_point(|&sum| sum <= n) as u64 - 1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The iteration within which the sums pass `n`, step by step.
    fn found(values: &[u64], n: u64, factor: u64) -> u64 {
        let mut sum = 0;
        let passes = |value: &u64| {
            sum += value * factor;
            sum > n
        };
        values.iter().position(passes).expect("it is passed") as u64
    }

    proptest! {
        #[test]
        fn sums_are_those_of_the_numbers(values in prop::collection::vec(0u64..5, 1..12), scale in 1u64..4, factor in 1u64..4) {
            let count = values.len() as u64;
            let series = Series::new(values.clone());
            let scaled: Vec<u64> = values.iter().map(|value| value * scale).collect();
            for sums in [Sums::of(&series, scale, count), Sums::new(scaled.iter().copied())] {
                let total: u64 = scaled.iter().sum();
                for i in 0..=count {
                    prop_assert_eq!(sums.before(i), scaled[..index(i)].iter().sum::<u64>());
                }
                for n in 0..total * factor {
                    prop_assert_eq!(sums.find(n, factor), found(&scaled, n, factor), "{} of {:?}", n, &scaled);
                }
            }
        }
    }

    #[test]
    fn equal_iterations_need_no_table() {
        let uniform = |value, last, at_last| Series::Uniform { value, last, at_last };
        let short = Sums::Uniform { each: 6, iterations: 4, total: 20 };
        assert_eq!(Sums::of(&uniform(3, 3, 1), 2, 4), short);
        assert_eq!(Sums::new([6, 6, 6, 2].into_iter()), short);
        assert_eq!(Sums::of(&Series::constant(3), 2, 4), Sums::Uniform { each: 6, iterations: 4, total: 24 });
        // One that is all: the last, or the others.
        assert_eq!(Sums::of(&uniform(3, 0, 5), 1, 1), Sums::Uniform { each: 5, iterations: 1, total: 5 });
        assert_eq!(Sums::of(&uniform(3, 1, 5), 1, 1), Sums::Uniform { each: 3, iterations: 1, total: 3 });
        // A last iteration with more, an unequal one, and numbers that are 0 have a table.
        assert_eq!(Sums::of(&uniform(3, 3, 4), 1, 4), Sums::Table(vec![0, 3, 6, 9, 13]));
        assert_eq!(Sums::new([2, 1, 2].into_iter()), Sums::Table(vec![0, 2, 3, 5]));
        assert_eq!(Sums::of(&Series::constant(0), 1, 2), Sums::Table(vec![0, 0, 0]));
        assert_eq!(Sums::of(&uniform(3, 2, 0), 1, 3), Sums::Uniform { each: 3, iterations: 3, total: 6 });
    }
}
