//! The mechanisms one by one.

use std::path::Path;

use rdusim_base::input::Override;
use rdusim_base::mode::Mode;
use rdusim_graph::arch::{self, Gpu};
use rdusim_graph::workload::{self, Workload};
use rdusim_outcome::{BoundBy, Outcome};

use super::run;

/// A chip that comes with the program, with overrides.
pub(super) fn shipped(name: &str, sets: &[&str]) -> Gpu {
    let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).unwrap()).collect();
    arch::open(Path::new(name), &sets).unwrap().gpu().cloned().unwrap()
}

fn a100(sets: &[&str]) -> Gpu {
    shipped("a100", sets)
}

fn gemm(m: u64, n: u64, k: u64, dtype: &str, sparsity: &str) -> Workload {
    let text = format!(
        "schema = 1\nname = \"gemm\"\ndtype = \"{dtype}\"\n[dims]\nm = {m}\nn = {n}\nk = {k}\n\
         [[tensors]]\nname = \"a\"\nshape = [\"m\", \"k\"]\nrole = \"input\"\n\
         [[tensors]]\nname = \"b\"\nshape = [\"k\", \"n\"]\nrole = \"weight\"\n{sparsity}\n\
         [[operators]]\nname = \"gemm\"\nkind = \"gemm\"\ninputs = [\"a\", \"b\"]\noutput = \"c\"\n"
    );
    workload::parse("gemm.toml", &text, &[], 0).unwrap()
}

fn fused(gpu: &Gpu, workload: &Workload) -> Outcome {
    run(gpu, workload, &[Mode::Fused]).unwrap().remove(0)
}

fn tflops(gpu: &Gpu, m: u64, n: u64, k: u64) -> f64 {
    let outcome = fused(gpu, &gemm(m, n, k, "bf16", ""));
    2.0 * (m * n * k) as f64 / (outcome.cycles as f64 / gpu.clock_hz as f64) / 1e12
}

#[test]
fn a_large_product_meets_the_measured_rate() {
    // 271 TFLOP/s, 87 % of peak [S, facts of the chip file].
    let found = tflops(&a100(&[]), 8192, 8192, 8192);
    assert!((found / 271.0 - 1.0).abs() < 0.05, "{found}");
}

#[test]
fn warps_and_thread_blocks_that_read_together_read_less() {
    let rate = |sets: &[&str]| tflops(&shipped("h100", sets), 8192, 8192, 8192);
    // The one figure of an H100 that is at hand, 794.5 TFLOP/s [S, facts of the chip file], is met within a tenth.
    let found = rate(&[]);
    assert!((found / 794.5 - 1.0).abs() < 0.1, "{found}");
    // Alone, thread blocks ask for more than the L2 gives, and warps for more than shared memory gives.
    let tiles = "arch.gemm.tiles=[[128, 256], [128, 128]]";
    let alone = fused(&shipped("h100", &[tiles, "arch.gemm.cluster_blocks=1"]), &gemm(8192, 8192, 8192, "bf16", ""));
    assert_eq!(alone.sections[0].bound_by, BoundBy::Memory("l2".to_owned()));
    for set in ["arch.gemm.cluster_blocks=1", "arch.gemm.read_warps=1"] {
        let less = rate(&[tiles, set]);
        assert!(less < 0.9 * found, "{set}: {less} of {found}");
    }
    // An A100 has neither: four thread blocks that share what they read would not help where arithmetic limits.
    let a100_rate = |sets: &[&str]| tflops(&a100(sets), 8192, 8192, 8192);
    assert!(a100_rate(&["arch.gemm.cluster_blocks=4"]) < 1.01 * a100_rate(&[]));
}

#[test]
fn small_and_skinny_products_fall_off() {
    let gpu = a100(&[]);
    let sizes = [128, 256, 512, 1024, 2048, 4096].map(|n| tflops(&gpu, n, n, n));
    assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]), "{sizes:?}");
    assert!(sizes[2] < 0.3 * 311.9 && sizes[0] < 0.02 * 311.9, "{sizes:?}");
    // Sixteen rows: as fast as the weight comes from memory, no faster, and not much slower.
    let outcome = fused(&gpu, &gemm(16, 8192, 8192, "bf16", ""));
    let memory = f64::from(8192 * 8192 * 2) / 1.8e12;
    let time = outcome.cycles as f64 / gpu.clock_hz as f64;
    assert!(time > memory && time < 1.3 * memory, "{time} and {memory}");
    assert_eq!(outcome.sections[0].bound_by, BoundBy::Memory("hbm".to_owned()));
}

