//! A training step of a model on many chips.

use std::path::Path;
use std::sync::Arc;

use crate::diagnostics::{Diagnostic, number};
use crate::import::{self, Checkpoint};
use crate::input::{self, Override};
use crate::model::{Activation, Architecture, ExpertLoad, Extras, Position, Storage, preset};
use crate::pod::{self, Detail, Job, Parallel, Stack, StageBlocks, Stragglers, System, TrainingStep};

/// What is run on which system.
#[derive(Debug, Clone)]
pub struct PodRequest<'a> {
    /// System file, or a built-in name.
    pub system: &'a Path,
    /// Overrides of the system file.
    pub sets: &'a [Override],
    /// A preset, or a `config.json`.
    pub model: &'a str,
    /// Decomposition, as `tp=8,pp=4`.
    pub parallel: &'a str,
    /// Software; the first of the system file if not given.
    pub stack: Option<&'a str>,
    /// Sequences of a step.
    pub batch: u64,
    /// Sequences of a micro-batch.
    pub micro_batch: u64,
    /// Tokens of a sequence; the model's if not given.
    pub sequence: Option<u64>,
    /// Share of the blocks of the layers' matrices that is pruned.
    pub sparsity: Option<f64>,
    /// Tokens of a sequence that have logits; all if not given.
    pub predicted: Option<u64>,
    /// Layers of each stage, as `1,3.5,4+3` (attention blocks + feed-forward blocks); equal shares if not given.
    pub stage_layers: Option<&'a str>,
    /// Every chip is simulated on its own, not a stage as one.
    pub flat: bool,
    /// How tokens fall on experts: a word or a file; at random if not given.
    pub expert_load: Option<&'a str>,
}

/// Most chips that are simulated one by one.
const MOST_FLAT: u64 = 64;

/// Simulates a step, and hands system, stack, job and step to `then`; `noted` hears what was chosen for the caller.
///
/// # Errors
/// Inputs that cannot be read, and a model that does not fit.
pub fn pod<T>(
    request: &PodRequest<'_>,
    noted: &mut dyn FnMut(&str),
    then: impl FnOnce(&System, &Stack, &Job, &TrainingStep) -> T,
) -> Result<T, Diagnostic> {
    let mut system = pod::open(request.system, request.sets)?;
    let parallel = Parallel::parse(request.parallel)?;
    let grown = system.grown(parallel.chips());
    if let Some((grown, _)) = &grown {
        system = grown.clone();
    }
    let stack = stack(&system, request.stack, noted)?;
    let TrainedModel { job, mut notes } = job(request, parallel)?;
    job.check()?;
    if !stack.kind.trains() {
        let title = format!("the stack {:?} is one of prefill and decode alone", stack.kind.name());
        return Err(Diagnostic::new(title).with_help("`--stack` names another one of the system file"));
    }
    let memory = pod::of_job(&job, stack.kind);
    if memory.peak() > system.chip_memory_bytes() {
        return Err(does_not_fit(&system, &job, stack));
    }
    let on_host = pod::of_host(&system, &job, stack.kind);
    if on_host > system.host.memory_bytes {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let title = format!(
            "{}: what the chips of one host keep with it is {:.1} GiB, its memory {:.1}",
            job.model,
            gib(on_host),
            gib(system.host.memory_bytes)
        );
        let fallback = "use zero=1 or more chips, or leave `offload` out";
        return Err(Diagnostic::new(title).with_help(what_fits(&system, &job, stack, fallback)));
    }
    if request.flat && job.parallel.chips() > MOST_FLAT {
        let title = format!("`--flat` is for at most {MOST_FLAT} chips, found {}", job.parallel.chips());
        return Err(Diagnostic::new(title).with_help("leave `--flat` out: the chips of a stage go in lockstep"));
    }
    let detail = if request.flat { Detail::Flat } else { Detail::Grouped };
    let mut step = pod::step(&system, stack, &job, detail)?;
    notes.extend(grown.map(|(_, note)| note));
    step.notes.extend(notes);
    Ok(then(&system, stack, &job, &step))
}

/// A step of training, and what every result of it is to say of the model.
pub(super) struct TrainedModel {
    pub(super) job: Job,
    pub(super) notes: Vec<String>,
}

pub(super) fn job(args: &PodRequest<'_>, parallel: Parallel) -> Result<TrainedModel, Diagnostic> {
    let Checkpoint { name: model, mut architecture, sequence: trained_with, positions, mut notes, .. } =
        trained(args.model)?;
    let expert_load = expert_load(args.expert_load, &architecture)?;
    let counts = [("--batch", args.batch), ("--micro-batch", args.micro_batch), ("--seq", args.sequence.unwrap_or(1))];
    if let Some((flag, count)) = counts.into_iter().find(|(_, count)| !(1..=1 << 24).contains(count)) {
        return Err(Diagnostic::new(format!("`{flag}` is {count}, expected a count from 1 to 2^24")));
    }
    let sequence = args.sequence.unwrap_or(trained_with);
    if let Position::Learned(rows) = architecture.position {
        architecture.position = Position::Learned(rows.max(sequence));
    }
    let density = density(args.sparsity)?;
    let stage_layers = args.stage_layers.map(stage_layers).transpose()?;
    let predicted = args.predicted;
    let (batch, micro_batch) = (args.batch, args.micro_batch);
    if sequence > positions {
        notes.push(format!(
            "sequences of {sequence} tokens are longer than the {positions} positions that the model takes"
        ));
    }
    let job = Job {
        model,
        architecture,
        parallel,
        batch,
        micro_batch,
        sequence,
        density,
        predicted,
        stage_layers,
        expert_load,
    };
    Ok(TrainedModel { job, notes })
}

