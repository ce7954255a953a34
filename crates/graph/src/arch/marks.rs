//! Where the values of a chip file come from, by the comments of the file, and the ranges of those that are uncertain.
//!
//! A comment governs the fields that follow it up to the next comment or empty line, and its own line; one above a
//! table's header governs the fields of that table that have none. A field is assumed if its comment has the word. A field's
//! range is that of the table `[ranges]`, or else from half of an assumed value to twice.

use std::collections::BTreeMap;

use toml::Spanned;
use toml_edit::{Document, Item, TableLike, Value};

use super::spec::Named;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::{Real, Source};

/// The word that marks a value without a source.
const MARK: &str = "assumed";

/// The table of ranges.
const RANGES: &str = "ranges";

/// Fields of a memory tier that are 0 without a part.
const ZERO_IF_LEFT_OUT: [&str; 2] = ["turnaround_ns", "non_sequential_ns"];

/// Numbers that one comment governs and that are uncertain together.
#[derive(Debug, Clone, PartialEq)]
pub struct Assumption {
    /// The fields.
    pub fields: Vec<UncertainField>,
}

/// A field whose value is uncertain.
#[derive(Debug, Clone, PartialEq)]
pub struct UncertainField {
    /// Path below the root, as keys.
    pub path: Vec<String>,
    /// Its value in the file.
    pub number: Number,
    /// Its range, if the file gives one.
    pub range: Option<(f64, f64)>,
}

/// A number of a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// Whole.
    Whole(i64),
    /// With a fraction, or written so.
    Real(f64),
}

impl Number {
    fn real(self) -> f64 {
        match self {
            Self::Whole(n) => n as f64,
            Self::Real(x) => x,
        }
    }

    fn toml(self) -> String {
        match self {
            Self::Whole(n) => n.to_string(),
            Self::Real(x) => format!("{x:?}"),
        }
    }

    fn half(self) -> Self {
        match self {
            Self::Whole(n) => Self::Whole(n / 2 + n % 2),
            Self::Real(x) => Self::Real(x / 2.0),
        }
    }

    fn twice(self) -> Self {
        match self {
            Self::Whole(n) => Self::Whole(n.checked_mul(2).unwrap_or(n)),
            Self::Real(x) => Self::Real(x * 2.0),
        }
    }

    /// `value` as a number of the same kind.
    fn like(self, value: f64) -> Self {
        match self {
            Self::Whole(_) => Self::Whole(value.round() as i64),
            Self::Real(_) => Self::Real(value),
        }
    }
}

impl UncertainField {
    /// The path as it is written in overrides.
    pub fn name(&self) -> String {
        self.path.join(".")
    }

    /// Whether it is a whole number to which the file gives a range.
    pub fn has_whole_range(&self) -> bool {
        self.range.is_some() && matches!(self.number, Number::Whole(_))
    }

    fn ends(&self) -> (Number, Number) {
        match self.range {
            Some((least, most)) => (self.number.like(least), self.number.like(most)),
            None => (self.number.half(), self.number.twice()),
        }
    }

    /// The upper or the lower end of its range as TOML; `None` if that is the value it has.
    pub fn end(&self, upper: bool) -> Option<String> {
        let (least, most) = self.ends();
        Some(if upper { most } else { least }).filter(|&end| end != self.number).map(Number::toml)
    }

    /// The value at a quantile from 0 to 1 as TOML. The file's value is the median; below and above it the logarithm is uniform up to
    /// the ends (the value itself, where an end is 0). A whole number without a range of its own is one of three: sizes and counts
    /// of hardware go by powers of two.
    pub fn at(&self, quantile: f64) -> String {
        let (least, most) = self.ends();
        if let (Number::Whole(_), None) = (self.number, self.range) {
            let three = [least, self.number, most];
            return three[((quantile * 3.0) as usize).min(2)].toml();
        }
        let value = self.number.real();
        let (from, to, part) = if quantile < 0.5 {
            (least.real(), value, quantile * 2.0)
        } else {
            (value, most.real(), quantile * 2.0 - 1.0)
        };
        let between = if from > 0.0 && to > 0.0 { from * (to / from).powf(part) } else { from + (to - from) * part };
        self.number.like(between).toml()
    }
}

/// What a file leaves open: what can be varied, and the fields that cannot.
#[derive(Debug, Default, PartialEq)]
pub struct Assumptions {
    /// Groups of numbers, in the file's order.
    pub varied: Vec<Assumption>,
    /// Assumed fields that are no numbers, or that give a shape whose size is published.
    pub fixed: Vec<String>,
}

