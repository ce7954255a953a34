//! `sweep`: a study file becomes points, points become rows.
//!
//! A point is a chip and a workload with some fields changed. Points are run in parallel, each recorded in a journal when
//! it is done, and put into the order of the design at the end, so that a sweep that was stopped, split or run on other
//! machines gives the same bytes.

mod axis;
mod design;
mod evaluate;
mod expression;
mod families;
mod fingerprints;
mod front;
mod journal;
mod kept;
mod limit;
mod metric;
#[cfg(feature = "parquet")]
mod parquet;
mod plots;
mod points;
mod results;
mod row;
mod run;
mod shared;
mod spec;
mod study;
#[cfg(test)]
mod tests;
mod wanted;

pub use journal::PARTIAL_TABLE;
pub use limit::{PointLimit, StartClock};
pub use points::{Collector, line_content, line_of, point_keys, run_points};
pub use results::{Counts, Results};
pub use run::{Shard, merge, sweep, sweep_within};
pub use study::{Compile, Fidelity, Study};
