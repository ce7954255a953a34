//! Published checkpoints by their `config.json`: fields that are left out, where dimensions lie, and how matrices are stored. Bytes and
//! parameters by hand.

use serde_json::{Value, json};

use rdusim::import::{Options, import};
use rdusim::model::Phase;
use rdusim::workload::{self, TensorRole, Workload};

/// A `config.json` of these fields, imported for decoding.
fn decoded(config: &Value) -> Result<Workload, String> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("config.json");
    std::fs::write(&path, config.to_string()).expect("a file");
    let dims = vec![("batch".to_owned(), 1), ("context".to_owned(), 16)];
    let options = Options { dims, phase: Phase::Decode, ..Options::default() };
    let imported = import(&path, &options).map_err(|error| error.to_string())?;
    workload::parse("config.toml", imported.graph.text(), &[], 0)
        .map_err(|error| format!("{error}\n{}", imported.graph.text()))
}

fn with(base: &Value, changes: &Value) -> Value {
    let mut map = base.as_object().expect("an object").clone();
    for (key, value) in changes.as_object().expect("an object") {
        map.insert(key.clone(), value.clone());
    }
    Value::Object(map)
}

fn without(base: &Value, key: &str) -> Value {
    let mut map = base.as_object().expect("an object").clone();
    map.remove(key).expect("a field to leave out");
    Value::Object(map)
}

