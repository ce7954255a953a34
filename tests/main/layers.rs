//! Models by the structure of their configs: parameters, caches, FLOP of a token, worked out by hand; keys that are not known.

use proptest::prelude::*;
use rdusim::import::{Options, checkpoint, import};
use rdusim::model::{Phase, Stack};
use rdusim::pod::{Parallel, Service};
use rdusim::workload::{self, TensorRole, Workload};
use serde_json::{Value, json};

/// What a config says: the model for many chips, and the graph of a token with a context.
struct Read {
    service: Service,
    stack: Stack,
    decode: Workload,
}

/// Tokens of the context of a graph.
const CONTEXT: u64 = 96;

fn read(config: &Value) -> Result<Read, String> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("config.json");
    std::fs::write(&path, config.to_string()).expect("a file");
    // With the advice, which says what was understood.
    let found = checkpoint(&path, true, false).map_err(|error| format!("{error:?}"))?;
    let stack = found.stack.expect("layers").as_ref().clone();
    let mut service = Service::new("model", found.architecture, Parallel::default());
    service.stack = Some(std::sync::Arc::new(stack.clone()));
    let dims = vec![("context".to_owned(), CONTEXT)];
    let options = Options { phase: Phase::Decode, dims, ..Options::default() };
    let imported = import(&path, &options).map_err(|error| error.to_string())?;
    let decode = workload::parse("decode", imported.graph.text(), &[], 0).map_err(|error| error.to_string())?;
    for phase in [Phase::Forward, Phase::Prefill] {
        let options = Options { phase, dims: vec![("sequence".to_owned(), 128)], ..Options::default() };
        let imported = import(&path, &options).map_err(|error| error.to_string())?;
        let forward = workload::parse("forward", imported.graph.text(), &[], 0).map_err(|error| error.to_string())?;
        assert_eq!(forward.parameters(), stack.parameters(), "{config}");
    }
    Ok(Read { service, stack, decode })
}

/// Elements of the caches of a graph, states and inputs of convolutions included.
fn cached(workload: &Workload) -> u64 {
    let held = workload.held_at_once();
    let tensors = workload.tensors.iter().zip(held);
    let caches = tensors.filter(|(t, _)| {
        t.role == TensorRole::Input && t.view.is_none() && t.name.ends_with("_cache") && !t.name.contains("ids_")
    });
    caches.map(|(t, times)| t.rows * t.columns * times).sum()
}

/// Multiplications of the products of a graph.
fn products(workload: &Workload) -> u64 {
    let all = workload.operators.ids();
    all.map(|at| workload.dense_macs(at) * workload.operators[at].repeat).sum()
}

/// A family, and what is worked out by hand of a model of it.
struct Known {
    config: Value,
    /// Tables, layers, norms.
    parameters: u64,
    /// Bytes that a user with [`CONTEXT`] tokens holds.
    cache_bytes: u64,
    /// Multiplications of a token with that context, logits included.
    products: u64,
    /// Of these, those of states, which are no products of a graph.
    of_states: u64,
    /// Bytes of all weights on one chip.
    weight_bytes: u64,
}

fn check(name: &str, known: &Known) {
    let read = read(&known.config).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(read.stack.parameters(), known.parameters, "{name}: parameters");
    assert_eq!(read.decode.parameters(), known.parameters, "{name}: parameters of the graph");
    assert_eq!(read.service.cache_bytes(0, CONTEXT), known.cache_bytes, "{name}: caches");
    assert_eq!(read.service.weight_bytes(0), known.weight_bytes, "{name}: weights");
    assert_eq!(read.service.flops(1, CONTEXT) as u64, 2 * known.products, "{name}: FLOP");
    assert_eq!(cached(&read.decode), known.cache_bytes / 2, "{name}: caches of the graph");
    assert_eq!(products(&read.decode), known.products - known.of_states, "{name}: products of the graph");
}

/// 64 wide, two layers, a table of 96 rows and an output of its own.
fn base(family: &str) -> Value {
    json!({"model_type": family, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
           "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "vocab_size": 96,
           "max_position_embeddings": 4096, "tie_word_embeddings": false})
}

fn with(base: &Value, changes: &Value) -> Value {
    let mut map = base.as_object().expect("an object").clone();
    for (key, value) in changes.as_object().expect("an object") {
        map.insert(key.clone(), value.clone());
    }
    Value::Object(map)
}

/// Two tables of 96 x 64 and the last norm.
const ENDS: u64 = 2 * 96 * 64 + 64;

