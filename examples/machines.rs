//! A layer of GPT-13B on every kind of machine, dense and sparse, forward and training, kernel by kernel, with epilogues and fused.
//!
//! `cargo run --release --example machines [-- CHIP ...]` prints a table for each phase and writes its pictures to `reports/machines`.

#![expect(clippy::print_stdout, reason = "a command")]

use std::error::Error;
use std::path::Path;

use rayon::prelude::*;
use rdusim::analysis::{self, Failure, Options as RunOptions, Ran, Source, Uncertainty, add_ranges};
use rdusim::arch::{self, Quality};
use rdusim::compile::Effort;
use rdusim::input::Given;
use rdusim::mode::Mode;
use rdusim::model::{Architecture, Options, Part, Phase, Sparsity, part_of, preset};
use rdusim::outcome::Fidelity;
use rdusim::report::{Curve, CurveChart, File, write};
use rdusim::workload::{self, Workload};
use serde_json::Value;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Chips by their file, and a word on what they are.
const CHIPS: [(&str, &str); 7] = [
    ("sn10", "RDU"),
    ("sn40l", "RDU"),
    ("a100", "GPU"),
    ("h100", "GPU"),
    ("bow", "IPU"),
    ("tpu-v4", "systolic arrays"),
    ("cs2", "wafer"),
];

/// Densities of the layer's weights, and blocks of the sparse ones.
const DENSITIES: [f64; 4] = [1.0, 0.25, 0.125, 0.05];
const BLOCKS: [u64; 3] = [1, 4, 16];
/// Tokens of the one sequence.
const TOKENS: u64 = 2048;
/// Draws of a chip's uncertain fields.
const SAMPLES: u64 = 16;
const SEED: u64 = 1;

/// A layer with so much of its weights.
#[derive(Clone, Copy, PartialEq)]
struct Variant {
    density: f64,
    block: u64,
}

impl Variant {
    fn all() -> Vec<Self> {
        let sparse = |&density: &f64| BLOCKS.map(|block| Self { density, block });
        let mut list = vec![Self { density: 1.0, block: 0 }];
        list.extend(DENSITIES[1..].iter().flat_map(sparse));
        list
    }

    fn told(self) -> String {
        if self.block == 0 {
            "dense".to_owned()
        } else {
            format!("{:.1} %, {}", (1.0 - self.density) * 100.0, self.block)
        }
    }
}

/// Figures of one chip, variant and phase, by mode; none, and why, where the chip refuses it.
struct Point {
    chip: usize,
    variant: Variant,
    runs: Vec<Run>,
    refused: String,
}

/// Seconds and joules with the ranges of their draws, bytes off chip, and what bounds most of the time.
struct Run {
    seconds: (f64, [f64; 2]),
    joules: (f64, [f64; 2]),
    bytes: f64,
    bound_by: String,
}

fn layer(variant: Variant, phase: Phase) -> Result<Workload> {
    let (architecture, _) = preset("gpt-13b").map_err(|error| format!("{error:?}"))?;
    let options = Options {
        sparsity: (variant.block > 0).then_some(Sparsity { density: variant.density, block: variant.block }),
        ..Options::new("a layer of GPT-13B", Architecture { layers: 1, ..architecture }, phase, 1, TOKENS)
    };
    let text = part_of(&options, Part::default()).map_err(|error| error.render(false))?.into_text();
    Ok(workload::parse("layer.toml", &text, &[], SEED).map_err(|error| error.render(false))?)
}

fn run(chip: usize, variant: Variant, phase: Phase) -> Result<Point> {
    let workload = layer(variant, phase)?;
    let given = Given::from(Path::new(&format!("arch/{}.toml", CHIPS[chip].0)));
    let any = arch::take(&given, &[]).map_err(|error| error.render(false))?;
    let options = RunOptions {
        fidelity: Fidelity::Event,
        quality: Quality::Ideal,
        skip: true,
        source: Source::Compiler(Effort::Full),
    };
    let failed = |failure| format!("{}, {}: {failure:?}", CHIPS[chip].0, variant.told());
    let sides = match Ran::on(any, &workload, &Mode::ALL, &options, &mut |_| ()) {
        Ok(ran) => [ran],
        Err(Failure::Refused(error)) => {
            return Ok(Point { chip, variant, runs: Vec::new(), refused: error.title().to_owned() });
        }
        Err(failure) => return Err(failed(failure).into()),
    };
    let mut document = analysis::document(&workload, &sides, &options, SEED).ok_or("no runs")?;
    let how = Uncertainty { samples: SAMPLES, seed: SEED };
    add_ranges(&mut document, how, &options, &workload, &Mode::ALL, &[(given, &[])], &sides).map_err(failed)?;
    let json: Value = serde_json::from_str(&document.to_json())?;
    let runs = json["runs"].as_array().ok_or("no runs")?.iter().map(read).collect();
    Ok(Point { chip, variant, runs, refused: String::new() })
}

/// A training step on an RDU takes a minute to compile: of sparse layers only one is.
fn is_tried(chip: usize, variant: Variant, phase: Phase) -> bool {
    let is_long = phase == Phase::Training && CHIPS[chip].1 == "RDU";
    !is_long || variant.block == 0 || variant == Variant { density: 0.125, block: 16 }
}

fn read(run: &Value) -> Run {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let range = |key: &str| [0, 1].map(|at| number(&run["ranges"][key][at]));
    let traffic = &run["traffic"];
    let mut by: Vec<(String, f64)> = Vec::new();
    for section in run["sections"].as_array().into_iter().flatten() {
        let (name, cycles) = (section["bound_by"].as_str().unwrap_or(""), number(&section["cycles"]));
        match by.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += cycles,
            None => by.push((name.to_owned(), cycles)),
        }
    }
    let most = by.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    Run {
        seconds: (number(&run["time_s"]), range("time_s")),
        joules: (number(&run["energy_j"]["total"]), range("energy_j")),
        bytes: number(&traffic["off_chip_read_bytes"]) + number(&traffic["off_chip_write_bytes"]),
        bound_by: most.map(|(name, _)| name).unwrap_or_default(),
    }
}

