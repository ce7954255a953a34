//! How far a mapping is from the best, as a file that names its inputs.

use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::arch::{AnyChip, Chip, Quality};
use crate::compile::{Compiled, Effort};
use crate::diagnostics::Diagnostic;
use crate::import::{self, PHASES, Request};
use crate::input::{Given, Override};
use crate::mode::Mode;
use crate::outcome::{Fidelity, Outcome};
use crate::proof::{self, Certificate, Mapped};
use crate::workload::Workload;

use super::execute::{Execution, Source, Stage, execute, graph_on};
use super::failure::Failure;
use super::takes::chip_for;

/// A certificate with the inputs that it is for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProofFile {
    /// [`proof::SCHEMA`].
    pub schema: u32,
    arch: String,
    workload: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    set: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dim: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    skip_unsupported: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    phase: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    batch: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dtype: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expert_load: Option<String>,
    mapping: String,
    seed: u64,
    /// What is claimed.
    pub certificate: Certificate,
    /// Remarks of the workload that was proved on: said beside a certificate, no part of it.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// Chip and workload of a certificate.
#[derive(Debug)]
pub struct ProofInputs<'a> {
    /// The chip.
    pub arch: &'a Given,
    /// The workload.
    pub workload: &'a Given,
    /// How a model becomes a workload.
    pub model: &'a Request,
    /// Overrides of both.
    pub sets: &'a [Override],
    /// How good the mapping is taken to be.
    pub quality: Quality,
    /// Seed of masks.
    pub seed: u64,
}

impl ProofInputs<'_> {
    fn read(&self) -> Result<(Chip, Workload), Diagnostic> {
        let no_grid =
            |any: AnyChip| Diagnostic::new(format!("{} has no grid to map operators onto", any.device().name()));
        let chip = chip_for("prove", self.arch, self.sets)?.into_rdu().map_err(no_grid)?.under(self.quality)?;
        let options = match self.workload {
            Given::File(path) => self.model.options_for(path)?,
            Given::Text { .. } => import::Options::default(),
        };
        let workload = import::take(self.workload, self.sets, self.seed, &options)?;
        let workload = graph_on(&chip, workload);
        Ok((chip, workload))
    }
}

/// Compiles, simulates, and writes down what bounds the result. `ended` is called as stages end; proving comes after them.
///
/// # Errors
/// What cannot be compiled, a run that does not drain, and a tensor that fits no memory.
pub fn prove(inputs: &ProofInputs<'_>, mode: Mode, ended: &mut dyn FnMut(Stage)) -> Result<ProofFile, Failure> {
    let (chip, workload) = inputs.read()?;
    let from = Source::Compiler(Effort::Full);
    let Execution { configurations, outcomes } =
        execute(&chip, &workload, &[mode], Fidelity::Event, true, &from, ended)?;
    let nothing = || Diagnostic::new("nothing was compiled");
    let (compiled, outcome) = configurations.first().zip(outcomes.first()).ok_or_else(nothing)?;
    Failure::unless_drained(outcome)?;
    let certificate = proof::certify(&chip, &workload, mode, &mapped(compiled, outcome))
        .ok_or_else(|| Diagnostic::new("a tensor fits no memory tier of the chip"))?;
    let phase = |wanted| PHASES.iter().find(|(_, phase)| *phase == wanted).map(|(name, _)| (*name).to_owned());
    Ok(ProofFile {
        schema: proof::SCHEMA,
        arch: inputs.arch.name(),
        workload: inputs.workload.name(),
        set: inputs.sets.iter().map(|set| set.raw().to_owned()).collect(),
        dim: inputs.model.dim.clone(),
        skip_unsupported: inputs.model.skip_unsupported,
        phase: inputs.model.phase.and_then(phase),
        batch: inputs.model.batch,
        seq: inputs.model.seq,
        context: inputs.model.context,
        dtype: inputs.model.dtype.clone(),
        expert_load: inputs.model.expert_load.clone(),
        mapping: inputs.quality.name().to_owned(),
        seed: inputs.seed,
        certificate,
        notes: workload.notes.clone(),
    })
}

/// The sections of a run, as a certificate has them.
fn mapped(compiled: &Compiled, outcome: &Outcome) -> Vec<Mapped> {
    let sections = compiled.configuration.sections.iter().zip(&outcome.sections);
    let mapped = sections.map(|(section, ran)| Mapped {
        operators: section.operators.clone(),
        nest: section.schedule.nest(),
        cycles: ran.cycles,
    });
    mapped.collect()
}

