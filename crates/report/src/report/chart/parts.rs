//! Where time goes: a bar for each case, made of the parts that add up to it.

use super::axis::{Linear, SECONDS};
use super::bars::{Bar, Fill, Key, Segment, draw};
use super::frame::{MARGIN, SUBTITLE, TITLE, WIDTH};
use super::paint::{self, ChartError};
use super::palette::SERIES;
use super::scene::{Anchor, Scene};
use crate::report::human::si;

/// Times of several cases by their parts.
#[derive(Debug, Clone, PartialEq)]
pub struct PartsChart {
    /// What is shown.
    pub title: String,
    /// On what.
    pub about: String,
    /// Names of the parts; those that are nothing in all cases are left out.
    pub parts: Vec<String>,
    /// Cases: a name, and seconds of each part.
    pub cases: Vec<(String, Vec<f64>)>,
}

impl PartsChart {
    /// The picture as an SVG file.
    pub fn svg(&self) -> Result<String, ChartError> {
        paint::svg(&self.scene())
    }

    /// The picture as a PNG file.
    pub fn png(&self) -> Result<Vec<u8>, ChartError> {
        paint::png(&self.scene())
    }

    fn scene(&self) -> Scene {
        let mut scene = Scene::new(WIDTH, 0.0);
        scene.text((MARGIN, 36.0), Anchor::Start, TITLE, &self.title);
        scene.text((MARGIN, 62.0), Anchor::Start, SUBTITLE, &self.about);
        let sum = |values: &[f64]| values.iter().sum::<f64>();
        let most = self.cases.iter().map(|(_, values)| sum(values)).fold(0.0, f64::max);
        let fill = |at: usize| Fill::Solid(SERIES[at % SERIES.len()]);
        // What rounding leaves is no part.
        let is_there =
            |at: usize| self.cases.iter().any(|(_, values)| values.get(at).is_some_and(|&of| of > most * 1e-9));
        let segment = |(at, &size): (usize, &f64)| Segment {
            size: size.max(0.0),
            fill: fill(at),
            name: self.parts.get(at).cloned().unwrap_or_default(),
            lines: vec![si(size, "s")],
        };
        let bar = |(name, values): &(String, Vec<f64>)| Bar {
            name: name.clone(),
            total: si(sum(values), "s"),
            segments: values.iter().enumerate().filter(|(at, _)| is_there(*at)).map(segment).collect(),
            mark: None,
        };
        let bars: Vec<Bar> = self.cases.iter().map(bar).collect();
        let named = self.parts.iter().enumerate().filter(|(at, _)| is_there(*at));
        let keys: Vec<Key> = named.map(|(at, name)| Key::Fill(fill(at), name.clone())).collect();
        draw(&mut scene, 84.0, &bars, &Linear::new(most, &SECONDS), &keys);
        scene
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_nothing_are_left_out() {
        let chart = PartsChart {
            title: "t".into(),
            about: "a".into(),
            parts: vec!["computing".into(), "bubbles".into(), "host".into()],
            cases: vec![("1 user".into(), vec![2e-3, 0.0, 1e-4]), ("2 users".into(), vec![3e-3, 0.0, 1e-4])],
        };
        let svg = chart.svg().expect("is drawn");
        assert!(svg.contains("computing") && svg.contains("2 users") && svg.contains("3.1"), "{svg}");
        assert!(!svg.contains("bubbles"));
        assert!(!chart.png().expect("is drawn").is_empty());
    }
}
