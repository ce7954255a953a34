use super::*;
use crate::units::{Dtype, MIB};

fn shipped(name: &str) -> Chip {
    load(Path::new(&format!("arch/{name}.toml")), &[]).unwrap_or_else(|error| panic!("{}", error.render(false)))
}

#[track_caller]
fn near(found: f64, expected: f64, tolerance: f64) {
    assert!((found / expected - 1.0).abs() <= tolerance, "found {found}, expected {expected}");
}

#[test]
fn shipped_chips_meet_their_published_figures() {
    for (name, dtype, tflops, sram_mib) in [
        ("sn10", Dtype::Bf16, 307.2, 320.0),
        ("sn30", Dtype::Bf16, 614.4, 640.0),
        ("sn40l", Dtype::Bf16, 638.98, 520.0),
        ("plasticine", Dtype::Fp32, 12.288, 16.0),
    ] {
        let chip = shipped(name);
        near(chip.peak_flops(dtype).expect("has the data type") / 1e12, tflops, 0.01);
        near(chip.sram_bytes() as f64 / MIB as f64, sram_mib, 0.01);
        assert!(chip.macs_per_cycle(Dtype::Bf16).is_some(), "{name} runs the shipped workloads");
    }
}

#[test]
fn sn10_scratchpads_have_the_published_bandwidth() {
    let chip = shipped("sn10");
    let bytes_per_cycle = chip.pmus() * (chip.pmu.read_ports + chip.pmu.write_ports) * chip.pmu.port_bytes;
    near(bytes_per_cycle as f64 * chip.clock_hz as f64 / 1e12, 150.0, 0.03);
}
