//! Cases calculated by hand: `tests/cases/*.md`, each prose with the calculation and blocks that are run.
//!
//! A block ` ```toml chip ` or ` ```toml workload ` is a file's text, or `file = "PATH"` (below the root of the
//! repository) and `set = ["PATH=VALUE", ...]`. After both, a block ` ```toml mapping ` may give the product of a workload
//! with a single one a mapping of its own ([`Pinned`]), for what the compiler does not choose there. A block ` ```expect `
//! holds for the chip and workload before it, one expectation a line:
//!
//! - `PATH = VALUE`, `<=`, `>=`, `<`, `>`: a figure of the JSON result. `kbk.`, `epilogue.` and `fused.` lead to the runs at `event`
//!   fidelity, `bound.kbk.` and so on to those at `bound`, `cycle.kbk.` and so on to those at `cycle`; `pinned.` in place of
//!   `kbk.` to those of the mapping that is given;
//!   `[0]` counts from 0; `.length` is that of a list.
//! - `PATH = VALUE ~ 2 %`: within so much of a number.
//! - `PATH has "TEXT"`: some part of a text or of a list of texts.

use std::fs;
use std::path::{Path, PathBuf};

use crate::legal::found_quickly;
use rdusim::arch::{self, Chip};
use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::outcome::Fidelity;
use rdusim::program::{Configuration, GemmMapping, Reduction};
use rdusim::report::Document;
use rdusim::sim::simulate;
use rdusim::workload::{self, Workload};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::splits::with;

/// A block that names a file instead of being one.
#[derive(Deserialize)]
struct Reference {
    file: PathBuf,
    #[serde(default)]
    set: Vec<String>,
}

/// A mapping of a product that a case gives, with its row tiles and the whole of K in one column tile.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pinned {
    tile_rows: u64,
    rows_on_lanes: bool,
    pm: u64,
    pn: u64,
    pk: u64,
    reduction: PinnedReduction,
}

/// How partial sums come together.
#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum PinnedReduction {
    Chain,
    Tree,
}

impl Pinned {
    /// The configuration with this mapping.
    fn of(&self, chip: &Chip, workload: &Workload, configuration: &Configuration) -> Configuration {
        with(chip, workload, configuration, self.tile_rows, |mapping| {
            let reduction = match self.reduction {
                PinnedReduction::Chain => Reduction::Chain,
                PinnedReduction::Tree => Reduction::Tree,
            };
            let &Self { rows_on_lanes, pm, pn, pk, .. } = self;
            *mapping = GemmMapping { rows_on_lanes, pm, pn, pk, reduction, multicast_width: pn, ..*mapping };
        })
    }
}

/// What a block of TOML stands for: its text, where it is from, and overrides.
fn source(block: &str, case: &str, root: &str) -> (String, String, Vec<Override>) {
    let Ok(reference) = toml::from_str::<Reference>(block) else {
        return (case.to_owned(), block.to_owned(), Vec::new());
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&reference.file);
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{case}: {}: {error}", reference.file.display()));
    let set = |set: &String| Override::parse(&format!("{root}.{set}")).expect("an override");
    (reference.file.display().to_string(), text, reference.set.iter().map(set).collect())
}

