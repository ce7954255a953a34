//! What the energies and areas of chips have in common, and where their constants differ in kind.

use super::human::{shorten, whole};
use super::side::Side;
use rdusim_graph::arch::Device;

/// Names of chips in notes, columns.
const MOST_NAME: usize = 24;

/// Whether a chip's file calls a field assumed.
pub(super) fn is_assumed(chip: &dyn Device, path: &str) -> bool {
    chip.assumed().iter().any(|assumed| assumed == path)
}

/// Area of a chip in words; `None` if its file tells none.
pub(super) fn area(chip: &dyn Device) -> Option<String> {
    let (mm2, of) = chip.area()?;
    let assumed = if chip.assumed().iter().any(|path| path.starts_with("area.")) { ", assumed" } else { "" };
    Some(format!("about {} mm2 ({of}{assumed})", whole(mm2.round() as u64)))
}

/// Why energies, powers and areas of two chips cannot be compared one to one, a sentence each.
pub(super) fn differences(first: &dyn Device, second: &dyn Device) -> Vec<String> {
    let name = |chip: &dyn Device| shorten(chip.name(), MOST_NAME);
    let (a, b) = (name(first), name(second));
    let mut notes = Vec::new();
    if first.energy_scope() != second.energy_scope() {
        notes.push(format!("energy of {a} counts {}; that of {b} {}", first.energy_scope(), second.energy_scope()));
    }
    let is_itemised = |chip: &dyn Device| chip.tiers().iter().all(|tier| tier.energy.items.is_some());
    for (one, other) in [(first, second), (second, first)] {
        if is_itemised(one) && !is_itemised(other) {
            notes.push(format!(
                "off-chip energy of {} counts device, PHY and controller; that of {} is one constant whose parts are not told",
                name(one),
                name(other)
            ));
        }
    }
    let is_of_energy = |path: &&String| path.starts_with("energy.") || path.ends_with("pj_per_bit");
    for chip in [first, second] {
        let assumed: Vec<&str> = chip.assumed().iter().filter(is_of_energy).map(String::as_str).collect();
        if !assumed.is_empty() {
            notes.push(format!("energy constants of {} without a source: {}", name(chip), assumed.join(", ")));
        }
    }
    if let (Some((_, one)), Some((_, other))) = (first.area(), second.area())
        && one != other
    {
        notes.push(format!("area of {a} is of {one}; that of {b} of {other}"));
    }
    notes
}

/// The same of the sides of a report: of the first and each other, each sentence once.
pub(super) fn differences_of(sides: &[Side<'_>]) -> Vec<String> {
    let Some((first, others)) = sides.split_first() else { return Vec::new() };
    let mut notes = Vec::new();
    for note in others.iter().flat_map(|other| differences(first.chip, other.chip)) {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;
    use rdusim_graph::arch::{TierEnergy, TierEnergyItems};

    #[test]
    fn constants_of_another_kind_are_told() {
        let (one, mut other) = (fixture::sn10(), fixture::sn10());
        assert!(differences(&one, &other).is_empty());
        other.name = "other".into();
        let items = Some(TierEnergyItems { device: 4.0, phy: 1.0, controller: 1.0 });
        other.memory.iter_mut().for_each(|tier| tier.energy = TierEnergy { pj_per_bit: 6.0, items });
        other.assumed = ["energy.static_w", "pmu.banks"].map(str::to_owned).into();
        let notes = differences(&one, &other);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(
            notes[0].starts_with("off-chip energy of other counts device") && notes[1].ends_with(": energy.static_w")
        );
    }
}
