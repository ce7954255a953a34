//! Runs and the chip they ran on.

use rdusim_graph::arch::Device;
use rdusim_outcome::Outcome;

/// Runs of a workload on one chip; of several, one a chip, a report shows them side by side.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// The chip.
    pub chip: &'a dyn Device,
    /// Its runs, in the order of [`Mode::ALL`](rdusim_base::mode::Mode::ALL).
    pub outcomes: &'a [Outcome],
}

/// Every run with its chip and what it is called: its mode, of several chips behind the chip's name.
pub(super) fn named<'a>(sides: &[Side<'a>]) -> Vec<(String, &'a dyn Device, &'a Outcome)> {
    let several = sides.len() > 1;
    let of_side = |side: &Side<'a>| {
        let side = *side;
        side.outcomes.iter().map(move |outcome| {
            let mode = outcome.mode.name();
            (if several { name_of(side, mode) } else { mode.to_owned() }, side.chip, outcome)
        })
    };
    sides.iter().flat_map(of_side).collect()
}

/// What stands before a description of the chip of each side.
pub(super) fn labels() -> impl Iterator<Item = &'static str> {
    std::iter::once("chip      ").chain(std::iter::repeat("against   "))
}

/// Most chips whose runs of all modes stand side by side in a table; of more, each mode has a table of its own.
pub(super) const MOST_BESIDE: usize = 2;

/// The sides with the runs of one mode, by its place among those that ran.
pub(super) fn of_mode<'a>(sides: &[Side<'a>], at: usize) -> Vec<Side<'a>> {
    sides.iter().map(|side| Side { outcomes: side.outcomes.get(at..=at).unwrap_or_default(), ..*side }).collect()
}

/// What the run of a mode is called beside those of another chip.
pub(super) fn name_of(side: Side<'_>, mode: &str) -> String {
    format!("{} {mode}", super::human::shorten(side.chip.name(), 24))
}
