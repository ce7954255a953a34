//! Round numbers for axes.

/// Prefixes of one kind, largest last: their size and their name.
pub(super) type Units = [(f64, &'static str)];

/// Bytes.
pub(super) const BYTES: [(f64, &str); 6] = [
    (1.0, "B"),
    (1024.0, "KiB"),
    (1_048_576.0, "MiB"),
    (1_073_741_824.0, "GiB"),
    (1_099_511_627_776.0, "TiB"),
    (1_125_899_906_842_624.0, "PiB"),
];

/// Seconds.
pub(super) const SECONDS: [(f64, &str); 5] = [(1e-12, "ps"), (1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s")];

/// A linear axis from zero: its end, its unit, and its ticks with their labels.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Linear {
    pub(super) unit: &'static str,
    pub(super) ticks: Vec<(f64, String)>,
}

impl Linear {
    /// Ticks at 1, 2, 2.5 or 5 times a power of ten of the unit that suits `most`; at most eight of them, none
    /// beyond `most`.
    pub(super) fn new(most: f64, units: &Units) -> Self {
        let (size, unit) = units.iter().rev().find(|(size, _)| most >= *size).unwrap_or(&units[0]);
        let step = round_step(most / size / 5.0);
        let decimals = (-step.log10().floor()).max(0.0) as usize + usize::from(step_digit(step) == 25);
        let ticks = (0..8_u32)
            .map(|i| f64::from(i) * step)
            .take_while(|value| value * size <= most * (1.0 + 1e-9))
            .map(|value| (value * size, format!("{value:.decimals$}")))
            .collect();
        Self { unit, ticks }
    }
}

/// The smallest of 1, 2, 2.5, 5 x 10^n that is not below `at_least`.
pub(super) fn round_step(at_least: f64) -> f64 {
    if at_least <= 0.0 || !at_least.is_finite() {
        return 1.0;
    }
    let power = 10_f64.powf(at_least.log10().floor());
    let factors = [1.0, 2.0, 2.5, 5.0, 10.0];
    power * factors.into_iter().find(|factor| power * factor >= at_least * (1.0 - 1e-9)).unwrap_or(10.0)
}

/// The leading two digits of a step.
fn step_digit(step: f64) -> u32 {
    (step / 10_f64.powf((step.log10() + 1e-9).floor()) * 10.0).round() as u32
}

/// `10` with a superscript exponent.
pub(super) fn power_of_ten(exponent: i32) -> String {
    let mut text = "10".to_owned();
    for c in exponent.to_string().chars() {
        text.push(match c {
            '-' => '⁻',
            '1' => '¹',
            '2' => '²',
            '3' => '³',
            // The other superscript digits lie together in Unicode.
            digit => digit.to_digit(10).and_then(|d| char::from_u32(0x2070 + d)).unwrap_or(digit),
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(most: f64, units: &Units) -> (String, &'static str) {
        let axis = Linear::new(most, units);
        (axis.ticks.iter().map(|(_, label)| label.as_str()).collect::<Vec<_>>().join(" "), axis.unit)
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(labels(760.0 * 1_048_576.0, &BYTES), ("0 200 400 600".into(), "MiB"));
        assert_eq!(labels(8.09e-3, &SECONDS), ("0 2 4 6 8".into(), "ms"));
        assert_eq!(labels(1.1e-3, &SECONDS), ("0.00 0.25 0.50 0.75 1.00".into(), "ms"));
        assert_eq!(labels(1.9e-3, &SECONDS), ("0.0 0.5 1.0 1.5".into(), "ms"));
        assert_eq!(labels(5.0, &BYTES), ("0 1 2 3 4 5".into(), "B"));
        assert_eq!(labels(1.0, &BYTES), ("0.0 0.2 0.4 0.6 0.8 1.0".into(), "B"));
    }

    #[test]
    fn nothing_has_an_axis_too() {
        assert_eq!(labels(0.0, &BYTES), ("0".into(), "B"));
        assert_eq!(labels(3e-15, &SECONDS).1, "ps");
    }

    #[test]
    fn powers() {
        assert_eq!(power_of_ten(-12), "10⁻¹²");
        assert_eq!(power_of_ten(0), "10⁰");
        assert_eq!(power_of_ten(345), "10³⁴⁵");
    }
}
