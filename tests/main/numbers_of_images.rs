//! Networks of images compute what they say: convolutions, groups, pools, batch norms, and tensors in other shapes.
//!
//! More random ones: `PROPTEST_CASES=400 cargo test --release --test main numbers`.

use std::cell::Cell;
use std::fmt::Write;
use std::path::Path;

use crate::laws::for_all_of;
use crate::legal::found_quickly;
use crate::random::chips;
use proptest::prelude::*;
use proptest::sample::select;
use rdusim::arch::{self, Chip};

use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::verify::{RunVerdict, graph_flops, scaled, verify};
use rdusim::workload::{self, OperatorKind, Workload};

/// Random networks where `PROPTEST_CASES` asks for no other number.
const CASES: u32 = 24;
const NO_PADDING: [u64; 4] = [0; 4];

/// How an operator walks over images.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walk {
    pub kernel: [u64; 2],
    pub stride: [u64; 2],
    pub padding: [u64; 4],
    pub dilation: [u64; 2],
}

impl Walk {
    fn plain(kernel: [u64; 2]) -> Self {
        Self { kernel, stride: [1, 1], padding: NO_PADDING, dilation: [1, 1] }
    }
}

/// A network that grows from images, as the text of a workload file.
#[derive(Debug, Clone)]
pub(crate) struct Net {
    tensors: String,
    operators: String,
    images: u64,
    /// Lines, pixels a line, and channels of the tensor made last.
    size: [u64; 3],
    last: String,
    count: usize,
}

impl Net {
    pub(crate) fn new(dtype: &str, images: u64, size: [u64; 3]) -> Self {
        let [lines, pixels, channels] = size;
        let tensors = format!(
            "schema = 1\nname = \"images\"\ndtype = \"{dtype}\"\n[[tensors]]\nname = \"x\"\nshape = [{}, {channels}]\nrole = \"input\"\n",
            images * lines * pixels
        );
        Self { tensors, operators: String::new(), images, size, last: "x".to_owned(), count: 0 }
    }

    fn weight(&mut self, name: &str, rows: u64, columns: u64) -> String {
        let name = format!("{name}{}", self.count);
        let _ =
            write!(self.tensors, "[[tensors]]\nname = \"{name}\"\nshape = [{rows}, {columns}]\nrole = \"weight\"\n");
        name
    }

    fn operator(mut self, kind: &str, more: &[&str], options: &str) -> Self {
        let output = format!("t{}", self.count);
        let inputs: Vec<&str> = std::iter::once(self.last.as_str()).chain(more.iter().copied()).collect();
        let _ = write!(
            self.operators,
            "[[operators]]\nname = \"{kind}{}\"\nkind = \"{kind}\"\ninputs = {inputs:?}\noutput = \"{output}\"\n{options}",
            self.count
        );
        self.last = output;
        self.count += 1;
        self
    }

    /// Lines and pixels a line that are made; `None` where the kernel does not fit.
    fn made(&self, walk: &Walk) -> Option<[u64; 2]> {
        let along = |axis: usize| {
            let padded = self.size[axis] + walk.padding[axis] + walk.padding[axis + 2];
            let reach = (walk.kernel[axis] - 1) * walk.dilation[axis] + 1;
            Some(padded.checked_sub(reach)? / walk.stride[axis] + 1)
        };
        Some([along(0)?, along(1)?])
    }

    fn walk(&self, walk: &Walk) -> String {
        let Walk { kernel, stride, padding, dilation } = walk;
        let image = &self.size[..2];
        format!(
            "image = {image:?}\nkernel = {kernel:?}\nstride = {stride:?}\npadding = {padding:?}\ndilation = {dilation:?}\n"
        )
    }

    pub(crate) fn conv(mut self, walk: Walk, groups: u64, filters: u64, has_bias: bool) -> Self {
        let Some([lines, pixels]) = self.made(&walk) else { return self };
        let depth = self.size[2] / groups * walk.kernel[0] * walk.kernel[1];
        let weight = self.weight("w", depth, filters);
        let mut options = format!("{}groups = {groups}\n", self.walk(&walk));
        if has_bias {
            let bias = self.weight("b", 1, filters);
            let _ = writeln!(options, "vectors = [\"{bias}\"]");
        }
        self.size = [lines, pixels, filters];
        self.operator("conv", &[&weight], &options)
    }

