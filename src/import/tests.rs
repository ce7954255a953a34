//! Networks made by hand: what they become, and what is said of those that cannot be used.

use std::path::Path;

use proptest::prelude::*;

use super::onnx::of_bytes;
use super::{Imported, Options, import};
use crate::diagnostics::Diagnostic;
use crate::model::Phase;
use crate::workload::{self, Workload};

/// Bytes of a message under construction.
#[derive(Default, Clone)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn int(mut self, field: u64, number: i64) -> Self {
        self.varint(field << 3);
        self.varint(number.cast_unsigned());
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }
}

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
        self.import(&options()).unwrap().text
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
        let text = attention(mask).import(&with).unwrap().text;
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
    assert_eq!(kinds(&kept.workload()), ["batch_norm", "rms_norm"]);
}

#[test]
fn zeros_and_pruned_weights_become_masks() {
    let asked = Options { masks: true, masks_file: Some("m.safetensors".to_owned()), ..options() };
    let directory = tempfile::tempdir().unwrap();
    let stored = |options: &Options| {
        let Imported { text, masks } = feed_forward().import(options).unwrap();
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
    let text = unknown().import(&skipping).unwrap().text;
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
            let _ = workload::parse("net.toml", &imported.text, &[], 0);
            prop_assert!(toml::from_str::<toml::Table>(&imported.text).is_ok());
        }
    }
}

/// A `config.json` in a directory of its own, imported.
fn config(text: &str, options: &Options) -> Result<String, Diagnostic> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    std::fs::write(&path, text).unwrap();
    import(&path, options).map(|imported| imported.text)
}

#[test]
fn published_configs_have_their_parameters() {
    let published: [(&str, f64); 7] = [
        // huggingface.co: the sums of the released weights.
        (
            r#"{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}"#,
            124_439_808.0,
        ),
        (
            r#"{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                "intermediate_size": 11008, "max_position_embeddings": 4096, "vocab_size": 32000}"#,
            6_738_415_616.0,
        ),
        (
            r#"{"model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                "num_key_value_heads": 8, "intermediate_size": 14336, "max_position_embeddings": 32768,
                "sliding_window": 4096, "vocab_size": 32000}"#,
            7_241_732_096.0,
        ),
        (
            r#"{"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
                "intermediate_size": 3072, "max_position_embeddings": 512, "type_vocab_size": 2, "vocab_size": 30522}"#,
            109_482_240.0,
        ),
        (
            r#"{"model_type": "bloom", "n_embed": 4096, "n_layer": 30, "num_attention_heads": 32, "seq_length": 2048,
                "vocab_size": 250880}"#,
            7_069_016_064.0,
        ),
        (
            r#"{"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
                "multi_query": true, "parallel_attn": true, "bias": false, "vocab_size": 65024}"#,
            6_921_720_704.0,
        ),
        (
            r#"{"model_type": "gpt_neox", "hidden_size": 6144, "num_hidden_layers": 44, "num_attention_heads": 64,
                "intermediate_size": 24576, "max_position_embeddings": 2048, "vocab_size": 50432,
                "tie_word_embeddings": false}"#,
            20_554_567_680.0,
        ),
    ];
    for (text, parameters) in published {
        for phase in [Phase::Forward, Phase::Training, Phase::Decode] {
            let dims = vec![("batch".to_owned(), 2), ("sequence".to_owned(), 512)];
            let text = config(text, &Options { dims, phase, ..options() }).unwrap();
            let workload = workload::parse("config.toml", &text, &[], 0).unwrap();
            let found = workload.parameters() as f64;
            assert!((found / parameters - 1.0).abs() < 0.01, "{}: {found}, published {parameters}", workload.name);
        }
    }
}

