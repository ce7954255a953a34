//! A mask as a picture: K down, N across, the darker the more is kept.

use crate::report::human::{shorten, whole};
use rdusim_graph::sparsity::BlockMask;

use super::frame::{LABEL, MARGIN, SUBTITLE, TITLE, fitted};
use super::paint::{self, ChartError};
use super::palette::{AXIS, BLUE, Color, INK, WHITE};
use super::scene::{Anchor, Area, Face, Scene};

/// Cells along the longer side at most.
const MOST_CELLS: u64 = 160;
/// Longer side of the picture of the matrix.
const SIDE: f64 = 760.0;
/// Shades from empty to full.
const SHADES: u64 = 16;

/// A picture of a mask.
#[derive(Debug, Clone, Copy)]
pub struct MaskChart<'a> {
    source: &'a str,
    mask: &'a BlockMask,
}

impl<'a> MaskChart<'a> {
    /// The picture of `mask`; `source` says where it is from.
    pub fn new(source: &'a str, mask: &'a BlockMask) -> Self {
        Self { source, mask }
    }

    /// The picture as an SVG file.
    pub fn svg(self) -> Result<String, ChartError> {
        paint::svg(&self.scene())
    }

    /// The picture as a PNG file.
    pub fn png(self) -> Result<Vec<u8>, ChartError> {
        paint::png(&self.scene())
    }

    fn scene(self) -> Scene {
        let mask = self.mask;
        let (rows, columns) = (mask.rows(), mask.columns());
        // Cells of whole blocks, as many as have room.
        let longest = mask.k_blocks().max(mask.n_blocks());
        let step = longest.div_ceil(MOST_CELLS);
        let (down, across) = (mask.k_blocks().div_ceil(step), mask.n_blocks().div_ceil(step));
        let cell = (SIDE / down.max(across) as f64).floor().max(1.0);
        let (width, height) = (across as f64 * cell, down as f64 * cell);
        let (left, top) = (MARGIN + 24.0, 122.0);
        let mut scene = Scene::new((left + width + MARGIN).max(560.0), top + height + 70.0);
        let room = scene.width - 2.0 * MARGIN;
        let title = fitted(&shorten(self.source, 100), TITLE, room).unwrap_or_else(|| "mask".to_owned());
        scene.text((MARGIN, 36.0), Anchor::Start, TITLE, &title);
        let density = mask.stored_elements() as f64 / (rows as f64 * columns as f64);
        let about = format!(
            "{} x {} in blocks of {} x {}, density {density:.4}; a cell is {step} x {step} blocks",
            whole(rows),
            whole(columns),
            mask.block_rows(),
            mask.block_columns(),
        );
        scene.text((MARGIN, 62.0), Anchor::Start, SUBTITLE, &about);
        scene.text((left, top - 16.0), Anchor::Start, LABEL, "columns (N) to the right, rows (K) downwards");
        let counts = cells(mask, step, down, across);
        let full = (step * step) as f64;
        for (y, line) in counts.chunks(across as usize).enumerate() {
            // Runs of one shade are one box.
            let shade = |count: u64| (count as f64 / full * SHADES as f64).ceil() as u64;
            let mut x = 0;
            while x < line.len() {
                let of = shade(line[x]);
                let end = (x..line.len()).find(|&i| shade(line[i]) != of).unwrap_or(line.len());
                if of > 0 {
                    let area = Area {
                        left: left + x as f64 * cell,
                        top: top + y as f64 * cell,
                        width: (end - x) as f64 * cell,
                        height: cell,
                    };
                    scene.fill(area, color(of));
                }
                x = end;
            }
        }
        scene.frame(Area { left, top, width, height }, AXIS);
        legend(&mut scene, left, top + height + 30.0);
        scene
    }
}

/// Kept blocks in each cell, by rows of cells.
fn cells(mask: &BlockMask, step: u64, down: u64, across: u64) -> Vec<u64> {
    let mut counts = vec![0u64; (down * across) as usize];
    for n in 0..mask.n_blocks() {
        for (w, &word) in mask.column_words(n).iter().enumerate() {
            let mut left = word;
            while left != 0 {
                let k = w as u64 * 64 + u64::from(left.trailing_zeros());
                counts[((k / step) * across + n / step) as usize] += 1;
                left &= left - 1;
            }
        }
    }
    counts
}

/// White for nothing, ink for everything.
fn color(shade: u64) -> Color {
    let share = shade as f64 / SHADES as f64;
    if share >= 1.0 { INK } else { BLUE.tint(0.85 * (1.0 - share)) }
}

fn legend(scene: &mut Scene, left: f64, top: f64) {
    const BOX: f64 = 14.0;
    let face = Face { em: 12.5, ..LABEL };
    let mut x = left;
    for (shade, name) in [(0, "empty"), (1, "few"), (SHADES / 2, "half"), (SHADES, "all kept")] {
        let area = Area { left: x, top, width: BOX, height: BOX };
        scene.fill(area, if shade == 0 { WHITE } else { color(shade) });
        scene.frame(area, AXIS);
        scene.text((x + BOX + 6.0, top + BOX / 2.0), Anchor::Start, face, name);
        x += BOX + 24.0 + face.width(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdusim_graph::sparsity::Pattern;

    #[test]
    fn cells_hold_every_block() {
        let mask = Pattern::Random { density: 0.2 }.draw(1000, 700, (2, 3), 1);
        let counts = cells(&mask, 4, 125, 59);
        assert_eq!(counts.iter().sum::<u64>(), mask.kept_blocks());
        let full = Pattern::Random { density: 1.0 }.draw(64, 64, (16, 16), 1);
        assert_eq!(cells(&full, 1, 4, 4), [1; 16]);
    }

    #[test]
    fn masks_of_all_shapes_are_drawn() {
        for (rows, columns) in [(1, 1), (3, 100_000), (100_000, 2), (500, 500)] {
            let mask = Pattern::Random { density: 0.5 }.draw(rows, columns, (1, 1), 1);
            let chart = MaskChart::new("test", &mask);
            assert!(chart.svg().expect("is drawn").contains("<svg"), "{rows} x {columns}");
            let scene = chart.scene();
            assert!(scene.width < 1200.0 && scene.height < 1200.0, "{rows} x {columns}");
        }
    }
}
