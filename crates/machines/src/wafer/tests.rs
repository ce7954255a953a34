//! Laws and worked cases of wafers.

use std::path::Path;

use proptest::prelude::*;

use super::kernel::Kernel;
use super::product::{Product, plan};
use super::run;
use rdusim_base::input::Override;
use rdusim_base::mode::Mode;
use rdusim_graph::arch::{self, Wafer};
use rdusim_graph::sparsity::BlockMask;
use rdusim_graph::workload::{self, Moved, Uses, Workload};
use rdusim_outcome::Outcome;

pub(super) fn chip(sets: &[&str]) -> Wafer {
    let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).expect("an override")).collect();
    arch::open(Path::new("cs2"), &sets).unwrap().wafer().cloned().unwrap()
}

pub(super) fn loaded(name: &str, sets: &[String]) -> Workload {
    let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).expect("an override")).collect();
    workload::load(Path::new(name), &sets, 0).expect("a workload")
}

fn fused(chip: &Wafer, workload: &Workload) -> Outcome {
    run(chip, workload, &[Mode::Fused]).expect("it runs").remove(0)
}

fn product(shape: (u64, u64, u64), mask: Option<&BlockMask>) -> Product<'_> {
    Product { count: 1, shape, element_bytes: 2, packed_bytes: None, macs: 4, mask, leaves: false }
}

#[test]
fn by_hand() {
    // 4 cores, 8 rows, 6 columns, a depth of 2: 2 slices x 2 groups of 4 rows take 6 x (1 + 1) + 6; 1 slice x 4 groups of 2 rows take
    // 12 x (1 + 1); the first way is taken.
    let small = chip(&["arch.core.count=4", "arch.fabric.link_bytes_per_cycle=4096", "arch.fabric.hop_cycles=0"]);
    let of = plan(&small, &product((8, 6, 2), None), 0.0);
    assert_eq!((of.cycles as u64, of.busiest as u64, of.cores), (18, 18, 4));
    // Its six elements arrive in other formats: two vectors of four, each expanded in two cycles.
    let packed = Product { packed_bytes: Some(0.5), ..product((8, 6, 2), None) };
    let of = plan(&small, &packed, 0.0);
    assert_eq!((of.cycles as u64, of.busiest as u64, of.expanded as u64), (22, 22, 2 * 12));
    // Links of 4 bytes: 6 columns x 4 rows x 4 bytes of sums.
    let slow = chip(&["arch.core.count=4", "arch.fabric.link_bytes_per_cycle=4", "arch.fabric.hop_cycles=0"]);
    let of = plan(&slow, &product((8, 6, 2), None), 0.0);
    assert_eq!((of.cycles as u64, of.is_bound_by_links), (24, false));
    // A row of the matrix without elements: its slice only passes sums on, and the other decides.
    let mut mask = BlockMask::empty(2, 6, (1, 1));
    (0..6).for_each(|n| mask.keep(1, n));
    let of = plan(&small, &product((8, 6, 2), Some(&mask)), 0.0);
    assert_eq!((of.busiest as u64, of.elements as u64), (12, 6));
}

#[test]
fn every_stored_weight_streams_once_and_nothing_else() {
    let chip = chip(&[]);
    let sparse = loaded("gpt13b-mlp-sparse", &[]);
    let outcome = fused(&chip, &sparse);
    // X and Y of 20 MiB, an eighth of 2 x 200 MiB with two bytes of index for two of value.
    assert_eq!(outcome.traffic().off_chip_bytes() >> 20, 20 + 20 + 2 * 200 / 8 * 2);
    let seconds = outcome.cycles as f64 / chip.clock_hz as f64;
    let streamed = outcome.traffic().off_chip_bytes() as f64 / 150e9;
    assert!(seconds >= streamed && seconds < 1.2 * streamed, "{seconds} {streamed}");
}

#[test]
fn speed_up_follows_sparsity() {
    let chip = chip(&[]);
    let shape = (65_536, 12_288, 12_288);
    let dense = plan(&chip, &product(shape, None), 0.0).cycles;
    let mut before = 0.0;
    for density in [0.5, 0.25, 0.2, 0.1] {
        let mask = BlockMask::random(12_288, 12_288, (1, 1), density, 7);
        let faster = dense / plan(&chip, &product(shape, Some(&mask)), 0.0).cycles;
        assert!((0.75..=1.0).contains(&(faster * density)), "{faster} at density {density}");
        assert!(faster > before);
        before = faster;
    }
    // As many elements, all in the first half of the rows: half of the slices wait.
    let mut skewed = BlockMask::empty(12_288, 12_288, (64, 64));
    (0..96).for_each(|k| (0..96).for_each(|n| skewed.keep(k, n)));
    let even = BlockMask::random(12_288, 12_288, (64, 64), 0.25, 7);
    let [skewed, even] = [&skewed, &even].map(|mask| plan(&chip, &product(shape, Some(mask)), 0.0).cycles);
    assert!(skewed > 1.3 * even, "{skewed} {even}");
}

