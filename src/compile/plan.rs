//! The search for a section's loop nest, tiles and unit allocation.
//!
//! Every combination of token size, cut axis, chunk width, loop order and residency is given its best allocation of
//! PCUs to stages and costed in closed form; the cheapest that fits is kept.

use rayon::prelude::*;

use crate::arch::{Chip, TierId};
use crate::index::Id;
use crate::units::Dtype;

use super::allocate::{Candidate, StageCandidates, allocate, chain};
use super::buffers::{BufferRole, BufferSpec, Residency, StageExtents, StageRoles, buffers};
use super::candidates::{BaseCache, StageBases, stage_candidates};
use super::estimate::{Estimate, estimate};
use super::exact::{Exact, exact};
use super::mapping::{Mapping, PassWork};
use super::nest::{Chunking, LoopOrder, Nest};
use super::section_graph::SectionGraph;

/// A section's choices before units have places.
#[derive(Debug, Clone)]
pub struct SectionPlan {
    /// Loop nest.
    pub nest: Nest,
    /// Part each stage plays in it.
    pub roles: StageRoles,
    /// Mapping of each stage.
    pub mappings: Vec<Mapping>,
    /// Work of each GEMM stage, `[chunk][bundle]`; empty for SIMD stages.
    pub work: Vec<Vec<Vec<PassWork>>>,
    /// Buffers.
    pub buffers: Vec<BufferSpec>,
    /// Estimated cycles and traffic.
    pub estimate: Estimate,
}

/// Why no plan was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlan {
    /// The chip cannot compute in a stage's data type.
    Dtype(Dtype),
    /// The smallest plan needs this many PMU bytes.
    Sram(u64),
    /// The smallest plan needs this many PCUs.
    Pcus(u64),
}

/// Plans kept for placement to choose from, at most.
const KEPT: usize = 2;
/// Plans that score this much worse than the best are not kept.
const NEAR: f64 = 1.08;

/// Finds the best plans of a section, best first: each is the best of another cut, and all are near the first.
/// `tiers` is the home of each tensor.
pub fn plan(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    tiers: &[TierId],
    cache: &BaseCache,
) -> Result<Vec<SectionPlan>, NoPlan> {
    for stage in 0..graph.stages.len() {
        let dtype = graph.stage_dtype(stage);
        if chip.macs_per_cycle(dtype).is_none() {
            return Err(NoPlan::Dtype(dtype));
        }
    }
    // Very small chunks only where nothing larger fits.
    let mut least_banks = u64::MAX;
    for counts in [&FEW_CHUNKS[..], &MANY_CHUNKS[..]] {
        let found: Vec<Search<'_>> = chunkings(chip, graph, counts)
            .into_par_iter()
            .map(|chunking| {
                let mut search =
                    Search { chip, graph, tiers, cache, best: None, best_shared: None, least_banks: u64::MAX };
                search.try_chunking(chunking);
                search
            })
            .collect();
        least_banks = found.iter().map(|s| s.least_banks).fold(least_banks, u64::min);
        let all_shared = || found.iter().filter_map(|s| s.best_shared.as_ref());
        let shared = all_shared().min_by_key(|best| best.estimate.score).cloned();
        let mut bests: Vec<Best> = found.into_iter().filter_map(|s| s.best).collect();
        // Stable: of equals the first cut stays first, whatever the threads did.
        bests.sort_by_key(|best| best.estimate.score);
        if let Some(first) = bests.first() {
            let most = first.estimate.score as f64 * NEAR;
            bests.retain(|best| best.estimate.score as f64 <= most);
            bests.truncate(KEPT);
            // Dense work on shared streams is what skipping and gathering must beat, and not only by estimate.
            bests.extend(shared.filter(|shared| bests.iter().all(|best| best.picked != shared.picked)));
            return Ok(bests.iter().map(|best| search_result(chip, graph, best)).collect());
        }
    }
    if least_banks == u64::MAX {
        let least = (0..graph.stages.len())
            .map(|s| if graph.stages[s].weight.is_some() { 1 } else { chain(chip, graph.kind(s)) })
            .sum();
        return Err(NoPlan::Pcus(least));
    }
    Err(NoPlan::Sram(least_banks.saturating_mul(chip.pmu.bank_bytes())))
}

/// Numbers of chunks to try (1: no cut).
const FEW_CHUNKS: [u64; 14] = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48];
/// Numbers of chunks to try when larger ones do not fit.
const MANY_CHUNKS: [u64; 10] = [64, 96, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];

