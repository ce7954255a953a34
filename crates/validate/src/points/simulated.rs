//! What comes of a row.

/// What came of a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Simulated {
    /// Mean seconds to the first token, and of a token behind it.
    Times { ttft_s: f64, token_s: f64 },
    /// Why it cannot be simulated.
    Refused(String),
}