/// Every mode at `event` and `bound`, and if `with_cycle` at `cycle`, as expectations see them.
fn figures(chip: &Chip, workload: &Workload, pinned: Option<&Pinned>, with_cycle: bool) -> Result<Value, String> {
    let configurations = found_quickly(chip, workload, &Mode::ALL).map_err(|error| error.render(false))?;
    let pinned = pinned.map(|pinned| pinned.of(chip, workload, &configurations[0].configuration));
    let run = |fidelity| {
        let all = configurations.iter().map(|c| &c.configuration).chain(&pinned);
        let outcomes: Vec<_> = all.map(|configuration| simulate(chip, workload, configuration, fidelity)).collect();
        serde_json::to_value(Document::new(chip, workload, &outcomes)).expect("JSON")
    };
    let (event, bound) = (run(Fidelity::Event), run(Fidelity::Bound));
    let modes = |document: &Value| json!({ "kbk": document["runs"][0], "epilogue": document["runs"][1], "fused": document["runs"][2], "pinned": document["runs"][3] });
    let mut all = modes(&event);
    all["bound"] = modes(&bound);
    if with_cycle {
        all["cycle"] = modes(&run(Fidelity::Cycle));
    }
    for key in ["speedup", "speedup_over_epilogue", "off_chip_traffic_ratio", "arch", "workload"] {
        all[key] = event[key].clone();
    }
    Ok(all)
}

/// The value at a path such as `fused.sections[0].cycles`.
fn at(all: &Value, path: &str) -> Option<Value> {
    let mut value = all.clone();
    for part in path.replace('[', ".[").split('.') {
        value = match part.strip_prefix('[').and_then(|index| index.strip_suffix(']')) {
            Some(index) => value.get(index.parse::<usize>().ok()?)?.clone(),
            None if part == "length" => Value::from(value.as_array()?.len()),
            None => value.get(part)?.clone(),
        };
    }
    Some(value)
}

/// Checks one expectation; says what is wrong.
fn expect(all: &Value, line: &str) -> Result<(), String> {
    let mut words = line.splitn(3, ' ');
    let (Some(path), Some(sign), Some(wanted)) = (words.next(), words.next(), words.next()) else {
        return Err("not PATH SIGN VALUE".into());
    };
    let found = at(all, path).ok_or("no such figure")?;
    let (wanted, tolerance) = wanted.split_once(" ~ ").unwrap_or((wanted, "0 %"));
    let percent: f64 = tolerance.trim_end_matches('%').trim().parse().map_err(|_| "a tolerance is a number and %")?;
    let plain = wanted.replace('_', "");
    let number = plain.parse::<f64>().ok();
    let holds = match (sign, found.as_f64(), number) {
        ("=", Some(found), Some(wanted)) => (found - wanted).abs() <= wanted.abs() * (percent / 100.0).max(1e-12),
        ("<=", Some(found), Some(wanted)) => found <= wanted,
        (">=", Some(found), Some(wanted)) => found >= wanted,
        ("<", Some(found), Some(wanted)) => found < wanted,
        (">", Some(found), Some(wanted)) => found > wanted,
        ("=", None, _) => serde_json::from_str::<Value>(wanted).is_ok_and(|wanted| wanted == found),
        ("has", _, _) => found.to_string().contains(wanted.trim_matches('"')),
        _ => return Err(format!("cannot compare {found} by `{sign}`")),
    };
    if holds { Ok(()) } else { Err(format!("found {found}")) }
}

