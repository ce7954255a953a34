//! `rdusim sparsity`: the numbers and the picture of a mask.

use std::path::Path;

use crate::analysis::{MaskRequest, mask};
use crate::input::{self, FileKind, Override};
use crate::workload;

use super::args::SparsityArgs;
use super::failure::Failure;
use super::output;
use super::values::Format;

/// Reads or draws the mask, and shows it.
pub(super) fn sparsity(args: &SparsityArgs) -> Result<(), Failure> {
    let path = Path::new(&args.source);
    let is_named = input::builtin(path).is_some_and(|file| file.kind == FileKind::Workload);
    let is_workload = is_named || path.extension().is_some_and(|extension| extension == "toml");
    let sets = args.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    let workload = if is_workload { Some(workload::load(path, &sets, args.seed)?) } else { None };
    let found = mask(&MaskRequest {
        source: &args.source,
        workload: workload.as_ref(),
        key: args.key.as_deref(),
        shape: args.shape,
        block: args.block,
        density: args.density,
        exponent: args.exponent,
        transpose: args.transpose,
        dtype: args.dtype.into(),
        seed: args.seed,
    })?;
    let shown = found.report(args.pcus);
    let text = match args.format {
        Format::Table => shown.table(),
        Format::Json | Format::Csv => shown.to_json(),
    };
    let files = if args.out.is_some() { shown.files()? } else { Vec::new() };
    let inputs: &[&Path] = if is_workload { &[path] } else { &[] };
    output::show_with_page(args.out.as_deref(), files, inputs, args.format, &text)
}
