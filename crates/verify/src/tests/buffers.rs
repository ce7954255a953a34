//! Buffers with fewer slots than what is live in them are caught.

use super::*;

/// A section whose column tiles pass over row blocks of several row tiles, with sums and activations kept for them.
fn keeps_row_blocks(section: &Section) -> bool {
    let nest = section.schedule.nest();
    let kept = |buffer: &Buffer| buffer.spec.level == LoopLevel::ROW_TILE && buffer.spec.depth >= nest.block_tiles;
    let activations =
        |b: &Buffer| matches!(b.spec.role, BufferRole::Operand { .. } | BufferRole::Resident { .. }) && kept(b);
    let sums = |b: &Buffer| matches!(b.spec.role, BufferRole::PartialSums { .. }) && b.spec.depth >= 2;
    nest.column_tiles() > 1
        && nest.block_tiles > 1
        && nest.order == LoopOrder::ColumnTileOuter
        && section.buffers.iter().any(activations)
        && section.buffers.iter().any(sums)
}

#[test]
fn a_buffer_one_row_tile_too_shallow_is_caught() {
    // Partial sums of a row block live side by side.
    let verdict = drawn(streamed(), keeps_row_blocks).with(|section| {
        let nest = section.schedule.nest();
        let partial = |b: &&mut Buffer| matches!(b.spec.role, BufferRole::PartialSums { .. }) && b.spec.depth >= 2;
        let buffer = section.buffers.iter_mut().find(partial);
        buffer.is_some_and(|buffer| {
            buffer.spec.depth = nest.block_tiles.min(buffer.spec.depth) - 1;
            true
        })
    });
    let fault = caught(&verdict.expect("the streamed case has partial sums"));
    assert!(
        fault.contains("before their last read") && fault.contains("row tile") && fault.contains("step"),
        "{fault}"
    );
    // Activations of a row block that every column tile reads again.
    let verdict = drawn(streamed(), keeps_row_blocks).with(|section| {
        let nest = section.schedule.nest();
        let held = |b: &&mut Buffer| {
            let activations = matches!(b.spec.role, BufferRole::Operand { .. } | BufferRole::Resident { .. });
            activations && b.spec.level == LoopLevel::ROW_TILE && b.spec.depth >= nest.block_tiles
        };
        let again = nest.column_tiles() > 1 && nest.block_tiles > 1;
        section.buffers.iter_mut().find(held).filter(|_| again).is_some_and(|buffer| {
            buffer.spec.depth = nest.block_tiles - 1;
            true
        })
    });
    let fault = caught(&verdict.expect("the streamed case keeps a row block"));
    assert!(fault.contains("deadlock") && fault.contains("slots of which are in use"), "{fault}");
    // Credits for one slot more than the banks hold. Memory fills a ring as far as it may; what goes to memory may leave
    // as fast as it comes, and never use them.
    let mut found = 0;
    for case in all() {
        let bank_bytes = case.chip.pmu.bank_bytes();
        let verdict = case.with(|section| {
            let nest = section.schedule.nest();
            section.buffers.iter_mut().any(|buffer| {
                let holds = buffer.pieces.iter().map(|piece| {
                    piece.parts.iter().map(|part| part.banks).sum::<u64>() * bank_bytes / buffer.spec.slot_bytes.max(1)
                });
                let holds = holds.min().unwrap_or(0);
                let fills = !matches!(buffer.spec.role, BufferRole::PartialSums { .. } | BufferRole::Output { .. });
                if holds == 0 || !fills || nest.count(buffer.spec.level) <= holds {
                    return false;
                }
                buffer.spec.depth = holds + 1;
                true
            })
        });
        if let Some(verdict) = verdict {
            let fault = caught(&verdict);
            assert!(fault.contains("overwrites") && fault.contains("before its last read"), "{fault}");
            found += 1;
        }
    }
    assert!(found > 0, "no case has a ring that is used again");
}
