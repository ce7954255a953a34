//! Chips: read from `arch/*.toml`, checked, and resolved to units at coordinates.
//!
//! `docs/arch-format.md` describes the file.

mod bsp;
mod bsp_spec;
mod check;
mod chip;
mod device;
mod effective;
mod emulated;
mod gpu;
mod gpu_serving_spec;
mod gpu_spec;
mod grid;
mod kind;
mod limits;
mod marks;
mod memory_parts;
mod memory_tiers;
mod penalties;
mod shape;
mod spec;
mod systolic;
mod systolic_spec;
#[cfg(test)]
mod tests;
mod vendor;
mod wafer;
mod wafer_spec;

use std::path::Path;

pub use bsp::{Bsp, BspEnergy, BspLink, BspPart, BspTile, Exchange, Planner, SparseKernel};
pub use chip::{
    Agcu, Area, AreaMm2, Chip, Coordinate, Emulated, Energy, Grid, Launch, LaunchTimes, Network, Orchestration, Pcu,
    Pmu, Tier, TierEnergy, TierEnergyItems, TierId, UnitKind,
};
pub use device::{AnyChip, Device, UnitNames};
pub use emulated::emulated_products;
pub use gpu::{
    AttentionKernel, AttentionKind, BlockSparseKernel, Cluster, ExpertFormat, Fusion, GemmLibrary, Gpu, GpuEnergy,
    KernelLaunch, L2, LatentKernels, Quantise, ServingStack, Sharding, Sm,
};
pub use kind::{ChipKind, KINDS};
pub use marks::{Assumption, Assumptions, Number, Sources, UncertainField, assumptions, sources};
pub use memory_parts::{Banks, MEMORY_PARTS, MemoryPart};
pub use penalties::{BankCycles, Penalties};
pub use shape::Shapes;
pub use systolic::{Arrays, Dataflow, Systolic, SystolicEnergy, UnifiedBuffer};
pub use vendor::{LargeTensors, Quality, Vendor};
pub use wafer::{Wafer, WaferCore, WaferEnergy, WaferExecution, WaferFabric};

#[cfg(test)]
pub(crate) use check::FUNCTIONS;

use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::{self, Given, Override, Root, Source};

/// Reads the file of an RDU, with the `arch.` overrides among `sets` applied.
///
/// # Errors
/// Besides what is wrong with the file: that it describes a GPU, which [`open`] takes.
pub fn load(path: &Path, sets: &[Override]) -> Result<Chip, Diagnostic> {
    resolve(&Source::open(path, Root::Arch, sets)?)
}

/// Reads a chip file of any kind, with the `arch.` overrides among `sets` applied.
pub fn open(path: &Path, sets: &[Override]) -> Result<AnyChip, Diagnostic> {
    any(&Source::open(path, Root::Arch, sets)?)
}

/// The same of a file or a text.
pub fn take(given: &Given, sets: &[Override]) -> Result<AnyChip, Diagnostic> {
    any(&Source::take(given, Root::Arch, sets)?)
}

/// An error about the kind of chip that a file describes, at the place where it says so; `expected` is behind the place.
pub fn kind_error(given: &Given, sets: &[Override], title: String, expected: String) -> Diagnostic {
    match Source::take(given, Root::Arch, sets) {
        Ok(source) => kind::error(&source, title, expected),
        Err(_) => Diagnostic::new(title),
    }
}

/// Reads a chip of any kind from a text; `name` stands for the file in errors.
pub fn parse_any(name: &str, text: &str, sets: &[Override]) -> Result<AnyChip, Diagnostic> {
    any(&Source::new(name, text, Root::Arch, sets)?)
}

/// Reads a file of a kind.
type Reader = fn(&Source) -> Result<AnyChip, Diagnostic>;

/// Of the kinds, in the order of [`KINDS`].
const READERS: [Reader; KINDS.len()] = [
    |source| resolve(source).map(AnyChip::from),
    |source| gpu(source).map(AnyChip::from),
    |source| bsp(source).map(AnyChip::from),
    |source| systolic(source).map(AnyChip::from),
    |source| wafer(source).map(AnyChip::from),
];