fn table(name: &str, points: &[Point]) {
    println!("## {name}\n");
    println!(
        "| machine | pruned, block | kbk, ms | epilogue, ms | fused, ms | its range | off chip, kbk and fused, GB | fused, J | its range | bound by |"
    );
    println!("| --- | --- | ---: | ---: | ---: | --- | --- | ---: | --- | --- |");
    for Point { chip, variant, runs, refused } in points {
        let [kbk, epilogue, fused] = &runs[..] else {
            println!("| {} | {} | | | | | | | | {refused} |", CHIPS[*chip].0, variant.told());
            continue;
        };
        let ms = |run: &Run| format!("{:.2}", run.seconds.0 * 1e3);
        println!(
            "| {} | {} | {} | {} | **{}** | {:.2} to {:.2} | {:.2}, {:.2} | {:.2} | {:.2} to {:.2} | {} |",
            CHIPS[*chip].0,
            variant.told(),
            ms(kbk),
            ms(epilogue),
            ms(fused),
            fused.seconds.1[0] * 1e3,
            fused.seconds.1[1] * 1e3,
            kbk.bytes / 1e9,
            fused.bytes / 1e9,
            fused.joules.0,
            fused.joules.1[0],
            fused.joules.1[1],
            fused.bound_by,
        );
    }
    println!();
}

/// The fastest of each variant, the next, and whether their ranges overlap; the one that takes least energy.
fn winners(points: &[Point]) {
    println!("| pruned, block | fastest | next | apart | least energy |\n| --- | --- | --- | --- | --- |");
    for variant in Variant::all() {
        let mut list: Vec<(&str, &Run)> = points
            .iter()
            .filter(|point| point.variant == variant)
            .filter_map(|point| Some((CHIPS[point.chip].0, point.runs.last()?)))
            .collect();
        list.sort_by(|a, b| a.1.seconds.0.total_cmp(&b.1.seconds.0));
        let [(first, of_first), (next, of_next), ..] = &list[..] else { continue };
        let least = list.iter().min_by(|a, b| a.1.joules.0.total_cmp(&b.1.joules.0));
        println!(
            "| {} | {first}, {:.2} ms, by {} | {next}, {:.2} ms, by {} | {} | {} |",
            variant.told(),
            of_first.seconds.0 * 1e3,
            of_first.bound_by,
            of_next.seconds.0 * 1e3,
            of_next.bound_by,
            if of_first.seconds.1[1] < of_next.seconds.1[0] { "yes" } else { "ranges overlap" },
            least.map_or_else(String::new, |(name, run)| format!("{name}, {:.2} J", run.joules.0)),
        );
    }
    println!();
}

fn picture(name: &str, stem: &str, points: &[Point]) -> Result<()> {
    let curve = |chip: usize| {
        let of =
            points.iter().filter(|point| point.chip == chip && (point.variant.block == 0 || point.variant.block == 16));
        let mut list: Vec<(f64, f64)> =
            of.filter_map(|point| Some((point.variant.density, point.runs.last()?.seconds.0 * 1e3))).collect();
        list.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (name, kind) = CHIPS[chip];
        Curve { name: format!("{name} ({kind})"), points: list, dashed: kind == "GPU", like: None }
    };
    let chart = CurveChart {
        title: format!("A layer of GPT-13B, {TOKENS} tokens: {name}, fused"),
        about: "blocks of 16 x 16; every machine at its own peak, power and memory".to_owned(),
        x_name: "share of the weights that is stored".to_owned(),
        y_name: "milliseconds".to_owned(),
        curves: (0..CHIPS.len()).map(curve).filter(|curve| !curve.points.is_empty()).collect(),
    };
    let files = [
        File { name: format!("{stem}.png"), bytes: chart.png()? },
        File { name: format!("{stem}.svg"), bytes: chart.svg()?.into_bytes() },
    ];
    write(Path::new("reports/machines"), &files)?;
    println!("![{name}]({stem}.png)\n");
    Ok(())
}

fn main() -> Result<()> {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let is_chosen = |chip: &usize| chosen.is_empty() || chosen.iter().any(|name| name == CHIPS[*chip].0);
    println!("# A layer of GPT-13B on every kind of machine\n");
    println!(
        "Made by `reports/machines/regenerate`. {TOKENS} tokens of one sequence, bf16 (fp16 where a machine has no bf16), all weights of the \
         layer pruned at random in blocks; inputs and results cross the chip's edge. Ranges are the 5th to 95th percentile of {SAMPLES} draws \
         of each chip's uncertain fields; energy counts the places that each kind's model counts. A training step is compiled for RDUs dense and at 87.5 % in blocks of 16 only: each takes a minute.\n"
    );
    for (name, stem, phase) in
        [("forward", "forward", Phase::Forward), ("a training step", "training", Phase::Training)]
    {
        let cases: Vec<(usize, Variant)> = (0..CHIPS.len())
            .filter(is_chosen)
            .flat_map(|chip| Variant::all().into_iter().map(move |variant| (chip, variant)))
            .filter(|&(chip, variant)| is_tried(chip, variant, phase))
            .collect();
        let points =
            cases.into_par_iter().map(|(chip, variant)| run(chip, variant, phase)).collect::<Result<Vec<_>>>()?;
        table(name, &points);
        winners(&points);
        picture(name, stem, &points)?;
    }
    Ok(())
}
