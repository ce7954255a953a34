//! `rdusim sparsity`: the numbers and the picture of a mask.

use std::fmt::Write;
use std::path::Path;

use crate::diagnostics::{Diagnostic, number};
use crate::input::{self, Override};
use crate::report::{self, MaskReport};
use crate::sparsity::read::{FileKind, MOST_MASK_BITS, MatrixRequest, read_mask};
use crate::sparsity::{BlockMask, MOST_GROUP, Pattern};
use crate::units::Dtype;
use crate::workload;

use super::args::SparsityArgs;
use super::failure::Failure;
use super::output;
use super::values::Format;

/// Edge of the blocks that are counted where a mask has none of its own.
const LOOKED_AT: u64 = 16;

const PATTERNS: &str = "`unstructured`, `block`, `banded`, `row_skewed`, `column_skewed`, or N:M such as `2:4`";

/// Reads or draws the mask, and shows it.
pub(super) fn sparsity(args: &SparsityArgs) -> Result<(), Failure> {
    let source = args.source.as_str();
    let extension = Path::new(source).extension().and_then(|e| e.to_str()).unwrap_or_default();
    let dtype = args.dtype.into();
    let refused = |why: String| Diagnostic::new(format!("`{source}`: {why}"));
    let (name, mask, dtype) = if extension == "toml" {
        of_workload(args).map_err(Failure::from)?
    } else if let Some(kind) = FileKind::of_extension(extension) {
        let file = input::open(Path::new(source)).map_err(|why| Diagnostic::new(format!("`{source}` {why}")))?;
        let density = args.density.map(checked_density).transpose()?;
        let block = args.block.unwrap_or((1, 1));
        let wanted =
            MatrixRequest { key: args.key.as_deref(), shape: args.shape, block, density, transpose: args.transpose };
        let mask = read_mask(kind, file, &wanted).map_err(|error| refused(error.to_string()))?;
        (described(args), mask, dtype)
    } else {
        (described(args), drawn(args)?, dtype)
    };
    let own = (mask.block_rows(), mask.block_columns());
    let block = if own == (1, 1) { (LOOKED_AT, LOOKED_AT) } else { own };
    let shown = MaskReport::new(&name, &mask, dtype, block, args.pcus);
    let text = match args.format {
        Format::Table => shown.table(),
        Format::Json | Format::Csv => shown.to_json(),
    };
    if let Some(directory) = &args.out {
        report::write(directory, &shown.files()?)?;
    }
    output::print_as(args.format, &text)
}

/// The mask of a weight of a workload file.
fn of_workload(args: &SparsityArgs) -> Result<(String, BlockMask, Dtype), Diagnostic> {
    let sets = args.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    let workload = workload::load(Path::new(&args.source), &sets, args.seed)?;
    let sparse: Vec<&workload::Tensor> = workload.tensors.iter().filter(|tensor| tensor.mask.is_some()).collect();
    let names = sparse.iter().map(|tensor| format!("`{}`", tensor.name)).collect::<Vec<_>>().join(", ");
    let refused = |why: String| Err(Diagnostic::new(format!("`{}`: {why}", args.source)));
    let chosen = match (&args.key, sparse.as_slice()) {
        (_, []) => return refused("no weight is sparse".to_owned()),
        (None, [only]) => only,
        (None, _) => return refused(format!("several weights are sparse, `--key` must say which: {names}")),
        (Some(key), _) => match sparse.iter().find(|tensor| tensor.name == *key) {
            Some(tensor) => tensor,
            None => return refused(format!("no sparse weight is named {key:?}, only {names}")),
        },
    };
    let mask = chosen.mask.as_deref().cloned().unwrap_or_else(|| BlockMask::empty(1, 1, (1, 1)));
    Ok((format!("{} of {}", chosen.name, args.source), mask, chosen.dtype))
}

/// The mask of a pattern.
fn drawn(args: &SparsityArgs) -> Result<BlockMask, Diagnostic> {
    let word = args.source.as_str();
    let needs = |flag: &str| Diagnostic::new(format!("the pattern `{word}` needs `{flag}`"));
    let density = || args.density.ok_or_else(|| needs("--density D")).and_then(checked_density);
    let pattern = match word {
        "unstructured" | "block" => Pattern::Random { density: density()? },
        "banded" => Pattern::Banded { density: density()? },
        "row_skewed" => Pattern::RowSkewed { density: density()?, exponent: args.exponent },
        "column_skewed" => Pattern::ColumnSkewed { density: density()?, exponent: args.exponent },
        _ => group(word).ok_or_else(|| {
            Diagnostic::new(format!("`{word}` is neither a file of a mask nor a pattern")).with_help(format!(
                "name a file ending in .{} or .toml, or one of {PATTERNS}",
                FileKind::ALL.map(FileKind::extension).join(", .")
            ))
        })?,
    };
    if !(0.0..=8.0).contains(&args.exponent) {
        return Err(Diagnostic::new(format!("`--exponent` must be from 0 to 8, found {}", number(args.exponent))));
    }
    let has_blocks = !matches!(pattern, Pattern::Nm { .. }) && word != "unstructured";
    let block = match args.block {
        Some(_) if !has_blocks => {
            return Err(Diagnostic::new(format!("`--block` has no meaning for the pattern `{word}`")));
        }
        None if word == "block" => return Err(needs("--block RxC")),
        block => block.unwrap_or((1, 1)),
    };
    let (rows, columns) = args.shape.ok_or_else(|| needs("--shape RxC"))?;
    let (k_blocks, n_blocks) = (u128::from(rows.div_ceil(block.0)), u128::from(columns.div_ceil(block.1)));
    if k_blocks.next_multiple_of(64) * n_blocks > MOST_MASK_BITS {
        return Err(Diagnostic::new(format!("a mask of {k_blocks} x {n_blocks} blocks takes more than 2^31 bits"))
            .with_help("use larger blocks"));
    }
    let mask = pattern.draw(rows, columns, block, args.seed);
    if mask.kept_blocks() == 0 {
        return Err(Diagnostic::new(format!("`--density` keeps none of {} blocks", k_blocks * n_blocks)));
    }
    Ok(mask)
}

/// `N:M`.
fn group(word: &str) -> Option<Pattern> {
    let (n, m) = word.split_once(':')?;
    let (n, m) = (n.parse().ok()?, m.parse().ok()?);
    ((1..=m).contains(&n) && m <= MOST_GROUP).then_some(Pattern::Nm { n, m })
}

fn checked_density(density: f64) -> Result<f64, Diagnostic> {
    if density > 0.0 && density <= 1.0 {
        return Ok(density);
    }
    Err(Diagnostic::new(format!("`--density` must be above 0 and at most 1, found {}", number(density))))
}

/// Where the mask is from, in words.
fn described(args: &SparsityArgs) -> String {
    let mut text = args.source.clone();
    if let Some(key) = &args.key {
        let _ = write!(text, " {key}");
    }
    if let Some(density) = args.density {
        let _ = write!(text, ", density {density}");
    }
    if args.transpose {
        text.push_str(", transposed");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read() {
        assert_eq!(group("2:4"), Some(Pattern::Nm { n: 2, m: 4 }));
        for wrong in ["", "2", "2:", ":4", "0:4", "5:4", "2:65", "a:b"] {
            assert_eq!(group(wrong), None, "{wrong}");
        }
    }
}
