//! Shapes of what operators make of images.

use super::given::{Given, Shape, Unknown, wrong};
use super::net::NetNode;

/// Kernel, strides, dilations and paddings (before, then behind) of a convolution or pooling; a padding to equal sizes
/// or of partial windows counts as padding.
pub(super) fn windows(node: &NetNode<'_>, image: &[u64], kernel: &[u64]) -> Result<Windows, String> {
    let rank = image.len();
    let list = |name: &str, default: u64, n: usize| counts(node, name, default, n);
    let (strides, dilations) = (list("strides", 1, rank)?, list("dilations", 1, rank)?);
    let mut pads = list("pads", 0, 2 * rank)?;
    let mut output = Vec::with_capacity(rank);
    for axis in 0..rank {
        let (stride, dilation) = (strides[axis], dilations[axis]);
        if stride == 0 || dilation == 0 || kernel[axis] == 0 || kernel[axis] > 1 << 20 {
            return Err("kernel, stride and dilation are expected from 1 to 2^20".to_owned());
        }
        let reach = (kernel[axis] - 1) * dilation + 1;
        let size = image[axis];
        if let Some(way) = node.text("auto_pad").filter(|way| way.starts_with("SAME")) {
            let all = ((size.div_ceil(stride).max(1) - 1) * stride + reach).saturating_sub(size);
            let (small, large) = (all / 2, all - all / 2);
            (pads[axis], pads[axis + rank]) = if way == "SAME_UPPER" { (small, large) } else { (large, small) };
        }
        let padded = size + pads[axis] + pads[axis + rank];
        let Some(rest) = padded.checked_sub(reach) else {
            return Err(format!("a kernel that reaches over {reach} is larger than the padded image of {padded}"));
        };
        let mut count = rest / stride + 1;
        if node.int("ceil_mode").unwrap_or(0) != 0 && !rest.is_multiple_of(stride) {
            // A window must begin on the image or its padding in front.
            if count * stride < size + pads[axis] {
                pads[axis + rank] += stride - rest % stride;
                count += 1;
            }
        }
        output.push(count);
    }
    Ok(Windows { strides, dilations, pads, output })
}

/// How windows lie on an image.
#[derive(Debug)]
pub(super) struct Windows {
    pub(super) strides: Vec<u64>,
    pub(super) dilations: Vec<u64>,
    /// In front of every axis, then behind every axis.
    pub(super) pads: Vec<u64>,
    /// Places along every axis.
    pub(super) output: Vec<u64>,
}

pub(super) fn conv(given: &Given<'_>) -> Result<Shape, Unknown> {
    let (x, w) = (given.shape(0)?, given.shape(1)?);
    if x.len() < 3 || x.len() != w.len() {
        return wrong("an image and filters of as many axes are expected");
    }
    let group = u64::try_from(given.node.int("group").unwrap_or(1)).unwrap_or(0);
    if group == 0 || w[1].checked_mul(group) != Some(x[1]) || !w[0].is_multiple_of(group) {
        return wrong(format!("{group} groups of {} channels do not make {}", w[1], x[1]));
    }
    let windows = windows(given.node, &x[2..], &w[2..]).map_err(Unknown::Wrong)?;
    Ok([&[x[0], w[0]], windows.output.as_slice()].concat())
}

pub(super) fn pool(given: &Given<'_>) -> Result<Shape, Unknown> {
    let x = given.shape(0)?;
    let kernel = given.node.ints("kernel_shape").unwrap_or_default();
    if x.len() < 3 || kernel.len() + 2 != x.len() || kernel.iter().any(|&k| k < 1) {
        return wrong("an image and a kernel are expected");
    }
    let kernel: Shape = kernel.iter().map(|k| k.unsigned_abs()).collect();
    let windows = windows(given.node, &x[2..], &kernel).map_err(Unknown::Wrong)?;
    Ok([&x[..2], windows.output.as_slice()].concat())
}

/// How the filters of a transposed convolution lie on its result.
#[derive(Debug)]
pub(super) struct Transposed {
    pub(super) strides: Vec<u64>,
    pub(super) dilations: Vec<u64>,
    /// Places along every axis of the result.
    pub(super) output: Vec<u64>,
}

