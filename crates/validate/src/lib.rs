//! Validation: published measurements and analytic truths against the simulation, and the calibration of the few limits
//! that the vendor's stack is described by.
//!
//! `docs/validation.md` explains the sets, the parameters and what the errors mean. Everything a set needs is part of the
//! program, so that an installed binary validates itself from any directory.

mod analytic;
mod cases;
mod data;
mod exchange;
mod fit;
mod left_out;
mod line;
mod pods;
mod points;
mod published;
mod run;
mod score;
mod serving;
mod simplex;

pub use analytic::analytic_sets;
pub use data::{Target, is_of_a_system, is_of_serving, validate_data};
pub use fit::{FitReport, Fitted, fit};
pub use left_out::{LeftOut, leave_one_set_out};
pub use points::{Points, Progress, Sources, is_of_points};
pub use published::{CHIPS, ChipSource, Measured, PublishedSet, gpu_chip, published_sets};
pub use run::{RefusedRow, SetPart, SetReport, SetRow, layer_report, validate};
pub use score::{Score, outliers};
