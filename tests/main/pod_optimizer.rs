//! Optimisers and compressed gradients of pods: bytes of their closed forms, and time that follows them.

use std::process::Command;

use rdusim::pod::{Detail, Job, StackKind, TrainingStep, step};
use serde_json::Value;

use crate::small_pods;

fn job(parallel: &str) -> Job {
    small_pods::job(parallel, 8, 4, 1024)
}

fn run(parallel: &str) -> TrainingStep {
    let system = small_pods::system("dgx-a100");
    step(&system, small_pods::stack(&system, StackKind::Flash), &job(parallel), Detail::Grouped).expect("a step")
}

/// Rows plus columns, and elements, of all matrices: 4 layers of queries, keys and values, projection, up and down, and two tables.
fn matrices() -> (u64, u64) {
    let a = job("dp=1").architecture;
    let (h, v) = (a.hidden, a.vocabulary);
    let layer = [(h, 3 * h), (h, h), (h, 4 * h), (4 * h, h)];
    let tables = [(v, h), (1024, h)];
    let of = |f: &dyn Fn(u64, u64) -> u64| {
        4 * layer.iter().map(|(n, m)| f(*n, *m)).sum::<u64>() + tables.iter().map(|(n, m)| f(*n, *m)).sum::<u64>()
    };
    (of(&|n, m| n + m), of(&|n, m| n * m))
}

#[test]
fn state_has_the_bytes_of_its_closed_form() {
    let parameters = job("dp=1").stage_parameters(0);
    let (sides, _) = matrices();
    let state = |optimizer: &str| run(&format!("optimizer={optimizer}")).memory.optimizer;
    assert_eq!(state("adam"), 12 * parameters);
    assert_eq!(state("adam-8bit"), 6 * parameters + 8 * parameters.div_ceil(2048));
    assert_eq!(state("lion"), 8 * parameters);
    assert_eq!(state("adafactor"), 4 * parameters + 4 * sides);
    assert_eq!(state("sgd"), 4 * parameters);
    // Divided over the replicas as Adam's is.
    assert_eq!(run("optimizer=lion,dp=4,zero=1").memory.optimizer, 2 * parameters);
    let seconds =
        ["adam", "lion", "adam-8bit", "adafactor", "sgd"].map(|of| run(&format!("optimizer={of}")).time.optimizer);
    assert!(seconds.is_sorted_by(|more, less| more > less), "{seconds:?}");
}

#[test]
fn gradients_move_the_bytes_of_their_closed_form() {
    let parameters = job("dp=1").stage_parameters(0);
    let (sides, elements) = matrices();
    let moved = |gradients: &str| -> u64 {
        run(&format!("dp=4,gradients={gradients}")).traffic.iter().map(|(_, bytes)| bytes).sum()
    };
    // A ring moves 2 (n - 1) times the operand in all, in parts of whole bytes.
    let of = |bytes: u64| 6 * bytes;
    for (gradients, bytes) in [
        ("bf16", 2 * parameters),
        ("fp32", 4 * parameters),
        ("int8", parameters + 4 * parameters.div_ceil(2048)),
        ("powersgd:4", 2 * (4 * sides + parameters - elements)),
    ] {
        let (moved, expected) = (moved(gradients), of(bytes));
        assert!(moved.abs_diff(expected) * 1000 < expected, "{gradients}: {moved} {expected}");
    }
    let plain = run("dp=4");
    let compressed = run("dp=4,gradients=powersgd:4");
    assert!(compressed.time.data_comm < plain.time.data_comm && compressed.time.optimizer > plain.time.optimizer);
    assert_eq!(compressed.memory.buffers - plain.memory.buffers, 2 * parameters);
    assert!(compressed.notes.iter().any(|note| note.contains("Vogels")), "{:?}", compressed.notes);
}

#[test]
fn the_search_keeps_them_and_their_bounds_hold() {
    let run = |more: &[&str]| {
        let arguments =
            ["pod", "dgx-a100", "--phase", "training", "--stack", "flash", "--model", "gpt2", "--batch", "8"];
        Command::new(env!("CARGO_BIN_EXE_rdusim")).args(arguments).args(more).output().expect("it runs")
    };
    let output = run(&[
        "--search",
        "--chips",
        "4",
        "--parallel",
        "gradients=powersgd:2,optimizer=adafactor,zero=0,cp=2",
        "--format",
        "json",
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).expect("an object");
    assert_eq!(found["parallel"]["optimizer"], "adafactor");
    assert_eq!(found["parallel"]["gradient_format"], "powersgd:2");
    assert_eq!((&found["parallel"]["cp"], &found["system"]["chips"]), (&2.into(), &4.into()));
    for of in found["candidates"].as_array().expect("candidates") {
        let (step, bound) = (of["step_s"].as_f64(), of["bound_s"].as_f64());
        assert!(step.zip(bound).is_none_or(|(step, bound)| bound <= step), "{of}");
    }
    let refused = run(&["--parallel", "dp=2,zero=1,gradients=int8"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("zero=0 only"));
}
