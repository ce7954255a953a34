//! Laws of the mapper on the shipped chips and the feed-forward block of GPT-13B: where a search finds less than it has found
//! elsewhere.
//!
//! `cargo run --release --example mapper_laws -- [LAW ...]` checks the laws named, all without one:
//!
//! - `modes`: fused is no slower than kernels with epilogues, nor than kernel by kernel;
//! - `rows`: twice the tokens take at most 2.01 times the cycles, and fewer tokens at most 1.005 times those of any larger count;
//! - `dense`: sparse weights take at most 1.005 times the cycles of dense ones;
//! - `density`: sparser weights of a pattern take at most 1.005 times the cycles of denser ones;
//! - `effort`: more effort is no slower;
//! - `richer`: a chip with more SRAM or bandwidth takes at most 1.01 times the cycles of any poorer one.
//!
//! Every violation is a line; then, for each law, the number of comparisons and of violations, and the worst ratio. A point is compiled
//! once, whatever the laws that read it; points run side by side, and the output is the same for any number of threads.

#![expect(clippy::print_stdout, reason = "a command")]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use rayon::prelude::*;
use rdusim::compile::{BaseCache, Effort, compile_with, simulate_measured};
use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::outcome::Fidelity;
use rdusim::{arch, workload};

const LAWS: [&str; 6] = ["modes", "rows", "dense", "density", "effort", "richer"];
const CHIPS: [&str; 3] = ["sn10", "sn30", "sn40l"];

/// Token counts: odd ones, pairs of which one is twice the other, and some so large (12,288 to 24,576) that their tile sizes have
/// over a hundred breakpoints.
const TOKENS: [u64; 32] = [
    64, 100, 127, 128, 200, 254, 256, 333, 400, 512, 666, 768, 1_000, 1_024, 1_332, 1_536, 2_000, 2_048, 2_777, 3_072,
    4_000, 4_096, 5_554, 6_144, 8_192, 8_193, 10_240, 12_288, 13_312, 16_384, 17_408, 24_576,
];
/// Those on which efforts are compared.
const TOKENS_OF_EFFORT: [u64; 10] = [64, 128, 333, 512, 1_024, 2_048, 4_096, 8_192, 12_288, 16_384];
/// Of points that vary something else.
const TOKENS_OF_A_POINT: u64 = 2_048;

/// Densities of block masks, and sides of their blocks.
const DENSITIES: [&str; 6] = ["1.0", "0.5", "0.25", "0.125", "0.0625", "0.03125"];
const BLOCKS: [u64; 5] = [1, 4, 8, 16, 32];

/// Shares of the SRAM and the bandwidth of a shipped chip, poorer first, in hundredths.
const HUNDREDTHS: [u64; 5] = [50, 75, 100, 150, 200];

/// Slower than a reference by more than this is a violation.
const ALLOWED_OF_TWICE: f64 = 2.01;
const ALLOWED_OF_FEWER: f64 = 1.005;
const ALLOWED_OF_SPARSE: f64 = 1.005;
const ALLOWED_OF_RICHER: f64 = 1.01;

/// The weights of the block.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Weights {
    Dense,
    /// As the file of the sparse block has them: blocks of 16 x 16, an eighth of them stored.
    Shipped,
    /// Square blocks of so many rows, of which a share is stored.
    Blocks {
        density: &'static str,
        block: u64,
    },
    /// So many of every four along K.
    OfFour(u64),
}

impl Weights {
    fn name(&self) -> String {
        match self {
            Self::Dense => "dense".to_owned(),
            Self::Shipped => "16x16 at 0.125".to_owned(),
            Self::Blocks { density, block } => format!("{block}x{block} at {density}"),
            Self::OfFour(stored) => format!("{stored}:4"),
        }
    }

    fn file(&self) -> &'static str {
        if *self == Self::Dense { "workloads/gpt13b-mlp.toml" } else { "workloads/gpt13b-mlp-sparse.toml" }
    }

    fn sets(&self) -> Vec<String> {
        let mut sets = Vec::new();
        for (weight, seed) in [("w_up", 1), ("w_down", 2)] {
            let path = format!("workload.tensors.{weight}.sparsity");
            match self {
                Self::Dense | Self::Shipped => {}
                Self::Blocks { density, block } => {
                    sets.push(format!("{path}.density={density}"));
                    sets.push(format!("{path}.block=[{block}, {block}]"));
                }
                Self::OfFour(stored) => {
                    sets.push(format!("{path}={{ pattern = \"nm\", n = {stored}, m = 4, seed = {seed} }}"));
                }
            }
        }
        sets
    }
}

