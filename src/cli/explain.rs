//! `rdusim explain`: what bounds a workload on a chip, and what would change it.

use crate::compile::Effort;
use crate::diagnostics::Diagnostic;
use crate::input::Override;
use crate::mode::Mode;
use crate::report::{self, File};
use crate::study::Inputs;
use crate::study::explain::{self, Question};

use super::execute::timed;
use super::failure::Failure;
use super::study_args::ExplainArgs;
use super::values::Format;
use super::{output, progress, verbose};

/// Runs the workload as it is and with one more of each resource.
pub(super) fn explain(args: &ExplainArgs) -> Result<(), Failure> {
    let shared = &args.shared;
    let sets = shared.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    let from = &shared.configuration;
    if from.config.is_some() || from.save_config.is_some() || shared.trace.is_some() {
        let title = "`explain` looks for a mapping at every step: it takes no --config, and writes none and no trace";
        let help = "use `--sections` to hold the cut of the graph; `rdusim run` takes all three";
        return Err(Diagnostic::new(title).with_help(help).into());
    }
    let mut inputs = Inputs::open(
        &shared.arch.as_path().into(),
        &shared.workload.as_path().into(),
        &shared.model.options_for(&shared.workload)?,
        &sets,
        shared.seed,
        shared.mapping.into(),
    )?;
    if let Some(sections) = &from.sections {
        inputs = inputs.pinned(sections)?;
    }
    let modes = args.mode.map_or_else(|| Mode::ALL.to_vec(), |mode| vec![mode.into()]);
    let effort = from.effort.into();
    if let Some(section) = &args.search {
        let only = Some(section.as_str()).filter(|section| !section.is_empty());
        let found = progress::watched("compiling", || explain::decisions(&inputs, &modes, effort, only))?;
        let (text, json) = (found.to_text(), found.to_json());
        if let Some(directory) = &shared.out {
            let file = |name: &str, text: &str| File { name: name.to_owned(), bytes: text.as_bytes().to_vec() };
            report::write(directory, &[file("search.json", &json), file("search.txt", &text)])?;
        }
        return output::print_as(
            shared.format,
            match shared.format {
                Format::Table => &text,
                Format::Json | Format::Csv => &json,
            },
        );
    }
    if args.traffic_curve {
        return traffic_curve(args, &inputs, &modes, effort);
    }
    let question = Question { modes, effort, fidelity: shared.fidelity.into(), uncertainty: args.uncertainty };
    let (answer, took) = timed(|| progress::counted("explaining", |tick| explain::explain(&inputs, &question, tick)));
    let answer = answer?;
    verbose::time(&format!("compile and simulate {:.3} s", took.as_secs_f64()));
    let (text, screen, json) = (answer.to_text(), answer.to_screen(), answer.to_json());
    // Files first: standard output shows a result only if everything asked for was done.
    if let Some(directory) = &shared.out {
        let file = |name: &str, text: &str| File { name: name.to_owned(), bytes: text.as_bytes().to_vec() };
        let mut files = vec![file("explain.json", &json), file("explain.txt", &text)];
        files.extend(answer.pictures()?);
        let files = output::with_page(Some(directory), files, &[&shared.arch, &shared.workload])?;
        report::write(directory, &files)?;
    }
    output::print_as(
        shared.format,
        match shared.format {
            Format::Table if shared.full => &text,
            Format::Table => &screen,
            Format::Json | Format::Csv => &json,
        },
    )
}

/// Draws least off-chip traffic against SRAM.
fn traffic_curve(args: &ExplainArgs, inputs: &Inputs, modes: &[Mode], effort: Effort) -> Result<(), Failure> {
    let shared = &args.shared;
    let found = progress::counted("explaining", |tick| explain::traffic_curve(inputs, modes, effort, tick))?;
    let (text, json, csv) = (found.to_text(), found.to_json(), found.to_csv());
    if let Some(directory) = &shared.out {
        let file = |ending: &str, text: &str| File {
            name: format!("traffic-curve.{ending}"),
            bytes: text.as_bytes().to_vec(),
        };
        let mut files = vec![file("json", &json), file("txt", &text), file("csv", &csv)];
        files.extend(found.pictures()?);
        let files = output::with_page(Some(directory), files, &[&shared.arch, &shared.workload])?;
        report::write(directory, &files)?;
    }
    output::print_as(
        shared.format,
        match shared.format {
            Format::Table => &text,
            Format::Json => &json,
            Format::Csv => &csv,
        },
    )
}
