//! Pods: system files, collectives, steps of training, and `rdusim pod` through the binary.

use std::path::Path;
use std::process::{Command, Output};

use rdusim::input::{BUILTINS, FileKind, Override};
use rdusim::model::Architecture;
use rdusim::pod::{
    Algorithm, Call, CollectiveKind, Detail, Job, Network, Parallel, Stack, StackKind, System, least_bytes, of_job,
    open, phases, plan, step,
};

use crate::small_pods::{self, stack, system};

const KINDS: [CollectiveKind; 4] =
    [CollectiveKind::AllReduce, CollectiveKind::ReduceScatter, CollectiveKind::AllGather, CollectiveKind::AllToAll];

fn megatron(system: &System) -> &Stack {
    stack(system, StackKind::Megatron)
}

fn small(parallel: &str, batch: u64) -> Job {
    small_pods::job(parallel, batch, 16, 1024)
}

fn rdusim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rdusim")).args(arguments).output().expect("the binary runs")
}

#[test]
fn shipped_systems_are_read() {
    let systems = BUILTINS.iter().filter(|file| file.kind == FileKind::System);
    for name in systems.map(|file| file.name) {
        let system = system(name);
        assert!(system.most_chips() >= 16 && !system.stacks.is_empty(), "{name}");
    }
}

#[test]
fn collectives_move_the_bytes_of_their_closed_forms() {
    let system = system("dgx-a100");
    let network = Network::new(&system);
    for n in [2_u64, 3, 4, 8] {
        let bytes = 840 * 1024;
        for kind in KINDS {
            let groups = [(0..n).collect::<Vec<u64>>()];
            let call = Call { kind, groups: &groups, bytes };
            for algorithm in Algorithm::NAMES.map(|(_, algorithm)| algorithm) {
                let Some(list) = phases(&network, &call, algorithm) else { continue };
                let all: u64 = list.iter().flat_map(|phase| &phase.demand.by_level).sum();
                let least = (least_bytes(kind, n, bytes) * n as f64).round() as u64;
                match algorithm {
                    Algorithm::Ring | Algorithm::Direct | Algorithm::Pairwise => {
                        assert_eq!(all, least, "{kind:?} {algorithm:?} {n}");
                    }
                    // The operand and a part of the sum from each member: the switch adds.
                    Algorithm::InSwitch => assert_eq!(all, n * (bytes + bytes.div_ceil(n))),
                    // 2 (n - 1) S up and down the trees.
                    Algorithm::Tree | Algorithm::DoubleTree => assert_eq!(all, 2 * (n - 1) * bytes),
                    // n log2 n operands.
                    Algorithm::RecursiveDoubling => assert_eq!(all, n * u64::from(n.ilog2()) * bytes),
                    Algorithm::OneShot => assert_eq!(all, n * (n - 1) * bytes),
                    Algorithm::Torus | Algorithm::Hierarchical | Algorithm::TwoLevel => {
                        panic!("not on a part of one node")
                    }
                }
                // No algorithm whose members add moves less, and none is faster than its busiest member's links.
                let adds = algorithm != Algorithm::InSwitch;
                assert!(all >= least || kind == CollectiveKind::Broadcast || !adds);
            }
            let planned = plan(&network, &system.protocols, "nccl", None, &call);
            if kind != CollectiveKind::AllToAll || planned.is_ok() {
                let seconds = planned.expect("rings do it").seconds;
                assert!(seconds >= least_bytes(kind, n, bytes) / 300e9, "{kind:?} {n}");
            }
        }
    }
}

#[test]
fn a_hierarchical_all_reduce_sends_a_part_between_nodes() {
    let system = system("dgx-a100");
    let network = Network::new(&system);
    let groups = [(0..16).collect::<Vec<u64>>()];
    let call = Call { kind: CollectiveKind::AllReduce, groups: &groups, bytes: 8 << 20 };
    let list = phases(&network, &call, Algorithm::Hierarchical).expect("two equal nodes");
    let of_level =
        |level: usize| list.iter().map(|phase| phase.demand.by_level.get(level).copied().unwrap_or(0)).sum::<u64>();
    // Within each of 2 nodes 7 S for the scatter and 7 S for the gather; between them 2 (n - 1) / n of S / 8 by 16 chips.
    assert_eq!((of_level(0), of_level(1)), (2 * 2 * 7 * (8 << 20), 16 << 20));
    // A plain ring crosses between the nodes twice with 2 (n - 1) / n S.
    let ring = phases(&network, &call, Algorithm::Ring).expect("a ring");
    assert_eq!(ring[0].demand.by_level[1], 2 * 30 * (8 << 20) / 16);
}

