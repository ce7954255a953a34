//! The runs of operators that may become a section, and the order in which they are evaluated.

use rustc_hash::FxHashMap;

use crate::compile::params::PARAMS;
use rdusim_graph::arch::TierId;
use rdusim_graph::workload::{OperatorId, Workload};
use rdusim_program::{gradient_of, is_turned};

use super::canonical::{CanonicalForm, CanonicalForms};

/// A run of operators that may become a section.
#[derive(Debug)]
pub(crate) struct Run {
    /// Places in the order: first operator, and one past the last (pinned sections: 0, 0).
    pub span: (usize, usize),
    /// The section's operators.
    pub operators: Vec<OperatorId>,
    /// Runs of one operator that come behind it: row reductions between its operators, in sections of their own.
    pub split_off: Vec<usize>,
    /// Runs that are the same but for their names are one class.
    pub class: usize,
    /// It is a whole repeated block.
    pub is_block: bool,
}

/// Runs, and the first of each class.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// All of them; those of one operator first, in order.
    pub list: Vec<Run>,
    /// The first of each class.
    pub firsts: Vec<usize>,
    /// Kinds by the canonical form of their runs.
    pub classes: FxHashMap<CanonicalForm, usize>,
}

impl Runs {
    /// Single operators and, if `fused`, runs of up to `PARAMS.partition.most_listed`, and whole blocks of up to `PARAMS.partition.most_in_a_block`.
    pub(crate) fn new(workload: &Workload, tiers: &[TierId], fused: bool) -> Self {
        let canonical = CanonicalForms::new(workload, tiers);
        let operators = if fused { order(workload) } else { workload.operators.ids().collect() };
        let n = operators.len();
        let mut runs = Self::default();
        for (at, &op) in operators.iter().enumerate() {
            runs.add(&canonical, (at, at + 1), vec![op], Vec::new(), false);
        }
        if !fused {
            return runs;
        }
        for from in 0..n {
            let mut others = usize::from(is_other(workload, operators[from]));
            for to in from + 2..=n.min(from + PARAMS.partition.most_with_row_reductions) {
                others += usize::from(is_other(workload, operators[to - 1]));
                if others > PARAMS.partition.most_listed {
                    break;
                }
                let all = &operators[from..to];
                let steps = all.iter().filter(|&&op| workload.operators[op].is_step()).count();
                if to - from - steps <= PARAMS.partition.most_listed && may_share_a_section(workload, all) {
                    runs.add(&canonical, (from, to), all.to_vec(), Vec::new(), false);
                }
                let is_step = |op| workload.operators[op].is_step();
                if steps > 0 {
                    runs.add_without(workload, &canonical, &operators, from, to, is_step);
                }
                runs.add_without(workload, &canonical, &operators, from, to, |op| !is_other(workload, op));
            }
        }
        let place = |at: usize| {
            let operator = &workload.operators[operators[at]];
            let of = &workload.operators[gradient_of(workload, operators[at]).unwrap_or(operators[at])];
            (operator.block, of.phase)
        };
        let mut from = 0;
        while from < n {
            let to = (from..n).find(|&at| place(at) != place(from)).unwrap_or(n);
            if place(from).0.is_some()
                && (PARAMS.partition.most_listed + 1..=PARAMS.partition.most_in_a_block).contains(&(to - from))
            {
                runs.add(&canonical, (from, to), operators[from..to].to_vec(), Vec::new(), true);
            }
            from = to;
        }
        runs
    }

    /// Adds a run.
    pub(crate) fn add(
        &mut self,
        canonical: &CanonicalForms<'_>,
        span: (usize, usize),
        operators: Vec<OperatorId>,
        split_off: Vec<usize>,
        is_block: bool,
    ) {
        let class = *self.classes.entry(canonical.canonical_form(&operators)).or_insert(self.firsts.len());
        if class == self.firsts.len() {
            self.firsts.push(self.list.len());
        }
        self.list.push(Run { span, operators, split_off, class, is_block });
    }

