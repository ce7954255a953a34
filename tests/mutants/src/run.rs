//! Tests under mutants: which test reaches which mutant, then for each mutant the tests that reach it until one fails.

#![expect(clippy::disallowed_methods, reason = "tests are timed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::tree::{Home, Outcome, Places, Sampled, Tests, read_lines};

/// Tests that depend on the clock, on the text of the sources or on a browser.
const LEFT_OUT: [&str; 5] = ["architecture::", "language::", "page::", "stopped::", "timeout::"];

/// Address space of a test, KiB: a mutant may ask for memory without end.
const MEMORY_KIB: u64 = 8 << 20;

/// A test without a mutant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Reached {
    /// `main` or the name of a crate's library, and the test's name.
    pub(crate) binary: String,
    pub(crate) test: String,
    pub(crate) seconds: f64,
    pub(crate) passed: bool,
    /// Numbers of the mutants that it reaches.
    pub(crate) mutants: Vec<u32>,
}

/// What came of a mutant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) mutant: String,
    pub(crate) caught: bool,
    /// The test that failed.
    pub(crate) by: Option<String>,
    pub(crate) timed_out: bool,
    /// Tests that reach the mutant.
    pub(crate) reaching: usize,
    /// Those that passed; they are not run again.
    pub(crate) passed: BTreeSet<String>,
    pub(crate) seconds: f64,
}

enum Ending {
    Passed,
    Failed,
    TimedOut,
}

struct Runner<'a> {
    places: &'a Places,
    tests: Tests,
}

impl<'a> Runner<'a> {
    fn new(places: &'a Places) -> Outcome<Self> {
        let tests = serde_json::from_str(&fs::read_to_string(&places.tests)?)?;
        Ok(Self { places, tests })
    }

    fn binary(&self, name: &str) -> Outcome<&Path> {
        Ok(self.tests.0.get(name).ok_or(format!("no test binary {name}"))?)
    }

    /// The folder of the package whose tests a binary holds.
    fn folder(&self, binary: &str) -> PathBuf {
        let name = binary.strip_prefix("rdusim_");
        name.map_or(self.places.tree.clone(), |name| self.places.tree.join("crates").join(name))
    }

    fn names(&self, binary: &str) -> Outcome<Vec<String>> {
        let mut command = Command::new(self.binary(binary)?);
        let output = command.args(["--list", "--format", "terse"]).current_dir(&self.places.tree).output()?;
        let text = String::from_utf8(output.stdout)?;
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(ToOwned::to_owned).collect())
    }

    /// Runs one test in a process of its own; with its children it is killed when its time is over.
    fn test(&self, binary: &str, test: &str, variable: (&str, &str), limit: u64) -> Outcome<(Ending, f64)> {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", &limit.to_string(), "sh", "-c"]);
        command.arg(format!("ulimit -v {MEMORY_KIB}; ulimit -c 0; exec \"$0\" \"$@\"")).arg(self.binary(binary)?);
        let folder = self.folder(binary);
        command.args(["--exact", test, "--test-threads", "1"]).current_dir(&folder);
        command.env("CARGO_MANIFEST_DIR", &folder).env("INSTA_UPDATE", "no");
        command.env("PROPTEST_MAX_SHRINK_ITERS", "0").env(variable.0, variable.1);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let start = Instant::now();
        let status = command.status()?;
        let seconds = start.elapsed().as_secs_f64();
        let ending = match status.success() {
            true => Ending::Passed,
            false if start.elapsed() >= Duration::from_secs(limit) => Ending::TimedOut,
            false => Ending::Failed,
        };
        Ok((ending, seconds))
    }
}

/// Runs each test once without a mutant and notes which ones it reaches. Tests that were run already are not run again, unless
/// their names begin with one of `again`.
pub(crate) fn reach(places: &Places, jobs: usize, again: &[String], longest_s: u64) -> Outcome<()> {
    let runner = Runner::new(places)?;
    let sampled: Vec<Sampled> = read_lines(&places.mutants)?;
    let modules: BTreeSet<&str> = sampled.iter().map(|mutant| mutant.module.as_str()).collect();
    let homes = homes(places, modules)?;
    let before: Vec<Reached> = read_lines(&places.reached).unwrap_or_default();
    let done: BTreeSet<_> = before.iter().map(|reached| (reached.binary.as_str(), reached.test.as_str())).collect();
    let mut waiting = Vec::new();
    for binary in runner.tests.0.keys() {
        for test in runner.names(binary)? {
            let wanted = match binary.as_str() {
                "main" => !LEFT_OUT.iter().any(|left_out| test.starts_with(left_out)),
                _ => homes.iter().any(|(module, home)| is_of_module(binary, &test, module, home)),
            };
            let asked_again = again.iter().any(|start| test.starts_with(start));
            if wanted && (asked_again || !done.contains(&(binary.as_str(), test.as_str()))) {
                waiting.push((binary.as_str(), test));
            }
        }
    }
    let file = Mutex::new(append(&places.reached)?);
    let told = AtomicUsize::new(0);
    in_parallel(jobs, waiting.len(), |index| {
        let (binary, test) = &waiting[index];
        let scratch = places.scratch.join(format!("reached-{index}-{}", std::process::id()));
        let variable = ("RDUSIM_MUTANTS_REACHED", scratch.to_str().ok_or("a path that is not UTF-8")?);
        let (ending, seconds) = runner.test(binary, test, variable, longest_s)?;
        let text = fs::read_to_string(&scratch).unwrap_or_default();
        let _ = fs::remove_file(&scratch);
        let mutants: BTreeSet<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        let reached = Reached {
            binary: (*binary).to_owned(),
            test: test.clone(),
            seconds,
            passed: matches!(ending, Ending::Passed),
            mutants: mutants.into_iter().collect(),
        };
        write_line(&file, &reached)?;
        let told = told.fetch_add(1, Ordering::Relaxed) + 1;
        if told.is_multiple_of(50) || !reached.passed {
            let passed = match ending {
                Ending::Passed => "passed",
                Ending::Failed => "FAILED without a mutant and is left out",
                Ending::TimedOut => "takes TOO LONG and is left out",
            };
            eprintln!("{told} of {}: {} {test} {passed} {seconds:.1} s", waiting.len(), binary);
        }
        Ok(())
    })
}

