//! `rdusim compare` and `rdusim run`: a workload on a chip, in every mode or in one; or on several chips.

use std::path::{Path, PathBuf};

use crate::analysis::{self, Options, Ran, Source, Uncertainty};
use crate::arch::{self, AnyChip, Chip};
use crate::compile::Compiled;
use crate::diagnostics::Diagnostic;
use crate::input::{Given, Override};
use crate::mode::Mode;
use crate::outcome::Outcome;
use crate::report::{self, Side};
use crate::sim::{MOST_SPANS, SectionTrace, trace};
use crate::workload::Workload;

use super::args::{CompareArgs, RunArgs};
use super::execute::Stopwatch;
use super::failure::Failure;
use super::made::made;
use super::ranged::Asked;
use super::run_args::{ConfigArgs, RangeArgs, SharedArgs};
use super::values::{Fidelity, Format, Mapping};
use super::{configured, output, progress, verbose};

/// Every mode, kernel by kernel first.
pub(super) fn compare(args: &CompareArgs) -> Result<(), Failure> {
    execute_all(&args.shared, &args.ranges, &Mode::ALL, &args.against)
}

/// One mode.
pub(super) fn run(args: &RunArgs) -> Result<(), Failure> {
    execute_all(&args.shared, &args.ranges, &[args.mode.into()], &[])
}

/// Most chips beside the first: more do not fit a terminal.
const MOST_AGAINST: usize = 5;

fn execute_all(args: &SharedArgs, ranges: &RangeArgs, modes: &[Mode], against: &[PathBuf]) -> Result<(), Failure> {
    if against.len() > MOST_AGAINST {
        let title =
            format!("`--against` names {} chips, and at most {MOST_AGAINST} have room beside the first", against.len());
        return Err(Diagnostic::new(title).with_help("compare fewer chips at a time").into());
    }
    if (Asked { args, ranges, modes, is_against: !against.is_empty() }).answered()? {
        return Ok(());
    }
    let sets = args.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    let mut chips = vec![arch::open(&args.arch, &sets)?];
    let kind = chips[0].kind();
    if let Some(unit) = kind.timed_by {
        let told = format!("{} is {}, which is timed {unit} by {unit}", chips[0].device().name(), kind.called);
        refuse_mapping_options(args, &told, kind.page)?;
    }
    for path in against {
        // `--set arch.` changes the chip of `--arch` alone.
        chips.push(arch::open(path, &[])?);
    }
    let workload = configured::workload(&args.workload, &args.model, &sets, args.seed, &args.configuration)?;
    let mut sides = Vec::with_capacity(chips.len());
    for (at, chip) in chips.into_iter().enumerate() {
        let ran = run_on(args, chip, &workload, modes, at == 0)?;
        ran.drained()?;
        sides.push(ran);
    }
    let Some(mut document) = analysis::document(&workload, &sides, &options(args, true), args.seed) else {
        return Ok(());
    };
    if ranges.uncertainty {
        let first = (Given::from(args.arch.as_path()), &sets[..]);
        let files: Vec<(Given, &[Override])> =
            std::iter::once(first).chain(against.iter().map(|path| (path.as_path().into(), &[][..]))).collect();
        let how = Uncertainty { samples: ranges.samples, seed: args.seed };
        let options = options(args, true);
        progress::watched("drawing chips", || {
            analysis::add_ranges(&mut document, how, &options, &workload, modes, &files, &sides)
        })?;
    }
    let shown: Vec<Side<'_>> = sides.iter().map(Ran::side).collect();
    let json = document.to_json();
    let text = match args.format {
        Format::Json | Format::Csv => json.clone(),
        Format::Table if !args.full => report::screen_of(&workload, &shown, &document),
        Format::Table if ranges.uncertainty => {
            format!("{}\n{}", report::table_of(&workload, &shown), report::uncertainty_table(&document))
        }
        Format::Table => report::table_of(&workload, &shown),
    };
    if let Some(chip) = sides[0].chip.rdu() {
        let graph = sides[0].graph(&workload);
        configured::save(&args.configuration, chip, graph, &sides[0].configurations)?;
        if let Some(path) = &args.trace {
            write_trace(path, chip, graph, &sides[0].configurations)?;
        }
    }
    // Files first: standard output shows a result only if everything asked for was done.
    if let Some(directory) = &args.out {
        let mut files = report::files_of(&workload, &shown)?;
        if let Some(result) = files.iter_mut().find(|file| file.name == "result.json") {
            result.bytes = json.into_bytes();
        }
        let chips = std::iter::once(&args.arch).chain(against);
        let inputs: Vec<&Path> = chips.chain([&args.workload]).map(PathBuf::as_path).collect();
        files.extend(analysis::page(&workload, &sides, &document, made(&inputs)));
        report::write(directory, &files)?;
    }
    output::print_as(args.format, &text)
}

