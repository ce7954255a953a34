//! Why a mapping was taken and why others lost, as a user asks: `explain --search`.

use std::process::{Command, Output};

fn rdusim(arguments: &str, threads: &str) -> Output {
    let command = env!("CARGO_BIN_EXE_rdusim");
    let arguments = arguments.split_whitespace();
    Command::new(command).args(arguments).env("RAYON_NUM_THREADS", threads).output().expect("the command starts")
}

#[track_caller]
fn succeeds(arguments: &str) -> String {
    let output = rdusim(arguments, "2");
    assert_eq!(output.status.code(), Some(0), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("results are UTF-8")
}

const TINY: &str = "explain --arch sn10 --workload tiny-mlp";

#[test]
fn every_section_tells_what_was_decided_of_it() {
    let text = succeeds(&format!("{TINY} --search"));
    let paragraphs: Vec<&str> = text.split("\n\n").collect();
    assert!(paragraphs[0].contains("fused: ") && paragraphs[0].contains("kbk: "), "{text}");
    let of = |name: &str| {
        let paragraph = paragraphs.iter().find(|paragraph| paragraph.lines().next() == Some(name));
        *paragraph.unwrap_or_else(|| panic!("no section {name}: {text}"))
    };
    for name in ["up", "gelu", "down"] {
        let decisions = of(name);
        for decision in ["by estimate; none takes less than", "on an ideal network", "the best so far", "ends: "] {
            assert!(decisions.contains(decision), "{decision}: {decisions}");
        }
    }
    // Each section is told once, and all runs of operators are.
    assert_eq!(paragraphs.len(), 1 + 6, "{text}");
}

#[test]
fn decisions_are_those_of_the_run() {
    let json: serde_json::Value =
        serde_json::from_str(&succeeds(&format!("{TINY} --mode kbk --search down --format json"))).expect("JSON");
    let sections = json["sections"].as_array().expect("sections");
    assert_eq!(sections.len(), 1);
    let decisions = sections[0]["decisions"].as_array().expect("decisions");
    let mut best = decisions.iter().rev().filter_map(|line| line.as_str()?.strip_prefix("placed and routed: "));
    let best = best.find_map(|line| line.split_once(", the best so far")).expect("a best mapping").0;
    let best: u64 = best.replace(',', "").parse().expect("cycles");
    let run = succeeds("run --arch sn10 --workload tiny-mlp --mode kbk --format json");
    let run: serde_json::Value = serde_json::from_str(&run).expect("JSON");
    let sections = run["runs"][0]["sections"].as_array().expect("sections");
    let down = sections.iter().find(|section| section["name"] == "down").expect("the section");
    let cycles = down["cycles"].as_u64().expect("cycles");
    // Routing the best once more may gain a little.
    assert!(cycles <= best && cycles as f64 >= best as f64 * 0.97, "{cycles} of {best}");
}

/// The search is asked for as `run` asks for it.
#[test]
fn explanations_are_of_the_effort_that_is_asked_for() {
    let told = succeeds(&format!("{TINY} --mode kbk --effort quick --search down"));
    assert!(told.lines().next().is_some_and(|line| line.ends_with("effort quick")), "{told}");
    for what in ["", "--traffic-curve"] {
        let of = |effort: &str| succeeds(&format!("{TINY} --mode kbk {what} --effort {effort} --format json"));
        let has_remark = |text: &str| text.contains("searched for at `--effort quick`");
        assert!(has_remark(&of("quick")) && !has_remark(&of("normal")), "{what}");
    }
}

#[test]
fn decisions_are_the_same_for_any_number_of_threads() {
    let of = |threads: &str| rdusim(&format!("{TINY} --search"), threads).stdout;
    assert_eq!(of("1"), of("8"));
}

#[test]
fn what_was_not_compared_is_refused_with_what_was() {
    let output = rdusim(&format!("{TINY} --search gelu+up"), "1");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(message.contains("no section `gelu+up`") && message.contains("up+gelu"), "{message}");
    let output = rdusim("explain --arch h100 --workload tiny-mlp --search", "1");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && message.contains("need no mapping"), "{message}");
}
