//! Measured collectives and training steps as cases of a system.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::line::Line;
use super::run::{SetPart, SetRow};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::units::Dtype;
use rdusim_models::model::{Architecture, ExpertLoad, Position, preset};
use rdusim_pod::{
    Algorithm, Call, CollectiveKind, Detail, Job, Network, Parallel, Planned, Recompute, StackKind, StageBlocks,
    System, Tiled, plan, step,
};

/// Names of the kinds.
pub(super) const COLLECTIVES: &str = "collectives";
pub(super) const TRAINING: &str = "training-steps";
/// Steps of a preset on a system of chips of tiles.
pub(super) const PRETRAINING: &str = "pretraining-steps";

/// Bytes from which a message is a large one.
const LARGE_BYTES: u64 = 1 << 20;

/// Whether cases of a kind are of a system.
pub(super) fn is_of_systems(kind: &str) -> bool {
    matches!(kind, COLLECTIVES | TRAINING | PRETRAINING)
}

/// A case in words, and its seconds.
pub(super) fn simulated(kind: &str, line: &Line, system: &System) -> Result<(String, f64), Diagnostic> {
    match kind {
        PRETRAINING => pretraining(line, system),
        _ => training(line, system),
    }
}

/// What tells the parts of a set apart: bytes of a message; tensor ranks of a step.
pub(super) fn feature(kind: &str, line: &Line) -> Result<u64, Diagnostic> {
    if kind == COLLECTIVES { Ok(line.count("message_size")? * line.dtype()?.bytes()) } else { line.count("tp") }
}

/// A collective in words, and its seconds; an error says why the system has no such collective.
///
/// # Errors
/// A cell that cannot be read.
pub(super) fn collective(line: &Line, system: &System) -> Result<(String, Result<f64, Diagnostic>), Diagnostic> {
    let found = line.text("collective");
    let gpus = line.count("gpus")?;
    let bytes = line.count("message_size")? * line.dtype()?.bytes();
    let label = format!("{found} {bytes} B on {gpus}");
    let planned = planned(line, system, gpus, bytes);
    let label = match &planned {
        Ok((library, planned)) => format!("{label}, {library} {}", planned.protocol),
        Err(_) => label,
    };
    Ok((label, planned.map(|(_, planned)| planned.seconds)))
}

/// The library of a line, and its fastest protocol.
fn planned(line: &Line, system: &System, gpus: u64, bytes: u64) -> Result<(&'static str, Planned), Diagnostic> {
    let found = line.text("collective");
    let kinds = CollectiveKind::NAMES;
    let names = kinds.map(|(name, _)| name).join(", ");
    // As nccl-tests call it too.
    let known = if found == "alltoall" { "all_to_all" } else { found };
    let kind = kinds.iter().find(|(name, _)| *name == known).ok_or_else(|| line.error("collective", found, &names))?.1;
    let library = line.text("library");
    let library = if library.starts_with("trtllm") {
        "trtllm"
    } else if library.is_empty() || library.starts_with("nccl") {
        "nccl"
    } else {
        return Err(line.error("library", library, "nccl ... or trtllm ..."));
    };
    if gpus > system.most_chips() {
        return Err(line.error("gpus", line.text("gpus"), &format!("at most {}", system.most_chips())));
    }
    let groups = [(0..gpus).collect::<Vec<u64>>()];
    let call = Call { kind, groups: &groups, bytes };
    Ok((library, plan(&Network::new(system), &system.protocols, library, None::<Algorithm>, &call)?))
}

