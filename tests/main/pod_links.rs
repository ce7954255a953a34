//! Links of pods: dragonflies, latencies by level, what receivers gather, and the systems whose links are published.

use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use rdusim::input::Override;
use rdusim::model::{Architecture, ExpertLoad, preset};
use rdusim::pod::{
    Algorithm, Call, CollectiveKind, Detail, Job, Network, Parallel, Phase, StackKind, System, TrainingStep,
    least_bytes, open, phases, plan, step,
};

use crate::laws::for_all_of;

/// Chips of a made-up system are members of one level.
const LINK_BYTES_PER_S: f64 = 25e9 * 0.749;

fn dgx_a100(sets: &[&str]) -> System {
    let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).expect("an override")).collect();
    open(Path::new("arch/systems/dgx-a100.toml"), &sets).unwrap_or_else(|error| panic!("{error}"))
}

/// Members of a router, routers of a group, groups, links to each router, links to other groups.
fn dragonfly([members, routers, groups, local, global]: [u64; 5]) -> System {
    dgx_a100(&[
        "arch.level.node.topology=\"dragonfly\"",
        &format!("arch.level.node.members={}", members * routers * groups),
        &format!("arch.level.node.dimensions=[{members},{routers},{groups}]"),
        &format!("arch.level.node.router_links=[{local},{global}]"),
    ])
}

fn train(system: &System, parallel: &str) -> TrainingStep {
    let (gpt, _) = preset("gpt2-medium").expect("a preset");
    let architecture = Architecture { layers: 16, tied: false, ..gpt };
    let parallel = Parallel::parse(parallel).expect("a decomposition");
    let job = Job {
        model: "small".into(),
        architecture,
        parallel,
        batch: 8,
        micro_batch: 1,
        sequence: 1024,
        density: None,
        predicted: None,
        stage_layers: None,
        expert_load: ExpertLoad::default(),
    };
    let stack = system.stacks.iter().find(|stack| stack.kind == StackKind::Megatron).expect("a stack");
    step(system, stack, &job, Detail::Grouped).expect("a step")
}

/// The busiest link of an all-to-all is the busiest of a closed form: of a member, between routers, between groups.
#[test]
fn all_to_all_on_a_dragonfly_takes_its_closed_form() {
    for sizes @ [p, a, g, local, global] in [[2, 4, 9, 1, 2], [1, 4, 5, 1, 3], [4, 2, 3, 2, 1], [3, 3, 1, 1, 1]] {
        let system = dragonfly(sizes);
        let network = Network::new(&system);
        let n = p * a * g;
        // Whole at every split.
        let each = 5040;
        let groups = [(0..n).collect::<Vec<u64>>()];
        let call = Call { kind: CollectiveKind::AllToAll, groups: &groups, bytes: n * each };
        let list = phases(&network, &call, Algorithm::Direct).expect("direct does it");
        let between = a * global / (g - 1).max(1);
        // Bytes over the links of a kind. Of those between two routers: what is of their members, and, of what goes to
        // or comes from other groups by links of the other router, that which is of the members of this one.
        let of_member = (n - 1) * each;
        let of_group = if g > 1 { p * a * p * a * each / between } else { 0 };
        let of_routers =
            if a > 1 { p * p * each + if g > 1 { 2 * global * p * p * a * each / between } else { 0 } } else { 0 };
        let rates = [12.0, local as f64, 1.0].map(|links| links * LINK_BYTES_PER_S);
        let closed = [of_member, of_routers, of_group].into_iter().zip(rates).map(|(bytes, rate)| bytes as f64 / rate);
        let closed = closed.fold(0.0, f64::max);
        let found: f64 = list.iter().map(|phase| network.seconds(&phase.demand)).sum();
        assert!((found / closed - 1.0).abs() < 1e-9, "{sizes:?}: {found} and {closed}");
    }
}

/// No collective moves fewer bytes than it must, or is faster than a member's links, on any dragonfly.
#[test]
fn collectives_on_dragonflies_keep_the_lower_bounds() {
    let sizes = (1_u64..4, 1_u64..5, 1_u64..5, 1_u64..3, 1_u64..3);
    let kinds = prop::sample::select(CollectiveKind::NAMES.to_vec());
    for_all_of(file!(), 48, (sizes, kinds, 1_u64..1 << 24), |((p, a, g, local, global), (_, kind), bytes)| {
        // Every group has as many links to each other group.
        let system = dragonfly([p, a, g, local, global * (g - 1).max(1)]);
        let (network, n) = (Network::new(&system), p * a * g);
        let groups = [(0..n).collect::<Vec<u64>>()];
        let call = Call { kind, groups: &groups, bytes };
        let is_of_one = matches!(kind, CollectiveKind::Broadcast | CollectiveKind::SendReceive);
        let least = least_bytes(kind, n, bytes);
        for (name, algorithm) in Algorithm::NAMES {
            let Some(list) = phases(&network, &call, algorithm) else { continue };
            let seconds: f64 = list.iter().map(|phase| network.seconds(&phase.demand)).sum();
            let moved: u64 = list.iter().flat_map(|phase| &phase.demand.by_level).sum();
            prop_assert!(seconds >= least / (12.0 * LINK_BYTES_PER_S) * (1.0 - 1e-9), "{name} {kind:?} on {n}");
            let all = (least * if is_of_one { 1.0 } else { n as f64 }).floor();
            prop_assert!(moved as f64 >= all, "{name} {kind:?} on {n}: {moved} of {all}");
        }
        Ok(())
    });
}

