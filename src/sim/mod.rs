//! Simulation: a [`crate::compile::Configuration`] on a chip becomes an [`Outcome`].

mod outcome;

pub use outcome::{
    BoundBy, EnergyJ, Fidelity, Mode, Outcome, SectionOutcome, StageOutcome, StopReason, TensorTraffic, Traffic,
};
