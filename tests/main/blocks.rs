//! Six kinds of block of today's models: what their graphs compute is what the papers define, and mappings on RDUs compute what the
//! graphs say. References are plain loops in f64, written from the formulas; they share nothing with what writes graphs.

use std::collections::BTreeMap;
use std::path::Path;

use crate::first_steps::rdusim;
use crate::legal::{draws, found_quickly};
use rdusim::arch;
use rdusim::mode::Mode;
use rdusim::program::Configuration;
use rdusim::verify::{Numbers, drawn, evaluate, verify};
use rdusim::workload::{self, Workload};

/// Added to the mean square of a norm, as `docs/verify.md` says.
pub(crate) const EPSILON: f64 = 1e-5;
/// What every `scale` and mask multiplies with: one over the root of heads of 64.
pub(crate) const SCALE: f64 = 0.125;

pub(crate) type Row = Vec<f64>;
pub(crate) type Rows = Vec<Row>;

/// The graph of a configuration of one layer.
pub(crate) fn graph(name: &str, config: &str, more: &[&str]) -> Workload {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, made) = (folder.path().join("config.json"), folder.path().join("model.toml"));
    std::fs::write(&file, config).expect("a file");
    let (file, words) = (file.to_str().expect("a path"), made.to_str().expect("a path"));
    let (code, _, errors) = rdusim(folder.path(), &[&["model", file], more, &["-o", words]].concat());
    assert_eq!(code, Some(0), "{name}: {errors}");
    workload::load(&made, &[], 0).unwrap_or_else(|error| panic!("{name}: {}", error.render(false)))
}

/// The numbers of a graph's first layer by their names in it.
pub(crate) struct Layer {
    numbers: BTreeMap<String, Numbers>,
    prefix: String,
}

impl Layer {
    pub(crate) fn of(workload: &Workload, given: &BTreeMap<String, Numbers>) -> Self {
        let numbers = evaluate(workload, given);
        let prefix = prefix(workload);
        Self { numbers, prefix }
    }

    fn get(&self, name: &str) -> &Numbers {
        let full = format!("{}{name}", self.prefix);
        self.numbers.get(&full).unwrap_or_else(|| panic!("no {full} among {:?}", self.numbers.keys()))
    }

    pub(crate) fn rows(&self, name: &str) -> Rows {
        let of = self.get(name);
        of.values.chunks(of.columns).map(<[f64]>::to_vec).collect()
    }

    pub(crate) fn row(&self, name: &str) -> Row {
        self.get(name).values.clone()
    }

    /// `x` times the matrix `w_{name}`.
    pub(crate) fn times(&self, x: &[f64], name: &str) -> Row {
        let matrix = self.rows(&format!("w_{name}"));
        assert_eq!(matrix.len(), x.len(), "{name}");
        (0..matrix[0].len()).map(|n| (0..x.len()).map(|k| x[k] * matrix[k][n]).sum()).collect()
    }

    /// The same with the bias `b_{name}`.
    fn moved(&self, x: &[f64], name: &str) -> Row {
        self.times(x, name).iter().zip(self.row(&format!("b_{name}"))).map(|(a, b)| a + b).collect()
    }
}

