//! ResNet-50 as a workload: what one chip has of a batch of images, forward.
//!
//! `cargo run --release --example resnet50 -- 16 >resnet50.toml` writes 16 images of 224 x 224 in fp16. Layers as in He et al., *Deep Residual
//! Learning for Image Recognition*, 2015, table 1, with the stride on the 3 x 3 convolutions; batch norms are folded into biases.

use std::fmt::Write as _;
use std::io::{self, Write as _};

/// Blocks of a stage, columns of their inner convolutions, and the stride of the first.
const STAGES: [(u64, u64, u64); 4] = [(3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)];

#[derive(Default)]
struct Writer {
    tensors: String,
    operators: String,
}

/// An activation: its name, lines and pixels of an image, channels.
#[derive(Clone)]
struct Images {
    name: String,
    side: u64,
    channels: u64,
}

impl Writer {
    fn tensor(&mut self, name: &str, rows: &str, columns: u64, role: &str) {
        let _ = writeln!(self.tensors, "\n[[tensors]]\nname = {name:?}\nshape = [{rows}, {columns}]\nrole = {role:?}");
    }

    fn operator(&mut self, name: &str, kind: &str, inputs: &[&str], more: &str) {
        let inputs = inputs.iter().map(|input| format!("{input:?}")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(
            self.operators,
            "\n[[operators]]\nname = {name:?}\nkind = {kind:?}\ninputs = [{inputs}]\noutput = \"{name}.out\"{more}"
        );
    }

    /// A convolution of kernel x kernel with a bias.
    fn convolution(&mut self, name: &str, from: &Images, kernel: u64, channels: u64, stride: u64) -> Images {
        let (weight, bias) = (format!("{name}.w"), format!("{name}.b"));
        self.tensor(&weight, &(from.channels * kernel * kernel).to_string(), channels, "weight");
        self.tensor(&bias, "1", channels, "weight");
        let (side, pad) = (from.side, kernel / 2);
        let more = format!(
            "\nvectors = [{bias:?}]\nimage = [{side}, {side}]\nkernel = [{kernel}, {kernel}]\nstride = [{stride}, {stride}]\n\
             padding = [{pad}, {pad}, {pad}, {pad}]"
        );
        self.operator(name, "conv", &[&from.name, &weight], &more);
        Images { name: format!("{name}.out"), side: (side + 2 * pad - kernel) / stride + 1, channels }
    }

    fn relu(&mut self, from: &Images) -> Images {
        let name = format!("{}.relu", from.name.trim_end_matches(".out"));
        self.operator(&name, "relu", &[&from.name], "");
        Images { name: format!("{name}.out"), ..from.clone() }
    }

    /// Three convolutions and the shortcut around them.
    fn block(&mut self, name: &str, from: &Images, inner: u64, stride: u64) -> Images {
        let reduced = self.convolution(&format!("{name}.reduce"), from, 1, inner, 1);
        let reduced = self.relu(&reduced);
        let wide = self.convolution(&format!("{name}.spatial"), &reduced, 3, inner, stride);
        let wide = self.relu(&wide);
        let expanded = self.convolution(&format!("{name}.expand"), &wide, 1, 4 * inner, 1);
        let shortcut = if from.channels == expanded.channels {
            from.clone()
        } else {
            self.convolution(&format!("{name}.shortcut"), from, 1, 4 * inner, stride)
        };
        let sum = format!("{name}.add");
        self.operator(&sum, "add", &[&expanded.name, &shortcut.name], "");
        self.relu(&Images { name: format!("{sum}.out"), ..expanded })
    }
}

fn main() -> io::Result<()> {
    let images = std::env::args().nth(1).and_then(|word| word.parse::<u64>().ok()).unwrap_or(16).max(1);
    let mut writer = Writer::default();
    writer.tensor("images", &(images * 224 * 224).to_string(), 3, "input");
    let input = Images { name: "images".to_owned(), side: 224, channels: 3 };
    let stem = writer.convolution("stem", &input, 7, 64, 2);
    let stem = writer.relu(&stem);
    let pool = format!("\nimage = [{0}, {0}]\nkernel = [3, 3]\nstride = [2, 2]\npadding = [1, 1, 1, 1]", stem.side);
    writer.operator("pool", "max_pool", &[&stem.name], &pool);
    let mut x = Images { name: "pool.out".to_owned(), side: (stem.side - 1) / 2 + 1, ..stem };
    for (at, (blocks, inner, stride)) in STAGES.into_iter().enumerate() {
        for block in 0..blocks {
            let stride = if block == 0 { stride } else { 1 };
            x = writer.block(&format!("stage{}.block{block}", at + 1), &x, inner, stride);
        }
    }
    let whole = format!("\nimage = [{0}, {0}]\nkernel = [{0}, {0}]", x.side);
    writer.operator("average", "average_pool", &[&x.name], &whole);
    writer.tensor("classes.w", "2048", 1000, "weight");
    writer.tensor("classes.b", "1", 1000, "weight");
    writer.operator("classes", "gemm", &["average.out", "classes.w"], "\nvectors = [\"classes.b\"]");
    let head = format!(
        "# ResNet-50, {images} images of 224 x 224, forward.\n\nschema = 1\nname = \"resnet-50\"\ndtype = \"fp16\"\n"
    );
    io::stdout().write_all((head + &writer.tensors + &writer.operators).as_bytes())
}
