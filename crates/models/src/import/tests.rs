//! Networks made by hand: what they become, and what is said of those that cannot be used.

mod config;
mod drawn;
mod hybrids;
mod newer;
#[path = "../../../../tests/main/protobuf.rs"]
mod protobuf;
mod quantized;

use std::path::Path;

use proptest::prelude::*;

use self::protobuf::Message;
use super::onnx::of_bytes;
use super::{Imported, Options};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_graph::workload::{self, Workload};

fn message() -> Message {
    Message::default()
}

/// A graph under construction.
#[derive(Default, Clone)]
struct Net(Message);

impl Net {
    fn weight(self, name: &str, dims: &[i64], values: impl Fn(usize) -> f32) -> Self {
        let count = dims.iter().product::<i64>() as usize;
        let raw: Vec<u8> = (0..count).flat_map(|i| values(i).to_le_bytes()).collect();
        let tensor = dims.iter().fold(message(), |m, &dim| m.int(1, dim)).int(2, 1).text(8, name).bytes(9, &raw);
        Self(self.0.bytes(5, &tensor.0))
    }

    fn ints(self, name: &str, list: &[i64]) -> Self {
        let raw: Vec<u8> = list.iter().flat_map(|i| i.to_le_bytes()).collect();
        let tensor = message().int(1, list.len().cast_signed() as i64).int(2, 7).text(8, name).bytes(9, &raw);
        Self(self.0.bytes(5, &tensor.0))
    }

    fn number(self, name: &str, value: f32) -> Self {
        let tensor = message().int(2, 1).text(8, name).bytes(9, &value.to_le_bytes());
        Self(self.0.bytes(5, &tensor.0))
    }

    /// Inputs (field 11), outputs (12) or values (13); a dimension that is no number is a name.
    fn value(self, field: u64, name: &str, kind: i64, dims: &[&str]) -> Self {
        let shape = dims.iter().fold(message(), |shape, dim| {
            let dim = match dim.parse() {
                Ok(size) => message().int(1, size),
                Err(_) => message().text(2, dim),
            };
            shape.bytes(1, &dim.0)
        });
        let tensor = message().int(1, kind).bytes(2, &shape.0);
        let info = message().text(1, name).bytes(2, &message().bytes(1, &tensor.0).0);
        Self(self.0.bytes(field, &info.0))
    }

    fn input(self, name: &str, dims: &[&str]) -> Self {
        self.value(11, name, 1, dims)
    }

    fn output(self, name: &str) -> Self {
        let info = message().text(1, name);
        Self(self.0.bytes(12, &info.0))
    }

    fn node(self, op: &str, inputs: &[&str], output: &str) -> Self {
        self.node_with(op, inputs, output, &[])
    }

    /// A node with attributes: one integer, or a list.
    fn node_with(self, op: &str, inputs: &[&str], output: &str, attributes: &[(&str, &[i64])]) -> Self {
        let mut node = inputs.iter().fold(message(), |node, input| node.text(1, input)).text(2, output);
        node = node.text(3, &format!("/{output}")).text(4, op);
        for (name, list) in attributes {
            let attribute = match list {
                [one] if *name != "axes" && *name != "split" => message().text(1, name).int(3, *one).int(20, 2),
                list => list.iter().fold(message().text(1, name), |m, &x| m.int(8, x)).int(20, 7),
            };
            node = node.bytes(5, &attribute.0);
        }
        Self(self.0.bytes(1, &node.0))
    }

    fn bytes(&self) -> Vec<u8> {
        let opset = message().int(2, 13);
        message().int(1, 8).text(2, "by hand").bytes(7, &self.0.clone().text(2, "net").0).bytes(8, &opset.0).0
    }

    fn import(&self, options: &Options) -> Result<Imported, Diagnostic> {
        of_bytes(&self.bytes(), Path::new("nowhere/net.onnx"), options)
    }

    fn text(&self) -> String {
        self.import(&options()).unwrap().graph.into_text()
    }

    fn workload(&self) -> Workload {
        let text = self.text();
        workload::parse("net.toml", &text, &[], 0).unwrap_or_else(|error| panic!("{}\n{text}", error.render(false)))
    }

