//! Options of a search for a fleet: targets and prices.

use clap::Args;

use crate::diagnostics::Diagnostic;
use crate::pod::{Price, Target, Targets};

/// What users are promised, and what chips cost.
#[derive(Debug, Args)]
#[command(next_help_heading = "Requests, with --search")]
pub(super) struct FleetArgs {
    /// Milliseconds to the first token at most, of a mean or a percentile: mean, p50, p95 or p99 [default: p99]
    #[arg(long, value_name = "STATISTIC:MS", requires = "search")]
    ttft_ms: Option<String>,
    /// Milliseconds from token to token at most, the mean of a request; in the same way
    #[arg(long, value_name = "STATISTIC:MS", requires = "search")]
    tpot_ms: Option<String>,
    /// Dollars for an hour of a chip, with its share of what is bought with it
    #[arg(long, value_name = "USD", requires = "search")]
    usd_per_chip_hour: Option<f64>,
    /// Dollars for a kilowatt-hour of the chips' energy, where it is paid beside the hour
    #[arg(long, value_name = "USD", requires = "search")]
    usd_per_kwh: Option<f64>,
}

impl FleetArgs {
    /// The first option that is given.
    pub(super) fn given(&self) -> Option<&'static str> {
        let options = [
            ("--ttft-ms", self.ttft_ms.is_some()),
            ("--tpot-ms", self.tpot_ms.is_some()),
            ("--usd-per-chip-hour", self.usd_per_chip_hour.is_some()),
            ("--usd-per-kwh", self.usd_per_kwh.is_some()),
        ];
        options.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
    }

    /// What users are promised.
    pub(super) fn targets(&self) -> Result<Targets, Diagnostic> {
        let read = |flag: &str, text: &Option<String>| text.as_ref().map(|text| Target::parse(flag, text)).transpose();
        Ok(Targets { ttft: read("--ttft-ms", &self.ttft_ms)?, token: read("--tpot-ms", &self.tpot_ms)? })
    }

    /// What chips and energy cost.
    pub(super) fn price(&self) -> Result<Price, Diagnostic> {
        Price::new(self.usd_per_chip_hour, self.usd_per_kwh)
    }
}