/// Models with parts beyond the usual: their published parameters, and what is done with them. Dimensions and exact sums of
/// released weights are recalled, not looked up again; the rounded figures are those that the sources give.
#[test]
fn configs_of_2024_and_2025_have_their_published_parameters() {
    let published: [(&str, f64); 9] = [
        // arXiv:2205.01068, 6.7 B; the sum of the released weights.
        (
            r#"{"model_type": "opt", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                "ffn_dim": 16384, "max_position_embeddings": 2048, "vocab_size": 50272, "word_embed_proj_dim": 4096}"#,
            6_658_473_984.0,
        ),
        // arXiv:2407.10671, 7.62 B; the sum of the released weights of Qwen2-7B.
        (
            r#"{"model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
                "num_key_value_heads": 4, "intermediate_size": 18944, "max_position_embeddings": 131072,
                "vocab_size": 152064, "tie_word_embeddings": false, "use_sliding_window": false, "sliding_window": 131072}"#,
            7_615_616_512.0,
        ),
        // arXiv:2505.09388, 0.6 B; the sum of the released weights of Qwen3-0.6B.
        (
            r#"{"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
                "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072,
                "max_position_embeddings": 40960, "vocab_size": 151936, "tie_word_embeddings": true}"#,
            596_049_920.0,
        ),
        // arXiv:2404.14219, 3.8 B; the sum of the released weights of Phi-3-mini-4k.
        (
            r#"{"model_type": "phi3", "hidden_size": 3072, "num_hidden_layers": 32, "num_attention_heads": 32,
                "num_key_value_heads": 32, "intermediate_size": 8192, "max_position_embeddings": 4096,
                "vocab_size": 32064, "tie_word_embeddings": false}"#,
            3_821_079_552.0,
        ),
        // arXiv:2408.00118, table 2: 590 M of embedding and 2,024 M of Gemma 2 2B.
        (
            r#"{"model_type": "gemma2", "hidden_size": 2304, "num_hidden_layers": 26, "num_attention_heads": 8,
                "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 9216, "max_position_embeddings": 8192,
                "vocab_size": 256000}"#,
            2_614_000_000.0,
        ),
        // qwenlm.github.io/blog/qwen-moe: 14.3 B of Qwen1.5-MoE-A2.7B.
        (
            r#"{"model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16,
                "num_key_value_heads": 16, "intermediate_size": 5632, "moe_intermediate_size": 1408,
                "shared_expert_intermediate_size": 5632, "num_experts": 60, "num_experts_per_tok": 4,
                "decoder_sparse_step": 1, "max_position_embeddings": 8192, "vocab_size": 151936,
                "tie_word_embeddings": false}"#,
            14_300_000_000.0,
        ),
        // arXiv:2505.09388: 30.5 B of Qwen3-30B-A3B.
        (
            r#"{"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
                "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768,
                "num_experts": 128, "num_experts_per_tok": 8, "max_position_embeddings": 40960, "vocab_size": 151936,
                "tie_word_embeddings": false}"#,
            30_500_000_000.0,
        ),
        // arXiv:2401.04088: 47 B (46.7 B) of Mixtral 8x7B.
        (
            r#"{"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                "num_key_value_heads": 8, "intermediate_size": 14336, "num_local_experts": 8, "num_experts_per_tok": 2,
                "max_position_embeddings": 32768, "vocab_size": 32000}"#,
            46_700_000_000.0,
        ),
        // arXiv:2412.19437: 671 B, without the module that predicts further tokens.
        (
            r#"{"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
                "num_key_value_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048,
                "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
                "moe_layer_freq": 1, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 64, "v_head_dim": 128, "max_position_embeddings": 163840, "vocab_size": 129280}"#,
            671_000_000_000.0,
        ),
    ];
    for (text, parameters) in published {
        for phase in [Phase::Prefill, Phase::Decode] {
            // So few tokens that decoding does not meet every expert.
            let dims = vec![("batch".to_owned(), 4), ("sequence".to_owned(), 512)];
            let text = config(text, &Options { dims, phase, ..options() }).unwrap();
            let workload =
                workload::parse("config.toml", &text, &[], 0).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let found = workload.parameters() as f64;
            assert!((found / parameters - 1.0).abs() < 0.005, "{text:.60}: {found}, published {parameters}");
        }
    }
    // Of 32,768 tokens that the model takes, the usual 2,048; and none of its experts is left out but in training.
    let (mixtral, _) = published[7];
    let text = config(mixtral, &options()).unwrap();
    assert!(text.contains("2048 tokens a sequence") && text.contains("tokens = 2048"), "{text:.300}");
    let trained = config(mixtral, &Options { phase: Phase::Training, ..options() }).unwrap();
    assert!(trained.contains("2 of 8 experts") && trained.contains("ffn = 28672"), "{trained:.600}");
}

