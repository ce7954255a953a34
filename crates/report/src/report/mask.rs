//! What `rdusim sparsity` says of a mask: text, JSON, and a picture.

use std::fmt::Write;

use serde::Serialize;

use super::chart::MaskChart;
use super::human::{bytes, percent, whole};
use super::text_table::{align_left, new_table, wrapped};
use super::write::{File, WriteError};
use rdusim_base::units::Dtype;
use rdusim_graph::sparsity::{Bin, BlockMask, Format, Statistics, Storage, smallest, storage};

/// Version of the JSON object.
const SCHEMA: u32 = 1;
/// Characters of the longest bar of a histogram.
const BAR: u64 = 40;

/// The numbers of a mask, to be shown.
#[derive(Debug, Serialize)]
pub struct MaskReport<'a> {
    schema: u32,
    source: String,
    rows: u64,
    columns: u64,
    dtype: Dtype,
    /// Rows and columns of a block of the mask.
    mask_block: [u64; 2],
    /// Whether blocks at the edges are cut off by the matrix.
    ragged: bool,
    blocks: u64,
    kept_blocks: u64,
    stored_elements: u64,
    statistics: Statistics,
    formats: Vec<FormatEntry>,
    /// The format that would be chosen.
    chosen: Format,
    #[serde(skip)]
    mask: &'a BlockMask,
}

/// What a format takes.
#[derive(Debug, Serialize)]
struct FormatEntry {
    format: Format,
    values: u64,
    metadata_bytes: u64,
    bytes: u64,
    /// A column of PCUs reads it as it lies.
    by_columns: bool,
}

impl<'a> MaskReport<'a> {
    /// Looks a mask over: `source` says where it is from, histograms are of blocks of `block`, imbalance is over `pcus`.
    pub fn new(source: &str, mask: &'a BlockMask, dtype: Dtype, block: (u64, u64), pcus: u64) -> Self {
        let size = dtype.bytes();
        let entry = |s: Storage| FormatEntry {
            format: s.format,
            values: s.values,
            metadata_bytes: s.metadata_bytes,
            bytes: s.bytes(size),
            by_columns: s.format.lies_by_columns(),
        };
        // Lines that are selected have an index of lines, not of blocks.
        let (storages, chosen) = if mask.is_selection() {
            (vec![mask.storage()], mask.storage())
        } else {
            (Format::ALL.into_iter().filter_map(|format| storage(mask, format)).collect(), smallest(mask, size))
        };
        Self {
            schema: SCHEMA,
            source: source.to_owned(),
            rows: mask.rows(),
            columns: mask.columns(),
            dtype,
            mask_block: [mask.block_rows(), mask.block_columns()],
            ragged: !mask.rows().is_multiple_of(mask.block_rows())
                || !mask.columns().is_multiple_of(mask.block_columns()),
            blocks: mask.k_blocks() * mask.n_blocks(),
            kept_blocks: mask.kept_blocks(),
            stored_elements: mask.stored_elements(),
            statistics: Statistics::new(mask, block, pcus),
            formats: storages.into_iter().map(entry).collect(),
            chosen: chosen.format,
            mask,
        }
    }