    pub(crate) fn pool(mut self, kind: &str, walk: Walk) -> Self {
        let Some([lines, pixels]) = self.made(&walk) else { return self };
        let options = self.walk(&walk);
        (self.size[0], self.size[1]) = (lines, pixels);
        self.operator(kind, &[], &options)
    }

    pub(crate) fn batch_norm(mut self) -> Self {
        let channels = self.size[2];
        let (gain, bias) = (self.weight("g", 1, channels), self.weight("c", 1, channels));
        self.operator("batch_norm", &[], &format!("vectors = [\"{gain}\", \"{bias}\"]\n"))
    }

    pub(crate) fn unary(self, kind: &str) -> Self {
        self.operator(kind, &[], "")
    }

    pub(crate) fn gemm(mut self, columns: u64) -> Self {
        let weight = self.weight("w", self.size[2], columns);
        self.size[2] = columns;
        self.operator("gemm", &[&weight], "")
    }

    /// The same elements, or the first of them, in another shape.
    pub(crate) fn view(mut self, kind: &str, rows: u64, columns: u64) -> Self {
        let _ = write!(self.tensors, "[[tensors]]\nname = \"t{}\"\nshape = [{rows}, {columns}]\n", self.count);
        self.operator(kind, &[], "")
    }

    /// An image becomes a row.
    pub(crate) fn flat(mut self) -> Self {
        let [lines, pixels, channels] = self.size;
        self.size = [1, 1, lines * pixels * channels];
        let columns = self.size[2];
        let images = self.images;
        self.view("reshape", images, columns)
    }

    /// The tensor that so many operators ago made is added.
    pub(crate) fn plus(self, back: usize) -> Self {
        let other = format!("t{}", self.count - 1 - back);
        self.operator("add", &[&other], "")
    }

    pub(crate) fn text(&self) -> String {
        format!("{}{}", self.tensors, self.operators)
    }

    pub(crate) fn workload(&self) -> Workload {
        let text = self.text();
        workload::parse("images", &text, &[], 0).unwrap_or_else(|error| panic!("{}\n{text}", error.render(false)))
    }
}

/// Every kind of operator on images: steps, uneven paddings, holes, groups, a filter for each channel, pools over the
/// edge and over all, batch norms alone and behind a product, a sum, and shapes of shapes.
pub(crate) fn everything(dtype: &str) -> Net {
    let same = |n: u64| Walk { padding: [n / 2; 4], ..Walk::plain([n, n]) };
    let net = Net::new(dtype, 2, [13, 11, 3])
        .conv(Walk { stride: [2, 1], padding: [3, 0, 2, 1], ..Walk::plain([5, 3]) }, 1, 12, true)
        .batch_norm()
        .unary("relu")
        .pool("max_pool", Walk { stride: [1, 2], padding: [1; 4], ..Walk::plain([3, 3]) })
        .conv(same(3), 12, 12, false)
        .batch_norm()
        .conv(Walk { dilation: [2, 1], padding: [2, 0, 2, 0], ..Walk::plain([3, 1]) }, 3, 12, true)
        .plus(1);
    let [lines, pixels, channels] = net.size;
    let net = net
        .pool("average_pool", Walk { padding: [1, 0, 0, 1], ..Walk::plain([2, 2]) })
        // Two lines become one, and half of the channels go: shapes of shapes.
        .conv(Walk { stride: [2, 2], ..Walk::plain([1, 1]) }, 1, 2 * channels, false)
        .unary("silu");
    let [short_lines, short_pixels, wide] = net.size;
    assert!(short_lines < lines && short_pixels <= pixels);
    let rows = net.images * short_lines * short_pixels;
    let mut net = net.view("reshape", 2 * rows, wide / 2).view("slice", 2 * rows, 5);
    net.size = [2 * short_lines, short_pixels, 5];
    let net = net.conv(same(3), 5, 10, false);
    let [lines, pixels, _] = net.size;
    net.pool("average_pool", Walk::plain([lines, pixels])).gemm(7)
}

