//! The report on chips of tiles: exchanges, dense and sparse products beside what was measured, and every term left out once.
//!
//! `cargo run --release --example ipu` prints `reports/ipu/README.md`; every run is in closed form and seeded.

#![expect(clippy::print_stdout, reason = "an example prints its report")]

use std::error::Error;
use std::path::Path;

use rdusim::arch::{self, Bsp, SparseKernel};
use rdusim::bsp::{
    Blocks, ExchangeCase, Place, Product, SparseProduct, Superstep, dynamic_plan, exchange_bandwidth, exchange_us,
    gemm_seconds, moved_seconds, parts_of, plan_gemm, run, sparse_seconds, static_plan,
};
use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::model::{Architecture, Options, Part, Phase, part_of, preset};
use rdusim::sparsity::BlockMask;
use rdusim::units::Dtype;
use rdusim::workload;
use rdusim::workload::ProductShape;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Columns of the dense matrix that are tried, as in the paper: the best one counts.
const COLUMNS: std::ops::RangeInclusive<u32> = 4..=15;

fn chip(name: &str, sets: &[&str]) -> Outcome<Bsp> {
    let sets = sets.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    let chip = arch::open(Path::new(name), &sets)?;
    chip.bsp().cloned().ok_or_else(|| format!("{name} is no chip of tiles").into())
}

/// TFLOP/s of the stored elements, at the best number of columns that fits, and that number.
fn best(of: impl Fn(u64) -> Option<f64>) -> Option<(f64, u64)> {
    COLUMNS.map(|power| 1 << power).filter_map(|n| Some((of(n)?, n))).max_by(|a, b| a.0.total_cmp(&b.0))
}

fn dense_rate(chip: &Bsp, dtype: Dtype, m: u64, n: u64) -> Option<f64> {
    let seconds = gemm_seconds(chip, dtype, ProductShape { m: n, n: m, k: m }).ok()?;
    Some(2.0 * (m * m * n) as f64 / seconds / 1e12)
}

fn sparse_rate(chip: &Bsp, blocks: &Blocks, dtype: Dtype, n: u64, kernel: SparseKernel) -> Option<f64> {
    let seconds = sparse_seconds(chip, blocks, n, dtype, kernel).ok()?;
    Some(2.0 * (blocks.count * blocks.side * blocks.side * n) as f64 / seconds / 1e12)
}

/// Speed-up of a sparse product over the dense one of the same shape, each at its best number of columns.
fn speedup(chip: &Bsp, dtype: Dtype, m: u64, side: u64, density: f64, kernel: SparseKernel) -> Option<f64> {
    let blocks = Blocks::of(&BlockMask::random(m, m, (side, side), density, 7));
    let dense = best(|n| dense_rate(chip, dtype, m, n))?;
    let sparse = best(|n| sparse_rate(chip, &blocks, dtype, n, kernel))?;
    Some(sparse.0 / density / dense.0)
}

fn main() -> Outcome<()> {
    println!("# Chips of tiles beside what was measured\n");
    println!("Made by `reports/ipu/regenerate`. Terms and sources: [docs/ipu.md](../../docs/ipu.md).\n");
    exchanges()?;
    dense()?;
    popsparse()?;
    exponents()?;
    loops()?;
    ablation()
}

/// Three digits or more.
fn short(number: f64) -> String {
    let places = (2 - number.abs().max(1e-9).log10().floor() as i32).clamp(0, 6);
    format!("{number:.*}", places as usize)
}

fn row(name: &str, measured: f64, found: f64) {
    println!("| {name} | {measured} | {} | {:+.1} % |", short(found), (found / measured - 1.0) * 100.0);
}