/// The crates of modules.
fn homes<'m>(places: &Places, modules: impl IntoIterator<Item = &'m str>) -> Outcome<BTreeMap<&'m str, Home>> {
    modules.into_iter().map(|module| Ok((module, Home::of(&places.repository, module)?))).collect()
}

/// Whether a test is one of a module's unit tests.
fn is_of_module(binary: &str, test: &str, module: &str, home: &Home) -> bool {
    binary == home.library && test.starts_with(&home.prefix(module))
}

/// Which mutants `run` takes, and how much it spends on each.
pub(crate) struct Request {
    pub(crate) jobs: usize,
    /// The `shard.0`-th of `shard.1` parts, from 1.
    pub(crate) shard: (u32, u32),
    /// Sum of the usual times of the tests that a mutant is given, s.
    pub(crate) seconds: f64,
    /// Those that were missed before are run again.
    pub(crate) again: bool,
    /// No mutant is begun after this time, min.
    pub(crate) minutes: f64,
    /// Modules, all if empty.
    pub(crate) modules: Vec<String>,
}

/// How often a test was run and failed: what failed often for its time is tried first.
#[derive(Clone, Copy, Default)]
struct History {
    runs: u32,
    failures: u32,
}

/// What is known of each test from earlier runs.
fn history(tests: &[Reached], verdicts: &BTreeMap<String, Verdict>) -> Vec<History> {
    let mut known: BTreeMap<&str, History> = BTreeMap::new();
    for verdict in verdicts.values() {
        for test in verdict.passed.iter().chain(&verdict.by) {
            known.entry(test).or_default().runs += 1;
        }
        if let Some(test) = &verdict.by {
            known.entry(test).or_default().failures += 1;
        }
    }
    tests.iter().map(|test| known.get(test.test.as_str()).copied().unwrap_or_default()).collect()
}

/// Runs the mutants that have no result.
pub(crate) fn run(places: &Places, request: &Request) -> Outcome<()> {
    let runner = Runner::new(places)?;
    let sampled: Vec<Sampled> = read_lines(&places.mutants)?;
    let tests = usual(places)?;
    let verdicts = verdicts(places);
    let mut waiting: Vec<_> = sampled.iter().filter(|mutant| is_asked_for(mutant, request, &verdicts)).collect();
    waiting.sort_by_key(|mutant| (mutant.id.wrapping_mul(0x9E37_79B1), mutant.id));
    let file = Mutex::new(append(&places.results)?);
    let history = Mutex::new(history(&tests, &verdicts));
    let (start, told) = (Instant::now(), AtomicUsize::new(0));
    in_parallel(request.jobs, waiting.len(), |index| {
        if start.elapsed().as_secs_f64() > request.minutes * 60.0 {
            return Ok(());
        }
        let mutant = waiting[index];
        let passed = verdicts.get(&mutant.name()).map(|verdict| verdict.passed.clone()).unwrap_or_default();
        let verdict = try_mutant(&runner, mutant, &tests, &history, request.seconds, passed)?;
        write_line(&file, &verdict)?;
        let told = told.fetch_add(1, Ordering::Relaxed) + 1;
        let (name, seconds) = (&verdict.mutant, verdict.seconds);
        let (passed, reaching) = (verdict.passed.len(), verdict.reaching);
        let missed = || format!("MISSED by {passed} of {reaching} tests");
        let ending = verdict.by.as_ref().map_or_else(missed, |test| format!("caught by {test}"));
        eprintln!("{told} of {}: {ending} in {seconds:.1} s: {name}", waiting.len());
        Ok(())
    })
}

