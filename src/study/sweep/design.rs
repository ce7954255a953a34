//! Which combinations of values a study runs.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::axis::{Axis, Value};
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

/// The points of a design, in their order. Places on the axes are kept, values are made when they are asked for: a point of a
/// million takes eight bytes an axis.
#[derive(Debug)]
pub(super) struct Points {
    axes: Arc<[Axis]>,
    count: usize,
    order: Order,
}

/// Where on the axes the points of a design are.
#[derive(Debug)]
enum Order {
    /// Every combination; the last axis changes fastest.
    Product,
    /// The values of one index.
    Zip,
    /// A place from 0 to below 1 on each axis, point by point.
    Drawn(Vec<f64>),
}

impl Points {
    /// The points of a design; `None` if they are more than [`MOST_POINTS`].
    ///
    /// # Errors
    /// A range of a field that cannot be set to numbers.
    pub(super) fn new(design: Design, axes: Arc<[Axis]>, seed: u64) -> Result<Option<Self>, Diagnostic> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        // Every value of a range is a number: one that can be set stands for all.
        axes.iter().filter(|axis| axis.len().is_none()).try_for_each(|axis| axis.at(0.0).map(drop))?;
        let (count, order) = match design {
            Design::Product => {
                let mut lengths = axes.iter().filter_map(Axis::len);
                let all = lengths.try_fold(1u64, u64::checked_mul);
                let Some(all) = all.filter(|&all| all <= MOST_POINTS) else { return Ok(None) };
                (all, Order::Product)
            }
            Design::Zip => (axes.iter().filter_map(Axis::len).min().unwrap_or(0), Order::Zip),
            Design::Random(count) => {
                let places = (0..count as usize * axes.len()).map(|_| rng.random::<f64>());
                (count, Order::Drawn(places.collect()))
            }
            Design::LatinHypercube(count) => {
                let mut drawn = vec![0.0; count as usize * axes.len()];
                for axis in 0..axes.len() {
                    let own = drawn.iter_mut().skip(axis).step_by(axes.len());
                    own.zip(places(&mut rng, count)).for_each(|(drawn, place)| *drawn = place);
                }
                (count, Order::Drawn(drawn))
            }
        };
        Ok(Some(Self { axes, count: count as usize, order }))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The point of an index below [`Self::len`].
    pub(super) fn get(&self, index: usize) -> Point {
        match &self.order {
            Order::Product => {
                let mut left = index;
                let mut point: Point = Vec::with_capacity(self.axes.len());
                for axis in self.axes.iter().rev() {
                    let values = axis.listed();
                    point.extend(values.get(left % values.len().max(1)).cloned());
                    left /= values.len().max(1);
                }
                point.reverse();
                point
            }
            Order::Zip => self.axes.iter().filter_map(|axis| axis.listed().get(index).cloned()).collect(),
            Order::Drawn(places) => {
                let own = &places[index * self.axes.len()..][..self.axes.len()];
                let value = |(axis, &place): (&Axis, &f64)| axis.at(place).expect("a number, as the first was");
                self.axes.iter().zip(own).map(value).collect()
            }
        }
    }
}
