//! The layers of a model: what mixes tokens in each, and its feed-forward block.

use serde_json::Value;

use super::pattern::Place;
use super::{Reader, families};
use crate::model::{Activation, Feed, FeedBlock, HeadAttention, LayerKind, Mixer, Window};
use rdusim_base::diagnostics::Diagnostic;

impl Reader<'_> {
    /// Every layer, in order.
    pub(super) fn kinds(&mut self) -> Result<Vec<LayerKind>, Diagnostic> {
        if let Some(list) = self.list("block_configs").cloned() {
            return self.block_configs(&list);
        }
        let places = self.places()?;
        let feeds = self.feeds(&places)?;
        let norms = families::norms(self.family);
        let shared = self.shared_caches()?;
        let mut mixers: Vec<(Place, Mixer)> = Vec::new();
        let mut layers = Vec::new();
        for (at, (place, feed)) in places.into_iter().zip(feeds).enumerate() {
            // Notes of defaults are said once for each kind.
            let known = mixers.iter().find(|(known, _)| *known == place).map(|(_, mixer)| *mixer);
            let mut mixer = if let Some(mixer) = known {
                mixer
            } else {
                let mixer = self.mixer(place)?;
                mixers.push((place, mixer));
                mixer
            };
            let mut feed = feed;
            if let Mixer::Heads(of) = &mut mixer
                && at as u64 + shared >= self.layers
            {
                of.shares_cache = true;
                if let (true, Feed::Dense(block)) = (self.flag(&["use_double_wide_mlp"], false)?, &mut feed) {
                    block.width *= 2;
                }
            }
            layers.push(LayerKind { norms, ..LayerKind::new(mixer, feed) });
        }
        Ok(layers)
    }

    /// Layers at the end whose keys and values are those of an earlier layer.
    fn shared_caches(&self) -> Result<u64, Diagnostic> {
        Ok(self.count_or_zero(&["num_kv_shared_layers"])?.unwrap_or(0))
    }

    fn mixer(&mut self, place: Place) -> Result<Mixer, Diagnostic> {
        match place {
            Place::Feed | Place::Experts => Ok(Mixer::None),
            Place::Recurrence => self.recurrence().map(Mixer::Recurrence),
            Place::Linear => self.linear(),
            Place::Compressed(ratio) => self.compressed(ratio).map(Mixer::Compressed),
            Place::Full if self.is_latent() => self.latent().map(Mixer::Latent),
            Place::Full => self.heads_of(false).map(Mixer::Heads),
            Place::Sliding => {
                let window = self.window()?;
                let tokens = window.ok_or_else(|| self.refused("`sliding_window` is missing, and layers have one"))?;
                let window = Some(Window { tokens, chunked: false });
                Ok(Mixer::Heads(HeadAttention { window, ..self.heads_of(true)? }))
            }
            Place::Chunked => {
                let tokens = self.count(&["attention_chunk_size"])?;
                let window = Some(Window { tokens, chunked: true });
                Ok(Mixer::Heads(HeadAttention { window, ..self.heads_of(true)? }))
            }
        }
    }

    /// `block_configs`: attention and feed-forward block of each layer in an entry of their own (Puzzle, arXiv:2411.19146).
    fn block_configs(&mut self, list: &[Value]) -> Result<Vec<LayerKind>, Diagnostic> {
        if list.len() as u64 != self.layers {
            return Err(self.refused(&format!(
                "`block_configs` has {} entries for {} layers",
                list.len(),
                self.layers
            )));
        }
        let flag = |of: Option<&Value>, key: &str| of.and_then(|of| of.get(key)).and_then(Value::as_bool) == Some(true);
        let usual = self.heads_of_group()?;
        let activation = self.activation()?;
        let mut layers = Vec::new();
        for (at, entry) in list.iter().enumerate() {
            let (attention, feed) = (entry.get("attention"), entry.get("ffn"));
            let mixer = if flag(attention, "no_op") {
                Mixer::None
            } else if flag(attention, "replace_with_linear") {
                Mixer::Matrix
            } else {
                let each = attention.and_then(|of| of.get("n_heads_in_group")).and_then(Value::as_u64);
                let refused = || {
                    self.refused(&format!(
                        "`block_configs[{at}].attention.n_heads_in_group`: expected a divisor of the heads"
                    ))
                };
                let each = each.filter(|&each| each > 0 && self.heads.is_multiple_of(each)).ok_or_else(refused)?;
                Mixer::Heads(HeadAttention { kv_heads: self.heads / each, ..usual })
            };
            let feed = if flag(feed, "no_op") {
                Feed::None
            } else if flag(feed, "replace_with_linear") {
                Feed::Matrix
            } else {
                Feed::Dense(FeedBlock { width: self.width_of_block(at, feed)?, activation, bias: false })
            };
            layers.push(LayerKind::new(mixer, feed));
        }
        Ok(layers)
    }

    /// Attention whose groups of heads are said layer by layer.
    fn heads_of_group(&self) -> Result<HeadAttention, Diagnostic> {
        let head = self.any(&["head_dim"])?.unwrap_or(self.hidden / self.heads);
        Ok(HeadAttention::new(self.heads, self.heads, head))
    }

    fn width_of_block(&self, at: usize, feed: Option<&Value>) -> Result<u64, Diagnostic> {
        if let Some(width) = feed.and_then(|of| of.get("intermediate_size")).and_then(Value::as_u64).filter(|&n| n > 0)
        {
            return Ok(width);
        }
        let times = feed.and_then(|of| of.get("ffn_mult")).and_then(Value::as_f64);
        let times = times.filter(|&times| times > 0.0 && times < 1e6);
        let times = times.ok_or_else(|| {
            self.refused(&format!("`block_configs[{at}].ffn.ffn_mult`: expected a factor, or `intermediate_size`"))
        })?;
        // Two thirds of the width of a block without a gate, in whole 256s.
        let width = (2.0 * times * self.hidden as f64 / 3.0) as u64;
        Ok(width.next_multiple_of(256))
    }

    /// What stands between the matrices of a feed-forward block.
    pub(super) fn activation(&self) -> Result<Activation, Diagnostic> {
        let names =
            ["hidden_act", "hidden_activation", "mlp_hidden_act", "activation_function", "activation", "ffn_act_fn"];
        let word = self.word(&names).unwrap_or(families::activation(self.family));
        let gated = families::gated(self.family);
        Ok(match word {
            "silu" | "swish" | "swiglu" | "swigluoai" if gated != Some(false) => Activation::GatedSilu,
            "gelu_pytorch_tanh" | "geglu" if gated != Some(false) => Activation::GatedGelu,
            "gelu" | "gelu_new" if gated == Some(true) => Activation::GatedGelu,
            "gelu" | "gelu_new" | "gelu_fast" | "quick_gelu" | "gelu_pytorch_tanh" => Activation::Gelu,
            "relu" => Activation::Relu,
            "relu2" | "relu_squared" | "squared_relu" => Activation::SquaredRelu,
            _ => {
                let name = names.into_iter().find(|name| self.map().contains_key(*name)).unwrap_or(names[0]);
                return Err(self.refused(&format!(
                    "`{name}` is {word:?}, which is not known: whether a gate goes with it is open"
                )));
            }
        })
    }
}
