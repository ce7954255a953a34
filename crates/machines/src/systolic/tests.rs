//! Laws and worked cases of chips of systolic arrays.

use rdusim_graph::workload::ProductShape;
use std::path::Path;

use proptest::prelude::*;

use super::{gemm_seconds, run};
use rdusim_base::input::Override;
use rdusim_base::mode::Mode;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::{self, Systolic};
use rdusim_graph::workload::{self, Workload};
use rdusim_outcome::Outcome;

fn chip(name: &str, sets: &[&str]) -> Systolic {
    let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).expect("an override")).collect();
    arch::open(Path::new(name), &sets).unwrap().systolic().cloned().unwrap()
}

fn loaded(name: &str, sets: &[&str]) -> Workload {
    let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).expect("an override")).collect();
    workload::load(Path::new(name), &sets, 0).expect("a workload")
}

fn all(chip: &Systolic, workload: &Workload) -> [Outcome; 3] {
    let list = run(chip, workload, &[Mode::Kbk, Mode::Epilogue, Mode::Fused]).expect("it runs");
    list.try_into().expect("three modes")
}

#[test]
fn a_product_takes_what_simulators_of_one_array_print() {
    // 25 folds of 2,048 rows, 2,430 cycles each; before them the memory's latency and a fold, after them a fold goes back.
    let chip = chip("systolic-128", &[]);
    let cycles = gemm_seconds(&chip, Dtype::Bf16, ProductShape { m: 2048, n: 640, k: 640 }).expect("a product") * 1e9;
    let fold = 128.0 * 128.0 * 2.0 / 1000.0;
    assert!((cycles - (25.0 * 2430.0 + 100.0 + 2.0 * fold)).abs() < 1.0, "{cycles}");
}

#[test]
fn gpt13b_moves_what_its_tensors_are() {
    let chip = chip("tpu-v4", &[]);
    let workload = loaded("gpt13b-mlp", &[]);
    let [kbk, epilogue, fused] = all(&chip, &workload);
    // X and Y of 20 MiB, H of 80 MiB, W of 200 MiB: 2X + 4H + 2W, 2X + 2H + 2W, and with H in the buffer 2X + 2W.
    let mib = |outcome: &Outcome| outcome.traffic().off_chip_bytes() >> 20;
    assert_eq!([mib(&kbk), mib(&epilogue), mib(&fused)], [760, 600, 440]);
    assert!(fused.cycles < epilogue.cycles && epilogue.cycles < kbk.cycles);
    // 859 GFLOP at 275 TFLOP/s are 3.12 ms.
    let ms = fused.cycles as f64 / chip.clock_hz as f64 * 1e3;
    assert!((3.12..3.5).contains(&ms), "{ms}");
}

#[test]
fn only_folds_without_a_block_are_left_out() {
    let chip = chip("tpu-v4", &[]);
    let dense = all(&chip, &loaded("gpt13b-mlp", &[]));
    let sparse = all(&chip, &loaded("gpt13b-mlp-sparse", &[]));
    // 64 blocks of 16 x 16 in a fold: at density 1/8 none is empty.
    assert!(
        sparse[2].cycles.abs_diff(dense[2].cycles) * 100 < dense[2].cycles,
        "{} {}",
        sparse[2].cycles,
        dense[2].cycles
    );
    // Blocks as large as a fold: one in eight is computed.
    let large = loaded(
        "gpt13b-mlp-sparse",
        &["workload.tensors.w_up.sparsity.block=[128,128]", "workload.tensors.w_down.sparsity.block=[128,128]"],
    );
    let large = all(&chip, &large);
    assert!(large[2].cycles * 4 < dense[2].cycles, "{} {}", large[2].cycles, dense[2].cycles);
}

