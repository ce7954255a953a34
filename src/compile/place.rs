//! Placement: a coordinate for every stage's PCUs, and PMU banks near the PCUs that use them.

use crate::arch::{Chip, Coordinate};
use crate::index::Id;

use super::buffers::BufferRole;
use super::configuration::{Buffer, Part, PcuId, Piece, PmuId, Stage};
use super::mapping::Mapping;
use super::plan::SectionPlan;
use super::work::StageWork;

/// Share of a port's rate that placement fills before it looks for another PMU.
const PORT_HEADROOM: f64 = 0.95;

/// PCUs of every stage: bands of whole columns in pipeline order, each band filled row by row, so that a row slice
/// lies along rows and a weight column crosses them.
pub fn place_pcus(chip: &Chip, mappings: &[Mapping]) -> Vec<Vec<PcuId>> {
    let mut by_column: Vec<usize> = (0..chip.grid.pcus.len()).collect();
    by_column.sort_by_key(|&i| (chip.grid.pcus[i].x, chip.grid.pcus[i].y));
    let mut next = 0;
    mappings
        .iter()
        .map(|mapping| {
            let count = mapping.pcus() as usize;
            let mut band = by_column[next..next + count].to_vec();
            next += count;
            band.sort_by_key(|&i| {
                let at = chip.grid.pcus[i];
                // Every other row backwards: neighbours in the list are neighbours on the grid.
                let x = if at.y % 2 == 0 { i64::from(at.x) } else { -i64::from(at.x) };
                (at.y, x)
            });
            band.into_iter().map(PcuId::from_index).collect()
        })
        .collect()
}

/// Banks and port rates still free in every PMU.
#[derive(Debug)]
struct PmuPool<'a> {
    chip: &'a Chip,
    free_banks: Vec<u64>,
    read_rate: Vec<Vec<f64>>,
    write_rate: Vec<Vec<f64>>,
}

impl<'a> PmuPool<'a> {
    fn new(chip: &'a Chip) -> Self {
        let n = chip.grid.pmus.len();
        Self {
            chip,
            free_banks: vec![chip.pmu.banks; n],
            read_rate: vec![vec![0.0; chip.pmu.read_ports as usize]; n],
            write_rate: vec![vec![0.0; chip.pmu.write_ports as usize]; n],
        }
    }

    /// Takes `banks` near `target`, over at least `spread` PMUs, for a piece read and written at these rates (flits
    /// a cycle over the whole piece). `None` when the chip has no such banks left.
    fn take(&mut self, target: (f64, f64), banks: u64, spread: u64, read: f64, write: f64) -> Option<Piece> {
        let mut piece = Piece::default();
        let mut left = banks;
        let most = banks.div_ceil(spread.max(1));
        while left > 0 {
            let wanted = left.min(most);
            let share = wanted as f64 / banks as f64;
            let pmu = self.nearest(target, wanted, read * share, write * share, &piece)?;
            let taken = wanted.min(self.free_banks[pmu]);
            let share = taken as f64 / banks as f64;
            self.free_banks[pmu] -= taken;
            left -= taken;
            let read_port = lowest(&self.read_rate[pmu]);
            let write_port = lowest(&self.write_rate[pmu]);
            self.read_rate[pmu][read_port] += read * share;
            self.write_rate[pmu][write_port] += write * share;
            let (read_port, write_port) = (read_port as u64, write_port as u64);
            piece.parts.push(Part { pmu: PmuId::from_index(pmu), banks: taken, read_port, write_port });
        }
        Some(piece)
    }

    fn nearest(&self, target: (f64, f64), wanted: u64, read: f64, write: f64, taken: &Piece) -> Option<usize> {
        let mut best: Option<(f64, usize)> = None;
        for (pmu, at) in self.chip.grid.pmus.iter().enumerate() {
            let free = self.free_banks[pmu];
            if free == 0 || taken.parts.iter().any(|p| p.pmu.index() == pmu) {
                continue;
            }
            let mut cost = (f64::from(at.x) - target.0).abs() + (f64::from(at.y) - target.1).abs();
            let over = |rates: &[f64], more: f64| rates[lowest(rates)] + more > PORT_HEADROOM;
            if over(&self.read_rate[pmu], read) || over(&self.write_rate[pmu], write) {
                cost += 1e6;
            }
            if free < wanted {
                // Splitting a piece costs a flow; going far costs hops.
                cost += 4.0;
            }
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, pmu));
            }
        }
        best.map(|(_, pmu)| pmu)
    }
}

