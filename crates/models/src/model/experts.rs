//! Experts of a layer: how many of them a batch of tokens meets, and how many tokens the busiest is expected to get.
//!
//! Every token goes to `each` different experts, to expert `i` with a chance `c_i`; chances add up to `each`. Of N tokens expert `i`
//! gets a binomial count `B(N, c_i)`, and counts of experts are taken as independent: the expected number of experts that are met
//! is the sum of `1 - (1 - c_i)^N`, and the expected largest count the sum over x of `1 - prod_i P(B(N, c_i) <= x)`. Counts that
//! add up to a fixed sum spread a little less, so that the largest is a little smaller than that.

use std::sync::Arc;

/// Experts of a layer, of which a router chooses some for each token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Experts {
    /// Experts.
    pub count: u64,
    /// Experts that a token meets.
    pub each: u64,
    /// Width of the feed-forward block of one.
    pub width: u64,
    /// Width of the block that every token meets; 0 if there is none.
    pub shared: u64,
    /// A gate scales what that block makes.
    pub shared_gate: bool,
    /// Layers of which one, the last, has experts; 1 where all have them.
    pub every: u64,
}

/// The router of layers whose experts are on other chips, or in graphs of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Router {
    /// Experts that it chooses among.
    pub experts: u64,
    /// There is a block that every token meets, as wide as the feed-forward block.
    pub has_shared: bool,
}

/// How the tokens of a batch fall on the experts of a layer.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum ExpertLoad {
    /// As evenly as whole tokens can: what a router that balances perfectly would do.
    Even,
    /// At random, each expert equally likely.
    #[default]
    Uniform,
    /// At random, the i-th most popular expert i^-A times as likely as the first (Zipf's law).
    Zipf(f64),
    /// At random, by how often each expert was chosen: a number an expert.
    Measured(Arc<[f64]>),
}

impl ExpertLoad {
    /// In words, for a remark.
    pub fn describe(&self) -> String {
        match self {
            Self::Even => "evenly".to_owned(),
            Self::Uniform => "at random, each expert equally likely".to_owned(),
            Self::Zipf(exponent) => format!("at random, the i-th expert i^-{exponent} times as likely as the first"),
            Self::Measured(_) => "at random, as often as measured".to_owned(),
        }
    }
}

impl Experts {
    /// Experts that at least one of `tokens` tokens is expected to meet, and the rows that each is given: those that the busiest
    /// is expected to get.
    pub fn met_by(&self, tokens: u64, load: &ExpertLoad) -> (u64, u64) {
        let visits = tokens.saturating_mul(self.each);
        let most = self.count.min(visits).max(1);
        if *load == ExpertLoad::Even {
            return (most, visits.div_ceil(most));
        }
        let chances = self.chances(load);
        let met: f64 = chances.iter().map(|(chance, experts)| experts * unmet(*chance, tokens)).sum();
        let met = (met.round() as u64).clamp(self.each.min(most), most);
        let busiest = (expected_largest(&chances, tokens).ceil() as u64).clamp(visits.div_ceil(self.count), tokens);
        (met, busiest.max(visits.div_ceil(met)).min(tokens.max(1)))
    }

    /// Chances of experts to be chosen by a token, in the order of the experts.
    pub fn chances_in_order(&self, load: &ExpertLoad) -> Vec<f64> {
        let weights: Vec<f64> = match load {
            ExpertLoad::Even | ExpertLoad::Uniform => {
                return vec![self.each as f64 / self.count as f64; self.count as usize];
            }
            ExpertLoad::Zipf(exponent) => (1..=self.count).map(|rank| (rank as f64).powf(-exponent)).collect(),
            ExpertLoad::Measured(counts) => counts.to_vec(),
        };
        let mut order: Vec<usize> = (0..weights.len()).collect();
        order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]));
        let mut chances = vec![0.0; weights.len()];
        for (at, chance) in order.into_iter().zip(certain_first(weights, self.each as f64)) {
            chances[at] = chance;
        }
        chances
    }

    /// Chances of experts to be chosen by a token, each with the number of experts that have it.
    fn chances(&self, load: &ExpertLoad) -> Vec<(f64, f64)> {
        let weights: Vec<f64> = match load {
            ExpertLoad::Even | ExpertLoad::Uniform => {
                return vec![(self.each as f64 / self.count as f64, self.count as f64)];
            }
            ExpertLoad::Zipf(exponent) => (1..=self.count).map(|rank| (rank as f64).powf(-exponent)).collect(),
            ExpertLoad::Measured(counts) => counts.to_vec(),
        };
        certain_first(weights, self.each as f64).into_iter().map(|chance| (chance, 1.0)).collect()
    }
}

