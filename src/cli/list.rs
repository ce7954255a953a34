//! `rdusim list` and `rdusim new`: what comes with the program, and files of one's own that begin as a copy of it.

use std::path::{Path, PathBuf};

use clap::{Args, Command, ValueEnum};
use serde::Serialize;

use crate::analysis::{PhaseOn, phases_of_model, phases_of_system};
use crate::arch::AnyChip;
use crate::diagnostics::Diagnostic;
use crate::input::{self, BUILTINS, Builtin, FileKind};
use crate::model::{EXPERT_PRESETS, MAMBA_PRESETS, PRESETS};
use crate::report::human::whole;
use crate::{arch, import, pod, report, workload};

use super::failure::Failure;
use super::output;
use super::takes;
use super::values::Format;

pub(super) const LIST_EXAMPLES: &str = "\
Examples:
  # every chip, system, workload, study and model that comes with rdusim
  rdusim list

  # a name stands for its file wherever a file is taken; a file of that name wins
  rdusim compare --arch sn40l --workload gpt13b-mlp-sparse";

pub(super) const NEW_EXAMPLES: &str = "\
Examples:
  # a chip file to change, every value with its source
  rdusim new chip --from sn40l -o mychip.toml
  rdusim check mychip.toml

  # a workload file to change
  rdusim new workload --from gpt13b-mlp -o mlp.toml";

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Form of the result on standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
}

/// What a new file is to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum NewKind {
    /// One accelerator
    Chip,
    /// Many chips and their links
    System,
    /// An operator graph
    Workload,
    /// A what-if study
    Study,
}

