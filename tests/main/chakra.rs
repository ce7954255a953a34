//! Execution traces of pods: graphs replayed without links, and the files of `rdusim pod --chakra` read back by a decoder of its own.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use rdusim::model::{Architecture, ExpertLoad, Experts, Extras};
use rdusim::pod::{CollectiveKind, Detail, ExecutionTraces, Job, Operation, StackKind, System, TraceNode, step};

use crate::small_pods::{self, stack};

/// The system with links that take next to no time.
fn fast() -> System {
    let mut system = small_pods::system("dgx-a100");
    for level in &mut system.levels {
        (level.link_gb_per_s, level.message_us) = (1e6, 0.0);
    }
    system
}

fn job(parallel: &str, batch: u64) -> Job {
    small_pods::job(parallel, batch, 8, 512)
}

/// Eight layers, of which every second has 8 experts, 2 for each token.
fn with_experts(parallel: &str, batch: u64) -> Job {
    let job = job(parallel, batch);
    let experts = Experts { count: 8, each: 2, width: 2048, shared: 0, shared_gate: false, every: 2 };
    let extras = Extras { experts: Some(experts), ..job.architecture.extras };
    let architecture = Architecture { extras, tied: false, ..job.architecture };
    Job { architecture, expert_load: ExpertLoad::Even, ..job }
}

/// When the last node of all chips ends if nothing takes time but computing, microseconds; what waits for what it never gets is told.
fn replayed(graphs: &[Vec<TraceNode>], groups: &[Vec<u64>]) -> u64 {
    let mut ends: Vec<Vec<Option<u64>>> = graphs.iter().map(|graph| vec![None; graph.len()]).collect();
    // The how-manieth collective of its group a node is, and the nodes of sends.
    let mut turn: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    let mut sends: BTreeMap<(u64, u64, u64), usize> = BTreeMap::new();
    for (chip, graph) in graphs.iter().enumerate() {
        for (at, node) in graph.iter().enumerate() {
            match node.operation {
                Operation::Collective { group, .. } => turn.entry((chip, group)).or_default().push(at),
                Operation::Send { to, tag, .. } => {
                    assert!(sends.insert((chip as u64, to, tag), at).is_none(), "{}: sent twice", node.name);
                }
                _ => {}
            }
        }
    }
    loop {
        let mut is_changed = false;
        for (chip, graph) in graphs.iter().enumerate() {
            for (at, node) in graph.iter().enumerate() {
                let ready = |chip: usize, at: usize| -> Option<u64> {
                    graphs[chip][at].after.iter().try_fold(0, |latest, &before| {
                        assert!((before as usize) < at, "a node waits for one behind it");
                        Some(latest.max(ends[chip][before as usize]?))
                    })
                };
                if ends[chip][at].is_some() {
                    continue;
                }
                let end = match node.operation {
                    Operation::Compute { micros } => ready(chip, at).map(|at| at + micros),
                    Operation::Send { .. } => ready(chip, at),
                    Operation::Receive { from, tag, .. } => {
                        let sent = ends[from as usize][sends[&(from, chip as u64, tag)]];
                        ready(chip, at).zip(sent).map(|(ready, sent)| ready.max(sent))
                    }
                    Operation::Collective { kind, bytes, group } => {
                        let which = turn[&(chip, group)].iter().position(|&of| of == at).expect("its own turn");
                        groups[group].iter().try_fold(0, |latest, &member| {
                            let own = turn[&(member as usize, group)][which];
                            let same = Operation::Collective { kind, bytes, group };
                            assert_eq!(graphs[member as usize][own].operation, same, "members differ");
                            Some(latest.max(ready(member as usize, own)?))
                        })
                    }
                };
                is_changed |= end.is_some();
                ends[chip][at] = end;
            }
        }
        if !is_changed {
            break;
        }
    }
    let all = ends.into_iter().flatten().map(|end| end.expect("every node runs")).max();
    all.expect("there are nodes")
}

const DECOMPOSITIONS: [&str; 13] = [
    "pp=4",
    "pp=4,schedule=gpipe,recompute=full",
    "pp=2,schedule=interleaved:2",
    "pp=4,schedule=zb-h1",
    "tp=2",
    "tp=2,sp=1,recompute=full",
    "dp=2",
    "dp=2,zero=1",
    "dp=4,zero=2",
    "dp=4,zero=3",
    "dp=2,zero=3,prefetch=0,pp=2",
    "tp=2,pp=2,dp=2,zero=1,recompute=selective",
    "tp=2,pp=2,dp=2,zero=3,prefetch=3,sp=1,schedule=zb-h1",
];

