//! Operators on images: convolutions, also transposed ones, pools, resizing.

use super::draft::Role;
use super::image_shapes::{Transposed, transposed, windows};
use super::layout::Layout;
use super::lower::{Done, Lower, Stop, unsupported};
use super::net::{NetNode, ValueId};
use rdusim_graph::workload::OperatorOptions;

impl Lower<'_, '_> {
    /// An image with its channels along the columns.
    pub(super) fn image(&mut self, value: ValueId) -> Result<Layout, Stop> {
        if self.shape(value)?.len() < 3 {
            return unsupported("an image of less than three axes");
        }
        let layout = self.place(value)?;
        if layout.is_of_image() {
            return Ok(layout);
        }
        let shape = self.shape(value)?.to_vec();
        self.reread(value, &layout, &Layout::of_image(0, &shape))
    }

    pub(super) fn conv(&mut self, node: &NetNode<'_>) -> Done {
        let (x, w) = (Self::input(node, 0)?, Self::input(node, 1)?);
        if !self.is_constant(w) {
            return unsupported("filters that are no constant");
        }
        let layout = self.image(x)?;
        let (image, filters) = (self.shape(x)?[2..].to_vec(), self.shape(w)?.to_vec());
        let options = Self::image_options(node, &image, &filters[2..])?;
        let groups = node.int("group").unwrap_or(1);
        let (k, n) = (filters[1..].iter().product(), filters[0]);
        let weight = self.weight(w, (k, n), true, (0, n));
        let shape = node.output().map(|output| self.shape(output)).transpose()?.unwrap_or_default().to_vec();
        let result = Layout::of_image(0, &shape);
        let tensor = self.emit(node, "conv", vec![layout.tensor, weight], (result.rows, n), options);
        self.mark_narrow(node);
        if groups != 1
            && let Some(operator) = self.draft.maker(tensor)
        {
            operator.options = std::mem::take(&mut operator.options).groups(groups.unsigned_abs());
        }
        self.settle(node, result.on(tensor))?;
        if let (Some(bias), Some(output)) = (node.input(2).filter(|&bias| self.is_constant(bias)), node.output()) {
            self.add_vector(output, bias, n);
        }
        Ok(())
    }

    /// Keys of an operator on images of two axes, or of one.
    fn image_options(node: &NetNode<'_>, image: &[u64], kernel: &[u64]) -> Result<OperatorOptions, Stop> {
        if image.len() > 2 {
            return unsupported(format!("images of {} axes", image.len()));
        }
        let found = windows(node, image, kernel).map_err(Stop::Unsupported)?;
        let two = |list: &[u64], fill: u64| match list {
            [one] => [fill, *one],
            [a, b, ..] => [*a, *b],
            [] => [fill; 2],
        };
        let (front, behind) = found.pads.split_at(image.len());
        let (front, behind) = (two(front, 0), two(behind, 0));
        let padding = [front[0], front[1], behind[0], behind[1]];
        let mut options = OperatorOptions::default().image(two(image, 1)).kernel(two(kernel, 1));
        let (stride, dilation) = (two(&found.strides, 1), two(&found.dilations, 1));
        if stride != [1, 1] {
            options = options.stride(stride);
        }
        if dilation != [1, 1] {
            options = options.dilation(dilation);
        }
        Ok(if padding == [0; 4] { options } else { options.padding(padding) })
    }

    pub(super) fn pool(&mut self, node: &NetNode<'_>, kind: &'static str) -> Done {
        let x = Self::input(node, 0)?;
        let layout = self.image(x)?;
        let image = self.shape(x)?[2..].to_vec();
        let kernel: Vec<u64> = node.ints("kernel_shape").unwrap_or_default().iter().map(|k| k.unsigned_abs()).collect();
        let options = Self::image_options(node, &image, &kernel)?;
        self.pooled(node, kind, &layout, options)
    }

    pub(super) fn global_pool(&mut self, node: &NetNode<'_>, kind: &'static str) -> Done {
        let x = Self::input(node, 0)?;
        let layout = self.image(x)?;
        let image = self.shape(x)?[2..].to_vec();
        self.whole_pool(node, kind, &layout, &image)
    }

