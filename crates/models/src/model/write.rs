//! The graph of a model and phase.

use std::collections::BTreeSet;

use super::chip_part::Part;
use super::experts::Experts;
use super::extras::Latent;
use super::options::{Options, Phase, Sparsity, WeightFile, checked};
use super::preset::Norm;
use super::storage::StorageFormat;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_graph::workload::{
    Builder, Extent, Graph, Kept, OperatorFields, OperatorOptions, Sparse, TensorFields, Training,
};

/// Name of the block of layers.
const LAYER: &str = "layer";

/// Name of the block of the layers at the front that have no experts.
const DENSE_LAYER: &str = "dense_layer";

/// Name of the block of layers with a recurrence.
const MAMBA_LAYER: &str = "mamba_layer";

/// Name of the block of layers that are a feed-forward block alone.
const FEED_LAYER: &str = "feed_layer";

/// The graph of a model.
///
/// # Errors
/// A diagnostic when heads do not divide the width, or groups of them the heads, or a count is zero.
pub fn describe(options: &Options) -> Result<Graph, Diagnostic> {
    checked(options)?;
    if options.architecture.extras.patches.is_some() && options.phase != Phase::Forward {
        let title = "a model of images has a forward phase alone on one chip: it generates no tokens, and the choice of its class token has no gradient here";
        return Err(Diagnostic::new(title).with_help("use `--phase forward`; `rdusim pod --phase training` trains it"));
    }
    let mut writer = Writer::new(options, None);
    writer.model();
    Ok(writer.graph())
}

/// The workload file of a model.
///
/// # Errors
/// As [`describe`].
pub fn write(options: &Options) -> Result<String, Diagnostic> {
    describe(options).map(Graph::into_text)
}

/// The graph as it grows.
pub(super) struct Writer<'a> {
    pub(super) options: &'a Options,
    graph: Builder,
    /// The block that is written, and what stands before the names in it; its input keeps its name.
    block: Option<Block>,
    /// Tensors that have been quantised.
    pub(super) quantised: BTreeSet<String>,
    /// Of many chips, the part of one.
    pub(super) part: Option<Part>,
    /// Formats of the matrices of the block that is written, by name, in a model that says them kind by kind.
    formats: Vec<(String, StorageFormat)>,
}

/// Rows and columns of a tensor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    rows: u64,
    columns: u64,
}

pub(super) fn shape(rows: u64, columns: u64) -> Shape {
    Shape { rows, columns }
}

/// No options of an operator yet.
pub(super) fn with() -> OperatorOptions {
    OperatorOptions::default()
}

/// Matrices whose products stay in the data type of the model: few outputs, which choose among others, or are steps of a recurrence.
pub(super) const UNQUANTISED: [&str; 3] = ["w_router", "w_shared_open", "w_step"];

/// A block of layers.
#[derive(Clone)]
struct Block {
    name: String,
    prefix: String,
    input: String,
}

impl<'a> Writer<'a> {
    /// Nothing written yet.
    pub(super) fn new(options: &'a Options, part: Option<Part>) -> Self {
        Self { options, graph: Builder::default(), block: None, quantised: BTreeSet::new(), part, formats: Vec::new() }
    }
}

