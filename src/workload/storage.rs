//! The `storage` of tensors: what a file may ask for, checked, and given to the tensors.

use std::ops::Range;

use toml::Spanned;

use super::graph::{Operator, OperatorId, Tensor, TensorId};
use super::kind::OperatorKind;
use super::limits::MAX_DIM;
use super::packed::{FORMATS, Packed, ScaleFormat};
use super::spec::StorageSpec;
use crate::diagnostics::Diagnostic;
use crate::index::IndexVec;
use crate::input::{Source, Table};
use crate::units::Dtype;

/// A checked `storage` of a tensor.
#[derive(Debug, Clone)]
pub(super) struct Storage {
    packed: Packed,
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
    let whole = if scales == ScaleFormat::Fp32 { None } else { Some(MAX_DIM) };
    let group = fixed.or(given).or(whole);
    let scales = if given.is_some() { ScaleFormat::Bf16 } else { scales };
    Ok(Some(Storage { packed: Packed { format, elements, scales, group, depth_is_rows: true }, span }))
}

/// Stores what the drafts say so, where it is used as can be: as a dense second operand of products.
pub(super) fn pack(
    source: &Source,
    storages: &[Option<Storage>],
    tensors: &mut IndexVec<TensorId, Tensor>,
    operators: &IndexVec<OperatorId, Operator>,
    is_trained: bool,
) -> Result<(), Diagnostic> {
    for (id, storage) in tensors.ids().collect::<Vec<_>>().into_iter().zip(storages) {
        let Some(Storage { packed, span }) = storage else { continue };
        let tensor = &tensors[id];
        let refused = |what: String, label: &str| {
            let title = format!("`tensors.{}.storage`: {what}", tensor.name);
            let help = "only dense second operands of `gemm` are stored in other formats, where nothing is trained";
            Err(source.error(span.clone(), title, label).with_help(help))
        };
        if is_trained {
            return refused("the workload is a training step".to_owned(), "cannot be updated");
        }
        if tensor.mask.is_some() {
            return refused("the tensor is sparse".to_owned(), "no format of a sparse tensor");
        }
        if tensor.dtype == Dtype::Int8 {
            return refused("products are of `int8`".to_owned(), "expected a float data type");
        }
        if tensors.iter().any(|of| of.view.is_some_and(|view| view.of == id)) {
            return refused(
                "another operator sees it in another shape".to_owned(),
                "expected products alone to read it",
            );
        }
        let mut depth_is_rows = None;
        for operator in operators {
            if operator.output != id && !operator.inputs.contains(&id) && !operator.vectors.contains(&id) {
                continue;
            }
            let is_second = operator.kind == OperatorKind::Gemm
                && operator.inputs.get(1) == Some(&id)
                && operator.inputs.first() != Some(&id)
                && !operator.options.transpose_a;
            let along_rows = !operator.options.transpose_b;
            // One scale for the whole has no direction.
            let is_turned = depth_is_rows.is_some_and(|known| known != along_rows) && packed.group.is_some();
            if !is_second || is_turned {
                let what = format!("`{}` ({}) uses it otherwise", operator.name, operator.kind.name());
                return refused(what, "expected the second operand of products, all of one orientation");
            }
            depth_is_rows = Some(along_rows);
        }
        let depth_is_rows = depth_is_rows.unwrap_or(true);
        tensors[id].packed = Some(Packed { depth_is_rows, ..*packed });
    }
    Ok(())
}
