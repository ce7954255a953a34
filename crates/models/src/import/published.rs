//! Published models by their names: the keys of their configs that make shapes, read as those of any other config.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::families::Fields;
use crate::model::ExpertLoad;

/// A published model.
#[derive(Debug, Clone)]
pub struct PublishedModel {
    /// Its name on the command line.
    pub name: String,
    /// Names that stand for it too: those of repositories on huggingface.co.
    pub names: Vec<String>,
    /// Where its dimensions are from.
    pub source: String,
    /// The keys of its config.
    pub(super) config: Map<String, Value>,
}

/// A model as the file has it.
#[derive(Debug, Deserialize)]
struct Entry {
    names: Vec<String>,
    source: String,
    config: Map<String, Value>,
}

static MODELS: LazyLock<Vec<PublishedModel>> = LazyLock::new(|| {
    let entries: BTreeMap<String, Entry> = serde_json::from_str(include_str!("published.json")).unwrap_or_default();
    let model = |(name, of): (String, Entry)| {
        let Entry { names, source, config } = of;
        PublishedModel { name, names, source, config }
    };
    entries.into_iter().map(model).collect()
});

impl PublishedModel {
    /// Parameters of its layers, tables and output.
    pub fn parameters(&self) -> u64 {
        let fields = Fields {
            path: self.name.clone(),
            map: self.config.clone(),
            expert_load: ExpertLoad::default(),
            keeps_experts: true,
        };
        let name = fields.family_name().unwrap_or_default();
        fields.structure(&name).map_or(0, |read| read.stack.parameters())
    }

    /// The most tokens of a sequence.
    pub fn positions(&self) -> u64 {
        self.config.get("max_position_embeddings").and_then(Value::as_u64).unwrap_or(0)
    }
}

/// Every published model, by name.
pub fn published_models() -> &'static [PublishedModel] {
    &MODELS
}

/// The model that a name stands for, in letters of any case.
pub fn published(name: &Path) -> Option<&'static PublishedModel> {
    let name = name.to_str()?;
    let is_named = |model: &&PublishedModel| {
        model.name.eq_ignore_ascii_case(name) || model.names.iter().any(|other| other.eq_ignore_ascii_case(name))
    };
    MODELS.iter().find(is_named)
}
