//! A mask to be looked over: drawn from a pattern, read from a file, or that of a weight.

use std::fmt::Write;
use std::path::Path;

use crate::diagnostics::{Diagnostic, number};
use crate::input;
use crate::report::MaskReport;
use crate::sparsity::read::{FileKind, MOST_MASK_BITS, MatrixRequest, read_mask};
use crate::sparsity::{BlockMask, MOST_GROUP, Pattern};
use crate::units::Dtype;
use crate::workload::{Tensor, Workload};

/// Edge of the blocks that are counted where a mask has none of its own.
const LOOKED_AT: u64 = 16;

const PATTERNS: &str = "`unstructured`, `block`, `banded`, `row_skewed`, `column_skewed`, or N:M such as `2:4`";

/// Which mask is wanted.
#[derive(Debug)]
pub struct MaskRequest<'a> {
    /// A pattern, the path of a file, or what the workload is called.
    pub source: &'a str,
    /// The workload, if the mask is that of a weight.
    pub workload: Option<&'a Workload>,
    /// Array, tensor or weight of a source with several.
    pub key: Option<&'a str>,
    /// Rows (K) and columns (N); of a file, what they must be.
    pub shape: Option<(u64, u64)>,
    /// Rows and columns of a block.
    pub block: Option<(u64, u64)>,
    /// Share of the blocks that is kept; of a file, those of the largest magnitudes.
    pub density: Option<f64>,
    /// Exponent of the power law of skewed patterns.
    pub exponent: f64,
    /// Whether the file has columns where the matrix has rows.
    pub transpose: bool,
    /// Type of the values; a weight has its own.
    pub dtype: Dtype,
    /// Seed of random masks.
    pub seed: u64,
}

/// A mask and where it is from.
#[derive(Debug)]
pub struct FoundMask {
    source: String,
    mask: BlockMask,
    dtype: Dtype,
}

impl FoundMask {
    /// Its numbers, with the work spread over `pcus`.
    pub fn report(&self, pcus: u64) -> MaskReport<'_> {
        let own = (self.mask.block_rows(), self.mask.block_columns());
        let block = if own == (1, 1) { (LOOKED_AT, LOOKED_AT) } else { own };
        MaskReport::new(&self.source, &self.mask, self.dtype, block, pcus)
    }
}

/// Reads or draws a mask.
///
/// # Errors
/// A file that holds no such matrix, a pattern without what it needs, a workload without such a weight.
pub fn mask(request: &MaskRequest<'_>) -> Result<FoundMask, Diagnostic> {
    if let Some(workload) = request.workload {
        return of_weight(request, workload);
    }
    let path = Path::new(request.source);
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let mask = match FileKind::of_extension(extension) {
        Some(kind) => of_file(request, path, kind)?,
        None => drawn(request)?,
    };
    Ok(FoundMask { source: described(request), mask, dtype: request.dtype })
}

fn of_file(request: &MaskRequest<'_>, path: &Path, kind: FileKind) -> Result<BlockMask, Diagnostic> {
    let source = request.source;
    let file = input::open(path).map_err(|why| Diagnostic::new(format!("`{source}` {why}")))?;
    let wanted = MatrixRequest {
        key: request.key,
        shape: request.shape,
        block: request.block.unwrap_or((1, 1)),
        density: request.density.map(checked_density).transpose()?,
        transpose: request.transpose,
    };
    read_mask(kind, file, &wanted).map_err(|error| Diagnostic::new(format!("`{source}`: {error}")))
}

fn of_weight(request: &MaskRequest<'_>, workload: &Workload) -> Result<FoundMask, Diagnostic> {
    let masked = |tensor: &'_ Tensor| tensor.mask.as_deref().cloned();
    let sparse: Vec<(&Tensor, BlockMask)> =
        workload.tensors.iter().filter_map(|tensor| Some((tensor, masked(tensor)?))).collect();
    let names = sparse.iter().map(|(tensor, _)| format!("`{}`", tensor.name)).collect::<Vec<_>>().join(", ");
    let refused = |why: String| Diagnostic::new(format!("`{}`: {why}", request.source));
    if sparse.is_empty() {
        return Err(refused("no weight is sparse".to_owned()));
    }
    let only = sparse.len() == 1;
    let chosen = match request.key {
        None if only => sparse.into_iter().next(),
        None => return Err(refused(format!("several weights are sparse, `--key` must say which: {names}"))),
        Some(key) => sparse.into_iter().find(|(tensor, _)| tensor.name == key),
    };
    let (tensor, mask) = chosen.ok_or_else(|| {
        refused(format!("no sparse weight is named {:?}, only {names}", request.key.unwrap_or_default()))
    })?;
    Ok(FoundMask { source: format!("{} of {}", tensor.name, request.source), mask, dtype: tensor.dtype })
}

/// The mask of a pattern.
fn drawn(request: &MaskRequest<'_>) -> Result<BlockMask, Diagnostic> {
    let word = request.source;
    let needs = |flag: &str| Diagnostic::new(format!("the pattern `{word}` needs `{flag}`"));
    let density = || request.density.ok_or_else(|| needs("--density D")).and_then(checked_density);
    let pattern = match word {
        "unstructured" | "block" => Pattern::Random { density: density()? },
        "banded" => Pattern::Banded { density: density()? },
        "row_skewed" => Pattern::RowSkewed { density: density()?, exponent: request.exponent },
        "column_skewed" => Pattern::ColumnSkewed { density: density()?, exponent: request.exponent },
        _ => group(word).ok_or_else(|| {
            Diagnostic::new(format!("`{word}` is neither a file of a mask nor a pattern")).with_help(format!(
                "name a file ending in .{} or .toml, a built-in workload, or one of {PATTERNS}",
                FileKind::ALL.map(FileKind::extension).join(", .")
            ))
        })?,
    };
    if !(0.0..=8.0).contains(&request.exponent) {
        return Err(Diagnostic::new(format!("`--exponent` must be from 0 to 8, found {}", number(request.exponent))));
    }
    let has_blocks = !matches!(pattern, Pattern::Nm { .. }) && word != "unstructured";
    let block = match request.block {
        Some(_) if !has_blocks => {
            return Err(Diagnostic::new(format!("`--block` has no meaning for the pattern `{word}`")));
        }
        None if word == "block" => return Err(needs("--block RxC")),
        block => block.unwrap_or((1, 1)),
    };
    let (rows, columns) = request.shape.ok_or_else(|| needs("--shape RxC"))?;
    let (k_blocks, n_blocks) = (u128::from(rows.div_ceil(block.0)), u128::from(columns.div_ceil(block.1)));
    if k_blocks.next_multiple_of(64) * n_blocks > MOST_MASK_BITS {
        return Err(Diagnostic::new(format!("a mask of {k_blocks} x {n_blocks} blocks takes more than 2^31 bits"))
            .with_help("use larger blocks"));
    }
    let mask = pattern.draw(rows, columns, block, request.seed);
    if mask.kept_blocks() == 0 {
        return Err(Diagnostic::new(format!("`--density` keeps none of {} blocks", k_blocks * n_blocks)));
    }
    Ok(mask)
}

/// The pattern that `N:M` names: of every M elements of a column in a row, N are kept.
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
fn described(request: &MaskRequest<'_>) -> String {
    let mut text = request.source.to_owned();
    if let Some(key) = request.key {
        let _ = write!(text, " {key}");
    }
    if let Some(density) = request.density {
        let _ = write!(text, ", density {density}");
    }
    if request.transpose {
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
