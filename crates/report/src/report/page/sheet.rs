//! A result that is no run of a workload, as the page shows it: the verdict, the figures that decide, tables, bars, pictures, remarks.
//!
//! A sheet is made of the JSON of a result alone, so that a saved result makes the page that it had.

use serde::{Deserialize, Serialize};

/// What a page shows of a result.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Sheet {
    /// `training`, `prefill`, `decode`, `requests`, `explain`, `traffic-curve`, `certificate`, `verify`, `validation`, `map`, `tiles`, `mask`, or
    /// `search` of one that found nothing; results of one kind are compared figure by figure.
    pub(super) kind: &'static str,
    /// What ran on what.
    pub(super) title: String,
    /// The figure that the verdict is about, with its unit.
    pub(super) headline: String,
    /// The verdict: a sentence that continues the headline.
    pub(super) verdict: String,
    /// Ranges, bounds and accuracy of the headline, a sentence each.
    pub(super) lines: Vec<String>,
    /// Figures that decide.
    pub(super) figures: Vec<Figure>,
    /// Stacked bars, which are drawn as those of energy are.
    pub(super) bars: Vec<Bars>,
    /// Tables.
    pub(super) tables: Vec<SheetTable>,
    /// Remarks of the result, whole.
    pub(super) remarks: Vec<String>,
    /// Pictures that were drawn when the result was made.
    pub(super) pictures: Vec<Picture>,
}

/// A number with its name and unit.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Figure {
    /// Name.
    pub(super) name: String,
    /// Value; nothing where the result has none.
    pub(super) value: Option<f64>,
    /// `s`, `J`, `W`, `B`, `%` (of shares), `×`, another unit with prefixes, or nothing for a count.
    pub(super) unit: &'static str,
    /// Whether less is better; nothing where neither is.
    pub(super) less: Option<bool>,
}

impl Figure {
    /// A figure of which neither less nor more is better.
    pub(super) fn plain(name: &str, unit: &'static str, value: impl Into<Option<f64>>) -> Self {
        Self { name: name.to_owned(), value: value.into(), unit, less: None }
    }

    /// A figure of which less is better.
    pub(super) fn low(name: &str, unit: &'static str, value: impl Into<Option<f64>>) -> Self {
        Self { less: Some(true), ..Self::plain(name, unit, value) }
    }

    /// A figure of which more is better.
    pub(super) fn high(name: &str, unit: &'static str, value: impl Into<Option<f64>>) -> Self {
        Self { less: Some(false), ..Self::plain(name, unit, value) }
    }
}

/// Stacked bars with a heading.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Bars {
    /// Heading.
    pub(super) title: String,
    /// As of [`Figure`].
    pub(super) unit: &'static str,
    /// Names of the pieces, which have a colour each.
    pub(super) pieces: Vec<String>,
    /// A bar each.
    pub(super) rows: Vec<BarRow>,
}

/// A bar.
#[derive(Debug, Clone, Serialize)]
pub(super) struct BarRow {
    /// Name.
    pub(super) name: String,
    /// The length of each piece.
    pub(super) values: Vec<f64>,
}

/// A table with a heading.
#[derive(Debug, Clone, Serialize)]
pub(super) struct SheetTable {
    /// Heading.
    pub(super) title: String,
    /// Names of the columns.
    pub(super) head: Vec<String>,
    /// Cells.
    pub(super) rows: Vec<Vec<String>>,
    /// Columns of text, which may be broken.
    pub(super) texts: Vec<usize>,
}

impl SheetTable {
    /// A table without rows.
    pub(super) fn new(title: &str, head: &[&str], texts: &[usize]) -> Self {
        let head = head.iter().map(|name| (*name).to_owned()).collect();
        Self { title: title.to_owned(), head, rows: Vec::new(), texts: texts.to_vec() }
    }
}

/// A picture as an SVG file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Picture {
    /// The file's name without its ending.
    pub(super) name: String,
    /// The file. A page shows it as an image, which runs no script and loads nothing.
    pub(super) svg: String,
}

/// The value of a result's text.
pub(super) fn parsed<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}
