//! The report on block-sparse training: published losses beside the time of a step of the encoder on a chip of tiles, an RDU and a GPU.
//!
//! `cargo run --release --example sparse_training` prints `reports/ipu/sparse-training.md` and writes the pictures beside it. Names of
//! chips (`bow`, `sn40l`, `a100`) leave out the others.

#![expect(clippy::print_stdout, reason = "an example prints its report")]

use std::error::Error;
use std::path::Path;

use rdusim::arch::{self, AnyChip};
use rdusim::compile::{compile_measured, simulate_measured};
use rdusim::input::Override;
use rdusim::machine::machine;
use rdusim::mode::Mode;
use rdusim::model::{Architecture, Options, Part, Phase, Sparsity, part_of, preset};
use rdusim::outcome::{Fidelity, Outcome};
use rdusim::report::{Curve, CurveChart, File, write};
use rdusim::workload::{self, Workload};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A trained model: its size, the block (dense if none), loss of the masked language model, and 10^9 FLOP of a sequence of 128.
/// arXiv:2108.06277, tables 1 and A.8: density 0.1 in the layers' matrices of the encoder.
struct Trained {
    size: &'static str,
    block: Option<u64>,
    loss: f64,
    gflop: Option<f64>,
}

const fn trained(size: &'static str, block: u64, loss: f64, gflop: f64) -> Trained {
    Trained {
        size,
        block: if block > 0 { Some(block) } else { None },
        loss,
        gflop: if gflop > 0.0 { Some(gflop) } else { None },
    }
}

const LOSSES: [Trained; 12] = [
    trained("base", 0, 1.843, 0.0),
    trained("base", 1, 2.160, 8.33),
    trained("base", 4, 2.272, 8.33),
    trained("base", 8, 2.295, 8.33),
    trained("base", 16, 2.311, 8.33),
    trained("medium", 0, 2.115, 0.0),
    trained("medium", 1, 2.408, 2.738),
    trained("medium", 4, 2.546, 2.738),
    trained("medium", 8, 2.591, 2.738),
    trained("medium", 16, 2.621, 2.738),
    trained("small", 0, 2.310, 10.07),
    trained("mini", 0, 2.614, 2.617),
];

/// Chips, and the field that chooses their kernel.
const CHIPS: [(&str, &str, &str, &[&str]); 4] = [
    ("Bow, dynamic kernel", "arch/bow.toml", "fp16", &["arch.planner.sparse=dynamic"]),
    ("Bow, static kernel", "arch/bow.toml", "fp16", &["arch.planner.sparse=static"]),
    ("SN40L", "arch/sn40l.toml", "bf16", &[]),
    ("A100", "arch/a100.toml", "bf16", &[]),
];

const DENSITY: f64 = 0.1;
const TOKENS: u64 = 128;
/// Sequences of a step (assumed).
const SEQUENCES: u64 = 8;
/// Steps from one change of the pattern to the next (assumed: the training's steps are not published, only its number of changes).
const EVERY: u64 = 1000;
/// Share of the blocks that a change replaces before it decays [P the paper].
const PRUNED: f64 = 0.5;

fn architecture(size: &str) -> Result<Architecture> {
    let (base, _) = preset("bert-base")?;
    // Layers and width of the smaller models: Turc et al., arXiv:1908.08962.
    let (layers, hidden) = match size {
        "medium" => (8, 512),
        "small" => (4, 512),
        "mini" => (4, 256),
        _ => (base.layers, base.hidden),
    };
    let heads = hidden / 64;
    Ok(Architecture { layers, hidden, heads, kv_heads: heads, feed_forward: 4 * hidden, output: true, ..base })
}

/// FLOP of a training step of one sequence: 3 x 2 x inputs x outputs x density of every matrix, and all scores.
fn encoder_flop(a: &Architecture, density: f64) -> f64 {
    let (layers, h, t) = (a.layers as f64, a.hidden as f64, TOKENS as f64);
    let matrices = 3.0 * 2.0 * t * 12.0 * h * h * density;
    let scores = 3.0 * 2.0 * 2.0 * t * t * h;
    layers * (matrices + scores)
}