/// Decompositions with exchanges within attention; rings are of fused attention.
const SEQUENCES: [&str; 6] = [
    "cp=2",
    "cp=4,dp=2,zero=3,recompute=full",
    "cp=2,recompute=selective,tp=2,sp=1",
    "cp=2,pp=2,dp=2,schedule=zb-h1,zero=1",
    "cp=4,context=ulysses",
    "cp=2,context=ulysses,tp=2,recompute=full,zero=2",
];

/// Decompositions with exchanges between experts.
const MIXTURES: [&str; 6] = [
    "dp=4,ep=4",
    "dp=4,ep=2,zero=1,recompute=full",
    "dp=4,ep=2,zero=3,exchange=overlapped:4",
    "dp=2,ep=2,tp=2,pp=2,capacity=1.25,schedule=gpipe",
    "dp=2,cp=2,ep=4,context=ulysses,experts=far",
    "dp=4,ep=2,pp=2,schedule=zb-h1,zero=2,recompute=selective",
];

/// The graphs of all chips, with the groups of their collectives.
fn graphs(system: &System, kind: StackKind, job: &Job) -> (Vec<Vec<TraceNode>>, Vec<Vec<u64>>) {
    let traces = ExecutionTraces::new(system, stack(system, kind), job).expect("graphs");
    ((0..traces.chips()).map(|chip| traces.of(chip)).collect(), traces.groups().to_vec())
}

/// Over links that take no time the graphs take what the engine does, for each order of passes and each division.
#[test]
fn graphs_take_as_long_as_the_engine_where_links_cost_nothing() {
    take_as_long_as_the_engine(8);
}

#[test]
#[ignore = "depth: every decomposition"]
fn all_graphs_take_as_long_as_the_engine_where_links_cost_nothing() {
    take_as_long_as_the_engine(1);
}

/// Replays the graphs of every decomposition whose place in the lists is a multiple of `every`.
fn take_as_long_as_the_engine(every: usize) {
    let mut system = fast();
    for protocol in &mut system.protocols {
        protocol.base_us = 0.0;
        protocol.step_us.iter_mut().for_each(|step| *step = 0.0);
    }
    let kinds = [StackKind::Megatron, StackKind::Flash];
    let plain = kinds.into_iter().flat_map(|kind| DECOMPOSITIONS.map(|parallel| (kind, job(parallel, 16))));
    let sequences = SEQUENCES.map(|parallel| (StackKind::Flash, job(parallel, 16)));
    let mixtures = MIXTURES.map(|parallel| (StackKind::Flash, with_experts(parallel, 16)));
    for (kind, job) in plain.chain(sequences).chain(mixtures).step_by(every) {
        let step = step(&system, stack(&system, kind), &job, Detail::Grouped).expect("a step");
        let (graphs, groups) = graphs(&system, kind, &job);
        let replayed = replayed(&graphs, &groups) as f64 / 1e6;
        let differs = (replayed / step.step_s - 1.0).abs();
        let parallel = &job.parallel;
        assert!(differs < 0.01, "{kind:?} {parallel:?}: {replayed} s replayed, {} by the engine", step.step_s);
    }
}

/// Bytes between chips that the nodes of all graphs name: of sends, and of all-to-alls what leaves their members.
fn exchanged(graphs: &[Vec<TraceNode>], groups: &[Vec<u64>]) -> u64 {
    let of_node = |node: &TraceNode| match node.operation {
        Operation::Send { bytes, .. } => bytes,
        Operation::Collective { kind: CollectiveKind::AllToAll, bytes, group } => {
            let members = groups[group].len() as u64;
            bytes / members * (members - 1)
        }
        _ => 0,
    };
    graphs.iter().flatten().map(of_node).sum()
}

