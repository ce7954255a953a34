//! The checker: enumerates the leaves by itself, and compares.

use std::collections::BTreeMap;

use crate::bound::section::Floor;
use rdusim_base::index::Id;
use rdusim_base::mode::Mode;
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::{OperatorId, Uses, Workload};
use rdusim_program::{SectionGraph, fingerprint};

use super::certificate::{Certificate, GroupEntry, Leaf, NestEntry, SectionEntry, gap, names};
use super::space::{Floors, Space, groups_of};

/// Why a certificate is not believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub String);

fn refuse<T>(what: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal(what.into()))
}

/// Checks a certificate against the chip and the workload that it is for.
///
/// # Errors
/// What is wrong: inputs that have changed, a mapping that is no partition or faster than a bound, a leaf or a class that is left
/// out or claims more than it is found to be, a sum or a gap that does not follow.
pub fn check(chip: &Chip, workload: &Workload, certificate: &Certificate) -> Result<(), Refusal> {
    Checker::new(chip, workload)?.check(certificate)
}

/// Checks certificates of one graph on one chip; their floors are worked out once.
#[derive(Debug)]
pub struct Checker<'a> {
    floors: Floors<'a>,
    chip: String,
    workload: String,
    /// The groups of each mode that a certificate was of.
    spaces: Vec<(Mode, Vec<Space>)>,
}

impl<'a> Checker<'a> {
    /// Of a chip and a workload.
    ///
    /// # Errors
    /// A tensor that fits no memory.
    pub fn new(chip: &'a Chip, workload: &'a Workload) -> Result<Self, Refusal> {
        let Some(floors) = Floors::new(chip, workload) else {
            return refuse("a tensor fits no memory tier of the chip");
        };
        let (chip, workload) = (fingerprint::of_chip(chip), fingerprint::of_workload(workload));
        Ok(Self { floors, chip, workload, spaces: Vec::new() })
    }

    /// Checks one certificate.
    ///
    /// # Errors
    /// As [`check`].
    pub fn check(&mut self, certificate: &Certificate) -> Result<(), Refusal> {
        let Some(mode) = Mode::named(&certificate.mode) else {
            return refuse(format!("`mode`: found {:?}, expected kbk, epilogue or fused", certificate.mode));
        };
        for (what, found, expected) in
            [("chip", &certificate.chip, &self.chip), ("workload", &certificate.workload, &self.workload)]
        {
            if found != expected {
                return refuse(format!(
                    "`{what}`: the {what} has changed: the certificate is for {found}, this one has {expected}"
                ));
            }
        }
        if certificate.cycles < certificate.least_cycles {
            return refuse(format!(
                "`cycles`: the certificate claims to be faster than its own bound: {} cycles, where none takes less than {}",
                certificate.cycles, certificate.least_cycles
            ));
        }
        let at = self.space_of(mode);
        let (floors, spaces) = (&mut self.floors, &self.spaces[at].1);
        if spaces.len() != certificate.groups.len() {
            return refuse(format!("`groups`: found {}, the graph has {}", certificate.groups.len(), spaces.len()));
        }
        let sections = sections(floors.workload, &certificate.sections)?;
        for (at, (space, entry)) in spaces.iter().zip(&certificate.groups).enumerate() {
            bounded(&format!("groups[{at}]"), space, entry, floors)?;
        }
        // Cycles of the sections of each group.
        let mut taken = vec![0u64; spaces.len()];
        for (at, (operators, entry)) in sections.iter().zip(&certificate.sections).enumerate() {
            let group = spaces.iter().position(|space| space.group.operators.contains(&operators[0]));
            let Some(group) = group else {
                return refuse(format!("`sections[{at}]`: no group has the operator `{}`", entry.operators[0]));
            };
            taken[group] = taken[group].saturating_add(entry.cycles);
            Section { place: format!("sections[{at}]"), operators, entry }.check(&spaces[group], mode, floors)?;
        }
        for (at, (entry, taken)) in certificate.groups.iter().zip(taken).enumerate() {
            if taken < entry.least_cycles {
                return refuse(format!(
                    "`groups[{at}]`: the certificate claims to be faster than its own bound: its sections take {taken} cycles, \
                     where none take less than {}",
                    entry.least_cycles
                ));
            }
        }
        figures(certificate)
    }

    /// Which of the spaces is of a mode.
    fn space_of(&mut self, mode: Mode) -> usize {
        if let Some(at) = self.spaces.iter().position(|(of, _)| *of == mode) {
            return at;
        }
        let mut spaces = Vec::new();
        for group in groups_of(self.floors.workload, mode) {
            spaces.push(Space::new(&mut self.floors, group, mode));
        }
        self.spaces.push((mode, spaces));
        self.spaces.len() - 1
    }
}

