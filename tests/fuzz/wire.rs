//! Protocol Buffers, the format of ONNX files: a small network, and changes of its fields.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::change::{change_bytes, one_of};

/// A field of a message.
#[derive(Debug, Clone)]
struct Field {
    number: u64,
    value: Value,
}

#[derive(Debug, Clone)]
enum Value {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(Vec<u8>),
    Message(Vec<Field>),
}

/// Messages within messages that are taken apart.
const DEEPEST: u32 = 8;

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn write_varint(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// The fields of a message; `None` if the bytes are something else.
fn fields(mut bytes: &[u8], deep: u32) -> Option<Vec<Field>> {
    let mut list = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let value = match key & 7 {
            0 => Value::Varint(varint(&mut bytes)?),
            1 => {
                let (value, rest) = bytes.split_first_chunk::<8>()?;
                bytes = rest;
                Value::Fixed64(*value)
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok().filter(|&length| length <= bytes.len())?;
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                let inner = if deep > 0 && !value.is_empty() { fields(value, deep - 1) } else { None };
                inner.map_or_else(|| Value::Bytes(value.to_vec()), Value::Message)
            }
            5 => {
                let (value, rest) = bytes.split_first_chunk::<4>()?;
                bytes = rest;
                Value::Fixed32(*value)
            }
            _ => return None,
        };
        if key >> 3 == 0 {
            return None;
        }
        list.push(Field { number: key >> 3, value });
    }
    Some(list)
}

fn written(fields: &[Field]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Field { number, value } in fields {
        let mut long = |value: &[u8]| {
            write_varint(number << 3 | 2, &mut bytes);
            write_varint(value.len() as u64, &mut bytes);
            bytes.extend(value);
        };
        match value {
            Value::Bytes(value) => long(value),
            Value::Message(inner) => long(&written(inner)),
            Value::Varint(value) => {
                write_varint(number << 3, &mut bytes);
                write_varint(*value, &mut bytes);
            }
            Value::Fixed64(value) => {
                write_varint(number << 3 | 1, &mut bytes);
                bytes.extend(value);
            }
            Value::Fixed32(value) => {
                write_varint(number << 3 | 5, &mut bytes);
                bytes.extend(value);
            }
        }
    }
    bytes
}

/// Changes a field of a file somewhere; bytes that are no message are changed as such.
pub(crate) fn change_message(bytes: &mut Vec<u8>, other: &[u8], rng: &mut Pcg64Mcg) {
    match fields(bytes, DEEPEST) {
        Some(mut list) if !list.is_empty() => {
            change_field(&mut list, rng);
            *bytes = written(&list);
        }
        _ => change_bytes(bytes, other, rng),
    }
}

fn change_field(list: &mut Vec<Field>, rng: &mut Pcg64Mcg) {
    let at = rng.random_range(0..list.len());
    if let Value::Message(inner) = &mut list[at].value
        && !inner.is_empty()
        && rng.random_range(0..6u32) > 0
    {
        return change_field(inner, rng);
    }
    match rng.random_range(0..6u32) {
        0 => _ = list.remove(at),
        1 => list.push(list[at].clone()),
        2 => list[at].number = rng.random_range(1..24),
        3 => {
            let to = rng.random_range(0..list.len());
            list.swap(at, to);
        }
        _ => {
            let edges = [0, 1, 2, 3, 7, 63, 255, 1 << 16, 1 << 31, 1 << 32, 1 << 40, 1 << 62, 1 << 63, u64::MAX];
            match &mut list[at].value {
                Value::Varint(value) => *value = *one_of(&edges, rng),
                Value::Bytes(value) => change_bytes(value, &[], rng),
                Value::Fixed64(value) => *value = one_of(&edges, rng).to_le_bytes(),
                Value::Fixed32(value) => *value = (*one_of(&edges, rng) as u32).to_le_bytes(),
                Value::Message(inner) => inner.clear(),
            }
        }
    }
}

/// A message under construction.
#[derive(Default)]
struct Message(Vec<Field>);

impl Message {
    fn with(mut self, number: u64, value: Value) -> Self {
        self.0.push(Field { number, value });
        self
    }

    fn int(self, number: u64, value: u64) -> Self {
        self.with(number, Value::Varint(value))
    }

    fn text(self, number: u64, text: &str) -> Self {
        self.with(number, Value::Bytes(text.as_bytes().to_vec()))
    }

    fn inside(self, number: u64, inner: Self) -> Self {
        self.with(number, Value::Message(inner.0))
    }

