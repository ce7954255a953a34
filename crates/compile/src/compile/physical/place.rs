//! Placement: a coordinate for every stage's PCUs, and PMU banks near the PCUs that use them.

use crate::compile::mapping::plan::SectionPlan;
use crate::compile::params::PARAMS;
use rdusim_base::index::{Id, IndexVec};
use rdusim_cost::cost::StageWork;
use rdusim_graph::arch::{Chip, Coordinate};
use rdusim_program::{
    Buffer, BufferId, BufferRole, BufferSpec, LoopLevel, Mapping, Part, PcuId, Piece, PmuId, Stage, StageId,
};

/// PCUs of every stage: bands of whole columns in pipeline order, and within a band the arrangement whose operand
/// streams need the fewest flit-hops.
pub(crate) fn place_pcus(chip: &Chip, work: &IndexVec<StageId, StageWork>) -> IndexVec<StageId, Vec<PcuId>> {
    let mut by_column: Vec<usize> = (0..chip.grid.pcus.len()).collect();
    by_column.sort_by_key(|&i| (chip.grid.pcus[i].x, chip.grid.pcus[i].y));
    let mut next = 0;
    work.iter()
        .map(|work| {
            let count = work.mapping().pcus() as usize;
            let band = &by_column[next..next + count];
            next += count;
            arrange(chip, band, work)
        })
        .collect()
}

/// Orders in which the sites of a band are walked.
const WALKS: [(bool, bool); 4] = [(true, false), (true, true), (false, false), (false, true)];

/// Lays a stage's array on the sites of its band.
fn arrange(chip: &Chip, band: &[usize], work: &StageWork) -> Vec<PcuId> {
    let Mapping::Gemm(m) = work.mapping() else {
        // A SIMD stage has no multicast: neighbours in the list need only be neighbours on the grid.
        return walk(chip, band, true, true).into_iter().map(PcuId::from_index).collect();
    };
    let mut best: Option<(f64, Vec<PcuId>)> = None;
    for (by_row, snake) in WALKS {
        let sites = walk(chip, band, by_row, snake);
        let line = if by_row { |c: Coordinate| c.y } else { |c: Coordinate| c.x };
        let first = line(chip.grid.pcus[sites[0]]);
        let in_line = sites.iter().filter(|&&i| line(chip.grid.pcus[i]) == first).count() as u64;
        let mut blocks: Vec<u64> = vec![1, 2, 4, 8, in_line / 2, in_line, in_line * 2, m.pn];
        blocks.retain(|&b| (1..=m.pn).contains(&b));
        blocks.sort_unstable();
        blocks.dedup();
        // Slices of K lie as further columns, one slice behind the other or column by column.
        let ways = blocks.into_iter().flat_map(|block| [(block, false), (block, true)]);
        for (block, chained) in ways.filter(|&(_, chained)| !chained || m.pk > 1 && work.is_sampled()) {
            let (pn, multicast_width) = (m.pn * m.pk, m.multicast_width);
            let array = Array { chip, pm: m.pm, pn, pk: m.pk, chained, multicast_width, block, sites: &sites };
            let partial_rate = if work.is_sampled() { work.partial_rate() } else { 0.0 };
            let cost = array.flit_hops(work.activation_rate(), work.weight_rate(), partial_rate);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, array.order()));
            }
        }
    }
    best.map(|(_, order)| order).unwrap_or_default()
}

/// The sites of a band line by line, every other line backwards for a snake.
fn walk(chip: &Chip, band: &[usize], by_row: bool, snake: bool) -> Vec<usize> {
    let mut sites = band.to_vec();
    sites.sort_by_key(|&i| {
        let at = chip.grid.pcus[i];
        let (line, along) = if by_row { (at.y, at.x) } else { (at.x, at.y) };
        let along = i64::from(along);
        (line, if snake && line % 2 == 1 { -along } else { along })
    });
    sites
}

