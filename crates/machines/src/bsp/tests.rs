//! The mechanisms one by one.

use rdusim_graph::workload::ProductShape;
use std::path::Path;

use super::vertex::rearranged;
use super::{
    Blocks, ExchangeCase, Grid, Place, Product, SparseProduct, dynamic_plan, exchange_bandwidth, exchange_us, execute,
    gemm_seconds, parts_of, plan_gemm, run, static_plan,
};
use rdusim_base::input::Override;
use rdusim_base::mode::Mode;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::{self, Bsp};
use rdusim_graph::sparsity::BlockMask;
use rdusim_graph::workload::{self, Workload};
use rdusim_outcome::{BoundBy, Outcome};

pub(super) fn chip(name: &str, sets: &[&str]) -> Bsp {
    let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).unwrap()).collect();
    arch::open(Path::new(name), &sets).unwrap().bsp().cloned().unwrap()
}

fn mlp(tokens: u64, dtype: &str) -> Workload {
    let text = format!(
        "schema = 1\nname = \"mlp\"\ndtype = \"{dtype}\"\n[dims]\nt = {tokens}\nd = 1024\nf = 4096\n\
         [[tensors]]\nname = \"x\"\nshape = [\"t\", \"d\"]\nrole = \"input\"\n\
         [[tensors]]\nname = \"up\"\nshape = [\"d\", \"f\"]\nrole = \"weight\"\n\
         [[tensors]]\nname = \"down\"\nshape = [\"f\", \"d\"]\nrole = \"weight\"\n\
         [[operators]]\nname = \"a\"\nkind = \"gemm\"\ninputs = [\"x\", \"up\"]\noutput = \"h\"\n\
         [[operators]]\nname = \"g\"\nkind = \"gelu\"\ninputs = [\"h\"]\noutput = \"i\"\n\
         [[operators]]\nname = \"b\"\nkind = \"gemm\"\ninputs = [\"i\", \"down\"]\noutput = \"y\"\n"
    );
    workload::parse("mlp.toml", &text, &[], 0).unwrap()
}

fn outcomes(chip: &Bsp, workload: &Workload) -> Vec<Outcome> {
    run(chip, workload, &Mode::ALL).unwrap()
}

#[test]
fn one_program_is_faster_than_many_and_nothing_is_faster_than_its_bound() {
    let bow = chip("bow", &[]);
    let found = outcomes(&bow, &mlp(2048, "fp16"));
    let cycles: Vec<u64> = found.iter().map(|outcome| outcome.cycles).collect();
    assert!(cycles[0] > cycles[1] && cycles[1] > cycles[2], "{cycles:?}");
    assert!(found.iter().all(|outcome| outcome.bound_cycles <= outcome.cycles));
    assert_eq!(found.iter().map(|outcome| outcome.sections.len()).collect::<Vec<_>>(), [3, 2, 1]);
    // Everything is resident: nothing comes from off the chip.
    assert!(found.iter().all(|outcome| outcome.traffic().off_chip_bytes() == 0));
}

#[test]
fn a_dense_product_meets_the_measured_rate() {
    // 209 and 223 TFLOP/s, fp16, m = k = 4096 [P arXiv:2303.16999, digitised from its figure].
    let bow = chip("bow", &[]);
    for (n, measured) in [(1024, 209.0), (2048, 223.0)] {
        let seconds = gemm_seconds(&bow, Dtype::Fp16, ProductShape { m: n, n: 4096, k: 4096 }).unwrap();
        let found = 2.0 * (4096 * 4096 * n) as f64 / seconds / 1e12;
        assert!((found / measured - 1.0).abs() < 0.15, "n {n}: {found}, measured {measured}");
    }
}

