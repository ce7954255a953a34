mod images;

use super::*;
use rdusim_base::index::Id;
use rdusim_base::units::Dtype;

const DENSE: &str = include_str!("../../../../../workloads/gpt13b-mlp.toml");
const TINY: &str = include_str!("../../../../../workloads/tiny-mlp.toml");

fn shipped(name: &str) -> Workload {
    load(Path::new(name), &[], 0).unwrap_or_else(|error| panic!("{}", error.render(false)))
}

fn read(text: &str) -> Workload {
    parse("w.toml", text, &[], 0).unwrap_or_else(|error| panic!("{}", error.render(false)))
}

fn with_sets(text: &str, sets: &[&str]) -> Result<Workload, Diagnostic> {
    let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).expect("parses")).collect();
    parse("w.toml", text, &sets, 0)
}

/// The tiny workload with one piece of text replaced.
#[track_caller]
fn edited(from: &str, to: &str) -> String {
    assert_eq!(TINY.matches(from).count(), 1, "{from:?} occurs once");
    TINY.replace(from, to)
}

#[track_caller]
fn refused(from: &str, to: &str) -> String {
    parse("w.toml", &edited(from, to), &[], 0).expect_err("is refused").to_string()
}

/// A workload of `gelu` operators given as `name: input -> output`, reading `x`.
fn chain(operators: &[(&str, &str, &str)]) -> String {
    let mut text = "schema = 1\nname = \"c\"\n[[tensors]]\nname = \"x\"\nshape = [4, 4]\nrole = \"input\"\n".to_owned();
    text.extend(operators.iter().map(|(name, input, output)| {
        let kind = if input.contains(',') { "add" } else { "gelu" };
        format!("[[operators]]\nname = \"{name}\"\nkind = \"{kind}\"\ninputs = [{input}]\noutput = \"{output}\"\n")
    }));
    text
}

fn names(workload: &Workload) -> Vec<&str> {
    workload.operators.iter().map(|operator| operator.name.as_str()).collect()
}

#[test]
fn gpt13b_has_the_known_sizes() {
    let macs = |workload: &Workload| workload.operators.ids().map(|id| workload.stored_macs(id)).sum::<u64>();
    let dense = shipped("gpt13b-mlp");
    assert_eq!(macs(&dense), 429_496_729_600);
    assert_eq!(dense.parameters(), 209_715_200);
    let sparse = shipped("gpt13b-mlp-sparse");
    assert_eq!(macs(&sparse), 53_687_091_200);
    assert_eq!(sparse.operators.ids().map(|id| sparse.dense_macs(id)).sum::<u64>(), 429_496_729_600);
}

#[test]
fn shipped_workloads_have_the_blocks_of_a_feed_forward_layer() {
    for name in ["gpt13b-mlp", "gpt13b-mlp-sparse", "gpt2-small-mlp", "tiny-mlp"] {
        let workload = shipped(name);
        assert_eq!(workload.name, name);
        assert_eq!(names(&workload), ["up", "gelu", "down"]);
        let roles: Vec<(&str, TensorRole)> =
            workload.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.role)).collect();
        let expected = [
            ("x", TensorRole::Input),
            ("w_up", TensorRole::Weight),
            ("w_down", TensorRole::Weight),
            ("h", TensorRole::Intermediate),
            ("g", TensorRole::Intermediate),
            ("y", TensorRole::Output),
        ];
        assert_eq!(roles, expected);
        assert_eq!((workload.graph.node_count(), workload.graph.edge_count()), (3, 2));
    }
}

#[test]
fn masks_follow_every_seed() {
    let mask = |text: &str, seed| {
        let workload = parse("w", text, &[], seed).expect("is a workload");
        workload.tensors.iter().filter_map(|tensor| tensor.mask.clone()).collect::<Vec<_>>()
    };
    let sparse = include_str!("../../../../../workloads/gpt13b-mlp-sparse.toml").replace("20480", "512");
    assert_eq!(mask(&sparse, 1), mask(&sparse, 1));
    assert_ne!(mask(&sparse, 1)[0], mask(&sparse, 2)[0]);
    assert_ne!(mask(&sparse, 1)[0], mask(&sparse.replace("seed = 1", "seed = 3"), 1)[0]);
    let square = sparse.replace("= 5120", "= 512").replace("seed = 1", "seed = 2");
    let masks = mask(&square, 1);
    assert_ne!(masks[0], masks[1], "two weights of one shape and seed");
}

