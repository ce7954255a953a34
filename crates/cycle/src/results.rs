//! What leaves a PCU: the output FIFOs of its flows.

use rdusim_program::{FlowId, Iteration};

use super::amounts::Amounts;
use super::wires::Wires;

/// Flows out of one port of a PCU that carry the results of the same firings.
#[derive(Debug, Default)]
pub(super) struct Results {
    flows: Vec<FlowId>,
    /// Flits of the firings before.
    before: Vec<u64>,
    /// Flits of the firing whose results come now.
    of_firing: Vec<u64>,
}

impl Results {
    /// Results that leave over `flows`.
    pub(super) fn new(flows: Vec<FlowId>) -> Self {
        let none = vec![0; flows.len()];
        Self { flows, before: none.clone(), of_firing: none }
    }

    /// The firing at a step is the next whose results come.
    pub(super) fn open(&mut self, amounts: &Amounts<'_>, at: Iteration) {
        for (i, &flow) in self.flows.iter().enumerate() {
            self.before[i] += self.of_firing[i];
            self.of_firing[i] = amounts.flits(&amounts.section.flows[flow], at);
        }
    }

    /// Puts out the results up to `part / whole` of the firing; `false` and nothing if an output FIFO of `depth` flits
    /// has no room.
    #[inline]
    pub(super) fn put(&self, wires: &mut Wires, part: u64, whole: u64, depth: u64, now: u64) -> bool {
        let upto = |i: usize| self.before[i] + part_of(self.of_firing[i], part, whole, false);
        for (i, &flow) in self.flows.iter().enumerate() {
            let (total, given, sent) = (upto(i), wires.ready(flow), wires.sent(flow));
            // More flits at once than the FIFO holds go through an empty one.
            if total > given && given > sent && total - sent > depth {
                return false;
            }
        }
        for (i, &flow) in self.flows.iter().enumerate() {
            wires.give(flow, upto(i), now);
        }
        true
    }
}

/// Flits that a PCU has to take of one flow.
#[derive(Debug)]
pub(super) struct Operand {
    /// The flow.
    pub(super) flow: FlowId,
    /// Where it comes out.
    pub(super) sink: usize,
    /// Flits of the firings before.
    before: u64,
    /// Flits of this firing.
    of_firing: u64,
}

impl Operand {
    /// An operand that comes over `flow` at `sink`.
    pub(super) fn new(flow: FlowId, sink: usize) -> Self {
        Self { flow, sink, before: 0, of_firing: 0 }
    }

    /// The next firing is the one at a step.
    pub(super) fn open(&mut self, amounts: &Amounts<'_>, at: Iteration) {
        self.before += self.of_firing;
        self.of_firing = amounts.flits(&amounts.section.flows[self.flow], at);
    }

    /// Flits of all firings up to `part / whole` of this one.
    #[inline]
    fn upto(&self, part: (u64, u64)) -> u64 {
        self.before + part_of(self.of_firing, part.0, part.1, true)
    }

    /// Whether all flits up to `part / whole` of this firing are here.
    #[inline]
    pub(super) fn is_here(&self, wires: &Wires, part: (u64, u64)) -> bool {
        wires.sinks[self.sink].delivered >= self.upto(part)
    }

    /// Takes them.
    #[inline]
    pub(super) fn take(&self, wires: &mut Wires, part: (u64, u64), now: u64) {
        wires.take(self.sink, self.upto(part), now);
    }
}

/// `part / whole` of so many flits, rounded up or down. Most numbers are small enough to be spared a division of 128 bits.
#[inline]
fn part_of(flits: u64, part: u64, whole: u64, up: bool) -> u64 {
    if flits == whole && whole > 0 {
        return part;
    }
    let whole = whole.max(1);
    match flits.checked_mul(part) {
        Some(product) if up => product.div_ceil(whole),
        Some(product) => product / whole,
        None => {
            let (product, whole) = (u128::from(flits) * u128::from(part), u128::from(whole));
            (if up { product.div_ceil(whole) } else { product / whole }) as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_rounded_down_or_up() {
        for (flits, part, whole, down, up) in
            [(7, 7, 7, 7, 7), (7, 2, 7, 2, 2), (10, 5, 5, 10, 10), (10, 1, 3, 3, 4), (0, 0, 0, 0, 0)]
        {
            assert_eq!((part_of(flits, part, whole, false), part_of(flits, part, whole, true)), (down, up));
        }
        assert_eq!(part_of(u64::MAX, 1, 2, true), u64::MAX / 2 + 1);
    }
}