/// How much longer chips compute: a distribution by its name, or a file of a share a line.
///
/// # Errors
/// A word that is none and no file, and a line that is no share.
pub fn stragglers(text: &str) -> Result<Stragglers, Diagnostic> {
    if let Some(known) = Stragglers::parse(text)? {
        return Ok(known);
    }
    let path = Path::new(text);
    if !path.exists() {
        let title =
            format!("`--stragglers {text}`: no such file, and none of `normal:DEVIATION` and `exponential:MEAN`");
        return Err(Diagnostic::new(title).with_help("a file has a share for each chip, one a line"));
    }
    let all =
        input::read_text(path).map_err(|why| Diagnostic::new(format!("cannot read `{}`: {why}", path.display())))?;
    let lines = (1..).zip(all.lines()).filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let shares = lines.map(|(number, line)| {
        let refused = || Diagnostic::new(format!("{}:{number}: found {line:?}, expected a share", path.display()));
        line.trim().parse::<f64>().map_err(|_| refused())
    });
    Stragglers::measured(&shares.collect::<Result<Vec<f64>, Diagnostic>>()?)
}

/// Layers of stages, as `1,3.5,3`.
pub(super) fn stage_layers(text: &str) -> Result<Arc<[StageBlocks]>, Diagnostic> {
    let number = |word: &str| {
        let expected = "a count of layers, or of attention blocks + feed-forward blocks";
        let refuse = || Diagnostic::new(format!("`--stage-layers`: found {word:?}, expected {expected}"));
        StageBlocks::read(word).ok_or_else(refuse)
    };
    text.split(',').map(number).collect()
}

/// The share of a matrix that `--sparsity` leaves.
pub(super) fn density(sparsity: Option<f64>) -> Result<Option<f64>, Diagnostic> {
    let density = sparsity.map(|share| {
        let kept = 1.0 - share;
        if kept > 0.0 && kept <= 1.0 {
            return Ok(kept);
        }
        Err(Diagnostic::new(format!("`--sparsity` is {}, expected a share from 0, below 1", number(share))))
    });
    density.transpose()
}

/// How tokens fall on the experts of a model.
pub(super) fn expert_load(given: Option<&str>, architecture: &Architecture) -> Result<ExpertLoad, Diagnostic> {
    let Some(text) = given else { return Ok(ExpertLoad::default()) };
    let load = import::expert_load(text)?;
    let Some(experts) = architecture.extras.experts else {
        let title = "`--expert-load` is for models with experts, and this one has none";
        return Err(Diagnostic::new(title).with_help("leave it out"));
    };
    match &load {
        ExpertLoad::Measured(counts) if counts.len() as u64 != experts.count => {
            let title =
                format!("`--expert-load` names a file of {} experts, the model has {}", counts.len(), experts.count);
            Err(Diagnostic::new(title).with_help("one number a line for each expert"))
        }
        _ => Ok(load),
    }
}

/// A model that is trained on many chips.
///
/// # Errors
/// A model without a training step.
pub(super) fn trained(name: &str) -> Result<Checkpoint, Diagnostic> {
    let found = model(name, true, true)?;
    if found.architecture.extras.mamba.is_some() {
        let title = format!("{} has Mamba-2 layers and cannot be trained: scans have no gradient here", found.name);
        return Err(Diagnostic::new(title).with_help("`--phase prefill`, `decode` and `requests` serve it"));
    }
    Ok(found)
}

/// A model that is served on many chips.
///
/// # Errors
/// A model without tokens to generate.
pub(super) fn served(name: &str, keeps_experts: bool) -> Result<Checkpoint, Diagnostic> {
    let found = model(name, keeps_experts, false)?;
    if found.architecture.extras.patches.is_some() {
        let title = format!("{} is a model of images: it has no tokens to generate", found.name);
        return Err(Diagnostic::new(title).with_help("`--phase training` trains it"));
    }
    pod::check_served_layers(&found.name, &found.architecture)?;
    Ok(found)
}

