//! The language of the code: words that were replaced by the field's terms (`docs/glossary.md`) do not come back.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::sources::sources;

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
    let mut files = sources();
    files.retain(|file| CORE.contains(&file.module()));
    assert!(files.len() > 100, "the sources were not found");
    files.sort_by(|a, b| a.place.cmp(&b.place));
    let mut found = String::new();
    for file in &files {
        let words = words(&file.text);
        for (word, instead) in RETIRED.iter().filter(|(word, _)| words.contains(*word)) {
            writeln!(found, "{}: `{word}` is retired: say `{instead}`", file.place).expect("a string");
        }
    }
    assert!(found.is_empty(), "{found}");
}
