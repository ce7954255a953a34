//! `rdusim compare` and `rdusim run`: a workload on a chip, in every mode or in one; or on two chips.

use std::io::{self, Write};
use std::path::Path;

use crate::arch::{self, AnyChip, Chip};
use crate::bsp;
use crate::compile::Compiled;
use crate::diagnostics::Diagnostic;
use crate::gpu;
use crate::input::Override;
use crate::mode::Mode;
use crate::outcome::{self, Outcome, StopReason};
use crate::proof;
use crate::report::{self, Document, Side};
use crate::sim::{SectionTrace, trace};
use crate::study::uncertainty::{self, Draws};
use crate::workload::Workload;

use super::args::{CompareArgs, RunArgs};
use super::execute::{Execution, execute, tell_durations, timed};
use super::failure::Failure;
use super::report::page_files;
use super::run_args::{RangeArgs, SharedArgs};
use super::values::{Fidelity, Format, Mapping};
use super::{configured, output, progress};

/// Every mode, kernel by kernel first.
pub(super) fn compare(args: &CompareArgs) -> Result<(), Failure> {
    execute_all((&args.shared, &args.ranges), &Mode::ALL, args.against.as_deref())
}

/// One mode.
pub(super) fn run(args: &RunArgs) -> Result<(), Failure> {
    execute_all((&args.shared, &args.ranges), &[args.mode.into()], None)
}

/// A chip and what ran on it.
struct Ran {
    chip: AnyChip,
    configurations: Vec<Compiled>,
    outcomes: Vec<Outcome>,
}

impl Ran {
    fn side(&self) -> Side<'_> {
        Side { chip: self.chip.device(), outcomes: &self.outcomes }
    }
}

fn execute_all(
    (args, ranges): (&SharedArgs, &RangeArgs),
    modes: &[Mode],
    against: Option<&Path>,
) -> Result<(), Failure> {
    let sets = args.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    let mut chips = vec![arch::open(&args.arch, &sets)?];
    match &chips[0] {
        AnyChip::Rdu(_) => {}
        AnyChip::Gpu(gpu) => refuse_mapping_options(
            args,
            &format!("{} is a GPU, which is timed kernel by kernel", gpu.name),
            "docs/gpu.md",
        )?,
        AnyChip::Bsp(bsp) => {
            let told = format!("{} is a chip of kind \"bsp\", which is timed superstep by superstep", bsp.name);
            refuse_mapping_options(args, &told, "docs/ipu.md")?;
        }
    }
    if let Some(path) = against {
        // `--set arch.` changes the chip of `--arch` alone.
        chips.push(arch::open(path, &[])?);
    }
    let workload = configured::workload((&args.workload, &args.model), &sets, args.seed, &args.configuration)?;
    let mut sides = Vec::with_capacity(chips.len());
    for (at, chip) in chips.into_iter().enumerate() {
        let ran = on_any(args, chip, &workload, modes, at == 0)?;
        for outcome in &ran.outcomes {
            match &outcome.stop {
                StopReason::Drained => {}
                StopReason::Deadlock(blocked) => {
                    return Err(Failure::Deadlock(outcome.mode.name(), blocked.clone()));
                }
                StopReason::Limit(reached) => return Err(Failure::Limit(outcome.mode.name(), reached.clone())),
            }
        }
        sides.push(ran);
    }

    let shown: Vec<Side<'_>> = sides.iter().map(Ran::side).collect();
    let mut document = match &shown[..] {
        [first, second, ..] => Document::versus(&workload, *first, *second),
        _ => Document::new(shown[0].chip, &workload, shown[0].outcomes),
    };
    if ranges.uncertainty {
        let files: Vec<(&Path, &[Override])> =
            [(args.arch.as_path(), &sets[..])].into_iter().chain(against.map(|path| (path, &[][..]))).collect();
        add_ranges(&mut document, args, ranges.samples, (&workload, modes), &files, &sides)?;
    }
    let json = document.to_json();
    let text = match args.format {
        Format::Json => json.clone(),
        Format::Table if ranges.uncertainty => {
            format!("{}\n{}", report::table_of(&workload, &shown), report::uncertainty_table(&document))
        }
        Format::Table => report::table_of(&workload, &shown),
    };
    if let AnyChip::Rdu(chip) = &sides[0].chip {
        configured::save(&args.configuration, chip, &workload, &sides[0].configurations)?;
        if let Some(path) = &args.trace {
            write_trace(path, chip, &workload, &sides[0].configurations)?;
        }
    }
    // Files first: standard output shows a result only if everything asked for was done.
    if let Some(directory) = &args.out {
        let mut files = report::files_of(&workload, &shown)?;
        if let Some(result) = files.iter_mut().find(|file| file.name == "result.json") {
            result.bytes = json.into_bytes();
        }
        let inputs: Vec<&Path> =
            [args.arch.as_path()].into_iter().chain(against).chain([args.workload.as_path()]).collect();
        let parts: Vec<_> = sides.iter().map(|ran| (&ran.chip, &ran.configurations[..], &ran.outcomes[..])).collect();
        files.extend(page_files(&workload, &parts, &inputs));
        report::write(directory, &files)?;
    }
    output::print_as(args.format, &text)
}

