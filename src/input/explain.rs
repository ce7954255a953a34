//! Deserialisation errors in the words of the file: field, found, expected.

use std::ops::Range;

use toml_edit::{Document, Item, TableLike};

use super::Source;
use crate::diagnostics::Diagnostic;

/// A diagnostic for an error of the TOML parser or of serde.
pub(super) fn explain(source: &Source, text: &str, error: &toml::de::Error) -> Diagnostic {
    let span = error.span().unwrap_or(0..0);
    let message = error.message().replace('\n', ", ");
    let Ok(document) = Document::parse(text) else {
        return not_toml(source, error.span(), error.message());
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

/// A diagnostic for a text that breaks TOML's own rules.
pub(super) fn not_toml(source: &Source, span: Option<Range<usize>>, message: &str) -> Diagnostic {
    source.error(span.unwrap_or(0..0), format!("the file cannot be read as TOML: {}", message.replace('\n', ", ")), "")
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

/// Names in backquotes, the first of them if there are very many.
pub(super) fn quoted_list(names: &[&str]) -> String {
    const SHOWN: usize = 20;
    let list = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        return format!("{list} and {} more", names.len() - SHOWN);
    }
    list
}

/// Adds the known name nearest to a wrong one as help, if one is near.
pub(crate) fn suggest(error: Diagnostic, wrong: &str, known: &[&str]) -> Diagnostic {
    match nearest(wrong, known) {
        Some(name) => error.with_help(format!("did you mean `{name}`?")),
        None => error,
    }
}

/// The known name that a wrong one was probably meant to be.
fn nearest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    // Beyond this length nobody mistypes a name, and the distance takes quadratic time.
    if wrong.len() > 64 {
        return None;
    }
    let limit = wrong.chars().count().div_ceil(3);
    known
        .iter()
        .filter(|name| name.len() <= 64)
        .map(|name| (edit_distance(wrong, name), *name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Characters inserted, deleted or replaced to turn one word into another.
fn edit_distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_name() {
        assert_eq!(nearest("bank", &["capacity_bytes", "banks"]), Some("banks"));
        assert_eq!(nearest("gello", &["gelu", "relu"]), Some("gelu"));
        assert_eq!(nearest("zzz", &["gelu", "relu"]), None);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "ab"), 2);
    }
}
