//! What the compiler hands out.

use crate::cost::SectionRun;
use crate::program::{Configuration, Section};

/// A configuration, and what the event engine's runs of its sections left.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The configuration.
    pub configuration: Configuration,
    /// For each of its sections the run that measured it, if one did.
    pub runs: Vec<Option<SectionRun>>,
    /// Sections once more, with their weights clear of the banks that the section before takes; where that is of use.
    pub clear: Vec<Option<Section>>,
}