    /// A pooling over whole images.
    pub(super) fn whole_pool(
        &mut self,
        node: &NetNode<'_>,
        kind: &'static str,
        layout: &Layout,
        image: &[u64],
    ) -> Done {
        let (first, rest) = image.split_first().unwrap_or((&1, &[]));
        let size = [*first, rest.iter().product()];
        self.pooled(node, kind, layout, OperatorOptions::default().image(size).kernel(size))
    }

    fn pooled(&mut self, node: &NetNode<'_>, kind: &'static str, layout: &Layout, options: OperatorOptions) -> Done {
        let output = node.output().ok_or(Stop::Behind)?;
        let shape = self.shape(output)?.to_vec();
        let elements: u64 = shape.iter().product();
        let result = if shape.len() > 2 && shape[1] == layout.columns {
            Layout::of_image(0, &shape)
        } else {
            Layout::of_rows(0, &shape)
        };
        if elements != result.rows * layout.columns || result.columns != layout.columns {
            return unsupported("its axes");
        }
        let tensor = self.emit(node, kind, vec![layout.tensor], (result.rows, result.columns), options);
        self.settle(node, result.on(tensor))
    }

    /// A transposed convolution. Its result has stride x stride kinds of pixels, each under other taps of the filters:
    /// kinds with equally many taps are columns of one convolution without stride, and a view puts the pixels in order.
    pub(super) fn conv_transpose(&mut self, node: &NetNode<'_>) -> Done {
        let (x, w) = (Self::input(node, 0)?, Self::input(node, 1)?);
        if !self.is_constant(w) {
            return unsupported("filters that are no constant");
        }
        let layout = self.image(x)?;
        let (image, filters) = (self.shape(x)?[2..].to_vec(), self.shape(w)?.to_vec());
        if image.len() > 2 {
            return unsupported(format!("images of {} axes", image.len()));
        }
        let found = transposed(node, &image, &filters[2..]).map_err(Stop::Unsupported)?;
        let groups = node.int("group").unwrap_or(1).unsigned_abs().max(1);
        let channels = filters[1] * groups;
        let axes = (0..2).map(|axis| Axis::of(axis, &image, &filters[2..], &found)).collect::<Result<Vec<_>, _>>()?;
        let [lines, pixels] = [&axes[0], &axes[1]];
        let images = layout.rows / (lines.from * pixels.from);
        // Places of windows may be more than pixels of the result, of which there are few enough.
        let product = |list: &[u64]| {
            let all = list.iter().try_fold(1u64, |all, &n| all.checked_mul(n)).filter(|&all| all <= 1 << 50);
            all.ok_or_else(|| Stop::Unsupported("more than 2^50 elements".to_owned()))
        };
        let rows = product(&[images, lines.places, pixels.places])?;
        let made = product(&[rows, lines.stride, pixels.stride])?;
        product(&[made, channels])?;
        let bias = node.input(2).filter(|&bias| self.is_constant(bias));
        let bias = bias.map(|bias| self.vector(bias, channels));
        let (mut joined, mut width, mut is_moved) = (None, 0, true);
        let name = self.net.values[w].name.clone();
        for (down, right) in lines.taps().into_iter().flat_map(|down| pixels.taps().map(|right| (down, right))) {
            let (taps, kinds) = (down.0 * right.0, down.1 * right.1);
            if kinds == 0 {
                continue;
            }
            let columns = channels * kinds;
            let weight = self.draft.tensor(&name, (filters[0] / groups * taps, columns), Role::Weight);
            let (top, bottom) = lines.padding(down.0);
            let (left, right_side) = pixels.padding(right.0);
            let mut options = OperatorOptions::default().image([lines.from, pixels.from]).kernel([down.0, right.0]);
            if [lines.dilation, pixels.dilation] != [1, 1] {
                options = options.dilation([lines.dilation, pixels.dilation]);
            }
            if [top, left, bottom, right_side] != [0; 4] {
                options = options.padding([top, left, bottom, right_side]);
            }
            if groups != 1 {
                options = options.groups(groups);
            }
            let tensor = self.emit(node, "conv", vec![layout.tensor, weight], (rows, columns), options);
            is_moved &= kinds == 1;
            if let Some(operator) = self.draft.maker(tensor).filter(|_| kinds == 1) {
                operator.vectors.extend(bias);
            }
            width += columns;
            joined = Some(match joined {
                None => tensor,
                Some(before) => {
                    self.emit(node, "concat", vec![before, tensor], (rows, width), OperatorOptions::default())
                }
            });
        }
        let Some(mut tensor) = joined else { return unsupported("filters without taps") };
        if made != rows {
            tensor = self.seen_as(node, "reshape", tensor, (made, channels));
            self.notes.insert(
                "a transposed convolution with strides is convolutions without, one for the pixels under equally many \
                 taps, whose results are put side by side: no product with the zeros between pixels"
                    .to_owned(),
            );
        }
        let wanted = images * lines.to * pixels.to;
        if wanted != made {
            tensor = self.seen_as(node, "slice", tensor, (wanted, channels));
        }
        if let Some(bias) = bias.filter(|_| !is_moved) {
            tensor = self.emit(node, "bias", vec![tensor], (wanted, channels), OperatorOptions::default());
            if let Some(operator) = self.draft.maker(tensor) {
                operator.vectors = vec![bias];
            }
        }
        let shape = node.output().map(|output| self.shape(output)).transpose()?.unwrap_or_default().to_vec();
        self.settle(node, Layout::of_image(tensor, &shape))
    }

