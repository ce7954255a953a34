//! A model on one GPU: `run` and `pod` time the same kernels.

use rdusim::arch::AnyChip;
use rdusim::mode::Mode;
use rdusim::model::{Options, Phase, preset, write};
use rdusim::pod::{Load, serve};
use rdusim::{gpu, workload};

use crate::serving::{service, serving, system};

const USERS: u64 = 32;
const CONTEXT: u64 = 1024;

/// Seconds of a decode step in `run` (a captured graph) and of the kernels of the same step on a system's one chip.
fn both(system_name: &str, model: &str, users: u64) -> [f64; 2] {
    let system = system(system_name);
    let AnyChip::Gpu(gpu) = &system.chip else { panic!("{system_name} is of GPUs") };
    let (architecture, _) = preset(model).expect("a preset");
    let text = write(&Options::new(model, architecture, Phase::Decode, users, CONTEXT)).expect("a workload");
    let workload = workload::parse(model, &text, &[], 0).expect("a graph");
    let outcome = gpu::run(gpu, &workload, &[Mode::Fused]).expect("an outcome").remove(0);
    let alone = outcome.cycles as f64 / gpu.clock_hz as f64;
    let service = service(model, "tp=1");
    let load = Load::filling(&service.parallel, users, CONTEXT);
    let served = serve(&system, serving(&system), &service, &load, Phase::Decode, None).expect("a batch");
    let time = served.decode.time;
    // What a pod adds is the host, which is told apart.
    let host = time.sum() - time.compute;
    assert!((host - time.other).abs() < 1e-12 && time.other > 0.0, "{time:?}");
    [alone, time.compute]
}

#[test]
fn a_run_of_a_decode_step_takes_as_long_as_a_pod_of_one_chip() {
    for system in ["dgx-a100", "dgx-h100"] {
        for (model, users) in [
            ("llama3-8b", USERS),
            ("llama3-8b", 1),
            ("llama2-7b", 8),
            ("mistral-7b", USERS),
            ("gpt2", USERS),
            ("gpt2-xl", 1),
        ] {
            let [alone, served] = both(system, model, users);
            assert!(
                (alone / served - 1.0).abs() < 1e-9,
                "{model} on {system}, {users} users: {alone} s and {served} s"
            );
        }
    }
}
