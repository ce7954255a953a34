//! Several values of one field in a `--set` argument: `PATH=FROM..TO*FACTOR`, `PATH=FROM..TO+STEP`, `PATH=A,B,C`.

use std::ops::Range;

use super::argument::{equals_outside_quotes, origin as argument_origin};
use super::suffix;
use crate::diagnostics::Diagnostic;

/// Most values of a range: a larger study has a file.
const MOST_VALUES: f64 = 10_000.0;

/// A field and the values that it takes one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct SetRange {
    /// The path as typed.
    pub path: String,
    /// What is set in its place, one study point after the other.
    pub values: RangeValues,
}

/// Values of a range; numbers as TOML, so that whole ones stay whole.
#[derive(Debug, Clone, PartialEq)]
pub enum RangeValues {
    /// These, each as it stands in a `--set` of its own.
    Listed(Vec<String>),
    /// From one number to another by steps.
    Linear {
        /// The value of the first point.
        from: String,
        /// The bound that no value exceeds; the last value where the steps end there.
        to: String,
        /// What each value has more than the one before; above 0.
        step: String,
    },
    /// From one number to another, each so many times the one before.
    Geometric {
        /// The value of the first point, above 0.
        from: String,
        /// The bound that no value exceeds; the last value where the factors end there.
        to: String,
        /// How many times the one before each value is; above 1.
        factor: String,
    },
}

impl SetRange {
    /// The range of an argument; nothing of an argument with one value.
    ///
    /// # Errors
    /// What of a range is no number, has no end, or has too many values.
    pub fn parse(argument: &str) -> Result<Option<Self>, Diagnostic> {
        let Some(equals) = equals_outside_quotes(argument) else { return Ok(None) };
        let (path, text) = (argument[..equals].trim().to_owned(), argument[equals + 1..].trim());
        // A TOML value is one value, whatever stands in it.
        if suffix::expanded(text).parse::<toml_edit::Value>().is_ok() {
            return Ok(None);
        }
        if let Some((from, rest)) = text.split_once("..")
            && let Some(from) = number(from)
        {
            let values = Checker { argument, equals }.steps(from, rest)?;
            return Ok(Some(Self { path, values }));
        }
        let listed = split(text);
        if listed.len() < 2 {
            return Ok(None);
        }
        if listed.iter().any(|value| value.is_empty()) {
            let error = Checker { argument, equals }
                .refused("a list of a `--set` argument has an empty value", "expected A,B,C");
            return Err(error.with_help("leave out the comma that has no value beside it"));
        }
        let values = RangeValues::Listed(listed.into_iter().map(str::to_owned).collect());
        Ok(Some(Self { path, values }))
    }
}

struct Checker<'a> {
    argument: &'a str,
    equals: usize,
}

