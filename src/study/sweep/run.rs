//! Running a study: in parallel, resumable, the same result whatever the order.

mod grounds;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use indexmap::IndexMap;
use rayon::prelude::*;

use crate::cost::Stop;
use crate::diagnostics::Diagnostic;
use crate::interrupt;
use crate::study::StudyError;

use super::evaluate::{Bench, Found, Keys};
use super::fingerprints::fingerprints;
use super::front::{Front, costs};
use super::journal::{Ending, Header, Journal, PartialTable, Record, changed_inputs, read};
use super::limit::PointLimit;
use super::metric::Measured;
use super::results::Results;
use super::row::{csv_lines, row_of};
use super::study::{Compile, Fidelity, Study};

/// Points whose bounds are worked out between two writes to disk.
const BOUNDS_AT_ONCE: usize = 4096;
/// Points between two looks at what can be pruned: the same whatever the number of threads.
const PRUNED_AT_ONCE: usize = 16;

/// A part of a study for one machine of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// From 1.
    pub index: usize,
    /// How many there are.
    pub count: usize,
}

impl Shard {
    /// The whole.
    pub const WHOLE: Self = Self { index: 1, count: 1 };

    fn has(self, point: usize) -> bool {
        point % self.count == self.index - 1
    }
}

/// Runs the points of a shard that the journal in `out` does not have yet. `tick` is called with the points done and the
/// points there are, from any thread. `threads` is their number, or as many as the machine has.
///
/// # Errors
/// Inputs that cannot be read, a study of which no point can be built, and a journal that cannot be written.
pub fn sweep<'a>(
    study: &'a Study,
    shard: Shard,
    threads: Option<usize>,
    out: Option<&Path>,
    tick: &(dyn Fn(usize, usize) + Sync),
) -> Result<Results<'a>, StudyError> {
    sweep_within(study, shard, threads, out, tick, None)
}

/// As [`sweep`], but a point that takes longer than a limit is stopped, recorded as such, and run again by the next sweep whose
/// limit is longer. Compiling what several points share, and running each of them, may take that long each.
///
/// # Errors
/// As there, and a limit for a study that prunes: what it prunes depends on the points that ran.
pub fn sweep_within<'a>(
    study: &'a Study,
    shard: Shard,
    threads: Option<usize>,
    out: Option<&Path>,
    tick: &(dyn Fn(usize, usize) + Sync),
    limit: Option<PointLimit<'_>>,
) -> Result<Results<'a>, StudyError> {
    pool(threads)?.install(|| Runner::open(study, shard, out, tick, limit)?.run())
}

/// Threads of a sweep; without a number as many as the machine has.
pub(super) fn pool(threads: Option<usize>) -> Result<rayon::ThreadPool, Diagnostic> {
    let mut pool = interrupt::pool();
    if let Some(threads) = threads {
        pool = pool.num_threads(threads);
    }
    pool.build().map_err(|error| Diagnostic::new(format!("cannot start threads: {error}")))
}

/// Joins the journals of shards.
///
/// # Errors
/// Journals of other studies, points that are missing, and points that are there twice.
pub fn merge<'a>(study: &'a Study, directories: &[&Path]) -> Result<Results<'a>, StudyError> {
    let mut found: Vec<Option<(Record, &Path)>> = vec![None; study.points.len()];
    let mut warnings = Vec::new();
    let wanted = header_of(study, Shard::WHOLE)?;
    for &directory in directories {
        let (header, held) = read(directory, &|record| study.admits(record))?;
        if header != (Header { shard: header.shard, ..wanted.clone() }) {
            let is_study = header.study == wanted.study && header.rdusim == wanted.rdusim;
            let what =
                if is_study { changed_inputs(&header, &wanted) } else { "of another study or version".to_owned() };
            return Err(Diagnostic::new(format!("`{}` holds the journal {what}", directory.display()))
                .with_help("give the study file, inputs and `--set` that the shards were run with")
                .into());
        }
        warnings.extend(held.damaged);
        for record in held.records {
            let slot = &mut found[record.i];
            if let Some((_, earlier)) = slot {
                let title =
                    format!("point {} is in `{}` and in `{}`", record.i, earlier.display(), directory.display());
                return Err(Diagnostic::new(title).with_help("give every shard once").into());
            }
            *slot = Some((record, directory));
        }
    }
    let missing: Vec<String> =
        found.iter().enumerate().filter(|(_, slot)| slot.is_none()).map(|(index, _)| index.to_string()).collect();
    if let Some(first) = missing.first() {
        let more = if missing.len() > 1 { format!(" and {} more", missing.len() - 1) } else { String::new() };
        let title = format!("point {first}{more} of {} is in none of the shards", study.points.len());
        let run = "run the missing shards, or resume the unfinished ones".to_owned();
        let help = std::iter::once(run).chain(warnings).collect::<Vec<_>>().join("\n");
        return Err(Diagnostic::new(title).with_help(help).into());
    }
    Ok(Results::new(study, found.into_iter().flatten().map(|(record, _)| record)).warning(warnings))
}