/// A `pm x pn` array placed along a walk in blocks of `block` columns, each block row by row.
struct Array<'a> {
    chip: &'a Chip,
    pm: u64,
    pn: u64,
    /// Slices of K among the columns; if `chained`, those of a column are neighbours.
    pk: u64,
    chained: bool,
    multicast_width: u64,
    block: u64,
    sites: &'a [usize],
}

impl Array<'_> {
    /// The PCU of row slice `i` and column `j`.
    fn site(&self, i: u64, j: u64) -> usize {
        let of_slice = self.pn / self.pk;
        let j = if self.chained { j % of_slice * self.pk + j / of_slice } else { j };
        let before = j / self.block * self.block;
        let width = self.block.min(self.pn - before);
        self.sites[(before * self.pm + i * width + j % self.block) as usize]
    }

    /// PCUs in the order of [`Stage::pcu`].
    fn order(&self) -> Vec<PcuId> {
        let mut order = Vec::with_capacity(self.sites.len());
        for group in 0..self.pn / self.multicast_width {
            for i in 0..self.pm {
                for q in 0..self.multicast_width {
                    order.push(PcuId::from_index(self.site(i, group * self.multicast_width + q)));
                }
            }
        }
        order
    }

    /// Flit-hops a cycle of all streams of activations, of weights, and of partial sums from slice to slice of K.
    fn flit_hops(&self, activation_rate: f64, weight_rate: f64, partial_rate: f64) -> f64 {
        let at = |i: u64, j: u64| self.chip.grid.pcus[self.site(i, j)];
        let (mut trees, mut sinks) = (TreeLinks::default(), Vec::new());
        let mut links = |tree: &mut dyn Iterator<Item = Coordinate>| {
            sinks.clear();
            sinks.extend(tree);
            trees.of(&sinks)
        };
        let mut hops = 0.0;
        // A stream to one PCU has no tree.
        for group in (0..self.pn / self.multicast_width).filter(|_| self.multicast_width > 1) {
            for i in 0..self.pm {
                let columns = group * self.multicast_width..(group + 1) * self.multicast_width;
                hops += activation_rate * links(&mut columns.map(|j| at(i, j)));
            }
        }
        for j in 0..self.pn {
            hops += weight_rate * links(&mut (0..self.pm).map(|i| at(i, j)));
        }
        let of_slice = self.pn / self.pk;
        for j in of_slice..self.pn {
            let hop = |i| partial_rate * links(&mut [at(i, j - of_slice), at(i, j)].into_iter());
            hops += (0..self.pm).map(hop).sum::<f64>();
        }
        hops
    }
}

/// Counts the links of multicast trees over sites: a trunk along the middle row or column, and branches.
#[derive(Debug, Default)]
struct TreeLinks {
    /// Places of the sites across the trunk.
    branches: Vec<u32>,
    /// For each line across the trunk the first and the last place on it that the tree reaches.
    reached: Vec<(u32, u32)>,
}

impl TreeLinks {
    /// Links of the shorter of both trees.
    fn of(&mut self, sinks: &[Coordinate]) -> f64 {
        if sinks.len() < 2 {
            return 0.0;
        }
        let [by_row, by_column] = [true, false].map(|is_row| self.along(sinks, is_row));
        f64::from(by_row.min(by_column))
    }

    fn along(&mut self, sinks: &[Coordinate], is_row: bool) -> u32 {
        let split = |c: &Coordinate| if is_row { (c.x, c.y) } else { (c.y, c.x) };
        self.branches.clear();
        self.branches.extend(sinks.iter().map(|c| split(c).1));
        let (_, &mut middle, _) = self.branches.select_nth_unstable(sinks.len() / 2);
        let (first, last) = sinks.iter().map(|c| split(c).0).fold((u32::MAX, 0), |(a, b), at| (a.min(at), b.max(at)));
        self.reached.clear();
        self.reached.resize((last - first + 1) as usize, (middle, middle));
        for (at, branch) in sinks.iter().map(split) {
            let (low, high) = &mut self.reached[(at - first) as usize];
            (*low, *high) = ((*low).min(branch), (*high).max(branch));
        }
        last - first + self.reached.iter().map(|(low, high)| high - low).sum::<u32>()
    }
}

