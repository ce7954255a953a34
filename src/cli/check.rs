//! `rdusim check`: what the input files hold, or what is wrong with them.

use std::path::Path;

use super::args::CheckArgs;
use super::failure::Failure;
use super::output;
use crate::arch::{self, Device, Sources, sources};
use crate::diagnostics::Diagnostic;
use crate::input::{self, FileKind, Override, Root};
use crate::pod::{self, System};
use crate::study::sweep::Study;
use crate::units::Dtype;
use crate::{import, report};

/// One line a file; if any is refused, every refusal and no line.
pub(super) fn check(args: &CheckArgs) -> Result<(), Failure> {
    let mut given: Vec<(&Path, FileKind)> = Vec::new();
    given.extend(args.arch.iter().map(|path| (path.as_path(), FileKind::Chip)));
    given.extend(args.workload.iter().map(|path| (path.as_path(), FileKind::Workload)));
    given.extend(args.files.iter().map(|path| (path.as_path(), kind_of(path))));
    let mut refused = Vec::new();
    let mut sets = Vec::new();
    for text in &args.set {
        match Override::parse(text).and_then(|set| has_file(&given, set)) {
            Ok(set) => sets.push(set),
            Err(diagnostic) => refused.push(diagnostic),
        }
    }
    let mut lines = Vec::new();
    for &(path, kind) in &given {
        match described(args, path, kind, &sets) {
            Ok(described) => lines.push(format!("{}: {described}\n", path.display())),
            Err(diagnostic) => refused.push(diagnostic),
        }
    }
    if refused.is_empty() { output::print_text(&lines.concat()) } else { Err(Failure::Refused(refused)) }
}

/// What a file seems to hold, so that what is wrong with it is said in the words of its kind.
fn kind_of(path: &Path) -> FileKind {
    // Networks are known by their names, and may be large.
    match FileKind::of(path, "") {
        FileKind::Model => FileKind::Model,
        _ => FileKind::of(path, &input::text_of(path).unwrap_or_default()),
    }
}

/// One line on a file.
fn described(args: &CheckArgs, path: &Path, kind: FileKind, sets: &[Override]) -> Result<String, Diagnostic> {
    let needs_more = |help: &str| {
        let title =
            format!("`{}` is {}, which is checked against what it belongs to", path.display(), kind.described());
        Err(Diagnostic::new(title).with_help(help))
    };
    match kind {
        FileKind::Chip | FileKind::System => {
            let described = if pod::is_system(path) {
                format!("system {}", described_system(&pod::open(path, sets)?))
            } else {
                let chip = arch::open(path, sets)?;
                format!("chip {}{}", report::describe_chip(chip.device()), multiplied(chip.device()))
            };
            let values = input::text_of(path).map(|text| told(&sources(&text))).unwrap_or_default();
            Ok(format!("{described}{values}"))
        }
        FileKind::Workload | FileKind::Model => {
            let graph = import::load(path, sets, 0, &args.model.options_for(path)?)?;
            let from = if kind == FileKind::Model { "model, as the workload" } else { "workload" };
            let mut text = format!("{from} {}", report::describe_workload(&graph));
            for note in &graph.notes {
                text.push_str("\n  note: ");
                text.push_str(note);
            }
            Ok(text)
        }
        FileKind::Study => {
            let study = Study::open(path, &[], None)?;
            let (points, axes) = (study.points(), study.axes());
            Ok(format!(
                "study {}: {}, {}",
                study.name(),
                report::counted(points, "point"),
                report::counted(axes, "axis")
            ))
        }
        FileKind::Configuration => needs_more("`rdusim run --config FILE` checks it and runs it"),
        FileKind::Sections => needs_more("`rdusim run --sections FILE` checks it against the workload"),
        FileKind::Result => needs_more("`rdusim report FILE` makes a page of it, `rdusim diff` compares two"),
        FileKind::Unknown => {
            // A file that cannot be read is told as one.
            arch::open(path, &[])?;
            let title = format!("`{}` holds neither a chip, a system, a workload, a study nor a model", path.display());
            Err(Diagnostic::new(title).with_help("give `--arch FILE` or `--workload FILE` to be told what is missing"))
        }
    }
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

/// The data types that a chip multiplies, and those that it multiplies as another.
fn multiplied(chip: &dyn Device) -> String {
    let native = chip.dtypes().into_iter().filter(|dtype| !chip.emulated().contains_key(dtype));
    let native: Vec<&str> = native.map(Dtype::name).collect();
    let emulated: Vec<String> = chip.emulated().iter().map(|(of, wide)| format!("{of} as {wide}")).collect();
    let others = if emulated.is_empty() { String::new() } else { format!(", and {}", emulated.join(", ")) };
    format!("; multiplies {}{others}", native.join(", "))
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
fn has_file(given: &[(&Path, FileKind)], set: Override) -> Result<Override, Diagnostic> {
    let (kinds, flag) = match set.root() {
        Root::Arch => (&[FileKind::Chip, FileKind::System][..], "--arch"),
        Root::Workload => (&[FileKind::Workload, FileKind::Model][..], "--workload"),
    };
    if given.iter().any(|(_, kind)| kinds.contains(kind)) {
        Ok(set)
    } else {
        Err(Diagnostic::new(format!("`--set {}` has no file to change", set.raw()))
            .with_help(format!("give `{flag} FILE`")))
    }
}
