//! How long the compiler takes at worst: graphs of three operators on random chips of up to 1,040 PCUs.
//!
//! `cargo run --release --example cliffs -- [PAIRS [SEED [FROM]]]` compiles pairs drawn from a seed, from number FROM on, one at a
//! time in all three modes, and prints what each took and the slowest to compile. `... -- show NUMBER [SEED]` prints the command of a pair.
//!
//! Seeds 1 to 99 are for development. Figures are reported on seeds that were drawn afterwards.

#![expect(clippy::print_stdout, reason = "a command")]
#![expect(clippy::disallowed_methods, reason = "it measures how long compiling takes")]

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rdusim::compile::{compile_measured, simulate_measured};
use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::outcome::Fidelity;
use rdusim::{arch, workload};

/// Pairs of one run.
const PAIRS: u64 = 300;

/// A chip and a graph as changes of shipped files.
struct Pair {
    workload: &'static str,
    sets: Vec<String>,
}

impl Pair {
    /// The pair of a number.
    fn draw(seed: u64, number: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed.wrapping_mul(1 << 32).wrapping_add(number));
        let pick = |list: &[&'static str], random: &mut Pcg64Mcg| *list.choose(random).unwrap_or(&list[0]);
        // The last has more PCUs than PMUs, or fewer, column by column.
        let pattern =
            pick(&[r#"["CM","MC"]"#, r#"["CCM","MCC","CMC"]"#, r#"["MMC","CMM","MCM"]"#, r#"["CM"]"#], &mut random);
        let (columns, rows) = loop {
            let (columns, rows) = (random.random_range(2..=52u64), random.random_range(2..=40u64));
            // Two of three sites at most are PCUs.
            if columns * rows * 2 / 3 <= 1_040 {
                break (columns, rows);
            }
        };
        let mut sets = vec![
            format!("arch.grid.pattern={pattern}"),
            format!("arch.grid.columns={columns}"),
            format!("arch.grid.rows={rows}"),
            format!("arch.grid.tile_columns={columns}"),
            format!("arch.grid.tile_rows={rows}"),
            format!("arch.grid.die_columns={columns}"),
            format!("arch.grid.die_rows={rows}"),
        ];
        let mut set = |path: &str, values: &[&'static str], random: &mut Pcg64Mcg| {
            sets.push(format!("{path}={}", pick(values, random)));
        };
        set("arch.pmu.capacity_bytes", &["65536", "131072", "262144", "524288"], &mut random);
        set("arch.memory.hbm.bandwidth_gb_per_s", &["100", "400", "1000", "1800", "4000"], &mut random);
        set("arch.network.links_per_direction", &["1", "2", "4"], &mut random);
        set("arch.pcu.stages", &["6", "12", "16"], &mut random);
        set("arch.pcu.lanes.bf16", &["16", "32"], &mut random);
        set("workload.dims.tokens", &["1", "64", "300", "2048", "16384"], &mut random);
        set("workload.dims.d_model", &["256", "1024", "4096", "5120"], &mut random);
        set("workload.dims.d_ff", &["512", "4096", "13824", "20480"], &mut random);
        let workload = pick(&["gpt13b-mlp-sparse", "gpt13b-mlp"], &mut random);
        if workload == "gpt13b-mlp-sparse" {
            for weight in ["w_up", "w_down"] {
                let path = format!("workload.tensors.{weight}.sparsity.density");
                set(&path, &["0.02", "0.125", "0.5"], &mut random);
            }
        }
        Self { workload, sets }
    }

    /// Files and changes as arguments of the binary.
    fn arguments(&self) -> String {
        let sets: Vec<String> = self.sets.iter().map(|set| format!("--set '{set}'")).collect();
        format!("--arch arch/sn40l.toml --workload workloads/{}.toml {}", self.workload, sets.join(" "))
    }

    /// Seconds of compiling and of simulating what compiling has not measured, and cycles of each mode; `None` if the pair is
    /// refused.
    fn run(&self) -> Option<([f64; 2], Vec<u64>)> {
        let sets: Vec<Override> = self.sets.iter().map(|set| Override::parse(set)).collect::<Result<_, _>>().ok()?;
        let (on_chip, on_graph): (Vec<_>, Vec<_>) =
            self.sets.iter().zip(sets).partition(|(text, _)| text.starts_with("arch."));
        let of = |list: Vec<(&String, Override)>| list.into_iter().map(|(_, set)| set).collect::<Vec<_>>();
        let chip = arch::load(Path::new("arch/sn40l.toml"), &of(on_chip)).ok()?;
        let file = format!("workloads/{}.toml", self.workload);
        let workload = workload::load(Path::new(&file), &of(on_graph), 0).ok()?;
        let start = Instant::now();
        let compiled = compile_measured(&chip, &workload, &[Mode::Kbk, Mode::Epilogue, Mode::Fused]).ok()?;
        let compile_s = start.elapsed().as_secs_f64();
        let cycles = |compiled| simulate_measured(&chip, &workload, compiled, Fidelity::Event).cycles;
        let cycles = compiled.iter().map(cycles).collect();
        Some(([compile_s, start.elapsed().as_secs_f64() - compile_s], cycles))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |text| text.parse::<u64>());
    if arguments.first().is_some_and(|word| word == "show") {
        println!("rdusim compare {}", Pair::draw(number(2, 1)?, number(1, 0)?).arguments());
        return Ok(());
    }
    let (pairs, seed, from) = (number(0, PAIRS)?, number(1, 1)?, number(2, 0)?);
    let mut slowest: Vec<([f64; 2], u64)> = Vec::new();
    let (mut refused, mut sums) = (0, [0u64; 3]);
    for number in from..from + pairs {
        let Some((seconds, cycles)) = Pair::draw(seed, number).run() else {
            refused += 1;
            continue;
        };
        println!("pair {number}: {:.2} s, {:.2} s of simulating, cycles {cycles:?}", seconds[0], seconds[1]);
        sums.iter_mut().zip(cycles).for_each(|(sum, cycles)| *sum += cycles);
        slowest.push((seconds, number));
    }
    slowest.sort_by(|a, b| b.0[0].total_cmp(&a.0[0]));
    let total = |of: usize| slowest.iter().map(|(seconds, _)| seconds[of]).sum::<f64>();
    let (compile, simulate, ran) = (total(0), total(1), slowest.len());
    println!("seed {seed}: {ran} of {pairs} pairs compiled in {compile:.1} s, {refused} refused; cycles {sums:?}");
    println!("sections too long to be measured simulated in {simulate:.1} s");
    for ([compile, simulate], number) in slowest.iter().take(10) {
        println!("{compile:7.2} s, and {simulate:.2} s of simulating  pair {number}");
    }
    Ok(())
}
