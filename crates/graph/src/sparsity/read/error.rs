//! Why a file gives no mask.

use std::io;

/// Why a file gives no mask.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It breaks the rules of its format, or does not fit what is wanted.
    #[error("{0}")]
    Content(String),
}

impl ReadError {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self::Content(what.into())
    }
}
