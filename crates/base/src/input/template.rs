//! An input that is read many times with different overrides: parsed once, patched in memory.

use std::path::Path;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};
use xxhash_rust::xxh3::Xxh3;

use super::{Override, Root, Source};
use crate::diagnostics::Diagnostic;

/// A parsed input, ready to take overrides.
///
/// What it gives is what reading the text with the same overrides gives: [`Template::variant`] goes a short way, and
/// where that does not lead to a value the long one remains, [`Template::patched_source`], which knows the words for
/// what is wrong.
#[derive(Debug)]
pub struct Template {
    root: Root,
    base: Vec<Override>,
    source: Source,
    tree: Spanned<DeTable<'static>>,
}

/// An input with overrides applied, not checked yet.
#[derive(Debug)]
pub struct Variant<'a>(Spanned<DeTable<'a>>);

impl Template {
    /// Reads a file; `base` are overrides that every variant has.
    pub fn open(path: &Path, root: Root, base: &[Override]) -> Result<Self, Diagnostic> {
        Self::of_source(Source::open(path, root, base)?, root, base)
    }

    /// A template of a text that `base` was applied to.
    pub fn of_source(source: Source, root: Root, base: &[Override]) -> Result<Self, Diagnostic> {
        // The tree borrows from the text. Templates are few and live as long as the program.
        let text: &'static str = source.text().to_owned().leak();
        let tree = DeTable::parse(text).map_err(|error| source.unreadable(&error))?;
        Ok(Self { root, base: base.to_vec(), source, tree })
    }

    /// The text with the base overrides, which spans of variants refer to.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The text with more overrides applied, in order, after the base's.
    pub fn patched_source(&self, sets: &[&Override]) -> Result<Source, Diagnostic> {
        let all: Vec<Override> = self.base.iter().chain(sets.iter().copied()).cloned().collect();
        self.source.again(self.root, &all)
    }

    /// The input with overrides applied; `None` if only [`Template::patched_source`] can tell what they do.
    pub fn variant<'a>(&self, sets: &[&'a Override]) -> Option<Variant<'a>> {
        let mut tree: Spanned<DeTable<'a>> = self.tree.clone();
        for set in sets.iter().filter(|set| set.root() == self.root) {
            patch(tree.get_mut(), set)?;
        }
        Some(Variant(tree))
    }

    /// The hash of [`Variant::fingerprint`], the long way round where it must be; `None` if the overrides do not apply.
    pub fn fingerprint(&self, sets: &[&Override], skip: &dyn Fn(&str) -> bool) -> Option<u128> {
        if let Some(variant) = self.variant(sets) {
            return Some(variant.fingerprint(skip));
        }
        let source = self.patched_source(sets).ok()?;
        let tree = DeTable::parse(source.text()).ok()?;
        Some(Variant(tree).fingerprint(skip))
    }
}

impl Variant<'_> {
    /// The input as a value of `T`; `None` if it is not one.
    pub fn read<T: DeserializeOwned>(self) -> Option<T> {
        T::deserialize(Deserializer::from(self.0)).ok()
    }

    /// A hash of keys and values, whatever their order and the comments around them; fields for which `skip` holds are
    /// left out. Their paths are as in overrides.
    pub fn fingerprint(&self, skip: &dyn Fn(&str) -> bool) -> u128 {
        let mut hash = Xxh3::new();
        hash_table(self.0.get_ref(), &mut String::new(), skip, &mut hash);
        hash.digest128()
    }
}

/// Puts an override's value into the tree, as `patch` does into the text. `None` where that takes more than replacing
/// a value or adding a key.
fn patch<'a>(table: &mut DeTable<'a>, set: &'a Override) -> Option<()> {
    let value = DeValue::parse(set.value()).ok()?;
    put(table, set.path(), value)
}

fn put<'a>(table: &mut DeTable<'a>, path: &'a [String], value: Spanned<DeValue<'a>>) -> Option<()> {
    let (key, rest) = path.split_first()?;
    let Some(entry) = table.get_mut(key.as_str()) else {
        if !rest.is_empty() {
            return None;
        }
        table.insert(Spanned::new(0..0, key.as_str().into()), value);
        return Some(());
    };
    match entry.get_mut() {
        // Tables in the long notation cannot be replaced; the long way says so.
        DeValue::Table(_) if rest.is_empty() => None,
        DeValue::Array(list) if rest.is_empty() => {
            if list.iter().any(|item| item.get_ref().is_table()) {
                return None;
            }
            *entry = value;
            Some(())
        }
        DeValue::Table(inner) => put(inner, rest, value),
        DeValue::Array(list) => {
            let (name, rest) = rest.split_first()?;
            let named = list.iter_mut().find_map(|item| match item.get_mut() {
                DeValue::Table(inner) if inner.get("name").and_then(|n| n.get_ref().as_str()) == Some(name) => {
                    Some(inner)
                }
                _ => None,
            });
            if rest.is_empty() { None } else { put(named?, rest, value) }
        }
        _ if rest.is_empty() => {
            *entry = value;
            Some(())
        }
        _ => None,
    }
}

