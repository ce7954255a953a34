//! What a study wants to be told of its points: what is best, a front, pictures; columns by name.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;

use super::expression::Constraint;
use super::metric::Metric;
use super::spec::{BestSpec, PlotSpec, StudySpec};
use crate::diagnostics::Diagnostic;
use crate::input::{Source, Table, suggest};
use crate::report::name_in_words;

/// A figure to make small or large.
#[derive(Debug, Clone)]
pub(super) struct Objective {
    pub(super) column: usize,
    pub(super) maximize: bool,
}

/// The best point under a constraint.
#[derive(Debug)]
pub(super) struct Best {
    pub(super) objective: Objective,
    pub(super) subject_to: Option<(String, Constraint)>,
    /// One for each value of this column of an axis.
    pub(super) per: Option<usize>,
    /// The objective is a mean over an axis.
    pub(super) over: Option<Over>,
}

/// A mean over the values of an axis, such as several workloads.
#[derive(Debug)]
pub(super) struct Over {
    pub(super) column: usize,
    pub(super) mean: Mean,
    /// By the axis's value; 1 for those that are not there.
    pub(super) weights: BTreeMap<String, f64>,
}

/// Which mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mean {
    /// Of the logarithms: no workload counts more for being larger.
    Geometric,
    /// Of the values.
    Arithmetic,
}

impl Mean {
    const ALL: [Self; 2] = [Self::Geometric, Self::Arithmetic];

    /// The name in files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Geometric => "geometric",
            Self::Arithmetic => "arithmetic",
        }
    }
}

/// The Pareto front.
#[derive(Debug)]
pub(super) struct Pareto {
    pub(super) objectives: Vec<Objective>,
    /// A front for each value of this column of an axis.
    pub(super) per: Option<usize>,
    pub(super) prune: bool,
}

/// A picture of the results; numbers are columns.
#[derive(Debug)]
pub(super) enum Plot {
    /// `y` over `x`, a line for each value of `series`.
    Lines { title: String, x: usize, y: usize, series: Option<usize> },
    /// `value` as colour over `x` and `y`.
    Heat { title: String, x: usize, y: usize, value: usize },
    /// Points, with the front that is least in both.
    Pareto { title: String, x: usize, y: usize, series: Option<usize> },
}

pub(super) fn unknown(source: &Source, span: Range<usize>, what: &str, name: &str, known: &[String]) -> Diagnostic {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let title = format!("there is no {what} `{name}`");
    suggest(source.error(span, title, "not one of them"), name, &known)
}

/// A text that begins with a capital letter.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Columns by name.
pub(super) struct Named<'a> {
    pub(super) source: &'a Source,
    pub(super) columns: &'a [String],
    pub(super) axes: usize,
    pub(super) metrics: &'a [Metric],
}

