//! Inputs as trees, whatever their format, so that one set of changes serves all of them; and the formats written again.
//!
//! A leaf is kept as it stands in the text, so that a change may put anything there: numbers beyond every type, words of
//! another format, the same key twice.

use std::fmt::Write;

/// A part of an input.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tree {
    /// Keys and values; a key may stand there twice.
    Table(Vec<(String, Tree)>),
    /// Values in order.
    List(Vec<Tree>),
    /// A number or a word as it stands in the text.
    Leaf(String),
    /// A string, without its quotes.
    Text(String),
}

/// A format of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Toml,
    Json,
    /// Comma-separated values: a list of lines, each a list of leaves.
    Csv,
}

impl Tree {
    /// The tree of a valid text.
    pub(crate) fn read(format: Format, text: &str) -> Self {
        match format {
            Format::Toml => of_toml(toml::Value::Table(toml::from_str(text).expect("a seed is valid TOML"))),
            Format::Json => of_json(serde_json::from_str(text).expect("a seed is valid JSON")),
            Format::Csv => Self::List(
                text.lines()
                    .map(|line| Self::List(line.split(',').map(|cell| Self::Leaf(cell.to_owned())).collect()))
                    .collect(),
            ),
        }
    }

    /// The text of a tree, as far as the format can hold it.
    pub(crate) fn text(&self, format: Format) -> String {
        let mut text = String::new();
        match (format, self) {
            (Format::Toml, Self::Table(entries)) => {
                for (key, value) in entries {
                    let _ = write!(text, "{} = ", quoted(key));
                    value.write(format, &mut text);
                    text.push('\n');
                }
            }
            (Format::Csv, Self::List(lines)) => {
                for line in lines {
                    line.write(format, &mut text);
                    text.push('\n');
                }
            }
            _ => self.write(format, &mut text),
        }
        text
    }

    fn write(&self, format: Format, text: &mut String) {
        let separated = |text: &mut String, at: usize| {
            if at > 0 {
                text.push(',');
            }
        };
        match self {
            Self::Table(entries) => {
                text.push('{');
                for (at, (key, value)) in entries.iter().enumerate() {
                    separated(text, at);
                    text.push_str(&quoted(key));
                    text.push(if format == Format::Toml { '=' } else { ':' });
                    value.write(format, text);
                }
                text.push('}');
            }
            Self::List(items) => {
                let brackets = if format == Format::Csv { ["", ""] } else { ["[", "]"] };
                text.push_str(brackets[0]);
                for (at, item) in items.iter().enumerate() {
                    separated(text, at);
                    item.write(format, text);
                }
                text.push_str(brackets[1]);
            }
            Self::Leaf(word) => text.push_str(word),
            Self::Text(word) if format == Format::Csv => text.push_str(word),
            Self::Text(word) => text.push_str(&quoted(word)),
        }
    }

    /// Parts of the tree, itself included.
    pub(crate) fn parts(&self) -> usize {
        1 + match self {
            Self::Table(entries) => entries.iter().map(|(_, value)| value.parts()).sum(),
            Self::List(items) => items.iter().map(Self::parts).sum(),
            Self::Leaf(_) | Self::Text(_) => 0,
        }
    }

    /// The part with a number below [`Tree::parts`], counted from the root down.
    pub(crate) fn part(&mut self, mut number: usize) -> &mut Self {
        if number == 0 {
            return self;
        }
        number -= 1;
        let children: Vec<&mut Self> = match self {
            Self::Table(entries) => entries.iter_mut().map(|(_, value)| value).collect(),
            Self::List(items) => items.iter_mut().collect(),
            Self::Leaf(_) | Self::Text(_) => Vec::new(),
        };
        for child in children {
            let parts = child.parts();
            if number < parts {
                return child.part(number);
            }
            number -= parts;
        }
        unreachable!("a part with a number below the number of parts")
    }
}

/// A string that both TOML and JSON take.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn of_toml(value: toml::Value) -> Tree {
    match value {
        toml::Value::Table(table) => Tree::Table(table.into_iter().map(|(key, value)| (key, of_toml(value))).collect()),
        toml::Value::Array(items) => Tree::List(items.into_iter().map(of_toml).collect()),
        toml::Value::String(text) => Tree::Text(text),
        other => Tree::Leaf(other.to_string()),
    }
}

fn of_json(value: serde_json::Value) -> Tree {
    match value {
        serde_json::Value::Object(map) => {
            Tree::Table(map.into_iter().map(|(key, value)| (key, of_json(value))).collect())
        }
        serde_json::Value::Array(items) => Tree::List(items.into_iter().map(of_json).collect()),
        serde_json::Value::String(text) => Tree::Text(text),
        other => Tree::Leaf(other.to_string()),
    }
}
