//! A minimum without derivatives: the simplex search of Nelder and Mead (The Computer Journal 7, 1965), as Lagarias, Reeds, Wright
//! and Wright state it (SIAM Journal on Optimization 9, 1998).

/// How far the worst corner is reflected beyond the others, how far a reflection that is the best is carried on, how far one that
/// does not help is taken back, and how far all corners move towards the best where nothing helps: the usual four.
const REFLECTED: f64 = 1.0;
const EXPANDED: f64 = 2.0;
const CONTRACTED: f64 = 0.5;
const SHRUNK: f64 = 0.5;

/// A corner of the simplex with its cost.
type Corner = (Vec<f64>, f64);

/// The best point found from the corners of a simplex, one more than there are parameters, in at most so many steps, or until the
/// standard deviation of the corners' costs is below `tolerance`. The same corners and costs give the same point; a cost that is no
/// number counts as the worst.
pub(super) fn minimum(
    corners: Vec<Vec<f64>>,
    most_steps: u64,
    tolerance: f64,
    mut cost: impl FnMut(&[f64]) -> f64,
) -> Vec<f64> {
    let mut evaluated = |point: Vec<f64>| {
        let cost = cost(&point);
        (point, if cost.is_nan() { f64::INFINITY } else { cost })
    };
    let mut simplex: Vec<Corner> = corners.into_iter().map(&mut evaluated).collect();
    simplex.sort_by(|a, b| a.1.total_cmp(&b.1));
    for _ in 0..most_steps {
        let [better @ .., (worst, highest)] = &simplex[..] else { break };
        let (Some((_, lowest)), Some((_, second))) = (better.first(), better.last()) else { break };
        if deviation(&simplex) < tolerance {
            break;
        }
        let (middle, lowest, second, highest) = (middle(better), *lowest, *second, *highest);
        let reflected = evaluated(towards(&middle, worst, -REFLECTED));
        let instead = if reflected.1 < lowest {
            let expanded = evaluated(towards(&middle, &reflected.0, EXPANDED));
            Some(if expanded.1 < reflected.1 { expanded } else { reflected })
        } else if reflected.1 < second {
            Some(reflected)
        } else if reflected.1 < highest {
            let outside = evaluated(towards(&middle, &reflected.0, CONTRACTED));
            (outside.1 <= reflected.1).then_some(outside)
        } else {
            let inside = evaluated(towards(&middle, worst, CONTRACTED));
            (inside.1 < highest).then_some(inside)
        };
        if let Some(corner) = instead {
            simplex.pop();
            simplex.push(corner);
        } else {
            let best = simplex[0].0.clone();
            for corner in simplex.iter_mut().skip(1) {
                *corner = evaluated(towards(&best, &corner.0, SHRUNK));
            }
        }
        simplex.sort_by(|a, b| a.1.total_cmp(&b.1));
    }
    simplex.into_iter().next().map(|(best, _)| best).unwrap_or_default()
}

/// `from` moved towards `to` by a part of their distance.
fn towards(from: &[f64], to: &[f64], part: f64) -> Vec<f64> {
    from.iter().zip(to).map(|(from, to)| from + part * (to - from)).collect()
}

/// The mean of the corners.
fn middle(corners: &[Corner]) -> Vec<f64> {
    let mut sum = vec![0.0; corners.first().map_or(0, |(point, _)| point.len())];
    for (point, _) in corners {
        sum.iter_mut().zip(point).for_each(|(sum, value)| *sum += value);
    }
    sum.iter().map(|sum| sum / corners.len() as f64).collect()
}

/// The standard deviation of the corners' costs, of a sample.
fn deviation(corners: &[Corner]) -> f64 {
    let mean = corners.iter().map(|(_, cost)| cost).sum::<f64>() / corners.len() as f64;
    let squares: f64 = corners.iter().map(|(_, cost)| (cost - mean).powi(2)).sum();
    (squares / (corners.len() as f64 - 1.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corners(center: &[f64], step: f64) -> Vec<Vec<f64>> {
        let corner =
            |axis: usize| center.iter().enumerate().map(move |(at, v)| v + step * f64::from(u8::from(at == axis)));
        std::iter::once(center.to_vec()).chain((0..center.len()).map(|axis| corner(axis).collect())).collect()
    }

    #[test]
    fn a_bent_valley_is_followed_to_its_end() {
        // Rosenbrock's function: 0 at (1, 1).
        let cost = |p: &[f64]| (1.0 - p[0]).powi(2) + 100.0 * (p[1] - p[0] * p[0]).powi(2);
        let found = minimum(corners(&[-1.2, 1.0], 0.5), 500, 1e-12, cost);
        assert!((found[0] - 1.0).abs() < 1e-4 && (found[1] - 1.0).abs() < 1e-4, "{found:?}");
    }

    #[test]
    fn a_bowl_of_four_parameters_is_found() {
        let cost = |p: &[f64]| p.iter().enumerate().map(|(at, v)| (at as f64 + 1.0) * (v - at as f64).powi(2)).sum();
        let found = minimum(corners(&[5.0; 4], 1.0), 1000, 1e-12, cost);
        assert!(found.iter().enumerate().all(|(at, v)| (v - at as f64).abs() < 1e-3), "{found:?}");
    }

    #[test]
    fn steps_are_limited_and_costs_that_are_no_number_avoided() {
        let mut asked = 0;
        let start = corners(&[3.0, 3.0], 1.0);
        let found = minimum(start.clone(), 1, 0.0, |p| {
            asked += 1;
            p[0].powi(2) + p[1].powi(2)
        });
        // Three corners; (3, 4), one of the two worst, is reflected to (4, 2): worse than (3, 3), better than (4, 3), and so taken.
        assert_eq!(asked, 4);
        assert_eq!(found, vec![3.0, 3.0]);
        // Where the logarithm is none the cost is no number.
        let found = minimum(corners(&[0.1], 2.0), 200, 1e-12, |p| (p[0].ln() - 1.0).powi(2));
        assert!((found[0] - std::f64::consts::E).abs() < 1e-4, "{found:?}");
        assert_eq!(minimum(Vec::new(), 5, 0.1, |_| 0.0), Vec::<f64>::new());
    }
}
