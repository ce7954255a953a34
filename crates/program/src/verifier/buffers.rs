//! Checks of which buffers there are: those that the stages need, cut as the mappings cut them.

use crate::buffer::{BufferRole, BufferSpec};
use crate::configuration::Section;
use crate::ids::StageId;
use crate::mapping::Mapping;
use crate::nest::{LoopLevel, LoopOrder};
use crate::stage::Stage;

use super::context::Verifier;
use super::fault::{Fault, Place};

/// Slices and copies of a buffer of a stage.
fn cut(stage: &Stage, role: &BufferRole) -> (u64, u64) {
    match (role, &stage.mapping) {
        (BufferRole::Operand { .. }, Mapping::Gemm(_)) if stage.spec.sums.is_some() => (1, 1),
        (BufferRole::Operand { .. }, Mapping::Gemm(m)) => (m.pm * m.parts(), m.k_slice_groups()),
        (BufferRole::Resident { .. }, Mapping::Gemm(m)) => (m.pm * m.parts(), 1),
        (BufferRole::Weight { .. }, Mapping::Gemm(m)) => (m.pn * m.pk, 1),
        (BufferRole::PartialSums { .. }, Mapping::Gemm(m)) => (m.pm * m.pn * m.pk, 1),
        (BufferRole::PartialFifo { .. }, Mapping::Gemm(m)) => (m.pm * m.pn, 1),
        (BufferRole::Output { .. } | BufferRole::State { .. }, Mapping::Gemm(m)) if stage.spec.sums.is_some() => {
            (m.pm * m.pn, 1)
        }
        (_, mapping) => (mapping.pm(), 1),
    }
}

/// Stage of a buffer.
fn stage_of(role: &BufferRole) -> StageId {
    match *role {
        BufferRole::Operand { stage, .. }
        | BufferRole::Resident { stage, .. }
        | BufferRole::Weight { stage, .. }
        | BufferRole::PartialSums { stage }
        | BufferRole::PartialFifo { stage, .. }
        | BufferRole::State { stage, .. }
        | BufferRole::Output { stage, .. } => stage,
    }
}

/// The roles of buffers that a stage needs, resident copies (which are a choice) left out.
fn needed(verifier: &Verifier<'_>, s: StageId, stage: &Stage) -> Vec<BufferRole> {
    let spec = &stage.spec;
    let mut roles: Vec<BufferRole> =
        spec.activations.iter().map(|&tensor| BufferRole::Operand { stage: s, tensor }).collect();
    roles.extend(spec.weight.map(|tensor| BufferRole::Weight { stage: s, tensor }));
    if stage.k_cut || spec.sums.is_some() {
        roles.push(BufferRole::PartialSums { stage: s });
    }
    roles.extend(spec.update.map(|update| BufferRole::State { stage: s, tensor: update.state }));
    roles.extend((1..stage.mapping.pk()).map(|slice| BufferRole::PartialFifo { stage: s, slice: slice - 1 }));
    if verifier.graph.leaves_section(spec.output) {
        roles.push(BufferRole::Output { tensor: spec.output, stage: s });
    }
    roles
}

/// Every stage has the buffers it needs once, and no others.
pub(super) fn roles(verifier: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    let needed: Vec<BufferRole> =
        section.stages.iter_enumerated().flat_map(|(s, stage)| needed(verifier, s, stage)).collect();
    let mut found = rustc_hash::FxHashSet::default();
    for (b, buffer) in section.buffers.iter_enumerated() {
        let role = buffer.spec.role;
        let is_resident = match role {
            BufferRole::Resident { stage, tensor } => needed.contains(&BufferRole::Operand { stage, tensor }),
            _ => needed.contains(&role),
        };
        if !is_resident || !found.insert(role) {
            let title = format!("a buffer that no stage needs, or a second one: {role:?}");
            return Err(Fault::new(Place::Buffer(b), title, "expected one a stage and operand, weight or result"));
        }
        let stage = &section.stages[stage_of(&role)];
        let (slices, copies) = cut(stage, &role);
        if (buffer.spec.slices, buffer.spec.copies) != (slices, copies) {
            let title = format!("a buffer of {} slices in {} copies", buffer.spec.slices, buffer.spec.copies);
            let expected = format!("expected {slices} in {copies}, as the mapping cuts it");
            return Err(Fault::new(Place::Pieces(b), title, expected));
        }
    }
    if let Some(missing) = needed.iter().find(|role| !found.contains(role)) {
        let title = format!("`{}` has no buffer for {missing:?}", verifier.stage(stage_of(missing)));
        return Err(Fault::new(Place::Buffers, title, "expected one a stage and operand, weight or result"));
    }
    Ok(())
}

