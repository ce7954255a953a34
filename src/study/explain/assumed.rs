//! Which fields of a chip file have no source, by the comments of the file.
//!
//! A comment governs the fields that follow it up to the next comment or empty line, and its own line; one above a
//! table's header governs the fields of that table that have none. A field is assumed if its comment has the word.

use toml_edit::{Document, Item, TableLike, Value};

/// The word that marks a value without a source.
const MARK: &str = "assumed";

/// Numbers that one comment calls assumed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Assumption {
    /// Paths of the fields below the root, as keys, and the numbers they have.
    pub(super) fields: Vec<(Vec<String>, Number)>,
}

/// A number of a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    /// Whole.
    Whole(i64),
    /// With a fraction, or written so.
    Real(f64),
}

impl Number {
    /// This number times 2, or divided by 2 and rounded up, as TOML; `None` if that changes nothing.
    pub(super) fn scaled(self, up: bool) -> Option<String> {
        match self {
            Self::Whole(n) if up => n.checked_mul(2).filter(|&m| m != n).map(|m| m.to_string()),
            Self::Whole(n) => Some(n / 2 + n % 2).filter(|&m| m != n).map(|m| m.to_string()),
            Self::Real(x) => Some(if up { x * 2.0 } else { x / 2.0 })
                .filter(|&y| y.to_bits() != x.to_bits())
                .map(|y| format!("{y:?}")),
        }
    }
}

/// What a file assumes: what can be varied, and the fields that cannot.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Assumptions {
    /// Groups of numbers, in the file's order.
    pub(super) varied: Vec<Assumption>,
    /// Fields that are no numbers, or that give a shape whose size is published.
    pub(super) fixed: Vec<String>,
}

/// Finds the assumed fields of a chip file.
pub(super) fn assumptions(text: &str) -> Assumptions {
    let Ok(document) = Document::parse(text) else { return Assumptions::default() };
    let mut finder = Finder { lines: Lines::new(text), found: Vec::new(), sources: Sources::default() };
    finder.table(document.as_table(), &mut Vec::new(), None);
    finder.found.sort_by_key(|found| found.at);
    let mut result = Assumptions::default();
    let mut last_comment = None;
    for found in finder.found {
        let Some(number) = found.number.filter(|_| !is_shape(&found.path)) else {
            result.fixed.push(found.path.join("."));
            continue;
        };
        match result.varied.last_mut().filter(|_| last_comment == Some(found.comment)) {
            Some(group) => group.fields.push((found.path, number)),
            None => result.varied.push(Assumption { fields: vec![(found.path, number)] }),
        }
        last_comment = Some(found.comment);
    }
    result
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
    let mut finder = Finder { lines: Lines::new(text), found: Vec::new(), sources: Sources::default() };
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

struct Found {
    at: usize,
    path: Vec<String>,
    number: Option<Number>,
    /// First line of the governing comment.
    comment: usize,
}

struct Finder<'a> {
    lines: Lines<'a>,
    found: Vec<Found>,
    sources: Sources,
}

impl Finder<'_> {
    /// Fields of a table; `header` is the line of its header, and of an inline table that of its key.
    fn table(&mut self, table: &dyn TableLike, path: &mut Vec<String>, header: Option<usize>) {
        for (name, item) in table.iter() {
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
        let Some(comment) = governing.filter(|&comment| self.lines.says_assumed(comment)) else { return };
        let number = value.and_then(|value| match value {
            Value::Integer(n) => Some(Number::Whole(*n.value())),
            Value::Float(x) => Some(Number::Real(*x.value())),
            _ => None,
        });
        self.found.push(Found { at, path: path.to_vec(), number, comment });
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
            .map(|a| a.fields.iter().map(|(path, _)| path.join(".")).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(names, ["guess alone", "table.a", "grid.agcus.left.ags", "memory.ddr.channels"]);
        assert_eq!(found.fixed, ["grid.columns", "grid.agcus.left.every", "memory.ddr.kind"]);
        assert_eq!(found.varied[1].fields[0].1, Number::Real(1.5));
    }

    #[test]
    fn numbers_are_scaled_or_left() {
        assert_eq!(Number::Whole(3).scaled(true).as_deref(), Some("6"));
        assert_eq!(Number::Whole(3).scaled(false).as_deref(), Some("2"));
        assert_eq!(Number::Whole(1).scaled(false), None);
        assert_eq!(Number::Real(0.5).scaled(false).as_deref(), Some("0.25"));
        assert_eq!(Number::Real(0.0).scaled(true), None);
    }
}
