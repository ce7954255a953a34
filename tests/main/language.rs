//! The language of the code: words that were replaced by the field's terms (`docs/glossary.md`) do not come back.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Words that the core no longer uses, and what stands for each.
const RETIRED: [(&str, &str); 34] = [
    ("album", "snapshots"),
    ("alike", "equal, isomorphic"),
    ("anew", "recomputed"),
    ("bundle", "lockstep group"),
    ("bundles", "lockstep groups"),
    ("cadence", "loop level"),
    ("chunk", "column tile"),
    ("chunks", "column tiles"),
    ("coarse", "low effort"),
    ("coarsely", "at low effort"),
    ("crossing", "resource use"),
    ("extents", "footprint"),
    ("heed", "propagate a delay"),
    ("home", "resident buffer"),
    ("hoped", "lower bound"),
    ("judge", "reference model"),
    ("judged", "compared with the reference model"),
    ("laid", "placed and routed"),
    ("lazy", "branch and bound"),
    ("likeness", "canonical form"),
    ("looked", "evaluated"),
    ("pace", "rate"),
    ("polish", "final effort"),
    ("promising", "ranking"),
    ("relay", "partial-sum FIFO"),
    ("rush", "burst"),
    ("sketch", "fingerprint"),
    ("stirred", "woken"),
    ("stretch", "duty factor"),
    ("survey", "summary"),
    ("token", "row tile"),
    ("tokens", "row tiles"),
    ("twins", "isomorphic sections"),
    ("volley", "transfer group"),
];

/// Modules of the core.
const CORE: [&str; 11] =
    ["program", "cost", "outcome", "fluid", "cycle", "sim", "compile", "proof", "saved", "verify", "map"];

/// Methods of slices, which are not ours to name.
const OF_SLICES: [&str; 6] =
    [".chunks(", ".chunks_mut(", ".chunks_exact(", ".chunks_exact_mut(", ".par_chunks(", ".chunk_by("];

/// Words of a text in lower case; identifiers are split at underscores and capitals.
fn words(text: &str) -> BTreeSet<String> {
    let mut text = text.to_owned();
    for method in OF_SLICES {
        text = text.replace(method, "(");
    }
    // A name of the user's files, not of ours.
    text = text.replace("dims.tokens", "");
    let mut words = BTreeSet::new();
    for run in text.split(|c: char| !c.is_ascii_alphabetic()) {
        let mut word = String::new();
        let mut before = false;
        for c in run.chars() {
            if c.is_ascii_uppercase() && before {
                words.insert(std::mem::take(&mut word));
            }
            before = c.is_ascii_lowercase();
            word.push(c.to_ascii_lowercase());
        }
        words.insert(word);
    }
    words
}

fn sources(folder: &Path, list: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("src is readable") {
        let path = entry.expect("src is readable").path();
        if path.is_dir() {
            sources(&path, list);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            list.push(path);
        }
    }
}

#[test]
fn words_are_found_in_identifiers() {
    let found = words("fn heed_slowed(&self, x: TokenOuter) { rows.chunks(4); MAX_CHUNKS } // a volley");
    for word in ["heed", "token", "chunks", "volley", "slowed"] {
        assert!(found.contains(word), "{word} in {found:?}");
    }
    assert!(!words("rows.chunks(4)").contains("chunks"));
}

#[test]
fn no_retired_word_stands_in_the_core() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for module in CORE {
        sources(&root.join("src").join(module), &mut files);
    }
    assert!(files.len() > 100, "src was not found");
    files.sort();
    let mut found = String::new();
    for file in &files {
        let words = words(&fs::read_to_string(file).expect("a source file"));
        let path = file.strip_prefix(root).expect("below the root").display();
        for (word, instead) in RETIRED.iter().filter(|(word, _)| words.contains(*word)) {
            writeln!(found, "{path}: `{word}` is retired: say `{instead}`").expect("a string");
        }
    }
    assert!(found.is_empty(), "{found}");
}
