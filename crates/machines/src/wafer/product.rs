//! A product on the cores of a wafer: activations stay, the elements of the other operand arrive one by one.
//!
//! Cores lie in `slices` x `groups`: a core has one slice of the depth of one group of rows. An element w[k, n] comes to the cores whose
//! slice has k; each multiplies its rows of column k by it and adds them to its sums of column n (AXPY). After the last element of a
//! column the sums of all slices are added up along the way from core to core, while the next column's elements arrive. Elements
//! that are not stored never arrive: the slice with most of them decides, as cores have queues and wait for nobody until the end.
//! Elements that are stored in fewer bits arrive so, and every core that receives them expands them, a vector at a time.
//!
//! The gradient of such a matrix turns this around: for each stored element a core multiplies its rows of two columns and adds
//! them up, and the sums of all groups of rows leave the wafer.

use rdusim_graph::arch::Wafer;
use rdusim_graph::sparsity::BlockMask;
use rdusim_graph::workload::EXPANSION_STEPS;

/// How cores divide a product: slices along one side of the matrix, groups along its columns or along what meets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CoreGrid {
    /// Slices of the matrix.
    pub slices: u64,
    /// Groups of each slice's work.
    pub groups: u64,
}

/// One product, or many alike, each on cores of its own.
#[derive(Debug, Clone)]
pub(super) struct Product<'a> {
    /// How many there are.
    pub(super) count: u64,
    /// Rows, columns and depth of each.
    pub(super) shape: (u64, u64, u64),
    /// Bytes of an element.
    pub(super) element_bytes: u64,
    /// Bytes of an element of the right operand that arrives as it is stored, and is expanded by the cores.
    pub(super) packed_bytes: Option<f64>,
    /// Multiply-accumulates of a core and cycle.
    pub(super) macs: u64,
    /// What is stored of the matrix that arrives, or of the one that leaves; rows are those of `sliced`.
    pub(super) mask: Option<&'a BlockMask>,
    /// The result leaves the wafer element by element; else the right operand arrives so.
    pub(super) leaves: bool,
}

/// How a product runs.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Cycles of the busiest core or link, and of filling and draining.
    pub(super) cycles: f64,
    pub(super) fill: f64,
    /// Links take longer than cores.
    pub(super) is_bound_by_links: bool,
    /// Cycles of the busiest core, and of the mean one.
    pub(super) busiest: f64,
    pub(super) mean: f64,
    /// Cores with work.
    pub(super) cores: u64,
    /// Bytes over links, and between core memories and units.
    pub(super) link_bytes: f64,
    pub(super) sram_bytes: f64,
    /// Elements that arrive or leave, and multiplications.
    pub(super) elements: f64,
    pub(super) macs: f64,
    /// Elements expanded, by each core that receives them.
    pub(super) expanded: f64,
    /// One line on how it lies on the wafer.
    pub(super) told: String,
}

/// Bytes of a sum that passes from core to core.
pub(super) const SUM_BYTES: f64 = 4.0;

/// Elements of each row of a matrix along its slices, added up.
pub(super) enum Stored {
    /// So many in every row.
    Even(f64),
    /// Those of the rows before each, and of all at the end.
    Sums(Vec<u64>),
}

impl Stored {
    pub(super) fn of(rows: u64, each: u64, mask: Option<&BlockMask>) -> Self {
        debug_assert!(mask.is_none_or(|mask| mask.rows() == rows), "a mask of the matrix that moves");
        let Some(mask) = mask.filter(|mask| mask.rows() == rows) else { return Self::Even(each as f64) };
        let mut of_block = vec![0u64; mask.k_blocks() as usize];
        for n in 0..mask.n_blocks() {
            let width = mask.width_of(n);
            for (word, &bits) in mask.column_words(n).iter().enumerate() {
                let mut left = bits;
                while left != 0 {
                    of_block[word * 64 + left.trailing_zeros() as usize] += width;
                    left &= left - 1;
                }
            }
        }
        let mut sums = vec![0];
        let mut sum = 0u64;
        for row in 0..rows {
            sum += of_block[(row / mask.block_rows()) as usize];
            sums.push(sum);
        }
        Self::Sums(sums)
    }

    /// Elements of the fullest of so many equal slices of the rows, and of all.
    pub(super) fn fullest(&self, rows: u64, slices: u64) -> (f64, f64) {
        let each = rows.div_ceil(slices);
        match self {
            Self::Even(columns) => (each as f64 * columns, rows as f64 * columns),
            Self::Sums(sums) => {
                let at = |row: u64| sums[row.min(rows) as usize];
                let most = (0..slices).map(|slice| at((slice + 1) * each) - at(slice * each)).max();
                (most.unwrap_or(0) as f64, at(rows) as f64)
            }
        }
    }
}

