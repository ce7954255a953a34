//! `explain`: what bounds every section, what one more of each resource would buy, and what unknown fields may change.

mod additions;
mod base;
mod decisions;
mod entries;
mod pictures;
mod sections;
mod text;
mod traffic_curve;
mod uncertainty;

use std::sync::Arc;

use base::Base;

use crate::arch::Chip;
use crate::compile::Effort;
use crate::diagnostics::Diagnostic;
use crate::program::divided_over_tiers;

use super::inputs::{Inputs, run, run_all, run_plain};
use additions::Addition;
pub use base::Question;
pub use decisions::{SearchDecisions, decisions};
pub use entries::{
    AreaEntry, Band, Derivative, Effect, Explanation, ModeEntry, PowerEntry, ResourceEntry, SectionEntry, Uncertainty,
};
pub use traffic_curve::{OfMode, OfSram, TrafficCurve, traffic_curve};

/// Answers; `tick` is called with the runs done and the runs there are, from any thread.
///
/// # Errors
/// What the inputs, the compiler or a run refuse.
pub fn explain(
    inputs: &Inputs,
    question: &Question,
    tick: &(dyn Fn(usize, usize) + Sync),
) -> Result<Explanation, Diagnostic> {
    let chip = inputs.any_chip(&[])?;
    let workload = inputs.workload(&[], None)?;
    let divided = chip.rdu().and_then(|chip| divided_over_tiers(chip, &workload));
    let graph = divided.map_or_else(|| Arc::clone(&workload), Arc::new);
    let (compiled, outcomes) = match chip.rdu() {
        Some(chip) => run(chip, &graph, &question.modes, question.effort, question.fidelity)?,
        None => (Vec::new(), run_plain(&chip, &workload, &question.modes)?),
    };
    let (of_rdu, graph) = (chip.rdu(), &*graph);
    let base =
        Base { inputs, question, workload: &workload, graph, chip: of_rdu, compiled: &compiled, outcomes: &outcomes };

    let additions = additions::additions(&chip)?;
    let variants = if question.uncertainty { uncertainty::variants(inputs) } else { uncertainty::Variants::default() };
    let all = additions.len() + variants.runs();
    let done = std::sync::atomic::AtomicUsize::new(0);
    let count = || tick(done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1, all);
    // From here on the rate is that of the runs that are counted.
    tick(0, all);
    let answers = run_all(&additions, |addition| {
        let cycles = base.seconds(&addition.sets);
        count();
        cycles
    });
    let device = chip.device();
    let modes = outcomes
        .iter()
        .enumerate()
        .map(|(mode, outcome)| {
            let mut entry = sections::mode_entry(chip.device(), outcome);
            let answers =
                answers.iter().map(|a| a.as_ref().map(|seconds| seconds[mode]).map_err(Diagnostic::to_string));
            entry.derivatives = derivatives(device.seconds(outcome.cycles), &additions, answers);
            entry
        })
        .collect();
    let uncertainty = question.uncertainty.then(|| uncertainty::uncertainty(&base, device, variants, &count));
    Ok(Explanation {
        schema: 1,
        arch: device.name().to_owned(),
        workload: workload.name.clone(),
        fidelity: outcomes.first().map_or(question.fidelity, |outcome| outcome.fidelity).name(),
        mapping: inputs.quality().name(),
        modes,
        notes: workload.notes.iter().cloned().chain(remark_of(question.effort)).collect(),
        area_mm2: chip.rdu().and_then(Chip::area_mm2).map(AreaEntry::from),
        uncertainty,
    })
}

/// What a search of another effort than the usual says of itself.
fn remark_of(effort: Effort) -> Option<String> {
    (effort != Effort::Full).then(|| format!("mappings are searched for at `--effort {}`", effort.name()))
}

/// Additions with what they save of `time_s`, most first; additions that cannot be taken last.
fn derivatives(
    time_s: f64,
    additions: &[Addition],
    answers: impl Iterator<Item = Result<f64, String>>,
) -> Vec<Derivative> {
    let mut list: Vec<Derivative> = additions
        .iter()
        .zip(answers)
        .map(|(addition, answer)| {
            let sets = addition.sets.iter().map(|set| set.raw().to_owned()).collect();
            let (resource, what) = (addition.resource.clone(), addition.what.clone());
            let (time, refused) = match answer {
                Ok(seconds) => (Some(seconds), None),
                Err(message) => (None, Some(message)),
            };
            let saved_s = time.map(|seconds| time_s - seconds);
            Derivative {
                resource,
                step: what,
                set: sets,
                time_s: time,
                saved_s,
                saved_share: saved_s.map(|s| s / time_s),
                refused,
            }
        })
        .collect();
    let saved = |derivative: &Derivative| derivative.saved_s.unwrap_or(f64::NEG_INFINITY);
    // Stable: of equals the order of the additions.
    list.sort_by(|a, b| saved(b).total_cmp(&saved(a)));
    list
}
