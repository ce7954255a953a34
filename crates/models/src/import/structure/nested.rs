//! The text model in a config of several models.

use serde_json::{Map, Value};

/// Names of the width of the residual stream.
pub(super) const HIDDEN: [&str; 5] = ["hidden_size", "n_embd", "n_embed", "d_model", "dim"];

/// Keys under which the text model stands, outermost first.
const TEXT: [&str; 6] =
    ["thinker_config", "text_config", "llm_config", "language_config", "text_model_config", "decoder_config"];

/// Keys of the outer config that go for the text model too, where it does not say them.
const INHERITED: [&str; 6] =
    ["quantization_config", "_name_or_path", "tie_word_embeddings", "compression_config", "torch_dtype", "dtype"];

/// Widths and layers of an encoder, for the size of what is left out.
fn elements_of(config: &Map<String, Value>) -> Option<u64> {
    let count = |names: &[&str]| names.iter().find_map(|name| config.get(*name).and_then(Value::as_u64));
    let hidden = count(&["hidden_size", "embed_dim", "d_model", "width", "vt_hidden_size"])?;
    let layers = count(&["num_hidden_layers", "depth", "layers", "encoder_layers", "vt_num_hidden_layers"])?;
    let inner = count(&["intermediate_size", "mlp_dim", "encoder_ffn_dim", "vt_intermediate_size"])
        .unwrap_or(hidden.checked_mul(4)?);
    let layer = hidden.checked_mul(4)?.checked_mul(hidden)?.checked_add(hidden.checked_mul(2)?.checked_mul(inner)?)?;
    layers.checked_mul(layer)
}

/// The fields of the text model, where its dimensions lie under a key of their own; `notes` hear of what is left out.
pub(in crate::import) fn text_of(map: Map<String, Value>, notes: &mut Vec<String>) -> Map<String, Value> {
    let mut map = map;
    loop {
        if HIDDEN.iter().any(|name| map.contains_key(*name)) {
            return map;
        }
        let Some(key) = TEXT.into_iter().find(|key| map.get(*key).is_some_and(Value::is_object)) else { return map };
        let Some(Value::Object(mut inner)) = map.get(key).cloned() else { return map };
        let is_unnamed = !inner.contains_key("model_type") && !inner.contains_key("architectures");
        let named = ["model_type", "architectures"].into_iter().filter(|_| is_unnamed);
        for name in INHERITED.into_iter().chain(named) {
            if let Some(value) = map.get(name).filter(|_| !inner.contains_key(name)) {
                inner.insert(name.to_owned(), value.clone());
            }
        }
        let others = map.iter().filter(|(name, value)| name.ends_with("_config") && value.is_object());
        let others = others.filter(|(name, _)| *name != key && !INHERITED.contains(&name.as_str()));
        let others: Vec<String> = others
            .map(|(name, value)| match value.as_object().and_then(elements_of) {
                Some(elements) => format!("`{name}` (about {:.2} G parameters)", elements as f64 / 1e9),
                None => format!("`{name}`"),
            })
            .collect();
        let left_out = if others.is_empty() {
            String::new()
        } else {
            format!("; what {} describes is not modelled", others.join(" and "))
        };
        notes.push(format!("the model is that of `{key}`{left_out}"));
        map = inner;
    }
}
