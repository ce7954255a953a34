//! A long run of the fuzzing that the tests do for some seconds.
//!
//! `cargo run --release --example fuzz -- N SEED [KIND ...]`: N inputs of every kind of parser, or of the kinds named. The kind
//! `run` compiles and simulates; it runs only when it is named.
//!
//! `... --example fuzz -- show KIND NUMBER SEED` writes one input to standard output. `... -- read KIND FILE` reads one.
//!
//! Findings are written to `target/fuzz`, three of each place; those that were mended belong in `tests/corpus`.

#![expect(clippy::print_stdout, reason = "a command")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[path = "../tests/fuzz/mod.rs"]
mod fuzz;

use fuzz::kinds::{Bench, Kind, parsers, runs};
use fuzz::{Ending, Seeds, catch_quietly, input, read};
// `tests/fuzz` draws its pairs by this name, in the tests too.
use rdusim_testing::random;

/// Inputs after which what was seen is printed.
const TOLD_EVERY: u64 = 1_000_000;

/// What was seen of a kind.
#[derive(Default, Clone)]
struct Seen {
    inputs: u64,
    read: u64,
    largest_bytes: usize,
    slowest: Duration,
    slowest_number: u64,
}

/// All that was seen.
#[derive(Default)]
struct Campaign {
    seen: BTreeMap<&'static str, Seen>,
    /// By kind and place: how often.
    findings: BTreeMap<String, u64>,
}

impl Campaign {
    fn note(&mut self, kind: &Kind, seed: u64, number: u64, bytes: &[u8], ending: &Ending, took: Duration) {
        let seen = self.seen.entry(kind.name).or_default();
        seen.inputs += 1;
        seen.read += u64::from(*ending == Ending::Read);
        seen.largest_bytes = seen.largest_bytes.max(bytes.len());
        if took > seen.slowest {
            (seen.slowest, seen.slowest_number) = (took, number);
        }
        let place = match ending {
            Ending::Read | Ending::Refused => return,
            Ending::Panicked(message) => format!("{}: panicked at {message}", kind.name),
            Ending::Slow => format!("{}: slow", kind.name),
        };
        // Messages hold numbers of the input: findings are told apart by their place.
        let place: String = place.chars().take(70).collect();
        let count = self.findings.entry(place.clone()).or_default();
        *count += 1;
        if *count <= 3 {
            let path = PathBuf::from(format!("target/fuzz/{}-{seed}-{number}", kind.name));
            let written =
                fs::write(&path, bytes).map_or_else(|error| error.to_string(), |()| path.display().to_string());
            println!("FOUND kind {} seed {seed} number {number}: {ending:?} after {took:.3?}: {written}", kind.name);
        }
    }

    fn table(&self) -> String {
        let mut text = "kind          inputs      read    largest B  slowest ms  (number)\n".to_owned();
        for (name, seen) in &self.seen {
            let slowest = seen.slowest.as_secs_f64() * 1e3;
            let _ = writeln!(
                text,
                "{name:<12} {:>9} {:>9} {:>10} {slowest:>11.1}  ({})",
                seen.inputs, seen.read, seen.largest_bytes, seen.slowest_number
            );
        }
        let inputs: u64 = self.seen.values().map(|seen| seen.inputs).sum();
        let findings: u64 = self.findings.values().sum();
        text + &format!("{inputs} inputs, {findings} findings in {} places\n", self.findings.len())
    }
}

/// What a thread reads now, to be told if it never ends.
struct Now {
    kind: &'static str,
    number: u64,
    since: Instant,
}

