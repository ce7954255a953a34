//! Where an override goes in the text of a TOML file.

use std::ops::Range;

use toml_edit::{Array, ArrayOfTables, Document, InlineTable, Item, Key, Table, Value};

use super::Override;
use super::suggest::{quoted_list, suggest};
use crate::diagnostics::Diagnostic;

/// Bytes of a text that give way to `before`, an override's value and `after`.
pub(super) struct Edit {
    pub(super) at: Range<usize>,
    pub(super) before: String,
    pub(super) after: &'static str,
}

/// The edit that makes a field of the document take an override's value.
///
/// A field that the document has is replaced; a field it lacks is added to its table, and whether the schema has such
/// a field shows when the text is read.
pub(super) fn edit_for(document: &Document<&str>, set: &Override) -> Result<Edit, Diagnostic> {
    let mut node = Node::Table(document.as_table());
    let mut opening = Opening { depth: 0, at: 0, before: "", after: "\n" };
    let mut seen = String::new();
    for (depth, key) in set.path().iter().enumerate() {
        node = match node.child(key) {
            Child::Found(next) => next,
            Child::Missing => return Ok(addition(&opening, set)),
            Child::NoEntry(names) => return Err(no_entry(set, &seen, key, &names)),
            Child::None => return Err(below_a_value(set, &seen, key)),
        };
        if !seen.is_empty() {
            seen.push('.');
        }
        seen.push_str(key);
        opening = node.opening(depth + 1).unwrap_or(opening);
    }
    match node.value_span() {
        Some(at) => Ok(Edit { at, before: String::new(), after: "" }),
        None => Err(Diagnostic::new(format!("`{seen}` is a table, which `--set` cannot replace"))
            .with_origin(set.path_origin("names a whole table"))
            .with_help("set one of its fields")),
    }
}

fn addition(opening: &Opening, set: &Override) -> Edit {
    let keys: Vec<String> = set.path()[opening.depth..].iter().map(|key| Key::new(key).to_string()).collect();
    let before = format!("{}{} = ", opening.before, keys.join("."));
    Edit { at: opening.at..opening.at, before, after: opening.after }
}

fn no_entry(set: &Override, list: &str, key: &str, names: &[&str]) -> Diagnostic {
    let title = format!("`{list}` has no entry named {key:?}");
    let label = if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", quoted_list(names)) };
    suggest(Diagnostic::new(title).with_origin(set.path_origin(&label)), key, names)
}

fn below_a_value(set: &Override, value: &str, key: &str) -> Diagnostic {
    let title = format!("`{value}` is a value and has no field {key:?}");
    Diagnostic::new(title).with_origin(set.path_origin("goes below a value"))
}

/// A place where `key = value` can be written, and how many keys of the path lead there.
struct Opening {
    depth: usize,
    at: usize,
    before: &'static str,
    after: &'static str,
}

/// A position in the document.
enum Node<'a> {
    Table(&'a Table),
    Inline(&'a InlineTable),
    /// `[[tables]]`, its entries known by their `name`.
    Tables(&'a ArrayOfTables),
    /// `tables = [{ ... }, { ... }]`, the same in another notation.
    InlineTables(&'a Array),
    Value(&'a Value),
    Nothing,
}

enum Child<'a> {
    Found(Node<'a>),
    /// A table without this field.
    Missing,
    /// A list of tables without an entry of this name; the names it has.
    NoEntry(Vec<&'a str>),
    /// Not a table.
    None,
}

impl<'a> Node<'a> {
    fn of_item(item: &'a Item) -> Self {
        match item {
            Item::None => Node::Nothing,
            Item::Table(table) => Node::Table(table),
            Item::ArrayOfTables(tables) => Node::Tables(tables),
            Item::Value(Value::InlineTable(table)) => Node::Inline(table),
            Item::Value(Value::Array(list)) if !list.is_empty() && list.iter().all(Value::is_inline_table) => {
                Node::InlineTables(list)
            }
            Item::Value(value) => Node::Value(value),
        }
    }

    fn child(&self, key: &str) -> Child<'a> {
        let field = |item: Option<&'a Item>| item.map_or(Child::Missing, |item| Child::Found(Node::of_item(item)));
        match *self {
            Node::Table(table) => field(table.get(key)),
            Node::Inline(table) => table.get(key).map_or(Child::Missing, |value| {
                Child::Found(match value {
                    Value::InlineTable(table) => Node::Inline(table),
                    value => Node::Value(value),
                })
            }),
            Node::Tables(tables) => named_entry(
                key,
                tables.iter().map(|table| (table.get("name").and_then(Item::as_str), Node::Table(table))),
            ),
            Node::InlineTables(tables) => named_entry(
                key,
                tables
                    .iter()
                    .filter_map(Value::as_inline_table)
                    .map(|table| (table.get("name").and_then(Value::as_str), Node::Inline(table))),
            ),
            Node::Value(_) | Node::Nothing => Child::None,
        }
    }

    /// Where a field can be added to this table, if it has a place of its own in the text.
    fn opening(&self, depth: usize) -> Option<Opening> {
        match self {
            Node::Table(table) if !table.is_implicit() && !table.is_dotted() => {
                // The span of a table is that of its header.
                table.span().map(|span| Opening { depth, at: span.end, before: "\n", after: "" })
            }
            Node::Inline(table) if !table.is_dotted() => {
                let after = if table.is_empty() { " " } else { "," };
                table.span().map(|span| Opening { depth, at: span.start + 1, before: " ", after })
            }
            _ => None,
        }
    }

    /// The bytes of a value that can give way to another.
    fn value_span(&self) -> Option<Range<usize>> {
        match self {
            Node::Value(value) => value.span(),
            Node::Inline(table) if !table.is_dotted() => table.span(),
            Node::InlineTables(list) => list.span(),
            _ => None,
        }
    }
}

fn named_entry<'a>(key: &str, entries: impl Iterator<Item = (Option<&'a str>, Node<'a>)>) -> Child<'a> {
    let mut names = Vec::new();
    for (name, node) in entries {
        if name == Some(key) {
            return Child::Found(node);
        }
        names.extend(name);
    }
    Child::NoEntry(names)
}