/// A step of a preset as the vendors of chips of tiles run it: layers computed again, plain 1F1B, the optimiser's state divided
/// over the replicas, the stages of a replica on neighbours.
fn pretraining(line: &Line, system: &System) -> Result<(String, f64), Diagnostic> {
    let count = |column: &str| line.count(column);
    let model = line.text("model");
    let (architecture, _) = preset(model).map_err(|error| line.error("model", model, error.title()))?;
    let (tp, pp, dp) = (count("tp")?, count("pp")?, count("dp")?);
    let mut tiled = Tiled::default();
    for (column, expected) in [("memory_share", "a share from 0.01 to 1"), ("score_dropout", "0 or 1")] {
        let found = line.text(column);
        if !found.is_empty() && !tiled.read(column, found) {
            return Err(line.error(column, found, expected));
        }
    }
    let (recompute, zero) = (Recompute::Full, 1);
    let parallel = Parallel { tp, pp, dp, recompute, zero, stages_adjacent: true, tiled, ..Parallel::default() };
    let micro_batch = count("micro_batch")?;
    let number = |word: &str| {
        let expected = "counts of layers, or of attention blocks + feed-forward blocks, a space between them";
        StageBlocks::read(word).ok_or_else(|| line.error("stage_layers", word, expected))
    };
    let list = line.text("stage_layers").split_whitespace().map(number).collect::<Result<Arc<[StageBlocks]>, _>>()?;
    let job = Job {
        model: model.to_owned(),
        architecture,
        parallel,
        batch: count("accumulation")? * dp * micro_batch,
        micro_batch,
        sequence: count("seq")?,
        density: None,
        predicted: if line.text("predicted_tokens").is_empty() { None } else { Some(count("predicted_tokens")?) },
        stage_layers: (!list.is_empty()).then_some(list),
        expert_load: ExpertLoad::default(),
    };
    let title = |error: &Diagnostic| Diagnostic::new(format!("{}:{}: {}", line.path, line.number, error.title()));
    job.check().map_err(|error| title(&error))?;
    let stack = system.stacks.iter().find(|stack| stack.kind.trains());
    let stack = stack.ok_or_else(|| Diagnostic::new(format!("{} has no stack that trains", system.name)))?;
    let step = step(system, stack, &job, Detail::Grouped).map_err(|error| title(&error))?;
    let label = format!(
        "{model}, tp {tp} pp {pp} dp {dp}, {} x {micro_batch} on {}",
        job.micro_batches(),
        system.chip.device().name()
    );
    Ok((label, step.step_s))
}

/// A measured step.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    job: Job,
}

/// The step of a line.
pub(super) fn measured(line: &Line) -> Result<Measured, Diagnostic> {
    let count = |column: &str| line.count(column);
    let (hidden, sequence) = (count("hidden")?, count("seq")?);
    let (gpt, _) = preset("gpt")?;
    let heads = count("heads")?;
    let architecture = Architecture {
        hidden,
        layers: count("layers")?,
        heads,
        kv_heads: heads,
        feed_forward: 4 * hidden,
        vocabulary: VOCABULARY,
        position: Position::Learned(sequence),
        ..gpt
    };
    // Megatron-DeepSpeed: layers are computed again, plain 1F1B.
    let (tp, pp, dp) = (count("tp")?, count("pp")?, count("dp")?);
    let parallel = Parallel { tp, pp, dp, recompute: Recompute::Full, ..Parallel::default() };
    if parallel.chips() != count("gpus")? {
        return Err(line.error("gpus", line.text("gpus"), &format!("tp x pp x dp = {}", parallel.chips())));
    }
    let (batch, micro_batch) = (count("global_batch")?, count("micro_batch")?);
    let job = Job {
        model: "gpt".to_owned(),
        architecture,
        parallel,
        batch,
        micro_batch,
        sequence,
        density: None,
        predicted: None,
        stage_layers: None,
        expert_load: ExpertLoad::default(),
    };
    job.check().map_err(|error| Diagnostic::new(format!("{}:{}: {}", line.path, line.number, error.title())))?;
    Ok(Measured { job })
}

fn training(line: &Line, system: &System) -> Result<(String, f64), Diagnostic> {
    let Measured { job } = measured(line)?;
    let seconds = seconds(system, &job)?;
    let (a, p) = (&job.architecture, &job.parallel);
    let label = format!(
        "hidden {}, {} layers, tp {} dp {} pp {}, {} by {}",
        a.hidden, a.layers, p.tp, p.dp, p.pp, job.batch, job.micro_batch
    );
    Ok((label, seconds))
}

fn seconds(system: &System, job: &Job) -> Result<f64, Diagnostic> {
    let stack = system
        .stacks
        .iter()
        .find(|stack| stack.kind == StackKind::Megatron)
        .ok_or_else(|| Diagnostic::new(format!("{} has no stack {:?}", system.name, StackKind::Megatron.name())))?;
    step(system, stack, job, Detail::Grouped).map(|step| step.step_s)
}

