//! `rdusim map`: how a workload is laid out on a chip.

use crate::analysis::{execute, graph_on};
use crate::input::Override;
use crate::map::{summarize, tell_times};
use crate::{arch, report};

use super::args::MapArgs;
use super::compare::write_trace;
use super::execute::Stopwatch;
use super::failure::Failure;
use super::values::Format;
use super::{configured, output, progress};

/// Compiles, and shows the configuration.
pub(super) fn map(args: &MapArgs) -> Result<(), Failure> {
    let sets = args.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    let chip = arch::load(&args.arch, &sets)?.under(args.mapping.into())?;
    let from = &args.configuration;
    let workload = configured::workload((&args.workload, &args.model), &sets, args.seed, from)?;
    let workload = graph_on(&chip, workload);
    let mut watch = Stopwatch::start();
    let (how, source) = ((args.fidelity.into(), !args.no_skip), configured::source(from));
    let execution = progress::watched("compiling and simulating", || {
        execute(&chip, &workload, &[args.mode.into()], how, &source, &mut |stage| watch.ended(stage))
    })?;
    let configurations = &execution.configurations;
    let mut map = summarize(&chip, &workload, &configurations[0].configuration);
    tell_times(&mut map, &chip, &configurations[0].configuration, &execution.outcomes[0]);
    if args.verbose {
        watch.tell("simulate");
    }
    let text = match args.format {
        Format::Table => report::map_table(&chip, &workload, &map),
        Format::Json => map.to_json(),
    };
    configured::save(from, &chip, &workload, configurations)?;
    if let Some(path) = &args.trace {
        write_trace(path, &chip, &workload, configurations)?;
    }
    // Files first: standard output shows a result only if everything asked for was done.
    if let Some(directory) = &args.out {
        report::write(directory, &report::map_files(&chip, &map)?)?;
    }
    output::print_as(args.format, &text)
}
