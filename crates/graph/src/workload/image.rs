//! Windows of images: what a convolution or a pooling takes of its input.
//!
//! An image lies as a matrix: a row a pixel, line by line, a column a channel. A convolution is a GEMM over the windows
//! of the image (im2col): a row a place of the kernel, and in it channel by channel the elements under the kernel.

/// How an operator walks over images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageOptions {
    /// Lines and pixels a line of an image.
    pub image: [u64; 2],
    /// Lines and pixels a line of the kernel.
    pub kernel: [u64; 2],
    /// Lines and pixels from one place to the next.
    pub stride: [u64; 2],
    /// Lines above, pixels to the left, lines below, pixels to the right that are added to the image.
    pub padding: [u64; 4],
    /// Lines and pixels from one element of the kernel to the next.
    pub dilation: [u64; 2],
    /// Groups of channels with filters of their own.
    pub groups: u64,
}

/// The part of an image that windows of it take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    /// Elements under at least one window.
    pub elements: u64,
    /// Elements that a run of windows needs beside its share, at most: the lines that it has in common with its neighbours,
    /// and the pixels around its ends.
    pub halo_elements: u64,
    /// Which windows.
    pub image: ImageOptions,
}

impl ImageOptions {
    /// Lines and pixels a line of the result; `None` where the kernel is larger than the padded image.
    pub fn output(&self) -> Option<[u64; 2]> {
        let along = |axis: usize| {
            let padded = self.image[axis] + self.padding[axis] + self.padding[axis + 2];
            padded.checked_sub(self.reach(axis)).map(|rest| rest / self.stride[axis] + 1)
        };
        Some([along(0)?, along(1)?])
    }

    /// Pixels of an image.
    pub fn pixels(&self) -> u64 {
        self.image[0] * self.image[1]
    }

    /// Elements of the kernel.
    pub fn taps(&self) -> u64 {
        self.kernel[0] * self.kernel[1]
    }

    /// Whether every window is one pixel, in the order of the image.
    pub fn is_pointwise(&self) -> bool {
        self.taps() == 1 && self.stride == [1, 1] && self.padding == [0; 4]
    }

    /// What windows take of images of so many channels that have `pixels` pixels together.
    pub fn window(&self, pixels: u64, channels: u64) -> Window {
        let output = self.output().unwrap_or([1, 1]);
        // Lines (or pixels of a line) under some window.
        let taken = |axis: usize| {
            let span = (output[axis] - 1) * self.stride[axis] + self.reach(axis);
            self.image[axis].min(span).min(output[axis] * self.kernel[axis])
        };
        let images = pixels / self.pixels().max(1);
        let rows = images * output[0] * output[1];
        // What two neighbours have in common, and what the first and the last window reach over the edge: lines in the
        // middle of an image take so much more than their share.
        let in_common = |axis: usize| self.reach(axis).saturating_sub(self.stride[axis]);
        let over =
            |axis: usize| ((output[axis] - 1) * self.stride[axis] + self.reach(axis)).saturating_sub(self.image[axis]);
        // A run over the border of two images begins again.
        let again = if images > 1 { (2 * in_common(0)).saturating_sub(over(0)) } else { 0 };
        let lines = in_common(0).max(over(0)).max(again).min(2 * self.image[0]);
        // A run begins and ends within a line.
        let ends = 2 * self.stride[0].min(self.reach(0)) * in_common(1).max(over(1)).min(self.image[1]);
        // Windows beyond the image would otherwise be rows without a byte.
        let elements = (images * taken(0) * taken(1) * channels).max(rows);
        Window { elements, halo_elements: (lines * taken(1) + ends) * channels, image: *self }
    }

    fn reach(&self, axis: usize) -> u64 {
        (self.kernel[axis] - 1) * self.dilation[axis] + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEM: ImageOptions = ImageOptions {
        image: [224, 224],
        kernel: [7, 7],
        stride: [2, 2],
        padding: [3, 3, 3, 3],
        dilation: [1, 1],
        groups: 1,
    };

    #[test]
    fn windows_of_an_image_come_once() {
        assert_eq!(STEM.output(), Some([112, 112]));
        let window = STEM.window(2 * 224 * 224, 3);
        assert_eq!(
            window,
            Window { elements: 2 * 224 * 224 * 3, halo_elements: (5 * 224 + 2 * 2 * 5) * 3, image: STEM }
        );
        // Every second pixel of every second line, whole channels.
        let thin = ImageOptions { kernel: [1, 1], padding: [0; 4], ..STEM };
        assert_eq!(thin.output(), Some([112, 112]));
        assert_eq!(thin.window(224 * 224, 8), Window { elements: 112 * 112 * 8, halo_elements: 0, image: thin });
        assert!(!thin.is_pointwise() && ImageOptions { stride: [1, 1], ..thin }.is_pointwise());
    }

    #[test]
    fn every_run_of_windows_has_room() {
        let sizes = [[1u64, 1], [1, 7], [5, 4], [6, 3]];
        let kernels = [[1u64, 1], [2, 3], [3, 3], [3, 1]];
        let strides = [[1u64, 1], [2, 1], [1, 2], [3, 3]];
        let paddings = [[0u64; 4], [1, 1, 1, 1], [2, 0, 1, 2], [0, 3, 2, 0]];
        for (image, kernel) in sizes.into_iter().flat_map(|i| kernels.map(|k| (i, k))) {
            for (stride, padding) in strides.into_iter().flat_map(|s| paddings.map(|p| (s, p))) {
                for (dilation, images) in [([1, 1], 1), ([1, 1], 3), ([2, 1], 2), ([1, 2], 2)] {
                    let options = ImageOptions { image, kernel, stride, padding, dilation, groups: 1 };
                    let Some(output) = options.output() else { continue };
                    let window = options.window(images * options.pixels(), 1);
                    let rows = images * output[0] * output[1];
                    for first in 0..rows {
                        for last in first + 1..=rows {
                            let pixels: std::collections::BTreeSet<u64> =
                                (first..last).flat_map(|row| under(&options, output, row)).collect();
                            let share = (window.elements * (last - first)).div_ceil(rows);
                            let room = (share + window.halo_elements).min(window.elements);
                            let found = pixels.len() as u64;
                            assert!(found <= room, "{options:?} {images}: {first}..{last}: {found} in {room}");
                        }
                    }
                }
            }
        }
    }

    /// Pixels under a window.
    fn under(options: &ImageOptions, output: [u64; 2], row: u64) -> Vec<u64> {
        let at = |axis: usize, place: u64, tap: u64| {
            let from = place * options.stride[axis] + tap * options.dilation[axis];
            from.checked_sub(options.padding[axis]).filter(|&at| at < options.image[axis])
        };
        let (image, place) = (row / (output[0] * output[1]), row % (output[0] * output[1]));
        let taps = (0..options.taps()).map(|tap| (tap / options.kernel[1], tap % options.kernel[1]));
        let pixel = |(down, right)| {
            let (line, pixel) = (at(0, place / output[1], down)?, at(1, place % output[1], right)?);
            Some((image * options.image[0] + line) * options.image[1] + pixel)
        };
        taps.filter_map(pixel).collect()
    }

    #[test]
    fn a_kernel_must_fit_the_padded_image() {
        assert_eq!(ImageOptions { image: [1, 224], padding: [2, 3, 3, 3], ..STEM }.output(), None);
        assert_eq!(ImageOptions { image: [1, 224], dilation: [1, 2], ..STEM }.output(), Some([1, 109]));
    }
}