/// Queries, keys, values and outputs of four heads of 16 with two of keys.
const HEADS: u64 = 64 * 64 + 2 * 64 * 32 + 64 * 64;

/// A gated block 128 wide.
const BLOCK: u64 = 3 * 64 * 128;

/// Scores and mix of four heads of 16 over the context.
const MET: u64 = CONTEXT * 2 * 64;

const LOGITS: u64 = 96 * 64;

/// A model all of whose weights are of two bytes.
fn plain(config: Value, parameters: u64, cache_elements: u64, products: u64) -> Known {
    let (cache_bytes, weight_bytes) = (2 * cache_elements, 2 * parameters);
    Known { config, parameters, cache_bytes, products, of_states: 0, weight_bytes }
}

#[test]
fn grouped_attention_is_counted_by_hand() {
    let layers = 2 * (HEADS + BLOCK);
    let known = plain(base("llama"), ENDS + layers + 2 * 128, 2 * CONTEXT * 64, layers + 2 * MET + LOGITS);
    check("llama", &known);
    // Norms of queries and keys; a family that nobody has heard of, whose keys say so.
    let config = with(&base("of_tomorrow"), &json!({"use_qk_norm": true}));
    let known = plain(config, ENDS + layers + 2 * (128 + 64 + 32), 2 * CONTEXT * 64, layers + 2 * MET + LOGITS);
    check("of tomorrow", &known);
    // Biases of queries, keys and values.
    let known = plain(base("qwen2"), ENDS + layers + 2 * (128 + 64 + 64), 2 * CONTEXT * 64, layers + 2 * MET + LOGITS);
    check("qwen2", &known);
}

#[test]
fn windows_bound_caches_and_products() {
    // One layer sees 32 tokens, one all; heads of sliding layers are of two sizes in the second.
    let config = with(
        &base("gpt_oss"),
        &json!({"sliding_window": 32, "num_local_experts": 8, "num_experts_per_tok": 2,
        "layer_types": ["sliding_attention", "full_attention"], "attention_bias": true}),
    );
    let router = 64 * 8;
    let layers = 2 * (HEADS + router + 8 * BLOCK);
    // Biases of 64 queries, 32 keys, 32 values, 64 outputs and 8 experts; a sink in each of 4 heads.
    let parameters = ENDS + layers + 2 * (128 + 64 + 32 + 32 + 64 + 8 + 4);
    let met = MET + 32 * 2 * 64;
    let products = 2 * (HEADS + router + 2 * BLOCK) + met + LOGITS;
    check("gpt_oss", &plain(config, parameters, (CONTEXT + 32) * 64, products));
    let config = with(
        &base("mimo_v2_flash"),
        &json!({"hybrid_layer_pattern": [1, 0], "sliding_window_size": 32,
        "swa_num_key_value_heads": 4, "swa_head_dim": 16, "swa_num_attention_heads": 4, "v_head_dim": 16}),
    );
    let layers = HEADS + 2 * 64 * 32 + HEADS + 2 * BLOCK;
    let elements = CONTEXT * 64 + 32 * 128;
    check("mimo_v2", &plain(config, ENDS + layers + 2 * 128, elements, layers + met + LOGITS));
    // Chunks of 32 in three of four layers, experts in every second, a shared one beside them.
    let config = with(
        &base("llama4_text"),
        &json!({"num_hidden_layers": 4, "attention_chunk_size": 32,
        "interleave_moe_layer_step": 2, "intermediate_size_mlp": 256, "num_local_experts": 4, "num_experts_per_tok": 1}),
    );
    let layers = 4 * HEADS + 2 * 2 * BLOCK + 2 * (64 * 4 + 5 * BLOCK);
    let products = 4 * HEADS + 2 * 2 * BLOCK + 2 * (64 * 4 + 2 * BLOCK) + MET + 3 * 32 * 2 * 64 + LOGITS;
    check("llama4", &plain(config, ENDS + layers + 4 * 128, (CONTEXT + 3 * 32) * 64, products));
}

