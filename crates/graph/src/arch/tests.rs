use super::*;
use rdusim_base::index::Id;
use rdusim_base::units::{Dtype, MIB};

const SN10: &str = include_str!("../../../../arch/sn10.toml");

fn shipped(name: &str) -> Chip {
    load(Path::new(name), &[]).unwrap_or_else(|error| panic!("{}", error.render(false)))
}

#[track_caller]
fn near(found: f64, expected: f64, tolerance: f64) {
    assert!((found / expected - 1.0).abs() <= tolerance, "found {found}, expected {expected}");
}

/// The SN10 file with one piece of text replaced.
#[track_caller]
fn edited(from: &str, to: &str) -> String {
    assert_eq!(SN10.matches(from).count(), 1, "{from:?} occurs once");
    SN10.replace(from, to)
}

#[track_caller]
fn refused(from: &str, to: &str) -> String {
    parse("sn10.toml", &edited(from, to), &[]).expect_err("is refused").to_string()
}

fn with_sets(sets: &[&str]) -> Result<Chip, Diagnostic> {
    let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).expect("parses")).collect();
    parse("sn10.toml", SN10, &sets)
}

#[test]
fn shipped_chips_meet_their_published_figures() {
    for (name, dtype, tflops, sram_mib) in [
        ("sn10", Dtype::Bf16, 307.2, 320.0),
        ("sn30", Dtype::Bf16, 614.4, 640.0),
        ("sn40l", Dtype::Bf16, 638.98, 520.0),
        ("sn50", Dtype::Bf16, 1600.0, 432.0),
        ("sn50", Dtype::Fp8E4m3, 3200.0, 432.0),
        ("plasticine", Dtype::Fp32, 12.288, 16.0),
    ] {
        let chip = shipped(name);
        near(chip.peak_flops(dtype).expect("has the data type") / 1e12, tflops, 0.01);
        near(chip.sram_bytes() as f64 / MIB as f64, sram_mib, 0.01);
        assert!(chip.macs_per_cycle(Dtype::Bf16).is_some(), "{name} runs the shipped workloads");
        assert_eq!(chip.pcu.simd_stages.len(), FUNCTIONS.len(), "{name} runs every function");
    }
}

#[test]
fn shipped_chips_have_their_published_units_and_memory() {
    for (name, units, agcus, ags, tiers) in [
        ("sn10", 640, 32, 64, &[("ddr", 100)][..]),
        ("sn30", 1280, 64, 128, &[("ddr", 240)]),
        ("sn40l", 1040, 80, 160, &[("hbm", 1800), ("ddr", 200)]),
        ("sn50", 2080, 104, 208, &[("hbm", 1800), ("ddr", 200)]),
        ("plasticine", 64, 18, 34, &[("ddr", 51)]),
    ] {
        let chip = shipped(name);
        assert_eq!((chip.pcus(), chip.pmus()), (units, units), "{name}");
        assert_eq!((chip.grid.agcus.len(), chip.grid.ags()), (agcus, ags), "{name}");
        let found: Vec<(&str, u64)> =
            chip.memory.iter().map(|tier| (tier.name.as_str(), tier.bandwidth_bytes_per_s / 1_000_000_000)).collect();
        assert_eq!(found, tiers, "{name}");
    }
}

/// What is quoted of a chip that has no grid.
struct Quoted {
    name: &'static str,
    /// TFLOP/s of a data type.
    peaks: &'static [(Dtype, f64)],
    /// GB/s of the memory at its pins, of which the file may sustain a part.
    pins_gb_per_s: f64,
    /// Bytes of the memory.
    capacity_bytes: f64,
}

const GIB: f64 = (1_u64 << 30) as f64;