pub(super) fn header_of(study: &Study, shard: Shard) -> Result<Header, Diagnostic> {
    Ok(Header {
        rdusim: env!("CARGO_PKG_VERSION").to_owned(),
        study: format!("{:032x}", study.fingerprint),
        inputs: fingerprints(study)?,
        points: study.points.len(),
        shard: (shard.index, shard.count),
    })
}

impl Study {
    /// Whether a record can be of this study: one of its points, and as many cells as such a point has.
    pub(super) fn admits(&self, record: &Record) -> bool {
        let cells = if record.s == Ending::Excluded { 0 } else { self.metrics.len() };
        record.i < self.points.len() && record.m.len() == cells
    }
}

pub(super) struct Runner<'a, 't> {
    study: &'a Study,
    bench: Bench<'a>,
    journal: Journal,
    partial: PartialTable,
    found: Mutex<Vec<Option<Record>>>,
    /// What of the journal is not believed.
    warnings: Vec<String>,
    mine: Vec<usize>,
    /// Other points of the study run elsewhere: that none of these can be built means nothing.
    is_part: bool,
    /// Of every ground, the points whose configurations all its points share; of studies that share them.
    shared: Option<IndexMap<u128, Vec<usize>>>,
    /// The mappings of grounds that richer ones rest on.
    handed_on: Mutex<IndexMap<u128, Arc<Found>>>,
    done: AtomicUsize,
    tick: &'t (dyn Fn(usize, usize) + Sync),
    limit: Option<PointLimit<'t>>,
}

/// A point that is to be compiled and simulated.
struct Todo {
    index: usize,
    keys: Keys,
}

impl<'a, 't> Runner<'a, 't> {
    fn open(
        study: &'a Study,
        shard: Shard,
        out: Option<&Path>,
        tick: &'t (dyn Fn(usize, usize) + Sync),
        limit: Option<PointLimit<'t>>,
    ) -> Result<Self, StudyError> {
        if shard != Shard::WHOLE {
            Self::refuse_pruning(study, "be split into shards")?;
        }
        if limit.is_some() {
            Self::refuse_pruning(study, "have a limit of time")?;
        }
        let patience_ms = limit.map_or(u64::MAX, |limit| limit.milliseconds);
        // Inputs first: nothing is written for a study that cannot run.
        let bench = Bench::open(study)?;
        let mut found = vec![None; study.points.len()];
        let mut warnings = Vec::new();
        let (journal, partial) = match out {
            None => (Journal::none(), PartialTable::none()),
            Some(directory) => {
                let is_mine = |record: &Record| study.admits(record) && shard.has(record.i);
                let (journal, held) = Journal::open(directory, &header_of(study, shard)?, &is_mine)?;
                for record in held.records.into_iter().filter(|record| record.patience_ms() >= patience_ms) {
                    let index = record.i;
                    found[index] = Some(record);
                }
                warnings = held.damaged;
                let done = found.iter().flatten().filter(|record: &&Record| record.s != Ending::Excluded);
                let rows = done.map(|record| row_of(study, record.i, &record.m));
                let lines = csv_lines(std::iter::once(study.columns.clone()).chain(rows));
                (journal, PartialTable::open(directory, &lines)?)
            }
        };
        let mine: Vec<usize> = (0..study.points.len()).filter(|&index| shard.has(index)).collect();
        let done = AtomicUsize::new(mine.iter().filter(|&&index| found[index].is_some()).count());
        let found = Mutex::new(found);
        let runner = Self::unrecorded(study, bench, mine, tick);
        Ok(Self { journal, partial, found, warnings, is_part: false, done, limit, ..runner })
    }

    /// A runner of some points without a journal, of which nothing is done.
    fn unrecorded(
        study: &'a Study,
        bench: Bench<'a>,
        mine: Vec<usize>,
        tick: &'t (dyn Fn(usize, usize) + Sync),
    ) -> Self {
        Self {
            study,
            bench,
            journal: Journal::none(),
            partial: PartialTable::none(),
            found: Mutex::new(vec![None; study.points.len()]),
            warnings: Vec::new(),
            mine,
            is_part: true,
            shared: None,
            handed_on: Mutex::default(),
            done: AtomicUsize::new(0),
            tick,
            limit: None,
        }
    }