/// A chip that multiplies integers too.
pub(crate) fn chip_of(path: &Path) -> Option<Chip> {
    let sets = ["arch.pcu.lanes.int8=64", "arch.energy.mac_pj.int8=0.1"];
    let sets: Vec<Override> = sets.iter().filter_map(|set| Override::parse(set).ok()).collect();
    // A GPU has no configurations, and no lanes to set.
    arch::open(path, &sets).ok()?.into_rdu().ok()
}

fn told(run: &RunVerdict) -> String {
    let fault = run.fault.as_ref().map_or(String::new(), ToString::to_string);
    format!("{}: {fault} {:?} {:?}", run.mode, run.by_stage, run.end_to_end)
}

#[test]
fn networks_of_images_compute_what_they_say() {
    let mut kinds = Vec::new();
    for path in crate::numbers::files("arch") {
        let Some(chip) = chip_of(&path) else { continue };
        for dtype in ["bf16", "fp32", "int8"] {
            let flat = Net::new(dtype, 3, [4, 5, 6]).conv(Walk::plain([2, 3]), 2, 4, true).unary("gelu").flat().gemm(9);
            for net in [everything(dtype), flat] {
                let workload = net.workload();
                kinds.extend(workload.operators.iter().map(|op| op.kind));
                let compiled = found_quickly(&chip, &workload, &Mode::ALL).expect("it fits");
                for run in verify(&chip, &workload, compiled.iter().map(|c| &c.configuration), 4) {
                    assert!(run.passed, "{} {dtype} {}", chip.name, told(&run));
                    assert!(dtype == "fp32" || run.end_to_end.is_some() || run.by_stage.is_some());
                }
            }
        }
    }
    for wanted in [OperatorKind::MaxPool, OperatorKind::AveragePool, OperatorKind::BatchNorm, OperatorKind::Gemm] {
        assert!(kinds.contains(&wanted), "{wanted:?}");
    }
}

#[test]
fn there_are_fewer_images_of_the_same_size() {
    let text = Net::new("bf16", 8, [6, 5, 4])
        .conv(Walk { padding: [1; 4], ..Walk::plain([3, 3]) }, 1, 8, false)
        .pool("max_pool", Walk { stride: [2, 2], ..Walk::plain([2, 2]) })
        .flat()
        .gemm(10)
        .text()
        .replace("shape = [240, 4]", "shape = [\"pixels\", 4]")
        .replace("shape = [8, 48]", "shape = [\"images\", 48]")
        .replacen("[[tensors]]", "[dims]\npixels = 240\nimages = 8\n[[tensors]]", 1);
    let load = |sets: &[Override]| workload::parse("images", &text, sets, 0);
    let chip = chip_of(Path::new("arch/sn10.toml")).expect("a chip");
    let full = graph_flops(&load(&[]).expect("a workload"));
    let (small, scaling) = scaled(&chip, full / 3, load).expect("fewer images");
    let sizes: Vec<u64> = scaling.expect("it is smaller").dims.iter().map(|dim| dim.to).collect();
    assert_eq!(sizes, [2, 60]);
    assert!(graph_flops(&small) <= full / 3);
    // One image alone cannot be less.
    let refused = scaled(&chip, full / 9, load).expect_err("is refused");
    assert!(refused.title().contains("cannot be made small enough"), "{}", refused.title());
}

