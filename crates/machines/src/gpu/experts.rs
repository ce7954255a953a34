//! How tokens fall on experts: the rows of every expert of the busiest device, in a few draws.
//!
//! `uniform`: every token goes to its experts at random. `power_law_A`: popularities are drawn from a density proportional to
//! x^-A between 1 and 0.8 tokens (0.01 and 2 where experts outnumber the routed tokens), and scaled to the routed tokens.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::format::ProductFormat;

/// Draws whose mean is taken: the error of a mean of so many is a sixth of a draw's.
const DRAWS: u64 = 32;
/// Tokens up to which the experts of each are drawn one by one.
const MOST_THROWN: u64 = 4096;

/// How evenly tokens fall on experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Skew {
    /// Every expert equally likely.
    Uniform,
    /// Every expert has as many tokens as any other, as near as whole tokens can.
    Even,
    /// The i-th most popular expert is i^-A times as likely as the first (Zipf's law); which experts are popular is drawn.
    Zipf(f64),
    /// Popularities by a power law of this exponent.
    PowerLaw(f64),
}

/// A layer of experts, alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experts {
    /// Format of weights and activations.
    pub format: ProductFormat,
    /// Tokens of the whole system.
    pub tokens: u64,
    /// Width of the model.
    pub hidden: u64,
    /// Width of an expert.
    pub inner: u64,
    /// Whether a gate multiplies what goes into an expert: three matrices, else two.
    pub gated: bool,
    /// Experts of a token.
    pub chosen: u64,
    /// Experts.
    pub experts: u64,
    /// Devices that share an expert.
    pub tensor_parallel: u64,
    /// Groups of devices that share the experts out.
    pub expert_parallel: u64,
    /// How evenly tokens fall.
    pub skew: Skew,
}

/// Rows of each expert of the busiest device, in [`DRAWS`] draws.
pub(super) fn loads(of: &Experts) -> Vec<Vec<u64>> {
    let mut rng = Pcg64Mcg::seed_from_u64(of.tokens ^ (of.experts << 32));
    let local = (of.experts / of.expert_parallel).max(1) as usize;
    (0..DRAWS)
        .map(|_| {
            let rows = match of.skew {
                Skew::Uniform => thrown(of, &mut rng),
                Skew::Even => even(of),
                Skew::Zipf(exponent) => zipf(of, exponent, &mut rng),
                Skew::PowerLaw(exponent) => nearest(of, &power_law(of, exponent, &mut rng)),
            };
            let busiest = rows.chunks(local).max_by_key(|rank| rank.iter().sum::<u64>());
            busiest.map(<[u64]>::to_vec).unwrap_or_default()
        })
        .collect()
}

/// As many rows for every expert, the rest one each from the first on.
fn even(of: &Experts) -> Vec<u64> {
    let (routed, experts) = (of.tokens * of.chosen, of.experts.max(1));
    (0..experts).map(|expert| routed / experts + u64::from(expert < routed % experts)).collect()
}

/// Rows of experts in a drawn order, each a binomial count of the tokens with the chance of its rank; no chance is above one.
fn zipf(of: &Experts, exponent: f64, rng: &mut Pcg64Mcg) -> Vec<u64> {
    let weights: Vec<f64> = (1..=of.experts).map(|rank| (rank as f64).powf(-exponent)).collect();
    let (mut left, mut missing) = (weights.iter().sum::<f64>(), of.chosen as f64);
    let mut rows: Vec<u64> = weights
        .iter()
        .map(|weight| {
            let chance = (missing * weight / left.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
            left -= weight;
            missing -= chance;
            binomial(of.tokens, chance, rng)
        })
        .collect();
    // Fisher and Yates: every order is equally likely.
    for at in (1..rows.len()).rev() {
        rows.swap(at, rng.random_range(0..=at));
    }
    rows
}

/// Variance of a count above which a normal number stands for it.
const NORMAL_VARIANCE: f64 = 9.0;

/// A binomial count: by inverting its distribution, or a normal number where it spreads far.
fn binomial(tokens: u64, chance: f64, rng: &mut Pcg64Mcg) -> u64 {
    let (n, all) = (tokens as f64, 1.0 - f64::EPSILON);
    if chance <= 0.0 || chance >= all {
        return if chance >= all { tokens } else { 0 };
    }
    let variance = n * chance * (1.0 - chance);
    if variance > NORMAL_VARIANCE {
        // Irwin-Hall: the sum of twelve uniform numbers is nearly normal.
        let normal: f64 = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
        return (n * chance + normal * variance.sqrt()).round().clamp(0.0, n) as u64;
    }
    // Of a chance near one the tokens that do not come are counted.
    if chance > 0.5 {
        return tokens - binomial(tokens, 1.0 - chance, rng);
    }
    let mut u: f64 = rng.random();
    let mut of_count = (1.0 - chance).powf(n);
    let mut count = 0;
    while u > of_count && count < tokens {
        u -= of_count;
        of_count *= (tokens - count) as f64 / (count + 1) as f64 * chance / (1.0 - chance);
        count += 1;
    }
    count
}

/// Popularities by inverting the distribution function of the truncated power law.
fn power_law(of: &Experts, exponent: f64, rng: &mut Pcg64Mcg) -> Vec<f64> {
    let routed = of.tokens * of.chosen;
    let (low, high) = if routed > of.experts { (1.0, (of.tokens as f64 * 0.8).max(1.0)) } else { (0.01, 2.0_f64) };
    let power = 1.0 - exponent;
    (0..of.experts)
        .map(|_| {
            let u: f64 = rng.random();
            if power.abs() < 1e-9 {
                return low * (high / low).powf(u);
            }
            let (from, to) = (low.powf(power), high.powf(power));
            ((to - from) * u + from).powf(1.0 / power)
        })
        .collect()
}

/// Whole rows in proportion to the shares, none above the tokens: the nearest whole numbers, and what they miss of the sum
/// given to the experts with most rows, or taken from them, one each in turn.
fn nearest(of: &Experts, shares: &[f64]) -> Vec<u64> {
    let sum: f64 = shares.iter().sum();
    let routed = of.tokens * of.chosen;
    let mut rows: Vec<u64> =
        shares.iter().map(|share| ((share / sum * routed as f64).round() as u64).min(of.tokens)).collect();
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&expert| std::cmp::Reverse(rows[expert]));
    let mut missing = i128::from(routed) - rows.iter().map(|&rows| i128::from(rows)).sum::<i128>();
    while missing != 0 {
        let before = missing;
        for &expert in &order {
            if missing > 0 && rows[expert] < of.tokens {
                rows[expert] += 1;
                missing -= 1;
            } else if missing < 0 && rows[expert] > 0 {
                rows[expert] -= 1;
                missing += 1;
            }
        }
        if missing == before {
            break;
        }
    }
    rows
}

