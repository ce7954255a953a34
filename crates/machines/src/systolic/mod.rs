//! Chips of systolic arrays with vector units, a buffer that software manages, and memory behind it.
//!
//! `kbk` is a program an operator, whose tensors come from memory and go there; `epilogue` computes elementwise operators behind a
//! product in the vector units while the arrays go on; `fused` is one program whose intermediates stay in the buffer as far as
//! there is room. `docs/systolic.md` is the timing model; an [`Outcome`] comes out, as of every chip.

mod account;
mod cases;
mod fold;
mod gemm;
mod kernel;
mod resident;
#[cfg(test)]
mod tests;

pub use self::account::bound_cycles;
pub use self::cases::gemm_seconds;

use self::kernel::Kernel;
use self::resident::Resident;
use crate::kernels::{self, Timed};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::mode::Mode;
use rdusim_base::units::ByteSize;
use rdusim_graph::arch::Systolic;
use rdusim_graph::workload::{OperatorId, Uses, Workload, kernels_with_epilogues, moved};
use rdusim_outcome::Outcome;

/// Runs a workload on a chip in each of `modes`.
///
/// # Errors
/// A data type that the cells do not multiply, or tensors that do not fit the memory.
pub fn run(chip: &Systolic, workload: &Workload, modes: &[Mode]) -> Result<Vec<Outcome>, Diagnostic> {
    workload.refuse_types(&chip.name, "array.cell_macs", &chip.array.cell_macs)?;
    check_room(chip, workload)?;
    Ok(modes.iter().map(|&mode| run_mode(chip, workload, mode)).collect())
}

fn run_mode(chip: &Systolic, workload: &Workload, mode: Mode) -> Outcome {
    let uses = Uses::new(workload);
    let lists: Vec<Vec<OperatorId>> = match mode {
        Mode::Kbk => workload.operators.ids().map(|op| vec![op]).collect(),
        Mode::Epilogue | Mode::Fused => kernels_with_epilogues(workload),
    };
    let slices: Vec<&[OperatorId]> = lists.iter().map(Vec::as_slice).collect();
    let all = moved(workload, &uses, &slices, &|_| false);
    let resident = match mode {
        Mode::Fused => Resident::of(workload, &uses, &lists, &all, chip.resident_bytes()),
        Mode::Kbk | Mode::Epilogue => Resident::none(workload, lists.len()),
    };
    let (timed, stored_folds): (Vec<Timed>, Vec<Option<f64>>) = lists
        .iter()
        .zip(&all)
        .enumerate()
        .map(|(at, (operators, moved))| {
            Kernel { chip, workload, operators, moved, resident: &resident, held: resident.held(at) }.time()
        })
        .unzip();
    let mut outcome = kernels::outcome(&account::machine(chip, workload, mode), workload, mode, &lists, &timed);
    outcome.notes = notes(chip, workload, mode, &stored_folds, &resident);
    outcome.notes.extend(workload.pruned_as_dense(false));
    outcome
}

/// Weights, inputs and results of all repetitions, and of every intermediate as many as are held at once: nothing else is given back
/// while a program runs.
fn check_room(chip: &Systolic, workload: &Workload) -> Result<(), Diagnostic> {
    let own = workload.tensors.iter().zip(workload.held_at_once()).filter(|(tensor, _)| tensor.view.is_none());
    let needed: f64 = own.map(|(tensor, times)| tensor.unmasked_bytes() as f64 * times as f64).sum();
    let capacity = chip.memory.iter().map(|tier| tier.capacity_bytes).sum::<u64>();
    if needed <= capacity as f64 {
        return Ok(());
    }
    let title = format!(
        "`{}` does not fit {}: its tensors take {}, the memory has {}",
        workload.name,
        chip.name,
        ByteSize(needed as u64),
        ByteSize(capacity)
    );
    Err(Diagnostic::new(title).with_help("make the dimensions smaller, or run the part of the model that a chip has"))
}

/// What a user should know of the run.
fn notes(
    chip: &Systolic,
    workload: &Workload,
    mode: Mode,
    stored_folds: &[Option<f64>],
    resident: &Resident,
) -> Vec<String> {
    let mut notes = vec![match mode {
        Mode::Kbk => "a program an operator, tensors come from memory and go there".to_owned(),
        Mode::Epilogue => {
            "a program a product with the elementwise operators behind it in the vector units, or another operator"
                .to_owned()
        }
        Mode::Fused => {
            let most = (0..stored_folds.len()).map(|at| resident.held(at)).fold(0.0, f64::max);
            let staying = workload.tensors.ids().filter(|&id| resident.has(workload, id)).count();
            format!(
                "one program: {staying} intermediates stay in the buffer, at most {} of {} at a time",
                ByteSize(most as u64),
                ByteSize(chip.resident_bytes() as u64)
            )
        }
    }];
    let sparse: Vec<f64> = stored_folds.iter().flatten().copied().collect();
    if !sparse.is_empty() {
        let mean = sparse.iter().sum::<f64>() / sparse.len() as f64;
        notes.push(format!(
            "{} products with a sparse weight run as dense ones but for folds without any stored block: {:.1} % of the folds are \
             computed, and their weights come from memory dense",
            sparse.len(),
            mean * 100.0
        ));
    }
    notes
}
