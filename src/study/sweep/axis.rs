//! Axes: the fields that a study varies, and the values they take.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Spanned;

use super::spec::{AxisSpec, PathSpec, RangeSpec};
use crate::diagnostics::{self, Diagnostic};
use crate::input::{Override, Source, Table, referenced};

/// Most values of one axis.
pub(super) const MOST_VALUES: u64 = 1_000_000;

/// A field, or several that take the same value, and its values.
#[derive(Debug)]
pub(super) struct Axis {
    /// Paths as in the file.
    pub(super) paths: Vec<String>,
    /// Where the first is, for errors.
    pub(super) span: Range<usize>,
    pub(super) values: Values,
}

/// What an axis takes.
#[derive(Debug)]
pub(super) enum Values {
    /// These, in order.
    Listed(Vec<Arc<Value>>),
    /// Anything between two numbers: for random designs.
    Between { from: f64, to: f64, whole: bool, logarithmic: bool },
}

/// A value of an axis.
#[derive(Debug)]
pub(super) struct Value {
    /// As in CSV: a word without its quotes, else TOML.
    pub(super) cell: String,
    /// What it does.
    pub(super) change: Change,
}

/// What a value of an axis changes.
#[derive(Debug)]
pub(super) enum Change {
    /// Fields of chip and workload.
    Fields(Vec<Override>),
    /// The whole chip file.
    Arch(PathBuf),
    /// The whole workload file.
    Workload(PathBuf),
    /// The seed of masks.
    Seed(u64),
}

impl Value {
    /// The value as a number, if it is one.
    pub(super) fn number(&self) -> Option<f64> {
        self.cell.parse().ok()
    }
}

impl Axis {
    /// Checks an axis; `sampled` if the design draws values by itself.
    pub(super) fn check(
        source: &Source,
        spec: &Spanned<Table<AxisSpec>>,
        study: &Path,
        sampled: bool,
    ) -> Result<Self, Diagnostic> {
        let span = spec.get_ref().path.span();
        let paths = match spec.get_ref().path.get_ref() {
            PathSpec::One(path) => vec![path.clone()],
            PathSpec::Several(paths) if paths.is_empty() => {
                return Err(source.error(span, "`axes.path` is an empty list", "expected a path"));
            }
            PathSpec::Several(paths) => paths.clone(),
        };
        let mut axis = Self { paths, span, values: Values::Listed(Vec::new()) };
        let maker = Maker { source, paths: &axis.paths, study };
        let spec = spec.get_ref();
        axis.values = match (&spec.values, &spec.range, &spec.log_range) {
            (Some(values), None, None) => {
                if values.get_ref().is_empty() {
                    return Err(source.error(values.span(), "`axes.values` is empty", "expected at least one value"));
                }
                let made = values.get_ref().iter().map(|v| maker.value(v.get_ref(), v.span()));
                Values::Listed(made.collect::<Result<_, _>>()?)
            }
            (None, Some(range), None) => range_values(&maker, range, false, sampled)?,
            (None, None, Some(range)) => range_values(&maker, range, true, sampled)?,
            _ => {
                let title = format!("the axis `{}` needs one of `values`, `range` and `log_range`", axis.paths[0]);
                return Err(source.error(axis.span, title, "expected exactly one of them"));
            }
        };
        Ok(axis)
    }

    /// Values in the list; `None` if the axis is a range without steps.
    pub(super) fn len(&self) -> Option<u64> {
        match &self.values {
            Values::Listed(values) => Some(values.len() as u64),
            Values::Between { .. } => None,
        }
    }

    /// The values in the list; none if the axis is a range without steps.
    pub(super) fn listed(&self) -> &[Arc<Value>] {
        match &self.values {
            Values::Listed(values) => values,
            Values::Between { .. } => &[],
        }
    }

    /// The value at a place from 0 to below 1.
    pub(super) fn at(&self, place: f64) -> Result<Arc<Value>, Diagnostic> {
        match &self.values {
            Values::Listed(values) => {
                Ok(Arc::clone(&values[((place * values.len() as f64) as usize).min(values.len() - 1)]))
            }
            &Values::Between { from, to, whole, logarithmic } => {
                let upper = if whole { to + 1.0 } else { to };
                let value = if logarithmic { from * (upper / from).powf(place) } else { from + (upper - from) * place };
                let text = if whole { format!("{}", value.floor().min(to)) } else { format!("{value:?}") };
                Ok(Arc::new(value_of(&self.paths, &text)?))
            }
        }
    }
}

/// A value of field axes from TOML text.
fn value_of(paths: &[String], text: &str) -> Result<Value, Diagnostic> {
    if paths == ["run.seed"] {
        let seed = text.parse().map_err(|_| Diagnostic::new(format!("`run.seed` cannot be {text}")))?;
        return Ok(Value { cell: text.to_owned(), change: Change::Seed(seed) });
    }
    let sets = paths.iter().map(|path| Override::parse(&format!("{path}={text}"))).collect::<Result<_, _>>()?;
    Ok(Value { cell: text.to_owned(), change: Change::Fields(sets) })
}