/// Between nodes a two-level all-to-all moves what a direct one does, within them as many times that as there are nodes; each phase takes
/// what the busiest of its links takes, and it has as many steps as a node and the nodes together have borders.
#[test]
fn two_level_all_to_all_takes_its_closed_form() {
    for_all_of(file!(), 32, (2_u64..9, 2_u64..9, 1_u64..1 << 16), |(size, nodes, each)| {
        let system = dgx_a100(&[&format!("arch.level.node.members={size}")]);
        let (network, n) = (Network::new(&system), size * nodes);
        let groups = [(0..n).collect::<Vec<u64>>()];
        let call = Call { kind: CollectiveKind::AllToAll, groups: &groups, bytes: n * each };
        let of = |algorithm| phases(&network, &call, algorithm).expect("equal nodes");
        let (direct, two) = (of(Algorithm::Direct), of(Algorithm::TwoLevel));
        let bytes = |list: &[Phase], level: usize| {
            list.iter().map(|phase| phase.demand.by_level.get(level).copied().unwrap_or(0)).sum::<u64>()
        };
        prop_assert_eq!(bytes(&direct, 1), n * (n - size) * each);
        prop_assert_eq!(bytes(&two, 1), bytes(&direct, 1));
        prop_assert_eq!(bytes(&direct, 0), n * (size - 1) * each);
        prop_assert_eq!(bytes(&two, 0), nodes * bytes(&direct, 0));
        // A chip sends to each place of its node what goes to that place of every node; a node sends all that goes to others.
        let closed = [
            ((size - 1) * nodes * each) as f64 / (12.0 * LINK_BYTES_PER_S),
            (size * (n - size) * each) as f64 / (4.0 * 25e9 * 0.905),
        ];
        prop_assert_eq!(two.len(), 2);
        for (phase, closed) in two.iter().zip(closed) {
            let found = network.seconds(&phase.demand);
            prop_assert!((found / closed - 1.0).abs() < 1e-9, "{} and {}", found, closed);
        }
        let steps = |list: &[Phase]| list.iter().flat_map(|phase| &phase.steps).sum::<u64>();
        prop_assert_eq!((steps(&two), steps(&direct)), (size - 1 + nodes - 1, n - 1));
        Ok(())
    });
}

/// Where nodes are not whole, or there is one, there are no two levels.
#[test]
fn two_levels_need_several_whole_nodes() {
    let system = dgx_a100(&[]);
    let network = Network::new(&system);
    for chips in [(0..8).collect::<Vec<u64>>(), (0..12).collect(), vec![0, 8, 16]] {
        let groups = [chips];
        let call = Call { kind: CollectiveKind::AllToAll, groups: &groups, bytes: 1 << 20 };
        assert_eq!(phases(&network, &call, Algorithm::TwoLevel), None);
        assert!(plan(&network, &system.protocols, "nccl", None, &call).is_ok());
    }
    // Small messages of many chips have few steps, large ones of few chips cross their node once.
    let of = |chips: u64, bytes: u64| {
        let groups = [(0..chips).collect::<Vec<u64>>()];
        let call = Call { kind: CollectiveKind::AllToAll, groups: &groups, bytes };
        plan(&network, &system.protocols, "nccl", None, &call).expect("a protocol").algorithm
    };
    assert_eq!((of(2048, 1 << 20), of(16, 1 << 30)), (Algorithm::TwoLevel, Algorithm::Ring));
}

