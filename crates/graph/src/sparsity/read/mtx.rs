//! Matrix Market files (`.mtx`): a banner, comments, a line of sizes, then entries.

use std::io::BufRead;

use super::error::ReadError;
use super::sink::Sink;
use super::text::Lines;

/// What the banner says.
struct Banner {
    coordinates: bool,
    /// Numbers that make a value: none of a pattern, two of a complex number.
    parts: usize,
    symmetric: bool,
}

impl Banner {
    fn parse(line: &str) -> Result<Self, ReadError> {
        let lower = line.to_ascii_lowercase();
        let words: Vec<&str> = lower.split_ascii_whitespace().collect();
        let [start, "matrix", form, field, symmetry] = words[..] else {
            return Err(ReadError::new(
                "line 1: expected `%%MatrixMarket matrix`, then `coordinate` or `array`, the kind of value and the \
                 symmetry",
            ));
        };
        let unknown = |what: &str, known: &str| {
            Err(ReadError::new(format!(
                "line 1: found {:?}, expected {known}",
                what.chars().take(40).collect::<String>()
            )))
        };
        if start != "%%matrixmarket" {
            return unknown(start, "`%%MatrixMarket`");
        }
        let coordinates = match form {
            "coordinate" => true,
            "array" => false,
            _ => return unknown(form, "`coordinate` or `array`"),
        };
        let parts = match field {
            "pattern" if coordinates => 0,
            "real" | "double" | "integer" => 1,
            "complex" => 2,
            _ => return unknown(field, "`real`, `integer`, `complex` or (with coordinates) `pattern`"),
        };
        let symmetric = match symmetry {
            "general" => false,
            "symmetric" | "skew-symmetric" | "hermitian" if coordinates => true,
            _ => {
                return unknown(symmetry, "`general` or (with coordinates) `symmetric`, `skew-symmetric`, `hermitian`");
            }
        };
        Ok(Self { coordinates, parts, symmetric })
    }
}

pub(super) fn read(input: impl BufRead, sink: &mut dyn Sink) -> Result<(), ReadError> {
    let mut lines = Lines::new(input);
    let mut line = String::new();
    lines.next(&mut line)?;
    let banner = Banner::parse(&line)?;
    if !next_data(&mut lines, &mut line)? {
        return Err(ReadError::new("the file ends before the line of sizes"));
    }
    let sizes: Option<Vec<u64>> = line.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
    let (rows, columns, entries) = match (sizes.as_deref(), banner.coordinates) {
        (Some(&[rows, columns, entries]), true) => (rows, columns, u128::from(entries)),
        (Some(&[rows, columns]), false) => (rows, columns, u128::from(rows) * u128::from(columns)),
        (_, coordinates) => {
            let expected = if coordinates { "rows, columns and entries" } else { "rows and columns" };
            return Err(ReadError::new(format!("line {}: expected {expected}", lines.number())));
        }
    };
    sink.shape(rows, columns)?;
    if entries > u128::from(rows) * u128::from(columns) {
        let number = lines.number();
        return Err(ReadError::new(format!("line {number}: {entries} entries in a matrix of {rows} x {columns}")));
    }
    if banner.symmetric && rows != columns {
        return Err(ReadError::new(format!("a symmetric matrix is square, this is {rows} x {columns}")));
    }
    let mut found = 0;
    while next_data(&mut lines, &mut line)? {
        if found == entries {
            return Err(ReadError::new(format!("line {}: more than the {entries} entries declared", lines.number())));
        }
        let mut words = line.split_ascii_whitespace();
        let (row, column) = if banner.coordinates {
            let mut place = |what: &str, most: u64| {
                let word = words.next().unwrap_or_default();
                let number = word.parse::<u64>().ok().filter(|number| (1..=most).contains(number));
                number.map(|number| number - 1).ok_or_else(|| {
                    let found: String = word.chars().take(40).collect();
                    let number = lines.number();
                    ReadError::new(format!("line {number}: found {found:?}, expected a {what} from 1 to {most}"))
                })
            };
            (place("row", rows)?, place("column", columns)?)
        } else {
            ((found % u128::from(rows)) as u64, (found / u128::from(rows)) as u64)
        };
        let value = magnitude(words, banner.parts).ok_or_else(|| {
            let expected = ["nothing after the place", "one number as value", "two numbers as value"][banner.parts];
            ReadError::new(format!("line {}: expected {expected}", lines.number()))
        })?;
        sink.entry(row, column, value)?;
        if banner.symmetric && row != column {
            sink.entry(column, row, value)?;
        }
        found += 1;
    }
    if found < entries {
        return Err(ReadError::new(format!("the file ends after {found} of {entries} entries")));
    }
    Ok(())
}

/// The next line with something other than a comment.
fn next_data(lines: &mut Lines<impl BufRead>, line: &mut String) -> Result<bool, ReadError> {
    while lines.next(line)? {
        if !line.trim().is_empty() && !line.starts_with('%') {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The magnitude of the `parts` numbers that must be left of a line; 1 if there are none.
fn magnitude<'a>(mut words: impl Iterator<Item = &'a str>, parts: usize) -> Option<f64> {
    let mut squares = 0.0f64;
    for _ in 0..parts {
        squares = squares.hypot(words.next()?.parse::<f64>().ok()?);
    }
    words.next().is_none().then_some(if parts == 0 { 1.0 } else { squares })
}
