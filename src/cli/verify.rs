//! `rdusim verify`: do the configurations compute what the graph says?

use std::io::{self, Write};
use std::path::Path;

use crate::analysis::{self, VerifyRequest};
use crate::arch;
use crate::input::{Given, Override};
use crate::mode::Mode;
use crate::report;
use crate::verify::Scaling;

use super::args::VerifyArgs;
use super::compare::write_trace;
use super::execute::Stopwatch;
use super::failure::Failure;
use super::values::Format;
use super::verify_tiles::verify_tiles;
use super::{configured, output, progress};

/// Compiles, runs on numbers, compares.
pub(super) fn verify(args: &VerifyArgs) -> Result<(), Failure> {
    let sets = args.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    if let Some(bsp) = analysis::chip_for("verify", &Given::File(args.arch.clone()), &sets)?.bsp() {
        let workload = configured::workload(&args.workload, &args.model, &sets, args.seed, &args.configuration)?;
        return verify_tiles(args, bsp, &workload);
    }
    let chip = arch::load(&args.arch, &sets)?.under(args.mapping.into())?;
    let load = |smaller: &[Override]| {
        let all: Vec<Override> = sets.iter().chain(smaller).cloned().collect();
        configured::workload(&args.workload, &args.model, &all, args.seed, &args.configuration)
    };
    let modes = args.mode.map_or(Mode::ALL.to_vec(), |mode| vec![mode.into()]);
    let source = configured::source(&args.configuration);
    let request = VerifyRequest { chip: &chip, modes: &modes, max_flops: args.max_flops, seed: args.seed, source };
    let mut watch = Stopwatch::start();
    let verified = progress::watched("compiling and verifying", || {
        analysis::verify(&request, &load, &mut tell_scaling, &mut |stage| watch.ended(stage))
    })?;
    configured::save(&args.configuration, &chip, &verified.workload, &verified.configurations)?;
    if let Some(path) = &args.trace {
        write_trace(path, &chip, &verified.workload, &verified.configurations)?;
    }
    watch.tell("verify");
    let text = match args.format {
        Format::Table => report::verify_table(&verified.verdict),
        Format::Json | Format::Csv => verified.verdict.to_json(),
    };
    // Files first: standard output shows a result only if everything asked for was done.
    if let Some(directory) = &args.out {
        let inputs: [&Path; 2] = [&args.arch, &args.workload];
        report::write(
            directory,
            &output::with_page(Some(directory), report::verify_files(&verified.verdict), &inputs)?,
        )?;
    }
    output::print_as(args.format, &text)?;
    if verified.failed.is_empty() { Ok(()) } else { Err(Failure::Mismatch(verified.failed)) }
}

fn tell_scaling(scaling: &Scaling) {
    let changed = scaling.dims.iter().filter(|dim| dim.from != dim.to);
    let dims: Vec<String> = changed.map(|dim| format!("{} {} -> {}", dim.name, dim.from, dim.to)).collect();
    let _ = writeln!(
        io::stderr().lock(),
        "verified smaller, to stay below --max-flops {} (the graph needs {}): {}",
        scaling.max_flops,
        scaling.full_flops,
        dims.join(", ")
    );
}