#[test]
fn less_memory_for_a_step_means_more_passes_and_more_time() {
    let bow = chip("bow", &[]);
    let product = |available: f64| Product {
        count: 1,
        m: 4096,
        n: 4096,
        k: 4096,
        dtype: Dtype::Fp16,
        a_home: true,
        b_home: true,
        available,
        windows: [None; 2],
        packed: [None; 2],
    };
    let plans = [383_000.0, 150_000.0, 80_000.0].map(|available| plan_gemm(&bow, &product(available)).unwrap());
    for (plan, room) in plans.iter().zip([383_000.0, 150_000.0, 80_000.0]) {
        assert!(super::most_temporary(&plan.steps) <= room, "{:?}", plan.grid);
    }
    assert!(plans[0].cycles < plans[1].cycles && plans[1].cycles < plans[2].cycles);
    let passes = |at: usize| plans[at].grid.depth_passes * plans[at].grid.output_passes;
    assert!(passes(2) > passes(0));
}

#[test]
fn what_does_not_fit_names_tile_step_and_operator() {
    let bow = chip("bow", &[]);
    let error = run(&bow, &mlp(1 << 17, "fp16"), &[Mode::Fused]).unwrap_err().to_string();
    assert!(error.contains("tile 0 needs") && error.contains("in step `"), "{error}");
}

#[test]
fn what_cannot_be_resident_is_streamed() {
    // 16 MB of weights are 11 KiB a tile, of which 10 KB are left.
    let bow = chip("bow", &["arch.tile.reserved_bytes=629000"]);
    let found = run(&bow, &mlp(64, "fp16"), &[Mode::Fused]).unwrap().remove(0);
    assert!(found.traffic().off_chip_read_bytes >= 1024 * 4096 * 2, "{:?}", found.notes);
    assert_eq!(found.sections[0].bound_by, BoundBy::Memory("streaming".to_owned()));
}

fn seconds(chip: &Bsp, mask: &BlockMask, columns: u64, dynamic: bool) -> (f64, f64) {
    let blocks = Blocks::of(mask);
    let available = chip.planner.memory_share * chip.tile.sram_bytes as f64;
    let product = SparseProduct { blocks: &blocks, columns, dtype: Dtype::Fp16, available };
    let plan = if dynamic { dynamic_plan(chip, &product) } else { static_plan(chip, &product) }.unwrap();
    assert!((plan.cycles / parts_of(chip, &plan.steps).total() - 1.0).abs() < 1e-9);
    (plan.cycles, plan.propagation_steps as f64)
}

/// As many blocks as `even`, most of them in the first columns of each eighth.
fn skewed(rows: u64, columns: u64, density: f64) -> BlockMask {
    let mut mask = BlockMask::empty(rows, columns, (16, 16));
    let (k, n) = (mask.k_blocks(), mask.n_blocks());
    let wanted = (k as f64 * n as f64 * density).ceil() as u64;
    // Column by column from the first: those are full, the others empty.
    for at in 0..wanted {
        mask.keep(at % k, at / k);
    }
    mask
}

#[test]
fn a_skewed_mask_is_slower_through_its_buckets() {
    let bow = chip("bow", &[]);
    let (even, skew) = (BlockMask::random(2048, 2048, (16, 16), 0.0625, 1), skewed(2048, 2048, 0.0625));
    assert_eq!(even.kept_blocks(), skew.kept_blocks());
    let ((even, even_steps), (skew, skew_steps)) = (seconds(&bow, &even, 1024, true), seconds(&bow, &skew, 1024, true));
    assert!(skew > 1.5 * even, "{skew} and {even}");
    assert!(skew_steps > even_steps, "{skew_steps} and {even_steps} propagation steps");
}

#[test]
fn larger_blocks_are_faster_and_a_known_pattern_is_faster_than_one_that_is_data() {
    let bow = chip("bow", &[]);
    let masks = [4, 8, 16].map(|side| BlockMask::random(4096, 4096, (side, side), 0.0625, 1));
    let of = |dynamic: bool| masks.clone().map(|mask| seconds(&bow, &mask, 2048, dynamic).0);
    let (known, data) = (of(false), of(true));
    assert!(known.windows(2).all(|pair| pair[1] < pair[0]), "{known:?}");
    assert!(known.iter().zip(&data).all(|(known, data)| known < data), "{known:?} and {data:?}");
}

