//! What a file holds, told by its ending and its first tables: so that a file in the wrong place is called by its name.

use std::path::Path;

use crate::diagnostics::Diagnostic;

/// Keys and lists of a text at most: each takes some hundred bytes of memory once it is parsed.
pub(super) const MOST_VALUES: usize = 500_000;

/// Further elements of lists at most, which take less.
const MOST_ELEMENTS: usize = 4 * MOST_VALUES;

/// Times as many in a configuration, which the program has written: that of a large graph has a list for every place and route.
const TIMES_IN_A_CONFIGURATION: usize = 8;

/// An upper bound on the keys, tables and elements of lists in a text, if it is more than are read.
pub(super) fn too_many_values(text: &str) -> Option<usize> {
    let count = |wanted: &[u8]| text.bytes().filter(|byte| wanted.contains(byte)).count();
    let (keys, elements) = (count(b"=["), count(b","));
    let times = if text.contains("\n[[runs") { TIMES_IN_A_CONFIGURATION } else { 1 };
    (keys > times * MOST_VALUES || elements > times * MOST_ELEMENTS).then_some(keys + elements)
}

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// One accelerator.
    Chip,
    /// Many chips and their links.
    System,
    /// An operator graph.
    Workload,
    /// Axes over fields of a chip and a workload.
    Study,
    /// A partition of a graph into sections.
    Sections,
    /// A compiled configuration.
    Configuration,
    /// A model that becomes a workload: ONNX, an archive of `torch.export`, or a `config.json`.
    Model,
    /// What `--out` or `--format json` of a command wrote.
    Result,
    /// Something else.
    Unknown,
}

impl FileKind {
    /// With its article, for messages.
    pub fn described(self) -> &'static str {
        match self {
            Self::Chip => "a chip file",
            Self::System => "a system file",
            Self::Workload => "a workload file",
            Self::Study => "a study file",
            Self::Sections => "a file of sections",
            Self::Configuration => "a configuration file",
            Self::Model => "a model",
            Self::Result => "a result",
            Self::Unknown => "no file of rdusim",
        }
    }

    /// What a file of this path and text holds; the text of a binary file may be empty.
    pub fn of(path: &Path, text: &str) -> Self {
        let ends = |ending: &str| path.extension().is_some_and(|found| found.eq_ignore_ascii_case(ending));
        if ends("onnx") || ends("pt2") {
            return Self::Model;
        }
        if ends("json") {
            let object = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text).unwrap_or_default();
            return match () {
                () if ["model_type", "architectures", "text_config"].iter().any(|key| object.contains_key(*key)) => {
                    Self::Model
                }
                () if object.contains_key("schema") => Self::Result,
                () => Self::Unknown,
            };
        }
        Self::of_toml(text)
    }

    /// What a TOML text holds.
    pub(super) fn of_toml(text: &str) -> Self {
        if too_many_values(text).is_some() {
            return Self::Unknown;
        }
        let Ok(table) = text.parse::<toml::Table>() else { return Self::Unknown };
        let has = |keys: &[&str]| keys.iter().any(|key| table.contains_key(*key));
        let kind = table.get("kind").and_then(toml::Value::as_str);
        match () {
            () if kind == Some("system") => Self::System,
            () if has(&["axes", "metrics"]) => Self::Study,
            () if has(&["operators", "tensors"]) => Self::Workload,
            // Other chips than RDUs say of what kind they are.
            () if kind.is_some() || has(&["clock_ghz", "grid", "pcu", "pmu"]) => Self::Chip,
            () if has(&["runs"]) => Self::Configuration,
            () if has(&["sections"]) => Self::Sections,
            () => Self::Unknown,
        }
    }
}

/// Refuses a file that surely holds something else than what is `wanted` in its place.
pub(super) fn check_place(name: &str, kind: FileKind, wanted: FileKind) -> Result<(), Diagnostic> {
    let takes = match kind {
        FileKind::Chip => format!("give it as `--arch {name}`: `--arch` takes a chip, `--workload` a workload"),
        FileKind::Workload | FileKind::Model => {
            format!("give it as `--workload {name}`: `--arch` takes a chip, `--workload` a workload")
        }
        FileKind::System => "`rdusim pod` takes a system, `--arch` a chip, `--workload` a workload".to_owned(),
        FileKind::Study => format!("`rdusim sweep {name}` runs a study"),
        FileKind::Result => format!("`rdusim report {name}` makes a page of a result"),
        FileKind::Sections | FileKind::Configuration | FileKind::Unknown => return Ok(()),
    };
    // What a chip file lacks that describes a system is said at its `kind`.
    if kind == wanted || (kind, wanted) == (FileKind::System, FileKind::Chip) {
        return Ok(());
    }
    let describes = match wanted {
        FileKind::Chip => "an accelerator",
        FileKind::System => "a system of chips",
        FileKind::Study => "a study",
        _ => "an operator graph",
    };
    let help = match wanted {
        FileKind::System => "`rdusim pod` takes a system: `rdusim list` names those that are built in".to_owned(),
        _ => takes,
    };
    Err(Diagnostic::new(format!("`{name}` is {}: it does not describe {describes}", kind.described())).with_help(help))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_apart() {
        for (name, text, kind) in [
            ("a.toml", "[[sections]]\noperators = []", FileKind::Sections),
            ("a.toml", "[[runs]]\nmode = \"fused\"", FileKind::Configuration),
            ("a.toml", "x = 1", FileKind::Unknown),
            ("config.json", "{\"model_type\": \"llama\"}", FileKind::Model),
            ("result.json", "{\"schema\": 1}", FileKind::Result),
            ("a.json", "[", FileKind::Unknown),
            ("A.ONNX", "", FileKind::Model),
            ("a.pt2", "", FileKind::Model),
        ] {
            assert_eq!(FileKind::of(Path::new(name), text), kind, "{name}: {text}");
        }
    }
}
