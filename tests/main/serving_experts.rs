//! Serving of models with experts on GPUs.

use rdusim::gpu::ProductFormat;
use rdusim::model::{Activation, Architecture, ExpertLoad, Experts, PRESETS, Phase, preset};
use rdusim::pod::{ExpertRanks, Load, Parallel, Policy, Request, ServedPhase, Server, Service, serving_memory, stream};

use rdusim::units::Dtype;

use crate::serving::{self, rdusim, serving, system};

fn service(model: &str, parallel: &str) -> Service {
    Service { expert_load: ExpertLoad::Even, ..serving::service(model, parallel) }
}

/// Mistral-7B with eight experts of which a token meets two, as Mixtral has them.
fn mixtral(parallel: &str) -> Service {
    let mut service = service("mistral-7b", parallel);
    service.architecture.extras.experts =
        Some(Experts { count: 8, each: 2, width: 14336, shared: 0, shared_gate: false, every: 1 });
    service
}

fn decode(service: &Service, batch: u64) -> ServedPhase {
    let system = system("dgx-a100");
    let server = Server::new(&system, serving(&system), service).expect("a server");
    server.decode(&Load::filling(&service.parallel, batch, 1024)).expect("a step")
}

/// Experts may be stored in a format of their own beside layers of sixteen bits.
#[test]
fn experts_take_the_bytes_of_their_format() {
    let bytes = |format: ProductFormat| {
        let mut service = mixtral("tp=2");
        service.expert_ranks = Some(ExpertRanks { tensor: 2, groups: 1, format });
        service.weight_bytes(0)
    };
    // 32 layers of 8 experts with three matrices of 4,096 x 14,336, halved; four bits and a scale of eight for 32 elements.
    let elements = 32 * 8 * 3 * 4096 * 14336 / 2_u64;
    let saved = bytes(ProductFormat::Plain(Dtype::Bf16)) - bytes(ProductFormat::Mxfp4Weights);
    assert_eq!(saved, 2 * elements - (4 * elements + 8 * elements / 32) / 8);
}

#[test]
fn ranks_have_the_parameters_of_the_published_models() {
    let published = |name: &str| preset(name).expect("a preset");
    let all = |service: &Service| -> u64 {
        let p = service.parallel;
        let stages: u64 = (0..p.pp).map(|stage| service.parameters(stage)).map(|of| p.tp * of.own + of.copied).sum();
        // Experts are divided over ep chips, everything else is whole on each.
        let alone = Service { parallel: Parallel { experts: rdusim::pod::Mixture::default(), ..p }, ..service.clone() };
        if p.experts.ep > 1 { (0..p.pp).map(|stage| alone.parameters(stage).own).sum::<u64>() * p.tp } else { stages }
    };
    // One is rounded, and of an encoder and a decoder.
    for (name, published, off) in [("gshard-600b", 600e9, 0.04), ("switch-1.6t", 1571e9, 0.01)] {
        let found = all(&service(name, "tp=2")) as f64;
        assert!((found / published - 1.0).abs() < off, "{name}: {found}");
    }
    assert!(published("switch-1.6t").0.extras.experts.is_some());
    // 46.7 billion parameters (Jiang et al., Mixtral of Experts, 2024: 47 B).
    let found = all(&mixtral("tp=4")) as f64;
    assert!((found / 47e9 - 1.0).abs() < 0.02, "{found}");
    // A chip of eight that share the experts out has one of eight.
    let (whole, part) = (mixtral("tp=1"), mixtral("dp=8,ep=8"));
    let experts = 32 * 8 * 3 * 4096 * 14336_u64;
    assert_eq!(whole.weight_bytes(0) - part.weight_bytes(0), 2 * experts / 8 * 7);
}

#[test]
fn exchanges_have_the_bytes_of_the_rows_that_leave() {
    // 32 users on each of 4 chips: each row goes to 2 experts and comes back; of 4 chips 3 are others; 32 layers of 8 KiB rows.
    let step = decode(&mixtral("dp=4,ep=4"), 128);
    let bytes = 32 * 2 * (4 * 32) * 2 * (2 * 4096) * 3 / 4;
    assert_eq!(step.traffic.first().map(|(_, bytes)| *bytes), Some(bytes));
    assert!(step.time.expert_comm > 0.0 && (step.time.sum() / step.seconds - 1.0).abs() < 1e-9);
    assert!(step.bound_s > 0.0 && step.bound_s < step.seconds);
    // Nothing is exchanged where every chip has all experts.
    assert!(decode(&mixtral("tp=4"), 128).time.expert_comm.abs() < 1e-15);
    let hidden = decode(&mixtral("dp=4,ep=4,exchange=overlapped:2"), 128).time.expert_comm;
    assert!(hidden > 0.0);
}

#[test]
fn a_token_meets_few_experts_and_many_tokens_all_of_them() {
    let seconds = |batch: u64| decode(&mixtral("tp=4"), batch).seconds;
    // One user reads two experts of eight, and the rest of the model; 64 read all.
    let (one, many) = (seconds(1), seconds(64));
    assert!(many > 1.8 * one && many < 64.0 * one, "{one} {many}");
    // One expert that all tokens meet is as fast as a block of its width, but for what finds and orders its rows.
    let mut single = mixtral("tp=4");
    single.architecture.extras.experts =
        Some(Experts { count: 1, each: 1, width: 14336, shared: 0, shared_gate: false, every: 1 });
    let (routed, plain) = (decode(&single, 16).seconds, decode(&service("mistral-7b", "tp=4"), 16).seconds);
    assert!(routed > plain && routed < 1.5 * plain, "{routed} {plain}");
    // Every second layer: half of the exchanges.
    let every = |every: u64| {
        let mut of = mixtral("dp=4,ep=4");
        let Architecture { extras, .. } = &mut of.architecture;
        extras.experts = extras.experts.map(|experts| Experts { every, ..experts });
        decode(&of, 64).time.expert_comm
    };
    assert!((every(1) / every(2) - 2.0).abs() < 1e-9);
}

