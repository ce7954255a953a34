//! Archives of `torch.export`: small programs as PyTorch writes them, and the zip files around them.

use std::io::{Cursor, Write as _};

use serde_json::{Map, Value, json};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// A program under construction.
#[derive(Default)]
struct Program {
    inputs: Vec<Value>,
    specs: Vec<Value>,
    values: Map<String, Value>,
    nodes: Vec<Value>,
}

/// A tensor as an argument.
fn t(name: &str) -> Value {
    json!({ "as_tensor": { "name": name } })
}

fn ints(list: &[i64]) -> Value {
    json!({ "as_ints": list })
}

fn int(number: i64) -> Value {
    json!({ "as_int": number })
}

fn flag(flag: bool) -> Value {
    json!({ "as_bool": flag })
}

/// Sizes, of which some are symbols.
fn meta(dtype: i64, sizes: &[&str]) -> Value {
    let size = |size: &&str| match size.parse::<i64>() {
        Ok(number) => json!({ "as_int": number }),
        Err(_) => json!({ "as_expr": {
            "expr_str": format!("Symbol('{size}', positive=True, integer=True)"), "hint": { "as_int": 2 },
        } }),
    };
    let sizes: Vec<Value> = sizes.iter().map(size).collect();
    json!({
        "dtype": dtype, "sizes": sizes, "requires_grad": false, "device": { "type": "cpu", "index": null },
        "strides": [], "storage_offset": { "as_int": 0 }, "layout": 7,
    })
}

impl Program {
    /// A parameter of fp32; its name in the graph is `p_` and the name in underscores.
    fn parameter(mut self, name: &str, sizes: &[&str]) -> Self {
        let value = format!("p_{}", name.replace('.', "_"));
        self.inputs.push(t(&value));
        self.specs.push(json!({ "parameter": { "arg": { "name": value }, "parameter_name": name } }));
        self.values.insert(value, meta(7, sizes));
        self
    }

    fn buffer(mut self, name: &str, sizes: &[&str]) -> Self {
        let value = format!("b_{}", name.replace('.', "_"));
        self.inputs.push(t(&value));
        let spec = json!({ "arg": { "name": value }, "buffer_name": name, "persistent": true });
        self.specs.push(json!({ "buffer": spec }));
        self.values.insert(value, meta(7, sizes));
        self
    }

    fn input(mut self, name: &str, dtype: i64, sizes: &[&str]) -> Self {
        self.inputs.push(t(name));
        self.specs.push(json!({ "user_input": { "arg": t(name) } }));
        self.values.insert(name.to_owned(), meta(dtype, sizes));
        self
    }

    fn add(mut self, target: &str, args: &[(&str, Value)], outputs: &[Value]) -> Self {
        let inputs: Vec<Value> =
            args.iter().map(|(name, arg)| json!({ "name": name, "arg": arg, "kind": 1 })).collect();
        let metadata = json!({ "stack_trace": "  File \"model.py\", line 1, in forward" });
        self.nodes.push(json!({
            "target": format!("torch.ops.aten.{target}"), "inputs": inputs, "outputs": outputs, "metadata": metadata,
            "is_hop_single_tensor_return": null,
        }));
        self
    }

    /// A call with one result.
    fn call(mut self, target: &str, args: &[(&str, Value)], output: &str, sizes: &[&str]) -> Self {
        self.values.insert(output.to_owned(), meta(7, sizes));
        self.add(target, args, &[t(output)])
    }

    /// A linear layer.
    fn linear(self, x: &str, layer: &str, output: &str, sizes: &[&str]) -> Self {
        let of = |what: &str| t(&format!("p_{}_{what}", layer.replace('.', "_")));
        self.call("linear.default", &[("input", t(x)), ("weight", of("weight")), ("bias", of("bias"))], output, sizes)
    }

