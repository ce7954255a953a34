//! Gathering: a PCU walks the stored rows of a column tile and meets each with a gathered vector of activations.
//!
//! A tile is `lanes` rows of a row tile by the columns under it, one column a stage. At each K row that any of the columns
//! stores, the vector of `lanes` row tiles at that index comes from the PMUs (one port-cycle), and every column that
//! stores the row multiplies it. Several vectors come in a cycle if they lie in different banks and no column needs
//! two of them: a stage does one multiply-vector a cycle.

use rdusim_base::units::index;
use std::ops::Range;

use rdusim_graph::arch::Chip;
use rdusim_graph::sparsity::BlockMask;
use rdusim_program::MOST_GATHERED_COLUMNS;

/// Vectors of a cycle at most: the ports that a PCU takes them by.
const MOST_VECTORS: u64 = 2;

/// What limits the vectors of a cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatherPorts {
    /// Vectors that can come in a cycle.
    pub vectors: u64,
    /// Banks they lie in, row k in bank k modulo this.
    banks: u64,
    /// Vectors may overtake each other.
    out_of_order: bool,
}

impl GatherPorts {
    /// Those of a chip: as many vectors as PMUs read, links carry and a PCU takes beside its weights.
    pub fn new(chip: &Chip) -> Self {
        let inputs = chip.pcu.vector_inputs.saturating_sub(1);
        let vectors = chip.pmu.read_ports.min(chip.network.links_per_direction).min(inputs).clamp(1, MOST_VECTORS);
        Self { vectors, banks: chip.pmu.banks, out_of_order: chip.pmu.gathers_out_of_order }
    }
}

/// Cycles to gather the K blocks `k_blocks` of columns `columns` of a mask, at most [`MOST_GATHERED_COLUMNS`] of them.
pub fn cycles(ports: &GatherPorts, mask: &BlockMask, columns: &Range<u64>, k_blocks: &Range<u64>) -> u64 {
    let mut walk = Walk::new(ports);
    let block = mask.block_columns();
    let (first, last) = (k_blocks.start / 64, k_blocks.end.div_ceil(64));
    let mut rows = [0u64; 64];
    for word in first..last {
        rows.fill(0);
        let inside = inside_of(word, k_blocks);
        for (bit, column) in columns.clone().enumerate() {
            rows[bit] = mask.column_words(column / block)[index(word)] & inside;
        }
        if rows.iter().all(|&row| row == 0) {
            continue;
        }
        transpose(&mut rows);
        for (at, &of_columns) in rows.iter().enumerate().filter(|(_, row)| **row != 0) {
            let k = word * 64 + at as u64;
            let start = k * mask.block_rows();
            walk.run(of_columns, start..(start + mask.block_rows()).min(mask.rows()));
        }
    }
    walk.cycles()
}

/// The bits of word `word` that belong to a range.
fn inside_of(word: u64, range: &Range<u64>) -> u64 {
    let start = range.start.saturating_sub(word * 64).min(64);
    let end = range.end.saturating_sub(word * 64).min(64);
    let below = |bits: u64| if bits == 64 { !0 } else { (1 << bits) - 1 };
    below(end) & !below(start)
}

/// Turns a square of 64 x 64 bits on its diagonal (Hacker's Delight, 7-3): bit c of word r becomes bit r of word c.
fn transpose(square: &mut [u64; 64]) {
    let (mut width, mut mask) = (32, 0x0000_0000_ffff_ffffu64);
    while width != 0 {
        let mut row = 0;
        while row < 64 {
            let swapped = ((square[row] >> width) ^ square[row + width]) & mask;
            square[row] ^= swapped << width;
            square[row + width] ^= swapped;
            row = (row + width + 1) & !width;
        }
        width /= 2;
        mask ^= mask << width;
    }
}

/// The stream of K rows as it is issued.
#[derive(Debug)]
struct Walk<'a> {
    ports: &'a GatherPorts,
    cycles: u64,
    /// Of the cycle under way: vectors, columns they feed, banks they come from.
    vectors: u64,
    columns: u64,
    banks: Vec<u64>,
    /// Out of order, all that counts is how much each column and each bank has to do.
    rows: u64,
    of_column: [u64; index(MOST_GATHERED_COLUMNS)],
    of_bank: Vec<u64>,
}

impl<'a> Walk<'a> {
    fn new(ports: &'a GatherPorts) -> Self {
        Self {
            ports,
            cycles: 0,
            vectors: 0,
            columns: 0,
            banks: Vec::with_capacity(index(ports.vectors)),
            rows: 0,
            of_column: [0; index(MOST_GATHERED_COLUMNS)],
            of_bank: if ports.out_of_order { vec![0; index(ports.banks)] } else { Vec::new() },
        }
    }

