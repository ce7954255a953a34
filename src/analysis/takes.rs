//! Which commands take which chips, and which phases systems and models have: what commands refuse, and what `rdusim list` shows.
//!
//! Nothing here is said twice: commands refuse chips by [`TAKES`], and phases are those of which the checks of `pod` refuse none.

use serde::Serialize;

use super::pod::{served, trained};
use crate::arch::{self, AnyChip, KINDS};
use crate::diagnostics::Diagnostic;
use crate::input::{Given, Override};
use crate::pod::{System, check_served, check_trained};

/// A command that runs on a chip.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Takes {
    /// The command.
    pub command: &'static str,
    /// Kinds of chips that it takes.
    pub chips: &'static [&'static str],
    /// What chips of other kinds lack.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub others_lack: &'static str,
}

/// Every command that runs on a chip.
pub const TAKES: [Takes; 8] = [
    Takes { command: "run", chips: &KINDS, others_lack: "" },
    Takes { command: "compare", chips: &KINDS, others_lack: "" },
    Takes { command: "explain", chips: &KINDS, others_lack: "" },
    Takes { command: "sweep", chips: &KINDS, others_lack: "" },
    Takes { command: "map", chips: &["rdu", "bsp"], others_lack: "a placement of operators" },
    Takes { command: "verify", chips: &["rdu", "bsp"], others_lack: "a configuration that could be run on numbers" },
    Takes { command: "prove", chips: &["rdu"], others_lack: "a grid to map operators onto" },
    Takes { command: "calibrate", chips: &["rdu"], others_lack: "limits of a vendor's compiler" },
];

/// Reads a chip for a command.
///
/// # Errors
/// Besides what is wrong with the file: a chip of a kind that the command does not take.
pub fn chip_for(command: &str, given: &Given, sets: &[Override]) -> Result<AnyChip, Diagnostic> {
    let any = arch::take(given, sets)?;
    let chip = any.device();
    let Some(takes) = TAKES.iter().find(|takes| takes.command == command && !takes.chips.contains(&chip.kind())) else {
        return Ok(any);
    };
    let (name, kind, kinds) = (chip.name(), chip.kind(), takes.chips.join(" or "));
    let title =
        format!("`{command}` needs a chip of kind {kinds}: {name} is of kind {kind} and lacks {}", takes.others_lack);
    let others = TAKES.iter().filter(|takes| takes.chips.contains(&kind));
    let others: Vec<String> = others.map(|takes| format!("`{}`", takes.command)).collect();
    let help = format!("{} take it; `rdusim list` shows which command takes which chips", others.join(", "));
    Err(arch::kind_error(given, sets, title, format!("expected {kinds}")).with_help(help))
}

/// Phases of `pod` that serve, beside `training`.
const SERVING: [&str; 3] = ["prefill", "decode", "requests"];

/// A phase, and the kinds of chips whose systems have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PhaseOn {
    /// The phase.
    pub phase: &'static str,
    /// Kinds of chips.
    pub chips: Vec<&'static str>,
}

/// The phases that a system has: those of its stacks, as far as its chips have them.
pub fn phases_of_system(system: &System) -> Vec<PhaseOn> {
    let trains = system.stacks.iter().any(|stack| stack.kind.trains());
    let serves = system.stacks.iter().any(|stack| stack.kind.serves()) && check_served(&system.chip).is_ok();
    let chips = vec![system.chip.device().kind()];
    phases(if trains { chips.clone() } else { Vec::new() }, &if serves { chips } else { Vec::new() })
}

/// The phases that a model has on systems of some chips, and of which kinds of them.
pub fn phases_of_model(name: &str, chips: &[&AnyChip]) -> Vec<PhaseOn> {
    let trained = trained(name).ok();
    let trains = |chip: &AnyChip| {
        trained.as_ref().is_some_and(|found| check_trained(chip, &found.name, &found.architecture).is_ok())
    };
    let served = [true, false].map(|keeps_experts| served(name, keeps_experts).is_ok());
    let serves = |chip: &AnyChip| check_served(chip).is_ok() && served[usize::from(chip.gpu().is_none())];
    let of = |takes: &dyn Fn(&AnyChip) -> bool| {
        let has = |kind: &&str| chips.iter().any(|chip| chip.device().kind() == *kind && takes(chip));
        KINDS.into_iter().filter(has).collect::<Vec<_>>()
    };
    phases(of(&trains), &of(&serves))
}

fn phases(trained_on: Vec<&'static str>, served_on: &[&'static str]) -> Vec<PhaseOn> {
    let training = PhaseOn { phase: "training", chips: trained_on };
    let serving = SERVING.into_iter().map(|phase| PhaseOn { phase, chips: served_on.to_vec() });
    std::iter::once(training).chain(serving).filter(|of| !of.chips.is_empty()).collect()
}
