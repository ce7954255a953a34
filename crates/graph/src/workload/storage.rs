//! The `storage` of tensors: what a file may ask for, checked, and given to the tensors.

use std::ops::Range;

use toml::Spanned;

use super::graph::{Operator, OperatorId, Tensor, TensorId};
use super::kind::OperatorKind;
use super::limits::MAX_DIM;
use super::packed::{FORMATS, Packed, ScaleFormat};
use super::spec::StorageSpec;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::index::IndexVec;
use rdusim_base::input::{Source, Table};
use rdusim_base::units::ElementFormat;

/// A checked `storage` of a tensor.
#[derive(Debug, Clone)]
pub(super) struct Storage {
    format: &'static str,
    elements: ElementFormat,
    scales: ScaleFormat,
    group: Option<u64>,
    has_zero_points: bool,
    span: Range<usize>,
}

/// Checks the `storage` of a tensor.
pub(super) fn storage(
    source: &Source,
    name: &str,
    spec: Option<&Spanned<Table<StorageSpec>>>,
) -> Result<Option<Storage>, Diagnostic> {
    let Some(spec) = spec else { return Ok(None) };
    let (span, spec) = (spec.span(), spec.get_ref());
    let field = |key: &str| format!("tensors.{name}.storage.{key}");
    let index = source.keyword(&field("format"), &spec.format, &FORMATS.map(|(name, ..)| name))?;
    let (format, elements, scales, fixed) = FORMATS[index];
    let given = spec.group.as_ref().map(|group| source.count(&field("group"), group, 1..=MAX_DIM)).transpose()?;
    if let (Some(fixed), Some(group)) = (fixed, &spec.group) {
        let title = format!("`{}` cannot be given: {fixed} elements of `{format}` share a scale", field("group"));
        return Err(source.error(group.span(), title, "of another format").with_help("remove it"));
    }
    let is_on = |flag: &Option<Spanned<bool>>| flag.as_ref().is_some_and(|flag| *flag.get_ref());
    let (is_whole, has_zero_points) = (is_on(&spec.one_scale), is_on(&spec.zero_points));
    let is_integer = matches!(elements, ElementFormat::Int(_));
    for (key, flag, is_known) in [
        ("one_scale", spec.one_scale.as_ref().map(Spanned::span), is_integer),
        ("zero_points", spec.zero_points.as_ref().map(Spanned::span), is_integer),
        ("scales", spec.scales.as_ref().map(Spanned::span), is_integer),
    ] {
        if let Some(span) = flag.filter(|_| !is_known) {
            let title = format!("`{}` cannot be given: `{format}` says it", field(key));
            return Err(source.error(span, title, "expected of `int4` and `int8`").with_help("remove it"));
        }
    }
    if let (true, Some(group)) = (is_whole, &spec.group) {
        let title = format!("`{}` and `one_scale` exclude each other", field("group"));
        return Err(source.error(group.span(), title, "of one scale").with_help("remove one of them"));
    }
    let whole = if scales == ScaleFormat::Fp32 || is_whole { None } else { Some(MAX_DIM) };
    let named = match &spec.scales {
        Some(word) => match source.keyword(&field("scales"), word, &["bf16", "fp32"])? {
            0 => Some(ScaleFormat::Bf16),
            _ => Some(ScaleFormat::Fp32),
        },
        None => None,
    };
    let scales = named.unwrap_or(if given.is_some() { ScaleFormat::Bf16 } else { scales });
    Ok(Some(Storage { format, elements, scales, group: fixed.or(given).or(whole), has_zero_points, span }))
}

/// How a product reads its second operand: whether the depth lies along the rows, the depth, and rows of a sequence or expert.
type Layout = (bool, u64, u64);