/// Finds the uncertain fields of a chip file: those that are assumed, and those with a range.
pub fn assumptions(text: &str) -> Assumptions {
    let Ok(document) = Document::parse(text) else { return Assumptions::default() };
    let mut finder = Finder::new(text);
    finder.ranges = ranges_of(document.as_table());
    finder.table(document.as_table(), &mut Vec::new(), None);
    finder.left_out(document.as_table(), false);
    finder.found.sort_by_key(|found| found.at);
    let mut result = Assumptions::default();
    let mut last_comment = None;
    for found in finder.found {
        let Some(number) = found.number.filter(|_| !is_shape(&found.path)) else {
            result.fixed.push(found.path.join("."));
            continue;
        };
        let field = UncertainField { path: found.path, number, range: found.range };
        match result.varied.last_mut().filter(|_| found.comment.is_some() && last_comment == Some(found.comment)) {
            Some(group) => group.fields.push(field),
            None => result.varied.push(Assumption { fields: vec![field] }),
        }
        last_comment = Some(found.comment);
    }
    result
}

/// Paths of fields that a file calls assumed.
pub(super) fn assumed(text: &str) -> Vec<String> {
    let found = assumptions(text);
    let fields = found.varied.iter().flat_map(|group| &group.fields).map(UncertainField::name);
    fields.chain(found.fixed).collect()
}

fn ranges_of(document: &dyn TableLike) -> BTreeMap<String, (f64, f64)> {
    let Some(table) = document.get(RANGES).and_then(Item::as_table_like) else { return BTreeMap::new() };
    let number = |value: &Value| value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
    let range = |(path, item): (&str, &Item)| {
        let array = item.as_array()?;
        let ends = array.get(0).and_then(number).zip(array.get(1).and_then(number))?;
        Some((path.to_owned(), ends))
    };
    table.iter().filter_map(range).collect()
}

/// Checks the table `[ranges]`: two ends in order, for numbers that the file has.
pub(super) fn check_ranges(
    source: &Source,
    spec: Option<&Spanned<Named<Vec<Spanned<Real>>>>>,
) -> Result<(), Diagnostic> {
    let Some(spec) = spec else { return Ok(()) };
    let Ok(document) = Document::parse(source.text()) else { return Ok(()) };
    let mut finder = Finder::new(source.text());
    // With a range for each, every number is found.
    finder.ranges = spec.get_ref().keys().map(|path| (path.get_ref().clone(), (0.0, 0.0))).collect();
    finder.table(document.as_table(), &mut Vec::new(), None);
    finder.left_out(document.as_table(), true);
    let mut numbers: Vec<String> =
        finder.found.iter().filter(|found| found.number.is_some()).map(|found| found.path.join(".")).collect();
    numbers.sort();
    for (path, ends) in spec.get_ref() {
        let name = path.get_ref();
        if numbers.binary_search(name).is_err() {
            let title = format!("`{RANGES}` has {name:?}, which is no number of this file");
            return Err(source
                .error(path.span(), title, "expected the path of a field with a number")
                .with_help("write the path as in overrides: \"memory.ddr.latency_ns\" = [50, 200]"));
        }
        let [least, most] = &ends.get_ref()[..] else {
            let title = format!("the range of {name:?} has {} numbers, expected 2", ends.get_ref().len());
            return Err(source.error(ends.span(), title, "expected [least, most]"));
        };
        let (Real(low), Real(high)) = (*least.get_ref(), *most.get_ref());
        if !(low.is_finite() && high.is_finite() && low >= 0.0 && low <= high) {
            let title = format!("the range of {name:?} must be from 0 up and in order, found [{low}, {high}]");
            return Err(source.error(ends.span(), title, "expected [least, most]"));
        }
    }
    Ok(())
}

/// Sides of the grid and places along its edges: their sizes belong together, and no single one of them is twice
/// another without changing counts that are known.
fn is_shape(path: &[String]) -> bool {
    let names: Vec<&str> = path.iter().map(String::as_str).collect();
    match names[..] {
        ["grid", key] => key != "agcus",
        ["grid", "agcus", _, key] => key != "ags",
        _ => false,
    }
}

/// How many fields of a chip file have which kind of source, by their governing comments. A comment with several marks counts as
/// the weakest of them, in the order of the fields here from the last to the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sources {
    /// The vendor's or authors' own text: [P].
    pub published: u64,
    /// A secondary page: [S].
    pub secondary: u64,
    /// By arithmetic from published figures, or fitted to measurements: [D], calibrated, fitted.
    pub derived: u64,
    /// Recalled: [M].
    pub recalled: u64,
    /// No source: assumed.
    pub assumed: u64,
    /// No mark.
    pub unmarked: u64,
}

