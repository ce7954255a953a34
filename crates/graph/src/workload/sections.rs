//! A partition that the user has pinned: which operators share a section, in the order the sections run.

use std::collections::BTreeSet;
use std::path::Path;

use toml::Spanned;

use super::graph::{OperatorId, PinnedSection, Workload};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::index::Id;
use rdusim_base::input::{Count, Root, Source, Table, suggest};

/// `[[sections]]`
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SectionSpec {
    operators: Spanned<Vec<Spanned<String>>>,
}

/// A file of sections.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct FileSpec {
    schema: Spanned<Count>,
    sections: Vec<Table<SectionSpec>>,
}

/// Pins the partition of a file of sections, in place of one that the workload's own file may have.
///
/// # Errors
/// Operators that are unknown, missing or named twice, and sections that need what a later one makes.
pub fn pin(mut workload: Workload, path: &Path) -> Result<Workload, Diagnostic> {
    let source = Source::open(path, Root::Workload, &[])?;
    let spec: FileSpec = source.read()?;
    source.count("schema", &spec.schema, 1..=1)?;
    if spec.sections.is_empty() {
        return Err(source.error(spec.schema.span(), "`sections` is empty", "expected tables `[[sections]]`"));
    }
    workload.sections = sections(&source, &workload, &spec.sections)?;
    Ok(workload)
}

/// Checks a partition and resolves its names.
pub(super) fn sections(
    source: &Source,
    workload: &Workload,
    specs: &[Table<SectionSpec>],
) -> Result<Vec<PinnedSection>, Diagnostic> {
    if specs.is_empty() {
        return Ok(Vec::new());
    }
    let mut section_of: Vec<Option<usize>> = vec![None; workload.operators.len()];
    let known: Vec<&str> = workload.operators.iter().map(|operator| operator.name.as_str()).collect();
    let mut list = Vec::with_capacity(specs.len());
    for (section, spec) in specs.iter().enumerate() {
        if spec.operators.get_ref().is_empty() {
            let title = "a section of `sections` has no operators";
            return Err(source.error(spec.operators.span(), title, "expected at least one"));
        }
        let mut operators = Vec::new();
        for name in spec.operators.get_ref() {
            let Some(index) = known.iter().position(|known| known == name.get_ref()) else {
                let title = format!("`sections` names the operator {:?}, which the graph lacks", name.get_ref());
                return Err(suggest(source.error(name.span(), title, "no such operator"), name.get_ref(), &known));
            };
            if let Some(other) = section_of[index].replace(section) {
                let title = format!("`sections` names the operator {:?} twice", name.get_ref());
                let label = format!("section {} has it already", other + 1);
                return Err(source.error(name.span(), title, label));
            }
            operators.push(OperatorId::from_index(index));
        }
        operators.sort_unstable();
        list.push(PinnedSection { operators, declared: Some(source.place(spec.operators.span())) });
    }
    if let (Some(missing), Some(last)) = (section_of.iter().position(Option::is_none), specs.last()) {
        let title = format!("`sections` leaves out the operator {:?}", known[missing]);
        let label = "expected every operator in one section";
        return Err(source.error(last.operators.span(), title, label));
    }
    let section_of: Vec<usize> = section_of.into_iter().flatten().collect();
    check_order(source, workload, specs, &section_of)?;
    Ok(list)
}

/// Every section must find what it needs made by sections before it.
fn check_order(
    source: &Source,
    workload: &Workload,
    specs: &[Table<SectionSpec>],
    section_of: &[usize],
) -> Result<(), Diagnostic> {
    // (from, to): section `to` reads a tensor of `from`.
    let mut needs: BTreeSet<(usize, usize)> = BTreeSet::new();
    let mut too_late = None;
    for (id, operator) in workload.operators.iter_enumerated() {
        let to = section_of[id.index()];
        for &input in &operator.inputs {
            let Some(producer) = workload.producer(input) else { continue };
            let from = section_of[producer.index()];
            if from != to {
                needs.insert((from, to));
            }
            if from > to && too_late.is_none() {
                too_late = Some((from, to, input));
            }
        }
    }
    let Some((from, to, tensor)) = too_late else { return Ok(()) };
    let mut reached = BTreeSet::from([to]);
    while let Some(&(_, next)) = needs.iter().find(|(a, b)| reached.contains(a) && !reached.contains(b)) {
        reached.insert(next);
    }
    let tensor = &workload.tensors[tensor].name;
    let span = specs[to].operators.span();
    if reached.contains(&from) {
        let title = format!("sections {} and {} of `sections` need each other's results", to + 1, from + 1);
        let label = format!("needs `{tensor}` of section {}, which needs what is made here", from + 1);
        let help = "a section must hold every operator on the way between two of its own";
        return Err(source.error(span, title, label).with_help(help));
    }
    let title = format!("section {} of `sections` needs `{tensor}`, which section {} makes later", to + 1, from + 1);
    let help = format!("put it behind section {}: sections run in the order of the list", from + 1);
    Err(source.error(span, title, "its input is not there yet").with_help(help))
}