#[derive(Debug, Clone)]
enum Layer {
    Conv { walk: Walk, groups: u64, of_group: u64, has_bias: bool },
    Pool(&'static str, Walk),
    BatchNorm,
    Unary(&'static str),
    Gemm(u64),
}

fn walks() -> impl Strategy<Value = Walk> {
    let side = || prop_oneof![3 => Just(0u64), 2 => Just(1u64), 1 => Just(2u64)];
    let kernel = || select(vec![3u64, 1, 2, 4, 5]);
    let step = || prop_oneof![3 => Just(1u64), 2 => Just(2u64), 1 => Just(3u64)];
    let apart = || prop_oneof![4 => Just(1u64), 1 => Just(2u64)];
    ([kernel(), kernel()], [step(), step()], [side(), side(), side(), side()], [apart(), apart()])
        .prop_map(|(kernel, stride, padding, dilation)| Walk { kernel, stride, padding, dilation })
}

fn layers() -> impl Strategy<Value = Layer> {
    prop_oneof![
        5 => (walks(), select(vec![1u64, 2, 3, 64]), 1u64..=9, any::<bool>())
            .prop_map(|(walk, groups, of_group, has_bias)| Layer::Conv { walk, groups, of_group, has_bias }),
        2 => (select(vec!["max_pool", "average_pool"]), walks()).prop_map(|(kind, walk)| Layer::Pool(kind, walk)),
        1 => Just(Layer::BatchNorm),
        2 => select(vec!["relu", "gelu"]).prop_map(Layer::Unary),
        1 => (1u64..=24).prop_map(Layer::Gemm),
    ]
}

/// Random networks of images: up to three images of up to 14 x 14 pixels.
fn nets() -> impl Strategy<Value = String> {
    let dtype = prop_oneof![3 => Just("bf16"), 1 => Just("fp32"), 1 => Just("int8")];
    let size = [1u64..=14, 1u64..=14, 1u64..=12];
    (dtype, 1u64..=3, size, prop::collection::vec(layers(), 1..=5), 0u64..4).prop_map(
        |(dtype, images, size, layers, end)| {
            let mut net = Net::new(dtype, images, size);
            for layer in layers {
                net = match layer {
                    Layer::Conv { walk, groups, of_group, has_bias } => {
                        let channels = net.size[2];
                        // As many groups as divide the channels; many stand for one for each channel.
                        let groups = if groups > channels { channels } else { groups };
                        let groups = if channels.is_multiple_of(groups) { groups } else { 1 };
                        net.conv(walk, groups, groups * of_group, has_bias)
                    }
                    Layer::Pool(kind, walk) => net.pool(kind, walk),
                    Layer::BatchNorm => net.batch_norm(),
                    Layer::Unary(kind) => net.unary(kind),
                    Layer::Gemm(columns) => net.gemm(columns),
                };
            }
            let [lines, pixels, channels] = net.size;
            let rows = images * lines * pixels;
            match end {
                0 if net.count > 0 => net.flat().gemm(6).text(),
                1 if net.count > 0 => net.view("slice", rows.div_ceil(2), channels.div_ceil(2)).unary("tanh").text(),
                2 => net.pool("average_pool", Walk::plain([lines, pixels])).text(),
                _ => net.gemm(5).text(),
            }
        },
    )
}

#[test]
fn numbers_of_random_images_are_right() {
    let (ran, numbers, strain) = (Cell::new(0u32), Cell::new(0u64), Cell::new(0.0f64));
    for_all_of(file!(), CASES, (chips(), nets()), |(chip, text)| {
        let chip = chip.chip_of_integers();
        let Ok(workload) = workload::parse("images", &text, &[], 0) else {
            return Err(TestCaseError::fail(format!("no workload:\n{text}")));
        };
        let Ok(compiled) = found_quickly(&chip, &workload, &Mode::ALL) else { return Ok(()) };
        for run in verify(&chip, &workload, compiled.iter().map(|c| &c.configuration), 1) {
            prop_assert!(run.passed, "{}\n{text}", told(&run));
            numbers.set(numbers.get() + run.compared);
            if let Some(worst) = run.by_stage.filter(|worst| worst.tolerance > 0.0) {
                strain.set(strain.get().max(worst.rel_error / worst.tolerance));
            }
        }
        ran.set(ran.get() + 1);
        Ok(())
    });
    println!("images: {} pairs, {} numbers, at worst {:.3} of the tolerance", ran.get(), numbers.get(), strain.get());
    assert!(ran.get() > 0 && numbers.get() > 0);
}
