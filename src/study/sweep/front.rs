//! Search: the Pareto front, the best under a constraint, and what a lower bound rules out.

use super::study::{Best, Objective};

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

/// The row that is best, of equals the first; `None` if no row has the objective and meets the constraint.
pub(super) fn best(best: &Best, columns: &[String], rows: &[Vec<String>]) -> Option<usize> {
    let holds = |row: &[String]| {
        let value = |name: &str| columns.iter().position(|column| column == name).and_then(|at| row[at].parse().ok());
        best.subject_to.as_ref().is_none_or(|(_, constraint)| constraint.holds(&value) == Some(true))
    };
    let mut found: Option<(usize, f64)> = None;
    for (at, row) in rows.iter().enumerate() {
        let Some(cost) = costs(std::slice::from_ref(&best.objective), row).map(|costs| costs[0]) else { continue };
        if holds(row) && found.is_none_or(|(_, least)| cost < least) {
            found = Some((at, cost));
        }
    }
    found.map(|(at, _)| at)
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
