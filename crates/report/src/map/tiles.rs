//! The plan of a chip of tiles, step by step and tile by tile.
//!
//! Tiles are in the order in which plans number them: which place on the die a number has is not known. Equal neighbours are one entry
//! with a count.

use serde::Serialize;

use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::mode::Mode;
use rdusim_graph::arch::Bsp;
use rdusim_graph::workload::Workload;
use rdusim_machines::bsp::{self, TileOperator, TileStep};

/// A plan on tiles.
#[derive(Debug, Clone, Serialize)]
pub struct TileMap {
    /// Version of the object's shape.
    pub schema: u32,
    /// The chip.
    pub arch: TileArch,
    /// Name of the workload.
    pub workload: String,
    /// How the graph is cut into programs.
    pub mode: &'static str,
    /// Remarks of the workload.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Operators in order.
    pub operators: Vec<MappedOperator>,
}

/// The tiles of a chip.
#[derive(Debug, Clone, Serialize)]
pub struct TileArch {
    /// Name of the chip.
    pub name: String,
    /// Tiles that compute.
    pub tiles: u64,
    /// Tiles that only stream, which the map leaves out.
    pub io_tiles: u64,
    /// Memory of a tile.
    pub sram_bytes: u64,
    /// Of it, bytes that no tensor can have.
    pub reserved_bytes: u64,
}

/// An operator.
#[derive(Debug, Clone, Serialize)]
pub struct MappedOperator {
    /// Name in the workload.
    pub name: String,
    /// `forward`, `backward`, `update` or `pattern`.
    pub phase: &'static str,
    /// Times that it runs.
    pub repeat: u64,
    /// How it is split, in words.
    pub mapping: String,
    /// Bytes of every tile that live longer than the operator.
    pub live_bytes: u64,
    /// Supersteps in order.
    pub steps: Vec<MappedStep>,
}

/// A superstep.
#[derive(Debug, Clone, Serialize)]
pub struct MappedStep {
    /// What it does.
    pub name: String,
    /// Times that it runs, one after the other.
    pub times: u64,
    /// Cycles of one run with its exchange.
    pub cycles: u64,
    /// Cycles of the exchange and its barrier.
    pub exchange_cycles: u64,
    /// Tiles that work.
    pub tiles_at_work: u64,
    /// Mean cycles at work of all tiles over those of the busiest.
    pub balance: f64,
    /// Cycles at work, once, of the tiles in order: a value, and how many tiles have it.
    pub cycles_by_tile: Vec<(u64, u64)>,
    /// Bytes in use for the step, the same way; `live_bytes` are beside them.
    pub bytes_by_tile: Vec<(u64, u64)>,
}

impl MappedStep {
    /// Cycles and bytes of every tile.
    pub fn tiles(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let flat = |runs: &'_ [(u64, u64)]| -> Vec<u64> {
            runs.iter().flat_map(|&(value, count)| std::iter::repeat_n(value, count as usize)).collect()
        };
        flat(&self.cycles_by_tile).into_iter().zip(flat(&self.bytes_by_tile))
    }

    /// Bytes that the step needs of its fullest tile.
    pub fn most_bytes(&self) -> u64 {
        self.bytes_by_tile.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0)
    }
}

/// One step of a map: its operator's place, and its own.
pub type StepPlace = (usize, usize);

impl TileMap {
    /// The step whose fullest tile holds most, and the one that takes longest in all its runs.
    pub fn notable(&self) -> Option<[StepPlace; 2]> {
        let steps = || {
            let all = self.operators.iter().enumerate();
            all.flat_map(|(at, operator)| operator.steps.iter().enumerate().map(move |(step, of)| ((at, step), of)))
        };
        let held = |&((at, _), step): &(StepPlace, &MappedStep)| self.operators[at].live_bytes + step.most_bytes();
        let taken = |&((at, _), step): &(StepPlace, &MappedStep)| {
            step.cycles.saturating_mul(step.times).saturating_mul(self.operators[at].repeat)
        };
        // The first of equals.
        let fullest = steps().rev().max_by_key(held)?;
        let longest = steps().rev().max_by_key(taken)?;
        Some([fullest.0, longest.0])
    }

    /// The steps of an operator, or one of them, by name: `OPERATOR` or `OPERATOR.STEP`.
    ///
    /// # Errors
    /// A name that is none, with those that are.
    pub fn named(&self, name: &str) -> Result<Vec<StepPlace>, Diagnostic> {
        let mut list = Vec::new();
        for (at, operator) in self.operators.iter().enumerate() {
            let of_step = name.strip_prefix(operator.name.as_str()).and_then(|rest| rest.strip_prefix('.'));
            let is_meant = |step: &MappedStep| operator.name == name || of_step == Some(step.name.as_str());
            let steps = operator.steps.iter().enumerate().filter(|(_, step)| is_meant(step));
            list.extend(steps.map(|(step, _)| (at, step)));
        }
        if list.is_empty() {
            let known: Vec<&str> = self.operators.iter().map(|operator| operator.name.as_str()).take(40).collect();
            let title = format!("`--step` is {name:?}: no operator or step of one has that name");
            return Err(Diagnostic::new(title).with_help(format!("operators are {}", known.join(", "))));
        }
        Ok(list)
    }
}

/// Plans a workload and tells what every tile does and holds.
///
/// # Errors
/// What the chip refuses, or what does not fit.
pub fn tile_map(chip: &Bsp, workload: &Workload, mode: Mode) -> Result<TileMap, Diagnostic> {
    let list = bsp::layout(chip, workload, mode)?;
    Ok(TileMap {
        schema: 1,
        arch: TileArch {
            name: chip.name.clone(),
            tiles: chip.tile.count - chip.tile.io_tiles,
            io_tiles: chip.tile.io_tiles,
            sram_bytes: chip.tile.sram_bytes,
            reserved_bytes: chip.tile.reserved_bytes,
        },
        workload: workload.name.clone(),
        mode: mode.name(),
        notes: workload.notes.clone(),
        operators: list.iter().map(|operator| mapped(workload, operator)).collect(),
    })
}

fn mapped(workload: &Workload, of: &TileOperator) -> MappedOperator {
    let step = |step: &TileStep| -> MappedStep {
        let whole = |value: f64| value.max(0.0).ceil() as u64;
        let cycles: Vec<u64> = step.tiles.iter().map(|tile| whole(tile.cycles)).collect();
        let (all, most) = (cycles.iter().sum::<u64>() as f64, cycles.iter().copied().max().unwrap_or(0));
        MappedStep {
            name: step.name.clone(),
            times: step.times,
            cycles: whole(step.cycles),
            exchange_cycles: whole(step.exchange_cycles),
            tiles_at_work: cycles.iter().filter(|cycles| **cycles > 0).count() as u64,
            balance: if most == 0 { 1.0 } else { all / cycles.len().max(1) as f64 / most as f64 },
            cycles_by_tile: counted(cycles.into_iter()),
            bytes_by_tile: counted(step.tiles.iter().map(|tile| whole(tile.bytes))),
        }
    };
    MappedOperator {
        name: workload.operators[of.op].name.clone(),
        phase: of.phase.name(),
        repeat: of.repeat,
        mapping: of.shape.clone(),
        live_bytes: of.live_bytes.max(0.0).ceil() as u64,
        steps: of.steps.iter().map(step).collect(),
    }
}

/// Equal neighbours as a value and their number.
fn counted(values: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut list: Vec<(u64, u64)> = Vec::new();
    for value in values {
        match list.last_mut() {
            Some((known, count)) if *known == value => *count += 1,
            _ => list.push((value, 1)),
        }
    }
    list
}
