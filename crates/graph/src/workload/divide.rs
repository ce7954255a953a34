//! A repeated block as two blocks, one behind the other: the first repetitions and the rest.
//!
//! What the graph computes is the same. Each part has operators and tensors of its own, so that a mapping may treat them apart:
//! `program::tiers` divides blocks of which some repetitions find room in a faster memory tier and the rest do not.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::graph::{Operator, OperatorId, Tensor, TensorId, TensorRole, Workload};
use super::kind::Phase;
use rdusim_base::index::IndexVec;

/// Which repetitions of the block a part has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    First,
    Rest,
}

impl Workload {
    /// The block of operators that `tensor` belongs to, with its repetitions, if each of them has a tensor of its own.
    pub fn block_of(&self, tensor: TensorId) -> Option<(usize, u64)> {
        let touching = self.operators.iter().filter(|operator| self.touches(operator, tensor));
        let mut blocks: Vec<(Option<usize>, u64)> =
            touching.map(|operator| (operator.block, operator.repeat)).collect();
        blocks.dedup();
        match blocks[..] {
            [(Some(block), repeat)] if repeat > 1 => Some((block, repeat)),
            _ => None,
        }
    }

    /// The same graph with the first `first` repetitions of a block as a block of their own. The rest reads what they pass on,
    /// which is the one tensor that operators behind the block read of it, in place of what the block reads from before it.
    /// `None` if there is no such tensor, or more than one; if what the block makes comes back to it through other operators; in a
    /// training step, whose passes go through the block both ways; where a partition is pinned, which names every operator; and
    /// where a name of the parts is taken.
    pub fn with_divided_block(&self, block: usize, first: u64) -> Option<Self> {
        let repeat = self.operators.iter().find(|operator| operator.block == Some(block))?.repeat;
        let is_trained = self.operators.iter().any(|operator| operator.phase != Phase::Forward || operator.is_step());
        if first == 0 || first >= repeat || is_trained || !self.sections.is_empty() {
            return None;
        }
        let (passed_in, passed_on) = self.passed_through(block)?;
        let second = 1 + self.operators.iter().filter_map(|operator| operator.block).max()?;
        let mut division =
            Division { of: self, block, second, first, repeat, tensors: IndexVec::new(), copies: IndexVec::new() };
        if division.has_a_name_that_is_taken() {
            return None;
        }
        division.divide_tensors(passed_in);
        let passed = division.copies[passed_on].0;
        let operators = division.operators((passed_in, passed));
        let mut tensors = division.tensors;
        count_repetitions(&mut tensors, &operators);
        let mut divided = Self::new(self.name.clone(), self.dims.clone(), tensors, operators);
        divided.notes.clone_from(&self.notes);
        Some(divided)
    }

    /// What a block reads from before it and what it passes on, which the next repetition reads: of one shape.
    fn passed_through(&self, block: usize) -> Option<(TensorId, TensorId)> {
        let is_inside = |operator: &Operator| operator.block == Some(block);
        let (inside, outside): (Vec<&Operator>, Vec<&Operator>) =
            self.operators.iter().partition(|operator| is_inside(operator));
        let made: BTreeSet<TensorId> = inside.iter().map(|operator| self.base(operator.output)).collect();
        let read = |operators: &[&Operator]| -> BTreeSet<TensorId> {
            operators.iter().flat_map(|operator| &operator.inputs).map(|&input| self.base(input)).collect()
        };
        let on: Vec<TensorId> = read(&outside).intersection(&made).copied().collect();
        let [passed_on] = on[..] else { return None };
        let shape = |t: TensorId| (self.tensors[t].rows, self.tensors[t].columns, self.tensors[t].dtype);
        let could_be = |t: &TensorId| {
            !made.contains(t) && self.tensors[*t].role != TensorRole::Weight && shape(*t) == shape(passed_on)
        };
        let from_before: Vec<TensorId> = read(&inside).into_iter().filter(could_be).collect();
        let [passed_in] = from_before[..] else { return None };
        // What comes back to the block through operators outside it needs every repetition.
        let mut comes_from_it: BTreeSet<TensorId> = BTreeSet::new();
        for operator in &self.operators {
            let mut inputs = operator.inputs.iter().map(|&input| self.base(input));
            if is_inside(operator) {
                if inputs.any(|input| comes_from_it.contains(&input)) {
                    return None;
                }
            } else if inputs.any(|input| made.contains(&input) || comes_from_it.contains(&input)) {
                comes_from_it.insert(self.base(operator.output));
            }
        }
        let mut inputs = inside.iter().flat_map(|operator| &operator.inputs);
        // Seen in another shape, it would need a view of what is passed on as well.
        inputs.all(|&input| input == passed_in || self.base(input) != passed_in).then_some((passed_in, passed_on))
    }

