//! Quantities as people read them: four significant digits, a unit, no noise.

use std::borrow::Cow;

pub use rdusim_base::units::whole;

/// SI prefixes from 10^-15 to 10^18.
const SI: [(f64, &str); 12] = [
    (1e-15, "f"),
    (1e-12, "p"),
    (1e-9, "n"),
    (1e-6, "µ"),
    (1e-3, "m"),
    (1.0, ""),
    (1e3, "k"),
    (1e6, "M"),
    (1e9, "G"),
    (1e12, "T"),
    (1e15, "P"),
    (1e18, "E"),
];

/// Binary prefixes from 1 to 2^60.
const BINARY: [(f64, &str); 7] = [
    (1.0, ""),
    (1024.0, "Ki"),
    (1_048_576.0, "Mi"),
    (1_073_741_824.0, "Gi"),
    (1_099_511_627_776.0, "Ti"),
    (1_125_899_906_842_624.0, "Pi"),
    (1_152_921_504_606_846_976.0, "Ei"),
];

/// Four significant digits of a value from 0 to below 10,000, without exponent.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v < 9.9995 => 3,
        v if v < 99.995 => 2,
        v if v < 999.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// `value` with the largest prefix that leaves at least 1, and `unit`: `859.0 GFLOP`.
pub fn si(value: f64, unit: &str) -> String {
    scaled(value, unit, &SI)
}

/// Bytes in binary units: `440.0 MiB`; whole below 1 KiB.
pub fn bytes(count: u64) -> String {
    if count < 1024 {
        return format!("{count} B");
    }
    scaled(count as f64, "B", &BINARY)
}

fn scaled(value: f64, unit: &str, prefixes: &[(f64, &str)]) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("0 {unit}");
    }
    // A value that would round up to the next prefix is shown with it.
    let (scale, prefix) =
        prefixes.iter().rev().find(|(scale, _)| value.abs() >= scale * 0.99995).unwrap_or(&prefixes[0]);
    format!("{} {prefix}{unit}", digits(value / scale))
}

/// Like [`si`] without trailing zeros: `100 GB/s`, `1.8 TB/s`.
pub fn si_short(value: f64, unit: &str) -> String {
    short(&si(value, unit))
}

/// Like [`bytes`] without trailing zeros: `320 MiB`.
pub fn bytes_short(count: u64) -> String {
    short(&bytes(count))
}

fn short(text: &str) -> String {
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text.to_owned(),
    }
}

/// A share as per cent: `97.3 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A count of things: whole below 10,000, else with a prefix: `209.7 M`.
pub(crate) fn count(value: u64) -> String {
    if value < 10_000 { whole(value) } else { si(value as f64, "") }
}

/// FLOP per byte: `1862 FLOP/B`.
pub(crate) fn intensity(value: f64) -> String {
    if value < 9999.5 { format!("{} FLOP/B", digits(value)) } else { si(value, "FLOP/B") }
}

/// A ratio: `1.73x`; `-` when there is nothing to divide by.
pub(crate) fn ratio(over: f64, under: f64) -> String {
    if under > 0.0 && over.is_finite() && under.is_finite() {
        let ratio = over / under;
        let decimals = usize::from(ratio < 99.995) + usize::from(ratio < 9.995) + usize::from(ratio < 0.095);
        format!("{ratio:.decimals$}x")
    } else {
        "-".to_owned()
    }
}

