//! Archives that `torch.export.save` writes (`.pt2`): programs of PyTorch operators as graphs of standard ones.

mod archive;
mod aten;
mod build;
mod images;
mod moves;
mod schema;

use std::io::{Read, Seek};
use std::path::Path;

use archive::Archive;
use build::{Build, Constant, data_type};
use schema::{Payloads, Program, Stored, Versioned};

use super::constant::element;
use super::network::{named, of_graph};
use super::options::{Imported, Options};
use rdusim_base::diagnostics::Diagnostic;

/// The major version of the schema: programs of another cannot be read by PyTorch of this one either.
const MAJOR: i64 = 8;

/// The version of the standard operators that programs are translated to.
const OPSET: i64 = 23;

/// The program in archives up to PyTorch 2.7.
const LEGACY: &str = "serialized_exported_program.json";

/// Elements of a buffer up to which its numbers are read: masks, positions.
const MOST_NUMBERS: u64 = 1 << 21;

/// Imports an archive.
pub(super) fn import(path: &Path, options: &Options) -> Result<Imported, Diagnostic> {
    let mut archive = archive::open(path)?;
    read(&mut archive, path, options).map_err(|error| named(path, &error))
}

fn read<R: Read + Seek>(archive: &mut Archive<R>, path: &Path, options: &Options) -> Result<Imported, Diagnostic> {
    let record = program_of(&archive.names())?;
    let text = archive.json(&record)?;
    check_version(&record, &text)?;
    let program: Program = serde_json::from_slice(&text).map_err(|error| no_program(&record, &error))?;
    drop(text);
    let graph = &program.graph_module.graph;
    if graph.nodes.is_empty() {
        return Err(Diagnostic::new("the program has no nodes"));
    }
    let mut build = Build::new(&graph.tensor_values);
    store(archive, &record, &program, &mut build, options)?;
    let tensors = |list: &[schema::Argument]| -> Vec<String> {
        list.iter().filter_map(|arg| arg.as_tensor.as_ref()).map(|tensor| tensor.name.clone()).collect()
    };
    let mut inputs = tensors(&graph.inputs);
    inputs.retain(|name| !build.is_stored(name));
    aten::translate(&mut build, &graph.nodes);
    let outputs: Vec<String> = tensors(&graph.outputs).iter().map(|name| build.name(name)).collect();
    let by = if program.torch_version.is_empty() {
        String::new()
    } else {
        format!(", by PyTorch {}", program.torch_version)
    };
    let about = format!("{} nodes, torch.export{by}", graph.nodes.len());
    of_graph(build.graph(&inputs, &outputs), OPSET, &about, path, options)
}

/// The record that holds the program.
fn program_of(names: &[String]) -> Result<String, Diagnostic> {
    let is_legacy = |name: &&String| *name == LEGACY || name.ends_with(&format!("/{LEGACY}"));
    // Archives since PyTorch 2.8 have a directory of the file's name around them.
    let is_model = |name: &&String| {
        let ends = Path::new(name.as_str()).extension().is_some_and(|ending| ending == "json");
        let of = name.rsplit_once('/').map_or("", |(directory, _)| directory);
        ends && (of == "models" || of.ends_with("/models"))
    };
    let found: Vec<&String> = names.iter().filter(|name| is_legacy(name) || is_model(name)).collect();
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => {
            let is_compiled = names.iter().any(|name| name.contains("data/aotinductor/"));
            let title = format!("it is no exported program: it has neither `models/model.json` nor `{LEGACY}`");
            let help = if is_compiled {
                "compiled libraries have no graph in them: save the program with `torch.export.save`"
            } else {
                "save the program with `torch.export.save(torch.export.export(model, inputs), FILE)`"
            };
            Err(Diagnostic::new(title).with_help(help))
        }
        several => {
            let list: Vec<&str> = several.iter().take(8).map(|name| name.as_str()).collect();
            let title = format!("it holds {} programs: {}", several.len(), list.join(", "));
            Err(Diagnostic::new(title).with_help("save each in an archive of its own"))
        }
    }
}

