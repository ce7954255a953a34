//! Painting a scene: the only code that talks to the drawing library.

use plotters::backend::{DrawingBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color as _, FontDesc, FontFamily, FontStyle, TextStyle, WHITE};

use super::font::FAMILIES;
use super::pixels::Pixels;
use super::scene::{Anchor, HALF_CAPITAL, Scene, Shape};

/// Pixels of a PNG a logical pixel.
const PNG_SCALE: f64 = 2.0;

/// A picture could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ChartError {
    /// The drawing library refused.
    #[error("drawing failed: {0}")]
    Drawing(String),
    /// The grid has more sites along a side than a picture can show.
    #[error("a grid of {0} x {1} sites is too large for a picture")]
    TooLarge(u32, u32),
    /// The picture could not be encoded.
    #[error("encoding the PNG failed: {0}")]
    Png(#[from] png::EncodingError),
}

/// How a backend understands sizes.
struct Convention {
    /// Pixels a logical pixel.
    scale: f64,
    /// Font size that gives an em of 1.
    size_per_em: f64,
    /// Distance of the baseline below the position of a text anchored at its top, in ems.
    baseline_em: f64,
}

/// The scene as an SVG file.
pub(super) fn svg(scene: &Scene) -> Result<String, ChartError> {
    let mut text = String::new();
    {
        let size = (scene.width.ceil() as u32, scene.height.ceil() as u32);
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        paint(scene, &area, &Convention { scale: 1.0, size_per_em: 1.24, baseline_em: 0.76 })?;
    }
    Ok(text)
}

/// The scene as a PNG file.
pub(super) fn png(scene: &Scene) -> Result<Vec<u8>, ChartError> {
    let (width, height) = ((scene.width * PNG_SCALE).ceil() as u32, (scene.height * PNG_SCALE).ceil() as u32);
    let mut pixels = vec![0; width as usize * height as usize * 3];
    {
        let area = Pixels::new(&mut pixels, width, height).into_drawing_area();
        let convention = Convention { scale: PNG_SCALE, size_per_em: 1.0, baseline_em: 0.0 };
        paint(scene, &area, &convention)?;
    }
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    // Flat colours compress best as they are.
    encoder.set_compression(png::Compression::Default);
    encoder.set_filter(png::FilterType::NoFilter);
    encoder.set_adaptive_filter(png::AdaptiveFilterType::NonAdaptive);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(file)
}

fn paint<B: DrawingBackend>(
    scene: &Scene,
    area: &DrawingArea<B, Shift>,
    convention: &Convention,
) -> Result<(), ChartError> {
    let all = || {
        area.fill(&WHITE)?;
        for shape in &scene.shapes {
            paint_shape(shape, area, convention)?;
        }
        area.present()
    };
    all().map_err(|error: DrawingAreaErrorKind<B::ErrorType>| ChartError::Drawing(error.to_string()))
}

fn paint_shape<B: DrawingBackend>(
    shape: &Shape,
    area: &DrawingArea<B, Shift>,
    convention: &Convention,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let scale = convention.scale;
    let pixel = |(x, y): (f64, f64)| ((x * scale).round() as i32, (y * scale).round() as i32);
    match shape {
        Shape::Fill(rect, color) => {
            let corners = [pixel((rect.left, rect.top)), pixel((rect.right(), rect.bottom()))];
            area.draw(&Rectangle::new(corners, color.rgb().filled()))
        }
        Shape::Frame(rect, color) => {
            let corners = [pixel((rect.left, rect.top)), pixel((rect.right(), rect.bottom()))];
            area.draw(&Rectangle::new(corners, color.rgb().stroke_width(1)))
        }
        Shape::Line { from, to, width, color } => {
            let pixels = (f64::from(*width) * scale).round() as u32;
            area.draw(&PathElement::new([pixel(*from), pixel(*to)], color.rgb().stroke_width(pixels)))
        }
        Shape::Circle { center, radius, color } => {
            area.draw(&Circle::new(pixel(*center), (radius * scale).round() as i32, color.rgb().filled()))
        }
        Shape::Text { at, anchor, face, text } => {
            let em = face.em * scale;
            let style = if face.bold { FontStyle::Bold } else { FontStyle::Normal };
            let font = FontDesc::new(FontFamily::Name(FAMILIES), em * convention.size_per_em, style);
            let horizontal = match anchor {
                Anchor::Start => HPos::Left,
                Anchor::Middle => HPos::Center,
                Anchor::End => HPos::Right,
            };
            let color = face.color.rgb();
            let style = TextStyle::from(font).color(&color).pos(Pos::new(horizontal, VPos::Top));
            let (x, y) = pixel(*at);
            let top = y + ((HALF_CAPITAL - convention.baseline_em) * em).round() as i32;
            area.draw(&Text::new(text.as_str(), (x, top), style))
        }
    }
}
