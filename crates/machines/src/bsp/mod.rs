//! Bulk-synchronous chips: operators as supersteps on tiles, each tile with memory of its own.
//!
//! `kbk` is a program an operator, each with its own layouts; `epilogue` puts elementwise operators behind a product into its
//! program; `fused` is one graph program. The slowest tile decides how long a superstep takes, the fullest tile whether it
//! runs at all. `docs/ipu.md` is the timing model; an [`Outcome`] comes out, as of every chip.

mod account;
mod amp;
mod cases;
mod exchanges;
mod execute;
mod gemm;
mod layout;
mod live;
mod operators;
mod phase;
mod sparse;
mod step;
mod stream;
#[cfg(test)]
mod tests;
mod verify;
mod vertex;

pub use self::account::bound_cycles;
pub use self::cases::{gemm_seconds, moved_seconds, sparse_seconds};
pub use self::exchanges::{ExchangeCase, Pattern, Place, exchange_bandwidth, exchange_us};
pub use self::execute::{Executed, execute};
pub use self::gemm::{GemmPlan, Grid, Product, Windows, plan as plan_gemm};
pub use self::layout::{TileOperator, TileStep, layout};
pub use self::phase::{PhaseJob, PhaseTime, phases};
pub use self::sparse::{Blocks, SparsePlan, SparseProduct, dynamic_plan, execute_sparse, sampled_plan, static_plan};
pub use self::step::{Parts, Superstep, TileLoad, most_temporary, parts_of};
pub use self::verify::{VerifiedProduct, verify};

use self::live::{Live, all_bytes};
use self::operators::{Caches, Operators, Planned};
use rdusim_base::diagnostics::{Diagnostic, Origin};
use rdusim_base::index::Id;
use rdusim_base::mode::Mode;
use rdusim_base::units::{ByteSize, Dtype};
use rdusim_graph::arch::{Bsp, SparseKernel};
use rdusim_graph::workload::{COMPUTE_AGAIN, TensorId, Workload, kernels_with_epilogues};
use rdusim_outcome::Outcome;

/// Runs a workload on a chip in each of `modes`.
///
/// # Errors
/// A data type that the tiles do not multiply, or a superstep whose tensors do not fit a tile.
pub fn run(chip: &Bsp, workload: &Workload, modes: &[Mode]) -> Result<Vec<Outcome>, Diagnostic> {
    check_types(chip, workload)?;
    let computing = chip.computing();
    let run = |&mode: &Mode| {
        let bound_cycles = bound_cycles(chip, workload, mode);
        run_mode(&computing, workload, mode).map(|outcome| Outcome { bound_cycles, ..outcome })
    };
    modes.iter().map(run).collect()
}

fn run_mode(chip: &Bsp, workload: &Workload, mode: Mode) -> Result<Outcome, Diagnostic> {
    let program_of = programs(workload, mode);
    let (live, plans) = planned(chip, workload, mode, &program_of)?;
    let streamed = live.chosen(workload);
    let mut outcome = account::outcome(chip, workload, mode, &program_of, &plans);
    outcome.notes = notes(chip, workload, mode, &live, &streamed, &plans);
    outcome.notes.extend(workload.pruned_as_dense(false));
    Ok(outcome)
}

/// The plans of all operators, with as much streamed as has to be.
fn planned(
    chip: &Bsp,
    workload: &Workload,
    mode: Mode,
    program_of: &[usize],
) -> Result<(Live, Vec<Planned>), Diagnostic> {
    let mut live = Live::new(chip, workload);
    let mut caches = Caches::default();
    live.stream_what_must(chip, workload);
    loop {
        let mut operators = Operators::new(chip, workload, mode, &live, program_of, &mut caches);
        let plans: Vec<Planned> = workload.operators.ids().map(|op| operators.plan(op)).collect();
        let Some(worst) = fullest(chip, &plans) else { return Ok((live, plans)) };
        if live.stream_one(workload, plans[worst].op).is_none() {
            return Err(out_of_memory(chip, workload, mode, &plans[worst]));
        }
    }
}

/// The program that each operator is in, by its index.
fn programs(workload: &Workload, mode: Mode) -> Vec<usize> {
    let mut program_of = vec![0; workload.operators.len()];
    match mode {
        Mode::Kbk => program_of.iter_mut().enumerate().for_each(|(at, program)| *program = at),
        Mode::Epilogue => {
            for (program, operators) in kernels_with_epilogues(workload).iter().enumerate() {
                for op in operators {
                    program_of[op.index()] = program;
                }
            }
        }
        Mode::Fused => {}
    }
    program_of
}

fn check_types(chip: &Bsp, workload: &Workload) -> Result<(), Diagnostic> {
    workload.refuse_types(&chip.name, "tile.macs", &chip.tile.macs)
}

