//! `rdusim map`: how a workload is laid out on a chip.

use crate::analysis::{chip_for, execute, graph_on};
use crate::arch::{self, Bsp};
use crate::diagnostics::Diagnostic;
use crate::input::{Given, Override};
use crate::map::{StepPlace, summarize, tell_times, tile_map};
use crate::report;

use super::args::MapArgs;
use super::compare::{refuse_options, write_trace};
use super::execute::Stopwatch;
use super::failure::Failure;
use super::values::{Fidelity, Format, Mapping};
use super::{configured, output, progress};

/// Compiles, and shows the configuration.
pub(super) fn map(args: &MapArgs) -> Result<(), Failure> {
    let sets = args.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    if let Some(bsp) = chip_for("map", &Given::File(args.arch.clone()), &sets)?.bsp() {
        return of_tiles(args, bsp, &sets);
    }
    // The kinds that are left are refused above.
    let chip = arch::load(&args.arch, &sets)?.under(args.mapping.into())?;
    refuse_step(args, &chip.name)?;
    let from = &args.configuration;
    let workload = configured::workload(&args.workload, &args.model, &sets, args.seed, from)?;
    let workload = graph_on(&chip, workload);
    let mut watch = Stopwatch::start();
    let (how, source) = ((args.fidelity.into(), !args.no_skip), configured::source(from));
    let execution = progress::watched("compiling and simulating", || {
        execute(&chip, &workload, &[args.mode.into()], how.0, how.1, &source, &mut |stage| watch.ended(stage))
    })?;
    let configurations = &execution.configurations;
    let mut map = summarize(&chip, &workload, &configurations[0].configuration);
    tell_times(&mut map, &chip, &configurations[0].configuration, &execution.outcomes[0]);
    watch.tell("simulate");
    let text = match args.format {
        Format::Table => report::map_table(&chip, &workload, &map),
        Format::Json | Format::Csv => map.to_json(),
    };
    configured::save(from, &chip, &workload, configurations)?;
    if let Some(path) = &args.trace {
        write_trace(path, &chip, &workload, configurations)?;
    }
    // Files first: standard output shows a result only if everything asked for was done.
    let files = if args.out.is_some() { report::map_files(&chip, &map)? } else { Vec::new() };
    output::show_with_page(args.out.as_deref(), files, &[&args.arch, &args.workload], args.format, &text)
}

/// Steps are of chips of tiles.
fn refuse_step(args: &MapArgs, chip: &str) -> Result<(), Diagnostic> {
    if args.step.is_empty() {
        return Ok(());
    }
    let title = format!("`--step` is for chips of tiles: {chip} has sections, of which every one is drawn");
    Err(Diagnostic::new(title).with_help("leave `--step` out"))
}

/// The plan on a chip of tiles: what every tile does and holds at each step.
fn of_tiles(args: &MapArgs, chip: &Bsp, sets: &[Override]) -> Result<(), Failure> {
    let told = format!("{} is a chip of kind \"bsp\", which is planned superstep by superstep", chip.name);
    let further = [
        (args.trace.is_some(), "--trace"),
        (args.fidelity != Fidelity::Event, "--fidelity"),
        (args.mapping != Mapping::Ideal, "--mapping"),
        (args.no_skip, "--no-skip"),
    ];
    refuse_options(&args.configuration, &further, &told, "docs/ipu.md")?;
    let workload = configured::workload(&args.workload, &args.model, sets, args.seed, &args.configuration)?;
    let map = progress::watched("planning", || tile_map(chip, &workload, args.mode.into()))?;
    let mut places: Vec<StepPlace> = Vec::new();
    for name in &args.step {
        places.extend(map.named(name)?);
    }
    if args.step.is_empty() {
        places.extend(map.notable().into_iter().flatten());
    }
    let files = if args.out.is_some() { report::tile_map_files(&map, &places)? } else { Vec::new() };
    let text = match args.format {
        Format::Table => report::tile_map_table(&map),
        Format::Json | Format::Csv => report::tile_map_json(&map),
    };
    output::show_with_page(args.out.as_deref(), files, &[&args.arch, &args.workload], args.format, &text)
}
