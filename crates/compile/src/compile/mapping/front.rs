//! The useful ways to map a stage: more PCUs, fewer cycles.

use std::ops::Range;
use std::sync::Arc;

use crate::compile::params::PARAMS;
use rdusim_cost::cost::StageFootprint;
use rdusim_program::{GemmMapping, Mapping, SimdMapping};

use super::base::{Base, SumsBase};

/// One way to map a stage, and what it costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate {
    /// PCUs it takes.
    pub pcus: u64,
    /// Cycles of the whole section that this mapping needs: those its busiest PCU works, times `duty_factor`.
    pub cycles: u64,
    /// The stage works in one of this many column tiles only (its part of the section's time is so much shorter).
    pub duty_factor: u64,
    /// The mapping.
    pub mapping: Mapping,
    /// Sizes its buffers follow.
    pub footprint: StageFootprint,
}

impl Candidate {
    /// Cycles that its busiest PCU works.
    pub(crate) fn worked_cycles(&self) -> u64 {
        self.cycles / self.duty_factor
    }
}

/// What mappings of a stage are compared by: cycles, and what a split of K must gain.
#[inline]
fn weighed_cycles(cycles: u64, pk: u64) -> u64 {
    if pk == 1 { cycles } else { (cycles as f64 * (1.0 + PARAMS.mapping.worth_splitting_k)) as u64 }
}

/// What the mappings of a stage are made of: lists that all nests share, so that a mapping is a place in one.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// Column splits of a GEMM with one weight, for any number of row slices.
    Splits(Arc<Vec<Base>>),
    /// Mappings of a stage that adds up over rows.
    Sums(Arc<Vec<SumsBase>>),
    /// Mappings of any other, for any number of row slices, with the sizes of each.
    Own(Arc<[(Mapping, StageFootprint)]>),
}

impl Default for Source {
    fn default() -> Self {
        Self::Own(Arc::default())
    }
}

impl Source {
    /// A mapping with its sizes.
    fn get(&self, CandidateIndex { row_slices, of }: CandidateIndex) -> (Mapping, StageFootprint) {
        let (pm, of) = (u64::from(row_slices), of as usize);
        match self {
            Self::Splits(bases) => (Mapping::Gemm(bases[of].mapping(pm)), bases[of].footprint),
            Self::Sums(bases) => (Mapping::Gemm(bases[of].mapping), bases[of].footprint),
            Self::Own(list) => match list[of] {
                (Mapping::Gemm(mapping), footprint) => (Mapping::Gemm(GemmMapping { pm, ..mapping }), footprint),
                (Mapping::Simd(mapping), footprint) => (Mapping::Simd(SimdMapping { pm, ..mapping }), footprint),
            },
        }
    }
}

/// A mapping of a stage: its row slices, and its place in the list it is taken from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CandidateIndex {
    /// Row slices of a row tile.
    pub row_slices: u32,
    /// Place in the list.
    pub of: u32,
}

/// Cycles of the section that a mapping of a stage needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cycles {
    /// As far as its busiest PCU goes.
    pub worked: u64,
    /// As far as links let it ([`super::link_load`]): what allocations are balanced by.
    pub paced: u64,
}

impl Cycles {
    /// Of a mapping that links do not slow down.
    pub(crate) fn worked(cycles: u64) -> Self {
        Self { worked: cycles, paced: cycles }
    }
}

/// What a mapping takes.
#[derive(Debug, Clone, Copy)]
struct Offered {
    cycles: Cycles,
    pcus: u32,
    place: CandidateIndex,
}

/// The useful ways to map a stage: more PCUs, fewer cycles.
#[derive(Debug, Clone, Default)]
pub(crate) struct StageCandidates {
    list: Arc<[Offered]>,
    source: Source,
    duty_factor: u64,
}

impl StageCandidates {
    /// The place of the cheapest that needs at most `cycles`.
    pub(crate) fn cheapest(&self, cycles: u64) -> usize {
        self.list.partition_point(|offered| offered.cycles.paced > cycles)
    }

    /// The same among those at `places`; the end of them if none does.
    pub(crate) fn cheapest_of(&self, places: Range<usize>, cycles: u64) -> usize {
        places.start + self.list[places].partition_point(|offered| offered.cycles.paced > cycles)
    }

