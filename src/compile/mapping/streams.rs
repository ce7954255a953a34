//! The off-chip streams that a section's buffers ask for.

use crate::program::{BufferRole, BufferSpec, Cadence, Nest, SectionGraph, Stream};

/// The off-chip streams that a list of buffers asks for: one a tensor and cadence, in order of the buffers.
pub fn streams(graph: &SectionGraph<'_>, nest: &Nest, buffers: &[BufferSpec]) -> Vec<Stream> {
    let mut list: Vec<Stream> = Vec::new();
    let workload = graph.workload;
    for buffer in buffers {
        let stream = match buffer.role {
            BufferRole::Operand { stage, tensor } | BufferRole::Home { stage, tensor } => {
                let from_home = matches!(buffer.role, BufferRole::Operand { .. })
                    && buffers.iter().any(|b| b.role == BufferRole::Home { stage, tensor });
                if from_home || graph.producer(tensor).is_some() {
                    continue;
                }
                let cut = nest.chunking.is_some_and(|c| graph.column_axis(tensor) == Some(c.axis));
                let passes = if buffer.cadence == Cadence::Firing && !cut { nest.chunks() } else { 1 };
                let tensor_bytes = workload.tensors[tensor].dense_bytes();
                Stream { tensor, cadence: buffer.cadence, writes: false, weight: false, tensor_bytes, passes }
            }
            BufferRole::Weight { tensor, .. } => {
                let own = matches!(buffer.role, BufferRole::Weight { stage, .. } if graph.form(stage).is_some());
                let passes = if buffer.cadence == Cadence::BlockChunk && !own { nest.blocks() } else { 1 };
                let tensor_bytes = workload.tensors[tensor].stored_bytes();
                Stream { tensor, cadence: buffer.cadence, writes: false, weight: true, tensor_bytes, passes }
            }
            BufferRole::Store { tensor, .. } => {
                let tensor_bytes = workload.tensors[tensor].stored_bytes();
                Stream { tensor, cadence: buffer.cadence, writes: true, weight: false, tensor_bytes, passes: 1 }
            }
            BufferRole::Partial { .. } | BufferRole::Relay { .. } => continue,
        };
        if !list.contains(&stream) {
            list.push(stream);
        }
    }
    list
}
