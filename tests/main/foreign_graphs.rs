//! Networks of other tools, made by hand: products in every position, masks of attention, shapes that contradict. FLOP by hand.

use rdusim::import::{Options, import};
use rdusim::workload::{self, Workload};

use crate::protobuf::Message;

/// A graph of version 23 under construction.
#[derive(Default, Clone)]
struct Net(Message);

impl Net {
    fn value(self, field: u64, name: &str, dims: &[i64]) -> Self {
        let shape = dims.iter().fold(Message::default(), |shape, &dim| {
            let dim = if dim < 0 { Message::default() } else { Message::default().int(1, dim) };
            shape.bytes(1, &dim.0)
        });
        let tensor = Message::default().int(1, 1).bytes(2, &shape.0);
        let info = Message::default().text(1, name).bytes(2, &Message::default().bytes(1, &tensor.0).0);
        Self(self.0.bytes(field, &info.0))
    }

    fn input(self, name: &str, dims: &[i64]) -> Self {
        self.value(11, name, dims)
    }

    fn output(self, name: &str, dims: &[i64]) -> Self {
        self.value(12, name, dims)
    }

    fn weight(self, name: &str, dims: &[i64], value: impl Fn(usize) -> f32) -> Self {
        let count = dims.iter().product::<i64>() as usize;
        let raw: Vec<u8> = (0..count).flat_map(|i| value(i).to_le_bytes()).collect();
        let tensor = dims.iter().fold(Message::default(), |m, &dim| m.int(1, dim));
        Self(self.0.bytes(5, &tensor.int(2, 1).text(8, name).bytes(9, &raw).0))
    }

    /// A node with attributes of an integer or a list each.
    fn node(self, op: &str, inputs: &[&str], output: &str, attributes: &[(&str, &[i64])]) -> Self {
        let node = inputs.iter().fold(Message::default(), |node, input| node.text(1, input)).text(2, output);
        let mut node = node.text(3, &format!("/{output}")).text(4, op);
        for (name, list) in attributes {
            let named = Message::default().text(1, name);
            let attribute = match list {
                [one] => named.int(3, *one).int(20, 2),
                list => list.iter().fold(named, |m, &x| m.int(8, x)).int(20, 7),
            };
            node = node.bytes(5, &attribute.0);
        }
        Self(self.0.bytes(1, &node.0))
    }

    fn imported(&self) -> Result<Workload, String> {
        let opset = Message::default().int(2, 23);
        let graph = self.0.clone().text(2, "net");
        let model = Message::default().int(1, 10).text(2, "by hand").bytes(7, &graph.0).bytes(8, &opset.0);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("net.onnx");
        std::fs::write(&path, model.0).expect("a file");
        let text = import(&path, &Options::default()).map_err(|error| error.to_string())?.graph.into_text();
        workload::parse("net.toml", &text, &[], 0).map_err(|error| format!("{error}\n{text}"))
    }

    /// FLOP that causality leaves, all of a network.
    fn flop(&self) -> u64 {
        let workload = self.imported().unwrap_or_else(|error| panic!("{error}"));
        workload.operators.ids().map(|op| 2 * workload.stored_macs(op)).sum()
    }
}

#[test]
fn products_are_read_in_every_position() {
    let net = |a: &[i64], b: &[i64], y: &[i64]| {
        let net = Net::default().input("a", a).input("b", b).node("MatMul", &["a", "b"], "y", &[]);
        net.output("y", y)
    };
    let half = |_: usize| 0.5;
    // The first operand transposed: 24 x 40 by 24 x 56, with a bias.
    let gemm = Net::default().input("a", &[24, 40]).weight("w", &[24, 56], half).weight("c", &[56], half);
    let gemm = gemm.node("Gemm", &["a", "w", "c"], "y", &[("transA", &[1])]).output("y", &[40, 56]);
    assert_eq!(gemm.flop(), 2 * 40 * 24 * 56);
    assert_eq!(gemm.imported().expect("a graph").parameters(), 24 * 56 + 56);
    // Both transposed.
    let both = Net::default().input("a", &[24, 40]).weight("w", &[56, 24], half);
    let both = both.node("Gemm", &["a", "w"], "y", &[("transA", &[1]), ("transB", &[1])]).output("y", &[40, 56]);
    assert_eq!(both.flop(), 2 * 40 * 24 * 56);
    // A weight on the left, of a matrix and of a batch of them; what follows reads the result as it is.
    for (shape, columns) in [(vec![24, 10], 10), (vec![3, 24, 10], 30)] {
        let mut made = shape.clone();
        made[shape.len() - 2] = 56;
        let mut next = made.clone();
        *next.last_mut().expect("an axis") = 7;
        let left = Net::default().weight("w", &[56, 24], half).input("a", &shape).weight("v", &[10, 7], half);
        let left = left.node("MatMul", &["w", "a"], "h", &[]).node("MatMul", &["h", "v"], "y", &[]);
        assert_eq!(left.output("y", &next).flop(), 2 * 56 * 24 * columns + 2 * (56 * columns / 10) * 10 * 7);
    }
    // A weight for each of three experts, with five rows each.
    let experts = Net::default().input("a", &[3, 5, 24]).weight("w", &[3, 24, 56], half);
    let experts = experts.node("MatMul", &["a", "w"], "y", &[]).output("y", &[3, 5, 56]);
    assert_eq!(experts.flop(), 3 * 2 * 5 * 24 * 56);
    assert_eq!(experts.imported().expect("a graph").parameters(), 3 * 24 * 56);
    // One head of keys for all of queries, inputs or made of one.
    assert_eq!(net(&[2, 6, 9, 16], &[2, 1, 16, 11], &[2, 6, 9, 11]).flop(), 2 * 6 * 2 * 9 * 16 * 11);
    // A batch in front of what is one for all, and one sequence for all behind it.
    assert_eq!(net(&[2, 3, 9, 16], &[3, 16, 11], &[2, 3, 9, 11]).flop(), 2 * 3 * 2 * 9 * 16 * 11);
    assert_eq!(net(&[4, 9, 16], &[16, 11], &[4, 9, 11]).flop(), 4 * 2 * 9 * 16 * 11);
    // Many keys of one query are no product here.
    assert!(net(&[1, 9, 16], &[4, 16, 11], &[4, 9, 11]).imported().is_err());
}