#[test]
fn chips_of_other_kinds_meet_the_figures_that_are_quoted_of_them() {
    use Dtype::{Bf16, Fp8E4m3, Fp8E5m2, Fp16, Int8};
    let quoted = |name, peaks, pins_gb_per_s, capacity_bytes| Quoted { name, peaks, pins_gb_per_s, capacity_bytes };
    for of in [
        quoted("tpu-v4", &[(Bf16, 275.0), (Int8, 275.0)], 1200.0, 32.0 * GIB),
        quoted("tpu-v5e", &[(Bf16, 197.0), (Int8, 393.0)], 819.0, 16.0 * GIB),
        quoted("tpu-v5p", &[(Bf16, 459.0), (Fp8E4m3, 459.0), (Int8, 918.0)], 2765.0, 95.0 * GIB),
        quoted("tpu-v6e", &[(Bf16, 918.0), (Fp8E5m2, 918.0), (Int8, 1836.0)], 1638.0, 32.0 * GIB),
        quoted("tpu-v7", &[(Bf16, 2307.0), (Fp8E4m3, 4614.0)], 7380.0, 192.0 * GIB),
        quoted("gaudi3", &[(Bf16, 1835.0), (Fp8E4m3, 1835.0)], 3670.0, 128.0 * GIB),
        quoted("gb200", &[(Bf16, 2500.0), (Fp8E4m3, 5000.0)], 8000.0, 186e9),
        quoted("b300", &[(Bf16, 2250.0), (Fp8E4m3, 4500.0)], 8000.0, 288e9),
        quoted("mi300x", &[(Fp16, 1307.4), (Bf16, 1307.4), (Fp8E4m3, 2614.9)], 5300.0, 192.0 * GIB),
        // 900,000 cores x 8 lanes x 2 FLOP x 1.1 GHz, an eighth of the 125 PFLOP/s that count what sparsity leaves out.
        quoted("cs3", &[(Fp16, 15_840.0), (Bf16, 125_000.0 / 8.0)], 150.0, 12e12),
    ] {
        let chip = open(Path::new(of.name), &[]).unwrap_or_else(|error| panic!("{}", error.render(false)));
        let device = chip.device();
        for (dtype, tflops) in of.peaks {
            near(device.peak_flops(*dtype).expect("has the data type") / 1e12, *tflops, 0.015);
        }
        let tier = device.tiers().iter().next().expect("a memory");
        let share = tier.bandwidth_bytes_per_s as f64 / 1e9 / of.pins_gb_per_s;
        assert!((0.75..=1.0).contains(&share), "{}: {share} of the pins", of.name);
        near(tier.capacity_bytes as f64, of.capacity_bytes, 0.001);
    }
    let of = |name: &str| open(Path::new(name), &[]).expect("is a chip").gpu().cloned().expect("is a GPU");
    let (b300, gb200) = (of("b300"), of("gb200"));
    for (gpu, tflops) in [(b300, 13_125.0), (gb200, 10_000.0)] {
        let macs = gpu.sm.count * gpu.sm.fp4_macs.expect("multiplies four bits");
        near(2.0 * macs as f64 * gpu.clock_hz as f64 / 1e12, tflops, 0.01);
    }
}

#[test]
fn sn10_scratchpads_have_the_published_bandwidth() {
    let chip = shipped("sn10");
    let bytes_per_cycle = chip.pmus() * (chip.pmu.read_ports + chip.pmu.write_ports) * chip.pmu.port_bytes;
    near(bytes_per_cycle as f64 * chip.clock_hz as f64 / 1e12, 150.0, 0.03);
}

#[test]
fn sn10_launch_takes_24_us() {
    assert_eq!(shipped("sn10").launch_cycles(), 30_000);
    assert_eq!(with_sets(&["arch.launch.orchestration=hardware"]).expect("is a chip").launch_cycles(), 5375);
}

#[test]
fn grid_resolves_to_coordinates() {
    let chip = shipped("sn40l");
    let grid = &chip.grid;
    assert_eq!(grid.pcus[..2], [Coordinate { x: 0, y: 0 }, Coordinate { x: 2, y: 0 }]);
    assert_eq!(grid.pmus[0], Coordinate { x: 1, y: 0 });
    assert_eq!(grid.units[grid.site_index(Coordinate { x: 0, y: 1 })], UnitKind::Pmu);
    assert_eq!(grid.agcus[0], Agcu { site: Coordinate { x: 0, y: 0 }, ags: 2 });
    assert_eq!(grid.agcus[40], Agcu { site: Coordinate { x: 51, y: 0 }, ags: 2 });
    assert!(grid.crosses_die(Coordinate { x: 25, y: 0 }, Coordinate { x: 26, y: 0 }));
}

