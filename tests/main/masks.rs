//! Masks against the matrix of their elements: what is counted by words and blocks is counted again one element at a time.

use std::io::Cursor;

use proptest::prelude::*;
use rdusim::cost::{Cut, Tile, sample, tiles};
use rdusim::sparsity::read::{FileKind, MatrixRequest, ReadError, read_mask};
use rdusim::sparsity::{BlockMask, Format, Pattern, Statistics, Storage, erk_densities, smallest, storage};

/// Which elements a mask stores, row by row.
fn elements(mask: &BlockMask) -> Vec<Vec<bool>> {
    let of_row = |row: u64| {
        let kept = |column: u64| mask.is_kept(row / mask.block_rows(), column / mask.block_columns());
        (0..mask.columns()).map(kept).collect()
    };
    (0..mask.rows()).map(of_row).collect()
}

fn count(elements: &[Vec<bool>], rows: std::ops::Range<u64>, columns: std::ops::Range<u64>) -> u64 {
    let inside = |row: &Vec<bool>| columns.clone().filter(|&column| row[column as usize]).count() as u64;
    elements[rows.start as usize..rows.end as usize].iter().map(inside).sum()
}

/// Bins of a histogram follow one another from the least count to the most and hold each count once.
fn check_bins(bins: &[rdusim::sparsity::Bin], counts: &[u64]) -> Result<(), TestCaseError> {
    let (least, most) = (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
    prop_assert_eq!(bins.first().map(|bin| bin.from), Some(least));
    prop_assert_eq!(bins.last().map(|bin| bin.to), Some(most));
    prop_assert!(bins.len() <= 10);
    for pair in bins.windows(2) {
        prop_assert_eq!(pair[0].to + 1, pair[1].from);
    }
    check_contents(bins, counts)
}

fn check_contents(bins: &[rdusim::sparsity::Bin], counts: &[u64]) -> Result<(), TestCaseError> {
    for bin in bins {
        let inside = counts.iter().filter(|count| (bin.from..=bin.to).contains(count)).count() as u64;
        prop_assert_eq!(bin.count, inside, "{:?} of {:?}", bin, counts);
    }
    Ok(())
}

/// Work of the busiest PCU over the mean, for loads that each go to one of `pcus` PCUs.
fn busiest(loads: &[u64], pcus: usize, of: impl Fn(usize, &[u64]) -> usize) -> f64 {
    let mut work = vec![0_u64; pcus];
    for (index, load) in loads.iter().enumerate() {
        let pcu = of(index, &work);
        work[pcu] += load;
    }
    let total: u64 = loads.iter().sum();
    if total == 0 { 1.0 } else { work.iter().max().copied().unwrap_or(0) as f64 * pcus as f64 / total as f64 }
}

fn patterns(density: f64, exponent: f64) -> [Pattern; 4] {
    [
        Pattern::Random { density },
        Pattern::Banded { density },
        Pattern::RowSkewed { density, exponent },
        Pattern::ColumnSkewed { density, exponent },
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn statistics_are_those_of_the_elements(
        rows in 1_u64..150, columns in 1_u64..60, bh in 1_u64..9, bw in 1_u64..9,
        h in 1_u64..20, w in 1_u64..20, density in 0.0_f64..=1.0, pattern in 0..4_usize, pcus in 0_u64..20,
    ) {
        let mask = patterns(density, 1.0)[pattern].draw(rows, columns, (bh, bw), 3);
        let elements = elements(&mask);
        let seen = Statistics::new(&mask, (h, w), pcus);
        let of_rows: Vec<u64> = (0..rows).map(|row| count(&elements, row..row + 1, 0..columns)).collect();
        let of_columns: Vec<u64> = (0..columns).map(|column| count(&elements, 0..rows, column..column + 1)).collect();
        let range = |counts: &[u64]| (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
        prop_assert_eq!(seen.row_range, range(&of_rows));
        prop_assert_eq!(seen.column_range, range(&of_columns));
        check_bins(&seen.rows, &of_rows)?;
        check_bins(&seen.columns, &of_columns)?;
        let mut of_blocks = Vec::new();
        for row in (0..rows).step_by(h as usize) {
            for column in (0..columns).step_by(w as usize) {
                of_blocks.push(count(&elements, row..rows.min(row + h), column..columns.min(column + w)));
            }
        }
        prop_assert_eq!(seen.occupied_blocks, of_blocks.iter().filter(|&&count| count > 0).count() as u64);
        check_contents(&seen.blocks, &of_blocks)?;
        prop_assert_eq!(seen.blocks.iter().map(|bin| bin.count).sum::<u64>(), of_blocks.len() as u64);
        let total: u64 = of_rows.iter().sum();
        prop_assert_eq!(mask.stored_elements(), total);
        prop_assert!((seen.density - total as f64 / (rows * columns) as f64).abs() < 1e-12);
    }

    #[test]
    fn balance_is_that_of_whole_block_columns(
        rows in 1_u64..150, columns in 1_u64..90, bh in 1_u64..9, bw in 1_u64..9,
        density in 0.0_f64..=1.0, exponent in 0.0_f64..3.0, pcus in 0_u64..40,
    ) {
        let mask = Pattern::ColumnSkewed { density, exponent }.draw(rows, columns, (bh, bw), 7);
        let elements = elements(&mask);
        let loads: Vec<u64> = (0..mask.n_blocks())
            .map(|n| count(&elements, 0..rows, n * bw..columns.min((n + 1) * bw)))
            .collect();
        let seen = Statistics::new(&mask, (bh, bw), pcus).balance;
        let busy = pcus.clamp(1, mask.n_blocks()) as usize;
        prop_assert_eq!(seen.pcus, busy as u64);
        // PCU i has the columns from i x columns / PCUs on.
        let neighbour = |index: usize, _: &[u64]| {
            (0..busy).rev().find(|pcu| pcu * loads.len() / busy <= index).unwrap_or(0)
        };
        prop_assert!((seen.neighbours - busiest(&loads, busy, neighbour)).abs() < 1e-9);
        let mut longest = loads.clone();
        longest.sort_unstable_by(|a, b| b.cmp(a));
        let idlest = |_: usize, work: &[u64]| (0..work.len()).min_by_key(|&pcu| work[pcu]).unwrap_or(0);
        prop_assert!((seen.longest_first - busiest(&longest, busy, idlest)).abs() < 1e-9);
    }

    #[test]
    fn windows_are_counted_like_elements(
        rows in 1_u64..300, columns in 1_u64..40, bh in 1_u64..5, bw in 1_u64..5, density in 0.0_f64..=1.0,
        window in prop::array::uniform4(0.0_f64..=1.0),
    ) {
        let mask = Pattern::Random { density }.draw(rows, columns, (bh, bw), 9);
        let elements = elements(&mask);
        let [a, b, c, d] = window;
        let place = |share: f64, of: u64| (share * of as f64) as u64;
        let blocks = place(a.min(b), mask.k_blocks())..place(a.max(b), mask.k_blocks());
        let of_rows = (blocks.start * bh).min(rows)..(blocks.end * bh).min(rows);
        let of_columns = place(c.min(d), columns)..place(c.max(d), columns);
        prop_assert_eq!(mask.stored_in(of_columns.clone(), of_rows.clone()), count(&elements, of_rows.clone(), of_columns));
        for n in 0..mask.n_blocks() {
            let expected = count(&elements, of_rows.clone(), n * bw..n * bw + 1);
            prop_assert_eq!(mask.rows_in(mask.column_words(n), 0, blocks.clone()), expected);
            let first = blocks.start / 64;
            let words = &mask.column_words(n)[first as usize..];
            prop_assert_eq!(mask.rows_in(words, first, blocks.clone()), expected);
        }
        let turned = mask.transposed();
        let kept = (0..mask.k_blocks()).flat_map(|k| (0..mask.n_blocks()).map(move |n| (k, n)));
        for (k, n) in kept {
            prop_assert_eq!(turned.is_kept(n, k), mask.is_kept(k, n));
        }
        prop_assert_eq!((turned.kept_blocks(), turned.stored_elements()), (mask.kept_blocks(), mask.stored_elements()));
    }

    /// The least N that holds the fullest group of M rows, for the M that stores fewest values.
    #[test]
    fn groups_hold_their_fullest(rows in 1_u64..200, columns in 1_u64..20, density in 0.0_f64..0.5) {
        let mask = Pattern::Random { density }.draw(rows, columns, (1, 1), 5);
        let elements = elements(&mask);
        let of = |m: u64| {
            let groups = (0..rows).step_by(m as usize).flat_map(|row| (0..columns).map(move |column| (row, column)));
            let fullest = groups.map(|(row, column)| count(&elements, row..rows.min(row + m), column..column + 1)).max();
            let n = fullest.unwrap_or(0).max(1);
            let values = rows.div_ceil(m) * n * columns;
            (n < m).then(|| (values, (values * u64::from(m.ilog2())).div_ceil(8)))
        };
        let expected = [4, 8, 16].into_iter().filter_map(of).min();
        let found = storage(&mask, Format::Nm).map(|storage| (storage.values, storage.metadata_bytes));
        prop_assert_eq!(found, expected);
    }

    /// A tile executes every row under it that stores anything.
    #[test]
    fn tiles_execute_the_rows_that_store_something(
        rows in 1_u64..200, columns in 1_u64..60, bh in 1_u64..5, bw in 1_u64..9, density in 0.0_f64..=1.0,
        width in 1_u64..24, aligned: bool, first in 0.0_f64..=1.0, window in prop::array::uniform2(0.0_f64..=1.0),
    ) {
        let mask = Pattern::Random { density }.draw(rows, columns, (bh, bw), 13);
        let elements = elements(&mask);
        let place = |share: f64, of: u64| (share * of as f64) as u64;
        let [a, b] = window.map(|share| place(share, mask.k_blocks()));
        let k = (a.min(b) * bh).min(rows)..(a.max(b) * bh).min(rows);
        let mut expected = Vec::new();
        let mut start = place(first, columns);
        while start < columns {
            let whole_blocks = start / bw * bw + (width / bw).max(1) * bw;
            let end = (start + width).min(columns).min(if aligned { whole_blocks } else { columns });
            let executed = k.clone().filter(|&row| count(&elements, row..row + 1, start..end) > 0).count() as u64;
            let stored = count(&elements, k.clone(), start..end);
            expected.push(Tile { start, columns: end - start, k: executed, steps: executed, stored });
            start = end;
        }
        let cut = Cut { width, aligned, gather: None, one_in: 1 };
        prop_assert_eq!(tiles(Some(&mask), place(first, columns)..columns, k, &cut), expected);
    }

    /// Row passes of a sampled gradient are executed where they store something under the tile.
    #[test]
    fn a_sampled_gradient_executes_passes_that_store_something(
        rows in 1_u64..200, columns in 1_u64..60, bh in 1_u64..9, bw in 1_u64..9, density in 0.0_f64..0.3,
        width in 1_u64..24, of_pass in 1_u64..40, depth in 1_u64..100,
    ) {
        let mask = Pattern::Random { density }.draw(rows, columns, (bh, bw), 17);
        let elements = elements(&mask);
        let cut = Cut { width, aligned: false, gather: None, one_in: 1 };
        let mut found = tiles(None, 0..columns, 0..depth, &cut);
        sample(&mut found, &mask, of_pass);
        let passes = rows.div_ceil(of_pass);
        for tile in found {
            let of_tile = tile.start..tile.start + tile.columns;
            let stores = |pass: &u64| {
                count(&elements, pass * of_pass..rows.min((pass + 1) * of_pass), of_tile.clone()) > 0
            };
            let executed = (0..passes).filter(stores).count() as u64;
            prop_assert_eq!((tile.k, tile.steps), (depth, (depth * executed).div_ceil(passes)));
        }
    }

    /// Pruning keeps the blocks of the largest mean magnitude, of equal ones those that come first by columns of blocks.
    #[test]
    fn pruning_keeps_the_largest_means(
        rows in 1_u64..24, columns in 1_u64..24, block in (1_u64..6, 1_u64..6), density in 0.05_f64..=1.0,
        transpose: bool, of_columns: bool, seed: u64,
    ) {
        let value = |row: u64, column: u64| (seed.rotate_left((row * 7 + column * 13) as u32 % 64) % 251) as u8;
        let size = (rows * columns) as usize;
        let bytes: Vec<u8> = (0..rows * columns)
            .map(|at| if of_columns { value(at % rows, at / rows) } else { value(at / columns, at % columns) })
            .collect();
        prop_assert_eq!(bytes.len(), size);
        let order = if of_columns { "True" } else { "False" };
        let header = format!("{{'descr': '|u1', 'fortran_order': {order}, 'shape': ({rows}, {columns}), }}\n");
        let request = MatrixRequest { key: None, shape: None, block, density: Some(density), transpose };
        let found = read_mask(FileKind::Npy, Cursor::new(npy(&header, &bytes)), &request);
        let shape = if transpose { (columns, rows) } else { (rows, columns) };
        let (k_blocks, n_blocks) = (shape.0.div_ceil(block.0), shape.1.div_ceil(block.1));
        let wanted = (density * (k_blocks * n_blocks) as f64).round() as usize;
        let mut means = Vec::new();
        for (n, k) in (0..n_blocks).flat_map(|n| (0..k_blocks).map(move |k| (n, k))) {
            let of_rows = k * block.0..shape.0.min((k + 1) * block.0);
            let of_columns = n * block.1..shape.1.min((n + 1) * block.1);
            let elements = (of_rows.end - of_rows.start) * (of_columns.end - of_columns.start);
            let at = |row, column| if transpose { value(column, row) } else { value(row, column) };
            let sum: f32 = of_rows.flat_map(|row| of_columns.clone().map(move |column| f32::from(at(row, column)))).sum();
            means.push((sum / elements as f32, k, n));
        }
        // A stable sort: equal means stay in order.
        means.sort_by(|a, b| b.0.total_cmp(&a.0));
        let Ok(found) = found else {
            prop_assert_eq!(wanted, 0);
            return Ok(());
        };
        prop_assert_eq!(found.kept_blocks(), wanted as u64);
        for (_, k, n) in &means[..wanted] {
            prop_assert!(found.is_kept(*k, *n), "block ({k}, {n}) of {means:?}");
        }
    }

    /// A band is a run in each column whose middle is that of the diagonal, away from the edges to within a block.
    #[test]
    fn a_band_is_a_run_around_the_diagonal(rows in 1_u64..90, columns in 1_u64..90, density in 0.0_f64..=1.0) {
        let mask = Pattern::Banded { density }.draw(rows, columns, (1, 1), 1);
        let mut fewest_and_most = (rows, 0);
        for n in 0..columns {
            let kept: Vec<u64> = (0..rows).filter(|&k| mask.is_kept(k, n)).collect();
            let (length, first) = (kept.len() as u64, kept.first().copied().unwrap_or(0));
            prop_assert!(kept.iter().zip(first..).all(|(&k, expected)| k == expected));
            fewest_and_most = (fewest_and_most.0.min(length), fewest_and_most.1.max(length));
            if first > 0 && first + length < rows {
                let diagonal = (n as f64 + 0.5) * rows as f64 / columns as f64;
                let middle = first as f64 + length as f64 / 2.0;
                prop_assert!((middle - diagonal).abs() <= 1.0, "column {n}: {middle} for {diagonal}");
            }
        }
        prop_assert!(fewest_and_most.1 - fewest_and_most.0 <= 1);
    }
}

fn npy(header: &str, values: &[u8]) -> Vec<u8> {
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend(u16::try_from(header.len()).expect("a short header").to_le_bytes());
    file.extend(header.bytes());
    file.extend(values);
    file
}

/// A line may have 4096 bytes with its end. A longer one is refused, and not read as two.
#[test]
fn lines_that_are_too_long_are_refused() {
    let read = |comment: usize| -> Result<BlockMask, ReadError> {
        let comment = "x".repeat(comment);
        let text = format!("%%MatrixMarket matrix coordinate real general\n%{comment}\n3 4 1\n1 2 -2.0\n");
        let request = MatrixRequest { key: None, shape: None, block: (1, 1), density: None, transpose: false };
        read_mask(FileKind::Mtx, Cursor::new(text.into_bytes()), &request)
    };
    assert_eq!(read(4094).expect("a matrix").kept_blocks(), 1);
    assert_eq!(read(4095).expect_err("a long line").to_string(), "line 2 is longer than 4096 bytes");
}

/// Data in a file of tensors lie where the header says: the second of two, and none beyond the end of the file.
#[test]
fn tensors_lie_at_their_offsets() {
    let file = |header: &str| {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.bytes());
        file.extend([0, 0, 0, 1, 1, 0, 0, 1]);
        file
    };
    let read = |header: &str, key: &str| {
        let request = MatrixRequest { key: Some(key), shape: None, block: (1, 1), density: None, transpose: false };
        read_mask(FileKind::Safetensors, Cursor::new(file(header)), &request)
    };
    let header = r#"{"a":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[2,2],"data_offsets":[4,8]}}"#;
    let (a, b) = (read(header, "a").expect("a tensor"), read(header, "b").expect("a tensor"));
    assert!(a.is_kept(1, 1) && a.kept_blocks() == 1);
    assert!(b.is_kept(0, 0) && b.is_kept(1, 1) && b.kept_blocks() == 2);
    for (begin, end) in [(5, 9), (4, 7), (8, 4)] {
        let header = format!(r#"{{"a":{{"dtype":"U8","shape":[2,2],"data_offsets":[{begin},{end}]}}}}"#);
        let error = read(&header, "a").expect_err("is refused").to_string();
        let expected = format!("tensor \"a\" of 2 x 2 elements takes 4 bytes, its offsets are {begin} to {end} of 8");
        assert_eq!(error, expected);
    }
}

/// Blocks that each column keeps, most first.
fn by_column(mask: &BlockMask) -> Vec<u64> {
    let kept = |n: u64| (0..mask.k_blocks()).filter(|&k| mask.is_kept(k, n)).count() as u64;
    let mut counts: Vec<u64> = (0..mask.n_blocks()).map(kept).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}

/// Shares of 1, 1/2 and 1/3: 60 + 30 + 20 = 110 of three lines of 60; with lines of 30 the first is full, and 24 + 16 remain of 70. Shares
/// of 1, 1/4 and 1/9 of 36. To within a block: what rounding leaves goes to the fullest line with room.
#[test]
fn power_laws_by_hand() {
    let density = |rows: u64, wanted: u64| wanted as f64 / (3 * rows) as f64;
    let laws: [(u64, f64, [u64; 3]); 3] = [(60, 1.0, [60, 30, 20]), (30, 1.0, [30, 24, 16]), (36, 2.0, [36, 9, 4])];
    for (length, exponent, expected) in laws {
        let density = density(length, expected.iter().sum());
        let columns = Pattern::ColumnSkewed { density, exponent }.draw(length, 3, (1, 1), 2);
        let rows = Pattern::RowSkewed { density, exponent }.draw(3, length, (1, 1), 2).transposed();
        for mask in [columns, rows] {
            let found = by_column(&mask);
            assert_eq!(found.iter().sum::<u64>(), expected.iter().sum::<u64>());
            assert!(found.iter().zip(expected).all(|(&found, expected)| found.abs_diff(expected) <= 1), "{found:?}");
        }
    }
}

/// ERK by hand: of 4 x 4, 8 x 8 and 16 x 16, rows + columns are 8, 16 and 32, and 33.6 of 336 are wanted: 0.6 a unit, 4.8, 9.6 and
/// 19.2 of 16, 64 and 256.
#[test]
fn erk_by_hand() {
    let densities = erk_densities(&[(4, 4), (8, 8), (16, 16)], 0.1);
    for (found, expected) in densities.iter().zip([4.8 / 16.0, 9.6 / 64.0, 19.2 / 256.0]) {
        assert!((found - expected).abs() < 1e-12, "{densities:?}");
    }
    // Half of 336 is 168: three a unit would be 24 of 16 in the first, which is full; then 152 / 48 a unit: 50.7 of 64, 101.3 of 256.
    let densities = erk_densities(&[(4, 4), (8, 8), (16, 16)], 0.5);
    for (found, expected) in densities.iter().zip([1.0, 152.0 / 3.0 / 64.0, 304.0 / 3.0 / 256.0]) {
        assert!((found - expected).abs() < 1e-12, "{densities:?}");
    }
}

/// Every block has the same chance: a quarter of 4000 draws keeps each of 24 places, with a standard deviation of 27, and an eighth of
/// 128, with one of 21. Columns of a power law without a power are drawn by words of 64 blocks.
#[test]
fn every_place_is_as_likely() {
    let flat = Pattern::ColumnSkewed { density: 0.125, exponent: 0.0 };
    let patterns = [
        (Pattern::Random { density: 0.25 }, 24, 850..1150),
        (Pattern::Nm { n: 1, m: 4 }, 24, 850..1150),
        (Pattern::Nm { n: 6, m: 24 }, 24, 850..1150),
        (flat, 128, 380..620),
    ];
    for (pattern, rows, expected) in patterns {
        let mut counts = vec![0_u32; rows as usize];
        for seed in 0..4000 {
            let mask = pattern.draw(rows, 1, (1, 1), seed);
            for (k, count) in (0..).zip(&mut counts) {
                *count += u32::from(mask.is_kept(k, 0));
            }
        }
        assert!(counts.iter().all(|count| expected.contains(count)), "{pattern:?}: {counts:?}");
    }
}

/// Values and metadata at 2 bytes a value, and what a column of PCUs reads as it lies.
#[test]
fn formats_by_hand() {
    let storage = Storage { format: Format::Bsr, values: 10, metadata_bytes: 7 };
    assert_eq!(storage.bytes(2), 27);
    let names = ["bitmap", "bsr", "csc", "nm", "dense", "csr", "coo"];
    assert_eq!(Format::ALL.map(Format::name), names);
    let by_columns = Format::ALL.into_iter().filter(|format| format.lies_by_columns());
    assert_eq!(by_columns.map(Format::name).collect::<Vec<_>>(), names[..5]);
    // Two elements of 1000 x 1000: by blocks two indices of 2 bytes and an offset a column, and as pairs of indices 8 bytes;
    // the pairs do not lie by columns.
    let mut mask = BlockMask::empty(1000, 1000, (1, 1));
    mask.keep(0, 0);
    mask.keep(999, 999);
    let smallest = smallest(&mask, 2);
    assert_eq!((smallest.format, smallest.bytes(2)), (Format::Bsr, 2 * 2 + 2 * 2 + 1001 * 4));
}
