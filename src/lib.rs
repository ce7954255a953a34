//! Cycle-approximate simulation of RDU-style dataflow accelerators.
//!
//! A chip (a grid of compute units, memory units and switches, [`arch::Chip`]) and an operator graph
//! ([`workload::Workload`]) are compiled into a [`program::Configuration`], which [`sim::simulate`] runs, kernel by
//! kernel, with epilogues or fused ([`mode::Mode`]), into an [`outcome::Outcome`] with time, traffic, utilisation and
//! energy. [`report`] turns outcomes into tables, JSON, CSV and pictures.
//!
//! ```
//! use std::path::Path;
//! use rdusim::{arch, compile::compile, mode::Mode, outcome::Fidelity, sim::simulate, workload};
//!
//! let chip = arch::load(Path::new("arch/sn10.toml"), &[])?;
//! let workload = workload::load(Path::new("workloads/tiny-mlp.toml"), &[], 0)?;
//! let configuration = compile(&chip, &workload, Mode::Fused)?;
//! let outcome = simulate(&chip, &workload, &configuration, Fidelity::Event);
//! assert!(outcome.bound_cycles <= outcome.cycles);
//! # Ok::<(), rdusim::diagnostics::Diagnostic>(())
//! ```
//!
//! What is modelled and what is not: `docs/timing-model.md`. How the code is laid out: `ARCHITECTURE.md`.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("rdusim counts bytes and cycles in 64-bit words and is built for 64-bit hosts only");

pub mod analysis;
pub mod arch;
mod bound;
pub mod bsp;
pub mod cli;
pub mod compile;
pub mod cost;
pub mod cycle;
pub mod diagnostics;
pub mod fluid;
pub mod gpu;
pub mod import;
pub mod index;
pub mod input;
pub mod interrupt;
pub mod kernels;
pub mod map;
pub mod mode;
pub mod model;
pub mod outcome;
pub mod pod;
pub mod program;
pub mod proof;
pub mod report;
pub mod saved;
pub mod sim;
pub mod sparsity;
pub mod study;
pub mod systolic;
pub mod units;
pub mod validate;
pub mod verify;
pub mod wafer;
pub mod workload;
