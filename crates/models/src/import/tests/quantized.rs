//! Graphs with `QuantizeLinear` and `DequantizeLinear`: what is stored of weights, and what stays as it is.

use rdusim_graph::workload::OperatorKind;

use super::*;

impl Net {
    /// A tensor of integers: 2 is unsigned, 3 signed, of sixteen bits 4 and 5.
    fn integers(self, name: &str, dims: &[i64], data_type: i64) -> Self {
        let bytes = if matches!(data_type, 4 | 5) { 2 } else { 1 };
        let count = dims.iter().product::<i64>().max(1) as usize * bytes;
        let raw: Vec<u8> = (0..count).map(|i| i as u8).collect();
        let tensor =
            dims.iter().fold(message(), |m, &dim| m.int(1, dim)).int(2, data_type).text(8, name).bytes(9, &raw);
        Self(self.0.bytes(5, &tensor.0))
    }

    fn dequantized(self, inputs: &[&str], output: &str, axis: i64) -> Self {
        let node = inputs.iter().fold(message(), |node, input| node.text(1, input));
        let attribute = message().text(1, "axis").int(3, axis).int(20, 2);
        let node = node.text(2, output).text(3, &format!("/{output}")).text(4, "DequantizeLinear");
        Self(self.0.bytes(1, &node.bytes(5, &attribute.0).0))
    }
}

/// x w of 4 x 16 by 16 x 24, the weight dequantised: scales of these dimensions along an axis, zero points or none.
fn product(scales: &[i64], zero: Option<i64>, axis: i64) -> Net {
    let net = Net::default().input("x", &["4", "16"]).integers("w_q", &[16, 24], zero.unwrap_or(3)).weight(
        "w_scale",
        scales,
        |_| 0.01,
    );
    let (net, inputs) = match zero {
        Some(kind) => (net.integers("w_zero", scales, kind), vec!["w_q", "w_scale", "w_zero"]),
        None => (net, vec!["w_q", "w_scale"]),
    };
    net.dequantized(&inputs, "w", axis).node("MatMul", &["x", "w"], "y").output("y")
}

fn stored(net: &Net) -> (u64, usize) {
    let workload = net.workload();
    let weight = workload.tensors.iter().find(|t| t.rows == 16 && t.columns == 24 && t.view.is_none()).unwrap();
    (weight.stored_bytes(), workload.notes.iter().filter(|note| note.contains("eight bits")).count())
}

#[test]
fn weights_are_stored_with_their_scales_and_zero_points() {
    let elements = 16 * 24;
    // Columns: fp32 scales, zero points of a byte; the axis may count from the end.
    assert_eq!(stored(&product(&[24], Some(2), 1)), (elements + 24 * 4 + 24, 1));
    assert_eq!(stored(&product(&[24], Some(3), -1)), (elements + 24 * 4 + 24, 1));
    assert_eq!(stored(&product(&[24], None, 1)), (elements + 24 * 4, 1));
    // One scale, as a number.
    assert_eq!(stored(&product(&[], Some(2), 1)), (elements + 4 + 1, 1));
    assert_eq!(stored(&product(&[], None, 1)), (elements + 4, 1));
    // Scales of rows, along the depth, are not stored so: the weight is of the data type.
    assert_eq!(stored(&product(&[16], Some(2), 0)), (elements * 2, 0));
}

#[test]
fn a_weight_with_rows_of_outputs_has_scales_of_its_rows() {
    let gemm = |axis: i64, scales: i64| {
        let node = message().text(1, "x").text(1, "w").text(2, "y").text(3, "/y").text(4, "Gemm");
        let turned = message().text(1, "transB").int(3, 1).int(20, 2);
        let net = Net::default()
            .input("x", &["4", "16"])
            .integers("w_q", &[24, 16], 3)
            .weight("w_scale", &[scales], |_| 0.01)
            .dequantized(&["w_q", "w_scale"], "w", axis);
        Net(net.0.bytes(1, &node.bytes(5, &turned.0).0)).output("y")
    };
    assert_eq!(stored(&gemm(0, 24)), (16 * 24 + 24 * 4, 1));
    assert_eq!(stored(&gemm(1, 16)), (16 * 24 * 2, 0));
}

