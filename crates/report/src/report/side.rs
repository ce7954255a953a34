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

/// What the run of a mode is called beside those of another chip.
pub(super) fn name_of(side: Side<'_>, mode: &str) -> String {
    format!("{} {mode}", super::human::shorten(side.chip.name(), 24))
}
