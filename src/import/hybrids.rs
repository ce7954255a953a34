//! Families with Mamba-2 layers, alone or among layers of attention, by the fields of their `config.json`.

use serde_json::Value;

use super::families::Fields;
use crate::diagnostics::Diagnostic;
use crate::model::{Activation, Architecture, Extras, HybridLayers, LayerOrder, Mamba, Norm, Position};

/// Most layers of a model.
const MOST_LAYERS: u32 = 1 << 14;

/// What a layer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    Recurrence,
    Attention,
    Feed,
}

/// How many layers are what, and where they stand; of more layers than an order has, the number alone.
fn counted(layers: &[Layer]) -> (HybridLayers, LayerOrder) {
    let count = |kind: Layer| layers.iter().filter(|&&layer| layer == kind).count() as u32;
    let mask = |kind: Layer| {
        let at = layers.iter().take(LayerOrder::MOST as usize).enumerate().filter(|(_, layer)| **layer == kind);
        at.fold(0u128, |mask, (at, _)| mask | 1 << at)
    };
    let counts = HybridLayers {
        recurrent: count(Layer::Recurrence),
        attention: count(Layer::Attention),
        feeds: count(Layer::Feed),
    };
    (counts, LayerOrder { attention: mask(Layer::Attention), feeds: mask(Layer::Feed) })
}

impl Fields {
    /// The architecture of a family with Mamba-2 layers from what all families have.
    pub(super) fn hybrid(
        &self,
        family: &str,
        base: &Architecture,
        notes: &mut Vec<String>,
    ) -> Result<Architecture, Diagnostic> {
        let (layers, order) = counted(&self.layers_of(family, base.layers)?);
        let taken = |names: &[&str], usual: u64| Ok::<_, Diagnostic>(self.any(names)?.unwrap_or(usual));
        let groups = taken(&["mamba_n_groups", "n_groups"], if family == "bamba" { 1 } else { 8 })?;
        let groups = if family == "granitemoehybrid" { taken(&["mamba_n_groups"], 1)? } else { groups };
        let head = match self.map.get("mamba_d_head") {
            Some(Value::String(auto)) if auto == "auto" => None,
            _ => self.any(&["mamba_d_head", "mamba_head_dim"])?,
        };
        let head = if family == "mamba2" { taken(&["head_dim"], 64)? } else { head.unwrap_or(64) };
        let wide = base.hidden.saturating_mul(taken(&["mamba_expand", "expand"], 2)?) / head;
        let names = ["mamba_n_heads", "mamba_num_heads"];
        let heads = if family == "mamba2" { self.any(&["num_heads"])? } else { self.any(&names)? }.unwrap_or(wide);
        let usual_state = if family == "bamba" || family == "granitemoehybrid" { 256 } else { 128 };
        let chunk = taken(&["mamba_chunk_size", "chunk_size"], 256)?;
        if layers.attention > 0 || layers.feeds > 0 {
            notes.push(format!(
                "layers of one kind follow one another: {} with a recurrence, {} feed-forward blocks alone, {} with \
                 attention; the work is that of any order",
                layers.recurrent, layers.feeds, layers.attention
            ));
        }
        let narrow = |name: &str, count: u64| {
            u32::try_from(count).map_err(|_| self.refused(&format!("`{name}` is {count}, too many")))
        };
        let narrower = |name: &str, count: u64| {
            u16::try_from(count).map_err(|_| self.refused(&format!("`{name}` is {count}, too many")))
        };
        let mamba = Mamba {
            layers: layers.recurrent,
            attention: layers.attention,
            feeds: layers.feeds,
            order,
            has_feed: matches!(family, "bamba" | "granitemoehybrid"),
            heads: narrow("mamba_n_heads", heads)?,
            head: narrower("mamba_d_head", head)?,
            state: narrower("mamba_d_state", taken(&["mamba_d_state", "ssm_state_size", "state_size"], usual_state)?)?,
            groups: narrower("mamba_n_groups", groups)?,
            taps: narrower("mamba_d_conv", taken(&["mamba_d_conv", "conv_kernel"], 4)?)?,
            span: narrow("mamba_chunk_size", chunk)?,
        };
        let mut architecture = Architecture {
            kv_heads: self.any(&["num_key_value_heads"])?.unwrap_or(base.heads),
            norm: Norm::Rms,
            activation: Activation::GatedSilu,
            bias: false,
            extras: Extras { mamba: Some(mamba), ..base.extras },
            ..*base
        };
        match family {
            "mamba2" => architecture.extras.head_width = None,
            "granitemoehybrid" => {
                let is_plain = self.map.get("position_embedding_type").and_then(Value::as_str) != Some("rope");
                if is_plain {
                    architecture.position = Position::Alibi;
                }
                if self.map.get("num_local_experts").and_then(Value::as_u64).unwrap_or(0) == 0 {
                    architecture.feed_forward = self.count(&["shared_intermediate_size"])?;
                }
            }
            "nemotron_h" => {
                architecture.activation = Activation::Relu;
                architecture.position = Position::Alibi;
                let width = self.any(&["attention_head_dim", "head_dim"])?;
                architecture.extras.head_width =
                    width.filter(|head| head.saturating_mul(architecture.heads) != architecture.hidden);
                notes.push("the square behind ReLU in feed-forward blocks is not modelled".to_owned());
            }
            _ => {}
        }
        Ok(architecture)
    }

