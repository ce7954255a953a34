//! Parts of sequences that follow each other through a pipeline, what lies with the host, and pipelines that never drain.

use std::process::Command;

use rdusim::model::Architecture;
use rdusim::pod::{Detail, Job, Memory, StackKind, System, TrainingStep, of_host, of_job, step};

use crate::small_pods::{self, stack};

fn job(parallel: &str, batch: u64) -> Job {
    let job = small_pods::job(parallel, batch, 8, 4096);
    Job { architecture: Architecture { tied: false, ..job.architecture }, ..job }
}

fn run(system: &System, parallel: &str, batch: u64) -> TrainingStep {
    step(system, stack(system, StackKind::Flash), &job(parallel, batch), Detail::Grouped).expect("a step")
}

fn memory(parallel: &str) -> Memory {
    // Few logits, so that the first stage is the fullest.
    of_job(&Job { predicted: Some(4), ..job(parallel, 8) }, StackKind::Flash)
}

fn sum(step: &TrainingStep) -> f64 {
    let t = &step.time;
    t.compute
        + t.recompute
        + t.tensor_comm
        + t.context_comm
        + t.expert_comm
        + t.pipeline_comm
        + t.bubble
        + t.data_comm
        + t.optimizer
        + t.offload
        + t.other
}

/// A pipeline of few micro-batches fills sooner with parts of sequences, which keep less; the work of attention stays.
#[test]
fn parts_of_sequences_shorten_bubbles_and_take_less_memory() {
    let system = small_pods::system("dgx-a100");
    let [whole, parts] = ["pp=4", "pp=4,seq_chunks=4"].map(|parallel| run(&system, parallel, 4));
    assert!(parts.time.bubble < 0.6 * whole.time.bubble, "{:?} {:?}", parts.time, whole.time);
    assert!((sum(&parts) / parts.step_s - 1.0).abs() < 1e-9);
    // Products of fewer rows fill the chip less well; nothing is left out.
    let ratio = parts.time.compute / whole.time.compute;
    assert!((0.97..1.5).contains(&ratio), "{ratio}");
    assert!((parts.mfu * parts.step_s / (whole.mfu * whole.step_s) - 1.0).abs() < 1e-12);
    // Each border carries as many bytes in more messages.
    assert_eq!(parts.traffic, whole.traffic);
    // The first of 4 stages holds 4 + 3 quarters in place of 4; all micro-batches with GPipe either way.
    let held = |parallel: &str| memory(parallel).held;
    assert_eq!((held("pp=4"), held("pp=4,seq_chunks=4"), held("pp=4,seq_chunks=4,schedule=gpipe")), (4, 7, 32));
    assert!(memory("pp=4,seq_chunks=4").activations * 2 <= memory("pp=4").activations + (1 << 20));
    // Chips on their own, and tensor ranks.
    for parallel in ["pp=2,seq_chunks=2,dp=2,zero=1", "tp=2,pp=2,seq_chunks=4", "pp=2,dp=2,seq_chunks=2,zero=3"] {
        let of = |detail| step(&system, stack(&system, StackKind::Flash), &job(parallel, 4), detail).expect("a step");
        let (grouped, flat) = (of(Detail::Grouped), of(Detail::Flat));
        assert!((grouped.step_s / flat.step_s - 1.0).abs() < 0.01, "{parallel}: {} {}", grouped.step_s, flat.step_s);
    }
}

