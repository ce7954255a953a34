//! Truths that need no measurement: what must come out whatever the chip's compiler does.

use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::Override;
use rdusim_base::mode::Mode;
use rdusim_base::units::Dtype;
use rdusim_cost::cost::bound_cycles;
use rdusim_graph::arch::{Chip, Quality};
use rdusim_graph::workload::{self, Builder, Workload};

use super::published::CHIPS;
use super::run::{SetReport, SetRow, outcome};
use super::score::Score;

const GEMM: &str = include_str!("../../../workloads/gemm-square.toml");
const RELU: &str = include_str!("../../../workloads/relu.toml");
const DENSE: &str = include_str!("../../../workloads/gpt13b-mlp.toml");
const SPARSE: &str = include_str!("../../../workloads/gpt13b-mlp-sparse.toml");

/// The analytic sets: traffic formulas, limits of peak and bandwidth, and systolic cycles, with an ideal mapping on SN10.
///
/// # Errors
/// A workload that cannot be run.
pub fn analytic_sets() -> Result<Vec<SetReport>, Diagnostic> {
    let chip = CHIPS[0].load(&[])?;
    Ok(vec![traffic(&chip)?, limits(&chip)?, systolic(&chip)?])
}

fn report(name: &str, chip: &Chip, quantity: &str, source: &str, rows: Vec<SetRow>) -> SetReport {
    let column = |value: fn(&SetRow) -> f64| rows.iter().map(value).collect::<Vec<f64>>();
    let score = Score::new(&column(|row| row.published), &column(|row| row.simulated));
    SetReport {
        name: name.to_owned(),
        chip: chip.name.clone(),
        quality: Quality::Ideal,
        point: "case".to_owned(),
        quantity: quantity.to_owned(),
        source: source.to_owned(),
        plotted: false,
        rows,
        refused: Vec::new(),
        score,
        ideal_score: None,
        parts: Vec::new(),
    }
}

fn row(label: impl Into<String>, published: f64, simulated: f64) -> SetRow {
    SetRow { label: label.into(), at: 0.0, published, simulated, ideal: None, serial: None, outlier: false }
}

fn load(text: &str, sets: &[&str]) -> Result<Workload, Diagnostic> {
    let sets = sets.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    workload::parse("the workload of an analytic set", text, &sets, 0)
}

/// Off-chip bytes of the GPT-13B feed-forward block: 2X + 4H + 2W kernel by kernel, 2X + 2W fused, W as stored.
fn traffic(chip: &Chip) -> Result<SetReport, Diagnostic> {
    let mut rows = Vec::new();
    for (name, text) in [("dense", DENSE), ("sparse", SPARSE)] {
        let workload = load(text, &[])?;
        let bytes = |name: &str| {
            let tensor = workload.tensors.iter().find(|tensor| tensor.name == name);
            tensor.map_or(0, workload::Tensor::stored_bytes)
        };
        let (tokens, d_model, d_ff) = (workload.dims["tokens"], workload.dims["d_model"], workload.dims["d_ff"]);
        let (x, h) = (tokens * d_model * 2, tokens * d_ff * 2);
        let weights = bytes("w_up") + bytes("w_down");
        for (mode, truth) in [(Mode::Kbk, 2 * x + 4 * h + weights), (Mode::Fused, 2 * x + weights)] {
            let moved = outcome(chip, &workload, mode)?.traffic().off_chip_bytes();
            rows.push(row(format!("GPT-13B feed-forward, {name}, {}", mode.name()), truth as f64, moved as f64));
        }
    }
    Ok(report("analytic-traffic", chip, "off-chip bytes", "2X + 4H + 2W kernel by kernel, 2X + 2W fused", rows))
}

/// Time of work bound by one resource: launch + the larger of FLOP over peak and bytes over bandwidth, a lower bound.
fn limits(chip: &Chip) -> Result<SetReport, Diagnostic> {
    let mut rows = Vec::new();
    let mut case = |label: String, chip: &Chip, workload: &Workload| -> Result<(), Diagnostic> {
        let cycles = outcome(chip, workload, Mode::Kbk)?.cycles;
        let bound = bound_cycles(chip, workload, Mode::Kbk);
        rows.push(row(label, chip.seconds(bound) * 1e6, chip.seconds(cycles) * 1e6));
        Ok(())
    };
    for rows in [4096, 65536] {
        let workload = load(RELU, &[&format!("workload.dims.rows={rows}")])?;
        case(format!("ReLU of {rows} x 1024, bound by memory"), chip, &workload)?;
    }
    for n in [2048, 8192] {
        let workload = load(GEMM, &[&format!("workload.dims.n={n}")])?;
        case(format!("GEMM of {n}^3, bound by {}", if n < 4096 { "memory" } else { "compute" }), chip, &workload)?;
    }
    Ok(report("analytic-limits", chip, "microseconds", "launch + max(FLOP / peak, bytes / bandwidth)", rows))
}

/// Cycles the busiest PCU works on a GEMM whose tiles fill every PCU evenly: M N K / (PCUs x lanes x stages).
fn systolic(chip: &Chip) -> Result<SetReport, Diagnostic> {
    let lanes = chip.pcu.lanes.get(&Dtype::Bf16).copied().unwrap_or(1);
    let mut rows = Vec::new();
    // Tiles of `lanes` x `stages`: 40 x 16 of them, one for each PCU, some times over.
    for (m_times, n_times, k) in [(1, 8, 4096), (2, 10, 2048), (4, 4, 8192)] {
        let (m, n) = (lanes * 40 * m_times, chip.pcu.stages * 16 * n_times);
        let tiles = Builder::product("bf16", m, n, k).finish().workload("the workload of an analytic set", 0)?;
        // With bandwidth to spare there is a reason to use every PCU.
        let mut fed = chip.clone();
        let faster = |tier: &rdusim_graph::arch::Tier| rdusim_graph::arch::Tier {
            bandwidth_bytes_per_s: tier.bandwidth_bytes_per_s * 50,
            ..tier.clone()
        };
        fed.memory = chip.memory.iter().map(faster).collect();
        let outcome = outcome(&fed, &tiles, Mode::Kbk)?;
        let busiest = outcome.sections[0].stages[0].busiest_cycles;
        let truth = m * n * k / (chip.pcus() * lanes * chip.pcu.stages);
        rows.push(row(format!("GEMM of {m} x {n} x {k}"), truth as f64, busiest as f64));
    }
    Ok(report("analytic-systolic", chip, "busy cycles", "M N K / (PCUs x lanes x stages)", rows))
}