#[test]
fn configs_that_cannot_be_used_are_refused() {
    let refused = |text: &str, what: &str| {
        let error = config(text, &options()).unwrap_err();
        assert!(error.title().contains(what), "{error}");
    };
    refused("{", "is no config.json");
    refused("[]", "holds no object");
    refused("{}", "`model_type` is missing");
    refused(r#"{"model_type": "t4"}"#, "`model_type` is \"t4\", which is not known");
    refused(r#"{"model_type": "mamba2"}"#, "whose models have selective scans of a state, which are not modelled");
    refused(r#"{"model_type": "gpt2", "n_embd": -1}"#, "`n_embd` is -1, expected a count");
    refused(r#"{"model_type": "gpt2"}"#, "`hidden_size` is missing");
    let mixtral = r#"{"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100, "num_local_experts": 8,
        "num_experts_per_tok": 2}"#;
    assert!(config(mixtral, &options()).unwrap().contains("the router of 8 experts"));
    let masked = Options { masks: true, masks_file: Some("x".to_owned()), ..options() };
    assert!(config(mixtral, &masked).unwrap_err().title().contains("model.safetensors` is not there"));
    let unknown = Options { dims: vec![("other".to_owned(), 2)], ..options() };
    assert!(config(mixtral, &unknown).unwrap_err().title().contains("leaves no such dimension open"));
}

#[test]
fn weights_beside_a_config_give_masks() {
    let directory = tempfile::tempdir().unwrap();
    let config = r#"{"model_type": "mistral", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 100, "max_position_embeddings": 16}"#;
    std::fs::write(directory.path().join("config.json"), config).unwrap();
    let (mut header, mut data) = (Vec::new(), Vec::new());
    for (name, rows, columns) in [
        ("self_attn.q_proj", 32, 32),
        ("self_attn.k_proj", 16, 32),
        ("self_attn.v_proj", 16, 32),
        ("self_attn.o_proj", 32, 32),
        ("mlp.gate_proj", 64, 32),
        ("mlp.up_proj", 64, 32),
        ("mlp.down_proj", 32, 64),
    ] {
        let start = data.len();
        // Every third is zero.
        data.extend((0..rows * columns).flat_map(|i| if i % 3 == 0 { 0f32 } else { 1.0 + i as f32 }.to_le_bytes()));
        header.push(format!(
            "\"model.layers.0.{name}.weight\":{{\"dtype\":\"F32\",\"shape\":[{rows},{columns}],\"data_offsets\":[{start},{}]}}",
            data.len()
        ));
    }
    let header = format!("{{{}}}", header.join(","));
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    std::fs::write(directory.path().join("model.safetensors"), bytes).unwrap();
    let stored = |options: &Options| {
        let text = import(&directory.path().join("config.json"), options).unwrap().text;
        let name = directory.path().join("w.toml").display().to_string();
        let workload = workload::parse(&name, &text, &[], 0).unwrap();
        let w = workload.tensors.iter().find(|t| t.name == "w_up").unwrap();
        ((w.rows, w.columns), w.stored_elements(), workload.notes.len())
    };
    let masked = Options { masks: true, masks_file: Some("x".to_owned()), ..options() };
    assert_eq!(stored(&masked), ((32, 64), 2048 - 683, 1));
    let pruned = Options { density: Some(0.25), block: Some((8, 8)), ..masked };
    assert_eq!(stored(&pruned), ((32, 64), 512, 1));
}