fn any(source: &Source) -> Result<AnyChip, Diagnostic> {
    let kind = kind::of(source)?;
    let [rdu, ..] = READERS;
    KINDS.iter().zip(READERS).find(|(word, _)| **word == kind.word).map_or(rdu, |(_, reader)| reader)(source)
}

/// Reads a chip from a text; `name` stands for the file in errors.
pub fn parse(name: &str, text: &str, sets: &[Override]) -> Result<Chip, Diagnostic> {
    resolve(&Source::new(name, text, Root::Arch, sets)?)
}

fn resolve(source: &Source) -> Result<Chip, Diagnostic> {
    kind::check_rdu(source)?;
    let spec: spec::ChipSpec = source.read()?;
    let chip = check::chip(source, &spec)?;
    marks::check_ranges(source, spec.ranges.as_ref())?;
    Ok(Chip { assumed: marks::assumed(source.text()).into(), text: source.text().into(), ..chip })
}

fn gpu(source: &Source) -> Result<Gpu, Diagnostic> {
    let spec: gpu_spec::GpuSpec = source.read()?;
    let gpu = gpu_spec::gpu(source, &spec)?;
    marks::check_ranges(source, spec.ranges.as_ref())?;
    Ok(Gpu { assumed: marks::assumed(source.text()).into(), text: source.text().into(), ..gpu })
}

fn bsp(source: &Source) -> Result<Bsp, Diagnostic> {
    let spec: bsp_spec::BspSpec = source.read()?;
    let bsp = bsp_spec::bsp(source, &spec)?;
    marks::check_ranges(source, spec.ranges.as_ref())?;
    Ok(Bsp { assumed: marks::assumed(source.text()).into(), text: source.text().into(), ..bsp })
}

fn systolic(source: &Source) -> Result<Systolic, Diagnostic> {
    let spec: systolic_spec::SystolicSpec = source.read()?;
    let systolic = systolic_spec::systolic(source, &spec)?;
    marks::check_ranges(source, spec.ranges.as_ref())?;
    Ok(Systolic { assumed: marks::assumed(source.text()).into(), text: source.text().into(), ..systolic })
}

fn wafer(source: &Source) -> Result<Wafer, Diagnostic> {
    let spec: wafer_spec::WaferSpec = source.read()?;
    let wafer = wafer_spec::wafer(source, &spec)?;
    marks::check_ranges(source, spec.ranges.as_ref())?;
    Ok(Wafer { assumed: marks::assumed(source.text()).into(), text: source.text().into(), ..wafer })
}

/// A chip file that is read many times with different overrides.
#[derive(Debug)]
pub struct Template(input::Template);

impl Template {
    /// Reads a chip file; the `arch.` overrides among `base` stand in every chip.
    pub fn open(path: &Path, base: &[Override]) -> Result<Self, Diagnostic> {
        Self::take(&path.into(), base)
    }

    /// The same of a file or a text.
    pub fn take(given: &Given, base: &[Override]) -> Result<Self, Diagnostic> {
        input::Template::of_source(Source::take(given, Root::Arch, base)?, Root::Arch, base).map(Self)
    }

    /// The chip with the `arch.` overrides among `sets` applied too: what [`load`] gives for the base's and these.
    pub fn chip(&self, sets: &[&Override]) -> Result<Chip, Diagnostic> {
        let quick = self.0.variant(sets).and_then(|variant| check::chip(self.0.source(), &variant.read()?).ok());
        quick.map_or_else(|| resolve(&self.0.patched_source(sets)?), Ok)
    }

    /// The chip of any kind with the same overrides.
    ///
    /// # Errors
    /// As [`open`].
    pub fn any(&self, sets: &[&Override]) -> Result<AnyChip, Diagnostic> {
        any(&self.0.patched_source(sets)?)
    }

    /// A hash of what the file with these overrides says; fields for whose path `skip` holds are left out. `None` if
    /// the overrides do not apply to the file.
    pub fn fingerprint(&self, sets: &[&Override], skip: &dyn Fn(&str) -> bool) -> Option<u128> {
        self.0.fingerprint(sets, skip)
    }

    /// The text of the file.
    pub fn text(&self) -> &str {
        self.0.source().text()
    }
}