    /// Whether an operator reads, writes or takes along a tensor or a view of it.
    fn touches(&self, operator: &Operator, tensor: TensorId) -> bool {
        touched(operator).any(|touched| self.base(touched) == tensor)
    }
}

fn touched(operator: &Operator) -> impl Iterator<Item = TensorId> + '_ {
    let read = operator.inputs.iter().chain(&operator.vectors).chain(&operator.indices).chain(&operator.updates);
    read.chain([&operator.output]).copied()
}

/// Every tensor exists as often as the operator that touches it most often runs, as its views do.
fn count_repetitions(tensors: &mut IndexVec<TensorId, Tensor>, operators: &IndexVec<OperatorId, Operator>) {
    let base = |tensors: &IndexVec<TensorId, Tensor>, t: TensorId| tensors[t].view.map_or(t, |view| view.base);
    let ids: Vec<TensorId> = tensors.ids().collect();
    for &id in &ids {
        tensors[id].repeat = 1;
    }
    for operator in operators {
        for tensor in operator.inputs.iter().chain([&operator.output]).chain(&operator.vectors).copied() {
            for touched in [tensor, base(tensors, tensor)] {
                tensors[touched].repeat = tensors[touched].repeat.max(operator.repeat);
            }
        }
    }
}

/// A division in progress.
struct Division<'a> {
    of: &'a Workload,
    block: usize,
    /// The block of the rest.
    second: usize,
    first: u64,
    repeat: u64,
    tensors: IndexVec<TensorId, Tensor>,
    /// The tensors that stand for each of the graph's, of the first repetitions and of the rest; the same where they share it.
    copies: IndexVec<TensorId, (TensorId, TensorId)>,
}