    /// A weight of single-precision numbers in a network.
    fn weight(self, name: &str, dims: &[u64]) -> Self {
        let count = dims.iter().product::<u64>();
        let raw: Vec<u8> = (0..count).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let tensor = dims.iter().fold(Self::default(), |tensor, &dim| tensor.int(1, dim));
        self.inside(5, tensor.int(2, 1).text(8, name).with(9, Value::Bytes(raw)))
    }

    /// A list of integers in a network.
    fn ints(self, name: &str, list: &[i64]) -> Self {
        let raw = list.iter().flat_map(|i| i.to_le_bytes()).collect();
        self.inside(5, Self::default().int(1, list.len() as u64).int(2, 7).text(8, name).with(9, Value::Bytes(raw)))
    }

    fn input(self, name: &str, dims: &[u64]) -> Self {
        self.input_of(name, 1, dims)
    }

    fn input_of(self, name: &str, kind: u64, dims: &[u64]) -> Self {
        let dim = |size: &u64| Self::default().int(1, *size);
        let shape = dims.iter().fold(Self::default(), |shape, size| shape.inside(1, dim(size)));
        let tensor = Self::default().int(1, kind).inside(2, shape);
        self.inside(11, Self::default().text(1, name).inside(2, Self::default().inside(1, tensor)))
    }

    /// A node with integer attributes: one, or a list.
    fn node(self, op: &str, inputs: &[&str], output: &str, attributes: &[(&str, &[u64])]) -> Self {
        let attribute = |(name, list): &(&str, &[u64])| match list {
            [one] => Self::default().text(1, name).int(3, *one).int(20, 2),
            list => list.iter().fold(Self::default().text(1, name), |a, &x| a.int(8, x)).int(20, 7),
        };
        self.any(op, inputs, &[output], attributes.iter().map(attribute))
    }

    /// A node with any attributes.
    fn any(self, op: &str, inputs: &[&str], outputs: &[&str], attributes: impl Iterator<Item = Self>) -> Self {
        let node = inputs.iter().fold(Self::default(), |node, input| node.text(1, input));
        let node = outputs.iter().fold(node, |node, output| node.text(2, output));
        let node = node.text(3, outputs[0]).text(4, op);
        self.inside(1, attributes.fold(node, |node, attribute| node.inside(5, attribute)))
    }

    fn file(self) -> Vec<u8> {
        self.file_of(13)
    }

    /// A file of a version of the standard operators.
    fn file_of(self, version: u64) -> Vec<u8> {
        let graph = self.text(2, "net").inside(12, Self::default().text(1, "y"));
        let opset = Self::default().int(2, version);
        written(&Self::default().int(1, 8).text(2, "by hand").inside(7, graph).inside(8, opset).0)
    }
}

/// Small networks that can be imported: a feed-forward block, a convolution, and shapes that are computed.
pub(crate) fn networks() -> Vec<Vec<u8>> {
    let net = Message::default;
    let feed_forward = net()
        .input("x", &[2, 8, 16])
        .weight("w1", &[16, 64])
        .weight("b1", &[64])
        .weight("w2", &[64, 16])
        .node("MatMul", &["x", "w1"], "h0", &[])
        .node("Add", &["b1", "h0"], "h", &[])
        .node("Relu", &["h"], "g", &[])
        .node("MatMul", &["g", "w2"], "y0", &[])
        .node("Softmax", &["y0"], "y", &[("axis", &[2])]);
    let convolution = net()
        .input("x", &[2, 3, 16, 16])
        .weight("w", &[8, 3, 3, 3])
        .node(
            "Conv",
            &["x", "w"],
            "c",
            &[("kernel_shape", &[3, 3]), ("strides", &[2, 2]), ("pads", &[1, 1, 1, 1]), ("group", &[1])],
        )
        .node("Relu", &["c"], "r", &[])
        .node("MaxPool", &["r"], "p", &[("kernel_shape", &[2, 2]), ("strides", &[2, 2])])
        .node("GlobalAveragePool", &["p"], "y", &[]);
    let shaped = net()
        .input("x", &[2, 8, 16])
        .weight("w", &[16, 16])
        .ints("zero", &[0])
        .ints("tail", &[8, 4, 4])
        .ints("back", &[0, 8, 16])
        .node("Shape", &["x"], "shape", &[])
        .node("Gather", &["shape", "zero"], "batch", &[("axis", &[0])])
        .node("Concat", &["batch", "tail"], "in_heads", &[("axis", &[0])])
        .node("MatMul", &["x", "w"], "q", &[])
        .node("Reshape", &["q", "in_heads"], "split", &[])
        .node("Transpose", &["split"], "turned", &[("perm", &[0, 2, 1, 3])])
        .node("Transpose", &["turned"], "again", &[("perm", &[0, 2, 1, 3])])
        .node("Reshape", &["again", "back"], "y", &[]);
    let mut list: Vec<Vec<u8>> = [feed_forward, convolution, shaped].map(Message::file).into();
    list.extend(newer().into_iter().map(|(_, bytes)| bytes));
    list.extend([gpt(), cnn(), quantised()]);
    list
}