/// A change that takes one term of the model away.
type Ablation = (&'static str, fn(&mut System, &mut Job));

const ABLATIONS: [Ablation; 8] = [
    ("without links within a node", |system, _| {
        system.levels[0].link_gb_per_s *= 1e3;
        within_free(system);
    }),
    ("without links between nodes", |system, _| {
        let last = system.levels.len() - 1;
        (system.levels[last].link_gb_per_s, system.levels[last].message_us) = (1e4, 0.0);
    }),
    ("without the host", |system, _| {
        for stack in &mut system.stacks {
            (stack.host_us, stack.backward_host_us) = (0.0, 0.0);
        }
    }),
    ("with one host time for both passes", |system, _| {
        for stack in &mut system.stacks {
            let mean = f64::midpoint(stack.host_us, stack.backward_host_us);
            (stack.host_us, stack.backward_host_us) = (mean, mean);
        }
    }),
    ("without the kernels' factor", |system, _| {
        system.stacks.iter_mut().for_each(|stack| stack.kernel_factor = 1.0);
    }),
    ("without embedding and logits", |_, job| job.architecture.vocabulary = job.parallel.tp),
    ("with transfers beside computing", |system, _| {
        system.stacks.iter_mut().for_each(|stack| stack.blocking = false);
    }),
    ("with whole activations sent", |system, _| {
        system.stacks.iter_mut().for_each(|stack| stack.scatter_gather = false);
    }),
];

/// Collectives within a node take no time of their own either.
fn within_free(system: &mut System) {
    for protocol in &mut system.protocols {
        protocol.base_us = 0.0;
        protocol.step_us[0] = 0.0;
    }
}

/// What a closed form with three constants predicts: FLOP of all products over a share of the chips' peak, times
/// 1 + (p - 1) / m; gradients over the links between nodes, or within one; and no less than a time of the host for each
/// layer and micro-batch. The constants are fitted to the odd lines by coordinate descent.
fn closed_form(system: &System, steps: &[Measured], published: &[f64]) -> Vec<f64> {
    let peak = system.chip.device().peak_flops(Dtype::Bf16).unwrap_or(f64::INFINITY);
    let last = system.levels.len() - 1;
    let of_node: u64 = system.levels[..last].iter().map(|level| level.members).product();
    let predict = |[efficiency, between, host]: [f64; 3], Measured { job }: &Measured| {
        let p = &job.parallel;
        let (pp, micro) = (p.pp as f64, job.micro_batches() as f64);
        let flops = (3.0 * job.forward_flops() + job.recomputed_flops()) * job.batch as f64;
        let filled = 1.0 + (pp - 1.0) / micro;
        let computing = flops / (p.chips() as f64 * peak * efficiency) * filled;
        let launching = host * 1e-3 * job.architecture.layers as f64 / pp * micro * filled;
        let gradients = 2.0 * job.stage_parameters(0) as f64 * 2.0 * (p.dp as f64 - 1.0) / p.dp as f64;
        // The ranks of a node share its links.
        let crosses = p.tp * p.dp > of_node;
        let rate = if crosses { between / p.tp.min(of_node) as f64 } else { system.levels[0].member_gb_per_s() };
        computing.max(launching) + gradients / (rate * 1e9)
    };
    let loss = |constants: [f64; 3]| {
        let odd = steps.iter().zip(published).step_by(2);
        let errors: Vec<f64> =
            odd.map(|(step, published)| (predict(constants, step) * 1e6 / published - 1.0).abs()).collect();
        errors.iter().sum::<f64>() / errors.len().max(1) as f64
    };
    let mut best = [0.45, 50.0, 3.0];
    let (mut least, mut factor) = (loss(best), 1.2_f64);
    while factor > 1.002 {
        let before = least;
        for at in 0..3 {
            for change in [factor, 1.0 / factor] {
                let mut tried = best;
                tried[at] *= change;
                let found = loss(tried);
                if found < least {
                    (best, least) = (tried, found);
                }
            }
        }
        if least >= before {
            factor = factor.sqrt();
        }
    }
    steps.iter().map(|step| predict(best, step) * 1e6).collect()
}

/// Lines of a model, on as many chips with the same batch, that are told apart by their decompositions.
type Choice = (u64, u64, u64, u64, u64);

/// The lines of each model with at least three decompositions: whether they are put in order, and how good the one is that is
/// simulated as the fastest.
pub(super) fn of_models(steps: &[Measured], rows: &[SetRow]) -> Vec<SetPart> {
    let choice = |Measured { job }: &Measured| -> Choice {
        let a = &job.architecture;
        (a.hidden, a.layers, job.sequence, job.parallel.chips(), job.batch)
    };
    let mut counts: BTreeMap<Choice, usize> = BTreeMap::new();
    for step in steps {
        *counts.entry(choice(step)).or_default() += 1;
    }
    let models = counts.into_iter().filter(|(_, lines)| *lines >= LEAST_CHOICES);
    let part = |(model, _): (Choice, usize)| {
        let (hidden, layers, _, chips, batch) = model;
        let name = format!("hidden {hidden}, {layers} layers, batch {batch} on {chips} chips");
        SetPart::choices(&name, rows, |i, _| choice(&steps[i]) == model)
    };
    models.filter_map(part).collect()
}

/// Lines of a model from which their order means something.
const LEAST_CHOICES: usize = 3;

/// The even lines as a closed form predicts them, and with one term after the other taken away.
pub(super) fn compared(system: &System, steps: &[Measured], rows: &[SetRow]) -> Result<Vec<SetPart>, Diagnostic> {
    let published: Vec<f64> = rows.iter().map(|row| row.published).collect();
    let of = |name: &str, simulated: &[f64], odd: bool| {
        let rows: Vec<SetRow> =
            rows.iter().zip(simulated).map(|(row, &simulated)| SetRow { simulated, ..row.clone() }).collect();
        SetPart::new(name, &rows, |i, _| i.is_multiple_of(2) == odd && steps[i].job.parallel.tp <= MOST_TENSOR)
    };
    let closed = closed_form(system, steps, &published);
    let mut list = vec![
        of("closed form with 3 constants, odd", &closed, true),
        of("closed form with 3 constants, even", &closed, false),
    ];
    for (name, change) in ABLATIONS {
        let without = |step: &Measured| -> Result<f64, Diagnostic> {
            let (mut system, mut job) = (system.clone(), step.job.clone());
            change(&mut system, &mut job);
            Ok(seconds(&system, &job)? * 1e6)
        };
        let times: Vec<f64> = steps.iter().map(without).collect::<Result<_, _>>()?;
        list.push(of(&format!("even, {name}"), &times, false));
    }
    Ok(list.into_iter().flatten().collect())
}

/// Most tensor ranks of the lines that errors are aimed at: those of a node.
const MOST_TENSOR: u64 = 8;

/// Rows of the token table of the measured models, assumed by those who measured.
const VOCABULARY: u64 = 51_200;

/// Odd lines, which constants were fitted to, and even lines, which were predicted; and those that targets are set for.
pub(super) fn parts(rows: &[SetRow], features: &[u64]) -> Vec<SetPart> {
    let is_collective = rows.first().is_some_and(|row| row.label.contains(" B on "));
    let half = |i: usize, odd: bool| i.is_multiple_of(2) == odd;
    let large = |i: usize| features[i] > LARGE_BYTES;
    let mut list = vec![
        SetPart::new("odd lines", rows, |i, _| half(i, true)),
        SetPart::new("even lines", rows, |i, _| half(i, false)),
    ];
    if is_collective {
        list.extend([
            SetPart::new("even lines above 1 MiB", rows, |i, _| half(i, false) && large(i)),
            SetPart::new("even lines up to 1 MiB", rows, |i, _| half(i, false) && !large(i)),
        ]);
    } else if features.iter().any(|&tp| tp > 8) {
        list.extend([
            SetPart::new("odd lines, tp <= 8", rows, |i, _| half(i, true) && features[i] <= 8),
            SetPart::new("even lines, tp <= 8", rows, |i, _| half(i, false) && features[i] <= 8),
        ]);
    }
    list.into_iter().flatten().collect()
}
