//! Files of masks: their formats by name, and the mask of a file of one.

use std::io::{BufRead, Seek};

use super::error::ReadError;
use super::sink::{Magnitudes, MatrixRequest, NonZeros, Sink};
use super::{mtx, npy, npz, safetensors, smtx};
use crate::sparsity::BlockMask;

/// What a file of a mask is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// Pattern of a CSR matrix, the format of the DLMC collection.
    Smtx,
    /// Matrix Market, coordinates or array.
    Mtx,
    /// One array of `NumPy`.
    Npy,
    /// Named arrays of `NumPy`, zipped.
    Npz,
    /// Named tensors.
    Safetensors,
}

impl FileKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Smtx, Self::Mtx, Self::Npy, Self::Npz, Self::Safetensors];

    /// The ending of its files.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Smtx => "smtx",
            Self::Mtx => "mtx",
            Self::Npy => "npy",
            Self::Npz => "npz",
            Self::Safetensors => "safetensors",
        }
    }

    /// The kind with this ending.
    pub fn of_extension(extension: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.extension() == extension)
    }

    /// Whether a file holds several matrices, told apart by a key.
    pub fn has_keys(self) -> bool {
        matches!(self, Self::Npz | Self::Safetensors)
    }

    /// Whether its entries have values to prune by.
    fn has_values(self) -> bool {
        self != Self::Smtx
    }
}

/// Reads the mask of a file: the blocks with something other than zero in them or, with a density, the blocks of the
/// largest magnitudes.
pub fn read_mask(
    kind: FileKind,
    input: impl BufRead + Seek,
    wanted: &MatrixRequest<'_>,
) -> Result<BlockMask, ReadError> {
    if wanted.key.is_some() && !kind.has_keys() {
        return Err(ReadError::new(format!("a .{} file holds one matrix: it takes no key", kind.extension())));
    }
    match wanted.density {
        None => {
            let mut sink = NonZeros::new(wanted);
            read_into(kind, input, wanted.key, &mut sink)?;
            sink.finish()
        }
        Some(_) if !kind.has_values() => Err(ReadError::new(format!(
            "a .{} file has no values to prune by: leave the density out",
            kind.extension()
        ))),
        Some(density) => {
            let mut sink = Magnitudes::new(wanted, density);
            read_into(kind, input, wanted.key, &mut sink)?;
            sink.finish()
        }
    }
}

fn read_into(
    kind: FileKind,
    input: impl BufRead + Seek,
    key: Option<&str>,
    sink: &mut dyn Sink,
) -> Result<(), ReadError> {
    match kind {
        FileKind::Smtx => smtx::read(input, sink),
        FileKind::Mtx => mtx::read(input, sink),
        FileKind::Npy => npy::read(input, sink),
        FileKind::Npz => npz::read(input, key, sink),
        FileKind::Safetensors => safetensors::read(input, key, sink),
    }
}