#[test]
fn operators_are_in_topological_order_and_the_earlier_in_the_file_goes_first() {
    let workload = read(&chain(&[
        ("e", "\"c\", \"d\"", "z"),
        ("d", "\"b\"", "d"),
        ("c", "\"b\"", "c"),
        ("f", "\"x\"", "y"),
        ("b", "\"x\"", "b"),
    ]));
    assert_eq!(names(&workload), ["f", "b", "d", "c", "e"]);
    assert_eq!((workload.graph.node_count(), workload.graph.edge_count()), (5, 4));
}

#[test]
fn a_tensor_may_be_read_twice() {
    let workload = read(&chain(&[("a", "\"x\"", "h"), ("b", "\"h\", \"h\"", "y")]));
    assert_eq!(names(&workload), ["a", "b"]);
    assert_eq!(workload.graph.edge_count(), 1);
}

#[test]
fn cycles_are_named() {
    let title = |operators: &[(&str, &str, &str)]| {
        parse("w", &chain(operators), &[], 0).expect_err("is refused").title().to_owned()
    };
    let cycle = title(&[("t", "\"x\", \"r\"", "p"), ("u", "\"p\"", "q"), ("v", "\"q\"", "r"), ("w", "\"r\"", "after")]);
    assert_eq!(cycle, "the operators form a cycle: \"u\" -> \"v\" -> \"t\" -> \"u\"");
    assert_eq!(title(&[("t", "\"x\", \"p\"", "p")]), "the operators form a cycle: \"t\" -> \"t\"");
}

#[test]
fn declared_outputs_may_be_read() {
    let text = edited(
        "[[operators]]\nname = \"up\"",
        "[[tensors]]\nname = \"h\"\nshape = [64, \"d_ff\"]\nrole = \"output\"\ndtype = \"fp32\"\n\n[[operators]]\nname = \"up\"",
    );
    let workload = read(&text);
    let h = workload.tensors.iter().find(|tensor| tensor.name == "h").expect("is there");
    assert_eq!((h.role, h.dtype, h.rows, h.columns), (TensorRole::Output, Dtype::Fp32, 64, 128));
}

#[test]
fn activations_may_be_multiplied() {
    let mut text = chain(&[("a", "\"x\"", "h")]);
    text += "[[operators]]\nname = \"b\"\nkind = \"gemm\"\ninputs = [\"h\", \"x\"]\noutput = \"y\"\n";
    let workload = read(&text);
    assert_eq!(workload.stored_macs(OperatorId::from_index(1)), 64);
}

