//! Layers with experts in training: bytes, memory, drops and time against closed forms, and the errors of what cannot be divided.

use std::path::Path;
use std::process::{Command, Output};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rdusim::model::{Architecture, ExpertLoad, Experts, Extras};
use rdusim::pod::{Algorithm, Detail, Job, StackKind, TrainingStep, of_job, step};
use serde_json::Value;

use crate::small_pods::{self, stack};

const HIDDEN: u64 = 1024;
const TOKENS: u64 = 512;

/// Four layers, of which every second has 8 experts, 2 for each token.
fn experts() -> Experts {
    Experts { count: 8, each: 2, width: 2048, shared: 0, shared_gate: false, every: 2 }
}

fn job_with(experts: Experts, parallel: &str, batch: u64) -> Job {
    let job = small_pods::job(parallel, batch, 4, TOKENS);
    let extras = Extras { experts: Some(experts), ..job.architecture.extras };
    let architecture = Architecture { extras, tied: false, ..job.architecture };
    Job { architecture, expert_load: ExpertLoad::Even, ..job }
}

fn job(parallel: &str, batch: u64) -> Job {
    job_with(experts(), parallel, batch)
}

fn run(job: &Job, detail: Detail) -> TrainingStep {
    let system = small_pods::system("dgx-a100");
    step(&system, stack(&system, StackKind::Flash), job, detail).expect("a step")
}

fn bytes(job: &Job) -> u64 {
    run(job, Detail::Grouped).traffic.iter().map(|(_, bytes)| bytes).sum()
}

/// Bytes that another micro-batch of each of four replicas moves.
fn more(parallel: &str, load: &ExpertLoad) -> u64 {
    let of = |batch| bytes(&Job { expert_load: load.clone(), ..job(parallel, batch) });
    of(8) - of(4)
}

#[test]
fn exchanges_move_the_bytes_of_their_closed_form() {
    // 2 layers with experts, one more micro-batch a replica; of 4 chips each sends its visits of the other three chips' experts
    // there and back, forward and backward.
    let (chips, layers, ways) = (4, 2, 4);
    let one_way = |rows: u64| rows * HIDDEN * 2 * 3 / 4;
    let expected = chips * layers * ways * one_way(2 * TOKENS);
    for experts in ["near", "far"] {
        assert_eq!(more(&format!("dp=4,ep=4,experts={experts}"), &ExpertLoad::Even), expected);
    }
    // A capacity of 1.25 sends rows that are padding, whatever the load; what is computed again is exchanged again.
    let room = chips * layers * ways * one_way(2 * TOKENS * 5 / 4);
    assert_eq!(more("dp=4,ep=4,capacity=1.25", &ExpertLoad::Uniform), room);
    assert_eq!(more("dp=4,ep=4,capacity=1.25,recompute=full", &ExpertLoad::Uniform), room / 4 * 6);
    // Two groups of two: half of the visits stay.
    assert_eq!(more("dp=4,ep=2", &ExpertLoad::Even), expected / 3 * 2);
    assert_eq!(more("dp=4,ep=1", &ExpertLoad::Even), 0);
    // Parts of the sequence on several chips are senders too.
    assert_eq!(
        more("dp=2,cp=2,ep=4,context=ulysses", &ExpertLoad::Even)
            - more("dp=2,cp=2,context=ulysses", &ExpertLoad::Even),
        expected
    );
    // At random as much in all, whoever gets it.
    let random = more("dp=4,ep=4", &ExpertLoad::Uniform);
    assert!(random.abs_diff(expected) * 1000 < expected, "{random} {expected}");
}

#[test]
fn gradients_of_experts_are_added_up_by_those_that_have_them() {
    let reduced = |parallel: &str| 2 * bytes(&job(parallel, 4)) - bytes(&job(parallel, 8));
    for (parallel, holders) in [("dp=4", 4), ("dp=4,ep=2", 2), ("dp=4,ep=2,experts=far", 2), ("dp=4,ep=4", 1)] {
        let [all, experts] = job(parallel, 4).stage_parts(0);
        // A ring of n sends 2 (n - 1) operands of 2 bytes in all.
        let expected = 2 * 3 * 2 * all + 4 / holders * 2 * (holders - 1) * 2 * experts;
        let found = reduced(parallel);
        assert!(found.abs_diff(expected) < 64, "{parallel}: {found} {expected}");
    }
}

