//! A graph of standard operators under construction, and what a call of a PyTorch operator was given.

use std::collections::{BTreeMap, BTreeSet};

use super::schema::{Argument, Meta, Name, Node, Real, Size, SymInt};
use crate::import::proto::{self, Attribute, Dim, Graph, Tensor, ValueInfo};

/// Attributes of a node.
pub(super) type Attributes = Vec<(&'static str, Attribute<'static>)>;

/// A node.
#[derive(Debug)]
struct Step {
    op: String,
    name: String,
    inputs: Vec<String>,
    outputs: Vec<String>,
    attributes: Attributes,
}

/// A stored tensor, or a constant of a call.
#[derive(Debug)]
pub(super) struct Constant {
    pub(super) name: String,
    pub(super) dims: Vec<u64>,
    /// As ONNX counts.
    pub(super) data_type: i64,
    /// Little-endian elements, where they are known.
    pub(super) raw: Option<Vec<u8>>,
}

/// A graph under construction.
#[derive(Debug)]
pub(super) struct Build<'p> {
    metas: &'p BTreeMap<String, Meta>,
    /// What stored tensors are called in the graph, and in the model.
    names: BTreeMap<String, String>,
    taken: BTreeSet<String>,
    constants: Vec<Constant>,
    steps: Vec<Step>,
    /// How often a new name was wanted.
    fresh: BTreeMap<String, usize>,
}

/// `TensorProto.DataType` of a `ScalarType`; 0 of types that ONNX has not.
pub(super) fn data_type(scalar: i64) -> i64 {
    match scalar {
        1 => 2,
        2 => 3,
        3 => 5,
        4 => 6,
        5 => 7,
        6 => 10,
        7 => 1,
        8 => 11,
        12 => 9,
        13 => 16,
        _ => 0,
    }
}

impl<'p> Build<'p> {
    pub(super) fn new(metas: &'p BTreeMap<String, Meta>) -> Self {
        Self {
            metas,
            names: BTreeMap::new(),
            taken: BTreeSet::new(),
            constants: Vec::new(),
            steps: Vec::new(),
            fresh: BTreeMap::new(),
        }
    }

    /// Adds a stored tensor under the name that the model gives it, if that is free.
    pub(super) fn store(&mut self, value: &str, name: &str, constant: Constant) {
        let is_free = !self.metas.contains_key(name) && !name.is_empty() && self.taken.insert(name.to_owned());
        let name = if is_free { name } else { value }.to_owned();
        self.names.insert(value.to_owned(), name.clone());
        self.constants.push(Constant { name, ..constant });
    }

    /// Whether a value is stored.
    pub(super) fn is_stored(&self, value: &str) -> bool {
        self.names.contains_key(value)
    }

    /// A value as the graph under construction calls it.
    pub(super) fn name(&self, value: &str) -> String {
        self.names.get(value).map_or(value, String::as_str).to_owned()
    }

    /// The sizes of a value as far as they are numbers.
    pub(super) fn sizes(&self, value: &str) -> Option<Vec<Option<i64>>> {
        let meta = self.metas.get(value)?;
        Some(meta.sizes.iter().map(|size| size.as_int.filter(|&size| size >= 0)).collect())
    }

    /// The sizes of a value that are all numbers.
    pub(super) fn fixed(&self, value: &str) -> Option<Vec<i64>> {
        self.sizes(value)?.into_iter().collect()
    }

    /// Axes of a value.
    pub(super) fn rank(&self, value: &str) -> Option<i64> {
        i64::try_from(self.metas.get(value)?.sizes.len()).ok()
    }

    /// A name that no value has: those of PyTorch are identifiers with dots.
    pub(super) fn fresh(&mut self, of: &str, what: &str) -> String {
        let name = format!("{of}~{what}");
        let count = self.fresh.entry(name.clone()).or_default();
        *count += 1;
        if *count == 1 { name } else { format!("{name}~{count}") }
    }

    /// Adds a node with a result of a name.
    pub(super) fn step(&mut self, op: &str, inputs: &[String], output: &str, attributes: Attributes) {
        self.steps_of(op, inputs, &[output.to_owned()], attributes);
    }

    /// Adds a node with results of these names.
    pub(super) fn steps_of(&mut self, op: &str, inputs: &[String], outputs: &[String], attributes: Attributes) {
        let name = outputs.first().cloned().unwrap_or_default();
        self.steps.push(Step {
            op: op.to_owned(),
            name,
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
            attributes,
        });
    }