#[test]
fn prompts_fill_experts_and_memory_has_room_for_their_rows() {
    let of = mixtral("dp=4,ep=4");
    let system = system("dgx-a100");
    let server = Server::new(&system, serving(&system), &of).expect("a server");
    let load = Load::filling(&of.parallel, 8, 1024);
    let prefill = server.prefill(&load).expect("a prefill");
    assert!(prefill.mfu > 0.1 && prefill.mfu < 1.0, "{}", prefill.mfu);
    assert!(prefill.time.expert_comm > 0.0 && prefill.bound_s < prefill.seconds);
    // 2 x 1,024 rows of each of 4 chips meet 2 experts each: 4,096 rows a chip, in, out, and twice 14,336 columns.
    let dense = Service {
        architecture: service("mistral-7b", "dp=4").architecture,
        parallel: service("mistral-7b", "dp=4").parallel,
        ..of.clone()
    };
    let (with, without) = (serving_memory(&of, &load, Phase::Prefill), serving_memory(&dense, &load, Phase::Prefill));
    assert_eq!(with.activations - without.activations, 2 * 4096 * (2 * 4096 + 2 * 14336));
    assert_eq!(with.buffers - without.buffers, 2 * 4096 * (4096 + 2 * 2048));
    assert_eq!(of.architecture.activation, Activation::GatedSilu);
}

#[test]
fn replicas_that_share_experts_out_serve_requests_together() {
    let (system, of) = (system("dgx-a100"), mixtral("dp=4,ep=2"));
    let list: Vec<Request> =
        (0..40).map(|at| Request { arrival_s: f64::from(at) * 0.02, prompt: 256, output: 16 }).collect();
    let policy = Policy {
        users: 8,
        kv_tokens: None,
        prefill_tokens: 8192,
        prefix_share: 0.0,
        chunk: None,
        seed: 1,
        concurrency: None,
    };
    let run = stream(&system, serving(&system), &of, None, &list, &policy, None).expect("a run");
    assert_eq!((run.tokens, run.replicas.len()), (40 * 16, 4));
    assert!(run.notes.iter().any(|note| note.contains("2 replicas share experts out")), "{:?}", run.notes);
    let mixed = Policy { chunk: Some(128), ..policy };
    assert_eq!(stream(&system, serving(&system), &of, None, &list, &mixed, None).expect("a run").tokens, 40 * 16);
}

/// Seconds of a token's kernels.
fn computing(arguments: &[&str]) -> f64 {
    let output =
        rdusim(&[&["pod"], arguments, &["--phase=decode", "--seq=512", "--batch=32", "--format=json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
    object["time_s"]["compute"].as_f64().expect("a time")
}

/// Fewer experts are met where some are chosen more often.
#[test]
fn loads_of_experts_count_where_no_chips_share_them_out() {
    for model in ["--model=qwen3-30b-a3b", "--model=gpt-oss-20b"] {
        let of = |load: &str| computing(&["dgx-h100", model, "--parallel=tp=4", "--expert-load", load]);
        assert!(of("zipf:1.5") < 0.98 * of("uniform"), "{model}: {} s and {} s", of("zipf:1.5"), of("uniform"));
    }
}

/// One layer in two has experts, and all of them are divided by their columns.
#[test]
fn experts_in_some_layers_are_served_without_exchanges() {
    let divided = computing(&["dgx-a100", "--model=gshard-600b", "--parallel=tp=8,pp=6"]);
    let longer = computing(&["dgx-a100", "--model=gshard-600b", "--parallel=tp=4,pp=9"]);
    assert!(0.0 < divided && divided < longer, "{divided} s and {longer} s");
}

#[test]
fn the_binary_serves_presets_with_experts_and_names_what_cannot() {
    let pod = ["pod", "arch/systems/dgx-a100.toml", "--model=gshard-600b", "--phase=decode", "--seq=256"];
    let run = |more: &[&str]| rdusim(&[&pod[..], more].concat());
    let output = run(&["--parallel=dp=128,ep=128", "--batch=512", "--format=json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
    assert!(object["time_s"]["expert_comm_exposed"].as_f64().expect("a time") > 0.0);
    assert_eq!(object["parallel"]["ep"], 128);
    let table = run(&["--parallel=dp=128,ep=128", "--batch=512", "--expert-load=zipf:1"]);
    assert!(String::from_utf8_lossy(&table.stdout).contains("exchanges between experts"));
    let refused = |more: &[&str]| {
        let output = run(more);
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused(&["--parallel=dp=6,ep=4", "--batch=6"]).contains("ep = 4 does not divide the 6 chips"));
    assert!(refused(&["--parallel=dp=8,ep=8", "--batch=8"]).contains("does not fit"));
    let rdu =
        rdusim(&["pod", "arch/systems/sn40l-16.toml", "--model=gshard-600b", "--phase=decode", "--parallel=tp=8"]);
    assert!(String::from_utf8_lossy(&rdu.stderr).contains("on GPUs alone"), "{rdu:?}");
    let dense =
        rdusim(&["pod", "dgx-a100", "--model=llama3-8b", "--phase=decode", "--parallel=dp=2,ep=2", "--batch=2"]);
    assert!(String::from_utf8_lossy(&dense.stderr).contains("has no experts"), "{dense:?}");
    assert!(PRESETS.iter().all(|preset| preset.architecture.extras.experts.is_none()));
}