#[test]
fn a_shape_that_is_stated_otherwise_than_it_follows_is_an_error() {
    let net = Net::default().input("a", &[8, 64]).weight("w", &[64, 48], |_| 0.5);
    let net = net.node("MatMul", &["a", "w"], "y", &[]);
    assert_eq!(net.clone().output("y", &[8, 48]).flop(), 2 * 8 * 64 * 48);
    // A size that is left open contradicts nothing.
    assert_eq!(net.clone().output("y", &[-1, 48]).flop(), 2 * 8 * 64 * 48);
    for stated in [&[8, 49][..], &[8, 48, 1], &[-1, 64], &[48]] {
        let error = net.clone().output("y", stated).imported().expect_err("a contradiction");
        assert!(error.contains("is stated to be") && error.contains("makes it [8, 48]"), "{error}");
    }
    // Of what lies between, too.
    let between = Net::default().input("a", &[8, 64]).weight("w", &[64, 48], |_| 0.5).value(13, "h", &[8, -1, 48]);
    let between = between.node("MatMul", &["a", "w"], "h", &[]).node("Relu", &["h"], "y", &[]).output("y", &[8, 48]);
    assert!(between.imported().expect_err("a contradiction").contains("is stated to be [8, ?, 48]"));
}

/// Scores, a constant mask, softmax, values: 2 heads of 16 columns, 32 queries and keys; keys come in transposed or not.
fn masked(comes_transposed: bool, kept: impl Fn(usize, usize) -> bool) -> Net {
    let mask = |i: usize| if kept(i / 32, i % 32) { 0.0 } else { f32::NEG_INFINITY };
    let net = Net::default().input("q", &[1, 2, 32, 16]).input("v", &[1, 2, 32, 16]).weight("mask", &[32, 32], mask);
    let net = if comes_transposed {
        net.input("kt", &[1, 2, 16, 32])
    } else {
        net.input("k", &[1, 2, 32, 16]).node("Transpose", &["k"], "kt", &[("perm", &[0, 1, 3, 2])])
    };
    let net = net.node("MatMul", &["q", "kt"], "s", &[]).node("Add", &["s", "mask"], "m", &[]);
    let net = net.node("Softmax", &["m"], "p", &[("axis", &[-1])]);
    net.node("MatMul", &["p", "v"], "y", &[]).output("y", &[1, 2, 32, 16])
}

#[test]
fn causality_never_cuts_along_the_width_of_a_head() {
    let all = 2 * 2 * 2 * 32 * 32 * 16;
    let pairs = 32 * 33 / 2;
    for comes_transposed in [false, true] {
        let causal = masked(comes_transposed, |query, key| key <= query);
        assert_eq!(causal.flop(), 2 * 2 * 2 * pairs * 16, "{comes_transposed}");
        let notes = causal.imported().expect("a graph").notes;
        assert!(!notes.iter().any(|note| note.contains("no triangle")), "{notes:?}");
        // A band is no triangle: all is computed, and a note says so.
        let band = masked(comes_transposed, |query, key| key <= query && key + 8 > query);
        assert_eq!(band.flop(), all, "{comes_transposed}");
        let notes = band.imported().expect("a graph").notes;
        assert_eq!(notes.iter().filter(|note| note.contains("no triangle")).count(), 1, "{notes:?}");
        // Without anything left out there is nothing to say.
        let open = masked(comes_transposed, |_, _| true);
        assert_eq!(open.flop(), all);
        assert!(!open.imported().expect("a graph").notes.iter().any(|note| note.contains("mask")));
    }
}

#[test]
fn a_causal_query_sees_keys_up_to_its_own_place_behind_the_past() {
    // 4 heads of 8 columns; every query-key pair is 4 heads x 2 products x 2 x 8 FLOP.
    let pair = 4 * 2 * 2 * 8;
    let attention = |queries: i64, keys: i64, past: i64| {
        let net = Net::default().input("q", &[1, queries, 32]).input("k", &[1, keys, 32]).input("v", &[1, keys, 32]);
        let flags: [(&str, &[i64]); 3] = [("is_causal", &[1]), ("q_num_heads", &[4]), ("kv_num_heads", &[4])];
        let net = if past == 0 {
            net.node("Attention", &["q", "k", "v"], "y", &flags)
        } else {
            let net = net.input("pk", &[1, 4, past, 8]).input("pv", &[1, 4, past, 8]);
            net.node("Attention", &["q", "k", "v", "", "pk", "pv"], "y", &flags)
        };
        net.output("y", &[1, queries, 32])
    };
    assert_eq!(attention(16, 16, 0).flop(), 136 * pair);
    // Of 100 keys the first 16 are seen; with 5 before them, 5 more by each query.
    assert_eq!(attention(16, 100, 0).flop(), 136 * pair);
    assert_eq!(attention(16, 16, 5).flop(), (136 + 16 * 5) * pair);
    // With fewer keys than queries, the last queries see all.
    assert_eq!(attention(16, 10, 0).flop(), (55 + 6 * 10) * pair);
}
