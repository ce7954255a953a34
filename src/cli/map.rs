//! `rdusim map`: how a workload is laid out on a chip.

use std::io::{self, Write};

use super::args::{Format, MapArgs};
use super::execute::timed;
use super::failure::Failure;
use super::{configured, output, progress};
use crate::input::Override;
use crate::map::survey;
use crate::{arch, report};

/// Compiles, and shows the configuration.
pub(super) fn map(args: &MapArgs) -> Result<(), Failure> {
    let sets = args.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    let chip = arch::load(&args.arch, &sets)?.under(args.mapping.into())?;
    let from = &args.configuration;
    let workload = configured::workload(&args.workload, &sets, args.seed, from)?;
    let modes = [args.mode.into()];
    let (configurations, compiling) =
        progress::watched("compiling", || timed(|| configured::configurations(from, &chip, &workload, &modes)));
    let configurations = configurations?;
    let map = survey(&chip, &workload, &configurations[0].configuration);
    if args.verbose {
        // A closed standard error costs nothing but this line.
        let _ = writeln!(io::stderr().lock(), "compile {:.3} s", compiling.as_secs_f64());
    }
    let text = match args.format {
        Format::Table => report::map_table(&chip, &workload, &map),
        Format::Json => map.to_json(),
    };
    configured::save(from, &chip, &workload, &configurations)?;
    // Files first: standard output shows a result only if everything asked for was done.
    if let Some(directory) = &args.out {
        report::write(directory, &report::map_files(&chip, &map)?)?;
    }
    output::print(text.as_bytes())
}
