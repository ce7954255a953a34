//! Chips: read from `arch/*.toml`, checked, and resolved to units at coordinates.
//!
//! `docs/arch-format.md` describes the file.

mod check;
mod chip;
mod grid;
mod limits;
mod spec;
#[cfg(test)]
mod tests;
mod vendor;

use std::path::Path;

pub use chip::{
    Agcu, Chip, Coordinate, Energy, Grid, Launch, LaunchTimes, Network, Orchestration, Pcu, Pmu, Tier, TierId, UnitKind,
};
pub use vendor::{LargeTensors, Quality, Vendor};

#[cfg(test)]
pub(crate) use check::FUNCTIONS;

use crate::diagnostics::Diagnostic;
use crate::input::{Override, Root, Source};

/// Reads a chip file, with the `arch.` overrides among `sets` applied.
pub fn load(path: &Path, sets: &[Override]) -> Result<Chip, Diagnostic> {
    resolve(&Source::open(path, Root::Arch, sets)?)
}

/// Reads a chip from a text; `name` stands for the file in errors.
pub fn parse(name: &str, text: &str, sets: &[Override]) -> Result<Chip, Diagnostic> {
    resolve(&Source::new(name, text, Root::Arch, sets)?)
}

fn resolve(source: &Source) -> Result<Chip, Diagnostic> {
    check::chip(source, &source.read()?)
}
