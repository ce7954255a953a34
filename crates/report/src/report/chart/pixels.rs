//! A drawing backend of smooth pixels: lines of any width and text are antialiased.

use std::convert::Infallible;

use plotters::style::FontStyle;
use plotters::style::text_anchor::HPos;
use plotters_backend::{BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind};

use super::font;

/// An RGB image, row by row, on white.
pub(super) struct Pixels<'a> {
    width: u32,
    height: u32,
    rgb: &'a mut [u8],
}

impl<'a> Pixels<'a> {
    /// `rgb` holds three bytes a pixel.
    pub(super) fn new(rgb: &'a mut [u8], width: u32, height: u32) -> Self {
        rgb.fill(0xff);
        Self { width, height, rgb }
    }

    /// Mixes a colour into a pixel; outside the image nothing happens.
    fn blend(&mut self, x: i32, y: i32, color: BackendColor, coverage: f64) {
        let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y)) else { return };
        if x >= self.width || y >= self.height {
            return;
        }
        let start = 3 * (y as usize * self.width as usize + x as usize);
        let share = (color.alpha * coverage).clamp(0.0, 1.0);
        let (red, green, blue) = color.rgb;
        // Most pixels of a chart lie inside a shape, whose colour replaces what was there.
        if share >= 1.0 {
            self.rgb[start..start + 3].copy_from_slice(&[red, green, blue]);
            return;
        }
        for (old, new) in self.rgb[start..start + 3].iter_mut().zip([red, green, blue]) {
            *old = (f64::from(*old) + (f64::from(new) - f64::from(*old)) * share).round() as u8;
        }
    }
}

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

impl DrawingBackend for Pixels<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, color: BackendColor) -> Drawn {
        self.blend(x, y, color, 1.0);
        Ok(())
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        let (x0, y0) = (f64::from(from.0), f64::from(from.1));
        let (dx, dy) = (f64::from(to.0) - x0, f64::from(to.1) - y0);
        let length = dx.hypot(dy).max(1e-9);
        let (along_x, along_y) = (dx / length, dy / length);
        let half = f64::from(style.stroke_width()) / 2.0;
        let reach = half.ceil() as i32 + 1;
        // Coverage falls from 1 to 0 over a pixel at the sides and at the ends.
        let part = |distance: f64| (0.5 - distance).clamp(0.0, 1.0);
        let limit = |low: i32, high: i32, size: u32| (low - reach).max(0)..(high + reach + 1).min(size.cast_signed());
        for y in limit(from.1.min(to.1), from.1.max(to.1), self.height) {
            // Only the columns the line passes in this row.
            let columns = if dy.abs() < 1e-9 {
                limit(from.0.min(to.0), from.0.max(to.0), self.width)
            } else {
                let middle = x0 + (f64::from(y) - y0) * dx / dy;
                let spread = (half + 1.5) * (length / dy.abs());
                let (low, high) = (from.0.min(to.0), from.0.max(to.0));
                let (left, right) = ((middle - spread).floor() as i32, (middle + spread).ceil() as i32);
                limit(low.max(left), high.min(right), self.width)
            };
            for x in columns {
                let (px, py) = (f64::from(x) - x0, f64::from(y) - y0);
                let (along, across) = (px * along_x + py * along_y, (px * along_y - py * along_x).abs());
                let coverage = part(across - half) * part(-along) * part(along - length);
                self.blend(x, y, style.color(), coverage);
            }
        }
        Ok(())
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        upper_left: BackendCoord,
        bottom_right: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Drawn {
        if !fill {
            let (left, top, right, bottom) = (upper_left.0, upper_left.1, bottom_right.0, bottom_right.1);
            let corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)];
            return corners.windows(2).try_for_each(|ends| self.draw_line(ends[0], ends[1], style));
        }
        // The right and lower edges belong to the neighbour, as in SVG.
        for y in upper_left.1..bottom_right.1 {
            for x in upper_left.0..bottom_right.0 {
                self.blend(x, y, style.color(), 1.0);
            }
        }
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Drawn {
        let points: Vec<BackendCoord> = path.into_iter().collect();
        points.windows(2).try_for_each(|ends| self.draw_line(ends[0], ends[1], style))
    }

    fn draw_circle<S: BackendStyle>(&mut self, center: BackendCoord, radius: u32, style: &S, _fill: bool) -> Drawn {
        let reach = radius.cast_signed() + 1;
        for dy in -reach..=reach {
            for dx in -reach..=reach {
                let coverage = f64::from(radius) + 0.5 - f64::from(dx).hypot(f64::from(dy));
                self.blend(center.0 + dx, center.1 + dy, style.color(), coverage);
            }
        }
        Ok(())
    }

    /// Text whose font size is its em in pixels, its position the baseline.
    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, (x, y): BackendCoord) -> Drawn {
        let bold = matches!(style.style(), FontStyle::Bold);
        let width = font::width(text, bold, style.size());
        let left = match style.anchor().h_pos {
            HPos::Left => 0.0,
            HPos::Center => -width / 2.0,
            HPos::Right => -width,
        };
        let left = x + left.round() as i32;
        font::rasterise(text, bold, style.size(), |dx, dy, coverage| {
            self.blend(left + dx, y + dy, style.color(), coverage);
        });
        Ok(())
    }
}
