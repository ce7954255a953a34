//! Prefill and decode of a model on many chips.

use std::path::Path;
use std::sync::Arc;

use super::pod::{density, expert_load, served};
use crate::arch;
use crate::diagnostics::Diagnostic;
use crate::gpu::ProductFormat;
use crate::import::Checkpoint;
use crate::input::Override;
use crate::model::{Architecture, ExpertLoad, Phase, Position, StorageFormat};
use crate::pod::{
    self, ExpertRanks, Grid, Load, Mixture, Parallel, Policy, Served, Service, Speculation, Stack, StackKind, Streamed,
    System, Trace, serve, serving_memory, serving_remedies,
};
use crate::units::Dtype;

/// What is served on which system.
#[derive(Debug, Clone)]
pub struct ServingRequest<'a> {
    /// System file, or a built-in name.
    pub system: &'a Path,
    /// Overrides of the system file.
    pub sets: &'a [Override],
    /// A preset, or a `config.json`.
    pub model: &'a str,
    /// Decomposition, as `tp=8,pp=2`.
    pub parallel: &'a str,
    /// Software; `serving`, or else the first of the system file that serves, if not given.
    pub stack: Option<&'a str>,
    /// Prefill or decode.
    pub phase: Phase,
    /// Users.
    pub batch: u64,
    /// Users of a replica that go through a stage together; if not given, so many that every stage has some.
    pub micro_batch: Option<u64>,
    /// Tokens of a prompt, or of a context; the model's sequence if not given.
    pub sequence: Option<u64>,
    /// Share of the blocks of the layers' matrices that is pruned.
    pub sparsity: Option<f64>,
    /// A model that drafts tokens, which the other verifies.
    pub draft: Option<DraftRequest<'a>>,
    /// Format of the layers' products, as `fp8` or `nvfp4`; what the checkpoint says if not given.
    pub dtype: Option<&'a str>,
    /// Format of keys and values, as `fp8_e4m3`; what the checkpoint says if not given.
    pub kv_dtype: Option<&'a str>,
    /// How tokens fall on experts: a word or a file; at random if not given.
    pub expert_load: Option<&'a str>,
    /// Layers of each stage, as `7,8,7`; equal shares if not given.
    pub stage_layers: Option<&'a str>,
}

/// A model that drafts.
#[derive(Debug, Clone, Copy)]
pub struct DraftRequest<'a> {
    /// A preset, or a `config.json`.
    pub model: &'a str,
    /// Tokens of a round.
    pub tokens: u64,
    /// Probability that a token is accepted.
    pub accept: f64,
}

/// System, stack and model of a request, checked.
#[derive(Debug, Clone)]
pub(super) struct Opened {
    pub(super) system: System,
    pub(super) stack: Stack,
    pub(super) service: Service,
    pub(super) speculation: Option<Speculation>,
    /// Tokens of a sequence.
    sequence: u64,
}

pub(super) fn opened(request: &ServingRequest<'_>, noted: &mut dyn FnMut(&str)) -> Result<Opened, Diagnostic> {
    let system = pod::open(request.system, request.sets)?;
    let parallel = Parallel::parse(request.parallel)?;
    let stack = stack(&system, request.stack, noted)?.clone();
    pod::check_served(&system.chip)?;
    let keeps_experts = system.chip.gpu().is_some();
    let named = |name: &str| served(name, keeps_experts);
    let checkpoint = named(request.model)?;
    let (architecture, trained_with) = (checkpoint.architecture, checkpoint.sequence);
    let sequence = request.sequence.unwrap_or(trained_with);
    let expert_load = expert_load(request.expert_load, &architecture)?;
    let stage_layers = request.stage_layers.map(whole_layers).transpose()?;
    let service = |of: Checkpoint, density: Option<f64>, stage_layers: Option<Arc<[u64]>>| {
        let Checkpoint {
            name: model, mut architecture, is_whole, stack, positions, storage, activations, notes, ..
        } = of;
        let stack = stack.filter(|_| !is_whole || !serves_whole(&system, &architecture));
        if let Position::Learned(rows) = architecture.position {
            architecture.position = Position::Learned(rows.max(sequence));
        }
        let experts = if architecture.extras.experts.is_some() { parallel.experts } else { Mixture::default() };
        let parallel = Parallel { experts, ..parallel };
        let (positions, expert_load) = (Some(positions).filter(|&most| most < u64::MAX), expert_load.clone());
        Service {
            model,
            architecture,
            stack,
            parallel,
            density,
            expert_load,
            expert_ranks: None,
            storage,
            activations,
            stage_layers,
            positions,
            notes,
        }
    };
    let speculation = match request.draft {
        None => None,
        Some(DraftRequest { model, tokens, accept }) => {
            Some(Speculation { draft: service(named(model)?, None, None), tokens, accept })
        }
    };
    let mut service = Service { parallel, ..service(checkpoint, density(request.sparsity)?, stage_layers) };
    in_formats(request, &system, &mut service)?;
    let narrow =
        service.activations.as_ref().and_then(|of| Dtype::ALL.into_iter().find(|dtype| dtype.name() == of.dtype));
    service.notes.extend(narrow.and_then(|narrow| arch::emulated_products(system.chip.device(), &[narrow])));
    let is_skewed = matches!(service.expert_load, ExpertLoad::Zipf(_) | ExpertLoad::Measured(_));
    let has_experts = service.stack.as_ref().is_some_and(|stack| stack.experts().is_some());
    if is_skewed && has_experts && !keeps_experts {
        service.notes.push(
            "every expert has as many rows as the busiest one (`--expert-load`): graphs of such chips have static shapes"
                .to_owned(),
        );
    }
    service.check()?;
    if let Some(speculation) = &speculation {
        speculation.check(&service)?;
    }
    Ok(Opened { system, stack, service, speculation, sequence })
}