proptest! {
    #[test]
    fn nothing_beats_its_bound_and_more_of_anything_is_no_slower(
        tokens in 1u64..5000, d_model in 3u64..40, d_ff in 3u64..80, cores in 100u64..100_000, packed: bool,
    ) {
        let sets = [("tokens", tokens), ("d_model", d_model * 16), ("d_ff", d_ff * 16)];
        let mut sets: Vec<String> = sets.iter().map(|(dim, value)| format!("workload.dims.{dim}={value}")).collect();
        if packed {
            sets.push("workload.tensors.w_up.storage={format=\"int4\",group=32}".to_owned());
            sets.push("workload.tensors.w_down.storage={format=\"mxfp8\"}".to_owned());
        }
        let workload = loaded(if packed { "gpt13b-mlp" } else { "gpt13b-mlp-sparse" }, &sets);
        let cores = format!("arch.core.count={cores}");
        let room = "arch.core.sram_bytes=100000000";
        let with = |more: Option<&str>| {
            let sets: Vec<&str> = [cores.as_str(), room].into_iter().chain(more).collect();
            run(&chip(&sets), &workload, &Mode::ALL).expect("it fits")
        };
        let plain = with(None);
        for outcome in &plain {
            prop_assert!(outcome.bound_cycles <= outcome.cycles, "{} of {}", outcome.bound_cycles, outcome.cycles);
            prop_assert_eq!(outcome.cycles, outcome.sections.iter().map(|section| section.cycles).sum::<u64>());
        }
        for more in ["arch.memory.memoryx.bandwidth_gb_per_s=2000", "arch.fabric.link_bytes_per_cycle=64", "arch.core.weight_cycles=0"] {
            for (more, plain) in with(Some(more)).iter().zip(&plain) {
                prop_assert!(more.cycles <= plain.cycles);
            }
        }
    }
}

/// Two sequences of `rows` rows and 8 columns in 4 heads.
pub(super) fn scan(rows: u64) -> Workload {
    let text = format!(
        "schema = 1\nname = \"s\"\n[[tensors]]\nname = \"x\"\nshape = [{0}, 8]\nrole = \"input\"\n\
         [[tensors]]\nname = \"w\"\nshape = [8, 8]\nrole = \"weight\"\n\
         [[tensors]]\nname = \"a\"\nshape = [{0}, 4]\ndtype = \"fp32\"\nrole = \"input\"\n\
         [[operators]]\nname = \"product\"\nkind = \"gemm\"\ninputs = [\"x\", \"w\"]\noutput = \"p\"\n\
         [[operators]]\nname = \"scan\"\nkind = \"scan\"\ninputs = [\"p\", \"a\"]\noutput = \"h\"\nheads = 4\nbatch = 2\n",
        2 * rows
    );
    workload::parse("s.toml", &text, &[], 0).expect("a workload")
}

/// 16 columns of sequences, two vector operations a row.
#[test]
fn rows_of_a_sequence_follow_one_another_on_a_core() {
    let of = |rows: u64, cores: u64| {
        let chip = chip(&[&format!("arch.core.count={cores}"), "arch.core.sram_bytes=1000000"]);
        let workload = scan(rows);
        let list = vec![workload.operators.ids().nth(1).expect("a scan")];
        let uses = Uses::new(&workload);
        let moved = Moved::default();
        let (operators, mode) = (list.as_slice(), Mode::Fused);
        let kernel =
            Kernel { chip: &chip, workload: &workload, uses: &uses, operators, moved: &moved, mode, held: 0.0 };
        let timed = kernel.time();
        (timed.busiest_cycles, timed.cycles - timed.busiest_cycles, timed.link_bytes, timed.units)
    };
    // On 4 cores 4 columns each, a vector: 64 rows x 2. Operands and results, 128 rows of 8 x 2 + 4 x 4 + 8 x 2 bytes: a quarter
    // over two links of 4 bytes each way, two links along a line there and back, and over 2/3 of a link on average.
    let bytes = 128.0 * 48.0;
    let (busy, links, on_links, cores) = of(64, 4);
    assert_eq!((busy, links, cores), (128.0, bytes / 4.0 / 8.0 + 4.0, 4));
    assert!((on_links - bytes * 2.0 / 3.0).abs() < 1e-6);
    // However many cores: a column each, and the rows take as long.
    assert_eq!((of(64, 10_000).0, of(64, 10_000).3), (128.0, 16));
    assert_eq!(of(128, 10_000).0 as u64, 256);
}
