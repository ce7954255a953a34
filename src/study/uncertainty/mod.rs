//! Ranges of answers: a run on chips whose uncertain fields are drawn from their ranges.
//!
//! Fields are drawn by Latin hypercube sampling (`McKay`, Beckman and Conover, 1979), one quantile for all fields of a comment; a
//! range is from the 5 to the 95 % quantile of the draws. The mapping is the one that was found for the chip as it is, or one that was
//! found for an end of a range where that cannot run. The draws are a function of the seed.

mod draws;
mod held;
mod on_rdu;
mod ranges;

pub use draws::Draws;
pub use on_rdu::of_rdu;
pub use ranges::{Sampled, of_plain, quantiles, ranges, versus};

/// Draws unless a command says otherwise.
pub const SAMPLES: usize = 40;
