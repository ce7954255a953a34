//! The checker: enumerates the leaves by itself, and compares.

use crate::arch::Chip;
use crate::bound::section::{BoundContext, Floor};
use crate::bound::stage::MaskFloors;
use crate::index::Id;
use crate::mode::Mode;
use crate::program::{fingerprint, is_whole_block, tensor_tiers};
use crate::workload::{OperatorId, Uses, Workload};

use super::certificate::{Certificate, GroupEntry, Leaf, SectionEntry, gap, names};
use super::space::{Space, groups_of};

/// Why a certificate is not believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub String);

fn refuse<T>(what: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal(what.into()))
}

/// Checks a certificate against the chip and the workload that it is for.
///
/// # Errors
/// What is wrong: inputs that have changed, a mapping that is no partition, a leaf or a class that is left out or claims more
/// than it is found to be, a sum or a gap that does not follow.
pub fn check(chip: &Chip, workload: &Workload, certificate: &Certificate) -> Result<(), Refusal> {
    let Some(mode) = Mode::named(&certificate.mode) else {
        return refuse(format!("`mode`: found {:?}, expected kbk, epilogue or fused", certificate.mode));
    };
    for (what, found, expected) in [
        ("chip", &certificate.chip, fingerprint::of_chip(chip)),
        ("workload", &certificate.workload, fingerprint::of_workload(workload)),
    ] {
        if *found != expected {
            return refuse(format!(
                "`{what}`: the {what} has changed: the certificate is for {found}, this one has {expected}"
            ));
        }
    }
    let Ok(tiers) = tensor_tiers(chip, workload) else { return refuse("a tensor fits no memory tier of the chip") };
    let mut context = BoundContext { chip, workload, tiers: &tiers, masks: MaskFloors::default() };
    let groups = groups_of(workload, mode);
    if groups.len() != certificate.groups.len() {
        return refuse(format!("`groups`: found {}, the graph has {}", certificate.groups.len(), groups.len()));
    }
    let sections = sections(workload, &certificate.sections)?;
    let mut placed = 0;
    for (at, (group, entry)) in groups.iter().zip(&certificate.groups).enumerate() {
        let place = format!("groups[{at}]");
        if entry.operators != names(workload, &group.operators) {
            return refuse(format!("`{place}.operators`: expected {}", names(workload, &group.operators).join(", ")));
        }
        let space = Space::new(&mut context, group, mode);
        let least = leaves(&place, &space, entry, &context)?;
        let found = space.least(&context, &least, entry.gives_permille);
        if entry.least_cycles != found {
            return refuse(format!(
                "`{place}.least_cycles`: found {}, the shortest path over its leaves is {found}",
                entry.least_cycles
            ));
        }
        for (section, of) in sections.iter().zip(&certificate.sections) {
            if group.operators.contains(&section[0]) {
                placed += 1;
                mapped(&space, mode, (section, of), chip, workload)?;
            }
        }
    }
    if placed != certificate.sections.len() {
        return refuse("`sections`: a section belongs to no group");
    }
    figures(certificate)
}

/// Sums and gap.
fn figures(certificate: &Certificate) -> Result<(), Refusal> {
    let least = certificate.groups.iter().map(|group| group.least_cycles).fold(0, u64::saturating_add);
    if certificate.least_cycles != least {
        return refuse(format!("`least_cycles`: found {}, the groups add up to {least}", certificate.least_cycles));
    }
    let cycles = certificate.sections.iter().map(|section| section.cycles).fold(0, u64::saturating_add);
    if certificate.cycles != cycles {
        return refuse(format!("`cycles`: found {}, the sections add up to {cycles}", certificate.cycles));
    }
    let expected = gap(cycles, least);
    if (certificate.gap - expected).abs() > 1e-9 * expected.abs().max(1.0) {
        return refuse(format!("`gap`: found {}, cycles over least cycles give {expected}", certificate.gap));
    }
    Ok(())
}

/// The operators of the sections: each operator once, behind what it needs.
fn sections(workload: &Workload, entries: &[SectionEntry]) -> Result<Vec<Vec<OperatorId>>, Refusal> {
    let uses = Uses::new(workload);
    let mut done = vec![false; workload.operators.len()];
    let mut list = Vec::with_capacity(entries.len());
    for (at, entry) in entries.iter().enumerate() {
        let mut section = Vec::with_capacity(entry.operators.len());
        for name in &entry.operators {
            let found = workload.operators.iter_enumerated().find(|(_, op)| op.name == *name);
            let Some((op, _)) = found else {
                return refuse(format!("`sections[{at}].operators`: the graph has no operator `{name}`"));
            };
            if std::mem::replace(&mut done[op.index()], true) {
                return refuse(format!("`sections[{at}].operators`: `{name}` runs twice"));
            }
            section.push(op);
        }
        section.sort_unstable();
        for &op in &section {
            let late = workload.operators[op].inputs.iter().filter_map(|&t| uses.producer(workload, t));
            if late.into_iter().any(|by| by < op && !done[by.index()]) {
                let name = &workload.operators[op].name;
                return refuse(format!("`sections[{at}]`: `{name}` runs before what it needs"));
            }
        }
        if section.is_empty() {
            return refuse(format!("`sections[{at}].operators`: expected at least one"));
        }
        list.push(section);
    }
    match workload.operators.iter_enumerated().find(|(op, _)| !done[op.index()]) {
        Some((_, missing)) => refuse(format!("`sections`: no section runs `{}`", missing.name)),
        None => Ok(list),
    }
}

