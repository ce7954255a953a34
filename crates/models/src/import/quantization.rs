//! `quantization_config` of a config.json: how the matrices of the layers, their activations and the cache are stored.

use serde_json::Value;

use super::families::Fields;
use super::module_names::modules;
use super::module_rules::Rules;
use crate::model::{ActivationFormat, Architecture, LONGEST, StorageFormat};

/// What is applied of a `quantization_config`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Quantisation {
    /// The layers' matrices.
    pub(super) weights: Option<StorageFormat>,
    /// Matrices that are stored otherwise, by name; `None` of those in the data type of products.
    pub(super) others: Vec<(String, Option<StorageFormat>)>,
    /// Keys and values of the context.
    pub(super) cache: Option<StorageFormat>,
    /// What is multiplied with the layers' matrices.
    pub(super) activations: Option<ActivationFormat>,
}

/// What a config says: rules for modules, and what goes for all.
pub(super) struct Scheme {
    pub(super) rules: Rules,
    pub(super) cache: Option<StorageFormat>,
    pub(super) activations: Option<ActivationFormat>,
}

impl Scheme {
    /// One format, but for the modules that a config names.
    pub(super) fn of(format: StorageFormat, rules: Rules) -> Self {
        let mut rules = rules;
        rules.others(format);
        Self { rules, cache: None, activations: None }
    }
}

impl Fields {
    /// Formats that are applied to a model of `dtype`; a note where one is named that is not: not known here, or for the reason given.
    pub(super) fn quantization(
        &self,
        architecture: &Architecture,
        family: &str,
        dtype: &str,
        why_not: Option<&str>,
        notes: &mut Vec<String>,
    ) -> Quantisation {
        let Some(config) = self.map.get("quantization_config").filter(|config| !config.is_null()) else {
            return Quantisation::default();
        };
        let method = word(config, "quant_method");
        let known = if method == "compressed-tensors" { of_groups(config) } else { of_method(config) };
        let mut of_modules = Vec::new();
        let known = known.ok().map(|scheme| by_matrix(&scheme, architecture, family, &mut of_modules));
        let fits = |found: &Quantisation| {
            let product = found.activations.as_ref().map_or(dtype, |narrow| &narrow.dtype);
            let of_others = found.others.iter().filter_map(|(_, format)| format.as_ref());
            found.weights.iter().chain(of_others).all(|format| format.fits(product))
                && found.cache.as_ref().is_none_or(|format| format.fits(dtype))
        };
        let unfit = known.as_ref().is_some_and(|found| !fits(found));
        let Some(found) = known.filter(|found| why_not.is_none() && fits(found)) else {
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
            return Quantisation::default();
        };
        notes.extend(of_modules);
        if config.get("lm_head").and_then(Value::as_bool) == Some(true) {
            notes.push(
                "`quantization_config` stores the output matrix in the format too: here it stays in the data type"
                    .to_owned(),
            );
        }
        let is_half = |value: &Value| value.as_str().is_some_and(|text| text.contains("24") || text == "2:4");
        let structure = config.get("sparsity_config").and_then(|sparse| sparse.get("sparsity_structure"));
        if structure.or(config.get("format")).is_some_and(is_half) {
            notes.push(
                "`quantization_config` prunes two of four weights (2:4): here all are stored and multiplied, in its format"
                    .to_owned(),
            );
        }
        found
    }
}

/// The format of each matrix of a layer by the rules; `notes` hear of what cannot be said of all layers alike.
fn by_matrix(scheme: &Scheme, architecture: &Architecture, family: &str, notes: &mut Vec<String>) -> Quantisation {
    let usual = scheme.rules.usual().cloned();
    let Scheme { cache, activations, .. } = scheme;
    let mut found =
        Quantisation { weights: usual, others: Vec::new(), cache: cache.clone(), activations: activations.clone() };
    if scheme.rules.is_uniform() {
        return found;
    }
    let has_query_latent = architecture.extras.latent.is_some_and(|latent| latent.query.is_some());
    let Some(modules) = modules(family, has_query_latent) else {
        notes.push(
            "`quantization_config` names modules of their own: here all matrices of the layers have one format"
                .to_owned(),
        );
        return found;
    };
    let layers = architecture.layers.min(MOST_LAYERS);
    let mut differing = Vec::new();
    for (matrix, module) in modules {
        let of_layer = |layer: u64| scheme.rules.format_of(&format!("model.layers.{layer}.{module}"));
        let first = of_layer(0);
        // The layers without experts are the first.
        let first_of_kind = if matrix.contains("expert") || matrix.contains("router") || matrix.contains("shared") {
            architecture.extras.dense_layers
        } else {
            0
        };
        let format = if first_of_kind == 0 { first } else { of_layer(first_of_kind) };
        let is_one = (first_of_kind..layers).all(|layer| of_layer(layer) == format);
        if !is_one {
            differing.push(module);
        }
        let format = format.filter(|_| is_one).cloned();
        if format != found.weights {
            found.others.push((matrix.to_owned(), format));
        }
    }
    if !differing.is_empty() {
        differing.dedup();
        notes.push(format!(
            "`quantization_config` stores {} otherwise in some layers than in others: here they are in the data type of products in all",
            differing.join(", ")
        ));
    }
    found
}

