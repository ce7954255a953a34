//! `--set PATH=VALUE` arguments.

use std::ops::Range;

use super::argument::{equals_outside_quotes, origin as argument_origin};
use super::range::SetRange;
use super::suffix;
use crate::diagnostics::{Diagnostic, Origin};

/// The input that an override changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Root {
    /// The chip file.
    Arch,
    /// The workload file.
    Workload,
}

/// One `--set` argument: a field of an input and the value it takes instead of the file's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    raw: String,
    root: Root,
    path: Vec<String>,
    value: String,
    equals: usize,
}

impl Override {
    /// Parses an argument such as `arch.pmu.capacity_bytes=1048576` or `workload.name=test`.
    ///
    /// The value is TOML, in which numbers may have suffixes (`64Ki`, `2M`); a single word that is not TOML is taken as a string.
    pub fn parse(argument: &str) -> Result<Self, Diagnostic> {
        let fail = |span: Range<usize>, title: &str, label: &str| {
            Err(Diagnostic::new(title).with_origin(argument_origin(argument, span, label)))
        };
        let Some(equals) = equals_outside_quotes(argument) else {
            return fail(0..argument.len(), "a `--set` argument needs `=`", "expected PATH=VALUE");
        };
        let keys = match toml_edit::Key::parse(&argument[..equals]) {
            Ok(keys) => keys,
            Err(error) => {
                let title = format!("the path of a `--set` argument cannot be read: {}", error.message());
                return fail(0..equals, &title, "expected keys joined by `.`");
            }
        };
        let mut path = keys.iter().map(|key| key.get().to_owned());
        let root = match path.next().as_deref() {
            Some("arch") => Root::Arch,
            Some("workload") => Root::Workload,
            _ => return fail(0..equals, "a `--set` path starts with `arch.` or `workload.`", "neither of them"),
        };
        let path: Vec<String> = path.collect();
        if path.is_empty() {
            return fail(0..equals, "a `--set` path must name a field", "expected a field after the root");
        }
        if SetRange::parse(argument)?.is_some() {
            let error = fail(
                equals + 1..argument.len(),
                "a range of values stands where one value is expected",
                "several values",
            );
            return error.map_err(|error| {
                error.with_help("give one value; `rdusim compare` and `run` take ranges, as study files do")
            });
        }
        let text = suffix::expanded(argument[equals + 1..].trim());
        let text = text.as_ref();
        let value = match text.parse::<toml_edit::Value>() {
            Ok(mut value) => {
                value.decor_mut().clear();
                value.to_string()
            }
            Err(_) if is_whole_number(text) => {
                let title = "the value of a `--set` argument is too large: whole numbers go up to 9223372036854775807";
                return fail(equals + 1..argument.len(), title, "too large for a whole number");
            }
            Err(_) if is_bare_word(text) => toml_edit::Value::from(text).to_string(),
            Err(error) => {
                let title = format!("the value of a `--set` argument cannot be read: {}", error.message());
                return fail(equals + 1..argument.len(), &title, "expected a TOML value or one bare word");
            }
        };
        Ok(Self { raw: argument.to_owned(), root, path, value, equals })
    }

    /// The override of a field by its keys; `value` is TOML.
    ///
    /// # Errors
    /// As [`Override::parse`], of the argument that says the same.
    pub fn of(root: Root, keys: &[&str], value: &str) -> Result<Self, Diagnostic> {
        let root = match root {
            Root::Arch => "arch",
            Root::Workload => "workload",
        };
        let keys = keys.iter().map(|&key| toml_edit::Key::new(key).to_string());
        let path: Vec<String> = std::iter::once(root.to_owned()).chain(keys).collect();
        Self::parse(&format!("{}={value}", path.join(".")))
    }

    /// The argument as typed.
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// The input it changes.
    pub fn root(&self) -> Root {
        self.root
    }

    /// The keys below the root.
    pub fn path(&self) -> &[String] {
        &self.path
    }

