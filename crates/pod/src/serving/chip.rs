//! A pass of a stage's part of the model on one chip, from the chip's own simulation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;

use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::mode::Mode;
use rdusim_base::units::Dtype;
use rdusim_compile::compile::{BaseCache, Effort, compile_with, simulate_measured};
use rdusim_graph::arch::{AnyChip, Chip, Gpu, Systolic};
use rdusim_graph::workload::Workload;
use rdusim_machines::gpu::{self, AttentionCall, Case, Skew};
use rdusim_machines::systolic;
use rdusim_models::model::{Architecture, Expertise, Experts, Extras, Part, Stack as Layers, part_of};
use rdusim_outcome::{Fidelity, Outcome, StopReason};
use rdusim_program::divided_over_tiers;

use super::super::system::{Stack, StackKind, System};
use super::experts;
use super::kinds;
use super::library::{self, ExpertBlock, FeedShare, LatentBlock, Sum};
use super::service::Service;
pub(super) use super::work::{Pass, Work};

/// What it takes of the chip.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ChipTime {
    /// Seconds of kernels or sections, launches by the chip included.
    pub seconds: f64,
    /// Launches.
    pub launches: u64,
    /// Joules of the chip in that time.
    pub joules: f64,
    /// Watts that flow whatever it does.
    pub static_w: f64,
    /// Seconds of the experts' products of one layer, which exchanges can go on beside.
    pub products: f64,
    /// Of an RDU, where both ways to write attention were compiled: queries as rows were the faster one.
    pub by_rows: Option<bool>,
}

impl ChipTime {
    /// One after the other.
    fn plus(self, other: Self) -> Self {
        Self {
            seconds: self.seconds + other.seconds,
            launches: self.launches + other.launches,
            joules: self.joules + other.joules,
            static_w: self.static_w.max(other.static_w),
            products: self.products + other.products,
            by_rows: self.by_rows.or(other.by_rows),
        }
    }
}

/// Passes that were simulated on a chip, so that each is simulated once.
#[derive(Debug, Clone)]
pub(super) struct Chips {
    chip: AnyChip,
    known: Arc<Mutex<BTreeMap<Pass, ChipTime>>>,
    /// Of the two ways to write attention on an RDU the one that is compiled; both if not given.
    by_rows: Option<bool>,
}

impl Chips {
    /// None yet.
    pub(super) fn new(system: &System, stack: &Stack) -> Self {
        Self { chip: driven(system, stack), known: Arc::default(), by_rows: None }
    }

    /// The same chip without bytes that another model holds of each of its tiers, in their order.
    pub(super) fn without(self, held: &[u64]) -> Self {
        let mut chip = self.chip;
        for (tier, bytes) in chip.tiers_mut().iter_mut().zip(held) {
            tier.capacity_bytes = tier.capacity_bytes.saturating_sub(*bytes);
        }
        Self { chip, known: Arc::default(), by_rows: None }
    }

    /// The same, which compiles attention in the way that was the faster one in all passes so far, if it was the same one in all.
    pub(super) fn settled(self) -> Self {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ways = known.values().filter_map(|time| time.by_rows);
        let first = ways.next();
        let by_rows = first.filter(|way| ways.all(|other| other == *way));
        drop(known);
        Self { by_rows, ..self }
    }

    /// The chip.
    pub(super) fn chip(&self) -> &AnyChip {
        &self.chip
    }

    /// The time of a pass.
    ///
    /// # Errors
    /// What the chip's simulation refuses.
    pub(super) fn time(&self, stack: &Stack, service: &Service, pass: &Pass) -> Result<ChipTime, Diagnostic> {
        let mut time = self.whole(stack, service, pass)?;
        time.seconds *= stack.kernel_factor;
        let beside = pass.layers as f64 * stack.layer_us / 1e6;
        time.seconds += beside;
        time.joules += beside * time.static_w;
        time.products *= stack.kernel_factor;
        Ok(time)
    }

