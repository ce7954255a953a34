//! Chips beside the RDU: GPUs as sequences of kernels ([`gpu`]), tiles that run in supersteps ([`bsp`]), systolic arrays as
//! folds of products ([`systolic`]), and wafers where weights stream over activations ([`wafer`]).
//!
//! Each turns a workload into the [`Outcome`](rdusim_outcome::Outcome) that the RDU's engines give, so that reports and pods
//! treat all chips alike. None depends on the compiler or on the engines of the RDU.

pub mod bsp;
pub mod gpu;
pub mod kernels;
pub mod machine;
pub mod systolic;
pub mod wafer;
