//! `.smtx`: `rows, columns, non-zeros`, then the offsets of the rows, then the columns of the entries.

use std::io::BufRead;

use super::error::ReadError;
use super::sink::Sink;
use super::text::Numbers;

pub(super) fn read(input: impl BufRead, sink: &mut dyn Sink) -> Result<(), ReadError> {
    let mut numbers = Numbers::new(input);
    let rows = numbers.next("the number of rows")?;
    let columns = numbers.next("the number of columns")?;
    let entries = numbers.next("the number of entries")?;
    sink.shape(rows, columns)?;
    if u128::from(entries) > u128::from(rows) * u128::from(columns) {
        return Err(ReadError::new(format!("line 1: {entries} entries in a matrix of {rows} x {columns}")));
    }
    // Grows with what the file really holds.
    let mut offsets = Vec::new();
    for row in 0..=rows {
        let offset = numbers.next("the offset of a row")?;
        let least = offsets.last().copied().unwrap_or(0);
        if offset < least || offset > entries || (row == 0 && offset != 0) {
            let line = numbers.line();
            let expected = if row == 0 { "0".to_owned() } else { format!("{least} to {entries}") };
            return Err(ReadError::new(format!(
                "line {line}: row {row} begins at entry {offset}, expected {expected}"
            )));
        }
        offsets.push(offset);
    }
    if offsets.last() != Some(&entries) {
        return Err(ReadError::new(format!(
            "line {}: the rows end at entry {}, line 1 says {entries}",
            numbers.line(),
            offsets.last().unwrap_or(&0)
        )));
    }
    for (row, ends) in offsets.windows(2).enumerate() {
        for _ in ends[0]..ends[1] {
            let column = numbers.next("the column of an entry")?;
            if column >= columns {
                let line = numbers.line();
                return Err(ReadError::new(format!(
                    "line {line}: an entry of row {row} is in column {column}, the matrix has {columns}"
                )));
            }
            sink.entry(row as u64, column, 1.0)?;
        }
    }
    if !numbers.at_end()? {
        return Err(ReadError::new(format!("line {}: more columns than the {entries} entries", numbers.line())));
    }
    Ok(())
}
