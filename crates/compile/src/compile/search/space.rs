//! The space of a section's mappings: a point of it is a [`Choice`].

use std::collections::BTreeMap;

use crate::compile::mapping::allocate::{MemoryCycles, allocate_and_fill, worth_a_split};
use crate::compile::mapping::bases::{BaseCache, CandidateRequest, StageBases};
use crate::compile::mapping::buffers::buffers;
use crate::compile::mapping::candidates::stage_candidates;
use crate::compile::mapping::estimate::{Estimate, estimate};
use crate::compile::mapping::front::{Candidate, StageCandidates};
use crate::compile::mapping::pipeline::Pipeline;
use crate::compile::mapping::plan::{SectionPlan, deepen};
use crate::compile::mapping::residency::{LatencySlots, Residency};
use crate::compile::mapping::resolve::{Resolved, resolve};
use crate::compile::mapping::roles::StageRoles;
use crate::compile::mapping::stage_context::StageContext;
use crate::compile::params::PARAMS;
use rdusim_base::index::IndexVec;
use rdusim_cost::cost::{StageFootprint, least_memory_cycles, least_memory_cycles_of};
use rdusim_graph::arch::{Chip, TierId};
use rdusim_program::{BufferId, BufferSpec, LoopOrder, Mapping, Nest, SectionGraph, StageId, StageSpec, TiledAxis};

use super::breakpoints::{residencies_of, row_tile_sizes};

/// A point of the search: what fixes a section, before it is worked out in full.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    /// Loop nest.
    pub nest: Nest,
    /// What stays on chip.
    pub residency: Residency,
    /// Mapping of each stage.
    pub picked: IndexVec<StageId, Candidate>,
    /// Stages are as fast as PCUs allow ([`Allotment::eager`]).
    pub eager: bool,
    /// As [`SectionPlan::covers`].
    pub covers: u64,
    /// What it is expected to cost.
    pub estimate: Estimate,
}

/// What kind of choice it is: loop order, residency, private streams of activations, K split over PCUs, eager stages.
pub(crate) type Class = (LoopOrder, Residency, bool, bool, bool);

impl Choice {
    /// Its class.
    pub(crate) fn class(&self) -> Class {
        let private = self.picked.iter().any(|c| c.mapping.groups() > c.mapping.pk());
        let split = self.picked.iter().any(|c| c.mapping.pk() > 1);
        (self.nest.order, self.residency, private, split, self.eager)
    }

    /// Whether its stages are mapped as those of another.
    pub(crate) fn has_array_of(&self, other: &Self) -> bool {
        self.picked.iter().map(|candidate| candidate.mapping).eq(other.picked.iter().map(|candidate| candidate.mapping))
    }

    /// Firings of all lockstep groups: what measuring it takes grows with them.
    pub(crate) fn firings(&self) -> u64 {
        let groups: u64 = self.picked.iter().map(|candidate| candidate.mapping.groups()).sum();
        self.estimate.firings.saturating_mul(groups)
    }

    /// Works it out in full: exact work tables, and buffers from them.
    pub(crate) fn plan(&self, chip: &Chip, graph: &SectionGraph<'_>) -> SectionPlan {
        let mappings: IndexVec<StageId, Mapping> = self.picked.iter().map(|c| c.mapping).collect();
        let Resolved { roles, work, tiles, footprint } = resolve(chip, graph, &self.nest, self.residency, &mappings);
        let mut buffers = buffers(chip, graph, &self.nest, &roles, self.residency, &mappings, &footprint);
        deepen(chip, graph, &mut buffers);
        let (nest, estimate, covers) = (self.nest, self.estimate, self.covers);
        SectionPlan { nest, roles, mappings, work, tiles, buffers, estimate, covers }
    }
}

/// The best choices of each class: by estimate, and if computing took twice as long.
#[derive(Debug, Default)]
pub(super) struct BestChoices {
    pub best: BTreeMap<Class, [Choice; 2]>,
}