/// Two layers of queries and outputs of 256 x 256, keys and values of 256 x 128, three matrices of 256 x 512.
fn llama() -> Value {
    json!({"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
           "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 96, "max_position_embeddings": 64})
}

/// Bytes of the layers' matrices: those of a name, in all layers.
fn stored(workload: &Workload, name: &str) -> u64 {
    let held = workload.held_at_once();
    let of = workload.tensors.iter().zip(held);
    of.filter(|(tensor, _)| {
        (tensor.name == name || tensor.name.ends_with(&format!("_{name}"))) && tensor.view.is_none()
    })
    .map(|(tensor, times)| tensor.stored_bytes() * times)
    .sum()
}

fn says(workload: &Workload, part: &str) -> usize {
    workload.notes.iter().filter(|note| note.contains(part)).count()
}

#[test]
fn a_field_that_is_left_out_has_the_default_of_its_family_or_is_refused() {
    let base = |family: &str, heads: u64, more: &Value| {
        let all = json!({"model_type": family, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": heads,
                         "num_key_value_heads": heads, "intermediate_size": 96, "vocab_size": 100,
                         "max_position_embeddings": 64});
        with(&all, more)
    };
    let width = |workload: &Workload, name: &str| {
        let is_named = |of: &str| of == name || of.ends_with(&format!("_{name}"));
        workload.tensors.iter().find(|tensor| is_named(&tensor.name)).expect(name).columns
    };
    // Widths of the blocks by the classes of Hugging Face Transformers.
    for (family, expected) in [
        ("llama", 11_008),
        ("mistral", 14_336),
        ("qwen2", 22_016),
        ("qwen3", 22_016),
        ("gemma2", 9216),
        ("bert", 3072),
        ("gpt_neox", 24_576),
    ] {
        let own = if family == "bert" { json!({"type_vocab_size": 2}) } else { json!({"head_dim": 16}) };
        let config = base(family, 4, &own);
        let up = |config: &Value| decoded(config).map(|workload| (width(&workload, "w_up"), workload));
        let (given, workload) = up(&config).unwrap_or_else(|error| panic!("{family}: {error}"));
        assert_eq!((given, says(&workload, "is not in the config")), (96, 0), "{family}");
        let (found, workload) = up(&without(&config, "intermediate_size")).expect(family);
        assert_eq!(found, expected, "{family}");
        assert_eq!(says(&workload, &format!("`intermediate_size` is not in the config: {expected}")), 1, "{family}");
    }
    // Heads of keys: 8 of Mistral and Mixtral, 4 of Gemma 2, those of queries of Llama; `null` is as many as of queries.
    let keys = |config: &Value| decoded(config).map(|workload| width(&workload, "w_key") / 16);
    let wide = json!({"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2});
    for (family, heads, expected) in
        [("mistral", 16, 8), ("mixtral", 16, 8), ("gemma2", 8, 4), ("llama", 16, 16), ("qwen2", 64, 32)]
    {
        let config = base(family, heads, &wide);
        assert_eq!(keys(&config), Ok(heads), "{family}");
        assert_eq!(keys(&without(&config, "num_key_value_heads")), Ok(expected), "{family}");
        assert_eq!(keys(&with(&config, &json!({"num_key_value_heads": null}))), Ok(heads), "{family}");
    }
    // Heads of 128 of Qwen3, of 256 of Gemma 2, of the model's width over its heads of Llama.
    for (family, expected) in [("qwen3", 4 * 128), ("gemma2", 4 * 256), ("llama", 64)] {
        let found = decoded(&base(family, 4, &json!({}))).map(|workload| width(&workload, "w_query"));
        assert_eq!(found, Ok(expected), "{family}");
    }
    // Tables of positions: 512 rows of BERT, 1,024 of GPT-2.
    for (family, expected) in [("bert", 512), ("gpt2", 1024)] {
        let found = decoded(&without(&base(family, 4, &json!({})), "max_position_embeddings")).expect(family);
        let tables = found.tensors.iter().filter(|tensor| tensor.name.contains("position"));
        assert_eq!(tables.map(|table| table.rows).max(), Some(expected), "{family}");
    }
    for key in ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"] {
        let error = decoded(&without(&llama(), key)).expect_err(key);
        assert!(error.contains(&format!("`{key}` is missing")), "{error}");
    }
    let deepseek = json!({"model_type": "deepseek_v2", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
        "intermediate_size": 96, "moe_intermediate_size": 32, "n_routed_experts": 4, "n_shared_experts": 1,
        "num_experts_per_tok": 2, "first_k_dense_replace": 1, "q_lora_rank": null, "kv_lora_rank": 32,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "vocab_size": 100});
    let queries =
        |config: &Value| decoded(config).map(|workload| workload.tensors.iter().any(|t| t.name == "w_query_latent"));
    assert_eq!(queries(&deepseek), Ok(false));
    assert_eq!(queries(&without(&deepseek, "q_lora_rank")), Ok(true), "1,536 by default, none if it is null");
    for key in ["num_experts_per_tok", "n_shared_experts", "n_routed_experts"] {
        assert!(decoded(&without(&deepseek, key)).expect_err(key).contains("is missing"), "{key}");
    }
}

#[test]
fn a_model_is_found_by_its_class_and_under_text_config() {
    let parameters = |config: &Value| decoded(config).map(|workload| workload.parameters());
    let known = parameters(&llama()).expect("a model");
    // Two layers of matrices and norms, tables of tokens and outputs, the last norm.
    assert_eq!(known, 2 * (2 * 65_536 + 2 * 32_768 + 3 * 131_072 + 2 * 256) + 2 * 96 * 256 + 256);
    let unnamed = without(&llama(), "model_type");
    let classes = |name: &str| with(&unnamed, &json!({"architectures": [name]}));
    for class in ["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "LlamaModel"] {
        let expected = if class.starts_with("Qwen") { known + 2 * (256 + 2 * 128) } else { known };
        assert_eq!(parameters(&classes(class)), Ok(expected), "{class}");
    }
    assert!(
        parameters(&classes("OtherForCausalLM")).expect_err("no family").contains("`tie_word_embeddings` is missing")
    );
    assert!(parameters(&unnamed).expect_err("no family").contains("`tie_word_embeddings` is missing"));
    // Keys decide, whatever the family is called.
    for name in ["never_heard_of", "llama_next"] {
        let named = with(&unnamed, &json!({"model_type": name, "tie_word_embeddings": false}));
        assert_eq!(parameters(&named), Ok(known), "{name}");
    }
    let outer = json!({"model_type": "llava", "text_config": llama(), "vision_config": {"hidden_size": 64}});
    let workload = decoded(&outer).expect("the text model");
    assert_eq!((workload.parameters(), says(&workload, "`vision_config`")), (known, 1));
    let inside = json!({"model_type": "llama", "text_config": unnamed});
    assert_eq!(parameters(&inside), Ok(known));
    let encoder = with(&llama(), &json!({"model_type": "t5", "is_encoder_decoder": true}));
    assert!(parameters(&encoder).expect_err("a part is missing").contains("`is_encoder_decoder` is true"));
}

#[test]
fn a_key_that_is_given_twice_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("config.json");
    let text = llama().to_string().replace("\"hidden_size\":256", "\"hidden_size\":256,\"hidden_size\":128");
    std::fs::write(&path, text).expect("a file");
    let error = import(&path, &Options::default()).expect_err("two widths").to_string();
    assert!(error.contains("\"hidden_size\" is given twice"), "{error}");
}

/// Bytes of a matrix in integers with a scale of two bytes for each group of a column, and a zero point if it has them.
fn packed(rows: u64, columns: u64, bits: u64, group: u64, zero: bool) -> u64 {
    let scales = rows.div_ceil(group) * columns;
    (rows * columns * bits / 8) + 2 * scales + if zero { scales * bits / 8 } else { 0 }
}

#[test]
fn matrices_are_stored_as_the_rules_of_the_checkpoint_say() {
    let quantised = |scheme: Value| decoded(&with(&llama(), &json!({"quantization_config": scheme}))).expect("a model");
    let gptq = |more: Value| with(&json!({"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": true}), &more);
    // GPTQ: patterns from the start of a module's name; attention as it is, `down_proj` of eight bits.
    let workload =
        quantised(gptq(json!({"dynamic": {"-:.*self_attn.*": {}, "+:.*down.*": {"bits": 8, "group_size": 128}}})));
    let bytes = |workload: &Workload| ["w_query", "w_key", "w_gate", "w_down"].map(|name| stored(workload, name));
    let plain = [65_536, 32_768].map(|elements| 2 * 2 * elements);
    let [up, down] = [2 * packed(256, 512, 4, 64, false), 2 * packed(512, 256, 8, 128, false)];
    assert_eq!(bytes(&workload), [plain[0], plain[1], up, down]);
    // A rule for one layer makes it a kind of its own: one layer as it is, one of four bits.
    let workload = quantised(gptq(json!({"dynamic": {r"-:model\.layers\.0\.mlp\.down_proj": {}}})));
    assert_eq!(bytes(&workload)[3], 2 * 131_072 + packed(512, 256, 4, 64, false));
    let workload = quantised(gptq(json!({"dynamic": {"-:(?!x).*": {}}})));
    assert_eq!((bytes(&workload)[2], says(&workload, "is not applied")), (2 * 2 * 131_072, 1));
    // Zero points, of as many bits as an element, where a scheme has them.
    let query = |scheme: Value| stored(&quantised(scheme), "w_query");
    let [with_zeros, without_zeros] = [true, false].map(|zero| 2 * packed(256, 256, 4, 64, zero));
    assert_eq!(query(gptq(json!({}))), without_zeros);
    assert_eq!(query(gptq(json!({"sym": false}))), with_zeros);
    let awq = |more: Value| with(&json!({"quant_method": "awq", "bits": 4, "group_size": 64}), &more);
    assert_eq!(query(awq(json!({}))), with_zeros);
    assert_eq!(query(awq(json!({"zero_point": false}))), without_zeros);
    let left_out = quantised(awq(json!({"modules_to_not_convert": ["mlp"]})));
    assert_eq!([stored(&left_out, "w_query"), stored(&left_out, "w_down")], [with_zeros, 2 * 2 * 131_072]);
    let weights =
        |more: Value| with(&json!({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 64}), &more);
    let groups = |more: Value| with(&json!({"quant_method": "compressed-tensors", "ignore": ["lm_head"]}), &more);
    let one = |symmetric: bool| {
        groups(
            json!({"config_groups": {"a": {"targets": ["Linear"], "weights": weights(json!({"symmetric": symmetric}))}}}),
        )
    };
    assert_eq!([query(one(true)), query(one(false))], [without_zeros, with_zeros]);
    // Two groups, and modules that are ignored by a pattern.
    let several = quantised(groups(json!({"ignore": ["lm_head", "re:.*q_proj$"], "config_groups": {
        "a": {"targets": ["re:.*down_proj"], "weights": weights(json!({"num_bits": 8, "group_size": 128}))},
        "b": {"targets": ["Linear"], "weights": weights(json!({}))}}})));
    assert_eq!(bytes(&several), [plain[0], 2 * packed(256, 128, 4, 64, false), up, down]);
    // Two of four weights: stored whole, as a note says.
    let sparse = quantised(with(&one(true), &json!({"format": "marlin-24"})));
    assert_eq!((stored(&sparse, "w_query"), says(&sparse, "two of four weights")), (without_zeros, 1));
}

#[test]
fn modules_that_a_checkpoint_leaves_out_multiply_in_the_type_of_the_model() {
    let scheme = json!({"quant_method": "fp8", "activation_scheme": "dynamic", "ignored_layers": ["self_attn"]});
    let workload = decoded(&with(&llama(), &json!({"quantization_config": scheme}))).expect("a model");
    let dtype = |name: &str| {
        let of = workload.tensors.iter().find(|tensor| tensor.name == name && tensor.role == TensorRole::Weight);
        of.expect(name).dtype.to_string()
    };
    assert_eq!(["w_query", "w_project", "w_up"].map(dtype), ["bf16", "bf16", "fp8_e4m3"]);
}