/// What is replaced in the file, by what, and the error: its line, column and title.
const REFUSALS: &[(&str, &str, &str)] = &[
    ("schema = 1", "schema = 0", "3:10: `schema` must be 1, found 0"),
    (
        "dtype = \"bf16\"",
        "dtype = \"bf17\"",
        "5:9: `dtype`: found \"bf17\", expected one of `bf16`, `fp16`, `fp32`, `int8`, `fp8_e4m3`, `fp8_e5m2`",
    ),
    ("tokens = 64", "tokens = 0", "8:10: `dims.tokens` must be from 1 to 1099511627776, found 0"),
    (
        "tokens = 64",
        "tokens = 1099511627777",
        "8:10: `dims.tokens` must be from 1 to 1099511627776, found 1099511627777",
    ),
    ("tokens = 64", "tokens = 64.5", "8:10: `dims.tokens`: found floating point `64.5`, expected a whole number"),
    ("tokens = 64", "tokens = 64\nheads = 4", "9:1: `dims.heads` is not used by any shape"),
    ("tokens = 64\n", "", "13:10: `tensors.x.shape` names the dimension \"tokens\", which is not in `dims`"),
    (
        "[\"tokens\", \"d_model\"]",
        "[\"token\", \"d_model\"]",
        "14:10: `tensors.x.shape` names the dimension \"token\", which is not in `dims`",
    ),
    ("[\"tokens\", \"d_model\"]", "[\"tokens\"]", "14:9: `tensors.x.shape` has length 1, expected 2"),
    (
        "[\"tokens\", \"d_model\"]",
        "[\"tokens\", -1]",
        "14:20: `tensors.x.shape` must be from 1 to 1099511627776, found -1",
    ),
    (
        "[\"tokens\", \"d_model\"]",
        "[\"tokens\", true]",
        "14:20: `tensors.x.shape[1]`: found boolean `true`, expected the name of a dimension or a whole number",
    ),
    ("shape = [\"tokens\", \"d_model\"]\n", "", "8:1: `dims.tokens` is not used by any shape"),
    ("name = \"w_down\"", "name = \"w_up\"", "23:8: two tensors are named \"w_up\""),
    (
        "role = \"input\"",
        "role = \"inputs\"",
        "15:8: `tensors.x.role`: found \"inputs\", expected one of `input`, `weight`, `intermediate`, `output`",
    ),
    ("role = \"input\"", "role = \"output\"", "15:8: tensor \"x\" has role \"output\" and no operator produces it"),
    ("role = \"input\"", "", "13:8: tensor \"x\" has no role and no operator produces it"),
    (
        "role = \"input\"",
        "role = \"input\"\nsparsity = { pattern = \"block\", density = 0.5, block = [4, 4] }",
        "16:12: `tensors.x.sparsity`: only weights can be sparse",
    ),
    (
        "inputs = [\"g\", \"w_down\"]",
        "inputs = [\"g\", \"w_dwn\"]",
        "42:16: operator \"down\" reads tensor \"w_dwn\", which nothing declares or produces",
    ),
    (
        "inputs = [\"g\", \"w_down\"]",
        "inputs = [\"g\", \"w_up\"]",
        "23:8: tensor \"w_down\" is not used by any operator",
    ),
    ("inputs = [\"g\", \"w_down\"]", "inputs = [\"g\"]", "42:10: `operators.down.inputs` has length 1, `gemm` takes 2"),
    ("inputs = [\"x\", \"w_up\"]", "inputs = [\"x\", \"w_down\"]", "18:8: tensor \"w_up\" is not used by any operator"),
    (
        "kind = \"gelu\"",
        "kind = \"gello\"",
        "35:8: `operators.gelu.kind`: found \"gello\", expected one of `gemm`, `gelu`, `relu`, `silu`, `sigmoid`, `tanh`, `add`, `mul`, `softmax`, `layer_norm`, `rms_norm`, `scale`, `causal_mask`, `rotary`, `dropout`, `bias`, `embedding`, `transpose`, `concat`, `row_sum` and 42 more",
    ),
    ("kind = \"gelu\"", "kind = \"add\"", "36:10: `operators.gelu.inputs` has length 1, `add` takes 2"),
    ("output = \"y\"", "output = \"h\"", "43:10: tensor \"h\" is the output of two operators"),
    (
        "output = \"y\"",
        "output = \"w_up\"",
        "36:10: the operators form a cycle: \"gelu\" -> \"down\" -> \"up\" -> \"gelu\"",
    ),
    ("output = \"y\"", "output = \"\"", "43:10: `operators.output` is \"\", which is no name"),
    ("name = \"gelu\"", "name = \"up\"", "34:8: two operators are named \"up\""),
    ("name = \"gelu\"", "title = \"gelu\"", "34:1: unknown field `operators[1].title`"),
    ("output = \"h\"", "output = \"h\"\nbias = \"b\"", "32:1: unknown field `operators.up.bias`"),
    (
        "[dims]",
        "[[tensors]]\nname = \"z\"\nrole = \"intermediate\"\n[dims]",
        "9:8: tensor \"z\" has role \"intermediate\" and no operator produces it",
    ),
    (
        "[dims]",
        "[[tensors]]\nname = \"y\"\nrole = \"intermediate\"\n[dims]",
        "9:8: tensor \"y\" has role \"intermediate\" and no operator reads it",
    ),
    (
        "[dims]",
        "[[tensors]]\nname = \"h\"\nshape = [64, 64]\n[dims]",
        "9:9: tensor \"h\" is declared as [64, 64], and operator \"up\" makes it [64, 128]",
    ),
    (
        "[dims]",
        "[[tensors]]\nname = \"z\"\nshape = [64, 64]\n[dims]",
        "8:8: tensor \"z\" has no role and no operator produces it",
    ),
    (
        "[dims]",
        "[[tensors]]\nname = \"z\"\nshape = [64, 64]\nrole = \"weight\"\n[dims]",
        "8:8: tensor \"z\" is not used by any operator",
    ),
    (
        "[dims]",
        "[[tensors]]\nname = \"g\"\ndtype = \"fp32\"\n[dims]",
        "45:10: operator \"down\" mixes data types: \"g\" is fp32 and \"w_down\" is bf16",
    ),
];

