//! ONNX files: bytes in, a workload out.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::constant::{Outside, outside};
use super::draft::Draft;
use super::infer::infer;
use super::lower::{Problem, lower};
use super::masks::{self, Masks};
use super::net::Net;
use super::options::{Imported, Options};
use super::pattern::recognise;
use super::proto;
use crate::diagnostics::Diagnostic;
use crate::input;

/// The largest file, which is that of a Protocol Buffers message.
const MOST_BYTES: u64 = 1 << 31;

/// Nodes that an error names of each kind.
const MOST_NAMED: usize = 3;

/// Kinds of nodes that an error lists.
const MOST_KINDS: usize = 40;

/// Imports an ONNX file.
pub(super) fn import(path: &Path, options: &Options) -> Result<Imported, Diagnostic> {
    let shown = path.display().to_string();
    let told = |error: &Diagnostic| {
        let error_at = Diagnostic::new(format!("`{shown}`: {}", error.title()));
        match error.help() {
            Some(help) => error_at.with_help(help),
            None => error_at,
        }
    };
    let bytes = read(path)?;
    of_bytes(&bytes, path, options).map_err(|error| told(&error))
}

/// The bytes of a file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Diagnostic> {
    let shown = path.display();
    let refused = |why: String| Diagnostic::new(format!("cannot read `{shown}`: {why}"));
    let mut bytes = Vec::new();
    let file = input::open(path).map_err(|why| refused(format!("it {why}")))?;
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| refused(error.to_string()))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(refused(format!("it is larger than {MOST_BYTES} bytes")));
    }
    Ok(bytes)
}

/// Imports the bytes of an ONNX file that lies at `path`.
pub(super) fn of_bytes(bytes: &[u8], path: &Path, options: &Options) -> Result<Imported, Diagnostic> {
    let model = proto::model(bytes).map_err(|error| {
        Diagnostic::new(format!("it is no ONNX file: byte {}: {}", error.at, error.why))
            .with_help("a file that was cut off or changed must be fetched or exported again")
    })?;
    let Some(graph) = model.graph else {
        return Err(Diagnostic::new("it is no ONNX file: there is no graph in it"));
    };
    if graph.nodes.is_empty() {
        return Err(Diagnostic::new("the network has no nodes"));
    }
    if graph.sparse > 0 {
        return Err(Diagnostic::new(format!(
            "{} initialisers are in the sparse form, which is not read",
            graph.sparse
        )));
    }
    let generic = |stem: &str| matches!(stem, "model" | "network" | "graph");
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).filter(|stem| !generic(stem));
    let name = if stem.is_some() || graph.name.trim().is_empty() {
        stem.unwrap_or_else(|| "model".to_owned())
    } else {
        graph.name.replace(|c: char| c.is_control(), " ")
    };
    let opset = model.opset.unwrap_or(1);
    let nodes = graph.nodes.len();
    if !options.without_weights {
        check_outside(&graph.initializers, path)?;
    }
    let mut net = Net::new(graph, opset, &options.dims)?;
    infer(&mut net, options.skip_unsupported)?;
    let notes = recognise(&mut net);
    let (mut draft, problems) = lower(&net, options.skip_unsupported);
    draft.notes.extend(notes);
    if !problems.is_empty() {
        return Err(refused(&net, &problems));
    }
    if draft.operators.is_empty() {
        return Err(Diagnostic::new("nothing of the network computes on its inputs"));
    }
    let masks = match masks::wanted(options)? {
        Some(wanted) => masks::add(&mut draft, &wanted, path)?,
        None => Masks::default(),
    };
    let about = vec![
        format!(
            "{name}: imported from {} ({nodes} nodes, opset {opset}{}).",
            path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            if model.producer.is_empty() { String::new() } else { format!(", by {}", model.producer) }
        ),
        format!(
            "{} operators, {} parameters. A row is a token or a pixel, a column a feature or a channel.",
            draft.operators.len(),
            draft.parameters()
        ),
    ];
    let rows = if has_images(&draft) { "pixels" } else { "tokens" };
    let text = draft.to_toml(&name, options.dtype(), &about, rows);
    Ok(Imported { text, masks: masks.bytes })
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

/// Looks whether the files of external tensors are there, and long enough.
fn check_outside(tensors: &[proto::Tensor<'_>], path: &Path) -> Result<(), Diagnostic> {
    let mut known: Vec<(String, u64)> = Vec::new();
    for tensor in tensors.iter().filter(|tensor| tensor.is_external) {
        let Outside { location, offset, length } = outside(tensor)?;
        let bytes = if let Some((_, bytes)) = known.iter().find(|(name, _)| *name == location) {
            *bytes
        } else {
            let bytes = length_of(path, &location).map_err(|why| {
                Diagnostic::new(format!("the external data {location:?} of tensor {:?} {why}", tensor.name))
                    .with_help("put it beside the model, or give `--without-weights`: shapes are enough without masks")
            })?;
            known.push((location.clone(), bytes));
            bytes
        };
        if offset.checked_add(length).is_none_or(|end| end > bytes) {
            let title = format!(
                "tensor {:?} is {length} bytes from byte {offset} of {location:?}, which has {bytes}",
                tensor.name
            );
            return Err(Diagnostic::new(title).with_help("the file was cut off, or belongs to another model"));
        }
    }
    Ok(())
}

fn length_of(model: &Path, location: &str) -> Result<u64, String> {
    let mut file = input::open_inside(model.parent().unwrap_or(Path::new("")), location)?;
    file.seek(SeekFrom::End(0)).map_err(|error| format!("cannot be read: {error}"))
}
