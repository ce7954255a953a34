//! The study of `reports/sparsity/`: what density and block size buy on SN10 and SN40L, and what shared streams cost.
//!
//! `cargo run --release --example sparsity_study` from the root of the repository (some minutes) writes the CSV files and
//! plots again, and prints what they show. `--tokens N` changes the rows of the block, `--out DIR` the directory.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use rdusim::arch::{self, Chip};
use rdusim::compile::Style;
use rdusim::input::Override;
use rdusim::report::{Curve, CurveChart, File, write};
use rdusim::sim::{Fidelity, Mode, Outcome, compile_measured, simulate_measured};
use rdusim::sparsity::Pattern;
use rdusim::workload::{self, Workload};

const CHIPS: [&str; 2] = ["sn10", "sn40l"];
const BLOCKS: [u64; 5] = [1, 4, 8, 16, 32];
const DENSITIES: [u64; 6] = [2, 4, 8, 16, 32, 64];
/// A larger block may be slower by this without being told of.
const SLACK: f64 = 1.03;

/// What is run: a name, and how the weights are sparse.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    pattern: String,
    /// One over the density.
    inverse_density: u64,
    /// The `sparsity` of both weights; dense if empty.
    sparsity: String,
}

/// A run, as it goes into the CSV file.
#[derive(Debug, Clone)]
struct Row {
    chip: &'static str,
    mode: Mode,
    case: Case,
    cycles: u64,
    off_chip_bytes: u64,
    bound_by: String,
    styles: String,
}

fn cases() -> Vec<Case> {
    let dense = Case { pattern: "dense".into(), inverse_density: 1, sparsity: String::new() };
    let mut list = vec![dense];
    for block in BLOCKS {
        for inverse_density in DENSITIES {
            let density = 1.0 / inverse_density as f64;
            let sparsity =
                format!("{{ pattern = \"block\", density = {density}, block = [{block}, {block}], seed = SEED }}");
            list.push(Case { pattern: format!("block {block}"), inverse_density, sparsity });
        }
    }
    let sparsity = "{ pattern = \"nm\", n = 2, m = 4, seed = SEED }".to_owned();
    list.push(Case { pattern: "2:4".into(), inverse_density: 2, sparsity });
    list
}

fn load(case: &Case, tokens: u64) -> Result<Workload, Box<dyn Error>> {
    let mut sets = vec![format!("workload.dims.tokens={tokens}")];
    if !case.sparsity.is_empty() {
        for (seed, weight) in [(1, "w_up"), (2, "w_down")] {
            let sparsity = case.sparsity.replace("SEED", &format!("{seed}"));
            sets.push(format!("workload.tensors.{weight}.sparsity={sparsity}"));
        }
    }
    let sets = sets.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    Ok(workload::load(Path::new("workloads/gpt13b-mlp.toml"), &sets, 0)?)
}

/// Runs a case both ways.
fn run(name: &'static str, chip: &Chip, case: &Case, tokens: u64) -> Result<Vec<Row>, String> {
    let fail = |error: String| format!("{name}, {} at 1/{}: {error}", case.pattern, case.inverse_density);
    let workload = load(case, tokens).map_err(|error| fail(error.to_string()))?;
    let compiled = compile_measured(chip, &workload, &[Mode::Kbk, Mode::Fused]).map_err(|e| fail(e.to_string()))?;
    let row = |measured: &rdusim::sim::Measured| {
        let outcome: Outcome = simulate_measured(chip, &workload, measured, Fidelity::Event);
        let bound_by = outcome.sections.iter().map(|s| s.bound_by.to_string()).collect::<Vec<_>>().join(" ");
        let stages = measured.configuration.sections.iter().flat_map(|section| &section.stages);
        let gemms = stages.filter_map(|stage| match &stage.mapping {
            rdusim::compile::Mapping::Gemm(m) if m.style == Style::Gather => Some("gather".to_owned()),
            rdusim::compile::Mapping::Gemm(m) if m.share == m.pn => Some("all".to_owned()),
            rdusim::compile::Mapping::Gemm(m) => Some(format!("skip{}", m.share)),
            rdusim::compile::Mapping::Simd(_) => None,
        });
        Row {
            chip: name,
            mode: outcome.mode,
            case: case.clone(),
            cycles: outcome.cycles,
            off_chip_bytes: outcome.sections.iter().map(|s| s.traffic.off_chip_bytes()).sum(),
            bound_by,
            styles: gemms.collect::<Vec<_>>().join(" "),
        }
    };
    Ok(compiled.iter().map(row).collect())
}

/// The runs of one chip and mode by pattern and density, and the dense one.
struct Panel<'a> {
    chip: &'static str,
    mode: Mode,
    dense: &'a Row,
    by_pattern: Vec<(String, BTreeMap<u64, &'a Row>)>,
}

