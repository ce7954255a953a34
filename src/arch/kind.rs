//! What kind of chip a file describes, and tables that belong to another kind.

use std::ops::Range;

use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use crate::diagnostics::Diagnostic;
use crate::input::Source;

/// The kind of a file.
pub(super) enum Kind {
    /// No `kind`, or `"rdu"`.
    Rdu,
    /// `"gpu"`, and where it says so.
    Gpu(Range<usize>),
}

#[derive(Deserialize)]
struct Head {
    kind: Option<Spanned<String>>,
}

/// Tables that only one kind has.
const OF_GPU: [&str; 7] = ["sm", "l2", "gemm", "attention", "block_sparse", "fusion", "cluster"];
const OF_RDU: [&str; 7] = ["grid", "pcu", "pmu", "network", "ag", "area", "vendor"];

/// The kind of a file; refuses tables of the other.
pub(super) fn of(source: &Source) -> Result<Kind, Diagnostic> {
    let head: Head = source.read()?;
    let kind = match &head.kind {
        Some(word) if word.get_ref() == "system" => {
            let title = "this needs a chip: the file describes a system of chips";
            let help = "`pod`, `check` and `validate --data` take a system";
            return Err(source.error(word.span(), title, "expected \"rdu\" or \"gpu\"").with_help(help));
        }
        Some(word) if source.keyword("kind", word, &["rdu", "gpu"])? == 1 => Kind::Gpu(word.span()),
        _ => Kind::Rdu,
    };
    let (name, foreign, other) = match kind {
        Kind::Rdu => ("rdu", OF_GPU, "gpu"),
        Kind::Gpu(_) => ("gpu", OF_RDU, "rdu"),
    };
    let keys: IndexMap<Spanned<String>, IgnoredAny> = source.read()?;
    let foreign = keys.keys().filter(|key| foreign.contains(&key.get_ref().as_str()));
    let Some(key) = foreign.min_by_key(|key| key.span().start) else { return Ok(kind) };
    let title = format!("`{}` belongs to a file with kind = {other:?}, this one has kind = {name:?}", key.get_ref());
    let help =
        format!("remove `{}`, or write a file of the other kind (docs/arch-format.md, docs/gpu.md)", key.get_ref());
    Err(source.error(key.span(), title, "of another kind of chip").with_help(help))
}
