//! Dimensions and tensors as the file declares them.

use std::ops::Range;

use indexmap::IndexMap;
use toml::Spanned;

use super::TensorRole;
use super::limits::MAX_DIM;
use super::pruning::{Pruning, pruning};
use super::sparsity::{Sparsity, sparsity};
use super::spec::{Extent, TensorSpec, WorkloadSpec};
use super::storage::{Storage, storage};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::{Count, Source, suggest};
use rdusim_base::units::Dtype;

const ROLES: [(&str, TensorRole); 4] = [
    ("input", TensorRole::Input),
    ("weight", TensorRole::Weight),
    ("intermediate", TensorRole::Intermediate),
    ("output", TensorRole::Output),
];

/// Rows and columns.
pub(super) type Shape = (u64, u64);

/// A tensor while the graph is being put together.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) name: String,
    /// Where it is declared, or named for the first time.
    pub(super) span: Range<usize>,
    pub(super) shape: Option<Shape>,
    /// What its shape was written with.
    pub(super) shape_spans: Vec<Range<usize>>,
    pub(super) dtype: Dtype,
    /// What its data type was written with.
    pub(super) dtype_span: Option<Range<usize>>,
    pub(super) role: Option<(TensorRole, Range<usize>)>,
    pub(super) sparsity: Option<Sparsity>,
    /// How it is stored, if not in its data type.
    pub(super) storage: Option<Storage>,
    /// How an activation is pruned.
    pub(super) pruning: Option<Pruning>,
    /// The operator that produces it.
    pub(super) producer: Option<usize>,
    /// The operators that consume it.
    pub(super) consumers: Vec<usize>,
}

/// The name of a role in files.
pub(super) fn role_name(role: TensorRole) -> &'static str {
    ROLES.iter().find(|(_, known)| *known == role).map_or("", |(name, _)| name)
}

/// The data type of tensors that name none.
pub(super) fn default_dtype(source: &Source, spec: &WorkloadSpec) -> Result<(Dtype, Option<Range<usize>>), Diagnostic> {
    match &spec.dtype {
        Some(word) => Ok((dtype(source, "dtype", word)?, Some(word.span()))),
        None => Ok((Dtype::Bf16, None)),
    }
}

fn dtype(source: &Source, field: &str, word: &Spanned<String>) -> Result<Dtype, Diagnostic> {
    source.keyword(field, word, &Dtype::ALL.map(Dtype::name)).map(|index| Dtype::ALL[index])
}

/// `[dims]`, in range.
pub(super) fn dims(source: &Source, spec: &WorkloadSpec) -> Result<IndexMap<String, u64>, Diagnostic> {
    spec.dims
        .iter()
        .map(|(key, value)| {
            let name = source.name("dims", key)?;
            let size = source.count(&format!("dims.{name}"), value, 1..=MAX_DIM)?;
            Ok((name, size))
        })
        .collect()
}

/// `[[tensors]]`, by name.
pub(super) fn tensors(
    source: &Source,
    spec: &WorkloadSpec,
    dims: &IndexMap<String, u64>,
) -> Result<IndexMap<String, Draft>, Diagnostic> {
    let (default_dtype, default_span) = default_dtype(source, spec)?;
    let mut drafts: IndexMap<String, Draft> = IndexMap::new();
    let mut used = vec![false; dims.len()];
    for tensor in &spec.tensors {
        let name = source.name("tensors.name", &tensor.name)?;
        if drafts.contains_key(&name) {
            let title = format!("two tensors are named {name:?}");
            return Err(source.error(tensor.name.span(), title, "the second of them"));
        }
        let field = |key: &str| format!("tensors.{name}.{key}");
        let (dtype, dtype_span) = match &tensor.dtype {
            Some(word) => (dtype(source, &field("dtype"), word)?, Some(word.span())),
            None => (default_dtype, default_span.clone()),
        };
        let role = match &tensor.role {
            Some(word) => {
                let index = source.keyword(&field("role"), word, &ROLES.map(|(name, _)| name))?;
                Some((ROLES[index].1, word.span()))
            }
            None => None,
        };
        let (shape, shape_spans) = match &tensor.shape {
            Some(spanned) => {
                let (shape, spans) = shape(source, &field("shape"), spanned, spec, dims, &mut used)?;
                (Some(shape), spans)
            }
            None => (None, Vec::new()),
        };
        let draft = Draft {
            span: tensor.name.span(),
            shape,
            shape_spans,
            dtype,
            dtype_span,
            sparsity: weight_sparsity(source, &name, tensor, role.as_ref().map(|(role, _)| *role), dims)?,
            storage: storage(source, &name, tensor.storage.as_ref())?,
            pruning: pruning(source, &name, tensor.activation_sparsity.as_ref())?,
            role,
            producer: None,
            consumers: Vec::new(),
            name: name.clone(),
        };
        drafts.insert(name, draft);
    }
    let of_operators = spec.operators.get_ref().iter().flat_map(|operator| operator.extents().into_iter().flatten());
    let of_masks = spec.tensors.iter().filter_map(|t| t.sparsity.as_ref()?.get_ref().tokens.as_ref());
    for extent in of_operators.chain(spec.blocks.iter().map(|block| &block.repeat)).chain(of_masks) {
        if let Extent::Dim(name) = extent.get_ref()
            && let Some(index) = dims.get_index_of(name.as_str())
        {
            used[index] = true;
        }
    }
    if let Some((key, _)) = spec.dims.iter().zip(&used).find(|(_, used)| !**used).map(|(entry, _)| entry) {
        let title = format!("`dims.{}` is not used by any shape", key.get_ref());
        let error = source.error(key.span(), title, "in no shape").with_help("remove it, or use it in a shape");
        let others: Vec<&str> = dims.keys().map(String::as_str).filter(|name| name != key.get_ref()).collect();
        return Err(suggest(error, key.get_ref(), &others));
    }
    Ok(drafts)
}

