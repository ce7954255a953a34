//! What the compiler hands out.

use crate::cost::SectionRun;
use crate::program::Configuration;

/// A configuration, and what the event engine's runs of its sections left.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The configuration.
    pub configuration: Configuration,
    /// For each of its sections the run that measured it, if one did.
    pub runs: Vec<Option<SectionRun>>,
}
