//! Graphs that a program makes: a [`Builder`] takes dimensions, tensors and operators as values, and gives a [`Graph`], which becomes a
//! workload without being read, or the text of a workload file.
//!
//! Invariant: the text of a graph is a workload file that reads as the same workload; every value knows its place in the text, so that
//! errors point at the line that a user would see in the file.

use indexmap::IndexMap;
use toml::Spanned;

use super::page::{Page, quoted};
use super::spec::{Extent, WorkloadSpec};
use super::{Workload, built, parse};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::{Count, Override, Root, Source};

impl From<u64> for Extent {
    fn from(count: u64) -> Self {
        Self::Number(Count(count.into()))
    }
}

impl From<&str> for Extent {
    /// The name of a dimension, or a number in digits.
    fn from(of: &str) -> Self {
        of.parse::<u64>().map_or_else(|_| Self::Dim(of.to_owned()), Self::from)
    }
}

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

/// `[training]` of a graph.
#[derive(Debug, Clone)]
pub struct Training {
    /// Name of the optimiser.
    pub optimizer: String,
    /// What becomes of activations between the passes.
    pub activations: String,
    /// Micro-batches of a step, if it says so.
    pub micro_batches: Option<u64>,
}

/// A tensor that is declared.
#[derive(Debug, Clone, Default)]
pub struct TensorFields {
    /// Its name.
    pub name: String,
    /// Rows and columns, where they do not follow from the operator that makes it.
    pub shape: Option<[Extent; 2]>,
    /// `input`, `weight` or `output`.
    pub role: Option<&'static str>,
    /// What else is said of it.
    pub kept: Kept,
}

/// How a tensor is kept: its data type, how it is stored and what of it.
#[derive(Debug, Clone, Default)]
pub struct Kept {
    /// Its data type, if not that of the workload.
    pub dtype: Option<String>,
    /// How a second operand is stored.
    pub storage: Option<StoredIn>,
    /// What of it is stored.
    pub sparsity: Option<Sparse>,
}

impl Kept {
    /// In a data type of its own.
    pub fn of_type(dtype: &str) -> Self {
        Self { dtype: Some(dtype.to_owned()), ..Self::default() }
    }
}

/// `storage` of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredIn {
    /// Name of the format.
    pub format: String,
    /// Elements that share a scale, if not as usual.
    pub group: Option<u64>,
    /// Of integers: one scale for the matrix.
    pub one_scale: bool,
    /// Type of the scales, if not as usual.
    pub scales: Option<&'static str>,
    /// Of integers: each scale has a zero point beside it.
    pub zero_points: bool,
}

/// `sparsity` of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum Sparse {
    /// Square blocks, drawn at random.
    Blocks {
        /// Share of the blocks that are stored.
        density: f64,
        /// Rows and columns of a block.
        block: u64,
        /// Of the draw.
        seed: u64,
    },
    /// As a file has it.
    File {
        /// Path of the file.
        file: String,
        /// Name of the tensor in the file.
        key: String,
        /// The file has it transposed.
        transpose: bool,
        /// Share of the blocks that are kept, the largest ones; all that hold something without it.
        density: Option<f64>,
        /// Rows and columns of a block.
        block: Option<(u64, u64)>,
    },
}

/// An operator.
#[derive(Debug, Clone, Default)]
pub struct OperatorFields {
    /// Its name.
    pub name: String,
    /// The name of its kind.
    pub kind: String,
    /// Names of its inputs.
    pub inputs: Vec<String>,
    /// The name of what it makes.
    pub output: String,
    /// The name of the block that it is in.
    pub block: Option<String>,
    /// What else is said of it.
    pub options: OperatorOptions,
}

/// Optional fields of an operator: each method sets one.
#[derive(Debug, Clone, Default)]
pub struct OperatorOptions {
    pub(super) vectors: Vec<String>,
    /// Those that hold a count or the name of a dimension, in the order of [`EXTENTS`].
    pub(super) extents: [Option<Extent>; 5],
    /// Those that hold a word of yes, in the order of [`FLAGS`].
    pub(super) flags: [bool; 3],
    /// Those that hold a list of counts, in the order of [`LISTS`].
    pub(super) lists: [Vec<u64>; 5],
}

pub(super) const EXTENTS: [&str; 5] = ["batch", "heads", "kv_heads", "filled_rows", "groups"];
pub(super) const FLAGS: [&str; 3] = ["transpose_a", "transpose_b", "causal"];
pub(super) const LISTS: [&str; 5] = ["image", "kernel", "stride", "padding", "dilation"];