#[test]
fn impossible_workloads_are_refused() {
    for (from, to, error) in REFUSALS {
        assert_eq!(refused(from, to).strip_prefix("w.toml:"), Some(*error), "{from:?} -> {to:?}");
    }
}

#[test]
fn impossible_active_neurons_are_refused() {
    let role = "shape = [\"d_model\", \"d_ff\"]\nrole = \"weight\"";
    for (sparsity, error) in [
        ("pattern = \"active_rows\", density = 0.5", "21:12: `tensors.w_up.sparsity.tokens` is missing"),
        (
            "pattern = \"active_columns\", density = 0.5, tokens = 2, block = [4, 4]",
            "21:77: `tensors.w_up.sparsity.block` has no meaning for the pattern \"active_columns\"",
        ),
        (
            "pattern = \"active_rows\", density = 0.001, tokens = 9",
            "21:12: `tensors.w_up.sparsity.density` = 0.001 activates none of 64 neurons",
        ),
    ] {
        let found = refused(role, &format!("{role}\nsparsity = {{ {sparsity} }}"));
        assert_eq!(found.strip_prefix("w.toml:"), Some(error), "{sparsity}");
    }
}

#[test]
fn impossible_sparsity_is_refused() {
    let role = "shape = [\"d_model\", \"d_ff\"]\nrole = \"weight\"";
    for (sparsity, error) in [
        ("density = 0.5, block = [4, 4]", "21:12: `tensors.w_up.sparsity.pattern` is missing"),
        (
            "pattern = \"random\", density = 0.5, block = [4, 4]",
            "21:24: `tensors.w_up.sparsity.pattern`: found \"random\", expected one of `block`, `unstructured`, `nm`, `banded`, `row_skewed`, `column_skewed`, `file`, `active_rows`, `active_columns`",
        ),
        (
            "pattern = \"block\", density = 0, block = [4, 4]",
            "21:43: `tensors.w_up.sparsity.density` must be above 0 and at most 1, found 0",
        ),
        (
            "pattern = \"block\", density = 1.01, block = [4, 4]",
            "21:43: `tensors.w_up.sparsity.density` must be above 0 and at most 1, found 1.01",
        ),
        (
            "pattern = \"block\", density = nan, block = [4, 4]",
            "21:43: `tensors.w_up.sparsity.density` must be above 0 and at most 1, found NaN",
        ),
        (
            "pattern = \"block\", density = 0.5, block = [4]",
            "21:56: `tensors.w_up.sparsity.block` has length 1, expected 2",
        ),
        (
            "pattern = \"block\", density = 0.5, block = [4, 0]",
            "21:60: `tensors.w_up.sparsity.block` must be from 1 to 1099511627776, found 0",
        ),
        (
            "pattern = \"block\", density = 0.5, block = [4, 4], seed = -1",
            "21:71: `tensors.w_up.sparsity.seed` must be from 0 to 18446744073709551615, found -1",
        ),
        (
            "pattern = \"block\", density = 0.5, block = [4, 4], sed = 1",
            "21:64: unknown field `tensors.w_up.sparsity.sed`",
        ),
        ("pattern = \"block\", density = 0.5", "21:12: `tensors.w_up.sparsity.block` is missing"),
        ("pattern = \"unstructured\"", "21:12: `tensors.w_up.sparsity.density` is missing"),
        (
            "pattern = \"unstructured\", density = 0.5, block = [2, 2]",
            "21:63: `tensors.w_up.sparsity.block` has no meaning for the pattern \"unstructured\"",
        ),
        ("pattern = \"nm\", m = 4", "21:12: `tensors.w_up.sparsity.n` is missing"),
        ("pattern = \"nm\", n = 5, m = 4", "21:34: `tensors.w_up.sparsity.n` must be from 1 to 4, found 5"),
        ("pattern = \"nm\", n = 1, m = 65", "21:41: `tensors.w_up.sparsity.m` must be from 1 to 64, found 65"),
        (
            "pattern = \"row_skewed\", density = 0.5, exponent = -1",
            "21:64: `tensors.w_up.sparsity.exponent` must be from 0 to 8, found -1",
        ),
        (
            "pattern = \"unstructured\", density = 0.5, format = \"ellpack\"",
            "21:64: `tensors.w_up.sparsity.format`: found \"ellpack\", expected one of `bitmap`, `bsr`, `csc`, `nm`, `dense`, `csr`, `coo`",
        ),
        (
            "pattern = \"block\", density = 0.5, block = [4, 4], format = \"nm\"",
            "21:73: \"w_up\" cannot be stored as \"nm\"",
        ),
        ("pattern = \"file\"", "21:12: `tensors.w_up.sparsity.file` is missing"),
        (
            "pattern = \"file\", file = \"mask.csv\"",
            "21:39: `tensors.w_up.sparsity.file`: \"mask.csv\" ends in none of .smtx, .mtx, .npy, .npz, .safetensors",
        ),
        (
            "pattern = \"file\", file = \"no such.smtx\"",
            "21:39: `tensors.w_up.sparsity.file`: \"no such.smtx\" cannot be opened: No such file or directory (os error 2)",
        ),
        (
            "pattern = \"block\", density = 0.001, block = [64, 64]",
            "21:43: `tensors.w_up.sparsity.density` = 0.001 keeps none of 2 blocks",
        ),
    ] {
        let found = refused(role, &format!("{role}\nsparsity = {{ {sparsity} }}"));
        assert_eq!(found.strip_prefix("w.toml:"), Some(error), "{sparsity}");
    }
    let sparse = format!("{role}\nsparsity = {{ pattern = \"block\", density = 0.5, block = [4, 4] }}");
    let as_first = edited(role, &sparse).replace("inputs = [\"x\", \"w_up\"]", "inputs = [\"w_up\", \"x\"]");
    let error = parse("w", &as_first, &[], 0).expect_err("is refused");
    assert_eq!(error.title(), "sparse weight \"w_up\" can only be the second input of a `gemm` or `conv`");
}