impl NewKind {
    /// The kind of file, and the name that is copied unless another is given.
    fn kind(self) -> (FileKind, &'static str) {
        match self {
            Self::Chip => (FileKind::Chip, "sn40l"),
            Self::System => (FileKind::System, "sn40l-16"),
            Self::Workload => (FileKind::Workload, "gpt13b-mlp"),
            Self::Study => (FileKind::Study, "launch"),
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct NewArgs {
    /// What the file holds
    #[arg(value_enum, value_name = "KIND")]
    pub(super) kind: NewKind,
    /// Built-in name to copy [default: sn40l, sn40l-16, gpt13b-mlp or launch]
    #[arg(long, value_name = "NAME")]
    pub(super) from: Option<String>,
    /// File to write, which must not exist [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
}

/// One line of the list.
#[derive(Serialize)]
struct Entry {
    kind: &'static str,
    name: &'static str,
    about: String,
    /// The kind of a chip.
    #[serde(skip_serializing_if = "Option::is_none")]
    chip: Option<&'static str>,
    /// Phases of `pod` that a system or a model has, and on which chips.
    #[serde(skip_serializing_if = "Option::is_none")]
    phases: Option<Vec<PhaseOn>>,
}

impl Entry {
    /// The line of the table behind the name.
    fn line(&self) -> String {
        let chip = self.chip.map_or_else(String::new, |chip| format!("{chip:8}  "));
        let phases = self.phases.as_ref().map_or_else(String::new, |phases| match &phases[..] {
            [] => "; no phase of `pod`".to_owned(),
            // A system has chips of one kind.
            phases => format!("; pod: {}", takes::in_words(phases, self.kind == "model")),
        });
        format!("{chip}{}{phases}", self.about)
    }
}

/// Prints every built-in name with one line about it.
///
/// `cli` has every command with its arguments.
pub(super) fn list(args: &ListArgs, cli: Command) -> Result<(), Failure> {
    let files = BUILTINS.iter().filter(|file| file.kind == FileKind::System);
    let systems = files.map(|file| pod::open(Path::new(file.name), &[])).collect::<Result<Vec<_>, Diagnostic>>()?;
    let of_systems: Vec<Vec<PhaseOn>> = systems.iter().map(phases_of_system).collect();
    let chips: Vec<&AnyChip> = systems.iter().map(|system| &system.chip).collect();
    let model = |name: &'static str, about: String| Entry {
        kind: "model",
        name,
        about,
        chip: None,
        phases: Some(phases_of_model(name, &chips)),
    };
    let mut phases = of_systems.iter();
    let mut entries = Vec::new();
    for file in BUILTINS {
        entries.push(entry(file, &mut phases)?);
    }
    entries.extend(PRESETS.iter().chain(&EXPERT_PRESETS).chain(&MAMBA_PRESETS).map(|preset| {
        let about = format!(
            "{} parameters, sequences of {} tokens ({})",
            report::count_of_parameters(preset.parameters),
            whole(preset.sequence),
            preset.source
        );
        model(preset.name, about)
    }));
    entries.extend(import::published_models().iter().map(|published| {
        let about = format!(
            "{} parameters, sequences of up to {} tokens ({}); {}",
            report::count_of_parameters(published.parameters()),
            whole(published.positions()),
            published.names.join(", "),
            published.source
        );
        model(&published.name, about)
    }));
    let commands = takes::commands(cli, &of_systems);
    if args.format != Format::Table {
        let json = serde_json::json!({ "schema": 1, "commands": commands, "entries": entries });
        return output::print_as(args.format, &format!("{json:#}\n"));
    }
    let headings = [
        ("chip", "chips, for --arch"),
        ("system", "systems of chips, for `rdusim pod`"),
        ("workload", "workloads, for --workload"),
        ("study", "studies, for `rdusim sweep`"),
        ("model", "models, for `rdusim model` and `rdusim pod --model`"),
    ];
    let width = entries.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let block = |(kind, heading): (&str, &str)| {
        let lines = entries.iter().filter(|entry| entry.kind == kind);
        let lines: Vec<String> = lines.map(|entry| format!("  {:width$}  {}\n", entry.name, entry.line())).collect();
        format!("{heading}\n{}", lines.concat())
    };
    output::print_text(&format!("{}\n{}", headings.map(block).join("\n"), takes::table(&commands)))
}

/// The entry of a file; `phases` are those of the systems, in the order of the files.
fn entry<'p>(file: &'static Builtin, phases: &mut impl Iterator<Item = &'p Vec<PhaseOn>>) -> Result<Entry, Diagnostic> {
    let plain = |kind, about| Entry { kind, name: file.name, about, chip: None, phases: None };
    Ok(match file.kind {
        FileKind::Chip => {
            let chip = arch::parse_any(file.name, file.text, &[])?;
            let device = chip.device();
            Entry { chip: Some(device.kind()), ..plain("chip", report::describe_chip(device)) }
        }
        FileKind::Workload => {
            plain("workload", report::describe_workload(&workload::parse(file.name, file.text, &[], 0)?))
        }
        FileKind::System => Entry { phases: phases.next().cloned(), ..plain("system", first_comment(file.text)) },
        _ => plain("study", first_comment(file.text)),
    })
}

/// The first sentence of a file's head, which says what it holds; all sentences that begin on its first line.
fn first_comment(text: &str) -> String {
    let mut words = String::new();
    for line in text.lines().take_while(|line| line.starts_with('#')) {
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(line.trim_start_matches(['#', ' ']).trim_end());
        if words.ends_with(['.', '?']) {
            break;
        }
    }
    words.strip_suffix('.').map(str::to_owned).unwrap_or(words)
}

/// Writes a copy of a built-in file, with a head that says what to do with it.
pub(super) fn new(args: &NewArgs) -> Result<(), Failure> {
    let (kind, usual) = args.kind.kind();
    let name = args.from.as_deref().unwrap_or(usual);
    let known = || BUILTINS.iter().filter(|file| file.kind == kind).map(|file| file.name);
    let file = input::named(name).filter(|file| file.kind == kind).ok_or_else(|| {
        let names = known().collect::<Vec<_>>().join(", ");
        let title = format!("`--from {name}`: {name:?} is not the name of {} that is built in", kind.described());
        Diagnostic::new(title).with_help(format!("use one of {names}; a file of your own can be copied as it is"))
    })?;
    let text = copy(file);
    let Some(path) = &args.output else { return output::print_text(&text) };
    if path.exists() {
        let title = format!("`--output {}` exists already, and `new` overwrites nothing", path.display());
        return Err(Diagnostic::new(title).with_help("give another name").into());
    }
    Ok(report::write_file(path, text.as_bytes())?)
}

/// The text of a built-in file as one's own: neighbours it names by a path are named as built in.
fn copy(file: &Builtin) -> String {
    let check = "`rdusim check FILE` says what it holds, or what is wrong and where";
    let mut text = format!("# A copy of the built-in `{}`: change `name` and any value. {check}.\n#\n", file.name);
    for line in file.text.split_inclusive('\n') {
        let mut line = line.to_owned();
        for other in BUILTINS {
            let ending = format!("/{}.toml\"", other.name);
            if let Some(end) = line.find(&ending)
                && let Some(start) = line[..end].rfind('"')
                && Path::new(&line[start + 1..end]).is_relative()
            {
                line.replace_range(start..end + ending.len(), &format!("{:?}", other.name));
            }
        }
        text.push_str(&line);
    }
    text
}
