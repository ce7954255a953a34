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
    speedup: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    tokens_of_a_step: f64,
    devices: f64,
    runs: Vec<Run>,
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
    let summary = summary(&runs, &waterfalls, &a100_cases)?;
    files.push(File { name: "summary.txt".to_owned(), bytes: summary.clone().into_bytes() });
    let waterfalls = waterfalls
        .into_iter()
        .map(|waterfall| Shown {
            factors: waterfall.steps.iter().map(WaterfallStep::factor).collect(),
            speedup: waterfall.speedup(),
            waterfall,
        })
        .collect();
    let result = Report { schema: 1, tokens_of_a_step: STEP_TOKENS, devices: DEVICES, runs, waterfalls, a100_cases };
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
    })
}

fn find<'r>(runs: &'r [Run], chip: &str, mode: &str, sparsity: f64) -> Fallible<&'r Run> {
    let same = |a: f64, b: f64| (a - b).abs() < 1e-9;
    let of_chip =
        |run: &&Run| run.chip.to_lowercase().starts_with(chip) && run.mode == mode && same(run.sparsity, sparsity);
    runs.iter().find(of_chip).ok_or_else(|| format!("no run of {chip}, {mode}, {sparsity}").into())
}

fn waterfall(runs: &[Run], chip: &str) -> Fallible<Waterfall> {
    let start = find(runs, "a100", "fused", 0.0)?;
    let (dense_kbk, dense, sparse) =
        (find(runs, chip, "kbk", 0.0)?, find(runs, chip, "fused", 0.0)?, find(runs, chip, "fused", 0.875)?);
    let name = &dense.chip;
    let steps = [
        (format!("chip: {name}, kernel by kernel"), dense_kbk.step_s),
        ("fusion: dataflow".to_owned(), dense.step_s),
        ("sparsity: 87.5 % in blocks of 16".to_owned(), sparse.step_s),
    ];
    let steps: Vec<(&str, f64, &str)> = steps.iter().map(|(name, time_s)| (name.as_str(), *time_s, "")).collect();
    let title = format!("Training GPT-13B: from A100, dense, to {name}, sparse and fused");
    let end = format!("{name}, sparse, fused");
    Ok(Waterfall::between(&title, ("A100, dense, fused kernels", start.step_s), &steps, &end))
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

fn summary(runs: &[Run], waterfalls: &[Waterfall], cases: &[Case]) -> Fallible<String> {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "A step of 1,048,576 tokens of GPT-13B over 8 chips of a kind; times of one micro-batch of 4,096 tokens.\n"
    );
    let _ = writeln!(
        text,
        "{:<10} {:<6} {:>8}  {:>10} {:>10} {:>10} {:>10}  {:>8}",
        "chip", "mode", "pruned", "forward s", "backward s", "update s", "step s", "of A100"
    );
    let reference = find(runs, "a100", "fused", 0.0)?.step_s;
    for run in runs {
        let _ = writeln!(
            text,
            "{:<10} {:<6} {:>6.1} %  {:>10.3} {:>10.3} {:>10.3} {:>10.2}  {:>7.2}x",
            run.chip,
            run.mode,
            run.sparsity * 100.0,
            run.forward_s,
            run.backward_s,
            run.update_s,
            run.step_s,
            reference / run.step_s
        );
    }
    let _ = writeln!(
        text,
        "\nFrom A100, dense, fused kernels, to the RDU, 87.5 % sparse, fused: each factor alone and together\n"
    );
    for (chip, waterfall) in CHIPS[1..].iter().zip(waterfalls) {
        let step = |mode: &str, sparsity: f64| find(runs, chip, mode, sparsity).map(|run| run.step_s);
        let (kbk, fused) = (step("kbk", 0.0)?, step("fused", 0.0)?);
        let (kbk_sparse, both) = (step("kbk", 0.875)?, step("fused", 0.875)?);
        let factors: Vec<String> =
            waterfall.steps.iter().map(|step| format!("{} {:.2}x", step.label, step.factor())).collect();
        let _ = writeln!(text, "{}\n  = {:.2}x in all", factors.join("\n  then "), waterfall.speedup());
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
    Ok(text)
}