#[test]
fn corner_agcus_are_merged() {
    let chip = with_sets(&["arch.grid.agcus.top={ every = 39, ags = 3 }"]).expect("is a chip");
    assert_eq!(chip.grid.agcus[0].ags, 5);
    assert_eq!(chip.grid.agcus.len(), 32);
    assert_eq!(chip.grid.ags(), 70);
}

/// What is replaced in the file, by what, and the error: its line, column and title.
const REFUSALS: &[(&str, &str, &str)] = &[
    ("clock_ghz = 1.25", "clock_ghz = 0", "10:13: `clock_ghz` must be from 0.001 to 1000, found 0"),
    ("clock_ghz = 1.25", "clock_ghz = nan", "10:13: `clock_ghz` must be from 0.001 to 1000, found NaN"),
    ("clock_ghz = 1.25", "clock_ghz = inf", "10:13: `clock_ghz` must be from 0.001 to 1000, found inf"),
    ("clock_ghz = 1.25", "clock_ghz = \"fast\"", "10:13: `clock_ghz`: found string \"fast\", expected a number"),
    ("schema = 1\n", "schema = 2\n", "6:10: `schema` must be 1, found 2"),
    ("name = \"SN10\"", "name = \" \"", "7:8: `name` is \" \", which is no name"),
    ("columns = 40", "columns = 0", "15:11: `grid.columns` must be from 1 to 1000000, found 0"),
    ("columns = 40", "columns = -3", "15:11: `grid.columns` must be from 1 to 1000000, found -3"),
    ("columns = 40", "columns = 40.0", "15:11: `grid.columns`: found floating point `40.0`, expected a whole number"),
    (
        "columns = 40",
        "columns = 99999999999999999999999999",
        "15:11: `grid.columns` must be from 1 to 1000000, found 99999999999999999999999999",
    ),
    (
        "columns = 40",
        "columns = 99999999999999999999999999999999999999999999",
        "15:11: the file cannot be read as TOML: integer number overflowed",
    ),
    ("columns = 40", "columns = 40000", "15:11: the grid has 40000 x 32 = 1280000 sites, at most 1000000 are possible"),
    ("pattern = [\"CM\", \"MC\"]", "pattern = [\"CM\", \"MX\"]", "17:18: `grid.pattern` has the letter 'X'"),
    ("pattern = [\"CM\", \"MC\"]", "pattern = [\"CM\", \"M\"]", "17:18: `grid.pattern` has rows of 2 and of 1 letters"),
    ("pattern = [\"CM\", \"MC\"]", "pattern = [\"\"]", "17:12: `grid.pattern` has an empty row"),
    ("pattern = [\"CM\", \"MC\"]", "pattern = []", "17:11: `grid.pattern` is empty"),
    ("pattern = [\"CM\", \"MC\"]", "pattern = [\"C\"]", "17:11: the grid has no PMU"),
    ("pattern = [\"CM\", \"MC\"]", "pattern = [\"M.\"]", "17:11: the grid has no PCU"),
    ("pattern = [\"CM\", \"MC\"]", "pattern = \"CM\"", "17:11: `grid.pattern`: found string \"CM\", expected an array"),
    ("tile_rows = 16", "tile_rows = 15", "19:13: `grid.tile_rows` must divide `grid.rows`: 32 is not a multiple of 15"),
    (
        "left = { every = 2, ags = 2 }",
        "left = { first = 32, ags = 2 }",
        "23:18: `grid.agcus.left.first` must be from 0 to 31, found 32",
    ),
    (
        "left = { every = 2, ags = 2 }",
        "left = { every = 2, count = 17, ags = 2 }",
        "23:29: `grid.agcus.left.count` must be from 1 to 16, found 17",
    ),
    (
        "left = { every = 2, ags = 2 }\nright = { every = 2, ags = 2 }",
        "",
        "22:1: `grid.agcus` has no edge: the chip could not reach its memory",
    ),
    (
        "lanes = { bf16 = 32, fp32 = 16 }",
        "lanes = { bf16 = 32, fp8 = 16 }",
        "28:22: unknown field `pcu.lanes.fp8`, expected one of `bf16`, `fp16`, `fp32`, `int8`, `fp8_e4m3`, `fp8_e5m2`",
    ),
    ("lanes = { bf16 = 32, fp32 = 16 }", "lanes = {}", "28:9: `pcu.lanes` names no data type"),
    (
        "lanes = { bf16 = 32, fp32 = 16 }",
        "lanes = { bf16 = 32, int8 = 64 }",
        "115:10: `energy.mac_pj.int8` is missing: `pcu.lanes` has int8",
    ),
    (
        "gelu = 6",
        "gello = 6",
        "46:1: unknown field `pcu.simd_stages.gello`, expected one of `gelu`, `relu`, `silu`, `sigmoid`, `tanh`, `add`, `mul`, `softmax`, `layer_norm`, `rms_norm`",
    ),
    ("banks = 16", "banks = 15", "54:9: `pmu.banks` must divide `pmu.capacity_bytes`: 524288 is not a multiple of 15"),
    ("banks = 16", "banks = 0", "54:9: `pmu.banks` must be from 1 to 65536, found 0"),
    ("banks = 16", "bank = 16", "54:1: unknown field `pmu.bank`"),
    ("banks = 16\n", "", "51:1: `pmu.banks` is missing"),
    (
        "bytes_per_cycle = 64",
        "bytes_per_cycle = 64\noutstanding = 0",
        "74:15: `ag.outstanding` must be from 1 to 1048576, found 0",
    ),
    ("flit_bytes = 64", "flit_bytes = 0", "63:14: `network.flit_bytes` must be from 1 to 65536, found 0"),
    ("name = \"ddr\"", "name = \"ddr\"\ncolour = 1", "77:1: unknown field `memory.ddr.colour`"),
    (
        "burst_bytes = 64",
        "burst_bytes = 48",
        "85:20: `memory.ddr.interleave_bytes` must be a multiple of `memory.ddr.burst_bytes`: 1024 is not a multiple of 48",
    ),
    (
        "bandwidth_gb_per_s = 100",
        "bandwidth_gb_per_s = -1",
        "79:22: `memory.ddr.bandwidth_gb_per_s` must be from 0.001 to 1000000, found -1",
    ),
    (
        "latency_ns = 100",
        "latency_ns = -0.5",
        "81:14: `memory.ddr.latency_ns` must be from 0 to 1000000000, found -0.5",
    ),
    (
        "interleave_bytes = 1024",
        "interleave_bytes = 1024\nturnaround_ns = -1",
        "86:17: `memory.ddr.turnaround_ns` must be from 0 to 1000000000, found -1",
    ),
    (
        "interleave_bytes = 1024",
        "interleave_bytes = 1024\nwrite_batch_bytes = 0",
        "86:21: `memory.ddr.write_batch_bytes` must be from 1 to 1073741824, found 0",
    ),
    (
        "interleave_bytes = 1024",
        "interleave_bytes = 1024\nnon_sequential_ns = -0.5",
        "86:21: `memory.ddr.non_sequential_ns` must be from 0 to 1000000000, found -0.5",
    ),
    (
        "interleave_bytes = 1024",
        "interleave_bytes = 1024\npart = \"ddr4-2667\"",
        "86:8: `memory.ddr.part`: found \"ddr4-2667\", expected one of `ddr4-2666`, `ddr4-3200`, `hbm2e`, `hbm3`",
    ),
    (
        "bandwidth_gb_per_s = 100",
        "bandwidth_gb_per_s = 128\npart = \"ddr4-2666\"",
        "79:22: `memory.ddr.bandwidth_gb_per_s` must be at most 122.3: found 128, and 6 channels of ddr4-2666 give 122.3 after refresh",
    ),
    (
        "burst_bytes = 64",
        "burst_bytes = 32\npart = \"ddr4-2666\"",
        "83:15: `memory.ddr.burst_bytes` must be a multiple of 64, the burst of ddr4-2666: found 32",
    ),
    ("bandwidth_gb_per_s = 100\n", "", "76:8: `memory.ddr.bandwidth_gb_per_s` is missing, and no `part` gives it"),
    ("burst_bytes = 64\n", "", "76:8: `memory.ddr.burst_bytes` is missing, and no `part` gives it"),
    (
        "orchestration = \"software\"",
        "orchestration = \"softwear\"",
        "96:17: `launch.orchestration`: found \"softwear\", expected one of `software`, `hardware`",
    ),
    (
        "sram_pj_per_byte = 1.61",
        "sram_pj_per_byte = -1.61",
        "117:20: `energy.sram_pj_per_byte` must be from 0 to 1000000000, found -1.61",
    ),
    ("static_w = 67", "static_w = 1e400", "122:12: the file cannot be read as TOML: floating-point number overflowed"),
    (
        "device_pj_per_bit = 20.3",
        "device_pj_per_bit = 20.3\npj_per_bit = 29",
        "90:14: `memory.ddr.pj_per_bit` and `memory.ddr.device_pj_per_bit` exclude each other",
    ),
    ("phy_pj_per_bit = 4.59\n", "", "76:8: `memory.ddr.phy_pj_per_bit` is missing"),
    (
        "\"energy.zero_mac_share\" = [0.1, 1]",
        "\"energy.zero_mac_share\" = [1, 0.1]",
        "163:27: the range of \"energy.zero_mac_share\" must be from 0 up and in order, found [1, 0.1]",
    ),
    (
        "\"energy.zero_mac_share\" = [0.1, 1]",
        "\"energy.zero_share\" = [0.1, 1]",
        "163:1: `ranges` has \"energy.zero_share\", which is no number of this file",
    ),
    ("[energy]", "[energy", "112:8: the file cannot be read as TOML: unclosed table, expected `]`"),
    ("[energy]", "[[energy]]", "112:1: `energy[0]`: found an array, expected a table"),
];