/// The least cycles that each section of a group is claimed to take, where all of its classes are there and none claims more
/// than it is found to be.
fn leaves(
    place: &str,
    space: &Space<'_>,
    entry: &GroupEntry,
    context: &BoundContext<'_>,
) -> Result<Vec<Option<Floor>>, Refusal> {
    if entry.by_sections != space.is_by_sections() {
        let expected = space.is_by_sections();
        return refuse(format!("`{place}.by_sections`: found {}, expected {expected}", entry.by_sections));
    }
    if entry.gives_permille.is_some() && !space.may_give(context) {
        return refuse(format!("`{place}.gives_permille`: weights of this group are not given room ahead"));
    }
    let mut claimed: std::collections::BTreeMap<&[usize], (usize, &Leaf)> = std::collections::BTreeMap::new();
    for (at, leaf) in entry.leaves.iter().enumerate() {
        if claimed.insert(&leaf.operators, (at, leaf)).is_some() {
            return refuse(format!("`{place}.leaves[{at}]`: a leaf with these operators stands before it"));
        }
    }
    let mut least = Vec::with_capacity(space.sections.len());
    for (operators, floor) in &space.sections {
        let key = space.places(operators);
        let Some((at, leaf)) = claimed.remove(&key[..]) else {
            let list = names(context.workload, operators).join(", ");
            return refuse(format!(
                "`{place}.leaves`: the section {list} is left out: the leaves do not cover the space"
            ));
        };
        let mut claims = leaf.boxes.clone();
        for (of, found) in floor.boxes.iter().filter_map(|(of, found)| Some((of, (*found)?))) {
            let name = of.name();
            let place = format!("{place}.leaves[{at}].boxes");
            let Some(claim) = claims.swap_remove(&name) else {
                return refuse(format!("`{place}`: the class {name:?} is left out: the leaves do not cover the space"));
            };
            if claim[0] > found.alone || claim[1] > found.prefetched {
                let found = [found.alone, found.prefetched];
                return refuse(format!(
                    "`{place}`: the class {name:?} claims {claim:?} cycles, and is found to be bounded by {found:?}"
                ));
            }
        }
        if let Some((name, _)) = claims.first() {
            return refuse(format!("`{place}.leaves[{at}].boxes`: the section has no class {name:?}"));
        }
        let of = |which: usize| leaf.boxes.values().map(|claim| claim[which]).min();
        least.push(of(0).zip(of(1)).map(|(alone, prefetched)| Floor { alone, prefetched }));
    }
    match claimed.into_values().next() {
        Some((at, _)) => refuse(format!("`{place}.leaves[{at}]`: these operators cannot share a section")),
        None => Ok(least),
    }
}

/// A section of the mapping lies in one of the classes, and takes no less than that.
fn mapped(
    space: &Space<'_>,
    mode: Mode,
    (operators, entry): (&[OperatorId], &SectionEntry),
    chip: &Chip,
    workload: &Workload,
) -> Result<(), Refusal> {
    if !space.is_by_sections() {
        return Ok(());
    }
    let named = entry.operators.join(", ");
    let Some((_, floor)) = space.sections.iter().find(|(of, _)| of == operators) else {
        return refuse(format!("`sections`: {named} cannot share a section in the mode {}", mode.name()));
    };
    let found = floor.boxes.iter().find(|(of, _)| of.contains(entry.nest.counts()));
    let Some((of, Some(floor))) = found else {
        return refuse(format!("`sections`: no class holds the nest of {named}"));
    };
    let repeat = space.group.repeat;
    let is_looped = mode == Mode::Fused && is_whole_block(workload, operators);
    let launches = if is_looped { 1 } else { repeat };
    let run = if mode == Mode::Fused { floor.prefetched } else { floor.alone };
    let least =
        run.saturating_mul(repeat).saturating_add(chip.launch_cycles().saturating_mul(launches)) / space.group.every;
    if entry.cycles < least {
        let name = of.name();
        return refuse(format!(
            "`sections`: {named} takes {} cycles, and its class {name:?} no less than {least}",
            entry.cycles
        ));
    }
    Ok(())
}