/// What a chip has more or less of than the shipped one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Resource {
    Sram,
    Bandwidth,
}

/// A chip, a graph and an effort that are compiled in all modes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    chip: &'static str,
    /// A resource, and its share of the shipped chip's in hundredths.
    changed: Option<(Resource, u64)>,
    weights: Weights,
    tokens: u64,
    effort: Effort,
}

impl Point {
    fn new(chip: &'static str, weights: Weights, tokens: u64) -> Self {
        Self { chip, changed: None, weights, tokens, effort: Effort::Full }
    }

    fn name(&self) -> String {
        let resource = match self.changed {
            None => String::new(),
            Some((Resource::Sram, hundredths)) => format!(" with {hundredths} % of its SRAM"),
            Some((Resource::Bandwidth, hundredths)) => format!(" with {hundredths} % of its bandwidth"),
        };
        format!("{}{resource}, {}, {} tokens", self.chip, self.weights.name(), self.tokens)
    }

    /// Cycles in each mode, in the order of `Mode::ALL`; why not, if the point cannot be compiled.
    fn cycles(&self) -> Result<Vec<u64>, String> {
        let render = |error: &rdusim::diagnostics::Diagnostic| error.title().to_owned();
        let path = format!("arch/{}.toml", self.chip);
        let mut chip = arch::load(Path::new(&path), &[]).map_err(|error| render(&error))?;
        if let Some((resource, hundredths)) = self.changed {
            let sets: Vec<String> = match resource {
                Resource::Sram => {
                    let bytes = chip.pmu.capacity_bytes * hundredths / 100;
                    vec![format!("arch.pmu.capacity_bytes={bytes}")]
                }
                Resource::Bandwidth => chip
                    .memory
                    .iter()
                    .map(|tier| {
                        let gb_per_s = tier.bandwidth_bytes_per_s as f64 / 1e9 * hundredths as f64 / 100.0;
                        format!("arch.memory.{}.bandwidth_gb_per_s={gb_per_s}", tier.name)
                    })
                    .collect(),
            };
            chip = arch::load(Path::new(&path), &overrides(&sets)?).map_err(|error| render(&error))?;
        }
        let mut sets = self.weights.sets();
        sets.push(format!("workload.dims.tokens={}", self.tokens));
        let graph =
            workload::load(Path::new(self.weights.file()), &overrides(&sets)?, 0).map_err(|error| render(&error))?;
        let compiled = compile_with(&chip, &graph, &Mode::ALL, self.effort, &BaseCache::default())
            .map_err(|error| render(&error))?;
        Ok(compiled.iter().map(|of| simulate_measured(&chip, &graph, of, Fidelity::Event).cycles).collect())
    }
}

fn overrides(sets: &[String]) -> Result<Vec<Override>, String> {
    sets.iter().map(|set| Override::parse(set).map_err(|error| error.title().to_owned())).collect()
}

/// Cycles of points against those of references: slower by more than `allowed` is a violation.
struct Comparison {
    law: &'static str,
    what: String,
    cycles: u64,
    reference: u64,
    allowed: f64,
}

impl Comparison {
    fn ratio(&self) -> f64 {
        self.cycles as f64 / self.reference.max(1) as f64
    }
}

/// What a campaign has measured.
struct Measured(BTreeMap<Point, Result<Vec<u64>, String>>);

impl Measured {
    /// Cycles of a point in a mode, if it could be compiled.
    fn cycles(&self, point: &Point, mode: Mode) -> Option<u64> {
        let at = Mode::ALL.iter().position(|&other| other == mode)?;
        self.0.get(point)?.as_ref().ok()?.get(at).copied()
    }
}

/// Both graphs, on every chip.
fn shipped() -> Vec<(&'static str, Weights)> {
    CHIPS.into_iter().flat_map(|chip| [(chip, Weights::Dense), (chip, Weights::Shipped)]).collect()
}

fn in_blocks(density: &'static str, block: u64) -> Weights {
    Weights::Blocks { density, block }
}