#[test]
fn what_lies_with_the_host_takes_its_link_and_no_memory() {
    let mut system = small_pods::system("dgx-a100");
    let parameters = job("pp=1", 8).stage_parameters(0);
    let of_host = |parallel: &str| of_host(&small_pods::system("dgx-a100"), &job(parallel, 8), StackKind::Flash);
    let (plain, moved) = (memory("pp=4"), memory("pp=4,offload=activations"));
    // Two micro-batches of four are on the chip.
    assert_eq!(moved.activations * 2, plain.activations);
    assert_eq!(of_host("pp=4,offload=activations"), 4 * 2 * (plain.activations / 4));
    let weights = memory("offload=weights");
    let table = (50257 + 4096) * 1024;
    assert_eq!(weights.weights, 2 * (table + 50257 * 1024));
    assert_eq!(of_host("offload=weights"), 2 * parameters);
    assert_eq!(of_host("offload=optimizer+weights"), (2 + 12) * parameters);
    let all = memory("offload=optimizer+weights+activations");
    assert_eq!((all.optimizer, all.weights), (0, weights.weights));
    // A fast link hides all but the update's; a slow one is what a step takes.
    system.host.link_gb_per_s = 10_000.0;
    let alone = run(&system, "pp=1", 8);
    for kind in ["activations", "weights", "weights+activations"] {
        let fast = run(&system, &format!("offload={kind}"), 8);
        assert!(fast.time.offload == 0.0 && (fast.step_s / alone.step_s - 1.0).abs() < 1e-9, "{kind}");
    }
    system.host.link_gb_per_s = 1.0;
    let slow = run(&system, "offload=weights", 8);
    // Weights come 16 times, and go back once: each passes the link for itself.
    let link = (16.0 + 1.0) * 2.0 * parameters as f64 / 1e9;
    assert!((slow.step_s / link - 1.0).abs() < 0.02, "{} {link}", slow.step_s);
    assert!((sum(&slow) / slow.step_s - 1.0).abs() < 1e-9);
    let kept = run(&system, "pp=2,offload=activations", 8);
    assert!(kept.time.offload > 0.0 && (sum(&kept) / kept.step_s - 1.0).abs() < 1e-9);
}

#[test]
fn two_versions_of_weights_never_drain() {
    let system = small_pods::system("dgx-a100");
    let [flushed, buffered, stashed] =
        ["1f1b", "pipedream-2bw", "pipedream"].map(|name| run(&system, &format!("pp=4,schedule={name}"), 8));
    assert!(buffered.step_s < flushed.step_s && buffered.time.optimizer < stashed.time.optimizer);
    assert!((sum(&buffered) / buffered.step_s - 1.0).abs() < 1e-9);
    // One update for a batch, as of a flushed one.
    assert!((buffered.time.optimizer / flushed.time.optimizer - 1.0).abs() < 1e-6);
    let weights = |name: &str| memory(&format!("pp=4,schedule={name}")).weights;
    assert_eq!((weights("pipedream-2bw"), weights("pipedream")), (2 * weights("1f1b"), 4 * weights("1f1b")));
    assert!(buffered.notes.iter().any(|note| note.contains("one update old")), "{:?}", buffered.notes);
}

#[test]
fn what_is_not_modelled_together_is_refused() {
    for (arguments, says) in [
        (["dgx-a100", "flash", "pp=2,seq_chunks=3", "4"], "does not divide the 1024 tokens"),
        (["dgx-a100", "flash", "pp=2,schedule=zb-h1,seq_chunks=2", "4"], "no order of parts"),
        (["dgx-a100", "flash", "cp=2,seq_chunks=2", "4"], "divides the same tokens"),
        (["sn40l-16", "rdu", "pp=2,seq_chunks=2", "4"], "on GPUs only"),
        (["dgx-a100", "flash", "dp=2,zero=3,offload=weights", "4"], "moves weights or gradients"),
        (["dgx-a100", "flash", "offload=state", "4"], "optimizer, activations and weights"),
        (["dgx-a100", "flash", "pp=4,schedule=pipedream-2bw", "4"], "share a table"),
    ] {
        let [system, kind, parallel, batch] = arguments;
        let words = ["pod", system, "--phase", "training", "--model", "gpt2", "--stack", kind, "--parallel", parallel];
        let output = Command::new(env!("CARGO_BIN_EXE_rdusim")).args(words).args(["--batch", batch]).output();
        let output = output.expect("it runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{parallel}: {message}");
        assert!(message.contains(says) && output.stdout.is_empty(), "{parallel}: {message}");
    }
}

