//! The off-chip streams that a section's buffers ask for.

use rdusim_base::index::IndexVec;
use rdusim_program::{BufferId, BufferRole, BufferSpec, LoopLevel, Nest, SectionGraph, Stream, StreamId};

/// The off-chip streams that a list of buffers asks for: one a tensor and loop level, in order of the buffers.
pub(crate) fn streams(
    graph: &SectionGraph<'_>,
    nest: &Nest,
    buffers: &IndexVec<BufferId, BufferSpec>,
) -> IndexVec<StreamId, Stream> {
    let mut list: IndexVec<StreamId, Stream> = IndexVec::new();
    let workload = graph.workload;
    for buffer in buffers {
        let stream = match buffer.role {
            BufferRole::Operand { stage, tensor } | BufferRole::Resident { stage, tensor } => {
                let from_resident = matches!(buffer.role, BufferRole::Operand { .. })
                    && buffers.iter().any(|b| b.role == BufferRole::Resident { stage, tensor });
                if from_resident || graph.producer(tensor).is_some() {
                    continue;
                }
                // What is along the cut is read again in every panel, what is off it in every column tile.
                let is_along = nest.tiled_axis.is_some_and(|cut| cut.is_along(graph.column_axis(tensor)));
                let passes = match buffer.level {
                    LoopLevel::FIRING if is_along => nest.panels(),
                    LoopLevel::FIRING => nest.column_tiles(),
                    _ => 1,
                };
                let tensor_bytes = workload.tensors[tensor].dense_bytes();
                Stream { tensor, level: buffer.level, writes: false, weight: false, tensor_bytes, passes }
            }
            BufferRole::Weight { stage, .. } if graph.stages[stage].sequence.is_some() => continue,
            BufferRole::Weight { tensor, .. } => {
                let own = matches!(buffer.role, BufferRole::Weight { stage, .. } if graph.form(stage).is_some_and(|form| form.instances > 1));
                let passes = if buffer.level == LoopLevel::BLOCK_COLUMN && !own { nest.blocks() } else { 1 };
                let tensor_bytes = workload.tensors[tensor].stored_bytes();
                Stream { tensor, level: buffer.level, writes: false, weight: true, tensor_bytes, passes }
            }
            BufferRole::State { tensor, .. } => {
                let tensor_bytes = workload.tensors[tensor].stored_bytes();
                Stream { tensor, level: buffer.level, writes: false, weight: false, tensor_bytes, passes: 1 }
            }
            BufferRole::Output { tensor, .. } => {
                let tensor_bytes = workload.tensors[tensor].stored_bytes();
                Stream { tensor, level: buffer.level, writes: true, weight: false, tensor_bytes, passes: 1 }
            }
            BufferRole::PartialSums { .. } | BufferRole::PartialFifo { .. } => continue,
        };
        if !list.iter().any(|other| *other == stream) {
            list.push(stream);
        }
    }
    list
}
