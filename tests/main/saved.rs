//! Configurations that are saved, edited and run again, and partitions that are pinned.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::laws::for_all;
use crate::legal::{draws, found_quickly};
use proptest::prelude::*;
use rdusim::mode::Mode;
use rdusim::outcome::Fidelity;
use rdusim::report::Document;
use rdusim::saved;
use rdusim::sim::simulate;
use tempfile::TempDir;

const MODES: [Mode; 3] = Mode::ALL;

#[test]
fn what_is_saved_runs_again_to_the_byte() {
    for_all(20, |chip, graph| {
        let (chip, workload) = (chip.chip(), graph.workload());
        let Ok(compiled) = found_quickly(&chip, &workload, &MODES) else { return Ok(()) };
        let text = saved::to_toml(&chip, &workload, compiled.iter().map(|c| &c.configuration));
        let read = saved::parse("saved", &text, &chip, &workload, &MODES);
        let read = read.unwrap_or_else(|error| panic!("{}", error.render(false)));
        for (compiled, read) in compiled.iter().zip(&read) {
            prop_assert_eq!(format!("{:?}", compiled.configuration), format!("{:?}", read));
        }
        prop_assert_eq!(&text, &saved::to_toml(&chip, &workload, &read));
        let json = |configurations: Vec<&rdusim::program::Configuration>| {
            let outcomes: Vec<_> =
                configurations.iter().map(|c| simulate(&chip, &workload, c, Fidelity::Event)).collect();
            Document::new(&chip, &workload, &outcomes).to_json()
        };
        prop_assert_eq!(json(compiled.iter().map(|c| &c.configuration).collect()), json(read.iter().collect()));
        Ok(())
    });
}

/// Numbers and words of a saved file, changed at random, are refused or run: nothing panics.
#[test]
fn no_edit_makes_it_panic() {
    let edit = (any::<prop::sample::Index>(), prop_oneof![0u64..40, Just(1 << 40), Just(u64::MAX)]);
    let strategy = (crate::random::chips(), crate::random::graphs(), prop::collection::vec(edit, 1..3));
    let mut runner = proptest::test_runner::TestRunner::new_with_rng(
        proptest::test_runner::Config { cases: 48, source_file: Some(file!()), ..Default::default() },
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let result = runner.run(&strategy, |(chip, graph, edits)| {
        let (chip, workload) = (chip.chip(), graph.workload());
        let drawn = draws(&chip, &workload, 1);
        let Some(configuration) = drawn.first() else { return Ok(()) };
        let mut text = saved::to_toml(&chip, &workload, [configuration]);
        for (at, value) in edits {
            let body = text.find("[[runs.sections]]").expect("a section");
            let is_number = |&(i, c): &(usize, char)| {
                i > body && c.is_ascii_digit() && !text[..i].ends_with(|before: char| before.is_ascii_alphanumeric())
            };
            let numbers: Vec<usize> = text.char_indices().filter(is_number).map(|(i, _)| i).collect();
            let start = numbers[at.index(numbers.len())];
            let length = text[start..].find(|c: char| !c.is_ascii_digit()).unwrap_or(1);
            text.replace_range(start..start + length, &value.to_string());
        }
        match saved::parse("saved", &text, &chip, &workload, &[Mode::Fused]) {
            Ok(read) => {
                simulate(&chip, &workload, &read[0], Fidelity::Event);
            }
            Err(error) => prop_assert!(error.origin().is_some(), "{}", error.render(false)),
        }
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// A directory with a small chip, a workload, and what is saved of them.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for (from, to) in [("arch/sn10.toml", "chip.toml"), ("workloads/tiny-mlp.toml", "graph.toml")] {
            fs::copy(root.join(from), directory.path().join(to)).expect("a file that comes with rdusim");
        }
        Self { directory }
    }

    fn rdusim(&self, command: &str, more: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_rdusim"))
            .args(command.split_whitespace())
            .args(["--arch", "chip.toml", "--workload", "graph.toml"])
            .args(more.split_whitespace())
            .current_dir(self.directory.path())
            .output()
            .expect("the command starts")
    }

    #[track_caller]
    fn prints(&self, command: &str, more: &str) -> String {
        let output = self.rdusim(command, more);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("results are UTF-8")
    }

    /// A command that must be refused with a message that has all of `words`.
    #[track_caller]
    fn refuses(&self, command: &str, more: &str, words: &[&str]) {
        let output = self.rdusim(command, more);
        let message = String::from_utf8(output.stderr).expect("messages are UTF-8");
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(output.stdout.is_empty(), "{message}");
        for word in words {
            assert!(message.contains(word), "no {word:?} in:\n{message}");
        }
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join(name)).expect("the file")
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.directory.path().join(name), text).expect("the file is written");
    }

    /// Saves the fused run, spoils the first `old` behind `after`, and gives the message's words.
    #[track_caller]
    fn spoilt(&self, after: &str, old: &str, new: &str, words: &[&str]) {
        let text = self.file("saved.toml");
        let from = text.find(after).unwrap_or_else(|| panic!("no {after:?}"));
        let at = from + text[from..].find(old).unwrap_or_else(|| panic!("no {old:?} behind {after:?}"));
        let spoilt = format!("{}{new}{}", &text[..at], &text[at + old.len()..]);
        self.write("spoilt.toml", &spoilt);
        self.refuses("run --mode fused", "--config spoilt.toml", words);
    }
}

