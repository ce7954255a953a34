//! What an addition costs: for a chip kind, a class of operators, a field of a chip file and a figure of results that are there, the source
//! files beside its own that know it. The pages on adding one list them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Something that was added.
struct Addition {
    /// The page on adding another.
    page: &'static str,
    /// How the page names it.
    name: &'static str,
    /// What code writes that knows it.
    words: &'static [&'static str],
    /// How paths of its own files begin.
    own: &'static [&'static str],
    /// Files beside its own at most: more, and an addition is a change of the design.
    most: usize,
}

const ADDITIONS: [Addition; 4] = [
    Addition {
        page: "add-a-chip-kind.md",
        name: "the kind `systolic`",
        words: &["Systolic", "systolic::", "\"systolic\"", "mod systolic", "systolic, wafer"],
        own: &["crates/machines/src/systolic/", "crates/graph/src/arch/systolic"],
        most: 12,
    },
    Addition {
        page: "add-an-operator.md",
        name: "the class `Carried`",
        words: &[
            "Class::Carried",
            "is_carried()",
            "mod recurrent",
            "recurrent::",
            "recurrent_functions",
            "recurrent_reference",
        ],
        own: &[
            "crates/verify/src/recurrent_",
            "crates/graph/src/workload/recurrent",
            "crates/graph/src/workload/carried",
        ],
        most: 15,
    },
    Addition {
        page: "add-a-chip-field.md",
        name: "the field `ag.outstanding`",
        words: &["outstanding", "ag_outstanding", "OUTSTANDING"],
        own: &[],
        most: 8,
    },
    Addition { page: "add-a-metric.md", name: "the figure `power_w`", words: &["\"power_w\""], own: &[], most: 1 },
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Sources of the library and the command line, by their paths from the root; what tests build by hand is none.
fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if !["target", "tests"].contains(&name) {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|of| of == "rs")
            && !["tests.rs", "fixture.rs"].iter().any(|of| path.ends_with(of))
        {
            let short = path.strip_prefix(root()).expect("a file of the project").to_string_lossy().replace('\\', "/");
            found.push((short, std::fs::read_to_string(&path).expect("a text")));
        }
    }
}

/// Whether code has a word, which is no part of a longer one; comments are no code.
fn knows(text: &str, word: &str) -> bool {
    let is_part = |of: char| of.is_alphanumeric() || of == '_';
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.match_indices(word).map(move |(at, _)| (line, at))).any(|(line, at)| {
        let before = line[..at].chars().next_back().is_some_and(is_part);
        let after = word.ends_with(is_part) && line[at + word.len()..].chars().next().is_some_and(is_part);
        !before && !after
    })
}

#[test]
fn pages_list_the_files_that_an_addition_touches() {
    let mut all = Vec::new();
    for folder in ["src", "crates"] {
        sources(&root().join(folder), &mut all);
    }
    for Addition { page, name, words, own, most } in ADDITIONS {
        let is_own = |path: &str| own.iter().any(|start| path.starts_with(start));
        let foreign: BTreeSet<&str> = all
            .iter()
            .filter(|(path, text)| !is_own(path) && words.iter().any(|word| knows(text, word)))
            .map(|(path, _)| path.as_str())
            .collect();
        assert!(foreign.len() <= most, "{name}: {foreign:?}");
        let text = std::fs::read_to_string(root().join("docs").join(page)).expect("a page");
        let files: Vec<String> = foreign.iter().map(|path| format!("`{path}`")).collect();
        let files = files.join(", ");
        let known_by = match foreign.len() {
            1 => "one source file beside its own knows it".to_owned(),
            count => format!("{count} source files beside its own know it"),
        };
        let wanted = format!("Counted on {name}, {known_by}: {files}.");
        let is_said = text.split_whitespace().collect::<Vec<_>>().join(" ").contains(&wanted);
        assert!(is_said, "docs/{page} should say: {wanted}");
    }
}

#[test]
fn words_are_found_in_code_alone() {
    assert!(knows("let of = Systolic::new();", "Systolic") && knows("use systolic::case;", "systolic::"));
    assert!(
        !knows("SystolicShape", "Systolic")
            && !knows("// Systolic", "Systolic")
            && !knows("gpu_systolic::of", "systolic::")
    );
}