    /// The fastest candidate on at most `pcus`.
    pub(crate) fn fastest(&self, pcus: u64) -> Option<Candidate> {
        self.get(self.list.partition_point(|offered| u64::from(offered.pcus) <= pcus).checked_sub(1)?)
    }

    /// The fewest PCUs on which the stage needs at most `cycles`; `None` if it needs more on any.
    pub(crate) fn fewest_pcus(&self, cycles: u64) -> Option<u64> {
        Some(u64::from(self.list.get(self.cheapest(cycles))?.pcus))
    }

    /// Cycles of a candidate whose busiest PCU works at most `cycles`.
    pub(crate) fn needed_of_work(&self, cycles: u64) -> u64 {
        cycles.saturating_add(1).saturating_mul(self.duty_factor) - 1
    }

    /// A candidate.
    pub(crate) fn get(&self, at: usize) -> Option<Candidate> {
        let &Offered { cycles, pcus, place } = self.list.get(at)?;
        let (mapping, footprint) = self.source.get(place);
        Some(Candidate {
            pcus: u64::from(pcus),
            cycles: cycles.worked,
            duty_factor: self.duty_factor,
            mapping,
            footprint,
        })
    }

    /// Candidates.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Cycles that one needs, as far as links let it.
    pub(crate) fn cycles(&self, at: usize) -> u64 {
        self.list[at].cycles.paced
    }

    /// PCUs that one takes.
    pub(crate) fn pcus(&self, at: usize) -> u64 {
        u64::from(self.list[at].pcus)
    }
}

/// What takes the mappings of a stage as they are enumerated.
pub(crate) trait Offers {
    /// Takes a mapping on `pcus` PCUs that needs `cycles`, with K in `pk` slices.
    fn offer(&mut self, pcus: u64, cycles: Cycles, pk: u64, place: CandidateIndex);
}

/// Every mapping.
#[derive(Debug, Default)]
pub(crate) struct All(Vec<Offered>);

impl Offers for All {
    fn offer(&mut self, pcus: u64, cycles: Cycles, _: u64, place: CandidateIndex) {
        self.0.push(Offered { cycles, pcus: pcus as u32, place });
    }
}

impl All {
    /// Them, as they were offered.
    pub(crate) fn finish(self, source: Source, duty_factor: u64) -> Vec<Candidate> {
        let all = StageCandidates { list: self.0.into(), source, duty_factor };
        (0..all.list.len()).filter_map(|at| all.get(at)).collect()
    }
}

/// The fastest candidate of each number of PCUs so far: no list, and no sort, of thousands for a handful that stay.
#[derive(Debug, Default)]
pub(crate) struct Front {
    /// Weighed cycles, and the candidate; by PCUs.
    fastest: Vec<(u64, Option<Offered>)>,
    kept: Vec<Offered>,
}

impl Offers for Front {
    /// Keeps a candidate if it is faster than others of as many PCUs.
    #[inline]
    fn offer(&mut self, pcus: u64, cycles: Cycles, pk: u64, place: CandidateIndex) {
        let at = pcus as usize;
        if at >= self.fastest.len() {
            self.fastest.resize(at + 1, (u64::MAX, None));
        }
        let weighed = weighed_cycles(cycles.paced, pk);
        if weighed < self.fastest[at].0 {
            self.fastest[at] = (weighed, Some(Offered { cycles, pcus: pcus as u32, place }));
        }
    }
}

impl Front {
    /// The candidates that none on fewer PCUs equals, in cycles or in weighed cycles: both fall as PCUs rise. The front
    /// is empty then.
    pub(crate) fn finish(&mut self, source: Source, duty_factor: u64) -> StageCandidates {
        let (mut least_weighed, mut least) = (u64::MAX, u64::MAX);
        for (weighed, offered) in self.fastest.drain(..) {
            let faster = offered.filter(|offered| weighed < least_weighed && offered.cycles.paced < least);
            if let Some(offered) = faster {
                (least_weighed, least) = (weighed, offered.cycles.paced);
                self.kept.push(offered);
            }
        }
        let list = self.kept.as_slice().into();
        self.kept.clear();
        StageCandidates { list, source, duty_factor }
    }
}
