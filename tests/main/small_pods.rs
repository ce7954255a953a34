//! A small model on shipped systems: what the tests of training steps share.

use std::path::Path;

use rdusim::model::{Architecture, ExpertLoad, preset};
use rdusim::pod::{Job, Parallel, Stack, StackKind, System, open};

pub(crate) fn system(name: &str) -> System {
    open(Path::new(&format!("arch/systems/{name}.toml")), &[]).expect("a shipped system")
}

pub(crate) fn stack(system: &System, kind: StackKind) -> &Stack {
    system.stacks.iter().find(|stack| stack.kind == kind).expect("a stack")
}

/// So many layers of GPT-2's second size, divided as `--parallel` says.
pub(crate) fn job(parallel: &str, batch: u64, layers: u64, sequence: u64) -> Job {
    let (gpt, _) = preset("gpt2-medium").expect("a preset");
    let architecture = Architecture { layers, ..gpt };
    let parallel = Parallel::parse(parallel).expect("a decomposition");
    let (density, predicted, stage_layers) = (None, None, None);
    Job {
        model: "small".into(),
        architecture,
        parallel,
        batch,
        micro_batch: 1,
        sequence,
        density,
        predicted,
        stage_layers,
        expert_load: ExpertLoad::default(),
    }
}
