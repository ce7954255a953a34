//! A workload file as it is read: one field a key, nothing checked yet.

use indexmap::IndexMap;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use toml::Spanned;

use super::sections::SectionSpec;
use rdusim_base::input::{Count, Real, Table};

/// The file.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkloadSpec {
    pub(super) schema: Spanned<Count>,
    pub(super) name: Spanned<String>,
    pub(super) dtype: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) notes: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) dims: IndexMap<Spanned<String>, Spanned<Count>>,
    pub(super) sparsity: Option<Spanned<Table<DistributionSpec>>>,
    pub(super) tensors: Vec<Table<TensorSpec>>,
    pub(super) operators: Spanned<Vec<Table<OperatorSpec>>>,
    #[serde(default)]
    pub(super) sections: Vec<Table<SectionSpec>>,
    #[serde(default)]
    pub(super) blocks: Vec<Table<BlockSpec>>,
    pub(super) training: Option<Spanned<Table<TrainingSpec>>>,
}

/// `[[blocks]]`
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BlockSpec {
    pub(super) name: Spanned<String>,
    pub(super) repeat: Spanned<Extent>,
}

/// `[training]`
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrainingSpec {
    pub(super) optimizer: Spanned<String>,
    pub(super) activations: Option<Spanned<String>>,
    pub(super) micro_batches: Option<Spanned<Count>>,
    pub(super) pattern: Option<Spanned<Table<PatternSpec>>>,
}

/// `[training.pattern]`
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PatternSpec {
    pub(super) every: Spanned<Count>,
    pub(super) fraction: Spanned<Real>,
    pub(super) regrow: Spanned<String>,
    pub(super) step: Option<Spanned<Count>>,
    pub(super) steps: Option<Spanned<Count>>,
}

/// `[[tensors]]`
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TensorSpec {
    pub(super) name: Spanned<String>,
    pub(super) shape: Option<Spanned<Vec<Spanned<Extent>>>>,
    pub(super) dtype: Option<Spanned<String>>,
    pub(super) role: Option<Spanned<String>>,
    pub(super) sparsity: Option<Spanned<Table<SparsitySpec>>>,
    pub(super) storage: Option<Spanned<Table<StorageSpec>>>,
    pub(super) activation_sparsity: Option<Spanned<Table<ActivationSpec>>>,
}

/// `activation_sparsity` of a tensor.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActivationSpec {
    pub(super) n: Spanned<Count>,
    pub(super) m: Spanned<Count>,
}

/// `storage` of a tensor.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StorageSpec {
    pub(super) format: Spanned<String>,
    pub(super) group: Option<Spanned<Count>>,
    pub(super) one_scale: Option<Spanned<bool>>,
    pub(super) scales: Option<Spanned<String>>,
    pub(super) zero_points: Option<Spanned<bool>>,
}

/// One extent of a shape.
#[derive(Debug, Clone)]
pub enum Extent {
    /// The name of a dimension in `[dims]`.
    Dim(String),
    /// A number.
    Number(Count),
}

/// `sparsity` of a tensor.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SparsitySpec {
    pub(super) pattern: Spanned<String>,
    pub(super) density: Option<Spanned<Real>>,
    pub(super) block: Option<Spanned<Vec<Spanned<Count>>>>,
    pub(super) seed: Option<Spanned<Count>>,
    pub(super) n: Option<Spanned<Count>>,
    pub(super) m: Option<Spanned<Count>>,
    pub(super) exponent: Option<Spanned<Real>>,
    pub(super) file: Option<Spanned<String>>,
    pub(super) key: Option<Spanned<String>>,
    pub(super) transpose: Option<Spanned<bool>>,
    pub(super) tokens: Option<Spanned<Extent>>,
    pub(super) shared: Option<Spanned<Real>>,
    pub(super) neurons: Option<Spanned<String>>,
    pub(super) format: Option<Spanned<String>>,
}

/// `[sparsity]`: one density for many weights.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DistributionSpec {
    pub(super) distribution: Spanned<String>,
    pub(super) density: Spanned<Real>,
    pub(super) block: Option<Spanned<Vec<Spanned<Count>>>>,
    pub(super) seed: Option<Spanned<Count>>,
    pub(super) tensors: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) format: Option<Spanned<String>>,
}

/// `[[operators]]`
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OperatorSpec {
    pub(super) name: Spanned<String>,
    pub(super) kind: Spanned<String>,
    pub(super) inputs: Spanned<Vec<Spanned<String>>>,
    pub(super) output: Spanned<String>,
    pub(super) block: Option<Spanned<String>>,
    pub(super) vectors: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) batch: Option<Spanned<Extent>>,
    pub(super) heads: Option<Spanned<Extent>>,
    pub(super) kv_heads: Option<Spanned<Extent>>,
    pub(super) filled_rows: Option<Spanned<Extent>>,
    pub(super) transpose_a: Option<Spanned<bool>>,
    pub(super) transpose_b: Option<Spanned<bool>>,
    pub(super) causal: Option<Spanned<bool>>,
    pub(super) image: Option<Spanned<Vec<Spanned<Count>>>>,
    pub(super) kernel: Option<Spanned<Vec<Spanned<Count>>>>,
    pub(super) stride: Option<Spanned<Vec<Spanned<Count>>>>,
    pub(super) padding: Option<Spanned<Vec<Spanned<Count>>>>,
    pub(super) dilation: Option<Spanned<Vec<Spanned<Count>>>>,
    pub(super) groups: Option<Spanned<Extent>>,
}

impl SparsitySpec {
    /// A pattern, of which nothing else is said.
    pub(super) fn of_pattern(pattern: Spanned<String>) -> Self {
        Self {
            pattern,
            density: None,
            block: None,
            seed: None,
            n: None,
            m: None,
            exponent: None,
            file: None,
            key: None,
            transpose: None,
            tokens: None,
            shared: None,
            neurons: None,
            format: None,
        }
    }
}

impl OperatorSpec {
    /// Fields that hold a dimension's name or a count.
    pub(super) fn extents(&self) -> [Option<&Spanned<Extent>>; 5] {
        let rows = self.filled_rows.as_ref();
        [self.batch.as_ref(), self.heads.as_ref(), self.kv_heads.as_ref(), self.groups.as_ref(), rows]
    }
}

impl<'de> Deserialize<'de> for Extent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DimOrNumber;
        impl Visitor<'_> for DimOrNumber {
            type Value = Extent;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the name of a dimension or a whole number")
            }
            fn visit_str<E: Error>(self, name: &str) -> Result<Extent, E> {
                Ok(Extent::Dim(name.to_owned()))
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Extent, E> {
                Ok(Extent::Number(Count(value.into())))
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<Extent, E> {
                Ok(Extent::Number(Count(value.into())))
            }
            fn visit_i128<E: Error>(self, value: i128) -> Result<Extent, E> {
                Ok(Extent::Number(Count(value)))
            }
            fn visit_u128<E: Error>(self, value: u128) -> Result<Extent, E> {
                Ok(Extent::Number(Count(i128::try_from(value).unwrap_or(i128::MAX))))
            }
        }
        deserializer.deserialize_any(DimOrNumber)
    }
}
