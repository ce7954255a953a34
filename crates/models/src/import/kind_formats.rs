//! Formats of the matrices of a model that is read by its structure, layer by layer.
//!
//! Layers whose matrices are stored in different formats are of different kinds, so that bytes are those that the files say.

use serde_json::Value;

use super::families::Fields;
use super::matrix_modules::{NEVER, modules_of, prefixes};
use super::module_rules::Rules;
use super::quantization::{Scheme, Unknown, of_groups, of_method, word};
use crate::model::{LayerKind, Stack, StorageFormat};

/// Words in the name of a model that say how its matrices are stored.
const NAMED: [&str; 8] = ["nvfp4", "mxfp4", "fp8", "fp4", "int4", "int8", "awq", "gptq"];

/// Sides of the blocks of fp8 that share a scale.
const BLOCK: u64 = 128;

impl Fields {
    /// Whether the config says how matrices are stored.
    pub(super) fn says_formats(&self) -> bool {
        self.map.get("quantization_config").is_some_and(|config| !config.is_null())
    }

    /// The class whose names the weights have.
    pub(super) fn class_name(&self, name: &str) -> String {
        super::structure::class_name(name, &self.map).to_owned()
    }

    /// Gives the matrices of the layers their formats, and says what is left out; returns the format of keys and values.
    pub(super) fn formats(&self, stack: &mut Stack, notes: &mut Vec<String>) -> Option<StorageFormat> {
        let gib = bytes_of(stack) as f64 / f64::from(1 << 30);
        let Some(config) = self.map.get("quantization_config").filter(|config| !config.is_null()) else {
            let lower = self.path.to_ascii_lowercase();
            if let Some(named) = NAMED.into_iter().find(|word| lower.contains(word)) {
                notes.push(format!(
                    "its name says {}, and neither `quantization_config` nor a hf_quant_config.json beside it does: the matrices of the \
                     layers are stored in bf16, {gib:.1} GiB",
                    named.to_ascii_uppercase()
                ));
            }
            return None;
        };
        let Ok(scheme) = scheme(config, self.map.get("expert_dtype")) else {
            let method: String = word(config, "quant_method").chars().take(40).collect();
            notes.push(format!(
                "`quantization_config` ({method:?}) is not applied: not a format that is known here; the matrices of the layers are \
                 stored in bf16, {gib:.1} GiB"
            ));
            return None;
        };
        let Scheme { rules, cache, activations } = scheme;
        let prefixes = prefixes(config);
        let mut layers: Vec<LayerKind> = Vec::new();
        for (at, kind) in stack.order.iter().enumerate() {
            let mut layer = stack.kinds[usize::from(*kind)].clone();
            for matrix in layer.matrices(stack.hidden).iter().filter(|matrix| !NEVER.contains(&matrix.name)) {
                let modules = modules_of(matrix.name, &layer, at, &prefixes);
                let format = rules.format_of_any(&modules).filter(|format| format.fits("bf16"));
                layer.formats.extend(format.map(|format| (matrix.name.to_owned(), format.clone())));
            }
            layers.push(layer);
        }
        let mut stored = stack.clone();
        if stored.set_layers(layers).is_err() {
            notes.push(format!(
                "`quantization_config` is not applied: it stores layers in more ways than {}; the matrices of the layers are stored in \
                 bf16, {gib:.1} GiB",
                crate::model::MOST_KINDS
            ));
            return None;
        }
        let whole = ["lm_head", "language_model.lm_head", "head"].map(str::to_owned);
        let has_output = config.get("lm_head").and_then(Value::as_bool) == Some(true);
        let of_all_products = config.get("config_groups").is_some();
        if (has_output || of_all_products) && !stored.tied {
            stored.output_format = rules.format_of_any(&whole).cloned();
        }
        *stack = stored;
        if activations.is_some() || says_activations(config) {
            notes.push(
                "activations of quantised products stay in bf16: matrices are expanded as they are read".to_owned(),
            );
        }
        cache
    }
}

/// Bytes of the matrices of the layers in elements of two bytes.
fn bytes_of(stack: &Stack) -> u64 {
    let of_kind =
        |kind: &LayerKind| kind.matrices(stack.hidden).iter().map(|matrix| 2 * matrix.elements()).sum::<u64>();
    stack.kinds.iter().zip(stack.all_counts()).map(|(kind, count)| count * of_kind(kind)).sum()
}

/// Whether products are of narrow activations in the checkpoint.
fn says_activations(config: &Value) -> bool {
    let dynamic = config.get("activation_scheme").is_some_and(|scheme| !scheme.is_null());
    let groups = config.get("config_groups").and_then(Value::as_object);
    let given = |group: &Value| group.get("input_activations").is_some_and(|of| !of.is_null());
    dynamic || groups.is_some_and(|groups| groups.values().any(given))
}

