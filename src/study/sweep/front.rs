//! Search: the Pareto front, the best under a constraint, and what a lower bound rules out.

use indexmap::IndexMap;

use super::study::Study;
use super::wanted::{Best, Mean, Objective, Over};

/// Objectives of a row as numbers to make small; `None` if one is missing.
pub(super) fn costs(objectives: &[Objective], row: &[String]) -> Option<Vec<f64>> {
    objectives
        .iter()
        .map(|objective| {
            let value: f64 = row[objective.column].parse().ok()?;
            Some(if objective.maximize { -value } else { value })
        })
        .collect()
}

/// Whether `a` is nowhere worse than `b` and somewhere better.
pub(super) fn dominates(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| a <= b) && a.iter().zip(b).any(|(a, b)| a < b)
}

/// Points that no other dominates.
#[derive(Debug, Default)]
pub(super) struct Front {
    points: Vec<(usize, Vec<f64>)>,
}

impl Front {
    /// Takes a point in, unless another dominates it.
    pub(super) fn add(&mut self, index: usize, costs: Vec<f64>) {
        if self.rules_out(&costs) {
            return;
        }
        self.points.retain(|(_, other)| !dominates(&costs, other));
        self.points.push((index, costs));
    }

    /// Whether a point on the front dominates these costs, or any that are nowhere less.
    pub(super) fn rules_out(&self, costs: &[f64]) -> bool {
        self.points.iter().any(|(_, other)| dominates(other, costs))
    }

    /// Indices on the front, by their first cost; of equals by index.
    pub(super) fn indices(&self) -> Vec<usize> {
        let mut points: Vec<&(usize, Vec<f64>)> = self.points.iter().collect();
        points.sort_by(|a, b| a.1[0].total_cmp(&b.1[0]).then(a.0.cmp(&b.0)));
        points.into_iter().map(|(index, _)| *index).collect()
    }
}

/// What is best: its value, and a row that has it or, of a mean, the first row under it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct BestValue {
    /// `None` if nothing has the objective and meets the constraint.
    pub(super) row: Option<usize>,
    /// The objective, or its mean.
    pub(super) value: Option<f64>,
}

/// What is best, of equals the first: one, or one for each value of the column `per`.
pub(super) fn best(best: &Best, study: &Study, rows: &[Vec<String>]) -> Vec<BestValue> {
    let mut parts: IndexMap<&str, Vec<usize>> = IndexMap::new();
    for (at, row) in rows.iter().enumerate() {
        parts.entry(best.per.map_or("", |per| row[per].as_str())).or_default().push(at);
    }
    if parts.is_empty() {
        return vec![BestValue { row: None, value: None }];
    }
    parts.into_values().map(|part| best_of(best, study, rows, &part)).collect()
}

fn best_of(best: &Best, study: &Study, rows: &[Vec<String>], part: &[usize]) -> BestValue {
    let holds = |row: &[String]| {
        let value =
            |name: &str| study.columns.iter().position(|column| column == name).and_then(|at| row[at].parse().ok());
        best.subject_to.as_ref().is_none_or(|(_, constraint)| constraint.holds(&value) == Some(true))
    };
    let objective = |at: usize| rows[at][best.objective.column].parse::<f64>().ok().filter(|_| holds(&rows[at]));
    let values: Vec<(usize, f64)> = match &best.over {
        None => part.iter().filter_map(|&at| Some((at, objective(at)?))).collect(),
        Some(over) => means(over, study, rows, part, &objective),
    };
    let cost = |value: f64| if best.objective.maximize { -value } else { value };
    let least = values.into_iter().min_by(|a, b| cost(a.1).total_cmp(&cost(b.1)).then(a.0.cmp(&b.0)));
    BestValue { row: least.map(|(at, _)| at), value: least.map(|(_, value)| value) }
}

/// Means over the rows that differ in one column of an axis alone: the first row of each group, and the mean. A group that
/// lacks a value of the axis, or a number, has none.
fn means(
    over: &Over,
    study: &Study,
    rows: &[Vec<String>],
    part: &[usize],
    objective: &dyn Fn(usize) -> Option<f64>,
) -> Vec<(usize, f64)> {
    let mut all: Vec<&str> = rows.iter().map(|row| row[over.column].as_str()).collect();
    all.sort_unstable();
    all.dedup();
    let mut groups: IndexMap<Vec<&str>, Vec<usize>> = IndexMap::new();
    for &at in part {
        let axes = rows[at].iter().enumerate().take(study.axis_columns).filter(|(column, _)| *column != over.column);
        groups.entry(axes.map(|(_, cell)| cell.as_str()).collect()).or_default().push(at);
    }
    let mean = |group: Vec<usize>| {
        let weight = |at: usize| over.weights.get(&rows[at][over.column]).copied().unwrap_or(1.0);
        let pairs: Vec<(f64, f64)> =
            group.iter().map(|&at| Some((weight(at), objective(at)?))).collect::<Option<_>>()?;
        let total: f64 = pairs.iter().map(|(weight, _)| weight).sum();
        let mean = match over.mean {
            Mean::Arithmetic => pairs.iter().map(|(weight, value)| weight * value).sum::<f64>() / total,
            Mean::Geometric => (pairs.iter().map(|(weight, value)| weight * value.ln()).sum::<f64>() / total).exp(),
        };
        (group.len() == all.len() && mean.is_finite()).then_some((group[0], mean))
    };
    groups.into_values().filter_map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_keeps_what_nothing_dominates() {
        let mut front = Front::default();
        for (index, costs) in
            [[3.0, 1.0], [2.0, 2.0], [2.0, 3.0], [1.0, 4.0], [3.0, 1.0], [0.5, 9.0]].iter().enumerate()
        {
            front.add(index, costs.to_vec());
        }
        assert_eq!(front.indices(), [5, 3, 1, 0, 4]);
        assert!(front.rules_out(&[2.0, 2.5]) && !front.rules_out(&[2.0, 2.0]) && !front.rules_out(&[0.1, 99.0]));
        front.add(9, vec![0.0, 0.0]);
        assert_eq!(front.indices(), [9]);
    }
}
