//! Why the search took the mappings that it took: its decisions, section by section.

use std::fmt::Write as _;

use serde::Serialize;

use crate::compile::{Compiled, Effort, compile_traced};
use crate::diagnostics::Diagnostic;
use crate::mode::Mode;
use crate::program::divided_over_tiers;

use super::super::inputs::Inputs;

/// What a search has decided.
#[derive(Debug, Clone, Serialize)]
pub struct SearchDecisions {
    /// Version of this form.
    pub schema: u32,
    /// Name of the chip.
    pub arch: String,
    /// Name of the workload.
    pub workload: String,
    /// How much effort the search has spent.
    pub effort: &'static str,
    /// The sections of each mode in the end.
    pub partitions: Vec<Partition>,
    /// What was decided of each section that was compared.
    pub sections: Vec<Section>,
}

/// The sections that a mode runs as in the end.
#[derive(Debug, Clone, Serialize)]
pub struct Partition {
    /// Name of the mode.
    pub mode: &'static str,
    /// Names of its sections, as in `up+gelu`.
    pub sections: Vec<String>,
}

/// What was decided of a section.
#[derive(Debug, Clone, Serialize)]
pub struct Section {
    /// Its operators, as in `up+gelu`.
    pub section: String,
    /// One line a decision.
    pub decisions: Vec<String>,
}

/// Compiles at an effort, and tells what the search has decided: of all sections, or of `only` one.
///
/// # Errors
/// What the inputs and the compiler refuse, a chip that needs no mapping, and a section that was not compared.
pub fn decisions(
    inputs: &Inputs,
    modes: &[Mode],
    effort: Effort,
    only: Option<&str>,
) -> Result<SearchDecisions, Diagnostic> {
    let Ok(chip) = inputs.any_chip(&[])?.into_rdu() else {
        let title = "--search tells how a graph is mapped onto an RDU: this chip runs kernels, which need no mapping";
        return Err(Diagnostic::new(title).with_help("leave --search out, or take a chip of kind `rdu`"));
    };
    let workload = inputs.workload(&[], None)?;
    let divided = divided_over_tiers(&chip, &workload);
    let graph = divided.as_ref().unwrap_or(&workload);
    let (compiled, found) = compile_traced(&chip, graph, modes, effort)?;
    let is_asked_for = |name: &str| only.is_none_or(|only| only == name);
    let names: Vec<String> = found.sections.iter().map(|of| of.section.clone()).collect();
    let of_section = |of: crate::compile::SectionDecisions| Section { section: of.section, decisions: of.lines };
    let sections: Vec<Section> =
        found.sections.into_iter().filter(|of| is_asked_for(&of.section)).map(of_section).collect();
    if sections.is_empty() {
        let title = format!("no section `{}` was compared", only.unwrap_or_default());
        return Err(Diagnostic::new(title).with_help(format!("expected one of: {}", names.join(", "))));
    }
    let partition = |of: &Compiled| Partition {
        mode: of.configuration.mode.name(),
        sections: of.configuration.sections.iter().map(|section| section.name.clone()).collect(),
    };
    Ok(SearchDecisions {
        schema: 1,
        arch: chip.name.clone(),
        workload: workload.name.clone(),
        effort: effort.name(),
        partitions: compiled.iter().map(partition).collect(),
        sections,
    })
}

impl SearchDecisions {
    /// As text: a paragraph for each section.
    pub fn to_text(&self) -> String {
        let mut text = format!("{} on {}, effort {}\n", self.workload, self.arch, self.effort);
        for Partition { mode, sections } in &self.partitions {
            let _ = writeln!(text, "{mode}: {}", sections.join(", "));
        }
        for Section { section, decisions } in &self.sections {
            let _ = write!(text, "\n{section}\n");
            for line in decisions {
                let _ = writeln!(text, "  {line}");
            }
        }
        text
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).map(|json| json + "\n").unwrap_or_default()
    }
}
