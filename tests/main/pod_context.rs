//! Context parallelism: several chips share the tokens of a sequence.

use std::process::Command;

use rdusim::pod::{Detail, Job, StackKind, System, TrainingStep, step};

use crate::small_pods::{self, stack};

fn system() -> System {
    small_pods::system("dgx-a100")
}

fn job(parallel: &str, batch: u64) -> Job {
    small_pods::job(parallel, batch, 4, 8192)
}

fn run(system: &System, parallel: &str, batch: u64) -> TrainingStep {
    step(system, stack(system, StackKind::Flash), &job(parallel, batch), Detail::Grouped).expect("a step")
}

/// Every chip on its own gives what a stage as one gives.
#[test]
fn chips_on_their_own_give_what_groups_give() {
    let system = system();
    for parallel in ["cp=2,tp=2,dp=2", "cp=4,context=ulysses,zero=3", "cp=2,pp=2,zero=1,recompute=full"] {
        let of = |detail| step(&system, stack(&system, StackKind::Flash), &job(parallel, 4), detail).expect("a step");
        let (grouped, flat) = (of(Detail::Grouped), of(Detail::Flat));
        assert!((grouped.step_s / flat.step_s - 1.0).abs() < 1e-6, "{parallel}: {} {}", grouped.step_s, flat.step_s);
        assert_eq!(grouped.traffic, flat.traffic, "{parallel}");
    }
}

/// Four chips of a sequence share its work, and hold a part each of what is kept of it; keys and values come around unseen where a
/// step of attention takes longer than sending them.
#[test]
fn work_and_memory_are_shared() {
    let mut system = system();
    let (alone, ring) = (run(&system, "cp=1", 2), run(&system, "cp=4", 2));
    let shared = ring.time.compute * 4.0 / alone.time.compute;
    assert!((1.0..1.25).contains(&shared), "{shared}");
    // Of 8,192 tokens a step is short; over links a hundred times as fast the gradients of the last keys alone are waited for.
    assert!(alone.time.context_comm == 0.0 && ring.time.context_comm > 0.0);
    let mut fast = system.clone();
    (fast.levels[0].link_gb_per_s, fast.levels[0].message_us) = (fast.levels[0].link_gb_per_s * 100.0, 0.0);
    assert!(run(&fast, "cp=4", 2).time.context_comm < 0.01 * ring.time.context_comm);
    assert!(ring.memory.activations * 4 <= alone.memory.activations && ring.memory.weights == alone.memory.weights);
    let ulysses = run(&system, "cp=4,context=ulysses", 2);
    assert!(ulysses.time.context_comm > 0.0 && ulysses.time.compute * 4.0 / alone.time.compute < 1.25);
    // A slow link shows what cannot hide: never more than all of it.
    system.levels[0].link_gb_per_s /= 100.0;
    let slow = run(&system, "cp=4", 2);
    // Keys and values of 2,048 tokens three times forward; with their gradients four times back.
    let sent = 2.0 * 2.0 * 2048.0 * 1024.0 / (system.levels[0].links as f64 * system.levels[0].link_gb_per_s * 1e9);
    let most = 2.0 * 4.0 * (3.0 * sent + 4.0 * 2.0 * sent) / system.levels[0].sustained_share;
    assert!(
        slow.time.context_comm > 0.5 * most && slow.time.context_comm < 1.02 * most,
        "{} {most}",
        slow.time.context_comm
    );
    let sum = |t: &rdusim::pod::StepTime| {
        t.compute
            + t.recompute
            + t.tensor_comm
            + t.context_comm
            + t.pipeline_comm
            + t.bubble
            + t.data_comm
            + t.optimizer
            + t.other
    };
    assert!((sum(&slow.time) / slow.step_s - 1.0).abs() < 1e-9);
}

/// Bytes of another micro-batch are those of the closed forms; gradients are added up over all chips of a stage.
#[test]
fn exchanges_move_the_bytes_of_their_closed_forms() {
    let system = system();
    let bytes = |parallel: &str, batch: u64| -> u64 {
        run(&system, parallel, batch).traffic.iter().map(|(_, bytes)| bytes).sum()
    };
    let more = |parallel: &str| bytes(parallel, 4) - bytes(parallel, 2);
    let (chips, layers, micros) = (4, 4, 2);
    let columns = 2 * 2048 * 1024;
    // Keys and values three times, and with their gradients four times.
    assert_eq!(more("cp=4"), chips * layers * micros * columns * (2 * 3 + 4 * 4));
    assert_eq!(more("cp=4,recompute=full"), chips * layers * micros * columns * (2 * 2 * 3 + 4 * 4));
    // Three quarters of queries, keys, values and results, forward and back.
    assert_eq!(more("cp=4,context=ulysses"), chips * layers * micros * columns / 4 * 3 * (4 + 4));
    let reduced = |parallel: &str| 2 * bytes(parallel, 4) - bytes(parallel, 8);
    assert_eq!(reduced("cp=4"), reduced("dp=4"));
}

#[test]
fn what_cannot_be_shared_is_refused() {
    for (system, more, says) in [
        ("dgx-a100", ["flash", "cp=3"], "does not divide the 1024 tokens"),
        ("dgx-a100", ["flash", "cp=8,context=ulysses"], "does not divide the 12 key and value heads"),
        ("dgx-a100", ["megatron-2021", "cp=2"], "fused attention"),
        ("sn40l-16", ["rdu", "cp=2"], "between GPUs only"),
        ("dgx-a100", ["flash", "cp=2,context=other"], "expected ring or ulysses"),
    ] {
        let arguments =
            ["pod", system, "--phase", "training", "--model", "gpt2", "--stack", more[0], "--parallel", more[1]];
        let output = Command::new(env!("CARGO_BIN_EXE_rdusim")).args(arguments).output().expect("it runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(says) && output.stdout.is_empty(), "{more:?}: {message}");
    }
}