/// What stands before the names of the first layer's tensors.
fn prefix(workload: &Workload) -> String {
    let mut normed = workload.operators.iter().map(|operator| &workload.tensors[operator.output].name);
    let found = normed.find_map(|name| name.strip_suffix("x_attention"));
    found.expect("a normed input of a block").to_owned()
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub(crate) fn rms(x: &[f64]) -> Row {
    let scale = 1.0 / (dot(x, x) / x.len() as f64 + EPSILON).sqrt();
    x.iter().map(|x| x * scale).collect()
}

pub(crate) fn gained(x: &[f64], gain: &[f64]) -> Row {
    rms(x).iter().zip(gain).map(|(x, g)| x * g).collect()
}

/// Pairs of neighbours turned by `position / 10000^(2 i / d)` (Su et al. 2021, arXiv:2104.09864, equation 15).
fn turned(x: &[f64], position: usize) -> Row {
    let mut made = x.to_vec();
    for i in 0..x.len() / 2 {
        let angle = position as f64 / 10_000f64.powf(2.0 * i as f64 / x.len() as f64);
        made[2 * i] = x[2 * i] * angle.cos() - x[2 * i + 1] * angle.sin();
        made[2 * i + 1] = x[2 * i] * angle.sin() + x[2 * i + 1] * angle.cos();
    }
    made
}

fn heads_turned(x: &[f64], width: usize, position: usize) -> Row {
    x.chunks(width).flat_map(|head| turned(head, position)).collect()
}

/// Shares of exponentials; a sink takes part in their sum.
fn shares(scores: &[f64], sink: Option<f64>) -> Row {
    let sum: f64 = scores.iter().chain(&sink).map(|x| x.exp()).sum();
    scores.iter().map(|x| x.exp() / sum).collect()
}

fn mixed(shares: &[f64], values: &[&[f64]]) -> Row {
    (0..values[0].len()).map(|c| shares.iter().zip(values).map(|(p, v)| p * v[c]).sum()).collect()
}

pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub(crate) fn silu(x: &[f64]) -> Row {
    x.iter().map(|x| x * sigmoid(*x)).collect()
}

pub(crate) fn near(name: &str, found: &Rows, expected: &Rows) {
    assert_eq!((found.len(), found[0].len()), (expected.len(), expected[0].len()), "{name}");
    for (row, (found, expected)) in found.iter().zip(expected).enumerate() {
        for (column, (a, b)) in found.iter().zip(expected).enumerate() {
            assert!((a - b).abs() < 1e-9 * (1.0 + b.abs()), "{name} [{row}, {column}]: {a}, expected {b}");
        }
    }
}

/// Mappings by the compiler and at random, on two RDUs, are within the bounds of the graph's numbers.
pub(crate) fn mapped(name: &str, workload: &Workload) {
    for chip in ["arch/sn10.toml", "arch/sn40l.toml"] {
        let chip = arch::load(Path::new(chip), &[]).expect("a chip that comes with rdusim");
        let found = found_quickly(&chip, workload, &[Mode::Kbk, Mode::Fused]);
        let found = found.unwrap_or_else(|error| panic!("{name}: {}", error.render(false)));
        let mut configurations: Vec<Configuration> = found.into_iter().map(|of| of.configuration).collect();
        configurations.extend(draws(&chip, workload, 2));
        for verdict in verify(&chip, workload, &configurations, 7) {
            assert!(verdict.passed, "{name}: {verdict:?}");
        }
    }
}

const GROUPED: &str = r#"{"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 64,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 32,
    "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8, "layer_types": ["LAYER"],
    "attention_bias": true, "vocab_size": 40, "rms_norm_eps": 1e-5, "tie_word_embeddings": false}"#;

/// Attention with a sink in each head (gpt-oss model card, arXiv:2508.10925, section 2): the softmax of the scores and the sink,
/// of which the sink's share has no value. Keys are those from `first` to `last` of the row's sequence.
fn grouped_reference(
    layer: &Layer,
    keys: &Rows,
    values: &Rows,
    seen: &dyn Fn(usize) -> std::ops::Range<usize>,
) -> Rows {
    let (heads, groups, width) = (4, 2, 64);
    let sinks = layer.row("sinks");
    let of_row = |(row, x): (usize, &Row)| {
        let q = heads_turned(&layer.moved(x, "query"), width, row);
        let o: Row = (0..heads)
            .flat_map(|head| {
                let group = head / (heads / groups);
                let of = group * width..(group + 1) * width;
                let q = &q[head * width..(head + 1) * width];
                let scores: Row = seen(row).map(|key| SCALE * dot(q, &keys[key][of.clone()])).collect();
                let values: Vec<&[f64]> = seen(row).map(|key| &values[key][of.clone()]).collect();
                mixed(&shares(&scores, Some(sinks[head])), &values)
            })
            .collect();
        layer.moved(&o, "project")
    };
    layer.rows("x_attention").iter().enumerate().map(of_row).collect()
}

#[test]
fn grouped_attention_with_window_and_sinks_is_its_formula() {
    for (kind, window) in [("sliding_attention", 8), ("full_attention", 24)] {
        let config = GROUPED.replace("LAYER", kind);
        let workload = graph(kind, &config, &["--phase", "decode", "--context", "24", "--batch", "3"]);
        let layer = Layer::of(&workload, &drawn(&workload, 3));
        let (keys, values) = (layer.rows("k_cache"), layer.rows("v_cache"));
        assert_eq!(keys.len(), 3 * window, "{kind}");
        let expected = grouped_reference(&layer, &keys, &values, &|row| row * window..(row + 1) * window);
        near(kind, &layer.rows("attended"), &expected);
        mapped(kind, &workload);
    }
    let config = GROUPED.replace("LAYER", "full_attention");
    let workload = graph("prefill", &config, &["--phase", "prefill", "--sequence", "12", "--batch", "2"]);
    let layer = Layer::of(&workload, &drawn(&workload, 5));
    let x = layer.rows("x_attention");
    let keys: Rows = x.iter().enumerate().map(|(at, x)| heads_turned(&layer.moved(x, "key"), 64, at)).collect();
    let values: Rows = x.iter().map(|x| layer.moved(x, "value")).collect();
    let expected = grouped_reference(&layer, &keys, &values, &|row| row - row % 12..row + 1);
    near("prefill", &layer.rows("attended"), &expected);
    mapped("prefill", &workload);
}