/// x, quantised or not, times a quantised weight, with x added to the product.
fn of_activations(is_quantised: bool) -> Net {
    let net = Net::default()
        .input("x", &["4", "16"])
        .integers("w_q", &[16, 16], 3)
        .weight("scale", &[], |_| 0.01)
        .integers("zero", &[], 3)
        .dequantized(&["w_q", "scale"], "w", 0);
    let net = if is_quantised {
        net.node("QuantizeLinear", &["x", "scale", "zero"], "x_q").dequantized(&["x_q", "scale", "zero"], "x_dq", 0)
    } else {
        net
    };
    net.node("MatMul", &[if is_quantised { "x_dq" } else { "x" }, "w"], "h").node("Add", &["x", "h"], "y").output("y")
}

#[test]
fn products_of_quantised_activations_are_of_integers() {
    let workload = of_activations(true).workload();
    assert_eq!(kinds(&workload), ["scale", "gemm", "add"]);
    let product = workload.operators.iter().find(|op| op.kind == OperatorKind::Gemm).unwrap();
    let types = product.inputs.iter().chain([&product.output]).map(|&t| workload.tensors[t].dtype.name());
    assert_eq!(types.collect::<Vec<_>>(), ["int8", "int8", "bf16"]);
    // Elements of a byte and one scale of fp32.
    assert_eq!(workload.tensors[product.inputs[1]].stored_bytes(), 16 * 16 + 4);
    assert!(workload.notes.iter().any(|note| note.contains("1 products are of such integers")), "{:?}", workload.notes);
    // Without quantised activations the weight is expanded to the data type of the product.
    let workload = of_activations(false).workload();
    assert_eq!(kinds(&workload), ["gemm", "add"]);
    assert!(workload.tensors.iter().all(|tensor| tensor.dtype.name() == "bf16"));
}

/// What is read before it is quantised is multiplied in the data type, as are integers of sixteen bits.
#[test]
fn products_of_what_is_not_of_eight_bits_stay_as_they_are() {
    let of = |kind: i64, reads_raw: bool| {
        let net = Net::default()
            .input("x", &["4", "16"])
            .integers("w_q", &[16, 16], 3)
            .integers("v_q", &[16, 16], 3)
            .weight("scale", &[], |_| 0.01)
            .integers("zero", &[], kind)
            .dequantized(&["w_q", "scale"], "w", 0)
            .dequantized(&["v_q", "scale"], "v", 0)
            .node("QuantizeLinear", &["x", "scale", "zero"], "x_q")
            .dequantized(&["x_q", "scale", "zero"], "x_dq", 0);
        let net =
            net.node("MatMul", &["x_dq", "w"], "h").node("MatMul", &[if reads_raw { "x" } else { "x_dq" }, "v"], "g");
        let workload = net.node("Add", &["h", "g"], "y").output("y").workload();
        let products = workload.operators.iter().filter(|op| op.kind == OperatorKind::Gemm);
        products.filter(|op| workload.tensors[op.inputs[0]].dtype.name() == "int8").count()
    };
    assert_eq!([of(3, false), of(2, false), of(3, true), of(5, false)], [2, 2, 1, 0]);
}

#[test]
fn rows_of_an_imported_graph_can_be_changed() {
    let text = of_activations(true).text();
    let set = rdusim_base::input::Override::parse("workload.dims.tokens=8").unwrap();
    let changed = workload::parse("q.toml", &text, &[set], 0).unwrap();
    assert!(changed.tensors.iter().any(|tensor| tensor.dtype.name() == "int8" && tensor.rows == 8));
}
