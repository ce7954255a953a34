//! Takes apart what training sparse GPT-13B on an RDU gains over dense on an A100: reads the runs that
//! `reports/gpt13b/regenerate` made, writes tables, JSON and waterfalls.
//!
//! ```sh
//! reports/gpt13b/regenerate
//! ```

#![expect(clippy::print_stdout, reason = "a command")]

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rdusim::report::{File, Waterfall, WaterfallChart, WaterfallStep, write};
use rdusim::study::uncertainty::quantiles;
use serde::Serialize;
use serde_json::Value;

/// Devices that train together, and tokens of one step of all of them: the batch of GPT-3 13B (arXiv:2005.14165).
const DEVICES: f64 = 8.0;
const STEP_TOKENS: f64 = 1_048_576.0;
/// Micro-batches of a step on a device in the published A100 run (48 sequences over 8 devices in twos).
const PUBLISHED_MICRO_BATCHES: f64 = 3.0;
const CHIPS: [&str; 4] = ["a100", "sn10", "sn30", "sn40l"];
const WEIGHTS: [&str; 3] = ["dense", "0.75", "0.875"];

type Fallible<T> = Result<T, Box<dyn Error>>;

/// One chip, one way of running, one sparsity.
#[derive(Debug, Clone, Serialize)]
struct Run {
    chip: String,
    mode: String,
    /// Share of the layers' weights that is pruned, in blocks of 16 x 16.
    sparsity: f64,
    /// Of one micro-batch.
    forward_s: f64,
    backward_s: f64,
    /// Of all weights by one device (A100: of its share).
    update_s: f64,
    /// A step of all devices: micro-batches one after the other, and a device's share of the update.
    step_s: f64,
    micro_batches: f64,
    /// Products with weights' gradients alone, of a micro-batch.
    weight_gradient_s: f64,
    off_chip_bytes: u64,
    energy_j: f64,
    launches: u64,
    bound_share: f64,
    /// 5 to 95 % of a step over draws of the chip's uncertain fields.
    step_range_s: Option<[f64; 2]>,
    /// Seconds of a step's parts, draw by draw.
    #[serde(skip)]
    draws: Vec<Option<Parts>>,
}

/// Seconds of a step on one draw of a chip.
#[derive(Debug, Clone, Copy, Default)]
struct Parts {
    forward: f64,
    backward: f64,
    update: f64,
}

impl Parts {
    fn step(self) -> f64 {
        self.forward + self.backward + self.update
    }
}

/// One case of A100 training.
#[derive(Debug, Clone, Serialize)]
struct Case {
    kernels: &'static str,
    activations: &'static str,
    communication: &'static str,
    step_s: f64,
    mfu: f64,
}

/// A waterfall with what its steps are worth.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    waterfall: Waterfall,
    factors: Vec<f64>,
    /// 5 to 95 % of each factor, and of all of them; of chips whose runs were made with `--uncertainty`.
    factor_ranges: Option<Vec<[f64; 2]>>,
    speedup: f64,
    speedup_range: Option<[f64; 2]>,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    tokens_of_a_step: f64,
    devices: f64,
    runs: Vec<Run>,
    /// Share of the A100's peak that the model's products take in a step of the baseline.
    a100_mfu: f64,
    waterfalls: Vec<Shown>,
    a100_cases: Vec<Case>,
}