#[test]
fn a_sink_of_two_scores_by_hand() {
    // Two scores of 0 and a sink of ln 2: each score has a share of 1 / (1 + 1 + 2).
    let made = shares(&[0.0, 0.0], Some(2f64.ln()));
    assert!(made.iter().all(|share| (share - 0.25).abs() < 1e-15), "{made:?}");
    let text = "schema = 1\nname = \"sink\"\n[[tensors]]\nname = \"x\"\nshape = [1, 2]\nrole = \"input\"\n\
        [[tensors]]\nname = \"sinks\"\nshape = [1, 1]\nrole = \"weight\"\n\
        [[operators]]\nname = \"softmax\"\nkind = \"softmax\"\ninputs = [\"x\"]\noutput = \"p\"\nheads = 1\n\
        vectors = [\"sinks\"]\n";
    let workload = workload::parse("sink", text, &[], 0).unwrap_or_else(|error| panic!("{}", error.render(false)));
    let numbers = |columns, values: &[f64]| Numbers { rows: 1, columns, values: values.to_vec() };
    let given = [("x", numbers(2, &[0.0, 0.0])), ("sinks", numbers(1, &[2f64.ln()]))];
    let given = given.map(|(name, numbers)| (name.to_owned(), numbers)).into();
    let p = &evaluate(&workload, &given)["p"];
    assert!(p.values.iter().all(|share| (share - 0.25).abs() < 1e-12), "{p:?}");
}

const LATENT: &str = r#"{"architectures": ["DeepseekV3ForCausalLM"], "model_type": "MODEL", "hidden_size": 64,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 48,
    "moe_intermediate_size": 32, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "first_k_dense_replace": DENSE, "n_group": 1, "topk_group": 1, "kv_lora_rank": 24, "q_lora_rank": 40,
    "qk_nope_head_dim": 48, "qk_rope_head_dim": 16, "v_head_dim": 32, "vocab_size": 40, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": false INDEXER}"#;

fn latent(model: &str, dense: u64, indexer: &str) -> String {
    LATENT.replace("MODEL", model).replace("DENSE", &dense.to_string()).replace("INDEXER", indexer)
}

/// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, equations 37 to 47): keys and values of a head are made of a token's
/// latent vector, and a rotated key is shared by all heads. `key_up` and `value_up` give them.
struct OfLatent<'a> {
    layer: &'a Layer,
    key_up: &'a dyn Fn(&[f64], usize) -> Row,
    value_up: &'a dyn Fn(&[f64], usize) -> Row,
    c: Rows,
    kr: Rows,
}

impl OfLatent<'_> {
    fn of(&self, seen: &dyn Fn(usize) -> Vec<usize>) -> Rows {
        let (heads, plain, rotated) = (4, 48, 16);
        let of_row = |(row, x): (usize, &Row)| {
            let cq = gained(&self.layer.times(x, "query_latent"), &self.layer.row("gain_cq"));
            let qn = self.layer.times(&cq, "query");
            let qr = heads_turned(&self.layer.times(&cq, "query_rotated"), rotated, row);
            let keys = seen(row);
            let o: Row = (0..heads)
                .flat_map(|head| {
                    let of = |key: &usize| {
                        let k = (self.key_up)(&self.c[*key], head);
                        let plain = dot(&qn[head * plain..(head + 1) * plain], &k);
                        SCALE * (plain + dot(&qr[head * rotated..(head + 1) * rotated], &self.kr[*key]))
                    };
                    let scores: Row = keys.iter().map(of).collect();
                    let values: Rows = keys.iter().map(|key| (self.value_up)(&self.c[*key], head)).collect();
                    let values: Vec<&[f64]> = values.iter().map(Vec::as_slice).collect();
                    mixed(&shares(&scores, None), &values)
                })
                .collect();
            self.layer.times(&o, "project")
        };
        self.layer.rows("x_attention").iter().enumerate().map(of_row).collect()
    }
}