/// Cuts to try: every chunkable axis in about these many chunks.
fn chunkings(chip: &Chip, graph: &SectionGraph<'_>, counts: &[u64]) -> Vec<Option<Chunking>> {
    let lanes = chip.pcu.lanes.values().max().copied().unwrap_or(1);
    let mut list = Vec::new();
    if counts.contains(&1) {
        list.push(None);
    }
    if graph.sequences() > 1 {
        // Weights of a sequence come once a block, whole.
        return list;
    }
    for (index, axis) in graph.axes.iter().enumerate() {
        let grain = if axis.grain >= lanes { axis.grain } else { axis.grain * lanes.div_ceil(axis.grain) };
        let mut last = axis.extent;
        for &count in counts {
            let width = axis.extent.div_ceil(count).next_multiple_of(grain);
            if width < last {
                list.push(Some(Chunking { axis: index, extent: axis.extent, width }));
                last = width;
            }
        }
    }
    list
}

/// Most rows of a token: beyond, a token is no longer a small part of anything.
const MOST_TOKEN_ROWS: u64 = 16 * 1024;

/// Token sizes to try: numbers of row grains that divide the rows with little padding; of sequences, divisors.
fn token_sizes(rows: u64, sequences: u64, grains: &[u64]) -> Vec<u64> {
    const LADDER: [u64; 20] = [1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 13, 16, 19, 22, 27, 32, 43, 64, 128, 256];
    let rows = rows / sequences;
    let mut sizes: Vec<u64> = Vec::new();
    for &grain in grains {
        let all = rows.div_ceil(grain);
        for m in LADDER.into_iter().filter(|&m| m < all) {
            // As many tokens, with the least padding.
            sizes.push(all.div_ceil(all.div_ceil(m)) * grain);
        }
        sizes.push(rows);
    }
    if sequences > 1 {
        sizes.extend((1..=rows.min(1024)).filter(|&size| rows.is_multiple_of(size)));
        sizes.retain(|&size| rows.is_multiple_of(size));
    }
    sizes.retain(|&size| size <= MOST_TOKEN_ROWS);
    if sizes.is_empty() {
        sizes.push(rows.min(MOST_TOKEN_ROWS));
    }
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[derive(Debug, Clone)]
struct Best {
    nest: Nest,
    residency: Residency,
    picked: Vec<Candidate>,
    estimate: Estimate,
}

#[derive(Debug)]
struct Search<'a> {
    chip: &'a Chip,
    graph: &'a SectionGraph<'a>,
    tiers: &'a [TierId],
    cache: &'a BaseCache,
    best: Option<Best>,
    /// The best with every column of PCUs on one stream of activations, where weights are sparse.
    best_shared: Option<Best>,
    least_banks: u64,
}

impl Search<'_> {
    fn try_chunking(&mut self, chunking: Option<Chunking>) {
        let (chip, graph) = (self.chip, self.graph);
        let bases = StageBases::new(chip, graph, chunking, self.cache);
        let grains = bases.row_grains();
        // Half the time the section's tensors need off chip: faster stages would only wait.
        let floor_cycles = least_memory_cycles(chip, graph, self.tiers) / 2;
        let weights: u64 =
            graph.stages.iter().filter_map(|s| s.weight).map(|w| graph.workload.tensors[w].stored_bytes()).sum();
        let weights_fit = weights <= chip.sram_bytes();
        let sequences = graph.sequences();
        for token_rows in token_sizes(graph.rows, sequences, &grains) {
            // A block of rows is a sequence, if sequences have weights of their own.
            let tokens = (graph.rows / sequences).div_ceil(token_rows);
            for order in [LoopOrder::ChunkOuter, LoopOrder::TokenOuter] {
                if (chunking.is_none() || sequences > 1) && order == LoopOrder::TokenOuter {
                    continue;
                }
                let nest = Nest { rows: graph.rows, token_rows, block_tokens: tokens, chunking, order };
                let roles = StageRoles::new(graph, &nest);
                if !roles.is_one_pass() || (order == LoopOrder::TokenOuter && !weights_fit) {
                    continue;
                }
                for private in [true, false] {
                    let stages: Vec<StageCandidates> = (0..graph.stages.len())
                        .map(|s| stage_candidates(chip, graph, &bases, &nest, &roles, s, private))
                        .collect();
                    let Some(picked) = allocate(&stages, chip.pcus(), floor_cycles) else { continue };
                    self.try_residencies(nest, &roles, &picked, private);
                    // Private copies of the activations may be what does not fit, or what the links do not bear.
                    if !bases.has_masks() {
                        break;
                    }
                }
            }
        }
    }

    fn try_residencies(&mut self, nest: Nest, roles: &StageRoles, picked: &[Candidate], private: bool) {
        let mappings: Vec<Mapping> = picked.iter().map(|c| c.mapping).collect();
        let extents: Vec<StageExtents> = picked.iter().map(|c| c.extents).collect();
        let choices: &[(bool, bool)] = if nest.order == LoopOrder::ChunkOuter && nest.chunks() > 1 {
            &[(true, false), (true, true), (false, false)]
        } else {
            &[(true, true)]
        };
        for &(inputs, weights) in choices {
            let residency = Residency { inputs, weights };
            let make = |block_tokens: u64| {
                let nest = Nest { block_tokens, ..nest };
                (nest, buffers(self.chip, self.graph, &nest, roles, &residency, &mappings, &extents))
            };
            let banks =
                |list: &[BufferSpec]| list.iter().fold(0u64, |sum, b| sum.saturating_add(b.total_banks(self.chip)));
            let most = self.chip.pmus() * self.chip.pmu.banks;
            let (mut nest, mut list) = make(nest.block_tokens);
            if banks(&list) > most && nest.order == LoopOrder::ChunkOuter && nest.chunks() > 1 {
                let (mut fits, mut exceeds) = (0, nest.block_tokens);
                while exceeds - fits > 1 {
                    let middle = fits + (exceeds - fits) / 2;
                    if banks(&make(middle).1) <= most {
                        fits = middle;
                    } else {
                        exceeds = middle;
                    }
                }
                // Blocks of equal length.
                let blocks = nest.tokens().div_ceil(fits.max(1));
                (nest, list) = make(nest.tokens().div_ceil(blocks));
            }
            let needed = banks(&list);
            self.least_banks = self.least_banks.min(needed);
            if needed > most {
                continue;
            }
            let estimate = estimate(self.chip, self.graph, &nest, &list, roles, picked, self.tiers);
            let better = |best: &Option<Best>| best.as_ref().is_none_or(|b| estimate.score < b.estimate.score);
            if better(&self.best) {
                let residency = residency.clone();
                self.best = Some(Best { nest, residency, picked: picked.to_vec(), estimate });
            }
            if !private && better(&self.best_shared) {
                self.best_shared = Some(Best { nest, residency, picked: picked.to_vec(), estimate });
            }
        }
    }
}

