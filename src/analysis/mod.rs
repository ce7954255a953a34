//! What the commands do, as functions from inputs to results: nothing is typed, printed or timed here.
//!
//! The command line and other front ends (the Python package) call the same functions, so their results are the same bytes.

mod break_even;
mod compare;
mod execute;
mod failure;
mod fleet;
mod mask;
mod pod;
mod pod_search;
mod points;
mod preset;
mod proof;
mod recorded;
mod serving;
mod takes;
mod validate;
mod verify;

pub use break_even::{AxisRequest, BreakEven, BreakEvenRequest, PodBreakEvenRequest, break_even, break_even_of_pods};
pub use compare::{Options, Ran, Uncertainty, add_ranges, page};
pub use execute::{Execution, Source, Stage, configurations, execute, graph_on, refuse_models};
pub use failure::Failure;
pub use fleet::{FleetRequest, fleet};
pub use mask::{FoundMask, MaskRequest, mask};
pub use pod::{PodRequest, pod, stragglers};
pub use pod_search::{SearchRequest, pod_search};
pub use points::{PointsRequest, points};
pub use preset::{ModelRequest, model_text};
pub use proof::{ProofFile, ProofInputs, check, prove, proved, summary};
pub use recorded::document;
pub use serving::{DraftRequest, ServingRequest, requests, serving};
pub use takes::{PhaseOn, TAKES, Takes, chip_for, phases_of_model, phases_of_system};
pub(crate) use validate::check_names;
pub use validate::{ANALYTIC, known_sets, validate, validated_chips};
pub use verify::{Verified, VerifyRequest, verify};
