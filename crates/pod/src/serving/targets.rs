//! What a service must keep to, and what it costs.

use super::stream::Spread;
use rdusim_base::diagnostics::Diagnostic;

/// Joules of a kilowatt-hour.
const JOULES_PER_KWH: f64 = 3.6e6;

/// Which number of a distribution is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    /// The sum over their number.
    Mean,
    /// As many are below as above.
    P50,
    /// One in twenty is above.
    P95,
    /// One in a hundred is above.
    P99,
}

impl Statistic {
    /// All of them with their words.
    pub const NAMES: [(Self, &'static str); 4] =
        [(Self::Mean, "mean"), (Self::P50, "p50"), (Self::P95, "p95"), (Self::P99, "p99")];

    /// The word by which the command line and results name it.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(of, _)| *of == self).map_or("", |(_, name)| name)
    }

    /// This number of a distribution.
    pub fn of(self, spread: &Spread) -> f64 {
        match self {
            Self::Mean => spread.mean,
            Self::P50 => spread.p50,
            Self::P95 => spread.p95,
            Self::P99 => spread.p99,
        }
    }
}

/// The most that a number of a distribution of times may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// Which number of the distribution is held to it.
    pub statistic: Statistic,
    /// Seconds that this number may be at most.
    pub most_s: f64,
}

impl Target {
    /// Reads `STATISTIC:MILLISECONDS`, as `p99:500`; without a statistic the 99th percentile is meant.
    ///
    /// # Errors
    /// A statistic that is not known, or a time that is none.
    pub fn parse(flag: &str, text: &str) -> Result<Self, Diagnostic> {
        let (name, number) = text.split_once(':').unwrap_or(("p99", text));
        let statistic = Statistic::NAMES.iter().find(|(_, known)| known.eq_ignore_ascii_case(name.trim()));
        let most_ms = number.trim().parse::<f64>().ok().filter(|ms| ms.is_finite() && *ms > 0.0 && *ms <= 1e9);
        if let (Some((statistic, _)), Some(ms)) = (statistic, most_ms) {
            return Ok(Self { statistic: *statistic, most_s: ms / 1e3 });
        }
        let title = format!("`{flag}` is {text:?}, expected STATISTIC:MILLISECONDS");
        Err(Diagnostic::new(title).with_help(format!("mean, p50, p95 or p99, and a time: `{flag} p99:500`")))
    }

    /// Whether a distribution keeps to it.
    pub fn is_met(&self, spread: &Spread) -> bool {
        self.statistic.of(spread) <= self.most_s
    }
}

/// What users are promised.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Targets {
    /// Time to first token.
    pub ttft: Option<Target>,
    /// Mean time of a request from token to token.
    pub token: Option<Target>,
}

/// What chips and energy cost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Price {
    /// Dollars for an hour of a chip, with its share of everything that is bought with it.
    pub usd_per_chip_hour: Option<f64>,
    /// Dollars for a kilowatt-hour of the chips' energy, where that is paid beside the hour.
    pub usd_per_kwh: Option<f64>,
}

impl Price {
    /// Reads the prices that were given.
    ///
    /// # Errors
    /// A price that is none.
    pub fn new(usd_per_chip_hour: Option<f64>, usd_per_kwh: Option<f64>) -> Result<Self, Diagnostic> {
        for (flag, price) in [("--usd-per-chip-hour", usd_per_chip_hour), ("--usd-per-kwh", usd_per_kwh)] {
            if let Some(price) = price.filter(|price| !(*price > 0.0 && *price <= 1e9)) {
                return Err(Diagnostic::new(format!("`{flag}` is {price}, expected dollars above 0, up to 1e9")));
            }
        }
        Ok(Self { usd_per_chip_hour, usd_per_kwh })
    }

    /// What `chips` chips cost that work for `seconds` and take `joules`; `None` without any price.
    pub fn usd(&self, chips: u64, seconds: f64, joules: f64) -> Option<f64> {
        if self.usd_per_chip_hour.is_none() && self.usd_per_kwh.is_none() {
            return None;
        }
        let hours = chips as f64 * seconds / 3600.0;
        Some(hours * self.usd_per_chip_hour.unwrap_or(0.0) + joules / JOULES_PER_KWH * self.usd_per_kwh.unwrap_or(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_in_milliseconds_and_words_of_any_case() {
        let target = |text: &str| Target::parse("--ttft-ms", text);
        assert_eq!(target("P99:500").unwrap(), Target { statistic: Statistic::P99, most_s: 0.5 });
        assert_eq!(target("mean: 20").unwrap(), Target { statistic: Statistic::Mean, most_s: 0.02 });
        assert_eq!(target("30").unwrap().statistic, Statistic::P99);
        for text in ["", "p98:10", "p99:", "p99:-1", "p99:inf", "p99:0"] {
            assert!(target(text).is_err(), "{text}");
        }
    }

    #[test]
    fn prices_add_up_by_hand() {
        // Eight chips for half an hour at 2 dollars: 8 dollars; 7.2 MJ are 2 kWh at 0.1 dollars.
        let price = Price::new(Some(2.0), Some(0.1)).unwrap();
        assert!((price.usd(8, 1800.0, 7.2e6).unwrap() - 8.2).abs() < 1e-12);
        assert_eq!(Price::default().usd(8, 1800.0, 7.2e6), None);
        assert!(Price::new(Some(-1.0), None).is_err());
    }
}
