//! Certificates: below every run, checked by whoever did not make them, refused when they are changed.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use rdusim::arch::{self, Chip};
use rdusim::compile::simulate_measured;
use rdusim::cost::bound_cycles;
use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, StopReason};
use rdusim::proof::{Certificate, Mapped, NestEntry, SectionEntry, certify, check, gap};
use rdusim::workload::{self, Workload};

use crate::laws::for_all;
use crate::legal::found_quickly;

/// Cases where `PROPTEST_CASES` asks for no other number.
const CASES: u32 = 16;

/// Certificates of all modes; `None` if the compiler refuses the pair.
pub(crate) fn certificates(chip: &Chip, workload: &Workload) -> Option<Vec<Certificate>> {
    let compiled = found_quickly(chip, workload, &Mode::ALL).ok()?;
    let certificate = |(mode, compiled): (Mode, &rdusim::compile::Compiled)| {
        let outcome = simulate_measured(chip, workload, compiled, Fidelity::Event);
        let mapped = compiled.configuration.sections.iter().zip(&outcome.sections).map(|(section, ran)| Mapped {
            operators: section.operators.clone(),
            nest: section.schedule.nest(),
            cycles: ran.cycles,
        });
        let is_drained = outcome.stop == StopReason::Drained;
        certify(chip, workload, mode, &mapped.collect::<Vec<_>>()).filter(|_| is_drained)
    };
    Some(Mode::ALL.into_iter().zip(&compiled).filter_map(certificate).collect())
}

fn tiny() -> (Chip, Workload) {
    let chip = arch::load(Path::new("arch/sn10.toml"), &[]).expect("a chip");
    (chip, workload::load(Path::new("workloads/tiny-mlp.toml"), &[], 0).expect("a workload"))
}

/// A block that runs three times, and an operator behind it: two groups in every mode.
pub(crate) const TWO_GROUPS: &str = r#"
schema = 1
name = "two-groups"

[[blocks]]
name = "layer"
repeat = 3

[[tensors]]
name = "x"
shape = [8, 16]
role = "input"

[[tensors]]
name = "w"
shape = [16, 16]
role = "weight"

[[tensors]]
name = "head"
shape = [16, 64]
role = "weight"

[[operators]]
name = "gemm"
kind = "gemm"
block = "layer"
inputs = ["x", "w"]
output = "h"

[[operators]]
name = "relu"
kind = "relu"
block = "layer"
inputs = ["h"]
output = "y"

[[operators]]
name = "out"
kind = "gemm"
inputs = ["y", "head"]
output = "z"
"#;

/// The workload of a text.
pub(crate) fn text_workload(text: &str) -> Workload {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("workload.toml");
    std::fs::write(&file, text).expect("the file is written");
    workload::load(&file, &[], 0).expect("a workload")
}

#[test]
fn no_run_beats_its_certificate() {
    for_all(CASES, |chip, graph| {
        let (chip, workload) = (chip.chip(), graph.workload());
        for certificate in certificates(&chip, &workload).unwrap_or_default() {
            // The checker also compares every section of the mapping with its own class of nests.
            let checked = check(&chip, &workload, &certificate);
            prop_assert_eq!(checked.clone(), Ok(()), "{:?}", checked);
            prop_assert!(certificate.gap >= 0.0, "{} below {}", certificate.cycles, certificate.least_cycles);
        }
        Ok(())
    });
}

#[test]
fn a_certificate_says_more_than_the_bound_of_one_section() {
    // Kernel by kernel the partition is forced: nothing is relaxed that the plain bound keeps.
    let (chip, workload) = tiny();
    let certificates = certificates(&chip, &workload).unwrap();
    for (mode, certificate) in Mode::ALL.into_iter().zip(certificates) {
        assert!(certificate.least_cycles >= bound_cycles(&chip, &workload, mode), "{}", mode.name());
        assert_eq!(check(&chip, &workload, &certificate), Ok(()));
    }
}