/// No PMU, or none with a bank left.
const FULL: u32 = u32::MAX;

/// Banks and port rates still free in every PMU.
#[derive(Debug)]
struct PmuPool<'a> {
    chip: &'a Chip,
    /// The PMU at each site, or [`FULL`].
    at: Vec<u32>,
    free_banks: Vec<u64>,
    /// Of every port, PMU by PMU.
    read_rate: Vec<f64>,
    write_rate: Vec<f64>,
    /// Rates of the emptiest read and write port of every PMU.
    emptiest: Vec<(f64, f64)>,
    /// The last piece that took banks of every PMU; pieces are counted from 1.
    taken_by: Vec<u64>,
    pieces: u64,
    /// Parts that fill most of a PMU go to the one in the target's pair of columns, of equals: neighbours do not take each
    /// other's only one.
    pairs: bool,
}

impl<'a> PmuPool<'a> {
    fn new(chip: &'a Chip) -> Self {
        let n = chip.grid.pmus.len();
        let mut at = vec![FULL; chip.grid.units.len()];
        for (pmu, site) in chip.grid.pmus.iter().enumerate() {
            at[(site.y * chip.grid.columns + site.x) as usize] = pmu as u32;
        }
        Self {
            chip,
            at,
            free_banks: vec![chip.pmu.banks; n],
            read_rate: vec![0.0; chip.pmu.read_ports as usize * n],
            write_rate: vec![0.0; chip.pmu.write_ports as usize * n],
            emptiest: vec![(0.0, 0.0); n],
            taken_by: vec![0; n],
            pieces: 0,
            pairs: false,
        }
    }

    /// Keeps what follows from as many banks of each PMU as are `taken` by others; what is placed so far may lie there.
    /// How many are held back.
    fn hold(&mut self, taken: &[u64]) -> Vec<u64> {
        let mut held = vec![0; taken.len()];
        for (pmu, (&taken, held)) in taken.iter().zip(&mut held).enumerate() {
            let free = self.free_banks[pmu];
            *held = taken.saturating_sub(self.chip.pmu.banks - free).min(free);
            self.free_banks[pmu] = free - *held;
            if free > 0 && free == *held {
                let site = self.site(pmu);
                self.at[site] = FULL;
            }
        }
        held
    }

    /// Gives banks back that were held.
    fn give_back(&mut self, held: &[u64]) {
        for (pmu, &banks) in held.iter().enumerate().filter(|&(_, &banks)| banks > 0) {
            self.free_banks[pmu] += banks;
            let site = self.site(pmu);
            self.at[site] = pmu as u32;
        }
    }

    fn site(&self, pmu: usize) -> usize {
        let site = self.chip.grid.pmus[pmu];
        (site.y * self.chip.grid.columns + site.x) as usize
    }

