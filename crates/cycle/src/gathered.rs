//! Gathering: the vectors of activations that a PCU takes, step by step, for an output tile of a sparse weight.
//!
//! Counted K row by K row from the mask, by the definitions of `docs/timing-model.md` (Sparse GEMM stages);
//! nothing is shared with `cost`.

use std::ops::Range;

use rdusim_base::units::Dtype;
use rdusim_graph::arch::Chip;
use rdusim_graph::sparsity::BlockMask;

use super::stored;

/// Vectors of a cycle at most: a PCU takes activations at two of its ports.
const MOST_VECTORS: u64 = 2;

/// Stages up to which the number of a stage is one byte.
const STAGES_IN_A_BYTE: u64 = 256;

/// How a PCU gathers the activations of a stage.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gathering {
    /// Vectors that can come in a cycle.
    vectors: u64,
    /// Banks of a PMU; the activations of K row k lie in bank k modulo this.
    banks: u64,
    out_of_order: bool,
    /// Flits of a vector of `lanes` activations, never packed with another.
    flits_of_vector: u64,
    /// Bytes of a stored value and of the number of its stage.
    bytes_of_weight: u64,
    flit_bytes: u64,
    /// PCUs that have the columns of an output tile together.
    multicast_width: u64,
}

impl Gathering {
    /// Gathering of vectors of `lanes` elements of a type by as many PCUs as share a multicast.
    pub(super) fn new(chip: &Chip, dtype: Dtype, lanes: u64, multicast_width: u64) -> Self {
        let inputs = chip.pcu.vector_inputs.saturating_sub(1);
        let sources = chip.pmu.read_ports.min(chip.network.links_per_direction);
        let flit_bytes = chip.network.flit_bytes;
        Self {
            vectors: sources.min(inputs).clamp(1, MOST_VECTORS),
            banks: chip.pmu.banks,
            out_of_order: chip.pmu.gathers_out_of_order,
            flits_of_vector: (lanes * dtype.bytes()).div_ceil(flit_bytes),
            bytes_of_weight: dtype.bytes() + if chip.pcu.stages <= STAGES_IN_A_BYTE { 1 } else { 2 },
            flit_bytes,
            multicast_width,
        }
    }

    /// What the output tile of some columns takes over the weight rows `k`.
    pub(super) fn tile(&self, mask: Option<&BlockMask>, columns: &Range<u64>, k: &Range<u64>) -> GatheredTile {
        let of_pcu = stored::stored_elements(mask, columns, k).div_ceil(self.multicast_width);
        let vectors = match mask {
            // Every row needs every column: one vector a step.
            None => (1..=k.end - k.start).collect(),
            Some(mask) if self.out_of_order => self.out_of_order(mask, columns, k),
            Some(mask) => self.in_order(mask, columns, k),
        };
        GatheredTile {
            vectors,
            flits_of_vector: self.flits_of_vector,
            weight_flits: (of_pcu * self.bytes_of_weight).div_ceil(self.flit_bytes),
        }
    }

    /// Vectors that have come by the end of each step, row after row: a row joins the step of the row before it if there is
    /// another vector to come, from another bank, for other columns.
    fn in_order(&self, mask: &BlockMask, columns: &Range<u64>, k: &Range<u64>) -> Vec<u64> {
        let mut steps: Vec<u64> = Vec::new();
        // Rows of the last step, each with its block columns.
        let mut open: Vec<(u64, Vec<u64>)> = Vec::new();
        let mut vectors = 0;
        for (row, wanted) in wanted_rows(mask, columns, k) {
            let is_apart = |(other, of_other): &(u64, Vec<u64>)| {
                other % self.banks != row % self.banks && !of_other.iter().any(|column| wanted.contains(column))
            };
            if open.is_empty() || open.len() as u64 == self.vectors || !open.iter().all(is_apart) {
                open.clear();
                steps.push(vectors);
            }
            vectors += 1;
            open.push((row, wanted));
            if let Some(last) = steps.last_mut() {
                *last = vectors;
            }
        }
        steps
    }

    /// The same where vectors overtake each other: as many steps as the busiest of ports, columns and banks needs, over which
    /// the vectors are spread.
    fn out_of_order(&self, mask: &BlockMask, columns: &Range<u64>, k: &Range<u64>) -> Vec<u64> {
        let block_columns = stored::blocks(columns, mask.block_columns());
        let mut of_column = vec![0; (block_columns.end - block_columns.start) as usize];
        let mut of_bank = vec![0; self.banks as usize];
        let mut vectors = 0;
        for (row, wanted) in wanted_rows(mask, columns, k) {
            vectors += 1;
            of_bank[(row % self.banks) as usize] += 1;
            for column in wanted {
                of_column[(column - block_columns.start) as usize] += 1;
            }
        }
        let busiest = of_column.into_iter().chain(of_bank).max().unwrap_or(0);
        let steps = u64::div_ceil(vectors, self.vectors).max(busiest);
        (1..=steps).map(|step| (vectors * step).div_ceil(steps)).collect()
    }
}