    fn refused(&self) -> Diagnostic {
        self.import(&options()).unwrap_err()
    }
}

fn options() -> Options {
    Options { dtype: "bf16".to_owned(), ..Options::default() }
}

fn kinds(workload: &Workload) -> Vec<&'static str> {
    workload.operators.iter().map(|operator| operator.kind.name()).collect()
}

fn flop(workload: &Workload) -> u64 {
    workload.operators.ids().map(|op| 2 * workload.dense_macs(op)).sum()
}

/// A feed-forward block as exporters write it: weights, biases, and GELU by the error function.
fn feed_forward() -> Net {
    Net::default()
        .input("x", &["2", "8", "16"])
        .weight("w1", &[16, 64], |i| i as f32)
        .weight("b1", &[64], |_| 0.0)
        .weight("w2", &[64, 16], |i| if i % 4 == 0 { 1.0 } else { 0.0 })
        .number("root", std::f32::consts::SQRT_2)
        .number("one", 1.0)
        .number("half", 0.5)
        .node("MatMul", &["x", "w1"], "h0")
        .node("Add", &["b1", "h0"], "h")
        .node("Div", &["h", "root"], "e0")
        .node("Erf", &["e0"], "e1")
        .node("Add", &["e1", "one"], "e2")
        .node("Mul", &["h", "e2"], "e3")
        .node("Mul", &["e3", "half"], "g")
        .node("MatMul", &["g", "w2"], "y")
        .output("y")
}

#[test]
fn a_feed_forward_block() {
    let workload = feed_forward().workload();
    assert_eq!(kinds(&workload), ["gemm", "gelu", "gemm"]);
    assert_eq!((workload.parameters(), flop(&workload)), (16 * 64 + 64 + 64 * 16, 2 * 16 * 16 * 64 * 2));
    let first = &workload.operators.iter().next().unwrap();
    assert_eq!(first.vectors.len(), 1);
}

/// Attention of two sequences of 8 tokens with 4 heads of 4, as exporters write it: the mask a triangle, shapes worked
/// out from the input's.
fn attention(mask: &str) -> Net {
    let net = Net::default()
        .input("x", &["batch", "8", "16"])
        .weight("qkv", &[16, 48], |i| i as f32)
        .weight("out", &[16, 16], |i| i as f32)
        .ints("zero", &[0])
        .ints("tail", &[8, 4, 4])
        .ints("back", &[8, 16])
        .number("scale", 0.5)
        .weight("triangle", &[8, 8], |i| if i % 8 <= i / 8 { 0.0 } else { -1e9 })
        .weight("flat", &[8, 8], |_| 0.0)
        .node("Shape", &["x"], "shape")
        .node_with("Gather", &["shape", "zero"], "batch_size", &[("axis", &[0])])
        .node_with("Concat", &["batch_size", "tail"], "in_heads", &[("axis", &[0])])
        .node_with("Concat", &["batch_size", "back"], "side_by_side", &[("axis", &[0])])
        .node("MatMul", &["x", "qkv"], "projected");
    // Queries, keys and values are cut out of one product.
    let part = |net: Net, name: &str, from: i64| {
        net.ints(&format!("{name}_from"), &[from])
            .ints(&format!("{name}_to"), &[from + 16])
            .ints(&format!("{name}_axis"), &[2])
            .node(
                "Slice",
                &["projected", &format!("{name}_from"), &format!("{name}_to"), &format!("{name}_axis")],
                &format!("{name}0"),
            )
            .node("Reshape", &[&format!("{name}0"), "in_heads"], &format!("{name}1"))
    };
    let net = part(part(part(net, "q", 0), "k", 16), "v", 32);
    net.node_with("Transpose", &["q1"], "q", &[("perm", &[0, 2, 1, 3])])
        .node_with("Transpose", &["k1"], "k", &[("perm", &[0, 2, 3, 1])])
        .node_with("Transpose", &["v1"], "v", &[("perm", &[0, 2, 1, 3])])
        .node("MatMul", &["q", "k"], "s0")
        .node("Mul", &["s0", "scale"], "s1")
        .node("Add", &["s1", mask], "s2")
        .node_with("Softmax", &["s2"], "p", &[("axis", &[-1])])
        .node("MatMul", &["p", "v"], "o0")
        .node_with("Transpose", &["o0"], "o1", &[("perm", &[0, 2, 1, 3])])
        .node("Reshape", &["o1", "side_by_side"], "o")
        .node("MatMul", &["o", "out"], "y")
        .output("y")
}