/// The fastest way to lay a product on the wafer beside what takes `least` cycles anyway.
pub(super) fn plan(chip: &Wafer, product: &Product<'_>, least: f64) -> Plan {
    let (m, n, k) = product.shape;
    // Rows of the matrix that moves lie along slices; what a core has many of at a time lies along groups.
    let (sliced, grouped, columns) = if product.leaves { (m, k, n) } else { (k, m, n) };
    let stored = Stored::of(sliced, columns, product.mask);
    let cores = (chip.core.count / product.count).max(1);
    let turns = product.count.div_ceil(chip.core.count);
    let mut sizes: Vec<u64> = std::iter::successors(Some(1u64), |&slices| slices.checked_mul(2))
        .take_while(|&slices| slices < cores.min(sliced))
        .flat_map(|slices| [slices, slices + slices / 2])
        .collect();
    sizes.push(cores.min(sliced));
    let on = |grid: CoreGrid| {
        let (fullest, all) = stored.fullest(sliced, grid.slices);
        way(chip, product, grid, grouped, columns, fullest, all)
    };
    let ways = sizes.into_iter().filter(|&slices| slices <= cores.min(sliced)).map(|slices| {
        let groups = (cores / slices).clamp(1, grouped.max(1));
        on(CoreGrid { slices, groups })
    });
    let all_of = |way: &Plan| (way.cycles * turns as f64).max(least) + way.fill;
    let best = ways.min_by(|a, b| all_of(a).total_cmp(&all_of(b)));
    let mut plan = best.unwrap_or_else(|| on(CoreGrid { slices: 1, groups: 1 }));
    let times = product.count as f64;
    plan.cores = plan.cores.saturating_mul(product.count).min(chip.core.count);
    let sums = [&mut plan.link_bytes, &mut plan.sram_bytes, &mut plan.elements, &mut plan.macs, &mut plan.expanded];
    for sum in sums {
        *sum *= times;
    }
    for cycles in [&mut plan.cycles, &mut plan.busiest, &mut plan.mean] {
        *cycles *= turns as f64;
    }
    plan
}

fn way(
    chip: &Wafer,
    product: &Product<'_>,
    CoreGrid { slices, groups }: CoreGrid,
    grouped: u64,
    columns: u64,
    fullest: f64,
    all: f64,
) -> Plan {
    let rows = grouped.div_ceil(groups);
    let vectors = rows.div_ceil(product.macs) as f64;
    // A sum of a whole slice is passed on for every column; of a gradient one for every element.
    let adds = if product.leaves { 1.0 } else { 0.0 };
    let of_element = vectors + chip.core.weight_cycles + adds;
    let passes_sums = !product.leaves && slices > 1;
    let passing = if passes_sums { columns as f64 * vectors } else { 0.0 };
    let steps = if product.packed_bytes.is_some() { EXPANSION_STEPS } else { 0.0 };
    let expansion = |elements: f64| (elements / product.macs as f64).ceil() * steps;
    let busiest = fullest * of_element + expansion(fullest) + passing;
    let mean = all / slices as f64 * of_element + expansion(all / slices as f64) + passing;
    let index = if product.mask.is_some() { chip.index_bytes } else { 0.0 };
    let element = product.packed_bytes.unwrap_or(product.element_bytes as f64) + index;
    // Sums go along one axis, elements and rows of the other operand along the other.
    let sums = if product.leaves {
        fullest * SUM_BYTES
    } else {
        f64::from(u8::from(passes_sums)) * columns as f64 * rows as f64 * SUM_BYTES
    };
    let arriving =
        if product.leaves { columns as f64 * rows as f64 * product.element_bytes as f64 } else { fullest * element };
    let on_links = sums.max(arriving) / chip.fabric.link_bytes_per_cycle;
    let cores = slices * groups;
    let fill = (slices + groups) as f64 * chip.fabric.hop_cycles + of_element + steps;
    let macs = all * grouped as f64;
    Plan {
        cycles: busiest.max(on_links),
        fill,
        is_bound_by_links: on_links > busiest,
        busiest,
        mean,
        cores,
        link_bytes: (sums + arriving) * cores as f64,
        // Activations are read, sums read and written, for every multiplication's vector.
        sram_bytes: macs * (product.element_bytes as f64 + 2.0 * SUM_BYTES),
        elements: all,
        macs,
        expanded: if product.packed_bytes.is_some() { all * groups as f64 } else { 0.0 },
        told: format!(
            "{} x ({} x {} x {}): {slices} slices x {groups} groups of {rows} rows, {:.0} elements in the fullest slice of {:.0} on average",
            product.count,
            product.shape.0,
            product.shape.1,
            product.shape.2,
            fullest,
            all / slices as f64
        ),
    }
}
