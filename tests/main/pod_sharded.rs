//! Weights, gradients and optimiser's state divided over the replicas: memory, bytes and time.

use std::path::Path;

use rdusim::input::Override;
use rdusim::model::{Architecture, ExpertLoad, preset};
use rdusim::pod::{
    Call, CollectiveKind, Detail, Job, Memory, Network, Objective, Parallel, Search, Stack, StackKind, System,
    TrainingStep, least_bytes, of_job, open, plan, search, step,
};

fn system() -> System {
    with(&[])
}

fn with(sets: &[&str]) -> System {
    let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).expect("an override")).collect();
    open(Path::new("arch/systems/dgx-a100.toml"), &sets).expect("a shipped system")
}

fn stack(system: &System, kind: StackKind) -> &Stack {
    system.stacks.iter().find(|stack| stack.kind == kind).expect("a stack")
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
    step(&system, stack(&system, StackKind::Flash), &job(parallel), Detail::Grouped).expect("a step")
}

fn memory(parallel: &str) -> Memory {
    of_job(&job(parallel), StackKind::Flash)
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
        for kind in [StackKind::Flash, StackKind::Megatron] {
            let time = |detail| step(&system, stack(&system, kind), &job(parallel), detail).expect("a step").step_s;
            let (grouped, flat) = (time(Detail::Grouped), time(Detail::Flat));
            assert!((grouped / flat - 1.0).abs() < 0.01, "{parallel}: {grouped} grouped, {flat} flat");
        }
    }
}

