//! Ranges of results (`--uncertainty`), through the program.

use std::path::Path;

use serde_json::Value;

use crate::first_steps::rdusim;

const TINY: [&str; 6] = ["--arch", "plasticine", "--workload", "tiny-mlp", "--samples", "24"];

fn compared(more: &[&str]) -> (Value, String) {
    let words = [&["compare", "--uncertainty", "--format", "json"], &TINY[..], more].concat();
    let (code, stdout, stderr) = rdusim(Path::new("."), &words);
    assert_eq!(code, Some(0), "{words:?}: {stderr}");
    (serde_json::from_str(&stdout).expect("JSON"), stdout)
}

fn range(value: &Value) -> (f64, f64) {
    let end = |at: usize| value[at].as_f64().unwrap_or_else(|| panic!("no range: {value}"));
    (end(0), end(1))
}

#[test]
fn ranges_are_of_their_draws_and_hold_the_result() {
    let (json, _) = compared(&[]);
    for run in json["runs"].as_array().expect("runs") {
        for key in ["time_s", "energy_j"] {
            let (low, high) = range(&run["ranges"][key]);
            let drawn = run["ranges"]["draws"].as_array().expect("draws").iter();
            let drawn: Vec<f64> = drawn.map(|draw| draw[key].as_f64().expect("a draw")).collect();
            assert_eq!(drawn.len(), 24);
            let below = drawn.iter().filter(|&&value| value < low).count();
            let above = drawn.iter().filter(|&&value| value > high).count();
            // 5 % of 24 draws at either end.
            assert!(low < high && below <= 2 && above <= 2, "{key}: {below} below {low}, {above} above {high}");
        }
        let (low, high) = range(&run["ranges"]["time_s"]);
        let time = run["time_s"].as_f64().expect("time");
        assert!(low <= time && time <= high, "{time} is not in {low} to {high}");
    }
    let (low, high) = range(&json["uncertainty"]["speedup"]);
    let speedup = json["speedup"].as_f64().expect("speedup");
    // A draw of a chip is one of all modes: their ratio varies less than either.
    let spread = |(low, high): (f64, f64)| high / low;
    assert!(spread((low, high)) < spread(range(&json["runs"][0]["ranges"]["time_s"])), "{low} to {high}");
    assert!(low * 0.99 <= speedup && speedup <= high * 1.01, "{speedup} is not in {low} to {high}");
}

#[test]
fn a_seed_says_which_chips_are_drawn() {
    let (_, first) = compared(&["--seed", "7"]);
    assert_eq!(first, compared(&["--seed", "7"]).1);
    assert_ne!(first, compared(&["--seed", "8"]).1);
}

#[test]
fn published_values_are_not_drawn() {
    let (json, _) = compared(&[]);
    let fields = json["uncertainty"]["fields"].as_array().expect("fields").iter();
    let fields: Vec<&str> = fields.filter_map(Value::as_str).collect();
    // The file marks these as published, the ports as assumed.
    assert!(!fields.contains(&"clock_ghz") && !fields.contains(&"pcu.stages"), "{fields:?}");
    assert!(fields.contains(&"pmu.read_ports"), "{fields:?}");
}

#[test]
fn one_draw_is_no_range() {
    for samples in ["0", "1"] {
        let words = ["run", "--mode", "kbk", "--uncertainty", "--arch", "plasticine", "--workload", "tiny-mlp"];
        let (code, stdout, stderr) = rdusim(Path::new("."), &[&words[..], &["--samples", samples]].concat());
        assert!(code == Some(2) && stdout.is_empty() && stderr.contains("--samples"), "{stderr}");
    }
}

/// What no vendor says, a DRAM part's turnarounds and row misses and whether there are two links a direction or one, is within the
/// ranges that are printed of the shipped chip.
#[test]
fn ranges_of_a_shipped_chip_hold_a_memory_part_and_one_link() {
    let on = |more: &[&str]| {
        let words = ["compare", "--format", "json", "--arch", "arch/sn10.toml", "--workload", "gpt2-small-mlp"];
        let (code, stdout, stderr) = rdusim(Path::new("."), &[&words[..], more].concat());
        assert_eq!(code, Some(0), "{more:?}: {stderr}");
        serde_json::from_str::<Value>(&stdout).expect("JSON")
    };
    let with_ranges = on(&["--uncertainty"]);
    let fields = with_ranges["uncertainty"]["fields"].to_string();
    for field in ["links_per_direction", "memory.ddr.turnaround_ns", "memory.ddr.non_sequential_ns"] {
        assert!(fields.contains(field), "{fields}");
    }
    for set in ["arch.memory.ddr.part=\"ddr4-2666\"", "arch.network.links_per_direction=1"] {
        let other = on(&["--set", set]);
        for (run, with_range) in
            other["runs"].as_array().expect("runs").iter().zip(with_ranges["runs"].as_array().expect("runs"))
        {
            let (time, (low, high)) = (run["time_s"].as_f64().expect("time"), range(&with_range["ranges"]["time_s"]));
            assert!(low <= time && time <= high, "{set}: {time} is not in {low} to {high}");
        }
    }
}