/// Runs every side on draws of its chip file, and puts the ranges into the document.
fn add_ranges(
    document: &mut Document,
    args: &SharedArgs,
    samples: u64,
    (workload, modes): (&Workload, &[Mode]),
    files: &[(&Path, &[Override])],
    sides: &[Ran],
) -> Result<(), Failure> {
    let mut sampled = Vec::with_capacity(sides.len());
    for (at, (&(path, sets), ran)) in files.iter().zip(sides).enumerate() {
        let template = arch::Template::open(path, sets)?;
        let known: Vec<&Override> = sets.iter().collect();
        // Of two chips, each has draws of its own.
        let seed = args.seed.wrapping_add(at as u64);
        let draws = Draws::new(template.text(), &known, samples as usize, seed);
        sampled.push(match &ran.chip {
            AnyChip::Rdu(own) => {
                let chip = |sets: &[Override]| {
                    let sets: Vec<&Override> = sets.iter().collect();
                    template.chip(&sets)?.under(args.mapping.into())
                };
                progress::watched("drawing chips", || {
                    uncertainty::of_rdu(draws, own, workload, &ran.configurations, args.fidelity.into(), &chip)
                })
            }
            AnyChip::Gpu(_) | AnyChip::Bsp(_) => {
                uncertainty::of_plain(draws, workload, modes, &|sets: &[Override]| {
                    let sets: Vec<&Override> = sets.iter().collect();
                    template.any(&sets)
                })
            }
        });
    }
    uncertainty::ranges(document, &sampled[0], args.seed);
    if let [first, second, ..] = &sampled[..] {
        uncertainty::versus(document, first, second);
    }
    Ok(())
}

/// Runs a chip of any kind; `first`: it is the chip of `--arch`.
fn on_any(args: &SharedArgs, chip: AnyChip, workload: &Workload, modes: &[Mode], first: bool) -> Result<Ran, Failure> {
    let (model, (outcomes, duration)) = match &chip {
        AnyChip::Rdu(chip) => return on_rdu(args, chip, workload, modes, first),
        AnyChip::Gpu(gpu) => ("kernels", timed(|| gpu::run(gpu, workload, modes))),
        AnyChip::Bsp(bsp) => ("supersteps", timed(|| bsp::run(bsp, workload, modes))),
    };
    if args.verbose {
        // A closed standard error costs nothing but this line.
        let _ = writeln!(io::stderr().lock(), "{model} {:.3} s", duration.as_secs_f64());
    }
    Ok(Ran { chip, configurations: Vec::new(), outcomes: outcomes? })
}

/// Compiles and simulates on an RDU; `first`: it is the chip of `--arch`, which a saved configuration is for.
fn on_rdu(args: &SharedArgs, chip: &Chip, workload: &Workload, modes: &[Mode], first: bool) -> Result<Ran, Failure> {
    let chip = chip.under(args.mapping.into())?;
    let effort = args.configuration.effort;
    let none = super::run_args::ConfigArgs { effort, ..Default::default() };
    let from = if first { &args.configuration } else { &none };
    let execution = progress::watched("compiling and simulating", || {
        execute(&chip, workload, modes, args.fidelity.into(), from, !args.no_skip)
    })?;
    if args.verbose {
        tell_durations(&execution);
        tell_gaps(&chip, workload, &execution);
    }
    let Execution { configurations, outcomes, .. } = execution;
    Ok(Ran { chip: AnyChip::Rdu(Box::new(chip)), configurations, outcomes })
}

/// Refuses what only the mapping of an RDU has.
fn refuse_mapping_options(args: &SharedArgs, told: &str, page: &str) -> Result<(), Diagnostic> {
    let from = &args.configuration;
    let given = [
        (from.config.is_some(), "--config"),
        (from.save_config.is_some(), "--save-config"),
        (from.sections.is_some(), "--sections"),
        (args.trace.is_some(), "--trace"),
        (args.fidelity != Fidelity::Event, "--fidelity"),
        (args.mapping != Mapping::Ideal, "--mapping"),
    ];
    match given.into_iter().find(|(given, _)| *given) {
        None => Ok(()),
        Some((_, flag)) => {
            Err(Diagnostic::new(format!("`{flag}` is for RDUs: {told}"))
                .with_help(format!("leave `{flag}` out ({page})")))
        }
    }
}

/// Simulates once more, and writes down when what worked.
pub(super) fn write_trace(
    path: &Path,
    chip: &Chip,
    workload: &Workload,
    configurations: &[Compiled],
) -> Result<(), Failure> {
    let runs: Vec<(Mode, Vec<SectionTrace>)> = configurations
        .iter()
        .map(|measured| (measured.configuration.mode, trace(chip, workload, &measured.configuration)))
        .collect();
    Ok(report::write_file(path, report::trace_json(chip, &runs).as_bytes())?)
}

/// How far each mode is from what no mapping beats, on standard error.
fn tell_gaps(chip: &Chip, workload: &Workload, execution: &Execution) {
    // The analytic bound of a configuration is no run: it may be below.
    for outcome in execution.outcomes.iter().filter(|outcome| outcome.fidelity != outcome::Fidelity::Bound) {
        let Some(least) = proof::least_cycles(chip, workload, outcome.mode) else { continue };
        let gap = proof::gap(outcome.cycles, least) * 100.0;
        let _ = writeln!(
            io::stderr().lock(),
            "{}: no mapping takes less than {least} cycles, this one takes {}: gap {gap:.2} %",
            outcome.mode.name(),
            outcome.cycles
        );
    }
}
