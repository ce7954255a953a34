//! The figures of a run.

use std::collections::BTreeMap;

use crate::run::{Verdict, verdicts};
use crate::tree::{Outcome, Places, Sampled, read_lines};

/// 97.5 % quantile of the normal distribution.
const Z: f64 = 1.959_964;

/// Wilson's 95 % interval of a share (Wilson 1927).
fn wilson(successes: usize, trials: usize) -> (f64, f64) {
    if trials == 0 {
        return (0.0, 1.0);
    }
    let (n, share) = (trials as f64, successes as f64 / trials as f64);
    let centre = share + Z * Z / (2.0 * n);
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    ((centre - half) / scale, (centre + half) / scale)
}

#[derive(Default)]
struct Row {
    sampled: usize,
    viable: usize,
    run: usize,
    caught: usize,
    timed_out: usize,
    unreached: usize,
}

/// A table of the modules as Markdown.
pub(crate) fn table(places: &Places) -> Outcome<Vec<String>> {
    let sampled: Vec<Sampled> = read_lines(&places.mutants)?;
    let verdicts = verdicts(places);
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    for mutant in &sampled {
        let row = rows.entry(&mutant.module).or_default();
        row.sampled += 1;
        row.viable += usize::from(mutant.viable);
        if let Some(verdict) = verdicts.get(&mutant.name()).filter(|_| mutant.viable) {
            row.run += 1;
            row.caught += usize::from(verdict.caught);
            row.timed_out += usize::from(verdict.timed_out);
            row.unreached += usize::from(verdict.reaching == 0);
        }
    }
    let mut lines = vec![
        "| module | sampled | compile | run | caught | of these by time | missed | of these reached by no test | caught, 95 % interval |".to_owned(),
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |".to_owned(),
    ];
    for (module, row) in rows {
        let (low, high) = wilson(row.caught, row.run);
        let share = row.caught as f64 / row.run.max(1) as f64;
        lines.push(format!(
            "| `{module}` | {} | {} | {} | {} | {} | {} | {} | {:.1} % ({:.1} to {:.1} %) |",
            row.sampled,
            row.viable,
            row.run,
            row.caught,
            row.timed_out,
            row.run - row.caught,
            row.unreached,
            100.0 * share,
            100.0 * low,
            100.0 * high
        ));
    }
    Ok(lines)
}

/// The mutants that were missed, with their modules.
pub(crate) fn missed(places: &Places) -> Outcome<Vec<(Sampled, Verdict)>> {
    let sampled: Vec<Sampled> = read_lines(&places.mutants)?;
    let mut verdicts = verdicts(places);
    let mut missed = Vec::new();
    for mutant in sampled.into_iter().filter(|mutant| mutant.viable) {
        if let Some(verdict) = verdicts.remove(&mutant.name()).filter(|verdict| !verdict.caught) {
            missed.push((mutant, verdict));
        }
    }
    missed
        .sort_by(|(a, _), (b, _)| (&a.module, &a.file, a.line, a.column).cmp(&(&b.module, &b.file, b.line, b.column)));
    Ok(missed)
}

#[cfg(test)]
mod tests {
    use super::wilson;

    /// 45 of 50 by the formula, worked by hand: centre 0.9 + 3.8415 / 100, half 1.96 sqrt(0.0018 + 3.8415 / 10,000), over 1.07683.
    #[test]
    fn wilson_of_45_in_50() {
        let (low, high) = wilson(45, 50);
        assert!((low - 0.7864).abs() < 1e-4 && (high - 0.9565).abs() < 1e-4, "{low} {high}");
        assert_eq!(wilson(0, 0), (0.0, 1.0));
    }
}