    /// A tensor in another shape, or the first of its rows.
    fn seen_as(&mut self, node: &NetNode<'_>, kind: &'static str, of: usize, shape: (u64, u64)) -> usize {
        let name = node.output().map_or_else(String::new, |output| self.net.values[output].name.clone());
        let tensor = self.draft.made(&format!("{name}_pixels"), shape);
        self.draft.tensors[tensor].is_view = true;
        self.draft.push(&format!("{name}_pixels"), kind, vec![of], tensor);
        tensor
    }

    /// Pixels between those of an image, or fewer of them.
    pub(super) fn resize(&mut self, node: &NetNode<'_>) -> Done {
        let x = Self::input(node, 0)?;
        let layout = self.image(x)?;
        let from = self.shape(x)?.to_vec();
        let output = node.output().ok_or(Stop::Behind)?;
        let to = self.shape(output)?.to_vec();
        if from[..2] != to[..2] || from.len() > 4 {
            return unsupported("another axis than the two of an image is resized");
        }
        let taps = match node.text("mode") {
            None | Some("nearest") => 1,
            Some("linear" | "bilinear") => 2,
            Some("cubic") => 4,
            Some(mode) => return unsupported(format!("the mode {mode:?}")),
        };
        if node.int("antialias").unwrap_or(0) != 0 {
            return unsupported("`antialias`");
        }
        let two = |shape: &[u64]| if shape.len() == 3 { [1, shape[2]] } else { [shape[2], shape[3]] };
        let (old, new) = (two(&from), two(&to));
        let images = layout.rows / (old[0] * old[1]);
        let taps = [0, 1].map(|axis| if old[axis] == new[axis] { 1 } else { taps });
        let shape = (images * new[0] * new[1], layout.columns);
        let grows = (0..2).all(|axis| new[axis].is_multiple_of(old[axis]));
        let shrinks = (0..2).all(|axis| old[axis].is_multiple_of(new[axis]));
        if taps != [1, 1] {
            self.notes
                .insert("linear and cubic interpolation are means of as many neighbours, of equal weight".to_owned());
        }
        let result = Layout::of_image(0, &to);
        if old == new {
            return self.settle(node, layout);
        }
        if shrinks && !grows {
            let stride = [old[0] / new[0], old[1] / new[1]];
            let tensor = self.windowed(node, layout.tensor, shape, old, taps, stride);
            return self.settle(node, result.on(tensor));
        }
        let mut tensor = if grows {
            let copies = new[0] / old[0] * (new[1] / old[1]);
            let copied = self.copies(node, &layout, copies);
            self.seen_as(node, "reshape", copied, shape)
        } else {
            self.notes.insert(
                "images that are resized by other factors than whole ones are gathered pixel by pixel, by indices from \
                 off chip (4 bytes a pixel)"
                    .to_owned(),
            );
            self.look_up(node, layout.tensor, shape)
        };
        if taps != [1, 1] {
            tensor = self.windowed(node, tensor, shape, new, taps, [1, 1]);
        }
        self.settle(node, result.on(tensor))
    }

