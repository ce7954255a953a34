//! Names in messages: those that are known, and the one that a wrong name was probably meant to be.

use crate::diagnostics::Diagnostic;

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
pub fn suggest(error: Diagnostic, wrong: &str, known: &[&str]) -> Diagnostic {
    match nearest(wrong, known) {
        Some(name) => error.with_help(format!("did you mean `{name}`?")),
        None => error,
    }
}

/// The known name that a wrong one was probably meant to be.
pub(super) fn nearest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    all_nearest(wrong, known).first().copied()
}

/// The known names that a wrong one was probably meant to be: all that are equally near, the first three of many.
pub(super) fn all_nearest<'a>(wrong: &str, known: &[&'a str]) -> Vec<&'a str> {
    const SHOWN: usize = 3;
    // Beyond this length nobody mistypes a name, and the distance takes quadratic time.
    if wrong.len() > 64 {
        return Vec::new();
    }
    let limit = wrong.chars().count().div_ceil(3);
    let of = known.iter().filter(|name| name.len() <= 64).map(|name| (edit_distance(wrong, name), *name));
    let near: Vec<(usize, &str)> = of.filter(|(distance, _)| *distance <= limit).collect();
    let least = near.iter().map(|(distance, _)| *distance).min();
    near.into_iter().filter(|(distance, _)| Some(*distance) == least).map(|(_, name)| name).take(SHOWN).collect()
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
        assert_eq!(all_nearest("h300", &["a100", "h100", "h200"]), ["h100", "h200"]);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "ab"), 2);
    }
}
