//! Mappings of an RDU on draws of its uncertain fields.

use indexmap::{IndexMap, IndexSet};

use super::draws::Draws;
use super::held::{Held, leaves_the_configuration};
use super::ranges::Sampled;
use crate::arch::Chip;
use crate::compile::{BaseCache, Compiled, Effort, carried, compile_with};
use crate::diagnostics::Diagnostic;
use crate::input::Override;
use crate::mode::Mode;
use crate::outcome::Fidelity;
use crate::report::DrawEntry;
use crate::study::inputs::run_all;
use crate::workload::Workload;

/// Reads the chip with overrides.
type ChipWith<'a> = dyn Fn(&[Override]) -> Result<Chip, Diagnostic> + Sync + 'a;

/// What is held while fields are drawn.
struct Holding<'a> {
    chip: &'a ChipWith<'a>,
    modes: Vec<Mode>,
    /// The mappings of the chip as it is.
    own: Vec<Held<'a>>,
    /// Those of the chip with one field at an end of its range, where its own mappings are not legal.
    of_ends: Vec<(&'a Override, Vec<Held<'a>>)>,
}

/// A chip with one field at an end of its range, and what was found for it.
struct End<'a> {
    set: &'a Override,
    chip: Chip,
    compiled: Vec<Compiled>,
}

/// Runs the mappings of an RDU on every draw; `chip` reads the chip with overrides.
pub fn of_rdu(
    draws: Draws,
    own: &Chip,
    workload: &Workload,
    compiled: &[Compiled],
    fidelity: Fidelity,
    chip: &ChipWith<'_>,
) -> Sampled {
    let modes: Vec<Mode> = compiled.iter().map(|found| found.configuration.mode).collect();
    let ends = ends(&draws, own, workload, compiled, &modes, chip);
    let holding = Holding {
        chip,
        modes: modes.clone(),
        own: held(own, workload, compiled, fidelity),
        of_ends: ends.iter().map(|end| (end.set, held(&end.chip, workload, &end.compiled, fidelity))).collect(),
    };
    let (points, kept_units) = holding.points(&draws);
    drop(holding);
    Sampled { draws, kept_units, modes, points }
}

fn held<'a>(chip: &'a Chip, workload: &'a Workload, compiled: &'a [Compiled], fidelity: Fidelity) -> Vec<Held<'a>> {
    compiled.iter().map(|found| Held::new(chip, workload, &found.configuration, fidelity)).collect()
}

/// What is found for chips with a field of the file's ranges at an end, where the chip's own mappings cannot run.
fn ends<'a>(
    draws: &'a Draws,
    own: &Chip,
    workload: &Workload,
    compiled: &[Compiled],
    modes: &[Mode],
    chip: &ChipWith<'_>,
) -> Vec<End<'a>> {
    let sets: Vec<&Override> = draws.ends.iter().filter(|set| !leaves_the_configuration(set)).collect();
    let found = run_all(&sets, |set| {
        let chip = chip(std::slice::from_ref(*set)).ok()?;
        if compiled.iter().all(|of| carried(own, &chip, workload, &of.configuration).is_some()) {
            return None;
        }
        let compiled = compile_with(&chip, workload, modes, Effort::Low, &BaseCache::default()).ok()?;
        Some(End { set, chip, compiled })
    });
    found.into_iter().flatten().collect()
}

impl Holding<'_> {
    /// A point for every draw, and in how many of them some units, ports or banks are the file's.
    fn points(&self, draws: &Draws) -> (Vec<Option<Vec<DrawEntry>>>, usize) {
        let whole = run_all(&draws.sets, |sets| self.run(sets));
        let pairs = draws.sets.iter().zip(&whole);
        let without: Vec<&[Override]> =
            pairs.filter(|(_, points)| points.is_none()).map(|(sets, _)| &sets[..]).collect();
        // Of draws on which the mappings have no place: which of their units, ports and banks leave them none by themselves.
        let units = without.iter().flat_map(|sets| sets.iter()).filter(|set| !leaves_the_configuration(set));
        let units: IndexMap<&str, &Override> = units.map(|set| (set.raw(), set)).collect();
        let units: Vec<&Override> = units.into_values().collect();
        let has_place = run_all(&units, |set| self.has_place(set));
        let homeless: IndexSet<&str> =
            units.iter().zip(has_place).filter(|(_, has_place)| !has_place).map(|(set, _)| set.raw()).collect();
        let run_with = |sets: &[Override], is_kept: &dyn Fn(&Override) -> bool| {
            self.run(&sets.iter().filter(|set| is_kept(set)).cloned().collect::<Vec<_>>())
        };
        let in_part = run_all(&without, |sets| {
            run_with(sets, &|set| !homeless.contains(set.raw()))
                .or_else(|| run_with(sets, &|set| leaves_the_configuration(set)))
        });
        let kept_units = in_part.iter().flatten().count();
        let mut in_part = in_part.into_iter();
        let points = whole.into_iter().map(|points| points.or_else(|| in_part.next().flatten())).collect();
        (points, kept_units)
    }

    /// Every mode on a draw by the fastest of the mappings that are held; fused may have the sections of any other mode.
    fn run(&self, sets: &[Override]) -> Option<Vec<DrawEntry>> {
        let chip = (self.chip)(sets).ok()?;
        let candidates = self.candidates(sets);
        let fastest = |entries: Vec<DrawEntry>| entries.into_iter().min_by(|a, b| a.time_s.total_cmp(&b.time_s));
        let of_mode = |mode: usize| fastest(candidates.iter().filter_map(|held| held[mode].run(&chip, sets)).collect());
        let mut points: Vec<DrawEntry> = (0..self.modes.len()).map(of_mode).collect::<Option<_>>()?;
        if let Some(fused) = self.modes.iter().position(|&mode| mode == Mode::Fused) {
            points[fused] = fastest(points.clone())?;
        }
        Some(points)
    }

    /// What may run on a draw: the chip's own mappings, and those of ends of ranges that were drawn.
    fn candidates(&self, sets: &[Override]) -> Vec<&Vec<Held<'_>>> {
        let is_drawn = |end: &Override| sets.iter().any(|set| set.raw() == end.raw());
        let of_ends = self.of_ends.iter().filter(|(end, _)| is_drawn(end)).map(|(_, held)| held);
        of_ends.chain([&self.own]).collect()
    }

    /// Whether every mode has a mapping that runs with one field as it was drawn.
    fn has_place(&self, set: &Override) -> bool {
        let Ok(chip) = (self.chip)(std::slice::from_ref(set)) else { return false };
        let candidates = self.candidates(std::slice::from_ref(set));
        (0..self.modes.len()).all(|mode| candidates.iter().any(|held| held[mode].has_place(&chip)))
    }
}