#[test]
fn gathering_ahead_hides_what_is_exposed_without_it() {
    let system = with(&["arch.stack.flash.sharding.compute_share=0"]);
    let run = |parallel: &str| step(&system, stack(&system, StackKind::Flash), &job(parallel), Detail::Grouped);
    let waiting = |parallel: &str| run(parallel).expect("a step").time.data_comm;
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

/// Megatron-LM keeps gradients in fp32: 18 bytes a parameter, 6 + 12 / N with the optimiser's state divided. Any stack does if asked to,
/// and then adds them up so.
#[test]
fn gradients_in_fp32_count_in_memory_and_traffic() {
    let parameters = job("dp=8").stage_parameters(0);
    let of = |parallel: &str, kind| {
        let memory = of_job(&job(parallel), kind);
        memory.weights + memory.gradients + memory.optimizer
    };
    for (parallel, eighths) in
        [("dp=8", 18 * 8), ("dp=8,zero=1", 6 * 8 + 12), ("dp=8,zero=1,gradients=bf16", 4 * 8 + 12)]
    {
        let least = (parameters * eighths).div_ceil(8);
        assert!((least..least + 3).contains(&of(parallel, StackKind::Megatron)), "{parallel}");
    }
    assert_eq!(of("dp=8,gradients=fp32", StackKind::Flash), 18 * parameters);
    // A product that adds to gradients in fp32 leaves no kernel that reads two and writes one: 6 bytes of 16 layers and 2 micro-batches
    // at no more than the 1,800 GB/s of the memory.
    let compute = |parallel: &str| run(parallel).time.compute;
    let least = 2.0 * 16.0 * 6.0 * job("dp=8").layer_parameters() as f64 / 1.8e12;
    let saved = compute("dp=8") - compute("dp=8,gradients=fp32");
    assert!((least..1.4 * least + 1e-3).contains(&saved), "{saved} {least}");
    // Twice the bytes are scattered, as many weights are gathered.
    let moved = |parallel: &str| run(parallel).traffic.iter().map(|(_, bytes)| bytes).sum::<u64>();
    let sent = |bytes: u64| 7 * bytes * parameters;
    let near = |found: u64, expected: u64| found.abs_diff(expected) < 4096;
    assert!(near(moved("dp=8,zero=1"), sent(2 + 2)) && near(moved("dp=8,zero=1,gradients=fp32"), sent(4 + 2)));
}

/// Seconds of gathers and scatters of a step in which passes wait for each: of 16 layers of 12.6 M parameters in 4 matrices and 8 small
/// vectors, one replica's 2 micro-batches of 16 replicas on two nodes.
#[test]
fn passes_that_wait_take_every_collective_of_every_parameter() {
    let us = "arch.stack.megatron-2021.sharding";
    let run = |scatter_us: f64| {
        let system = with(&[&format!("{us}.gather_rank_us=0"), &format!("{us}.scatter_rank_us={scatter_us}")]);
        let job = Job { batch: 64, ..job("dp=16,zero=3,recompute=full") };
        let step = step(&system, stack(&system, StackKind::Megatron), &job, Detail::Grouped).expect("a step");
        step.time.data_comm
    };
    let system = system();
    let network = Network::new(&system);
    let groups = [(0..16).collect::<Vec<u64>>()];
    let seconds = |kind, parameters: u64| {
        let call = Call { kind, groups: &groups, bytes: 2 * parameters };
        plan(&network, &system.protocols, "nccl", None, &call).expect("rings").seconds
    };
    let (h, job) = (1024_u64, job("dp=16,zero=3"));
    let matrices = [3 * h * h, h * h, 4 * h * h, 4 * h * h];
    let vectors = [h, h, 3 * h, h, h, h, 4 * h, h];
    let gather = |list: &[u64]| list.iter().map(|count| seconds(CollectiveKind::AllGather, *count)).sum::<f64>();
    let scatter = |list: &[u64]| list.iter().map(|count| seconds(CollectiveKind::ReduceScatter, *count)).sum::<f64>();
    let (table, logits) = (job.embedding_parameters(), job.logits_parameters());
    // Forward and again in the backward pass; every matrix stays until its second read there, as fewer than 10^9 are read between.
    let layers = 16.0 * (2.0 * gather(&matrices) + scatter(&matrices) + scatter(&vectors));
    let ends = gather(&[table]) + 2.0 * gather(&[logits]) + scatter(&[table, logits]);
    let expected = 2.0 * (layers + ends);
    assert!((run(0.0) / expected - 1.0).abs() < 1e-3, "{} {expected}", run(0.0));
    // 50 us for each of 16 ranks before each of (12 x 16 + 2) scatters of 2 micro-batches.
    let more = run(50.0) - run(0.0);
    let lists = 2.0 * (12.0 * 16.0 + 2.0) * 16.0 * 50e-6;
    assert!((more / lists - 1.0).abs() < 1e-3, "{more} {lists}");
}

/// GPT-3 175B with ZeRO-3 on A100s without tensor ranks or stages: 144, 88 and 44 TFLOP/s a GPU were published (Narayanan et al., 2021,
/// table 2). No constant is fitted to them.
#[test]
fn zero_3_on_many_nodes_is_near_what_was_published() {
    let (architecture, sequence) = preset("gpt3-175b").expect("a preset");
    let system = system();
    let megatron = stack(&system, StackKind::Megatron);
    let (h, l, s, v) = (12_288.0, 96.0, 2048.0, 51_200.0);
    let flops = 96.0 * 1536.0 * s * l * h * h * (1.0 + s / (6.0 * h) + v / (16.0 * l * h));
    let base = |parallel: &str, micro_batch| Job {
        model: "gpt3-175b".into(),
        architecture,
        batch: 1536,
        micro_batch,
        sequence,
        ..job(parallel)
    };
    for (chips, micro_batch, published) in [(384, 4, 144.0), (768, 2, 88.0), (1536, 1, 44.0)] {
        let job = base(&format!("dp={chips},zero=3,recompute=full"), micro_batch);
        let step = step(&system, megatron, &job, Detail::Grouped).expect("a step");
        let found = flops / f64::from(chips) / step.step_s / 1e12;
        assert!((found / published - 1.0).abs() < 0.15, "{chips}: {found} of {published}");
    }
    // The best of 384 chips is what was published as faster: tensor ranks and stages.
    let fixed = ["recompute".to_owned()].into_iter().collect();
    let wanted = Search {
        system: &system,
        stack: megatron,
        base: base("recompute=full", 1),
        fixed,
        chips: 384,
        objective: Objective::Time,
    };
    let found = search(&wanted, &mut |_, _| {}).expect("a search");
    let best = found.best.first().expect("some fit").job.parallel;
    assert!(best.zero < 2 && best.tp * best.pp > 1, "{best:?}");
}

/// A switch takes more members than the file has, and the result says so; a torus has its size.
#[test]
fn systems_grow_as_far_as_their_fabric() {
    let system = system();
    assert!(system.grown(system.most_chips()).is_none());
    let (grown, note) = system.grown(2 * system.most_chips() - 8).expect("a switch");
    assert_eq!((grown.most_chips(), grown.levels[1].members), (2 * system.most_chips() - 8, 1023));
    assert!(note.contains("4096") && note.contains("assumed"), "{note}");
    let torus = open(Path::new("tpu-v5p-64"), &[]).expect("a system that is built in");
    assert!(torus.grown(2 * torus.most_chips()).is_none());
}