    /// The time of a pass before what the stack's kernels take more: of a model of several kinds of layers on an RDU, of each kind and of
    /// what stands around them, where all fits the fastest memory. Layers of two kinds are never one section.
    fn whole(&self, stack: &Stack, service: &Service, pass: &Pass) -> Result<ChipTime, Diagnostic> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known().get(pass).copied();
        if let Some(time) = found {
            return Ok(time);
        }
        let parts = service.kinds_apart(&self.chip, pass);
        let time = if parts.is_empty() {
            self.simulated(stack, service, pass)?
        } else {
            let times: Result<Vec<ChipTime>, Diagnostic> =
                parts.par_iter().map(|part| self.whole(stack, service, part)).collect();
            times?.into_iter().fold(ChipTime::default(), ChipTime::plus)
        };
        known().insert(*pass, time);
        Ok(time)
    }

    fn simulated(&self, stack: &Stack, service: &Service, pass: &Pass) -> Result<ChipTime, Diagnostic> {
        server_of(&self.chip)?.pass(stack, service, pass, self.by_rows)
    }
}

/// A chip whose systems serve.
trait Serves {
    /// What it takes of the chip: as an RDU writes attention in two ways, `by_rows` is the one that is compiled; both if not given.
    ///
    /// # Errors
    /// What the chip's simulation refuses.
    fn pass(
        &self,
        stack: &Stack,
        service: &Service,
        pass: &Pass,
        by_rows: Option<bool>,
    ) -> Result<ChipTime, Diagnostic>;
}

impl Serves for Chip {
    fn pass(&self, stack: &Stack, of: &Service, pass: &Pass, by_rows: Option<bool>) -> Result<ChipTime, Diagnostic> {
        on_rdu(self, stack, of, pass, by_rows)
    }
}

impl Serves for Gpu {
    fn pass(&self, _: &Stack, service: &Service, pass: &Pass, _: Option<bool>) -> Result<ChipTime, Diagnostic> {
        on_gpu(self, service, pass)
    }
}

impl Serves for Systolic {
    fn pass(&self, _: &Stack, service: &Service, pass: &Pass, _: Option<bool>) -> Result<ChipTime, Diagnostic> {
        on_systolic(self, service, pass)
    }
}

/// Refuses chips whose systems do not serve.
///
/// # Errors
/// A chip of another kind than RDUs, GPUs and systolic arrays.
pub fn check_served(chip: &AnyChip) -> Result<(), Diagnostic> {
    server_of(chip).map(|_| ())
}

fn server_of(chip: &AnyChip) -> Result<&dyn Serves, Diagnostic> {
    match chip {
        AnyChip::Rdu(chip) => Ok(&**chip),
        AnyChip::Gpu(gpu) => Ok(&**gpu),
        AnyChip::Systolic(systolic) => Ok(&**systolic),
        AnyChip::Bsp(_) | AnyChip::Wafer(_) => {
            let (name, called) = (chip.device().name(), chip.kind().called);
            let title = format!("{name} is {called}: serving on systems of such chips is not modelled");
            Err(Diagnostic::new(title).with_help("`run`, `compare`, `explain` and `sweep` take the chip alone"))
        }
    }
}

/// Whether two stacks launch a chip's work in the same way.
pub(super) fn drive_alike(a: &Stack, b: &Stack) -> bool {
    let kinds = |stack: &Stack| (stack.kind == StackKind::RduKbk, stack.kind == StackKind::Flash);
    a.orchestration == b.orchestration && kinds(a) == kinds(b)
}

/// The chip of a system, as a stack drives it.
fn driven(system: &System, stack: &Stack) -> AnyChip {
    let mut chip = system.chip.clone();
    if let Some(rdu) = chip.rdu_mut() {
        rdu.launch.orchestration = stack.orchestration.unwrap_or(rdu.launch.orchestration);
        return chip;
    }
    // Rooms are the pod's to count: a grid of times has points that no trace meets.
    chip.tiers_mut().iter_mut().for_each(|tier| tier.capacity_bytes = u64::MAX);
    if let Some(gpu) = chip.gpu_mut() {
        drive(gpu, stack);
    }
    chip
}

