//! Masks from files: `.smtx`, `.mtx`, `.npy`, `.npz` and `.safetensors`.
//!
//! Files are untrusted: what a header declares is checked against limits before memory is taken for it, entries are
//! streamed, and whatever is wrong is an error with its place.

mod element;
mod error;
mod file;
mod mtx;
mod npy;
mod npz;
mod safetensors;
mod sink;
mod smtx;
#[cfg(test)]
mod tests;
mod text;

pub use error::ReadError;
pub use file::{FileKind, read_mask};
pub use sink::{MOST_MASK_BITS, MatrixRequest};
