//! Runs the rows of files: setups in parallel, each with one grid of times for all of its rows.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_128;

use super::super::run::SetReport;
use super::journal::Journal;
use super::plan::{self, Loop, Planned, Setup, Sources, TwoKinds};
use super::report;
use super::row::{self, Row, Unread};
use super::simulated::Simulated;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_pod::{self as pod, Grid, Range, Server, Service, System};

/// Hears of rows that are done, of how many.
pub type Progress<'p> = &'p (dyn Fn(usize, usize) + Sync);

/// Rows of files of measured serving points.
#[derive(Debug, Default)]
pub struct Points {
    rows: Vec<Result<Row, Unread>>,
    /// Of the first line of each file.
    sources: Vec<String>,
}

/// A row that can be simulated.
struct Wanted {
    /// Its place among all rows.
    at: usize,
    of: Loop,
    /// A hash of all that its result depends on.
    key: String,
}

/// What the rows of files are simulated as.
struct Plans {
    /// Setups, each with the rows that share its grid, by all that grids depend on.
    setups: BTreeMap<String, (Setup, Vec<Wanted>)>,
    /// Rows of workers of prompts and of tokens, with the hashes that they are found again by.
    apart: Vec<(usize, Box<TwoKinds>, String)>,
}

impl Points {
    /// Adds the rows of a file.
    ///
    /// # Errors
    /// A file that is no table of such rows.
    pub fn add(&mut self, path: &str, text: &str) -> Result<(), Diagnostic> {
        self.rows.extend(row::rows(path, text)?);
        let source = text.lines().next().and_then(|line| line.strip_prefix('#')).unwrap_or("no source given").trim();
        let source = source.trim_start_matches("source:").trim().to_owned();
        if !self.sources.contains(&source) {
            self.sources.push(source);
        }
        Ok(())
    }

    /// What rows are simulated as; reasons of others go to `found`.
    fn plans(&self, sources: &Sources<'_>, found: &mut [Option<Simulated>]) -> Plans {
        let mut setups: BTreeMap<String, (Setup, Vec<Wanted>)> = BTreeMap::new();
        let mut apart: Vec<(usize, Box<TwoKinds>, String)> = Vec::new();
        let mut systems: BTreeMap<&str, Result<Arc<System>, Diagnostic>> = BTreeMap::new();
        let mut models: BTreeMap<(&str, &str), Result<Service, Diagnostic>> = BTreeMap::new();
        for (at, row) in self.rows.iter().enumerate() {
            let Ok(row) = row else { continue };
            let system = systems.entry(&row.system).or_insert_with(|| (sources.system)(&row.system).map(Arc::new));
            let model = models
                .entry((&row.model, &row.precision))
                .or_insert_with(|| (sources.model)(&row.model, &row.precision));
            let planned = match (system, model) {
                (Ok(system), Ok(model)) => plan::planned(row, system, model),
                (Err(error), _) | (_, Err(error)) => Err(error.clone()),
            };
            match planned {
                Ok(Planned::Disaggregated(kinds)) => {
                    let inputs = format!("{} {:?} {kinds:?}", env!("CARGO_PKG_VERSION"), row.system);
                    apart.push((at, kinds, format!("{:032x}", xxh3_128(inputs.as_bytes()))));
                }
                Ok(Planned::Aggregated(setup, of)) => {
                    let name = format!("{:?} {:?} {:?}", row.system, setup.stack, setup.service);
                    let (_, list) = setups.entry(name).or_insert_with(|| (*setup, Vec::new()));
                    list.push(Wanted { at, of, key: String::new() });
                }
                Err(error) => found[at] = Some(Simulated::Refused(reason(&error))),
            }
        }
        Plans { setups, apart }
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Simulates all rows that the journal in `out` does not have yet: the sets `serving-tpot` and `serving-ttft`.
    ///
    /// # Errors
    /// A journal that cannot be written. What cannot be simulated is a row with its reason.
    pub fn run(
        &self,
        sources: &Sources<'_>,
        out: Option<&Path>,
        progress: Progress<'_>,
    ) -> Result<Vec<SetReport>, Diagnostic> {
        let mut found: Vec<Option<Simulated>> = vec![None; self.rows.len()];
        let Plans { mut setups, apart } = self.plans(sources, &mut found);
        let (journal, known) = Journal::open(out)?;
        for (setup, list) in setups.values_mut() {
            let range = range(setup, list);
            let inputs = format!("{} {:?} {range:?}", env!("CARGO_PKG_VERSION"), setup);
            let inputs = xxh3_128(inputs.as_bytes());
            for wanted in list.iter_mut() {
                wanted.key = format!("{:032x}", xxh3_128(format!("{inputs:x} {:?}", wanted.of).as_bytes()));
                found[wanted.at] = known.get(&wanted.key).cloned();
            }
        }
        for (at, _, key) in &apart {
            found[*at] = known.get(key).cloned();
        }
        let open_apart = apart.iter().filter(|(at, ..)| found[*at].is_none()).count();
        let is_open = |wanted: &&Wanted| found[wanted.at].is_none();
        let done = AtomicUsize::new(
            self.rows.len() - open_apart - setups.values().flat_map(|(_, list)| list).filter(is_open).count(),
        );
        progress(done.load(Ordering::Relaxed), self.rows.len());
        let made: Vec<Vec<(usize, Simulated)>> = setups
            .par_iter()
            .map(|(_, (setup, list))| -> Result<_, Diagnostic> {
                let open: Vec<&Wanted> = list.iter().filter(is_open).collect();
                if open.is_empty() {
                    return Ok(Vec::new());
                }
                let grid = grid(setup, &range(setup, list));
                let one = |wanted: &&Wanted| {
                    let simulated = match &grid {
                        Ok(grid) => replayed(setup, &wanted.of, grid),
                        Err(error) => Err(error.clone()),
                    };
                    let simulated = simulated.unwrap_or_else(|error| Simulated::Refused(reason(&error)));
                    journal.append(&[(&wanted.key, &simulated)])?;
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1, self.rows.len());
                    Ok((wanted.at, simulated))
                };
                open.par_iter().map(one).collect()
            })
            .collect::<Result<_, _>>()?;
        let of_two = |(at, kinds, key): &(usize, Box<TwoKinds>, String)| -> Result<(usize, Simulated), Diagnostic> {
            let simulated = apart_simulated(kinds);
            journal.append(&[(key, &simulated)])?;
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, self.rows.len());
            Ok((*at, simulated))
        };
        let two: Vec<(usize, Simulated)> =
            apart.par_iter().filter(|(at, ..)| found[*at].is_none()).map(of_two).collect::<Result<_, _>>()?;
        for (at, simulated) in made.into_iter().flatten().chain(two) {
            found[at] = Some(simulated);
        }
        Ok(report::sets(&self.rows, &found, &self.sources.join("; ")))
    }
}