    /// The value, as TOML text.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// The argument as the origin of an error in its path.
    pub(crate) fn path_origin(&self, label: &str) -> Origin {
        argument_origin(&self.raw, 0..self.equals, label)
    }

    /// The argument as the origin of an error in its value.
    pub(crate) fn value_origin(&self, label: &str) -> Origin {
        argument_origin(&self.raw, self.equals + 1..self.raw.len(), label)
    }
}

impl std::str::FromStr for Override {
    type Err = Diagnostic;

    fn from_str(argument: &str) -> Result<Self, Diagnostic> {
        Self::parse(argument)
    }
}

/// More digits, perhaps with a sign, than TOML takes for a whole number: never meant as a word.
fn is_whole_number(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    digits.len() > 18 && digits.chars().all(|c| c.is_ascii_digit() || c == '_')
}

fn is_bare_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control() || "\"'[]{},=#".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(argument: &str) -> (Root, String, String) {
        let set = Override::parse(argument).expect("parses");
        (set.root(), set.path().join("|"), set.value().to_owned())
    }

    fn refused(argument: &str) -> String {
        Override::parse(argument).expect_err("is refused").render(false)
    }

    #[test]
    fn a_number_beyond_toml_is_not_a_word() {
        let text = refused("workload.dims.tokens=9223372036854775808");
        assert!(text.contains("too large") && text.contains("9223372036854775807"), "{text}");
    }

    #[test]
    fn paths_and_values() {
        assert_eq!(parsed("arch.pmu.banks=8"), (Root::Arch, "pmu|banks".into(), "8".into()));
        assert_eq!(parsed("workload.dtype=fp32"), (Root::Workload, "dtype".into(), "\"fp32\"".into()));
        assert_eq!(parsed("workload.tensors.\"a = b\".rows= [1, 2] ").1, "tensors|a = b|rows");
        assert_eq!(parsed("arch.x=true").2, "true");
        assert_eq!(parsed("arch.pmu.capacity_bytes=64Ki").2, "65536");
        assert_eq!(parsed("workload.name='64Ki'").2, "'64Ki'");
        assert_eq!(parsed("arch.x='8'").2, "'8'");
    }

    #[test]
    fn refusals_show_the_argument() {
        insta::assert_snapshot!(refused("chip.pmu.banks=8"), @r#"
error: a `--set` path starts with `arch.` or `workload.`
 --> command line:1:7
  |
1 | --set chip.pmu.banks=8
  |       ^^^^^^^^^^^^^^ neither of them
"#);
        insta::assert_snapshot!(refused("arch.pmu.banks"), @r#"
error: a `--set` argument needs `=`
 --> command line:1:7
  |
1 | --set arch.pmu.banks
  |       ^^^^^^^^^^^^^^ expected PATH=VALUE
"#);
        insta::assert_snapshot!(refused("arch=3"), @r#"
error: a `--set` path must name a field
 --> command line:1:7
  |
1 | --set arch=3
  |       ^^^^ expected a field after the root
"#);
        let range = refused("arch.pmu.banks=8..32*2");
        assert!(range.contains("where one value is expected") && range.contains("`rdusim compare`"), "{range}");
        insta::assert_snapshot!(refused("arch.pmu..banks=3"), @r#"
error: the path of a `--set` argument cannot be read: unquoted keys cannot be empty, expected letters, numbers, `-`, `_`
 --> command line:1:7
  |
1 | --set arch.pmu..banks=3
  |       ^^^^^^^^^^^^^^^ expected keys joined by `.`
"#);
        insta::assert_snapshot!(refused("arch.pmu.banks=[1"), @r#"
error: the value of a `--set` argument cannot be read: unclosed array, expected `]`
 --> command line:1:22
  |
1 | --set arch.pmu.banks=[1
  |                      ^^ expected a TOML value or one bare word
"#);
        insta::assert_snapshot!(refused("arch.pmu.banks="), @r#"
error: the value of a `--set` argument cannot be read: string values must be quoted, expected literal string
 --> command line:1:22
  |
1 | --set arch.pmu.banks=
  |                      ^ expected a TOML value or one bare word
"#);
    }
}