proptest! {
    #[test]
    fn nothing_beats_its_bound_and_more_of_anything_is_no_slower(
        tokens in 1u64..3000, d_model in 3u64..40, d_ff in 3u64..80, arrays in 1u64..9, sums: bool, weights in 0..3,
    ) {
        let dims = [("tokens", tokens), ("d_model", d_model * 16), ("d_ff", d_ff * 16)];
        let sets: Vec<String> = dims.iter().map(|(dim, value)| format!("workload.dims.{dim}={value}")).collect();
        let mut sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        // Dense, sparse, or of four bits.
        sets.extend((weights == 2).then_some("workload.tensors.w_up.storage={format=\"int4\",group=32}"));
        sets.extend((weights == 2).then_some("workload.tensors.w_down.storage={format=\"mxfp8\"}"));
        let workload = loaded(if weights == 1 { "gpt13b-mlp-sparse" } else { "gpt13b-mlp" }, &sets);
        let dataflow = if sums { "output-stationary" } else { "weight-stationary" };
        let base = [format!("arch.array.count={arrays}"), format!("arch.array.dataflow={dataflow}")];
        let with = |more: &str| {
            let mut sets: Vec<&str> = base.iter().map(String::as_str).collect();
            sets.extend((!more.is_empty()).then_some(more));
            all(&chip("tpu-v4", &sets), &workload)
        };
        let plain = with("");
        for outcome in &plain {
            prop_assert!(outcome.bound_cycles <= outcome.cycles, "{} of {}", outcome.bound_cycles, outcome.cycles);
            prop_assert_eq!(outcome.cycles, outcome.sections.iter().map(|section| section.cycles).sum::<u64>());
        }
        prop_assert!(plain[2].traffic().off_chip_bytes() <= plain[1].traffic().off_chip_bytes());
        prop_assert!(plain[1].traffic().off_chip_bytes() <= plain[0].traffic().off_chip_bytes());
        let more = ["arch.memory.hbm.bandwidth_gb_per_s=2000", "arch.buffer.bytes_per_cycle=20000", "arch.vector.lanes=9000"];
        for more in more {
            for (more, plain) in with(more).iter().zip(&plain) {
                prop_assert!(more.cycles <= plain.cycles);
            }
        }
    }
}

/// A hundred layers of 64 MiB write over one another's intermediates; their weights are all there.
#[test]
fn a_repeated_block_holds_its_intermediates_once() {
    let layers = |count: u64| {
        let text = format!(
            "schema = 1\nname = \"m\"\n[[blocks]]\nname = \"layer\"\nrepeat = {count}\n\
             [[tensors]]\nname = \"x0\"\nshape = [262144, 128]\nrole = \"input\"\n\
             [[tensors]]\nname = \"w\"\nshape = [128, 128]\nrole = \"weight\"\n\
             [[operators]]\nname = \"e\"\nkind = \"gelu\"\ninputs = [\"x0\"]\noutput = \"x\"\n\
             [[operators]]\nname = \"p\"\nkind = \"gemm\"\nblock = \"layer\"\ninputs = [\"x\", \"w\"]\noutput = \"h\"\n\
             [[operators]]\nname = \"g\"\nkind = \"gelu\"\nblock = \"layer\"\ninputs = [\"h\"]\noutput = \"y\"\n\
             [[operators]]\nname = \"r\"\nkind = \"row_sum\"\ninputs = [\"y\"]\noutput = \"z\"\n"
        );
        workload::parse("m.toml", &text, &[], 0).expect("a workload")
    };
    // What enters, x, h and y of 64 MiB each; z and weights of less than 4 MB.
    let chip = chip("tpu-v4", &["arch.memory.hbm.capacity_bytes=281018368"]);
    assert!(run(&chip, &layers(100), &[Mode::Fused]).is_ok());
    assert!(run(&chip, &layers(1000), &[Mode::Fused]).is_err(), "32 MB of weights");
}

/// As many elements, of which fewer than lanes are of one row: rows follow one another.
#[test]
fn lanes_have_columns_of_sequences() {
    let chip = chip("tpu-v4", &["arch.memory.hbm.bandwidth_gb_per_s=1000000", "arch.buffer.bytes_per_cycle=1000000"]);
    let lanes = chip.vector_lanes;
    let busy = |rows: u64, columns: u64| {
        let text = format!(
            "schema = 1\nname = \"s\"\n[[tensors]]\nname = \"a\"\nshape = [{rows}, {columns}]\nrole = \"input\"\n\
             [[operators]]\nname = \"p\"\nkind = \"running_product\"\ninputs = [\"a\"]\noutput = \"q\"\nbatch = 2\n"
        );
        let workload = workload::parse("s.toml", &text, &[], 0).expect("a workload");
        let outcome = run(&chip, &workload, &[Mode::Fused]).expect("it runs").remove(0);
        outcome.cycles
    };
    // Two sequences of half the lanes fill them; of a quarter they leave half of them idle for twice as many rows.
    let (full, half) = (busy(8192, lanes / 2), busy(16384, lanes / 4));
    assert_eq!(half - full, 8192 - 4096);
    assert_eq!(busy(16384, lanes / 2) - full, 4096);
}