/// Chances in proportion to weights that add up to `sum`, none above one: what exceeds it goes to the others.
fn certain_first(mut weights: Vec<f64>, sum: f64) -> Vec<f64> {
    weights.sort_by(|a, b| b.total_cmp(a));
    let largest = weights.first().copied().unwrap_or(0.0);
    // Sums of all from each on, from the least: differences of a running sum would lose the small ones.
    let mut left = 0.0;
    let mut sums: Vec<f64> = weights.iter().rev().map(|weight| weight / largest).collect();
    for of in &mut sums {
        left += *of;
        *of = left;
    }
    let mut missing = sum;
    weights
        .iter()
        .zip(sums.iter().rev())
        .map(|(weight, &left)| {
            let chance = if left > 0.0 { (missing * (weight / largest) / left).min(1.0) } else { 0.0 };
            missing -= chance;
            chance
        })
        .collect()
}

/// Tokens above `room` that an expert is expected to get of `tokens`, each with this chance.
pub fn expected_above(tokens: u64, chance: f64, room: u64) -> f64 {
    let counts = Counts::new(tokens, chance);
    let to = counts.from + counts.upto.len() as u64;
    // Below the first count that may be, everything above the room is certain.
    let certain = counts.from.saturating_sub(room) as f64;
    certain + (room.max(counts.from)..to).map(|x| 1.0 - counts.up_to(x)).sum::<f64>()
}

/// The chance that an expert is met by at least one of `tokens` tokens.
fn unmet(chance: f64, tokens: u64) -> f64 {
    -f64::exp_m1(tokens as f64 * f64::ln_1p(-chance.min(1.0 - f64::EPSILON)))
}

/// Tokens up to which distributions are summed up count by count.
const MOST_COUNTED: u64 = 1 << 24;

/// The expected largest of independent binomial counts. Of very many tokens counts hardly differ from their means: a bound of the
/// largest of n normal ones, which is sqrt(2 ln n) deviations above.
fn expected_largest(chances: &[(f64, f64)], tokens: u64) -> f64 {
    if tokens > MOST_COUNTED {
        let experts: f64 = chances.iter().map(|(_, experts)| experts).sum();
        let above = (2.0 * experts.max(1.0).ln()).sqrt();
        let largest = chances.iter().map(|&(chance, _)| {
            let mean = tokens as f64 * chance;
            mean + above * (mean * (1.0 - chance)).sqrt()
        });
        return largest.fold(0.0, f64::max).min(tokens as f64);
    }
    let counts: Vec<(Counts, f64)> =
        chances.iter().map(|&(chance, experts)| (Counts::new(tokens, chance), experts)).collect();
    // Below the largest of the first certain values one count at least is larger for sure.
    let from = counts.iter().map(|(counts, _)| counts.from).max().unwrap_or(0);
    let to = counts.iter().map(|(counts, _)| counts.from + counts.upto.len() as u64).max().unwrap_or(0);
    let exceeds = |x: u64| {
        let none: f64 = counts.iter().map(|(counts, experts)| counts.up_to(x).powf(*experts)).product();
        1.0 - none
    };
    from as f64 + (from..to).map(exceeds).sum::<f64>()
}