/// Counts the sources of a chip file's fields.
pub fn sources(text: &str) -> Sources {
    let Ok(document) = Document::parse(text) else { return Sources::default() };
    let mut finder = Finder::new(text);
    finder.table(document.as_table(), &mut Vec::new(), None);
    finder.sources
}

impl Sources {
    fn count(&mut self, comment: &str) {
        let word = |mark: &str| comment.split(|c: char| !c.is_alphanumeric()).any(|word| word == mark);
        let slot = if word(MARK) {
            &mut self.assumed
        } else if comment.contains("[M") {
            &mut self.recalled
        } else if comment.contains("[D") || word("calibrated") || word("fitted") || word("Fitted") {
            &mut self.derived
        } else if comment.contains("[S") {
            &mut self.secondary
        } else if comment.contains("[P") {
            &mut self.published
        } else {
            &mut self.unmarked
        };
        *slot += 1;
    }
}

struct MarkedField {
    at: usize,
    path: Vec<String>,
    number: Option<Number>,
    range: Option<(f64, f64)>,
    /// First line of the governing comment.
    comment: Option<usize>,
}

struct Finder<'a> {
    lines: Lines<'a>,
    ranges: BTreeMap<String, (f64, f64)>,
    found: Vec<MarkedField>,
    sources: Sources,
}

impl<'a> Finder<'a> {
    fn new(text: &'a str) -> Self {
        Self { lines: Lines::new(text), ranges: BTreeMap::new(), found: Vec::new(), sources: Sources::default() }
    }

    /// Fields with a range that a memory tier leaves out, and that are 0 there; `of_parts`: also those that a part gives.
    fn left_out(&mut self, document: &dyn TableLike, of_parts: bool) {
        let Some(tiers) = document.get("memory").and_then(Item::as_array_of_tables) else { return };
        for tier in tiers.iter().filter(|tier| of_parts || !tier.contains_key("part")) {
            let Some(name) = tier.get("name").and_then(Item::as_str) else { continue };
            for key in ZERO_IF_LEFT_OUT.into_iter().filter(|key| !tier.contains_key(key)) {
                let path = ["memory", name, key].map(str::to_owned).to_vec();
                if let Some(&range) = self.ranges.get(&path.join(".")) {
                    let number = Some(Number::Real(0.0));
                    self.found.push(MarkedField { at: usize::MAX, path, number, range: Some(range), comment: None });
                }
            }
        }
    }

    /// Fields of a table; `header` is the line of its header, and of an inline table that of its key.
    fn table(&mut self, table: &dyn TableLike, path: &mut Vec<String>, header: Option<usize>) {
        for (name, item) in table.iter() {
            if path.is_empty() && name == RANGES {
                continue;
            }
            let Some(at) = table.key(name).and_then(toml_edit::Key::span).map(|span| span.start) else { continue };
            path.push(name.to_owned());
            self.item(item, at, path, header);
            path.pop();
        }
    }

    fn item(&mut self, item: &Item, at: usize, path: &mut Vec<String>, header: Option<usize>) {
        match item {
            Item::Table(table) => {
                let line = table.span().map(|span| self.lines.of(span.start));
                self.table(table, path, line);
            }
            Item::ArrayOfTables(tables) => {
                for table in tables {
                    let Some(name) = table.get("name").and_then(Item::as_str) else { continue };
                    path.push(name.to_owned());
                    self.table(table, path, table.span().map(|span| self.lines.of(span.start)));
                    path.pop();
                }
            }
            Item::Value(Value::InlineTable(table)) => {
                for (name, value) in table {
                    path.push(name.to_owned());
                    self.field(Some(value), at, path, header);
                    path.pop();
                }
            }
            Item::Value(value) => self.field(Some(value), at, path, header),
            Item::None => {}
        }
    }

    fn field(&mut self, value: Option<&Value>, at: usize, path: &[String], header: Option<usize>) {
        let line = self.lines.of(at);
        let governing = self.lines.governing(line, header);
        self.sources.count(&governing.map_or_else(String::new, |comment| self.lines.comment(comment)));
        let range = self.ranges.get(&path.join(".")).copied();
        if range.is_none() && !governing.is_some_and(|comment| self.lines.says_assumed(comment)) {
            return;
        }
        let number = value.and_then(|value| match value {
            Value::Integer(n) => Some(Number::Whole(*n.value())),
            Value::Float(x) => Some(Number::Real(*x.value())),
            _ => None,
        });
        self.found.push(MarkedField { at, path: path.to_vec(), number, range, comment: governing });
    }
}

