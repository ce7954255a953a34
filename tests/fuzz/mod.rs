//! Fuzzing on stable Rust: random changes of valid inputs, of their structure and of their bytes, for every parser and for
//! pairs of chip and graph that are compiled and simulated.
//!
//! An input is a function of its kind, a seed and a number. A reader must return: a panic, a run that is deadlocked or below
//! its bound, and an input that takes too long are findings.

pub(crate) mod change;
pub(crate) mod exported;
pub(crate) mod kinds;
mod matrices;
mod sheets;
pub(crate) mod tree;
pub(crate) mod wire;

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use xxhash_rust::xxh3::xxh3_64;

use change::{change, change_bytes, nudge, one_of};
use kinds::{BETWEEN, Bench, Form, Kind};
use tree::{Format, Tree};
use wire::change_message;

/// A parser takes no longer for an input.
pub(crate) const MOST_PARSE: Duration = Duration::from_secs(1);
/// Compiling and simulating a small pair takes no longer.
pub(crate) const MOST_RUN: Duration = Duration::from_secs(10);

/// What a reader made of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    Read,
    Refused,
    /// It panicked: message and place.
    Panicked(String),
    /// It took too long.
    Slow,
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static IS_READING: Cell<bool> = const { Cell::new(false) };
}

/// From now on a panic of a reader is noted, and said nowhere.
pub(crate) fn catch_quietly() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_READING.get() {
                return before(info);
            }
            let text = info.payload_as_str().unwrap_or("(no message)");
            let at = info.location().map_or_else(String::new, ToString::to_string);
            PANIC.with_borrow_mut(|panic| *panic = Some(format!("{at}: {text}")));
        }));
    });
}

/// How long this process has been on processors, in steps of 10 ms: on a busy machine it waits for one. `None` where the system
/// does not say.
fn on_processor() -> Option<Duration> {
    let told = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Behind the name in parentheses: state and ten more fields, then ticks in user mode and in the kernel.
    let mut fields = told.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(Duration::from_millis(10 * (ticks()? + ticks()?)))
}

/// Reads an input; returns what came of it, and how long it took.
#[expect(clippy::disallowed_methods, reason = "an input that takes too long is a finding")]
pub(crate) fn read(kind: &Kind, bench: &Bench, bytes: &[u8]) -> (Ending, Duration) {
    let (start, busy) = (Instant::now(), on_processor());
    IS_READING.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(|| (kind.read)(bench, bytes)));
    IS_READING.set(false);
    let took =
        start.elapsed().min(busy.zip(on_processor()).map_or(Duration::MAX, |(before, now)| now.saturating_sub(before)));
    let most = if kind.form == Form::Pair { MOST_RUN } else { MOST_PARSE };
    let ending = match result {
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or_default();
            Ending::Panicked(
                PANIC.with_borrow_mut(Option::take).unwrap_or_else(|| format!("on another thread: {text}")),
            )
        }
        Ok(_) if took > most => Ending::Slow,
        Ok(Ok(())) => Ending::Read,
        Ok(Err(_)) => Ending::Refused,
    };
    (ending, took)
}

/// The trees of a kind's seeds, made once.
pub(crate) struct Seeds(Vec<Vec<Tree>>);

impl Seeds {
    pub(crate) fn of(kind: &Kind) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("a seed of a text format is UTF-8");
        let trees = |bytes: &Vec<u8>| match kind.form {
            Form::Tree(format) => vec![Tree::read(format, &text(bytes))],
            Form::Pair => text(bytes).split(BETWEEN).map(|text| Tree::read(Format::Toml, text)).collect(),
            Form::Journal => text(bytes).lines().map(|line| Tree::read(Format::Json, line)).collect(),
            Form::Wire | Form::Bytes => Vec::new(),
        };
        Self(kind.seeds.iter().map(trees).collect())
    }
}

/// The input of a kind with a number: always the same for a seed.
pub(crate) fn input(kind: &Kind, seeds: &Seeds, seed: u64, number: u64) -> Vec<u8> {
    let of_kind = xxh3_64(kind.name.as_bytes());
    let mut rng = Pcg64Mcg::seed_from_u64(xxh3_64(&[of_kind, seed, number].map(u64::to_le_bytes).concat()));
    let rng = &mut rng;
    let at = rng.random_range(0..kind.seeds.len());
    let other = rng.random_range(0..kind.seeds.len());
    let changes = 1 + rng.random_range(0..8u32).leading_zeros().saturating_sub(29);
    let (structured, plain) = match rng.random_range(0..10u32) {
        _ if kind.form == Form::Pair && rng.random_range(0..10u32) > 0 => (changes, 0),
        0..=6 => (changes, 0),
        7 => (changes, 1),
        _ => (0, changes * 2),
    };
    let mut bytes = kind.seeds[at].clone();
    if structured > 0 {
        let mut trees = seeds.0[at].clone();
        for _ in 0..structured {
            if let Some(last) = trees.len().checked_sub(1) {
                let part = rng.random_range(0..=last);
                // Most changes of a pair must leave something that can be compiled.
                if kind.form == Form::Pair && rng.random_range(0..8u32) > 0 {
                    nudge(&mut trees[part], rng);
                    continue;
                }
                let from = one_of(&seeds.0[other], rng).clone();
                change(&mut trees[part], &from, rng);
            }
        }
        match kind.form {
            Form::Tree(format) => bytes = trees[0].text(format).into_bytes(),
            Form::Pair => {
                bytes = trees.iter().map(|tree| tree.text(Format::Toml)).collect::<Vec<_>>().join(BETWEEN).into_bytes();
            }
            Form::Journal => bytes = trees.iter().map(|line| checked(line, rng)).collect::<String>().into_bytes(),
            Form::Wire => (0..structured).for_each(|_| change_message(&mut bytes, &kind.seeds[other], rng)),
            Form::Bytes => (0..structured).for_each(|_| change_bytes(&mut bytes, &kind.seeds[other], rng)),
        }
    }
    for _ in 0..plain {
        change_bytes(&mut bytes, &kind.seeds[other], rng);
    }
    bytes
}

/// A line of a journal, most often with the checksum that it needs to be believed.
fn checked(line: &Tree, rng: &mut Pcg64Mcg) -> String {
    let mut line = line.clone();
    if rng.random_range(0..8u32) == 0 {
        return line.text(Format::Json) + "\n";
    }
    if let Tree::Table(entries) = &mut line {
        entries.retain(|(key, _)| key != "c");
    }
    let json = line.text(Format::Json);
    let body = json.strip_suffix('}').unwrap_or(&json);
    format!("{body},\"c\":\"{:016x}\"}}\n", xxh3_64(body.as_bytes()))
}
