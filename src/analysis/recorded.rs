//! The document of a result, with what it says of its inputs: the fields of chip and workload, overrides applied, and the options.

use xxhash_rust::xxh3::xxh3_64;

use crate::input::{Fields, fields, text_of};
use crate::report::{Against, Document, InputsEntry, Side};
use crate::workload::Workload;

use super::compare::{Options, Ran};
use super::execute::Source;

/// The document of runs on one chip, or of others beside the first, with what it was run on and how.
pub fn document(workload: &Workload, sides: &[Ran], options: &Options, seed: u64) -> Option<Document> {
    let (first, others) = sides.split_first()?;
    let others: Vec<Side<'_>> = others.iter().map(Ran::side).collect();
    let document = Document::versus(workload, first.side(), &others);
    Some(Document { inputs: Some(inputs(workload, sides, options, seed)), ..document })
}

/// The inputs of runs on one chip, or of others beside the first.
fn inputs(workload: &Workload, sides: &[Ran], options: &Options, seed: u64) -> InputsEntry {
    let of = |ran: &Ran| fields(ran.chip.device().text());
    InputsEntry {
        arch: sides.first().map(of).unwrap_or_default(),
        workload: fields(&workload.text),
        options: of_options(workload, options, seed),
        against: Against(sides.iter().skip(1).map(of).collect()),
    }
}

fn of_options(workload: &Workload, options: &Options, seed: u64) -> Fields {
    let mut fields = Fields::new();
    let mut add = |name: &str, value: serde_json::Value| fields.insert(name.to_owned(), value);
    add("fidelity", options.fidelity.name().into());
    add("mapping", options.quality.name().into());
    add("seed", seed.into());
    match &options.source {
        Source::Compiler(effort) => {
            add("effort", effort.name().into());
        }
        // By what it says, not by where it lies: results are the same on every machine.
        Source::File(path) => {
            let text = text_of(path).unwrap_or_default();
            add("config", format!("xxh3:{:016x}", xxh3_64(text.as_bytes())).into());
        }
    }
    if !workload.sections.is_empty() {
        let names = workload.sections.iter().map(|section| {
            let operators = section.operators.iter().map(|&op| workload.operators[op].name.as_str());
            operators.collect::<Vec<_>>().join("+")
        });
        add("sections", names.collect::<Vec<_>>().into());
    }
    fields
}
