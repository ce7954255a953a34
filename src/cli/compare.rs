//! `rdusim compare` and `rdusim run`: a workload on a chip, both ways or one.

use std::io::{self, Write};
use std::path::Path;

use super::args::{CompareArgs, Format, RunArgs, SharedArgs};
use super::execute::{Execution, execute};
use super::failure::Failure;
use super::report::page_files;
use super::{configured, output, progress};
use crate::arch::{self, Chip};
use crate::input::Override;
use crate::report::{self, Document};
use crate::sim::{Measured, Mode, SectionTrace, StopReason, trace};
use crate::workload::Workload;

/// Both ways, kernel by kernel first.
pub(super) fn compare(args: &CompareArgs) -> Result<(), Failure> {
    execute_all(&args.shared, &[Mode::Kbk, Mode::Fused])
}

/// One way.
pub(super) fn run(args: &RunArgs) -> Result<(), Failure> {
    execute_all(&args.shared, &[args.mode.into()])
}

fn execute_all(args: &SharedArgs, modes: &[Mode]) -> Result<(), Failure> {
    let sets = args.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    let chip = arch::load(&args.arch, &sets)?.under(args.mapping.into())?;
    let workload = configured::workload((&args.workload, &args.model), &sets, args.seed, &args.configuration)?;
    let execution = progress::watched("compiling and simulating", || {
        execute(&chip, &workload, modes, args.fidelity.into(), &args.configuration, !args.no_skip)
    })?;
    if args.verbose {
        tell_durations(&execution);
    }
    let outcomes = &execution.outcomes;
    for outcome in outcomes {
        match &outcome.stop {
            StopReason::Drained => {}
            StopReason::Deadlock(blocked) => {
                return Err(Failure::Deadlock(outcome.mode.name(), blocked.clone()));
            }
            StopReason::Limit(reached) => return Err(Failure::Limit(outcome.mode.name(), reached.clone())),
        }
    }

    let text = match args.format {
        Format::Table => report::table(&chip, &workload, outcomes),
        Format::Json => Document::new(&chip, &workload, outcomes).to_json(),
    };
    configured::save(&args.configuration, &chip, &workload, &execution.configurations)?;
    if let Some(path) = &args.trace {
        write_trace(path, &chip, &workload, &execution.configurations)?;
    }
    // Files first: standard output shows a result only if everything asked for was done.
    if let Some(directory) = &args.out {
        let mut files = report::files(&chip, &workload, outcomes)?;
        let inputs = [args.arch.as_path(), args.workload.as_path()];
        files.extend(page_files(&chip, &workload, &execution.configurations, outcomes, &inputs));
        report::write(directory, &files)?;
    }
    output::print(text.as_bytes())
}

/// Simulates once more, and writes down when what worked.
pub(super) fn write_trace(
    path: &Path,
    chip: &Chip,
    workload: &Workload,
    configurations: &[Measured],
) -> Result<(), Failure> {
    let runs: Vec<(Mode, Vec<SectionTrace>)> = configurations
        .iter()
        .map(|measured| (measured.configuration.mode, trace(chip, workload, &measured.configuration)))
        .collect();
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = report::File { name, bytes: report::trace_json(chip, &runs).into_bytes() };
    Ok(report::write(directory, &[file])?)
}

pub(super) fn tell_durations(execution: &Execution) {
    let (compiling, simulating) = (execution.compiling.as_secs_f64(), execution.simulating.as_secs_f64());
    // A closed standard error costs nothing but this line.
    let _ = writeln!(io::stderr().lock(), "compile {compiling:.3} s  simulate {simulating:.3} s");
}
