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
