//! Where two answers cross along an axis: by bisection, with what the gaps of the mappings leave open.

use std::fmt::Write as _;

use crate::report::human::plain;

/// Points between the ends that are looked at first.
const INNER: usize = 3;
/// Share of a value to which the crossing is found.
const WIDTH: f64 = 0.01;
/// Halvings at most: of a range of 2^20 whole numbers, or of a real one to a thousandth of an inner interval.
const MOST_HALVINGS: usize = 20;

/// What a chip takes at a point.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Seconds that the run takes, or a token of a pod.
    pub seconds: f64,
    /// Seconds that no mapping beats; `seconds` where there is no such bound.
    pub least_s: f64,
    /// What bounds most of it.
    pub bound_by: String,
    /// Dollars for each of these seconds, of all chips; `None` where time itself is compared.
    pub usd_per_s: Option<f64>,
}

impl Measured {
    /// What is compared: dollars where seconds have a price, else seconds.
    fn cost(&self, seconds: f64) -> f64 {
        seconds * self.usd_per_s.unwrap_or(1.0)
    }

    /// Dollars, where seconds have a price.
    pub fn usd(&self) -> Option<f64> {
        self.usd_per_s.map(|usd| usd * self.seconds)
    }
}

/// Both chips at a value of the axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The value of the axis at which they ran.
    pub at: f64,
    /// What the side takes whose field may be the axis.
    pub first: Measured,
    /// What the side takes that it is compared with.
    pub second: Measured,
}

impl Compared {
    /// How many times as fast, or as cheap, the first is.
    pub fn ratio(&self) -> f64 {
        let (first, second) = (&self.first, &self.second);
        second.cost(second.seconds) / first.cost(first.seconds)
    }

    /// The least and the most that better mappings of either would make of it.
    pub fn ratio_range(&self) -> (f64, f64) {
        let (first, second) = (&self.first, &self.second);
        let [least, most] = [(second.least_s, first.seconds), (second.seconds, first.least_s)];
        (second.cost(least.0) / first.cost(least.1), second.cost(most.0) / first.cost(most.1))
    }

    /// Better mappings would not turn the verdict.
    fn is_certain(&self) -> bool {
        let (least, most) = self.ratio_range();
        least > 1.0 || most < 1.0
    }

    fn first_wins(&self) -> bool {
        self.ratio() >= 1.0
    }
}

/// Where the verdict turns, and everything that was run to find it.
#[derive(Debug, Clone, PartialEq)]
pub struct Crossing {
    /// Everything that was run, by rising values.
    pub points: Vec<Compared>,
    /// The value at which both take as long; nothing if none of the points turns the verdict.
    pub value: Option<f64>,
    /// Values between which better mappings could put it.
    pub range: Option<(f64, f64)>,
    /// Why, in a sentence or two.
    pub why: String,
}

/// The axis along which two sides are compared.
#[derive(Debug, Clone, Copy)]
pub struct Axis<'a> {
    /// Its path, as results name it.
    pub path: &'a str,
    /// The end where the search begins: of several crossings the one next to it is found.
    pub from: f64,
    /// The end where it stops.
    pub to: f64,
    /// Its values are whole numbers.
    pub is_whole: bool,
    /// Names of the chips.
    pub names: [&'a str; 2],
}

/// Finds the crossing next to `from`: the ends and points between them are compared, and of the first pair of neighbours that differ in
/// their verdict the interval is halved.
///
/// # Errors
/// What `compare` refuses at any of the values.
pub fn crossing<E>(axis: &Axis<'_>, compare: &mut dyn FnMut(f64) -> Result<Compared, E>) -> Result<Crossing, E> {
    let mut points = Vec::new();
    for at in axis.first_values() {
        points.push(compare(at)?);
    }
    let turn = |points: &[Compared]| points.windows(2).position(|pair| pair[0].first_wins() != pair[1].first_wins());
    let mut bracket = turn(&points).map(|at| (points[at].clone(), points[at + 1].clone()));
    for _ in 0..MOST_HALVINGS {
        let Some((low, high)) = &bracket else { break };
        let Some(middle) = axis.between(low.at, high.at) else { break };
        let found = compare(middle)?;
        points.push(found.clone());
        bracket = if found.first_wins() == low.first_wins() {
            Some((found, high.clone()))
        } else {
            Some((low.clone(), found))
        };
    }
    points.sort_by(|a, b| a.at.total_cmp(&b.at));
    let value = bracket.as_ref().map(|(low, high)| axis.interpolated(low, high));
    let range = bracket.as_ref().map(|(low, high)| axis.range(&points, low, high));
    let why = axis.why(&points, bracket.as_ref(), value, range);
    Ok(Crossing { points, value, range, why })
}