/// What chips exchange within attention and between experts is what the step counts on its links, beside all collectives.
#[test]
fn exchanges_bring_the_bytes_of_the_step() {
    let system = small_pods::system("dgx-a100");
    let of = |job: &Job| {
        let (graphs, groups) = graphs(&system, StackKind::Flash, job);
        let step = step(&system, stack(&system, StackKind::Flash), job, Detail::Grouped).expect("a step");
        (exchanged(&graphs, &groups), step.traffic.iter().map(|(_, bytes)| bytes).sum::<u64>())
    };
    // Another micro-batch of each replica moves nothing but exchanges.
    let check = |fewer: &Job, more: &Job| {
        let ((few, few_by_step), (many, many_by_step)) = (of(fewer), of(more));
        assert_eq!(many - few, many_by_step - few_by_step, "{:?}", more.parallel);
        assert!(many > few && few > 0);
    };
    for parallel in ["cp=4", "cp=4,recompute=full", "cp=2,dp=2,recompute=selective", "cp=4,context=ulysses,dp=2"] {
        check(&job(parallel, 4), &job(parallel, 8));
    }
    for parallel in ["dp=4,ep=4", "dp=4,ep=2,recompute=full", "dp=4,ep=4,capacity=1.25,exchange=overlapped:2"] {
        check(&with_experts(parallel, 4), &with_experts(parallel, 8));
    }
    // Keys and values of 128 tokens of 16 heads of 64 elements: three times forward; with their gradients four times back.
    let (graphs, groups) = graphs(&system, StackKind::Flash, &job("cp=4", 1));
    let keys_and_values = 2 * 2 * 128 * 1024;
    assert_eq!(exchanged(&graphs, &groups), 4 * 8 * keys_and_values * (3 + 2 * 4));
}

/// Bytes of a layer's tensor collectives and of gradients are those of the closed forms.
#[test]
fn collectives_bring_their_bytes() {
    let system = fast();
    let stack = stack(&system, StackKind::Flash);
    let job = job("tp=2,dp=2", 8);
    let traces = ExecutionTraces::new(&system, stack, &job).expect("graphs");
    let of = |chip: u64, which: usize| -> Vec<u64> {
        let nodes = traces.of(chip).into_iter().filter_map(|node| match node.operation {
            Operation::Collective { bytes, group, kind } => {
                assert_eq!(kind, CollectiveKind::AllReduce);
                (group == which).then_some(bytes)
            }
            _ => None,
        });
        nodes.collect()
    };
    // 8 layers of 2 sums forward and 2 backward, one of the embedding and one of the logits; 4 micro-batches.
    assert_eq!(of(0, 0), vec![2 * 512 * 1024; 4 * (8 * 4 + 2)]);
    assert_eq!(traces.groups()[2], [0, 2]);
    assert_eq!(of(2, 2), vec![2 * job.stage_parameters(0)]);
}

/// The value of a varint at the start of bytes, which it is taken from.
fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (first, rest) = bytes.split_first().expect("a byte");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        shift += 7;
        if first & 0x80 == 0 {
            return value;
        }
    }
}

/// Fields of a message: varints, and bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
    let mut list = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let (mut value, mut text) = (0, Vec::new());
        match key & 7 {
            0 => value = varint(&mut bytes),
            2 => {
                let length = varint(&mut bytes) as usize;
                text = bytes[..length].to_vec();
                bytes = &bytes[length..];
            }
            other => panic!("wire type {other}"),
        }
        list.push((key >> 3, value, text));
    }
    list
}

/// An attribute of a node: its number or its text.
fn attribute(node: &[(u64, u64, Vec<u8>)], name: &str) -> Option<(u64, String)> {
    node.iter().filter(|field| field.0 == 10).find_map(|field| {
        let of = fields(&field.2);
        assert_eq!(of[0].0, 1);
        (of[0].2 == name.as_bytes()).then(|| (of[1].1, String::from_utf8(of[1].2.clone()).expect("UTF-8")))
    })
}

/// The messages of a file, of which the first is not a node.
fn messages(file: &Path) -> Vec<Vec<(u64, u64, Vec<u8>)>> {
    let whole = std::fs::read(file).expect("a trace");
    let mut bytes = &whole[..];
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let length = varint(&mut bytes) as usize;
        messages.push(fields(&bytes[..length]));
        bytes = &bytes[length..];
    }
    messages
}