/// Stores what the drafts say so, where it is used as can be: as a dense second operand of products, whole, transposed, or the first
/// rows of it.
pub(super) fn pack(
    source: &Source,
    storages: &[Option<Storage>],
    tensors: &mut IndexVec<TensorId, Tensor>,
    operators: &IndexVec<OperatorId, Operator>,
    is_trained: bool,
) -> Result<(), Diagnostic> {
    for (id, storage) in tensors.ids().collect::<Vec<_>>().into_iter().zip(storages) {
        let Some(storage) = storage else { continue };
        let name = &tensors[id].name;
        let refused = |(what, label): (String, &str)| {
            let title = format!("`tensors.{name}.storage`: {what}");
            let help = "only dense second operands of `gemm` are stored in other formats, where nothing is trained";
            source.error(storage.span.clone(), title, label).with_help(help)
        };
        if is_trained {
            return Err(refused(("the workload is a training step".to_owned(), "cannot be updated")));
        }
        for (of, (depth_is_rows, depth, part_rows)) in layouts(id, storage, tensors, operators).map_err(refused)? {
            let Storage { format, elements, scales, group, has_zero_points, .. } = *storage;
            let packed = Packed { format, elements, scales, group, depth_is_rows, depth, part_rows, has_zero_points };
            tensors[of].packed = Some(packed);
        }
    }
    Ok(())
}

/// The layouts of a tensor and of its views; what is wrong with how it is used, and what was expected, if something is.
fn layouts(
    id: TensorId,
    storage: &Storage,
    tensors: &IndexVec<TensorId, Tensor>,
    operators: &IndexVec<OperatorId, Operator>,
) -> Result<Vec<(TensorId, Layout)>, (String, &'static str)> {
    if tensors[id].mask.is_some() {
        return Err(("the tensor is sparse".to_owned(), "no format of a sparse tensor"));
    }
    let dtype = tensors[id].dtype;
    if dtype.element().is_some_and(|element| element != storage.elements && storage.elements.bits() >= element.bits()) {
        return Err((format!("products are of `{dtype}`"), "expected elements of that type, or of fewer bits"));
    }
    let mut found = Vec::new();
    let mut whole: Option<Layout> = None;
    for (of, tensor) in tensors.iter_enumerated().filter(|(of, t)| *of == id || t.view.is_some_and(|v| v.base == id)) {
        let turned = tensor.view.is_some_and(|view| view.transposed);
        if tensor.view.is_some_and(|view| view.gathered || view.window.is_some() || !view.is_part && !view.transposed)
            || tensor.view.is_some_and(|view| view.is_part) && tensor.columns != tensors[id].columns
        {
            let what = "an operator sees it in another shape".to_owned();
            return Err((what, "expected products to read it whole, transposed, or its first rows"));
        }
        for operator in operators {
            let is_read = operator.inputs.contains(&of) || operator.vectors.contains(&of);
            let is_used = operator.output == of || operator.indices == Some(of) || operator.updates == Some(of);
            if !is_read && !is_used {
                continue;
            }
            let is_second = operator.kind == OperatorKind::Gemm
                && operator.inputs.get(1) == Some(&of)
                && operator.inputs.first() != Some(&of)
                && !operator.options.transpose_a
                && !is_used;
            let along_rows = operator.form.is_none() || !operator.options.transpose_b;
            let part_rows = tensor.rows / operator.form.map_or(1, |form| form.instances).max(1);
            let depth = operator.form.map_or(tensor.rows, |form| form.k);
            if dtype.element() == Some(storage.elements) && storage.group.is_some_and(|group| group < depth) {
                let what = format!("products of `{dtype}` have no scales inside their sums");
                return Err((what, "expected a scale for a column or the tensor"));
            }
            let layout = (along_rows, depth, part_rows);
            let of_whole = if turned { (!along_rows, depth, tensor.columns) } else { layout };
            // One scale for all of a part has no direction.
            let differs = |known: Layout| {
                known.2 != of_whole.2 || storage.group.is_some() && (known.0, known.1) != (of_whole.0, of_whole.1)
            };
            if !is_second || whole.is_some_and(differs) {
                let what = format!("`{}` ({}) uses it otherwise", operator.name, operator.kind.name());
                return Err((what, "expected the second operand of products, all of one orientation"));
            }
            whole = whole.or(Some(of_whole));
            if of != id && !found.iter().any(|(known, _)| *known == of) {
                found.push((of, layout));
            }
        }
    }
    found.extend(whole.map(|layout| (id, layout)));
    Ok(found)
}
