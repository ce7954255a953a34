//! The masks of a workload's weights: drawn or read, and how each is stored.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::IndexMap;

use super::TensorRole;
use super::declare::{Draft, Shape};
use super::sparsity::{Distribution, MaskOrigin, Sparsity, Spread};
use crate::sparsity::read::{FileKind, MatrixRequest, read_mask};
use crate::sparsity::{ActiveNeurons, BlockMask, MOST_NEURONS, NeuronAxis, Pattern, erk_densities, smallest, storage};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::{Source, open, suggest};

/// Bits that all masks of a workload may take together (256 MiB).
const MAX_MASK_BITS: u128 = 1 << 31;

/// Draws and reads masks, and keeps count of the memory they take.
pub(super) struct MaskMaker<'a> {
    source: &'a Source,
    seed: u64,
    bits: u128,
    /// The active neurons of each name: their weight, how many, and how they are drawn.
    active: IndexMap<String, (String, u64, ActiveNeurons, u64)>,
}

impl<'a> MaskMaker<'a> {
    /// `seed` is the run's: another one draws other masks from the same file.
    pub(super) fn new(source: &'a Source, seed: u64) -> Self {
        Self { source, seed, bits: 0, active: IndexMap::new() }
    }

    /// The mask of a weight, of elements of `element_bytes`.
    pub(super) fn mask(
        &mut self,
        name: &str,
        shape: Shape,
        element_bytes: u64,
        sparsity: &Sparsity,
    ) -> Result<Arc<BlockMask>, Diagnostic> {
        let (rows, columns) = shape;
        let block = match &sparsity.origin {
            MaskOrigin::Active { axis, .. } => axis.block(shape),
            MaskOrigin::Drawn { .. } | MaskOrigin::File { .. } => sparsity.block,
        };
        let block_rows = u128::from(rows.div_ceil(block.0));
        let block_columns = u128::from(columns.div_ceil(block.1));
        self.bits += block_rows.next_multiple_of(64) * block_columns;
        if self.bits > MAX_MASK_BITS {
            let title = format!(
                "the mask of {name:?} has {block_rows} x {block_columns} blocks: with it the masks of this workload \
                 take more than 2^31 bits"
            );
            let error = self.source.error(sparsity.block_span.clone(), title, "too many blocks");
            return Err(error.with_help("use larger blocks"));
        }
        if let MaskOrigin::Active { axis, .. } = sparsity.origin {
            return self.active(name, axis, shape, sparsity).map(Arc::new);
        }
        let blocks = (block_rows * block_columns) as f64;
        if let Some((density, span)) = sparsity.density.clone().filter(|(density, _)| (density * blocks).round() < 1.0)
        {
            let title = format!("`tensors.{name}.sparsity.density` = {density} keeps none of {blocks} blocks");
            return Err(self.source.error(span, title, "expected to keep at least one"));
        }
        let mask = match &sparsity.origin {
            MaskOrigin::Drawn { pattern, seed } => {
                pattern.draw(rows, columns, sparsity.block, mix(self.seed, *seed, name))
            }
            MaskOrigin::File { .. } | MaskOrigin::Active { .. } => self.read(name, (rows, columns), sparsity)?,
        };
        let storage = match &sparsity.format {
            None => smallest(&mask, element_bytes),
            Some((format, span)) => storage(&mask, *format).ok_or_else(|| {
                let title = format!("{name:?} cannot be stored as {:?}", format.name());
                let why = "no group length of 4, 8 or 16 along K leaves a place free in every group";
                self.source.error(span.clone(), title, why).with_help("leave the format out: the smallest is chosen")
            })?,
        };
        Ok(Arc::new(mask.stored_as(storage)))
    }

    /// The mask of a weight that is read as far as the active neurons of some tokens need it. Weights that name the same neurons
    /// must mean the same, so that their masks agree.
    fn active(
        &mut self,
        name: &str,
        axis: NeuronAxis,
        shape: Shape,
        sparsity: &Sparsity,
    ) -> Result<BlockMask, Diagnostic> {
        let MaskOrigin::Active { active, seed, neurons: group, span, .. } = &sparsity.origin else {
            return Ok(BlockMask::empty(shape.0, shape.1, sparsity.block));
        };
        let (neurons, _) = axis.of(shape.0, shape.1);
        let refused = |title: String, label: String| Err(self.source.error(span.clone(), title, label));
        if neurons > MOST_NEURONS {
            let title = format!("`tensors.{name}.sparsity`: {name:?} has {neurons} neurons");
            return refused(title, format!("expected at most {MOST_NEURONS}"));
        }
        if active.of_a_token(neurons) == 0 {
            let title =
                format!("`tensors.{name}.sparsity.density` = {} activates none of {neurons} neurons", active.density);
            return refused(title, "expected at least one for each token".to_owned());
        }
        let drawn = group.as_deref().unwrap_or(name);
        if let Some(group) = group {
            let own = (name.to_owned(), neurons, *active, *seed);
            let known = self.active.entry(group.clone()).or_insert_with(|| own.clone());
            if (known.1, known.2, known.3) != (own.1, own.2, own.3) {
                let of = |(_, neurons, active, seed): &(String, u64, ActiveNeurons, u64)| {
                    let ActiveNeurons { density, tokens, shared } = active;
                    format!("{neurons} neurons, density {density}, tokens {tokens}, shared {shared}, seed {seed}")
                };
                let title = format!("{:?} and {name:?} have the neurons {group:?}, and draw them in two ways", known.0);
                let label = format!("found {}; expected {}, as {:?} has", of(&own), of(known), known.0);
                return refused(title, label);
            }
        }
        Ok(active.mask(axis, shape, mix(self.seed, *seed, drawn)))
    }