/// Rows of `k` that any of the columns stores, each with the block columns that store it.
fn wanted_rows<'a>(
    mask: &'a BlockMask,
    columns: &Range<u64>,
    k: &'a Range<u64>,
) -> impl Iterator<Item = (u64, Vec<u64>)> + 'a {
    let block_columns = stored::blocks(columns, mask.block_columns());
    stored::blocks(k, mask.block_rows()).flat_map(move |block| {
        let wanted: Vec<u64> = block_columns.clone().filter(|&column| mask.is_kept(block, column)).collect();
        let (start, end) = (block * mask.block_rows(), (block + 1) * mask.block_rows());
        let rows = if wanted.is_empty() { 0..0 } else { start.max(k.start)..end.min(k.end) };
        rows.map(move |row| (row, wanted.clone()))
    })
}

/// What an output tile takes whose activations are gathered.
#[derive(Debug, Clone)]
pub(super) struct GatheredTile {
    /// Vectors that have come by the end of each step.
    vectors: Vec<u64>,
    flits_of_vector: u64,
    /// Flits of the weights of one PCU.
    weight_flits: u64,
}

impl GatheredTile {
    /// Steps: cycles in which vectors come.
    pub(super) fn steps(&self) -> u64 {
        self.vectors.len() as u64
    }

    /// Flits of activations, and of the weights of a PCU, that have been taken after so many steps.
    pub(super) fn flits(&self, steps: u64) -> (u64, u64) {
        let Some(last) = steps.checked_sub(1) else { return (0, 0) };
        let vectors = self.vectors.get(last as usize).or(self.vectors.last()).copied().unwrap_or(0);
        (vectors * self.flits_of_vector, (self.weight_flits * steps.min(self.steps())).div_ceil(self.steps().max(1)))
    }

    /// Flits of all its activations, and of all weights of a PCU.
    pub(super) fn all_flits(&self) -> (u64, u64) {
        (self.vectors.last().map_or(0, |vectors| vectors * self.flits_of_vector), self.weight_flits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathering(vectors: u64, out_of_order: bool) -> Gathering {
        let (flits_of_vector, bytes_of_weight) = (2, 3);
        Gathering {
            vectors,
            banks: 4,
            out_of_order,
            flits_of_vector,
            bytes_of_weight,
            flit_bytes: 16,
            multicast_width: 2,
        }
    }

    /// Rows 0, 1, 2, 5, 6 and 9 of ten, by columns 0, 1, 0, 1, 2 and 0 and 1 together.
    fn mask() -> BlockMask {
        let mut mask = BlockMask::empty(10, 3, (1, 1));
        for (row, column) in [(0, 0), (1, 1), (2, 0), (5, 1), (6, 2), (9, 0), (9, 1)] {
            mask.keep(row, column);
        }
        mask
    }

    #[test]
    fn rows_join_a_step_if_banks_and_columns_differ() {
        let tile = |vectors, out_of_order| gathering(vectors, out_of_order).tile(Some(&mask()), &(0..3), &(0..10));
        // 0 and 1 together, 2 and 5 (banks 2 and 1), 6 and 9 (banks 2 and 1).
        assert_eq!(tile(2, false).vectors, [2, 4, 6]);
        assert_eq!(tile(1, false).vectors, [1, 2, 3, 4, 5, 6]);
        // Out of order, columns 0 and 1 have three rows each, bank 1 has three: 1, 5 and 9.
        assert_eq!(tile(2, true).vectors, [2, 4, 6]);
        // Seven values on two PCUs: four of three bytes each are one flit of 16 bytes.
        assert_eq!((tile(2, false).all_flits(), tile(2, false).flits(2)), ((12, 1), (8, 1)));
        // Of columns 0 and 1 alone, 2 and 5 go together, and 9 alone.
        let narrow = gathering(2, false).tile(Some(&mask()), &(0..2), &(0..10));
        assert_eq!(narrow.vectors, [2, 4, 5]);
        // Rows 1 and 5 share a bank and column 1.
        let late = gathering(2, false).tile(Some(&mask()), &(1..3), &(1..6));
        assert_eq!((late.vectors.as_slice(), late.steps()), ([1, 2].as_slice(), 2));
    }

    #[test]
    fn rows_of_a_block_come_one_by_one() {
        let mut mask = BlockMask::empty(10, 4, (3, 2));
        mask.keep(0, 0);
        mask.keep(1, 1);
        mask.keep(3, 0);
        let tile = gathering(2, false).tile(Some(&mask), &(0..4), &(0..10));
        // 0, 1, then 2 with 3, 4, 5 with 9 (banks 1 and 1: not together).
        assert_eq!(tile.vectors, [1, 2, 4, 5, 6, 7]);
        let nothing = gathering(2, true).tile(Some(&mask), &(2..4), &(6..9));
        assert_eq!((nothing.steps(), nothing.all_flits(), nothing.flits(1)), (0, (0, 0), (0, 0)));
    }
}
