//! Weights, gradients and optimiser's state divided over the replicas: memory, bytes and time.

use std::path::Path;

use rdusim::model::{Architecture, ExpertLoad, preset};
use rdusim::pod::{
    CollectiveKind, Detail, Job, Memory, Parallel, Stack, StackKind, System, TrainingStep, least_bytes, of_job, open,
    step,
};

fn system() -> System {
    open(Path::new("arch/systems/dgx-a100.toml"), &[]).expect("a shipped system")
}

fn megatron(system: &System) -> &Stack {
    system.stacks.iter().find(|stack| stack.kind == StackKind::Megatron).expect("a stack")
}

fn job(parallel: &str) -> Job {
    let (gpt, _) = preset("gpt2-medium").expect("a preset");
    let architecture = Architecture { layers: 16, tied: false, ..gpt };
    let parallel = Parallel::parse(parallel).expect("a decomposition");
    Job {
        model: "small".into(),
        architecture,
        parallel,
        batch: 32,
        micro_batch: 2,
        sequence: 1024,
        density: None,
        predicted: None,
        stage_layers: None,
        expert_load: ExpertLoad::default(),
    }
}

fn run(parallel: &str) -> TrainingStep {
    let system = system();
    step(&system, megatron(&system), &job(parallel), Detail::Grouped).expect("a step")
}

fn memory(parallel: &str) -> Memory {
    of_job(&job(parallel), StackKind::Megatron)
}

#[test]
fn state_has_the_bytes_of_its_closed_forms() {
    let parameters = job("dp=8").stage_parameters(0);
    let state = |parallel: &str| {
        let memory = memory(parallel);
        memory.weights + memory.gradients + memory.optimizer
    };
    // 16, 4 + 12 / N, 2 + 14 / N and 16 / N bytes a parameter, each kind rounded up to a byte.
    for (zero, eighths) in [(0, 128), (1, 4 * 8 + 12), (2, 2 * 8 + 14), (3, 16)] {
        let found = state(&format!("dp=8,zero={zero}"));
        let least = (parameters * eighths).div_ceil(8);
        assert!((least..least + 3).contains(&found), "zero={zero}: {found} of {least}");
    }
    assert_eq!(state("dp=8,zero=2,offload=optimizer"), 2 * parameters + (2 * parameters).div_ceil(8));
    // What is whole at a time is counted beside it: two layers' gradients, and two layers' weights; with more ahead, more.
    let buffers = |parallel: &str| memory(parallel).buffers;
    assert!(buffers("dp=8,zero=3") > buffers("dp=8,zero=2") && buffers("dp=8,zero=2") > buffers("dp=8,zero=1"));
    let layer = job("dp=8").layer_parameters();
    assert_eq!(buffers("dp=8,zero=3,prefetch=3"), buffers("dp=8,zero=3") + 2 * 2 * layer);
}

#[test]
fn what_is_divided_moves_the_bytes_of_its_closed_forms() {
    let of = |zero: u64| {
        let parallel = format!("tp=2,dp=4,zero={zero}");
        run(&parallel).traffic.iter().map(|(_, bytes)| bytes).sum::<u64>()
    };
    let job = job("tp=2,dp=4");
    let micro = job.micro_batches();
    let tokens = job.logits_parameters();
    let positions = job.embedding_parameters() - tokens;
    let layers = 16 * job.layer_parameters();
    // Of 8 chips, what each sends of so many parameters of 2 bytes.
    let sent = |kind, parameters: u64| (least_bytes(kind, 4, 2 * parameters) * 8.0).round() as u64;
    let reduced = sent(CollectiveKind::AllReduce, layers + 2 * tokens + positions);
    let scattered = sent(CollectiveKind::ReduceScatter, layers + 2 * tokens + positions);
    let gathered = |parameters| sent(CollectiveKind::AllGather, parameters);
    let rest = of(0) - reduced;
    let near = |found: u64, expected: u64| found.abs_diff(expected) < 200 * micro;
    // A reduce-scatter and an all-gather are an all-reduce.
    assert!(near(of(1) - rest, reduced));
    // Gradients of every micro-batch are scattered, weights gathered once.
    assert!(near(of(2) - rest, micro * scattered + gathered(layers + 2 * tokens + positions)));
    // Weights are gathered for every pass: of the embedding for the forward pass alone.
    let passes = micro * (scattered + gathered(2 * layers + 2 * tokens + tokens + positions));
    assert!(near(of(3) - rest, passes), "{} {passes}", of(3) - rest);
}

#[test]
fn every_chip_on_its_own_gives_what_groups_give_for_divided_weights() {
    let system = system();
    for parallel in ["dp=4,zero=2", "tp=2,dp=4,zero=3", "tp=2,pp=2,dp=2,zero=3", "pp=2,dp=4,zero=2,recompute=full"] {
        let time = |detail| step(&system, megatron(&system), &job(parallel), detail).expect("a step").step_s;
        let (grouped, flat) = (time(Detail::Grouped), time(Detail::Flat));
        assert!((grouped / flat - 1.0).abs() < 0.01, "{parallel}: {grouped} grouped, {flat} flat");
    }
}

#[test]
fn gathering_ahead_hides_what_is_exposed_without_it() {
    let waiting = |parallel: &str| run(parallel).time.data_comm;
    let (ahead, without) = (waiting("dp=8,zero=3"), waiting("dp=8,zero=3,prefetch=0"));
    assert!(ahead < 0.5 * without, "{ahead} {without}");
    // More ahead takes no longer, and no divided weights wait for nothing but the last reduction.
    assert!(waiting("dp=8,zero=3,prefetch=4") <= ahead * 1.001);
}

#[test]
fn state_on_the_host_takes_its_link() {
    let step = run("dp=8,zero=1,offload=optimizer");
    let bytes = (12 * job("dp=8").stage_parameters(0)).div_ceil(8) as f64;
    // 32 GB/s each way at the same time, beside the update itself.
    let all = step.time.optimizer + step.time.offload;
    assert!((all - bytes / 32e9).abs() < 1e-8, "{all} {}", bytes / 32e9);
    assert!(step.time.offload > 0.0 && run("dp=8,zero=1").time.offload == 0.0);
}
