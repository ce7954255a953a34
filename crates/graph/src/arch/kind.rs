//! What kind of chip a file describes, and tables that belong to another kind.

use std::ops::Range;

use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::Source;

/// The kind of a file.
pub(super) enum Kind {
    /// No `kind`, or `"rdu"`.
    Rdu,
    /// `"gpu"`, and where it says so.
    Gpu(Range<usize>),
    /// `"bsp"`, and where it says so.
    Bsp(Range<usize>),
    /// `"systolic"`, and where it says so.
    Systolic(Range<usize>),
    /// `"wafer"`, and where it says so.
    Wafer(Range<usize>),
}

#[derive(Deserialize)]
struct Head {
    kind: Option<Spanned<String>>,
}

/// Words of the kinds, in files.
pub const KINDS: [&str; 5] = ["rdu", "gpu", "bsp", "systolic", "wafer"];

/// An error about the kind that a file says, at its place.
pub(super) fn error(source: &Source, title: String, expected: String) -> Diagnostic {
    match source.read::<Head>() {
        Ok(Head { kind: Some(kind) }) => source.error(kind.span(), title, expected),
        Ok(Head { kind: None }) | Err(_) => Diagnostic::new(title),
    }
}

/// Tables that not every kind has, with the kinds that have them.
const TABLES: [(&str, &[&str]); 26] = [
    ("sm", &["gpu"]),
    ("l2", &["gpu"]),
    ("gemm", &["gpu"]),
    ("attention", &["gpu"]),
    ("block_sparse", &["gpu"]),
    ("fusion", &["gpu"]),
    ("cluster", &["gpu"]),
    ("grid", &["rdu"]),
    ("pcu", &["rdu"]),
    ("pmu", &["rdu"]),
    ("network", &["rdu"]),
    ("ag", &["rdu"]),
    ("area", &["rdu"]),
    ("vendor", &["rdu"]),
    ("launch", &["rdu", "gpu"]),
    ("tile", &["bsp"]),
    ("exchange", &["bsp"]),
    ("links", &["bsp"]),
    ("program", &["bsp", "systolic", "wafer"]),
    ("planner", &["bsp"]),
    ("array", &["systolic"]),
    ("vector", &["systolic"]),
    ("buffer", &["systolic"]),
    ("core", &["wafer"]),
    ("fabric", &["wafer"]),
    ("stream", &["wafer"]),
];

/// The kind of a file; refuses tables of another.
pub(super) fn of(source: &Source) -> Result<Kind, Diagnostic> {
    let head: Head = source.read()?;
    let kind = match &head.kind {
        Some(word) if word.get_ref() == "system" => {
            let title = "this needs a chip: the file describes a system of chips";
            let help = "`pod`, `check` and `validate --data` take a system";
            return Err(source
                .error(word.span(), title, "expected \"rdu\", \"gpu\", \"bsp\", \"systolic\" or \"wafer\"")
                .with_help(help));
        }
        Some(word) => match source.keyword("kind", word, &KINDS)? {
            0 => Kind::Rdu,
            1 => Kind::Gpu(word.span()),
            2 => Kind::Bsp(word.span()),
            3 => Kind::Systolic(word.span()),
            _ => Kind::Wafer(word.span()),
        },
        None => Kind::Rdu,
    };
    let name = match kind {
        Kind::Rdu => "rdu",
        Kind::Gpu(_) => "gpu",
        Kind::Bsp(_) => "bsp",
        Kind::Systolic(_) => "systolic",
        Kind::Wafer(_) => "wafer",
    };
    let keys: IndexMap<Spanned<String>, IgnoredAny> = source.read()?;
    let owners =
        |key: &Spanned<String>| TABLES.iter().find(|(table, _)| table == key.get_ref()).map(|(_, kinds)| *kinds);
    let foreign =
        keys.keys().filter_map(|key| owners(key).filter(|kinds| !kinds.contains(&name)).map(|kinds| (key, kinds)));
    let Some((key, kinds)) = foreign.min_by_key(|(key, _)| key.span().start) else { return Ok(kind) };
    let other = kinds.iter().map(|kind| format!("{kind:?}")).collect::<Vec<_>>().join(" or ");
    let title = format!("`{}` belongs to a file with kind = {other}, this one has kind = {name:?}", key.get_ref());
    let help = format!(
        "remove `{}`, or write a file of the other kind (docs/arch-format.md, docs/gpu.md, docs/ipu.md, docs/systolic.md, docs/wafer.md)",
        key.get_ref()
    );
    Err(source.error(key.span(), title, "of another kind of chip").with_help(help))
}
