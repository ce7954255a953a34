//! Formats that the matrices and caches of a model are stored in, as options name them.

use rdusim_base::units::Dtype;
use rdusim_graph::workload::{Kept, StoredIn};

/// A group that is as long as any column.
pub const LONGEST: u64 = 1 << 40;

/// How second operands are stored, where not in the data type of products.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Storage {
    /// The layers' matrices.
    pub weights: Option<StorageFormat>,
    /// Matrices of the layers that are stored otherwise, by name; `None` of those in the data type of products.
    pub others: Vec<(String, Option<StorageFormat>)>,
    /// Decoding: keys and values of the context.
    pub cache: Option<StorageFormat>,
}

impl Storage {
    /// How a matrix of the layers is stored, if not in the data type of products.
    pub fn of_matrix(&self, name: &str) -> Option<&StorageFormat> {
        match self.others.iter().find(|(known, _)| known == name) {
            Some((_, format)) => format.as_ref(),
            None => self.weights.as_ref(),
        }
    }

    /// Whether a matrix is left as it is where others have a format: its product is of the data type of the model.
    pub fn leaves_out(&self, name: &str) -> bool {
        self.others.iter().any(|(known, format)| known == name && format.is_none())
    }

    /// All formats of matrices.
    pub fn of_matrices(&self) -> impl Iterator<Item = &StorageFormat> {
        self.weights.iter().chain(self.others.iter().filter_map(|(_, format)| format.as_ref()))
    }
}

/// A format of `storage`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageFormat {
    /// Its name.
    pub format: String,
    /// Elements that share a scale, if not as usual.
    pub group: Option<u64>,
    /// Of integers: one scale for the matrix, in place of one for each column.
    pub has_one_scale: bool,
    /// Of integers: each scale has a zero point beside it.
    pub has_zero_points: bool,
}

impl std::str::FromStr for StorageFormat {
    type Err = String;

    /// `FORMAT` or `FORMAT:GROUP`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (format, group) = text.split_once(':').map_or((text, None), |(format, group)| (format, Some(group)));
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if format.is_empty() || !format.chars().all(is_word) {
            return Err("expected FORMAT or FORMAT:GROUP, such as int4:128".to_owned());
        }
        let group = group.map(|group| {
            group.parse().map_err(|_| format!("expected a count of elements behind `:`, found {group:?}"))
        });
        Ok(Self { group: group.transpose()?, ..Self::new(format) })
    }
}

impl StorageFormat {
    /// As a tensor says it.
    pub(super) fn stored_in(&self) -> StoredIn {
        let Self { format, group, has_one_scale, has_zero_points } = self;
        StoredIn {
            format: format.clone(),
            group: *group,
            one_scale: *has_one_scale,
            scales: None,
            zero_points: *has_zero_points,
        }
    }

    /// A format with scales as usual.
    pub fn new(format: &str) -> Self {
        Self { format: format.to_owned(), group: None, has_one_scale: false, has_zero_points: false }
    }

    /// Whether second operands of products of a data type can be stored so: elements of 8 bits are multiplied as they are, and have no
    /// scales inside sums.
    pub fn fits(&self, dtype: &str) -> bool {
        let is_narrow = Dtype::ALL.iter().any(|known| known.name() == dtype && known.saturates());
        let is_of_four_bits = matches!(self.format.as_str(), "int4" | "mxfp4" | "nvfp4");
        !is_narrow || is_of_four_bits || self.format == dtype && self.group.is_none_or(|group| group >= LONGEST)
    }
}

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
    pub(super) fn of_matrix(&self, stored: Option<&StorageFormat>, is_sparse: bool) -> Kept {
        let of_its_own = StorageFormat::new(&self.dtype);
        let storage = (!is_sparse).then(|| stored.unwrap_or(&of_its_own).stored_in());
        Kept { storage, ..Kept::of_type(&self.dtype) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_a_format_and_a_group() {
        let int4 = StorageFormat { group: Some(128), ..StorageFormat::new("int4") };
        assert_eq!("int4:128".parse(), Ok(int4.clone()));
        assert_eq!("mxfp4".parse(), Ok(StorageFormat::new("mxfp4")));
        for wrong in ["", ":4", "int4:", "int4:-1", "int 4", "int4:128:2", "\""] {
            assert!(wrong.parse::<StorageFormat>().is_err(), "{wrong}");
        }
    }

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