#[test]
fn exchanges_meet_what_was_measured_on_the_first_generation() {
    // arXiv:1912.03413 tables 4.1 to 4.6; two of the latencies are what the chip file is fitted to.
    let gc2 = chip("gc2", &[]);
    let close = |found: Option<f64>, measured: f64| {
        let found = found.unwrap();
        assert!((found / measured - 1.0).abs() < 0.1, "{found}, measured {measured}");
    };
    let pairs = |tiles| ExchangeCase::pairs(Place::Chip, tiles);
    close(exchange_us(&gc2, pairs(304)), 0.165);
    close(exchange_us(&gc2, pairs(1)), 0.123);
    close(exchange_us(&gc2, ExchangeCase::broadcast(1216)), 0.194);
    close(exchange_bandwidth(&gc2, pairs(1)), 6.34e9);
    close(exchange_bandwidth(&gc2, pairs(1216)), 7679.01e9);
}

#[test]
fn plans_on_numbers_receive_what_they_say_and_give_the_product() {
    let small = chip("bow", &["arch.tile.count=24"]);
    for (m, n, k, dtype) in [(48, 64, 96, Dtype::Fp16), (37, 50, 70, Dtype::Fp16), (64, 40, 128, Dtype::Fp32)] {
        let product = Product {
            count: 1,
            m,
            n,
            k,
            dtype,
            a_home: true,
            b_home: true,
            available: 1e6,
            windows: [None; 2],
            packed: [None; 2],
        };
        let plan = plan_gemm(&small, &product).unwrap();
        let executed = execute(&small, &product, &plan.grid, 1).unwrap();
        assert!(executed.holds(), "{m} x {n} x {k}: {executed:?}");
        // The plan's busiest tile is none that receives less.
        let most = executed.received.iter().max().copied().unwrap_or(0) as f64;
        let planned = plan.steps[0].received_bytes;
        assert!(most <= planned + 1e-6 && most > 0.8 * planned, "{most} received, {planned} planned");
    }
    // A grid that splits all three axes, and one whose last parts are short.
    for grid in [(3, 2, 4), (5, 1, 3), (2, 4, 1)] {
        let grid = Grid {
            count: 1,
            rows: grid.0,
            outputs: grid.1,
            depth: grid.2,
            output_passes: 1,
            depth_passes: 1,
            swapped: false,
            expands_first: false,
        };
        let product = Product {
            count: 1,
            m: 31,
            n: 64,
            k: 64,
            dtype: Dtype::Fp16,
            a_home: true,
            b_home: true,
            available: 1e6,
            windows: [None; 2],
            packed: [None; 2],
        };
        let executed = execute(&small, &product, &grid, 2).unwrap();
        assert!(executed.holds(), "{grid:?}: {executed:?}");
    }
}

#[test]
fn an_operand_in_another_format_is_expanded_step_by_step() {
    // One tile, 16 rows by 64 x 64: 4,096 elements, 683 a worker, 171 vectors of four halves, two operations each.
    let one = chip("bow", &["arch.tile.count=1"]);
    let product = |available: f64, packed: Option<f64>| Product {
        count: 1,
        m: 16,
        n: 64,
        k: 64,
        dtype: Dtype::Fp16,
        a_home: true,
        b_home: true,
        available,
        windows: [None; 2],
        packed: [None, packed],
    };
    let [dense, whole] = [None, Some(0.5)].map(|packed| plan_gemm(&one, &product(1e5, packed)).unwrap());
    let expansion = f64::from((26 + 171 * 2) * 6);
    assert!((whole.cycles - dense.cycles - expansion).abs() < 1e-9, "{} {}", whole.cycles, dense.cycles);
    // The copy of 64 x 64 halves is what the product takes beside what lies there.
    let temporary = |plan: &super::GemmPlan| super::most_temporary(&plan.steps) as u64;
    assert_eq!(temporary(&whole) - temporary(&dense), 8192);
    // With room for half of it, it comes in two passes.
    let halves = plan_gemm(&one, &product(5000.0, Some(0.5))).unwrap();
    let expand = halves.steps.iter().find(|step| step.name == "expand").unwrap();
    assert_eq!((expand.times, temporary(&halves)), (2, 4096), "{:?}", halves.grid);
}