    /// The text of the program with one result.
    fn text(self, output: &str) -> String {
        let program = json!({
            "graph_module": {
                "graph": {
                    "inputs": self.inputs, "outputs": [t(output)], "nodes": self.nodes, "tensor_values": self.values,
                    "sym_int_values": {}, "sym_bool_values": {}, "is_single_tensor_return": false,
                    "custom_obj_values": {},
                },
                "signature": {
                    "input_specs": self.specs, "output_specs": [{ "user_output": { "arg": t(output) } }],
                },
                "module_call_graph": [], "metadata": {},
            },
            "opset_version": { "aten": 10 }, "range_constraints": {},
            "schema_version": { "major": 8, "minor": 8 }, "verifiers": ["TRAINING"], "torch_version": "2.8.0",
        });
        program.to_string()
    }
}

/// A block of GPT: `batch` sequences of 8 tokens, 4 heads of 4, an output matrix shared with the table.
pub(crate) fn gpt(batch: &str) -> String {
    let tokens = [batch, "8", "16"];
    let shared = if batch.parse::<i64>().is_ok() { int(2) } else { json!({ "as_name": "sym_size_int_1" }) };
    let mut program = Program::default().parameter("wte.weight", &["50", "16"]);
    for (layer, rows, columns) in
        [("attn.qkv", "48", "16"), ("attn.out", "16", "16"), ("up", "64", "16"), ("down", "16", "64")]
    {
        program = program.parameter(&format!("{layer}.weight"), &[rows, columns]);
        program = program.parameter(&format!("{layer}.bias"), &[rows]);
    }
    for norm in ["ln_1", "ln_2"] {
        program = program.parameter(&format!("{norm}.weight"), &["16"]).parameter(&format!("{norm}.bias"), &["16"]);
    }
    let mut program = program.input("ids", 5, &[batch, "8"]);
    if batch.parse::<i64>().is_err() {
        let size = [json!({ "as_sym_int": { "as_name": "sym_size_int_1" } })];
        program = program.add("sym_size.int", &[("self", t("ids")), ("dim", int(0))], &size);
    }
    let view = |program: Program, x: &str, sizes: [i64; 3], output: &str, all: &[&str]| {
        let list: Vec<Value> =
            std::iter::once(shared.clone()).chain(sizes.iter().filter(|n| **n > 0).map(|&n| int(n))).collect();
        program.call("view.default", &[("self", t(x)), ("size", json!({ "as_sym_ints": list }))], output, all)
    };
    let norm = |program: Program, x: &str, layer: &str| {
        let of = |what: &str| t(&format!("p_{layer}_{what}"));
        let args = [("input", t(x)), ("normalized_shape", ints(&[16])), ("weight", of("weight")), ("bias", of("bias"))];
        program.call("layer_norm.default", &args, layer, &tokens)
    };
    program = program.call("embedding.default", &[("weight", t("p_wte_weight")), ("indices", t("ids"))], "x", &tokens);
    program = norm(program, "x", "ln_1").linear("ln_1", "attn.qkv", "qkv", &[batch, "8", "48"]);
    for part in ["q", "k", "v"] {
        program.values.insert(part.to_owned(), meta(7, &tokens));
    }
    let parts = [json!({ "as_tensors": [{ "name": "q" }, { "name": "k" }, { "name": "v" }] })];
    program = program.add("split.Tensor", &[("self", t("qkv")), ("split_size", int(16)), ("dim", int(2))], &parts);
    for part in ["q", "k", "v"] {
        let (split, heads) = (format!("{part}_split"), format!("{part}_heads"));
        program = view(program, part, [8, 4, 4], &split, &[batch, "8", "4", "4"]);
        let args = [("self", t(&split)), ("dim0", int(1)), ("dim1", int(2))];
        program = program.call("transpose.int", &args, &heads, &[batch, "4", "8", "4"]);
    }
    let args = [("query", t("q_heads")), ("key", t("k_heads")), ("value", t("v_heads")), ("is_causal", flag(true))];
    program = program.call("scaled_dot_product_attention.default", &args, "a", &[batch, "4", "8", "4"]);
    let args = [("self", t("a")), ("dim0", int(1)), ("dim1", int(2))];
    program = program.call("transpose.int", &args, "a_turned", &[batch, "8", "4", "4"]);
    program = view(program, "a_turned", [8, 16, 0], "a_flat", &tokens).linear("a_flat", "attn.out", "o", &tokens);
    program = program.call("add.Tensor", &[("self", t("x")), ("other", t("o"))], "x2", &tokens);
    program = norm(program, "x2", "ln_2").linear("ln_2", "up", "h", &[batch, "8", "64"]);
    program = program.call("gelu.default", &[("self", t("h"))], "g", &[batch, "8", "64"]);
    program = program.linear("g", "down", "d", &tokens);
    program = program.call("add.Tensor", &[("self", t("x2")), ("other", t("d"))], "x3", &tokens);
    let args = [("input", t("x3")), ("weight", t("p_wte_weight"))];
    program.call("linear.default", &args, "y", &[batch, "8", "50"]).text("y")
}