fn encoder(trained: &Trained, dtype: &str, regrow: &str) -> Result<Workload> {
    let options = Options {
        dtype: dtype.to_owned(),
        sparsity: trained.block.map(|block| Sparsity { density: DENSITY, block }),
        ..Options::new(
            &format!("encoder of BERT {}", trained.size),
            architecture(trained.size)?,
            Phase::Training,
            SEQUENCES,
            TOKENS,
        )
    };
    let mut text = part_of(&options, Part::default())?.into_text();
    if trained.block.is_some() {
        let pattern = format!("pattern = {{ every = {EVERY}, fraction = {PRUNED}, regrow = \"{regrow}\" }}\n");
        text = text.replacen("[training]\n", &format!("[training]\n{pattern}"), 1);
    }
    Ok(workload::parse("encoder.toml", &text, &[], 1)?)
}

fn run(chip: &AnyChip, workload: &Workload) -> Result<Outcome> {
    if let Some(chip) = chip.rdu() {
        let compiled = compile_measured(chip, workload, &[Mode::Fused])?;
        return Ok(simulate_measured(chip, workload, &compiled[0], Fidelity::Event));
    }
    let machine = machine(chip).ok_or("a chip is an RDU or runs without a mapping")?;
    Ok(machine.run(workload, &[Mode::Fused])?.remove(0))
}

/// Milliseconds of the passes, of one change of the pattern, and of the optimiser's step.
fn times(chip: &AnyChip, outcome: &Outcome) -> [f64; 3] {
    let device = chip.device();
    let of = |phases: &[workload::Phase]| {
        let sections = outcome.sections.iter().filter(|section| phases.contains(&section.phase));
        // An empty sum is a negative zero.
        sections.map(|section| device.seconds(section.cycles)).sum::<f64>() * 1e3 + 0.0
    };
    [
        of(&[workload::Phase::Forward, workload::Phase::Backward]),
        of(&[workload::Phase::Pattern]) * EVERY as f64,
        of(&[workload::Phase::Update]),
    ]
}

fn main() -> Result<()> {
    println!("# Block-sparse training: published loss against simulated time\n");
    println!(
        "Made by `reports/ipu/regenerate`. Losses: arXiv:2108.06277, tables 1 and A.8 (masked language model, phase 1, density 0.1).\n"
    );
    println!(
        "A step is {SEQUENCES} sequences of {TOKENS} tokens (assumed) through the encoder's layers, forward and backward, on one chip; \
         the optimiser's step stands apart, for a step may add up gradients of many such. Sizes of the smaller models: arXiv:1908.08962.\n"
    );
    flop_table()?;
    let mut changes = Vec::new();
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    for (name, file, dtype, sets) in CHIPS {
        if !chosen.is_empty() && !chosen.iter().any(|chip| file.contains(chip.as_str())) {
            continue;
        }
        let sets = sets.iter().map(|set| Override::parse(set)).collect::<std::result::Result<Vec<_>, _>>()?;
        let chip = arch::open(Path::new(file), &sets)?;
        println!("## {name}\n");
        println!(
            "| model | block | loss | passes, ms | over dense of that size | optimiser, ms | a change of the pattern, ms |"
        );
        println!("| --- | --- | --- | --- | --- | --- | --- |");
        let (mut curves, mut dense_ms): (Vec<Curve>, f64) = (Vec::new(), 0.0);
        for trained in &LOSSES {
            let outcome = run(&chip, &encoder(trained, dtype, "random")?)?;
            let [passes, change, update] = times(&chip, &outcome);
            let block = trained.block.map_or_else(|| "dense".to_owned(), |block| block.to_string());
            if trained.block.is_none() {
                dense_ms = passes;
            }
            println!(
                "| {} | {block} | {} | {passes:.3} | {:.2} | {update:.3} | {} |",
                trained.size,
                trained.loss,
                dense_ms / passes,
                if trained.block.is_some() { format!("{change:.3}") } else { "-".to_owned() }
            );
            let kind = if trained.block.is_some() { "sparse" } else { "dense" };
            push(&mut curves, &format!("{} {kind}", trained.size), (passes, trained.loss));
            if trained.size == "base" && trained.block == Some(16) {
                let gradient = run(&chip, &encoder(trained, dtype, "gradient")?)?;
                changes.push((name, change, times(&chip, &gradient)[1]));
            }
        }
        verdict(&curves);
        picture(name, dtype, curves)?;
    }
    change_table(&changes)
}

