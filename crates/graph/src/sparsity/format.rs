//! Storage formats of a sparse matrix.

/// How a sparse matrix is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Kept values and one bit a block of the mask.
    Bitmap,
    /// Kept blocks and the row of each, by block columns, with an offset a block column.
    Bsr,
    /// Kept elements and the row of each, by columns, with an offset a column.
    Csc,
    /// The same number of values for every group of M along K, and the place of each in its group.
    Nm,
    /// Every value, zeros too.
    Dense,
    /// Kept elements and the column of each, by rows, with an offset a row.
    Csr,
    /// Kept blocks with row and column of each.
    Coo,
}

/// What a format takes for one mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Storage {
    /// The format.
    pub format: Format,
    /// Values stored, those of padding too.
    pub values: u64,
    /// Bytes of everything but values.
    pub metadata_bytes: u64,
}

impl Storage {
    /// Bytes in all, at `element_bytes` a value.
    pub fn bytes(&self, element_bytes: u64) -> u64 {
        self.values * element_bytes + self.metadata_bytes
    }
}

impl Format {
    /// Every format; of equally small ones the earlier is chosen.
    pub const ALL: [Self; 7] = [Self::Bitmap, Self::Bsr, Self::Csc, Self::Nm, Self::Dense, Self::Csr, Self::Coo];

    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bitmap => "bitmap",
            Self::Bsr => "bsr",
            Self::Csc => "csc",
            Self::Nm => "nm",
            Self::Dense => "dense",
            Self::Csr => "csr",
            Self::Coo => "coo",
        }
    }

    /// Whether a column of PCUs, which works through its columns along K, reads it as it lies. The others must be
    /// brought into order of columns first.
    pub fn lies_by_columns(self) -> bool {
        !matches!(self, Self::Csr | Self::Coo)
    }
}
