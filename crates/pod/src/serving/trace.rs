//! Traces of requests that people have: tables of comma-separated values, and Mooncake's lines of JSON.

use serde_json::{Map, Value};

use super::requests::{MOST_REQUESTS, MOST_TOKENS, Request};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::{line_of_record, refuse_repeated};

/// Requests of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Requests in the order of their arrival.
    pub requests: Vec<Request>,
    /// What of the file is left out, one sentence each.
    pub notes: Vec<String>,
}

/// Reads a trace: CSV with the columns `arrival_s`, `prompt_tokens` and `output_tokens`, or a line of JSON for each request with
/// `timestamp` (milliseconds), `input_length` and `output_length` (Mooncake: Qin et al., FAST 2025).
///
/// # Errors
/// A column that is missing or unknown, or a value that is out of range, with its line.
pub fn read_trace(path: &str, text: &str) -> Result<Trace, Diagnostic> {
    let is_json = text.trim_start().starts_with('{');
    let Trace { mut requests, notes } =
        if is_json { of_lines(path, text)? } else { Trace { requests: of_table(path, text)?, notes: Vec::new() } };
    if requests.is_empty() {
        return Err(Diagnostic::new(format!("{path}: no requests")));
    }
    // Stable: of requests at one time the first stays first.
    requests.sort_by(|a, b| a.arrival_s.total_cmp(&b.arrival_s));
    Ok(Trace { requests, notes })
}

/// A line of JSON for each request.
fn of_lines(path: &str, text: &str) -> Result<Trace, Diagnostic> {
    let mut requests = Vec::new();
    let mut has_blocks = false;
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let refuse = |why: String| {
            Diagnostic::new(format!("{path}:{}: {why}", at + 1))
                .with_help("a line has `timestamp` in milliseconds, `input_length` and `output_length` in tokens")
        };
        let line: Map<String, Value> =
            serde_json::from_str(line).map_err(|_| refuse("not an object of JSON".to_owned()))?;
        let field = |name: &str| line.get(name).ok_or_else(|| refuse(format!("no `{name}`")));
        let count = |name: &str| {
            let found = field(name)?;
            let count = found.as_u64().filter(|count| (1..=MOST_TOKENS).contains(count));
            count.ok_or_else(|| refuse(format!("`{name}` is {found}, expected a count from 1 to {MOST_TOKENS}")))
        };
        let timestamp = field("timestamp")?;
        let arrival_ms = timestamp.as_f64().filter(|ms| (0.0..=1e12).contains(ms));
        let arrival_ms = arrival_ms
            .ok_or_else(|| refuse(format!("`timestamp` is {timestamp}, expected milliseconds from 0 to 1e12")))?;
        let (prompt, output) = (count("input_length")?, count("output_length")?);
        has_blocks |= line.contains_key("hash_ids");
        requests.push(Request { arrival_s: arrival_ms / 1e3, prompt, output });
        refuse_more(path, &requests)?;
    }
    let note = || {
        "`hash_ids` of the trace are not used: prompts share no keys and values but what `--prefix-share` says"
            .to_owned()
    };
    Ok(Trace { requests, notes: has_blocks.then(note).into_iter().collect() })
}

fn refuse_more(path: &str, list: &[Request]) -> Result<(), Diagnostic> {
    if list.len() as u64 > MOST_REQUESTS {
        return Err(Diagnostic::new(format!("{path}: more than {MOST_REQUESTS} requests")));
    }
    Ok(())
}

/// CSV with the columns `arrival_s`, `prompt_tokens` and `output_tokens`, in any order; lines that start with `#` are comments.
fn of_table(path: &str, text: &str) -> Result<Vec<Request>, Diagnostic> {
    const COLUMNS: [&str; 3] = ["arrival_s", "prompt_tokens", "output_tokens"];
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(text.as_bytes());
    let broken =
        |error: &csv::Error| Diagnostic::new(format!("{path}: not a table of comma-separated values: {error}"));
    let header = reader.headers().map_err(|error| broken(&error))?.clone();
    if let Some(unknown) = header.iter().find(|name| !COLUMNS.contains(name)) {
        let title = format!("{path}: unknown column {unknown:?}");
        return Err(Diagnostic::new(title).with_help(format!("columns of a trace: {}", COLUMNS.join(", "))));
    }
    refuse_repeated(path, &header.iter().collect::<Vec<_>>())?;
    let mut at = [0; 3];
    for (place, column) in at.iter_mut().zip(COLUMNS) {
        *place = header.iter().position(|name| name == column).ok_or_else(|| {
            Diagnostic::new(format!("{path}: no column {column:?}"))
                .with_help(format!("columns of a trace: {}", COLUMNS.join(", ")))
        })?;
    }
    let mut list = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| broken(&error))?;
        let line = record.position().map_or(0, |at| line_of_record(text, at.byte(), at.line()));
        let cell = |column: usize| record.get(at[column]).unwrap_or_default();
        let refuse = |column: usize, expected: &str| {
            Diagnostic::new(format!("{path}:{line}: `{}` is {:?}, expected {expected}", COLUMNS[column], cell(column)))
        };
        let arrival_s = cell(0).parse::<f64>().ok().filter(|s| s.is_finite() && (0.0..=1e9).contains(s));
        let count = |column: usize| {
            let count = cell(column).parse::<u64>().ok().filter(|count| (1..=MOST_TOKENS).contains(count));
            count.ok_or_else(|| refuse(column, &format!("a count from 1 to {MOST_TOKENS}")))
        };
        let arrival_s = arrival_s.ok_or_else(|| refuse(0, "seconds from 0 to 1e9"))?;
        list.push(Request { arrival_s, prompt: count(1)?, output: count(2)? });
        refuse_more(path, &list)?;
    }
    Ok(list)
}
