//! What each layer of a model has in the place of attention, from strings, lists and intervals of a config.

use serde_json::Value;

use super::{Reader, families};
use rdusim_base::diagnostics::Diagnostic;

/// What stands in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Attention over all tokens.
    Full,
    /// Attention over the last tokens.
    Sliding,
    /// Attention over a chunk of the sequence.
    Chunked,
    /// Linear attention.
    Linear,
    /// A recurrence.
    Recurrence,
    /// Attention over a window and compressed keys, each for so many tokens.
    Compressed(u64),
    /// A feed-forward block alone.
    Feed,
    /// Experts alone.
    Experts,
}

impl Place {
    /// The layer that a word of a list stands for.
    fn of_word(word: &str) -> Option<Self> {
        match word {
            "full_attention" | "attention" | "full" | "global" | "global_attention" | "self_attention" => {
                Some(Self::Full)
            }
            "sliding_attention" | "sliding_window_attention" | "sliding" | "local" | "local_attention" | "swa" => {
                Some(Self::Sliding)
            }
            "chunked_attention" => Some(Self::Chunked),
            "linear_attention" | "linear" | "gated_delta_net" | "kda" => Some(Self::Linear),
            "mamba" | "mamba2" => Some(Self::Recurrence),
            "mlp" => Some(Self::Feed),
            "moe" => Some(Self::Experts),
            _ => None,
        }
    }

    /// The layer that a letter of a pattern stands for.
    fn of_letter(letter: char) -> Option<Self> {
        match letter {
            'M' => Some(Self::Recurrence),
            '*' => Some(Self::Full),
            '-' => Some(Self::Feed),
            'E' => Some(Self::Experts),
            _ => None,
        }
    }
}

