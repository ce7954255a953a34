//! Fuzzing for some seconds, and every input that ever broke something. A long run: `cargo run --release --example fuzz -- N SEED`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::fuzz_kinds::kinds::{Bench, Kind, parsers, runs};
use crate::fuzz_kinds::{Ending, MOST_PARSE, MOST_RUN, Seeds, catch_quietly, input, read};

const SEED: u64 = 1;
/// Inputs of every kind of parser.
const PARSED: u64 = 60;
/// Pairs that are compiled and simulated.
const RUN: u64 = 32;

#[track_caller]
fn must_end(kind: &Kind, bench: &Bench, bytes: &[u8], about: &str) -> (Ending, Duration) {
    let (ending, took) = read(kind, bench, bytes);
    assert!(!matches!(ending, Ending::Panicked(_)), "{about}: {ending:?}");
    (ending, took)
}

/// The most that an input may take here: builds with checks are slower, and tests run beside each other.
fn patience(kind: &Kind) -> Duration {
    10 * if kind.name == "run" { MOST_RUN } else { MOST_PARSE }
}

#[test]
fn no_input_breaks_a_parser() {
    catch_quietly();
    let bench = Bench::new();
    for kind in parsers(&bench) {
        let seeds = Seeds::of(&kind);
        for (at, bytes) in kind.seeds.iter().enumerate() {
            let told = (kind.read)(&bench, bytes);
            assert!(told.is_ok(), "seed {at} of kind {} is refused: {told:?}", kind.name);
        }
        let mut refused = 0;
        for number in 0..PARSED {
            let bytes = input(&kind, &seeds, SEED, number);
            let about = format!("kind {} number {number} seed {SEED} (see `--example fuzz -- show`)", kind.name);
            let (ending, took) = must_end(&kind, &bench, &bytes, &about);
            assert!(took < patience(&kind), "{about}: {took:?}");
            refused += u64::from(ending != Ending::Read);
        }
        assert!(refused > PARSED / 10, "kind {}: changes of its inputs are not noticed", kind.name);
    }
}

#[test]
fn no_pair_breaks_compiler_and_engine() {
    catch_quietly();
    let bench = Bench::new();
    let kind = runs();
    let seeds = Seeds::of(&kind);
    let mut ran = 0;
    for number in 0..RUN {
        let bytes = input(&kind, &seeds, SEED, number);
        let about = format!("kind run number {number} seed {SEED} (see `--example fuzz -- show`)");
        let (ending, took) = must_end(&kind, &bench, &bytes, &about);
        assert!(took < patience(&kind), "{about}: {took:?}");
        ran += u64::from(ending == Ending::Read);
    }
    assert!(ran > RUN / 5, "only {ran} of {RUN} pairs ran");
}

#[test]
fn what_broke_something_breaks_nothing_any_more() {
    catch_quietly();
    let bench = Bench::new();
    let mut kinds = parsers(&bench);
    kinds.push(runs());
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    for entry in fs::read_dir(corpus).expect("the corpus is there") {
        let path = entry.expect("the corpus is readable").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("an ASCII name").to_owned();
        if name == "README.md" {
            continue;
        }
        let kind = kinds.iter().find(|kind| name.split('-').next() == Some(kind.name));
        let kind = kind.unwrap_or_else(|| panic!("{name}: its first word is no kind of input"));
        let (_, took) = must_end(kind, &bench, &fs::read(&path).expect("a file of the corpus"), &name);
        assert!(took < patience(kind), "{name}: {took:?}");
    }
}