    /// What each layer is.
    fn layers_of(&self, family: &str, all: u64) -> Result<Vec<Layer>, Diagnostic> {
        let all = u32::try_from(all)
            .ok()
            .filter(|&all| all <= MOST_LAYERS)
            .ok_or_else(|| self.refused(&format!("`num_hidden_layers` is {all}, too many")))?;
        let wrong = |name: &str, expected: String| Err(self.refused(&format!("`{name}`: expected {expected}")));
        match family {
            "mamba2" => Ok(vec![Layer::Recurrence; all as usize]),
            "bamba" => {
                let list = self.map.get("attn_layer_indices").and_then(Value::as_array);
                let list: Vec<Option<u64>> =
                    list.map(|list| list.iter().map(Value::as_u64).collect()).unwrap_or_default();
                let mut known: Vec<u64> = list.iter().copied().flatten().filter(|&at| at < u64::from(all)).collect();
                known.sort_unstable();
                known.dedup();
                if known.len() != list.len() {
                    return wrong("attn_layer_indices", format!("different numbers below {all}"));
                }
                let of = |at: u64| if known.binary_search(&at).is_ok() { Layer::Attention } else { Layer::Recurrence };
                Ok((0..u64::from(all)).map(of).collect())
            }
            "granitemoehybrid" => {
                let Some(list) = self.map.get("layer_types").or(self.map.get("layers_block_type")) else {
                    return wrong("layer_types", format!("a list of {all} layers"));
                };
                let kind = |value: &Value| match value.as_str()? {
                    "mamba" => Some(Layer::Recurrence),
                    "attention" => Some(Layer::Attention),
                    _ => None,
                };
                let found: Option<Vec<Layer>> =
                    list.as_array().map(Vec::as_slice).unwrap_or_default().iter().map(kind).collect();
                match found.filter(|list| list.len() == all as usize) {
                    Some(list) => Ok(list),
                    None => wrong("layer_types", format!("{all} times \"mamba\" or \"attention\"")),
                }
            }
            _ => {
                let pattern = self.map.get("hybrid_override_pattern").and_then(Value::as_str).unwrap_or_default();
                let kind = |known: char| match known {
                    'M' => Some(Layer::Recurrence),
                    '*' => Some(Layer::Attention),
                    '-' => Some(Layer::Feed),
                    _ => None,
                };
                let found: Option<Vec<Layer>> = pattern.chars().map(kind).collect();
                match found.filter(|list| list.len() == all as usize) {
                    Some(list) => Ok(list),
                    None => wrong("hybrid_override_pattern", format!("{all} times `M`, `*` or `-`")),
                }
            }
        }
    }
}
