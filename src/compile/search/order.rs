//! The order in which the mappings of a section are placed, routed and measured.

use super::space::Choice;

/// The order in which choices are evaluated: in turn the best of the next cut, and of the next class; then the others.
pub(super) fn ranked(choices: &[Choice]) -> Vec<usize> {
    let first_of = |same: &dyn Fn(&Choice, &Choice) -> bool| {
        let is_first = |&index: &usize| !choices[..index].iter().any(|other| same(other, &choices[index]));
        (0..choices.len()).filter(is_first).collect::<Vec<usize>>()
    };
    let cuts = first_of(&|a, b| a.nest.tiled_axis == b.nest.tiled_axis);
    let classes = first_of(&|a, b| a.kind() == b.kind());
    let mut order: Vec<usize> = Vec::with_capacity(choices.len());
    for turn in 0..choices.len() {
        for next in [cuts.get(turn), classes.get(turn)].into_iter().flatten() {
            if !order.contains(next) {
                order.push(*next);
            }
        }
    }
    let others: Vec<usize> = (0..choices.len()).filter(|index| !order.contains(index)).collect();
    order.extend(others);
    order
}

/// Puts the best choice of every tiled axis that is not among the `first` in `order` behind these; returns how many there are.
pub(super) fn bring_axes_forward(choices: &[Choice], order: &mut Vec<usize>, first: usize) -> usize {
    let axis = |index: usize| choices[index].nest.tiled_axis.map(|cut| cut.axis);
    let mut missing: Vec<usize> = Vec::new();
    for index in 0..choices.len() {
        let is_there = |&other: &usize| axis(other) == axis(index);
        if !order.iter().take(first).any(is_there) && !missing.iter().any(is_there) {
            missing.push(index);
        }
    }
    order.retain(|index| !missing.contains(index));
    let at = first.min(order.len());
    order.splice(at..at, missing.iter().copied());
    missing.len()
}
