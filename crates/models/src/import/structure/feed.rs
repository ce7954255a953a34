//! Feed-forward blocks by their keys: dense ones, experts, and which layers have which.

use serde_json::Value;

use super::Reader;
use super::pattern::Place;
use crate::model::{Expertise, Experts, Feed, FeedBlock};
use rdusim_base::diagnostics::Diagnostic;

/// Most experts of a layer.
const MOST_EXPERTS: u64 = 1 << 20;

/// Names of the number of experts.
const COUNT: [&str; 7] = [
    "n_routed_experts",
    "num_local_experts",
    "num_experts",
    "num_routed_experts",
    "moe_num_experts",
    "n_experts",
    "num_moe_experts",
];

/// Names of the number of experts that a token meets.
const EACH: [&str; 9] = [
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "top_k_experts",
    "moe_topk",
    "moe_top_k",
    "moe_k",
    "num_selected_experts",
    "num_active_experts",
];

/// Names of the width of an expert.
const WIDTH: [&str; 5] = [
    "moe_intermediate_size",
    "expert_intermediate_size",
    "moe_ffn_hidden_size",
    "expert_ffn_hidden_size",
    "expert_hidden_size",
];

/// Names of the width of a dense block.
pub(super) const DENSE: [&str; 6] = ["intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim", "ffn_size", "d_ff"];