fn no_program(record: &str, error: &serde_json::Error) -> Diagnostic {
    let place = format!("line {}, column {}", error.line(), error.column());
    Diagnostic::new(format!("the record {record:?} is no exported program: {place}: {error}"))
        .with_help("a file that was cut off or changed must be fetched or exported again")
}

fn check_version(record: &str, text: &[u8]) -> Result<(), Diagnostic> {
    let found: Versioned = serde_json::from_slice(text).map_err(|error| no_program(record, &error))?;
    let Some(version) = found.schema_version else {
        return Err(Diagnostic::new(format!("the record {record:?} has no `schema_version`"))
            .with_help("export the model again with PyTorch 2.6 or later"));
    };
    if version.major != MAJOR {
        let title = format!(
            "the program has version {}.{} of the schema of torch.export, expected {MAJOR}",
            version.major, version.minor
        );
        return Err(Diagnostic::new(title).with_help("export the model again with PyTorch 2.6 to 2.9"));
    }
    Ok(())
}

/// Adds parameters, buffers and constants: their shapes, and numbers where they are few or masks are asked for.
fn store<R: Read + Seek>(
    archive: &mut Archive<R>,
    record: &str,
    program: &Program,
    build: &mut Build<'_>,
    options: &Options,
) -> Result<(), Diagnostic> {
    let base = record.rsplit_once("models/").map(|(base, name)| (base, name.trim_end_matches(".json")));
    let mut payloads = Vec::new();
    if let Some((base, name)) = base {
        let names = archive.names();
        for directory in ["weights", "constants"] {
            let config = format!("{base}data/{directory}/{name}_{directory}_config.json");
            if names.binary_search(&config).is_ok() {
                let text = archive.json(&config)?;
                let list: Payloads = serde_json::from_slice(&text).map_err(|error| no_program(&config, &error))?;
                payloads.push((format!("{base}data/{directory}/"), list));
            }
        }
    }
    let wants_all = options.masks || options.density.is_some();
    if wants_all && payloads.is_empty() {
        return Err(Diagnostic::new("its weights are pickled, and masks cannot be made of them")
            .with_help("save the program with PyTorch 2.8 or later, or leave `--masks` and `--density` out"));
    }
    for spec in &program.graph_module.signature.input_specs {
        let is_parameter = spec.parameter.is_some();
        let stored = spec.parameter.as_ref().or(spec.buffer.as_ref()).or(spec.tensor_constant.as_ref());
        let Some(Stored { arg, name }) = stored else { continue };
        let sizes = build.fixed(&arg.name).and_then(|sizes| {
            let sizes = sizes.into_iter().map(|size| u64::try_from(size).ok()).collect::<Option<Vec<u64>>>()?;
            sizes
                .iter()
                .try_fold(1u64, |all, &size| all.checked_mul(size))
                .filter(|&all| all < 1 << 50)
                .map(|all| (sizes, all))
        });
        let Some((dims, elements)) = sizes else {
            return Err(Diagnostic::new(format!("the stored tensor {name:?} has no fixed shape"))
                .with_help("the file is damaged: export it again"));
        };
        let kind = program.graph_module.graph.tensor_values.get(&arg.name).map_or(0, |meta| data_type(meta.dtype));
        let bytes = element(kind).map(|(bytes, _)| elements * bytes as u64);
        let is_wanted = if is_parameter { wants_all } else { wants_all || elements <= MOST_NUMBERS };
        let mut raw = None;
        for (directory, list) in payloads.iter().filter(|_| is_wanted) {
            let Some(payload) = list.config.get(name).filter(|payload| !payload.use_pickle) else { continue };
            if let Some(bytes) = bytes {
                raw = archive.elements(&format!("{directory}{}", payload.path_name), bytes)?;
            }
        }
        if wants_all && is_parameter && dims.len() > 1 && raw.is_none() {
            let title = format!("the elements of {name:?} are pickled, or stored with those of other tensors");
            return Err(Diagnostic::new(title).with_help("leave `--masks` and `--density` out"));
        }
        build.store(&arg.name, name, Constant { name: String::new(), dims, data_type: kind, raw });
    }
    Ok(())
}
