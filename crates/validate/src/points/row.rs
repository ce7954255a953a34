//! Rows of measured serving points: a model on an engine and a system under a closed loop of users.

use std::collections::BTreeMap;

use super::super::line::Line;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::line_of_record;

/// Columns that tell a file of such rows from others.
pub(super) const TELLING: [&str; 4] = ["model_path", "system", "silicon_ttft_ms", "silicon_tpot_ms"];

/// Columns that are measured, or say who measured: no inputs of a simulation.
const MEASURED: [&str; 7] =
    ["id", "silicon_data_source", "silicon_ttft_ms", "silicon_tpot_ms", "gpus", "users", "backend_version"];

/// The division of a model over GPUs, and the users of each replica of its attention.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Workers {
    /// Workers that are alike.
    pub(super) count: u64,
    /// Users of a replica of the attention at one time.
    pub(super) batch: u64,
    pub(super) tp: u64,
    pub(super) pp: u64,
    /// Replicas of the attention that share the experts out.
    pub(super) dp: u64,
    /// Chips that share an expert's matrices, and groups of them that share the experts out.
    pub(super) expert_tp: u64,
    pub(super) expert_ep: u64,
}

/// How prompts and tokens are divided among workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Serving {
    /// The same chips do both.
    Aggregated(Workers),
    /// Workers of prompts, workers of tokens, and the users of all of them.
    Disaggregated { prefill: Workers, decode: Workers, users: u64 },
}

/// A measured point.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// In words, with file and line.
    pub(super) label: String,
    pub(super) model: String,
    pub(super) system: String,
    pub(super) engine: String,
    pub(super) precision: String,
    /// Formats of products and of products of experts, as the file calls them.
    pub(super) formats: (String, String),
    pub(super) prompt: u64,
    pub(super) output: u64,
    pub(super) serving: Serving,
    /// Measured milliseconds.
    pub(super) ttft_ms: f64,
    pub(super) tpot_ms: f64,
    /// In the second half by a hash of its inputs.
    pub(super) is_in_second_half: bool,
}

/// A row, or why it says too little to be simulated, with what was measured.
#[derive(Debug, Clone)]
pub(super) struct Unread {
    pub(super) label: String,
    pub(super) ttft_ms: f64,
    pub(super) tpot_ms: f64,
    pub(super) reason: String,
}

/// Rows of a file in order.
///
/// # Errors
/// A file that is no table, or a row whose measured times are no numbers.
pub(super) fn rows(path: &str, text: &str) -> Result<Vec<Result<Row, Unread>>, Diagnostic> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(text.as_bytes());
    let broken =
        |error: &csv::Error| Diagnostic::new(format!("{path}: not a table of comma-separated values: {error}"));
    let header = reader.headers().map_err(|error| broken(&error))?.clone();
    let columns: Vec<&str> = header.iter().collect();
    let mut list = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| broken(&error))?;
        let number = record.position().map_or(0, |at| line_of_record(text, at.byte(), at.line()));
        let line = Line { path, number, cells: columns.iter().copied().zip(record.iter()).collect() };
        list.push(row(&line)?);
    }
    Ok(list)
}

fn row(line: &Line) -> Result<Result<Row, Unread>, Diagnostic> {
    let measured = |column: &str| {
        let found = line.text(column);
        let time = found.parse::<f64>().ok().filter(|time| time.is_finite() && *time > 0.0);
        time.ok_or_else(|| line.error(column, found, "milliseconds above 0"))
    };
    let (ttft_ms, tpot_ms) = (measured("silicon_ttft_ms")?, measured("silicon_tpot_ms")?);
    let text = |column: &str| line.text(column).to_owned();
    let place = std::path::Path::new(line.path).file_name().map_or_else(String::new, |name| name.display().to_string());
    let label = format!(
        "{place}:{} {} on {}, {} {}, {} in {} out, {}",
        line.number,
        line.text("model_path"),
        line.text("system"),
        line.text("backend"),
        precision(line),
        line.text("isl"),
        line.text("osl"),
        divided(line)
    );
    let inputs = (|| Ok::<_, Diagnostic>((line.count("isl")?, line.count("osl")?, serving(line)?)))();
    let (prompt, output, serving) = match inputs {
        Ok(inputs) => inputs,
        Err(error) => return Ok(Err(Unread { label, ttft_ms, tpot_ms, reason: error.title().to_owned() })),
    };
    Ok(Ok(Row {
        label,
        model: text("model_path"),
        system: text("system"),
        engine: text("backend"),
        precision: precision(line).to_owned(),
        formats: (text("gemm_quant_mode"), text("moe_quant_mode")),
        prompt,
        output,
        serving,
        ttft_ms,
        tpot_ms,
        is_in_second_half: line.is_in_second_half_without(&MEASURED),
    }))
}

