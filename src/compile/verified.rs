//! The verifier after every pass that makes sections: in debug builds only, and then a failing check is a bug.

use crate::arch::Chip;
use crate::program::verifier::{Verifier, Violation, violations};
use crate::program::{Configuration, Fabric, Section};
use crate::workload::Workload;

/// Checks the section that a pass has made.
///
/// # Panics
/// In debug builds, where a check fails: with the pass and what is wrong.
pub fn after_pass(pass: &str, verifier: &Verifier<'_>, section: &Section) {
    if cfg!(debug_assertions) {
        let t = std::time::Instant::now();
        refuse(pass, &verifier.violations(section));
        note(t);
    }
}

/// Checks the configuration that a pass has made.
///
/// # Panics
/// As [`after_pass`].
pub fn after_all(pass: &str, chip: &Chip, workload: &Workload, fabric: &Fabric, configuration: &Configuration) {
    if cfg!(debug_assertions) {
        let t = std::time::Instant::now();
        refuse(pass, &violations(chip, workload, fabric, configuration));
        note(t);
    }
}

fn refuse(pass: &str, found: &[Violation]) {
    if let Some(first) = found.first() {
        panic!("the pass `{pass}` made a program that cannot be: {first}");
    }
}

static NANOS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
static CALLS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
fn note(t: std::time::Instant) {
    use std::io::Write;
    use std::sync::atomic::Ordering::Relaxed;
    let took = t.elapsed().as_nanos() as u64;
    let all = NANOS.fetch_add(took, Relaxed) + took;
    let calls = CALLS.fetch_add(1, Relaxed) + 1;
    if calls.is_multiple_of(200) || took > 200_000_000 {
        let mut f = std::fs::OpenOptions::new().append(true).create(true).open("/tmp/h6_times.log").unwrap();
        let _ = writeln!(f, "{} calls {calls} ms {} took {}", std::process::id(), all / 1_000_000, took / 1_000_000);
    }
}
