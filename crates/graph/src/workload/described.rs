//! What a program says of the tensors and operators of a graph that it makes.

use super::spec::Extent;
use rdusim_base::input::Count;

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