impl OperatorOptions {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.vectors.is_empty()
            && self.extents.iter().all(Option::is_none)
            && self.flags == [false; 3]
            && self.lists.iter().all(Vec::is_empty)
    }

    /// Vectors that the operator adds or multiplies by, by name.
    #[must_use]
    pub fn vectors<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.vectors = names.into_iter().map(Into::into).collect();
        self
    }

    /// Instances of the product.
    #[must_use]
    pub fn batch(self, count: impl Into<Extent>) -> Self {
        self.extent(0, count.into())
    }

    /// Heads.
    #[must_use]
    pub fn heads(self, count: impl Into<Extent>) -> Self {
        self.extent(1, count.into())
    }

    /// Heads of keys and values.
    #[must_use]
    pub fn kv_heads(self, count: impl Into<Extent>) -> Self {
        self.extent(2, count.into())
    }

    /// Rows of all instances that hold something.
    #[must_use]
    pub fn filled_rows(self, count: impl Into<Extent>) -> Self {
        self.extent(3, count.into())
    }

    /// Groups of channels.
    #[must_use]
    pub fn groups(self, count: impl Into<Extent>) -> Self {
        self.extent(4, count.into())
    }

    /// The first operand is transposed.
    #[must_use]
    pub fn transpose_a(self) -> Self {
        self.flag(0, true)
    }

    /// The second operand is transposed.
    #[must_use]
    pub fn transpose_b(self) -> Self {
        self.flag(1, true)
    }

    /// Whether later positions are left out.
    #[must_use]
    pub fn causal(self, is_causal: bool) -> Self {
        self.flag(2, is_causal)
    }

    /// Rows and columns of an image.
    #[must_use]
    pub fn image(self, sizes: impl Into<Vec<u64>>) -> Self {
        self.list(0, sizes.into())
    }

    /// Rows and columns of a window.
    #[must_use]
    pub fn kernel(self, sizes: impl Into<Vec<u64>>) -> Self {
        self.list(1, sizes.into())
    }

    /// Steps between windows.
    #[must_use]
    pub fn stride(self, sizes: impl Into<Vec<u64>>) -> Self {
        self.list(2, sizes.into())
    }

    /// Rows and columns beside the image.
    #[must_use]
    pub fn padding(self, sizes: impl Into<Vec<u64>>) -> Self {
        self.list(3, sizes.into())
    }

    /// Steps between the elements of a window.
    #[must_use]
    pub fn dilation(self, sizes: impl Into<Vec<u64>>) -> Self {
        self.list(4, sizes.into())
    }

    /// Pooling of windows side by side.
    #[must_use]
    pub fn pooled(self, window: [u64; 2]) -> Self {
        self.image(window).kernel(window).stride(window)
    }

    /// Whether the second operand is transposed.
    pub fn has_transposed_b(&self) -> bool {
        self.flags[1]
    }

    /// Whether heads are said.
    pub fn has_heads(&self) -> bool {
        self.extents[1].is_some()
    }

    /// Whether groups are said.
    pub fn has_groups(&self) -> bool {
        self.extents[4].is_some()
    }

    /// What is said here, and what `others` say beside it.
    #[must_use]
    pub fn and(mut self, others: &Self) -> Self {
        if !others.vectors.is_empty() {
            self.vectors.clone_from(&others.vectors);
        }
        for (own, other) in self.extents.iter_mut().zip(&others.extents) {
            *own = other.clone().or(own.take());
        }
        for (own, other) in self.flags.iter_mut().zip(others.flags) {
            *own |= other;
        }
        for (own, other) in self.lists.iter_mut().zip(&others.lists) {
            if !other.is_empty() {
                own.clone_from(other);
            }
        }
        self
    }

    fn extent(mut self, at: usize, of: Extent) -> Self {
        self.extents[at] = Some(of);
        self
    }

    fn flag(mut self, at: usize, of: bool) -> Self {
        self.flags[at] = of;
        self
    }

    fn list(mut self, at: usize, of: Vec<u64>) -> Self {
        self.lists[at] = of;
        self
    }
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
        match sets.iter().any(|set| set.root() == Root::Workload) {
            true => parse(name, &self.text, sets, seed),
            false => self.workload(name, seed),
        }
    }
}

impl Builder {
    /// A graph of a name and a data type, without operators.
    pub fn new(name: &str, dtype: &str) -> Self {
        Self { name: name.to_owned(), dtype: dtype.to_owned(), ..Self::default() }
    }

    /// A product of an M x K input with a K x N weight.
    pub fn product(dtype: &str, (m, n, k): (u64, u64, u64)) -> Self {
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
        dims.collect()
    }
}
