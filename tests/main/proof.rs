//! Certificates: below every run, checked by whoever did not make them, refused when they are changed.

use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use rdusim::arch::{self, Chip};
use rdusim::compile::{compile_measured, simulate_measured};
use rdusim::cost::bound_cycles;
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, StopReason};
use rdusim::proof::{Certificate, Mapped, certify, check};
use rdusim::workload::{self, Workload};

use crate::laws::for_all;

/// Cases where `PROPTEST_CASES` asks for no other number.
const CASES: u32 = 32;

/// Certificates of all modes; `None` if the compiler refuses the pair.
fn certificates(chip: &Chip, workload: &Workload) -> Option<Vec<Certificate>> {
    let compiled = compile_measured(chip, workload, &Mode::ALL).ok()?;
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
    refused(|c| c.sections[0].cycles = 1, &["`sections`", "no less than"]);
    refused(|c| c.sections[0].nest.row_tiles = 0, &["no class holds the nest"]);
    refused(|c| c.sections[0].operators[0] = "none".to_owned(), &["no operator `none`"]);
    refused(|c| c.mode = "best".to_owned(), &["`mode`"]);
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
