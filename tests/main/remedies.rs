//! Remedies of steps that do not fit: what each says is off is off, and with it the step fits in the bytes that it says.

use rdusim::model::preset;
use rdusim::pod::{Job, Parallel, StackKind, of_job, remedies};

use crate::small_pods::{self, system};

/// The job that a remedy asks for, and whether all that it changes was otherwise before.
fn with(job: &Job, parallel: &str, remedy: &str) -> (Job, bool) {
    let (changes, _) = remedy.rsplit_once(": ").expect("GiB behind a colon");
    let words: Vec<&str> = changes.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let (mut keys, mut changed, mut job) = (parallel.to_owned(), true, job.clone());
    for (at, word) in words.iter().enumerate() {
        if let Some((key, _)) = word.split_once('=') {
            let kept = keys.split(',').filter(|old| old.split_once('=').is_none_or(|(old, _)| old != key));
            let next = kept.chain([*word]).collect::<Vec<_>>().join(",");
            let parsed = |text: &str| Parallel::parse(text).expect("a decomposition");
            changed &= parsed(&next) != parsed(&keys);
            keys = next;
        } else if *word == "--micro-batch" {
            let micro = words[at + 1].parse().expect("a number");
            changed &= micro != job.micro_batch;
            job.micro_batch = micro;
        }
    }
    job.parallel = Parallel::parse(&keys).expect("a decomposition");
    (job, changed)
}

#[test]
fn what_a_remedy_changes_was_otherwise_and_makes_it_fit() {
    let system = system("dgx-a100");
    let (mut told, mut several) = (0, 0);
    let decompositions = [
        "tp=8",
        "tp=8,sp=1",
        "tp=8,sp=1,recompute=full",
        "tp=4,sp=1,recompute=full",
        "tp=1,recompute=full",
        "tp=2,dp=2,zero=1,recompute=full",
        "tp=4,dp=4,zero=1,sp=1,recompute=full",
        "tp=8,dp=2,zero=3,recompute=selective",
        "tp=8,pp=2,schedule=gpipe",
        "pp=8,recompute=full",
    ];
    for model in ["llama2-7b", "llama2-70b", "gpt3-175b"] {
        for parallel in decompositions {
            for micro_batch in [1, 2] {
                let (architecture, sequence) = preset(model).expect("a preset");
                let job = Job { architecture, sequence, micro_batch, ..small_pods::job(parallel, 64, 16, 1024) };
                for remedy in remedies(&system, &job, StackKind::Megatron) {
                    let (fixed, changed) = with(&job, parallel, &remedy);
                    assert!(changed, "{model} with {parallel}, {micro_batch}: {remedy} is on already");
                    let gib = of_job(&fixed, StackKind::Megatron).peak() as f64 / f64::from(1 << 30);
                    assert!(fixed.check().is_ok() && gib < 80.0, "{model} with {parallel}: {remedy}: {gib}");
                    assert!(remedy.ends_with(&format!(": {gib:.1} GiB")), "{model} with {parallel}: {remedy}: {gib}");
                    told += 1;
                    several += usize::from(remedy.contains("times the chips) together"));
                }
            }
        }
    }
    assert!(told > 100 && several > 2, "{told} {several}");
}
