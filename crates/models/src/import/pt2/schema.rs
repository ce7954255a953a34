//! What is read of an exported program: the records of `torch/_export/serde/schema.py`, major version 8.
//!
//! A union is written as a table with one key, so that each is a table here whose keys may all be missing. Keys that
//! are not named here are skipped.

use std::collections::BTreeMap;

use serde::Deserialize;

/// `ExportedProgram`.
#[derive(Debug, Deserialize)]
pub(super) struct Program {
    pub(super) graph_module: Module,
    #[serde(default)]
    pub(super) torch_version: String,
}

/// What every version has.
#[derive(Debug, Deserialize)]
pub(super) struct Versioned {
    pub(super) schema_version: Option<Version>,
}

/// `SchemaVersion`.
#[derive(Debug, Deserialize, Clone, Copy)]
pub(super) struct Version {
    pub(super) major: i64,
    #[serde(default)]
    pub(super) minor: i64,
}

/// `GraphModule`.
#[derive(Debug, Deserialize)]
pub(super) struct Module {
    pub(super) graph: Graph,
    pub(super) signature: Signature,
}

/// `Graph`.
#[derive(Debug, Deserialize)]
pub(super) struct Graph {
    pub(super) inputs: Vec<Argument>,
    pub(super) outputs: Vec<Argument>,
    pub(super) nodes: Vec<Node>,
    pub(super) tensor_values: BTreeMap<String, Meta>,
}

/// `TensorMeta`.
#[derive(Debug, Deserialize)]
pub(super) struct Meta {
    /// `ScalarType`.
    pub(super) dtype: i64,
    pub(super) sizes: Vec<Size>,
}

/// `SymInt`.
#[derive(Debug, Deserialize)]
pub(super) struct Size {
    pub(super) as_int: Option<i64>,
    pub(super) as_expr: Option<Expression>,
}

/// `SymExpr`.
#[derive(Debug, Deserialize)]
pub(super) struct Expression {
    pub(super) expr_str: String,
}

/// `Node`.
#[derive(Debug, Deserialize)]
pub(super) struct Node {
    pub(super) target: String,
    pub(super) inputs: Vec<Named>,
    pub(super) outputs: Vec<Argument>,
}

/// `NamedArgument`.
#[derive(Debug, Deserialize)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) arg: Argument,
}

/// A value by name.
#[derive(Debug, Deserialize, Clone)]
pub(super) struct Name {
    pub(super) name: String,
}

/// `SymIntArgument`.
#[derive(Debug, Deserialize, Clone)]
pub(super) struct SymInt {
    pub(super) as_int: Option<i64>,
    pub(super) as_name: Option<String>,
}

/// `OptionalTensorArgument`.
#[derive(Debug, Deserialize, Clone)]
pub(super) struct Optional {
    pub(super) as_tensor: Option<Name>,
}

/// A number, or the name of one that JSON cannot write.
#[derive(Debug, Deserialize, Clone)]
#[serde(untagged)]
pub(super) enum Real {
    Number(f64),
    Text(String),
}

/// `Argument`.
#[derive(Debug, Deserialize, Clone, Default)]
#[expect(clippy::struct_field_names, reason = "the keys of the file")]
pub(super) struct Argument {
    pub(super) as_tensor: Option<Name>,
    pub(super) as_tensors: Option<Vec<Name>>,
    pub(super) as_optional_tensors: Option<Vec<Optional>>,
    pub(super) as_optional_tensor: Option<Optional>,
    pub(super) as_int: Option<i64>,
    pub(super) as_ints: Option<Vec<i64>>,
    pub(super) as_float: Option<Real>,
    pub(super) as_bool: Option<bool>,
    pub(super) as_string: Option<String>,
    pub(super) as_sym_int: Option<SymInt>,
    pub(super) as_sym_ints: Option<Vec<SymInt>>,
    pub(super) as_scalar_type: Option<i64>,
}

/// `GraphSignature`.
#[derive(Debug, Deserialize)]
pub(super) struct Signature {
    pub(super) input_specs: Vec<InputSpec>,
}

/// `InputSpec`.
#[derive(Debug, Deserialize)]
pub(super) struct InputSpec {
    pub(super) parameter: Option<Stored>,
    pub(super) buffer: Option<Stored>,
    pub(super) tensor_constant: Option<Stored>,
}

/// What an input that is stored is called in the graph and in the model.
#[derive(Debug, Deserialize)]
pub(super) struct Stored {
    pub(super) arg: Name,
    #[serde(alias = "parameter_name", alias = "buffer_name", alias = "tensor_constant_name")]
    pub(super) name: String,
}

/// The list of stored tensors: `PayloadConfig`.
#[derive(Debug, Deserialize)]
pub(super) struct Payloads {
    pub(super) config: BTreeMap<String, Payload>,
}

/// `PayloadMeta`.
#[derive(Debug, Deserialize)]
pub(super) struct Payload {
    pub(super) path_name: String,
    #[serde(default)]
    pub(super) use_pickle: bool,
}
