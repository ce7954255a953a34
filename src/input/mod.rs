//! Reading TOML inputs: the text, the `--set` overrides applied to it, and errors that point into either.

mod explain;
mod number;
mod overrides;
mod patch;
mod source;

pub use overrides::{Override, Root};

pub(crate) use explain::suggest;
pub(crate) use number::{Count, Real};
pub(crate) use source::Source;