/// A preset, or the model of a config.json. Experts are refused, or in a config.json taken as one block, unless they are kept.
pub(super) fn model(name: &str, keeps_experts: bool, is_trained: bool) -> Result<Checkpoint, Diagnostic> {
    let is_file = Path::new(name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    if is_file || import::published(Path::new(name)).is_some() {
        let found = import::checkpoint(Path::new(name), keeps_experts || !is_trained, is_trained)?;
        if !found.is_whole && is_trained {
            let what = "layers of kinds that have no gradients here";
            return Err(not_on_many_chips(name, &found.name, what));
        }
        let is_layered = found.stack.is_some() && !is_trained;
        if let Some(part) = not_modelled(&found.architecture, is_trained).filter(|_| !is_layered) {
            return Err(not_on_many_chips(name, &found.name, part));
        }
        return Ok(found);
    }
    let name = name.to_ascii_lowercase();
    if matches!(name.as_str(), "gpt" | "llama") {
        let title = format!("{name:?} is a family of models: it has no dimensions");
        return Err(Diagnostic::new(title).with_help("name a model of the family, or give a config.json"));
    }
    let (architecture, sequence) = preset(&name)?;
    if architecture.extras.experts.is_some() && !keeps_experts {
        let title = format!("{name} has experts, which are modelled on GPUs alone");
        return Err(Diagnostic::new(title).with_help("name another model, or a system of GPUs such as dgx-a100"));
    }
    let (storage, notes) = (Storage::default(), Vec::new());
    // Of a preset that is trained, the sequence is the caller's to choose.
    let positions = if is_trained { u64::MAX } else { sequence };
    let (is_whole, stack) = (true, None);
    Ok(Checkpoint { name, architecture, is_whole, stack, sequence, positions, storage, activations: None, notes })
}

/// A model whose layers may be a library's kernels: latent attention and experts beside layers without are served too.
pub(super) fn served_model(name: &str) -> Result<Checkpoint, Diagnostic> {
    if !Path::new(name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")) {
        return model(name, true, false);
    }
    let found = import::checkpoint(Path::new(name), true, false)?;
    let plain = Extras { latent: None, ..found.architecture.extras };
    match not_modelled(&Architecture { extras: plain, ..found.architecture }, false) {
        Some(part) => Err(not_on_many_chips(name, &found.name, part)),
        None => Ok(found),
    }
}

/// The part of a model that is not modelled on many chips; serving has graphs of layers, training has lists of kernels too.
fn not_modelled(architecture: &Architecture, is_trained: bool) -> Option<&'static str> {
    let extras = architecture.extras;
    if extras.mamba.is_some() && extras.experts.is_some() {
        return Some("experts beside Mamba-2 layers");
    }
    let mut usual = Extras { experts: None, mamba: None, head_width: None, attention_bias: false, ..extras };
    let mut activation = architecture.activation;
    if !is_trained {
        usual = Extras { head_norm: false, branch_norm: false, capped_scores: false, ..usual };
        activation = Activation::Gelu;
    }
    Architecture { activation, extras: usual, ..*architecture }.unusual()
}

fn not_on_many_chips(asked: &str, model: &str, part: &str) -> Diagnostic {
    let title = format!("`--model {asked}`: {model} has {part}, which are not modelled on many chips yet");
    Diagnostic::new(title).with_help("`rdusim compare --workload` runs it on one chip")
}

/// The stack that was named, else the first of the system file, and a note says so: what a step costs depends on its
/// software.
pub(super) fn stack<'s>(
    system: &'s System,
    name: Option<&str>,
    noted: &mut dyn FnMut(&str),
) -> Result<&'s Stack, Diagnostic> {
    let names = || system.stacks.iter().map(|stack| stack.kind.name()).collect::<Vec<_>>().join(", ");
    let name = name.unwrap_or_else(|| {
        let first = system.stacks.first().map_or("", |stack| stack.kind.name());
        noted(&format!("no `--stack`: {first}, the first that {} has of {}", system.name, names()));
        first
    });
    system.stacks.iter().find(|stack| stack.kind.name() == name).ok_or_else(|| {
        Diagnostic::new(format!("{} has no stack {name:?}", system.name)).with_help(format!("it has {}", names()))
    })
}

fn does_not_fit(system: &System, job: &Job, stack: &Stack) -> Diagnostic {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let memory = pod::of_job(job, stack.kind);
    let title = format!(
        "{} does not fit: stage {} needs {:.1} GiB a chip (weights {:.1}, gradients {:.1}, optimiser {:.1}, activations \
         {:.1}, buffers {:.1}), {} has {:.1}",
        job.model,
        memory.stage,
        gib(memory.peak()),
        gib(memory.weights),
        gib(memory.gradients),
        gib(memory.optimizer),
        gib(memory.activations),
        gib(memory.buffers),
        system.chip.device().name(),
        gib(system.chip_memory_bytes())
    );
    let fallback = "no change of one key makes it fit: use more stages or tensor ranks";
    Diagnostic::new(title).with_help(what_fits(system, job, stack, fallback))
}

/// The changes that make a step fit, or other advice where none does.
fn what_fits(system: &System, job: &Job, stack: &Stack, fallback: &str) -> String {
    let remedies = pod::remedies(system, job, stack.kind);
    if remedies.is_empty() {
        return fallback.to_owned();
    }
    // What a step on tiles holds is known when its stages are laid out.
    let memory = if system.chip.bsp().is_some() { " the memory beside the tiles" } else { "" };
    format!("what makes it fit{memory}, the cheapest first: {}", remedies.join("; "))
}