/// Most layers that rules are compared in.
const MOST_LAYERS: u64 = 1024;

pub(super) fn word<'a>(config: &'a Value, key: &str) -> &'a str {
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
pub(super) struct Unknown;

/// AWQ, GPTQ, and FP8 with `activation_scheme`.
pub(super) fn of_method(config: &Value) -> Result<Scheme, Unknown> {
    let mut rules = Rules::default();
    for key in ["modules_to_not_convert", "ignored_layers"] {
        rules.leave_out(config.get(key)).map_err(|_| Unknown)?;
    }
    let bits = config.get("bits").and_then(Value::as_i64);
    let flag = |key: &str| config.get(key).and_then(Value::as_bool);
    match (word(config, "quant_method"), bits) {
        (method @ ("awq" | "gptq"), Some(bits @ (4 | 8))) => {
            let mut format = StorageFormat { group: group(config)?, ..StorageFormat::new(&format!("int{bits}")) };
            // AWQ has zero points unless it says otherwise, GPTQ has none.
            format.has_zero_points = match method {
                "awq" => flag("zero_point").unwrap_or(true),
                _ => flag("sym") == Some(false),
            };
            if method == "gptq" {
                rules.dynamic(config.get("dynamic"), &format, changed).map_err(|_| Unknown)?;
            }
            Ok(Scheme::of(format, rules))
        }
        ("fp8", _) if config.get("weight_block_size").is_none_or(Value::is_null) => {
            let scheme = word(config, "activation_scheme");
            let of = |is_by_token| ActivationFormat { dtype: "fp8_e4m3".to_owned(), is_by_token };
            let activations = ["static", "dynamic"].contains(&scheme).then(|| of(scheme == "dynamic"));
            Ok(Scheme { activations, ..Scheme::of(StorageFormat::new("fp8_e4m3"), rules) })
        }
        _ => Err(Unknown),
    }
}

/// A format of GPTQ with the bits, groups and symmetry that a rule of `dynamic` changes.
fn changed(rule: &Value, usual: &StorageFormat) -> Option<StorageFormat> {
    let mut format = usual.clone();
    match rule.get("bits").map(Value::as_i64) {
        None => {}
        Some(Some(bits @ (4 | 8))) => format.format = format!("int{bits}"),
        Some(_) => return None,
    }
    if rule.get("group_size").is_some() {
        format.group = group(rule).ok()?;
    }
    if let Some(is_symmetric) = rule.get("sym").and_then(Value::as_bool) {
        format.has_zero_points = !is_symmetric;
    }
    Some(format)
}

/// `compressed-tensors`: groups of modules, each of which says how weights and their inputs are stored.
pub(super) fn of_groups(config: &Value) -> Result<Scheme, Unknown> {
    let groups = config.get("config_groups").and_then(Value::as_object).filter(|groups| !groups.is_empty());
    let mut rules = Rules::default();
    rules.ignore(config.get("ignore")).map_err(|_| Unknown)?;
    let mut of_inputs: Option<Option<ActivationFormat>> = None;
    for group in groups.ok_or(Unknown)?.values() {
        let (format, activations) = of_group(group)?;
        // Products of one model have inputs of one kind here.
        if of_inputs.as_ref().is_some_and(|known| *known != activations) {
            return Err(Unknown);
        }
        of_inputs = Some(activations);
        match group.get("targets") {
            None => rules.others(format),
            targets => rules.targets(targets, Some(&format)).map_err(|_| Unknown)?,
        }
    }
    let cache = match config.get("kv_cache_scheme").filter(|of| !of.is_null()) {
        None => None,
        Some(of) => Some(StorageFormat::new(&eight_bits(of).ok_or(Unknown)?)),
    };
    Ok(Scheme { rules, cache, activations: of_inputs.flatten() })
}

/// How a group stores its weights, and what they are multiplied with.
fn of_group(of: &Value) -> Result<(StorageFormat, Option<ActivationFormat>), Unknown> {
    let given = |key: &str| of.get(key).filter(|of| !of.is_null());
    let weights = given("weights").ok_or(Unknown)?;
    let activations = match given("input_activations") {
        None => None,
        Some(of) => {
            let (dtype, is_by_token) = (eight_bits(of).ok_or(Unknown)?, word(of, "strategy") == "token");
            if !is_by_token && word(of, "strategy") != "tensor" {
                return Err(Unknown);
            }
            Some(ActivationFormat { dtype, is_by_token })
        }
    };
    let format = match (word(weights, "type"), weights.get("num_bits").and_then(Value::as_i64)) {
        ("int", Some(4)) => "int4".to_owned(),
        _ => eight_bits(weights).ok_or(Unknown)?,
    };
    let (is_integer, size) = (format.starts_with("int"), group(weights)?);
    let mut stored = StorageFormat::new(&format);
    match word(weights, "strategy") {
        "tensor" => stored.has_one_scale = is_integer,
        "channel" => stored.group = (!is_integer).then_some(LONGEST),
        "group" | "" => stored.group = size,
        _ => return Err(Unknown),
    }
    stored.has_zero_points = is_integer && weights.get("symmetric").and_then(Value::as_bool) == Some(false);
    Ok((stored, activations))
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
