//! What `validate` promises: sets within their targets, truths met exactly, limits that act only when asked for.

use std::path::Path;

use rdusim::arch::{self, Chip, Quality};
use rdusim::compile::{compile_measured, simulate_measured};
use rdusim::cost::bound_cycles;
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, Outcome};
use rdusim::validate::{CHIPS, analytic_sets, published_sets, validate};
use rdusim::workload;

fn chips() -> Vec<Chip> {
    CHIPS.iter().map(|chip| chip.load(&[]).expect("a shipped chip")).collect()
}

#[test]
fn the_sets_of_sn10_are_within_their_targets() {
    for (name, median, rank) in [("sn10-gemm-square", 0.15, 0.99), ("sn10-relu", 0.10, 0.75)] {
        let set = published_sets().expect("sets").into_iter().find(|set| set.name == name).expect("a set");
        let report = validate(&set, &chips()).expect("runs");
        assert!(report.score.median_error <= median, "{name}: {:?}", report.score);
        assert!(report.score.rank_correlation.is_some_and(|r| r >= rank), "{name}: {:?}", report.score);
        // An ideal mapping is never slower than the measured one, and the limits cost something.
        for row in &report.rows {
            assert!(row.ideal.is_some_and(|ideal| ideal >= row.simulated), "{name} at {}", row.label);
        }
    }
}

#[test]
fn the_range_of_the_vendor_mapping_holds_most_large_products() {
    let set = published_sets().expect("sets").into_iter().find(|set| set.name == "sn10-gemm-square").expect("a set");
    let report = validate(&set, &chips()).expect("runs");
    // A rate: loads before computing are never faster than loads under it.
    assert!(report.rows.iter().all(|row| row.serial.is_some_and(|serial| serial <= row.simulated)));
    let inside = report.rows.iter().filter(|row| row.at >= 1024.0 && row.range_error() == Some(0.0)).count();
    assert_eq!(inside, 6, "{report:?}");
    let nearer: Vec<f64> =
        report.rows.iter().filter_map(rdusim::validate::SetRow::nearer_end_error).map(f64::abs).collect();
    assert!(nearer.iter().filter(|error| **error <= 0.15).count() * 2 > nearer.len(), "{nearer:?}");
    assert_eq!(report.parts.iter().map(|part| part.points).collect::<Vec<_>>(), [5, 4]);
}

#[test]
fn only_elementwise_sections_have_the_rate_of_large_tensors() {
    let chip = arch::load(Path::new("arch/sn10.toml"), &[]).expect("a chip").under(Quality::Vendor).expect("limits");
    let seconds = |text: &str, mode: Mode| {
        let workload = workload::parse("large.toml", text, &[], 0).expect("a workload");
        let measured = compile_measured(&chip, &workload, &[mode]).expect("compiles");
        let outcome = simulate_measured(&chip, &workload, &measured[0], Fidelity::Event);
        assert!(outcome.bound_cycles <= outcome.cycles && outcome.cycles <= outcome.serial_cycles());
        chip.seconds(outcome.cycles)
    };
    // Both move 2 x 640 MiB.
    let head = "schema = 1\nname = \"large\"\n[[tensors]]\nname = \"x\"\nrole = \"input\"\n";
    let relu = format!(
        "{head}shape = [327680, 1024]\n[[operators]]\nname = \"f\"\nkind = \"relu\"\ninputs = [\"x\"]\noutput = \"y\"\n"
    );
    let gemm = format!(
        "{head}shape = [327680, 1024]\n[[tensors]]\nname = \"w\"\nshape = [1024, 1024]\nrole = \"weight\"\n\
         [[operators]]\nname = \"g\"\nkind = \"gemm\"\ninputs = [\"x\", \"w\"]\noutput = \"y\"\n"
    );
    let bytes = 2.0 * 327_680.0 * 1024.0 * 2.0;
    let (elementwise, product) = (seconds(&relu, Mode::Kbk), seconds(&gemm, Mode::Kbk));
    assert!((elementwise / (bytes / 81.2e9) - 1.0).abs() < 0.05, "{elementwise}");
    assert!(product >= bytes / 30.7e9, "{product}");
}

#[test]
fn truths_are_met() {
    let sets = analytic_sets().expect("runs");
    let worst = |name: &str| sets.iter().find(|set| set.name == name).expect("a set").score.worst_error;
    assert!(worst("analytic-traffic") < 1e-12);
    assert!(worst("analytic-systolic") < 1e-12);
    let limits = sets.iter().find(|set| set.name == "analytic-limits").expect("a set");
    assert!(limits.rows.iter().all(|row| row.error() >= 0.0), "faster than possible");
}

fn run(chip: &Chip, mode: Mode) -> Outcome {
    let workload = workload::load(Path::new("workloads/gpt2-small-mlp.toml"), &[], 0).expect("a workload");
    let measured = compile_measured(chip, &workload, &[mode]).expect("compiles");
    let outcome = simulate_measured(chip, &workload, &measured[0], Fidelity::Event);
    assert!(outcome.bound_cycles <= outcome.cycles, "{:?}", chip.quality);
    assert_eq!(outcome.bound_cycles, bound_cycles(chip, &workload, mode));
    outcome
}

#[test]
fn limits_act_under_vendor_only() {
    let chip = arch::load(Path::new("arch/sn10.toml"), &[]).expect("a chip");
    let without = Chip { vendor: None, ..chip.clone() };
    let limited = chip.under(Quality::Vendor).expect("has limits");
    for mode in [Mode::Kbk, Mode::Fused] {
        let ideal = run(&chip, mode);
        assert_eq!(run(&without, mode), ideal, "the table changes nothing by being there");
        let vendor = run(&limited, mode);
        assert!(vendor.cycles > ideal.cycles);
        let most = limited.pcus_per_operator();
        assert!(vendor.sections.iter().flat_map(|section| &section.stages).all(|stage| stage.pcus <= most));
    }
}