#[test]
fn an_operand_is_expanded_where_it_lies_or_travels_as_it_is_stored() {
    // Expanded once by all tiles together, or by each that receives it, where the exchange is slow.
    for (rate, is_first) in [("4", true), ("0.25", false)] {
        let small = chip("bow", &["arch.tile.count=64", &format!("arch.exchange.bytes_per_cycle={rate}")]);
        let product = |packed: Option<f64>| Product {
            count: 1,
            m: 512,
            n: 256,
            k: 1024,
            dtype: Dtype::Fp16,
            a_home: true,
            b_home: true,
            available: 3e5,
            windows: [None; 2],
            packed: [None, packed],
        };
        let [dense, packed] = [None, Some(0.5)].map(|packed| plan_gemm(&small, &product(packed)).unwrap());
        assert_eq!(packed.grid.expands_first, is_first, "{rate}: {:?}", packed.grid);
        let wire = |name: &str| packed.steps.iter().find(|step| step.name == name).unwrap().wire_cycles;
        assert_eq!((wire("expand") > 0.0, wire("multiply") > 0.0), (!is_first, is_first));
        // What the exchange spares can be more than expansion takes.
        assert_eq!(packed.cycles > dense.cycles, is_first, "{rate}: {} {}", packed.cycles, dense.cycles);
        assert_eq!(packed.expansions[1] < 1.5, is_first, "{:?}", packed.expansions);
    }
}

/// Two sequences of `rows` rows and 8 columns in 4 heads.
fn scan(rows: u64) -> Workload {
    let text = format!(
        "schema = 1\nname = \"s\"\n[[tensors]]\nname = \"x\"\nshape = [{0}, 8]\nrole = \"input\"\n\
         [[tensors]]\nname = \"a\"\nshape = [{0}, 4]\ndtype = \"fp32\"\nrole = \"input\"\n\
         [[operators]]\nname = \"scan\"\nkind = \"scan\"\ninputs = [\"x\", \"a\"]\noutput = \"h\"\nheads = 4\nbatch = 2\n",
        2 * rows
    );
    workload::parse("s.toml", &text, &[], 0).unwrap()
}

/// 16 columns of sequences, two vector operations a row.
#[test]
fn rows_of_a_sequence_follow_one_another_on_a_tile() {
    let of = |rows: u64, sets: &[&str], available: f64| {
        let workload = scan(rows);
        let op = workload.operators.ids().next().unwrap();
        let (steps, tiles) = rearranged(&chip("gc200", sets), &workload, op, available);
        let [step] = steps.as_slice() else { panic!("{steps:?}") };
        (tiles, step.times, step.received_bytes as u64, step.busiest_cycles as u64, step.temporary_bytes as u64)
    };
    let few = ["arch.tile.count=4"];
    // Four columns a tile, one a worker, of two heads: 64 rows of 4 x 2 + 2 x 4 bytes; 26 cycles to start, 64 x 2 a worker of six.
    let cycles = |rows: u64| (26 + rows * 2) * 6;
    assert_eq!(of(64, &few, 1e6), (4, 1, 64 * 16, cycles(64), 64 * 16 + 4 * 4));
    // More tiles than columns: one column each, and the rows take as long.
    assert_eq!(of(64, &[], 1e6), (16, 1, 64 * 6, cycles(64), 64 * 6 + 4));
    assert_eq!(of(128, &[], 1e6), (16, 1, 128 * 6, cycles(128), 128 * 6 + 4));
    // Room for the state and a quarter of the rows: so many at a time.
    assert_eq!(of(64, &few, 16.0 + 256.0), (4, 4, 256, cycles(16), 256 + 16));
}
