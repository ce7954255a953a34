//! Which combinations of values a study runs.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::axis::{Axis, Value, Values};
use crate::diagnostics::Diagnostic;
use crate::study::strata::places;

/// How values are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Design {
    /// Every value with every other; the last axis changes fastest.
    Product,
    /// First with first, second with second.
    Zip,
    /// This many points, each value drawn by itself.
    Random(u64),
    /// This many points; along every axis each of as many equal parts has exactly one.
    LatinHypercube(u64),
}

/// Most points of a study.
pub(super) const MOST_POINTS: u64 = 10_000_000;

/// A point: one value of each axis.
pub(super) type Point = Vec<Arc<Value>>;

/// The points of a design, in their order; `None` if they are more than [`MOST_POINTS`].
///
/// # Errors
/// A value drawn from a range that a field cannot be set to.
pub(super) fn points(design: Design, axes: &[Axis], seed: u64) -> Result<Option<Vec<Point>>, Diagnostic> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let listed = |axis: &Axis, index: usize| match &axis.values {
        Values::Listed(values) => values.get(index).cloned(),
        Values::Between { .. } => None,
    };
    let points = match design {
        Design::Product => {
            let lengths: Vec<u64> = axes.iter().filter_map(Axis::len).collect();
            let all = lengths.iter().try_fold(1u64, |all, length| all.checked_mul(*length));
            let Some(all) = all.filter(|&all| all <= MOST_POINTS) else { return Ok(None) };
            (0..all)
                .map(|mut index| {
                    let mut point: Point = Vec::with_capacity(axes.len());
                    for (axis, &length) in axes.iter().zip(&lengths).rev() {
                        point.extend(listed(axis, (index % length) as usize));
                        index /= length;
                    }
                    point.reverse();
                    point
                })
                .collect()
        }
        Design::Zip => {
            let all = axes.iter().filter_map(Axis::len).min().unwrap_or(0);
            (0..all as usize).map(|index| axes.iter().filter_map(|axis| listed(axis, index)).collect()).collect()
        }
        Design::Random(count) => (0..count)
            .map(|_| axes.iter().map(|axis| axis.at(rng.random::<f64>())).collect::<Result<Point, _>>())
            .collect::<Result<_, _>>()?,
        Design::LatinHypercube(count) => {
            let mut columns = Vec::with_capacity(axes.len());
            for axis in axes {
                let places = places(&mut rng, count).into_iter();
                columns.push(places.map(|place| axis.at(place)).collect::<Result<Vec<_>, _>>()?);
            }
            (0..count as usize).map(|index| columns.iter().map(|column| Arc::clone(&column[index])).collect()).collect()
        }
    };
    Ok(Some(points))
}
