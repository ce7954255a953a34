//! Checks over all sections of a configuration: every operator once, tensors in memory tiers, weights that are prefetched.

use crate::configuration::{Configuration, Section};
use crate::flow::FlowKind;
use crate::ids::StreamId;
use rdusim_base::index::Id;
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::Workload;

use super::fault::{Fault, Place};

/// Every operator runs in one section, behind those whose results it reads.
pub(super) fn operators(_: &Chip, workload: &Workload, configuration: &Configuration) -> Result<(), Fault> {
    let mut done = vec![false; workload.operators.len()];
    for &op in configuration.sections.iter().flat_map(|section| &section.operators) {
        let operator = &workload.operators[op];
        let early = operator
            .inputs
            .iter()
            .find(|&&input| workload.producer(input).is_some_and(|producer| producer != op && !done[producer.index()]));
        if let Some(&input) = early {
            let (name, input) = (&operator.name, &workload.tensors[input].name);
            let title = format!("the operator `{name}` runs before its input `{input}` is made");
            return Err(Fault::new(Place::Section, title, "expected behind it"));
        }
        if std::mem::replace(&mut done[op.index()], true) {
            let title = format!("the operator `{}` runs twice", operator.name);
            return Err(Fault::new(Place::Section, title, "expected every operator once"));
        }
    }
    let Some(missing) = workload.operators.iter().zip(&done).find(|(_, done)| !**done) else { return Ok(()) };
    let title = format!("no section runs the operator `{}`", missing.0.name);
    Err(Fault::new(Place::Section, title, "expected every operator once"))
}

/// Every tensor has a tier, and no tier holds more than it can.
pub(super) fn tiers(chip: &Chip, workload: &Workload, configuration: &Configuration) -> Result<(), Fault> {
    let mut free: Vec<u64> = chip.memory.iter().map(|tier| tier.capacity_bytes).collect();
    let held = workload.held_at_once();
    if configuration.tiers.len() != workload.tensors.len() {
        let title = format!("{} tensors have a tier", configuration.tiers.len());
        return Err(Fault::new(Place::Section, title, format!("expected {}", workload.tensors.len())));
    }
    for (id, tensor) in workload.tensors.iter_enumerated() {
        let Some(left) = free.get_mut(configuration.tiers[id.index()].index()) else {
            let title = format!("`{}` lies in a tier that is none", tensor.name);
            return Err(Fault::new(Place::Section, title, format!("expected one of {}", chip.memory.len())));
        };
        if tensor.view.is_some() {
            continue;
        }
        let bytes = tensor.held_bytes().saturating_mul(held[id.index()]);
        if bytes > *left {
            let tier = &chip.memory[configuration.tiers[id.index()]].name;
            let title = format!("the tier `{tier}` has no room for `{}`: {bytes} B", tensor.name);
            return Err(Fault::new(Place::Section, title, format!("{left} B are left")));
        }
        *left -= bytes;
    }
    Ok(())
}

/// What a section finds loaded is a weight's first slot, the section before loads it, and both have banks for it.
pub(super) fn loads(chip: &Chip, workload: &Workload, configuration: &Configuration) -> Result<(), Fault> {
    for (index, section) in configuration.sections.iter().enumerate() {
        let before = configuration.section_before(index, workload).map(|before| &configuration.sections[before]);
        let tensor = |&stream: &StreamId| {
            let off_chip = section.streams.get(stream)?;
            (off_chip.stream.weight && !off_chip.stream.writes).then_some((off_chip.stream.tensor, off_chip.tier))
        };
        let found: Vec<_> = section.prefetched.iter().map(tensor).collect();
        let loads = before.map_or(&[][..], |before| &before.prefetches);
        let are_loaded = found.len() == loads.len()
            && found.iter().zip(loads).all(|(found, load)| *found == Some((load.tensor, load.tier)));
        if !are_loaded {
            let title = format!("section `{}` finds {} weights, {} are loaded", section.name, found.len(), loads.len());
            return Err(Fault::new(Place::Streams, title, "expected those that the section before loads"));
        }
        let Some(before) = before.filter(|_| !loads.is_empty()) else { continue };
        for load in loads {
            let most = workload.tensors[load.tensor].stored_bytes();
            if load.payload_bytes > most || load.moved_bytes < load.payload_bytes || load.bank_bytes == 0 {
                let title = format!("{} B of `{}` are loaded", load.payload_bytes, workload.tensors[load.tensor].name);
                return Err(Fault::new(
                    Place::Streams,
                    title,
                    format!("expected at most {most} B, and banks for them"),
                ));
            }
        }
        let mut banks = before.taken_banks(chip);
        add_loaded(section, &mut banks);
        if let Some(pmu) = banks.iter().position(|&banks| banks > chip.pmu.banks) {
            let at = chip.grid.pmus[pmu];
            let title = format!("the PMU at [{}, {}] has no banks for what is prefetched", at.x, at.y);
            let expected = format!("{} of {} banks are taken", banks[pmu], chip.pmu.banks);
            return Err(Fault::new(Place::Buffers, title, expected));
        }
    }
    let has_follower: Vec<usize> =
        (0..configuration.sections.len()).filter_map(|index| configuration.section_before(index, workload)).collect();
    for (index, section) in configuration.sections.iter().enumerate() {
        if !section.prefetches.is_empty() && !has_follower.contains(&index) {
            let title = format!("section `{}` loads for another, and none follows it every time", section.name);
            return Err(Fault::new(Place::Streams, title, "expected a section behind it"));
        }
    }
    Ok(())
}

/// Adds the banks of the first slot of what a section finds loaded.
fn add_loaded(section: &Section, banks: &mut [u64]) {
    for (b, buffer) in section.buffers.iter_enumerated() {
        let is_loaded = |kind: FlowKind| matches!(kind, FlowKind::Fill { stream, buffer } if buffer == b && section.prefetched.contains(&stream));
        if section.flows.iter().any(|flow| is_loaded(flow.kind)) {
            for part in buffer.pieces.iter().flat_map(|piece| &piece.parts) {
                banks[part.pmu.index()] += part.banks.div_ceil(buffer.spec.depth.max(1));
            }
        }
    }
}
