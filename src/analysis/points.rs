//! Measured serving points beside the simulation: where their systems and models come from.

use std::path::{Path, PathBuf};

use super::pod::served_model;
use crate::diagnostics::Diagnostic;
use crate::import::{self, Checkpoint};
use crate::input::Override;
use crate::model::plain;
use crate::pod::{self, Parallel, Service, System};
use crate::validate::{Points, Progress, SetReport, Sources};

/// Systems as files of measurements call them, and the shipped system files.
const SYSTEMS: [(&str, &str); 6] = [
    ("a100_sxm", "dgx-a100"),
    ("h100_sxm", "dgx-h100"),
    ("h200_sxm", "dgx-h200"),
    ("b200_sxm", "dgx-b200"),
    ("b300_sxm", "dgx-b300"),
    ("gb200", "gb200-nvl72"),
];

/// Models whose dimensions are those of another name's: their precision stands in its own column.
const SAME: [(&str, &str); 9] = [
    ("meta-llama/Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B"),
    ("meta-llama/Llama-3.1-70B", "meta-llama/Meta-Llama-3.1-70B"),
    ("nvidia/Llama-3.1-8B-Instruct-FP8", "meta-llama/Meta-Llama-3.1-8B"),
    ("nvidia/Llama-3.1-70B-Instruct-FP8", "meta-llama/Meta-Llama-3.1-70B"),
    ("nvidia/DeepSeek-R1-NVFP4", "deepseek-ai/DeepSeek-R1"),
    ("nvidia/DeepSeek-V3.1-NVFP4", "deepseek-ai/DeepSeek-V3"),
    ("nvidia/Qwen3-32B-NVFP4", "Qwen/Qwen3-32B"),
    ("Qwen/Qwen3-235B-A22B-FP8", "Qwen/Qwen3-235B-A22B"),
    ("zhipuai/GLM-5", "zai-org/GLM-5"),
];

/// What `validate --data` takes beside files of serving points.
#[derive(Debug, Clone, Copy)]
pub struct PointsRequest<'a> {
    /// A system for all rows, in place of those that they name.
    pub system: Option<&'a Path>,
    /// Overrides of the system files.
    pub sets: &'a [Override],
    /// A directory of `config.json` files by the names of their models, `/` written `--`.
    pub models: Option<&'a Path>,
    /// Where the journal is.
    pub out: Option<&'a Path>,
}

/// Simulates the rows of all files.
///
/// # Errors
/// A system file that cannot be read, overrides of no field, or a journal that cannot be written.
pub fn points(
    request: &PointsRequest<'_>,
    points: &Points,
    progress: Progress<'_>,
) -> Result<Vec<SetReport>, Diagnostic> {
    let given = request.system.map(|path| pod::open(path, request.sets)).transpose()?;
    let system = |name: &str| -> Result<System, Diagnostic> {
        if let Some(system) = &given {
            return Ok(system.clone());
        }
        let known = SYSTEMS.iter().find(|(known, _)| *known == name);
        let (_, file) = known.ok_or_else(|| {
            let names = SYSTEMS.map(|(name, _)| name).join(", ");
            Diagnostic::new(format!("no system file is known for {name:?}: those of {names} are"))
        })?;
        pod::open(Path::new(file), request.sets)
    };
    let named = |name: &str, precision: &str| service(name, precision, request.models);
    points.run(&Sources { system: &system, model: &named }, request.out, progress)
}

/// The model of a name, in one part: the checkpoint of its precision where a directory has one, else another that says its dimensions.
fn service(name: &str, precision: &str, directory: Option<&Path>) -> Result<Service, Diagnostic> {
    let other = SAME.iter().find(|(known, _)| *known == name).map(|(_, other)| *other);
    let base = name.rsplit('/').next().unwrap_or(name);
    let narrow = (precision == "fp4").then(|| format!("nvidia/{base}-NVFP4"));
    let file = directory.and_then(|directory| {
        let names = [narrow.as_deref(), Some(name), other].into_iter().flatten();
        names.map(|name| file_of(directory, name)).find(|path| path.is_file())
    });
    let known = [Some(name), other].into_iter().flatten().find(|name| import::published(Path::new(name)).is_some());
    let asked = file.map(|path| path.display().to_string()).or(known.map(str::to_owned)).ok_or_else(|| {
        let where_else = directory.map_or_else(
            || "no `--models DIR` is given".to_owned(),
            |directory| format!("{} has no {}", directory.display(), file_name(name)),
        );
        Diagnostic::new(format!("{name} is no shipped preset, and {where_else}"))
    })?;
    let Checkpoint { architecture, is_whole, stack, positions, storage, activations, notes, .. } =
        served_model(&asked)?;
    // Models whose layers say more than their dimensions, and those with experts, are served by their layers.
    let has_experts = architecture.extras.experts.is_some();
    let outlined = stack.as_ref().filter(|_| !is_whole).map(|stack| plain(stack));
    let is_layered =
        has_experts || outlined.is_some_and(|plain| plain.is_none_or(|plain| plain.extras.latent.is_some()));
    let stack = stack.filter(|_| is_layered);
    let architecture = outlined.flatten().filter(|_| !is_layered).unwrap_or(architecture);
    let service = Service { stack, ..Service::new(name, architecture, Parallel::default()) };
    let positions = Some(positions).filter(|&most| most < u64::MAX);
    Ok(Service { storage, activations, positions, notes, ..service })
}

fn file_of(directory: &Path, name: &str) -> PathBuf {
    directory.join(file_name(name))
}

fn file_name(name: &str) -> String {
    format!("{}.json", name.replace('/', "--"))
}
