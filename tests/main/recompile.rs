//! The mappings of a configuration on a chip that has more of something.

use rdusim::arch;
use rdusim::compile::{compile_measured, recompiled};
use rdusim::cost::Stop;
use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, StopReason};
use rdusim::sim::simulate;
use rdusim::workload;

/// The same nests and arrays, in places of their own, and about as fast: nothing is searched anew.
#[test]
fn mappings_are_kept_on_a_chip_that_has_more() {
    let workload = workload::load("workloads/gpt2-small-mlp.toml".as_ref(), &[], 0).expect("a workload");
    let chip = arch::load("arch/sn10.toml".as_ref(), &[]).expect("a chip");
    let compiled = compile_measured(&chip, &workload, &Mode::ALL).expect("it fits");
    for set in ["arch.pmu.read_ports=3", "arch.pmu.capacity_bytes=1048576", "arch.network.links_per_direction=3"] {
        let more =
            arch::load("arch/sn10.toml".as_ref(), &[Override::parse(set).expect("an override")]).expect("a chip");
        for of in &compiled {
            let of = &of.configuration;
            let again = recompiled(&more, &workload, of, Stop::NEVER).expect("there is more room").configuration;
            assert_eq!(again.mode, of.mode);
            for (again, of) in again.sections.iter().zip(&of.sections) {
                assert_eq!(again.operators, of.operators);
                assert_eq!(again.schedule.nest(), of.schedule.nest());
                let mappings =
                    |section: &rdusim::program::Section| section.stages.iter().map(|s| s.mapping).collect::<Vec<_>>();
                assert_eq!(mappings(again), mappings(of));
            }
            let [before, now] =
                [(&chip, of), (&more, &again)].map(|(chip, of)| simulate(chip, &workload, of, Fidelity::Event));
            assert_eq!(now.stop, StopReason::Drained);
            assert!(now.cycles as f64 <= before.cycles as f64 * 1.05, "{set}: {} and {}", before.cycles, now.cycles);
        }
    }
}