/// Sets what `--dtype` and `--kv-dtype` say, and has the result say it.
fn in_formats(request: &ServingRequest<'_>, system: &System, service: &mut Service) -> Result<(), Diagnostic> {
    if let Some(name) = request.dtype {
        if service.stack.is_some() {
            let title = format!("`--dtype {name}`: the layers of {} are of several kinds or formats", service.model);
            return Err(Diagnostic::new(title).with_help("leave it out: matrices are stored as the checkpoint says"));
        }
        let format = ProductFormat::named(name).ok_or_else(|| {
            Diagnostic::new(format!("`--dtype` is {name:?}, which is no format of products"))
                .with_help("expected bf16, fp8, fp8_block, int8, nvfp4 or w4a16_mxfp4")
        })?;
        let multiplies = system.chip.gpu().is_some_and(|gpu| gpu.sm.fp4_macs.is_some());
        service.set_format(format, multiplies);
        let Parallel { tp, dp, experts, .. } = service.parallel;
        if service.architecture.extras.experts.is_some() {
            if matches!(service.expert_load, ExpertLoad::Measured(_)) {
                let title = format!("`--dtype {name}`: experts of a library's calls take no counted loads");
                return Err(Diagnostic::new(title).with_help("use `--expert-load uniform`, `even` or `zipf:A`"));
            }
            let tensor = (tp * dp).checked_div(experts.ep).unwrap_or(1);
            service.expert_ranks = Some(ExpertRanks { tensor, groups: experts.ep, format });
        }
        service.notes.push(format!("products with the layers' matrices are of {} (`--dtype`)", format.name()));
    }
    if let Some(name) = request.kv_dtype {
        let known = ["bf16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8", "int4"];
        if !known.contains(&name) {
            let title = format!("`--kv-dtype` is {name:?}, which is no format of keys and values");
            return Err(Diagnostic::new(title).with_help(format!("expected {}", known.join(", "))));
        }
        let stored = if name == "fp8" { "fp8_e4m3" } else { name };
        service.storage.cache = (stored != "bf16").then(|| StorageFormat::new(stored));
        service.notes.push(format!("keys and values are stored as {stored} (`--kv-dtype`)"));
    }
    Ok(())
}

/// Whether a system serves a model by its dimensions alone. Experts are lists of kernels on GPUs; latent attention has a graph of its own.
fn serves_whole(system: &System, architecture: &Architecture) -> bool {
    let has_experts = architecture.extras.experts.is_some();
    architecture.extras.latent.is_none() && (!has_experts || system.chip.gpu().is_some())
}

/// Layers of stages that serve: whole ones.
fn whole_layers(text: &str) -> Result<Arc<[u64]>, Diagnostic> {
    let refused = |word: &str| {
        let title = format!("`--stage-layers`: found {word:?}, expected a count of layers");
        Diagnostic::new(title).with_help("stages that serve have whole layers: such as 7,8,7")
    };
    text.split(',').map(|word| word.trim().parse().map_err(|_| refused(word))).collect()
}

