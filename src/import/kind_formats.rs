//! Formats of the matrices of a model that is read by its structure, layer by layer.

use super::families::Fields;
use crate::model::Stack;

impl Fields {
    /// Whether the config says how matrices are stored.
    pub(super) fn says_formats(&self) -> bool {
        self.map.get("quantization_config").is_some_and(|config| !config.is_null())
    }

    /// The class whose names the weights have.
    pub(super) fn class_name(&self, name: &str) -> String {
        super::structure::class_name(name, &self.map).to_owned()
    }

    /// Gives the matrices of the layers their formats.
    pub(super) fn formats(&self, _stack: &mut Stack, _notes: &mut Vec<String>) {}
}
