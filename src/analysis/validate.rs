//! Simulated against published measurements.

use std::path::Path;

use crate::arch::{self, Chip, Quality};
use crate::diagnostics::Diagnostic;
use crate::input::{Override, Root};
use crate::validate::{
    CHIPS, PublishedSet, SetReport, analytic_sets, layer_report, published_sets, validate as validate_set,
};

/// Names of the sets that need no measurement.
pub const ANALYTIC: [&str; 3] = ["analytic-traffic", "analytic-limits", "analytic-systolic"];

/// The chip given, or every shipped one that measurements were made on.
///
/// # Errors
/// A chip that no set was measured on, and overrides of workloads, which are fixed.
pub fn validated_chips(arch: Option<&Path>, sets: &[Override]) -> Result<Vec<Chip>, Diagnostic> {
    if let Some(set) = sets.iter().find(|set| set.root() == Root::Workload) {
        let title = format!("`--set {}`: the workloads of published sets are fixed", set.raw());
        return Err(Diagnostic::new(title).with_help("change a field of the chip: `arch.PATH=VALUE`"));
    }
    let chips = match arch {
        Some(path) => vec![arch::load(path, sets)?],
        None => CHIPS.iter().map(|chip| chip.load(sets)).collect::<Result<Vec<_>, _>>()?,
    };
    for chip in &chips {
        if !CHIPS.iter().any(|known| known.name == chip.name) {
            let names: Vec<&str> = CHIPS.iter().map(|chip| chip.name).collect();
            let title = format!("no published set was measured on a chip named {:?}", chip.name);
            let help = format!("sets are found by the `name` of the chip file: {}", names.join(", "));
            return Err(Diagnostic::new(title).with_help(help));
        }
        chip.under(Quality::Vendor)?;
    }
    Ok(chips)
}

/// Published sets that were measured on some chips.
///
/// # Errors
/// A shipped set that cannot be read.
pub fn known_sets(chips: &[Chip]) -> Result<Vec<PublishedSet>, Diagnostic> {
    let measured = |set: &PublishedSet| chips.iter().any(|chip| chip.name == set.chip);
    Ok(published_sets()?.into_iter().filter(measured).collect())
}

/// Simulates the sets of these names, or all; the analytic ones only on shipped chips.
///
/// # Errors
/// Names of no set, and cases that cannot be simulated.
pub fn validate(arch: Option<&Path>, sets: &[Override], only: &[String]) -> Result<Vec<SetReport>, Diagnostic> {
    let chips = validated_chips(arch, sets)?;
    let sets = known_sets(&chips)?;
    let names: Vec<&str> = sets.iter().map(|set| set.name).chain(ANALYTIC).collect();
    check_names(only, &names)?;
    let wanted = |name: &str| only.is_empty() || only.iter().any(|only| only == name);
    let mut reports: Vec<SetReport> =
        sets.iter().filter(|set| wanted(set.name)).map(|set| validate_set(set, &chips)).collect::<Result<_, _>>()?;
    reports.extend(layer_report(&reports));
    // They hold for the shipped chip as it is.
    if arch.is_none() && ANALYTIC.into_iter().any(wanted) {
        reports.extend(analytic_sets()?.into_iter().filter(|set| wanted(&set.name)));
    }
    Ok(reports)
}

/// Refuses names of no set.
///
/// # Errors
/// The first of them.
pub(crate) fn check_names(wanted: &[String], known: &[&str]) -> Result<(), Diagnostic> {
    match wanted.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(Diagnostic::new(format!("there is no set named {name:?}"))
            .with_help(format!("the sets are {}", known.join(", ")))),
    }
}