impl<'a> Panel<'a> {
    fn of(rows: &'a [Row], chip: &'static str, mode: Mode) -> Option<Self> {
        let mine = || rows.iter().filter(|row| row.chip == chip && row.mode == mode);
        let dense = mine().find(|row| row.case.inverse_density == 1)?;
        let mut by_pattern: Vec<(String, BTreeMap<u64, &Row>)> = Vec::new();
        for row in mine().filter(|row| row.case.inverse_density > 1) {
            let name = &row.case.pattern;
            match by_pattern.iter_mut().find(|(known, _)| known == name) {
                Some((_, list)) => drop(list.insert(row.case.inverse_density, row)),
                None => by_pattern.push((name.clone(), BTreeMap::from([(row.case.inverse_density, row)]))),
            }
        }
        Some(Self { chip, mode, dense, by_pattern })
    }

    fn speedup(&self, row: &Row) -> f64 {
        self.dense.cycles as f64 / row.cycles as f64
    }

    fn chart(&self, tokens: u64) -> CurveChart {
        let curve = |(name, list): &(String, BTreeMap<u64, &Row>)| {
            let points = list.iter().rev().map(|(&inverse, row)| (1.0 / inverse as f64, self.speedup(row))).collect();
            Curve { name: name.clone(), points, dashed: false }
        };
        let mut curves: Vec<Curve> = self.by_pattern.iter().map(curve).collect();
        let ideal = DENSITIES.iter().rev().map(|&inverse| (1.0 / inverse as f64, inverse as f64)).collect();
        curves.push(Curve { name: "1 / density".into(), points: ideal, dashed: true });
        CurveChart {
            title: "Speedup of sparse over dense weights".into(),
            about: format!("GPT-13B feed-forward block, {tokens} tokens, {}, {}", self.chip, self.mode.name()),
            x_name: "density".into(),
            y_name: "dense cycles / sparse cycles".into(),
            curves,
        }
    }

    /// The density below which a pattern is faster than dense, between measured ones on logarithmic axes.
    fn crossover(&self, list: &BTreeMap<u64, &Row>) -> String {
        let points: Vec<(f64, f64)> =
            list.iter().map(|(&inverse, row)| ((inverse as f64).log2(), self.speedup(row).log2())).collect();
        match points.as_slice() {
            [first, ..] if first.1 > 0.0 => format!("faster at {:.4} already", 2f64.powf(-first.0)),
            _ => points.windows(2).find(|ends| ends[0].1 <= 0.0 && ends[1].1 > 0.0).map_or_else(
                || "never faster".to_owned(),
                |ends| {
                    let at = ends[0].0 - ends[0].1 * (ends[1].0 - ends[0].0) / (ends[1].1 - ends[0].1);
                    format!("faster below {:.4}", 2f64.powf(-at))
                },
            ),
        }
    }

    fn told(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\n{} {}: dense {} cycles", self.chip, self.mode.name(), self.dense.cycles)?;
        for (name, list) in &self.by_pattern {
            let all: Vec<String> = list.iter().map(|(i, row)| format!("1/{i} {:.2}x", self.speedup(row))).collect();
            writeln!(text, "  {name:<9} {:<24} {}", self.crossover(list), all.join("  "))?;
        }
        for pair in self.by_pattern.windows(2).filter(|pair| pair[1].0.starts_with("block")) {
            for (inverse, larger) in &pair[1].1 {
                if let Some(smaller) = pair[0].1.get(inverse)
                    && larger.cycles as f64 > SLACK * smaller.cycles as f64
                {
                    let slower = 100.0 * (larger.cycles as f64 / smaller.cycles as f64 - 1.0);
                    writeln!(
                        text,
                        "  {} at 1/{inverse} is {slower:.1} % slower than {}: bound by {} ({}), not {} ({})",
                        pair[1].0, pair[0].0, larger.bound_by, larger.styles, smaller.bound_by, smaller.styles
                    )?;
                }
            }
        }
        Ok(())
    }
}

/// Executed over stored multiply-accumulates when `pcus` columns of PCUs share one stream of activations.
fn union_effect(density: f64, block: u64, grain: u64, pcus: u64) -> f64 {
    let mask = Pattern::Random { density }.draw(5120, 5120, (block, block), 7);
    let width = grain * pcus;
    let mut executed = 0;
    for start in (0..5120).step_by(width as usize) {
        let end = (start + width).min(5120);
        let words = mask.words_per_column();
        let mut union = vec![0; words];
        for n in start / block..=(end - 1) / block {
            union.iter_mut().zip(mask.column_words(n)).for_each(|(sum, word)| *sum |= word);
        }
        executed += mask.rows_in(&union, 0, 0..mask.k_blocks()) * (end - start);
    }
    executed as f64 / mask.stored_elements() as f64
}