    /// A mean over windows of so many taps, or their one pixel; as many pixels as the strides leave.
    fn windowed(
        &mut self,
        node: &NetNode<'_>,
        tensor: usize,
        shape: (u64, u64),
        image: [u64; 2],
        taps: [u64; 2],
        stride: [u64; 2],
    ) -> usize {
        // Where windows reach further than they move, there are pixels beside the image.
        let over = |axis: usize| taps[axis].saturating_sub(stride[axis]);
        let padding = [over(0) / 2, over(1) / 2, over(0) - over(0) / 2, over(1) - over(1) / 2];
        let mut options = OperatorOptions::default().image(image).kernel(taps);
        if stride != [1, 1] {
            options = options.stride(stride);
        }
        if padding != [0; 4] {
            options = options.padding(padding);
        }
        let kind = if taps == [1, 1] { "max_pool" } else { "average_pool" };
        self.emit(node, kind, vec![tensor], shape, options)
    }

    /// So many copies of every row side by side.
    fn copies(&mut self, node: &NetNode<'_>, layout: &Layout, count: u64) -> usize {
        let (rows, columns) = (layout.rows, layout.columns);
        let (mut whole, mut has): (Option<usize>, u64) = (None, 0);
        let (mut power, mut size) = (layout.tensor, 1);
        while size <= count {
            if count & size != 0 {
                has += size;
                whole = Some(match whole {
                    None => power,
                    Some(before) => self.emit(
                        node,
                        "concat",
                        vec![before, power],
                        (rows, has * columns),
                        OperatorOptions::default(),
                    ),
                });
            }
            size *= 2;
            if size <= count {
                power =
                    self.emit(node, "concat", vec![power, power], (rows, size * columns), OperatorOptions::default());
            }
        }
        whole.unwrap_or(layout.tensor)
    }
}

/// An axis of a transposed convolution.
#[derive(Debug, Clone, Copy)]
struct Axis {
    /// Pixels of the image and of the result.
    from: u64,
    to: u64,
    kernel: u64,
    stride: u64,
    dilation: u64,
    /// Places of a window.
    places: u64,
}

impl Axis {
    /// One of two axes; images of one axis have a single line.
    fn of(axis: usize, image: &[u64], kernel: &[u64], found: &Transposed) -> Result<Self, Stop> {
        let Some(at) = (axis + image.len()).checked_sub(2) else {
            return Ok(Self { from: 1, to: 1, kernel: 1, stride: 1, dilation: 1, places: 1 });
        };
        let (from, to, kernel) = (image[at], found.output[at], kernel[at]);
        let (stride, dilation) = (found.strides[at], found.dilations[at]);
        if kernel < stride {
            return unsupported("a stride larger than the kernel");
        }
        if stride > 1 && dilation > 1 {
            return unsupported("a stride and a dilation at once");
        }
        // Where padding takes much away, a window has more places than are kept.
        let least = (kernel / stride - 1) * dilation;
        let places = to.div_ceil(stride).max(from.saturating_sub(least));
        Ok(Self { from, to, kernel, stride, dilation, places })
    }

    /// Taps over a kind of pixels, and how many kinds have so many.
    fn taps(&self) -> [(u64, u64); 2] {
        let (few, more) = (self.kernel / self.stride, self.kernel % self.stride);
        [(few + 1, more), (few, self.stride - more)]
    }

    /// Padding in front and behind for windows of so many taps.
    fn padding(&self, taps: u64) -> (u64, u64) {
        let all = (self.places + (taps - 1) * self.dilation).saturating_sub(self.from);
        (all - all / 2, all / 2)
    }
}
