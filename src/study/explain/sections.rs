//! How busy every resource of a section was.

use crate::arch::Device;
use crate::outcome::{Outcome, SectionOutcome};

use super::entries::{ModeEntry, PowerEntry, ResourceEntry, SectionEntry};

/// A mode's sections; derivatives are left empty.
pub(super) fn mode_entry(chip: &dyn Device, outcome: &Outcome) -> ModeEntry {
    let time_s = chip.seconds(outcome.cycles);
    let average = if time_s > 0.0 { outcome.energy().total() / time_s } else { 0.0 };
    ModeEntry {
        mode: outcome.mode.name(),
        cycles: outcome.cycles,
        time_s,
        bound_cycles: outcome.bound_cycles,
        power_w: PowerEntry { average, package: chip.package_w() },
        sections: outcome.sections.iter().map(|section| section_entry(chip, section)).collect(),
        derivatives: Vec::new(),
    }
}

fn section_entry(chip: &dyn Device, section: &SectionOutcome) -> SectionEntry {
    let cycles = section.cycles.max(1) as f64;
    let plain = |resource: String, busy_cycles: u64| ResourceEntry {
        resource,
        busy_cycles,
        share: busy_cycles as f64 / cycles,
        mean_share: None,
        stage: None,
        units: chip.unit_names().compute,
    };
    let mut resources: Vec<ResourceEntry> = section
        .stages
        .iter()
        .map(|stage| ResourceEntry {
            mean_share: Some(stage.mean_cycles / cycles),
            stage: Some(stage.operators.join("+")),
            ..plain("compute".to_owned(), stage.busiest_cycles)
        })
        .collect();
    let busy = &section.busy;
    resources.extend(busy.tiers.iter().map(|(name, cycles)| plain(format!("memory:{name}"), *cycles)));
    for (name, busy_cycles) in [
        ("ag", busy.ag),
        ("link", busy.link),
        ("pcu_port", busy.pcu_port),
        ("pmu_port", busy.pmu_port),
        ("launch", section.launch_cycles),
    ] {
        resources.push(plain(name.to_owned(), busy_cycles));
    }
    resources.retain(|resource| resource.busy_cycles > 0);
    resources.sort_by_key(|resource| std::cmp::Reverse(resource.busy_cycles));
    SectionEntry {
        name: section.name.clone(),
        operators: section.operators.clone(),
        cycles: section.cycles,
        time_s: chip.seconds(section.cycles),
        bound_by: section.bound_by.to_string(),
        resources,
    }
}
