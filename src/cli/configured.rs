//! Workloads and configurations: where a command has them from, and configurations saved.

use std::path::Path;

use crate::analysis::{self, Source};
use crate::arch::Chip;
use crate::compile::Compiled;
use crate::diagnostics::Diagnostic;
use crate::input::Override;
use crate::report;
use crate::workload::{self, Workload};
use crate::{import, saved};

use super::failure::Failure;
use super::import::ModelFileArgs;
use super::run_args::ConfigArgs;

/// The workload, with the partition of `--sections` if one is given.
pub(super) fn workload(
    path: &Path,
    model: &ModelFileArgs,
    sets: &[Override],
    seed: u64,
    from: &ConfigArgs,
) -> Result<Workload, Diagnostic> {
    let workload = import::load(path, sets, seed, &model.options_for(path)?)?;
    match &from.sections {
        Some(sections) => workload::pin(workload, sections),
        None => Ok(workload),
    }
}

/// The file of `--config`, else the compiler.
pub(super) fn source(from: &ConfigArgs) -> Source {
    match &from.config {
        Some(path) => Source::File(path.clone()),
        None => Source::Compiler(from.effort.into()),
    }
}

/// Writes the file of `--save-config`, if one is asked for.
pub(super) fn save(
    to: &ConfigArgs,
    chip: &Chip,
    workload: &Workload,
    configurations: &[Compiled],
) -> Result<(), Failure> {
    let Some(path) = &to.save_config else { return Ok(()) };
    analysis::refuse_models(workload, "a configuration file cannot hold")?;
    let text = saved::to_toml(chip, workload, configurations.iter().map(|measured| &measured.configuration));
    report::write_file(path, text.as_bytes())?;
    Ok(())
}
