//! What phases and iterations take: seconds, of what they are made, and joules.

use serde::{Deserialize, Serialize};

/// Seconds of the chip that works most; they add up to the phase.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ServingTime {
    /// Kernels or sections.
    pub compute: f64,
    /// Collectives of the tensor group.
    pub tensor_comm: f64,
    /// Waiting while a transfer between stages is under way.
    pub pipeline_comm: f64,
    /// Exchanges between the chips that share experts out, as far as products do not hide them.
    pub expert_comm: f64,
    /// Waiting for other stages.
    pub bubble: f64,
    /// Waiting for the host.
    pub other: f64,
}

impl ServingTime {
    /// All of it.
    pub fn sum(&self) -> f64 {
        self.compute + self.tensor_comm + self.pipeline_comm + self.expert_comm + self.bubble + self.other
    }
}

/// Prefill of a batch, or one step that gives each user a token.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServedPhase {
    /// Seconds until every user has the token.
    pub seconds: f64,
    /// What they are made of.
    pub time: ServingTime,
    /// The stage that works most.
    pub critical: u64,
    /// Bytes by level of all chips.
    pub traffic: Vec<(String, u64)>,
    /// Joules of all chips; links and hosts are not counted.
    pub joules: f64,
    /// FLOP of the model over what the chips could do.
    pub mfu: f64,
    /// No such phase on so many chips is shorter.
    pub bound_s: f64,
}

/// No pass takes longer, or more.
const MOST_SECONDS: f64 = 1e9;
const MOST_JOULES: f64 = 1e15;

/// Whether these are seconds that something can take.
pub(super) fn is_time(seconds: f64) -> bool {
    (0.0..=MOST_SECONDS).contains(&seconds)
}

/// Seconds and joules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Seconds.
    pub seconds: f64,
    /// Joules.
    pub joules: f64,
}

impl Cost {
    /// Both.
    pub(super) fn plus(self, other: Self) -> Self {
        Self { seconds: self.seconds + other.seconds, joules: self.joules + other.joules }
    }

    /// So many times this.
    pub(super) fn times(self, factor: f64) -> Self {
        Self { seconds: self.seconds * factor, joules: self.joules * factor }
    }

    /// What this takes beyond the other, and no less than nothing.
    pub(super) fn beyond(self, other: Self) -> Self {
        Self { seconds: (self.seconds - other.seconds).max(0.0), joules: (self.joules - other.joules).max(0.0) }
    }

    /// Whether it is a time above nothing, and an energy.
    pub(super) fn is_sound(&self) -> bool {
        self.seconds > 0.0 && is_time(self.seconds) && (0.0..=MOST_JOULES).contains(&self.joules)
    }

    /// Between this and the other: 0 is this, 1 the other.
    pub(super) fn towards(self, other: Self, part: f64) -> Self {
        let between = |a: f64, b: f64| a + (b - a) * part;
        Self { seconds: between(self.seconds, other.seconds), joules: between(self.joules, other.joules) }
    }
}

/// What an iteration is made of; seconds that add up to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepParts {
    /// Kernels or sections.
    pub compute: f64,
    /// Collectives of the tensor group.
    pub tensor_comm: f64,
    /// Transfers between stages.
    pub pipeline_comm: f64,
    /// Exchanges between chips that share experts out.
    pub expert_comm: f64,
    /// Waiting for other stages.
    pub bubble: f64,
    /// Waiting for the host.
    pub other: f64,
    /// All steps of a model that drafts.
    pub drafting: f64,
}

impl StepParts {
    /// Those of a phase, behind so many seconds of drafting.
    pub fn new(time: &ServingTime, drafting: f64) -> Self {
        let ServingTime { compute, tensor_comm, pipeline_comm, expert_comm, bubble, other } = *time;
        Self { compute, tensor_comm, pipeline_comm, expert_comm, bubble, other, drafting }
    }

    /// Whether all are times.
    pub(super) fn is_sound(&self) -> bool {
        self.named().into_iter().all(|(_, seconds)| is_time(seconds))
    }

    /// Names and seconds, in the order of a picture.
    pub fn named(&self) -> [(&'static str, f64); 7] {
        [
            ("computing and memory", self.compute),
            ("tensor collectives", self.tensor_comm),
            ("transfers between stages", self.pipeline_comm),
            ("exchanges between experts", self.expert_comm),
            ("waiting for other stages", self.bubble),
            ("the host", self.other),
            ("drafting", self.drafting),
        ]
    }
}

/// An iteration.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Step {
    pub(super) cost: Cost,
    pub(super) parts: StepParts,
}