/// Figures of arXiv:1912.03413, tables 4.1 to 4.8.
fn exchanges() -> Outcome<()> {
    let gc2 = chip("arch/gc2.toml", &[])?;
    println!(
        "## Exchange of the GC2 (arXiv:1912.03413)\n\nLines with a star are what the chip file is fitted to or states. \
         `rdusim validate --data FILE --arch gc2` takes tables of such lines ([docs/validation.md](../../docs/validation.md)).\n"
    );
    println!("| case | measured | model | error |\n| --- | --- | --- | --- |");
    let pairs = |tiles| ExchangeCase::pairs(Place::Chip, tiles);
    let far = |link, tiles| ExchangeCase::pairs(Place::Link(link), tiles);
    let words = [
        ("us, word, idle *", pairs(1), 0.133),
        ("us, word, 1216 at once *", pairs(1216), 0.165),
        ("us, word, 4 at once", pairs(4), 0.157),
        ("us, word, 38 at once", pairs(38), 0.148),
        ("us, word, 304 at once", pairs(304), 0.165),
        ("us, broadcast to 16 *", ExchangeCase::broadcast(16), 0.094),
        ("us, broadcast to 76", ExchangeCase::broadcast(76), 0.136),
        ("us, broadcast to 304", ExchangeCase::broadcast(304), 0.153),
        ("us, broadcast to 608", ExchangeCase::broadcast(608), 0.176),
        ("us, broadcast to 1216", ExchangeCase::broadcast(1216), 0.194),
        ("us, word, same board, 1216 at once *", far("board", 1216), 2.521),
        ("us, word, same board, 2432 at once", far("board", 2432), 4.282),
        ("us, word, two links, 1216 at once *", far("indirect", 1216), 5.98),
    ];
    for (name, case, measured) in words {
        row(name, measured, exchange_us(&gc2, case).ok_or("a path that the file lacks")?);
    }
    let rates = [
        ("GB/s, one pair", pairs(1), 6.34),
        ("GB/s, 38 pairs", pairs(38), 240.12),
        ("GB/s, 1216 pairs", pairs(1216), 7679.01),
        ("GB/s, same board, 1216 pairs *", far("board", 1216), 55.0),
    ];
    for (name, case, measured) in rates {
        row(name, measured, exchange_bandwidth(&gc2, case).ok_or("a path that the file lacks")? * 1e-9);
    }
    println!();
    Ok(())
}

fn dense() -> Outcome<()> {
    println!("## Dense products, TFLOP/s\n\n| case | measured | model | error |\n| --- | --- | --- | --- |");
    let bow = chip("arch/bow.toml", &[])?;
    for (n, profiled, looped) in [(1024, 209.0, 198.0), (2048, 223.0, 211.0)] {
        let found = dense_rate(&bow, Dtype::Fp16, 4096, n).ok_or("no room")?;
        row(&format!("Bow fp16, m = k = 4096, n = {n}, profiled (digitised from arXiv:2303.16999)"), profiled, found);
        row(&format!("Bow fp16, m = k = 4096, n = {n}, in a loop (graphcore-research/notebooks)"), looped, found);
    }
    let largest = |chip: &Bsp, dtype: Dtype, step: u64| {
        (1..1024)
            .map(|at| at * step)
            .take_while(|&n| gemm_seconds(chip, dtype, ProductShape { m: n, n, k: n }).is_ok())
            .last()
    };
    let square = |chip: &Bsp, dtype: Dtype, n: u64| {
        let seconds = gemm_seconds(chip, dtype, ProductShape { m: n, n, k: n }).ok()?;
        Some(2.0 * (n * n * n) as f64 / seconds / 1e12)
    };
    let gc2 = chip("arch/gc2.toml", &[])?;
    let found = best_square(&gc2, Dtype::Fp32, &square).ok_or("no room")?;
    row("GC2 fp32, best square (arXiv:1912.03413)", 18.9, found);
    let found = best_square(&gc2, Dtype::Fp16, &square).ok_or("no room")?;
    row("GC2 mixed, best square (arXiv:1912.03413)", 58.9, found);
    let found = best_square(&chip("arch/gc200.toml", &[])?, Dtype::Fp32, &square).ok_or("no room")?;
    row("GC200 fp32, best square", 44.2, found);
    println!("\n## The largest square product that fits\n");
    for (name, dtype) in
        [("arch/bow.toml", Dtype::Fp16), ("arch/bow.toml", Dtype::Fp32), ("arch/gc2.toml", Dtype::Fp32)]
    {
        let chip = chip(name, &[])?;
        let most = largest(&chip, dtype, 64).unwrap_or(0);
        let room = (chip.tensor_bytes() * chip.tile.count) as f64 / 3.0 / dtype.bytes() as f64;
        println!(
            "- {} {dtype}: no square beyond {:.0} can be resident with its result; the largest that runs is {most} (steps of 64).",
            chip.name,
            room.sqrt()
        );
        if let Err(error) = gemm_seconds(&chip, dtype, ProductShape { m: most + 64, n: most + 64, k: most + 64 }) {
            println!("  {}.", error.title());
        }
    }
    println!();
    Ok(())
}

fn best_square(chip: &Bsp, dtype: Dtype, square: &dyn Fn(&Bsp, Dtype, u64) -> Option<f64>) -> Option<f64> {
    (1..=48).filter_map(|at| square(chip, dtype, at * 128)).max_by(f64::total_cmp)
}

