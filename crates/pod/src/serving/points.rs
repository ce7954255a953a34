//! Points of a grid along one axis, and costs between them by linear interpolation.

use super::time::Cost;

/// From `most` down to `least`, each a `factor`-th of the one before.
pub(super) fn geometric(least: u64, most: u64, factor: u64) -> Vec<u64> {
    let mut list: Vec<u64> =
        std::iter::successors(Some(most), |n| Some(n / factor)).take_while(|&n| n > least).collect();
    list.push(least);
    list.reverse();
    list
}

pub(super) fn between(list: &[Cost], at: usize, part: f64) -> Cost {
    match (list.get(at), list.get(at + 1)) {
        (Some(low), Some(high)) => low.towards(*high, part),
        (Some(only), None) => *only,
        _ => Cost::default(),
    }
}

/// The interval of a list in order that a value lies in, and how far in it; values outside take the nearest end.
pub(super) fn place(list: &[u64], value: f64) -> (usize, f64) {
    let above = list.partition_point(|&point| point as f64 <= value);
    if above == 0 {
        return (0, 0.0);
    }
    match (list.get(above - 1), list.get(above)) {
        (Some(&low), Some(&high)) => (above - 1, (value - low as f64) / (high - low) as f64),
        _ => (above - 1, 0.0),
    }
}
