//! GPT-2 and vision transformers trained on IPU-PODs of 16 to 256 chips: what more replicas buy.
//!
//! `cargo run --release --example pod_scaling` prints a table for each model.

#![expect(clippy::print_stdout, reason = "a command")]

use std::error::Error;
use std::path::Path;

use rdusim::analysis::{PodRequest, pod};
use rdusim::input::Override;

/// A model, its replica and what a replica takes in a step.
struct Case {
    model: &'static str,
    /// What a sequence is called.
    unit: &'static str,
    /// Stages of a replica.
    stages: u64,
    micro_batch: u64,
    /// Micro-batches of a replica in a step, where the batch grows with the pod.
    micro_batches: u64,
    /// Sequences of a step, where it does not.
    batch: u64,
    sequence: u64,
}

const CASES: [Case; 4] = [
    Case {
        model: "gpt2",
        unit: "sequences",
        stages: 2,
        micro_batch: 1,
        micro_batches: 64,
        batch: 2048,
        sequence: 1024,
    },
    Case {
        model: "gpt2-large",
        unit: "sequences",
        stages: 4,
        micro_batch: 1,
        micro_batches: 64,
        batch: 2048,
        sequence: 1024,
    },
    Case {
        model: "vit-base",
        unit: "images",
        stages: 1,
        micro_batch: 4,
        micro_batches: 16,
        batch: 4096,
        sequence: 197,
    },
    Case {
        model: "vit-large",
        unit: "images",
        stages: 2,
        micro_batch: 4,
        micro_batches: 32,
        batch: 4096,
        sequence: 197,
    },
];

const PODS: [(&str, u64); 4] = [("ipu-pod16", 16), ("ipu-pod64", 64), ("ipu-pod128", 128), ("ipu-pod256", 256)];
const CHIPS: [(&str, &str); 2] = [("GC200", "../gc200.toml"), ("Bow", "../bow.toml")];

/// Seconds of a step, and what of them is exposed reduction of gradients and pipeline bubble.
fn step(case: &Case, system: &str, chips: u64, chip: &str, batch: u64) -> Result<[f64; 3], Box<dyn Error>> {
    let replicas = chips / case.stages;
    let parallel = format!("pp={},dp={replicas},order=tp-pp-dp,recompute=full,zero=1", case.stages);
    let sets = [Override::parse(&format!("arch.chip=\"{chip}\""))?];
    let request = PodRequest {
        system: Path::new(system),
        sets: &sets,
        model: case.model,
        parallel: &parallel,
        stack: Some("popart"),
        batch,
        micro_batch: case.micro_batch,
        sequence: Some(case.sequence),
        sparsity: None,
        predicted: None,
        stage_layers: None,
        flat: false,
        expert_load: None,
    };
    let of = pod(&request, &mut |_| (), |_, _, _, step| [step.step_s, step.time.data_comm, step.time.bubble])?;
    Ok(of)
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("# GPT-2 and vision transformers on pods of IPUs\n");
    println!(
        "Made by `reports/ipu/regenerate`; [docs/ipu.md](../../docs/ipu.md) has the rules. Stack `popart`, fp16, layers computed again,"
    );
    println!("the optimiser's state divided over the replicas. Nothing here was compared with measurements.");
    for case in &CASES {
        println!(
            "\n## {}: replicas of {} chips, micro-batches of {} {}\n",
            case.model, case.stages, case.micro_batch, case.unit
        );
        println!(
            "| chip | chips | batch | step | {} a second | per chip, over 16 chips | exposed reduction | bubble |",
            case.unit
        );
        println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
        for (name, chip) in CHIPS {
            for grows in [true, false] {
                let mut first = None;
                for system in PODS {
                    let replicas = system.1 / case.stages;
                    let batch = if grows { replicas * case.micro_batch * case.micro_batches } else { case.batch };
                    let [seconds, reduction, bubble] = step(case, system.0, system.1, chip, batch)?;
                    let rate = batch as f64 / seconds;
                    let each = rate / system.1 as f64;
                    println!(
                        "| {name} | {} | {batch}{} | {:.1} ms | {rate:.0} | {:.0} % | {:.1} % | {:.1} % |",
                        system.1,
                        if grows { "" } else { ", fixed" },
                        seconds * 1e3,
                        100.0 * each / *first.get_or_insert(each),
                        100.0 * reduction / seconds,
                        100.0 * bubble / seconds
                    );
                }
            }
        }
    }
    Ok(())
}