/// Distribution of a binomial count where it is neither nearly zero nor nearly one.
struct Counts {
    /// Of no smaller count is the chance worth a mention.
    from: u64,
    /// Chance of at most `from`, `from + 1` and so on.
    upto: Vec<f64>,
}

/// Standard deviations around the mean beyond which a count does not matter: of 2^40 experts none is expected there.
const DEVIATIONS: f64 = 9.0;

impl Counts {
    fn new(tokens: u64, chance: f64) -> Self {
        let mean = tokens as f64 * chance;
        if chance >= 1.0 || chance <= 0.0 {
            return Self { from: mean as u64, upto: vec![1.0] };
        }
        // A bound of Bernstein's: near zero a count spreads as one of Poisson's.
        let spread = DEVIATIONS * (mean * (1.0 - chance)).sqrt() + DEVIATIONS * DEVIATIONS / 3.0;
        let from = (mean - spread).max(0.0) as u64;
        let to = ((mean + spread).ceil() as u64).min(tokens);
        let mode = (((tokens + 1) as f64 * chance) as u64).clamp(from, to);
        // Relative to the mode, by the ratio of neighbours.
        let odds = chance / (1.0 - chance);
        let mut weights = vec![1.0; (to - from + 1) as usize];
        for x in mode..to {
            let ratio = (tokens - x) as f64 / (x + 1) as f64 * odds;
            weights[(x + 1 - from) as usize] = weights[(x - from) as usize] * ratio;
        }
        for x in (from..mode).rev() {
            let ratio = (tokens - x) as f64 / (x + 1) as f64 * odds;
            weights[(x - from) as usize] = weights[(x + 1 - from) as usize] / ratio;
        }
        let sum: f64 = weights.iter().sum();
        let mut upto = 0.0;
        let upto = weights.iter().map(|weight| {
            upto += weight / sum;
            upto.min(1.0)
        });
        Self { from, upto: upto.collect() }
    }