/// Columns of one head of a product with a matrix whose heads stand side by side.
fn of_head(x: &[f64], matrix: &Rows, head: usize, width: usize) -> Row {
    (head * width..(head + 1) * width).map(|n| (0..x.len()).map(|k| x[k] * matrix[k][n]).sum()).collect()
}

/// A key of a head where the matrix that makes it is stored turned, as decoding takes it.
fn of_head_turned(c: &[f64], matrix: &Rows, head: usize) -> Row {
    matrix.iter().map(|row| dot(&row[head * c.len()..(head + 1) * c.len()], c)).collect()
}

#[test]
fn latent_attention_is_its_formula() {
    let config = latent("deepseek_v3", 1, "");
    let workload = graph("decode", &config, &["--phase", "decode", "--context", "20", "--batch", "3"]);
    let layer = Layer::of(&workload, &drawn(&workload, 3));
    let (up, down) = (layer.rows("w_key_up"), layer.rows("w_value_up"));
    let of = OfLatent {
        layer: &layer,
        key_up: &|c, head| of_head_turned(c, &up, head),
        value_up: &|c, head| of_head(c, &down, head, 32),
        c: layer.rows("c_cache"),
        kr: layer.rows("kr_cache"),
    };
    near("decode", &layer.rows("attended"), &of.of(&|row| (row * 20..(row + 1) * 20).collect()));
    mapped("latent decode", &workload);

    let workload = graph("prefill", &config, &["--phase", "prefill", "--sequence", "12", "--batch", "2"]);
    let layer = Layer::of(&workload, &drawn(&workload, 5));
    let (up, down) = (layer.rows("w_key_up"), layer.rows("w_value_up"));
    let x = layer.rows("x_attention");
    let gain = layer.row("gain_c");
    let of = OfLatent {
        layer: &layer,
        key_up: &|c, head| of_head(c, &up, head, 48),
        value_up: &|c, head| of_head(c, &down, head, 32),
        c: x.iter().map(|x| gained(&layer.times(x, "key_latent"), &gain)).collect(),
        kr: x.iter().enumerate().map(|(at, x)| turned(&layer.times(x, "key_rotated"), at)).collect(),
    };
    near("prefill", &layer.rows("attended"), &of.of(&|row| (row - row % 12..=row).collect()));
    mapped("latent prefill", &workload);
}

/// The scores of the lightning indexer (DeepSeek-V3.2, equation 1): over heads j, the sum of `w_j relu(q_j k)`.
fn index_scores(layer: &Layer, context: usize) -> Rows {
    let (heads, width) = (2, 16);
    let keys = layer.rows("ik_cache");
    let of_row = |(row, x): (usize, &Row)| {
        let cq = gained(&layer.times(x, "query_latent"), &layer.row("gain_cq"));
        let (q, w) = (layer.times(&cq, "index_query"), layer.times(x, "index_weight"));
        let score = |key: &Row| (0..heads).map(|j| w[j] * dot(&q[j * width..(j + 1) * width], key).max(0.0)).sum();
        keys[row * context..(row + 1) * context].iter().map(score).collect()
    };
    layer.rows("x_attention").iter().enumerate().map(of_row).collect()
}

#[test]
fn latent_attention_with_an_indexer_attends_to_the_keys_of_the_highest_scores() {
    let (context, top) = (20, 6);
    let indexer = r#", "index_n_heads": 2, "index_head_dim": 16, "index_topk": 6"#;
    let config = latent("deepseek_v32", 1, indexer);
    let workload = graph("sparse", &config, &["--phase", "decode", "--context", "20", "--batch", "3"]);
    let mut given = drawn(&workload, 3);
    let layer = Layer::of(&workload, &given);
    let scores = index_scores(&layer, context);
    near("scores", &layer.rows("is_sum"), &scores);
    // The rows of the cache that are gathered are those of the highest scores.
    let chosen: Vec<Vec<usize>> = scores
        .iter()
        .enumerate()
        .map(|(row, scores)| {
            let mut keys: Vec<usize> = (0..context).collect();
            keys.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
            keys[..top].iter().map(|key| row * context + key).collect()
        })
        .collect();
    for cache in ["c_cache", "kr_cache"] {
        let values: Vec<f64> = chosen.iter().flatten().map(|&row| row as f64).collect();
        let name = format!("{}ids_{cache}", layer.prefix);
        assert!(given.insert(name, Numbers { rows: values.len(), columns: 1, values }).is_some());
    }
    let layer = Layer::of(&workload, &given);
    let (up, down) = (layer.rows("w_key_up"), layer.rows("w_value_up"));
    let of = OfLatent {
        layer: &layer,
        key_up: &|c, head| of_head_turned(c, &up, head),
        value_up: &|c, head| of_head(c, &down, head, 32),
        c: layer.rows("c_cache"),
        kr: layer.rows("kr_cache"),
    };
    near("attended", &layer.rows("attended"), &of.of(&|row| chosen[row].clone()));
    mapped("latent with an indexer", &workload);
}