    /// Takes `banks` near `target`, over at least `spread` PMUs, for a piece read and written at these rates (flits
    /// a cycle over the whole piece). `None` when the chip has no such banks left.
    fn take(&mut self, target: (f64, f64), banks: u64, spread: u64, read: f64, write: f64) -> Option<Piece> {
        let mut piece = Piece::default();
        let mut left = banks;
        let most = banks.div_ceil(spread.max(1));
        self.pieces += 1;
        while left > 0 {
            let wanted = left.min(most);
            let share = wanted as f64 / banks as f64;
            let (read_share, write_share) = (read * share, write * share);
            let near = |again: bool| self.nearest(target, wanted, read_share, write_share, again);
            // A PMU twice, on shared ports, before none at all.
            let pmu = near(false).or_else(|| near(true))?;
            let taken = wanted.min(self.free_banks[pmu]);
            let share = taken as f64 / banks as f64;
            self.free_banks[pmu] -= taken;
            left -= taken;
            if self.free_banks[pmu] == 0 {
                let site = self.chip.grid.pmus[pmu];
                self.at[(site.y * self.chip.grid.columns + site.x) as usize] = FULL;
            }
            // The emptiest port takes it; and how empty the emptiest is then.
            let add = |rates: &mut [f64], ports: u64, more: f64| {
                let rates = &mut rates[pmu * ports as usize..][..ports as usize];
                let port = lowest(rates);
                rates[port] += more;
                (port, rates[lowest(rates)])
            };
            let (read_port, emptiest_read) = add(&mut self.read_rate, self.chip.pmu.read_ports, read * share);
            let (write_port, emptiest_write) = add(&mut self.write_rate, self.chip.pmu.write_ports, write * share);
            self.emptiest[pmu] = (emptiest_read, emptiest_write);
            self.taken_by[pmu] = self.pieces;
            let (read_port, write_port) = (read_port as u64, write_port as u64);
            piece.parts.push(Part { pmu: PmuId::from_index(pmu), banks: taken, read_port, write_port });
        }
        Some(piece)
    }

