//! Compile: an operator graph becomes a [`Configuration`] of a chip.
pub struct Configuration;