/// What a config says of all modules.
fn scheme(config: &Value, expert_dtype: Option<&Value>) -> Result<Scheme, Unknown> {
    let method = word(config, "quant_method");
    let algorithm = word(config, "quant_algo");
    match (method, algorithm) {
        (_, "NVFP4" | "FP8" | "MIXED_PRECISION" | "W4A16_AWQ") | ("modelopt", _) => of_modelopt(config),
        ("mxfp4", _) => {
            let mut rules = Rules::default();
            rules.globs(config.get("modules_to_not_convert"), None).map_err(|_| Unknown)?;
            let format = StorageFormat::new("mxfp4");
            // Experts alone are stored so.
            for name in ["*experts*", "*expert*"] {
                rules.glob(name, Some(&format));
            }
            Ok(Scheme { rules, cache: None, activations: None })
        }
        ("fp8", _) if config.get("weight_block_size").is_some_and(|size| !size.is_null()) => {
            of_blocks(config, expert_dtype, Rules::default())
        }
        ("bitsandbytes", _) => of_bits_and_bytes(config),
        ("compressed-tensors", _) => of_groups(config),
        _ => of_method(config),
    }
}

/// fp8 in blocks of 128 x 128, behind rules that go first.
fn of_blocks(config: &Value, expert_dtype: Option<&Value>, mut rules: Rules) -> Result<Scheme, Unknown> {
    let sides: Vec<Option<u64>> =
        config.get("weight_block_size").and_then(Value::as_array).ok_or(Unknown)?.iter().map(Value::as_u64).collect();
    if sides != [Some(BLOCK), Some(BLOCK)] {
        return Err(Unknown);
    }
    for key in ["modules_to_not_convert", "ignored_layers"] {
        rules.leave_out(config.get(key)).map_err(|_| Unknown)?;
    }
    if expert_dtype.and_then(Value::as_str) == Some("fp4") {
        rules.glob("*ffn.experts*", Some(&StorageFormat::new("mxfp4")));
    }
    Ok(Scheme::of(StorageFormat::new("fp8_block"), rules))
}

/// The format of an algorithm of `modelopt`.
fn of_algorithm(name: &str) -> Result<StorageFormat, Unknown> {
    match name {
        "NVFP4" => Ok(StorageFormat::new("nvfp4")),
        "FP8" => Ok(StorageFormat::new("fp8_e4m3")),
        "W4A16_AWQ" => Ok(StorageFormat { group: Some(BLOCK), ..StorageFormat::new("int4") }),
        _ => Err(Unknown),
    }
}

/// `modelopt`: one algorithm for all modules that are not left out, or one for each that is named.
fn of_modelopt(config: &Value) -> Result<Scheme, Unknown> {
    let mut rules = Rules::default();
    let layers = config.get("quantized_layers").and_then(Value::as_object);
    for (name, of) in layers.into_iter().flatten() {
        let format = of_algorithm(word(of, "quant_algo"))?;
        rules.glob(name, Some(&format));
    }
    let of_cache = config.get("kv_cache_scheme").or(config.get("kv_cache_quant_algo")).filter(|of| !of.is_null());
    let is_narrow = |of: &Value| of.as_str() == Some("FP8") || of.get("num_bits").and_then(Value::as_u64) == Some(8);
    let cache = of_cache.filter(|of| is_narrow(of)).map(|_| StorageFormat::new("fp8_e4m3"));
    if layers.is_some() {
        // Modules that no rule names are as the rest of the config says.
        let is_blocked = config.get("weight_block_size").is_some_and(|size| !size.is_null());
        let rest =
            if is_blocked { of_blocks(config, None, rules)? } else { Scheme { rules, cache: None, activations: None } };
        return Ok(Scheme { cache, ..rest });
    }
    for key in ["ignore", "exclude_modules"] {
        rules.globs(config.get(key), None).map_err(|_| Unknown)?;
    }
    rules.others(of_algorithm(word(config, "quant_algo"))?);
    Ok(Scheme { rules, cache, activations: None })
}

/// `bitsandbytes`: four bits with a scale for 64 elements, in bytes where scales are quantised again; or eight with one for a row.
fn of_bits_and_bytes(config: &Value) -> Result<Scheme, Unknown> {
    let flag = |key: &str| config.get(key).and_then(Value::as_bool) == Some(true);
    let mut rules = Rules::default();
    rules.leave_out(config.get("llm_int8_skip_modules")).map_err(|_| Unknown)?;
    let format = match (flag("load_in_4bit"), flag("load_in_8bit")) {
        (true, false) => StorageFormat { group: Some(64), ..StorageFormat::new("int4") },
        (false, true) => StorageFormat::new("int8"),
        _ => return Err(Unknown),
    };
    Ok(Scheme::of(format, rules))
}
