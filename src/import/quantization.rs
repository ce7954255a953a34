//! `quantization_config` of a config.json: how the matrices of the layers are stored.

use serde_json::Value;

use super::families::Fields;
use crate::model::StorageFormat;

impl Fields {
    /// The format of the layers' matrices; a note where one is named that is not known here.
    pub(super) fn quantization(&self, notes: &mut Vec<String>) -> Option<StorageFormat> {
        let config = self.map.get("quantization_config").filter(|config| !config.is_null())?;
        let word = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default();
        let number = |key: &str| config.get(key).and_then(Value::as_i64);
        let is_blocked = config.get("weight_block_size").is_some_and(|size| !size.is_null());
        let found = match (word("quant_method"), number("bits")) {
            // A group of -1 is a whole column.
            ("awq" | "gptq", Some(bits @ (4 | 8))) => {
                let group = number("group_size").and_then(|group| u64::try_from(group).ok()).filter(|&group| group > 0);
                Some(StorageFormat { format: format!("int{bits}"), group })
            }
            ("fp8", _) if !is_blocked => Some(StorageFormat { format: "fp8_e4m3".to_owned(), group: None }),
            _ => None,
        };
        if found.is_none() {
            let method: String = word("quant_method").chars().take(40).collect();
            notes.push(format!(
                "`quantization_config` ({method:?}) is not applied: the matrices are taken in the data type of products"
            ));
        }
        found
    }
}
