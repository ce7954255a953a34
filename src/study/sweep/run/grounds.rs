//! The points of a study, ground by ground: those of one share their configurations.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use indexmap::IndexMap;
use rayon::prelude::*;

use crate::compile::Compiled;
use crate::cost::Stop;
use crate::diagnostics::Diagnostic;
use crate::outcome::Fidelity as RunFidelity;
use crate::study::StudyError;
use crate::study::sweep::evaluate::{Found, Keys};
use crate::study::sweep::families::{Families, Place, resources};
use crate::study::sweep::journal::{Ending, Record};
use crate::study::sweep::limit::status;
use crate::study::sweep::metric::Measured;
use crate::study::sweep::shared::{MOST_COMPILED, rates, spread};
use crate::study::sweep::study::{Compile, Fidelity};

use super::{Runner, Todo};

/// Points of a study up to which mappings are handed on: every point's chip is built for it.
const MOST_POINTS_IN_FAMILIES: usize = 1 << 16;

impl Runner<'_, '_> {
    /// Compiles once for all points of one ground, and simulates once for all of one content; grounds behind those that are poorer.
    pub(super) fn simulate(&self, todo: &[Todo]) -> Result<(), StudyError> {
        let mut grounds: IndexMap<u128, IndexMap<u128, Vec<usize>>> = IndexMap::new();
        for point in todo {
            grounds.entry(point.keys.ground).or_default().entry(point.keys.content).or_default().push(point.index);
        }
        let families = self.families();
        let mut levels = families.levels(grounds.keys().copied());
        while let Some(level) = (!levels.is_empty()).then(|| levels.remove(0)) {
            let contents = |ground: &u128| -> Vec<Vec<usize>> {
                grounds.get(ground).map(|contents| contents.values().cloned().collect()).unwrap_or_default()
            };
            let level: Vec<(u128, Vec<Vec<usize>>)> = level.iter().map(|ground| (*ground, contents(ground))).collect();
            self.one_level(&level)?;
            // What no ground to come rests on is let go; of a study that prunes, rounds are to come.
            if self.study.pareto.as_ref().is_some_and(|pareto| pareto.prune) {
                continue;
            }
            let mut handed_on = self.handed_on.lock().unwrap_or_else(PoisonError::into_inner);
            let is_needed = |ground: &u128| levels.iter().flatten().any(|of| families.poorer(*of).contains(ground));
            handed_on.retain(|ground, _| is_needed(ground));
        }
        Ok(())
    }