/// A loop over workers of prompts and of tokens.
fn apart_simulated(kinds: &TwoKinds) -> Simulated {
    match kinds.simulated() {
        Ok((ttft_s, token_s)) => Simulated::Times { ttft_s, token_s: token_s.unwrap_or(ttft_s) },
        Err(error) => Simulated::Refused(reason(&error)),
    }
}

/// What an error says.
fn reason(error: &Diagnostic) -> String {
    error.title().to_owned()
}

/// What the grid of a setup has to cover for all of its rows.
fn range(setup: &Setup, list: &[Wanted]) -> Range {
    let requests = || list.iter().map(|wanted| &wanted.of.requests);
    let chunk = setup.stack.scheduler.chunk();
    Range {
        most_users: list.iter().map(|wanted| wanted.of.users).max().unwrap_or(1),
        prompts: (
            requests().map(|of| of.prompt.0).min().unwrap_or(1),
            requests().map(|of| of.prompt.1).max().unwrap_or(1),
        ),
        most_context: requests().map(|of| of.prompt.1 + of.output.1).max().unwrap_or(1),
        chunk,
    }
}

fn grid(setup: &Setup, range: &Range) -> Result<Grid, Diagnostic> {
    let server = Server::new(&setup.system, &setup.stack, &setup.service)?;
    Grid::new(&server, &setup.service, range)
}

/// A closed loop on a known grid.
fn replayed(setup: &Setup, of: &Loop, grid: &Grid) -> Result<Simulated, Diagnostic> {
    let (requests, policy) = of.policy(setup);
    let streamed = pod::stream(&setup.system, &setup.stack, &setup.service, None, &requests, &policy, Some(grid))?;
    let ttft_s = streamed.ttft_s.mean;
    // Answers of one token have no other time than that to the first.
    let token_s = streamed.token_s.map_or(ttft_s, |of| of.mean);
    Ok(Simulated::Times { ttft_s, token_s })
}