/// Serves a batch and hands system, stack, model, users and result to `then`; `noted` hears what was chosen for the caller.
///
/// # Errors
/// Inputs that cannot be read, and a model that does not fit.
pub fn serving<T>(
    request: &ServingRequest<'_>,
    noted: &mut dyn FnMut(&str),
    then: impl FnOnce(&System, &Stack, &Service, &Load, &Served) -> T,
) -> Result<T, Diagnostic> {
    let Opened { system, stack, service, speculation, sequence } = opened(request, noted)?;
    if speculation.is_some() && request.phase == Phase::Prefill {
        let title = "`--draft`: nothing is drafted in prefill";
        return Err(
            Diagnostic::new(title).with_help("use `--phase decode`, whose `ttft_s` counts the prompts of both models")
        );
    }
    let mut load = Load::filling(&service.parallel, request.batch, sequence);
    if let Some(micro_batch) = request.micro_batch {
        load.micro_batch = micro_batch;
    }
    service.check_load(&load)?;
    // Either phase is simulated, so that both must fit; prefill needs more.
    for phase in [request.phase, Phase::Prefill] {
        let drafted = speculation.as_ref().map(|of| serving_memory(&of.draft, &load, phase));
        let held = drafted.map_or(0, |memory| memory.weights.saturating_add(memory.kv_cache));
        if serving_memory(&service, &load, phase).peak().saturating_add(held) > system.chip_memory_bytes() {
            return Err(does_not_fit(&system, &service, &load, phase, held));
        }
    }
    let served = serve(&system, &stack, &service, &load, request.phase, speculation.as_ref())?;
    Ok(then(&system, &stack, &service, &load, &served))
}

/// Runs a trace of requests, of which `batch` run at one time on a replica, and hands system, stack, model and result to
/// `then`. `sequence` has no meaning: requests have their own. With points that are `known` nothing is simulated.
///
/// # Errors
/// Inputs that cannot be read, and requests that do not fit.
pub fn requests<T>(
    request: &ServingRequest<'_>,
    trace: &Trace,
    policy: &Policy,
    known: Option<&Grid>,
    noted: &mut dyn FnMut(&str),
    then: impl FnOnce(&System, &Stack, &Service, &Streamed) -> T,
) -> Result<T, Diagnostic> {
    let list = &trace.requests[..];
    let longest = list.iter().map(|request| request.prompt + request.output).max();
    let request = ServingRequest { sequence: longest, ..request.clone() };
    let Opened { system, stack, service, speculation, .. } = opened(&request, noted)?;
    let model = (&service, speculation.as_ref());
    let policy = policy.under(&stack, service.parallel.dp);
    let mut streamed = pod::stream(&system, &stack, model.0, model.1, list, &policy, known)?;
    streamed.notes.extend(trace.notes.iter().cloned());
    Ok(then(&system, &stack, &service, &streamed))
}

/// The stack that was named, else the one for serving, else the first that serves, and a note says so.
fn stack<'s>(system: &'s System, name: Option<&str>, noted: &mut dyn FnMut(&str)) -> Result<&'s Stack, Diagnostic> {
    let serving: Vec<&Stack> = system.stacks.iter().filter(|stack| stack.kind.serves()).collect();
    let names = serving.iter().map(|stack| stack.kind.name()).collect::<Vec<_>>().join(", ");
    let Some(name) = name else {
        let own = serving.iter().find(|stack| stack.kind == StackKind::Serving).or(serving.first());
        let own = own.ok_or_else(|| {
            Diagnostic::new(format!("{} has no stack that serves: chips of its kind only train in a pod", system.name))
                .with_help(
                    "use a system of RDUs, GPUs or systolic arrays (`sn40l-16`, `dgx-h100`, `tpu-v6e-256`), or one chip: \
                     `rdusim model NAME --phase decode -o token.toml`, `rdusim run --arch CHIP --workload token.toml`",
                )
        })?;
        noted(&format!("no `--stack`: {}, of those of {} that serve: {names}", own.kind.name(), system.name));
        return Ok(own);
    };
    system.stacks.iter().find(|stack| stack.kind.name() == name).ok_or_else(|| {
        Diagnostic::new(format!("{} has no stack {name:?}", system.name))
            .with_help(format!("those that serve: {names}"))
    })
}

/// `held`: bytes of a chip that a model which drafts takes.
fn does_not_fit(system: &System, service: &Service, load: &Load, phase: Phase, held: u64) -> Diagnostic {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let memory = serving_memory(service, load, phase);
    let title = format!(
        "{} does not fit: {} of stage {} needs {:.1} GiB a chip (weights {:.1}, {} {:.1}, activations {:.1}, \
         buffers {:.1}{}), {} has {:.1}",
        service.model,
        if phase == Phase::Prefill { "prefill" } else { "decode" },
        memory.stage,
        gib(memory.peak().saturating_add(held)),
        gib(memory.weights),
        service.cache_name(),
        gib(memory.kv_cache),
        gib(memory.activations),
        gib(memory.buffers),
        if held > 0 { format!(", the model that drafts {:.1}", gib(held)) } else { String::new() },
        system.chip.device().name(),
        gib(system.chip_memory_bytes())
    );
    let remedies = if held > 0 { Vec::new() } else { serving_remedies(system, service, load, phase) };
    let help = if remedies.is_empty() {
        let without = if held > 0 { ", fewer users, or no `--draft`" } else { "" };
        format!("no change of one key makes it fit: use more tensor ranks and stages together{without}")
    } else {
        format!("what makes it fit, the cheapest first: {}", remedies.join("; "))
    };
    Diagnostic::new(title).with_help(help)
}