/// Networks of one operator of later versions, or of images, and what is behind it: name and file.
pub(crate) fn newer() -> Vec<(&'static str, Vec<u8>)> {
    let net = Message::default;
    let text = |name: &str, text: &str| net().text(1, name).text(4, text).int(20, 3);
    let image = || net().input("x", &[1, 8, 6, 6]);
    let turned = |kernel: u64, attributes: &[(&str, &[u64])]| {
        let net = image().weight("w", &[8, 4, kernel, kernel]).weight("b", &[4]);
        net.node("ConvTranspose", &["x", "w", "b"], "t", attributes).node("Relu", &["t"], "y", &[]).file_of(11)
    };
    let resized = |mode: &str, to: i64| {
        let net = image().ints("sizes", &[1, 8, to, to]).weight("w", &[4, 8, 3, 3]);
        let net = net.any("Resize", &["x", "", "", "sizes"], &["r"], std::iter::once(text("mode", mode)));
        net.node("Conv", &["r", "w"], "y", &[]).file_of(18)
    };
    let heads = [("q_num_heads", 4), ("kv_num_heads", 2), ("is_causal", 1)];
    let heads = || heads.into_iter().map(|(name, count)| net().text(1, name).int(3, count).int(20, 2));
    let projected = || {
        let net = net().input("x", &[2, 8, 16]).weight("q", &[16, 16]).weight("k", &[16, 8]).weight("v", &[16, 8]);
        net.node("MatMul", &["x", "q"], "xq", &[]).node("MatMul", &["x", "k"], "xk", &[]).node(
            "MatMul",
            &["x", "v"],
            "xv",
            &[],
        )
    };
    let attention = projected().weight("o", &[16, 16]).any("Attention", &["xq", "xk", "xv"], &["a"], heads());
    let cached = projected().input("pk", &[2, 2, 24, 4]).input("pv", &[2, 2, 24, 4]).weight("o", &[16, 16]);
    let cached = cached.any("Attention", &["xq", "xk", "xv", "", "pk", "pv"], &["a", "nk", "nv"], heads());
    let largest = net().input("x", &[12, 40]).weight("w", &[40, 20]).ints("k", &[4]);
    let largest =
        largest.node("MatMul", &["x", "w"], "h", &[]).any("TopK", &["h", "k"], &["v", "i"], std::iter::empty());
    let even = image().weight("w", &[4, 8, 3, 3]).node("LRN", &["x"], "n", &[("size", &[5])]);
    vec![
        ("turned_by_classes", turned(3, &[("strides", &[2, 2]), ("pads", &[1, 1, 1, 1]), ("output_padding", &[1, 1])])),
        ("turned_at_once", turned(4, &[("strides", &[2, 2]), ("pads", &[1, 1, 1, 1])])),
        ("nearest", resized("nearest", 12)),
        ("linear", resized("linear", 12)),
        ("gathered", resized("nearest", 9)),
        ("shrunk", resized("nearest", 3)),
        ("attention", attention.node("MatMul", &["a", "o"], "y", &[]).file_of(23)),
        ("cached", cached.node("MatMul", &["a", "o"], "y", &[]).file_of(23)),
        ("largest", largest.node("Softmax", &["v"], "y", &[("axis", &[1])]).file()),
        ("even", even.node("Conv", &["n", "w"], "y", &[]).file_of(9)),
    ]
}

