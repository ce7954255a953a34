//! Phases of GPUs that swap with their hosts: time, memory, and what is refused.

use std::process::{Command, Output};

use rdusim::pod::{Detail, SpanKind, StackKind, TrainingStep, of_host, of_job, step};
use serde_json::Value;

use crate::small_pods::{job, stack, system};

/// Sixteen layers, sixteen micro-batches of a sequence of 512 tokens.
fn run(parallel: &str, link_gb_per_s: f64) -> TrainingStep {
    let mut system = system("dgx-a100");
    system.host.link_gb_per_s = link_gb_per_s;
    let job = job(parallel, 16, 16, 512);
    step(&system, stack(&system, StackKind::Flash), &job, Detail::Grouped).expect("a step")
}

const PHASED: &str = "recompute=full,offload=weights";

#[test]
fn weights_come_once_a_pass_of_a_step() {
    // Over a slow link the passes of every micro-batch wait for all weights twice; phases wait for them twice in all.
    let slow = 0.5;
    let (each, phased) = (run(PHASED, slow), run(&format!("{PHASED},schedule=phased:1"), slow));
    assert!(phased.time.offload < each.time.offload / 4.0, "{:?} {:?}", phased.time, each.time);
    // All weights but those of the last phase and the embedding come twice, and no faster than the link.
    let parameters = job("tp=1", 16, 16, 512).stage_parameters(0) as f64;
    let least = 2.0 * parameters / (slow * 1e9);
    assert!(phased.step_s > least);
    // Over a fast one nothing is waited for but the first weights and the last gradients.
    let (plain, fast) = (run("recompute=full", 1e5), run(&format!("{PHASED},schedule=phased:1"), 1e5));
    assert!((fast.step_s / plain.step_s - 1.0).abs() < 0.01, "{} {}", fast.step_s, plain.step_s);
    // All micro-batches have gone forward before the first goes back.
    let of = |kind: SpanKind| phased.simulated.spans.iter().filter(move |span| span.kind == kind).map(|span| span.time);
    let forward = of(SpanKind::Forward).map(|(_, end)| end).max().expect("a pass");
    assert!(of(SpanKind::Backward).all(|(start, _)| start >= forward) && of(SpanKind::Backward).count() == 16);
    let time = &phased.time;
    let sum = time.compute + time.recompute + time.optimizer + time.offload + time.other + time.bubble + time.data_comm;
    assert!((sum / phased.step_s - 1.0).abs() < 1e-9, "{time:?} {}", phased.step_s);
}

#[test]
fn larger_phases_hide_less_and_reading_ahead_hides_more() {
    let waits = |how: &str| run(&format!("{PHASED},{how}"), 4.0).time.offload;
    let sizes = ["schedule=phased:1", "schedule=phased:4", "schedule=phased:16"].map(waits);
    assert!(sizes.is_sorted_by(|less, more| less <= more), "{sizes:?}");
    let ahead = ["schedule=phased:2,prefetch=1", "schedule=phased:2,prefetch=0"].map(waits);
    assert!(ahead[0] < ahead[1], "{ahead:?}");
}

#[test]
fn memory_has_two_phases_and_the_host_the_rest() {
    let whole = job("recompute=full", 16, 16, 512);
    let parameters = whole.stage_parameters(0);
    let (table, layer) = (whole.logits_parameters(), whole.layer_parameters());
    let table = (table, whole.embedding_parameters() - table);
    let system = system("dgx-a100");
    let of = |how: &str| {
        let job = job(&format!("recompute=full,{how}"), 16, 16, 512);
        (of_job(&job, StackKind::Flash), of_host(&system, &job, StackKind::Flash))
    };
    let (memory, host) = of("schedule=phased:2,offload=weights+optimizer");
    // The tables are larger than two layers: both, or the larger beside one phase where none is read ahead.
    assert!(table.1 + table.0 > 2 * layer);
    assert_eq!((memory.weights, memory.gradients), (2 * (2 * table.0 + table.1), 2 * (2 * table.0 + table.1)));
    assert_eq!((memory.optimizer, host), (0, (12 + 4) * parameters));
    assert_eq!(of("schedule=phased:2,offload=weights,prefetch=0").0.weights, 2 * (table.0 + table.1));
    // Inputs of all layers of all micro-batches, on the chip or with the host but for two of a phase.
    let input = 2 * 512 * 1024;
    let inputs = ["weights", "weights+activations"].map(|kinds| of(&format!("schedule=phased:2,offload={kinds}")));
    assert_eq!(inputs[0].0.activations - inputs[1].0.activations, (16 * 16 - 2 * 2) * input);
    assert_eq!(inputs[1].1 - inputs[0].1, 14 * 16 * input);
}

fn rdusim(more: &[&str]) -> Output {
    let model = ["pod", "dgx-a100", "--model", "gpt3-175b", "--phase", "training", "--stack", "flash", "--batch", "64"];
    Command::new(env!("CARGO_BIN_EXE_rdusim")).args(model).args(more).output().expect("it runs")
}

#[test]
fn a_model_larger_than_its_chips_runs_in_phases() {
    let kinds = "recompute=full,optimizer=adam-8bit,offload=optimizer+weights+activations";
    let of = |schedule: &str| {
        let parallel = format!("tp=8,sp=1,{kinds},schedule={schedule}");
        // A host's link that all weights do not fit through beside a micro-batch.
        let link = ["--set", "arch.host.link_gb_per_s=2"];
        let output =
            rdusim(&[&["--micro-batch", "2", "--parallel", &parallel, "--format", "json"][..], &link].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).expect("an object")
    };
    let (phased, each) = (of("phased:1"), of("1f1b"));
    let number = |of: &Value, key: &str| of.pointer(key).and_then(Value::as_f64).expect("a number");
    assert!(number(&phased, "/step_s") < 0.8 * number(&each, "/step_s"), "{} {}", phased["time_s"], each["time_s"]);
    // The gradients of all layers stay on the chips but in phases.
    assert!(10.0 * number(&phased, "/memory_bytes/peak") < number(&each, "/memory_bytes/peak"));
    assert_eq!(phased["parallel"]["schedule"], "phased:1");
}

#[test]
fn what_is_not_modelled_in_phases_is_refused() {
    let system = system("dgx-a100");
    for (parallel, part) in [
        ("tp=8,recompute=full,schedule=phased:1,offload=optimizer", "swap their weights with the host"),
        ("tp=8,recompute=full,schedule=phased:5,offload=weights", "does not divide the 16 layers"),
        ("tp=8,schedule=phased:1,offload=weights", "recompute=full"),
        ("tp=8,tp2=2,recompute=full,schedule=phased:1,offload=weights", "chips of tiles only"),
        ("recompute=full,seq_chunks=2,schedule=phased:1,offload=weights", "seq_chunks are not modelled in phases"),
    ] {
        let found = step(&system, stack(&system, StackKind::Flash), &job(parallel, 16, 16, 512), Detail::Grouped);
        let message = found.expect_err("is refused").to_string();
        assert!(message.contains(part), "{parallel}: {message}");
    }
}
