//! What operators make of images, in f64 and by definition: no windows are made, every result walks over its image.

use rdusim_graph::workload::{ImageOptions, OperatorKind};

use super::bounded::{Real, growth};
use super::bounded_matrix::Bounded;
use super::matrix::Matrix;

/// Where an element of the kernel falls: result pixel, and pixel of the image.
struct Tap {
    result: usize,
    down: usize,
    right: usize,
    pixel: usize,
}

/// Every element of the kernel at every place of every image that falls on the image, place by place.
fn each_tap(image: &ImageOptions, pixels: usize, mut of: impl FnMut(Tap)) {
    let signed = |x: u64| i64::try_from(x).unwrap_or(i64::MAX);
    let [height, width] = image.image.map(signed);
    let [top, left, bottom, right] = image.padding.map(signed);
    let [rows, columns] = image.kernel.map(signed);
    let [step_down, step_right] = image.stride.map(signed);
    let [apart_down, apart_right] = image.dilation.map(signed);
    // Every place at which the kernel does not reach over the padding.
    let last_down = height + bottom - (rows - 1) * apart_down;
    let last_right = width + right - (columns - 1) * apart_right;
    let lines: Vec<i64> = (-top..last_down).step_by(step_down as usize).collect();
    let places: Vec<i64> = (-left..last_right).step_by(step_right as usize).collect();
    let images = signed(pixels as u64) / (height * width);
    let mut result = 0;
    for number in 0..images {
        for &y0 in &lines {
            for &x0 in &places {
                for down in 0..rows {
                    for right in 0..columns {
                        let (y, x) = (y0 + down * apart_down, x0 + right * apart_right);
                        if (0..height).contains(&y) && (0..width).contains(&x) {
                            let pixel = (number * height * width + y * width + x) as usize;
                            of(Tap { result, down: down as usize, right: right as usize, pixel });
                        }
                    }
                }
                result += 1;
            }
        }
    }
}

/// `rows` pixels of results: each the sum over its window of pixel times filter, group by group of channels. Filters lie
/// with channels of the group, lines and pixels of the kernel one after the other in rows.
pub(super) fn convolution(image: &ImageOptions, rows: usize, x: &Bounded, filters: &Bounded, whole: bool) -> Bounded {
    let (channels, count) = (x.value.columns, filters.value.columns);
    let [lines, across] = image.kernel.map(|extent| extent as usize);
    let groups = image.groups as usize;
    let (of_group, made) = (channels / groups, count / groups);
    let growth = growth(filters.value.rows, whole);
    let mut result = Bounded::exact(Matrix::filled(rows, count, 0.0));
    each_tap(image, x.value.rows, |tap| {
        let (sums, errors) = (result.value.row_mut(tap.result), result.error.row_mut(tap.result));
        for channel in 0..channels {
            let (a, da) = (x.value.row(tap.pixel)[channel], x.error.row(tap.pixel)[channel]);
            if a == 0.0 && da == 0.0 {
                continue;
            }
            let row = channel % of_group * lines * across + tap.down * across + tap.right;
            let own = channel / of_group * made..(channel / of_group + 1) * made;
            let (weights, off) = (&filters.value.row(row)[own.clone()], &filters.error.row(row)[own.clone()]);
            let most = a.abs() + da;
            let of = sums[own.clone()].iter_mut().zip(&mut errors[own]);
            for ((sum, error), (w, dw)) in of.zip(weights.iter().zip(off)) {
                *sum += a * w;
                *error += da * w.abs() + most * dw + growth * most * (w.abs() + dw);
            }
        }
    });
    result
}

/// `rows` pixels of results: of each window and channel the greatest pixel, the sum or the mean; what lies beside the image does
/// not count. Of a window without a pixel both are zero. Or the product of all but the first pixel of the kernel, one if there
/// is none.
pub(super) fn pooled(kind: OperatorKind, image: &ImageOptions, rows: usize, x: &Bounded) -> Bounded {
    let channels = x.value.columns;
    let mut windows: Vec<Vec<usize>> = vec![Vec::new(); rows];
    let is_rest = kind == OperatorKind::RestProduct;
    each_tap(image, x.value.rows, |tap| {
        if !is_rest || (tap.down, tap.right) != (0, 0) {
            windows[tap.result].push(tap.pixel);
        }
    });
    let mut result = Bounded::exact(Matrix::filled(rows, channels, 0.0));
    for (row, window) in windows.iter().enumerate() {
        for channel in 0..channels {
            let of = |&pixel: &usize| Real::new(x.value.row(pixel)[channel], x.error.row(pixel)[channel]);
            let numbers = window.iter().map(of);
            let made = match kind {
                OperatorKind::RestProduct => Real::product(numbers),
                _ if window.is_empty() => Real::exact(0.0),
                OperatorKind::MaxPool => Real::greatest(numbers),
                OperatorKind::SumPool => Real::sum(numbers),
                _ => Real::mean(numbers),
            };
            result.value.row_mut(row)[channel] = made.value;
            result.error.row_mut(row)[channel] = made.error;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(rows: usize, columns: usize, values: &[f64]) -> Bounded {
        Bounded::exact(Matrix { rows, columns, values: values.to_vec() })
    }

    const SMALL: ImageOptions = ImageOptions {
        image: [2, 3],
        kernel: [2, 2],
        stride: [1, 1],
        padding: [0, 1, 0, 0],
        dilation: [1, 1],
        groups: 1,
    };

    #[test]
    fn known_values() {
        // 1 2 3 | 4 5 6, a column of nothing to the left.
        let x = matrix(6, 1, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let filter = matrix(4, 1, &[1.0, 10.0, 100.0, 1000.0]);
        let sums = convolution(&SMALL, 3, &x, &filter, false);
        assert_eq!(sums.value.values, [4010.0, 5421.0, 6532.0]);
        assert_eq!(pooled(OperatorKind::MaxPool, &SMALL, 3, &x).value.values, [4.0, 5.0, 6.0]);
        assert_eq!(pooled(OperatorKind::AveragePool, &SMALL, 3, &x).value.values, [2.5, 3.0, 4.0]);
        // Every second pixel, one line; two channels of their own filters.
        let thin = ImageOptions { kernel: [1, 2], padding: [0; 4], stride: [2, 1], groups: 2, ..SMALL };
        let x = matrix(6, 2, &[1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        let filters = matrix(2, 2, &[1.0, 2.0, 10.0, 20.0]);
        assert_eq!(convolution(&thin, 2, &x, &filters, false).value.values, [21.0, -42.0, 32.0, -64.0]);
        let wide = ImageOptions { dilation: [1, 2], stride: [2, 1], ..thin };
        assert_eq!(convolution(&wide, 1, &x, &filters, false).value.values, [31.0, -62.0]);
    }
}