#[test]
fn masks_of_every_pattern() {
    let role = "shape = [\"d_model\", \"d_ff\"]\nrole = \"weight\"";
    let bytes = |sparsity: &str| {
        let text = edited(role, &format!("{role}\nsparsity = {{ {sparsity} }}"));
        let workload = parse("w", &text, &[], 0).unwrap_or_else(|error| panic!("{}", error.render(false)));
        let w_up = &workload.tensors[TensorId::from_index(1)];
        let format = w_up.mask.as_ref().map(|mask| mask.storage().format.name()).unwrap_or_default();
        (w_up.stored_elements(), w_up.stored_bytes(), format)
    };
    // 64 x 128 elements of 2 bytes.
    assert_eq!(bytes("pattern = \"unstructured\", density = 0.25"), (2048, 4096 + 1024, "bitmap"));
    assert_eq!(bytes("pattern = \"nm\", n = 1, m = 4"), (2048, 4096 + 512, "nm"));
    assert_eq!(bytes("pattern = \"nm\", n = 1, m = 4, format = \"csr\""), (2048, 4096 + 4096 + 65 * 4, "csr"));
    assert_eq!(bytes("pattern = \"banded\", density = 0.5, block = [8, 8]"), (4096, 8192 + 16, "bitmap"));
    assert_eq!(bytes("pattern = \"row_skewed\", density = 0.125"), (1024, 2048 + 1024, "bitmap"));
    assert_eq!(bytes("pattern = \"column_skewed\", density = 0.125, exponent = 2").0, 1024);
    assert_eq!(bytes("pattern = \"unstructured\", density = 1.0"), (8192, 16384, "dense"));
}