/// The printed table of arXiv:2303.16999: m = k = 4096, d = 1/16, best n.
fn popsparse() -> Outcome<()> {
    let bow = chip("arch/bow.toml", &[])?;
    println!("## Speed-up of sparse products on Bow (arXiv:2303.16999): m = k = 4096, d = 1/16, best n\n");
    println!("| case | measured | model | error |\n| --- | --- | --- | --- |");
    for (dtype, side, dynamic, fixed) in [
        (Dtype::Fp16, 1, 0.4, 0.7),
        (Dtype::Fp32, 1, 0.9, 1.4),
        (Dtype::Fp16, 16, 1.9, 4.9),
        (Dtype::Fp32, 16, 3.8, 5.6),
    ] {
        for (kernel, name, measured) in
            [(SparseKernel::Static, "static", fixed), (SparseKernel::Dynamic, "dynamic", dynamic)]
        {
            let found = speedup(&bow, dtype, 4096, side, 1.0 / 16.0, kernel).ok_or("no room")?;
            row(&format!("{name}, blocks of {side}, {dtype}"), measured, found);
        }
    }
    println!();
    Ok(())
}

/// Fits `a m^x d^y b^z` to speed-ups by Gauss and Newton's method in linear space.
fn exponents() -> Outcome<()> {
    let bow = chip("arch/bow.toml", &[])?;
    let mut points = Vec::new();
    let mut lacking = Vec::new();
    for m in [1024_u64, 2048, 4096] {
        for side in [1_u64, 4, 8, 16] {
            for power in 2..=6 {
                let density = 1.0 / f64::from(1 << power);
                match speedup(&bow, Dtype::Fp16, m, side, density, SparseKernel::Static) {
                    Some(found) => points.push(([1.0, (m as f64).ln(), density.ln(), (side as f64).ln()], found)),
                    None => lacking.push(format!("m {m}, b {side}, d 1/{}", 1 << power)),
                }
            }
        }
    }
    let mut fit = [0.0013_f64.ln(), 0.59, -0.54, 0.5];
    for _ in 0..200 {
        let mut normal = [[0.0; 5]; 4];
        for (x, found) in &points {
            let value = x.iter().zip(&fit).map(|(x, c)| x * c).sum::<f64>().exp();
            for i in 0..4 {
                for j in 0..4 {
                    normal[i][j] += value * value * x[i] * x[j];
                }
                normal[i][4] += value * x[i] * (found - value);
            }
        }
        for (c, step) in fit.iter_mut().zip(solved(normal)) {
            *c += 0.5 * step;
        }
    }
    println!("## Power law of the static speed-up, fp16: a m^x d^y b^z, m = k, least squares in linear space\n");
    println!("| case | published | model | error |\n| --- | --- | --- | --- |");
    for (name, published, found) in [
        ("x (size)", 0.59, fit[1]),
        ("y (density)", -0.54, fit[2]),
        ("z (block)", 0.5, fit[3]),
        ("a", 0.0013, fit[0].exp()),
    ] {
        row(name, published, found);
    }
    let left_out = if lacking.is_empty() { "none".to_owned() } else { lacking.join("; ") };
    println!("\n{} points; left out because nothing fits: {left_out}.\n", points.len());
    Ok(())
}

/// Gauss' elimination with the largest pivot.
fn solved(mut rows: [[f64; 5]; 4]) -> [f64; 4] {
    for at in 0..4 {
        let pivot = (at..4).max_by(|&a, &b| rows[a][at].abs().total_cmp(&rows[b][at].abs())).unwrap_or(at);
        rows.swap(at, pivot);
        let lead = rows[at];
        for (other, row) in rows.iter_mut().enumerate() {
            if other != at && lead[at] != 0.0 {
                let factor = row[at] / lead[at];
                row.iter_mut().zip(lead).for_each(|(cell, lead)| *cell -= factor * lead);
            }
        }
    }
    [0, 1, 2, 3].map(|at| if rows[at][at] == 0.0 { 0.0 } else { rows[at][4] / rows[at][at] })
}