/// Sets what a stack does other than the library that a GPU's kernels were measured with.
fn drive(gpu: &mut Gpu, stack: &Stack) {
    gpu.fusion.graphs = stack.kind.captures_graphs();
    if stack.groups_heads && gpu.serving.most_grouped < gpu.serving.group_tile {
        gpu.serving.most_grouped = gpu.serving.group_tile;
        // The limit of a thread block is that of the measured library's kernel of single queries.
        gpu.serving.block_gb_per_s = gpu.serving.sm_gb_per_s;
    }
    if let Some(us) = stack.expert_call_us {
        // Tables of every expert and kernels that copy rows are the measured library's: an engine fuses them.
        for format in gpu.serving.formats.values_mut() {
            format.call_us = us;
            format.local_expert_ns = 0.0;
            format.row_factor = None;
        }
    }
    // Programmatic launches: a kernel's start is under the end of the one before it.
    gpu.launch.graph_gap_us *= 1.0 - stack.hidden_launches;
    gpu.launch.ramp_us *= 1.0 - stack.hidden_launches;
    // The stack has a host time of its own.
    gpu.launch.host_us = 0.0;
}

/// The graph of a pass on one chip.
pub(super) fn graph(service: &Service, pass: &Pass, heads_as_rows: bool) -> Result<Workload, Diagnostic> {
    graph_of(service, pass, Part { heads_as_rows, ..Part::default() }, pass.layers)
}

/// The graph of so many layers, `like` a part that leaves something out.
fn graph_of(service: &Service, pass: &Pass, like: Part, layers: u64) -> Result<Workload, Diagnostic> {
    let (rows, sampled) = (pass.work.rows(pass.users, pass.tokens), pass.work.sampled(pass.users));
    let ends = Part { has_embedding: pass.is_first, has_logits: pass.is_last, has_no_layers: layers == 0, ..like };
    let part = Part { sampled: (sampled < rows).then_some(sampled), ..ends };
    let (part, users, tokens) = match pass.work {
        Work::Prompts => (Part { sampled: None, ..part }, pass.users, pass.tokens),
        Work::Tokens { new, .. } => (Part { new_tokens: Some(new), ..part }, pass.users, pass.tokens),
        Work::Rows { .. } | Work::Mixed { .. } => (Part { has_no_attention: true, ..part }, rows, 1),
    };
    let mut options = service.options(pass.phase(), users, tokens);
    options.architecture.layers = layers.max(1);
    if let Some(stack) = &service.stack {
        let mut part = service.layers_on_chip(stack, pass.stage);
        if let Some(kind) = pass.kind {
            part.order = vec![kind; layers as usize];
        }
        options.stack = Some(Arc::new(part));
        if pass.work == Work::Prompts {
            options.sequence = Service::filled(stack, tokens);
        }
    }
    if let (Some(mamba), Some(layers)) = (&mut options.architecture.extras.mamba, pass.hybrid) {
        *mamba = mamba.with(layers);
        // A prompt is filled up to whole chunks.
        if pass.work == Work::Prompts {
            options.sequence = tokens.next_multiple_of(mamba.chunk_of(tokens));
        }
    }
    // Each expert by its columns; others are kernels of their own.
    let tp = service.parallel.tp;
    let divided = |of: Experts| Experts { width: of.width / tp, shared: of.shared / tp, ..of };
    let experts = &mut options.architecture.extras.experts;
    *experts = experts.filter(|_| service.has_experts_in_graph()).map(divided);
    // A kernel of attention bounds scores as it makes them.
    options.architecture.extras.capped_scores &= !like.has_fused_attention;
    part_of(&options, part)?.workload("the part of the model on one chip", 0)
}

/// The faster of two ways to write attention over a cache: heads side by side, which one section may fuse with the rest of
/// the layer, and the heads of a group as rows, which share a pass over their keys.
fn on_rdu(
    chip: &Chip,
    stack: &Stack,
    service: &Service,
    pass: &Pass,
    by_rows: Option<bool>,
) -> Result<ChipTime, Diagnostic> {
    if service.experts().is_some() {
        let title = format!("{} has experts, which are served on GPUs only", service.model);
        return Err(Diagnostic::new(title).with_help("use a system such as dgx-a100, or a model without experts"));
    }
    check_apart(pass)?;
    let mode = if stack.kind == StackKind::RduKbk { Mode::Kbk } else { Mode::Fused };
    let run = |heads_as_rows: bool| -> Result<ChipTime, Diagnostic> {
        let workload = graph(service, pass, heads_as_rows)?;
        let workload = divided_over_tiers(chip, &workload).unwrap_or(workload);
        let compiled = compile_with(chip, &workload, &[mode], Effort::Low, &BaseCache::default())?;
        let compiled = compiled.first().ok_or_else(|| Diagnostic::new("no mode was compiled"))?;
        let outcome = simulate_measured(chip, &workload, compiled, Fidelity::Event);
        if outcome.stop != StopReason::Drained {
            return Err(Diagnostic::new(format!("the part of the model on one {} did not end", chip.name)));
        }
        Ok(of(&outcome, chip.seconds(outcome.cycles), 0.0, chip.energy.static_w))
    };
    let share = service.share();
    if service.stack.is_some() || !matches!(pass.work, Work::Tokens { .. }) || share.heads == share.kv_heads {
        return run(false);
    }
    if let Some(by_rows) = by_rows {
        return run(by_rows);
    }
    let (side, rows) = rayon::join(|| run(false), || run(true));
    let (side, rows) = (side?, rows?);
    let by_rows = rows.seconds < side.seconds;
    Ok(ChipTime { by_rows: Some(by_rows), ..if by_rows { rows } else { side } })
}