impl BestChoices {
    pub(super) fn offer(&mut self, choice: &Choice) {
        let [fastest, ample] = self.best.entry(choice.class()).or_insert_with(|| [choice.clone(), choice.clone()]);
        if choice.estimate.score < fastest.estimate.score {
            *fastest = choice.clone();
        }
        if choice.estimate.with_slow_computing() < ample.estimate.with_slow_computing() {
            *ample = choice.clone();
        }
    }
}

/// Which allocations of PCUs to stages are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allotment {
    /// Of the chip's PCUs, so many sixteenths.
    pub sixteenths: u64,
    /// A stage that must lie the one way or the other: rows along the lanes.
    pub turned: Option<(StageId, bool)>,
    /// Stages are made as fast as PCUs allow, though memory is slower: the first and the last row tile pass sooner.
    pub eager: bool,
}

impl Allotment {
    /// All PCUs, every stage as is best, but not much faster than memory.
    pub(crate) const ALL: Self = Self { sixteenths: 16, turned: None, eager: false };
    /// All PCUs, every stage as fast as can be.
    pub(crate) const EAGER: Self = Self { eager: true, ..Self::ALL };
}

/// What may be done with the K of a GEMM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KAxis {
    /// Every PCU has all of it.
    Whole,
    /// It may be split over PCUs.
    Split,
}

/// How a section is tiled under a cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TilingChoice {
    /// Rows of a row tile.
    pub tile_rows: u64,
    /// Which tiles are outermost.
    pub order: LoopOrder,
    /// What may be done with the K of its GEMMs.
    pub k: KAxis,
}

/// What choices have shown so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Incumbent {
    /// The fewest banks that any needs, whether it fits or not; `u64::MAX` without any.
    pub least_banks: u64,
    /// The least cycles of the slowest stage of the nest with K whole: what a split of K has to beat.
    pub slowest_cycles: u64,
    /// The least score.
    pub least_score: u64,
}

impl Default for Incumbent {
    fn default() -> Self {
        Self { least_banks: u64::MAX, slowest_cycles: u64::MAX, least_score: u64::MAX }
    }
}

impl Incumbent {
    /// The least of both.
    pub(crate) fn least(self, other: &Self) -> Self {
        Self {
            least_banks: self.least_banks.min(other.least_banks),
            slowest_cycles: self.slowest_cycles.min(other.slowest_cycles),
            least_score: self.least_score.min(other.least_score),
        }
    }
}

/// What choices are made for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SectionSearch<'a> {
    /// The chip.
    pub chip: &'a Chip,
    /// The section's operators.
    pub graph: &'a SectionGraph<'a>,
    /// Tier of each tensor.
    pub tiers: &'a [TierId],
    /// Bases of stages worked out so far.
    pub cache: &'a BaseCache,
}