/// Slots a stage buffer is given at most where memory is to spare.
const DEEPEST: u64 = 4;
/// Share of the banks that deeper buffers may fill.
const SPARE: f64 = 0.9;

/// Gives operand buffers of sparse stages more slots than the pipeline needs, while banks are to spare: bundles whose
/// work differs from chunk to chunk then wait less for each other.
pub(super) fn deepen(chip: &Chip, graph: &SectionGraph<'_>, buffers: &mut [BufferSpec]) {
    let most = ((chip.pmus() * chip.pmu.banks) as f64 * SPARE) as u64;
    for depth in 3..=DEEPEST {
        for i in 0..buffers.len() {
            let total: u64 = buffers.iter().map(|b| b.total_banks(chip)).sum();
            let BufferRole::Operand { stage, .. } = buffers[i].role else { continue };
            if graph.mask(stage).is_none() || buffers[i].depth >= depth {
                continue;
            }
            let deeper = BufferSpec { depth, ..buffers[i] };
            if total - buffers[i].total_banks(chip) + deeper.total_banks(chip) <= most {
                buffers[i] = deeper;
            }
        }
    }
}

/// Cycles to move every tensor that enters or leaves the section once.
pub fn least_memory_cycles(chip: &Chip, graph: &SectionGraph<'_>, tiers: &[TierId]) -> u64 {
    let mut bytes = vec![0u64; chip.memory.len()];
    let mut seen = Vec::new();
    for stage in &graph.stages {
        let inputs = stage.activations.iter().chain(&stage.weight).filter(|&&t| graph.producer(t).is_none());
        for &tensor in inputs.chain(graph.leaves_section(stage.output).then_some(&stage.output)) {
            if !seen.contains(&tensor) {
                seen.push(tensor);
                bytes[tiers[tensor.index()].index()] += graph.workload.tensors[tensor].stored_bytes();
            }
        }
    }
    let cycles = |(tier, &bytes): (usize, &u64)| chip.tier_rate(TierId::from_index(tier)).cycles_for(bytes);
    bytes.iter().enumerate().map(cycles).max().unwrap_or(0)
}

/// Works the best candidate out in full: exact work tables, and buffers from them.
fn search_result(chip: &Chip, graph: &SectionGraph<'_>, best: &Best) -> SectionPlan {
    let mappings: Vec<Mapping> = best.picked.iter().map(|c| c.mapping).collect();
    let Exact { roles, work, extents } = exact(chip, graph, &best.nest, &mappings);
    let mut buffers = buffers(chip, graph, &best.nest, &roles, &best.residency, &mappings, &extents);
    deepen(chip, graph, &mut buffers);
    SectionPlan { nest: best.nest, roles, mappings, work, buffers, estimate: best.estimate }
}
