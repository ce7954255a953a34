//! Axes over any numbers, linear or logarithmic, labelled in the unit that a field's name ends in.

use crate::report::human::{bytes_short, si_short};

/// Ticks of an axis, at most.
const MOST_TICKS: usize = 9;
/// Above this ratio of its ends an axis is logarithmic.
const LOGARITHMIC: f64 = 7.5;

/// From numbers to pixels.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    pixels: (f64, f64),
    pub(super) ticks: Vec<(f64, String)>,
}

impl Scale {
    /// A scale that holds all numbers. With `at_numbers` the ticks are the numbers themselves, if they are few.
    pub(super) fn new(numbers: impl Iterator<Item = f64>, name: &str, pixels: (f64, f64), at_numbers: bool) -> Self {
        let mut sorted: Vec<f64> = numbers.filter(|number| number.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        sorted.dedup();
        let (least, most) = (sorted.first().copied().unwrap_or(0.0), sorted.last().copied().unwrap_or(1.0));
        let logarithmic = least > 0.0 && most / least > LOGARITHMIC;
        let (low, high) = if logarithmic || (at_numbers && most > least) {
            (least, most)
        } else {
            (least.min(0.0), if most > 0.0 { most * 1.05 } else { 1.0 })
        };
        let mut scale = Self { low, high, logarithmic, pixels, ticks: Vec::new() };
        let ticks = if at_numbers && sorted.len() <= MOST_TICKS && !sorted.is_empty() { sorted } else { scale.round() };
        scale.ticks = ticks.into_iter().map(|number| (number, label(number, name))).collect();
        scale
    }

    /// The pixel of a number.
    pub(super) fn at(&self, number: f64) -> f64 {
        let place = |x: f64| if self.logarithmic { x.ln() } else { x };
        let (low, high) = (place(self.low), place(self.high));
        let part = if high > low { (place(number) - low) / (high - low) } else { 0.5 };
        let part = if part.is_finite() { part } else { 0.5 };
        self.pixels.0 + part * (self.pixels.1 - self.pixels.0)
    }

    /// Round numbers between the ends.
    fn round(&self) -> Vec<f64> {
        if self.logarithmic {
            let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
            let digits: &[f64] = if last - first <= 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let every = (last - first).unsigned_abs().div_ceil(MOST_TICKS as u32).max(1) as usize;
            let all = (first..=last).step_by(every).flat_map(|e| digits.iter().map(move |d| d * 10f64.powi(e)));
            return all.filter(|tick| (self.low * 0.999..=self.high * 1.001).contains(tick)).collect();
        }
        let rough = (self.high - self.low) / 6.0;
        if !(rough > 0.0 && rough.is_finite()) {
            return vec![self.low];
        }
        let power = 10f64.powf(rough.log10().floor());
        let step = power * [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|f| power * f >= rough).unwrap_or(10.0);
        let first = (self.low / step).ceil();
        (0..MOST_TICKS).map(|i| (first + i as f64) * step).take_while(|tick| *tick <= self.high).collect()
    }
}

/// A number as a field of this name is read.
pub fn label(number: f64, name: &str) -> String {
    if name.ends_with("_gb_per_s") {
        return si_short(number * 1e9, "B/s");
    }
    if name.ends_with("_bytes") && number >= 0.0 && number.fract().abs() < f64::EPSILON {
        return bytes_short(number as u64);
    }
    let unit = [("_s", "s"), ("_us", "us"), ("_j", "J"), ("_w", "W")];
    if let Some((_, unit)) = unit.iter().find(|(end, _)| name.ends_with(end)) {
        return if *unit == "us" { si_short(number / 1e6, "s") } else { si_short(number, unit) };
    }
    if number.abs() >= 100_000.0 || (number != 0.0 && number.abs() < 0.001) {
        return si_short(number, "").trim_end().to_owned();
    }
    // A density of 1/16 is 0.0625.
    let decimals = match number.abs() {
        100.0.. => 1,
        1.0.. => 3,
        _ => 4,
    };
    let text = format!("{number:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A field or figure in words: `arch.memory.ddr.bandwidth_gb_per_s` is `DDR bandwidth`. Its unit stands at its values.
pub fn words(name: &str) -> String {
    const UNITS: [&str; 8] = ["_gb_per_s", "_bytes", "_us", "_s", "_j", "_w", "_cycles", "_ghz"];
    const NAMES: [&str; 9] = ["pcu", "pmu", "ddr", "hbm", "sram", "ag", "pcus", "pmus", "ags"];
    const PLURALS: [(&str, &str); 3] = [("pcus", "PCUs"), ("pmus", "PMUs"), ("ags", "AGs")];
    let path = name.strip_prefix("workload.dims.").or_else(|| name.strip_prefix("arch.")).unwrap_or(name);
    let path = path.rmatch_indices('.').nth(1).map_or(path, |(at, _)| &path[at + 1..]);
    let unit = UNITS.iter().find(|unit| path.ends_with(*unit) && path.len() > unit.len());
    let stem = unit.map_or(path, |unit| &path[..path.len() - unit.len()]);
    let rest = match unit {
        Some(&"_ghz") => " (GHz)",
        Some(&"_cycles") => " (cycles)",
        _ => "",
    };
    let word = |word: &str| match PLURALS.iter().find(|(plain, _)| *plain == word) {
        Some((_, plural)) => (*plural).to_owned(),
        None if NAMES.contains(&word) => word.to_uppercase(),
        None => word.to_owned(),
    };
    let words: Vec<String> = stem.split(['.', '_']).filter(|part| !part.is_empty()).map(word).collect();
    if words.is_empty() { name.to_owned() } else { words.join(" ") + rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_follow_names() {
        assert_eq!(label(262_144.0, "arch.pmu.capacity_bytes"), "256 KiB");
        assert_eq!(label(0.0046, "fused.time_s"), "4.6 ms");
        assert_eq!(label(100.0, "arch.memory.ddr.bandwidth_gb_per_s"), "100 GB/s");
        assert_eq!(label(1.5, "speedup"), "1.5");
        assert_eq!(label(0.0625, "workload.tensors.w.sparsity.density"), "0.0625");
        assert_eq!(label(1_000_000.0, "fused.cycles"), "1 M");
    }

    #[test]
    fn names_are_read_as_words() {
        for (name, wanted) in [
            ("arch.memory.ddr.bandwidth_gb_per_s", "DDR bandwidth"),
            ("arch.pmu.capacity_bytes", "PMU capacity"),
            ("fused.time_s", "fused time"),
            ("workload.dims.tokens", "tokens"),
            ("arch.clock_ghz", "clock (GHz)"),
            ("speedup", "speedup"),
        ] {
            assert_eq!(words(name), wanted);
        }
    }

    #[test]
    fn numbers_keep_their_order() {
        let scale = Scale::new([1.0, 10.0, 100.0].into_iter(), "x", (0.0, 100.0), true);
        assert_eq!([1.0, 10.0, 100.0].map(|x| scale.at(x).round() as u32), [0, 50, 100]);
        let scale = Scale::new([1.0, 2.0].into_iter(), "x", (100.0, 0.0), false);
        assert!(scale.at(1.0) > scale.at(2.0) && scale.ticks[0].1 == "0");
    }
}