    /// Grounds that do not rest on each other.
    fn one_level(&self, grounds: &[(u128, Vec<Vec<usize>>)]) -> Result<(), StudyError> {
        // A thread takes a ground when it has ended one, never while it waits for a part of another: a point's time would be both's.
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(Ok(())));
        rayon::broadcast(|_| {
            while let Some((ground, contents)) = grounds.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = self.one_ground(*ground, contents) {
                    next.store(grounds.len(), Ordering::Relaxed);
                    *failed.lock().unwrap_or_else(PoisonError::into_inner) = Err(error);
                }
            }
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which mappings compete where; none unless every point is compiled and run by the event engine.
    fn families(&self) -> &Families {
        let study = self.study;
        let is_seeded = study.compile == Compile::EveryPoint
            && study.fidelity == Fidelity::Simulated(RunFidelity::Event)
            && study.points.len() <= MOST_POINTS_IN_FAMILIES;
        self.bench.families(|| {
            if !is_seeded {
                return Families::default();
            }
            let place = |index: usize| {
                let point = &study.points.get(index);
                let setting = self.bench.setting(point);
                let built = self.bench.built(&setting).ok()?;
                let chip = built.chip.rdu()?;
                let Keys { ground, family, .. } = self.bench.keys(&setting)?;
                let has = resources(chip);
                self.bench.holds(point, &built).ok()?.then_some(Place { ground, family, point: index, has })
            };
            let places: Vec<Option<Place>> = (0..study.points.len()).into_par_iter().map(place).collect();
            Families::new(places.into_iter().flatten())
        })
    }

    fn ground(&self, point: usize) -> Option<u128> {
        Some(self.bench.keys(&self.bench.setting(&self.study.points.get(point)))?.ground)
    }

    /// Of every ground of the whole study, whatever is done of it, the points that are compiled for all of it.
    pub(super) fn share(&mut self) {
        let place = |index: usize| {
            let point = &self.study.points.get(index);
            let setting = self.bench.setting(point);
            let built = self.bench.built(&setting).ok()?;
            let ground = self.bench.keys(&setting)?.ground;
            self.bench.holds(point, &built).ok()?.then(|| (ground, index, rates(&built.chip)))
        };
        let places: Vec<_> = (0..self.study.points.len()).into_par_iter().filter_map(place).collect();
        let mut grounds: IndexMap<u128, (Vec<usize>, Vec<Vec<f64>>)> = IndexMap::new();
        for (ground, index, rates) in places {
            let (points, places) = grounds.entry(ground).or_default();
            points.push(index);
            places.push(rates);
        }
        let compiled_for = |(ground, (points, places)): (u128, (Vec<usize>, Vec<Vec<f64>>))| {
            (ground, spread(&places, MOST_COMPILED).into_iter().map(|at| points[at]).collect())
        };
        self.shared = Some(grounds.into_iter().map(compiled_for).collect());
    }

    fn one_ground(&self, ground: u128, contents: &[Vec<usize>]) -> Result<(), StudyError> {
        let families = self.families();
        let Some(first) = contents.iter().flatten().next().copied().or(families.point(ground)) else { return Ok(()) };
        // A caller that wants to stop unwinds from here, before the next mapping is looked for.
        (self.tick)(self.done.load(Ordering::Relaxed), self.mine.len());
        let shared = self.shared.as_ref().and_then(|shared| shared.get(&self.ground(first)?));
        let alone = [first];
        let compiled_for = shared.map_or(&alone[..], |points| points);
        let poorer: Vec<Arc<Found>> = {
            let handed_on = self.handed_on.lock().unwrap_or_else(PoisonError::into_inner);
            families.poorer(ground).iter().filter_map(|ground| handed_on.get(ground).cloned()).collect()
        };
        let known = self.handed_on.lock().unwrap_or_else(PoisonError::into_inner).get(&ground).cloned();
        let configurations = self.until(|stop| {
            if let Some(known) = known {
                return vec![Ok(known.compiled().to_vec())];
            }
            let compile = |&point: &usize| {
                let point = self.study.points.get(point);
                let setting = self.bench.setting(&point);
                let own = self.bench.configurations(&setting, stop);
                if poorer.is_empty() {
                    own
                } else {
                    self.bench.with_poorer(&self.bench.built(&setting)?, own, &poorer, stop)
                }
            };
            compiled_for.par_iter().map(compile).collect::<Vec<Result<Vec<Compiled>, Diagnostic>>>()
        });
        if let Some([Ok(found)]) = configurations.as_deref().filter(|_| families.point(ground).is_some()) {
            let built = self.bench.built(&self.bench.setting(&self.study.points.get(first)))?;
            if let Some(found) = Found::new(built, found.clone()) {
                self.handed_on.lock().unwrap_or_else(PoisonError::into_inner).insert(ground, Arc::new(found));
            }
        }
        contents.par_iter().try_for_each(|indices| self.one_content(indices, configurations.as_deref()))
    }

    /// Runs all points of one content; without configurations, they were stopped before there were any.
    fn one_content(
        &self,
        indices: &[usize],
        configurations: Option<&[Result<Vec<Compiled>, Diagnostic>]>,
    ) -> Result<(), StudyError> {
        let Some(first) = indices.first() else { return Ok(()) };
        let point = self.study.points.get(*first);
        let setting = self.bench.setting(&point);
        let built = self.bench.built(&setting)?;
        let measured = configurations.and_then(|configurations| {
            self.until(|stop| {
                let measured = self.bench.best_measured(&built, configurations, stop);
                self.bench.with_ranges(measured, &setting, &built, configurations, stop)
            })
        });
        let (ending, measured) = match (measured, self.limit) {
            (Some(Measured::Refused(why)), _) => (Ending::Refused, Measured::Refused(format!("refused: {why}"))),
            (Some(measured), _) => (Ending::Ok, measured),
            (None, limit) => {
                let milliseconds = limit.map_or(0, |limit| limit.milliseconds);
                (Ending::TimedOut(milliseconds), Measured::Refused(status(milliseconds)))
            }
        };
        let cells = self.bench.cells(Some(&built), &measured);
        self.keep(indices.iter().map(|&i| Record { i, s: ending, m: cells.clone() }).collect())
    }

    /// Does work within the limit of time, if there is one; `None` if it was stopped.
    fn until<T>(&self, work: impl FnOnce(Stop<'_>) -> T) -> Option<T> {
        let Some(limit) = self.limit else { return Some(work(Stop::NEVER)) };
        let is_over = (limit.start)();
        let stop = Stop::when(&*is_over);
        stop.caught(|| work(stop))
    }
}
