//! The chips, systems, workloads and studies that come with the program, by name.
//!
//! The table holds every TOML file of `arch/` and `workloads/`, each under the name of its file; no two files share a
//! name, whatever they hold (a test reads the folders).

use std::path::{Path, PathBuf};

use super::kind::FileKind;
use super::suggest::all_nearest;
use crate::diagnostics::Diagnostic;

/// A file that comes with the program.
#[derive(Debug)]
pub struct Builtin {
    /// What it holds.
    pub kind: FileKind,
    /// Name that stands for the file.
    pub name: &'static str,
    /// Its contents.
    pub text: &'static str,
}

/// Files of one folder: what they hold, the folder, their names without the ending.
macro_rules! builtins {
    ($($kind:ident in $folder:literal: $($name:literal)*;)*) => {
        &[$($(Builtin {
            kind: FileKind::$kind,
            name: $name,
            text: include_str!(concat!("../../../../", $folder, "/", $name, ".toml")),
        },)*)*]
    };
}

/// Every file that comes with the program, by kind and in the order that `rdusim list` shows.
pub const BUILTINS: &[Builtin] = builtins! {
    Chip in "arch":
        "sn10" "sn30" "sn30-half" "sn40l" "sn50" "plasticine" "a100" "h100" "h200" "b200" "gb200" "b300" "mi300x" "gc2" "gc200" "bow" "tpu-v4"
        "tpu-v5e" "tpu-v5p" "tpu-v6e" "tpu-v7" "gaudi3" "systolic-128" "cs2" "cs3";
    System in "arch/systems":
        "sn10-8" "sn30-8" "sn40l-16" "sn50-16" "dgx-a100" "dgx-h100" "dgx-h200" "dgx-b200" "gb200-nvl72" "dgx-b300" "mi300x-8" "ipu-pod16"
        "ipu-pod64" "ipu-pod128" "ipu-pod256" "tpu-v4-64" "tpu-v5e-256" "tpu-v5p-64" "tpu-v6e-256" "tpu-v7-64" "gaudi3-8" "cs2-cluster"
        "cs3-cluster";
    Workload in "workloads":
        "gpt13b-mlp" "gpt13b-mlp-sparse" "gpt13b-mlp-relu" "gpt13b-mlp-predicted" "gpt13b-mlp-low-rank"
        "gpt13b-mlp-distilled" "gpt2-small-mlp" "gpt2-xl-training" "llama2-7b-decode" "gemm-square" "relu" "sparse-gemm"
        "tiny-mlp";
    Study in "workloads/studies":
        "bound-space" "generations" "launch-decode" "launch" "link-width" "pcu-pmu-ratio"
        "pmu-capacity-ddr-bandwidth" "quick-look" "short-sram" "sparse-gemms" "sparsity-block" "subgraphs"
        "tile-memory-exchange";
};

/// The built-in file of a name, in upper or lower case.
pub fn named(name: &str) -> Option<&'static Builtin> {
    BUILTINS.iter().find(|file| file.name.eq_ignore_ascii_case(name))
}

/// The built-in file that a path stands for: there is no file of this path, and it is a built-in name.
pub fn builtin(path: &Path) -> Option<&'static Builtin> {
    let found = path.to_str().and_then(named)?;
    if path.is_file() { None } else { Some(found) }
}

/// The text of a file or of the built-in file that the path stands for; `None` if it cannot be read.
pub fn text_of(path: &Path) -> Option<String> {
    builtin(path).map(|file| file.text.to_owned()).or_else(|| super::read_text(path).ok())
}

/// The file that `reference` names in the file `from`: a path from `from`'s folder if there is such a file or no built-in of
/// this name, else the built-in. A built-in file names its neighbours, which are built in too.
pub fn referenced(from: &Path, reference: &str) -> PathBuf {
    if builtin(from).is_some() {
        let name = Path::new(reference).file_stem().and_then(|stem| stem.to_str()).and_then(named);
        return name.map_or_else(|| PathBuf::from(reference), |file| PathBuf::from(file.name));
    }
    let path = from.parent().unwrap_or(Path::new("")).join(reference);
    if path.is_file() || named(reference).is_none() { path } else { PathBuf::from(reference) }
}

/// Adds to an error about a file that cannot be read which names are built in, where the path may be meant as one.
pub(super) fn with_names(error: Diagnostic, path: &Path, kind: FileKind) -> Diagnostic {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if let Some(file) = named(stem) {
        return error.with_help(format!("`{}` is built in: give this name, without folder and ending", file.name));
    }
    if path.components().count() > 1 || path.extension().is_some() {
        return error;
    }
    let names: Vec<&str> = BUILTINS.iter().filter(|file| file.kind == kind).map(|file| file.name).collect();
    if names.is_empty() {
        return error;
    }
    let names_help = format!("built in are {}; anything else is the path of a file", names.join(", "));
    let near: Vec<String> = all_nearest(stem, &names).iter().map(|name| format!("`{name}`")).collect();
    if near.is_empty() {
        return error.with_help(names_help);
    }
    let meant = match near.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => near.concat(),
    };
    error.with_help(format!("did you mean {meant}? {names_help}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_shipped_file_is_built_in_under_its_own_name() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let folders = [
            (FileKind::Chip, "arch"),
            (FileKind::System, "arch/systems"),
            (FileKind::Workload, "workloads"),
            (FileKind::Study, "workloads/studies"),
        ];
        for (kind, folder) in folders {
            let entries = std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
            let shipped: BTreeSet<String> = entries
                .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
                .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
                .collect();
            let built_in: BTreeSet<String> =
                BUILTINS.iter().filter(|file| file.kind == kind).map(|file| file.name.to_owned()).collect();
            assert_eq!(shipped, built_in, "{folder}");
        }
        let names: BTreeSet<&str> = BUILTINS.iter().map(|file| file.name).collect();
        assert_eq!(names.len(), BUILTINS.len(), "two built-in files share a name");
        for file in BUILTINS {
            assert_eq!(FileKind::of_toml(file.text), file.kind, "{}", file.name);
        }
    }

    #[test]
    fn a_path_wins_over_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let mine = folder.path().join("sn10");
        assert_eq!(referenced(&folder.path().join("study.toml"), "sn10"), Path::new("sn10"));
        std::fs::write(&mine, "mine").unwrap();
        assert_eq!(referenced(&folder.path().join("study.toml"), "sn10"), mine);
        assert_eq!(referenced(Path::new("sn10-8"), "../sn10.toml"), Path::new("sn10"));
        assert_eq!(text_of(&mine).as_deref(), Some("mine"));
        assert!(builtin(Path::new("SN10")).is_some() && builtin(Path::new("arch/sn10")).is_none());
    }
}