/// The same kernels in a loop of a framework, operands and results in a layout of their own.
fn loops() -> Outcome<()> {
    let bow = chip("arch/bow.toml", &[])?;
    println!("## In a loop (graphcore-research/notebooks, SpMM.ipynb), fp16, m = k = 4096: speed-up over dense\n");
    println!("The model adds a change of layout of the dense operand and of the result, every iteration.\n");
    println!("| case | measured | model | error | TFLOP/s measured | model |\n| --- | --- | --- | --- | --- | --- |");
    for (side, n, density, measured, rate) in [
        (1, 1024, 64, 1.99, 6.16),
        (1, 1024, 16, 0.83, 10.23),
        (1, 1024, 8, 0.46, 11.46),
        (16, 2048, 64, 1.55, 5.11),
        (16, 2048, 16, 1.37, 18.03),
        (16, 2048, 8, 1.24, 32.69),
    ] {
        let blocks = Blocks::of(&BlockMask::random(4096, 4096, (side, side), 1.0 / f64::from(density), 7));
        let dense = gemm_seconds(&bow, Dtype::Fp16, ProductShape { m: n, n: 4096, k: 4096 })?;
        let sparse = match sparse_seconds(&bow, &blocks, n, Dtype::Fp16, SparseKernel::Static) {
            Ok(seconds) => seconds,
            Err(error) => {
                println!(
                    "| blocks of {side}, n = {n}, d = 1/{density} | {measured} | - | {} | {rate} | - |",
                    error.title()
                );
                continue;
            }
        };
        let moved = moved_seconds(&bow, 2.0 * (4096 * n * 2) as f64);
        let all = sparse + moved;
        let found = 2.0 * (blocks.count * side * side * n) as f64 / all / 1e12;
        println!(
            "| blocks of {side}, n = {n}, d = 1/{density} | {measured} | {:.2} | {:+.0} % | {rate} | {found:.2} |",
            dense / all,
            (dense / all / measured - 1.0) * 100.0
        );
    }
    println!();
    Ok(())
}

/// Every term left out once.
fn ablation() -> Outcome<()> {
    println!(
        "## Every term left out once\n\nTFLOP/s of a dense product (fp16, 4096 x 4096, n = 2048); speed-ups at m = k = 4096, d = 1/16.\n"
    );
    println!(
        "| left out | dense | static b = 16 | dynamic b = 16 | static b = 1 | dynamic b = 1 |\n| --- | --- | --- | --- | --- | --- |"
    );
    let terms: [(&str, &[&str]); 10] = [
        ("nothing", &[]),
        ("barriers", &["arch.exchange.sync_cycles=0"]),
        ("setup of exchanges", &["arch.exchange.setup_cycles=0"]),
        ("bytes of exchanges", &["arch.exchange.bytes_per_cycle=4000"]),
        ("shared buses", &["arch.exchange.shared_bus_tiles=1"]),
        ("loading of coefficients", &["arch.tile.weight_load_bytes=4096"]),
        ("memory share (all of a tile)", &["arch.planner.memory_share=1"]),
        ("room of buckets beyond an even pattern", &["arch.planner.bucket_oversize=0"]),
        ("sums of 32 bits in the dynamic kernel", &["arch.planner.dynamic_partials=fp16"]),
        ("reserved bytes", &["arch.tile.reserved_bytes=0"]),
    ];
    for (name, sets) in terms {
        let bow = chip("arch/bow.toml", sets)?;
        let dense = dense_rate(&bow, Dtype::Fp16, 4096, 2048);
        let of = |side: u64, kernel| speedup(&bow, Dtype::Fp16, 4096, side, 1.0 / 16.0, kernel);
        let cells = [
            dense,
            of(16, SparseKernel::Static),
            of(16, SparseKernel::Dynamic),
            of(1, SparseKernel::Static),
            of(1, SparseKernel::Dynamic),
        ];
        let cells = cells.map(|cell| cell.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}")));
        println!("| {name} | {} |", cells.join(" | "));
    }
    steps_left_out()
}

/// Cycles of a plan without the steps of a name.
fn without(chip: &Bsp, steps: &[Superstep], name: &str) -> f64 {
    let kept: Vec<Superstep> = steps.iter().filter(|step| step.name != name).cloned().collect();
    parts_of(chip, &kept).total()
}

