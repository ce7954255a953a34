//! Exchanges between tiles, and the best square products, as a micro-benchmark of a chip of tiles tabulates them: a metric in words, a
//! place in words, a count, and a value with its unit.

use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::Bsp;
use rdusim_graph::workload::ProductShape;
use rdusim_machines::bsp::{self, ExchangeCase, Pattern, Place};

use super::line::Line;

/// Name of the kind of case.
pub(super) const EXCHANGE: &str = "exchange";
/// Its columns.
pub(super) const COLUMNS: [&str; 5] = ["metric", "case", "tiles_or_transfers", "value", "unit"];

/// Steps of the sizes among which the best square product is looked for, and the largest.
const SQUARE_STEP: u64 = 64;
const SQUARE_MOST: u64 = 8192;

/// A line in words, its measured and its simulated value in its own unit.
pub(super) fn compared(line: &Line, chip: &Bsp) -> Result<(String, f64, f64), Diagnostic> {
    let (metric, place, unit) = (line.text("metric"), line.text("case"), line.text("unit"));
    let found = line.text("value");
    let published = found.parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0);
    let published = published.ok_or_else(|| line.error("value", found, "a number above 0"))?;
    let label = format!("{metric}; {place}; {}; {unit}", line.text("tiles_or_transfers"));
    let metric = metric.to_ascii_lowercase();
    if unit == "TFLOP/s" {
        return Ok((label, published, best_square(line, chip, &metric)? / 1e12));
    }
    let tiles = line.count("tiles_or_transfers")?;
    let pattern = if place.to_ascii_lowercase().contains("to self") {
        Pattern::Local
    } else {
        pattern(&metric).ok_or_else(|| {
            let expected = "words of a pattern: p2p, broadcast, scatter, gather, all to all or reduction";
            line.error("metric", line.text("metric"), expected)
        })?
    };
    let case = ExchangeCase { pattern, place: self::place(place), tiles };
    let simulated = match unit {
        "us" | "ns" => bsp::exchange_us(chip, case).map(|us| if unit == "ns" { us * 1e3 } else { us }),
        "GB/s" => bsp::exchange_bandwidth(chip, case).map(|rate| {
            let each = if metric.contains("per transfer") { tiles as f64 } else { 1.0 };
            rate / each / 1e9
        }),
        _ => return Err(line.error("unit", unit, "us, ns, GB/s or TFLOP/s")),
    };
    let simulated = simulated.ok_or_else(|| {
        let known: Vec<&str> = chip.links.keys().map(String::as_str).collect();
        line.error("case", place, &format!("a path of {}: on the chip, {}", chip.name, known.join(", ")))
    })?;
    Ok((label, published, simulated))
}

/// The pattern that a metric names.
fn pattern(metric: &str) -> Option<Pattern> {
    let words = [
        ("broadcast", Pattern::Broadcast),
        ("scatter", Pattern::Scatter),
        ("gather", Pattern::Gather),
        ("all to all", Pattern::AllToAll),
        ("all-to-all", Pattern::AllToAll),
        ("alltoall", Pattern::AllToAll),
        ("reduc", Pattern::Reduction),
        ("p2p", Pattern::Pairs),
        ("point", Pattern::Pairs),
    ];
    words.into_iter().find(|(word, _)| metric.contains(word)).map(|(_, pattern)| pattern)
}

/// The place that a case names: chips on one board, over a direct link or without one, several boards, else one chip.
fn place(case: &str) -> Place<'static> {
    let case = case.to_ascii_lowercase();
    let ladders = [("two boards", 4), ("four boards", 8), ("eight boards", 16), ("entire system", 16), ("16 ipus", 16)];
    if let Some((_, chips)) = ladders.into_iter().find(|(word, _)| case.contains(word)) {
        return Place::Ladder(chips);
    }
    let links = [
        ("no direct", "indirect"),
        ("indirect", "indirect"),
        ("same board", "board"),
        ("direct", "direct"),
        ("link", "direct"),
    ];
    links.into_iter().find(|(word, _)| case.contains(word)).map_or(Place::Chip, |(_, name)| Place::Link(name))
}

/// FLOP a second of the best square product, in steps of 64, no larger than the line says if it does.
fn best_square(line: &Line, chip: &Bsp, metric: &str) -> Result<f64, Diagnostic> {
    let dtype = if metric.contains("fp32") { Dtype::Fp32 } else { Dtype::Fp16 };
    let most = line.text("tiles_or_transfers").parse::<u64>().ok().filter(|n| *n > 0).unwrap_or(SQUARE_MOST);
    let rate = |n: u64| {
        let seconds = bsp::gemm_seconds(chip, dtype, ProductShape { m: n, n, k: n }).ok()?;
        Some(2.0 * (n * n * n) as f64 / seconds)
    };
    let sizes = (1..=most.min(SQUARE_MOST) / SQUARE_STEP).map(|step| step * SQUARE_STEP);
    sizes.filter_map(rate).max_by(f64::total_cmp).ok_or_else(|| {
        line.error(
            "tiles_or_transfers",
            line.text("tiles_or_transfers"),
            "a size of which a square product fits the chip",
        )
    })
}