fn main() -> Fallible<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [from, to] = &arguments[..] else { return Err("expected RUNS and OUT directories".into()) };
    let mut runs = Vec::new();
    for chip in CHIPS {
        for weights in WEIGHTS {
            runs.extend(read_runs(from, chip, weights)?);
        }
    }
    let a100_cases = cases(from)?;
    let waterfalls: Vec<Waterfall> = CHIPS[1..].iter().map(|chip| waterfall(&runs, chip)).collect::<Fallible<_>>()?;
    let mut files = Vec::new();
    for (chip, waterfall) in CHIPS[1..].iter().zip(&waterfalls) {
        let chart = WaterfallChart { waterfall, about: ABOUT };
        files.push(File { name: format!("waterfall-{chip}.svg"), bytes: chart.svg()?.into_bytes() });
        files.push(File { name: format!("waterfall-{chip}.png"), bytes: chart.png()? });
    }
    let a100_mfu = baseline_mfu(from, &runs)?;
    let mut ranges = Vec::new();
    for chip in &CHIPS[1..] {
        ranges.push(factor_ranges(&runs, chip)?);
    }
    let summary = summary(&runs, &waterfalls, &ranges, &a100_cases)? + &claim(from, &runs, a100_mfu)?;
    files.push(File { name: "summary.txt".to_owned(), bytes: summary.clone().into_bytes() });
    let waterfalls = waterfalls
        .into_iter()
        .zip(ranges)
        .map(|(waterfall, drawn)| Shown {
            factors: waterfall.steps.iter().map(WaterfallStep::factor).collect(),
            speedup_range: drawn.as_ref().map(|(_, all)| *all),
            factor_ranges: drawn.map(|(each, _)| each),
            speedup: waterfall.speedup(),
            waterfall,
        })
        .collect();
    let result =
        Report { schema: 1, tokens_of_a_step: STEP_TOKENS, devices: DEVICES, runs, a100_mfu, waterfalls, a100_cases };
    let json = serde_json::to_string_pretty(&result)? + "\n";
    files.push(File { name: "gpt13b.json".to_owned(), bytes: json.into_bytes() });
    write(to, &files)?;
    print!("{summary}");
    Ok(())
}

fn read(from: &Path, name: &str) -> Fallible<Value> {
    let path = from.join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(serde_json::from_str(&text)?)
}

fn number(value: &Value, what: &str) -> Fallible<f64> {
    value.as_f64().ok_or_else(|| format!("no number `{what}`").into())
}

fn phase(run: &Value, name: &str) -> Fallible<f64> {
    number(&run["phases"][name]["time_s"], name)
}

fn read_runs(from: &Path, chip: &str, weights: &str) -> Fallible<Vec<Run>> {
    let document = read(from, &format!("{chip}-{weights}"))?;
    let list = document["runs"].as_array().ok_or("no runs")?;
    list.iter().map(|run| one_run(&document, run, weights)).collect()
}

fn one_run(document: &Value, run: &Value, weights: &str) -> Fallible<Run> {
    let sparsity = if weights == "dense" { 0.0 } else { weights.parse()? };
    let (forward_s, backward_s, update_s) = (phase(run, "forward")?, phase(run, "backward")?, phase(run, "update")?);
    let micro_tokens = 2.0 * 2048.0;
    let micro_batches = STEP_TOKENS / DEVICES / micro_tokens;
    // An A100 run updates its share already, after one micro-batch; an RDU's updates everything, once in all of them.
    let (share, per_update) = if document["arch"]["kind"] == "gpu" { (1.0, 1.0) } else { (DEVICES, micro_batches) };
    let update_s = update_s * per_update;
    let clock = number(&run["cycles"], "cycles")? / number(&run["time_s"], "time_s")?;
    let mut weight_gradient_s = 0.0;
    for section in run["sections"].as_array().ok_or("no sections")? {
        // A section that makes nothing but gradients of weights.
        let operators = section["operators"].as_array().ok_or("no operators")?;
        let of_weight = |name: &Value| {
            let of = ["down", "up", "project", "query", "key", "value"];
            name.as_str().is_some_and(|name| of.iter().any(|of| name == format!("{of}.dw")))
        };
        if !operators.is_empty() && operators.iter().all(of_weight) {
            weight_gradient_s += number(&section["cycles"], "cycles")? / clock;
        }
    }
    let bytes = |key: &str| run["traffic"][key].as_u64().ok_or("no traffic");
    let of_draw = |draw: &Value| {
        let phase = |name: &str| draw["phases_s"][name].as_f64();
        Some(Parts {
            forward: micro_batches * phase("forward")?,
            backward: micro_batches * phase("backward")?,
            update: per_update / share * phase("update")?,
        })
    };
    let draws: Vec<Option<Parts>> =
        run["ranges"]["draws"].as_array().map(|draws| draws.iter().map(of_draw).collect()).unwrap_or_default();
    Ok(Run {
        chip: document["arch"]["name"].as_str().unwrap_or_default().to_owned(),
        mode: run["mode"].as_str().unwrap_or_default().to_owned(),
        sparsity,
        forward_s,
        backward_s,
        update_s,
        step_s: micro_batches * (forward_s + backward_s) + update_s / share,
        micro_batches,
        weight_gradient_s,
        off_chip_bytes: bytes("off_chip_read_bytes")? + bytes("off_chip_write_bytes")?,
        energy_j: number(&run["energy_j"]["total"], "energy")?,
        launches: run["launches"].as_u64().unwrap_or(0),
        bound_share: number(&run["bound_cycles"], "bound")? / number(&run["cycles"], "cycles")?,
        step_range_s: quantiles(draws.iter().flatten().map(|parts| parts.step()).collect()),
        draws,
    })
}