#[track_caller]
fn refused(change: impl Fn(&mut Certificate), words: &[&str]) {
    let (chip, workload) = tiny();
    let mut certificate = certificates(&chip, &workload).and_then(|mut all| all.pop()).expect("a certificate");
    change(&mut certificate);
    let why = check(&chip, &workload, &certificate).expect_err("it must be refused").0;
    assert!(words.iter().all(|word| why.contains(word)), "{why}");
}

#[test]
fn what_is_left_out_is_named() {
    refused(|c| _ = c.groups[0].leaves.remove(1), &["groups[0].leaves", "left out", "do not cover"]);
    refused(|c| _ = c.groups[0].leaves[1].boxes.pop(), &["leaves[1].boxes", "left out", "do not cover"]);
    refused(|c| _ = c.groups.pop(), &["`groups`"]);
    refused(|c| _ = c.sections[0].operators.pop(), &["`sections`", "no section runs"]);
}

#[test]
fn what_is_claimed_too_high_is_named() {
    refused(|c| c.groups[0].leaves[1].boxes[0][0] += 1, &["leaves[1].boxes", "claims"]);
    refused(|c| c.groups[0].least_cycles += 1, &["groups[0].least_cycles", "shortest path"]);
    refused(|c| c.least_cycles += 1, &["`least_cycles`", "add up"]);
    refused(|c| c.gap = 0.0, &["`gap`"]);
    refused(|c| c.cycles -= 1, &["`cycles`", "add up"]);
}

#[test]
fn a_mapping_that_cannot_be_is_named() {
    refused(|c| c.sections[0].cycles = 1, &["`sections[0]`", "no less than"]);
    refused(|c| c.sections[0].operators[0] = "none".to_owned(), &["no operator `none`"]);
    refused(|c| c.mode = "best".to_owned(), &["`mode`"]);
}

#[test]
fn tiles_of_nothing_are_named() {
    const HUGE: u64 = 1_000_000_000_000_000_000;
    let nest = |change: fn(&mut NestEntry), words: &[&str]| refused(|c| change(&mut c.sections[0].nest), words);
    nest(|nest| nest.row_tiles = 0, &["`sections[0].nest.row_tiles`", "found 0", "1 to 64 (rows)"]);
    nest(|nest| nest.row_tiles = 65, &["`sections[0].nest.row_tiles`", "found 65"]);
    nest(|nest| nest.row_tiles = HUGE, &["`sections[0].nest.row_tiles`", "1 to 64"]);
    nest(|nest| (nest.axis, nest.column_tiles) = (Some(0), 0), &["`sections[0].nest.column_tiles`", "found 0"]);
    nest(
        |nest| (nest.axis, nest.column_tiles) = (Some(0), HUGE),
        &["`sections[0].nest.column_tiles`", "columns of the axis"],
    );
    nest(|nest| (nest.axis, nest.column_tiles) = (None, 2), &["`sections[0].nest.column_tiles`", "no axis is cut"]);
    nest(|nest| (nest.axis, nest.column_tiles) = (Some(9), 2), &["`sections[0].nest.axis`", "found 9"]);
}

#[test]
fn a_nest_of_no_possible_class_is_named() {
    // Weights of 4 KiB and more do not lie on a chip of 2 KiB: only column tiles that are outermost are possible.
    let capacity = Override::parse("arch.pmu.capacity_bytes=4096").unwrap();
    let chip = arch::load(Path::new("tests/cases/small.toml"), &[capacity]).unwrap();
    let workload = workload::load(Path::new("workloads/tiny-mlp.toml"), &[], 0).unwrap();
    let mut found = certificates(&chip, &workload).unwrap().remove(0);
    assert_eq!(check(&chip, &workload, &found), Ok(()));
    found.sections[0].nest =
        NestEntry { row_tiles: 1, axis: None, column_tiles: 1, panels: 1, column_tile_outer: false };
    let why = check(&chip, &workload, &found).unwrap_err().0;
    assert!(why.contains("`sections[0].nest`: no class that is possible holds the nest of up"), "{why}");
}