/// Steps of plans left out once, the plans as they are: what no field of the chip file takes away.
fn steps_left_out() -> Outcome<()> {
    println!("\n## Steps of plans left out once\n");
    println!(
        "Share of a plan's time, per cent, at m = k = 4096, n = 2048 (dense), 1024 (sparse); d = 1/16. The plans are those found with \
         all steps. A dash: the plan has no such step.\n"
    );
    let bow = chip("arch/bow.toml", &[])?;
    let available = bow.planner.memory_share * bow.tile.sram_bytes as f64;
    let dense = |chip: &Bsp, dtype: Dtype| {
        let product = Product {
            count: 1,
            m: 2048,
            n: 4096,
            k: 4096,
            dtype,
            a_home: true,
            b_home: true,
            available,
            windows: [None; 2],
            packed: [None; 2],
        };
        plan_gemm(chip, &product).map(|plan| plan.steps)
    };
    let sparse = |side: u64, dtype: Dtype, dynamic: bool| {
        let blocks = Blocks::of(&BlockMask::random(4096, 4096, (side, side), 1.0 / 16.0, 7));
        let product = SparseProduct { blocks: &blocks, columns: 1024, dtype, available };
        let plan = if dynamic { dynamic_plan(&bow, &product) } else { static_plan(&bow, &product) };
        plan.map(|plan| plan.steps)
    };
    let wide = chip("arch/bow.toml", &["arch.planner.partials=fp32"])?;
    let plans: [(&str, &Bsp, Option<Vec<Superstep>>); 7] = [
        ("dense fp16", &bow, dense(&bow, Dtype::Fp16)),
        ("dense fp16, sums of 32 bits", &wide, dense(&wide, Dtype::Fp16)),
        ("static b = 16 fp16", &bow, sparse(16, Dtype::Fp16, false)),
        ("static b = 16 fp32", &bow, sparse(16, Dtype::Fp32, false)),
        ("static b = 1 fp16", &bow, sparse(1, Dtype::Fp16, false)),
        ("dynamic b = 16 fp16", &bow, sparse(16, Dtype::Fp16, true)),
        ("dynamic b = 1 fp16", &bow, sparse(1, Dtype::Fp16, true)),
    ];
    let names = ["reduce", "cast", "zero", "propagate", "arrange result"];
    println!("| plan | {} |\n| --- |{}", names.join(" | "), " --- |".repeat(names.len()));
    for (name, chip, steps) in plans {
        let steps = steps.ok_or("no plan")?;
        let all = parts_of(chip, &steps).total();
        let cells = names.map(|step| {
            let share = 100.0 * (1.0 - without(chip, &steps, step) / all);
            if steps.iter().any(|of| of.name == step) { format!("{share:.1}") } else { "-".to_owned() }
        });
        println!("| {name} | {} |", cells.join(" | "));
    }
    functions_left_out(&bow)
}

/// A layer of GPT-13B without what is assumed of functions, rows and layouts.
fn functions_left_out(bow: &Bsp) -> Outcome<()> {
    let (architecture, _) = preset("gpt-13b")?;
    let options = Options {
        dtype: "fp16".to_owned(),
        ..Options::new("a layer of GPT-13B", Architecture { layers: 1, ..architecture }, Phase::Forward, 1, 2048)
    };
    let text = part_of(&options, Part::default())?.into_text();
    let workload = workload::parse("layer.toml", &text, &[], 0)?;
    println!("\n## A whole layer of GPT-13B, forward, 2,048 tokens, on Bow: terms left out once\n");
    println!("Milliseconds, streaming of what cannot be resident apart.\n");
    println!("| left out | kernel by kernel | fused |\n| --- | --- | --- |");
    let terms: [(&str, &[&str]); 6] = [
        ("nothing", &[]),
        ("copies when a layout changes", &["arch.tile.copy_bytes_per_cycle=4000"]),
        ("start and end of vertices", &["arch.planner.vertex_cycles=0"]),
        ("starts of programs", &["arch.program.start_us=0"]),
        ("barriers and setup", &["arch.exchange.sync_cycles=0", "arch.exchange.setup_cycles=0"]),
        ("bytes of exchanges", &["arch.exchange.bytes_per_cycle=4000"]),
    ];
    let apart = |chip: &Bsp, outcome: &rdusim::outcome::Outcome| {
        let streamed: u64 = outcome.sections.iter().flat_map(|of| &of.busy.tiers).map(|(_, cycles)| cycles).sum();
        (outcome.cycles - streamed) as f64 / chip.clock_hz as f64 * 1e3
    };
    for (name, sets) in terms {
        let chip = chip("arch/bow.toml", sets)?;
        let found = run(&chip, &workload, &[Mode::Kbk, Mode::Fused])?;
        println!("| {name} | {:.3} | {:.3} |", apart(&chip, &found[0]), apart(&chip, &found[1]));
    }
    let found = run(bow, &workload, &[Mode::Kbk, Mode::Fused])?;
    let is_product =
        |name: &String| workload.operators.iter().any(|of| of.name == *name && of.kind == workload::OperatorKind::Gemm);
    let functions = |outcome: &rdusim::outcome::Outcome| {
        let stages = outcome.sections.iter().flat_map(|section| &section.stages);
        let others = stages.filter(|stage| !stage.operators.iter().all(is_product));
        others.map(|stage| stage.busiest_cycles).sum::<u64>() as f64 / bow.clock_hz as f64 * 1e3
    };
    let less = [0, 1].map(|at| apart(bow, &found[at]) - functions(&found[at]));
    println!("| cycles of functions and rows | {:.3} | {:.3} |", less[0], less[1]);
    Ok(())
}