    /// Adds a node with a result of a new name.
    pub(super) fn made(&mut self, op: &str, inputs: &[String], of: &str, attributes: Attributes) -> String {
        let output = self.fresh(of, &op.to_ascii_lowercase());
        self.step(op, inputs, &output, attributes);
        output
    }

    fn constant(&mut self, dims: Vec<u64>, data_type: i64, raw: Vec<u8>) -> String {
        let name = self.fresh("", "constant");
        self.constants.push(Constant { name: name.clone(), dims, data_type, raw: Some(raw) });
        name
    }

    /// A list of integers.
    pub(super) fn ints(&mut self, list: &[i64]) -> String {
        self.constant(vec![list.len() as u64], 7, list.iter().flat_map(|number| number.to_le_bytes()).collect())
    }

    /// An integer.
    pub(super) fn int(&mut self, number: i64) -> String {
        self.constant(Vec::new(), 7, number.to_le_bytes().to_vec())
    }

    /// A real number.
    pub(super) fn real(&mut self, number: f64) -> String {
        self.constant(Vec::new(), 11, number.to_le_bytes().to_vec())
    }

    /// A list of integers of which some are computed from sizes.
    pub(super) fn sizes_of(&mut self, list: &[SymInt]) -> Option<String> {
        if let Some(fixed) = list.iter().map(|size| size.as_int).collect::<Option<Vec<i64>>>() {
            return Some(self.ints(&fixed));
        }
        let mut parts = Vec::with_capacity(list.len());
        for size in list {
            parts.push(match (&size.as_int, &size.as_name) {
                (Some(size), _) => self.ints(&[*size]),
                (None, Some(name)) => {
                    let one = self.ints(&[1]);
                    self.made("Reshape", &[name.clone(), one], name, Vec::new())
                }
                (None, None) => return None,
            });
        }
        Some(self.made("Concat", &parts, "sizes", vec![("axis", Attribute::Int(0))]))
    }

    /// The graph. `inputs` and `outputs` are values of the program.
    pub(super) fn graph<'g>(&'g self, inputs: &'g [String], outputs: &'g [String]) -> Graph<'g> {
        let initializer = |constant: &'g Constant| Tensor {
            name: &constant.name,
            dims: constant.dims.clone(),
            data_type: constant.data_type,
            raw: constant.raw.as_deref(),
            is_external: constant.raw.is_none(),
            ..Tensor::default()
        };
        let info = |name: &'g String| {
            let meta = self.metas.get(name);
            ValueInfo {
                name,
                data_type: meta.map_or(0, |meta| data_type(meta.dtype)),
                shape: meta.map(|meta| meta.sizes.iter().map(dim).collect()),
            }
        };
        let node = |step: &'g Step| proto::Node {
            name: &step.name,
            op: &step.op,
            domain: "",
            inputs: step.inputs.iter().map(String::as_str).collect(),
            outputs: step.outputs.iter().map(String::as_str).collect(),
            attributes: step.attributes.clone(),
        };
        let made: BTreeSet<&String> = self.steps.iter().flat_map(|step| &step.outputs).collect();
        Graph {
            name: "",
            nodes: self.steps.iter().map(node).collect(),
            initializers: self.constants.iter().map(initializer).collect(),
            inputs: inputs.iter().map(info).collect(),
            outputs: outputs.iter().map(|name| ValueInfo { name, ..ValueInfo::default() }).collect(),
            values: self.metas.keys().filter(|name| made.contains(name)).map(info).collect(),
            sparse: 0,
        }
    }
}

/// A dimension: a number, or the symbol of a size that was left open. Expressions are `srepr` of sympy.
fn dim(size: &Size) -> Dim<'_> {
    if let Some(size) = size.as_int {
        return u64::try_from(size).map_or(Dim::Unknown, Dim::Known);
    }
    let text = size.as_expr.as_ref().map_or("", |expression| expression.expr_str.trim());
    let quoted = text.strip_prefix("Symbol('").and_then(|rest| rest.split_once('\'')).map(|(name, _)| name);
    let is_name = |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    quoted.or(Some(text)).filter(is_name).map_or(Dim::Unknown, Dim::Named)
}

/// A call of an operator.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'p>(pub(super) &'p Node);