fn lowest(rates: &[f64]) -> usize {
    let mut at = 0;
    for (i, rate) in rates.iter().enumerate() {
        if *rate < rates[at] {
            at = i;
        }
    }
    at
}

fn centre(chip: &Chip, pcus: impl Iterator<Item = PcuId>) -> (f64, f64) {
    let (mut x, mut y, mut n) = (0.0, 0.0, 0.0);
    for pcu in pcus {
        let at: Coordinate = chip.grid.pcus[pcu.index()];
        x += f64::from(at.x);
        y += f64::from(at.y);
        n += 1.0;
    }
    if n == 0.0 { (0.0, 0.0) } else { (x / n, y / n) }
}

/// Buffers in PMUs; `None` when banks run out (spreading for ports can need more PMUs than bytes do).
pub fn place_buffers(chip: &Chip, plan: &SectionPlan, stages: &[Stage], work: &[StageWork]) -> Option<Vec<Buffer>> {
    let mut pool = PmuPool::new(chip);
    let mut buffers: Vec<Buffer> =
        plan.buffers.iter().map(|&spec| Buffer { spec, pieces: Vec::new() }).collect();
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    // Pieces tied to one PCU first: they have the least choice.
    order.sort_by_key(|&b| match buffers[b].spec.role {
        BufferRole::Partial { .. } => (0, b),
        BufferRole::Operand { .. } => (1, b),
        BufferRole::Weight { .. } => (2, b),
        BufferRole::Store { .. } => (3, b),
        BufferRole::Home { .. } => (4, b),
    });
    let interval = (plan.estimate.cycles as f64 / plan.nest.count(super::nest::Cadence::Firing) as f64).max(1.0);
    for index in order {
        let spec = buffers[index].spec;
        let slot_rate = (spec.slot_bytes.div_ceil(chip.network.flit_bytes)) as f64 / interval;
        let mut pieces = Vec::with_capacity((spec.copies * spec.slices) as usize);
        for copy in 0..spec.copies {
            for slice in 0..spec.slices {
                let (stage, read, write) = match spec.role {
                    BufferRole::Operand { stage, .. } => (stage, work[stage].activation_rate(), slot_rate),
                    BufferRole::Weight { stage, .. } => (stage, work[stage].weight_rate(), 0.1 * slot_rate),
                    BufferRole::Partial { stage } => {
                        (stage, work[stage].partial_rate(), work[stage].partial_rate())
                    }
                    BufferRole::Home { stage, .. } | BufferRole::Store { stage, .. } => (stage, slot_rate, slot_rate),
                };
                let s = &stages[stage];
                let (pm, wide) = (s.mapping.pm(), s.bundle_width());
                let target = match spec.role {
                    BufferRole::Operand { .. } => centre(chip, (0..wide).map(|q| s.pcu(copy, slice, q))),
                    BufferRole::Weight { .. } => {
                        centre(chip, (0..pm).map(|i| s.pcu(slice / wide, i, slice % wide)))
                    }
                    BufferRole::Partial { .. } => {
                        let (bundle, rest) = (slice / (pm * wide), slice % (pm * wide));
                        centre(chip, std::iter::once(s.pcu(bundle, rest / wide, rest % wide)))
                    }
                    BufferRole::Home { .. } | BufferRole::Store { .. } => {
                        let bundles = s.mapping.bundles();
                        centre(chip, (0..bundles).flat_map(|b| (0..wide).map(move |q| s.pcu(b, slice, q))))
                    }
                };
                pieces.push(pool.take(target, spec.banks(chip), spec.spread, read, write)?);
            }
        }
        buffers[index].pieces = pieces;
    }
    Some(buffers)
}
