//! Cycle-approximate simulation of RDU-style dataflow accelerators.
//!
//! A chip (a grid of compute units, memory units and switches, [`arch::Chip`]) and an operator graph
//! ([`workload::Workload`]) are compiled into a [`compile::Configuration`], which [`sim::simulate`] runs,
//! kernel by kernel or fused, into a [`sim::Outcome`] with time, traffic, utilisation and energy.
//! [`report`] turns outcomes into tables, JSON, CSV and pictures.
//!
//! Data goes one way: `arch` + `workload` -> `compile` -> `Configuration` -> `sim` -> `Outcome` -> `report`.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("rdusim counts bytes and cycles in 64-bit words and is built for 64-bit hosts only");

pub mod arch;
pub mod bound;
pub mod cli;
pub mod compile;
pub mod diagnostics;
pub mod index;
pub mod input;
pub mod mode;
pub mod report;
pub mod sim;
pub mod sparsity;
pub mod units;
pub mod workload;