fn hash_table(table: &DeTable<'_>, path: &mut String, skip: &dyn Fn(&str) -> bool, hash: &mut Xxh3) {
    hash.update(b"{");
    for (key, value) in table {
        let length = path.len();
        if length > 0 {
            path.push('.');
        }
        path.push_str(key.get_ref());
        if !skip(path) {
            hash.update(key.get_ref().as_bytes());
            hash.update(b"\0");
            hash_value(value.get_ref(), path, skip, hash);
        }
        path.truncate(length);
    }
    hash.update(b"}");
}

fn hash_value(value: &DeValue<'_>, path: &mut String, skip: &dyn Fn(&str) -> bool, hash: &mut Xxh3) {
    match value {
        DeValue::Table(table) => return hash_table(table, path, skip, hash),
        DeValue::Array(list) => {
            hash.update(b"[");
            for item in list {
                let length = path.len();
                if let DeValue::Table(table) = item.get_ref()
                    && let Some(name) = table.get("name").and_then(|name| name.get_ref().as_str())
                {
                    path.push('.');
                    path.push_str(name);
                }
                hash_value(item.get_ref(), path, skip, hash);
                path.truncate(length);
            }
            hash.update(b"]");
        }
        DeValue::String(text) => {
            hash.update(b"\"");
            hash.update(text.as_bytes());
        }
        // 1 and 1.0 are the same where a number may be either.
        DeValue::Integer(_) | DeValue::Float(_) => hash.update(number(value).as_bytes()),
        DeValue::Boolean(yes) => hash.update(if *yes { b"true" } else { b"false" }),
        DeValue::Datetime(when) => hash.update(when.to_string().as_bytes()),
    }
    hash.update(b"\0");
}

fn number(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Integer(whole) => {
            let digits = whole.as_str();
            i128::from_str_radix(digits, whole.radix()).map_or_else(|_| whole.to_string(), |n| n.to_string())
        }
        DeValue::Float(real) => {
            real.as_str().parse::<f64>().map_or_else(|_| real.to_string(), |number| number.to_string())
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a = 1\nlist = [1, 2]\n[t]\nb = 2.0 # why\n[[m]]\nname = \"x\"\nc = 3\n";

    fn template(text: &str) -> (tempfile::TempDir, Template) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.toml");
        std::fs::write(&path, text).unwrap();
        let template = Template::open(&path, Root::Arch, &[]).unwrap();
        (directory, template)
    }

    fn fingerprint(template: &Template, sets: &[&str]) -> Option<u128> {
        let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).unwrap()).collect();
        let sets: Vec<&Override> = sets.iter().collect();
        template.variant(&sets).map(|variant| variant.fingerprint(&|_| false))
    }

    #[test]
    fn a_patched_tree_is_the_patched_text() {
        let (_directory, template) = template(TEXT);
        for set in ["arch.a=7", "arch.t.b=1.5", "arch.m.x.c=4", "arch.new=1", "arch.t.new='s'", "arch.list=[3]"] {
            let set = Override::parse(set).unwrap();
            let short: toml::Table = template.variant(&[&set]).unwrap().read().unwrap();
            let long: toml::Table = template.patched_source(&[&set]).unwrap().read().unwrap();
            assert_eq!(short, long, "{}", set.raw());
        }
        for set in ["arch.t=1", "arch.a.b=1", "arch.m.y.c=4", "arch.n.e.w=1"] {
            assert!(fingerprint(&template, &[set]).is_none(), "{set}");
        }
    }

    #[test]
    fn a_fingerprint_is_of_the_content() {
        let (_one, template_one) = template(TEXT);
        let (_two, template_two) = template(&TEXT.replace("2.0 # why", "3 # other").replace("a = 1", "a = 0x1"));
        let plain = fingerprint(&template_one, &[]);
        assert_eq!(plain, fingerprint(&template_one, &["arch.a=1"]));
        assert_ne!(plain, fingerprint(&template_one, &["arch.a=2"]));
        assert_ne!(plain, fingerprint(&template_one, &["arch.list=[12]"]));
        assert_ne!(plain, fingerprint(&template_two, &[]));
        assert_eq!(plain, fingerprint(&template_two, &["arch.t.b=2"]));
        let skipping = |path: &str| path == "m.x.c";
        let set = Override::parse("arch.m.x.c=9").unwrap();
        let of = |sets: &[&Override]| template_one.variant(sets).unwrap().fingerprint(&skipping);
        assert_eq!(of(&[&set]), of(&[]));
    }
}