/// A network of images: convolution, batch norm, pooling, a convolution channel by channel, classes.
pub(crate) fn cnn() -> String {
    cnn_with("adaptive_avg_pool2d.default", &[("self", t("m")), ("output_size", ints(&[1, 1]))])
}

/// The same with the mean of an image along its axes from the last.
pub(crate) fn cnn_with_mean() -> String {
    cnn_with("mean.dim", &[("self", t("m")), ("dim", ints(&[-1, -2])), ("keepdim", flag(true))])
}

fn cnn_with(pool: &str, of_pool: &[(&str, Value)]) -> String {
    let mut program = Program::default()
        .parameter("conv1.weight", &["8", "3", "3", "3"])
        .parameter("bn1.weight", &["8"])
        .parameter("bn1.bias", &["8"])
        .parameter("conv2.weight", &["8", "1", "3", "3"])
        .parameter("conv2.bias", &["8"])
        .parameter("fc.weight", &["10", "8"])
        .parameter("fc.bias", &["10"])
        .buffer("bn1.running_mean", &["8"])
        .buffer("bn1.running_var", &["8"])
        .input("x", 7, &["2", "3", "16", "16"]);
    let half = ["2", "8", "8", "8"];
    let args =
        [("input", t("x")), ("weight", t("p_conv1_weight")), ("stride", ints(&[2, 2])), ("padding", ints(&[1, 1]))];
    program = program.call("conv2d.default", &args, "c", &half);
    let args = [
        ("input", t("c")),
        ("weight", t("p_bn1_weight")),
        ("bias", t("p_bn1_bias")),
        ("running_mean", t("b_bn1_running_mean")),
        ("running_var", t("b_bn1_running_var")),
    ];
    program = program.call("batch_norm.default", &args, "n", &half);
    program = program.call("relu_.default", &[("self", t("n"))], "r", &half);
    let args = [
        ("input", t("r")),
        ("weight", t("p_conv2_weight")),
        ("bias", t("p_conv2_bias")),
        ("padding", ints(&[1, 1])),
        ("groups", int(8)),
    ];
    program = program.call("conv2d.default", &args, "d", &half);
    let args = [("self", t("d")), ("kernel_size", ints(&[2, 2]))];
    program = program.call("max_pool2d.default", &args, "m", &["2", "8", "4", "4"]);
    program = program.call(pool, of_pool, "p", &["2", "8", "1", "1"]);
    let args = [("self", t("p")), ("start_dim", int(1))];
    program.call("flatten.using_ints", &args, "f", &["2", "8"]).linear("f", "fc", "y", &["2", "10"]).text("y")
}

