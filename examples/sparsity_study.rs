//! The study of `reports/sparsity/`: what density and block size buy on SN10 and SN40L, and what shared streams cost.
//!
//! `cargo run --release --example sparsity_study` from the root of the repository writes the CSV files and plots again,
//! and prints what they show. `speedup.csv` is written after every case, and what stands in it is not run again: an
//! interrupted study goes on where it was, `--again` begins anew. `--tokens N` changes the rows of the block, `--out DIR`
//! the directory. The exit code is 1 if an ordering that must hold does not and nothing says why.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

use rayon::prelude::*;
use rdusim::arch::{self, Chip};
use rdusim::compile::{compile_measured, simulate_measured};
use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, Outcome};
use rdusim::program::Style;
use rdusim::report::{Curve, CurveChart, File, write};
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
#[derive(Debug, Clone, PartialEq)]
struct Row {
    chip: &'static str,
    mode: Mode,
    pattern: String,
    /// One over the density.
    inverse_density: u64,
    tokens: u64,
    cycles: u64,
    launch_cycles: u64,
    off_chip_bytes: u64,
    /// Of those, weights.
    weight_bytes: u64,
    bound_by: String,
    styles: String,
}

const HEADER: &str =
    "chip,mode,pattern,density,tokens,cycles,speedup,launch_cycles,off_chip_bytes,weight_bytes,bound_by,styles";

impl Row {
    fn line(&self, dense_cycles: u64) -> String {
        let Row {
            chip, pattern, tokens, cycles, launch_cycles, off_chip_bytes, weight_bytes, bound_by, styles, ..
        } = self;
        format!(
            "{chip},{},{pattern},{},{tokens},{cycles},{:.4},{launch_cycles},{off_chip_bytes},{weight_bytes},{bound_by},{styles}",
            self.mode.name(),
            1.0 / self.inverse_density as f64,
            dense_cycles as f64 / *cycles as f64,
        )
    }