impl Reader<'_> {
    /// The feed-forward block of each layer.
    pub(super) fn feeds(&mut self, places: &[Place]) -> Result<Vec<Feed>, Diagnostic> {
        let is_apart = places.iter().any(|place| matches!(place, Place::Feed | Place::Experts))
            || self.map().contains_key("hybrid_override_pattern");
        let has_experts =
            if is_apart { places.iter().map(|place| *place == Place::Experts).collect() } else { self.with_experts()? };
        let is_dense = |(place, has): (&Place, &bool)| !*has && (!is_apart || *place == Place::Feed);
        let needs_dense = places.iter().zip(&has_experts).any(is_dense);
        let dense = if needs_dense { Some(self.dense()?) } else { None };
        let experts = if has_experts.contains(&true) { Some(self.experts()?) } else { None };
        let of = |(place, has): (&Place, &bool)| match (is_apart, place, has) {
            (true, Place::Feed, _) | (false, _, false) => dense.map_or(Feed::None, Feed::Dense),
            (true, Place::Experts, _) | (false, _, true) => experts.map_or(Feed::None, Feed::Experts),
            (true, ..) => Feed::None,
        };
        Ok(places.iter().zip(&has_experts).map(of).collect())
    }

    fn dense(&mut self) -> Result<FeedBlock, Diagnostic> {
        let of_its_own = self.any(&["intermediate_size_mlp", "dense_intermediate_size"])?;
        let width = match of_its_own {
            Some(width) => width,
            None => self.count(&DENSE)?,
        };
        let bias = self.flag(&["mlp_bias", "use_bias"], self.family == "starcoder2")?;
        Ok(FeedBlock { width, activation: self.activation()?, bias })
    }

    /// Whether each layer has experts.
    fn with_experts(&mut self) -> Result<Vec<bool>, Diagnostic> {
        let layers = self.layers;
        let count = self.experts_of_layer()?;
        if count == 0 || self.said(&["enable_moe_block"])? == Some(false) {
            return Ok(vec![false; layers as usize]);
        }
        for (name, words) in [("mlp_layer_types", ["dense", "sparse"]), ("ffn_layer_types", ["dense", "moe"])] {
            let Some(list) = self.list(name) else { continue };
            let of = |value: &Value| match value.as_str() {
                Some(word) if word == words[0] => Some(false),
                Some(word) if word == words[1] => Some(true),
                _ => None,
            };
            let found: Option<Vec<bool>> = list.iter().take(layers as usize).map(of).collect();
            let found = found.filter(|list| list.len() as u64 == layers);
            return found.ok_or_else(|| {
                self.refused(&format!("`{name}`: expected {layers} times {:?} or {:?}", words[0], words[1]))
            });
        }
        if let Some(list) = self.list("moe_layer_freq") {
            let found: Option<Vec<bool>> = list
                .iter()
                .take(layers as usize)
                .map(|value| value.as_u64().filter(|&n| n < 2).map(|n| n == 1))
                .collect();
            let found = found.filter(|list| list.len() as u64 == layers);
            return found.ok_or_else(|| self.refused(&format!("`moe_layer_freq`: expected {layers} times 0 or 1")));
        }
        if let Some(list) = self.list("moe_layers").filter(|list| !list.is_empty()) {
            let holds = |at: u64| list.iter().any(|value| value.as_u64() == Some(at));
            return Ok((0..layers).map(holds).collect());
        }
        if let Some(list) = self.word(&["moe_layers_enum"]) {
            let listed: Vec<u64> = list.split(',').filter_map(|word| word.trim().parse().ok()).collect();
            return Ok((0..layers).map(|at| listed.contains(&at)).collect());
        }
        let first = self.count_or_zero(&["first_k_dense_replace", "moe_layer_start_index", "num_dense_layers"])?;
        let first = match first {
            Some(first) => first,
            None => super::Fields::usual_count(self.family, "first_k_dense_replace").unwrap_or(0),
        };
        let last = self.any(&["moe_layer_end_index"])?.unwrap_or(layers);
        // The n-th, 2n-th layer counted from 1, or every n-th counted from 0.
        let from_one = self.any(&["decoder_sparse_step", "interleave_moe_layer_step"])?.unwrap_or(1);
        let from_zero = self.any(&["moe_layer_freq"])?.unwrap_or(1);
        let interval = self.any(&["moe_layer_interval", "expert_layer_period"])?.unwrap_or(1);
        let offset = self.count_or_zero(&["expert_layer_offset"])?;
        let without = self.list("mlp_only_layers").cloned().unwrap_or_default();
        Ok((0..layers)
            .map(|at| {
                let in_turn = match offset {
                    Some(offset) => at % interval == offset,
                    None => (at + 1).is_multiple_of(interval),
                };
                at >= first
                    && at <= last
                    && (at + 1).is_multiple_of(from_one)
                    && at.is_multiple_of(from_zero)
                    && in_turn
                    && !without.iter().any(|value| value.as_u64() == Some(at))
            })
            .collect())
    }

    /// A count of which some models have a list, one for each layer, all alike.
    fn one_of_all(&mut self, names: &[&str]) -> Result<Option<u64>, Diagnostic> {
        for &name in names {
            let Some(list) = self.list(name) else { continue };
            let first = list.first().and_then(Value::as_u64);
            let is_one = list.iter().all(|value| value.as_u64() == first);
            let found = first.filter(|_| is_one);
            return found
                .map(Some)
                .ok_or_else(|| self.refused(&format!("`{name}` differs from layer to layer, which is not read")));
        }
        self.count_or_zero(names)
    }

    /// Experts of a layer that has some; 0 where none has.
    fn experts_of_layer(&mut self) -> Result<u64, Diagnostic> {
        if let Some(count) = self.one_of_all(&COUNT)? {
            return Ok(count);
        }
        let said = COUNT.iter().any(|name| self.map().contains_key(*name));
        let usual =
            COUNT.iter().find_map(|name| super::Fields::usual_count(self.family, name).map(|count| (*name, count)));
        if let Some((name, count)) = usual.filter(|_| !said) {
            self.notes.push(format!(
                "`{name}` is not in the config: {count}, the default of the class of `{}` in Hugging Face Transformers",
                self.family
            ));
            return Ok(count);
        }
        let has_one = |name: &&&str| self.map().get(**name).is_some_and(|value| value.as_u64().is_some_and(|n| n > 0));
        match EACH.iter().chain(&WIDTH).find(has_one) {
            Some(name) if !said => Err(self.refused(&format!("`{name}` is there, and `{}` is missing", COUNT[0]))),
            _ => Ok(0),
        }
    }

    fn experts(&mut self) -> Result<Expertise, Diagnostic> {
        let count = match self.one_of_all(&COUNT)? {
            Some(count) => count,
            None => COUNT.iter().find_map(|name| super::Fields::usual_count(self.family, name)).unwrap_or(0),
        };
        let each = match self.one_of_all(&EACH)? {
            Some(each) => each,
            None => self.count(&EACH)?,
        };
        let usual = super::Fields::usual_count(self.family, WIDTH[0]);
        let width = match self.one_of_all(&WIDTH)? {
            Some(width) => width,
            None if usual.is_some() => self.count(&WIDTH)?,
            None => self.count(&DENSE)?,
        };
        if each == 0 || each > count || width == 0 {
            return Err(self.refused(&format!("a token meets {each} of {count} experts that are {width} wide")));
        }
        if count > MOST_EXPERTS {
            return Err(self.refused(&format!("{count} experts, at most {MOST_EXPERTS} are possible")));
        }
        let (shared, shared_gate) = self.shared(width)?;
        let activation = self.activation()?;
        let bias = self.family == "gpt_oss";
        let latent = self.any(&["moe_latent_size"])?;
        Ok(Expertise {
            experts: Experts { count, each, width, shared, shared_gate, every: 1 },
            activation,
            bias,
            latent,
        })
    }

    /// Width of the block that every token meets beside the experts, and whether a gate scales what it makes.
    fn shared(&mut self, width: u64) -> Result<(u64, bool), Diagnostic> {
        if self.said(&["enable_moe_block"])? == Some(true) {
            // The dense block of a layer stands beside its experts.
            return Ok((self.count(&DENSE)?, false));
        }
        if self.family == "qwen2_moe" || self.map().contains_key("shared_expert_intermediate_size") {
            let names = ["shared_expert_intermediate_size"];
            let shared = match self.count_or_zero(&names)? {
                Some(shared) => shared,
                None => self.count(&names)?,
            };
            return Ok((shared, shared > 0));
        }
        let of_all = ["moe_shared_expert_intermediate_size", "shared_intermediate_size", "share_expert_dim"];
        if let Some(shared) = self.count_or_zero(&of_all)? {
            return Ok((shared, false));
        }
        let names = ["n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"];
        let said = names.iter().any(|name| self.map().contains_key(*name));
        let usual = if self.family == "llama4" { Some(1) } else { super::Fields::usual_count(self.family, names[0]) };
        let shared = match self.one_of_all(&names)? {
            Some(shared) => shared,
            None if said => 0,
            None if usual.is_none() && self.family.starts_with("deepseek") => {
                return Err(self.refused(&format!("`{}` is missing", names[0])));
            }
            None => usual.unwrap_or(0),
        };
        Ok((shared.saturating_mul(width), false))
    }
}
