//! Models by their names.

use super::expert_presets::EXPERT_PRESETS;
use super::mamba_presets::MAMBA_PRESETS;
use super::preset::{Architecture, GPT2, LLAMA, PRESETS};
use rdusim_base::diagnostics::Diagnostic;

/// A preset, or the architecture of a family (`gpt`, `llama`) whose dimensions are to be given.
///
/// # Errors
/// A diagnostic that lists the names.
pub fn preset(name: &str) -> Result<(Architecture, u64), Diagnostic> {
    match name {
        "gpt" => return Ok((GPT2, 1024)),
        "llama" => return Ok((LLAMA, 4096)),
        _ => {}
    }
    let all = || PRESETS.iter().chain(&EXPERT_PRESETS).chain(&MAMBA_PRESETS);
    all().find(|preset| preset.name == name).map(|preset| (preset.architecture, preset.sequence)).ok_or_else(|| {
        let names: Vec<&str> = all().map(|preset| preset.name).collect();
        Diagnostic::new(format!("there is no model {name:?}"))
            .with_help(format!(
                "presets are {}, and `gpt` and `llama` with dimensions; `rdusim list` also names published models, and a `config.json` is one",
                names.join(", ")
            ))
    })
}
