//! A chip and a workload that are read once and varied many times.

use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use crate::arch::{self, AnyChip, Chip, Quality};
use crate::compile::{BaseCache, Compiled, Effort, compile_with, simulate_measured};
use crate::diagnostics::Diagnostic;
use crate::import;
use crate::input::{Given, Override, Root};
use crate::interrupt;
use crate::machine::machine;
use crate::mode::Mode;
use crate::outcome::{Fidelity, Outcome, StopReason};
use crate::program::Configuration;
use crate::sim::simulate;
use crate::workload::{self, Workload};

/// A chip file and a workload file with the overrides of a command or a study.
#[derive(Debug)]
pub struct Inputs {
    arch: arch::Template,
    workload: workload::Template,
    base: Arc<Workload>,
    seed: u64,
    quality: Quality,
    /// The file describes a chip that has no mapping.
    is_plain: bool,
}

impl Inputs {
    /// Reads both files; `base` are overrides that hold throughout, `seed` goes into every random mask, `quality` is how
    /// good mappings are taken to be. The workload may be a model, imported as its options say.
    ///
    /// # Errors
    /// What [`arch::load`], [`Chip::under`] and [`workload::load`] refuse.
    pub fn open(
        arch: &Given,
        workload: &Given,
        model: &import::Options,
        base: &[Override],
        seed: u64,
        quality: Quality,
    ) -> Result<Self, Diagnostic> {
        let arch = arch::Template::take(arch, base)?;
        let chip = arch.any(&[])?;
        let is_plain = chip.rdu().is_none();
        if is_plain {
            refuse_vendor(&chip, quality)?;
        } else {
            arch.chip(&[])?.under(quality)?;
        }
        let workload = import::take_template(workload, base, model)?;
        let base = Arc::new(workload.workload(&[], seed)?);
        Ok(Self { arch, workload, base, seed, quality, is_plain })
    }

    /// The same, the graph cut as a file of sections says; variants of the workload are not.
    ///
    /// # Errors
    /// What [`workload::pin`] refuses.
    pub fn pinned(self, sections: &Path) -> Result<Self, Diagnostic> {
        let base = Arc::new(workload::pin(Workload::clone(&self.base), sections)?);
        Ok(Self { base, ..self })
    }

    /// The chip with more overrides.
    ///
    /// # Errors
    /// What the chip's checks refuse.
    pub fn chip(&self, sets: &[&Override]) -> Result<Chip, Diagnostic> {
        self.arch.chip(sets)?.under(self.quality)
    }

    /// How good mappings are taken to be.
    pub fn quality(&self) -> Quality {
        self.quality
    }

    /// The chip with more overrides, of any kind.
    ///
    /// # Errors
    /// What the chip's checks refuse.
    pub fn any_chip(&self, sets: &[&Override]) -> Result<AnyChip, Diagnostic> {
        if self.is_plain { self.arch.any(sets) } else { self.chip(sets).map(AnyChip::from) }
    }

    /// The workload with more overrides and, if given, another seed.
    ///
    /// # Errors
    /// What the workload's checks refuse.
    pub fn workload(&self, sets: &[&Override], seed: Option<u64>) -> Result<Arc<Workload>, Diagnostic> {
        let seed = seed.unwrap_or(self.seed);
        if seed == self.seed && sets.iter().all(|set| set.root() != Root::Workload) {
            return Ok(Arc::clone(&self.base));
        }
        self.workload.workload(sets, seed).map(Arc::new)
    }

    /// A hash of what the chip file says with these overrides, without the fields for whose path `skip` holds.
    pub(super) fn chip_content(&self, sets: &[&Override], skip: &dyn Fn(&str) -> bool) -> Option<u128> {
        self.arch.fingerprint(sets, skip)
    }

    /// A hash of what the workload file says with these overrides, and of the seed.
    pub(super) fn workload_content(&self, sets: &[&Override], seed: Option<u64>) -> Option<u128> {
        let content = self.workload.fingerprint(sets)?;
        Some(content.rotate_left(64) ^ u128::from(seed.unwrap_or(self.seed)))
    }

    /// The chip file's text, overrides of the base applied.
    pub(super) fn chip_text(&self) -> &str {
        self.arch.text()
    }
}

/// A chip of another kind than `rdu` has no mapping that a vendor's stack would limit.
fn refuse_vendor(chip: &AnyChip, quality: Quality) -> Result<(), Diagnostic> {
    if quality == Quality::Ideal {
        return Ok(());
    }
    let (name, kind) = (chip.device().name(), chip.device().kind());
    let title = format!("`--mapping {}` is for RDUs: {name} is a chip of kind {kind:?}", quality.name());
    Err(Diagnostic::new(title).with_help("leave `--mapping` out"))
}

/// Runs a chip that is no RDU in each mode.
///
/// # Errors
/// What its model refuses.
pub fn run_plain(chip: &AnyChip, workload: &Workload, modes: &[Mode]) -> Result<Vec<Outcome>, Diagnostic> {
    let needs_mapping = || Diagnostic::new(format!("{} is an RDU, which needs a mapping", chip.device().name()));
    machine(chip).ok_or_else(needs_mapping)?.run(workload, modes)
}

/// Compiles and simulates in each mode.
///
/// # Errors
/// What the compiler refuses, and runs that end without draining.
pub(super) fn run(
    chip: &Chip,
    workload: &Workload,
    modes: &[Mode],
    effort: Effort,
    fidelity: Fidelity,
) -> Result<(Vec<Compiled>, Vec<Outcome>), Diagnostic> {
    let compiled = compile_with(chip, workload, modes, effort, &BaseCache::default())?;
    let outcomes = compiled.iter().map(|c| drained(simulate_measured(chip, workload, c, fidelity)));
    let outcomes = outcomes.collect::<Result<_, _>>()?;
    Ok((compiled, outcomes))
}

/// Simulates one configuration on a chip that it need not have been compiled for.
///
/// # Errors
/// A run that ends without draining.
pub(super) fn simulated(
    chip: &Chip,
    workload: &Workload,
    configuration: &Configuration,
    fidelity: Fidelity,
) -> Result<Outcome, Diagnostic> {
    drained(simulate(chip, workload, configuration, fidelity))
}

/// An outcome that ran to its end.
pub(super) fn drained(outcome: Outcome) -> Result<Outcome, Diagnostic> {
    match &outcome.stop {
        StopReason::Drained => Ok(outcome),
        StopReason::Deadlock(blocked) => {
            let title = format!("the {} run is deadlocked: {}", outcome.mode.name(), blocked.join("; "));
            Err(Diagnostic::new(title))
        }
        StopReason::Limit(reached) => Err(Diagnostic::new(reached.clone())),
    }
}

/// Runs the same modes for several variants of the inputs, in parallel; results in the variants' order.
pub(super) fn run_all<T: Sync, R: Send>(variants: &[T], one: impl Fn(&T) -> R + Sync + Send) -> Vec<R> {
    let unless_interrupted = |variant| {
        interrupt::check();
        one(variant)
    };
    variants.par_iter().map(unless_interrupted).collect()
}