/// Refuses passes whose rows no graph puts together.
fn check_apart(pass: &Pass) -> Result<(), Diagnostic> {
    if matches!(pass.work, Work::Mixed { .. }) {
        let title = "a pass of prompts and tokens is simulated as a whole on GPUs only: no graph puts rows together";
        return Err(Diagnostic::new(title).with_help("its products and attention are simulated each for itself"));
    }
    Ok(())
}

/// As the kernels of one program on systolic arrays, which `run` times in mode `fused`.
fn on_systolic(chip: &Systolic, service: &Service, pass: &Pass) -> Result<ChipTime, Diagnostic> {
    check_apart(pass)?;
    if service.expert_ranks.is_some() || service.experts().is_some_and(|_| !service.has_experts_in_graph()) {
        let title = format!("{}: chips of systolic arrays divide each expert by its columns alone", service.model);
        return Err(Diagnostic::new(title).with_help("leave `ep` and `capacity` out, or use a system of GPUs"));
    }
    if service.density.is_some() {
        return Err(Diagnostic::new("sparse weights are not modelled on systems of systolic arrays"));
    }
    let workload = graph(service, pass, false)?;
    let outcomes = systolic::run(chip, &workload, &[Mode::Fused])?;
    let outcome = outcomes.first().ok_or_else(|| Diagnostic::new("no mode was run"))?;
    Ok(of(outcome, outcome.cycles as f64 / chip.clock_hz as f64, 0.0, chip.energy.static_w))
}

/// A part whose attention is one kernel.
const FUSED: Part = Part { has_fused_attention: true, ..Part::WHOLE };

/// As the kernels of the graph in mode `fused`, as `run` times them.
fn on_gpu(gpu: &Gpu, service: &Service, pass: &Pass) -> Result<ChipTime, Diagnostic> {
    if service.density.is_some() {
        return Err(Diagnostic::new("sparse weights are not modelled on systems of GPUs"));
    }
    if let Some(stack) = service.stack.as_ref().filter(|stack| kinds::are_kernels(gpu, service, stack)) {
        return by_kinds(gpu, service, stack, pass);
    }
    if service.expert_ranks.is_some() || service.architecture.extras.latent.is_some() {
        return by_library(gpu, service, pass);
    }
    let Some(_) = service.experts().filter(|_| !service.has_experts_in_graph()) else {
        let workload = graph_of(service, pass, FUSED, pass.layers)?;
        let attending = pass.hybrid.map_or(pass.layers, |layers| layers.attention.into());
        return kernels(gpu, service, pass, &workload, attending);
    };
    let (without, with) = service.mixed_layers();
    let mut sum = ChipTime::default();
    if without > 0 || pass.is_first || pass.is_last {
        let workload = graph_of(service, pass, FUSED, without)?;
        sum = kernels(gpu, service, pass, &workload, without)?;
    }
    // Layers with experts stand between the ends.
    let around = Pass { is_first: false, is_last: false, ..*pass };
    let workload = graph_of(service, &around, Part { has_no_feed_forward: true, ..FUSED }, with)?;
    let layers = kernels(gpu, service, &around, &workload, with)?;
    let fed = experts::fed(gpu, &service.job(pass.work.rows(pass.users, pass.tokens)))?;
    let static_w = sum.static_w.max(layers.static_w);
    let seconds = fed.seconds * with as f64;
    Ok(ChipTime {
        seconds: sum.seconds + layers.seconds + seconds,
        launches: sum.launches + layers.launches + fed.launches * with,
        joules: sum.joules + layers.joules + fed.joules * with as f64 + seconds * static_w,
        static_w,
        products: fed.products,
        by_rows: None,
    })
}

