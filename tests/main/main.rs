//! The tests that see rdusim from outside: one file a subject, one binary.

mod architecture;
mod cli;
mod ffn;
mod laws;
mod random;