#[test]
fn attention_is_put_together_again() {
    let with = Options { dims: vec![("batch".to_owned(), 2)], ..options() };
    for (mask, causal) in [("triangle", true), ("flat", false)] {
        let text = attention(mask).import(&with).unwrap().graph.into_text();
        let workload = workload::parse("net.toml", &text, &[], 0).unwrap();
        let masked = if causal { "causal_mask" } else { "scale" };
        assert_eq!(kinds(&workload), ["gemm", "gemm", "gemm", "gemm", masked, "softmax", "gemm", "gemm"], "{text}");
        assert_eq!(workload.parameters(), 16 * 48 + 16 * 16);
        let form = workload.operators.iter().nth(3).and_then(|operator| operator.form).unwrap();
        assert_eq!((form.instances, form.heads, form.m, form.n, form.k), (2, 4, 8, 8, 4));
        assert_eq!(form.causal.is_some(), causal);
        assert_eq!(flop(&workload), 2 * (16 * 16 * 64) + 2 * 2 * (2 * 4 * 8 * 8 * 4));
    }
    let open = attention("flat").refused();
    assert!(open.title().contains("leaves the dimension `batch`"), "{open}");
    assert_eq!(open.help(), Some("give --dim batch=N"));
    let unknown = Options { dims: vec![("batch".to_owned(), 2), ("other".to_owned(), 3)], ..options() };
    assert!(attention("flat").import(&unknown).unwrap_err().title().contains("`--dim other=...`"));
}

/// The norm of exporters before version 17.
fn norm(centred: bool) -> Net {
    let net = Net::default()
        .input("x", &["4", "32"])
        .weight("gain", &[32], |_| 1.0)
        .weight("bias", &[32], |_| 0.0)
        .number("two", 2.0)
        .number("small", 1e-5);
    let (net, s) = if centred {
        let net = net.node_with("ReduceMean", &["x"], "mean", &[("axes", &[-1])]);
        (net.node("Sub", &["x", "mean"], "s"), "s")
    } else {
        (net, "x")
    };
    net.node("Pow", &[s, "two"], "squared")
        .node_with("ReduceMean", &["squared"], "variance", &[("axes", &[-1])])
        .node("Add", &["variance", "small"], "v1")
        .node("Sqrt", &["v1"], "root")
        .node("Div", &[s, "root"], "n0")
        .node("Mul", &["n0", "gain"], "n1")
        .node("Add", &["n1", "bias"], "y")
        .output("y")
}

#[test]
fn norms_and_gates() {
    let layer = norm(true).workload();
    assert_eq!((kinds(&layer), layer.parameters()), (vec!["layer_norm"], 64));
    let rms = norm(false).workload();
    assert_eq!((kinds(&rms), rms.parameters()), (vec!["rms_norm", "bias"], 64));
    let silu =
        Net::default().input("x", &["4", "8"]).node("Sigmoid", &["x"], "s").node("Mul", &["x", "s"], "y").output("y");
    assert_eq!(kinds(&silu.workload()), ["silu"]);
}

