//! A picture as plain shapes, laid out once and painted by any backend.
//!
//! Charts place shapes here in logical pixels and can measure text; only the painter knows of SVG or pixels. So both
//! files of a chart show the same thing, and tests can ask whether two texts overlap.

use super::font;
use super::palette::Color;
use crate::report::human::clean;

/// Half the height of the font's capitals in ems.
pub(super) const HALF_CAPITAL: f64 = 0.365;

/// Which point of a text its position names; vertically always the middle of its capitals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Size and looks of a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Face {
    pub(super) em: f64,
    pub(super) bold: bool,
    pub(super) color: Color,
}

impl Face {
    /// Width of `text` in logical pixels.
    pub(super) fn width(self, text: &str) -> f64 {
        font::width(text, self.bold, self.em)
    }
}

/// An axis-parallel box.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Area {
    pub(super) fn right(self) -> f64 {
        self.left + self.width
    }

    pub(super) fn bottom(self) -> f64 {
        self.top + self.height
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        self.left < other.right() && other.left < self.right() && self.top < other.bottom() && other.top < self.bottom()
    }

    pub(super) fn contains(self, x: f64, y: f64) -> bool {
        (self.left..=self.right()).contains(&x) && (self.top..=self.bottom()).contains(&y)
    }

    pub(super) fn encloses(self, other: Self) -> bool {
        self.contains(other.left, other.top) && self.contains(other.right(), other.bottom())
    }
}

/// One shape.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    Fill(Area, Color),
    Frame(Area, Color),
    Line { from: (f64, f64), to: (f64, f64), width: u32, color: Color },
    Circle { center: (f64, f64), radius: f64, color: Color },
    Text { at: (f64, f64), anchor: Anchor, face: Face, text: String },
}

/// A picture: shapes in painting order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scene {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) shapes: Vec<Shape>,
}

impl Scene {
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self { width, height, shapes: Vec::new() }
    }

    pub(super) fn fill(&mut self, area: Area, color: Color) {
        self.shapes.push(Shape::Fill(area, color));
    }

    pub(super) fn frame(&mut self, area: Area, color: Color) {
        self.shapes.push(Shape::Frame(area, color));
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), width: u32, color: Color) {
        self.shapes.push(Shape::Line { from, to, width, color });
    }

    /// A line of dashes and gaps of `dash` logical pixels.
    pub(super) fn dashes(&mut self, from: (f64, f64), to: (f64, f64), dash: f64, color: Color) {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx.hypot(dy);
        let at = |d: f64| (from.0 + dx * d / length, from.1 + dy * d / length);
        let mut start = 0.0;
        while start < length {
            self.line(at(start), at((start + dash).min(length)), 2, color);
            start += 2.0 * dash;
        }
    }

    pub(super) fn circle(&mut self, center: (f64, f64), radius: f64, color: Color) {
        self.shapes.push(Shape::Circle { center, radius, color });
    }

    /// Fills `area` with `color` thinned and hatched.
    pub(super) fn hatch(&mut self, area: Area, color: Color) {
        self.fill(area, color.tint(0.65));
        // Lines x + y = c, clipped to the area.
        let step = 9.0;
        let mut c = ((area.left + area.top) / step).ceil() * step;
        while c < area.right() + area.bottom() {
            let x0 = (c - area.bottom()).max(area.left);
            let x1 = (c - area.top).min(area.right());
            if x1 > x0 {
                self.line((x0, c - x0), (x1, c - x1), 1, color);
            }
            c += step;
        }
        self.frame(area, color);
    }

    pub(super) fn text(&mut self, at: (f64, f64), anchor: Anchor, face: Face, text: &str) {
        self.shapes.push(Shape::Text { at, anchor, face, text: clean(text).into_owned() });
    }

    /// The box a text would take, descenders included.
    pub(super) fn text_area(at: (f64, f64), anchor: Anchor, face: Face, text: &str) -> Area {
        let width = face.width(&clean(text));
        let left = match anchor {
            Anchor::Start => at.0,
            Anchor::Middle => at.0 - width / 2.0,
            Anchor::End => at.0 - width,
        };
        Area { left, top: at.1 - face.em * 0.45, width, height: face.em * 1.05 }
    }
}