/// The points that a law reads.
fn points(law: &str) -> Vec<Point> {
    let mut list = Vec::new();
    if matches!(law, "modes" | "rows" | "dense") {
        for (chip, weights) in shipped() {
            list.extend(TOKENS.into_iter().map(|tokens| Point::new(chip, weights.clone(), tokens)));
        }
    }
    if matches!(law, "dense" | "density") {
        for chip in CHIPS {
            list.push(Point::new(chip, Weights::Dense, TOKENS_OF_A_POINT));
            for weights in masks() {
                list.push(Point::new(chip, weights, TOKENS_OF_A_POINT));
            }
        }
    }
    if law == "effort" {
        for (chip, weights) in shipped() {
            for tokens in TOKENS_OF_EFFORT {
                for effort in [Effort::Low, Effort::Full, Effort::Thorough] {
                    list.push(Point { effort, ..Point::new(chip, weights.clone(), tokens) });
                }
            }
        }
    }
    if law == "richer" {
        for (chip, weights) in shipped() {
            for resource in [Resource::Sram, Resource::Bandwidth] {
                for hundredths in HUNDREDTHS {
                    list.push(richer_point(chip, &weights, resource, hundredths));
                }
            }
        }
    }
    list
}

/// Every mask whose density is varied.
fn masks() -> Vec<Weights> {
    let mut list: Vec<Weights> =
        BLOCKS.into_iter().flat_map(|block| DENSITIES.map(|density| in_blocks(density, block))).collect();
    list.extend([Weights::OfFour(2), Weights::OfFour(1)]);
    list
}

fn richer_point(chip: &'static str, weights: &Weights, resource: Resource, hundredths: u64) -> Point {
    let changed = (hundredths != 100).then_some((resource, hundredths));
    Point { changed, ..Point::new(chip, weights.clone(), TOKENS_OF_A_POINT) }
}

fn modes(measured: &Measured, list: &mut Vec<Comparison>) {
    for point in points("modes") {
        let Some(cycles) = measured.cycles(&point, Mode::Fused) else { continue };
        for mode in [Mode::Epilogue, Mode::Kbk] {
            let Some(reference) = measured.cycles(&point, mode) else { continue };
            let what = format!("{}: fused against {}", point.name(), mode.name());
            list.push(Comparison { law: "modes", what, cycles, reference, allowed: 1.0 });
        }
    }
}

fn rows(measured: &Measured, list: &mut Vec<Comparison>) {
    for (chip, weights) in shipped() {
        for mode in Mode::ALL {
            let of = |tokens: u64| measured.cycles(&Point::new(chip, weights.clone(), tokens), mode);
            for (at, &tokens) in TOKENS.iter().enumerate() {
                let Some(cycles) = of(tokens) else { continue };
                let name = format!("{}, {}", Point::new(chip, weights.clone(), tokens).name(), mode.name());
                if let Some(twice) = of(2 * tokens) {
                    let what = format!("{name}: {} tokens against these", 2 * tokens);
                    let allowed = ALLOWED_OF_TWICE;
                    list.push(Comparison { law: "rows", what, cycles: twice, reference: cycles, allowed });
                }
                let more = TOKENS[at + 1..].iter().filter_map(|&tokens| Some((of(tokens)?, tokens)));
                if let Some((reference, larger)) = more.min() {
                    let what = format!("{name}: against {larger} tokens");
                    list.push(Comparison { law: "rows", what, cycles, reference, allowed: ALLOWED_OF_FEWER });
                }
            }
        }
    }
}

fn dense(measured: &Measured, list: &mut Vec<Comparison>) {
    for point in points("dense") {
        let of_dense = Point { weights: Weights::Dense, ..point.clone() };
        for mode in Mode::ALL.into_iter().filter(|_| point != of_dense) {
            let found = measured.cycles(&point, mode).zip(measured.cycles(&of_dense, mode));
            let Some((cycles, reference)) = found else { continue };
            let what = format!("{}, {}: against dense", point.name(), mode.name());
            list.push(Comparison { law: "dense", what, cycles, reference, allowed: ALLOWED_OF_SPARSE });
        }
    }
}

