//! What every part of a search works on: the chip, its fabric, where tensors live, and how much effort is spent.

use crate::compile::mapping::bases::BaseCache;
use rdusim_cost::cost::Stop;
use rdusim_engines::sim::{self, Measurement};
use rdusim_graph::arch::{Chip, TierId};
use rdusim_graph::workload::Workload;
use rdusim_program::{Fabric, Section};

/// How much effort the search spends. Levels differ in budgets alone ([`crate::compile::params`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// A grid of few tilings, closer about the best, of which few are measured.
    Low,
    /// Every cut, row tile size and allotment: what is found will be measured.
    Full,
    /// As [`Effort::Full`], with more trials of every section, routed in full.
    Thorough,
}

impl Effort {
    /// As commands, study files and results call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "quick",
            Self::Full => "normal",
            Self::Thorough => "thorough",
        }
    }
}

/// What a search is for, and how it is done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SearchContext<'c> {
    /// The chip.
    pub chip: &'c Chip,
    /// The graph.
    pub workload: &'c Workload,
    /// The chip's links and ports.
    pub fabric: &'c Fabric,
    /// Memory tier of each tensor.
    pub tiers: &'c [TierId],
    /// How much effort the search spends.
    pub effort: Effort,
    /// Whether sections that may be chosen are measured by the event engine; else estimates are believed.
    pub measures: bool,
    /// Whether weights of the chosen sections are prefetched: the search for the partition counts what that saves.
    pub prefetches: bool,
    /// What is known of the workload's GEMMs on PCUs such as the chip's.
    pub bases: &'c BaseCache,
    /// Whether decisions are kept, for who asks for them.
    pub traces: bool,
    /// Who may stop the search.
    pub stop: Stop<'c>,
}

impl SearchContext<'_> {
    /// Runs a placed and routed section in the event engine, until it takes more than `most_cycles`, launch included, or more
    /// than `most_work`; [`Measurement::Unknown`] if estimates are believed.
    pub(crate) fn measure(&self, section: &Section, most_cycles: u64, most_work: u64) -> Measurement {
        if !self.measures {
            return Measurement::Unknown { work: 0, at_rate: 0, all_work: u64::MAX };
        }
        sim::measure(self.chip, self.workload, self.fabric, section, most_cycles, most_work, self.stop)
    }
}