#[test]
fn one_expert_is_the_plain_model() {
    let plain = small_pods::job("dp=2", 4, 4, TOKENS);
    let plain = Job { architecture: Architecture { tied: false, ..plain.architecture }, ..plain };
    let alone = Experts { count: 1, each: 1, width: 4 * HIDDEN, every: 1, ..experts() };
    for capacity in ["1", "dropless"] {
        let one = job_with(alone, &format!("dp=2,capacity={capacity}"), 4);
        // But for the router's column.
        let router = 4 * 2 * TOKENS * HIDDEN;
        assert!((one.forward_flops() - plain.forward_flops() - router as f64).abs() < 1.0);
        assert_eq!(one.stage_parameters(0), plain.stage_parameters(0) + 4 * HIDDEN);
        let (with, without) = (run(&one, Detail::Grouped), run(&plain, Detail::Grouped));
        assert!((with.time.compute / without.time.compute - 1.0).abs() < 0.25, "{capacity}: {with:?}");
        assert!(with.time.expert_comm == 0.0 && with.experts.is_some_and(|of| of.dropped == 0.0 && of.padded == 0.0));
    }
}

#[test]
fn memory_is_what_its_parts_add_up_to() {
    let e = experts();
    let job = job("dp=4,ep=4,zero=1", 8);
    // Two matrices with their biases of each of 2 experts a chip, in 2 layers.
    let of_expert = 2 * HIDDEN * e.width + e.width + HIDDEN;
    let [all, local] = job.stage_parts(0);
    assert_eq!(local, 2 * 2 * of_expert);
    let plain = small_pods::job("dp=4", 8, 4, TOKENS);
    let plain = Job { architecture: Architecture { tied: false, ..plain.architecture }, ..plain };
    // Two layers have a router in place of their block.
    let block = 2 * HIDDEN * 4 * HIDDEN + 4 * HIDDEN + HIDDEN;
    assert_eq!(all, plain.stage_parameters(0) - 2 * block + 2 * HIDDEN * 8);
    let memory = |parallel: &str| of_job(&self::job(parallel, 8), StackKind::Flash);
    let state = memory("dp=4,ep=4,zero=1");
    assert_eq!(state.weights, 2 * (all + local));
    // Nobody else has its experts: their state is not divided.
    assert_eq!(state.optimizer, 12 * all / 4 + 12 * local);
    let divided = memory("dp=4,ep=2,zero=3");
    assert_eq!(divided.weights, (2 * all).div_ceil(4) + (2 * 2 * local).div_ceil(2));
    assert_eq!(memory("dp=4,ep=1,zero=3").weights, (2 * all).div_ceil(4) + (2 * 4 * local).div_ceil(4));
    // More room takes more.
    let kept = ["0.5", "1", "2"].map(|factor| memory(&format!("dp=4,ep=4,capacity={factor}")).activations);
    assert!(kept.is_sorted_by(|less, more| less < more), "{kept:?}");
}

/// Of 1,024 experts for the 4 x 512 tokens of a group each has two rows, half a row for each sender: as many rows as tokens.
#[test]
fn a_capacity_counts_the_tokens_of_all_senders() {
    let of = Experts { count: 1024, each: 1, ..experts() };
    let job = Job { expert_load: ExpertLoad::Uniform, ..job_with(of, "dp=4,ep=4,capacity=1", 8) };
    let of = run(&job, Detail::Grouped).experts.expect("experts");
    assert!(of.dropped > 0.0 && (of.padded - of.dropped).abs() < 1e-6 * of.visits, "{of:?}");
}

