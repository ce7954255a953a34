//! What Python asks for, as JSON: one shape for every analysis.

use std::path::{Path, PathBuf};

use pyo3::PyResult;
use pyo3::exceptions::PyValueError;
use rdusim::analysis::{Failure, Options, Source};
use rdusim::arch::Quality;
use rdusim::compile::Effort;
use rdusim::diagnostics::Diagnostic;
use rdusim::import::{self, PHASES, Request as ModelFlags};
use rdusim::input::{Given, Override};
use rdusim::mode::Mode;
use rdusim::outcome::Fidelity;
use rdusim::workload::Workload;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// An input: the path of a file or a built-in name, or a text under a name.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    name: String,
    text: Option<String>,
}

impl Input {
    /// A file, or the text that stands for it.
    pub(crate) fn of(path: &Path, text: Option<&String>) -> Self {
        Self { name: path.display().to_string(), text: text.cloned() }
    }

    /// Name, and text if it is given.
    pub(crate) fn parts(&self) -> (&str, Option<&str>) {
        (&self.name, self.text.as_deref())
    }

    pub(crate) fn given(&self) -> Given {
        match &self.text {
            Some(text) => Given::Text { name: self.name.clone(), text: text.clone() },
            None => Given::File(PathBuf::from(&self.name)),
        }
    }
}

/// How a model file becomes a workload.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Model {
    dim: Vec<String>,
    skip_unsupported: bool,
    phase: Option<String>,
    batch: Option<u64>,
    seq: Option<u64>,
    context: Option<u64>,
    dtype: Option<String>,
    expert_load: Option<String>,
}

impl Model {
    pub(crate) fn flags(&self) -> Result<ModelFlags, Diagnostic> {
        Ok(ModelFlags {
            dim: self.dim.clone(),
            skip_unsupported: self.skip_unsupported,
            phase: self.phase.as_deref().map(|word| named("phase", word, &PHASES)).transpose()?,
            batch: self.batch,
            seq: self.seq,
            context: self.context,
            dtype: self.dtype.clone(),
            expert_load: self.expert_load.clone(),
        })
    }
}

/// An analysis of a workload on a chip.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    pub(crate) arch: Input,
    pub(crate) workload: Input,
    #[serde(default)]
    sets: Vec<String>,
    #[serde(default)]
    pub(crate) model: Model,
    #[serde(default)]
    modes: Vec<String>,
    #[serde(default = "event")]
    fidelity: String,
    #[serde(default = "ideal")]
    mapping: String,
    #[serde(default = "normal")]
    effort: String,
    #[serde(default)]
    pub(crate) seed: u64,
    /// The other chips of a comparison, and the overrides of each.
    #[serde(default)]
    pub(crate) against: Vec<(Input, Vec<String>)>,
    /// Draws for ranges.
    #[serde(default)]
    pub(crate) samples: Option<u64>,
    #[serde(default)]
    pub(crate) uncertainty: bool,
    #[serde(default)]
    pub(crate) max_flops: Option<u64>,
    /// What the page says it was made by.
    #[serde(default)]
    pub(crate) command: String,
}

fn event() -> String {
    "event".to_owned()
}
fn ideal() -> String {
    "ideal".to_owned()
}
fn normal() -> String {
    "normal".to_owned()
}

impl Request {
    pub(crate) fn sets(&self) -> Result<Vec<Override>, Diagnostic> {
        overrides(&self.sets)
    }

    pub(crate) fn modes(&self) -> Result<Vec<Mode>, Diagnostic> {
        if self.modes.is_empty() {
            return Ok(Mode::ALL.to_vec());
        }
        let known = Mode::ALL.map(|mode| (mode.name(), mode));
        self.modes.iter().map(|word| named("mode", word, &known)).collect()
    }

    pub(crate) fn quality(&self) -> Result<Quality, Diagnostic> {
        quality(&self.mapping)
    }

    pub(crate) fn fidelity(&self) -> Result<Fidelity, Diagnostic> {
        let known = [("bound", Fidelity::Bound), ("event", Fidelity::Event), ("cycle", Fidelity::Cycle)];
        named("fidelity", &self.fidelity, &known)
    }

    pub(crate) fn options(&self) -> Result<Options, Diagnostic> {
        let efforts = [("quick", Effort::Low), ("normal", Effort::Full), ("thorough", Effort::Thorough)];
        let effort = named("effort", &self.effort, &efforts)?;
        let source = Source::Compiler(effort);
        Ok(Options { fidelity: self.fidelity()?, quality: self.quality()?, skip: true, source })
    }

    /// How the workload is imported, if it is a model.
    pub(crate) fn import(&self) -> Result<import::Options, Diagnostic> {
        let flags = self.model.flags()?;
        match self.workload.given() {
            Given::File(path) => flags.options_for(&path),
            Given::Text { .. } => Ok(import::Options::default()),
        }
    }

    pub(crate) fn workload(&self, sets: &[Override]) -> Result<Workload, Diagnostic> {
        import::take(&self.workload.given(), sets, self.seed, &self.import()?)
    }
}

pub(crate) fn quality(word: &str) -> Result<Quality, Diagnostic> {
    named("mapping", word, &[("ideal", Quality::Ideal), ("vendor", Quality::Vendor)])
}

pub(crate) fn overrides(sets: &[String]) -> Result<Vec<Override>, Diagnostic> {
    sets.iter().map(|set| Override::parse(set)).collect()
}

/// The value of a word.
pub(crate) fn named<T: Copy>(what: &str, word: &str, known: &[(&str, T)]) -> Result<T, Diagnostic> {
    let found = known.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        Diagnostic::new(format!("`{what}` is {word:?}, expected one of {}", names.join(", ")))
    })
}

/// Reads a request.
pub(crate) fn read<T: DeserializeOwned>(json: &str) -> PyResult<T> {
    serde_json::from_str(json).map_err(|error| PyValueError::new_err(format!("the request cannot be read: {error}")))
}

/// Shorthand of analyses: their errors are failures.
pub(crate) type Answer<T> = Result<T, Failure>;
