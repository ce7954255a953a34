//! Products of the layers in data types of 8 bits: their activations are quantised before them, their matrices hold such numbers.

use super::storage::ActivationFormat;
use super::write::{UNQUANTISED, Writer, with};
use rdusim_graph::workload::OperatorOptions;

impl Writer<'_> {
    /// The format of the activations of products in the block that is written.
    pub(super) fn narrow(&self) -> Option<&ActivationFormat> {
        self.options.activations.as_ref().filter(|_| self.is_in_a_block())
    }

    /// The format of the activations of products with a matrix, if they are quantised for it.
    pub(super) fn narrow_of(&self, matrix: &str) -> Option<&ActivationFormat> {
        let whole = matrix.strip_suffix("_met").unwrap_or(matrix);
        self.narrow().filter(|_| !UNQUANTISED.contains(&whole) && !self.options.storage.leaves_out(whole))
    }

    /// A product of activations `from` with a matrix of the layers, with a bias if there is one; `more` are fields of the operator.
    pub(super) fn product(
        &mut self,
        name: &str,
        from: &str,
        weight: &str,
        output: &str,
        bias: Option<&str>,
        more: &OperatorOptions,
    ) {
        let vectors = |bias: &str| with().vectors([bias]);
        let joined = |bias: Option<&str>| bias.map_or_else(|| more.clone(), |bias| vectors(bias).and(more));
        let Some(ActivationFormat { dtype, is_by_token }) = self.narrow_of(weight).cloned() else {
            self.operator(name, "gemm", &[from, weight], output, &joined(bias));
            return;
        };
        let (narrow, scales) = self.quantised(from, &dtype, is_by_token);
        let Some(scales) = scales else {
            self.operator(name, "gemm", &[&narrow, weight], output, &joined(bias));
            return;
        };
        // The bias belongs to what is scaled back.
        let (sums, scaled) = (format!("{output}_sums"), format!("{output}_scaled"));
        self.operator(name, "gemm", &[&narrow, weight], &sums, more);
        let to = if bias.is_some() { &scaled } else { output };
        self.operator(&format!("rescale_{name}"), "head_scale", &[&sums, &scales], to, &with());
        if let Some(bias) = bias {
            self.operator(&format!("bias_{name}"), "bias", &[to], output, &vectors(bias));
        }
    }

    /// The quantised form of activations, and the scales of its rows where they have their own; written once for all products.
    fn quantised(&mut self, from: &str, dtype: &str, is_by_token: bool) -> (String, Option<String>) {
        let (narrow, scales) = (format!("{from}_narrow"), format!("{from}_scales"));
        let by_row = is_by_token.then(|| scales.clone());
        let declared = self.named(&narrow);
        if !self.quantised.insert(declared.clone()) {
            return (narrow, by_row);
        }
        self.typed(declared, dtype);
        let name = format!("quantize_{from}");
        if is_by_token {
            let declared = self.named(&scales);
            self.typed(declared, "fp32");
            self.operator(&format!("scale_of_{from}"), "row_scale", &[from], &scales, &with());
            self.operator(&name, "quantize", &[from, &scales], &narrow, &with());
        } else {
            self.operator(&name, "scale", &[from], &narrow, &with());
        }
        (narrow, by_row)
    }
}
