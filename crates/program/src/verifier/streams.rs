//! Checks of off-chip streams: one for every tensor that enters or leaves, from its tier, with all its bytes.

use crate::buffer::{BufferRole, BufferSpec};
use crate::configuration::Section;
use crate::ids::{BufferId, StreamId};
use crate::nest::LoopLevel;
use rdusim_graph::workload::TensorId;

use super::context::Verifier;
use super::fault::{Fault, Place};

/// What a buffer takes from memory or leaves in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    tensor: TensorId,
    level: LoopLevel,
    writes: bool,
    weight: bool,
    /// Whether every sequence has a weight of its own.
    own_weight: Option<bool>,
}

/// What a buffer takes from memory or leaves in it; `None` if both ends of what it holds are on chip.
fn end(verifier: &Verifier<'_>, section: &Section, spec: &BufferSpec) -> Option<End> {
    let end = |tensor, writes, own_weight: Option<bool>| End {
        tensor,
        level: spec.level,
        writes,
        weight: own_weight.is_some(),
        own_weight,
    };
    match spec.role {
        BufferRole::Operand { stage, tensor } => {
            let has_resident = section.buffers.iter().any(|b| b.spec.role == BufferRole::Resident { stage, tensor });
            (!has_resident && verifier.graph.producer(tensor).is_none()).then(|| end(tensor, false, None))
        }
        BufferRole::Resident { tensor, .. } => {
            verifier.graph.producer(tensor).is_none().then(|| end(tensor, false, None))
        }
        BufferRole::Weight { stage, tensor } => {
            let is_made = verifier.graph.stages[stage].sequence.is_some();
            (!is_made).then(|| end(tensor, false, Some(verifier.has_own_weights(stage))))
        }
        BufferRole::State { tensor, .. } => Some(end(tensor, false, None)),
        BufferRole::Output { tensor, .. } => Some(end(tensor, true, None)),
        BufferRole::PartialSums { .. } | BufferRole::PartialFifo { .. } => None,
    }
}

/// Whether a buffer is an end of a stream.
pub(super) fn is_end(verifier: &Verifier<'_>, section: &Section, buffer: BufferId, stream: StreamId) -> bool {
    let stream = &section.streams[stream].stream;
    end(verifier, section, &section.buffers[buffer].spec).is_some_and(|end| {
        (end.tensor, end.level, end.writes, end.weight) == (stream.tensor, stream.level, stream.writes, stream.weight)
    })
}

/// Every buffer with an end off chip has one stream, and every stream a buffer.
pub(super) fn ends(verifier: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    let verb = |writes| if writes { "write" } else { "read" };
    for (b, buffer) in section.buffers.iter_enumerated() {
        let Some(End { tensor, level, writes, .. }) = end(verifier, section, &buffer.spec) else { continue };
        let count = section.streams.ids().filter(|&s| is_end(verifier, section, b, s)).count();
        if count != 1 {
            let title = format!("{count} streams {} `{}` for a buffer", verb(writes), verifier.tensor(tensor));
            return Err(Fault::new(Place::Streams, title, format!("expected one, loop level {level:?}")));
        }
    }
    for (s, off_chip) in section.streams.iter_enumerated() {
        if !section.buffers.ids().any(|b| is_end(verifier, section, b, s)) {
            let (verb, name) = (verb(off_chip.stream.writes), verifier.tensor(off_chip.stream.tensor));
            let title = format!("a {verb} of `{name}` that no buffer is an end of");
            return Err(Fault::new(Place::Stream(s), title, "expected a buffer of this tensor and loop level"));
        }
    }
    Ok(())
}

/// Streams go to the tier of their tensor.
pub(super) fn tiers(verifier: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    for (s, off_chip) in section.streams.iter_enumerated() {
        let own = verifier.tier_of(off_chip.stream.tensor);
        let tier = verifier.chip.memory.get(off_chip.tier);
        if tier.is_none() || own != Some(off_chip.tier) {
            let name = verifier.tensor(off_chip.stream.tensor);
            let of = tier.map_or("no tier", |tier| tier.name.as_str());
            let own = own.and_then(|own| verifier.chip.memory.get(own)).map_or("none", |tier| tier.name.as_str());
            let title = format!("the stream of `{name}` goes to `{of}`");
            return Err(Fault::new(Place::Stream(s), title, format!("expected its tier, `{own}`")));
        }
    }
    Ok(())
}

/// Streams move all bytes of their tensor, as often as the nest comes to them.
pub(super) fn bytes(verifier: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    for (s, off_chip) in section.streams.iter_enumerated() {
        let stream = &off_chip.stream;
        let buffer = section.buffers.ids().find(|&b| is_end(verifier, section, b, s));
        let Some(end) = buffer.and_then(|b| end(verifier, section, &section.buffers[b].spec)) else { continue };
        let tensor = &verifier.graph.workload.tensors[stream.tensor];
        let is_activation = !end.writes && !end.weight;
        let bytes = if is_activation { tensor.dense_bytes() } else { tensor.stored_bytes() };
        let passes = if end.writes {
            1
        } else {
            verifier.passes(&section.schedule.nest(), end.tensor, end.level, end.own_weight)
        };
        if (stream.tensor_bytes, stream.passes) != (bytes, passes) {
            let title = format!("`{}` moves {} B {} times", tensor.name, stream.tensor_bytes, stream.passes);
            return Err(Fault::new(Place::Stream(s), title, format!("expected {bytes} B {passes} times")));
        }
    }
    Ok(())
}