/// Rows of each expert where every token goes to different experts at random: of `experts` counts, each a sum of draws, the
/// whole part is certain and the rest is thrown.
fn thrown(of: &Experts, rng: &mut Pcg64Mcg) -> Vec<u64> {
    let mut rows = vec![0; of.experts as usize];
    // Many tokens: a normal approximation of the binomial count, which is exact enough above this.
    if of.tokens > MOST_THROWN {
        let chance = of.chosen as f64 / of.experts as f64;
        let (mean, deviation) = (of.tokens as f64 * chance, (of.tokens as f64 * chance * (1.0 - chance)).sqrt());
        for count in &mut rows {
            // Irwin-Hall: the sum of twelve uniform numbers is nearly normal.
            let normal: f64 = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
            *count = (mean + normal * deviation).round().clamp(0.0, of.tokens as f64) as u64;
        }
        return rows;
    }
    for _ in 0..of.tokens {
        // Floyd's algorithm: `chosen` different experts.
        let mut taken: Vec<u64> = Vec::with_capacity(of.chosen as usize);
        for last in of.experts - of.chosen..of.experts {
            let expert = rng.random_range(0..=last);
            taken.push(if taken.contains(&expert) { last } else { expert });
        }
        for &expert in &taken {
            rows[expert as usize] += 1;
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdusim_base::units::Dtype;

    const LAYER: Experts = Experts {
        format: ProductFormat::Plain(Dtype::Bf16),
        tokens: 64,
        hidden: 8,
        inner: 8,
        gated: true,
        chosen: 4,
        experts: 64,
        tensor_parallel: 1,
        expert_parallel: 1,
        skew: Skew::Uniform,
    };

    fn mean(skew: Skew, tokens: u64, of: impl Fn(&[u64]) -> f64) -> f64 {
        let draws = loads(&Experts { tokens, skew, ..LAYER });
        draws.iter().map(|rows| of(rows)).sum::<f64>() / draws.len() as f64
    }

    #[test]
    fn rows_of_all_experts_are_those_of_the_tokens() {
        let sum = |rows: &[u64]| rows.iter().sum::<u64>() as f64;
        for tokens in [3, 64, 3000, 20_000] {
            let routed = (tokens * LAYER.chosen) as f64;
            assert!((mean(Skew::Even, tokens, sum) - routed).abs() < 1e-9);
            for skew in [Skew::Zipf(0.0), Skew::Zipf(0.5), Skew::Zipf(1.0)] {
                // The sum of independent counts spreads by less than its root.
                let off = (mean(skew, tokens, sum) - routed).abs();
                assert!(off < routed.sqrt(), "{skew:?} {tokens}: {off}");
            }
        }
    }

    #[test]
    fn uneven_routers_meet_fewer_experts_and_load_the_busiest_more() {
        let met = |rows: &[u64]| rows.iter().filter(|&&rows| rows > 0).count() as f64;
        let most = |rows: &[u64]| rows.iter().max().copied().unwrap_or(0) as f64;
        let all = [Skew::Even, Skew::Uniform, Skew::Zipf(0.5), Skew::Zipf(1.0)];
        for pair in all.windows(2) {
            assert!(mean(pair[0], 64, met) >= mean(pair[1], 64, met), "{pair:?}");
            assert!(mean(pair[0], 64, most) <= mean(pair[1], 64, most), "{pair:?}");
        }
        // No exponent: every expert is as likely as any other, as with draws of different experts for each token.
        let (thrown, counted) = (mean(Skew::Uniform, 64, met), mean(Skew::Zipf(0.0), 64, met));
        assert!((thrown / counted - 1.0).abs() < 0.03, "{thrown} {counted}");
    }
}