impl Axis<'_> {
    /// The ends and some values between them, from `from`: by equal factors where they are far apart.
    fn first_values(&self) -> Vec<f64> {
        let Self { from, to, .. } = *self;
        let is_wide = from > 0.0 && to > 0.0 && (to / from).max(from / to) >= 4.0;
        let last = INNER + 1;
        let part = |at: usize| at as f64 / last as f64;
        let value = |at: usize| match at {
            0 => from,
            _ if at == last => to,
            _ if is_wide => from * (to / from).powf(part(at)),
            _ => from + (to - from) * part(at),
        };
        let mut list: Vec<f64> =
            (0..=last).map(value).map(|value| if self.is_whole { value.round() } else { value }).collect();
        list.dedup();
        list
    }

    /// A value in the middle; nothing if the two are as near as is asked for.
    fn between(&self, low: f64, high: f64) -> Option<f64> {
        let width = (high - low).abs();
        if self.is_whole {
            return (width > 1.0 && width > WIDTH * low.abs().min(high.abs())).then(|| low.midpoint(high).round());
        }
        (width > WIDTH * low.abs().max(high.abs())).then(|| low.midpoint(high))
    }

    /// Where the logarithm of the ratio is nought on a straight line between two points.
    fn interpolated(&self, low: &Compared, high: &Compared) -> f64 {
        let (a, b) = (low.ratio().ln(), high.ratio().ln());
        let part = if (a - b).abs() > 0.0 { a / (a - b) } else { 0.5 };
        let value = low.at + (high.at - low.at) * part.clamp(0.0, 1.0);
        if self.is_whole { value.round() } else { value }
    }

    /// From the bracket outwards to the nearest points whose verdict no mapping turns, or the ends.
    fn range(&self, points: &[Compared], a: &Compared, b: &Compared) -> (f64, f64) {
        let (low, high) = (a.at.min(b.at), a.at.max(b.at));
        let (least, most) = (self.from.min(self.to), self.from.max(self.to));
        let below = points.iter().rev().filter(|of| of.at <= low).find(|of| of.is_certain());
        let above = points.iter().filter(|of| of.at >= high).find(|of| of.is_certain());
        (below.map_or(least, |of| of.at), above.map_or(most, |of| of.at))
    }

    fn why(
        &self,
        points: &[Compared],
        bracket: Option<&(Compared, Compared)>,
        value: Option<f64>,
        range: Option<(f64, f64)>,
    ) -> String {
        let [first, second] = self.names;
        let faster = |of: &Compared| {
            let (name, other) = if of.first_wins() { (first, second) } else { (second, first) };
            let ratio = of.ratio().max(of.ratio().recip());
            let how = if of.first.usd_per_s.is_some() { "cheap" } else { "fast" };
            format!("{name} is {ratio:.3} times as {how} as {other}")
        };
        let (Some((a, b)), Some(value), Some((least, most))) = (bracket, value, range) else {
            let (Some(low), Some(high)) = (points.first(), points.last()) else { return "nothing was run".to_owned() };
            let name = if low.first_wins() { first } else { second };
            let how = if low.first.usd_per_s.is_some() { "cheaper" } else { "faster" };
            return format!(
                "{name} is the {how} at all {} values that were run: at {} {}, at {} {}",
                points.len(),
                plain(low.at),
                faster(low),
                plain(high.at),
                faster(high)
            );
        };
        let (low, high) = if a.at <= b.at { (a, b) } else { (b, a) };
        let bounds =
            |of: &Compared| format!("{first} bound by {}, {second} by {}", of.first.bound_by, of.second.bound_by);
        let same = if low.first.usd_per_s.is_some() { "cost as much" } else { "take as long" };
        let mut why = format!(
            "at {} = {} both {same}: below it {} ({} at {}), above it {} ({} at {})",
            self.path,
            plain(value),
            if low.first_wins() { first } else { second },
            bounds(low),
            plain(low.at),
            if high.first_wins() { first } else { second },
            bounds(high),
            plain(high.at)
        );
        let has_gap = |of: &Compared| [&of.first, &of.second].iter().any(|side| side.least_s < side.seconds);
        let how = if points.iter().any(has_gap) { "better mappings could put it" } else { "it lies" };
        let _ = write!(why, "; {how} anywhere from {} to {}", plain(least), plain(most));
        if points.windows(2).filter(|pair| pair[0].first_wins() != pair[1].first_wins()).count() > 1 {
            why += "; the verdict turns more than once: this is the crossing next to the first end";
        }
        why
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(from: f64, to: f64, is_whole: bool) -> Axis<'static> {
        Axis { path: "arch.rate", from, to, is_whole, names: ["A", "B"] }
    }

    fn measured(seconds: f64, gap: f64) -> Measured {
        Measured { seconds, least_s: seconds / (1.0 + gap), bound_by: "memory".to_owned(), usd_per_s: None }
    }

    /// A takes 100 / x seconds, B takes 4: they cross at 25.
    fn found(from: f64, to: f64, is_whole: bool, gap: f64) -> Crossing {
        crossing::<()>(&axis(from, to, is_whole), &mut |at| {
            Ok(Compared { at, first: measured(100.0 / at, gap), second: measured(4.0, 0.0) })
        })
        .unwrap()
    }

    #[test]
    fn a_crossing_by_hand_is_found_from_either_end() {
        for (from, to) in [(1.0, 100.0), (100.0, 1.0), (20.0, 30.0)] {
            for is_whole in [false, true] {
                let value = found(from, to, is_whole, 0.0).value.unwrap();
                assert!((value / 25.0 - 1.0).abs() < 0.005, "{from}..{to}: {value}");
                assert!(!is_whole || value.fract() == 0.0);
            }
        }
    }

    #[test]
    fn gaps_widen_the_range_and_nothing_else() {
        let (sure, open) = (found(1.0, 100.0, false, 0.0), found(1.0, 100.0, false, 0.2));
        assert_eq!(sure.value, open.value);
        let width = |of: &Crossing| of.range.map(|(low, high)| high - low).unwrap();
        assert!(width(&sure) < 0.3 && width(&open) > 3.0, "{:?} {:?}", sure.range, open.range);
        // With mappings 20 % from the best, A may already win from 100 / 25 / 1.2 on.
        assert!(open.range.unwrap().0 <= 25.0 / 1.2);
    }

    #[test]
    fn a_price_moves_the_crossing_of_times_to_that_of_dollars() {
        // A takes 10 s at x dollars a second, B 4 s at 5 dollars: 2 dollars a second for A.
        let found = crossing::<()>(&axis(0.5, 50.0, false), &mut |at| {
            let priced = |seconds: f64, usd: f64| Measured { usd_per_s: Some(usd), ..measured(seconds, 0.0) };
            Ok(Compared { at, first: priced(10.0, at), second: priced(4.0, 5.0) })
        })
        .unwrap();
        assert!((found.value.unwrap() - 2.0).abs() < 0.01, "{found:?}");
        assert!(found.why.contains("cost as much"), "{}", found.why);
    }

    #[test]
    fn without_a_crossing_the_faster_is_named() {
        let none = found(1.0, 20.0, false, 0.0);
        assert_eq!((none.value, none.range), (None, None));
        assert!(none.why.contains("B is the faster at all"), "{}", none.why);
    }
}