/// A group's leaves cover its space, none claims more than it is found to be, and the least cycles follow from them.
fn bounded(place: &str, space: &Space, entry: &GroupEntry, floors: &Floors<'_>) -> Result<(), Refusal> {
    let expected = names(floors.workload, &space.group.operators);
    if entry.operators != expected {
        return refuse(format!("`{place}.operators`: expected {}", expected.join(", ")));
    }
    let least = leaves(place, space, entry, floors)?;
    let found = space.least(floors, &least, entry.gives_permille);
    if entry.least_cycles != found {
        return refuse(format!(
            "`{place}.least_cycles`: found {}, the shortest path over its leaves is {found}",
            entry.least_cycles
        ));
    }
    Ok(())
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
fn leaves(place: &str, space: &Space, entry: &GroupEntry, floors: &Floors<'_>) -> Result<Vec<Option<Floor>>, Refusal> {
    if entry.by_sections != space.is_by_sections() {
        let expected = space.is_by_sections();
        return refuse(format!("`{place}.by_sections`: found {}, expected {expected}", entry.by_sections));
    }
    if entry.gives_permille.is_some() && !space.may_give(floors.chip) {
        return refuse(format!("`{place}.gives_permille`: weights of this group are not given room ahead"));
    }
    let mut claimed: BTreeMap<&[usize], (usize, &Leaf)> = BTreeMap::new();
    for (at, leaf) in entry.leaves.iter().enumerate() {
        if claimed.insert(&leaf.operators, (at, leaf)).is_some() {
            return refuse(format!("`{place}.leaves[{at}]`: a leaf with these operators stands before it"));
        }
    }
    let mut least = Vec::with_capacity(space.sections.len());
    for (operators, floor) in &space.sections {
        let key = space.places(operators);
        let Some((at, leaf)) = claimed.remove(&key[..]) else {
            let list = names(floors.workload, operators).join(", ");
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

/// A section of the mapping, and what is claimed of it.
struct Section<'c> {
    /// Its place in the certificate.
    place: String,
    operators: &'c [OperatorId],
    entry: &'c SectionEntry,
}

impl Section<'_> {
    /// The mode allows the section, its nest is one of its graph and lies in a class that is possible, and it takes no less than
    /// that class. So it is also in a group that is bounded as a whole.
    fn check(&self, space: &Space, mode: Mode, floors: &mut Floors<'_>) -> Result<(), Refusal> {
        let Self { place, operators, entry } = self;
        let named = entry.operators.join(", ");
        let is_allowed = if space.is_by_sections() {
            space.sections.iter().any(|(of, _)| of == operators)
        } else {
            operators.iter().all(|op| space.group.operators.contains(op))
        };
        let graph = SectionGraph::new(floors.workload, operators, operators.len() > 1);
        let Some((graph, floor)) = graph.filter(|_| is_allowed).zip(floors.of(operators)) else {
            return refuse(format!("`{place}`: {named} cannot share a section in the mode {}", mode.name()));
        };
        possible(&format!("{place}.nest"), &graph, entry.nest)?;
        let found = floor.boxes.iter().find(|(of, _)| of.contains(entry.nest.counts()));
        let Some((of, Some(floor))) = found else {
            return refuse(format!("`{place}.nest`: no class that is possible holds the nest of {named}"));
        };
        let run = if mode == Mode::Fused { floor.prefetched } else { floor.alone };
        let least = space.with_launches(floors, operators, run) / space.group.every;
        if entry.cycles < least {
            let name = of.name();
            return refuse(format!(
                "`{place}`: {named} takes {} cycles, and its class {name:?} no less than {least}",
                entry.cycles
            ));
        }
        Ok(())
    }
}

/// A nest has no more tiles than there are rows and columns to be cut, and one of each at least.
fn possible(place: &str, graph: &SectionGraph<'_>, nest: NestEntry) -> Result<(), Refusal> {
    let NestEntry { row_tiles, axis, column_tiles, panels, column_tile_outer: _ } = nest;
    // Sequences with weights of their own share no row tile.
    let least = graph.sequences().max(1);
    if !(least..=graph.rows).contains(&row_tiles) {
        return refuse(format!("`{place}.row_tiles`: found {row_tiles}, expected {least} to {} (rows)", graph.rows));
    }
    let extent = match axis {
        None => 1,
        Some(axis) => match graph.axes.get(axis) {
            Some(of) => of.extent,
            None => return refuse(format!("`{place}.axis`: found {axis}, the section has {}", graph.axes.len())),
        },
    };
    let most_panels = match graph.panel_axes() {
        Some(axes) if axis == Some(axes.depth) => graph.axes[axes.columns].extent,
        _ => 1,
    };
    if !(1..=most_panels).contains(&panels) {
        return refuse(format!("`{place}.panels`: found {panels}, expected 1 to {most_panels}"));
    }
    if !column_tiles.is_multiple_of(panels) {
        let title = format!("`{place}.column_tiles`: found {column_tiles}");
        return refuse(format!("{title}, expected a multiple of {panels} (panels)"));
    }
    let column_tiles = column_tiles / panels;
    if !(1..=extent).contains(&column_tiles) {
        let what = if axis.is_some() { "columns of the axis" } else { "no axis is cut" };
        return refuse(format!("`{place}.column_tiles`: found {column_tiles}, expected 1 to {extent} ({what})"));
    }
    Ok(())
}
