//! Products of the layers in data types of 8 bits: their activations are quantised before them, their matrices hold such numbers.

use std::fmt::Write as _;

use super::storage::StorageFormat;
use super::write::Writer;

/// The data type that activations of the layers' products with matrices are quantised to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivationFormat {
    /// `fp8_e4m3`, `fp8_e5m2` or `int8`.
    pub dtype: String,
    /// Each row has a scale of its own, made as the model runs; else a tensor has one, known before.
    pub is_by_token: bool,
}

impl std::str::FromStr for ActivationFormat {
    type Err = String;

    /// `DTYPE` or `DTYPE:token`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (dtype, by) = text.split_once(':').map_or((text, None), |(dtype, by)| (dtype, Some(by)));
        if !["fp8_e4m3", "fp8_e5m2", "int8"].contains(&dtype) {
            return Err(format!("expected fp8_e4m3, fp8_e5m2 or int8, found {dtype:?}"));
        }
        match by {
            None => Ok(Self { dtype: dtype.to_owned(), is_by_token: false }),
            Some("token") => Ok(Self { dtype: dtype.to_owned(), is_by_token: true }),
            Some(other) => Err(format!("expected `token` behind `:`, a scale for each, found {other:?}")),
        }
    }
}

impl ActivationFormat {
    /// What a matrix of the layers says of its data type and scales: `stored` of how it is stored, `is_sparse` of a mask.
    pub(super) fn of_matrix(&self, stored: Option<&StorageFormat>, is_sparse: bool) -> String {
        let of_its_own = StorageFormat { format: self.dtype.clone(), group: None };
        let storage = if is_sparse { String::new() } else { stored.unwrap_or(&of_its_own).field() };
        format!("\ndtype = {:?}{storage}", self.dtype)
    }
}

impl Writer<'_> {
    /// The format of the activations of products in the block that is written.
    pub(super) fn narrow(&self) -> Option<&ActivationFormat> {
        self.options.activations.as_ref().filter(|_| self.is_in_a_block())
    }

    /// A product of activations `from` with a matrix of the layers, with a bias if there is one; `more` are fields of the operator.
    pub(super) fn product(
        &mut self,
        name: &str,
        from: &str,
        weight: &str,
        (output, bias): (&str, Option<&str>),
        more: &str,
    ) {
        let vectors = |bias: &str| format!("vectors = [{bias:?}]");
        let joined = |bias: Option<&str>| {
            let fields = [bias.map(vectors).unwrap_or_default(), more.to_owned()];
            fields.iter().filter(|field| !field.is_empty()).cloned().collect::<Vec<_>>().join("\n")
        };
        let Some(ActivationFormat { dtype, is_by_token }) = self.narrow().cloned() else {
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
        self.operator(&format!("rescale_{name}"), "head_scale", &[&sums, &scales], to, "");
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
        let _ = writeln!(self.tensors, "\n[[tensors]]\nname = {declared:?}\ndtype = {dtype:?}");
        let name = format!("quantize_{from}");
        if is_by_token {
            let declared = self.named(&scales);
            let _ = writeln!(self.tensors, "\n[[tensors]]\nname = {declared:?}\ndtype = \"fp32\"");
            self.operator(&format!("scale_of_{from}"), "row_scale", &[from], &scales, "");
            self.operator(&name, "quantize", &[from, &scales], &narrow, "");
        } else {
            self.operator(&name, "scale", &[from], &narrow, "");
        }
        (narrow, by_row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_a_type_and_what_has_a_scale() {
        let of = |dtype: &str, is_by_token| Ok(ActivationFormat { dtype: dtype.to_owned(), is_by_token });
        assert_eq!("fp8_e4m3".parse(), of("fp8_e4m3", false));
        assert_eq!("int8:token".parse(), of("int8", true));
        for wrong in ["", "bf16", "int8:", "int8:row", "int4", "fp8_e4m3:token:token"] {
            assert!(wrong.parse::<ActivationFormat>().is_err(), "{wrong}");
        }
    }
}
