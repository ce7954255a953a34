//! A mapping held on chips other than the one it was found for.

use indexmap::IndexMap;

use crate::arch::Chip;
use crate::compile::{carried, retargeted};
use crate::diagnostics::Diagnostic;
use crate::input::Override;
use crate::outcome::{Fidelity, Outcome};
use crate::program::Configuration;
use crate::report::DrawEntry;
use crate::sim::simulate;
use crate::study::inputs::{drained, simulated};
use crate::workload::Workload;

/// A mapping, and what holding it by its choices alone costs.
pub(super) struct Held<'a> {
    /// The chip that it was found for.
    own: &'a Chip,
    workload: &'a Workload,
    fidelity: Fidelity,
    configuration: &'a Configuration,
    /// Time of the configuration on its own chip over that of its choices placed and routed there again; `None` where they have no
    /// place even there.
    scale: Option<f64>,
}

/// What a run comes to, its time scaled.
pub(super) fn point_of(outcome: &Outcome, clock_hz: u64, scale: f64) -> DrawEntry {
    let seconds = |cycles: u64| cycles as f64 / clock_hz as f64 * scale;
    let mut phases_s = IndexMap::new();
    for section in &outcome.sections {
        *phases_s.entry(section.phase.name()).or_insert(0.0) += seconds(section.cycles);
    }
    if phases_s.len() < 2 {
        phases_s.clear();
    }
    DrawEntry { time_s: seconds(outcome.cycles), energy_j: outcome.energy().total(), phases_s }
}

impl<'a> Held<'a> {
    /// A configuration of `chip`.
    pub(super) fn new(
        own: &'a Chip,
        workload: &'a Workload,
        configuration: &'a Configuration,
        fidelity: Fidelity,
    ) -> Self {
        let cycles = |of: &Configuration| Some(simulated(own, workload, of, fidelity).ok()?.cycles as f64);
        let again = retargeted(own, workload, configuration).ok();
        let again = again.and_then(|again| cycles(&again)).zip(cycles(configuration));
        let scale = again.map(|(again, own)| own / again.max(1.0));
        Self { own, workload, fidelity, configuration, scale }
    }

    /// Whether the mapping, or its choices anew, have a place on a chip.
    pub(super) fn has_place(&self, chip: &Chip) -> bool {
        carried(self.own, chip, self.workload, self.configuration).is_some()
            || self.scale.is_some() && retargeted(chip, self.workload, self.configuration).is_ok()
    }

    /// Runs the mapping on a chip that was drawn, `sets` apart from the file's: as it is, where they leave units, ports and
    /// buffers alone or it is legal all the same; else its choices placed and routed there. `None` where they have no place.
    pub(super) fn run(&self, chip: &Chip, sets: &[Override]) -> Option<DrawEntry> {
        if sets.iter().all(leaves_the_configuration) {
            return self.point(chip, self.configuration, 1.0).ok();
        }
        if let Some(carried) = carried(self.own, chip, self.workload, self.configuration) {
            return self.point(chip, &carried, 1.0).ok();
        }
        let scale = self.scale?;
        let again = retargeted(chip, self.workload, self.configuration).ok()?;
        self.point(chip, &again, scale).ok()
    }

    fn point(&self, chip: &Chip, configuration: &Configuration, scale: f64) -> Result<DrawEntry, Diagnostic> {
        let outcome = drained(simulate(chip, self.workload, configuration, self.fidelity))?;
        Ok(point_of(&outcome, chip.clock_hz, scale))
    }
}

/// Whether a configuration may be run where this field is another: times, rates and energies, and channels of memory.
pub(super) fn leaves_the_configuration(set: &Override) -> bool {
    let path = set.path().join(".");
    ["clock_ghz", "network.hop_cycles", "network.die_hop_cycles", "network.max_packet_flits"].contains(&path.as_str())
        || ["launch.", "energy.", "area.", "memory.", "vendor."].iter().any(|table| path.starts_with(table))
            && !path.ends_with(".capacity_bytes")
}
