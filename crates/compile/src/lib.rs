//! From an operator graph to a configuration of a chip's grid ([`compile`]), and configurations as text ([`saved`]).

pub mod compile;
pub mod saved;
