//! Windows of images as the chip takes them: PMUs hold pixels, each once, and expand them as PCUs read. The reference has
//! its own walk over images.

use std::ops::Range;

use rdusim_graph::workload::ImageOptions;

use super::block::Block;
use super::matrix::Matrix;

/// In the place of a pixel, what lies beside the image.
const BESIDE: u32 = u32::MAX;

/// The pixels under a run of windows, as a slot holds them.
#[derive(Debug)]
pub(super) struct Held {
    /// Rows of the image's matrix, in order.
    pub(super) pixels: Vec<u64>,
    /// Window by window and element by element of the kernel: which of the pixels it takes, `BESIDE` beside the image.
    places: Vec<u32>,
    taps: usize,
}

impl Held {
    /// What windows `rows` of images take.
    pub(super) fn new(image: &ImageOptions, rows: Range<u64>) -> Self {
        let taken: Vec<Option<u64>> = rows.flat_map(|row| under(image, row)).collect();
        let mut pixels: Vec<u64> = taken.iter().copied().flatten().collect();
        pixels.sort_unstable();
        pixels.dedup();
        let place = |pixel: u64| pixels.partition_point(|&other| other < pixel) as u32;
        let places = taken.into_iter().map(|pixel| pixel.map_or(BESIDE, place)).collect();
        Self { pixels, places, taps: image.taps() as usize }
    }

    /// The windows of a block of whole pixels: a row a window, channel by channel the elements under the kernel; `beside`
    /// stands for what lies beside the image.
    pub(super) fn expanded(&self, block: &Block, beside: f64) -> Block {
        let channels = block.values.columns;
        let rows = self.places.len() / self.taps;
        let mut values = Matrix::filled(rows, channels * self.taps, beside);
        for row in 0..rows {
            let line = values.row_mut(row);
            for (tap, place) in self.places[row * self.taps..(row + 1) * self.taps].iter().enumerate() {
                if *place == BESIDE {
                    continue;
                }
                let pixel = block.values.row(*place as usize);
                line.iter_mut().skip(tap).step_by(self.taps).zip(pixel).for_each(|(to, from)| *to = *from);
            }
        }
        Block { row: 0, column: block.column * self.taps, values }
    }
}

/// The pixels of a window, line by line of the kernel.
fn under(image: &ImageOptions, row: u64) -> impl Iterator<Item = Option<u64>> {
    let ImageOptions { image: [lines, across_image], kernel, stride, padding, dilation, .. } = *image;
    let [_, across] = image.output().unwrap_or([1, 1]);
    let places = image.output().map_or(1, |[lines, pixels]| lines * pixels);
    let (number, place) = (row / places, row % places);
    let (line, pixel) = (place / across * stride[0], place % across * stride[1]);
    // Counted from the first line and pixel of the padding.
    let inside = |at: u64, before: u64, extent: u64| at.checked_sub(before).filter(|&at| at < extent);
    (0..kernel[0]).flat_map(move |down| {
        (0..kernel[1]).map(move |right| {
            let line = inside(line + down * dilation[0], padding[0], lines)?;
            let pixel = inside(pixel + right * dilation[1], padding[1], across_image)?;
            Some((number * lines + line) * across_image + pixel)
        })
    })
}

/// Pixels of window `row` that lie on the image.
pub(super) fn count(image: &ImageOptions, row: u64) -> usize {
    under(image, row).flatten().count()
}