impl SectionSearch<'_> {
    /// Bases of every stage under a cut.
    pub(crate) fn bases(&self, tiled_axis: Option<TiledAxis>) -> StageBases<'_> {
        StageBases::new(self.chip, self.graph, tiled_axis, self.cache)
    }

    /// Row tile sizes to try, rising.
    pub(crate) fn row_tile_sizes(&self, bases: &StageBases<'_>) -> Vec<u64> {
        row_tile_sizes(self.graph.rows, self.graph.sequences(), &bases.row_grains())
    }

    /// Every choice for a nest's cut, row tile size and order that fits. With K split over PCUs, those whose slowest stage is
    /// so much faster than any of the nest with K whole that their partial sums are worth it. False if no mapping of the nest fits, nor of
    /// one that differs in longer row tiles.
    pub(crate) fn choices(
        &self,
        bases: &StageBases<'_>,
        TilingChoice { tile_rows, order, k }: TilingChoice,
        allotments: &[Allotment],
        found: &mut Incumbent,
        mut offer: impl FnMut(Choice),
    ) -> bool {
        let (chip, graph) = (self.chip, self.graph);
        let banks = chip.pmus() * chip.pmu.banks;
        let Some(nest) = self.nest(bases.tiled_axis(), tile_rows, order) else { return true };
        let roles = StageRoles::new(graph, &nest);
        let split = k == KAxis::Split;
        // Slices of K of a gradient that is sampled have smaller copies of its operands, however fast they are.
        let copies_less = graph.stages.ids().any(|stage| graph.sampled(stage).is_some());
        if split && !bases.may_split_k() {
            return true;
        }
        if !roles.is_one_pass() || (order == LoopOrder::RowTileOuter && !self.weights_fit()) {
            return true;
        }
        // Half the time the section's tensors need off chip: faster stages would only wait.
        let memory_cycles = least_memory_cycles(chip, graph, self.tiers);
        let early = least_memory_cycles_of(chip, graph, self.tiers, |s| !roles.is_late(s));
        let memory = MemoryCycles { all: memory_cycles, early };
        let floor_cycles = memory_cycles / 2;
        let pipeline = Pipeline::new(graph, &nest, &roles);
        let at = |stage| StageContext { chip, graph, bases, nest: &nest, roles: &roles, stage };
        for private in [true, false] {
            let wanted = CandidateRequest { private, split, turned: None };
            let stages: IndexVec<StageId, StageCandidates> =
                graph.stages.ids().map(|stage| stage_candidates(&at(stage), wanted)).collect();
            // A mask may be stored in fewer bytes on more PCUs.
            let least_banks = if bases.has_masks() { 0 } else { self.least_banks(&nest, &roles, &stages) };
            if least_banks > banks {
                found.least_banks = found.least_banks.min(least_banks);
                return false;
            }
            let mut before: Vec<IndexVec<StageId, Candidate>> = Vec::new();
            for allotment in allotments {
                let turned = allotment.turned.map(|(stage, turn)| {
                    let mut stages = stages.clone();
                    stages[stage] = stage_candidates(&at(stage), CandidateRequest { turned: Some(turn), ..wanted });
                    stages
                });
                let stages = turned.as_ref().unwrap_or(&stages);
                let mut pcus = (chip.pcus() * allotment.sixteenths).div_ceil(16);
                let floor_cycles = if allotment.eager { 0 } else { floor_cycles };
                // Too slow by its work alone to be measured beside the best.
                let longest = (found.least_score as f64 * PARAMS.nests.near_best) as u64;
                if is_beyond(stages, pcus, |stage| stage.needed_of_work(longest)) {
                    continue;
                }
                while let Some(picked) = allocate_and_fill(stages, &pipeline, pcus, floor_cycles, memory) {
                    if before.contains(&picked) {
                        break;
                    }
                    let slowest = picked.iter().map(|candidate| candidate.cycles).max().unwrap_or(0);
                    if split && !copies_less && slowest >= worth_a_split(found.slowest_cycles) {
                        break;
                    }
                    if !split {
                        found.slowest_cycles = found.slowest_cycles.min(slowest);
                    }
                    let work = picked.iter().map(Candidate::worked_cycles).max().unwrap_or(0);
                    if work > longest {
                        break;
                    }
                    let eager = allotment.eager;
                    let least_score = &mut found.least_score;
                    let mut offer = |choice: Choice| {
                        *least_score = (*least_score).min(choice.estimate.score);
                        offer(Choice { eager, ..choice });
                    };
                    let needed = self.residencies(nest, &roles, &picked, &mut offer);
                    debug_assert!(needed >= least_banks, "{needed} banks suffice, {least_banks} are the bound");
                    found.least_banks = found.least_banks.min(needed);
                    before.push(picked);
                    // Every part of an array has banks of its own: fewer PCUs need fewer.
                    if needed <= banks || banks >= PARAMS.nests.ample_banks_per_pcu * chip.pcus() {
                        break;
                    }
                    pcus /= 2;
                }
            }
            // Private copies of the activations may be what does not fit, or what the links do not bear.
            if !bases.has_masks() {
                break;
            }
        }
        true
    }

    /// The nest of a cut, a row tile size and an order: a block of rows is a sequence, if sequences have weights of their own.
    /// `None` if there is none, or another says the same.
    fn nest(&self, tiled_axis: Option<TiledAxis>, tile_rows: u64, order: LoopOrder) -> Option<Nest> {
        let (graph, sequences) = (self.graph, self.graph.sequences());
        if (tiled_axis.is_none() || sequences > 1) && order == LoopOrder::RowTileOuter {
            return None;
        }
        if tiled_axis.is_some_and(|cut| cut.panels.is_some() && order == LoopOrder::RowTileOuter) {
            return None;
        }
        let row_tiles = (graph.rows / sequences).div_ceil(tile_rows);
        let nest = Nest { rows: graph.rows, tile_rows, block_tiles: row_tiles, tiled_axis, order };
        if graph.keeps_statistics(&nest) {
            return Some(nest);
        }
        (sequences == 1).then_some(Nest { block_tiles: 1, ..nest })
    }

    /// Whether any nest of a cut and order can be: no stage along the cut comes behind one that adds up over it, and the weights
    /// lie on chip where row tiles are outermost.
    pub(super) fn is_possible(&self, tiled_axis: Option<TiledAxis>, order: LoopOrder) -> bool {
        self.nest(tiled_axis, 1, order).is_some_and(|nest| {
            StageRoles::new(self.graph, &nest).is_one_pass() && (order != LoopOrder::RowTileOuter || self.weights_fit())
        })
    }

    fn weights_fit(&self) -> bool {
        let from_off_chip = |stage: &StageSpec| stage.weight.filter(|_| stage.sequence.is_none());
        let stored =
            |stage: &StageSpec| from_off_chip(stage).map_or(0, |w| self.graph.workload.tensors[w].stored_bytes());
        self.graph.stages.iter().map(stored).sum::<u64>() <= self.chip.sram_bytes()
    }

    /// Offers what may stay on chip with a nest and allocation, as far as it fits; the fewest banks that one needs.
    pub(crate) fn residencies(
        &self,
        nest: Nest,
        roles: &StageRoles,
        picked: &IndexVec<StageId, Candidate>,
        offer: &mut impl FnMut(Choice),
    ) -> u64 {
        let mappings: IndexVec<StageId, Mapping> = picked.iter().map(|c| c.mapping).collect();
        let footprint: IndexVec<StageId, StageFootprint> = picked.iter().map(|c| c.footprint).collect();
        let choices = residencies_of(&nest);
        // A stage that is off the cut has the time of all column tiles in any case.
        let again = roles.recomputing(self.graph, &nest).map(|again| {
            let in_every_column_tile = |(candidate, &again): (&Candidate, &bool)| {
                let duty_factor = if again { 1 } else { candidate.duty_factor };
                Candidate { duty_factor, ..*candidate }
            };
            let picked: IndexVec<StageId, Candidate> =
                picked.iter().zip(&again.recomputed).map(in_every_column_tile).collect();
            (again, picked)
        });
        let mut least_banks = u64::MAX;
        let most = self.chip.pmus() * self.chip.pmu.banks;
        // Less room for what memory moves in its latency, only where all of it does not fit.
        let mut wanted: Vec<Residency> = choices
            .iter()
            .map(|&(inputs, weights)| Residency {
                inputs,
                weights,
                latency_slots: LatencySlots::Full,
                recompute: false,
            })
            .collect();
        wanted.extend(again.as_ref().map(|_| Residency {
            inputs: false,
            weights: false,
            latency_slots: LatencySlots::Full,
            recompute: true,
        }));
        let mut next = 0;
        while let Some(&residency) = wanted.get(next) {
            next += 1;
            let (roles, picked) = match &again {
                Some((roles, picked)) if residency.recompute => (roles, picked),
                _ => (roles, picked),
            };
            let make = |block_tiles: u64| {
                let nest = Nest { block_tiles, ..nest };
                (nest, buffers(self.chip, self.graph, &nest, roles, residency, &mappings, &footprint))
            };
            let banks = |list: &IndexVec<BufferId, BufferSpec>| {
                list.iter().fold(0u64, |sum, b| sum.saturating_add(b.total_banks(self.chip)))
            };
            let (mut nest, mut list) = make(nest.block_tiles);
            if banks(&list) > most {
                let less = match residency.latency_slots {
                    LatencySlots::Full => Some(LatencySlots::Quarter),
                    LatencySlots::Quarter => Some(LatencySlots::None),
                    LatencySlots::None => None,
                };
                wanted.extend(less.map(|latency_slots| Residency { latency_slots, ..residency }));
            }
            if banks(&list) > most && nest.order == LoopOrder::ColumnTileOuter && nest.column_tiles() > 1 {
                let fits = longest_block(nest.block_tiles, most, |block_tiles| banks(&make(block_tiles).1));
                // Blocks of equal length.
                let blocks = nest.row_tiles().div_ceil(fits);
                (nest, list) = make(nest.row_tiles().div_ceil(blocks));
            }
            let needed = banks(&list);
            least_banks = least_banks.min(needed);
            if needed > most {
                continue;
            }
            let mut estimate = estimate(self.chip, self.graph, &nest, &list, roles, picked, self.tiers);
            if let Some(slots) = residency.latency_slots.slots() {
                let latency = |tier| self.chip.tier_latency_cycles(tier);
                estimate = estimate.with_slots(self.chip.memory.ids().map(latency).max().unwrap_or(0), slots);
            }
            let picked = picked.clone();
            offer(Choice { nest, residency, picked, eager: false, covers: PARAMS.mapping.generator_cover, estimate });
        }
        least_banks
    }
}

