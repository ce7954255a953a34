//! What a search has decided, for who asks why a mapping lost.

use rdusim_base::units::whole;

use super::partition::Partitioner;
use super::runs::Run;

/// What was decided of the sections that a search has compared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decisions {
    /// By section, in the order of the graph.
    pub sections: Vec<SectionDecisions>,
}

/// What was decided of one section; sections of the same shape are decided once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionDecisions {
    /// Its operators, as in `up+gelu`; those of the first section of its shape.
    pub section: String,
    /// Names of all sections of its shape that were compared, itself first.
    pub alike: Vec<String>,
    /// One line a decision, in the order in which they were made.
    pub lines: Vec<String>,
}

impl Partitioner<'_> {
    /// What was decided of every section that may be part of the best partition.
    pub(crate) fn decisions(&self) -> Vec<SectionDecisions> {
        let mut is_seen = vec![false; self.planned.len()];
        let mut sections = Vec::new();
        let name = |run: &Run| {
            let names: Vec<&str> = run.operators.iter().map(|&op| self.workload.operators[op].name.as_str()).collect();
            names.join("+")
        };
        let mut alike: Vec<Vec<String>> = vec![Vec::new(); self.planned.len()];
        for run in &self.runs {
            alike[run.class].push(name(run));
        }
        for (at, run) in self.runs.iter().enumerate() {
            if std::mem::replace(&mut is_seen[run.class], true) {
                continue;
            }
            let lines = match (self.of(at), &self.bounds) {
                (Some(planned), _) => planned.decisions(),
                (None, Some(bounds)) if !bounds.refused[run.class] => {
                    let least = whole(bounds.least[at]);
                    vec![format!("not planned: it scores {least} at best, and other partitions take less")]
                }
                (None, _) => {
                    vec!["not planned: it cannot be mapped, or gains too little by its lower bound".to_owned()]
                }
            };
            sections.push(SectionDecisions { section: name(run), alike: std::mem::take(&mut alike[run.class]), lines });
        }
        sections
    }
}
