//! What a measured point is simulated as: system, stack, model in its precision, and its closed loop.

use std::sync::Arc;

use super::formats::{self, Stored};
use super::row::{Row, Serving, Workers};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::Gpu;
use rdusim_machines::gpu::ProductFormat;
use rdusim_models::model::{ExpertLoad, Stack as Layers, StorageFormat};
use rdusim_pod::{
    self as pod, Divided, ExpertRanks, Grid, LoopRequests, Parallel, Policy, Range, Request, Server, Service, Stack,
    StackKind, System, Transfer, WorkerPool,
};

/// Where systems and models of files come from.
pub struct Sources<'s> {
    /// The system of a name in a file.
    pub system: &'s (dyn Fn(&str) -> Result<System, Diagnostic> + Sync),
    /// The model of a name and a precision in a file, in one part.
    pub model: &'s (dyn Fn(&str, &str) -> Result<Service, Diagnostic> + Sync),
}

/// Requests of each user of a closed loop: the first are all at once, as the benchmarks that measured begin.
const ROUNDS: u64 = 10;
/// Prompts and answers of these lengths are those of `InferenceMAX`, which draws each from [`LEAST_SHARE`] of it up to it [M its scripts:
/// a random range ratio of 0.8]; others have the lengths that a file names.
const RANDOM_SHAPES: [(u64, u64); 3] = [(1024, 1024), (1024, 8192), (8192, 1024)];
/// The least share of a length that is drawn.
const LEAST_SHARE: f64 = 0.8;

/// Rows that differ in lengths and users alone share a grid of times.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub(super) system: Arc<System>,
    pub(super) stack: Stack,
    pub(super) service: Service,
}

/// Makers of models whose fp8 checkpoints are NVIDIA's, as all of NVFP4 are.
const SCALED_CACHES: [&str; 2] = ["meta-llama/", "nvidia/"];

/// A closed loop on a setup.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loop {
    /// Users of a replica.
    pub(super) users: u64,
    pub(super) requests: LoopRequests,
}

impl Loop {
    /// A loop of so many users whose prompts and answers have these tokens at most.
    pub(super) fn new(users: u64, prompt: u64, output: u64) -> Self {
        let share = if RANDOM_SHAPES.contains(&(prompt, output)) { LEAST_SHARE } else { 1.0 };
        let bounds = |most: u64| (((most as f64 * share) as u64).max(1), most);
        let requests = LoopRequests {
            count: users.saturating_mul(ROUNDS),
            prompt: bounds(prompt),
            output: bounds(output),
            seed: 1,
        };
        Self { users, requests }
    }

    /// How it runs on replicas that run together.
    pub(super) fn policy(&self, setup: &Setup) -> (Vec<Request>, Policy) {
        let replicas = setup.service.parallel.dp;
        let requests = LoopRequests { count: self.requests.count * replicas, ..self.requests };
        (requests.drawn(), Policy::closed(&setup.stack, self.users, replicas))
    }
}

/// What a row is simulated as.
pub(super) enum Planned {
    /// The same chips take prompts and tokens.
    Aggregated(Box<Setup>, Loop),
    /// Workers of their own.
    Disaggregated(Box<TwoKinds>),
}

/// Workers of prompts and of tokens, and the loop of all users.
#[derive(Debug)]
pub(super) struct TwoKinds {
    pub(super) prefill: (Workers, Setup),
    pub(super) decode: (Workers, Setup),
    pub(super) of: Loop,
}

/// What a row is simulated as.
///
/// # Errors
/// Why it cannot be simulated.
pub(super) fn planned(row: &Row, system: &Arc<System>, model: &Service) -> Result<Planned, Diagnostic> {
    match &row.serving {
        Serving::Aggregated(workers) => {
            let of = Loop::new(workers.batch, row.prompt, row.output);
            Ok(Planned::Aggregated(Box::new(setup(row, workers, system, model)?), of))
        }
        Serving::Disaggregated { prefill, decode, users } => Ok(Planned::Disaggregated(Box::new(TwoKinds {
            prefill: (*prefill, setup(row, prefill, system, model)?),
            decode: (*decode, setup(row, decode, system, model)?),
            of: Loop::new(*users, row.prompt, row.output),
        }))),
    }
}

