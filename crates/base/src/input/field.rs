//! The field that an error is about, as overrides name it.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostics::{COMMAND_LINE, Diagnostic};

/// The path of the innermost field at the place of an error, such as `pmu.banks` or `memory.ddr.latency_ns`: that of the
/// `--set` argument, or of the key in the file. `None` without a place, or outside every field.
pub fn field_of(error: &Diagnostic) -> Option<String> {
    let origin = error.origin()?;
    if origin.path == COMMAND_LINE {
        let argument = origin.text.trim_start_matches("--set ");
        return argument.split_once('=').map(|(path, _)| path.trim().to_owned());
    }
    let tree = DeTable::parse(&origin.text).ok()?;
    let path = inside(tree.get_ref(), &origin.span)?;
    Some(path.join("."))
}

fn holds(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

fn inside(table: &DeTable<'_>, place: &Range<usize>) -> Option<Vec<String>> {
    table.iter().find_map(|(key, value)| {
        let mut path = vec![key.get_ref().to_string()];
        match below(value, place) {
            Some(rest) => path.extend(rest),
            None if holds(&key.span(), place) || holds(&value.span(), place) => {}
            None => return None,
        }
        Some(path)
    })
}

/// The rest of the path in a value whose fields have names; entries of arrays of tables go by their `name`.
fn below(value: &Spanned<DeValue<'_>>, place: &Range<usize>) -> Option<Vec<String>> {
    match value.get_ref() {
        DeValue::Table(table) => inside(table, place),
        DeValue::Array(list) => list.iter().find_map(|item| {
            let DeValue::Table(table) = item.get_ref() else { return None };
            let name = table.get("name").and_then(|name| name.get_ref().as_str());
            let rest = inside(table, place)?;
            Some(name.map(str::to_owned).into_iter().chain(rest).collect())
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::Origin;

    fn field(path: &str, text: &str, at: &str) -> Option<String> {
        let start = text.find(at).unwrap();
        let origin =
            Origin { path: path.into(), text: text.into(), span: start..start + at.len(), label: String::new() };
        field_of(&Diagnostic::new("t").with_origin(origin))
    }

    #[test]
    fn fields_are_named_as_overrides_name_them() {
        let text = "clock_ghz = 1\n[pmu]\nbanks = 0\n[[memory]]\nname = \"ddr\"\nlatency_ns = -5\n";
        let of = |at| field("a.toml", text, at);
        assert_eq!(of("1").as_deref(), Some("clock_ghz"));
        assert_eq!(of("0").as_deref(), Some("pmu.banks"));
        assert_eq!(of("banks").as_deref(), Some("pmu.banks"));
        assert_eq!(of("-5").as_deref(), Some("memory.ddr.latency_ns"));
        assert_eq!(field(COMMAND_LINE, "--set arch.pmu.banks=0", "0").as_deref(), Some("arch.pmu.banks"));
        assert_eq!(field_of(&Diagnostic::new("t")), None);
    }
}
