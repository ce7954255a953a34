//! Configurations: compiled or read, and saved.

use std::path::Path;

use crate::arch::Chip;
use crate::compile::{BaseCache, Compiled, compile_with};
use crate::diagnostics::{Diagnostic, Origin};
use crate::input::Override;
use crate::mode::Mode;
use crate::report;
use crate::workload::{self, OperatorId, Workload};
use crate::{import, saved};

use super::failure::Failure;
use super::import::ModelFileArgs;
use super::run_args::ConfigArgs;

/// The workload, with the partition of `--sections` if one is given.
pub(super) fn workload(
    (path, model): (&Path, &ModelFileArgs),
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

/// Refuses a workload with operators of a model (heads, blocks, training), which `cannot` be done with yet.
pub(super) fn refuse_models(workload: &Workload, cannot: &str) -> Result<(), Diagnostic> {
    let help = "plain operators can: no heads, batch, transposition, vectors, blocks or training";
    refuse(workload, workload.first_of_a_model(), cannot, help)
}

fn refuse(workload: &Workload, first: Option<OperatorId>, cannot: &str, help: &str) -> Result<(), Diagnostic> {
    let Some(op) = first else { return Ok(()) };
    let operator = &workload.operators[op];
    let title = format!("{cannot} operator `{}` (`{}`) yet", operator.name, operator.kind.name());
    let diagnostic = Diagnostic::new(title).with_help(help);
    Err(match &operator.declared {
        Some(origin) => diagnostic.with_origin(Origin { label: "not yet".to_owned(), ..origin.clone() }),
        None => diagnostic,
    })
}

/// The configurations of `--config`, else compiled ones.
pub(super) fn configurations(
    from: &ConfigArgs,
    chip: &Chip,
    workload: &Workload,
    modes: &[Mode],
) -> Result<Vec<Compiled>, Diagnostic> {
    match &from.config {
        Some(path) => {
            refuse_models(workload, "a configuration file cannot hold")?;
            let unmeasured = |configuration| Compiled { configuration, runs: Vec::new() };
            Ok(saved::load(path, chip, workload, modes)?.into_iter().map(unmeasured).collect())
        }
        None => compile_with(chip, workload, modes, from.effort.into(), &BaseCache::default()),
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
    refuse_models(workload, "a configuration file cannot hold")?;
    let text = saved::to_toml(chip, workload, configurations.iter().map(|measured| &measured.configuration));
    report::write_file(path, text.as_bytes())?;
    Ok(())
}