/// A small network of images: convolution, batch norm, pooling, joined channels, classes.
fn images() -> Net {
    let vector = |net: Net, name: &str, n: i64| net.weight(name, &[n], |_| 1.0);
    let net = Net::default()
        .input("x", &["2", "3", "16", "16"])
        .weight("w1", &[8, 3, 3, 3], |i| i as f32)
        .weight("w2", &[8, 1, 3, 3], |i| i as f32)
        .weight("w3", &[10, 16], |i| i as f32);
    let net = ["g1", "c1", "m1", "v1", "g2", "c2", "m2", "v2"].into_iter().fold(net, |net, name| vector(net, name, 8));
    net.node_with("Conv", &["x", "w1"], "a0", &[("pads", &[1, 1, 1, 1]), ("strides", &[2, 2])])
        .node("BatchNormalization", &["a0", "g1", "c1", "m1", "v1"], "a1")
        .node("Relu", &["a1"], "a")
        .node_with("Conv", &["a", "w2"], "d0", &[("pads", &[1, 1, 1, 1]), ("group", &[8])])
        .node_with("Concat", &["a", "d0"], "c", &[("axis", &[1])])
        .node_with("MaxPool", &["c"], "p", &[("kernel_shape", &[2, 2]), ("strides", &[2, 2])])
        .node("GlobalAveragePool", &["p"], "q")
        .node_with("Flatten", &["q"], "f", &[("axis", &[1])])
        .node_with("Gemm", &["f", "w3"], "y", &[("transB", &[1])])
        .output("y")
}

#[test]
fn images_become_rows_of_pixels() {
    let workload = images().workload();
    assert_eq!(kinds(&workload), ["gemm", "relu", "gemm", "concat", "max_pool", "average_pool", "gemm"]);
    let weights = 8 * 27 + 8 * 9 + 160;
    assert_eq!(workload.parameters(), weights + 8);
    assert_eq!(flop(&workload), 2 * (2 * 64) * (27 * 8 + 9 * 8) + 2 * 2 * 160);
    let first = &workload.tensors[workload.operators.iter().next().unwrap().inputs[0]];
    assert_eq!((first.rows, first.columns, first.dense_bytes()), (2 * 64, 27, 2 * 16 * 16 * 3 * 2));
    // Behind what two read, a batch norm stays an operator.
    let kept = Net::default()
        .input("x", &["1", "8", "4", "4"])
        .weight("g", &[8], |_| 1.0)
        .node("BatchNormalization", &["x", "g", "g", "g", "g"], "b")
        .node_with("LRN", &["b"], "y", &[("size", &[5])])
        .output("y");
    assert_eq!(kinds(&kept.workload()), ["batch_norm", "local_norm"]);
}

#[test]
fn zeros_and_pruned_weights_become_masks() {
    let asked = Options { masks: true, masks_file: Some("m.safetensors".to_owned()), ..options() };
    let directory = tempfile::tempdir().unwrap();
    let stored = |options: &Options| {
        let Imported { graph, masks } = feed_forward().import(options).unwrap();
        let text = graph.into_text();
        std::fs::write(directory.path().join("m.safetensors"), masks.unwrap()).unwrap();
        let name = directory.path().join("net.toml");
        let workload = workload::parse(&name.display().to_string(), &text, &[], 0).unwrap();
        let of = |name: &str| workload.tensors.iter().find(|t| t.name == name).unwrap().stored_elements();
        (of("w1"), of("w2"))
    };
    // One zero in w1, three of four in w2.
    assert_eq!(stored(&asked), (1023, 256));
    let pruned = Options { density: Some(0.25), block: Some((8, 8)), ..asked.clone() };
    assert_eq!(stored(&pruned), (256, 256));
    let nowhere = Options { masks_file: None, ..asked };
    assert!(feed_forward().import(&nowhere).unwrap_err().help().unwrap().contains("-o FILE"));
}

/// Two nodes that nothing is known of.
fn unknown() -> Net {
    Net::default()
        .input("x", &["2", "8"])
        .weight("w", &[8, 4], |i| i as f32)
        .node("Sorcery", &["x"], "a")
        .node("MatMul", &["a", "w"], "b")
        .node("Sorcery", &["b"], "c")
        .node("Relu", &["c"], "y")
        .value(13, "a", 1, &["2", "8"])
        .value(13, "c", 1, &["2", "4"])
        .output("y")
}