fn find<'r>(runs: &'r [Run], chip: &str, mode: &str, sparsity: f64) -> Fallible<&'r Run> {
    let same = |a: f64, b: f64| (a - b).abs() < 1e-9;
    let of_chip =
        |run: &&Run| run.chip.to_lowercase().starts_with(chip) && run.mode == mode && same(run.sparsity, sparsity);
    runs.iter().find(of_chip).ok_or_else(|| format!("no run of {chip}, {mode}, {sparsity}").into())
}

/// Seconds of a step after each factor, from the A100 on: of the draws of the A100, of those of the chip, and what a step there is
/// called.
fn steps(a100: Parts, [kbk, epilogue, dense, sparse]: [Parts; 4]) -> [f64; 7] {
    let forward = Parts { forward: sparse.forward, ..dense };
    let backward = Parts { backward: sparse.backward, ..forward };
    [a100, kbk, epilogue, dense, forward, backward, sparse].map(Parts::step)
}

/// Names of the factors of [`steps`].
const FACTORS: [&str; 6] = [
    "chip, kernel by kernel",
    "epilogues",
    "fusion: dataflow",
    "sparsity, forward",
    "sparsity, backward",
    "sparsity, update",
];

/// The four runs of a chip that a waterfall stands on.
fn of_chip<'r>(runs: &'r [Run], chip: &str) -> Fallible<[&'r Run; 4]> {
    Ok([
        find(runs, chip, "kbk", 0.0)?,
        find(runs, chip, "epilogue", 0.0)?,
        find(runs, chip, "fused", 0.0)?,
        find(runs, chip, "fused", 0.875)?,
    ])
}

fn parts(run: &Run) -> Parts {
    let (forward, backward) = (run.micro_batches * run.forward_s, run.micro_batches * run.backward_s);
    Parts { forward, backward, update: run.step_s - forward - backward }
}

fn waterfall(runs: &[Run], chip: &str) -> Fallible<Waterfall> {
    let start = find(runs, "a100", "fused", 0.0)?;
    let of_chip = of_chip(runs, chip)?;
    let name = &of_chip[0].chip;
    let times = steps(parts(start), of_chip.map(parts));
    let steps: Vec<(&str, f64, &str)> =
        FACTORS.into_iter().zip(&times[1..]).map(|(name, &time)| (name, time, "")).collect();
    let title = format!("Training GPT-13B: from A100, dense, to {name}, 87.5 % sparse and fused");
    let end = format!("{name}, sparse, fused");
    Ok(Waterfall::between(&title, ("A100, dense, fused kernels", times[0]), &steps, &end))
}

