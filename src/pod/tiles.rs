//! Passes of a part of the model on a chip of tiles, from its supersteps.
//!
//! A step is one program, so that nothing is started anew. What other micro-batches keep on a stage takes memory from it, and
//! the optimiser's state lies on the replicas in parts where they share it: what then cannot be resident is streamed, and counted.

use super::graph::{self, Piece};
use super::memory;
use super::parallel::Job;
use super::pass::{PieceTime, Pieces, dynamic_joules};
use super::system::Stack;
use crate::arch::Bsp;
use crate::bsp;
use crate::diagnostics::Diagnostic;
use crate::mode::Mode;
use crate::workload::{self, Phase};

/// Times of all pieces.
///
/// # Errors
/// What does not fit the tiles, and what is not modelled on them.
pub(super) fn pieces(chip: &Bsp, stack: &Stack, job: &Job) -> Result<Pieces, Diagnostic> {
    if job.parallel.schedule.splits_weights() || job.parallel.shards_passes() {
        let title = "zb-h1, zb-v and zero=2 or 3 are not modelled on chips of tiles";
        return Err(Diagnostic::new(title).with_help("use 1f1b or interleaved:PARTS, and zero=0 or 1"));
    }
    let waiting = memory::waiting(job, stack.kind, 0);
    let mut resident = chip.clone();
    resident.state_shards = job.parallel.sharding()[0];
    let streamed = resident.clone();
    resident.tile.reserved_bytes += waiting.div_ceil(chip.tile.count);
    let has_room = resident.tile.reserved_bytes < chip.tile.sram_bytes;
    let on_tiles = if has_room { Some(all(&resident, stack, job)) } else { None };
    if waiting == 0 {
        return on_tiles.unwrap_or_else(|| all(&resident, stack, job));
    }
    // What waits lies on the tiles or off the chip, whichever is faster: there it goes, and comes back, once a micro-batch.
    let each = memory::waiting_of_one(job, stack.kind, 0) as f64;
    let moving = each / chip.clock_hz as f64 / chip.memory_bytes_per_cycle();
    let off_chip = all(&streamed, stack, job).map(|mut pieces| {
        pieces.layers.forward.compute += moving;
        pieces.layers.backward.compute += moving;
        pieces
    });
    let seconds = |pieces: &Pieces| pieces.layers.forward.seconds() + pieces.layers.backward.seconds();
    match (on_tiles, off_chip) {
        (Some(Ok(on_tiles)), Ok(off_chip)) if seconds(&off_chip) < seconds(&on_tiles) => Ok(off_chip),
        (Some(Ok(on_tiles)), _) => Ok(on_tiles),
        (_, off_chip) => off_chip,
    }
}

/// Times of all pieces on a chip with so much memory.
fn all(chip: &Bsp, stack: &Stack, job: &Job) -> Result<Pieces, Diagnostic> {
    let run = |piece: Piece| -> Result<PieceTime, Diagnostic> {
        let text = graph::workload_on_tiles(job, piece)?;
        let workload = workload::parse("the part of the model on one chip", &text, &[], 0)?;
        let outcome = bsp::run(chip, &workload, &[Mode::Fused])?.remove(0);
        let of = |phase: Phase| -> f64 {
            let sections = outcome.sections.iter().filter(|section| section.phase == phase);
            let cycles: u64 = sections.map(|section| section.cycles - section.launch_cycles).sum();
            cycles as f64 / chip.clock_hz as f64 * stack.kernel_factor
        };
        let joules = |phase| dynamic_joules(&outcome, phase);
        Ok(PieceTime::of_phases(job, piece, of).with_energy(joules))
    };
    Pieces::each(job, run)
}
