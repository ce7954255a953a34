//! `quantization_config` of a config.json: how the matrices of the layers are stored.

use serde_json::Value;

use super::families::Fields;
use crate::model::StorageFormat;

impl Fields {
    /// The format of the layers' matrices; a note where one is named that is not applied: not known here, or for the reason given.
    pub(super) fn quantization(&self, why_not: Option<&str>, notes: &mut Vec<String>) -> Option<StorageFormat> {
        let config = self.map.get("quantization_config").filter(|config| !config.is_null())?;
        let word = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default();
        let number = |key: &str| config.get(key).and_then(Value::as_i64);
        let is_given = |key: &str| config.get(key).is_some_and(|value| !value.is_null());
        // A group of -1 is a whole column.
        let group = match number("group_size") {
            Some(-1) => Some(None),
            Some(group @ 1..=65_536) => Some(u64::try_from(group).ok()),
            _ if !is_given("group_size") => Some(None),
            _ => None,
        };
        let found = match (word("quant_method"), number("bits"), group) {
            ("awq" | "gptq", Some(bits @ (4 | 8)), Some(group)) => {
                Some(StorageFormat { format: format!("int{bits}"), group })
            }
            ("fp8", ..) if !is_given("weight_block_size") => {
                Some(StorageFormat { format: "fp8_e4m3".to_owned(), group: None })
            }
            _ => None,
        };
        let method: String = word("quant_method").chars().take(40).collect();
        let found = found.filter(|_| why_not.is_none());
        if found.is_none() {
            let why = why_not.unwrap_or("not a format that is known here");
            notes.push(format!(
                "`quantization_config` ({method:?}) is not applied: {why}; the matrices are stored in the data type of products"
            ));
        } else if is_given("modules_to_not_convert") || is_given("ignored_layers") {
            notes.push(
                "`quantization_config` leaves some modules as they are: here all matrices of the layers have the format".to_owned(),
            );
        }
        found
    }
}
