//! Checks of PMUs: pieces, banks, capacity and ports of buffers.

use crate::buffer::{BufferSpec, Piece};
use crate::configuration::Section;
use crate::ids::BufferId;
use rdusim_base::index::Id;

use super::context::Verifier;
use super::fault::{Fault, Place};

/// Banks that are left while buffers take theirs.
pub struct Banks<'v> {
    verifier: &'v Verifier<'v>,
    free: Vec<u64>,
}

impl<'v> Banks<'v> {
    /// All free.
    pub fn new(verifier: &'v Verifier<'v>) -> Self {
        Self { verifier, free: vec![verifier.chip.pmu.banks; verifier.chip.grid.pmus.len()] }
    }

    /// Takes the banks of a buffer.
    ///
    /// # Errors
    /// No slots, a wrong number of pieces, a piece too small for its slots, a PMU without room, a port that is none.
    pub fn take(&mut self, buffer: BufferId, spec: &BufferSpec, pieces: &[Piece]) -> Result<(), Fault> {
        let chip = self.verifier.chip;
        if spec.depth == 0 {
            return Err(Fault::new(Place::Depth(buffer), "a buffer without slots", "expected at least 1"));
        }
        if pieces.len() as u64 != spec.slices.saturating_mul(spec.copies) {
            let title = format!("the buffer has {} pieces", pieces.len());
            let expected = format!("expected {} slices in {} copies", spec.slices, spec.copies);
            return Err(Fault::new(Place::Pieces(buffer), title, expected));
        }
        let needed = spec.banks(chip);
        for (p, piece) in pieces.iter().enumerate() {
            let banks = piece.parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.banks));
            if banks < needed {
                let title = format!("piece {p} has {banks} banks for {} slots of {} B", spec.depth, spec.slot_bytes);
                let expected = format!("expected {needed} banks of {} B", chip.pmu.bank_bytes());
                return Err(Fault::new(Place::Part(buffer, p, 0), title, expected));
            }
            for (k, part) in piece.parts.iter().enumerate() {
                let place = Place::Part(buffer, p, k);
                let Some(left) = self.free.get_mut(part.pmu.index()) else {
                    let title = format!("there is no PMU {} on the grid", part.pmu.index());
                    return Err(Fault::new(place, title, format!("expected one of {} PMUs", chip.pmus())));
                };
                if part.banks == 0 || part.banks > *left {
                    let at = chip.grid.pmus[part.pmu.index()];
                    let title = format!("the PMU at [{}, {}] has no {} banks left", at.x, at.y, part.banks);
                    let expected = format!("{left} of its {} banks are free", chip.pmu.banks);
                    return Err(Fault::new(place, title, expected));
                }
                *left -= part.banks;
                if part.read_port >= chip.pmu.read_ports || part.write_port >= chip.pmu.write_ports {
                    let title = format!("no such port: read {}, write {}", part.read_port, part.write_port);
                    let (reads, writes) = (chip.pmu.read_ports, chip.pmu.write_ports);
                    let expected = format!("a PMU has read ports 0 to {}, write ports 0 to {}", reads - 1, writes - 1);
                    return Err(Fault::new(place, title, expected));
                }
            }
        }
        Ok(())
    }
}

/// Banks and ports of every buffer.
pub(super) fn banks(verifier: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    let mut banks = Banks::new(verifier);
    for (b, buffer) in section.buffers.iter_enumerated() {
        banks.take(b, &buffer.spec, &buffer.pieces)?;
    }
    Ok(())
}

/// What the section says of its SRAM is the sum over its buffers.
pub(super) fn sums(verifier: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    let taken = section.taken_banks(verifier.chip);
    let bank_bytes = verifier.chip.pmu.bank_bytes();
    let pmus = taken.iter().filter(|&&banks| banks > 0).count() as u64;
    let bytes = taken.iter().sum::<u64>() * bank_bytes;
    let of_slots = |pieces: u64, spec: &BufferSpec| pieces.saturating_mul(spec.slot_bytes).saturating_mul(spec.depth);
    let payload: u64 = section
        .buffers
        .iter()
        .map(|buffer| of_slots(buffer.pieces.len() as u64, &buffer.spec))
        .fold(0, u64::saturating_add);
    let found = (section.pmus, section.sram_bytes, section.sram_bank_loss_bytes);
    let expected = (pmus, bytes, bytes.saturating_sub(payload));
    if found == expected {
        return Ok(());
    }
    let title =
        format!("the section says {} PMUs, {} B of SRAM, {} B of them without a slot", found.0, found.1, found.2);
    let expected = format!("its buffers take {}, {} B, {} B", expected.0, expected.1, expected.2);
    Err(Fault::new(Place::Buffers, title, expected))
}