#[test]
fn wrong_dragonflies_are_named() {
    let refused = |sets: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rdusim"));
        command.args(["check", "--arch", "dgx-a100"]);
        for set in sets {
            command.args(["--set", set]);
        }
        let output = command.output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(2), "{sets:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let topology = "arch.level.node.topology=\"dragonfly\"";
    let sizes = "arch.level.node.dimensions=[1,2,4]";
    assert!(refused(&[topology]).contains("expected `dimensions = [members of a router"));
    assert!(refused(&[topology, sizes]).contains("expected `router_links = "));
    assert!(refused(&[topology, "arch.level.node.dimensions=[2,4]"]).contains("has 2 numbers, a dragonfly has 3"));
    assert!(refused(&[topology, "arch.level.node.dimensions=[2,2,4]"]).contains("have 16 places"));
    let odd = refused(&[topology, sizes, "arch.level.node.router_links=[1,1]"]);
    assert!(odd.contains("the 2 x 1 links of a group") && odd.contains("over the 3 others"), "{odd}");
    assert!(refused(&["arch.level.node.router_links=[1,1]"]).contains("has no effect on a switch"));
}

/// A pipeline within a node has the latency of its links, whatever that between nodes is.
#[test]
fn transfers_have_the_latency_of_their_level() {
    let slow = dgx_a100(&["arch.level.cluster.message_us=1000"]);
    for (parallel, crosses) in [("tp=2,pp=4", false), ("tp=4,pp=4", true)] {
        let (fast, slow) = (train(&dgx_a100(&[]), parallel), train(&slow, parallel));
        assert_eq!(slow.step_s > fast.step_s * 1.01, crosses, "{parallel}: {} and {}", fast.step_s, slow.step_s);
    }
}

/// Tensor ranks that each send a part of an activation send its bytes once, and gather them where they arrive.
#[test]
fn what_is_sent_in_parts_is_gathered() {
    let parts = |value: bool| dgx_a100(&[&format!("arch.stack.megatron-2021.scatter_gather={value}")]);
    let of = |parts: &System| {
        let step = train(parts, "tp=4,pp=2,recompute=full");
        (step.traffic[0].1, step.time.tensor_comm)
    };
    let (whole, part) = (of(&parts(false)), of(&parts(true)));
    // 8 micro-batches over a border, there and back. Whole, 4 ranks send all of it; in parts they send it once, and each
    // gets the other 3/4 by the gather.
    let activation = 1024 * 1024 * 2;
    let sent = |ranks: u64, gathered: u64| 2 * 8 * (ranks + gathered) * activation;
    assert_eq!(whole.0 - part.0, sent(4, 0) - sent(1, 3));
    assert!(part.1 > whole.1, "{part:?} and {whole:?}");
    // With the gradients divided over replicas, passes are simulated in units.
    let step = train(&parts(true), "tp=4,pp=2,dp=2,zero=2,recompute=full");
    let t = step.time;
    let all =
        t.compute + t.recompute + t.tensor_comm + t.pipeline_comm + t.bubble + t.data_comm + t.optimizer + t.other;
    assert!((all / step.step_s - 1.0).abs() < 1e-9, "{all} of {}", step.step_s);
    assert!(t.compute > 0.0);
}

/// Faster chips and links than a DGX A100's, by no more than the published rates.
#[test]
fn a_dgx_h100_is_faster_by_no_more_than_its_rates() {
    let h100 = open(Path::new("dgx-h100"), &[]).expect("a system that is built in");
    assert_eq!(h100.levels.iter().map(|level| level.members).collect::<Vec<_>>(), [8, 512]);
    let a100 = dgx_a100(&[]);
    for parallel in ["tp=8", "tp=2,pp=4,dp=2", "pp=2,dp=4,zero=3"] {
        let (fast, slow) = (train(&h100, parallel), train(&a100, parallel));
        let factor = slow.step_s / fast.step_s;
        assert!((1.0..989.4 / 311.9).contains(&factor), "{parallel}: {factor}");
        assert!(fast.bound_s < fast.step_s && (slow.bound_s / fast.bound_s - 989.4 / 311.9).abs() < 0.01);
    }
}

/// With sequence parallelism products hide all but a quarter of the tensor collectives, as far as they are as long.
#[test]
fn products_hide_tensor_collectives_of_a_stack_in_parts() {
    let exposed = |parts: u64, parallel: &str| {
        let set = format!("arch.stack.flash.tensor_parts={parts}");
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_rdusim"))
            .args(["pod", "dgx-h100", "--model", "llama2-7b", "--phase", "training", "--stack", "flash"])
            .args(["--batch", "8", "--seq", "4096", "--format", "json", "--set", &set, "--parallel", parallel])
            .output()
            .expect("the binary runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
        found["time_s"]["tensor_comm_exposed"].as_f64().expect("a time")
    };
    let (all, parts) = (exposed(1, "tp=4,sp=1,recompute=full"), exposed(4, "tp=4,sp=1,recompute=full"));
    assert!(parts < 0.5 * all && parts > 0.2 * all, "{parts} of {all}");
    // Sums of whole activations are not divided.
    let plain = "tp=4,recompute=full";
    assert!((exposed(4, plain) / exposed(1, plain) - 1.0).abs() < 1e-12);
}