impl Checker<'_> {
    fn refused(&self, title: &str, label: &str) -> Diagnostic {
        let span: Range<usize> = self.equals + 1..self.argument.len();
        Diagnostic::new(title).with_origin(argument_origin(self.argument, span, label))
    }

    /// The values from a first number on; `rest` is what stands behind the dots.
    fn steps(&self, from: String, rest: &str) -> Result<RangeValues, Diagnostic> {
        let expected = "expected FROM..TO*FACTOR or FROM..TO+STEP";
        // A plus behind an `e` belongs to an exponent, and one at the start is a sign.
        let is_sign = |at: usize| at == 0 || rest[..at].ends_with(['e', 'E']);
        let operator = rest.char_indices().find(|&(at, c)| c == '*' || (c == '+' && !is_sign(at)));
        let Some((at, operator)) = operator else {
            let error = self.refused("the range of a `--set` argument has no step", expected);
            return Err(error.with_help("append `*2` for twice as much each time, or `+1` for one more each time"));
        };
        let (to, step) = (&rest[..at], &rest[at + 1..]);
        let parsed = |what: &str, text: &str| {
            number(text).ok_or_else(|| {
                let title = format!("the {what} of a range must be a number, found `{}`", text.trim());
                self.refused(&title, expected).with_help("numbers may end in Ki, Mi, Gi, k, M or G")
            })
        };
        let (to, step) = (parsed("end", to)?, parsed(if operator == '*' { "factor" } else { "step" }, step)?);
        let value = |text: &str| text.replace('_', "").parse::<f64>().unwrap_or(f64::NAN);
        let [first, last, each] = [&from, &to, &step].map(|text| value(text));
        let is_rising = first.is_finite() && last.is_finite() && first < last;
        if !is_rising || (operator == '*' && first <= 0.0) {
            let wanted = if operator == '*' { "above 0 and below" } else { "below" };
            let title = format!("a range must start {wanted} its end, found {from} and {to}");
            return Err(self.refused(&title, expected).with_help("exchange the two, or give one value without `..`"));
        }
        let least = if operator == '*' { 1.0 } else { 0.0 };
        if !(each.is_finite() && each > least) {
            let what = if operator == '*' { "factor" } else { "step" };
            let title = format!("the {what} of a range must be above {least}, found {step}");
            return Err(self.refused(&title, expected).with_help(format!("give a {what} above {least}")));
        }
        let steps = if operator == '*' { (last / first).ln() / each.ln() } else { (last - first) / each };
        if steps >= MOST_VALUES {
            let title = format!("the range of a `--set` argument has more than {MOST_VALUES} values");
            return Err(self
                .refused(&title, "too many")
                .with_help("take larger steps, or write a study file (docs/studies.md)"));
        }
        Ok(if operator == '*' {
            RangeValues::Geometric { from, to, factor: step }
        } else {
            RangeValues::Linear { from, to, step }
        })
    }
}

/// A number as TOML, its suffix written out.
fn number(text: &str) -> Option<String> {
    let text = suffix::number(text.trim()).unwrap_or_else(|| text.trim().to_owned());
    match text.parse::<toml_edit::Value>() {
        Ok(toml_edit::Value::Integer(_) | toml_edit::Value::Float(_)) => Some(text),
        _ => None,
    }
}

/// Parts of a text between commas that stand in no quotes and no brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth, mut quote) = (Vec::new(), 0, 0_i32, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth -= 1,
            (None, ',') if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(argument: &str) -> Option<RangeValues> {
        SetRange::parse(argument).unwrap().map(|range| range.values)
    }

    fn refused(argument: &str) -> String {
        SetRange::parse(argument).unwrap_err().render(false)
    }

    #[test]
    fn ranges_have_suffixes() {
        let text = |text: &str| text.to_owned();
        let geometric = RangeValues::Geometric { from: text("65536"), to: text("1048576"), factor: text("2") };
        assert_eq!(values("arch.pmu.capacity_bytes=64Ki..1Mi*2"), Some(geometric));
        let linear = RangeValues::Linear { from: text("1.5"), to: text("1e+2"), step: text("0.5") };
        assert_eq!(values("arch.x=1.5..1e+2+0.5"), Some(linear));
        let listed = RangeValues::Listed(["64Ki", "'a,b'", "[1, 2]"].map(str::to_owned).to_vec());
        assert_eq!(values("arch.x=64Ki, 'a,b', [1, 2]"), Some(listed));
    }

    #[test]
    fn one_value_is_no_range() {
        for argument in
            ["arch.x=8", "arch.x=[1, 2]", "arch.x={a = 1, b = 2}", "arch.x='1..2*2'", "workload.m=../a/b.npy", "arch.x"]
        {
            assert_eq!(values(argument), None, "{argument}");
        }
    }

    #[test]
    fn refusals_say_what_to_change() {
        for (argument, wanted) in [
            ("arch.x=1..8", "append `*2`"),
            ("arch.x=8..1*2", "found 8 and 1"),
            ("arch.x=0..8*2", "above 0 and below its end"),
            ("arch.x=1..8*1", "above 1, found 1"),
            ("arch.x=1..8+0", "above 0, found 0"),
            ("arch.x=1..eight*2", "found `eight`"),
            ("arch.x=1..1G+1", "more than 10000 values"),
            ("arch.x=1,,2", "empty value"),
        ] {
            let text = refused(argument);
            assert!(text.contains(wanted) && text.contains("--set arch.x="), "{argument}: {text}");
        }
    }
}