impl Writer<'_> {
    pub(super) fn graph(mut self) -> Graph {
        let Options { name, architecture: a, phase, batch, context, dtype, optimizer, recompute, .. } = self.options;
        let what = match phase {
            Phase::Forward => "forward",
            Phase::Training => "a training step",
            Phase::Prefill => "prefill",
            Phase::Decode => "one generated token a sequence",
        };
        self.graph.about = vec![format!("{name}: {what}. Weights of the layers are declared once and repeated.")];
        self.graph.name.clone_from(name);
        self.graph.dtype.clone_from(dtype);
        self.graph.notes.clone_from(&self.options.notes);
        let mut dims = vec![
            ("tokens", self.tokens()),
            ("batch", *batch),
            ("hidden", a.hidden),
            ("layers", a.extras.mamba.map_or(a.layers - a.extras.dense_layers, |mamba| mamba.attention.into())),
        ];
        dims.push(("heads", a.heads));
        dims.extend([("kv_heads", a.kv_heads), ("kv_width", a.kv_heads * a.head()), ("ffn", a.feed_forward)]);
        dims.push(("vocabulary", a.vocabulary));
        if *phase == Phase::Decode {
            dims.push(("cached", batch * context));
        }
        dims.extend(self.dims_of_extras());
        if self.part.is_some() {
            dims.extend(self.dims_of_rows());
        }
        self.graph.dims = dims.into_iter().map(|(name, size)| (name.to_owned(), size)).collect();
        if *phase == Phase::Training {
            let micro_batches = self.part.and_then(|part| part.micro_batches);
            let (optimizer, activations) = (optimizer.clone(), recompute.activations().to_owned());
            self.graph.training = Some(Training { optimizer, activations, micro_batches });
        }
        self.graph.blocks = self.blocks();
        self.graph.finish()
    }

    /// The blocks of layers, and how often each is repeated.
    fn blocks(&self) -> Vec<(String, Extent)> {
        if let Some(stack) = &self.options.stack {
            return stack.blocks().collect();
        }
        let extras = &self.options.architecture.extras;
        let hybrid = extras.mamba.iter().filter(|_| self.part.is_none_or(|part| !part.has_no_layers));
        let of_hybrid = hybrid.flat_map(|m| [(MAMBA_LAYER, m.layers.into()), (FEED_LAYER, m.feeds.into())]);
        let counts = std::iter::once((DENSE_LAYER, extras.dense_layers)).chain(of_hybrid);
        let mut blocks: Vec<(String, Extent)> =
            counts.filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count.into())).collect();
        if self.has_layers() {
            blocks.push((LAYER.to_owned(), "layers".into()));
        }
        blocks
    }

    /// Whether there are layers of attention.
    fn has_layers(&self) -> bool {
        let is_mamba_alone = self.options.architecture.extras.mamba.is_some_and(|mamba| mamba.attention == 0);
        !is_mamba_alone && self.options.stack.is_none() && self.part.is_none_or(|part| !part.has_no_layers)
    }

    /// Rows of activations.
    pub(super) fn tokens(&self) -> u64 {
        let Options { phase, batch, sequence, .. } = self.options;
        if *phase == Phase::Decode { batch * self.new_tokens() } else { batch * sequence }
    }

    /// Decoding: new tokens of a sequence.
    pub(super) fn new_tokens(&self) -> u64 {
        self.part.and_then(|part| part.new_tokens).unwrap_or(1)
    }

    /// Whether a block of layers is written.
    pub(super) fn is_in_a_block(&self) -> bool {
        self.block.is_some()
    }

    /// Whether the block of this name is written.
    fn is_block(&self, name: &str) -> bool {
        self.block.as_ref().is_some_and(|block| block.name == name)
    }

    /// Whether the block that is written has no experts.
    pub(super) fn is_dense_layer(&self) -> bool {
        self.is_block(DENSE_LAYER)
    }

    /// The name of the dimension that all queries of a token have.
    pub(super) fn query_width(&self) -> &'static str {
        let a = &self.options.architecture;
        if a.head() * a.heads == a.hidden { "hidden" } else { "query_width" }
    }

    /// Sizes that only some models have.
    fn dims_of_extras(&self) -> Vec<(&'static str, u64)> {
        let a = &self.options.architecture;
        let mut dims = vec![("query_width", a.heads * a.head()), ("patch", u64::from(a.extras.patches.unwrap_or(0)))];
        if let Some(Latent { query, key, plain, rotated, value }) = a.extras.latent {
            dims.extend([("key_latent", key), ("query_latent", query.unwrap_or(0)), ("plain", plain)]);
            dims.extend([("rotated", rotated), ("plain_width", a.heads * plain), ("latent_width", a.heads * key)]);
            dims.extend([("rotated_width", a.heads * rotated), ("value_width", a.heads * value)]);
        }
        if let Some(experts) = a.extras.experts {
            let Experts { count, each, width, shared, .. } = experts;
            let (met, rows) = experts.met_by(self.tokens(), &self.options.expert_load);
            dims.extend([("experts", count), ("expert_width", width), ("shared_width", shared)]);
            dims.extend([("expert_rows", met.saturating_mul(rows)), ("visits", self.tokens().saturating_mul(each))]);
            dims.extend([("experts_by_hidden", count * a.hidden), ("experts_by_width", count * width)]);
            dims.extend([("met_by_hidden", met * a.hidden), ("met_by_width", met * width)]);
        }
        dims
    }

    /// A name inside a block; the block's input, and names outside of blocks, stay as they are.
    pub(super) fn named(&self, name: &str) -> String {
        match &self.block {
            Some(block) if block.input != name => format!("{}{name}", block.prefix),
            _ => name.to_owned(),
        }
    }

    /// A tensor that an operator makes, in a shape that is not the operator's to know.
    pub(super) fn shaped(&mut self, name: &str, rows: &str, columns: &str, kept: &Kept) {
        self.declare(name, [rows.into(), columns.into()], None, kept);
    }

    /// The same with extents in numbers.
    pub(super) fn sized(&mut self, name: &str, shape: Shape, kept: &Kept) {
        self.declare(name, [shape.rows.into(), shape.columns.into()], None, kept);
    }

    /// A tensor of which the type alone is said, by its full name.
    pub(super) fn typed(&mut self, name: String, dtype: &str) {
        self.graph.tensors.push(TensorFields { name, shape: None, role: None, kept: Kept::of_type(dtype) });
    }

    pub(super) fn tensor(&mut self, name: &str, rows: &str, columns: &str, role: &'static str, kept: &Kept) {
        self.declare(name, [rows.into(), columns.into()], Some(role), kept);
    }

    fn declare(&mut self, name: &str, shape: [Extent; 2], role: Option<&'static str>, kept: &Kept) {
        let (name, kept) = (self.named(name), kept.clone());
        self.graph.tensors.push(TensorFields { name, shape: Some(shape), role, kept });
    }

    pub(super) fn matrix(&mut self, name: &str, rows: &str, columns: &str) {
        let is_drawn = |tensor: &&TensorFields| matches!(tensor.kept.sparsity, Some(Sparse::Blocks { .. }));
        let seed = self.graph.tensors.iter().filter(is_drawn).count() as u64 + 1;
        let is_in_a_block = self.block.is_some();
        let drawn = self.options.sparsity.filter(|_| is_in_a_block);
        let file = self.options.weights.iter().find(|(known, _)| is_in_a_block && known == name);
        let sparsity = match (file, drawn) {
            (Some((_, file)), _) => {
                let WeightFile { file, key, transpose, density, block } = file.clone();
                Some(Sparse::File { file, key, transpose, density, block })
            }
            (None, Some(Sparsity { density, block })) => Some(Sparse::Blocks { density, block, seed }),
            (None, None) => None,
        };
        let of_kind = self.formats.iter().find(|(known, _)| known == name).map(|(_, format)| format);
        let packed = of_kind.or(self.options.storage.of_matrix(name)).filter(|_| is_in_a_block);
        let kept = match self.narrow_of(name) {
            Some(narrow) => Kept { sparsity: sparsity.clone(), ..narrow.of_matrix(packed, sparsity.is_some()) },
            None => match packed {
                Some(packed) => Kept { storage: Some(packed.stored_in()), ..Kept::default() },
                None => Kept { sparsity, ..Kept::default() },
            },
        };
        self.tensor(name, rows, columns, "weight", &kept);
    }

    /// Keys, values or latent vectors of the context.
    pub(super) fn cache(&mut self, name: &str, rows: &str, columns: &str) {
        let storage = self.options.storage.cache.as_ref().map(StorageFormat::stored_in);
        self.tensor(name, rows, columns, "input", &Kept { storage, ..Kept::default() });
    }

    pub(super) fn operator(
        &mut self,
        name: &str,
        kind: &str,
        inputs: &[&str],
        output: &str,
        options: &OperatorOptions,
    ) {
        let fields = OperatorFields {
            name: self.named(name),
            kind: kind.to_owned(),
            inputs: inputs.iter().map(|input| self.named(input)).collect(),
            output: self.named(output),
            block: self.block.as_ref().map(|block| block.name.clone()),
            options: options.clone(),
        };
        self.graph.operators.push(fields);
    }

    /// A matrix product, with its weight and bias.
    pub(super) fn linear(&mut self, name: &str, from: &str, rows: &str, columns: &str, output: &str) {
        let weight = format!("w_{name}");
        self.matrix(&weight, rows, columns);
        let mut bias = None;
        let a = &self.options.architecture;
        if a.bias || a.extras.attention_bias && matches!(name, "query" | "key" | "value") {
            let vector = format!("b_{name}");
            self.tensor(&vector, "1", columns, "weight", &Kept::default());
            bias = Some(self.named(&vector));
        }
        self.product(name, from, &weight, output, bias.as_deref(), &with());
    }

    pub(super) fn norm(&mut self, from: &str, to: &str) {
        self.norm_of(from, to, "hidden");
    }

    /// A norm of rows that are `columns` wide.
    pub(super) fn norm_of(&mut self, from: &str, to: &str, columns: &str) {
        let name = format!("norm_{to}");
        // Parameters are named for the block by [`Self::tensor`], and here as the operator reads them.
        let gain = format!("gain_{to}");
        self.tensor(&gain, "1", columns, "weight", &Kept::default());
        let gain = self.named(&gain);
        match self.options.architecture.norm {
            Norm::Rms => self.operator(&name, "rms_norm", &[from], to, &with().vectors([&gain])),
            Norm::Layer => {
                let bias = format!("bias_{to}");
                self.tensor(&bias, "1", columns, "weight", &Kept::default());
                let bias = self.named(&bias);
                self.operator(&name, "layer_norm", &[from], to, &with().vectors([&gain, &bias]));
            }
        }
    }

    fn model(&mut self) {
        let a = &self.options.architecture;
        let x = self.embedding();
        let mut y = self.all_layers(x);
        if a.output {
            y = self.last_of_prompts(y);
        }
        let last = if a.post_norm {
            y
        } else {
            self.norm(&y, "x_final");
            "x_final".to_owned()
        };
        if a.output {
            self.logits(&last);
        }
    }

    /// All layers, those of one kind after those of another.
    pub(super) fn all_layers(&mut self, mut x: String) -> String {
        if let Some(stack) = self.options.stack.clone() {
            return self.stack(&stack, x);
        }
        let a = &self.options.architecture;
        if a.extras.dense_layers > 0 {
            x = self.layers(DENSE_LAYER, "dense_", &x);
        }
        if let Some(mamba) = a.extras.mamba {
            if mamba.layers > 0 {
                x = self.layers(MAMBA_LAYER, "mamba_", &x);
            }
            if mamba.feeds > 0 {
                x = self.layers(FEED_LAYER, "feed_", &x);
            }
        }
        if self.has_layers() { self.layers(LAYER, "", &x) } else { x }
    }

    /// A block of layers; returns the name of what it makes.
    pub(super) fn layers(&mut self, name: &str, prefix: &str, input: &str) -> String {
        self.open_block(name, prefix, input, &[]);
        let made = self.layer(input);
        self.close_block(&made)
    }

    /// Begins a block of layers whose matrices have formats of their own.
    pub(super) fn open_block(&mut self, name: &str, prefix: &str, input: &str, formats: &[(String, StorageFormat)]) {
        let (name, prefix, input) = (name.to_owned(), prefix.to_owned(), input.to_owned());
        self.block = Some(Block { name, prefix, input });
        self.formats = formats.to_vec();
    }

    /// Ends the block that is written, which makes `made`; returns the name of that outside.
    pub(super) fn close_block(&mut self, made: &str) -> String {
        let made = self.named(made);
        self.block = None;
        self.formats.clear();
        made
    }

    /// Whether the part has what stands before the layers.
    pub(super) fn is_the_first(&self) -> bool {
        self.part.is_none_or(|part| part.has_embedding)
    }

    /// Whether the part has what stands behind the layers.
    pub(super) fn is_the_last(&self) -> bool {
        self.part.is_none_or(|part| part.has_logits)
    }

    fn layer(&mut self, x: &str) -> String {
        let a = self.options.architecture;
        let h = if a.post_norm {
            x.to_owned()
        } else {
            self.norm(x, "x_attention");
            "x_attention".to_owned()
        };
        if self.is_block(FEED_LAYER) {
            let fed = self.feed_forward(&h);
            self.operator("add_feed", "add", &[x, &fed], "y", &with());
            return "y".to_owned();
        }
        let mut attended = match a.extras.mamba.filter(|_| self.is_block(MAMBA_LAYER)) {
            Some(mamba) => self.recurrence(&h, &mamba),
            None => self.attention(&h),
        };
        if a.extras.mamba.is_some_and(|mamba| !mamba.has_feed) {
            self.operator("add_attention", "add", &[x, &attended], "y", &with());
            return "y".to_owned();
        }
        if a.extras.branch_norm {
            self.norm(&attended, "attended_normed");
            "attended_normed".clone_into(&mut attended);
        }
        if a.parallel {
            let fed = self.feed_forward(&h);
            self.operator("add_blocks", "add", &[&attended, &fed], "x_blocks", &with());
            self.operator("add_residual", "add", &[x, "x_blocks"], "y", &with());
            return "y".to_owned();
        }
        self.operator("add_attention", "add", &[x, &attended], "x_mid", &with());
        let mid = if a.post_norm {
            self.norm("x_mid", "x_mid_normed");
            "x_mid_normed"
        } else {
            "x_mid"
        };
        let h = if a.post_norm {
            mid.to_owned()
        } else {
            self.norm(mid, "x_feed");
            "x_feed".to_owned()
        };
        let mut fed = self.feed_forward(&h);
        if a.extras.branch_norm {
            self.norm(&fed, "fed_normed");
            "fed_normed".clone_into(&mut fed);
        }
        self.operator("add_feed", "add", &[mid, &fed], "y", &with());
        if a.post_norm {
            self.norm("y", "y_normed");
            return "y_normed".to_owned();
        }
        "y".to_owned()
    }

    pub(super) fn dropped(&mut self, from: &str) -> String {
        if !self.options.dropout {
            return from.to_owned();
        }
        let to = format!("{from}_kept");
        self.operator(&format!("drop_{from}"), "dropout", &[from], &to, &with());
        to
    }
}