fn push(curves: &mut Vec<Curve>, name: &str, point: (f64, f64)) {
    // Dense models of all sizes are one line.
    let name = if name.ends_with("dense") { "dense" } else { name };
    let at = curves.iter().position(|curve| curve.name == name).unwrap_or_else(|| {
        curves.push(Curve { name: name.to_owned(), points: Vec::new(), dashed: name == "dense", like: None });
        curves.len() - 1
    });
    curves[at].points.push(point);
    curves[at].points.sort_by(|a, b| a.0.total_cmp(&b.0));
}

/// FLOP as counted here beside those that the paper prints.
fn flop_table() -> Result<()> {
    println!("## FLOP of a sequence, encoder: 3 x 2 x tokens x inputs x outputs x density, and all scores\n");
    println!("| model | density | published, 10^9 | counted |\n| --- | --- | --- | --- |");
    for trained in
        LOSSES.iter().filter(|trained| trained.gflop.is_some() && trained.block.is_none_or(|block| block == 16))
    {
        let density = if trained.block.is_some() { DENSITY } else { 1.0 };
        let counted = encoder_flop(&architecture(trained.size)?, density) / 1e9;
        println!("| {} | {density} | {} | {counted:.3} |", trained.size, trained.gflop.unwrap_or_default());
    }
    println!();
    Ok(())
}

/// Which sparse models have a lower loss than a dense one of the same time: between dense models, loss falls along the line
/// through their logarithms.
fn verdict(curves: &[Curve]) {
    let Some(dense) = curves.iter().find(|curve| curve.name == "dense") else { return };
    let mut won = Vec::new();
    let mut lost = Vec::new();
    for curve in curves.iter().filter(|curve| curve.name != "dense") {
        for &(time, loss) in &curve.points {
            let of = |pair: &[(f64, f64)]| {
                let part = (time / pair[0].0).ln() / (pair[1].0 / pair[0].0).ln();
                (0.0..=1.0).contains(&part).then(|| pair[0].1 * (pair[1].1 / pair[0].1).powf(part))
            };
            let Some(matched) = dense.points.windows(2).find_map(of) else { continue };
            let told = format!("{} {loss} (dense of that time: {matched:.3})", curve.name);
            if loss < matched { won.push(told) } else { lost.push(told) }
        }
    }
    let list = |list: Vec<String>| if list.is_empty() { "none".to_owned() } else { list.join("; ") };
    println!("\nBetter than a dense model of the same time: {}.\nWorse: {}.\n", list(won), list(lost));
}

fn picture(name: &str, dtype: &str, curves: Vec<Curve>) -> Result<()> {
    let chart = CurveChart {
        title: format!("Published loss against simulated time of a step: {name}"),
        about: format!(
            "encoder of BERT, {SEQUENCES} sequences of {TOKENS} tokens, {dtype}; density 0.1, blocks of 1, 4, 8, 16"
        ),
        x_name: "milliseconds, forward and backward".to_owned(),
        y_name: "loss".to_owned(),
        curves,
    };
    let stem = name.to_lowercase().replace(", ", "-").replace(' ', "-");
    let files = [File { name: format!("sparse-training-{stem}.png"), bytes: chart.png()? }];
    write(Path::new("reports/ipu"), &files)?;
    println!("![{name}](sparse-training-{stem}.png)\n");
    Ok(())
}

/// What a change of the pattern takes on the chips, and what it would take the host.
fn change_table(changes: &[(&str, f64, f64)]) -> Result<()> {
    println!("## A change of the pattern: BERT base, blocks of 16\n");
    let a = architecture("base")?;
    let stored = (a.layers * 12 * a.hidden * a.hidden) as f64 * DENSITY;
    // Values of 2 bytes and their two moments of 4 bytes come and go, with two indices of 4 bytes a block.
    let bytes = 2.0 * (stored * 10.0 + stored / 256.0 * 8.0);
    let host_ms = bytes / 16e9 * 1e3;
    println!("| chip | random, ms | by gradient (RigL), ms |\n| --- | --- | --- |");
    for (name, random, gradient) in changes {
        println!("| {name} | {random:.3} | {gradient:.3} |");
    }
    println!(
        "\nOn the host instead, an IPU's link alone takes {host_ms:.2} ms for {:.1} MB there and back (values, moments, indices), and a \
         dense gradient {:.1} ms more; the host's own time is not known. Pruning keeps the largest of each row; new elements \
         and their moments begin at zero.",
        bytes / 1e6,
        (a.layers * 12 * a.hidden * a.hidden * 2) as f64 / 16e9 * 1e3
    );
    Ok(())
}
