//! The result of a compilation: a configuration, and the runs of the event engine that measured its sections.

use rdusim_cost::cost::SectionRun;
use rdusim_program::Configuration;

/// A configuration, and the runs of the event engine that measured its sections.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The configuration.
    pub configuration: Configuration,
    /// For each of its sections the run that measured it, if one did.
    pub runs: Vec<Option<SectionRun>>,
}