/// A feed-forward block of Llama: a norm in pieces, gate and product, for 8 tokens.
pub(crate) fn gated() -> String {
    let rows = ["8", "16"];
    let mut program = Program::default().parameter("norm.weight", &["16"]);
    for (layer, sizes) in [("gate", ["24", "16"]), ("up", ["24", "16"]), ("down", ["16", "24"])] {
        program = program.parameter(&format!("{layer}.weight"), &sizes);
    }
    program = program.input("x", 7, &rows);
    let bare = |program: Program, x: &str, layer: &str, columns: &str| {
        let weight = t(&format!("p_{layer}_weight"));
        program.call("linear.default", &[("input", t(x)), ("weight", weight)], layer, &["8", columns])
    };
    let real = |number: f64| json!({ "as_float": number });
    program = program.call("pow.Tensor_Scalar", &[("self", t("x")), ("exponent", int(2))], "square", &rows);
    let args = [("self", t("square")), ("dim", ints(&[-1])), ("keepdim", flag(true))];
    program = program.call("mean.dim", &args, "mean", &["8", "1"]);
    program = program.call("add.Tensor", &[("self", t("mean")), ("other", real(1e-6))], "safe", &["8", "1"]);
    program = program.call("rsqrt.default", &[("self", t("safe"))], "root", &["8", "1"]);
    program = program.call("mul.Tensor", &[("self", t("x")), ("other", t("root"))], "normed", &rows);
    program = program.call("mul.Tensor", &[("self", t("p_norm_weight")), ("other", t("normed"))], "n", &rows);
    program = bare(program, "n", "gate", "24").call("silu.default", &[("self", t("gate"))], "s", &["8", "24"]);
    program = bare(program, "n", "up", "24");
    program = program.call("mul.Tensor", &[("self", t("s")), ("other", t("up"))], "h", &["8", "24"]);
    bare(program, "h", "down", "16").text("down")
}

/// Small programs that can be imported.
pub(crate) fn programs() -> Vec<String> {
    vec![gpt("2"), cnn(), cnn_with_mean(), gated()]
}

/// A zip file of records.
pub(crate) fn zip_of(records: &[(&str, &[u8])], packed: bool) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let method = if packed { zip::CompressionMethod::Deflated } else { zip::CompressionMethod::Stored };
    let options = SimpleFileOptions::default().compression_method(method);
    for (name, bytes) in records {
        zip.start_file(*name, options).expect("a record");
        zip.write_all(bytes).expect("bytes in memory");
    }
    zip.finish().expect("an archive").into_inner()
}

/// An archive as PyTorch writes it since 2.8.
pub(crate) fn archive(program: &str) -> Vec<u8> {
    let records: [(&str, &[u8]); 4] = [
        ("net/archive_format", b"pt2"),
        ("net/archive_version", b"0"),
        ("net/byteorder", b"little"),
        ("net/models/model.json", program.as_bytes()),
    ];
    zip_of(&records, false)
}

/// The same with a stored tensor, and with the zip64 records that PyTorch puts between the directory and its end. The name of the
/// first record makes its entry of the directory as long as these records.
pub(crate) fn archive_with_zip64_end(program: &str) -> Vec<u8> {
    let records: [(&str, &[u8]); 3] = [
        ("eightlet/data/weights/weight_0", &[0; 64]),
        ("eightlet/archive_format", b"pt2"),
        ("eightlet/models/model.json", program.as_bytes()),
    ];
    let mut bytes = zip_of(&records, false);
    let end = bytes.split_off(bytes.len() - 22);
    let word = |at: usize| u32::from_le_bytes(end[at..at + 4].try_into().expect("four bytes"));
    let (count, size, start) = (records.len() as u64, u64::from(word(12)), u64::from(word(16)));
    let here = bytes.len() as u64;
    bytes.extend(b"PK\x06\x06");
    bytes.extend(44_u64.to_le_bytes());
    bytes.extend([30, 3, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend([count, count, size, start].into_iter().flat_map(u64::to_le_bytes));
    bytes.extend(b"PK\x06\x07\0\0\0\0");
    bytes.extend(here.to_le_bytes());
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(end);
    bytes
}

/// An archive as PyTorch wrote it up to 2.7.
pub(crate) fn legacy(program: &str) -> Vec<u8> {
    zip_of(&[("version", b"8.8"), ("serialized_exported_program.json", program.as_bytes())], true)
}