/// `text` safe to print and to put in XML: control characters become U+FFFD.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    let unsafe_char = |c: char| {
        c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if text.contains(unsafe_char) {
        Cow::Owned(text.chars().map(|c| if unsafe_char(c) { '\u{fffd}' } else { c }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// [`clean`] text of at most `most` characters: of a longer one the middle is left out.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    let text = clean(text);
    let length = text.chars().count();
    if length <= most {
        return text.into_owned();
    }
    let kept = most.saturating_sub(1);
    let head: String = text.chars().take(kept.div_ceil(2)).collect();
    let tail: String = text.chars().skip(length - kept / 2).collect();
    format!("{head}…{tail}")
}

/// A value in words: a whole number as it is, another with five digits.
pub fn plain(value: f64) -> String {
    if value.fract() == 0.0 {
        return format!("{value:.0}");
    }
    let places = 4 - value.abs().log10().floor().clamp(-12.0, 4.0) as i32;
    format!("{value:.*}", places as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_digits_and_a_unit() {
        assert_eq!(si(4.613_734e-3, "s"), "4.614 ms");
        assert_eq!(si(858_993_459_200.0, "FLOP"), "859.0 GFLOP");
        assert_eq!(si(0.0, "J"), "0 J");
        assert_eq!(si(f64::NAN, "J"), "0 J");
        assert_eq!(si(1.0, "s"), "1.000 s");
        assert_eq!(si(1e-18, "s"), "0.001 fs");
        assert_eq!(si(999.96, "s"), "1.000 ks");
        assert_eq!(si(9.99996e-4, "s"), "1.000 ms");
    }

    #[test]
    fn bytes_are_binary() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.000 KiB");
        assert_eq!(bytes(461_373_440), "440.0 MiB");
        assert_eq!(bytes((1 << 30) - 1), "1.000 GiB");
        assert_eq!(bytes(u64::MAX), "16.00 EiB");
        assert_eq!(bytes(1_040_187_392), "992.0 MiB");
        assert_eq!(bytes(1 << 30), "1.000 GiB");
        assert_eq!(bytes(1023 << 20), "1023 MiB");
        assert_eq!(bytes_short(320 << 20), "320 MiB");
    }

    #[test]
    fn short_forms_drop_zeros_only_after_the_point() {
        assert_eq!(si_short(100e9, "B/s"), "100 GB/s");
        assert_eq!(si_short(1.8e12, "B/s"), "1.8 TB/s");
        assert_eq!(bytes_short(1000), "1000 B");
    }

    #[test]
    fn whole_numbers_are_grouped() {
        assert_eq!(whole(0), "0");
        assert_eq!(whole(999), "999");
        assert_eq!(whole(1000), "1,000");
        assert_eq!(whole(5_767_168), "5,767,168");
    }

    #[test]
    fn intensities_have_a_prefix_only_when_large() {
        assert_eq!(intensity(1861.8), "1862 FLOP/B");
        assert_eq!(intensity(0.25), "0.250 FLOP/B");
        assert_eq!(intensity(8.59e11), "859.0 GFLOP/B");
    }

    #[test]
    fn ratios() {
        assert_eq!(ratio(1.726, 1.0), "1.73x");
        assert_eq!(ratio(0.0123, 1.0), "0.012x");
        assert_eq!(ratio(12.34, 1.0), "12.3x");
        assert_eq!(ratio(1234.5, 1.0), "1234x");
        assert_eq!(ratio(1.0, 0.0), "-");
        assert_eq!(ratio(0.0, 0.0), "-");
    }

    #[test]
    fn long_names_lose_their_middle() {
        assert_eq!(shorten("decoder.projection", 18), "decoder.projection");
        assert_eq!(shorten("decoder.projection", 9), "deco…tion");
        assert_eq!(shorten("ééééé", 4), "éé…é");
        assert_eq!(shorten("abc", 1), "…");
    }

    #[test]
    fn control_characters_never_get_through() {
        assert_eq!(clean("plain <name>"), "plain <name>");
        assert_eq!(clean("a\u{1b}[31mb\n"), "a\u{fffd}[31mb\u{fffd}");
    }

    #[test]
    fn values_are_told_with_five_digits() {
        assert_eq!(["1281", "0.12500", "-3.2172", "12346"], [1281.0, 0.125, -3.217_182, 12_345.6].map(plain)[..]);
    }
}