#[test]
fn impossible_values_are_refused() {
    for (from, to, error) in REFUSALS {
        assert_eq!(refused(from, to).strip_prefix("sn10.toml:"), Some(*error), "{from:?} -> {to:?}");
    }
}

#[test]
fn tables_are_not_read_from_arrays() {
    for (from, to) in [("[pmu]", "[[pmu]]"), ("[launch.software]", "[[launch.software]]"), ("[[memory]]", "[memory]")] {
        let error = refused(from, to);
        assert!(error.contains("expected a"), "{error}");
    }
    assert!(parse("x", "pmu = [1, 2]", &[]).expect_err("is refused").to_string().contains("expected a table"));
}

#[test]
fn tiers_have_names_of_their_own() {
    let sn40l = include_str!("../../../../arch/sn40l.toml").replace("name = \"hbm\"", "name = \"ddr\"");
    let error = parse("x", &sn40l, &[]).expect_err("is refused");
    assert_eq!(error.title(), "two memory tiers are named \"ddr\"");
    let (head, tail) = SN10.split_at(SN10.find("[[memory]]").expect("has memory"));
    let tail = &tail[tail.find("[launch]").expect("has launch")..];
    let none = format!("memory = []\n{head}{tail}");
    assert_eq!(parse("x", &none, &[]).expect_err("is refused").title(), "`memory` has no tier");
    let missing = format!("{head}{tail}");
    assert_eq!(parse("x", &missing, &[]).expect_err("is refused").title(), "`memory` is missing");
}

