//! A workload in the making: tensors and operators as records.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::proto::Tensor as Stored;
use rdusim_graph::workload::{Builder, Graph, Kept, OperatorFields, OperatorOptions, Sparse, StoredIn, TensorFields};

/// What a tensor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Input,
    Weight,
    /// An operator makes it.
    Made,
}

/// The stored tensor behind a weight, and how its elements come to lie as K rows by N columns.
#[derive(Debug, Clone)]
pub(super) struct Origin<'a> {
    pub(super) stored: Rc<Stored<'a>>,
    /// The stored tensor has N as rows.
    pub(super) is_transposed: bool,
    /// The first of the columns, of so many.
    pub(super) columns: (u64, u64),
}

/// A tensor.
#[derive(Debug)]
pub(super) struct Tensor<'a> {
    pub(super) name: String,
    pub(super) shape: (u64, u64),
    pub(super) role: Role,
    pub(super) is_output: bool,
    /// Its operator does not tell its shape.
    pub(super) is_view: bool,
    /// Its operator makes the shape that is stated.
    pub(super) states_shape: bool,
    /// Another type than the workload's.
    pub(super) dtype: Option<&'static str>,
    pub(super) origin: Option<Origin<'a>>,
    /// What its `sparsity` says.
    pub(super) sparsity: Option<Sparse>,
    /// What its `storage` would say, where it is the second operand of products alone.
    pub(super) storage: Option<StoredIn>,
}

/// An operator.
#[derive(Debug, Clone)]
pub(super) struct Operator {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) inputs: Vec<usize>,
    pub(super) output: usize,
    pub(super) vectors: Vec<usize>,
    /// It is a product of activations that are quantised.
    pub(super) is_narrow: bool,
    /// What else is said of it.
    pub(super) options: OperatorOptions,
}

/// A workload.
#[derive(Debug, Default)]
pub(super) struct Draft<'a> {
    pub(super) tensors: Vec<Tensor<'a>>,
    pub(super) operators: Vec<Operator>,
    pub(super) notes: Vec<String>,
    /// Names, and how often each was wanted.
    names: FxHashMap<(bool, String), u64>,
}

/// Longest name that is kept as it is.
const LONGEST_NAME: usize = 64;

