//! Operators of PyTorch on images.

use super::build::{Attributes, Build, Call};
use crate::import::proto::Attribute;

/// A list with an entry an axis, where one entry stands for all.
fn spread(list: Option<Vec<i64>>, default: i64, axes: usize) -> Option<Vec<i64>> {
    match list {
        None => Some(vec![default; axes]),
        Some(list) if list.is_empty() => Some(vec![default; axes]),
        Some(list) if list.len() == 1 => Some(vec![list[0]; axes]),
        Some(list) => (list.len() == axes).then_some(list),
    }
}

/// Equal paddings in front and behind.
fn pads(padding: &[i64]) -> (&'static str, Attribute<'static>) {
    ("pads", Attribute::Ints([padding, padding].concat()))
}

impl Build<'_> {
    /// Adds what a call on images stands for; `None` if it is none.
    pub(super) fn image(&mut self, call: Call<'_>, name: &str, outputs: &[String]) -> Option<()> {
        let output = outputs.first()?;
        match name {
            "conv1d" | "conv2d" | "conv_transpose1d" | "conv_transpose2d" | "convolution" | "_convolution" => {
                self.convolution(call, name, output)
            }
            "max_pool1d" | "max_pool2d" | "max_pool2d_with_indices" | "avg_pool1d" | "avg_pool2d" => {
                self.pool(call, name, output)
            }
            "adaptive_avg_pool1d" | "adaptive_avg_pool2d" | "_adaptive_avg_pool2d" | "adaptive_max_pool2d" => {
                self.adaptive(call, name, output)
            }
            "upsample_nearest2d"
            | "upsample_nearest1d"
            | "upsample_bilinear2d"
            | "upsample_linear1d"
            | "upsample_bicubic2d" => self.resized(call, name, output),
            _ => None,
        }
    }

    /// Axes of the images that a call takes.
    fn axes(&self, call: Call<'_>) -> Option<usize> {
        let rank = self.rank(call.tensor("input").or_else(|| call.tensor("self"))?)?;
        usize::try_from(rank).ok()?.checked_sub(2).filter(|&axes| axes > 0)
    }

    fn convolution(&mut self, call: Call<'_>, name: &str, output: &str) -> Option<()> {
        let axes = self.axes(call)?;
        let mut inputs = vec![self.given(call, &["input"])?, self.given(call, &["weight"])?];
        inputs.extend(self.given(call, &["bias"]));
        let list = |name: &str, default: i64| spread(call.ints(name), default, axes);
        let mut attributes: Attributes = vec![
            ("strides", Attribute::Ints(list("stride", 1)?)),
            ("dilations", Attribute::Ints(list("dilation", 1)?)),
            ("group", Attribute::Int(call.int("groups").unwrap_or(1))),
        ];
        match call.text("padding") {
            Some("same") => attributes.push(("auto_pad", Attribute::Text(b"SAME_UPPER"))),
            Some(_) => {}
            None => attributes.push(pads(&list("padding", 0)?)),
        }
        let is_turned = name.starts_with("conv_transpose") || call.flag("transposed").unwrap_or(false);
        if is_turned {
            attributes.push(("output_padding", Attribute::Ints(list("output_padding", 0)?)));
        }
        self.step(if is_turned { "ConvTranspose" } else { "Conv" }, &inputs, output, attributes);
        Some(())
    }

    fn pool(&mut self, call: Call<'_>, name: &str, output: &str) -> Option<()> {
        let axes = self.axes(call)?;
        let x = self.given(call, &["self", "input"])?;
        let kernel = spread(call.ints("kernel_size"), 1, axes)?;
        // Without strides windows lie side by side.
        let strides = call.ints("stride").filter(|list| !list.is_empty());
        let strides = strides.map_or_else(|| Some(kernel.clone()), |list| spread(Some(list), 1, axes))?;
        let attributes = vec![
            ("kernel_shape", Attribute::Ints(kernel)),
            ("strides", Attribute::Ints(strides)),
            ("dilations", Attribute::Ints(spread(call.ints("dilation"), 1, axes)?)),
            pads(&spread(call.ints("padding"), 0, axes)?),
            ("ceil_mode", Attribute::Int(i64::from(call.flag("ceil_mode").unwrap_or(false)))),
        ];
        self.step(if name.starts_with("max") { "MaxPool" } else { "AveragePool" }, &[x], output, attributes);
        Some(())
    }

    /// A pool to so many pixels: over whole images, or over windows of one size.
    fn adaptive(&mut self, call: Call<'_>, name: &str, output: &str) -> Option<()> {
        let tensor = call.tensor("self").or_else(|| call.tensor("input"))?;
        let x = self.name(tensor);
        let to = spread(call.ints("output_size"), 1, self.axes(call)?)?;
        let is_max = name.contains("max");
        if to.iter().all(|&size| size == 1) {
            let op = if is_max { "GlobalMaxPool" } else { "GlobalAveragePool" };
            self.step(op, &[x], output, Vec::new());
            return Some(());
        }
        let from = self.fixed(tensor)?;
        let kernel =
            from[2..].iter().zip(&to).map(|(&from, &to)| from.checked_div(to).filter(|_| to > 0 && from % to == 0));
        let kernel = kernel.collect::<Option<Vec<i64>>>()?;
        let attributes = vec![("kernel_shape", Attribute::Ints(kernel.clone())), ("strides", Attribute::Ints(kernel))];
        self.step(if is_max { "MaxPool" } else { "AveragePool" }, &[x], output, attributes);
        Some(())
    }

    fn resized(&mut self, call: Call<'_>, name: &str, output: &str) -> Option<()> {
        let x = self.given(call, &["self", "input"])?;
        let sizes = self.fixed(output)?;
        let axes: Vec<i64> = (2..self.rank(output)?).collect();
        let sizes = self.ints(sizes.get(2..)?);
        let mode: &[u8] = match name {
            _ if name.contains("nearest") => b"nearest",
            _ if name.contains("cubic") => b"cubic",
            _ => b"linear",
        };
        let attributes = vec![("mode", Attribute::Text(mode)), ("axes", Attribute::Ints(axes))];
        self.step("Resize", &[x, String::new(), String::new(), sizes], output, attributes);
        Some(())
    }
}
