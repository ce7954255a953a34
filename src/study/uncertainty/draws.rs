//! Values of uncertain fields, drawn.

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::arch::{Assumption, UncertainField, assumptions};
use crate::input::{Override, Root};
use crate::study::strata::places;

/// Chips to try, as overrides.
#[derive(Debug, Clone)]
pub struct Draws {
    /// Overrides of each draw.
    pub(super) sets: Vec<Vec<Override>>,
    /// Each whole number with a range of the file's own at the ends of that range.
    pub(super) ends: Vec<Override>,
    /// Paths of the fields that are drawn.
    pub(super) fields: Vec<String>,
    /// Paths of assumed fields that are not.
    pub(super) fixed: Vec<String>,
}

impl Draws {
    /// Draws `samples` chips of a file. Fields that `known` overrides set are taken as known.
    pub fn new(text: &str, known: &[&Override], samples: usize, seed: u64) -> Self {
        let is_known = |field: &UncertainField| {
            known.iter().any(|set| set.root() == Root::Arch && field.path.starts_with(set.path()))
        };
        let found = assumptions(text);
        let is_drawn =
            |field: &UncertainField| !is_known(field) && (field.end(false).is_some() || field.end(true).is_some());
        let groups: Vec<Vec<UncertainField>> = found
            .varied
            .into_iter()
            .map(|Assumption { fields }| fields.into_iter().filter(is_drawn).collect())
            .filter(|fields: &Vec<UncertainField>| !fields.is_empty())
            .collect();
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut sets: Vec<Vec<Override>> = vec![Vec::new(); samples];
        for group in &groups {
            for (sets, quantile) in sets.iter_mut().zip(places(&mut rng, samples as u64)) {
                let one = |field: &UncertainField| {
                    let keys: Vec<&str> = field.path.iter().map(String::as_str).collect();
                    Override::of(Root::Arch, &keys, &field.at(quantile)).ok()
                };
                sets.extend(group.iter().filter_map(one));
            }
        }
        let with_range = groups.iter().flatten().filter(|field| field.has_whole_range());
        let ends = with_range.flat_map(|field| [false, true].map(|upper| field.end(upper).map(|end| (field, end))));
        let ends = ends.flatten().filter_map(|(field, end)| {
            let keys: Vec<&str> = field.path.iter().map(String::as_str).collect();
            Override::of(Root::Arch, &keys, &end).ok()
        });
        let ends = ends.collect();
        let fields = groups.iter().flatten().map(UncertainField::name).collect();
        Self { sets, ends, fields, fixed: found.fixed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_known() {
        let text = "# assumed\na = 4\n\n# assumed\nb = 2.0\n";
        let known = Override::parse("arch.a=5").expect("an override");
        let draws = Draws::new(text, &[&known], 5, 1);
        assert_eq!((draws.fields.len(), draws.fields[0].as_str(), draws.sets.len()), (1, "b", 5));
        let values: Vec<f64> = draws.sets.iter().map(|sets| sets[0].value().parse().expect("a number")).collect();
        assert!(values.iter().all(|value| (1.0..=4.0).contains(value)) && values.iter().any(|&value| value > 2.0));
    }
}