impl Named<'_> {
    fn column(&self, word: &Spanned<String>) -> Result<usize, Diagnostic> {
        let name = word.get_ref();
        self.columns.iter().position(|column| column == name).ok_or_else(|| {
            let error = unknown(self.source, word.span(), "axis or metric", name, self.columns);
            if error.help().is_none() { error.with_help("add it to `metrics`") } else { error }
        })
    }

    /// Constraints on what is known before a run.
    pub(super) fn constraints(&self, specs: &[Spanned<String>]) -> Result<Vec<(Constraint, Range<usize>)>, Diagnostic> {
        let mut constraints = Vec::new();
        for spec in specs {
            let constraint = self.constraint(spec)?;
            for (name, span) in constraint.names() {
                let is_axis = self.columns[..self.axes].iter().any(|axis| axis == name);
                if !is_axis && !Metric::named(name).is_some_and(Metric::is_input) {
                    let known: Vec<String> = self.columns[..self.axes].to_vec();
                    let title = format!("`{name}` is not known before a point is run");
                    let error =
                        self.source.error(inside(spec, &span), title, "expected an axis or a figure of the inputs");
                    let known: Vec<&str> = known.iter().map(String::as_str).collect();
                    let error = suggest(error, name, &known);
                    return Err(if error.help().is_none() {
                        error.with_help("constraints on results belong in `subject_to` of [[best]]")
                    } else {
                        error
                    });
                }
            }
            constraints.push((constraint, spec.span()));
        }
        Ok(constraints)
    }

    fn constraint(&self, spec: &Spanned<String>) -> Result<Constraint, Diagnostic> {
        Constraint::parse(spec.get_ref())
            .map_err(|wrong| self.source.error(inside(spec, &wrong.span), wrong.title, "in this constraint"))
    }

    fn objective(&self, word: &Spanned<String>, maximize: bool) -> Result<Objective, Diagnostic> {
        self.column(word).map(|column| Objective { column, maximize })
    }

    pub(super) fn pareto(&self, spec: &StudySpec) -> Result<Option<Pareto>, Diagnostic> {
        let Some(spec) = &spec.pareto else { return Ok(None) };
        let mut objectives = Vec::new();
        for (words, maximize) in [(&spec.get_ref().minimize, false), (&spec.get_ref().maximize, true)] {
            for word in words {
                objectives.push(self.objective(word, maximize)?);
            }
        }
        if objectives.is_empty() {
            return Err(self.source.error(
                spec.span(),
                "`pareto` has no objective",
                "expected `minimize` or `maximize`",
            ));
        }
        let prune = spec.get_ref().prune.as_ref();
        if let Some(prune) = prune.filter(|prune| *prune.get_ref()) {
            let known = |objective: &Objective| {
                let Some(metric) = objective.column.checked_sub(self.axes) else { return true };
                self.metrics[metric].is_input()
                    || (self.metrics[metric].is_bounded()
                        && !objective.maximize
                        && !self.metrics[metric].needs().is_empty()
                        && self.metrics[metric].needs().len() == 1)
            };
            if let Some(objective) = objectives.iter().find(|objective| !known(objective)) {
                let title = format!(
                    "no lower bound is known of `{}`, so nothing can be pruned by it",
                    self.columns[objective.column]
                );
                return Err(self.source.error(
                    prune.span(),
                    title,
                    "expected objectives among axes, inputs, cycles and time",
                ));
            }
        }
        let per = spec.get_ref().per.as_ref().map(|word| self.axis(word)).transpose()?;
        let prune = prune.filter(|prune| *prune.get_ref());
        if let (Some(prune), Some(_)) = (prune, per) {
            let title = "`prune` compares every point with every other, and `per` asks for several fronts";
            return Err(self.source.error(prune.span(), title, "expected one of them alone"));
        }
        Ok(Some(Pareto { objectives, per, prune: prune.is_some() }))
    }

    pub(super) fn best(&self, spec: &Spanned<Table<BestSpec>>) -> Result<Best, Diagnostic> {
        let best = spec.get_ref();
        let objective = match (&best.minimize, &best.maximize) {
            (Some(word), None) => self.objective(word, false)?,
            (None, Some(word)) => self.objective(word, true)?,
            _ => {
                let title = "`best` needs `minimize` or `maximize`";
                return Err(self.source.error(spec.span(), title, "expected exactly one of them"));
            }
        };
        let subject_to = match &best.subject_to {
            None => None,
            Some(spec) => {
                let constraint = self.constraint(spec)?;
                for (name, span) in constraint.names() {
                    if !self.columns.iter().any(|column| column == name) {
                        return Err(unknown(self.source, inside(spec, &span), "axis or metric", name, self.columns));
                    }
                }
                Some((spec.get_ref().clone(), constraint))
            }
        };
        let per = best.per.as_ref().map(|word| self.axis(word)).transpose()?;
        Ok(Best { objective, subject_to, per, over: self.over(best, per)? })
    }

    /// The column of an axis.
    fn axis(&self, word: &Spanned<String>) -> Result<usize, Diagnostic> {
        let axes = &self.columns[..self.axes];
        axes.iter()
            .position(|column| column == word.get_ref())
            .ok_or_else(|| unknown(self.source, word.span(), "axis", word.get_ref(), axes))
    }

    fn over(&self, best: &BestSpec, per: Option<usize>) -> Result<Option<Over>, Diagnostic> {
        let Some(word) = &best.over else {
            if let Some(span) = best.mean.as_ref().map(Spanned::span).or(best.weights.as_ref().map(Spanned::span)) {
                return Err(self.source.error(span, "`mean` and `weights` need `over`", "over which axis?"));
            }
            return Ok(None);
        };
        let column = self.axis(word)?;
        if per == Some(column) {
            return Err(self.source.error(word.span(), "`over` and `per` name the same axis", "expected another"));
        }
        let mean = match &best.mean {
            None => Mean::Geometric,
            Some(word) => Mean::ALL[self.source.keyword("best.mean", word, &Mean::ALL.map(Mean::name))?],
        };
        let mut weights = BTreeMap::new();
        for (value, weight) in best.weights.iter().flat_map(Spanned::get_ref) {
            weights.insert(value.clone(), self.source.real("best.weights", weight, 1e-9..=1e9)?);
        }
        Ok(Some(Over { column, mean, weights }))
    }

    pub(super) fn plot(&self, spec: &PlotSpec) -> Result<Plot, Diagnostic> {
        let kind = self.source.keyword("plots.kind", &spec.kind, &["lines", "heat", "pareto"])?;
        let (x, y) = (self.column(&spec.x)?, self.column(&spec.y)?);
        let series = spec.series.as_ref().map(|word| self.column(word)).transpose()?;
        let title = if let Some(title) = &spec.title {
            self.source.name("plots.title", title)?
        } else {
            let word = |column: usize| name_in_words(&self.columns[column]);
            // A heat map shows its value by colour, over both axes.
            match spec.value.as_ref().map(|word| self.column(word)).transpose()? {
                Some(value) => sentence(&format!("{} over {} and {}", word(value), word(x), word(y))),
                None => sentence(&format!("{} over {}", word(y), word(x))),
            }
        };
        if let Some(word) = spec.value.as_ref().filter(|_| kind != 1).or(spec.series.as_ref().filter(|_| kind == 1)) {
            return Err(self.source.error(word.span(), "this kind of plot has no such field", "not used"));
        }
        Ok(match kind {
            0 => Plot::Lines { title, x, y, series },
            2 => Plot::Pareto { title, x, y, series },
            _ => {
                let Some(value) = &spec.value else {
                    let title = "`plots.value` is missing: a heat map shows it as colour";
                    return Err(self.source.error(spec.kind.span(), title, "needs `value`"));
                };
                Plot::Heat { title, x, y, value: self.column(value)? }
            }
        })
    }
}

/// Bytes of the file that are bytes of a string in it, if the string is written plainly.
fn inside(spec: &Spanned<String>, span: &Range<usize>) -> Range<usize> {
    let whole = spec.span();
    if whole.len() == spec.get_ref().len() + 2 {
        return whole.start + 1 + span.start..whole.start + 1 + span.end;
    }
    whole
}