/// Ranges of factors, and of their product.
type Drawn = (Vec<[f64; 2]>, [f64; 2]);

/// 5 to 95 % of each factor and of their product; `None` without draws. Runs of one chip are on the same draws; those of the A100 are drawn by themselves,
/// and met in another order.
fn factor_ranges(runs: &[Run], chip: &str) -> Fallible<Option<Drawn>> {
    const STRIDE: usize = 7;
    let (start, of_chip) = (find(runs, "a100", "fused", 0.0)?, of_chip(runs, chip)?);
    let count = start.draws.len().max(1);
    let of_draw = |draw: usize| {
        let a100 = (*start.draws.get((draw * STRIDE + STRIDE / 2) % count)?)?;
        let mut drawn = [Parts::default(); 4];
        for (parts, run) in drawn.iter_mut().zip(of_chip) {
            *parts = (*run.draws.get(draw)?)?;
        }
        Some(steps(a100, drawn))
    };
    let drawn: Vec<[f64; 7]> = (0..count).filter_map(of_draw).collect();
    let range = |from: usize, to: usize| quantiles(drawn.iter().map(|times| times[from] / times[to]).collect());
    let each: Option<Vec<[f64; 2]>> = (0..FACTORS.len()).map(|at| range(at, at + 1)).collect();
    Ok(each.zip(range(0, FACTORS.len())))
}

/// FLOP of the model in a step over what the A100 could do in the step of the baseline.
fn baseline_mfu(from: &Path, runs: &[Run]) -> Fallible<f64> {
    let document = read(from, "a100-dense")?;
    let start = find(runs, "a100", "fused", 0.0)?;
    let flops = number(&document["workload"]["dense_flops"], "dense_flops")? * start.micro_batches;
    Ok(flops / start.step_s / (number(&document["arch"]["peak_tflops"], "peak_tflops")? * 1e12))
}

/// The published factor.
const CLAIM: f64 = 4.5;
/// MFUs of published training on A100: Megatron-LM's GPTs (arXiv:2205.05198) and llm-foundry's GPT-13B.
const PUBLISHED_MFU: [f64; 3] = [0.41, 0.57, 0.596];

/// What would have to be true for the published factor, and what recomputed attention changes.
fn claim(from: &Path, runs: &[Run], mfu: f64) -> Fallible<String> {
    let mut text = format!(
        "\nThe claim of {CLAIM} times. The source names neither how many chips stand against how many, nor the MFU of its A100s.\n\
         Here the A100 is taken at MFU {:.1} % (fused kernels, flash attention, communication hidden).\n\n",
        mfu * 100.0
    );
    let of_mfu = PUBLISHED_MFU.map(|mfu| format!("{:>12}", format!("at {:.1} %", mfu * 100.0)));
    let _ = writeln!(
        text,
        "{:<8} {:>8} {:>12} {} {:>24} {:>22}",
        "chip",
        "pruned",
        "factor here",
        of_mfu.join(" "),
        format!("MFU for exactly {CLAIM}"),
        format!("s a step for {CLAIM}")
    );
    let start = find(runs, "a100", "fused", 0.0)?.step_s;
    for chip in &CHIPS[1..] {
        for sparsity in [0.75, 0.875] {
            let run = find(runs, chip, "fused", sparsity)?;
            let factor = start / run.step_s;
            let needed = mfu * factor / CLAIM;
            let impossible = if needed > 1.0 { " (none)" } else { "" };
            let at_mfu = PUBLISHED_MFU.map(|of| format!("{:>12}", format!("{:.2}x", factor * mfu / of)));
            let _ = writeln!(
                text,
                "{:<8} {:>6.1} % {:>12} {} {:>24} {:>22}",
                run.chip,
                sparsity * 100.0,
                format!("{factor:.2}x"),
                at_mfu.join(" "),
                format!("{:.1} %{impossible}", needed * 100.0),
                format!("{:.2} for {:.2}", start / CLAIM, run.step_s)
            );
        }
    }
    let sparse = find(runs, "sn40l", "fused", 0.875)?;
    // Running sums over micro-batches cannot be left out alone: without them each update joins the section that makes its
    // gradient, and would count once a micro-batch.
    let document = read(from, "sn40l-selective")?;
    let again = one_run(&document, &document["runs"][0], "0.875")?;
    let _ = writeln!(
        text,
        "\nSN40L, 87.5 %, fused, with the probabilities of attention computed again in the backward pass: {:.2} s a step for \
         {:.2} ({:.2}x the A100)",
        again.step_s,
        sparse.step_s,
        start / again.step_s
    );
    Ok(text)
}

