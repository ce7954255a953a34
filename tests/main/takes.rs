//! `rdusim list` says what commands take, and commands take what it says.

use std::path::Path;

use rdusim::analysis::TAKES;
use rdusim::input::{BUILTINS, FileKind};
use serde_json::Value;

use crate::first_steps::rdusim;

/// A small chip of each kind, and a system of such chips.
const OF_KINDS: [(&str, &str, &str); 5] = [
    ("rdu", "plasticine", "sn10-8"),
    ("gpu", "a100", "dgx-a100"),
    ("bsp", "bow", "ipu-pod16"),
    ("systolic", "tpu-v4", "tpu-v4-64"),
    ("wafer", "cs2", "cs2-cluster"),
];

/// A run of the binary: its exit code, and what it printed.
struct Ran {
    code: Option<i32>,
    out: String,
    error: String,
}

fn run(directory: &Path, words: &str) -> Ran {
    let (code, out, error) = rdusim(directory, &words.split(' ').collect::<Vec<_>>());
    Ran { code, out, error }
}

fn listed() -> Value {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Ran { code, out, error } = run(directory.path(), "list --format json");
    assert_eq!(code, Some(0), "{error}");
    serde_json::from_str(&out).expect("JSON")
}

fn command<'l>(list: &'l Value, name: &str) -> &'l Value {
    let commands = list["commands"].as_array().expect("commands");
    commands.iter().find(|command| command["command"] == name).unwrap_or_else(|| panic!("{name} is listed"))
}

fn has(list: &Value, value: &str) -> bool {
    list.as_array().is_some_and(|list| list.iter().any(|item| item == value))
}

/// Whether phases have one, on a kind of chips.
fn has_on(phases: &Value, phase: &str, kind: &str) -> bool {
    let list = phases.as_array().expect("phases");
    list.iter().any(|of| of["phase"] == phase && has(&of["chips"], kind))
}

#[test]
fn commands_take_the_chips_that_the_list_says() {
    let list = listed();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let study = |chip: &str| {
        let text = format!(
            "schema = 1\nname = \"one\"\narch = \"{chip}\"\nworkload = \"tiny-mlp\"\nmetrics = [\"kbk.time_s\"]\n\
             [[axes]]\npath = \"workload.dims.tokens\"\nvalues = [64]\n"
        );
        std::fs::write(directory.path().join(format!("{chip}.toml")), text).expect("a file");
    };
    for takes in TAKES {
        let said = &command(&list, takes.command)["chips"];
        for (kind, chip, _) in OF_KINDS {
            // A fit takes long.
            if takes.command == "calibrate" && takes.chips.contains(&kind) {
                continue;
            }
            study(chip);
            let words = match takes.command {
                "sweep" => format!("sweep {chip}.toml"),
                "calibrate" => format!("calibrate --arch {chip}"),
                name => format!("{name} --arch {chip} --workload tiny-mlp"),
            };
            let words = if matches!(takes.command, "run" | "explain") { words + " --mode kbk" } else { words };
            let Ran { code, error, .. } = run(directory.path(), &words);
            let is_said = has(said, kind);
            assert_eq!(is_said, code == Some(0), "{words}: {code:?} {error}");
            assert!(is_said || (code == Some(2) && error.contains("needs a chip of kind")), "{words}: {error}");
        }
    }
}

/// A model that is compiled at once.
const SMALL_GPT: &str =
    r#"{ "model_type": "gpt2", "n_embd": 128, "n_layer": 2, "n_head": 2, "n_positions": 128, "vocab_size": 1024 }"#;

#[test]
fn systems_have_the_phases_that_the_list_says() {
    let list = listed();
    let directory = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(directory.path().join("config.json"), SMALL_GPT).expect("a file");
    let phases = command(&list, "pod")["phases"].as_array().expect("phases").clone();
    assert_eq!(phases.len(), 4);
    for (kind, _, system) in OF_KINDS {
        let entries = list["entries"].as_array().expect("entries");
        let entry = entries.iter().find(|entry| entry["name"] == system).expect("is listed");
        for phase in &phases {
            let name = phase["phase"].as_str().expect("a name");
            let more = match name {
                "requests" => " --arrivals 10 --requests 2 --prompt-tokens 64 --output-tokens 4",
                _ => " --seq 64",
            };
            let words = format!("pod {system} --model config.json --phase {name} --parallel dp=1{more}");
            let Ran { code, error, .. } = run(directory.path(), &words);
            assert_eq!(has_on(&entry["phases"], name, kind), code == Some(0), "{words}: {code:?} {error}");
            assert_eq!(has(&phase["chips"], kind), code == Some(0), "{words}: {code:?} {error}");
        }
    }
}

#[test]
fn models_have_the_phases_that_the_list_says() {
    let list = listed();
    let entries = list["entries"].as_array().expect("entries");
    let of = |name: &str| entries.iter().find(|entry| entry["name"] == name).expect("is listed");
    let kinds = OF_KINDS.map(|(kind, ..)| kind);
    for (model, trained, served) in [
        ("gpt2", &kinds[..], &["rdu", "gpu", "systolic"][..]),
        ("bert-base", &["bsp"], &[]),
        ("vit-base", &["rdu", "gpu", "bsp", "systolic"], &[]),
        ("mamba2-130m", &[], &["rdu", "gpu", "systolic"]),
        ("deepseek-v3", &[], &["rdu", "gpu", "systolic"]),
        ("mixtral-8x7b", &["rdu", "gpu"], &["rdu", "gpu", "systolic"]),
        ("switch-1.6t", &["rdu", "gpu"], &["gpu"]),
    ] {
        for kind in kinds {
            let phases = &of(model)["phases"];
            assert_eq!(has_on(phases, "training", kind), trained.contains(&kind), "{model} {kind}");
            assert_eq!(has_on(phases, "decode", kind), served.contains(&kind), "{model} {kind}");
        }
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Ran { error, .. } = run(directory.path(), "pod sn40l-16 --model vit-base --phase decode --parallel tp=1");
    assert!(error.contains("no tokens to generate"), "{error}");
}

#[test]
fn the_list_names_everything_that_comes_along() {
    let list = listed();
    let entries = list["entries"].as_array().expect("entries");
    for file in BUILTINS {
        let entry = entries.iter().find(|entry| entry["name"] == file.name).expect("is listed");
        assert_eq!(file.kind == FileKind::Chip, entry["chip"].is_string(), "{}", file.name);
        assert_eq!(file.kind == FileKind::System, entry["phases"].is_array(), "{}", file.name);
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Ran { code, out, error } = run(directory.path(), "list");
    assert_eq!(code, Some(0), "{error}");
    for line in [
        "  sn50 ",
        "systolic-128: 1 array,",
        "at short and at long context?",
        "8 RDUs on PCIe; pod: ",
        "chips: rdu, bsp; others lack a placement of operators",
        "--phase training (rdu, gpu, bsp, systolic, wafer), prefill, decode, requests (rdu, gpu, systolic)",
    ] {
        assert!(out.contains(line), "{line}:\n{out}");
    }
}