impl Division<'_> {
    /// A name with the repetitions of its half, counted from 1.
    fn named(&self, name: &str, half: Half) -> String {
        match half {
            Half::First => format!("{name}[1-{}]", self.first),
            Half::Rest => format!("{name}[{}-{}]", self.first + 1, self.repeat),
        }
    }

    /// Whether something is called as a part of another would be.
    fn has_a_name_that_is_taken(&self) -> bool {
        let tensors = self.of.tensors.iter().map(|tensor| tensor.name.as_str());
        let names: BTreeSet<&str> = tensors.chain(self.of.operators.iter().map(|op| op.name.as_str())).collect();
        let ends = [Half::First, Half::Rest].map(|half| self.named("", half));
        ends.iter()
            .any(|end| names.iter().any(|name| name.strip_suffix(end.as_str()).is_some_and(|of| names.contains(of))))
    }

    /// Copies the tensors, twice what belongs to the block. What is passed into the block does not.
    fn divide_tensors(&mut self, passed_in: TensorId) {
        let of = self.of;
        let mut is_own = IndexVec::filled(of.tensors.len(), true);
        is_own[passed_in] = false;
        let mut is_touched = IndexVec::filled(of.tensors.len(), false);
        for operator in &of.operators {
            let is_inside = operator.block == Some(self.block);
            for tensor in touched(operator).map(|tensor| of.base(tensor)) {
                is_touched[tensor] |= is_inside;
                // What the block makes is its own, whoever reads it.
                let made_inside =
                    of.producer(tensor).is_some_and(|maker| of.operators[maker].block == Some(self.block));
                is_own[tensor] &= is_inside || made_inside;
            }
        }
        for (id, tensor) in of.tensors.iter_enumerated() {
            let base = of.base(id);
            let pair = if is_own[base] && is_touched[base] {
                let first = Tensor { name: self.named(&tensor.name, Half::First), ..tensor.clone() };
                let rest = Tensor { name: self.named(&tensor.name, Half::Rest), ..tensor.clone() };
                (self.tensors.push(first), self.tensors.push(rest))
            } else {
                let shared = self.tensors.push(tensor.clone());
                (shared, shared)
            };
            self.copies.push(pair);
        }
        // Views of what has two copies are of their own half.
        for (id, tensor) in of.tensors.iter_enumerated() {
            let Some(view) = tensor.view else { continue };
            let ((first, rest), base, over) = (self.copies[id], self.copies[view.base], self.copies[view.of]);
            for (own, base, over) in [(first, base.0, over.0), (rest, base.1, over.1)] {
                if let Some(view) = &mut self.tensors[own].view {
                    (view.base, view.of) = (base, over);
                }
            }
        }
    }

    /// The operators in topological order, as near to the graph's as it can be: the rest of the block behind its first
    /// repetitions. `passed`: what the block reads from before it, and what the rest reads in its place.
    fn operators(&self, passed: (TensorId, TensorId)) -> IndexVec<OperatorId, Operator> {
        let of = self.of;
        let last = of.operators.iter().rposition(|operator| operator.block == Some(self.block)).unwrap_or(0);
        let mut list: Vec<Operator> = Vec::with_capacity(2 * of.operators.len());
        for (at, operator) in of.operators.iter().enumerate() {
            let half = if operator.block == Some(self.block) { Half::First } else { Half::Rest };
            list.push(self.operator(operator, half, None));
            if at == last {
                let inside = of.operators.iter().filter(|operator| operator.block == Some(self.block));
                list.extend(inside.map(|operator| self.operator(operator, Half::Rest, Some(passed))));
            }
        }
        in_order(list, &self.tensors)
    }

    /// An operator of a half. Outside the block it reads what the rest made, under its own name.
    fn operator(&self, operator: &Operator, half: Half, passed: Option<(TensorId, TensorId)>) -> Operator {
        let of_half = |t: TensorId| match (passed, half) {
            (Some((from, to)), _) if t == from => to,
            (_, Half::First) => self.copies[t].0,
            (_, Half::Rest) => self.copies[t].1,
        };
        let all = |list: &[TensorId]| list.iter().map(|&t| of_half(t)).collect();
        let mut copy = Operator {
            inputs: all(&operator.inputs),
            output: of_half(operator.output),
            vectors: all(&operator.vectors),
            indices: operator.indices.map(of_half),
            updates: operator.updates.map(of_half),
            ..operator.clone()
        };
        if operator.block == Some(self.block) {
            copy.name = self.named(&operator.name, half);
            match half {
                Half::First => copy.repeat = self.first,
                Half::Rest => (copy.repeat, copy.block) = (self.repeat - self.first, Some(self.second)),
            }
        }
        copy
    }
}

/// A topological order of a list, in which what need not move stays where it is (Kahn 1962, the first of those that are ready).
fn in_order(list: Vec<Operator>, tensors: &IndexVec<TensorId, Tensor>) -> IndexVec<OperatorId, Operator> {
    let base = |t: TensorId| tensors[t].view.map_or(t, |view| view.base);
    let mut maker = IndexVec::filled(tensors.len(), None);
    for (at, operator) in list.iter().enumerate() {
        maker[base(operator.output)].get_or_insert(at);
    }
    let mut waits = vec![0_usize; list.len()];
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); list.len()];
    for (at, operator) in list.iter().enumerate() {
        let read = operator.inputs.iter().chain(&operator.vectors).chain(&operator.indices);
        let from: BTreeSet<usize> = read.filter_map(|&t| maker[base(t)]).filter(|&from| from != at).collect();
        waits[at] = from.len();
        for from in from {
            readers[from].push(at);
        }
    }
    let mut ready: BinaryHeap<Reverse<usize>> = (0..list.len()).filter(|&at| waits[at] == 0).map(Reverse).collect();
    let mut list: Vec<Option<Operator>> = list.into_iter().map(Some).collect();
    let mut ordered = IndexVec::new();
    while let Some(Reverse(at)) = ready.pop() {
        for &reader in &readers[at] {
            waits[reader] -= 1;
            if waits[reader] == 0 {
                ready.push(Reverse(reader));
            }
        }
        if let Some(operator) = list[at].take() {
            ordered.push(operator);
        }
    }
    ordered
}

