//! What every crate of rdusim stands on: exact rates and data types, typed ids, modes, errors with the place in the input
//! that they are about, interruption from another thread, and TOML files that know the place of every value.
//!
//! It knows neither chips nor workloads, except as the text of the files that come with the program ([`input::BUILTINS`]).

#[cfg(not(target_pointer_width = "64"))]
compile_error!("rdusim counts bytes and cycles in 64-bit words and is built for 64-bit hosts only");

pub mod diagnostics;
pub mod index;
pub mod input;
pub mod interrupt;
pub mod mode;
pub mod units;
