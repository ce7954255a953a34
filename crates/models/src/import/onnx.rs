//! ONNX files: bytes in, a network out.

use std::io::{Seek, SeekFrom};
use std::path::Path;

use super::constant::{Outside, outside};
use super::network::{named, of_graph};
use super::options::{Imported, Options};
use super::{proto, wire};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input;

/// Versions of the standard operators.
const OPSETS: std::ops::RangeInclusive<i64> = 9..=23;

/// Imports an ONNX file.
pub(super) fn import(path: &Path, options: &Options) -> Result<Imported, Diagnostic> {
    let bytes = read(path)?;
    of_bytes(&bytes, path, options).map_err(|error| named(path, &error))
}

/// Refuses the first bytes of what is no message at all.
fn begins(head: &[u8]) -> Result<(), String> {
    wire::begins(head).map_err(|error| format!("is no ONNX file: byte {}: {}", error.at, error.why))
}

/// The bytes of a file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Diagnostic> {
    input::read_bytes(path, input::MOST_NETWORK_BYTES, begins)
        .map_err(|why| Diagnostic::new(format!("cannot read `{}`: it {why}", path.display())))
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
    let opset = model.opset.unwrap_or(1);
    if !OPSETS.contains(&opset) {
        let (least, most) = (OPSETS.start(), OPSETS.end());
        let title = format!("the network has version {opset} of the standard operators, expected {least} to {most}");
        return Err(Diagnostic::new(title).with_help("export it again with `opset_version` 17, or convert it"));
    }
    if !options.without_weights {
        check_outside(&graph.initializers, path)?;
    }
    let by = if model.producer.is_empty() { String::new() } else { format!(", by {}", model.producer) };
    let about = format!("{} nodes, opset {opset}{by}", graph.nodes.len());
    of_graph(graph, opset, &about, path, options)
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