/// Layers of several kinds as a library's kernels, between the ends of a graph.
fn by_kinds(gpu: &Gpu, service: &Service, stack: &Layers, pass: &Pass) -> Result<ChipTime, Diagnostic> {
    let mut time = ChipTime { static_w: gpu.energy.static_w, ..ChipTime::default() };
    if pass.is_first || pass.is_last {
        let ends = Pass { kind: Some(0), layers: 0, ..*pass };
        let workload = graph_of(service, &ends, FUSED, 0)?;
        // Attention stands in the layers.
        let around = Pass { work: Work::Rows { sampled: pass.work.sampled(pass.users) }, ..ends };
        time = kernels(gpu, service, &around, &workload, 0)?;
    }
    let of = kinds::layers(gpu, service, stack, pass)?;
    time.seconds += of.seconds;
    time.joules += of.joules + of.seconds * gpu.energy.static_w;
    time.launches += of.launches;
    Ok(time)
}

/// Layers whose attention or feed-forward blocks are a library's kernels, between the ends of a graph.
fn by_library(gpu: &Gpu, service: &Service, pass: &Pass) -> Result<ChipTime, Diagnostic> {
    let rows = pass.work.rows(pass.users, pass.tokens);
    let latent = service.architecture.extras.latent;
    let mut sum = ChipTime { static_w: gpu.energy.static_w, ..ChipTime::default() };
    if pass.is_first || pass.is_last {
        let extras = Extras { latent: None, experts: None, dense_layers: 0, ..service.architecture.extras };
        let architecture = Architecture { extras, ..service.architecture };
        let plain = Service { architecture, expert_ranks: None, ..service.clone() };
        let workload = graph_of(&plain, pass, FUSED, 0)?;
        sum = kernels(gpu, &plain, pass, &workload, 0)?;
    }
    let mut add = |of: Sum, times: u64| {
        let seconds = of.seconds * times as f64;
        sum.seconds += seconds;
        sum.joules += of.joules * times as f64 + seconds * gpu.energy.static_w;
        sum.launches += of.launches * times;
    };
    let (hidden, format) = (service.architecture.hidden, service.product_format());
    let share = service.share();
    if let Some(latent) = latent {
        let of = LatentBlock {
            hidden,
            heads: share.heads,
            latent,
            indexer: None,
            cache_bytes: service.cache_bits().div_ceil(8),
            format: &|_| format,
        };
        add(library::latent_attention(gpu, &of, pass)?, pass.layers);
    } else {
        let around = Pass { is_first: false, is_last: false, ..*pass };
        let part = Part { has_no_feed_forward: true, ..FUSED };
        let workload = graph_of(service, &around, part, pass.layers)?;
        let of = kernels(gpu, service, &around, &workload, pass.layers)?;
        add(
            Sum { seconds: of.seconds, joules: of.joules - of.seconds * gpu.energy.static_w, launches: of.launches },
            1,
        );
    }
    let (without, with) = service.mixed_layers();
    let matrices = service.architecture.feed_matrices();
    let fed = |width: u64| FeedShare { hidden, width, matrices, formats: [format; 2] };
    let experts = service.experts();
    if without > 0 {
        add(library::feed(gpu, &fed(share.feed_forward), rows)?, without);
    }
    if let (Some(ranks), Some(experts), true) = (service.expert_ranks, experts, with > 0) {
        let shared = experts.shared / service.parallel.tp;
        let block = ExpertBlock {
            hidden,
            of: Expertise { experts, activation: service.architecture.activation, bias: false, latent: None },
            ranks,
            shared: (shared > 0).then(|| fed(shared)),
            replicas: service.replicas_of_experts(),
            skew: service.skew().unwrap_or(Skew::Uniform),
        };
        add(library::experts(gpu, &block, rows)?, with);
    }
    Ok(sum)
}