/// What the waterfalls show, in a line.
const ABOUT: &str =
    "simulated; a step of 1,048,576 tokens over 8 chips of a kind, sequence 2048, communication taken as hidden";

const KERNELS: [(&str, &str); 5] = [
    ("eager", "an operator a kernel"),
    ("flash", "and flash attention"),
    ("epilogue", "and functions and sums behind GEMMs"),
    ("elementwise", "and runs of functions on the same rows"),
    ("fused", "and kernels captured as a graph"),
];

/// A100 training as it is published: 48 sequences over 8 devices, in micro-batches of two.
fn cases(from: &Path) -> Fallible<Vec<Case>> {
    let mut list = Vec::new();
    // Work of the model: without recomputation, causal pairs counted in full.
    let model = number(&read(from, "step-dense-ideal-eager")?["workload"]["dense_flops"], "dense_flops")?;
    for (activations, told) in [("dense", "saved"), ("recomputed", "recomputed")] {
        for communication in ["ideal", "exposed"] {
            for (kernels, named) in KERNELS {
                let document = read(from, &format!("step-{activations}-{communication}-{kernels}"))?;
                let run = &document["runs"][0];
                let peak = number(&document["arch"]["peak_tflops"], "peak_tflops")? * 1e12;
                let clock = number(&run["cycles"], "cycles")? / number(&run["time_s"], "time_s")?;
                let sections = run["sections"].as_array().ok_or("no sections")?;
                let exchange: f64 = sections
                    .iter()
                    .filter(|section| section["name"] == "communication")
                    .filter_map(|section| section["cycles"].as_f64())
                    .sum::<f64>()
                    / clock;
                let micro = phase(run, "forward")? + phase(run, "backward")? + exchange;
                let step_s = PUBLISHED_MICRO_BATCHES * micro + phase(run, "update")? - exchange;
                let mfu = PUBLISHED_MICRO_BATCHES * model / step_s / peak;
                list.push(Case { kernels: named, activations: told, communication, step_s, mfu });
            }
        }
    }
    Ok(list)
}

/// The A100's MFU with each set of kernels.
fn write_mfu(text: &mut String, cases: &[Case]) {
    let _ = writeln!(text, "A100 training, 48 sequences of 2,048 over 8 devices in micro-batches of 2: MFU\n");
    let _ = writeln!(
        text,
        "{:<46} {:>14} {:>14} {:>14} {:>14}",
        "kernels", "saved, ideal", "exposed", "again, ideal", "exposed"
    );
    for (_, kernels) in KERNELS {
        let mfu = |activations: &str, communication: &str| {
            let found = cases.iter().find(|case| {
                case.kernels == kernels && case.activations == activations && case.communication == communication
            });
            found.map_or(0.0, |case| case.mfu * 100.0)
        };
        let _ = writeln!(
            text,
            "{kernels:<46} {:>12.1} % {:>12.1} % {:>12.1} % {:>12.1} %",
            mfu("saved", "ideal"),
            mfu("saved", "exposed"),
            mfu("recomputed", "ideal"),
            mfu("recomputed", "exposed")
        );
    }
}

