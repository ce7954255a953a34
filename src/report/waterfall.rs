//! From one time to another in steps: what each step is worth as a factor.

use serde::Serialize;

/// One step: what changes, and the time it leads to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WaterfallStep {
    /// What changes.
    pub name: String,
    /// Seconds after it.
    pub time_s: f64,
    /// Seconds before over seconds after: above 1 it is faster.
    pub factor: f64,
}

/// A way from a first run to a last one. The factors multiply to the speedup.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Waterfall {
    /// What is shown.
    pub title: String,
    /// One line on what the times are of.
    pub about: String,
    /// The first run's name.
    pub start: String,
    /// Its seconds.
    pub start_s: f64,
    /// The last run's name.
    pub end: String,
    /// Its seconds.
    pub end_s: f64,
    /// The first run's seconds over the last one's.
    pub speedup: f64,
    /// What lies between, in order.
    pub steps: Vec<WaterfallStep>,
}

impl Waterfall {
    /// The way from `start` (a name and seconds) over steps (what changes, and the seconds it leads to) to the run `end`.
    pub fn new(title: &str, about: &str, start: (&str, f64), steps: &[(&str, f64)], end: &str) -> Self {
        let mut before = start.1;
        let step = |&(name, time_s): &(&str, f64)| {
            let factor = super::figures::quotient(before, time_s);
            before = time_s;
            WaterfallStep { name: name.to_owned(), time_s, factor }
        };
        let steps: Vec<WaterfallStep> = steps.iter().map(step).collect();
        Self {
            title: title.to_owned(),
            about: about.to_owned(),
            start: start.0.to_owned(),
            start_s: start.1,
            end: end.to_owned(),
            end_s: before,
            speedup: super::figures::quotient(start.1, before),
            steps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_multiply_to_the_ends() {
        let steps = [("chip", 5.0), ("fusion", 2.5), ("sparsity", 0.7)];
        let waterfall = Waterfall::new("t", "a", ("first", 3.0), &steps, "last");
        let product: f64 = waterfall.steps.iter().map(|step| step.factor).product();
        assert!((product - 3.0 / 0.7).abs() < 1e-12 && (waterfall.speedup - product).abs() < 1e-12);
        assert!((waterfall.end_s - 0.7).abs() < 1e-15 && waterfall.steps[0].factor < 1.0);
        // Without steps the ends are one.
        assert!((Waterfall::new("t", "a", ("only", 3.0), &[], "only").speedup - 1.0).abs() < 1e-15);
    }
}
