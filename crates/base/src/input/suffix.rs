//! Numbers with a binary or decimal suffix in the values of `--set`: `64Ki` is 65536, `1.5M` is 1500000.

use std::borrow::Cow;

/// Suffixes and what they stand for, so that none is the end of one behind it.
const SUFFIXES: [(&str, i128); 8] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
];

/// A number with a suffix as TOML: a whole number where it is one.
pub(super) fn number(word: &str) -> Option<String> {
    let (digits, factor) = SUFFIXES.iter().find_map(|(suffix, factor)| Some((word.strip_suffix(suffix)?, *factor)))?;
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", digits.strip_prefix('+').unwrap_or(digits)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |text: &str| {
        text.chars().all(|c| c.is_ascii_digit() || c == '_') && text.starts_with(|c: char| c.is_ascii_digit())
    };
    if !is_number(whole) || !(fraction.is_empty() || is_number(fraction)) || digits.ends_with('.') {
        return None;
    }
    let plain = |text: &str| text.replace('_', "");
    let (whole, fraction) = (plain(whole), plain(fraction));
    // More digits than a double holds are no number that anybody means.
    if whole.len() + fraction.len() > 18 {
        return None;
    }
    let units = 10_i128.pow(fraction.len() as u32);
    let value = format!("{whole}{fraction}").parse::<i128>().ok()? * factor;
    Some(if value % units == 0 {
        format!("{sign}{}", value / units)
    } else {
        format!("{sign}{:?}", value as f64 / units as f64)
    })
}

/// TOML text with its numbers that have suffixes written out; quoted strings stay.
pub(super) fn expanded(text: &str) -> Cow<'_, str> {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || "_.+-".contains(c);
    let mut out = String::with_capacity(text.len());
    let mut quote = None;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if quote.is_none() && is_of_word(first) {
            rest.find(|c| !is_of_word(c)).unwrap_or(rest.len())
        } else {
            match quote {
                None if matches!(first, '"' | '\'') => quote = Some(first),
                Some(open) if open == first => quote = None,
                _ => {}
            }
            first.len_utf8()
        };
        let (word, behind) = rest.split_at(length);
        match number(word).filter(|_| quote.is_none()) {
            Some(number) => out.push_str(&number),
            None => out.push_str(word),
        }
        rest = behind;
    }
    if out == text { Cow::Borrowed(text) } else { Cow::Owned(out) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_binary_or_decimal() {
        let of = |word| number(word).unwrap_or_default();
        assert_eq!(
            ["64Ki", "1.5Mi", "2Gi", "3k", "-2M", "1_000G", "0.1k"].map(of),
            ["65536", "1572864", "2147483648", "3000", "-2000000", "1000000000000", "100"]
        );
        assert_eq!(of("0.0001k"), "0.1");
        for word in ["Ki", "k", "1e3k", "1.k", "fp8_e4M", "_1k", "64", "1..2k", "12345678901234567890k"] {
            assert_eq!(number(word), None, "{word}");
        }
    }

    #[test]
    fn quoted_text_stays() {
        assert_eq!(expanded("[64Ki, 1k]"), "[65536, 1000]");
        assert_eq!(expanded("{ a = '64Ki', b = \"2M\" }"), "{ a = '64Ki', b = \"2M\" }");
        assert_eq!(expanded("llama-2M-x"), "llama-2M-x");
    }
}
