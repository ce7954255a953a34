use std::collections::BTreeSet;
use std::path::Path;

use super::super::parallel::Parallel;
use super::super::system::{Stack, StackKind, System};
use super::super::training::step;
use super::*;
use crate::{dgx_a100, open};
use rdusim_models::model::{Architecture, ExpertLoad, preset};

fn base(batch: u64, parallel: &str) -> Job {
    let (gpt, _) = preset("gpt2-medium").expect("a preset");
    let architecture = Architecture { layers: 8, ..gpt };
    let parallel = Parallel::parse(parallel).expect("a decomposition");
    Job {
        model: "small".into(),
        architecture,
        parallel,
        batch,
        micro_batch: 1,
        sequence: 1024,
        density: None,
        predicted: None,
        stage_layers: None,
        expert_load: ExpertLoad::default(),
    }
}

fn stack(system: &System, kind: StackKind) -> &Stack {
    system.stacks.iter().find(|stack| stack.kind == kind).expect("a stack")
}

/// Every candidate's bound and step; the best ten keys of all.
fn exhaustive(of: &Search<'_>) -> Vec<Key> {
    let capacity = of.system.chip_memory_bytes();
    let jobs = of.candidates().expect("not too many");
    let fitting: Vec<&Job> = jobs.iter().filter(|job| memory::of_job(job, of.stack.kind).peak() <= capacity).collect();
    let mut bounds = Bounds::new(of);
    bounds.prepare(&fitting, false);
    bounds.prepare(&fitting, true);
    let mut keys = Vec::new();
    for job in &fitting {
        let found = step(of.system, of.stack, job, Detail::Grouped);
        // What a tile holds in each of its steps is known when they are laid out.
        if found.is_err() && of.system.chip.bsp().is_some() {
            continue;
        }
        let found = found.expect("a step");
        let seconds = found.step_s;
        for exposed in [false, true] {
            let bound = bounds.seconds(job, exposed).expect("a bound");
            assert!(bound <= seconds, "{:?}, {}: {bound} above {seconds}", job.parallel, job.micro_batch);
            let joules = bounds.joules(job, bound, exposed);
            assert!(joules > 0.0 && joules <= found.energy_j, "{:?}: {joules} {}", job.parallel, found.energy_j);
        }
        if of.objective.allows(seconds) {
            keys.push(of.objective.key(job.parallel.chips(), seconds, found.energy_j));
        }
    }
    keys.sort_unstable();
    keys.truncate(BEST);
    keys
}

#[test]
fn a_search_finds_what_trying_everything_finds() {
    let system = dgx_a100(&[]).expect("the shipped system");
    let none: &[&str] = &[];
    let cases = [
        (8, 16, StackKind::Megatron, Objective::Time, "tp=1", none),
        (16, 32, StackKind::Flash, Objective::Time, "recompute=none", &["recompute"][..]),
        (8, 8, StackKind::Megatron, Objective::TokensPerChip, "tp=1", none),
        (8, 8, StackKind::Flash, Objective::Energy, "recompute=none,sp=0", &["recompute", "sp"][..]),
        (16, 16, StackKind::Flash, Objective::Chips(0.05), "sp=0,zero=1", &["sp", "zero"][..]),
    ];
    for (chips, batch, kind, objective, parallel, fixed) in cases {
        let fixed: BTreeSet<String> = fixed.iter().map(|key| (*key).to_owned()).collect();
        let of = Search {
            system: &system,
            stack: stack(&system, kind),
            base: base(batch, parallel),
            fixed,
            chips,
            objective,
        };
        let expected = exhaustive(&of);
        assert_eq!(expected.len(), BEST, "{objective:?}");
        let found = search(&of, &mut |_, _| ()).expect("a result");
        let keys: Vec<Key> = found
            .best
            .iter()
            .map(|best| {
                let joules = step(of.system, of.stack, &best.job, Detail::Grouped).expect("a step").energy_j;
                objective.key(best.job.parallel.chips(), best.step_s.expect("simulated"), joules)
            })
            .collect();
        assert_eq!(keys, expected, "{objective:?}");
        assert!(found.counts.simulated < found.counts.fit, "{:?}", found.counts);
        let same = search(&of, &mut |_, _| ()).expect("a result");
        let decided =
            |found: &Found| found.best.iter().map(|best| (best.job.parallel, best.why.clone())).collect::<Vec<_>>();
        assert_eq!(decided(&same), decided(&found));
    }
}

/// On chips of tiles too, where layers have a time that no stage goes below.
#[test]
fn a_search_on_tiles_finds_what_trying_everything_finds() {
    let system = open(Path::new("ipu-pod16"), &[]).expect("a built-in system");
    let base = base(8, "zero=1,tp=1");
    let architecture = Architecture { layers: 4, ..base.architecture };
    let fixed: BTreeSet<String> = ["zero", "tp"].map(str::to_owned).into_iter().collect();
    let base = Job { architecture, ..base };
    let stack = stack(&system, StackKind::Popart);
    let of = Search { system: &system, stack, base, fixed, chips: 4, objective: Objective::Time };
    let found = search(&of, &mut |_, _| ()).expect("a result");
    let keys: Vec<Key> = found.best.iter().map(|best| Key(best.step_s.expect("simulated"), 0.0)).collect();
    assert_eq!(keys, exhaustive(&of));
    assert!(found.counts.simulated < found.counts.fit, "{:?}", found.counts);
}

#[test]
fn what_is_fixed_stays_and_what_loses_says_why() {
    let system = dgx_a100(&[]).expect("the shipped system");
    let (gpt, _) = preset("gpt-13b").expect("a preset");
    let fixed = ["recompute", "micro_batch", "schedule"].map(str::to_owned).into_iter().collect();
    let of = Search {
        system: &system,
        stack: stack(&system, StackKind::Megatron),
        base: Job { architecture: gpt, sequence: 2048, ..base(16, "recompute=none") },
        fixed,
        chips: 8,
        objective: Objective::Time,
    };
    let found = search(&of, &mut |_, _| ()).expect("a result");
    let all = found.best.iter().chain(&found.others);
    assert!(all.clone().all(|of| of.job.micro_batch == 1 && of.job.parallel.recompute.name() == "none"));
    assert!(all.clone().all(|of| of.fits == (of.peak <= system.chip_memory_bytes())));
    // 13 B parameters with 16 bytes each fit one chip of 80 GiB in no way but divided.
    let alone = all.clone().find(|of| of.job.parallel.dp == 8).expect("the shape is listed");
    assert!(!alone.fits || alone.job.parallel.zero >= 2, "{:?}: {}", alone.job.parallel, alone.why);
    assert!(all.skip(1).all(|of| !of.why.is_empty()));
}