impl<'p> Call<'p> {
    fn arg(self, name: &str) -> Option<&'p Argument> {
        self.0.inputs.iter().find(|named| named.name == name).map(|named| &named.arg)
    }

    /// A tensor by the name that the operator gives it.
    pub(super) fn tensor(self, name: &str) -> Option<&'p str> {
        let arg = self.arg(name)?;
        let optional = arg.as_optional_tensor.as_ref().and_then(|optional| optional.as_tensor.as_ref());
        arg.as_tensor.as_ref().or(optional).map(|tensor| tensor.name.as_str())
    }

    /// A list of tensors.
    pub(super) fn tensors(self, name: &str) -> Option<Vec<&'p str>> {
        Some(self.arg(name)?.as_tensors.as_ref()?.iter().map(|tensor| tensor.name.as_str()).collect())
    }

    /// Every tensor.
    pub(super) fn all_tensors(self) -> Vec<&'p str> {
        let of = |arg: &'p Argument| {
            let one = arg.as_tensor.iter();
            let list = arg.as_tensors.iter().flatten();
            let optional = arg.as_optional_tensors.iter().flatten().filter_map(|tensor| tensor.as_tensor.as_ref());
            one.chain(list).chain(optional).map(|Name { name }| name.as_str())
        };
        self.0.inputs.iter().flat_map(|named| of(&named.arg)).collect()
    }

    pub(super) fn int(self, name: &str) -> Option<i64> {
        let arg = self.arg(name)?;
        arg.as_int.or_else(|| arg.as_sym_int.as_ref()?.as_int)
    }

    /// A list of integers, or one.
    pub(super) fn ints(self, name: &str) -> Option<Vec<i64>> {
        let arg = self.arg(name)?;
        let fixed = || arg.as_sym_ints.as_ref()?.iter().map(|size| size.as_int).collect();
        arg.as_ints.clone().or_else(fixed).or_else(|| self.int(name).map(|one| vec![one]))
    }

    /// A list of integers, some of which may be computed.
    pub(super) fn sizes(self, name: &str) -> Option<Vec<SymInt>> {
        let arg = self.arg(name)?;
        let fixed = |list: &Vec<i64>| list.iter().map(|&size| SymInt { as_int: Some(size), as_name: None }).collect();
        arg.as_sym_ints.clone().or_else(|| arg.as_ints.as_ref().map(fixed))
    }

    /// A number that may be computed; `None` where it is left out.
    pub(super) fn size(self, name: &str) -> Option<SymInt> {
        let arg = self.arg(name)?;
        arg.as_sym_int.clone().or_else(|| arg.as_int.map(|size| SymInt { as_int: Some(size), as_name: None }))
    }

    pub(super) fn real(self, name: &str) -> Option<f64> {
        let arg = self.arg(name)?;
        match &arg.as_float {
            Some(Real::Number(number)) => Some(*number),
            Some(Real::Text(text)) => match text.as_str() {
                "Infinity" => Some(f64::INFINITY),
                "-Infinity" => Some(f64::NEG_INFINITY),
                _ => None,
            },
            None => arg.as_int.map(|number| number as f64),
        }
    }

    pub(super) fn flag(self, name: &str) -> Option<bool> {
        self.arg(name)?.as_bool
    }

    pub(super) fn text(self, name: &str) -> Option<&'p str> {
        self.arg(name)?.as_string.as_deref()
    }

    pub(super) fn scalar_type(self, name: &str) -> Option<i64> {
        self.arg(name)?.as_scalar_type
    }

    /// A tensor, or a number as a constant.
    pub(super) fn operand(self, build: &mut Build<'_>, name: &str) -> Option<String> {
        if let Some(tensor) = self.tensor(name) {
            return Some(build.name(tensor));
        }
        let arg = self.arg(name)?;
        if let Some(name) = arg.as_sym_int.as_ref().and_then(|size| size.as_name.as_ref()) {
            return Some(name.clone());
        }
        match (self.int(name), arg.as_bool) {
            (Some(number), _) => Some(build.int(number)),
            (None, Some(flag)) => Some(build.int(i64::from(flag))),
            (None, None) => self.real(name).map(|number| build.real(number)),
        }
    }

    /// Names of the results; empty for those that are left out.
    pub(super) fn outputs(self) -> Vec<String> {
        let of = |arg: &Argument| -> Vec<String> {
            if let Some(list) = &arg.as_tensors {
                return list.iter().map(|tensor| tensor.name.clone()).collect();
            }
            let size = arg.as_sym_int.as_ref().and_then(|size| size.as_name.clone());
            vec![arg.as_tensor.as_ref().map(|tensor| tensor.name.clone()).or(size).unwrap_or_default()]
        };
        self.0.outputs.iter().flat_map(of).collect()
    }
}