fn weight_sparsity(
    source: &Source,
    name: &str,
    tensor: &TensorSpec,
    role: Option<TensorRole>,
    dims: &IndexMap<String, u64>,
) -> Result<Option<Sparsity>, Diagnostic> {
    let Some(spec) = &tensor.sparsity else { return Ok(None) };
    if role != Some(TensorRole::Weight) {
        let title = format!("`tensors.{name}.sparsity`: only weights can be sparse");
        return Err(source
            .error(spec.span(), title, format!("{name:?} is no weight"))
            .with_help("say role = \"weight\", or remove the sparsity"));
    }
    let tokens = spec.get_ref().tokens.as_ref();
    let tokens = tokens.map(|of| extent(source, &format!("tensors.{name}.sparsity.tokens"), of, dims)).transpose()?;
    sparsity(source, name, spec, tokens).map(Some)
}

/// A shape, and what it was written with: itself, then the dimensions it names.
fn shape(
    source: &Source,
    field: &str,
    spec: &Spanned<Vec<Spanned<Extent>>>,
    file: &WorkloadSpec,
    dims: &IndexMap<String, u64>,
    used: &mut [bool],
) -> Result<(Shape, Vec<Range<usize>>), Diagnostic> {
    let [rows, columns] = spec.get_ref().as_slice() else {
        let title = format!("`{field}` has length {}, expected 2", spec.get_ref().len());
        return Err(source.error(spec.span(), title, "expected [rows, columns]"));
    };
    let mut spans = vec![spec.span()];
    let mut read = |spec: &Spanned<Extent>| -> Result<u64, Diagnostic> {
        if let Extent::Dim(name) = spec.get_ref()
            && let Some(index) = dims.get_index_of(name.as_str())
        {
            used[index] = true;
            spans.extend(file.dims.get_index(index).map(|(_, value)| value.span()));
        }
        extent(source, field, spec, dims)
    };
    Ok(((read(rows)?, read(columns)?), spans))
}

/// A count, or the size of the dimension it names.
pub(super) fn extent(
    source: &Source,
    field: &str,
    extent: &Spanned<Extent>,
    dims: &IndexMap<String, u64>,
) -> Result<u64, Diagnostic> {
    match extent.get_ref() {
        Extent::Number(number) => {
            let number: Spanned<Count> = Spanned::new(extent.span(), *number);
            source.count(field, &number, 1..=MAX_DIM)
        }
        Extent::Dim(name) => dims.get(name.as_str()).copied().ok_or_else(|| {
            let known: Vec<&str> = dims.keys().map(String::as_str).collect();
            let title = format!("`{field}` names the dimension {name:?}, which is not in `dims`");
            suggest(source.error(extent.span(), title, "no such dimension"), name, &known)
        }),
    }
}

/// A shape in messages.
pub(super) fn text(shape: Shape) -> String {
    let (rows, columns) = shape;
    format!("[{rows}, {columns}]")
}