/// Buffers are filled as often as the nest makes or reads what they hold.
pub(super) fn levels(verifier: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    for (b, buffer) in section.buffers.iter_enumerated() {
        let (first, other) = cadences_of(verifier, section, &buffer.spec);
        if buffer.spec.level != first && Some(buffer.spec.level) != other {
            let title = format!("a buffer that is filled once a {:?}: {:?}", buffer.spec.level, buffer.spec.role);
            let or = other.map_or(String::new(), |other| format!(" or {other:?}"));
            return Err(Fault::new(Place::Buffer(b), title, format!("expected {first:?}{or} under this nest")));
        }
    }
    Ok(())
}

/// How often a buffer may be filled: in one way, or in another.
fn cadences_of(verifier: &Verifier<'_>, section: &Section, spec: &BufferSpec) -> (LoopLevel, Option<LoopLevel>) {
    let nest = &section.schedule.nest();
    let of_tensor = |tensor| {
        let producer = verifier.graph.producer(tensor);
        let is_recomputed = producer.is_some_and(|p| section.stages[p].recomputed);
        match () {
            () if verifier.has_panels_of(nest, tensor) => LoopLevel::PANEL_ROW,
            () if verifier.cuts_columns(nest, tensor) || is_recomputed => LoopLevel::FIRING,
            () => LoopLevel::ROW_TILE,
        }
    };
    let stage = &section.stages[stage_of(&spec.role)];
    match spec.role {
        BufferRole::Operand { stage: s, tensor } => {
            let has_resident = section.buffers.iter().any(|b| b.spec.role == BufferRole::Resident { stage: s, tensor });
            let is_external = verifier.graph.producer(tensor).is_none();
            if has_resident {
                return (LoopLevel::FIRING, None);
            }
            // What is off the cut may be read again for every column tile.
            let is_read_again = is_external && Verifier::repeats_rows(nest) && stage.level == LoopLevel::FIRING;
            (of_tensor(tensor), is_read_again.then_some(LoopLevel::FIRING))
        }
        BufferRole::Resident { tensor, .. } => (of_tensor(tensor), None),
        BufferRole::Output { tensor, .. } | BufferRole::State { tensor, .. } => match stage.spec.sums {
            Some(sums) => (sums.level(stage.level == LoopLevel::FIRING), None),
            None => (of_tensor(tensor), None),
        },
        BufferRole::Weight { stage: s, .. } if verifier.graph.stages[s].sequence.is_some() => {
            (LoopLevel::ROW_TILE, None)
        }
        BufferRole::Weight { stage: s, tensor } => {
            let is_cut = verifier.cuts_columns(nest, tensor) || verifier.cuts_rows(nest, tensor);
            match (verifier.has_own_weights(s), is_cut) {
                (true, _) => (LoopLevel::BLOCK_COLUMN, None),
                (false, false) => (LoopLevel::ONCE, None),
                (false, true) => {
                    (LoopLevel::COLUMN, (nest.order == LoopOrder::ColumnTileOuter).then_some(LoopLevel::BLOCK_COLUMN))
                }
            }
        }
        BufferRole::PartialSums { .. } => match stage.spec.sums {
            Some(sums) => (sums.level(stage.level == LoopLevel::FIRING), None),
            None => (stage.result_level(), None),
        },
        // Sums go on when they are complete: in the last column tile, where column tiles cut K.
        BufferRole::PartialFifo { .. } => (stage.result_level(), None),
    }
}