/// Runs one case; a line for everything that is not as expected.
fn run(name: &str, text: &str) -> Vec<String> {
    let (mut chip, mut workload, mut all): (Option<Chip>, Option<Workload>, Option<Value>) = (None, None, None);
    let mut pinned: Option<Pinned> = None;
    let mut wrong = Vec::new();
    let mut expectations = 0;
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else { continue };
        let block: Vec<(usize, &str)> = lines.by_ref().take_while(|(_, line)| *line != "```").collect();
        let body = block.iter().flat_map(|(_, line)| [line, "\n"]).collect::<String>();
        let place = format!("{name}:{}", number + 1);
        match kind {
            "toml chip" => {
                let (from, text, sets) = source(&body, &place, "arch");
                chip =
                    Some(arch::parse(&from, &text, &sets).unwrap_or_else(|e| panic!("{place}: {}", e.render(false))));
                (all, pinned) = (None, None);
            }
            "toml workload" => {
                let (from, text, sets) = source(&body, &place, "workload");
                let parsed = workload::parse(&from, &text, &sets, 0);
                workload = Some(parsed.unwrap_or_else(|e| panic!("{place}: {}", e.render(false))));
                (all, pinned) = (None, None);
            }
            "toml mapping" => {
                pinned = Some(toml::from_str(&body).unwrap_or_else(|error| panic!("{place}: {error}")));
                all = None;
            }
            "expect" => {
                let (Some(chip), Some(workload)) = (&chip, &workload) else {
                    wrong.push(format!("{place}: expectations before a chip and a workload"));
                    continue;
                };
                if all.is_none() {
                    all = figures(chip, workload, pinned.as_ref(), text.contains("\ncycle."))
                        .map_err(|error| wrong.push(format!("{place}: {error}")))
                        .ok();
                }
                let Some(all) = &all else { continue };
                for (number, line) in block.into_iter().filter(|(_, line)| !line.trim().is_empty()) {
                    expectations += 1;
                    if let Err(why) = expect(all, line.trim()) {
                        wrong.push(format!("{name}:{}: {line}: {why}", number + 1));
                    }
                }
            }
            _ => {}
        }
    }
    if expectations == 0 {
        wrong.push(format!("{name}: expects nothing"));
    }
    wrong
}

/// The cases.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

fn comes_out_as_calculated(case: &str) {
    let text = fs::read_to_string(folder().join(format!("{case}.md"))).expect("a case");
    let wrong = run(&format!("tests/cases/{case}.md"), &text);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A test for each case: they run side by side, and a failure names its case.
macro_rules! cases {
    ($($test:ident => $file:literal,)+) => {
        const CASES: &[&str] = &[$($file),+];
        $(
            #[test]
            fn $test() {
                comes_out_as_calculated($file);
            }
        )+
    };
}

cases! {
    accumulator_sets => "accumulator-sets",
    convolution => "convolution",
    cycle_array => "cycle-array",
    cycle_systolic => "cycle-systolic",
    elementwise => "elementwise",
    energy => "energy",
    fused_feed_forward => "fused-feed-forward",
    gather => "gather",
    gemm_one_tile => "gemm-one-tile",
    gpt13b_feed_forward => "gpt13b-feed-forward",
    heads => "heads",
    launch_bound => "launch-bound",
    looped_block => "looped-block",
    memory_bound_gemm => "memory-bound-gemm",
    multicast => "multicast",
    outstanding_accesses => "outstanding-accesses",
    prefetch => "prefetch",
    ragged_token => "ragged-token",
    residual => "residual",
    sampled_gradient => "sampled-gradient",
    simd_chain => "simd-chain",
    slice => "slice",
    softmax => "softmax",
    sparse_blocks => "sparse-blocks",
    split_k_chain => "split-k-chain",
    split_k_tree => "split-k-tree",
    stored_rows => "stored-rows",
    tiles_of_keys => "tiles-of-keys",
    training_step => "training-step",
    transposed_slots => "transposed-slots",
    weights_read_again => "weights-read-again",
}

#[test]
fn every_file_is_a_case() {
    let paths = fs::read_dir(folder()).expect("the cases").map(|entry| entry.expect("the cases").path());
    let cases = paths.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let mut found: Vec<String> = cases.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
    found.sort();
    assert_eq!(found, CASES);
}

#[test]
fn a_wrong_figure_is_found() {
    let all = json!({ "a": { "b": [{ "c": 100 }] }, "name": "memory:ddr" });
    for line in ["a.b[0].c = 100", "a.b[0].c = 1_02 ~ 2 %", "a.b[0].c < 101", "a.b.length = 1", "name has \"ddr\""] {
        assert_eq!(expect(&all, line), Ok(()), "{line}");
    }
    for line in ["a.b[0].c = 101", "a.b[1].c = 100", "a.b[0].c >= 101", "name = \"ddr\"", "name has \"hbm\"", "name ="]
    {
        assert!(expect(&all, line).is_err(), "{line}");
    }
}
