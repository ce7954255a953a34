//! A section of a partition, as the passes behind the search take it.

use crate::compile::mapping::plan::SectionPlan;
use rdusim_cost::cost::SectionRun;
use rdusim_program::{Section, SectionGraph};

/// A section that was chosen.
#[derive(Debug)]
pub(crate) struct Chosen<'a> {
    /// Its index among the runs of operators that may become a section.
    pub index: usize,
    /// Its operators.
    pub graph: SectionGraph<'a>,
    /// Its plan.
    pub plan: SectionPlan,
    /// It, placed and routed.
    pub section: Section,
    /// The run that measured it, or one that is the same but for its names, if one did.
    pub run: Option<SectionRun>,
}