    /// Some points, whose records are not kept on disk.
    pub(super) fn of_points(
        study: &'a Study,
        indices: &[usize],
        tick: &'t (dyn Fn(usize, usize) + Sync),
    ) -> Result<Self, StudyError> {
        Self::refuse_pruning(study, "be run in parts")?;
        if let Some(index) = indices.iter().find(|&&index| index >= study.points.len()) {
            return Err(Diagnostic::new(format!("there is no point {index} of {}", study.points.len())).into());
        }
        Ok(Self::unrecorded(study, Bench::open(study)?, indices.to_vec(), tick))
    }

    /// The same, but none of them being possible is an error: they stand for the whole study.
    pub(super) fn refusing_all(self) -> Self {
        Self { is_part: false, ..self }
    }

    pub(super) fn refuse_pruning(study: &Study, what: &str) -> Result<(), Diagnostic> {
        if study.pareto.as_ref().is_some_and(|pareto| pareto.prune) {
            let title = format!("a study that prunes cannot {what}: what is pruned depends on all points");
            return Err(Diagnostic::new(title).with_help("set `prune = false`, or run it whole"));
        }
        Ok(())
    }

    fn run(self) -> Result<Results<'a>, StudyError> {
        let study = self.study;
        let (records, warnings) = self.records()?;
        Ok(Results::new(study, records.into_iter()).warning(warnings))
    }

    /// What came of every point, in their order, and what of the journal is not believed.
    pub(super) fn records(mut self) -> Result<(Vec<Record>, Vec<String>), StudyError> {
        if self.study.compile == Compile::Shared {
            self.share();
        }
        let pending: Vec<usize> = {
            let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            self.mine.iter().copied().filter(|&index| found[index].is_none()).collect()
        };
        (self.tick)(self.done.load(Ordering::Relaxed), self.mine.len());
        match self.study.fidelity {
            Fidelity::Bound => self.bounds(&pending)?,
            Fidelity::Simulated(_) => {
                let todo = self.sort_out(&pending)?;
                match &self.study.pareto {
                    Some(pareto) if pareto.prune => self.pruned(todo)?,
                    _ => self.simulate(&todo)?,
                }
            }
        }
        let found = self.found.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok((found.into_iter().flatten().collect(), self.warnings))
    }

    /// Puts records on disk and into the list.
    fn keep(&self, records: Vec<Record>) -> Result<(), StudyError> {
        if records.is_empty() {
            return Ok(());
        }
        self.journal.append(&records)?;
        let done = records.iter().filter(|record| record.s != Ending::Excluded);
        self.partial.append(&csv_lines(done.map(|record| row_of(self.study, record.i, &record.m))))?;
        let done = self.done.fetch_add(records.len(), Ordering::Relaxed) + records.len();
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        for record in records {
            let index = record.i;
            found[index] = Some(record);
        }
        (self.tick)(done, self.mine.len());
        Ok(())
    }

    /// Lower bounds of the graph: nothing is compiled, so nothing is shared but the inputs.
    fn bounds(&self, pending: &[usize]) -> Result<(), StudyError> {
        let mut first_refusal = None;
        for some in pending.chunks(BOUNDS_AT_ONCE) {
            let answers: Vec<Result<(Record, Option<Diagnostic>), Diagnostic>> =
                some.par_iter().with_min_len(16).map(|&index| self.bound(index)).collect();
            let mut records = Vec::with_capacity(some.len());
            for answer in answers {
                let (record, refusal) = answer?;
                first_refusal = first_refusal.or(refusal);
                records.push(record);
            }
            self.refuse_if_nothing_runs(&records, pending, first_refusal.as_ref())?;
            self.keep(records)?;
        }
        Ok(())
    }

    fn bound(&self, index: usize) -> Result<(Record, Option<Diagnostic>), Diagnostic> {
        let point = &self.study.points.get(index);
        let built = match self.bench.built(&self.bench.setting(point)) {
            Ok(built) => built,
            Err(error) => return Ok((self.refused(index, &error), Some(error))),
        };
        if !self.bench.holds(point, &built)? {
            return Ok((Record { i: index, s: Ending::Excluded, m: Vec::new() }, None));
        }
        let measured = self.bench.measured(&built, &[], Stop::NEVER);
        Ok((Record { i: index, s: Ending::Ok, m: self.bench.cells(Some(&built), &measured) }, None))
    }

    fn refused(&self, index: usize, error: &Diagnostic) -> Record {
        let why = Measured::Refused(format!("refused: {}", error.title()));
        Record { i: index, s: Ending::Refused, m: self.bench.cells(None, &why) }
    }

    /// A study of which no point can be built is a mistake, not a result.
    fn refuse_if_nothing_runs(
        &self,
        records: &[Record],
        pending: &[usize],
        refusal: Option<&Diagnostic>,
    ) -> Result<(), StudyError> {
        let nothing = !self.is_part
            && pending.len() == self.mine.len()
            && self.done.load(Ordering::Relaxed) == 0
            && records.iter().all(|record| record.s == Ending::Refused);
        match refusal {
            Some(error) if nothing => Err(self.bench.told_at_axis(error.clone()).into()),
            _ => Ok(()),
        }
    }

    /// Which points are to be run; the others are recorded at once.
    fn sort_out(&self, pending: &[usize]) -> Result<Vec<Todo>, StudyError> {
        enum Sorted {
            Done(Record, Option<Diagnostic>),
            Todo(Todo),
        }
        let sort = |&index: &usize| -> Result<Sorted, Diagnostic> {
            let point = &self.study.points.get(index);
            let setting = self.bench.setting(point);
            let refused = |error: Diagnostic| Sorted::Done(self.refused(index, &error), Some(error));
            let built = match self.bench.built(&setting) {
                Ok(built) => built,
                Err(error) => return Ok(refused(error)),
            };
            if !self.bench.holds(point, &built)? {
                return Ok(Sorted::Done(Record { i: index, s: Ending::Excluded, m: Vec::new() }, None));
            }
            Ok(match self.bench.keys(&setting) {
                Some(keys) => Sorted::Todo(Todo { index, keys }),
                None => refused(Diagnostic::new("the point's fields cannot be read")),
            })
        };
        let sorted: Vec<Result<Sorted, Diagnostic>> = pending.par_iter().map(sort).collect();
        let (mut todo, mut records, mut refusal) = (Vec::new(), Vec::new(), None);
        for answer in sorted {
            match answer? {
                Sorted::Todo(one) => todo.push(one),
                Sorted::Done(record, error) => {
                    records.push(record);
                    refusal = refusal.or(error);
                }
            }
        }
        if todo.is_empty() {
            self.refuse_if_nothing_runs(&records, pending, refusal.as_ref())?;
        }
        self.keep(records)?;
        Ok(todo)
    }

    /// As [`Runner::simulate`], in rounds from the least bound on; before each, points that cannot be on the front any
    /// more are left out. Decisions rest on the results of earlier rounds alone, so they are the same on every run.
    fn pruned(&self, todo: Vec<Todo>) -> Result<(), StudyError> {
        let Some(pareto) = &self.study.pareto else { return Ok(()) };
        let mut by_index: IndexMap<usize, Todo> = todo.into_iter().map(|one| (one.index, one)).collect();
        // Points of the journal take their place in the rounds too.
        let mut order: Vec<(Vec<f64>, usize)> = self
            .mine
            .par_iter()
            .filter_map(|&index| {
                let point = &self.study.points.get(index);
                let built = self.bench.built(&self.bench.setting(point)).ok()?;
                let bounds = self.study.modes.iter().map(|&m| (m, built.bound_cycles(m)));
                let cells = self.bench.cells(Some(&built), &Measured::Bounds(bounds.collect()));
                let row = row_of(self.study, index, &cells);
                Some((costs(&pareto.objectives, &row)?, index))
            })
            .collect();
        order.sort_by(|(a, i), (b, j)| {
            let by_cost = a.iter().zip(b).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne());
            by_cost.unwrap_or(std::cmp::Ordering::Equal).then(i.cmp(j))
        });
        let mut front = Front::default();
        for round in order.chunks(PRUNED_AT_ONCE) {
            let mut run = Vec::new();
            let mut left_out = Vec::new();
            for (bound, index) in round {
                let Some(todo) = by_index.swap_remove(index) else { continue };
                if front.rules_out(bound) {
                    left_out.push(self.prune(*index));
                } else {
                    run.push(todo);
                }
            }
            self.keep(left_out)?;
            self.simulate(&run)?;
            let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            for (_, index) in round {
                let ran = found[*index].as_ref().filter(|record| record.s == Ending::Ok);
                let row = ran.map(|record| row_of(self.study, *index, &record.m));
                if let Some(costs) = row.and_then(|row| costs(&pareto.objectives, &row)) {
                    front.add(*index, costs);
                }
            }
        }
        // Points without a bound, if there are any.
        self.simulate(&by_index.into_values().collect::<Vec<_>>())
    }

    fn prune(&self, index: usize) -> Record {
        let why = Measured::Refused("pruned".to_owned());
        let built = self.bench.built(&self.bench.setting(&self.study.points.get(index))).ok();
        Record { i: index, s: Ending::Pruned, m: self.bench.cells(built.as_ref(), &why) }
    }
}