struct Maker<'a> {
    source: &'a Source,
    paths: &'a [String],
    study: &'a Path,
}

impl Maker<'_> {
    fn value(&self, value: &toml::Value, span: Range<usize>) -> Result<Arc<Value>, Diagnostic> {
        let cell = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let file = |make: fn(PathBuf) -> Change| match value.as_str() {
            Some(path) => Ok(Arc::new(Value { cell: cell.clone(), change: make(referenced(self.study, path)) })),
            None => Err(self.source.error(span.clone(), "a file's name must be a string", "expected a path in quotes")),
        };
        match self.paths {
            [one] if one == "arch" => return file(Change::Arch),
            [one] if one == "workload" => return file(Change::Workload),
            _ => {}
        }
        let text = value.to_string();
        let made = value_of(self.paths, &text).map_err(|error| self.source.restated(span, &error))?;
        Ok(Arc::new(Value { cell, ..made }))
    }
}

fn range_values(
    maker: &Maker<'_>,
    spec: &Spanned<Table<RangeSpec>>,
    logarithmic: bool,
    sampled: bool,
) -> Result<Values, Diagnostic> {
    let source = maker.source;
    let name = if logarithmic { "log_range" } else { "range" };
    let range = spec.get_ref();
    let (from, from_whole) = number(source, &format!("{name}.from"), &range.from)?;
    let (to, to_whole) = number(source, &format!("{name}.to"), &range.to)?;
    let whole = from_whole && to_whole;
    if from > to || (logarithmic && from <= 0.0) {
        let wanted = if logarithmic { "above 0 and at most `to`" } else { "at most `to`" };
        let title = format!(
            "`{name}.from` must be {wanted}, found {} and {}",
            diagnostics::number(from),
            diagnostics::number(to)
        );
        return Err(source.error(range.from.span(), title, format!("must be {wanted}")));
    }
    let (steps, other) = if logarithmic { (&range.factor, &range.step) } else { (&range.step, &range.factor) };
    let step_name = if logarithmic { "factor" } else { "step" };
    if let Some(other) = other {
        let title = format!("`{name}` has a `{step_name}` or a `count`");
        return Err(source.error(other.span(), title, "belongs to the other kind of range"));
    }
    let numbers: Vec<f64> = match (steps, &range.count) {
        (None, None) if sampled => return Ok(Values::Between { from, to, whole, logarithmic }),
        (Some(step), None) => {
            let low = if logarithmic { 1.0 } else { 0.0 };
            let step_value = step.get_ref().0;
            if !(step_value > low && step_value.is_finite()) {
                let title =
                    format!("`{name}.{step_name}` must be above {low}, found {}", diagnostics::number(step_value));
                return Err(source.error(step.span(), title, format!("must be above {low}")));
            }
            // A last value that rounding put a little beyond the end is still in.
            let all = if logarithmic { (to / from).ln() / step_value.ln() } else { (to - from) / step_value };
            let last = (all + 1e-9).floor();
            if last >= MOST_VALUES as f64 {
                return Err(source.error(
                    step.span(),
                    format!("`{name}` has more than {MOST_VALUES} values"),
                    "too small",
                ));
            }
            let at = |i: f64| if logarithmic { from * step_value.powf(i) } else { from + step_value * i };
            (0..=last as u64).map(|i| at(i as f64)).collect()
        }
        (None, Some(count)) => {
            let count = source.count(&format!("{name}.count"), count, 2..=MOST_VALUES)?;
            let part = |i: u64| i as f64 / (count - 1) as f64;
            let at = |i| if logarithmic { from * (to / from).powf(part(i)) } else { from + (to - from) * part(i) };
            (0..count).map(at).collect()
        }
        _ => {
            let title = format!("`{name}` needs `{step_name}` or `count`");
            return Err(source.error(spec.span(), title, "expected exactly one of them"));
        }
    };
    let mut values: Vec<Arc<Value>> = Vec::new();
    for number in numbers {
        let text = if whole { format!("{}", number.round()) } else { format!("{number:?}") };
        if values.last().is_none_or(|last| last.cell != text) {
            let made = value_of(maker.paths, &text).map_err(|error| source.restated(spec.span(), &error))?;
            values.push(Arc::new(made));
        }
    }
    Ok(Values::Listed(values))
}

/// A finite number, and whether it is written as a whole one.
fn number(source: &Source, field: &str, value: &Spanned<toml::Value>) -> Result<(f64, bool), Diagnostic> {
    match value.get_ref() {
        toml::Value::Integer(number) => Ok((*number as f64, true)),
        toml::Value::Float(number) if number.is_finite() => Ok((*number, false)),
        other => {
            Err(source.error(value.span(), format!("`{field}` must be a number, found {other}"), "expected a number"))
        }
    }
}