#[test]
fn rings_of_a_node_share_its_links() {
    let system = system("dgx-a100");
    let network = Network::new(&system);
    let seconds = |groups: &[Vec<u64>]| {
        let call = Call { kind: CollectiveKind::AllReduce, groups, bytes: 1 << 30 };
        plan(&network, &system.protocols, "nccl", None, &call).expect("rings").seconds
    };
    let ring = |rank: u64| vec![rank, rank + 8, rank + 16, rank + 24];
    let (one, eight) = (seconds(&[ring(0)]), seconds(&(0..8).map(ring).collect::<Vec<_>>()));
    assert!((eight / one - 8.0).abs() < 0.1, "{one} {eight}");
}

#[test]
fn every_chip_on_its_own_gives_what_groups_give() {
    let system = system("dgx-a100");
    let stack = megatron(&system);
    let cases = [
        ("tp=2,pp=2,dp=1", 4),
        ("tp=2,pp=2,dp=2", 8),
        ("tp=1,pp=4,dp=4,recompute=full", 16),
        ("tp=4,pp=2,dp=2,schedule=interleaved:2", 16),
        ("tp=2,pp=4,dp=2,zero=1,schedule=gpipe", 8),
    ];
    for (parallel, batch) in cases {
        let job = small(parallel, batch);
        let time = |detail| step(&system, stack, &job, detail).expect("a step").step_s;
        let (grouped, flat) = (time(Detail::Grouped), time(Detail::Flat));
        assert!((grouped / flat - 1.0).abs() < 0.01, "{parallel}: {grouped} grouped, {flat} flat");
    }
}

#[test]
fn the_parts_of_a_step_add_up() {
    let system = system("dgx-a100");
    for parallel in
        ["tp=1", "tp=8", "pp=8", "tp=2,pp=2,dp=2,recompute=full", "tp=4,pp=4,sp=1,recompute=selective", "dp=8,zero=3"]
    {
        let job = small(parallel, 16);
        let step = step(&system, megatron(&system), &job, Detail::Grouped).expect("a step");
        let t = step.time;
        let all = t.compute + t.recompute + t.tensor_comm + t.pipeline_comm + t.bubble + t.data_comm + t.optimizer;
        let all = all + t.offload + t.other;
        assert!((all / step.step_s - 1.0).abs() < 1e-9, "{parallel}: {all} of {}", step.step_s);
        assert!(step.bound_s < step.step_s && step.mfu <= step.hfu && step.hfu < 1.0);
    }
}

#[test]
fn bytes_of_a_step_are_the_closed_forms() {
    let system = system("dgx-a100");
    let job = small("tp=2,pp=4,dp=1,recompute=full", 8);
    let job = Job { architecture: Architecture { tied: false, ..job.architecture }, ..job };
    let step = step(&system, megatron(&system), &job, Detail::Grouped).expect("a step");
    let activation = 1024 * 1024 * 2;
    // 6 all-reduces a layer and micro-batch, one behind the embedding and one before the logits, whose 2 members send their
    // operand each; and each member sends its half over 3 borders, both ways, which the other gets where it arrives.
    let tensor = (6 * 16 + 2) * 8 * 2 * activation;
    let between = 2 * 3 * 8 * (activation + 2 * activation / 2);
    assert_eq!(step.traffic, [("node".to_owned(), tensor + between), ("cluster".to_owned(), 0)]);
}

#[test]
fn memory_falls_with_each_remedy() {
    let peak = |parallel: &str| of_job(&small(parallel, 16), StackKind::Megatron).peak();
    let plain = peak("tp=2,pp=2,dp=2");
    for remedy in ["zero=1", "sp=1", "recompute=selective", "recompute=full"] {
        assert!(peak(&format!("tp=2,pp=2,dp=2,{remedy}")) < plain, "{remedy}");
    }
    assert!(peak("tp=2,pp=2,dp=2,schedule=gpipe") > plain);
}

