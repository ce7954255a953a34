//! Families with Mamba-2 layers, alone or among layers of attention, by the fields of their `config.json`.

use serde_json::Value;

use super::families::Fields;
use crate::model::{Activation, Architecture, Extras, HybridLayers, LayerOrder, Mamba, Norm, Position};
use rdusim_base::diagnostics::Diagnostic;

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
        let usual = |names: &[&str], notes: &mut Vec<String>| self.count_or_usual(family, names, notes);
        let (heads, head) = self.recurrence_heads(family, base.hidden, notes)?;
        let groups = usual(&["mamba_n_groups", "n_groups"], notes)?;
        let chunk = usual(&["mamba_chunk_size", "chunk_size"], notes)?;
        let state = usual(&["mamba_d_state", "ssm_state_size", "state_size"], notes)?;
        let taps = usual(&["mamba_d_conv", "conv_kernel"], notes)?;
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
            state: narrower("mamba_d_state", state)?,
            groups: narrower("mamba_n_groups", groups)?,
            taps: narrower("mamba_d_conv", taps)?,
            span: narrow("mamba_chunk_size", chunk)?,
        };
        let kv_heads = if layers.attention > 0 && family != "mamba2" {
            self.count_or_usual(family, &["num_key_value_heads"], notes)?
        } else {
            self.any(&["num_key_value_heads"])?.unwrap_or(base.heads)
        };
        let mut architecture = Architecture {
            kv_heads,
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
                if self.map.get("num_local_experts").and_then(Value::as_u64) == Some(0) {
                    architecture.feed_forward = self.count_or_usual(family, &["shared_intermediate_size"], notes)?;
                }
            }
            _ => {}
        }
        Ok(architecture)
    }

    /// Heads of a recurrence, and the width of one: `auto` is what the expanded width leaves for a head.
    fn recurrence_heads(&self, family: &str, hidden: u64, notes: &mut Vec<String>) -> Result<(u64, u64), Diagnostic> {
        let count_names = if family == "mamba2" { &["num_heads"][..] } else { &["mamba_n_heads", "mamba_num_heads"] };
        let (given_heads, given_head) = if family == "mamba2" {
            (self.any(count_names)?, Some(self.count_or_usual(family, &["head_dim"], notes)?))
        } else {
            let is_auto = self.map.get("mamba_d_head").is_none_or(|head| head.as_str() == Some("auto"));
            let head = if is_auto { None } else { self.any(&["mamba_d_head"])? };
            (Some(self.count_or_usual(family, count_names, notes)?), head)
        };
        if let (Some(heads), Some(head)) = (given_heads, given_head) {
            return Ok((heads, head));
        }
        let expand = self.count_or_usual(family, &["mamba_expand", "expand"], notes)?;
        let wide = hidden.saturating_mul(expand);
        let known = given_heads.or(given_head).unwrap_or(1);
        if !wide.is_multiple_of(known) {
            let why = format!("{known} does not divide the expanded width {wide} into heads of a recurrence");
            return Err(self.refused(&why));
        }
        Ok(match given_heads {
            Some(heads) => (heads, wide / heads),
            None => (wide / known, known),
        })
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
            _ => {
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
        }
    }
}