#[test]
fn a_claim_to_be_faster_than_the_bound_is_named() {
    refused(|c| c.cycles = c.least_cycles - 1, &["`cycles`", "faster than its own bound"]);
    refused(
        |c| {
            c.sections[0].cycles = c.least_cycles - 1;
            (c.cycles, c.gap) = (c.least_cycles - 1, -1.0 / c.least_cycles as f64);
        },
        &["`cycles`", "faster than its own bound"],
    );
    // Cycles that move from one group to another keep every sum.
    // The last operator is bound by its weights, which nothing can load before it.
    let slow = Override::parse("arch.memory.ddr.bandwidth_gb_per_s=2").unwrap();
    let chip = arch::load(Path::new("tests/cases/small.toml"), &[slow]).unwrap();
    let workload = text_workload(TWO_GROUPS);
    let mut found = certificates(&chip, &workload).unwrap().pop().unwrap();
    let (group, section) = (found.groups.len() - 1, found.sections.len() - 1);
    assert_eq!(found.sections[section].operators, ["out"]);
    let moved = found.sections[section].cycles - found.groups[group].least_cycles + 1;
    found.sections[section].cycles -= moved;
    found.sections[0].cycles += moved;
    let why = check(&chip, &workload, &found).unwrap_err().0;
    assert!(why.contains("`groups[1]`: the certificate claims to be faster than its own bound"), "{why}");
}

/// What is said of a mapping with other sections, each of them a section's operators.
#[track_caller]
fn cut_as(mode: Mode, sections: &[&[&str]], words: &[&str]) {
    let (chip, workload) = tiny();
    let at = Mode::ALL.iter().position(|of| *of == mode).expect("a mode");
    let mut found = certificates(&chip, &workload).expect("certificates").remove(at);
    let nest = NestEntry { row_tiles: 1, axis: None, column_tiles: 1, panels: 1, column_tile_outer: false };
    let cycles = 2 * found.cycles;
    found.sections = sections
        .iter()
        .map(|names| SectionEntry { operators: names.iter().map(|name| (*name).to_owned()).collect(), cycles, nest })
        .collect();
    found.cycles = cycles * sections.len() as u64;
    found.gap = gap(found.cycles, found.least_cycles);
    match check(&chip, &workload, &found) {
        Ok(()) => assert!(words.is_empty(), "{sections:?} was accepted"),
        Err(why) => assert!(!words.is_empty() && words.iter().all(|word| why.0.contains(word)), "{}", why.0),
    }
}

#[test]
fn sections_that_the_mode_does_not_allow_are_named() {
    let shared = &["cannot share a section in the mode"];
    cut_as(Mode::Kbk, &[&["up", "gelu"], &["down"]], shared);
    cut_as(Mode::Epilogue, &[&["up"], &["gelu", "down"]], shared);
    cut_as(Mode::Epilogue, &[&["up", "gelu", "down"]], shared);
    // `gelu` stands between the others.
    cut_as(Mode::Fused, &[&["up", "down"], &["gelu"]], &["runs before what it needs"]);
    cut_as(Mode::Fused, &[&["gelu"], &["up", "down"]], &["runs before what it needs"]);
    cut_as(Mode::Fused, &[&["down"], &["gelu"], &["up"]], &["runs before what it needs"]);
    cut_as(Mode::Fused, &[&["up"], &["gelu"], &["down"], &["up"]], &["`up` runs twice"]);
    cut_as(Mode::Fused, &[&["up", "gelu"]], &["no section runs `down`"]);
    cut_as(Mode::Fused, &[&["up"], &[], &["gelu", "down"]], &["at least one"]);
    // Other partitions are as good a claim as the one that was found.
    cut_as(Mode::Fused, &[&["up"], &["gelu"], &["down"]], &[]);
    cut_as(Mode::Fused, &[&["up"], &["down", "gelu"]], &[]);
}

#[test]
fn sections_of_two_groups_are_named() {
    let chip = arch::load(Path::new("tests/cases/small.toml"), &[]).unwrap();
    let workload = text_workload(TWO_GROUPS);
    let mut found = certificates(&chip, &workload).unwrap().pop().unwrap();
    let last = found.sections.pop().unwrap();
    let before = found.sections.last_mut().unwrap();
    before.operators.extend(last.operators);
    before.cycles += last.cycles;
    let why = check(&chip, &workload, &found).unwrap_err().0;
    assert!(why.contains("cannot share a section in the mode fused"), "{why}");
}