#[test]
fn a_wave_that_is_not_full_costs_what_it_leaves_idle() {
    let gpu = a100(&["arch.gemm.tiles=[[128, 128]]", "arch.gemm.split_k_most=1"]);
    // 216 tiles are two for each of 108 SMs; three more are a third for some of them.
    let full = fused(&gpu, &gemm(128 * 72, 384, 8192, "bf16", ""));
    let over = fused(&gpu, &gemm(128 * 73, 384, 8192, "bf16", ""));
    let ratio = over.cycles as f64 / full.cycles as f64;
    assert!((1.3..1.8).contains(&ratio), "{ratio}");
    assert_eq!(over.sections[0].bound_by, BoundBy::Imbalance);
    // Ragged edges are computed in full, though not read: a row more is a row of tiles more.
    let ragged = fused(&gpu, &gemm(128 * 72 + 1, 384, 8192, "bf16", ""));
    assert!((ragged.cycles as f64 / over.cycles as f64 - 1.0).abs() < 0.02, "{} {}", ragged.cycles, over.cycles);
    // Dealt evenly, the step is gone.
    let even = a100(&["arch.gemm.tiles=[[128, 128]]", "arch.gemm.split_k_most=1", "arch.gemm.stream_k=true"]);
    assert!((fused(&even, &gemm(128 * 73, 384, 8192, "bf16", "")).cycles as f64) < 0.8 * over.cycles as f64);
}

#[test]
fn a_deep_product_of_one_tile_is_cut_along_its_depth() {
    let gpu = a100(&[]);
    let whole = a100(&["arch.gemm.split_k_most=1"]);
    let deep = gemm(128, 128, 1 << 16, "bf16", "");
    let (cut, one) = (fused(&gpu, &deep), fused(&whole, &deep));
    assert!(cut.cycles * 2 < one.cycles, "{} and {}", cut.cycles, one.cycles);
    assert!(cut.sections[0].stages[0].mapping.contains("parts"), "{}", cut.sections[0].stages[0].mapping);
}

#[test]
fn two_of_four_and_blocks_are_faster_where_they_can_be() {
    let gpu = a100(&[]);
    let time = |sparsity: &str| fused(&gpu, &gemm(4096, 8192, 8192, "bf16", sparsity)).cycles as f64;
    let dense = time("");
    let half = dense / time("sparsity = { pattern = \"nm\", n = 2, m = 4, seed = 1 }");
    assert!((1.3..2.0).contains(&half), "{half}");
    let of_block = |density: f64, block: u64| {
        let sparsity =
            format!("sparsity = {{ pattern = \"block\", density = {density}, block = [{block}, {block}], seed = 1 }}");
        dense / time(&sparsity)
    };
    let speedups = [16, 32, 64, 128].map(|block| of_block(0.125, block));
    assert!(speedups.windows(2).all(|pair| pair[0] <= pair[1]), "{speedups:?}");
    // The ends of a thread block are not charged: in large blocks a little more than the share of the work is saved.
    assert!(speedups[0] > 1.0 && speedups[3] < 8.5, "{speedups:?}");
    // Little sparsity in small blocks pays for nothing: the dense kernel is taken.
    assert!((of_block(0.75, 16) - 1.0).abs() < 0.01);
}

#[test]
fn every_run_stays_above_its_bound_and_its_sections_add_up() {
    let gpu = a100(&[]);
    let text = include_str!("../../../../workloads/gpt13b-mlp-sparse.toml");
    let sparse = workload::parse("sparse.toml", text, &[], 0).unwrap();
    let small = Override::parse("workload.dims.tokens=1").unwrap();
    let one = workload::parse("sparse.toml", text, &[small], 0).unwrap();
    for workload in [sparse, one, gemm(1, 1, 1, "fp32", ""), gemm(4096, 4096, 64, "int8", "")] {
        for outcome in run(&gpu, &workload, &Mode::ALL).unwrap() {
            assert!(outcome.bound_cycles <= outcome.cycles, "{} {:?}", workload.name, outcome.mode);
            assert_eq!(outcome.sections.iter().map(|s| s.cycles).sum::<u64>(), outcome.cycles);
            let by_tensor: u64 = outcome.traffic().by_tensor.values().map(|t| t.off_chip_read_bytes).sum();
            assert_eq!(by_tensor, outcome.traffic().off_chip_read_bytes);
        }
    }
}

#[test]
fn more_of_anything_never_slows_a_product() {
    let base = a100(&[]);
    let more = [
        "arch.sm.count=216",
        "arch.l2.bytes_per_cycle=8192",
        "arch.l2.capacity_bytes=83886080",
        "arch.memory.hbm.bandwidth_gb_per_s=3600",
        "arch.sm.shared_bytes=335872",
        "arch.gemm.sustained_share=1.0",
    ];
    for (m, n, k) in [(64, 64, 64), (2048, 2048, 2048), (16, 4096, 4096), (4096, 20480, 5120)] {
        let workload = gemm(m, n, k, "bf16", "");
        let cycles = fused(&base, &workload).cycles;
        for set in more {
            let faster = fused(&a100(&[set]), &workload).cycles;
            assert!(faster as f64 <= 1.01 * cycles as f64, "{set} at {m} x {n} x {k}: {faster} and {cycles}");
        }
    }
}