    /// The chance of at most `x`.
    fn up_to(&self, x: u64) -> f64 {
        match x.checked_sub(self.from) {
            None => 0.0,
            Some(at) => self.upto.get(at as usize).copied().unwrap_or(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    fn experts(count: u64, each: u64) -> Experts {
        Experts { count, each, width: 64, shared: 0, shared_gate: false, every: 1 }
    }

    #[test]
    fn one_token_meets_its_experts_once() {
        for load in [ExpertLoad::Even, ExpertLoad::Uniform, ExpertLoad::Zipf(1.0)] {
            assert_eq!(experts(128, 8).met_by(1, &load), (8, 1));
        }
    }

    #[test]
    fn random_tokens_meet_fewer_experts_and_the_busiest_gets_more() {
        // 1 - (1 - 1/16)^8 of 128 is 51.6; evenly 64 would be met.
        assert_eq!(experts(128, 8).met_by(8, &ExpertLoad::Uniform).0, 52);
        assert_eq!(experts(128, 8).met_by(8, &ExpertLoad::Even), (64, 1));
        // Two of eight for 4,096 tokens: 1,024 each, with a deviation of 27.7; the largest of eight is 1.42 of them above.
        let (met, rows) = experts(8, 2).met_by(4096, &ExpertLoad::Uniform);
        assert!(met == 8 && (1062..=1065).contains(&rows), "{met} {rows}");
    }

    /// As many tokens as asked for, each thrown at different experts one after the other by their weights.
    fn thrown(of: &Experts, weights: &[f64], tokens: u64, rng: &mut Pcg64Mcg) -> (u64, u64) {
        let mut counts = vec![0_u64; weights.len()];
        for _ in 0..tokens {
            let mut left = weights.to_vec();
            for _ in 0..of.each {
                let mut at = rng.random::<f64>() * left.iter().sum::<f64>();
                let chosen = left.iter().position(|weight| {
                    at -= weight;
                    at < 0.0
                });
                let chosen = chosen.unwrap_or(0);
                counts[chosen] += 1;
                left[chosen] = 0.0;
            }
        }
        (counts.iter().filter(|&&count| count > 0).count() as u64, counts.into_iter().max().unwrap_or(0))
    }

    #[test]
    fn expectations_agree_with_tokens_that_are_thrown() {
        let mut rng = Pcg64Mcg::seed_from_u64(20_261_125);
        for (count, each, tokens) in [(8, 2, 64), (64, 1, 100), (64, 6, 32), (16, 1, 500)] {
            let of = experts(count, each);
            let weights = vec![1.0; count as usize];
            let draws: Vec<(u64, u64)> = (0..400).map(|_| thrown(&of, &weights, tokens, &mut rng)).collect();
            let mean = |of: &dyn Fn(&(u64, u64)) -> u64| draws.iter().map(of).sum::<u64>() as f64 / draws.len() as f64;
            let (met, rows) = of.met_by(tokens, &ExpertLoad::Uniform);
            assert!((met as f64 - mean(&|draw| draw.0)).abs() < 1.0, "{count} {each} {tokens}: {met} met");
            let thrown = mean(&|draw| draw.1);
            assert!(rows as f64 > 0.97 * thrown && (rows as f64) < 1.06 * thrown + 1.0, "{rows} rows, thrown {thrown}");
        }
    }

    #[test]
    fn what_is_above_a_room_is_what_a_binomial_count_says() {
        // Of 2 tokens with a chance of a half: none, one or two with 1/4, 1/2, 1/4.
        assert!((expected_above(2, 0.5, 0) - 1.0).abs() < 1e-12);
        assert!((expected_above(2, 0.5, 1) - 0.25).abs() < 1e-12);
        assert!(expected_above(2, 0.5, 2).abs() < 1e-12);
        assert!((expected_above(100, 1.0, 30) - 70.0).abs() < 1e-12);
        // A Poisson count of mean 1 is above 1 by 1/e in the mean.
        assert!((expected_above(1 << 20, 1.0 / f64::from(1 << 20), 1) - 1.0 / 1f64.exp()).abs() < 1e-4);
    }

    #[test]
    fn chances_keep_the_order_of_the_experts() {
        let load = ExpertLoad::Measured([1.0, 5.0, 2.0, 0.0].into_iter().collect());
        let chances = experts(4, 1).chances_in_order(&load);
        for (chance, expected) in chances.iter().zip([0.125, 0.625, 0.25, 0.0]) {
            assert!((chance - expected).abs() < 1e-12, "{chances:?}");
        }
    }

    #[test]
    fn a_skew_makes_the_busiest_busier() {
        let rows = |load| experts(64, 4).met_by(2048, &load).1;
        let measured = ExpertLoad::Measured((1..=64).map(|rank| 1.0 / f64::from(rank)).collect());
        assert!(rows(ExpertLoad::Even) < rows(ExpertLoad::Uniform));
        assert!(rows(ExpertLoad::Uniform) < rows(ExpertLoad::Zipf(0.5)));
        assert_eq!(rows(ExpertLoad::Zipf(1.0)), rows(measured));
        // Every token goes to an expert that is certain.
        assert_eq!(rows(ExpertLoad::Zipf(4.0)), 2048);
    }

    proptest! {
        #[test]
        fn rows_hold_every_visit(count in 1_u64..300, share in 0.0..1.0_f64, tokens in 1_u64..3_000_000, skew in 0.0..3.0_f64) {
            let each = ((count as f64 * share) as u64).max(1);
            for load in [ExpertLoad::Even, ExpertLoad::Uniform, ExpertLoad::Zipf(skew)] {
                let (met, rows) = experts(count, each).met_by(tokens, &load);
                prop_assert!(met >= each && met <= count && met * rows >= tokens * each, "{met} met, {rows} rows");
                prop_assert!(rows <= tokens, "{rows} rows of {tokens} tokens");
            }
        }
    }
}