/// A mixture of experts with one that every token meets (`DeepSeekMoE`, arXiv:2401.06066, equations 9 to 11): weights of the chosen are
/// the largest shares of the softmax over all logits.
#[test]
fn experts_with_a_shared_one_are_their_formula() {
    let config = latent("deepseek_v3", 0, "");
    let workload = graph("experts", &config, &["--phase", "decode", "--context", "8", "--batch", "8"]);
    let (count, each, tokens, width) = (4, 2, 8, 32);
    let mut given = drawn(&workload, 3);
    let layer = Layer::of(&workload, &given);
    let slots = layer.get("ids_experts").rows / count;
    let logits: Rows = layer.rows("x_feed").iter().map(|x| layer.times(x, "router")).collect();
    // The two largest logits of every token, in the order of the experts.
    let (mut rows, mut chosen) = (vec![Vec::new(); count], Vec::new());
    for (token, logits) in logits.iter().enumerate() {
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        let mut taken = order[..each].to_vec();
        taken.sort_unstable();
        assert!(taken.iter().all(|&expert| rows[expert].len() < slots), "an expert has too few rows: {rows:?}");
        let of_token = taken.iter().map(|&expert| {
            rows[expert].push(token);
            (expert, rows[expert].len() - 1)
        });
        chosen.push(of_token.collect::<Vec<(usize, usize)>>());
    }
    let mut put = |name: &str, values: Vec<f64>| {
        let name = format!("{}{name}", layer.prefix);
        let numbers = Numbers { rows: values.len(), columns: 1, values };
        let drawn = given.insert(name.clone(), numbers.clone());
        assert_eq!(drawn.map(|drawn| drawn.rows), Some(numbers.rows), "{name}");
    };
    let of_slot = |rows: &Vec<usize>, slot: usize| rows.get(slot).copied().unwrap_or(0) as f64;
    put("ids_experts", rows.iter().flat_map(|rows| (0..slots).map(|slot| of_slot(rows, slot))).collect());
    put("ids_tokens", chosen.iter().flatten().map(|(expert, slot)| (expert * slots + slot) as f64).collect());
    let layer = Layer::of(&workload, &given);
    let (gate, up, down) = (layer.rows("w_expert_gate"), layer.rows("w_expert_up"), layer.rows("w_expert_down"));
    let of_expert = |x: &[f64], matrix: &Rows, expert: usize| -> Row {
        let first = expert * x.len();
        (0..matrix[0].len()).map(|n| (0..x.len()).map(|k| x[k] * matrix[first + k][n]).sum()).collect()
    };
    let opened = |gate: &[f64], up: &[f64]| -> Row { silu(gate).iter().zip(up).map(|(g, u)| g * u).collect() };
    let mut expected = Vec::new();
    for (token, x) in layer.rows("x_feed").iter().enumerate() {
        let logits = layer.times(x, "router");
        let shares = shares(&logits, None);
        let weights = chosen[token].iter().map(|(expert, _)| shares[*expert]);
        let inner = opened(&layer.times(x, "shared_gate"), &layer.times(x, "shared_up"));
        let mut y = layer.times(&inner, "shared_down");
        for ((expert, _), weight) in chosen[token].iter().zip(weights) {
            let inner = opened(&of_expert(x, &gate, *expert), &of_expert(x, &up, *expert));
            assert_eq!(inner.len(), width);
            y.iter_mut().zip(of_expert(&inner, &down, *expert)).for_each(|(y, of)| *y += weight * of);
        }
        expected.push(y);
    }
    assert_eq!(expected.len(), tokens);
    near("experts", &layer.rows("fed_by_all"), &expected);
    mapped("experts", &workload);
}