/// The kernels of a graph; of a pass whose graph leaves attention out, the attention of so many layers beside them.
fn kernels(
    gpu: &Gpu,
    service: &Service,
    pass: &Pass,
    workload: &Workload,
    layers: u64,
) -> Result<ChipTime, Diagnostic> {
    let outcome = gpu::run(gpu, workload, &[Mode::Fused])?;
    let outcome = outcome.first().ok_or_else(|| Diagnostic::new("no mode was run"))?;
    let share = service.share();
    let attending = |batch: u64, tokens: u64| AttentionCall {
        dtype: Dtype::Bf16,
        batch,
        tokens,
        heads: share.heads,
        kv_heads: share.kv_heads,
        head_dim: share.head(),
        window: None,
    };
    let cases: Vec<(Case, u64)> = match (pass.work, &service.stack) {
        (Work::Mixed { chunk, before }, Some(stack)) => {
            let tokens = service.attention_calls(stack, pass.stage, pass.users, pass.tokens);
            let parts = service.attention_calls(stack, pass.stage, 1, before + chunk);
            let parts = parts.into_iter().map(|(call, count)| (Case::Extend { call, new: chunk }, count));
            tokens.into_iter().map(|(call, count)| (Case::Decode(call), count)).chain(parts).collect()
        }
        (Work::Mixed { chunk, before }, None) if layers > 0 => vec![
            (Case::Decode(attending(pass.users, pass.tokens)), layers),
            (Case::Extend { call: attending(1, before + chunk), new: chunk }, layers),
        ],
        _ => Vec::new(),
    };
    let seconds = |cycles: u64| cycles as f64 / gpu.clock_hz as f64;
    // The call outside its kernels is the stack's to count.
    let mut each = 0.0;
    for (case, count) in &cases {
        each += (gpu::seconds(gpu, case)? - gpu.serving.call_us / 1e6) * *count as f64;
    }
    let static_w = outcome.energy().static_ / seconds(outcome.cycles).max(1e-12);
    Ok(of(outcome, seconds(outcome.cycles) + each, seconds(outcome.cycles), static_w))
}

/// Time and energy of an outcome that takes `seconds` in place of `counted`, over which its static energy is counted (0: the
/// same).
fn of(outcome: &Outcome, seconds: f64, counted: f64, static_w: f64) -> ChipTime {
    let more = if counted > 0.0 { (seconds - counted) * static_w } else { 0.0 };
    ChipTime {
        seconds,
        launches: outcome.sections.iter().map(|section| section.launches).sum(),
        joules: outcome.energy().total() + more,
        static_w,
        products: 0.0,
        by_rows: None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Gpu, driven};
    use crate::spec;

    fn gpu_of(name: &str, stack: &str) -> (Gpu, Gpu) {
        let system = spec::open(Path::new(name), &[]).unwrap();
        let stack = system.stacks.iter().find(|found| found.kind.name() == stack).unwrap();
        let of_stack = driven(&system, stack);
        [&system.chip, &of_stack].map(|chip| chip.gpu().unwrap().clone()).into()
    }

    #[test]
    fn an_engine_has_none_of_the_measured_librarys_own_kernels() {
        let (b200, engine) = gpu_of("dgx-b200", "vllm");
        assert!(b200.serving.formats["fp8_block"].local_expert_ns > 0.0);
        for format in engine.serving.formats.values() {
            assert_eq!((format.call_us, format.local_expert_ns, format.row_factor), (0.0, 0.0, None));
        }
        // Its thread blocks take a group of heads, and are not limited as those of single queries.
        assert_eq!((b200.serving.most_grouped, engine.serving.most_grouped), (1, 32));
        assert!(b200.serving.block_gb_per_s < b200.serving.sm_gb_per_s);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(engine.serving.block_gb_per_s, b200.serving.sm_gb_per_s));
        // Where the measured library groups heads, its limit is that of its grouped kernel.
        let (h100, engine) = gpu_of("dgx-h100", "vllm");
        assert!(near(engine.serving.block_gb_per_s, h100.serving.block_gb_per_s));
        // The measured library itself serves as it is.
        let (b200, library) = gpu_of("dgx-b200", "serving");
        assert_eq!((library.serving.formats, library.serving.most_grouped), (b200.serving.formats, 1));
    }
}
