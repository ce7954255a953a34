//! Wafers of cores: activations stay in the cores' memories, weights stream over them from outside, gradients stream out.
//!
//! `fused` is one program that works layer by layer; `kbk` and `epilogue` are programs whose intermediates leave the wafer too, for
//! comparison. `docs/wafer.md` is the timing model; an [`Outcome`] comes out, as of every chip.

mod account;
mod kernel;
mod outside;
mod pipeline;
mod product;
#[cfg(test)]
mod tests;

pub use self::account::bound_cycles;

use self::kernel::Kernel;
use self::outside::is_kept_outside;
use crate::kernels::{self, Timed};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::index::Id;
use rdusim_base::mode::Mode;
use rdusim_base::units::ByteSize;
use rdusim_graph::arch::{Wafer, WaferExecution};
use rdusim_graph::workload::{
    COMPUTE_AGAIN, Moved, OperatorId, TensorRole, Uses, Workload, kernel_of, kernels_with_epilogues, moved,
};
use rdusim_outcome::Outcome;

/// Runs a workload on a wafer in each of `modes`.
///
/// # Errors
/// A data type that the cores do not multiply, or activations that the cores have no room for.
pub fn run(chip: &Wafer, workload: &Workload, modes: &[Mode]) -> Result<Vec<Outcome>, Diagnostic> {
    workload.refuse_types(&chip.name, "core.macs", &chip.core.macs)?;
    modes.iter().map(|&mode| run_mode(chip, workload, mode)).collect()
}

fn run_mode(chip: &Wafer, workload: &Workload, mode: Mode) -> Result<Outcome, Diagnostic> {
    let uses = Uses::new(workload);
    let lists: Vec<Vec<OperatorId>> = match mode {
        Mode::Kbk => workload.operators.ids().map(|op| vec![op]).collect(),
        Mode::Epilogue | Mode::Fused => kernels_with_epilogues(workload),
    };
    if mode == Mode::Fused && chip.execution == WaferExecution::Pipeline {
        return pipeline::run(chip, workload, &uses, &lists);
    }
    let slices: Vec<&[OperatorId]> = lists.iter().map(Vec::as_slice).collect();
    let all = moved(workload, &uses, &slices, &|_| false);
    let held = live(workload, &uses, mode, &lists, &all);
    let most = held.iter().copied().fold(0.0, f64::max);
    if most > chip.activation_bytes() {
        return Err(out_of_memory(chip, workload, mode, most));
    }
    let time = |((operators, moved), &held): ((&Vec<OperatorId>, &Moved), &f64)| {
        Kernel { chip, workload, uses: &uses, operators, moved, mode, held }.time()
    };
    let timed: Vec<Timed> = lists.iter().zip(&all).zip(&held).map(time).collect();
    let mut outcome = kernels::outcome(&account::machine(chip, workload, mode), workload, mode, &lists, &timed);
    outcome.notes = notes(chip, workload, mode, most);
    outcome.notes.extend(workload.pruned_as_dense(false));
    Ok(outcome)
}

/// Bytes of activations that are on the wafer through each kernel: in mode `fused` from the kernel that makes them to the last that
/// reads them, else what the kernel reads and makes itself.
fn live(workload: &Workload, uses: &Uses, mode: Mode, lists: &[Vec<OperatorId>], all: &[Moved]) -> Vec<f64> {
    let kernel_of = kernel_of(workload, lists);
    let mut changes = vec![0.0; lists.len() + 1];
    let mut seen = vec![false; workload.tensors.len()];
    for (at, moved) in all.iter().enumerate() {
        for &tensor in moved.reads.iter().chain(&moved.writes) {
            let base = workload.base(tensor);
            let tensor = &workload.tensors[base];
            let is_known = mode == Mode::Fused && std::mem::replace(&mut seen[base.index()], true);
            if tensor.role == TensorRole::Weight || is_kept_outside(workload, uses, base) || is_known {
                continue;
            }
            let readers = uses.consumers(workload, base).iter().filter(|_| mode == Mode::Fused);
            let last = readers.map(|op| kernel_of[op.index()]).max().unwrap_or(at).max(at);
            // What every repetition of a block keeps for another phase is there as often.
            let phase = |at: usize| workload.operators[lists[at][0]].phase;
            let times = if mode == Mode::Fused && phase(at) != phase(last) { tensor.repeat } else { 1 };
            let bytes = tensor.stored_bytes() as f64 * times as f64;
            changes[at] += bytes;
            changes[last + 1] -= bytes;
        }
    }
    let mut sum = 0.0;
    let running = |change: &f64| {
        sum += change;
        sum
    };
    changes[..lists.len()].iter().map(running).collect()
}

fn out_of_memory(chip: &Wafer, workload: &Workload, mode: Mode, most: f64) -> Diagnostic {
    let room = chip.activation_bytes();
    let title = format!(
        "the {} run of `{}` does not fit {}: its activations take {} at a time, the cores have room for {}",
        mode.name(),
        workload.name,
        chip.name,
        ByteSize(most as u64),
        ByteSize(room as u64)
    );
    Diagnostic::new(title)
        .with_help(format!("make the batch smaller by a factor of {:.1}, or {COMPUTE_AGAIN}", most / room))
}

/// What a user should know of the run.
fn notes(chip: &Wafer, workload: &Workload, mode: Mode, most: f64) -> Vec<String> {
    let mut notes = vec![match mode {
        Mode::Fused => {
            "one program: activations stay on the wafer, weights stream in for every operator that reads them"
                .to_owned()
        }
        Mode::Kbk | Mode::Epilogue => {
            "a program a kernel, intermediates leave the wafer: for comparison only".to_owned()
        }
    }];
    notes.push(format!(
        "activations take {} of {} at a time",
        ByteSize(most as u64),
        ByteSize(chip.activation_bytes() as u64)
    ));
    if workload.operators.iter().any(|operator| operator.kind.is_update()) {
        notes.push(
            "the optimiser's step is done off the wafer, where weights and state are: its time is not counted"
                .to_owned(),
        );
    }
    notes
}
