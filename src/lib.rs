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

pub mod analysis;
pub mod cli;
pub mod study;

pub use rdusim_base::id_type;
pub use rdusim_base::{diagnostics, index, input, interrupt, mode, units};
pub use rdusim_compile::{compile, saved};
pub use rdusim_cost::{cost, proof};
pub use rdusim_cycle as cycle;
pub use rdusim_engines::{fluid, sim};
pub use rdusim_graph::{arch, sparsity, workload};
pub use rdusim_machines::{bsp, gpu, kernels, machine, systolic, wafer};
pub use rdusim_models::{import, model};
pub use rdusim_outcome as outcome;
pub use rdusim_pod as pod;
pub use rdusim_program as program;
pub use rdusim_report::{map, report};
pub use rdusim_validate as validate;
pub use rdusim_verify as verify;