#[cfg(test)]
mod tests {
    use crate::workload::{Workload, parse};

    const DECODE: &str = include_str!("../../../../workloads/llama2-7b-decode.toml");

    fn decode() -> Workload {
        parse("decode", DECODE, &[], 0).unwrap()
    }

    fn macs(workload: &Workload) -> u64 {
        workload.operators.ids().map(|op| workload.stored_macs(op) * workload.operators[op].repeat).sum()
    }

    fn held_bytes(workload: &Workload, wanted: &dyn Fn(&str) -> bool) -> u64 {
        let held = workload.held_at_once();
        let tensors = workload.tensors.iter().zip(held).filter(|(tensor, _)| tensor.view.is_none());
        tensors.filter(|(tensor, _)| wanted(&tensor.name)).map(|(tensor, held)| tensor.stored_bytes() * held).sum()
    }

    #[test]
    fn both_parts_together_are_the_block() {
        let whole = decode();
        let block = whole.operators.iter().find_map(|operator| operator.block).unwrap();
        for first in [1, 20, 31] {
            let parts = whole.with_divided_block(block, first).unwrap();
            assert_eq!((parts.parameters(), macs(&parts)), (whole.parameters(), macs(&whole)));
            let inside = whole.operators.iter().filter(|operator| operator.block == Some(block)).count();
            assert_eq!(parts.operators.len(), whole.operators.len() + inside);
            for kind in ["_cache", "w_"] {
                let of_kind = |name: &str| name.contains(kind);
                assert_eq!(held_bytes(&parts, &of_kind), held_bytes(&whole, &of_kind), "{kind} {first}");
            }
            let repeats = |name: &str| parts.operators.iter().find(|op| op.name == name).map(|op| op.repeat);
            assert_eq!(repeats(&format!("scores[1-{first}]")), Some(first));
            assert_eq!(repeats(&format!("scores[{}-32]", first + 1)), Some(32 - first));
        }
    }

    #[test]
    fn the_rest_reads_what_the_first_repetitions_pass_on() {
        let whole = decode();
        let block = whole.operators.iter().find_map(|operator| operator.block).unwrap();
        let (passed_in, passed_on) = whole.passed_through(block).unwrap();
        let parts = whole.with_divided_block(block, 20).unwrap();
        let mut made = std::collections::BTreeSet::new();
        for operator in &parts.operators {
            let name = |t: crate::workload::TensorId| parts.tensors[t].name.clone();
            for &input in &operator.inputs {
                assert!(
                    parts.producer(input).is_none() || made.contains(&name(input)),
                    "{} reads too soon",
                    operator.name
                );
                let reads_passed_in = name(input) == whole.tensors[passed_in].name;
                assert!(
                    !reads_passed_in || !operator.name.ends_with("[21-32]"),
                    "{} reads it past the block",
                    operator.name
                );
            }
            made.insert(name(operator.output));
        }
        let passed = format!("{}[1-20]", whole.tensors[passed_on].name);
        let rest = |operator: &&crate::workload::Operator| operator.name.ends_with("[21-32]");
        let reads =
            |operator: &crate::workload::Operator| operator.inputs.iter().any(|&t| parts.tensors[t].name == passed);
        assert!(parts.operators.iter().filter(rest).any(reads), "nothing reads {passed}");
    }

    #[test]
    fn what_cannot_be_divided_is_left_whole() {
        let whole = decode();
        let block = whole.operators.iter().find_map(|operator| operator.block).unwrap();
        assert!(whole.with_divided_block(block, 0).is_none() && whole.with_divided_block(block, 32).is_none());
        assert!(whole.with_divided_block(block + 1, 1).is_none());
    }
}
