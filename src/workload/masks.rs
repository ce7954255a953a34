//! Sparsity of weights: what a file may ask for, and the masks that come of it.

use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;

use super::declare::{MAX_DIM, Shape};
use super::spec::SparsitySpec;
use crate::diagnostics::Diagnostic;
use crate::input::{Source, Table};
use crate::sparsity::BlockMask;

/// Bits that all masks of a workload may take together (256 MiB).
const MAX_MASK_BITS: u128 = 1 << 31;

/// Checked `sparsity` of a weight.
#[derive(Debug)]
pub(super) struct Sparsity {
    density: f64,
    density_span: Range<usize>,
    block: (u64, u64),
    block_span: Range<usize>,
    seed: u64,
}

/// Checks the `sparsity` of the tensor `name`.
pub(super) fn sparsity(
    source: &Source,
    name: &str,
    spec: &Spanned<Table<SparsitySpec>>,
) -> Result<Sparsity, Diagnostic> {
    let field = |key: &str| format!("tensors.{name}.sparsity.{key}");
    let spec = spec.get_ref();
    source.keyword(&field("pattern"), &spec.pattern, &["block"])?;
    let density = spec.density.get_ref().0;
    if !(density > 0.0 && density <= 1.0) {
        let title = format!("`{}` must be above 0 and at most 1, found {density}", field("density"));
        return Err(source.error(spec.density.span(), title, "expected the share of blocks that is kept"));
    }
    let [rows, columns] = spec.block.get_ref().as_slice() else {
        let title = format!("`{}` has length {}, expected 2", field("block"), spec.block.get_ref().len());
        return Err(source.error(spec.block.span(), title, "expected [rows, columns]"));
    };
    let block =
        (source.count(&field("block"), rows, 1..=MAX_DIM)?, source.count(&field("block"), columns, 1..=MAX_DIM)?);
    let seed = match &spec.seed {
        Some(seed) => source.count(&field("seed"), seed, 0..=u64::MAX)?,
        None => 0,
    };
    Ok(Sparsity { density, density_span: spec.density.span(), block, block_span: spec.block.span(), seed })
}

/// Draws masks and keeps count of the memory they take.
pub(super) struct MaskMaker<'a> {
    source: &'a Source,
    seed: u64,
    bits: u128,
}

impl<'a> MaskMaker<'a> {
    /// `seed` is the run's: another one draws other masks from the same file.
    pub(super) fn new(source: &'a Source, seed: u64) -> Self {
        Self { source, seed, bits: 0 }
    }

    /// The mask of a weight.
    pub(super) fn mask(
        &mut self,
        name: &str,
        (rows, columns): Shape,
        sparsity: &Sparsity,
    ) -> Result<Arc<BlockMask>, Diagnostic> {
        let block_rows = u128::from(rows.div_ceil(sparsity.block.0));
        let block_columns = u128::from(columns.div_ceil(sparsity.block.1));
        self.bits += block_rows.next_multiple_of(64) * block_columns;
        if self.bits > MAX_MASK_BITS {
            let title = format!(
                "the mask of {name:?} has {block_rows} x {block_columns} blocks: with it the masks of this workload \
                 take more than 2^31 bits"
            );
            let error = self.source.error(sparsity.block_span.clone(), title, "too many blocks");
            return Err(error.with_help("use larger blocks"));
        }
        let blocks = (block_rows * block_columns) as f64;
        if (sparsity.density * blocks).round() < 1.0 {
            let title =
                format!("`tensors.{name}.sparsity.density` = {} keeps none of {blocks} blocks", sparsity.density);
            return Err(self.source.error(sparsity.density_span.clone(), title, "expected to keep at least one"));
        }
        let seed = mix(self.seed, sparsity.seed, name);
        Ok(Arc::new(BlockMask::random(rows, columns, sparsity.block, sparsity.density, seed)))
    }
}

/// One seed of three: the run's, the file's and the weight's name, so that no two weights share a mask by accident.
fn mix(run: u64, file: u64, name: &str) -> u64 {
    // FNV-1a over the name, then SplitMix64's finaliser after each number.
    let name = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    [file, run].into_iter().fold(name, |state, number| finalise(state.wrapping_add(finalise(number))))
}

fn finalise(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_seed_counts() {
        let seeds = [mix(0, 0, "a"), mix(1, 0, "a"), mix(0, 1, "a"), mix(0, 0, "b"), mix(1, 1, "a")];
        for (i, a) in seeds.iter().enumerate() {
            assert!(seeds[i + 1..].iter().all(|b| a != b));
        }
        assert_eq!(mix(3, 4, "w"), mix(3, 4, "w"));
    }
}