    /// A line of the file; `None` if it is none.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split(',').collect();
        let &[chip, mode, pattern, density, tokens, cycles, _, launch, bytes, weights, bound_by, styles] =
            fields.as_slice()
        else {
            return None;
        };
        Some(Self {
            chip: CHIPS.into_iter().find(|known| *known == chip)?,
            mode: [Mode::Kbk, Mode::Fused].into_iter().find(|known| known.name() == mode)?,
            pattern: pattern.to_owned(),
            inverse_density: (1.0 / density.parse::<f64>().ok()?).round() as u64,
            tokens: tokens.parse().ok()?,
            cycles: cycles.parse().ok()?,
            launch_cycles: launch.parse().ok()?,
            off_chip_bytes: bytes.parse().ok()?,
            weight_bytes: weights.parse().ok()?,
            bound_by: bound_by.to_owned(),
            styles: styles.to_owned(),
        })
    }
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
    let row = |measured: &rdusim::compile::Compiled| {
        let outcome: Outcome = simulate_measured(chip, &workload, measured, Fidelity::Event);
        let traffic = outcome.traffic();
        let of_weights = |name: &str| traffic.by_tensor.get(name).map_or(0, |t| t.off_chip_read_bytes);
        let bound_by = outcome.sections.iter().map(|s| s.bound_by.to_string()).collect::<Vec<_>>().join(" ");
        let stages = measured.configuration.sections.iter().flat_map(|section| &section.stages);
        let gemms = stages.filter_map(|stage| match &stage.mapping {
            rdusim::program::Mapping::Gemm(m) if m.style == Style::Gather => Some("gather".to_owned()),
            rdusim::program::Mapping::Gemm(m) if m.multicast_width == m.pn => Some("all".to_owned()),
            rdusim::program::Mapping::Gemm(m) => Some(format!("skip{}", m.multicast_width)),
            rdusim::program::Mapping::Simd(_) => None,
        });
        Row {
            chip: name,
            mode: outcome.mode,
            pattern: case.pattern.clone(),
            inverse_density: case.inverse_density,
            tokens,
            cycles: outcome.cycles,
            launch_cycles: outcome.sections.iter().map(|s| s.launch_cycles).sum(),
            off_chip_bytes: traffic.off_chip_bytes(),
            weight_bytes: of_weights("w_up") + of_weights("w_down"),
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
    /// Lanes (bf16) and stages of a PCU.
    units: (u64, u64),
    dense: &'a Row,
    by_pattern: Vec<(String, BTreeMap<u64, &'a Row>)>,
}

impl<'a> Panel<'a> {
    fn of(rows: &'a [Row], chip: (&'static str, (u64, u64)), mode: Mode) -> Option<Self> {
        let (chip, units) = chip;
        let mine = || rows.iter().filter(|row| row.chip == chip && row.mode == mode);
        let dense = mine().find(|row| row.inverse_density == 1)?;
        let mut by_pattern: Vec<(String, BTreeMap<u64, &Row>)> = Vec::new();
        for row in mine().filter(|row| row.inverse_density > 1) {
            let name = &row.pattern;
            match by_pattern.iter_mut().find(|(known, _)| known == name) {
                Some((_, list)) => drop(list.insert(row.inverse_density, row)),
                None => by_pattern.push((name.clone(), BTreeMap::from([(row.inverse_density, row)]))),
            }
        }
        Some(Self { chip, mode, units, dense, by_pattern })
    }

    fn speedup(&self, row: &Row) -> f64 {
        self.dense.cycles as f64 / row.cycles as f64
    }

    fn chart(&self, tokens: u64) -> CurveChart {
        let curve = |(name, list): &(String, BTreeMap<u64, &Row>)| {
            let points = list.iter().rev().map(|(&inverse, row)| (1.0 / inverse as f64, self.speedup(row))).collect();
            Curve { name: name.clone(), points, dashed: false, like: None }
        };
        let mut curves: Vec<Curve> = self.by_pattern.iter().map(curve).collect();
        let ideal = DENSITIES.iter().rev().map(|&inverse| (1.0 / inverse as f64, inverse as f64)).collect();
        curves.push(Curve { name: "1 / density".into(), points: ideal, dashed: true, like: None });
        CurveChart {
            title: "Speedup of sparse over dense weights".into(),
            about: format!("GPT-13B feed-forward block, {tokens} tokens, {}, {}", self.chip, self.mode.name()),
            x_name: "density".into(),
            y_name: "dense cycles / sparse cycles".into(),
            curves,
        }
    }

    /// The density below which a pattern is more than 3 % faster than dense, between measured ones on logarithmic axes.
    fn crossover(&self, list: &BTreeMap<u64, &Row>) -> String {
        let over = |row: &Row| (self.speedup(row) / SLACK).log2();
        let points: Vec<(f64, f64)> = list.iter().map(|(&inverse, row)| ((inverse as f64).log2(), over(row))).collect();
        match points.as_slice() {
            [first, ..] if first.1 > 0.0 => format!("pays at {:.4} already", 2f64.powf(-first.0)),
            _ => points.windows(2).find(|ends| ends[0].1 <= 0.0 && ends[1].1 > 0.0).map_or_else(
                || "does not pay".to_owned(),
                |ends| {
                    let at = ends[0].0 - ends[0].1 * (ends[1].0 - ends[0].0) / (ends[1].1 - ends[0].1);
                    format!("pays below {:.4}", 2f64.powf(-at))
                },
            ),
        }
    }

    fn told(&self, text: &mut String) -> Result<bool, std::fmt::Error> {
        writeln!(text, "\n{} {}: dense {} cycles", self.chip, self.mode.name(), self.dense.cycles)?;
        for (name, list) in &self.by_pattern {
            let all: Vec<String> = list.iter().map(|(i, row)| format!("1/{i} {:.2}x", self.speedup(row))).collect();
            writeln!(text, "  {name:<9} {:<24} {}", self.crossover(list), all.join("  "))?;
        }
        let mut explained = true;
        for pair in self.by_pattern.windows(2).filter(|pair| pair[1].0.starts_with("block")) {
            for (inverse, larger) in &pair[1].1 {
                if let Some(smaller) = pair[0].1.get(inverse)
                    && larger.cycles as f64 > SLACK * smaller.cycles as f64
                {
                    let slower = 100.0 * (larger.cycles as f64 / smaller.cycles as f64 - 1.0);
                    let why = self.excuse(larger);
                    explained &= why.is_some();
                    writeln!(
                        text,
                        "  {} at 1/{inverse} is {slower:.1} % slower than {}: bound by {} ({}), not {} ({}): {}",
                        pair[1].0,
                        pair[0].0,
                        larger.bound_by,
                        larger.styles,
                        smaller.bound_by,
                        smaller.styles,
                        why.unwrap_or_else(|| "UNEXPLAINED".to_owned())
                    )?;
                }
            }
        }
        Ok(explained)
    }

    /// Why larger blocks may be slower: imbalance, or a block that divides neither lanes nor stages nor is divided.
    fn excuse(&self, larger: &Row) -> Option<String> {
        if larger.bound_by.contains("imbalance") {
            return Some("imbalance".to_owned());
        }
        let block: u64 = larger.pattern.rsplit(' ').next()?.parse().ok()?;
        let (lanes, stages) = self.units;
        let fits = |of: u64| of.is_multiple_of(block) || block.is_multiple_of(of);
        let badly: Vec<String> = [("lanes", lanes), ("stages", stages)]
            .into_iter()
            .filter(|(_, of)| !fits(*of))
            .map(|(what, of)| format!("{block} divides badly into {of} {what}"))
            .collect();
        (!badly.is_empty()).then(|| badly.join(", "))
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
        curves.push(Curve { name: format!("block {block} at 1/{}", 1.0 / density), points, dashed: false, like: None });
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

/// The file of all rows, in order.
fn csv(rows: &[Row]) -> String {
    let mut text = format!("{HEADER}\n");
    for row in rows {
        let like = |other: &&Row| (other.chip, other.mode, other.inverse_density) == (row.chip, row.mode, 1);
        let dense = rows.iter().find(like).map_or(row.cycles, |dense| dense.cycles);
        text += &row.line(dense);
        text.push('\n');
    }
    text
}

/// Runs what the file of `directory` does not hold yet, and writes it after every case.
fn run_all(directory: &Path, tokens: u64, again: bool) -> Result<Vec<Row>, Box<dyn Error>> {
    let cases = cases();
    let before =
        if again { String::new() } else { std::fs::read_to_string(directory.join("speedup.csv")).unwrap_or_default() };
    let known: Vec<Row> = before.lines().filter_map(Row::parse).filter(|row| row.tokens == tokens).collect();
    let place = |row: &Row| {
        let of_case = |case: &Case| (case.pattern == row.pattern) && case.inverse_density == row.inverse_density;
        let chip = CHIPS.iter().position(|chip| *chip == row.chip);
        (chip, row.mode == Mode::Fused, cases.iter().position(of_case))
    };
    let done = Mutex::new(known);
    for name in CHIPS {
        let chip = arch::load(Path::new(&format!("arch/{name}.toml")), &[])?;
        let is_known = |case: &&Case| {
            let rows = done.lock().expect("no thread panics with it");
            let of_case = |row: &&Row| {
                row.chip == name && row.pattern == case.pattern && row.inverse_density == case.inverse_density
            };
            rows.iter().filter(of_case).count() == 2
        };
        let wanted: Vec<&Case> = cases.iter().filter(|case| !is_known(case)).collect();
        wanted.par_iter().try_for_each(|case| -> Result<(), String> {
            let new = run(name, &chip, case, tokens)?;
            let mut rows = done.lock().expect("no thread panics with it");
            rows.extend(new);
            rows.sort_by_key(place);
            let file = File { name: "speedup.csv".into(), bytes: csv(&rows).into_bytes() };
            write(directory, &[file]).map_err(|error| error.to_string())?;
            let _ = writeln!(std::io::stderr(), "{name}: {} at 1/{}", case.pattern, case.inverse_density);
            Ok(())
        })?;
    }
    Ok(done.into_inner()?)
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let tokens: u64 = argument("--tokens").map_or(Ok(2048), |text| text.parse())?;
    let directory = PathBuf::from(argument("--out").unwrap_or_else(|| "reports/sparsity".into()));
    let again = std::env::args().any(|argument| argument == "--again");
    let rows = run_all(&directory, tokens, again)?;
    let mut text = format!(
        "GPT-13B feed-forward block, {tokens} tokens: speedup over dense, and the density from which it is above 3 %\n"
    );
    let mut files = Vec::new();
    let mut explained = true;
    for name in CHIPS {
        let chip = arch::load(Path::new(&format!("arch/{name}.toml")), &[])?;
        let lanes = chip.pcu.lanes.get(&rdusim::units::Dtype::Bf16).copied().unwrap_or(1);
        let chip = (name, (lanes, chip.pcu.stages));
        for mode in [Mode::Kbk, Mode::Fused] {
            let Some(panel) = Panel::of(&rows, chip, mode) else { continue };
            explained &= panel.told(&mut text)?;
            let (chart, name) = (panel.chart(tokens), format!("speedup-{name}-{}", mode.name()));
            files.push(File { name: format!("{name}.svg"), bytes: chart.svg()?.into_bytes() });
            files.push(File { name: format!("{name}.png"), bytes: chart.png()? });
        }
        explained &= fused_gain(&rows, chip, &mut text)?;
    }
    let (union_csv, chart) = union_study()?;
    files.push(File { name: "union.svg".into(), bytes: chart.svg()?.into_bytes() });
    files.push(File { name: "union.png".into(), bytes: chart.png()? });
    files.push(File { name: "union.csv".into(), bytes: union_csv.into_bytes() });
    files.push(File { name: "speedup.csv".into(), bytes: csv(&rows).into_bytes() });
    let verdict = if explained { "every ordering holds, or is explained above" } else { "an ordering is UNEXPLAINED" };
    writeln!(text, "\n{verdict}")?;
    files.push(File { name: "summary.txt".into(), bytes: text.clone().into_bytes() });
    write(&directory, &files)?;
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(if explained { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Fused over kernel by kernel at each density: it grows as density falls, until launch or activations bound.
fn fused_gain(rows: &[Row], chip: (&'static str, (u64, u64)), text: &mut String) -> Result<bool, std::fmt::Error> {
    let (Some(kbk), Some(fused)) = (Panel::of(rows, chip, Mode::Kbk), Panel::of(rows, chip, Mode::Fused)) else {
        return Ok(true);
    };
    let dense = kbk.dense.cycles as f64 / fused.dense.cycles as f64;
    writeln!(text, "\n{}: fused over kernel by kernel (dense {dense:.2}x)", chip.0)?;
    let mut explained = true;
    for ((name, kbk), (_, fused)) in kbk.by_pattern.iter().zip(&fused.by_pattern) {
        let gain = |i: &u64| Some((kbk.get(i)?.cycles as f64 / fused.get(i)?.cycles as f64, *i));
        let gains: Vec<(f64, u64)> = kbk.keys().filter_map(gain).collect();
        let told: Vec<String> = gains.iter().map(|(gain, i)| format!("1/{i} {gain:.2}x")).collect();
        writeln!(text, "  {name:<9} {}", told.join("  "))?;
        let mut before = (dense, 1);
        for &(gain, i) in &gains {
            if gain < before.0 / SLACK {
                let (k, f) = (kbk[&i], fused[&i]);
                let mut why = Vec::new();
                let launch_share = f.launch_cycles as f64 / f.cycles as f64;
                if f.bound_by.contains("launch") || launch_share > 0.1 {
                    why.push(format!("launch is {:.0} % of the fused run", 100.0 * launch_share));
                }
                let of_weights = f.weight_bytes as f64 / f.off_chip_bytes as f64;
                if f.bound_by.contains("memory") && of_weights < 0.5 {
                    let share = 100.0 * (1.0 - of_weights);
                    why.push(format!("{share:.0} % of what the fused run moves off chip are activations"));
                }
                if f.bound_by.contains("imbalance") {
                    why.push("imbalance of the fused run".to_owned());
                }
                if why.is_empty() && !f.bound_by.contains("memory") {
                    // On-chip work is the same both ways: only what goes off chip can be saved.
                    why.push(format!("the fused run is bound by {} and not by off-chip memory", f.bound_by));
                }
                explained &= !why.is_empty();
                let why = if why.is_empty() { "UNEXPLAINED".to_owned() } else { why.join(", ") };
                writeln!(
                    text,
                    "    less at 1/{i} than at 1/{}: {why} (fused by {}, kernel by kernel by {})",
                    before.1, f.bound_by, k.bound_by
                )?;
            }
            before = (gain, i);
        }
    }
    Ok(explained)
}
