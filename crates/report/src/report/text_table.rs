//! Tables and paragraphs of plain text, no wider than a terminal.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle};

use super::human::shorten;

/// Columns no line goes beyond.
pub(super) const WIDTH: u16 = 120;

const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─'));

/// `text` behind `label`, broken at spaces, later lines indented to the label's width. A word longer than a line
/// loses its middle.
pub(super) fn wrapped(label: &str, text: &str) -> String {
    let width = usize::from(WIDTH) - label.len();
    let mut lines: Vec<String> = Vec::new();
    for word in text.trim_end().split(' ').map(|word| shorten(word, width)) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    let indent = format!("\n{}", " ".repeat(label.len()));
    format!("{label}{}", lines.join(&indent))
}

/// A table without frames: names first, numbers behind them, no column narrower than what it holds.
pub(super) fn new_table(header: Vec<String>) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table.set_header(header);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        column.set_constraint(ColumnConstraint::ContentWidth);
        if at > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

pub(super) fn align_left(table: &mut Table, column: usize) {
    if let Some(column) = table.column_mut(column) {
        column.set_cell_alignment(CellAlignment::Left);
    }
}
