//! Which lockstep groups are slowed to loops of credits.

use rdusim_program::{Fabric, ProcessKind};

use super::engine::Engine;
use super::network::credit_loops::{CreditLoops, Operand};
use super::network::credits::Credits;

impl Engine<'_> {
    /// Slows the operands of every lockstep group to the slowest loop of credits that their flows make. `moved`: flits of each
    /// transfer group in the section.
    pub(super) fn slow_to_credit_loops(&mut self, fabric: &Fabric, moved: &[u64]) {
        let mut loops = CreditLoops::new(self.chip, fabric);
        let mut operands = Vec::new();
        for actor in &self.actors {
            let ProcessKind::Group { stage, group } = actor.kind else { continue };
            let mut largest = [(actor.feed, 0.0), (actor.weights, 0.0)];
            operands.clear();
            for (of, most) in &mut largest {
                let of_firing = moved[*of] as f64 / actor.count.max(1) as f64;
                for flow in self.network.flows_of(*of) {
                    let flits = of_firing * flow.share.0 as f64 / flow.share.1 as f64;
                    *most = flits.max(*most);
                    operands.push(Operand { flow, flits });
                }
            }
            let row_tile = self.tiling.row_tile(actor.at.row_tile);
            let works = self.work[stage].cycles(actor.at.column_tile, group, row_tile).0 as f64;
            // A port passes a flit a cycle.
            let least = largest.iter().fold(works, |least, &(_, flits)| least.max(flits));
            let Some(slowest) = loops.slowest(&operands, least) else { continue };
            for (of, flits) in largest.into_iter().filter(|&(_, flits)| flits > 0.0) {
                self.network.limit(of, Credits::of_loop(slowest, flits));
            }
        }
    }
}