#[test]
fn a_capacity_drops_what_the_multinomial_says() {
    let mut rng = Pcg64Mcg::seed_from_u64(11);
    for (count, factor, tokens) in [(8_u64, 1.0, 512_u64), (64, 1.25, 512), (8, 2.0, 512)] {
        let of = Experts { count, each: 1, ..experts() };
        let job = Job { expert_load: ExpertLoad::Uniform, ..job_with(of, &format!("dp=4,capacity={factor}"), 8) };
        let room = (factor * tokens as f64 / count as f64).ceil() as u64;
        let mut dropped = 0;
        let draws = 4000;
        for _ in 0..draws {
            let mut rows = vec![0_u64; count as usize];
            (0..tokens).for_each(|_| rows[rng.random_range(0..count as usize)] += 1);
            dropped += rows.iter().map(|rows| rows.saturating_sub(room)).sum::<u64>();
        }
        let thrown = dropped as f64 / (draws * tokens) as f64;
        let share = job.dropped_share();
        assert!((share - thrown).abs() < 0.02 * thrown + 2e-5, "{count} {factor}: {share} {thrown}");
    }
    // Whole steps count them: 2 layers of 8 sequences; rows are visits that were not dropped and padding.
    let job = Job { expert_load: ExpertLoad::Uniform, ..job("dp=4,ep=4,capacity=1", 8) };
    let of = run(&job, Detail::Grouped).experts.expect("experts");
    assert!(
        (of.visits - (2 * 8 * TOKENS * 2) as f64).abs() < 1e-6 && (of.dropped - of.padded).abs() < 1e-6 * of.visits
    );
    assert!((of.dropped / of.visits - job.dropped_share()).abs() < 1e-12 && of.dropped > 0.0);
}

#[test]
fn every_chip_on_its_own_gives_what_groups_give() {
    for parallel in [
        "dp=4,ep=2",
        "dp=4,ep=4,capacity=1.25,zero=1",
        "tp=2,dp=4,ep=2,zero=2",
        "dp=4,ep=2,zero=3",
        "pp=2,dp=4,ep=4,recompute=full",
        "pp=2,dp=4,ep=2,experts=far,schedule=zb-h1",
    ] {
        let of = |detail| run(&Job { expert_load: ExpertLoad::Uniform, ..job(parallel, 16) }, detail);
        let (grouped, flat) = (of(Detail::Grouped), of(Detail::Flat));
        assert!((grouped.step_s / flat.step_s - 1.0).abs() < 0.01, "{parallel}: {} {}", grouped.step_s, flat.step_s);
        let time = &grouped.time;
        let sum = time.compute
            + time.recompute
            + time.tensor_comm
            + time.context_comm
            + time.expert_comm
            + time.pipeline_comm
            + time.bubble
            + time.data_comm
            + time.optimizer
            + time.offload
            + time.other;
        assert!((sum / grouped.step_s - 1.0).abs() < 1e-9, "{parallel}: {sum}");
    }
}

#[test]
fn skew_takes_longer_and_parts_hide_the_exchange() {
    let of = |parallel: &str, load: ExpertLoad| run(&Job { expert_load: load, ..job(parallel, 16) }, Detail::Grouped);
    let sum = |step: &TrainingStep| step.time.compute + step.time.expert_comm;
    let loads = [ExpertLoad::Even, ExpertLoad::Uniform, ExpertLoad::Zipf(1.0)].map(|load| of("dp=4,ep=4", load));
    assert!(loads.is_sorted_by(|a, b| sum(a) < sum(b)), "{:?}", loads.map(|step| step.time));
    let [exposed, parts] = ["exposed", "overlapped:2"]
        .map(|how| of(&format!("dp=4,ep=4,exchange={how}"), ExpertLoad::Even).time.expert_comm);
    assert!(parts < exposed, "{parts} {exposed}");
    // Across nodes: eight chips that share the experts out lie on eight nodes, or on one.
    let nodes = |place: &str| of(&format!("dp=16,ep=8,experts={place}"), ExpertLoad::Even).time.expert_comm;
    assert!(nodes("near") < nodes("far"));
}