#[test]
fn overrides_replace_and_add_fields() {
    let chip = with_sets(&[
        "arch.pmu.capacity_bytes=1048576",
        "arch.memory.ddr.bandwidth_gb_per_s=200",
        "arch.pcu.lanes.fp16=32",
        "arch.energy.mac_pj.fp16=0.5",
        "arch.network.die_hop_cycles=4",
        "arch.grid.die_columns=20",
        "arch.name=bigger",
        "arch.launch.hardware.execute_us=1e-1",
        "arch.grid.agcus.left.ags=4",
        "arch.grid.agcus.top.ags=1",
        "workload.dims.tokens=1",
    ])
    .unwrap_or_else(|error| panic!("{}", error.render(false)));
    assert_eq!(chip.pmu.capacity_bytes, 1 << 20);
    assert_eq!(chip.memory.iter().next().map(|tier| tier.bandwidth_bytes_per_s), Some(200_000_000_000));
    assert_eq!(chip.pcu.lanes[&Dtype::Fp16], 32);
    assert_eq!(chip.network.die_hop_cycles, 4);
    assert_eq!(chip.grid.die, (20, 32));
    assert_eq!(chip.name, "bigger");
    assert_eq!(chip.grid.ags(), 16 * 6 + 40);
}

#[test]
fn the_last_of_equal_overrides_counts() {
    let chip = with_sets(&["arch.pmu.banks=8", "arch.pmu.banks=32", "arch.pmu.banks=4"]).expect("is a chip");
    assert_eq!(chip.pmu.banks, 4);
}

