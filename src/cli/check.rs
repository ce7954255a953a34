//! `rdusim check`: what the input files hold, or what is wrong with them.

use super::args::CheckArgs;
use super::failure::Failure;
use super::output;
use crate::arch::{self, Sources, sources};
use crate::diagnostics::Diagnostic;
use crate::input::{Override, Root};
use crate::pod::{self, System};
use crate::{import, report};

/// One line a file; if any is refused, every refusal and no line.
pub(super) fn check(args: &CheckArgs) -> Result<(), Failure> {
    let mut refused = Vec::new();
    let mut sets = Vec::new();
    for text in &args.set {
        match Override::parse(text).and_then(|set| has_file(args, set)) {
            Ok(set) => sets.push(set),
            Err(diagnostic) => refused.push(diagnostic),
        }
    }
    let mut lines = Vec::new();
    if let Some(path) = &args.arch {
        let described = if pod::is_system(path) {
            pod::open(path, &sets).map(|system| format!("system {}", described_system(&system)))
        } else {
            arch::open(path, &sets).map(|chip| format!("chip {}", report::describe_chip(chip.device())))
        };
        match described {
            Ok(described) => {
                let values = std::fs::read_to_string(path).map(|text| told(&sources(&text))).unwrap_or_default();
                lines.push(format!("{}: {described}{values}\n", path.display()));
            }
            Err(diagnostic) => refused.push(diagnostic),
        }
    }
    if let Some(path) = &args.workload {
        let loaded = args.model.options_for(path).and_then(|options| import::load(path, &sets, 0, &options));
        match loaded {
            Ok(graph) => lines.push(format!("{}: workload {}\n", path.display(), report::describe_workload(&graph))),
            Err(diagnostic) => refused.push(diagnostic),
        }
    }
    if refused.is_empty() { output::print_text(&lines.concat()) } else { Err(Failure::Refused(refused)) }
}

/// One line on a system.
fn described_system(system: &System) -> String {
    let levels = system.levels.iter().map(|level| {
        let (members, topology) = (level.members, level.topology.name());
        format!("{} of {members} ({topology}, {:.0} GB/s a member)", level.name, level.member_gb_per_s())
    });
    let stacks: Vec<&str> = system.stacks.iter().map(|stack| stack.kind.name()).collect();
    format!(
        "{}: {} in {}; stacks {}",
        system.name,
        system.chip.device().name(),
        levels.collect::<Vec<_>>().join(", "),
        stacks.join(", ")
    )
}

/// How many values of a chip file are known how well.
fn told(of: &Sources) -> String {
    let counts = [
        (of.published, "published"),
        (of.secondary, "from secondary sources"),
        (of.derived, "derived or fitted"),
        (of.recalled, "recalled"),
        (of.assumed, "assumed"),
        (of.unmarked, "without a mark"),
    ];
    let known: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    format!("; values: {}", known.join(", "))
}

/// Refuses to change a file that was not given.
fn has_file(args: &CheckArgs, set: Override) -> Result<Override, Diagnostic> {
    let (given, flag) = match set.root() {
        Root::Arch => (args.arch.is_some(), "--arch"),
        Root::Workload => (args.workload.is_some(), "--workload"),
    };
    if given {
        Ok(set)
    } else {
        Err(Diagnostic::new(format!("`--set {}` has no file to change", set.raw()))
            .with_help(format!("give `{flag} FILE`")))
    }
}