/// What a certificate says, in a few lines, and what the workload that it is of wants said.
pub fn proved(file: &ProofFile) -> String {
    file.notes.iter().fold(summary(&file.certificate), |text, note| format!("{text}note  {note}\n"))
}

/// What a certificate says, in a few lines.
pub fn summary(certificate: &Certificate) -> String {
    let leaves: usize = certificate.groups.iter().flat_map(|group| &group.leaves).map(|leaf| leaf.boxes.len()).sum();
    let sections: usize = certificate.groups.iter().map(|group| group.leaves.len()).sum();
    let whole = certificate.groups.iter().filter(|group| !group.by_sections).count();
    let mut text = format!(
        "{}: {} cycles, no mapping takes less than {}: gap {:.2} %\n{leaves} leaves: classes of loop nests of {sections} \
         possible sections in {} groups of operators\n",
        certificate.mode,
        certificate.cycles,
        certificate.least_cycles,
        certificate.gap * 100.0,
        certificate.groups.len(),
    );
    if whole > 0 {
        let _ = writeln!(text, "{whole} groups have too many sections and are bounded as a whole");
    }
    text
}

impl ProofFile {
    /// As indented JSON with a line break at the end.
    ///
    /// # Errors
    /// Numbers that JSON does not have.
    pub fn to_json(&self) -> Result<String, Diagnostic> {
        let json = serde_json::to_string_pretty(self)
            .map_err(|error| Diagnostic::new(format!("the certificate cannot be written as JSON: {error}")))?;
        Ok(json + "\n")
    }

    /// A certificate from its JSON; `name` stands for the file in errors.
    ///
    /// # Errors
    /// Text that is no certificate, and one of another version.
    pub fn parse(name: &str, text: &str) -> Result<Self, Diagnostic> {
        let refused = |why: String| Diagnostic::new(format!("cannot read the certificate `{name}`: {why}"));
        let file: Self = serde_json::from_str(text).map_err(|error| refused(error.to_string()))?;
        if file.schema != proof::SCHEMA {
            return Err(refused(format!("`schema`: found {}, expected {}", file.schema, proof::SCHEMA)));
        }
        Ok(file)
    }
}

/// What is wrong with a file that a certificate names, without the lines of the file.
fn unquoted(error: &Diagnostic) -> String {
    format!("the certificate names a file that is none of its kind: {}", error.title())
}

/// Recomputes a certificate's leaves, and that they cover the space. `texts`: chip and workload, where they are no files.
///
/// # Errors
/// Inputs that cannot be read, and a certificate that does not hold.
pub fn check(file: &ProofFile, texts: Option<(&Given, &Given)>) -> Result<(), Failure> {
    let sets = file.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    let known = |name: &String| {
        let found = PHASES.iter().find(|(known, _)| known == name).map(|(_, phase)| *phase);
        found.ok_or_else(|| Diagnostic::new(format!("`phase`: {name:?} is none of a model")))
    };
    let quality = [Quality::Ideal, Quality::Vendor].into_iter().find(|quality| quality.name() == file.mapping);
    let model = Request {
        dim: file.dim.clone(),
        skip_unsupported: file.skip_unsupported,
        phase: file.phase.as_ref().map(known).transpose()?,
        batch: file.batch,
        seq: file.seq,
        context: file.context,
        dtype: file.dtype.clone(),
        expert_load: file.expert_load.clone(),
    };
    let files = (Path::new(&file.arch).into(), Path::new(&file.workload).into());
    let (arch, workload) = texts.unwrap_or((&files.0, &files.1));
    let inputs = ProofInputs {
        arch,
        workload,
        model: &model,
        sets: &sets,
        quality: quality.ok_or_else(|| Diagnostic::new(format!("`mapping`: {:?} is none", file.mapping)))?,
        seed: file.seed,
    };
    // A certificate may name any file: what such a file holds is not for a message.
    let named = |error: Diagnostic| match (texts.is_none(), error.help()) {
        (false, _) => error,
        (true, Some(help)) => Diagnostic::new(unquoted(&error)).with_help(help),
        (true, None) => Diagnostic::new(unquoted(&error)),
    };
    let (chip, workload) = inputs.read().map_err(named)?;
    proof::check(&chip, &workload, &file.certificate).map_err(|proof::Refusal(why)| Failure::Unproved(why))
}
