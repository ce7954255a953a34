//! What is given: chips of every kind ([`arch`]), operator graphs ([`workload`]) and the sparsity of their tensors
//! ([`sparsity`]), read from files and checked.
//!
//! What these crates hold is valid: every reader refuses what no model could run, with the place in the file.

pub mod arch;
pub mod sparsity;
pub mod workload;

#[cfg(test)]
mod tests;
