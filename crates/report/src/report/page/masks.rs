//! The sheet of a mask.

use serde::Deserialize;

use super::super::human::{bytes, percent, whole};
use super::sheet::{BarRow, Bars, Figure, Sheet, SheetTable, parsed};

#[derive(Deserialize)]
struct Mask {
    source: String,
    rows: u64,
    columns: u64,
    dtype: String,
    /// Rows and columns of a block of the mask.
    #[serde(rename = "mask_block")]
    own_block: [u64; 2],
    blocks: u64,
    kept_blocks: u64,
    stored_elements: u64,
    statistics: Statistics,
    formats: Vec<Stored>,
    chosen: String,
}

#[derive(Deserialize)]
struct Statistics {
    density: f64,
    rows: Vec<Bin>,
    columns: Vec<Bin>,
    block: [u64; 2],
    blocks: Vec<Bin>,
    balance: Balance,
}

#[derive(Deserialize)]
struct Bin {
    from: u64,
    to: u64,
    count: u64,
}

#[derive(Deserialize)]
struct Balance {
    pcus: u64,
    neighbours: f64,
    longest_first: f64,
}

#[derive(Deserialize)]
struct Stored {
    format: String,
    values: u64,
    metadata_bytes: u64,
    bytes: u64,
}

/// The sheet of `sparsity`.
pub(super) fn mask(text: &str) -> Result<Sheet, String> {
    let of: Mask = parsed(text)?;
    let chosen = of.formats.iter().find(|stored| stored.format == of.chosen);
    let Some(chosen) = chosen else { return Err(format!("`chosen` is {:?}, expected one of its formats", of.chosen)) };
    let dense = of.formats.iter().find(|stored| stored.format == "dense").map(|stored| stored.bytes);
    let share = |of_bytes: u64| {
        dense.filter(|&dense| dense > 0).map_or_else(String::new, |dense| percent(of_bytes as f64 / dense as f64))
    };
    let ([height, width], seen) = (of.own_block, &of.statistics);
    let of_dense = match share(chosen.bytes) {
        share if share.is_empty() => String::new(),
        share => format!(", {share} of the dense weight"),
    };
    let mut sheet = Sheet {
        kind: "mask",
        title: format!("{}: a mask", of.source),
        headline: percent(seen.density),
        verdict: format!(
            "of {} x {} elements are kept, {} of {} blocks of {height} x {width}: {} as {}{of_dense}",
            whole(of.rows),
            whole(of.columns),
            whole(of.kept_blocks),
            whole(of.blocks),
            bytes(chosen.bytes),
            of.chosen
        ),
        lines: vec![format!(
            "The busiest of {} PCUs has {:.3} times the mean work with neighbouring block columns, {:.3} with the longest first.",
            whole(seen.balance.pcus),
            seen.balance.neighbours,
            seen.balance.longest_first
        )],
        figures: vec![
            Figure::plain("density", "%", seen.density),
            Figure::plain("elements kept", "", of.stored_elements as f64),
            Figure::low("bytes stored", "B", chosen.bytes as f64),
            Figure::low("imbalance, neighbouring columns", "×", seen.balance.neighbours),
            Figure::low("imbalance, longest first", "×", seen.balance.longest_first),
        ],
        ..Sheet::default()
    };
    let [block_rows, block_columns] = seen.block;
    for (title, bins) in [
        ("Rows by the elements that they keep".to_owned(), &seen.rows),
        ("Columns by the elements that they keep".to_owned(), &seen.columns),
        (format!("Blocks of {block_rows} x {block_columns} by the elements that they keep"), &seen.blocks),
    ] {
        let name = |bin: &Bin| {
            if bin.from == bin.to { whole(bin.from) } else { format!("{} to {}", whole(bin.from), whole(bin.to)) }
        };
        let rows = bins.iter().map(|bin| BarRow { name: name(bin), values: vec![bin.count as f64] }).collect();
        sheet.bars.push(Bars { title, unit: "", pieces: vec!["count".to_owned()], rows });
    }
    let values = format!("values of {}", of.dtype);
    let mut formats =
        SheetTable::new("Bytes in each format", &["format", &values, "metadata", "bytes", "of dense", ""], &[0, 5]);
    for stored in &of.formats {
        let note = if stored.format == of.chosen { "chosen" } else { "" };
        formats.rows.push(vec![
            stored.format.clone(),
            whole(stored.values),
            bytes(stored.metadata_bytes),
            bytes(stored.bytes),
            share(stored.bytes),
            note.to_owned(),
        ]);
    }
    sheet.tables.push(formats);
    Ok(sheet)
}