/// An exchange of uneven rows in two levels: between nodes what a direct one moves, and as much as an even one in the mean.
#[test]
fn exchanges_between_nodes_are_in_two_levels_where_that_is_faster() {
    let of = |keep: bool, load: ExpertLoad| {
        let mut system = small_pods::system("dgx-a100");
        system.protocols.retain(|protocol| keep || protocol.algorithm != Algorithm::TwoLevel);
        let job = job_with(Experts { count: 512, ..experts() }, "dp=512,ep=512", 512);
        let job = Job { expert_load: load, ..job };
        step(&system, stack(&system, StackKind::Flash), &job, Detail::Grouped).expect("a step")
    };
    for load in [ExpertLoad::Even, ExpertLoad::Zipf(0.5)] {
        let (two, direct) = (of(true, load.clone()), of(false, load));
        assert!(two.time.expert_comm < 0.7 * direct.time.expert_comm, "{:?} {:?}", two.time, direct.time);
        assert!(two.time.compute <= direct.time.compute * 1.001);
        assert_eq!(two.traffic[1], direct.traffic[1]);
        assert!(two.traffic[0].1 > direct.traffic[0].1);
    }
}

/// Two small layers with experts.
fn for_rdus(parallel: &str, load: ExpertLoad) -> Job {
    let job = job_with(Experts { count: 4, width: 512, every: 1, ..experts() }, parallel, 8);
    let small = Architecture { hidden: 256, heads: 4, kv_heads: 4, feed_forward: 512, ..job.architecture };
    let architecture = Architecture { layers: 2, vocabulary: 1024, ..small };
    Job { architecture, sequence: 128, expert_load: load, ..job }
}

#[test]
fn experts_are_trained_on_rdus() {
    let system = small_pods::system("sn40l-16");
    let run = |job: &Job| step(&system, stack(&system, StackKind::Rdu), job, Detail::Grouped).expect("a step");
    let job = for_rdus("dp=4,ep=4,zero=1", ExpertLoad::Even);
    let even = run(&job);
    let time = &even.time;
    let sum = time.compute + time.expert_comm + time.data_comm + time.optimizer;
    assert!((sum / even.step_s - 1.0).abs() < 1e-9 && time.expert_comm > 0.0, "{time:?}");
    // Bytes are those of GPUs: 2 layers, 2 micro-batches of 128 tokens that meet 2 experts, four ways, to 3 of 4 chips; and gradients
    // of what all have are scattered and its weights gathered.
    let exchanged = 4 * 2 * 2 * 4 * (2 * 128 * 256 * 2 * 3 / 4);
    let reduced = 2 * 3 * 2 * job.stage_parts(0)[0];
    let moved: u64 = even.traffic.iter().map(|(_, bytes)| bytes).sum();
    assert!(moved.abs_diff(exchanged + reduced) < 256, "{moved} {exchanged} {reduced}");
    // The busiest expert gives all others its rows.
    let skewed = run(&for_rdus("dp=4,ep=4,zero=1", ExpertLoad::Zipf(1.0)));
    assert!(skewed.time.compute > time.compute && skewed.experts.is_some_and(|of| of.imbalance > 1.2));
    // What is computed again is exchanged again.
    let again = run(&for_rdus("dp=4,ep=4,zero=1,recompute=full", ExpertLoad::Even));
    assert!((again.time.expert_comm / time.expert_comm - 1.5).abs() < 1e-6 && again.time.recompute > 0.0);
}

fn rdusim(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdusim"));
    command.current_dir(directory).args(["pod", "dgx-a100", "--phase", "training", "--stack", "flash"]);
    command.args(arguments).output().expect("it runs")
}

/// 2,048 experts on 2,048 chips.
#[test]
fn published_mixtures_run_on_2048_chips() {
    for (model, parallel, batch, parameters) in [
        ("gshard-600b", "dp=2048,ep=2048,capacity=1", "2048", 6.18e11),
        ("switch-1.6t", "dp=2048,ep=2048,capacity=1.25,zero=1,optimizer=adafactor", "2048", 1.57e12),
    ] {
        let arguments = ["--model", model, "--parallel", parallel, "--batch", batch, "--format", "json"];
        let output = rdusim(Path::new("."), &arguments);
        assert!(output.status.success(), "{model}: {}", String::from_utf8_lossy(&output.stderr));
        let found: Value = serde_json::from_slice(&output.stdout).expect("an object");
        assert_eq!((&found["system"]["chips"], &found["parallel"]["ep"]), (&2048.into(), &2048.into()));
        assert!(found["time_s"]["expert_comm_exposed"].as_f64().is_some_and(|seconds| seconds > 0.0));
        // The experts lie on one chip each; the rest on all of them.
        let weights = found["memory_bytes"]["weights"].as_u64().expect("bytes") as f64;
        assert!(weights > 2.0 * parameters / 2048.0 && weights < 2.0 * parameters / 2048.0 + 4e9, "{weights}");
        let of = &found["experts"];
        assert!(of["dropped"].as_f64() > Some(0.0) && of["dropped"].as_f64() < of["visits"].as_f64(), "{of}");
    }
}

