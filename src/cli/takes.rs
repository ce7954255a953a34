//! What each command takes, for `rdusim list`: from the arguments that are parsed, and from what commands refuse.

use clap::{Arg, Command};
use serde::Serialize;

use crate::analysis::{PhaseOn, TAKES};
use crate::arch::KINDS;

/// A command, and what it takes.
#[derive(Debug, Serialize)]
pub(super) struct CommandTakes {
    command: String,
    about: String,
    /// Arguments and options that must be given.
    given: Vec<String>,
    /// Values of its option `--phase`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    phases: Vec<CommandPhase>,
    /// Kinds of chips, where it runs on a chip.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    chips: Vec<&'static str>,
    /// What chips of other kinds lack.
    #[serde(skip_serializing_if = "str::is_empty")]
    others_lack: &'static str,
}

/// A phase of a command.
#[derive(Debug, Serialize)]
struct CommandPhase {
    phase: String,
    /// Kinds of the chips of the systems that have it; of a command that takes no system, none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    chips: Vec<&'static str>,
}

/// Every command of the command line but `help`; `systems` has the phases of each system that comes along.
pub(super) fn commands(mut cli: Command, systems: &[Vec<PhaseOn>]) -> Vec<CommandTakes> {
    cli.build();
    let all = cli.get_subcommands().filter(|command| command.get_name() != "help");
    all.map(|command| takes(command, systems)).collect()
}

fn takes(command: &Command, systems: &[Vec<PhaseOn>]) -> CommandTakes {
    let named = |name: &'static str| command.get_arguments().find(move |argument| argument.get_id() == name);
    let on_systems = if named("system").is_some() { systems } else { &[] };
    let on_phase = |phase: &str| -> Vec<&'static str> {
        let with: Vec<&PhaseOn> = on_systems.iter().flatten().filter(|of| of.phase == phase).collect();
        KINDS.into_iter().filter(|kind| with.iter().any(|of| of.chips.contains(kind))).collect()
    };
    let phases = named("phase").map(Arg::get_possible_values).unwrap_or_default();
    let on_chips = TAKES.iter().find(|takes| takes.command == command.get_name());
    CommandTakes {
        command: command.get_name().to_owned(),
        about: command.get_about().map(ToString::to_string).unwrap_or_default(),
        given: command.get_arguments().filter(|argument| argument.is_required_set()).map(written).collect(),
        phases: phases
            .iter()
            .map(|phase| CommandPhase { phase: phase.get_name().to_owned(), chips: on_phase(phase.get_name()) })
            .collect(),
        chips: on_chips.map(|takes| takes.chips.to_vec()).unwrap_or_default(),
        others_lack: on_chips.map_or("", |takes| takes.others_lack),
    }
}

/// An argument as it is written: an option by its flag, any other by the name of its value.
fn written(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default().join(" ");
    argument.get_long().map_or(values, |flag| format!("--{flag}"))
}

/// Commands as lines: what must be given, the kinds of chips, and phases.
pub(super) fn table(commands: &[CommandTakes]) -> String {
    let width = commands.iter().map(|command| command.command.len()).max().unwrap_or(0);
    let lines: Vec<String> =
        commands.iter().map(|command| format!("  {:width$}  {}\n", command.command, line(command))).collect();
    format!("commands: what each must be given, the kinds of chips that it takes, and its phases\n{}", lines.concat())
}

fn line(command: &CommandTakes) -> String {
    let mut parts = Vec::new();
    if !command.given.is_empty() {
        parts.push(command.given.join(" "));
    }
    if !command.chips.is_empty() {
        parts.push(format!("chips: {}", command.chips.join(", ")));
    }
    if !command.others_lack.is_empty() {
        parts.push(format!("others lack {}", command.others_lack));
    }
    if !command.phases.is_empty() {
        let phases = command.phases.iter().map(|of| Phase { name: &of.phase, chips: &of.chips });
        parts.push(format!("--phase {}", joined(phases)));
    }
    if parts.is_empty() { "nothing must be given".to_owned() } else { parts.join("; ") }
}

/// The phases of a system or a model, in words.
pub(super) fn in_words(phases: &[PhaseOn], tells_chips: bool) -> String {
    let chips = |of: &'_ PhaseOn| if tells_chips { of.chips.clone() } else { Vec::new() };
    let with: Vec<PhaseOn> = phases.iter().map(|of| PhaseOn { phase: of.phase, chips: chips(of) }).collect();
    joined(with.iter().map(|of| Phase { name: of.phase, chips: &of.chips }))
}

/// A phase, and the kinds of chips that are said of it.
struct Phase<'p> {
    name: &'p str,
    chips: &'p [&'static str],
}

/// Phases one behind the other, the kinds of chips behind the last of those that share them.
fn joined<'p>(phases: impl Iterator<Item = Phase<'p>>) -> String {
    let list: Vec<Phase<'p>> = phases.collect();
    let words = list.iter().enumerate().map(|(at, phase)| {
        let is_last = list.get(at + 1).is_none_or(|next| next.chips != phase.chips);
        let chips =
            if phase.chips.is_empty() || !is_last { String::new() } else { format!(" ({})", phase.chips.join(", ")) };
        format!("{}{chips}", phase.name)
    });
    words.collect::<Vec<_>>().join(", ")
}