    /// The PMU with room where a part costs least: hops from `target`, and more where ports are full. Of equals the
    /// first, or by pairs. `again`: one that has a part of this piece will do.
    fn nearest(&self, target: (f64, f64), wanted: u64, read: f64, write: f64, again: bool) -> Option<usize> {
        let mut best: Option<(f64, bool, usize)> = None;
        let is_large = self.pairs && 2 * wanted > self.chip.pmu.banks;
        let (cx, cy) = (target.0.round() as i64, target.1.round() as i64);
        let (columns, rows) = (i64::from(self.chip.grid.columns), i64::from(self.chip.grid.rows));
        for ring in 0..columns + rows {
            // Nothing farther out can cost less: rounding the target moves it by a hop at most.
            if best.is_some_and(|(least, _, _)| (ring - 1) as f64 > least) {
                break;
            }
            for y in (cy - ring).max(0)..=(cy + ring).min(rows - 1) {
                let dx = ring - (y - cy).abs();
                let both = [cx - dx, cx + dx];
                for &x in &both[usize::from(dx == 0)..] {
                    if !(0..columns).contains(&x) {
                        continue;
                    }
                    let pmu = self.at[(y * columns + x) as usize];
                    if pmu == FULL {
                        continue;
                    }
                    let pmu = pmu as usize;
                    let free = self.free_banks[pmu];
                    if !again && self.taken_by[pmu] == self.pieces {
                        continue;
                    }
                    let mut cost = (x as f64 - target.0).abs() + (y as f64 - target.1).abs();
                    let (busy_read, busy_write) = self.emptiest[pmu];
                    let over = |rate: f64, more: f64| (rate + more - PARAMS.placement.port_full).max(0.0);
                    cost += PARAMS.placement.overload_hops * (over(busy_read, read) + over(busy_write, write));
                    // How often both want the port at the same time.
                    cost += PARAMS.placement.shared_port_hops * (busy_read * read + busy_write * write);
                    if free < wanted {
                        // Splitting a piece costs a flow; going far costs hops.
                        cost += 4.0;
                    }
                    let is_apart = is_large && (x ^ 1, y) != (cx, cy);
                    if best.is_none_or(|best| (cost, is_apart, pmu) < best) {
                        best = Some((cost, is_apart, pmu));
                    }
                }
            }
        }
        best.map(|(_, _, pmu)| pmu)
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

/// The stage that a buffer belongs to, and the flits a cycle that are read and written at each of its pieces.
fn port_rates(
    spec: BufferSpec,
    stages: &IndexVec<StageId, Stage>,
    work: &IndexVec<StageId, StageWork>,
    slot_rate: f64,
) -> (StageId, f64, f64) {
    match spec.role {
        BufferRole::Operand { stage, tensor } => match stages[stage].mapping {
            Mapping::Gemm(m) if stages[stage].spec.sums.is_some() => {
                // One buffer for all streams of the operand.
                let first = stages[stage].spec.activations.first() == Some(&tensor);
                let (streams, rate) = if first {
                    (m.pm * m.streams, work[stage].activation_rate())
                } else {
                    (m.pn, work[stage].weight_rate())
                };
                (stage, streams as f64 * rate, slot_rate)
            }
            _ => (stage, work[stage].activation_rate(), slot_rate),
        },
        BufferRole::Weight { stage, .. } => (stage, work[stage].weight_rate(), 0.1 * slot_rate),
        BufferRole::PartialSums { stage } | BufferRole::PartialFifo { stage, .. } => {
            (stage, work[stage].partial_rate(), work[stage].partial_rate())
        }
        BufferRole::Resident { stage, .. } | BufferRole::State { stage, .. } | BufferRole::Output { stage, .. } => {
            (stage, slot_rate, slot_rate)
        }
    }
}

/// The centre of the PCUs that a piece of a stage's buffer, of one of so many copies, serves.
fn near(chip: &Chip, s: &Stage, role: BufferRole, copy: u64, slice: u64, copies: u64) -> (f64, f64) {
    let (pm, wide) = (s.mapping.pm(), s.group_width());
    match role {
        BufferRole::Operand { .. } if s.spec.sums.is_some() => centre(chip, s.pcus.iter().copied()),
        BufferRole::Operand { .. } => {
            let (streams, parts) = (s.mapping.streams(), s.mapping.parts());
            let (i, head, each) = (slice / parts, slice % streams, wide / streams);
            let group = slice % parts / streams * copies + copy;
            centre(chip, (head * each..(head + 1) * each).map(|q| s.pcu(group, i, q)))
        }
        BufferRole::Weight { .. } => centre(chip, (0..pm).map(|i| s.pcu(slice / wide, i, slice % wide))),
        BufferRole::State { .. } | BufferRole::Output { .. } if s.spec.sums.is_some() => {
            centre(chip, std::iter::once(s.pcu(0, slice / wide, slice % wide)))
        }
        BufferRole::PartialSums { .. } => {
            let (group, rest) = (slice / (pm * wide), slice % (pm * wide));
            centre(chip, std::iter::once(s.pcu(group, rest / wide, rest % wide)))
        }
        BufferRole::PartialFifo { slice: from, .. } => {
            let (group, rest) = (slice / (pm * wide), slice % (pm * wide));
            let groups = s.mapping.groups() / s.mapping.pk();
            let ends = [from, s.mapping.next_slice(from).unwrap_or(from)];
            let ends = ends.map(|k| s.pcu(k * groups + group, rest / wide, rest % wide));
            centre(chip, ends.into_iter())
        }
        BufferRole::Resident { .. } | BufferRole::State { .. } | BufferRole::Output { .. } => {
            let groups = s.mapping.groups();
            let is_resident = matches!(role, BufferRole::Resident { .. });
            let parts = if is_resident { s.mapping.parts() } else { 1 };
            centre(chip, (0..groups).flat_map(|b| (0..wide).map(move |q| s.pcu(b, slice / parts, q))))
        }
    }
}

/// Buffers in PMUs; `None` when banks run out (spreading for ports can need more PMUs than bytes do).
pub(crate) fn place_buffers(
    chip: &Chip,
    plan: &SectionPlan,
    stages: &IndexVec<StageId, Stage>,
    work: &IndexVec<StageId, StageWork>,
    taken: &[u64],
) -> Option<IndexVec<BufferId, Buffer>> {
    let mut pool = PmuPool::new(chip);
    let mut buffers: IndexVec<BufferId, Buffer> =
        plan.buffers.iter().map(|&spec| Buffer { spec, pieces: Vec::new() }).collect();
    let mut order: Vec<BufferId> = buffers.ids().collect();
    // What the section makes itself is not there while another section runs.
    let is_loaded = |role: BufferRole| match role {
        BufferRole::Weight { stage, .. } => stages[stage].spec.sequence.is_none(),
        _ => false,
    };
    // Pieces tied to one PCU first: they have the least choice.
    order.sort_by_key(|&b| match buffers[b].spec.role {
        BufferRole::PartialSums { .. } | BufferRole::PartialFifo { .. } => (0, b),
        BufferRole::Operand { .. } => (1, b),
        role @ BufferRole::Weight { .. } if taken.is_empty() || is_loaded(role) => (2, b),
        BufferRole::Weight { .. } => (3, b),
        BufferRole::State { .. } | BufferRole::Output { .. } => (4, b),
        BufferRole::Resident { .. } => (5, b),
    });
    let interval = (plan.estimate.busy_cycles as f64 / plan.nest.count(LoopLevel::FIRING) as f64).max(1.0);
    let mut held: Option<Vec<u64>> = None;
    for index in order {
        let spec = buffers[index].spec;
        match (spec.role, &held) {
            (role, None) if is_loaded(role) => held = Some(pool.hold(taken)),
            (role, Some(banks)) if !is_loaded(role) => {
                pool.give_back(banks);
                held = Some(Vec::new());
            }
            _ => {}
        }
        let slot_rate = (spec.slot_bytes.div_ceil(chip.network.flit_bytes)) as f64 / interval;
        let (stage, read, write) = port_rates(spec, stages, work, slot_rate);
        pool.pairs = work[stage].is_sampled();
        let s = &stages[stage];
        let mut pieces = Vec::with_capacity((spec.copies * spec.slices) as usize);
        for copy in 0..spec.copies {
            for slice in 0..spec.slices {
                let target = near(chip, s, spec.role, copy, slice, spec.copies);
                pieces.push(pool.take(target, spec.banks(chip), spec.spread, read, write)?);
            }
        }
        buffers[index].pieces = pieces;
    }
    Some(buffers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdusim_graph::arch;

    fn chip() -> Chip {
        arch::load("sn10".as_ref(), &[]).expect("a chip")
    }

    #[test]
    fn what_is_held_back_is_what_others_take_of_what_is_free() {
        let chip = chip();
        let banks = chip.pmu.banks;
        let mut pool = PmuPool::new(&chip);
        pool.free_banks[1] = banks - 5;
        let mut taken = vec![0; chip.grid.pmus.len()];
        // Of PMU 1 what is placed so far may lie in five of the seven.
        (taken[0], taken[1], taken[2]) = (3, 7, banks);
        let held = pool.hold(&taken);
        assert_eq!((held[0], held[1], held[2], held[3]), (3, 2, banks, 0));
        assert_eq!(pool.free_banks[..4], [banks - 3, banks - 7, 0, banks]);
        let is_open = |pool: &PmuPool<'_>| [0, 1, 2, 3].map(|pmu| pool.at[pool.site(pmu)] == pmu as u32);
        assert_eq!(is_open(&pool), [true, true, false, true]);
        pool.give_back(&held);
        assert_eq!(pool.free_banks[..4], [banks, banks - 5, banks, banks]);
        assert_eq!(is_open(&pool), [true; 4]);
    }

    #[test]
    fn of_two_neighbours_a_large_part_takes_the_one_in_its_pair_of_columns() {
        let chip = chip();
        let mut pool = PmuPool::new(&chip);
        let columns = chip.grid.columns;
        let is_open = |x: u32, y: u32| pool.at[(y * columns + x) as usize] != FULL;
        // Between two PMUs, in an even column.
        let y = (0..chip.grid.rows).find(|&y| is_open(1, y) && is_open(3, y) && !is_open(2, y)).expect("such a row");
        let column_of = |pool: &PmuPool<'_>| {
            let pmu = pool.nearest((2.0, f64::from(y)), chip.pmu.banks, 0.0, 0.0, false).expect("there is room");
            (chip.grid.pmus[pmu].x, chip.grid.pmus[pmu].y)
        };
        pool.pieces = 1;
        pool.pairs = true;
        assert_eq!(column_of(&pool), (3, y));
    }
}