#[test]
fn compare_and_map_take_what_compare_saved() {
    let place = Place::new();
    // All but which options were given.
    let runs = |text: &str| -> serde_json::Value {
        let mut json: serde_json::Value = serde_json::from_str(text).expect("JSON");
        json.as_object_mut().expect("an object").remove("inputs");
        json
    };
    let compared = place.prints("compare", "--format json --save-config saved.toml");
    assert_eq!(runs(&compared), runs(&place.prints("compare", "--format json --config saved.toml")));
    assert_eq!(place.prints("map", "--format json"), place.prints("map", "--format json --config saved.toml"));
    // Without routes, the compiler routes as it did.
    let text = place.file("saved.toml");
    let kept: Vec<&str> = text.split("\n[runs.sections.network]\n").collect();
    let unrouted: String = kept
        .iter()
        .enumerate()
        .map(|(i, part)| if i == 0 { (*part).to_owned() } else { part[part.find("\n]").unwrap() + 2..].to_owned() })
        .collect();
    assert!(!unrouted.contains("links = "));
    place.write("unrouted.toml", &unrouted);
    place.prints("compare", "--format json --config unrouted.toml");
}

#[test]
fn edited_configurations_are_refused_with_their_place() {
    let place = Place::new();
    place.prints("run --mode fused", "--save-config saved.toml");
    let saved = "spoilt.toml:";
    place.spoilt("schema", "SN10", "SN11", &["for the chip `SN11`", saved]);
    place.spoilt("chip = ", "fingerprint = \"", "fingerprint = \"0", &["another chip", saved]);
    place.spoilt("workload = ", "fingerprint = \"", "fingerprint = \"0", &["another workload", saved]);
    place.spoilt("[[runs]]", "\"fused\"", "\"kbk\"", &["no `fused` run", saved]);
    // A GEMM, its epilogue and another GEMM are no kernel.
    let text = place.file("saved.toml");
    place.write("spoilt.toml", &text.replacen("mode = \"fused\"", "mode = \"epilogue\"", 1));
    let words = ["a section of an epilogue run", saved, "operators = ", "expected the first of up, gelu"];
    place.refuses("run --mode epilogue", "--config spoilt.toml", &words);
    let of = |key: &str| {
        let from = text.find(key).unwrap() + key.len();
        text[from..].split([',', ' ', '\n']).next().unwrap().to_owned()
    };
    // A unit in two places, and one that is none.
    let pcus = text[text.find("pcus = [").unwrap() + 8..].split("], ").take(2).collect::<Vec<_>>();
    let (first, second) = (format!("{}]", pcus[0]), format!("{}]", pcus[1]));
    place.spoilt("pcus = ", &second, &first, &["is given twice", saved, "pcus = "]);
    let memory = text[text.find("pmu = [").unwrap() + 6..].split(", banks").next().unwrap();
    place.spoilt("pcus = ", &first, memory, &["there is no PCU at", saved]);
    // Sizes that contradict the nest or the chip.
    place.spoilt("nest = ", "tile_rows = ", "tile_rows = 9", &["a row tile cannot have", saved]);
    place.spoilt("slot_bytes", "slot_bytes = ", "slot_bytes = 1", &["the nest and the mapping make it", saved]);
    place.spoilt("depth = ", "depth = ", "depth = 99", &["banks for", saved]);
    place.spoilt("pieces", "banks = ", "banks = 99", &["banks left", saved]);
    place.spoilt("pieces", "read_port = ", "read_port = 9", &["no such port", saved]);
    place.spoilt("generators", "generator = ", "generator = 9", &["generator", saved]);
    place.spoilt("mapping = ", "pm = ", "pm = 9", &["`pm` is", saved]);
    let gathered = ["only rows of a sparse weight are gathered", saved];
    place.spoilt("mapping = ", "style = \"skip\"", "style = \"gather\"", &gathered);
    // Routes.
    place.spoilt(
        "routes = ",
        "links = [\"",
        "links = [\"39,31 west 0\", \"",
        &["the route is broken: nothing leads to", saved],
    );
    place.spoilt(
        "routes = ",
        "links = [\"",
        "links = [\"0,0 up 0\", \"",
        &["is no path", "expected a site, then", saved],
    );
    place.spoilt("routes = ", " 0", " 7", &["expected", saved]);
    place.spoilt("routes = ", "from = \"pmu ", "from = \"pmu 9", &["leave out", "network", saved]);
    let rows = of("tile_rows = ");
    assert!(rows.parse::<u64>().is_ok(), "{rows}");
}