fn precision<'l>(line: &'l Line) -> &'l str {
    let found = line.text("precision");
    if found.is_empty() { "bf16" } else { found }
}

/// The division in words.
fn divided(line: &Line) -> String {
    let of = |prefix: &str| {
        let cell = |column: &str| line.text(&format!("{prefix}{column}")).to_owned();
        format!(
            "tp {} dp {} experts {} x {} batch {}",
            cell("tp_size"),
            cell("attention_dp_size"),
            cell("moe_tp_size"),
            cell("moe_ep_size"),
            cell("batch_size")
        )
    };
    if is_divided(line) { format!("prefill {}, decode {}", of("prefill_"), of("decode_")) } else { of("") }
}

fn is_divided(line: &Line) -> bool {
    line.text("mode").starts_with("disagg")
}

/// Counts of a division; those that are not given are 1.
fn serving(line: &Line) -> Result<Serving, Diagnostic> {
    let workers = |prefix: &str| -> Result<Workers, Diagnostic> {
        let or_one = |column: &str| {
            let column = format!("{prefix}{column}");
            // Data parallelism of attention that is switched off is 0 in some files.
            if matches!(line.text(&column), "" | "0") { Ok(1) } else { line.count(&column) }
        };
        let tp = line.count(&format!("{prefix}tp_size"))?;
        let pp = or_one("pp_size")?;
        let (expert_tp, expert_ep) = (or_one("moe_tp_size")?, or_one("moe_ep_size")?);
        // Where the replicas of the attention are not said they follow from the chips that share the experts out.
        let is_said = !matches!(line.text(&format!("{prefix}attention_dp_size")), "" | "0");
        let dp = if is_said { or_one("attention_dp_size")? } else { (expert_tp * expert_ep / tp).max(1) };
        Ok(Workers {
            count: or_one("num_workers")?,
            batch: line.count(&format!("{prefix}batch_size"))?,
            tp,
            pp,
            dp,
            expert_tp,
            expert_ep,
        })
    };
    if !is_divided(line) {
        return workers("").map(Serving::Aggregated);
    }
    for (prefix, of) in [("prefill_", "prompts"), ("decode_", "tokens")] {
        if ["batch_size", "num_workers"].iter().any(|column| line.text(&format!("{prefix}{column}")).is_empty()) {
            let title = format!(
                "the file does not say how many workers take {of}, and with how many requests at a time: `{prefix}num_workers` and \
                 `{prefix}batch_size`"
            );
            return Err(Diagnostic::new(title));
        }
    }
    let (prefill, decode) = (workers("prefill_")?, workers("decode_")?);
    let noted: BTreeMap<&str, &str> =
        line.text("silicon_data_source").split(';').filter_map(|word| word.trim().split_once('=')).collect();
    let users = noted.get("silicon_concurrency").and_then(|users| users.parse::<u64>().ok());
    let users = users.filter(|users| (1..=1 << 20).contains(users));
    let users = users.unwrap_or(decode.count * decode.batch * decode.dp);
    Ok(Serving::Disaggregated { prefill, decode, users })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "model_path,system,backend,precision,mode,isl,osl,batch_size,tp_size,prefill_batch_size,prefill_num_workers,\
                          prefill_tp_size,decode_batch_size,decode_num_workers,decode_tp_size,silicon_ttft_ms,silicon_tpot_ms";

    #[test]
    fn rows_have_the_numbers_of_their_lines_and_workers_that_are_not_named_are_a_plain_reason() {
        for end in ["\n", "\r\n"] {
            let named = "a/b,gb200,vllm,fp8,disagg,64,8,,,1,2,2,4,1,4,10,1";
            let unnamed = "a/b,gb200,vllm,fp8,disagg,64,8,,,,,2,,,4,10,1";
            let text = ["# source: none", HEADER, named, unnamed, "# more", "", named].join(end);
            let found = rows("points.csv", &text).expect("a table");
            let labels = found.iter().map(|row| row.as_ref().map_or_else(|row| &row.label, |row| &row.label));
            let numbers: Vec<&str> = labels.filter_map(|label| label.split([':', ' ']).nth(1)).collect();
            assert_eq!(numbers, ["3", "4", "7"], "{end:?}");
            let reason = &found[1].as_ref().expect_err("no workers are named").reason;
            assert!(reason.starts_with("the file does not say how many workers take prompts"), "{reason}");
        }
    }
}
