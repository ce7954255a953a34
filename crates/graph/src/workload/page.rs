//! The text of a graph that a program makes, field by field, and the place of each value in it.

use std::fmt::Write as _;

use toml::Spanned;

use super::described::{
    EXTENTS, FLAGS, Kept, LISTS, OperatorFields, OperatorOptions, Sparse, StoredIn, TensorFields, Training,
};
use super::spec::{BlockSpec, Extent, OperatorSpec, SparsitySpec, StorageSpec, TensorSpec, TrainingSpec};
use rdusim_base::input::{Count, Real, Table};

impl Extent {
    fn shown(&self) -> String {
        match self {
            Self::Dim(name) => quoted(name),
            Self::Number(Count(count)) => count.to_string(),
        }
    }

    pub(super) fn is_dim(&self, name: &str) -> bool {
        matches!(self, Self::Dim(of) if of == name)
    }
}

/// A text as it grows, and the places of values in it.
#[derive(Default)]
pub(super) struct Page {
    pub(super) text: String,
}

impl Page {
    pub(super) fn line(&mut self, of: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.text, "{of}");
    }

    pub(super) fn blank(&mut self) {
        self.text.push('\n');
    }

    /// Writes a value; it knows its place.
    pub(super) fn put<T>(&mut self, shown: &str, value: T) -> Spanned<T> {
        let start = self.text.len();
        self.text.push_str(shown);
        Spanned::new(start..self.text.len(), value)
    }

    pub(super) fn field<T>(&mut self, key: &str, shown: &str, value: T) -> Spanned<T> {
        let _ = write!(self.text, "{key} = ");
        let value = self.put(shown, value);
        self.blank();
        value
    }

    pub(super) fn word(&mut self, key: &str, value: &str) -> Spanned<String> {
        self.field(key, &quoted(value), value.to_owned())
    }

    /// A list of values in brackets, without the end of the line.
    fn list<T, U>(
        &mut self,
        of: &[T],
        shown: impl Fn(&T) -> String,
        value: impl Fn(&T) -> U,
    ) -> Spanned<Vec<Spanned<U>>> {
        let start = self.text.len();
        self.text.push('[');
        let mut values = Vec::with_capacity(of.len());
        for (at, one) in of.iter().enumerate() {
            if at > 0 {
                self.text.push_str(", ");
            }
            values.push(self.put(&shown(one), value(one)));
        }
        self.text.push(']');
        Spanned::new(start..self.text.len(), values)
    }

    fn words(&mut self, key: &str, of: &[String]) -> Spanned<Vec<Spanned<String>>> {
        let _ = write!(self.text, "{key} = ");
        let list = self.list(of, |word| quoted(word), Clone::clone);
        self.blank();
        list
    }

    fn counts(&mut self, of: &[u64]) -> Spanned<Vec<Spanned<Count>>> {
        self.list(of, u64::to_string, |&count| Count(count.into()))
    }

    pub(super) fn training(&mut self, of: &Training) -> Spanned<Table<TrainingSpec>> {
        self.blank();
        let start = self.text.len();
        self.line(format_args!("[training]"));
        let end = self.text.len() - 1;
        let optimizer = self.word("optimizer", &of.optimizer);
        let activations = Some(self.word("activations", &of.activations));
        let micro_batches =
            of.micro_batches.map(|count| self.field("micro_batches", &count.to_string(), Count(count.into())));
        Spanned::new(start..end, TrainingSpec { optimizer, activations, micro_batches, pattern: None }.into())
    }

    pub(super) fn block(&mut self, name: &str, times: &Extent) -> Table<BlockSpec> {
        self.line(format_args!("\n[[blocks]]"));
        let name = self.word("name", name);
        let repeat = self.field("repeat", &times.shown(), times.clone());
        BlockSpec { name, repeat }.into()
    }

    pub(super) fn tensor(&mut self, of: &TensorFields) -> Table<TensorSpec> {
        self.line(format_args!("\n[[tensors]]"));
        let name = self.word("name", &of.name);
        let shape = of.shape.as_ref().map(|shape| {
            self.text.push_str("shape = ");
            let shape = self.list(shape, Extent::shown, Clone::clone);
            self.blank();
            shape
        });
        let role = of.role.map(|role| self.word("role", role));
        let Kept { dtype, storage, sparsity } = &of.kept;
        let dtype = dtype.as_ref().map(|dtype| self.word("dtype", dtype));
        let storage = storage.as_ref().map(|storage| self.storage(storage));
        let sparsity = sparsity.as_ref().map(|sparsity| self.sparsity(sparsity));
        TensorSpec { name, shape, dtype, role, sparsity, storage, activation_sparsity: None }.into()
    }

    /// Writes a table in one line: `key = { ... }`.
    fn table<T>(&mut self, key: &str, fields: impl FnOnce(&mut Self) -> T) -> Spanned<Table<T>> {
        let _ = write!(self.text, "{key} = ");
        let start = self.text.len();
        self.text.push_str("{ ");
        let of = fields(self);
        self.text.push_str(" }");
        let of = Spanned::new(start..self.text.len(), of.into());
        self.blank();
        of
    }

    /// A field of such a table, behind a comma unless it is the first.
    fn entry<T>(&mut self, key: &str, shown: &str, value: T) -> Spanned<T> {
        self.key(key);
        self.put(shown, value)
    }

    fn key(&mut self, key: &str) {
        let comma = if self.text.ends_with("{ ") { "" } else { ", " };
        let _ = write!(self.text, "{comma}{key} = ");
    }

    fn storage(&mut self, of: &StoredIn) -> Spanned<Table<StorageSpec>> {
        self.table("storage", |page| StorageSpec {
            format: page.entry("format", &quoted(&of.format), of.format.clone()),
            group: of.group.map(|group| page.entry("group", &group.to_string(), Count(group.into()))),
            one_scale: of.one_scale.then(|| page.entry("one_scale", "true", true)),
            scales: of.scales.map(|scales| page.entry("scales", &quoted(scales), scales.to_owned())),
            zero_points: of.zero_points.then(|| page.entry("zero_points", "true", true)),
        })
    }

    fn sparsity(&mut self, of: &Sparse) -> Spanned<Table<SparsitySpec>> {
        let pattern = if matches!(of, Sparse::Blocks { .. }) { "block" } else { "file" };
        self.table("sparsity", |page| {
            let pattern = page.entry("pattern", &quoted(pattern), pattern.to_owned());
            let mut spec = SparsitySpec::of_pattern(pattern);
            let real = |page: &mut Self, density: f64| page.entry("density", &format!("{density:?}"), Real(density));
            let block = |page: &mut Self, sizes: &[u64]| {
                page.key("block");
                page.counts(sizes)
            };
            match of {
                Sparse::Blocks { density, block: size, seed } => {
                    spec.density = Some(real(page, *density));
                    spec.block = Some(block(page, &[*size, *size]));
                    spec.seed = Some(page.entry("seed", &seed.to_string(), Count((*seed).into())));
                }
                Sparse::File { file, key, transpose, density, block: size } => {
                    spec.file = Some(page.entry("file", &quoted(file), file.clone()));
                    spec.key = Some(page.entry("key", &quoted(key), key.clone()));
                    spec.transpose = transpose.then(|| page.entry("transpose", "true", true));
                    spec.density = density.map(|density| real(page, density));
                    spec.block = size.map(|(rows, columns)| block(page, &[rows, columns]));
                }
            }
            spec
        })
    }

    pub(super) fn operator(&mut self, of: &OperatorFields) -> Table<OperatorSpec> {
        self.blank();
        self.line(format_args!("[[operators]]"));
        let name = self.word("name", &of.name);
        let kind = self.word("kind", &of.kind);
        let inputs = self.words("inputs", &of.inputs);
        let output = self.word("output", &of.output);
        let OperatorOptions { vectors, extents, flags, lists } = &of.options;
        let vectors = (!vectors.is_empty()).then(|| self.words("vectors", vectors));
        let mut flag = |at: usize| flags[at].then(|| self.field(FLAGS[at], "true", true));
        let (transpose_a, transpose_b) = (flag(0), flag(1));
        let mut extent = |at: usize| extents[at].as_ref().map(|of| self.field(EXTENTS[at], &of.shown(), of.clone()));
        let (batch, heads, kv_heads, filled_rows, groups) = (extent(0), extent(1), extent(2), extent(3), extent(4));
        let causal = flags[2].then(|| self.field(FLAGS[2], "true", true));
        let mut list = |at: usize| {
            (!lists[at].is_empty()).then(|| {
                let _ = write!(self.text, "{} = ", LISTS[at]);
                let list = self.counts(&lists[at]);
                self.blank();
                list
            })
        };
        let (image, kernel, stride, padding, dilation) = (list(0), list(1), list(2), list(3), list(4));
        let block = of.block.as_ref().map(|block| self.word("block", block));
        OperatorSpec {
            name,
            kind,
            inputs,
            output,
            block,
            vectors,
            batch,
            heads,
            kv_heads,
            filled_rows,
            transpose_a,
            transpose_b,
            causal,
            image,
            kernel,
            stride,
            padding,
            dilation,
            groups,
        }
        .into()
    }
}

/// A string as TOML writes it.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.replace(|c: char| c.is_control(), " ")).to_string()
}
