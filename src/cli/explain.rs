//! `rdusim explain`: what bounds a workload on a chip, and what would change it.

use super::args::Format;
use super::failure::Failure;
use super::study_args::ExplainArgs;
use super::{output, progress};
use crate::input::Override;
use crate::mode::Mode;
use crate::report::{self, File};
use crate::study::Inputs;
use crate::study::explain::{self, Question};

/// Runs the workload as it is and with one more of each resource.
pub(super) fn explain(args: &ExplainArgs) -> Result<(), Failure> {
    let shared = &args.shared;
    let sets = shared.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    let inputs = Inputs::open(
        &shared.arch,
        &shared.workload,
        &shared.model.options_for(&shared.workload)?,
        &sets,
        shared.seed,
    )?;
    let question = Question {
        modes: args.mode.map_or_else(|| vec![Mode::Kbk, Mode::Fused], |mode| vec![mode.into()]),
        fidelity: shared.fidelity.into(),
        uncertainty: args.uncertainty,
    };
    let answer = progress::counted("explaining", |tick| explain::explain(&inputs, &question, tick))?;
    let (text, json) = (answer.to_text(), answer.to_json());
    // Files first: standard output shows a result only if everything asked for was done.
    if let Some(directory) = &shared.out {
        let file = |name: &str, text: &str| File { name: name.to_owned(), bytes: text.as_bytes().to_vec() };
        report::write(directory, &[file("explain.json", &json), file("explain.txt", &text)])?;
    }
    output::print(match shared.format {
        Format::Table => text.as_bytes(),
        Format::Json => json.as_bytes(),
    })
}