impl Reader<'_> {
    /// Whether no layer has attention.
    pub(super) fn is_recurrent_alone(&self) -> bool {
        self.word(&["hybrid_override_pattern"]).is_some_and(|pattern| !pattern.contains('*'))
    }

    /// A list of one entry a layer, each made of the value by `of`.
    fn by_layer(
        &self,
        name: &str,
        expected: &str,
        of: impl Fn(&Value) -> Option<Place>,
    ) -> Result<Option<Vec<Place>>, Diagnostic> {
        let Some(list) = self.list(name) else { return Ok(None) };
        if (list.len() as u64) < self.layers {
            return Err(self.refused(&format!(
                "`{name}` has {} entries for {} layers: expected one for each",
                list.len(),
                self.layers
            )));
        }
        // Further entries are of layers that draft tokens.
        let mut places = Vec::new();
        for value in list.iter().take(self.layers as usize) {
            let refused = || self.refused(&format!("`{name}` holds {value}: expected {expected}"));
            places.push(of(value).ok_or_else(refused)?);
        }
        Ok(Some(places))
    }

    /// What stands in each layer.
    pub(super) fn places(&self) -> Result<Vec<Place>, Diagnostic> {
        if let Some(pattern) = self.word(&["hybrid_override_pattern"]) {
            let found: Option<Vec<Place>> = pattern.chars().map(Place::of_letter).collect();
            let found = found.filter(|list| list.len() as u64 == self.layers);
            let expected = format!("{} times `M`, `*`, `-` or `E`", self.layers);
            return found.ok_or_else(|| self.refused(&format!("`hybrid_override_pattern`: expected {expected}")));
        }
        let words = "the name of a kind of layer that is known, such as \"full_attention\"";
        for name in ["layer_types", "layers_block_type", "layer_block_types"] {
            if let Some(places) = self.by_layer(name, words, |value| value.as_str().and_then(Place::of_word))? {
                return Ok(places);
            }
        }
        let number = |value: &Value, zero, one| match value.as_u64() {
            Some(0) => Some(zero),
            Some(1) => Some(one),
            _ => None,
        };
        let of_list = |value: &Value| number(value, Place::Linear, Place::Full);
        if let Some(places) = self.by_layer("attn_type_list", "0 or 1", of_list)? {
            return Ok(places);
        }
        let of_list = |value: &Value| number(value, Place::Full, Place::Sliding);
        if let Some(places) = self.by_layer("hybrid_layer_pattern", "0 or 1", of_list)? {
            return Ok(places);
        }
        let of_ratio = |value: &Value| value.as_u64().filter(|&n| n <= 1 << 20).map(Place::Compressed);
        if let Some(places) = self.by_layer("compress_ratios", "a count of tokens", of_ratio)? {
            return Ok(places);
        }
        if let Some(places) = self.linear_lists()? {
            return Ok(places);
        }
        self.intervals()
    }

    /// `linear_attn_config`: numbers of layers from 1, by kind.
    fn linear_lists(&self) -> Result<Option<Vec<Place>>, Diagnostic> {
        let Some(config) = self.map().get("linear_attn_config").filter(|of| of.is_object()) else { return Ok(None) };
        let mut places = vec![None; self.layers as usize];
        for (name, place) in [("kda_layers", Place::Linear), ("full_attn_layers", Place::Full)] {
            for value in config.get(name).and_then(Value::as_array).into_iter().flatten() {
                let at = value.as_u64().and_then(|at| at.checked_sub(1)).and_then(|at| places.get_mut(at as usize));
                let refused =
                    || self.refused(&format!("`linear_attn_config.{name}` holds {value}: expected layers from 1 on"));
                *at.ok_or_else(refused)? = Some(place);
            }
        }
        let found: Option<Vec<Place>> = places.into_iter().collect();
        let refused =
            || self.refused("`linear_attn_config`: `kda_layers` and `full_attn_layers` do not name every layer");
        found.map(Some).ok_or_else(refused)
    }

    /// Every n-th layer by an interval, or the last ones by a number.
    fn intervals(&self) -> Result<Vec<Place>, Diagnostic> {
        let every = |interval: u64, last: Place, others: Place| {
            let of = |at: u64| if (at + 1).is_multiple_of(interval) { last } else { others };
            (0..self.layers).map(of).collect::<Vec<Place>>()
        };
        let is_linear = self.map().contains_key("linear_num_value_heads");
        if let Some(interval) = self.any(&["full_attention_interval"])?.or(is_linear.then_some(4)) {
            return Ok(every(interval, Place::Full, Place::Linear));
        }
        if self.any(&["attention_chunk_size"])?.is_some() {
            if let Some(list) = self.list("no_rope_layers").filter(|list| !list.is_empty()) {
                let length = list.len() as u64;
                let of = |value: &Value| {
                    if value.as_u64() == Some(0) { Place::Full } else { Place::Chunked }
                };
                let places: Vec<Place> = list.iter().map(of).collect();
                let refused =
                    || self.refused(&format!("`no_rope_layers` has {length} entries for {} layers", self.layers));
                return Some(places).filter(|_| length == self.layers).ok_or_else(refused);
            }
            let interval = self.any(&["no_rope_layer_interval"])?.unwrap_or(4);
            return Ok(every(interval, Place::Full, Place::Chunked));
        }
        if let Some(list) = self.list("attn_layer_indices") {
            let holds = |at: u64| list.iter().any(|value| value.as_u64() == Some(at));
            return Ok((0..self.layers).map(|at| if holds(at) { Place::Full } else { Place::Recurrence }).collect());
        }
        if !self.has_window()? {
            return Ok(vec![Place::Full; self.layers as usize]);
        }
        if let Some(pattern) = self.word(&["sliding_window_pattern", "_sliding_window_pattern"]) {
            let of = |letter: char| match letter {
                'L' => Some(Place::Sliding),
                'G' => Some(Place::Full),
                _ => None,
            };
            let letters: Option<Vec<Place>> = pattern.chars().map(of).collect();
            let letters = letters.filter(|list| !list.is_empty());
            let letters = letters.ok_or_else(|| self.refused("`sliding_window_pattern`: expected `L` and `G`"))?;
            return Ok((0..self.layers as usize).map(|at| letters[at % letters.len()]).collect());
        }
        let pattern = self.any(&["sliding_window_pattern", "_sliding_window_pattern"])?;
        if let Some(interval) = pattern.or(families::window_pattern(self.family)) {
            return Ok(every(interval, Place::Full, Place::Sliding));
        }
        // The last layers of Qwen 2 and 3, all of others.
        let first = match self.said(&["use_sliding_window"])? {
            Some(true) => self.count_or_zero(&["max_window_layers"])?.unwrap_or(0),
            _ => 0,
        };
        Ok((0..self.layers).map(|at| if at < first { Place::Full } else { Place::Sliding }).collect())
    }

    /// Whether layers see a window of the tokens.
    fn has_window(&self) -> Result<bool, Diagnostic> {
        let usual = !self.family.starts_with("qwen") && self.family != "mimo";
        Ok(self.flag(&["use_sliding_window"], usual)? && self.window()?.is_some())
    }

    /// Tokens of a window.
    pub(super) fn window(&self) -> Result<Option<u64>, Diagnostic> {
        let names = ["sliding_window", "sliding_window_size"];
        if names.iter().any(|name| self.map().contains_key(*name)) {
            return self.any(&names);
        }
        Ok(super::Fields::usual_count(self.family, "sliding_window"))
    }
}