#[test]
fn a_search_chooses_the_chips_that_share_experts() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let text = r#"{"model_type": "mixtral", "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8,
        "num_key_value_heads": 8, "intermediate_size": 3584, "num_local_experts": 8, "num_experts_per_tok": 2,
        "vocab_size": 32000, "max_position_embeddings": 1024, "tie_word_embeddings": false}"#;
    std::fs::write(directory.path().join("config.json"), text).expect("a file");
    std::fs::write(directory.path().join("load.txt"), "9\n1\n1\n1\n1\n1\n1\n1\n").expect("a file");
    let run = |more: &[&str]| {
        let output = rdusim(
            directory.path(),
            &[&["--model", "config.json", "--batch", "16", "--format", "json"], more].concat(),
        );
        assert!(output.status.success(), "{more:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).expect("an object")
    };
    let found = run(&["--search", "--chips", "8"]);
    let candidates = found["candidates"].as_array().expect("candidates");
    for of in candidates {
        let (step, bound) = (of["step_s"].as_f64(), of["bound_s"].as_f64());
        assert!(step.zip(bound).is_none_or(|(step, bound)| bound <= step), "{of}");
    }
    let shared = |of: &Value| of["parallel"]["ep"].as_u64().expect("a count");
    assert!(candidates.iter().any(|of| shared(of) > 1) && candidates.iter().any(|of| shared(of) == 1));
    let fixed = run(&["--search", "--chips", "8", "--parallel", "ep=4"]);
    assert!(fixed["candidates"].as_array().expect("candidates").iter().all(|of| shared(of) == 4));
    // A file of counts: the chip of the first expert is the one all wait for.
    let seconds =
        |load: &str| run(&["--parallel", "dp=8,ep=8", "--expert-load", load])["experts"]["imbalance"].as_f64();
    assert!(seconds("load.txt") > Some(3.0) && seconds("even") == Some(1.0), "{:?}", seconds("load.txt"));
}

#[test]
fn what_cannot_be_divided_is_refused() {
    for (arguments, says) in [
        (["gpt2", "dp=2,ep=2", "2"], "gpt2 has no experts"),
        (["switch-1.6t", "dp=4,ep=3", "4"], "ep = 3 does not divide the 4 chips of dp x cp"),
        (["switch-1.6t", "dp=6,ep=6", "6"], "ep = 6 does not divide the 2048 experts"),
        (["switch-1.6t", "tp=32,pp=2,dp=2,exchange=overlapped:4", "2"], "with ep = 1 nothing is exchanged"),
        (["gshard-600b", "pp=12,dp=2,ep=2", "2"], "one of 2 layers has experts, and a part of a stage has 3 layers"),
        (["switch-1.6t", "capacity=none", "2"], "expected dropless, or a factor"),
        (["switch-1.6t", "dp=16,ep=16", "16"], "does not fit"),
    ] {
        let [model, parallel, batch] = arguments;
        let output = rdusim(Path::new("."), &["--model", model, "--parallel", parallel, "--batch", batch]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{parallel}: {message}");
        assert!(message.contains(says) && output.stdout.is_empty(), "{parallel}: {message}");
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let text = r#"{"model_type": "mixtral", "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2,
        "intermediate_size": 512, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 1000}"#;
    std::fs::write(directory.path().join("config.json"), text).expect("a file");
    let output = Command::new(env!("CARGO_BIN_EXE_rdusim"))
        .current_dir(directory.path())
        .args([
            "pod",
            "ipu-pod16",
            "--phase",
            "training",
            "--model",
            "config.json",
            "--parallel",
            "dp=1",
            "--seq",
            "64",
        ])
        .output()
        .expect("it runs");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("not modelled on chips of tiles"), "{message}");
}