/// x w of 16 rows, 256 x 512 elements of eight bits with a scale and a zero point for each column.
pub(crate) fn quantised() -> Vec<u8> {
    let bytes = |net: Message, name: &str, dims: &[u64]| {
        let raw = (0..dims.iter().product::<u64>()).map(|i| i as u8).collect();
        let tensor = dims.iter().fold(Message::default(), |tensor, &dim| tensor.int(1, dim));
        net.inside(5, tensor.int(2, 2).text(8, name).with(9, Value::Bytes(raw)))
    };
    let net = Message::default().input("x", &[16, 256]).weight("w_scale", &[512]);
    let net = bytes(bytes(net, "w_q", &[256, 512]), "w_zero", &[512]);
    let net = net.node("DequantizeLinear", &["w_q", "w_scale", "w_zero"], "w", &[("axis", &[1])]);
    net.node("MatMul", &["x", "w"], "y", &[]).file()
}

/// The network of [`super::exported::gpt`] for two sequences.
pub(crate) fn gpt() -> Vec<u8> {
    let mut net = Message::default().input_of("ids", 7, &[2, 8]).weight("wte", &[50, 16]).ints("apart", &[2, 8, 4, 4]);
    net = net.ints("flat", &[2, 8, 16]);
    for (name, rows, columns) in [("qkv", 16, 48), ("out", 16, 16), ("up", 16, 64), ("down", 64, 16)] {
        net = net.weight(&format!("{name}.w"), &[rows, columns]).weight(&format!("{name}.b"), &[columns]);
    }
    for name in ["ln1.g", "ln1.b", "ln2.g", "ln2.b"] {
        net = net.weight(name, &[16]);
    }
    let linear = |net: Message, x: &str, name: &str, output: &str| {
        let product = format!("{output}.0");
        net.node("MatMul", &[x, &format!("{name}.w")], &product, &[]).node(
            "Add",
            &[&product, &format!("{name}.b")],
            output,
            &[],
        )
    };
    net = net.node("Gather", &["wte", "ids"], "x", &[]);
    net = net.node("LayerNormalization", &["x", "ln1.g", "ln1.b"], "n1", &[]);
    net = linear(net, "n1", "qkv", "qkv").any(
        "Split",
        &["qkv"],
        &["q0", "k0", "v0"],
        std::iter::once(Message::default().text(1, "axis").int(3, 2).int(20, 2)),
    );
    for part in ["q", "k", "v"] {
        let (from, split) = (format!("{part}0"), format!("{part}1"));
        net = net.node("Reshape", &[&from, "apart"], &split, &[]);
        net = net.node("Transpose", &[&split], part, &[("perm", &[0, 2, 1, 3])]);
    }
    net = net.any(
        "Attention",
        &["q", "k", "v"],
        &["a0"],
        std::iter::once(Message::default().text(1, "is_causal").int(3, 1).int(20, 2)),
    );
    net = net.node("Transpose", &["a0"], "a1", &[("perm", &[0, 2, 1, 3])]).node("Reshape", &["a1", "flat"], "a", &[]);
    net = linear(net, "a", "out", "o").node("Add", &["x", "o"], "x2", &[]);
    net = net.node("LayerNormalization", &["x2", "ln2.g", "ln2.b"], "n2", &[]);
    net = linear(net, "n2", "up", "h").node("Gelu", &["h"], "g", &[]);
    net = linear(net, "g", "down", "d").node("Add", &["x2", "d"], "x3", &[]);
    net = net.node("Transpose", &["wte"], "turned", &[("perm", &[1, 0])]);
    net.node("MatMul", &["x3", "turned"], "y", &[]).file_of(23)
}

/// The network of [`super::exported::cnn`].
pub(crate) fn cnn() -> Vec<u8> {
    let net = Message::default().input("x", &[2, 3, 16, 16]).weight("w1", &[8, 3, 3, 3]).weight("w2", &[8, 1, 3, 3]);
    let net = ["g", "b", "m", "v", "b2"].into_iter().fold(net, |net, name| net.weight(name, &[8]));
    let net = net.weight("w3", &[10, 8]).weight("b3", &[10]);
    net.node("Conv", &["x", "w1"], "c", &[("strides", &[2, 2]), ("pads", &[1, 1, 1, 1])])
        .node("BatchNormalization", &["c", "g", "b", "m", "v"], "n", &[])
        .node("Relu", &["n"], "r", &[])
        .node("Conv", &["r", "w2", "b2"], "d", &[("pads", &[1, 1, 1, 1]), ("group", &[8])])
        .node("MaxPool", &["d"], "p", &[("kernel_shape", &[2, 2]), ("strides", &[2, 2])])
        .node("GlobalAveragePool", &["p"], "q", &[])
        .node("Flatten", &["q"], "f", &[("axis", &[1])])
        .node("Gemm", &["f", "w3", "b3"], "y", &[("transB", &[1])])
        .file()
}