    fn read(&self, name: &str, shape: Shape, sparsity: &Sparsity) -> Result<BlockMask, Diagnostic> {
        let MaskOrigin::File { path, path_span, key, transpose } = &sparsity.origin else {
            return Ok(BlockMask::empty(shape.0, shape.1, sparsity.block));
        };
        let field = format!("tensors.{name}.sparsity.file");
        let fail = |why: String| {
            let title = format!("`{field}`: {why}");
            self.source.error(path_span.clone(), title, "cannot be used")
        };
        let known = FileKind::ALL.map(FileKind::extension);
        let extension = Path::new(path).extension().and_then(|e| e.to_str()).unwrap_or_default();
        let kind = FileKind::of_extension(extension)
            .ok_or_else(|| fail(format!("{path:?} ends in none of .{}", known.join(", ."))))?;
        let file = open(&self.beside(path)).map_err(|why| fail(format!("{path:?} {why}")))?;
        let density = sparsity.density.as_ref().map(|(density, _)| *density);
        let wanted = MatrixRequest {
            key: key.as_deref(),
            shape: Some(shape),
            block: sparsity.block,
            density,
            transpose: *transpose,
        };
        read_mask(kind, file, &wanted).map_err(|error| fail(format!("{path:?}: {error}")))
    }

    /// A path as it is meant in the workload file: from the directory of that file.
    fn beside(&self, path: &str) -> PathBuf {
        Path::new(self.source.file()).parent().unwrap_or(Path::new("")).join(path)
    }
}

/// Gives the weights that `[sparsity]` covers their part of it; those with a sparsity of their own keep that.
pub(super) fn distribute(
    source: &Source,
    distribution: &Distribution,
    drafts: &mut IndexMap<String, Draft>,
    shapes: &[Shape],
    takes_masks: &[bool],
    second_inputs: &[bool],
) -> Result<(), Diagnostic> {
    let can_be_sparse = |at: usize, draft: &Draft| {
        let weight = draft.role.as_ref().is_some_and(|(role, _)| *role == TensorRole::Weight);
        weight && second_inputs[at] && draft.consumers.iter().all(|&op| takes_masks[op])
    };
    let mut covered = Vec::new();
    match &distribution.tensors {
        None => {
            let open = |(at, draft): &(usize, &Draft)| draft.sparsity.is_none() && can_be_sparse(*at, draft);
            covered.extend(drafts.values().enumerate().filter(open).map(|(at, _)| at));
        }
        Some(names) => {
            for (name, span) in names {
                let Some((at, _, draft)) = drafts.get_full(name.as_str()) else {
                    let known: Vec<&str> = drafts.keys().map(String::as_str).collect();
                    let title = format!("`sparsity.tensors` names {name:?}, which is no tensor");
                    return Err(suggest(source.error(span.clone(), title, "no such tensor"), name, &known));
                };
                if draft.sparsity.is_some() || covered.contains(&at) || !can_be_sparse(at, draft) {
                    let title = format!("`sparsity.tensors` names {name:?}, which cannot take a part of it");
                    let label = "expected the second input of `gemm`s, a weight without a sparsity of its own, once";
                    return Err(source.error(span.clone(), title, label));
                }
                covered.push(at);
            }
        }
    }
    if covered.is_empty() {
        let title = "`sparsity` covers no weight";
        return Err(source.error(distribution.span.clone(), title, "no weight of a `gemm` is left for it"));
    }
    let layers: Vec<Shape> = covered.iter().map(|&at| shapes[at]).collect();
    let densities = match distribution.spread {
        Spread::Uniform => vec![distribution.density; layers.len()],
        Spread::Erk => erk_densities(&layers, distribution.density),
    };
    for (at, density) in covered.into_iter().zip(densities) {
        let mut part = distribution.template.clone();
        if let MaskOrigin::Drawn { pattern, .. } = &mut part.origin {
            *pattern = Pattern::Random { density };
        }
        part.density = part.density.map(|(_, span)| (density, span));
        drafts[at].sparsity = Some(part);
    }
    Ok(())
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