impl Draft<'_> {
    /// A name of letters, digits and underscores that nothing of the kind has yet.
    pub(super) fn name(&mut self, of_operator: bool, wanted: &str) -> String {
        let wanted = wanted.trim_end_matches("_output_0").trim_end_matches("_quant");
        let mut plain = String::with_capacity(wanted.len());
        for c in wanted.chars() {
            let c = if c.is_ascii_alphanumeric() { c } else { '_' };
            if c != '_' || !(plain.is_empty() || plain.ends_with('_')) {
                plain.push(c);
            }
        }
        let plain = plain.trim_end_matches('_');
        // The end of a long name tells more than its beginning.
        let start = plain.len().saturating_sub(LONGEST_NAME);
        let plain = if plain.is_empty() { "unnamed" } else { plain[start..].trim_start_matches('_') };
        loop {
            let count = self.names.entry((of_operator, plain.to_owned())).or_default();
            *count += 1;
            let name = if *count == 1 { plain.to_owned() } else { format!("{plain}_{count}") };
            if *count == 1 || self.names.insert((of_operator, name.clone()), 1).is_none() {
                return name;
            }
        }
    }

    /// A tensor that an operator makes.
    pub(super) fn made(&mut self, wanted: &str, shape: (u64, u64)) -> usize {
        self.tensor(wanted, shape, Role::Made)
    }

    /// A new tensor.
    pub(super) fn tensor(&mut self, wanted: &str, shape: (u64, u64), role: Role) -> usize {
        let name = self.name(false, wanted);
        self.tensors.push(Tensor {
            name,
            shape,
            role,
            is_output: false,
            is_view: false,
            states_shape: false,
            dtype: None,
            origin: None,
            sparsity: None,
            storage: None,
        });
        self.tensors.len() - 1
    }

    /// Adds an operator.
    pub(super) fn push(
        &mut self,
        wanted: &str,
        kind: &'static str,
        inputs: Vec<usize>,
        output: usize,
    ) -> &mut Operator {
        let name = self.name(true, wanted);
        let at = self.operators.len();
        self.operators.push(Operator {
            name,
            kind,
            inputs,
            output,
            vectors: Vec::new(),
            is_narrow: false,
            options: OperatorOptions::default(),
        });
        &mut self.operators[at]
    }

    /// The operator that makes a tensor.
    pub(super) fn maker(&mut self, tensor: usize) -> Option<&mut Operator> {
        self.operators.iter_mut().rev().find(|operator| operator.output == tensor)
    }

    /// Drops operators whose results nobody reads.
    pub(super) fn prune(&mut self) {
        let mut is_read: Vec<bool> = self.tensors.iter().map(|tensor| tensor.is_output).collect();
        for operator in self.operators.iter().rev() {
            if is_read[operator.output] {
                operator.inputs.iter().chain(&operator.vectors).for_each(|&input| is_read[input] = true);
            }
        }
        self.operators.retain(|operator| is_read[operator.output]);
    }

    /// Elements of the weights that operators read.
    pub(super) fn parameters(&self) -> u64 {
        let used = self.used();
        let weights = self.tensors.iter().zip(&used).filter(|(tensor, used)| **used && tensor.role == Role::Weight);
        weights.map(|(tensor, _)| tensor.shape.0.saturating_mul(tensor.shape.1)).fold(0, u64::saturating_add)
    }

    /// Which tensors operators read or make.
    pub(super) fn used(&self) -> Vec<bool> {
        let mut used = vec![false; self.tensors.len()];
        for operator in &self.operators {
            for &tensor in operator.inputs.iter().chain(&operator.vectors).chain([&operator.output]) {
                used[tensor] = true;
            }
        }
        used
    }

    /// Whether a tensor may be stored in a format of its own: a dense second operand of products that are not of 8 bits, and
    /// nothing else.
    pub(super) fn is_storable(&self, tensor: usize, dtype: &str) -> bool {
        let is_second = |op: &Operator| matches!(op.kind, "gemm" | "conv") && op.inputs.get(1) == Some(&tensor);
        let reads = |op: &Operator| op.inputs.contains(&tensor) || op.vectors.contains(&tensor);
        let is_once = |op: &Operator| op.inputs[0] != tensor && !op.vectors.contains(&tensor);
        self.tensors[tensor].sparsity.is_none()
            && !["int8", "fp8_e4m3", "fp8_e5m2"].contains(&dtype)
            && self.operators.iter().filter(|op| reads(op)).all(|op| is_second(op) && is_once(op))
    }

    /// Whether a product's activations are integers.
    fn is_of_integers(&self, operator: &Operator) -> bool {
        operator.inputs.first().is_some_and(|&first| self.tensors[first].dtype == Some("int8"))
    }

    /// The notes, with one on so many weights that are stored as integers.
    fn notes(&self, stored: usize, dtype: &str) -> Vec<String> {
        let about_storage = (stored > 0).then(|| {
            let narrow = self.operators.iter().filter(|op| op.is_narrow && self.is_of_integers(op)).count();
            format!(
                "{stored} weights are stored as integers of eight bits, with their scales and zero points; {narrow} products are of \
                 such integers, the others of {dtype}"
            )
        });
        self.notes.iter().cloned().chain(about_storage).collect()
    }

    /// The workload. `about` is said in comments at the head of its file; `rows` is a name for the rows of inputs.
    pub(super) fn graph(&self, name: &str, dtype: &str, about: Vec<String>, rows: &str) -> Graph {
        let is_stored = |tensor: usize| self.tensors[tensor].storage.is_some() && self.is_storable(tensor, dtype);
        let stored = (0..self.tensors.len()).filter(|&tensor| is_stored(tensor)).count();
        let used = self.used();
        let inputs = || self.tensors.iter().zip(&used).filter(|(t, used)| **used && t.role == Role::Input);
        // The rows that most inputs have get a name, so that they can be changed in one place.
        let most = inputs()
            .map(|(t, _)| t.shape.0)
            .max_by_key(|&rows| (inputs().filter(|(t, _)| t.shape.0 == rows).count(), rows));
        let most = most.filter(|&rows| rows > 1);
        let extent = |size: u64, role: Role| match most {
            Some(most) if most == size && role == Role::Input => rows.into(),
            _ => size.into(),
        };
        let mut tensors = Vec::new();
        for (index, tensor) in self.tensors.iter().enumerate().filter(|(index, _)| used[*index]) {
            let Tensor { name, shape, role, is_output, dtype: own, sparsity, storage, .. } = tensor;
            let has_shape = tensor.is_view || tensor.states_shape;
            if *role == Role::Made && !has_shape && !is_output && own.is_none() {
                continue;
            }
            let storage = storage.clone().filter(|_| is_stored(index));
            tensors.push(TensorFields {
                name: name.clone(),
                shape: (*role != Role::Made || has_shape).then(|| [extent(shape.0, *role), shape.1.into()]),
                role: match role {
                    Role::Input => Some("input"),
                    Role::Weight => Some("weight"),
                    Role::Made => is_output.then_some("output"),
                },
                kept: Kept { dtype: own.map(str::to_owned), storage, sparsity: sparsity.clone() },
            });
        }
        let name_of = |&tensor: &usize| self.tensors[tensor].name.clone();
        let operators = self.operators.iter().map(|operator| OperatorFields {
            name: operator.name.clone(),
            kind: operator.kind.to_owned(),
            inputs: operator.inputs.iter().map(name_of).collect(),
            output: name_of(&operator.output),
            block: None,
            options: OperatorOptions::default().vectors(operator.vectors.iter().map(name_of)).and(&operator.options),
        });
        let graph = Builder {
            about,
            name: name.to_owned(),
            dtype: dtype.to_owned(),
            notes: self.notes(stored, dtype),
            dims: most.map(|size| (rows.to_owned(), size)).into_iter().collect(),
            training: None,
            blocks: Vec::new(),
            tensors,
            operators: operators.collect(),
        };
        graph.finish()
    }
}
