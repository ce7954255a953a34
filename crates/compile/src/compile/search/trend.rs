//! How far mappings like one were off: kernel regression (Nadaraya 1964, Watson 1964) with a prior.
//!
//! Links, ports and lockstep groups slow mappings down by about as much as mappings of about their tiles and groups. Far from all
//! that is known, no mapping is taken to be off.

use crate::compile::params::PARAMS;

use super::space::{Choice, Class};

/// What mappings are compared by.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Features {
    class: Class,
    /// Logarithms to base 2 of the sizes of row and column tiles, and of the lockstep groups of each stage.
    logs: Vec<f64>,
}

impl Features {
    pub(super) fn of(choice: &Choice) -> Self {
        let columns = choice.nest.tiled_axis.map_or(1, |cut| cut.tile);
        let groups = choice.picked.iter().map(|candidate| candidate.mapping.groups());
        let panel = choice.nest.tiled_axis.and_then(|cut| cut.panels).map_or(1, |panels| panels.width);
        let sizes = [choice.nest.tile_rows, columns, panel].into_iter().chain(groups);
        Self { class: choice.class(), logs: sizes.map(|size| (size.max(1) as f64).log2()).collect() }
    }

    /// The weight of what one shows for another: a Gaussian of their distance, 0 between classes.
    fn weight(&self, other: &Self) -> f64 {
        if self.class != other.class {
            return 0.0;
        }
        let squares: f64 = self.logs.iter().zip(&other.logs).map(|(a, b)| (a - b) * (a - b)).sum();
        (-squares / (2.0 * PARAMS.evaluation.similar_octaves * PARAMS.evaluation.similar_octaves)).exp()
    }
}

/// Ratios of what mappings took to what was expected of them.
#[derive(Debug, Default)]
pub(super) struct Trend {
    /// Logarithms of ratios.
    points: Vec<(Features, f64)>,
}

impl Trend {
    /// Adds what a mapping has shown.
    pub(super) fn add(&mut self, features: Features, ratio: f64) {
        self.points.push((features, ratio.max(f64::MIN_POSITIVE).ln()));
    }

    /// The ratio to be expected of a mapping; 1 where nothing like it is known.
    pub(super) fn ratio(&self, features: &Features) -> f64 {
        let (mut weights, mut weighted) = (PARAMS.evaluation.weight_of_no_change, 0.0);
        for (of, log) in &self.points {
            let weight = of.weight(features);
            weights += weight;
            weighted += weight * log;
        }
        (weighted / weights).exp()
    }
}
