//! What kind of chip a file describes, and tables that belong to another kind.

use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::Source;

/// A kind of chip: what its files have, and what messages say of it.
#[derive(Debug)]
pub struct ChipKind {
    /// The word in files.
    pub word: &'static str,
    /// What a chip of it is called in a sentence.
    pub called: &'static str,
    /// What stands in the place of a mapping, as the end of a sentence on a file of this kind.
    unmapped: &'static str,
    /// What is timed one after the other: the noun of `timed KERNEL by kernel`. None on an RDU, whose mapping is.
    pub timed_by: Option<&'static str>,
    /// The page about it.
    pub page: &'static str,
    /// Tables of its files that not every kind has.
    tables: &'static [&'static str],
}

impl ChipKind {
    /// The kind with this word; an RDU for words that no kind has.
    pub(super) fn of(word: &str) -> &'static Self {
        let [rdu, ..] = &TABLE;
        TABLE.iter().find(|kind| kind.word == word).unwrap_or(rdu)
    }
}

/// The kinds, in the order of [`KINDS`]: a row is all that messages and the check of a file's tables know of one.
static TABLE: [ChipKind; 5] = [
    ChipKind {
        word: "rdu",
        called: "an RDU",
        unmapped: "",
        timed_by: None,
        page: "docs/arch-format.md",
        tables: &["grid", "pcu", "pmu", "network", "ag", "area", "vendor", "launch"],
    },
    ChipKind {
        word: "gpu",
        called: "a GPU",
        unmapped: "which has no grid to map operators onto",
        timed_by: Some("kernel"),
        page: "docs/gpu.md",
        tables: &["sm", "l2", "gemm", "attention", "block_sparse", "fusion", "cluster", "launch"],
    },
    ChipKind {
        word: "bsp",
        called: "a chip of kind \"bsp\"",
        unmapped: "which runs operators on all tiles in turn",
        timed_by: Some("superstep"),
        page: "docs/ipu.md",
        tables: &["tile", "exchange", "links", "program", "planner"],
    },
    ChipKind {
        word: "systolic",
        called: "a chip of kind \"systolic\"",
        unmapped: "which runs operators one after the other",
        timed_by: Some("kernel"),
        page: "docs/systolic.md",
        tables: &["program", "array", "vector", "buffer"],
    },
    ChipKind {
        word: "wafer",
        called: "a chip of kind \"wafer\"",
        unmapped: "over which weights stream",
        timed_by: Some("kernel"),
        page: "docs/wafer.md",
        tables: &["program", "core", "fabric", "stream"],
    },
];

/// Words of the kinds, in files.
pub const KINDS: [&str; 5] = ["rdu", "gpu", "bsp", "systolic", "wafer"];

#[derive(Deserialize)]
struct Head {
    kind: Option<Spanned<String>>,
}

/// An error about the kind that a file says, at its place.
pub(super) fn error(source: &Source, title: String, expected: String) -> Diagnostic {
    match source.read::<Head>() {
        Ok(Head { kind: Some(kind) }) => source.error(kind.span(), title, expected),
        Ok(Head { kind: None }) | Err(_) => Diagnostic::new(title),
    }
}

/// The kind of a file; refuses tables of another.
pub(super) fn of(source: &Source) -> Result<&'static ChipKind, Diagnostic> {
    let head: Head = source.read()?;
    let kind = match &head.kind {
        Some(word) if word.get_ref() == "system" => {
            let title = "this needs a chip: the file describes a system of chips";
            let help = "`pod`, `check` and `validate --data` take a system";
            return Err(source
                .error(word.span(), title, "expected \"rdu\", \"gpu\", \"bsp\", \"systolic\" or \"wafer\"")
                .with_help(help));
        }
        Some(word) => ChipKind::of(KINDS[source.keyword("kind", word, &KINDS)?]),
        None => ChipKind::of("rdu"),
    };
    let keys: IndexMap<Spanned<String>, IgnoredAny> = source.read()?;
    let foreign = keys.keys().filter_map(|key| {
        let owners: Vec<&ChipKind> =
            TABLE.iter().filter(|kind| kind.tables.contains(&key.get_ref().as_str())).collect();
        (!owners.is_empty() && owners.iter().all(|owner| owner.word != kind.word)).then_some((key, owners))
    });
    let Some((key, owners)) = foreign.min_by_key(|(key, _)| key.span().start) else { return Ok(kind) };
    let other = owners.iter().map(|kind| format!("{:?}", kind.word)).collect::<Vec<_>>().join(" or ");
    let word = kind.word;
    let title = format!("`{}` belongs to a file with kind = {other}, this one has kind = {word:?}", key.get_ref());
    let help = format!(
        "remove `{}`, or write a file of the other kind (docs/arch-format.md, docs/gpu.md, docs/ipu.md, docs/systolic.md, docs/wafer.md)",
        key.get_ref()
    );
    Err(source.error(key.span(), title, "of another kind of chip").with_help(help))
}

/// Refuses a file of another kind than `rdu`.
///
/// # Errors
/// What the file describes instead, at the place where it says so.
pub(super) fn check_rdu(source: &Source) -> Result<(), Diagnostic> {
    let kind = of(source)?;
    if kind.word == "rdu" {
        return Ok(());
    }
    let title = format!("this needs an RDU: the file describes {}, {}", kind.called, kind.unmapped);
    let help = format!("`run`, `compare`, `check`, `explain` and `sweep` take {}", kind.called);
    Err(error(source, title, "expected \"rdu\"".to_owned()).with_help(help))
}

#[cfg(test)]
mod tests {
    use super::{ChipKind, KINDS, TABLE};

    #[test]
    fn the_words_of_the_kinds_are_those_of_the_table() {
        assert_eq!(TABLE.each_ref().map(|kind| kind.word), KINDS);
        for word in KINDS {
            assert_eq!(ChipKind::of(word).word, word);
        }
    }
}
