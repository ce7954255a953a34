//! Exchanges of places at random: placements that neither the constructive rule nor annealing would choose.
//!
//! PCUs change places with PCUs, and PMUs, with all that they hold, with PMUs: banks, ports and multicasts stay as they are, so every
//! state is legal.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use rdusim_base::index::Id;
use rdusim_graph::arch::Chip;
use rdusim_program::{PcuId, PmuId};

use super::placed::Placed;

/// Exchanges units of a placed section: of PCUs and of PMUs, any number of pairs up to as many as there are units.
pub(crate) fn exchange(placed: &mut Placed, chip: &Chip, random: &mut Pcg64Mcg) {
    let pcus: Vec<PcuId> = exchanged(chip.grid.pcus.len(), random);
    let pmus: Vec<PmuId> = exchanged(chip.grid.pmus.len(), random);
    for pcu in placed.stages.iter_mut().flat_map(|stage| &mut stage.pcus) {
        *pcu = pcus[pcu.index()];
    }
    for part in placed.buffers.iter_mut().flat_map(|b| &mut b.pieces).flat_map(|piece| &mut piece.parts) {
        part.pmu = pmus[part.pmu.index()];
    }
}

/// Where each of `count` units goes.
fn exchanged<I: Id>(count: usize, random: &mut Pcg64Mcg) -> Vec<I> {
    let mut units: Vec<I> = (0..count).map(I::from_index).collect();
    if count > 1 {
        for _ in 0..random.random_range(0..count) {
            units.swap(random.random_range(0..count), random.random_range(0..count));
        }
    }
    units
}
