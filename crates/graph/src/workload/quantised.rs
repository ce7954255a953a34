//! Activations that are quantised row by row while the workload runs: what `row_scale` and `quantize` expect of each other.
//!
//! `row_scale` makes the scale of each row for the data type of the `quantize` that reads it (dynamic quantisation, one scale a
//! token: Yao et al. 2022, arXiv:2206.01861).

use indexmap::IndexMap;

use super::declare::Draft;
use super::link::Linked;
use super::{Operator, OperatorKind, TensorId, Workload};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::Source;
use rdusim_base::units::{Dtype, ElementFormat};

/// Checks that what is quantised has 8 bits, and that a `row_scale` has one such type to scale for.
pub(super) fn check(
    source: &Source,
    operators: &[Linked<'_>],
    drafts: &IndexMap<String, Draft>,
) -> Result<(), Diagnostic> {
    for operator in operators {
        let output = &drafts[operator.output];
        if operator.kind == OperatorKind::Quantize && !output.dtype.saturates() {
            let title =
                format!("operator {:?} quantises to {:?}, which is {}", operator.name, output.name, output.dtype);
            let spans: Vec<_> = std::iter::once(operator.spec.output.span()).chain(output.dtype_span.clone()).collect();
            let error = source.error_among(&spans, title, "expected a data type of 8 bits");
            return Err(error.with_help("declare it with dtype = \"fp8_e4m3\", \"fp8_e5m2\" or \"int8\""));
        }
        let scales = match operator.kind {
            OperatorKind::RowScale => Some(operator.output),
            OperatorKind::Quantize => operator.inputs.get(1).copied(),
            _ => None,
        };
        if let Some(scales) = scales.map(|scales| &drafts[scales]).filter(|scales| scales.dtype.saturates()) {
            let title = format!("operator {:?}: scales {:?} are {}", operator.name, scales.name, scales.dtype);
            let spans: Vec<_> = std::iter::once(scales.span.clone()).chain(scales.dtype_span.clone()).collect();
            return Err(source.error_among(&spans, title, "expected a float of 16 or 32 bits"));
        }
        if operator.kind == OperatorKind::RowScale {
            let mut dtypes = Vec::new();
            scaled_to(operators, drafts, operator.output, &mut dtypes);
            dtypes.sort_unstable();
            dtypes.dedup();
            if dtypes.len() != 1 {
                let found = if dtypes.is_empty() { "no" } else { "more than one" };
                let title = format!("operator {:?} makes scales for {found} data type", operator.name);
                let error = source.error(operator.spec.kind.span(), title, "expected one that it scales for");
                return Err(error.with_help("let `quantize` read its output as second input, all of one data type"));
            }
        }
    }
    Ok(())
}

/// The types that scales, or views of them, are used for.
fn scaled_to(operators: &[Linked<'_>], drafts: &IndexMap<String, Draft>, scales: usize, dtypes: &mut Vec<Dtype>) {
    for reader in drafts[scales].consumers.iter().map(|&reader| &operators[reader]) {
        if reader.kind == OperatorKind::Quantize && reader.inputs.get(1) == Some(&scales) {
            dtypes.push(drafts[reader.output].dtype);
        } else if reader.kind.is_view() {
            scaled_to(operators, drafts, reader.output, dtypes);
        }
    }
}

impl Workload {
    /// The largest number of the data type that a `row_scale` makes scales for.
    pub fn scaled_to(&self, row_scale: &Operator) -> f64 {
        let is_of = |scales: &TensorId| self.base(*scales) == row_scale.output;
        let reads = |of: &&Operator| of.kind == OperatorKind::Quantize && of.inputs.get(1).is_some_and(is_of);
        let reader = self.operators.iter().find(reads);
        reader.and_then(|reader| self.tensors[reader.output].dtype.element()).map_or(1.0, ElementFormat::most)
    }
}