impl TwoKinds {
    /// Mean seconds to the first token, and of a token behind it.
    ///
    /// # Errors
    /// What the simulation of either kind refuses.
    pub(super) fn simulated(&self) -> Result<(f64, Option<f64>), Diagnostic> {
        let requests = self.of.requests;
        let grid = |(workers, setup): &(Workers, Setup), prompts: bool| -> Result<Grid, Diagnostic> {
            let server = Server::new(&setup.system, &setup.stack, &setup.service)?;
            let most_context = if prompts { requests.prompt.1 } else { requests.prompt.1 + requests.output.1 };
            let most_users = if prompts { 1 } else { workers.batch };
            let range = Range { most_users, prompts: requests.prompt, most_context, chunk: None };
            Grid::new(&server, &setup.service, &range)
        };
        let (of_prompts, of_tokens) = (grid(&self.prefill, true)?, grid(&self.decode, false)?);
        let pool = |(workers, _): &(Workers, Setup)| (workers.count, workers.dp, workers.batch);
        let worker = |of: &(Workers, Setup), grid| {
            let (count, replicas, batch) = pool(of);
            WorkerPool { count, replicas, batch, grid }
        };
        let setup = &self.prefill.1;
        let levels = &setup.system.levels;
        let chips = |(workers, _): &(Workers, Setup)| workers.count * workers.tp * workers.dp * workers.pp;
        // Workers that do not fit a node together are on nodes of their own.
        let fits = levels.first().is_some_and(|node| chips(&self.prefill) + chips(&self.decode) <= node.members);
        let level = if fits { levels.first() } else { levels.last() };
        let level = level.ok_or_else(|| Diagnostic::new(format!("{} has no links", setup.system.name)))?;
        let bytes = setup.service.kv_bytes_per_token() as f64;
        // The chips of a node share what leaves it.
        let sharing = if fits { 1 } else { levels.first().map_or(1, |node| node.members) };
        let rate = level.member_gb_per_s() * 1e9 / sharing as f64;
        let divided = Divided {
            prefill: worker(&self.prefill, &of_prompts),
            decode: worker(&self.decode, &of_tokens),
            users: self.of.users,
            transfer: Transfer { message_s: level.message_us / 1e6, token_s: bytes / rate },
            first_s: (setup.stack.first_us + setup.stack.request_us) / 1e6,
        };
        let answers = pod::divided(&requests.drawn(), &divided);
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let tokens: Vec<f64> = answers.iter().filter_map(|answer| answer.token_s).collect();
        let ttft_s = mean(answers.iter().map(|answer| answer.ttft_s).collect());
        Ok((ttft_s, (!tokens.is_empty()).then(|| mean(tokens))))
    }
}

/// Chips of one worker.
///
/// # Errors
/// An engine or a precision that is not modelled, or what cannot be divided.
pub(super) fn setup(row: &Row, workers: &Workers, system: &Arc<System>, model: &Service) -> Result<Setup, Diagnostic> {
    let kind = match row.engine.as_str() {
        "trtllm" => StackKind::TensorRtLlm,
        "vllm" => StackKind::Vllm,
        "sglang" => StackKind::Sglang,
        other => return Err(Diagnostic::new(format!("the engine {other:?} is not modelled"))),
    };
    let engine = system.stacks.iter().find(|stack| stack.kind == kind);
    let engine = engine.ok_or_else(|| Diagnostic::new(format!("{} has no stack {:?}", system.name, kind.name())))?;
    let mut service = model.clone();
    let has_experts = match &service.stack {
        Some(stack) => stack.experts().is_some(),
        None => service.architecture.extras.experts.is_some(),
    };
    // Replicas without experts have nothing to do with each other: one stands for all.
    let dp = if has_experts { workers.dp } else { 1 };
    service.parallel = Parallel { tp: workers.tp, pp: workers.pp, dp, ..Parallel::default() };
    if let Some(stack) = service.stack.clone() {
        layer_by_layer(row, workers, dp, system, &stack, &mut service)?;
        if engine.expert_skew > 0.0 {
            service.expert_load = ExpertLoad::Zipf(engine.expert_skew);
        }
        return Ok(Setup { system: Arc::clone(system), stack: engine.clone(), service });
    }
    in_precision(row, system, &mut service)?;
    if has_experts {
        let Some(gpu) = system.chip.gpu() else { return Err(Diagnostic::new("experts are served on GPUs only")) };
        // Files that name one of the two divisions leave the other to follow from the chips.
        let groups = workers.expert_ep.max(1);
        let tensor = (workers.tp * dp).checked_div(groups).unwrap_or(1).max(1);
        service.expert_ranks = Some(ExpertRanks { tensor, groups, format: expert_format(row, gpu, &service)? });
    }
    service.check()?;
    Ok(Setup { system: Arc::clone(system), stack: engine.clone(), service })
}