fn campaign(inputs: u64, seed: u64, names: &[String]) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all("target/fuzz")?;
    catch_quietly();
    let threads = std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    let (next, campaign) = (AtomicU64::new(0), Mutex::new(Campaign::default()));
    let now: Vec<Mutex<Option<Now>>> = (0..threads).map(|_| Mutex::new(None)).collect();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let mut workers = Vec::new();
        for (thread, now) in now.iter().enumerate() {
            let (next, campaign) = (&next, &campaign);
            let work = move || worker(thread, inputs, seed, names, (next, campaign, now));
            workers.push(std::thread::Builder::new().name(format!("fuzz-{thread}")).spawn_scoped(scope, work)?);
        }
        let now = &now;
        scope.spawn(move || {
            while is_done
                .recv_timeout(Duration::from_secs(30))
                .is_err_and(|e| e == std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                for now in now.iter().filter_map(|now| now.lock().ok()) {
                    if let Some(Now { kind, number, since }) =
                        now.as_ref().filter(|now| now.since.elapsed().as_secs() > 20)
                    {
                        println!("STILL kind {kind} seed {seed} number {number}: {:.0?}", since.elapsed());
                    }
                }
            }
        });
        for worker in workers {
            worker.join().map_err(|_| "a worker panicked outside of a reader")?;
        }
        drop(done);
        Ok(())
    })?;
    let campaign = campaign.into_inner().map_err(|_| "a worker panicked")?;
    println!("{}", campaign.table());
    if campaign.findings.is_empty() { Ok(()) } else { Err("there are findings".into()) }
}

type Shared<'a> = (&'a AtomicU64, &'a Mutex<Campaign>, &'a Mutex<Option<Now>>);

#[expect(clippy::disallowed_methods, reason = "an input that never ends is told")]
fn worker(thread: usize, inputs: u64, seed: u64, names: &[String], (next, campaign, now): Shared<'_>) {
    let bench = Bench::new();
    let kinds = wanted(&bench, names);
    let seeds: Vec<Seeds> = kinds.iter().map(Seeds::of).collect();
    let mut at = fs::File::create(format!("target/fuzz/at-{thread}")).expect("target/fuzz is there");
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= inputs * kinds.len() as u64 {
            return;
        }
        let of_kinds = kinds.len() as u64;
        let (kind, seeds) = (&kinds[(number % of_kinds) as usize], &seeds[(number % of_kinds) as usize]);
        let of_kind = number / of_kinds;
        // For a process that ends at once: the stack overflows, memory runs out.
        let line = format!("{} {of_kind:>12} {seed}\n", kind.name);
        let _ = std::io::Seek::rewind(&mut at).and_then(|()| at.write_all(format!("{line:<60}").as_bytes()));
        let bytes = input(kind, seeds, seed, of_kind);
        let start = Now { kind: kind.name, number: of_kind, since: Instant::now() };
        *now.lock().expect("no thread panics while it holds this") = Some(start);
        let (mut ending, mut took) = read(kind, &bench, &bytes);
        if ending == Ending::Slow {
            // On a busy machine a thread may just have waited.
            (ending, took) = read(kind, &bench, &bytes);
        }
        *now.lock().expect("no thread panics while it holds this") = None;
        let mut campaign = campaign.lock().expect("no thread panics while it holds this");
        campaign.note(kind, seed, of_kind, &bytes, &ending, took);
        if (number + 1).is_multiple_of(TOLD_EVERY) || (kind.name == "run" && (number + 1).is_multiple_of(5_000)) {
            println!("{}", campaign.table());
        }
    }
}

fn wanted(bench: &Bench, names: &[String]) -> Vec<Kind> {
    if names.is_empty() {
        return parsers(bench);
    }
    let mut kinds = parsers(bench);
    kinds.push(runs());
    kinds.retain(|kind| names.iter().any(|name| name == kind.name));
    kinds
}

#[expect(clippy::disallowed_methods, reason = "tells how long an input takes")]
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let of_kind = |name: &String| {
        let bench = Bench::new();
        let kind = wanted(&bench, std::slice::from_ref(name)).pop();
        kind.map(|kind| (bench, kind)).ok_or_else(|| format!("there is no kind {name}"))
    };
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["show", _, number, seed] => {
            let (_, kind) = of_kind(&arguments[1])?;
            let bytes = input(&kind, &Seeds::of(&kind), seed.parse()?, number.parse()?);
            Ok(std::io::stdout().write_all(&bytes)?)
        }
        ["read", _, file] => {
            let (bench, kind) = of_kind(&arguments[1])?;
            let start = Instant::now();
            let result = (kind.read)(&bench, &fs::read(file)?);
            println!("{result:?} after {:.3?}", start.elapsed());
            Ok(())
        }
        [inputs, seed, ..] => campaign(inputs.parse()?, seed.parse()?, &arguments[2..]),
        _ => {
            println!("usage: fuzz N SEED [KIND ...] | show KIND NUMBER SEED | read KIND FILE");
            Ok(())
        }
    }
}
