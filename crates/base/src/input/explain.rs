//! Sources as values, and deserialisation errors in the words of the file: field, found, expected.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml_edit::{Document, Item, TableLike};

use super::source::Source;
use super::suggest::suggest;
use crate::diagnostics::Diagnostic;

impl Source {
    /// The spliced text as a value of `T`; `T`'s spans refer to the spliced text.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Diagnostic> {
        toml::from_str(self.text()).map_err(|error| explain(self, self.text(), &error))
    }

    /// What is wrong with a text that is not TOML.
    pub(super) fn unreadable(&self, error: &toml::de::Error) -> Diagnostic {
        explain(self, self.text(), error)
    }
}

/// A diagnostic for an error of the TOML parser or of serde.
fn explain(source: &Source, text: &str, error: &toml::de::Error) -> Diagnostic {
    let span = error.span().unwrap_or(0..0);
    let message = error.message().replace('\n', ", ");
    let Ok(document) = Document::parse(text) else {
        return source.not_toml(error.span(), error.message());
    };
    let field = field_at(&document, &span);
    if let Some(rest) = message.strip_prefix("missing field ") {
        let missing = join(field.as_deref(), rest.trim_matches('`'));
        let label = field.map_or("expected in this file".to_owned(), |table| format!("expected in `{table}`"));
        return source.error(span, format!("`{missing}` is missing"), label);
    }
    if let Some((unknown, expected)) =
        message.strip_prefix("unknown field ").and_then(|rest| rest.split_once(", expected "))
    {
        let unknown = unknown.trim_matches('`');
        let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        let title = format!("unknown field `{}`", field.as_deref().unwrap_or(unknown));
        return suggest(source.error(span, title, format!("expected {expected}")), unknown, &known);
    }
    let told = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    if let (Some(field), Some((found, expected))) = (&field, told.and_then(|rest| rest.split_once(", expected "))) {
        let (found, expected) = (plain_type(found), plain_type(expected));
        return source.error(
            span,
            format!("`{field}`: found {found}, expected {expected}"),
            format!("expected {expected}"),
        );
    }
    let title = field.map_or_else(|| message.clone(), |field| format!("`{field}`: {message}"));
    source.error(span, title, "")
}

/// Serde's words for what TOML calls a table and an array.
fn plain_type(words: &str) -> &str {
    match words {
        "map" | "a map" => "a table",
        "sequence" | "a sequence" => "an array",
        other => other,
    }
}

fn join(table: Option<&str>, key: &str) -> String {
    table.map_or_else(|| key.to_owned(), |table| format!("{table}.{key}"))
}

/// The path of the innermost field whose key, value or header holds the first byte of a span.
fn field_at(document: &Document<&str>, span: &Range<usize>) -> Option<String> {
    if span.is_empty() {
        return None;
    }
    in_table(document.as_table(), span.start, None)
}

fn in_table(table: &dyn TableLike, at: usize, path: Option<&str>) -> Option<String> {
    table.iter().find_map(|(name, item)| {
        let path = join(path, name);
        let in_key = table.key(name).and_then(toml_edit::Key::span).is_some_and(|span| span.contains(&at));
        in_item(item, at, &path).or_else(|| in_key.then_some(path))
    })
}

fn in_item(item: &Item, at: usize, path: &str) -> Option<String> {
    let here =
        |span: Option<Range<usize>>, path: &str| span.is_some_and(|span| span.contains(&at)).then(|| path.to_owned());
    let entry = |index: usize, table: &dyn TableLike| match table.get("name").and_then(Item::as_str) {
        Some(name) => format!("{path}.{name}"),
        None => format!("{path}[{index}]"),
    };
    if let Some(table) = item.as_table_like() {
        return in_table(table, at, Some(path)).or_else(|| here(item.span(), path));
    }
    if let Some(tables) = item.as_array_of_tables() {
        return tables.iter().enumerate().find_map(|(index, table)| {
            let path = entry(index, table);
            in_table(table, at, Some(&path)).or_else(|| here(table.span(), &path))
        });
    }
    let in_list = item.as_array().and_then(|list| {
        list.iter().enumerate().find_map(|(index, value)| match value.as_inline_table() {
            Some(table) => {
                let path = entry(index, table);
                in_table(table, at, Some(&path)).or_else(|| here(value.span(), &path))
            }
            None => here(value.span(), &format!("{path}[{index}]")),
        })
    });
    in_list.or_else(|| here(item.span(), path))
}
