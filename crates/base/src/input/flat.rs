//! A TOML text as its fields: every value by the path that `--set` would name it with.

use std::collections::BTreeMap;

use serde_json::Value;

/// Fields by path, in the order of their paths.
pub type Fields = BTreeMap<String, Value>;

/// The fields of a text, without comments; none of one that is no TOML.
pub fn fields(text: &str) -> Fields {
    let mut fields = Fields::new();
    // Recursion goes as deep as the text does, which its parser limits.
    if let Ok(table) = text.parse::<toml::Table>() {
        add(&mut fields, "", &toml::Value::Table(table));
    }
    fields
}

fn add(fields: &mut Fields, path: &str, value: &toml::Value) {
    let below = |key: &str| {
        let key = toml_edit::Key::new(key).to_string();
        if path.is_empty() { key } else { format!("{path}.{key}") }
    };
    match value {
        toml::Value::Table(table) => table.iter().for_each(|(key, value)| add(fields, &below(key), value)),
        toml::Value::Array(list) if !list.is_empty() && list.iter().all(toml::Value::is_table) => {
            for (at, entry) in list.iter().enumerate() {
                let name = entry.get("name").and_then(toml::Value::as_str);
                add(fields, &below(name.unwrap_or(&at.to_string())), entry);
            }
        }
        leaf => {
            // Every number of a text that was read as an input is finite.
            fields.insert(path.to_owned(), serde_json::to_value(leaf).unwrap_or(Value::Null));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_paths_that_overrides_have() {
        let text = "a = 1 # no comment\n[t]\n\"b.c\" = [1, 2]\nd = { e = 1.5 }\n[[memory]]\nname = \"ddr\"\nx = true\n[[plain]]\ny = \"z\"\n";
        let found: Vec<String> = fields(text).iter().map(|(path, value)| format!("{path}={value}")).collect();
        assert_eq!(
            found,
            ["a=1", "memory.ddr.name=\"ddr\"", "memory.ddr.x=true", "plain.0.y=\"z\"", "t.\"b.c\"=[1,2]", "t.d.e=1.5"]
        );
        assert!(fields("no toml").is_empty());
    }
}