fn is_asked_for(mutant: &Sampled, request: &Request, verdicts: &BTreeMap<String, Verdict>) -> bool {
    let of_module = request.modules.is_empty() || request.modules.contains(&mutant.module);
    let of_shard = mutant.id % request.shard.1 == request.shard.0 % request.shard.1;
    let open = verdicts.get(&mutant.name()).is_none_or(|verdict| request.again && !verdict.caught);
    mutant.viable && of_module && of_shard && open
}

/// The last result of each mutant.
pub(crate) fn verdicts(places: &Places) -> BTreeMap<String, Verdict> {
    let lines: Vec<Verdict> = read_lines(&places.results).unwrap_or_default();
    lines.into_iter().map(|verdict| (verdict.mutant.clone(), verdict)).collect()
}

/// The tests that pass without a mutant, each as it was last run.
fn usual(places: &Places) -> Outcome<Vec<Reached>> {
    let all: Vec<Reached> = read_lines(&places.reached)?;
    let last: BTreeMap<_, _> = all.into_iter().map(|test| ((test.binary.clone(), test.test.clone()), test)).collect();
    Ok(last.into_values().filter(|test| test.passed).collect())
}

fn try_mutant(
    runner: &Runner,
    mutant: &Sampled,
    tests: &[Reached],
    history: &Mutex<Vec<History>>,
    seconds: f64,
    passed: BTreeSet<String>,
) -> Outcome<Verdict> {
    let home = Home::of(&runner.places.repository, &mutant.module)?;
    let reaches = |test: &Reached| {
        let is_own = is_of_module(&test.binary, &test.test, &mutant.module, &home);
        test.mutants.binary_search(&mutant.id).is_ok() && (test.binary == "main" || is_own)
    };
    let mut waiting: Vec<usize> = (0..tests.len()).filter(|&index| reaches(&tests[index])).collect();
    let reaching = waiting.len();
    waiting.retain(|&index| !passed.contains(&tests[index].test));
    let mut verdict =
        Verdict { mutant: mutant.name(), caught: false, by: None, timed_out: false, reaching, passed, seconds: 0.0 };
    let mut left = seconds;
    loop {
        let known = history.lock().map_err(|_| "a worker failed")?.clone();
        let Some(position) = next_test(&waiting, tests, &known, left, mutant) else { break };
        let index = waiting.swap_remove(position);
        let test = &tests[index];
        left -= test.seconds;
        let limit = (test.seconds * 4.0 + 8.0).ceil() as u64;
        let variable = ("RDUSIM_MUTANT", mutant.id.to_string());
        let (ending, took) = runner.test(&test.binary, &test.test, (variable.0, &variable.1), limit)?;
        verdict.seconds += took;
        let failed = !matches!(ending, Ending::Passed);
        let mut history = history.lock().map_err(|_| "a worker failed")?;
        history[index].runs += 1;
        history[index].failures += u32::from(failed);
        if failed {
            verdict.caught = true;
            verdict.timed_out = matches!(ending, Ending::TimedOut);
            verdict.by = Some(test.test.clone());
            break;
        }
        verdict.passed.insert(test.test.clone());
    }
    Ok(verdict)
}

/// Tests of a file or folder that the mutant's is named like are worth so much more.
const NAMESAKE: f64 = 100.0;

/// Position of the waiting test within the time left that is most likely to fail for its time.
fn next_test(waiting: &[usize], tests: &[Reached], history: &[History], left: f64, mutant: &Sampled) -> Option<usize> {
    let below_source = || mutant.file.trim_end_matches(".rs").split('/').skip_while(|part| *part != "src").skip(1);
    let names = || below_source().filter(|name| *name != mutant.module);
    let worth = |index: usize| {
        let History { runs, failures } = history[index];
        let is_namesake = tests[index].test.split("::").any(|part| names().any(|name| name == part));
        let likely = (f64::from(failures) + 0.2) / (f64::from(runs) + 1.0);
        likely * if is_namesake { NAMESAKE } else { 1.0 } / (tests[index].seconds + 0.05)
    };
    let within = waiting.iter().enumerate().filter(|&(_, &index)| tests[index].seconds <= left);
    within.max_by(|a, b| worth(*a.1).total_cmp(&worth(*b.1))).map(|(position, _)| position)
}

fn append(path: &PathBuf) -> Outcome<fs::File> {
    Ok(OpenOptions::new().create(true).append(true).open(path)?)
}

fn write_line<T: Serialize>(file: &Mutex<fs::File>, item: &T) -> Outcome<()> {
    let line = serde_json::to_string(item)? + "\n";
    Ok(file.lock().map_err(|_| "a worker failed")?.write_all(line.as_bytes())?)
}

/// Does `count` pieces of work with some threads; the first error ends it.
fn in_parallel(jobs: usize, count: usize, work: impl Fn(usize) -> Outcome<()> + Sync) -> Outcome<()> {
    let next = AtomicUsize::new(0);
    let error = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    if let Err(found) = work(index) {
                        next.store(count, Ordering::Relaxed);
                        *error.lock().expect("no thread panics with it") = Some(found.to_string());
                    }
                }
            });
        }
    });
    match error.into_inner() {
        Ok(Some(error)) => Err(error.into()),
        _ => Ok(()),
    }
}