/// How the arguments ask for a run; `first`: on the chip of `--arch`, which a saved configuration is for.
fn options(args: &SharedArgs, first: bool) -> Options {
    let from = &args.configuration;
    Options {
        fidelity: args.fidelity.into(),
        quality: args.mapping.into(),
        skip: !args.no_skip,
        source: if first { configured::source(from) } else { Source::Compiler(from.effort.into()) },
    }
}

/// Compiles and simulates on a chip.
fn run_on(args: &SharedArgs, chip: AnyChip, workload: &Workload, modes: &[Mode], first: bool) -> Result<Ran, Failure> {
    let mut watch = Stopwatch::start();
    let options = options(args, first);
    let ran = progress::watched("compiling and simulating", || {
        Ran::on(chip, workload, modes, &options, &mut |stage| watch.ended(stage))
    })?;
    match ran.chip.kind().timed_by {
        None => {
            watch.tell("simulate");
            tell_gaps(&ran.outcomes, &watch);
        }
        Some(unit) => verbose::time(&format!("{unit}s {:.3} s", watch.running.as_secs_f64())),
    }
    Ok(ran)
}

/// Refuses what only the mapping of an RDU has.
fn refuse_mapping_options(args: &SharedArgs, told: &str, page: &str) -> Result<(), Diagnostic> {
    let further = [
        (args.trace.is_some(), "--trace"),
        (args.fidelity != Fidelity::Event, "--fidelity"),
        (args.mapping != Mapping::Ideal, "--mapping"),
    ];
    refuse_options(&args.configuration, &further, told, page)
}

/// Refuses options of a configuration, and whichever of `further` are given: they are for RDUs, and the chip is what is `told`.
pub(super) fn refuse_options(
    from: &ConfigArgs,
    further: &[(bool, &str)],
    told: &str,
    page: &str,
) -> Result<(), Diagnostic> {
    let of_configuration = [
        (from.config.is_some(), "--config"),
        (from.save_config.is_some(), "--save-config"),
        (from.sections.is_some(), "--sections"),
    ];
    match of_configuration.iter().chain(further).find(|(given, _)| *given) {
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
    let cut: Vec<&str> =
        runs.iter().flat_map(|(_, run)| run).filter(|of| of.is_cut).map(|of| of.name.as_str()).collect();
    if !cut.is_empty() {
        progress::note(&format!("`--trace`: of {} only the first {MOST_SPANS} spans are recorded", cut.join(", ")));
    }
    Ok(report::write_file(path, report::trace_json(chip, &runs).as_bytes())?)
}

/// How far each mode is from what no mapping beats, and how long that took to know, on standard error.
fn tell_gaps(outcomes: &[Outcome], watch: &Stopwatch) {
    verbose::time(&format!("bound {:.3} s", watch.bounding.as_secs_f64()));
    for outcome in outcomes {
        let Some((least, gap)) = outcome.least_cycles.zip(outcome.gap()) else { continue };
        verbose::time(&format!(
            "{}: no mapping takes less than {least} cycles, this one takes {}: gap {:.2} %",
            outcome.mode.name(),
            outcome.cycles,
            gap * 100.0
        ));
    }
}
