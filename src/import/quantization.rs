//! `quantization_config` of a config.json: how the matrices of the layers, their activations and the cache are stored.

use serde_json::Value;

use super::families::Fields;
use crate::model::{ActivationFormat, LONGEST, StorageFormat};

/// What is applied of a `quantization_config`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Quantisation {
    /// The layers' matrices.
    pub(super) weights: Option<StorageFormat>,
    /// Keys and values of the context.
    pub(super) cache: Option<StorageFormat>,
    /// What is multiplied with the layers' matrices.
    pub(super) activations: Option<ActivationFormat>,
}

impl Fields {
    /// Formats that are applied to a model of `dtype`; a note where one is named that is not: not known here, or for the reason given.
    pub(super) fn quantization(&self, dtype: &str, why_not: Option<&str>, notes: &mut Vec<String>) -> Quantisation {
        let Some(config) = self.map.get("quantization_config").filter(|config| !config.is_null()) else {
            return Quantisation::default();
        };
        let is_given = |key: &str| config.get(key).is_some_and(|value| !value.is_null());
        let method = word(config, "quant_method");
        let known = if method == "compressed-tensors" { of_groups(config) } else { of_method(config) };
        let fits = |found: &Quantisation| {
            let product = found.activations.as_ref().map_or(dtype, |narrow| &narrow.dtype);
            found.weights.as_ref().is_none_or(|format| format.fits(product))
                && found.cache.as_ref().is_none_or(|format| format.fits(dtype))
        };
        let unfit = known.as_ref().is_some_and(|found| !fits(found));
        let found = known.filter(|found| why_not.is_none() && fits(found));
        if found.is_none() {
            let method: String = method.chars().take(40).collect();
            let unknown = if unfit {
                "its formats and types of products do not go together here"
            } else {
                "not a format that is known here"
            };
            let why = why_not.unwrap_or(unknown);
            notes.push(format!(
                "`quantization_config` ({method:?}) is not applied: {why}; the matrices are stored in the data type of products"
            ));
        } else if ["modules_to_not_convert", "ignored_layers", "ignore"].iter().any(|key| is_given(key)) {
            notes.push(
                "`quantization_config` leaves some modules as they are: here all matrices of the layers have the format".to_owned(),
            );
        }
        found.unwrap_or_default()
    }
}

fn word<'a>(config: &'a Value, key: &str) -> &'a str {
    config.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Elements that share a scale; `None` for a whole column, which -1 or nothing stands for.
///
/// # Errors
/// Any other number.
fn group(config: &Value) -> Result<Option<u64>, Unknown> {
    match config.get("group_size").filter(|size| !size.is_null()).map(Value::as_i64) {
        None | Some(Some(-1)) => Ok(None),
        Some(Some(size @ 1..=65_536)) => Ok(u64::try_from(size).ok()),
        _ => Err(Unknown),
    }
}

/// A word or number of a scheme that is not known here.
struct Unknown;

/// AWQ, GPTQ, and FP8 with `activation_scheme`.
fn of_method(config: &Value) -> Option<Quantisation> {
    let bits = config.get("bits").and_then(Value::as_i64);
    match (word(config, "quant_method"), bits) {
        ("awq" | "gptq", Some(bits @ (4 | 8))) => {
            let format = StorageFormat::new(&format!("int{bits}"));
            let weights = Some(StorageFormat { group: group(config).ok()?, ..format });
            Some(Quantisation { weights, ..Quantisation::default() })
        }
        ("fp8", _) if config.get("weight_block_size").is_none_or(Value::is_null) => {
            let scheme = word(config, "activation_scheme");
            let of = |is_by_token| ActivationFormat { dtype: "fp8_e4m3".to_owned(), is_by_token };
            Some(Quantisation {
                weights: Some(StorageFormat::new("fp8_e4m3")),
                cache: None,
                activations: ["static", "dynamic"].contains(&scheme).then(|| of(scheme == "dynamic")),
            })
        }
        _ => None,
    }
}

/// `compressed-tensors`: one group of modules, which says how weights and their inputs are stored.
fn of_groups(config: &Value) -> Option<Quantisation> {
    let groups = config.get("config_groups")?.as_object()?;
    let (_, only) = groups.iter().next().filter(|_| groups.len() == 1)?;
    let given = |key: &str| only.get(key).filter(|of| !of.is_null());
    let weights = given("weights")?;
    let activations = match given("input_activations") {
        None => None,
        Some(of) => {
            let (dtype, is_by_token) = (eight_bits(of)?, word(of, "strategy") == "token");
            if !is_by_token && word(of, "strategy") != "tensor" {
                return None;
            }
            Some(ActivationFormat { dtype, is_by_token })
        }
    };
    let format = match (word(weights, "type"), weights.get("num_bits").and_then(Value::as_i64)) {
        ("int", Some(4)) => "int4".to_owned(),
        _ => eight_bits(weights)?,
    };
    let (is_integer, size) = (format.starts_with("int"), group(weights).ok()?);
    let mut stored = StorageFormat::new(&format);
    match word(weights, "strategy") {
        "tensor" => stored.has_one_scale = is_integer,
        "channel" => stored.group = (!is_integer).then_some(LONGEST),
        "group" | "" => stored.group = size,
        _ => return None,
    }
    let cache = match config.get("kv_cache_scheme").filter(|of| !of.is_null()) {
        None => None,
        Some(of) => Some(StorageFormat::new(&eight_bits(of)?)),
    };
    Some(Quantisation { weights: Some(stored), cache, activations })
}

/// The type of 8 bits that a scheme names.
fn eight_bits(scheme: &Value) -> Option<String> {
    let bits = scheme.get("num_bits").and_then(Value::as_i64);
    match (word(scheme, "type"), bits) {
        ("int", Some(8)) => Some("int8".to_owned()),
        ("float", Some(8)) => Some("fp8_e4m3".to_owned()),
        _ => None,
    }
}
