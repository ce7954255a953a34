//! What can go wrong in a configuration before there is a number to compare.

use std::fmt;

use serde::Serialize;

use super::actors::Kind;

/// A configuration that does not do its work: where, when and what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Section.
    pub section: Box<str>,
    /// The stage that fails, or for which a stream or copy works; empty for none.
    pub stage: Box<str>,
    /// The unit it shows at, with its coordinates; empty for none.
    pub unit: Box<str>,
    /// Row tile, counted over the section; `None` where none is at fault.
    pub row_tile: Option<u64>,
    /// Firings of all actors before it.
    pub step: u64,
    /// Cycle of the run at which the event engine begins that firing (of a deadlock: at which all stands still); `None`
    /// where it is in a part that the engine skips, or behind what it keeps.
    pub cycle: Option<u64>,
    /// The actor, and its firing.
    #[serde(skip)]
    pub(super) firing: Option<Box<(Kind, u64)>>,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "section `{}`", self.section)?;
        if !self.stage.is_empty() {
            write!(f, ", stage `{}`", self.stage)?;
        }
        if !self.unit.is_empty() {
            write!(f, ", {}", self.unit)?;
        }
        if let Some(row_tile) = self.row_tile {
            write!(f, ", row tile {row_tile}")?;
        }
        if let Some(cycle) = self.cycle {
            write!(f, ", cycle {cycle}")?;
        }
        write!(f, ", step {}: {}", self.step, self.what)
    }
}
