//! Sensitivities as pictures: a tornado of what one more of each resource would save, and one of what uncertain fields may change.

use crate::report::{File, TornadoChart, TornadoRow, WriteError};

use super::entries::{Explanation, ModeEntry, Uncertainty};

impl Explanation {
    /// Pictures of every mode as SVG and PNG: `sensitivity-MODE`, and `uncertainty-MODE` if that was asked for.
    ///
    /// # Errors
    /// A picture that cannot be drawn.
    pub fn pictures(&self) -> Result<Vec<File>, WriteError> {
        let mut files = Vec::new();
        for (at, mode) in self.modes.iter().enumerate() {
            let about = format!("{} on {}, {}, fidelity {}", self.workload, self.arch, mode.mode, self.fidelity);
            let mut add = |name: &str, chart: &TornadoChart| {
                let failed = |error| WriteError::Chart("sensitivity", error);
                let file = |ending: &str, bytes| File { name: format!("{name}-{}.{ending}", mode.mode), bytes };
                files.push(file("svg", chart.svg().map_err(failed)?.into_bytes()));
                files.push(file("png", chart.png().map_err(failed)?));
                Ok(())
            };
            add("sensitivity", &of_resources(mode, about.clone()))?;
            if let Some(uncertainty) = &self.uncertainty {
                add("uncertainty", &of_fields(uncertainty, mode, at, about))?;
            }
        }
        Ok(files)
    }
}

fn of_resources(mode: &ModeEntry, about: String) -> TornadoChart {
    let possible = mode.derivatives.iter().filter(|derivative| derivative.time_s.is_some());
    let row = |derivative: &super::entries::Derivative| TornadoRow {
        name: derivative.resource.clone(),
        step: derivative.step.clone(),
        values: vec![derivative.time_s],
    };
    TornadoChart {
        title: "What one more of each resource would save".to_owned(),
        about,
        base_s: mode.time_s,
        ends: vec!["time with one more, found by running again".to_owned()],
        rows: possible.map(row).collect(),
    }
}

fn of_fields(uncertainty: &Uncertainty, mode: &ModeEntry, at: usize, about: String) -> TornadoChart {
    let rows = uncertainty.assumptions.iter().map(|effect| {
        let time = |times: &Option<Vec<f64>>| times.as_ref().and_then(|times| times.get(at).copied());
        let (name, others) = effect.fields.split_first().map_or(("", &[][..]), |(name, others)| (name, others));
        let step = if others.is_empty() { String::new() } else { format!("with {}", others.join(", ")) };
        TornadoRow {
            name: name.to_owned(),
            step,
            values: vec![time(&effect.halved_time_s), time(&effect.doubled_time_s)],
        }
    });
    TornadoChart {
        title: "What uncertain fields of the chip file may change".to_owned(),
        about,
        base_s: mode.time_s,
        ends: vec!["low end of its range (half, if none is given)".to_owned(), "high end (twice)".to_owned()],
        rows: rows.collect(),
    }
}
