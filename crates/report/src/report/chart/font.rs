//! The typeface of the charts, carried in the program: measuring and rasterising it.

use std::sync::LazyLock;

use ab_glyph::{Font, FontRef, Glyph, PxScale, ScaleFont, point};
use dejavu::sans;

/// The families an SVG asks for; the first is the one measured here, the next ones are about as wide.
pub(super) const FAMILIES: &str = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif";

static REGULAR: LazyLock<Option<FontRef<'static>>> = LazyLock::new(|| FontRef::try_from_slice(sans::regular()).ok());
static BOLD: LazyLock<Option<FontRef<'static>>> = LazyLock::new(|| FontRef::try_from_slice(sans::bold()).ok());

/// The font, scaled so that an em is `em` pixels.
fn scaled(bold: bool, em: f64) -> Option<impl ScaleFont<&'static FontRef<'static>>> {
    let font: &'static FontRef<'static> = if bold { BOLD.as_ref() } else { REGULAR.as_ref() }?;
    let height = font.height_unscaled() / font.units_per_em()?;
    Some(font.as_scaled(PxScale::from(height * em as f32)))
}

/// Glyphs of `text` in a row from x = 0 on the baseline y = 0, and the width they take.
fn lay_out(text: &str, bold: bool, em: f64) -> (Vec<Glyph>, f32) {
    let Some(font) = scaled(bold, em) else { return (Vec::new(), 0.6 * em as f32 * text.chars().count() as f32) };
    let mut glyphs: Vec<Glyph> = Vec::new();
    let mut x = 0.0;
    for c in text.chars() {
        let mut glyph = font.scaled_glyph(c);
        if let Some(last) = glyphs.last() {
            x += font.kern(last.id, glyph.id);
        }
        glyph.position = point(x, 0.0);
        x += font.h_advance(glyph.id);
        glyphs.push(glyph);
    }
    (glyphs, x)
}

/// Width of `text` in the unit of `em`.
pub(super) fn width(text: &str, bold: bool, em: f64) -> f64 {
    // Measured in thousandths of an em: glyphs are not hinted, so widths scale.
    f64::from(lay_out(text, bold, 1000.0).1) * em / 1000.0
}

/// Calls `ink(x, y, coverage)` for every pixel `text` touches, relative to the start of its baseline.
pub(super) fn rasterise(text: &str, bold: bool, em: f64, mut ink: impl FnMut(i32, i32, f64)) {
    let Some(font) = scaled(bold, em) else { return };
    for glyph in lay_out(text, bold, em).0 {
        let Some(outline) = font.outline_glyph(glyph) else { continue };
        let corner = outline.px_bounds().min;
        outline.draw(|x, y, coverage| {
            ink(corner.x as i32 + x.cast_signed(), corner.y as i32 + y.cast_signed(), f64::from(coverage));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn width_scales_and_adds_up() {
        let one = width("0", false, 10.0);
        assert!((one - 6.36).abs() < 0.01, "{one}");
        assert!((width("000", false, 20.0) - 6.0 * one).abs() < 1e-3);
        assert!(width("0", true, 10.0) > one);
        assert!(width("", false, 10.0).abs() < 1e-9);
    }

    #[test]
    fn ink_stays_in_the_box_of_the_text() {
        let (mut left, mut right, mut top, mut bottom, mut pixels) = (i32::MAX, i32::MIN, i32::MAX, i32::MIN, 0);
        rasterise("Hxg", false, 40.0, |x, y, coverage| {
            if coverage > 0.0 {
                (left, right, top, bottom) = (left.min(x), right.max(x), top.min(y), bottom.max(y));
                pixels += 1;
            }
        });
        assert!(pixels > 300);
        assert!(left >= 0 && f64::from(right) < width("Hxg", false, 40.0));
        // Capitals are 0.73 em high, descenders reach 0.24 em below the baseline.
        assert!((-31..=-28).contains(&top) && (6..=10).contains(&bottom), "{top} {bottom}");
    }
}