const STEP: [&str; 9] = [
    "pod",
    "arch/systems/dgx-a100.toml",
    "--model",
    "gpt-13b",
    "--phase",
    "training",
    "--stack",
    "megatron-2021",
    "--seq=2048",
];

#[test]
fn the_binary_prints_the_object() {
    let mut arguments = STEP.to_vec();
    arguments.extend(["--parallel", "tp=2,pp=4,recompute=full", "--batch", "16", "--format", "json"]);
    let output = rdusim(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
    let keys = ["compute", "recompute", "tensor_comm_exposed", "pipeline_comm_exposed", "expert_comm_exposed"];
    let more =
        ["context_comm_exposed", "pipeline_bubble", "data_comm_exposed", "optimizer", "offload_exposed", "other"];
    let times: Vec<f64> = keys.iter().chain(&more).map(|key| result["time_s"][key].as_f64().expect("a time")).collect();
    let step_s = result["step_s"].as_f64().expect("a time");
    assert!((times.iter().sum::<f64>() / step_s - 1.0).abs() < 1e-9);
    assert_eq!(result["system"]["chips"], 8);
    let mut names: Vec<&str> = result.as_object().expect("an object").keys().map(String::as_str).collect();
    names.sort_unstable();
    let agreed = [
        "bound_s",
        "energy_j",
        "hfu",
        "memory_bytes",
        "mfu",
        "model",
        "notes",
        "parallel",
        "phase",
        "schema",
        "step_s",
        "system",
        "time_s",
        "tokens_per_s",
        "traffic_bytes",
    ];
    assert_eq!(names, agreed);
    let memory = ["weights", "gradients", "optimizer", "activations", "kv_cache", "buffers"];
    let all: u64 = memory.iter().map(|kind| result["memory_bytes"][kind].as_u64().expect("bytes")).sum();
    assert_eq!(result["memory_bytes"]["peak"].as_u64(), Some(all));
}

/// Without `--stack` the first of the system file is taken, and both the message and the result name it.
#[test]
fn the_stack_that_is_taken_is_named() {
    let with: Vec<&str> = STEP.into_iter().chain(["--parallel", "tp=8", "--format", "json"]).collect();
    let without: Vec<&str> = with.iter().copied().filter(|word| !word.contains("stack") && *word != STEP[7]).collect();
    let (with, without) = (rdusim(&with), rdusim(&without));
    assert!(without.status.success());
    assert_eq!(with.stdout, without.stdout);
    assert!(with.stderr.is_empty());
    let message = String::from_utf8_lossy(&without.stderr);
    assert!(message.contains("no `--stack`: megatron-2021") && message.contains("flash"), "{message}");
}

#[test]
fn what_does_not_fit_is_refused_with_remedies() {
    let mut arguments = STEP.to_vec();
    arguments.extend(["--parallel", "tp=2,pp=2,dp=2", "--batch", "16", "--micro-batch", "4"]);
    let output = rdusim(&arguments);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(output.stdout.is_empty());
    assert!(message.contains("does not fit") && message.contains("recompute=full"), "{message}");
}

/// What fits is told with what moves to the hosts, and with what has to change together; and what is told does fit.
#[test]
fn remedies_name_the_hosts_and_the_fewest_changes_together() {
    let refused = |parallel: &str, more: &[&str]| {
        let model =
            ["pod", "dgx-a100", "--model", "gpt3-175b", "--phase", "training", "--stack", "flash", "--batch", "64"];
        let output = rdusim(&[&model[..], &["--parallel", parallel], more].concat());
        assert_eq!(output.status.code(), Some(2), "{parallel}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    // Nothing alone is enough on 8 chips; state that is smaller and lies with the host, as weights do, is.
    let message = refused("tp=8,recompute=full", &[]);
    let told = "offload=optimizer+weights, optimizer=adam-8bit together on the same chips: ";
    assert!(message.contains(told) && message.contains("times the chips"), "{message}");
    // What does not fit the host says what would.
    let message = refused("tp=8,recompute=full,offload=optimizer+weights", &[]);
    assert!(message.contains("of one host") && message.contains("optimizer=adam-8bit"), "{message}");
    // With the host no more than is needed.
    let message = refused("tp=8,pp=4,recompute=full", &[]);
    let (optimizer, more) = ("offload=optimizer (to the memory of the host)", "optimizer+activations");
    assert!(message.contains(optimizer) && !message.contains(more), "{message}");
    let system = system("dgx-a100");
    let gib = |parallel: &str| {
        let (architecture, sequence) = rdusim::model::preset("gpt3-175b").expect("a preset");
        let job = Job { model: "175b".into(), architecture, sequence, ..small(parallel, 64) };
        let host = rdusim::pod::of_host(&system, &job, StackKind::Flash);
        (of_job(&job, StackKind::Flash).peak() as f64 / f64::from(1 << 30), host)
    };
    let (peak, host) = gib("tp=8,recompute=full,offload=optimizer+weights,optimizer=adam-8bit");
    assert!(peak < 80.0 && host <= system.host.memory_bytes);
    assert!(refused("tp=8,recompute=full", &[]).contains(&format!("{told}{peak:.1} GiB")));
}

#[test]
fn keys_take_the_value_that_changes_nothing_and_refuse_what_is_none() {
    let plain = Parallel::parse("tp=2").expect("a decomposition");
    let all = "tp=2,cp=1,ep=1,capacity=dropless,exchange=exposed,experts=near,seq_chunks=1,offload=none,stash=bf16";
    assert_eq!(Parallel::parse(all).expect("a decomposition"), plain);
    for key in [
        "ep=0",
        "capacity=0",
        "exchange=overlapped:1",
        "experts=nowhere",
        "seq_chunks=x",
        "offload=weights+weights",
        "stash=fp4",
    ] {
        let message = Parallel::parse(key).expect_err("it is no value").to_string();
        let (name, value) = key.split_once('=').expect("a key");
        assert!(message.contains(name) && message.contains(value) && message.contains("expected"), "{message}");
    }
}

#[test]
fn wrong_arguments_are_named() {
    let refused = |more: &[&str]| {
        let mut arguments = STEP.to_vec();
        arguments.extend(more);
        let output = rdusim(&arguments);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused(&["--parallel", "tp=3"]).contains("does not divide the 40 query heads"));
    assert!(refused(&["--parallel", "tp=two"]).contains("`tp` is \"two\""));
    assert!(refused(&["--parallel", "tq=2"]).contains("unknown key \"tq\""));
    assert!(refused(&["--parallel", "pp=4,schedule=interleaved:2", "--batch", "6"]).contains("a multiple of pp = 4"));
    let wrong = refused(&["--parallel", "tp=2", "--set", "arch.level.node.topology=\"mesh\""]);
    assert!(wrong.contains("level.node.topology") && wrong.contains("torus"), "{wrong}");
}

#[test]
fn a_step_on_rdus_has_the_time_of_its_sections() {
    let arguments = [
        "pod",
        "arch/systems/sn40l-16.toml",
        "--model=gpt2",
        "--phase=training",
        "--parallel=tp=2,pp=2",
        "--stack=rdu",
        "--batch=4",
        "--format=json",
    ];
    let output = rdusim(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
    let of = |key: &str| result["time_s"][key].as_f64().expect("a time");
    assert!(of("compute") > 0.0 && of("tensor_comm_exposed") > 0.0 && of("optimizer") > 0.0);
}

#[test]
fn a_torus_moves_no_more_than_it_must() {
    let sets = ["arch.level.node.topology=\"torus\"", "arch.level.node.dimensions=[2,4]"];
    let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).expect("an override")).collect();
    let system = open(Path::new("arch/systems/dgx-a100.toml"), &sets).expect("a torus");
    let network = Network::new(&system);
    let groups = [(0..8).collect::<Vec<u64>>()];
    let bytes = 1 << 20;
    let call = Call { kind: CollectiveKind::AllReduce, groups: &groups, bytes };
    let list = phases(&network, &call, Algorithm::Torus).expect("a whole torus");
    // Along two dimensions and back.
    assert_eq!(list.len(), 4);
    let all: u64 = list.iter().flat_map(|phase| &phase.demand.by_level).sum();
    assert_eq!(all, (least_bytes(CollectiveKind::AllReduce, 8, bytes) * 8.0).round() as u64);
    // Opposite corners of a ring of four are two hops apart, one more in the other dimension.
    let mut demand = rdusim::pod::Demand::default();
    network.flow(&mut demand, 0, 5, 10);
    assert_eq!(demand.by_level, [30]);
}

#[test]
fn system_files_say_what_is_wrong_and_where() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = std::fs::read_to_string("arch/systems/sn10-8.toml").expect("a shipped system");
    let refused = |from: &str, to: &str| {
        let path = folder.path().join("system.toml");
        assert!(text.contains(from), "{from}");
        std::fs::write(&path, text.replacen(from, to, 1)).expect("a file");
        let output = rdusim(&["check", "--arch", path.to_str().expect("a path")]);
        assert_eq!(output.status.code(), Some(2), "{to}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let chip = "chip = \"../sn10.toml\"";
    let shipped = format!("chip = {:?}", std::fs::canonicalize("arch/sn10.toml").expect("a chip"));
    assert!(refused(chip, "chip = \"gone.toml\"").contains("system.toml:9:8"));
    let both = |from: &str, to: &str| refused(&format!("{chip}\n"), &format!("{shipped}\n{to}\n")) + from;
    assert!(both("", "chips = 8").contains("unknown field `chips`"));
}

#[test]
fn cases_of_systems_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |text: &str, more: &[&str]| {
        let path = folder.path().join("cases.csv");
        std::fs::write(&path, text).expect("a file");
        let mut arguments = vec!["validate", "--data", path.to_str().expect("a path"), "--format", "json"];
        arguments.extend(more);
        rdusim(&arguments)
    };
    // Times that nobody measured: whether they are near is not asked.
    let collectives = "# source: made up\ncollective,gpus,message_size,dtype,time_us\nall_reduce,8,1000000,half,50\n\
                       all_gather,4,1000000,half,30\n";
    let steps = "gpus,global_batch,micro_batch,hidden,heads,layers,seq,tp,dp,pp,iteration_ms\n\
                 8,16,1,1024,16,24,1024,2,2,2,200\n8,8,1,2048,16,24,1024,4,1,2,300\n";
    for text in [collectives, steps] {
        let output = run(text, &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
        assert_eq!(result["sets"][0]["rows"].as_array().expect("rows").len(), 2);
        assert_eq!(result["sets"][0]["chip"], "DGX-A100");
        let refused = run(text, &["--arch", "arch/a100.toml"]);
        assert!(String::from_utf8_lossy(&refused.stderr).contains("are of a system"));
    }
    // Three decompositions of a model: the first is simulated as the fastest, and the second was measured as it.
    let choices = "gpus,global_batch,micro_batch,hidden,heads,layers,seq,tp,dp,pp,iteration_ms\n\
                   8,16,1,1024,16,24,1024,1,8,1,200\n8,16,1,1024,16,24,1024,2,4,1,160\n\
                   8,16,1,1024,16,24,1024,8,1,1,400\n8,8,1,2048,16,24,1024,4,1,2,300\n";
    let result: serde_json::Value = serde_json::from_slice(&run(choices, &[]).stdout).expect("an object");
    let parts = result["sets"][0]["parts"].as_array().expect("parts");
    let models: Vec<_> = parts.iter().filter(|part| part.get("over_fastest").is_some()).collect();
    assert_eq!(models.len(), 1, "{parts:?}");
    assert_eq!(models[0]["name"], "hidden 1024, 24 layers, batch 16 on 8 chips");
    assert_eq!((&models[0]["points"], models[0]["over_fastest"].as_f64()), (&serde_json::json!(3), Some(0.25)));
    assert_eq!(models[0]["rank_correlation"].as_f64(), Some(0.5));
    let wrong = run(&steps.replace("8,16,1", "6,16,1"), &[]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("expected tp x pp x dp = 8"));
}
