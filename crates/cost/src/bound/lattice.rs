//! Groups of operators that may share sections, and the partitions of each.
//!
//! No section has operators of two blocks or phases ([`SectionGraph::new`]), but for steps of optimisers in the tails of their
//! gradients' makers, so a partition of the graph is a partition of each group. A partition of a group is a chain of down-sets (ideals) of its operators, from none to all: a section is what one has
//! more than the one before. So the least sum over all partitions is a shortest path over the down-sets.

use std::collections::BTreeMap;

use rdusim_base::index::Id;
use rdusim_graph::workload::{OperatorId, Phase, Uses, Workload};
use rdusim_program::{SectionGraph, gradient_of};

/// Down-sets that are bounded, and sets of operators between two of them; a group with more is bounded as a whole.
const MOST_IDEALS: usize = 2_000;
const MOST_SETS: usize = 20_000;
/// Sections of a group, of which each takes about a millisecond: checking takes less than a second.
const MOST_SECTIONS: usize = 600;

/// Operators of one block and phase, and the steps that may run in their tails.
#[derive(Debug)]
pub struct Group {
    /// In the order of the graph.
    pub operators: Vec<OperatorId>,
    pub(crate) repeat: u64,
    pub(crate) every: u64,
}

impl Group {
    /// The groups of a graph, in the order of their first operators.
    pub fn all(workload: &Workload) -> Vec<Self> {
        let mut at: BTreeMap<(Option<usize>, Phase, u64, u64), usize> = BTreeMap::new();
        let mut groups: Vec<Self> = Vec::new();
        for (id, operator) in workload.operators.iter_enumerated() {
            let phase = gradient_of(workload, id).map_or(operator.phase, |maker| workload.operators[maker].phase);
            let key = (operator.block, phase, operator.repeat, operator.every);
            let group = *at.entry(key).or_insert(groups.len());
            if group == groups.len() {
                groups.push(Self { operators: Vec::new(), repeat: operator.repeat, every: operator.every });
            }
            groups[group].operators.push(id);
        }
        groups
    }

    /// Its partitions; `None` if there are too many sections.
    pub(crate) fn partitions(&self, workload: &Workload) -> Option<Partitions> {
        let count = self.operators.len();
        if count > 128 {
            return None;
        }
        let uses = Uses::new(workload);
        let place = |op: OperatorId| self.operators.iter().position(|&other| other == op);
        let needs = |&op: &OperatorId| {
            let producers = workload.operators[op].inputs.iter().filter_map(|&t| uses.producer(workload, t));
            producers.filter_map(place).filter(|&at| self.operators[at] < op).fold(0u128, |set, at| set | 1 << at)
        };
        let needs: Vec<u128> = self.operators.iter().map(needs).collect();
        let next = |ideal: u128| {
            let needs = &needs;
            (0..count).filter(move |&at| ideal >> at & 1 == 0 && needs[at] & !ideal == 0).map(move |at| ideal | 1 << at)
        };
        // By size, so that every down-set stands behind those that it holds.
        let mut ideals: Vec<u128> = vec![0];
        let mut layer = vec![0u128];
        for _ in 0..count {
            let mut above: Vec<u128> = layer.iter().flat_map(|&ideal| next(ideal)).collect();
            above.sort_unstable();
            above.dedup();
            ideals.extend(&above);
            if ideals.len() > MOST_IDEALS {
                return None;
            }
            layer = above;
        }
        let mut numbers: BTreeMap<u128, Option<usize>> = BTreeMap::new();
        let mut sections: Vec<Vec<OperatorId>> = Vec::new();
        let mut steps: Vec<(usize, usize, usize)> = Vec::new();
        for (from, &below) in ideals.iter().enumerate() {
            for (to, &above) in ideals.iter().enumerate().skip(from + 1).filter(|(_, above)| below & !**above == 0) {
                let set = above & !below;
                let number = *numbers.entry(set).or_insert_with(|| {
                    let is_in = |at: &usize| set >> at & 1 == 1;
                    let operators: Vec<OperatorId> = (0..count).filter(is_in).map(|at| self.operators[at]).collect();
                    let may_share = self.is_convex(workload, &uses, set)
                        && SectionGraph::new(workload, &operators, operators.len() > 1).is_some();
                    may_share.then(|| {
                        sections.push(operators);
                        sections.len() - 1
                    })
                });
                steps.extend(number.map(|number| (from, to, number)));
            }
            if numbers.len() > MOST_SETS || sections.len() > MOST_SECTIONS {
                return None;
            }
        }
        Some(Partitions { ideals: ideals.len(), steps, sections })
    }

    /// Whether no operator outside a set stands between two of it.
    fn is_convex(&self, workload: &Workload, uses: &Uses, set: u128) -> bool {
        let (first, last) = (set.trailing_zeros() as usize, 127 - set.leading_zeros() as usize);
        let is_in = |op: OperatorId| self.operators.binary_search(&op).is_ok_and(|at| set >> at & 1 == 1);
        let (first, last) = (self.operators[first], self.operators[last]);
        if last.index() - first.index() + 1 == set.count_ones() as usize {
            return true;
        }
        // Operators behind one of the set, outside of it.
        let mut is_behind = vec![false; last.index() + 1 - first.index()];
        let at = |op: OperatorId| op.index().checked_sub(first.index());
        for op in workload.operators.ids().skip(first.index()).take(is_behind.len()) {
            let producers = || workload.operators[op].inputs.iter().filter_map(|&t| uses.producer(workload, t));
            let behind = |by: OperatorId| at(by).and_then(|at| is_behind.get(at)).copied().unwrap_or(false);
            let follows_outside = producers().any(behind);
            if is_in(op) {
                if follows_outside {
                    return false;
                }
            } else if follows_outside || producers().any(is_in) {
                is_behind[op.index() - first.index()] = true;
            }
        }
        true
    }
}

/// The partitions of a group.
#[derive(Debug)]
pub(crate) struct Partitions {
    /// Down-sets; the first is empty, the last is the group.
    pub(crate) ideals: usize,
    /// From a down-set to a larger one, and the section between them.
    pub(crate) steps: Vec<(usize, usize, usize)>,
    /// Operators of each section.
    pub(crate) sections: Vec<Vec<OperatorId>>,
}

impl Partitions {
    /// Of a kernel that is a section, or of which the last operators are sections of their own.
    pub(crate) fn of_kernel(operators: &[OperatorId]) -> Self {
        let mut list = Self { ideals: operators.len() + 1, steps: Vec::new(), sections: Vec::new() };
        for to in 1..=operators.len() {
            let mut step = |from: usize| {
                list.steps.push((from, to, list.sections.len()));
                list.sections.push(operators[from..to].to_vec());
            };
            step(0);
            if to > 1 {
                step(to - 1);
            }
        }
        // From smaller to larger down-sets.
        list.steps.sort_unstable();
        list
    }
}