fn density(measured: &Measured, list: &mut Vec<Comparison>) {
    let mut pairs: Vec<(Weights, Weights)> = Vec::new();
    for block in BLOCKS {
        for (&denser, &sparser) in DENSITIES.iter().zip(&DENSITIES[1..]) {
            pairs.push((in_blocks(denser, block), in_blocks(sparser, block)));
        }
    }
    pairs.push((Weights::OfFour(2), Weights::OfFour(1)));
    for chip in CHIPS {
        for mode in Mode::ALL {
            for (denser, sparser) in &pairs {
                let point = |weights: &Weights| Point::new(chip, weights.clone(), TOKENS_OF_A_POINT);
                let found = measured.cycles(&point(sparser), mode).zip(measured.cycles(&point(denser), mode));
                let Some((cycles, reference)) = found else { continue };
                let what = format!("{}, {}: against {}", point(sparser).name(), mode.name(), denser.name());
                list.push(Comparison { law: "density", what, cycles, reference, allowed: ALLOWED_OF_SPARSE });
            }
        }
    }
}

fn effort(measured: &Measured, list: &mut Vec<Comparison>) {
    for point in points("effort").into_iter().filter(|point| point.effort != Effort::Low) {
        let (less, what) = if point.effort == Effort::Full {
            (Effort::Low, "normal against quick")
        } else {
            (Effort::Full, "thorough against normal")
        };
        let of_less = Point { effort: less, ..point.clone() };
        for mode in Mode::ALL {
            let found = measured.cycles(&point, mode).zip(measured.cycles(&of_less, mode));
            let Some((cycles, reference)) = found else { continue };
            let what = format!("{}, {}: {what}", point.name(), mode.name());
            list.push(Comparison { law: "effort", what, cycles, reference, allowed: 1.0 });
        }
    }
}

fn richer(measured: &Measured, list: &mut Vec<Comparison>) {
    for (chip, weights) in shipped() {
        for resource in [Resource::Sram, Resource::Bandwidth] {
            for mode in Mode::ALL {
                let of = |hundredths| measured.cycles(&richer_point(chip, &weights, resource, hundredths), mode);
                for (at, &hundredths) in HUNDREDTHS.iter().enumerate().skip(1) {
                    let poorer = HUNDREDTHS[..at].iter().filter_map(|&poorer| Some((of(poorer)?, poorer)));
                    let Some((cycles, (reference, poorer))) = of(hundredths).zip(poorer.min()) else { continue };
                    let point = richer_point(chip, &weights, resource, hundredths);
                    let what =
                        format!("{}, {}: {hundredths} % against {poorer} % ({resource:?})", point.name(), mode.name());
                    list.push(Comparison { law: "richer", what, cycles, reference, allowed: ALLOWED_OF_RICHER });
                }
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = arguments.iter().find(|law| !LAWS.contains(&law.as_str())) {
        return Err(format!("unknown law `{unknown}`: expected one of {}", LAWS.join(", ")).into());
    }
    let wanted: Vec<&str> =
        LAWS.into_iter().filter(|law| arguments.is_empty() || arguments.iter().any(|word| word == law)).collect();
    let mut all: Vec<Point> = wanted.iter().flat_map(|law| points(law)).collect();
    all.sort_unstable();
    all.dedup();
    let measured = Measured(all.into_par_iter().map(|point| (point.clone(), point.cycles())).collect());
    let header: Vec<&str> =
        ["cargo run --release --example mapper_laws --"].into_iter().chain(wanted.iter().copied()).collect();
    println!("{}", header.join(" "));
    println!("{} points", measured.0.len());
    for (point, cycles) in &measured.0 {
        if let Err(why) = cycles {
            println!("{} cannot be compiled: {why}", point.name());
        }
    }
    let mut summaries = Vec::new();
    for law in wanted {
        let mut list = Vec::new();
        match law {
            "modes" => modes(&measured, &mut list),
            "rows" => rows(&measured, &mut list),
            "dense" => dense(&measured, &mut list),
            "density" => density(&measured, &mut list),
            "effort" => effort(&measured, &mut list),
            _ => richer(&measured, &mut list),
        }
        let mut violations = 0;
        for Comparison { law, what, cycles, reference, allowed } in list.iter().filter(|of| of.ratio() > of.allowed) {
            violations += 1;
            let ratio = *cycles as f64 / (*reference).max(1) as f64;
            println!("{law}: {what}: {cycles} of {reference} cycles, {ratio:.4} times, {allowed} allowed");
        }
        let worst = list.iter().map(|of| of.ratio() / of.allowed).fold(0.0, f64::max);
        summaries.push(format!(
            "{law}: {} comparisons, {violations} violations, worst {worst:.4} of what is allowed",
            list.len()
        ));
    }
    println!("{}", summaries.join("\n"));
    Ok(())
}