#[test]
fn sections_of_a_group_that_is_bounded_as_a_whole_are_checked_too() {
    // More operators than partitions are enumerated of.
    let mut text =
        String::from("schema = 1\nname = \"long\"\n[[tensors]]\nname = \"x0\"\nshape = [8, 16]\nrole = \"input\"\n");
    for at in 0..130 {
        let next = at + 1;
        let _ = writeln!(
            text,
            "[[operators]]\nname = \"relu{at}\"\nkind = \"relu\"\ninputs = [\"x{at}\"]\noutput = \"x{next}\""
        );
    }
    let chip = arch::load(Path::new("tests/cases/small.toml"), &[]).unwrap();
    let workload = text_workload(&text);
    let nest = NestEntry { row_tiles: 1, axis: None, column_tiles: 1, panels: 1, column_tile_outer: false };
    let mut made = certify(&chip, &workload, Mode::Fused, &[]).unwrap();
    assert!(!made.groups[0].by_sections);
    let cycles = 2 * made.least_cycles;
    made.sections = workload
        .operators
        .iter()
        .map(|operator| SectionEntry { operators: vec![operator.name.clone()], cycles, nest })
        .collect();
    made.cycles = cycles * 130;
    made.gap = gap(made.cycles, made.least_cycles);
    let said = |change: &dyn Fn(&mut Certificate)| {
        let mut changed = made.clone();
        change(&mut changed);
        changed.cycles = changed.sections.iter().map(|section| section.cycles).sum();
        changed.gap = gap(changed.cycles, changed.least_cycles);
        check(&chip, &workload, &changed).map_err(|why| why.0)
    };
    assert_eq!(said(&|_| ()), Ok(()));
    let why = |change: &dyn Fn(&mut Certificate)| said(change).unwrap_err();
    assert!(why(&|c| c.sections[7].cycles = 1).contains("`sections[7]`: relu7 takes 1 cycles"));
    assert!(
        why(&|c| c.sections[7].nest.row_tiles = 9).contains("`sections[7].nest.row_tiles`: found 9, expected 1 to 8")
    );
    assert!(why(&|c| c.sections.swap(3, 4)).contains("runs before what it needs"));
    // A chain of functions is longer than the chip has PCUs.
    let joined = why(&|c| {
        let names: Vec<String> = c.sections.drain(1..).flat_map(|section| section.operators).collect();
        c.sections[0].operators.extend(names);
    });
    assert!(joined.contains("cannot share a section"), "{joined}");
}

#[test]
fn another_chip_or_workload_is_refused() {
    refused(|c| c.chip.push('0'), &["`chip`", "has changed"]);
    refused(|c| c.workload.push('0'), &["`workload`", "has changed"]);
}

fn rdusim(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_rdusim")).args(arguments).output().expect("the command starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_command_writes_and_checks() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("proof.json");
    let path = file.to_str().unwrap();
    let (arch, workload) = ("arch/sn10.toml", "workloads/tiny-mlp.toml");
    let (code, out, _) = rdusim(&["prove", "--arch", arch, "--workload", workload, "--out", path]);
    assert_eq!(code, Some(0));
    assert!(out.contains("no mapping takes less than"), "{out}");
    let (code, out, _) = rdusim(&["check-proof", path]);
    assert_eq!(code, Some(0));
    assert!(out.contains("holds"), "{out}");
    assert!(
        out.contains("cycles of the mapping are a claim, which `rdusim run` reproduces and this check does not"),
        "{out}"
    );
    // A figure that does not follow: 1. What is no certificate: 2. No file: 2.
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replacen("\"least_cycles\": ", "\"least_cycles\": 1", 1)).unwrap();
    let (code, out, err) = rdusim(&["check-proof", path]);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    assert!(err.contains("refused") && err.contains("least_cycles"), "{err}");
    std::fs::write(&file, "{}").unwrap();
    assert_eq!(rdusim(&["check-proof", path]).0, Some(2));
    assert_eq!(rdusim(&["check-proof", "none.proof.json"]).0, Some(2));
}
