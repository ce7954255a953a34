//! Off-chip memories of the interpreter: numbers by byte address.

use std::collections::BTreeMap;
use std::ops::Range;

use super::streams::Source;

/// One memory.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Memory {
    cells: BTreeMap<u64, f64>,
}

impl Memory {
    /// Writes elements of `element_bytes` one after the other.
    pub fn write(&mut self, address: u64, element_bytes: u64, values: &[f64]) {
        for (n, &value) in (0u64..).zip(values) {
            self.cells.insert(address + n * element_bytes, value);
        }
    }

    /// Reads `count` elements of `element_bytes`; what was never written is not a number.
    pub fn read(&self, address: u64, element_bytes: u64, count: u64) -> Vec<f64> {
        let cell = |n| self.cells.get(&(address + n * element_bytes)).copied().unwrap_or(f64::NAN);
        (0..count).map(cell).collect()
    }
}

/// The memory of the chip and those of its peers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Memories {
    memories: BTreeMap<Source, Memory>,
}

impl Memories {
    /// The memory of a source.
    pub fn of(&mut self, source: Source) -> &mut Memory {
        self.memories.entry(source).or_default()
    }

    /// The chip's own memory.
    pub fn own(&mut self) -> &mut Memory {
        self.of(Source::Memory)
    }
}

/// Offsets in elements of a box of a row-major tensor, in row-major order of the box.
pub(super) fn offsets(lengths: &[u64], ranges: &[Range<u64>]) -> Vec<u64> {
    let mut offsets = vec![0];
    for (extent, range) in lengths.iter().zip(ranges) {
        offsets = offsets.iter().flat_map(|offset| range.clone().map(move |i| offset * extent + i)).collect();
    }
    offsets
}