#[test]
fn one_density_is_spread_over_the_weights() {
    let stored = |sparsity: &str| -> Result<Vec<u64>, String> {
        let text = format!("{TINY}\n[sparsity]\n{sparsity}\n");
        let workload = parse("w", &text, &[], 0).map_err(|error| error.to_string())?;
        Ok(workload.tensors.iter().filter(|t| t.role == TensorRole::Weight).map(Tensor::stored_elements).collect())
    };
    assert_eq!(stored("distribution = \"uniform\"\ndensity = 0.25"), Ok(vec![2048, 2048]));
    assert_eq!(stored("distribution = \"erk\"\ndensity = 0.25"), Ok(vec![2048, 2048]));
    assert_eq!(stored("distribution = \"uniform\"\ndensity = 0.25\ntensors = [\"w_down\"]"), Ok(vec![8192, 2048]));
    let refused = |sparsity: &str| stored(sparsity).expect_err("is refused");
    let lines = [
        refused("distribution = \"even\"\ndensity = 0.25"),
        refused("distribution = \"erk\"\ndensity = 2"),
        refused("distribution = \"erk\"\ndensity = 0.25\ntensors = [\"w\"]"),
        refused("distribution = \"erk\"\ndensity = 0.25\ntensors = [\"x\"]"),
        refused("distribution = \"erk\"\ndensity = 0.25\ntensors = [\"w_up\", \"w_up\"]"),
        refused("distribution = \"erk\"\ndensity = 0.25\ntensors = []"),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r#"
w:46:16: `sparsity.distribution`: found "even", expected one of `uniform`, `erk`
w:47:11: `sparsity.density` must be above 0 and at most 1, found 2
w:48:12: `sparsity.tensors` names "w", which is no tensor
w:48:12: `sparsity.tensors` names "x", which cannot take a part of it
w:48:20: `sparsity.tensors` names "w_up", which cannot take a part of it
w:48:11: `sparsity.tensors` is empty
"#);
}

#[test]
fn sums_that_overflow_are_refused() {
    let title = |sets: &[&str]| with_sets(TINY, sets).expect_err("is refused").title().to_owned();
    insta::assert_snapshot!(title(&["workload.dims.tokens=1099511627776", "workload.dims.d_model=1099511627776"]), @r#"
tensor "x" is [1099511627776, 1099511627776]: with it the tensors take more than 2^62 bytes
"#);
    insta::assert_snapshot!(title(&["workload.dims.d_ff=1099511627776", "workload.dims.d_model=1048576"]), @r#"
tensor "w_down" is [1099511627776, 1048576]: with it the tensors take more than 2^62 bytes
"#);
    insta::assert_snapshot!(title(&["workload.dims.tokens=1073741824", "workload.dims.d_model=1048576", "workload.dims.d_ff=1048576"]), @r#"
operator "up" multiplies [1073741824, 1048576] by [1048576, 1048576]: with it the graph has more than 2^62 multiply-accumulates
"#);
    let sparse = "workload.tensors.w_up.sparsity={pattern = \"block\", density = 0.5, block = [1, 1]}";
    insta::assert_snapshot!(title(&["workload.dims.d_ff=67108864", sparse]), @r#"
the mask of "w_up" has 64 x 67108864 blocks: with it the masks of this workload take more than 2^31 bits
"#);
}

#[test]
fn overrides_reach_dims_tensors_and_operators() {
    let workload = with_sets(
        DENSE,
        &[
            "workload.dims.tokens=4096",
            "workload.operators.gelu.kind=relu",
            "workload.dtype=fp32",
            "workload.tensors.w_up.sparsity={ pattern = \"block\", density = 0.25, block = [16, 16] }",
            "workload.tensors.w_up.sparsity.seed=9",
            "arch.pmu.banks=7",
        ],
    )
    .unwrap_or_else(|error| panic!("{}", error.render(false)));
    assert_eq!(workload.dims["tokens"], 4096);
    assert_eq!(workload.operators[OperatorId::from_index(1)].kind, OperatorKind::Relu);
    let w_up = &workload.tensors[TensorId::from_index(1)];
    assert_eq!((w_up.dtype, w_up.stored_elements()), (Dtype::Fp32, 5120 * 20480 / 4));
}

#[test]
fn a_wrong_override_is_reported_as_typed() {
    let refused = |set: &str| with_sets(TINY, &[set]).expect_err("is refused").render(false);
    insta::assert_snapshot!(refused("workload.dims.tokens=0"), @r#"
error: `dims.tokens` must be from 1 to 1099511627776, found 0
 --> command line:1:28
  |
1 | --set workload.dims.tokens=0
  |                            ^ must be from 1 to 1099511627776
"#);
    insta::assert_snapshot!(refused("workload.dims.token=4096"), @r#"
error: `dims.token` is not used by any shape
 --> command line:1:7
  |
1 | --set workload.dims.token=4096
  |       ^^^^^^^^^^^^^^^^^^^ in no shape
  |
help: did you mean `tokens`?
"#);
    insta::assert_snapshot!(refused("workload.operators.gelu.kind=gleu"), @r#"
error: `operators.gelu.kind`: found "gleu", expected one of `gemm`, `gelu`, `relu`, `silu`, `sigmoid`, `tanh`, `add`, `mul`, `softmax`, `layer_norm`, `rms_norm`, `scale`, `causal_mask`, `rotary`, `dropout`, `bias`, `embedding`, `transpose`, `concat`, `row_sum` and 42 more
 --> command line:1:36
  |
1 | --set workload.operators.gelu.kind=gleu
  |                                    ^^^^ not one of them
  |
help: did you mean `gelu`?
"#);
    insta::assert_snapshot!(refused("workload.operators.gele.kind=relu"), @r#"
error: `operators` has no entry named "gele"
 --> command line:1:7
  |
1 | --set workload.operators.gele.kind=relu
  |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ it has `up`, `gelu`, `down`
  |
help: did you mean `gelu`?
"#);
    insta::assert_snapshot!(refused("workload.tensors.w_up.shape=[\"d_ff\", \"d_model\"]"), @r#"
error: operator "up": "x" is [64, 64] and "w_up" is [128, 64]
 --> command line:1:35
  |
1 | --set workload.tensors.w_up.shape=["d_ff", "d_model"]
  |                                   ^^^^^^^^^^^^^^^^^^^ expected as many columns of "x" as rows of "w_up": 64 and 128
"#);
    insta::assert_snapshot!(refused("workload.operators.down.inputs=[\"h\", \"w_up\"]"), @r#"
error: tensor "w_down" is not used by any operator
  --> w.toml:23:8
   |
23 | name = "w_down"
   |        ^^^^^^^^ read by none
   |
help: remove it, or name it as an input
"#);
    insta::assert_snapshot!(refused("workload.tensors.w_up.sparsity.density=0.5"), @r#"
error: `tensors.w_up.sparsity.pattern` is missing
 --> command line:1:7
  |
1 | --set workload.tensors.w_up.sparsity.density=0.5
  |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ expected in `tensors.w_up.sparsity`
"#);
    insta::assert_snapshot!(refused("workload.tensors.w_up.dtype=fp32"), @r#"
error: operator "up" mixes data types: "x" is bf16 and "w_up" is fp32
 --> command line:1:35
  |
1 | --set workload.tensors.w_up.dtype=fp32
  |                                   ^^^^ expected inputs of one data type
"#);
}

#[test]
fn a_wrong_file_is_reported_with_its_line() {
    let refused =
        |from: &str, to: &str| parse("w.toml", &edited(from, to), &[], 0).expect_err("is refused").render(false);
    insta::assert_snapshot!(refused("[\"d_ff\", \"d_model\"]", "[\"d_model\", \"d_ff\"]"), @r#"
error: operator "down": "g" is [64, 128] and "w_down" is [64, 128]
  --> w.toml:42:10
   |
42 | inputs = ["g", "w_down"]
   |          ^^^^^^^^^^^^^^^ expected as many columns of "g" as rows of "w_down": 128 and 64
"#);
    insta::assert_snapshot!(refused("role = \"input\"", ""), @r#"
error: tensor "x" has no role and no operator produces it
  --> w.toml:13:8
   |
13 | name = "x"
   |        ^^^ comes from nowhere
   |
help: say role = "input" or role = "weight"
"#);
}

#[test]
fn an_empty_graph_is_refused() {
    let empty = "schema = 1\nname = \"e\"\ntensors = []\noperators = []\n";
    assert_eq!(parse("w", empty, &[], 0).expect_err("is refused").title(), "`operators` is empty");
    assert_eq!(parse("w", "", &[], 0).expect_err("is refused").to_string(), "w:1:1: `schema` is missing");
}

#[test]
fn functions_of_chips_are_the_kinds_of_operators() {
    let kinds: Vec<&str> =
        OperatorKind::ALL.iter().filter(|kind| **kind != OperatorKind::Gemm).map(|kind| kind.name()).collect();
    assert_eq!(kinds[..crate::arch::FUNCTIONS.len()], crate::arch::FUNCTIONS);
}

#[test]
fn the_documented_example_is_a_workload() {
    let text = include_str!("../../../../../docs/workload-format.md");
    let example = text.rsplit("```toml\n").next().and_then(|rest| rest.split("```").next()).expect("has an example");
    assert_eq!(names(&read(example)), ["project", "activate"]);
}
