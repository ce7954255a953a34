//! From a graph of standard operators to a workload: what all formats of networks share.

use std::path::Path;

use super::attention;
use super::draft::Draft;
use super::infer::infer;
use super::logged;
use super::lower::{Problem, lower};
use super::masks::{self, Masks};
use super::net::Net;
use super::options::{Imported, Options};
use super::pattern::recognise;
use super::proto::Graph;
use rdusim_base::diagnostics::{Diagnostic, steers};

/// Nodes that an error names of each kind.
const MOST_NAMED: usize = 3;

/// Kinds of nodes that an error lists.
const MOST_KINDS: usize = 40;

/// An error with the file it is about.
pub(super) fn named(path: &Path, error: &Diagnostic) -> Diagnostic {
    let error_at = Diagnostic::new(format!("`{}`: {}", path.display(), error.title()));
    match error.help() {
        Some(help) => error_at.with_help(help),
        None => error_at,
    }
}

/// The workload of a graph that was read from a file; `about` is said of it in brackets.
pub(super) fn of_graph(
    graph: Graph<'_>,
    opset: i64,
    about: &str,
    path: &Path,
    options: &Options,
) -> Result<Imported, Diagnostic> {
    let plain = |name: &str| name.replace(steers, " ");
    let generic = |stem: &str| matches!(stem, "model" | "network" | "graph");
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).filter(|stem| !generic(stem));
    let name = if stem.is_some() || graph.name.trim().is_empty() {
        plain(&stem.unwrap_or_else(|| "model".to_owned()))
    } else {
        plain(graph.name)
    };
    let mut net = Net::new(graph, opset, &options.dims)?;
    infer(&mut net, options.skip_unsupported)?;
    let mut notes = attention::expand(&mut net);
    notes.extend(recognise(&mut net));
    let (mut draft, problems) = lower(&net, options.skip_unsupported);
    draft.notes.extend(notes);
    if !problems.is_empty() {
        return Err(refused(&net, &problems));
    }
    logged::network(&net, &draft);
    if draft.operators.is_empty() {
        return Err(Diagnostic::new("nothing of the network computes on its inputs"));
    }
    let masks = match masks::wanted(options)? {
        Some(wanted) => masks::add(&mut draft, &wanted, path)?,
        None => Masks::default(),
    };
    let file = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    draft.quantise(options.dtype());
    let about = vec![
        format!("{name}: imported from {file} ({about})."),
        format!(
            "{} operators, {} parameters. A row is a token or a pixel, a column a feature or a channel.",
            draft.operators.len(),
            draft.parameters()
        ),
    ];
    let rows = if has_images(&draft) { "pixels" } else { "tokens" };
    let graph = draft.graph(&name, options.dtype(), about, rows);
    Ok(Imported { graph, masks: masks.bytes })
}

fn has_images(draft: &Draft<'_>) -> bool {
    draft.operators.first().is_some_and(|operator| operator.kind == "conv")
}

/// One error for all nodes that a workload has no operator for.
fn refused(net: &Net<'_>, problems: &[Problem]) -> Diagnostic {
    let mut kinds: Vec<(&str, &str, Vec<usize>)> = Vec::new();
    for problem in problems {
        let op = net.nodes[problem.node].op.as_str();
        match kinds.iter_mut().find(|(known, why, _)| *known == op && *why == problem.why) {
            Some((.., nodes)) => nodes.push(problem.node),
            None => kinds.push((op, &problem.why, vec![problem.node])),
        }
    }
    let mut lines: Vec<String> = Vec::new();
    for (op, why, nodes) in kinds.iter().take(MOST_KINDS) {
        let named = |&index: &usize| {
            let node = &net.nodes[index];
            let inputs: Vec<String> = node
                .inputs
                .iter()
                .flatten()
                .map(|&id| format!("{} {}", net.values[id].name, net.shape_text(id)))
                .collect();
            format!("`{}` of {}", node.title(net), if inputs.is_empty() { "nothing".into() } else { inputs.join(", ") })
        };
        let mut names: Vec<String> = nodes.iter().take(MOST_NAMED).map(named).collect();
        if nodes.len() > MOST_NAMED {
            names.push(format!("{} more", nodes.len() - MOST_NAMED));
        }
        lines.push(format!("{op}, {} x: {why}: {}", nodes.len(), names.join("; ")));
    }
    if kinds.len() > MOST_KINDS {
        lines.push(format!("and {} kinds more", kinds.len() - MOST_KINDS));
    }
    let total = problems.len();
    let plural = if total == 1 { "1 node has" } else { &format!("{total} nodes have") };
    Diagnostic::new(format!("{plural} no operator in a workload:\n{}", lines.join("\n"))).with_help(
        "give `--skip-unsupported` to take them as elementwise functions or as boundaries; every result says so",
    )
}
