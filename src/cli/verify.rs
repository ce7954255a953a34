//! `rdusim verify`: do the configurations compute what the graph says?

use std::io::{self, Write};

use crate::arch::{self, AnyChip};
use crate::compile::Compiled;
use crate::diagnostics::Diagnostic;
use crate::input::Override;
use crate::mode::Mode;
use crate::report;
use crate::verify::{
    Retargeting, Scaling, Verdict, graph_flops, retargeted_from_full_size, scaled, verify as verify_all,
};

use super::args::VerifyArgs;
use super::compare::write_trace;
use super::execute::timed;
use super::failure::Failure;
use super::values::Format;
use super::verify_tiles::verify_tiles;
use super::{configured, output, progress};

/// Compiles, runs on numbers, compares.
pub(super) fn verify(args: &VerifyArgs) -> Result<(), Failure> {
    let sets = args.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    if let AnyChip::Bsp(bsp) = arch::open(&args.arch, &sets)? {
        let workload = configured::workload((&args.workload, &args.model), &sets, args.seed, &args.configuration)?;
        return verify_tiles(args, &bsp, &workload);
    }
    let chip = arch::load(&args.arch, &sets)?.under(args.mapping.into())?;
    let load = |smaller: &[Override]| {
        let all: Vec<Override> = sets.iter().chain(smaller).cloned().collect();
        configured::workload((&args.workload, &args.model), &all, args.seed, &args.configuration)
    };
    let (workload, scaling) = scaled(&chip, args.max_flops, load)?;
    if let Some(scaling) = &scaling {
        tell_scaling(scaling);
    }
    let modes = args.mode.map_or(Mode::ALL.to_vec(), |mode| vec![mode.into()]);
    let (compiling, (runs, verifying)) = progress::watched("compiling and verifying", || -> Result<_, Failure> {
        let (configurations, compiling) = timed(|| -> Result<(Vec<Compiled>, Vec<Retargeting>), Diagnostic> {
            if scaling.is_none() || args.configuration.config.is_some() {
                return Ok((configured::configurations(&args.configuration, &chip, &workload, &modes)?, Vec::new()));
            }
            let like = retargeted_from_full_size(&chip, &load(&[])?, &workload, &modes)?;
            let unmeasured = |configuration| Compiled { configuration, runs: Vec::new() };
            Ok(like.into_iter().map(|(configuration, retargeting)| (unmeasured(configuration), retargeting)).unzip())
        });
        let (measured, retargetings) = configurations?;
        configured::save(&args.configuration, &chip, &workload, &measured)?;
        if let Some(path) = &args.trace {
            write_trace(path, &chip, &workload, &measured)?;
        }
        let configurations = measured.iter().map(|compiled| &compiled.configuration);
        let (mut runs, verifying) = timed(|| verify_all(&chip, &workload, configurations, args.seed));
        for (run, retargeting) in runs.iter_mut().zip(retargetings) {
            run.mapping = Some(retargeting);
        }
        Ok((compiling, (runs, verifying)))
    })?;
    if args.verbose {
        let (compiling, verifying) = (compiling.as_secs_f64(), verifying.as_secs_f64());
        // A closed standard error costs nothing but this line.
        let _ = writeln!(io::stderr().lock(), "compile {compiling:.3} s  verify {verifying:.3} s");
    }
    let failed: Vec<&'static str> = runs.iter().filter(|run| !run.passed).map(|run| run.mode).collect();
    let verdict = Verdict::new(&chip.name, &workload.name, graph_flops(&workload), scaling, runs);
    let text = match args.format {
        Format::Table => report::verify_table(&verdict),
        Format::Json => verdict.to_json(),
    };
    // Files first: standard output shows a result only if everything asked for was done.
    if let Some(directory) = &args.out {
        report::write(directory, &report::verify_files(&verdict))?;
    }
    output::print_as(args.format, &text)?;
    if failed.is_empty() { Ok(()) } else { Err(Failure::Mismatch(failed)) }
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