#[test]
fn keys_that_are_values_are_kept_once() {
    // A window with four heads of 16; all tokens with heads of 32 and one of keys, which are values.
    let config = with(
        &base("gemma4_text"),
        &json!({"layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 32, "global_head_dim": 32, "num_global_key_value_heads": 1, "attention_k_eq_v": true,
        "hidden_activation": "gelu_pytorch_tanh", "enable_moe_block": true, "num_experts": 8, "top_k_experts": 2,
        "moe_intermediate_size": 32, "tie_word_embeddings": true}),
    );
    let wide = 64 * 128 + 64 * 32 + 128 * 64;
    let fed = BLOCK + 64 * 8;
    let layers = HEADS + wide + 2 * (fed + 8 * 3 * 64 * 32);
    let norms = 2 * 4 * 64 + (64 + 32) + (128 + 32);
    let products = HEADS + wide + 2 * (fed + 2 * 3 * 64 * 32) + 32 * 2 * 64 + CONTEXT * 2 * 128 + LOGITS;
    let parameters = 96 * 64 + 64 + layers + norms;
    check("gemma4", &plain(config, parameters, 32 * 64 + CONTEXT * 32, products));
}

/// Latent attention: queries by 24, keys and values by 32, heads of 16 and 8, values of 16.
fn latent(family: &str) -> Value {
    with(
        &base(family),
        &json!({"q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
        "v_head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "n_shared_experts": 1, "first_k_dense_replace": 1}),
    )
}

#[test]
fn latent_attention_is_counted_by_hand() {
    let attention = 64 * (32 + 8) + 64 * 24 + 24 * 4 * 24 + 2 * 32 * 64 + 64 * 64;
    let expert = 3 * 64 * 32;
    let layers = 2 * attention + BLOCK + 64 * 8 + 9 * expert;
    let norms = 2 * (128 + 32 + 24);
    // Scores of 32 + 8, mix of 32, of each of four heads.
    let products = 2 * attention + BLOCK + 64 * 8 + 3 * expert + 2 * CONTEXT * 4 * (32 + 8 + 32) + LOGITS;
    check("deepseek_v3", &plain(latent("deepseek_v3"), ENDS + layers + norms, 2 * CONTEXT * 40, products));
    // An indexer of two heads of 8 chooses 16 tokens; its keys are kept too.
    let config = with(&latent("glm_moe_dsa"), &json!({"index_n_heads": 2, "index_head_dim": 8, "index_topk": 16}));
    let indexer = 24 * 16 + 64 * 8 + 64 * 2;
    let products =
        2 * (attention + indexer) + BLOCK + 64 * 8 + 3 * expert + LOGITS + 2 * (16 * 4 * (32 + 8 + 32) + CONTEXT * 16);
    let parameters = ENDS + layers + norms + 2 * (indexer + 16);
    check("glm_moe_dsa", &plain(config, parameters, 2 * CONTEXT * 48, products));
}

#[test]
fn compressed_keys_are_counted_by_hand() {
    let config = with(
        &base("deepseek_v4"),
        &json!({"num_key_value_heads": 1, "q_lora_rank": 24, "o_groups": 2,
        "o_lora_rank": 8, "sliding_window": 32, "compress_ratios": [0, 4], "index_n_heads": 2, "index_head_dim": 8,
        "index_topk": 16, "hc_mult": 2, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "n_shared_experts": 1}),
    );
    let attention = 64 * 24 + 24 * 64 + 64 * 16 + 2 * 32 * 8 + 16 * 64;
    // Compressed keys of two halves of 16, index keys of two halves of 8, each with weights.
    let compressed = 2 * 64 * 32 + 2 * 64 * 16 + 24 * 16 + 64 * 2;
    let expert = 3 * 64 * 32;
    // Two streams: 2 x (2 + 2) weights for each of two blocks from 128 columns; 2 at the end.
    let streams = 2 * 2 * 128 * 8;
    let fed = 64 * 8 + 9 * expert;
    let vectors = 2 * (128 + 24 + 16) + (32 + 16) + (16 + 8);
    let parameters = ENDS + 2 * (attention + fed) + compressed + vectors + streams + 2 * 128;
    let met = 2 * 32 * 2 * 64 + 16 * 2 * 64 + 24 * 16;
    let products = 2 * (attention + 64 * 8 + 3 * expert) + compressed + streams + met + LOGITS;
    let known = plain(config, parameters, 2 * 32 * 16 + 24 * 16 + 24 * 8, products);
    let read = read(&known.config).expect("a model");
    assert_eq!(read.stack.parameters(), known.parameters);
    assert_eq!(read.service.cache_bytes(0, CONTEXT), known.cache_bytes);
    assert_eq!(read.service.flops(1, CONTEXT) as u64, 2 * known.products);
    assert_eq!(2 * cached(&read.decode), known.cache_bytes);
}

#[test]
fn states_are_counted_by_hand() {
    // A delta rule in three of four layers: two heads of keys, four of values, 16 wide, taps of 4; gates behind attention.
    let config = with(
        &base("qwen3_5_text"),
        &json!({"num_hidden_layers": 4, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
        "full_attention_interval": 4}),
    );
    let delta = 64 * (32 + 32 + 64) + 2 * 64 * 4 + 64 * 64 + 64 * 64;
    let vectors = 4 * 128 + 4 + 4 + 64;
    let gated = HEADS + 64 * 64;
    let layers = 3 * delta + gated + 4 * BLOCK;
    let parameters = ENDS + layers + 3 * vectors + 4 * 128 + 64 + 32;
    let state = 64 * 16 + 3 * 128;
    let of_states = 3 * 3 * 64 * 16;
    let products = layers + of_states + MET + LOGITS;
    check("qwen3_5", &Known { of_states, ..plain(config, parameters, CONTEXT * 64 + 3 * state, products) });
    // The same with factors of columns: Kimi delta attention, in the first layer.
    let config = with(
        &base("kimi_linear"),
        &json!({"linear_attn_config": {"kda_layers": [1], "full_attn_layers": [2],
        "num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4}}),
    );
    let delta = 3 * 64 * 64 + 64 * 4 + 2 * (64 * 16 + 16 * 64) + 64 * 64;
    // Rates of columns, and their biases, are as long as the keys.
    let vectors = 4 * 192 + 64 + 64 + 64;
    let layers = delta + HEADS + 2 * BLOCK;
    let parameters = ENDS + layers + vectors + 2 * 128;
    let read = read(&config).expect("a model");
    assert_eq!(read.stack.parameters(), parameters);
    assert_eq!(read.service.cache_bytes(0, CONTEXT), 2 * (CONTEXT * 64 + 64 * 16 + 3 * 192));
    // Lightning attention in the first layer: a state of 16 x 16 for each of four heads.
    let config = with(&base("minimax_m1"), &json!({"attn_type_list": [0, 1]}));
    let lightning = 5 * 64 * 64;
    let layers = lightning + HEADS + 2 * BLOCK;
    let parameters = ENDS + layers + 64 + 2 * 128;
    let of_states = 2 * 4 * 16 * 16;
    let products = layers + of_states + MET + LOGITS;
    check("minimax", &Known { of_states, ..plain(config, parameters, CONTEXT * 64 + 4 * 16 * 16, products) });
    // A recurrence, experts behind a narrow width, attention: blocks alone in their layers.
    let config = with(
        &base("nemotron_h"),
        &json!({"num_hidden_layers": 3, "hybrid_override_pattern": "ME*",
        "mamba_num_heads": 4, "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 8, "conv_kernel": 4,
        "chunk_size": 32, "mlp_hidden_act": "relu2", "n_routed_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 48, "n_shared_experts": 1,
        "moe_latent_size": 24}),
    );
    let mamba = 64 * (2 * 64 + 2 * 16 + 4) + 64 * 64;
    let vectors = (64 + 32) * 5 + 2 * 4 + 2 * 64;
    let expert = 2 * 24 * 32;
    let fed = 64 * 8 + 2 * 64 * 24 + 2 * 64 * 48;
    let parameters = ENDS + mamba + vectors + fed + 8 * expert + HEADS + 3 * 64;
    let of_states = 2 * 64 * 8;
    let products = mamba + of_states + fed + 2 * expert + HEADS + MET + LOGITS;
    let elements = CONTEXT * 64 + 64 * 8 + 3 * 96;
    check("nemotron_h", &Known { of_states, ..plain(config, parameters, elements, products) });
}

#[test]
fn blocks_of_each_layer_are_read() {
    let heads = |each: u64| json!({"no_op": false, "n_heads_in_group": each, "replace_with_linear": false});
    let config = with(
        &base("nemotron-nas"),
        &json!({"num_hidden_layers": 3, "block_configs": [
        {"attention": heads(4), "ffn": {"ffn_mult": 3.0, "no_op": false}},
        {"attention": {"no_op": true}, "ffn": {"intermediate_size": 32}},
        {"attention": {"replace_with_linear": true}, "ffn": {"no_op": true}}]}),
    );
    // 2/3 x 3 x 64 in whole 256s; one head of keys.
    let layers = 2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 256 + 3 * 64 * 32 + 64 * 64;
    let known = plain(config, ENDS + layers + 4 * 64, CONTEXT * 32, layers + MET + LOGITS);
    check("block_configs", &known);
}

#[test]
fn formats_of_a_checkpoint_make_the_bytes() {
    let weights = |config: Value| read(&config).expect("a model").service.weight_bytes(0);
    let plain_bytes = |elements: u64| 2 * elements;
    let norms = 2 * 128;
    // fp8 in blocks of 128 x 128: of a matrix of 64 x 128 one scale of four bytes.
    let blocked = json!({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128],
        "modules_to_not_convert": ["lm_head"]}});
    let layer = HEADS + BLOCK + 7 * 4;
    assert_eq!(weights(with(&base("llama"), &blocked)), plain_bytes(ENDS + norms) + 2 * layer);
    // Experts in MXFP4, 17 bits for four elements; all else as it is.
    let experts = json!({"num_local_experts": 8, "num_experts_per_tok": 2, "quantization_config": {"quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}});
    let expected = plain_bytes(ENDS + norms + 2 * (HEADS + 64 * 8)) + 2 * 8 * BLOCK * 17 / 32;
    assert_eq!(weights(with(&base("mixtral"), &experts)), expected);
    // NVFP4 of all but attention of the first layer: 9 bits for two elements, and four bytes a matrix; fp8 of keys and values.
    let nvfp4 = json!({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4",
        "ignore": ["lm_head", "model.layers.0.self_attn*"], "config_groups": {}, "kv_cache_scheme": {"num_bits": 8}}});
    let packed = |elements: u64, matrices: u64| elements * 9 / 16 + 4 * matrices;
    let expected = plain_bytes(ENDS + norms + HEADS) + packed(HEADS, 4) + 2 * packed(BLOCK, 3);
    assert_eq!(weights(with(&base("llama"), &nvfp4)), expected);
}

#[test]
fn a_file_of_formats_beside_the_config_is_read() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("Some-Model-NVFP4.json");
    std::fs::write(&path, base("llama").to_string()).expect("a file");
    let said = |part: &str| {
        let found = checkpoint(&path, true, false).expect("a model");
        found.notes.iter().filter(|note| note.contains(part)).count()
    };
    assert_eq!(said("its name says NVFP4"), 1);
    let formats = json!({"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}});
    std::fs::write(directory.path().join("hf_quant_config.json"), formats.to_string()).expect("a file");
    assert_eq!(said("its name says NVFP4"), 0);
    let stack = checkpoint(&path, true, false).expect("a model").stack.expect("layers");
    assert_eq!(stack.kinds[0].format_of("w_up").map(|format| format.format.as_str()), Some("nvfp4"));
}

#[test]
fn numbers_that_only_python_writes_are_read() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("config.json");
    let text = base("llama").to_string();
    let more = format!(
        "{{\"time_limit\": [0.0, Infinity, -Infinity, NaN], \"about\": \"NaN and \\\" Infinity\", {}",
        &text[1..]
    );
    std::fs::write(&path, more).expect("a file");
    assert!(checkpoint(&path, true, false).is_ok());
}

/// Names of shapes that no model is known to have.
fn unknown_key() -> impl Strategy<Value = String> {
    let first = prop::sample::select(vec!["warp", "orbit", "lattice", "spiral", "quark", "ether"]);
    let last =
        prop::sample::select(vec!["size", "dim", "heads", "rank", "layers", "experts", "width", "blocks", "groups"]);
    (first, last, any::<bool>()).prop_map(|(first, last, counts)| {
        if counts { format!("num_{first}_{last}") } else { format!("{first}_{last}") }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_key_that_may_change_shapes_is_refused_by_its_name(key in unknown_key(), value in 1_u64..4096) {
        let error = read(&with(&base("llama"), &json!({key.clone(): value}))).err().expect("an unknown key");
        prop_assert!(error.contains(&format!("`{key}` is {value}")), "{}", error);
        prop_assert!(error.contains("2 of attention with 4 heads of 16, 2 of keys and a feed-forward block 128 wide"), "{}", error);
    }

    #[test]
    fn a_key_that_changes_no_shape_never_matters(
        key in prop::sample::select(vec!["attention_dropout", "warp_token_id", "rope_warp", "initializer_gain", "use_warp",
            "warp_dtype", "tokenizer_size", "warp_loss_coef", "warp_temperature", "min_warp", "warp_name", "layer_norm_warp_eps"]),
        value in prop_oneof![Just(json!(0.5)), Just(json!(7)), Just(json!(true)), Just(json!("word")), Just(json!(null)), Just(json!([1, 2]))],
    ) {
        let read = read(&with(&base("llama"), &json!({key: value}))).map_err(TestCaseError::fail)?;
        prop_assert_eq!(read.stack.parameters(), ENDS + 2 * (HEADS + BLOCK) + 2 * 128);
    }
}
