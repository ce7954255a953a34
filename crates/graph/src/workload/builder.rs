//! Graphs that a program makes: a [`Builder`] takes dimensions, tensors and operators as values, and gives a [`Graph`], which becomes a
//! workload without being read, or the text of a workload file.
//!
//! Invariant: the text of a graph is a workload file that reads as the same workload; every value knows its place in the text, so that
//! errors point at the line that a user would see in the file.

use indexmap::IndexMap;
use toml::Spanned;

use super::described::{Kept, OperatorFields, OperatorOptions, TensorFields, Training};
use super::page::{Page, quoted};
use super::spec::{Extent, WorkloadSpec};
use super::{Workload, built, parse};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::{Count, Override, Root, Source};

/// A graph in the making.
#[derive(Debug, Clone, Default)]
pub struct Builder {
    /// Comments at the head of the file, a line each.
    pub about: Vec<String>,
    /// The name of the workload.
    pub name: String,
    /// The data type of tensors that say none.
    pub dtype: String,
    /// What the result is to say of the workload.
    pub notes: Vec<String>,
    /// Dimensions by name. Those that nothing names are left out.
    pub dims: Vec<(String, u64)>,
    /// `[training]`.
    pub training: Option<Training>,
    /// Blocks of operators that are repeated: name and times.
    pub blocks: Vec<(String, Extent)>,
    /// The tensors that are declared, in order.
    pub tensors: Vec<TensorFields>,
    /// The operators, in order.
    pub operators: Vec<OperatorFields>,
}

/// A graph that was built.
#[derive(Debug)]
pub struct Graph {
    text: String,
    spec: WorkloadSpec,
}

impl Graph {
    /// The workload file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The workload file, kept.
    pub fn into_text(self) -> String {
        self.text
    }

    /// The workload. `name` stands for the file in errors, `seed` goes into every random mask.
    pub fn workload(&self, name: &str, seed: u64) -> Result<Workload, Diagnostic> {
        built(&Source::new(name, &self.text, Root::Workload, &[])?, &self.spec, seed)
    }

    /// The workload with the `workload.` overrides among `sets` applied: they name fields of the file.
    pub fn workload_with(&self, name: &str, sets: &[Override], seed: u64) -> Result<Workload, Diagnostic> {
        if sets.iter().any(|set| set.root() == Root::Workload) {
            return parse(name, &self.text, sets, seed);
        }
        self.workload(name, seed)
    }
}

impl Builder {
    /// A graph of a name and a data type, without operators.
    pub fn new(name: &str, dtype: &str) -> Self {
        Self { name: name.to_owned(), dtype: dtype.to_owned(), ..Self::default() }
    }

    /// A product of an M x K input with a K x N weight.
    pub fn product(dtype: &str, m: u64, n: u64, k: u64) -> Self {
        let mut graph = Self::new("gemm", dtype);
        graph.dims = [("m", m), ("n", n), ("k", k)].map(|(name, size)| (name.to_owned(), size)).into();
        graph.tensor("a", ["m".into(), "k".into()], "input");
        graph.tensor("b", ["k".into(), "n".into()], "weight");
        graph.operator("gemm", "gemm", &["a", "b"], "c", &OperatorOptions::default());
        graph
    }

    /// Declares a tensor.
    pub fn tensor(&mut self, name: &str, shape: [Extent; 2], role: &'static str) {
        let (name, kept) = (name.to_owned(), Kept::default());
        self.tensors.push(TensorFields { name, shape: Some(shape), role: Some(role), kept });
    }

    /// Adds an operator.
    pub fn operator(&mut self, name: &str, kind: &str, inputs: &[&str], output: &str, options: &OperatorOptions) {
        self.operators.push(OperatorFields {
            name: name.to_owned(),
            kind: kind.to_owned(),
            inputs: inputs.iter().map(|&input| input.to_owned()).collect(),
            output: output.to_owned(),
            block: None,
            options: options.clone(),
        });
    }

    /// Whether a tensor or an operator names a dimension.
    fn names_dim(&self, name: &str) -> bool {
        let of_shapes = self.tensors.iter().filter_map(|tensor| tensor.shape.as_ref()).flatten();
        let of_operators = self.operators.iter().flat_map(|operator| operator.options.extents.iter().flatten());
        let of_blocks = self.blocks.iter().map(|(_, times)| times);
        of_shapes.chain(of_operators).chain(of_blocks).any(|extent| extent.is_dim(name))
    }

    /// The graph, with its text.
    pub fn finish(&self) -> Graph {
        let mut page = Page::default();
        for line in &self.about {
            page.line(format_args!("# {}", line.replace(|c: char| c.is_control(), " ")));
        }
        page.blank();
        let schema = page.field("schema", "1", Count(1));
        let name = page.word("name", &self.name);
        let dtype = Some(page.word("dtype", &self.dtype));
        let notes = self.write_notes(&mut page);
        let dims = self.write_dims(&mut page);
        let training = self.training.as_ref().map(|training| page.training(training));
        let blocks = self.blocks.iter().map(|(name, times)| page.block(name, times)).collect();
        let tensors = self.tensors.iter().map(|tensor| page.tensor(tensor)).collect();
        let operators = self.operators.iter().map(|operator| page.operator(operator)).collect();
        let operators = Spanned::new(0..page.text.len(), operators);
        let sections = Vec::new();
        let spec = WorkloadSpec {
            schema,
            name,
            dtype,
            notes,
            dims,
            sparsity: None,
            tensors,
            operators,
            sections,
            blocks,
            training,
        };
        Graph { text: page.text, spec }
    }

    fn write_notes(&self, page: &mut Page) -> Vec<Spanned<String>> {
        if self.notes.is_empty() {
            return Vec::new();
        }
        page.line(format_args!("notes = ["));
        let notes = self.notes.iter().map(|note| {
            page.text.push_str("    ");
            let note = page.put(&quoted(note), note.clone());
            page.text.push_str(",\n");
            note
        });
        let notes = notes.collect();
        page.line(format_args!("]"));
        notes
    }

    fn write_dims(&self, page: &mut Page) -> IndexMap<Spanned<String>, Spanned<Count>> {
        let named: Vec<&(String, u64)> = self.dims.iter().filter(|(name, _)| self.names_dim(name)).collect();
        if !named.is_empty() {
            page.line(format_args!("\n[dims]"));
        }
        let dims = named.into_iter().map(|(name, size)| {
            let key = page.put(name, name.clone());
            page.text.push_str(" = ");
            let value = page.put(&size.to_string(), Count((*size).into()));
            page.blank();
            (key, value)
        });
        let mut dims: IndexMap<Spanned<String>, Spanned<Count>> = dims.collect();
        // As they are read.
        dims.sort_by(|a, _, b, _| a.get_ref().cmp(b.get_ref()));
        dims
    }
}