/// The most row tiles of a block, of fewer than `exceeds`, that take at most `most` banks; 1 if none does. Banks rise about evenly
/// with row tiles, so that the next guess lies where a straight line meets `most` (regula falsi), every other time in the middle.
fn longest_block(mut exceeds: u64, most: u64, banks: impl Fn(u64) -> u64) -> u64 {
    let (mut fits, mut least) = (1, banks(1));
    if least > most || exceeds <= 2 {
        return 1;
    }
    let mut needed = banks(exceeds);
    let mut halves = false;
    while exceeds - fits > 1 {
        let on_line = u128::from(exceeds - fits) * u128::from(most - least) / u128::from((needed - least).max(1));
        let step = if halves { (exceeds - fits) / 2 } else { on_line as u64 };
        let guess = fits + step.clamp(1, exceeds - fits - 1);
        halves = !halves;
        let of_guess = banks(guess);
        if of_guess <= most {
            (fits, least) = (guess, of_guess);
        } else {
            (exceeds, needed) = (guess, of_guess);
        }
    }
    fits
}

/// Whether stages that may each take the cycles that it `needs` take more than so many PCUs.
fn is_beyond(stages: &IndexVec<StageId, StageCandidates>, pcus: u64, needs: impl Fn(&StageCandidates) -> u64) -> bool {
    let fewest = stages.iter().map(|stage| stage.fewest_pcus(needs(stage)));
    fewest.sum::<Option<u64>>().is_none_or(|fewest| fewest > pcus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_longest_block_is_the_last_that_fits(
            exceeds in 2u64..100_000, fixed in 0u64..50, each in 1u64..40, grain in 1u64..200, most in 1u64..5_000,
        ) {
            let banks = |tiles: u64| fixed + each * tiles.div_ceil(grain);
            prop_assume!(banks(exceeds) > most);
            let found = longest_block(exceeds, most, banks);
            prop_assert!(found == 1 || banks(found) <= most);
            prop_assert!(found + 1 >= exceeds || banks(found + 1) > most);
        }
    }
}
