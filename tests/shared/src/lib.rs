//! What tests, examples and benchmarks of rdusim share: random chips and graphs, recorded transfers that are replayed, and pipelines
//! without anything to arbitrate.

pub mod pipeline;
pub mod random;
pub mod replay;