/// The operator that lacks most memory, if one does.
fn fullest(chip: &Bsp, plans: &[Planned]) -> Option<usize> {
    let over = |plan: &Planned| plan.peak_bytes - chip.tensor_bytes() as f64;
    let lacking = plans.iter().enumerate().filter(|(_, plan)| over(plan) > 0.0);
    lacking.max_by(|(_, a), (_, b)| over(a).total_cmp(&over(b))).map(|(at, _)| at)
}

/// Names the tile and the step that lack memory, and what would help for the least.
fn out_of_memory(chip: &Bsp, workload: &Workload, mode: Mode, worst: &Planned) -> Diagnostic {
    let operator = &workload.operators[worst.op];
    let step = worst.steps.get(worst.peak_step).map_or("start", |step| step.name.as_str());
    let temporary = most_temporary(&worst.steps);
    let size = |bytes: f64| ByteSize(bytes.max(0.0).ceil() as u64).to_string();
    let short = worst.peak_bytes - chip.tensor_bytes() as f64;
    let title = format!(
        "the {} run of `{}` does not fit {}: tile 0 needs {} of {} in step `{step}` of `{}`, short by {}: {} live longer, {} \
         are of the step",
        mode.name(),
        workload.name,
        chip.name,
        size(worst.peak_bytes),
        size(chip.tensor_bytes() as f64),
        operator.name,
        size(short),
        size(worst.peak_bytes - temporary),
        size(temporary),
    );
    let live = worst.peak_bytes - temporary;
    let reserved = chip.tile.reserved_bytes as f64;
    let all = |bytes: f64| size(bytes * chip.tile.count as f64);
    let help = if short < reserved / 2.0 && reserved > 0.0 {
        format!("if the program is small, `tile.reserved_bytes` = {} leaves the room", (reserved - short).floor())
    } else if temporary > short {
        let parts = (temporary / (temporary - short)).ceil() as u64;
        let rows = workload.tensors[operator.output].rows;
        format!(
            "run the {rows} rows of `{}` in {parts} parts, one after the other: the step then needs that much less",
            operator.name
        )
    } else {
        format!(
            "what lives longer takes {} of all tiles, and there is room for {}: make the batch or the dimensions smaller, or \
             {COMPUTE_AGAIN}",
            all(live),
            all(chip.tensor_bytes() as f64 - temporary)
        )
    };
    let error = Diagnostic::new(title).with_help(help);
    match &operator.declared {
        Some(origin) => {
            error.with_origin(Origin { label: format!("short by {} a tile", size(short)), ..origin.clone() })
        }
        None => error,
    }
}

/// What a user should know of the run.
fn notes(
    chip: &Bsp,
    workload: &Workload,
    mode: Mode,
    live: &Live,
    streamed: &[TensorId],
    plans: &[Planned],
) -> Vec<String> {
    let size = |bytes: f64| ByteSize(bytes.ceil() as u64).to_string();
    let mut notes = vec![match mode {
        Mode::Kbk => {
            "a program an operator: the host starts each, and each changes the layout of what it takes and leaves"
                .to_owned()
        }
        Mode::Epilogue => {
            "a program a product with the elementwise operators behind it, or another operator; the host starts each"
                .to_owned()
        }
        Mode::Fused => {
            "one graph program: results stay on their tiles until an operator needs them elsewhere".to_owned()
        }
    }];
    if let Some(plan) = plans.iter().max_by(|a, b| a.peak_bytes.total_cmp(&b.peak_bytes)) {
        let step = plan.steps.get(plan.peak_step).map_or("start", |step| step.name.as_str());
        notes.push(format!(
            "a tile holds {} throughout, and at most {} of {}, in step `{step}` of `{}`",
            size(live.always_bytes / chip.tile.count as f64),
            size(plan.peak_bytes),
            size(chip.tensor_bytes() as f64),
            workload.operators[plan.op].name
        ));
    }
    if !streamed.is_empty() {
        let bytes: f64 = streamed.iter().map(|&tensor| all_bytes(workload, tensor)).sum();
        let how = match chip.tile.io_tiles {
            0 => "while no tile works (`tile.io_tiles` reserves tiles for it)".to_owned(),
            tiles => format!("behind computation as far as {tiles} tiles have room to read ahead"),
        };
        notes.push(format!(
            "{} of {} tensors cannot be resident and are streamed for every operator that reads them, {how}",
            size(bytes),
            streamed.len()
        ));
    }
    let (sparse, all) = (
        plans.iter().filter(|plan| plan.sparse == Some(true)).count(),
        plans.iter().filter(|plan| plan.sparse.is_some()).count(),
    );
    if all > 0 {
        let kernel =
            SparseKernel::NAMES.iter().find(|(_, kernel)| *kernel == chip.planner.sparse).map_or("", |(name, _)| name);
        notes.push(format!("{sparse} of {all} products with a sparse matrix run on the {kernel} sparse kernel, the others are faster as if it were dense"));
    }
    if workload.tensors.iter().any(|tensor| tensor.dtype == Dtype::Bf16) {
        notes.push("the tiles have no bf16: it is timed as fp16, which has the same bytes".to_owned());
    }
    notes
}