/// Sets formats and the division of experts of a model that is served by its layers.
fn layer_by_layer(
    row: &Row,
    workers: &Workers,
    dp: u64,
    system: &System,
    stack: &Layers,
    service: &mut Service,
) -> Result<(), Diagnostic> {
    let Some(gpu) = system.chip.gpu() else {
        return Err(Diagnostic::new(format!("{} has no GPUs", system.name)));
    };
    let Stored { stack, activations } = formats::stored(row, gpu, stack)?;
    // Keys and values as the checkpoint says; of those whose precision it is not, as a file of it would.
    let is_of_nvfp4 = stack.kinds.iter().flat_map(|kind| &kind.formats).any(|(_, format)| format.format == "nvfp4");
    let is_scaled = is_of_nvfp4 && activations.is_some();
    if is_scaled {
        service.storage.cache = Some(StorageFormat::new("fp8_e4m3"));
    }
    service.activations = activations;
    service.storage.weights = None;
    if stack.experts().is_some() {
        // Files that name one of the two divisions leave the other to follow from the chips.
        let groups = workers.expert_ep.max(1);
        let tensor = (workers.tp * dp).checked_div(groups).unwrap_or(1).max(1);
        // The format of each layer's experts is that of their matrices.
        service.expert_ranks = Some(ExpertRanks { tensor, groups, format: ProductFormat::Plain(Dtype::Bf16) });
    }
    service.stack = Some(Arc::new(stack));
    service.check()
}

/// Sets how matrices are stored and multiplied.
fn in_precision(row: &Row, system: &System, service: &mut Service) -> Result<(), Diagnostic> {
    let Some(gpu) = system.chip.gpu() else {
        return Err(Diagnostic::new(format!("{} has no GPUs", system.name)));
    };
    if row.precision == "int4" {
        // Of experts alone.
        service.set_format(ProductFormat::Plain(Dtype::Bf16), false);
        return Ok(());
    }
    let format = match (row.precision.as_str(), row.formats.0.as_str()) {
        ("bf16", _) => ProductFormat::named("bf16"),
        (precision, "") => ProductFormat::named(precision),
        ("fp4", _) => Some(ProductFormat::Nvfp4),
        (_, format) => ProductFormat::named(format),
    };
    let unknown = || {
        let title = format!("products in {} ({}) are not modelled", row.precision, row.formats.0);
        Diagnostic::new(title)
    };
    let format = format.ok_or_else(unknown)?;
    // What NVIDIA quantises has scales for keys and values in fp8 too [M ModelOpt]; others keep the type of the model.
    let is_scaled = match format {
        ProductFormat::Nvfp4 => gpu.sm.fp4_macs.is_some(),
        ProductFormat::Plain(Dtype::Fp8E4m3) => SCALED_CACHES.iter().any(|maker| row.model.starts_with(maker)),
        _ => false,
    };
    if is_scaled {
        service.storage.cache = Some(StorageFormat::new("fp8_e4m3"));
    }
    let is_of_experts_alone = gpu.sm.fp4_macs.is_none() && service.architecture.extras.experts.is_some();
    let of_layers = match format {
        // On chips that do not multiply four bits.
        ProductFormat::Nvfp4 | ProductFormat::Mxfp4Weights if is_of_experts_alone => ProductFormat::Plain(Dtype::Bf16),
        other => other,
    };
    service.set_format(of_layers, gpu.sm.fp4_macs.is_some());
    Ok(())
}

/// The format of experts' products: what the file says, or that of the other products.
fn expert_format(row: &Row, gpu: &Gpu, service: &Service) -> Result<ProductFormat, Diagnostic> {
    let has = |dtype: Dtype| gpu.sm.tensor_macs.contains_key(&dtype);
    Ok(match row.formats.1.as_str() {
        "" if service.activations.is_none() => ProductFormat::Plain(Dtype::Bf16),
        "nvfp4" if gpu.sm.fp4_macs.is_none() => ProductFormat::Mxfp4Weights,
        // Weights of four bits with scales beside them, as near as kernels were measured.
        "int4_wo" => ProductFormat::Mxfp4Weights,
        "fp8" | "" if row.precision == "fp8" && has(Dtype::Fp8E4m3) => ProductFormat::Plain(Dtype::Fp8E4m3),
        other => ProductFormat::named(other)
            .ok_or_else(|| Diagnostic::new(format!("experts' products in {other:?} are not modelled")))?,
    })
}