#[test]
fn a_wrong_override_is_reported_as_typed() {
    let refused = |sets: &[&str]| with_sets(sets).expect_err("is refused").render(false);
    insta::assert_snapshot!(refused(&["arch.pmu.banks=15"]), @r#"
error: `pmu.banks` must divide `pmu.capacity_bytes`: 524288 is not a multiple of 15
 --> command line:1:22
  |
1 | --set arch.pmu.banks=15
  |                      ^^ banks of unequal size
"#);
    insta::assert_snapshot!(refused(&["arch.pmu.capacity_bytes=100"]), @r#"
error: `pmu.banks` must divide `pmu.capacity_bytes`: 100 is not a multiple of 16
 --> command line:1:31
  |
1 | --set arch.pmu.capacity_bytes=100
  |                               ^^^ banks of unequal size
"#);
    insta::assert_snapshot!(refused(&["arch.pmu.bankz=15"]), @r#"
error: unknown field `pmu.bankz`
 --> command line:1:7
  |
1 | --set arch.pmu.bankz=15
  |       ^^^^^^^^^^^^^^ expected one of `capacity_bytes`, `banks`, `read_ports`, `write_ports`, `port_bytes`, `gather`
  |
help: did you mean `banks`?
"#);
    insta::assert_snapshot!(refused(&["arch.pmux.banks=15"]), @r#"
error: unknown field `pmux`
 --> command line:1:7
  |
1 | --set arch.pmux.banks=15
  |       ^^^^^^^^^^^^^^^ expected one of `schema`, `kind`, `name`, `clock_ghz`, `grid`, `pcu`, `pmu`, `network`, `ag`, `memory`, `launch`, `energy`, `emulated`, `area`, `vendor`, `ranges`
  |
help: did you mean `pmu`?
"#);
    insta::assert_snapshot!(refused(&["arch.pmu.banks=many"]), @r#"
error: `pmu.banks`: found string "many", expected a whole number
 --> command line:1:22
  |
1 | --set arch.pmu.banks=many
  |                      ^^^^ expected a whole number
"#);
}

#[test]
fn an_override_that_names_no_value_is_reported_as_typed() {
    let refused = |sets: &[&str]| with_sets(sets).expect_err("is refused").render(false);
    insta::assert_snapshot!(refused(&["arch.memory.hbm.channels=1"]), @r#"
error: `memory` has no entry named "hbm"
 --> command line:1:7
  |
1 | --set arch.memory.hbm.channels=1
  |       ^^^^^^^^^^^^^^^^^^^^^^^^ it has `ddr`
"#);
    insta::assert_snapshot!(refused(&["arch.memory.ddr.channel=1"]), @r#"
error: unknown field `memory.ddr.channel`
 --> command line:1:7
  |
1 | --set arch.memory.ddr.channel=1
  |       ^^^^^^^^^^^^^^^^^^^^^^^ expected one of `name`, `part`, `channels`, `bandwidth_gb_per_s`, `latency_ns`, `burst_bytes`, `interleave_bytes`, `turnaround_ns`, `write_batch_bytes`, `non_sequential_ns`, `capacity_bytes`, `pj_per_bit`, `device_pj_per_bit`, `phy_pj_per_bit`, `controller_pj_per_bit`
  |
help: did you mean `channels`?
"#);
    insta::assert_snapshot!(refused(&["arch.pmu=3"]), @r#"
error: `pmu` is a table, which `--set` cannot replace
 --> command line:1:7
  |
1 | --set arch.pmu=3
  |       ^^^^^^^^ names a whole table
  |
help: set one of its fields
"#);
    insta::assert_snapshot!(refused(&["arch.name.first=3"]), @r#"
error: `name` is a value and has no field "first"
 --> command line:1:7
  |
1 | --set arch.name.first=3
  |       ^^^^^^^^^^^^^^^ goes below a value
"#);
    insta::assert_snapshot!(refused(&["arch.pcu.lanes={}"]), @r#"
error: `pcu.lanes` names no data type
 --> command line:1:22
  |
1 | --set arch.pcu.lanes={}
  |                      ^^ expected bf16 = ... or another
"#);
    insta::assert_snapshot!(refused(&["arch.pcu.lanes.fp16=8"]), @r#"
error: `energy.mac_pj.fp16` is missing: `pcu.lanes` has fp16
 --> command line:1:7
  |
1 | --set arch.pcu.lanes.fp16=8
  |       ^^^^^^^^^^^^^^^^^^^ expected fp16 = ...
"#);
}

#[test]
fn an_error_elsewhere_keeps_the_line_of_the_file() {
    let text = edited("static_w = 67", "static_w = -67");
    let sets = ["arch.name=\"a longer name\"", "arch.grid.die_rows=32", "arch.pmu.banks=8"]
        .map(|set| Override::parse(set).expect("parses"));
    let error = parse("sn10.toml", &text, &sets).expect_err("is refused");
    assert_eq!(error, parse("sn10.toml", &text, &[]).expect_err("is refused"));
    insta::assert_snapshot!(error.render(false), @r#"
error: `energy.static_w` must be from 0 to 1000000000, found -67
   --> sn10.toml:122:12
    |
122 | static_w = -67
    |            ^^^ must be from 0 to 1000000000
"#);
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = load(Path::new("arch/none.toml"), &[]).expect_err("is refused");
    assert!(error.title().starts_with("cannot read `arch/none.toml`: "), "{error}");
    assert!(load(Path::new("arch"), &[]).is_err());
}

#[test]
fn the_documented_example_is_a_chip() {
    let text = include_str!("../../../../docs/arch-format.md");
    let example = text.rsplit("```toml\n").next().and_then(|rest| rest.split("```").next()).expect("has an example");
    let chip = parse("example", example, &[]).unwrap_or_else(|error| panic!("{}", error.render(false)));
    assert_eq!((chip.pcus(), chip.grid.ags(), chip.network.die_hop_cycles), (16, 4, 1));
}

#[test]
fn vendor_limits_act_only_when_asked_for() {
    let chip = shipped("sn10");
    let vendor = chip.vendor.expect("SN10 is calibrated");
    assert!(chip.limits().is_none() && chip.pcus_per_operator() == 640 && chip.launch_cycles() == 30_000);
    assert_eq!(chip.in_section(u64::MAX).memory[TierId::from_index(0)].bandwidth_bytes_per_s, 100_000_000_000);
    let limited = chip.under(Quality::Vendor).expect("has limits");
    // 160 PCUs at 87.5 % of their peak are as fast as 140 at their peak.
    assert_eq!((vendor.pcus_per_operator, limited.pcus_per_operator()), (160, 140));
    near(limited.launch.times().sum_us(), vendor.launch_us, 1e-12);
    // The parts of a launch keep their proportions.
    near(limited.launch.times().execute_us, vendor.launch_us / 3.0, 1e-12);
    let large = vendor.large.expect("large tensors are faster");
    let rate = |bytes: u64| limited.in_section(bytes).memory[TierId::from_index(0)].bandwidth_bytes_per_s;
    assert_eq!(rate(large.tensor_bytes - 1), vendor.stream_bytes_per_s);
    assert_eq!(rate(large.tensor_bytes), large.stream_bytes_per_s);
    // A limit above what the memory gives changes nothing.
    let set = "arch.vendor.large_tensor_gb_per_s=1000";
    let fast = with_sets(&[set]).expect("is a chip").under(Quality::Vendor).expect("has limits");
    assert_eq!(fast.in_section(u64::MAX).memory[TierId::from_index(0)].bandwidth_bytes_per_s, 100_000_000_000);
}

#[test]
fn vendor_limits_are_checked() {
    let error = shipped("sn40l").under(Quality::Vendor).expect_err("has no limits").to_string();
    assert!(error.contains("SN40L has no vendor limits"), "{error}");
    let message = refused("large_tensor_bytes = 536870912", "");
    assert!(message.contains("belong together"), "{message}");
    let message = refused("large_tensor_gb_per_s = 81.2", "large_tensor_gb_per_s = 1");
    assert!(message.contains("must be at least `vendor.stream_gb_per_s`: found 1 and 30.7"), "{message}");
    let message = refused("pcus_per_operator = 160", "pcus_per_operator = 0");
    assert!(message.contains("vendor.pcus_per_operator"), "{message}");
}

#[test]
fn a_part_fills_in_what_a_file_leaves_out() {
    let text = edited("bandwidth_gb_per_s = 100\n", "part = \"ddr4-2666\"\n").replace("burst_bytes = 64\n", "");
    let tier = |sets: &[&str]| {
        let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).expect("parses")).collect();
        let chip = parse("sn10.toml", &text, &sets).unwrap_or_else(|error| panic!("{}", error.render(false)));
        (chip.memory[TierId::from_index(0)].clone(), chip.tier_penalties(TierId::from_index(0)))
    };
    let (ddr, penalties) = tier(&[]);
    // 6 channels x 8 B x 2.667 G/s x (1 - 350 / 7800).
    assert_eq!((ddr.bandwidth_bytes_per_s, ddr.burst_bytes), (122_256_410_256, 64));
    // Half of 2 x 0.75 ns, and 7.5 ns + 14.25 ns.
    near(ddr.turnaround_ns, 11.625, 1e-9);
    assert_eq!(penalties.turn_milli_cycles, 29_063, "23.25 ns at 1.25 GHz");
    assert_eq!(penalties.bank_cycles().expect("has banks").open, 17_813, "14.25 ns at 1.25 GHz");
    // What the file gives stands.
    let (given, _) = tier(&["arch.memory.ddr.bandwidth_gb_per_s=100", "arch.memory.ddr.turnaround_ns=3"]);
    assert_eq!((given.bandwidth_bytes_per_s, given.turnaround_ns), (100_000_000_000, 3.0));
    let (flat, penalties) = tier(&["arch.memory.ddr.non_sequential_ns=32"]);
    assert_eq!(
        (flat.banks, penalties.run_milli_cycles(64), penalties.run_milli_cycles(1 << 20)),
        (None, 40_000, 40_000)
    );
}

#[test]
fn longer_runs_lose_less_and_never_nothing() {
    for part in MEMORY_PARTS {
        let banks = part.banks();
        let burst_ns = part.burst_bytes as f64 / part.channel_bytes_per_s() * 1e9;
        let runs: Vec<f64> = (0..16).map(|n| burst_ns * f64::from(1 << n)).collect();
        let losses: Vec<f64> = runs.iter().map(|&run_ns| banks.loss_ns(run_ns)).collect();
        assert!(losses.is_sorted_by(|short, long| short + 1e-6 >= *long), "{}: {losses:?}", part.name);
        // Of very long runs, only one in the bank of the run before waits.
        let conflict = (banks.open_ns + banks.close_ns) / banks.count as f64;
        near(losses[15], conflict, 1e-3);
        // No channel opens rows faster than its window of four allows, or a bank's cycle on all banks.
        let between = losses[0] + runs[0];
        assert!(between >= banks.activation_ns.max(banks.cycle_ns / banks.count as f64), "{}", part.name);
        assert!(between <= banks.cycle_ns + banks.open_ns, "{}", part.name);
    }
}
