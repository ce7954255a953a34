//! Operators of later versions and of image networks: what each becomes, worked out by hand.

use super::*;

/// An attribute of a node.
#[derive(Clone, Copy)]
enum Said<'t> {
    Int(i64),
    Ints(&'t [i64]),
    Real(f32),
    Text(&'t str),
}

impl Net {
    fn any(self, op: &str, inputs: &[&str], outputs: &[&str], attributes: &[(&str, Said<'_>)]) -> Self {
        let node = inputs.iter().fold(message(), |node, input| node.text(1, input));
        let node = outputs.iter().fold(node, |node, output| node.text(2, output));
        let mut node = node.text(3, &format!("/{}", outputs[0])).text(4, op);
        for (name, said) in attributes {
            let attribute = message().text(1, name);
            let attribute = match said {
                Said::Int(number) => attribute.int(3, *number).int(20, 2),
                Said::Ints(list) => list.iter().fold(attribute, |a, &x| a.int(8, x)).int(20, 7),
                Said::Text(text) => attribute.text(4, text).int(20, 3),
                Said::Real(number) => {
                    let Message(mut bytes) = attribute;
                    bytes.push(2 << 3 | 5);
                    bytes.extend(number.to_le_bytes());
                    Message(bytes).int(20, 1)
                }
            };
            node = node.bytes(5, &attribute.0);
        }
        Self(self.0.bytes(1, &node.0))
    }
}

/// Kinds, FLOP and parameters.
fn facts(net: &Net) -> (Vec<&'static str>, u64, u64) {
    let workload = net.workload();
    (kinds(&workload), flop(&workload), workload.parameters())
}

/// A transposed convolution of an image of [batch, channels, size, size].
fn turned([batch, channels, size]: [i64; 3], [filters, kernel]: [i64; 2], more: &[(&str, Said<'_>)]) -> Net {
    let dims = [batch, channels, size, size].map(|n| n.to_string());
    Net::default()
        .input("x", &dims.each_ref().map(String::as_str))
        .weight("w", &[channels, filters, kernel, kernel], |i| i as f32)
        .weight("b", &[filters], |_| 0.0)
        .any("ConvTranspose", &["x", "w", "b"], &["t"], more)
        .node("Relu", &["t"], "y")
        .output("y")
}

#[test]
fn transposed_convolutions_multiply_what_is_there() {
    // Kernel 4, stride 2, padding 1, as in a DCGAN: every tap of every pixel is one product.
    let net = turned([2, 8, 5], [6, 4], &[("strides", Said::Ints(&[2, 2])), ("pads", Said::Ints(&[1, 1, 1, 1]))]);
    assert_eq!(facts(&net), (vec!["gemm", "bias", "relu"], 2 * (2 * 25) * 8 * 6 * 16, 8 * 6 * 16 + 6));
    let workload = net.workload();
    assert_eq!(workload.tensors.iter().find(|t| t.name == "y").map(|t| (t.rows, t.columns)), Some((2 * 100, 6)));
    // Kernel 3, stride 2: pixels lie under 4, 2, 2 and 1 taps.
    let net = turned(
        [1, 4, 4],
        [2, 3],
        &[
            ("strides", Said::Ints(&[2, 2])),
            ("pads", Said::Ints(&[1, 1, 1, 1])),
            ("output_padding", Said::Ints(&[1, 1])),
        ],
    );
    let (kinds, flop, parameters) = facts(&net);
    assert_eq!(kinds, ["gemm", "gemm", "concat", "gemm", "concat", "gemm", "concat", "relu"]);
    assert_eq!((flop, parameters), (2 * 16 * 4 * 2 * 9, 4 * 2 * 9 + 2));
    // Without stride it is a convolution, with kernel 2 and stride 2 a plain product.
    let plain = turned([1, 4, 4], [2, 3], &[("pads", Said::Ints(&[1, 1, 1, 1]))]);
    assert_eq!(facts(&plain), (vec!["gemm", "relu"], 2 * 16 * 4 * 2 * 9, 74));
    let up = turned([3, 4, 4], [2, 2], &[("strides", Said::Ints(&[2, 2]))]);
    assert_eq!(facts(&up), (vec!["gemm", "bias", "relu"], 2 * 48 * 4 * 2 * 4, 34));
    // Without padding the last line has fewer taps: it counts as the others do.
    let ragged = turned([1, 4, 4], [2, 3], &[("strides", Said::Ints(&[2, 2]))]);
    assert_eq!(facts(&ragged).1, 2 * 25 * 4 * 2 * 9);
    let of_y = |net: &Net| net.workload().tensors.iter().find(|t| t.name == "y").map(|t| t.rows);
    assert_eq!(of_y(&ragged), Some(81));
    // Channel by channel.
    let deep = turned([1, 6, 4], [1, 4], &[("strides", Said::Ints(&[2, 2])), ("group", Said::Int(6))]);
    assert_eq!(facts(&deep).1, 2 * 25 * 6 * 16);
    let refused = |net: Net, what: &str| assert!(net.refused().title().contains(what), "{}", net.refused());
    refused(turned([1, 4, 4], [2, 2], &[("strides", Said::Ints(&[3, 3]))]), "a stride larger than the kernel");
    refused(turned([1, 4, 4], [2, 3], &[("pads", Said::Ints(&[9, 9, 9, 9]))]), "takes more than there is");
}

/// An image of 8 channels, 4 x 4, resized to so many pixels, with a convolution behind it.
fn resized(mode: &str, to: [i64; 2]) -> Net {
    Net::default()
        .input("x", &["1", "8", "4", "4"])
        .ints("sizes", &[1, 8, to[0], to[1]])
        .weight("w", &[2, 8, 1, 1], |i| i as f32)
        .any("Resize", &["x", "", "", "sizes"], &["r"], &[("mode", Said::Text(mode))])
        .node("Conv", &["r", "w"], "y")
        .output("y")
}

#[test]
fn images_are_resized() {
    let product = 2 * 8 * 2;
    assert_eq!(facts(&resized("nearest", [8, 8])), (vec!["concat", "concat", "gemm"], 64 * product, 16));
    assert_eq!(facts(&resized("nearest", [12, 4])).0, ["concat", "concat", "gemm"]);
    assert_eq!(facts(&resized("linear", [8, 8])).0, ["concat", "concat", "average_pool", "gemm"]);
    assert_eq!(facts(&resized("nearest", [2, 2])), (vec!["max_pool", "gemm"], 4 * product, 16));
    assert_eq!(facts(&resized("linear", [2, 2])).0, ["average_pool", "gemm"]);
    assert_eq!(facts(&resized("nearest", [6, 6])), (vec!["embedding", "gemm"], 36 * product, 16));
    assert_eq!(facts(&resized("cubic", [6, 5])).0, ["embedding", "average_pool", "gemm"]);
    assert_eq!(facts(&resized("nearest", [4, 4])).0, ["gemm"]);
    // Copies are what a resized image holds: 4 x 4 x 8 elements become 8 x 8 x 8.
    let workload = resized("nearest", [8, 8]).workload();
    let second = workload.operators.iter().nth(1).map(|op| workload.tensors[op.output].dense_bytes());
    assert_eq!(second, Some(8 * 8 * 8 * 2));
    let error = resized("lanczos", [8, 8]).refused();
    assert!(error.title().contains("the mode \"lanczos\""), "{error}");
}

#[test]
fn scales_of_early_and_later_versions() {
    let scales = |net: Net| net.weight("scales", &[4], |i| if i < 2 { 1.0 } else { 2.0 });
    let image = || scales(Net::default().input("x", &["1", "8", "4", "4"]));
    for net in [
        image().any("Upsample", &["x", "scales"], &["r"], &[("mode", Said::Text("nearest"))]),
        image().any("Resize", &["x", "scales"], &["r"], &[]),
        image().any("Resize", &["x", "", "scales"], &["r"], &[]),
    ] {
        let workload = net.node("Relu", &["r"], "y").output("y").workload();
        assert_eq!(kinds(&workload), ["concat", "concat", "relu"]);
        assert_eq!(workload.tensors.iter().find(|t| t.name == "y").map(|t| t.rows), Some(64));
    }
}

#[test]
fn the_largest_of_each_row() {
    let net = Net::default().input("x", &["2", "3", "10"]).ints("k", &[4]);
    let net = net.any("TopK", &["x", "k"], &["v", "i"], &[]).node("Relu", &["v"], "y").output("y");
    let workload = net.workload();
    assert_eq!(kinds(&workload), ["select", "relu"]);
    assert_eq!(workload.tensors.iter().find(|t| t.name == "y").map(|t| (t.rows, t.columns)), Some((6, 4)));
    let both = Net::default().input("x", &["6", "10"]).ints("k", &[4]);
    let both = both.any("TopK", &["x", "k"], &["v", "i"], &[]).output("v").output("i");
    assert_eq!(kinds(&both.workload()), ["select", "scale"]);
    let many = Net::default().input("x", &["6", "10"]).ints("k", &[11]).any("TopK", &["x", "k"], &["v", "i"], &[]);
    assert!(many.clone().output("v").refused().title().contains("the 11 largest of 10"));
}

/// Attention of 2 sequences of 8 tokens: 4 heads of 4 that share 2 heads of keys and values.
fn attention_of_23(more: &[(&str, Said<'_>)], past: i64) -> Net {
    let net = Net::default()
        .input("x", &["2", "8", "16"])
        .weight("wq", &[16, 16], |i| i as f32)
        .weight("wk", &[16, 8], |i| i as f32)
        .weight("wv", &[16, 8], |i| i as f32)
        .weight("wo", &[16, 16], |i| i as f32)
        .node("MatMul", &["x", "wq"], "q")
        .node("MatMul", &["x", "wk"], "k")
        .node("MatMul", &["x", "wv"], "v");
    let heads = [("q_num_heads", Said::Int(4)), ("kv_num_heads", Said::Int(2))];
    let all: Vec<(&str, Said<'_>)> = heads.into_iter().chain(more.iter().copied()).collect();
    let net = if past == 0 {
        net.any("Attention", &["q", "k", "v"], &["a"], &all)
    } else {
        let dims = ["2", "2", &past.to_string(), "4"].map(str::to_owned);
        let dims = dims.each_ref().map(String::as_str);
        net.input("pk", &dims).input("pv", &dims).any(
            "Attention",
            &["q", "k", "v", "", "pk", "pv"],
            &["a", "nk", "nv"],
            &all,
        )
    };
    let net = net.node("MatMul", &["a", "wo"], "y").output("y");
    if past == 0 { net } else { net.output("nk").output("nv") }
}

#[test]
fn attention_of_version_23() {
    let projections = 2 * 16 * 16 * (16 + 8 + 8 + 16);
    // Scores and sums: 2 sequences, 4 heads, 8 queries, 8 keys, width 4.
    let products = |keys: u64| 2 * 2 * (2 * 4 * 8 * keys * 4);
    let parameters = 16 * (16 + 8 + 8 + 16);
    let gemms = |between: &[&'static str]| [&["gemm"; 4], between, &["gemm", "gemm"]].concat();
    assert_eq!(facts(&attention_of_23(&[], 0)), (gemms(&["scale", "softmax"]), projections + products(8), parameters));
    let causal = attention_of_23(&[("is_causal", Said::Int(1))], 0);
    assert_eq!(facts(&causal), (gemms(&["causal_mask", "softmax"]), projections + products(8), parameters));
    let workload = causal.workload();
    let form = workload.operators.iter().nth(3).and_then(|operator| operator.form).unwrap();
    assert_eq!((form.instances, form.heads, form.b_heads, form.m, form.n, form.k), (2, 4, 2, 8, 8, 4));
    assert!(form.causal.is_some());
    let mixed = workload.operators.iter().nth(6).and_then(|operator| operator.form).unwrap();
    assert_eq!((mixed.heads, mixed.b_heads, mixed.n, mixed.k, mixed.causal.is_some()), (4, 2, 4, 8, true));
    let capped = attention_of_23(&[("softcap", Said::Real(30.0))], 0);
    assert_eq!(facts(&capped).0, gemms(&["scale", "tanh", "scale", "softmax"]));
    // With 24 tokens before: keys and values of all 32 are read, those of 8 are written.
    let cached = attention_of_23(&[("is_causal", Said::Int(1))], 24);
    assert_eq!(facts(&cached).1, projections + products(32));
    let workload = cached.workload();
    let of = |name: &str| workload.tensors.iter().find(|t| t.name == name).map(|t| (t.rows, t.columns)).unwrap();
    assert_eq!((of("pk"), of("pv")), ((2 * 32, 8), (2 * 32, 8)));
    // Heads as an axis of their own.
    let apart = Net::default()
        .input("q", &["2", "4", "8", "4"])
        .input("k", &["2", "2", "6", "4"])
        .input("v", &["2", "2", "6", "5"])
        .any("Attention", &["q", "k", "v"], &["y"], &[])
        .output("y");
    assert_eq!(facts(&apart).1, 2 * (2 * 4 * 8 * 6 * 4) + 2 * (2 * 4 * 8 * 6 * 5));
    let odd = Net::default().input("q", &["2", "8", "16"]).any("Attention", &["q", "q", "q"], &["y"], &[]).output("y");
    assert!(odd.refused().title().contains("`q_num_heads` is needed"), "{}", odd.refused());
}

#[test]
fn versions_of_operators() {
    let of = |version: i64| {
        let graph = feed_forward().0.text(2, "net");
        let bytes = message().int(1, 8).bytes(7, &graph.0).bytes(8, &message().int(2, version).0).0;
        of_bytes(&bytes, Path::new("nowhere/net.onnx"), &options())
    };
    assert!(of(9).is_ok() && of(23).is_ok());
    for version in [8, 24] {
        let error = of(version).unwrap_err();
        assert!(
            error.title().contains(&format!("has version {version}")) && error.title().contains("9 to 23"),
            "{error}"
        );
    }
}