#[test]
fn a_partition_is_pinned_by_a_file_or_by_the_workload() {
    let place = Place::new();
    place.write(
        "two.toml",
        "schema = 1\n[[sections]]\noperators = [\"up\", \"gelu\"]\n[[sections]]\noperators = [\"down\"]\n",
    );
    let json = place.prints("run --mode fused --format json", "--sections two.toml");
    assert!(json.contains("\"launches\": 2"), "{json}");
    let with = place.file("graph.toml")
        + "\n[[sections]]\noperators = [\"up\"]\n[[sections]]\noperators = [\"gelu\", \"down\"]\n";
    let plain = place.prints("compare --format json", "");
    assert!(plain.contains("\"launches\": 1"), "{plain}");
    place.write("graph.toml", &with);
    let pinned = place.prints("run --mode fused --format json", "");
    assert!(pinned.contains("\"launches\": 2") && pinned.contains("gelu+down"), "{pinned}");
    // The file counts more.
    let json = place.prints("run --mode fused --format json", "--sections two.toml");
    assert!(json.contains("up+gelu"), "{json}");
}

#[test]
fn partitions_that_cannot_be_are_refused() {
    let place = Place::new();
    let refused = |sections: &[&[&str]], words: &[&str]| {
        let mut text = "schema = 1\n".to_owned();
        text.extend(sections.iter().map(|operators| format!("[[sections]]\noperators = {operators:?}\n")));
        place.write("sections.toml", &text);
        place.refuses("compare", "--sections sections.toml", words);
    };
    refused(&[&["up", "gelu"]], &["leaves out the operator \"down\"", "sections.toml:"]);
    refused(&[&["up", "gelu"], &["gelu", "down"]], &["\"gelu\" twice", "section 1 has it", "sections.toml:"]);
    refused(&[&["up", "gelo", "down"]], &["\"gelo\"", "did you mean `gelu`?"]);
    refused(&[&["gelu", "down"], &["up"]], &["needs `h`, which section 2 makes later", "behind section 2"]);
    refused(&[&["up", "down"], &["gelu"]], &["need each other's results", "on the way"]);
    refused(&[], &["sections"]);
    // A section that does not fit.
    place.write("whole.toml", "schema = 1\n[[sections]]\noperators = [\"up\", \"gelu\", \"down\"]\n");
    let small = "--sections whole.toml --set arch.pmu.capacity_bytes=16";
    place.refuses(
        "run --mode fused",
        small,
        &["the pinned section `up+gelu+down` cannot be one", "short by", "whole.toml:"],
    );
    place.refuses("run --mode fused", "--sections whole.toml --config x.toml", &["--config"]);
}