/// Runs a step that is written as traces.
fn write(model: &str, parallel: &str, directory: &Path) {
    let arguments = ["pod", "dgx-a100", "--phase", "training", "--stack", "flash", "--batch", "8", "--seq", "1024"];
    let output = Command::new(env!("CARGO_BIN_EXE_rdusim"))
        .args(arguments)
        .args(["--model", model, "--parallel", parallel, "--chakra", directory.to_str().expect("UTF-8")])
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn files_have_exchanges_of_sequences_and_experts() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Of each kind of node, how many of all chips.
    let kinds = |model: &str, parallel: &str| -> (BTreeMap<u64, usize>, BTreeMap<u64, usize>) {
        let into = directory.path().join(parallel);
        write(model, parallel, &into);
        let (mut kinds, mut collectives) = (BTreeMap::new(), BTreeMap::new());
        for rank in 0..4 {
            for node in messages(&into.join(format!("rank.{rank}.et"))).iter().skip(1) {
                let kind = node.iter().find(|of| of.0 == 3).map(|of| of.1).expect("a kind");
                *kinds.entry(kind).or_default() += 1;
                if let Some((kind, _)) = attribute(node, "comm_type") {
                    *collectives.entry(kind).or_default() += 1;
                }
            }
        }
        (kinds, collectives)
    };
    // 12 layers and 8 micro-batches: three exchanges forward and four back, of each of four chips.
    let (ring, _) = kinds("gpt2", "cp=4");
    assert_eq!((ring[&5], ring[&6]), (4 * 12 * 8 * 7, 4 * 12 * 8 * 7));
    // To the heads and back, forward and backward.
    let (_, heads) = kinds("gpt2", "cp=4,context=ulysses");
    assert_eq!(heads[&6], 4 * 12 * 8 * 4);
    // 2 layers with experts, 2 micro-batches on each of four chips: there and back, forward and backward.
    let mixtral = directory.path().join("config.json");
    let text = r#"{"model_type": "mixtral", "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2,
        "intermediate_size": 512, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 1000}"#;
    std::fs::write(&mixtral, text).expect("a file");
    let (_, rows) = kinds(mixtral.to_str().expect("UTF-8"), "dp=4,ep=4");
    assert_eq!(rows[&6], 2 * 2 * 4 * 4);
}

#[test]
fn files_hold_what_the_schema_says() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let into = directory.path().join("traces");
    let run = |directory: &Path| write("gpt2", "tp=2,pp=2,dp=2", directory);
    run(&into);
    let groups = std::fs::read(into.join("comm_groups.json")).expect("groups");
    let groups: BTreeMap<String, Vec<u64>> = serde_json::from_slice(&groups).expect("an object");
    assert_eq!(groups["0"], [0, 1]);
    let (mut sent, mut received) = (BTreeMap::new(), BTreeMap::new());
    for rank in 0..8 {
        let messages = messages(&into.join(format!("rank.{rank}.et")));
        assert_eq!(messages[0], [(1, 0, b"0.0.4".to_vec())]);
        let mut kinds: BTreeMap<u64, u64> = BTreeMap::new();
        for (at, node) in messages.iter().enumerate().skip(1) {
            let number = |field: u64| node.iter().find(|of| of.0 == field).map(|of| of.1);
            assert_eq!(number(1), Some(at as u64), "numbered from one, in order");
            assert_eq!(attribute(node, "is_cpu_op").expect("said").0, 0);
            for field in node.iter().filter(|field| field.0 == 5) {
                let mut packed = &field.2[..];
                while !packed.is_empty() {
                    assert!((1..at as u64).contains(&varint(&mut packed)));
                }
            }
            let kind = number(3).expect("a kind");
            *kinds.entry(kind).or_default() += 1;
            let of = |name: &str| attribute(node, name).unwrap_or_else(|| panic!("{name} of kind {kind}")).0;
            match kind {
                4 => assert!(number(7).is_some()),
                5 => assert!(sent.insert((rank, of("comm_dst"), of("comm_tag")), of("comm_size")).is_none()),
                6 => assert!(received.insert((of("comm_src"), rank, of("comm_tag")), of("comm_size")).is_none()),
                7 => {
                    let group = attribute(node, "pg_name").expect("a group").1;
                    // Sums, and gathers of what the tensor ranks of another stage have each sent a part of.
                    let kind = of("comm_type");
                    assert!(groups[&group].contains(&rank) && of("comm_size") > 0 && matches!(kind, 0 | 2), "{kind}");
                }
                other => panic!("kind {other}"),
            }
        }
        assert!([4, 5, 6, 7].iter().all(|kind| kinds.contains_key(kind)), "{kinds:?}");
    }
    // Four micro-batches forward and as many back, of each tensor rank of each replica half of 2 x 1,024 x 768 bytes each.
    assert_eq!(sent.len(), 2 * 2 * 2 * 4);
    assert_eq!(sent, received, "what is sent is received, with its bytes");
    assert!(sent.values().all(|&bytes| bytes == 1024 * 768), "{sent:?}");
    let again = directory.path().join("again");
    run(&again);
    assert_eq!(
        std::fs::read(into.join("rank.5.et")).expect("a trace"),
        std::fs::read(again.join("rank.5.et")).expect("a trace")
    );
}