/// Strides, dilations and result of a `ConvTranspose` on an image.
pub(super) fn transposed(node: &NetNode<'_>, image: &[u64], kernel: &[u64]) -> Result<Transposed, String> {
    let rank = image.len();
    let list = |name: &str, default: u64, n: usize| counts(node, name, default, n);
    let (strides, dilations) = (list("strides", 1, rank)?, list("dilations", 1, rank)?);
    let (pads, more) = (list("pads", 0, 2 * rank)?, list("output_padding", 0, rank)?);
    let stated = node.ints("output_shape").map(<[i64]>::to_vec);
    let is_same = node.text("auto_pad").is_some_and(|mode| mode.starts_with("SAME"));
    let mut output = Vec::with_capacity(rank);
    for axis in 0..rank {
        let (stride, dilation) = (strides[axis], dilations[axis]);
        if stride == 0 || dilation == 0 || kernel[axis] == 0 || kernel[axis] > 1 << 20 || image[axis] > 1 << 40 {
            return Err("kernel, stride and dilation are expected from 1 to 2^20".to_owned());
        }
        let whole = stride * image[axis].saturating_sub(1) + (kernel[axis] - 1) * dilation + 1 + more[axis];
        let found = match &stated {
            Some(stated) => {
                // Some files state the whole shape.
                let from = stated.len().checked_sub(rank).ok_or("output_shape has too few entries")?;
                u64::try_from(stated[from + axis]).ok()
            }
            None if is_same => image[axis].checked_mul(stride),
            None => whole.checked_sub(pads[axis] + pads[axis + rank]),
        };
        let found = found.filter(|&found| found > 0 && found <= 1 << 40);
        output.push(found.ok_or("the padding takes more than there is")?);
    }
    Ok(Transposed { strides, dilations, output })
}

/// A list of counts of an attribute.
fn counts(node: &NetNode<'_>, name: &str, default: u64, n: usize) -> Result<Vec<u64>, String> {
    match node.ints(name) {
        None => Ok(vec![default; n]),
        Some(list) if list.len() == n => list
            .iter()
            .map(|&x| u64::try_from(x).ok().filter(|&x| x <= 1 << 20))
            .collect::<Option<Vec<u64>>>()
            .ok_or_else(|| format!("{name} {list:?} is out of range")),
        Some(list) => Err(format!("{name} has {} entries, expected {n}", list.len())),
    }
}

pub(super) fn conv_transpose(given: &Given<'_>) -> Result<Shape, Unknown> {
    let (x, w) = (given.shape(0)?, given.shape(1)?);
    if x.len() < 3 || x.len() != w.len() {
        return wrong("an image and filters of as many axes are expected");
    }
    let group = u64::try_from(given.node.int("group").unwrap_or(1)).unwrap_or(0);
    let filters = w[1].checked_mul(group).filter(|_| group > 0 && w[0] == x[1] && x[1].is_multiple_of(group));
    let Some(filters) = filters else {
        return wrong(format!("filters of {} channels in {group} groups do not take {}", w[0], x[1]));
    };
    let found = transposed(given.node, &x[2..], &w[2..]).map_err(Unknown::Wrong)?;
    Ok([&[x[0], filters], found.output.as_slice()].concat())
}

/// The result of `Resize` (scales or sizes) and `Upsample` (scales).
pub(super) fn resize(given: &Given<'_>) -> Result<Shape, Unknown> {
    let (node, x) = (given.node, given.shape(0)?.to_vec());
    let rank = x.len();
    // Scales are an attribute up to version 7, the second input up to 10, the third since.
    let place = if node.op == "Resize" && node.inputs.len() > 2 { 2 } else { 1 };
    let axes = match node.ints("axes") {
        Some(list) => Given::axes(list, rank)?,
        None => (0..rank).collect(),
    };
    let wanted = |n: usize| if n == axes.len() { Ok(()) } else { wrong(format!("{n} sizes for {} axes", axes.len())) };
    let mut shape = x.clone();
    if node.text("coordinate_transformation_mode") == Some("tf_crop_and_resize") {
        return Err(Unknown::Operator);
    }
    let scales = match node.floats("scales") {
        Some(list) => Some(list.iter().copied().map(f64::from).collect()),
        None => given.reals(place).filter(|list| !list.is_empty()),
    };
    if let Some(scales) = scales {
        wanted(scales.len())?;
        for (&axis, &scale) in axes.iter().zip(&scales) {
            let size = (x[axis] as f64 * scale).floor();
            if !(1.0..=(1u64 << 40) as f64).contains(&size) {
                return wrong(format!("the scale {scale} leaves {size} of {}", x[axis]));
            }
            shape[axis] = size as u64;
        }
        return Ok(shape);
    }
    let Some(sizes) = given.list(3) else { return Err(Unknown::Operator) };
    wanted(sizes.len())?;
    let keeps = node.text("keep_aspect_ratio_policy").filter(|policy| *policy != "stretch");
    let ratio = |&(&axis, &size): &(&usize, &i64)| size as f64 / x[axis] as f64;
    let ratios = || axes.iter().zip(&sizes).map(|pair| ratio(&pair));
    let common = match keeps {
        Some("not_larger") => Some(ratios().fold(f64::INFINITY, f64::min)),
        Some(_) => Some(ratios().fold(0.0, f64::max)),
        None => None,
    };
    for (&axis, &size) in axes.iter().zip(&sizes) {
        let size = common.map_or(size, |common| (x[axis] as f64 * common).round() as i64);
        let Some(size) = u64::try_from(size).ok().filter(|&size| size > 0 && size <= 1 << 40) else {
            return wrong(format!("{size} is no size"));
        };
        shape[axis] = size;
    }
    Ok(shape)
}
