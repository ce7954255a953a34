//! The bytes that each storage format takes, counted from the mask.

use super::format::{Format, Storage};
use super::mask::BlockMask;

/// Group lengths that are tried for N:M.
const GROUPS: [u64; 3] = [4, 8, 16];

impl BlockMask {
    /// Fixes the format that the matrix is stored in, as [`storage()`] counted it for this mask.
    #[must_use]
    pub fn stored_as(mut self, storage: Storage) -> Self {
        self.storage = Some(storage);
        self
    }

    /// The format and what it takes; if none was fixed, the smaller of bitmap and BSR.
    pub fn storage(&self) -> Storage {
        self.storage.unwrap_or_else(|| {
            let [bitmap, bsr] = [Format::Bitmap, Format::Bsr].map(|format| simple_storage(self, format));
            if bsr.metadata_bytes < bitmap.metadata_bytes { bsr } else { bitmap }
        })
    }

    /// Bytes of metadata in the format of [`Self::storage`].
    pub fn metadata_bytes(&self) -> u64 {
        self.storage().metadata_bytes
    }

    /// Bytes of values, at `element_bytes` each, and metadata in the format of [`Self::storage`].
    pub fn stored_bytes(&self, element_bytes: u64) -> u64 {
        let storage = self.storage();
        storage.values * element_bytes + storage.metadata_bytes
    }
}

/// What `format` takes for a mask; `None` if it cannot hold it (N:M where some group is full).
pub fn storage(mask: &BlockMask, format: Format) -> Option<Storage> {
    match format {
        Format::Nm => GROUPS.into_iter().filter_map(|m| nm(mask, m)).min_by_key(|s| (s.values, s.metadata_bytes)),
        simple => Some(simple_storage(mask, simple)),
    }
}

/// The smallest storage that a column of PCUs can read as it lies, at `element_bytes` a value.
pub fn smallest(mask: &BlockMask, element_bytes: u64) -> Storage {
    let usable = Format::ALL.into_iter().filter(|format| format.lies_by_columns());
    let all = usable.filter_map(|format| storage(mask, format));
    // The bitmap always exists.
    all.min_by_key(|storage| storage.bytes(element_bytes)).unwrap_or_else(|| simple_storage(mask, Format::Bitmap))
}

/// Bytes of an index below `count`: 2, or 4 from 65,537 on, or 8.
fn index_bytes(count: u64) -> u64 {
    match count {
        0..=0x1_0000 => 2,
        0x1_0001..=0x1_0000_0000 => 4,
        _ => 8,
    }
}

/// Bytes of an offset into `count` entries: 4, or 8 where 4 do not reach.
fn offset_bytes(count: u64) -> u64 {
    if u32::try_from(count).is_ok() { 4 } else { 8 }
}

/// Formats whose size follows from counts alone (N:M: as if no group fitted, which is dense).
pub(super) fn simple_storage(mask: &BlockMask, format: Format) -> Storage {
    let (k_blocks, n_blocks, kept) = (mask.k_blocks(), mask.n_blocks(), mask.kept_blocks());
    let (rows, columns, stored) = (mask.rows(), mask.columns(), mask.stored_elements());
    let by_lines = |kept: u64, along: u64, lines: u64| kept * index_bytes(along) + (lines + 1) * offset_bytes(kept);
    let metadata_bytes = match format {
        Format::Bitmap => (k_blocks * n_blocks).div_ceil(8),
        Format::Bsr => by_lines(kept, k_blocks, n_blocks),
        Format::Csc => by_lines(stored, rows, columns),
        Format::Csr => by_lines(stored, columns, rows),
        Format::Coo => kept * (index_bytes(k_blocks) + index_bytes(n_blocks)),
        Format::Dense | Format::Nm => 0,
    };
    let values = if matches!(format, Format::Dense | Format::Nm) { rows * columns } else { stored };
    Storage { format, values, metadata_bytes }
}

/// N:M with the least N that holds the mask, for groups of `m` (which divides 64).
fn nm(mask: &BlockMask, m: u64) -> Option<Storage> {
    if (mask.block_rows(), mask.block_columns()) != (1, 1) {
        return None;
    }
    let ones = (1u64 << m) - 1;
    let mut n = 1;
    for column in 0..mask.n_blocks() {
        for &word in mask.column_words(column) {
            let mut left = word;
            while left != 0 {
                n = n.max(u64::from((left & ones).count_ones()));
                left >>= m;
            }
        }
        if n == m {
            return None;
        }
    }
    let values = mask.rows().div_ceil(m) * n * mask.columns();
    let metadata_bytes = (values * u64::from(m.ilog2())).div_ceil(8);
    Some(Storage { format: Format::Nm, values, metadata_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sparsity::Pattern;

    fn bytes(mask: &BlockMask, format: Format) -> Option<(u64, u64)> {
        storage(mask, format).map(|s| (s.values, s.metadata_bytes))
    }

    #[test]
    fn sizes_are_those_of_the_definitions() {
        let mask = Pattern::Random { density: 0.1 }.draw(512, 300, (16, 4), 1);
        assert_eq!((mask.kept_blocks(), mask.stored_elements()), (240, 15_360));
        assert_eq!(bytes(&mask, Format::Bitmap), Some((15_360, 32 * 75 / 8)));
        assert_eq!(bytes(&mask, Format::Bsr), Some((15_360, 240 * 2 + 76 * 4)));
        assert_eq!(bytes(&mask, Format::Csc), Some((15_360, 15_360 * 2 + 301 * 4)));
        assert_eq!(bytes(&mask, Format::Csr), Some((15_360, 15_360 * 2 + 513 * 4)));
        assert_eq!(bytes(&mask, Format::Coo), Some((15_360, 240 * 4)));
        assert_eq!(bytes(&mask, Format::Dense), Some((512 * 300, 0)));
        assert_eq!(bytes(&mask, Format::Nm), None);
    }

    #[test]
    fn groups_are_found_in_the_mask() {
        let mask = Pattern::Nm { n: 2, m: 4 }.draw(130, 10, (1, 1), 3);
        // 33 groups of 4 a column, two values and two bits each.
        assert_eq!(bytes(&mask, Format::Nm), Some((660, 165)));
        let mask = Pattern::Nm { n: 1, m: 8 }.draw(128, 10, (1, 1), 3);
        assert_eq!(bytes(&mask, Format::Nm), Some((160, 60)));
        let full = Pattern::Random { density: 1.0 }.draw(64, 2, (1, 1), 3);
        assert_eq!(bytes(&full, Format::Nm), None);
    }

    #[test]
    fn the_smallest_depends_on_the_density() {
        let of = |pattern: Pattern| smallest(&pattern.draw(1024, 512, (1, 1), 1), 2).format;
        assert_eq!(of(Pattern::Random { density: 0.25 }), Format::Bitmap);
        assert_eq!(of(Pattern::Random { density: 0.02 }), Format::Bsr);
        assert_eq!(of(Pattern::Random { density: 1.0 }), Format::Dense);
        assert_eq!(of(Pattern::Random { density: 0.97 }), Format::Dense);
        assert_eq!(of(Pattern::Nm { n: 1, m: 4 }), Format::Nm);
    }
}