    /// The object as JSON with a line break at the end.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("strings, numbers and sequences always serialise");
        text.push('\n');
        text
    }

    /// The numbers as text.
    pub fn table(&self) -> String {
        let seen = &self.statistics;
        let [height, width] = self.mask_block;
        let mut lines = vec![
            wrapped("mask      ", &self.source),
            format!("matrix    {} x {} (K x N), {}", whole(self.rows), whole(self.columns), self.dtype),
            format!(
                "kept      {} of {} blocks of {height} x {width}, {} elements: density {:.6}",
                whole(self.kept_blocks),
                whole(self.blocks),
                whole(self.stored_elements),
                seen.density,
            ),
        ];
        if self.ragged {
            let text = format!(
                "blocks of {height} x {width} do not divide the matrix: those at its edges are smaller, and count as \
                 they are"
            );
            lines.push(wrapped("note      ", &text));
        }
        let balance = &seen.balance;
        let text = format!(
            "busiest of {} PCUs over the mean: {:.3} with neighbouring block columns, {:.3} with the longest first",
            whole(balance.pcus),
            balance.neighbours,
            balance.longest_first,
        );
        lines.push(wrapped("imbalance ", &text));
        let (h, w) = seen.block;
        let blocks = format!("elements a block of {h} x {w} keeps ({} hold any)", whole(seen.occupied_blocks));
        let mut parts = vec![lines.join("\n"), self.format_table()];
        for (title, bins) in [
            (format!("elements a row keeps: {} to {}", whole(seen.row_range.0), whole(seen.row_range.1)), &seen.rows),
            (
                format!("elements a column keeps: {} to {}", whole(seen.column_range.0), whole(seen.column_range.1)),
                &seen.columns,
            ),
            (blocks, &seen.blocks),
        ] {
            parts.push(histogram(&title, bins));
        }
        let mut text = parts.join("\n\n");
        text.push('\n');
        text
    }

    fn format_table(&self) -> String {
        let dense = (self.rows * self.columns * self.dtype.bytes()) as f64;
        let mut table =
            new_table(["format", "values", "metadata", "bytes", "of dense", ""].map(str::to_owned).to_vec());
        align_left(&mut table, 5);
        for entry in &self.formats {
            let note = match (entry.format == self.chosen, entry.by_columns) {
                (true, _) => "chosen",
                (false, true) => "",
                (false, false) => "to be reordered by columns",
            };
            table.add_row([
                entry.format.name().to_owned(),
                whole(entry.values),
                bytes(entry.metadata_bytes),
                whole(entry.bytes),
                percent(entry.bytes as f64 / dense),
                note.to_owned(),
            ]);
        }
        table.trim_fmt()
    }

    /// The picture as SVG.
    pub fn svg(&self) -> Result<String, WriteError> {
        MaskChart::new(&self.source, self.mask).svg().map_err(|error| WriteError::Chart("mask", error))
    }

    /// `mask.json`, and the picture as SVG and PNG.
    pub fn files(&self) -> Result<Vec<File>, WriteError> {
        let chart = MaskChart::new(&self.source, self.mask);
        let failed = |error| WriteError::Chart("mask", error);
        Ok(vec![
            File { name: "mask.json".to_owned(), bytes: self.to_json().into_bytes() },
            File { name: "mask.svg".to_owned(), bytes: self.svg()?.into_bytes() },
            File { name: "mask.png".to_owned(), bytes: chart.png().map_err(failed)? },
        ])
    }
}

fn histogram(title: &str, bins: &[Bin]) -> String {
    let range = |bin: &Bin| {
        if bin.from == bin.to { whole(bin.from) } else { format!("{} - {}", whole(bin.from), whole(bin.to)) }
    };
    let widest = bins.iter().map(|bin| range(bin).len()).max().unwrap_or(0);
    let counts = bins.iter().map(|bin| whole(bin.count).len()).max().unwrap_or(0);
    let most = bins.iter().map(|bin| bin.count).max().unwrap_or(0).max(1);
    let mut text = title.to_owned();
    for bin in bins {
        let bar = "#".repeat((u128::from(bin.count) * u128::from(BAR)).div_ceil(u128::from(most)) as usize);
        let _ = write!(text, "\n  {:>widest$}  {:>counts$}  {bar}", range(bin), whole(bin.count));
        text.truncate(text.trim_end().len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdusim_graph::sparsity::Pattern;

    #[test]
    fn a_mask_in_words() {
        let mask = Pattern::Random { density: 0.25 }.draw(100, 64, (16, 16), 1);
        let report = MaskReport::new("block", &mask, Dtype::Bf16, (16, 16), 4);
        insta::assert_snapshot!(report.table());
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("is JSON");
        assert_eq!(json["stored_elements"], mask.stored_elements());
        assert_eq!(json["formats"][0]["format"], "bitmap");
        let names: Vec<String> = report.files().expect("can be drawn").into_iter().map(|file| file.name).collect();
        assert_eq!(names, ["mask.json", "mask.svg", "mask.png"]);
    }
}
