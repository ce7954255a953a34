//! A path over the down-sets of a graph's operators: sections at random, each of operators whose producers are done.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use rdusim_base::index::IndexVec;
use rdusim_cost::bound::lattice::Group;
use rdusim_graph::workload::{OperatorId, Uses, Workload};
use rdusim_program::SectionGraph;

use super::random::one_of;

/// Chances that a section grows no further, one of which a section draws: of a chain without end, sections have 2, 4 or 16 operators
/// in the mean.
const STOPS: [f64; 3] = [1.0 / 2.0, 1.0 / 4.0, 1.0 / 16.0];

/// Sections so far.
pub(super) struct Path<'a> {
    workload: &'a Workload,
    uses: Uses,
    /// Group of each operator: only operators of one group share a section.
    group: IndexVec<OperatorId, usize>,
    /// Operators that a section has.
    done: IndexVec<OperatorId, bool>,
}

impl<'a> Path<'a> {
    /// No sections yet.
    pub(super) fn new(workload: &'a Workload) -> Self {
        let mut group = IndexVec::filled(workload.operators.len(), 0);
        for (number, of) in Group::all(workload).iter().enumerate() {
            for &op in &of.operators {
                group[op] = number;
            }
        }
        let done = IndexVec::filled(workload.operators.len(), false);
        Self { workload, uses: Uses::new(workload), group, done }
    }

    /// Operators of a next section, in an order in which each follows those that it reads from, so that the first of them are a
    /// section too; `None` if every operator has one. No operator outside stands between two of them, as all that they read from is
    /// done or among them.
    pub(super) fn grow(&self, random: &mut Pcg64Mcg) -> Option<Vec<OperatorId>> {
        let ready: Vec<OperatorId> = self.workload.operators.ids().filter(|&op| self.is_ready(op, &[])).collect();
        let alone = |op: &OperatorId| SectionGraph::new(self.workload, &[*op], false).is_some();
        let first: Vec<OperatorId> = ready.into_iter().filter(alone).collect();
        let mut grown = vec![one_of(random, &first)?];
        let stop = one_of(random, &STOPS)?;
        while random.random::<f64>() >= stop {
            let group = self.group[grown[0]];
            let mut next: Vec<OperatorId> = self.workload.operators.ids().collect();
            next.retain(|&op| self.group[op] == group && !grown.contains(&op) && self.is_ready(op, &grown));
            next.retain(|&op| {
                let mut with: Vec<OperatorId> = grown.iter().copied().chain([op]).collect();
                with.sort_unstable();
                SectionGraph::new(self.workload, &with, true).is_some()
            });
            let Some(op) = one_of(random, &next) else { break };
            grown.push(op);
        }
        Some(grown)
    }

    /// Whether an operator has no section and all that it reads is made by those that have one, or by `grown`.
    fn is_ready(&self, op: OperatorId, grown: &[OperatorId]) -> bool {
        let is_made = |by: OperatorId| by >= op || self.done[by] || grown.contains(&by);
        let inputs = &self.workload.operators[op].inputs;
        !self.done[op] && inputs.iter().filter_map(|&t| self.uses.producer(self.workload, t)).all(is_made)
    }

    /// The operators have a section.
    pub(super) fn follow(&mut self, operators: &[OperatorId]) {
        for &op in operators {
            self.done[op] = true;
        }
    }
}