fn union_study() -> Result<(String, CurveChart), std::fmt::Error> {
    let mut csv = String::from("block,density,columns_on_one_stream,executed_over_stored\n");
    let mut curves = Vec::new();
    for (block, density) in [(1, 0.125), (16, 0.5), (16, 0.125), (16, 1.0 / 64.0), (32, 0.125)] {
        let points: Vec<(f64, f64)> = (0..8)
            .map(|power| 1u64 << power)
            .map(|pcus| (pcus as f64, union_effect(density, block, 16, pcus)))
            .collect();
        for (pcus, ratio) in &points {
            writeln!(csv, "{block},{density},{pcus},{ratio:.6}")?;
        }
        curves.push(Curve { name: format!("block {block} at 1/{}", 1.0 / density), points, dashed: false });
    }
    let chart = CurveChart {
        title: "What shared streams of activations cost".into(),
        about:
            "5120 x 5120 weights; columns of PCUs of 16 weight columns each on one stream skip what all of them skip"
                .into(),
        x_name: "columns of PCUs on one stream".into(),
        y_name: "executed / stored multiply-accumulates".into(),
        curves,
    };
    Ok((csv, chart))
}

fn argument(name: &str) -> Option<String> {
    let arguments: Vec<String> = std::env::args().collect();
    arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1)).cloned()
}

fn main() -> Result<(), Box<dyn Error>> {
    let tokens: u64 = argument("--tokens").map_or(Ok(2048), |text| text.parse())?;
    let directory = PathBuf::from(argument("--out").unwrap_or_else(|| "reports/sparsity".into()));
    let mut rows = Vec::new();
    for name in CHIPS {
        let chip = arch::load(Path::new(&format!("arch/{name}.toml")), &[])?;
        let done: Result<Vec<Vec<Row>>, String> =
            cases().par_iter().map(|case| run(name, &chip, case, tokens)).collect();
        rows.extend(done?.into_iter().flatten());
    }
    let mut csv = String::from("chip,mode,pattern,density,cycles,speedup,off_chip_bytes,bound_by,styles\n");
    let mut text = format!("GPT-13B feed-forward block, {tokens} tokens: speedup over dense\n");
    let mut files = Vec::new();
    for chip in CHIPS {
        for mode in [Mode::Kbk, Mode::Fused] {
            let Some(panel) = Panel::of(&rows, chip, mode) else { continue };
            for row in rows.iter().filter(|row| row.chip == chip && row.mode == mode) {
                let density = 1.0 / row.case.inverse_density as f64;
                writeln!(
                    csv,
                    "{chip},{},{},{density},{},{:.4},{},{},{}",
                    mode.name(),
                    row.case.pattern,
                    row.cycles,
                    panel.speedup(row),
                    row.off_chip_bytes,
                    row.bound_by,
                    row.styles
                )?;
            }
            panel.told(&mut text)?;
            let (chart, name) = (panel.chart(tokens), format!("speedup-{chip}-{}", mode.name()));
            files.push(File { name: format!("{name}.svg"), bytes: chart.svg()?.into_bytes() });
            files.push(File { name: format!("{name}.png"), bytes: chart.png()? });
        }
        fused_gain(&rows, chip, &mut text)?;
    }
    let (union_csv, chart) = union_study()?;
    files.push(File { name: "union.svg".into(), bytes: chart.svg()?.into_bytes() });
    files.push(File { name: "union.png".into(), bytes: chart.png()? });
    files.push(File { name: "union.csv".into(), bytes: union_csv.into_bytes() });
    files.push(File { name: "speedup.csv".into(), bytes: csv.into_bytes() });
    files.push(File { name: "summary.txt".into(), bytes: text.clone().into_bytes() });
    write(&directory, &files)?;
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// Fused over kernel by kernel at each density.
fn fused_gain(rows: &[Row], chip: &'static str, text: &mut String) -> Result<(), std::fmt::Error> {
    let (Some(kbk), Some(fused)) = (Panel::of(rows, chip, Mode::Kbk), Panel::of(rows, chip, Mode::Fused)) else {
        return Ok(());
    };
    let dense = kbk.dense.cycles as f64 / fused.dense.cycles as f64;
    writeln!(text, "\n{chip}: fused over kernel by kernel (dense {dense:.2}x)")?;
    for ((name, kbk), (_, fused)) in kbk.by_pattern.iter().zip(&fused.by_pattern) {
        let gain = |(i, row): (&u64, &&Row)| {
            fused.get(i).map(|f| format!("1/{i} {:.2}x", row.cycles as f64 / f.cycles as f64))
        };
        let gains: Vec<String> = kbk.iter().filter_map(gain).collect();
        writeln!(text, "  {name:<9} {}", gains.join("  "))?;
    }
    Ok(())
}
