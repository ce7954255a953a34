//! Configs of transformers that are drawn, against the closed forms of their parameters and multiply-accumulates.
//!
//! The forms are written down from the papers' descriptions and share nothing with the importer. They count every pair of tokens of a
//! sequence in attention, as a graph does; what causality leaves out is the chip's to save.

use rand::prelude::*;
use rand_pcg::Pcg64Mcg;

use super::options;
use crate::import::{Options, import};
use crate::model::Phase;
use rdusim_graph::workload;

/// Configs that are drawn.
const DRAWN: u64 = 100;

/// A decoder: the sizes that its config gives.
#[derive(Debug)]
struct Decoder {
    family: &'static str,
    hidden: u64,
    layers: u64,
    heads: u64,
    kv_heads: u64,
    /// Width of a head.
    head: u64,
    feed_forward: u64,
    vocabulary: u64,
    positions: u64,
    is_tied: bool,
}

impl Decoder {
    fn drawn(rng: &mut Pcg64Mcg) -> Self {
        let family = *["gpt2", "llama", "mistral", "qwen2", "qwen3"].choose(rng).expect("a family");
        let is_gpt = family == "gpt2";
        let kv_heads = 1 << rng.random_range(0..4u32);
        let heads = kv_heads * if is_gpt { 1 } else { rng.random_range(1..5) };
        let head = 32 * rng.random_range(1..5u64);
        // These families say the width of a head; others divide the hidden width.
        let says_head = matches!(family, "mistral" | "qwen3");
        let hidden = if says_head { 64 * rng.random_range(2..33u64) } else { heads * head };
        Self {
            family,
            hidden,
            layers: rng.random_range(1..41),
            heads,
            kv_heads,
            head,
            feed_forward: 64 * rng.random_range(2..129u64),
            vocabulary: 64 * rng.random_range(2..1001u64),
            positions: 1024,
            is_tied: is_gpt || rng.random_range(0..2) == 0,
        }
    }

    fn config(&self) -> String {
        let Self { family, hidden, layers, heads, kv_heads, head, feed_forward, vocabulary, positions, is_tied } = self;
        if *family == "gpt2" {
            return format!(
                r#"{{"model_type": "gpt2", "n_embd": {hidden}, "n_layer": {layers}, "n_head": {heads}, "n_inner": {feed_forward},
                    "n_positions": {positions}, "vocab_size": {vocabulary}}}"#
            );
        }
        let width = match *family {
            "mistral" | "qwen3" => format!(r#""head_dim": {head},"#),
            _ => String::new(),
        };
        format!(
            r#"{{"model_type": "{family}", "hidden_size": {hidden}, "num_hidden_layers": {layers}, {width}
                "num_attention_heads": {heads}, "num_key_value_heads": {kv_heads}, "intermediate_size": {feed_forward},
                "max_position_embeddings": {positions}, "vocab_size": {vocabulary}, "tie_word_embeddings": {is_tied}}}"#
        )
    }

    /// Elements of the matrices of a layer.
    fn matrices(&self) -> u64 {
        let (all, kept) = (self.heads * self.head, self.kv_heads * self.head);
        let of_feed = if self.family == "gpt2" { 2 } else { 3 };
        self.hidden * (2 * all + 2 * kept) + of_feed * self.hidden * self.feed_forward
    }

    fn parameters(&self) -> u64 {
        let (all, kept) = (self.heads * self.head, self.kv_heads * self.head);
        let tables = self.vocabulary * self.hidden * if self.is_tied { 1 } else { 2 };
        let of_layer = match self.family {
            // Norms have a gain and a bias, and so has every product a bias.
            "gpt2" => 4 * self.hidden + 3 * all + self.hidden + self.feed_forward + self.hidden,
            "qwen2" => 2 * self.hidden + all + 2 * kept,
            // Norms of heads have one gain for all heads of queries and one for those of keys; a graph holds it for every head.
            "qwen3" => 2 * self.hidden + all + kept,
            _ => 2 * self.hidden,
        };
        let ends = if self.family == "gpt2" { self.positions * self.hidden + 2 * self.hidden } else { self.hidden };
        tables + self.layers * (self.matrices() + of_layer) + ends
    }

    /// Multiply-accumulates of so many tokens, each of which meets so many in every layer; `sampled` of them have logits.
    fn macs(&self, tokens: u64, met: u64, sampled: u64) -> u64 {
        let attention = 2 * tokens * met * self.heads * self.head;
        sampled * self.vocabulary * self.hidden + self.layers * (tokens * self.matrices() + attention)
    }
}

#[test]
fn drawn_configs_have_the_parameters_and_macs_of_the_closed_form() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    for _ in 0..DRAWN {
        let of = Decoder::drawn(&mut rng);
        std::fs::write(&path, of.config()).unwrap();
        let (batch, length) = (rng.random_range(1..9u64), 8 * rng.random_range(1..65u64));
        for phase in [Phase::Forward, Phase::Prefill, Phase::Decode] {
            let name = if phase == Phase::Decode { "context" } else { "sequence" };
            let dims = vec![("batch".to_owned(), batch), (name.to_owned(), length)];
            let imported =
                import(&path, &Options { dims, phase, ..options() }).unwrap_or_else(|error| panic!("{error} {of:?}"));
            let workload = workload::parse("config.toml", imported.graph.text(), &[], 0).unwrap();
            let macs: u64 =
                workload.operators.iter_enumerated().map(|(op, one)| workload.dense_macs(op) * one.repeat).sum();
            let expected = match phase {
                Phase::Decode => of.macs(batch, length, batch),
                // The last token of a prompt is answered.
                Phase::Prefill => of.macs(batch * length, length, batch),
                _ => of.macs(batch * length, length, batch * length),
            };
            assert_eq!(workload.parameters(), of.parameters(), "{of:?} {phase:?}");
            assert_eq!(macs, expected, "{of:?} {phase:?}, {batch} sequences of {length}");
        }
    }
}
