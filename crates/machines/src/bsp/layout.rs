//! What every tile does and holds at each step of a plan.
//!
//! Invariant: no tile works longer than the step's busiest, and none holds more than the step's fullest.

use super::operators::Planned;
use super::step::{Superstep, TileLoad};
use super::{check_types, gemm, planned, programs, vertex};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::mode::Mode;
use rdusim_graph::arch::Bsp;
use rdusim_graph::workload::{OperatorId, Phase, Workload};

/// An operator on the tiles.
#[derive(Debug, Clone)]
pub struct TileOperator {
    /// The operator.
    pub op: OperatorId,
    /// Its phase.
    pub phase: Phase,
    /// Times that it runs.
    pub repeat: u64,
    /// How it is split, in words.
    pub shape: String,
    /// Bytes of a tile that live longer than the operator.
    pub live_bytes: f64,
    /// Its supersteps.
    pub steps: Vec<TileStep>,
}

/// A superstep on the tiles.
#[derive(Debug, Clone)]
pub struct TileStep {
    /// What it does.
    pub name: String,
    /// Times that it runs, one after the other.
    pub times: u64,
    /// Cycles of one run with the exchange before it.
    pub cycles: f64,
    /// Cycles of its exchange and barrier.
    pub exchange_cycles: f64,
    /// Every tile: cycles at work, and bytes in use for the step.
    pub tiles: Vec<TileLoad>,
}

/// The plan of a workload in a mode, tile by tile: those that compute, in the order in which plans number them.
///
/// # Errors
/// As [`super::run`].
pub fn layout(chip: &Bsp, workload: &Workload, mode: Mode) -> Result<Vec<TileOperator>, Diagnostic> {
    check_types(chip, workload)?;
    let chip = &chip.computing();
    let (_, plans) = planned(chip, workload, mode, &programs(workload, mode))?;
    let of = |plan: &Planned| {
        let operator = &workload.operators[plan.op];
        let fullest = plan.steps.iter().map(|step| step.temporary_bytes).fold(0.0, f64::max);
        TileOperator {
            op: plan.op,
            phase: operator.phase,
            repeat: operator.repeat,
            shape: plan.shape.clone(),
            live_bytes: plan.peak_bytes - fullest,
            steps: plan.steps.iter().map(|step| tile_step(chip, workload, plan, step)).collect(),
        }
    };
    Ok(plans.iter().map(of).collect())
}

fn tile_step(chip: &Bsp, workload: &Workload, plan: &Planned, step: &Superstep) -> TileStep {
    let parts = step.parts(chip);
    let times = step.times.max(1) as f64;
    let exchange_cycles = (parts.sync + parts.exchange) / times;
    let all = TileLoad { cycles: step.busiest_cycles, bytes: step.temporary_bytes };
    let mut tiles = shares(chip, workload, plan, step).unwrap_or_default();
    if tiles.is_empty() {
        // Working tiles alike, as many as the mean says.
        let share = if step.busiest_cycles > 0.0 { step.mean_cycles / step.busiest_cycles } else { 1.0 };
        let at_work = (share * chip.tile.count as f64).round().clamp(1.0, chip.tile.count as f64);
        tiles = vec![all; at_work as usize];
    }
    tiles.resize(chip.tile.count as usize, TileLoad::default());
    for tile in &mut tiles {
        *tile = TileLoad { cycles: tile.cycles.min(all.cycles), bytes: tile.bytes.min(all.bytes) };
    }
    TileStep {
        name: step.name.clone(),
        times: step.times,
        cycles: step.busiest_cycles + exchange_cycles,
        exchange_cycles,
        tiles,
    }
}

/// Loads of the tiles where a plan tells them apart: of products their slices and blocks, of rows and elements the last tiles' lack.
fn shares(chip: &Bsp, workload: &Workload, plan: &Planned, step: &Superstep) -> Option<Vec<TileLoad>> {
    if !plan.loads.is_empty() && plan.loads_of == step.name {
        return Some(plan.loads.to_vec());
    }
    if let Some((product, grid)) = &plan.dense {
        return (step.name == "multiply").then(|| gemm::loads(chip, product, grid));
    }
    if plan.sparse == Some(true) || step.name.contains("I/O tiles") || step.name.contains("layout") {
        return None;
    }
    let items = vertex::items(workload, plan.op)?;
    let each = items.div_ceil(plan.tiles.max(1));
    let of = |tile: u64| {
        let share = items.saturating_sub(tile * each).min(each) as f64 / each.max(1) as f64;
        TileLoad { cycles: step.busiest_cycles * share, bytes: step.temporary_bytes * share }
    };
    Some((0..plan.tiles).map(of).collect())
}