fn summary(runs: &[Run], waterfalls: &[Waterfall], ranges: &[Option<Drawn>], cases: &[Case]) -> Fallible<String> {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "A step of 1,048,576 tokens of GPT-13B over 8 chips of a kind; times of one micro-batch of 4,096 tokens.\n"
    );
    let _ = writeln!(
        text,
        "{:<10} {:<8} {:>7}  {:>10} {:>10} {:>10} {:>10} {:>18}  {:>8}",
        "chip", "mode", "pruned", "forward s", "backward s", "update s", "step s", "5 to 95 %", "of A100"
    );
    let reference = find(runs, "a100", "fused", 0.0)?.step_s;
    for run in runs {
        let _ = writeln!(
            text,
            "{:<10} {:<8} {:>5.1} %  {:>10.3} {:>10.3} {:>10.3} {:>10.2} {:>18}  {:>7.2}x",
            run.chip,
            run.mode,
            run.sparsity * 100.0,
            run.forward_s,
            run.backward_s,
            run.update_s,
            run.step_s,
            run.step_range_s.map_or_else(String::new, |[low, high]| format!("{low:.2} to {high:.2}")),
            reference / run.step_s
        );
    }
    let _ = writeln!(
        text,
        "\nFrom A100, dense, fused kernels, to the RDU, 87.5 % sparse, fused: each factor with its 5-to-95 % range over draws\nof the uncertain fields of both chip files, mappings held; the model's own error is not in it\n"
    );
    for ((chip, waterfall), drawn) in CHIPS[1..].iter().zip(waterfalls).zip(ranges) {
        let step = |mode: &str, sparsity: f64| find(runs, chip, mode, sparsity).map(|run| run.step_s);
        let (kbk, fused) = (step("kbk", 0.0)?, step("fused", 0.0)?);
        let (kbk_sparse, both) = (step("kbk", 0.875)?, step("fused", 0.875)?);
        let range =
            |of: Option<[f64; 2]>| of.map_or_else(String::new, |[low, high]| format!("  ({low:.2} to {high:.2})"));
        let _ = writeln!(text, "{}", find(runs, chip, "fused", 0.0)?.chip);
        for (at, step) in waterfall.steps.iter().enumerate() {
            let of_factor = drawn.as_ref().map(|(each, _)| each[at]);
            let _ = writeln!(text, "  {:<24} {:>6.2}x{}", step.label, step.factor(), range(of_factor));
        }
        let of_all = drawn.as_ref().map(|(_, all)| *all);
        let _ = writeln!(text, "  {:<24} {:>6.2}x{}", "in all", waterfall.speedup(), range(of_all));
        let _ = writeln!(
            text,
            "  fusion alone {:.2}x, sparsity alone (kernel by kernel) {:.2}x, together {:.2}x: {:.2} of their product",
            kbk / fused,
            kbk / kbk_sparse,
            kbk / both,
            (kbk / both) / (kbk / fused * kbk / kbk_sparse)
        );
        let dense = find(runs, chip, "fused", 0.0)?;
        let sparse = find(runs, chip, "fused", 0.875)?;
        let _ = writeln!(
            text,
            "  gradients of weights in sections of their own: {:.3} s dense, {:.3} s at 87.5 %\n",
            dense.weight_gradient_s, sparse.weight_gradient_s
        );
    }
    let of_a100 = |mode: &str, sparsity: f64| find(runs, "a100", mode, sparsity).map(|run| run.step_s);
    let _ = writeln!(
        text,
        "The A100 itself: fusion {:.2}x, sparsity 75 % {:.2}x, 87.5 % {:.2}x (blocks of 16, fused kernels)\n",
        of_a100("kbk", 0.0)? / of_a100("fused", 0.0)?,
        of_a100("fused", 0.0)? / of_a100("fused", 0.75)?,
        of_a100("fused", 0.0)? / of_a100("fused", 0.875)?
    );
    write_mfu(&mut text, cases);
    Ok(text)
}
