//! Prefill and decode of a model on many chips.

use std::path::Path;

use super::pod::{density, model};
use crate::diagnostics::Diagnostic;
use crate::input::Override;
use crate::model::{Phase, Position};
use crate::pod::{
    self, Grid, Load, Parallel, Policy, Request, Served, Service, Stack, StackKind, Streamed, System, serve,
    serving_memory, serving_remedies,
};

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
}

/// System, stack and model of a request, checked.
#[derive(Debug, Clone)]
struct Opened {
    system: System,
    stack: Stack,
    service: Service,
    /// Tokens of a sequence.
    sequence: u64,
}

fn opened(request: &ServingRequest<'_>, noted: &mut dyn FnMut(&str)) -> Result<Opened, Diagnostic> {
    let system = pod::open(request.system, request.sets)?;
    let parallel = Parallel::parse(request.parallel)?;
    let stack = stack(&system, request.stack, noted)?.clone();
    let (model, mut architecture, trained_with) = model(request.model, false)?;
    let sequence = request.sequence.unwrap_or(trained_with);
    if let Position::Learned(rows) = architecture.position {
        architecture.position = Position::Learned(rows.max(sequence));
    }
    let service = Service { model, architecture, parallel, density: density(request.sparsity)? };
    service.check()?;
    Ok(Opened { system, stack, service, sequence })
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
    let Opened { system, stack, service, sequence } = opened(request, noted)?;
    let mut load = Load::filling(&service.parallel, request.batch, sequence);
    if let Some(micro_batch) = request.micro_batch {
        load.micro_batch = micro_batch;
    }
    service.check_load(&load)?;
    // Either phase is simulated, so that both must fit; prefill needs more.
    for phase in [request.phase, Phase::Prefill] {
        if serving_memory(&service, &load, phase).peak() > system.chip_memory_bytes() {
            return Err(does_not_fit(&system, &service, &load, phase));
        }
    }
    let served = serve(&system, &stack, &service, &load, request.phase)?;
    Ok(then(&system, &stack, &service, &load, &served))
}

/// Runs a trace of requests, of which `batch` run at one time on a replica, and hands system, stack, model and result to
/// `then`. `sequence` has no meaning: requests have their own. With points that are `known` nothing is simulated.
///
/// # Errors
/// Inputs that cannot be read, and requests that do not fit.
pub fn requests<T>(
    request: &ServingRequest<'_>,
    list: &[Request],
    (policy, known): (&Policy, Option<&Grid>),
    noted: &mut dyn FnMut(&str),
    then: impl FnOnce(&System, &Stack, &Service, &Streamed) -> T,
) -> Result<T, Diagnostic> {
    let longest = list.iter().map(|request| request.prompt + request.output).max();
    let request = ServingRequest { sequence: longest, ..request.clone() };
    let Opened { system, stack, service, .. } = opened(&request, noted)?;
    let streamed = pod::stream(&system, &stack, &service, list, policy, known)?;
    Ok(then(&system, &stack, &service, &streamed))
}

/// The stack that was named, else the one for serving, else the first that serves, and a note says so.
fn stack<'s>(system: &'s System, name: Option<&str>, noted: &mut dyn FnMut(&str)) -> Result<&'s Stack, Diagnostic> {
    let serving: Vec<&Stack> = system.stacks.iter().filter(|stack| stack.kind.serves()).collect();
    let names = serving.iter().map(|stack| stack.kind.name()).collect::<Vec<_>>().join(", ");
    let Some(name) = name else {
        let own = serving.iter().find(|stack| stack.kind == StackKind::Serving).or(serving.first());
        let own = own.ok_or_else(|| Diagnostic::new(format!("{} has no stack that serves", system.name)))?;
        noted(&format!("no `--stack`: {}, of those of {} that serve: {names}", own.kind.name(), system.name));
        return Ok(own);
    };
    system.stacks.iter().find(|stack| stack.kind.name() == name).ok_or_else(|| {
        Diagnostic::new(format!("{} has no stack {name:?}", system.name))
            .with_help(format!("those that serve: {names}"))
    })
}

fn does_not_fit(system: &System, service: &Service, load: &Load, phase: Phase) -> Diagnostic {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let memory = serving_memory(service, load, phase);
    let title = format!(
        "{} does not fit: {} of stage {} needs {:.1} GiB a chip (weights {:.1}, keys and values {:.1}, activations {:.1}, \
         buffers {:.1}), {} has {:.1}",
        service.model,
        if phase == Phase::Prefill { "prefill" } else { "decode" },
        memory.stage,
        gib(memory.peak()),
        gib(memory.weights),
        gib(memory.kv_cache),
        gib(memory.activations),
        gib(memory.buffers),
        system.chip.device().name(),
        gib(system.chip_memory_bytes())
    );
    let remedies = serving_remedies(system, service, load, phase);
    let help = if remedies.is_empty() {
        "no change of one key makes it fit: use more tensor ranks and stages together".to_owned()
    } else {
        format!("what makes it fit, the cheapest first: {}", remedies.join("; "))
    };
    Diagnostic::new(title).with_help(help)
}