/// The lines of a file.
struct Lines<'a> {
    text: &'a str,
    lines: Vec<&'a str>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, lines: text.lines().collect() }
    }

    /// The line of a byte.
    fn of(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count()
    }

    fn is_comment(&self, line: usize) -> bool {
        self.lines[line].trim_start().starts_with('#')
    }

    /// The first line of the comment that governs the field of a line: the line itself if a comment follows on it.
    fn governing(&self, line: usize, header: Option<usize>) -> Option<usize> {
        if self.lines[line].contains(" #") {
            return Some(line);
        }
        let stop = header.map_or(0, |header| header + 1);
        for above in (stop..line).rev() {
            if self.is_comment(above) {
                return Some(self.first_of(above));
            }
            if self.lines[above].trim().is_empty() {
                break;
            }
        }
        let above = header?.checked_sub(1)?;
        self.is_comment(above).then(|| self.first_of(above))
    }

    /// The first line of the comment that a line belongs to.
    fn first_of(&self, mut line: usize) -> usize {
        while line > 0 && self.is_comment(line - 1) {
            line -= 1;
        }
        line
    }

    fn says_assumed(&self, comment: usize) -> bool {
        self.comment(comment).split(|c: char| !c.is_alphanumeric()).any(|word| word == MARK)
    }

    /// The text of a comment from its first line.
    fn comment(&self, first: usize) -> String {
        if !self.is_comment(first) {
            return self.lines[first].split_once(" #").map_or_else(String::new, |(_, text)| text.to_owned());
        }
        let lines = (first..self.lines.len()).take_while(|&line| self.is_comment(line));
        lines.map(|line| self.lines[line]).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# the word "assumed" in the head of a file governs nothing

name = "x"
# 5 [P]
sure = 5
# a source for the first; assumed: a guess
guess = 3
with = 4 # [P] known
alone = 1

free = 7

# all of these are assumed
[table]
a = 1.5
# known [P]
b = 2
# unassumed
c = 3

[grid]
# assumed
columns = 4
# assumed
[grid.agcus]
left = { every = 2, ags = 6 }

[[memory]]
name = "ddr"
channels = 3 # assumed
kind = "slow" # assumed
"#;

    #[test]
    fn comments_govern_what_follows_them() {
        let found = assumptions(TEXT);
        let names: Vec<String> = found
            .varied
            .iter()
            .map(|a| a.fields.iter().map(UncertainField::name).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(names, ["guess alone", "table.a", "grid.agcus.left.ags", "memory.ddr.channels"]);
        assert_eq!(found.fixed, ["grid.columns", "grid.agcus.left.every", "memory.ddr.kind"]);
        assert_eq!(found.varied[1].fields[0].number, Number::Real(1.5));
    }

    #[test]
    fn a_value_is_the_median_of_its_range() {
        let field = |number, range| UncertainField { path: Vec::new(), number, range };
        let whole = field(Number::Whole(3), None);
        assert_eq!([0.0, 0.5, 0.99].map(|q| whole.at(q)), ["2", "3", "6"]);
        assert_eq!((whole.end(true).as_deref(), whole.end(false).as_deref()), (Some("6"), Some("2")));
        assert_eq!(field(Number::Whole(1), None).end(false), None);
        let real = field(Number::Real(0.5), None);
        assert_eq!([0.0, 0.5, 1.0].map(|q| real.at(q)), ["0.25", "0.5", "1.0"]);
        assert_eq!(field(Number::Real(0.0), None).end(true), None);
        let given = field(Number::Whole(1800), Some((1620.0, 1800.0)));
        assert_eq!([0.0, 0.5, 1.0].map(|q| given.at(q)), ["1620", "1800", "1800"]);
        assert_eq!(given.end(true), None);
        assert_eq!(field(Number::Real(4.0), Some((0.0, 4.0))).at(0.25), "2.0");
    }

    #[test]
    fn a_range_makes_a_field_uncertain() {
        let found = assumptions("# 5 [P]\nsure = 5\n\n[ranges]\n# assumed\nsure = [4, 5]\n");
        assert_eq!(found.varied[0].fields[0].range, Some((4.0, 5.0)));
        assert_eq!((found.varied.len(), found.fixed.len()), (1, 0));
    }
}
