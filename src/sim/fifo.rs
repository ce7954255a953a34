//! The FIFO at a PCU's input, which decouples its port from its work.

use crate::arch::Chip;
use crate::cost::{Ticks, cycles};

/// The FIFO of every operand at a PCU's input.
#[derive(Debug, Clone, Copy)]
pub(super) struct InputFifo {
    holds_flits: u64,
}

impl InputFifo {
    /// It holds two steps of the widest operand at least.
    pub(super) fn new(chip: &Chip) -> Self {
        let pcu = &chip.pcu;
        let widest = pcu.lanes.values().copied().max().unwrap_or(1).max(pcu.stages) * 4;
        let network = &chip.network;
        Self { holds_flits: network.fifo_depth_flits.max(2 * widest.div_ceil(network.flit_bytes)) }
    }

    /// How long what comes through one port, `flits` of activations and of weights, keeps a firing of `tiles` at least, as
    /// all that has not come into the FIFOs before still has to pass. In `idle` ticks at the end of a tile no operand is
    /// taken, and the port stops when the FIFOs are full.
    pub(super) fn passes(self, flits: [u64; 2], tiles: u64, idle: Ticks) -> Ticks {
        // Each operand has a FIFO of its own.
        let held = |of: [u64; 2]| of.map(|flits| flits.min(self.holds_flits)).iter().sum::<u64>();
        let all = flits[0] + flits[1];
        if idle == 0 {
            return cycles(all - held(flits));
        }
        let of_tile = flits.map(|flits| flits / tiles);
        tiles * (idle + cycles(all / tiles).saturating_sub(cycles(held(of_tile)).min(idle)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_stops_while_a_tile_drains_and_the_fifo_is_full() {
        let fifo = InputFifo { holds_flits: 16 };
        // Without drains only the first flits come before.
        assert_eq!(fifo.passes([384, 0], 4, 0), cycles(368));
        assert_eq!(fifo.passes([384, 2], 4, 0), cycles(368));
        // In 96 idle cycles of each tile it takes 16 of the next tile's 96 flits; in 10 it takes 10.
        assert_eq!(fifo.passes([384, 0], 4, cycles(96)), cycles(4 * (96 + 80)));
        assert_eq!(fifo.passes([0, 384], 4, cycles(10)), cycles(4 * (10 + 86)));
        // Both operands through one port: 32 of the next tile's 144.
        assert_eq!(fifo.passes([192, 384], 4, cycles(96)), cycles(4 * (96 + 112)));
    }
}