#[test]
fn what_is_not_known_is_told_at_once_or_skipped() {
    insta::assert_snapshot!(unknown().refused().render(false), @r"
error: 2 nodes have no operator in a workload:
       Sorcery, 2 x: the operator is not known: `/a` of x [2, 8]; `/c` of b [2, 4]
help: give `--skip-unsupported` to take them as elementwise functions or as boundaries; every result says so
");
    let skipping = Options { skip_unsupported: true, ..options() };
    let text = unknown().import(&skipping).unwrap().graph.into_text();
    let workload = workload::parse("net.toml", &text, &[], 0).unwrap();
    assert_eq!(kinds(&workload), ["scale", "gemm", "scale", "relu"]);
    assert!(workload.notes[0].contains("2 x Sorcery"), "{:?}", workload.notes);
}

#[test]
fn damaged_and_contradictory_networks_are_refused() {
    let refused = |net: Net, what: &str| {
        let error = net.refused();
        assert!(error.title().contains(what), "{error}");
    };
    let x = || Net::default().input("x", &["2", "8"]).weight("w", &[8, 4], |_| 1.0);
    refused(x().node("Relu", &["b"], "a").node("Relu", &["a"], "b").output("b"), "form a cycle: /b -> /a -> /b");
    refused(x().node("Relu", &["gone"], "y").output("y"), "which nothing makes");
    refused(x().node("Relu", &["x"], "y").node("Tanh", &["x"], "y").output("y"), "made twice");
    refused(x().node("Relu", &["x"], "y").output("z"), "nothing makes the network's output");
    refused(x().node("MatMul", &["w", "x"], "y").output("y"), "4 columns meet 2 rows");
    refused(x().node("Relu", &["x"], "y").value(13, "y", 1, &["2", "9"]).output("y"), "is stated to be [2, 9]");
    refused(
        Net::default().input("x", &["1099511627776", "1099511627776"]).node("Relu", &["x"], "y").output("y"),
        "more than 2^50 elements",
    );
    refused(Net::default(), "no nodes");
    let short = message().int(1, 5).int(2, 1).text(8, "w").bytes(9, &[0; 8]);
    refused(Net(x().0.bytes(5, &short.0)).node("Relu", &["x"], "y").output("y"), "needs 20 bytes, and 8 are stored");
    // Weights in a file that is not there, or that lies elsewhere.
    let outside = |location: &str| {
        let entry = message().text(1, "location").text(2, location);
        let tensor = message().int(1, 8).int(1, 4).int(2, 1).text(8, "v").bytes(13, &entry.0).int(14, 1);
        Net(x().0.bytes(5, &tensor.0)).node("MatMul", &["x", "v"], "y").output("y")
    };
    refused(outside("v.data"), "\"v.data\" of tensor \"v\" cannot be opened");
    refused(outside("../v.data"), "is not in the model's directory");
    let without = Options { without_weights: true, ..options() };
    assert!(outside("v.data").import(&without).is_ok());
    let whole = feed_forward().bytes();
    let cut = of_bytes(&whole[..whole.len() / 2], Path::new("x.onnx"), &options()).unwrap_err();
    assert!(cut.title().contains("is the file cut off?"), "{cut}");
}

#[test]
fn messages_nested_without_end_are_refused() {
    let mut bytes = Vec::new();
    for _ in 0..100_000 {
        bytes = [vec![0x2a], varint(bytes.len()), bytes].concat();
        if bytes.len() > 4096 {
            break;
        }
    }
    let graph = message().bytes(7, &message().bytes(1, &bytes).0).0;
    assert!(of_bytes(&graph, Path::new("x.onnx"), &options()).is_err());
}

fn varint(number: usize) -> Vec<u8> {
    let mut message = message();
    message.varint(number as u64);
    message.0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_bytes_make_it_panic(
        which in 0usize..4,
        cut in 0usize..4000,
        changes in prop::collection::vec((0usize..4000, any::<u8>()), 0..6),
    ) {
        let net = [feed_forward(), attention("triangle"), images(), norm(true)][which].clone();
        let mut bytes = net.bytes();
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(if cut < 3000 { bytes.len() } else { cut % bytes.len() });
        let with = Options { dims: vec![("batch".to_owned(), 2)], skip_unsupported: cut % 2 == 0, ..options() };
        if let Ok(imported) = of_bytes(&bytes, Path::new("nowhere/net.onnx"), &with) {
            // What comes out is TOML, and a workload or refused as one.
            let _ = workload::parse("net.toml", imported.graph.text(), &[], 0);
            prop_assert!(toml::from_str::<toml::Table>(imported.graph.text()).is_ok());
        }
    }
}
