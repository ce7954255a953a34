//! The decisions of a search as lines of the log, target `search`, level debug.
//!
//! A compilation is one record of several lines, made when its search has ended: the lines follow the graph, and do not depend on
//! the number of threads.

use std::fmt::Write as _;

use rdusim_graph::arch::Chip;
use rdusim_graph::workload::Workload;
use rustc_hash::FxHashMap;

use super::compiled::Compiled;
use super::search::context::Effort;
use super::search::decisions::Decisions;

/// The target of the records.
const TARGET: &str = "search";

/// Names of sections of one shape that a line lists at most, so that it fits a terminal.
const MOST_NAMED: usize = 4;

/// Whether decisions are logged; else the search need not keep them.
pub(super) fn is_wanted() -> bool {
    log::log_enabled!(target: TARGET, log::Level::Debug)
}

/// Logs the sections of every mode, and what was decided of each section that was compared.
pub(super) fn decisions(
    chip: &Chip,
    workload: &Workload,
    effort: Effort,
    compiled: &[Compiled],
    decisions: &Decisions,
) {
    let mut text = format!("{} on {}, effort {}", workload.name, chip.name, effort.name());
    let mut modes_of: FxHashMap<&str, Vec<&str>> = FxHashMap::default();
    for of in compiled {
        let (mode, sections) = (of.configuration.mode.name(), &of.configuration.sections);
        let names: Vec<&str> = sections.iter().map(|section| section.name.as_str()).collect();
        let _ = write!(text, "\n{mode}, sections: {}: {}", names.len(), names.join(", "));
        for name in names {
            modes_of.entry(name).or_default().push(mode);
        }
    }
    for of in &decisions.sections {
        let modes = modes_of.get(of.section.as_str()).map_or_else(|| "no mode".to_owned(), |modes| modes.join(" "));
        let about = format!("{}, {modes}", of.section);
        let others = of.alike.get(1..).unwrap_or_default();
        if !others.is_empty() {
            let named = others[..others.len().min(MOST_NAMED)].join(", ");
            let more = others.len().saturating_sub(MOST_NAMED);
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            let _ = write!(text, "\n{about}: the same holds for {named}{more}");
        }
        for line in &of.lines {
            let _ = write!(text, "\n{about}: {line}");
        }
    }
    log::debug!(target: TARGET, "{text}");
}