    /// Adds a run of which some operators (row reductions, steps of optimisers) have sections of their own behind it, unless it
    /// needs them itself.
    fn add_without(
        &mut self,
        workload: &Workload,
        canonical: &CanonicalForms<'_>,
        order: &[OperatorId],
        from: usize,
        to: usize,
        is_split_off: impl Fn(OperatorId) -> bool,
    ) {
        let (split_off, rest): (Vec<usize>, Vec<usize>) = (from..to).partition(|&at| is_split_off(order[at]));
        // With one of them at either end a shorter run says the same.
        let inside = |at: &usize| *at > from && *at + 1 < to;
        if split_off.is_empty()
            || rest.len() < 2
            || rest.len() > PARAMS.partition.most_listed
            || !split_off.iter().all(inside)
        {
            return;
        }
        let rest: Vec<OperatorId> = rest.into_iter().map(|at| order[at]).collect();
        let made: Vec<_> = split_off.iter().map(|&at| workload.operators[order[at]].output).collect();
        let reads = |op: &OperatorId| workload.operators[*op].inputs.iter().any(|&t| made.contains(&workload.base(t)));
        if !rest.iter().any(reads) && may_share_a_section(workload, &rest) {
            self.add(canonical, (from, to), rest, split_off, false);
        }
    }
}

/// Whether an operator is neither a row reduction nor a step of an optimiser.
fn is_other(workload: &Workload, op: OperatorId) -> bool {
    !is_turned(workload, op) && !workload.operators[op].is_step()
}

/// Whether some operators are candidates for a section by what their sums over rows and steps of optimisers need.
pub(super) fn may_share_a_section(workload: &Workload, operators: &[OperatorId]) -> bool {
    are_shared(workload, operators) && have_gradients(workload, operators)
}

/// Whether every step of an optimiser has its gradient among some operators; or all are steps.
fn have_gradients(workload: &Workload, operators: &[OperatorId]) -> bool {
    let steps = || operators.iter().filter(|&&op| workload.operators[op].is_step());
    steps().count() == operators.len()
        || steps().all(|&step| gradient_of(workload, step).is_some_and(|maker| operators.contains(&maker)))
}

/// Whether every sum over rows works on rows that another operator works on too; or all are sums.
fn are_shared(workload: &Workload, operators: &[OperatorId]) -> bool {
    let (sums, others): (Vec<OperatorId>, Vec<OperatorId>) = operators
        .iter()
        .filter(|&&op| !workload.operators[op].is_step() || !operators.iter().any(|&op| is_turned(workload, op)))
        .partition(|&&op| is_turned(workload, op));
    let bases = |op: &OperatorId| workload.operators[*op].inputs.iter().map(|&input| workload.base(input));
    let reads = |tensor| others.iter().any(|op| workload.operators[*op].inputs.contains(&tensor));
    others.is_empty() || sums.iter().all(|sum| bases(sum).any(reads))
}

/// The operators in a topological order: that of the graph, but row reductions directly behind the first operator of their
/// block that works on the rows of an operand too, and steps of optimisers directly behind their gradient and whatever else
/// reads the weight that they replace.
fn order(workload: &Workload) -> Vec<OperatorId> {
    let mut order: Vec<OperatorId> = workload.operators.ids().collect();
    for op in workload.operators.ids().filter(|&op| is_turned(workload, op)) {
        let operator = &workload.operators[op];
        let inputs: Vec<_> = operator.inputs.iter().map(|&input| workload.base(input)).collect();
        let Some(at) = order.iter().position(|&other| other == op) else { continue };
        let made = order[..at].iter().rposition(|&other| inputs.contains(&workload.operators[other].output));
        let works = |&other: &OperatorId| {
            let other_operator = &workload.operators[other];
            (other_operator.block, other_operator.phase) == (operator.block, operator.phase)
                && !is_turned(workload, other)
                && other_operator.inputs.iter().any(|input| inputs.contains(input))
        };
        let first = made.map_or(0, |made| made + 1);
        if let Some(behind) = order[first..at].iter().position(works) {
            order.remove(at);
            order.insert(first + behind + 1, op);
        }
    }
    for step in workload.operators.ids().filter(|&op| gradient_of(workload, op).is_some()) {
        let weight = workload.operators[step].updates;
        let maker = gradient_of(workload, step);
        let is_before = |&op: &OperatorId| {
            let reads = workload.operators[op].inputs.iter().any(|&t| Some(workload.base(t)) == weight);
            Some(op) == maker || reads && op != step
        };
        let Some(at) = order.iter().position(|&op| op == step) else { continue };
        if let Some(last) = order[..at].iter().rposition(is_before) {
            order.remove(at);
            order.insert(last + 1, step);
        }
    }
    order
}
