//! The object of a distribution of times.

use serde::Serialize;

use rdusim_pod::Spread;

/// Mean and percentiles of a distribution of seconds, as results have them.
#[derive(Serialize)]
pub(super) struct Percentiles {
    mean: f64,
    p50: f64,
    p95: f64,
    p99: f64,
}

impl From<Spread> for Percentiles {
    fn from(Spread { mean, p50, p95, p99 }: Spread) -> Self {
        Self { mean, p50, p95, p99 }
    }
}
