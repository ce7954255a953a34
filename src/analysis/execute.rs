//! From modes to outcomes: configurations, compiled or read, and their runs.

use std::path::PathBuf;

use rayon::prelude::*;

use crate::arch::Chip;
use crate::compile::{BaseCache, Compiled, Effort, compile_with, simulate_measured};
use crate::diagnostics::{Diagnostic, Origin};
use crate::mode::Mode;
use crate::outcome::{Fidelity, Outcome};
use crate::program::divided_over_tiers;
use crate::saved;
use crate::sim::{check_size, simulate_unskipped};
use crate::workload::{OperatorId, Workload};

/// Where configurations come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// The compiler, searching this hard.
    Compiler(Effort),
    /// A configuration file.
    File(PathBuf),
}

/// What the runs gave, in the order of the modes.
#[derive(Debug)]
pub struct Execution {
    /// Configurations that ran.
    pub configurations: Vec<Compiled>,
    /// Their runs.
    pub outcomes: Vec<Outcome>,
}

/// A part of an execution that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// There are configurations.
    Compiled,
    /// They have run.
    Simulated,
    /// It is known how far they are from what no mapping beats.
    Bounded,
}

/// Compiles `workload` for `chip` in each mode, or takes saved configurations, and simulates the configurations; without
/// `skip`, every event of them. `ended` is called as stages end.
///
/// # Errors
/// What compiler and configuration file refuse, and what is too large for the fidelity `cycle`.
pub fn execute(
    chip: &Chip,
    workload: &Workload,
    modes: &[Mode],
    fidelity: Fidelity,
    skip: bool,
    from: &Source,
    ended: &mut dyn FnMut(Stage),
) -> Result<Execution, Diagnostic> {
    let configurations = configurations(from, chip, workload, modes)?;
    ended(Stage::Compiled);
    if fidelity == Fidelity::Cycle {
        configurations.iter().try_for_each(|measured| check_size(chip, workload, &measured.configuration))?;
    }
    let simulated = configurations.par_iter().map(|measured| {
        if skip {
            simulate_measured(chip, workload, measured, fidelity)
        } else {
            simulate_unskipped(chip, workload, &measured.configuration, fidelity)
        }
    });
    let outcomes = simulated.collect();
    ended(Stage::Simulated);
    Ok(Execution { configurations, outcomes })
}

/// The graph that runs on a chip: the workload's, or with blocks divided over its memory tiers.
pub fn graph_on(chip: &Chip, workload: Workload) -> Workload {
    divided_over_tiers(chip, &workload).unwrap_or(workload)
}

/// Configurations of a file, else compiled ones.
///
/// # Errors
/// What compiler and configuration file refuse.
pub fn configurations(
    from: &Source,
    chip: &Chip,
    workload: &Workload,
    modes: &[Mode],
) -> Result<Vec<Compiled>, Diagnostic> {
    match from {
        Source::File(path) => {
            refuse_models(workload, "a configuration file cannot hold")?;
            let unmeasured = |configuration| Compiled { configuration, runs: Vec::new() };
            Ok(saved::load(path, chip, workload, modes)?.into_iter().map(unmeasured).collect())
        }
        Source::Compiler(effort) => compile_with(chip, workload, modes, *effort, &BaseCache::default()),
    }
}

/// Refuses a workload with operators of a model (heads, blocks, training), which `cannot` be done with yet.
///
/// # Errors
/// The first of them, where it is declared.
pub fn refuse_models(workload: &Workload, cannot: &str) -> Result<(), Diagnostic> {
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
