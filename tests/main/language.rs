//! The language of the code: words that were replaced by the field's terms (`docs/glossary.md`) do not come back.
//!
//! `retired_words.txt` lists, for each retired word, the files of the core in which it still stands. The list is exact, so
//! that it shrinks with every file that is mended, and is empty when none is left.

use std::collections::{BTreeMap, BTreeSet};
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
const CORE: [&str; 10] = ["program", "cost", "outcome", "fluid", "cycle", "sim", "compile", "saved", "verify", "map"];

/// Methods of slices, which are not ours to name.
const OF_SLICES: [&str; 5] = [".chunks(", ".chunks_mut(", ".chunks_exact(", ".par_chunks(", ".chunk_by("];

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
fn retired_words_stand_only_where_the_list_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for module in CORE {
        sources(&root.join("src").join(module), &mut files);
    }
    assert!(files.len() > 100, "src was not found");
    files.sort();
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for file in &files {
        let words = words(&fs::read_to_string(file).expect("a source file"));
        let path = file.strip_prefix(root.join("src")).expect("below src").display().to_string();
        for (word, _) in RETIRED.iter().filter(|(word, _)| words.contains(*word)) {
            found.entry(word).or_default().push(path.clone());
        }
    }
    let mut list = String::new();
    for (word, files) in &found {
        writeln!(list, "{word}: {}", files.join(" ")).expect("a string");
    }
    let allowed = fs::read_to_string(root.join("tests/main/retired_words.txt")).expect("the list");
    if let Some((line, was)) = list.lines().zip(allowed.lines()).find(|(line, was)| line != was) {
        let word = line.split(':').next().unwrap_or_default();
        let instead = RETIRED.iter().find(|(retired, _)| *retired == word).map_or("", |(_, instead)| instead);
        panic!(
            "`{word}` is retired: say `{instead}`, or take the file off tests/main/retired_words.txt.\nfound:  {line}\nlisted: {was}"
        );
    }
    assert_eq!(list.lines().count(), allowed.lines().count(), "tests/main/retired_words.txt should be:\n{list}");
}
