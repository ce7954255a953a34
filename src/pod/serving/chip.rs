//! A pass of a stage's part of the model on one chip, from the chip's own simulation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::arch::{AnyChip, Chip, Gpu};
use crate::compile::{BaseCache, Effort, compile_with, simulate_measured};
use crate::diagnostics::Diagnostic;
use crate::gpu::{self, AttentionCall, Case};
use crate::mode::Mode;
use crate::model::{Part, Phase, write_part};
use crate::outcome::{Fidelity, Outcome, SectionOutcome, StopReason};
use crate::program::divided_over_tiers;
use crate::units::Dtype;
use crate::workload::{self, Workload};

use super::super::system::{Stack, StackKind, System};
use super::service::Service;

/// What a stage does at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pass {
    /// Decode, or else prefill.
    pub decodes: bool,
    /// Users.
    pub users: u64,
    /// Tokens of a prompt or a context.
    pub tokens: u64,
    /// Whether the embedding is part of the stage.
    pub is_first: bool,
    /// Whether the logits are.
    pub is_last: bool,
}

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
}

impl Pass {
    fn phase(&self) -> Phase {
        if self.decodes { Phase::Decode } else { Phase::Prefill }
    }
}

/// Passes that were simulated on a chip, so that each is simulated once.
#[derive(Debug, Clone)]
pub(super) struct Chips {
    chip: AnyChip,
    known: Arc<Mutex<BTreeMap<Pass, ChipTime>>>,
}

impl Chips {
    /// None yet.
    pub(super) fn new(system: &System, stack: &Stack) -> Self {
        Self { chip: driven(system, stack), known: Arc::default() }
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
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known().get(pass).copied();
        let mut time = match found {
            Some(time) => time,
            None => simulated(&self.chip, stack, service, pass)?,
        };
        known().insert(*pass, time);
        time.seconds *= stack.kernel_factor;
        Ok(time)
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
    match &mut chip {
        AnyChip::Rdu(rdu) => {
            if let Some(orchestration) = stack.orchestration {
                rdu.launch.orchestration = orchestration;
            }
        }
        AnyChip::Gpu(gpu) => {
            gpu.fusion.graphs = stack.kind == StackKind::Serving;
            // The stack has a host time of its own.
            gpu.launch.host_us = 0.0;
        }
        AnyChip::Bsp(_) | AnyChip::Systolic(_) | AnyChip::Wafer(_) => {}
    }
    chip
}

fn simulated(chip: &AnyChip, stack: &Stack, service: &Service, pass: &Pass) -> Result<ChipTime, Diagnostic> {
    match chip {
        AnyChip::Rdu(chip) => on_rdu(chip, stack, service, pass),
        AnyChip::Gpu(gpu) => on_gpu(gpu, service, pass),
        AnyChip::Bsp(_) | AnyChip::Systolic(_) | AnyChip::Wafer(_) => {
            let (name, kind) = (chip.device().name(), chip.device().kind());
            let title = format!("{name} is a chip of kind {kind:?}: serving on systems of such chips is not modelled");
            Err(Diagnostic::new(title).with_help("`run`, `compare`, `explain` and `sweep` take the chip alone"))
        }
    }
}

/// The graph of a pass on one chip.
pub(super) fn graph(service: &Service, pass: &Pass, heads_as_rows: bool) -> Result<Workload, Diagnostic> {
    let part = Part { has_embedding: pass.is_first, has_logits: pass.is_last, heads_as_rows, ..Part::default() };
    let text = write_part(&service.options(pass.phase(), pass.users, pass.tokens), part)?;
    workload::parse("the part of the model on one chip", &text, &[], 0)
}

/// The faster of two ways to write attention over a cache: heads side by side, which one section may fuse with the rest of
/// the layer, and the heads of a group as rows, which share a pass over their keys.
fn on_rdu(chip: &Chip, stack: &Stack, service: &Service, pass: &Pass) -> Result<ChipTime, Diagnostic> {
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
    if !pass.decodes || share.heads == share.kv_heads {
        return run(false);
    }
    let (side, rows) = rayon::join(|| run(false), || run(true));
    let (side, rows) = (side?, rows?);
    Ok(if rows.seconds < side.seconds { rows } else { side })
}

/// As kernels of an inference library: attention is the measured one of `serving`, in place of the graph's.
fn on_gpu(gpu: &Gpu, service: &Service, pass: &Pass) -> Result<ChipTime, Diagnostic> {
    if service.density.is_some() {
        return Err(Diagnostic::new("sparse weights are modelled on systems of RDUs only"));
    }
    let workload = graph(service, pass, false)?;
    let outcome = gpu::run(gpu, &workload, &[Mode::Fused])?;
    let outcome = outcome.first().ok_or_else(|| Diagnostic::new("no mode was run"))?;
    let share = service.share();
    let call = AttentionCall {
        dtype: Dtype::Bf16,
        batch: pass.users,
        tokens: pass.tokens,
        heads: share.heads,
        kv_heads: share.kv_heads,
        head_dim: share.head(),
    };
    let (case, with_rotary) = if pass.decodes { (Case::Decode(call), false) } else { (Case::Prefill(call), true) };
    let is_of = |section: &SectionOutcome, wanted: fn(&str) -> bool| section.operators.iter().any(|name| wanted(name));
    let is_attention = |section: &SectionOutcome| is_of(section, |name| matches!(name, "scores" | "softmax" | "mix"));
    let is_rotary = |section: &SectionOutcome| {
        section.operators.iter().all(|name| matches!(name.as_str(), "rotate_key" | "rotate_query"))
    };
    let mut cycles = 0;
    for section in &outcome.sections {
        if !(is_attention(section) || with_rotary && is_rotary(section)) {
            cycles += section.cycles;
        }
    }
    let seconds = |cycles: u64| cycles as f64 / gpu.clock_hz as f64;
    // The call outside its kernels is the stack's to count.
    let each = gpu::seconds(gpu, &case)? - gpu.serving.call_us / 1e6;
    let static_w = outcome.energy().static_ / seconds(outcome.cycles).max(1e-12);
    Ok(of(outcome, seconds(cycles) + each * share.layers as f64, seconds(outcome.cycles), static_w))
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
    }
}
