//! The tests that see rdusim from outside: one file a subject, one binary.

mod architecture;
mod bad_input;
mod cases;
mod cli;
mod deadlock;
mod doubling;
mod ffn;
mod fidelity;
mod golden;
mod gpu;
mod laws;
mod models;
mod numbers;
mod numbers_of_images;
mod page;
mod penalties;
mod random;
mod routes;
mod saved;
mod search;
mod sparsity;
mod stack;
mod steady;
mod study;
mod sums;
mod validate;