#[test]
fn encoded_activations_take_less_memory_and_more_time() {
    let system = small_pods::system("dgx-a100");
    let (plain, gist) = (memory("pp=4"), memory("pp=4,stash=gist"));
    // Of 34 bytes an element of the stream 32 are halved, and two masks are bits.
    let share = gist.activations as f64 / plain.activations as f64;
    assert!((share - 16.25 / 34.0).abs() < 0.01, "{share}");
    let [plain, gist] = ["pp=4", "pp=4,stash=gist"].map(|parallel| run(&system, parallel, 8));
    assert!(gist.time.compute > plain.time.compute && gist.notes.iter().any(|note| note.contains("Jain")));
    let both = memory("pp=4,stash=gist,offload=activations");
    assert!(both.activations * 2 <= memory("pp=4,stash=gist").activations);
}

#[test]
fn energy_is_what_chips_do_and_what_they_take_while_they_wait() {
    let mut system = small_pods::system("dgx-a100");
    let fast = run(&system, "tp=2,dp=2", 8);
    for level in &mut system.levels {
        level.link_gb_per_s /= 10.0;
    }
    let slow = run(&system, "tp=2,dp=2", 8);
    let watts = (slow.energy_j - fast.energy_j) / (slow.step_s - fast.step_s) / 4.0;
    assert!(slow.step_s > fast.step_s && (20.0..200.0).contains(&watts), "{watts} W of a chip that waits");
    // The same work on twice the chips takes the same but for what they wait and update.
    let dynamic = |step: &TrainingStep, chips: f64| step.energy_j - watts * chips * step.step_s;
    let one = run(&system, "dp=1", 8);
    let four = run(&system, "dp=4", 8);
    let ratio = dynamic(&four, 4.0) / dynamic(&one, 1.0);
    assert!((1.0..1.2).contains(&ratio), "{ratio}");
    // Computing again takes its part.
    let again = run(&system, "dp=1,recompute=full", 8);
    let ratio = dynamic(&again, 1.0) / dynamic(&one, 1.0);
    assert!((1.15..1.4).contains(&ratio), "{ratio}");
}

#[test]
fn the_slowest_chip_makes_a_step() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(directory.path().join("shares.txt"), "# of four chips\n0\n0\n0\n0.2\n").expect("a file");
    std::fs::write(directory.path().join("words.txt"), "0\nslow\n").expect("a file");
    let run = |stragglers: &str| {
        let words = ["pod", "dgx-a100", "--phase", "training", "--stack", "flash", "--model", "gpt2", "--batch", "8"];
        let more = ["--parallel", "dp=8", "--format", "json", "--stragglers", stragglers];
        let mut command = Command::new(env!("CARGO_BIN_EXE_rdusim"));
        command.current_dir(directory.path()).args(words).args(more).output().expect("it runs")
    };
    let found = |stragglers: &str| {
        let output = run(stragglers);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("an object")
    };
    for (stragglers, slower) in [
        ("exponential:0.01", 0.01 * (1..=8).map(|k| 1.0 / f64::from(k)).sum::<f64>()),
        ("normal:0.02", 0.02 * 1.4236),
        ("shares.txt", 0.2 * (1.0 - 0.75_f64.powi(8))),
    ] {
        let of = found(stragglers);
        let share = of["stragglers"]["slower_share"].as_f64().expect("a share");
        assert!((share / slower - 1.0).abs() < 1e-3, "{stragglers}: {share} {slower}");
        let time = |name: &str| of["time_s"][name].as_f64().expect("seconds");
        let longer = of["stragglers"]["step_s"].as_f64().expect("seconds") - of["step_s"].as_f64().expect("seconds");
        let computing = time("compute") + time("recompute") + time("optimizer");
        assert!((longer / (share * computing) - 1.0).abs() < 1e-9);
    }
    for (stragglers, says) in
        [("normal:-1", "expected a share"), ("none", "no such file"), ("words.txt", "words.txt:2")]
    {
        let output = run(stragglers);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(says), "{stragglers}");
    }
}
