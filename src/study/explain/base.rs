//! The question that `explain` answers, and the run that every answer is compared with.

use crate::arch::{Chip, Device};
use crate::compile::{Compiled, Effort, handed_on, simulate_measured};
use crate::cost::Stop;
use crate::diagnostics::Diagnostic;
use crate::input::Override;
use crate::mode::Mode;
use crate::outcome::{Fidelity, Outcome, StopReason};
use crate::program::divided_over_tiers;
use crate::study::inputs::{Inputs, run, run_plain};
use crate::workload::Workload;

/// What to explain, and how closely.
#[derive(Debug, Clone)]
pub struct Question {
    /// The modes.
    pub modes: Vec<Mode>,
    /// How long the compiler searches.
    pub effort: Effort,
    /// How closely time is modelled.
    pub fidelity: Fidelity,
    /// Whether to vary the assumed fields of the chip file too.
    pub uncertainty: bool,
}

/// The run that everything is compared with.
pub(super) struct Base<'a> {
    pub(super) inputs: &'a Inputs,
    pub(super) question: &'a Question,
    pub(super) workload: &'a Workload,
    /// The graph that ran: the workload's, or with blocks divided over the chip's memory tiers.
    pub(super) graph: &'a Workload,
    /// The RDU that configurations were found for.
    pub(super) chip: Option<&'a Chip>,
    pub(super) compiled: &'a [Compiled],
    pub(super) outcomes: &'a [Outcome],
}

impl Base<'_> {
    /// Seconds of each mode with overrides: what the search finds there or a configuration of the base, whichever is faster.
    pub(super) fn seconds(&self, sets: &[Override]) -> Result<Vec<f64>, Diagnostic> {
        let sets: Vec<&Override> = sets.iter().collect();
        let chip = match self.inputs.any_chip(&sets)?.into_rdu() {
            Ok(chip) => chip,
            Err(other) => {
                let outcomes = run_plain(&other, self.workload, &self.question.modes)?;
                return Ok(outcomes.iter().map(|outcome| other.device().seconds(outcome.cycles)).collect());
            }
        };
        let divided = divided_over_tiers(&chip, self.workload);
        let graph = divided.as_ref().unwrap_or(self.workload);
        let Question { ref modes, effort, fidelity, .. } = *self.question;
        let (_, outcomes) = run(&chip, graph, modes, effort, fidelity)?;
        let mut cycles: Vec<u64> = outcomes.iter().map(|outcome| outcome.cycles).collect();
        for (cycles, of) in cycles.iter_mut().zip(self.compiled) {
            let kept = self.chip.and_then(|from| handed_on(from, &chip, self.graph, &of.configuration, Stop::NEVER));
            let Some(kept) = kept else { continue };
            let kept = simulate_measured(&chip, self.graph, &kept, fidelity);
            if kept.stop == StopReason::Drained {
                *cycles = kept.cycles.min(*cycles);
            }
        }
        Ok(cycles.into_iter().map(|cycles| chip.seconds(cycles)).collect())
    }

    /// Seconds of each mode as it is.
    pub(super) fn own_seconds(&self, chip: &dyn Device) -> Vec<f64> {
        self.outcomes.iter().map(|outcome| chip.seconds(outcome.cycles)).collect()
    }
}
