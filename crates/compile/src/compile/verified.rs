//! The verifier after the passes that make sections: in debug builds only, and then a failing check is a bug. Of the
//! mappings that the search tries, those that it chooses are checked, with the partition.

use rdusim_graph::arch::Chip;
use rdusim_graph::workload::Workload;
use rdusim_program::verifier::{Verifier, Violation, violations};
use rdusim_program::{Configuration, Fabric, Section};

/// Checks the section that a pass has made.
///
/// # Panics
/// In debug builds, where a check fails: with the pass and what is wrong.
pub(super) fn after_pass(pass: &str, verifier: &Verifier<'_>, section: &Section) {
    if cfg!(debug_assertions) {
        refuse(pass, &verifier.violations(section));
    }
}

/// Checks the configuration that a pass has made.
///
/// # Panics
/// As [`after_pass`].
pub(super) fn after_all(pass: &str, chip: &Chip, workload: &Workload, fabric: &Fabric, configuration: &Configuration) {
    if cfg!(debug_assertions) {
        refuse(pass, &violations(chip, workload, fabric, configuration));
    }
}

fn refuse(pass: &str, found: &[Violation]) {
    if let Some(first) = found.first() {
        panic!("the pass `{pass}` made a program that cannot be: {first}");
    }
}