    /// Neighbouring rows that the same columns store.
    fn run(&mut self, columns: u64, rows: Range<u64>) {
        if self.ports.out_of_order {
            self.rows += rows.end - rows.start;
            let mut left = columns;
            while left != 0 {
                self.of_column[left.trailing_zeros() as usize] += rows.end - rows.start;
                left &= left - 1;
            }
            for row in rows {
                self.of_bank[index(row % self.ports.banks)] += 1;
            }
            return;
        }
        // The first may share a cycle with the row before; the others need the same columns again.
        let bank = rows.start % self.ports.banks;
        let joins = self.vectors > 0
            && self.vectors < self.ports.vectors
            && self.columns & columns == 0
            && !self.banks.contains(&bank);
        if !joins {
            self.open();
        }
        self.vectors += 1;
        self.columns |= columns;
        self.banks.push(bank);
        if rows.end - rows.start > 1 {
            self.cycles += rows.end - rows.start - 2;
            self.open();
            (self.vectors, self.columns) = (1, columns);
            self.banks.push((rows.end - 1) % self.ports.banks);
        }
    }

    fn open(&mut self) {
        self.cycles += 1;
        (self.vectors, self.columns) = (0, 0);
        self.banks.clear();
    }

    fn cycles(&self) -> u64 {
        if !self.ports.out_of_order {
            return self.cycles;
        }
        let most = |of: &[u64]| of.iter().copied().max().unwrap_or(0);
        self.rows.div_ceil(self.ports.vectors).max(most(&self.of_column)).max(most(&self.of_bank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rdusim_graph::sparsity::Pattern;

    fn ports(vectors: u64, banks: u64, out_of_order: bool) -> GatherPorts {
        GatherPorts { vectors, banks, out_of_order }
    }

    /// Row by row, as the definition says.
    fn plainly(ports: &GatherPorts, mask: &BlockMask, columns: &Range<u64>, rows: &Range<u64>) -> u64 {
        let stores = |k: u64, n: u64| mask.is_kept(k / mask.block_rows(), n / mask.block_columns());
        let mut cycles: Vec<Vec<u64>> = Vec::new();
        for k in rows.clone().filter(|&k| columns.clone().any(|n| stores(k, n))) {
            let fits = |cycle: &Vec<u64>| {
                (cycle.len() as u64) < ports.vectors
                    && cycle.iter().all(|&o| {
                        o % ports.banks != k % ports.banks && !columns.clone().any(|n| stores(k, n) && stores(o, n))
                    })
            };
            match cycles.last_mut().filter(|cycle| fits(cycle)) {
                Some(cycle) => cycle.push(k),
                None => cycles.push(vec![k]),
            }
        }
        cycles.len() as u64
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn the_stream_is_issued_as_defined(
            rows in 1u64..200, columns in 1u64..64, bh in 1u64..6, bw in 1u64..4, density in 0.02f64..0.9,
            vectors in 1u64..5, banks in 1u64..17, from in 0u64..100, seed: u64,
        ) {
            let mask = Pattern::Random { density }.draw(rows, columns, (bh, bw), seed);
            let k_blocks = from.min(mask.k_blocks() - 1)..mask.k_blocks();
            let wanted = k_blocks.start * bh..rows;
            let in_order = ports(vectors, banks, false);
            let found = cycles(&in_order, &mask, &(0..columns), &k_blocks);
            prop_assert_eq!(found, plainly(&in_order, &mask, &(0..columns), &wanted));
            // Overtaking never costs, and nothing beats one row a stage a cycle.
            let free = cycles(&ports(vectors, banks, true), &mask, &(0..columns), &k_blocks);
            prop_assert!(free <= found);
            let stored: u64 = (0..columns).map(|n| wanted.clone().filter(|k| mask.is_kept(k / bh, n / bw)).count() as u64).sum();
            prop_assert!(free * columns >= stored);
        }
    }

    #[test]
    fn two_vectors_a_cycle_halve_what_few_columns_share() {
        // 12 columns at 1/64: 17 % of the rows, and hardly a column needs two neighbours of them.
        let mask = Pattern::Random { density: 1.0 / 64.0 }.draw(5120, 12, (1, 1), 3);
        let union = cycles(&ports(1, 16, false), &mask, &(0..12), &(0..5120)) as f64;
        let pairs = cycles(&ports(2, 16, false), &mask, &(0..12), &(0..5120)) as f64;
        assert!((union / 5120.0 - 0.172).abs() < 0.02, "{union}");
        assert!((0.5..0.62).contains(&(pairs / union)), "{}", pairs / union);
    }
}
